//! A machine as an allocation sees it: nodes with CPUs, the zones of each, and in which order its
//! tasks try them.
//!
//! Source: mechanisms 1.1, 1.7; Linux 3.0 mm/page_alloc.c, build_all_zonelists().

use core::fmt;

use super::distance::Distances;
use super::order::{Class, Zone, ZoneOrder};
use super::{NODES_MAX, ZoneId};
use crate::units::Pages;

/// Memory near some CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its memory that may hold anything.
    pub normal: Pages,
    /// Its memory that devices of 32 bits can reach, if that is a zone of its own.
    pub dma32: Pages,
    /// Its CPUs; they are numbered node by node.
    pub cpus: u32,
}

/// A machine of one or several nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    nodes: Vec<Node>,
    /// In the order of their frames.
    zones: Vec<Zone>,
    distances: Distances,
    /// By node: the zones that its tasks try, in order.
    lists: Vec<Vec<ZoneId>>,
}

/// Why nodes are no machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MachineFault {
    /// There are none, or too many.
    Nodes {
        /// Their number.
        count: usize,
    },
    /// A node has neither memory nor CPUs.
    Nothing {
        /// Which.
        node: usize,
    },
    /// No node has CPUs: no task could run.
    NoCpus,
    /// No node has memory.
    NoMemory,
    /// The table of distances is of another number of nodes.
    Distances {
        /// Nodes of the machine.
        nodes: usize,
        /// Nodes of the table.
        table: usize,
    },
}

impl fmt::Display for MachineFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Nodes { count } => {
                write!(
                    f,
                    "a machine of {count} nodes; it may have 1 to {NODES_MAX}"
                )
            }
            Self::Nothing { node } => {
                write!(f, "node {node} has neither memory nor CPUs; leave it out")
            }
            Self::NoCpus => f.write_str("no node has a CPU; a task runs on the CPUs of one"),
            Self::NoMemory => f.write_str("no node has memory"),
            Self::Distances { nodes, table } => write!(
                f,
                "distances of {table} nodes for a machine of {nodes}; one row and one column for each"
            ),
        }
    }
}

impl core::error::Error for MachineFault {}

impl Machine {
    /// A machine of these nodes. `order`: of its zone lists; `None`: what Linux up to 4.13 chose by
    /// itself.
    ///
    /// # Errors
    /// `MachineFault`.
    pub fn new(
        nodes: &[Node],
        distances: Distances,
        order: Option<ZoneOrder>,
    ) -> Result<Self, MachineFault> {
        if !(1..=NODES_MAX).contains(&nodes.len()) {
            return Err(MachineFault::Nodes { count: nodes.len() });
        }
        if distances.count() != nodes.len() {
            return Err(MachineFault::Distances {
                nodes: nodes.len(),
                table: distances.count(),
            });
        }
        let nothing = |node: &Node| zones_of(0, node).is_empty() && node.cpus == 0;
        if let Some(node) = nodes.iter().position(nothing) {
            return Err(MachineFault::Nothing { node });
        }
        if nodes.iter().all(|node| node.cpus == 0) {
            return Err(MachineFault::NoCpus);
        }
        let zones: Vec<Zone> = (0u8..)
            .zip(nodes)
            .flat_map(|(number, node)| zones_of(number, node))
            .collect();
        if zones.is_empty() {
            return Err(MachineFault::NoMemory);
        }
        let order = order.unwrap_or_else(|| ZoneOrder::chosen_by_linux(&zones));
        let has_cpus: Vec<bool> = nodes.iter().map(|node| node.cpus > 0).collect();
        let lists = distances
            .fallback_orders(&has_cpus)
            .iter()
            .map(|nodes| order.list(&zones, nodes))
            .collect();
        Ok(Self {
            nodes: nodes.to_vec(),
            zones,
            distances,
            lists,
        })
    }

    /// A machine of one node of `pages`, near all CPUs.
    ///
    /// # Panics
    /// If `pages` is zero.
    #[must_use]
    pub fn of_one_node(pages: Pages) -> Self {
        let even = Self::even(pages, 1, 1);
        even.expect("a node with memory and a CPU")
    }

    /// A machine of `count` nodes of one size, equally far from each other; the CPUs are shared
    /// out.
    ///
    /// # Errors
    /// `MachineFault`.
    pub fn even(pages: Pages, count: u8, cpus: u32) -> Result<Self, MachineFault> {
        let of = u64::from(count).max(1);
        let each = pages.0.div_ceil(of);
        let node = |at: u64| Node {
            normal: Pages(each.min(pages.0.saturating_sub(at * each))),
            dma32: Pages::ZERO,
            cpus: first_cpu(at + 1, of, cpus) - first_cpu(at, of, cpus),
        };
        let nodes: Vec<Node> = (0..u64::from(count)).map(node).collect();
        let distances =
            Distances::even(nodes.len()).map_err(|_| MachineFault::Nodes { count: nodes.len() })?;
        Self::new(&nodes, distances, None)
    }

    /// The same with `pages` in all, shared out to its zones as they are.
    ///
    /// # Panics
    /// If that leaves a zone without memory.
    #[must_use]
    pub fn with_pages(&self, pages: Pages) -> Self {
        let all = u128::from(self.pages().0);
        let (mut before, mut given) = (0, 0);
        let mut share = |own: Pages| {
            before += u128::from(own.0);
            let until = before * u128::from(pages.0) / all;
            let until = u64::try_from(until).expect("no more than all");
            Pages(until - core::mem::replace(&mut given, until))
        };
        let mut nodes = self.nodes.clone();
        for node in &mut nodes {
            // In the order of their frames.
            node.dma32 = share(node.dma32);
            node.normal = share(node.normal);
        }
        let zones = (0u8..).zip(&nodes);
        let zones: Vec<Zone> = zones
            .flat_map(|(number, node)| zones_of(number, node))
            .collect();
        assert_eq!(zones.len(), self.zones.len(), "a part for each zone");
        Self {
            zones,
            nodes,
            ..self.clone()
        }
    }

    /// The same where what devices of 32 bits can reach is told apart from the rest of a node by
    /// nobody.
    #[must_use]
    pub fn with_one_zone_a_node(&self) -> Self {
        let whole = |node: &Node| Node {
            normal: node.normal + node.dma32,
            dma32: Pages::ZERO,
            cpus: node.cpus,
        };
        let nodes: Vec<Node> = self.nodes.iter().map(whole).collect();
        let machine = Self::new(&nodes, self.distances.clone(), None);
        machine.expect("a machine's nodes are one")
    }

    /// Its nodes.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Its zones, in the order of their frames.
    #[must_use]
    pub fn zones(&self) -> &[Zone] {
        &self.zones
    }

    /// The distances between its nodes.
    #[must_use]
    pub fn distances(&self) -> &Distances {
        &self.distances
    }

    /// Memory of all nodes.
    #[must_use]
    pub fn pages(&self) -> Pages {
        self.zones.iter().map(|zone| zone.pages).sum()
    }

    /// The node of a CPU; for a CPU that was not counted, the first node that has CPUs.
    #[must_use]
    pub fn node_of_cpu(&self, cpu: usize) -> usize {
        let mut before = 0;
        for (node, has) in self.nodes.iter().enumerate() {
            before += has.cpus as usize;
            if cpu < before {
                return node;
            }
        }
        let some = self.nodes.iter().position(|node| node.cpus > 0);
        some.unwrap_or(0)
    }

    /// The zones that tasks of a node try, in order.
    ///
    /// # Panics
    /// If there is no such node.
    #[must_use]
    pub fn list(&self, node: usize) -> &[ZoneId] {
        &self.lists[node]
    }
}

/// The first CPU of a node where `cpus` are shared out among `count`.
fn first_cpu(node: u64, count: u64, cpus: u32) -> u32 {
    let first = (node * u64::from(cpus)).div_ceil(count);
    u32::try_from(first).expect("no more than there are")
}

fn zones_of(number: u8, node: &Node) -> Vec<Zone> {
    // Low memory has the lower frames.
    let parts = [(Class::Dma32, node.dma32), (Class::Normal, node.normal)];
    let zones = parts.into_iter().filter(|(_, pages)| !pages.is_zero());
    let zone = |(class, pages)| Zone {
        node: number,
        class,
        pages,
    };
    zones.map(zone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(normal: u64, dma32: u64, cpus: u32) -> Node {
        Node {
            normal: Pages(normal),
            dma32: Pages(dma32),
            cpus,
        }
    }

    fn machine(nodes: &[Node]) -> Result<Machine, MachineFault> {
        Machine::new(nodes, Distances::even(nodes.len()).unwrap(), None)
    }

    #[test]
    fn the_paper_s_machine_tries_the_other_node_before_low_memory_of_its_own() {
        let nodes = [node(655_360, 786_432, 12), node(1_572_864, 0, 12)];
        let machine = machine(&nodes).unwrap();
        let zones = |node| {
            let list = machine.list(node).iter();
            let zones = list.map(|zone| machine.zones()[zone.index()]);
            zones
                .map(|zone| (zone.node, zone.class))
                .collect::<Vec<_>>()
        };
        let (normal, dma32) = (Class::Normal, Class::Dma32);
        assert_eq!(zones(0), [(0, normal), (1, normal), (0, dma32)]);
        assert_eq!(zones(1), [(1, normal), (0, normal), (0, dma32)]);
        assert_eq!(machine.pages(), Pages(3_014_656));
        let of = |cpu| machine.node_of_cpu(cpu);
        assert_eq!((of(0), of(11), of(12), of(23), of(24)), (0, 0, 1, 1, 0));
    }

    #[test]
    fn even_nodes_share_memory_and_cpus() {
        let machine = Machine::even(Pages(4_097), 2, 5).unwrap();
        assert_eq!(machine.nodes(), [node(2_049, 0, 3), node(2_048, 0, 2)]);
        assert_eq!(machine.list(1), [ZoneId(1), ZoneId(0)]);
        let one = Machine::of_one_node(Pages(7));
        assert_eq!((one.pages(), one.node_of_cpu(99)), (Pages(7), 0));
    }

    #[test]
    fn a_machine_can_be_made_smaller_and_larger() {
        let nodes = [node(655_360, 786_432, 12), node(1_572_864, 0, 12)];
        let machine = machine(&nodes).unwrap();
        let small = machine.with_pages(Pages(376_832));
        assert_eq!(
            small.nodes(),
            [node(81_920, 98_304, 12), node(196_608, 0, 12)]
        );
        assert_eq!(small.list(0), machine.list(0));
        assert_eq!(machine.with_pages(Pages(376_835)).pages(), Pages(376_835));
    }

    #[test]
    fn memory_of_a_node_can_be_one_zone() {
        let nodes = [node(655_360, 786_432, 12), node(1_572_864, 0, 12)];
        let machine = machine(&nodes).unwrap().with_one_zone_a_node();
        assert_eq!(
            machine.nodes(),
            [node(1_441_792, 0, 12), node(1_572_864, 0, 12)]
        );
        assert_eq!(machine.list(0), [ZoneId(0), ZoneId(1)]);
    }

    #[test]
    fn what_is_no_machine_is_refused_with_the_reason() {
        let none = Distances::even(1).unwrap();
        let refused = |nodes: &[Node]| {
            let distances = Distances::even(nodes.len().max(1)).unwrap();
            Machine::new(nodes, distances, None).unwrap_err()
        };
        assert_eq!(refused(&[]), MachineFault::Nodes { count: 0 });
        assert_eq!(
            refused(&[node(1, 0, 1), node(0, 0, 0)]),
            MachineFault::Nothing { node: 1 }
        );
        assert_eq!(refused(&[node(1, 0, 0)]), MachineFault::NoCpus);
        assert_eq!(refused(&[node(0, 0, 1)]), MachineFault::NoMemory);
        let nodes = [node(1, 0, 1), node(1, 0, 1)];
        assert_eq!(
            Machine::new(&nodes, none, None).unwrap_err().to_string(),
            "distances of 1 nodes for a machine of 2; one row and one column for each"
        );
        assert_eq!(
            Machine::even(Pages(100), 9, 9).unwrap_err(),
            MachineFault::Nodes { count: 9 }
        );
    }

    #[test]
    fn a_node_without_memory_is_none_that_is_tried() {
        let machine = machine(&[node(0, 0, 4), node(100, 0, 0)]).unwrap();
        assert_eq!(machine.list(0), [ZoneId(0)]);
        assert_eq!(machine.zones()[0].node, 1);
        assert_eq!(machine.node_of_cpu(3), 0);
    }
}
