//! Checks of a machine's nodes: that they are all of its memory, that its CPUs are theirs, that
//! each zone can work.

use policy::place::machine::MachineFault;
use policy::place::order::Class;
use toml::Spanned;

use super::Checker;
use crate::document::Scenario;
use crate::document::machine::{self, NodesFault};
use crate::mistake::Mistake;

/// Two sizes in MiB are the same if they differ by no more: half a page.
const SAME_MIB: f64 = 0.002;
/// A zone has at least this many MiB after scaling (`mm`: 256 frames).
const ZONE_LEAST_MIB: f64 = 1.0;

impl Checker {
    /// `node`, `distance`, `zonelist`.
    pub(super) fn nodes(&mut self, scenario: &Scenario) {
        self.node_entries(scenario);
        self.zone_sizes(scenario);
        // Of numbers that are wrong one by one (the scale, the memory, the nodes), no machine is
        // made.
        if self.list.is_empty() {
            self.machine_of_nodes(scenario);
        }
    }

    fn node_entries(&mut self, scenario: &Scenario) {
        let machine = &scenario.machine;
        let Some(first) = machine.node.first() else {
            return;
        };
        if let Some(nodes) = &machine.nodes {
            self.list.push(
                Mistake::new(
                    "`nodes` and `node` are both given",
                    nodes.span(),
                    "nodes, said twice",
                )
                .also(first.mib.span(), "the other")
                .help("keep `nodes` (equal ones) or `node`, not both"),
            );
        }
        for node in &machine.node {
            if let Some(dma32) = &node.dma32_mib {
                self.range("dma32_mib", dma32, 0.0, *node.mib.get_ref(), " MiB");
            }
        }
        let all: f64 = machine.node.iter().map(|node| node.mib.get_ref()).sum();
        let memory = &machine.memory_mib;
        if (all - memory.get_ref()).abs() > SAME_MIB {
            self.list.push(
                Mistake::new(
                    format!(
                        "the nodes have {all} MiB together, and the machine {} MiB",
                        memory.get_ref()
                    ),
                    memory.span(),
                    "the memory",
                )
                .also(first.mib.span(), "the nodes")
                .help(format!(
                    "write memory_mib = {all}, or change `mib` of a node"
                )),
            );
        }
        let sized = scenario
            .rows
            .iter()
            .filter_map(|row| row.memory_mib.as_ref());
        for own in sized {
            self.list.push(
                Mistake::new(
                    "a row of another size on a machine whose nodes have theirs",
                    own.span(),
                    "how large would each node be?",
                )
                .also(first.mib.span(), "the nodes")
                .help("leave `memory_mib` of the row out, or give the machine `nodes = N` (equal ones)"),
            );
        }
        let cpus: u64 = machine
            .node
            .iter()
            .map(|n| u64::from(*n.cpus.get_ref()))
            .sum();
        if u64::from(*machine.cpus.get_ref()) > cpus {
            self.list.push(
                Mistake::new(
                    format!(
                        "{} CPUs, of which the nodes have {cpus}",
                        machine.cpus.get_ref()
                    ),
                    machine.cpus.span(),
                    "CPUs of no node",
                )
                .also(first.cpus.span(), "the CPUs of the nodes")
                .help("raise `cpus` of a node, or lower those of the machine (tasks run on the first of them)"),
            );
        }
    }

    /// Each zone is large enough to be one, also scaled.
    fn zone_sizes(&mut self, scenario: &Scenario) {
        let scale = *scenario.run.scale.get_ref();
        for node in &scenario.machine.node {
            let dma32 = node.dma32_mib.as_ref().map_or(0.0, |mib| *mib.get_ref());
            for (what, mib) in [
                ("low memory", dma32),
                ("memory", node.mib.get_ref() - dma32),
            ] {
                if mib > 0.0 && mib * scale < ZONE_LEAST_MIB {
                    self.list.push(
                        Mistake::new(
                            format!("{mib} MiB of {what} are too few for a zone"),
                            node.mib.span(),
                            format!("times the scale must be at least {ZONE_LEAST_MIB} MiB"),
                        )
                        .help("give the node more, or leave that part out"),
                    );
                }
            }
        }
    }

    /// The nodes make a machine, and each zone of it is above its marks when all of it is free.
    fn machine_of_nodes(&mut self, scenario: &Scenario) {
        let machine = &scenario.machine;
        let zones = match machine::zones(machine, *scenario.run.scale.get_ref()) {
            Ok(zones) => zones,
            Err(fault) => return self.no_machine(scenario, &fault),
        };
        let Some(first) = machine.node.first() else {
            return;
        };
        for (zone, marks) in zones {
            let kept = marks.watermarks.high + marks.reserve;
            if zone.pages > kept {
                continue;
            }
            let node = machine.node.get(usize::from(zone.node)).unwrap_or(first);
            let place = node
                .dma32_mib
                .as_ref()
                .filter(|_| zone.class != Class::Normal);
            let mut mistake = Mistake::new(
                format!(
                    "the zone {:?} of node {} is below its marks: it has {} pages and keeps {} free",
                    zone.class, zone.node, zone.pages.0, kept.0
                ),
                place.unwrap_or(&node.mib).span(),
                "nobody would ever be given any of it",
            )
            .help("give it more memory, or lower `min_free_kib`");
            if let Some(reserve) = &machine.min_free_kib {
                mistake = mistake.also(reserve.span(), "the reserve");
            }
            self.list.push(mistake);
        }
    }

    fn no_machine(&mut self, scenario: &Scenario, fault: &NodesFault) {
        let machine = &scenario.machine;
        let table = machine.distance.as_ref().map(Spanned::span);
        let nodes = machine.node.first().map(|first| first.mib.span());
        let nodes = nodes.or(machine.nodes.as_ref().map(Spanned::span));
        let (place, help) = match fault {
            NodesFault::Machine(MachineFault::Distances { .. })
            | NodesFault::Distances(_)
            | NodesFault::TooFar(_) => (
                table.or(nodes),
                "write a row and a column for each node, for example [[10, 20], [20, 10]]",
            ),
            NodesFault::Machine(_) => (nodes, "see `node` of `[machine]`"),
        };
        let place = place.unwrap_or(machine.memory_mib.span());
        let mistake = Mistake::new(fault.to_string(), place, "this is no machine");
        self.list.push(mistake.help(help));
    }
}
