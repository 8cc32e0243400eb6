use std::sync::Arc;

use env::Task;
use lab::LabEnv;
use policy::compact::Compaction;
use policy::units::Pages;

use crate::testing::with_cache;
use crate::{Cache, Error, Item, Options, Runs};

const RUNS: Runs = Runs {
    order: 4,
    faults: true,
    compaction: Compaction::Never,
};

fn options(frames: u32) -> Options {
    Options {
        runs: Some(RUNS),
        ..Options::new(frames, 1)
    }
}

fn counts<const N: usize>(cache: &Arc<Cache<LabEnv>>, items: [Item; N]) -> [u64; N] {
    let read = cache.vmstat();
    items.map(|item| read.get(item))
}

#[test]
fn a_fault_brings_a_run_where_one_is_free() {
    with_cache(options(1024), |task: &mut Task<'_, LabEnv>, cache| {
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
    });
}

#[test]
fn where_none_is_free_it_brings_single_pages() {
    with_cache(options(1024), |task: &mut Task<'_, LabEnv>, cache| {
        let other = cache.spill(task, Pages(800)).unwrap();
        other.touch(task, 0, 800).unwrap();
        // Every other page of it goes: nothing stands together.
        let rest = cache.spill(task, Pages(128)).unwrap();
        rest.touch(task, 0, 128).unwrap();
        for page in (0..800).step_by(2) {
            other.discard(task, page, 1).unwrap();
        }
        let items = [Item::ThpFaultAlloc, Item::ThpFaultFallback];
        let before = counts(cache, items);
        let region = cache.spill(task, Pages(256)).unwrap();
        region.touch(task, 0, 256).unwrap();
        let after = counts(cache, items);
        let [got, not] = [after[0] - before[0], after[1] - before[1]];
        // The reserve still stands together.
        assert!(got <= 4, "{got}");
        assert_eq!(got + not, 16);
        assert_eq!(region.resident(), Pages(256));
    });
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
        let runs = Some(Runs { order, ..RUNS });
        let options = Options {
            runs,
            ..Options::new(frames, 1)
        };
        let lab = lab::Lab::new(lab::Options {
            frames,
            ..lab::Options::default()
        });
        let Err(Error::BadOption { what: told, .. }) = Cache::new(Arc::clone(lab.env()), options)
        else {
            panic!("order {order} of {frames} frames was taken")
        };
        assert_eq!(told, what);
    }
}
