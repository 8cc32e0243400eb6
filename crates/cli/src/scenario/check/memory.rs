//! Checks of what has to do with memory: swap, the keys of the columns about reclaim, the sizes of tasks
//! as parts of the memory, and which keys a kind of task takes.

use core::ops::Range;

use policy::place::NODES_MAX;
use policy::place::PlaceLaw;
use policy::reclaim::boost::BoostRule;
use policy::reclaim::laws;
use policy::shrink::ShrinkRule;
use policy::shrink::files::InodeRule;
use toml::Spanned;

use super::{Checker, FILE_MOST_MIB, MEMORY_MOST_MIB, TASKS_MOST};
use crate::catalogue;
use crate::presets::REASONS;
use crate::scenario::diagnose::Mistake;
use crate::scenario::{CaseEntry, PolicyEntry, Scenario, TaskEntry, TaskKind};

/// Most memory or files of all tasks of one entry, as a part of the machine's memory.
const PART_MOST: f64 = 1000.0;
/// All regions of a cache together, as a multiple of its memory (`mm::Cache::spill`).
const REGIONS_MOST: f64 = 30.0;
/// Most files of one task.
const FILES_MOST: f64 = 4096.0;
/// Highest `vm.swappiness`.
const SWAPPINESS_MOST: f64 = 200.0;

impl Checker {
    /// Swap, swappiness, the reserve, the costs.
    pub(super) fn reclaim_of_machine(&mut self, scenario: &Scenario) {
        let machine = &scenario.machine;
        if let Some(swap) = &machine.swap {
            let ids = scenario.devices.iter();
            let ids = ids.map(|device| device.id.get_ref().as_str());
            self.known("device", &swap.device, ids);
            self.range("mib", &swap.mib, 1.0, FILE_MOST_MIB, " MiB");
        }
        self.swappiness(machine.swappiness.as_ref());
        if let Some(nodes) = &machine.nodes {
            let value = Spanned::new(nodes.span(), f64::from(*nodes.get_ref()));
            self.range("nodes", &value, 1.0, NODES_MAX as f64, "");
        }
        if let Some(reserve) = &machine.min_free_kib {
            let most = machine.memory_mib.get_ref() * 1024.0 / 4.0;
            self.range("min_free_kib", reserve, 128.0, most.max(128.0), " KiB");
        }
        if let Some(reserved) = &machine.reserved_percent {
            self.range("reserved_percent", reserved, 0.0, 50.0, " %");
        }
        if let Some(costs) = &machine.costs {
            self.known("machine", costs, catalogue::machines());
        }
    }

    fn swappiness(&mut self, swappiness: Option<&Spanned<u32>>) {
        if let Some(swappiness) = swappiness {
            let value = Spanned::new(swappiness.span(), f64::from(*swappiness.get_ref()));
            self.range("swappiness", &value, 0.0, SWAPPINESS_MOST, "");
        }
    }

    /// What a column says about reclaim.
    pub(super) fn reclaim_of_column(&mut self, policy: &PolicyEntry) {
        if let Some(law) = &policy.reclaim {
            let laws = laws::ALL.iter().map(|law| law.name);
            self.known("way to throttle reclaim", law, laws);
        }
        if let Some(place) = &policy.place {
            let laws = PlaceLaw::ALL.iter().map(|law| law.name);
            self.known("law of placement", place, laws);
        }
        if let Some(rule) = &policy.inodes {
            let rules = InodeRule::ALL.iter().map(|rule| rule.name);
            self.known("way to let inodes go", rule, rules);
        }
        if let Some(rule) = &policy.boost {
            let rules = BoostRule::ALL.iter().map(|rule| rule.name);
            self.known("way to boost", rule, rules);
        }
        if let Some(rule) = &policy.shrink {
            let rules = ShrinkRule::ALL.iter().map(|rule| rule.name);
            self.known("way to ask caches of objects", rule, rules);
        }
        for reason in &policy.reclaim_off {
            self.reason(reason);
        }
        if let Some(timeout) = &policy.writeback_timeout_ms {
            self.range("writeback_timeout_ms", timeout, 1.0, 60_000.0, " ms");
        }
        self.swappiness(policy.swappiness.as_ref());
    }

    pub(super) fn reason(&mut self, reason: &Spanned<String>) {
        let reasons = REASONS.iter().map(|(name, _)| *name);
        self.known("reason to throttle", reason, reasons);
    }

    /// Sizes of a task that are parts of the memory.
    pub(super) fn sizes_in_memory(&mut self, scenario: &Scenario, task: &TaskEntry) {
        for (key, part) in [
            ("memory_part", &task.memory_part),
            ("memory_part_each", &task.memory_part_each),
        ] {
            if let Some(part) = part {
                self.range(key, part, 0.0001, PART_MOST, " of the memory");
            }
        }
        for (key, size) in [
            ("region_mib", &task.region_mib),
            ("pinned_mib", &task.pinned_mib),
        ] {
            if let Some(size) = size {
                self.range(key, size, 1.0 / 256.0, MEMORY_MOST_MIB, " MiB");
            }
        }
        if let Some(phase) = &task.phase_s {
            self.range("phase_s", phase, 0.001, 1e7, " s");
        }
        for (key, number) in [("files", &task.files), ("switch_every", &task.switch_every)] {
            if let Some(number) = number {
                let value = Spanned::new(number.span(), f64::from(*number.get_ref()));
                self.range(key, &value, 1.0, FILES_MOST, "");
            }
        }
        let kind = *task.kind.get_ref();
        let grows = matches!(kind, TaskKind::Hog | TaskKind::Mapper);
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
        let sizes = [
            ("file_mib", task.file_mib.as_ref().map(Spanned::span)),
            ("region_mib", task.region_mib.as_ref().map(Spanned::span)),
            ("memory_part", task.memory_part.as_ref().map(Spanned::span)),
            (
                "memory_part_each",
                task.memory_part_each.as_ref().map(Spanned::span),
            ),
        ];
        // A task of phases has both files and memory. Of what its kind does not take, `keys_of_kind` tells.
        let mut given = sizes
            .into_iter()
            .filter_map(|(key, at)| at.map(|at| (key, at)))
            .filter(|(key, _)| takes_size(kind, key))
            .filter(|(key, _)| kind != TaskKind::Phases || *key != "file_mib");
        if let (Some((one, at)), Some((other, other_at))) = (given.next(), given.next()) {
            self.list.push(
                Mistake::new(
                    format!("`{one}` and `{other}` are both given"),
                    other_at,
                    "one size, said twice",
                )
                .also(at, "the other")
                .help(format!("keep `{one}` or `{other}`, not both")),
            );
        }
    }

    fn exceeds_memory(&self, scenario: &Scenario, task: &TaskEntry) -> bool {
        let memory = *scenario.machine.memory_mib.get_ref();
        let count = task.count.as_ref().map_or(1, |count| *count.get_ref());
        let number = |value: &Option<Spanned<f64>>| value.as_ref().map_or(0.0, |v| *v.get_ref());
        let each = number(&task.region_mib) / memory + number(&task.memory_part_each);
        each * f64::from(count) + number(&task.memory_part) > 1.0
    }

    /// Hogs keep all that they write to: what those of a row have at the same time has to fit memory and swap together.
    pub(super) fn hogs_of_row(&mut self, scenario: &Scenario, row: &CaseEntry) {
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
            .filter(|(task, _)| *task.kind.get_ref() == TaskKind::Hog)
            .map(|(task, count)| {
                let each = number(&task.region_mib) + number(&task.memory_part_each) * mib;
                (task, each * count + number(&task.memory_part) * mib)
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

    /// The regions of a row's tasks at the same time have tables of a bounded size (`REGIONS_MOST`).
    pub(super) fn regions_of_row(&mut self, scenario: &Scenario, row: &CaseEntry) {
        let machine = &scenario.machine;
        let number = |value: &Option<Spanned<f64>>| value.as_ref().map_or(0.0, |v| *v.get_ref());
        let memory = row.memory_mib.as_ref().unwrap_or(&machine.memory_mib);
        let mib = *memory.get_ref();
        let left = 1.0 - number(&machine.reserved_percent) / 100.0;
        let room = mib * left * REGIONS_MOST;
        let regions: Vec<(&TaskEntry, f64)> = tasks_of(scenario, row)
            .filter(|(task, _)| task.kind.get_ref().has_memory())
            .map(|(task, count)| {
                // A bystander's is not scaled.
                let scale = match task.kind.get_ref() {
                    TaskKind::Bystander => *scenario.run.scale.get_ref(),
                    _ => 1.0,
                };
                let each = number(&task.region_mib) / scale + number(&task.memory_part_each) * mib;
                (task, each * count + number(&task.memory_part) * mib)
            })
            .collect();
        let Some((task, all)) = most_at_once(&regions).filter(|(_, all)| *all > room) else {
            return;
        };
        let size = [&task.region_mib, &task.memory_part, &task.memory_part_each];
        let size = size.into_iter().flatten().next();
        let mistake = Mistake::new(
            format!(
                "{} tasks have {all:.0} MiB of anonymous memory, and the cache has tables for {room:.0} MiB",
                whose(scenario, row)
            ),
            size.map_or(task.id.span(), Spanned::span),
            format!("all together may have at most {REGIONS_MOST} times the memory"),
        );
        let help = format!(
            "let the tasks have less, or give the machine at least {:.0} MiB (`memory_mib`)",
            (all / REGIONS_MOST / left).ceil()
        );
        self.list
            .push(mistake.also(memory.span(), "the memory").help(help));
    }

    /// The files that a row's tasks map have tables of a bounded size: eight pages take what one of a region does.
    pub(super) fn maps_of_row(&mut self, scenario: &Scenario, row: &CaseEntry) {
        const MOST: f64 = 8.0 * REGIONS_MOST;
        let machine = &scenario.machine;
        let number = |value: &Option<Spanned<f64>>| value.as_ref().map_or(0.0, |v| *v.get_ref());
        let memory = row.memory_mib.as_ref().unwrap_or(&machine.memory_mib);
        let left = 1.0 - number(&machine.reserved_percent) / 100.0;
        let room = *memory.get_ref() * left * MOST;
        let first = scenario.tasks.first().map(|task| task.id.get_ref());
        let maps = tasks_of(scenario, row)
            .filter(|(task, _)| *task.kind.get_ref() == TaskKind::MappedWriter)
            .map(|(task, count)| {
                let own = row.file_mib.as_ref();
                let own = own.filter(|_| first == Some(task.id.get_ref()));
                let file = own.or(task.file_mib.as_ref());
                (task, count * file.map_or(0.0, |mib| *mib.get_ref()))
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
                task.file_mib.as_ref().map_or(task.id.span(), Spanned::span),
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
    pub(super) fn pins_of_row(&mut self, scenario: &Scenario, row: &CaseEntry) {
        let machine = &scenario.machine;
        let memory = row.memory_mib.as_ref().unwrap_or(&machine.memory_mib);
        let reserved = machine.reserved_percent.as_ref();
        let left = 1.0 - reserved.map_or(0.0, |percent| *percent.get_ref()) / 100.0;
        let room = memory.get_ref() * left / 4.0;
        let pinned = |task: &TaskEntry| task.pinned_mib.as_ref().map_or(0.0, |mib| *mib.get_ref());
        let all: f64 = tasks_of(scenario, row)
            .map(|(task, count)| pinned(task) * count)
            .sum();
        let largest = scenario
            .tasks
            .iter()
            .filter_map(|task| task.pinned_mib.as_ref())
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
    pub(super) fn numbers_of_case(&mut self, scenario: &Scenario, case: &CaseEntry) {
        let ids = scenario.tasks.iter().map(|task| task.id.get_ref().as_str());
        for (key, numbers, most) in [
            ("count", &case.counts, f64::from(TASKS_MOST)),
            ("files", &case.files, FILES_MOST),
        ] {
            for (id, number) in numbers {
                self.known("task", id, ids.clone());
                let value = Spanned::new(number.span(), f64::from(*number.get_ref()));
                self.range(key, &value, 1.0, most, "");
            }
        }
        for (id, number) in &case.files {
            let by_id = |task: &&TaskEntry| task.id.get_ref() == id.get_ref();
            if let Some(task) = scenario.tasks.iter().find(by_id)
                && !task.kind.get_ref().has_many_files()
            {
                self.unused("files", number.span(), task);
            }
        }
        if let Some(memory) = &case.memory_mib {
            let scale = *scenario.run.scale.get_ref();
            let least = super::MEMORY_LEAST_MIB / scale.clamp(1.0 / 64.0, 1.0);
            self.range("memory_mib", memory, least, MEMORY_MOST_MIB, " MiB");
        }
    }

    fn unused(&mut self, key: &str, at: Range<usize>, task: &TaskEntry) {
        let name = task.kind.get_ref().name();
        self.list.push(
            Mistake::new(format!("`{key}` means nothing to a {name}"), at, "not used")
                .also(task.kind.span(), "the kind")
                .help(format!("leave `{key}` out")),
        );
    }

    /// Which keys a kind of task needs, and which mean nothing to it.
    pub(super) fn keys_of_kind(&mut self, task: &TaskEntry) {
        use TaskKind::{
            Bystander, Cp, Dd, FsMark, LargeDd, LightWriter, MakeSmall, MappedWriter, Mapper,
            Phases, Pinner, RandRead, RandWrite, ReadSmall, Reader, StatSmall, Thpavail,
        };
        let kind = *task.kind.get_ref();
        let name = kind.name();
        let span = |value: &Option<Spanned<f64>>| value.as_ref().map(Spanned::span);
        let size = span(&task.memory_part).or(span(&task.memory_part_each));
        // (key, where it is given, it is used, it is needed)
        let keys = [
            (
                "device",
                task.device.as_ref().map(Spanned::span),
                kind.has_files(),
                kind.has_files(),
            ),
            (
                "from",
                task.from.as_ref().map(Spanned::span),
                matches!(kind, Cp | Thpavail),
                matches!(kind, Cp | Thpavail),
            ),
            (
                "block_kib",
                span(&task.block_kib),
                kind.has_files()
                    && !matches!(kind, Pinner | MappedWriter)
                    && !kind.has_small_files(),
                false,
            ),
            (
                "file_mib",
                span(&task.file_mib),
                takes_size(kind, "file_mib"),
                matches!(
                    kind,
                    Dd | Cp | Reader | Phases | LargeDd | MappedWriter | Thpavail
                ) || (matches!(kind, RandWrite | RandRead) && size.is_none()),
            ),
            (
                "region_mib",
                span(&task.region_mib),
                takes_size(kind, "region_mib"),
                kind.has_memory() && size.is_none(),
            ),
            (
                "memory_part",
                span(&task.memory_part),
                takes_size(kind, "memory_part"),
                matches!(kind, StatSmall | ReadSmall),
            ),
            (
                "memory_part_each",
                span(&task.memory_part_each),
                takes_size(kind, "memory_part_each"),
                false,
            ),
            (
                "pinned_mib",
                span(&task.pinned_mib),
                matches!(kind, Phases | Pinner),
                kind == Pinner,
            ),
            (
                "phase_s",
                span(&task.phase_s),
                kind == Phases,
                kind == Phases,
            ),
            (
                "files",
                task.files.as_ref().map(Spanned::span),
                kind.has_many_files(),
                false,
            ),
            (
                "switch_every",
                task.switch_every.as_ref().map(Spanned::span),
                kind == RandRead,
                false,
            ),
            (
                "run_s",
                span(&task.run_s),
                !kind.makes_files() && !matches!(kind, MakeSmall | Thpavail),
                kind.lasts(),
            ),
            ("rate_mib", span(&task.rate_mib), kind == LargeDd, false),
            (
                "total_mib",
                span(&task.total_mib),
                matches!(kind, LargeDd | Thpavail),
                matches!(kind, LargeDd | Thpavail),
            ),
            (
                "files_per_loop",
                task.files_per_loop.as_ref().map(Spanned::span),
                matches!(kind, FsMark | MakeSmall),
                matches!(kind, FsMark | MakeSmall),
            ),
            (
                "loops",
                task.loops.as_ref().map(Spanned::span),
                matches!(kind, FsMark | Thpavail) || kind.has_small_files(),
                matches!(kind, FsMark | MakeSmall | Thpavail),
            ),
            (
                "file_kib",
                span(&task.file_kib),
                matches!(kind, FsMark | MakeSmall),
                matches!(kind, FsMark | MakeSmall),
            ),
            (
                "every_ms",
                span(&task.every_ms),
                matches!(kind, LightWriter | Reader | Dd | Mapper | Bystander),
                matches!(kind, LightWriter | Bystander),
            ),
            (
                "sync",
                task.sync.as_ref().map(Spanned::span),
                kind == Dd,
                false,
            ),
            (
                "order",
                task.order.as_ref().map(Spanned::span),
                kind == Reader,
                false,
            ),
            (
                "file_ends",
                task.file_ends.as_ref().map(Spanned::span),
                kind == Thpavail,
                false,
            ),
        ];
        for (key, at, used, needed) in keys {
            match at {
                Some(at) if !used => self.unused(key, at, task),
                None if needed => self.list.push(
                    Mistake::new(
                        format!("a {name} needs `{key}`"),
                        task.kind.span(),
                        format!("`{key}` is missing"),
                    )
                    .help(format!("add `{key} = ...` to this task")),
                ),
                _ => {}
            }
        }
    }
}

/// Whether a kind of task takes a size by this key.
fn takes_size(kind: TaskKind, key: &str) -> bool {
    use TaskKind::{
        FsMark, Hog, LightWriter, Mapper, Phases, Pinner, RandRead, RandWrite, ReadSmall, StatSmall,
    };
    match key {
        "file_mib" => {
            kind.has_files()
                && !kind.has_small_files()
                && !matches!(kind, LightWriter | Pinner | FsMark)
        }
        "region_mib" => kind.has_memory(),
        "memory_part" if matches!(kind, StatSmall | ReadSmall) => true,
        _ => matches!(kind, Hog | Mapper | RandWrite | RandRead | Phases),
    }
}

/// How a message about a row begins: a row that the scenario did not write has no name there.
fn whose(scenario: &Scenario, row: &CaseEntry) -> String {
    if scenario.cases.is_empty() {
        return "the".into();
    }
    format!("row `{}`: its", row.name.get_ref())
}

/// The most that tasks have at the same time of what each of them has for as long as it runs, and whose beginning that is: there
/// is most of it when one of them begins.
fn most_at_once<'a>(tasks: &[(&'a TaskEntry, f64)]) -> Option<(&'a TaskEntry, f64)> {
    let number = |value: &Option<Spanned<f64>>| value.as_ref().map_or(0.0, |v| *v.get_ref());
    let at_start_of = |begun: &TaskEntry| -> f64 {
        let at = number(&begun.start_s);
        let there = tasks.iter().filter(|(task, _)| {
            let start = number(&task.start_s);
            start <= at && at < start + number(&task.run_s).max(f64::MIN_POSITIVE)
        });
        there.map(|(_, mib)| mib).sum()
    };
    let totals = tasks.iter().map(|(task, _)| (*task, at_start_of(task)));
    totals.max_by(|(_, one), (_, other)| one.total_cmp(other))
}

/// The tasks that a row has, each with how many there are of it.
fn tasks_of<'a>(
    scenario: &'a Scenario,
    case: &'a CaseEntry,
) -> impl Iterator<Item = (&'a TaskEntry, f64)> {
    let numbered = scenario.tasks.iter().enumerate();
    numbered.filter_map(move |(index, task)| {
        let chosen = |name: &Spanned<String>| name.get_ref() == task.id.get_ref();
        if !case.tasks.is_empty() && !case.tasks.iter().any(chosen) {
            return None;
        }
        let by_id = case.counts.iter().find(|(name, _)| chosen(name));
        let count = by_id
            .map(|(_, count)| count)
            .or(case.count.as_ref().filter(|_| index == 0))
            .or(task.count.as_ref());
        Some((task, f64::from(count.map_or(1, |count| *count.get_ref()))))
    })
}
