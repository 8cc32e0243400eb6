//! What a device is reading for its readers, and how much of it at a time.
//!
//! A page that is being read holds memory that nothing can take back before the device answers. A device that hangs on
//! reads would, with readers enough and their read-ahead, come to hold all of it. So the pages under way to one device
//! are bounded by a part of the memory: beyond it read-ahead is left out, and who needs a page waits for those under way
//! (`ReadIo`), as it would for its own.
//!
//! Invariants
//!   1. `pages` is at most what the bound was when the last of them were sent.
//!   2. Every page counted is part of one request that has not ended, or of a `Room`.
//!
//! Reads of the swap file have a bound of their own (its window).

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use env::{Cause, Env, Task, WaitQueue};
use policy::units::{Instant, Nanos};

use crate::Error;
use crate::cache::Cache;
use crate::io::REQUEST_PAGES;

/// Reads of one device hold at most this part of the frames: with 64 MiB of memory 8 MiB, far more than the flight that
/// keeps any disk busy.
const PART: u32 = 8;

/// Reads of one device that are under way.
#[derive(Default)]
pub(crate) struct Reading {
    requests: AtomicU32,
    pages: AtomicU32,
    /// When a read last ended, or began while none was under way, in nanoseconds.
    moved_at: AtomicU64,
    wait: WaitQueue,
}

/// Room for pages that are about to be read; what is not used is given back.
pub(crate) struct Room<'a> {
    reading: &'a Reading,
    pages: u32,
}

impl Room<'_> {
    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    /// A request for `count` of the pages is sent at `now`.
    pub(crate) fn send(mut self, now: Instant, count: u32) {
        if self.reading.requests.fetch_add(1, Ordering::Relaxed) == 0 {
            self.reading.moved_at.store(now.0, Ordering::Relaxed);
        }
        self.pages -= count;
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.reading.give_back(self.pages);
    }
}

impl Reading {
    /// Room for up to `wanted` pages, as much as there is; `None`: there is none.
    pub(crate) fn room<E: Env>(&self, cache: &Cache<E>, wanted: u32) -> Option<Room<'_>> {
        let most = most(cache);
        let mut pages = 0;
        let taken = self
            .pages
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |held| {
                pages = wanted.min(most.saturating_sub(held));
                (pages > 0).then_some(held + pages)
            });
        taken.is_ok().then_some(Room {
            reading: self,
            pages,
        })
    }

    /// Waits until there is room for a page.
    pub(crate) fn wait_for_room<E: Env>(
        &self,
        task: &mut Task<'_, E>,
        cache: &Cache<E>,
    ) -> Result<(), Error> {
        Error::after(task.wait_while(&self.wait, Cause::ReadIo, None, |_| {
            self.pages.load(Ordering::Acquire) >= most(cache)
        }))
    }

    /// A request for `pages` has ended.
    pub(crate) fn ended(&self, now: Instant, pages: u32) {
        self.moved_at.store(now.0, Ordering::Relaxed);
        self.requests.fetch_sub(1, Ordering::Relaxed);
        self.give_back(pages);
    }

    /// For how long none has ended, if there are any.
    pub(crate) fn silent_for(&self, now: Instant) -> Option<Nanos> {
        let under_way = self.requests.load(Ordering::Relaxed) > 0;
        under_way.then(|| now.since(Instant(self.moved_at.load(Ordering::Relaxed))))
    }

    fn give_back(&self, pages: u32) {
        if pages > 0 {
            self.pages.fetch_sub(pages, Ordering::AcqRel);
            self.wait.wake_all();
        }
    }
}

/// A large request fits, if there is memory for eight of them at all.
fn most<E: Env>(cache: &Cache<E>) -> u32 {
    let part = cache.memory.limit_frames() / PART;
    part.max(1)
}

const _: () = assert!(
    REQUEST_PAGES * PART as usize * 4096 == 8 << 20,
    "from 8 MiB of memory on a whole request fits the part"
);
