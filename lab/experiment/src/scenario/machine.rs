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
use crate::task::units::{PAGES_PER_MIB, whole};

const KIB_PER_PAGE: f64 = 4.0;
/// `vm.watermark_scale_factor` of all memory.
const FACTOR_WHOLE: f64 = 10_000.0;
/// MIN does not shrink below 128 pages, four clusters of reclaim: experiments A6.
const MIN_MARK_LEAST: u64 = 128;

/// Why the nodes are no machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodesFault {
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
pub(crate) fn of_machine(machine: &Machine, pages: Pages) -> Result<machine::Machine, NodesFault> {
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
pub(crate) fn zones(machine: &Machine, scale: f64) -> Result<Vec<(Zone, Marks)>, NodesFault> {
    let memory_mib = *machine.memory_mib.get_ref();
    let pages = pages_of(machine, memory_mib, scale);
    let made = of_machine(machine, pages)?;
    let all = marks(machine, Watermarks::of_zone, memory_mib, whole(1.0 / scale))
        .unwrap_or(Watermarks::of_zone(pages));
    let marks = marks::of_zones(made.zones(), all);
    Ok(made.zones().iter().copied().zip(marks).collect())
}

/// Memory for pages of a machine that has `memory_mib` before scaling.
pub(crate) fn pages_of(machine: &Machine, memory_mib: f64, scale: f64) -> Pages {
    let reserved = machine.reserved_percent.as_ref();
    let left = 1.0 - reserved.map_or(0.0, |percent| *percent.get_ref()) / 100.0;
    Pages(whole(memory_mib * left * PAGES_PER_MIB * scale))
}

/// The marks of a machine of `memory_mib` before scaling (those that `of_memory` says), made
/// smaller by `shrink`; nothing where both size and reserve are those of the memory itself.
pub(crate) fn marks(
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
pub(crate) fn zone_count(machine: &Machine) -> u64 {
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

#[cfg(test)]
mod tests {
    use policy::place::ZoneId;
    use policy::place::order::Class;

    use crate::run::{Cell, Column};
    use crate::scenario::{Scenario, Source};

    use super::*;

    /// The machine of p2 as its counters tell it, and a job.
    const OF_P2: &str = r#"
        schema = "tidegate-exp/1"
        name = "nodes"
        [run]
        scale = 0.125
        [machine]
        cpus = 12
        memory_mib = 11776
        min_free_kib = 90112
        node = [{ mib = 5632, dma32_mib = 3072, cpus = 12 }, { mib = 6144, cpus = 12 }]
        distance = [[10, 21], [21, 10]]
        [[device]]
        id = "disk"
        model = "sata2010"
        [[task]]
        id = "dd"
        kind = "dd"
        device = "disk"
        file_mib = 512
        [[policy]]
        name = "linux-6.12"
        [[policy]]
        name = "tidegate"
        one_node = true
    "#;

    fn cell(text: &str, policy: usize) -> Cell {
        let source = Source {
            origin: "test".into(),
            text: text.into(),
        };
        let (scenario, _) = Scenario::load(source, &[]).unwrap();
        let column = Column::of(&scenario.policies[policy]);
        Cell::resolve(&scenario, &scenario.rows()[0], &column)
    }

    #[test]
    fn a_machine_has_the_nodes_zones_and_distances_it_says() {
        let cell = cell(OF_P2, 0);
        let machine = cell.machine.unwrap();
        let zones = machine.zones().iter();
        let zones: Vec<_> = zones.map(|z| (z.node, z.class, z.pages.0)).collect();
        assert_eq!(
            zones,
            [
                (0, Class::Dma32, 98_304),
                (0, Class::Normal, 81_920),
                (1, Class::Normal, 196_608)
            ]
        );
        assert_eq!(machine.pages(), cell.memory);
        // Twelve CPUs run, all of the first node; the other has as many.
        assert_eq!((machine.node_of_cpu(11), machine.node_of_cpu(12)), (0, 1));
        assert_eq!(machine.distances().between(0, 1), 21);
        // By zone, as Linux 3.0 chooses here.
        assert_eq!(machine.list(0), [ZoneId(1), ZoneId(2), ZoneId(0)]);
        let marks = cell.marks.unwrap();
        assert_eq!((marks.min, marks.low), (Pages(2_816), Pages(3_520)));
    }

    #[test]
    fn the_order_of_the_zones_can_be_said() {
        let text = OF_P2.replace("distance", "zonelist = \"node\"\n        distance");
        let machine = cell(&text, 0).machine.unwrap();
        assert_eq!(machine.list(0), [ZoneId(1), ZoneId(0), ZoneId(2)]);
    }

    #[test]
    fn a_small_zone_has_a_reserve_that_clusters_are_small_against() {
        let text = OF_P2.replace("min_free_kib = 90112", "");
        let cell = cell(&text.replace("scale = 0.125", "scale = 0.03125"), 0);
        assert_eq!(cell.marks.unwrap().min, Pages(3 * 128));
    }

    #[test]
    fn a_column_may_take_all_memory_for_one_node() {
        assert_eq!(cell(OF_P2, 1).machine, None);
    }

    #[test]
    fn equal_nodes_are_as_before() {
        let node =
            "node = [{ mib = 5632, dma32_mib = 3072, cpus = 12 }, { mib = 6144, cpus = 12 }]";
        let text = OF_P2.replace(node, "nodes = 2");
        let text = text.replace("distance = [[10, 21], [21, 10]]", "");
        let cell = cell(&text, 0);
        let even = machine::Machine::even(cell.memory, 2, 12).unwrap();
        assert_eq!(cell.machine, Some(even));
    }
}
