//! The machine of a run as `policy` sees it: nodes, zones, the way from one to another, and the
//! marks of each zone.

use core::fmt;

use policy::place::distance::{DistanceFault, Distances};
use policy::place::machine::{self, MachineFault};
use policy::place::marks::{self, Marks};
use policy::place::order::{Zone, ZoneOrder};
use policy::units::Pages;
use policy::watermark::Watermarks;

use super::{Machine, NodeEntry, ZonelistKind};
use crate::units::{PAGES_PER_MIB, whole};

const KIB_PER_PAGE: f64 = 4.0;
/// `vm.watermark_scale_factor` of all memory.
const FACTOR_WHOLE: f64 = 10_000.0;
/// MIN does not shrink below 128 pages, four clusters of reclaim: experiments A6.
const MIN_MARK_LEAST: u64 = 128;

/// The fault of nodes that are no machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodesFault {
    /// The nodes themselves.
    Machine(MachineFault),
    /// Their distances.
    Distances(DistanceFault),
    /// A distance that no firmware can tell.
    TooFar(u32),
}

impl fmt::Display for NodesFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(fault) => write!(f, "{fault}"),
            Self::Distances(fault) => write!(f, "{fault}"),
            Self::TooFar(distance) => {
                write!(f, "a distance of {distance}; the largest is {}", u8::MAX)
            }
        }
    }
}

impl From<MachineFault> for NodesFault {
    fn from(fault: MachineFault) -> Self {
        Self::Machine(fault)
    }
}

impl From<DistanceFault> for NodesFault {
    fn from(fault: DistanceFault) -> Self {
        Self::Distances(fault)
    }
}

/// The nodes of a machine with `pages` in all: sizes that are said are shared out as they are.
///
/// # Errors
/// `NodesFault`.
pub fn of_machine(machine: &Machine, pages: Pages) -> Result<machine::Machine, NodesFault> {
    let count = machine.node_count();
    let order = machine.zonelist.as_ref().map(|kind| match kind.get_ref() {
        ZonelistKind::Node => ZoneOrder::Node,
        ZonelistKind::Zone => ZoneOrder::Zone,
    });
    let distances = match &machine.distance {
        Some(rows) => Distances::new(&table(rows.get_ref())?)?,
        None => Distances::even(count).map_err(|_| MachineFault::Nodes { count })?,
    };
    if machine.node.is_empty() {
        let count = u8::try_from(count).unwrap_or(u8::MAX);
        let even = machine::Machine::even(pages, count, *machine.cpus.get_ref())?;
        return Ok(machine::Machine::new(even.nodes(), distances, order)?);
    }
    let nodes: Vec<_> = machine.node.iter().map(node).collect();
    Ok(machine::Machine::new(&nodes, distances, order)?.with_pages(pages))
}

/// The zones of a machine and their marks at a scale.
///
/// # Errors
/// `NodesFault`.
pub fn zones(machine: &Machine, scale: f64) -> Result<Vec<(Zone, Marks)>, NodesFault> {
    let memory_mib = *machine.memory_mib.get_ref();
    let pages = pages_of(machine, memory_mib, scale);
    let made = of_machine(machine, pages)?;
    let all = marks(machine, Watermarks::of_zone, memory_mib, whole(1.0 / scale))
        .unwrap_or(Watermarks::of_zone(pages));
    let marks = marks::of_zones(made.zones(), all);
    Ok(made.zones().iter().copied().zip(marks).collect())
}

/// Memory for pages of a machine that has `memory_mib` before scaling.
pub fn pages_of(machine: &Machine, memory_mib: f64, scale: f64) -> Pages {
    let reserved = machine.reserved_percent.as_ref();
    let left = 1.0 - reserved.map_or(0.0, |percent| *percent.get_ref()) / 100.0;
    Pages(whole(memory_mib * left * PAGES_PER_MIB * scale))
}

/// The marks of a machine of `memory_mib` before scaling (those that `of_memory` says), made
/// smaller by `shrink`; nothing where both size and reserve are those of the memory itself.
pub fn marks(
    machine: &Machine,
    of_memory: fn(Pages) -> Watermarks,
    memory_mib: f64,
    shrink: u64,
) -> Option<Watermarks> {
    let factor = machine.watermark_scale_factor.as_ref();
    if shrink == 1 && machine.min_free_kib.is_none() && factor.is_none() {
        return None;
    }
    let full = of_memory(Pages(whole(memory_mib * PAGES_PER_MIB)));
    let (mut min, mut gap) = (full.min.0, full.low.0 - full.min.0);
    if let Some(reserve) = &machine.min_free_kib {
        min = whole(*reserve.get_ref() / KIB_PER_PAGE);
        gap = gap.max(min / 4);
    }
    if let Some(factor) = factor {
        let share = memory_mib * PAGES_PER_MIB * f64::from(*factor.get_ref()) / FACTOR_WHOLE;
        gap = (min / 4).max(whole(share));
    }
    // Of each zone, where the machine says which there are.
    let min = (min / shrink).max(MIN_MARK_LEAST * zone_count(machine));
    let gap = (gap / shrink).max(min / 4);
    Some(Watermarks {
        min: Pages(min),
        low: Pages(min + gap),
        high: Pages(min + 2 * gap),
    })
}

/// Zones of the nodes that a machine says; one if it says none.
pub fn zone_count(machine: &Machine) -> u64 {
    let zones = machine.node.iter().map(node);
    let zones =
        zones.map(|node| u64::from(!node.dma32.is_zero()) + u64::from(!node.normal.is_zero()));
    zones.sum::<u64>().max(1)
}

fn table(rows: &[Vec<u32>]) -> Result<Vec<Vec<u8>>, NodesFault> {
    let number =
        |distance: &u32| u8::try_from(*distance).map_err(|_| NodesFault::TooFar(*distance));
    let rows = rows.iter();
    rows.map(|row| row.iter().map(number).collect()).collect()
}

fn node(entry: &NodeEntry) -> machine::Node {
    let dma32 = entry.dma32_mib.as_ref().map_or(0.0, |mib| *mib.get_ref());
    let pages = |mib: f64| Pages(whole(mib.max(0.0) * PAGES_PER_MIB));
    machine::Node {
        normal: pages(entry.mib.get_ref() - dma32),
        dma32: pages(dma32),
        cpus: *entry.cpus.get_ref(),
    }
}
