//! A node's share of the dirty limit: a page that is about to be dirtied passes over a node that
//! has its share, as long as another has memory to spare.
//!
//! Without it a writer fills its own node with dirty pages to the last frame before the limit of
//! all memory holds it, and reclaim of that node finds nothing that is clean.
//!
//! Source: Linux 6.12 mm/page-writeback.c, node_dirty_ok(), node_dirty_limit(),
//! node_dirtyable_memory(), and mm/page_alloc.c, get_page_from_freelist() (`spread_dirty_pages`);
//! since 3.3, by zone until 4.7.
//! Deviation: a task of real time, which may have a quarter more, is not known.

use super::marks::scaled;
use crate::dirty::Threshold;
use crate::units::Pages;

/// A node as a page sees it that is about to be dirtied in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The limit of all memory.
    pub limit: Threshold,
    /// Pages that may become dirty in the node,
    pub dirtyable: Pages,
    /// and in all memory.
    pub dirtyable_of_all: Pages,
    /// Pages of the node that are dirty or under writeback.
    pub level: Pages,
}

impl Share {
    /// Pages that may be dirtied there before the node is passed over: the last one when it has
    /// just its share.
    #[must_use]
    pub fn room(&self) -> Pages {
        let share = match self.limit {
            Threshold::Percent(_) => self.limit.pages_of(self.dirtyable),
            Threshold::Pages(pages) => {
                Pages(scaled(pages.0, self.dirtyable.0, self.dirtyable_of_all.0))
            }
        };
        share.saturating_add(Pages(1)).saturating_sub(self.level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node of 1000 pages of 4000.
    fn room(limit: Threshold, level: u64) -> u64 {
        let share = Share {
            limit,
            dirtyable: Pages(1_000),
            dirtyable_of_all: Pages(4_000),
            level: Pages(level),
        };
        share.room().0
    }

    #[test]
    fn a_node_has_its_part_of_a_limit_in_per_cent_and_in_pages() {
        for limit in [Threshold::Percent(20), Threshold::Pages(Pages(800))] {
            assert_eq!(room(limit, 0), 201, "{limit:?}");
            assert_eq!(room(limit, 200), 1, "{limit:?}");
            assert_eq!(room(limit, 201), 0, "{limit:?}");
            assert_eq!(room(limit, 5_000), 0, "{limit:?}");
        }
    }

    #[test]
    fn nothing_dirtyable_anywhere_is_no_division_by_zero() {
        let share = Share {
            limit: Threshold::Pages(Pages(800)),
            dirtyable: Pages::ZERO,
            dirtyable_of_all: Pages::ZERO,
            level: Pages(1),
        };
        assert_eq!(share.room(), Pages::ZERO);
    }
}
