//! A limit changed while the cache runs: chunks of the arena go out of use, those that are cheapest
//! to empty.
//!
//! Frames of such a chunk go offline as they come free: those that are free at once, the others
//! when their pages have left. A task takes care of that. A page that is used, or dirty, *moves* to
//! a free frame of a chunk that stays, and asks no device; clean pages that were not used twice are
//! freed where they are, as many as there is no room for. Reclaim makes room for those that move:
//! it frees the oldest of all. A page that is pinned, or on its way to a device, is left until it
//! is not; where that lasts and another chunk can be emptied instead, the other chunk goes. A chunk
//! of which all frames are offline gives its memory back to the system. Raising the limit gives the
//! frames back.
//!
//! Slabs do not move: their caches of objects are asked, harder from look to look, as long as there
//! are any in a chunk that is to go. The memory they keep is said in `Limit::over`.
//!
//! Where there is never a frame to move to, pages leave as they do in reclaim: freed, written,
//! swapped out.

use core::ops::Range;
use core::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use env::{Cause, Context, Interrupt, Task, Wakeup};
use frames::{Flags, FrameId, FrameTable};
use policy::place::by_use::Purpose;
use policy::place::offline::{Chunk, choose};
use policy::reclaim::scan::{Kind, Priority};
use policy::units::{Nanos, Pages};

use crate::Error;
use crate::alloc::Wanted;
use crate::cache::{Cache, FRAMES_MIN};
use crate::lists::isolate::{Batch, CLUSTER_FRAMES, Page};
use crate::memory::chunks::ChunkState;
use crate::memory::offline::Limit;
use crate::reclaim::shrink::clear_out;
use crate::relocate::{look, move_found};

/// The task looks again after this at what it could not free; after twice as long where a look was
/// fruitless, up to `AGAIN_MOST`.
const AGAIN: Nanos = Nanos::millis(2);
const AGAIN_MOST: Nanos = Nanos::secs(1);
/// While it looks again within this it waits for frames that pages can move to.
const AGAIN_MOVES: Nanos = Nanos::millis(10);

impl Cache {
    /// Changes how many frames the cache may use, up to those it was built with; rounded up to
    /// whole chunks. Lower than what is in use, it is reached in the background: `limit` says how
    /// far it is.
    ///
    /// # Errors
    /// `BadOption` (more than the cache was built with), `LimitTooSmall`, `PinnedAboveLimit`
    /// (callers hold more), `RegionsAboveLimit` (their tables come on top of it), `NoThread` (for
    /// the task that frees what is beyond the limit). The limit is then what it was.
    pub fn set_limit(self: &Arc<Self>, task: &mut Task<'_>, limit: Pages) -> Result<(), Error> {
        let frames = u64::from(self.options.frames);
        let least = (4 * self.memory.marks().high.0)
            .max(u64::from(FRAMES_MIN))
            .min(frames);
        if limit.0 > frames {
            return Err(Error::BadOption {
                what: "limit, in pages,",
                value: limit.0,
                allowed: (least, frames),
            });
        }
        if limit.0 < least {
            return Err(Error::LimitTooSmall {
                frames: limit,
                least: Pages(least),
            });
        }
        let pinned = self.pinned();
        if pinned + self.memory.marks().high > limit {
            return Err(Error::PinnedAboveLimit { limit, pinned });
        }
        let limit = u32::try_from(limit.0).expect("no more than the frames");
        let limit = self.memory.whole_chunks(limit);
        {
            // Held throughout: the task does not end between a look at the old limit and the new
            // one.
            let mut shrinking = self.memory.shrinking(task);
            self.check_tables(limit)?;
            // Over the old one although nobody clears: the task that was to do it panicked.
            let has_to_shrink = limit < self.memory.asked_frames() || !self.limit().over.is_zero();
            if has_to_shrink && !*shrinking {
                let cache = Arc::downgrade(self);
                let body = move |task: &mut Task<'_>| clear(task, &cache);
                // Before the limit moves: where there is no thread nothing has changed.
                let started = self.env.spawn("limit", Box::new(body));
                started.map_err(Error::no_thread("limit"))?;
                *shrinking = true;
            }
            self.move_limit(task, limit);
        }
        // Less is free than was.
        self.ask_reclaim_of_all(task);
        Ok(())
    }

    /// The limit, and how far the cache is from it.
    pub fn limit(&self) -> Limit {
        self.memory.limit(&Interrupt::new())
    }
}

/// The next call of `set_limit` starts another task if this one panics.
struct Shrinking<'a>(&'a Weak<Cache>);

impl Drop for Shrinking<'_> {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(cache) = self.0.upgrade()
        {
            *cache.memory.shrinking(&Interrupt::new()) = false;
        }
    }
}

/// The outcome of a pass over chunks that are to be cleared.
#[derive(Clone, Copy, Default)]
struct Pass {
    /// Pages that left their frames.
    left: u64,
    /// Dirty pages of files were met that could not be moved.
    dirty: bool,
}

/// Clears chunks that are out of use until none has memory.
fn clear(task: &mut Task<'_>, cache: &Weak<Cache>) {
    let _shrinking = Shrinking(cache);
    let mut again = AGAIN;
    let mut urgency = Priority::GENTLEST;
    loop {
        {
            let Some(cache) = cache.upgrade() else { return };
            if cache.registry.stopping.load(Ordering::Acquire) {
                return;
            }
            let before = cache.limit();
            // A task that has found nothing for long is not particular about places.
            let pass = pass(task, &cache, again > AGAIN_MOVES);
            if pass.dirty {
                cache.wake_flushers(task);
            }
            let after = cache.limit();
            if after.over.is_zero() {
                let mut shrinking = cache.memory.shrinking(task);
                // Not where it was lowered meanwhile: free frames beyond it have memory to be given
                // back.
                if cache.limit().over.is_zero() {
                    *shrinking = false;
                    return;
                }
            }
            let fruitless = pass.left == 0 && after == before;
            if fruitless {
                again = Nanos(again.0 * 2).at_most(AGAIN_MOST);
                if has_slabs(task, &cache) {
                    if let Some(kernel) = cache.kernel() {
                        kernel.ask_everywhere(task, &cache, urgency);
                    }
                    urgency = urgency.raised().unwrap_or(urgency);
                }
                // Pages that are stuck may be so for ever.
                let _unchanged = cache.memory.shrinking(task);
                cache.move_limit(task, cache.memory.asked_frames());
            } else {
                again = AGAIN;
                cache.ask_reclaim_of_all(task);
            }
        }
        if task.sleep(Cause::Idle, again) == Wakeup::Cancelled {
            return;
        }
    }
}

impl Cache {
    /// Only this many frames are in use from now on: the chunks that are cheapest to empty are not.
    /// The caller holds `shrinking`.
    pub(crate) fn move_limit(&self, context: &impl Context, frames: u32) {
        let table = &self.pages.table;
        let chunks = self.memory.chunks(context).into_iter();
        let chunks = chunks.map(|state| {
            let (movable, stuck) = contents(table, &state);
            Chunk {
                zone: self.zones.layout().of(FrameId(state.frames.start)).0,
                frames: state.frames.end - state.frames.start,
                is_out: state.is_out,
                is_absent: state.is_out && !state.has_memory,
                movable,
                stuck,
            }
        });
        let chunks: Vec<Chunk> = chunks.collect();
        let out = choose(&chunks, Pages(u64::from(frames)));
        self.memory.set_offline(context, frames, &out);
        // Fewer pins may be allowed than before.
        self.pages.pins.lower();
    }
}

/// Pages in a chunk that can be moved or freed, and frames of it that cannot come free in this
/// moment.
pub(super) fn contents(table: &FrameTable, state: &ChunkState) -> (u32, u32) {
    let (mut movable, mut busy) = (0, 0);
    for flags in state
        .frames
        .clone()
        .map(|frame| table.flags(FrameId(frame)))
    {
        if flags.any(Flags::BUSY | Flags::WRITEBACK | Flags::ORPHAN) || flags.pins() > 0 {
            busy += 1;
        } else if flags.has(Flags::CACHED) {
            movable += 1;
        }
    }
    if !state.has_memory {
        return (movable, busy);
    }
    // Taken and holding no page yet; between two looks some may have been counted twice.
    let known = state.free + state.held + movable + busy;
    let taken = (state.frames.end - state.frames.start).saturating_sub(known);
    (movable, busy + taken)
}

/// True if slabs have frames of the chunks that are to be cleared, and anybody can be asked for
/// them.
fn has_slabs(task: &Task<'_>, cache: &Cache) -> bool {
    let slabs = cache.slabs.pages();
    if slabs.reclaimable.is_zero() || !cache.has_objects() {
        return false;
    }
    let is_slab = |frame| {
        let flags = cache.pages.table.flags(FrameId(frame));
        flags.has(Flags::BUSY) && !flags.has(Flags::CACHED)
    };
    let mut from = 0;
    while let Some(chunk) = cache.memory.next_to_clear(task, from) {
        from = chunk.end;
        if chunk.into_iter().any(is_slab) {
            return true;
        }
    }
    false
}

/// The ways in which pages may leave.
struct Ways {
    /// Pages that have to be freed, or there is no room for the others.
    to_free: u64,
    /// Pages leave as in reclaim, if there is no frame for them.
    evicts: bool,
}

/// Pages of what goes for which there are no free frames, beside those that the reclaimer keeps.
fn too_many(task: &Task<'_>, cache: &Cache) -> u64 {
    let spare = u64::from(cache.memory.free()).saturating_sub(cache.memory.marks().high.0);
    let (mut from, mut pages) = (0, 0);
    while let Some(chunk) = cache.memory.next_to_clear(task, from) {
        from = chunk.end;
        let is_page = |frame: &u32| cache.pages.table.flags(FrameId(*frame)).has(Flags::CACHED);
        pages += chunk.filter(is_page).count() as u64;
    }
    pages.saturating_sub(spare)
}

/// Looks once at every frame of the chunks that are to be cleared. `evicts`: pages leave as in
/// reclaim, if there is no frame for them.
fn pass(task: &mut Task<'_>, cache: &Cache, evicts: bool) -> Pass {
    let mut pass = Pass::default();
    cache.memory.drain_cpu_lists(task);
    let mut ways = Ways {
        to_free: too_many(task, cache),
        evicts,
    };
    let mut from = 0;
    while let Some(chunk) = cache.memory.next_to_clear(task, from) {
        from = chunk.end;
        let mut at = chunk.start;
        while at < chunk.end {
            let cluster = u32::try_from(CLUSTER_FRAMES).expect("it is small");
            let end = at.saturating_add(cluster).min(chunk.end);
            clear_part(task, cache, at..end, &mut ways, &mut pass);
            at = end;
        }
        // An empty chunk is given back before the next is begun.
        while let Some(chunk) = cache.memory.take_to_release(task) {
            cache.memory.give_to_system(chunk);
        }
    }
    pass
}

/// The same of up to a cluster of frames.
fn clear_part(
    task: &mut Task<'_>,
    cache: &Cache,
    frames: Range<u32>,
    ways: &mut Ways,
    pass: &mut Pass,
) {
    let mut found = look(task, cache, frames.clone(), ways.to_free == 0);
    if found.is_empty() {
        return;
    }
    let movable = found.iter().filter(|found| found.moves).count();
    let count = u32::try_from(movable).expect("no more than a cluster");
    let mut fresh = Vec::new();
    if count > 0 {
        // Refused: there is none.
        let _ = cache.try_alloc(task, Wanted::new(count, Purpose::Used), &mut fresh);
    }
    pass.left += move_found(task, cache, &mut found, &mut fresh);
    cache.put_unused(task, &fresh);
    found.retain(|found| ways.evicts || !found.moves);
    pass.dirty |= found
        .iter()
        .any(|found| found.kind == Kind::File && found.dirty);
    found.retain(|found| found.kind == Kind::Anon || !found.dirty);
    for kind in Kind::ALL {
        let zone = cache.zones.layout().of(FrameId(frames.start));
        let mut batch = Batch::default();
        {
            let mut lru = cache.zones.lru(task);
            for found in found.iter().filter(|found| found.kind == kind) {
                let Page { frame, generation } = found.page;
                let (flags, now) = cache.pages.table.look(frame);
                // Another page by now, or isolated by somebody else: next time.
                if now == generation && flags.has(Flags::CACHED) && lru.remove(frame) {
                    batch.push(found.page);
                }
            }
        }
        cache.zones[zone].note_isolated(kind, batch.len());
        let freed = clear_out(task, cache, (zone, kind), &batch);
        pass.left += freed;
        ways.to_free = ways.to_free.saturating_sub(freed);
    }
}

#[cfg(test)]
mod tests;
