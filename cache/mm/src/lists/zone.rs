//! The state of a zone beside its lists: pages off them, the pressure on each kind of page, its
//! workers, its sleepers.

use env::{Context, Lock, LockClass, LockGuard};
use frames::sync::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
use policy::place::by_use::Worth;
use policy::reclaim::Tunables;
use policy::reclaim::background::Failures;
use policy::reclaim::page::NodeFlags;
use policy::reclaim::prospects::Prospects;
use policy::reclaim::scan::{Costs, Kind, Shrunk, Sizes, Told, may_deactivate};
use policy::units::{Instant, Pages};

use super::sleepers::Sleepers;
use crate::vmstat::{add, get, sub};

/// See the module.
pub struct Zone {
    /// Pages off the lists: anonymous, of files.
    isolated: [AtomicU64; 2],
    balance: Lock<Balance>,
    /// The zone's marks: WRITEBACK, DIRTY, CONGESTED.
    flags: AtomicU8,
    /// Reclaimers that are at work on it, asleep ones apart.
    at_work: AtomicU32,
    sleepers: Sleepers,
    /// Somebody trims it.
    trimming: AtomicBool,
    /// Dirty pages of files in it; not counted where there is one zone.
    dirty: AtomicI64,
    /// Pages of files in it that are mapped.
    mapped: AtomicI64,
    /// Pages in it whose write has begun, ever, and those whose write has ended; not counted where
    /// there is one zone.
    sent: AtomicU64,
    cleaned: AtomicU64,
    /// Pages of it that reclaim looked at, and that it freed, ever.
    looked_through: [AtomicU64; 2],
    /// The cost of freeing pages here.
    worth: Lock<Worth>,
    /// Pages on the list of those that wait for their write, as the law counts them
    /// (`Immediate::Published`).
    immediate: AtomicI64,
    /// Pages of the inactive list of files that this law fails to count.
    lost_files: AtomicI64,
}

/// Held while a zone is trimmed.
pub(crate) struct Trimming<'a>(&'a AtomicBool);

impl Drop for Trimming<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The pressure on the two kinds of pages.
pub struct Balance {
    costs: Costs,
    /// Refaults that went to the active list, by kind, and what they were when the last cycle of
    /// reclaim ended.
    activated: [u64; 2],
    activated_before: [u64; 2],
    told: Told,
    failures: Failures,
    prospects: Prospects,
    /// Frames that had ever come onto the zone's free lists when `prospects` was last asked or
    /// told.
    given_back: u64,
}

impl Zone {
    pub(super) fn new(tunables: &Tunables) -> Self {
        Self {
            isolated: [const { AtomicU64::new(0) }; 2],
            balance: Lock::new(
                LockClass::Leaf,
                Balance {
                    costs: Costs::new(tunables.law.cost),
                    activated: [0; 2],
                    activated_before: [0; 2],
                    told: Told::new(tunables.told_every()),
                    failures: Failures::new(tunables.revives_background()),
                    prospects: Prospects::default(),
                    given_back: 0,
                },
            ),
            flags: AtomicU8::new(0),
            at_work: AtomicU32::new(0),
            sleepers: Sleepers::new(tunables),
            trimming: AtomicBool::new(false),
            dirty: AtomicI64::new(0),
            mapped: AtomicI64::new(0),
            sent: AtomicU64::new(0),
            cleaned: AtomicU64::new(0),
            looked_through: [const { AtomicU64::new(0) }; 2],
            worth: Lock::new(LockClass::Leaf, Worth::default()),
            immediate: AtomicI64::new(0),
            lost_files: AtomicI64::new(0),
        }
    }

    /// Pages of a kind that are off the lists.
    pub fn isolated(&self, kind: Kind) -> Pages {
        Pages(get(&self.isolated[kind.index()]))
    }

    /// Pages of a kind were taken off the lists.
    pub fn note_isolated(&self, kind: Kind, pages: u64) {
        add(&self.isolated[kind.index()], pages);
    }

    /// Isolated pages of a kind were put back or freed.
    pub fn note_gone(&self, kind: Kind, pages: u64) {
        sub(&self.isolated[kind.index()], pages);
    }

    /// The pressure on its pages.
    pub fn balance<'a>(&'a self, context: &'a impl Context) -> LockGuard<'a, Balance> {
        self.balance.lock(context)
    }

    /// Its marks.
    pub(crate) fn flags(&self) -> NodeFlags {
        let bits = self.flags.load(Ordering::Relaxed);
        NodeFlags {
            writeback: bits & 1 != 0,
            dirty: bits & 2 != 0,
            congested: bits & 4 != 0,
        }
    }

    /// Sets marks; none is taken away.
    pub(crate) fn set_flags(&self, set: NodeFlags) {
        let bits =
            u8::from(set.writeback) | u8::from(set.dirty) << 1 | u8::from(set.congested) << 2;
        if bits != 0 {
            self.flags.fetch_or(bits, Ordering::Relaxed);
        }
    }

    /// Takes all marks away.
    pub(crate) fn clear_flags(&self) {
        self.flags.store(0, Ordering::Relaxed);
    }

    /// True if the background reclaimer has given up. `given_back`: frames that ever came onto the
    /// zone's free lists.
    pub(crate) fn is_hopeless(&self, context: &impl Context, given_back: u64) -> bool {
        let mut balance = self.balance.lock(context);
        balance.failures.hopeless() || balance.prospects(given_back).hopeless()
    }

    /// A reclaimer is at work on it.
    pub(crate) fn enter_work(&self) {
        self.at_work.fetch_add(1, Ordering::Relaxed);
    }

    /// It is no more, or sleeps.
    pub(crate) fn leave_work(&self) {
        self.at_work.fetch_sub(1, Ordering::Relaxed);
    }

    /// Number of tasks at work.
    pub(crate) fn at_work(&self) -> u32 {
        self.at_work.load(Ordering::Relaxed)
    }

    pub(crate) fn sleepers(&self) -> &Sleepers {
        &self.sleepers
    }

    /// The right to trim it, unless somebody has it.
    pub(crate) fn try_trim(&self) -> Option<Trimming<'_>> {
        let taken = self.trimming.swap(true, Ordering::Acquire);
        // A guard that is made gives the right back when it is dropped: none is, unless it was
        // taken here.
        (!taken).then(|| Trimming(&self.trimming))
    }

    /// Dirty pages of files in it.
    pub(crate) fn dirty(&self) -> Pages {
        counted(&self.dirty)
    }

    /// Pages of files in it that are mapped.
    pub(crate) fn mapped(&self) -> Pages {
        counted(&self.mapped)
    }

    /// Pages in it whose write has ended, ever.
    pub(crate) fn cleaned(&self) -> u64 {
        get(&self.cleaned)
    }

    /// Pages in it that are under writeback, to files and to the swap file.
    pub(crate) fn writeback(&self) -> Pages {
        Pages(get(&self.sent).saturating_sub(self.cleaned()))
    }

    /// Writes of pages in it have begun.
    pub(super) fn note_sent(&self, pages: u64) {
        add(&self.sent, pages);
    }

    /// Writes of pages in it have ended.
    pub(crate) fn note_cleaned(&self, pages: u64) {
        add(&self.cleaned, pages);
    }

    /// Reclaim has looked at pages of it, and freed some.
    pub(crate) fn note_looked_through(&self, scanned: Pages, freed: Pages) {
        for (counter, pages) in self.looked_through.iter().zip([scanned, freed]) {
            add(counter, pages.0);
        }
    }

    /// Pages of it that reclaim ever looked at, and those that it freed.
    pub(crate) fn looked_through(&self) -> (Pages, Pages) {
        let [scanned, freed] = &self.looked_through;
        (Pages(get(scanned)), Pages(get(freed)))
    }

    /// The cost of freeing pages here.
    pub(crate) fn worth<'a>(&'a self, context: &'a impl Context) -> LockGuard<'a, Worth> {
        self.worth.lock(context)
    }

    /// Pages that wait for their write, as counted: below zero it reads as none.
    pub(crate) fn immediate(&self) -> Pages {
        counted(&self.immediate)
    }

    pub(super) fn count_immediate(&self, by: i64) {
        self.immediate.fetch_add(by, Ordering::Relaxed);
    }

    /// Inactive pages of files that the law does not count though they are there.
    pub(crate) fn lost_files(&self) -> Pages {
        counted(&self.lost_files)
    }

    pub(super) fn lose_files(&self, pages: i64) {
        self.lost_files.fetch_add(pages, Ordering::Relaxed);
    }

    /// A page of a file in it became dirty (1), or is no more: under writeback, or gone (-1).
    pub(super) fn note_dirty(&self, by: i64) {
        self.dirty.fetch_add(by, Ordering::Relaxed);
    }

    /// A page of a file in it was mapped (1), or is no more (-1).
    pub(super) fn note_mapped(&self, by: i64) {
        self.mapped.fetch_add(by, Ordering::Relaxed);
    }
}

/// A task that counts a page off may come before the task that counts it.
fn counted(pages: &AtomicI64) -> Pages {
    let pages = u64::try_from(pages.load(Ordering::Relaxed));
    Pages(pages.unwrap_or(0))
}

impl Balance {
    /// The recent cost of reclaim, as a pass is about to be planned.
    pub(crate) fn costs(&mut self, sizes: &Sizes) -> Costs {
        self.costs.forget(sizes);
        self.costs
    }

    /// The prospects of the zone, onto whose free lists `given_back` frames have ever come.
    pub fn prospects(&mut self, given_back: u64) -> &mut Prospects {
        if self.given_back != given_back {
            self.given_back = given_back;
            self.prospects.freed();
        }
        &mut self.prospects
    }

    /// Balances that freed nothing.
    pub(crate) fn failures(&self) -> Failures {
        self.failures
    }

    /// The same, to be told what has happened.
    pub fn failures_mut(&mut self) -> &mut Failures {
        &mut self.failures
    }

    /// The lengths of the lists as a pass is told of them now; `sizes`: as they are.
    pub(crate) fn tell(&mut self, now: Instant, sizes: &Sizes) -> Sizes {
        self.told.look(now, sizes, self.activated)
    }

    /// Tells if a pass ages the active list of each kind. `sizes`: as it is told of them.
    pub(crate) fn may_deactivate(&self, sizes: &Sizes, force: bool) -> [bool; 2] {
        let now = self.told.activated(self.activated);
        Kind::ALL.map(|kind| {
            let before = self.activated_before;
            let at = kind.index();
            may_deactivate(sizes, kind, force, now[at], before[at])
        })
    }

    /// A cluster was shrunk.
    pub(crate) fn note_shrunk(
        &mut self,
        kind: Kind,
        shrunk: Shrunk,
        listed: Pages,
        given_back: u64,
    ) {
        self.costs.note_shrunk(kind, shrunk, listed);
        // Looked at before anything of it was freed.
        self.prospects.looked_at(shrunk.scanned);
        self.prospects(given_back);
    }

    /// A cluster was aged, of which `used` pages had been accessed.
    pub(crate) fn note_aged(&mut self, kind: Kind, taken: Pages, used: Pages) {
        self.costs.note_aged(kind, taken, used);
        self.prospects.looked_at(taken);
    }

    /// A page that had left is read again, into this zone. `listed`: pages on the lists, if it was
    /// of the working set.
    pub(super) fn note_refault(&mut self, kind: Kind, activated: bool, listed: Option<Pages>) {
        self.activated[kind.index()] += u64::from(activated);
        if let Some(listed) = listed {
            self.costs.note_refault(kind, Pages(1), listed);
        }
    }

    /// A cycle of reclaim has ended: refaults from now on say that the active lists are to be aged.
    pub(super) fn end_cycle(&mut self) {
        self.activated_before = self.told.activated(self.activated);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_trim_leaves_the_right_with_its_holder() {
        let zone = Zone::new(&Tunables::of(policy::reclaim::ReclaimLaw::TIDEGATE, 250));
        let held = zone.try_trim().unwrap();
        assert!(zone.try_trim().is_none() && zone.try_trim().is_none());
        drop(held);
        assert!(zone.try_trim().is_some());
    }
}
