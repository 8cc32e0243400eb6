//! Reading from the cache, with read-ahead.
//!
//! A call first asks `policy::readahead` what to read, from which of its pages are missing and
//! whether it came upon the mark of the last window. Missing pages enter the index busy, their
//! busy bits travel with the request, and the completion gives them back up to date. Then the call
//! copies page by page under pins, waiting for the busy ones. Read-ahead never waits for memory:
//! what cannot be had at once is left out.
//!
//! A page whose read failed stays in the index, not up to date, until somebody asks for it: that
//! caller forgets the page and tries the device again, once; whoever waited for the read that failed
//! gets the error.

use std::sync::Arc;

use env::{Cause, Env, Event, IoClass, IoDone, IoOp, IoRequest, Signal, Task, Work};
use frames::{Busy, Content, Flags, FrameId, Owner, Pin, Refusal, Slot};
use policy::readahead::{Readahead, Run, Window};
use policy::reclaim::scan::Kind;
use policy::reclaim::throttle::Who;
use policy::units::{Bytes, PAGE_SHIFT, PAGE_SIZE, Pages};

use crate::Error;
use crate::cache::{Cache, add, sub};
use crate::reclaim::direct::direct;
use crate::reclaim::index_nodes::free_index_nodes;
use crate::registry::mapping::Mapping;
use crate::writeback::io::{self, REQUEST_PAGES};

/// What one reader of one file remembers, so that the cache can read ahead of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reader {
    readahead: Readahead,
    /// The last access, if its reader could not wait for all of it and will come back for the rest.
    pub(crate) stuck: Option<Stuck>,
}

/// An access in parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stuck {
    pub(crate) access: Run,
    /// The state before it, if what it needs could not be sent for: it is to be judged again.
    pub(crate) before: Option<Readahead>,
}

impl Reader {
    /// What it remembers of accesses that ended.
    pub(crate) const fn readahead(&self) -> Readahead {
        self.readahead
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

/// Reads `data` full from `offset`, less at the end of the file.
pub(crate) fn read<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Arc<Cache<E>>,
    mapping: &Arc<Mapping<E>>,
    reader: &mut Reader,
    offset: Bytes,
    data: &mut <E::Content as Content>::Data,
) -> Result<Bytes, Error> {
    let began = task.now();
    let len = E::Content::data_len(data) as u64;
    let end = offset.0.saturating_add(len).min(mapping.size());
    if offset.0 >= end {
        return Ok(Bytes::ZERO);
    }
    task.did(Work::Call, 1);
    let part = part_of_call(cache, pages_of(offset.0, end));
    let mut missed = Pages::ZERO;
    let mut at = offset.0;
    while at < end {
        let until = end.min(((at >> PAGE_SHIFT) + part) << PAGE_SHIFT);
        missed += read_ahead(task, cache, mapping, reader, at, until, end)?;
        match copy_out(task, cache, mapping, offset.0, &mut at, until, data) {
            Ok(()) => {}
            // The file was cut under the reader: what it got before is the answer.
            Err(Error::OutOfRange { .. }) => break,
            Err(error) => return Err(error),
        }
    }
    let bytes = read_to(mapping, offset, at);
    if bytes.is_zero() {
        return Ok(bytes);
    }
    task.did(Work::Copy, pages_of(offset.0, offset.0 + bytes.0));
    task.emit(&Event::Read {
        bytes,
        missed,
        took: task.now().since(began),
    });
    Ok(bytes)
}

/// How many pages of a call for `pages` pages are looked at together. One for more than a window is a stream of accesses, each
/// of which comes upon the mark of the window that it is in: what lies behind the window would be read page by page.
fn part_of_call<E: Env>(cache: &Cache<E>, pages: u64) -> u64 {
    let Pages(window) = cache.options.readahead_max;
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

/// Copies what lies from `at` to `end`, page by page, to its place in `data`, which begins at `offset`; `at` moves.
pub(crate) fn copy_out<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Arc<Cache<E>>,
    mapping: &Arc<Mapping<E>>,
    offset: u64,
    at: &mut u64,
    end: u64,
    data: &mut <E::Content as Content>::Data,
) -> Result<(), Error> {
    while *at < end {
        let page = page_of(*at);
        let until = end.min((u64::from(page) + 1) << PAGE_SHIFT);
        let pin = pin_page(task, cache, mapping, page)?;
        let within = usize::try_from(*at % PAGE_SIZE).expect("below a page");
        let count = usize::try_from(until - *at).expect("at most a page");
        let to = usize::try_from(*at - offset).expect("within the caller's data");
        cache.content().copy_out(&pin, within, data, to, count);
        cache.unpin(pin);
        *at = until;
    }
    Ok(())
}

/// Of what was copied from `offset` to `at`, that which is part of the file: it may have been cut meanwhile, and what was behind
/// the new end in its last page is zeroed.
pub(crate) fn read_to<E: Env>(mapping: &Mapping<E>, offset: Bytes, at: u64) -> Bytes {
    Bytes(at.min(mapping.size()).saturating_sub(offset.0))
}

/// Pages that bytes lie in. There is at least one byte.
pub(crate) fn pages_of(from: u64, end: u64) -> u64 {
    u64::from(page_of(end - 1)) - u64::from(page_of(from)) + 1
}

pub(crate) fn page_of(offset: u64) -> u32 {
    u32::try_from(offset >> PAGE_SHIFT).expect("below FILE_MAX")
}

/// Starts whatever reads the policy wants for an access to `from..end`, a part of a call that goes on to `call_end`; answers how
/// many of the pages asked for were missing.
pub(crate) fn read_ahead<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Arc<Cache<E>>,
    mapping: &Arc<Mapping<E>>,
    reader: &mut Reader,
    from: u64,
    end: u64,
    call_end: u64,
) -> Result<Pages, Error> {
    let (first, last) = (page_of(from), page_of(end - 1));
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
    let max = cache.options.readahead_max;
    let window = if max <= Pages(1) {
        // Nothing fits into it ahead of what was asked for. A miss still reads what was asked for, in one go.
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
        start_read(task, cache, mapping, run, mark, class)?;
        if let Some(ahead) = ahead {
            start_read(task, cache, mapping, ahead, mark, IoClass::ReadAhead)?;
        }
    }
    Ok(Pages(missed))
}

/// Starts reading the missing pages of a run, as far as the file goes and memory allows. Only for a
/// reader that waits for the first page does it wait for memory.
fn start_read<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Arc<Cache<E>>,
    mapping: &Arc<Mapping<E>>,
    run: Run,
    mark: Option<u64>,
    class: IoClass,
) -> Result<(), Error> {
    let pages_in_file = mapping.pages();
    let end = run.start.saturating_add(run.count.0).min(pages_in_file);
    let mut page = run.start;
    let mut frames: Vec<FrameId> = Vec::new();
    let mut is_short = false;
    while page < end {
        let at = u32::try_from(page).expect("pages of a file are 32 bits");
        if matches!(mapping.index.get(&cache.pages.pool, at), Slot::Frame(_)) {
            page += 1;
            continue;
        }
        let want = u32::try_from((end - page).min(REQUEST_PAGES as u64)).expect("small");
        let reading = &mapping.device.reading;
        let Some(room) = reading.room(cache, want) else {
            if page > run.start || class == IoClass::ReadAhead {
                break;
            }
            // Frames in hand would be missed by those it waits for.
            cache.put_unused(task, &frames);
            frames.clear();
            reading.wait_for_room(task, cache)?;
            continue;
        };
        let want = room.pages();
        if frames.is_empty() && cache.try_alloc(task, want, &mut frames)? == 0 {
            drop(room);
            // Clean pages make room without a wait; a window cut short would leave the device idle.
            let who = Who {
                exempt: class == IoClass::ReadAhead,
                ..cache.who(task, Kind::File)
            };
            if task.is_willing() && !is_short {
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
            cache.alloc(task, Kind::File, want, &mut frames)?;
            continue;
        }
        let last = u32::try_from(end - 1).expect("pages of a file are 32 bits");
        let last = last.min(at.saturating_add(want - 1));
        let mark = mark.and_then(|mark| u32::try_from(mark).ok());
        let request = insert_run(task, cache, mapping, at, last, mark, &mut frames);
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
        page += request.pages().0;
        request.class = class;
        request.on_done(Arc::clone(mapping) as Arc<dyn IoDone>);
        task.did(Work::Insert, request.pages().0);
        let count = u32::try_from(request.pages().0).expect("no more than there was room for");
        room.send(task.now(), count);
        io::submit(task, request);
    }
    cache.put_unused(task, &frames);
    Ok(())
}

/// Puts busy frames into the index for the missing pages from `first` on, up to the first that is
/// cached; answers the request that fills them. Uses frames from the front of `frames`.
fn insert_run<E: Env>(
    task: &Task<'_, E>,
    cache: &Cache<E>,
    mapping: &Mapping<E>,
    first: u32,
    last: u32,
    mark: Option<u32>,
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
    add(&cache.writeback.totals.cached, count as u64);
    cache.lru_add(task, &request.frames);
    request.device = mapping.device.id;
    request.object = mapping.object;
    request.op = IoOp::Read;
    request.offset = Bytes(u64::from(first) << PAGE_SHIFT);
    Some(request)
}

/// Pins a page for reading, reading it in if it is missing.
pub(crate) fn pin_page<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Arc<Cache<E>>,
    mapping: &Arc<Mapping<E>>,
    page: u32,
) -> Result<Pin, Error> {
    let pin = pin_untouched(task, cache, mapping, page)?;
    cache.touch(pin.frame());
    Ok(pin)
}

/// Pins a page, which is no access to it.
pub(crate) fn pin_untouched<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Arc<Cache<E>>,
    mapping: &Arc<Mapping<E>>,
    page: u32,
) -> Result<Pin, Error> {
    let owner = mapping.owner(page);
    // Whether the page was read since this call began. If not, a failure is an older one, of
    // read-ahead perhaps, and the device is asked again.
    let mut tried = false;
    // Whether it was there and went before this task ran.
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
pub(crate) fn fill_one<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Arc<Cache<E>>,
    mapping: &Arc<Mapping<E>>,
    page: u32,
) -> Result<(), Error> {
    let pin = pin_page(task, cache, mapping, page)?;
    cache.unpin(pin);
    Ok(())
}

/// Takes a clean page out of the cache and frees its frame; the caller holds its busy bit.
pub(crate) fn forget<E: Env>(
    task: &Task<'_, E>,
    cache: &Cache<E>,
    mapping: &Mapping<E>,
    page: u32,
    busy: Busy,
) {
    let frame = busy.frame();
    {
        let mut token = mapping.token.lock(task);
        let mut index = mapping.index.writer(&cache.pages.pool, &mut token);
        index.remove(page, None);
        let mut lru = cache.nodes.lru(task);
        lru.remove(frame);
        cache.pages.table.disown(busy);
    }
    sub(&cache.writeback.totals.cached, 1);
    cache.wake_busy(&[frame], Signal::PageUnlocked);
    cache.memory.put(task, &[frame]);
}

impl<E: Env> Cache<E> {
    /// Looks a page up and pins it: no lock, no task, no `Env` call.
    pub(crate) fn try_pin(&self, mapping: &Mapping<E>, page: u32) -> Option<Pin> {
        let Slot::Frame(frame) = mapping.index.get(&self.pages.pool, page) else {
            return None;
        };
        let owner = Owner {
            file: mapping.id,
            index: page,
        };
        let pin = self.pages.table.try_pin(frame, owner).ok()?;
        self.touch(frame);
        Some(pin)
    }

    /// Notes an access: the first marks the page referenced, the second has it made active.
    pub(crate) fn touch(&self, frame: FrameId) {
        let flags = self.pages.table.flags(frame);
        if !flags.has(Flags::REFERENCED) {
            self.pages
                .table
                .update(frame, Flags::REFERENCED, Flags::NONE);
        } else if !flags.has(Flags::ACTIVE) {
            self.pages.table.update(frame, Flags::ACTIVE, Flags::NONE);
        }
    }

    /// Gives a pin back; the last one of a replaced page frees its frame.
    pub(crate) fn unpin(&self, pin: Pin) {
        let frame = pin.frame();
        if self.pages.table.unpin(pin) {
            self.free_orphan(frame);
        }
    }

    #[cold]
    fn free_orphan(&self, frame: FrameId) {
        if self.pages.table.take_orphan(frame) {
            self.memory.put(&env::Interrupt::new(), &[frame]);
        }
    }
}
