//! The nodes of a machine: `node`, `distance` and `zonelist` of `[machine]`.
//!
//! The numbers of CPUs are of the machine as it stands; a run may use fewer (`cpus`): those of the
//! first nodes. So work bound to a node runs on that node's CPUs alone, and the others' exist for a
//! law that asks whether a node has some.

use serde::Deserialize;
use toml::Spanned;

use super::Machine;

/// A node of the machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeEntry {
    /// Its memory, before scaling.
    pub mib: Spanned<f64>,
    /// Of this, what devices of 32 bits can reach: a zone of its own under kernels with zones.
    #[serde(default)]
    pub dma32_mib: Option<Spanned<f64>>,
    /// Its CPUs; they are numbered node by node.
    pub cpus: Spanned<u32>,
}

/// In which order zones are tried (`numa_zonelist_order`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ZonelistKind {
    /// Node by node.
    Node,
    /// All memory that may hold anything, then all low memory.
    Zone,
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
