//! The setting of a trace, as far as its events tell it, and its outcome.

use core::fmt::Write as _;
use std::collections::BTreeMap;
use std::path::Path;

use experiment::catalogue::CPUS_MAX;

use super::super::change::{self, Change, REST_LEAST_MS, SECTOR};
use super::super::fault::Fault;
use super::super::kind::THROTTLING;
use super::super::lab::COLUMNS;
use super::super::recording::{Recording, jobs};
use super::super::setting::{COLUMN_LIST, Setting};
use super::super::ticks;
use super::{Balance, Events};
use experiment::outcome::{Level, Outcome, Pause};
use experiment::scenario::SCHEMA;

const MIB: f64 = 1_048_576.0;
const PAGES_PER_MIB: f64 = 256.0;
const KIB_PER_PAGE: f64 = 4.0;
/// A writer with less than this part of the heaviest one's pages is a light one.
const LIGHT: f64 = 0.1;
/// Block of a light writer, and of a heavy one, where the trace has no system calls.
const LIGHT_BYTES: f64 = 4096.0;
const HEAVY_BYTES: f64 = MIB;
/// Files are given room for this much; no writer comes near it.
const FILE_MIB: f64 = 1_048_576.0;
/// Levels are held against the lab's at this distance, seconds.
const SAMPLE_S: f64 = 0.1;

/// A writer, as the trace shows it.
struct Seen {
    pid: u32,
    device: usize,
    start_s: f64,
    pages: f64,
}

/// A writer: `write()` in a loop, with a sleep between two calls.
struct Writer {
    /// Index of its device.
    device: usize,
    /// Bytes of one call, whole sectors.
    bytes: f64,
    sleep_s: f64,
    start_s: f64,
}

/// The inferences, and the notes on them.
struct Inferred<'a> {
    events: &'a Events,
    origin: f64,
    seconds: f64,
    bdis: Vec<String>,
    writers: Vec<Seen>,
    notes: Vec<String>,
    missing: Vec<String>,
    assumed: Vec<&'static str>,
}

/// A recording of the trace's events.
///
/// # Errors
/// The trace does not tell enough, or what it tells contradicts itself.
pub(super) fn recording(
    path: &Path,
    events: &Events,
    given: &[Change],
    fill: &[Change],
) -> Result<Recording, Fault> {
    let mut inferred = Inferred::new(path, events)?;
    let text = inferred.scenario(path);
    let mut setting = Setting::of_text(&THROTTLING, path, &text)?;
    let mut notes = events.notes.clone();
    notes.append(&mut inferred.notes);
    let mut changes: Vec<&Change> = Vec::new();
    for change in given {
        inferred.missing.retain(|key| *key != change.key);
        notes.push(format!("given on the command line: {change}"));
        changes.push(change);
    }
    let mut filled = Vec::new();
    for change in fill
        .iter()
        .filter(|change| inferred.missing.contains(&change.key))
    {
        notes.push(format!(
            "not in the trace, so taken from the command line: {change}"
        ));
        filled.push(change.key.clone());
        changes.push(change);
    }
    inferred.missing.retain(|key| !filled.contains(key));
    if !inferred.missing.is_empty() {
        let keys = inferred.missing.iter();
        let keys: Vec<String> = keys.map(|key| format!("--given {key}=...")).collect();
        return Err(Fault::of(
            path,
            format!("does not tell {}", inferred.missing.join(", ")),
            format!(
                "state {} (MiB/s for rates; bytes, or 64M, for limits)",
                keys.join(" ")
            ),
        ));
    }
    change::turn(&mut setting, "--given", &changes)
        .map_err(|problem| Fault::of(path, problem, "state something that can be"))?;
    setting.begins_mib = inferred.begins();
    notes.append(&mut inferred.notes);
    let outcome = inferred.outcome(&setting, &mut notes);
    if !inferred.assumed.is_empty() {
        notes.push(format!(
            "every answer to --set hangs on what is assumed: {}",
            inferred.assumed.join("; ")
        ));
    }
    let mut recording = Recording::new(setting, outcome, notes);
    recording.filled = filled;
    recording.assumed = inferred.assumed;
    Ok(recording)
}

/// The part of a device's queue that is under writeback in the lab, as in the recordings of a
/// guest: 35 of 64 requests.
const QUEUE_USED: f64 = 0.55;
/// Requests of a queue, as long as they are not larger than they can be.
const QUEUE_DEPTH: f64 = 64.0;
/// Pages of the largest request: 1 MiB.
const REQUEST_PAGES_MOST: f64 = 256.0;

/// A figure of a note; what the trace does not tell is an unknown, not a number.
fn told(value: f64) -> String {
    if value.is_finite() {
        format!("{value:.1}")
    } else {
        "?".to_owned()
    }
}

impl<'a> Inferred<'a> {
    fn new(path: &Path, events: &'a Events) -> Result<Self, Fault> {
        if events.balances.is_empty() {
            return Err(Fault::of(
                path,
                "has no balance_dirty_pages line: nobody came near a limit, or the event was off",
                "record writeback:balance_dirty_pages while writers write more than the limits hold",
            ));
        }
        let mut bdis: Vec<String> = Vec::new();
        for balance in &events.balances {
            if !bdis.contains(&balance.bdi) {
                bdis.push(balance.bdi.clone());
            }
        }
        let mut pages: BTreeMap<u32, BTreeMap<usize, f64>> = BTreeMap::new();
        for balance in &events.balances {
            let device = bdis.iter().position(|bdi| *bdi == balance.bdi).unwrap_or(0);
            let of = pages.entry(balance.pid).or_default();
            *of.entry(device).or_default() += fresh(balance);
        }
        let begins = pages.keys().filter_map(|pid| events.seen.get(pid));
        let origin = begins
            .clone()
            .map(|seen| seen.0)
            .fold(f64::INFINITY, f64::min);
        let end = begins.map(|seen| seen.1).fold(origin, f64::max);
        let writer = |(pid, devices): (&u32, &BTreeMap<usize, f64>)| Seen {
            pid: *pid,
            device: devices
                .iter()
                .max_by(|left, right| left.1.total_cmp(right.1))
                .map_or(0, |(device, _)| *device),
            start_s: events
                .seen
                .get(pid)
                .map_or(0.0, |seen| ((seen.0 - origin) * 1e3).round() / 1e3),
            pages: devices.values().sum(),
        };
        let mut writers: Vec<Seen> = pages.iter().map(writer).collect();
        writers.sort_by(|left, right| left.start_s.total_cmp(&right.start_s));
        Ok(Self {
            events,
            origin,
            seconds: ((end - origin) * 1e3).round() / 1e3,
            bdis,
            writers,
            notes: Vec::new(),
            missing: Vec::new(),
            assumed: Vec::new(),
        })
    }

    /// The text of its scenario; a number that it does not tell is one that will be given.
    fn scenario(&mut self, path: &Path) -> String {
        let (dirty_mib, background_mib) = self.limits();
        let devices: Vec<f64> = (0..self.bdis.len())
            .map(|device| self.rate(device))
            .collect();
        let writers = self.writers();
        let hz = self.hz();
        let queue = self.queue();
        if queue.is_none() {
            self.assumed.push("no bound on what a device is sent");
        }
        let queued = match queue {
            Some((requests, sectors)) => format!(
                "a queue of {requests} requests of {} KiB, by what is under writeback",
                sectors / 2
            ),
            None => "no bound on what the device is sent".to_owned(),
        };
        let stem = path.file_name().and_then(|name| name.to_str());
        let stem = stem.and_then(|name| name.split('.').next());
        let stem = stem.filter(|name| !name.is_empty()).unwrap_or("trace");
        let shown: Vec<String> = devices.iter().map(|rate| told(*rate)).collect();
        self.notes.push(format!(
            "inferred: {:.1} s; limits {}/{} MiB; device {} at {} MiB/s; writers: {} ({}); hz {hz}; CPUs: {}; \
             assumed: pages of 4096, memory to spare, no file system, {queued}",
            self.seconds,
            told(dirty_mib),
            told(background_mib),
            self.bdis.join(" and "),
            shown.join(" and "),
            writers.len(),
            self.names(),
            self.cpus_said()
        ));

        if self.events.cpus > CPUS_MAX {
            let note = format!("the lab has no more than {CPUS_MAX} CPUs, and runs it on so many");
            self.notes.push(note);
        }
        let or = |told: f64, or: f64| if told.is_finite() { told } else { or };
        let (dirty, background) = (
            or(dirty_mib, 64.0),
            or(background_mib, or(dirty_mib, 64.0) / 2.0),
        );
        let plain = |c: char| {
            if c.is_ascii_alphanumeric() || c == '_' {
                c
            } else {
                '-'
            }
        };
        let mut text = format!(
            "schema = \"{SCHEMA}\"\nname = \"{}\"\ntitle = \"a trace, HZ {hz}, {} MiB/s, limits {}/{} MiB, {} writers, {} s\"\n\
             [run]\nreplicas = 1\nmax_s = {}\nsample_ms = 100\n\
             [machine]\ncpus = {}\nmemory_mib = {}\ndirty_mib = {dirty}\nbackground_mib = {background}\n",
            stem.chars().map(plain).collect::<String>(),
            shown.join(" + "),
            told(dirty_mib),
            told(background_mib),
            writers.len(),
            self.seconds,
            self.seconds * 10.0 + 600.0,
            self.events.cpus.clamp(1, CPUS_MAX),
            (dirty * 8.0).max(1024.0),
        );
        for (index, rate) in devices.iter().enumerate() {
            let _ = write!(
                text,
                "[[device]]\nid = \"device-{index}\"\nmodel = \"token_bucket\"\nrate_mib = {}\n",
                or(*rate, 1.0)
            );
            if let Some((requests, sectors)) = queue {
                let bytes = sectors * 512;
                let _ = writeln!(
                    text,
                    "params = {{ queue_depth = {requests}, request_max_bytes = {bytes} }}"
                );
            }
        }
        for (index, writer) in writers.iter().enumerate() {
            let _ = write!(
                text,
                "[[task]]\nid = \"writer-{index}\"\nkind = \"dd\"\ndevice = \"device-{}\"\nfile_mib = {FILE_MIB}\n\
                 block_kib = {}\nrun_s = {}\nstart_s = {}\n",
                writer.device,
                writer.bytes / 1024.0,
                self.seconds - writer.start_s,
                writer.start_s,
            );
            if writer.sleep_s > 0.0 {
                let _ = writeln!(
                    text,
                    "every_ms = {}",
                    (writer.sleep_s * 1e3).max(REST_LEAST_MS)
                );
            }
        }
        for name in COLUMNS {
            let _ = write!(text, "[[{COLUMN_LIST}]]\nname = \"{name}\"\n");
            if name.starts_with("linux-") {
                let _ = writeln!(text, "hz = {hz}");
            }
        }
        text
    }

    /// The memory dirty and under writeback when the first writer is seen, MiB. Without a line that
    /// tells it: by the first pause's, less the calls until then.
    fn begins(&mut self) -> f64 {
        if let Some(first) = self.events.states.first() {
            return (first.dirty + first.writeback) / PAGES_PER_MIB;
        }
        let first = &self.events.balances[0];
        let before = self.events.calls.iter().filter(|call| call.at < first.at);
        let written = before.fold(0.0, |sum, call| sum + call.bytes / MIB);
        let begins = (first.dirty / PAGES_PER_MIB - written).max(0.0);
        self.notes.push(format!(
            "no global_dirty_state: {begins:.1} MiB are dirty at the begin, by `dirty` of the first balance_dirty_pages line \
             less the {written:.1} MiB that calls wrote until then"
        ));
        begins
    }

    /// The requests that a device has in its queue, and their sectors: as many as put the trace's
    /// amount under writeback, by the median of its second half.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole numbers within bounds"
    )]
    fn queue(&self) -> Option<(u32, u64)> {
        let states = &self.events.states;
        let late = &states[states.len() / 2..];
        if late.is_empty() {
            return None;
        }
        let pages = median(late.iter().map(|state| state.writeback))
            / experiment::stats::count(self.bdis.len());
        if pages < 1.0 {
            return None;
        }
        let room = pages / QUEUE_USED;
        let request = (room / QUEUE_DEPTH).round().clamp(1.0, REQUEST_PAGES_MOST);
        let requests = (room / request).round().clamp(4.0, 65_536.0);
        Some((requests as u32, request as u64 * 8))
    }

    /// The CPUs, or that the trace does not tell them.
    fn cpus_said(&self) -> String {
        match self.events.cpus {
            0 => "one, as no line says its own (perf record -p; with -a they do)".into(),
            cpus => cpus.to_string(),
        }
    }

    fn names(&self) -> String {
        let name = |writer: &Seen| {
            let comm = self
                .events
                .comms
                .get(&writer.pid)
                .map_or("?", String::as_str);
            format!("{comm}-{}", writer.pid)
        };
        let shown: Vec<String> = self.writers.iter().take(4).map(name).collect();
        let more = if self.writers.len() > 4 { ", ..." } else { "" };
        format!("{}{more}", shown.join(", "))
    }

    /// Dirty and background limit, MiB.
    fn limits(&mut self) -> (f64, f64) {
        let states = &self.events.states;
        if !states.is_empty() {
            let thresh = median(states.iter().map(|state| state.thresh));
            let background = median(states.iter().map(|state| state.background));
            return (whole_mib(thresh), whole_mib(background));
        }
        let half = self.events.balances.len() / 2;
        let late = &self.events.balances[half..];
        let dirty = median(late.iter().map(|line| line.limit));
        let background = median(
            late.iter()
                .map(|line| 2.0 * (2.0 * line.setpoint - line.limit) - line.limit),
        );
        self.notes.push(
            "no global_dirty_state: the limits follow from limit and setpoint, the level from `dirty` \
             (dirty and writeback together, shown as dirty)"
                .into(),
        );
        if background < 16.0 {
            self.missing.push("vm.dirty_background_bytes".into());
            return (whole_mib(dirty), f64::NAN);
        }
        (whole_mib(dirty), whole_mib(background))
    }

    /// Rate of a device, MiB/s.
    fn rate(&mut self, device: usize) -> f64 {
        let lines: Vec<f64> = self
            .events
            .rates
            .iter()
            .filter(|rate| rate.bdi == self.bdis[device])
            .map(|rate| rate.awrite_bw)
            .collect();
        if !lines.is_empty() {
            let late = lines[lines.len() / 2..].iter().copied();
            return hundredths(median(late) / 1024.0);
        }
        let (first, last) = (self.events.states.first(), self.events.states.last());
        if let (Some(first), Some(last), 1) = (first, last, self.bdis.len())
            && last.written > first.written
        {
            self.notes.push(
                "no bdi_dirty_ratelimit: the device's rate is what the machine wrote per second"
                    .into(),
            );
            let pages = last.written - first.written;
            return hundredths(pages / PAGES_PER_MIB / (last.at - first.at));
        }
        self.missing.push(format!("device.{device}.rate"));
        f64::NAN
    }

    fn writers(&mut self) -> Vec<Writer> {
        let most = self
            .writers
            .iter()
            .map(|writer| writer.pages)
            .fold(0.0, f64::max);
        let mut assumed = false;
        let mut specs = Vec::new();
        for writer in &self.writers {
            let calls: Vec<_> = self
                .events
                .calls
                .iter()
                .filter(|call| call.pid == writer.pid)
                .collect();
            let is_light = writer.pages < most * LIGHT;
            let bytes = if calls.is_empty() {
                assumed = true;
                if is_light { LIGHT_BYTES } else { HEAVY_BYTES }
            } else {
                median(calls.iter().map(|call| call.bytes))
            };
            let lasting = (self.seconds - writer.start_s).max(SAMPLE_S);
            // Its rest between two calls: all its time, by its calls.
            let written = if calls.is_empty() {
                writer.pages * 4096.0
            } else {
                calls.iter().map(|call| call.bytes).sum()
            };
            let sleep_s = if is_light && written > 0.0 {
                lasting * bytes / written
            } else {
                0.0
            };
            specs.push(Writer {
                device: writer.device,
                // The lab writes whole sectors.
                bytes: (bytes / SECTOR).round().max(1.0) * SECTOR,
                sleep_s,
                start_s: writer.start_s,
            });
        }
        if assumed {
            self.assumed.push("sizes of writes");
            self.notes.push(
                "no system calls in the trace: writes of 1 MiB assumed (4 KiB for light writers), and \
                 their lengths are not known"
                    .into(),
            );
        }
        specs
    }

    /// Ticks per second: the grid of pauses and periods, ms.
    fn hz(&mut self) -> u32 {
        let balances = self.events.balances.iter();
        let hz = ticks::guess(balances.flat_map(|line| [line.pause, line.period]));
        hz.unwrap_or_else(|| {
            self.assumed.push("HZ");
            self.notes
                .push("too few pauses to tell HZ: 250 assumed".into());
            250
        })
    }

    fn outcome(&self, setting: &Setting, notes: &mut Vec<String>) -> Outcome {
        let index = |pid: u32| self.writers.iter().position(|writer| writer.pid == pid);
        let calls: Vec<(usize, f64, f64, f64)> = self
            .events
            .calls
            .iter()
            .filter_map(|call| {
                Some((
                    index(call.pid)?,
                    call.at - self.origin,
                    call.took,
                    call.bytes,
                ))
            })
            .collect();
        let mut jobs = jobs(setting, &calls);
        if calls.is_empty() {
            self.bytes_from_pages(&mut jobs, notes);
        }
        Outcome {
            jobs,
            pauses: self
                .events
                .balances
                .iter()
                .map(|line| pause(line, self.origin, index(line.pid)))
                .collect(),
            levels: self.levels(setting),
            ..Outcome::default()
        }
    }

    /// Bytes of each writer: the machine's pages that became dirty, shared out by what each one's
    /// lines count; without that counter, the lines alone.
    fn bytes_from_pages(&self, jobs: &mut [experiment::outcome::Job], notes: &mut Vec<String>) {
        let (first, last) = (self.events.states.first(), self.events.states.last());
        let counted: f64 = self.writers.iter().map(|writer| writer.pages).sum();
        let total = match (first, last) {
            (Some(first), Some(last)) if last.dirtied > first.dirtied => {
                notes.push("throughput from the machine's count of dirtied pages".into());
                last.dirtied - first.dirtied
            }
            _ => {
                notes.push(
                    "throughput from `dirtied` of balance_dirty_pages: pages below freerun are missing"
                        .into(),
                );
                counted
            }
        };
        for (job, writer) in jobs.iter_mut().zip(&self.writers) {
            job.bytes = total * writer.pages / counted.max(1.0) * 4096.0;
        }
    }

    /// The level every tenth of a second: the last value seen.
    fn levels(&self, setting: &Setting) -> Vec<Level> {
        let states = self.events.states.iter();
        let mut changes: Vec<(f64, f64, f64)> = states
            .map(|state| (state.at, state.dirty, state.writeback))
            .collect();
        if changes.is_empty() {
            let lines = self.events.balances.iter();
            changes = lines.map(|line| (line.at, line.dirty, 0.0)).collect();
        }
        let mut levels = Vec::new();
        let mut next = changes.iter().peekable();
        let mut now = None;
        let mut at_s = 0.0;
        let (dirty_mib, background_mib) = setting.limits_mib();
        while at_s <= setting.seconds() {
            while let Some(change) = next.next_if(|change| change.0 - self.origin <= at_s) {
                now = Some(change);
            }
            if let Some((_, dirty, writeback)) = now {
                levels.push(Level {
                    at_s,
                    dirty: *dirty,
                    writeback: *writeback,
                    limit: dirty_mib * PAGES_PER_MIB,
                    background: background_mib * PAGES_PER_MIB,
                    ..Level::default()
                });
            }
            at_s += SAMPLE_S;
        }
        levels
    }
}

/// Pages of a line that no line before it has counted: a second pause of one call repeats them.
fn fresh(line: &Balance) -> f64 {
    if line.paused > 0.0 { 0.0 } else { line.dirtied }
}

fn pause(line: &Balance, origin: f64, writer: Option<usize>) -> Pause {
    let writer = writer
        .and_then(|index| u32::try_from(index).ok())
        .unwrap_or(u32::MAX);
    Pause {
        at_s: line.at - origin,
        task: writer,
        writer,
        slept_ms: line.pause.max(0.0),
        longest_ms: line.pause.max(0.0),
        dirtied: line.dirtied,
        device_dirty: line.wb_dirty,
        device_limit: line.limit,
        dirty_ratelimit: line.dirty_ratelimit / KIB_PER_PAGE,
        task_ratelimit: line.task_ratelimit / KIB_PER_PAGE,
        ..Pause::default()
    }
}

/// Pages as MiB, on a grid of a sixteenth: limits are set in round numbers, and counted less some
/// pages.
fn whole_mib(pages: f64) -> f64 {
    (pages / PAGES_PER_MIB * 16.0).round() / 16.0
}

/// Rounded as far as anybody can tell a rate.
fn hundredths(rate: f64) -> f64 {
    (rate * 100.0).round() / 100.0
}

/// The upper of the two middle ones of an even number: stored recordings were read with it.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
