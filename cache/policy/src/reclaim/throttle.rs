//! Why and for how long a reclaimer sleeps, and which event wakes which.
//!
//! A reclaimer that meets an obstacle says what it found (`Finding`, or the `Progress` of a pass).
//! The law makes of it a `Reason`, the reason and the state of the node a `Verdict`:
//!
//! ```text
//!   Finding, Progress --law--> Reason --begin()--> Go | Yield | Sleep { deadline }
//!                                                                  |
//!   on_written() ----- on_checked() ----- After::wake ----> Wake of the sleepers of one reason
//!                                                                  |
//!                                                     end() -> how long it was, in whole ticks
//! ```
//!
//! The laws are files of `history::reclaim`; their answers are types of `law`.
//!
//! Vocabulary: *delay*, what a trace line prints: how many ticks began during the sleep, in the
//! laws since p0 at most the timeout; *mark*, the count of pages written when the first of those
//! that sleep for WRITEBACK fell asleep.
//!
//! Invariants
//!   1. Every sleep has a deadline, a whole tick; none is set for less than a tick.
//!   2. Pages written count only while somebody sleeps for WRITEBACK.
//!   3. A flusher or an I/O thread (`Who::exempt`) never sleeps, under the laws since p0.
//!   4. With `Tunables::wakes` off nobody is woken; with a reason off nobody sleeps for it.
//!   5. Nothing here allocates; every call is O(1).
//!
//! Concurrency: plain data, one per node, behind a short lock of `mm`. `begin` before the sleep,
//! `end` after it, wakes after unlocking. A sleeper's ticket is made under the lock of `begin` and
//! taken out under that of the event, so that no wake between `begin` and the sleep is lost.
//!
//! Source: mechanisms 4; paper p0; Linux 5.15, 5.16-rc1, 5.17, 6.12 mm/vmscan.c:
//! reclaim_throttle(), consider_reclaim_throttle(), skip_throttle_noprogress(), shrink_node(),
//! shrink_inactive_list(), __acct_reclaim_writeback(); 5.15 mm/backing-dev.c: congestion_wait(),
//! wait_iff_congested().

pub mod law;
#[cfg(test)]
mod tests;

pub use self::law::{After, Facts, Finding, Progress, Wake, Who};
use self::law::{Sleep, ThrottleLaw, Writeback};
use super::reason::Reason;
use super::tunables::Tunables;
use crate::ticks::{TickRate, Ticks};
use crate::units::{Instant, Nanos, Pages};

/// The verdict on a reclaimer.
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

    fn law(&self) -> &'static dyn ThrottleLaw {
        self.tunables.law.throttle
    }

    /// Which reason a finding is, if it is one.
    ///
    /// # Source
    /// Mechanisms 2.5 (end), 4.1, 4.5.
    #[must_use]
    pub fn reason_of(&self, finding: Finding) -> Option<Reason> {
        let reason = self.law().reason_of(finding);
        reason.filter(|reason| !self.tunables.off.has(*reason))
    }

    /// Decides whether, and for how long, a reclaimer sleeps for `reason`. After `Sleep` comes
    /// `end`, exactly once.
    ///
    /// # Source
    /// Mechanisms 4.1, 4.3, 4.4.
    #[must_use]
    pub fn begin(&mut self, now: Instant, reason: Reason, who: Who, facts: &Facts) -> Verdict {
        if self.tunables.off.has(reason) {
            return Verdict::Go;
        }
        let rate = self.rate;
        match self.law().sleep(reason, who, facts, rate) {
            Sleep::Go => Verdict::Go,
            Sleep::Yield => Verdict::Yield { traced: None },
            Sleep::Traced(ticks) => Verdict::Yield {
                traced: Some(rate.nanos(self.limit(reason, ticks))),
            },
            Sleep::For(ticks) => {
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

    /// A sleep has ended that began at `began`, by a wake or by its deadline. Answers the delay as
    /// the law's trace line prints it: whole ticks, since p0 at most `timeout`.
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

    /// True if anything can end a sleep before its deadline, with `write_pending` pages dirty or
    /// under writeback. Linux does not look.
    #[must_use]
    pub fn may_be_woken(&self, reason: Reason, write_pending: Pages) -> bool {
        let looks = self.tunables.wakes && self.law().ends_without_writes(reason);
        !looks || !write_pending.is_zero()
    }

    /// Pages of the node have been written, whatever they are and wherever to; `last`: nothing more
    /// is under way. Answers which of those that sleep for WRITEBACK are to be woken.
    ///
    /// # Source
    /// Mechanisms 4.5, "Writeback wake", and vector T1.
    #[must_use]
    pub fn on_written(&mut self, pages: Pages, last: bool) -> Wake {
        if self.writeback.sleepers == 0 {
            return Wake::None;
        }
        self.writeback.written += pages.0;
        let wake = self
            .tunables
            .law
            .throttle
            .wake_for_written(&mut self.writeback, last);
        self.allowed(wake)
    }

    /// A direct reclaimer has looked and found that not too many pages are isolated: `room` more
    /// may be. Answers which of those that sleep for ISOLATED are to be woken.
    #[must_use]
    pub fn on_checked(&self, room: Pages) -> Wake {
        let wake = self.law().wake_for_room(room);
        self.allowed(wake)
    }

    /// A pass over a node has ended. `progress` as it stands then.
    ///
    /// # Source
    /// Mechanisms 4.5, `consider_reclaim_throttle` of 5.16-rc1.
    #[must_use]
    pub fn after_node(&self, progress: &Progress) -> After {
        self.filtered(self.law().after_node(progress))
    }

    /// The passes over all nodes at one priority have ended.
    ///
    /// # Source
    /// Mechanisms 4.5, `consider_reclaim_throttle` of 5.16 final and later.
    #[must_use]
    pub fn after_nodes(&self, progress: &Progress) -> After {
        self.filtered(self.law().after_nodes(progress))
    }

    /// The background reclaimer starts (once in the life of a node): nobody sleeps.
    pub fn background_starts(&mut self) {
        self.writeback.sleepers = 0;
    }

    /// Number of tasks that sleep for WRITEBACK now.
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

    /// The time for which the timer of a sleep is set.
    fn with_rounding(&self, reason: Reason, ticks: Ticks) -> Ticks {
        Ticks(ticks.0 + self.law().rounding(reason).0)
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
