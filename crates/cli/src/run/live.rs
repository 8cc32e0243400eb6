//! A run on real threads, memory and files: a fresh environment, with files in a folder that are
//! removed when the run is over, however it ends.
//!
//! The limit is the process's: what it already occupies, the threads' stacks and the cache's
//! metadata are taken off before the rest becomes frames.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Instant;

use env::{Cause, DeviceId, DeviceInfo, Env as _, Event, ObjectId};
use mm::Populate;
use os::{Budget, BudgetError, FileDevice, OpenOptions, ThreadEnv};
use policy::units::{Bytes, Nanos, PAGE_SHIFT, Pages};
use workload::Stop;

use super::assemble::{self, Seen, Sieve, number, seconds};
use super::cell::Cell;
use super::jobs::JobKind;
use super::session::{self, JobFiles, Placed, RunError, Setup};
use super::wrap::{Release, dress};
use crate::outcome::{Outcome, TaskCpu};
use crate::watch::Shared;

/// Resident bytes of metadata per frame: frame table, lists, index nodes of dense files.
const METADATA_PER_FRAME: u64 = 112;
/// Stack and buffers of one task, apart from its block.
const TASK_BYTES: u64 = 64 << 10;
/// Rings, timer, allocator, the events that are kept: measured at 3 to 5 MiB.
const RUNTIME_BYTES: u64 = 6 << 20;
/// The least that a cache of use can do with.
const FRAMES_LEAST: u64 = 256;
/// Events kept of a run: 100 MB at most.
const EVENTS_MOST: usize = 500_000;
/// Files are fast: the levels are looked at at least this often.
const SAMPLE_MOST: Nanos = Nanos::millis(50);
/// A job that waits for its time to begin looks this often at whether the run is to stop.
const LOOK_EVERY: Nanos = Nanos::millis(50);
/// Space that is left free on the file system.
const SPARE_BYTES: u64 = 16 << 20;

/// How runs are made on files.
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

/// The files of the run that is under way, to be removed also when the program is interrupted.
#[derive(Clone, Debug, Default)]
pub struct LiveFiles(Arc<Mutex<Vec<PathBuf>>>);

impl LiveFiles {
    fn add(&self, path: PathBuf) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(path);
    }

    /// Removes all of them.
    pub fn remove_all(&self) {
        for path in self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .drain(..)
        {
            // Nothing is left to be done about one that will not go.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Removes the files when the run is over, by a panic too.
struct RemoveAtEnd<'a>(&'a LiveFiles);

impl Drop for RemoveAtEnd<'_> {
    fn drop(&mut self) {
        self.0.remove_all();
    }
}

/// Events with the environment's time, and how long each task waited for what.
struct Tape {
    events: Mutex<Vec<(Instant, env::TaskId, Event)>>,
    sieve: Mutex<Sieve>,
    waits: Mutex<Waits>,
    /// Where the watch's times come from, as soon as it runs.
    env: OnceLock<Weak<ThreadEnv>>,
    watch: Shared,
    names: Mutex<BTreeMap<u32, String>>,
}

/// Tells the watch of a task's end: lives as long as its thread.
struct Ends {
    tape: Arc<Tape>,
    task: env::TaskId,
}

impl Drop for Ends {
    fn drop(&mut self) {
        if let Some(env) = self.tape.env.get().and_then(Weak::upgrade) {
            let mut watch = self.tape.watch.lock();
            watch.ended(env.now(), self.task);
        }
    }
}

thread_local! {
    static ENDS: RefCell<Option<Ends>> = const { RefCell::new(None) };
}

impl Tape {
    fn new(watch: Shared) -> Self {
        Self {
            events: Mutex::default(),
            sieve: Mutex::default(),
            waits: Mutex::default(),
            env: OnceLock::new(),
            watch,
            names: Mutex::default(),
        }
    }

    /// Lets the watch see an event; a thread's first one tells its name, and that its end is to be told.
    fn watched(self: &Arc<Self>, task: env::TaskId, event: &Event) {
        let Some(env) = self.env.get().and_then(Weak::upgrade) else {
            return;
        };
        {
            let mut watch = self.watch.lock();
            watch.event(env.now(), task, event);
        }
        if task == env::TaskId::NONE {
            return;
        }
        let met = ENDS.try_with(|ends| {
            let mut ends = ends.borrow_mut();
            ends.is_some() || {
                let tape = Arc::clone(self);
                *ends = Some(Ends { tape, task });
                false
            }
        });
        if met == Ok(false) {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or("root").to_owned();
            let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
            names.insert(task.0, name);
        }
    }
}

/// Time by task and cause.
type Waits = BTreeMap<(env::TaskId, Cause), Nanos>;

impl Live {
    /// Runs a cell on files.
    ///
    /// # Errors
    /// A folder that cannot be used, too little space or memory, and whatever the run meets.
    pub fn run(&self, cell: &Cell, trace: bool, stop: &Stop) -> Result<Outcome, RunError> {
        // Memory and files are what they are: they stand for themselves.
        let cell = &Cell {
            marks: None,
            reclaim: policy::reclaim::Tunables {
                stands_for: 1,
                cluster_stands_for: 1,
                ..cell.reclaim
            },
            ..cell.clone()
        };
        self.check_dir()?;
        let limit = self.memory.unwrap_or(cell.memory.bytes());
        // The runs before this one left heaps of their threads behind.
        os::trim_heaps();
        let frames = frames(cell, limit)?;
        let cell = &with_swap_for_the_program(cell, limit, frames);
        check_hogs(cell, limit, frames)?;
        self.check_space(cell)?;
        let _remove = RemoveAtEnd(&self.files);
        let watch = Shared::new(trace);
        let tape = Arc::new(Tape::new(watch.clone()));
        let dirtied = assemble::counts_dirtied(cell);
        let env = ThreadEnv::start(options(frames, &tape, dirtied))?;
        let epoch = Instant::now();
        let offset = env.now();
        let _ = tape.env.set(Arc::downgrade(&env));
        let made = self.run_in(&env, cell, frames, &watch, stop);
        env.shutdown();
        let (ended, (user, system)) = made?;
        let kept = take(&tape.events);
        let waits = take(&tape.waits);
        let seen: Vec<Seen> = kept
            .into_iter()
            .map(|(at, task, event)| {
                let since = at.saturating_duration_since(epoch).as_nanos();
                let since = Nanos(u64::try_from(since).unwrap_or(u64::MAX));
                Seen {
                    at: offset + since,
                    task,
                    event,
                }
            })
            .collect();
        let mut outcome = assemble::outcome(cell, 1, &ended, &seen);
        outcome.memory_limit = number(limit.0);
        // Real devices do not shrink with the files.
        outcome.scale = 1.0;
        outcome.cpu_scale = 1.0;
        outcome.tasks = vec![TaskCpu {
            name: "process".into(),
            is_job: true,
            is_interrupt: false,
            user_s: seconds(user),
            system_s: seconds(system),
            waits: Vec::new(),
        }];
        watch.lock().finish(ended.origin, &mut outcome);
        // Devices are numbered as they were added.
        let devices = (0..)
            .zip(&cell.devices)
            .map(|(id, spec)| (id, spec.id.clone()));
        outcome.name_timeline(take(&tape.names), devices);
        // CPU time is the process's; waits are each task's own.
        outcome.tasks.extend(outcome.jobs.iter().map(|job| TaskCpu {
            name: job.name.clone(),
            waits: waits_of(&waits, job.task),
            ..TaskCpu::default()
        }));
        Ok(outcome)
    }

    fn run_in(
        &self,
        env: &Arc<ThreadEnv>,
        cell: &Cell,
        frames: u32,
        watch: &Shared,
        stop: &Stop,
    ) -> Result<(session::Ended, (Nanos, Nanos)), RunError> {
        let mut devices = Vec::with_capacity(cell.devices.len());
        let mut disks = Vec::with_capacity(cell.devices.len());
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
        let (files, swap) = self.place(cell, &disks)?;
        let devices: Vec<(DeviceId, DeviceInfo)> = devices
            .into_iter()
            .map(|device| {
                let info = device.info();
                (env.add_device(device), info)
            })
            .collect();
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
            swap,
            stop: stop.clone().looked_at_every(LOOK_EVERY),
            resident: os::resident_bytes,
            watch: watch.clone(),
        };
        let _release = Release::guard(stacks, stop);
        let (user, system) = os::cpu_times();
        let ended = session::run(&mut env.enter(), env, &setup)?;
        let (user_after, system_after) = os::cpu_times();
        let spent = (
            user_after.saturating_sub(user),
            system_after.saturating_sub(system),
        );
        Ok((ended, spent))
    }

    /// The folder is one.
    ///
    /// # Errors
    /// It is not there, or is something else.
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
        Ok(())
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
    ) -> Result<(Vec<JobFiles>, Option<ObjectId>), RunError> {
        let pid = std::process::id();
        let mut files = Vec::with_capacity(cell.jobs.len());
        for (index, job) in cell.jobs.iter().enumerate() {
            let filled = job.kind.finds_files();
            let mut own = Vec::new();
            for number in 0..job.files {
                let device = job.device.expect("a job with files has their device");
                let path = self
                    .dir
                    .join(format!("tidegate-{pid}-{index}-{number}.dat"));
                own.push(self.open(&disks[device], path, job.file_bytes, filled)?);
            }
            let from = match job.from {
                Some(device) => {
                    let path = self.dir.join(format!("tidegate-{pid}-{index}-source.dat"));
                    Some(self.open(&disks[device], path, job.file_bytes, true)?)
                }
                None => None,
            };
            files.push(JobFiles { own, from });
        }
        let Some(swap) = cell.swap else {
            return Ok((files, None));
        };
        let path = self.dir.join(format!("tidegate-{pid}-swap.dat"));
        let placed = self.open(&disks[swap.device], path, swap.pages.bytes(), false)?;
        Ok((files, Some(placed.object)))
    }

    fn open(
        &self,
        disk: &FileDevice,
        path: PathBuf,
        bytes: Bytes,
        filled: bool,
    ) -> Result<Placed, RunError> {
        self.files.add(path.clone());
        if filled {
            fill(&path, bytes).map_err(|error| {
                let shown = path.display();
                RunError::Impossible(format!("{shown}: cannot write {} bytes: {error}", bytes.0))
            })?;
        }
        let options = OpenOptions {
            create: true,
            truncate: !filled,
            preallocate: (!filled).then_some(bytes),
            ..OpenOptions::default()
        };
        let (object, len) = disk.open(&path, options)?;
        // It lives on as long as it is open: so it goes however the run ends, by a kill too.
        let _ = std::fs::remove_file(&path);
        Ok(Placed { object, len })
    }
}

/// How many frames are left of the limit.
fn frames(cell: &Cell, limit: Bytes) -> Result<u32, RunError> {
    let jobs = cell.jobs.iter();
    let tasks: u64 = jobs.map(|job| job.kind.block().0 + TASK_BYTES).sum();
    let budget = Budget {
        limit: limit.0,
        resident: os::resident_bytes(),
        fixed: tasks + RUNTIME_BYTES,
        per_frame: METADATA_PER_FRAME,
        frames_least: FRAMES_LEAST,
    };
    budget.frames().map_err(|error| {
        let limit = limit.0 >> 20;
        RunError::Impossible(match error {
            BudgetError::TooLarge { available } => format!(
                "a memory limit of {limit} MiB is more than the {} MiB that the system has left; use \
                 a smaller --memory",
                available >> 20
            ),
            BudgetError::TooSmall { least, overhead } => format!(
                "a memory limit of {limit} MiB is too small: the program itself takes {} MiB; use at \
                 least --memory {}M",
                overhead >> 20,
                least.div_ceil(1 << 20)
            ),
            BudgetError::TooMany => {
                format!("a memory limit of {limit} MiB is more than 2^32 pages")
            }
        })
    })
}

/// The cell with a swap file that is larger by what the program takes of the limit: the machine of the experiment has that
/// memory for pages, and what its jobs keep was chosen for it.
fn with_swap_for_the_program(cell: &Cell, limit: Bytes, frames: u32) -> Cell {
    let mut cell = cell.clone();
    let taken = Pages(limit.0 >> PAGE_SHIFT).saturating_sub(Pages(frames.into()));
    if let Some(swap) = &mut cell.swap {
        swap.pages += taken;
    }
    cell
}

/// What the hogs keep fits memory and swap.
fn check_hogs(cell: &Cell, limit: Bytes, frames: u32) -> Result<(), RunError> {
    let swap = cell.swap.map_or(0, |swap| swap.pages.0);
    let hogs = cell.jobs.iter().filter_map(|job| match &job.kind {
        JobKind::Hog(hog) => Some(hog.pages.0),
        _ => None,
    });
    let kept: u64 = hogs.sum();
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

fn options(frames: u32, tape: &Arc<Tape>, dirtied: bool) -> os::Options {
    let mut options = os::Options::new(frames);
    let tape = Arc::clone(tape);
    options.sink = Some(Arc::new(move |task, event| {
        tape.watched(task, event);
        let kept = match event {
            Event::BalanceDirtyPages {
                writer,
                trace,
                done,
                ..
            } => {
                let mut sieve = tape.sieve.lock().unwrap_or_else(PoisonError::into_inner);
                sieve.keeps(*writer, trace, *done)
            }
            Event::Dirtied { .. } => dirtied,
            Event::Waited { cause, waited, .. } => {
                let mut waits = tape.waits.lock().unwrap_or_else(PoisonError::into_inner);
                *waits.entry((task, *cause)).or_default() += *waited;
                false
            }
            _ => false,
        };
        if kept {
            let mut kept = tape.events.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() < EVENTS_MOST {
                kept.push((Instant::now(), task, event.clone()));
            }
        }
    }));
    options
}

fn take<T: Default>(from: &Mutex<T>) -> T {
    core::mem::take(&mut *from.lock().unwrap_or_else(PoisonError::into_inner))
}

fn waits_of(waits: &Waits, task: u32) -> Vec<(String, f64)> {
    let own = waits.iter().filter(|((id, _), _)| id.0 == task);
    own.map(|((_, cause), time)| (format!("{cause:?}"), seconds(*time)))
        .collect()
}

/// Writes a file of zeroes and brings it to the disk.
fn fill(path: &Path, bytes: Bytes) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    let block = vec![0_u8; 1 << 20];
    let mut left = bytes.0;
    while left > 0 {
        let size = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
        file.write_all(&block[..size])?;
        left -= size as u64;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments;
    use crate::run::cell::Column;
    use crate::scenario::{Override, Scenario};

    /// p0's machine shrunk to 512 MiB, of which the program takes 28: its hogs keep more than is left for pages, and the
    /// experiment's swap file is of 4 MiB.
    #[test]
    fn the_swap_file_has_room_for_what_the_program_takes() {
        let sets = [Override::parse("run.scale=0.015625").unwrap()];
        let source = experiments::by_name("stutterp").unwrap();
        let (scenario, _) = Scenario::load(source, &sets).unwrap();
        let column = Column::of(&scenario.policies[0]);
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
}
