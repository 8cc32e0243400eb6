//! Faults on a file that is mapped.

use std::sync::Arc;

use env::{Cause, Event, Signal, Task, Work};
use frames::{Flags, FrameId, Refusal, Slot};
use policy::place::by_use::Purpose;
use policy::reclaim::FRESH;
use policy::units::{Bytes, PAGE_SHIFT, Pages};

use super::FileMap;
use crate::alloc::Wanted;
use crate::cache::Cache;
use crate::file::read;
use crate::file::replace::{awaits_pins, replace_pinned};
use crate::file::space::reserve_space;
use crate::file::sync::{settle_cut, wait_frame};
use crate::file::truncate::show_fresh;
use crate::file::write::{Filled, budget, must_stay, show_filled};
use crate::reclaim::index_nodes::free_index_nodes;
use crate::registry::mapping::Mapping;
use crate::registry::page_map::{Access, PageMap};
use crate::vmstat::Item;
use crate::writeback::balance::{account, balance};
use crate::{Error, Touched, Writer, writeback::io};

/// Pages that need no fault, after which a task reports its work.
const RUN: u32 = 2048;

/// One call's way through the pages of a map.
pub(super) struct Walk<'a> {
    pub(super) cache: &'a Arc<Cache>,
    pub(super) mapping: &'a Arc<Mapping>,
    pub(super) map: &'a PageMap,
    pub(super) access: Access,
    /// Frames for fresh pages; those taken next lie last.
    frames: Vec<FrameId>,
    /// Pages that are being made ready, busy.
    pub(super) ready: Vec<Filled>,
    pub(super) touched: Touched,
    inserted: u64,
    dirtied: u64,
    /// Pages made ready that lie on another node.
    far: u64,
}

/// Uses the pages `first..end`.
pub(super) fn touch(
    task: &mut Task<'_>,
    map: &FileMap,
    writer: &mut Writer,
    (first, end): (u32, u32),
    access: Access,
) -> Result<Touched, Error> {
    with_walk(task, map, access, |walk, task| {
        walk.touch(task, writer, first, end)
    })
}

/// A walk, and what is left of it.
pub(super) fn with_walk(
    task: &mut Task<'_>,
    map: &FileMap,
    access: Access,
    walk_on: impl FnOnce(&mut Walk<'_>, &mut Task<'_>) -> Result<(), Error>,
) -> Result<Touched, Error> {
    let mut walk = Walk {
        cache: &map.cache,
        mapping: &map.mapping,
        map: &map.map,
        access,
        frames: Vec::new(),
        ready: Vec::new(),
        touched: Touched::default(),
        inserted: 0,
        dirtied: 0,
        far: 0,
    };
    let result = walk_on(&mut walk, task);
    let Walk {
        cache,
        frames,
        touched,
        ..
    } = walk;
    cache.put_unused(task, &frames);
    cache.counters.add(Item::Pgfault, touched.faults.0);
    cache.counters.add(Item::Pgmajfault, touched.major.0);
    cache.counters.add(Item::NumaRemoteTouch, touched.far.0);
    result?;
    Ok(touched)
}

impl Walk<'_> {
    fn touch(
        &mut self,
        task: &mut Task<'_>,
        writer: &mut Writer,
        first: u32,
        end: u32,
    ) -> Result<(), Error> {
        let mut at = first;
        while at < end {
            let until = end.min(at.saturating_add(RUN));
            let next = self.map.touch(at, until, self.access);
            task.did(Work::Touch, u64::from(next - at));
            self.touched.pages += Pages(u64::from(next - at));
            at = next;
            if at < until {
                let before = self.touched.pages;
                let result = self.faults(task, writer, at, until);
                let met = self.touched.pages.saturating_sub(before).0;
                // The accesses that met the faults.
                task.did(Work::Touch, met);
                at += u32::try_from(met).expect("no more than were asked for");
                result?;
            }
        }
        Ok(())
    }

    /// Faults on pages from `first` on, up to `until` or to the writer's next balance; at least
    /// one.
    pub(super) fn faults(
        &mut self,
        task: &mut Task<'_>,
        writer: &mut Writer,
        first: u32,
        until: u32,
    ) -> Result<(), Error> {
        if self.access == Access::Load {
            return self.bring_in(task, first, until);
        }
        let (cache, mapping) = (self.cache, self.mapping);
        let device = &mapping.device;
        device.admit(task, writer.pacer.seen_errors(device))?;
        let most = u32::try_from(budget(task, cache, mapping, writer)).expect("at most a batch");
        let until = until.min(first.saturating_add(most));
        let (from, stop) = (
            u64::from(first) << PAGE_SHIFT,
            u64::from(until) << PAGE_SHIFT,
        );
        if !writer.is_prepared(mapping, from, stop) {
            io::prepare(task, mapping, Bytes(from), Bytes(stop - from))?;
        }
        self.dirtied = 0;
        let stored = self.bring_in(task, first, until);
        task.did(Work::Dirty, self.dirtied);
        account(task, cache, device, &mut writer.pacer, Pages(self.dirtied));
        // Also after an error: it is paused for what was stored before it.
        let balanced = balance(task, cache, &mut writer.pacer).map(drop);
        stored.and(balanced)
    }

    /// Has the pages `first..until` mapped for the access.
    fn bring_in(&mut self, task: &mut Task<'_>, first: u32, until: u32) -> Result<(), Error> {
        let (cache, mapping) = (self.cache, self.mapping);
        if u64::from(first) >= mapping.pages() {
            return Err(Error::no_page(first, mapping.size()));
        }
        let before = self.touched;
        self.inserted = 0;
        self.far = 0;
        let result = loop {
            let end = u64::from(until) << PAGE_SHIFT;
            if self.access == Access::Store {
                let at = u64::from(first) << PAGE_SHIFT;
                reserve_space(task, cache, mapping, at, end.min(mapping.size()))?;
                settle_cut(task, cache, mapping)?;
            }
            let inside = mapping.enter(task, &cache.registry)?;
            if self.access == Access::Store && !inside.is_ready_up_to(end.min(inside.size())) {
                // The length was cut meanwhile, and the space with it.
                continue;
            }
            break self.each(task, first, until);
        };
        let faults = self.touched.faults.saturating_sub(before.faults);
        task.did(Work::Fault, faults.0);
        task.did(Work::Insert, self.inserted);
        task.did(Work::Zero, self.inserted);
        task.did(Work::Remote, self.far);
        result
    }

    fn each(&mut self, task: &mut Task<'_>, first: u32, until: u32) -> Result<(), Error> {
        let mut at = first;
        // As far as one after the other is a fault. Of a live map the first is, whatever its bits.
        let is_live = self.map.live().is_some();
        while at < until && (is_live && at == first || !self.map.has(at, self.access)) {
            let before = self.touched.pages;
            self.page(task, at, until)?;
            let met = self.touched.pages.saturating_sub(before).0;
            at += u32::try_from(met).expect("no more than were asked for");
        }
        Ok(())
    }

    /// A page is mapped, or several that are fresh; or none, where its state has changed: look
    /// again.
    fn page(&mut self, task: &mut Task<'_>, page: u32, until: u32) -> Result<(), Error> {
        let (cache, mapping) = (self.cache, self.mapping);
        if u64::from(page) >= mapping.pages() {
            return Err(Error::no_page(page, mapping.size()));
        }
        match mapping.index.get(&cache.pages.pool, page) {
            Slot::Frame(frame) => match self.access {
                Access::Load => match self.map.live() {
                    Some(live) => self.load_live(task, live, page, until),
                    None => self.load(task, page),
                },
                Access::Store => self.store(task, page, frame, until),
            },
            _ if is_hole(mapping, page) => self.fresh(task, page, until),
            _ => self.read(task, page),
        }
    }

    /// Fresh pages for as many as are holes, a few at a time.
    fn fresh(&mut self, task: &mut Task<'_>, first: u32, until: u32) -> Result<(), Error> {
        let (cache, mapping) = (self.cache, self.mapping);
        let together = until.min(first.saturating_add(FRESH));
        let pages = u32::try_from(mapping.pages()).unwrap_or(u32::MAX);
        let end = together.min(pages.max(first + 1));
        if self.frames.is_empty() {
            self.refill(task, first, end - first)?;
        }
        let mut refused = None;
        {
            let mut token = mapping.token.lock(task);
            let mut index = mapping.index.writer(&cache.pages.pool, &mut token);
            for page in first..end {
                // Looked at again under the lock: it may have come, been written and gone.
                let is_there = matches!(index.get(page), Slot::Frame(_));
                if is_there || !is_hole(mapping, page) || u64::from(page) >= mapping.pages() {
                    break;
                }
                let Some(frame) = self.frames.pop() else {
                    break;
                };
                let busy = cache.pages.table.claim(frame);
                cache.pages.table.adopt(&busy, mapping.owner(page));
                match index.insert(page, frame) {
                    Ok(Slot::Shadow(shadow)) => cache.refaulted(task, frame, shadow.0),
                    Ok(_) => {}
                    Err(_) => {
                        refused = Some(cache.pages.table.disown(busy));
                        self.frames.push(frame);
                        break;
                    }
                }
                self.ready.push(Filled {
                    page,
                    busy,
                    fresh: true,
                    was_dirty: false,
                });
            }
        }
        cache.wake_busy(refused.as_slice(), Signal::PageUnlocked);
        let count = self.ready.len() as u64;
        if count == 0 {
            if refused.is_some() {
                free_index_nodes(task, cache)?;
            }
            return Ok(());
        }
        cache.writeback.totals.cached.add(count);
        self.inserted += count;
        if let Some(live) = self.map.live() {
            let frames: Vec<_> = self.ready.iter().map(|filled| &filled.busy).collect();
            let at = self.ready[0].page;
            // A refusal is heard where the pages are shown.
            let _ = cache.content().settle(live, at, &frames, true);
        }
        for filled in &self.ready {
            cache.content().zero(&filled.busy, 0, WHOLE);
            if self.access == Access::Store && self.map.live().is_none() {
                cache
                    .content()
                    .mark(&filled.busy, u64::from(filled.page) + 1);
            }
        }
        self.show(task)
    }

    /// Frames for fresh pages from `first` on: at once, or waiting for them.
    fn refill(&mut self, task: &mut Task<'_>, first: u32, want: u32) -> Result<(), Error> {
        let cache = self.cache;
        let follows = first > 0 && self.map.has(first - 1, Access::Load);
        let purpose = if follows || want > 1 {
            Purpose::Stream
        } else {
            Purpose::Used
        };
        let wanted = Wanted::new(want, purpose).among(self.cache.lies_in(self.mapping, true));
        if cache.try_alloc(task, wanted, &mut self.frames)? == 0 {
            let began = task.now();
            cache.alloc(task, wanted, &mut self.frames)?;
            let took = task.now().since(began);
            task.emit(&Event::Faulted { major: false, took });
        }
        // Neighbours in the file are to be neighbours in memory.
        self.frames.reverse();
        Ok(())
    }

    /// Reads a page in.
    fn read(&mut self, task: &mut Task<'_>, page: u32) -> Result<(), Error> {
        let (cache, mapping) = (self.cache, self.mapping);
        let began = task.now();
        let pin = read::pin_untouched(task, cache, mapping, page)?;
        cache.unpin(pin);
        self.touched.major += Pages(1);
        let took = task.now().since(began);
        task.emit(&Event::Faulted { major: true, took });
        Ok(())
    }

    /// Maps a page that is in memory, once it is up to date.
    fn load(&mut self, task: &mut Task<'_>, page: u32) -> Result<(), Error> {
        let (cache, mapping) = (self.cache, self.mapping);
        let pin = read::pin_untouched(task, cache, mapping, page)?;
        let stands = {
            let mut token = mapping.token.lock(task);
            let index = mapping.index.writer(&cache.pages.pool, &mut token);
            let stands = index.get(page) == Slot::Frame(pin.frame());
            if stands {
                let before = cache
                    .pages
                    .table
                    .update(pin.frame(), Flags::MAPPED, Flags::NONE);
                if !before.has(Flags::MAPPED) {
                    cache.zones.note_mapped(pin.frame());
                }
                self.map.map(page, Access::Load);
            }
            stands
        };
        cache.unpin(pin);
        self.met(u64::from(stands));
        Ok(())
    }

    /// Makes a page that is in memory dirty and storable.
    fn store(
        &mut self,
        task: &mut Task<'_>,
        page: u32,
        frame: FrameId,
        until: u32,
    ) -> Result<(), Error> {
        let (cache, mapping) = (self.cache, self.mapping);
        let table = &cache.pages.table;
        let owner = mapping.owner(page);
        match table.try_busy(frame, owner) {
            Ok(busy) => {
                let flags = table.flags(frame);
                if must_stay(mapping, flags) || self.is_read_elsewhere(page, frame, flags) {
                    cache.release(busy, Flags::NONE, Flags::NONE);
                    return wait_frame(task, cache, mapping, page, frame);
                }
                if !flags.has(Flags::UPTODATE) {
                    // Its read failed: that is tried again.
                    read::forget(task, cache, mapping, page, busy);
                    return Ok(());
                }
                self.ready.push(Filled {
                    page,
                    busy,
                    fresh: false,
                    was_dirty: flags.has(Flags::DIRTY),
                });
                if self.map.live().is_some() {
                    self.take_more(page + 1..until);
                }
                self.show(task)
            }
            Err(Refusal::Pinned) => self.beside_pins(task, page, frame),
            Err(Refusal::Busy) => cache.wait_busy(task, Cause::PageBusy, frame, owner),
            // Reclaimed or replaced meanwhile.
            Err(_) => {
                task.did(Work::Lookup, 1);
                Ok(())
            }
        }
    }

    /// A pin is a snapshot: its holder keeps what it sees, and the file gets a frame that may be
    /// stored to, or that can be at home in a map.
    pub(super) fn beside_pins(
        &mut self,
        task: &mut Task<'_>,
        page: u32,
        old: FrameId,
    ) -> Result<(), Error> {
        let (cache, mapping) = (self.cache, self.mapping);
        if cache.pages.table.flags(old).has(Flags::WRITEBACK) {
            return wait_frame(task, cache, mapping, page, old);
        }
        if awaits_pins(task, cache, old)? {
            return Ok(());
        }
        let Some(fresh) = self.frames.pop() else {
            return self.refill(task, page, 1);
        };
        match replace_pinned(task, cache, mapping, page, old, fresh) {
            Ok((busy, was_dirty)) if self.access == Access::Load => {
                show_fresh(task, cache, busy, was_dirty);
                Ok(())
            }
            Ok((busy, was_dirty)) => {
                self.ready.push(Filled {
                    page,
                    busy,
                    fresh: true,
                    was_dirty,
                });
                self.show(task)
            }
            Err(fresh) => {
                self.frames.push(fresh);
                Ok(())
            }
        }
    }

    /// Pages are ready: they are visible, and mapped.
    fn show(&mut self, task: &Task<'_>) -> Result<(), Error> {
        let (cache, mapping) = (self.cache, self.mapping);
        let admitted = self.admit();
        let map = admitted.is_ok().then_some(self.map);
        if map.is_some() {
            self.met(self.ready.len() as u64);
        }
        let mut far = cache.far(task);
        if far.counts() {
            let frames = self.ready.iter().map(|filled| filled.busy.frame());
            frames.for_each(|frame| far.uses(frame));
            let far = far.take();
            self.far += far;
            self.touched.far += Pages(far);
        }
        match self.access {
            Access::Store => {
                let dirtied = show_filled(task, cache, mapping, &mut self.ready, map);
                self.dirtied += dirtied;
            }
            Access::Load if map.is_some() => self.show_clean(task),
            Access::Load => {
                for filled in self.ready.drain(..) {
                    show_fresh(task, cache, filled.busy, false);
                }
            }
        }
        admitted
    }

    /// Fresh pages of a hole that was read.
    fn show_clean(&mut self, task: &Task<'_>) {
        let (cache, mapping) = (self.cache, self.mapping);
        let mut shown = [FrameId(0); FRESH as usize];
        let count = self.ready.len();
        for (filled, shown) in self.ready.iter().zip(&mut shown) {
            *shown = filled.busy.frame();
        }
        cache.add_filled(task, &shown[..count]);
        {
            let _alone = mapping.token.lock(task);
            for (filled, shown) in self.ready.drain(..).zip(&shown) {
                self.map.map(filled.page, Access::Load);
                cache.zones.note_mapped(*shown);
                let set = Flags::UPTODATE | Flags::MAPPED;
                cache.release(filled.busy, set, Flags::NONE);
            }
        }
        cache.wake_busy(&shown[..count], Signal::PageUnlocked);
    }

    /// Accesses met their faults.
    pub(super) fn met(&mut self, pages: u64) {
        self.touched.pages += Pages(pages);
        self.touched.faults += Pages(pages);
    }
}

/// Bytes of a page.
const WHOLE: usize = 1 << PAGE_SHIFT;

/// True if a page that is not in memory is zeroes: the device was never given anything so far
/// behind.
pub(super) fn is_hole(mapping: &Mapping, page: u32) -> bool {
    u64::from(page) << PAGE_SHIFT >= mapping.device_len()
}
