//! Turns that only this module can bring about.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use core::sync::atomic::Ordering;
use std::sync::Arc;

use env::{Cause, TaskId};
use policy::place::PlaceLaw;
use policy::place::by_use::Purpose;
use policy::place::machine::Machine;
use policy::reclaim::{ReclaimLaw, Tunables as ReclaimTunables};
use world::{Lab, Options as LabOptions};

use super::*;
use crate::{Options, testing};

const FRAMES: u32 = 1024;

/// A cache whose memory is handed out in turn.
fn with_cache(body: impl FnOnce(&mut Task<'_>, &Arc<Cache>) + Send + 'static) {
    with(ReclaimTunables::of(ReclaimLaw::TIDEGATE, 1000), body);
}

/// A cache of two zones.
fn with_nodes(body: impl FnOnce(&mut Task<'_>, &Arc<Cache>) + Send + 'static) {
    let mut options = Options::new(FRAMES, 2);
    options.reclaim = ReclaimTunables::of(history::reclaim::LINUX_5_16_RC1, 250);
    options.machine = Some(Machine::even(Pages(FRAMES.into()), 2, 2).unwrap());
    // Each frame counts as free or taken at once.
    options.place = PlaceLaw {
        cpu_lists: None,
        ..history::place::LINUX_6_12
    };
    testing::with_cache(options, body);
}

/// The same where memory is handed out in turn, whatever node it is of.
fn with_nodes_and_turns(body: impl FnOnce(&mut Task<'_>, &Arc<Cache>) + Send + 'static) {
    let mut options = Options::new(FRAMES, 2);
    options.machine = Some(Machine::even(Pages(FRAMES.into()), 2, 2).unwrap());
    testing::with_cache(options, body);
}

fn with(tunables: ReclaimTunables, body: impl FnOnce(&mut Task<'_>, &Arc<Cache>) + Send + 'static) {
    let mut options = Options::new(FRAMES, 2);
    options.reclaim = tunables;
    testing::with_cache(options, body);
}

/// A task with granted pages that are not there any more waits again, and is not behind those that
/// came later.
#[test]
fn who_waits_again_keeps_its_age() {
    const WANT: u32 = 32;
    with_cache(|task, cache| {
        let memory = &cache.memory;
        let min = u32::try_from(memory.marks().min.0).unwrap();
        assert!(min / 8 < WANT, "what they want is not little");
        // Nothing to be freed, and something to hope for.
        cache
            .writeback
            .totals
            .dirty
            .fetch_add(600, Ordering::Relaxed);
        let mut mine = Vec::new();
        let all = FRAMES - min;
        cache
            .take(task, Pick::single(ZoneId(0), all), &mut mine, |_, taken| {
                all - taken
            })
            .unwrap();
        assert_eq!((mine.len(), memory.free()), (all as usize, min));
        let waiter = |task: &Task<'_>| {
            let cache = Arc::clone(cache);
            env::spawn(task.env(), "waiter", move |task| {
                let mut frames = Vec::new();
                cache
                    .alloc(task, Wanted::new(WANT, Purpose::Anon), &mut frames)
                    .map(|_| frames)
            })
        };
        let old = waiter(task);
        task.sleep(Cause::Idle, Nanos::millis(10));
        let young: Vec<_> = (0..5).map(|_| waiter(task)).collect();
        task.sleep(Cause::Idle, Nanos::millis(150));
        // Granted to the old one, and gone before it looks.
        memory.put(task, &mine.split_off(mine.len() - WANT as usize));
        assert_eq!(memory.test_queue().promised(), WANT);
        let mut gone = Vec::new();
        let free = memory.free();
        cache
            .take(
                task,
                Pick::single(ZoneId(0), free),
                &mut gone,
                |_, taken| free - taken,
            )
            .unwrap();
        assert_eq!(memory.free(), 0);
        task.sleep(Cause::Idle, Nanos::millis(1));
        assert!(!old.is_done() && memory.test_queue().promised() == 0);
        // Two turns: one by rank, one by age.
        memory.put(task, &gone);
        memory.put(task, &mine.split_off(mine.len() - WANT as usize));
        task.sleep(Cause::Idle, Nanos::millis(1));
        assert!(old.is_done(), "behind those who came later");
        assert!(young.iter().filter(|waiter| waiter.is_done()).count() <= 1);
        memory.put(task, &mine);
        for waiter in young.into_iter().chain([old]) {
            let frames = waiter.join(task).unwrap().unwrap();
            memory.put(task, &frames);
        }
        assert_eq!(memory.free(), FRAMES);
        cache
            .writeback
            .totals
            .dirty
            .fetch_sub(600, Ordering::Relaxed);
    });
}

/// A task that puts back what it had no use for has given nothing back.
#[test]
fn who_returns_unused_frames_is_not_modest() {
    with_cache(|task, cache| {
        let line = cache.memory.test_queue();
        let mut frames = Vec::new();
        for _ in 0..4 {
            cache
                .try_alloc(task, Wanted::new(32, Purpose::Anon), &mut frames)
                .unwrap();
            cache.put_unused(task, &frames.split_off(2));
            frames.clear();
        }
        task.sleep(Cause::Idle, Nanos::secs(2));
        assert!(!line.is_modest(task, task.id(), task.now()));
        assert_eq!(kept(task, cache), 0);
        // Giving back is something else.
        cache.credit(task, task.id(), 2);
        assert!(line.is_modest(task, task.id(), task.now()));
    });
}

/// Free pages that are kept back.
fn kept(task: &Task<'_>, cache: &Cache) -> u32 {
    cache.memory.test_queue().kept_back(task.now())
}

/// Takes `count` frames, which are there.
fn take(task: &mut Task<'_>, cache: &Cache, count: u32) -> Vec<FrameId> {
    let (zone, room) = (ZoneId(0), |_: &Task<'_>, taken| count - taken);
    let mut frames = Vec::new();
    assert_eq!(
        cache.take(task, Pick::single(zone, count), &mut frames, room),
        Ok(count)
    );
    frames
}

/// A task that may take kept pages takes them from there, also those it grows by; a task that grows
/// does not.
#[test]
fn what_is_kept_is_charged_to_whom_it_is_kept_for() {
    with_cache(|task, cache| {
        let line = cache.memory.test_queue();
        cache.credit(task, TaskId(77), 40);
        cache.credit(task, task.id(), 10);
        assert_eq!(kept(task, cache), 50);
        let mut frames = Vec::new();
        let mut after = |task: &mut Task<'_>, count| {
            frames.extend(take(task, cache, count));
            let modest = line.is_modest(task, task.id(), task.now());
            (kept(task, cache), modest)
        };
        assert_eq!(after(task, 8), (42, true));
        assert_eq!(after(task, 7), (35, false), "more than it gave back");
        assert_eq!(after(task, 5), (35, false));
        cache.memory.put(task, &frames);
    });
}

/// Kept pages are a part of the memory that there is, not of what the cache was built with.
#[test]
fn a_lowered_limit_keeps_less_back() {
    with_cache(|task, cache| {
        let keep = |task: &mut Task<'_>| {
            cache.credit(task, task.id(), u64::from(FRAMES));
            kept(task, cache)
        };
        assert_eq!(keep(task), FRAMES / 16);
        cache.move_limit(task, FRAMES / 2);
        assert_eq!(kept(task, cache), FRAMES / 32);
        assert_eq!(keep(task), FRAMES / 32);
        cache.move_limit(task, FRAMES);
        assert_eq!(keep(task), FRAMES / 16);
    });
}

/// A memory that is too small for its zones is refused, with what a zone would have.
#[test]
fn no_node_is_empty() {
    let mut lab = Lab::new(LabOptions {
        frames: FRAMES,
        ..LabOptions::default()
    });
    let env = Arc::clone(lab.env());
    lab.run(move |task| {
        let build = |zones| {
            let mut options = Options::new(FRAMES, 2);
            options.reclaim = ReclaimTunables::of(history::reclaim::LINUX_5_16_RC1, 250);
            options.machine = Some(Machine::even(Pages(FRAMES.into()), zones, 2).unwrap());
            Cache::new(env.clone(), options)
        };
        let refused = |zones| match build(zones) {
            Err(Error::BadOption { value, allowed, .. }) => (value, allowed),
            other => panic!("{zones} zones: {:?}", other.map(|_| ())),
        };
        let two = build(2).unwrap();
        let _ = two.shutdown(task);
        // Of 1024 frames in chunks of 512.
        assert_eq!(refused(3), (0, (256, 1024)));
        assert_eq!(refused(8), (0, (256, 1024)));
    })
    .unwrap();
}

/// The room is looked up while nobody else can take it.
#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "Free"))]
fn room_is_looked_up_under_the_lock() {
    with_cache(|task, cache| {
        let mut frames = Vec::new();
        let taken = cache.take(task, Pick::single(ZoneId(0), 1), &mut frames, |task, _| {
            if cfg!(debug_assertions) {
                // Taken twice: that is what the check of the lock order finds.
                let _ = cache.memory.offline(task);
            }
            1
        });
        assert_eq!(taken, Ok(1));
        cache.memory.put(task, &frames);
    });
}

/// A task takes memory from its own zone down to LOW, then from the other, and only then what both
/// have above MIN; pages it gives back go where they came from.
#[test]
fn another_nodes_memory_comes_before_what_is_below_low() {
    with_nodes(|task, cache| {
        let memory = &cache.memory;
        let (home, other) = (ZoneId(0), cache.zones.layout().zones().last().unwrap());
        assert_eq!(cache.home(task), home, "the first of two CPUs");
        let each = memory.free_of(home);
        assert_eq!((each, memory.free_of(other)), (FRAMES / 2, FRAMES / 2));
        let low = u32::try_from(memory.marks_of(home).low.0).unwrap();
        let min = u32::try_from(memory.marks_of(home).min.0).unwrap();
        assert!(
            0 < min && min < low && low < each / 2,
            "{:?}",
            memory.marks_of(home)
        );
        let (mut here, mut there, mut rest) = (Vec::new(), Vec::new(), Vec::new());
        cache
            .try_alloc(task, Wanted::new(each - low, Purpose::Anon), &mut here)
            .unwrap();
        assert_eq!((memory.free_of(home), memory.free_of(other)), (low, each));
        cache
            .try_alloc(task, Wanted::new(each - low, Purpose::Anon), &mut there)
            .unwrap();
        assert_eq!((memory.free_of(home), memory.free_of(other)), (low, low));
        let of = |zone| move |frame: &FrameId| cache.zones.layout().of(*frame) == zone;
        assert!(here.iter().all(of(home)) && there.iter().all(of(other)));
        cache
            .try_alloc(task, Wanted::new(FRAMES, Purpose::Anon), &mut rest)
            .unwrap();
        assert_eq!((memory.free_of(home), memory.free_of(other)), (min, min));
        let zone = |zone| memory.free_of(zone);
        memory.put(task, &there);
        assert_eq!((zone(home), zone(other)), (min, min + each - low));
        memory.put(task, &rest);
        memory.put(task, &here);
        assert_eq!((zone(home), zone(other)), (each, each));
    });
}

/// Takes frames of a zone until `left` are free there.
fn leave(task: &mut Task<'_>, cache: &Cache, zone: ZoneId, left: u32, out: &mut Vec<FrameId>) {
    let most = cache.memory.free_of(zone) - left;
    cache
        .take(task, Pick::single(zone, most), out, |_, taken| most - taken)
        .unwrap();
    assert_eq!(cache.memory.free_of(zone), left);
}

/// As long as all memory together has too little above HIGH, no zone has enough, however much is
/// free in it; else its own mark alone counts.
#[test]
fn no_reclaimer_rests_that_could_make_up_for_another() {
    with_nodes_and_turns(|task, cache| {
        let memory = &cache.memory;
        let (home, other) = (ZoneId(0), ZoneId(1));
        let high = |zone| memory.marks_of(zone).high;
        let count = |pages: Pages| u32::try_from(pages.0).unwrap();
        let mut taken = Vec::new();
        leave(task, cache, other, 0, &mut taken);
        leave(task, cache, home, count(memory.marks().high), &mut taken);
        assert_eq!(
            memory.spare_of(home),
            memory.marks().high,
            "it makes up for the other"
        );
        assert_eq!(memory.spare_of(other), Pages::ZERO);
        leave(
            task,
            cache,
            home,
            count(memory.marks().high) - 3,
            &mut taken,
        );
        assert_eq!(memory.spare_of(home), high(home) - Pages(3));
        assert!(
            memory.free_of(home) > count(high(home)),
            "of its own there is enough"
        );
        memory.put(task, &taken);
    });
}

/// Granted pages are taken at home down to the floor of their purpose, then elsewhere, then
/// wherever there are any.
#[test]
fn what_was_granted_comes_from_whichever_node_has_it() {
    with_nodes_and_turns(|task, cache| {
        let memory = &cache.memory;
        let (home, other) = (ZoneId(0), ZoneId(1));
        let min = u32::try_from(memory.marks_of(home).min.0).unwrap();
        let high = u32::try_from(memory.marks_of(other).high.0).unwrap();
        let (mut taken, mut granted) = (Vec::new(), Vec::new());
        leave(task, cache, home, min + 5, &mut taken);
        leave(task, cache, other, high + 7, &mut taken);
        let mut take = |task: &mut Task<'_>, frames| {
            let got = by_use::take_granted(
                task,
                cache,
                Wanted::new(frames, Purpose::Anon),
                &mut granted,
            );
            assert_eq!(got, Ok(frames));
            (memory.free_of(home), memory.free_of(other))
        };
        assert_eq!(take(task, 5), (min, high + 7));
        assert_eq!(take(task, 7), (min, high));
        assert_eq!(take(task, min + high), (0, 0), "a grant is served");
        assert_eq!(cache.counters.get(Item::NumaMiss), u64::from(high + 7));
        memory.put(task, &taken);
        memory.put(task, &granted);
    });
}

/// Half of the reserve of all nodes together is what a reclaimer waits for, not that of its own.
#[test]
fn the_reserve_of_all_nodes_is_one_where_memory_is_handed_out_in_turn() {
    with_nodes_and_turns(|_, cache| {
        let zones: Vec<_> = cache.memory.zones_of_reserve(ZoneId(0)).collect();
        assert_eq!(zones, [ZoneId(0), ZoneId(1)]);
    });
    with_nodes(|_, cache| {
        let zones: Vec<_> = cache.memory.zones_of_reserve(ZoneId(1)).collect();
        assert_eq!(zones, [ZoneId(1)]);
    });
}

/// A zone where a pass found next to nothing is left out of a task's own passes as long as there is
/// another.
#[test]
fn a_poor_zone_is_left_out_unless_all_are() {
    with_nodes_and_turns(|task, cache| {
        let out = |task: &Task<'_>| [0, 1].map(|zone| cache.leaves_out(task, ZoneId(zone)));
        let found_nothing = |task: &Task<'_>, zone: u8| {
            let changed = cache.changed(ZoneId(zone));
            let mut worth = cache.zones[ZoneId(zone)].worth(task);
            worth.note_pass(Pages(64), Pages(0), changed);
        };
        assert_eq!(out(task), [false; 2]);
        found_nothing(task, 0);
        assert_eq!(out(task), [true, false]);
        found_nothing(task, 1);
        assert_eq!(out(task), [false; 2]);
    });
}

/// A task within a file system kills nobody: it tries until another has made room.
#[test]
fn nobody_is_killed_for_a_page_asked_for_from_within_a_file_system() {
    for (within, purpose, kills) in [
        (false, Purpose::Stream, 1),
        (true, Purpose::Anon, 1),
        (true, Purpose::Stream, 0),
    ] {
        let tunables = ReclaimTunables {
            oom_kills: true,
            files_within_fs: within,
            ..ReclaimTunables::of(history::reclaim::LINUX_5_16_RC1, 250)
        };
        with(tunables, move |task, cache| {
            let region = cache.spill(task, Pages(10)).unwrap();
            region.touch(task, 0, 10).unwrap();
            let memory = &cache.memory;
            let left = memory.free() - u32::try_from(memory.marks().min.0).unwrap();
            let mut mine = Vec::new();
            cache
                .take(
                    task,
                    Pick::single(ZoneId(0), left),
                    &mut mine,
                    |_, taken| left - taken,
                )
                .unwrap();
            let other = Arc::clone(cache);
            let asker = env::spawn(task.env(), "asker", move |task| {
                let mut frames = Vec::new();
                let taken = other.alloc(task, Wanted::new(1, purpose), &mut frames);
                other.put_unused(task, &frames);
                taken
            });
            // A round sleeps for 5 s of NOPROGRESS.
            task.sleep(Cause::Idle, Nanos::secs(30));
            let killed = cache.counters.get(Item::OomKill);
            assert_eq!(killed, kills, "{within} {purpose:?}");
            cache.put_unused(task, &mine);
            assert_eq!(asker.join(task).unwrap(), Ok(1));
        });
    }
}
