//! Files that are mapped, through what their users call.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use std::sync::Arc;

use crate::common::{data, world};
use env::{Cause, Task};
use mm::{Access, Cache, Error, File, FileMap, Item, Reader, Writer};
use policy::units::{Bytes, Nanos, Pages};
use world::Sector;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;

fn read_back(task: &mut Task<'_>, file: &File, page: u64) -> Vec<Sector> {
    let mut back = vec![Sector(77); 8];
    let mut reader = Reader::default();
    file.read(task, &mut reader, Bytes(page * PAGE), &mut back)
        .unwrap();
    back
}

/// The sectors that a store to a page of a hole leaves.
fn stamped(page: u32) -> Vec<Sector> {
    let mut sectors = vec![Sector(0); 8];
    sectors[0] = Sector(page + 1);
    sectors
}

/// A file of `pages` pages that is mapped and stored to, all of it.
fn stored(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    file: &Arc<File>,
    pages: u32,
) -> (FileMap, Writer) {
    file.truncate(task, Bytes(u64::from(pages) * PAGE)).unwrap();
    let map = file.map(task, Pages(u64::from(pages))).unwrap();
    let mut writer = cache.writer();
    map.touch(task, &mut writer, (0, pages), Access::Store)
        .unwrap();
    (map, writer)
}

fn mapped(cache: &Cache) -> u64 {
    cache.vmstat().get(Item::NrMapped)
}

#[test]
fn a_hole_is_stored_to_without_a_read_and_its_pages_are_written() {
    let mut world = world(4096, 64 * MIB);
    let disk = Arc::clone(&world.disk);
    world.run(0, move |task, cache, file| {
        file.truncate(task, Bytes(100 * PAGE)).unwrap();
        let map = file.map(task, Pages(100)).unwrap();
        let mut writer = cache.writer();
        let touched = map
            .touch(task, &mut writer, (10, 80), Access::Store)
            .unwrap();
        assert_eq!((touched.pages, touched.faults), (Pages(80), Pages(80)));
        assert_eq!(cache.stats().dirty, Pages(80));
        assert_eq!(mapped(cache), 80);
        // All of them are there by now.
        let touched = map
            .touch(task, &mut writer, (10, 80), Access::Store)
            .unwrap();
        assert_eq!(touched.faults, Pages(0));
        assert_eq!(cache.stats().dirtied, Pages(80));
        file.sync(task).unwrap();
        assert_eq!(disk.state().reads, 0);
        for page in 10..90 {
            let stored = disk.state().pages[&(1, u64::from(page))];
            assert_eq!(stored.to_vec(), stamped(page), "page {page}");
        }
        assert!(!disk.state().pages.contains_key(&(1, 9)));
        cache.retire(task, writer);
    });
}

#[test]
fn the_begin_of_a_write_takes_the_right_to_store_and_not_the_mapping() {
    let mut world = world(4096, 64 * MIB);
    world.run(0, move |task, cache, file| {
        let (map, mut writer) = stored(task, cache, file, 32);
        file.sync(task).unwrap();
        assert_eq!((cache.stats().dirty, mapped(cache)), (Pages(0), 32));
        let mut faults = |access, first, count| {
            let touched = map
                .touch(task, &mut writer, (first, count), access)
                .unwrap();
            assert_eq!(touched.major, Pages(0));
            touched.faults
        };
        assert_eq!(faults(Access::Load, 0, 32), Pages(0));
        assert_eq!(faults(Access::Store, 4, 8), Pages(8));
        assert_eq!(cache.stats().dirty, Pages(8));
        assert_eq!(faults(Access::Store, 4, 8), Pages(0));
        file.sync(task).unwrap();
        assert_eq!(cache.stats().written, Pages(40));
    });
}

#[test]
fn pages_on_the_device_are_read_and_keep_what_they_hold() {
    let mut world = world(4096, 64 * MIB);
    let disk = Arc::clone(&world.disk);
    for page in 0..8 {
        let sectors = data(page, 1, 3).try_into().unwrap();
        disk.state().pages.insert((1, u64::from(page)), sectors);
    }
    world.run(8 * PAGE, move |task, cache, file| {
        // Four pages of a hole behind those on the device.
        file.truncate(task, Bytes(12 * PAGE)).unwrap();
        let map = file.map(task, Pages(12)).unwrap();
        let mut writer = cache.writer();
        let loaded = map.touch(task, &mut writer, (2, 10), Access::Load).unwrap();
        assert_eq!((loaded.faults, loaded.major), (Pages(10), Pages(6)));
        assert_eq!(cache.stats().dirty, Pages(0));
        let stored = map
            .touch(task, &mut writer, (0, 12), Access::Store)
            .unwrap();
        assert_eq!((stored.faults, stored.major), (Pages(12), Pages(2)));
        assert_eq!(cache.stats().dirty, Pages(12));
        file.sync(task).unwrap();
        for page in 0..8 {
            let kept = disk.state().pages[&(1, u64::from(page))];
            assert_eq!(kept.to_vec(), data(page, 1, 3));
        }
        // Those of the hole were read before they were stored to: zeroes.
        assert_eq!(disk.state().pages[&(1, 9)].to_vec(), vec![Sector(0); 8]);
    });
}

#[test]
fn a_read_that_fails_is_told_and_the_next_access_tries_again() {
    let mut world = world(4096, 64 * MIB);
    let disk = Arc::clone(&world.disk);
    world.run(4 * PAGE, move |task, cache, file| {
        let map = file.map(task, Pages(4)).unwrap();
        let mut writer = cache.writer();
        for access in [Access::Store, Access::Load] {
            {
                let mut disk = disk.state();
                disk.fail_reads = disk.reads..disk.reads + 1;
            }
            let failed = map.touch(task, &mut writer, (0, 1), access);
            assert!(
                matches!(failed, Err(Error::ReadFailed { .. })),
                "{failed:?}"
            );
            assert_eq!(mapped(cache), 0);
        }
        let stored = map.touch(task, &mut writer, (0, 1), Access::Store).unwrap();
        assert_eq!((stored.faults, stored.major), (Pages(1), Pages(1)));
    });
}

#[test]
fn what_is_cut_is_neither_mapped_nor_there_any_more() {
    let mut world = world(4096, 64 * MIB);
    world.run(0, move |task, cache, file| {
        let (map, mut writer) = stored(task, cache, file, 64);
        file.truncate(task, Bytes(16 * PAGE)).unwrap();
        assert_eq!((cache.stats().dirty, mapped(cache)), (Pages(16), 16));
        let beyond = map.touch(task, &mut writer, (15, 2), Access::Store);
        assert!(matches!(
            beyond,
            Err(Error::OutOfRange { what: "file", .. })
        ));
        // Made longer again it has a hole there.
        file.truncate(task, Bytes(64 * PAGE)).unwrap();
        map.touch(task, &mut writer, (32, 1), Access::Load).unwrap();
        assert_eq!(read_back(task, file, 32), vec![Sector(0); 8]);
        file.punch(task, Bytes(8 * PAGE), Bytes(4 * PAGE)).unwrap();
        assert_eq!(mapped(cache), 13);
        let stored = map
            .touch(task, &mut writer, (0, 16), Access::Store)
            .unwrap();
        assert_eq!(stored.faults, Pages(4));
        assert!(matches!(
            map.touch(task, &mut writer, (64, 1), Access::Load),
            Err(Error::OutOfRange { what: "map", .. })
        ));
    });
}

#[test]
fn a_file_that_is_closed_or_thrown_away_is_used_no_more_through_its_map() {
    for throws_away in [false, true] {
        let mut world = world(4096, 64 * MIB);
        world.run(0, move |task, cache, file| {
            file.truncate(task, Bytes(64 * PAGE)).unwrap();
            let map = file.map(task, Pages(64)).unwrap();
            let mut writer = cache.writer();
            map.touch(task, &mut writer, (0, 64), Access::Store)
                .unwrap();
            if throws_away {
                file.discard(task).unwrap();
            } else {
                file.close(task).unwrap();
            }
            assert_eq!((cache.stats().cached, mapped(cache)), (Pages(0), 0));
            for access in [Access::Load, Access::Store] {
                let refused = map.touch(task, &mut writer, (0, 1), access);
                assert!(refused.is_err(), "{refused:?}");
            }
            drop(map);
            assert_eq!(mapped(cache), 0);
        });
    }
}

#[test]
fn the_last_handle_that_goes_unmaps_the_pages_and_leaves_them() {
    let mut world = world(4096, 64 * MIB);
    world.run(0, move |task, cache, file| {
        file.truncate(task, Bytes(200 * PAGE)).unwrap();
        let mut writer = cache.writer();
        let one = file.map(task, Pages(200)).unwrap();
        let other = file.map(task, Pages(10)).unwrap();
        one.touch(task, &mut writer, (0, 200), Access::Store)
            .unwrap();
        let seen = other
            .touch(task, &mut writer, (0, 10), Access::Store)
            .unwrap();
        assert_eq!(seen.faults, Pages(0), "a file has one page table");
        drop(one);
        assert_eq!(mapped(cache), 200);
        drop(other);
        assert_eq!((mapped(cache), cache.stats().dirty), (0, Pages(200)));
        // More pages than before.
        let again = file.map(task, Pages(300)).unwrap();
        let stored = again
            .touch(task, &mut writer, (0, 200), Access::Store)
            .unwrap();
        assert_eq!((stored.faults, stored.major), (Pages(200), Pages(0)));
        assert_eq!(cache.stats().dirtied, Pages(200));
    });
}

#[test]
fn a_pin_keeps_what_it_sees_when_its_page_is_stored_to() {
    let mut world = world(4096, 64 * MIB);
    world.run(0, move |task, cache, file| {
        file.truncate(task, Bytes(4 * PAGE)).unwrap();
        let map = file.map(task, Pages(4)).unwrap();
        let mut writer = cache.writer();
        map.touch(task, &mut writer, (0, 4), Access::Store).unwrap();
        file.sync(task).unwrap();
        let pinned = file.pin(task, &mut Reader::default(), 2).unwrap();
        // Mapped for a load beside the pin, it is not copied.
        let loaded = map.touch(task, &mut writer, (2, 1), Access::Load).unwrap();
        assert_eq!(loaded.faults, Pages(0));
        assert_eq!(cache.stats().cached, Pages(4));
        let free = cache.stats().free;
        let stored = map.touch(task, &mut writer, (2, 1), Access::Store).unwrap();
        assert_eq!(stored.faults, Pages(1));
        assert_eq!(cache.stats().free + Pages(1), free, "a frame of its own");
        assert_eq!((mapped(cache), cache.stats().dirty), (4, Pages(1)));
        drop(pinned);
        assert_eq!(cache.stats().free, free);
        assert_eq!(read_back(task, file, 2), stamped(2));
    });
}

#[test]
fn stores_are_paced_as_writes_are() {
    let mut world = world(8192, 4 * MIB).limits(800, 400);
    world.run(0, move |task, cache, file| {
        const PAGES: u32 = 4000;
        file.truncate(task, Bytes(u64::from(PAGES) * PAGE)).unwrap();
        let map = file.map(task, Pages(PAGES.into())).unwrap();
        let mut writer = cache.writer();
        let began = task.now();
        for first in (0..PAGES).step_by(32) {
            map.touch(task, &mut writer, (first, 32), Access::Store)
                .unwrap();
            let stats = cache.stats();
            let unwritten = stats.dirty + stats.writeback;
            assert!(unwritten <= Pages(800 + 64), "{unwritten:?}");
        }
        // As long as the device needs for what may not stay dirty.
        let least = u64::from(PAGES - 864) * PAGE * 1_000_000_000 / (4 * MIB);
        let took = task.now().since(began);
        assert!(took >= Nanos(least), "{took:?}");
        cache.retire(task, writer);
    });
}

#[test]
fn more_is_stored_than_there_is_memory() {
    let mut world = world(1024, 64 * MIB);
    let disk = Arc::clone(&world.disk);
    world.run(0, move |task, cache, file| {
        const PAGES: u32 = 5000;
        file.truncate(task, Bytes(u64::from(PAGES) * PAGE)).unwrap();
        let map = file.map(task, Pages(PAGES.into())).unwrap();
        let mut writer = cache.writer();
        for first in (0..PAGES).step_by(50) {
            map.touch(task, &mut writer, (first, 50), Access::Store)
                .unwrap();
        }
        file.sync(task).unwrap();
        assert_eq!(disk.state().pages.len(), PAGES as usize);
        let stats = cache.stats();
        assert_eq!(stats.dirtied, Pages(PAGES.into()));
        assert!(mapped(cache) <= stats.cached.0);
        cache.retire(task, writer);
    });
}

#[test]
fn a_store_beside_a_write_of_its_page_makes_it_dirty_again() {
    let mut world = world(4096, MIB);
    let disk = Arc::clone(&world.disk);
    world.run(0, move |task, cache, file| {
        let (map, mut writer) = stored(task, cache, file, 16);
        let other = Arc::clone(file);
        let sync = env::spawn(task.env(), "sync", move |task| other.sync(task));
        while cache.stats().writeback.is_zero() {
            task.sleep(Cause::Idle, Nanos::micros(100));
        }
        let stored = map
            .touch(task, &mut writer, (0, 16), Access::Store)
            .unwrap();
        assert_eq!(stored.faults, Pages(16));
        assert_eq!(cache.stats().dirty, Pages(16));
        sync.join(task).unwrap().unwrap();
        file.sync(task).unwrap();
        assert_eq!(cache.stats().written, Pages(32));
        assert_eq!(disk.state().pages[&(1, 5)].to_vec(), stamped(5));
    });
}
