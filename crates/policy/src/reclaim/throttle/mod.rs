//! Why and for how long a reclaimer sleeps, and who is woken by what.
//!
//! A reclaimer that meets an obstacle says what it found (`Finding`, or the `Progress` of a pass). The
//! law makes of it a `Reason`, the reason and the state of the node a `Verdict`:
//!
//! ```text
//!   Finding, Progress --law--> Reason --begin()--> Go | Yield | Sleep { deadline }
//!                                                                  |
//!   on_written() ----- on_checked() ----- After::wake ----> Wake of the sleepers of one reason
//!                                                                  |
//!                                                     end() -> how long it was, in whole ticks
//! ```
//!
//! | law | sleeps for | woken by | module |
//! |---|---|---|---|
//! | Linux 5.15 | `congestion_wait`, `wait_iff_congested`, 100 ms for too many isolated | a device that is congested no more | `congestion_wait` |
//! | and patch 1 of p0 | WRITEBACK instead of the first two in the scan | 32 pages written a sleeper: all | `writeback_only` |
//! | 5.16-rc1 (p0) | WRITEBACK 100 ms, ISOLATED 20 ms, NOPROGRESS 500 ms | that; a look that finds few isolated; one who frees > 1/8 of what it scans | `reasons` |
//! | 5.16 to 6.12 | the same, NOPROGRESS and CONGESTED one tick and rarely | the same | `mild` |
//! | Tidegate | WRITEBACK and ISOLATED; memory itself is handed out in turn (`turn`) | as many as the event can serve | `tidegate` |
//!
//! Vocabulary: *delay*, what a trace line prints: how many ticks began during the sleep, in the laws
//! since p0 at most the timeout; *mark*, the count of pages written when the first of those who sleep
//! for WRITEBACK fell asleep.
//!
//! Invariants
//!   1. Every sleep has a deadline, a whole tick; none is set for less than a tick.
//!   2. Pages written count only while somebody sleeps for WRITEBACK.
//!   3. A flusher or an I/O thread (`Who::exempt`) never sleeps, under the laws since p0.
//!   4. With `Tunables::wakes` off nobody is woken; with a reason off nobody sleeps for it.
//!   5. Nothing here allocates; every call is O(1).
//!
//! Concurrency: plain data, one per node, behind a short lock of `mm`. `begin` before the sleep, `end`
//! after it, wakes after unlocking. A sleeper's ticket is made under the lock of `begin` and taken out under that of the
//! event, so that no wake between `begin` and the sleep is lost.
//!
//! Source: mechanisms 4; paper p0; Linux 5.15, 5.16-rc1, 5.17, 6.12 mm/vmscan.c: reclaim_throttle(),
//! consider_reclaim_throttle(), skip_throttle_noprogress(), shrink_node(), shrink_inactive_list(),
//! __acct_reclaim_writeback(); 5.15 mm/backing-dev.c: congestion_wait(), wait_iff_congested().

mod congestion_wait;
mod mild;
mod reasons;
#[cfg(test)]
mod tests;
mod tidegate;
mod writeback_only;

use super::scan::Priority;
use super::{Reason, ReclaimLaw, Tunables};
use crate::ticks::{TickRate, Ticks};
use crate::units::{Instant, Nanos, Pages};

/// Pages written that are worth the wake of one sleeper (`SWAP_CLUSTER_MAX`).
const PAGES_PER_SLEEPER: u64 = 32;

/// What a reclaimer found that may be a reason to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Finding {
    /// The background reclaimer met pages under writeback that had been marked for reclaim when it met
    /// them before (`nr_immediate > 0` at the end of a pass).
    Immediate,
    /// Direct reclaim in a node of which all dirty pages met are congested.
    Congested,
    /// Direct reclaim: more pages are isolated than may be.
    Isolated,
    /// The allocator would try again, made no progress, and more than half of what could be reclaimed
    /// is dirty or under writeback (`retry`).
    WritePending,
}

/// Who reclaims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Who {
    /// The background reclaimer.
    pub background: bool,
    /// A flusher or a thread of I/O: others need it to get on.
    pub exempt: bool,
    /// It asks from within a file system, and reclaim must not enter one again (kernel: no `__GFP_FS`).
    pub within_fs: bool,
}

impl Who {
    /// A task that reclaims on its own behalf.
    pub const DIRECT: Self = Self {
        background: false,
        exempt: false,
        within_fs: false,
    };
    /// The background reclaimer.
    pub const BACKGROUND: Self = Self {
        background: true,
        exempt: false,
        within_fs: false,
    };
}

/// The node, at one look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Pages on the lists, the anonymous ones only where there is swap.
    pub reclaimable: Pages,
    /// Pages dirty or under writeback.
    pub write_pending: Pages,
    /// Some device says that its queue is congested. No device of several queues ever does.
    pub device_congested: bool,
    /// The background reclaimer has given up (`background::Failures::hopeless`).
    pub hopeless: bool,
}

/// What a reclaimer is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Go on.
    Go,
    /// Let others run, and go on.
    Yield {
        /// The timeout of the trace line, if there is one.
        traced: Option<Nanos>,
    },
    /// Sleep until woken for that reason, at most until `deadline`; then call `end`.
    Sleep {
        /// The timeout of the trace line.
        timeout: Nanos,
        /// When the timer fires: the beginning of a tick.
        deadline: Instant,
    },
}

/// Who of the sleepers of one reason is to be woken, the longest asleep first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wake {
    /// Nobody.
    #[default]
    None,
    /// All.
    All,
    /// That many.
    Some(u32),
}

/// What a reclaimer has got by a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Pages reclaimed since reclaim began, over all priorities.
    pub reclaimed: Pages,
    /// Pages scanned at this priority.
    pub scanned: Pages,
    /// Of the pass.
    pub priority: Priority,
    /// It was the background reclaimer's.
    pub background: bool,
}

/// What follows from a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct After {
    /// Of those who sleep for NOPROGRESS.
    pub wake: Wake,
    /// The reclaimer itself is to be throttled: call `begin`.
    pub throttle: Option<Reason>,
}

/// How long a law lets one sleep for a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stay {
    /// Not at all.
    Go,
    /// Not at all, but others may run.
    Yield,
    /// Not at all, but others may run and a trace line says so.
    Look(Ticks),
    /// So many ticks.
    Sleep(Ticks),
}

/// The sleepers for WRITEBACK and what has been written meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Writeback {
    /// How many sleep (`nr_writeback_throttled`).
    sleepers: u32,
    /// Pages written while somebody slept (`NR_THROTTLED_WRITTEN`).
    written: u64,
    /// `written` when the first of them fell asleep (`nr_reclaim_start`), or of what has been answered
    /// by a wake since.
    mark: u64,
}

/// The throttling of one node.
#[derive(Clone, Debug)]
pub struct Throttle {
    tunables: Tunables,
    rate: TickRate,
    writeback: Writeback,
}

impl Throttle {
    /// # Panics
    /// Unless `tunables.hz` lies in 1..=10000.
    #[must_use]
    pub fn new(tunables: Tunables) -> Self {
        Self {
            tunables,
            rate: TickRate::new(tunables.hz),
            writeback: Writeback::default(),
        }
    }

    /// Which reason a finding is, if it is one.
    ///
    /// # Source
    /// Mechanisms 2.5 (end), 4.1, 4.5.
    #[must_use]
    pub fn reason_of(&self, finding: Finding) -> Option<Reason> {
        let reason = match self.tunables.law {
            ReclaimLaw::CongestionWait => congestion_wait::reason_of(finding),
            ReclaimLaw::WritebackOnly => writeback_only::reason_of(finding),
            ReclaimLaw::Reasons => reasons::reason_of(finding),
            ReclaimLaw::Mild => mild::reason_of(finding),
            ReclaimLaw::Tidegate => tidegate::reason_of(finding),
        };
        reason.filter(|reason| !self.tunables.off.has(*reason))
    }

    /// Whether and for how long a reclaimer sleeps for `reason`. After `Sleep` comes `end`, exactly once.
    ///
    /// # Source
    /// Mechanisms 4.1, 4.3, 4.4.
    #[must_use]
    pub fn begin(&mut self, now: Instant, reason: Reason, who: Who, facts: &Facts) -> Verdict {
        if self.tunables.off.has(reason) {
            return Verdict::Go;
        }
        let rate = self.rate;
        let stay = match self.tunables.law {
            ReclaimLaw::CongestionWait => congestion_wait::stay(reason, facts, rate),
            ReclaimLaw::WritebackOnly => writeback_only::stay(reason, who, facts, rate),
            ReclaimLaw::Reasons => reasons::stay(reason, who, rate),
            ReclaimLaw::Mild => mild::stay(reason, who, facts, rate),
            ReclaimLaw::Tidegate => tidegate::stay(reason, who, rate),
        };
        match stay {
            Stay::Go => Verdict::Go,
            Stay::Yield => Verdict::Yield { traced: None },
            Stay::Look(ticks) => Verdict::Yield {
                traced: Some(rate.nanos(self.limit(reason, ticks))),
            },
            Stay::Sleep(ticks) => {
                if reason == Reason::Writeback {
                    self.writeback.fall_asleep();
                }
                let ticks = self.limit(reason, ticks);
                let fires = rate.fires(rate.tick_at(now), self.with_rounding(reason, ticks));
                Verdict::Sleep {
                    timeout: rate.nanos(ticks),
                    deadline: rate.instant_of(fires),
                }
            }
        }
    }

    /// A sleep is over that began at `began`, by a wake or by its deadline. Answers the delay as the
    /// law's trace line prints it: whole ticks, since p0 at most `timeout`.
    pub fn end(&mut self, reason: Reason, timeout: Nanos, began: Instant, now: Instant) -> Nanos {
        if reason == Reason::Writeback {
            self.writeback.wake_up();
        }
        self.delayed(reason, timeout, began, now)
    }

    /// The delay of a trace line from `began` to `now`: how many ticks began meanwhile.
    #[must_use]
    pub fn delayed(&self, reason: Reason, timeout: Nanos, began: Instant, now: Instant) -> Nanos {
        let rate = self.rate;
        let delayed = rate.nanos(rate.tick_at(now).since(rate.tick_at(began)));
        match reason {
            Reason::CongestionWait | Reason::WaitIffCongested => delayed,
            Reason::Writeback
            | Reason::Isolated
            | Reason::NoProgress
            | Reason::Congested
            | Reason::Turn => delayed.at_most(timeout),
        }
    }

    /// Whether anything can end a sleep before its deadline, with so many pages dirty or under writeback. Linux does not
    /// look.
    #[must_use]
    pub fn may_be_woken(&self, reason: Reason, write_pending: Pages) -> bool {
        let tidegate = self.tunables.law == ReclaimLaw::Tidegate && reason == Reason::Writeback;
        let looks = tidegate && self.tunables.wakes;
        !looks || !write_pending.is_zero()
    }

    /// Pages of the node have been written, whatever they are and wherever to; `last`: nothing more is under way. Answers
    /// who of those who sleep for WRITEBACK is to be woken.
    ///
    /// # Source
    /// Mechanisms 4.5, "Writeback wake", and vector T1.
    #[must_use]
    pub fn on_written(&mut self, pages: Pages, last: bool) -> Wake {
        if self.writeback.sleepers == 0 {
            return Wake::None;
        }
        self.writeback.written += pages.0;
        let wake = match self.tunables.law {
            ReclaimLaw::CongestionWait => Wake::None,
            ReclaimLaw::WritebackOnly | ReclaimLaw::Reasons | ReclaimLaw::Mild => {
                reasons::wake_for_written(&self.writeback)
            }
            ReclaimLaw::Tidegate => tidegate::wake_for_written(&mut self.writeback, last),
        };
        self.allowed(wake)
    }

    /// A direct reclaimer has looked and found that not too many pages are isolated: `room` more may
    /// be. Answers who of those who sleep for ISOLATED is to be woken.
    #[must_use]
    pub fn on_checked(&self, room: Pages) -> Wake {
        let wake = match self.tunables.law {
            ReclaimLaw::CongestionWait | ReclaimLaw::WritebackOnly => Wake::None,
            ReclaimLaw::Reasons | ReclaimLaw::Mild => Wake::All,
            ReclaimLaw::Tidegate => tidegate::wake_for_room(room),
        };
        self.allowed(wake)
    }

    /// A device is congested no more: who of those in `congestion_wait` and `wait_iff_congested` is to be
    /// woken.
    #[must_use]
    pub fn on_uncongested(&self) -> Wake {
        self.allowed(Wake::All)
    }

    /// A pass over a node has ended. `progress` as it stands then.
    ///
    /// # Source
    /// Mechanisms 4.5, `consider_reclaim_throttle` of 5.16-rc1.
    #[must_use]
    pub fn after_node(&self, progress: &Progress) -> After {
        match self.tunables.law {
            ReclaimLaw::Reasons => self.filtered(reasons::after_node(progress)),
            ReclaimLaw::CongestionWait
            | ReclaimLaw::WritebackOnly
            | ReclaimLaw::Mild
            | ReclaimLaw::Tidegate => After::default(),
        }
    }

    /// The passes over all nodes at one priority have ended.
    ///
    /// # Source
    /// Mechanisms 4.5, `consider_reclaim_throttle` of 5.16 final and later.
    #[must_use]
    pub fn after_nodes(&self, progress: &Progress) -> After {
        match self.tunables.law {
            ReclaimLaw::Mild => self.filtered(mild::after_nodes(progress)),
            ReclaimLaw::CongestionWait
            | ReclaimLaw::WritebackOnly
            | ReclaimLaw::Reasons
            | ReclaimLaw::Tidegate => After::default(),
        }
    }

    /// The background reclaimer starts (once in the life of a node): nobody sleeps.
    pub fn background_starts(&mut self) {
        self.writeback.sleepers = 0;
    }

    /// How many sleep for WRITEBACK now.
    #[must_use]
    pub fn writeback_sleepers(&self) -> u32 {
        self.writeback.sleepers
    }

    /// Pages written while somebody slept for it (`nr_throttled_written`).
    #[must_use]
    pub fn throttled_written(&self) -> Pages {
        Pages(self.writeback.written)
    }

    /// The timeout of `reason`, which an ablation may have changed.
    fn limit(&self, reason: Reason, ticks: Ticks) -> Ticks {
        match (reason, self.tunables.writeback_timeout) {
            (
                Reason::Writeback | Reason::CongestionWait | Reason::WaitIffCongested,
                Some(timeout),
            ) => self.rate.ticks_of(timeout),
            (_, _) => ticks,
        }
    }

    /// How long the timer of a sleep is set: `msleep`, which 5.15 uses for too many isolated, adds a tick.
    fn with_rounding(&self, reason: Reason, ticks: Ticks) -> Ticks {
        let msleep = match self.tunables.law {
            ReclaimLaw::CongestionWait | ReclaimLaw::WritebackOnly => reason == Reason::Isolated,
            ReclaimLaw::Reasons | ReclaimLaw::Mild | ReclaimLaw::Tidegate => false,
        };
        Ticks(ticks.0 + u64::from(msleep))
    }

    fn allowed(&self, wake: Wake) -> Wake {
        if self.tunables.wakes {
            wake
        } else {
            Wake::None
        }
    }

    fn filtered(&self, after: After) -> After {
        After {
            wake: self.allowed(after.wake),
            throttle: after
                .throttle
                .filter(|reason| !self.tunables.off.has(*reason)),
        }
    }
}

impl Writeback {
    fn fall_asleep(&mut self) {
        self.sleepers += 1;
        if self.sleepers == 1 {
            self.mark = self.written;
        }
    }

    fn wake_up(&mut self) {
        self.sleepers = self.sleepers.saturating_sub(1);
    }

    /// Pages written since the mark.
    fn since_mark(&self) -> u64 {
        self.written - self.mark
    }
}
