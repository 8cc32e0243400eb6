//! Writing what is still to come from elsewhere (a socket): straight into pages that are in the
//! cache, with no buffer in between, for callers that may not wait.
//!
//! ```text
//!   pages of the range, from the first on, up to one that is not there, not up to date, pinned or busy
//!      '──busy──> the caller fills a beginning of them ──> what was filled: dirty, shown
//!                                                     '──> the others: as they were
//! ```
//!
//! Any other thing that a write can meet (a page to be read, memory, a pinned page) ends the run of
//! pages. If that is at the first, nothing is offered, and the caller writes as others do.
//!
//! Invariants
//!   1. The pages are busy for one call of the caller's that does not wait (lib.rs, rule 4): never
//!      for a client.
//!   2. Only pages that are up to date are offered. So a page that is filled in part is whole, of
//!      new bytes and old ones, as after a write that ended there.

use core::ops::Range;

use env::{Task, Work};
use frames::{Busy, Flags, Slot};
use policy::units::{Bytes, PAGE_SIZE};

use super::{Batch, Call, Filled, PAGE_BYTES, must_stay};
use crate::Error;
use crate::file::read::page_of;

/// Most pages that are offered together: 256 KiB, wherever they begin.
const OFFERED_MAX: u32 = 65;

/// Neighbouring pages that are to be filled from the first byte on, as far as there is something to
/// fill them with.
pub struct Offered<'a> {
    pages: &'a [Filled],
    /// The beginning and the end of its bytes in the first page and those behind it.
    bytes: Range<usize>,
}

impl Offered<'_> {
    /// Most pages.
    pub const PAGES_MAX: usize = OFFERED_MAX as usize;

    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True if there are none; there always are.
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

impl Call<'_> {
    /// Offers the pages of the call that can be written to at once to `fill`, which answers how
    /// many bytes it filled. Answers the same; `fill` is not called if the first page cannot be
    /// offered.
    pub(crate) fn receive(
        mut self,
        task: &mut Task<'_>,
        fill: &mut dyn FnMut(&Offered<'_>) -> usize,
    ) -> Result<Bytes, Error> {
        let (cache, mapping) = (self.cache, self.mapping);
        let Range { start, end } = self.bytes;
        if start == end || !self.is_prepared() {
            return Ok(Bytes::ZERO);
        }
        let inside = match task.nonblocking(|task| mapping.enter(task, &cache.registry)) {
            Ok(inside) => inside,
            Err(Error::WouldWait) => return Ok(Bytes::ZERO),
            Err(error) => return Err(error),
        };
        let began = task.begins_call();
        task.did(Work::Call, 1);
        let pages = self.budget(task, start).min(u64::from(OFFERED_MAX));
        let mut batch = Batch::new(&mut self, &inside, start);
        // The file does not grow here, and has its space.
        if end <= inside.size() && inside.is_ready_up_to(end) {
            batch.take_pages(end, pages);
        }
        batch.receive(end, fill);
        let took = batch.finish(task);
        drop(inside);
        self.account(task, took);
        let bytes = Bytes(took.until - start);
        self.wrote(task, began, bytes);
        Ok(bytes)
    }
}

impl Batch<'_> {
    /// Takes the busy bits of up to `pages` pages before `end`.
    fn take_pages(&mut self, end: u64, pages: u64) {
        let (cache, mapping, first) = (self.cache, self.mapping, page_of(self.took.until));
        let last = u64::from(page_of(end - 1)).min(u64::from(first) + pages - 1);
        for page in first..=u32::try_from(last).expect("no page behind the last") {
            let Slot::Frame(frame) = mapping.index.get(&cache.pages.pool, page) else {
                return;
            };
            let Ok(busy) = cache.pages.table.try_busy(frame, mapping.owner(page)) else {
                return;
            };
            let flags = cache.pages.table.flags(frame);
            if !flags.has(Flags::UPTODATE) || must_stay(mapping, flags) {
                cache.release(busy, Flags::NONE, Flags::NONE);
                return;
            }
            self.writer.batch.push(Filled {
                page,
                busy,
                fresh: false,
                was_dirty: flags.has(Flags::DIRTY),
            });
        }
    }

    /// Has `fill` fill the pages of the batch, and takes those out again that it did not come to.
    fn receive(&mut self, end: u64, fill: &mut dyn FnMut(&Offered<'_>) -> usize) {
        let pages = &self.writer.batch;
        if pages.is_empty() {
            return;
        }
        let within = usize::try_from(self.took.until % PAGE_SIZE).expect("below a page");
        let wanted = usize::try_from(end - self.took.until).unwrap_or(usize::MAX);
        let there = (pages.len() * PAGE_BYTES - within).min(wanted);
        let offered = Offered {
            pages,
            bytes: within..within + there,
        };
        let bytes = fill(&offered);
        assert!(bytes <= there, "{bytes} bytes were filled of {there}");
        let filled = if bytes == 0 {
            0
        } else {
            (within + bytes).div_ceil(PAGE_BYTES)
        };
        for left in self.writer.batch.drain(filled..) {
            self.cache.release(left.busy, Flags::NONE, Flags::NONE);
        }
        self.took.copied += filled as u64;
        self.took.until += bytes as u64;
    }
}
