//! Writing ahead of syncs, under Tidegate's own law: a device on which somebody waits again and
//! again has no rest before.
//!
//! The device takes 2 ms for a request of whatever size, one at a time; a heavy writer of pages by
//! chance over 512 MiB, 2000 a second if it is let, syncs after every 5000 or not at all; a light
//! one, 20 a second over 8 MiB behind those. Limits as those of the server with 64 MiB.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{data, world};
use device::{Slow, SlowOptions};
use env::{Cause, Device, ObjectId, Task};
use mm::{Cache, DeviceOptions, File};
use policy::units::{Bytes, Instant, Nanos};

const FRAMES: u32 = 65_536;
const HEAVY: u32 = 131_072;
const LIGHT: u32 = 2048;
const REQUEST: Nanos = Nanos::millis(2);
const EVERY: u32 = 5000;

/// The measurements of a run.
#[derive(Debug)]
struct Met {
    /// Pages that the writer wrote, requests and pages that the device was sent, from the end of
    /// the first round to that of the last.
    pages: u64,
    requests: u64,
    written: u64,
    took: Nanos,
    /// The longest write of the light writer.
    light_max: Nanos,
}

impl Met {
    /// Writes a second in parts of what the device does without a cache, in per cent.
    fn of_device(&self) -> u64 {
        self.pages * REQUEST.0 * 100 / self.took.0
    }

    /// Time in which the device had nothing to do, in thousandths.
    fn idle(&self) -> u64 {
        1000 - self.requests * REQUEST.0 * 1000 / self.took.0
    }
}

/// Less than `end`, by chance.
fn below(state: &mut u64, end: u32) -> u32 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    u32::try_from((*state >> 33) % u64::from(end)).unwrap()
}

type LabFile = Arc<File>;

fn light(
    task: &Task<'_>,
    cache: &Arc<Cache>,
    file: &LabFile,
    over: &Arc<AtomicBool>,
) -> env::JoinHandle<Nanos> {
    let (cache, file, over) = (Arc::clone(cache), Arc::clone(file), Arc::clone(over));
    env::spawn(task.env(), "light", move |task| {
        let mut writer = cache.writer();
        let (mut chance, mut longest) = (2, Nanos::ZERO);
        while !over.load(Ordering::Relaxed) {
            task.sleep(Cause::Think, Nanos::millis(50));
            let page = HEAVY + below(&mut chance, LIGHT);
            let began = task.now();
            let at = Bytes(u64::from(page) * 4096);
            file.write(task, &mut writer, at, &data(page, 1, 1))
                .unwrap();
            longest = longest.max(task.now().since(began));
        }
        longest
    })
}

/// `rounds` rounds of `every` pages out of `span` at `period` each, and a sync; after a round that
/// is not counted.
fn syncs(span: u32, every: u32, period: Nanos, rounds: u64) -> Met {
    run(span, every, period, 1..=rounds, true)
}

/// Rounds of `every` pages out of `span` at `period` each, those counted that are named, and those
/// before them.
fn run(
    span: u32,
    every: u32,
    period: Nanos,
    counted: core::ops::RangeInclusive<u64>,
    with_syncs: bool,
) -> Met {
    let mut world = world(FRAMES, 1 << 40).limits(16_384, 1024);
    world.disk.keep(false);
    let disk = Arc::clone(&world.disk);
    let slow = Slow::new(
        Arc::clone(&disk) as Arc<dyn Device>,
        world.lab.host(),
        &SlowOptions {
            latency: REQUEST,
            ..SlowOptions::default()
        },
    );
    let info = slow.info();
    let id = world.lab.add_device(slow as Arc<dyn Device>);
    world.run(0, move |task, cache, _| {
        let device = cache
            .add_device(task, id, info, DeviceOptions::default())
            .unwrap();
        let size = Bytes(u64::from(HEAVY + LIGHT) * 4096);
        let file = cache.open(task, device, ObjectId(1), size).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let light = light(task, cache, &file, &over);
        let mut writer = cache.writer();
        let mut chance = 1;
        let look = |task: &Task<'_>| {
            let requests = disk.state().writes;
            (task.now(), requests, cache.device_stats()[1].written.0)
        };
        let mut from = (Instant::ZERO, 0, 0);
        for round in 0..=*counted.end() {
            if round == *counted.start() {
                from = look(task);
            }
            for _ in 0..every {
                let due = task.now() + period;
                let page = below(&mut chance, span);
                let at = Bytes(u64::from(page) * 4096);
                file.write(task, &mut writer, at, &data(page, 1, 1))
                    .unwrap();
                task.sleep_until(Cause::Think, due);
            }
            if with_syncs {
                file.sync(task).unwrap();
            }
        }
        let to = look(task);
        over.store(true, Ordering::Relaxed);
        Met {
            pages: (counted.end() + 1 - counted.start()) * u64::from(every),
            requests: to.1 - from.1,
            written: to.2 - from.2,
            took: to.0.since(from.0),
            light_max: light.join(task).unwrap(),
        }
    })
}

/// A file that is synced every 5000 writes has the device at work all the time from the third round
/// on.
#[test]
fn a_device_that_is_synced_again_and_again_has_no_rest_in_between() {
    let met = syncs(HEAVY, EVERY, Nanos::micros(500), 6);
    assert!(met.idle() <= 15, "{} of 1000: {met:?}", met.idle());
    assert!(met.of_device() >= 100, "{} %: {met:?}", met.of_device());
    assert!(met.light_max < Nanos::millis(5), "{met:?}");
}

/// A hundred pages that are written over and over, as a journal's, and synced every ten seconds:
/// what is written ahead is no more than what a sync finds, and the slice of the flusher in which
/// that is reached. The device could write 5000.
#[test]
fn pages_that_are_written_over_and_over_are_not_written_all_the_time() {
    let met = syncs(100, 5000, Nanos::millis(2), 6);
    // The light writer's are 200 in each round.
    assert!(met.written <= 6 * 3 * (100 + 200), "{met:?}");
}

/// A writer that does not sync has as much of the dirty limit to merge in, however early the device
/// begins to write.
#[test]
fn the_background_limit_takes_no_room_from_writers_that_do_not_sync() {
    let met = run(HEAVY, EVERY, Nanos::micros(500), 16..=31, false);
    assert!(met.of_device() >= 129, "{} %: {met:?}", met.of_device());
}
