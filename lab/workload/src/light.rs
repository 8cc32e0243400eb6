//! A light writer: a small block at fixed times, so that delays caused by others are seen.
//!
//! A call that is late does not move the times of the calls after it: they follow at once until the
//! schedule is caught up. `responses` counts from when a block was due, so a stall is counted for
//! every block that it held up, not once; `latencies` is of the calls alone.

use std::sync::Arc;

use env::Task;
use mm::{Cache, File};
use policy::units::{Bytes, Nanos};

use crate::dd::{Run, buffer};
use crate::{Report, rest_until};

/// One light writer.
#[derive(Clone, Copy, Debug)]
pub struct LightWriter {
    /// Bytes of one write call.
    pub block: Bytes,
    /// Time between two calls.
    pub every: Nanos,
    /// For how long.
    pub lasting: Nanos,
}

/// Writes a block every so often to the end of `file`.
pub fn light_writer(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    file: &Arc<File>,
    options: &LightWriter,
    run: &Run<'_>,
) -> Report {
    run.writes(task, cache, |task, writer, report| {
        let block = buffer(task, options.block);
        let end = report.began + options.lasting;
        let mut due = report.began;
        let mut at = file.len();
        while due < end && task.now() < end {
            if run.stop.is_raised() {
                return Ok(false);
            }
            rest_until(task, due)?;
            let called = task.now();
            let wrote = file.write(task, writer, at, &block)?;
            report.moved(called, task.now(), run.origin, wrote);
            report.responses.record(task.now().since(due));
            at += wrote;
            due = due + options.every;
        }
        Ok(true)
    })
}
