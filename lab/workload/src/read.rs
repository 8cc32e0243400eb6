//! A reader: front to back again and again, or at random places.

use std::sync::Arc;

use env::Task;
use mm::File;
use policy::units::{Bytes, Nanos};

use crate::dd::{Run, buffer};
use crate::{Failure, Report, rest};

/// In which order a reader takes its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Front to back, then from the front again.
    Sequential,
    /// Any block, each as likely as the others.
    Random,
}

/// One reader.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    /// Bytes of one read call.
    pub block: Bytes,
    /// Bytes in all.
    pub bytes: Bytes,
    /// In which order.
    pub pattern: Pattern,
    /// Time between the end of a call and the next.
    pub think: Nanos,
    /// Stops this long after it began, whatever is left.
    pub for_at_most: Option<Nanos>,
}

/// Reads `file`.
pub fn reader(task: &mut Task<'_>, file: &Arc<File>, options: &Reader, run: &Run<'_>) -> Report {
    run.reports(task, |task, report| {
        let mut reader = mm::Reader::default();
        let mut block = buffer(task, options.block);
        let until = options.for_at_most.map(|limit| report.began + limit);
        // Whole blocks only: the lab moves whole sectors.
        let blocks = file.len().0 / options.block.0;
        if blocks == 0 {
            return Err(Failure::ShortRead { at: file.len() });
        }
        let mut next = 0;
        while report.bytes < options.bytes && until.is_none_or(|until| task.now() < until) {
            if run.stop.is_raised() {
                return Ok(false);
            }
            let index = match options.pattern {
                Pattern::Sequential => next % blocks,
                Pattern::Random => task.random() % blocks,
            };
            next += 1;
            let called = task.now();
            let got = file.read(
                task,
                &mut reader,
                Bytes(index * options.block.0),
                &mut block,
            )?;
            report.moved(called, task.now(), run.origin, got.bytes);
            if !options.think.is_zero() {
                rest(task, options.think)?;
            }
        }
        Ok(true)
    })
}
