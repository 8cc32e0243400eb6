//! Caches of other people under one limit, on threads. Needs the feature `adapters`.
#![cfg(all(feature = "quick-cache", feature = "foyer", feature = "moka"))]
#![allow(
    clippy::unwrap_used,
    clippy::ptr_arg,
    reason = "a test, whose values are vectors"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use governor::adapters::{foyer, moka, quick_cache};
use governor::{Error, Governor, Share, Standing};

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

#[test]
fn foyer_follows_its_bound_and_reports() {
    let governor = governor();
    let weigh = |_: &u64, value: &Vec<u8>| 8 + value.len();
    let reports = foyer::Reports::new(weigh);
    let cache: foyer_memory::Cache<u64, Vec<u8>> =
        foyer_memory::CacheBuilder::new(usize::try_from(LIMIT).unwrap())
            .with_weighter(weigh)
            .with_event_listener(reports.listener())
            .build();
    let rows = foyer::Governed::new(&governor, "rows", Share::default(), cache, &reports).unwrap();
    until("told", || governor.report().members[0].bound.is_some());
    for key in 0..20_000 {
        rows.insert(key, vec![0; VALUE]);
    }
    assert!(rows.usage() as u64 <= LIMIT);
    until("evictions are counted", || {
        governor.report().members[0].evicted > LIMIT
    });
    // A second member takes half of it.
    let nothing = governor::by(|| 0, |_| 0);
    let other = governor
        .register("other", Share::default().floor(LIMIT / 2), nothing)
        .unwrap();
    let permit = until_reserved(&other, LIMIT / 2);
    until("half is left", || rows.usage() as u64 <= LIMIT / 2);
    assert!(rows.get(&u64::MAX).is_none());
    drop(permit);
    assert_eq!(governor.report().members[0].standing, Standing::Good);
}

fn until_reserved(member: &governor::Member, bytes: u64) -> governor::Permit {
    for _ in 0..50 {
        if let Ok(permit) = member.reserve(bytes) {
            return permit;
        }
    }
    panic!("no room:\n{}", member.governor().report());
}

#[test]
fn moka_is_scanned_and_gives_what_is_asked() {
    let governor = governor();
    let weigh = |_: &u64, value: &Vec<u8>| u32::try_from(8 + value.len()).unwrap();
    let reports = moka::Reports::new(weigh);
    let cache: ::moka::sync::Cache<u64, Vec<u8>> = ::moka::sync::Cache::builder()
        .max_capacity(LIMIT)
        .weigher(weigh)
        .eviction_listener(reports.listener())
        .build();
    let rows = moka::Governed::new(&governor, "rows", Share::default(), cache, &reports).unwrap();
    let other = governor
        .register(
            "other",
            Share::default().floor(LIMIT / 2),
            governor::by(|| 0, |_| 0),
        )
        .unwrap();
    // moka works off later what it is told, when it is called; the governor sees it before.
    let first = 8;
    (0..first).for_each(|key| rows.insert(key, vec![0; VALUE]));
    until("it is seen", || {
        governor.report().members[0].held >= first * VALUE as u64
    });
    for key in first..7_000 {
        rows.insert(key, vec![0; VALUE]);
    }
    rows.run_pending_tasks();
    let permit = until_reserved(&other, LIMIT / 2);
    until("it gave", || {
        rows.run_pending_tasks();
        rows.weighted_size() <= LIMIT / 2
    });
    assert!(rows.weighted_size() > LIMIT / 3, "not emptied");
    until("it is counted", || {
        governor.report().members[0].evicted > LIMIT / 4
    });
    drop(permit);
}

/// A member's standing.
fn standing(governor: &Governor, name: &str) -> Standing {
    let report = governor.report();
    let member = report.members.iter().find(|member| member.name == name);
    member.unwrap().standing
}

#[test]
fn moka_is_refused_where_it_could_grow_beyond_its_part() {
    let governor = governor();
    let weigh = |_: &u64, value: &Vec<u8>| u32::try_from(8 + value.len()).unwrap();
    let join = |capacity: Option<u64>, share| {
        let reports = moka::Reports::new(weigh);
        let mut cache = ::moka::sync::Cache::builder().weigher(weigh);
        if let Some(capacity) = capacity {
            cache = cache.max_capacity(capacity);
        }
        let cache = cache.eviction_listener(reports.listener()).build();
        moka::Governed::new(&governor, "rows", share, cache, &reports).map(drop)
    };
    assert_eq!(join(Some(LIMIT), Share::default()), Ok(()));
    let refused = join(None, Share::default()).unwrap_err();
    assert!(
        refused
            .to_string()
            .starts_with("rows: no capacity where 32 MiB"),
        "{refused}"
    );
    let refused = join(Some(LIMIT + 1), Share::default()).unwrap_err();
    assert!(
        matches!(refused, Error::Capacity { most: LIMIT, .. }),
        "{refused}"
    );
    let refused = join(Some(LIMIT), Share::default().ceiling(LIMIT / 2)).unwrap_err();
    assert!(
        matches!(refused, Error::Capacity { most, .. } if most == LIMIT / 2),
        "{refused}"
    );
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
