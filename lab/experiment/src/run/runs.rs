//! Huge pages of a cell, and paper p4's test.
//!
//! At a scale the run of a huge page shrinks with the memory, and the pageblock with it: there are
//! as many of them, and claims about their number (1003 in all, one in a few without dirty pages)
//! hold at any scale.
//!
//! Source: experiments A5, B4; the kernel's numbers: kernel-facts A7, A11.

use history::compact::Compaction;
use policy::place::mobility::Mobility;
use workload::Report;

use super::disk::DeviceSpec;
use super::real::{number, seconds};
use crate::outcome::Iteration;
use scenario::presets::with_patches;
use scenario::{ColumnEntry, DefragKind, Machine, RowEntry};

/// Order of a huge page.
const HUGE: u32 = 9;

/// Huge pages of a machine that is smaller by `shrink`: none if it does not say `thp`. A row
/// without them is one of a kernel that could have them: its way to one may show elsewhere.
pub(super) fn of(machine: &Machine, row: &RowEntry, shrink: u64) -> Option<mm::Runs> {
    let own = machine.thp.as_ref()?;
    let has = *row.thp.as_ref().unwrap_or(own).get_ref();
    let stands_for = u32::try_from(shrink).expect("a scale is checked");
    Some(mm::Runs {
        faults: has,
        ..mm::Runs::of(stands_for)
    })
}

/// Where there are huge pages, what is moved for them lies apart from what cannot be.
pub(super) fn keep_apart(machine: &Machine, compaction: &Compaction) -> bool {
    machine.thp.is_some() && compaction.keeps_apart()
}

/// A column's law of making a huge page.
pub(super) fn compaction_of(entry: &ColumnEntry, mut compaction: Compaction) -> Compaction {
    if !entry.patches.is_empty() {
        compaction =
            with_patches(&entry.patches_joined()).expect("a loaded scenario names known patches");
    }
    if let (Compaction::Scans(scans), Some(defers)) = (&mut compaction, &entry.defers) {
        scans.defers = *defers.get_ref();
    }
    if let (Compaction::Background(law), Some(defrag)) = (&mut compaction, &entry.defrag) {
        law.for_all = *defrag.get_ref() == DefragKind::Always;
    }
    compaction
}

/// Traits of a device's pages for compaction and for its flusher, by its file system.
pub(super) fn of_device(spec: &DeviceSpec, options: &mut mm::DeviceOptions) {
    let fs = spec
        .fs
        .as_deref()
        .and_then(|name| world::fs::by_name(name).ok());
    if let Some(fs) = fs {
        options.migrates = fs.migrates;
        options.one_file = fs.is_device();
        if fs.unmovable {
            options.mobility = Mobility::Unmovable;
        }
    }
    if let Some(journal) = &spec.journal {
        options.at_once = journal.bio;
    }
    options.blocks_a_page = spec.blocks_a_page;
}

/// Order of a huge page of a machine that is smaller by `shrink`.
pub(super) fn scaled(shrink: u64) -> u8 {
    let order = HUGE.saturating_sub(shrink.max(1).ilog2()).max(1);
    u8::try_from(order).expect("at most nine")
}

/// The machine with the reserve of a row.
pub(super) fn with_reserve(machine: &Machine, row: &RowEntry) -> Machine {
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
