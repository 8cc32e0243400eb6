//! A fresh frame in the place of another: of a pinned one, since pins are snapshots, and of one that is to go out of use.

use env::{Env, Signal, Task};
use frames::{Busy, Content, Flags, FrameId, Slot, Tag};

use crate::cache::Cache;
use crate::lists::isolate::Page;
use crate::registry::mapping::Mapping;

/// Puts `fresh` in the place of the pinned frame `old`, with a copy of its content. The new frame
/// comes back busy, on no list, with whether the page was dirty.
///
/// A frame under writeback is not replaced: its write and the next one of the page could end in
/// either order. The caller waits for that write first.
///
/// # Errors
/// Gives `fresh` back if `old` is no longer pinned, under writeback, or not at that page any more.
pub(crate) fn replace_pinned<E: Env>(
    task: &Task<'_, E>,
    cache: &Cache<E>,
    mapping: &Mapping<E>,
    page: u32,
    old: FrameId,
    fresh: FrameId,
) -> Result<(Busy, bool), FrameId> {
    let owner = mapping.owner(page);
    let Ok(pin) = cache.pages.table.try_pin(old, owner) else {
        return Err(fresh);
    };
    let busy = cache.pages.table.claim(fresh);
    cache.pages.table.adopt(&busy, owner);
    cache.content().copy_frame(&busy, &pin);
    let mut was_dirty = false;
    let replaced = {
        let mut token = mapping.token.lock(task);
        let mut index = mapping.index.writer(&cache.pages.pool, &mut token);
        let flags = cache.pages.table.flags(old);
        was_dirty |= flags.has(Flags::DIRTY);
        // Off the list in the same step: whatever is on a list is cached.
        let mut lru = cache.nodes.lru(task);
        let still = index.get(page) == Slot::Frame(old)
            && !flags.has(Flags::WRITEBACK)
            && cache.pages.table.try_orphan(old);
        if still {
            debug_assert!(
                !index.has_tag(page, Tag::Writeback),
                "tags go with the frame"
            );
            lru.remove(old);
            index.replace(page, fresh);
        }
        still
    };
    cache.unpin(pin);
    if replaced {
        Ok((busy, was_dirty))
    } else {
        Err(cache.disown(busy))
    }
}

/// Moves an anonymous page that has no slot to a frame that is free, and frees its own. The caller has taken it off its list.
/// Nothing happens where no frame is at hand, or somebody has the page in this moment.
pub(crate) fn move_anon<E: Env>(task: &mut Task<'_, E>, cache: &Cache<E>, page: Page) {
    let mut fresh = Vec::new();
    // Refused: there is none.
    let _ = cache.try_alloc(task, 1, &mut fresh);
    if let Some(free) = fresh.pop()
        && let Err(unused) = move_anon_to(task, cache, page, free)
    {
        cache.put_unused(task, &[unused]);
    }
}

/// # Errors
/// Gives `free` back.
fn move_anon_to<E: Env>(
    task: &Task<'_, E>,
    cache: &Cache<E>,
    page: Page,
    free: FrameId,
) -> Result<(), FrameId> {
    let Page { frame, generation } = page;
    let Ok(old) = cache
        .pages
        .table
        .try_busy_of(frame, generation, Flags::WRITEBACK)
    else {
        return Err(free);
    };
    let (flags, owner) = (
        cache.pages.table.flags(frame),
        cache.pages.table.owner(frame),
    );
    let region = cache.region(task, owner.file);
    let Some(region) = region.filter(|_| flags.has(Flags::DIRTY) && !cache.swap_has_slot(frame))
    else {
        cache.release(old, Flags::NONE, Flags::NONE);
        return Err(free);
    };
    let new = cache.pages.table.claim(free);
    let active = if flags.has(Flags::ACTIVE) {
        Flags::ACTIVE
    } else {
        Flags::NONE
    };
    cache
        .pages
        .table
        .adopt_as(&new, owner, Flags::ANON | active);
    cache.content().move_frame(&new, &old);
    region.pages.replace(owner.index, frame, Slot::Frame(free));
    cache.lru_add(task, &[free]);
    cache.release(new, Flags::UPTODATE | Flags::DIRTY, Flags::NONE);
    // Dirty, but its content is in the other.
    cache.pages.table.discard(old);
    cache.wake_busy(&[frame], Signal::PageUnlocked);
    cache.memory.put(task, &[frame]);
    cache.gave_back(task, 1);
    Ok(())
}
