//! Decides whether a zone has a run to give, and whether moving pages could make one.
//!
//! Moving needs free frames to move to, so where few are free it is reclaim that has to work. Where
//! many are free and there is no run all the same, they are scattered: the *fragmentation index*
//! says which of the two it is.
//!
//! ```text
//!   free - 2^order - 1 <= LOW + 2 * 2^order ......... Skipped: reclaim first
//!   a run is free, and above the mark ............... Partial: nothing to do
//!   0 <= index <= 500 ............................... Skipped: too little is free
//!   else ............................................ Continue
//! ```
//!
//! Source: mechanisms 1.3, 8.4, 8.6; kernel-facts A7; Linux 3.2 mm/compaction.c,
//! compaction_suitable(); mm/vmstat.c, __fragmentation_index(); mm/page_alloc.c,
//! __zone_watermark_ok(); Linux 3.3 mm/vmscan.c, compaction_ready().

use policy::units::Pages;
use policy::watermark::Watermarks;

/// Up to this index it is for lack of free pages that there is no run (`extfrag_threshold`).
const LACK: i64 = 500;
/// The index where there is a run.
const SOME: i64 = -1000;
/// A zone may lie this part of it above HIGH before reclaim for a run leaves it
/// (`KSWAPD_ZONE_BALANCE_GAP_RATIO`).
const GAP_PART: u64 = 100;

/// A zone's free pages, in all and by order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Free pages.
    pub free: Pages,
    /// Free blocks of each order, of whichever mobility.
    pub blocks: [u32; 11],
}

impl Standing {
    /// Of free pages, and of free blocks by order.
    #[must_use]
    pub const fn of((free, blocks): (Pages, [u32; 11])) -> Self {
        Self { free, blocks }
    }

    /// True if a request of an order passes a mark: more than that is free after it, and of the
    /// rest a half, a quarter ... of the mark in blocks of at least 2, 4 ... pages. It does not say
    /// that there is such a block.
    ///
    /// `kept_back`: pages besides the mark, against those that could have had them elsewhere.
    #[must_use]
    pub fn is_above(&self, order: u8, mark: Pages, kept_back: Pages) -> bool {
        let signed = |pages: u64| i64::try_from(pages).unwrap_or(i64::MAX);
        let mut free = signed(self.free.0) - (1 << order) - 1;
        let mut mark = signed(mark.0);
        if free <= mark.saturating_add(signed(kept_back.0)) {
            return false;
        }
        for (at, blocks) in self.blocks.iter().enumerate().take(usize::from(order)) {
            free -= i64::from(*blocks) << at;
            mark >>= 1;
            if free <= mark {
                return false;
            }
        }
        true
    }

    /// The same since 4.4 (6.12 mm/page_alloc.c, __zone_watermark_ok()): so much is free beside it,
    /// in whatever blocks, and there is one.
    #[must_use]
    pub fn has_above(&self, order: u8, mark: Pages, kept_back: Pages) -> bool {
        self.free + Pages(1) > mark + kept_back + Pages(1 << order) && self.has(order)
    }

    /// True if a block of that order or a larger one is free.
    #[must_use]
    pub fn has(&self, order: u8) -> bool {
        self.blocks[usize::from(order)..]
            .iter()
            .any(|blocks| *blocks > 0)
    }

    /// Towards 0: there is no run of 2^`order` for lack of free pages; towards 1000: because they
    /// are scattered. -1000: there is one.
    #[must_use]
    pub fn fragmentation_index(&self, order: u8) -> i64 {
        let blocks: u32 = self.blocks.iter().sum();
        if blocks == 0 {
            return 0;
        }
        if self.has(order) {
            return SOME;
        }
        let free = i64::try_from(self.free.0).unwrap_or(i64::MAX / 1000);
        1000 - (1000 + free * 1000 / (1 << order)) / i64::from(blocks)
    }

    /// Tells whether moving pages could make a run in the zone.
    #[must_use]
    pub fn suitable(&self, order: u8, marks: &Watermarks) -> Suitable {
        let mark = marks.low + Pages(2 << order);
        if !self.is_above(0, mark, Pages::ZERO) {
            return Suitable::Skipped;
        }
        let index = self.fragmentation_index(order);
        if (0..=LACK).contains(&index) {
            return Suitable::Skipped;
        }
        if index == SOME && self.is_above(order, mark, Pages::ZERO) {
            return Suitable::Partial;
        }
        Suitable::Continue
    }

    /// True if enough is free in a zone of `size` to move pages without falling below its marks
    /// (patch 9).
    #[must_use]
    pub fn has_enough(&self, order: u8, marks: &Watermarks, size: Pages) -> bool {
        let gap = marks.low.at_most(Pages(size.0.div_ceil(GAP_PART)));
        let mark = marks.high + gap + Pages(2 << order);
        self.is_above(0, mark, Pages::ZERO)
    }

    /// True if a pass over the zone has reached its aim: a run of the request's own mobility, or a
    /// whole pageblock of another.
    #[must_use]
    pub fn is_served(
        &self,
        order: u8,
        pageblock_order: u8,
        own: &[u32; 11],
        marks: &Watermarks,
    ) -> bool {
        let from = usize::from(order);
        self.is_above(order, marks.low + Pages(1 << order), Pages::ZERO)
            && (own[from..].iter().any(|blocks| *blocks > 0)
                || self.has(order.max(pageblock_order)))
    }
}

/// When a pass over a zone is worth while, and when it has what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// Up to 3.3: a run above LOW.
    AboveLow,
    /// Since then: a run, whatever is free beside it (6.12 mm/compaction.c,
    /// compaction_suit_allocation_order(), __compact_finished()). There is one already: then at
    /// least MIN beside it.
    AnyRun,
}

impl Aim {
    /// Tells whether moving pages could make a run in a zone.
    #[must_use]
    pub fn suitable(self, standing: &Standing, order: u8, marks: &Watermarks) -> Suitable {
        match self {
            Self::AboveLow => standing.suitable(order, marks),
            Self::AnyRun => {
                if standing.has_above(order, marks.min, Pages::ZERO) {
                    return Suitable::Partial;
                }
                standing.suitable(order, marks)
            }
        }
    }

    /// True if a pass over the zone has reached its aim. `own`: free blocks of the request's own
    /// mobility.
    #[must_use]
    pub fn is_served(
        self,
        standing: &Standing,
        (order, pageblock_order): (u8, u8),
        own: &[u32; 11],
        marks: &Watermarks,
    ) -> bool {
        match self {
            Self::AboveLow => standing.is_served(order, pageblock_order, own, marks),
            Self::AnyRun => standing.has(order),
        }
    }
}

/// The benefit of moving pages in a zone; the best of several zones is the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suitable {
    /// Too little is free to move pages to.
    Skipped,
    /// It could make a run.
    Continue,
    /// There is one, or there was one when it ended.
    Partial,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(free: u64, blocks: &[(u8, u32)]) -> Standing {
        let mut all = [0; 11];
        for (order, count) in blocks {
            all[usize::from(*order)] += *count;
        }
        Standing {
            free: Pages(free),
            blocks: all,
        }
    }

    #[test]
    fn the_index_tells_lack_from_fragmentation() {
        // Vectors F1.
        for (free, blocks, index) in [
            (10_000, vec![(0, 3_000)], 994),
            (600, vec![(1, 300)], 993),
            (512, vec![(9, 1)], -1000),
            (256, vec![(8, 1)], -500),
            (0, vec![], 0),
        ] {
            assert_eq!(
                standing(free, &blocks).fragmentation_index(9),
                index,
                "{free}"
            );
        }
    }

    const MARKS: Watermarks = Watermarks {
        min: Pages(85),
        low: Pages(106),
        high: Pages(127),
    };

    #[test]
    fn the_dma_zone_always_says_yes() {
        // kernel-facts A7: about 2115 of 3970 pages are free.
        let free = |order: u8, blocks| standing(2_115, &[(order, blocks)]).suitable(9, &MARKS);
        assert_eq!(free(4, 132), Suitable::Continue);
        // In so few blocks, none of order 9, that it is called a lack.
        assert_eq!(
            standing(2_115, &[(8, 8), (6, 1)]).suitable(9, &MARKS),
            Suitable::Skipped
        );
        assert_eq!(
            standing(1_131, &[(0, 1_131)]).suitable(9, &MARKS),
            Suitable::Skipped
        );
        assert_eq!(
            standing(1_133, &[(0, 1_133)]).suitable(9, &MARKS),
            Suitable::Continue
        );
    }

    #[test]
    fn a_mark_halves_with_each_order() {
        // Order 2: more than 1024 + 5, of that more than 512 in blocks of 2, and more than 256 in
        // blocks of 4.
        let mark = Pages(1024);
        let passes = |blocks: &[(u8, u32)]| {
            let free = blocks
                .iter()
                .map(|(order, count)| u64::from(*count) << order)
                .sum();
            standing(free, blocks).is_above(2, mark, Pages::ZERO)
        };
        assert!(!passes(&[(2, 257)]), "1028");
        assert!(passes(&[(2, 258)]), "1032");
        assert!(!passes(&[(0, 1_000), (2, 120)]), "480 of 512");
        assert!(passes(&[(0, 1_000), (2, 130)]), "520 of 512");
        assert!(!passes(&[(1, 500), (2, 60)]), "240 of 256");
        assert!(passes(&[(1, 500), (2, 70)]));
        let kept = standing(1_032, &[(2, 258)]);
        assert!(!kept.is_above(2, mark, Pages(10)));
    }

    #[test]
    fn since_three_a_run_is_enough_whatever_is_beside_it() {
        let one = standing(512, &[(9, 1)]);
        assert!(Aim::AnyRun.is_served(&one, (9, 9), &[0; 11], &MARKS));
        assert!(!Aim::AboveLow.is_served(&one, (9, 9), &one.blocks, &MARKS));
        // With one there and MIN beside it nothing is to be done; too little is free otherwise.
        assert_eq!(Aim::AnyRun.suitable(&one, 9, &MARKS), Suitable::Skipped);
        let beside = standing(512 + 100, &[(9, 1), (0, 100)]);
        assert_eq!(Aim::AnyRun.suitable(&beside, 9, &MARKS), Suitable::Partial);
        assert_eq!(
            Aim::AboveLow.suitable(&beside, 9, &MARKS),
            Suitable::Skipped
        );
    }

    #[test]
    fn enough_is_two_runs_above_high_and_a_gap() {
        let at = |free| standing(free, &[(0, 1)]).has_enough(9, &MARKS, Pages(3_970));
        // 127 + min(106, 40) + 1024, and one page for the test.
        assert!(!at(1_193) && at(1_194));
    }
}
