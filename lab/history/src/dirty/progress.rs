//! Watches whether a device that holds its writers back completes anything at all.
//!
//! A writer that waits because there is no room waits for completions. While they come, that is
//! throttling; when none came for 200 ms in which some writer had to wait, it is a different wait
//! with a different name, because another cause has to be looked for.

use policy::dirty::PauseReason;
use policy::ticks::{TickRate, Ticks};
use policy::units::Pages;

/// A device that completes nothing for a fifth of a second makes no progress.
const NO_PROGRESS_PER_SECOND: u64 = 5;

/// The last look at a device's completions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// Completions when a writer first had to wait for more, and when that was.
    blocked: Option<(Pages, Ticks)>,
}

impl Progress {
    /// A writer must pause. `blocked`: there is no room for it at all, whatever it dirtied.
    pub(crate) fn reason(
        &mut self,
        rate: TickRate,
        now: Ticks,
        written: Pages,
        blocked: bool,
    ) -> PauseReason {
        if !blocked {
            self.on_room();
            return PauseReason::OverShare;
        }
        match self.blocked {
            Some((before, since)) if before == written => {
                let standstill = now.since(since) >= rate.second_over(NO_PROGRESS_PER_SECOND);
                if standstill {
                    PauseReason::NoProgress
                } else {
                    PauseReason::OverShare
                }
            }
            Some(_) | None => {
                self.blocked = Some((written, now));
                PauseReason::OverShare
            }
        }
    }

    /// A writer found room: nobody waits for completions only.
    pub(crate) fn on_room(&mut self) {
        self.blocked = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_standstill_of_a_fifth_of_a_second_has_the_other_name() {
        let rate = TickRate::new(250);
        let mut progress = Progress::default();
        let mut reason =
            |now, written, blocked| progress.reason(rate, Ticks(now), Pages(written), blocked);
        // Long idle before: the first wait starts the clock.
        assert_eq!(reason(100_000, 10, true), PauseReason::OverShare);
        assert_eq!(reason(100_049, 10, true), PauseReason::OverShare);
        assert_eq!(reason(100_050, 10, true), PauseReason::NoProgress);
        assert_eq!(reason(100_100, 11, true), PauseReason::OverShare);
        assert_eq!(reason(100_140, 11, true), PauseReason::OverShare);
        // There was room in between: the clock starts afresh.
        assert_eq!(reason(100_141, 11, false), PauseReason::OverShare);
        assert_eq!(reason(100_160, 11, true), PauseReason::OverShare);
    }
}
