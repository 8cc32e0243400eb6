//! Punching holes: whole pages of a file leave the cache and the device, and read as zeroes.
//!
//! Dirty pages in the range are thrown away: together with truncation the only way in which dirty
//! data is ever dropped. Should the device refuse, it must be there still: no write of it was ever
//! asked for, so what the device holds is older than what readers saw. So dirty pages are *held*
//! (busy: nobody reads, writes, frees or writes them back) while the device discards, and go only
//! after it has.
//!
//! ```text
//!   shut the gate ──> hold what is dirty ──> Discard ──ok───> forget what is held, drop what is clean
//!        ^              |                       '──error──> let go of it (dirty as before), drop what is clean
//!        '── next part <┘ a page that is written, read, or pinned now ends the part;
//!                         the first one is waited for, with nothing held and the gate open
//! ```
//!
//! Invariants
//!   1. While the device discards, no page of the part is dirty but held ones, and none is under
//!      writeback: nothing that is older than the hole can reach the device after it. The gate
//!      keeps writers out.
//!   2. A read that began before may bring old content: its page is in the index before its request
//!      is sent, so dropping the clean pages after the Discard finds it, waits for it and drops it.
//!   3. Nothing is waited for while pages are held, but the Discard: its device is theirs.
//!   4. The hole counts as a change that is not durable before the next flush, before the gate
//!      opens: a sync that finds a page gone that it was to write waits for the gate, and then
//!      flushes.
//!
//!   5. Writers of the file wait for the device's Discards, and not for what a hole waits for: a
//!      write to an object that does not answer keeps that hole waiting, and nobody else. But a
//!      hole comes to its end: where the same page is on its way again each time, `OPEN_WAITS`
//!      times, it is waited for with the gate shut.
//!   6. Each hold of the gate asks if the hole is still wanted: one whose client has ended goes no
//!      further (`File::end`).
//!
//! A hold of the gate is at most `STEP` long, and writers that were turned away go in before the
//! next one: writers and syncs of the file get their turn in between.
//!
//! Concurrency: one punch or truncation of a file at a time (the gate). Deviation from Linux, which
//! drops the pages first and punches then (v6.12 fs/ext4/inode.c, `ext4_punch_hole()`): there, a
//! failure in between loses what was dirty.

use std::sync::Arc;

use env::{Cause, IoOp, Task};
use frames::{Busy, Flags, FrameId, Refusal, Tag};
use policy::place::by_use::Purpose;
use policy::units::{Bytes, PAGE_SHIFT, PAGE_SIZE};

use crate::alloc::Wanted;
use crate::cache::{Cache, FILE_MAX};
use crate::file::File;
use crate::file::replace::{awaits_pins, replace_pinned};
use crate::file::sync::{LeftAlone, shut_settled, wait_frame};
use crate::file::truncate::{Which, drop_range, remove_busy, show_fresh};
use crate::registry::gate::ShutGate;
use crate::registry::mapping::Mapping;
use crate::{Error, writeback::io};

/// Pages of one hold of the gate: 16 MiB, from a multiple of it to the next, so that objects of a
/// store go as a whole.
const STEP: u32 = 1 << 12;
/// Number of times that a hole waits with the gate open without having come any further.
const OPEN_WAITS: u32 = 8;
/// Dirty pages held at once.
const HELD_MAX: usize = 256;
/// Pages looked at in one hold of the index lock.
const RUN_MAX: u32 = 1024;

impl File {
    /// Punches a hole: the whole pages inside `from..from + len` lose their content, dirty or not,
    /// give their space on the device back and read as zeroes. A last page that the file ends in
    /// counts as whole if the range reaches the end. The length stays. Where exactly the hole is
    /// while this runs, nobody can tell.
    ///
    /// The space may be missing when the hole is written again: a disk that has filled up meanwhile
    /// then fails the write-back, not the write.
    ///
    /// # Errors
    /// `PunchFailed` with where (what lies before it is punched; what lies behind has its old
    /// content, or is zeroes where it was not dirty; `Error::is_unsupported` if the device cannot
    /// do it at all), `FlushFailed`, `OutOfMemory` (a pinned page needs a copy), `MetadataFailed`
    /// (a truncation had failed before), `Cancelled`.
    pub fn punch(&self, task: &mut Task<'_>, from: Bytes, len: Bytes) -> Result<(), Error> {
        let (cache, mapping) = (&self.cache, &self.mapping);
        let page = |page: u64| u32::try_from(page).expect("below FILE_MAX");
        let to = from.0.saturating_add(len.0).min(FILE_MAX);
        // First page of the range that is no part of the hole, as the file's end is now.
        let end_now = || {
            let size = mapping.size();
            page(if to >= size {
                size.div_ceil(PAGE_SIZE)
            } else {
                to >> PAGE_SHIFT
            })
        };
        let first = from.0.div_ceil(PAGE_SIZE);
        let last = end_now();
        if first >= u64::from(last) {
            return Ok(());
        }
        mapping.device.flush_failure(task)?;
        let mut at = page(first);
        let mut waited = 0;
        loop {
            let file = shut_settled(task, cache, mapping)?;
            // Behind the gate: where the file has grown, the page that it ended in holds bytes
            // behind the range. A writer that goes on at the end is not followed.
            let end = last.min(end_now());
            if at >= end {
                break;
            }
            // The flusher leaves the file alone: what it would write is about to go.
            let alone = LeftAlone::new(cache, mapping, false);
            let before = at;
            let step = end.min((at / STEP + 1).saturating_mul(STEP));
            let keeps_shut = waited >= OPEN_WAITS;
            let result = punch_gated(task, cache, &file, &mut at, step, keeps_shut);
            drop(file);
            drop(alone);
            waited = if at > before { 0 } else { waited + 1 };
            match result? {
                Some(obstacle) => obstacle.wait(task, cache, mapping)?,
                None if at < end => mapping.let_in(task)?,
                None => break,
            }
        }
        Ok(())
    }

    /// The next run of pages at or after `from` and before `to` that are dirty or on their way to
    /// the device: where it begins and how long it is, in whole pages. Long runs may be cut; ask
    /// again from their end. Waits for nothing.
    pub fn next_unwritten(
        &self,
        task: &Task<'_>,
        from: Bytes,
        to: Bytes,
    ) -> Option<(Bytes, Bytes)> {
        let to = to.0.min(self.mapping.size()).min(FILE_MAX);
        if from.0 >= to {
            return None;
        }
        let page = |offset: u64| u32::try_from(offset >> PAGE_SHIFT).expect("below FILE_MAX");
        let (from, last) = (page(from.0), page(to - 1));
        let mut token = self.mapping.token.lock(task);
        let index = self
            .mapping
            .index
            .writer(&self.cache.pages.pool, &mut token);
        let next = |from| {
            let tagged = |tag| index.next_tagged(from, last, tag).map(|(page, _)| page);
            let (dirty, writeback) = (tagged(Tag::Dirty), tagged(Tag::Writeback));
            [dirty, writeback].into_iter().flatten().min()
        };
        let first = next(from)?;
        let mut count = 1;
        while count < RUN_MAX
            && first.checked_add(count).is_some_and(|page| {
                page <= last
                    && (index.has_tag(page, Tag::Dirty) || index.has_tag(page, Tag::Writeback))
            })
        {
            count += 1;
        }
        let bytes = |pages: u32| Bytes(u64::from(pages) << PAGE_SHIFT);
        Some((bytes(first), bytes(count)))
    }
}

/// Punches from `at` on, which is where it has come to in the end.
///
/// Answers what it has to wait for before it can go on; with `keeps_shut` it waits here.
fn punch_gated(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    mapping: &ShutGate<'_>,
    at: &mut u32,
    to: u32,
    keeps_shut: bool,
) -> Result<Option<Obstacle>, Error> {
    let mut held = Vec::new();
    while *at < to {
        match hold(task, cache, mapping, *at, to, &mut held) {
            Until::Page(end) => {
                discard(task, cache, mapping, *at, end, &mut held)?;
                *at = end;
            }
            // Nothing is held. A copy comes into the cache: that takes the gate.
            Until::Gone(obstacle) if keeps_shut || matches!(obstacle.why, Why::Pinned) => {
                obstacle.wait(task, cache, mapping)?;
            }
            Until::Gone(obstacle) => return Ok(Some(obstacle)),
        }
    }
    Ok(None)
}

/// The end of the pages that could be held.
enum Until {
    /// Up to here; never nothing.
    Page(u32),
    /// Something has to pass first.
    Gone(Obstacle),
}

/// A page that cannot be held as it is.
struct Obstacle {
    page: u32,
    frame: FrameId,
    why: Why,
}

#[derive(Clone, Copy)]
enum Why {
    Writeback,
    Busy,
    Pinned,
}

/// Takes the busy bits of dirty pages from `from` on.
fn hold(
    task: &Task<'_>,
    cache: &Cache,
    mapping: &Mapping,
    from: u32,
    to: u32,
    held: &mut Vec<(u32, Busy)>,
) -> Until {
    let mut next = from;
    while next < to && held.len() < HELD_MAX {
        let (dirty, writeback) = {
            let mut token = mapping.token.lock(task);
            let index = mapping.index.writer(&cache.pages.pool, &mut token);
            let tagged = |tag| index.next_tagged(next, to - 1, tag);
            (tagged(Tag::Dirty), tagged(Tag::Writeback))
        };
        let under_way = |(page, _)| writeback.is_some_and(|(other, _)| other <= page);
        let ((page, frame), taken) = match (dirty, writeback) {
            (None, None) => return Until::Page(to),
            (Some(dirty), _) if !under_way(dirty) => (dirty, take(cache, mapping, dirty)),
            (_, Some(writeback)) => (writeback, Err(Some(Why::Writeback))),
            (Some(_), None) => unreachable!("nothing is under way before it"),
        };
        match taken {
            Ok(busy) => {
                held.push((page, busy));
                next = page + 1;
            }
            // Written or replaced at this very moment: look again.
            Err(None) => {}
            // The part ends before it.
            Err(Some(_)) if !held.is_empty() => return Until::Page(page),
            Err(Some(why)) => return Until::Gone(Obstacle { page, frame, why }),
        }
    }
    Until::Page(next)
}

/// Takes the busy bit of a dirty page that is not under writeback. `None`: its state has just
/// changed.
fn take(
    cache: &Cache,
    mapping: &Mapping,
    (page, frame): (u32, FrameId),
) -> Result<Busy, Option<Why>> {
    let is_written = || cache.pages.table.flags(frame).has(Flags::WRITEBACK);
    match cache.pages.table.try_busy(frame, mapping.owner(page)) {
        Ok(busy) => {
            let why = is_written().then_some(Why::Writeback);
            if why.is_none() && cache.pages.table.flags(frame).has(Flags::DIRTY) {
                return Ok(busy);
            }
            cache.release(busy, Flags::NONE, Flags::NONE);
            Err(why)
        }
        Err(Refusal::Busy) => Err(Some(Why::Busy)),
        Err(Refusal::Pinned) if is_written() => Err(Some(Why::Writeback)),
        Err(Refusal::Pinned) => Err(Some(Why::Pinned)),
        Err(_) => Err(None),
    }
}

impl Obstacle {
    /// Waits until it is none, or takes it away. The caller holds nothing.
    fn wait(
        &self,
        task: &mut Task<'_>,
        cache: &Arc<Cache>,
        mapping: &Arc<Mapping>,
    ) -> Result<(), Error> {
        let (page, frame) = (self.page, self.frame);
        match self.why {
            Why::Writeback => wait_frame(task, cache, mapping, page, frame),
            Why::Busy => cache.wait_busy(task, Cause::PageBusy, frame, mapping.owner(page)),
            Why::Pinned => unpin_by_copy(task, cache, mapping, page, frame),
        }
    }
}

/// Puts a copy in the place of a pinned page: its holder keeps what it sees, and the copy can be
/// held.
fn unpin_by_copy(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    mapping: &Arc<Mapping>,
    page: u32,
    frame: FrameId,
) -> Result<(), Error> {
    if awaits_pins(task, cache, frame)? {
        return Ok(());
    }
    let mut fresh = Vec::with_capacity(1);
    cache.alloc(task, Wanted::new(1, Purpose::Used), &mut fresh)?;
    let Some(new) = fresh.pop() else {
        return Ok(());
    };
    match replace_pinned(task, cache, mapping, page, frame, new) {
        Ok((busy, was_dirty)) => show_fresh(task, cache, busy, was_dirty),
        // No longer pinned, or written just now.
        Err(new) => cache.put_unused(task, &[new]),
    }
    Ok(())
}

/// Has the device discard the pages `from..to`, all dirty ones of which are held, and takes them
/// out of the cache.
fn discard(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    mapping: &ShutGate<'_>,
    from: u32,
    to: u32,
    held: &mut Vec<(u32, Busy)>,
) -> Result<(), Error> {
    let offset = Bytes(u64::from(from) << PAGE_SHIFT);
    let end = mapping.size().min(u64::from(to) << PAGE_SHIFT);
    let op = IoOp::Discard {
        len: Bytes(end.saturating_sub(offset.0)),
    };
    let (device, object) = (mapping.device.id, mapping.object);
    let result = io::call(task, device, object, op, offset, Cause::DeviceMetadata);
    // Also after a failure: a part of it may be done.
    mapping.note_completed();
    let which = if result.is_ok() {
        Which::All
    } else {
        Which::Clean
    };
    for (page, busy) in held.drain(..) {
        if result.is_ok() {
            remove_busy(task, cache, mapping, page, busy);
        } else {
            cache.release(busy, Flags::NONE, Flags::NONE);
        }
    }
    // Pages that were read before, and also those that are being read since.
    let dropped = drop_range(task, cache, mapping, from, to - 1, which);
    result.map_err(|cause| Error::punch(offset, cause))?;
    dropped
}
