//! Attacks on memory in turn: pages kept back for a moment are handed out when the moment has
//! passed.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use std::sync::Arc;

use mm::{Cache, Options};
use policy::reclaim::turn::BOUND;
use policy::reclaim::{ReclaimLaw, Tunables};
use policy::units::{Nanos, Pages};
use world::{CostTable, Lab, Options as LabOptions, Record};

fn lab(frames: u32) -> Lab {
    Lab::new(LabOptions {
        cpus: 2,
        hz: 1000,
        seed: 1,
        frames,
        costs: CostTable::zero(),
        record: Record::NONE,
    })
}

/// A task that does not grow gives pages back, which are kept for it for 25 ms. When that is over
/// the task that waits gets them at its bound, though nobody gives anything back and nothing can be
/// freed: it is not refused.
#[test]
fn what_was_kept_is_handed_out_when_its_time_is_over() {
    let frames = 4096;
    let mut lab = lab(frames);
    let env = Arc::clone(lab.env());
    let took = lab
        .run(move |task| {
            let mut options = Options::new(frames, 2);
            options.reclaim = Tunables::of(ReclaimLaw::TIDEGATE, 1000);
            let cache = Cache::new(env.clone(), options).unwrap();
            // No swap file: touched pages stay.
            let mine = cache.spill(task, Pages(256)).unwrap();
            mine.touch(task, 0, 256).unwrap();
            // Given back just before: the hog takes all but that and the reserve, then it waits.
            let given = task.now();
            mine.discard(task, 0, 256).unwrap();
            let hog = cache.spill(task, Pages(u64::from(frames))).unwrap();
            let body = move |task: &mut env::Task<'_>| {
                let mut page = 0;
                loop {
                    let began = task.now();
                    let touched = hog.touch(task, page, 1);
                    page += 1;
                    let took = task.now().since(began);
                    if took > Nanos::millis(1) {
                        assert!(touched.is_ok(), "{touched:?} after {took:?}");
                        return (page, task.now(), took);
                    }
                }
            };
            let hog = env::spawn(&*env, "hog", body);
            let (_, then, _) = hog.join(task).unwrap();
            drop(mine);
            let _ = cache.shutdown(task);
            then.since(given)
        })
        .unwrap();
    let tick = Nanos::millis(4);
    assert!(
        took <= BOUND + tick + tick,
        "{took:?} for pages kept for 25 ms"
    );
}
