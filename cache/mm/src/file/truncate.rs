//! Changing a file's length, and taking its pages out of the cache.
//!
//! Order: writers are kept out (the gate), the size changes first so that readers see no more than
//! the new end, then each page beyond it is unlinked, its write waited for, the tail of the last
//! page zeroed, and the device's object cut. Each of these steps can fail. The size is the new one
//! then, and the file owes its cut (`cut_owed`) from before the first of them until after the last:
//! nobody writes, grows or syncs it without doing them all. Dirty pages beyond the new end are
//! thrown away: together with holes (`punch`) the only way in which dirty data is ever dropped.

use std::sync::Arc;

use env::{Cause, Interrupt, Signal, Task};
use frames::{Busy, Flags, FrameId, Refusal, Slot};
use policy::place::by_use::Purpose;
use policy::units::{Bytes, PAGE_SHIFT, PAGE_SIZE};

use crate::Error;
use crate::alloc::Wanted;
use crate::cache::{Cache, FILE_MAX, add};
use crate::file::replace::{awaits_pins, replace_pinned};
use crate::file::sync::{shut_settled, wait_frame};
use crate::registry::gate::ShutGate;
use crate::registry::mapping::Mapping;
use crate::writeback::io::set_device_len;

/// Shadows removed in one hold of an index lock.
const SHADOWS_AT_ONCE: u32 = 1024;

/// Sets the true length of a file.
pub(crate) fn truncate(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    mapping: &Arc<Mapping>,
    len: Bytes,
) -> Result<(), Error> {
    if len.0 > FILE_MAX {
        return Err(Error::beyond_files(len));
    }
    let file = shut_settled(task, cache, mapping)?;
    let old = file.size();
    file.set_size(len.0);
    if len.0 >= old {
        // The device's object follows at the next sync (`settle_length`).
        return Ok(());
    }
    file.owe_cut();
    cut(task, cache, &file)
}

/// Takes away what is behind the end of a file that was made shorter, in the cache and on the
/// device; an error leaves that owed.
pub(crate) fn cut(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    file: &ShutGate<'_>,
) -> Result<(), Error> {
    drop_behind_end(task, cache, file)?;
    zero_behind_end(task, cache, file)?;
    set_device_len(task, file, file.size())?;
    // A read that began before the cut may have brought the old tail.
    zero_behind_end(task, cache, file)?;
    file.cut_is_done();
    Ok(())
}

/// Takes every page behind the end out of the cache, dirty ones too.
pub(crate) fn drop_behind_end(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    file: &ShutGate<'_>,
) -> Result<(), Error> {
    let first_gone = file.size().div_ceil(PAGE_SIZE);
    let first_gone = u32::try_from(first_gone).expect("below FILE_MAX");
    drop_pages(task, cache, file, first_gone)
}

/// Which pages leave the cache.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// All, dirty ones too.
    All,
    /// Pages that are neither dirty nor under writeback.
    Clean,
}

/// Takes every page from `first` on out of the cache, dirty ones too.
pub(crate) fn drop_pages(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    file: &ShutGate<'_>,
    first: u32,
) -> Result<(), Error> {
    drop_range(task, cache, file, first, u32::MAX, Which::All)
}

/// Takes pages in `first..=last` out of the cache.
pub(crate) fn drop_range(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    mapping: &ShutGate<'_>,
    first: u32,
    last: u32,
    which: Which,
) -> Result<(), Error> {
    let mut next = Some(first);
    while let Some(from) = next {
        let found = mapping.next_frame(task, &cache.pages.pool, (from, last));
        let Some((page, frame)) = found else { break };
        drop_page(task, cache, mapping, page, frame, which)?;
        if let Some(watch) = cache.slabs.watch.get()
            && which == Which::All
        {
            watch.pages_gone(task, &[(mapping.id, page)]);
        }
        next = page.checked_add(1).filter(|next| *next <= last);
    }
    // Shadows of pages that were evicted from there.
    loop {
        let mut token = mapping.token.lock(task);
        let mut index = mapping.index.writer(&cache.pages.pool, &mut token);
        if index.remove_shadows(first, last, SHADOWS_AT_ONCE) < SHADOWS_AT_ONCE {
            return Ok(());
        }
    }
}

fn drop_page(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    mapping: &Arc<Mapping>,
    page: u32,
    mut frame: FrameId,
    which: Which,
) -> Result<(), Error> {
    let owner = mapping.owner(page);
    let stays = |frame| {
        let unwritten = Flags::DIRTY | Flags::WRITEBACK;
        which == Which::Clean && cache.pages.table.flags(frame).any(unwritten)
    };
    loop {
        match cache.pages.table.try_busy(frame, owner) {
            Ok(busy) => {
                if stays(frame) {
                    cache.release(busy, Flags::NONE, Flags::NONE);
                    return Ok(());
                }
                if cache.pages.table.flags(frame).has(Flags::WRITEBACK) {
                    // The device still reads it. Released meanwhile: its holder may need the bit.
                    cache.release(busy, Flags::NONE, Flags::NONE);
                    wait_frame(task, cache, mapping, page, frame)?;
                    continue;
                }
                remove_busy(task, cache, mapping, page, busy);
                return Ok(());
            }
            Err(Refusal::Pinned) if stays(frame) => return Ok(()),
            Err(Refusal::Pinned) => {
                if cache.pages.table.flags(frame).has(Flags::WRITEBACK) {
                    wait_frame(task, cache, mapping, page, frame)?;
                    continue;
                }
                if !awaits_pins(task, cache, frame)?
                    && unlink_pinned(task, cache, mapping, page, frame)
                {
                    return Ok(());
                }
            }
            Err(Refusal::Busy) => cache.wait_busy(task, Cause::PageBusy, frame, owner)?,
            // Gone, or only moved: a task that makes room for a lower limit does not ask the gate.
            Err(_) => match mapping.lookup(task, &cache.pages.pool, page) {
                Slot::Frame(now) => frame = now,
                Slot::Empty | Slot::Shadow(_) => return Ok(()),
            },
        }
    }
}

/// A page that the caller holds leaves the file, dirty or not. It is not under writeback.
pub(crate) fn remove_busy(
    task: &Task<'_>,
    cache: &Cache,
    mapping: &Mapping,
    page: u32,
    busy: Busy,
) {
    let frame = busy.frame();
    cache.content().vacate(&[frame]);
    let was_dirty = {
        let mut token = mapping.token.lock(task);
        let mut index = mapping.index.writer(&cache.pages.pool, &mut token);
        let removed = index.remove(page, None);
        debug_assert_eq!(removed, Slot::Frame(frame), "page {page}");
        cache.unmap(task, mapping, page, frame);
        let mut lru = cache.zones.lru(task);
        lru.remove(frame);
        let before = cache.pages.table.update(frame, Flags::NONE, Flags::DIRTY);
        cache.pages.table.disown(busy);
        before.has(Flags::DIRTY)
    };
    gone(cache, mapping, (page, frame), was_dirty);
    cache.wake_busy(&[frame], Signal::PageUnlocked);
    cache.memory.put(task, &[frame]);
    cache.gave_back(task, 1);
}

/// A pinned page leaves the file; its holder keeps what it sees.
fn unlink_pinned(
    task: &mut Task<'_>,
    cache: &Cache,
    mapping: &Mapping,
    page: u32,
    frame: FrameId,
) -> bool {
    let was_dirty = {
        let mut token = mapping.token.lock(task);
        let mut index = mapping.index.writer(&cache.pages.pool, &mut token);
        let stands = index.get(page) == Slot::Frame(frame);
        if stands {
            cache.unmap(task, mapping, page, frame);
        }
        let mut lru = cache.zones.lru(task);
        let flags = cache.pages.table.flags(frame);
        let still = stands && !flags.has(Flags::WRITEBACK) && cache.pages.table.try_orphan(frame);
        if !still {
            return false;
        }
        lru.remove(frame);
        index.remove(page, None);
        flags.has(Flags::DIRTY)
    };
    gone(cache, mapping, (page, frame), was_dirty);
    true
}

fn gone(cache: &Cache, mapping: &Mapping, (page, frame): (u32, FrameId), was_dirty: bool) {
    cache.writeback.totals.cached.sub(1);
    if was_dirty {
        if let Some(log) = mapping.ahead() {
            log.forget(&Interrupt::new(), (mapping.serial, page));
        }
        mapping.uncount_dirty(cache, 1);
        cache.zones.note_clean([frame]);
        add(&cache.writeback.totals.discarded, 1);
    }
}

/// Zeroes what a page in the cache holds behind the end: read before the device's object was cut.
pub(crate) fn zero_behind_end(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    mapping: &Arc<Mapping>,
) -> Result<(), Error> {
    let size = mapping.size();
    let tail = usize::try_from(size % PAGE_SIZE).expect("below a page");
    if tail == 0 {
        return Ok(());
    }
    let page = u32::try_from(size >> PAGE_SHIFT).expect("below FILE_MAX");
    zero_tail(task, cache, mapping, page, tail)
}

/// Zeroes the page `page` from byte `tail` on, if it is cached.
fn zero_tail(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    mapping: &Arc<Mapping>,
    page: u32,
    tail: usize,
) -> Result<(), Error> {
    let mut fresh = Vec::new();
    let result = zero_tail_with(task, cache, mapping, page, tail, &mut fresh);
    cache.put_unused(task, &fresh);
    result
}

fn zero_tail_with(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    mapping: &Arc<Mapping>,
    page: u32,
    tail: usize,
    fresh: &mut Vec<FrameId>,
) -> Result<(), Error> {
    let owner = mapping.owner(page);
    let whole = usize::try_from(PAGE_SIZE).expect("4096");
    loop {
        let Slot::Frame(frame) = mapping.lookup(task, &cache.pages.pool, page) else {
            return Ok(());
        };
        match cache.pages.table.try_busy(frame, owner) {
            Ok(busy) if cache.pages.table.flags(frame).has(Flags::WRITEBACK) => {
                cache.release(busy, Flags::NONE, Flags::NONE);
                wait_frame(task, cache, mapping, page, frame)?;
            }
            Ok(busy) => {
                cache.content().zero(&busy, tail, whole - tail);
                cache.release(busy, Flags::NONE, Flags::NONE);
                return Ok(());
            }
            Err(Refusal::Busy) => cache.wait_busy(task, Cause::PageBusy, frame, owner)?,
            Err(Refusal::Pinned) if cache.pages.table.flags(frame).has(Flags::WRITEBACK) => {
                wait_frame(task, cache, mapping, page, frame)?;
            }
            // A pin is a snapshot: its holder keeps the old tail, the file gets a frame of its own.
            Err(Refusal::Pinned) => {
                if awaits_pins(task, cache, frame)? {
                    continue;
                }
                if fresh.is_empty() {
                    cache.alloc(task, Wanted::new(1, Purpose::Used), fresh)?;
                    continue;
                }
                let new = fresh.pop().expect("it was just filled");
                match replace_pinned(task, cache, mapping, page, frame, new) {
                    Ok((busy, was_dirty)) => {
                        cache.content().zero(&busy, tail, whole - tail);
                        show_fresh(task, cache, busy, was_dirty);
                        return Ok(());
                    }
                    Err(new) => fresh.push(new),
                }
            }
            Err(_) => {}
        }
    }
}

/// Puts a frame that replaced another on the lists, with its state, and gives the busy bit back.
pub(crate) fn show_fresh(task: &Task<'_>, cache: &Cache, busy: Busy, was_dirty: bool) {
    cache.add_filled(task, &[busy.frame()]);
    let dirty = if was_dirty { Flags::DIRTY } else { Flags::NONE };
    cache.release(busy, Flags::UPTODATE | dirty, Flags::NONE);
}

#[cfg(test)]
mod tests;
