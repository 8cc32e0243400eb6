//! Rounds of reclaim by a task that reclaims for itself: the direct and the emergency path share
//! them. When nothing is clean, dirty pages are written first; when that does not help either, the
//! task is refused.

use core::sync::atomic::Ordering;

use env::Task;
use policy::reclaim::retry::{Retry, RetryVerdict};
use policy::reclaim::throttle::Who;
use policy::units::{Instant, Nanos, Pages};

use crate::Error;
use crate::cache::Cache;
use crate::reclaim::direct::direct;

/// Pages that each flusher is asked for when nothing clean is left: a few requests' worth.
pub(super) const WANTED: Pages = Pages(1024);
/// Rounds without progress, with nothing dirty or under writeback, before a caller is refused.
pub(super) const HOPELESS_ROUNDS: u32 = 20;
/// Nothing was freed and nothing written for so long: the task that waits for memory is refused,
/// though pages are dirty or under writeback. A device that hangs for half a minute and comes back
/// is waited for.
const STANDSTILL: Nanos = Nanos::secs(60);

/// For how long a waiter has seen nothing freed and nothing written.
#[derive(Default)]
pub(super) struct Standstill {
    since: Option<Instant>,
    seen: (Pages, u64),
}

impl Standstill {
    /// A look at the pages ever reclaimed and ever cleaned; whether they have been the same for too
    /// long.
    pub(super) fn lasts(&mut self, now: Instant, seen: (Pages, u64)) -> bool {
        let since = match self.since {
            Some(since) if self.seen == seen => since,
            _ => *self.since.insert(now),
        };
        self.seen = seen;
        now.since(since) >= STANDSTILL
    }
}

/// The rounds of a task that reclaims for itself, and what it has seen in them of the chances to
/// get memory at all.
#[derive(Default)]
pub(super) struct Rounds {
    retry: Retry,
    /// Rounds in a row without a page, with nothing dirty or under writeback.
    hopeless: u32,
    standstill: Standstill,
    /// That has lasted for too long.
    is_over: bool,
    /// Pages that had ever been cleaned before the last round.
    cleaned: u64,
}

impl Rounds {
    /// One round of reclaim. Answers what to do next; `None`: look again at once, as something was
    /// freed or somebody gave way.
    ///
    /// # Errors
    /// `OutOfMemory`, `Cancelled`.
    pub(super) fn reclaim(
        &mut self,
        task: &mut Task<'_>,
        cache: &Cache,
        want: u32,
        who: Who,
    ) -> Result<Option<RetryVerdict>, Error> {
        let tunables = &cache.options.reclaim;
        self.cleaned = cache.cleaned();
        let reclaimed = direct(task, cache, tunables.direct_target(want), who);
        let verdict = self.retry.decide(&cache.retry_view(task, reclaimed));
        let seen = (cache.reclaimed(), cache.cleaned());
        self.is_over = self.standstill.lasts(task.now(), seen);
        if !reclaimed.is_zero() {
            self.hopeless = 0;
            return Ok(None);
        }
        if cache.registry.stopping.load(Ordering::Acquire) {
            return Err(Error::Cancelled);
        }
        if verdict == RetryVerdict::OutOfMemory && tunables.oom_kills {
            cache.out_of_memory(task, who)?;
            self.retry = Retry::default();
            return Ok(None);
        }
        Ok(Some(verdict))
    }

    /// Nothing is clean: has what is dirty written, and waits for frames or for pages that can be
    /// freed.
    ///
    /// # Errors
    /// `OutOfMemory`: nothing has changed for too long; `Cancelled`.
    pub(super) fn wait(
        &mut self,
        task: &mut Task<'_>,
        cache: &Cache,
        who: Who,
    ) -> Result<(), Error> {
        cache.want_of_each(task, WANTED);
        let pending = !cache.write_pending().is_zero();
        self.hopeless = if pending { 0 } else { self.hopeless + 1 };
        if self.hopeless > HOPELESS_ROUNDS || self.is_over {
            cache.out_of_memory(task, who)?;
            (self.hopeless, self.standstill) = (0, Standstill::default());
            return Ok(());
        }
        let cleaned = self.cleaned;
        cache.wait_for_memory(task, |memory| {
            Pages(u64::from(memory.free())) <= memory.min() && cache.cleaned() == cleaned
        })
    }
}
