//! The jobs of a cell: a scenario's tasks, each with its sizes in a row and its numbers at the
//! run's scale.

use policy::units::{Nanos, Pages};
use toml::Spanned;
use workload::Keep;

use super::{runs, small};
use crate::loads;
use crate::task::{Facts, Sizes};
use scenario::keys::value;
use scenario::kinds::Task;
use scenario::machine::pages_of;
use scenario::task::{Files, Traits, Writes};
use scenario::units::{seconds, whole};
use scenario::{Machine, RowEntry, Scenario, TaskEntry};

/// A small file of which nothing is said is a page.
const SMALL_FILE_KIB: f64 = 4.0;
/// Requests do not shrink below 128 KiB (experiments A6).
const REQUEST_LEAST: Pages = Pages(32);
/// Name of the job that keeps small files, and of its kind.
const KEEPER: &str = "keeper";

/// A job of a cell: one task, its files and its memory.
#[derive(Clone, Debug)]
pub struct JobSpec {
    /// Its name.
    pub name: String,
    /// Name of the scenario's task that it is one of.
    pub entry: String,
    /// Name of its kind in tables.
    pub kind: &'static str,
    /// The traits of its kind.
    pub(crate) traits: Traits,
    /// Its numbers.
    pub(crate) facts: Facts,
    /// Its work.
    pub(crate) does: Does,
    /// Index of the device its files are on, if it has any.
    pub device: Option<usize>,
    /// Index of its other device: its source's, or its log's.
    pub from: Option<usize>,
    /// Time from the beginning to its start.
    pub start_after: Nanos,
    /// Number of its files before it runs.
    pub files: u32,
}

/// The work of a job.
#[derive(Clone, Debug)]
pub(crate) enum Does {
    /// The work of a task of the scenario.
    Task(Box<Task>, Sizes),
    /// Keeps the small files of the others: it is in no scenario, and comes with them.
    Keeps(Keep),
}

/// Memory of the machine in a row, before scaling.
pub(super) fn memory_mib(scenario: &Scenario, row: &RowEntry) -> f64 {
    let own = row.memory_mib.as_ref();
    *own.unwrap_or(&scenario.machine.memory_mib).get_ref()
}

/// The jobs of a row.
pub(super) fn of_row(scenario: &Scenario, row: &RowEntry) -> Vec<JobSpec> {
    let mut jobs = Vec::new();
    for (index, task) in scenario.tasks.iter().enumerate() {
        let id = task.id.get_ref();
        let chosen = |name: &Spanned<String>| name.get_ref() == id;
        if !row.tasks.is_empty() && !row.tasks.iter().any(chosen) {
            continue;
        }
        let first = index == 0;
        let counts = row.counts.iter().find(|(name, _)| chosen(name));
        let count = counts
            .map(|(_, count)| count)
            .or(row.count.as_ref().filter(|_| first))
            .or(task.count.as_ref());
        let count = count.map_or(1, |count| *count.get_ref());
        let sizes = sizes(scenario, row, task, (first, count));
        for number in 0..count {
            let sizes = Sizes {
                number,
                ..sizes.clone()
            };
            let mut job = job(scenario, task, sizes);
            if count > 1 {
                job.name = format!("{}-{number}", job.name);
            }
            jobs.push(job);
        }
    }
    jobs.extend(keeper(scenario, &jobs));
    jobs
}

/// The task that keeps the small files of these jobs.
fn keeper(scenario: &Scenario, jobs: &[JobSpec]) -> Option<JobSpec> {
    let mut makers = jobs.iter();
    let maker = makers.find(|job| job.traits.files == Files::SmallMade)?;
    Some(JobSpec {
        name: KEEPER.to_owned(),
        entry: KEEPER.to_owned(),
        kind: KEEPER,
        traits: Traits {
            files: Files::Written,
            writes: Writes::Once,
            ..Traits::NONE
        },
        facts: Facts::default(),
        does: Does::Keeps(small::keeper(whole(1.0 / *scenario.run.scale.get_ref()))),
        device: maker.device,
        from: None,
        start_after: Nanos::ZERO,
        files: 1,
    })
}

/// Pages of each small file of a scenario.
pub(super) fn pages_a_file(scenario: &Scenario) -> u32 {
    let mut tasks = scenario.tasks.iter();
    let maker = tasks.find(|task| task.kind.get_ref().traits().files == Files::SmallMade);
    let kib = maker.and_then(|task| task.key("file_kib"));
    let kib = value(&kib).unwrap_or(SMALL_FILE_KIB);
    u32::try_from(whole(kib / SMALL_FILE_KIB)).expect("a small file is checked")
}

/// Sizes of the first task of an entry in a row.
fn sizes(
    scenario: &Scenario,
    row: &RowEntry,
    task: &TaskEntry,
    (first, count): (bool, u32),
) -> Sizes {
    let number = |key: &str| value(&task.key(key));
    let (machine, scale) = (&scenario.machine, *scenario.run.scale.get_ref());
    let memory = memory_mib(scenario, row);
    let all = number("memory_part").map(|part| part * memory / f64::from(count));
    let each = number("memory_part_each").map(|part| part * memory);
    let part = all.or(each);
    let own = value(&row.file_mib).filter(|_| first);
    let file = own.or(number("file_mib"));
    let id = task.id.get_ref();
    let files = row.files.iter().find(|(name, _)| name.get_ref() == id);
    let files = files.map(|(_, files)| *files.get_ref());
    let shrink = whole(1.0 / scale);
    Sizes {
        file_mib: file.or(part).unwrap_or(0.0),
        region_mib: number("region_mib").or(part).unwrap_or(0.0),
        part_mib: number("memory_part").unwrap_or(0.0) * memory,
        files: files.unwrap_or_else(|| count_of(number("files"))),
        block_least: request_least(machine),
        scale,
        number: 0,
        run_for: value(&task.run_s).map(seconds),
        memory: pages_of(machine, *machine.memory_mib.get_ref(), scale),
        huge: 1 << runs::scaled(shrink),
        small_file: scenario::small::bytes_a_file(machine),
        costs: if machine.scale_costs { shrink } else { 1 },
    }
}

/// The number of files, one at least.
fn count_of(files: Option<f64>) -> u32 {
    let files = files.map_or(1, whole);
    u32::try_from(files).expect("a count of files is checked")
}

fn job(scenario: &Scenario, task: &TaskEntry, sizes: Sizes) -> JobSpec {
    let kind = task.kind.get_ref();
    let traits = kind.traits();
    let device = |id: &Spanned<String>| device(scenario, id.get_ref());
    JobSpec {
        name: task.id.get_ref().clone(),
        entry: task.id.get_ref().clone(),
        kind: kind.name(),
        traits,
        facts: loads::of(kind).facts(&sizes),
        device: task.device.as_ref().map(device),
        from: task.other_device().map(device),
        start_after: value(&task.start_s).map_or(Nanos::ZERO, seconds),
        files: traits.files.count(sizes.files),
        does: Does::Task(Box::new(kind.clone()), sizes),
    }
}

impl JobSpec {
    /// It writes files.
    pub(crate) fn writes(&self) -> bool {
        self.traits.writes != Writes::Nothing
    }

    /// Its files are there, with their content, before the run.
    pub(crate) fn finds_files(&self) -> bool {
        self.traits.files == Files::Found
    }
}

/// The least size that a request shrinks to: 128 KiB (experiments A6), so that a device's time for
/// a request stays small against that for its pages. There is no such bound if both are scaled with
/// the pages: a request of fewer pages then takes as long as one of all of them at full size.
pub(super) const fn request_least(machine: &Machine) -> Pages {
    if machine.scale_costs {
        Pages(1)
    } else {
        REQUEST_LEAST
    }
}

/// Index of a device of a checked scenario.
pub(super) fn device(scenario: &Scenario, id: &str) -> usize {
    let mut devices = scenario.devices.iter();
    let at = devices.position(|device| device.id.get_ref() == id);
    at.expect("a loaded scenario names its own devices")
}
