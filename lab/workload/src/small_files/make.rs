//! Makes small files as fast as can be, by several tasks in rounds: `fs_mark` without syncs.
//!
//! Files a second are counted a round, over all tasks: the report of the task that came last has
//! the round's length as a sample.
//!
//! Source: experiments A4; `fs_mark -S0 -s -n -L -t`, one directory a task.

use std::sync::Arc;

use env::{Task, Work};
use mm::Cache;
use policy::units::Nanos;

use super::SmallFiles;
use super::table::FileId;
use crate::barrier::Barrier;
use crate::dd::{Run, buffer};
use crate::{Failure, Report};

/// Calls that make a file and close it; the call that writes it counts itself.
const OPEN_AND_CLOSE: u64 = 2;

/// One task that makes small files.
#[derive(Clone, Copy, Debug)]
pub struct MakeSmall {
    /// Files of a round.
    pub files_per_loop: u32,
    /// Rounds.
    pub loops: u32,
    /// The task's own time for a file, beside its calls.
    pub think: Nanos,
    /// Makes no file later than this after it began.
    pub for_at_most: Option<Nanos>,
}

impl MakeSmall {
    /// Files that one task makes.
    #[must_use]
    pub const fn files(&self) -> u64 {
        self.files_per_loop as u64 * self.loops as u64
    }
}

/// Makes files in `directory`, together with all that share `barrier`.
pub fn make_small(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    (small, directory, barrier): (&SmallFiles, u16, &Barrier),
    options: &MakeSmall,
    run: &Run<'_>,
) -> Report {
    run.writes(task, cache, |task, writer, report| {
        barrier.begin(task);
        let mut maker = Maker {
            small,
            directory,
            options,
            run,
            writer,
            report,
        };
        let outcome = maker.rounds(task, barrier);
        barrier.leave(task);
        small.leave(true);
        outcome
    })
}

struct Maker<'a> {
    small: &'a SmallFiles,
    directory: u16,
    options: &'a MakeSmall,
    run: &'a Run<'a>,
    writer: &'a mut mm::Writer,
    report: &'a mut Report,
}

impl Maker<'_> {
    fn rounds(&mut self, task: &mut Task<'_>, barrier: &Barrier) -> Result<bool, Failure> {
        let file = self.small.directory(task, self.directory);
        let data = buffer(task, self.small.size());
        let limit = self.options.for_at_most;
        let until = limit.map(|limit| self.report.began + limit);
        for _ in 0..self.options.loops {
            for _ in 0..self.options.files_per_loop {
                if self.run.stop.is_raised() {
                    return Ok(false);
                }
                if until.is_some_and(|until| task.now() >= until) {
                    return Ok(true);
                }
                let id = self.make(task)?;
                let called = task.now();
                let at = self.small.offset(id.file);
                let wrote = file.write(task, self.writer, at, &data)?;
                self.report
                    .moved(called, task.now(), self.run.origin, wrote);
                self.close(task, id)?;
            }
            if let Some(round) = barrier.meet(task)? {
                self.report
                    .measured(round.ended, self.run.origin, round.took);
            }
            self.report.passes += 1;
        }
        Ok(true)
    }

    /// A new file, with its inode.
    fn make(&self, task: &mut Task<'_>) -> Result<FileId, Failure> {
        let small = self.small;
        task.did(Work::User, self.options.think.0);
        task.did(Work::Call, OPEN_AND_CLOSE);
        let objects = small.take_inode(task)?;
        let node = small.node_of(task, &objects);
        task.did(Work::Create, 1);
        task.did(Work::Log, 1);
        let made = small.with(task, |table| table.make(self.directory, objects, node));
        made.ok_or_else(|| {
            small.give_inode(task, &objects);
            Failure::NoFile("more inodes than the memory has room for".into())
        })
    }

    /// Its entry stays; from now on it may be freed.
    fn close(&self, task: &mut Task<'_>, id: FileId) -> Result<(), Failure> {
        let entry = self.small.take_entry(task)?;
        self.small.enter(task, id, entry);
        Ok(())
    }
}
