//! A recording's setting in the lab: written as a scenario, loaded and checked like any other, and
//! run.

use core::fmt::Write as _;

use experiment::Stop;

use super::setting::{Origin, Setting, WriterSpec};
use experiment::catalogue;
use experiment::outcome::{Outcome, Values};
use experiment::presets::{self, PRESETS};
use experiment::run::{self, Cell, Column, Order, RunError, Watcher, World};
use experiment::scenario::{LoadError, SCHEMA, Scenario, Source, choices};

/// Columns of the lab without `--column`.
pub const COLUMNS: [&str; 2] = ["linux-6.12", "tidegate"];
/// Files are given room for this much; no writer comes near it.
const FILE_MIB: f64 = 1_048_576.0;
/// The field recordings' device saves up tokens for 50 ms
/// (docs/study/reference/field-recordings.md).
const BURST_US: u64 = 50_000;
/// ... and their ext4 has a journal of this size.
const JOURNAL_MIB: u64 = 16;
/// The lab's smallest write; all are multiples of it.
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

/// Plans the runs of a setting; `columns` are presets.
///
/// # Errors
/// A column that is not known; or a bug of ours, when the scenario does not load.
pub fn plan(setting: &Setting, columns: &[&str], seed: u64) -> Result<Planned, LabError> {
    let mut notes = Vec::new();
    let lead = Lead::of(setting);
    if let Some(lead) = &lead {
        notes.push(lead.said(setting));
    }
    let text = scenario(setting, columns, seed, lead.as_ref(), &mut notes);
    let planned = planned(&setting.name, text, columns, notes)?;
    Ok(Planned {
        lead_s: lead.map_or(0.0, |lead| lead.seconds),
        ..planned
    })
}

/// Writing before a recording that begins with dirty memory, so that the lab begins with as much.
struct Lead {
    seconds: f64,
    /// The rate of its writers; `None`: as much as they can.
    mib: Option<f64>,
}

/// Less than this part of the background limit is as good as nothing.
const LITTLE: f64 = 0.25;
/// From this part of freerun on, the writers were being held when the recording began.
pub(super) const HELD: f64 = 0.9;
/// Time for which writers are held before the law's estimates have settled.
const SETTLED_S: f64 = 20.0;
/// Time in which writers that are not held write what there is.
const FILLING_S: f64 = 1.0;
/// Tasks that write before the recording.
const LEAD: &str = "lead-";

impl Lead {
    fn of(setting: &Setting) -> Option<Self> {
        if setting.begins_mib < LITTLE * setting.background_mib {
            return None;
        }
        let rates: f64 = setting.devices.iter().sum();
        Some(if setting.begins_mib >= HELD * setting.freerun_mib() {
            Self {
                seconds: (SETTLED_S + setting.dirty_mib / rates).ceil(),
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
        .columns
        .iter()
        .map(|policy| Cell::resolve(&scenario, row, &Column::of(policy)))
        .collect();
    Ok(Planned {
        source,
        scenario,
        cells,
        notes,
        lead_s: 0.0,
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

/// The setting as the text of a scenario.
fn scenario(
    setting: &Setting,
    columns: &[&str],
    seed: u64,
    lead: Option<&Lead>,
    notes: &mut Vec<String>,
) -> String {
    let lead_s = lead.map_or(0.0, |lead| lead.seconds);
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
        device(&mut text, setting, (index, *rate), lead_s, notes);
    }
    for (index, writer) in setting.writers.iter().enumerate() {
        let block = block(writer.bytes);
        if block != writer.bytes {
            notes.push(format!(
                "writer {index}: writes of {} bytes are run as {block} bytes: the lab writes whole sectors",
                writer.bytes
            ));
        }
        task(
            &mut text,
            writer,
            &format!("writer-{index}"),
            &Span {
                start_s: lead_s + writer.start_s,
                run_s: setting.seconds - writer.start_s,
                file_mib: FILE_MIB,
            },
        );
    }
    if let Some(lead) = lead {
        // The writers that were there from the first second on.
        let own = setting.writers.iter().filter(|writer| writer.start_s < 1.0);
        let own: Vec<_> = own.filter(|writer| writer.is_heavy()).collect();
        let each = lead
            .mib
            .map(|mib| mib / experiment::stats::count(own.len().max(1)));
        for (index, writer) in own.into_iter().enumerate() {
            task(
                &mut text,
                writer,
                &format!("{LEAD}{index}"),
                &Span {
                    start_s: 0.0,
                    run_s: lead_s,
                    file_mib: each.unwrap_or(FILE_MIB),
                },
            );
        }
    }
    self::columns(&mut text, columns, setting.hz, |_| String::new());
    text
}

/// When a task writes, and how much at the most.
struct Span {
    start_s: f64,
    run_s: f64,
    file_mib: f64,
}

fn task(text: &mut String, writer: &WriterSpec, id: &str, span: &Span) {
    let _ = write!(
        text,
        "\n[[task]]\nid = \"{id}\"\ndevice = \"device-{}\"\nblock_kib = {}\nrun_s = {}\n",
        writer.device,
        block(writer.bytes) / 1024.0,
        span.run_s,
    );
    if span.start_s > 0.0 {
        let _ = writeln!(text, "start_s = {}", span.start_s);
    }
    let _ = writeln!(text, "kind = \"dd\"\nfile_mib = {}", span.file_mib);
    if !writer.is_heavy() {
        // A rest after each call, as the recorded writers take it; what a stall costs is not caught
        // up.
        let _ = writeln!(
            text,
            "every_ms = {}",
            (writer.sleep_s * 1e3).max(REST_LEAST_MS)
        );
    }
}

/// The columns of a scenario; `more`: further keys of each.
pub(super) fn columns(text: &mut String, columns: &[&str], hz: u32, more: impl Fn(&str) -> String) {
    for name in columns {
        let _ = write!(text, "\n[[column]]\nname = \"{name}\"\n");
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

fn device(
    text: &mut String,
    setting: &Setting,
    (index, rate): (usize, f64),
    lead_s: f64,
    notes: &mut Vec<String>,
) {
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
        (Origin::Trace, Some(sectors)) => {
            let queue = setting.queue.unwrap_or(0);
            let bytes = sectors * 512;
            let _ = writeln!(
                text,
                "params = {{ queue_depth = {queue}, request_max_bytes = {bytes} }}"
            );
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
        .map(|change| {
            let at_s = lead_s + change.at_s;
            format!("{{ at_s = {at_s}, rate_mib = {} }}", change.rate)
        })
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
