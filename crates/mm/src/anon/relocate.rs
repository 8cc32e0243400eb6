//! A fresh frame in the place of one that is to go out of use.

use env::{Env, Signal, Task};
use frames::{Content, Flags, FrameId, Slot};
use policy::place::by_use::Purpose;

use crate::alloc::Wanted;
use crate::cache::Cache;
use crate::lists::isolate::Page;

/// Moves an anonymous page that has no slot to a frame that is free, and frees its own. The caller has taken it off its list.
/// Nothing happens where no frame is at hand, or somebody has the page in this moment.
pub(crate) fn move_anon<E: Env>(task: &mut Task<'_, E>, cache: &Cache<E>, page: Page) {
    let mut fresh = Vec::new();
    // Refused: there is none.
    let _ = cache.try_alloc(task, Wanted::new(1, Purpose::Anon), &mut fresh);
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
    let region = cache.registry.regions.get(task, owner.file);
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
