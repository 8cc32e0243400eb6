//! Many small files, made as fast as can be by several tasks in rounds: `fs_mark` without syncs.
//!
//! A task makes its files of a round, each in calls of `block`, and gives each up when it is
//! written; the files stay. It then waits for the others. Files a second are counted a round, over
//! all tasks: the report of the task that came last has the round's length as a sample.
//!
//! Directories cost nothing here but the calls that make and close a file. Entries and inodes take
//! memory where a run has them (`inodes`).
//!
//! Source: experiments A3a; `fs_mark -S0 -L -n -s -t`.

use std::sync::Arc;

use env::{Task, Work};
use frames::Buffer;
use mm::Cache;
use policy::units::Bytes;

use crate::barrier::Barrier;
use crate::dd::{Run, buffer};
use crate::folder::Folder;
use crate::inodes::Inodes;
use crate::{Failure, Report};

/// Calls that make a file and close it.
const OPEN_AND_CLOSE: u64 = 2;

/// One task of a run of `fs_mark`.
#[derive(Clone, Copy, Debug)]
pub struct FsMark {
    /// Files that a task makes in a round (`-n`).
    pub files_per_loop: u32,
    /// Rounds (`-L`).
    pub loops: u32,
    /// Bytes of a file (`-s`).
    pub file: Bytes,
    /// Bytes of one write call (`fs_mark` has 16 KiB).
    pub block: Bytes,
}

impl FsMark {
    /// Files that one task makes.
    #[must_use]
    pub const fn files(&self) -> u64 {
        self.files_per_loop as u64 * self.loops as u64
    }
}

/// Makes files in `folder`, together with all that share `barrier`.
pub fn fs_mark(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    (folder, inodes, barrier): (&Folder, Option<&Inodes>, &Barrier),
    options: &FsMark,
    run: &Run<'_>,
) -> Report {
    run.writes(task, cache, |task, writer, report| {
        barrier.begin(task);
        let mut marker = Marker {
            folder,
            inodes,
            options,
            run,
            writer,
            report,
        };
        let outcome = marker.rounds(task, barrier);
        barrier.leave(task);
        outcome
    })
}

/// The common state of all files.
struct Marker<'a> {
    folder: &'a Folder,
    inodes: Option<&'a Inodes>,
    options: &'a FsMark,
    run: &'a Run<'a>,
    writer: &'a mut mm::Writer,
    report: &'a mut Report,
}

impl Marker<'_> {
    fn rounds(&mut self, task: &mut Task<'_>, barrier: &Barrier) -> Result<bool, Failure> {
        let block = buffer(task, self.options.block);
        for _ in 0..self.options.loops {
            for _ in 0..self.options.files_per_loop {
                if self.run.stop.is_raised() {
                    return Ok(false);
                }
                self.one_file(task, &block)?;
            }
            if let Some(round) = barrier.meet(task)? {
                let origin = self.run.origin;
                self.report.measured(round.ended, origin, round.took);
            }
            self.report.passes += 1;
        }
        Ok(true)
    }

    fn one_file(&mut self, task: &mut Task<'_>, block: &Buffer) -> Result<(), Failure> {
        let made = self.folder.make(task)?;
        task.did(Work::Call, OPEN_AND_CLOSE);
        if let Some(inodes) = self.inodes {
            inodes.made(task, &made.file)?;
        }
        let all = self.options.file;
        let mut at = Bytes::ZERO;
        while at < all {
            let size = (all - at).at_most(self.options.block);
            if let Some(inodes) = self.inodes {
                inodes.will_write(task, &made.file, at, size)?;
            }
            let called = task.now();
            let wrote = if size == self.options.block {
                made.file.write(task, self.writer, at, block)?
            } else {
                let rest = buffer(task, size);
                made.file.write(task, self.writer, at, &rest)?
            };
            let now = task.now();
            self.report.moved(called, now, self.run.origin, wrote);
            at += wrote;
        }
        if let Some(inodes) = self.inodes {
            inodes.closed(task, &made.file);
        }
        Ok(())
    }
}
