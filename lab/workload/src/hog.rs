//! An anonymous hog: one region of memory, of which it writes one word a page in address order, for
//! ever.
//!
//! Where all of its region fits, it does nothing but use its CPU; where it does not, each page that
//! it comes to is the page that was evicted longest ago.
//!
//! Source: experiments B1 (memory hog of stutterp).

use std::sync::Arc;

use env::{Event, Task};
use mm::{Cache, Spill};
use policy::units::{Nanos, Pages};

use crate::dd::Run;
use crate::{Failure, Report, Stop, rest};

/// One hog.
#[derive(Clone, Copy, Debug)]
pub struct Hog {
    /// Pages of its region.
    pub pages: Pages,
    /// Ends this long after it began.
    pub for_at_most: Option<Nanos>,
}

impl Hog {
    /// A hog over `pages`, until it is stopped.
    #[must_use]
    pub const fn of(pages: Pages) -> Self {
        Self {
            pages,
            for_at_most: None,
        }
    }
}

/// Touches its region until it is stopped. `latencies` are of whole rounds.
pub fn hog(task: &mut Task<'_>, cache: &Arc<Cache>, options: &Hog, run: &Run<'_>) -> Report {
    let mut report = Report::begin(run.name, task.id(), task.now());
    let outcome = match touch_for_ever(task, cache, options, run, &mut report) {
        // It was the largest when memory ran out: no fault of the run, and counted (vmstat
        // `oom_kill`).
        Err(Failure::Cache(mm::Error::Killed)) => Ok(false),
        outcome => outcome,
    };
    report.end(task.now(), outcome)
}

fn touch_for_ever(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    options: &Hog,
    run: &Run<'_>,
    report: &mut Report,
) -> Result<bool, Failure> {
    let until = options.for_at_most.map(|limit| report.began + limit);
    let region = cache.spill(task, options.pages)?;
    let pages = count_of(options.pages);
    let mut stride = Stride::FIRST;
    loop {
        let began = task.now();
        let mut next = 0;
        while next < pages {
            if run.stop.is_raised() {
                return Ok(false);
            }
            if until.is_some_and(|until| task.now() >= until) {
                return Ok(true);
            }
            let count = stride.pages.min(pages - next);
            stride.touch(task, &region, (next, count), report)?;
            next += count;
        }
        let took = task.now().since(began);
        report.passes += 1;
        report.latencies.record(took);
        report.moving = task.now().since(report.began);
        task.emit(&Event::Sampled {
            pages: options.pages,
            took,
        });
        // Where touching costs nothing, a round takes no time, and none would ever pass.
        if took.is_zero() {
            rest(task, Nanos::micros(1))?;
        }
    }
}

/// Pages of a region that was made.
pub(crate) fn count_of(pages: Pages) -> u32 {
    u32::try_from(pages.0).expect("the pages of a region are numbered by 32 bits")
}

/// Touches all `pages` of a region, a stride of them between two looks at whether it is to stop.
/// False: it is.
pub(crate) fn touch_whole(
    task: &mut Task<'_>,
    region: &Spill,
    (pages, stride): (u32, u32),
    stop: &Stop,
    report: &mut Report,
) -> Result<bool, Failure> {
    let mut next = 0;
    while next < pages {
        if stop.is_raised() {
            return Ok(false);
        }
        let count = stride.min(pages - next);
        let touched = region.touch(task, next, count)?;
        report.touched(&touched);
        next += count;
    }
    Ok(true)
}

/// Number of pages touched between two looks at the clock: few while they fault, since each fault
/// may be held up for long, many while all are there.
pub(crate) struct Stride {
    pub(crate) pages: u32,
}

impl Stride {
    const LEAST: u32 = 8;
    const MOST: u32 = 2048;
    pub(crate) const FIRST: Self = Self { pages: Self::LEAST };

    /// Touches `count` pages from `first`.
    pub(crate) fn touch(
        &mut self,
        task: &mut Task<'_>,
        region: &Spill,
        (first, count): (u32, u32),
        report: &mut Report,
    ) -> Result<(), Failure> {
        let touched = region.touch(task, first, count)?;
        report.touched(&touched);
        self.pages = if touched.faults.is_zero() {
            (self.pages * 2).min(Self::MOST)
        } else {
            Self::LEAST
        };
        Ok(())
    }
}
