//! Writes of which none is left.

use core::sync::atomic::Ordering;

use policy::reclaim::{ReclaimLaw, Tunables};
use policy::units::Nanos;

use super::*;
use crate::Options;
use crate::testing::with_cache;

/// The last write may end between the pass that met it and the sleep: nothing would wake the
/// reclaimer. Linux sleeps.
#[test]
fn nobody_sleeps_for_writes_of_which_none_is_left() {
    for (law, pending, sleeps) in [
        (ReclaimLaw::TIDEGATE, 0, false),
        (ReclaimLaw::TIDEGATE, 1, true),
        (history::reclaim::LINUX_5_16_RC1, 0, true),
    ] {
        let mut options = Options::new(1024, 2);
        options.reclaim = Tunables::of(law, 250);
        with_cache(options, move |task, cache| {
            cache
                .writeback
                .totals
                .writeback
                .fetch_add(pending, Ordering::Relaxed);
            let began = task.now();
            pause(task, cache, ZoneId(0), Reason::Writeback, Who::BACKGROUND);
            let slept = task.now().since(began);
            assert_eq!(
                slept >= Nanos::millis(90),
                sleeps,
                "{law:?}, {pending} under way: {slept:?}"
            );
            assert!(sleeps || slept < Nanos::millis(1), "{slept:?}");
            cache
                .writeback
                .totals
                .writeback
                .fetch_sub(pending, Ordering::Relaxed);
        });
    }
}
