//! Huge pages of a cell, and paper p4's test.
//!
//! At a scale the run of a huge page shrinks with the memory, and the pageblock with it: there are
//! as many of them, and what is said of their number (1003 in all, one in so many without dirty
//! pages) is said at any scale.
//!
//! Source: experiments A5, B4; the kernel's numbers: kernel-facts A7, A11.

use policy::compact::Compaction;
use policy::place::mobility::Mobility;
use workload::Report;

use super::assemble::{number, seconds};
use super::cell::{Column, DeviceSpec};
use crate::outcome::Iteration;
use crate::presets::{Preset, SlabLaw, with_patches};
use crate::scenario::{CaseEntry, DefragKind, Machine, PolicyEntry};

/// Order of a huge page.
const HUGE: u32 = 9;

/// Huge pages of a machine that is smaller by `shrink`: none if it does not say `thp`. A row
/// without them is one of a kernel that could have them: its way to one may show elsewhere.
pub(super) fn of(
    machine: &Machine,
    row: &CaseEntry,
    compaction: Compaction,
    shrink: u64,
) -> Option<mm::Runs> {
    let own = machine.thp.as_ref()?;
    let has = *row.thp.as_ref().unwrap_or(own).get_ref();
    let stands_for = u32::try_from(shrink).expect("a scale is checked");
    Some(mm::Runs {
        faults: has,
        ..mm::Runs::of(compaction, stands_for)
    })
}

/// Where there are huge pages, what is moved for them lies apart from what cannot be.
pub(super) fn kept_apart(machine: &Machine, column: &Column) -> SlabLaw {
    let mut law = column.slabs;
    law.keeps_apart |= machine.thp.is_some() && column.compaction.keeps_apart();
    law
}

/// How a column gets a huge page.
pub(super) fn compaction_of(entry: &PolicyEntry, preset: &Preset) -> Compaction {
    let mut compaction = preset.compaction;
    if !entry.patches.is_empty() {
        compaction =
            with_patches(&entry.patches_joined()).expect("a loaded scenario names known patches");
    }
    if let Compaction::Scans(scans) = &mut compaction {
        if let Some(waits) = &entry.reclaim_waits {
            scans.reclaim_waits = *waits.get_ref();
        }
        if let Some(defers) = &entry.defers {
            scans.defers = *defers.get_ref();
        }
    }
    if let (Compaction::Background(law), Some(defrag)) = (&mut compaction, &entry.defrag) {
        law.for_all = *defrag.get_ref() == DefragKind::Always;
    }
    compaction
}

/// What a device's pages are to compaction, by its file system.
pub(super) fn of_device(spec: &DeviceSpec, options: &mut mm::DeviceOptions) {
    let fs = spec
        .fs
        .as_deref()
        .and_then(|name| lab::fs::by_name(name).ok());
    if let Some(fs) = fs {
        options.migrates = fs.migrates;
        if fs.unmovable {
            options.mobility = Mobility::Unmovable;
        }
    }
}

/// Order of a huge page of a machine that is smaller by `shrink`.
pub(super) fn scaled(shrink: u64) -> u8 {
    let order = HUGE.saturating_sub(shrink.max(1).ilog2()).max(1);
    u8::try_from(order).expect("at most nine")
}

/// The machine with the reserve of a row.
pub(super) fn with_reserve(machine: &Machine, row: &CaseEntry) -> Machine {
    let mut machine = machine.clone();
    if row.min_free_kib.is_some() {
        machine.min_free_kib.clone_from(&row.min_free_kib);
    }
    machine
}

/// Iterations of a report as plain numbers.
pub(super) fn iterations(report: &Report) -> Vec<Iteration> {
    let of = |one: &workload::Iteration| Iteration {
        alloc: one.alloc.clone(),
        began_s: seconds(one.began),
        alloc_began_s: seconds(one.alloc_began),
        took_s: seconds(one.took),
        free: number(one.free.0),
        dirty: number(one.dirty.0),
        runs_free: number(one.runs_free),
        huge: number(one.huge),
        read: number(one.read.0),
        counters: one
            .counters
            .iter()
            .map(|(name, by)| (*name, number(*by)))
            .collect(),
    };
    report.iterations.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use workload::Stop;

    use crate::outcome::Outcome;
    use crate::run::cell::{Cell, Column};
    use crate::scenario::{Scenario, Source};

    /// Two iterations on 64 MiB at full size, whose huge pages are those of a real machine.
    const SMALL: &str = r#"
        schema = "tidegate-exp/1"
        name = "small"
        [machine]
        cpus = 2
        memory_mib = 64
        min_free_kib = 1024
        readahead_kib = 128
        costs = "p4"
        scale_costs = true
        thp = true
        swap = { device = "sda", mib = 128 }
        node = [{ mib = 64, dma32_mib = 8, cpus = 2 }]
        [[device]]
        id = "sda"
        model = "sata2010"
        fs = "raw"
        placed_files = true
        params = { slice_sync_us = 100000, write_buffer_us = 0 }
        [[device]]
        id = "usb"
        model = "usb_stick"
        fs = "vfat"
        params = { queue_requests = 16 }
        [[task]]
        id = "test"
        kind = "thpavail"
        device = "usb"
        from = "sda"
        file_mib = 1024
        total_mib = 16
        loops = 2
        [[case]]
        name = "on"
        [[case]]
        name = "off"
        thp = false
        min_free_kib = 512
        file_systems = { usb = "ext4" }
        [[policy]]
        name = "linux-3.1"
        [[policy]]
        name = "linux-3.2-rc5"
        [[policy]]
        name = "tidegate"
        [[policy]]
        name = "linux-6.12"
        defrag = "always"
    "#;

    fn cell(row: usize, policy: usize) -> Cell {
        let source = Source {
            origin: "test".into(),
            text: SMALL.into(),
        };
        let (scenario, _) = Scenario::load(source, &[]).unwrap();
        let column = Column::of(&scenario.policies[policy]);
        Cell::resolve(&scenario, &scenario.rows()[row], &column)
    }

    fn run(cell: &Cell) -> Outcome {
        crate::run::lab::run(cell, 1, false, &Stop::default()).unwrap()
    }

    #[test]
    fn all_memory_is_touched_in_each_iteration_beside_two_copies() {
        // On so small a machine a pass at the gentlest priority looks at a page or two: reclaim for
        // a run ends all the same.
        for policy in 0..4 {
            let cell = cell(0, policy);
            let ended = run(&cell);
            let [job] = &ended.jobs[..] else {
                panic!("there is one job")
            };
            assert_eq!(job.iterations.len(), 2);
            assert!((job.touched - 2.0 * 16_384.0).abs() < 0.5, "{job:?}");
            for one in &job.iterations {
                let asked = one.counter("thp_fault_alloc") + one.counter("thp_fault_fallback");
                assert!((31.0..=32.0).contains(&asked), "{}: {one:?}", cell.policy);
                assert!(one.took_s > 0.0 && one.read > 0.0 && one.dirty > 0.0);
                assert!(one.free <= 16_384.0 / 6.0, "{one:?}");
                assert!(one.counter("pswpout") > 0.0, "{one:?}");
                let tasks = ended.tasks.iter();
                assert_eq!(tasks.filter(|task| task.name == one.alloc).count(), 1);
            }
            assert_eq!(ended.trace_hash, run(&cell).trace_hash, "{}", cell.policy);
        }
    }

    #[test]
    fn a_row_without_huge_pages_asks_for_none() {
        let cell = cell(1, 1);
        assert_eq!(cell.devices[1].fs.as_deref(), Some("ext4"));
        assert_eq!(cell.devices[0].fs.as_deref(), Some("raw"));
        assert_eq!(cell.marks.unwrap().min.0, 256, "two zones at least");
        for one in &run(&cell).jobs[0].iterations {
            assert!(one.counter("thp_fault_fallback").abs() < 0.5, "{one:?}");
        }
    }
}
