//! Tests of internals: the cost of a page scanned, and states that hold for a moment.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use core::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Instant;

use env::{Device, DeviceId, ObjectId, Task};
use frames::{Flags, Owner, RegionEntry, Slot};
use policy::place::by_use::Purpose;
use policy::reclaim::scan::{Kind, Lru, Priority, Turn};
use policy::reclaim::throttle::Who;
use policy::reclaim::turn::BOUND;
use policy::reclaim::{ReclaimLaw, Tunables};
use policy::units::{Bytes, Nanos, Pages};
use world::{Lab, Options as LabOptions, Sector};

use super::shrink::{Sorted, Swapped, swap_out};
use super::{Control, throttle};
use crate::alloc::Wanted;
use crate::lists::ZoneId;
use crate::lists::isolate::Page;
use crate::registry::regions::Cursor;
use crate::testing::{Null, over_nodes, read_whole, with_cache};
use crate::{Cache, DeviceOptions, Item, Options, Reader};
use policy::reclaim::SwapSender;

/// Reclaims half of a cache full of clean pages, twice over, and answers nanoseconds a page
/// scanned.
fn scan_cost(frames: u32) -> f64 {
    let mut lab = Lab::new(LabOptions {
        frames,
        ..LabOptions::default()
    });
    let id = lab.add_device(Arc::new(Null));
    let env = Arc::clone(lab.env());
    lab.run(move |task| {
        let cache = Cache::new(env, Options::new(frames, 2)).unwrap();
        let _file = read_whole(task, &cache, id, Bytes(u64::from(frames) << 12));
        let scanned = |cache: &Cache| cache.vmstat().get(Item::PgscanDirect);
        let before = scanned(&cache);
        let began = Instant::now();
        let half = Pages(u64::from(frames / 2));
        let freed = super::direct::direct(task, &cache, half, Who::DIRECT);
        let took = began.elapsed();
        assert!(freed >= half, "{freed:?}");
        let pages = scanned(&cache) - before;
        let _ = cache.shutdown(task);
        took.as_secs_f64() * 1e9 / pages as f64
    })
    .unwrap()
}

#[test]
fn half_of_the_clean_pages_go_when_asked_for() {
    assert!(scan_cost(4096) > 0.0);
}

/// `cargo test --release -p tidegate-mm --lib -- --ignored --nocapture cost_of`
#[test]
#[ignore = "a measurement"]
fn cost_of_a_page_scanned() {
    for frames in [16_384, 65_536, 262_144] {
        let costs = [0; 3].map(|_| scan_cost(frames));
        println!("{frames} frames: {costs:.1?} ns a page scanned and freed");
    }
}

/// Runs `body` with a cache of 1024 frames that has a swap file on a device which completes
/// everything at once.
fn with_swap<T: Send + 'static>(
    law: ReclaimLaw,
    swap: u64,
    body: impl FnOnce(&mut Task<'_>, &Arc<Cache>) -> T + Send + 'static,
) -> T {
    with_swap_of(Tunables::of(law, 250), swap, body)
}

fn with_swap_of<T: Send + 'static>(
    tunables: Tunables,
    swap: u64,
    body: impl FnOnce(&mut Task<'_>, &Arc<Cache>) -> T + Send + 'static,
) -> T {
    let frames = 1024;
    let mut lab = Lab::new(LabOptions {
        frames,
        ..LabOptions::default()
    });
    let id = lab.add_device(Arc::new(Null));
    let env = Arc::clone(lab.env());
    lab.run(move |task| {
        let mut options = Options::new(frames, 2);
        options.reclaim = tunables;
        let cache = Cache::new(env, options).unwrap();
        let info = Null.info();
        let device = cache
            .add_device(task, id, info, DeviceOptions::default())
            .unwrap();
        cache
            .add_swap(task, device, ObjectId(9), Pages(swap))
            .unwrap();
        let answer = body(task, &cache);
        let _ = cache.shutdown(task);
        answer
    })
    .unwrap()
}

/// Makes every page of a region leave for the swap file.
fn all_out(task: &mut Task<'_>, cache: &Cache, region: &crate::Spill) {
    for _ in 0..100 {
        if region.resident().is_zero() {
            return;
        }
        super::direct::direct(task, cache, Pages(256), Who::DIRECT);
        task.sleep(env::Cause::Idle, Nanos::millis(1));
    }
    panic!("pages stay: {:?}", region.resident());
}

const REGION: u32 = 1 << 31;

/// A scanner knows the owner of a page from a look that is old by now: the region's number may be
/// another, smaller region's, and the frame may hold a page of a file.
#[test]
fn an_old_owner_harms_nobody() {
    with_swap(ReclaimLaw::TIDEGATE, 4096, |task, cache| {
        let region = cache.spill(task, Pages(10)).unwrap();
        region.touch(task, 0, 10).unwrap();
        let young = |file, index| {
            Cursor::default().test_and_clear_young(
                &cache.registry.regions,
                task,
                Owner { file, index },
            )
        };
        assert!(!young(REGION, 5000), "beyond its end");
        assert!(!young(0, 3), "a file's page");
        assert!(young(REGION, 3), "which takes no region's young bit away");
    });
}

/// A page that was read back and is only read has its slot and is clean: a reclaimer that found it
/// pinned, and so did not free it, does not send it out either.
#[test]
fn a_clean_page_is_not_sent_out() {
    with_swap(ReclaimLaw::TIDEGATE, 4096, |task, cache| {
        let region = cache.spill(task, Pages(16)).unwrap();
        region.touch(task, 0, 16).unwrap();
        all_out(task, cache, &region);
        region.read(task, Bytes(0), &mut [Sector(0); 8]).unwrap();
        let anon = cache.registry.regions.get(task, REGION).unwrap();
        let RegionEntry::Frame(frame) = anon.pages.get(0) else {
            panic!("it was read")
        };
        let (flags, generation) = cache.pages.table.look(frame);
        assert!(cache.swap_has_slot(frame) && !flags.has(Flags::DIRTY));
        let mut sorted = Sorted::new();
        let page = Page { frame, generation };
        let swapped = swap_out(task, cache, page, &mut sorted);
        assert!(matches!(swapped, Swapped::Refused));
        region.touch(task, 0, 16).unwrap();
    });
}

/// A page whose read failed stands in its region and holds nothing: its slot is not given up,
/// however scarce slots are and the task that takes the page for used.
#[test]
fn a_page_that_holds_nothing_keeps_its_slot() {
    with_swap(ReclaimLaw::TIDEGATE, 20, |task, cache| {
        let region = cache.spill(task, Pages(16)).unwrap();
        region.touch(task, 0, 16).unwrap();
        all_out(task, cache, &region);
        let anon = cache.registry.regions.get(task, REGION).unwrap();
        let RegionEntry::Swapped(slot) = anon.pages.get(3) else {
            panic!("it is out")
        };
        // As `start_swap_in` does, up to a read that fails.
        let mut frames = Vec::new();
        cache
            .alloc(task, Wanted::new(1, Purpose::Anon), &mut frames)
            .unwrap();
        let busy = cache.install_for_test(task, &anon, 3, slot, frames[0]);
        cache.drop_slot_if_full(task, &busy);
        assert!(cache.swap_has_slot(frames[0]), "the only copy is there");
        cache.release(busy, Flags::FAILED, Flags::NONE);
        region.touch(task, 0, 16).unwrap();
    });
}

/// A task that sleeps in a reclaimer's pause is not at work, and is not counted off twice.
#[test]
fn at_work_are_those_at_work() {
    for law in [
        history::reclaim::LINUX_5_16_RC1,
        history::reclaim::LINUX_5_16,
        history::reclaim::LINUX_5_15,
    ] {
        with_swap(law, 4096, |task, cache| {
            // Dirty and never written: nothing to be freed, and something to hope for.
            cache
                .writeback
                .totals
                .dirty
                .fetch_add(600, Ordering::Relaxed);
            let env = task.env();
            let reclaim = |_| {
                let cache = Arc::clone(cache);
                env::spawn(env, "reclaim", move |task| {
                    super::direct::direct(task, &cache, Pages(32), Who::DIRECT);
                })
            };
            let reclaimers: Vec<_> = (0..3).map(reclaim).collect();
            let mut most = 0;
            for _ in 0..100 {
                most = most.max(cache.zones[ZoneId(0)].at_work());
                task.sleep(env::Cause::Idle, Nanos::millis(1));
            }
            assert!(most <= 3, "{most} at work of three");
            for reclaimer in reclaimers {
                let _ = reclaimer.join(task);
            }
            cache
                .writeback
                .totals
                .dirty
                .fetch_sub(600, Ordering::Relaxed);
        });
    }
}

/// A task that drops its last handle gives its pages back, like a task that discards them: it does
/// not grow by its next region.
#[test]
fn a_region_that_is_dropped_counts_for_the_task_that_took_its_memory() {
    let mut options = Options::new(4096, 2);
    options.reclaim = Tunables::of(ReclaimLaw::TIDEGATE, 250);
    with_cache(options, |task, cache| {
        let grows = |task: &Task<'_>| {
            let (now, line) = (task.now(), cache.memory.test_queue());
            !line.is_modest(task, task.id(), now)
        };
        let region = cache.spill(task, Pages(1000)).unwrap();
        region.touch(task, 0, 1000).unwrap();
        assert!(grows(task), "it has taken pages and kept them");
        drop(region);
        assert!(!grows(task), "it has given them back");
    });
}

/// The background reclaimer has found nothing for long.
fn give_up(task: &Task<'_>, cache: &Cache) {
    let zone = &cache.zones[ZoneId(0)];
    for _ in 0..16 {
        zone.balance(task)
            .failures_mut()
            .balanced(Pages::ZERO, false);
    }
    assert!(cache.is_hopeless(task, ZoneId(0)));
}

/// Something is under way, and the background reclaimer has given up on a memory that has changed
/// since: it looks again when a waiter has reached its bound, and not after all of the bounds for
/// which writes are trusted.
#[test]
fn nobody_waits_long_for_a_reclaimer_that_has_given_up() {
    let took = with_swap(ReclaimLaw::TIDEGATE, 4096, |task, cache| {
        give_up(task, cache);
        cache
            .writeback
            .totals
            .writeback
            .fetch_add(1, Ordering::Relaxed);
        let region = cache.spill(task, Pages(1500)).unwrap();
        let began = task.now();
        region.touch(task, 0, 1500).unwrap();
        cache
            .writeback
            .totals
            .writeback
            .fetch_sub(1, Ordering::Relaxed);
        task.now().since(began)
    });
    assert!(took >= BOUND, "it waited: {took:?}");
    assert!(took < BOUND + BOUND, "{took:?}");
}

/// Pages that reclaim waits for have been written: there is something to be found.
#[test]
fn a_page_that_can_go_has_the_background_look_again() {
    with_swap(ReclaimLaw::TIDEGATE, 4096, |task, cache| {
        let region = cache.spill(task, Pages(1)).unwrap();
        region.touch(task, 0, 1).unwrap();
        let anon = cache.registry.regions.get(task, REGION).unwrap();
        let RegionEntry::Frame(frame) = anon.pages.get(0) else {
            panic!("it was touched")
        };
        give_up(task, cache);
        let (_, generation) = cache.pages.table.look(frame);
        let mut sorted = Sorted::new();
        let swapped = swap_out(task, cache, Page { frame, generation }, &mut sorted);
        assert!(matches!(swapped, Swapped::Begun));
        assert!(cache.is_hopeless(task, ZoneId(0)));
        cache.submit_swap_out(task, sorted.swap_out(), SwapSender::Limit);
        assert!(!cache.is_hopeless(task, ZoneId(0)));
    });
}

/// A task's memory has been taken from it: there is room that was not there when the background
/// reclaimer gave up.
#[test]
fn who_gives_way_has_the_background_look_again() {
    let mut tunables = Tunables::of(ReclaimLaw::TIDEGATE, 250);
    tunables.oom_kills = true;
    with_swap_of(tunables, 4096, |task, cache| {
        let region = cache.spill(task, Pages(16)).unwrap();
        region.touch(task, 0, 16).unwrap();
        give_up(task, cache);
        cache.out_of_memory(task, Who::DIRECT).unwrap();
        assert_eq!(region.resident(), Pages::ZERO);
        assert!(!cache.is_hopeless(task, ZoneId(0)));
    });
}

/// An eighth of the inactive pages is isolated and more: others sleep for it. A task within a file
/// system does not, and its look, which finds them few enough, lets the others go.
#[test]
fn who_asks_from_within_a_file_system_isolates_more_and_wakes_others() {
    with_swap(history::reclaim::LINUX_5_16_RC1, 4096, |task, cache| {
        let region = cache.spill(task, Pages(512)).unwrap();
        region.touch(task, 0, 512).unwrap();
        let zone = &cache.zones[ZoneId(0)];
        zone.note_isolated(Kind::Anon, 100);
        let look = |task: &mut Task<'_>, cache: &Cache, within_fs| {
            let control = Control {
                zone: ZoneId(0),
                who: Who {
                    within_fs,
                    ..Who::DIRECT
                },
                priority: Priority::GENTLEST,
                target: Pages(32),
                force_deactivate: false,
                may_unmap: true,
                may_write: true,
                may_swap: true,
                may_shrink: true,
                spares_anon: true,
                run: None,
            };
            let began = task.now();
            let may = throttle::may_isolate(task, cache, Kind::Anon, &control);
            (may, task.now().since(began))
        };
        let (may, slept) = look(task, cache, false);
        assert!(
            !may && slept > Nanos::millis(12),
            "to its timeout: {slept:?}"
        );
        let other = Arc::clone(cache);
        let sleeper = env::spawn(task.env(), "sleeper", move |task| look(task, &other, false));
        task.sleep(env::Cause::Idle, Nanos::millis(2));
        assert_eq!(look(task, cache, true), (true, Nanos::ZERO));
        let (may, slept) = sleeper.join(task).unwrap();
        assert!(!may && slept < Nanos::millis(4), "woken: {slept:?}");
        zone.note_gone(Kind::Anon, 100);
    });
}

/// A page in use that has aged, and is used once more.
#[test]
fn under_linux_a_page_that_aged_is_active_at_its_next_use() {
    let used_after_ageing = |law: ReclaimLaw| {
        let mut options = Options::new(1_024, 1);
        options.reclaim = Tunables::of(law, 250);
        with_cache(options, move |task, cache| {
            let info = Null.info();
            let device = cache
                .add_device(task, DeviceId(0), info, DeviceOptions::default())
                .unwrap();
            let file = cache.open(task, device, ObjectId(0), Bytes::ZERO).unwrap();
            file.assume_allocated(Bytes(4096));
            let mut writer = cache.writer();
            let mut page = vec![Sector(0); 8];
            file.write(task, &mut writer, Bytes::ZERO, &page).unwrap();
            cache.retire(task, writer);
            let mut read = |task: &mut Task<'_>, times: u32| {
                for _ in 0..times {
                    // A reader each: one that goes on in its page uses it once.
                    file.read(task, &mut Reader::default(), Bytes::ZERO, &mut page)
                        .unwrap();
                }
            };
            read(task, 3);
            let zone = ZoneId(0);
            let Slot::Frame(frame) = file.mapping.index.get(&cache.pages.pool, 0) else {
                panic!("the page is cached")
            };
            let is_active = || cache.pages.table.flags(frame).has(Flags::ACTIVE);
            assert!(is_active());
            let turn = Turn {
                list: Lru::ActiveFile,
                pages: Pages(32),
            };
            if !law.activates_at_once {
                let (batch, moved) =
                    cache
                        .zones
                        .isolate(task, &cache.pages, zone, Lru::InactiveFile, 32);
                assert_eq!(moved, 1);
                cache
                    .zones
                    .put_back(task, &cache.pages, batch.pages(), false);
                cache.zones[zone].note_gone(Kind::File, batch.len());
            }
            super::active::shrink_active(task, cache, zone, turn);
            assert!(!is_active());
            read(task, 1);
            let active = is_active();
            file.discard(task).unwrap();
            active
        })
    };
    assert!(used_after_ageing(over_nodes(history::reclaim::LINUX_3_0)));
    assert!(used_after_ageing(history::reclaim::LINUX_6_12));
    assert!(!used_after_ageing(ReclaimLaw::TIDEGATE));
}
