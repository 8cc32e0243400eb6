//! A run in virtual time: a fresh lab with the cell's machine and devices.

use std::sync::Arc;

use env::{Env, ObjectId, Work};
use mm::{Item, Populate};
use policy::units::{Bytes, Instant, Nanos, Pages};
use workload::{Numbered, Objects, Stop};
use world::{EventKind, Lab, LabError, Options, Record, TaskReport};

use super::assemble;
use super::cell::Cell;
use super::digest::Digest;
use super::journal::{self, Journals, log_of};
use super::real::{number, seconds};
use super::rig;
use super::session::{self, Ended, JobFiles, Placed, RunError, Setup};
use crate::outcome::{Outcome, TaskCpu};
use crate::watch::Shared;

/// Runs a cell in a lab of its own.
///
/// # Errors
/// Anything that kept it from its end, a broken conservation law included.
pub(super) fn run(cell: &Cell, seed: u64, trace: bool, stop: &Stop) -> Result<Outcome, RunError> {
    let frames = u32::try_from(cell.memory.0).map_err(|_| {
        RunError::Impossible(format!(
            "{} pages of memory are more than the lab has",
            cell.memory.0
        ))
    })?;
    let mut lab = Lab::new(Options {
        cpus: cell.cpus,
        hz: cell.laws.dirty.hz,
        seed,
        frames: journal::frames_with(cell, frames),
        costs: rig::costs(cell)?,
        record: record(cell),
    });
    lab.set_time_limit(Instant(cell.longest.0));
    if let Some(hz) = cell.preempt_hz {
        lab.preempt_at_ticks(hz);
    }
    let watch = Shared::new(trace);
    lab.set_watch(Box::new(watch.clone()));
    let Files {
        jobs: files,
        swap,
        prefilled,
    } = place(cell);
    let mut devices = Vec::with_capacity(cell.devices.len());
    let mut meters = Vec::with_capacity(cell.devices.len());
    let mut changes = Vec::new();
    let mut journals = Journals::default();
    for (spec, prefilled) in cell.devices.iter().zip(&prefilled) {
        let built = rig::device(&lab, cell, spec, prefilled)?;
        let id = journals.add(&lab, cell, spec, built.device, prefilled)?;
        devices.push((id, lab.env().device(id).info()));
        meters.push(built.meter);
        changes.extend(built.change);
    }
    let ids = devices.iter().zip(&cell.devices);
    let device_names: Vec<(u16, String)> =
        ids.map(|((id, _), spec)| (id.0, spec.id.clone())).collect();
    // Behind all other objects of a device.
    let first = ObjectId(log_of(cell).0 + 1);
    let objects = cell.devices.iter();
    let objects = objects.map(|_| Arc::new(Numbered::from(first)) as Arc<dyn Objects>);
    let setup = Setup {
        cell: cell.clone(),
        frames,
        populate: Populate::AtStart,
        devices,
        meters,
        changes,
        files,
        objects: objects.collect(),
        swap,
        stop: stop.clone(),
        resident: || 0,
        watch: watch.clone(),
    };
    let env: Arc<dyn Env> = lab.env().clone();
    let ended = lab.run(move |task| session::run(task, env, &setup));
    let ended = ended.map_err(|error| too_long(error, cell))??;
    check_completions(&lab, &ended)?;
    let tasks = lab.tasks();
    if !stop.is_raised() {
        let jobs: Vec<&str> = cell.jobs.iter().map(|job| job.name.as_str()).collect();
        check_times(&jobs, &tasks)?;
    }
    let mut digest = Digest::new(cell.laws.dirty.law, Nanos::ZERO, usize::MAX);
    for kept in lab.take_events() {
        digest.saw(kept.at.since(ended.origin), kept.task, &kept.event);
    }
    let mut outcome = assemble::outcome(cell, cell.shrink, &ended, digest);
    outcome.tasks = cpu(cell, &tasks, &lab);
    watch.lock().finish(ended.origin, &mut outcome);
    let names = tasks.into_iter().map(|task| (task.id.0, task.name));
    outcome.name_timeline(names.collect(), device_names);
    outcome
        .counters
        .extend(Work::ALL.map(|work| (work.name(), number(lab.units(work)))));
    outcome.counters.extend(journals.counters());
    outcome.trace_hash = lab.trace_hash();
    Ok(outcome)
}

/// The events that are kept: the pages each writer dirtied only where writers are compared.
fn record(cell: &Cell) -> Record {
    let record = Record::NONE.with(EventKind::BalanceDirtyPages);
    if assemble::counts_dirtied(cell) {
        record.with(EventKind::Dirtied)
    } else {
        record
    }
}

/// The files of a cell.
struct Files {
    /// In the order of the jobs.
    jobs: Vec<JobFiles>,
    swap: Option<ObjectId>,
    /// Of each device: those that are there before the run.
    prefilled: Vec<Vec<(ObjectId, Bytes)>>,
}

/// Numbers the files of each device, and says which are there before the run. The swap file is its
/// device's last.
fn place(cell: &Cell) -> Files {
    let mut next = vec![0_u32; cell.devices.len()];
    let mut prefilled = vec![Vec::new(); cell.devices.len()];
    let mut placed = |device: usize, len: Bytes| {
        let object = ObjectId(next[device]);
        next[device] += 1;
        if !len.is_zero() {
            prefilled[device].push((object, len));
        }
        Placed { object, len }
    };
    let jobs = cell
        .jobs
        .iter()
        .map(|job| {
            let len = if job.finds_files() {
                job.facts.file_bytes
            } else {
                Bytes::ZERO
            };
            let own = job.device.map(|device| (device, job.files));
            let own = own
                .iter()
                .flat_map(|(device, files)| (0..*files).map(|_| *device).collect::<Vec<usize>>());
            let own = own.map(|device| placed(device, len)).collect();
            let from = job.from.map(|device| placed(device, job.facts.file_bytes));
            JobFiles { own, from }
        })
        .collect();
    let swap = cell
        .swap
        .map(|swap| placed(swap.device, Bytes::ZERO).object);
    Files {
        jobs,
        swap,
        prefilled,
    }
}

/// Every page that a device moved was written or read by the cache, and the other way round.
fn check_completions(lab: &Lab, ended: &Ended) -> Result<(), RunError> {
    let moved = Pages(lab.units(Work::EndPage));
    let (stats, vmstat) = (&ended.settled, &ended.vmstat_settled);
    let swapped = Pages(vmstat.get(Item::Pswpin) + vmstat.get(Item::Pswpout));
    let counted = stats.written + stats.read_in + stats.write_failed + swapped;
    if moved == counted {
        return Ok(());
    }
    Err(RunError::NotConserved {
        what: format!("the devices moved {} pages", moved.0),
        stats: format!("{} pages swapped, {stats:?}", swapped.0),
    })
}

/// The time of every task is that on a CPU, runnable without one, taken by interrupts, and asleep
/// by cause, to the nanosecond; and what a job slept, an event or a timeout ended.
fn check_times(jobs: &[&str], tasks: &[TaskReport]) -> Result<(), RunError> {
    let wrong = |name: &str, sum: &str, account: String| {
        Err(RunError::NotConserved {
            what: format!("time of the task `{name}`: {sum}"),
            stats: account,
        })
    };
    for job in jobs {
        if !tasks.iter().any(|task| task.name == *job) {
            return wrong(job, "every job has an account", String::from("none"));
        }
    }
    for task in tasks {
        let wrong = |sum| wrong(&task.name, sum, format!("{task:?}"));
        let Some(ended) = task.ended else {
            return wrong("it has not ended");
        };
        let known = task.cpu() + task.ready + task.stolen + task.asleep_total();
        if known != ended.since(task.started) {
            return wrong("run + ready + stolen + asleep = elapsed");
        }
        if !jobs.contains(&task.name.as_str()) {
            continue;
        }
        if !task.unnamed.is_zero() {
            return wrong("every sleep has a cause");
        }
        let ended_by = |cause| task.wakes.iter().find(|(of, _)| *of == cause);
        for (cause, asleep) in &task.asleep {
            let named = ended_by(*cause).map_or(0, |(_, wakes)| wakes.ready + wakes.timed_out);
            if named == 0 && !asleep.is_zero() {
                return wrong("every wake has an event or a timeout");
            }
        }
        if task.wakes.iter().any(|(_, wakes)| wakes.cancelled > 0) {
            return wrong("every wake has an event or a timeout");
        }
    }
    Ok(())
}

/// A run that is longer than its scenario allows is a matter of the scenario.
fn too_long(error: LabError, cell: &Cell) -> RunError {
    let LabError::TimeLimit { tasks, .. } = &error else {
        return RunError::Lab(error);
    };
    let is_job = |name: &str| cell.jobs.iter().any(|job| job.name == name);
    let jobs = tasks.iter().filter(|task| is_job(&task.name));
    RunError::TooLong {
        max_s: seconds(cell.longest),
        jobs: jobs.map(|task| task.name.clone()).collect(),
    }
}

fn cpu(cell: &Cell, tasks: &[TaskReport], lab: &Lab) -> Vec<TaskCpu> {
    let mut all: Vec<TaskCpu> = tasks
        .iter()
        .filter(|task| task.name != "root" && task.name != "levels")
        .map(|task| TaskCpu {
            name: task.name.clone(),
            is_job: cell.jobs.iter().any(|job| job.name == task.name),
            is_interrupt: false,
            user_s: seconds(task.user),
            system_s: seconds(task.system),
            waits: task
                .asleep
                .iter()
                .map(|(cause, time)| (format!("{cause:?}"), seconds(*time)))
                .collect(),
        })
        .collect();
    all.push(TaskCpu {
        name: "interrupts".into(),
        is_interrupt: true,
        system_s: seconds(lab.irq_time()),
        ..TaskCpu::default()
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::{Cause, TaskId};
    use world::Wakes;

    /// Ran 3 s, was ready for 1 s and slept 6 s of 10.
    fn account() -> TaskReport {
        let wakes = Wakes {
            ready: 2,
            timed_out: 1,
            cancelled: 0,
        };
        TaskReport {
            id: TaskId(1),
            name: "hog".into(),
            started: Instant::ZERO,
            ended: Some(Instant(10_000_000_000)),
            user: Nanos::secs(2),
            system: Nanos::secs(1),
            asleep: vec![(Cause::ReclaimNoProgress, Nanos::secs(6))],
            wakes: vec![(Cause::ReclaimNoProgress, wakes)],
            unnamed: Nanos::ZERO,
            ready: Nanos::secs(1),
            stolen: Nanos::ZERO,
            sleeps: 3,
        }
    }

    /// The complaint about the account after a change; none: it adds up.
    fn fault(change: impl FnOnce(&mut TaskReport)) -> Option<String> {
        let mut task = account();
        change(&mut task);
        let error = check_times(&["hog"], &[task]).err()?;
        Some(error.to_string())
    }

    #[track_caller]
    fn is_of(fault: Option<String>, sum: &str) {
        let text = fault.unwrap_or_else(|| panic!("not seen: {sum}"));
        assert!(text.contains("`hog`") && text.contains(sum), "{text}");
    }

    #[test]
    fn a_nanosecond_that_is_in_no_account_fails_the_run() {
        assert_eq!(fault(|_| {}), None);
        let sum = "run + ready + stolen + asleep = elapsed";
        is_of(fault(|task| task.system = Nanos(1_000_000_001)), sum);
        is_of(fault(|task| task.asleep.clear()), sum);
        is_of(fault(|task| task.ended = None), "it has not ended");
        is_of(
            fault(|task| task.name = "other".into()),
            "every job has an account",
        );
    }

    #[test]
    fn a_sleep_without_a_cause_or_an_end_fails_the_run() {
        is_of(
            fault(|task| {
                task.asleep.clear();
                task.unnamed = Nanos::secs(6);
            }),
            "every sleep has a cause",
        );
        let sum = "every wake has an event or a timeout";
        is_of(fault(|task| task.wakes[0].1.cancelled = 1), sum);
        is_of(fault(|task| task.wakes.clear()), sum);
        is_of(fault(|task| task.wakes[0].1 = Wakes::default()), sum);
    }
}
