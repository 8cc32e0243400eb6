//! When the computation on each CPU ends, and which ends first.

use crate::event_queue::Moment;

/// Bits of a CPU's number.
const CPU_BITS: u32 = 7;
/// CPUs a lab can have: the bits of the set of idle ones.
pub const CPUS_MAX: u32 = 1 << CPU_BITS;
const _: () = assert!(CPUS_MAX == u128::BITS);

/// One end by CPU. Looked at once or more a step, so they are kept together, and the least is
/// remembered until it changes.
#[derive(Clone, Debug)]
pub(crate) struct CpuDeadlines {
    /// By CPU: time, rank and whose it is in one number, so that the least is found without a
    /// branch for each.
    until: Box<[u128]>,
    /// CPUs whose task was just put there: it is hard for others.
    fresh: u128,
    /// The least of `until`; none: look.
    least: Option<u128>,
}

/// Nobody computes.
const NEVER: u128 = u128::MAX;

fn packed(until: Moment, cpu: usize) -> u128 {
    if until == Moment::NEVER {
        return NEVER;
    }
    debug_assert!(until.seq < 1 << (u64::BITS - CPU_BITS), "{until:?}");
    u128::from(until.time) << 64 | u128::from(until.seq << CPU_BITS) | cpu as u128
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the two halves, one after the other"
)]
fn unpacked(packed: u128) -> (Moment, usize) {
    if packed == NEVER {
        return (Moment::NEVER, 0);
    }
    let (time, low) = ((packed >> 64) as u64, packed as u64);
    let seq = low >> CPU_BITS;
    let whose = low & ((1 << CPU_BITS) - 1);
    (Moment { time, seq }, whose as usize)
}

impl CpuDeadlines {
    pub(crate) fn new(cpus: u32) -> Self {
        Self {
            until: (0..cpus).map(|_| NEVER).collect(),
            fresh: 0,
            least: None,
        }
    }

    /// Of one CPU.
    pub(crate) fn of(&self, cpu: usize) -> Moment {
        unpacked(self.until[cpu]).0
    }

    /// True if its task was just put there.
    pub(crate) fn is_fresh(&self, cpu: usize) -> bool {
        self.fresh >> cpu & 1 == 1
    }

    /// From now on, and whether its task was just put there.
    pub(crate) fn set(&mut self, cpu: usize, until: Moment, fresh: bool) {
        let until = packed(until, cpu);
        let before = core::mem::replace(&mut self.until[cpu], until);
        // A store of a part of it only if it changes: the look at all of it that follows waits for
        // that.
        if fresh || self.fresh != 0 {
            self.fresh = self.fresh & !(1 << cpu) | u128::from(fresh) << cpu;
        }
        match self.least {
            Some(least) if until < least => self.least = Some(until),
            Some(least) if before == least => self.least = None,
            _ => {}
        }
    }

    /// The least, and whose it is.
    pub(crate) fn least(&mut self) -> (Moment, usize) {
        let until = &self.until;
        let least = || until.iter().copied().fold(NEVER, u128::min);
        unpacked(*self.least.get_or_insert_with(least))
    }

    /// The least times of CPUs whose task was just put there, and of the others.
    pub(crate) fn hard_and_soft(&mut self) -> (u64, u64) {
        if self.fresh == 0 {
            return (u64::MAX, self.least().0.time);
        }
        let (mut hard, mut soft) = (u64::MAX, u64::MAX);
        for cpu in 0..self.until.len() {
            let to = if self.is_fresh(cpu) {
                &mut hard
            } else {
                &mut soft
            };
            *to = (*to).min(self.of(cpu).time);
        }
        (hard, soft)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_is_found_again_after_any_change() {
        let mut deadlines = CpuDeadlines::new(5);
        let mut random = 9_u64;
        for seq in 0..2_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let (cpu, time) = ((random >> 33) as usize % 5, random >> 58);
            let until = if time == 0 {
                Moment::NEVER
            } else {
                Moment { time, seq }
            };
            deadlines.set(cpu, until, random >> 40 & 7 == 0);
            let least = (0..5).map(|cpu| deadlines.of(cpu)).min().unwrap();
            assert_eq!(deadlines.least().0, least);
            if least != Moment::NEVER {
                let whose = deadlines.least().1;
                assert_eq!(deadlines.of(whose), least);
            }
            let of = |fresh| {
                let times = (0..5).filter(|cpu| deadlines.is_fresh(*cpu) == fresh);
                times
                    .map(|cpu| deadlines.of(cpu).time)
                    .min()
                    .unwrap_or(u64::MAX)
            };
            assert_eq!((of(true), of(false)), deadlines.clone().hard_and_soft());
        }
    }
}
