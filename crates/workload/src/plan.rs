//! All jobs of a run: started together, each after its own delay, and waited for.

use std::sync::Arc;

use env::{Env, Task, Wakeup};
use mm::{Cache, File};
use policy::units::Nanos;

use crate::dd::Run;
use crate::{
    Barrier, Bystander, Cp, Dd, Failure, Folder, FsMark, Hog, Keep, LargeDd, LightWriter,
    MakeSmall, MappedWriter, Mapper, Phases, Pinner, RandRead, RandWrite, Reader, Report, Revisit,
    SmallFiles, Stop, Thpavail, bystander, cp, dd, fs_mark, hog, keep, large_dd, light_writer,
    make_small, mapped_writer, mapper, phases, pinner, rand_read, rand_write, reader, revisit,
    thpavail,
};

/// What a job does, and with which files.
pub enum Work<E: Env> {
    /// Writes a file from front to back.
    Dd(Dd, Arc<File<E>>),
    /// Copies the first file to the second.
    Cp(Cp, Arc<File<E>>, Arc<File<E>>),
    /// Writes a small block now and then.
    Light(LightWriter, Arc<File<E>>),
    /// Reads a file.
    Read(Reader, Arc<File<E>>),
    /// Touches a region of anonymous memory for ever.
    Hog(Hog),
    /// Maps fresh memory, touches it and unmaps it, again and again: the latency worker.
    Mapper(Mapper),
    /// Writes blocks at random places of its files, each in turn.
    RandWrite(RandWrite, Vec<Arc<File<E>>>),
    /// Reads blocks at random places of its files.
    RandRead(RandRead, Vec<Arc<File<E>>>),
    /// Allocates a page now and then.
    Bystander(Bystander),
    /// Changes between anonymous, file and pinned load.
    Phases(Phases, Arc<File<E>>),
    /// Holds pinned pages of a file.
    Pinner(Pinner, Arc<File<E>>),
    /// Stores to each page of a file that it maps.
    MappedWriter(MappedWriter, Arc<File<E>>),
    /// Downloads a source, copies it and removes all.
    LargeDd(LargeDd, Arc<Folder<E>>),
    /// Makes small files, in rounds with the others at its barrier.
    FsMark(FsMark, Arc<Folder<E>>, Arc<Barrier>),
    /// Makes small files in a directory, in rounds with the others at its barrier.
    MakeSmall(MakeSmall, Arc<SmallFiles<E>>, u16, Arc<Barrier>),
    /// Looks at small files again.
    Revisit(Revisit, Arc<SmallFiles<E>>),
    /// Keeps small files, with the file of their log.
    Keep(Keep, Arc<SmallFiles<E>>, Arc<File<E>>),
    /// Reads the first file and writes the second, and touches all memory beside that.
    Thpavail(Thpavail, Arc<File<E>>, Arc<File<E>>),
}

/// One task of a run.
pub struct Job<E: Env> {
    /// Its name: in reports, and as the task's.
    pub name: String,
    /// How long after the run's beginning it starts.
    pub start_after: Nanos,
    /// What it does.
    pub work: Work<E>,
}

/// All tasks of a run.
pub type Plan<E> = Vec<Job<E>>;

/// `files.len()` equal sequential writers, one file each, all started at once.
pub fn dd_many<E: Env>(options: Dd, files: Vec<Arc<File<E>>>) -> Plan<E> {
    let job = |(index, file)| Job {
        name: format!("dd-{index}"),
        start_after: Nanos::ZERO,
        work: Work::Dd(options, file),
    };
    files.into_iter().enumerate().map(job).collect()
}

/// Two equal sequential writers, the second started `later`.
pub fn two_writers<E: Env>(options: Dd, files: [Arc<File<E>>; 2], later: Nanos) -> Plan<E> {
    let mut plan = dd_many(options, files.into());
    plan[1].start_after = later;
    plan
}

/// Runs the plan to its end and answers with one report per job, in the plan's order.
///
/// A job that the shutdown of the environment ended before it could answer has a report without
/// bytes, its failure `Cancelled`.
pub fn run<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Arc<Cache<E>>,
    plan: Plan<E>,
    stop: &Stop,
) -> Vec<Report> {
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
            work(task, &cache, &job, &run)
        });
        started.push((name, handle));
    }
    let mut reports = Vec::with_capacity(started.len());
    for (name, handle) in started {
        reports.push(handle.join(task).unwrap_or_else(|| cancelled(&name, task)));
    }
    reports
}

fn work<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Arc<Cache<E>>,
    job: &Job<E>,
    run: &Run<'_>,
) -> Report {
    if !job.start_after.is_zero()
        && run.stop.sleep_until(task, run.origin + job.start_after) == Wakeup::Cancelled
    {
        return cancelled(run.name, task);
    }
    match &job.work {
        Work::Dd(options, file) => dd(task, cache, file, options, run),
        Work::Cp(options, from, to) => cp(task, cache, (from, to), options, run),
        Work::Light(options, file) => light_writer(task, cache, file, options, run),
        Work::Read(options, file) => reader(task, file, options, run),
        Work::Hog(options) => hog(task, cache, options, run),
        Work::Mapper(options) => mapper(task, cache, options, run),
        Work::RandWrite(options, files) => rand_write(task, cache, files, options, run),
        Work::RandRead(options, files) => rand_read(task, files, options, run),
        Work::Bystander(options) => bystander(task, cache, options, run),
        Work::Phases(options, file) => phases(task, cache, file, options, run),
        Work::Pinner(options, file) => pinner(task, file, options, run),
        Work::MappedWriter(options, file) => mapped_writer(task, cache, file, options, run),
        Work::LargeDd(options, folder) => large_dd(task, cache, folder, options, run),
        Work::FsMark(options, folder, barrier) => {
            fs_mark(task, cache, (folder, barrier), options, run)
        }
        Work::MakeSmall(options, small, directory, barrier) => {
            make_small(task, cache, (small, *directory, barrier), options, run)
        }
        Work::Revisit(options, small) => revisit(task, small, options, run),
        Work::Keep(options, small, log) => keep(task, cache, (small, log), options, run),
        Work::Thpavail(options, source, target) => {
            thpavail(task, cache, (source, target), options, run)
        }
    }
}

fn cancelled<E: Env>(name: &str, task: &Task<'_, E>) -> Report {
    let now = task.now();
    Report::begin(name, task.id(), now).end(now, Err(Failure::Cache(mm::Error::Cancelled)))
}
