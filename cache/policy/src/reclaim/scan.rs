//! The plan of one pass of reclaim: the number of pages of each list, and their order.
//!
//! A node has four lists: anonymous pages and pages of files, each *inactive* or *active*. A pass
//! at *priority* p looks at `size >> p` pages of each, in clusters of 32 pages, from the old end.
//! The two kinds share the pass by *cost*: the kind whose reclaim caused the more I/O of late is
//! scanned less. When as much was reclaimed as was wanted, the rest of the pass is cut so that both
//! kinds have been scanned in the proportion that was planned.
//!
//! ```text
//!   plan()              sizes, free, costs, priority  ->  pages to scan of each list
//!   Turns::next()       (inactive anon, 32) (active anon, 32) (inactive file, 32) ... until nothing is left
//!        | reclaimed >= target: the kind with less left stops, the other goes on up to
//!        v                      the same share of its target
//! ```
//!
//! Invariants
//!   1. `Turns` never hands out more pages of a list than were planned for it, nor more than 32 at
//!      a time.
//!   2. `Turns` ends: each turn takes at least one page off what is left, and nothing adds to it.
//!   3. Without free swap no anonymous page is planned.
//!   4. A pass at priority 0 plans the whole of each list it may touch, unless swappiness is 0.
//!
//! That is how it is since 5.8. In 3.x a pass is not cut but ends, the share of a kind follows from
//! how many of its pages were found in use (`CostRule::Rotations`), and active lists are looked at
//! turn by turn (`ScanRule`).
//!
//! Source: mechanisms 2.1 to 2.3; Linux 5.15 and 6.12 mm/vmscan.c, inactive_is_low(),
//! get_scan_count(), shrink_lruvec(), shrink_node(); mm/swap.c, lru_note_cost(). Linux 3.0
//! mm/vmscan.c, get_scan_count(), shrink_zone(), inactive_file_is_low_global(); mm/page_alloc.c,
//! calculate_zone_inactive_ratio().

use crate::units::{Instant, Nanos, Pages};

#[cfg(test)]
mod tests;

/// Pages in a GiB, as a shift.
const GIB_SHIFT: u32 = 18;
/// The whole of which swappiness is a part.
const SWAPPINESS_MAX: u8 = 200;
/// The cost of a page of I/O beside a page that was scanned and not freed (6.4 and later).
const IO_WEIGHT: u64 = 32;
/// Costs are halved when their sum is above this share of the pages on the lists.
const COST_SHARE: u64 = 4;

/// Scan priority: 12 is the gentlest, 0 the most desperate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Priority(pub u8);

impl Priority {
    /// The priority at which every pass starts.
    pub const GENTLEST: Self = Self(12);
    /// The end of all passes.
    pub const DESPERATE: Self = Self(0);

    /// The next more desperate one, `None` after 0.
    #[must_use]
    pub fn raised(self) -> Option<Self> {
        self.0.checked_sub(1).map(Self)
    }
}

/// Pages isolated from a list at a time (`SWAP_CLUSTER_MAX`).
pub const CLUSTER: Pages = Pages(32);

/// The kind of memory that a page belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Anonymous memory: swap stands behind it.
    Anon = 0,
    /// A file.
    File = 1,
}

impl Kind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Anon, Self::File];

    /// 0 or 1.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Anon => Self::File,
            Self::File => Self::Anon,
        }
    }

    /// Its inactive list.
    #[must_use]
    pub const fn inactive(self) -> Lru {
        match self {
            Self::Anon => Lru::InactiveAnon,
            Self::File => Lru::InactiveFile,
        }
    }

    /// Its active list.
    #[must_use]
    pub const fn active(self) -> Lru {
        match self {
            Self::Anon => Lru::ActiveAnon,
            Self::File => Lru::ActiveFile,
        }
    }
}

/// A list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Lru {
    /// Anonymous pages that may be evicted.
    InactiveAnon = 0,
    /// Anonymous pages in use.
    ActiveAnon = 1,
    /// Pages of files that may be evicted.
    InactiveFile = 2,
    /// Pages of files in use.
    ActiveFile = 3,
}

impl Lru {
    /// All of them, in the order in which a round takes its turns.
    pub const ALL: [Self; 4] = [
        Self::InactiveAnon,
        Self::ActiveAnon,
        Self::InactiveFile,
        Self::ActiveFile,
    ];

    /// The kind of its pages.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Self::InactiveAnon | Self::ActiveAnon => Kind::Anon,
            Self::InactiveFile | Self::ActiveFile => Kind::File,
        }
    }

    /// True if its pages are in use.
    #[must_use]
    pub const fn is_active(self) -> bool {
        matches!(self, Self::ActiveAnon | Self::ActiveFile)
    }

    /// 0 to 3.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Pages by list: what is on it, or what is to be scanned of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes(pub [Pages; 4]);

impl Sizes {
    /// Of that list.
    #[must_use]
    pub const fn of(&self, list: Lru) -> Pages {
        self.0[list.index()]
    }

    /// Of both lists of that kind.
    #[must_use]
    pub const fn kind(&self, kind: Kind) -> Pages {
        self.of(kind.inactive())
            .saturating_add(self.of(kind.active()))
    }

    /// Of all four.
    #[must_use]
    pub const fn total(&self) -> Pages {
        self.kind(Kind::Anon).saturating_add(self.kind(Kind::File))
    }

    /// Lists `factor` times as long.
    #[must_use]
    pub fn times(&self, factor: u32) -> Self {
        Self(
            self.0
                .map(|pages| Pages(pages.0.saturating_mul(u64::from(factor)))),
        )
    }

    /// Lists of two zones together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(core::array::from_fn(|list| self.0[list] + other.0[list]))
    }

    /// One `factor`-th of each, and at least a page of what is not empty.
    #[must_use]
    pub fn part(&self, factor: u32) -> Self {
        Self(
            self.0
                .map(|pages| Pages(pages.0.div_ceil(u64::from(factor.max(1))))),
        )
    }

    /// True if the active list of that kind should feed the inactive one.
    #[must_use]
    pub fn inactive_is_low(&self, kind: Kind) -> bool {
        inactive_is_low(self.of(kind.inactive()), self.of(kind.active()))
    }

    /// The pages that reclaim may hope for: without free swap, those of files.
    #[must_use]
    pub const fn reclaimable(&self, may_swap: bool) -> Pages {
        if may_swap {
            self.total()
        } else {
            self.kind(Kind::File)
        }
    }
}

/// Number of pages of a list of `size` to look at: `size >> priority`.
#[must_use]
pub fn scan_count(size: Pages, priority: Priority) -> Pages {
    Pages(size.0.checked_shr(u32::from(priority.0)).unwrap_or(0))
}

/// The passes over the lists, where laws differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanRule {
    /// When the active list of a kind feeds the inactive one.
    pub feeds: Feeds,
    /// Each turn on an active list looks if it does (3.x), not each pass.
    pub looks_each_turn: bool,
    /// Inactive pages of files in plenty keep a pass from anonymous ones (`Rules::plenty`; not in
    /// 3.x).
    pub spares_anon: bool,
    /// A pass that has reclaimed enough scans the rest of its plan in proportion (3.11 and later);
    /// else it ends there.
    pub ends_in_proportion: bool,
    /// The rest of a plan that ends in proportion is scanned in full (up to 6.0); else a round of
    /// it is (6.1 and later).
    pub scans_proportion: bool,
    /// The background looks at a cluster, or a kind's share of one, of a list that is too short for
    /// its priority (3.2 and before).
    pub background_looks_at_least: bool,
    /// Passes read the lengths of lists and the refaults off statistics that are brought up to date
    /// so often (6.12; see `Told`).
    pub told_every: Option<Nanos>,
    /// A balance of the background that has freed nothing, as its passes spared anonymous pages,
    /// begins again and spares none (6.10 and later).
    pub spares_once: bool,
}

/// When the active list of a kind should feed the inactive one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feeds {
    /// By the root of the two lists' size in GiB, both kinds alike (`inactive_is_low`; Linux 5.15).
    ByLists,
    /// Anonymous pages by the root of the zone's size; pages of files as soon as fewer are inactive
    /// than active (3.x).
    ByZone,
}

impl ScanRule {
    /// True if the active list of a kind should feed the inactive one, in a zone of `zone` pages.
    #[must_use]
    pub fn feeds(&self, sizes: &Sizes, kind: Kind, zone: Pages) -> bool {
        let (inactive, active) = (sizes.of(kind.inactive()), sizes.of(kind.active()));
        match (self.feeds, kind) {
            (Feeds::ByLists, _) => inactive_is_low(inactive, active),
            (Feeds::ByZone, Kind::Anon) => {
                inactive.0.saturating_mul(inactive_ratio(zone)) < active.0
            }
            (Feeds::ByZone, Kind::File) => active > inactive,
        }
    }

    /// True if a turn on an active list is taken that the plan has granted.
    #[must_use]
    pub fn takes_turn(&self, sizes: impl FnOnce() -> Sizes, kind: Kind, zone: Pages) -> bool {
        !self.looks_each_turn || self.feeds(&sizes(), kind, zone)
    }

    /// True if a cluster of the active list of anonymous pages is to be aged: at the end of each
    /// pass over a zone, and before each of the background's.
    #[must_use]
    pub fn ages_anon(&self, sizes: &Sizes, has_swap: bool, zone: Pages) -> bool {
        has_swap && self.feeds(sizes, Kind::Anon, zone)
    }

    /// Which kinds may be aged, as a plan is told. `once`: how that stands when the pass begins.
    #[must_use]
    pub fn may_deactivate(&self, once: impl FnOnce() -> [bool; 2]) -> [bool; 2] {
        if self.looks_each_turn {
            [true; 2]
        } else {
            once()
        }
    }
}

/// True if the active list should feed the inactive one: `inactive * ratio < active` (mechanisms
/// 2.1).
///
/// The ratio grows with the root of the lists' size in GiB, so that a large list keeps a
/// smaller share of inactive pages: 1 up to one GiB, 3 at one, 31 at 100.
#[must_use]
pub fn inactive_is_low(inactive: Pages, active: Pages) -> bool {
    let ratio = inactive_ratio(inactive.saturating_add(active));
    inactive.0.saturating_mul(ratio) < active.0
}

/// The ratio of the active list to the inactive one, at most.
fn inactive_ratio(both: Pages) -> u64 {
    let gib = both.0 >> GIB_SHIFT;
    // At most 2^46 GiB: ten times that fits.
    if gib == 0 { 1 } else { (10 * gib).isqrt() }
}

/// True if a pass may move pages of one kind from its active list to the inactive one.
///
/// `activated` and `activated_before`: refaults that went to the active list, now and at the end of
/// the last cycle of reclaim. If there were any, the active list holds pages that lost against them
/// and is aged.
///
/// # Source
/// Linux 5.15 mm/vmscan.c, shrink_node(); snapshot_refaults() keeps the second number.
#[must_use]
pub fn may_deactivate(
    sizes: &Sizes,
    kind: Kind,
    force: bool,
    activated: u64,
    activated_before: u64,
) -> bool {
    force || activated != activated_before || sizes.inactive_is_low(kind)
}

/// The lengths of the lists, and the refaults that went to active ones, as passes are told of them.
///
/// In 6.12 they are those of a moment up to 2 s ago. As long as that lasts, passes take an inactive
/// list for long, or for short, whatever has become of it: they scan files alone until none is
/// inactive, or age active ones until all are.
///
/// # Source
/// Linux 6.12 mm/memcontrol.c, lruvec_page_state(), flush_memcg_stats_dwork(), `FLUSH_TIME`;
/// mm/vmscan.c, prepare_scan_control(), which brings them up to date by itself only where that has
/// been left out once (mem_cgroup_flush_stats_ratelimited(); up to 6.11 it always does),
/// inactive_is_low(), snapshot_refaults(); mm/workingset.c, workingset_test_recent(). A pass is
/// divided by the true lengths (lruvec_lru_size()), and too_many_isolated() asks for true ones.
/// Deviation: they are read at the first look after the time, not by a task at that moment.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    every: Option<Nanos>,
    /// Of which the last look was.
    period: Option<u64>,
    sizes: Sizes,
    activated: [u64; 2],
}

impl Told {
    /// Nothing was told yet. `every`: `ScanRule::told_every`.
    #[must_use]
    pub const fn new(every: Option<Nanos>) -> Self {
        Self {
            every,
            period: None,
            sizes: Sizes([Pages::ZERO; 4]),
            activated: [0; 2],
        }
    }

    /// The lengths that a pass is told of when it begins; `sizes` and `activated` are so `now`.
    pub fn look(&mut self, now: Instant, sizes: &Sizes, activated: [u64; 2]) -> Sizes {
        let period = self.every.map(|every| now.0 / every.0);
        if period.is_none() || period != self.period {
            (self.period, self.sizes, self.activated) = (period, *sizes, activated);
        }
        self.sizes
    }

    /// The refaults as they are told; `activated` are so now.
    #[must_use]
    pub fn activated(&self, activated: [u64; 2]) -> [u64; 2] {
        self.every.map_or(activated, |_| self.activated)
    }
}

/// The measure of the cost of reclaiming a kind of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CostRule {
    /// Up to 5.7: no I/O, but how many of the pages looked at were found in use.
    Rotations,
    /// 5.8 to 6.3: pages written by reclaim and pages of the working set that came back.
    WritesOnly,
    /// 6.4 and later: those 32-fold, and pages scanned that could not be reclaimed, once.
    WritesAndFailures,
}

/// The recent cost of reclaiming each kind.
///
/// The sum stays below a quarter of the pages on the lists, by halving both: so old costs are
/// forgotten at the pace at which new ones come. By `CostRule::Rotations` each kind is by itself:
/// what was looked at of it stays below a quarter of its own lists (`forget`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    rule: CostRule,
    /// By `CostRule::Rotations`: pages found in use (`recent_rotated`).
    of: [u64; 2],
    /// By `CostRule::Rotations` alone: pages looked at (`recent_scanned`).
    scanned: [u64; 2],
}

impl Costs {
    /// No costs yet.
    #[must_use]
    pub const fn new(rule: CostRule) -> Self {
        Self {
            rule,
            of: [0; 2],
            scanned: [0; 2],
        }
    }

    /// The cost of a kind, in the rule's own unit: only the ratio of two means anything.
    #[must_use]
    pub const fn of(&self, kind: Kind) -> u64 {
        self.of[kind.index()]
    }

    /// A cluster of an inactive list was scanned. `listed`: pages on all lists.
    pub fn note_shrunk(&mut self, kind: Kind, shrunk: Shrunk, listed: Pages) {
        let failed = shrunk.scanned.saturating_sub(shrunk.reclaimed);
        self.note(kind, shrunk.written, failed, listed);
        self.note_looked_at(kind, shrunk.scanned, shrunk.activated);
    }

    /// A cluster of an active list was aged: `used` of the `taken` pages had been accessed through
    /// a page table.
    pub fn note_aged(&mut self, kind: Kind, taken: Pages, used: Pages) {
        self.note_looked_at(kind, taken, used);
    }

    /// Called before each pass: halves the old counts, so that recent ones weigh more.
    pub fn forget(&mut self, sizes: &Sizes) {
        for kind in Kind::ALL {
            let scanned = &mut self.scanned[kind.index()];
            if *scanned > sizes.kind(kind).0 / COST_SHARE {
                *scanned /= 2;
                self.of[kind.index()] /= 2;
            }
        }
    }

    /// By `CostRule::Rotations`, what pages of a kind are worth to look at: more the fewer of them
    /// were in use.
    fn yield_of(&self, kind: Kind, weight: u64) -> u64 {
        let [rotated, scanned] = [self.of, self.scanned].map(|of| of[kind.index()]);
        (weight + 1).saturating_mul(scanned.saturating_add(1)) / rotated.saturating_add(1)
    }

    fn note_looked_at(&mut self, kind: Kind, taken: Pages, used: Pages) {
        if self.rule == CostRule::Rotations {
            self.scanned[kind.index()] += taken.0;
            self.of[kind.index()] += used.0;
        }
    }

    /// Pages of the working set were read again (`RefaultVerdict::restore`).
    pub fn note_refault(&mut self, kind: Kind, pages: Pages, listed: Pages) {
        self.note(kind, pages, Pages::ZERO, listed);
    }

    /// Pages met on the active list were found in use and stayed there.
    pub fn note_rotated(&mut self, kind: Kind, pages: Pages, listed: Pages) {
        self.note(kind, Pages::ZERO, pages, listed);
    }

    fn note(&mut self, kind: Kind, io: Pages, vain: Pages, listed: Pages) {
        let cost = match self.rule {
            CostRule::Rotations => return,
            CostRule::WritesOnly => io.0,
            CostRule::WritesAndFailures => io.0.saturating_mul(IO_WEIGHT).saturating_add(vain.0),
        };
        let sum = &mut self.of[kind.index()];
        *sum = sum.saturating_add(cost);
        if self.of[0].saturating_add(self.of[1]) > listed.0 / COST_SHARE {
            self.of = self.of.map(|cost| cost / 2);
        }
    }
}

/// The outcome of a cluster of an inactive list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shrunk {
    /// Pages looked at.
    pub scanned: Pages,
    /// Pages freed.
    pub reclaimed: Pages,
    /// Pages whose write was started.
    pub written: Pages,
    /// Pages that went to the active list.
    pub activated: Pages,
}

/// The state that a pass over a node starts from.
#[derive(Clone, Copy, Debug)]
pub struct CountInput<'a> {
    /// The lists.
    pub sizes: &'a Sizes,
    /// The same as passes are told (`Told`).
    pub told: &'a Sizes,
    /// Free frames of the node.
    pub free: Pages,
    /// Sum of the HIGH marks of the node's zones.
    pub high_mark_sum: Pages,
    /// Its priority.
    pub priority: Priority,
    /// The background's pass.
    pub background: bool,
    /// The rule of passes.
    pub rule: ScanRule,
    /// `vm.swappiness`, 0 to 200.
    pub swappiness: u8,
    /// The caller may swap, and there is a free slot.
    pub may_swap: bool,
    /// The recent cost of reclaim.
    pub costs: &'a Costs,
    /// By kind: `may_deactivate`, by way of `ScanRule::may_deactivate`.
    pub may_deactivate: [bool; 2],
    /// Inactive pages of files suffice if they are at least this many (`Rules::plenty`).
    pub plenty: Pages,
    /// Inactive pages of files in plenty keep the pass from anonymous ones (`Sparing`).
    pub spares_anon: bool,
}

impl CountInput<'_> {
    /// True if inactive pages of files, as told, suffice.
    fn spares(&self) -> bool {
        let files = self.told.of(Lru::InactiveFile);
        self.rule.spares_anon
            && self.spares_anon
            && files >= self.plenty
            && !scan_count(files, self.priority).is_zero()
            && !self.may_deactivate[Kind::File.index()]
    }
}

/// A pass's division between the kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// Files alone: no swap, or inactive pages of files in plenty (`cache_trim`).
    FilesOnly,
    /// Anonymous pages alone: hardly any page of a file is left.
    AnonOnly,
    /// Both lists as they are.
    Equal,
    /// By swappiness and cost: these parts of `of`.
    Shares {
        /// Of anonymous pages.
        anon: u64,
        /// Of pages of files.
        file: u64,
        /// Their sum; up to 5.7 one more, so that a list of a few pages may be overlooked.
        of: u64,
    },
}

/// The plan of a pass over a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanPlan {
    /// Why.
    pub balance: Balance,
    /// Pages of each list.
    pub counts: Sizes,
    /// By kind: whether active pages may be moved to the inactive list.
    pub may_deactivate: [bool; 2],
    /// Pages of a turn: `CLUSTER`, or less where that stands for a cluster (`Tunables::cluster`).
    pub cluster: Pages,
    /// The rest of the plan once enough was reclaimed (`ScanRule::ends_in_proportion`).
    pub ends_in_proportion: bool,
    /// The extent of that rest (`ScanRule::scans_proportion`).
    pub scans_proportion: bool,
    /// Inactive pages of files suffice for it.
    pub spares_anon: bool,
}

/// Decides how many pages of each list a pass looks at.
///
/// # Source
/// mechanisms 2.2; Linux 3.0 and 5.15 mm/vmscan.c, get_scan_count(), and 5.15 shrink_node() for the
/// two shortcuts.
///
/// # Panics
/// On a caller's bug: a swappiness above 200.
#[must_use]
pub fn plan(input: &CountInput<'_>) -> ScanPlan {
    assert!(input.swappiness <= SWAPPINESS_MAX);
    let balance = match input.costs.rule {
        CostRule::Rotations => balance_by_use(input),
        CostRule::WritesOnly | CostRule::WritesAndFailures => balance(input),
    };
    let at_least = input.background && input.rule.background_looks_at_least;
    let mut counts = Sizes::default();
    for list in Lru::ALL {
        let full = scan_count(input.sizes.of(list), input.priority);
        let mut count = share(full, list.kind(), balance);
        if at_least && count.is_zero() {
            count = share(CLUSTER, list.kind(), balance);
        }
        counts.0[list.index()] = count;
    }
    ScanPlan {
        balance,
        counts,
        may_deactivate: input.may_deactivate,
        cluster: CLUSTER,
        ends_in_proportion: input.rule.ends_in_proportion,
        scans_proportion: input.rule.scans_proportion,
        spares_anon: input.spares(),
    }
}

/// Up to 5.7 (mechanisms 2.2, 3.2).
fn balance_by_use(input: &CountInput<'_>) -> Balance {
    if !input.may_swap {
        return Balance::FilesOnly;
    }
    if input.priority == Priority::DESPERATE {
        return Balance::Equal;
    }
    if input.sizes.kind(Kind::File).saturating_add(input.free) <= input.high_mark_sum {
        return Balance::AnonOnly;
    }
    let swappiness = u64::from(input.swappiness);
    let anon = input.costs.yield_of(Kind::Anon, swappiness);
    let inverse = u64::from(SWAPPINESS_MAX) - swappiness;
    let file = input.costs.yield_of(Kind::File, inverse);
    let of = anon.saturating_add(file).saturating_add(1);
    Balance::Shares { anon, file, of }
}

/// 5.8 and later.
fn balance(input: &CountInput<'_>) -> Balance {
    let may_deactivate_anon = input.may_deactivate[Kind::Anon.index()];
    if !input.may_swap {
        return Balance::FilesOnly;
    }
    if input.priority == Priority::DESPERATE && input.swappiness > 0 {
        return Balance::Equal;
    }
    let anon_at_hand = !scan_count(input.sizes.of(Lru::InactiveAnon), input.priority).is_zero();
    let files = input.sizes.kind(Kind::File).saturating_add(input.free);
    let file_is_tiny = files <= input.high_mark_sum;
    if file_is_tiny && !may_deactivate_anon && anon_at_hand {
        return Balance::AnonOnly;
    }
    if input.spares() {
        return Balance::FilesOnly;
    }
    let costs = Kind::ALL.map(|kind| u128::from(input.costs.of(kind)));
    let total = costs[0] + costs[1];
    // The total is in both, so that costs weigh two to one at most. Each part is 600 at most.
    let both = 3 * total + 1;
    let swappiness = u128::from(input.swappiness);
    let inverse = u128::from(SWAPPINESS_MAX) - swappiness;
    let anon = part(swappiness * both, total + costs[0]);
    let file = part(inverse * both, total + costs[1]);
    Balance::Shares {
        anon,
        file,
        of: anon + file,
    }
}

fn part(weighted: u128, cost: u128) -> u64 {
    u64::try_from(weighted / (cost + 1)).expect("at most three times swappiness")
}

fn share(full: Pages, kind: Kind, balance: Balance) -> Pages {
    match (balance, kind) {
        (Balance::FilesOnly, Kind::Anon) | (Balance::AnonOnly, Kind::File) => Pages::ZERO,
        (Balance::FilesOnly | Balance::AnonOnly | Balance::Equal, _) => full,
        (Balance::Shares { anon, file, of }, kind) => {
            let part = match kind {
                Kind::Anon => anon,
                Kind::File => file,
            };
            let pages = u128::from(full.0) * u128::from(part) / u128::from(of);
            Pages(u64::try_from(pages).expect("a share is no larger than the whole"))
        }
    }
}

/// A turn: that many pages of that list are to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Of which list: of an inactive one pages are reclaimed, of an active one they are
    /// deactivated.
    pub list: Lru,
    /// Their number, 1 to 32.
    pub pages: Pages,
}

/// Walks through a plan, cluster by cluster.
///
/// Lists that may not be aged are passed over: their share of the plan is used up without a turn.
#[derive(Clone, Debug)]
pub struct Turns {
    plan: ScanPlan,
    left: Sizes,
    target: Pages,
    /// The plan is never cut (any more). A plan of which a round is left is cut again, and ends.
    uncut: bool,
    /// The list that is next in this round; 0 between two rounds.
    next: usize,
    began: bool,
    skipped_deactivate: bool,
}

impl Turns {
    /// Starts. `target`: pages after which the pass may end early. `never_early`: it may not; so
    /// for direct reclaim of the whole system (in 3.x for all) at the gentlest priority, where the
    /// plan is small and its proportions matter more.
    #[must_use]
    pub const fn new(plan: ScanPlan, target: Pages, never_early: bool) -> Self {
        Self {
            plan,
            left: plan.counts,
            target,
            uncut: never_early,
            next: 0,
            began: false,
            skipped_deactivate: false,
        }
    }

    /// The next turn. `reclaimed`: pages reclaimed since the pass (not the turn) began.
    pub fn next(&mut self, reclaimed: Pages) -> Option<Turn> {
        loop {
            if self.next == 0 {
                if self.began && reclaimed >= self.target && !self.uncut {
                    self.cut();
                }
                self.began = true;
                // An active anonymous list that alone is left is not worth a round.
                let worth = [Lru::InactiveAnon, Lru::ActiveFile, Lru::InactiveFile];
                if worth.iter().all(|list| self.left.of(*list).is_zero()) {
                    return None;
                }
            }
            let list = Lru::ALL[self.next];
            self.next = (self.next + 1) % Lru::ALL.len();
            let left = &mut self.left.0[list.index()];
            let pages = left.at_most(self.plan.cluster);
            *left -= pages;
            if pages.is_zero() {
                continue;
            }
            if list.is_active() && !self.plan.may_deactivate[list.kind().index()] {
                self.skipped_deactivate = true;
                continue;
            }
            return Some(Turn { list, pages });
        }
    }

    /// True if an active list was passed over that a desperate caller could have aged.
    #[must_use]
    pub const fn skipped_deactivate(&self) -> bool {
        self.skipped_deactivate
    }

    /// Enough was reclaimed: the kind with less left stops here, the other goes on to the same
    /// share.
    fn cut(&mut self) {
        self.uncut = self.plan.scans_proportion;
        if !self.plan.ends_in_proportion {
            self.left = Sizes::default();
            return;
        }
        let [anon, file] = Kind::ALL.map(|kind| self.left.kind(kind));
        if anon.is_zero() || file.is_zero() {
            self.left = Sizes::default();
            return;
        }
        let stopped = if file > anon { Kind::Anon } else { Kind::File };
        let target = self.plan.counts.kind(stopped);
        // Per cent of the stopped kind's plan that is not scanned; below 100.
        let unscanned = self.left.kind(stopped).0.saturating_mul(100) / (target.0 + 1);
        for list in [stopped.inactive(), stopped.active()] {
            self.left.0[list.index()] = Pages::ZERO;
        }
        let other = stopped.other();
        for list in [other.inactive(), other.active()] {
            let planned = self.plan.counts.of(list);
            let scanned = planned - self.left.of(list);
            let keep = Pages(planned.0.saturating_mul(100 - unscanned) / 100);
            self.left.0[list.index()] = keep.saturating_sub(scanned);
        }
    }
}
