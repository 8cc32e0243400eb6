//! Waits until little memory is free, then touches a lot of it at once and gives it back, again and
//! again.
//!
//! Each round is an iteration as `thpavail` has them: how long the touching took, how many huge
//! pages it got, and what the cache's counters did meanwhile. Other users of memory are tasks of
//! their own.

use std::sync::Arc;

use env::{Event, Task};
use mm::Cache;
use policy::units::{Nanos, Pages};

use crate::dd::Run;
use crate::hog::{count_of, touch_whole};
use crate::thpavail::{changes, huge_pages};
use crate::{Failure, Iteration, Report};

/// It looks at the free memory so often.
const LOOK: Nanos = Nanos::millis(100);
/// From when little is free to when a round begins.
const REST: Nanos = Nanos::secs(2);

/// One task that does it.
#[derive(Clone, Copy, Debug)]
pub struct Alloc {
    /// Pages that it touches.
    pub pages: Pages,
    /// Pages that it touches between two looks whether it is to stop: a huge page.
    pub stride: u32,
    /// A round begins when no more are free, and a rest later.
    pub below: Pages,
    /// Rounds.
    pub rounds: u32,
    /// Begins no round later than this after it began.
    pub for_at_most: Option<Nanos>,
}

/// Touches memory, `rounds` times.
pub fn alloc(task: &mut Task<'_>, cache: &Arc<Cache>, options: &Alloc, run: &Run<'_>) -> Report {
    run.reports(task, |task, report| {
        let until = options.for_at_most.map(|limit| report.began + limit);
        for _ in 0..options.rounds {
            loop {
                if run.stop.is_raised() {
                    return Ok(false);
                }
                if until.is_some_and(|until| task.now() >= until) {
                    return Ok(true);
                }
                if cache.stats().free <= options.below {
                    break;
                }
                run.stop.rest(task, LOOK)?;
            }
            run.stop.rest(task, REST)?;
            if !round(task, cache, options, run, report)? {
                return Ok(false);
            }
        }
        Ok(true)
    })
}

/// False: it was stopped.
fn round(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    options: &Alloc,
    run: &Run<'_>,
    report: &mut Report,
) -> Result<bool, Failure> {
    let (before, stats, began) = (cache.vmstat(), cache.stats(), task.now());
    let region = cache.spill(task, options.pages)?;
    let pages = count_of(options.pages);
    if !touch_whole(task, &region, (pages, options.stride), run.stop, report)? {
        return Ok(false);
    }
    let after = cache.vmstat();
    region.discard(task, 0, pages)?;
    let took = task.now().since(began);
    report.passes += 1;
    report.sampled(task.now(), run.origin, took);
    report.iterations.push(Iteration {
        alloc: run.name.to_owned(),
        began: began.since(run.origin),
        alloc_began: began.since(run.origin),
        took,
        free: stats.free,
        dirty: stats.dirty + stats.writeback,
        huge: huge_pages(&after),
        counters: changes(&before, &after),
        ..Iteration::default()
    });
    task.emit(&Event::Sampled {
        pages: options.pages,
        took,
    });
    Ok(true)
}
