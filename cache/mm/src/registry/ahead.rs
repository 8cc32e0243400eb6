//! Write-ahead order: pages that must not be written before a log is durable up to their number.
//!
//! A program that keeps a log tells with each write up to which number of its own (LSN) the log
//! must be durable before the page may go to its device, and tells the cache how far the log is.
//! Until then the page is *held*: flusher, reclaim and sync pass it over, and ask for the log.
//!
//! ```text
//!   write with an LSN --> held --durable(LSN)--> dirty like any other --> written
//!                          |  ^
//!      flusher, reclaim, sync '-- a write with a later LSN
//!      and writers ask: `ask(LSN)`
//! ```
//!
//! Invariants
//!   1. A page is under writeback, or on its way there, only with bytes of LSNs up to `durable`: a
//!      write with a later one waits until it is written (`write::Batch`).
//!   2. Held pages of a log stay below the background threshold of the cache they are in: a writer
//!      that would make more waits for the log (`Cause::LogDurable`). So all other dirty pages
//!      always have room, those of the log itself among them.
//!   3. Nobody waits for a log that has ended, or writes what would have to: that is an error.
//!   4. A page that a sync waits for takes no later LSN meanwhile: the sync ends, hot or not.
//!
//! Concurrency: `Held` under its lock, a leaf, below a file's index lock where pages are judged.
//! `ask` is called under none.
//!
//! Source: G. Graefe, "A Survey of B-Tree Logging and Recovery Techniques", TODS 37(1), 2012;
//! PostgreSQL 16 src/backend/storage/buffer/bufmgr.c, FlushBuffer(); MySQL 8.0
//! storage/innobase/buf/buf0flu.cc, buf_flush_write_block_low(); in our own words.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use env::{Cause, Context, Interrupt, Lock, LockClass, Signal, Task, WaitQueue};
use frames::sync::{AtomicBool, AtomicU64, Ordering};

use crate::Error;
use crate::registry::device::DeviceState;

/// A page: the serial number of its file, and its own.
type Page = (u64, u32);

/// A log that pages wait for.
pub struct WriteAhead {
    durable: AtomicU64,
    /// The highest number that was asked for.
    asked: AtomicU64,
    ended: AtomicBool,
    /// Pages held, so that nothing is locked where there are none.
    count: AtomicU64,
    passed_over: AtomicU64,
    held: Lock<Held>,
    wait: WaitQueue,
    ask: Box<dyn Fn(u64) + Send + Sync>,
}

#[derive(Default)]
struct Held {
    by_page: BTreeMap<Page, u64>,
    by_lsn: BTreeSet<(u64, Page)>,
    /// Pages that syncs wait for.
    fenced: Vec<Page>,
    /// Devices of the files that follow the log.
    devices: Vec<Weak<DeviceState>>,
}

impl fmt::Debug for WriteAhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteAhead")
            .field("durable", &self.durable)
            .field("held", &self.count)
            .finish_non_exhaustive()
    }
}

impl Held {
    fn remove(&mut self, page: Page) {
        if let Some(lsn) = self.by_page.remove(&page) {
            self.by_lsn.remove(&(lsn, page));
        }
    }
}

impl WriteAhead {
    /// A log that is durable up to nothing. `ask` is called where the log is wanted up to a number:
    /// by flushers, reclaimers, syncs and writers, which go on at once, so it must not wait.
    pub fn new(ask: impl Fn(u64) + Send + Sync + 'static) -> Self {
        Self {
            durable: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            count: AtomicU64::new(0),
            passed_over: AtomicU64::new(0),
            held: Lock::new(LockClass::Leaf, Held::default()),
            wait: WaitQueue::new(),
            ask: Box::new(ask),
        }
    }

    /// The log is durable up to `lsn`, that included. One that is lower than before changes
    /// nothing.
    pub fn durable(&self, lsn: u64) {
        let context = Interrupt::new();
        let mut devices = Vec::new();
        let before = {
            let mut held = self.held.lock(&context);
            // Under the lock: what is held there is above it.
            let before = self.durable.fetch_max(lsn, Ordering::AcqRel);
            let first = (lsn.saturating_add(1), (0, 0));
            let later = held.by_lsn.split_off(&first);
            let released = core::mem::replace(&mut held.by_lsn, later);
            for (_, page) in &released {
                held.by_page.remove(page);
            }
            if !released.is_empty() {
                devices.extend(held.devices.iter().filter_map(Weak::upgrade));
            }
            self.count
                .store(held.by_page.len() as u64, Ordering::Release);
            before
        };
        if before < lsn {
            self.wait.wake_all(Signal::LogDurable);
        }
        for device in devices {
            device.flusher.released.fetch_add(1, Ordering::AcqRel);
            device.flusher.wait.wake_all(Signal::LogDurable);
        }
    }

    /// The number that it is durable up to.
    pub fn durable_lsn(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Pages that wait for it.
    pub fn held(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Pages that flusher, reclaim or a sync came to and passed over, as they wait for it: each as
    /// often as that happened.
    pub fn passed_over(&self) -> u64 {
        self.passed_over.load(Ordering::Relaxed)
    }

    /// A page that waits for it was come to.
    pub(crate) fn pass_over(&self) {
        self.passed_over.fetch_add(1, Ordering::Relaxed);
    }

    /// It becomes no more durable than it is: what waits for it ends with an error, and pages that
    /// are held stay so.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.wait.wake_all(Signal::LogDurable);
    }

    /// A file of this device follows it.
    pub(crate) fn follow(&self, context: &impl Context, device: &Arc<DeviceState>) {
        let mut held = self.held.lock(context);
        held.devices.retain(|other| other.strong_count() > 0);
        if !held
            .devices
            .iter()
            .any(|other| other.as_ptr() == Arc::as_ptr(device))
        {
            held.devices.push(Arc::downgrade(device));
        }
    }

    /// Asks for the log up to `lsn`, once. Under no lock.
    pub(crate) fn ask(&self, lsn: u64) {
        if self.durable_lsn() < lsn && self.asked.fetch_max(lsn, Ordering::AcqRel) < lsn {
            (self.ask)(lsn);
        }
    }

    /// A page got bytes of `lsn`, and is busy or not shown yet.
    pub(crate) fn hold(&self, context: &impl Context, pages: impl Iterator<Item = Page>, lsn: u64) {
        let mut held = self.held.lock(context);
        // Under the lock: pages that are durable by now were released.
        if lsn <= self.durable_lsn() {
            return;
        }
        for page in pages {
            let before = held.by_page.get(&page).copied().unwrap_or(0);
            if before < lsn {
                held.remove(page);
                held.by_page.insert(page, lsn);
                held.by_lsn.insert((lsn, page));
            }
        }
        self.count
            .store(held.by_page.len() as u64, Ordering::Release);
    }

    /// The number that a page waits for.
    pub(crate) fn held_by(&self, context: &impl Context, page: Page) -> Option<u64> {
        if self.held() == 0 {
            return None;
        }
        self.held.lock(context).by_page.get(&page).copied()
    }

    /// A page is gone, and its bytes with it.
    pub(crate) fn forget(&self, context: &impl Context, page: Page) {
        if self.held() > 0 {
            let mut held = self.held.lock(context);
            held.remove(page);
            self.count
                .store(held.by_page.len() as u64, Ordering::Release);
        }
    }

    fn newest(&self, context: &impl Context) -> u64 {
        let held = self.held.lock(context);
        held.by_lsn.last().map_or(0, |(lsn, _)| *lsn)
    }

    /// Waits until fewer than `most` pages are held, for a write with `lsn`.
    pub(crate) fn wait_for_room(
        &self,
        task: &mut Task<'_>,
        lsn: u64,
        most: u64,
    ) -> Result<(), Error> {
        let (ended, durable) = (self.ended.load(Ordering::Acquire), self.durable_lsn());
        if ended && durable < lsn {
            // Its pages could never be written.
            return Err(Error::LogEnded { lsn, durable });
        }
        while self.held() >= most {
            // Others that were let in before may have held more since: those have to be asked for.
            let newest = self.newest(task);
            self.ask(newest);
            self.wait(task, newest, |log, _| {
                log.held() >= most && log.durable_lsn() < newest
            })?;
        }
        Ok(())
    }

    /// Waits until no sync waits for the page: it is about to be written.
    pub(crate) fn wait_for_fence(
        &self,
        task: &mut Task<'_>,
        page: Page,
        lsn: u64,
    ) -> Result<(), Error> {
        self.wait(task, lsn, |log, task| log.is_fenced(task, page))
    }

    pub(crate) fn is_fenced(&self, context: &impl Context, page: Page) -> bool {
        self.held() > 0 && self.held.lock(context).fenced.contains(&page)
    }

    /// A sync waits until the log is durable up to what `page` waits for, and keeps later ones off
    /// the page until `write` has sent it.
    pub(crate) fn release<T>(
        &self,
        task: &mut Task<'_>,
        page: Page,
        write: impl FnOnce(&mut Task<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.held.lock(task).fenced.push(page);
        let result = self.wait_for(task, page).and_then(|()| write(task));
        {
            let mut held = self.held.lock(task);
            let at = held.fenced.iter().position(|other| *other == page);
            held.fenced.swap_remove(at.expect("it was put there above"));
        }
        self.wait.wake_all(Signal::LogDurable);
        result
    }

    fn wait_for(&self, task: &mut Task<'_>, page: Page) -> Result<(), Error> {
        // A writer that was past the fence may have made it later meanwhile.
        while let Some(lsn) = self.held_by(task, page) {
            self.ask(lsn);
            self.wait(task, lsn, |log, _| log.durable_lsn() < lsn)?;
        }
        Ok(())
    }

    fn wait(
        &self,
        task: &mut Task<'_>,
        lsn: u64,
        blocked: impl Fn(&Self, &Task<'_>) -> bool,
    ) -> Result<(), Error> {
        let wakeup = task.wait_while(&self.wait, Cause::LogDurable, None, |task| {
            blocked(self, task) && !self.ended.load(Ordering::Acquire)
        });
        Error::after(wakeup)?;
        // Without an end others may have come before it again: the caller looks.
        if self.ended.load(Ordering::Acquire) && blocked(self, task) {
            let durable = self.durable_lsn();
            return Err(Error::LogEnded { lsn, durable });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn pages_are_let_go_in_the_order_of_their_numbers() {
        let context = Interrupt::new();
        let log = WriteAhead::new(|_| {});
        log.hold(&context, [(1, 0), (1, 1)].into_iter(), 10);
        log.hold(&context, [(2, 0)].into_iter(), 5);
        log.hold(&context, [(1, 1)].into_iter(), 20);
        // An earlier number than the page has changes nothing.
        log.hold(&context, [(1, 1)].into_iter(), 7);
        assert_eq!(log.held(), 3);
        log.durable(9);
        assert_eq!(log.held_by(&context, (2, 0)), None);
        assert_eq!(log.held_by(&context, (1, 0)), Some(10));
        log.durable(10);
        log.durable(3);
        assert_eq!((log.held(), log.durable_lsn()), (1, 10));
        log.hold(&context, [(3, 3)].into_iter(), 10);
        assert_eq!(log.held_by(&context, (3, 3)), None, "durable already");
        log.forget(&context, (1, 1));
        assert_eq!(log.held(), 0);
        log.durable(u64::MAX);
    }

    #[test]
    fn each_number_is_asked_for_once() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = WriteAhead::new({
            let asked = Arc::clone(&asked);
            move |lsn| asked.lock().unwrap().push(lsn)
        });
        log.durable(4);
        for lsn in [3, 7, 5, 7, 9] {
            log.ask(lsn);
        }
        assert_eq!(*asked.lock().unwrap(), [7, 9]);
    }
}
