//! Moving pages in one zone until a run stands together, as Linux does: from below they are taken,
//! in front of the upper end they are put (`history::compact::scanner`).
//!
//! ```text
//!   window: up to 32 pages --> rounds: move each, or again, or write it, or wait --> the next window
//!                                        ^-- frames: what is free of a pageblock from above
//! ```
//!
//! Nothing is locked or busy while a write is sent or waited for.
//!
//! A pass that captures looks after each window whether a run stands together. Deviation: the
//! kernel does at each frame that comes free (6.12 mm/page_alloc.c, compaction_capture()).
//!
//! Deviation: a page stays on its list until it has moved, and goes to the young end then; it
//! counts as off its list from when it was taken. So reclaim may take it away meanwhile, which
//! counts as refused.
//!
//! Source: mechanisms 8.1, 8.2; kernel-facts A4, A7; Linux 3.2 mm/compaction.c, compact_zone(),
//! isolate_migratepages(), compaction_alloc(); mm/migrate.c, migrate_pages().

use core::ops::Range;
use std::sync::Arc;

use env::{Interrupt, Task, Work};
use frames::{Flags, FrameId};
use history::compact::Moves;
use history::compact::migrate::{Seen, Verdict, judge, takes};
use history::compact::scanner::Scanner;
use history::compact::suitable::{Aim, Standing, Suitable};
use mm::inside::{ANON, Cursor, Mapping, Page, ZoneId};
use mm::{Item, Runs};
use policy::place::mobility::Migrates;
use policy::reclaim::Reason;
use policy::reclaim::scan::Kind;
use policy::reclaim::throttle::Who;
use policy::units::Pages;

use super::{At, take_of};

/// One pass over a zone.
pub(super) struct ZonePass<'a> {
    cache: At<'a>,
    zone: ZoneId,
    runs: Runs,
    way: &'a Way<'a>,
    moves: &'a Moves,
    /// A run that was taken as soon as it stood together.
    captured: Vec<FrameId>,
    /// Pages that are taken at a time: a cluster (`COMPACT_CLUSTER_MAX`), which is smaller where
    /// memory stands for a larger one.
    batch: usize,
    scanner: Scanner,
    /// Frames to move pages to.
    targets: Vec<FrameId>,
    /// The file that was looked at last.
    file: Option<Arc<Mapping>>,
    regions: Cursor,
    free: Vec<(u32, u8)>,
}

/// A page that is to be moved.
#[derive(Clone, Copy)]
struct Taken {
    page: Page,
    kind: Kind,
}

/// The rights of a pass over a zone.
#[derive(Clone, Copy)]
pub(super) struct Way<'a> {
    pub(super) moves: &'a Moves,
    pub(super) aim: Aim,
    /// It begins where the last one ended.
    pub(super) resumes: bool,
    /// It takes a run for its task as soon as one stands together.
    pub(super) captures: bool,
}

/// The end of a pass.
pub(super) struct Passed {
    pub(super) answer: Suitable,
    /// Nothing was left to look at.
    pub(super) complete: bool,
    pub(super) captured: Vec<FrameId>,
}

/// Moves pages of a zone until it has a run of 2^`order` frames, or its two scanners meet.
pub(super) fn compact_zone(
    task: &mut Task<'_>,
    cache: At<'_>,
    zone: ZoneId,
    runs: Runs,
    way: &Way<'_>,
) -> Passed {
    let marks = cache.memory.marks_of(zone);
    let standing = cache.standing(task, zone);
    let mut passed = Passed {
        answer: way.aim.suitable(&standing, runs.order, &marks),
        complete: false,
        captured: Vec::new(),
    };
    if passed.answer != Suitable::Continue {
        return passed;
    }
    let frames = cache.zones.layout().frames(zone);
    let mut scanner = Scanner::begin(frames, cache.memory.pageblock_order());
    if way.resumes {
        scanner.resume(cache.of(zone).scanned());
    }
    let mut pass = ZonePass {
        cache,
        zone,
        runs,
        way,
        moves: way.moves,
        captured: Vec::new(),
        batch: usize::try_from(cache.options.reclaim.cluster().0).expect("a cluster is small"),
        scanner,
        targets: Vec::new(),
        file: None,
        regions: Cursor::default(),
        free: Vec::new(),
    };
    while pass.goes_on(task) {
        let Some(taken) = pass.take(task) else { break };
        if !taken.is_empty() {
            pass.migrate(task, &taken);
        }
    }
    // To the free lists, and not to those that a CPU keeps.
    cache.memory.put(&Interrupt::new(), &pass.targets);
    passed.complete = pass.scanner.is_complete();
    if way.resumes {
        cache.of(zone).set_scanned(pass.scanner.positions());
    }
    passed.answer = Suitable::Partial;
    passed.captured = pass.captured;
    passed
}

impl ZonePass<'_> {
    fn goes_on(&self, task: &Task<'_>) -> bool {
        let cache = self.cache;
        let stops = cache.is_stopping();
        if self.scanner.is_complete() || !self.captured.is_empty() || stops {
            return false;
        }
        let marks = cache.memory.marks_of(self.zone);
        let (standing, own) = cache.memory.standing_and_movable(task, self.zone);
        let standing = Standing::of(standing);
        let orders = (self.runs.order, cache.memory.pageblock_order());
        !self.way.aim.is_served(&standing, orders, &own, &marks)
    }

    /// Takes pages of the next window. `None`: too many are off their lists, and this pass does not
    /// wait.
    fn take(&mut self, task: &mut Task<'_>) -> Option<Vec<Taken>> {
        while self.is_crowded(task) {
            let who = Who::DIRECT;
            if self.moves.gives_up_if_crowded
                || !self
                    .cache
                    .pause(task, self.zone, Reason::CongestionWait, who)
            {
                return None;
            }
        }
        let Some(window) = self.scanner.window() else {
            return Some(Vec::new());
        };
        let (taken, at) = self.look(task, window.clone());
        self.scanner.looked_to(at);
        let scanned = u64::from(at - window.start);
        self.cache
            .counters
            .add(Item::CompactMigrateScanned, scanned);
        task.did(Work::MigrateScan, scanned);
        for kind in Kind::ALL {
            let count = taken.iter().filter(|taken| taken.kind == kind).count() as u64;
            self.cache.zones[self.zone].note_isolated(kind, count);
        }
        self.cache
            .counters
            .add(Item::CompactIsolated, taken.len() as u64);
        Some(taken)
    }

    /// True if more than half of the pages are off their lists.
    fn is_crowded(&self, task: &Task<'_>) -> bool {
        let zone = &self.cache.zones[self.zone];
        let isolated: Pages = Kind::ALL.into_iter().map(|kind| zone.isolated(kind)).sum();
        let listed = self.cache.zones.sizes(task, self.zone).total();
        isolated.0 > listed.0 / 2
    }

    /// Looks at frames of a window; answers pages to be moved, and where to go on.
    fn look(&mut self, task: &Task<'_>, window: Range<u32>) -> (Vec<Taken>, u32) {
        let cache = self.cache;
        let block = 1_u32 << cache.memory.pageblock_order();
        let mut free = core::mem::take(&mut self.free);
        cache.memory.free_blocks(task, window.clone(), &mut free);
        let mut free_blocks = free.iter().copied().peekable();
        let mut taken = Vec::with_capacity(self.batch);
        let mut asked = None;
        let mut at = window.start;
        while at < window.end && taken.len() < self.batch {
            if let Some((first, order)) = free_blocks.next_if(|(first, _)| *first <= at) {
                at = at.max(first + (1 << order));
                continue;
            }
            let number = at / block;
            if self.moves.movable_blocks_only && asked != Some(number) {
                asked = Some(number);
                if !cache.memory.is_movable_block(task, at) {
                    at = (number + 1) * block;
                    while free_blocks.next_if(|(first, _)| *first < at).is_some() {}
                    continue;
                }
            }
            match self.look_at(task, FrameId(at)) {
                Looked::Run(end) => {
                    at = end;
                    continue;
                }
                Looked::Takes(page) => taken.push(page),
                Looked::Stays => {}
            }
            at += 1;
        }
        self.free = free;
        (taken, at.min(window.end))
    }

    fn look_at(&mut self, task: &Task<'_>, frame: FrameId) -> Looked {
        let cache = self.cache;
        let (flags, generation) = cache.pages.table.look(frame);
        if !flags.has(Flags::CACHED) {
            return Looked::Stays;
        }
        let owner = cache.pages.table.owner(frame);
        if owner.file & ANON != 0 {
            // A run is stepped over as a whole.
            let region = self.regions.region(cache.regions, task, owner.file);
            let inside = region.filter(|anon| owner.index < anon.pages.len());
            if inside.is_some_and(|anon| anon.pages.is_run(owner.index)) {
                return Looked::Run(
                    (frame.0 >> self.runs.order << self.runs.order) + (1 << self.runs.order),
                );
            }
        }
        let page = Page { frame, generation };
        if !takes(self.moves, &self.see(task, page, flags)) {
            return Looked::Stays;
        }
        let kind = if flags.has(Flags::ANON) {
            Kind::Anon
        } else {
            Kind::File
        };
        Looked::Takes(Taken { page, kind })
    }

    fn see(&mut self, task: &Task<'_>, page: Page, flags: Flags) -> Seen {
        let file = self.cache.pages.table.owner(page.frame).file;
        let migrates = if flags.has(Flags::ANON) || file & ANON != 0 {
            Migrates::Copy
        } else {
            self.mapping(task, file)
                .map_or(Migrates::Copy, |mapping| mapping.migrates())
        };
        Seen {
            busy: flags.any(Flags::BUSY) || flags.pins() > 0,
            // An anonymous page without a slot is dirty to reclaim alone.
            dirty: flags.has(Flags::DIRTY) && !flags.has(Flags::ANON),
            writeback: flags.has(Flags::WRITEBACK),
            migrates,
        }
    }

    fn mapping(&mut self, task: &Task<'_>, file: u32) -> Option<&Arc<Mapping>> {
        if self.file.as_ref().is_none_or(|known| known.id != file) {
            self.file = self.cache.mapping(task, file);
        }
        self.file.as_ref()
    }

    /// Moves the pages of a window, round by round.
    fn migrate(&mut self, task: &mut Task<'_>, taken: &[Taken]) {
        let cache = self.cache;
        let (mut moved, mut refused) = (Vec::with_capacity(taken.len()), 0);
        let mut pending: Vec<_> = taken.iter().map(|taken| taken.page).collect();
        let mut ends = false;
        for round in 0..self.moves.rounds {
            let mut again = Vec::with_capacity(pending.len());
            for (at, page) in pending.iter().enumerate() {
                if self.targets.is_empty() && !self.refill(task, pending.len() - at) {
                    again.extend(&pending[at..]);
                    ends = true;
                    break;
                }
                match self.attempt(task, *page, round) {
                    Outcome::Moved(to) => moved.push(to),
                    Outcome::Again => again.push(*page),
                    Outcome::Refused => refused += 1,
                    Outcome::Cancelled => {
                        again.extend(&pending[at..]);
                        ends = true;
                        break;
                    }
                }
            }
            pending = again;
            if pending.is_empty() || ends {
                break;
            }
        }
        {
            let mut lru = cache.zones.lru(task);
            for frame in &moved {
                if let Some(list) = lru.list_of(*frame) {
                    lru.remove(*frame);
                    lru.push_head(list, *frame);
                }
            }
        }
        for kind in Kind::ALL {
            let count = taken.iter().filter(|taken| taken.kind == kind).count() as u64;
            cache.zones[self.zone].note_gone(kind, count);
        }
        if self.way.captures {
            // Nobody else has been at work since the last page moved. Refused: memory that the
            // system does not give, which is for the task that needs it next to say.
            let _ = take_of(task, cache, self.runs, self.zone, None, &mut self.captured);
        }
        let counters = &cache.counters;
        counters.add(Item::CompactPagesMoved, moved.len() as u64);
        counters.add(Item::CompactPagemigrateFailed, pending.len() as u64);
        counters.add(Item::CompactRefused, refused);
        task.did(Work::MovePage, moved.len() as u64);
    }

    fn attempt(&mut self, task: &mut Task<'_>, page: Page, round: u8) -> Outcome {
        let cache = self.cache;
        loop {
            let (flags, generation) = cache.pages.table.look(page.frame);
            if generation != page.generation || !flags.has(Flags::CACHED) {
                // Given back by its owner meanwhile.
                return Outcome::Refused;
            }
            let seen = self.see(task, page, flags);
            match judge(self.moves, &seen, round) {
                Verdict::Move => {
                    let Some(to) = self.targets.pop() else {
                        return Outcome::Again;
                    };
                    return match cache.move_page(task, page, to) {
                        Ok(()) => Outcome::Moved(to),
                        Err(to) => {
                            self.targets.push(to);
                            self.spend();
                            Outcome::Again
                        }
                    };
                }
                Verdict::Again => {
                    self.spend();
                    return Outcome::Again;
                }
                Verdict::Refuse => {
                    self.spend();
                    return Outcome::Refused;
                }
                Verdict::Write => {
                    let owner = cache.pages.table.owner(page.frame);
                    let mapping = self.mapping(task, owner.file).cloned();
                    let sent = mapping.is_some_and(|mapping| {
                        cache.write_page_in_turn(task, &mapping, owner.index)
                    });
                    cache.counters.add(Item::CompactWritten, u64::from(sent));
                    self.spend();
                    return Outcome::Again;
                }
                Verdict::Wait => {
                    cache.counters.add(Item::CompactWaits, 1);
                    let owner = cache.pages.table.owner(page.frame);
                    if cache.pages.wait_written(task, page.frame, owner).is_err() {
                        return Outcome::Cancelled;
                    }
                }
            }
        }
    }

    /// The frame that a try has not used goes back, if the law has it so (Linux 3.2 mm/migrate.c,
    /// unmap_and_move()).
    fn spend(&mut self) {
        if self.moves.spends_targets
            && let Some(to) = self.targets.pop()
        {
            self.cache.memory.put(&Interrupt::new(), &[to]);
        }
    }

    /// Takes frames for `wanted` pages; false: there is none.
    fn refill(&mut self, task: &mut Task<'_>, wanted: usize) -> bool {
        let memory = self.cache.memory;
        let low = memory.marks_of(self.zone).low;
        let mut highest = None;
        let mut scanned = 0;
        for block in self.scanner.blocks() {
            scanned += u64::from(block.end - block.start);
            let first = block.start;
            // As the kernel tests it for a single page: more than LOW and the block itself, and one
            // page.
            let may = |order: u8, free: Pages| free > low + Pages(1 << order) + Pages(2);
            if memory.take_targets(task, block, &mut self.targets, may) > 0 {
                highest = highest.or(Some(first));
            }
            if self.targets.len() >= wanted {
                break;
            }
        }
        // The lowest frame first, as they stand in a pageblock.
        self.targets.reverse();
        self.scanner.took(highest);
        self.cache.counters.add(Item::CompactFreeScanned, scanned);
        task.did(Work::FreeScan, scanned);
        !self.targets.is_empty()
    }
}

enum Looked {
    Stays,
    Takes(Taken),
    /// A run of a region, up to this frame.
    Run(u32),
}

enum Outcome {
    /// To that frame.
    Moved(FrameId),
    Again,
    Refused,
    /// A wait was cancelled.
    Cancelled,
}
