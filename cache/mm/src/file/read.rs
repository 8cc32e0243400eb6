//! Reading from the cache, with read-ahead.
//!
//! A call first asks `policy::readahead` what to read, from which of its pages are missing and
//! whether it came upon the mark of the last window. Missing pages enter the index busy, their
//! busy bits travel with the request, and the completion gives them back up to date. Then the call
//! copies page by page under pins, waiting for the busy ones. Read-ahead never waits for memory: it
//! leaves out pages without a frame at once.
//!
//! A task that may not block copies what is in memory, up to the first page that is not. The pages
//! it needs behind that were sent for, as far as there was memory. A task that may block waits for
//! them (`Call::prepare`), and the reader comes back for the rest, which is the same access for
//! `policy::readahead`.
//!
//! A page whose read failed stays in the index, not up to date, until somebody asks for it: that
//! caller forgets the page and tries the device again, once; a task that waited for the read that
//! failed gets the error.

use core::ops::Range;
use core::sync::atomic::Ordering;
use std::sync::Arc;

use env::{Cause, Event, IoClass, IoDone, IoOp, IoRequest, Signal, Task, Work};
use frames::{Busy, DataMut, Flags, FrameId, Owner, Pin, Refusal, Slot};
use policy::place::by_use::Purpose;
use policy::readahead::{Readahead, Run, Window};
use policy::reclaim::scan::Kind;
use policy::reclaim::throttle::Who;
use policy::units::{Bytes, PAGE_SHIFT, PAGE_SIZE, Pages};

use crate::Error;
use crate::alloc::Wanted;
use crate::cache::Cache;
use crate::file::File;
use crate::file::advise::Said;
use crate::file::write::Progress;
use crate::lists::FarPages;
use crate::reclaim::direct::direct;
use crate::reclaim::index_nodes::free_index_nodes;
use crate::registry::mapping::Mapping;
use crate::vmstat::Item;
use crate::writeback::io::{self, REQUEST_PAGES};

#[cfg(test)]
mod tests;

/// Pages that one reader waits for at a time, at most; and all of them together: this part of the
/// frames.
const READ_MAX: u32 = 256;
const READ_PART: u32 = 4;
/// Pages of a call that may be read without a reader: more is read as well by one.
const HITS_MAX: u64 = 16;
/// Bytes that one wait looks at.
const ACCESS_MAX: u64 = 1 << 20;

/// One reader's state in one file, so that the cache can read ahead of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reader {
    readahead: Readahead,
    /// The last access, if its reader could not wait for all of it and will come back for the rest.
    stuck: Option<Stuck>,
    pub(super) said: Said,
}

/// An access in parts.
#[derive(Clone, Copy, Debug)]
struct Stuck {
    access: Run,
    /// The state before it, if what it needs could not be sent for: it is to be judged again.
    before: Option<Readahead>,
}

impl Reader {
    /// One that nothing is read ahead of.
    #[must_use]
    pub fn random() -> Self {
        Self {
            said: Said::RANDOM,
            ..Self::default()
        }
    }

    /// If an access from page `first` on is the rest of the last one: where that began.
    fn resumes(&mut self, first: u64) -> Option<u64> {
        let Stuck { access, before } = self.stuck.take()?;
        if !(access.start..access.end()).contains(&first) {
            return None;
        }
        self.readahead = before.unwrap_or(self.readahead);
        Some(access.start)
    }
}

/// One call of a reader: what it reads from, and which bytes of it, as far as the file goes.
pub(crate) struct Call<'a> {
    cache: &'a Arc<Cache>,
    mapping: &'a Arc<Mapping>,
    reader: &'a mut Reader,
    bytes: Range<u64>,
    /// Pages copied from other nodes.
    far: u64,
}

impl<'a> Call<'a> {
    /// A call for `len` bytes at `offset`.
    pub(crate) fn new(file: &'a File, reader: &'a mut Reader, offset: Bytes, len: Bytes) -> Self {
        Self::of((&file.cache, &file.mapping), reader, offset, len)
    }

    /// The same of a file without a handle.
    pub(super) fn of(
        (cache, mapping): (&'a Arc<Cache>, &'a Arc<Mapping>),
        reader: &'a mut Reader,
        offset: Bytes,
        len: Bytes,
    ) -> Self {
        let end = offset.0.saturating_add(len.0).min(mapping.size());
        Self {
            cache,
            mapping,
            reader,
            bytes: offset.0..end,
            far: 0,
        }
    }

    /// Fills `data`; where the task may not block, up to the first page that is not in memory,
    /// which is read if there is memory for it.
    pub(crate) fn read(
        self,
        task: &mut Task<'_>,
        mut data: DataMut<'_>,
    ) -> Result<Progress, Error> {
        let (content, start) = (self.cache.content(), self.bytes.start);
        self.with_pages(task, true, &mut |pin, within, at| {
            let to = usize::try_from(at - start).expect("within the caller's data");
            content.copy_out(pin, within.start, &mut data, to, within.len());
        })
    }

    /// Shows the bytes to `show`, each page's while it is pinned, in order: as far as `read` would
    /// go.
    pub(crate) fn show(
        self,
        task: &mut Task<'_>,
        show: &mut dyn FnMut(&Pin, Range<usize>),
    ) -> Result<Progress, Error> {
        self.with_pages(task, false, &mut |pin, within, _| show(pin, within))
    }

    /// Has `each` take pages one after the other: the bytes within a page that belong to the call,
    /// and where in the file they begin. `copies`: it copies them.
    fn with_pages(
        mut self,
        task: &mut Task<'_>,
        copies: bool,
        each: &mut impl FnMut(&Pin, Range<usize>, u64),
    ) -> Result<Progress, Error> {
        let began = task.begins_call();
        let (before, resumed) = (self.reader.readahead, self.reader.stuck);
        let mut at = self.bytes.start;
        let mut missed = Pages::ZERO;
        if !self.bytes.is_empty() {
            task.did(Work::Call, 1);
        }
        let would_block = match self.each_part(task, each, &mut at, &mut missed) {
            // The file was cut under the reader: what it got before is the answer.
            Ok(()) | Err(Error::OutOfRange { .. }) => false,
            Err(Error::WouldWait) => true,
            Err(error) => return Err(error),
        };
        if would_block {
            self.note_rest(at, before, resumed);
        }
        // It may have been cut meanwhile, and bytes behind the new end in its last page are zeroed.
        let start = self.bytes.start;
        let bytes = Bytes(at.min(self.mapping.size()).saturating_sub(start));
        if !bytes.is_zero() {
            let pages = pages_of(start, start + bytes.0);
            self.mapping.note_read(pages, missed);
            if copies {
                self.cache.copied(task, pages, self.far);
            } else {
                task.did(Work::Lookup, pages);
            }
            task.emit(&Event::Read {
                bytes,
                missed,
                took: task.took(began),
            });
        }
        Ok(Progress { bytes, would_block })
    }

    /// Takes part by part, having sent for what is missing of each; `at` moves.
    fn each_part(
        &mut self,
        task: &mut Task<'_>,
        each: &mut impl FnMut(&Pin, Range<usize>, u64),
        at: &mut u64,
        missed: &mut Pages,
    ) -> Result<(), Error> {
        let Range { start, end } = self.bytes;
        while *at < end {
            // A call that does not wait sends for all at once.
            let pages = pages_of(start, end);
            let part = if task.may_block() {
                part_of_call(self.cache, self.reader.said.window(self.cache), pages)
            } else {
                pages
            };
            let until = end.min(((*at >> PAGE_SHIFT) + part) << PAGE_SHIFT);
            match self.read_ahead(task, *at..until) {
                Ok(pages) => *missed += pages,
                // There may be pages before the first that could not be sent for.
                Err(Error::WouldWait) => {}
                Err(error) => return Err(error),
            }
            let mut far = self.cache.far(task);
            let taken = self.each_page(task, each, at, until, &mut far);
            self.far += far.take();
            taken?;
        }
        Ok(())
    }

    /// Takes what lies from `at` to `until`, page by page; `at` moves.
    fn each_page(
        &self,
        task: &mut Task<'_>,
        each: &mut impl FnMut(&Pin, Range<usize>, u64),
        at: &mut u64,
        until: u64,
        far: &mut FarPages<'_>,
    ) -> Result<(), Error> {
        while *at < until {
            let page = page_of(*at);
            let page_end = until.min((u64::from(page) + 1) << PAGE_SHIFT);
            let pin = if self.reader.said.no_reuse {
                pin_untouched(task, self.cache, self.mapping, page)?
            } else {
                pin_page(task, self.cache, self.mapping, page)?
            };
            let within = usize::try_from(*at % PAGE_SIZE).expect("below a page");
            let count = usize::try_from(page_end - *at).expect("at most a page");
            each(&pin, within..within + count, *at);
            far.uses(pin.frame());
            self.cache.unpin(pin);
            *at = page_end;
        }
        Ok(())
    }

    /// The reader will come back for what is left from `at` on. `before` and `resumed` are its
    /// state before this call.
    fn note_rest(&mut self, at: u64, before: Readahead, resumed: Option<Stuck>) {
        let first = u64::from(page_of(self.bytes.start));
        let start = resumed
            .filter(|stuck| (stuck.access.start..stuck.access.end()).contains(&first))
            .map_or(first, |stuck| stuck.access.start);
        let count = Pages(u64::from(page_of(self.bytes.end - 1)) + 1 - start);
        let page = self.mapping.index.get(&self.cache.pages.pool, page_of(at));
        let is_sent = matches!(page, Slot::Frame(_));
        let earlier = resumed.and_then(|stuck| stuck.before).unwrap_or(before);
        self.reader.stuck = Some(Stuck {
            access: Run { start, count },
            before: (!is_sent).then_some(earlier),
        });
    }

    /// Waits until the first page is in memory, and those behind it as far as that takes no more
    /// than what is read already or can be sent for at once.
    pub(crate) fn prepare(mut self, task: &mut Task<'_>) -> Result<(), Error> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        self.bring(task).map(drop)
    }

    /// Sees that each page can be read, which is no access to them: they may be gone again when
    /// they are asked for. A range that goes on where the last one ended is the same access.
    pub(crate) fn verify(mut self, task: &mut Task<'_>) -> Result<(), Error> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let Range { start, end } = self.bytes;
        let (first, last) = (page_of(start), page_of(end - 1));
        let goes_on = |access: &Run| (0..=1).contains(&access.end().wrapping_sub(u64::from(first)));
        let begins = self
            .reader
            .stuck
            .map(|stuck| stuck.access)
            .filter(goes_on)
            .map_or(u64::from(first), |access| access.start);
        let brought = self.bring(task)?;
        for page in first + brought..=last {
            match pin_untouched(task, self.cache, self.mapping, page) {
                Ok(pin) => self.cache.unpin(pin),
                // Cut under the reader.
                Err(Error::OutOfRange { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        if let Some(stuck) = &mut self.reader.stuck {
            stuck.access = Run {
                start: begins,
                count: Pages(u64::from(last) + 1 - begins),
            };
        }
        Ok(())
    }

    /// Brings pages into memory, from the first on as far as `prepare` says; answers how many were
    /// there.
    fn bring(&mut self, task: &mut Task<'_>) -> Result<u32, Error> {
        let (cache, mapping) = (self.cache, self.mapping);
        let start = self.bytes.start;
        let end = self.bytes.end.min(start.saturating_add(ACCESS_MAX));
        self.read_ahead(task, start..end)?;
        let (first, last) = (page_of(start), page_of(end - 1));
        // Pinned until all are there: where memory is short, the last would drive the first out.
        // Nobody waits for memory with pages in hand, and all that are here leave most of it to
        // others.
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
        // The copy that follows is a part of the same access.
        self.reader.stuck = Some(Stuck {
            access: Run {
                start: u64::from(first),
                count: Pages(pages_of(start, end)),
            },
            before: None,
        });
        match result {
            // Cut under the reader.
            Err(Error::OutOfRange { .. }) => Ok(brought),
            result => result.map(|()| brought),
        }
    }

    /// Sends for what is missing of all of it, and for what comes next; answers how many of its
    /// pages were missing.
    pub(super) fn send(&mut self, task: &mut Task<'_>) -> Result<Pages, Error> {
        self.read_ahead(task, self.bytes.clone())
    }

    /// Starts whatever reads the policy wants for an access to a part of the call; answers how many
    /// of the pages asked for were missing.
    fn read_ahead(&mut self, task: &mut Task<'_>, part: Range<u64>) -> Result<Pages, Error> {
        let (cache, mapping, call_end) = (self.cache, self.mapping, self.bytes.end);
        let reader = &mut *self.reader;
        let (first, last) = (page_of(part.start), page_of(part.end - 1));
        let mut missing = None;
        let mut missed = 0;
        let mut on_mark = false;
        for page in first..=last {
            match mapping.index.get(&cache.pages.pool, page) {
                Slot::Frame(frame) => {
                    let flags = cache.pages.table.flags(frame);
                    if flags.has(Flags::MARK) {
                        on_mark = true;
                        cache.pages.table.update(frame, Flags::NONE, Flags::MARK);
                    }
                }
                Slot::Empty | Slot::Shadow(_) => {
                    missed += 1;
                    missing = missing.or(Some(u64::from(page)));
                }
            }
        }
        // The rest of an access is no access of its own.
        let resumed = reader.resumes(u64::from(first));
        if resumed.is_some() && missing.is_none() && !on_mark {
            return Ok(Pages::ZERO);
        }
        let start = resumed.unwrap_or(u64::from(first));
        let count = Pages(u64::from(last) + 1 - start);
        let max = reader.said.window(cache);
        let window = if max <= Pages(1) {
            // Nothing fits into it ahead of what was asked for. A miss still reads what was asked
            // for, in one go.
            missing.map(|start| Window {
                start,
                count: Pages(u64::from(last) + 1 - start),
                mark: None,
                ahead: None,
            })
        } else {
            let call_end = u64::from(page_of(call_end - 1)) + 1;
            reader
                .readahead
                .on_access(Run { start, count }, call_end, missing, on_mark, max)
        };
        if let Some(window) = window {
            let class = if missing.is_some() {
                IoClass::Read
            } else {
                IoClass::ReadAhead
            };
            let Window {
                start,
                count,
                mark,
                ahead,
            } = window;
            let run = Run { start, count };
            if mark.is_some() {
                let more = ahead.map_or(Pages::ZERO, |ahead| ahead.count);
                cache.memory.took_window(task, count + more);
            }
            start_read(task, cache, mapping, run, mark, class)?;
            if let Some(ahead) = ahead {
                start_read(task, cache, mapping, ahead, mark, IoClass::ReadAhead)?;
            }
        }
        Ok(Pages(missed))
    }
}

/// Fills `data` from `offset` if that is a few pages, all of them in memory and none with a mark;
/// answers how many bytes. `None`: `Call::read` does it. No reader is told, nor needs to be: what
/// it learns from plain hits only sharpens its picture (`policy::readahead`).
pub(crate) fn read_hits(
    task: &mut Task<'_>,
    file: &File,
    offset: Bytes,
    mut data: DataMut<'_>,
    len: Bytes,
) -> Option<Bytes> {
    let (cache, mapping) = (&*file.cache, &*file.mapping);
    let end = offset.0.checked_add(len.0)?.min(mapping.size());
    if offset.0 >= end || pages_of(offset.0, end) > HITS_MAX {
        return None;
    }
    // Of several pages, none is used before all are seen to be there without a mark: or they would
    // be used twice.
    if pages_of(offset.0, end) > 1 && !is_cached(cache, mapping, offset, len, Flags::MARK) {
        return None;
    }
    let began = task.begins_call();
    let mut far = cache.far(task);
    let mut at = offset.0;
    while at < end {
        let page_end = end.min(((at >> PAGE_SHIFT) + 1) << PAGE_SHIFT);
        let (pin, flags) = cache.try_pin_untouched(mapping, page_of(at))?;
        let is_marked = flags.has(Flags::MARK);
        if !is_marked {
            cache.touch_seen(pin.frame(), flags);
            let within = usize::try_from(at % PAGE_SIZE).expect("below a page");
            let count = usize::try_from(page_end - at).expect("at most a page");
            let to = usize::try_from(at - offset.0).expect("within the caller's data");
            cache.content().copy_out(&pin, within, &mut data, to, count);
            far.uses(pin.frame());
        }
        cache.unpin(pin);
        if is_marked {
            return None;
        }
        at = page_end;
    }
    if mapping.size() < end {
        // Cut meanwhile.
        return None;
    }
    let (pages, bytes) = (pages_of(offset.0, end), Bytes(end - offset.0));
    mapping.note_read(pages, Pages::ZERO);
    task.did(Work::Call, 1);
    cache.copied(task, pages, far.take());
    task.emit(&Event::Read {
        bytes,
        missed: Pages::ZERO,
        took: task.took(began),
    });
    Some(bytes)
}

/// Number of pages of a call for `pages` pages that are looked at together. One for more than a
/// window is a stream of accesses, each of which comes upon the mark of the window that it is in:
/// what lies behind the window would be read page by page.
fn part_of_call(cache: &Cache, Pages(window): Pages, pages: u64) -> u64 {
    if window <= 1 {
        // Parts that do not drive one another out, and have no marks.
        return pages.min((REQUEST_PAGES as u64).min(u64::from(cache.options.frames) / 16));
    }
    if pages > window {
        (window / 2).max(1)
    } else {
        pages
    }
}

/// Pages that bytes lie in. There is at least one byte.
pub(crate) fn pages_of(from: u64, end: u64) -> u64 {
    u64::from(page_of(end - 1)) - u64::from(page_of(from)) + 1
}

pub(crate) fn page_of(offset: u64) -> u32 {
    u32::try_from(offset >> PAGE_SHIFT).expect("below FILE_MAX")
}

/// True if all of a range is in memory, no page of it with one of the flags `unless`: a look, which
/// is no access.
pub(crate) fn is_cached(
    cache: &Cache,
    mapping: &Mapping,
    offset: Bytes,
    len: Bytes,
    unless: Flags,
) -> bool {
    let end = offset.0.saturating_add(len.0).min(mapping.size());
    let is_there = |page| {
        let Slot::Frame(frame) = mapping.index.get(&cache.pages.pool, page) else {
            return false;
        };
        let flags = cache.pages.table.flags(frame);
        flags.has(Flags::UPTODATE)
            && !flags.any(unless)
            && cache.pages.table.owner(frame) == mapping.owner(page)
    };
    offset.0 >= end || (page_of(offset.0)..=page_of(end - 1)).all(is_there)
}

/// Pins a page, waiting once for the task that fills it, but not for memory. If its read fails, the
/// first task that needs the page finds out.
fn pin_or_await(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    mapping: &Arc<Mapping>,
    page: u32,
) -> Result<Pin, Error> {
    let pinned = task.nonblocking(|task| pin_untouched(task, cache, mapping, page));
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

/// Starts reading the missing pages of a run, as far as the file goes and memory allows. Only for a
/// reader that waits for the first page does it wait for memory.
pub(super) fn start_read(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    mapping: &Arc<Mapping>,
    run: Run,
    mark: Option<u64>,
    class: IoClass,
) -> Result<(), Error> {
    let pages_in_file = mapping.pages();
    let end = run.start.saturating_add(run.count.0).min(pages_in_file);
    let mut page = run.start;
    let mut frames: Vec<FrameId> = Vec::new();
    let mut is_short = false;
    let mut is_first = true;
    // A window has a mark, at which the next one begins.
    let purpose = if mark.is_some() || class == IoClass::ReadAhead {
        Purpose::Stream
    } else {
        Purpose::Used
    };
    while page < end {
        let at = u32::try_from(page).expect("pages of a file are 32 bits");
        if matches!(mapping.index.get(&cache.pages.pool, at), Slot::Frame(_)) {
            page += 1;
            continue;
        }
        let want = u32::try_from((end - page).min(REQUEST_PAGES as u64)).expect("small");
        let inflight = &mapping.device.reads_inflight;
        let reading = &cache.writeback.totals.reading;
        let Some(room) = inflight.room(task.now(), reading, cache.memory.limit_frames(), want)
        else {
            if page > run.start || class == IoClass::ReadAhead {
                break;
            }
            // Frames in hand would be missed by those it waits for.
            cache.put_unused(task, &frames);
            frames.clear();
            inflight.wait_for_room(task, reading, || cache.memory.limit_frames())?;
            continue;
        };
        let want = room.pages();
        let asked = Wanted::new(want, purpose).among(cache.lies_in(mapping, false));
        if frames.is_empty() && cache.try_alloc(task, asked, &mut frames)? == 0 {
            drop(room);
            // Clean pages make room without a wait; a window cut short would leave the device idle.
            let who = Who {
                exempt: class == IoClass::ReadAhead,
                ..cache.who(task, Kind::File)
            };
            if task.may_block() && !is_short {
                let wanted = Pages(u64::from(want));
                let freed = direct(task, cache, wanted, who);
                // The next pages would drive out those that were just read.
                is_short = freed < wanted;
                if !freed.is_zero() {
                    continue;
                }
            }
            if page > run.start || class == IoClass::ReadAhead {
                break;
            }
            cache.alloc(task, asked, &mut frames)?;
            continue;
        }
        let last = u32::try_from(end - 1).expect("pages of a file are 32 bits");
        let last = last.min(at.saturating_add(want - 1));
        let mark = mark.and_then(|mark| u32::try_from(mark).ok());
        let request = insert_run(
            task,
            cache,
            mapping,
            (at, last),
            (mark, purpose),
            &mut frames,
        );
        let Some(mut request) = request else {
            if u64::from(at) >= mapping.pages() {
                break;
            }
            drop(room);
            // No index node, or the page has come meanwhile.
            if matches!(mapping.lookup(task, &cache.pages.pool, at), Slot::Frame(_)) {
                page += 1;
                continue;
            }
            cache.put_unused(task, &frames);
            frames.clear();
            free_index_nodes(task, cache)?;
            continue;
        };
        settle_read(task, cache, mapping, at, &request.busy);
        page += request.pages().0;
        request.class = class;
        request.on_done(Arc::clone(mapping) as Arc<dyn IoDone>);
        task.did(Work::Insert, request.pages().0);
        cache.settle_overhead(task);
        let count = u32::try_from(request.pages().0).expect("no more than there was room for");
        room.send(count);
        // All that its reader needs, and it goes on to wait for it.
        let is_all = core::mem::take(&mut is_first) && page >= end;
        if is_all && mark.is_none() && class == IoClass::Read && task.may_block() {
            // Others may want them meanwhile.
            cache.put_unused(task, &frames);
            frames.clear();
            request.in_place = true;
        }
        io::submit(task, request);
    }
    cache.put_unused(task, &frames);
    Ok(())
}

/// Puts busy frames into the index for the missing pages from `first` on, up to the first that is
/// cached; answers the request that fills them. Uses frames from the front of `frames`.
fn insert_run(
    task: &Task<'_>,
    cache: &Cache,
    mapping: &Mapping,
    (first, last): (u32, u32),
    (mark, purpose): (Option<u32>, Purpose),
    frames: &mut Vec<FrameId>,
) -> Option<Box<IoRequest>> {
    let mut request = IoRequest::with_room(frames.len());
    let mut refused = None;
    {
        let mut token = mapping.token.lock(task);
        let mut index = mapping.index.writer(&cache.pages.pool, &mut token);
        // Looked at again under the lock: a truncation sets the size first and then takes out what
        // it finds, so nothing may come in behind it.
        let pages_in_file = mapping.pages();
        for (page, frame) in (first..=last).zip(frames.iter()) {
            if u64::from(page) >= pages_in_file {
                break;
            }
            if matches!(index.get(page), Slot::Frame(_)) {
                break;
            }
            let busy = cache.pages.table.claim(*frame);
            cache.pages.table.adopt(&busy, mapping.owner(page));
            match index.insert(page, *frame) {
                Ok(Slot::Shadow(shadow)) => cache.refaulted(task, *frame, shadow.0),
                Ok(_) => {}
                Err(_) => {
                    refused = Some(cache.pages.table.disown(busy));
                    break;
                }
            }
            if mark == Some(page) {
                cache.pages.table.update(*frame, Flags::MARK, Flags::NONE);
            }
            request.frames.push(*frame);
            request.busy.push(busy);
        }
    }
    cache.wake_busy(refused.as_slice(), Signal::PageUnlocked);
    let count = request.frames.len();
    if count == 0 {
        return None;
    }
    frames.drain(..count);
    cache.writeback.totals.cached.add(count as u64);
    cache.add_files(task, &request.frames, purpose == Purpose::Stream);
    request.device = mapping.device.id;
    request.object = mapping.object;
    request.op = IoOp::Read;
    request.offset = Bytes(u64::from(first) << PAGE_SHIFT);
    Some(request)
}

/// Pages that are about to be read are to lie where the program has mapped the file, if it has: so
/// they need not be copied there. Where the system has no memory for that, the fault that wants
/// them hears it.
fn settle_read(task: &Task<'_>, cache: &Cache, mapping: &Mapping, first: u32, frames: &[Busy]) {
    // Most files have none, and their reads are not to take a lock for it.
    let map = mapping.is_live().then(|| mapping.page_map(task));
    let Some(map) = map.flatten() else {
        return;
    };
    let inside = usize::try_from(map.pages().saturating_sub(first)).unwrap_or(usize::MAX);
    let frames: Vec<_> = frames.iter().take(inside).collect();
    if let Some(live) = map.live().filter(|_| !frames.is_empty()) {
        let _ = cache.content().settle(live, first, &frames, true);
    }
}

/// Pins a page for reading, reading it in if it is missing.
pub(crate) fn pin_page(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    mapping: &Arc<Mapping>,
    page: u32,
) -> Result<Pin, Error> {
    let pin = pin_untouched(task, cache, mapping, page)?;
    cache.touch(pin.frame());
    Ok(pin)
}

/// Pins a page, which is no access to it.
pub(crate) fn pin_untouched(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    mapping: &Arc<Mapping>,
    page: u32,
) -> Result<Pin, Error> {
    let owner = mapping.owner(page);
    // True once the page was read since this call began. If not, a failure is an older one, of
    // read-ahead perhaps, and the device is asked again.
    let mut tried = false;
    // True if it was there and was evicted before this task ran.
    let mut lost = false;
    let mut held = None;
    loop {
        let Slot::Frame(frame) = mapping.index.get(&cache.pages.pool, page) else {
            lost |= tried;
            let run = Run {
                start: u64::from(page),
                count: Pages(1),
            };
            if u64::from(page) >= mapping.pages() {
                // Truncated while we read.
                return Err(Error::no_page(page, mapping.size()));
            }
            start_read(task, cache, mapping, run, None, IoClass::Read)?;
            tried = true;
            continue;
        };
        match cache.pages.table.try_pin(frame, owner) {
            Ok(pin) => return Ok(pin),
            Err(Refusal::Busy) => {
                if lost {
                    let (_, generation) = cache.pages.table.look(frame);
                    drop(held.replace(cache.pages.awaited.hold(task, frame, generation)));
                }
                cache.wait_busy(task, Cause::ReadIo, frame, owner)?;
                tried = true;
            }
            Err(Refusal::NotUptodate) => {
                if let Ok(busy) = cache.pages.table.try_busy(frame, owner) {
                    if cache.pages.table.flags(frame).has(Flags::UPTODATE) {
                        // Overwritten as a whole meanwhile.
                        cache.release(busy, Flags::NONE, Flags::NONE);
                        continue;
                    }
                    forget(task, cache, mapping, page, busy);
                    if !tried {
                        continue;
                    }
                    let offset = Bytes(u64::from(page) << PAGE_SHIFT);
                    return Err(Error::read(offset, mapping.read_error(task)));
                }
            }
            Err(_) => task.did(Work::Lookup, 1),
        }
    }
}

/// Brings a page into the cache and waits for it.
pub(crate) fn fill_one(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    mapping: &Arc<Mapping>,
    page: u32,
) -> Result<(), Error> {
    let pin = pin_page(task, cache, mapping, page)?;
    cache.unpin(pin);
    Ok(())
}

/// Takes a clean page out of the cache and frees its frame; the caller holds its busy bit.
pub(crate) fn forget(task: &Task<'_>, cache: &Cache, mapping: &Mapping, page: u32, busy: Busy) {
    let frame = busy.frame();
    cache.content().vacate(&[frame]);
    {
        let mut token = mapping.token.lock(task);
        let mut index = mapping.index.writer(&cache.pages.pool, &mut token);
        index.remove(page, None);
        cache.unmap(task, mapping, page, frame);
        let mut lru = cache.zones.lru(task);
        lru.remove(frame);
        cache.pages.table.disown(busy);
    }
    cache.writeback.totals.cached.sub(1);
    cache.wake_busy(&[frame], Signal::PageUnlocked);
    cache.memory.put(task, &[frame]);
}

impl Cache {
    /// Looks a page up and pins it, unless it has one of these flags: no lock, no task, no `Env`
    /// call. The flags are those with the pin.
    #[inline]
    pub(crate) fn try_pin(
        &self,
        mapping: &Mapping,
        page: u32,
        unless: Flags,
    ) -> Option<(Pin, Flags)> {
        let (pin, flags) = self.try_pin_untouched(mapping, page)?;
        if flags.any(unless) {
            self.unpin(pin);
            return None;
        }
        self.touch_seen(pin.frame(), flags);
        Some((pin, flags))
    }

    /// The same, which is no access to it.
    #[inline]
    pub(super) fn try_pin_untouched(&self, mapping: &Mapping, page: u32) -> Option<(Pin, Flags)> {
        let Slot::Frame(frame) = mapping.index.get(&self.pages.pool, page) else {
            return None;
        };
        let owner = Owner {
            file: mapping.id,
            index: page,
        };
        self.pages.table.try_pin_and_look(frame, owner).ok()
    }

    /// Notes an access: the first marks the page referenced, the second has it made active.
    #[inline]
    pub(crate) fn touch(&self, frame: FrameId) {
        self.touch_seen(frame, self.pages.table.flags(frame));
    }

    /// The same of a page that was seen with these flags: most are noted already.
    #[inline]
    fn touch_seen(&self, frame: FrameId, flags: Flags) {
        if let Some(ruled) = self.zones.ruled() {
            ruled.note_use(frame);
        } else if !flags.has(Flags::REFERENCED | Flags::ACTIVE) {
            self.note_access(frame, flags);
        }
    }

    #[inline(never)]
    fn note_access(&self, frame: FrameId, flags: Flags) {
        if let Some(order) = self.zones.order() {
            order.note_use(frame);
        } else if flags.has(Flags::REFERENCED) {
            self.activate(frame);
        } else {
            let table = &self.pages.table;
            table.update(frame, Flags::REFERENCED, Flags::NONE);
        }
    }

    /// A page was accessed a second time. Under most laws it is marked, and moved when a scan meets
    /// it.
    fn activate(&self, frame: FrameId) {
        if self.options.reclaim.law.activates_at_once {
            let moved = self
                .zones
                .activate(&env::Interrupt::new(), &self.pages, frame);
            self.counters.add(Item::Pgactivate, u64::from(moved));
        } else {
            let table = &self.pages.table;
            table.update(frame, Flags::ACTIVE, Flags::REFERENCED);
        }
    }

    /// Gives a pin back; the last one of a replaced page frees its frame.
    #[inline]
    pub(crate) fn unpin(&self, pin: Pin) {
        let frame = pin.frame();
        if self.pages.table.unpin(pin) {
            self.free_orphan(frame);
        }
    }

    #[cold]
    fn free_orphan(&self, frame: FrameId) {
        if self.pages.table.take_orphan(frame) {
            self.content().vacate(&[frame]);
            self.memory.put(&env::Interrupt::new(), &[frame]);
        }
    }
}
