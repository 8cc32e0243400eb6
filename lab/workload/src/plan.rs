//! All jobs of a run: started together, each after its own delay, and waited for.

use std::sync::Arc;

use env::{Task, Wakeup};
use mm::Cache;
use policy::units::Nanos;

use crate::dd::Run;
use crate::{Failure, Report, Stop};

/// The work of a job: a procedure with its options and files.
pub struct Work(Procedure);

type Procedure = Box<dyn FnOnce(&mut Task<'_>, &Arc<Cache>, &Run<'_>) -> Report + Send>;

impl Work {
    /// Work that is done by `procedure`.
    pub fn new<F>(procedure: F) -> Self
    where
        F: FnOnce(&mut Task<'_>, &Arc<Cache>, &Run<'_>) -> Report + Send + 'static,
    {
        Self(Box::new(procedure))
    }
}

/// One task of a run.
pub struct Job {
    /// Its name: in reports, and as the task's.
    pub name: String,
    /// Time from the run's beginning to its start.
    pub start_after: Nanos,
    /// Its work.
    pub work: Work,
}

/// All tasks of a run.
pub type Plan = Vec<Job>;

/// Runs the plan to its end and answers with one report per job, in the plan's order.
///
/// A job that the shutdown of the environment ended before it could answer has a report without
/// bytes, its failure `Cancelled`.
pub fn run(task: &mut Task<'_>, cache: &Arc<Cache>, plan: Plan, stop: &Stop) -> Vec<Report> {
    let origin = task.now();
    let mut started = Vec::with_capacity(plan.len());
    for job in plan {
        let (cache, stop, name) = (Arc::clone(cache), stop.clone(), job.name.clone());
        let handle = env::spawn(task.env(), &name.clone(), move |task| {
            let run = Run {
                name: &job.name,
                origin,
                stop: &stop,
            };
            work(task, &cache, (job.start_after, job.work), &run)
        });
        started.push((name, handle));
    }
    let mut reports = Vec::with_capacity(started.len());
    for (name, handle) in started {
        reports.push(handle.join(task).unwrap_or_else(|| cancelled(&name, task)));
    }
    reports
}

fn work(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    (start_after, work): (Nanos, Work),
    run: &Run<'_>,
) -> Report {
    if !start_after.is_zero()
        && run.stop.sleep_until(task, run.origin + start_after) == Wakeup::Cancelled
    {
        return cancelled(run.name, task);
    }
    (work.0)(task, cache, run)
}

fn cancelled(name: &str, task: &Task<'_>) -> Report {
    let now = task.now();
    Report::begin(name, task.id(), now).end(now, Err(Failure::CANCELLED))
}
