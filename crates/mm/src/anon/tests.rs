//! The end of a region for which there is no thread.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use env::Cause;
use frames::{Flags, Owner, Slot};
use policy::units::Nanos;

use super::*;
use crate::Options;
use crate::lists::ZoneId;
use crate::testing::with_cache;

const FRAMES: u32 = 1024;

#[test]
fn a_region_that_finds_no_thread_is_given_back_by_others() {
    with_cache(Options::new(FRAMES, 2), |task, cache| {
        for by_reclaimer in [true, false] {
            let region = cache.spill(task, Pages(100)).unwrap();
            region.touch(task, 0, 100).unwrap();
            let Slot::Frame(frame) = region.anon.pages.get(7) else {
                panic!("it was touched");
            };
            let owner = Owner {
                file: region.anon.id,
                index: 7,
            };
            let busy = cache.pages.table.try_busy(frame, owner).unwrap();
            cache.env.refuse_tasks(true);
            drop(region);
            cache.env.refuse_tasks(false);
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
