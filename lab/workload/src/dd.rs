//! One sequential writer: blocks of zeroes from the beginning of a file, then a sync.

use std::sync::Arc;

use env::Task;
use frames::Buffer;
use mm::{Cache, File};
use policy::units::{Bytes, Instant, Nanos};

use crate::{Failure, Report, Stop, rest};

/// The data made durable at the end, within the reported time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncAfter {
    /// Nothing.
    Nothing,
    /// The file.
    File,
    /// Everything in the cache (`sync`).
    Everything,
}

/// One sequential writer.
#[derive(Clone, Copy, Debug)]
pub struct Dd {
    /// Bytes of one write call.
    pub block: Bytes,
    /// The offset of the first write.
    pub offset: Bytes,
    /// Bytes in all; the last block may be shorter.
    pub bytes: Bytes,
    /// Stops writing this long after it began, whatever is left.
    pub for_at_most: Option<Nanos>,
    /// The rest after each call.
    pub rest: Nanos,
    /// The sync after the last write.
    pub sync: SyncAfter,
}

/// Runs `dd` on `file`. `origin` is when the run began, for the bytes per second.
///
/// Its reading of `/dev/zero` is part of the calibrated cost of a copy (world::fs::costs), not
/// charged here.
pub fn dd(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    file: &Arc<File>,
    options: &Dd,
    run: &Run<'_>,
) -> Report {
    let mut report = Report::begin(run.name, task.id(), task.now());
    let mut writer = cache.writer();
    let outcome = write_all(task, file, options, run, &mut writer, &mut report);
    cache.retire(task, writer);
    let outcome = outcome.and_then(|complete| {
        // Interrupted: unwritten pages are of no use to anybody.
        if complete {
            match options.sync {
                SyncAfter::Nothing => {}
                SyncAfter::File => file.sync(task)?,
                SyncAfter::Everything => cache.sync(task)?,
            }
        }
        Ok(complete)
    });
    report.end(task.now(), outcome)
}

/// The run that a job belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Name of the job.
    pub name: &'a str,
    /// When the run began.
    pub origin: Instant,
    /// Raised when all jobs are to end.
    pub stop: &'a Stop,
}

impl Run<'_> {
    /// The report of work that writes to no file.
    pub(crate) fn reports(
        &self,
        task: &mut Task<'_>,
        work: impl FnOnce(&mut Task<'_>, &mut Report) -> Result<bool, Failure>,
    ) -> Report {
        let mut report = Report::begin(self.name, task.id(), task.now());
        let outcome = work(task, &mut report);
        report.end(task.now(), outcome)
    }

    /// The report of work by a writer of its own.
    pub(crate) fn writes(
        &self,
        task: &mut Task<'_>,
        cache: &Arc<Cache>,
        work: impl FnOnce(&mut Task<'_>, &mut mm::Writer, &mut Report) -> Result<bool, Failure>,
    ) -> Report {
        self.reports(task, |task, report| {
            let mut writer = cache.writer();
            let outcome = work(task, &mut writer, report);
            cache.retire(task, writer);
            outcome
        })
    }
}

fn write_all(
    task: &mut Task<'_>,
    file: &Arc<File>,
    options: &Dd,
    run: &Run<'_>,
    writer: &mut mm::Writer,
    report: &mut Report,
) -> Result<bool, Failure> {
    let block = buffer(task, options.block);
    let until = options.for_at_most.map(|limit| report.began + limit);
    let end = options.offset + options.bytes;
    let mut at = options.offset;
    while at < end && !run.stop.is_raised() && until.is_none_or(|until| task.now() < until) {
        let size = (end - at).at_most(options.block);
        let called = task.now();
        let wrote = if size == options.block {
            file.write(task, writer, at, &block)?
        } else {
            file.write(task, writer, at, &buffer(task, size))?
        };
        report.moved(called, task.now(), run.origin, wrote);
        at += wrote;
        if !options.rest.is_zero() {
            rest(task, options.rest)?;
        }
    }
    Ok(!run.stop.is_raised())
}

/// A zeroed buffer of a job.
///
/// # Panics
/// If `bytes` does not fit the address space: the plan is wrong.
#[must_use]
pub fn buffer(task: &Task<'_>, bytes: Bytes) -> Buffer {
    let bytes = usize::try_from(bytes.0).expect("a block fits the address space");
    task.env().content().buffer(bytes)
}
