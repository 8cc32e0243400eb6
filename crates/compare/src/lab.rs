//! A recording's setting in the lab: written as a scenario, loaded and checked like any other, and
//! run.

use core::fmt::Write as _;

use experiment::Stop;

use super::setting::{Origin, Setting};
use experiment::catalogue;
use experiment::outcome::Outcome;
use experiment::presets::{self, PRESETS};
use experiment::run::{self, Cell, Column, Order, RunError, Watcher, World};
use experiment::scenario::{LoadError, SCHEMA, Scenario, Source, choices};

/// Columns of the lab without `--policy`.
pub const COLUMNS: [&str; 2] = ["linux-6.12", "tidegate"];
/// Files are given room for this much; no writer comes near it.
const FILE_MIB: f64 = 1_048_576.0;
/// The field recordings' device saves up tokens for 50 ms (docs/reference/field-recordings.md).
const BURST_US: u64 = 50_000;
/// ... and their ext4 has a journal of this size.
const JOURNAL_MIB: u64 = 16;
/// What the lab writes at least, and in multiples of.
const SECTOR: f64 = 512.0;
/// A shorter rest between two calls is none that a scenario has.
const REST_LEAST_MS: f64 = 0.001;
/// Levels are sampled as often as the recordings are.
const SAMPLE_MS: u64 = 100;

/// The scenario of a setting, ready to run.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Its text.
    pub source: Source,
    /// What it was read to.
    pub scenario: Scenario,
    /// One run per column.
    pub cells: Vec<Cell>,
    /// What of the setting the lab does not have.
    pub notes: Vec<String>,
}

/// Why a setting was not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A column that is not known.
    #[error("--policy: unknown policy `{name}`; {choices}")]
    Policy {
        /// Its name.
        name: String,
        /// Those that are chosen.
        choices: String,
    },
    /// The scenario made of it does not load.
    #[error("the recording does not make a scenario:\n{0}")]
    Load(#[from] LoadError),
    /// A run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Stopped from outside.
    #[error("interrupted")]
    Interrupted,
}

/// Plans the runs of a setting; `columns` are presets.
///
/// # Errors
/// A column that is not known; or a bug of ours, when the scenario does not load.
pub fn plan(setting: &Setting, columns: &[&str], seed: u64) -> Result<Planned, LabError> {
    let mut notes = Vec::new();
    let text = scenario(setting, columns, seed, &mut notes);
    planned(&setting.name, text, columns, notes)
}

/// The runs of a scenario that was made from the recording of that name.
pub(super) fn planned(
    name: &str,
    text: String,
    columns: &[&str],
    notes: Vec<String>,
) -> Result<Planned, LabError> {
    for name in columns {
        if presets::by_name(name).is_none() {
            return Err(LabError::Policy {
                name: (*name).to_owned(),
                choices: choices(name, PRESETS.iter().map(|preset| preset.name)),
            });
        }
    }
    let source = Source {
        origin: format!("{name} (made from the recording)"),
        text,
    };
    let (scenario, source) = Scenario::load(source, &[])?;
    let rows = scenario.rows();
    let row = &rows[0];
    let cells = scenario
        .policies
        .iter()
        .map(|policy| Cell::resolve(&scenario, row, &Column::of(policy)))
        .collect();
    Ok(Planned {
        source,
        scenario,
        cells,
        notes,
    })
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
            outcomes.push(outcome);
        }
        all.push(outcomes);
    }
    Ok(all)
}

/// All runs of what was planned.
#[must_use]
pub fn orders(planned: &[Planned]) -> Vec<Order> {
    planned
        .iter()
        .flat_map(|plan| run::orders(&plan.cells, 1, plan.scenario.run.seed))
        .collect()
}

/// The setting as the text of a scenario.
fn scenario(setting: &Setting, columns: &[&str], seed: u64, notes: &mut Vec<String>) -> String {
    let mut text = format!(
        "# Made by `tidegate compare` from the recording `{}`.\n\
         schema = \"{SCHEMA}\"\nname = \"{}\"\ntitle = {}\n\n\
         [run]\nreplicas = 1\nseed = {seed}\nmax_s = {}\nsample_ms = {SAMPLE_MS}\n\n\
         [machine]\ncpus = {}\nmemory_mib = {}\ndirty_mib = {}\nbackground_mib = {}\n",
        setting.name,
        plain(&setting.name),
        quoted(&setting.summary()),
        setting.seconds * 10.0 + 600.0,
        setting.cpus,
        setting.memory_mib,
        setting.dirty_mib,
        setting.background_mib,
    );
    for (index, rate) in setting.devices.iter().enumerate() {
        device(&mut text, setting, index, *rate, notes);
    }
    for (index, writer) in setting.writers.iter().enumerate() {
        let block = block(writer.bytes);
        if block != writer.bytes {
            notes.push(format!(
                "writer {index}: writes of {} bytes are run as {block} bytes: the lab writes whole sectors",
                writer.bytes
            ));
        }
        let _ = write!(
            text,
            "\n[[task]]\nid = \"writer-{index}\"\ndevice = \"device-{}\"\nblock_kib = {}\nrun_s = {}\n",
            writer.device,
            block / 1024.0,
            setting.seconds - writer.start_s,
        );
        if writer.start_s > 0.0 {
            let _ = writeln!(text, "start_s = {}", writer.start_s);
        }
        let _ = writeln!(text, "kind = \"dd\"\nfile_mib = {FILE_MIB}");
        if !writer.is_heavy() {
            // A rest after each call, as the recorded writers take it; what a stall costs is not
            // caught up.
            let _ = writeln!(
                text,
                "every_ms = {}",
                (writer.sleep_s * 1e3).max(REST_LEAST_MS)
            );
        }
    }
    self::columns(&mut text, columns, setting.hz, |_| String::new());
    text
}

/// The columns of a scenario; `more`: further keys of each.
pub(super) fn columns(text: &mut String, columns: &[&str], hz: u32, more: impl Fn(&str) -> String) {
    for name in columns {
        let _ = write!(text, "\n[[policy]]\nname = \"{name}\"\n");
        // The kernel's law counts in the kernel's ticks.
        if name.starts_with("linux-") {
            let _ = writeln!(text, "hz = {hz}");
        }
        text.push_str(&more(name));
    }
}

/// The nearest size of a call in whole sectors.
fn block(bytes: f64) -> f64 {
    (bytes / SECTOR).round().max(1.0) * SECTOR
}

fn device(text: &mut String, setting: &Setting, index: usize, rate: f64, notes: &mut Vec<String>) {
    let model = match setting.origin {
        Origin::Guest => "null_blk",
        Origin::Chain | Origin::Trace => "token_bucket",
    };
    let _ = write!(
        text,
        "\n[[device]]\nid = \"device-{index}\"\nmodel = \"{model}\"\nrate_mib = {rate}\n"
    );
    match (&setting.fs, setting.origin) {
        (Some(fs), origin) => {
            let _ = writeln!(text, "fs = {}", quoted(fs));
            // ext4 is never without one here; that of the field recordings is small.
            match origin {
                Origin::Guest if fs == "ext4" => text.push_str("journal = true\n"),
                Origin::Chain if fs == "ext4" => {
                    let _ = writeln!(text, "journal = {{ size_mib = {JOURNAL_MIB} }}");
                }
                Origin::Guest | Origin::Chain | Origin::Trace => {}
            }
        }
        // The block device itself, with the guest's CPU.
        (None, Origin::Guest) => text.push_str("fs = \"bare\"\n"),
        (None, _) => {}
    }
    match (setting.origin, setting.max_sectors) {
        (Origin::Guest, Some(sectors)) => {
            let _ = writeln!(text, "params = {{ request_max_bytes = {} }}", sectors * 512);
        }
        (Origin::Chain, _) => {
            let _ = writeln!(text, "params = {{ burst_us = {BURST_US} }}");
        }
        (Origin::Guest | Origin::Trace, _) => {}
    }
    if let Some(percent) = setting.max_ratio {
        let _ = writeln!(text, "strict = true\nmax_percent = {percent}");
    }
    let changes: Vec<String> = setting
        .changes
        .iter()
        .filter(|change| change.device == index)
        .map(|change| format!("{{ at_s = {}, rate_mib = {} }}", change.at_s, change.rate))
        .collect();
    if changes.is_empty() {
        return;
    }
    match catalogue::check_rate(model) {
        Ok(()) => {
            let _ = writeln!(text, "change = [{}]", changes.join(", "));
        }
        Err(problem) => notes.push(format!(
            "the changes of the rate are not run: {model}: {problem}"
        )),
    }
}

/// A name that can be a folder's.
pub(super) fn plain(name: &str) -> String {
    let keep = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let plain: String = name
        .chars()
        .map(|c| if keep(c) { c } else { '-' })
        .collect();
    if plain.is_empty() {
        "recording".into()
    } else {
        plain
    }
}

/// A string of TOML.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
