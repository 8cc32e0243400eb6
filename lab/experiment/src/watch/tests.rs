//! Sums over made-up events whose answers can be told by hand.

use super::*;
use env::Signal;
use policy::units::Pages;

const MS: u64 = 1_000_000;

fn at(ms: u64) -> Instant {
    Instant(ms * MS)
}

fn waits(cause: Cause) -> Event {
    Event::Waiting { cause }
}

fn waited(cause: Cause, ms: u64, wakeup: Wakeup) -> Event {
    Event::Waited {
        cause,
        waited: Nanos::millis(ms),
        wakeup,
    }
}

fn watch(events: &[(u64, u32, Event)], from: u64, to: u64) -> Outcome {
    let mut watch = Watch::new(true);
    let mut opened = false;
    for (when, task, event) in events {
        if *when >= from && !opened {
            watch.opens(at(from));
            opened = true;
        }
        watch.event(at(*when), TaskId(*task), event);
    }
    watch.closes(at(to));
    let mut outcome = Outcome::default();
    watch.finish(at(from), &mut outcome);
    outcome
}

const RECLAIMED: Event = Event::Reclaimed {
    background: false,
    scanned: Pages(64),
    freed: Pages(32),
};

/// Task 1 reclaims from 10 to 40 ms and sleeps in it from 20 to 30; task 2 runs until 25 and thinks
/// then.
#[test]
fn some_is_one_and_full_is_all_who_are_not_idle() {
    let events = [
        (0, 1, waits(Cause::Think)),
        (0, 2, waits(Cause::Think)),
        (0, 1, waited(Cause::Think, 0, Wakeup::TimedOut)),
        (0, 2, waited(Cause::Think, 0, Wakeup::TimedOut)),
        (10, 1, Event::DirectReclaim),
        (20, 1, waits(Cause::ReclaimNoProgress)),
        (25, 2, waits(Cause::Think)),
        (
            30,
            1,
            waited(
                Cause::ReclaimNoProgress,
                10,
                Wakeup::Ready(Signal::Progress),
            ),
        ),
        (40, 1, RECLAIMED),
    ];
    let pressure = watch(&events, 0, 100).pressure;
    assert_eq!(pressure.over_s, 0.1);
    assert_eq!(pressure.memory_some_s, 0.03, "10 to 40 ms");
    assert_eq!(
        pressure.memory_full_s, 0.015,
        "25 to 40 ms: nobody else ran"
    );
    assert_eq!((pressure.io_some_s, pressure.io_full_s), (0.0, 0.0));
}

/// Between two balances the background reclaimer naps, although it counts as awake.
#[test]
fn a_nap_of_the_background_reclaimer_is_no_stall() {
    let events = [
        (0, 1, Event::Background { awake: true }),
        (10, 1, waits(Cause::Idle)),
        (30, 1, waited(Cause::Idle, 20, Wakeup::TimedOut)),
        (35, 1, Event::Background { awake: false }),
    ];
    assert_eq!(watch(&events, 0, 50).pressure.memory_some_s, 0.015);
}

#[test]
fn io_is_full_while_nobody_runs() {
    let events = [
        (0, 1, waits(Cause::ReadIo)),
        (0, 2, waits(Cause::Idle)),
        (
            10,
            2,
            waited(Cause::Idle, 10, Wakeup::Ready(Signal::ReclaimAsked)),
        ),
        (15, 2, waits(Cause::DirtyPause)),
        (
            30,
            1,
            waited(Cause::ReadIo, 30, Wakeup::Ready(Signal::PageRead)),
        ),
        (40, 2, waited(Cause::DirtyPause, 25, Wakeup::TimedOut)),
    ];
    let pressure = watch(&events, 0, 50).pressure;
    assert_eq!(pressure.io_some_s, 0.04);
    assert_eq!(pressure.io_full_s, 0.025, "0 to 10 and 15 to 30 ms");
    assert_eq!(pressure.memory_some_s, 0.0);
}

#[test]
fn what_is_outside_the_window_does_not_count_but_is_known() {
    let events = [
        (0, 1, waits(Cause::SwapIo)),
        (100, 2, waits(Cause::Idle)),
        (
            150,
            1,
            waited(Cause::SwapIo, 150, Wakeup::Ready(Signal::PageRead)),
        ),
    ];
    let outcome = watch(&events, 100, 200);
    assert_eq!(outcome.pressure.memory_some_s, 0.05);
    assert_eq!(outcome.pressure.over_s, 0.1);
    // The wait ended in it: it is counted, at its whole length.
    assert_eq!(outcome.waits.len(), 1);
    assert_eq!(outcome.waits[0].total_s, 0.15);
}

#[test]
fn a_task_that_has_ended_runs_no_more() {
    let mut watch = Watch::new(false);
    watch.event(at(0), TaskId(2), &Event::DirectReclaim);
    watch.event(at(0), TaskId(1), &RECLAIMED);
    watch.opens(at(0));
    watch.ended(at(10), TaskId(1));
    watch.closes(at(30));
    assert_eq!(watch.pressure.totals().memory_some_s, 0.03);
    assert_eq!(watch.pressure.totals().memory_full_s, 0.02);
}

#[test]
fn the_longest_sample_says_what_it_consisted_of() {
    let sampled = |ms| Event::Sampled {
        pages: Pages(8),
        took: Nanos::millis(ms),
    };
    let events = [
        (0, 1, waits(Cause::Think)),
        (5, 1, waited(Cause::Think, 5, Wakeup::TimedOut)),
        (
            15,
            1,
            waited(Cause::SwapIo, 10, Wakeup::Ready(Signal::PageRead)),
        ),
        (
            45,
            1,
            waited(Cause::Memory, 30, Wakeup::Ready(Signal::Freed)),
        ),
        (50, 1, sampled(45)),
        (
            60,
            1,
            waited(Cause::SwapIo, 9, Wakeup::Ready(Signal::PageRead)),
        ),
        (65, 1, sampled(10)),
    ];
    let longest = watch(&events, 0, 100).longest;
    assert_eq!(longest.len(), 1);
    assert_eq!((longest[0].at_s, longest[0].took_ms), (0.05, 45.0));
    let parts = [("Memory".to_owned(), 30.0), ("SwapIo".to_owned(), 10.0)];
    assert_eq!(longest[0].parts, parts);
}

#[test]
fn throttlings_are_counted_by_kind_and_kept_one_by_one() {
    let throttled = |delayed, wakeup| Event::Throttled {
        background: false,
        reason: Reason::NoProgress,
        timeout: Nanos::millis(500),
        delayed: Nanos::millis(delayed),
        wakeup,
    };
    let events = [
        (1, 7, throttled(0, None)),
        (2, 7, throttled(500, Some(Wakeup::TimedOut))),
        (3, 8, throttled(500, Some(Wakeup::TimedOut))),
        (4, 8, throttled(104, Some(Wakeup::Ready(Signal::Progress)))),
    ];
    let outcome = watch(&events, 0, 10);
    let kinds: Vec<_> = outcome
        .throttles
        .iter()
        .map(|kind| (kind.delayed_ms, kind.ended, kind.count))
        .collect();
    assert_eq!(
        kinds,
        [
            (0.0, ThrottleEnd::NoSleep, 1),
            (104.0, ThrottleEnd::Event, 1),
            (500.0, ThrottleEnd::Timeout, 2),
        ]
    );
    assert_eq!(outcome.throttled.len(), 4);
    assert_eq!(outcome.throttled[3].at_s, 0.004);
}

/// Two sleep for a second on memory, one of them half a second longer.
#[test]
fn slots_hold_the_mean_number_of_sleepers_however_long_the_run() {
    for until in [2_000, 500_000] {
        let events = [
            (0, 1, waits(Cause::Memory)),
            (0, 2, waits(Cause::Memory)),
            (
                1000,
                1,
                waited(Cause::Memory, 1000, Wakeup::Ready(Signal::Freed)),
            ),
            (
                1500,
                2,
                waited(Cause::Memory, 1500, Wakeup::Ready(Signal::Freed)),
            ),
            (until, 1, RECLAIMED),
        ];
        let slots = watch(&events, 0, until).slots;
        let (cause, means) = &slots.asleep[0];
        assert_eq!((cause.as_str(), slots.asleep.len()), ("Memory", 1));
        let total: f64 = means.iter().sum::<f64>() * slots.slot_s;
        assert!((total - 2.5).abs() < 1e-9, "{total} task-seconds");
        assert!(means.len() <= 1200 && means[0] > 1.5, "{means:?}");
        let scanned: f64 = slots.scanned_direct.iter().sum::<f64>() * slots.slot_s;
        assert!((scanned - 64.0).abs() < 1e-9, "{scanned}");
    }
}

#[test]
fn a_timeline_is_bounded_and_says_when_it_was_full() {
    let mut watch = Watch::new(true);
    watch.opens(at(0));
    let most = crate::timeline::ITEMS_MOST as u64;
    for ms in 0..most + 10 {
        watch.event(at(ms), TaskId(1), &Event::DirectReclaim);
    }
    watch.closes(at(most * 2));
    let timeline = watch.timeline.unwrap();
    assert!(timeline.is_full);
    assert_eq!(timeline.items.len() as u64, most);
    assert_eq!(timeline.ends, at(most - 1));
}
