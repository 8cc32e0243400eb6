use std::sync::Arc;

use env::{Cause, Device as _, ObjectId, Task};
use history::compact::reclaim::could_begin;
use history::compact::{Background, Blocks, Compaction, Scans};
use mm::inside::{Place, ZoneId};
use mm::{Apart, Cache, DeviceOptions, Error, Item, Options, Reader, Runs, Spill};
use policy::dirty::Threshold;
use policy::place::mobility::Migrates;
use policy::reclaim::Tunables;
use policy::units::{Bytes, Nanos, PAGE_SIZE, Pages};
use world::Sector;

use super::reclaim::{ByZones, OverNodes};
use super::*;
use crate::testing::{NULL, Null, read_whole, with_compactor};

fn runs(order: u8) -> Runs {
    Runs {
        order,
        ..Runs::of(1)
    }
}

/// Of one zone.
fn compactor(law: Compaction, order: u8) -> Arc<Compactor> {
    Arc::new(Compactor::new(law, runs(order), 1, 1))
}

fn never() -> Arc<Compactor> {
    compactor(Compaction::Never, 4)
}

fn counts<const N: usize>(cache: &Arc<Cache>, items: [Item; N]) -> [u64; N] {
    let read = cache.vmstat();
    items.map(|item| read.get(item))
}

/// A new region of this many pages, touched whole; and the growth of the counters by it.
fn touched<const N: usize>(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    pages: u32,
    items: [Item; N],
) -> (Arc<Spill>, [u64; N]) {
    let before = counts(cache, items);
    let region = cache.spill(task, Pages(pages.into())).unwrap();
    region.touch(task, 0, pages).unwrap();
    let after = counts(cache, items);
    (region, core::array::from_fn(|at| after[at] - before[at]))
}

#[test]
fn a_fault_brings_a_run_where_one_is_free() {
    with_compactor(
        Options::new(1024, 1),
        never(),
        |task: &mut Task<'_>, cache| {
            let region = cache.spill(task, Pages(40)).unwrap();
            // In the middle of the second stretch; the third is not whole.
            let touched = region.touch(task, 20, 1).unwrap();
            assert_eq!(touched.faults, Pages(1));
            assert_eq!(region.resident(), Pages(16));
            region.touch(task, 0, 40).unwrap();
            assert_eq!(region.resident(), Pages(40));
            let items = [
                Item::ThpFaultAlloc,
                Item::ThpFaultFallback,
                Item::NrAnonHuge,
            ];
            assert_eq!(counts(cache, items), [2, 0, 2]);
            // A part of one, and the whole of the other.
            region.discard(task, 3, 1).unwrap();
            assert_eq!(counts(cache, [Item::ThpSplit, Item::ThpFreed]), [1, 0]);
            region.discard(task, 0, 40).unwrap();
            assert_eq!(counts(cache, [Item::ThpSplit, Item::ThpFreed]), [1, 1]);
            assert_eq!(counts(cache, [Item::NrAnonHuge]), [0]);
            assert_eq!(region.resident(), Pages(0));
        },
    );
}

#[test]
fn where_none_is_free_it_brings_single_pages() {
    with_compactor(
        Options::new(1024, 1),
        never(),
        |task: &mut Task<'_>, cache| {
            let other = cache.spill(task, Pages(800)).unwrap();
            other.touch(task, 0, 800).unwrap();
            // Every other page of it goes: nothing stands together.
            let rest = cache.spill(task, Pages(128)).unwrap();
            rest.touch(task, 0, 128).unwrap();
            for page in (0..800).step_by(2) {
                other.discard(task, page, 1).unwrap();
            }
            let items = [Item::ThpFaultAlloc, Item::ThpFaultFallback];
            let (region, [got, not]) = touched(task, cache, 256, items);
            // The reserve still stands together.
            assert!(got <= 4, "{got}");
            assert_eq!(got + not, 16);
            assert_eq!(region.resident(), Pages(256));
        },
    );
}

#[test]
fn runs_that_no_memory_can_have_are_refused() {
    for (order, frames, what) in [
        (0, 1024, "runs.order"),
        (11, 1024, "runs.order"),
        (
            9,
            512,
            "frames of a run (2^runs.order), where the largest zone has so few,",
        ),
    ] {
        let lab = world::Lab::new(world::Options {
            frames,
            ..world::Options::default()
        });
        let options = Options::new(frames, 1);
        let kernel = |place: &Place| {
            let compactor = compactor(Compaction::Never, order);
            Arc::new(crate::Kernel::with_compactor(place, compactor)) as _
        };
        let Err(Error::BadOption { what: told, .. }) =
            Cache::with_kernel(lab.env().clone(), options, &kernel)
        else {
            panic!("order {order} of {frames} frames was taken")
        };
        assert_eq!(told, what);
    }
}

/// A column by its name.
fn column(name: &str, order: u8) -> Arc<Compactor> {
    compactor(Compaction::by_name(name).unwrap(), order)
}

fn by_zones(frames: u32) -> Options {
    Options {
        reclaim: Tunables::of(history::reclaim::LINUX_3_0, 250),
        ..Options::new(frames, 1)
    }
}

/// Memory in which every other page is free, and no run.
fn scattered(task: &mut Task<'_>, cache: &Arc<Cache>, pages: u32) -> Arc<Spill> {
    let region = cache.spill(task, Pages(u64::from(pages))).unwrap();
    region.touch(task, 0, pages).unwrap();
    for page in (0..pages).step_by(2) {
        region.discard(task, page, 1).unwrap();
    }
    region
}

#[test]
fn pages_move_together_until_a_run_stands_free() {
    for name in [
        "linux-3.1",
        "linux-3.2-rc5",
        "linux-3.2-rc5+p4.1-11",
        "linux-3.2-rc5+aa",
    ] {
        with_compactor(by_zones(4096), column(name, 4), move |task, cache| {
            let rest = scattered(task, cache, 3_900);
            let (_region, got) = touched(task, cache, 320, [Item::ThpFaultAlloc]);
            assert_eq!(got, [20], "{name}");
            let items = [
                Item::CompactStall,
                Item::CompactPagesMoved,
                Item::CompactMigrateScanned,
            ];
            assert!(
                counts(cache, items).iter().all(|count| *count > 0),
                "{name}"
            );
            assert_eq!(cache.vmstat().broken_sum(), None, "{name}");
            // The moved pages are there.
            for page in (1..3_900_u64).step_by(2) {
                let mut data = vec![Sector(0); 8];
                rest.read(task, Bytes(page * PAGE_SIZE), &mut data).unwrap();
                assert_eq!(rest.resident(), Pages(1_950), "{name}");
                if page > 40 {
                    break;
                }
            }
        });
    }
}

/// 6.12, where faults of all programs move pages or none do.
fn since_four(for_all: bool) -> Background {
    Background {
        for_all,
        ..Background::LINUX_6_12
    }
}

fn over_nodes() -> Options {
    Options {
        reclaim: Tunables::of(history::reclaim::LINUX_5_16, 250),
        ..Options::new(4_096, 1)
    }
}

#[test]
fn since_four_a_fault_moves_pages_only_where_all_are_to() {
    for for_all in [false, true] {
        let kernel = compactor(Compaction::Background(since_four(for_all)), 4);
        with_compactor(over_nodes(), kernel, move |task, cache| {
            let _rest = scattered(task, cache, 3_900);
            let items = [
                Item::ThpFaultAlloc,
                Item::ThpFaultFallback,
                Item::CompactStall,
                Item::CompactPagesMoved,
            ];
            let (_region, did) = touched(task, cache, 320, items);
            let [got, not, stalls, moved] = did;
            assert_eq!(got + not, 20);
            if for_all {
                assert!(not == 0 && stalls > 0 && moved > 0, "{did:?}");
            } else {
                assert!(not > 0 && stalls == 0 && moved == 0, "{did:?}");
            }
            assert_eq!(cache.vmstat().broken_sum(), None);
        });
    }
}

#[test]
fn since_four_a_zone_that_is_left_out_is_a_stall_twice_a_fault_and_nobody_reclaims() {
    for (home_first, times) in [(true, 2), (false, 1)] {
        let law = Background {
            home_first,
            ..since_four(true)
        };
        let kernel = compactor(Compaction::Background(law), 4);
        let own = Arc::clone(&kernel);
        with_compactor(over_nodes(), kernel, move |task, cache| {
            let _rest = scattered(task, cache, 3_900);
            for _ in 0..6 {
                own.zones[0].deferral(task).failed();
            }
            let items = [
                Item::ThpFaultFallback,
                Item::CompactStall,
                Item::CompactFail,
                Item::Allocstall,
            ];
            let (_region, [not, stalls, fails, reclaims]) = touched(task, cache, 320, items);
            assert!(not > 0);
            assert_eq!((stalls, fails, reclaims), (times * not, times * not, 0));
        });
    }
}

#[test]
fn since_four_reclaim_for_a_run_goes_on_until_there_is_a_run_or_pages_could_be_moved() {
    const ORDER: u8 = 8;
    let could = |over_nodes: bool| {
        let kernel = compactor(Compaction::Background(since_four(true)), ORDER);
        let own = Arc::clone(&kernel);
        with_compactor(self::over_nodes(), kernel, move |task, cache| {
            let _file = read_whole(task, cache, NULL, Bytes(4_096 << 12));
            // A region takes some of what the reader left free.
            let region = cache.spill(task, Pages(64)).unwrap();
            region.touch(task, 0, 64).unwrap();
            let (runs, compactor, scans) = (runs(ORDER), &*own, &Scans::LINUX_3_2);
            let inside = cache.inside();
            if over_nodes {
                inside.reclaim_for_run(task, &OverNodes { runs, compactor });
            } else {
                let run = ByZones {
                    runs,
                    scans,
                    compactor,
                };
                inside.reclaim_for_run(task, &run);
            }
            let marks = inside.memory.marks_of(ZoneId(0));
            let standing = compactor.at(cache).standing(task, ZoneId(0));
            could_begin(ORDER, &standing, &marks)
        })
    };
    assert!(could(true));
    assert!(!could(false), "a cluster");
}

#[test]
fn a_task_of_its_own_makes_a_run_when_it_is_asked() {
    let kernel = compactor(Compaction::Background(since_four(false)), 4);
    let own = Arc::clone(&kernel);
    with_compactor(over_nodes(), kernel, move |task, cache| {
        let _rest = scattered(task, cache, 3_900);
        let items = [Item::CompactDaemonWake, Item::CompactPagesMoved];
        // The reserve stood together when memory was taken.
        let hog = cache.spill(task, Pages(640)).unwrap();
        hog.touch(task, 0, 640).unwrap();
        let runs = |cache: &Arc<Cache>| counts(cache, [Item::NrFreeRuns]);
        assert_eq!((runs(cache), counts(cache, items)), ([0], [0, 0]));
        own.worked_off(cache, ZoneId(0));
        task.sleep(Cause::Idle, Nanos::secs(1));
        let [woken, moved] = counts(cache, items);
        assert!(woken == 1 && moved > 0, "{woken} {moved}");
        assert!(runs(cache) > [0]);
        drop(hog);
    });
}

/// Dirty pages of a file between free frames, and requests for runs.
fn among_dirty(name: &'static str, migrates: Migrates) -> [u64; 4] {
    let mut options = by_zones(2048);
    options.dirty.dirty = Threshold::Percent(95);
    options.dirty.background = Threshold::Percent(90);
    options.apart = Some(Apart {
        rule: history::fallback::LINUX_3_2,
        pageblock_order: 6,
    });
    let mut law = Compaction::by_name(name).unwrap();
    if let Compaction::Scans(scans) = &mut law {
        // Else the first pass that fails has the last one left out.
        scans.defers = false;
    }
    with_compactor(options, compactor(law, 6), move |task, cache| {
        let device = DeviceOptions {
            migrates,
            ..DeviceOptions::default()
        };
        let device = cache.add_device(task, NULL, Null.info(), device).unwrap();
        let open = |task: &mut Task<'_>, object| {
            let file = cache
                .open(task, device, ObjectId(object), Bytes(0))
                .unwrap();
            (file, cache.writer())
        };
        let mut files = [open(task, 1), open(task, 2)];
        for page in 0..700u64 {
            for (file, writer) in &mut files {
                let data = vec![Sector(7); 8];
                file.write(task, writer, Bytes(page * PAGE_SIZE), &data)
                    .unwrap();
            }
        }
        let [(stays, one), (goes, two)] = files;
        goes.truncate(task, Bytes(0)).unwrap();
        let region = cache.spill(task, Pages(1_024)).unwrap();
        region.touch(task, 0, 1_024).unwrap();
        assert_eq!(cache.vmstat().broken_sum(), None, "{name}");
        let items = [
            Item::CompactSuccess,
            Item::CompactPagesMoved,
            Item::CompactRefused,
            Item::CompactWritten,
        ];
        let counts = counts(cache, items);
        stays.sync(task).unwrap();
        for writer in [one, two] {
            cache.retire(task, writer);
        }
        counts
    })
}

#[test]
fn a_page_that_its_file_system_cannot_move_is_written_or_refused() {
    let [_, moved, _, written] = among_dirty("linux-3.2-rc5", Migrates::Buffers);
    assert!(moved > 0 && written == 0, "{moved} {written}");
    let [_, _, _, written] = among_dirty("linux-3.2-rc5", Migrates::WritesPage);
    assert!(written > 0, "without patch 8 it is written");
    let [_, _, refused, written] = among_dirty("linux-3.2-rc5+p4.1-8", Migrates::WritesPage);
    assert!(
        written == 0 && refused > 0,
        "with it, it is not: {written} {refused}"
    );
}

/// Blocks of pages that were read once, with one in use in each, and no run free: `(alloc,
/// fallback, moved, dropped)`.
fn among_read(change: impl Fn(&mut Blocks)) -> [u64; 4] {
    let mut law = Blocks::TIDEGATE;
    change(&mut law);
    let mut options = Options::new(2_048, 1);
    options.apart = Some(Apart {
        rule: history::fallback::LINUX_6_12,
        pageblock_order: 4,
    });
    with_compactor(
        options,
        compactor(Compaction::Blocks(law), 4),
        move |task, cache| {
            let device = cache
                .add_device(task, NULL, Null.info(), DeviceOptions::default())
                .unwrap();
            let len = 1_500 * PAGE_SIZE;
            let file = cache.open(task, device, ObjectId(1), Bytes(len)).unwrap();
            let mut reader = Reader::default();
            for page in 0..1_500 {
                let mut data = vec![Sector(0); 8];
                file.read(task, &mut reader, Bytes(page * PAGE_SIZE), &mut data)
                    .unwrap();
                if page % 20 == 0 {
                    file.read(task, &mut reader, Bytes(page * PAGE_SIZE), &mut data)
                        .unwrap();
                }
            }
            // All that is left but the reserve.
            let rest = cache.spill(task, Pages(400)).unwrap();
            rest.touch(task, 0, 400).unwrap();
            let items = [
                Item::ThpFaultAlloc,
                Item::ThpFaultFallback,
                Item::CompactPagesMoved,
                Item::CompactDropped,
            ];
            let (region, did) = touched(task, cache, 640, items);
            assert_eq!(cache.vmstat().broken_sum(), None);
            drop((rest, region));
            did
        },
    )
}

#[test]
fn a_block_is_emptied_without_a_wait_and_what_is_in_use_moves() {
    let [got, not, moved, dropped] = among_read(|_| {});
    assert!(got >= 30 && got + not == 40, "{got} {not}");
    assert!(moved > 0 && dropped > moved, "{moved} {dropped}");
    let [free, _, moved, dropped] = among_read(|law| law.looks = 0);
    assert!(
        free < got && moved == 0 && dropped == 0,
        "{free} of {got}: {moved} {dropped}"
    );
}
