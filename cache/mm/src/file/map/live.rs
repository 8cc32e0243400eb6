//! Maps whose pages a program uses by itself: what answers its faults.
//!
//! Invariants, the order rules of docs/adr/0033
//!   1. A store: the frame's busy bit, then the program may store (`Content::enter`), then the page
//!      is dirty, then the bit is given back, then the program is woken. So whoever starts its
//!      write or frees it, which no busy page is for, comes before all of it or after.
//!   2. A write: the index lock, under which the page becomes clean and is not storable any more,
//!      then `Content::protect`, under no lock, then the request. A store before the second is in
//!      what is written, one after it a fault.
//!   3. Eviction: the busy bits of a cluster, then `Content::vacate`, which takes the pages from
//!      the program, under no lock, then the index. A fault meanwhile waits for the bit.
//!   4. A load: a pin, which is kept over `enter`. Nobody frees or replaces the frame meanwhile.
//!   5. No task loads from or stores to a view while it has a busy bit or a pin: whoever answers
//!      the fault may need it. So callers' memory that lies in a view is copied before a call.
//!
//! A page is *at home* in the map before the program may use it: the one place that it has. A frame
//! that is at home has no pins but those of tasks that copy out of it.

use env::{Cause, Event, Task, Work};
use frames::{Flags, FrameId, Refusal, Slot};
use policy::units::{Bytes, PAGE_SHIFT, Pages};

use super::FileMap;
use super::fault::{Walk, is_hole, with_walk};
use crate::file::read::{self, Call, Reader};
use crate::file::sync::wait_frame;
use crate::file::write::{Filled, must_stay};
use crate::registry::page_map::Access;
use crate::vmstat::Item;
use crate::{Error, Touched, Writer};

/// Pages that come with the one that is loaded from at most, where loads run in order; and with one
/// that is stored to: where the stores end, those behind are written for nothing.
const LOADED: u32 = 64;
const STORED: u32 = 16;

/// Accesses of one thread of the program, so that what follows can come with them.
#[derive(Debug, Default)]
pub struct Stream {
    reader: Reader,
    /// The page behind the last answer, and how many it gave.
    next: u32,
    pages: u32,
}

impl Stream {
    /// Accesses to come, of a reader that was given advice.
    #[must_use]
    pub fn of(reader: Reader) -> Self {
        Self {
            reader,
            ..Self::default()
        }
    }
}

/// See `FileMap::fault`.
pub(super) fn fault(
    task: &mut Task<'_>,
    map: &FileMap,
    (writer, stream): (&mut Writer, &mut Stream),
    page: u32,
    access: Access,
) -> Result<Touched, Error> {
    let (cache, mapping) = (&map.cache, &map.mapping);
    let most = match access {
        Access::Load => LOADED,
        Access::Store => STORED,
    };
    let wanted = if stream.next == page {
        stream.pages.saturating_mul(2).clamp(1, most)
    } else {
        1
    };
    let end = page.saturating_add(wanted).min(map.pages);
    let ready = |from: u32| (from..end).take_while(|page| is_ready(map, *page)).count();
    let mut run = ready(page);
    let mut is_major = false;
    if run == 0 {
        let slot = mapping.index.get(&cache.pages.pool, page);
        is_major = !matches!(slot, Slot::Frame(_));
        if is_major && !task.may_block() {
            // The task that waits for the read does it.
            return Err(Error::WouldWait);
        }
        let began = task.now();
        let (at, len) = (u64::from(page) << PAGE_SHIFT, 1 << PAGE_SHIFT);
        let call = Call::of((cache, mapping), &mut stream.reader, Bytes(at), Bytes(len));
        call.prepare(task)?;
        if is_major {
            let took = task.now().since(began);
            task.emit(&Event::Faulted { major: true, took });
        }
        run = 1 + ready(page + 1);
    }
    let until = page + u32::try_from(run).expect("no more than are wanted");
    let touched = with_walk(task, map, access, |walk, task| {
        let mut at = page;
        // As the state changes meanwhile, the first may need several looks.
        while at == page {
            let before = walk.pages();
            walk.faults(task, writer, page, until)?;
            at += u32::try_from(walk.pages() - before).expect("no more than were asked for");
        }
        Ok(())
    });
    let mut touched = touched?;
    if task.may_block() && !map.map.has(page, access) {
        // Its pause has outlasted the page's write. Once more, and paid for by the next fault: else
        // a store that has little room to be dirty in would never be made.
        let _ = task.nonblocking(|task| {
            with_walk(task, map, access, |walk, task| {
                walk.faults(task, writer, page, page + 1)
            })
        });
    }
    let pages = u32::try_from(touched.pages.0).expect("no more than were asked for");
    (stream.next, stream.pages) = (page + pages, pages);
    if is_major {
        touched.major += Pages(1);
        cache.counters.add(Item::Pgmajfault, 1);
    }
    Ok(touched)
}

/// True if a page can be used without a read, and no reader is to be told of it.
fn is_ready(map: &FileMap, page: u32) -> bool {
    let (cache, mapping) = (&map.cache, &map.mapping);
    match mapping.index.get(&cache.pages.pool, page) {
        Slot::Frame(frame) => {
            let flags = cache.pages.table.flags(frame);
            flags.has(Flags::UPTODATE) && !flags.any(Flags::BUSY | Flags::MARK)
        }
        Slot::Empty | Slot::Shadow(_) => {
            u64::from(page) < mapping.pages() && is_hole(mapping, page)
        }
    }
}

impl Walk<'_> {
    /// Pages that met the access so far.
    fn pages(&self) -> u64 {
        self.touched.pages.0
    }

    /// True if a device reads a page where it is not at home: it cannot move there now.
    pub(super) fn is_read_elsewhere(&self, page: u32, frame: FrameId, flags: Flags) -> bool {
        let home = |live| self.cache.content().home(frame) == Some((live, page));
        let live = self.map.live();
        live.is_some_and(|live| flags.has(Flags::WRITEBACK) && !home(live))
    }

    /// Maps pages that are in memory for loads, from the first on as far as they are at home.
    pub(super) fn load_live(
        &mut self,
        task: &mut Task<'_>,
        live: u32,
        first: u32,
        until: u32,
    ) -> Result<(), Error> {
        let (cache, mapping) = (self.cache, self.mapping);
        let is_home = |page, frame| cache.content().home(frame) == Some((live, page));
        let pin = read::pin_untouched(task, cache, mapping, first)?;
        let frame = pin.frame();
        if !is_home(first, frame) {
            cache.unpin(pin);
            return self.move_in(task, live, first, frame);
        }
        let mut pins = vec![pin];
        for page in first + 1..until {
            match cache.try_pin_untouched(mapping, page) {
                Some((pin, flags)) if !flags.has(Flags::MARK) && is_home(page, pin.frame()) => {
                    pins.push(pin);
                }
                Some((pin, _)) => {
                    cache.unpin(pin);
                    break;
                }
                None => break,
            }
        }
        let mut stand = first;
        {
            let mut token = mapping.token.lock(task);
            let index = mapping.index.writer(&cache.pages.pool, &mut token);
            for (page, pin) in (first..).zip(&pins) {
                if index.get(page) != Slot::Frame(pin.frame()) {
                    break;
                }
                let table = &cache.pages.table;
                let before = table.update(pin.frame(), Flags::MAPPED, Flags::NONE);
                if !before.has(Flags::MAPPED) {
                    cache.zones.note_mapped(pin.frame());
                }
                if page == first {
                    self.map.map(page, Access::Load);
                } else {
                    self.map.map_beside(page, Access::Load);
                }
                stand = page + 1;
            }
        }
        if stand > first {
            cache.content().enter(live, first..stand, false);
        }
        pins.into_iter().for_each(|pin| cache.unpin(pin));
        self.met(u64::from(stand - first));
        Ok(())
    }

    /// A page that is in memory gets its place in the map.
    fn move_in(
        &mut self,
        task: &mut Task<'_>,
        live: u32,
        page: u32,
        frame: FrameId,
    ) -> Result<(), Error> {
        let (cache, mapping) = (self.cache, self.mapping);
        let owner = mapping.owner(page);
        match cache.pages.table.try_busy(frame, owner) {
            Ok(busy) => {
                let flags = cache.pages.table.flags(frame);
                if flags.has(Flags::WRITEBACK) {
                    cache.release(busy, Flags::NONE, Flags::NONE);
                    return wait_frame(task, cache, mapping, page, frame);
                }
                if !flags.has(Flags::UPTODATE) {
                    read::forget(task, cache, mapping, page, busy);
                    return Ok(());
                }
                let settled = cache.content().settle(live, page, &[&busy], false);
                cache.release(busy, Flags::NONE, Flags::NONE);
                settled.map_err(|refused| Error::NoMemory {
                    errno: refused.errno,
                })
            }
            Err(Refusal::Pinned) => self.beside_pins(task, page, frame),
            Err(Refusal::Busy) => cache.wait_busy(task, Cause::PageBusy, frame, owner),
            Err(_) => {
                task.did(Work::Lookup, 1);
                Ok(())
            }
        }
    }

    /// Takes pages that can be stored to at once, after the one that is ready.
    pub(super) fn take_more(&mut self, pages: core::ops::Range<u32>) {
        let (cache, mapping) = (self.cache, self.mapping);
        let table = &cache.pages.table;
        for page in pages {
            let Slot::Frame(frame) = mapping.index.get(&cache.pages.pool, page) else {
                break;
            };
            let Ok(busy) = table.try_busy(frame, mapping.owner(page)) else {
                break;
            };
            let flags = table.flags(frame);
            let waits = must_stay(mapping, flags) || self.is_read_elsewhere(page, frame, flags);
            if waits || !flags.has(Flags::UPTODATE) {
                cache.release(busy, Flags::NONE, Flags::NONE);
                break;
            }
            self.ready.push(Filled {
                page,
                busy,
                fresh: false,
                was_dirty: flags.has(Flags::DIRTY),
            });
        }
    }

    /// The pages that are ready are at home in a live map, and the program may use them.
    pub(super) fn admit(&self) -> Result<(), Error> {
        let Some(live) = self.map.live() else {
            return Ok(());
        };
        let content = self.cache.content();
        for Filled { page, busy, .. } in &self.ready {
            let settled = content.settle(live, *page, &[busy], false);
            settled.map_err(|refused| Error::NoMemory {
                errno: refused.errno,
            })?;
        }
        for run in self.ready.chunk_by(|a, b| b.page == a.page + 1) {
            let end = run[run.len() - 1].page + 1;
            content.enter(live, run[0].page..end, self.access == Access::Store);
        }
        Ok(())
    }
}
