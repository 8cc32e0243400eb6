//! The ways a plan can be run: through the kernel's page cache, through ours in the same program on
//! the same device, by the program `tidegate` on files made slow, and in the lab.
//!
//! Every column answers the same `Measured`. Bytes count in the second in which their call ended;
//! lengths are those of all calls of the run, the start at the speed of memory included.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::chain::Disk;
use super::plan::{BACKGROUND_MIB, Call, DIRTY_MIB, MEMORY_MIB, Measured, Met, Plan};
use super::undo::{Process, Undo};
use super::watch::{Seen, Watch};
use crate::csv::{self, Table};
use crate::workspace::root;
use crate::{Result, steps};

/// Time that a run may take beyond its own: a writer may stall for seconds.
const OVERTIME: Duration = Duration::from_secs(90);
/// Time between two looks of who changes a rate.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// `write(2)` to ext4 on the chain.
    Linux,
    /// The same, the device with a strict limit.
    Strict,
    /// `write(2)` to the chain's block device itself.
    Bare,
    /// The cache in the same program, on ext4 on the chain.
    Embedded,
    /// `tidegate run --live`: files of a folder made slow by a wrapper.
    Live,
    /// `tidegate run`.
    Lab,
}

impl Column {
    pub(crate) const ALL: [Self; 6] = [
        Self::Linux,
        Self::Strict,
        Self::Bare,
        Self::Embedded,
        Self::Live,
        Self::Lab,
    ];

    /// Its word on the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::Strict => "strict",
            Self::Bare => "bare",
            Self::Embedded => "embedded",
            Self::Live => "live",
            Self::Lab => "lab",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Linux => "Linux",
            Self::Strict => "Linux, strict",
            Self::Bare => "Linux, no fs",
            Self::Embedded => "Tidegate",
            Self::Live => "Tidegate, slow",
            Self::Lab => "Tidegate, lab",
        }
    }

    /// True if it needs the chain, and so root.
    pub(crate) fn needs_chain(self) -> bool {
        !matches!(self, Self::Live | Self::Lab)
    }

    /// True if the machine's dirty limits are those of the column.
    pub(crate) fn is_kernel(self) -> bool {
        matches!(self, Self::Linux | Self::Strict | Self::Bare)
    }
}

/// The needs of columns.
pub(crate) struct Bench<'a> {
    /// None: the columns on the chain are skipped.
    pub(crate) undo: Option<&'a Undo>,
    /// None: nobody tells of the kernel's pauses and levels.
    pub(crate) watch: Option<Watch>,
    /// `writers`.
    pub(crate) writers: PathBuf,
    /// `tidegate`.
    pub(crate) program: PathBuf,
    /// Folder of results.
    pub(crate) out: PathBuf,
    /// Folder of the files of `tidegate run --live`.
    pub(crate) files: PathBuf,
    /// Of the strict device limit, per cent of the dirty limit.
    pub(crate) strict_percent: u64,
}

impl Bench<'_> {
    /// Runs a plan the way of a column.
    ///
    /// # Errors
    /// It could not be run.
    pub(crate) fn run(&self, column: Column, plan: &Plan) -> Result<Measured> {
        match column {
            Column::Live | Column::Lab => self.program(column, plan),
            _ => {
                let undo = self.undo.ok_or("the chain cannot be built here")?;
                self.chain(undo, column, plan)
            }
        }
    }

    fn chain(&self, undo: &Undo, column: Column, plan: &Plan) -> Result<Measured> {
        let _scope = undo.scope();
        let mut disks = Vec::with_capacity(plan.devices.len());
        for device in &plan.devices {
            disks.push(Disk::build(undo, device.rate_mib, column != Column::Bare)?);
        }
        if column == Column::Strict {
            for disk in &disks {
                disk.set_strict(undo, self.strict_percent)?;
            }
        }
        let through = if column.is_kernel() {
            "kernel".to_owned()
        } else {
            format!("cache={MEMORY_MIB},{DIRTY_MIB},{BACKGROUND_MIB}")
        };
        let arguments = plan.arguments(|number, writer| {
            let disk = &disks[writer.device];
            match &disk.mount {
                Some(mount) => (format!("{}/{number}", mount.display()), false),
                None => (disk.node.display().to_string(), true),
            }
        });
        let mut command = Command::new(&self.writers);
        command.arg(through).args(arguments).stdout(Stdio::piped());
        eprintln!("    {}", steps::typed(&command));
        let watch = self.watch.as_ref().filter(|_| column.is_kernel());
        if let Some(watch) = watch {
            watch.clear()?;
        }
        let process = undo.start(&mut command)?;
        let output = process.output().ok_or("the writers have no output")?;
        let (lines, seen) = follow(plan, &disks, watch, &process, output)?;
        let mut measured = read_lines(plan, &lines)?;
        if let Some(seen) = seen {
            measured.pause_max_ms = Some(seen.pause_max_ms);
            measured.level_max = Some(seen.level_max);
            measured.others_mib = Some(seen.others_mean / 1_048_576.0);
        }
        Ok(measured)
    }

    /// Runs the program `tidegate`, live or in the lab.
    fn program(&self, column: Column, plan: &Plan) -> Result<Measured> {
        let name = format!("{}-{}", plan.name, column.word());
        let (out, scenario) = (self.out.join(&name), self.out.join(name + ".toml"));
        let failed = |error: std::io::Error| format!("{}: {error}", scenario.display());
        std::fs::write(&scenario, plan.scenario()).map_err(failed)?;
        let mut command = Command::new(&self.program);
        command.arg("run").arg(&scenario).arg("--out").arg(&out);
        if column == Column::Live {
            command.arg("--live").arg(&self.files);
        }
        command
            .current_dir(root())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit());
        steps::run(&mut command, Duration::from_secs(plan.seconds) + OVERTIME)?;
        read_results(plan, &out)
    }
}

/// Follows a run to its end: its rates change as planned, and the kernel is watched.
fn follow(
    plan: &Plan,
    disks: &[Disk],
    watch: Option<&Watch>,
    process: &Process,
    output: ChildStdout,
) -> Result<(Vec<String>, Option<Seen>)> {
    let mut reader = BufReader::new(output);
    let mut first = String::new();
    reader
        .read_line(&mut first)
        .map_err(|error| error.to_string())?;
    if first.trim() != "begin" {
        process.wait(OVERTIME)?;
        return Err(format!("the writers began with '{}'", first.trim()));
    }
    let over = AtomicBool::new(false);
    let numbers: Vec<&str> = disks.iter().map(|disk| disk.number.as_str()).collect();
    std::thread::scope(|scope| {
        let seen = watch.map(|watch| scope.spawn(|| watch.follow(&numbers, &over)));
        let changes = scope.spawn(|| change_rates(plan, disks, &over));
        let lines = scope.spawn(move || reader.lines().collect::<std::io::Result<Vec<String>>>());
        let ended = process.wait(Duration::from_secs(plan.seconds) + OVERTIME);
        over.store(true, Ordering::Relaxed);
        let panicked = |_| "a thread of the bench panicked".to_owned();
        changes.join().map_err(panicked)??;
        let seen = seen.map(|seen| seen.join().map_err(panicked)).transpose()?;
        ended.map_err(|problem| format!("the writers: {problem}"))?;
        let lines = lines
            .join()
            .map_err(panicked)?
            .map_err(|error| error.to_string())?;
        Ok((lines, seen))
    })
}

fn change_rates(plan: &Plan, disks: &[Disk], over: &AtomicBool) -> Result<()> {
    let began = std::time::Instant::now();
    let mut changes: Vec<_> = plan
        .devices
        .iter()
        .zip(disks)
        .filter_map(|(device, disk)| device.then.map(|(at, rate)| (at, rate, disk)))
        .collect();
    changes.sort_by_key(|(at, ..)| *at);
    for (at, rate, disk) in changes {
        while began.elapsed() < Duration::from_secs(at) {
            if over.load(Ordering::Relaxed) {
                return Ok(());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        disk.set_rate(rate)?;
    }
    Ok(())
}

/// Reads what `writers` says at its end.
fn read_lines(plan: &Plan, lines: &[String]) -> Result<Measured> {
    let mut calls = vec![Vec::new(); plan.writers.len()];
    let mut measured = Measured::default();
    for line in lines {
        let wrong = || format!("the writers said '{line}'");
        let fields: Vec<&str> = line.split(',').collect();
        let number = |at: usize| -> Result<f64> {
            let field: Option<f64> = fields.get(at).and_then(|field| field.parse().ok());
            field.ok_or_else(wrong)
        };
        match fields[0] {
            "call" => {
                let writer: Option<usize> = fields.get(1).and_then(|field| field.parse().ok());
                let calls = writer
                    .and_then(|writer| calls.get_mut(writer))
                    .ok_or_else(wrong)?;
                let (started, late, took) = (number(2)?, number(3)?, number(4)?);
                calls.push(Call {
                    end_s: started + took,
                    late_ms: late * 1e3,
                    took_ms: took * 1e3,
                    bytes: number(5)?,
                });
            }
            "level" => {
                let level = number(2)? / number(3)?;
                measured.level_max = Some(measured.level_max.unwrap_or(0.0).max(level));
            }
            "wait" if fields.get(1) == Some(&"dirty pause") => {
                measured.pause_max_ms = Some(number(3)? * 1e3);
            }
            "wait" => {}
            _ => return Err(wrong()),
        }
    }
    measured.writers = calls.iter().map(|calls| Met::of(calls)).collect();
    Ok(measured)
}

/// Reads the results of the program `tidegate`.
fn read_results(plan: &Plan, out: &Path) -> Result<Measured> {
    let samples = Table::read(&csv::only(out, "samples.csv")?)?;
    let series = Table::read(&csv::only(out, "series.csv")?)?;
    let mut measured = Measured::default();
    for writer in &plan.writers {
        let mut lengths = Vec::new();
        let mut took = Vec::new();
        for row in samples.select(&["task_id", "metric", "value", "weight"])? {
            if row[0] != writer.name {
                continue;
            }
            let number = |at: usize| row[at].parse().unwrap_or(f64::NAN);
            match row[1] {
                "call_ms" => took.push((number(2), number(3))),
                // From when a call was due.
                "response_ms" => lengths.push((number(2), number(3))),
                _ => {}
            }
        }
        if !writer.is_light {
            lengths.clone_from(&took);
        }
        let mut met = Met::of_lengths(lengths, took);
        let scope = format!("task:{}", writer.name);
        for row in series.select(&["scope", "metric", "t_virt_s", "value"])? {
            if row[0] == scope && row[1] == "bytes" {
                // The second that ended then.
                let end: f64 = row[2].parse().unwrap_or(f64::NAN);
                met.add(end - 1.0, row[3].parse().unwrap_or(f64::NAN));
            }
        }
        measured.writers.push(met);
    }
    measured.level_max = Some(level_max(&series)?);
    measured.pause_max_ms = samples
        .select(&["task_id", "metric", "value"])?
        .iter()
        .find(|row| row[0].is_empty() && row[1] == "pause_max_ms")
        .and_then(|row| row[2].parse().ok());
    Ok(measured)
}

/// Highest dirty + writeback by the limit. Lines of one moment belong together; a level of zero has
/// none.
fn level_max(series: &Table) -> Result<f64> {
    let (mut highest, mut moment) = (0.0_f64, "");
    let (mut level, mut limit) = (0.0, 0.0);
    for row in series.select(&["t_virt_s", "metric", "value"])? {
        let value: f64 = row[2].parse().unwrap_or(0.0);
        if row[0] != moment {
            (moment, level, limit) = (row[0], 0.0, 0.0);
        }
        match row[1] {
            "nr_dirty" | "nr_writeback" => level += value,
            "nr_dirty_threshold" => limit = value,
            _ => {}
        }
        if limit > 0.0 {
            highest = highest.max(level / limit);
        }
    }
    Ok(highest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::{Device, Writer};

    fn plan() -> Plan {
        Plan {
            name: "light",
            seconds: 24,
            devices: vec![Device::of(16)],
            writers: vec![Writer::heavy("heavy", 0, 0), Writer::LIGHT],
        }
    }

    #[test]
    fn what_the_writers_say_is_read() {
        let lines = "call,0,0.500000,0.000000,0.250000,1048576\n\
                     call,1,2.010000,0.010000,0.002000,4096\n\
                     level,0.02,33554432,67108864\nlevel,0.04,50331648,67108864\n\
                     wait,dirty pause,3,0.120000\nwait,memory,1,0.5";
        let lines: Vec<String> = lines.lines().map(str::to_owned).collect();
        let measured = read_lines(&plan(), &lines).unwrap();
        assert_eq!(measured.writers[0].max_ms, 250.0);
        assert_eq!(measured.writers[1].max_ms, 12.0);
        assert_eq!(measured.writers[1].bytes(2, 3), 4096.0);
        assert_eq!(measured.level_max, Some(0.75));
        assert_eq!(measured.pause_max_ms, Some(120.0));
        assert!(read_lines(&plan(), &["call,7,0,0,0,0".to_owned()]).is_err());
        assert!(read_lines(&plan(), &["call,0,0".to_owned()]).is_err());
    }

    #[test]
    fn results_of_the_program_are_read() {
        let out = std::env::temp_dir().join(format!("tidegate-results-{}", std::process::id()));
        std::fs::create_dir_all(&out).unwrap();
        let samples = "task_id,metric,value,weight\n,pause_max_ms,14,1\nheavy,call_ms,80,2\n\
                       heavy,call_ms,60,98\nlight,call_ms,0.1,10\nlight,response_ms,0.5,9\n\
                       light,response_ms,12,1\n";
        let series = "t_virt_s,scope,metric,value\n0.5,global,nr_dirty,10\n\
                      0.5,global,nr_writeback,20\n0.5,global,nr_dirty_threshold,40\n\
                      1.0,global,nr_dirty_threshold,40\n1,task:heavy,bytes,100\n\
                      2,task:heavy,bytes,300\n";
        std::fs::write(out.join("samples.csv"), samples).unwrap();
        std::fs::write(out.join("series.csv"), series).unwrap();
        let measured = read_results(&plan(), &out);
        std::fs::remove_dir_all(&out).unwrap();
        let measured = measured.unwrap();
        let [heavy, light] = &measured.writers[..] else {
            panic!("two writers");
        };
        assert_eq!(
            (heavy.p50_ms, heavy.p99_ms, heavy.max_ms),
            (60.0, 80.0, 80.0)
        );
        assert_eq!(
            (light.p50_ms, light.p99_ms, light.max_ms),
            (0.5, 12.0, 12.0)
        );
        assert_eq!(light.late, 0.1);
        assert_eq!(heavy.per_second, [100.0, 300.0]);
        assert_eq!(measured.level_max, Some(0.75));
        assert_eq!(measured.pause_max_ms, Some(14.0));
    }
}
