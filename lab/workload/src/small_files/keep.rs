//! The keeper of small files: appends to the log, and writes inodes behind the first dirty file of
//! each directory.
//!
//! ```text
//!   every LOOK        the front of each directory moves to its first file that is not written
//!   every TURN        the log: what was made since then, in whole pages; clusters of inodes before the fronts, merged
//!   every RECLAIM     what is left and written is given up
//!   when wanted       clusters at once, parts of them too: somebody who shrinks waits
//! ```
//!
//! It is paced by nobody (`File::write_unpaced`) and waits for its writes; afterwards their pages
//! leave the cache, since a file system keeps them elsewhere.
//!
//! Source: experiments A4; Linux 5.0 fs/xfs/xfs_trans_ail.c, xfsaild(); fs/xfs/xfs_icache.c,
//! xfs_reclaim_worker() (5 s: xfs_syncd_centisecs / 6 * 10 ms). The turn of one second is a GUESS:
//! a log of some 100 MB is committed about as often.

use std::sync::Arc;

use env::{Cause, Signal, Task};
use mm::{Cache, File, Writer};
use policy::units::{Bytes, Instant, Nanos, PAGE_SIZE};

use super::{CLUSTER, INODES_A_CLUSTER, Ordering, SmallFiles};
use crate::dd::{Run, buffer};
use crate::{Failure, Report};

const LOOK: Nanos = Nanos::millis(100);
const TURN: Nanos = Nanos::secs(1);
const RECLAIM: Nanos = Nanos::secs(5);
/// Most that one call writes.
const CALL: Bytes = Bytes(1 << 20);

/// The keeper.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    /// Bytes of the log that a file costs.
    pub log_a_file: Bytes,
    /// Length of the log, after which it begins again; whole pages, at least one.
    pub log: Bytes,
}

/// Keeps small files, until nobody uses them any more.
pub fn keep(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    (small, log): (&SmallFiles, &Arc<File>),
    options: &Keep,
    run: &Run<'_>,
) -> Report {
    run.writes(task, cache, |task, writer, report| {
        small
            .keeper_id
            .store(u64::from(task.id().0), Ordering::Relaxed);
        let mut keeper = Keeper {
            small,
            log,
            options,
            run,
            writer,
            report,
            logged: 0,
            at: Bytes::ZERO,
            served: 0,
        };
        keeper.turns(task)
    })
}

struct Keeper<'a> {
    small: &'a SmallFiles,
    log: &'a Arc<File>,
    options: &'a Keep,
    run: &'a Run<'a>,
    writer: &'a mut Writer,
    report: &'a mut Report,
    /// Files that are in the log.
    logged: u64,
    /// The place at which it goes on.
    at: Bytes,
    /// Number of times that inodes were wanted when it looked last.
    served: u64,
}

impl Keeper<'_> {
    fn turns(&mut self, task: &mut Task<'_>) -> Result<bool, Failure> {
        let (mut turn, mut reclaim) = (task.now() + TURN, task.now() + RECLAIM);
        loop {
            let deadline = task.now() + LOOK;
            self.rest(task, deadline)?;
            if self.small.users.load(Ordering::Acquire) == 0 || self.run.stop.is_raised() {
                return Ok(!self.run.stop.is_raised());
            }
            let asked = self.small.asked.load(Ordering::Acquire);
            let wanted = core::mem::replace(&mut self.served, asked) != asked;
            self.move_fronts(task);
            self.small.sweep(task);
            if task.now() >= turn {
                self.append(task)?;
            }
            if task.now() >= turn || wanted {
                self.write_inodes(task, wanted)?;
            }
            if task.now() >= turn {
                turn = task.now() + TURN;
            }
            if task.now() >= reclaim {
                self.small.reclaim_written(task);
                reclaim = task.now() + RECLAIM;
            }
        }
    }

    /// Until the deadline, the last user has left, or somebody wants inodes written.
    fn rest(&self, task: &mut Task<'_>, deadline: Instant) -> Result<(), Failure> {
        let small = self.small;
        let idle = |_: &Task<'_>| {
            small.users.load(Ordering::Acquire) > 0
                && small.asked.load(Ordering::Acquire) == self.served
        };
        Failure::after(task.wait_while(&small.keeper, Cause::Idle, Some(deadline), idle))
    }

    fn move_fronts(&self, task: &Task<'_>) {
        let small = self.small;
        let directories = small.directories.lock(task).clone();
        for (at, file) in (0_u16..).zip(&directories) {
            let (from, to) = small.table.lock(task).unwritten(at);
            let unwritten = file.next_unwritten(task, small.offset(from), small.offset(to));
            let front = unwritten.map_or(to, |(offset, _)| {
                u32::try_from(offset.0 / small.size().0).expect("below the last file")
            });
            small.with(task, |table| table.data_written(at, front));
        }
    }

    /// Appends what the files cost that were made since the last turn.
    fn append(&mut self, task: &mut Task<'_>) -> Result<(), Failure> {
        let made: u64 = {
            let table = self.small.table.lock(task);
            let all = 0..table.directories();
            all.map(|at| u64::from(table.made(at))).sum()
        };
        let bytes = (made - self.logged) * self.options.log_a_file.0;
        self.logged = made;
        let mut left = bytes.next_multiple_of(PAGE_SIZE);
        while left > 0 {
            if self.at >= self.options.log {
                self.at = Bytes::ZERO;
            }
            let room = (self.options.log - self.at).0;
            let part = Bytes(left.min(room).min(CALL.0));
            self.write(task, &Arc::clone(self.log), self.at, part)?;
            self.at += part;
            left -= part.0;
        }
        Ok(())
    }

    /// Writes the clusters before the fronts; the last one of each directory, too, if somebody
    /// waits.
    fn write_inodes(&mut self, task: &mut Task<'_>, all: bool) -> Result<(), Failure> {
        let count = self.small.table.lock(task).directories();
        for at in 0..count {
            let (from, to) = self.small.table.lock(task).clusters(at, all);
            if from == to {
                continue;
            }
            let file = self.small.inode_table(task, at);
            let offset = |inode: u32| u64::from(inode / INODES_A_CLUSTER) * CLUSTER.0;
            let (mut place, end) = (offset(from), offset(to.next_multiple_of(INODES_A_CLUSTER)));
            while place < end {
                let part = Bytes((end - place).min(CALL.0));
                self.write(task, &file, Bytes(place), part)?;
                place += part.0;
            }
            self.small.with(task, |table| table.inodes_written(at, to));
        }
        self.small.written.wake_all(Signal::Other);
        Ok(())
    }

    /// Writes to the device, and waits; the pages leave the cache.
    fn write(
        &mut self,
        task: &mut Task<'_>,
        file: &Arc<File>,
        at: Bytes,
        part: Bytes,
    ) -> Result<(), Failure> {
        let data = buffer(task, part);
        let called = task.now();
        file.write_unpaced(task, self.writer, at, &data)?;
        file.sync_range(task, at, part)?;
        let (first, last) = (at.0 / PAGE_SIZE, (at + part).0.div_ceil(PAGE_SIZE));
        for page in first..last {
            file.drop_clean(task, page);
        }
        self.report.moved(called, task.now(), self.run.origin, part);
        Ok(())
    }
}
