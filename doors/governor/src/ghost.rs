//! Keys of one member that were evicted a while ago, and their ages.
//!
//! A table of slots, one word each: 32 bits of the key's hash and 32 of the age at which it was
//! evicted, in 256ths of a delta. A key has one place; a later key takes it. Only keys whose hash
//! ends in `shift` zeros are remembered, so that evicted bytes of the whole limit (as far as it
//! reaches back) fill half of the table; a miss that is found stands for 2^shift of them.
//!
//! Concurrency: words that are swapped; two threads on one slot lose one of two memories, no more.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Deltas that a table reaches back: all of the limit, so that a loop that lacks most of it shows.
const DELTAS: u64 = 64;
/// Units of age in a delta.
const UNITS: u64 = 256;
/// Most and fewest slots of a table; with `PARTS` members the tables take at most 0.5 % of the
/// limit.
const SLOTS_MAX: u64 = 1 << 16;
const SLOTS_MIN: u64 = 1 << 9;
const PARTS: u64 = 8;
const LIMIT_PART: u64 = 200;
/// Fewest keys remembered: of every second.
const SHIFT_MAX: u32 = 16;

/// A miss that was a hit with more memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Bytes evicted since.
    pub(crate) distance: u64,
    /// Misses that it stands for.
    pub(crate) stands_for: u64,
}

pub(crate) struct Ghost {
    slots: Box<[AtomicU64]>,
    /// Bytes of one unit of age.
    unit: u64,
    shift: AtomicU32,
}

impl Ghost {
    /// A table for a member under `limit`.
    pub(crate) fn new(limit: u64) -> Self {
        let slots = (limit / LIMIT_PART / PARTS / 8).clamp(SLOTS_MIN, SLOTS_MAX);
        let slots = slots.next_power_of_two().min(SLOTS_MAX);
        Self {
            slots: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            unit: (limit / 64 / UNITS).max(1),
            shift: AtomicU32::new(0),
        }
    }

    /// Bytes it takes.
    pub(crate) fn size(&self) -> u64 {
        self.slots.len() as u64 * 8
    }

    /// Remembers fewer or more of the keys, now that `entries` entries of `bytes` bytes in all have
    /// been evicted.
    pub(crate) fn adapt(&self, bytes: u64, entries: u64) {
        let Some(mean) = bytes.checked_div(entries).filter(|mean| *mean > 0) else {
            return;
        };
        let within_reach = self.unit * UNITS * DELTAS / mean;
        let fits = self.slots.len() as u64 / 2;
        let shift = within_reach.div_ceil(fits).next_power_of_two().ilog2();
        self.shift.store(shift.min(SHIFT_MAX), Relaxed);
    }

    /// A key goes at this age of the member.
    pub(crate) fn evicted(&self, hash: u64, age: u64) {
        let key = Key::of(hash);
        if key.is_remembered(self.shift.load(Relaxed)) {
            let word = u64::from(key.tag) << 32 | u64::from(self.units(age));
            self.slot(key).store(word, Relaxed);
        }
    }

    /// A key is missed at this age of the member.
    pub(crate) fn missed(&self, hash: u64, age: u64) -> Option<Found> {
        let (key, shift) = (Key::of(hash), self.shift.load(Relaxed));
        if !key.is_remembered(shift) {
            return None;
        }
        let slot = self.slot(key);
        let word = slot.load(Relaxed);
        if word >> 32 != u64::from(key.tag) {
            return None;
        }
        // Missed once: it comes back now.
        slot.compare_exchange(word, 0, Relaxed, Relaxed).ok()?;
        #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
        let then = word as u32;
        let since = u64::from(self.units(age).wrapping_sub(then));
        (since <= UNITS * DELTAS).then_some(Found {
            distance: since * self.unit,
            stands_for: 1 << shift,
        })
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "ages are compared modulo 2^32 units"
    )]
    fn units(&self, age: u64) -> u32 {
        (age / self.unit) as u32
    }

    fn slot(&self, key: Key) -> &AtomicU64 {
        // A power of two of slots.
        &self.slots[key.place & (self.slots.len() - 1)]
    }
}

#[derive(Clone, Copy)]
struct Key {
    tag: u32,
    place: usize,
    low: u64,
}

impl Key {
    /// Mixes the bits: hashes of others may be the numbers themselves.
    fn of(hash: u64) -> Self {
        let mut mixed = hash ^ (hash >> 33);
        mixed = mixed.wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed ^= mixed >> 33;
        mixed = mixed.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        mixed ^= mixed >> 33;
        Self {
            // Never 0: an empty slot is 0.
            tag: (mixed >> 32) as u32 | 1,
            place: (mixed >> 16) as usize,
            low: mixed & 0xffff,
        }
    }

    fn is_remembered(self, shift: u32) -> bool {
        self.low.trailing_zeros() >= shift
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 64 << 20;

    #[test]
    fn a_miss_has_the_distance_of_what_was_evicted_since() {
        let ghost = Ghost::new(LIMIT);
        ghost.evicted(7, 1 << 20);
        let found = ghost.missed(7, 3 << 20).unwrap();
        assert_eq!((found.distance, found.stands_for), (2 << 20, 1));
        assert_eq!(ghost.missed(7, 3 << 20), None, "missed once");
        assert_eq!(ghost.missed(8, 3 << 20), None, "never there");
    }

    #[test]
    fn small_entries_are_sampled_and_each_stands_for_several() {
        let ghost = Ghost::new(LIMIT);
        // 16 deltas of entries of 100 bytes are 168 000, for which there is no room.
        ghost.adapt(1 << 20, (1 << 20) / 100);
        let reach = LIMIT / 4 / 100;
        for key in 0..reach {
            ghost.evicted(key, key * 100);
        }
        let found = (0..reach).filter_map(|key| ghost.missed(key, LIMIT / 4));
        let stands_for = found.map(|found| found.stands_for).sum::<u64>();
        assert!(
            stands_for > reach / 2 && stands_for < reach * 3 / 2,
            "{stands_for} for {reach}"
        );
    }

    #[test]
    fn eight_tables_are_a_two_hundredth_of_the_limit() {
        for limit in [64_u64 << 20, 1 << 30, 64 << 30] {
            assert!(Ghost::new(limit).size() * PARTS <= limit / 100);
        }
        assert!(Ghost::new(0).size() >= 8);
    }
}
