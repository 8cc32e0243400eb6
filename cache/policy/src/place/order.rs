//! The zone lists: in which order a task of a node tries the zones of a machine.
//!
//! By *node*, all zones of one node come before those of the next; by *zone*, all Normal zones come
//! before the first Dma32 one, so that memory that old devices need is spared.
//!
//! Source: mechanisms 1.7; Linux 3.0 mm/page_alloc.c, build_zonelists(), default_zonelist_order().

use super::{ZONES_MAX, ZoneId};
use crate::units::Pages;

/// The kind of a zone's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Anything may be there.
    Normal,
    /// The first 4 GiB, which devices of 32 bits can reach.
    Dma32,
    /// The first 16 MiB, which the oldest devices can reach.
    Dma,
}

/// A zone of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Of which node.
    pub node: u8,
    /// The kind of memory.
    pub class: Class,
    /// Its size.
    pub pages: Pages,
}

/// The order of zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ZoneOrder {
    /// Node by node; in a node, Normal first. The only one since 4.14.
    Node,
    /// Normal of all nodes, then Dma32 of all nodes, then Dma.
    Zone,
}

impl ZoneOrder {
    /// The order that Linux up to 4.13 chose by itself (`numa_zonelist_order=default`).
    ///
    /// By zone, unless low memory (Dma32 and Dma) is absent, is more than half of all, is more than
    /// 70 % of a node of more than average size, or is all that a node has.
    #[must_use]
    pub fn chosen_by_linux(zones: &[Zone]) -> Self {
        let sum = |wanted: &dyn Fn(&Zone) -> bool| -> u64 {
            let chosen = zones.iter().filter(|zone| wanted(zone));
            chosen.map(|zone| zone.pages.0).sum()
        };
        let total = sum(&|_| true);
        let low = sum(&|zone| zone.class != Class::Normal);
        let mut nodes: Vec<u8> = zones.iter().map(|zone| zone.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let normal_of = |node| sum(&|zone| zone.node == node && zone.class == Class::Normal);
        let of = |node| sum(&|zone| zone.node == node);
        if nodes.iter().any(|node| normal_of(*node) == 0) || low == 0 || low > total / 2 {
            return Self::Node;
        }
        // One more node than there are, as there.
        let average = total / (nodes.len() as u64 + 1);
        let is_low = |node: &u8| {
            let (all, low) = (of(*node), of(*node) - normal_of(*node));
            low > 0 && all > average && low > all * 7 / 10
        };
        if nodes.iter().any(is_low) {
            Self::Node
        } else {
            Self::Zone
        }
    }

    /// The zones in the order in which tasks of a node try them; `nodes`: its fallback order
    /// (`Distances::fallback_orders`).
    ///
    /// # Panics
    /// If there are more than `ZONES_MAX` zones.
    #[must_use]
    pub fn list(self, zones: &[Zone], nodes: &[usize]) -> Vec<ZoneId> {
        assert!(zones.len() <= ZONES_MAX, "zones are few");
        let place = |zone: &Zone| {
            let node = nodes
                .iter()
                .position(|node| *node == usize::from(zone.node));
            (node, zone.class)
        };
        let id = |at: usize| ZoneId(u8::try_from(at).expect("zones are few"));
        let mut listed: Vec<_> = zones
            .iter()
            .enumerate()
            .filter_map(|(at, zone)| {
                let (node, class) = place(zone);
                Some((node?, class, id(at)))
            })
            .collect();
        match self {
            Self::Node => listed.sort_unstable(),
            Self::Zone => listed.sort_unstable_by_key(|&(node, class, id)| (class, node, id)),
        }
        listed.into_iter().map(|(_, _, id)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 256;

    fn zone(node: u8, class: Class, mib: u64) -> Zone {
        Zone {
            node,
            class,
            pages: Pages(mib * MIB),
        }
    }

    /// The paper's machine as its counters say: 3.0 and 2.5 GiB on node 0, 6.0 on node 1.
    fn of_paper() -> [Zone; 3] {
        [
            zone(0, Class::Normal, 2560),
            zone(0, Class::Dma32, 3072),
            zone(1, Class::Normal, 6144),
        ]
    }

    #[test]
    fn linux_orders_the_paper_s_machine_by_zone() {
        assert_eq!(ZoneOrder::chosen_by_linux(&of_paper()), ZoneOrder::Zone);
    }

    #[test]
    fn linux_orders_by_node_where_low_memory_is_no_scarcity_or_all_there_is() {
        let by_node = |zones: &[Zone]| {
            assert_eq!(ZoneOrder::chosen_by_linux(zones), ZoneOrder::Node);
        };
        // None.
        by_node(&[zone(0, Class::Normal, 6000), zone(1, Class::Normal, 6000)]);
        // More than half of all.
        by_node(&[
            zone(0, Class::Normal, 1000),
            zone(0, Class::Dma32, 3000),
            zone(1, Class::Normal, 1000),
        ]);
        // More than 70 % of a large node.
        by_node(&[
            zone(0, Class::Normal, 1280),
            zone(0, Class::Dma32, 3072),
            zone(1, Class::Normal, 6144),
        ]);
        // A node with nothing else.
        by_node(&[zone(0, Class::Dma32, 3000), zone(1, Class::Normal, 9000)]);
    }

    #[test]
    fn lists_by_node_and_by_zone() {
        let ids = |ids: &[u8]| ids.iter().copied().map(ZoneId).collect::<Vec<_>>();
        let zones = of_paper();
        assert_eq!(ZoneOrder::Node.list(&zones, &[0, 1]), ids(&[0, 1, 2]));
        assert_eq!(ZoneOrder::Zone.list(&zones, &[0, 1]), ids(&[0, 2, 1]));
        assert_eq!(ZoneOrder::Node.list(&zones, &[1, 0]), ids(&[2, 0, 1]));
        assert_eq!(ZoneOrder::Zone.list(&zones, &[1, 0]), ids(&[2, 0, 1]));
        // A list of one node alone (`__GFP_THISNODE`).
        assert_eq!(ZoneOrder::Node.list(&zones, &[0]), ids(&[0, 1]));
    }
}
