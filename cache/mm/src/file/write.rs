//! Writing into the cache, in batches that end where a balance is due.
//!
//! A batch is at most 256 pages and at most what the writer may dirty before its next balance. Runs
//! of missing pages enter the index together, busy; all pages of the batch are filled one by one
//! under their busy bits and become dirty and visible together, under one index lock. A page that
//! is missing or wholly overwritten needs no read; a partly written page that is in the file but
//! not in the cache is read first. A page that is pinned gets a fresh frame (pins are snapshots); a
//! page under writeback is overwritten in place, unless the device needs stable content: then the
//! writer waits for that write.
//!
//! Before anything that may wait, the batch so far is made visible and its busy bits are given back
//! (lib.rs, rule 4).
//!
//! There is one loop for all writers. Calls differ in three things:
//!
//! ```text
//!   may the task block?           no: what it would have to wait for ends the call, with what it took in shown; a task that
//!                                 may block calls `prepare` then, and the writer tries again with the frames that it got
//!   where is the writer paused?   `Pacing`: in the call, or by its owner
//!   where do the bytes come from? the caller's memory; or straight from elsewhere (`received`)
//! ```
//!
//! A task that may not block reclaims nothing, asks the system for nothing and takes no place in
//! the queue for memory. A read that it has started goes on.

use core::ops::Range;
use core::sync::atomic::Ordering;
use std::sync::Arc;

use env::{Cause, Event, Signal, Task, Work};
use frames::{Busy, Data, Flags, FrameId, Refusal, Slot, Tag};
use policy::place::by_use::Purpose;
use policy::units::{Bytes, Instant, PAGE_SHIFT, PAGE_SIZE, Pages};

use crate::alloc::Wanted;
use crate::cache::{Cache, FILE_MAX};
use crate::file::File;
use crate::file::read::{self, page_of};
use crate::file::replace::{awaits_pins, replace_pinned};
use crate::file::space::reserve_space;
use crate::file::sync::{settle_cut, wait_frame};
use crate::reclaim::index_nodes::free_index_nodes;
use crate::registry::ahead::WriteAhead;
use crate::registry::gate::GateGuard;
use crate::registry::mapping::Mapping;
use crate::registry::page_map::{Access, PageMap};
use crate::writeback::balance::{account, balance};
use crate::{Error, Writer, writeback::io};

pub(crate) mod received;
#[cfg(test)]
mod tests;

/// Most pages made visible at once.
const BATCH: u64 = 256;
const BATCH_FRAMES: usize = 256;
const PAGE_BYTES: usize = 4096;
const _: () = assert!(PAGE_BYTES as u64 == PAGE_SIZE);
/// Most frames that a writer keeps between two calls.
const RESERVE_MAX: u32 = 32;
/// Beyond this part of the frames, writers keep one frame each.
const RESERVED_PART: u32 = 16;
/// Index nodes below which some are freed for a writer: a path through the index, and some more.
const NODES_MIN: u32 = 16;
/// The longest path: 32 bits of a page number, six at a time.
const NODES_PATH: u32 = 6;

/// A page of the batch: filled, still busy, not dirty yet.
#[derive(Debug)]
pub(super) struct Filled {
    pub(super) page: u32,
    pub(super) busy: Busy,
    /// Its frame is fresh: not on an LRU list yet.
    pub(super) fresh: bool,
    /// The page is dirty already, in this frame or in the frame that it replaced.
    pub(super) was_dirty: bool,
}

/// Part of one page that a write covers.
#[derive(Clone, Copy)]
struct Part {
    page: u32,
    /// First byte in the page, and how many.
    at: usize,
    len: usize,
    /// Their beginning in the caller's data.
    from: usize,
}

impl Part {
    /// The part of `at..end` that lies in the first page, from the caller's byte `from` on.
    fn first(at: u64, end: u64, from: usize) -> Self {
        let until = end.min(((at >> PAGE_SHIFT) + 1) << PAGE_SHIFT);
        Self {
            page: page_of(at),
            at: usize::try_from(at % PAGE_SIZE).expect("below a page"),
            len: usize::try_from(until - at).expect("at most a page"),
            from,
        }
    }

    fn is_whole(self) -> bool {
        self.len as u64 == PAGE_SIZE
    }

    /// True if its page, which is not cached, needs the rest of it from the device.
    fn needs_rest(self, mapping: &Mapping) -> bool {
        must_read(mapping, self.page, self.at, self.len)
    }
}

/// The progress of a call that moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes moved, from the first on.
    pub bytes: Bytes,
    /// The next one would have to be waited for, and the task may not. False: all were moved, or
    /// all that there are.
    pub would_block: bool,
}

/// The place at which a writer over its share is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pacing {
    /// In its call, where a balance is due.
    Here,
    /// By its owner, which asks `Cache::pace`.
    Elsewhere,
}

/// One call of a writer: what it writes to, and which bytes of it.
pub(crate) struct Call<'a> {
    cache: &'a Arc<Cache>,
    mapping: &'a Arc<Mapping>,
    writer: &'a mut Writer,
    bytes: Range<u64>,
    /// The pages must not be written before their log is durable up to this; zero: nothing.
    lsn: u64,
}

impl<'a> Call<'a> {
    /// A call for `len` bytes at `offset`, to a device that takes writes.
    pub(crate) fn new(
        task: &Task<'_>,
        file: &'a File,
        writer: &'a mut Writer,
        offset: Bytes,
        len: u64,
    ) -> Result<Self, Error> {
        let end = offset.0.checked_add(len).filter(|end| *end <= FILE_MAX);
        let end = end.ok_or(Error::beyond_files(Bytes(offset.0.saturating_add(len))))?;
        let device = &file.mapping.device;
        device.admit(task, writer.pacer.seen_errors(device))?;
        Ok(Self {
            cache: &file.cache,
            mapping: &file.mapping,
            writer,
            bytes: offset.0..end,
            lsn: 0,
        })
    }

    /// The same for bytes whose log must be durable up to `lsn` before they are written.
    pub(crate) fn logged(mut self, lsn: u64) -> Result<Self, Error> {
        let logs = u64::from(self.mapping.ahead().is_some());
        let (what, value, most) = match logs {
            0 => ("logs that the file follows (`File::follow`)", logs, 1),
            _ => ("the number of a logged write", lsn, u64::MAX),
        };
        if value == 0 {
            return Err(Error::BadOption {
                what,
                value,
                allowed: (1, most),
            });
        }
        self.lsn = lsn;
        Ok(self)
    }

    /// Waits until as many pages may be held by the log of the file as a batch has.
    fn wait_for_log(&self, task: &mut Task<'_>) -> Result<(), Error> {
        let log = self.mapping.ahead().filter(|_| self.lsn > 0);
        let Some(log) = log else { return Ok(()) };
        let dirtyable = self.cache.counts(&self.mapping.device).dirtyable;
        let limits = {
            let domain = self.cache.writeback.domain.lock(task);
            domain.limits(dirtyable)
        };
        log.wait_for_room(task, self.lsn, limits.background.0.max(1))
    }

    /// Takes `data` in: all of it, or as much as can be without a wait where the task may not
    /// block. An error comes with how much was taken in before it.
    pub(crate) fn write(
        mut self,
        task: &mut Task<'_>,
        data: Data<'_>,
        pacing: Pacing,
    ) -> Result<Progress, (Bytes, Error)> {
        let began = task.begins_call();
        task.did(Work::Call, 1);
        let mut at = self.bytes.start;
        let would_block = match self.take_in(task, data, pacing, &mut at) {
            Ok(()) => false,
            Err(Error::WouldWait) => true,
            // Bytes that were taken in before it are part of the file, and paced.
            Err(error) => return Err((Bytes(at - self.bytes.start), error)),
        };
        let bytes = Bytes(at - self.bytes.start);
        self.wrote(task, began, bytes);
        Ok(Progress { bytes, would_block })
    }

    /// Takes `data` in, batch by batch; `at` moves.
    fn take_in(
        &mut self,
        task: &mut Task<'_>,
        data: Data<'_>,
        pacing: Pacing,
        at: &mut u64,
    ) -> Result<(), Error> {
        let (cache, mapping) = (self.cache, self.mapping);
        let Range { start, end } = self.bytes;
        if !self.is_prepared() {
            io::prepare(task, mapping, Bytes(start), Bytes(end - start))?;
        }
        while *at < end {
            self.wait_for_log(task)?;
            let pages = self.budget(task, *at);
            let stop = end.min(((*at >> PAGE_SHIFT) + pages) << PAGE_SHIFT);
            reserve_space(task, cache, mapping, *at, stop)?;
            settle_cut(task, cache, mapping)?;
            let inside = mapping.enter(task, &cache.registry)?;
            if !inside.is_ready_up_to(stop) {
                // The length was cut meanwhile, and the space with it.
                continue;
            }
            let from = usize::try_from(*at - start).expect("an offset into the caller's data");
            let source = Source { data, from };
            let mut batch = Batch::new(self, &inside, *at);
            let filled = batch.fill(task, source, stop);
            let took = batch.finish(task);
            self.writer.reserve.give_back(task, cache);
            drop(inside);
            *at = took.until;
            self.account(task, took);
            // Also after an error: it is paused for what was taken in before it.
            let balanced = match pacing {
                Pacing::Here => balance(task, cache, &mut self.writer.pacer).map(drop),
                Pacing::Elsewhere => Ok(()),
            };
            filled.and(balanced)?;
        }
        Ok(())
    }

    /// True if the device need not be told of the write any more.
    fn is_prepared(&self) -> bool {
        let Range { start, end } = self.bytes;
        self.writer.is_prepared(self.mapping, start, end)
    }

    /// Pages of the writer's next batch, from byte `at` on.
    fn budget(&self, task: &Task<'_>, at: u64) -> u64 {
        // Most calls have one page left, and so much there always is.
        if page_of(at) == page_of(self.bytes.end - 1) {
            return 1;
        }
        budget(task, self.cache, self.mapping, self.writer)
    }

    /// Reports a batch, and accounts what it made dirty.
    fn account(&mut self, task: &mut Task<'_>, took: Took) {
        self.cache.copied(task, took.copied, took.far);
        task.did(Work::Insert, took.inserted);
        task.did(Work::Dirty, took.dirtied);
        let device = &self.mapping.device;
        account(
            task,
            self.cache,
            device,
            &mut self.writer.pacer,
            Pages(took.dirtied),
        );
    }

    /// Reports a call that began at `began` and took in `bytes`.
    fn wrote(&self, task: &Task<'_>, began: Option<Instant>, bytes: Bytes) {
        if bytes.is_zero() {
            return;
        }
        let took = task.took(began);
        task.emit(&Event::Wrote {
            writer: self.writer.pacer.id,
            bytes,
            took,
        });
    }

    /// Waits for what the call would have to wait for, and leaves frames for it.
    pub(crate) fn prepare(&mut self, task: &mut Task<'_>) -> Result<(), Error> {
        let (cache, mapping) = (self.cache, self.mapping);
        let Range { start, end } = self.bytes;
        if start == end {
            return Ok(());
        }
        io::prepare(task, mapping, Bytes(start), Bytes(end - start))?;
        self.writer.note_prepared(mapping, start, end);
        reserve_space(task, cache, mapping, start, end)?;
        settle_cut(task, cache, mapping)?;
        drop(mapping.enter(task, &cache.registry)?);
        if cache.pages.pool.free() < NODES_MIN {
            match free_index_nodes(task, cache) {
                // Enough for one path, or for pages that need none.
                Err(Error::OutOfMemory { .. }) if cache.pages.pool.free() >= NODES_PATH => {}
                freed => freed?,
            }
        }
        let end = end.min(start + (u64::from(RESERVE_MAX) << PAGE_SHIFT));
        let mut missing = 0;
        let mut at = start;
        while at < end {
            let part = Part::first(at, end, 0);
            missing += u32::from(self.prepare_page(task, part)?);
            at += part.len as u64;
        }
        self.reserve_frames(task, missing)
    }

    /// Waits until the page can be written to at once; answers whether a frame is needed for it.
    /// Its waits are those that `Batch::fill_page` would need.
    fn prepare_page(&self, task: &mut Task<'_>, part: Part) -> Result<bool, Error> {
        let (cache, mapping) = (self.cache, self.mapping);
        let owner = mapping.owner(part.page);
        loop {
            let Slot::Frame(frame) = mapping.lookup(task, &cache.pages.pool, part.page) else {
                if !part.needs_rest(mapping) {
                    return Ok(true);
                }
                self.bring_in(task, part.page)?;
                continue;
            };
            let (flags, _) = cache.pages.table.look(frame);
            if cache.pages.table.owner(frame) != owner {
                task.did(Work::Lookup, 1);
                continue;
            }
            let is_pinned = flags.pins() > 0;
            if flags.has(Flags::BUSY) {
                cache.wait_busy(task, Cause::PageBusy, frame, owner)?;
            } else if is_pinned && flags.has(Flags::WRITEBACK) || must_stay(mapping, flags) {
                wait_frame(task, cache, mapping, part.page, frame)?;
            } else if !flags.has(Flags::UPTODATE) && !part.is_whole() {
                self.bring_in(task, part.page)?;
            } else {
                return Ok(is_pinned);
            }
        }
    }

    /// Brings a page in for a part of it that is to be written. The file may be cut meanwhile: then
    /// there is nothing to read.
    fn bring_in(&self, task: &mut Task<'_>, page: u32) -> Result<(), Error> {
        match read::pin_untouched(task, self.cache, self.mapping, page) {
            Ok(pin) => self.cache.unpin(pin),
            Err(Error::OutOfRange { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Takes up to `missing` frames for the writer's next call; at least one if it needs any.
    fn reserve_frames(&mut self, task: &mut Task<'_>, missing: u32) -> Result<(), Error> {
        let (cache, reserve) = (self.cache, &mut self.writer.reserve);
        let have = u32::try_from(reserve.len()).expect("a batch is at most 256 pages");
        let part = cache.memory.limit_frames() / RESERVED_PART;
        let most = if cache.memory.reserved.load(Ordering::Relaxed) < part {
            RESERVE_MAX
        } else {
            1
        };
        let want = missing.min(most).saturating_sub(have);
        let mut taken = Ok(());
        if want > 0 {
            let wanted = to_write(cache, self.mapping, want);
            taken = cache.alloc(task, wanted, reserve.frames()).map(drop);
            // Popped from the end: neighbours in the file are to be neighbours in memory.
            reserve.frames().reverse();
        }
        reserve.keep(cache);
        taken
    }
}

/// The caller's data, and where in it what comes next stands.
struct Source<'a> {
    data: Data<'a>,
    from: usize,
}

/// The result of a batch.
#[derive(Clone, Copy)]
struct Took {
    /// The end in the file of the data taken in.
    until: u64,
    /// Pages that were copied to, put into the index, and became dirty.
    copied: u64,
    inserted: u64,
    dirtied: u64,
    /// Of those copied to: pages on other nodes.
    far: u64,
}

/// Pages that are filled inside the gate and shown together.
struct Batch<'a> {
    cache: &'a Arc<Cache>,
    mapping: &'a GateGuard<'a>,
    writer: &'a mut Writer,
    /// The log of the file and the number of the write, if that has one.
    logged: Option<(&'a WriteAhead, u64)>,
    took: Took,
}

impl<'a> Batch<'a> {
    /// An empty one, for what comes from byte `at` of the file on.
    fn new(call: &'a mut Call<'_>, inside: &'a GateGuard<'a>, at: u64) -> Self {
        let lsn = call.lsn;
        let logged = inside.ahead().filter(|_| lsn > 0);
        Self {
            cache: call.cache,
            mapping: inside,
            writer: call.writer,
            logged: logged.map(|log| (&**log, lsn)),
            took: Took {
                until: at,
                copied: 0,
                inserted: 0,
                dirtied: 0,
                far: 0,
            },
        }
    }

    /// Shows what was filled, also before an error: it is part of the file.
    fn finish(mut self, task: &mut Task<'_>) -> Took {
        self.show(task);
        self.took
    }

    /// Fills the pages up to `stop` from `source`.
    fn fill(
        &mut self,
        task: &mut Task<'_>,
        mut source: Source<'_>,
        stop: u64,
    ) -> Result<(), Error> {
        while self.took.until < stop {
            let part = Part::first(self.took.until, stop, source.from);
            self.fill_page(task, part, stop, source.data)?;
            self.took.copied += 1;
            self.took.until += part.len as u64;
            source.from += part.len;
        }
        Ok(())
    }

    /// Fills one page, whatever its state. Loops only when another task changed that state.
    fn fill_page(
        &mut self,
        task: &mut Task<'_>,
        part: Part,
        stop: u64,
        data: Data<'_>,
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
            if let Some((log, lsn)) = self.logged {
                let place = (self.mapping.serial, part.page);
                if log.is_fenced(task, place) {
                    self.show(task);
                    log.wait_for_fence(task, place, lsn)?;
                }
            }
            let Slot::Frame(frame) = self.mapping.index.get(&cache.pages.pool, part.page) else {
                if part.needs_rest(self.mapping) {
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

    /// Puts fresh busy frames into the index for `part.page` and the missing pages that follow, as
    /// far as this write goes and none of them needs a read.
    fn insert_ahead(&mut self, task: &mut Task<'_>, part: Part, stop: u64) -> Result<(), Error> {
        let last_whole = u32::try_from(stop >> PAGE_SHIFT).expect("below FILE_MAX");
        let tail = usize::try_from(stop % PAGE_SIZE).expect("below a page");
        let mut end = last_whole.max(part.page + 1);
        if tail > 0 && last_whole > part.page && !must_read(self.mapping, last_whole, 0, tail) {
            end = last_whole + 1;
        }
        let want = end - part.page;
        if self.writer.reserve.is_empty() && !self.refill(task, want)? {
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
                if must_read(mapping, page, at, len) {
                    break;
                }
                let Some(frame) = self.writer.reserve.frames().pop() else {
                    break;
                };
                let busy = cache.pages.table.claim(frame);
                cache.pages.table.adopt(&busy, mapping.owner(page));
                match index.insert(page, frame) {
                    // Nothing is read for it; but what is known of it is.
                    Ok(Slot::Shadow(shadow)) if cache.zones.ruled().is_some() => {
                        cache.refaulted(task, frame, shadow.0);
                    }
                    Ok(_) => {}
                    Err(_) => {
                        let frame = cache.pages.table.disown(busy);
                        self.writer.reserve.frames().push(frame);
                        refused = Some(frame);
                        break;
                    }
                }
                self.writer.ahead.push((page, busy));
            }
        }
        cache.wake_busy(refused.as_slice(), Signal::PageUnlocked);
        let count = self.writer.ahead.len() as u64;
        self.writer.ahead.reverse();
        self.took.inserted += count;
        cache.writeback.totals.cached.add(count);
        if refused.is_some() && count == 0 {
            self.show(task);
            free_index_nodes(task, cache)?;
        }
        Ok(())
    }

    /// Fills the reserve; false when it had to show the batch and wait, so look again.
    fn refill(&mut self, task: &mut Task<'_>, want: u32) -> Result<bool, Error> {
        self.cache.settle_overhead(task);
        let wanted = to_write(self.cache, self.mapping, want);
        let frames = self.writer.reserve.frames();
        let at_once = self.cache.try_alloc(task, wanted, frames)? > 0;
        if !at_once {
            self.show(task);
            self.cache
                .alloc(task, wanted, self.writer.reserve.frames())?;
        }
        // Popped from the end: neighbours in the file are to be neighbours in memory.
        self.writer.reserve.frames().reverse();
        Ok(at_once)
    }

    /// Overwrites a cached page in place; false: its state has changed, look again.
    fn fill_cached(
        &mut self,
        task: &mut Task<'_>,
        busy: Busy,
        part: Part,
        data: Data<'_>,
    ) -> Result<bool, Error> {
        let cache = self.cache;
        let frame = busy.frame();
        let flags = cache.pages.table.flags(frame);
        // A device that reads it could get what its log has not yet.
        let is_ahead = self
            .logged
            .is_some_and(|(log, lsn)| log.durable_lsn() < lsn);
        if must_stay(self.mapping, flags) || is_ahead && flags.has(Flags::WRITEBACK) {
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
        task: &mut Task<'_>,
        old: FrameId,
        part: Part,
        data: Data<'_>,
    ) -> Result<bool, Error> {
        let (cache, mapping) = (self.cache, self.mapping);
        if cache.pages.table.flags(old).has(Flags::WRITEBACK) {
            self.show(task);
            wait_frame(task, cache, mapping, part.page, old)?;
            return Ok(false);
        }
        if cache.content().home(old).is_some() {
            self.show(task);
            return awaits_pins(task, cache, old).map(|_| false);
        }
        if self.writer.reserve.is_empty() && !self.refill(task, 1)? {
            return Ok(false);
        }
        let fresh = self
            .writer
            .reserve
            .frames()
            .pop()
            .expect("the reserve was just filled");
        let (busy, was_dirty) = match replace_pinned(task, cache, mapping, part.page, old, fresh) {
            Ok(replaced) => replaced,
            Err(fresh) => {
                self.writer.reserve.frames().push(fresh);
                return Ok(false);
            }
        };
        self.copy_in(busy, part, data, true, was_dirty);
        Ok(true)
    }

    fn copy_in(&mut self, busy: Busy, part: Part, data: Data<'_>, fresh: bool, was_dirty: bool) {
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
    fn show(&mut self, task: &mut Task<'_>) {
        debug_assert!(
            self.writer.ahead.is_empty(),
            "pages ahead are filled before any wait"
        );
        if self.writer.batch.is_empty() {
            return;
        }
        let (cache, mapping) = (self.cache, self.mapping);
        let mut far = cache.far(task);
        if far.counts() {
            let frames = self.writer.batch.iter().map(|filled| filled.busy.frame());
            frames.for_each(|frame| far.uses(frame));
            self.took.far += far.take();
        }
        // Before the pages can be written and reclaimed: a reader that then finds one missing must
        // know that it is part of the file.
        mapping.extend_to(self.took.until);
        if let Some((log, lsn)) = self.logged {
            let pages = self.writer.batch.iter().map(|filled| filled.page);
            log.hold(task, pages.map(|page| (mapping.serial, page)), lsn);
        }
        let again = self.used_again();
        self.took.dirtied += show_filled(task, cache, mapping, &mut self.writer.batch, None);
        for frame in again {
            // To the active list, and used there.
            cache.touch(frame);
            cache.touch(frame);
        }
    }

    /// Frames of the batch that calls after the first use again.
    fn used_again(&mut self) -> Vec<FrameId> {
        if !self.cache.options.reclaim.law.writes_are_uses {
            return Vec::new();
        }
        let batch = core::mem::take(&mut self.writer.batch);
        let again = batch
            .iter()
            .filter(|filled| self.writer.uses_again(filled.fresh));
        let again = again.map(|filled| filled.busy.frame()).collect();
        self.writer.batch = batch;
        again
    }
}

/// Several fresh pages of a file that is written to.
fn to_write(cache: &Cache, mapping: &Mapping, pages: u32) -> Wanted {
    Wanted::new(pages, Purpose::Stream)
        .among(cache.lies_in(mapping, true))
        .to_be_dirtied()
}

/// Pages that a writer may make dirty before its next balance; no more than a batch.
pub(super) fn budget(task: &Task<'_>, cache: &Cache, mapping: &Mapping, writer: &Writer) -> u64 {
    // Once a balance is due, its size does not matter any more: pages that come until it begins are
    // due too.
    if writer.pacer.account.is_due() {
        return BATCH;
    }
    let cpu = task.cpu();
    let domain = cache.writeback.domain.lock(task);
    let budget = domain.budget(&writer.pacer.index, mapping.device.index, cpu);
    budget.0.clamp(1, BATCH)
}

/// Makes pages that were filled visible: on the lists, dirty, no longer busy. Answers how many
/// became dirty. With `map`, they may be stored to by the task that has mapped the file; without, a
/// call has written to them.
pub(super) fn show_filled(
    task: &Task<'_>,
    cache: &Cache,
    mapping: &Arc<Mapping>,
    batch: &mut Vec<Filled>,
    map: Option<&PageMap>,
) -> u64 {
    // Pages that are judged by their log's number are shown under the index lock.
    let shows_again = map.is_none() && mapping.ahead().is_none();
    if shows_again && batch.iter().all(|filled| filled.was_dirty && !filled.fresh) {
        show_again(cache, batch);
        return 0;
    }
    let mut shown = [FrameId(0); BATCH_FRAMES];
    let count = batch.len();
    if batch.iter().any(|filled| filled.fresh) {
        let mut fresh = [FrameId(0); BATCH_FRAMES];
        let mut frames = 0;
        for filled in batch.iter().filter(|filled| filled.fresh) {
            fresh[frames] = filled.busy.frame();
            frames += 1;
        }
        cache.add_filled(task, &fresh[..frames]);
    }
    let newly = batch.iter().filter(|filled| !filled.was_dirty).count();
    // Counted before the tags say so: the flusher may count them off at once.
    mapping.count_dirty(cache, newly as u64);
    let mut dirty_already = 0;
    {
        let mut token = mapping.token.lock(task);
        let mut index = mapping.index.writer(&cache.pages.pool, &mut token);
        for (at, filled) in batch.drain(..).enumerate() {
            shown[at] = filled.busy.frame();
            if let Some(overhead) = &cache.memory.overhead {
                overhead.written(shown[at], mapping.device.options.blocks_a_page);
            }
            index.set_tag(filled.page, Tag::Dirty);
            let mut set = Flags::UPTODATE | Flags::DIRTY;
            if let Some(map) = map {
                if at > 0 && map.live().is_some() {
                    map.map_beside(filled.page, Access::Store);
                } else {
                    map.map(filled.page, Access::Store);
                }
                set = set | Flags::MAPPED;
            }
            let before =
                cache
                    .pages
                    .table
                    .release(filled.busy, set, Flags::FAILED | Flags::RECLAIM);
            if map.is_some() && !before.has(Flags::MAPPED) {
                cache.zones.note_mapped(shown[at]);
            }
            // The page is dirty again, so reclaim no longer wants it freed when its writeback
            // ends. If an older writeback of it failed, that was counted where it failed.
            if filled.was_dirty {
                continue;
            }
            if before.has(Flags::DIRTY) {
                dirty_already += 1;
            } else {
                cache.zones.note_dirty([shown[at]]);
            }
        }
    }
    if map.is_none() && cache.options.reclaim.law.writes_are_uses {
        shown[..count].iter().for_each(|frame| cache.touch(*frame));
    }
    mapping.uncount_dirty(cache, dirty_already);
    let dirtied = newly as u64 - dirty_already;
    cache.writeback.totals.dirtied.add(dirtied);
    mapping.device.dirtied.add(dirtied);
    cache.queue_dirty(task, mapping);
    cache.wake_busy(&shown[..count], Signal::PageUnlocked);
    dirtied
}

/// The same of pages that were dirty before and still are, in the frames that they had. Their busy
/// bits have kept the flusher away, so they stand in the index as what they are, and the task that
/// made them dirty sees to their file: nothing has to be changed that other tasks use.
fn show_again(cache: &Cache, batch: &mut Vec<Filled>) {
    let mut shown = [FrameId(0); BATCH_FRAMES];
    let count = batch.len();
    for (frame, filled) in shown.iter_mut().zip(batch.drain(..)) {
        *frame = filled.busy.frame();
        let table = &cache.pages.table;
        // As above.
        let before = table.release(
            filled.busy,
            Flags::UPTODATE | Flags::DIRTY,
            Flags::FAILED | Flags::RECLAIM,
        );
        assert!(before.has(Flags::DIRTY), "a busy page is not cleaned");
    }
    if cache.options.reclaim.law.writes_are_uses {
        shown[..count].iter().for_each(|frame| cache.touch(*frame));
    }
    cache.wake_busy(&shown[..count], Signal::PageUnlocked);
}

/// True if a part of a page that is not cached needs the rest of the page from the device.
fn must_read(mapping: &Mapping, page: u32, at: usize, len: usize) -> bool {
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

/// True if the content of a page that is not pinned has to stay as it is: the device reads it, and
/// wants it stable.
pub(super) fn must_stay(mapping: &Mapping, flags: Flags) -> bool {
    mapping.device.info.stable_writes && flags.has(Flags::WRITEBACK)
}

/// A fresh frame for a part of a page: the rest of it is zero.
fn zero_around(cache: &Cache, busy: &Busy, part: Part) {
    let end = part.at + part.len;
    cache.content().zero(busy, 0, part.at);
    cache.content().zero(busy, end, PAGE_BYTES - end);
}
