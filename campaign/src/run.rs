//! One run of a plan: its tasks at work while its devices have their fault phases, and the
//! judgement.
//!
//! ```text
//!   first life: tasks, weather, a look every 7 ms  ---all done---> heal, sync, add up, shut down
//!        |                                                              |
//!        +--- crash_at: the power fails ---+                            |
//!                                          v                            v
//!   second life:  what survived is legal; a fresh cache reads it, goes on, and is judged as well
//! ```
//!
//! Checks
//!   1. Every read and every pinned page: no wrong version, no change under a pin.
//!   2. After each sync that says Ok, and at a random moment of the run: all that was acknowledged
//!      would survive the loss of everything volatile.
//!   3. The dirty level stays within its limit and a batch per writer, the pages within memory. No
//!      page of anonymous memory is lost or old, whatever became of it: swapped out, in, kept,
//!      discarded.
//!   4. Every call ends in a bounded time (`world`: starvation, stuck), every task after its steps,
//!      every lab (deadlock, no progress).
//!   5. Pauses are within the bounds of the law, and end when they should; no wake-up is lost
//!      (`verdicts`).
//!   6. After the run, with the devices healed: syncs go through, pages add up by cache and by
//!      device, frames add up, those of slabs with them, the objects have the files' lengths; all
//!      slots of the swap file are free once the regions are gone, and every page that reclaim
//!      looked at was freed or put back.
//!   7. After a loss of power: what survived is legal, a fresh cache reads it and goes on.
//!   8. Options that contradict each other are refused by a typed error.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use env::{Cause, JoinHandle, ObjectId, Task, Wakeup};
use mm::Error;
use policy::units::{Bytes, Instant, Nanos, Pages};
use world::media::SharedMedia;
use world::{Lab, LabEnv, Recorded};

use crate::actor::{Actor, read_all};
use crate::failure::{Failure, catch, fail};
use crate::going::pause;
use crate::judge;
use crate::memory;
use crate::op::Op;
use crate::plan::Plan;
use crate::scene::{self, DeviceState, Setup, World, open};
use crate::tally::Tally;
use crate::verdicts;

/// Interval at which the levels are looked at, at first and in a run that takes long.
const LOOK: Nanos = Nanos::millis(7);
const LOOK_LATER: Nanos = Nanos::millis(100);
/// A run that takes longer waits for a sick device most of the time.
const LONG: Instant = Instant(60_000_000_000);
/// Phases grow up to this: longer than any back-off.
const PHASE_MAX: Nanos = Nanos::secs(20);
/// Syncs until a healed file syncs well: it tells of the errors that it has seen first.
const SYNCS_MAX: u32 = 4;
/// A file that nobody opens.
const PROBE: ObjectId = ObjectId(15);

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Of everything that happened.
    pub hash: u64,
    /// The events counted.
    pub tally: Tally,
}

/// Runs a plan.
///
/// # Errors
/// The first check that did not hold, or the panic of the code under test.
pub fn run(plan: &Plan, setup: &Setup) -> Result<Outcome, Failure> {
    plan.check().map_err(|error| Failure::new("plan", error))?;
    catch(|| lives(&Arc::new(plan.clone()), setup))
}

fn lives(plan: &Arc<Plan>, setup: &Setup) -> Outcome {
    let mut lab = scene::lab(plan);
    let parts = scene::parts(&lab, plan, setup, None);
    let env = Arc::clone(lab.env());
    let root_plan = Arc::clone(plan);
    let say = setup.say;
    let (world, crashed) = ended(lab.run(move |task| {
        let plan = root_plan;
        scene::check_refusals(task, &env, &plan, &parts[0]);
        let world = scene::world(task, &env, &plan, parts, (true, say));
        let crashed = first_life(task, &env, &plan, &world);
        world.fair.store(true, Ordering::Relaxed);
        world.dark.store(crashed, Ordering::Relaxed);
        for place in &world.places {
            place.layers.heal();
        }
        if crashed {
            for place in &world.places {
                place.layers.lose_power(task, false);
            }
        } else {
            finish(task, &world);
        }
        (world, crashed)
    }));
    let mut tally = Tally::default();
    describe(&mut tally, plan, &world, &lab, crashed);
    let events = lab.take_events();
    verdicts::judge_wakes(&plan.cache.reclaim, &events);
    verdicts::judge(&mut tally, plan, &of_actors(&lab, events));
    let hash = lab.trace_hash();
    drop(lab);
    if let Some(ops) = &plan.after_power_loss {
        second_life(plan, setup, &world, ops);
    }
    Outcome { hash, tally }
}

fn ended<T>(result: Result<T, world::LabError>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => {
            let Failure { kind, message } = Failure::of_lab(&error);
            fail(&kind, message)
        }
    }
}

/// The events of the plan's tasks: the flusher's waits are its own business.
fn of_actors(lab: &Lab, mut events: Vec<Recorded>) -> Vec<Recorded> {
    let actors: Vec<_> = lab
        .tasks()
        .iter()
        .map(|task| task.name.starts_with("actor"))
        .collect();
    events.retain(|event| actors.get(event.task.0 as usize).is_some_and(|is| *is));
    events
}

fn describe(tally: &mut Tally, plan: &Plan, world: &World, lab: &Lab, crashed: bool) {
    tally.add("runs", "runs", 1);
    tally.add("runs", "tasks", plan.tasks.len() as u64);
    tally.add("runs", "files", plan.files.len() as u64);
    tally.add("runs", "virtual time, ms", lab.now().0 / 1_000_000);
    tally.add("runs", "contradictions refused", plan.refused.len() as u64);
    tally.add("runs", "losses of power within", u64::from(crashed));
    let second = u64::from(plan.after_power_loss.is_some());
    tally.add("runs", "losses of power at the end", second);
    tally.add("law", &plan.cache.law, 1);
    if let Some(objects) = &plan.objects {
        tally.add("runs", "with caches of objects", 1);
        tally.add("boost", &objects.boost, 1);
        let vmstat = world.cache.vmstat();
        for item in [
            mm::Item::SlabsScanned,
            mm::Item::SlabFreed,
            mm::Item::ExtfragEvents,
        ] {
            tally.add("objects", item.name(), vmstat.get(item));
        }
    }
    for op in plan.tasks.iter().flat_map(|task| &task.ops) {
        tally.add("steps", op.name(), 1);
    }
    for (place, device) in world.places.iter().zip(&plan.devices) {
        tally.add("devices", &device.model, 1);
        tally.add("layers", "slow", u64::from(device.slow.is_some()));
        tally.add("layers", "volatile", u64::from(device.volatile.is_some()));
        let counts = place.layers.faulty.counts();
        tally.add("faults", "failed", counts.failed);
        tally.add("faults", "torn", counts.torn);
        tally.add("faults", "no space", counts.no_space);
        tally.add("faults", "hung", counts.hung);
        tally.add("requests", "to devices", counts.requests);
        let lost = place.layers.pages_lost.load(Ordering::Relaxed);
        tally.add("faults", "pages lost with the power", lost);
        for phase in &device.phases {
            tally.add("fault phases", "phases", 1);
            tally.add("fault phases", "device hangs", u64::from(phase.hung));
            tally.add(
                "fault phases",
                "another rate",
                u64::from(phase.rate_kib.is_some()),
            );
            tally.add(
                "fault phases",
                "little space",
                u64::from(phase.space_kib.is_some()),
            );
        }
    }
    let stats = world.cache.stats();
    tally.add("pages", "dirtied", stats.dirtied.0);
    tally.add("pages", "written", stats.written.0);
    tally.add("pages", "read", stats.read_in.0);
    tally.add("pages", "reclaimed", stats.reclaimed.0);
    if !plan.regions.is_empty() {
        tally.add("runs", "with anonymous memory", 1);
        tally.add("reclaim", &plan.cache.reclaim, 1);
        for (name, value) in world.cache.vmstat().entries() {
            if !name.starts_with("nr_") && !name.starts_with("swap_") {
                tally.add("vmstat", name, value);
            }
        }
        tally.add(
            "runs",
            "calls refused memory",
            world.refusals.load(Ordering::Relaxed),
        );
    }
    let share = world.longest_share.load(Ordering::Relaxed);
    tally.share(
        "longest call on a steady device, of what it may take",
        &plan.cache.law,
        share,
    );
}

/// Tasks, fault phases, and a look at the levels; true: broken off.
fn first_life(
    task: &mut Task<'_>,
    env: &Arc<LabEnv>,
    plan: &Arc<Plan>,
    world: &Arc<World>,
) -> bool {
    let mut actors: Vec<JoinHandle<bool>> = Vec::new();
    for number in 0..plan.tasks.len() {
        let (plan, world) = (Arc::clone(plan), Arc::clone(world));
        let body = move |task: &mut Task<'_>| {
            let own = &plan.tasks[number];
            if own.start_us > 0 && pause(task, Nanos::micros(own.start_us)).is_err() {
                return false;
            }
            Actor::new(&world, Some(number), own.served)
                .work(task, &own.ops)
                .is_ok()
        };
        actors.push(env::spawn(&**env, &format!("actor-{number}"), body));
    }
    for (number, device) in plan.devices.iter().enumerate() {
        if !device.phases.is_empty() {
            let (plan, world) = (Arc::clone(plan), Arc::clone(world));
            env::spawn(&**env, &format!("faults-{number}"), move |task| {
                fault_phases(task, &plan, &world, number);
            });
        }
    }
    if world.objects.is_some() {
        let world = Arc::clone(world);
        env::spawn(&**env, "objects", move |task| {
            if let Some(objects) = &world.objects {
                objects.work(task, &world.cache, &world.fair);
            }
        });
    }
    let frames = Pages(u64::from(plan.cache.frames));
    let limit = world.cache.stats().dirty_limit + plan.batch_slack();
    let crash_at = plan.crash_at_us.map(|us| Instant::ZERO + Nanos::micros(us));
    while actors.iter().any(|actor| !actor.is_done()) {
        let now = task.now();
        if crash_at.is_some_and(|at| now >= at) {
            world.places.iter().for_each(DeviceState::check_durable);
            return true;
        }
        let regular = now + if now < LONG { LOOK } else { LOOK_LATER };
        let next = crash_at.map_or(regular, |at| at.min(regular));
        if task.sleep_until(Cause::Think, next) == Wakeup::Cancelled {
            // Another task has panicked.
            return true;
        }
        look(task, plan, world, limit, frames);
    }
    for actor in actors {
        judge!(
            actor.try_join() == Some(true),
            "unfinished",
            "a task did not end after all its steps"
        );
    }
    false
}

fn look(task: &Task<'_>, plan: &Plan, world: &World, limit: Pages, frames: Pages) {
    let stats = world.cache.stats();
    let level = stats.dirty + stats.writeback;
    judge!(
        level <= limit,
        "dirty-limit",
        "{level:?} dirty, with batches at most {limit:?}: {stats:?}"
    );
    let vmstat = world.cache.vmstat();
    let anon = [
        mm::Item::NrInactiveAnon,
        mm::Item::NrActiveAnon,
        mm::Item::NrWithheld,
    ];
    let anon: u64 = anon.iter().map(|item| vmstat.get(*item)).sum();
    let held = stats.cached + stats.free + Pages(anon) + stats.slab.all();
    judge!(
        held <= frames,
        "memory",
        "{held:?} of {frames:?}: {}",
        memory::reading(world)
    );
    let (viewed, mapped) = (world.stamps.viewed(), vmstat.get(mm::Item::NrMapped));
    judge!(
        viewed <= mapped && mapped <= frames.0,
        "memory",
        "programs may use {viewed} pages, {mapped} are mapped, of {frames:?}"
    );
    for (number, (gauge, own)) in world.gauges.iter().zip(&plan.tasks).enumerate() {
        if let Some((kind, what)) = gauge.overdue(task.now(), &own.ops, world) {
            let devices = world.cache.device_stats();
            fail(
                kind,
                format!("task {number} is {what}\n{stats:?}\n{devices:?}"),
            );
        }
    }
}

/// The phases of a device, again and again, until the run ends. Each time round they last an eighth
/// longer: otherwise a back-off could meet nothing but foul phases for ever, by its period alone.
fn fault_phases(task: &mut Task<'_>, plan: &Plan, world: &World, number: usize) {
    let place = &world.places[number];
    let phases = &plan.devices[number].phases;
    for (at, phase) in phases.iter().cycle().enumerate() {
        if world.fair.load(Ordering::Relaxed) {
            return;
        }
        place.layers.set(phase);
        let lasts = stretched(Nanos::micros(phase.for_us.max(100)), at / phases.len());
        if pause(task, lasts).is_err() || world.fair.load(Ordering::Relaxed) {
            return;
        }
        if phase.hung {
            place.layers.faulty.release();
        }
        let failed = place.flush_failed.load(Ordering::Relaxed);
        if phase.reopen && !failed && !is_failed(task, world, place) {
            // Ends a stop after an error; a failed flush needs more.
            world.cache.reopen_device(task, place.index);
        }
    }
}

/// The time after `rounds` rounds, an eighth more for each, up to `PHASE_MAX`.
fn stretched(mut time: Nanos, rounds: usize) -> Nanos {
    for _ in 0..rounds {
        if time >= PHASE_MAX {
            break;
        }
        time = time + Nanos(time.0 / 8);
    }
    time
}

/// True if a flush of the device has failed: then it opens no file.
fn is_failed(task: &mut Task<'_>, world: &World, place: &DeviceState) -> bool {
    match world.cache.open(task, place.index, PROBE, Bytes::ZERO) {
        Ok(probe) => probe.discard(task) == Err(Error::Cancelled),
        Err(Error::FlushFailed { .. }) => true,
        Err(error) => fail(
            "unexpected-error",
            format!("a probe of the device: {error}"),
        ),
    }
}

/// With everything healed: all syncs go through and everything adds up.
fn finish(task: &mut Task<'_>, world: &Arc<World>) {
    world.slots.iter().for_each(scene::Slot::unmap);
    if let Some(objects) = &world.objects
        && !objects.finish(task, &world.cache)
    {
        return;
    }
    // First: a device that is opened again after a failed flush has lost what was not durable, and
    // no swap file is.
    if !memory::finish(task, world) {
        return;
    }
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
            let Err(error) = file.sync(task) else {
                place.checker().on_sync_ok(sync);
                break;
            };
            if error == Error::Cancelled {
                // The lab has given up, and says why.
                return;
            }
            tries += 1;
            judge!(
                !place.calm && tries < SYNCS_MAX,
                "unexpected-error",
                "sync of a healed device: {error}"
            );
        }
        let (len, reach) = (place.media().len(slot.object), slot.reach());
        judge!(
            len == file.len() && reach.is_none_or(|reach| len.0 >= reach),
            "length",
            "object {} has {len:?}, its file {:?}, and {reach:?} bytes were written",
            slot.object.0,
            file.len()
        );
        read_all(task, place, slot);
    }
    world.places.iter().for_each(DeviceState::check_durable);
    if !memory::add_up(task, world) {
        return;
    }
    add_up(world);
    let shut = world.cache.shutdown(task);
    let is_well = matches!(shut, Ok(()) | Err(Error::Cancelled));
    judge!(is_well, "unexpected-error", "shutting down: {shut:?}");
}

/// Pages and frames, of the cache and of its devices.
fn add_up(world: &World) {
    let stats = world.cache.stats();
    let devices = world.cache.device_stats();
    judge!(
        stats.is_conserved(),
        "accounting",
        "pages do not add up: {stats:?}"
    );
    let mapped = world.cache.vmstat().get(mm::Item::NrMapped);
    judge!(
        mapped == 0,
        "accounting",
        "no file is mapped, and {mapped} pages are"
    );
    let busy = stats.dirty + stats.writeback + stats.pinned;
    judge!(
        busy.is_zero(),
        "accounting",
        "all is synced and unpinned, and: {stats:?}"
    );
    judge!(
        stats.free + stats.cached == stats.frames,
        "accounting",
        "frames do not add up: {stats:?}"
    );
    let sum = |of: fn(&mm::DeviceStats) -> Pages| devices.iter().map(of).sum::<Pages>();
    let agree = sum(|device| device.dirtied) == stats.dirtied
        && sum(|device| device.written) == stats.written
        && (sum(|device| device.dirty) + sum(|device| device.writeback)).is_zero();
    judge!(
        agree,
        "accounting",
        "devices {devices:?} do not add up to {stats:?}"
    );
}

/// After a failed flush: the device has forgotten what it had not made durable, and is opened
/// again.
fn revive(task: &mut Task<'_>, world: &World, place: &DeviceState) {
    let own = |slot: &&scene::Slot| world.places[slot.place].index == place.index;
    for slot in world.slots.iter().filter(own) {
        let file = slot.file_cell().take();
        if let Some(file) = file {
            check_discard(file.discard(task));
        }
    }
    // No write is under way once the files are discarded.
    place.layers.lose_power(task, true);
    place.crash_media(task.random());
    world.cache.reopen_device(task, place.index);
    for slot in world.slots.iter().filter(own) {
        let len = place.media().len(slot.object);
        let file = open(task, &world.cache, place, slot.object, len);
        *slot.file_cell() = Some(file);
        slot.forget_reach();
    }
}

/// A discard goes well, unless the lab has given up.
fn check_discard(discarded: Result<(), Error>) {
    let is_well = matches!(discarded, Ok(()) | Err(Error::Cancelled));
    judge!(is_well, "unexpected-error", "discard: {discarded:?}");
}

/// The power fails, and another cache begins with what has survived.
fn second_life(plan: &Arc<Plan>, setup: &Setup, first: &Arc<World>, ops: &[Op]) {
    let mut lab = scene::lab(plan);
    let media: Vec<SharedMedia> = first
        .places
        .iter()
        .map(|place| Arc::clone(&place.media))
        .collect();
    for place in &first.places {
        place.crash_media(plan.seed ^ 0xdead);
    }
    let parts = scene::parts(&lab, plan, setup, Some(&media));
    let (env, plan, first) = (Arc::clone(lab.env()), Arc::clone(plan), Arc::clone(first));
    let (ops, say) = (ops.to_vec(), setup.say);
    ended(lab.run(move |task| {
        let second = scene::world(task, &env, &plan, parts, (false, say));
        for (place, old) in second.places.iter().zip(&first.places) {
            // The checker is the first life's: it knows every version.
            *place.checker() = std::mem::take(&mut *old.checker());
        }
        for slot in &second.slots {
            let place = &second.places[slot.place];
            let len = place.media().len(slot.object);
            check_discard(slot.open_file().discard(task));
            *slot.file_cell() = Some(open(task, &second.cache, place, slot.object, len));
            slot.forget_reach();
            read_all(task, place, slot);
        }
        // Not to its end: the lab has given up, and says why.
        if Actor::new(&second, None, false).work(task, &ops).is_ok() {
            finish(task, &second);
        }
    }));
}
