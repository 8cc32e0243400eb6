//! The latency worker of stutterp: rests, maps fresh memory, writes one word a page, unmaps it.
//!
//! Its sample is that of October 2021: from the end of one round to the end of the next, less the
//! rest, and not below zero. So what is late about the rest counts too. A round that is under way
//! when its time is up is finished and counted, as there.
//!
//! Source: experiments B1; mechanisms 10.4.

use std::sync::Arc;

use env::{Event, Task};
use mm::Cache;
use policy::units::{Nanos, Pages};

use crate::dd::Run;
use crate::hog::{count_of, touch_whole};
use crate::{Report, rest};

/// Pages touched between two looks at whether to stop.
const STRIDE: u32 = 32;

/// One latency worker.
#[derive(Clone, Copy, Debug)]
pub struct Mapper {
    /// Pages that it maps.
    pub pages: Pages,
    /// The rest before each round.
    pub think: Nanos,
    /// Begins no round later than this after it began.
    pub for_at_most: Option<Nanos>,
}

impl Mapper {
    /// Pages of the worker of stutterp: 128 MiB.
    pub const PAGES: Pages = Pages(32_768);

    /// That of stutterp, with a mapping of `pages`: it rests 5 ms.
    #[must_use]
    pub const fn stutterp(pages: Pages) -> Self {
        Self {
            pages,
            think: Nanos::millis(5),
            for_at_most: None,
        }
    }
}

/// Maps, touches and unmaps until it is stopped. One sample a round.
pub fn mapper(task: &mut Task<'_>, cache: &Arc<Cache>, options: &Mapper, run: &Run<'_>) -> Report {
    run.reports(task, |task, report| {
        let until = options.for_at_most.map(|limit| report.began + limit);
        let region = cache.spill(task, options.pages)?;
        let pages = count_of(options.pages);
        let mut before = report.began;
        while until.is_none_or(|until| task.now() < until) {
            rest(task, options.think)?;
            if !touch_whole(task, &region, (pages, STRIDE), run.stop, report)? {
                return Ok(false);
            }
            region.discard(task, 0, pages)?;
            let now = task.now();
            let took = now.since(before).saturating_sub(options.think);
            before = now;
            report.passes += 1;
            report.sampled(now, run.origin, took);
            task.emit(&Event::Sampled {
                pages: options.pages,
                took,
            });
        }
        Ok(true)
    })
}
