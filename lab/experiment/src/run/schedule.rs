//! Which run a worker makes next, so that all have work to the end.
//!
//! Repetition by repetition: an interrupted experiment has its rows and columns alike. Within the
//! first in the order of the scenario; within the others the longest first, by what the cell took
//! before: the last cell is then a short run, and not a run of ten seconds beside idle cores.

/// The runs that have not begun, and what those took that have ended.
pub(super) struct Schedule {
    /// Runs of one repetition: run `at` is of cell `at % cells`.
    cells: usize,
    begun: Vec<bool>,
    /// Longest run of each cell so far, s.
    took: Vec<f64>,
}

impl Schedule {
    /// For `runs` runs, those of a repetition side by side, `cells` of them.
    pub(super) fn new(runs: usize, cells: usize) -> Self {
        let cells = cells.max(1);
        Self {
            cells,
            begun: vec![false; runs],
            took: vec![0.0; cells],
        }
    }

    /// Number of the run that is to begin now.
    pub(super) fn next(&mut self) -> Option<usize> {
        let first = self.begun.iter().position(|begun| !begun)?;
        let end = (first / self.cells + 1) * self.cells;
        let left = (first..end.min(self.begun.len())).filter(|at| !self.begun[*at]);
        // Of equals the first: `max_by` answers the last.
        let longest = left
            .rev()
            .max_by(|a, b| self.of(*a).total_cmp(&self.of(*b)))?;
        self.begun[longest] = true;
        Some(longest)
    }

    /// The run has ended after that many seconds.
    pub(super) fn ended(&mut self, at: usize, seconds: f64) {
        let took = &mut self.took[at % self.cells];
        *took = took.max(seconds);
    }

    fn of(&self, at: usize) -> f64 {
        if at < self.cells {
            return 0.0;
        }
        self.took[at % self.cells]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_repetition_is_in_order_and_the_others_longest_first() {
        let mut schedule = Schedule::new(9, 3);
        let next = |schedule: &mut Schedule| schedule.next().unwrap();
        assert_eq!(next(&mut schedule), 0);
        assert_eq!(next(&mut schedule), 1);
        schedule.ended(1, 5.0);
        assert_eq!(next(&mut schedule), 2, "a repetition ends before the next");
        schedule.ended(2, 9.0);
        // The first run has not ended: it takes its turn behind those that are known.
        assert_eq!(
            [(); 3].map(|()| next(&mut schedule)),
            [3 + 2, 3 + 1, 3],
            "longest first"
        );
        schedule.ended(0, 20.0);
        assert_eq!([(); 3].map(|()| next(&mut schedule)), [6, 8, 7]);
        assert_eq!(schedule.next(), None);
    }

    #[test]
    fn equals_keep_their_order_and_every_run_is_made_once() {
        let mut schedule = Schedule::new(7, 3);
        let all: Vec<_> = core::iter::from_fn(|| schedule.next()).collect();
        assert_eq!(all, [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(Schedule::new(0, 0).next(), None);
    }
}
