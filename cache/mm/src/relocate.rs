//! Moving a page to another frame, because of where its own is: what is in it, whether it is dirty,
//! and its place on the lists go with it, and no device is asked.
//!
//! ```text
//!   the old frame busy: no pin, no writer, no flusher     the new one claimed, for the same page, with the same flags
//!   the content copied
//!   the index names the new one; it stands on the list where the old one stood; the old one is free
//! ```
//!
//! A task that comes with the old frame's number finds it gone and looks the page up again.
//!
//! Invariants
//!   1. A page that is pinned, busy, under writeback, or awaited by its reader stays where it is.
//!   2. A page off the lists stays: the task that isolated it puts back what it took.
//!   3. A dirty page is dirty in every moment: flag and tag go together.
//!
//! Source: ours. Linux 6.12 mm/migrate.c, migrate_folio(), has the same steps around page tables
//! and references.

use core::ops::Range;

use env::{Signal, Task, Work};
use frames::{Busy, Flags, FrameId, RegionEntry, Slot, Tag};
use policy::reclaim::scan::Kind;

use crate::cache::Cache;
use crate::lists::isolate::Page;
use crate::vmstat::Item;

/// The flags that go along with a page.
const KEPT: [Flags; 9] = [
    Flags::UPTODATE,
    Flags::DIRTY,
    Flags::REFERENCED,
    Flags::ACTIVE,
    Flags::MARK,
    Flags::FAILED,
    Flags::RECLAIM,
    Flags::ANON,
    Flags::WORKINGSET,
];

/// Moves a page to the frame `to`, which is free, and gives its own back.
///
/// # Errors
/// Gives `to` back: the page has gone, or cannot be moved in this moment.
pub(crate) fn move_page(
    task: &mut Task<'_>,
    cache: &Cache,
    page: Page,
    to: FrameId,
) -> Result<(), FrameId> {
    let moved = try_move(task, cache, page, to);
    let item = match moved {
        Ok(()) => Item::PgmigrateSuccess,
        Err(_) => Item::PgmigrateFail,
    };
    cache.counters.add(item, 1);
    moved
}

fn try_move(task: &mut Task<'_>, cache: &Cache, page: Page, to: FrameId) -> Result<(), FrameId> {
    let Page { frame, generation } = page;
    let table = &cache.pages.table;
    if cache.pages.awaited.has(task, frame, generation) {
        return Err(to);
    }
    let Ok(old) = table.try_busy_of(frame, generation, Flags::WRITEBACK) else {
        return Err(to);
    };
    let (flags, owner) = (table.flags(frame), table.owner(frame));
    let kept = KEPT.into_iter().filter(|flag| flags.has(*flag));
    let new = table.claim(to);
    table.adopt_as(&new, owner, kept.fold(Flags::NONE, |all, flag| all | flag));
    cache.content().move_frame(&new, &old);
    let moved = if flags.has(Flags::ANON) {
        move_anon(task, cache, &old, to)
    } else {
        move_file(task, cache, &old, to)
    };
    if !moved {
        // Nobody has seen it. Its content goes back.
        cache.content().move_frame(&old, &new);
        let to = table.discard(new);
        cache.release(old, Flags::NONE, Flags::NONE);
        return Err(to);
    }
    cache.zones.moved(task, &cache.pages, (frame, to));
    if flags.has(Flags::DIRTY) && !flags.has(Flags::ANON) {
        cache.zones.note_clean([frame]);
        cache.zones.note_dirty([to]);
    }
    if let Some(overhead) = &cache.memory.overhead {
        overhead.written(to, overhead.gone(frame));
    }
    // Dirty or not: its content is in the other.
    table.discard(old);
    cache.release(new, Flags::NONE, Flags::NONE);
    cache.wake_busy(&[frame], Signal::PageUnlocked);
    // It took one and gives one back: it neither grows by it nor has anything kept for it.
    cache.put_unused(task, &[frame]);
    task.did(Work::Copy, 1);
    task.did(Work::Insert, 1);
    Ok(())
}

/// The index names `to` in the place of the frame, and the list has it. False: the page is off its
/// list, or its file has gone.
fn move_file(task: &Task<'_>, cache: &Cache, old: &Busy, to: FrameId) -> bool {
    let frame = old.frame();
    let owner = cache.pages.table.owner(frame);
    let Some(mapping) = cache.mapping(task, owner.file) else {
        return false;
    };
    let mut token = mapping.token.lock(task);
    let mut index = mapping.index.writer(&cache.pages.pool, &mut token);
    if index.get(owner.index) != Slot::Frame(frame) {
        return false;
    }
    debug_assert!(
        !index.has_tag(owner.index, Tag::Writeback),
        "a busy page is not under writeback"
    );
    if !cache.zones.lru(task).replace(frame, to) {
        return false;
    }
    index.replace(owner.index, to);
    if cache.pages.table.flags(frame).has(Flags::MAPPED) {
        cache.pages.table.update(to, Flags::MAPPED, Flags::NONE);
        cache.zones.note_unmapped(frame);
        cache.zones.note_mapped(to);
    }
    true
}

/// The same of a page of a region; its slot in the swap file goes along.
fn move_anon(task: &Task<'_>, cache: &Cache, old: &Busy, to: FrameId) -> bool {
    let frame = old.frame();
    let owner = cache.pages.table.owner(frame);
    let Some(region) = cache.registry.regions.get(task, owner.file) else {
        return false;
    };
    if region.pages.get(owner.index) != RegionEntry::Frame(frame)
        || !cache.zones.lru(task).replace(frame, to)
    {
        return false;
    }
    cache.move_slot(old, to);
    cache.break_run(&region, owner.index);
    region.pages.moved(owner.index, frame, to);
    true
}

/// A page in a frame that is to be cleared.
pub(crate) struct Found {
    pub(crate) page: Page,
    pub(crate) kind: Kind,
    pub(crate) dirty: bool,
    /// It moves to another frame, if there is one; else it is freed.
    pub(crate) moves: bool,
}

/// Moves the pages that are to, as far as there are `fresh` frames for them; answers how many. The
/// rest stay in `found`.
pub(crate) fn move_found(
    task: &mut Task<'_>,
    cache: &Cache,
    found: &mut Vec<Found>,
    fresh: &mut Vec<FrameId>,
) -> u64 {
    let before = found.len();
    found.retain(|found| {
        if !found.moves {
            return true;
        }
        let Some(to) = fresh.pop() else { return true };
        match move_page(task, cache, found.page, to) {
            Ok(()) => false,
            Err(to) => {
                fresh.push(to);
                true
            }
        }
    });
    (before - found.len()) as u64
}

/// The pages in frames that are to be cleared; `all` of them move, or those alone that were used
/// lately or are dirty.
pub(crate) fn look(task: &Task<'_>, cache: &Cache, frames: Range<u32>, all: bool) -> Vec<Found> {
    let mut found = Vec::new();
    let lru = cache.zones.lru(task);
    for frame in frames.map(FrameId) {
        let (flags, generation) = cache.pages.table.look(frame);
        let in_use = flags.any(Flags::BUSY | Flags::WRITEBACK) || flags.pins() > 0;
        if !flags.has(Flags::CACHED) || in_use || lru.list_of(frame).is_none() {
            continue;
        }
        let kind = if flags.has(Flags::ANON) {
            Kind::Anon
        } else {
            Kind::File
        };
        let dirty = flags.has(Flags::DIRTY);
        // Used once is no more than read in.
        let idle = kind == Kind::File && !dirty && !flags.any(Flags::ACTIVE | Flags::MAPPED);
        found.push(Found {
            page: Page { frame, generation },
            kind,
            dirty,
            moves: all || !idle,
        });
    }
    found
}

#[cfg(test)]
mod tests;
