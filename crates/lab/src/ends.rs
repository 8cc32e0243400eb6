//! When the computation on each CPU ends, and which ends first.

use crate::event_queue::Place;

/// One end by CPU. Looked at once or more a step, so they are kept together, and the least is
/// remembered until it changes.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    /// By CPU; `NEVER` where nobody computes.
    until: Box<[Place]>,
    /// CPUs whose task was just put there: it is hard for others.
    fresh: u128,
    /// The least of `until`, and whose it is; none: look.
    least: Option<(Place, usize)>,
}

impl Ends {
    pub(crate) fn new(cpus: u32) -> Self {
        Self {
            until: (0..cpus).map(|_| Place::NEVER).collect(),
            fresh: 0,
            least: None,
        }
    }

    /// Of one CPU.
    pub(crate) fn of(&self, cpu: usize) -> Place {
        self.until[cpu]
    }

    /// Whether its task was just put there.
    pub(crate) fn is_fresh(&self, cpu: usize) -> bool {
        self.fresh >> cpu & 1 == 1
    }

    /// From now on, and whether its task was just put there.
    pub(crate) fn set(&mut self, cpu: usize, until: Place, fresh: bool) {
        self.until[cpu] = until;
        self.fresh = self.fresh & !(1 << cpu) | u128::from(fresh) << cpu;
        match self.least {
            Some((least, _)) if until < least => self.least = Some((until, cpu)),
            Some((_, whose)) if whose == cpu => self.least = None,
            _ => {}
        }
    }

    /// The least, and whose it is.
    pub(crate) fn least(&mut self) -> (Place, usize) {
        if let Some(least) = self.least {
            return least;
        }
        let mut least = (Place::NEVER, 0);
        for (cpu, until) in self.until.iter().enumerate() {
            if *until < least.0 {
                least = (*until, cpu);
            }
        }
        self.least = Some(least);
        least
    }

    /// The least times of CPUs whose task was just put there, and of the others.
    pub(crate) fn hard_and_soft(&mut self) -> (u64, u64) {
        if self.fresh == 0 {
            return (u64::MAX, self.least().0.time);
        }
        let (mut hard, mut soft) = (u64::MAX, u64::MAX);
        for (cpu, until) in self.until.iter().enumerate() {
            let to = if self.fresh >> cpu & 1 == 1 {
                &mut hard
            } else {
                &mut soft
            };
            *to = (*to).min(until.time);
        }
        (hard, soft)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_is_found_again_after_any_change() {
        let mut ends = Ends::new(5);
        let mut random = 9_u64;
        for seq in 0..2_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let (cpu, time) = ((random >> 33) as usize % 5, random >> 58);
            let until = if time == 0 {
                Place::NEVER
            } else {
                Place { time, seq }
            };
            ends.set(cpu, until, random >> 40 & 7 == 0);
            let least = (0..5).map(|cpu| ends.of(cpu)).min().unwrap();
            assert_eq!(ends.least().0, least);
            if least != Place::NEVER {
                let whose = ends.least().1;
                assert_eq!(ends.of(whose), least);
            }
            let of = |fresh| {
                let times = (0..5).filter(|cpu| ends.is_fresh(*cpu) == fresh);
                times.map(|cpu| ends.of(cpu).time).min().unwrap_or(u64::MAX)
            };
            assert_eq!((of(true), of(false)), ends.clone().hard_and_soft());
        }
    }
}
