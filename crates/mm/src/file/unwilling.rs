//! Reading and writing for callers that may not wait, and the waits of theirs that others take for them.
//!
//! ```text
//!   try_read / try_write   take what is to be had at once, and say how far they came
//!        | stuck
//!        v
//!   ready_read / ready_write   on a task that may wait: bring the pages in, take frames, wait for whoever is busy
//! ```
//!
//! A `try_` call is the usual one with a task that refuses to wait (`Task::unwillingly`): a wait ends it where it stands, as
//! an error would, with what it took in before shown and everything else given back. It reclaims nothing, asks the system
//! for nothing and takes no place in the line for memory. A read that it has started goes on.
//!
//! `ready_write` leaves the frames it took in the writer's stash for the next `try_write`. It promises progress, not that
//! all of the range can be taken: pages may be evicted or become busy in between.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use env::{Cause, Env, Event, Task, Work};
use frames::{Content, Flags, Pin, Slot};
use policy::readahead::Run;
use policy::reclaim::scan::Kind;
use policy::units::{Bytes, PAGE_SHIFT, PAGE_SIZE, Pages};

use crate::cache::{Cache, FILE_MAX};
use crate::file::read::{Stuck, copy_out, page_of, pages_of, pin_untouched, read_ahead, read_to};
use crate::file::sync::{settle_cut, wait_frame};
use crate::file::write::{BATCH, must_read, reserve_space, write_batch, wrote};
use crate::reclaim::index_nodes::free_index_nodes;
use crate::registry::device::DeviceState;
use crate::registry::mapping::Mapping;
use crate::writeback::balance::account;
use crate::{Error, Reader, Writer, writeback::io};

/// Most frames that a writer keeps between two calls.
const STASH_MAX: u32 = 32;
/// Beyond this part of the frames, writers keep one frame each.
const STASHED_PART: u32 = 16;
/// Pages that one reader waits for at a time, at most; and all of them together: this part of the frames.
const READ_MAX: u32 = 256;
const READ_PART: u32 = 4;
/// Bytes that one wait looks at.
const ACCESS_MAX: u64 = 1 << 20;
/// Index nodes below which some are freed for a writer: a path through the index, and some more.
const NODES_MIN: u32 = 16;
/// The longest path: 32 bits of a page number, six at a time.
const NODES_PATH: u32 = 6;

/// How far a call that does not wait has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tried {
    /// Bytes moved, from the first on.
    pub bytes: Bytes,
    /// The next one would have to be waited for.
    pub stuck: bool,
}

/// Takes in as much of `data` at `offset` as can be at once, or all of it where the task `may_wait`; nobody is held.
pub(crate) fn take_write<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Arc<Cache<E>>,
    mapping: &Arc<Mapping<E>>,
    writer: &mut Writer,
    offset: Bytes,
    data: &<E::Content as Content>::Data,
    may_wait: bool,
) -> Result<Tried, Error> {
    let len = E::Content::data_len(data) as u64;
    let end = end_of(offset, len)?;
    let device = &mapping.device;
    device.admit(task, writer.told(device))?;
    let began = task.now();
    task.did(Work::Call, 1);
    let mut at = offset.0;
    let mut take = |task: &mut Task<'_, E>| {
        if !writer.is_prepared(mapping, offset.0, end) {
            io::prepare(task, mapping, offset, Bytes(len))?;
        }
        while at < end {
            let from = usize::try_from(at - offset.0).expect("an offset into the caller's data");
            take_batch(task, cache, mapping, writer, &mut at, end, data, from)?;
        }
        Ok(())
    };
    let result = if may_wait {
        take(task)
    } else {
        task.unwillingly(take)
    };
    let bytes = Bytes(at - offset.0);
    if !bytes.is_zero() {
        wrote(task, writer, began, bytes);
    }
    match result {
        Ok(()) => Ok(Tried {
            bytes,
            stuck: false,
        }),
        Err(Error::WouldWait) => Ok(Tried { bytes, stuck: true }),
        Err(error) => Err(error),
    }
}

/// One batch of a write, from `at` on, which moves to where it ended.
#[expect(
    clippy::too_many_arguments,
    reason = "the parts of one write; a struct would name them no better"
)]
fn take_batch<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Arc<Cache<E>>,
    mapping: &Arc<Mapping<E>>,
    writer: &mut Writer,
    at: &mut u64,
    end: u64,
    data: &<E::Content as Content>::Data,
    from: usize,
) -> Result<(), Error> {
    let device = &mapping.device;
    let pages = budget(task, cache, device, writer);
    let stop = end.min(((*at >> PAGE_SHIFT) + pages) << PAGE_SHIFT);
    reserve_space(task, cache, mapping, *at, stop)?;
    settle_cut(task, cache, mapping)?;
    mapping.enter(task, cache)?;
    let cut = mapping.cut_owed.load(Ordering::Acquire);
    if mapping.allocated.load(Ordering::Acquire) < stop || cut {
        // The length was cut meanwhile, and the space with it: looked at again.
        mapping.gate.leave();
        return if task.is_willing() {
            Ok(())
        } else {
            Err(Error::WouldWait)
        };
    }
    let (took, result) = write_batch(task, cache, mapping, writer, *at, stop, data, from);
    *at = took.until;
    account(task, cache, device, writer, took.dirtied);
    result
}

/// Pages of the writer's next batch.
pub(crate) fn budget<E: Env>(
    task: &Task<'_, E>,
    cache: &Cache<E>,
    device: &DeviceState<E>,
    writer: &Writer,
) -> u64 {
    // Once a balance is due, its size is no matter any more: what comes until `pace` is asked is owed too.
    if writer.account.is_due() {
        return BATCH;
    }
    let cpu = task.cpu();
    let domain = cache.writeback.domain.lock(task);
    let budget = domain.budget(&writer.index, device.index, cpu);
    budget.0.clamp(1, BATCH)
}

/// Waits for what a `try_write` of `len` bytes at `offset` would have to wait for, and leaves frames for it.
pub(crate) fn ready_write<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Arc<Cache<E>>,
    mapping: &Arc<Mapping<E>>,
    writer: &mut Writer,
    offset: Bytes,
    len: u64,
) -> Result<(), Error> {
    let whole_end = end_of(offset, len)?;
    let end = whole_end.min(offset.0 + (u64::from(STASH_MAX) << PAGE_SHIFT));
    let device = &mapping.device;
    device.admit(task, writer.told(device))?;
    if len == 0 {
        return Ok(());
    }
    io::prepare(task, mapping, offset, Bytes(len))?;
    writer.note_prepared(mapping, offset.0, whole_end);
    reserve_space(task, cache, mapping, offset.0, whole_end)?;
    settle_cut(task, cache, mapping)?;
    mapping.enter(task, cache)?;
    mapping.gate.leave();
    if cache.pages.pool.free() < NODES_MIN {
        match free_index_nodes(task, cache) {
            // Enough for one path, or for pages that need none.
            Err(Error::OutOfMemory { .. }) if cache.pages.pool.free() >= NODES_PATH => {}
            freed => freed?,
        }
    }
    let mut missing = 0;
    let (first, last) = (page_of(offset.0), page_of(end - 1));
    for page in first..=last {
        let start = u64::from(page) << PAGE_SHIFT;
        let from = offset.0.max(start) - start;
        let until = end.min(start + PAGE_SIZE) - start;
        let at = usize::try_from(from).expect("below a page");
        let count = usize::try_from(until - from).expect("at most a page");
        if ready_page(task, cache, mapping, page, at, count)? {
            missing += 1;
        }
    }
    stash_frames(task, cache, writer, missing)
}

/// Waits until the page can be written to at once; answers whether a frame is needed for it.
fn ready_page<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Arc<Cache<E>>,
    mapping: &Arc<Mapping<E>>,
    page: u32,
    at: usize,
    len: usize,
) -> Result<bool, Error> {
    let owner = mapping.owner(page);
    loop {
        let Slot::Frame(frame) = mapping.lookup(task, &cache.pages.pool, page) else {
            if !must_read(mapping, page, at, len) {
                return Ok(true);
            }
            bring_in(task, cache, mapping, page)?;
            continue;
        };
        let (flags, _) = cache.pages.table.look(frame);
        if cache.pages.table.owner(frame) != owner {
            task.did(Work::Lookup, 1);
            continue;
        }
        let pinned = flags.pins() > 0;
        if flags.has(Flags::BUSY) {
            cache.wait_busy(task, Cause::PageBusy, frame, owner)?;
        } else if flags.has(Flags::WRITEBACK) && (pinned || device_wants_stable(mapping)) {
            wait_frame(task, cache, mapping, page, frame)?;
        } else if !flags.has(Flags::UPTODATE) && (len as u64) < PAGE_SIZE {
            bring_in(task, cache, mapping, page)?;
        } else {
            return Ok(pinned);
        }
    }
}

/// Brings a page in for a part of it that is to be written. The file may be cut meanwhile: then there is nothing to read.
fn bring_in<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Arc<Cache<E>>,
    mapping: &Arc<Mapping<E>>,
    page: u32,
) -> Result<(), Error> {
    match pin_untouched(task, cache, mapping, page) {
        Ok(pin) => cache.unpin(pin),
        Err(Error::OutOfRange { .. }) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

fn device_wants_stable<E: Env>(mapping: &Mapping<E>) -> bool {
    mapping.device.info.stable_writes
}

/// Takes up to `missing` frames for the writer's next call; at least one if it needs any.
fn stash_frames<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Arc<Cache<E>>,
    writer: &mut Writer,
    missing: u32,
) -> Result<(), Error> {
    let have = u32::try_from(writer.stash.len()).expect("a batch is at most 256 pages");
    let part = cache.memory.limit_frames() / STASHED_PART;
    let most = if cache.memory.stashed.load(Ordering::Relaxed) < part {
        STASH_MAX
    } else {
        1
    };
    let want = missing.min(most).saturating_sub(have);
    let taken = if want > 0 {
        let taken = cache.alloc(task, Kind::File, want, writer.stash.frames());
        // Popped from the end: neighbours in the file are to be neighbours in memory.
        writer.stash.frames().reverse();
        taken.map(|_| ())
    } else {
        Ok(())
    };
    writer.stash.keep(cache);
    taken
}

/// Copies what is in memory from `offset` on, up to the first page that is not; has that one read, if there is memory.
pub(crate) fn try_read<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Arc<Cache<E>>,
    mapping: &Arc<Mapping<E>>,
    reader: &mut Reader,
    offset: Bytes,
    data: &mut <E::Content as Content>::Data,
) -> Result<Tried, Error> {
    let len = E::Content::data_len(data) as u64;
    let began = task.now();
    let end = offset.0.saturating_add(len).min(mapping.size());
    let mut at = offset.0;
    if at >= end {
        return Ok(Tried {
            bytes: Bytes::ZERO,
            stuck: false,
        });
    }
    task.did(Work::Call, 1);
    let before = reader.readahead();
    let resumed = reader.stuck;
    let mut missed = Pages::ZERO;
    let result = task.unwillingly(|task| {
        match read_ahead(task, cache, mapping, reader, at, end, end) {
            Ok(pages) => missed = pages,
            // There may be pages before the first that could not be sent for.
            Err(Error::WouldWait) => {}
            Err(error) => return Err(error),
        }
        copy_out(task, cache, mapping, offset.0, &mut at, end, data)
    });
    let bytes = read_to(mapping, offset, at);
    if !bytes.is_zero() {
        task.did(Work::Copy, pages_of(offset.0, offset.0 + bytes.0));
        task.emit(&Event::Read {
            bytes,
            missed,
            took: task.now().since(began),
        });
    }
    let stuck = match result {
        // The file was cut under the reader: what is left is the answer.
        Ok(()) | Err(Error::OutOfRange { .. }) => false,
        Err(Error::WouldWait) => true,
        Err(error) => return Err(error),
    };
    if stuck {
        let first = page_of(offset.0);
        let start = resumed
            .filter(|stuck| (stuck.access.start..stuck.access.end()).contains(&u64::from(first)))
            .map_or(u64::from(first), |stuck| stuck.access.start);
        let count = Pages(u64::from(page_of(end - 1)) + 1 - start);
        let is_sent = matches!(
            mapping.index.get(&cache.pages.pool, page_of(at)),
            Slot::Frame(_)
        );
        let earlier = resumed.and_then(|stuck| stuck.before).unwrap_or(before);
        reader.stuck = Some(Stuck {
            access: Run { start, count },
            before: (!is_sent).then_some(earlier),
        });
    }
    Ok(Tried { bytes, stuck })
}

/// Waits until the first page of `len` bytes at `offset` is in memory, and those behind it as far as that takes no more
/// than what is read already or can be sent for at once.
pub(crate) fn ready_read<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Arc<Cache<E>>,
    mapping: &Arc<Mapping<E>>,
    reader: &mut Reader,
    offset: Bytes,
    len: Bytes,
) -> Result<(), Error> {
    let end = offset.0.saturating_add(len.0).min(mapping.size());
    if offset.0 >= end {
        return Ok(());
    }
    bring(task, cache, mapping, reader, offset.0, end).map(drop)
}

/// Brings bytes `at..end` of the file into memory, from the first page on as far as `ready_read` says: the number of pages
/// that were there.
fn bring<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Arc<Cache<E>>,
    mapping: &Arc<Mapping<E>>,
    reader: &mut Reader,
    at: u64,
    end: u64,
) -> Result<u32, Error> {
    let call_end = end;
    let end = end.min(at.saturating_add(ACCESS_MAX));
    read_ahead(task, cache, mapping, reader, at, end, call_end)?;
    let (first, last) = (page_of(at), page_of(end - 1));
    // Pinned until all are there: where memory is short, the last would drive the first out. Nobody waits for memory
    // with pages in hand, and all who are here leave most of it to others.
    let wanted = (last - first + 1).min(READ_MAX);
    let part = cache.memory.limit_frames() / READ_PART;
    let others = cache.pages.brought.fetch_add(wanted, Ordering::Relaxed);
    let most = part.saturating_sub(others).clamp(1, wanted);
    let mut pins = Vec::new();
    let mut result = Ok(());
    for page in first..=last.min(first.saturating_add(most - 1)) {
        let pinned = if page == first {
            pin_untouched(task, cache, mapping, page)
        } else {
            pin_or_await(task, cache, mapping, page)
        };
        match pinned {
            Ok(pin) => pins.push(pin),
            Err(error) => {
                if page == first {
                    result = Err(error);
                }
                break;
            }
        }
    }
    let brought = u32::try_from(pins.len()).expect("at most READ_MAX");
    for pin in pins {
        cache.unpin(pin);
    }
    cache.pages.brought.fetch_sub(wanted, Ordering::Relaxed);
    // Whoever copies them now comes back for the same access.
    reader.stuck = Some(Stuck {
        access: Run {
            start: u64::from(first),
            count: Pages(pages_of(at, end)),
        },
        before: None,
    });
    match result {
        // Cut under the reader.
        Err(Error::OutOfRange { .. }) => Ok(brought),
        result => result.map(|()| brought),
    }
}

/// Sees that each page of a range can be read, which is no access to them: they may be gone again when they are asked for. A
/// range that goes on where the last one ended is the same access.
pub(crate) fn prove_read<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Arc<Cache<E>>,
    mapping: &Arc<Mapping<E>>,
    reader: &mut Reader,
    offset: Bytes,
    len: Bytes,
) -> Result<(), Error> {
    let end = offset.0.saturating_add(len.0).min(mapping.size());
    if offset.0 >= end {
        return Ok(());
    }
    let (first, last) = (page_of(offset.0), page_of(end - 1));
    let goes_on = |access: &Run| (0..=1).contains(&access.end().wrapping_sub(u64::from(first)));
    let start = reader
        .stuck
        .map(|stuck| stuck.access)
        .filter(goes_on)
        .map_or(u64::from(first), |access| access.start);
    let brought = bring(task, cache, mapping, reader, offset.0, end)?;
    for page in first + brought..=last {
        match pin_untouched(task, cache, mapping, page) {
            Ok(pin) => cache.unpin(pin),
            // Cut under the reader.
            Err(Error::OutOfRange { .. }) => break,
            Err(error) => return Err(error),
        }
    }
    if let Some(stuck) = &mut reader.stuck {
        let count = Pages(u64::from(last) + 1 - start);
        stuck.access = Run { start, count };
    }
    Ok(())
}

/// Whether all of a range is in memory: a look, which is no access.
pub(crate) fn is_in_memory<E: Env>(
    cache: &Cache<E>,
    mapping: &Mapping<E>,
    offset: Bytes,
    len: Bytes,
) -> bool {
    let end = offset.0.saturating_add(len.0).min(mapping.size());
    offset.0 >= end
        || (page_of(offset.0)..=page_of(end - 1)).all(|page| {
            matches!(mapping.index.get(&cache.pages.pool, page), Slot::Frame(frame)
                if cache.pages.table.flags(frame).has(Flags::UPTODATE)
                    && cache.pages.table.owner(frame) == mapping.owner(page))
        })
}

/// Pins a page, waiting once for whoever fills it, but not for memory. If its read fails, that is left to whoever needs it
/// first.
fn pin_or_await<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Arc<Cache<E>>,
    mapping: &Arc<Mapping<E>>,
    page: u32,
) -> Result<Pin, Error> {
    let pinned = task.unwillingly(|task| pin_untouched(task, cache, mapping, page));
    if pinned.as_ref().err() != Some(&Error::WouldWait) {
        return pinned;
    }
    let Slot::Frame(frame) = mapping.index.get(&cache.pages.pool, page) else {
        return pinned;
    };
    let owner = mapping.owner(page);
    cache.wait_busy(task, Cause::ReadIo, frame, owner)?;
    cache.pages.table.try_pin(frame, owner).or(pinned)
}

fn end_of(offset: Bytes, len: u64) -> Result<u64, Error> {
    let end = offset.0.checked_add(len).filter(|end| *end <= FILE_MAX);
    end.ok_or(Error::beyond_files(Bytes(offset.0.saturating_add(len))))
}
