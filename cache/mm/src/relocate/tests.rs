//! The flags that go along with a page, and the pages that stay.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use std::sync::Arc;

use env::{Device as _, ObjectId};
use policy::place::by_use::Purpose;
use policy::units::{Bytes, PAGE_SIZE, Pages};
use world::Sector;

use super::*;
use crate::alloc::Wanted;
use crate::lists::ZoneId;
use crate::testing::{NULL, Null, with_cache};
use crate::{Access, DeviceOptions, File, Options, Reader};

const FRAMES: u32 = 1024;

fn free_frame(task: &mut Task<'_>, cache: &Cache) -> FrameId {
    let mut fresh = Vec::new();
    let taken = cache.try_alloc(task, Wanted::new(1, Purpose::Used), &mut fresh);
    assert_eq!(taken, Ok(1));
    fresh[0]
}

fn page_in(cache: &Cache, frame: FrameId) -> Page {
    let (_, generation) = cache.pages.table.look(frame);
    Page { frame, generation }
}

fn frame_of(task: &Task<'_>, cache: &Cache, page: u32) -> FrameId {
    let mapping = cache.mapping(task, 0).unwrap();
    let Slot::Frame(frame) = mapping.lookup(task, &cache.pages.pool, page) else {
        panic!("page {page} is in memory");
    };
    frame
}

fn with_file(body: impl FnOnce(&mut Task<'_>, &Arc<Cache>, &Arc<File>) + Send + 'static) {
    with_cache(Options::new(FRAMES, 2), |task, cache| {
        let device = cache
            .add_device(task, NULL, Null.info(), DeviceOptions::default())
            .unwrap();
        let file = cache.open(task, device, ObjectId(1), Bytes(0)).unwrap();
        let mut writer = cache.writer();
        for page in 0..8u32 {
            let data = vec![Sector(page + 1); 8];
            let offset = Bytes(u64::from(page) * PAGE_SIZE);
            file.write(task, &mut writer, offset, &data).unwrap();
        }
        body(task, cache, &file);
    });
}

#[test]
fn a_dirty_page_moves_with_its_place_on_the_list() {
    with_file(|task, cache, file| {
        let (old, to) = (frame_of(task, cache, 3), free_frame(task, cache));
        let oldest_first = |cache: &Cache, task: &Task<'_>| {
            let frames = (0..8).map(|page| frame_of(task, cache, page));
            frames
                .map(|frame| cache.zones.lru(task).list_of(frame))
                .collect::<Vec<_>>()
        };
        let before = (
            oldest_first(cache, task),
            cache.zones.sizes(task, ZoneId(0)),
            // Its frame will be free.
            cache.memory.free() + 1,
        );
        let dirty = cache.stats().dirty;
        let page = page_in(cache, old);
        assert_eq!(move_page(task, cache, page, to), Ok(()));
        assert_eq!(frame_of(task, cache, 3), to);
        let after = (
            oldest_first(cache, task),
            cache.zones.sizes(task, ZoneId(0)),
            cache.memory.free(),
        );
        assert_eq!(before, after);
        assert_eq!(cache.stats().dirty, dirty);
        let flags = cache.pages.table.flags(to);
        assert!(
            flags.has(Flags::DIRTY | Flags::UPTODATE) && !flags.any(Flags::BUSY),
            "{flags:x?}"
        );
        assert!(cache.pages.table.flags(old).has(Flags::FREE));
        // A task that comes with the old number finds nothing to move.
        let to = free_frame(task, cache);
        assert_eq!(move_page(task, cache, page, to), Err(to));
        cache.put_unused(task, &[to]);
        file.sync(task).unwrap();
        let mut back = vec![Sector(0); 8];
        let mut reader = Reader::default();
        file.read(task, &mut reader, Bytes(3 * PAGE_SIZE), &mut back)
            .unwrap();
        assert_eq!(back, vec![Sector(4); 8]);
        assert!(cache.stats().is_conserved());
    });
}

#[test]
fn what_is_pinned_or_busy_or_off_the_lists_stays() {
    with_file(|task, cache, file| {
        let (frame, to) = (frame_of(task, cache, 5), free_frame(task, cache));
        let page = page_in(cache, frame);
        {
            let _pin = file.pin(task, &mut Reader::default(), 5).unwrap();
            assert_eq!(move_page(task, cache, page, to), Err(to));
        }
        {
            let owner = cache.pages.table.owner(frame);
            let busy = cache.pages.table.try_busy(frame, owner).unwrap();
            assert_eq!(move_page(task, cache, page, to), Err(to));
            cache.release(busy, Flags::NONE, Flags::NONE);
        }
        {
            assert!(cache.zones.lru(task).remove(frame));
            assert_eq!(move_page(task, cache, page, to), Err(to));
            assert!(!cache.pages.table.flags(frame).any(Flags::BUSY));
            cache.zones.add(task, &cache.pages, &[frame]);
        }
        assert!(cache.pages.table.try_begin_writeback(frame));
        assert_eq!(move_page(task, cache, page, to), Err(to));
        cache.pages.table.end_writeback(frame, true);
        assert_eq!(move_page(task, cache, page, to), Ok(()));
    });
}

#[test]
fn an_anonymous_page_takes_its_slot_and_its_bits_along() {
    with_file(|task, cache, _| {
        let device = policy::dirty::DeviceIndex(0);
        cache
            .add_swap(task, device, ObjectId(9), Pages(64))
            .unwrap();
        let spill = cache.spill(task, Pages(4)).unwrap();
        spill.touch(task, 0, 4).unwrap();
        let regions = cache.registry.regions.all(task);
        let region = &regions[0];
        let frame_of = |page| match region.pages.get(page) {
            RegionEntry::Frame(frame) => frame,
            other => panic!("{other:?}"),
        };
        let (old, to) = (frame_of(2), free_frame(task, cache));
        cache.swap.keep(old, 17);
        assert!(region.pages.is_mapped(2));
        assert_eq!(move_page(task, cache, page_in(cache, old), to), Ok(()));
        assert_eq!((frame_of(2), region.pages.is_mapped(2)), (to, true));
        assert_eq!(
            (cache.swap.slot_of(old), cache.swap.slot_of(to)),
            (None, Some(17))
        );
        // It was nobody's in the swap file.
        assert_eq!(cache.swap.take_from(to), Some(17));
        assert_eq!(cache.zones.sizes(task, ZoneId(0)).total().0, 12);
    });
}

#[test]
fn a_mapped_page_stays_mapped_where_it_goes() {
    with_file(|task, cache, file| {
        let map = file.map(task, Pages(8)).unwrap();
        let mut writer = cache.writer();
        map.touch(task, &mut writer, (0, 8), Access::Store).unwrap();
        let (old, to) = (frame_of(task, cache, 5), free_frame(task, cache));
        let page = page_in(cache, old);
        assert_eq!(move_page(task, cache, page, to), Ok(()));
        assert_eq!(frame_of(task, cache, 5), to);
        assert!(cache.pages.table.flags(to).has(Flags::MAPPED));
        assert_eq!(cache.zones[ZoneId(0)].mapped(), Pages(8));
        let again = map.touch(task, &mut writer, (0, 8), Access::Store).unwrap();
        assert_eq!(again.faults, Pages::ZERO);
        drop(map);
        assert_eq!(cache.zones[ZoneId(0)].mapped(), Pages::ZERO);
    });
}
