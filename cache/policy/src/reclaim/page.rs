//! Judges a page that reclaim has isolated, and draws the consequences of a cluster and of a pass.
//!
//! A page is isolated (its busy bit taken, off its list), *seen*, *judged*, and then freed, written
//! or put back. Judged pages are *tallied*: a cluster of nothing but dirty pages wakes the
//! flushers; a whole pass may mark the node, and may tell the reclaimer to pause before it goes on.
//!
//! ```text
//!                       under writeback --------------------> put aside, marked R (before 4.11: kept)
//!                      |
//!  Seen -> accessed? --+- yes ------------------------------> kept, or active
//!                      |
//!                      +- no -- anon without a slot --------> slot, write (no slot left: active)
//!                           |-- dirty, of a file -----------> put aside, marked R (background: may write; 3.1: all write;
//!                           |                                 3.2: kept, marked R)
//!                           |-- dirty, with a slot ---------> write
//!                           `-- clean ----------------------> freed
//! ```
//!
//! Vocabulary: *R* (`Flags::RECLAIM` in `mm`; PageReclaim): move this page to the old end of the
//! inactive list when its write ends. *Unqueued dirty*: dirty and not under writeback. *Immediate*:
//! a page that is still under writeback when the background comes by a second time, with R set, on
//! a node that is known for it: it waits for the device, not for a flusher. *Aside* (ours): on a
//! list that no pass scans, until the page is clean.
//!
//! Invariants
//!   1. Only a clean page is freed; an anonymous one only if a slot holds it.
//!   2. A direct reclaimer never writes a page of a file, but with `Writers::All`.
//!   3. A page under writeback is neither freed nor written, no matter which task asks.
//!   4. Pages of anonymous memory never count as dirty, unqueued or congested: no flusher writes
//!      them.
//!   5. R is set only on a page that is dirty or under writeback, or whose write the verdict
//!      starts.
//!   6. With `Waits::Aside`, a page that is dirty or under writeback for a file is judged at most
//!      once per write.
//!
//! Source: mechanisms 2.5, 2.6, 2.8; Linux 3.0 and 5.15 mm/vmscan.c, shrink_page_list(),
//! page_check_references(), shrink_inactive_list(), shrink_node(); mm/swap.c,
//! rotate_reclaimable_page(). `Waits::Aside` is after Linux patch "mm: vmscan: introduce
//! LRU_IMMEDIATE" (p4, number 11, never merged), with a list that each page knows.
//! Deviations: no cgroups, no executable mappings, no huge pages; a page is mapped once at most.

use super::scan::{CLUSTER, Kind, Priority};
use crate::units::Pages;

#[cfg(test)]
mod tests;

/// Clusters after which a pass can be called fruitless.
const FRUITLESS_CLUSTERS: u64 = 8;

/// Where the tables of the versions differ, and ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JudgeRule {
    /// The node is flagged DIRTY only if the pass met a dirty page (6.18; before, a pass over
    /// anonymous pages alone flags it too).
    pub dirty_needs_a_page: bool,
    /// The place of pages that wait for their write.
    pub waits: Waits,
    /// Which tasks may write a dirty page of a file by themselves.
    pub writers: Writers,
    /// A pass's tally may mark the node, hold the reclaimer up and wake the flushers (3.11 and
    /// later; before, a direct reclaimer wakes them by how much it scanned).
    pub marks: bool,
    /// An anonymous page that was accessed is active at once, without a second chance first (before
    /// 3.3).
    pub young_anon_is_active: bool,
    /// A pass that finds hardly anything but pages in use stops giving second chances
    /// (`Tally::is_fruitless`; ours) if somebody waits for memory: where memory is used faster than
    /// one reclaimer looks at it, going round again would free the pages that are used once, not
    /// those that are many. If nobody waits, the background rests instead: pages in use are not
    /// taken to fill a stock.
    pub ends_second_chances: bool,
    /// Anonymous pages are scanned though no slot is free, as long as some page has its own (ours;
    /// in Linux a full swap file ends all scanning of them).
    pub empties_full_swap: bool,
    /// A walk over memory that was swapped out has what follows read before it is there
    /// (`swap::walk`; ours).
    pub reads_on: bool,
    /// The file systems have a call by which a single page is written (and
    /// `Tunables::writes_files`). Else a page that reclaim would write is active.
    pub writes_files: bool,
}

/// The place of pages that wait for their write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// They are kept: to the young end of the inactive list, where they come round again (before
    /// 4.11).
    Inactive,
    /// Out of the way, to the active list, to come back when they are written (4.11 and later).
    Active,
    /// Those of files to a list that no pass scans, until they are clean (ours).
    Aside,
}

/// Which tasks may write a dirty page of a file by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// Every reclaimer, at any priority (3.1 and before), as far as its pass may write
    /// (`Scanner::may_write`).
    All,
    /// The background alone, once it has come to looking at more than a quarter of a percent of a
    /// list at a time (3.2 to 3.10).
    Late,
    /// The background, a page that came round with R set, on a node that is marked DIRTY (3.11 to
    /// 6.18).
    Background,
}

/// `Writers::Late` begins below this priority.
const LATE: Priority = Priority(10);

impl JudgeRule {
    /// True if pages of a kind that are left by a pass and wait for their write are put where no
    /// pass scans.
    #[must_use]
    pub fn defers(&self, kind: Kind) -> bool {
        self.waits == Waits::Aside && kind == Kind::File
    }

    /// Of a page that waits for its write.
    fn awaits(&self, seen: &Seen) -> PageVerdict {
        match self.waits {
            Waits::Inactive if !seen.writeback => PageVerdict::KeepForWrite,
            Waits::Inactive => PageVerdict::Keep,
            Waits::Aside if !seen.anon => PageVerdict::Defer,
            Waits::Active | Waits::Aside => PageVerdict::AwaitWrite,
        }
    }
}

/// An isolated page as a reclaimer sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Anonymous, not of a file.
    pub anon: bool,
    /// Its content is nowhere else. An anonymous page without a slot is taken for dirty in any
    /// case.
    pub dirty: bool,
    /// Being written.
    pub writeback: bool,
    /// In a page table.
    pub mapped: bool,
    /// R.
    pub reclaim: bool,
    /// Accessed through its region since it was last looked at (kernel: the accessed bit of a page
    /// table).
    pub young: bool,
    /// Accessed once before (kernel: PageReferenced).
    pub referenced: bool,
    /// Anonymous: a slot of the swap file is its own.
    pub has_slot: bool,
}

/// Marks of a node, made by the background reclaimer and taken away when it finds the node
/// balanced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeFlags {
    /// All pages of a pass were under writeback: pages go round the lists faster than they are
    /// written.
    pub writeback: bool,
    /// All pages of files of a pass were dirty and no flusher had them: the background may write.
    pub dirty: bool,
    /// All dirty pages of a pass belonged to congested devices.
    pub congested: bool,
}

impl NodeFlags {
    /// These and those.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self {
            writeback: self.writeback || other.writeback,
            dirty: self.dirty || other.dirty,
            congested: self.congested || other.congested,
        }
    }
}

/// The reclaimer, and what it may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanner {
    /// The background reclaimer.
    pub background: bool,
    /// The node's marks.
    pub node: NodeFlags,
    /// Of the pass.
    pub priority: Priority,
    /// Pages in page tables may be taken out of them (kernel: `may_unmap`).
    pub may_unmap: bool,
    /// Writes of pages of files may be started: the pass may write, and enter a file system
    /// (kernel: `may_writepage`, `__GFP_FS`).
    pub may_write: bool,
    /// Writes to the swap file may be started (the pass may write, and the caller wait for I/O).
    pub may_swap_out: bool,
    /// The swap file has a free slot.
    pub slot_free: bool,
    /// Second chances are not given: `JudgeRule::ends_second_chances`, and the pass is fruitless.
    pub no_second_chance: bool,
    /// The table.
    pub rule: JudgeRule,
}

/// The verdict on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageVerdict {
    /// Back to the young end of its inactive list.
    Keep,
    /// The same, because it was accessed.
    KeepReferenced,
    /// The same, and R is set: a dirty page that is left to the flusher comes round again until its
    /// write has ended (3.2 to 3.10).
    KeepForWrite,
    /// To the active list. A clean swap slot may be given up (`swap::releases`).
    Activate,
    /// R is set; out of the way: to the active list. When its write ends it goes to the old end of
    /// the inactive list.
    AwaitWrite,
    /// The same, but out of the way is the list that is not scanned (`Waits::Aside`).
    Defer,
    /// Freed; what it was leaves a shadow. An anonymous page's slot stays.
    Reclaim,
    /// A slot is taken, R is set, its write is started, it is kept until that ends. If there is no
    /// slot after all, `Judgement::without_slot`.
    SwapOut,
    /// The same, for a page that has its place on the device.
    PageOut,
}

/// A verdict and what goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The verdict itself.
    pub verdict: PageVerdict,
    /// The page was looked at for accesses: its accessed bits are then to be cleared.
    pub tested: bool,
    /// The new value of PageReferenced; meaningful if `tested`.
    pub referenced: bool,
    /// The page was under writeback, had R, and the node is known for it (row 6a).
    pub immediate: bool,
}

impl Judgement {
    const fn untested(verdict: PageVerdict) -> Self {
        Self {
            verdict,
            tested: false,
            referenced: false,
            immediate: false,
        }
    }

    /// True if R is to be set.
    #[must_use]
    pub const fn sets_reclaim(&self) -> bool {
        matches!(
            self.verdict,
            PageVerdict::AwaitWrite
                | PageVerdict::KeepForWrite
                | PageVerdict::Defer
                | PageVerdict::SwapOut
                | PageVerdict::PageOut
        )
    }

    /// True if a page that is mapped leaves its page table (row 9): it was not in use, whatever its
    /// fate.
    #[must_use]
    pub const fn unmaps(&self) -> bool {
        let in_use = match self.verdict {
            PageVerdict::KeepReferenced => true,
            PageVerdict::Activate => self.referenced,
            PageVerdict::Keep
            | PageVerdict::KeepForWrite
            | PageVerdict::AwaitWrite
            | PageVerdict::Defer
            | PageVerdict::Reclaim
            | PageVerdict::SwapOut
            | PageVerdict::PageOut => false,
        };
        self.tested && !in_use
    }

    /// True if a write is to be started.
    #[must_use]
    pub const fn writes(&self) -> bool {
        matches!(self.verdict, PageVerdict::SwapOut | PageVerdict::PageOut)
    }

    /// Of a page for which no slot was left after all.
    #[must_use]
    pub const fn without_slot(self) -> Self {
        Self {
            verdict: PageVerdict::Activate,
            ..self
        }
    }
}

/// Judges one page.
///
/// # Source
/// mechanisms 2.5, rows 3 and 6 to 13; row 1 (busy) is the caller's, which then tells
/// `Tally::note_refused`.
#[must_use]
#[inline]
pub fn judge(seen: &Seen, scanner: &Scanner) -> Judgement {
    if seen.mapped && !scanner.may_unmap {
        return Judgement::untested(PageVerdict::Keep);
    }
    if seen.writeback {
        let immediate = seen.reclaim && scanner.background && scanner.node.writeback;
        return Judgement {
            immediate,
            ..Judgement::untested(scanner.rule.awaits(seen))
        };
    }
    let found = references(seen, scanner);
    let at_once = seen.anon && scanner.rule.young_anon_is_active;
    let judged = |verdict| Judgement {
        verdict,
        tested: true,
        referenced: seen.young && !at_once,
        immediate: false,
    };
    match found {
        References::Activate => return judged(PageVerdict::Activate),
        References::Keep => return judged(PageVerdict::KeepReferenced),
        References::ReclaimClean | References::Reclaim => {}
    }
    if seen.anon && !seen.has_slot {
        return judged(if !scanner.may_swap_out {
            PageVerdict::Keep
        } else if scanner.slot_free {
            PageVerdict::SwapOut
        } else {
            PageVerdict::Activate
        });
    }
    if !seen.dirty {
        return judged(PageVerdict::Reclaim);
    }
    if !seen.anon && is_flushers_business(seen, scanner) {
        return judged(scanner.rule.awaits(seen));
    }
    let may_write = if seen.anon {
        scanner.may_swap_out
    } else {
        scanner.may_write
    };
    if found == References::ReclaimClean || !may_write {
        return judged(PageVerdict::Keep);
    }
    if !seen.anon && !scanner.rule.writes_files {
        return judged(PageVerdict::Activate);
    }
    judged(PageVerdict::PageOut)
}

/// True if a dirty page of a file is left to the flushers.
fn is_flushers_business(seen: &Seen, scanner: &Scanner) -> bool {
    match scanner.rule.writers {
        Writers::All => false,
        Writers::Late => !scanner.background || scanner.priority >= LATE,
        Writers::Background => {
            scanner.rule.waits == Waits::Aside
                || !scanner.background
                || !seen.reclaim
                || !scanner.node.dirty
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum References {
    Activate,
    Keep,
    /// A file's page, read or written once through a call: not worth a write.
    ReclaimClean,
    Reclaim,
}

/// Second chance (mechanisms 2.6): accessed through a region, it goes round once more, and the
/// second time becomes active. Without second chances its age does not count.
fn references(seen: &Seen, scanner: &Scanner) -> References {
    let at_once = seen.anon && scanner.rule.young_anon_is_active;
    match (
        seen.young && !scanner.no_second_chance,
        seen.referenced || at_once,
    ) {
        (true, true) => References::Activate,
        (true, false) => References::Keep,
        (false, true) if !seen.anon => References::ReclaimClean,
        (false, _) => References::Reclaim,
    }
}

/// The pages that a cluster or a pass has met; clusters add up to a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Pages looked at, those included that could not be isolated.
    pub scanned: Pages,
    /// Pages isolated.
    pub taken: Pages,
    /// Those of files.
    pub file_taken: Pages,
    /// Pages of files that are dirty or under writeback.
    pub dirty: Pages,
    /// Pages of files that are dirty and not under writeback.
    pub unqueued_dirty: Pages,
    /// Pages of files under writeback that came round again: their device is taken for congested.
    pub congested: Pages,
    /// Pages under writeback that were put out of the way.
    pub writeback: Pages,
    /// Pages under writeback that came round again.
    pub immediate: Pages,
    /// Dirty pages of files left to the flusher (counter nr_vmscan_immediate_reclaim).
    pub left_to_flusher: Pages,
    /// Pages to the active list because they were accessed, or could not be swapped (counter
    /// pgactivate; those out of the way for their write count there too).
    pub activated: Pages,
    /// Pages kept because they were accessed.
    pub kept_referenced: Pages,
    /// Clean pages of files kept where they were because somebody holds them.
    pub held: Pages,
    /// Writes started (counter nr_vmscan_write).
    pub written: Pages,
    /// Pages freed.
    pub reclaimed: Pages,
    /// Of the last cluster, pages that were *plainly kept*: for another reason than that they are
    /// being written.
    pub plainly_kept: Pages,
}

impl Tally {
    /// A page that was isolated, and judged like that.
    pub fn note(&mut self, seen: &Seen, judged: &Judgement) {
        let one = Pages(1);
        self.note_taken(seen.anon);
        let goes = judged.writes() || judged.verdict == PageVerdict::Reclaim;
        if !goes && !seen.writeback {
            self.plainly_kept += one;
        }
        if !seen.anon && (seen.dirty || seen.writeback) {
            self.dirty += one;
            if !seen.writeback {
                self.unqueued_dirty += one;
            }
            if seen.writeback && seen.reclaim {
                self.congested += one;
            }
        }
        match judged.verdict {
            PageVerdict::Keep => {}
            PageVerdict::KeepReferenced => self.kept_referenced += one,
            PageVerdict::Activate => self.activated += one,
            PageVerdict::AwaitWrite | PageVerdict::Defer | PageVerdict::KeepForWrite => {
                if judged.immediate {
                    self.immediate += one;
                } else if seen.writeback {
                    self.writeback += one;
                } else {
                    self.left_to_flusher += one;
                }
                if judged.verdict == PageVerdict::AwaitWrite {
                    self.activated += one;
                }
            }
            PageVerdict::Reclaim => self.reclaimed += one,
            PageVerdict::SwapOut | PageVerdict::PageOut => self.written += one,
        }
    }

    /// A page that was isolated but could not be locked (row 1): it is kept.
    pub fn note_refused(&mut self, anon: bool) {
        self.note_taken(anon);
        self.plainly_kept += Pages(1);
    }

    fn note_taken(&mut self, anon: bool) {
        self.scanned += Pages(1);
        self.taken += Pages(1);
        if !anon {
            self.file_taken += Pages(1);
        }
    }

    /// A clean page of a file that somebody holds for longer than a moment (it is pinned), on an
    /// inactive list: it is kept.
    pub fn note_held(&mut self) {
        self.note_refused(false);
        self.held += Pages(1);
    }

    /// Takes a cluster's in.
    pub fn absorb(&mut self, cluster: &Self) {
        let Self {
            scanned,
            taken,
            file_taken,
            dirty,
            unqueued_dirty,
            congested,
            writeback,
            immediate,
            left_to_flusher,
            activated,
            kept_referenced,
            held,
            written,
            reclaimed,
            plainly_kept,
        } = cluster;
        self.plainly_kept = *plainly_kept;
        self.scanned += *scanned;
        self.taken += *taken;
        self.file_taken += *file_taken;
        self.dirty += *dirty;
        self.unqueued_dirty += *unqueued_dirty;
        self.congested += *congested;
        self.writeback += *writeback;
        self.immediate += *immediate;
        self.left_to_flusher += *left_to_flusher;
        self.activated += *activated;
        self.kept_referenced += *kept_referenced;
        self.held += *held;
        self.written += *written;
        self.reclaimed += *reclaimed;
    }

    /// True if a pass has looked at enough to say that it finds hardly anything but pages in use:
    /// less than an eighth was freed or is being written, and most of the rest was accessed. Never
    /// where the rule draws no conclusion from that (`JudgeRule::ends_second_chances`).
    #[must_use]
    pub fn is_fruitless(&self, rule: JudgeRule) -> bool {
        let gone = self.reclaimed.0 + self.written.0;
        let in_use = self.kept_referenced.0 + self.activated.0;
        rule.ends_second_chances
            && self.scanned.0 >= FRUITLESS_CLUSTERS * CLUSTER.0
            && gone < self.scanned.0 / 8
            && in_use > self.scanned.0 / 2
    }

    /// True if the flushers are to be woken after this cluster: all pages met are dirty, and nobody
    /// is writing them.
    #[must_use]
    pub fn wants_flushers(&self, rule: JudgeRule) -> bool {
        rule.marks && !self.taken.is_zero() && self.unqueued_dirty == self.taken
    }
}

/// Why a reclaimer is to pause after a pass over a node. The kind of pause is the law's matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassStall {
    /// The background: pages under writeback come round again, or nothing else is left.
    Immediate,
    /// A direct reclaimer: the node is marked as congested.
    Congested,
}

/// The consequences of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeChange {
    /// Marks to be set; none is taken away here.
    pub set: NodeFlags,
    /// A pause, if there is to be one.
    pub stall: Option<PassStall>,
    /// Nothing is left but what waits for its write: the flushers are to see to it. Nobody else
    /// may, and a pause ends by writes.
    pub flushers: bool,
}

/// Which reclaimer made the pass, and over what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// The background reclaimer.
    pub background: bool,
    /// A direct reclaimer that is not itself a part of writing (kernel: PF_LOCAL_THROTTLE) and may
    /// be held up.
    pub may_throttle: bool,
    /// The node's marks before.
    pub node: NodeFlags,
    /// Pages of the node aside, after the pass (`Waits::Aside`).
    pub aside: Pages,
    /// Pages of files on the inactive list, after the pass.
    pub inactive_file: Pages,
    /// No pass of this balance looks at more.
    pub last: bool,
    /// The table.
    pub rule: JudgeRule,
}

/// Decides what follows from a pass over a node.
///
/// With `Waits::Aside` no page of a file comes round again under writeback, so *immediate* hardly
/// happens. Another sign stands for it: the background freed nothing, less than a cluster is left
/// to look at, whatever it met waits for its write, and so do pages aside. As long as more is left,
/// or what was met was merely accessed, looking on is the better thing: each page is in the way
/// only once. Pages that somebody holds are in the way each time, and count as not there; the last
/// pass, which looks at half a list, takes the other half to be like it. A pass that met nothing
/// says nothing, unless none looks at more: of short lists a gentle one sees no page.
///
/// # Source
/// mechanisms 2.5, below the table; Linux 5.15 mm/vmscan.c, shrink_node().
#[must_use]
pub fn after_pass(tally: &Tally, pass: &Pass) -> NodeChange {
    if !pass.rule.marks {
        return NodeChange::default();
    }
    let aside = pass.rule.waits == Waits::Aside;
    let mut set = NodeFlags::default();
    let (mut stall, mut flushers) = (None, false);
    let congested = !tally.dirty.is_zero() && tally.dirty == tally.congested;
    if pass.background {
        set.writeback = !tally.writeback.is_zero() && tally.writeback == tally.taken;
        set.dirty = tally.unqueued_dirty == tally.file_taken
            && !(pass.rule.dirty_needs_a_page && tally.unqueued_dirty.is_zero());
        set.congested = congested;
        let mut left = pass.inactive_file.saturating_sub(tally.held);
        if pass.last && !tally.held.is_zero() {
            let others = tally.file_taken.saturating_sub(tally.held);
            left = Pages(left.0 * others.0 / tally.file_taken.0);
        }
        let nothing_left = tally.reclaimed.is_zero() && left < CLUSTER;
        // Pages that were merely accessed are none that a pause helps.
        let for_writes = tally.writeback + tally.immediate + tally.left_to_flusher;
        let looked = tally.taken > tally.held || pass.last;
        let all_wait = nothing_left && looked && for_writes + tally.held == tally.taken;
        let waits = aside && all_wait && !pass.aside.is_zero();
        flushers = waits;
        // Ours goes on as long as a pass frees something.
        let goes_on = aside && !tally.reclaimed.is_zero();
        let again = !tally.immediate.is_zero() && !goes_on;
        if again || waits {
            stall = Some(PassStall::Immediate);
        }
    } else if pass.may_throttle && pass.node.congested {
        stall = Some(PassStall::Congested);
    }
    NodeChange {
        set,
        stall,
        flushers,
    }
}

/// The treatment of an inactive page of a file that waits for its write (paper p4, patch 11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Immediate {
    /// It stays where it is scanned.
    Scanned,
    /// It is put on a list that is not, and the counts are wrong as in the patch that was posted.
    Published,
    /// The same with right counts.
    Counted,
}

/// Where a page with R, or one aside, goes when its write has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterWrite {
    /// It stays where it is. R is cleared.
    Stays,
    /// To the old end of the inactive list; R and ACTIVE are cleared (counter pgrotated).
    Rotates,
    /// Still dirty (again): it stays aside, and comes out when a later write leaves it clean.
    StaysAside,
}

/// Decides where a page goes whose write has ended. `busy`: another task holds it, and will put it
/// where it belongs.
///
/// Asked under the lock of the lists, after the page's flags have changed, so that a page is not
/// put aside when its last write has just ended.
///
/// # Source
/// mechanisms 2.8; Linux 5.15 mm/swap.c, rotate_reclaimable_page().
#[must_use]
pub const fn after_write(reclaim: bool, aside: bool, dirty: bool, busy: bool) -> AfterWrite {
    if aside {
        if dirty {
            AfterWrite::StaysAside
        } else {
            AfterWrite::Rotates
        }
    } else if reclaim && !dirty && !busy {
        AfterWrite::Rotates
    } else {
        AfterWrite::Stays
    }
}
