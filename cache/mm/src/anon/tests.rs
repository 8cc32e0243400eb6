//! The end of a region for which there is no thread.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use env::Cause;
use frames::{Flags, Owner, RegionEntry};
use policy::place::machine::Machine;
use policy::units::Nanos;

use super::*;
use crate::Options;
use crate::lists::ZoneId;
use crate::memory::free::Pick;
use crate::testing::{with_cache, with_lab};
use crate::vmstat::Item;

const FRAMES: u32 = 1024;

#[test]
fn a_region_that_finds_no_thread_is_given_back_by_others() {
    with_lab(Options::new(FRAMES, 2), |task, cache, lab| {
        for by_reclaimer in [true, false] {
            let region = cache.spill(task, Pages(100)).unwrap();
            region.touch(task, 0, 100).unwrap();
            let RegionEntry::Frame(frame) = region.anon.pages.get(7) else {
                panic!("it was touched");
            };
            let owner = Owner {
                file: region.anon.id,
                index: 7,
            };
            let busy = cache.pages.table.try_busy(frame, owner).unwrap();
            lab.refuse_tasks(true);
            drop(region);
            lab.refuse_tasks(false);
            assert_eq!(cache.memory.free(), FRAMES - 1);
            // Still busy: it stays.
            cache.drop_remains(task);
            let left = cache.registry.regions.take_left(task);
            assert_eq!(left.len(), 1);
            for region in left {
                cache.registry.regions.leave(task, region);
            }
            cache.release(busy, Flags::NONE, Flags::NONE);
            if by_reclaimer {
                cache.zones.node_of(ZoneId(0)).background().ask();
                task.sleep(Cause::Idle, Nanos::secs(1));
            } else {
                drop(cache.spill(task, Pages(1)).unwrap());
            }
            assert_eq!(cache.memory.free(), FRAMES);
            assert_eq!(cache.registry.regions.pages(), Pages::ZERO);
            assert!(cache.registry.regions.all(task).is_empty());
        }
    });
}

/// The work of a page on another node is reported with the touch or the copy, and nothing of the
/// kind where there is one node.
#[test]
fn a_page_on_another_node_costs_more_to_touch_and_to_copy() {
    for (nodes, far) in [(1, 0), (2, 10)] {
        let mut options = Options::new(FRAMES, 2);
        options.machine = (nodes > 1).then(|| Machine::even(Pages(1024), nodes, 2).unwrap());
        with_cache(options, move |task, cache| {
            // The task's own node has no more.
            let home = ZoneId(0);
            let own = FRAMES / u32::from(nodes);
            let left = if nodes > 1 { 0 } else { 100 };
            let mut taken = Vec::new();
            let all = own - left;
            cache.memory.populate_all(task).unwrap();
            let pick = Pick::single(home, all);
            let movable = |_| true;
            cache
                .memory
                .take(task, pick, &mut taken, |taken| all - taken, movable)
                .unwrap();
            let region = cache.spill(task, Pages(10)).unwrap();
            let touched = region.touch(task, 0, 10).unwrap();
            assert_eq!((touched.pages, touched.far), (Pages(10), Pages(far)));
            assert_eq!(region.touch(task, 2, 3).unwrap().far, Pages(far.min(3)));
            let mut data = vec![world::Sector::ZERO; 8];
            region.read(task, Bytes(0), &mut data).unwrap();
            region.write(task, Bytes(4096), &data).unwrap();
            let counters = &cache.counters;
            assert_eq!(counters.get(Item::NumaRemoteTouch), far + far.min(3));
            assert_eq!(counters.get(Item::NumaRemoteCopy), far.min(2));
            cache.memory.put(task, &taken);
        });
    }
}
