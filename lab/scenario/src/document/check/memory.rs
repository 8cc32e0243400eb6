//! Checks of what has to do with memory: swap, the keys of the columns about reclaim, the sizes of
//! tasks as parts of the memory, and what of the keys of all kinds a task takes.

use core::ops::Range;

use toml::Spanned;

use super::Checker;
use crate::document::MEMORY_MOST_MIB;
use crate::document::tasks::{misfit, missing};
use crate::document::{RowEntry, Scenario, TaskEntry};
use crate::kinds::by_name;
use crate::limits::MEMORY_LEAST_MIB;
use crate::mistake::Mistake;
use crate::task::{Ends, Files, Memory};

/// All regions of a cache together, as a multiple of its memory (`mm::Cache::spill`).
const REGIONS_MOST: f64 = 30.0;
impl Checker {
    /// Swap and the reserve.
    pub(super) fn reclaim_of_machine(&mut self, scenario: &Scenario) {
        let machine = &scenario.machine;
        if let Some(swap) = &machine.swap {
            let ids = scenario.devices.iter();
            let ids = ids.map(|device| device.id.get_ref().as_str());
            self.known("device", &swap.device, ids);
        }
        self.reserve(scenario, machine.min_free_kib.as_ref());
    }

    /// The reserve of a machine or a row.
    pub(super) fn reserve(&mut self, scenario: &Scenario, reserve: Option<&Spanned<f64>>) {
        if let Some(reserve) = reserve {
            let most = scenario.machine.memory_mib.get_ref() * 1024.0 / 4.0;
            self.range("min_free_kib", reserve, 128.0, most.max(128.0), " KiB");
        }
    }

    /// More memory than there is needs a swap file.
    pub(super) fn grows(&mut self, scenario: &Scenario, task: &TaskEntry) {
        let memory = task.kind.get_ref().traits().memory;
        let grows = matches!(memory, Memory::Kept | Memory::Mapped);
        if grows && scenario.machine.swap.is_none() && self.exceeds_memory(scenario, task) {
            self.list.push(
                Mistake::new(
                    "more anonymous memory than there is, and no swap file",
                    task.id.span(),
                    "it would run out of memory",
                )
                .also(scenario.machine.memory_mib.span(), "the memory")
                .help("add `swap = { device = \"...\", mib = ... }` to the machine"),
            );
        }
    }

    /// Keys of all kinds that this one needs or cannot use, and its size, which is said once.
    pub(super) fn keys_of_traits(&mut self, task: &TaskEntry) {
        let kind = task.kind.get_ref();
        let (name, traits, at) = (kind.name(), kind.traits(), task.kind.span());
        let has_files = traits.files != Files::None;
        match &task.device {
            Some(device) if !has_files => self.unused("device", device.span(), task),
            None if has_files => self.list.push(missing(name, "device", at.clone())),
            _ => {}
        }
        match &task.run_s {
            Some(run) if traits.ends == Ends::Itself => self.unused("run_s", run.span(), task),
            None if traits.ends == Ends::Timed => {
                self.list.push(missing(name, "run_s", at.clone()))
            }
            _ => {}
        }
        let sizes = traits.size.iter();
        let mut sizes = sizes.filter_map(|key| Some((*key, task.key(key)?.span())));
        match (sizes.next(), sizes.next()) {
            (None, _) => {
                let first = traits.size.first();
                self.list.extend(first.map(|key| missing(name, key, at)));
            }
            (Some((one, at)), Some((other, other_at))) => self.list.push(
                Mistake::new(
                    format!("`{one}` and `{other}` are both given"),
                    other_at,
                    "one size, said twice",
                )
                .also(at, "the other")
                .help(format!("keep `{one}` or `{other}`, not both")),
            ),
            _ => {}
        }
    }

    fn exceeds_memory(&self, scenario: &Scenario, task: &TaskEntry) -> bool {
        let memory = *scenario.machine.memory_mib.get_ref();
        let count = task.count.as_ref().map_or(1, |count| *count.get_ref());
        let each = task.amount("region_mib") / memory + task.amount("memory_part_each");
        each * f64::from(count) + task.amount("memory_part") > 1.0
    }

    /// Hogs keep all that they write to: what those of a row have at the same time has to fit
    /// memory and swap together.
    pub(super) fn hogs_of_row(&mut self, scenario: &Scenario, row: &RowEntry) {
        let machine = &scenario.machine;
        let Some(swap) = &machine.swap else { return };
        if machine.oom_kills {
            return;
        }
        let number = |value: &Option<Spanned<f64>>| value.as_ref().map_or(0.0, |v| *v.get_ref());
        let memory = row.memory_mib.as_ref().unwrap_or(&machine.memory_mib);
        let mib = *memory.get_ref();
        let left = mib * (1.0 - number(&machine.reserved_percent) / 100.0);
        let room = left + swap.mib.get_ref();
        let hogs: Vec<(&TaskEntry, f64)> = tasks_of(scenario, row)
            .filter(|(task, _)| task.kind.get_ref().traits().memory == Memory::Kept)
            .map(|(task, count)| {
                let each = task.amount("region_mib") + task.amount("memory_part_each") * mib;
                (task, each * count + task.amount("memory_part") * mib)
            })
            .collect();
        let most = most_at_once(&hogs);
        if let Some((task, all)) = most
            && all > room
        {
            self.list.push(
                Mistake::new(
                    format!(
                        "{} hogs keep {all:.0} MiB, and memory and swap have {room:.0} MiB",
                        whose(scenario, row)
                    ),
                    task.id.span(),
                    "it would run out of memory",
                )
                .also(swap.mib.span(), "the swap file")
                .help(format!(
                    "give the swap file at least {:.0} MiB, or let the hogs have less",
                    (all - left).ceil()
                )),
            );
        }
    }

    /// The regions of a row's tasks at the same time have tables of a bounded size
    /// (`REGIONS_MOST`).
    pub(super) fn regions_of_row(&mut self, scenario: &Scenario, row: &RowEntry) {
        let machine = &scenario.machine;
        let number = |value: &Option<Spanned<f64>>| value.as_ref().map_or(0.0, |v| *v.get_ref());
        let memory = row.memory_mib.as_ref().unwrap_or(&machine.memory_mib);
        let mib = *memory.get_ref();
        let left = 1.0 - number(&machine.reserved_percent) / 100.0;
        let room = mib * left * REGIONS_MOST;
        let regions: Vec<(&TaskEntry, f64)> = tasks_of(scenario, row)
            .map(|(task, count)| (task, count, task.kind.get_ref().traits().memory))
            .filter(|(.., memory)| *memory != Memory::None)
            .map(|(task, count, memory)| {
                // Memory that is taken on a schedule is not scaled.
                let scale = match memory {
                    Memory::Scheduled => *scenario.run.scale.get_ref(),
                    _ => 1.0,
                };
                let own = task.amount("region_mib") / scale;
                let each = own + task.amount("memory_part_each") * mib;
                (task, each * count + task.amount("memory_part") * mib)
            })
            .collect();
        let Some((task, all)) = most_at_once(&regions).filter(|(_, all)| *all > room) else {
            return;
        };
        let sizes = ["region_mib", "memory_part", "memory_part_each"];
        let size = sizes.iter().find_map(|key| task.key(key));
        let mistake = Mistake::new(
            format!(
                "{} tasks have {all:.0} MiB of anonymous memory, and the cache has tables for {room:.0} MiB",
                whose(scenario, row)
            ),
            size.map_or(task.id.span(), |size| size.span()),
            format!("all together may have at most {REGIONS_MOST} times the memory"),
        );
        let help = format!(
            "let the tasks have less, or give the machine at least {:.0} MiB (`memory_mib`)",
            (all / REGIONS_MOST / left).ceil()
        );
        self.list
            .push(mistake.also(memory.span(), "the memory").help(help));
    }

    /// The files that a row's tasks map have tables of a bounded size: eight pages take what one of
    /// a region does.
    pub(super) fn maps_of_row(&mut self, scenario: &Scenario, row: &RowEntry) {
        const MOST: f64 = 8.0 * REGIONS_MOST;
        let machine = &scenario.machine;
        let number = |value: &Option<Spanned<f64>>| value.as_ref().map_or(0.0, |v| *v.get_ref());
        let memory = row.memory_mib.as_ref().unwrap_or(&machine.memory_mib);
        let left = 1.0 - number(&machine.reserved_percent) / 100.0;
        let room = *memory.get_ref() * left * MOST;
        let first = scenario.tasks.first().map(|task| task.id.get_ref());
        let maps = tasks_of(scenario, row)
            .filter(|(task, _)| task.kind.get_ref().traits().maps)
            .map(|(task, count)| {
                let own = row.file_mib.as_ref();
                let own = own.filter(|_| first == Some(task.id.get_ref()));
                let file = own.map_or_else(|| task.amount("file_mib"), |mib| *mib.get_ref());
                (task, count * file)
            });
        let maps: Vec<(&TaskEntry, f64)> = maps.collect();
        let all: f64 = maps.iter().map(|(_, mib)| mib).sum();
        let largest = maps
            .iter()
            .max_by(|(_, one), (_, other)| one.total_cmp(other));
        if let Some((task, _)) = largest.filter(|_| all > room) {
            let mistake = Mistake::new(
                format!(
                    "{} tasks map {all:.0} MiB of files, and the cache has tables for {room:.0} MiB",
                    whose(scenario, row)
                ),
                task.key("file_mib")
                    .map_or(task.id.span(), |file| file.span()),
                format!("all together may map at most {MOST} times the memory"),
            );
            let help = format!(
                "map less, or give the machine at least {:.0} MiB (`memory_mib`)",
                (all / MOST / left).ceil()
            );
            self.list
                .push(mistake.also(memory.span(), "the memory").help(help));
        }
    }

    /// The tasks of a row pin no more pages together than a cache lets (`mm::Options::pins_max`).
    pub(super) fn pins_of_row(&mut self, scenario: &Scenario, row: &RowEntry) {
        let machine = &scenario.machine;
        let memory = row.memory_mib.as_ref().unwrap_or(&machine.memory_mib);
        let reserved = machine.reserved_percent.as_ref();
        let left = 1.0 - reserved.map_or(0.0, |percent| *percent.get_ref()) / 100.0;
        let room = memory.get_ref() * left / 4.0;
        let all: f64 = tasks_of(scenario, row)
            .map(|(task, count)| task.amount("pinned_mib") * count)
            .sum();
        let largest = scenario
            .tasks
            .iter()
            .filter_map(|task| task.key("pinned_mib"))
            .max_by(|one, other| one.get_ref().total_cmp(other.get_ref()));
        if let Some(largest) = largest
            && all > room
        {
            self.list.push(
                Mistake::new(
                    format!(
                        "{} tasks pin {all} MiB, and a quarter of the memory is {room} MiB",
                        whose(scenario, row)
                    ),
                    largest.span(),
                    "more cannot be pinned",
                )
                .also(memory.span(), "the memory")
                .help("pin less, or give the machine more memory"),
            );
        }
    }

    /// Counts and files that a row gives to tasks by their ids.
    pub(super) fn numbers_of_row(&mut self, scenario: &Scenario, row: &RowEntry) {
        let ids = scenario.tasks.iter().map(|task| task.id.get_ref().as_str());
        for (id, _) in row.counts.iter().chain(&row.files) {
            self.known("task", id, ids.clone());
        }
        for (id, number) in &row.files {
            let by_id = |task: &&TaskEntry| task.id.get_ref() == id.get_ref();
            if let Some(task) = scenario.tasks.iter().find(by_id)
                && by_name(task.kind.get_ref().name()).is_some_and(|kind| !kind.has("files"))
            {
                self.unused("files", number.span(), task);
            }
        }
        if let Some(memory) = &row.memory_mib {
            let scale = *scenario.run.scale.get_ref();
            let least = MEMORY_LEAST_MIB / scale.clamp(1.0 / 64.0, 1.0);
            self.range("memory_mib", memory, least, MEMORY_MOST_MIB, " MiB");
        }
    }

    fn unused(&mut self, key: &str, at: Range<usize>, task: &TaskEntry) {
        let kind = by_name(task.kind.get_ref().name()).expect("a task has a kind of the list");
        self.list.push(misfit(key, at, kind, task.kind.span()));
    }
}

/// The beginning of a message about a row: a row that the scenario did not write has no name there.
fn whose(scenario: &Scenario, row: &RowEntry) -> String {
    if scenario.rows.is_empty() {
        return "the".into();
    }
    format!("row `{}`: its", row.name.get_ref())
}

/// The most that tasks have at the same time of what each of them has for as long as it runs, and
/// whose beginning that is: there is most of it when one of them begins.
fn most_at_once<'a>(tasks: &[(&'a TaskEntry, f64)]) -> Option<(&'a TaskEntry, f64)> {
    let at_start_of = |begun: &TaskEntry| -> f64 {
        let at = begun.amount("start_s");
        let there = tasks.iter().filter(|(task, _)| {
            let start = task.amount("start_s");
            start <= at && at < start + task.amount("run_s").max(f64::MIN_POSITIVE)
        });
        there.map(|(_, mib)| mib).sum()
    };
    let totals = tasks.iter().map(|(task, _)| (*task, at_start_of(task)));
    totals.max_by(|(_, one), (_, other)| one.total_cmp(other))
}

/// The tasks that a row has, each with how many there are of it.
fn tasks_of<'a>(
    scenario: &'a Scenario,
    row: &'a RowEntry,
) -> impl Iterator<Item = (&'a TaskEntry, f64)> {
    let numbered = scenario.tasks.iter().enumerate();
    numbered.filter_map(move |(index, task)| {
        let chosen = |name: &Spanned<String>| name.get_ref() == task.id.get_ref();
        if !row.tasks.is_empty() && !row.tasks.iter().any(chosen) {
            return None;
        }
        let by_id = row.counts.iter().find(|(name, _)| chosen(name));
        let count = by_id
            .map(|(_, count)| count)
            .or(row.count.as_ref().filter(|_| index == 0))
            .or(task.count.as_ref());
        Some((task, f64::from(count.map_or(1, |count| *count.get_ref()))))
    })
}
