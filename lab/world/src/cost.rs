//! The cost of a unit of each kind of work in CPU time.
//!
//! Costs are picoseconds per unit, so that a cost below a nanosecond is exact. `Work::User` is
//! reported in nanoseconds and always costs what it says.

use ::env::Work;
use policy::units::Nanos;

/// Picoseconds in a nanosecond.
const PICOS: u64 = 1_000;

/// CPU time per unit of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostTable {
    picos: [u64; Work::COUNT],
    frames_alone: bool,
}

impl CostTable {
    /// Nothing costs anything but the program's own computing (`Work::User`).
    #[must_use]
    pub const fn zero() -> Self {
        let mut picos = [0; Work::COUNT];
        picos[Work::User as usize] = PICOS;
        Self {
            picos,
            frames_alone: false,
        }
    }

    /// The same table where each frame is allocated for itself, as in Linux: `Work::Drawn` is
    /// `Work::Alloc` too.
    #[must_use]
    pub const fn with_frames_alone(mut self) -> Self {
        self.frames_alone = true;
        self
    }

    pub(crate) const fn frames_alone(&self) -> bool {
        self.frames_alone
    }

    /// The same table with one unit of `work` at `cost`.
    #[must_use]
    pub const fn with(self, work: Work, cost: Nanos) -> Self {
        self.with_picos(work, cost.0 * PICOS)
    }

    /// The same table with one unit of `work` at `picos` picoseconds.
    ///
    /// # Panics
    /// For `Work::User`, whose unit is the nanosecond.
    #[must_use]
    pub const fn with_picos(mut self, work: Work, picos: u64) -> Self {
        assert!(
            !matches!(work, Work::User),
            "user time is reported in nanoseconds already"
        );
        self.picos[work as usize] = picos;
        self
    }

    /// Every cost but that of `Work::User` times `numerator / denominator`, rounded down to the
    /// picosecond: another machine, or an ablation.
    #[must_use]
    pub fn scaled(mut self, numerator: u32, denominator: u32) -> Self {
        for work in Work::ALL {
            if work != Work::User {
                let cost = &mut self.picos[work as usize];
                *cost = cost.saturating_mul(u64::from(numerator)) / u64::from(denominator);
            }
        }
        self
    }

    /// The same on a machine smaller by `shrink`, on which one page stands for that many: what is
    /// done page by page, call by call, request by request or scan by scan costs `shrink` times as
    /// much, so that the same share of memory takes the same time. Costs that come with time do not
    /// grow: a switch, a pass of balancing, a visit of the flusher.
    #[must_use]
    pub fn shrunk(mut self, shrink: u32) -> Self {
        for work in Work::ALL {
            if !matches!(
                work,
                Work::User | Work::Switch | Work::Balance | Work::VisitFile
            ) {
                let cost = &mut self.picos[work as usize];
                *cost = cost.saturating_mul(u64::from(shrink));
            }
        }
        self
    }

    /// Picoseconds per unit.
    #[must_use]
    pub const fn picos(&self, work: Work) -> u64 {
        self.picos[work as usize]
    }

    /// Nanoseconds of `units` units; what does not make one goes to `rest`, in picoseconds, and is
    /// charged when it does. Stops at half a year.
    #[inline]
    pub(crate) const fn charge(&self, work: Work, units: u64, rest: &mut u64) -> u64 {
        let picos = self.picos[work as usize];
        // The usual case, without a division that the next charge would have to wait for.
        if picos.is_multiple_of(PICOS) {
            return (picos / PICOS).saturating_mul(units);
        }
        let total = picos.saturating_mul(units).saturating_add(*rest);
        *rest = total % PICOS;
        total / PICOS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_a_smaller_machine_pages_cost_more_and_switches_do_not() {
        let table = CostTable::zero()
            .with(Work::Scan, Nanos(500))
            .with(Work::Switch, Nanos(2_000))
            .shrunk(32);
        assert_eq!(table.picos(Work::Scan), 32 * 500_000);
        assert_eq!(table.picos(Work::Switch), 2_000_000);
        assert_eq!(table.picos(Work::User), PICOS);
    }

    #[test]
    fn user_time_is_what_it_says_and_the_rest_is_set_by_kind() {
        let table = CostTable::zero()
            .with(Work::Copy, Nanos(300))
            .with_picos(Work::Scan, 1_500);
        let mut rest = 0;
        assert_eq!(table.charge(Work::User, 7, &mut rest), 7);
        assert_eq!(table.charge(Work::Copy, 2, &mut rest), 600);
        assert_eq!(table.charge(Work::Scan, 3, &mut rest), 4);
        assert_eq!((table.charge(Work::Free, 3, &mut rest), rest), (0, 500));
        assert_eq!(table.charge(Work::Scan, 1, &mut rest), 2);
        assert_eq!(
            (table.charge(Work::Scan, u64::MAX, &mut rest), rest),
            (u64::MAX / PICOS, 615)
        );
        assert_eq!(table.scaled(1, 3).picos(Work::Scan), 500);
    }
}
