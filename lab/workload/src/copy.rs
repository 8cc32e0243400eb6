//! A copy: reads one file and writes what it read to another.

use std::sync::Arc;

use env::Task;
use mm::{Cache, File};
use policy::units::{Bytes, Nanos};

use crate::dd::{Run, buffer};
use crate::{Failure, Report};

/// One copy of a file.
#[derive(Clone, Copy, Debug)]
pub struct Cp {
    /// Bytes of one read and one write call (coreutils of 2010: 32 KiB).
    pub block: Bytes,
    /// Bytes in all.
    pub bytes: Bytes,
    /// Stops this long after it began, whatever is left.
    pub for_at_most: Option<Nanos>,
}

/// Copies `from` to `to`. The reported latencies are of the write calls.
pub fn cp(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    (from, to): (&Arc<File>, &Arc<File>),
    options: &Cp,
    run: &Run<'_>,
) -> Report {
    run.writes(task, cache, |task, writer, report| {
        let mut reader = mm::Reader::default();
        let mut block = buffer(task, options.block);
        let until = options.for_at_most.map(|limit| report.began + limit);
        let mut at = Bytes::ZERO;
        while at < options.bytes && until.is_none_or(|until| task.now() < until) {
            if run.stop.is_raised() {
                return Ok(false);
            }
            let size = (options.bytes - at).at_most(options.block);
            if size < options.block {
                block = buffer(task, size);
            }
            let got = from.read(task, &mut reader, at, &mut block)?.bytes;
            if got < size {
                return Err(Failure::ShortRead { at: at + got });
            }
            let called = task.now();
            let wrote = to.write(task, writer, at, &block)?;
            report.moved(called, task.now(), run.origin, wrote);
            at += wrote;
        }
        Ok(true)
    })
}
