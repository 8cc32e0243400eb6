//! Looks at small files again that were made before: their inodes alone (`stat`), or their content.
//!
//! A file whose entry is in memory costs a call. A file whose inode is there gets an entry. Any
//! other has to be read: its cluster of inodes, 16 KiB, which the report counts as a miss; the
//! pages of the cluster stay in the cache, so that the other inodes in it need no read for some
//! time. Of pages of content, the device's reads tell.
//!
//! Source: experiments A4 (the paper's loser reads metadata again); Linux 5.0 fs/xfs/xfs_icache.c,
//! xfs_iget().

use env::{Task, Work};
use policy::units::{Bytes, Nanos};

use super::table::{FileId, Found};
use super::{CLUSTER, INODES_A_CLUSTER, SmallFiles};
use crate::dd::{Run, buffer};
use crate::{Failure, Report};

/// The part of a file that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit {
    /// Its inode, of files at random.
    Stat,
    /// Its content, of one file after the other.
    Read,
}

/// One task that looks at files again.
#[derive(Clone, Copy, Debug)]
pub struct Revisit {
    /// The part it looks at.
    pub visit: Visit,
    /// Among the last `files` of all directories together.
    pub files: u64,
    /// Its looks in all, as a multiple of `files`.
    pub passes: u32,
    /// It begins when nobody makes files any more; else at once.
    pub after: bool,
    /// It ends this long after it began.
    pub for_at_most: Option<Nanos>,
}

/// Looks at files again.
pub fn revisit(
    task: &mut Task<'_>,
    small: &SmallFiles,
    options: &Revisit,
    run: &Run<'_>,
) -> Report {
    let mut report = Report::begin(run.name, task.id(), task.now());
    let outcome = if options.after {
        small.wait_made(task)
    } else {
        Ok(())
    };
    let outcome = outcome.and_then(|()| {
        report = Report::begin(run.name, task.id(), task.now());
        passes(task, small, options, run, &mut report)
    });
    small.leave(false);
    report.end(task.now(), outcome)
}

fn passes(
    task: &mut Task<'_>,
    small: &SmallFiles,
    options: &Revisit,
    run: &Run<'_>,
    report: &mut Report,
) -> Result<bool, Failure> {
    let until = options.for_at_most.map(|limit| report.began + limit);
    let mut block = buffer(task, small.size());
    for _ in 0..options.passes.max(1) {
        let began = task.now();
        for number in 0..options.files {
            if run.stop.is_raised() {
                return Ok(false);
            }
            if until.is_some_and(|until| task.now() >= until) {
                return Ok(true);
            }
            let Some(id) = choose(task, small, options, number) else {
                // Nothing is made yet.
                crate::rest(task, Nanos::millis(10))?;
                continue;
            };
            let called = task.now();
            task.did(Work::Call, 1);
            report.misses += u64::from(find(task, small, id)?);
            let moved = match options.visit {
                Visit::Stat => Bytes::ZERO,
                Visit::Read => {
                    let file = small.directory(task, id.directory);
                    let mut reader = mm::Reader::default();
                    file.read(task, &mut reader, small.offset(id.file), &mut block)?
                        .bytes
                }
            };
            report.moved(called, task.now(), run.origin, moved);
        }
        report.measured(task.now(), run.origin, task.now().since(began));
        report.passes += 1;
    }
    Ok(true)
}

/// One of the last files: at random, or the next.
fn choose(
    task: &mut Task<'_>,
    small: &SmallFiles,
    options: &Revisit,
    number: u64,
) -> Option<FileId> {
    let directories = u64::from(small.table.lock(task).directories());
    let each = options.files.div_ceil(directories.max(1)).max(1);
    let (of, back) = match options.visit {
        Visit::Stat => (task.random() % directories, task.random() % each),
        Visit::Read => (number % directories, each - 1 - number / directories % each),
    };
    let directory = u16::try_from(of).expect("directories are counted by u16");
    // Closed ones alone: the last may be under way.
    let made = u64::from(small.table.lock(task).unwritten(directory).1);
    let made = made.checked_sub(1)?;
    let file =
        u32::try_from(made.saturating_sub(back.min(made))).expect("files are counted by u32");
    Some(FileId { directory, file })
}

/// Has the entry of a file in memory; answers whether its inode had to be read.
fn find(task: &mut Task<'_>, small: &SmallFiles, id: FileId) -> Result<bool, Failure> {
    let found = small.with(task, |table| table.look_up(id));
    task.did(Work::Lookup, 1);
    if found == Found::Entry {
        return Ok(false);
    }
    if found == Found::Nothing {
        read(task, small, id)?;
    }
    let entry = small.take_entry(task)?;
    small.enter(task, id, entry);
    Ok(found == Found::Nothing)
}

/// Reads an inode.
fn read(task: &mut Task<'_>, small: &SmallFiles, id: FileId) -> Result<(), Failure> {
    let began = task.now();
    let table = small.inode_table(task, id.directory);
    let at = Bytes(u64::from(id.file / INODES_A_CLUSTER) * CLUSTER.0);
    let mut cluster = buffer(task, CLUSTER);
    let mut reader = mm::Reader::default();
    table.read(task, &mut reader, at, &mut cluster)?;
    small.note_missed(task, id, task.now().since(began));
    let objects = small.take_inode(task)?;
    let node = small.node_of(task, &objects);
    if !small.with(task, |table| table.read(id, objects, node)) {
        small.give_inode(task, &objects);
    }
    Ok(())
}
