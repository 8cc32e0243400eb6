//! A limit lowered while the cache runs: the last chunks of the arena go out of use, one page after the other.
//!
//! Frames from the limit on go offline as they come free: those that are free at once, the others when their pages
//! have left. A task takes care of that: it frees what is clean, has written what is dirty, and leaves what is pinned
//! until it is let go. A page of a region that gets no slot in swap is moved to a free frame below the limit; where
//! there is none it stays until there is a slot or a frame. A chunk of which all frames are offline gives its memory
//! back to the system. Raising the limit gives the frames back.
//!
//! Which chunks go is said by their number alone, and pages in them go whether they are in use or not: a limit is
//! changed rarely.

use core::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use env::{Cause, Env, Interrupt, Task, Wakeup};
use frames::{Flags, FrameId};
use policy::reclaim::scan::Kind;
use policy::units::{Nanos, Pages};

use crate::Error;
use crate::anon::relocate::move_anon;
use crate::cache::{Cache, FRAMES_MIN};
use crate::lists::ZoneId;
use crate::lists::isolate::{Batch, CLUSTER_FRAMES, Page};
use crate::memory::offline::Limit;
use crate::reclaim::shrink::clear_out;

/// The task looks again after this at what it could not free; after twice as long where a look was fruitless, up to
/// `AGAIN_MOST`.
const AGAIN: Nanos = Nanos::millis(20);
const AGAIN_MOST: Nanos = Nanos::secs(1);

impl<E: Env> Cache<E> {
    /// Changes how many frames the cache may use, up to those it was built with; rounded up to whole chunks. Lower than
    /// what is in use, it is reached in the background: `limit` says how far it is.
    ///
    /// # Errors
    /// `BadOption` (more than the cache was built with), `LimitTooSmall`, `PinnedAboveLimit` (callers hold more),
    /// `RegionsAboveLimit` (their tables come on top of it), `NoThread` (for the task that frees what is beyond the
    /// limit). The limit is then what it was.
    pub fn set_limit(self: &Arc<Self>, task: &mut Task<'_, E>, limit: Pages) -> Result<(), Error> {
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
            // Held throughout: the task does not end between a look at the old limit and the new one.
            let mut shrinking = self.memory.shrinking(task);
            self.check_tables(limit)?;
            // Over the old one although nobody clears: the task that was to do it panicked.
            let has_to_shrink = limit < self.memory.limit_frames() || !self.limit().over.is_zero();
            if has_to_shrink && !*shrinking {
                let cache = Arc::downgrade(self);
                let body = move |task: &mut Task<'_, E>| clear(task, &cache);
                // Before the limit moves: where there is no thread nothing has changed.
                let started = self.env.spawn("limit", Box::new(body));
                started.map_err(Error::no_thread("limit"))?;
                *shrinking = true;
            }
            self.memory.move_limit(task, limit);
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
struct Shrinking<'a, E: Env>(&'a Weak<Cache<E>>);

impl<E: Env> Drop for Shrinking<'_, E> {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(cache) = self.0.upgrade()
        {
            *cache.memory.shrinking(&Interrupt::new()) = false;
        }
    }
}

/// Clears the frames beyond the limit until none is in use.
fn clear<E: Env>(task: &mut Task<'_, E>, cache: &Weak<Cache<E>>) {
    let _shrinking = Shrinking(cache);
    let mut again = AGAIN;
    let mut before = None;
    loop {
        {
            let Some(cache) = cache.upgrade() else { return };
            if cache.registry.stopping.load(Ordering::Acquire) {
                return;
            }
            let seen = cache.memory.limit_frames();
            pass(task, &cache);
            while let Some(chunk) = cache.memory.take_to_release(task) {
                cache.memory.give_to_system(chunk);
            }
            let after = cache.limit();
            let moved = |before: &Limit| after.limit != before.limit || after.over < before.over;
            let fruitless = before.replace(after).is_some_and(|before| !moved(&before));
            again = if fruitless {
                Nanos(again.0 * 2).at_most(AGAIN_MOST)
            } else {
                AGAIN
            };
            if after.over.is_zero() {
                let mut shrinking = cache.memory.shrinking(task);
                // Not where it was lowered meanwhile: free frames beyond it have memory to be given back.
                if cache.memory.limit_frames() == seen {
                    *shrinking = false;
                    return;
                }
            }
        }
        if task.sleep(Cause::Idle, again) == Wakeup::Cancelled {
            return;
        }
    }
}

/// Looks at every frame beyond the limit once.
fn pass<E: Env>(task: &mut Task<'_, E>, cache: &Cache<E>) {
    let from = cache.memory.limit_frames();
    let mut dirty = false;
    let mut next = from;
    while next < cache.options.frames && cache.memory.limit_frames() == from {
        let end = next.saturating_add(256).min(cache.options.frames);
        for kind in Kind::ALL {
            let mut first = next;
            while first < end {
                let zone = cache.zones.layout().of(FrameId(first));
                let (batch, stopped, met_dirty) = gather(task, cache, (zone, kind), first, end);
                dirty |= met_dirty;
                clear_out(task, cache, (zone, kind), &batch, |task, page| {
                    move_anon(task, cache, page);
                });
                first = stopped;
            }
        }
        next = end;
    }
    if dirty {
        cache.wake_flushers(task);
    }
}

/// Takes up to a cluster of pages of a kind in frames `first..end` of a zone off their lists; answers where it stopped, and
/// whether it met dirty pages of files.
fn gather<E: Env>(
    task: &Task<'_, E>,
    cache: &Cache<E>,
    (zone, kind): (ZoneId, Kind),
    first: u32,
    end: u32,
) -> (Batch, u32, bool) {
    let mut batch = Batch::new();
    let mut dirty = false;
    let mut at = first;
    let mut lru = cache.zones.lru(task);
    while at < end && batch.pages().len() < CLUSTER_FRAMES {
        let frame = FrameId(at);
        if cache.zones.layout().of(frame) != zone {
            break;
        }
        at += 1;
        let (flags, generation) = cache.pages.table.look(frame);
        let anon = flags.has(Flags::ANON);
        let in_use = flags.any(Flags::BUSY | Flags::WRITEBACK) || flags.pins() > 0;
        if !flags.has(Flags::CACHED) || in_use || anon != (kind == Kind::Anon) {
            continue;
        }
        if !anon && flags.has(Flags::DIRTY) {
            dirty = true;
            continue;
        }
        // Isolated by somebody else: next time.
        if lru.remove(frame) {
            batch.push(Page { frame, generation });
        }
    }
    cache.zones[zone].note_isolated(kind, batch.len());
    (batch, at, dirty)
}

#[cfg(test)]
mod tests;
