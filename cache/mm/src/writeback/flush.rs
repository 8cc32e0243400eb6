//! Writing dirty pages back: one flusher per device, and any other task that has to write.
//!
//! The flusher sleeps until it is kicked (background threshold), until a dirty file has waited for
//! `expire` (looked at every `interval`), or until the cache stops. It takes files oldest first
//! and a slice of each, so that no file starves another; a file with pages left goes behind the
//! others. Within a file it goes on where the last slice stopped, merges neighbours into requests,
//! and keeps what is in flight within the bound of `policy::writeback`, so that a read waits for
//! no more than that.
//!
//! ```text
//!   dirty --(older than the cutoff)--> io --slice--> clean: off the lists
//!     ^                                  \--slice used up--> more_io --(next round)--> io
//!     +------------- busy pages, failed writes -------------/
//! ```
//!
//! Invariants
//!   1. Nothing is allocated between a dirty page and its request (the slots are `io::Requests`).
//!   2. A page that is busy is skipped, never waited for: its holder may be waiting for memory.
//!   3. A round ends: files dirtied after it began wait for the next one.
//!   4. A file that is being synced is left to the sync: the device sees one stream of it.
//!
//! Source: mechanisms 6; Linux v6.12 fs/fs-writeback.c, wb_writeback(), in our own words.

use core::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use env::{
    Cause, Context, IoClass, IoDone, IoOp, IoRequest, Signal, Task, WaitQueue, Wakeup, Work,
};
use frames::Tag;
use policy::units::{Bytes, Instant, Nanos, PAGE_SHIFT, Pages, PagesPerSec};

use crate::Error;
use crate::cache::kernel::DeviceLine;
use crate::cache::{Cache, add, get};
use crate::registry::device::DeviceState;
use crate::registry::inflight::write::{request_pages, wait_for_room};
use crate::registry::mapping::Mapping;
use crate::writeback::io;
use crate::writeback::io::set_device_len;

/// A flusher that found only busy pages looks again after this.
const BUSY_RETRY: Nanos = Nanos::millis(2);
/// A flusher that found only pages that wait for a log looks for others after this.
const HELD_RETRY: Nanos = Nanos::millis(20);
/// A flusher that found only files that are being synced looks for others after this, or when a
/// sync ends.
const SYNC_RETRY: Nanos = Nanos::millis(100);

/// Which pages of a file to write.
#[derive(Clone, Copy)]
pub(crate) struct Selection {
    /// First and last page.
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// Pages with this tag.
    pub(crate) tag: Tag,
    /// At most that many.
    pub(crate) max: Pages,
    pub(crate) class: IoClass,
    /// Once the last of them is sent, the task has nothing to do until it has ended.
    pub(crate) is_last: bool,
}

/// The outcome of writing a range.
#[derive(Clone, Copy, Default)]
pub(crate) struct Outcome {
    pub(crate) wrote: Pages,
    /// Pages with the tag that somebody was busy with, or that wait for a log.
    pub(crate) skipped: Pages,
    /// The first page not looked at; `None`: the range was finished.
    pub(crate) next: Option<u32>,
}

/// The aim of a round of writing, and so its end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    /// Until dirty pages are below the background threshold.
    Background,
    /// Until no file is left that was dirtied before this.
    Expired(Instant),
    /// Until this many pages were written.
    Count(Pages),
}

/// The flusher of a device.
pub(crate) fn flusher(task: &mut Task<'_>, cache: &Weak<Cache>, device: &Arc<DeviceState>) {
    flush_until_the_end(task, cache, device);
    // A file holds its device, so the device's lists would keep both for ever. Dropped without
    // the lock.
    let left = device.files.lock(task).take();
    drop(left);
}

fn flush_until_the_end(task: &mut Task<'_>, cache: &Weak<Cache>, device: &Arc<DeviceState>) {
    let mut looked = task.now();
    while let Some(interval) = cache.upgrade().map(|cache| cache.options.flush.interval) {
        let periodic = !interval.is_zero() && has_dirty_files(task, device);
        let deadline = periodic.then(|| looked + interval);
        let flusher = &device.flusher;
        let wakeup = task.wait_while(&flusher.wait, Cause::Idle, deadline, |task| {
            !flusher.kicked.load(Ordering::Acquire)
                && !is_stopping(cache)
                && (periodic || interval.is_zero() || !has_dirty_files(task, device))
        });
        let Some(cache) = cache.upgrade() else { return };
        let is_over = cache.registry.stopping.load(Ordering::Acquire) || device.is_retired();
        if wakeup == Wakeup::Cancelled || is_over {
            return;
        }
        flusher.running.store(true, Ordering::Relaxed);
        let released = flusher.released.load(Ordering::Acquire);
        flusher.held.store(false, Ordering::Relaxed);
        let result = rounds(task, &cache, device, interval, &mut looked);
        flusher.running.store(false, Ordering::Relaxed);
        flusher.kicked.store(false, Ordering::Release);
        let Ok(wrote) = result else { return };
        // A kick that came while it ran was cleared with it.
        if has_work(task, &cache, device) {
            flusher.kicked.store(true, Ordering::Release);
            if wrote.is_zero() && back_off(task, &cache, device, released) == Wakeup::Cancelled {
                return;
            }
        }
    }
}

fn is_stopping(cache: &Weak<Cache>) -> bool {
    cache
        .upgrade()
        .is_none_or(|cache| cache.registry.stopping.load(Ordering::Acquire))
}

fn has_dirty_files(task: &Task<'_>, device: &DeviceState) -> bool {
    let files = device.files.lock(task);
    !(files.dirty.is_empty() && files.io.is_empty() && files.more_io.is_empty())
}

/// True if there is something to write now, not just later when it expires.
fn has_work(task: &Task<'_>, cache: &Cache, device: &DeviceState) -> bool {
    let counts = cache.counts(device);
    let wanted = device.flusher.wanted.load(Ordering::Acquire) > 0;
    !counts.device_dirty.is_zero()
        && (wanted
            || cache
                .writeback
                .domain
                .lock(task)
                .over_background(device.index, &counts))
}

/// After rounds that wrote nothing: waits out a failed device's back-off, pages that wait for a log
/// (`released`: how often logs had let some go before), or busy pages.
fn back_off(task: &mut Task<'_>, cache: &Cache, device: &DeviceState, released: u64) -> Wakeup {
    let retry_at = device.retry_at(task);
    if retry_at > task.now() {
        task.sleep_until(Cause::RetryBackoff, retry_at)
    } else if device.syncs.load(Ordering::Acquire) > 0 {
        let deadline = task.now() + SYNC_RETRY;
        let wait = sync_wait(cache, device);
        task.wait_while(wait, Cause::Idle, Some(deadline), |_| {
            device.syncs.load(Ordering::Acquire) > 0
        })
    } else if device.flusher.held.load(Ordering::Relaxed) {
        // It sees no other work meanwhile.
        let (flusher, deadline) = (&device.flusher, task.now() + HELD_RETRY);
        task.wait_while(&flusher.wait, Cause::LogDurable, Some(deadline), |_| {
            flusher.released.load(Ordering::Acquire) == released
        })
    } else {
        task.sleep(Cause::PageRetry, BUSY_RETRY)
    }
}

/// The queue in which the flusher of a device waits for the end of syncs.
pub(crate) fn sync_wait<'a>(cache: &Cache, device: &'a DeviceState) -> &'a WaitQueue {
    let flusher = &device.flusher;
    match cache.options.spares_flusher {
        true => &flusher.synced,
        false => &flusher.wait,
    }
}

fn rounds(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    device: &Arc<DeviceState>,
    interval: Nanos,
    looked: &mut Instant,
) -> Result<Pages, Error> {
    let mut wrote = Pages::ZERO;
    if device.flusher.kicked.load(Ordering::Acquire) {
        wrote += write_files(task, cache, device, Round::Background)?;
        let wanted = Pages(device.flusher.wanted.swap(0, Ordering::AcqRel));
        wrote += write_files(
            task,
            cache,
            device,
            Round::Count(wanted.saturating_sub(wrote)),
        )?;
    }
    let now = task.now();
    if !interval.is_zero() && now.since(*looked) >= interval {
        *looked = now;
        let expire = cache.options.flush.expire;
        if now.0 > expire.0 {
            let cutoff = Instant(now.0 - expire.0);
            wrote += write_files(task, cache, device, Round::Expired(cutoff))?;
        }
    }
    Ok(wrote)
}

/// Writes up to `pages` of the device's files on behalf of a throttled writer (2.6.36).
pub(crate) fn write_some(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    device: &Arc<DeviceState>,
    pages: Pages,
) -> Result<Pages, Error> {
    write_files(task, cache, device, Round::Count(pages))
}

/// Takes files off the lists and writes a slice of each, until the round's end.
fn write_files(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    device: &Arc<DeviceState>,
    round: Round,
) -> Result<Pages, Error> {
    let (max, cutoff) = match round {
        Round::Background => (Pages::MAX, task.now()),
        Round::Expired(cutoff) => (Pages::MAX, cutoff),
        Round::Count(pages) => (pages, task.now()),
    };
    let mut wrote = Pages::ZERO;
    // Files in a row that gave nothing: a whole round of them ends it.
    let mut barren = 0;
    // If files are one: the part of the slice that the file before has left.
    let mut rest = Pages::ZERO;
    while wrote < max {
        let dirty_limit = may_go_on(task, cache, device, round);
        if dirty_limit.is_none() && rest.is_zero() {
            break;
        }
        let Some((mapping, since, files)) = next_file(task, device, cutoff) else {
            break;
        };
        if mapping.syncing.load(Ordering::Acquire) > 0 {
            requeue(task, cache, device, mapping, since, Outcome::default());
            barren += 1;
            if barren > files {
                break;
            }
            continue;
        }
        task.did(Work::VisitFile, 1);
        let bandwidth = PagesPerSec(device.bandwidth.load(Ordering::Relaxed));
        let left = Pages(max.0 - wrote.0);
        let slice = match dirty_limit.filter(|_| rest.is_zero()) {
            Some(limit) => cache.options.flush.slice_pages(bandwidth, limit, left),
            None => rest,
        };
        let slice = slice
            .at_most(Pages(mapping.slice_most.load(Ordering::Relaxed)))
            .at_most(left);
        let outcome = write_slice(task, cache, &mapping, slice)?;
        wrote += outcome.wrote;
        if device.options.one_file {
            rest = slice.saturating_sub(outcome.wrote);
        }
        requeue(task, cache, device, mapping, since, outcome);
        barren = if outcome.wrote.is_zero() {
            barren + 1
        } else {
            0
        };
        if barren > files {
            break;
        }
    }
    Ok(wrote)
}

/// True if the round goes on, with the dirty limit if so; brings the bandwidth up to date.
fn may_go_on(
    task: &mut Task<'_>,
    cache: &Cache,
    device: &DeviceState,
    round: Round,
) -> Option<Pages> {
    let now = task.now();
    let (over, limits) = {
        let mut domain = cache.writeback.domain.lock(task);
        // Under the lock: what the law was told of is in it (`policy::dirty::Untold`).
        let counts = cache.counts(device);
        domain.update(now, device.index, &counts);
        device.note_pace(&domain);
        (
            domain.over_background(device.index, &counts),
            domain.limits(counts.dirtyable),
        )
    };
    let go_on = (over || round != Round::Background) && device.retry_at(task) <= now;
    go_on.then_some(limits.dirty)
}

/// The next file of this round and how many stand behind it: `io`, refilled from `more_io` and then
/// from `dirty`, oldest first.
fn next_file(
    task: &Task<'_>,
    device: &DeviceState,
    cutoff: Instant,
) -> Option<(Arc<Mapping>, Instant, usize)> {
    let mut files = device.files.lock(task);
    if files.io.is_empty() {
        let files = &mut *files;
        files.io.append(&mut files.more_io);
        while files
            .dirty
            .front()
            .is_some_and(|(_, since)| *since <= cutoff)
        {
            files.io.extend(files.dirty.pop_front());
        }
    }
    let (mapping, since) = files.io.pop_front()?;
    Some((mapping, since, files.io.len()))
}

impl Cache {
    /// Puts a file that has dirty pages on its device's list, unless it is on one.
    pub(crate) fn queue_dirty(&self, context: &impl Context, mapping: &Arc<Mapping>) {
        if mapping.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let now = self.env.now();
        let first = {
            let mut files = mapping.device.files.lock(context);
            if self.registry.stopping.load(Ordering::Acquire) {
                // The flusher is at its end: nobody would take the file off the list.
                return;
            }
            files.dirty.push_back((Arc::clone(mapping), now));
            files.dirty.len() + files.io.len() + files.more_io.len() == 1
        };
        if first {
            // The flusher's periodic look begins with the first dirty file.
            mapping.device.flusher.wait.wake_all(Signal::FileDirtied);
        }
    }
}

/// Puts a file back where it belongs after its slice.
fn requeue(
    task: &mut Task<'_>,
    cache: &Cache,
    device: &DeviceState,
    mapping: Arc<Mapping>,
    since: Instant,
    outcome: Outcome,
) {
    if get(&mapping.dirty) == 0 {
        // A write between the look and the swap saw `queued` and left the file to us. A swap, not
        // a store: what that writer counted is seen below.
        mapping.queued.swap(false, Ordering::AcqRel);
        if get(&mapping.dirty) == 0 || mapping.queued.swap(true, Ordering::AcqRel) {
            return;
        }
    }
    let now = task.now();
    let first = {
        let mut files = device.files.lock(task);
        if cache.registry.stopping.load(Ordering::Acquire) {
            // As in `queue_dirty`: the lists are empty for good.
            return;
        }
        if outcome.skipped.is_zero() && !outcome.wrote.is_zero() {
            files.more_io.push_back((mapping, since));
        } else {
            // Not ready: behind the others, as if dirtied now, so that a round does not spin on it.
            files.dirty.push_back((mapping, now));
        }
        files.dirty.len() + files.io.len() + files.more_io.len() == 1
    };
    if first {
        // Taken off by a writer that writes itself, it may have left the flusher without a file to
        // look at periodically.
        device.flusher.wait.wake_all(Signal::FileDirtied);
    }
}

/// Writes a slice of a file from where the last one stopped, around the end once.
fn write_slice(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    mapping: &Arc<Mapping>,
    slice: Pages,
) -> Result<Outcome, Error> {
    grow_ahead(task, cache, mapping);
    let start = mapping.cursor.load(Ordering::Relaxed);
    let class = IoClass::Writeback;
    let mut select = Selection {
        from: start,
        to: u32::MAX,
        tag: Tag::Dirty,
        max: slice,
        class,
        is_last: false,
    };
    // The line is for syncs.
    let mut turn = Pages::ZERO;
    let mut outcome = write_pages(task, cache, mapping, select, &mut turn)?;
    if outcome.next.is_none() && start > 0 {
        select.from = 0;
        select.to = start - 1;
        select.max = slice.saturating_sub(outcome.wrote);
        let rest = write_pages(task, cache, mapping, select, &mut turn)?;
        outcome.wrote += rest.wrote;
        outcome.skipped += rest.skipped;
        outcome.next = rest.next;
    }
    mapping
        .cursor
        .store(outcome.next.unwrap_or(0), Ordering::Relaxed);
    Ok(outcome)
}

/// Gives the device's object the length that it has space for, before it is written beyond its
/// end, where the device wants that. The next sync sets the true length.
fn grow_ahead(task: &mut Task<'_>, cache: &Cache, mapping: &Arc<Mapping>) {
    let Some(least) = mapping.device.info.grow_ahead else {
        return;
    };
    let device_len = mapping.device_len();
    let worth_it = mapping.allocated() >= device_len.saturating_add(least.0);
    if device_len >= mapping.size() || !worth_it {
        return;
    }
    // With no writer inside, nothing can be written and sent beyond that space meanwhile: what a
    // late call would cut off. If somebody is inside, the next slice tries again.
    // Of a file that was taken out since it was looked up, the object may be another's; of a cache
    // that ends, its length has been settled: then the gate is not shut.
    if let Some(file) = mapping.try_shut(&cache.registry) {
        // The part that has space by now; an error leaves it to the writes to extend the object.
        let allocated = file.allocated();
        if allocated >= file.size() {
            let _ = set_device_len(task, &file, allocated);
        }
    }
}

/// Writes the selected pages of a file; waits for room in flight, never for the writes themselves.
/// `turn`: `wait_for_room`.
pub(crate) fn write_pages(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    mapping: &Arc<Mapping>,
    select: Selection,
    turn: &mut Pages,
) -> Result<Outcome, Error> {
    if !mapping.device.options.at_once.is_zero() {
        return write_runs(task, cache, mapping, select, turn);
    }
    let mut outcome = Outcome::default();
    let mut from = select.from;
    while outcome.wrote < select.max {
        let left = Pages(select.max.0 - outcome.wrote.0);
        let room = room(task, cache, &mapping.device, (select.class, turn))?.at_most(left);
        let mut request = cache.writeback.requests.take(task, mapping.device.index)?;
        let gathered = gather(task, cache, mapping, &select, from, room, &mut request);
        outcome.skipped += gathered.skipped;
        let Some(next) = gathered.next else {
            cache
                .writeback
                .requests
                .put(task, mapping.device.index, request);
            return Ok(outcome);
        };
        let pages = request.pages();
        task.did(Work::WritePage, pages.0);
        outcome.wrote += pages;
        *turn += pages;
        if !request.more.is_zero() {
            request.more = select.max.saturating_sub(outcome.wrote);
        }
        let is_end = next > select.to || next == 0;
        request.in_place = select.is_last
            && (is_end || {
                let rest = (next, select.to);
                let left = mapping.next_tagged(task, &cache.pages.pool, rest, select.tag);
                left.is_none()
            });
        send(task, mapping, request, select.class);
        if is_end {
            return Ok(outcome);
        }
        from = next;
    }
    outcome.next = Some(from);
    Ok(outcome)
}

/// The same where the pages of a run go under writeback together: then they are sent, in requests.
///
/// A run ends at a multiple of its length: where a file system looks for so much space that a file
/// goes on in one piece (Linux 6.12 fs/ext4/mballoc.c, ext4_mb_normalize_request()).
fn write_runs(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    mapping: &Arc<Mapping>,
    select: Selection,
    turn: &mut Pages,
) -> Result<Outcome, Error> {
    let at_once = mapping.device.options.at_once.at_most(select.max);
    let room = usize::try_from(at_once.0).expect("a run is of one file");
    let mut run = IoRequest::for_writes(room);
    let mut outcome = Outcome {
        next: Some(select.from),
        ..Outcome::default()
    };
    while let Some(from) = outcome.next.filter(|_| outcome.wrote < select.max) {
        outcome.next = None;
        let tagged = |task: &Task<'_>, from, to| {
            mapping.next_tagged(task, &cache.pages.pool, (from, to), select.tag)
        };
        let Some((first, _)) = tagged(task, from, select.to) else {
            break;
        };
        let most = at_once.at_most(Pages(select.max.0 - outcome.wrote.0));
        let length = u32::try_from(most.0.next_power_of_two()).unwrap_or(1 << 31);
        let part = Selection {
            to: select.to.min(first | (length - 1)),
            ..select
        };
        run.frames.clear();
        let gathered = gather(task, cache, mapping, &part, first, most, &mut run);
        outcome.skipped += gathered.skipped;
        outcome.wrote += run.pages();
        let next = gathered.next.or(part.to.checked_add(1));
        outcome.next = next.filter(|next| (1..=select.to).contains(next));
        let goes_on = outcome.next.and_then(|next| tagged(task, next, next));
        run.more = Pages::ZERO;
        if goes_on.is_some() {
            run.more = select.max.saturating_sub(outcome.wrote);
        }
        send_in_parts(task, cache, mapping, &run, (select.class, turn))?;
    }
    Ok(outcome)
}

/// Sends pages that are under writeback in as many requests as it takes, each as soon as there is
/// room for it.
///
/// # Errors
/// `Cancelled`: those that are not sent are dirty again.
fn send_in_parts(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    mapping: &Arc<Mapping>,
    run: &IoRequest,
    (class, turn): (IoClass, &mut Pages),
) -> Result<(), Error> {
    let device = &mapping.device;
    let mut sent = 0;
    while sent < run.frames.len() {
        let offset = run.offset + Bytes((sent as u64) << PAGE_SHIFT);
        let room = room(task, cache, device, (class, turn));
        let part = room.and_then(|room| {
            let request = cache.writeback.requests.take(task, device.index)?;
            Ok((room, request))
        });
        let (room, mut request) = match part {
            Ok(part) => part,
            Err(error) => {
                mapping.take_back(cache, offset, &run.frames[sent..]);
                return Err(error);
            }
        };
        let room = usize::try_from(room.0).expect("a request is at most 256 pages");
        let end = run.frames.len().min(sent + room);
        request.offset = offset;
        request.frames.extend_from_slice(&run.frames[sent..end]);
        request.begun = task.now();
        request.more = run.more + Pages((run.frames.len() - end) as u64);
        task.did(Work::WritePage, request.pages().0);
        *turn += request.pages();
        send(task, mapping, request, class);
        sent = end;
    }
    Ok(())
}

/// Waits until one more request may go out; answers how many pages it may have. `turn`:
/// `wait_for_room`.
fn room(
    task: &mut Task<'_>,
    cache: &Cache,
    device: &DeviceState,
    (class, turn): (IoClass, &mut Pages),
) -> Result<Pages, Error> {
    let flush = &cache.options.flush;
    match stand_in_line(task, cache, device, true) {
        Some(stood) => stood.map(|()| request_pages(flush, device)),
        None => wait_for_room(task, flush, device, class, turn),
    }
}

/// Stands in the line of a kernel that keeps one for the device; `None`: there is none.
fn stand_in_line(
    task: &mut Task<'_>,
    cache: &Cache,
    device: &DeviceState,
    waits: bool,
) -> Option<Result<(), Error>> {
    let line = DeviceLine {
        device: device.index,
        queue: device.info.queue,
        requests: &|| device.writes_inflight.requests(),
        wait: &device.writes_inflight.wait,
        waits,
    };
    cache.kernel()?.stand_in_line(task, &line)
}

/// A reclaimer writes one page itself, if there is room for a request at once. False: there is
/// not, or the page is not available. `waits`: in the line of a kernel that keeps one.
pub(crate) fn try_write_page(
    task: &mut Task<'_>,
    cache: &Cache,
    mapping: &Arc<Mapping>,
    page: u32,
    waits: bool,
) -> bool {
    if mapping.device.retry_at(task) > task.now() {
        return false;
    }
    if stand_in_line(task, cache, &mapping.device, waits).is_some_and(|stood| stood.is_err()) {
        return false;
    }
    let requests = &cache.writeback.requests;
    let request = requests.try_take(task, mapping.device.index);
    request.is_some_and(|request| write_page(task, cache, mapping, page, request))
}

/// The same by a task that waits for room. False: the page is not available, the device fails, or
/// the wait was cancelled.
pub(crate) fn write_page_in_turn(
    task: &mut Task<'_>,
    cache: &Cache,
    mapping: &Arc<Mapping>,
    page: u32,
) -> bool {
    if mapping.device.retry_at(task) > task.now() {
        return false;
    }
    if stand_in_line(task, cache, &mapping.device, true).is_some_and(|stood| stood.is_err()) {
        return false;
    }
    let request = cache.writeback.requests.take(task, mapping.device.index);
    request.is_ok_and(|request| write_page(task, cache, mapping, page, request))
}

fn write_page(
    task: &mut Task<'_>,
    cache: &Cache,
    mapping: &Arc<Mapping>,
    page: u32,
    mut request: Box<IoRequest>,
) -> bool {
    let select = Selection {
        from: page,
        to: page,
        tag: Tag::Dirty,
        max: Pages(1),
        class: IoClass::Writeback,
        is_last: false,
    };
    let gathered = gather(task, cache, mapping, &select, page, Pages(1), &mut request);
    if gathered.next.is_none() {
        cache
            .writeback
            .requests
            .put(task, mapping.device.index, request);
        return false;
    }
    task.did(Work::WritePage, 1);
    send(task, mapping, request, select.class);
    true
}

struct Gathered {
    /// Pages that somebody was busy with, or that wait for a log.
    skipped: Pages,
    /// The page after the request; `None`: no page was found.
    next: Option<u32>,
}

/// Fills a request with the first run of selected pages and puts them under writeback.
fn gather(
    task: &Task<'_>,
    cache: &Cache,
    mapping: &Mapping,
    select: &Selection,
    mut from: u32,
    room: Pages,
    request: &mut IoRequest,
) -> Gathered {
    let mut skipped = Pages::ZERO;
    let mut next = None;
    let log = mapping.ahead().filter(|log| log.held() > 0);
    let mut wanted = 0;
    request.begun = task.now();
    request.more = Pages::ZERO;
    let map;
    {
        let mut token = mapping.token.lock(task);
        map = mapping.page_map(task);
        let mut index = mapping.index.writer(&cache.pages.pool, &mut token);
        while let Some((page, frame)) = index.next_tagged(from, select.to, select.tag) {
            if let Some(expected) = next
                && page != expected
            {
                break;
            }
            // Under the index lock: what is shown while this is judged is seen by the next one.
            let lsn = log.and_then(|log| log.held_by(task, (mapping.serial, page)));
            if let Some((log, lsn)) = log.zip(lsn) {
                wanted = wanted.max(lsn);
                log.pass_over();
            }
            if lsn.is_none() && cache.pages.table.try_begin_writeback(frame) {
                if next.is_none() {
                    request.offset = Bytes(u64::from(page) << PAGE_SHIFT);
                }
                if let Some(map) = &map {
                    // A store from now on makes it dirty again.
                    map.protect(page);
                }
                request.frames.push(frame);
                index.clear_tag(page, Tag::Dirty);
                index.clear_tag(page, Tag::ToWrite);
                index.set_tag(page, Tag::Writeback);
                next = Some(page.wrapping_add(1));
            } else if next.is_some() {
                break;
            } else {
                skipped += Pages(1);
            }
            from = page.wrapping_add(1);
            if from == 0 || request.pages() >= room {
                let goes_on = from != 0
                    && from <= select.to
                    && index.next_tagged(from, from, select.tag).is_some();
                request.more = Pages(u64::from(goes_on));
                break;
            }
        }
    }
    if let Some(log) = log.filter(|_| wanted > 0) {
        mapping.device.flusher.held.store(true, Ordering::Relaxed);
        log.ask(wanted);
    }
    let pages = request.frames.len() as u64;
    if pages > 0 {
        add(&cache.writeback.totals.writeback, pages);
        add(&mapping.device.writeback, pages);
        let count = u32::try_from(pages).expect("a request is at most 256 pages");
        mapping.writeback.fetch_add(count, Ordering::Relaxed);
        mapping.uncount_dirty(cache, pages);
        cache.zones.note_clean(request.frames.iter().copied());
        cache.zones.note_sent(&request.frames);
        if let Some(map) = map {
            // After the bits, before the write: a store until here is in what is written.
            let first = u32::try_from(request.offset.0 >> PAGE_SHIFT).expect("pages are 32 bits");
            map.protect_live(cache.content(), first..first.saturating_add(count));
        }
    }
    Gathered { skipped, next }
}

fn send(task: &mut Task<'_>, mapping: &Arc<Mapping>, mut request: Box<IoRequest>, class: IoClass) {
    let device = &mapping.device;
    let pages = request.pages().0;
    let end = request.offset.0 + (pages << PAGE_SHIFT);
    request.cut = mapping.raise_device_len(end);
    // A write of a file that is being synced is the sync's work, no matter which task does it.
    let for_sync = class == IoClass::Sync || mapping.syncing.load(Ordering::Acquire) > 0;
    if device.writes_inflight.enter(Pages(pages), for_sync) {
        device.note_moved(task.now());
    }
    request.device = device.id;
    request.object = mapping.object;
    request.op = IoOp::Write;
    request.class = class;
    request.on_done(Arc::clone(mapping) as Arc<dyn IoDone>);
    io::submit(task, request);
}

#[cfg(test)]
mod tests;
