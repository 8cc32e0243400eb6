//! The eight rules, bad input, waiting: each by members that do what they should not.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use governor::{
    Ask, Error, Freeable, Governor, Member, Regret, Resized, Scanned, Share, Shrinker, Standing,
};

const LIMIT: u64 = 1 << 20;
const MS: Duration = Duration::from_millis(1);

/// The behaviour of a cache when it is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Way {
    #[default]
    Frees,
    /// Says that it frees, and does not.
    Lies,
    /// Frees nothing and says so.
    Nothing,
    Panics,
    /// Takes so long, by the clock of the test.
    Slow(Duration),
    /// Takes so long, really.
    Stuck(Duration),
    Reserves,
}

/// A cache that reports what it holds.
#[derive(Default)]
struct Toy {
    member: OnceLock<std::sync::Weak<Member>>,
    held: AtomicU64,
    way: Mutex<Way>,
    asked: Mutex<Vec<u64>>,
    inside: AtomicUsize,
    met: AtomicBool,
    threads: Mutex<Vec<Option<String>>>,
    governor: OnceLock<Governor>,
    clock: Arc<AtomicU64>,
    refused: Mutex<Option<Error>>,
}

impl Toy {
    fn asked(&self) -> u64 {
        self.asked.lock().unwrap().iter().sum()
    }

    fn times(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    fn member(&self) -> Arc<Member> {
        self.member.get().unwrap().upgrade().unwrap()
    }

    fn grow(&self, bytes: u64) {
        self.held.fetch_add(bytes, SeqCst);
        self.member().grew(bytes);
    }

    fn give(&self, bytes: u64) -> u64 {
        let less = |held: u64| Some(held.saturating_sub(bytes));
        let before = self.held.fetch_update(SeqCst, SeqCst, less).unwrap();
        let freed = before.min(bytes);
        self.member().shrank(freed);
        freed
    }
}

impl Shrinker for Toy {
    fn count(&self) -> Freeable {
        Freeable::bytes(self.held.load(SeqCst))
    }

    fn scan(&self, ask: &Ask) -> Scanned {
        if self.inside.fetch_add(1, SeqCst) > 0 {
            self.met.store(true, SeqCst);
        }
        self.asked.lock().unwrap().push(ask.bytes);
        let thread = std::thread::current().name().map(str::to_owned);
        self.threads.lock().unwrap().push(thread);
        if let Some(governor) = self.governor.get() {
            // Would wait for ever if a lock were held.
            assert!(governor.report().held > 0);
        }
        let way = *self.way.lock().unwrap();
        let freed = match way {
            Way::Frees => self.give(ask.bytes),
            Way::Lies => ask.bytes,
            Way::Nothing => 0,
            Way::Panics => panic!("a shrinker panics: part of the test"),
            Way::Slow(time) => {
                let ns = u64::try_from(time.as_nanos()).unwrap();
                self.clock.fetch_add(ns, SeqCst);
                self.give(ask.bytes)
            }
            Way::Stuck(time) => {
                std::thread::sleep(time);
                self.give(ask.bytes)
            }
            Way::Reserves => {
                let refused = self.member().reserve(1).unwrap_err();
                *self.refused.lock().unwrap() = Some(refused);
                self.give(ask.bytes)
            }
        };
        self.inside.fetch_sub(1, SeqCst);
        Scanned::freed(freed)
    }
}

/// A governor whose time is the test's.
struct Bench {
    governor: Governor,
    clock: Arc<AtomicU64>,
    members: Vec<(Arc<Toy>, Arc<Member>)>,
}

impl Bench {
    fn new() -> Self {
        let clock = Arc::new(AtomicU64::new(0));
        let shown = clock.clone();
        let governor = Governor::builder(LIMIT)
            .without_resident()
            .clock(move || Duration::from_nanos(shown.load(SeqCst)))
            .driven_by_caller(|| {})
            .build()
            .unwrap();
        Self {
            governor,
            clock,
            members: Vec::new(),
        }
    }

    fn join(&mut self, name: &str, share: Share) -> Arc<Toy> {
        let (toy, member) = join(&self.governor, name, share, self.clock.clone());
        self.members.push((toy.clone(), member));
        toy
    }

    fn turn(&self) {
        self.pass(MS);
        self.governor.turn(self.governor.now());
    }

    fn pass(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap();
        self.clock.fetch_add(ns, SeqCst);
    }

    fn standing(&self, at: usize) -> Standing {
        self.governor.report().members[at].standing
    }
}

fn join(
    governor: &Governor,
    name: &str,
    share: Share,
    clock: Arc<AtomicU64>,
) -> (Arc<Toy>, Arc<Member>) {
    let toy = Arc::new(Toy {
        clock,
        ..Toy::default()
    });
    let member = governor.register(name, share, toy.clone()).unwrap();
    let member = Arc::new(member);
    assert!(toy.member.set(Arc::downgrade(&member)).is_ok());
    (toy, member)
}

fn live(limit: u64) -> Governor {
    Governor::builder(limit).without_resident().build().unwrap()
}

/// Waits for what a thread brings about.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(MS);
    }
}

#[test]
fn rule_1_calls_come_from_the_governors_thread_without_its_locks() {
    let governor = live(LIMIT);
    let (toy, member) = join(&governor, "rows", Share::default(), Arc::default());
    toy.governor.set(governor.clone()).unwrap();
    toy.grow(LIMIT);
    // Has to wait for memory, and does not fetch it itself.
    let permit = member.reserve(LIMIT / 4).unwrap();
    assert_eq!(permit.bytes(), LIMIT / 4);
    let threads = toy.threads.lock().unwrap();
    assert!(!threads.is_empty());
    for name in threads.iter() {
        let name = name.as_deref().unwrap_or_default();
        assert!(name.starts_with("governor"), "called from '{name}'");
    }
    // The toy keeps the governor, which is nobody's business but the test's.
}

#[test]
fn rule_2_one_call_at_a_time_for_a_member() {
    let governor = live(LIMIT);
    let (toy, member) = join(&governor, "rows", Share::default(), Arc::default());
    *toy.way.lock().unwrap() = Way::Stuck(Duration::from_millis(150));
    let theirs = governor.clone();
    toy.grow(LIMIT * 2);
    let caller = std::thread::spawn(move || {
        for _ in 0..50 {
            theirs.turn(theirs.now());
            std::thread::sleep(10 * MS);
        }
    });
    until("the first call begins", || toy.times() == 1);
    toy.grow(LIMIT * 2);
    caller.join().unwrap();
    until("asked twice", || {
        toy.grow(LIMIT * 2);
        toy.times() >= 2
    });
    assert!(!toy.met.load(SeqCst), "two calls at once");
    drop(member);
}

#[test]
fn rule_3_who_is_late_rests_and_longer_each_time() {
    let mut bench = Bench::new();
    let slow = bench.join("slow", Share::default().ceiling(LIMIT / 2));
    let other = bench.join("other", Share::default().ceiling(LIMIT / 2));
    *slow.way.lock().unwrap() = Way::Slow(Duration::from_millis(150));
    *other.way.lock().unwrap() = Way::Nothing;
    other.grow(LIMIT);
    let mut rests = Vec::new();
    for _ in 0..8 {
        slow.grow(LIMIT * 2);
        let asked = slow.times();
        let began = bench.governor.now();
        while slow.times() == asked {
            bench.turn();
        }
        rests.push((bench.governor.now() - began).as_millis() / 100);
    }
    // The first at once; each but the last 150 ms are the call's.
    assert_eq!(rests, [1, 2, 3, 5, 9, 17, 33, 51]);
    assert_eq!(bench.standing(0), Standing::Rests);
    assert_eq!(bench.governor.report().members[0].late, 8);
}

#[test]
fn rule_3_the_only_member_above_its_target_does_not_rest() {
    let mut bench = Bench::new();
    let slow = bench.join("slow", Share::default());
    let good = bench.join("good", Share::default().floor(LIMIT / 8));
    *slow.way.lock().unwrap() = Way::Slow(Duration::from_millis(150));
    good.grow(LIMIT / 4);
    for times in 1..=8 {
        slow.grow(LIMIT * 2);
        bench.turn();
        assert_eq!(slow.times(), times);
    }
    assert_eq!(bench.standing(0), Standing::Rests);
    assert_eq!(good.asked(), 0, "it has no more than its own");
}

#[test]
fn rule_3_others_are_asked_while_one_is_stuck_on_two_lanes_at_most() {
    let governor = live(LIMIT);
    let (stuck, first) = join(&governor, "stuck", Share::default(), Arc::default());
    let (good, second) = join(&governor, "good", Share::default(), Arc::default());
    *stuck.way.lock().unwrap() = Way::Stuck(Duration::from_secs(3));
    stuck.grow(LIMIT);
    until("the call begins", || stuck.times() == 1);
    good.grow(LIMIT / 2);
    until("the other is asked", || good.times() > 0);
    assert_eq!(stuck.inside.load(SeqCst), 1, "not meanwhile");
    // Its memory is not available now, so the other gives all that is above its floor.
    until("the other gives", || good.held.load(SeqCst) == 0);
    until("the call ends", || stuck.held.load(SeqCst) < LIMIT);
    assert_eq!(governor.report().members[0].late, 1);
    drop((first, second));
}

#[test]
fn rule_4_three_claims_without_effect_are_lies_and_a_true_one_is_forgiven() {
    let mut bench = Bench::new();
    let liar = bench.join("liar", Share::default());
    let good = bench.join("good", Share::default());
    *liar.way.lock().unwrap() = Way::Lies;
    liar.grow(LIMIT);
    good.grow(LIMIT / 8);
    for _ in 0..4 {
        assert_eq!(bench.standing(0), Standing::Good);
        bench.turn();
    }
    assert_eq!(bench.standing(0), Standing::Lies);
    let asked = liar.times();
    (0..100).for_each(|_| bench.turn());
    assert_eq!(liar.times(), asked, "counts as not available");
    assert_eq!(good.held.load(SeqCst), 0, "others give for it");
    *liar.way.lock().unwrap() = Way::Frees;
    bench.pass(Duration::from_secs(5));
    (0..4).for_each(|_| bench.turn());
    bench.pass(Duration::from_secs(5));
    liar.grow(LIMIT);
    (0..4).for_each(|_| bench.turn());
    assert_eq!(bench.standing(0), Standing::Good);
    assert!(bench.governor.held() <= LIMIT);
}

/// A cache that is looked at and filled at a rate (bytes a millisecond), also in its scans, which
/// take 5 ms. Its standing in the end.
fn filled(rate: u64, frees: bool) -> Standing {
    let bench = Bench::new();
    let held = Arc::new(AtomicU64::new(LIMIT));
    let (look, give, clock) = (held.clone(), held.clone(), bench.clock.clone());
    let free = move |ask: &Ask| {
        clock.fetch_add(5_000_000, SeqCst);
        give.fetch_add(rate * 5, SeqCst);
        if frees {
            give.fetch_sub(ask.bytes, SeqCst);
        }
        ask.bytes
    };
    let shrinker = governor::by(move || look.load(SeqCst), free);
    let share = Share::default();
    let member = bench.governor.register("filled", share, shrinker).unwrap();
    for _ in 0..200 {
        held.fetch_add(rate, SeqCst);
        bench.turn();
    }
    let standing = bench.standing(0);
    drop(member);
    standing
}

#[test]
fn rule_4_a_member_that_is_filled_while_it_is_asked_is_no_liar() {
    for rate in [0, LIMIT / 4096, LIMIT / 64, LIMIT / 8] {
        assert_eq!(filled(rate, true), Standing::Good, "{rate}");
        assert_eq!(filled(rate, false), Standing::Lies, "{rate}");
    }
}

#[test]
fn a_member_that_gives_nothing_is_named_and_rests() {
    let mut bench = Bench::new();
    let poor = bench.join("poor", Share::default());
    *poor.way.lock().unwrap() = Way::Nothing;
    poor.grow(LIMIT * 2);
    (0..5).for_each(|_| bench.turn());
    assert_eq!(bench.standing(0), Standing::GivesNothing);
    assert_eq!(poor.times(), 3);
    *poor.way.lock().unwrap() = Way::Frees;
    bench.pass(Duration::from_millis(100));
    bench.turn();
    assert_eq!(bench.standing(0), Standing::Good);
}

#[test]
fn rule_5_a_panic_disables_the_member_alone() {
    let mut bench = Bench::new();
    let bad = bench.join("bad", Share::default());
    let good = bench.join("good", Share::default());
    *bad.way.lock().unwrap() = Way::Panics;
    bad.grow(LIMIT);
    good.grow(LIMIT / 4);
    (0..50).for_each(|_| bench.turn());
    assert_eq!(bad.times(), 1, "never again");
    assert_eq!(bench.standing(0), Standing::Panicked);
    assert_eq!(good.held.load(SeqCst), 0, "the others are asked");
}

#[test]
fn rule_6_to_reserve_inside_a_scan_is_refused() {
    let mut bench = Bench::new();
    let toy = bench.join("rows", Share::default());
    *toy.way.lock().unwrap() = Way::Reserves;
    toy.grow(LIMIT * 2);
    bench.turn();
    let refused = toy.refused.lock().unwrap().clone();
    let member = "rows".to_owned();
    assert_eq!(refused, Some(Error::InScan { member }));
    assert!(toy.member().reserve(1).is_ok(), "allowed again");
}

#[test]
fn rule_7_who_leaves_gives_its_target_and_its_memory_back() {
    let mut bench = Bench::new();
    bench.join("stays", Share::default());
    let goes = bench.join("goes", Share::default());
    goes.grow(LIMIT / 2);
    let before = bench.governor.report().members[0].target;
    let (toy, member) = bench.members.pop().unwrap();
    let alive = Arc::downgrade(&toy);
    drop((goes, toy, member));
    assert!(alive.upgrade().is_none(), "the shrinker is dropped with it");
    let report = bench.governor.report();
    assert_eq!(report.members.len(), 1);
    assert!(report.members[0].target >= before * 2 - 1);
    assert_eq!(report.held, 0);
    bench.join("goes", Share::default());
}

#[test]
fn rule_8_nobody_below_its_floor_is_asked_while_another_is_above() {
    let mut bench = Bench::new();
    let poor = bench.join("poor", Share::default().floor(LIMIT / 2));
    let rich = bench.join("rich", Share::default());
    poor.grow(LIMIT / 2);
    rich.grow(LIMIT);
    (0..20).for_each(|_| bench.turn());
    assert_eq!(poor.asked(), 0);
    assert!(bench.governor.held() <= LIMIT);
    // The other does not give any more: the floor stands all the same.
    *rich.way.lock().unwrap() = Way::Nothing;
    rich.grow(LIMIT);
    (0..20).for_each(|_| bench.turn());
    assert_eq!(poor.asked(), 0);
    // Above its floor it is asked for what is above, and no more.
    poor.grow(LIMIT / 8);
    (0..20).for_each(|_| bench.turn());
    assert_eq!(poor.held.load(SeqCst), LIMIT / 2);
}

#[test]
fn a_reservation_waits_a_bounded_time_and_names_who_is_in_the_way() {
    let governor = live(LIMIT);
    let (hog, first) = join(&governor, "hog", Share::default(), Arc::default());
    let (_, asks) = join(&governor, "asks", Share::default(), Arc::default());
    *hog.way.lock().unwrap() = Way::Nothing;
    hog.grow(LIMIT);
    let began = Instant::now();
    let refused = asks.reserve(4096).unwrap_err();
    let waited = began.elapsed();
    assert!(waited >= Duration::from_millis(190), "{waited:?}");
    let Error::Full {
        by, held, target, ..
    } = &refused
    else {
        panic!("{refused:?}");
    };
    assert_eq!((by.as_str(), *held), ("hog", LIMIT));
    assert!(*target <= LIMIT / 2);
    let said = refused.to_string();
    assert!(said.contains("asks") && said.contains("hog"), "{said}");
    assert_eq!(governor.report().waits.refused, 1);
    // Memory that comes ends the wait.
    let (theirs, waiter) = (asks.clone(), asks.clone());
    let waits = std::thread::spawn(move || {
        let permit = waiter.reserve_within(4096, Duration::from_secs(20));
        permit.map(|permit| permit.bytes())
    });
    std::thread::sleep(20 * MS);
    hog.give(8192);
    assert_eq!(waits.join().unwrap(), Ok(4096));
    drop((first, theirs));
}

#[test]
fn permits_never_go_beyond_the_limit() {
    let governor = live(LIMIT);
    let (_, member) = join(&governor, "buffer", Share::default(), Arc::default());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut permits = Vec::new();
                for turn in 0..200_u64 {
                    if let Ok(permit) = member.reserve(LIMIT / 64 * (1 + turn % 3)) {
                        permits.push(permit);
                    }
                    assert!(governor.held() <= LIMIT);
                    if permits.len() > 6 {
                        permits.clear();
                    }
                }
            });
        }
    });
    assert_eq!(governor.held(), 0);
}

#[test]
fn permits_are_split_merged_and_kept() {
    let mut bench = Bench::new();
    bench.join("a", Share::default());
    bench.join("b", Share::default());
    let (a, b) = (bench.members[0].1.clone(), bench.members[1].1.clone());
    let mut permit = a.reserve(100).unwrap();
    permit.merge(a.reserve(50).unwrap()).unwrap();
    assert_eq!((permit.bytes(), a.held()), (150, 150));
    let other = permit.merge(b.reserve(7).unwrap()).unwrap_err();
    assert_eq!(other.bytes(), 7);
    drop(other);
    permit.release(40);
    assert_eq!((permit.bytes(), a.held(), b.held()), (110, 110, 0));
    permit.keep();
    assert_eq!(a.held(), 110);
    a.shrank(1000);
    assert_eq!((a.held(), bench.governor.held()), (0, 0));
}

/// A cache that bounds itself and reports nothing.
#[derive(Default)]
struct Bounded {
    held: AtomicU64,
    bound: AtomicU64,
}

impl Shrinker for Bounded {
    fn count(&self) -> Freeable {
        Freeable::all_of(self.held.load(SeqCst))
    }

    fn scan(&self, ask: &Ask) -> Scanned {
        self.held.fetch_sub(ask.bytes, SeqCst);
        Scanned::freed(ask.bytes)
    }

    fn resize(&self, bytes: u64) -> Resized {
        self.bound.store(bytes, SeqCst);
        self.held.fetch_min(bytes, SeqCst);
        Resized::Done
    }
}

#[test]
fn caches_that_bound_themselves_are_told_and_borrow_what_others_do_not_use() {
    let mut bench = Bench::new();
    let caches = [0, 1].map(|_| Arc::new(Bounded::default()));
    let members = [0, 1].map(|at: usize| {
        let name = format!("cache {at}");
        let share = Share::default();
        bench
            .governor
            .register(name, share, caches[at].clone())
            .unwrap()
    });
    bench.turn();
    let bounds = || [0, 1].map(|at: usize| caches[at].bound.load(SeqCst));
    let pool = LIMIT - LIMIT / 128;
    assert_eq!(bounds(), [pool / 2; 2]);
    // One is full, the other empty: it borrows most of the rest, and gives it back as the other
    // fills.
    for _ in 0..16 {
        caches[0].held.store(bounds()[0], SeqCst);
        bench.turn();
        assert!(bounds().iter().sum::<u64>() <= pool);
    }
    assert!(bounds()[0] > pool * 7 / 10, "{:?}", bounds());
    for _ in 0..16 {
        caches[1].held.store(bounds()[1], SeqCst);
        bench.turn();
        assert!(bounds().iter().sum::<u64>() <= pool);
    }
    let report = bench.governor.report();
    assert!(bounds()[1] > pool * 4 / 10, "{report}");
    let toy = bench.join("third", Share::default().floor(LIMIT / 2));
    toy.grow(LIMIT / 2);
    bench.turn();
    assert!(bench.governor.held() <= LIMIT);
    drop(members);
}

#[test]
fn what_was_lent_comes_back_to_a_cache_that_bounds_itself() {
    let mut bench = Bench::new();
    let cache = Arc::new(Bounded::default());
    let share = Share::default();
    let member = bench.governor.register("cache", share, cache.clone());
    let member = member.unwrap();
    let buffer = bench.join("buffer", Share::default());
    buffer.grow(LIMIT * 15 / 16);
    bench.turn();
    assert!(cache.bound.load(SeqCst) < LIMIT / 2, "it is lent");
    // The sum is not too large, yet the cache wants what is its own.
    for _ in 0..200 {
        let bound = cache.bound.load(SeqCst);
        cache.held.store(bound, SeqCst);
        bench.turn();
        assert!(bench.governor.held() <= LIMIT);
    }
    let report = bench.governor.report();
    let target = report.members[0].target;
    assert!(cache.bound.load(SeqCst) > target * 9 / 10, "{report}");
    assert!(buffer.asked() > LIMIT / 4);
    drop(member);
}

#[test]
fn slack_of_the_process_shrinks_everybody() {
    let resident = Arc::new(AtomicU64::new(0));
    let shown = resident.clone();
    let governor = Governor::builder(LIMIT)
        .resident(move || Some(shown.load(SeqCst)))
        .driven_by_caller(|| {})
        .build()
        .unwrap();
    let (toy, member) = join(&governor, "rows", Share::default(), Arc::default());
    // Each byte that is held takes one and a half.
    for _ in 0..64 {
        toy.grow(LIMIT / 64);
        resident.fetch_max(toy.held.load(SeqCst) * 3 / 2, SeqCst);
        governor.turn(governor.now());
    }
    let (report, peak) = (governor.report(), resident.load(SeqCst));
    assert!(peak <= LIMIT + LIMIT / 20, "{peak}");
    assert!(report.held > LIMIT * 3 / 5, "{report}");
    assert!(report.slack > LIMIT / 4, "{report}");
    drop(member);
}

#[test]
fn memory_goes_to_who_misses_what_it_evicted() {
    let mut bench = Bench::new();
    let misses = bench.join("misses", Share::default());
    let idle = bench.join("idle", Share::default());
    misses.grow(LIMIT / 2);
    idle.grow(LIMIT / 2);
    let member = misses.member();
    for entry in 0..4000_u64 {
        // An evicted entry is wanted again 20 entries later.
        member.evicted(member.hash(&entry), 1024);
        if entry >= 20 {
            member.missed(member.hash(&(entry - 20)));
        }
        misses.grow(1024);
        bench.turn();
    }
    let report = bench.governor.report();
    assert!(report.members[0].target > LIMIT * 9 / 10, "{report}");
    assert!(idle.held.load(SeqCst) < LIMIT / 8, "{report}");
    let shown = report.to_string();
    assert!(shown.contains("from idle to misses"), "{shown}");
    assert!(report.tables > 0);
}

#[test]
fn without_regret_nothing_moves() {
    let governor = Governor::builder(LIMIT)
        .without_resident()
        .regret(Regret::Off)
        .driven_by_caller(|| {})
        .build()
        .unwrap();
    let (toy, member) = join(&governor, "a", Share::default(), Arc::default());
    let (_, other) = join(&governor, "b", Share::default(), Arc::default());
    for entry in 0..2000_u64 {
        member.evicted(entry, 1024);
        member.missed(entry);
        toy.grow(1024);
        governor.turn(Duration::from_millis(entry));
    }
    let report = governor.report();
    assert!(report.epochs > 8);
    assert_eq!(report.moves, []);
    assert_eq!(report.members[0].target, report.members[1].target);
    drop(other);
}

#[test]
fn nothing_happens_while_nothing_happens() {
    let governor = live(LIMIT);
    let (toy, member) = join(&governor, "rows", Share::default(), Arc::default());
    toy.grow(LIMIT / 2);
    until("it does not poll", || {
        let turns = governor.report().turns;
        std::thread::sleep(300 * MS);
        governor.report().turns == turns
    });
    let turns = governor.report().turns;
    toy.grow(LIMIT);
    until("an event wakes it", || governor.report().turns > turns);
    drop(member);
}

#[test]
fn the_caller_is_woken_in_place_of_a_thread() {
    let woken = Arc::new(AtomicUsize::new(0));
    let theirs = woken.clone();
    let governor = Governor::builder(LIMIT)
        .without_resident()
        .driven_by_caller(move || {
            theirs.fetch_add(1, SeqCst);
        })
        .build()
        .unwrap();
    let (toy, member) = join(&governor, "rows", Share::default(), Arc::default());
    governor.turn(governor.now());
    let before = woken.load(SeqCst);
    toy.grow(LIMIT);
    toy.grow(LIMIT);
    assert_eq!(woken.load(SeqCst), before + 1, "once for many events");
    governor.turn(governor.now());
    assert!(toy.held.load(SeqCst) <= LIMIT);
    drop(member);
}

#[test]
fn bad_input_is_refused_by_name() {
    let mut bench = Bench::new();
    bench.join("rows", Share::default().floor(LIMIT / 2));
    let governor = bench.governor.clone();
    let register = |name: &str, share: Share| {
        let refused = governor.register(name, share, Arc::new(Bounded::default()));
        refused.map(|member| member.name().to_owned()).unwrap_err()
    };
    let member = || "new".to_owned();
    assert_eq!(
        register("new", Share::default().floor(LIMIT + 1)),
        Error::FloorAboveLimit {
            member: member(),
            floor: LIMIT + 1,
            limit: LIMIT,
        }
    );
    assert_eq!(
        register("new", Share::default().floor(LIMIT)),
        Error::FloorsAboveLimit {
            member: member(),
            floor: LIMIT,
            others: LIMIT / 2,
            limit: LIMIT,
        }
    );
    assert_eq!(
        register("new", Share::default().floor(2).ceiling(1)),
        Error::CeilingBelowFloor {
            member: member(),
            ceiling: 1,
            floor: 2,
        }
    );
    for weight in [0.0, -1.0, 16.5, f64::NAN] {
        let refused = register("new", Share::default().weight(weight));
        let is_named = matches!(&refused, Error::Weight { member, .. } if member == "new");
        assert!(is_named, "{weight}: {refused:?}");
    }
    assert_eq!(
        register("rows", Share::default()),
        Error::Registered {
            member: "rows".to_owned(),
        }
    );
    assert_eq!(register("", Share::default()), Error::NoName);
    assert_eq!(Governor::new(0).unwrap_err(), Error::NoLimit);
    assert_eq!(governor.set_limit(0).unwrap_err(), Error::NoLimit);
    let rows = bench.members[0].1.clone();
    assert_eq!(
        governor.set_limit(LIMIT / 2 - 1).unwrap_err(),
        Error::LimitBelowFloors {
            limit: LIMIT / 2 - 1,
            floors: LIMIT / 2,
            highest: "rows".to_owned(),
        }
    );
    assert_eq!(governor.limit(), LIMIT);
    assert_eq!(
        rows.reserve(LIMIT + 1).unwrap_err(),
        Error::LargerThanLimit {
            member: "rows".to_owned(),
            bytes: LIMIT + 1,
            limit: LIMIT,
        }
    );
    let too_high = Share::default().floor(LIMIT + 1);
    assert!(governor.set_share(&rows, too_high).is_err());
    governor
        .set_share(&rows, Share::default().floor(LIMIT))
        .unwrap();
    governor.set_share(&rows, Share::default()).unwrap();
    governor.set_limit(LIMIT / 4).unwrap();
    assert_eq!(governor.limit(), LIMIT / 4);
}

#[test]
fn a_lowered_limit_is_reached_without_anybody_waiting_for_it() {
    let governor = live(LIMIT);
    let (toy, member) = join(&governor, "rows", Share::default(), Arc::default());
    toy.grow(LIMIT / 2);
    governor.set_limit(LIMIT / 4).unwrap();
    until("it is reached", || governor.held() <= LIMIT / 4);
    drop(member);
}

#[test]
fn the_thread_ends_with_the_last_handle() {
    let governor = live(LIMIT);
    let (toy, member) = join(&governor, "rows", Share::default(), Arc::default());
    let weak = Arc::downgrade(&toy);
    drop(governor);
    // A member keeps it going.
    toy.grow(LIMIT * 2);
    until("still governed", || toy.held.load(SeqCst) <= LIMIT);
    drop((toy, member));
    until("the shrinker is dropped", || weak.upgrade().is_none());
}

#[test]
fn a_permit_counts_beside_what_its_member_says_it_holds() {
    let governor = Governor::builder(LIMIT)
        .without_resident()
        .driven_by_caller(|| {})
        .build()
        .unwrap();
    let shrinker = governor::by(|| 1000, |_| 0);
    let member = governor
        .register("rows", Share::default(), shrinker)
        .unwrap();
    let looked = |second| {
        governor.turn(Duration::from_secs(second));
        (member.held(), governor.held())
    };
    assert_eq!(looked(1), (1000, 1000));
    let mut permit = member.reserve(5000).unwrap();
    assert_eq!(looked(2), (6000, 6000));
    permit.release(2000);
    assert_eq!(looked(3), (4000, 4000));
    let other = member.reserve(500).unwrap();
    assert!(permit.merge(other).is_ok());
    assert_eq!(looked(4), (4500, 4500));
    drop(permit);
    assert_eq!(looked(5), (1000, 1000));
    // Kept: what it says is what there is.
    member.reserve(700).unwrap().keep();
    assert_eq!(looked(6), (1000, 1000));
}
