//! Writes in flight to a device: how many, and which task may send the next one.
//!
//! The bound is `policy::writeback`'s. A task that wants to send waits here for room, never for the
//! writes themselves. All that wait are woken when there is room, so the first to run would have it
//! each time: in virtual time always the same one.
//!
//! Invariants
//!   1. Of the room that syncs and others wait for, syncs have at least every second request.
//!   2. Syncs that wait stand in a line. The first sends for as long as a turn lasts and goes to
//!      the end of the line if it has more. A sync that comes anew while others stand there goes to
//!      the end, too.
//!
//! Deviation from Linux, where all write-back waits for one request of the block layer (v6.12
//! block/blk-mq-tag.c, `blk_mq_get_tag()`), first come, first served.

use std::collections::VecDeque;

use env::{Cause, Context, IoClass, Lock, LockClass, Signal, Task, WaitQueue, Wakeup};
use frames::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use policy::units::{Nanos, Pages, PagesPerSec};
use policy::writeback::{FlushTunables, InFlight};

use crate::Error;
use crate::registry::REQUEST_PAGES;
use crate::registry::device::DeviceState;
use crate::vmstat::{add, get, sub};

/// Writeback is in a hurry for so long after a writer paused (kernel: `wb_recent_wait`).
const HURRIED: Nanos = Nanos::secs(1);

/// A sync that is first in the line stays there until it has sent what the device writes in this
/// time: a disk that seeks is to get more than one request of a file.
const SYNC_SLICE: Nanos = Nanos::millis(500);

/// Writeback in flight to one device.
pub(crate) struct WriteInflight {
    requests: AtomicU32,
    pages: AtomicU64,
    pub(crate) wait: WaitQueue,
    line: Lock<Line>,
    /// Number of requests in it; changes under its lock. A look without the lock may miss a sync
    /// that takes its place at the same moment, and so may a task that has the lock just before it:
    /// that sync has the room after the next.
    standing: AtomicU32,
    /// The room that comes next is a sync's: somebody else had the last.
    owed: AtomicBool,
}

/// Syncs that a line has room for before it has to allocate.
const ROOM: usize = 8;

/// Syncs that wait for room, first come, first served.
struct Line {
    next: u64,
    waiting: VecDeque<u64>,
}

impl WriteInflight {
    pub(crate) fn new() -> Self {
        Self {
            requests: AtomicU32::new(0),
            pages: AtomicU64::new(0),
            wait: WaitQueue::new(),
            line: Lock::new(
                LockClass::Leaf,
                Line {
                    next: 0,
                    waiting: VecDeque::with_capacity(ROOM),
                },
            ),
            standing: AtomicU32::new(0),
            owed: AtomicBool::new(false),
        }
    }

    /// Requests in flight.
    pub(crate) fn requests(&self) -> u32 {
        self.requests.load(Ordering::Relaxed)
    }

    /// True if nothing is in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.load(Ordering::Acquire) == 0 && self.requests.load(Ordering::Acquire) == 0
    }

    /// Counts a request that is about to be sent, for a sync or not; whether it is the only one.
    pub(crate) fn enter(&self, pages: Pages, for_sync: bool) -> bool {
        let is_only = self.requests.fetch_add(1, Ordering::Relaxed) == 0;
        add(&self.pages, pages.0);
        let is_owed = !for_sync && self.has_syncs();
        self.owed.store(is_owed, Ordering::Release);
        is_only
    }

    /// A request of `pages` has left the device's queue.
    pub(crate) fn leave(&self, pages: Pages) {
        sub(&self.pages, pages.0);
        self.requests.fetch_sub(1, Ordering::Relaxed);
    }

    fn has_syncs(&self) -> bool {
        self.standing.load(Ordering::Acquire) > 0
    }

    fn stand<C: Context>(&self, context: &C, in_front: bool) -> u64 {
        let mut line = self.line.lock(context);
        let place = line.next;
        line.next += 1;
        if in_front {
            line.waiting.push_front(place);
        } else {
            line.waiting.push_back(place);
        }
        self.standing.fetch_add(1, Ordering::Release);
        place
    }

    fn is_first<C: Context>(&self, context: &C, place: u64) -> bool {
        self.line.lock(context).waiting.front() == Some(&place)
    }

    /// It may have nothing to send, and the task that left the room to it would wait for that.
    fn go<C: Context>(&self, context: &C, place: u64) {
        {
            let mut line = self.line.lock(context);
            line.waiting.retain(|waits| *waits != place);
            self.standing.fetch_sub(1, Ordering::Release);
        }
        self.wait.wake_all(Signal::SyncEnded);
    }
}

/// Pages that a request to the device may have.
pub(crate) fn request_pages(flush: &FlushTunables, device: &DeviceState) -> Pages {
    let bandwidth = PagesPerSec(device.bandwidth.load(Ordering::Relaxed));
    let pages = flush.request_pages(bandwidth, device.info.queue);
    pages.at_most(Pages(REQUEST_PAGES as u64))
}

/// Waits until one more request may go out; answers how many pages it may have. `turn`: those that
/// were sent since it was let through; none: it comes anew.
pub(crate) fn wait_for_room(
    task: &mut Task<'_>,
    flush: &FlushTunables,
    device: &DeviceState,
    class: IoClass,
    turn: &mut Pages,
) -> Result<Pages, Error> {
    let inflight = &device.writes_inflight;
    let bandwidth = PagesPerSec(device.bandwidth.load(Ordering::Relaxed));
    let queue = device.info.queue;
    let next = request_pages(flush, device);
    let has_room = |now, resumes| {
        let now = InFlight {
            bandwidth,
            reach: device.reach.load(Ordering::Relaxed),
            queue,
            hurried: device.paused_within(now, HURRIED),
            requests: inflight.requests(),
            pages: Pages(get(&inflight.pages)),
            next,
        };
        flush.may_submit(&now, resumes)
    };
    let is_sync = class == IoClass::Sync;
    let goes_on = !turn.is_zero();
    let is_others = || {
        if is_sync {
            !goes_on && inflight.has_syncs()
        } else {
            inflight.owed.load(Ordering::Acquire) && inflight.has_syncs()
        }
    };
    if !is_others() && has_room(task.now(), false) {
        return Ok(next);
    }
    let is_over = !goes_on || *turn >= bandwidth.pages_in(SYNC_SLICE);
    if is_over {
        *turn = Pages::ZERO;
    }
    let place = is_sync.then(|| inflight.stand(task, !is_over));
    let wakeup = task.wait_while(&inflight.wait, Cause::WritebackFlight, None, |task| {
        let is_others = place.map_or_else(is_others, |place| !inflight.is_first(task, place));
        is_others || !has_room(task.now(), true)
    });
    if let Some(place) = place {
        inflight.go(task, place);
    }
    if wakeup == Wakeup::Cancelled {
        Err(Error::Cancelled)
    } else {
        Ok(next)
    }
}
