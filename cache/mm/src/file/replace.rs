//! A fresh frame in the place of a pinned one, since pins are snapshots.

use env::{Cause, Task};
use frames::{Busy, Flags, FrameId, Slot, Tag};

use policy::units::Nanos;

use crate::Error;
use crate::cache::Cache;
use crate::registry::mapping::Mapping;

/// The time of a copy out of a page.
const COPY: Nanos = Nanos::micros(20);

/// The frame is pinned, and the caller is about to put another in its place or to take it out of
/// its file. One that is at home in a map has the only place that there is for its page: there are
/// no pins but those of tasks that copy out of it, and the caller waits a moment. True: it did, and
/// looks again.
pub(crate) fn awaits_pins(
    task: &mut Task<'_>,
    cache: &Cache,
    frame: FrameId,
) -> Result<bool, Error> {
    if cache.content().home(frame).is_none() {
        return Ok(false);
    }
    Error::after(task.sleep(Cause::PageRetry, COPY))?;
    Ok(true)
}

/// Puts `fresh` in the place of the pinned frame `old`, with a copy of its content. The new frame
/// comes back busy, on no list, with whether the page was dirty.
///
/// A frame under writeback is not replaced: its write and the next one of the page could end in
/// either order. The caller waits for that write first. Nor is one that is at home in a map
/// (`awaits_pins`).
///
/// # Errors
/// Gives `fresh` back if `old` is no longer pinned, under writeback, or not at that page any more.
pub(crate) fn replace_pinned(
    task: &Task<'_>,
    cache: &Cache,
    mapping: &Mapping,
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
        let stands = index.get(page) == Slot::Frame(old);
        if stands {
            // Its next use is a fault, which finds the fresh one.
            cache.unmap(task, mapping, page, old);
        }
        let flags = cache.pages.table.flags(old);
        was_dirty |= flags.has(Flags::DIRTY);
        // Off the list in the same step: whatever is on a list is cached.
        let mut lru = cache.zones.lru(task);
        let stays = flags.has(Flags::WRITEBACK) || cache.content().home(old).is_some();
        let still = stands && !stays && cache.pages.table.try_orphan(old);
        if still {
            debug_assert!(
                !index.has_tag(page, Tag::Writeback),
                "tags go with the frame"
            );
            lru.remove(old);
            index.replace(page, fresh);
            if flags.has(Flags::DIRTY) {
                cache.zones.note_clean([old]);
                cache.zones.note_dirty([fresh]);
            }
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
