//! First come, first served, with a fixed slice: a task that waits gets the CPU of a task that has
//! had it for so long.

use std::collections::VecDeque;

use ::env::TaskId;
use policy::units::Nanos;

use super::{Joins, Leaves, RunQueue};

/// Time that a task keeps its CPU while others wait for one.
const SLICE: u64 = Nanos::millis(3).0;

/// One queue for all CPUs.
pub(crate) struct FirstCome {
    waiting: VecDeque<TaskId>,
    /// By CPU, the end of the slice of its task.
    slice_end: Box<[u64]>,
}

impl FirstCome {
    pub(crate) fn new(cpus: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            slice_end: vec![0; cpus].into(),
        }
    }
}

impl RunQueue for FirstCome {
    fn join(&mut self, task: TaskId, _: usize, _: Joins, _: u64) -> bool {
        self.waiting.push_back(task);
        false
    }

    fn take(&mut self, _: usize, _: u64) -> Option<TaskId> {
        self.waiting.pop_front()
    }

    fn start(&mut self, cpu: usize, now: u64) {
        self.slice_end[cpu] = now + SLICE;
    }

    fn leave(&mut self, _: usize, task: TaskId, why: Leaves, _: u64) {
        if why == Leaves::Waits {
            self.waiting.push_back(task);
        }
    }

    fn look_at(&self, now: u64) -> u64 {
        let end = self.slice_end.iter().copied().min();
        end.expect("a lab has a CPU").max(now)
    }

    fn loses(&mut self, cpu: usize, now: u64) -> bool {
        self.slice_end[cpu] <= now
    }
}
