//! One device as the cache sees it: counters, dirty files, what is in flight, errors.

use std::collections::VecDeque;
use std::sync::Arc;

use env::{Context, DeviceId, DeviceInfo, IoError, Lock, LockClass, Signal, WaitQueue};
use frames::Spread;
use frames::sync::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use policy::dirty::{DeviceIndex, Domain};
use policy::units::{Bytes, Instant, Nanos, Pages};

use crate::Error;
use crate::options::{DeviceOptions, ErrorPolicy};
use crate::registry::health::{DeviceStats, Health, ReadsFailing};
use crate::registry::inflight::read::ReadInflight;
use crate::registry::inflight::write::WriteInflight;
use crate::registry::mapping::Mapping;

/// Back-off between tries of a failed write doubles this many times at most.
const BACKOFF_DOUBLINGS: u32 = 6;
/// A device with writes under way is stalled when none has ended for so long; likewise one with
/// reads.
const STALLED_AFTER: Nanos = Nanos::secs(5);
/// A part of the minute over which failed writes are held against those that went through.
const SLOT: Nanos = Nanos::secs(5);
const SLOTS: usize = 12;
/// Of that minute's slots, how many saw both kinds where writes fail by turns: one or two are the
/// begin and the end of an outage.
const MIXED_LEAST: usize = 3;
/// Of that minute's writes, one in this many may fail.
const FAILED_PART: u32 = 100;
/// Writers of a device are paused if one began a pause so lately.
const PAUSING: Nanos = Nanos::secs(1);
/// Reads that fail further apart are not one trouble, and a read that failed so long ago says
/// nothing of now.
const READS_APART: Nanos = Nanos::secs(60);

/// A device.
pub(crate) struct DeviceState {
    pub(crate) index: DeviceIndex,
    pub(crate) id: DeviceId,
    /// No other device of the cache had or will have it; from 1 on.
    pub(crate) serial: u64,
    pub(crate) info: DeviceInfo,
    pub(crate) options: DeviceOptions,
    pub(crate) dirty: AtomicU64,
    pub(crate) writeback: AtomicU64,
    /// Pages ever dirtied, ever written, ever read, ever failed to be written.
    pub(crate) dirtied: Spread,
    pub(crate) written: AtomicU64,
    pub(crate) read_in: Spread,
    /// Pages of which a read failed, ever.
    read_failed: AtomicU64,
    /// The last read that ended failed.
    reads_fail: AtomicBool,
    pub(crate) failed: AtomicU64,
    /// When a write last ended, or began while none was under way, in nanoseconds.
    pub(crate) moved_at: AtomicU64,
    pub(crate) reads_inflight: ReadInflight,
    /// Writeback in flight.
    pub(crate) writes_inflight: WriteInflight,
    /// Smoothed bandwidth, kept here so that completions and submitters need no lock.
    pub(crate) bandwidth: AtomicU64,
    /// When a writer last began a pause, in nanoseconds; zero: never.
    paused_at: AtomicU64,
    /// Likewise how often its usual flight is doubled.
    pub(crate) reach: AtomicU32,
    pub(crate) files: Lock<DirtyFiles>,
    /// Syncs that are writing files of it.
    pub(crate) syncs: AtomicU32,
    pub(crate) flusher: Flusher,
    /// The error that writers get when writes fail (`ErrorPolicy`); may change.
    on_error: AtomicU8,
    /// It is to go as soon as nothing of it is open or under way.
    leaving: AtomicBool,
    /// It is gone: its flusher ends, and its place is for another one.
    retired: AtomicBool,
    errors: Lock<DeviceErrors>,
    error_seq: AtomicU64,
    /// Errors up to this one are not held against writers: they had healed when the policy changed.
    forgiven: AtomicU64,
    /// Flushes that ever failed; holders compare it with what they were told of.
    flush_failures: AtomicU64,
}

/// Signals to the flusher task.
pub(crate) struct Flusher {
    pub(crate) wait: WaitQueue,
    /// Background writeback was asked for.
    pub(crate) kicked: AtomicBool,
    /// Pages to write whatever the thresholds say: somebody needs memory.
    pub(crate) wanted: AtomicU64,
    /// Where it waits for the end of syncs, if it is spared other wakes of theirs.
    pub(crate) synced: WaitQueue,
    /// It met pages that wait for a log, and how often logs have let pages go.
    pub(crate) held: AtomicBool,
    pub(crate) released: AtomicU64,
    /// It is at work.
    pub(crate) running: AtomicBool,
}

/// Files with dirty pages (kernel: `b_dirty`, `b_io`, `b_more_io`), oldest first. Room for a file
/// is taken when it is opened.
pub(crate) struct DirtyFiles {
    /// Files of the device that are open.
    open: usize,
    pub(crate) dirty: VecDeque<(Arc<Mapping>, Instant)>,
    pub(crate) io: VecDeque<(Arc<Mapping>, Instant)>,
    pub(crate) more_io: VecDeque<(Arc<Mapping>, Instant)>,
}

impl DirtyFiles {
    /// Empties the lists.
    pub(crate) fn take(&mut self) -> [VecDeque<(Arc<Mapping>, Instant)>; 3] {
        [&mut self.dirty, &mut self.io, &mut self.more_io].map(core::mem::take)
    }
}

#[derive(Default)]
struct DeviceErrors {
    /// The first and the last write that failed, and where in its file.
    first: Option<(Bytes, IoError)>,
    last: Option<(Bytes, IoError)>,
    /// The last read that failed, likewise.
    last_read: Option<(Bytes, IoError)>,
    /// When it failed, and when the first did of those that no good one lies between.
    read_failed_at: Instant,
    reads_failing_since: Instant,
    /// Since when writes fail, if `failures_in_a_row` is not zero or they do by turns.
    failing_since: Instant,
    /// Writes since the first that failed.
    lately: Minute,
    /// A flush failed: nothing can be promised until the device is reopened.
    flush_failed: Option<IoError>,
    /// Why the last flush that failed did; a reopened device remembers it.
    flush_cause: Option<IoError>,
    failures_in_a_row: u32,
    retry_at: Instant,
}

/// Writes of the last minute, in slots: how many went through, and how many failed.
#[derive(Default)]
struct Minute {
    slots: [(u32, u32); SLOTS],
    /// The number of the slot that was counted in last.
    last: u64,
}

impl Minute {
    fn note(&mut self, now: Instant, failed: bool) {
        let slot = self.forget(now);
        let (done, failures) = &mut self.slots[slot];
        *(if failed { failures } else { done }) += 1;
    }

    /// True if writes fail by turns.
    fn is_mixed(&mut self, now: Instant) -> bool {
        self.forget(now);
        let mixed = self.slots.iter().filter(|slot| slot.0 > 0 && slot.1 > 0);
        let of_all = |sum: (u32, u32), slot: &(u32, u32)| (sum.0 + slot.0, sum.1 + slot.1);
        let (done, failed) = self.slots.iter().fold((0, 0), of_all);
        mixed.count() >= MIXED_LEAST && failed > (done + failed) / FAILED_PART
    }

    /// Empties slots that are over a minute old; answers the one of `now`.
    fn forget(&mut self, now: Instant) -> usize {
        let all = SLOTS as u64;
        let slot = (now.0 / SLOT.0).max(self.last);
        let place = |slot: u64| usize::try_from(slot % all).expect("below SLOTS");
        for old in (self.last + 1..=slot).rev().take(SLOTS) {
            self.slots[place(old)] = (0, 0);
        }
        self.last = slot;
        place(slot)
    }
}

impl DeviceState {
    pub(crate) fn new(
        (index, serial): (DeviceIndex, u64),
        id: DeviceId,
        info: DeviceInfo,
        options: DeviceOptions,
        bandwidth: u64,
    ) -> Self {
        let files = DirtyFiles {
            open: 0,
            dirty: VecDeque::new(),
            io: VecDeque::new(),
            more_io: VecDeque::new(),
        };
        Self {
            index,
            id,
            serial,
            info,
            options,
            dirty: AtomicU64::new(0),
            writeback: AtomicU64::new(0),
            dirtied: Spread::default(),
            written: AtomicU64::new(0),
            read_in: Spread::default(),
            read_failed: AtomicU64::new(0),
            reads_fail: AtomicBool::new(false),
            failed: AtomicU64::new(0),
            moved_at: AtomicU64::new(0),
            reads_inflight: ReadInflight::default(),
            writes_inflight: WriteInflight::new(),
            bandwidth: AtomicU64::new(bandwidth),
            paused_at: AtomicU64::new(0),
            reach: AtomicU32::new(0),
            files: Lock::new(LockClass::DirtyFiles, files),
            syncs: AtomicU32::new(0),
            flusher: Flusher {
                wait: WaitQueue::new(),
                kicked: AtomicBool::new(false),
                wanted: AtomicU64::new(0),
                synced: WaitQueue::new(),
                held: AtomicBool::new(false),
                released: AtomicU64::new(0),
                running: AtomicBool::new(false),
            },
            on_error: AtomicU8::new(options.on_error as u8),
            leaving: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            errors: Lock::new(LockClass::Device, DeviceErrors::default()),
            error_seq: AtomicU64::new(0),
            forgiven: AtomicU64::new(0),
            flush_failures: AtomicU64::new(0),
        }
    }

    /// A file of it is opened: it will find room on each list.
    pub(crate) fn add_file(&self, context: &impl Context) {
        let mut files = self.files.lock(context);
        files.open += 1;
        let open = files.open;
        let files = &mut *files;
        for list in [&mut files.dirty, &mut files.io, &mut files.more_io] {
            list.reserve(open - list.len().min(open));
        }
    }

    /// Writers get this from now on while writes fail. Writes that failed under another policy and
    /// have gone through since are nothing to them; dirty pages are tried at once, so that a page
    /// that still cannot be written is found out.
    pub(crate) fn set_on_error(&self, context: &impl Context, on_error: ErrorPolicy) {
        let errors = self.errors.lock(context);
        let before = self.on_error.swap(on_error as u8, Ordering::Relaxed);
        if before == on_error as u8 || errors.failures_in_a_row > 0 {
            return;
        }
        let seq = self.error_seq();
        let forgives = self.forgiven.swap(seq, Ordering::Relaxed) < seq;
        drop(errors);
        let dirty = Pages(self.dirty.load(Ordering::Relaxed));
        if forgives && !dirty.is_zero() {
            self.want(dirty);
        }
    }

    /// True if an error has come up since those that are forgiven.
    fn has_erred(&self) -> bool {
        self.error_seq() > self.forgiven.load(Ordering::Relaxed)
    }

    fn on_error(&self) -> ErrorPolicy {
        let on_error = self.on_error.load(Ordering::Relaxed);
        let all = [ErrorPolicy::Retry, ErrorPolicy::Report, ErrorPolicy::Stop];
        all.into_iter()
            .find(|policy| *policy as u8 == on_error)
            .unwrap_or(self.options.on_error)
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// It is to go: the task that calls `retire` may find that it can.
    pub(crate) fn leave(&self) {
        self.leaving.store(true, Ordering::Release);
    }

    /// It is to go, and is still there.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire) && !self.is_retired()
    }

    /// Gives up a device that is to go if nothing of it is open, dirty or under way; has its
    /// flusher end. Answers whether it was this call that did.
    pub(crate) fn retire(&self, context: &impl Context) -> bool {
        if !self.is_leaving() {
            return false;
        }
        let is_open = self.files.lock(context).open > 0;
        let pages = [&self.dirty, &self.writeback];
        let is_used = is_open
            || pages.iter().any(|count| count.load(Ordering::Acquire) > 0)
            || !self.writes_inflight.is_empty()
            || self.syncs.load(Ordering::Acquire) > 0;
        if is_used || self.retired.swap(true, Ordering::AcqRel) {
            return false;
        }
        self.flusher.kicked.store(true, Ordering::Release);
        self.flusher.wait.wake_all(Signal::Shutdown);
        true
    }

    /// A file of it was closed.
    pub(crate) fn remove_file(&self, context: &impl Context) {
        self.files.lock(context).open -= 1;
    }

    /// Copies what the law has measured of the device.
    pub(crate) fn note_pace(&self, domain: &Domain) {
        self.bandwidth
            .store(domain.bandwidth(self.index).0, Ordering::Relaxed);
        self.reach
            .store(domain.reach(self.index), Ordering::Relaxed);
    }

    /// A writer of it begins a pause.
    pub(crate) fn note_pause(&self, now: Instant) {
        self.paused_at.store(now.0, Ordering::Relaxed);
    }

    /// True if a writer began a pause less than `time` ago.
    pub(crate) fn paused_within(&self, now: Instant, time: Nanos) -> bool {
        let paused_at = self.paused_at.load(Ordering::Relaxed);
        paused_at > 0 && now.since(Instant(paused_at)) < time
    }

    /// Wakes the flusher for background writeback if it is idle.
    pub(crate) fn kick(&self) {
        if !self.flusher.kicked.swap(true, Ordering::AcqRel) {
            self.flusher.wait.wake_all(Signal::FlusherAsked);
        }
    }

    /// Has the flusher write `pages` even below the background threshold.
    pub(crate) fn want(&self, pages: Pages) {
        self.flusher.wanted.fetch_max(pages.0, Ordering::AcqRel);
        self.kick();
    }

    pub(crate) fn error_seq(&self) -> u64 {
        self.error_seq.load(Ordering::Acquire)
    }

    /// A write failed: back off before the next try.
    pub(crate) fn on_write_failed(
        &self,
        context: &impl Context,
        now: Instant,
        offset: Bytes,
        error: IoError,
    ) {
        let mut errors = self.errors.lock(context);
        errors.last = Some((offset, error));
        errors.first.get_or_insert((offset, error));
        if errors.failures_in_a_row == 0 && !errors.lately.is_mixed(now) {
            errors.failing_since = now;
        }
        errors.lately.note(now, true);
        let doublings = errors.failures_in_a_row.min(BACKOFF_DOUBLINGS);
        errors.failures_in_a_row += 1;
        errors.retry_at = now + Nanos(self.options.retry_after.0 << doublings);
        drop(errors);
        self.error_seq.fetch_add(1, Ordering::Release);
    }

    /// A read failed: told to the task that asked for it, and counted. It holds nobody back.
    pub(crate) fn on_read_failed(
        &self,
        context: &impl Context,
        now: Instant,
        offset: Bytes,
        error: IoError,
        pages: Pages,
    ) {
        {
            let mut errors = self.errors.lock(context);
            errors.last_read = Some((offset, error));
            let lately = now.since(errors.read_failed_at) <= READS_APART;
            errors.read_failed_at = now;
            if !self.reads_fail.swap(true, Ordering::Relaxed) || !lately {
                errors.reads_failing_since = now;
            }
        }
        self.read_failed.fetch_add(pages.0, Ordering::Relaxed);
    }

    /// A read went well.
    pub(crate) fn on_read_done(&self) {
        // The common case writes nothing.
        if self.reads_fail.load(Ordering::Relaxed) {
            self.reads_fail.store(false, Ordering::Relaxed);
        }
    }

    /// A write went through: the next failure starts with a short back-off again.
    pub(crate) fn on_write_done(&self, context: &impl Context, now: Instant) {
        // The common case needs no lock: no failure was ever seen.
        if self.error_seq() != 0 {
            let mut errors = self.errors.lock(context);
            errors.lately.note(now, false);
            errors.failures_in_a_row = 0;
            errors.retry_at = Instant::ZERO;
        }
    }

    /// When background writeback may try again after a failure.
    pub(crate) fn retry_at(&self, context: &impl Context) -> Instant {
        if self.error_seq() == 0 {
            Instant::ZERO
        } else {
            self.errors.lock(context).retry_at
        }
    }

    pub(crate) fn on_flush_failed(&self, context: &impl Context, error: IoError) {
        {
            let mut errors = self.errors.lock(context);
            errors.flush_failed = Some(error);
            errors.flush_cause = Some(error);
        }
        self.flush_failures.fetch_add(1, Ordering::AcqRel);
        self.error_seq.fetch_add(1, Ordering::Release);
    }

    /// The state in which a flush failed lasts until the device is reopened.
    pub(crate) fn flush_failure(&self, context: &impl Context) -> Result<(), Error> {
        if self.error_seq() == 0 {
            return Ok(());
        }
        match self.errors.lock(context).flush_failed {
            Some(cause) => Err(Error::FlushFailed { cause }),
            None => Ok(()),
        }
    }

    pub(crate) fn flush_failures(&self) -> u64 {
        self.flush_failures.load(Ordering::Acquire)
    }

    /// An error if a flush has failed since there were `seen` failures, reopened or not.
    pub(crate) fn flush_failure_since(
        &self,
        context: &impl Context,
        seen: u64,
    ) -> Result<(), Error> {
        if self.flush_failures() == seen {
            return Ok(());
        }
        let cause = self.errors.lock(context).flush_cause;
        let cause = cause.unwrap_or(IoError::Lost);
        Err(Error::FlushFailed { cause })
    }

    pub(crate) fn reopen(&self, context: &impl Context) {
        let mut errors = self.errors.lock(context);
        *errors = DeviceErrors {
            flush_cause: errors.flush_cause,
            ..DeviceErrors::default()
        };
    }

    /// Admits a writer that has seen errors up to `seen`, or says why not; an error told once is
    /// noted.
    pub(crate) fn admit(&self, context: &impl Context, seen: &mut u64) -> Result<(), Error> {
        let seq = self.error_seq();
        if seq == 0 {
            return Ok(());
        }
        let errors = self.errors.lock(context);
        if let Some(cause) = errors.flush_failed {
            return Err(Error::FlushFailed { cause });
        }
        let Some((offset, cause)) = errors.last.filter(|_| self.has_erred()) else {
            return Ok(());
        };
        match self.on_error() {
            ErrorPolicy::Retry => Ok(()),
            ErrorPolicy::Stop => Err(Error::DeviceStopped { cause }),
            ErrorPolicy::Report if *seen < seq => {
                *seen = seq;
                Err(Error::WriteFailed { offset, cause })
            }
            ErrorPolicy::Report => Ok(()),
        }
    }

    /// A write went to the device while none was under way, or one ended.
    pub(crate) fn note_moved(&self, now: Instant) {
        self.moved_at.store(now.0, Ordering::Relaxed);
    }

    /// Its health at `now`.
    fn health(&self, context: &impl Context, now: Instant) -> Health {
        if self.error_seq() != 0 {
            let mut errors = self.errors.lock(context);
            if let Some(cause) = errors.flush_failed {
                return Health::FlushFailed { cause };
            }
            let fails = errors.failures_in_a_row > 0 || errors.lately.is_mixed(now);
            match errors.last {
                Some((_, cause)) if self.on_error() == ErrorPolicy::Stop && self.has_erred() => {
                    return Health::Stopped { cause };
                }
                Some((offset, cause)) if fails => {
                    let since = now.since(errors.failing_since);
                    return Health::Retrying {
                        since,
                        offset,
                        cause,
                    };
                }
                _ => {}
            }
        }
        let writes = (self.writes_inflight.requests() > 0)
            .then(|| now.since(Instant(self.moved_at.load(Ordering::Relaxed))));
        match writes.max(self.reads_inflight.silent_for(now)) {
            Some(since) if since >= STALLED_AFTER => Health::Stalled { since },
            _ => Health::Working,
        }
    }

    /// Its counters; `limits`: its share of the dirty and of the background limit.
    pub(crate) fn stats(
        &self,
        context: &impl Context,
        now: Instant,
        (dirty_limit, background_limit): (Pages, Pages),
    ) -> DeviceStats {
        let load = |counter: &AtomicU64| Pages(counter.load(Ordering::Relaxed));
        let (first_error, last_error, last_read_error, reads_failing) = {
            let errors = self.errors.lock(context);
            let failed = |(offset, cause)| Error::WriteFailed { offset, cause };
            let flush = errors
                .flush_failed
                .map(|cause| Error::FlushFailed { cause });
            let fail = errors.last_read.is_some() && self.reads_fail.load(Ordering::Relaxed);
            let failing = ReadsFailing {
                since: now.since(errors.reads_failing_since),
                last: now.since(errors.read_failed_at),
            };
            (
                errors.first.map(failed).or(flush),
                flush.or(errors.last.map(failed)),
                errors
                    .last_read
                    .map(|(offset, cause)| Error::ReadFailed { offset, cause }),
                (fail && failing.last <= READS_APART).then_some(failing),
            )
        };
        DeviceStats {
            device: self.index,
            dirty: load(&self.dirty),
            writeback: load(&self.writeback),
            dirty_limit,
            background_limit,
            dirtied: Pages(self.dirtied.get()),
            written: load(&self.written),
            read_in: Pages(self.read_in.get()),
            read_failed: load(&self.read_failed),
            write_failed: load(&self.failed),
            requests: self.writes_inflight.requests(),
            bandwidth: policy::units::PagesPerSec(self.bandwidth.load(Ordering::Relaxed)),
            pausing: self.paused_within(now, PAUSING),
            errors: self.error_seq(),
            first_error,
            last_error,
            last_read_error,
            reads_failing,
            health: self.health(context, now),
        }
    }
}
