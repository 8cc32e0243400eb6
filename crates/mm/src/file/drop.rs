//! One clean page leaves the cache, because what it belongs to does: the inode of its file.
//!
//! Source: kernel-facts 18; Linux 5.0 fs/inode.c, inode_lru_isolate(), by mm/truncate.c, invalidate_inode_page().

use env::{Env, Signal, Task};
use frames::{Flags, Slot};

use crate::cache::sub;
use crate::file::File;

/// What became of a page that was to be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// It is gone.
    Dropped,
    /// There was none.
    Absent,
    /// It stays: it is dirty, under writeback, pinned, mapped, or being read.
    Kept,
}

impl<E: Env> File<E> {
    /// Drops a page of the file from memory if it is there, clean, and in nobody's use; waits for nothing. `page`: its number.
    pub fn drop_clean(&self, task: &mut Task<'_, E>, page: u64) -> Dropped {
        let (cache, mapping) = (&self.cache, &self.mapping);
        let Ok(page) = u32::try_from(page) else {
            return Dropped::Absent;
        };
        let Slot::Frame(frame) = mapping.lookup(task, &cache.pages.pool, page) else {
            return Dropped::Absent;
        };
        let (_, generation) = cache.pages.table.look(frame);
        let unless = Flags::DIRTY | Flags::WRITEBACK;
        let Ok(busy) = cache.pages.table.try_busy_of(frame, generation, unless) else {
            return Dropped::Kept;
        };
        if cache.pages.table.owner(frame) != mapping.owner(page) {
            // It was freed and taken for another in that moment.
            cache.release(busy, Flags::NONE, Flags::NONE);
            return Dropped::Absent;
        }
        if cache.pages.table.flags(frame).has(Flags::MAPPED) {
            cache.release(busy, Flags::NONE, Flags::NONE);
            return Dropped::Kept;
        }
        {
            let mut token = mapping.token.lock(task);
            let mut index = mapping.index.writer(&cache.pages.pool, &mut token);
            index.remove(page, None);
            cache.zones.lru(task).remove(frame);
            cache.pages.table.disown(busy);
        }
        sub(&cache.writeback.totals.cached, 1);
        cache.wake_busy(&[frame], Signal::PageUnlocked);
        cache.memory.put(task, &[frame]);
        Dropped::Dropped
    }
}
