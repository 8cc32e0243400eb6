//! Reclaim of pages that are mapped.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use std::sync::Arc;

use env::{Device, ObjectId, Task};
use policy::reclaim::throttle::Who;
use policy::units::{Bytes, Pages};
use world::{Lab, Options as LabOptions};

use super::*;
use crate::lists::ZoneId;
use crate::reclaim::direct::direct;
use crate::reclaim::trim::trim_cluster;
use crate::testing::Null;
use crate::{DeviceOptions, Item, Options};

const FRAMES: u32 = 2048;
/// Of the program that has a live map.
const VIEW: u32 = 0;

/// A cache over a device that is done with everything at once, and a file of `pages` pages of which
/// nothing is there.
fn with_file<T: Send + 'static>(
    pages: u32,
    body: impl FnOnce(&mut Task<'_>, &Arc<Cache>, &Arc<File>) -> T + Send + 'static,
) -> T {
    let mut lab = Lab::new(LabOptions {
        frames: FRAMES,
        ..LabOptions::default()
    });
    let id = lab.add_device(Arc::new(Null));
    assert_eq!(lab.stamps().open_view(), VIEW);
    let env = Arc::clone(lab.env());
    lab.run(move |task| {
        let cache = Cache::new(env, Options::new(FRAMES, 2)).unwrap();
        let options = DeviceOptions::default();
        let device = cache.add_device(task, id, Null.info(), options).unwrap();
        let file = cache.open(task, device, ObjectId(1), Bytes::ZERO).unwrap();
        let len = Pages(u64::from(pages)).bytes();
        file.truncate(task, len).unwrap();
        let answer = body(task, &cache, &file);
        cache.shutdown(task).unwrap();
        assert!(cache.stats().is_conserved());
        answer
    })
    .unwrap()
}

fn reclaim(task: &mut Task<'_>, cache: &Cache) -> Pages {
    direct(task, cache, Pages(32), Who::DIRECT)
}

#[test]
fn a_page_that_was_used_gets_a_second_chance_and_is_unmapped_before_it_is_freed() {
    with_file(64, |task, cache, file| {
        let map = file.map(task, Pages(64)).unwrap();
        let mut writer = cache.writer();
        map.touch(task, &mut writer, (0, 64), Access::Store)
            .unwrap();
        file.sync(task).unwrap();
        let count = |item| cache.vmstat().get(item);
        assert_eq!(count(Item::NrMapped), 64);
        let freed = reclaim(task, cache);
        assert!(freed >= Pages(32), "{freed:?}");
        // Each was looked at twice at least.
        assert!(count(Item::PgscanDirect) >= 2 * freed.0);
        assert_eq!(count(Item::NrMapped), 64 - freed.0);
        // The evicted pages fault again, and are read: they were written.
        let again = map.touch(task, &mut writer, (0, 64), Access::Load).unwrap();
        assert_eq!((again.faults, again.major), (freed, freed));
        assert_eq!(count(Item::NrMapped), 64);
        drop(map);
        assert_eq!(count(Item::NrMapped), 0);
    });
}

/// To take a page out of a program's page table stops CPUs, and is no use where it was used once as
/// all others were.
#[test]
fn a_turn_on_a_live_map_takes_some_of_the_pages_that_were_used_once() {
    with_file(1024, |task, cache, file| {
        let map = file.map_live(task, Pages(1024), VIEW).unwrap();
        let (mut writer, mut stream) = (cache.writer(), Stream::default());
        for page in 0..1024 {
            let by = (&mut writer, &mut stream);
            map.fault(task, by, page, Access::Load).unwrap();
        }
        let freed = reclaim(task, cache);
        assert!(freed >= Pages(32), "{freed:?}");
        let scanned = cache.vmstat().get(Item::PgscanDirect);
        assert!(scanned <= 5 * freed.0, "{scanned} pages for {freed:?}");
        // Those that were spared are to be used again.
        let young = (0..1024).filter(|page| map.map.test_and_clear_young(*page));
        assert_eq!(young.count() as u64, 1024 - scanned);
    });
}

#[test]
fn a_pass_that_may_not_unmap_leaves_mapped_pages_as_they_are() {
    with_file(256, |task, cache, file| {
        let map = file.map(task, Pages(256)).unwrap();
        let mut writer = cache.writer();
        map.touch(task, &mut writer, (0, 256), Access::Load)
            .unwrap();
        let scanned = |cache: &Cache| cache.vmstat().get(Item::PgscanDirect);
        trim_cluster(task, cache, ZoneId(0));
        assert_eq!(scanned(cache), 64, "two clusters in vain");
        assert_eq!(cache.vmstat().get(Item::PgstealDirect), 0);
        let zone = &cache.zones[ZoneId(0)];
        assert_eq!(zone.mapped(), Pages(256));
        // Nor were they found out not to be used: the next reclaimer gives each its second chance.
        for page in 0..256 {
            assert!(map.map.test_and_clear_young(page), "page {page}");
        }
        drop(map);
        assert_eq!(zone.mapped(), Pages::ZERO);
        trim_cluster(task, cache, ZoneId(0));
        assert_eq!(cache.vmstat().get(Item::PgstealDirect), 32);
    });
}

#[test]
fn a_dirty_page_that_is_not_used_any_more_is_unmapped_where_it_stands() {
    with_file(64, |task, cache, file| {
        let map = file.map(task, Pages(64)).unwrap();
        let mut writer = cache.writer();
        map.touch(task, &mut writer, (0, 64), Access::Store)
            .unwrap();
        for page in 0..64 {
            map.map.test_and_clear_young(page);
        }
        reclaim(task, cache);
        assert!(cache.zones[ZoneId(0)].mapped() <= Pages(32));
        // The next store is a fault, though the page never left.
        let again = map
            .touch(task, &mut writer, (0, 64), Access::Store)
            .unwrap();
        assert!(again.faults >= Pages(32), "{again:?}");
        assert_eq!(again.major, Pages::ZERO);
        assert_eq!(cache.zones[ZoneId(0)].mapped(), Pages(64));
    });
}

#[test]
fn what_a_map_takes_is_counted_with_the_tables_of_regions() {
    with_file(1, |task, cache, file| {
        let regions = &cache.registry.regions;
        let map = file.map(task, Pages(17)).unwrap();
        assert_eq!(regions.pages(), Pages(3));
        let other = file.map(task, Pages(17)).unwrap();
        assert_eq!(regions.pages(), Pages(3));
        let refused = |pages: u64, most: u64, what: &str| {
            let error = file.map(task, Pages(pages)).err().unwrap();
            let said = error.to_string();
            assert!(
                said.contains(what) && said.contains(&most.to_string()),
                "{said}"
            );
            assert!(matches!(error, Error::BadOption { value, allowed, .. }
                if value == pages && allowed == (1, most)));
        };
        refused(18, 17, "mapped already");
        refused(0, u64::from(u32::MAX), "pages of a file that is mapped");
        drop(map);
        refused(18, 17, "mapped already");
        drop(other);
        assert_eq!(regions.pages(), Pages::ZERO);
        let most = cache.table_pages_most() * PAGES_A_REGION_PAGE;
        refused(most + 1, most, "beside the regions");
        assert_eq!(file.map(task, Pages(most)).unwrap().len(), Pages(most));
    });
}
