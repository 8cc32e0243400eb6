//! A trace under a rule at a capacity.

use policy::units::Nanos;

use crate::rules::{Access, Rule};
use crate::trace::Trace;

/// The counts of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Accesses.
    pub accesses: u64,
    /// Of pages in memory.
    pub hits: u64,
    /// Misses of pages that had been in memory before.
    pub refaults: u64,
    /// Pages evicted.
    pub evicted: u64,
    /// Pages that were written to where they belong: dirty when they were evicted, or, of a preset,
    /// sooner.
    pub written: u64,
    /// Pages read though nobody had asked for them.
    pub read_ahead: u64,
    /// Pages in memory on average once it was full.
    pub cached: u64,
    /// Its times, if it was on a device.
    pub times: Option<Times>,
}

/// The times of accesses, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// All of them.
    pub all: Nanos,
    /// The longest.
    pub longest: Nanos,
    /// Those that took a tenth of a second and more.
    pub stalls: u64,
}

impl Times {
    const STALL: Nanos = Nanos::millis(100);

    pub(crate) fn note(&mut self, took: Nanos) {
        self.all = Nanos(self.all.0 + took.0);
        self.longest = self.longest.max(took);
        self.stalls += u64::from(took >= Self::STALL);
    }
}

impl Counts {
    /// Accesses of pages that were not in memory.
    #[must_use]
    pub fn misses(&self) -> u64 {
        self.accesses - self.hits
    }

    /// The counts of the whole trace, of which these are of the sample that is here. Its misses are
    /// those of as many accesses as the rate says, as in SHARDS-adj: pages that are accessed the
    /// most often hit, and one more or less of them in the sample moves accesses, not misses.
    pub(crate) fn of_whole(self, trace: &Trace) -> Self {
        let whole = |part| trace.whole(part);
        let (accesses, _) = trace.all();
        Self {
            accesses,
            hits: accesses.saturating_sub(whole(self.misses())),
            refaults: whole(self.refaults),
            evicted: whole(self.evicted),
            written: whole(self.written),
            read_ahead: whole(self.read_ahead),
            cached: whole(self.cached),
            times: self.times,
        }
    }

    /// Hits of all accesses.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^53 accesses")]
        let ratio = self.hits as f64 / self.accesses.max(1) as f64;
        ratio
    }
}

/// Accesses between two looks at whether to go on.
pub(crate) const STEP: usize = 1 << 14;
/// Marks of a page: it was accessed, and what was written to it is nowhere else.
const SEEN: u8 = 1;
const DIRTY: u8 = 2;

/// Replays a trace under a rule with a memory of `pages`. `goes_on` is asked now and then with the
/// accesses done since; `None`: it said no.
pub fn replay(
    trace: &Trace,
    rule: &mut dyn Rule,
    pages: u32,
    goes_on: &dyn Fn(usize) -> bool,
) -> Option<Counts> {
    let mut flags = vec![0_u8; trace.distinct() as usize];
    let mut counts = Counts::default();
    for (at, (page, write)) in trace.accesses().enumerate() {
        if at % STEP == 0 && !goes_on(STEP.min(trace.len() - at)) {
            return None;
        }
        match rule.access(page) {
            Access::Hit => counts.hits += 1,
            Access::Miss { evicted } => {
                counts.refaults += u64::from(flags[page as usize] & SEEN);
                if let Some(evicted) = evicted {
                    let flags = &mut flags[evicted as usize];
                    counts.evicted += 1;
                    counts.written += u64::from(*flags & DIRTY != 0);
                    *flags &= !DIRTY;
                }
            }
        }
        flags[page as usize] |= if write { SEEN | DIRTY } else { SEEN };
    }
    counts.accesses = trace.len() as u64;
    counts.cached = u64::from(pages.min(trace.distinct()));
    Some(counts)
}
