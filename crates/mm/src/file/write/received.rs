//! Writing what is still to come from elsewhere (a socket): straight into pages that are in the cache, with no buffer
//! in between, for callers that may not wait.
//!
//! ```text
//!   pages of the range, from the first on, up to one that is not there, not up to date, pinned or busy
//!      '──busy──> the caller fills a beginning of them ──> what was filled: dirty, shown
//!                                                     '──> the others: as they were
//! ```
//!
//! Whatever else a write can meet (a page to be read, memory, a pinned page) ends the run of pages. If that is at the
//! first, nothing is offered, and the caller writes as others do.
//!
//! Invariants
//!   1. The pages are busy for one call of the caller's that does not wait (lib.rs, rule 4): never for a client.
//!   2. Only pages that are up to date are offered. So one that is filled in part is whole, of new bytes and old ones, as
//!      after a write that ended there.

use core::ops::Range;
use core::sync::atomic::Ordering;
use std::sync::Arc;

use env::{Env, Task, Work};
use frames::{Busy, Flags, Slot};
use policy::units::{Bytes, PAGE_SIZE, Pages};

use super::{Batch, Filled, PAGE_BYTES, Writer, wrote};
use crate::Error;
use crate::cache::Cache;
use crate::file::read::page_of;
use crate::file::unwilling::budget;
use crate::registry::mapping::Mapping;
use crate::writeback::balance::account;

/// Most pages that are offered together: 256 KiB, wherever they begin.
const OFFERED_MAX: u32 = 65;

/// Neighbouring pages that are to be filled from the first byte on, as far as there is something to fill them with.
pub struct Offered<'a> {
    pages: &'a [Filled],
    /// Where its bytes begin and end in the first page and those behind it.
    bytes: Range<usize>,
}

impl Offered<'_> {
    /// Most pages.
    pub const PAGES_MAX: usize = OFFERED_MAX as usize;

    /// How many bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none; there always are.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The pages, and which bytes of each are to be filled.
    pub fn parts(&self) -> impl Iterator<Item = (&Busy, Range<usize>)> {
        let Range { start, end } = self.bytes;
        self.pages.iter().enumerate().map(move |(at, filled)| {
            let first = at * PAGE_BYTES;
            let from = start.saturating_sub(first);
            (&filled.busy, from..(end - first).min(PAGE_BYTES))
        })
    }
}

/// Offers the pages of `len` bytes at `offset` that can be written to at once to `fill`, which answers how many bytes it
/// filled. Answers the same; `fill` is not called if the first page cannot be offered.
pub(crate) fn receive<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Arc<Cache<E>>,
    mapping: &Arc<Mapping<E>>,
    writer: &mut Writer,
    offset: Bytes,
    len: u64,
    fill: impl FnOnce(&E::Content, &Offered<'_>) -> usize,
) -> Result<Bytes, Error> {
    let device = &mapping.device;
    device.admit(task, writer.told(device))?;
    let end = offset.0.saturating_add(len);
    if len == 0 || !writer.is_prepared(mapping, offset.0, end) {
        return Ok(Bytes::ZERO);
    }
    match task.unwillingly(|task| mapping.enter(task, cache)) {
        Ok(()) => {}
        Err(Error::WouldWait) => return Ok(Bytes::ZERO),
        Err(error) => return Err(error),
    }
    let began = task.now();
    task.did(Work::Call, 1);
    // The file does not grow here, and has its space.
    let is_there = end <= mapping.size() && end <= mapping.allocated.load(Ordering::Acquire);
    if is_there && !mapping.cut_owed.load(Ordering::Acquire) {
        let pages = budget(task, cache, device, writer).min(u64::from(OFFERED_MAX));
        take_pages(cache, mapping, writer, offset.0, end, pages);
    }
    let mut batch = Batch {
        cache,
        mapping,
        writer,
        filled_to: offset.0,
        dirtied: 0,
        copied: 0,
        inserted: 0,
    };
    let bytes = batch.fill_from_outside(offset.0, end, fill);
    batch.show(task);
    let (dirtied, copied) = (Pages(batch.dirtied), batch.copied);
    mapping.gate.leave();
    task.did(Work::Copy, copied);
    task.did(Work::Dirty, dirtied.0);
    if !bytes.is_zero() {
        wrote(task, writer, began, bytes);
    }
    account(task, cache, device, writer, dirtied);
    Ok(bytes)
}

/// Takes the busy bits of up to `pages` pages from `offset` on into the batch.
fn take_pages<E: Env>(
    cache: &Cache<E>,
    mapping: &Mapping<E>,
    writer: &mut Writer,
    offset: u64,
    end: u64,
    pages: u64,
) {
    let stable = mapping.device.info.stable_writes;
    let last = u64::from(page_of(end - 1)).min(offset / PAGE_SIZE + pages - 1);
    for page in page_of(offset)..=u32::try_from(last).expect("no page behind the last") {
        let Slot::Frame(frame) = mapping.index.get(&cache.pages.pool, page) else {
            return;
        };
        let Ok(busy) = cache.pages.table.try_busy(frame, mapping.owner(page)) else {
            return;
        };
        let flags = cache.pages.table.flags(frame);
        if !flags.has(Flags::UPTODATE) || stable && flags.has(Flags::WRITEBACK) {
            cache.release(busy, Flags::NONE, Flags::NONE);
            return;
        }
        writer.batch.push(Filled {
            page,
            busy,
            fresh: false,
            was_dirty: flags.has(Flags::DIRTY),
        });
    }
}

impl<E: Env> Batch<'_, E> {
    /// Has `fill` fill the pages of the batch, and takes those out again that it did not come to.
    fn fill_from_outside(
        &mut self,
        offset: u64,
        end: u64,
        fill: impl FnOnce(&E::Content, &Offered<'_>) -> usize,
    ) -> Bytes {
        let pages = &self.writer.batch;
        if pages.is_empty() {
            return Bytes::ZERO;
        }
        let within = usize::try_from(offset % PAGE_SIZE).expect("below a page");
        let wanted = usize::try_from(end - offset).unwrap_or(usize::MAX);
        let there = (pages.len() * PAGE_BYTES - within).min(wanted);
        let offered = Offered {
            pages,
            bytes: within..within + there,
        };
        let bytes = fill(self.cache.content(), &offered);
        assert!(bytes <= there, "{bytes} bytes were filled of {there}");
        let filled = if bytes == 0 {
            0
        } else {
            (within + bytes).div_ceil(PAGE_BYTES)
        };
        for left in self.writer.batch.drain(filled..) {
            self.cache.release(left.busy, Flags::NONE, Flags::NONE);
        }
        self.copied += filled as u64;
        self.filled_to = offset + bytes as u64;
        Bytes(bytes as u64)
    }
}
