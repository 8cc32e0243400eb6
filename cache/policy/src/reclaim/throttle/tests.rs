//! The tables of mechanisms 4.1, 4.4 and 4.5, row by row; its edge cases a to f; vector T1; the
//! ablations.

use super::*;
use crate::linux::{LINUX_3_0, LINUX_5_15, LINUX_5_15_PATCH1, LINUX_5_16, LINUX_5_16_RC1};
use crate::reclaim::law::ReclaimLaw;
use crate::reclaim::scan::Priority;

const LAWS: [ReclaimLaw; 5] = [
    LINUX_5_15,
    LINUX_5_15_PATCH1,
    LINUX_5_16_RC1,
    LINUX_5_16,
    ReclaimLaw::TIDEGATE,
];
const FINDINGS: [Finding; 4] = [
    Finding::Immediate,
    Finding::Congested,
    Finding::Isolated,
    Finding::WritePending,
];
const EXEMPT: Who = Who {
    exempt: true,
    ..Who::DIRECT
};
/// A node where most waits to be written.
const FACTS: Facts = Facts {
    reclaimable: Pages(1000),
    write_pending: Pages(501),
    hopeless: false,
};
const NOW: Instant = Instant(1_000_000_000);

fn throttle(law: ReclaimLaw, hz: u32) -> Throttle {
    Throttle::new(Tunables::of(law, hz))
}

fn begin(throttle: &mut Throttle, reason: Reason, who: Who) -> Verdict {
    throttle.begin(NOW, reason, who, &FACTS)
}

/// The timeout in ticks, 0 if there is no sleep.
fn ticks(law: ReclaimLaw, hz: u32, reason: Reason, who: Who) -> u64 {
    match begin(&mut throttle(law, hz), reason, who) {
        Verdict::Go | Verdict::Yield { .. } => 0,
        Verdict::Sleep { timeout, .. } => TickRate::new(hz).ticks_of(timeout).0,
    }
}

fn asleep(throttle: &mut Throttle, reason: Reason) -> Instant {
    match begin(throttle, reason, Who::DIRECT) {
        Verdict::Sleep { deadline, .. } => deadline,
        Verdict::Go | Verdict::Yield { .. } => panic!("it does not sleep for {reason:?}"),
    }
}

/// With `count` tasks asleep for writeback.
fn with_asleep(law: ReclaimLaw, count: u32) -> Throttle {
    let mut throttle = throttle(law, 250);
    all_asleep(&mut throttle, count);
    throttle
}

fn all_asleep(throttle: &mut Throttle, count: u32) {
    for _ in 0..count {
        asleep(throttle, Reason::Writeback);
    }
}

fn progress(reclaimed: u64, scanned: u64, priority: u8) -> Progress {
    Progress {
        reclaimed: Pages(reclaimed),
        scanned: Pages(scanned),
        priority: Priority(priority),
        background: false,
    }
}

const SLEEPS: After = After {
    wake: Wake::None,
    throttle: Some(Reason::NoProgress),
};
const WAKES: After = After {
    wake: Wake::All,
    throttle: None,
};
const NOTHING: After = After {
    wake: Wake::None,
    throttle: None,
};

#[test]
fn linux_3_0_sleeps_by_the_clock() {
    let law = LINUX_3_0;
    let throttle = throttle(law, 250);
    let reasons = FINDINGS.map(|finding| throttle.reason_of(finding));
    assert_eq!(reasons, [None, None, Some(Reason::CongestionWait), None]);
    for (reason, expected) in [
        (Reason::CongestionWait, 25),
        (Reason::WaitIffCongested, 0),
        (Reason::Isolated, 0),
        (Reason::Writeback, 0),
        (Reason::NoProgress, 0),
    ] {
        for who in [Who::DIRECT, Who::BACKGROUND, EXEMPT] {
            assert_eq!(ticks(law, 250, reason, who), expected, "{reason:?} {who:?}");
        }
    }
    let mut throttle = throttle;
    let traced = begin(&mut throttle, Reason::WaitIffCongested, Who::DIRECT);
    let hundred = Some(Nanos::millis(100));
    assert_eq!(traced, Verdict::Yield { traced: hundred });
    assert_eq!(throttle.on_written(Pages(1000), true), Wake::None);
    assert_eq!(throttle.on_checked(Pages(1000)), Wake::None);
    assert_eq!(throttle.after_node(&progress(0, 100, 0)), NOTHING);
    assert_eq!(throttle.after_nodes(&progress(0, 100, 1)), NOTHING);
}

#[test]
fn which_reason_a_finding_is() {
    use Reason::{Congested, CongestionWait, Isolated, WaitIffCongested, Writeback};
    let table = [
        (
            LINUX_5_15,
            [
                Some(CongestionWait),
                Some(WaitIffCongested),
                Some(Isolated),
                Some(CongestionWait),
            ],
        ),
        (
            LINUX_5_15_PATCH1,
            [
                Some(Writeback),
                Some(Writeback),
                Some(Isolated),
                Some(CongestionWait),
            ],
        ),
        (
            LINUX_5_16_RC1,
            [Some(Writeback), Some(Writeback), Some(Isolated), None],
        ),
        (
            LINUX_5_16,
            [Some(Writeback), Some(Congested), Some(Isolated), None],
        ),
        (
            ReclaimLaw::TIDEGATE,
            [
                Some(Writeback),
                Some(Writeback),
                Some(Isolated),
                Some(Writeback),
            ],
        ),
    ];
    for (law, reasons) in table {
        for (finding, reason) in FINDINGS.into_iter().zip(reasons) {
            assert_eq!(
                throttle(law, 250).reason_of(finding),
                reason,
                "{law:?} {finding:?}"
            );
        }
    }
}

/// Mechanisms 4.4, at 250, 100 and 1000 ticks a second: WRITEBACK, ISOLATED, NOPROGRESS, CONGESTED
/// and the two functions of 5.15. Zero: it does not sleep.
#[test]
fn timeouts() {
    const REASONS: [Reason; 6] = [
        Reason::Writeback,
        Reason::Isolated,
        Reason::NoProgress,
        Reason::Congested,
        Reason::CongestionWait,
        Reason::WaitIffCongested,
    ];
    #[rustfmt::skip]
    let table = [
        (LINUX_5_15, 250,  [0,   25,  0,   0, 25,  0]),
        (LINUX_5_15, 1000, [0,   100, 0,   0, 100, 0]),
        (LINUX_5_15_PATCH1,  250,  [25,  25,  0,   0, 25,  0]),
        (LINUX_5_16_RC1,        250,  [25,  5,   125, 0, 0,   0]),
        (LINUX_5_16_RC1,        100,  [10,  2,   50,  0, 0,   0]),
        (LINUX_5_16_RC1,        1000, [100, 20,  500, 0, 0,   0]),
        (LINUX_5_16,           250,  [25,  5,   1,   1, 0,   0]),
        (LINUX_5_16,           1000, [100, 20,  1,   1, 0,   0]),
        (ReclaimLaw::TIDEGATE,       250,  [25,  5,   0,   0, 0,   0]),
    ];
    for (law, hz, expected) in table {
        for who in [Who::DIRECT, Who::BACKGROUND] {
            let found = REASONS.map(|reason| ticks(law, hz, reason, who));
            assert_eq!(found, expected, "{law:?} {hz} {who:?}");
        }
    }
    assert_eq!(
        ticks(LINUX_5_16_RC1, 20, Reason::Isolated, Who::DIRECT),
        1,
        "at least one"
    );
}

#[test]
fn who_is_exempt() {
    for law in LAWS {
        for finding in FINDINGS {
            let mut throttle = throttle(law, 250);
            let Some(reason) = throttle.reason_of(finding) else {
                continue;
            };
            let verdict = begin(&mut throttle, reason, EXEMPT);
            match (law.name, reason) {
                // 5.15 knows no exemption, and what patch 1 does not touch is 5.15's.
                ("congestion_wait", _)
                | ("writeback_only", Reason::Isolated | Reason::CongestionWait) => {
                    assert_ne!(verdict, Verdict::Go, "{law:?} {reason:?}");
                }
                ("linux-5.16", _) => {
                    assert_eq!(verdict, Verdict::Yield { traced: None }, "{reason:?}");
                }
                (_, _) => assert_eq!(verdict, Verdict::Go, "{law:?} {reason:?}"),
            }
            assert_eq!(throttle.writeback_sleepers(), 0);
        }
    }
    // The background reclaimer is a thread of the kernel, and is throttled.
    let kswapd = Who {
        exempt: true,
        ..Who::BACKGROUND
    };
    assert_eq!(ticks(LINUX_5_16_RC1, 250, Reason::Writeback, kswapd), 25);
}

#[test]
fn no_device_is_congested_so_wait_iff_congested_does_not_sleep() {
    let mut throttle = throttle(LINUX_5_15, 250);
    let reason = Reason::WaitIffCongested;
    let verdict = begin(&mut throttle, reason, Who::DIRECT);
    let traced = Some(Nanos::millis(100));
    assert_eq!(verdict, Verdict::Yield { traced });
}

/// p0's trace of 5.15: 1165 of 1165 `congestion_wait` of 100 ms last 104 ms and more.
#[test]
fn congestion_wait_lasts_longer_than_its_timeout() {
    for offset in [0, 1, 2_000_000, 3_999_999] {
        let mut throttle = throttle(LINUX_5_15, 250);
        let began = NOW + Nanos(offset);
        let reason = Reason::CongestionWait;
        let Verdict::Sleep { timeout, deadline } =
            throttle.begin(began, reason, Who::BACKGROUND, &FACTS)
        else {
            panic!("it always sleeps")
        };
        let delayed = throttle.end(reason, timeout, began, deadline);
        assert_eq!(delayed, Nanos::millis(104), "{offset}");
        let slept = deadline - began;
        assert!(slept > Nanos::millis(100) && slept <= Nanos::millis(104));
    }
    // msleep adds a tick to be sure.
    let mut throttle = throttle(LINUX_5_15, 250);
    assert_eq!(
        asleep(&mut throttle, Reason::Isolated),
        NOW + Nanos::millis(108)
    );
}

#[test]
fn delays_are_whole_ticks_and_at_most_the_timeout() {
    let mut throttle = throttle(LINUX_5_16_RC1, 250);
    let began = NOW + Nanos(1);
    let timeout = Nanos::millis(100);
    let mut delayed = |slept| {
        let now = began + Nanos(slept);
        let _ = throttle.begin(began, Reason::Writeback, Who::DIRECT, &FACTS);
        throttle.end(Reason::Writeback, timeout, began, now)
    };
    assert_eq!(delayed(0), Nanos::ZERO);
    assert_eq!(delayed(3_999_998), Nanos::ZERO, "within its tick");
    assert_eq!(delayed(3_999_999), Nanos::millis(4));
    assert_eq!(delayed(50_000_000), Nanos::millis(48));
    assert_eq!(
        delayed(104_000_000),
        timeout,
        "the timer fires a tick late, which is not printed"
    );
    assert_eq!(delayed(u64::MAX / 2), timeout);
}

/// Vector T1: three asleep since the counter stood at 1000.
#[test]
fn the_bar_is_32_pages_a_sleeper_and_strict() {
    let mut throttle = throttle(LINUX_5_16_RC1, 250);
    asleep(&mut throttle, Reason::Writeback);
    assert_eq!(throttle.on_written(Pages(1000), false), Wake::All);
    throttle.end(Reason::Writeback, Nanos::millis(100), NOW, NOW);
    assert_eq!(throttle.throttled_written(), Pages(1000));

    all_asleep(&mut throttle, 3);
    for completion in 1..=96 {
        assert_eq!(
            throttle.on_written(Pages(1), false),
            Wake::None,
            "{completion}"
        );
    }
    assert_eq!(throttle.on_written(Pages(1), false), Wake::All, "number 97");
    assert_eq!(throttle.throttled_written(), Pages(1097));
}

/// Edge cases a, b, c, e of mechanisms 4.5. (d, any page of the node counts, is `on_written` having
/// no other argument; f, the background reclaimer counts, is below.)
#[test]
fn what_counts_for_the_bar() {
    for law in [LINUX_5_15_PATCH1, LINUX_5_16_RC1, LINUX_5_16] {
        let mut throttle = throttle(law, 250);
        // a: nobody sleeps, nothing is counted.
        assert_eq!(throttle.on_written(Pages(10_000), false), Wake::None);
        assert_eq!(throttle.throttled_written(), Pages::ZERO);
        // c: more sleepers, a higher bar.
        asleep(&mut throttle, Reason::Writeback);
        assert_eq!(throttle.on_written(Pages(32), false), Wake::None);
        asleep(&mut throttle, Reason::Writeback);
        assert_eq!(
            throttle.on_written(Pages(32), false),
            Wake::None,
            "64 for two are not more than 64"
        );
        // e: beyond the bar every page wakes again, until they have left.
        for _ in 0..5 {
            assert_eq!(throttle.on_written(Pages(1), false), Wake::All);
        }
        // b: a reclaimer that joins now inherits the mark of the first, 69 pages ago.
        throttle.end(Reason::Writeback, Nanos::millis(100), NOW, NOW);
        asleep(&mut throttle, Reason::Writeback);
        assert_eq!(throttle.on_written(Pages(1), false), Wake::All);
        // When all have left, the next one starts afresh.
        for _ in 0..2 {
            throttle.end(Reason::Writeback, Nanos::millis(100), NOW, NOW);
        }
        asleep(&mut throttle, Reason::Writeback);
        assert_eq!(throttle.on_written(Pages(32), false), Wake::None);
        assert_eq!(throttle.on_written(Pages(1), false), Wake::All);
    }
}

/// Ours: a write that ends wakes one sleeper for each 32 pages, and all of them if none is under
/// way that could wake the rest.
#[test]
fn the_last_write_under_way_wakes_who_else_sleeps() {
    let mut ours = with_asleep(ReclaimLaw::TIDEGATE, 3);
    assert_eq!(ours.on_written(Pages(31), false), Wake::None);
    assert_eq!(ours.on_written(Pages(1), false), Wake::Some(1));
    assert_eq!(ours.on_written(Pages(1), true), Wake::All);
    assert_eq!(
        ours.on_written(Pages(31), false),
        Wake::None,
        "counted anew"
    );
    let mut theirs = with_asleep(LINUX_5_16_RC1, 1);
    assert_eq!(theirs.on_written(Pages(1), true), Wake::None);
}

/// Edge case f, and that no other reason counts.
#[test]
fn the_background_reclaimer_counts_as_a_sleeper() {
    let mut throttle = throttle(LINUX_5_16_RC1, 250);
    begin(&mut throttle, Reason::Writeback, Who::BACKGROUND);
    assert_eq!(throttle.writeback_sleepers(), 1);
    asleep(&mut throttle, Reason::Isolated);
    asleep(&mut throttle, Reason::NoProgress);
    assert_eq!(throttle.writeback_sleepers(), 1);
    throttle.end(Reason::Isolated, Nanos::millis(20), NOW, NOW);
    assert_eq!(throttle.writeback_sleepers(), 1);
    throttle.background_starts();
    assert_eq!(throttle.writeback_sleepers(), 0);
    throttle.end(Reason::Writeback, Nanos::millis(100), NOW, NOW);
    assert_eq!(
        throttle.writeback_sleepers(),
        0,
        "a start in between loses nothing but the count"
    );
}

#[test]
fn who_looks_and_finds_few_isolated_wakes() {
    for (law, wake) in [
        (LINUX_5_15, Wake::None),
        (LINUX_5_15_PATCH1, Wake::None),
        (LINUX_5_16_RC1, Wake::All),
        (LINUX_5_16, Wake::All),
        (ReclaimLaw::TIDEGATE, Wake::Some(3)),
    ] {
        assert_eq!(throttle(law, 250).on_checked(Pages(127)), wake, "{law:?}");
    }
    let tidegate = throttle(ReclaimLaw::TIDEGATE, 250);
    assert_eq!(tidegate.on_checked(Pages(31)), Wake::None);
    assert_eq!(tidegate.on_checked(Pages::MAX), Wake::Some(u32::MAX));
}

/// `consider_reclaim_throttle` of 5.16-rc1: at each node.
#[test]
fn one_who_frees_little_sleeps_at_each_node() {
    let after = |reclaimed, scanned, priority| {
        throttle(LINUX_5_16_RC1, 250).after_node(&progress(reclaimed, scanned, priority))
    };
    assert_eq!(after(0, 100, 12), NOTHING);
    assert_eq!(after(0, 100, 10), NOTHING);
    for priority in 0..10 {
        assert_eq!(after(0, 100, priority), SLEEPS, "{priority}");
        assert_eq!(
            after(12, 100, priority),
            SLEEPS,
            "12 are not more than 100/8"
        );
        assert_eq!(after(13, 100, priority), WAKES);
    }
    assert_eq!(after(1, 7, 12), WAKES, "seven over eight is nothing");
    assert_eq!(
        after(0, 0, 9),
        SLEEPS,
        "nothing of nothing is not efficient"
    );
    let background = Progress {
        background: true,
        ..progress(0, 100, 3)
    };
    let throttle = throttle(LINUX_5_16_RC1, 250);
    assert_eq!(
        throttle.after_node(&background),
        NOTHING,
        "it never sleeps for this"
    );
    assert_eq!(
        throttle.after_nodes(&progress(0, 100, 1)),
        NOTHING,
        "later kernels' site"
    );
}

/// The same of 5.16 final: once, at priority 1, with nothing at all.
#[test]
fn later_only_one_who_frees_nothing_and_only_late() {
    let after = |reclaimed, priority| {
        throttle(LINUX_5_16, 250).after_nodes(&progress(reclaimed, 100, priority))
    };
    for priority in [0, 2, 3, 9, 12] {
        assert_eq!(after(0, priority), NOTHING, "{priority}");
    }
    assert_eq!(after(0, 1), SLEEPS);
    assert_eq!(after(1, 1), NOTHING);
    assert_eq!(after(13, 12), WAKES);
    let throttle = throttle(LINUX_5_16, 250);
    assert_eq!(throttle.after_node(&progress(0, 100, 1)), NOTHING);
}

#[test]
fn the_others_have_no_such_site() {
    for law in [LINUX_5_15, LINUX_5_15_PATCH1, ReclaimLaw::TIDEGATE] {
        let throttle = throttle(law, 250);
        for priority in 0..=12 {
            assert_eq!(throttle.after_node(&progress(0, 100, priority)), NOTHING);
            assert_eq!(throttle.after_nodes(&progress(0, 100, priority)), NOTHING);
        }
    }
}

/// `skip_throttle_noprogress`: sleeps where MANY wait to be written.
#[test]
fn later_the_tick_is_skipped_near_the_end_of_memory_and_where_little_is_dirty() {
    let verdict = |write_pending, hopeless| {
        let facts = Facts {
            write_pending: Pages(write_pending),
            hopeless,
            ..FACTS
        };
        let mut throttle = throttle(LINUX_5_16, 250);
        [Reason::NoProgress, Reason::Congested]
            .map(|reason| throttle.begin(NOW, reason, Who::DIRECT, &facts))
    };
    let sleep = Verdict::Sleep {
        timeout: Nanos::millis(4),
        deadline: NOW + Nanos::millis(8),
    };
    let skip = Verdict::Yield { traced: None };
    assert_eq!(verdict(500, false), [skip; 2]);
    assert_eq!(verdict(501, false), [sleep; 2]);
    assert_eq!(verdict(501, true), [skip; 2]);
    assert_eq!(verdict(u64::MAX, false), [sleep; 2]);
}

/// One sleeper for each 32 pages; the rest counts for the next.
#[test]
fn ours_wakes_as_many_as_the_event_can_serve() {
    let mut throttle = with_asleep(ReclaimLaw::TIDEGATE, 5);
    assert_eq!(throttle.on_written(Pages(31), false), Wake::None);
    assert_eq!(throttle.on_written(Pages(1), false), Wake::Some(1));
    assert_eq!(throttle.on_written(Pages(100), false), Wake::Some(3));
    assert_eq!(throttle.on_written(Pages(27), false), Wake::None);
    assert_eq!(throttle.on_written(Pages(1), false), Wake::Some(1));
    assert_eq!(throttle.throttled_written(), Pages(160));
}

#[test]
fn a_reason_that_is_off_throttles_nobody() {
    for law in LAWS {
        for reason in Reason::ALL {
            let mut tunables = Tunables::of(law, 250);
            tunables.off = tunables.off.with(reason);
            let mut throttle = Throttle::new(tunables);
            assert_eq!(begin(&mut throttle, reason, Who::DIRECT), Verdict::Go);
            assert_eq!(throttle.writeback_sleepers(), 0);
            for finding in FINDINGS {
                assert_ne!(throttle.reason_of(finding), Some(reason));
            }
            let after = [
                throttle.after_node(&progress(0, 100, 1)),
                throttle.after_nodes(&progress(0, 100, 1)),
            ];
            assert!(after.iter().all(|after| after.throttle != Some(reason)));
        }
    }
}

#[test]
fn without_wakes_only_timers_end_a_sleep() {
    for law in LAWS {
        let mut tunables = Tunables::of(law, 250);
        tunables.wakes = false;
        let mut throttle = Throttle::new(tunables);
        begin(&mut throttle, Reason::Writeback, Who::DIRECT);
        assert_eq!(throttle.on_written(Pages(10_000), false), Wake::None);
        assert_eq!(throttle.on_checked(Pages(10_000)), Wake::None);
        assert_eq!(throttle.after_node(&progress(50, 100, 5)).wake, Wake::None);
        assert_eq!(throttle.after_nodes(&progress(50, 100, 5)).wake, Wake::None);
    }
}

/// The echo of this timeout among the delays of NOPROGRESS moves when it is changed.
#[test]
fn the_timeout_of_writeback_can_be_changed_alone() {
    let timeouts = |law| {
        let mut tunables = Tunables::of(law, 250);
        tunables.writeback_timeout = Some(Nanos::millis(60));
        let mut throttle = Throttle::new(tunables);
        [
            Reason::Writeback,
            Reason::CongestionWait,
            Reason::Isolated,
            Reason::NoProgress,
        ]
        .map(|reason| match begin(&mut throttle, reason, Who::DIRECT) {
            Verdict::Sleep { timeout, .. } => timeout.as_millis_floor(),
            Verdict::Go | Verdict::Yield { .. } => 0,
        })
    };
    assert_eq!(timeouts(LINUX_5_16_RC1), [60, 0, 20, 500]);
    assert_eq!(timeouts(LINUX_5_15), [0, 60, 100, 0]);
    assert_eq!(timeouts(LINUX_5_15_PATCH1), [60, 60, 100, 0]);
}

/// A device that writes a request of 16 pages each 2 ms, and seven reclaimers that come back 1 ms
/// after each sleep: how long they sleep under each law. Kept as text: what a change of a rule does
/// shows here.
#[test]
fn delays_as_a_series() {
    use std::fmt::Write as _;
    let mut text = String::from(
        "law               sleeps  by event  longest ms  mean us  histogram, ms:count\n",
    );
    for law in LAWS {
        let mut throttle = throttle(law, 250);
        let Some(reason) = throttle.reason_of(Finding::Congested) else {
            continue;
        };
        // (when it acts next, when it fell asleep and what its timeout is)
        let mut tasks = [(NOW, None); 7];
        let mut delays = std::collections::BTreeMap::new();
        let (mut sleeps, mut woken, mut total) = (0u64, 0u64, 0u64);
        for step in 0..20_000u64 {
            let now = NOW + Nanos::micros(100 * step);
            let wake = if step % 20 == 19 {
                throttle.on_written(Pages(16), false)
            } else {
                Wake::None
            };
            let mut count = match wake {
                Wake::None => 0,
                Wake::All => u32::MAX,
                Wake::Some(count) => count,
            };
            // The longest asleep first.
            let mut order: Vec<usize> = (0..tasks.len()).collect();
            order.sort_by_key(|task| tasks[*task].1);
            for task in order {
                let (at, asleep) = &mut tasks[task];
                if let Some((began, timeout)) = *asleep {
                    let event = count > 0 && now < *at;
                    if !event && now < *at {
                        continue;
                    }
                    count -= u32::from(event);
                    let delayed = throttle.end(reason, timeout, began, now);
                    (sleeps, woken) = (sleeps + 1, woken + u64::from(event));
                    total += (now - began).0;
                    *delays.entry(delayed.as_millis_floor()).or_insert(0u32) += 1;
                    *asleep = None;
                    *at = now + Nanos::millis(1);
                } else if now >= *at {
                    match throttle.begin(now, reason, Who::DIRECT, &FACTS) {
                        Verdict::Sleep { timeout, deadline } => {
                            *at = deadline;
                            *asleep = Some((now, timeout));
                        }
                        Verdict::Go | Verdict::Yield { .. } => *at = now + Nanos::millis(1),
                    }
                }
            }
        }
        let mean = total.checked_div(sleeps * 1000).unwrap_or(0);
        let longest = delays.last_key_value().map_or(0, |(delay, _)| *delay);
        let histogram: Vec<String> = delays
            .iter()
            .map(|(delay, count)| format!("{delay}:{count}"))
            .collect();
        let name = format!("{law:?}");
        writeln!(
            text,
            "{name:<16} {sleeps:>7} {woken:>9} {longest:>11} {mean:>8}  {}",
            histogram.join(" ")
        )
        .unwrap();
    }
    let stored = include_str!("../snapshots/throttle.txt");
    assert_eq!(text, stored, "the series has changed; it is now:\n{text}");
}

#[test]
fn a_sleep_that_only_writes_end_is_not_begun_where_none_is_pending_and_linux_does_not_look() {
    for law in LAWS {
        for (wakes, pending) in [(true, 0), (true, 1), (false, 0), (false, 1)] {
            let mut tunables = Tunables::of(law, 250);
            tunables.wakes &= wakes;
            let throttle = Throttle::new(tunables);
            for reason in Reason::ALL {
                let in_vain = law == ReclaimLaw::TIDEGATE
                    && reason == Reason::Writeback
                    && wakes
                    && pending == 0;
                let may = throttle.may_be_woken(reason, Pages(pending));
                assert_eq!(may, !in_vain, "{reason:?}, wakes {wakes}, {pending}");
            }
        }
    }
}
