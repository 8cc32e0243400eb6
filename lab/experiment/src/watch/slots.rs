//! Sums over equal slots of time: sleepers by cause, pages scanned.
//!
//! The slots are as many as a plot can show; when a run outlasts them, neighbours are joined and
//! each slot lasts twice as long.

use env::Cause;
use policy::units::{Instant, Nanos, Pages};

use super::{CAUSES_MOST, is_idle, number, pages, seconds};
use crate::outcome::Slots;

/// Slots at most.
const SLOTS_MOST: usize = 1200;
/// Their first length.
const FIRST: Nanos = Nanos::millis(50);

/// Scanned and freed pages of one slot: by callers, in the background.
#[derive(Clone, Copy, Debug, Default)]
struct Reclaim {
    scanned: [f64; 2],
    freed: [f64; 2],
}

/// The sums.
#[derive(Debug)]
pub(super) struct SlotSums {
    open: bool,
    origin: Instant,
    slot: Nanos,
    /// Until when `asleep` has been added up.
    last: Instant,
    sleepers: [u32; CAUSES_MOST],
    causes: [Option<Cause>; CAUSES_MOST],
    /// Task-nanoseconds by slot and cause.
    asleep: Vec<[u64; CAUSES_MOST]>,
    reclaim: Vec<Reclaim>,
}

impl Default for SlotSums {
    fn default() -> Self {
        Self {
            open: false,
            origin: Instant::ZERO,
            slot: FIRST,
            last: Instant::ZERO,
            sleepers: [0; CAUSES_MOST],
            causes: [None; CAUSES_MOST],
            asleep: Vec::new(),
            reclaim: Vec::new(),
        }
    }
}

impl SlotSums {
    pub(super) fn opens(&mut self, at: Instant) {
        (self.open, self.origin, self.last) = (true, at, at);
    }

    pub(super) fn closes(&mut self, at: Instant) {
        self.pass(at);
        self.open = false;
    }

    /// A task falls asleep, or wakes.
    pub(super) fn sleeps(&mut self, at: Instant, before: Option<Cause>, after: Option<Cause>) {
        self.pass(at);
        if let Some(cause) = before.filter(|cause| !is_idle(*cause)) {
            self.sleepers[cause as usize % CAUSES_MOST] -= 1;
        }
        if let Some(cause) = after.filter(|cause| !is_idle(*cause)) {
            let index = cause as usize % CAUSES_MOST;
            self.sleepers[index] += 1;
            self.causes[index] = Some(cause);
        }
    }

    pub(super) fn reclaimed(
        &mut self,
        at: Instant,
        background: bool,
        scanned: Pages,
        freed: Pages,
    ) {
        let slot = self.slot_of(at);
        if self.reclaim.len() <= slot {
            self.reclaim.resize(slot + 1, Reclaim::default());
        }
        let (sums, by) = (&mut self.reclaim[slot], usize::from(background));
        sums.scanned[by] += pages(scanned);
        sums.freed[by] += pages(freed);
    }

    /// The sleepers so far slept until now.
    fn pass(&mut self, at: Instant) {
        if !self.open || at <= self.last {
            return;
        }
        if self.sleepers.iter().all(|sleepers| *sleepers == 0) {
            self.last = at;
            return;
        }
        while self.last < at {
            let slot = self.slot_of(self.last);
            if self.asleep.len() <= slot {
                self.asleep.resize(slot + 1, [0; CAUSES_MOST]);
            }
            let end = self.origin + Nanos(self.slot.0 * (slot as u64 + 1));
            let until = end.min(at);
            let passed = until.since(self.last).0;
            for (sum, sleepers) in self.asleep[slot].iter_mut().zip(&self.sleepers) {
                *sum += passed * u64::from(*sleepers);
            }
            self.last = until;
        }
    }

    /// The slot of a time; joins slots until there is one.
    fn slot_of(&mut self, at: Instant) -> usize {
        loop {
            let slot = at.since(self.origin).0 / self.slot.0;
            match usize::try_from(slot) {
                Ok(slot) if slot < SLOTS_MOST => return slot,
                _ => self.join(),
            }
        }
    }

    fn join(&mut self) {
        self.slot = Nanos(self.slot.0 * 2);
        let add = |into: &mut [u64; CAUSES_MOST], more: &[u64; CAUSES_MOST]| {
            into.iter_mut()
                .zip(more)
                .for_each(|(sum, more)| *sum += more);
        };
        let pairs = self.asleep.chunks(2);
        self.asleep = pairs
            .map(|pair| {
                let mut sum = pair[0];
                pair[1..].iter().for_each(|more| add(&mut sum, more));
                sum
            })
            .collect();
        let pairs = self.reclaim.chunks(2);
        self.reclaim = pairs
            .map(|pair| {
                let mut sum = pair[0];
                for more in &pair[1..] {
                    for by in 0..2 {
                        sum.scanned[by] += more.scanned[by];
                        sum.freed[by] += more.freed[by];
                    }
                }
                sum
            })
            .collect();
    }

    pub(super) fn finish(&self) -> Slots {
        let slot_s = seconds(self.slot);
        let slots = self.last.since(self.origin).0.div_ceil(self.slot.0);
        let slots = usize::try_from(slots).unwrap_or(SLOTS_MOST).min(SLOTS_MOST);
        let mean = |sum: u64| number(sum) / number(self.slot.0);
        let used = self.causes.iter().enumerate();
        let rate = |of: fn(&Reclaim) -> f64| {
            let mut rates: Vec<f64> = self.reclaim.iter().map(|sums| of(sums) / slot_s).collect();
            rates.resize(slots.max(rates.len()), 0.0);
            rates
        };
        Slots {
            slot_s,
            asleep: used
                .filter_map(|(index, cause)| cause.map(|cause| (index, cause)))
                .map(|(index, cause)| {
                    let mut means: Vec<f64> =
                        self.asleep.iter().map(|sums| mean(sums[index])).collect();
                    means.resize(slots.max(means.len()), 0.0);
                    (format!("{cause:?}"), means)
                })
                .filter(|(_, means)| means.iter().any(|mean| *mean > 0.0))
                .collect(),
            scanned_direct: rate(|sums| sums.scanned[0]),
            scanned_background: rate(|sums| sums.scanned[1]),
            freed_direct: rate(|sums| sums.freed[0]),
            freed_background: rate(|sums| sums.freed[1]),
        }
    }
}
