//! One cell of the table, resolved: a row and a column of a scenario as numbers that a run needs.
//!
//! Scaling (experiments A6) happens here and in `jobs`, and nowhere else: memory, files and device
//! rates by the scale; times and HZ not; requests and random blocks too (`request_least`), other
//! blocks not. Watermarks are those of the full size, scaled, and MIN at least 128 pages: the
//! kernel's grow as the root of the memory, and clusters of 32 pages must stay small against them.

use history::files::InodeRule;
use history::laws::Laws;
use history::shrink::ShrinkRule;
use policy::dirty::Threshold;
use policy::place::cpu_list::Bound;
use policy::place::machine;
use policy::rule::RuleMaker;
use policy::units::{Bytes, Nanos, Pages};
use policy::watermark::Watermarks;
use policy::writeback::{Flight, FlushTunables};
use world::fs::journal;

use super::disk::{DeviceSpec, WHOLE_RATIO};
use super::jobs::{self, JobSpec, device, request_least};
use super::runs;
use super::small::SmallSpec;
use scenario::machine::{marks, of_machine, pages_of, zone_count};
use scenario::presets::{self, PRESETS, Preset};
use scenario::task::Files;
use scenario::units::{PAGES_PER_MIB, mib, millis, seconds, whole, whole_pages};
use scenario::{ColumnEntry, DeviceEntry, JournalData, JournalTable, RowEntry, Scenario, choices};

/// Size of a journal that a scenario does not give (mke2fs, on devices of 1 to 2 GiB).
const JOURNAL_MIB: f64 = 16.0;
/// A smaller read-ahead window is none (`mm::Options::readahead_max`).
const WINDOW_LEAST: Pages = Pages(2);
/// KiB of a page.
const KIB_PER_PAGE: f64 = 4.0;
/// Requests in flight, however small the machine: the device is not to run dry.
const FLIGHT_LEAST: u64 = 4;

/// One cell.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Row.
    pub case: String,
    /// Column.
    pub policy: String,
    /// Part of the full size.
    pub scale: f64,
    /// One over it.
    pub shrink: u64,
    /// CPUs.
    pub cpus: u32,
    /// Tasks share CPUs as under Linux 6.12 with this many ticks a second.
    pub preempt_hz: Option<u32>,
    /// The overhead of pages takes frames of the memory.
    pub overhead: bool,
    /// Memory for pages.
    pub memory: Pages,
    /// It was in use before the run.
    pub used_before: bool,
    /// Its laws, with the limits of its machine and at its scale.
    pub laws: Laws,
    /// Which page of a file goes, if not by the law's lists.
    pub page_rule: Option<RuleMaker>,
    /// Largest read-ahead window; none: ours.
    pub readahead: Option<Pages>,
    /// When reclaim starts and stops; none: as the memory has it.
    pub marks: Option<Watermarks>,
    /// Its nodes, if it has several.
    pub machine: Option<machine::Machine>,
    /// Huge pages, where the machine has any.
    pub runs: Option<mm::Runs>,
    /// The swap file of anonymous pages.
    pub swap: Option<SwapSpec>,
    /// The machine whose costs work has; none: by the first device's file system.
    pub costs: Option<String>,
    /// Pages cost `shrink` times as much.
    pub scale_costs: bool,
    /// Requests to devices have `shrink` times fewer pages.
    pub scale_requests: bool,
    /// Left out of what is summed over rows.
    pub apart: bool,
    /// Devices.
    pub devices: Vec<DeviceSpec>,
    /// Jobs.
    pub jobs: Vec<JobSpec>,
    /// Its small files, if it has any.
    pub small: Option<SmallSpec>,
    /// Time between samples of the levels.
    pub sample: Nanos,
    /// Longest run.
    pub longest: Nanos,
}

/// A swap file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapSpec {
    /// Index of its device.
    pub device: usize,
    /// Its size.
    pub pages: Pages,
}

/// A column, resolved.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Those of its preset, as it changes them.
    pub laws: Laws,
    /// `strict` of all devices, if it says so.
    pub strict: Option<bool>,
    /// `max_ratio` of all devices, if it says so, in 1/10000.
    pub max_ratio: Option<u32>,
    /// Largest read-ahead window before scaling, if it says so.
    pub readahead: Option<Pages>,
    /// Which page of a file goes, if not by the law's lists.
    pub page_rule: Option<RuleMaker>,
    /// All memory counts as of one node.
    pub one_node: bool,
    /// `vm.swappiness`, if it says so; else the machine's.
    pub swappiness: Option<u8>,
}

impl Column {
    /// The column of a checked scenario.
    #[must_use]
    pub fn of(entry: &ColumnEntry) -> Self {
        let name = entry.name.get_ref();
        let preset = entry
            .preset
            .as_ref()
            .map_or(name, |preset| preset.get_ref());
        let preset = presets::by_name(preset).expect("a loaded scenario names known presets");
        Self {
            name: name.clone(),
            laws: laws_of(entry, preset.laws),
            strict: entry.strict.as_ref().map(|strict| *strict.get_ref()),
            max_ratio: ratio(entry.max_percent.as_ref()),
            readahead: window_of(entry.readahead_kib.as_ref()),
            page_rule: entry.page_rule.as_ref().map(|name| {
                RuleMaker::by_name(name.get_ref()).expect("a loaded scenario names known rules")
            }),
            one_node: entry.one_node,
            swappiness: entry.swappiness.as_ref().map(checked_swappiness),
        }
    }

    /// The columns of these names, each one of the scenario's or a preset; all of the scenario's
    /// without any.
    ///
    /// # Errors
    /// A name that is not known, or that is there twice, in the words of `--column`.
    pub fn named(scenario: &Scenario, names: &[String]) -> Result<Vec<Self>, String> {
        let own = &scenario.columns;
        if names.is_empty() {
            return Ok(own.iter().map(Self::of).collect());
        }
        let mut columns: Vec<Self> = Vec::new();
        for name in names {
            if columns.iter().any(|column| column.name == *name) {
                return Err(format!("--column names `{name}` twice; name it once"));
            }
            let entry = own.iter().find(|policy| policy.name.get_ref() == name);
            let column = entry
                .map(Self::of)
                .or_else(|| presets::by_name(name).map(|preset| Self::plain(name, &preset)));
            columns.push(column.ok_or_else(|| unknown(name, own))?);
        }
        Ok(columns)
    }

    /// A column that is a preset and nothing else.
    #[must_use]
    pub fn plain(name: &str, preset: &Preset) -> Self {
        Self {
            name: name.to_owned(),
            laws: preset.laws,
            strict: None,
            max_ratio: None,
            readahead: None,
            page_rule: None,
            one_node: false,
            swappiness: None,
        }
    }
}

/// The complaint about a column that nobody knows: there are the scenario's, and presets.
fn unknown(name: &str, own: &[ColumnEntry]) -> String {
    let own: Vec<&str> = own
        .iter()
        .map(|policy| policy.name.get_ref().as_str())
        .collect();
    let presets = PRESETS.iter().map(|preset| preset.name);
    let others = presets.filter(|preset| !own.contains(preset));
    let known: Vec<&str> = own.iter().copied().chain(others).collect();
    format!(
        "--column: unknown column `{name}`; {}",
        choices(name, known)
    )
}

impl Cell {
    /// Resolves a row and a column of a scenario that was checked.
    #[must_use]
    pub fn resolve(scenario: &Scenario, row: &RowEntry, column: &Column) -> Self {
        let scale = *scenario.run.scale.get_ref();
        let machine = &scenario.machine;
        let memory_mib = jobs::memory_mib(scenario, row);
        let memory = pages_of(machine, memory_mib, scale);
        let limit =
            |mib: Option<&toml::Spanned<f64>>, percent: &Option<toml::Spanned<u8>>, or| match (
                mib, percent,
            ) {
                (Some(mib), _) => Threshold::Pages(
                    Pages(whole(*mib.get_ref() * PAGES_PER_MIB * scale)).at_least(Pages(1)),
                ),
                (None, Some(percent)) => Threshold::Percent(*percent.get_ref()),
                (None, None) => or,
            };
        let cpus = *machine.cpus.get_ref();
        let shrink = whole(1.0 / scale);
        let mut laws = column.laws;
        laws.dirty.cpus = cpus;
        laws.dirty.memory = memory;
        laws.dirty.dirty = limit(
            row.dirty_mib.as_ref().or(machine.dirty_mib.as_ref()),
            &machine.dirty_percent,
            laws.dirty.dirty,
        );
        laws.dirty.background = limit(
            row.background_mib
                .as_ref()
                .or(machine.background_mib.as_ref()),
            &machine.background_percent,
            laws.dirty.background,
        );
        let mut devices = devices(scenario, row, column);
        let mut jobs = jobs::of_row(scenario, row);
        let mut swap = swap(scenario, scale);
        keep_used(&mut devices, &mut jobs, swap.as_mut());
        let own = machine.swappiness.as_ref().map(checked_swappiness);
        let several = machine.node_count() > 1 || zone_count(machine) > 1;
        let several = several && !column.one_node;
        let some_fs = |is: fn(&world::fs::Model) -> bool| {
            let fs = |device: &DeviceSpec| world::fs::by_name(device.fs.as_deref()?).ok();
            devices.iter().filter_map(fs).any(|fs| is(&fs))
        };
        let reclaim = &mut laws.reclaim;
        reclaim.stands_for = u32::try_from(shrink).expect("a scale is checked");
        if machine.scale_clusters {
            reclaim.cluster_stands_for = reclaim.stands_for;
        }
        reclaim.oom_kills = machine.oom_kills;
        reclaim.writes_files &= !some_fs(|fs| !fs.writes_pages);
        reclaim.files_within_fs = some_fs(|fs| fs.asks_within);
        reclaim.swappiness = column.swappiness.or(own).unwrap_or(reclaim.swappiness);
        laws.slabs.keeps_apart |= runs::keep_apart(machine, &laws.compaction);
        laws.flush = shrunk(laws.flush, shrink, request_least(machine));
        Self {
            case: row.name.get_ref().clone(),
            policy: column.name.clone(),
            scale,
            shrink,
            cpus,
            preempt_hz: machine.preempt_hz.as_ref().map(|hz| *hz.get_ref()),
            overhead: machine.overhead,
            memory,
            used_before: machine.used_before,
            laws,
            runs: runs::of(machine, row, shrink),
            page_rule: column.page_rule.clone(),
            machine: several
                .then(|| of_machine(machine, memory).expect("the nodes of a loaded scenario")),
            readahead: column
                .readahead
                .or(window_of(machine.readahead_kib.as_ref()))
                .map(|pages| window(pages, scale)),
            marks: marks(
                &runs::with_reserve(machine, row),
                laws.reclaim.law.marks,
                memory_mib,
                shrink,
            ),
            swap,
            costs: machine.costs.as_ref().map(|name| name.get_ref().clone()),
            scale_costs: machine.scale_costs,
            scale_requests: machine
                .scale_requests
                .as_ref()
                .is_some_and(|own| *own.get_ref()),
            apart: row.apart,
            small: jobs
                .iter()
                .any(|job| job.traits.files == Files::SmallMade)
                .then(|| {
                    let pages = jobs::pages_a_file(scenario);
                    SmallSpec::of(machine, laws.inodes, pages)
                }),
            devices,
            jobs,
            sample: millis(*scenario.run.sample_ms.get_ref()),
            longest: seconds(*scenario.run.max_s.get_ref()),
        }
    }

    /// Bytes that all files together need on a device, those that are read included.
    #[must_use]
    pub fn bytes_on_disk(&self) -> Bytes {
        let sources = self.jobs.iter().filter(|job| job.from.is_some());
        let own = self.jobs.iter();
        let own: Bytes = own
            .map(|job| Bytes(job.facts.file_bytes.0 * u64::from(job.files)))
            .sum();
        let swap = self.swap.map_or(Bytes::ZERO, |swap| swap.pages.bytes());
        let made = self.jobs.iter().filter_map(|job| job.facts.makes);
        let made: Bytes = made.map(|(_, bytes)| bytes).sum();
        own + made + swap + sources.map(|job| job.facts.file_bytes).sum::<Bytes>()
    }
}

/// The flusher of a machine smaller by `shrink`: requests shrink down to `least`, and where they
/// have reached that, their number shrinks instead, so that what is in flight stays the same part
/// of the dirty limit. Slices stay: CPU time is brought back to full size by pages, and so must
/// have as many pages a visit.
fn shrunk(mut flush: FlushTunables, shrink: u64, least: Pages) -> FlushTunables {
    let full = flush.request_max;
    flush.request_max = Pages(full.0 / shrink).at_least(least.at_most(full));
    let fewer = |requests: u32| {
        let pages = u64::from(requests) * full.0 / shrink;
        let requests = (pages / flush.request_max.0).max(FLIGHT_LEAST);
        u32::try_from(requests).unwrap_or(u32::MAX)
    };
    flush.flight = match flush.flight {
        Flight::Requests(requests) => Flight::Requests(fewer(requests)),
        Flight::Throttled { untold, swap_room } => Flight::Throttled {
            untold: fewer(untold),
            swap_room,
        },
        Flight::DeviceTime(bound) => Flight::DeviceTime(bound),
    };
    flush
}

/// Leaves out the devices on which no job has a file, nor the swap file is: a row without their
/// tasks is a machine without them.
fn keep_used(devices: &mut Vec<DeviceSpec>, jobs: &mut [JobSpec], swap: Option<&mut SwapSpec>) {
    let swap_at = swap.as_ref().map(|swap| swap.device);
    let used = |at: usize| {
        swap_at == Some(at)
            || jobs
                .iter()
                .any(|job| job.device == Some(at) || job.from == Some(at))
    };
    let kept: Vec<bool> = (0..devices.len()).map(used).collect();
    let place = |at: usize| kept[..at].iter().filter(|kept| **kept).count();
    for job in jobs.iter_mut() {
        job.device = job.device.map(place);
        job.from = job.from.map(place);
    }
    if let Some(swap) = swap {
        swap.device = place(swap.device);
    }
    let mut at = 0;
    devices.retain(|_| {
        at += 1;
        kept[at - 1]
    });
}

/// The laws of a preset with what a column changes.
fn laws_of(entry: &ColumnEntry, mut laws: Laws) -> Laws {
    fn named<T>(name: &toml::Spanned<String>, by_name: fn(&str) -> Option<T>) -> T {
        by_name(name.get_ref()).expect("a loaded scenario names known laws")
    }
    if let Some(hz) = &entry.hz {
        laws = laws.at_hz(*hz.get_ref());
    }
    if let Some(name) = &entry.place {
        laws.place = named(name, history::place::by_name);
    }
    if let Some(cpu_lists) = &entry.cpu_lists {
        let own = laws.place.cpu_lists.or(Some(history::place::CPU_LISTS_3_0));
        laws.place.cpu_lists = own.filter(|_| *cpu_lists.get_ref());
    }
    if let Some(part) = &entry.cpu_lists_part
        && let Some(law) = &mut laws.place.cpu_lists
        && let part @ 1.. = u64::from(*part.get_ref())
    {
        law.bound = Bound::Part(part);
    }
    if let Some(name) = &entry.inodes {
        laws.inodes = named(name, InodeRule::by_name);
    }
    if let Some(keeps_apart) = &entry.keeps_apart {
        laws.slabs.keeps_apart = *keeps_apart.get_ref();
    }
    if let Some(name) = &entry.boost {
        laws.slabs.boost = named(name, history::boost::by_name);
    }
    if let Some(factor) = &entry.boost_factor {
        laws.slabs.boost.factor = u64::from(*factor.get_ref());
    }
    if let Some(name) = &entry.shrink {
        laws.slabs.shrink = named(name, ShrinkRule::by_name);
    }
    if let Some(name) = &entry.reclaim {
        laws.reclaim.law = named(name, history::reclaim::by_name);
    }
    for name in &entry.reclaim_off {
        laws.reclaim.off = laws.reclaim.off.with(named(name, presets::reason));
    }
    if let Some(wakes) = &entry.wakes {
        laws.reclaim.wakes = *wakes.get_ref();
    }
    let timeout = entry.writeback_timeout_ms.as_ref();
    laws.reclaim.writeback_timeout = timeout.map(|timeout| millis(*timeout.get_ref()));
    laws.reclaim.writes_files = entry.writes_files.as_ref().is_none_or(|may| *may.get_ref());
    laws.compaction = runs::compaction_of(entry, laws.compaction);
    laws
}

/// A swappiness that has been checked: 0 to 200.
fn checked_swappiness(value: &toml::Spanned<u32>) -> u8 {
    u8::try_from(*value.get_ref()).expect("a swappiness is checked")
}

/// A read-ahead window at a scale. It shrinks with the machine, also below 128 KiB: what is read
/// again costs a seek a window, and a run has to have as many of them as at full size, for seeks do
/// not shrink. A window of no pages is off at any scale.
fn window(pages: Pages, scale: f64) -> Pages {
    match pages {
        Pages(0) => pages,
        _ => Pages(whole(whole_pages(pages.bytes()) * scale)).at_least(WINDOW_LEAST),
    }
}

fn window_of(kib: Option<&toml::Spanned<f64>>) -> Option<Pages> {
    Some(Pages(whole(kib?.get_ref() / KIB_PER_PAGE)))
}

/// The swap file on a machine of this scale.
fn swap(scenario: &Scenario, scale: f64) -> Option<SwapSpec> {
    let entry = scenario.machine.swap.as_ref()?;
    let pages = whole(*entry.mib.get_ref() * PAGES_PER_MIB * scale);
    Some(SwapSpec {
        device: device(scenario, entry.device.get_ref()),
        pages: Pages(pages).at_least(Pages(1)),
    })
}

/// A journal on a machine of this size; a file's times are those of the tick.
fn journal(table: &JournalTable, hz: u32, scale: f64) -> journal::Options {
    let mut options = journal::Options::default();
    let size = table.size_mib.as_ref().map(|size| *size.get_ref());
    let size = whole(size.unwrap_or(JOURNAL_MIB) * PAGES_PER_MIB * scale);
    options.size = Pages(size).at_least(journal::Options::SIZE_MIN);
    if hz > 0 {
        options.tick = Nanos(1_000_000_000 / u64::from(hz));
    }
    if let Some(commit) = &table.commit_ms {
        options.commit = millis(*commit.get_ref());
    }
    if let Some(bio) = &table.bio_mib {
        options.bio = Pages(whole(*bio.get_ref() * PAGES_PER_MIB)).at_least(Pages(1));
    }
    if let Some(data) = &table.data {
        options.data = match data.get_ref() {
            JournalData::Unwritten => journal::Data::Unwritten,
            JournalData::Ordered => journal::Data::Ordered,
            JournalData::Writeback => journal::Data::Writeback,
        };
    }
    options
}

/// 1/10000 of a bound in per cent.
fn ratio(percent: Option<&toml::Spanned<f64>>) -> Option<u32> {
    let ratio = whole(percent?.get_ref() * 100.0);
    Some(u32::try_from(ratio).expect("a per cent is at most 100 by scenario::check"))
}

fn devices(scenario: &Scenario, row: &RowEntry, column: &Column) -> Vec<DeviceSpec> {
    let text = |value: &Option<toml::Spanned<String>>| value.as_ref().map(|v| v.get_ref().clone());
    let spec = |(index, entry): (usize, &DeviceEntry)| {
        let first = index == 0;
        let model = text(&row.model).filter(|_| first);
        let by_id = row.file_systems.iter();
        let mut by_id = by_id.filter(|(id, _)| id.get_ref() == entry.id.get_ref());
        let by_id = by_id.next().map(|(_, fs)| fs.get_ref().clone());
        let fs = text(&row.fs).filter(|_| first).or(by_id);
        let rate = row.rate_mib.as_ref().filter(|_| first);
        let rate = rate.or(entry.rate_mib.as_ref());
        let own_ratio = ratio(entry.max_percent.as_ref());
        let own_strict = entry.strict.as_ref().map(|strict| *strict.get_ref());
        DeviceSpec {
            id: entry.id.get_ref().clone(),
            model: model.unwrap_or_else(|| entry.model.get_ref().clone()),
            fs: fs.or_else(|| text(&entry.fs)),
            journal: entry.journal.as_ref().and_then(|entry| {
                let table = entry.get_ref().table()?;
                Some(journal(
                    &table,
                    column.laws.dirty.hz,
                    *scenario.run.scale.get_ref(),
                ))
            }),
            wrap: text(&entry.wrap),
            rate_factor: entry
                .rate_factor
                .as_ref()
                .map_or(1.0, |factor| *factor.get_ref()),
            rate: rate.map(|rate| mib(*rate.get_ref())),
            changes: entry
                .change
                .iter()
                .map(|change| {
                    let at = seconds(*change.at_s.get_ref());
                    (at, mib(*change.rate_mib.get_ref()))
                })
                .collect(),
            placed_files: entry
                .placed_files
                .as_ref()
                .is_some_and(|own| *own.get_ref()),
            blocks_a_page: entry.blocks_a_page.as_ref().map_or(1, |own| {
                u8::try_from(*own.get_ref()).expect("a loaded scenario has few blocks a page")
            }),
            strict: column.strict.or(own_strict).unwrap_or(false),
            max_ratio: column.max_ratio.or(own_ratio).unwrap_or(WHOLE_RATIO),
            params: entry
                .params
                .iter()
                .map(|(name, value)| (name.get_ref().clone(), *value.get_ref()))
                .collect(),
        }
    };
    scenario.devices.iter().enumerate().map(spec).collect()
}
