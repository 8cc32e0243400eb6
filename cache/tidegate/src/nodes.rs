//! The nodes of the machine that a cache lies on.
//!
//! Source: docs/adr/0019.

use policy::place::NODES_MAX;
use policy::place::distance::{DistanceFault, Distances};
use policy::place::machine::{Machine, MachineFault, Node};
use policy::units::Pages;

use os::{Binding, Topology, TopologyError};

use crate::Error;

/// A node of fewer frames is none: its marks would be a handful of pages.
const FRAMES_LEAST: u64 = 1024;

/// Which nodes the memory of a cache lies on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Nodes {
    /// One, wherever the system takes its memory from.
    #[default]
    One,
    /// Those of the machine that this process may use: for programs whose threads are kept to
    /// sockets. Each gets a part of the limit in proportion to its memory, which is asked from it
    /// (mbind(2), preferred) and comes from another where it has none left. Where there is one
    /// node, or the system does not say or refuses, the cache has one, and `Stats::one_node` says
    /// why.
    System,
    /// This many of one size, 1 to 8, each with its part of the CPUs, and no word of it to the
    /// system. For tests: all that several nodes do happens, on any machine.
    Divide(u8),
}

/// Why a cache that was to have the nodes of the machine has one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OneNode {
    /// The machine has one, or this process may use but one.
    #[error("this process may use one node of the machine")]
    Only,
    /// The system's account of its nodes cannot be used.
    #[error("{0}")]
    Topology(TopologyError),
    /// There are more than are looked at.
    #[error("{count} nodes; at most {NODES_MAX} are told apart")]
    Many {
        /// Their number.
        count: usize,
    },
    /// A node's part of the cache would be too small.
    #[error("node {node} would have {} of the cache, less than the {} that a node needs; raise the limit",
        Pages(*frames).bytes().shown(), Pages(FRAMES_LEAST).bytes().shown())]
    Small {
        /// The system's number of it.
        node: u32,
        /// Its part, in frames.
        frames: u64,
    },
    /// The distances are no distances.
    #[error("{0}")]
    Distances(DistanceFault),
    /// The nodes are no machine.
    #[error("{0}")]
    Machine(MachineFault),
    /// The system does not let this process say where its memory is to come from.
    #[error("the system refused mbind(2): {}; a container needs CAP_SYS_NICE, or a profile that allows the call",
        std::io::Error::from_raw_os_error(*errno))]
    Refused {
        /// The system's error number.
        errno: i32,
    },
}

/// The placement of a cache's memory.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    /// None: one node.
    pub(crate) machine: Option<Machine>,
    /// The binding that the system is told, if any.
    pub(crate) binding: Option<Binding>,
    /// The system's numbers of the nodes; none where it is told nothing.
    pub(crate) numbers: Vec<u32>,
    /// Why it is one node although it was to be those of the machine.
    pub(crate) one: Option<OneNode>,
}

impl Placement {
    /// Of a cache of `frames` frames, in chunks of `chunk`, on `cpus` CPUs.
    ///
    /// # Errors
    /// `BadDivision`.
    pub(crate) fn new(nodes: Nodes, frames: u32, chunk: u32, cpus: u32) -> Result<Self, Error> {
        match nodes {
            Nodes::One => Ok(Self::default()),
            Nodes::Divide(count) => {
                let machine = Machine::even(Pages(u64::from(frames)), count, cpus);
                let machine = machine.map_err(|_| Error::BadDivision { count })?;
                Ok(Self {
                    machine: Some(machine),
                    ..Self::default()
                })
            }
            Nodes::System => {
                let topology = Topology::read().map_err(OneNode::Topology);
                let placement = topology.and_then(|topology| on(&topology, frames, chunk));
                Ok(placement.unwrap_or_else(Self::one))
            }
        }
    }

    /// One node, for that reason.
    pub(crate) fn one(why: OneNode) -> Self {
        Self {
            one: Some(why),
            ..Self::default()
        }
    }
}

/// The machine of a cache on these nodes.
fn on(topology: &Topology, frames: u32, chunk: u32) -> Result<Placement, OneNode> {
    let nodes = &topology.nodes;
    if nodes.iter().filter(|node| node.memory.0 > 0).count() <= 1 {
        return Err(OneNode::Only);
    }
    if nodes.len() > NODES_MAX {
        return Err(OneNode::Many { count: nodes.len() });
    }
    let all: u128 = nodes.iter().map(|node| u128::from(node.memory.0)).sum();
    let chunks = u128::from(frames.div_ceil(chunk));
    let (mut before, mut first) = (0, 0);
    let mut of_nodes = Vec::with_capacity(nodes.len());
    let mut binding = Binding::default();
    for node in nodes {
        before += u128::from(node.memory.0);
        // The last one with memory ends with the last chunk, which may be short.
        let chunks = u32::try_from(chunks * before / all).expect("no more than there are");
        let end = chunks.saturating_mul(chunk).min(frames);
        let part = first..end;
        first = end;
        let own = u64::from(part.end - part.start);
        if node.memory.0 > 0 && own < FRAMES_LEAST {
            let node = node.number;
            return Err(OneNode::Small { node, frames: own });
        }
        of_nodes.push(Node {
            normal: Pages(own),
            dma32: Pages::ZERO,
            cpus: u32::try_from(node.cpus.len()).expect("a node has fewer CPUs"),
        });
        if own > 0 {
            binding.parts.push((part, node.number));
        }
        binding.cpus.extend(&node.cpus);
    }
    let rows: Vec<Vec<u8>> = nodes.iter().map(|node| node.distances.clone()).collect();
    let distances = Distances::new(&rows).map_err(OneNode::Distances)?;
    let machine = Machine::new(&of_nodes, distances, None).map_err(OneNode::Machine)?;
    Ok(Placement {
        machine: Some(machine),
        binding: Some(binding),
        numbers: nodes.iter().map(|node| node.number).collect(),
        one: None,
    })
}

#[cfg(test)]
mod tests {
    use os::SystemNode;
    use policy::units::Bytes;

    use super::*;

    fn topology(nodes: &[(u32, u64, &[u32], &[u8])]) -> Topology {
        let nodes = nodes
            .iter()
            .map(|(number, gib, cpus, distances)| SystemNode {
                number: *number,
                memory: Bytes(gib << 30),
                cpus: cpus.to_vec(),
                distances: distances.to_vec(),
            });
        Topology {
            nodes: nodes.collect(),
        }
    }

    #[test]
    fn each_node_has_its_part_in_whole_chunks() {
        let told = topology(&[(0, 64, &[0, 2], &[10, 21]), (3, 192, &[1, 3], &[21, 10])]);
        let placed = on(&told, 10_000, 1024).unwrap();
        let sizes: Vec<u64> = placed
            .machine
            .as_ref()
            .unwrap()
            .nodes()
            .iter()
            .map(|node| node.normal.0)
            .collect();
        assert_eq!(sizes, [2048, 7952]);
        let binding = placed.binding.unwrap();
        assert_eq!(binding.parts, [(0..2048, 0), (2048..10_000, 3)]);
        assert_eq!(binding.cpus, [0, 2, 1, 3]);
        assert_eq!(
            placed.machine.as_ref().unwrap().distances().between(0, 1),
            21
        );
    }

    #[test]
    fn a_node_without_memory_has_tasks_and_one_without_cpus_has_memory() {
        let row = |own: usize| {
            let mut row = [20; 3];
            row[own] = 10;
            row
        };
        let rows = [row(0), row(1), row(2)];
        let told = topology(&[
            (0, 1, &[], &rows[0]),
            (1, 0, &[0, 1], &rows[1]),
            (2, 1, &[2], &rows[2]),
        ]);
        let placed = on(&told, 8192, 1024).unwrap();
        assert_eq!(placed.machine.as_ref().unwrap().zones().len(), 2);
        assert_eq!(placed.machine.as_ref().unwrap().node_of_cpu(1), 1);
        assert_eq!(
            placed.binding.unwrap().parts,
            [(0..4096, 0), (4096..8192, 2)]
        );
    }

    #[test]
    fn what_is_no_machine_of_several_nodes_has_one_and_says_why() {
        let refused = |told: &[(u32, u64, &[u32], &[u8])], frames| {
            on(&topology(told), frames, 1024).unwrap_err()
        };
        let two: [(u32, u64, &[u32], &[u8]); 2] =
            [(0, 1, &[0], &[10, 20]), (1, 1, &[1], &[20, 10])];
        assert_eq!(refused(&two[..1], 8192), OneNode::Only);
        let memoryless = [(0, 1, &[0][..], &[10, 20][..]), (1, 0, &[1], &[20, 10])];
        assert_eq!(refused(&memoryless, 8192), OneNode::Only);
        let small = refused(&two, 1024);
        assert_eq!(small, OneNode::Small { node: 0, frames: 0 });
        assert_eq!(
            small.to_string(),
            "node 0 would have 0 B of the cache, less than the 4 MiB that a node needs; raise the limit"
        );
        let lopsided = [(0, 1, &[0][..], &[10, 30][..]), (1, 1, &[1], &[20, 10])];
        assert!(matches!(refused(&lopsided, 8192), OneNode::Distances(_)));
        let near = [(0, 1, &[0][..], &[10, 9][..]), (1, 1, &[1], &[9, 10])];
        assert!(matches!(refused(&near, 8192), OneNode::Distances(_)));
        let no_cpus = [(0, 1, &[][..], &[10, 20][..]), (1, 1, &[], &[20, 10])];
        assert_eq!(
            refused(&no_cpus, 8192),
            OneNode::Machine(MachineFault::NoCpus)
        );
        let row = [20; 9];
        let many: Vec<_> = (0..9).map(|node| (node, 1, &[0][..], &row[..])).collect();
        assert_eq!(refused(&many, 8192), OneNode::Many { count: 9 });
    }
}
