//! An innocent bystander: a program that allocates a page now and then, and gives one back for it.
//!
//! Pages are due at fixed times, as the blocks of a light writer are: a page that is late does not
//! move those after it. `latencies` and `samples` are of the allocations alone, `responses` from
//! when they were due.

use std::sync::Arc;

use env::Task;
use mm::Cache;
use policy::units::{Nanos, Pages};

use crate::dd::Run;
use crate::hog::count_of;
use crate::{Report, rest_until};

/// One bystander.
#[derive(Clone, Copy, Debug)]
pub struct Bystander {
    /// Pages of the region that it goes round: as many as it keeps.
    pub pages: Pages,
    /// Time between two allocations.
    pub every: Nanos,
    /// Ends this long after it began.
    pub for_at_most: Option<Nanos>,
}

impl Bystander {
    /// One page every 10 ms, `pages` of them kept.
    #[must_use]
    pub const fn every_10_ms(pages: Pages) -> Self {
        Self {
            pages,
            every: Nanos::millis(10),
            for_at_most: None,
        }
    }
}

/// Allocates until it is stopped.
///
/// # Panics
/// If the region has no pages, or allocations are due all the time: the plan is wrong.
pub fn bystander(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    options: &Bystander,
    run: &Run<'_>,
) -> Report {
    assert!(
        !options.pages.is_zero() && !options.every.is_zero(),
        "{options:?}"
    );
    run.reports(task, |task, report| {
        let until = options.for_at_most.map(|limit| report.began + limit);
        let region = cache.spill(task, options.pages)?;
        let mut due = report.began;
        for page in (0..count_of(options.pages)).cycle() {
            if until.is_some_and(|until| due >= until || task.now() >= until) {
                break;
            }
            if run.stop.is_raised() {
                return Ok(false);
            }
            rest_until(task, due)?;
            region.discard(task, page, 1)?;
            let called = task.now();
            let touched = region.touch(task, page, 1)?;
            let now = task.now();
            report.touched(&touched);
            report.sampled(now, run.origin, now.since(called));
            report.responses.record(now.since(due));
            due = due + options.every;
        }
        Ok(true)
    })
}
