//! Writing into the cache, in batches that end where a balance is due.
//!
//! A batch is at most 256 pages and at most what the writer may dirty before its next balance. Runs
//! of missing pages enter the index together, busy; all pages of the batch are filled one by one
//! under their busy bits and become dirty and visible together, under one index lock. A page that is missing or wholly overwritten needs no read; a partly written page that is
//! in the file but not in the cache is read first. A page that is pinned gets a fresh frame (pins
//! are snapshots); a page under writeback is overwritten in place, unless the device needs stable
//! content: then the writer waits for that write.
//!
//! Before anything that may wait, the batch so far is made visible and its busy bits are given
//! back (lib.rs, rule 4).

use core::ops::Range;
use core::sync::atomic::Ordering;
use std::sync::Arc;

use env::{Cause, Env, Event, IoError, IoOp, Signal, Task, Work};
use frames::{Busy, Content, Flags, FrameId, Refusal, Slot, Tag};
use policy::dirty::WriterIndex;
use policy::reclaim::scan::Kind;
use policy::units::{Bytes, Instant, PAGE_SHIFT, PAGE_SIZE, Pages};

use crate::cache::{Cache, FILE_MAX, add};
use crate::error::is_unsupported;
use crate::file::replace::replace_pinned;
use crate::file::stash::Stash;
use crate::file::sync::{set_device_len, settle_cut, wait_frame};
use crate::lists::INACTIVE_FILE;
use crate::reclaim::index_nodes::free_index_nodes;
use crate::registry::device::DeviceState;
use crate::registry::mapping::Mapping;
use crate::writeback::balance::{Account, account, balance};
use crate::{Error, file::read, writeback::io};

pub(crate) mod received;

/// Most pages made visible at once.
pub(crate) const BATCH: u64 = 256;
const BATCH_FRAMES: usize = 256;
const PAGE_BYTES: usize = 4096;
const _: () = assert!(PAGE_BYTES as u64 == PAGE_SIZE);
/// Space is asked for ahead in steps of an eighth of the file, between these.
const AHEAD_MIN: u64 = 1 << 20;
const AHEAD_MAX: u64 = 256 << 20;

/// Whoever writes: the unit that pacing holds back. One per client, thread or task; not shared.
#[derive(Debug)]
pub struct Writer {
    pub(crate) id: u32,
    pub(crate) index: WriterIndex,
    /// Errors it was told of or that came before it, by the place of a device, and the serial number of that device:
    /// another one may have the place by now.
    told: Vec<(u64, u64)>,
    /// Pages that it dirtied without being held for them yet.
    pub(crate) account: Account,
    /// A write that the device was told of before it is taken in: serial number of the file, and bytes.
    prepared: Option<(u64, Range<u64>)>,
    /// Frames taken and not used yet. Between calls only what `ready_write` has left for the next one.
    pub(crate) stash: Stash,
    /// Pages put into the index ahead, busy and not filled yet, the next one last; empty between calls.
    ahead: Vec<(u32, Busy)>,
    /// The batch being filled; empty between calls.
    batch: Vec<Filled>,
}

/// A page of the batch: filled, still busy, not dirty yet.
#[derive(Debug)]
struct Filled {
    page: u32,
    busy: Busy,
    /// Its frame is fresh: not on an LRU list yet.
    fresh: bool,
    /// The page is dirty already, in this frame or in the one that it replaced.
    was_dirty: bool,
}

impl Writer {
    /// `told`: serial numbers and errors so far, by the places of devices.
    pub(crate) fn new(id: u32, index: WriterIndex, told: Vec<(u64, u64)>) -> Self {
        // Grown as it writes: a server has a writer for each client, and most write little at a time.
        Self {
            id,
            index,
            told,
            account: Account::default(),
            prepared: None,
            stash: Stash::default(),
            ahead: Vec::new(),
            batch: Vec::new(),
        }
    }

    /// Its number, as events name it.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Errors of a device that it was told of. A device younger than the writer had none before.
    pub(crate) fn told<E: Env>(&mut self, device: &DeviceState<E>) -> &mut u64 {
        let at = usize::from(device.index.0);
        if at >= self.told.len() {
            self.told.resize(at + 1, (0, 0));
        }
        let (serial, told) = &mut self.told[at];
        if *serial != device.serial {
            (*serial, *told) = (device.serial, 0);
        }
        told
    }

    /// Whether the device need not be told of a write any more.
    pub(crate) fn is_prepared<E: Env>(&self, mapping: &Mapping<E>, from: u64, to: u64) -> bool {
        !mapping.device.info.prepares_writes
            || self.prepared.as_ref().is_some_and(|(file, bytes)| {
                *file == mapping.serial && bytes.start <= from && to <= bytes.end
            })
    }

    /// The device was told of a write.
    pub(crate) fn note_prepared<E: Env>(&mut self, mapping: &Mapping<E>, from: u64, to: u64) {
        self.prepared = Some((mapping.serial, from..to));
    }

    pub(crate) fn into_index(self) -> WriterIndex {
        self.index
    }
}

/// Part of one page that a write covers.
#[derive(Clone, Copy)]
struct Part {
    page: u32,
    /// First byte in the page, and how many.
    at: usize,
    len: usize,
    /// Where they stand in the caller's data.
    from: usize,
}

impl Part {
    fn is_whole(self) -> bool {
        self.len as u64 == PAGE_SIZE
    }
}

/// Writes all of `data` at `offset`, pausing where the writer is over its share.
pub(crate) fn write<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Arc<Cache<E>>,
    mapping: &Arc<Mapping<E>>,
    writer: &mut Writer,
    offset: Bytes,
    data: &<E::Content as Content>::Data,
) -> Result<Bytes, Error> {
    let len = E::Content::data_len(data) as u64;
    let end = offset.0.checked_add(len).filter(|end| *end <= FILE_MAX);
    let Some(end) = end else {
        return Err(Error::beyond_files(Bytes(offset.0.saturating_add(len))));
    };
    let device = &mapping.device;
    device.admit(task, writer.told(device))?;
    let began = task.now();
    task.did(Work::Call, 1);
    io::prepare(task, mapping, offset, Bytes(len))?;
    let mut at = offset.0;
    while at < end {
        let budget = {
            let cpu = task.cpu();
            cache
                .writeback
                .domain
                .lock(task)
                .budget(&writer.index, mapping.device.index, cpu)
                .0
        };
        let pages = budget.clamp(1, BATCH);
        let stop = end.min(((at >> PAGE_SHIFT) + pages) << PAGE_SHIFT);
        reserve_space(task, cache, mapping, at, stop)?;
        settle_cut(task, cache, mapping)?;
        let from = usize::try_from(at - offset.0).expect("an offset into the caller's data");
        mapping.enter(task, cache)?;
        if mapping.allocated.load(Ordering::Acquire) < stop
            || mapping.cut_owed.load(Ordering::Acquire)
        {
            // The length was cut meanwhile, and the space with it.
            mapping.gate.leave();
            continue;
        }
        let (took, result) = write_batch(task, cache, mapping, writer, at, stop, data, from);
        at = took.until;
        account(task, cache, device, writer, took.dirtied);
        // Also after an error: it is paused for what was taken in before it.
        let balanced = balance(task, cache, writer);
        result.and(balanced)?;
    }
    wrote(task, writer, began, Bytes(len));
    Ok(Bytes(len))
}

/// Reports a call that began at `began` and took in `bytes`.
pub(crate) fn wrote<E: Env>(task: &Task<'_, E>, writer: &Writer, began: Instant, bytes: Bytes) {
    let took = task.now().since(began);
    task.emit(&Event::Wrote {
        writer: writer.id,
        bytes,
        took,
    });
}

/// Makes sure that the device has space for a write of `at..end` before a byte of it is acknowledged.
///
/// Farther behind the end of what has space than is taken ahead, a hole is left, and nothing is taken ahead. A device that
/// cannot take space ahead at all finds out when it is written to.
pub(crate) fn reserve_space<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Cache<E>,
    mapping: &Mapping<E>,
    at: u64,
    end: u64,
) -> Result<(), Error> {
    if end <= mapping.allocated.load(Ordering::Acquire) {
        return Ok(());
    }
    io::may_call(task)?;
    // Nobody cuts the object meanwhile: what it has been given would be noted and gone.
    mapping.enter(task, cache)?;
    let allocated = mapping.allocated.load(Ordering::Acquire);
    if end <= allocated {
        // Another writer was faster.
        mapping.gate.leave();
        return Ok(());
    }
    let is_far = at > allocated.saturating_add(AHEAD_MAX);
    let (from, ahead) = if is_far {
        (at, 0)
    } else {
        (allocated, (end / 8).clamp(AHEAD_MIN, AHEAD_MAX))
    };
    let from = from - from % PAGE_SIZE;
    let wanted = (end + ahead).next_multiple_of(AHEAD_MIN);
    let exact = end.next_multiple_of(PAGE_SIZE);
    let mut result = Ok(());
    // What is asked for ahead may be too much where the file itself still fits.
    for until in [wanted, exact] {
        result = ask_space(task, mapping, from, until);
        if result.is_err_and(is_unsupported) {
            mapping.allocated.fetch_max(until, Ordering::AcqRel);
            result = Ok(());
        }
        if result.is_ok() {
            break;
        }
    }
    mapping.gate.leave();
    result.map_err(Error::no_space_taken)
}

/// Makes sure that the device has space up to `len`. The caller has shut the gate.
pub(crate) fn allocate_gated<E: Env>(
    task: &mut Task<'_, E>,
    mapping: &Mapping<E>,
    len: Bytes,
) -> Result<(), Error> {
    let allocated = ask_space(task, mapping, 0, len.0);
    if let Err(IoError::NoSpace | IoError::OverQuota) = allocated {
        // File systems keep what they took before they were full. To lengthen the object gives nothing back, to set the
        // same length again does.
        let size = mapping.size();
        let _ =
            set_device_len(task, mapping, size).and_then(|()| set_device_len(task, mapping, size));
    }
    allocated.map_err(Error::no_space_taken)
}

/// Has the device take space for `from..until`, and notes it.
fn ask_space<E: Env>(
    task: &mut Task<'_, E>,
    mapping: &Mapping<E>,
    from: u64,
    until: u64,
) -> Result<(), IoError> {
    let op = IoOp::Allocate {
        len: Bytes(until - from),
    };
    io::call(
        task,
        mapping.device.id,
        mapping.object,
        op,
        Bytes(from),
        Cause::DeviceMetadata,
    )?;
    mapping.allocated.fetch_max(until, Ordering::AcqRel);
    Ok(())
}

/// What a batch has come to.
#[derive(Clone, Copy)]
pub(crate) struct Took {
    /// Where the data that was taken in ends in the file.
    pub(crate) until: u64,
    /// Pages that became dirty.
    pub(crate) dirtied: Pages,
}

/// Fills and shows the pages of `at..stop`. The caller has entered the gate; it is left here. Answers what was taken in, also
/// before an error.
#[expect(
    clippy::too_many_arguments,
    reason = "the parts of one write; a struct would name them no better"
)]
pub(crate) fn write_batch<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Arc<Cache<E>>,
    mapping: &Arc<Mapping<E>>,
    writer: &mut Writer,
    at: u64,
    stop: u64,
    data: &<E::Content as Content>::Data,
    from: usize,
) -> (Took, Result<(), Error>) {
    let mut batch = Batch {
        cache,
        mapping,
        writer,
        filled_to: at,
        dirtied: 0,
        copied: 0,
        inserted: 0,
    };
    let result = batch.fill(task, at, stop, data, from);
    // Also after an error: what was taken in before it is part of the file.
    batch.show(task);
    let (dirtied, copied, inserted) = (batch.dirtied, batch.copied, batch.inserted);
    let took = Took {
        until: batch.filled_to,
        dirtied: Pages(dirtied),
    };
    writer.stash.give_back(task, cache);
    mapping.gate.leave();
    task.did(Work::Copy, copied);
    task.did(Work::Insert, inserted);
    task.did(Work::Dirty, dirtied);
    (took, result)
}

struct Batch<'a, E: Env> {
    cache: &'a Arc<Cache<E>>,
    mapping: &'a Arc<Mapping<E>>,
    writer: &'a mut Writer,
    /// Where the data taken in so far ends in the file.
    filled_to: u64,
    dirtied: u64,
    copied: u64,
    inserted: u64,
}

impl<E: Env> Batch<'_, E> {
    fn fill(
        &mut self,
        task: &mut Task<'_, E>,
        at: u64,
        stop: u64,
        data: &<E::Content as Content>::Data,
        from: usize,
    ) -> Result<(), Error> {
        let mut offset = at;
        while offset < stop {
            let page_end = ((offset >> PAGE_SHIFT) + 1) << PAGE_SHIFT;
            let until = page_end.min(stop);
            let part = Part {
                page: u32::try_from(offset >> PAGE_SHIFT).expect("below FILE_MAX"),
                at: usize::try_from(offset % PAGE_SIZE).expect("below a page"),
                len: usize::try_from(until - offset).expect("at most a page"),
                from: from + usize::try_from(offset - at).expect("within the caller's data"),
            };
            self.fill_page(task, part, stop, data)?;
            self.copied += 1;
            self.filled_to = until;
            offset = until;
        }
        Ok(())
    }

    /// Fills one page, whatever its state. Loops only when another task changed that state.
    fn fill_page(
        &mut self,
        task: &mut Task<'_, E>,
        part: Part,
        stop: u64,
        data: &<E::Content as Content>::Data,
    ) -> Result<(), Error> {
        let cache = self.cache;
        loop {
            if let Some((page, busy)) = self.writer.ahead.pop() {
                debug_assert_eq!(page, part.page, "pages ahead are filled in order");
                if !part.is_whole() {
                    zero_around(cache, &busy, part);
                }
                self.copy_in(busy, part, data, true, false);
                return Ok(());
            }
            let Slot::Frame(frame) = self.mapping.index.get(&cache.pages.pool, part.page) else {
                if self.must_read(part.page, part.at, part.len) {
                    self.show(task);
                    read::fill_one(task, cache, self.mapping, part.page)?;
                } else {
                    self.insert_ahead(task, part, stop)?;
                }
                continue;
            };
            let owner = self.mapping.owner(part.page);
            match cache.pages.table.try_busy(frame, owner) {
                Ok(busy) => {
                    if self.fill_cached(task, busy, part, data)? {
                        return Ok(());
                    }
                }
                Err(Refusal::Pinned) => {
                    if self.fill_pinned(task, frame, part, data)? {
                        return Ok(());
                    }
                }
                Err(Refusal::Busy) => {
                    self.show(task);
                    cache.wait_busy(task, Cause::PageBusy, frame, owner)?;
                }
                // Reclaimed or replaced meanwhile: look it up again. The slot may lag behind.
                Err(_) => task.did(Work::Lookup, 1),
            }
        }
    }

    /// Whether a part of a page that is not cached needs the rest of the page from the device.
    fn must_read(&self, page: u32, at: usize, len: usize) -> bool {
        must_read(self.mapping, page, at, len)
    }

    /// Puts fresh busy frames into the index for `part.page` and the missing pages that follow, as
    /// far as this write goes and none of them needs a read.
    fn insert_ahead(&mut self, task: &mut Task<'_, E>, part: Part, stop: u64) -> Result<(), Error> {
        let last_whole = u32::try_from(stop >> PAGE_SHIFT).expect("below FILE_MAX");
        let tail = usize::try_from(stop % PAGE_SIZE).expect("below a page");
        let mut end = last_whole.max(part.page + 1);
        if tail > 0 && last_whole > part.page && !self.must_read(last_whole, 0, tail) {
            end = last_whole + 1;
        }
        let want = end - part.page;
        if self.writer.stash.is_empty() && !self.refill(task, want)? {
            return Ok(());
        }
        let (cache, mapping) = (self.cache, self.mapping);
        let mut refused = None;
        {
            let mut token = mapping.token.lock(task);
            let mut index = mapping.index.writer(&cache.pages.pool, &mut token);
            for page in part.page..end {
                if matches!(index.get(page), Slot::Frame(_)) {
                    break;
                }
                // Looked at again under the lock: it may have come, grown the file and gone.
                let (at, len) = match page {
                    page if page == part.page => (part.at, part.len),
                    page if page == last_whole => (0, tail),
                    _ => (0, PAGE_BYTES),
                };
                if self.must_read(page, at, len) {
                    break;
                }
                let Some(frame) = self.writer.stash.frames().pop() else {
                    break;
                };
                let busy = cache.pages.table.claim(frame);
                cache.pages.table.adopt(&busy, mapping.owner(page));
                if index.insert(page, frame).is_err() {
                    let frame = cache.pages.table.disown(busy);
                    self.writer.stash.frames().push(frame);
                    refused = Some(frame);
                    break;
                }
                self.writer.ahead.push((page, busy));
            }
        }
        cache.wake_busy(refused.as_slice(), Signal::PageUnlocked);
        let count = self.writer.ahead.len() as u64;
        self.writer.ahead.reverse();
        self.inserted += count;
        add(&cache.writeback.totals.cached, count);
        if refused.is_some() && count == 0 {
            self.show(task);
            free_index_nodes(task, cache)?;
        }
        Ok(())
    }

    /// Fills the stash; false when it had to show the batch and wait, so look again.
    fn refill(&mut self, task: &mut Task<'_, E>, want: u32) -> Result<bool, Error> {
        let frames = self.writer.stash.frames();
        let at_once = self.cache.try_alloc(task, want, frames)? > 0;
        if !at_once {
            self.show(task);
            self.cache
                .alloc(task, Kind::File, want, self.writer.stash.frames())?;
        }
        // Popped from the end: neighbours in the file are to be neighbours in memory.
        self.writer.stash.frames().reverse();
        Ok(at_once)
    }

    /// Overwrites a cached page in place; false: its state has changed, look again.
    fn fill_cached(
        &mut self,
        task: &mut Task<'_, E>,
        busy: Busy,
        part: Part,
        data: &<E::Content as Content>::Data,
    ) -> Result<bool, Error> {
        let cache = self.cache;
        let frame = busy.frame();
        let flags = cache.pages.table.flags(frame);
        if self.mapping.device.info.stable_writes && flags.has(Flags::WRITEBACK) {
            cache.release(busy, Flags::NONE, Flags::NONE);
            self.show(task);
            wait_frame(task, cache, self.mapping, part.page, frame)?;
            return Ok(false);
        }
        if !flags.has(Flags::UPTODATE) && !part.is_whole() {
            // Its read failed: try that again before parts of it are overwritten.
            read::forget(task, cache, self.mapping, part.page, busy);
            return Ok(false);
        }
        // The busy bit keeps the flusher away, so DIRTY stays as it is until `show`.
        self.copy_in(busy, part, data, false, flags.has(Flags::DIRTY));
        Ok(true)
    }

    /// Puts a fresh frame in the place of a pinned one; false: look again.
    fn fill_pinned(
        &mut self,
        task: &mut Task<'_, E>,
        old: FrameId,
        part: Part,
        data: &<E::Content as Content>::Data,
    ) -> Result<bool, Error> {
        let (cache, mapping) = (self.cache, self.mapping);
        if cache.pages.table.flags(old).has(Flags::WRITEBACK) {
            self.show(task);
            wait_frame(task, cache, mapping, part.page, old)?;
            return Ok(false);
        }
        if self.writer.stash.is_empty() && !self.refill(task, 1)? {
            return Ok(false);
        }
        let fresh = self
            .writer
            .stash
            .frames()
            .pop()
            .expect("the stash was just filled");
        let (busy, was_dirty) = match replace_pinned(task, cache, mapping, part.page, old, fresh) {
            Ok(replaced) => replaced,
            Err(fresh) => {
                self.writer.stash.frames().push(fresh);
                return Ok(false);
            }
        };
        self.copy_in(busy, part, data, true, was_dirty);
        Ok(true)
    }

    fn copy_in(
        &mut self,
        busy: Busy,
        part: Part,
        data: &<E::Content as Content>::Data,
        fresh: bool,
        was_dirty: bool,
    ) {
        self.cache
            .content()
            .copy_in(&busy, part.at, data, part.from, part.len);
        self.writer.batch.push(Filled {
            page: part.page,
            busy,
            fresh,
            was_dirty,
        });
    }

    /// Makes the batch visible: on the lists, dirty, no longer busy.
    fn show(&mut self, task: &mut Task<'_, E>) {
        debug_assert!(
            self.writer.ahead.is_empty(),
            "pages ahead are filled before any wait"
        );
        if self.writer.batch.is_empty() {
            return;
        }
        let (cache, mapping) = (self.cache, self.mapping);
        let mut shown = [FrameId(0); BATCH_FRAMES];
        let count = self.writer.batch.len();
        if self.writer.batch.iter().any(|filled| filled.fresh) {
            let mut lru = cache.nodes.lru(task);
            for filled in self.writer.batch.iter().filter(|filled| filled.fresh) {
                lru.push_head(INACTIVE_FILE, filled.busy.frame());
            }
        }
        // Before the pages can be written and reclaimed: whoever then finds one missing must know
        // that it is part of the file.
        mapping.extend_to(self.filled_to);
        let newly = self
            .writer
            .batch
            .iter()
            .filter(|filled| !filled.was_dirty)
            .count();
        // Counted before the tags say so: the flusher may count them off at once.
        mapping.count_dirty(cache, newly as u64);
        let mut dirty_already = 0;
        {
            let mut token = mapping.token.lock(task);
            let mut index = mapping.index.writer(&cache.pages.pool, &mut token);
            for (at, filled) in self.writer.batch.drain(..).enumerate() {
                shown[at] = filled.busy.frame();
                index.set_tag(filled.page, Tag::Dirty);
                let set = Flags::UPTODATE | Flags::DIRTY;
                let before =
                    cache
                        .pages
                        .table
                        .release(filled.busy, set, Flags::FAILED | Flags::RECLAIM);
                // Written to again, it need not be freed when its write ends. An older write of it may have
                // failed since it was filled: counted there.
                dirty_already += u64::from(!filled.was_dirty && before.has(Flags::DIRTY));
            }
        }
        mapping.uncount_dirty(cache, dirty_already);
        let dirtied = newly as u64 - dirty_already;
        self.dirtied += dirtied;
        add(&cache.writeback.totals.dirtied, dirtied);
        add(&mapping.device.dirtied, dirtied);
        cache.queue_dirty(task, mapping);
        cache.wake_busy(&shown[..count], Signal::PageUnlocked);
    }
}

/// Whether a part of a page that is not cached needs the rest of the page from the device.
pub(crate) fn must_read<E: Env>(mapping: &Mapping<E>, page: u32, at: usize, len: usize) -> bool {
    if len as u64 == PAGE_SIZE {
        return false;
    }
    let start = u64::from(page) << PAGE_SHIFT;
    let size = mapping.size();
    // Nothing of the file outside the written part lies in this page.
    let nothing_before = at == 0 || size <= start;
    let nothing_after = size <= start + (at + len) as u64;
    !(nothing_before && nothing_after)
}

/// A fresh frame for a part of a page: the rest of it is zero.
fn zero_around<E: Env>(cache: &Cache<E>, busy: &Busy, part: Part) {
    let end = part.at + part.len;
    cache.content().zero(busy, 0, part.at);
    cache.content().zero(busy, end, PAGE_BYTES - end);
}
