//! A request that was cut into parts: it ends when its last part does, and a flush when the writes
//! before it have.
//!
//! A write may be called moved as soon as it is taken: its submitter, which otherwise keeps no more
//! on its way than a disk does in 40 ms, then sends others, and those of one object go in one put.
//! Bounded by what the device can put at once.
//!
//! Invariants
//!   1. A request ends exactly once: when the last hold of it is dropped, whatever became of its
//!      parts. A part that was dropped without an answer (the device stops) counts as `Cancelled`.
//!   2. No lock of the device is held while a request ends: its handlers may submit others.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use env::{Interrupt, IoError, IoRequest};

/// Locks, no matter which thread panicked under it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends a request; a panic of its handlers is reported by the hook and goes no further.
pub(crate) fn complete(request: Box<IoRequest>, result: Result<(), IoError>) {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        request.complete(&Interrupt::new(), result);
    }));
}

#[derive(Default)]
struct State {
    next: u64,
    /// Requests that have not ended, and which of them change something.
    pending: usize,
    writes: BTreeSet<u64>,
    flushes: Vec<(u64, Box<IoRequest>)>,
}

/// Requests that have not ended.
#[derive(Default)]
pub(crate) struct Ledger {
    state: Mutex<State>,
    /// Bytes of requests that were called moved and have not ended.
    moved: AtomicU64,
}

impl Ledger {
    /// Number of requests that were taken and have not ended.
    pub(crate) fn pending(&self) -> usize {
        let state = lock(&self.state);
        state.pending + state.flushes.len()
    }

    /// Ends the request when all writes taken before it have.
    pub(crate) fn flush(&self, request: Box<IoRequest>) {
        let mut state = lock(&self.state);
        let before = state.next;
        state.flushes.push((before, request));
        Self::settle(state);
    }

    /// Calls the request of `bytes` bytes moved, unless more than `bound` of others are so already.
    /// Answers its bytes if it was.
    pub(crate) fn move_on(&self, request: &mut IoRequest, bytes: u64, bound: u64) -> u64 {
        if self.moved.load(Ordering::Relaxed) >= bound {
            return 0;
        }
        self.moved.fetch_add(bytes, Ordering::Relaxed);
        request.note_moved(&Interrupt::new());
        bytes
    }

    fn begin(&self, is_write: bool) -> u64 {
        let mut state = lock(&self.state);
        let number = state.next;
        state.next += 1;
        state.pending += 1;
        if is_write {
            state.writes.insert(number);
        }
        number
    }

    fn end(&self, number: u64) {
        let mut state = lock(&self.state);
        state.pending -= 1;
        if state.writes.remove(&number) {
            Self::settle(state);
        }
    }

    fn settle(mut state: MutexGuard<'_, State>) {
        let first = state.writes.first().copied().unwrap_or(u64::MAX);
        let (done, rest): (Vec<_>, Vec<_>) = core::mem::take(&mut state.flushes)
            .into_iter()
            .partition(|(before, _)| *before <= first);
        state.flushes = rest;
        drop(state);
        for (_, request) in done {
            // A put that was answered is durable; a put that failed has told the task that sent it.
            complete(request, Ok(()));
        }
    }
}

/// A request under way.
pub(crate) struct Whole {
    ledger: Arc<Ledger>,
    number: u64,
    request: Mutex<Option<Box<IoRequest>>>,
    left: AtomicUsize,
    failed: Mutex<Option<IoError>>,
    moved: u64,
}

impl Whole {
    /// A request of `parts` parts; `moved`: what `move_on` answered.
    pub(crate) fn new(
        ledger: &Arc<Ledger>,
        request: Box<IoRequest>,
        parts: usize,
        is_write: bool,
        moved: u64,
    ) -> Arc<Self> {
        Arc::new(Self {
            ledger: Arc::clone(ledger),
            number: ledger.begin(is_write),
            request: Mutex::new(Some(request)),
            left: AtomicUsize::new(parts),
            failed: Mutex::new(None),
            moved,
        })
    }

    /// One of its parts has ended.
    pub(crate) fn end_part(&self, result: Result<(), IoError>) {
        if let Err(error) = result {
            lock(&self.failed).get_or_insert(error);
        }
        self.left.fetch_sub(1, Ordering::AcqRel);
    }

    /// Works on the request.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut IoRequest) -> R) -> R {
        let mut request = lock(&self.request);
        work(
            request
                .as_mut()
                .expect("a request is there until its last hold goes"),
        )
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        let failed = *lock(&self.failed);
        let result = match failed {
            Some(error) => Err(error),
            None if *self.left.get_mut() > 0 => Err(IoError::Cancelled),
            None => Ok(()),
        };
        self.ledger.moved.fetch_sub(self.moved, Ordering::Relaxed);
        if let Some(request) = lock(&self.request).take() {
            complete(request, result);
        }
        // After the handlers: a flush that this releases is told after the write that it waited
        // for.
        self.ledger.end(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::IoDone;

    struct Log(Mutex<Vec<(u64, Result<(), IoError>)>>);

    impl IoDone for Log {
        fn io_done(&self, _: &Interrupt, request: Box<IoRequest>, result: Result<(), IoError>) {
            lock(&self.0).push((request.cookie[0], result));
        }
    }

    fn request(log: &Arc<Log>, name: u64) -> Box<IoRequest> {
        let mut request = IoRequest::with_room(0);
        request.cookie[0] = name;
        let log: Arc<dyn IoDone> = log.clone();
        request.on_done(log);
        request
    }

    #[test]
    fn a_flush_waits_for_the_writes_before_it_only() {
        let log = Arc::new(Log(Mutex::new(Vec::new())));
        let ledger = Arc::new(Ledger::default());
        ledger.flush(request(&log, 0));
        assert_eq!(*lock(&log.0), [(0, Ok(()))]);
        let first = Whole::new(&ledger, request(&log, 1), 2, true, 0);
        let read = Whole::new(&ledger, request(&log, 2), 1, false, 0);
        ledger.flush(request(&log, 3));
        let later = Whole::new(&ledger, request(&log, 4), 1, true, 0);
        assert_eq!(ledger.pending(), 4);
        first.end_part(Ok(()));
        assert_eq!(lock(&log.0).len(), 1);
        first.end_part(Err(IoError::NoSpace));
        drop(first);
        assert_eq!(lock(&log.0)[1..], [(1, Err(IoError::NoSpace)), (3, Ok(()))]);
        drop(later);
        assert_eq!(lock(&log.0)[3], (4, Err(IoError::Cancelled)));
        read.end_part(Ok(()));
        drop(read);
        assert_eq!(lock(&log.0)[4], (2, Ok(())));
        assert_eq!(ledger.pending(), 0);
    }
}
