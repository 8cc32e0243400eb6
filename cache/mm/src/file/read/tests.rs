//! The uses that a read makes of its pages.

use env::{Device, DeviceId, ObjectId};
use world::Sector;

use super::*;
use crate::testing::{Null, with_cache};
use crate::{DeviceOptions, Options};

#[test]
fn hits_before_a_mark_and_at_it_are_left_to_the_read_that_tells_its_reader() {
    with_cache(Options::new(1_024, 1), |task, cache| {
        let added = cache.add_device(task, DeviceId(0), Null.info(), DeviceOptions::default());
        let file = cache.open(task, added.unwrap(), ObjectId(0), Bytes::ZERO);
        let file = file.unwrap();
        file.assume_allocated(Bytes(2 * PAGE_SIZE));
        let mut writer = cache.writer();
        let [mut one, mut both] = [1, 2].map(|pages| vec![Sector::ZERO; 8 * pages]);
        file.write(task, &mut writer, Bytes::ZERO, &both).unwrap();
        let frames = [0, 1].map(|page| {
            let Slot::Frame(frame) = file.mapping.index.get(&cache.pages.pool, page) else {
                panic!("page {page} is cached")
            };
            frame
        });
        let table = &cache.pages.table;
        let used = || frames.map(|frame| table.flags(frame).has(Flags::REFERENCED));
        table.update(frames[1], Flags::MARK, Flags::NONE);
        assert_eq!(file.read_hits(task, Bytes::ZERO, &mut both), None);
        assert_eq!(file.read_hits(task, Bytes(PAGE_SIZE), &mut one), None);
        assert_eq!(used(), [false, false]);
        let hit = file.read_hits(task, Bytes::ZERO, &mut one);
        assert_eq!(hit, Some(Bytes(PAGE_SIZE)));
        assert_eq!(used(), [true, false]);
        cache.retire(task, writer);
        file.discard(task).unwrap();
    });
}
