//! The marks that a write leaves on its pages.

use env::{Device, DeviceId, ObjectId};
use frames::{Flags, Slot};
use policy::reclaim::{ReclaimLaw, Tunables};
use policy::units::Bytes;
use world::Sector;

use crate::testing::{Null, over_nodes, with_cache};
use crate::{DeviceOptions, Options};

/// The pages of a file that are active once it was written in calls of `call` bytes.
fn active_after_calls_of(law: ReclaimLaw, call: u64) -> Vec<u32> {
    const PAGES: u32 = 64;
    let mut options = Options::new(1_024, 1);
    options.reclaim = Tunables::of(law, 250);
    with_cache(options, move |task, cache| {
        let added = cache.add_device(task, DeviceId(0), Null.info(), DeviceOptions::default());
        let file = cache.open(task, added.unwrap(), ObjectId(0), Bytes::ZERO);
        let file = file.unwrap();
        file.assume_allocated(Bytes(4096 * u64::from(PAGES)));
        let mut writer = cache.writer();
        writer.in_calls_of(Bytes(call));
        let pages = [Sector::ZERO; 8 * PAGES as usize];
        file.write(task, &mut writer, Bytes::ZERO, &pages).unwrap();
        let is_active = |page: &u32| {
            let Slot::Frame(frame) = file.mapping.index.get(&cache.pages.pool, *page) else {
                panic!("page {page} is cached")
            };
            cache.pages.table.flags(frame).has(Flags::ACTIVE)
        };
        let active = (0..PAGES).filter(is_active).collect();
        cache.retire(task, writer);
        file.discard(task).unwrap();
        active
    })
}

#[test]
fn of_pages_written_in_small_calls_the_fourteenth_is_active() {
    assert_eq!(
        active_after_calls_of(over_nodes(history::reclaim::LINUX_3_0), 512),
        [13, 27, 41, 55]
    );
    assert!(active_after_calls_of(over_nodes(history::reclaim::LINUX_3_0), 4096).is_empty());
    assert!(active_after_calls_of(history::reclaim::LINUX_5_15, 512).is_empty());
}

/// Tells if a page is marked as used, and as used again, after a write, and after a read that
/// follows it.
fn uses_of(law: ReclaimLaw) -> [(bool, bool); 2] {
    let mut options = Options::new(1_024, 1);
    options.reclaim = Tunables::of(law, 250);
    with_cache(options, |task, cache| {
        let added = cache.add_device(task, DeviceId(0), Null.info(), DeviceOptions::default());
        let file = cache.open(task, added.unwrap(), ObjectId(0), Bytes::ZERO);
        let file = file.unwrap();
        file.assume_allocated(Bytes(4096));
        let mut writer = cache.writer();
        let mut page = [Sector::ZERO; 8];
        let used = || {
            let Slot::Frame(frame) = file.mapping.index.get(&cache.pages.pool, 0) else {
                panic!("the page is cached")
            };
            let flags = cache.pages.table.flags(frame);
            (flags.has(Flags::REFERENCED), flags.has(Flags::ACTIVE))
        };
        file.write(task, &mut writer, Bytes::ZERO, &page).unwrap();
        let written = used();
        let mut reader = crate::Reader::default();
        file.read(task, &mut reader, Bytes::ZERO, &mut page)
            .unwrap();
        let read = used();
        cache.retire(task, writer);
        file.discard(task).unwrap();
        [written, read]
    })
}

#[test]
fn before_4_7_what_is_read_after_it_was_written_is_active() {
    let [written, read] = uses_of(over_nodes(history::reclaim::LINUX_3_0));
    assert_eq!(written, (true, false));
    assert!(read.1);
    for law in [history::reclaim::LINUX_5_15, ReclaimLaw::TIDEGATE] {
        let uses = uses_of(law);
        assert_eq!(uses, [(false, false), (true, false)], "{}", law.name);
    }
}
