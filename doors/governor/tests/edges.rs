//! Every duration that a call takes, at its edges; every name that is printed, as others give it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use governor::{
    Ask, Error, Freeable, Governor, Resized, Scanned, Share, Shrinker, Standing, WhyMoved,
};

const MIB: u64 = 1 << 20;

/// Nothing, the least, some, and what no clock can name.
const TIMES: [Duration; 7] = [
    Duration::ZERO,
    Duration::from_nanos(1),
    Duration::from_millis(2),
    Duration::from_nanos(u64::MAX / 2),
    Duration::from_nanos(u64::MAX),
    Duration::from_secs(u64::MAX),
    Duration::MAX,
];

/// True for a time within which a test may wait.
fn is_short(time: Duration) -> bool {
    time < Duration::from_secs(1)
}

/// Would be given another bound after that time.
struct Later(Duration);

impl Shrinker for Later {
    fn count(&self) -> Freeable {
        Freeable::bytes(MIB)
    }

    fn scan(&self, _: &Ask) -> Scanned {
        Scanned::default()
    }

    fn resize(&self, _: u64) -> Resized {
        Resized::Later(self.0)
    }
}

#[test]
fn a_reservation_waits_for_any_time_and_for_ever() {
    for time in TIMES {
        let governor = Governor::builder(MIB)
            .without_resident()
            .wait_max(time)
            .build()
            .unwrap();
        let toy = || governor::by(|| 0, |_| 0);
        let holds = governor.register("holds", Share::default(), toy()).unwrap();
        let wants = governor.register("wants", Share::default(), toy()).unwrap();
        let mut permit = Some(holds.reserve(MIB).unwrap());
        for own in [true, false] {
            if is_short(time) {
                let refused = if own {
                    wants.reserve_within(MIB, time)
                } else {
                    wants.reserve(MIB)
                };
                let refused = refused.map(|permit| permit.bytes()).unwrap_err();
                assert!(matches!(refused, Error::Full { .. }), "{time:?}: {refused}");
                continue;
            }
            // Memory that is given back a while later is had.
            let held = permit.take();
            let got = std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(20));
                    drop(held);
                });
                if own {
                    wants.reserve_within(MIB, time)
                } else {
                    wants.reserve(MIB)
                }
            });
            drop(got.unwrap());
            permit = Some(holds.reserve(MIB).unwrap());
        }
    }
}

#[test]
fn clocks_costs_and_promises_of_any_length_make_no_turn_fail() {
    for (time, other) in TIMES.into_iter().flat_map(|a| TIMES.map(|b| (a, b))) {
        // In two halves: a clock does not go back.
        let read = Arc::new(AtomicU64::new(0));
        let reads = Arc::clone(&read);
        let clock = move || {
            let late = reads.fetch_add(1, SeqCst) > 3;
            time.min(if late { Duration::MAX } else { other })
        };
        let builder = Governor::builder(4 * MIB)
            .resident(|| Some(u64::MAX))
            .trim(|| {})
            .clock(clock)
            .driven_by_caller(|| {});
        let governor = builder.build().unwrap();
        let share = || Share::default().miss_cost(other);
        let named = governor
            .register("later", share(), Arc::new(Later(other)))
            .unwrap();
        let plain = governor
            .register("plain", share(), governor::by(|| MIB, |_| 0))
            .unwrap();
        for step in 0..6_u64 {
            named.grew(MIB);
            plain.grew(u64::MAX);
            for member in [&named, &plain] {
                member.evicted(step, MIB);
                member.missed(step);
                member.missed_at(step, time);
                member.evicted_bytes(u64::MAX);
                member.missed_after(step, u64::MAX, other);
            }
            let now = governor.now();
            let next = governor.turn(now);
            assert!(next.at().is_none_or(|at| at >= now), "{time:?} {other:?}");
            let _ = governor.turn(time);
            let _ = next.wait(other);
            assert!(!governor.report().to_string().is_empty());
        }
    }
}

/// Names with everything in them that could draw, hide or end a line.
fn hostile() -> String {
    let all = ('\0'..='\u{ffff}').chain('\u{e0000}'..='\u{e007f}');
    all.filter(|c| figures::is_unsafe(*c)).collect()
}

fn is_plain(text: &str) -> bool {
    !text.chars().any(|c| c != '\n' && figures::is_unsafe(c))
}

#[test]
fn no_name_draws_in_a_report_or_a_refusal() {
    let name = hostile();
    let governor = Governor::builder(MIB).without_resident().build().unwrap();
    let toy = || governor::by(|| 0, |_| 0);
    let member = governor
        .register(name.clone(), Share::default(), toy())
        .unwrap();
    let mut report = governor.report();
    report.moves.push(governor::Move {
        at: Duration::MAX,
        bytes: 1,
        from: name.clone(),
        to: name.clone(),
        why: WhyMoved::Carried,
    });
    let text = report.to_string();
    let lines = text.lines().count();
    assert!(is_plain(&text) && lines == 4, "{lines} lines: {text}");
    assert_eq!(report.members[0].standing, Standing::Good);
    let full = member.reserve(2 * MIB).map(|permit| permit.bytes());
    let (member, by) = (name.clone(), name.clone());
    let (bytes, floor, limit, held, target) = (1, 1, 1, 1, 1);
    for error in [
        full.unwrap_err(),
        governor
            .register(name.clone(), Share::default(), toy())
            .map(drop)
            .unwrap_err(),
        Error::FloorAboveLimit {
            member: member.clone(),
            floor,
            limit,
        },
        Error::FloorsAboveLimit {
            member: member.clone(),
            floor,
            others: 1,
            limit,
        },
        Error::CeilingBelowFloor {
            member: member.clone(),
            ceiling: 1,
            floor,
        },
        Error::Weight {
            member: member.clone(),
            weight: f64::NAN,
        },
        Error::LimitBelowFloors {
            limit,
            floors: 1,
            highest: name.clone(),
        },
        Error::Full {
            member: member.clone(),
            bytes,
            waited: Duration::MAX,
            by,
            held,
            target,
        },
        Error::InScan { member },
        Error::NoThread { why: name },
    ] {
        assert!(is_plain(&error.to_string()), "{error}");
    }
}
