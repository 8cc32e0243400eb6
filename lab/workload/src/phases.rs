//! A load that changes: anonymous memory, a file, pinned pages, each for some seconds, round and
//! round.
//!
//! A phase gives back at its end all that it took, but for what the file left in the cache. A page
//! that cannot be pinned because there is no memory or no pin left counts as refused, and the phase
//! holds what it has.

use std::sync::Arc;

use env::Task;
use mm::{Cache, File};
use policy::units::{Bytes, Instant, Nanos, Pages};

use crate::dd::{Run, buffer};
use crate::hog::{Stride, count_of};
use crate::pinner::{LOOK, hold};
use crate::{Failure, Report, grow, rest};

/// The load of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Touches a region of anonymous memory, round and round.
    Anonymous,
    /// Writes a file, round and round.
    File,
    /// Pins pages of the file and holds them.
    Pinned,
}

impl Phase {
    const fn next(self) -> Self {
        match self {
            Self::Anonymous => Self::File,
            Self::File => Self::Pinned,
            Self::Pinned => Self::Anonymous,
        }
    }
}

/// One load that changes.
#[derive(Clone, Copy, Debug)]
pub struct Phases {
    /// With which phase it begins.
    pub first: Phase,
    /// The length of each.
    pub each: Nanos,
    /// Pages of anonymous memory.
    pub anon: Pages,
    /// Bytes of the file.
    pub file: Bytes,
    /// Pages that it pins.
    pub pinned: Pages,
    /// Bytes of one write call.
    pub block: Bytes,
    /// Ends this long after it began.
    pub for_at_most: Option<Nanos>,
}

/// Goes round the phases until it is stopped; `passes` counts phases.
pub fn phases(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    file: &Arc<File>,
    options: &Phases,
    run: &Run<'_>,
) -> Report {
    run.writes(task, cache, |task, writer, report| {
        let mut load = Load {
            cache,
            file,
            options,
            run,
            writer,
        };
        load.change_for_ever(task, report)
    })
}

/// The common state of all phases.
struct Load<'a> {
    cache: &'a Arc<Cache>,
    file: &'a Arc<File>,
    options: &'a Phases,
    run: &'a Run<'a>,
    writer: &'a mut mm::Writer,
}

impl Load<'_> {
    fn change_for_ever(
        &mut self,
        task: &mut Task<'_>,
        report: &mut Report,
    ) -> Result<bool, Failure> {
        let limit = self.options.for_at_most;
        let until = limit.map_or(Instant::MAX, |limit| report.began + limit);
        grow(task, self.file, self.options.file)?;
        let mut phase = self.options.first;
        while task.now() < until {
            let end = (task.now() + self.options.each).min(until);
            match phase {
                Phase::Anonymous => self.anonymous(task, end, report)?,
                Phase::File => self.write(task, end, report)?,
                Phase::Pinned => {
                    let pages = self.options.pinned;
                    hold(task, self.file, pages, end, self.run, report)?;
                }
            }
            if self.run.stop.is_raised() {
                return Ok(false);
            }
            report.passes += 1;
            phase = phase.next();
        }
        Ok(true)
    }

    fn goes_on(&self, task: &Task<'_>, end: Instant) -> bool {
        task.now() < end && !self.run.stop.is_raised()
    }

    fn anonymous(
        &self,
        task: &mut Task<'_>,
        end: Instant,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let region = self.cache.spill(task, self.options.anon)?;
        let pages = count_of(self.options.anon);
        let mut stride = Stride::FIRST;
        while self.goes_on(task, end) {
            let began = task.now();
            let mut next = 0;
            while next < pages && self.goes_on(task, end) {
                let count = stride.pages.min(pages - next);
                stride.touch(task, &region, (next, count), report)?;
                next += count;
            }
            if task.now() == began {
                // Touching costs nothing here, or there is nothing to touch.
                rest(task, LOOK.at_most(end.since(began)))?;
            }
        }
        region.discard(task, 0, pages)?;
        Ok(())
    }

    fn write(
        &mut self,
        task: &mut Task<'_>,
        end: Instant,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let block = buffer(task, self.options.block);
        let blocks = (self.options.file.0 / self.options.block.0).max(1);
        for index in (0..blocks).cycle() {
            if !self.goes_on(task, end) {
                break;
            }
            let called = task.now();
            let at = Bytes(index * self.options.block.0);
            let wrote = self.file.write(task, self.writer, at, &block)?;
            report.moved(called, task.now(), self.run.origin, wrote);
            if task.now() == called {
                rest(task, Nanos::micros(1))?;
            }
        }
        Ok(())
    }
}
