//! Emptying a block for a run: pages that were read once are dropped, the rest move, and frames
//! that come free in it are kept until it is whole (`history::compact::blocks`).
//!
//! Nobody waits: a page that cannot go in this moment ends it, and kept frames go to the free
//! lists.

use core::ops::Range;

use env::{Task, Work};
use frames::{Flags, FrameId};
use history::compact::Blocks;
use history::compact::blocks::{Fate, Found, Seen};
use mm::inside::{ANON, Asked, Batch, CLUSTER_FRAMES, Cursor, Page, Wanted, ZoneId};
use mm::{Error, Item, Runs};
use policy::place::by_use::Purpose;
use policy::place::mobility::Mobility;
use policy::place::search::Floor;
use policy::reclaim::scan::Kind;

use super::{At, take_free};

/// Frames that are emptied at a time.
const CLUSTER: u32 = 32;
const _: () = assert!(CLUSTER as usize == CLUSTER_FRAMES);

/// Takes a run that is free, or empties a block for one.
///
/// # Errors
/// `NoMemory`.
pub(super) fn take(
    task: &mut Task<'_>,
    cache: At<'_>,
    runs: Runs,
    law: &Blocks,
    out: &mut Vec<FrameId>,
) -> Result<bool, Error> {
    let zones = cache.zones_for(task);
    if take_free(task, cache, zones, (runs, Floor::Min), out)? {
        return Ok(true);
    }
    for zone in zones {
        let Some((block, found)) = choose(task, cache, *zone, runs, law) else {
            continue;
        };
        // Its free frames go to the run, and a frame to each page that moves.
        let asked = Asked {
            zone: *zone,
            floor: Floor::Min,
            want: found.free + found.moves,
            first: true,
            exempt: false,
        };
        if cache.memory.room(task, &asked) < asked.want {
            continue;
        }
        if let Some(got) = empty(task, cache, *zone, block, runs, law, out)? {
            return Ok(got);
        }
    }
    Ok(false)
}

/// The cheapest of some blocks of a zone.
fn choose(
    task: &mut Task<'_>,
    cache: At<'_>,
    zone: ZoneId,
    runs: Runs,
    law: &Blocks,
) -> Option<(Range<u32>, Found)> {
    let size = 1 << runs.order;
    let frames = cache.zones.layout().frames(zone);
    let blocks = (frames.end - frames.start) / size;
    let from = cache.of(zone).next_block();
    let mut free = Vec::new();
    let mut regions = Cursor::default();
    let (mut best, mut best_cost) = (None, None);
    let (mut looked, mut next) = (0, from);
    for number in 0..law.looks.min(blocks) {
        let at = (from + number) % blocks;
        let first = frames.start + at * size;
        let block = first..first + size;
        cache.memory.free_blocks(task, block.clone(), &mut free);
        let mut free_blocks = free.iter().copied().peekable();
        let mut found = Found::default();
        let mut frame = first;
        while frame < block.end {
            looked += 1;
            if let Some((_, order)) = free_blocks.next_if(|(at, _)| *at == frame) {
                found.free += 1 << order;
                frame += 1 << order;
                continue;
            }
            match look(task, cache, law, &mut regions, FrameId(frame)).0 {
                Fate::Drops => found.drops += 1,
                Fate::Moves => found.moves += 1,
                Fate::Stays => break,
            }
            if found.moves > Blocks::moves_most(size) {
                break;
            }
            frame += 1;
        }
        next = (at + 1) % blocks;
        let Some(cost) = law.cost(&found, size) else {
            continue;
        };
        if law.is_better(best_cost, cost) {
            (best, best_cost) = (Some((block, found)), Some(cost));
        }
        if law.is_enough(cost, size) {
            break;
        }
    }
    cache.of(zone).set_next_block(next);
    cache.counters.add(Item::CompactMigrateScanned, looked);
    task.did(Work::MigrateScan, looked);
    best
}

/// The fate of the page in a frame that is not free.
fn look(
    task: &Task<'_>,
    cache: At<'_>,
    law: &Blocks,
    regions: &mut Cursor,
    frame: FrameId,
) -> (Fate, Page, Flags) {
    let (flags, generation) = cache.pages.table.look(frame);
    let page = Page { frame, generation };
    let owner = cache.pages.table.owner(frame);
    let anon = owner.file & ANON != 0;
    let mut is_run = || {
        let region = regions.region(cache.regions, task, owner.file);
        let inside = region.filter(|region| owner.index < region.pages.len());
        inside.is_some_and(|region| region.pages.is_run(owner.index))
    };
    let seen = Seen {
        held: !flags.has(Flags::CACHED)
            || flags.any(Flags::BUSY | Flags::WRITEBACK)
            || flags.pins() > 0
            || flags.has(Flags::MAPPED)
            || anon && is_run(),
        file: !anon,
        dirty: flags.has(Flags::DIRTY),
        referenced: flags.has(Flags::REFERENCED),
        active: flags.has(Flags::ACTIVE),
    };
    (law.fate(&seen), page, flags)
}

/// Empties a block; `None`: another task empties it, or too many empty some.
fn empty(
    task: &mut Task<'_>,
    cache: At<'_>,
    zone: ZoneId,
    block: Range<u32>,
    runs: Runs,
    law: &Blocks,
    out: &mut Vec<FrameId>,
) -> Result<Option<bool>, Error> {
    let evacuation = if law.captures {
        let Some(begun) = cache.memory.evacuate(task, block.clone()) else {
            return Ok(None);
        };
        Some(begun)
    } else {
        None
    };
    cache.counters.add(Item::CompactStall, 1);
    let mut part = block.start;
    while part < block.end {
        let end = block.end.min(part + CLUSTER);
        empty_part(task, cache, zone, part..end, law);
        part = end;
    }
    let got = match evacuation {
        Some(evacuation) => {
            let frames = evacuation.capture(task);
            if let Some(frames) = &frames {
                cache.counters.add(Item::Pgalloc, frames.len() as u64);
                cache.memory.took(task, 1 << runs.order);
                task.did(Work::Alloc, 1);
                out.extend(frames.clone().map(FrameId));
            }
            frames.is_some()
        }
        None => take_free(task, cache, cache.zones_for(task), (runs, Floor::Min), out)?,
    };
    let item = if got {
        Item::CompactSuccess
    } else {
        Item::CompactFail
    };
    cache.counters.add(item, 1);
    Ok(Some(got))
}

/// The same of up to a cluster of its frames.
fn empty_part(task: &mut Task<'_>, cache: At<'_>, zone: ZoneId, frames: Range<u32>, law: &Blocks) {
    let mut regions = Cursor::default();
    let mut drops = Vec::with_capacity(CLUSTER_FRAMES);
    let mut moves = Vec::with_capacity(CLUSTER_FRAMES);
    for frame in frames.map(FrameId) {
        let (fate, page, flags) = look(task, cache, law, &mut regions, frame);
        match fate {
            Fate::Drops => drops.push(page),
            Fate::Moves => moves.push((page, flags)),
            Fate::Stays => {}
        }
    }
    if !drops.is_empty() {
        let mut batch = Batch::default();
        {
            let mut lru = cache.zones.lru(task);
            for page in drops {
                let (flags, now) = cache.pages.table.look(page.frame);
                // Another page by now, or off its list: the block is not whole then.
                if now == page.generation && flags.has(Flags::CACHED) && lru.remove(page.frame) {
                    batch.push(page);
                }
            }
        }
        cache.zones[zone].note_isolated(Kind::File, batch.pages().len() as u64);
        let dropped = cache.clear_out(task, (zone, Kind::File), &batch);
        cache.counters.add(Item::CompactDropped, dropped);
    }
    let (mut moved, mut failed) = (0, 0);
    for (page, flags) in moves {
        if move_one(task, cache, page, flags) {
            moved += 1;
        } else {
            failed += 1;
        }
    }
    for (item, count) in [
        (Item::CompactIsolated, moved + failed),
        (Item::CompactPagesMoved, moved),
        (Item::CompactPagemigrateFailed, failed),
    ] {
        cache.counters.add(item, count);
    }
    task.did(Work::MovePage, moved);
}

/// Moves a page to a frame among those of its like. False: there is none, or it cannot go in this
/// moment.
fn move_one(task: &mut Task<'_>, cache: At<'_>, page: Page, flags: Flags) -> bool {
    let mobility = if !cache.compactor.runs.groups || flags.has(Flags::ANON) {
        Mobility::Movable
    } else {
        Mobility::of_page(flags.has(Flags::DIRTY))
    };
    let wanted = Wanted::new(1, Purpose::Used).among(mobility);
    let mut fresh = Vec::new();
    // Refused: there is none.
    let _ = cache.try_alloc(task, wanted, &mut fresh);
    let Some(to) = fresh.pop() else { return false };
    match cache.move_page(task, page, to) {
        Ok(()) => true,
        Err(to) => {
            cache.put_unused(task, &[to]);
            false
        }
    }
}
