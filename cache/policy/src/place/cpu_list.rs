//! Free frames that a CPU keeps for itself: how many come and go at a time.
//!
//! A frame that is given back goes to a list of the CPU that gives it, and the next allocation
//! there takes it from that list. Frames on such lists are free to no mark: a zone that was just
//! reclaimed 32 pages may still be below the mark that it failed, and a refill may take a zone from
//! above LOW to below MIN.
//!
//! ```text
//!   an allocation, its list empty -> refill: batches    1, 2, 4 .. 2^doublings of them, until frames
//!                                                       come back; the bound rises by as many
//!   a frame given back            -> given: at the bound as many go to the free lists as have come
//!                                                       back of late; while memory is short the
//!                                                       bound falls, while it is reclaimed it is 4
//!                                                       batches
//!   with time                     -> fade: the bound falls by an eighth, to its least
//! ```
//!
//! The bound counts the frames of all lists that a CPU has of a zone, one for each mobility and
//! order that is kept. Between `least` and `most` it follows what allocations ask for.
//!
//! Invariant: the bound is between the rule's `least` and `most` after each refill and each return.
//!
//! Source: kernel-facts 8; Linux 3.0 mm/page_alloc.c, zone_batchsize(), setup_pageset(); Linux 6.12
//! mm/page_alloc.c, zone_batchsize(), zone_highsize(), zone_set_pageset_high_and_batch(),
//! nr_pcp_alloc(), nr_pcp_high(), nr_pcp_free(), free_unref_page_commit(), decay_pcp_high().
//! Deviation: a CPU whose cache is large keeps a batch of blocks before it lets all of them go.

use super::mobility::Mobility;
use crate::units::{Nanos, Pages};

/// A batch is this part of the zone, or less.
const PART: u64 = 1024;
/// The bound is at least this many batches where it follows what is asked for.
const BATCHES_LEAST: u32 = 4;
/// The bound falls by this part with time.
const FADES_BY: u32 = 8;
/// Time between two falls (`vm.stat_interval`).
pub const FADES_EACH: Nanos = Nanos::secs(1);

/// The number of frames a CPU keeps of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// This many batches, ever the same.
    Batches(u32),
    /// From LOW to this part of the zone, each shared out among the CPUs of its node.
    LowToPart(u64),
    /// This part of the zone, shared out likewise (`vm.percpu_pagelist_high_fraction`).
    Part(u64),
}

/// A law of such lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuListLaw {
    /// Name of its column.
    pub name: &'static str,
    /// A batch is taken of no more than this.
    pub batch_of_most: Pages,
    /// The number of frames kept.
    pub bound: Bound,
    /// Batches are doubled as often as this.
    pub doublings: u8,
    /// The largest blocks that have a list, as a power of two of frames.
    pub order_most: u8,
    /// Pages alone are kept, what can be moved; else any mobility.
    pub pages_alone: bool,
    /// Less is kept while the zone is reclaimed by the background, or below HIGH.
    pub yields: bool,
    /// A memory that stands for a larger one has smaller batches, in proportion.
    pub shrinks: bool,
    /// Of a refill the frame that came last is taken first: in this lab's 3.0, not in that kernel.
    pub last_first: bool,
    /// A task that has reclaimed, and finds nothing all the same, empties the lists of all CPUs.
    pub emptied_by_finder: bool,
}

impl CpuListLaw {
    /// True if blocks of that kind are kept.
    #[must_use]
    pub fn keeps(&self, mobility: Mobility, order: u8) -> bool {
        order <= self.order_most && (mobility == Mobility::Movable || !self.pages_alone)
    }
}

/// The zone of such a list.
#[derive(Clone, Copy, Debug)]
pub struct ListZone {
    /// Its size.
    pub pages: Pages,
    /// Its mark LOW, without a boost.
    pub low: Pages,
    /// CPUs that share it.
    pub cpus: u32,
    /// The memory stands for one that is as many times larger.
    pub stands_for: u32,
}

/// A law of lists, for one zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuListRule {
    law: CpuListLaw,
    /// Frames that come from the free lists, or go back to them, at once.
    batch: u32,
    /// The least bound, and the highest.
    least: u32,
    most: u32,
}

/// The state of a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListPressure {
    /// The background reclaimer is at work in it.
    pub reclaimed: bool,
    /// It was seen below HIGH, and has not been above since.
    pub below_high: bool,
}

impl CpuListRule {
    /// The rule of a zone.
    #[must_use]
    pub fn of_zone(law: CpuListLaw, zone: ListZone) -> Self {
        let stands_for = u64::from(zone.stands_for.max(1));
        let whole = Pages(zone.pages.0 * stands_for);
        let base = ((whole.0 / PART).min(law.batch_of_most.0) / 4).max(1);
        // One less than a power of two: lists of several CPUs then do not keep to frames of one
        // colour.
        let own = (1_u64 << (base + base / 2).ilog2()) - 1;
        let own = if law.shrinks { own / stands_for } else { own };
        let own = u32::try_from(own).expect("a batch is small");
        let batch = own.max(1);
        let share = |pages: u64| {
            let each = pages / u64::from(zone.cpus.max(1));
            u32::try_from(each)
                .unwrap_or(u32::MAX)
                .max(BATCHES_LEAST * batch)
        };
        let part = |part: u64| share(zone.pages.0 / part.max(1));
        let (least, most) = match law.bound {
            Bound::Batches(batches) => (batches * own, batches * own),
            Bound::LowToPart(of) => (share(zone.low.0), part(of)),
            Bound::Part(of) => (part(of), part(of)),
        };
        Self {
            law,
            batch,
            least,
            most: most.max(least),
        }
    }

    /// The law that it is of.
    #[must_use]
    pub fn law(&self) -> &CpuListLaw {
        &self.law
    }

    fn follows(&self) -> bool {
        self.least < self.most
    }
}

/// The frames that a CPU keeps of a zone, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuList {
    pages: u32,
    bound: u32,
    doublings: u8,
    /// Frames given back of late; half as many after each allocation.
    freed: u32,
    /// The last block given back was larger than a frame.
    gave_block: bool,
}

impl CpuList {
    /// Blocks of an order that come from the free lists, as the list of that kind is empty.
    pub fn refill(&mut self, rule: &CpuListRule, order: u8, pressure: ListPressure) -> u32 {
        self.keep_within(rule);
        if self.bound < rule.batch {
            return 1;
        }
        let mut batch = rule.batch;
        if order == 0 {
            batch <<= self.doublings;
        }
        if rule.follows() && !pressure.below_high {
            self.bound = self.bound.saturating_add(batch).min(rule.most);
        }
        if order == 0 {
            let room = self.bound.saturating_sub(self.pages + rule.batch);
            let most = room.max(rule.batch);
            if batch <= most && self.doublings < rule.law.doublings {
                self.doublings += 1;
            }
            batch = batch.min(most);
        }
        if batch > 1 {
            (batch >> order).max(2)
        } else {
            batch
        }
    }

    /// This many frames have come from the free lists.
    pub fn came(&mut self, frames: u32) {
        self.pages += frames;
    }

    /// Blocks of an order were taken off.
    pub fn took(&mut self, blocks: u32, order: u8) {
        self.pages -= blocks << order;
        self.freed = self.freed.checked_shr(blocks).unwrap_or(0);
    }

    /// This many frames went to the free lists.
    pub fn went(&mut self, frames: u32) {
        self.pages -= frames;
    }

    /// A block has come back to the list; answers how many frames are to go to the free lists.
    pub fn given(&mut self, rule: &CpuListRule, order: u8, pressure: ListPressure) -> u32 {
        let size = 1 << order;
        self.doublings >>= 1;
        self.pages += size;
        let was_block = core::mem::replace(&mut self.gave_block, order > 0);
        let burst = rule.batch << rule.law.doublings;
        let all = order > 0 && was_block && self.freed >= rule.batch;
        if self.freed < burst {
            self.freed += size;
        }
        self.keep_within(rule);
        if all {
            self.bound = self.bound.saturating_sub(burst).max(rule.least);
            return self.pages.min(burst);
        }
        let bound = self.bound_now(rule, pressure);
        if self.pages < bound {
            0
        } else if bound < rule.batch {
            1
        } else {
            let most = bound.saturating_sub(rule.batch).max(rule.batch);
            self.freed.clamp(rule.batch, most).min(self.pages)
        }
    }

    /// The number of frames at which some go.
    fn bound_now(&mut self, rule: &CpuListRule, pressure: ListPressure) -> u32 {
        let falls = self.bound.saturating_sub(self.freed.max(rule.batch));
        if pressure.reclaimed && rule.law.yields {
            self.bound = falls.max(rule.least);
            return self.bound.min(BATCHES_LEAST * rule.batch);
        }
        if !rule.follows() {
            return self.bound;
        }
        if pressure.below_high && rule.law.yields {
            self.bound = falls.max(rule.least);
            return self.pages.max(rule.least);
        }
        let bound = self.bound;
        if self.pages >= bound {
            self.bound = bound.max(self.freed + rule.batch);
            self.keep_within(rule);
        }
        bound
    }

    /// `FADES_EACH` has passed; answers how many frames are to go to the free lists.
    pub fn fade(&mut self, rule: &CpuListRule) -> u32 {
        self.keep_within(rule);
        let burst = rule.batch << rule.law.doublings;
        let less = self.bound - self.bound / FADES_BY;
        if self.bound > rule.least {
            self.bound = less.max(self.pages.saturating_sub(burst)).max(rule.least);
        }
        self.pages.saturating_sub(self.bound)
    }

    fn keep_within(&mut self, rule: &CpuListRule) {
        self.bound = self.bound.clamp(rule.least, rule.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Like that of 3.0: six batches.
    const FIXED: CpuListLaw = CpuListLaw {
        name: "fixed",
        batch_of_most: Pages(128),
        bound: Bound::Batches(6),
        doublings: 0,
        order_most: 0,
        pages_alone: true,
        yields: false,
        shrinks: false,
        last_first: true,
        emptied_by_finder: false,
    };
    /// Like that of 6.12.
    const TUNED: CpuListLaw = CpuListLaw {
        name: "tuned",
        batch_of_most: Pages(256),
        bound: Bound::LowToPart(8),
        doublings: 5,
        order_most: 3,
        pages_alone: false,
        yields: true,
        shrinks: true,
        last_first: false,
        emptied_by_finder: true,
    };

    fn of(law: CpuListLaw, pages: u64) -> CpuListRule {
        let zone = ListZone {
            pages: Pages(pages),
            low: Pages(828),
            cpus: 1,
            stands_for: 1,
        };
        CpuListRule::of_zone(law, zone)
    }

    const CALM: ListPressure = ListPressure {
        reclaimed: false,
        below_high: false,
    };

    #[test]
    fn a_batch_is_31_from_512_mib_on_and_six_of_them_are_kept() {
        let of = |pages| {
            let rule = of(FIXED, pages);
            (rule.batch, rule.most)
        };
        assert_eq!(of(131_072), (31, 186));
        assert_eq!(of(1_572_864), (31, 186));
        // 256 MiB: a 64th of 1024 frames and half of it more, below a power of two.
        assert_eq!(of(65_536), (15, 90));
        // The least: one at a time, and none is kept.
        assert_eq!(of(3_970), (1, 0));
    }

    #[test]
    fn a_bound_that_stays_takes_a_batch_and_gives_a_batch() {
        let rule = of(FIXED, 131_072);
        let mut list = CpuList::default();
        for _ in 0..3 {
            assert_eq!(list.refill(&rule, 0, CALM), 31);
            list.came(31);
            list.took(31, 0);
        }
        let gone: Vec<u32> = (0..400).map(|_| given(&mut list, &rule, CALM)).collect();
        let at: Vec<usize> = (0..400).filter(|at| gone[*at] > 0).collect();
        assert_eq!(at, [185, 216, 247, 278, 309, 340, 371]);
        assert!(gone.iter().all(|gone| [0, 31].contains(gone)));
    }

    fn given(list: &mut CpuList, rule: &CpuListRule, pressure: ListPressure) -> u32 {
        let gone = list.given(rule, 0, pressure);
        list.went(gone);
        gone
    }

    #[test]
    fn a_bound_that_follows_lies_between_low_and_an_eighth_of_the_zone() {
        let rule = of(TUNED, 123_000);
        assert_eq!((rule.batch, rule.least, rule.most), (31, 828, 15_375));
        let half = ListZone {
            pages: Pages(123_000),
            low: Pages(828),
            cpus: 16,
            stands_for: 1,
        };
        let rule = CpuListRule::of_zone(TUNED, half);
        assert_eq!((rule.least, rule.most), (124, 960));
        let fixed = CpuListLaw {
            bound: Bound::Part(1_000),
            ..TUNED
        };
        let rule = of(fixed, 123_000);
        assert_eq!((rule.least, rule.most), (124, 124));
        // A sixteenth of that memory: lists of a sixteenth.
        let small = ListZone {
            pages: Pages(123_000 / 16),
            low: Pages(52),
            cpus: 1,
            stands_for: 16,
        };
        let rule = CpuListRule::of_zone(TUNED, small);
        assert_eq!((rule.batch, rule.least, rule.most), (1, 52, 960));
    }

    #[test]
    fn refills_double_until_frames_come_back_and_the_bound_rises_with_them() {
        let rule = of(TUNED, 123_000);
        let mut list = CpuList::default();
        let mut refills = Vec::new();
        for _ in 0..8 {
            let blocks = list.refill(&rule, 0, CALM);
            refills.push(blocks);
            list.came(blocks);
            list.took(blocks, 0);
        }
        assert_eq!(refills, [31, 62, 124, 248, 496, 992, 992, 992]);
        assert_eq!(list.bound, 828 + refills.iter().sum::<u32>());
        // Below HIGH it stays.
        let short = ListPressure {
            below_high: true,
            ..CALM
        };
        let before = list.bound;
        list.refill(&rule, 0, short);
        assert_eq!(list.bound, before);
        for _ in 0..5 {
            assert_eq!(list.given(&rule, 0, CALM), 0);
        }
        assert_eq!(list.refill(&rule, 0, CALM), 31);
        // Blocks come in batches of as many frames, and two at least.
        assert_eq!(list.refill(&rule, 3, CALM), 3);
    }

    #[test]
    fn while_memory_is_reclaimed_four_batches_are_kept_and_the_bound_falls() {
        let rule = of(TUNED, 123_000);
        let mut list = CpuList {
            pages: 1_000,
            bound: 4_000,
            ..CpuList::default()
        };
        let busy = ListPressure {
            reclaimed: true,
            ..CALM
        };
        assert_eq!(given(&mut list, &rule, busy), 31);
        assert_eq!(list.bound, 3_969);
        for _ in 0..1_000 {
            given(&mut list, &rule, busy);
        }
        assert_eq!(list.bound, 828);
        assert!(list.pages < 124);
    }

    #[test]
    fn below_high_as_much_goes_as_comes() {
        let rule = of(TUNED, 123_000);
        let mut list = CpuList {
            pages: 900,
            bound: 900,
            ..CpuList::default()
        };
        let short = ListPressure {
            below_high: true,
            ..CALM
        };
        assert_eq!(given(&mut list, &rule, short), 31);
        assert_eq!(list.bound, 869);
        assert_eq!(given(&mut list, &rule, short), 31);
        assert_eq!(given(&mut list, &rule, short), 31);
        // Now fewer than the least.
        assert_eq!(given(&mut list, &rule, short), 0);
    }

    #[test]
    fn with_time_the_bound_falls_to_its_least() {
        let rule = of(TUNED, 123_000);
        let mut list = CpuList {
            pages: 3_000,
            bound: 4_000,
            ..CpuList::default()
        };
        assert_eq!((list.fade(&rule), list.bound), (0, 3_500));
        let mut gone = Vec::new();
        for _ in 0..20 {
            let frames = list.fade(&rule);
            list.went(frames);
            gone.push(frames);
        }
        assert_eq!(list.bound, 828);
        assert_eq!(gone.iter().sum::<u32>(), 3_000 - 828);
    }

    #[test]
    fn blocks_that_come_back_in_a_row_all_go() {
        let rule = of(TUNED, 123_000);
        let mut list = CpuList {
            pages: 500,
            bound: 900,
            freed: 31,
            ..CpuList::default()
        };
        assert_eq!(list.given(&rule, 1, CALM), 0);
        assert_eq!(list.given(&rule, 1, CALM), 504);
    }
}
