//! When a task loses its CPU to a task that waits for it.
//!
//! There are two ways. *At once*: when it has had its slice, whatever the waiting task has had. *At
//! ticks*, as Linux 6.12 shares a CPU among tasks of one weight: the scheduler looks when a task is
//! woken and when the tick comes, and each time lets a task in only if it has had no more of the
//! CPU than its share.
//!
//! ```text
//!   woken, has had its share or less, nobody else waits     takes the CPU at once
//!   woken, has had more, or others wait too                 at the next tick by which it has not had more
//! ```
//!
//! So a task that hardly runs is let in at once, and a task that has just run for a millisecond
//! waits until others have, and then for the tick.
//!
//! Vocabulary: a task *owes* what it has run while others waited (in Linux: twice the lag of one of
//! two tasks). It is paid by what others run afterwards, whether it waits or sleeps; once a CPU
//! falls idle, nobody owes anything.
//!
//! Source: Linux 6.12 kernel/sched/fair.c: pick_eevdf(), check_preempt_wakeup_fair(),
//! place_entity(), entity_tick(), update_entity_lag() (lag is at most a tick), dequeue_entities()
//! (a task that owes stays until it does not, or the CPU is idle), sysctl_sched_base_slice,
//! get_update_sysctl_factor(). In a guest of 250 ticks a second short of memory, kswapd runs 1.6 ms
//! (median) after its wake, and where it loses its CPU it is away for 4.0 ms.
//! Deviations: those that wait stand in one line, first come, first served, not by deadline;
//! several CPUs have one account.

use policy::units::Nanos;

/// How long a task keeps its CPU while others wait for one (Linux: `sched_base_slice`, 3 ms).
const SLICE: u64 = Nanos::millis(3).0;
/// The same of Linux 6.12 on one CPU; as often as the CPUs can be halved it is that much longer.
const BASE_SLICE: u64 = Nanos::micros(750).0;

/// The rule of a lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slices {
    /// How long a task keeps its CPU.
    pub(crate) length: u64,
    /// Every so many nanoseconds it is looked whether it has; zero: at once.
    tick: u64,
}

impl Slices {
    /// As soon as a slice is over.
    pub(crate) const AT_ONCE: Self = Self {
        length: SLICE,
        tick: 0,
    };

    /// As Linux 6.12 with `hz` ticks a second.
    pub(crate) const fn at_ticks(hz: u32, cpus: u32) -> Self {
        Self {
            length: BASE_SLICE * (1 + cpus.ilog2() as u64),
            tick: Nanos::secs(1).0 / hz as u64,
        }
    }

    /// Whether what tasks have had counts.
    pub(crate) const fn are_fair(self) -> bool {
        self.tick > 0
    }

    /// When slices of which the first is over at `end` are looked at.
    pub(crate) const fn looked_at(self, end: u64) -> u64 {
        if self.tick == 0 {
            return end;
        }
        end.div_ceil(self.tick) * self.tick
    }

    /// The most that a task owes.
    const fn owed_most(self) -> u64 {
        2 * self.tick
    }
}

/// What a task has had beyond its share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    owes: u64,
    /// What all had run when that was so.
    paid_at: u64,
    /// How often a CPU had been idle then.
    idles: u64,
}

/// What all tasks of a lab have run, on a CPU of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Worked {
    /// Nanoseconds.
    pub(crate) time: u64,
    /// How often a CPU has been idle.
    pub(crate) idles: u64,
}

impl Share {
    /// It leaves its CPU, which it has `kept` while others waited; all have run `worked`, that
    /// included.
    pub(crate) fn leaves(&mut self, kept: u64, worked: Worked, slices: Slices) {
        self.owes = (self.owes + kept).min(slices.owed_most());
        self.paid_at = worked.time;
        self.idles = worked.idles;
    }

    /// What it still owes.
    pub(crate) fn pays(&mut self, worked: Worked) -> u64 {
        let others = worked.time.saturating_sub(self.paid_at);
        self.owes = if worked.idles == self.idles {
            self.owes.saturating_sub(others)
        } else {
            0
        };
        self.paid_at = worked.time;
        self.idles = worked.idles;
        self.owes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn worked(time: u64) -> Worked {
        Worked { time, idles: 0 }
    }

    #[test]
    fn slices_are_looked_at_by_ticks_or_as_they_end() {
        let ticks = Slices::at_ticks(250, 1);
        assert_eq!(ticks.length, 750_000);
        let looked_at = [0, 1, 4 * MS, 4 * MS + 1].map(|end| ticks.looked_at(end));
        assert_eq!(looked_at, [0, 4 * MS, 4 * MS, 8 * MS]);
        assert_eq!(Slices::at_ticks(1000, 4).length, 2_250_000);
        assert_eq!(Slices::AT_ONCE.looked_at(5), 5);
    }

    #[test]
    fn what_a_task_has_kept_from_others_they_get_back() {
        let slices = Slices::at_ticks(250, 1);
        let mut share = Share::default();
        assert_eq!(share.pays(worked(7 * MS)), 0);
        share.leaves(MS, worked(8 * MS), slices);
        assert_eq!(share.pays(worked(8 * MS)), MS);
        assert_eq!(share.pays(worked(8 * MS + 300_000)), 700_000);
        share.leaves(MS, worked(10 * MS), slices);
        assert_eq!(share.pays(worked(11 * MS)), 700_000);
        assert_eq!(share.pays(worked(12 * MS)), 0);
        share.leaves(100 * MS, worked(200 * MS), slices);
        assert_eq!(
            share.pays(worked(200 * MS)),
            8 * MS,
            "no more than two ticks"
        );
        let idle = Worked {
            time: 200 * MS,
            idles: 1,
        };
        assert_eq!(share.pays(idle), 0, "a CPU was idle");
    }
}
