//! Caches of quick_cache under one limit, on threads.
#![allow(
    clippy::unwrap_used,
    clippy::ptr_arg,
    reason = "a test, whose values are vectors"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use governor::adapters::quick_cache;
use governor::{Governor, Share, Standing};

const LIMIT: u64 = 32 << 20;
const VALUE: usize = 4096;

fn governor() -> Governor {
    Governor::builder(LIMIT).without_resident().build().unwrap()
}

fn weigh(_: &u64, value: &Vec<u8>) -> u64 {
    8 + value.len() as u64
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A cheap sequence of keys below `keys`, small ones more often.
fn skewed(random: &mut u64, keys: u64) -> u64 {
    *random = random
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    let value = *random >> 33;
    (value >> 3) % (keys >> (value % 8)).max(1)
}

#[test]
fn two_quick_caches_keep_to_one_limit_and_memory_follows_the_misses() {
    let governor = governor();
    let make = |name: &str| {
        quick_cache::Governed::new(&governor, name, Share::default(), 8192, weigh).unwrap()
    };
    let (busy, idle) = (make("busy"), make("idle"));
    for key in 0..20_000 {
        idle.insert(key, vec![0; VALUE]);
    }
    let mut random = 1;
    let began = Instant::now();
    let share = |name: &str| {
        let report = governor.report();
        let member = report.members.iter().find(|member| member.name == name);
        member.unwrap().target
    };
    while share("busy") < LIMIT * 3 / 4 {
        for _ in 0..1000 {
            let key = skewed(&mut random, 10_000);
            let loaded = busy.get_or_insert_with(&key, || Ok::<_, ()>(vec![0; VALUE]));
            assert_eq!(loaded.unwrap().len(), VALUE);
        }
        assert!(busy.weight() + idle.weight() <= LIMIT + LIMIT / 20);
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "{}",
            governor.report()
        );
    }
    until("the cache may use it", || busy.capacity() > LIMIT * 7 / 10);
    assert!(idle.weight() < LIMIT / 3, "{}", governor.report());
}

#[test]
fn a_quick_cache_that_is_there_already_is_resized_and_scanned() {
    let governor = governor();
    let cache = ::quick_cache::sync::Cache::<u64, Vec<u8>>::new(4096);
    // Weighs by items: what a user must not do, and what a floor of bytes would be about.
    cache.insert(1, vec![0; 8]);
    let cache = Arc::new(cache);
    let shrinker = quick_cache::of(&cache);
    let freed = shrinker.scan(&ask_of(&governor));
    assert_eq!(freed.freed, 0, "below its least capacity");
    let member = governor
        .register("rows", Share::default(), shrinker)
        .unwrap();
    until("told", || cache.capacity() > 1 << 20);
    drop(member);
}

/// An ask as the governor makes it.
fn ask_of(governor: &Governor) -> governor::Ask {
    let asks = Arc::new(std::sync::Mutex::new(None));
    let theirs = asks.clone();
    let hungry = governor::by(
        || LIMIT * 2,
        move |ask| {
            *theirs.lock().unwrap() = Some(*ask);
            ask.bytes
        },
    );
    let member = governor
        .register("hungry", Share::default(), hungry)
        .unwrap();
    until("asked", || asks.lock().unwrap().is_some());
    drop(member);
    let ask = asks.lock().unwrap().take();
    ask.unwrap()
}

/// A member's standing.
fn standing(governor: &Governor, name: &str) -> Standing {
    let report = governor.report();
    let member = report.members.iter().find(|member| member.name == name);
    member.unwrap().standing
}

#[test]
fn values_that_a_shard_cannot_hold_are_named() {
    let governor = governor();
    let cache =
        quick_cache::Governed::new(&governor, "rows", Share::default(), 100_000, weigh).unwrap();
    until("told", || governor.report().members[0].bound.is_some());
    let most = usize::try_from(cache.shard_capacity()).unwrap();
    cache.insert(1, vec![0; VALUE]);
    assert_eq!(standing(&governor, "rows"), Standing::Good);
    cache.insert(2, vec![0; most]);
    until("it is said", || {
        standing(&governor, "rows") == Standing::TooLarge
    });
    assert!(cache.get(&2).is_none() && cache.get(&1).is_some());
}
