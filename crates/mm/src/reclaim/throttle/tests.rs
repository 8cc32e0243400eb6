//! The moment between the verdict and the sleep, and writes of which none is left.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use env::Interrupt;
use policy::reclaim::ReclaimLaw;

use super::*;
use crate::Options;
use crate::testing::with_cache;

const SOME: Pages = Pages(600);

/// Tells a reclaimer to sleep; answers its ticket.
fn begin(sleepers: &Sleepers, reason: Reason) -> u64 {
    let facts = Facts {
        reclaimable: SOME,
        write_pending: SOME,
        ..Facts::default()
    };
    let context = Interrupt::new();
    let (verdict, ticket) = sleepers.begin(&context, Instant(0), (reason, Who::DIRECT), &facts);
    assert!(
        matches!(verdict, Verdict::Sleep { .. }),
        "{reason:?}: {verdict:?}"
    );
    ticket
}

/// What happens as soon as a reclaimer has been told to sleep, before it does anything more, wakes it: on threads it may
/// happen right then.
#[test]
fn an_event_between_the_verdict_and_the_sleep_is_not_lost() {
    let context = Interrupt::new();
    let goes_on =
        |sleepers: &Sleepers, reason, ticket| sleepers.goes_on(&context, reason, ticket, SOME);
    for law in [ReclaimLaw::LINUX_5_16_RC1, ReclaimLaw::TIDEGATE] {
        let sleepers = Sleepers::new(&Tunables::of(law, 250));
        let written = |pages| {
            sleepers.wake(
                &context,
                Reason::Writeback,
                Signal::WrittenEnough,
                |throttle| throttle.on_written(Pages(pages), false),
            );
        };
        let first = begin(&sleepers, Reason::Writeback);
        assert!(goes_on(&sleepers, Reason::Writeback, first));
        written(31);
        assert!(goes_on(&sleepers, Reason::Writeback, first), "not enough");
        written(2);
        assert!(!goes_on(&sleepers, Reason::Writeback, first), "{law:?}");
        let isolated = begin(&sleepers, Reason::Isolated);
        sleepers.wake(&context, Reason::Isolated, Signal::PutBack, |throttle| {
            throttle.on_checked(SOME)
        });
        assert!(!goes_on(&sleepers, Reason::Isolated, isolated), "{law:?}");
    }
    // One event for one of them, who need not have got as far as its sleep: the other's is to come.
    let sleepers = Sleepers::new(&Tunables::of(ReclaimLaw::TIDEGATE, 250));
    let tickets = [(); 2].map(|()| begin(&sleepers, Reason::Writeback));
    for left in [1, 0] {
        sleepers.wake(
            &context,
            Reason::Writeback,
            Signal::WrittenEnough,
            |throttle| throttle.on_written(Pages(32), false),
        );
        let asleep = tickets
            .iter()
            .filter(|ticket| goes_on(&sleepers, Reason::Writeback, **ticket));
        assert_eq!(asleep.count(), left);
    }
}

/// The last write may end between the pass that met it and the sleep: nothing would wake the reclaimer. Linux sleeps.
#[test]
fn nobody_sleeps_for_writes_of_which_none_is_left() {
    for (law, pending, sleeps) in [
        (ReclaimLaw::TIDEGATE, 0, false),
        (ReclaimLaw::TIDEGATE, 1, true),
        (ReclaimLaw::LINUX_5_16_RC1, 0, true),
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
            pause(
                task,
                cache,
                NodeId::FIRST,
                Reason::Writeback,
                Who::BACKGROUND,
            );
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
