//! The nodes of a machine: `node`, `distance` and `zonelist` of `[machine]`.
//!
//! The numbers of CPUs are of the machine as it stands; a run may use fewer (`cpus`): those of the
//! first nodes. So work bound to a node runs on that node's CPUs alone, and the others' exist for a
//! law that asks whether a node has some.

use toml::Spanned;

use super::{MEMORY_MOST_MIB, Machine};
use crate::keys::{May, keys, range, words};

keys! {
    /// A node of the machine.
    NodeEntry:
        mib: Spanned<f64>, "Its memory, before scaling.", range(0.0, MEMORY_MOST_MIB, " MiB");
        dma32_mib: May<f64>, "Of this, what devices of 32 bits can reach: a zone of its own under kernels with zones.";
        cpus: Spanned<u32>, "Its CPUs; they are numbered node by node.", range(0.0, 4096.0, "");
}

words! {
    /// In which order zones are tried (`numa_zonelist_order`).
    ZonelistKind:
        Node = "node", "Node by node.";
        Zone = "zone", "All memory that may hold anything, then all low memory.";
}

impl Machine {
    /// Number of its nodes.
    #[must_use]
    pub fn node_count(&self) -> usize {
        let even = self.nodes.as_ref().map_or(1, |nodes| *nodes.get_ref());
        match self.node.len() {
            0 => even as usize,
            own => own,
        }
    }
}
