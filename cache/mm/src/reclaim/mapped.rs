//! Pages of files that are mapped, as reclaim meets them: whether they were used, and how they
//! leave their page tables.
//!
//! Source: mechanisms 2.5, rows 3 and 9; Linux v3.0 mm/rmap.c, page_referenced(), try_to_unmap().

use std::sync::Arc;

use env::{Context, Task};
use frames::{Owner, Slot};

use crate::cache::Cache;
use crate::lists::isolate::Page;
use crate::registry::mapping::Mapping;
use crate::registry::page_map::PageMap;

/// Looks files up and remembers the last one: neighbours on a list are mostly of one file.
pub(super) struct Maps {
    last: Option<(Arc<Mapping>, Arc<PageMap>)>,
}

impl Maps {
    pub(super) fn new() -> Self {
        Self { last: None }
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
            let mapping = cache.mapping(context, owner.file);
            self.last = mapping.and_then(|mapping| {
                let map = mapping.page_map(context)?;
                Some((mapping, map))
            });
        }
        let map = self.last.as_ref().map(|(_, map)| map);
        map.filter(|map| owner.index < map.pages())
            .is_some_and(|map| map.test_and_clear_young(owner.index))
    }
}

/// Takes an isolated page that stays out of its page table. False: it is in none.
pub(super) fn unmap(task: &Task<'_>, cache: &Cache, page: Page) -> bool {
    let Owner { file, index: at } = cache.pages.table.owner(page.frame);
    let Some(mapping) = cache.mapping(task, file) else {
        return false;
    };
    let mut token = mapping.token.lock(task);
    let index = mapping.index.writer(&cache.pages.pool, &mut token);
    // It leaves the index under this lock, and is another's after that.
    index.get(at) == Slot::Frame(page.frame) && cache.unmap(task, &mapping, at, page.frame)
}
