//! Levels and totals of each node of the machine.

use env::Interrupt;
use policy::reclaim::scan::Kind;
use policy::units::Pages;

use crate::cache::{Cache, get};
use crate::lists::NodeId;
use crate::vmstat::Item;

/// A node of the machine, in the order of its frames. Levels are pages now; totals since the cache
/// was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStats {
    /// Its frames.
    pub frames: Pages,
    /// Free ones, those without memory yet included.
    pub free: Pages,
    /// Pages of files on its lists.
    pub file: Pages,
    /// Anonymous pages on its lists.
    pub anon: Pages,
    /// Pages of both kinds that wait for their write beside the lists.
    pub aside: Pages,
    /// Dirty pages of files.
    pub dirty: Pages,
    /// Frames that tasks on its CPUs took here,
    pub taken_here: Pages,
    /// and on other nodes.
    pub taken_elsewhere: Pages,
    /// Its pages that reclaim looked at.
    pub scanned: Pages,
    /// Its pages that reclaim freed.
    pub reclaimed: Pages,
}

impl Cache {
    /// Levels and totals of each node; one where the machine has one.
    pub fn node_stats(&self) -> Vec<NodeStats> {
        let layout = self.zones.layout();
        let mut nodes: Vec<NodeStats> = layout
            .nodes()
            .map(|node| self.stats_of_node(node))
            .collect();
        if layout.is_one() {
            // Where frames come from is not counted, nor where dirty pages are.
            let one = &mut nodes[0];
            one.taken_here = Pages(self.counters.get(Item::Pgalloc));
            one.dirty = Pages(get(&self.writeback.totals.dirty));
        }
        nodes
    }

    fn stats_of_node(&self, node: NodeId) -> NodeStats {
        let context = Interrupt::new();
        let layout = self.zones.layout();
        let taken = self.zones.node(node).taken();
        let mut stats = NodeStats {
            taken_here: taken[0],
            taken_elsewhere: taken[1],
            ..NodeStats::default()
        };
        for at in layout.zones_of(node) {
            let zone = &self.zones[at];
            let (sizes, aside) = self.zones.sizes_and_aside(&context, at);
            stats.frames += layout.zone(at).pages;
            stats.free += Pages(u64::from(self.memory.free_of(at)));
            stats.file += sizes.kind(Kind::File);
            stats.aside += aside;
            stats.anon += sizes.kind(Kind::Anon);
            stats.dirty += zone.dirty();
            let (scanned, reclaimed) = zone.looked_through();
            stats.scanned += scanned;
            stats.reclaimed += reclaimed;
        }
        stats
    }
}
