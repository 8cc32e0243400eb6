//! A run on real threads, memory and files: a fresh environment, with files in a folder that are
//! removed when the run ends, however it ends.
//!
//! The limit is the process's: what it already occupies, the threads' stacks and the cache's
//! metadata are taken off before the rest becomes frames.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use env::{DeviceId, DeviceInfo, ObjectId};
use mm::Populate;
use os::{Budget, BudgetError, FileDevice, OpenOptions, ThreadEnv};
use policy::units::{Bytes, Nanos, PAGE_SHIFT, Pages};
use workload::{Objects, Stop};

use super::assemble;
use super::cell::Cell;
use super::made::{LiveFiles, MadeFiles};
use super::real::{number, seconds};
use super::session::{self, JobFiles, Placed, RunError, Setup};
use super::tape::Tape;
use super::wrap::{Release, dress};
use crate::outcome::Outcome;
use crate::watch::{Shared, Timeline};

/// Resident bytes of metadata per frame: frame table, lists, index nodes of dense files.
const METADATA_PER_FRAME: u64 = 112;
/// Memory that one task makes resident, apart from its block: its stack, its thread's heap, its
/// accounts and histograms. Measured: 44 tasks more of `stutterp-readers` are 0.4 MiB each.
const TASK_BYTES: u64 = 400 << 10;
/// Rings, timer, allocator, the events that are kept: measured at 3 to 5 MiB.
const RUNTIME_BYTES: u64 = 6 << 20;
/// The least that a cache of use can do with. With less the program itself takes more: 17M and 18M,
/// where 1024 make it 20M, were passed by 4 to 19 % in `dd`.
const FRAMES_LEAST: u64 = 1024;
/// Files are fast: the levels are looked at at least this often.
const SAMPLE_MOST: Nanos = Nanos::millis(50);
/// A job that waits for its time to begin looks this often at whether the run is to stop.
const LOOK_EVERY: Nanos = Nanos::millis(50);
/// Files that are open beside those that jobs make: rings, timers, the terminal, results.
const FILES_OF_OURS: u64 = 64;
/// Space that is left free on the file system.
const SPARE_BYTES: u64 = 16 << 20;

/// The surroundings of runs on files.
#[derive(Clone, Debug)]
pub struct Live {
    /// The folder, which is there.
    pub dir: PathBuf,
    /// Wrapper around every device, beside the scenario's own.
    pub wrap: Option<String>,
    /// Memory limit instead of the scenario's.
    pub memory: Option<Bytes>,
    /// The files that are there now.
    pub files: LiveFiles,
}

/// Removes the files when the run ends, by a panic too.
struct RemoveAtEnd<'a>(&'a LiveFiles);

impl Drop for RemoveAtEnd<'_> {
    fn drop(&mut self) {
        self.0.remove_all();
    }
}

impl Live {
    /// Runs a cell on files.
    ///
    /// # Errors
    /// A folder that cannot be used, too little space or memory, and whatever the run meets.
    pub fn run(&self, cell: &Cell, trace: bool, stop: &Stop) -> Result<Outcome, RunError> {
        // Memory and files are what they are: they stand for themselves.
        let mut cell = Cell {
            marks: None,
            ..cell.clone()
        };
        cell.laws.reclaim.stands_for = 1;
        cell.laws.reclaim.cluster_stands_for = 1;
        let cell = &cell;
        self.check_dir()?;
        let limit = self.memory.unwrap_or(cell.memory.bytes());
        // The runs before this one left heaps of their threads behind.
        os::trim_heaps();
        let frames = frames(cell, limit, trace)?;
        let cell = &with_swap_for_the_program(cell, limit, frames);
        check_hogs(cell, limit, frames)?;
        self.check_space(cell)?;
        check_made(cell)?;
        let _remove = RemoveAtEnd(&self.files);
        let watch = Shared::new(trace);
        let law = cell.laws.dirty.law;
        let tape = Tape::new(law, watch.clone());
        let mut options = os::Options::new(frames);
        options.sink = Some(tape.sink(assemble::counts_dirtied(cell)));
        let env = ThreadEnv::start(options)?;
        tape.follows(&env);
        let mut disks = Vec::with_capacity(cell.devices.len());
        let before = os::cpu_times();
        let own = stop.of_one_run();
        let made = self.run_in(&env, cell, frames, &mut disks, &watch, &own);
        env.shutdown();
        let after = os::cpu_times();
        // Nothing is on its way any more.
        disks.iter().for_each(|disk| disk.give_up());
        let ended = made?;
        if own.is_raised() && !stop.is_raised() {
            let left = ended.reports.iter().filter(|report| !report.complete);
            return Err(RunError::TooLong {
                max_s: seconds(cell.longest),
                jobs: left.map(|report| report.name.clone()).collect(),
            });
        }
        let mut outcome = assemble::outcome(cell, 1, &ended, tape.take_digest(law));
        outcome.memory_limit = number(limit.0);
        // Real devices do not shrink with the files.
        outcome.scale = 1.0;
        outcome.cpu_scale = 1.0;
        let spent = (
            after.0.saturating_sub(before.0),
            after.1.saturating_sub(before.1),
        );
        outcome.tasks = tape.accounts(&outcome.jobs, spent);
        watch.lock().finish(ended.origin, &mut outcome);
        // Devices are numbered as they were added.
        let devices = (0..)
            .zip(&cell.devices)
            .map(|(id, spec)| (id, spec.id.clone()));
        outcome.name_timeline(tape.names(), devices);
        Ok(outcome)
    }

    fn run_in(
        &self,
        env: &Arc<ThreadEnv>,
        cell: &Cell,
        frames: u32,
        disks: &mut Vec<Arc<FileDevice>>,
        watch: &Shared,
        stop: &Stop,
    ) -> Result<session::Ended, RunError> {
        let mut devices = Vec::with_capacity(cell.devices.len());
        let mut meters = Vec::with_capacity(cell.devices.len());
        let mut changes = Vec::new();
        let mut stacks = Vec::new();
        for spec in &cell.devices {
            let disk = FileDevice::new(env)?;
            disks.push(Arc::clone(&disk));
            let more = self.wrap.as_deref();
            let mut built = dress(disk, spec, more, &env.host(), (true, 1))?;
            stacks.append(&mut built.stacks);
            devices.push(built.device);
            meters.push(built.meter);
            changes.extend(built.change);
        }
        let (files, swap) = self.place(cell, disks, stop)?;
        let devices: Vec<(DeviceId, DeviceInfo)> = devices
            .into_iter()
            .map(|device| {
                let info = device.info();
                (env.add_device(device), info)
            })
            .collect();
        let objects = disks
            .iter()
            .map(|disk| Arc::new(MadeFiles::new(&self.dir, disk, &self.files)) as Arc<dyn Objects>);
        let objects = objects.collect();
        let longest = cell.longest;
        let mut cell = cell.clone();
        cell.sample = cell.sample.at_most(SAMPLE_MOST);
        let setup = Setup {
            cell,
            frames,
            populate: Populate::AsUsed,
            devices,
            meters,
            changes,
            files,
            objects,
            swap,
            stop: stop.clone().looked_at_every(LOOK_EVERY),
            resident: os::resident_bytes,
            watch: watch.clone(),
        };
        let _release = Release::guard(stacks, stop, Duration::from_nanos(longest.0));
        session::run(&mut env.enter(), env.clone(), &setup)
    }

    /// The folder is one, and files can be made in it.
    ///
    /// # Errors
    /// It is not there, is something else, or cannot be written.
    pub fn check_dir(&self) -> Result<(), RunError> {
        let shown = self.dir.display();
        let meta = std::fs::metadata(&self.dir).map_err(|error| {
            RunError::Impossible(format!(
                "--live {shown}: {error}; make the folder first, or name one that is there"
            ))
        })?;
        if !meta.is_dir() {
            let text = format!("--live {shown}: not a folder; name a folder for the files");
            return Err(RunError::Impossible(text));
        }
        let probe = format!("tidegate-{}-probe.dat", std::process::id());
        let probe = self.dir.join(probe);
        match File::create_new(&probe) {
            Ok(_) => {
                let _ = std::fs::remove_file(&probe);
                Ok(())
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(RunError::Impossible(format!(
                "--live {shown}: files cannot be made there: {error}; name a folder that you can write"
            ))),
        }
    }

    /// The folder has room for the files.
    fn check_space(&self, cell: &Cell) -> Result<(), RunError> {
        let shown = self.dir.display();
        let space = rustix::fs::statvfs(&self.dir).map_err(|error| {
            RunError::Impossible(format!(
                "--live {shown}: cannot tell the free space: {error}"
            ))
        })?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        let needed = cell.bytes_on_disk().0 + SPARE_BYTES;
        if free < needed {
            return Err(RunError::Impossible(format!(
                "--live {shown}: the run needs {} MiB and {} MiB are free; free some, name another \
                 folder, or use a smaller --scale",
                needed.div_ceil(1 << 20),
                free >> 20
            )));
        }
        Ok(())
    }

    /// Makes the files of all jobs, and the swap file.
    fn place(
        &self,
        cell: &Cell,
        disks: &[Arc<FileDevice>],
        stop: &Stop,
    ) -> Result<(Vec<JobFiles>, Option<ObjectId>), RunError> {
        let pid = std::process::id();
        let mut files = Vec::with_capacity(cell.jobs.len());
        for (index, job) in cell.jobs.iter().enumerate() {
            let filled = job.finds_files().then_some(stop);
            let mut own = Vec::new();
            for number in 0..job.files {
                let device = job.device.expect("a job with files has their device");
                let path = self
                    .dir
                    .join(format!("tidegate-{pid}-{index}-{number}.dat"));
                own.push(self.open(&disks[device], path, job.facts.file_bytes, filled)?);
            }
            let from = match job.from {
                Some(device) => {
                    let path = self.dir.join(format!("tidegate-{pid}-{index}-source.dat"));
                    Some(self.open(&disks[device], path, job.facts.file_bytes, Some(stop))?)
                }
                None => None,
            };
            files.push(JobFiles { own, from });
        }
        let Some(swap) = cell.swap else {
            return Ok((files, None));
        };
        let path = self.dir.join(format!("tidegate-{pid}-swap.dat"));
        let placed = self.open(&disks[swap.device], path, swap.pages.bytes(), None)?;
        Ok((files, Some(placed.object)))
    }

    /// Makes a file; `filled`: with content, unless it is stopped meanwhile.
    fn open(
        &self,
        disk: &FileDevice,
        path: PathBuf,
        bytes: Bytes,
        filled: Option<&Stop>,
    ) -> Result<Placed, RunError> {
        self.files.add(path.clone());
        if let Some(stop) = filled {
            fill(&path, bytes, stop).map_err(|error| {
                let shown = path.display();
                RunError::Impossible(format!("{shown}: cannot write {} bytes: {error}", bytes.0))
            })?;
            if stop.is_raised() {
                return Err(RunError::Interrupted);
            }
        }
        let options = OpenOptions {
            create: true,
            truncate: filled.is_none(),
            preallocate: filled.is_none().then_some(bytes),
            ..OpenOptions::default()
        };
        let (object, len) = disk.open(&path, options)?;
        // It lives on as long as it is open: so it goes however the run ends, by a kill too.
        let _ = std::fs::remove_file(&path);
        Ok(Placed { object, len })
    }
}

/// The process may have as many files open as the jobs make: each is, until it is removed.
pub(super) fn check_made(cell: &Cell) -> Result<(), RunError> {
    let made = cell.jobs.iter().filter_map(|job| job.facts.makes);
    let made: u64 = made.map(|(files, _)| files).sum();
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    match most {
        Some(most) if made > 0 && made + FILES_OF_OURS > most => {
            Err(RunError::Impossible(format!(
                "row `{}`: its jobs make {made} files, and this process may have {most} open; raise `ulimit -n` to {} or \
                 more, or use a smaller --scale",
                cell.case,
                made + FILES_OF_OURS
            )))
        }
        _ => Ok(()),
    }
}

/// Number of frames that the limit leaves, for a run that is traced or not.
fn frames(cell: &Cell, limit: Bytes, trace: bool) -> Result<u32, RunError> {
    let jobs = cell.jobs.iter();
    let tasks: u64 = jobs.map(|job| job.facts.block.0 + TASK_BYTES).sum();
    let kept = if trace { Timeline::BYTES_MOST } else { 0 };
    let budget = Budget {
        limit: limit.0,
        resident: os::resident_bytes(),
        fixed: tasks + RUNTIME_BYTES + kept,
        per_frame: METADATA_PER_FRAME,
        frames_least: FRAMES_LEAST,
    };
    budget.frames().map_err(|error| {
        let limit = match limit.0 {
            small @ ..1_048_576 => format!("{} KiB", small.div_ceil(1024)),
            bytes => format!("{} MiB", bytes >> 20),
        };
        RunError::Impossible(match error {
            BudgetError::TooLarge { available } => format!(
                "a memory limit of {limit} is more than the {} MiB that the system has left; use \
                 a smaller --memory",
                available >> 20
            ),
            BudgetError::AboveGroup { allowed, file } => format!(
                "a memory limit of {limit} is more than the {} MiB that the control group of this process allows ({}); \
                 use a smaller --memory, or raise the group's limit",
                allowed >> 20,
                file.display()
            ),
            BudgetError::TooSmall { least, overhead } => format!(
                "a memory limit of {limit} is too small: the program itself takes {} MiB; use at \
                 least --memory {}M",
                overhead >> 20,
                least.div_ceil(1 << 20)
            ),
            BudgetError::TooMany => {
                format!("a memory limit of {limit} is more than 2^32 pages")
            }
        })
    })
}

/// The cell with a swap file that is larger by what the program takes of the limit: the machine of
/// the experiment has that memory for pages, and what its jobs keep was chosen for it.
fn with_swap_for_the_program(cell: &Cell, limit: Bytes, frames: u32) -> Cell {
    let mut cell = cell.clone();
    let taken = Pages(limit.0 >> PAGE_SHIFT).saturating_sub(Pages(frames.into()));
    if let Some(swap) = &mut cell.swap {
        swap.pages += taken;
    }
    cell
}

/// Checks that the hogs' pages fit memory and swap.
fn check_hogs(cell: &Cell, limit: Bytes, frames: u32) -> Result<(), RunError> {
    let swap = cell.swap.map_or(0, |swap| swap.pages.0);
    let kept: u64 = cell.jobs.iter().map(|job| job.facts.kept.0).sum();
    let room = u64::from(frames) + swap;
    if kept <= room {
        return Ok(());
    }
    let mib = |pages: u64| pages.div_ceil(256);
    Err(RunError::Impossible(format!(
        "row `{}`: its hogs keep {} MiB; of a memory limit of {} MiB, {} MiB are left for pages, and swap has {} MiB; use \
         at least --memory {}M, or a larger swap file",
        cell.case,
        mib(kept),
        limit.0 >> 20,
        frames / 256,
        swap / 256,
        (limit.0 >> 20) + mib(kept - room)
    )))
}

/// Writes a file of zeroes and brings it to the disk, unless it is stopped.
fn fill(path: &Path, bytes: Bytes, stop: &Stop) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    let block = vec![0_u8; 1 << 20];
    let mut left = bytes.0;
    while left > 0 && !stop.is_raised() {
        let size = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
        file.write_all(&block[..size])?;
        left -= size as u64;
    }
    if stop.is_raised() {
        return Ok(());
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::cell::Column;
    use scenario::experiments;
    use scenario::{Override, Scenario};

    /// p0's machine shrunk to 512 MiB, of which the program takes 28: its hogs keep more than is
    /// left for pages, and the experiment's swap file is of 4 MiB.
    #[test]
    fn the_swap_file_has_room_for_what_the_program_takes() {
        let sets = [Override::parse("run.scale=0.015625").unwrap()];
        let source = experiments::by_name("stutterp").unwrap();
        let (scenario, _) = Scenario::load(source, &sets).unwrap();
        let column = Column::of(&scenario.columns[0]);
        let limit = Bytes(512 << 20);
        let frames = 484 * 256;
        for row in &scenario.rows() {
            let cell = Cell::resolve(&scenario, row, &column);
            let swap = |cell: &Cell| cell.swap.unwrap().pages;
            let live = with_swap_for_the_program(&cell, limit, frames);
            assert_eq!(swap(&live), swap(&cell) + Pages(28 * 256));
            check_hogs(&live, limit, frames).unwrap();
        }
    }

    #[test]
    fn a_limit_below_a_mebibyte_is_named_in_kibibytes() {
        let (scenario, _) = Scenario::load(experiments::by_name("dd").unwrap(), &[]).unwrap();
        let column = Column::of(&scenario.columns[0]);
        let cell = Cell::resolve(&scenario, &scenario.rows()[0], &column);
        let said = |limit| frames(&cell, Bytes(limit), false).unwrap_err().to_string();
        assert!(said(1024).starts_with("a memory limit of 1 KiB is too small"));
        assert!(said(2 << 20).starts_with("a memory limit of 2 MiB is too small"));
    }

    #[test]
    fn what_a_trace_keeps_comes_off_the_limit() {
        let (scenario, _) = Scenario::load(experiments::by_name("dd").unwrap(), &[]).unwrap();
        let column = Column::of(&scenario.columns[0]);
        let cell = Cell::resolve(&scenario, &scenario.rows()[0], &column);
        // Far from what other tests of this process take meanwhile.
        let limit = Bytes(2 << 30);
        let [without, with] = [false, true].map(|trace| frames(&cell, limit, trace).unwrap());
        let less = u64::from(without - with) << PAGE_SHIFT;
        assert!(less > Timeline::BYTES_MOST / 2, "{less}");
    }

    #[test]
    fn a_file_is_not_filled_on_when_the_run_is_to_stop() {
        let path = std::env::temp_dir().join(format!("tidegate-fill-{}", std::process::id()));
        let filled = |stop: &Stop| {
            fill(&path, Bytes(3 << 20), stop).unwrap();
            std::fs::metadata(&path).unwrap().len()
        };
        let stop = Stop::default();
        assert_eq!(filled(&stop), 3 << 20);
        stop.raise();
        assert_eq!(filled(&stop), 0);
        std::fs::remove_file(&path).unwrap();
    }
}
