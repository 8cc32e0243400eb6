//! Random members under one limit, in virtual time: some lie, some are slow, some panic, some
//! report late.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use governor::{Ask, Freeable, Governor, Member, Scanned, Share, Shrinker};
use proptest::prelude::*;

const LIMIT: u64 = 1 << 20;
const ENTRY: u64 = 1024;
/// Entries after which a late reporter reports.
const LATE: u64 = 8;
/// Entries of a member that does not give: it stops by itself.
const BAD_MAX: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Manner {
    Good,
    LateReports,
    Slow,
    Lies,
    Panics,
}

#[derive(Clone, Copy, Debug)]
enum Pattern {
    /// Any of this many keys; the lower half of the lower half ... more often.
    Skewed(u64),
    Loop(u64),
    Stream,
    Dead,
}

#[derive(Clone, Copy, Debug)]
struct Plan {
    manner: Manner,
    pattern: Pattern,
    rate: u64,
    floor: u64,
}

struct Fifo {
    plan: Plan,
    member: OnceLock<Weak<Member>>,
    clock: Arc<AtomicU64>,
    entries: Mutex<(VecDeque<u64>, HashSet<u64>)>,
    unreported: AtomicU64,
    asked_too_much: Mutex<Option<String>>,
}

impl Fifo {
    fn member(&self) -> Arc<Member> {
        self.member.get().unwrap().upgrade().unwrap()
    }

    fn access(&self, key: u64) {
        let member = self.member();
        let mut entries = self.entries.lock().unwrap();
        if entries.1.contains(&key) {
            member.used();
            return;
        }
        member.missed(key);
        let is_bad = matches!(self.plan.manner, Manner::Lies | Manner::Panics);
        if is_bad && entries.0.len() >= BAD_MAX {
            return;
        }
        entries.0.push_back(key);
        entries.1.insert(key);
        drop(entries);
        let every = match self.plan.manner {
            Manner::LateReports => LATE,
            _ => 1,
        };
        if self.unreported.fetch_add(1, SeqCst) + 1 >= every {
            member.grew(self.unreported.swap(0, SeqCst) * ENTRY);
        }
    }
}

impl Shrinker for Fifo {
    fn count(&self) -> Freeable {
        Freeable::bytes(self.entries.lock().unwrap().0.len() as u64 * ENTRY)
    }

    fn scan(&self, ask: &Ask) -> Scanned {
        let member = self.member();
        if ask.bytes + self.plan.floor > member.held() {
            let said = format!(
                "{} of {} over {}",
                ask.bytes,
                member.held(),
                self.plan.floor
            );
            *self.asked_too_much.lock().unwrap() = Some(said);
        }
        match self.plan.manner {
            Manner::Lies => return Scanned::freed(ask.bytes),
            // Without the noise of a message.
            Manner::Panics => std::panic::resume_unwind(Box::new("on purpose")),
            Manner::Slow => {
                self.clock.fetch_add(120_000_000, SeqCst);
            }
            Manner::Good | Manner::LateReports => {}
        }
        let mut freed = 0;
        while freed < ask.bytes {
            let mut entries = self.entries.lock().unwrap();
            let Some(key) = entries.0.pop_front() else {
                break;
            };
            entries.1.remove(&key);
            drop(entries);
            member.evicted(key, ENTRY);
            freed += ENTRY;
        }
        member.shrank(freed);
        Scanned::freed(freed)
    }
}

fn plans() -> impl Strategy<Value = Vec<Plan>> {
    let manner = prop_oneof![
        4 => Just(Manner::Good),
        2 => Just(Manner::LateReports),
        1 => Just(Manner::Slow),
        1 => Just(Manner::Lies),
        1 => Just(Manner::Panics),
    ];
    let pattern = prop_oneof![
        (500..4000_u64).prop_map(Pattern::Skewed),
        (100..1500_u64).prop_map(Pattern::Loop),
        Just(Pattern::Stream),
        Just(Pattern::Dead),
    ];
    let plan = (manner, pattern, 1..6_u64, 0..LIMIT / 12);
    let plan = plan.prop_map(|(manner, pattern, rate, floor)| Plan {
        manner,
        pattern,
        rate,
        floor,
    });
    prop::collection::vec(plan, 1..6)
}

fn key(pattern: Pattern, nth: u64, random: &mut u64) -> Option<u64> {
    *random = random
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    let value = *random >> 33;
    match pattern {
        Pattern::Skewed(keys) => Some(value % (keys >> (value % 7)).max(1)),
        Pattern::Loop(keys) => Some(nth % keys),
        Pattern::Stream => Some(nth),
        Pattern::Dead => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_limit_holds_and_floors_do_whatever_members_do(plans in plans(), seed in any::<u64>()) {
        let clock = Arc::new(AtomicU64::new(0));
        let shown = clock.clone();
        let governor = Governor::builder(LIMIT)
            .without_resident()
            .clock(move || Duration::from_nanos(shown.load(SeqCst)))
            .driven_by_caller(|| {})
            .wait_max(Duration::ZERO)
            .build()
            .unwrap();
        let caches: Vec<_> = plans.iter().enumerate().map(|(at, plan)| {
            let cache = Arc::new(Fifo {
                plan: *plan,
                member: OnceLock::new(),
                clock: clock.clone(),
                entries: Mutex::default(),
                unreported: AtomicU64::new(0),
                asked_too_much: Mutex::default(),
            });
            let share = Share::default().floor(plan.floor);
            let member = governor.register(format!("{at}"), share, cache.clone());
            let member = Arc::new(member.unwrap());
            cache.member.set(Arc::downgrade(&member)).unwrap();
            (cache, member)
        }).collect();
        // A write buffer by permits, which gives them back now and then.
        let nothing = governor::by(|| 0, |_| 0);
        let buffer = governor.register("buffer", Share::default(), nothing).unwrap();
        let (mut permits, mut random) = (Vec::new(), seed | 1);
        for step in 0..1500_u64 {
            for (cache, _) in &caches {
                for nth in 0..cache.plan.rate {
                    let nth = step * cache.plan.rate + nth;
                    if let Some(key) = key(cache.plan.pattern, nth, &mut random) {
                        cache.access(key);
                    }
                }
            }
            let before = governor.held();
            if let Ok(permit) = buffer.reserve(2 * ENTRY) {
                prop_assert!(before + 2 * ENTRY <= LIMIT);
                permits.push(permit);
            }
            if permits.len() > 32 {
                permits.clear();
            }
            clock.fetch_add(1_000_000, SeqCst);
            governor.turn(governor.now());
            let report = governor.report();
            let targets = report.members.iter().map(|member| member.target).sum::<u64>();
            prop_assert_eq!(targets + report.spare + report.headroom, LIMIT);
            // While a slow member rests its neighbours give for it; it may be too much when they
            // have nothing left.
            let is_slow = caches.iter().any(|(cache, _)| cache.plan.manner == Manner::Slow);
            let others_give = caches.iter().any(|(cache, member)| {
                matches!(cache.plan.manner, Manner::Good | Manner::LateReports)
                    && member.held() > cache.plan.floor + 64 * ENTRY
            });
            if others_give || !is_slow {
                prop_assert!(report.held <= LIMIT + LIMIT / 20, "{}", report);
            }
        }
        for (cache, _) in &caches {
            let asked = cache.asked_too_much.lock().unwrap().clone();
            prop_assert_eq!(asked, None);
        }
    }
}
