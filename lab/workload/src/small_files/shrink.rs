//! The shrinker of small files: that of a mounted file system, which looks at entries, inodes and
//! the file system's own.
//!
//! ```text
//!   entry   used since the last look: round again         else gone, and its inode is unused
//!   inode   used: round again
//!           has pages: they are dropped; it counts as used, and is at the list's old end: looked at twice more
//!           none: off the list, left to the file system
//!   own     written: gone, with all that is beside it     dirty: waited for (up to 5.3), or left
//! ```
//!
//! Source: mechanisms 7.3; kernel-facts 17, 18; Linux 5.0 fs/super.c, super_cache_scan();
//! fs/inode.c, inode_lru_isolate().

use std::sync::{Arc, Weak};

use env::{Task, Work};
use history::files::WithPages;
use history::shrink::Answer;
use kernel::{Ask, Shrink};
use mm::{Dropped, NodeId};
use policy::units::{Bytes, PAGE_SIZE, Pages};

use super::SmallFiles;
use super::table::{FileId, Looked, Own, Table};

/// The shrinker of small files, which goes with them.
pub(super) struct Pruner(Weak<SmallFiles>);

impl Pruner {
    pub(super) fn of(small: &Arc<SmallFiles>) -> Self {
        Self(Arc::downgrade(small))
    }
}

impl Shrink for Pruner {
    fn name(&self) -> &'static str {
        "small files"
    }

    fn count(&self, node: NodeId) -> u64 {
        let small = self.0.upgrade();
        small.map_or(0, |small| {
            small
                .freeable
                .of(node.index())
                .freeable(small.options.pressure)
        })
    }

    fn held(&self) -> Option<Pages> {
        Some(self.0.upgrade().map_or(Pages::ZERO, |small| small.held()))
    }

    fn carries_pages(&self) -> bool {
        true
    }

    fn scan(&self, task: &mut Task<'_>, ask: Ask) -> Answer {
        match self.0.upgrade() {
            Some(small) if ask.may_enter_fs => small.prune(task, ask.node, ask.objects),
            // A task within the file system may hold what it needs.
            Some(_) | None => Answer::Stop,
        }
    }
}

impl SmallFiles {
    /// Looks at `wanted` objects of a node, each kind its share.
    fn prune(&self, task: &mut Task<'_>, node: NodeId, wanted: u64) -> Answer {
        self.sweep(task);
        let share = self
            .options
            .rule
            .shared_out(self.freeable.of(node.index()), wanted);
        let freed = self.prune_entries(task, node, share.entries)
            + self.prune_inodes(task, node, share.inodes)
            + self.reclaim_own(task, share.own);
        task.did(Work::Prune, wanted);
        if freed == 0 {
            // All objects that could go are dirty.
            self.ask_keeper();
        }
        Answer::Freed {
            freed,
            looked_at: wanted,
        }
    }

    fn prune_entries(&self, task: &mut Task<'_>, node: NodeId, most: u64) -> u64 {
        let mut gone = Vec::new();
        let freed = self.with(task, |table| table.prune_entries(node, most, &mut gone));
        for entry in gone {
            self.give_entry(task, entry);
        }
        freed
    }

    fn prune_inodes(&self, task: &mut Task<'_>, node: NodeId, most: u64) -> u64 {
        let mut freed = 0;
        for _ in 0..most {
            match self.with(task, |table| table.look_at_inode(node)) {
                Looked::Stays => {}
                Looked::Empty => break,
                Looked::Held(id) => {
                    let had_pages = self.drop_pages(task, id);
                    let left = self.with(task, |table| table.looked_at(id, had_pages));
                    freed += u64::from(left);
                }
            }
        }
        freed
    }

    /// Drops the clean pages of a file. Answers whether it had any, clean or not.
    fn drop_pages(&self, task: &mut Task<'_>, id: FileId) -> bool {
        let file = self.directory(task, id.directory);
        let pages = u64::from(self.options.pages_a_file);
        let first = u64::from(id.file) * pages;
        if self.options.rule.pages == WithPages::StolenUnlessSeveral && pages > 1 {
            let at = |page| Bytes(page * PAGE_SIZE);
            let cached = (first..first + pages)
                .filter(|page| file.is_cached(at(*page), Bytes(1)))
                .count();
            if cached > 1 {
                return true;
            }
        }
        let (mut had, mut stolen) = (false, 0);
        for page in first..first + pages {
            match file.drop_clean(task, page) {
                Dropped::Dropped => stolen += 1,
                Dropped::Kept => had = true,
                Dropped::Absent => {}
            }
        }
        if stolen > 0 {
            kernel::note_inode_steal(&self.cache, task, Pages(stolen));
        }
        had || stolen > 0
    }

    fn reclaim_own(&self, task: &mut Task<'_>, most: u64) -> u64 {
        let mut freed = 0;
        let mut may_wait = self.options.rule.waits;
        for _ in 0..most {
            match self.with(task, Table::look_at_own) {
                Own::Empty => break,
                Own::Gone(id, objects) => {
                    self.note_gone(task, id);
                    self.give_inode(task, &objects);
                    freed += 1;
                }
                Own::Dirty(id) if may_wait && !self.is_keeper(task) => {
                    // Objects that were dirty then are written with it.
                    may_wait = false;
                    self.wait_written(task, id);
                }
                // A later pass finds it written.
                Own::Dirty(_) => {
                    self.ask_keeper();
                    break;
                }
            }
        }
        freed
    }

    /// Gives up all that is left and written: the file system's own worker, every few seconds.
    pub(super) fn reclaim_written(&self, task: &mut Task<'_>) {
        let left = self.freeable.of(0).own;
        for _ in 0..left {
            match self.with(task, Table::look_at_own) {
                Own::Empty => break,
                Own::Gone(id, objects) => {
                    self.note_gone(task, id);
                    self.give_inode(task, &objects);
                }
                Own::Dirty(_) => {}
            }
        }
    }
}
