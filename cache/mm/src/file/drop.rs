//! Clean pages leave the cache without a need for memory: one because the inode of its file does,
//! or all there are.
//!
//! Source: kernel-facts 18; Linux 5.0 fs/inode.c, inode_lru_isolate(), by mm/truncate.c,
//! invalidate_inode_page(); fs/drop_caches.c, drop_pagecache_sb().

use core::ops::Range;

use env::{Signal, Task, Work};
use frames::{Flags, FrameId, Generation, Slot};
use policy::units::Pages;

use crate::cache::Cache;
use crate::file::File;
use crate::registry::mapping::Mapping;

/// Frames that are gone through between two reports of the work.
const TURN: u32 = 4096;

/// The fate of a page that was to be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// It is gone.
    Dropped,
    /// There was none.
    Absent,
    /// It stays: it is dirty, under writeback, pinned, mapped, or being read.
    Kept,
}

impl File {
    /// Drops a page of the file from memory if it is there, clean, and in nobody's use; waits for
    /// nothing. `page`: its number.
    pub fn drop_clean(&self, task: &mut Task<'_>, page: u64) -> Dropped {
        let (cache, mapping) = (&self.cache, &self.mapping);
        let Ok(page) = u32::try_from(page) else {
            return Dropped::Absent;
        };
        let Slot::Frame(frame) = mapping.lookup(task, &cache.pages.pool, page) else {
            return Dropped::Absent;
        };
        let (_, generation) = cache.pages.table.look(frame);
        cache.drop_page(task, mapping, page, (frame, generation))
    }

    /// The same of all pages of a range; answers how many there were.
    pub(super) fn drop_all_clean(&self, task: &Task<'_>, pages: Range<u64>) -> u64 {
        let (cache, mapping) = (&self.cache, &self.mapping);
        let mut dropped = 0;
        let [Ok(mut from), Ok(end)] = [pages.start, pages.end].map(u32::try_from) else {
            return dropped;
        };
        while from < end
            && let Some((page, frame)) =
                mapping.next_frame(task, &cache.pages.pool, (from, end - 1))
        {
            let (_, generation) = cache.pages.table.look(frame);
            let what = cache.drop_page(task, mapping, page, (frame, generation));
            dropped += u64::from(what == Dropped::Dropped);
            from = page + 1;
        }
        dropped
    }
}

impl Cache {
    /// Drops every page of a file that is clean and in nobody's use, as `/proc/sys/vm/drop_caches`
    /// does; waits for nothing. Answers how many there were.
    pub fn drop_caches(&self, task: &mut Task<'_>) -> Pages {
        let unless = Flags::DIRTY | Flags::WRITEBACK | Flags::BUSY;
        let watch = self.slabs.watch.get();
        let (mut dropped, mut gone) = (0, Vec::new());
        for first in (0..self.options.frames).step_by(TURN as usize) {
            let mut here = 0;
            for frame in first..self.options.frames.min(first + TURN) {
                let frame = FrameId(frame);
                let (flags, generation) = self.pages.table.look(frame);
                if !flags.has(Flags::CACHED) || flags.any(unless) || flags.pins() > 0 {
                    continue;
                }
                let owner = self.pages.table.owner(frame);
                // Of an anonymous page there is none.
                let Some(mapping) = self.mapping(task, owner.file) else {
                    continue;
                };
                let page = (frame, generation);
                if self.drop_page(task, &mapping, owner.index, page) == Dropped::Dropped {
                    here += 1;
                    gone.extend(watch.map(|_| (owner.file, owner.index)));
                }
            }
            task.did(Work::Free, here);
            if let Some(watch) = watch {
                watch.pages_gone(task, &gone);
                gone.clear();
            }
            dropped += here;
        }
        Pages(dropped)
    }

    /// Drops a page of a file that was seen in a frame.
    fn drop_page(
        &self,
        task: &Task<'_>,
        mapping: &Mapping,
        page: u32,
        (frame, generation): (FrameId, Generation),
    ) -> Dropped {
        let table = &self.pages.table;
        let unless = Flags::DIRTY | Flags::WRITEBACK;
        let Ok(busy) = table.try_busy_of(frame, generation, unless) else {
            return Dropped::Kept;
        };
        if table.owner(frame) != mapping.owner(page) {
            // It was freed and taken for another in that moment.
            self.release(busy, Flags::NONE, Flags::NONE);
            return Dropped::Absent;
        }
        if table.flags(frame).has(Flags::MAPPED) {
            self.release(busy, Flags::NONE, Flags::NONE);
            return Dropped::Kept;
        }
        self.content().vacate(&[frame]);
        {
            let mut token = mapping.token.lock(task);
            let mut index = mapping.index.writer(&self.pages.pool, &mut token);
            index.remove(page, None);
            self.zones.lru(task).remove(frame);
            table.disown(busy);
        }
        self.writeback.totals.cached.sub(1);
        self.wake_busy(&[frame], Signal::PageUnlocked);
        self.memory.put(task, &[frame]);
        Dropped::Dropped
    }
}
