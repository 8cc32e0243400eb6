//! Writers and readers of files, and users of anonymous memory, written once over any `Env` and run
//! in the lab and live.
//!
//! A *job* is one task: what it does with which files (its *work*, any procedure), and when. A
//! *plan* is all jobs of a run. `run` starts the plan's jobs, waits for them and answers with one
//! `Report` each. The events that the cache emits show what it does for them; of their own they
//! emit `Event::Sampled` alone.
//!
//! Invariants
//!   1. A report counts only bytes that the cache accepted.
//!   2. A job ends early, and says so, when its `Stop` is raised, the environment shuts down, or
//!      the cache answers with an error; the bytes until then are counted.
//!   3. Latencies are of single calls, in a histogram of bounded size; the longest call is exact.
//!
//! Source: experiments A1, B1 (hog, mapper, random writers and readers), A2 (dd, cp), A3 (large dd,
//! fs_mark, mapped writer), A5 (thpavail), C (N writers, light writer), D1 (task kinds).
#![forbid(unsafe_code)]

mod alloc;
mod barrier;
mod bystander;
mod copy;
mod dd;
mod engine;
mod folder;
mod fs_mark;
mod hog;
mod inodes;
mod large_dd;
mod latency;
mod light;
mod mapped_access;
mod mapped_writer;
mod mapper;
mod passes;
mod phases;
mod pinner;
mod plan;
mod random;
mod read;
mod report;
mod small_files;
mod syncer;
mod thpavail;
mod unused;
mod ycsb;

pub use alloc::{Alloc, alloc};
pub use barrier::Barrier;
pub use bystander::{Bystander, bystander};
pub use copy::{Cp, cp};
pub use dd::{Dd, Run, SyncAfter, buffer, dd};
pub use engine::{Engine, Order, engine};
pub use folder::{Folder, Made, Numbered, Objects};
pub use fs_mark::{FsMark, fs_mark};
pub use hog::{Hog, hog};
pub use inodes::Inodes;
pub use large_dd::{LargeDd, large_dd};
pub use latency::Latencies;
pub use light::{LightWriter, light_writer};
pub use mapped_access::{MappedAccess, mapped_access};
pub use mapped_writer::{MappedWriter, mapped_writer};
pub use mapper::{Mapper, mapper};
pub use passes::{Pass, Passes, passes};
pub use phases::{Phase, Phases, phases};
pub use pinner::{Pinner, pinner};
pub use plan::{Job, Plan, Work, run};
pub use random::{RandRead, RandWrite, rand_read, rand_write};
pub use read::{Pattern, Reader, reader};
pub use report::{Failure, Iteration, LongCall, Part, PerSecond, Report, Sample};
pub use small_files::{
    CACHES_MAX, Keep, MakeSmall, ObjectCache, Revisit, Role, SmallFiles, SmallOptions, Visit, keep,
    make_small, revisit,
};
pub use thpavail::{FileEnds, Thpavail, thpavail};
pub use ycsb::{Mix, Ycsb, ycsb};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use env::{Cause, Task, Wakeup};
use mm::File;
use policy::units::{Bytes, Instant, Nanos};

/// Tells all jobs of a run to come to their end. Cloned freely; raised once.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    raised: Arc<AtomicBool>,
    /// That of all runs, if this is one run's.
    of_all: Option<Arc<AtomicBool>>,
    look_every: Option<Nanos>,
}

impl Stop {
    /// Asks all holders of a clone to stop.
    pub fn raise(&self) {
        self.raised.store(true, Ordering::Relaxed);
    }

    /// True if it was raised.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        let all = self.of_all.iter();
        core::iter::once(&self.raised)
            .chain(all)
            .any(|raised| raised.load(Ordering::Relaxed))
    }

    /// A stop for a single run of the tasks that this one stops.
    #[must_use]
    pub fn of_one_run(&self) -> Self {
        Self {
            raised: Arc::default(),
            of_all: Some(Arc::clone(&self.raised)),
            look_every: self.look_every,
        }
    }

    /// The same one, for a world in which time is ours: a job that waits for its time to begin
    /// looks at it so often. In virtual time that would cost steps and gain nothing.
    #[must_use]
    pub fn looked_at_every(mut self, every: Nanos) -> Self {
        self.look_every = Some(every);
        self
    }

    /// Sleeps until `when`, or until it is raised, where somebody looks.
    pub(crate) fn sleep_until(&self, task: &mut Task<'_>, when: Instant) -> Wakeup {
        let Some(every) = self.look_every else {
            return task.sleep_until(Cause::Think, when);
        };
        while task.now() < when && !self.is_raised() {
            let look = (task.now() + every).min(when);
            let wakeup = task.sleep_until(Cause::Think, look);
            if wakeup != Wakeup::TimedOut {
                return wakeup;
            }
        }
        Wakeup::TimedOut
    }

    /// Rests for so long, or until it is raised, where somebody looks.
    fn rest(&self, task: &mut Task<'_>, pause: Nanos) -> Result<(), Failure> {
        let until = task.now() + pause;
        Failure::after(self.sleep_until(task, until))
    }
}

/// Sleeps between two pieces of work.
///
/// # Errors
/// The environment shuts down.
pub fn rest(task: &mut Task<'_>, pause: Nanos) -> Result<(), Failure> {
    Failure::after(task.sleep(Cause::Think, pause))
}

/// Rests until then, if that is to come.
fn rest_until(task: &mut Task<'_>, due: Instant) -> Result<(), Failure> {
    if task.now() < due {
        Failure::after(task.sleep_until(Cause::Think, due))?;
    }
    Ok(())
}

/// Makes a file as long as that, if it is shorter.
fn grow(task: &mut Task<'_>, file: &Arc<File>, len: Bytes) -> Result<(), Failure> {
    if file.len() < len {
        file.truncate(task, len)?;
    }
    Ok(())
}
