//! One request for a run, up to Linux 3.3: what is tried, in which order, and when to give up.
//!
//! ```text
//!   take above LOW, above MIN -> first pass -> take -> reclaim -> take -> last pass -> take -> single pages
//!                                   |                    ^
//!                                   '-- left out --------'   or, with 7b, single pages
//! ```
//!
//! Source: mechanisms 1.6, 8.3, 8.5; kernel-facts A2, A5; Linux 3.2 mm/page_alloc.c,
//! __alloc_pages_slowpath(), __alloc_pages_direct_compact(), __alloc_pages_direct_reclaim(), for
//! GFP_TRANSHUGE.

use super::defer::Deferral;
use super::law::Scans;
use super::suitable::Suitable;
use policy::place::search::Floor;

/// The next step of an `Attempt`'s owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Take a run that is free above a mark, then `took`.
    Take(Floor),
    /// Move pages, zone by zone until one has a run above LOW; then take one, and `compacted`.
    Compact(Pass),
    /// Reclaim for it, then `reclaimed`.
    Reclaim,
    /// Take single pages.
    Fail,
}

/// Which pass over the zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Before reclaim.
    First,
    /// After it.
    Last,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Low,
    Min,
    First,
    Reclaim,
    Reclaimed,
    Last,
    Fail,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Attempt {
    scans: Scans,
    state: State,
    /// The first pass was left out.
    left_out: bool,
}

impl Attempt {
    /// A request of a column.
    #[must_use]
    pub fn begin(scans: Scans) -> Self {
        Self {
            scans,
            state: State::Low,
            left_out: false,
        }
    }

    /// The next step. `deferral`: of the first zone of the list.
    #[must_use]
    pub fn step(&mut self, deferral: &mut Deferral) -> Step {
        loop {
            match self.state {
                State::Low => {
                    self.state = State::Min;
                    return Step::Take(Floor::Low);
                }
                State::Min => {
                    self.state = State::First;
                    return Step::Take(Floor::Min);
                }
                State::First => {
                    self.left_out = self.scans.is_deferred(deferral);
                    if !self.left_out {
                        self.state = State::Reclaim;
                        return Step::Compact(Pass::First);
                    }
                    self.state = if self.scans.deferred_gives_up {
                        State::Fail
                    } else {
                        State::Reclaim
                    };
                }
                State::Reclaim => {
                    self.state = State::Last;
                    return Step::Reclaim;
                }
                State::Reclaimed => {
                    self.state = State::Last;
                    return Step::Take(Floor::Min);
                }
                State::Last => {
                    self.state = State::Fail;
                    let left_out = if self.scans.asks_once {
                        self.left_out
                    } else {
                        self.scans.is_deferred(deferral)
                    };
                    if !left_out {
                        return Step::Compact(Pass::Last);
                    }
                }
                State::Fail => return Step::Fail,
            }
        }
    }

    /// A pass has ended: the answer of the zones, and if there was a run then.
    pub fn compacted(&self, deferral: &mut Deferral, pass: Pass, answer: Suitable, got: bool) {
        if answer == Suitable::Skipped {
            return;
        }
        if got {
            deferral.succeeded();
        } else if pass == Pass::Last || !self.scans.defers_after_last {
            deferral.failed();
        }
    }

    /// Reclaim has ended.
    pub fn reclaimed(&mut self, made_progress: bool) {
        if made_progress {
            self.state = State::Reclaimed;
        }
    }
}

impl Scans {
    /// True if a request at this moment leaves the zone alone.
    #[must_use]
    pub fn is_deferred(&self, deferral: &mut Deferral) -> bool {
        self.defers && deferral.is_deferred()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compact::patches::{Patch, Patches};

    /// The words of one request in which nothing ever is found.
    fn in_vain(scans: Scans, deferral: &mut Deferral) -> String {
        let mut attempt = Attempt::begin(scans);
        let mut words = Vec::new();
        loop {
            match attempt.step(deferral) {
                Step::Take(_) => {}
                Step::Compact(pass) => {
                    words.push(format!("{pass:?}"));
                    attempt.compacted(deferral, pass, Suitable::Partial, false);
                }
                Step::Reclaim => {
                    words.push("reclaim".to_owned());
                    attempt.reclaimed(true);
                }
                Step::Fail => return words.join(" "),
            }
        }
    }

    fn requests(scans: Scans, count: usize) -> Vec<String> {
        let mut deferral = Deferral::default();
        (0..count).map(|_| in_vain(scans, &mut deferral)).collect()
    }

    #[test]
    fn a_first_pass_in_vain_has_the_last_one_left_out() {
        // Each asks twice: at shift 1 the second question may, at shift 2 the fourth.
        let said = requests(Scans::LINUX_3_2, 6);
        assert_eq!(
            said,
            [
                "First reclaim",
                "First reclaim",
                "reclaim",
                "First reclaim",
                "reclaim",
                "reclaim"
            ]
        );
    }

    #[test]
    fn with_seven_the_first_request_has_both_and_those_left_out_give_up() {
        let seven = Scans::of(Patches::up_to(7));
        assert_eq!(
            requests(seven, 5),
            ["First reclaim Last", "", "First reclaim Last", "", ""]
        );
        let without = Scans::of(Patches::up_to(7).without(Patch::DeferredGivesUp));
        assert_eq!(requests(without, 3)[1], "reclaim Last");
    }

    #[test]
    fn andrea_asks_once_and_reclaims_in_any_case() {
        assert_eq!(
            requests(Scans::ANDREA, 5),
            [
                "First reclaim Last",
                "reclaim",
                "First reclaim Last",
                "reclaim",
                "reclaim"
            ]
        );
    }

    #[test]
    fn nobody_is_left_out_without_deferral() {
        let never = Scans {
            defers: false,
            ..Scans::LINUX_3_2
        };
        assert!(
            requests(never, 4)
                .iter()
                .all(|said| said == "First reclaim Last")
        );
    }
}
