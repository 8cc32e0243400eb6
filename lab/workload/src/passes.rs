//! Goes through a file from its front to its end, again and again: each pass writes it or reads it.
//!
//! A pass that is done is a sample, from the beginning of its first call to the end of its last.

use std::sync::Arc;

use env::Task;
use frames::Buffer;
use mm::{Cache, File};
use policy::units::{Bytes, Instant, Nanos};

use crate::dd::{Run, buffer};
use crate::{Failure, Report};

/// The work of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Overwrites the file.
    Write,
    /// Reads it.
    Read,
}

/// The passes of one task.
#[derive(Clone, Debug)]
pub struct Passes {
    /// Bytes of one call.
    pub block: Bytes,
    /// Bytes of the file.
    pub file: Bytes,
    /// The passes of a round, in order.
    pub passes: Vec<Pass>,
    /// Rounds; none: for ever.
    pub rounds: Option<u32>,
    /// Stops this long after it began, whatever is left.
    pub for_at_most: Option<Nanos>,
}

/// Goes through `file`.
pub fn passes(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    file: &Arc<File>,
    options: &Passes,
    run: &Run<'_>,
) -> Report {
    run.writes(task, cache, |task, writer, report| {
        let mut goer = Goer {
            file,
            options,
            run,
            block: buffer(task, options.block),
            writer,
            reader: mm::Reader::default(),
            until: options.for_at_most.map(|limit| report.began + limit),
        };
        goer.rounds(task, report)
    })
}

struct Goer<'a> {
    file: &'a Arc<File>,
    options: &'a Passes,
    run: &'a Run<'a>,
    block: Buffer,
    writer: &'a mut mm::Writer,
    reader: mm::Reader,
    until: Option<Instant>,
}

impl Goer<'_> {
    /// False: it was stopped.
    fn rounds(&mut self, task: &mut Task<'_>, report: &mut Report) -> Result<bool, Failure> {
        let mut round = 0;
        while self.options.rounds.is_none_or(|rounds| round < rounds) {
            for pass in &self.options.passes {
                let began = task.now();
                if !self.pass(task, *pass, report)? {
                    return Ok(!self.run.stop.is_raised());
                }
                let now = task.now();
                report.measured(now, self.run.origin, now.since(began));
                report.passes += 1;
            }
            round += 1;
        }
        Ok(true)
    }

    /// False: its time is up, or it was stopped.
    fn pass(
        &mut self,
        task: &mut Task<'_>,
        pass: Pass,
        report: &mut Report,
    ) -> Result<bool, Failure> {
        // Whole blocks only: the lab moves whole sectors.
        for number in 0..self.options.file.0 / self.options.block.0 {
            let over = self.until.is_some_and(|until| task.now() >= until);
            if over || self.run.stop.is_raised() {
                return Ok(false);
            }
            let at = Bytes(number * self.options.block.0);
            let called = task.now();
            let moved = match pass {
                Pass::Write => self.file.write(task, self.writer, at, &self.block)?,
                Pass::Read => {
                    let read = self
                        .file
                        .read(task, &mut self.reader, at, &mut self.block)?;
                    if read.bytes < self.options.block {
                        return Err(Failure::ShortRead {
                            at: at + read.bytes,
                        });
                    }
                    read.bytes
                }
            };
            report.moved(called, task.now(), self.run.origin, moved);
        }
        Ok(true)
    }
}
