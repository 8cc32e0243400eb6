//! Reclaim by a task on its own behalf, over the zones of its list: which passes, what goes between
//! them, when to stop.
//!
//! ```text
//! let mut direct = Direct::begin(CLUSTER);
//! loop {
//!     match direct.step() {
//!         Step::Begin => count("allocstall"),
//!         Step::Shrink(round) => {
//!             for each zone of the list that is not left out (ZoneView::is_left_out) {
//!                 got += shrink(zone, round.priority, round.target);
//!             }
//!             direct.shrunk(got);
//!         }
//!         Step::WakeFlushers(pages) => ask each flusher for as many,
//!         Step::Wait => wait_iff_congested of the first zone, 100 ms,
//!         Step::Done(freed) => return answer(freed, scanned, all zones are hopeless),
//!     }
//! }
//! ```
//!
//! Invariants
//!   1. At most 13 rounds; the last looks at whole lists.
//!   2. The flushers are asked once a round, from the first on that left more looked at than one
//!      and a half times the target, for all that was looked at so far.
//!
//! Source: mechanisms 3.6; kernel-facts A5; Linux 3.0 mm/vmscan.c, do_try_to_free_pages(),
//! shrink_zones().

use policy::reclaim::direct::Got;
use policy::reclaim::scan::Priority;
use policy::units::Pages;

/// Below this priority a round ends with a wait.
const PATIENT: Priority = Priority(10);

/// The next step of a `Direct`'s owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Count a stall (`allocstall`).
    Begin,
    /// Shrink each zone of the list, then `Direct::shrunk`.
    Shrink(Round),
    /// Ask the flushers for this many pages.
    WakeFlushers(Pages),
    /// Wait until the first zone's devices are congested no more (`Reason::WaitIffCongested`).
    Wait,
    /// Enough, or nothing more to try: that many pages were freed.
    Done(Pages),
}

/// One round over the zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Share of each list to look at.
    pub priority: Priority,
    /// Pages after which the pass over one zone ends.
    pub target: Pages,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Begin,
    Shrink,
    /// A round has ended that did not free enough.
    Fell,
    Wait,
    Next,
    Done,
}

/// One direct reclaim.
#[derive(Clone, Debug)]
pub struct Direct {
    target: Pages,
    state: State,
    priority: Priority,
    freed: Pages,
    /// In this round.
    scanned: Pages,
    /// In all.
    total_scanned: Pages,
}

impl Direct {
    /// Reclaim of `target` pages (`scan::CLUSTER` in the kernel, whatever is to be allocated).
    #[must_use]
    pub fn begin(target: Pages) -> Self {
        Self {
            target: target.at_least(Pages(1)),
            state: State::Begin,
            priority: Priority::GENTLEST,
            freed: Pages::ZERO,
            scanned: Pages::ZERO,
            total_scanned: Pages::ZERO,
        }
    }

    /// The next step.
    #[must_use]
    pub fn step(&mut self) -> Step {
        loop {
            match self.state {
                State::Begin => {
                    self.state = State::Shrink;
                    return Step::Begin;
                }
                State::Shrink => {
                    return Step::Shrink(Round {
                        priority: self.priority,
                        target: self.target,
                    });
                }
                State::Fell => {
                    self.state = State::Wait;
                    if self.total_scanned.0 > self.target.0 + self.target.0 / 2 {
                        return Step::WakeFlushers(self.total_scanned);
                    }
                }
                State::Wait => {
                    self.state = State::Next;
                    if !self.scanned.is_zero() && self.priority < PATIENT {
                        return Step::Wait;
                    }
                }
                State::Next => match self.priority.raised() {
                    Some(next) => {
                        self.priority = next;
                        self.state = State::Shrink;
                    }
                    None => self.state = State::Done,
                },
                State::Done => return Step::Done(self.freed),
            }
        }
    }

    /// The round that `step` asked for has ended; `got` by all zones.
    pub fn shrunk(&mut self, got: Got) {
        self.freed += got.reclaimed;
        self.scanned = got.scanned;
        self.total_scanned += got.scanned;
        self.state = if self.freed >= self.target {
            State::Done
        } else {
            State::Fell
        };
    }

    /// A fatal end of the task: the next step is `Done`.
    pub fn stop(&mut self) {
        self.state = State::Done;
    }
}

/// The answer of a direct reclaim that freed `freed` pages. A reclaimer that freed none says one as
/// long as a zone of its list is not hopeless: there is no reason to kill a task then.
///
/// Deviation: only if it looked at pages. A reclaimer that did not would be back at once, and where
/// looking takes no time for ever.
#[must_use]
pub fn answer(freed: Pages, scanned: Pages, all_hopeless: bool) -> Pages {
    let may_hope = !all_hopeless && !scanned.is_zero();
    freed.at_least(Pages(u64::from(may_hope)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    fn got(reclaimed: u64, scanned: u64) -> Got {
        Got {
            reclaimed: Pages(reclaimed),
            scanned: Pages(scanned),
            ..Got::default()
        }
    }

    /// The events, a word each.
    fn run(mut round: impl FnMut(u8) -> Got) -> (String, Pages) {
        let mut direct = Direct::begin(Pages(32));
        let mut text = String::new();
        loop {
            match direct.step() {
                Step::Begin => text += "stall",
                Step::Shrink(asked) => {
                    assert_eq!(asked.target, Pages(32), "of each zone, in each round");
                    write!(text, " {}", asked.priority.0).expect("a string");
                    direct.shrunk(round(asked.priority.0));
                }
                Step::WakeFlushers(pages) => {
                    write!(text, " flush({})", pages.0).expect("a string");
                }
                Step::Wait => text += " wait",
                Step::Done(freed) => return (text, freed),
            }
        }
    }

    #[test]
    fn flushers_are_asked_from_49_pages_on_and_waits_begin_at_nine() {
        // 1/16, 1/8 ... of lists of 64 Ki pages that give nothing: nothing is looked at twice in a
        // round.
        let (text, freed) = run(|priority| got(0, if priority == 12 { 48 } else { 1 }));
        assert_eq!(
            text,
            "stall 12 11 flush(49) 10 flush(50) 9 flush(51) wait 8 flush(52) wait 7 flush(53) wait \
             6 flush(54) wait 5 flush(55) wait 4 flush(56) wait 3 flush(57) wait 2 flush(58) wait \
             1 flush(59) wait 0 flush(60) wait"
        );
        assert_eq!(freed, Pages::ZERO);
    }

    #[test]
    fn a_round_that_looks_at_nothing_does_not_wait() {
        let (text, _) = run(|_| got(0, 0));
        assert_eq!(text, "stall 12 11 10 9 8 7 6 5 4 3 2 1 0");
    }

    #[test]
    fn it_ends_with_the_round_that_has_enough() {
        let (text, freed) = run(|priority| got(if priority > 10 { 15 } else { 40 }, 40));
        assert_eq!(text, "stall 12 11 flush(80) 10");
        assert_eq!(freed, Pages(70));
    }

    #[test]
    fn a_stop_ends_it() {
        let mut direct = Direct::begin(Pages(32));
        assert_eq!(direct.step(), Step::Begin);
        assert!(matches!(direct.step(), Step::Shrink(_)));
        direct.shrunk(got(7, 50));
        direct.stop();
        assert_eq!(direct.step(), Step::Done(Pages(7)));
    }

    #[test]
    fn nobody_is_killed_while_a_zone_may_give_something() {
        // freed, scanned, all are hopeless, the answer
        for (freed, scanned, hopeless, says) in [
            (0, 100, false, 1),
            (0, 100, true, 0),
            (0, 0, false, 0),
            (5, 100, true, 5),
            (5, 100, false, 5),
        ] {
            assert_eq!(answer(Pages(freed), Pages(scanned), hopeless), Pages(says));
        }
    }
}
