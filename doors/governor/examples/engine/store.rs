//! A store that counts, and the time it takes: blocks of rows, each read and written as one.
//!
//! Reads are waited for. Writes are what an engine does behind: they take the time of a channel of
//! their own, and only a thread that needs their memory waits for them. (`serial` makes it a store
//! that does one thing at a time.)

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Bytes of a row.
pub(crate) const ROW: usize = 1024;
/// Rows of a block.
pub(crate) const ROWS: u64 = 8;
/// A block read, a block written, and the work of one operation beside: assumed, in ns. The
/// proportions count.
pub(crate) const READ: u64 = 20_000;
pub(crate) const WRITE: u64 = 20_000;
pub(crate) const WORK: u64 = 2_000;
/// Debts of time below this are not slept: the system would make more of it.
const SLEPT: Duration = Duration::from_millis(2);

/// The work done so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    /// Time of the model, in ns.
    pub(crate) time: u64,
}

/// Counts and time; the time passes by the model, or also really.
pub(crate) struct Store {
    reads: AtomicU64,
    writes: AtomicU64,
    time: Arc<AtomicU64>,
    /// When the last write will have ended.
    written: AtomicU64,
    live: Option<Instant>,
    serial: bool,
}

thread_local! {
    static OWED: Cell<u64> = const { Cell::new(0) };
}

impl Store {
    pub(crate) fn new(live: bool, serial: bool) -> Self {
        Self {
            written: AtomicU64::new(0),
            serial,
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            time: Arc::new(AtomicU64::new(0)),
            live: live.then(Instant::now),
        }
    }

    /// The model's clock.
    pub(crate) fn clock(&self) -> Arc<AtomicU64> {
        self.time.clone()
    }

    pub(crate) fn is_live(&self) -> bool {
        self.live.is_some()
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            reads: self.reads.load(Relaxed),
            writes: self.writes.load(Relaxed),
            time: self.time.load(Relaxed),
        }
    }

    /// Time of the model.
    pub(crate) fn now(&self) -> u64 {
        self.time.load(Relaxed)
    }

    pub(crate) fn read(&self, block: u64) -> Arc<[u8]> {
        self.reads.fetch_add(1, Relaxed);
        self.takes(READ);
        vec![block.to_le_bytes()[0] | 1; ROW * usize::try_from(ROWS).unwrap_or(1)].into()
    }

    pub(crate) fn write(&self, _block: u64) {
        self.writes.fetch_add(1, Relaxed);
        if self.serial {
            self.takes(WRITE);
        } else {
            let now = self.passed();
            let later = |written: u64| Some(written.max(now) + WRITE);
            let _ = self.written.fetch_update(Relaxed, Relaxed, later);
        }
    }

    /// Time that writes under way still take.
    pub(crate) fn backlog(&self) -> u64 {
        self.written.load(Relaxed).saturating_sub(self.passed())
    }

    /// The cost of one write more for the thread that needs memory: all of its time when `full` are
    /// under way, so that it waits, less before.
    pub(crate) fn waited_for_a_write(&self, full: u64) -> u64 {
        if self.serial {
            return WRITE;
        }
        WRITE * self.backlog().min(full) / full
    }

    /// Waits until no more than so much of them is left.
    pub(crate) fn wait_for_writes(&self, left: u64) {
        let ns = self.backlog().saturating_sub(left);
        self.takes(ns);
    }

    /// Time that has passed for the disk: really, where the store is live.
    fn passed(&self) -> u64 {
        let real = |began: Instant| u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.live.map_or_else(|| self.now(), real)
    }

    pub(crate) fn work(&self) {
        self.takes(WORK);
    }

    fn takes(&self, ns: u64) {
        let now = self.time.fetch_add(ns, Relaxed) + ns;
        let Some(began) = self.live else { return };
        // Sleeps off what the model is ahead of the clock; a clock that is ahead is a slow machine.
        let owed = OWED.get() + ns;
        OWED.set(owed);
        if owed >= u64::try_from(SLEPT.as_nanos()).unwrap_or(u64::MAX) {
            OWED.set(0);
            let ahead = Duration::from_nanos(now).saturating_sub(began.elapsed());
            std::thread::sleep(ahead);
        }
    }
}
