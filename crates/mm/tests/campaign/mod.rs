//! One seed of the fault campaign: a random machine, cache, devices, files and tasks, run while the
//! devices misbehave, and judged.
//!
//! What is checked
//!   1. Every read and every pinned page: no wrong version, no change under a pin.
//!   2. After each sync that says Ok, and at a random moment of the run: all that was acknowledged
//!      would survive the loss of everything volatile.
//!   3. Dirty pages stay within the limit and a batch per writer.
//!   4. Every task comes to its end (virtual time is bounded, a deadlock is reported by name).
//!   5. After the run, with the devices healed: syncs go through, pages add up, frames add up, the
//!      objects have the files' lengths.
//!   6. After a loss of power: what survived is legal, a fresh cache reads it and goes on.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::vec_box,
    unreachable_pub,
    reason = "a failure here is a failed test; the numbers are small"
)]

pub mod actor;
pub mod plan;
pub mod unsteady;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use env::{Cause, Device, DeviceId, DeviceInfo, JoinHandle, ObjectId, Task, Wakeup};
use lab::check::Checker;
use lab::fs::Layout;
use lab::model::{self, Surroundings};
use lab::platter::{Platter, SharedPlatter};
use lab::{Lab, LabEnv, Options as LabOptions, Record, Sector};
use mm::{Cache, Error, Reader};
use policy::units::{Bytes, Instant, Nanos, Pages};

use actor::{Actor, Place, SECTOR, Slot, World, pause};
use plan::{Dice, Plan};
use unsteady::Unsteady;

/// Virtual time that a run may take.
const LONGEST: Instant = Instant(20_000_000_000_000);
/// Steps at one moment of virtual time: far more than a run that gets on ever takes.
const STEPS_MAX: u64 = 1_000_000;
/// How often the levels are looked at.
const LOOK: Nanos = Nanos::millis(7);
/// Syncs until a healed file syncs well: it tells of the errors that it has seen first.
const SYNCS_MAX: u32 = 4;

/// What a run shows of itself.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    pub hash: u64,
    pub faults: u64,
    pub crashed: bool,
}

/// A device of the lab before it has a place in a cache.
struct Part {
    id: DeviceId,
    info: DeviceInfo,
    device: Arc<Unsteady>,
    platter: SharedPlatter,
}

fn lab(plan: &Plan) -> Lab {
    let mut lab = Lab::new(LabOptions {
        cpus: plan.cpus,
        hz: plan.hz,
        seed: plan.seed,
        frames: plan.options.frames,
        costs: plan.costs.clone(),
        record: Record::NONE,
    });
    lab.set_time_limit(LONGEST);
    lab.set_step_limit(STEPS_MAX);
    lab
}

/// The devices; `platters`: what they hold from an earlier life.
fn parts(lab: &Lab, plan: &Plan, platters: Option<&[SharedPlatter]>) -> Vec<Part> {
    let mut parts = Vec::new();
    for (number, device) in plan.devices.iter().enumerate() {
        let platter = match platters {
            Some(platters) => Arc::clone(&platters[number]),
            None => Platter::shared(device.cache),
        };
        let surroundings = Surroundings {
            host: lab.host(),
            stamps: lab.stamps(),
            platter: Arc::clone(&platter),
            layout: Layout::plain(),
            stable_writes: device.stable_writes,
        };
        let model = model::build(&device.params, surroundings);
        if platters.is_none() {
            for (object, file) in (0..).map(ObjectId).zip(&plan.files) {
                if file.device == number && !file.prefill.is_zero() {
                    model.prefill(object, file.prefill, 1);
                }
            }
        }
        let device = Unsteady::new(Arc::new(model), lab.host());
        let id = lab.add_device(Arc::clone(&device) as Arc<dyn Device>);
        let info = device.info();
        parts.push(Part {
            id,
            info,
            device,
            platter,
        });
    }
    parts
}

fn checker(plan: &Plan, device: usize) -> Checker {
    let mut checker = Checker::new();
    for (object, file) in (0..).map(ObjectId).zip(&plan.files) {
        if file.device != device {
            continue;
        }
        if !file.prefill.is_zero() {
            checker.prefilled(object, file.prefill, 1);
        }
        // A truncate covers whatever is written beside it, up to the bound of the file.
        let all = checker.on_write_begin(object, Bytes::ZERO, Pages(file.pages_max).bytes());
        checker.on_write_failed(all);
    }
    checker
}

fn world(
    task: &mut Task<'_, LabEnv>,
    env: &Arc<LabEnv>,
    plan: &Plan,
    parts: Vec<Part>,
) -> Arc<World> {
    let cache = Cache::new(Arc::clone(env), plan.options.clone()).unwrap();
    let mut places = Vec::new();
    for (number, (part, device)) in parts.into_iter().zip(&plan.devices).enumerate() {
        let index = cache
            .add_device(task, part.id, part.info, device.options)
            .unwrap();
        places.push(Place {
            index,
            device: part.device,
            platter: part.platter,
            checker: Mutex::new(checker(plan, number)),
            calm: device.is_calm(),
            flush_failed: false.into(),
        });
    }
    let mut slots = Vec::new();
    for (object, file) in (0..).map(ObjectId).zip(&plan.files) {
        let len = file.prefill.bytes();
        let slot = Slot::new(file.device, object, file.pages_max, len.0);
        let opened = cache
            .open(task, places[file.device].index, object, len)
            .unwrap();
        *slot.file.lock().unwrap() = Some(opened);
        slots.push(slot);
    }
    Arc::new(World {
        cache,
        places,
        slots,
        fair: false.into(),
    })
}

/// Runs a seed.
pub fn run(seed: u64) -> Outcome {
    let plan = Arc::new(Plan::draw(seed));
    let mut lab = lab(&plan);
    let parts = parts(&lab, &plan, None);
    let env = Arc::clone(lab.env());
    let root_plan = Arc::clone(&plan);
    let (world, crashed) = lab
        .run(move |task| {
            let plan = root_plan;
            let world = world(task, &env, &plan, parts);
            let crashed = first_life(task, &env, &plan, &world);
            world.fair.store(true, Ordering::Relaxed);
            for place in &world.places {
                place.device.heal();
            }
            if !crashed {
                finish(task, &world);
            }
            (world, crashed)
        })
        .unwrap_or_else(|error| panic!("{error}"));
    let outcome = Outcome {
        hash: lab.trace_hash(),
        faults: world.places.iter().map(|place| place.device.faults()).sum(),
        crashed,
    };
    drop(lab);
    second_life(&plan, &world);
    outcome
}

/// Tasks, weather, and a look at the levels; true: broken off.
fn first_life(
    task: &mut Task<'_, LabEnv>,
    env: &Arc<LabEnv>,
    plan: &Arc<Plan>,
    world: &Arc<World>,
) -> bool {
    let mut dice = Dice::new(plan.seed ^ 0x5eed);
    let actors: Vec<JoinHandle<bool>> = (0..plan.tasks)
        .map(|number| {
            let actor = Actor::new(world, dice.roll());
            let steps = plan.steps;
            env::spawn(&**env, &format!("actor-{number}"), move |task| {
                actor.work(task, steps).is_ok()
            })
        })
        .collect();
    {
        let (plan, world, dice) = (Arc::clone(plan), Arc::clone(world), Dice::new(dice.roll()));
        env::spawn(&**env, "weather", move |task| {
            weather(task, &plan, &world, dice)
        });
    }
    let limit = world.cache.stats().dirty_limit + plan.batch_slack();
    let crash_at = plan.crash_at.map(|after| Instant::ZERO + after);
    while actors.iter().any(|actor| !actor.is_done()) {
        if crash_at.is_some_and(|at| task.now() >= at) {
            world.places.iter().for_each(Place::check_durable);
            return true;
        }
        let next = task.now() + LOOK;
        let next = crash_at.map_or(next, |at| at.min(next));
        if task.sleep_until(Cause::Think, next) == Wakeup::Cancelled {
            // Another task has panicked.
            return true;
        }
        let stats = world.cache.stats();
        assert!(
            stats.dirty + stats.writeback <= limit,
            "{stats:?} with a limit of {limit:?}"
        );
    }
    for actor in actors {
        assert_eq!(
            actor.try_join(),
            Some(true),
            "an actor ends after all its steps"
        );
    }
    false
}

/// Fair and foul periods, until the run ends.
fn weather(task: &mut Task<'_, LabEnv>, plan: &Plan, world: &World, mut dice: Dice) {
    while !world.fair.load(Ordering::Relaxed) {
        for (place, device) in world.places.iter().zip(&plan.devices) {
            let foul = dice.one_in(5);
            place
                .device
                .set(if foul { device.storm } else { device.mild });
            if !foul && !place.flush_failed.load(Ordering::Relaxed) && dice.one_in(2) {
                // Ends a stop after an error; a failed flush needs more.
                reopen_after_stop(task, world, place);
            }
        }
        let lasts = Nanos::micros(dice.between(200, 400_000));
        if pause(task, lasts).is_err() {
            return;
        }
    }
}

fn reopen_after_stop(task: &mut Task<'_, LabEnv>, world: &World, place: &Place) {
    if !is_failed(task, world, place) {
        world.cache.reopen_device(task, place.index);
    }
}

/// Whether a flush of the device has failed: then it opens no file.
fn is_failed(task: &mut Task<'_, LabEnv>, world: &World, place: &Place) -> bool {
    match world
        .cache
        .open(task, place.index, ObjectId(999), Bytes::ZERO)
    {
        Ok(probe) => probe.discard(task) == Err(Error::Cancelled),
        Err(Error::FlushFailed { .. }) => true,
        Err(error) => panic!("a probe of the device: {error}"),
    }
}

/// With everything healed: all syncs go through and everything adds up.
fn finish(task: &mut Task<'_, LabEnv>, world: &World) {
    for place in &world.places {
        if place.flush_failed.load(Ordering::Relaxed) || is_failed(task, world, place) {
            revive(task, world, place);
        } else {
            world.cache.reopen_device(task, place.index);
        }
    }
    for slot in &world.slots {
        let place = &world.places[slot.place];
        let file = slot.open_file();
        let mut tries = 0;
        loop {
            let sync = place.checker().on_sync_begin(slot.object);
            match file.sync(task) {
                Ok(()) => {
                    place.checker().on_sync_ok(sync);
                    break;
                }
                Err(error) => {
                    tries += 1;
                    assert!(
                        !place.calm && tries < SYNCS_MAX,
                        "sync of a healed device: {error}"
                    );
                }
            }
        }
        let len = place.platter.lock().unwrap().len(slot.object);
        assert_eq!(len, file.len(), "object {} and its file", slot.object.0);
        if let Some(reach) = slot.reach() {
            assert!(
                len.0 >= reach,
                "a file of {len:?} where {reach} bytes were written"
            );
        }
        read_all(task, place, slot);
    }
    world.places.iter().for_each(Place::check_durable);
    let stats = world.cache.stats();
    assert!(stats.is_conserved(), "pages do not add up: {stats:?}");
    assert_eq!(
        stats.dirty + stats.writeback + stats.pinned,
        Pages::ZERO,
        "{stats:?}"
    );
    assert_eq!(
        stats.free + stats.cached,
        stats.frames,
        "frames do not add up: {stats:?}"
    );
    assert_eq!(world.cache.shutdown(task), Ok(()));
}

/// After a failed flush: the device has forgotten what it had not made durable, and is opened again.
fn revive(task: &mut Task<'_, LabEnv>, world: &World, place: &Place) {
    for slot in world
        .slots
        .iter()
        .filter(|slot| world.places[slot.place].index == place.index)
    {
        if let Some(file) = slot.file.lock().unwrap().take() {
            assert_eq!(file.discard(task), Ok(()));
        }
    }
    // No write is under way once the files are discarded.
    lose_power(place, task.random());
    world.cache.reopen_device(task, place.index);
    for slot in world
        .slots
        .iter()
        .filter(|slot| world.places[slot.place].index == place.index)
    {
        let len = place.platter.lock().unwrap().len(slot.object);
        let file = world
            .cache
            .open(task, place.index, slot.object, len)
            .unwrap();
        *slot.file.lock().unwrap() = Some(file);
        slot.forget_reach();
    }
}

fn lose_power(place: &Place, seed: u64) {
    let mut platter = place.platter.lock().unwrap();
    let mut dice = Dice::new(seed);
    platter.crash(|| dice.roll());
    if let Err(violation) = place.checker().on_crash(&platter) {
        panic!("{violation}");
    }
}

/// Reads the whole file in pieces, and beyond its end.
fn read_all(task: &mut Task<'_, LabEnv>, place: &Place, slot: &Slot) {
    let file = slot.open_file();
    let mut reader = Reader::default();
    let len = file.len().0;
    for offset in (0..=len).step_by(64 * 4096) {
        let bytes = Bytes(64 * 4096);
        let read = place
            .checker()
            .on_read_begin(slot.object, Bytes(offset), bytes);
        let mut data = vec![Sector::JUNK; (bytes.0 / SECTOR) as usize];
        let count = file
            .read(task, &mut reader, Bytes(offset), &mut data)
            .unwrap();
        assert_eq!(count.0, (len - offset).min(bytes.0));
        let seen = &data[..(count.0 / SECTOR) as usize];
        if let Err(violation) = place.checker().on_read_stamps(read, seen) {
            panic!("at the end: {violation}");
        }
    }
}

/// The power fails, and another cache begins with what has survived.
fn second_life(plan: &Arc<Plan>, first: &Arc<World>) {
    let mut lab = lab(plan);
    let platters: Vec<SharedPlatter> = first
        .places
        .iter()
        .map(|place| Arc::clone(&place.platter))
        .collect();
    for place in &first.places {
        lose_power(place, plan.seed ^ 0xdead);
    }
    let parts = parts(&lab, plan, Some(&platters));
    let (env, plan, first) = (Arc::clone(lab.env()), Arc::clone(plan), Arc::clone(first));
    lab.run(move |task| {
        let mut plan = Plan::draw(plan.seed);
        for (file, slot) in plan.files.iter_mut().zip(&first.slots) {
            // The checker is the first life's: it knows every version.
            file.prefill = Pages::ZERO;
            assert_eq!(file.device, slot.place);
        }
        let second = world(task, &env, &plan, parts);
        for (place, old) in second.places.iter().zip(&first.places) {
            *place.checker() = std::mem::take(&mut *old.checker());
        }
        for slot in &second.slots {
            let place = &second.places[slot.place];
            let len = place.platter.lock().unwrap().len(slot.object);
            assert_eq!(slot.open_file().discard(task), Ok(()));
            let file = second
                .cache
                .open(task, place.index, slot.object, len)
                .unwrap();
            *slot.file.lock().unwrap() = Some(file);
            slot.forget_reach();
            read_all(task, place, slot);
        }
        let actor = Actor::new(&second, plan.seed ^ 0xbeef);
        assert!(actor.work(task, 20).is_ok());
        finish(task, &second);
    })
    .unwrap_or_else(|error| panic!("second life: {error}"));
}
