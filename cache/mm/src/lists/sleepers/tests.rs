//! The moment between the verdict and the sleep.

use env::Interrupt;
use policy::reclaim::ReclaimLaw;

use super::*;

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

/// An event as soon as a reclaimer has been told to sleep, before it does anything more, wakes it:
/// on threads it may come right then.
#[test]
fn an_event_between_the_verdict_and_the_sleep_is_not_lost() {
    let context = Interrupt::new();
    let goes_on =
        |sleepers: &Sleepers, reason, ticket| sleepers.goes_on(&context, reason, ticket, SOME);
    for law in [history::reclaim::LINUX_5_16_RC1, ReclaimLaw::TIDEGATE] {
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
    // One event for one of them, which need not have got as far as its sleep: the other's is to
    // come.
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
