//! Slabs where memory is kept apart by mobility: what mixes pageblocks, and what follows.

use policy::place::mobility::FallbackRule;
use policy::reclaim::boost::BoostRule;
use policy::units::Nanos;

use super::*;
use crate::testing::with_cache;
use mm::inside::{Pick, ZoneId};
use mm::{Apart, Item, Options};

const FRAMES: u32 = 8192;
/// Frames of a pageblock.
const BLOCK: u32 = 512;
const ZONE: ZoneId = ZoneId(0);

const LOG: SlabSpec = SlabSpec {
    name: "log",
    object: Bytes(PAGE_SIZE),
    order: 0,
    mobility: Mobility::Unmovable,
};
const INODES: SlabSpec = SlabSpec {
    name: "inodes",
    object: Bytes(960),
    order: 3,
    mobility: Mobility::Reclaimable,
};

fn options(rule: FallbackRule, boost: BoostRule) -> Options {
    let mut options = Options::new(FRAMES, 1);
    options.reclaim.law = history::reclaim::LINUX_5_15;
    options.apart = Some(Apart::of(rule, 1));
    options.boost = boost;
    options
}

fn events(cache: &Cache) -> (u64, u64, u64) {
    let stat = cache.vmstat();
    let of = |item| stat.get(item);
    (
        of(Item::ExtfragEvents),
        of(Item::WatermarkBoosts),
        of(Item::NrWatermarkBoost),
    )
}

/// Takes all frames as pages and gives back those that `goes` says; the others.
fn take_all_but(task: &Task<'_>, cache: &Cache, goes: impl Fn(FrameId) -> bool) -> Vec<FrameId> {
    let mut frames = Vec::new();
    let all = Pick::single(ZONE, FRAMES);
    let room = |taken| FRAMES - taken;
    cache
        .inside()
        .memory
        .take(task, all, &mut frames, room, |_| true)
        .unwrap();
    assert_eq!(frames.len(), FRAMES as usize);
    let (back, kept): (Vec<_>, Vec<_>) = frames.into_iter().partition(|frame| goes(*frame));
    cache.inside().memory.put(task, &back);
    kept
}

#[test]
fn a_whole_pageblock_changes_sides_without_an_event() {
    with_cache(
        options(history::fallback::LINUX_5_0, history::boost::LINUX_5_0),
        |task, cache| {
            let log = Slabs::new(cache, LOG).unwrap();
            let inodes = Slabs::new(cache, INODES).unwrap();
            let mut objects = Vec::new();
            for _ in 0..2 * BLOCK {
                objects.push(log.take(task).unwrap());
            }
            let others: Vec<_> = (0..34 * 64).map(|_| inodes.take(task).unwrap()).collect();
            assert_eq!(events(cache), (0, 0, 0), "each has pageblocks of its own");
            for object in objects {
                log.give(task, object);
            }
            for object in others {
                inodes.give(task, object);
            }
            assert_eq!(cache.stats().free, Pages(u64::from(FRAMES)));
        },
    );
}

#[test]
fn pieces_of_pages_pageblocks_are_an_event_each_and_raise_the_marks_up_to_the_cap() {
    with_cache(
        options(history::fallback::LINUX_5_0, history::boost::LINUX_5_0),
        |task, cache| {
            let before = cache.inside().memory.marks_of(ZONE);
            // Every pageblock has a hole of 64 frames: no whole one is free.
            let kept = take_all_but(task, cache, |frame| frame.0 % BLOCK < 64);
            let log = Slabs::new(cache, LOG).unwrap();
            let mut objects = vec![log.take(task).unwrap()];
            let cap = (before.high.0 * 3 / 2).max(512);
            assert_eq!(events(cache), (1, 1, 512.min(cap)));
            assert_eq!(
                cache.inside().memory.marks_of(ZONE),
                before.raised_by(Pages(512.min(cap)))
            );
            // The hole is the log's now: no more of it for a while.
            for _ in 1..64 {
                objects.push(log.take(task).unwrap());
            }
            assert_eq!(events(cache).0, 1, "all that was free there came with it");
            objects.push(log.take(task).unwrap());
            assert_eq!(events(cache), (2, 2, 1024.min(cap)));
            for object in objects {
                log.give(task, object);
            }
            cache.inside().memory.put(task, &kept);
            assert_eq!(cache.stats().free, Pages(u64::from(FRAMES)));
        },
    );
}

#[test]
fn the_first_try_of_a_large_slab_boosts_and_wakes_nobody() {
    with_cache(
        options(history::fallback::LINUX_5_0, history::boost::LINUX_5_0),
        |task, cache| {
            let kept = take_all_but(task, cache, |frame| frame.0 % BLOCK < 256);
            let inodes = Slabs::new(cache, INODES).unwrap();
            let object = inodes.take(task).unwrap();
            assert_eq!(inodes.pages(task), Pages(8));
            let (seen, boosted, raised) = events(cache);
            assert_eq!((seen, boosted), (1, 1));
            assert!(raised > 0);
            let runs = |cache: &Cache| cache.vmstat().get(Item::Pageoutrun);
            task.sleep(env::Cause::Idle, Nanos::millis(10));
            assert_eq!(runs(cache), 0, "nobody was woken");
            assert_eq!(
                events(cache).2,
                raised,
                "and a boost does not pass with time"
            );
            // A single frame of another mobility is taken by a task that may wake.
            let log = Slabs::new(cache, LOG).unwrap();
            let other = log.take(task).unwrap();
            task.sleep(env::Cause::Idle, Nanos::millis(10));
            assert!(runs(cache) > 0, "the mark was found");
            inodes.give(task, object);
            log.give(task, other);
            cache.inside().memory.put(task, &kept);
        },
    );
}

#[test]
fn where_events_are_not_answered_they_are_counted() {
    for (rule, boost) in [
        (history::fallback::LINUX_4_20, history::boost::LINUX_4_20),
        (history::fallback::LINUX_6_12, BoostRule::TIDEGATE),
    ] {
        with_cache(options(rule, boost), move |task, cache| {
            let kept = take_all_but(task, cache, |frame| frame.0 % BLOCK < 64);
            let log = Slabs::new(cache, LOG).unwrap();
            let object = log.take(task).unwrap();
            let (seen, boosted, raised) = events(cache);
            assert!(seen > 0, "{}", rule.name);
            assert_eq!((boosted, raised), (0, 0), "{}", rule.name);
            log.give(task, object);
            cache.inside().memory.put(task, &kept);
            assert_eq!(cache.stats().free, Pages(u64::from(FRAMES)));
        });
    }
}

#[test]
fn more_zones_than_there_are_lists_for_are_refused_by_name() {
    let mut options = options(history::fallback::LINUX_5_0, history::boost::LINUX_5_0);
    let memory = Pages(u64::from(FRAMES));
    options.machine = Some(policy::place::machine::Machine::even(memory, 6, 1).unwrap());
    let mut lab = world::Lab::new(world::Options {
        frames: FRAMES,
        ..world::Options::default()
    });
    let env = Arc::clone(lab.env());
    let error = lab
        .run(move |_| crate::build(env, options, crate::Parts::default()).err())
        .unwrap()
        .unwrap();
    assert_eq!(
        error,
        Error::BadOption {
            what: "zones of memory kept apart by mobility",
            value: 6,
            allowed: (1, 5),
        }
    );
}

#[test]
fn a_boost_that_nobody_works_off_is_refused_by_name() {
    let mut options = options(history::fallback::LINUX_5_0, history::boost::LINUX_5_0);
    options.reclaim.law = history::reclaim::LINUX_3_0;
    let mut lab = world::Lab::new(world::Options {
        frames: FRAMES,
        ..world::Options::default()
    });
    let env = Arc::clone(lab.env());
    let error = lab
        .run(move |_| crate::build(env, options, crate::Parts::default()).err())
        .unwrap();
    let what = "boost.factor, where reclaim goes over zones,";
    assert_eq!(
        error,
        Some(Error::BadOption {
            what,
            value: 15_000,
            allowed: (0, 0),
        })
    );
}
