//! The background reclaimer's work on the zones of a node, from the lowest up to the highest that
//! is short.
//!
//! ```text
//!   round at priority p:   find     highest zone ... lowest   ages each, stops at the first below HIGH: the end
//!                          shrink   lowest ... end            those below HIGH + gap
//!                          judge    lowest ... end            below HIGH: not balanced; below MIN: no wait
//!   all balanced -> done   else p < 10: wait;   32 freed: over again at 12;   p - 1;   after 0: over again at 12
//! ```
//!
//! Shrinking begins below: allocation goes from the highest zone down, and would else take from
//! behind the reclaimer.
//!
//! Invariants
//!   1. A balance ends only when no zone is below HIGH, hopeless ones apart, or by `stop`. Its
//!      owner has to see to it that a zone of which nothing comes becomes hopeless (`Prospects`).
//!   2. A pass has no target: all zones are under the same pressure.
//!
//! Source: mechanisms 3.5; kernel-facts A5; Linux 3.0 mm/vmscan.c, balance_pgdat().

use super::ZoneView;
use policy::reclaim::direct::Got;
use policy::reclaim::scan::Priority;
use policy::units::Pages;

/// Below this priority a round ends with a wait.
const PATIENT: Priority = Priority(10);
/// A zone is shrunk up to this part of it above HIGH, or by LOW, if that is less.
const GAP_PART: u64 = 100;

/// The next step of a `Balance`'s owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The priorities start over: count it (`pageoutrun`).
    Begin,
    /// Age a cluster of a zone's anonymous pages, if the inactive ones are few.
    Age {
        /// Which, from the lowest.
        zone: usize,
    },
    /// Shrink a zone, see what may be hoped of it (`Prospects::judge`), then `Balance::shrunk`.
    Shrink {
        /// Which, from the lowest.
        zone: usize,
        /// Share of each list to look at.
        priority: Priority,
    },
    /// Sleep until a device is congested no more (`Reason::CongestionWait`).
    Wait,
    /// It would wait, but a zone is below MIN: count it (`kswapd_skip_congestion_wait`).
    SkipWait,
    /// Over: that many pages were freed.
    Done(Pages),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Begin,
    /// Find the end: from this zone down, `None` below the lowest.
    Find(Option<usize>),
    /// The zone was aged.
    Aged(usize),
    /// Shrink from this zone up.
    Shrink(usize),
    /// The zone was shrunk, or had enough.
    Judge(usize),
    RoundOver,
    Waited,
    Done,
}

/// One balance of a node.
#[derive(Clone, Debug)]
pub struct Balance {
    cluster: Pages,
    state: State,
    priority: Priority,
    /// The highest zone that is shrunk.
    end: usize,
    all_balanced: bool,
    below_min: bool,
    /// Since the priorities started over.
    scanned: Pages,
    freed: Pages,
    /// Before that.
    freed_before: Pages,
}

impl Balance {
    /// `cluster`: the number of pages that is progress (`Tunables::cluster`).
    #[must_use]
    pub fn begin(cluster: Pages) -> Self {
        Self {
            cluster,
            state: State::Begin,
            priority: Priority::GENTLEST,
            end: 0,
            all_balanced: true,
            below_min: false,
            scanned: Pages::ZERO,
            freed: Pages::ZERO,
            freed_before: Pages::ZERO,
        }
    }

    /// The next step. `zones`: the node's as they are now, from the lowest up, the same ones in
    /// each step.
    #[must_use]
    pub fn step(&mut self, zones: &[ZoneView]) -> Step {
        loop {
            match self.state {
                State::Begin => {
                    self.start_over();
                    self.state = State::Find(zones.len().checked_sub(1));
                    return Step::Begin;
                }
                State::Find(None) => self.state = State::Done,
                State::Find(Some(zone)) if zones[zone].is_left_out(self.priority) => {
                    self.state = State::Find(zone.checked_sub(1));
                }
                State::Find(Some(zone)) => {
                    self.state = State::Aged(zone);
                    return Step::Age { zone };
                }
                State::Aged(zone) => {
                    self.state = if zones[zone].is_above(zones[zone].marks.high, false) {
                        State::Find(zone.checked_sub(1))
                    } else {
                        self.end = zone;
                        State::Shrink(0)
                    };
                }
                State::Shrink(at) if at > self.end => self.state = State::RoundOver,
                State::Shrink(at) if zones[at].is_left_out(self.priority) => {
                    self.state = State::Shrink(at + 1);
                }
                State::Shrink(at) => {
                    self.state = State::Judge(at);
                    let enough = zones[at].marks.high + gap(&zones[at]);
                    if !zones[at].is_above(enough, at < self.end) {
                        return Step::Shrink {
                            zone: at,
                            priority: self.priority,
                        };
                    }
                }
                State::Judge(at) => {
                    self.judge(at, &zones[at]);
                    self.state = State::Shrink(at + 1);
                }
                State::RoundOver => {
                    self.state = if self.all_balanced {
                        State::Done
                    } else {
                        State::Waited
                    };
                    let waits = !self.scanned.is_zero() && self.priority < PATIENT;
                    if !self.all_balanced && waits {
                        return if self.below_min {
                            Step::SkipWait
                        } else {
                            Step::Wait
                        };
                    }
                }
                State::Waited => self.next_round(zones.len()),
                State::Done => return Step::Done(self.freed_before + self.freed),
            }
        }
    }

    /// The pass that `step` asked for has ended.
    pub fn shrunk(&mut self, got: Got) {
        self.scanned += got.scanned;
        self.freed += got.reclaimed;
    }

    /// A fatal end: the next step is `Done`.
    pub fn stop(&mut self) {
        self.state = State::Done;
    }

    fn start_over(&mut self) {
        self.priority = Priority::GENTLEST;
        self.freed_before += self.freed;
        self.freed = Pages::ZERO;
        self.scanned = Pages::ZERO;
        self.begin_round();
    }

    fn begin_round(&mut self) {
        self.all_balanced = true;
        self.below_min = false;
    }

    fn judge(&mut self, at: usize, zone: &ZoneView) {
        if zone.hopeless {
            // The others need not keep back anything for it.
            if at == self.end {
                self.end = self.end.saturating_sub(1);
            }
            return;
        }
        let for_higher = at < self.end;
        if !zone.is_above(zone.marks.high, for_higher) {
            self.all_balanced = false;
            self.below_min |= !zone.is_above(zone.marks.min, for_higher);
        }
    }

    fn next_round(&mut self, zones: usize) {
        let next = self.priority.raised();
        self.state = match next {
            Some(priority) if self.freed < self.cluster => {
                self.priority = priority;
                self.begin_round();
                State::Find(zones.checked_sub(1))
            }
            _ => State::Begin,
        };
    }
}

/// A zone is shrunk until it is this far above HIGH.
fn gap(zone: &ZoneView) -> Pages {
    zone.marks
        .low
        .at_most(Pages(zone.size.0.div_ceil(GAP_PART)))
}

#[cfg(test)]
mod tests;
