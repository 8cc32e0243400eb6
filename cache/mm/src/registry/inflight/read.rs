//! The reads of a device for its readers, and the bound on them.
//!
//! A page that is being read holds memory that nothing can take back before the device answers.
//! Devices that hang on reads would, with readers enough and their read-ahead, come to hold all of
//! it. So the pages under way to one device are bounded: beyond it read-ahead is left out, and who
//! needs a page waits for those under way (`ReadIo`), as it would for its own.
//!
//! The bound is a part of what is left of a pool, which is half of the memory: a third, so that a
//! device alone comes to hold a quarter of the pool, an eighth of the memory, and devices that
//! hang, however many, never all of it; the other readers have a third of the rest. (A dynamic
//! threshold, as switches share their buffers: Choudhury and Hahne 1998.)
//!
//! Invariants
//!   1. `pages` is at most what the bound was when the last of them were sent; all together at most
//!      the pool, and a page of each device.
//!   2. Every page counted is part of one request that has not ended, or of a `Room`.
//!
//! Reads of the swap file have a bound of their own (its window).

use env::{Cause, Signal, Task, WaitQueue};
use frames::sync::{AtomicU32, AtomicU64, Ordering};
use policy::units::{Instant, Nanos};

use crate::Error;
use crate::registry::REQUEST_PAGES;

/// Reads of all devices hold at most this part of the frames.
const POOL: u32 = 2;
/// One device's at most this part of what the pool has left.
const OF_REST: u32 = 3;
/// So those of a device alone at most this part of the frames: with 64 MiB of memory 8 MiB, far
/// more than the flight that keeps any disk busy.
const PART: u32 = POOL * (OF_REST + 1);

/// Reads of one device that are under way.
#[derive(Default)]
pub(crate) struct ReadInflight {
    /// Pages in the lower half, requests in the upper: one step changes both. A `Room` counts as a
    /// request.
    held: AtomicU64,
    /// When a read last ended with others under way, or began while there was none, in nanoseconds.
    moved_at: AtomicU64,
    wait: WaitQueue,
}

/// A request, in `held`.
const REQUEST: u64 = 1 << 32;

fn pages_of(held: u64) -> u32 {
    u32::try_from(held % REQUEST).expect("the lower half")
}

/// Room for a request that is about to be sent; unused room is given back.
pub(crate) struct Room<'a> {
    reading: &'a ReadInflight,
    all: &'a AtomicU32,
    pages: u32,
    is_sent: bool,
}

impl Room<'_> {
    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    /// A request for `count` of the pages is sent.
    pub(crate) fn send(mut self, count: u32) {
        self.pages -= count;
        self.is_sent = true;
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        let request = if self.is_sent { 0 } else { REQUEST };
        if self.pages > 0 || !self.is_sent {
            self.reading
                .give_back(self.all, request + u64::from(self.pages));
            self.reading.wait.wake_all(Signal::ReadRoom);
        }
    }
}

impl ReadInflight {
    /// Room for a request of up to `wanted` pages, as much as there is; `None`: there is none.
    /// `all`: pages of all devices that are being read; `frames`: those of the cache.
    pub(crate) fn room<'a>(
        &'a self,
        now: Instant,
        all: &'a AtomicU32,
        frames: u32,
        wanted: u32,
    ) -> Option<Room<'a>> {
        if self.held.load(Ordering::Relaxed) < REQUEST {
            // Before it counts as one that none has ended since long.
            self.moved_at.store(now.0, Ordering::Relaxed);
        }
        let mut pages = 0;
        let taken = self
            .held
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |held| {
                pages = wanted.min(self.left(all, frames, pages_of(held)));
                (pages > 0).then_some(held + REQUEST + u64::from(pages))
            });
        taken.ok()?;
        all.fetch_add(pages, Ordering::AcqRel);
        Some(Room {
            reading: self,
            all,
            pages,
            is_sent: false,
        })
    }

    /// Pages that may be sent beside `held` of this device.
    fn left(&self, all: &AtomicU32, frames: u32, held: u32) -> u32 {
        let rest = (frames / POOL).saturating_sub(all.load(Ordering::Acquire));
        // It keeps `held` below a third of what is left beside it, and a page always: a reader that
        // waits, waits for its own device.
        let left = rest.saturating_sub(OF_REST.saturating_mul(held)) / (OF_REST + 1);
        left.max(u32::from(held == 0))
    }

    /// Waits until there is room for a page.
    pub(crate) fn wait_for_room(
        &self,
        task: &mut Task<'_>,
        all: &AtomicU32,
        frames: impl Fn() -> u32,
    ) -> Result<(), Error> {
        Error::after(task.wait_while(&self.wait, Cause::ReadIo, None, |_| {
            self.left(all, frames(), pages_of(self.held.load(Ordering::Acquire))) == 0
        }))
    }

    /// A request for `pages` has ended.
    pub(crate) fn ended(&self, all: &AtomicU32, now: Instant, pages: u32) {
        if self.give_back(all, REQUEST + u64::from(pages)) >= REQUEST {
            self.moved_at.store(now.0, Ordering::Relaxed);
        }
        self.wait.wake_all(Signal::ReadRoom);
    }

    /// For how long none has ended, if there are any.
    pub(crate) fn silent_for(&self, now: Instant) -> Option<Nanos> {
        let under_way = self.held.load(Ordering::Relaxed) >= REQUEST;
        under_way.then(|| now.since(Instant(self.moved_at.load(Ordering::Relaxed))))
    }

    /// Answers what is held without it.
    fn give_back(&self, all: &AtomicU32, given: u64) -> u64 {
        all.fetch_sub(pages_of(given), Ordering::AcqRel);
        self.held.fetch_sub(given, Ordering::AcqRel) - given
    }
}

const _: () = assert!(
    REQUEST_PAGES * PART as usize * 4096 == 8 << 20,
    "from 8 MiB of memory on a whole request fits the part"
);
