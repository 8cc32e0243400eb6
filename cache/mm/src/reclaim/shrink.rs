//! Shrinking the inactive lists: a cluster of pages is isolated, each is looked at, judged and
//! dealt with, and the rest are put back.
//!
//! ```text
//!   isolate 32 --> judge each --.--> freed: out of its index, leaving a shadow
//!                               |--> written: its slot or its file, kept until the write ends
//!                               '--> put back: where its flags say, or aside
//! ```
//!
//! Nothing is locked or busy while a write is submitted, CPU time is charged, or the reclaimer is
//! throttled; the pages are only isolated then, which others see in `Zone::isolated`. A page that
//! is pinned or busy is kept.
//!
//! Source: mechanisms 2.5, 2.6, 2.8; Linux 5.15 mm/vmscan.c, shrink_inactive_list(),
//! shrink_page_list().

use env::{Signal, Task, Work};
use frames::{Busy, Flags, FrameId, Shadow};
use policy::reclaim::SwapSender;
use policy::reclaim::page::{Judgement, PageVerdict, Scanner, Seen, Tally, judge};
use policy::reclaim::scan::{Kind, Shrunk, Turn};
use policy::units::Pages;

use super::mapped::{self, Maps};
use super::{Control, isolate, throttle};
use crate::cache::Cache;
use crate::lists::ZoneId;
use crate::lists::isolate::{Batch, CLUSTER_FRAMES, Page};
use crate::registry::regions::Cursor;
use crate::swap::SwapOut;
use crate::vmstat::Item;
use crate::writeback::flush;

/// The fates of the pages of a turn.
pub(super) struct Sorted {
    /// Busy and clean: to be freed, with whether each was of the working set.
    free: [Option<(Busy, bool)>; CLUSTER_FRAMES],
    freeing: usize,
    /// Anonymous pages put under writeback.
    swap_out: SwapOut,
    swapping: u64,
    /// Pages of files that the reclaimer is to write itself.
    page_out: Batch,
    /// Pages of files that left their page tables.
    unmapped: u64,
    /// Still isolated at the end.
    kept: Batch,
}

impl Sorted {
    pub(super) fn new() -> Self {
        Self {
            free: [const { None }; CLUSTER_FRAMES],
            freeing: 0,
            swap_out: SwapOut::new(),
            swapping: 0,
            page_out: Batch::default(),
            unmapped: 0,
            kept: Batch::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn swap_out(&mut self) -> &mut SwapOut {
        &mut self.swap_out
    }
}

/// One turn on an inactive list. Answers how many pages were freed.
pub(super) fn shrink_inactive(
    task: &mut Task<'_>,
    cache: &Cache,
    turn: Turn,
    control: &Control,
    pass: &mut Tally,
) -> Pages {
    let kind = turn.list.kind();
    if !throttle::may_isolate(task, cache, kind, control) {
        return Pages::ZERO;
    }
    let batch = isolate(task, cache, control.zone, turn);
    shrink(task, cache, kind, &batch, control, pass)
}

/// The same of pages that are isolated already.
pub(crate) fn shrink(
    task: &mut Task<'_>,
    cache: &Cache,
    kind: Kind,
    batch: &Batch,
    control: &Control,
    pass: &mut Tally,
) -> Pages {
    let taken = batch.len();
    if taken == 0 {
        return Pages::ZERO;
    }
    let by = if control.who.background {
        (Item::PgscanKswapd, Item::PgstealKswapd)
    } else {
        (Item::PgscanDirect, Item::PgstealDirect)
    };
    let of = match kind {
        Kind::Anon => (Item::PgscanAnon, Item::PgstealAnon),
        Kind::File => (Item::PgscanFile, Item::PgstealFile),
    };
    for item in [Item::Pgisolated, by.0, of.0] {
        cache.counters.add(item, taken);
    }
    task.did(Work::Scan, taken);
    cache.contend(task, control.zone);
    let mut tally = Tally::default();
    let mut sorted = Sorted::new();
    let sender = if control.who.background {
        SwapSender::Background
    } else {
        SwapSender::Direct
    };
    let rule = cache.options.reclaim.judge_rule();
    let scanner = Scanner {
        background: control.who.background,
        node: cache.zones[control.zone].flags(),
        priority: control.priority,
        may_unmap: control.may_unmap,
        may_write: control.may_write && !control.who.within_fs,
        may_swap_out: kind == Kind::File || control.may_write && cache.can_send_out(task, sender),
        slot_free: kind == Kind::Anon && !cache.swap_free().is_zero(),
        no_second_chance: pass.is_fruitless(rule) && cache.memory.is_short(),
        rule,
    };
    judge_all(task, cache, kind, batch, scanner, &mut tally, &mut sorted);
    let mut written = 0;
    let mut unmapped = 0;
    // Pages that are being written are waited for.
    if control.run.is_some() && tally.plainly_kept.is_zero() && sorted.kept.len() > 0 {
        (written, unmapped) = look_again(task, cache, kind, scanner, &mut tally, &mut sorted);
    }
    unmapped += sorted.freeing as u64 + sorted.swapping;
    let freed = free_all(task, cache, control.zone, kind, &mut sorted);
    for item in [by.1, of.1] {
        cache.counters.add(item, freed.0);
    }
    let zone = control.zone;
    cache.zones[zone].note_looked_through(Pages(taken), freed);
    let back = put_back(task, cache, zone, kind, &sorted);
    cache.counters.add(Item::Pgputback, back);
    // Of those that were to be put back, not of what is missing: a page that nobody accounts for
    // must show.
    let gone = sorted.kept.len() - back;
    cache.counters.add(Item::Pgisolatedgone, gone);
    written += sorted.swapping;
    if sorted.swapping > 0 {
        cache.submit_swap_out(task, &mut sorted.swap_out, sender);
    }
    for page in sorted.page_out.pages() {
        written += u64::from(write_page(task, cache, *page, control.who.background));
    }
    let unmapped = match kind {
        Kind::Anon => unmapped,
        Kind::File => sorted.unmapped,
    };
    task.did(Work::Unmap, unmapped);
    task.did(Work::Free, freed.0);

    cache.counters.add(Item::NrVmscanWrite, written);
    let left = tally.left_to_flusher.0;
    cache.counters.add(Item::NrVmscanImmediateReclaim, left);
    cache.counters.add(Item::Pgactivate, tally.activated.0);
    // Pages that were judged to go and were taken by their owner, or pinned, in that moment.
    tally.reclaimed = freed;
    tally.written = Pages(written);
    let listed = cache.zones.listed(task, control.zone);
    {
        let mut balance = cache.zones[control.zone].balance(task);
        let shrunk = Shrunk {
            scanned: Pages(taken),
            reclaimed: freed,
            written: tally.written,
            activated: tally.activated,
        };
        let given_back = cache.memory.given_back_of(control.zone);
        balance.note_shrunk(kind, shrunk, listed, given_back);
    }
    cache.zones.advance_age(task, tally.activated);
    if tally.wants_flushers(rule) {
        cache.wake_flushers(task);
    }
    pass.absorb(&tally);
    freed
}

/// Looks at what stays of a cluster a second time, and waits for what is being written, up to the
/// first page that stays for another reason, for a run of frames. Answers how many writes
/// the first look had begun, and how many anonymous pages were unmapped by it.
fn look_again(
    task: &mut Task<'_>,
    cache: &Cache,
    kind: Kind,
    scanner: Scanner,
    tally: &mut Tally,
    sorted: &mut Sorted,
) -> (u64, u64) {
    let unmapped = core::mem::take(&mut sorted.swapping);
    if unmapped > 0 {
        cache.submit_swap_out(task, &mut sorted.swap_out, SwapSender::Direct);
    }
    let mut written = unmapped;
    for page in core::mem::take(&mut sorted.page_out).pages() {
        written += u64::from(write_page(task, cache, *page, false));
    }
    let first = core::mem::take(&mut sorted.kept);
    let mut second = Tally::default();
    for page in first.pages() {
        let waits = second.plainly_kept.is_zero();
        if waits && cache.pages.table.look(page.frame).1 == page.generation {
            let flags = cache.pages.table.flags(page.frame);
            let owner = cache.pages.table.owner(page.frame);
            if flags.has(Flags::WRITEBACK)
                && cache.pages.wait_written(task, page.frame, owner).is_ok()
            {
                cache.counters.add(Item::NrVmscanWaited, 1);
            }
        }
        let mut one = Batch::default();
        one.push(*page);
        judge_all(task, cache, kind, &one, scanner, &mut second, sorted);
    }
    // Looked at before.
    second.scanned = Pages::ZERO;
    second.taken = Pages::ZERO;
    second.file_taken = Pages::ZERO;
    tally.absorb(&second);
    (written, unmapped)
}

/// Clears out pages that were taken off their lists because of where they are: clean ones are
/// freed, anonymous pages are written; the others go back. Nothing of it counts as scanned. Answers
/// how many were freed, or are on their way out.
pub(crate) fn clear_out(
    task: &mut Task<'_>,
    cache: &Cache,
    (zone, kind): (ZoneId, Kind),
    batch: &Batch,
) -> u64 {
    let mut sorted = Sorted::new();
    for page in batch.pages() {
        let Page { frame, generation } = *page;
        let unless = Flags::DIRTY | Flags::WRITEBACK;
        let clean = kind == Kind::File || cache.swap_has_slot(frame);
        if clean && let Ok(busy) = cache.pages.table.try_busy_of(frame, generation, unless) {
            sorted.free[sorted.freeing] = Some((busy, false));
            sorted.freeing += 1;
            continue;
        }
        if kind == Kind::Anon {
            // No slot: it stays until there is one, or a frame to move to.
            swap_out(task, cache, *page, &mut sorted);
        }
        sorted.kept.push(*page);
    }
    let freed = free_all(task, cache, zone, kind, &mut sorted);
    put_back(task, cache, zone, kind, &sorted);
    let out = sorted.swapping;
    if out > 0 {
        cache.submit_swap_out(task, &mut sorted.swap_out, SwapSender::Limit);
    }
    task.did(Work::Scan, batch.len());
    task.did(Work::Free, freed.0);
    freed.0 + out
}

/// Judges the pages of a turn and sorts them.
fn judge_all(
    task: &Task<'_>,
    cache: &Cache,
    kind: Kind,
    batch: &Batch,
    mut scanner: Scanner,
    tally: &mut Tally,
    sorted: &mut Sorted,
) {
    let anon = kind == Kind::Anon;
    let mut regions = Cursor::default();
    let mut maps = Maps::new();
    for page in batch.pages() {
        let Page { frame, generation } = *page;
        let (flags, now) = cache.pages.table.look(frame);
        if now != generation || !flags.has(Flags::CACHED) {
            // Given back by its owner meanwhile.
            tally.note_refused(anon);
            sorted.kept.push(*page);
            continue;
        }
        let awaited = || cache.pages.awaited.has(task, frame, generation);
        if flags.any(Flags::BUSY) || flags.pins() > 0 || awaited() {
            if is_held(flags) && !anon {
                tally.note_held();
            } else {
                tally.note_refused(anon);
            }
            sorted.kept.push(*page);
            continue;
        }
        let owner = || cache.pages.table.owner(frame);
        let is_mapped = flags.has(Flags::MAPPED);
        let young = if anon {
            regions.test_and_clear_young(&cache.registry.regions, task, owner())
        } else {
            // Looked for where it decides: it is clear after that.
            let asks = is_mapped && scanner.may_unmap && !flags.has(Flags::WRITEBACK);
            let once = !flags.any(Flags::REFERENCED | Flags::DIRTY);
            asks && maps.test_and_clear_young(cache, task, owner())
                && (!once || maps.spares(batch.pages().len()))
        };
        if let Some(ruled) = cache.zones.ruled().filter(|_| young && !anon) {
            ruled.note_use(frame);
        }
        let seen = Seen {
            anon,
            dirty: flags.has(Flags::DIRTY),
            writeback: flags.has(Flags::WRITEBACK),
            mapped: anon || is_mapped,
            reclaim: flags.has(Flags::RECLAIM),
            young,
            // One that is found young in a generation is used: there is no second chance.
            referenced: if cache.zones.order().is_some() {
                young
            } else {
                flags.has(Flags::REFERENCED)
            },
            has_slot: anon && cache.swap_has_slot(frame),
        };
        let mut judged = judge(&seen, &scanner);
        if is_mapped && judged.unmaps() && judged.verdict != PageVerdict::Reclaim {
            sorted.unmapped += u64::from(mapped::unmap(task, cache, *page));
        }
        if act(task, cache, *page, anon, &mut judged, sorted) == Acted::Full {
            scanner.slot_free = false;
        }
        tally.note(&seen, &judged);
    }
    maps.leave(cache);
}

/// True if a page that cannot be taken now goes back where it was and may stay so for long: it is
/// pinned, and nothing else is the matter with it.
fn is_held(flags: Flags) -> bool {
    let moves = Flags::BUSY | Flags::DIRTY | Flags::WRITEBACK | Flags::ACTIVE;
    flags.pins() > 0 && !flags.any(moves)
}

#[derive(PartialEq, Eq)]
enum Acted {
    Done,
    /// The swap file has no slot left.
    Full,
}

/// Does with a page what was judged, as far as it can be done before the batch is put back. A
/// verdict that cannot be carried out (somebody took the page in that moment) keeps the page.
fn act(
    task: &Task<'_>,
    cache: &Cache,
    page: Page,
    anon: bool,
    judged: &mut Judgement,
    sorted: &mut Sorted,
) -> Acted {
    let Page { frame, generation } = page;
    let mut acted = Acted::Done;
    match judged.verdict {
        PageVerdict::Reclaim => {
            let unless = Flags::DIRTY | Flags::WRITEBACK;
            match cache.pages.table.try_busy_of(frame, generation, unless) {
                Ok(busy) => {
                    let workingset = cache.pages.table.flags(frame).has(Flags::WORKINGSET);
                    sorted.free[sorted.freeing] = Some((busy, workingset));
                    sorted.freeing += 1;
                    return acted;
                }
                Err(_) => judged.verdict = PageVerdict::Keep,
            }
        }
        PageVerdict::SwapOut | PageVerdict::PageOut if anon => {
            match swap_out(task, cache, page, sorted) {
                Swapped::Begun => {
                    sorted.kept.push(page);
                    return acted;
                }
                Swapped::Full => {
                    acted = Acted::Full;
                    *judged = judged.without_slot();
                }
                Swapped::Refused => judged.verdict = PageVerdict::Keep,
            }
        }
        PageVerdict::SwapOut | PageVerdict::PageOut => sorted.page_out.push(page),
        PageVerdict::Keep
        | PageVerdict::KeepForWrite
        | PageVerdict::KeepReferenced
        | PageVerdict::Activate
        | PageVerdict::AwaitWrite
        | PageVerdict::Defer => {}
    }
    let (mut set, mut clear) = (Flags::NONE, Flags::NONE);
    if judged.tested {
        if judged.referenced {
            set = set | Flags::REFERENCED;
        } else {
            clear = clear | Flags::REFERENCED;
        }
    }
    if judged.sets_reclaim() {
        set = set | Flags::RECLAIM;
    }
    match judged.verdict {
        PageVerdict::Activate => {
            set = set | Flags::ACTIVE;
            if anon
                && let Ok(busy) = cache
                    .pages
                    .table
                    .try_busy_of(frame, generation, Flags::WRITEBACK)
            {
                cache.drop_slot_if_full(task, &busy);
                cache.release(busy, Flags::NONE, Flags::NONE);
            }
        }
        PageVerdict::AwaitWrite => set = set | Flags::ACTIVE,
        _ => {}
    }
    cache.pages.table.update_of(frame, generation, set, clear);
    sorted.kept.push(page);
    acted
}

pub(super) enum Swapped {
    /// It is under writeback.
    Begun,
    /// There is no slot for it.
    Full,
    /// Somebody took the page in this moment.
    Refused,
}

/// Gives an anonymous page a slot and puts it under writeback; its request goes out when the batch
/// is put back.
pub(super) fn swap_out(task: &Task<'_>, cache: &Cache, page: Page, sorted: &mut Sorted) -> Swapped {
    let unless = Flags::WRITEBACK;
    let Ok(busy) = cache
        .pages
        .table
        .try_busy_of(page.frame, page.generation, unless)
    else {
        return Swapped::Refused;
    };
    if !cache.pages.table.flags(page.frame).has(Flags::DIRTY) {
        // Its slot holds it already; the caller found it pinned a moment ago, and did not free it.
        cache.release(busy, Flags::NONE, Flags::NONE);
        return Swapped::Refused;
    }
    let has_slot = cache.take_slot(task, &busy);
    if has_slot {
        cache.begin_swap_out(task, &busy, &mut sorted.swap_out);
        sorted.swapping += 1;
    }
    cache.release(busy, Flags::NONE, Flags::NONE);
    if has_slot {
        Swapped::Begun
    } else {
        Swapped::Full
    }
}

/// Takes the pages to be freed out of their indices, leaving shadows, and frees them.
fn free_all(
    task: &mut Task<'_>,
    cache: &Cache,
    zone: ZoneId,
    kind: Kind,
    sorted: &mut Sorted,
) -> Pages {
    if sorted.freeing == 0 {
        return Pages::ZERO;
    }
    let mut shadows = [None; CLUSTER_FRAMES];
    {
        let page = |(busy, set): &(Busy, bool)| (busy.frame(), *set);
        let going = sorted.free[..sorted.freeing].iter().flatten().map(page);
        let going = going.zip(&mut shadows);
        cache.zones.evict(task, &cache.pages, kind, going);
    }
    let mut freed_soon = [FrameId(0); CLUSTER_FRAMES];
    let mut freed = [FrameId(0); CLUSTER_FRAMES];
    let mut watched = Vec::new();
    let mut count = 0;
    let going = &mut sorted.free[..sorted.freeing];
    let mut note = |frame| {
        freed[count] = frame;
        count += 1;
    };
    match kind {
        Kind::Anon => {
            for (free, shadow) in going.iter_mut().zip(shadows) {
                let Some(((busy, _), shadow)) = free.take().zip(shadow) else {
                    break;
                };
                note(cache.evict_anon(task, busy, shadow.0));
            }
        }
        Kind::File => {
            if cache.slabs.watch.get().is_some() {
                let page = |(busy, _): &(Busy, bool)| {
                    let owner = cache.pages.table.owner(busy.frame());
                    (owner.file, owner.index)
                };
                watched.extend(going.iter().flatten().map(page));
            }
            for (at, (busy, _)) in going.iter().flatten().enumerate() {
                freed_soon[at] = busy.frame();
            }
            // In one go, under no lock, before anybody can have the pages read again.
            cache.content().vacate(&freed_soon[..going.len()]);
            sorted.unmapped += evict_files(task, cache, going, &shadows, &mut note);
            cache.writeback.totals.cached.sub(count as u64);
        }
    }
    let freed = &freed[..count];
    cache.zones[zone].note_gone(kind, count as u64);
    cache.wake_busy(freed, Signal::PageUnlocked);
    cache.memory.put(task, freed);
    if let Some(watch) = cache.slabs.watch.get() {
        watch.pages_gone(task, &watched);
    }
    cache.shrink_overhead(task);
    Pages(count as u64)
}

/// Takes pages of files out of their indices; answers how many of them were mapped.
fn evict_files(
    task: &Task<'_>,
    cache: &Cache,
    going: &mut [Option<(Busy, bool)>],
    shadows: &[Option<Shadow>; CLUSTER_FRAMES],
    mut note: impl FnMut(FrameId),
) -> u64 {
    let knows_again = cache.options.reclaim.law.knows_again;
    let (mut next, mut unmapped) = (0, 0);
    while let Some((busy, _)) = going.get(next).and_then(Option::as_ref) {
        let file = cache.pages.table.owner(busy.frame()).file;
        let Some(mapping) = cache.mapping(task, file) else {
            unreachable!("a cached page belongs to an open file");
        };
        // Neighbours on the list are mostly of one file: one lock for all of them.
        let mut token = mapping.token.lock(task);
        let mut index = mapping.index.writer(&cache.pages.pool, &mut token);
        let leave = knows_again && cache.pages.leaves_shadows(&mut index);
        while let Some(free) = going.get_mut(next) {
            let same = |busy: &Busy| cache.pages.table.owner(busy.frame()).file == file;
            if !free.as_ref().is_some_and(|(busy, _)| same(busy)) {
                break;
            }
            let Some((busy, _)) = free.take() else { break };
            let shadow = shadows[next].filter(|_| leave);
            let page = cache.pages.table.owner(busy.frame()).index;
            index.remove(page, shadow);
            unmapped += u64::from(cache.unmap(task, &mapping, page, busy.frame()));
            // On no list: nobody else can put it on one.
            note(cache.pages.table.disown(busy));
            next += 1;
        }
    }
    unmapped
}

/// A reclaimer writes a page of a file itself (table row 12). False: it could not be now. `waits`:
/// `try_write_page`.
fn write_page(task: &mut Task<'_>, cache: &Cache, page: Page, waits: bool) -> bool {
    let owner = cache.pages.table.owner(page.frame);
    if cache.pages.table.look(page.frame).1 != page.generation {
        return false;
    }
    let Some(mapping) = cache.mapping(task, owner.file) else {
        return false;
    };
    flush::try_write_page(task, cache, &mapping, owner.index, waits)
}

/// Puts back what stays, where its flags say; where the law defers them, pages that wait for their
/// write where no pass scans. Answers how many came back.
fn put_back(task: &Task<'_>, cache: &Cache, zone: ZoneId, kind: Kind, sorted: &Sorted) -> u64 {
    let defers = cache.options.reclaim.judge_rule().defers(kind) || cache.zones.sets_aside();
    let back = cache
        .zones
        .put_back(task, &cache.pages, sorted.kept.pages(), defers);
    cache.zones[zone].note_gone(kind, sorted.kept.len());
    back
}
