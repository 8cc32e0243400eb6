//! A recording's scenario in the lab: with the columns and the seed that are asked for, run, and
//! without what comes before the recording.

use experiment::Stop;
use experiment::outcome::{Outcome, Values};
use experiment::presets::{self, PRESETS};
use experiment::run::{self, Cell, Column, Order, RunError, Watcher, World};
use experiment::scenario::{LoadError, Scenario, Source, choices};
use toml_edit::{Item, Table};

use super::setting::{COLUMN_LIST, HELD, Setting, is_heavy, number_of, start_s, tables, text};

/// The begin of the names of a kernel's columns.
const LINUX: &str = "linux-";

/// Columns of the lab without `--column`.
pub const COLUMNS: [&str; 2] = ["linux-6.12", "tidegate"];

/// A setting, ready to run.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Its text.
    pub source: Source,
    /// The scenario read from it.
    pub scenario: Scenario,
    /// One run per column.
    pub cells: Vec<Cell>,
    /// Parts of the setting that the lab does not have.
    pub notes: Vec<String>,
    /// Seconds before the recording begins, which no figure is of.
    pub lead_s: f64,
}

/// Why a setting was not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A column that is not known.
    #[error("--column: unknown column `{name}`; {choices}")]
    Policy {
        /// Its name.
        name: String,
        /// Those that are chosen.
        choices: String,
    },
    /// The scenario made of it does not load.
    #[error("cannot make a scenario of this recording:\n{0}")]
    Load(#[from] LoadError),
    /// A run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Stopped from outside.
    #[error("interrupted")]
    Interrupted,
}

/// Plans the runs of a setting; `columns` are its own, or presets.
///
/// # Errors
/// A column that is not known; or a bug of ours, when the scenario does not load.
pub fn plan(setting: &Setting, columns: &[&str], seed: u64) -> Result<Planned, LabError> {
    let mut document = setting.document.clone();
    document["run"]["seed"] = toml_edit::value(i64::try_from(seed).unwrap_or(i64::MAX));
    let own: Vec<Table> = tables(&mut document, COLUMN_LIST).iter().cloned().collect();
    let mut list = toml_edit::ArrayOfTables::new();
    for name in columns {
        if presets::by_name(name).is_none() {
            return Err(LabError::Policy {
                name: (*name).to_owned(),
                choices: choices(name, PRESETS.iter().map(|preset| preset.name)),
            });
        }
        list.push(match own.iter().find(|own| text(own, "name") == *name) {
            Some(own) => fresh(own),
            None => preset(name, setting.hz(), &own),
        });
    }
    // Behind all else, in the order in which they are asked for.
    document.remove(COLUMN_LIST);
    let lead = Lead::of(setting);
    let notes = lead.iter().map(|lead| lead.said(setting)).collect();
    if let Some(lead) = &lead {
        lead.put(setting, &mut document);
    }
    document.insert(COLUMN_LIST, Item::ArrayOfTables(list));
    let source = Source {
        origin: format!("{} (made from the recording)", setting.name()),
        text: document.to_string(),
    };
    let (scenario, source) = Scenario::load(source, &[])?;
    let row = &scenario.rows()[0];
    let columns = scenario.columns.iter();
    let cell = |column| Cell::resolve(&scenario, row, &Column::of(column));
    Ok(Planned {
        cells: columns.map(cell).collect(),
        source,
        scenario,
        notes,
        lead_s: lead.map_or(0.0, |lead| lead.seconds),
    })
}

/// The same table, without its place among others.
fn fresh(own: &Table) -> Table {
    let mut table = Table::new();
    for (key, item) in own {
        table.insert(key, item.clone());
    }
    table
}

/// Keys of the guest's column that its sysctls say of any Linux.
const OF_SYSCTLS: [&str; 3] = ["keeps_apart", "boost_factor", "cpu_lists_part"];

/// A column that is a preset: the kernel's law counts in the kernel's ticks, and heeds its sysctls.
fn preset(name: &str, hz: Option<u32>, own: &[Table]) -> Table {
    let mut table = Table::new();
    table.insert("name", toml_edit::value(name));
    if !name.starts_with(LINUX) {
        return table;
    }
    if let Some(hz) = hz {
        table.insert("hz", toml_edit::value(i64::from(hz)));
    }
    if let Some(guest) = own.iter().find(|own| text(own, "name").starts_with(LINUX)) {
        for key in OF_SYSCTLS {
            if let Some(value) = guest.get(key) {
                table.insert(key, value.clone());
            }
        }
    }
    table
}

/// Writing before a recording that begins with dirty memory, so that the lab begins with as much.
struct Lead {
    seconds: f64,
    /// The rate of its writers; `None`: as much as they can.
    mib: Option<f64>,
}

/// Less than this part of the background limit is as good as nothing.
const LITTLE: f64 = 0.25;
/// Time for which writers are held before the law's estimates have settled.
const SETTLED_S: f64 = 20.0;
/// Time in which writers that are not held write what there is.
const FILLING_S: f64 = 1.0;
/// Tasks that write before the recording.
const LEAD: &str = "lead-";

impl Lead {
    fn of(setting: &Setting) -> Option<Self> {
        let (dirty, background) = setting.limits_mib();
        if setting.begins_mib < LITTLE * background {
            return None;
        }
        let rates: f64 = setting.rates().iter().sum();
        Some(if setting.begins_mib >= HELD * setting.freerun_mib() {
            Self {
                seconds: (SETTLED_S + dirty / rates).ceil(),
                mib: None,
            }
        } else {
            Self {
                seconds: FILLING_S,
                // The device takes its part meanwhile.
                mib: Some(setting.begins_mib + rates * FILLING_S),
            }
        })
    }

    fn said(&self, setting: &Setting) -> String {
        format!(
            "begins under load: {:.1} MiB are dirty or under writeback at its start. The lab's writers write for {} s before \
             it, to the same level, which no figure counts; what the kernel's estimates of rates were then, no recording tells",
            setting.begins_mib, self.seconds
        )
    }

    /// Puts it before all else: the writers that are there from the first second on write.
    fn put(&self, setting: &Setting, document: &mut toml_edit::DocumentMut) {
        for device in tables(document, "device").iter_mut() {
            let changes = device.get_mut("change").and_then(Item::as_array_mut);
            for change in changes.into_iter().flat_map(|changes| changes.iter_mut()) {
                let change = change.as_inline_table_mut();
                if let Some(at) = change.and_then(|change| change.get_mut("at_s")) {
                    *at = number_of(super::setting::number(at) + self.seconds);
                }
            }
        }
        let own = setting.scenario.tasks.iter();
        let is_own: Vec<bool> = own
            .map(|task| is_heavy(task) && start_s(task) < 1.0)
            .collect();
        let writers = is_own.iter().filter(|is_own| **is_own).count();
        let list = tables(document, "task");
        let mut lead = Vec::new();
        for (task, is_own) in list.iter_mut().zip(is_own) {
            if is_own {
                let mut task = fresh(task);
                let id = format!("{LEAD}{}", lead.len());
                task.insert("id", toml_edit::value(id));
                task.remove("start_s");
                task.insert("run_s", Item::Value(number_of(self.seconds)));
                if let Some(mib) = self.mib {
                    let each = mib / experiment::stats::count(writers);
                    task.insert("file_mib", Item::Value(number_of(each)));
                }
                lead.push(task);
            }
            let start = task.get("start_s").and_then(Item::as_value);
            let start = start.map_or(0.0, super::setting::number) + self.seconds;
            task.insert("start_s", Item::Value(number_of(start)));
        }
        for task in lead {
            list.push(task);
        }
    }
}

/// Runs what was planned, several at a time; answers in the order of the cells.
///
/// # Errors
/// The first run that failed.
pub fn run(
    planned: &[Planned],
    stop: &Stop,
    watcher: &impl Watcher,
) -> Result<Vec<Vec<Outcome>>, LabError> {
    let orders = orders(planned);
    let mut results = run::run_all(&orders, &World::Lab, stop, watcher).into_iter();
    let mut all = Vec::with_capacity(planned.len());
    for plan in planned {
        let mut outcomes = Vec::with_capacity(plan.cells.len());
        for _ in &plan.cells {
            let outcome = results.next().flatten().ok_or(LabError::Interrupted)??;
            if outcome.interrupted {
                return Err(LabError::Interrupted);
            }
            outcomes.push(without_lead(outcome, plan.lead_s));
        }
        all.push(outcomes);
    }
    Ok(all)
}

/// The outcome of all that comes after this many whole seconds, whose clock begins there. Waits,
/// pressure, slots and counters stay those of the whole run.
fn without_lead(mut outcome: Outcome, lead_s: f64) -> Outcome {
    if lead_s == 0.0 {
        return outcome;
    }
    // They were worked out when the run ended, lead and all.
    outcome.values = Values::default();
    outcome.virtual_s -= lead_s;
    outcome.jobs.retain(|job| !job.name.starts_with(LEAD));
    outcome.tasks.retain(|task| !task.name.starts_with(LEAD));
    let seconds = (0_u32..).take_while(|second| f64::from(*second) < lead_s);
    let seconds = seconds.count();
    for job in &mut outcome.jobs {
        job.began_s -= lead_s;
        job.moved_s -= lead_s;
        job.ended_s -= lead_s;
        for (series, passed) in [
            (&mut job.per_second, seconds),
            (&mut job.per_tenth, seconds * 10),
        ] {
            series.drain(..passed.min(series.len()));
        }
    }
    cut(&mut outcome.pauses, lead_s, |pause| &mut pause.at_s);
    cut(&mut outcome.levels, lead_s, |level| &mut level.at_s);
    cut(&mut outcome.vmstat.rows, lead_s, |(at, _)| at);
    cut(&mut outcome.changes, lead_s, |at| at);
    for device in &mut outcome.devices {
        cut(&mut device.levels, lead_s, |level| &mut level.at_s);
        for (from, to) in &mut device.hangs {
            *from -= lead_s;
            *to -= lead_s;
        }
    }
    outcome
}

/// Drops what has an earlier time, and counts the times of the rest from there.
fn cut<T>(series: &mut Vec<T>, from_s: f64, at: impl Fn(&mut T) -> &mut f64) {
    series.retain_mut(|one| {
        let at = at(one);
        *at -= from_s;
        *at >= 0.0
    });
}

/// All runs of what was planned.
#[must_use]
pub fn orders(planned: &[Planned]) -> Vec<Order> {
    planned
        .iter()
        .flat_map(|plan| run::orders(&plan.cells, 1, plan.scenario.run.seed))
        .collect()
}
