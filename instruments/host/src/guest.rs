//! `cargo instruments guest`: what a real kernel does, recorded in deterministic virtual time.
//!
//! Debian's own kernel, unpacked and never installed, runs in QEMU without hardware help, with one
//! processor whose clock counts instructions: 2 ns each. Time in the guest is thus a function of
//! what runs in it, and two runs give the same recording, byte for byte (`--twice`), however busy
//! the host is. The slow device is null_blk, whose rate the kernel limits in ticks of 20 ms.
//!
//! ```text
//! scenarios --> image (busybox, writers, init, plan) --> machine (QEMU) --> record (tables)
//!                 ^ kernel (package, modules)
//! ```
//!
//! Two kinds of guest: writers that overrun a disk (`scenarios`, `image`, `record`), and memory
//! that is short (`pressure`). All share `Guest`: no procedure here asks which kind it has.
//!
//! See docs/study/record-a-guest.md.

mod image;
mod kernel;
mod machine;
pub(crate) mod nodes;
mod pressure;
mod record;
mod scenarios;
mod throttling;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use image::Programs;
use kernel::Kernel;
use machine::{Machine, Memory};
use record::{Recording, Stream};

use crate::steps::{self, End};
use crate::workspace::{Workspace, cargo, root};
use crate::{Arguments, Result, at};

/// Longest time for one guest, by the clock on the wall: ten times what the longest takes on an
/// idle machine.
const LIMIT_S: u64 = 20 * 60;
/// The same for the short one of the tests.
const SMOKE_MAX: Duration = Duration::from_secs(5 * 60);
/// A program that runs in a guest is static, so that it needs nothing but the kernel.
const TARGET: &str = "x86_64-unknown-linux-gnu";
const FLAGS: (&str, &str) = (
    "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS",
    "-C target-feature=+crt-static -C strip=symbols",
);

const USAGE: &str = "\
usage: cargo instruments guest SCENARIO... [--out DIR] [--set KEY=VALUE]... [--twice]
       cargo instruments guest --all [--out DIR]
       cargo instruments guest --list | --smoke

  --out DIR          puts each recording into DIR/NAME (default: target/guest/recordings)
  --set KEY=VALUE    turns a setting. Of dirty throttling: dirty, bg, rate, seconds, writers,
                     max_ratio, fs. Of memory pressure (r1-* to r4-*): memory, rate, swap_rate,
                     writers, readers, hogs, seconds, waits, lru_gen, and sysctls
  --smoke            a short guest of each kind, if all that it needs is there: part of `cargo xtask test --all`
  --twice            runs each twice and fails when the recordings differ
  --kernel PACKAGE   another kernel of Debian than the newest 6.12 (or 6.1) for clouds:
                     linux-image-cloud-amd64. Recordings go into DIR/NAME+kernel=PACKAGE
  --limit SECONDS    ends a guest that takes longer than this (default 1200)
";

/// The options of the command line.
struct Options {
    names: Vec<String>,
    settings: Vec<String>,
    out: Option<PathBuf>,
    kernel: Option<String>,
    limit: Duration,
    all: bool,
    list: bool,
    smoke: bool,
    twice: bool,
}

impl Options {
    fn parse(mut arguments: Arguments) -> Result<Self> {
        let mut options = Self {
            names: Vec::new(),
            settings: Vec::new(),
            out: None,
            kernel: None,
            limit: Duration::from_secs(LIMIT_S),
            all: false,
            list: false,
            smoke: false,
            twice: false,
        };
        while let Some(word) = arguments.next_word() {
            match word.as_str() {
                "--all" => options.all = true,
                "--list" => options.list = true,
                "--smoke" => options.smoke = true,
                "--twice" => options.twice = true,
                "--out" => options.out = Some(arguments.value_of("--out")?.into()),
                "--set" => options.settings.push(arguments.value_of("--set")?),
                "--kernel" => options.kernel = Some(arguments.value_of("--kernel")?),
                "--limit" => {
                    options.limit = Duration::from_secs(arguments.number_of("--limit")?);
                }
                _ if word.starts_with('-') => {
                    return Err(format!("guest: unexpected '{word}'\n\n{USAGE}"));
                }
                _ => options.names.push(word),
            }
        }
        Ok(options)
    }

    /// The folder of a recording: one of another kernel does not stand in for the usual one.
    fn folder(&self, name: &str) -> String {
        match &self.kernel {
            Some(package) => format!("{name}+kernel={package}"),
            None => name.to_owned(),
        }
    }

    /// The scenarios, with the settings turned, all of them possible.
    fn scenarios(&self) -> Result<Vec<Box<dyn Guest>>> {
        let all = all();
        if self.all && self.names.is_empty() {
            return turned(all, &self.settings);
        }
        if self.names.is_empty() || self.all {
            return Err(format!("guest: name scenarios, or say --all\n\n{USAGE}"));
        }
        let known = |name: &String| all.iter().any(|guest| guest.name() == name);
        if let Some(name) = self.names.iter().find(|name| !known(name)) {
            let known: Vec<_> = all.iter().map(|guest| guest.name()).collect();
            return Err(format!(
                "there is no scenario '{name}'; there are {}",
                known.join(", ")
            ));
        }
        let asked = |name: &str| self.names.iter().position(|one| one == name);
        let mut chosen: Vec<_> = all
            .into_iter()
            .filter(|guest| asked(guest.name()).is_some())
            .collect();
        chosen.sort_by_key(|guest| asked(guest.name()));
        turned(chosen, &self.settings)
    }
}

fn turned(mut guests: Vec<Box<dyn Guest>>, settings: &[String]) -> Result<Vec<Box<dyn Guest>>> {
    for guest in &mut guests {
        for setting in settings {
            guest.set(setting)?;
        }
        guest.judge()?;
    }
    Ok(guests)
}

/// A guest that can be booted and recorded.
trait Guest {
    fn name(&self) -> &str;

    /// The length of its recording, in its own time.
    fn seconds(&self) -> u32;

    /// Turns one setting, `KEY=VALUE`; the name tells.
    ///
    /// # Errors
    /// The setting is not known, or its value is none.
    fn set(&mut self, setting: &str) -> Result<()>;

    /// Checks that the kernel and the devices can do this.
    ///
    /// # Errors
    /// Two settings contradict each other; the message names both.
    fn judge(&self) -> Result<()>;

    fn memory(&self) -> Memory;

    /// Options of the kernel beyond those of every guest.
    fn command_line(&self) -> &'static str;

    /// The guest's file system.
    ///
    /// # Errors
    /// Something that goes into it is not there.
    fn image(&self, kernel: &Kernel, programs: &Programs) -> Result<Vec<u8>>;

    /// The tables, of what it handed out.
    ///
    /// # Errors
    /// Something is missing, torn, or not as was asked.
    fn recording(&self, hz: u32, stream: &Stream) -> Result<Recording>;
}

/// The key and the value of a setting, `KEY=VALUE`.
///
/// # Errors
/// It is none.
fn parts(setting: &str) -> Result<(&str, &str)> {
    let parts = setting.split_once('=');
    parts.ok_or_else(|| format!("--set {setting}: not of the form KEY=VALUE"))
}

/// The value of a setting as a number.
///
/// # Errors
/// It is none, or a smaller one.
fn number_from(least: u32, setting: &str) -> Result<u32> {
    let (_, value) = parts(setting)?;
    let parsed = value.parse::<u32>().ok().filter(|number| *number >= least);
    parsed.ok_or_else(|| format!("--set {setting}: '{value}' is not a number from {least} on"))
}

/// Every guest that has a name.
fn all() -> Vec<Box<dyn Guest>> {
    let mut all: Vec<Box<dyn Guest>> = Vec::new();
    for one in scenarios::all() {
        all.push(Box::new(one));
    }
    for one in pressure::all() {
        all.push(Box::new(one));
    }
    all
}

/// Records guests; the short ones of `--smoke` only where nothing has to be installed for them.
pub(crate) fn run(arguments: Arguments) -> End {
    match Options::parse(arguments) {
        Ok(options) if options.smoke => smoke(),
        Ok(options) if options.list => {
            for guest in all() {
                println!("{}", guest.name());
            }
            End::Passed
        }
        Ok(options) => record_all(&options).into(),
        Err(problem) => End::Failed(problem),
    }
}

/// Records the guests that are asked for.
///
/// # Errors
/// A scenario is not known or not possible, something is missing, or a guest fails.
fn record_all(options: &Options) -> Result<()> {
    let guests = options.scenarios()?;
    let workspace = Workspace::load()?;
    let base = workspace.target.join("guest");
    let out = options
        .out
        .clone()
        .unwrap_or_else(|| base.join("recordings"));
    let out = root().join(out);
    for guest in &guests {
        record::replaceable(&out.join(options.folder(guest.name())))?;
    }
    let workshop = Workshop::open(&base, options.kernel.as_deref(), options.limit)?;
    for guest in &guests {
        let name = guest.name();
        let recording = workshop.record(guest.as_ref())?;
        if options.twice {
            let again = workshop.record(guest.as_ref())?;
            if let Some(difference) = recording.difference(&again) {
                return Err(format!("{name}: two runs differ at {difference}"));
            }
            println!("{name}: two runs, the same recording");
        }
        let folder = out.join(options.folder(name));
        recording.save(&folder)?;
        let summary = &recording.summary;
        println!("{name}: {summary}\n    {}", folder.display());
    }
    Ok(())
}

/// A short guest of each kind from boot to tables: a part of the step `instruments`. It installs
/// nothing, and is skipped where what it needs is not there.
fn smoke() -> End {
    let missing = kernel::missing();
    if !missing.is_empty() {
        return End::Skipped(format!(
            "not there: {}; `cargo instruments guest one-dd` installs it",
            missing.join(", ")
        ));
    }
    let folder = match Workspace::load() {
        Ok(workspace) => workspace.target.join("guest"),
        Err(problem) => return End::Failed(problem),
    };
    if let Err(problem) = Kernel::fetch(&folder.join("kernels"), None) {
        let why = problem.lines().next().unwrap_or_default();
        return End::Skipped(format!("no kernel to boot: {why}"));
    }
    smoke_on(&folder).into()
}

fn smoke_on(folder: &Path) -> Result<()> {
    let workshop = Workshop::open(folder, None, SMOKE_MAX)?;
    let all = scenarios::all();
    let found = all.into_iter().find(|scenario| scenario.name == "one-dd");
    let mut scenario = found.ok_or("there is no one-dd")?;
    scenario.set("seconds=4")?;
    let stream = workshop.run(&scenario)?;
    let (recording, seen) = record::make(&scenario, workshop.kernel.hz, &stream)?;
    println!("{}: {}", scenario.name, recording.summary);
    if seen.pauses == 0 {
        return Err("a writer that is faster than its device was never paused".to_owned());
    }
    if seen.level_mib_max > f64::from(scenario.dirty) {
        let (level, dirty) = (seen.level_mib_max, scenario.dirty);
        return Err(format!("{level} MiB were dirty, over the limit of {dirty}"));
    }

    let all = pressure::all();
    let found = all.into_iter().find(|scenario| scenario.name() == "r1-4");
    let mut scenario = found.ok_or("there is no r1-4")?;
    for setting in ["memory=256", "seconds=10"] {
        scenario.set(setting)?;
    }
    let stream = workshop.run(&scenario)?;
    let (recording, seen) = scenario.measured(workshop.kernel.hz, &stream)?;
    println!("{}: {}", scenario.name(), recording.summary);
    if seen.scanned == 0 || seen.swapped_out == 0 || seen.calls == 0 {
        let (scanned, out, calls) = (seen.scanned, seen.swapped_out, seen.calls);
        return Err(format!(
            "memory was short: {scanned} pages scanned, {out} swapped out, {calls} calls"
        ));
    }
    Ok(())
}

/// The state that all guests of a command share.
struct Workshop {
    kernel: Kernel,
    programs: Programs,
    /// For the files of a running guest; removed at the end.
    folder: PathBuf,
    limit: Duration,
    stopped: Arc<AtomicBool>,
}

impl Workshop {
    fn open(base: &Path, package: Option<&str>, limit: Duration) -> Result<Self> {
        kernel::provide()?;
        let cache = base.join("kernels");
        fs::create_dir_all(&cache).map_err(at(&cache))?;
        let kernel = Kernel::fetch(&cache, package)?;
        let built = build(base, &["tidegate-guest"])?;
        let programs = Programs {
            busybox: kernel::busybox(&cache)?,
            writer: built.join("guest-writer"),
            load: built.join("guest-load"),
        };
        let folder = base.join(format!("run-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(at(&folder))?;
        let stopped = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stopped);
        ctrlc::set_handler(move || seen.store(true, Ordering::Relaxed))
            .map_err(|error| format!("interrupts cannot be caught: {error}"))?;
        Ok(Self {
            kernel,
            programs,
            folder,
            limit,
            stopped,
        })
    }

    fn record(&self, guest: &dyn Guest) -> Result<Recording> {
        let stream = self.run(guest)?;
        guest
            .recording(self.kernel.hz, &stream)
            .map_err(|problem| format!("{}: {problem}", guest.name()))
    }

    /// The stream that the guest hands out.
    fn run(&self, guest: &dyn Guest) -> Result<Stream> {
        let initrd = guest.image(&self.kernel, &self.programs)?;
        let machine = Machine {
            guest,
            kernel: &self.kernel,
            folder: &self.folder,
            limit: self.limit,
            stopped: &|| self.stopped.load(Ordering::Relaxed),
        };
        Stream::parse(&machine.run(&initrd)?)
            .map_err(|problem| format!("{}: {problem}", guest.name()))
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Builds programs for guests, of the package that the words name, static, in a folder of its own:
/// other flags would make cargo build everything else anew.
fn build(base: &Path, package: &[&str]) -> Result<PathBuf> {
    let folder = base.join("build");
    let mut command = cargo(&[
        "build",
        "--quiet",
        "--release",
        "--manifest-path",
        "instruments/Cargo.toml",
        "--target",
        TARGET,
        "--package",
    ]);
    command
        .args(package)
        .arg("--target-dir")
        .arg(&folder)
        .env(FLAGS.0, FLAGS.1);
    steps::output(&mut command)?;
    Ok(folder.join(TARGET).join("release"))
}
