//! Free frames that a CPU keeps for itself: how many come and go at a time.
//!
//! A frame that is given back goes to a list of the CPU that gives it, and the next allocation
//! there takes it from that list. Frames on such lists are free to no mark: a zone that was just
//! reclaimed 32 pages may still be below the mark that it failed.
//!
//! Source: kernel-facts 8; Linux 3.0 mm/page_alloc.c, zone_batchsize(), setup_pageset().

use crate::units::Pages;

/// A batch is this part of the zone, or less.
const PART: u64 = 1024;
/// A batch is taken of no more than this: 512 KiB.
const MOST: u64 = 128;

/// The law by which a CPU's list of a zone's frames is filled and drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuListRule {
    /// Frames that come from the free lists, or go back to them, at once.
    pub batch: u32,
    /// With as many on it a batch goes back.
    pub high: u32,
}

impl CpuListRule {
    /// That of a zone of `pages` in Linux 3.0.
    #[must_use]
    pub fn of_zone(pages: Pages) -> Self {
        let base = ((pages.0 / PART).min(MOST) / 4).max(1);
        // One less than a power of two: lists of several CPUs then do not keep to frames of one
        // colour.
        let power = 1 << (base + base / 2).ilog2();
        let batch = u32::try_from(power - 1_u64).expect("a batch is small");
        Self {
            batch: batch.max(1),
            high: 6 * batch,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_31_from_512_mib_on() {
        let of = |pages| {
            let rule = CpuListRule::of_zone(Pages(pages));
            (rule.batch, rule.high)
        };
        assert_eq!(of(131_072), (31, 186));
        assert_eq!(of(1_572_864), (31, 186));
        // 256 MiB: a 64th of 1024 frames and half of it more, below a power of two.
        assert_eq!(of(65_536), (15, 90));
        // The least: one at a time, and none is kept.
        assert_eq!(of(3_970), (1, 0));
    }
}
