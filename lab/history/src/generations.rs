//! The multi-generational LRU of Linux 6.12: which generation a page is in, when a new one begins,
//! what is protected, and of which kind pages are taken.
//!
//! ```text
//!   oldest                                               youngest
//!   min                                                       max
//!   [ generation ]  [ generation ]  [ generation ]  [ generation ]
//!       |  ^              ^  ^              ^               ^
//!       |  '--------------+--'              |               a page that a page table brings in, or has used
//!       |  a page that a call brings in:    waits for its write
//!       |  oldest of three, second of four
//!       v
//!     goes, unless its tier is protected: then one up; dirty or being written: the youngest
//! ```
//!
//! Pages of each kind are in two to four generations; both kinds have the same youngest one. A call
//! that uses a page moves nothing: it counts. A page of a page table that is found young goes to
//! the youngest generation when it is looked at to be taken out. *Ageing* begins a new, empty
//! generation; the oldest is given up when it is empty.
//!
//! *Tiers* are the logarithms of uses by calls after the first. While the oldest generation is
//! emptied, it is counted by tier how many pages were evicted, how many of these came back before
//! it was empty, and how many were protected. A tier is protected if, of what went from it, more
//! than twice the part came back that came back of tier 0; a page of it goes one generation up, to
//! the old end, and begins anew. Counts of earlier generations weigh half, a quarter, and so on. A
//! page of the last tier is protected in any case; one that comes back is of it at once if it had
//! three uses after the first, or is brought back by a page table.
//!
//! Of the two kinds that one is taken from whose oldest generation is older, and of two as old the
//! one of which less comes back of tier 0, by swappiness.
//!
//! Invariants
//!   1. A kind has two to four generations, and none of its pages is evicted while it has two.
//!   2. As long as there is swap, pages of files are not in older generations than anonymous ones.
//!   3. A page in the oldest generation is protected once: its uses are zero then.
//!
//! Source: Linux 6.12 include/linux/mmzone.h (generations, tiers), include/linux/mm_inline.h
//! (`lru_tier_from_refs`, `folio_lru_refs`, `lru_gen_add_folio`), mm/swap.c (`folio_inc_refs`),
//! mm/workingset.c (`lru_gen_eviction`, `lru_gen_refault`), mm/vmscan.c (`read_ctrl_pos`,
//! `reset_ctrl_pos`, `positive_ctrl_err`, `get_tier_idx`, `get_type_to_scan`, `sort_folio`,
//! `isolate_folios`, `inc_min_seq`, `inc_max_seq`, `try_to_inc_min_seq`, `should_run_aging`,
//! `get_nr_to_scan`, `set_initial_priority`), Documentation/mm/multigen_lru.rst.
//!
//! Deviations: walks over page tables, which are the caller's, have no Bloom filters; a young page
//! has none of its neighbours looked at (`lru_gen_look_around`); no `min_ttl_ms`, which is 0 unless
//! somebody sets it; no cgroups.

use policy::reclaim::scan::{Kind, Priority, scan_count};
use policy::units::Pages;

/// Generations that a kind has at most, and at least.
pub const MOST: u32 = 4;
const LEAST: u32 = 2;
const TIERS: usize = 4;
/// Uses of a page are counted up to this: the first, and four after it.
pub const USES_MOST: u8 = 5;
/// Uses after the first with which a page that comes back is of the last tier at once.
const KNOWN: u8 = 3;
/// Pages that came back, below which a tier is not protected; and the weight of tier 0's misses
/// where it has few.
const BATCH: u32 = 64;
/// A tier is protected if its part that came back exceeds this many times that of tier 0.
const GAIN: u64 = 2;
/// The largest swappiness.
const SWAPPINESS_MAX: u8 = 200;
/// A balance begins at this priority at the latest (half of `DEF_PRIORITY`).
const BEGINS_AT: u8 = 6;
/// Bits of a shadow: of uses after the first, and of the oldest generation at that time.
const AGAIN_BITS: u32 = 3;
const SEQ_MASK: u32 = (1 << 24) - 1;

/// The tier of a page that was used `again` times after the first.
fn tier(again: u8) -> usize {
    let above = u32::from(again) + 1;
    above.next_power_of_two().trailing_zeros() as usize
}

/// Uses after the first.
const fn again(uses: u8) -> u8 {
    uses.saturating_sub(1)
}

/// Fate of the pages of a tier.
#[derive(Clone, Copy, Debug, Default)]
struct Fate {
    /// Came back after their eviction.
    refaulted: u64,
    /// Went, or were protected.
    total: u64,
}

/// Fate of the pages of a kind, by tier: of the generation that is emptied now, and on average
/// before.
#[derive(Clone, Debug, Default)]
struct Fates {
    now: [Fate; TIERS],
    before: [Fate; TIERS],
}

impl Fates {
    fn of(&self, tier: usize) -> Fate {
        let (now, before) = (self.now[tier], self.before[tier]);
        Fate {
            refaulted: now.refaulted + before.refaulted,
            total: now.total + before.total,
        }
    }

    /// The generation is empty.
    fn carry_over(&mut self) {
        for tier in 0..TIERS {
            let Fate { refaulted, total } = self.of(tier);
            self.before[tier] = Fate {
                refaulted: refaulted / 2,
                total: total / 2,
            };
        }
        self.now = [Fate::default(); TIERS];
    }
}

/// The history of a page that is put on a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coming {
    /// A page table has used it, or it could not go.
    Used,
    /// It waits for its write.
    Waits,
    /// Its write has ended: it is evicted next.
    Written,
    /// A call has brought it in.
    Fresh,
}

/// The next step of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Look at this many pages; of a pass that has looked at as many, nothing.
    Scan(Pages),
    /// Begin a generation. Pages that are old enough are few: the pass ends.
    Age,
}

/// Pages by kind and by the place of their generation (`Generations::place`).
pub type Lens = [[Pages; MOST as usize]; 2];

/// Pages that stand for `BATCH` where the memory stands for one `stands_for` times as large.
#[must_use]
pub fn batch(stands_for: u32) -> u64 {
    u64::from((BATCH / stands_for.max(1)).max(1))
}

/// The priority of the first pass of a reclaimer that wants `target` pages, where `old` are in
/// older generations than the two youngest. Fewer than a `batch` are no reason to begin late.
#[must_use]
pub fn begins_at(old: Pages, target: Pages, batch: u64) -> Priority {
    if target.0 < batch {
        return Priority::GENTLEST;
    }
    let bits = |pages: u64| u64::BITS - pages.leading_zeros();
    let shift = bits(old.0).saturating_sub(1 + bits(target.0 - 1));
    let shift = u8::try_from(shift).unwrap_or(u8::MAX);
    Priority(shift.clamp(BEGINS_AT, Priority::GENTLEST.0))
}

/// The generations of a zone: their numbers, and what became of their pages.
#[derive(Clone, Debug)]
pub struct Generations {
    /// The oldest, by kind.
    min: [u32; 2],
    /// The youngest.
    max: u32,
    fates: [Fates; 2],
    /// Pages that stand for 64.
    batch: u64,
    /// The memory stands for one this many times as large.
    stands_for: u32,
}

impl Generations {
    /// With as many as there can be, all empty.
    #[must_use]
    pub fn new(stands_for: u32) -> Self {
        let stands_for = stands_for.max(1);
        Self {
            min: [0; 2],
            max: MOST - 1,
            fates: Default::default(),
            batch: batch(stands_for),
            stands_for,
        }
    }

    /// The place of a generation among those of its kind.
    #[must_use]
    pub const fn place(seq: u32) -> usize {
        (seq % MOST) as usize
    }

    /// The oldest generation of a kind.
    #[must_use]
    pub const fn oldest(&self, kind: Kind) -> u32 {
        self.min[kind.index()]
    }

    /// Number of generations of a kind.
    #[must_use]
    pub const fn count(&self, kind: Kind) -> u32 {
        self.max - self.oldest(kind) + 1
    }

    /// True if pages in that place are active, where a counter tells them apart.
    #[must_use]
    pub fn is_active(&self, place: usize) -> bool {
        [self.max - 1, self.max].map(Self::place).contains(&place)
    }

    /// The generation that a page comes into.
    #[must_use]
    pub fn of(&self, kind: Kind, coming: Coming) -> u32 {
        let oldest = self.oldest(kind);
        match coming {
            Coming::Used => self.max,
            Coming::Waits => self.max - 1,
            Coming::Fresh if self.count(kind) == MOST => oldest + 1,
            Coming::Fresh | Coming::Written => oldest,
        }
    }

    /// The step of a pass now.
    #[must_use]
    pub fn step(&self, lens: &Lens, may_swap: bool, priority: Priority) -> Step {
        let kinds = if may_swap {
            &Kind::ALL[..]
        } else {
            &[Kind::File][..]
        };
        let generations = self.count(kinds[0]);
        let in_place = |kind: &Kind, seq: u32| lens[kind.index()][Self::place(seq)];
        let of = |seq: u32| -> Pages {
            let has = kinds.iter().filter(|kind| seq >= self.oldest(**kind));
            has.map(|kind| in_place(kind, seq)).sum()
        };
        let total: Pages = (self.max + 1 - MOST..=self.max).map(of).sum();
        let (ages, total) = match generations {
            ..=LEAST => (true, Pages::ZERO),
            MOST.. => (false, total),
            _ => {
                let (young, old) = (of(self.max), of(self.max - LEAST));
                let ages =
                    young.0 * u64::from(LEAST) > total.0 || old.0 * u64::from(LEAST + 2) < total.0;
                (ages, total)
            }
        };
        if ages && priority != Priority::GENTLEST {
            return Step::Age;
        }
        let factor = u64::from(self.stands_for);
        let wanted = scan_count(Pages(total.0.saturating_mul(factor)), priority);
        Step::Scan(Pages(wanted.0.div_ceil(factor)))
    }

    /// True if pages of the oldest generation of a kind may be evicted: it is neither of the two
    /// youngest.
    #[must_use]
    pub const fn can_go(&self, kind: Kind) -> bool {
        self.count(kind) > LEAST
    }

    /// A kind that has as many generations as there can be, so that its oldest one is given up
    /// before another begins: its pages go one up, unless they cannot go at all.
    #[must_use]
    pub fn has_most(&self, kind: Kind) -> bool {
        self.count(kind) == MOST
    }

    /// The oldest generation of a kind is given up.
    pub fn give_up(&mut self, kind: Kind) {
        self.min[kind.index()] += 1;
        self.fates[kind.index()].carry_over();
    }

    /// A generation begins.
    ///
    /// # Panics
    /// On a caller's bug: a kind has as many as there can be.
    pub fn begin(&mut self) {
        assert!(Kind::ALL.iter().all(|kind| !self.has_most(*kind)));
        self.max += 1;
    }

    /// Gives up the oldest generations that are empty; answers whether there were any.
    pub fn give_up_empty(&mut self, lens: &Lens, may_swap: bool) -> bool {
        let mut min = self.min;
        for kind in Kind::ALL {
            let seq = &mut min[kind.index()];
            if kind == Kind::Anon && !may_swap {
                continue;
            }
            let empty = |seq: u32| lens[kind.index()][Self::place(seq)].is_zero();
            while *seq + LEAST <= self.max && empty(*seq) {
                *seq += 1;
            }
        }
        if may_swap {
            let [anon, file] = min;
            min[0] = anon.min(file);
            min[1] = min[0].max(self.min[1]);
        }
        let mut any = false;
        for kind in Kind::ALL {
            let at = kind.index();
            if min[at] != self.min[at] {
                self.min[at] = min[at];
                self.fates[at].carry_over();
                any = true;
            }
        }
        any
    }

    /// The kind that pages are taken of first, and its last tier that is not protected.
    #[must_use]
    pub fn kind(&self, swappiness: u8) -> (Kind, usize) {
        let [anon, file] = self.min;
        let kind = match swappiness {
            0 => Kind::File,
            _ if anon < file => Kind::Anon,
            1 => Kind::File,
            SWAPPINESS_MAX.. => Kind::Anon,
            _ => return self.kind_by_fates(swappiness),
        };
        (kind, self.last_that_goes(kind))
    }

    fn kind_by_fates(&self, swappiness: u8) -> (Kind, usize) {
        let gain = |kind: Kind| match kind {
            Kind::Anon => u64::from(swappiness),
            Kind::File => u64::from(SWAPPINESS_MAX - swappiness),
        };
        let first = |kind: Kind| (self.fates[kind.index()].of(0), gain(kind));
        let kind = if self.goes_before(first(Kind::File), first(Kind::Anon)) {
            Kind::File
        } else {
            Kind::Anon
        };
        (kind, self.last(kind, gain(kind), first(kind.other())))
    }

    /// The last tier of a kind that is not protected from the fate of its own first one.
    #[must_use]
    pub fn last_that_goes(&self, kind: Kind) -> usize {
        self.last(kind, GAIN, (self.fates[kind.index()].of(0), 1))
    }

    fn last(&self, kind: Kind, gain: u64, than: (Fate, u64)) -> usize {
        let fates = &self.fates[kind.index()];
        let goes = |tier: &usize| self.goes_before((fates.of(*tier), gain), than);
        (1..TIERS).take_while(goes).last().unwrap_or(0)
    }

    /// True if pages of one fate are evicted rather than those of another, each with its weight: a
    /// smaller part of them came back, or too few to tell.
    fn goes_before(&self, (fate, gain): (Fate, u64), (than, weight): (Fate, u64)) -> bool {
        let part = |came_back: u64, of: u64, weight: u64| {
            u128::from(came_back) * u128::from(of) * u128::from(weight)
        };
        fate.refaulted < self.batch
            || part(fate.refaulted, than.total + self.batch, weight)
                <= part(than.refaulted + 1, fate.total, gain)
    }

    /// True if a page in the oldest generation with this many uses is protected, where `last` is
    /// the last tier that is not. If so, its uses are zero from now on.
    pub fn protects(&mut self, kind: Kind, last: usize, uses: u8) -> bool {
        let tier = tier(again(uses));
        let protects = tier > last || tier + 1 == TIERS;
        if protects {
            self.fates[kind.index()].now[tier].total += 1;
        }
        protects
    }

    /// A page with that many uses is evicted; returns its shadow.
    pub fn went(&mut self, kind: Kind, uses: u8) -> u32 {
        let again = again(uses);
        self.fates[kind.index()].now[tier(again)].total += 1;
        (self.oldest(kind) & SEQ_MASK) << AGAIN_BITS | u32::from(again)
    }

    /// A page comes back that left a shadow. `None`: it went from a generation that is given up;
    /// else whether it was used so much that it is of the last tier at once. `by_table`: a page
    /// table brings it back.
    pub fn refaulted(&mut self, kind: Kind, shadow: u32, by_table: bool) -> Option<bool> {
        if shadow >> AGAIN_BITS != self.oldest(kind) & SEQ_MASK {
            return None;
        }
        let again = u8::try_from(shadow & ((1 << AGAIN_BITS) - 1)).ok()?;
        let again = again.min(USES_MOST - 1);
        self.fates[kind.index()].now[tier(again)].refaulted += 1;
        Some(by_table || again >= KNOWN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: usize = Kind::File.index();

    fn lens(anon: [u64; 4], file: [u64; 4]) -> Lens {
        [anon, file].map(|of| of.map(Pages))
    }

    /// With three generations, from 1 to 3.
    fn of_three() -> Generations {
        let mut generations = Generations::new(1);
        assert!(generations.give_up_empty(&lens([0, 1, 0, 0], [0, 1, 0, 0]), true));
        assert_eq!(generations.count(Kind::File), 3);
        generations
    }

    #[test]
    fn tiers_are_logarithms_of_uses_after_the_first() {
        assert_eq!([0, 1, 2, 3, 4].map(tier), [0, 1, 2, 2, 3]);
        assert_eq!(tier(again(USES_MOST)), TIERS - 1);
    }

    #[test]
    fn a_tier_is_protected_if_it_comes_back_more_than_twice_as_often_as_the_first() {
        let fates = |of_first, of_second| {
            let mut generations = Generations::new(1);
            for (tier, (refaulted, total)) in [of_first, of_second].into_iter().enumerate() {
                generations.fates[FILE].now[tier] = Fate { refaulted, total };
            }
            generations
        };
        // By parts that came back of the first tier and of the second.
        for (first, second, last) in [
            ((0, 0), (0, 0), 3),
            ((100, 1000), (199, 1000), 0),
            ((100, 1000), (189, 1000), 3),
            ((10, 1000), (63, 100), 3),
            ((10, 1000), (64, 100), 0),
        ] {
            let found = fates(first, second).last_that_goes(Kind::File);
            assert_eq!(found, last, "{first:?} {second:?}");
        }
        let mut generations = fates((10, 1000), (100, 100));
        generations.give_up(Kind::File);
        // 50 are too few.
        assert_eq!(generations.last_that_goes(Kind::File), 3);
        generations.fates[FILE].now[1] = Fate {
            refaulted: 14,
            total: 14,
        };
        assert_eq!(generations.last_that_goes(Kind::File), 0);
        assert!(generations.protects(Kind::File, 0, 2) && !generations.protects(Kind::File, 0, 1));
        // Where memory stands for one 64 times as large, a page stands for 64.
        let scaled = Generations {
            batch: Generations::new(64).batch,
            ..fates((0, 100), (1, 1))
        };
        assert_eq!(scaled.last_that_goes(Kind::File), 0);
    }

    #[test]
    fn five_uses_protect_a_page_and_four_do_not_where_nothing_comes_back() {
        let mut generations = of_three();
        let last = generations.last_that_goes(Kind::File);
        let protects = [4, 5].map(|uses| generations.protects(Kind::File, last, uses));
        assert_eq!(protects, [false, true]);
    }

    #[test]
    fn pages_begin_by_what_brings_them() {
        let comes = |generations: &Generations| {
            let all = [Coming::Used, Coming::Waits, Coming::Fresh, Coming::Written];
            all.map(|coming| generations.of(Kind::File, coming))
        };
        assert_eq!(comes(&Generations::new(1)), [3, 2, 1, 0], "four");
        assert_eq!(comes(&of_three()), [3, 2, 1, 1], "three");
    }

    #[test]
    fn of_three_generations_the_parts_of_the_young_and_the_old_say_when_to_age() {
        let generations = of_three();
        let late = Priority(11);
        // By place: the youngest is 3, the oldest 1. Both kinds count where there is swap.
        for (anon, file, may_swap, ages) in [
            ([0; 4], [0, 100, 300, 0], false, false),
            ([0; 4], [0, 99, 301, 0], false, true),
            ([0; 4], [0, 200, 0, 200], false, false),
            ([0; 4], [0, 199, 0, 201], false, true),
            ([0, 0, 400, 0], [0, 200, 0, 200], false, false),
            ([0, 0, 500, 0], [0, 200, 0, 200], true, true),
        ] {
            let lens = lens(anon, file);
            let step = generations.step(&lens, may_swap, late);
            assert_eq!(step == Step::Age, ages, "{anon:?} {file:?}");
            // Nothing ages at the gentlest priority.
            let gentle = generations.step(&lens, may_swap, Priority::GENTLEST);
            assert!(matches!(gentle, Step::Scan(_)));
        }
        assert_eq!(
            Generations::new(1).step(&lens([0; 4], [0, 0, 0, 4096]), false, late),
            Step::Scan(Pages(2)),
            "four"
        );
    }

    #[test]
    fn a_balance_begins_where_the_old_pages_are_as_many_as_it_wants() {
        for (old, target, begins) in [
            (0, 1000, 6),
            (30_000, 1000, 6),
            (1 << 20, 64, 12),
            (1 << 20, 1024, 10),
            ((1 << 20) - 1, 1024, 9),
            (1 << 20, 1025, 9),
            (u64::MAX, 64, 12),
            (1 << 10, 63, 12),
        ] {
            let found = begins_at(Pages(old), Pages(target), batch(1));
            assert_eq!(found, Priority(begins), "{old} {target}");
        }
    }

    #[test]
    fn of_two_generations_nothing_is_looked_at_before_another_begins() {
        let mut generations = of_three();
        assert!(generations.give_up_empty(&lens([0; 4], [0, 0, 9, 9]), false));
        let at = |priority| generations.step(&lens([0; 4], [0, 0, 9000, 9000]), false, priority);
        assert_eq!(at(Priority::GENTLEST), Step::Scan(Pages::ZERO));
        assert_eq!(at(Priority(11)), Step::Age);
        // Anonymous pages stayed where they were, as they could not go.
        assert_eq!(generations.min, [1, 2]);
        generations.begin();
        assert_eq!(generations.count(Kind::File), 3);
        assert!(generations.has_most(Kind::Anon));
    }

    #[test]
    fn with_swap_files_wait_for_the_anonymous_pages_of_their_generation() {
        let mut generations = Generations::new(1);
        assert!(!generations.give_up_empty(&lens([1, 0, 0, 0], [0, 0, 1, 0]), true));
        assert!(generations.give_up_empty(&lens([0, 1, 0, 0], [0, 0, 1, 0]), true));
        assert_eq!(generations.min, [1, 1]);
        // Two stay.
        assert!(generations.give_up_empty(&lens([0; 4], [0; 4]), true));
        assert_eq!(generations.min, [2, 2]);
    }

    #[test]
    fn the_kind_that_comes_back_less_goes_by_swappiness() {
        let mut generations = of_three();
        let fate = |refaulted| Fate {
            refaulted,
            total: 1000,
        };
        assert_eq!(generations.kind(60).0, Kind::File, "nothing came back");
        generations.fates[0].now[0] = fate(100);
        generations.fates[1].now[0] = fate(150);
        for (swappiness, kind) in [
            (0, Kind::File),
            (1, Kind::File),
            (60, Kind::File),
            (100, Kind::Anon),
            (200, Kind::Anon),
        ] {
            assert_eq!(generations.kind(swappiness).0, kind, "{swappiness}");
        }
        generations.min[0] = 0;
        assert_eq!(generations.kind(1).0, Kind::Anon, "it is older");
        assert_eq!(generations.kind(0).0, Kind::File, "there is no swap");
    }

    #[test]
    fn the_ends_of_swappiness_ask_neither_fate_and_the_older_kind_goes_where_there_is_swap() {
        let fate = |refaulted| Fate {
            refaulted,
            total: 1000,
        };
        for (anon, file) in [(0, 0), (900, 0), (0, 900), (900, 900)] {
            for older in [None, Some(Kind::Anon), Some(Kind::File)] {
                let mut generations = of_three();
                generations.fates[0].now[0] = fate(anon);
                generations.fates[1].now[0] = fate(file);
                if let Some(older) = older {
                    generations.min[older.index()] = 0;
                }
                let of = |swappiness: u8| generations.kind(swappiness).0;
                assert_eq!(of(0), Kind::File, "there is no swap");
                let is_older = older == Some(Kind::Anon);
                let last_resort = if is_older { Kind::Anon } else { Kind::File };
                assert_eq!(of(1), last_resort, "{anon} {file} {older:?}");
                assert_eq!(of(SWAPPINESS_MAX), Kind::Anon, "{anon} {file} {older:?}");
                if is_older {
                    assert_eq!(of(100), Kind::Anon, "{anon} {file}");
                }
            }
        }
    }

    #[test]
    fn pages_that_come_back_count_while_their_generation_is_the_oldest() {
        let mut generations = of_three();
        let [known, other] = [KNOWN + 1, KNOWN].map(|uses| generations.went(Kind::File, uses));
        assert_eq!(generations.fates[FILE].now[2].total, 2);
        assert_eq!(generations.refaulted(Kind::File, known, false), Some(true));
        assert_eq!(generations.refaulted(Kind::File, other, false), Some(false));
        assert_eq!(generations.refaulted(Kind::File, other, true), Some(true));
        assert_eq!(generations.fates[FILE].now[2].refaulted, 3);
        generations.give_up(Kind::File);
        assert_eq!(generations.refaulted(Kind::File, known, true), None);
    }
}
