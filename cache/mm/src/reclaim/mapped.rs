//! Pages of files that are mapped, as reclaim meets them: whether they were used, and how they
//! leave their page tables.
//!
//! Source: mechanisms 2.5, rows 3 and 9; Linux v3.0 mm/rmap.c, page_referenced(), try_to_unmap().

use std::sync::Arc;

use env::{Context, Task};
use frames::{Owner, Slot};

use crate::cache::Cache;
use crate::lists::isolate::{CLUSTER_FRAMES, Page};
use crate::registry::mapping::Mapping;
use crate::registry::page_map::PageMap;

/// One of this many pages of a turn is taken although a program used it, if that is all that spoke
/// for it.
///
/// A page of a live map that was used leaves the program's page table, which stops the other CPUs.
/// When memory is full for the first time, every page was used, and a trim that spared them all
/// would take all of them out before it frees the first, with everybody waiting for it.
const TAKEN: usize = 4;

/// Looks files up and remembers the last one: neighbours on a list are mostly of one file.
pub(super) struct Maps {
    last: Option<(Arc<Mapping>, Arc<PageMap>)>,
    /// Pages of its live map that were used: the next use is to be seen again.
    used: Vec<u32>,
    /// Pages of live maps that stay for one use.
    spared: usize,
}

impl Maps {
    pub(super) fn new() -> Self {
        Self {
            last: None,
            used: Vec::new(),
            spared: 0,
        }
    }

    /// True if a page was used since the last look. The owner may be an old one: the frame may be
    /// another file's by now.
    pub(super) fn test_and_clear_young(
        &mut self,
        cache: &Cache,
        context: &impl Context,
        owner: Owner,
    ) -> bool {
        let is_it = |(mapping, _): &(Arc<Mapping>, _)| mapping.id == owner.file;
        if !self.last.as_ref().is_some_and(is_it) {
            self.leave(cache);
            let mapping = cache.mapping(context, owner.file);
            self.last = mapping.and_then(|mapping| {
                let map = mapping.page_map(context)?;
                Some((mapping, map))
            });
        }
        let map = self.last.as_ref().map(|(_, map)| map);
        let Some(map) = map.filter(|map| owner.index < map.pages()) else {
            return false;
        };
        let was_used = map.test_and_clear_young(owner.index);
        if was_used && map.live().is_some() {
            if self.used.is_empty() {
                self.used.reserve_exact(CLUSTER_FRAMES);
            }
            self.used.push(owner.index);
        }
        was_used
    }

    /// True if the page just found used stays for it. False: of this turn of `pages`, enough did.
    pub(super) fn spares(&mut self, pages: usize) -> bool {
        if !matches!(&self.last, Some((_, map)) if map.live().is_some()) {
            return true;
        }
        let spares = self.spared < (pages - pages / TAKEN).max(1);
        self.spared += usize::from(spares);
        if !spares {
            // It leaves with its frame.
            self.used.pop();
        }
        spares
    }

    /// The pages of a live map that were found used leave the program's page table, and nothing
    /// else: its page table is not to be read, so that the next use has to be a fault.
    pub(super) fn leave(&mut self, cache: &Cache) {
        if let Some((_, map)) = &self.last
            && let Some(live) = map.live()
            && !self.used.is_empty()
        {
            self.used.sort_unstable();
            cache.content().leave(live, &self.used);
        }
        self.used.clear();
    }
}

/// Takes an isolated page that stays out of its page table. False: it is in none, or in that of a
/// program, which would have to be told: there it goes with its frame.
pub(super) fn unmap(task: &Task<'_>, cache: &Cache, page: Page) -> bool {
    let Owner { file, index: at } = cache.pages.table.owner(page.frame);
    let mapping = cache.mapping(task, file);
    let Some(mapping) = mapping.filter(|mapping| !mapping.is_live()) else {
        return false;
    };
    let mut token = mapping.token.lock(task);
    let index = mapping.index.writer(&cache.pages.pool, &mut token);
    // It leaves the index under this lock, and is another's after that.
    index.get(at) == Slot::Frame(page.frame) && cache.unmap(task, &mapping, at, page.frame)
}
