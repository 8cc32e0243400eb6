//! Tidegate's placement: where a frame comes from depends on what it is wanted for.
//!
//! A page that is touched once goes where memory is free. A page that is touched often stays local,
//! and may have a cluster freed there if that costs less than being far away. A task that finds
//! memory short waits in one queue for all nodes: this decides *which* frame, never which task gets
//! one.
//!
//! ```text
//!   a stream:           local down to HIGH; the freest other node above HIGH; any
//!   what is used again: local down to MIN; a cluster trimmed there, if it is worth it; the freest above HIGH; any
//! ```
//!
//! So a stream never takes the stock between the marks that memory in use finds on its own node,
//! and never has pages evicted while another node has free ones. A *poor* node, where a pass freed
//! next to nothing, is not trimmed until something on it has changed: a cluster was cleaned, or
//! given back.
//!
//! Source: ours. The costs are named here and are the same for all: `SCAN`, `READ`, `REMOTE`.

use super::ZONES_MAX;
use super::distance::{LOCAL, REMOTE as REMOTE_DISTANCE};
use crate::reclaim::scan::CLUSTER;
use crate::units::{Nanos, Pages};

/// Looking at a page of a list (the lab's `Work::Scan`).
const SCAN: Nanos = Nanos(500);
/// Reading a page again, at the least: a fast SSD. A disk, which takes longer, only says so more
/// clearly.
const READ: Nanos = Nanos(60_000);
/// One pass over a page of a node at the usual distance: 64 lines, 60 ns more each than at home.
const REMOTE: Nanos = Nanos(3_840);
/// A trim has to free this many of sixteen pages that it looks at.
const YIELD_LEAST: u64 = 8;
/// A pass that frees less than one in this many found its zone poor.
const POOR: u64 = 8;
/// Pages looked at that are remembered: eight clusters.
const WINDOW: u64 = 8 * CLUSTER.0;

/// The purpose of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// A page of a file that is likely touched once: written whole, or read ahead.
    Stream,
    /// A page of a file that is used again: it came back soon after it was evicted.
    Used,
    /// Memory of a program.
    Anon,
}

impl Purpose {
    /// Number of passes over a page, as far as one can say (a guess).
    const fn passes(self) -> u64 {
        match self {
            Self::Stream => 1,
            Self::Used => 4,
            Self::Anon => 16,
        }
    }

    /// True if every reclaimer is to work when no zone has memory to spare, not only that of the
    /// zone where a page costs least. A page that is touched once is as good anywhere. Freed on one
    /// node alone it would turn over that node's pages for ever while older ones stay elsewhere,
    /// which is what trims do in Linux 3.0.
    #[must_use]
    pub const fn asks_all(self) -> bool {
        matches!(self, Self::Stream)
    }
}

/// An allocation's view of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Free frames.
    pub free: Pages,
    /// Its part of MIN.
    pub min: Pages,
    /// Its part of HIGH.
    pub high: Pages,
    /// All its frames.
    pub size: Pages,
    /// Dirty pages of files in it.
    pub dirty: Pages,
    /// Its part of the dirty limit.
    pub dirty_share: Pages,
    /// The distance of its node from that of the task.
    pub distance: u8,
}

/// A zone whose reclaimer may be asked, as a task sees it that found none with memory to spare.
#[derive(Clone, Copy, Debug)]
pub struct Prospect {
    /// The recent cost of freeing its pages.
    pub worth: Worth,
    /// A pass over it would find next to nothing (`Worth::is_poor`).
    pub is_poor: bool,
    /// The distance of its node from that of the task.
    pub distance: u8,
}

/// The places of a list in the order in which their reclaimers are asked when no zone has memory to
/// spare: first where a page costs least to free there and to use from here, those that would find
/// next to nothing last; of two alike the nearer.
///
/// # Panics
/// If there are more than `ZONES_MAX`.
pub fn asked_in_order(
    purpose: Purpose,
    prospects: &[Prospect],
) -> impl Iterator<Item = usize> + use<> {
    let mut order = [(false, Nanos::ZERO, 0); ZONES_MAX];
    let order_of_all = &mut order[..prospects.len()];
    for (place, prospect) in prospects.iter().enumerate() {
        let cost = prospect.worth.cost() + far(purpose, prospect.distance);
        order_of_all[place] = (prospect.is_poor, cost, place);
    }
    order_of_all.sort_unstable();
    order
        .into_iter()
        .take(prospects.len())
        .map(|(_, _, place)| place)
}

/// The extra cost of using a page at that distance.
fn far(purpose: Purpose, distance: u8) -> Nanos {
    let farther = u64::from(distance.saturating_sub(LOCAL));
    Nanos(REMOTE.0 * purpose.passes() * farther / u64::from(REMOTE_DISTANCE - LOCAL))
}

/// The next step, as long as frames are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Take the free frames but for `keeps`.
    Take {
        /// Of the list.
        place: usize,
        /// Frames that stay free there.
        keeps: Pages,
    },
    /// Free a cluster of the local zone.
    Trim,
    /// No zone has memory to spare: every reclaimer is to work.
    WakeReclaimers,
}

/// The steps of an allocation, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    steps: [Option<Step>; 2 * ZONES_MAX + 4],
    count: usize,
}

impl Plan {
    /// The steps for a task whose list of zones is seen like this, its own zone first, and is worth
    /// that much.
    ///
    /// # Panics
    /// If no zone is seen, or more than `ZONES_MAX`.
    #[must_use]
    pub fn new(purpose: Purpose, views: &[View], worth: &Worth) -> Self {
        let mut plan = Self {
            steps: [None; 2 * ZONES_MAX + 4],
            count: 0,
        };
        let local = views[0];
        let keeps = match purpose {
            // The stock between MIN and HIGH is left to memory that is used for long.
            Purpose::Stream => local.high,
            Purpose::Used | Purpose::Anon => local.min,
        };
        plan.push(Step::Take { place: 0, keeps });
        let next = views[1..].iter().map(|view| view.distance).min();
        if let Some(next) = next
            && purpose != Purpose::Stream
            && worth.pays(purpose, next)
        {
            plan.push(Step::Trim);
            plan.push(Step::Take { place: 0, keeps });
        }
        let mut others = [(0, 0); ZONES_MAX];
        let others = &mut others[..views.len()];
        for (place, view) in views.iter().enumerate() {
            others[place] = (view.ease(), place);
        }
        // The freest first; of two alike the nearer, which comes first in the list.
        others[1..].sort_by_key(|(ease, _)| core::cmp::Reverse(*ease));
        for (_, place) in others.iter().skip(1) {
            plan.push(Step::Take {
                place: *place,
                keeps: views[*place].high,
            });
        }
        plan.push(Step::WakeReclaimers);
        for place in 0..views.len() {
            plan.push(Step::Take {
                place,
                keeps: Pages::ZERO,
            });
        }
        plan
    }

    fn push(&mut self, step: Step) {
        self.steps[self.count] = Some(step);
        self.count += 1;
    }

    /// Where frames are taken that were promised, of whichever zone: the same places in the same
    /// order, each down to its floor, then whatever there is.
    pub fn takes(&self) -> impl Iterator<Item = (usize, Pages)> + use<> {
        self.steps().filter_map(|step| match step {
            Step::Take { place, keeps } => Some((place, keeps)),
            Step::Trim | Step::WakeReclaimers => None,
        })
    }

    /// The steps.
    pub fn steps(&self) -> impl Iterator<Item = Step> + use<> {
        self.steps.into_iter().flatten()
    }
}

impl View {
    /// Free above HIGH less dirty above its share, in 1/1024 of the zone.
    fn ease(&self) -> i64 {
        let above = |pages: Pages, mark: Pages| pages.saturating_sub(mark).0;
        let spare = above(self.free, self.high);
        let dirty = above(self.dirty, self.dirty_share);
        let parts = |pages: u64| i64::try_from(pages * 1024 / self.size.0.max(1)).unwrap_or(0);
        parts(spare) - parts(dirty)
    }

    /// True if the reclaimer of the local zone is to work although others supply: memory in use is
    /// to find some there.
    #[must_use]
    pub fn asks_early(&self, purpose: Purpose) -> bool {
        purpose != Purpose::Stream && self.free.0 * 2 < self.min.0 + self.high.0
    }
}

/// The recent cost of freeing pages of a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Worth {
    scanned: u64,
    freed: u64,
    refaults: u64,
    /// The pages ever cleaned or given back when a pass found next to nothing.
    poor_since: Option<u64>,
}

impl Worth {
    /// A pass over the zone. `changed`: pages of it that were ever cleaned or given back.
    pub fn note_pass(&mut self, scanned: Pages, freed: Pages, changed: u64) {
        if scanned.is_zero() {
            return;
        }
        self.scanned += scanned.0;
        self.freed += freed.0;
        while self.scanned > WINDOW {
            self.scanned /= 2;
            self.freed /= 2;
            self.refaults /= 2;
        }
        self.poor_since = (freed.0 * POOR < scanned.0).then_some(changed);
    }

    /// A page that was evicted came back and was still wanted.
    pub fn note_refault(&mut self) {
        self.refaults += 1;
    }

    /// True if a pass would find next to nothing: the last one did, and no cluster has changed
    /// since.
    #[must_use]
    pub fn is_poor(&self, changed: u64) -> bool {
        self.poor_since
            .is_some_and(|since| changed.saturating_sub(since) < CLUSTER.0)
    }

    /// True if freeing a page here costs less than using one on a node at that distance.
    fn pays(&self, purpose: Purpose, distance: u8) -> bool {
        let gives = !self.is_known() || self.freed * 16 >= self.scanned * YIELD_LEAST;
        gives && self.cost() <= far(purpose, distance)
    }

    /// True if enough pages were looked at to tell.
    fn is_known(&self) -> bool {
        self.scanned >= CLUSTER.0
    }

    /// The cost of a page that is freed here: the looks at pages that were not freed, and its being
    /// read again.
    fn cost(&self) -> Nanos {
        let looks = if self.is_known() {
            self.scanned.div_ceil(self.freed.max(1))
        } else {
            1
        };
        let again = (READ.0 * self.refaults).checked_div(self.freed);
        Nanos(SCAN.0 * looks + again.unwrap_or(0).min(READ.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(free: u64) -> View {
        View {
            free: Pages(free),
            min: Pages(10),
            high: Pages(20),
            size: Pages(1000),
            dirty: Pages::ZERO,
            dirty_share: Pages(100),
            distance: 20,
        }
    }

    fn steps(purpose: Purpose, views: &[View], worth: &Worth) -> Vec<Step> {
        Plan::new(purpose, views, worth).steps().collect()
    }

    const fn take(place: usize, keeps: u64) -> Step {
        Step::Take {
            place,
            keeps: Pages(keeps),
        }
    }

    #[test]
    fn a_stream_leaves_the_local_stock_alone_and_frees_nothing() {
        let views = [view(0), view(500)];
        assert_eq!(
            steps(Purpose::Stream, &views, &Worth::default()),
            [
                take(0, 20),
                take(1, 20),
                Step::WakeReclaimers,
                take(0, 0),
                take(1, 0)
            ]
        );
    }

    #[test]
    fn memory_in_use_takes_the_local_stock_and_has_a_cluster_freed() {
        let views = [view(0), view(500)];
        assert_eq!(
            steps(Purpose::Anon, &views, &Worth::default()),
            [
                take(0, 10),
                Step::Trim,
                take(0, 10),
                take(1, 20),
                Step::WakeReclaimers,
                take(0, 0),
                take(1, 0)
            ]
        );
        // One node has nowhere else to go.
        let alone = steps(Purpose::Anon, &views[..1], &Worth::default());
        assert_eq!(alone, [take(0, 10), Step::WakeReclaimers, take(0, 0)]);
    }

    #[test]
    fn the_freest_comes_first_and_dirty_pages_are_spread() {
        let mut views = [view(20), view(100), view(300), view(100)];
        let order = |views: &[View]| {
            let steps = steps(Purpose::Stream, views, &Worth::default());
            let taken = steps[1..4].iter().map(|step| match step {
                Step::Take { place, .. } => Some(*place),
                Step::Trim | Step::WakeReclaimers => None,
            });
            taken.collect::<Option<Vec<_>>>().unwrap()
        };
        assert_eq!(order(&views), [2, 1, 3]);
        views[2].dirty = Pages(350);
        assert_eq!(order(&views), [1, 3, 2]);
    }

    #[test]
    fn a_trim_has_to_pay() {
        let trims = |purpose, worth: &Worth| {
            steps(purpose, &[view(0), view(500)], worth).contains(&Step::Trim)
        };
        let mut worth = Worth::default();
        worth.note_pass(Pages(64), Pages(60), 0);
        assert!(trims(Purpose::Anon, &worth) && trims(Purpose::Used, &worth));
        // Every evicted page is read again: 60 us are more than 4 passes over a far page, less
        // than 16.
        for _ in 0..60 {
            worth.note_refault();
        }
        assert!(trims(Purpose::Anon, &worth) && !trims(Purpose::Used, &worth));
        // Half of what is looked at is the least.
        let mut dirty = Worth::default();
        dirty.note_pass(Pages(64), Pages(31), 0);
        assert!(!trims(Purpose::Anon, &dirty));
        // A node nearby is no reason to free anything.
        let near = View {
            distance: 10,
            ..view(500)
        };
        let steps = steps(Purpose::Anon, &[view(0), near], &Worth::default());
        assert!(!steps.contains(&Step::Trim));
    }

    #[test]
    fn who_frees_at_the_least_cost_is_asked_first_and_a_poor_zone_last() {
        let prospect = |scanned, freed, distance| {
            let mut worth = Worth::default();
            worth.note_pass(Pages(scanned), Pages(freed), 0);
            Prospect {
                worth,
                is_poor: worth.is_poor(0),
                distance,
            }
        };
        let order = |purpose, prospects: &[Prospect]| -> Vec<_> {
            asked_in_order(purpose, prospects).collect()
        };
        let alike = [prospect(64, 64, 10), prospect(64, 64, 20)];
        assert_eq!(order(Purpose::Stream, &alike), [0, 1]);
        // Nine looks more for a page cost 4.5 us: more than one pass over a far page, less than
        // sixteen.
        let hard = [prospect(80, 10, 10), prospect(64, 64, 20)];
        assert!(!hard[0].is_poor);
        assert_eq!(order(Purpose::Anon, &hard), [0, 1]);
        let harder = [prospect(160, 16, 10), prospect(64, 64, 20)];
        let seen = |place: usize| Prospect {
            is_poor: false,
            ..harder[place]
        };
        assert_eq!(order(Purpose::Stream, &[seen(0), seen(1)]), [1, 0]);
        assert_eq!(order(Purpose::Anon, &[seen(0), seen(1)]), [0, 1]);
        assert!(harder[0].is_poor);
        assert_eq!(order(Purpose::Anon, &harder), [1, 0]);
    }

    #[test]
    fn what_was_promised_is_taken_as_what_is_free_is() {
        let views = [view(100), view(50), view(500)];
        let plan = Plan::new(Purpose::Anon, &views, &Worth::default());
        let pages = |place, keeps| (place, Pages(keeps));
        assert_eq!(
            plan.takes().collect::<Vec<_>>(),
            [
                pages(0, 10),
                pages(0, 10),
                pages(2, 20),
                pages(1, 20),
                pages(0, 0),
                pages(1, 0),
                pages(2, 0)
            ]
        );
    }

    #[test]
    fn a_poor_zone_is_left_alone_until_a_cluster_has_changed() {
        let mut worth = Worth::default();
        assert!(!worth.is_poor(0));
        worth.note_pass(Pages(64), Pages(7), 1000);
        assert!(worth.is_poor(1000) && worth.is_poor(1031) && !worth.is_poor(1032));
        worth.note_pass(Pages(64), Pages(8), 1032);
        assert!(!worth.is_poor(1032));
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let mut worth = Worth::default();
        for _ in 0..8 {
            worth.note_pass(Pages(32), Pages::ZERO, 0);
        }
        assert!(!worth.pays(Purpose::Anon, 20));
        for _ in 0..16 {
            worth.note_pass(Pages(32), Pages(32), 0);
        }
        assert!(worth.pays(Purpose::Anon, 20));
    }

    #[test]
    fn the_local_reclaimer_is_asked_halfway_between_the_marks() {
        assert!(!view(15).asks_early(Purpose::Anon));
        assert!(view(14).asks_early(Purpose::Anon));
        assert!(!view(0).asks_early(Purpose::Stream));
    }
}
