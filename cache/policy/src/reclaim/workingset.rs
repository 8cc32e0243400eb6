//! Decides whether a page that comes back after its eviction belonged to the working set.
//!
//! A node has an *age*: it counts evictions and activations. An evicted page leaves a *shadow*, the
//! age at that moment. When it is read again, the difference of the ages is its *refault distance*:
//! with this many places more the inactive list would have held it. If the lists that it competes
//! with are at least that long, it deserved a place among them and becomes active at once.
//!
//! ```text
//!   27 bits of a shadow:   | age >> bucket (26 bits) | was in the working set |
//! ```
//!
//! Invariants
//!   1. A distance is never negative: ages are compared modulo 2^26 buckets.
//!   2. The bucket is wide enough that a distance as long as memory does not wrap.
//!   3. Coarse buckets round an age down when it is stored and when it is looked at: a distance is
//!      off by less than a bucket either way.
//!
//! Source: mechanisms 2.7; Linux 5.15 mm/workingset.c, workingset_eviction(), workingset_refault(),
//! `bucket_order`.

use super::scan::{Kind, Lru, Sizes};
use crate::units::Pages;

/// Bits of a shadow (`frames::Shadow::BITS`).
pub const SHADOW_BITS: u32 = 27;
/// Of these, for the age.
const AGE_BITS: u32 = SHADOW_BITS - 1;
const AGE_MASK: u64 = (1 << AGE_BITS) - 1;

/// The mark that an evicted page leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shadow(u32);

impl Shadow {
    /// As bits, to be stored.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// From the bits that were stored; others are ignored.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & ((1 << SHADOW_BITS) - 1))
    }

    /// True if the page had been in the working set.
    #[must_use]
    pub const fn workingset(self) -> bool {
        self.0 & 1 != 0
    }
}

/// The age of a node's lists (kernel: `nonresident_age`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age {
    count: u64,
    /// Evictions that one step of a stored age stands for, as a shift.
    bucket: u32,
}

impl Age {
    /// Begins. `memory`: frames of the node; a distance that is longer means nothing.
    #[must_use]
    pub const fn new(memory: Pages) -> Self {
        let bits = u64::BITS - memory.0.leading_zeros();
        Self {
            count: 0,
            bucket: bits.saturating_sub(AGE_BITS),
        }
    }

    /// Pages were activated, or active ones were put back during reclaim.
    pub fn advance(&mut self, pages: Pages) {
        self.count = self.count.wrapping_add(pages.0);
    }

    /// A page is evicted; answers what it leaves behind.
    pub fn evict(&mut self, workingset: bool) -> Shadow {
        // Masked: it fits.
        let age = u32::try_from(self.stored()).expect("26 bits");
        self.advance(Pages(1));
        Shadow(age << 1 | u32::from(workingset))
    }

    /// Evictions and activations since a shadow was left.
    #[must_use]
    pub fn distance(&self, shadow: Shadow) -> Pages {
        let then = u64::from(shadow.0 >> 1);
        let buckets = self.stored().wrapping_sub(then) & AGE_MASK;
        Pages(buckets << self.bucket)
    }

    const fn stored(&self) -> u64 {
        self.count >> self.bucket & AGE_MASK
    }
}

/// The verdict on a page that was read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefaultVerdict {
    /// The distance it had fallen.
    pub distance: Pages,
    /// It goes to the active list at once; the age advances by it (counter workingset_activate).
    pub activate: bool,
    /// It had been in the working set and was lost from it: it is marked so again, and costs its
    /// kind (`Costs::note_refault`; counter workingset_restore).
    pub restore: bool,
}

/// Decides about a page of `kind` that left `shadow` and is read again. `may_swap`: there is free
/// swap.
///
/// # Source
/// mechanisms 2.7. Anonymous memory counts among the competitors only as far as it could be swapped
/// in its place.
#[must_use]
pub fn refault(
    age: &Age,
    shadow: Shadow,
    kind: Kind,
    sizes: &Sizes,
    may_swap: bool,
) -> RefaultVerdict {
    let distance = age.distance(shadow);
    let activate = distance <= competitors(kind, sizes, may_swap);
    RefaultVerdict {
        distance,
        activate,
        restore: activate && shadow.workingset(),
    }
}

/// Pages that would have had to make room.
fn competitors(kind: Kind, sizes: &Sizes, may_swap: bool) -> Pages {
    let file = match kind {
        Kind::File => sizes.of(Lru::ActiveFile),
        Kind::Anon => sizes.kind(Kind::File),
    };
    let anon = match kind {
        _ if !may_swap => Pages::ZERO,
        Kind::File => sizes.kind(Kind::Anon),
        Kind::Anon => sizes.of(Lru::ActiveAnon),
    };
    file.saturating_add(anon)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(of: [u64; 4]) -> Sizes {
        Sizes(of.map(Pages))
    }

    #[test]
    fn a_page_that_fell_less_far_than_the_active_list_is_long_becomes_active() {
        let lists = sizes([1000, 2000, 500, 100]);
        // kind, may swap, competitors
        let table = [
            (Kind::File, false, 100),
            (Kind::File, true, 3100),
            (Kind::Anon, false, 600),
            (Kind::Anon, true, 2600),
        ];
        for (kind, may_swap, limit) in table {
            for (distance, activate) in [(0, true), (limit, true), (limit + 1, false)] {
                for workingset in [false, true] {
                    let mut age = Age::new(Pages(1 << 20));
                    age.advance(Pages(77));
                    let shadow = age.evict(workingset);
                    // The eviction itself counts.
                    age.count = 77;
                    age.advance(Pages(distance));
                    let found = refault(&age, shadow, kind, &lists, may_swap);
                    let expected = RefaultVerdict {
                        distance: Pages(distance),
                        activate,
                        restore: activate && workingset,
                    };
                    assert_eq!(found, expected, "{kind:?} {may_swap} {distance}");
                }
            }
        }
    }

    #[test]
    fn an_eviction_is_one_step_away_from_itself() {
        let mut age = Age::new(Pages(1000));
        let first = age.evict(false);
        let second = age.evict(true);
        assert_eq!(age.distance(first), Pages(2));
        assert_eq!(age.distance(second), Pages(1));
        assert!(second.workingset() && !first.workingset());
        assert_eq!(Shadow::from_bits(second.bits() | 1 << 27), second);
    }

    #[test]
    fn ages_wrap_and_distances_do_not() {
        for start in [AGE_MASK - 3, u64::MAX - 3] {
            let mut age = Age {
                count: start,
                bucket: 0,
            };
            let shadow = age.evict(false);
            age.advance(Pages(99));
            assert_eq!(age.distance(shadow), Pages(100), "{start}");
        }
    }

    #[test]
    fn a_bucket_is_as_wide_as_memory_needs() {
        for (memory, bucket) in [
            (1, 0),
            (AGE_MASK, 0),
            (AGE_MASK + 1, 1),
            (1 << 28, 3),
            (1 << 62, 37),
        ] {
            let mut age = Age::new(Pages(memory));
            assert_eq!(age.bucket, bucket, "{memory}");
            // As far as memory is long, less than a bucket off.
            age.advance(Pages(12345));
            let shadow = age.evict(false);
            age.advance(Pages(memory - 1));
            let off = age.distance(shadow).0.abs_diff(memory);
            assert!(off < 1 << bucket, "{memory}: {off}");
        }
    }
}
