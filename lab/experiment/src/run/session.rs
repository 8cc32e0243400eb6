//! One run over any `Env`: builds a cache, opens the files, runs the jobs, watches the levels,
//! shuts down, and adds up.
//!
//! This is the part that is the same in the lab and live; `lab` and `live` make the world around
//! it. Conservation: every page ever dirtied was written or thrown away when all is done, nothing
//! is dirty any more, and what the jobs wrote was dirtied at least once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use device::{Meter, MeterReading};
use env::{Cause, DeviceId, DeviceInfo, Env, ObjectId, Task, Wakeup};
use mm::{Cache, DeviceOptions, DeviceStats, File, NodeStats, Stats, Vmstat};
use policy::reclaim::scan::CLUSTER;
use policy::units::{Bytes, Instant, Nanos, Pages};
use workload::{Barrier, Folder, Inodes, Job, Objects, Plan, Report, SmallFiles, Stop, Work, keep};

use super::cell::Cell;
use super::jobs::{Does, JobSpec};
use super::real::{number, seconds};
use crate::loads;
use crate::outcome::{DeviceLevel, Level, VmSeries};
use crate::task::Given;
use crate::watch::Shared;
use scenario::task::{Files, Writes};

/// A file that is there before the run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    /// Its number on its device.
    pub(super) object: ObjectId,
    /// Its length now.
    pub(super) len: Bytes,
}

/// Sets the changes of one device, counted from the run's beginning.
pub(super) type Change = Box<dyn Fn(Instant) + Send + Sync>;

/// The files of a job.
#[derive(Clone, Debug)]
pub(super) struct JobFiles {
    /// The files it writes or reads.
    pub(super) own: Vec<Placed>,
    /// The file that `cp` reads.
    pub(super) from: Option<Placed>,
}

/// Everything a session needs of the world around it.
pub(super) struct Setup {
    pub(super) cell: Cell,
    /// Frames of the arena: the cell's memory, or what of it is left live.
    pub(super) frames: u32,
    pub(super) populate: mm::Populate,
    /// In the cell's order.
    pub(super) devices: Vec<(DeviceId, DeviceInfo)>,
    /// The meter of each of them, in the same order.
    pub(super) meters: Vec<Arc<Meter>>,
    /// Set what is to change in mid run, counted from the moment they are given.
    pub(super) changes: Vec<Change>,
    /// In the cell's order of jobs.
    pub(super) files: Vec<JobFiles>,
    /// The makers of files on each device while the jobs run, in the cell's order.
    pub(super) objects: Vec<Arc<dyn Objects>>,
    /// The swap file on its device, if the cell has one.
    pub(super) swap: Option<ObjectId>,
    pub(super) stop: Stop,
    /// Resident memory of the process, bytes; zero in the lab.
    pub(super) resident: fn() -> u64,
    /// Told when the jobs begin and end.
    pub(super) watch: Shared,
}

/// The end of a run.
#[derive(Clone)]
pub(super) struct Ended {
    pub(super) origin: Instant,
    pub(super) reports: Vec<Report>,
    pub(super) levels: Vec<Level>,
    /// Of each device, in the cell's order.
    pub(super) device_levels: Vec<Vec<DeviceLevel>>,
    /// At the end of the jobs, of each device.
    pub(super) meters: Vec<MeterReading>,
    /// Levels and counters of the cache over time.
    pub(super) vmstat: VmSeries,
    /// Levels of each node over time, of a machine with several.
    pub(super) nodes: Vec<VmSeries>,
    /// At the end of the jobs.
    pub(super) vmstat_end: Vmstat,
    /// After shutdown.
    pub(super) vmstat_settled: Vmstat,
    /// At the end of the jobs.
    pub(super) stats: Stats,
    /// After shutdown.
    pub(super) settled: Stats,
    pub(super) elapsed: Nanos,
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The cache could not be built or shut down.
    #[error("{what}: {cause}")]
    Cache {
        /// The operation.
        what: &'static str,
        /// Why it failed.
        cause: mm::Error,
    },
    /// A job failed.
    #[error("the job `{job}` failed after {mib} MiB: {cause}")]
    Job {
        /// Which.
        job: String,
        /// The part done before.
        mib: u64,
        /// Why.
        cause: workload::Failure,
    },
    /// Pages or time are missing or were counted twice: a bug of Tidegate.
    #[error(
        "the run does not add up ({what}): {stats}; this is a bug, please report it with the seed"
    )]
    NotConserved {
        /// Which sum.
        what: String,
        /// The counters.
        stats: String,
    },
    /// It was not over when its scenario's longest time was.
    #[error(
        "not over after {max_s} s of its time (run.max_s); at work: {}; give it longer (--set run.max_s={}) or less to do",
        named(.jobs),
        .max_s * 4.0
    )]
    TooLong {
        /// The longest time, seconds.
        max_s: f64,
        /// The jobs that had not ended.
        jobs: Vec<String>,
    },
    /// The lab could not end.
    #[error("{0}")]
    Lab(#[from] world::LabError),
    /// The system refused something.
    #[error("{0}")]
    Os(#[from] os::OsError),
    /// The scenario asks for what cannot be.
    #[error("{0}")]
    Impossible(String),
    /// It was to stop while its files were made, before it had begun.
    #[error("stopped before it began")]
    Interrupted,
    /// The run panicked: a bug of Tidegate.
    #[error("the run panicked: {0}; this is a bug, please report it with the seed")]
    Panicked(String),
}

/// The first names of a list, and how many more there are.
fn named(jobs: &[String]) -> String {
    const SHOWN: usize = 4;
    let first = jobs.iter().take(SHOWN).cloned().collect::<Vec<_>>();
    match jobs.len().saturating_sub(SHOWN) {
        0 if jobs.is_empty() => "no job any more, its last sync".to_owned(),
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// Runs the session as the root task.
pub(super) fn run(
    task: &mut Task<'_>,
    env: Arc<dyn Env>,
    setup: &Setup,
) -> Result<Ended, RunError> {
    let failed = |what| move |cause| RunError::Cache { what, cause };
    let cell = &setup.cell;
    let parts = kernel::Parts {
        runs: cell.runs.map(|runs| (cell.laws.compaction, runs)),
        overhead: cell.overhead,
        shrink: cell.laws.slabs.shrink,
        shares: cell.laws.slabs.shares,
        queue: cell.laws.queue,
    };
    let built = kernel::build(env, options(setup), parts);
    let cache = built.map_err(failed("building the cache"))?;
    let mut devices = Vec::with_capacity(setup.devices.len());
    for ((id, info), spec) in setup.devices.iter().zip(&setup.cell.devices) {
        let mut options = DeviceOptions::default();
        options.tunables.strict = spec.strict;
        options.tunables.max_ratio = spec.max_ratio;
        options.tunables.initial = setup.cell.laws.initial;
        super::runs::of_device(spec, &mut options);
        let device = cache.add_device(task, *id, *info, options);
        devices.push(device.map_err(failed("adding a device"))?);
    }
    let made = devices.iter().zip(&setup.objects);
    let folders: Vec<Arc<Folder>> = made
        .map(|(device, objects)| Arc::new(Folder::new(&cache, *device, Arc::clone(objects))))
        .collect();
    let nodes = setup.cell.machine.as_ref();
    let nodes = nodes.map_or(1, |machine| machine.nodes().len());
    let nodes = u8::try_from(nodes).expect("nodes are few");
    let small = setup.cell.small.as_ref().map(|spec| {
        let memory = Pages(u64::from(setup.frames));
        SmallFiles::new(task, &cache, spec.options(nodes, memory))
    });
    let small = small
        .transpose()
        .map_err(failed("building the caches of small files"))?;
    let inodes = setup.cell.jobs.iter().any(|job| job.facts.has_inodes);
    let inodes = inodes.then(|| Inodes::new(task, &cache, setup.cell.laws.inodes, nodes));
    let inodes = inodes
        .transpose()
        .map_err(failed("building the caches of inodes"))?;
    let mut barriers = Barriers::default();
    let mut files = Vec::new();
    let mut plan: Plan = Vec::new();
    for (job, placed) in setup.cell.jobs.iter().zip(&setup.files) {
        let mut open = |task: &mut Task<'_>, device: usize, placed: Placed| {
            let file = cache.open(task, devices[device], placed.object, placed.len);
            let file = file.map_err(failed("opening a file"))?;
            // It was made for this run, and goes with it.
            file.assume_durable();
            files.push(Arc::clone(&file));
            Ok::<_, RunError>(file)
        };
        let own = placed.own.iter().map(|placed| {
            let device = job.device.expect("a job with files has their device");
            open(task, device, *placed)
        });
        let own = own.collect::<Result<Vec<_>, _>>()?;
        let from = match (job.from, placed.from) {
            (Some(device), Some(placed)) => Some(open(task, device, placed)?),
            _ => None,
        };
        plan.push(Job {
            name: job.name.clone(),
            start_after: job.start_after,
            work: work(
                &job.does,
                Given {
                    small: small
                        .as_ref()
                        .map(|small| join(task, small, job.traits.files, &own)),
                    files: own,
                    from,
                    folder: job.device.map(|device| Arc::clone(&folders[device])),
                    inodes: inodes.clone().filter(|_| job.facts.has_inodes),
                    barrier: barriers.of(&setup.cell, job),
                },
            ),
        });
    }
    if let (Some(swap), Some(object)) = (setup.cell.swap, setup.swap) {
        let added = cache.add_swap(task, devices[swap.device], object, swap.pages);
        added.map_err(failed("adding the swap file"))?;
    }
    if cell.used_before {
        kernel::use_before(task, &cache).map_err(failed("using memory before the run"))?;
    }
    let origin = task.now();
    setup.changes.iter().for_each(|change| change(origin));
    setup.watch.lock().opens(origin);
    let levels = Levels::watch(task, &cache, setup, origin);
    let reports = workload::run(task, &cache, plan, &setup.stop);
    let stats = cache.stats();
    let vmstat_end = cache.vmstat();
    let elapsed = task.now().since(origin);
    setup.watch.lock().closes(task.now());
    let meters = setup.meters.iter().map(|meter| meter.reading()).collect();
    let taken = levels.end(task);
    if let Some(small) = &small {
        small.clear(task);
    }
    if let Some(inodes) = &inodes {
        inodes.clear(task);
    }
    if setup.stop.is_raised() {
        // Interrupted: what is not written yet is of no use to anybody.
        for file in &files {
            let _ = file.discard(task);
        }
        for folder in &folders {
            let _ = folder.discard_all(task);
        }
    }
    let shut = cache.shutdown(task);
    let settled = cache.stats();
    let vmstat_settled = cache.vmstat();
    first_failure(&reports, &setup.stop)?;
    if !setup.stop.is_raised() {
        shut.map_err(failed("the last sync"))?;
        check_conservation(&reports, &setup.cell, &settled)?;
        check_reclaim(&vmstat_settled, &settled)?;
    }
    Ok(Ended {
        origin,
        reports,
        levels: taken.levels,
        device_levels: taken.devices,
        vmstat: taken.vmstat,
        nodes: taken.nodes,
        vmstat_end,
        vmstat_settled,
        meters,
        stats,
        settled,
        elapsed,
    })
}

fn options(setup: &Setup) -> mm::Options {
    let cell = &setup.cell;
    let files = setup.files.iter().map(|files| files.own.len() as u64 + 1);
    let made = cell.jobs.iter().filter_map(|job| job.facts.makes);
    let files = files.sum::<u64>() + made.map(|(files, _)| files).sum::<u64>() + 2;
    let files = u32::try_from(files).expect("the count of files is checked");
    let mut options = mm::Options::new(setup.frames, cell.cpus);
    options.populate = setup.populate;
    options.dirty = cell.laws.dirty;
    options.dirty.memory = Pages(u64::from(setup.frames));
    options.flush = cell.laws.flush;
    options.reclaim = cell.laws.reclaim;
    options.page_rule.clone_from(&cell.page_rule);
    options.marks = cell.marks;
    options.place = cell.laws.place;
    if cell.laws.slabs.keeps_apart {
        // Slabs of small files keep their size, and pageblocks with them.
        let keeps = cell.small.is_some();
        let stands_for = if keeps {
            1
        } else {
            cell.laws.reclaim.stands_for
        };
        options.apart = Some(mm::Apart::of(cell.laws.slabs.fallback, stands_for));
        options.boost = cell.laws.slabs.boost;
    }
    let pages = Pages(u64::from(setup.frames));
    options.machine = cell.machine.as_ref().map(|all| all.with_pages(pages));
    options.readahead_max = cell.readahead.unwrap_or(options.readahead_max);
    if let Some(pages) = cell.laws.reclaim.law.swap_queue {
        let requests = u32::try_from(pages.0 / CLUSTER.0);
        options.swap_requests = requests.expect("a queue is short");
    }
    if cell.scale_costs {
        // Pages on their way to the swap file stay the same part of the memory.
        let pages = u64::from(options.swap_requests) * CLUSTER.0 / cell.shrink;
        let requests = pages / cell.laws.reclaim.cluster().0;
        options.swap_requests = u32::try_from(requests).map_or(u32::MAX, |least| least.max(4));
    }
    if cell.laws.queue.is_some() {
        // A batch may go beyond the queue by half of it, and no device waits for another's.
        let queues = setup.devices.iter().filter_map(|(_, info)| info.queue);
        let most = queues.map(|queue| queue.requests).max().unwrap_or(0);
        options.write_requests = options.write_requests.max(4 * most);
    }
    options.devices_max = u16::try_from(setup.devices.len())
        .expect("devices are few")
        .max(1);
    options.files_max = options.files_max.max(files);
    options
}

/// A job comes to the small files; the answer has its directory of them, if it makes some.
fn join(
    task: &Task<'_>,
    small: &Arc<SmallFiles>,
    files: Files,
    own: &[Arc<File>],
) -> (Arc<SmallFiles>, u16) {
    let mut directory = 0;
    if let (Files::SmallMade, [data, inodes]) = (files, own) {
        small.expect(true);
        directory = small.add_directory(task, Arc::clone(data), Arc::clone(inodes));
    } else if files == Files::SmallSeen {
        small.expect(false);
    }
    (Arc::clone(small), directory)
}

fn work(does: &Does, mut given: Given) -> Work {
    match does {
        Does::Task(kind, at) => loads::of(kind).work(at, given),
        Does::Keeps(options) => {
            let (options, (small, _), log) = (*options, given.small(), given.file());
            Work::new(move |task, cache, run| keep(task, cache, (&small, &log), &options, run))
        }
    }
}

/// The barriers at which the jobs of each entry meet between two rounds.
#[derive(Default)]
struct Barriers(Vec<(String, Arc<Barrier>)>);

impl Barriers {
    /// That of a job's entry.
    fn of(&mut self, cell: &Cell, job: &JobSpec) -> Arc<Barrier> {
        let known = self.0.iter().find(|(entry, _)| *entry == job.entry);
        if let Some((_, barrier)) = known {
            return Arc::clone(barrier);
        }
        let all = cell.jobs.iter().filter(|other| other.entry == job.entry);
        let members = u32::try_from(all.count()).expect("the count of jobs is checked");
        let barrier = Arc::new(Barrier::of(members));
        self.0.push((job.entry.clone(), Arc::clone(&barrier)));
        barrier
    }
}

fn first_failure(reports: &[Report], stop: &Stop) -> Result<(), RunError> {
    for report in reports {
        if let Some(cause) = &report.failure
            && !stop.is_raised()
        {
            let (job, mib) = (report.name.clone(), report.bytes.0 >> 20);
            return Err(RunError::Job {
                job,
                mib,
                cause: cause.clone(),
            });
        }
    }
    Ok(())
}

/// Adds up bytes written, pages dirtied and pages cleaned.
fn check_conservation(reports: &[Report], cell: &Cell, stats: &Stats) -> Result<(), RunError> {
    let wrong = |what: String| {
        Err(RunError::NotConserved {
            what,
            stats: format!("{stats:?}"),
        })
    };
    if !stats.is_conserved() {
        return wrong("dirtied = dirty + writeback + written + discarded".into());
    }
    if !stats.dirty.is_zero() || !stats.writeback.is_zero() {
        return wrong("pages are dirty or under writeback after the last sync".into());
    }
    let writers = || {
        reports
            .iter()
            .zip(&cell.jobs)
            .filter(|(_, job)| job.writes())
    };
    // Most jobs write their own file front to back, so each page is dirtied at least once; all, at
    // most once for each call that touched it. A job that overwrites may meet pages that are dirty
    // already.
    let least: Pages = writers()
        .filter(|(_, job)| job.traits.writes == Writes::Once)
        .map(|(report, _)| report.bytes.pages_floor())
        .sum();
    let most: Pages = writers()
        .map(|(report, _)| report.bytes.pages_ceil() + Pages(report.latencies.count()))
        .sum();
    if stats.dirtied < least || stats.dirtied > most {
        return wrong(format!(
            "{} to {} pages were written to the cache",
            least.0, most.0
        ));
    }
    Ok(())
}

/// Pages scanned, isolated, put back, written and freed add up.
fn check_reclaim(vmstat: &Vmstat, stats: &Stats) -> Result<(), RunError> {
    match vmstat.broken_sum() {
        None => Ok(()),
        Some(sum) => Err(RunError::NotConserved {
            what: sum.to_owned(),
            stats: format!("{:?} {stats:?}", vmstat.entries().collect::<Vec<_>>()),
        }),
    }
}

/// Levels of the cache, and of each device.
#[derive(Default)]
struct Taken {
    levels: Vec<Level>,
    devices: Vec<Vec<DeviceLevel>>,
    vmstat: VmSeries,
    /// Of a machine with several nodes.
    nodes: Vec<VmSeries>,
}

/// Levels of a node, under the kernel's names: free pages, those of files, anonymous and dirty
/// ones.
fn node_levels(stats: &NodeStats) -> [(&'static str, f64); 4] {
    [
        ("nr_free_pages", number(stats.free.0)),
        ("nr_file_pages", number(stats.file.0 + stats.aside.0)),
        ("nr_anon_pages", number(stats.anon.0)),
        ("nr_dirty", number(stats.dirty.0)),
    ]
}

/// A task that reads the levels now and then.
struct Levels {
    taken: Arc<Mutex<Taken>>,
    ended: Arc<AtomicBool>,
    watcher: env::JoinHandle<()>,
}

impl Levels {
    fn watch(task: &Task<'_>, cache: &Arc<Cache>, setup: &Setup, origin: Instant) -> Self {
        let taken = Arc::new(Mutex::new(Taken {
            devices: vec![Vec::new(); setup.meters.len()],
            vmstat: VmSeries {
                names: cache.vmstat().entries().map(|(name, _)| name).collect(),
                rows: Vec::new(),
            },
            ..Taken::default()
        }));
        let ended = Arc::new(AtomicBool::new(false));
        let (sink, stop, cache) = (Arc::clone(&taken), Arc::clone(&ended), Arc::clone(cache));
        let (every, resident) = (setup.cell.sample, setup.resident);
        let meters = setup.meters.clone();
        let watcher = env::spawn(task.env(), "levels", move |task| {
            loop {
                let at = task.now().since(origin);
                let level = level(&cache.stats(), at, resident());
                let devices = cache.device_stats();
                let vmstat = cache.vmstat();
                let nodes = cache.node_stats();
                {
                    let mut taken = sink.lock().unwrap_or_else(PoisonError::into_inner);
                    taken.levels.push(level);
                    let lists = taken.devices.iter_mut().zip(&meters);
                    for ((list, meter), stats) in lists.zip(&devices) {
                        list.push(device_level(stats, &meter.reading(), at));
                    }
                    let row = vmstat.entries().map(|(_, value)| number(value)).collect();
                    taken.vmstat.rows.push((seconds(at), row));
                    if nodes.len() > 1 {
                        taken.nodes.resize_with(nodes.len(), VmSeries::default);
                    }
                    for (series, stats) in taken.nodes.iter_mut().zip(&nodes) {
                        let levels = node_levels(stats);
                        series.names = levels.map(|(name, _)| name).to_vec();
                        let row = levels.map(|(_, value)| value).to_vec();
                        series.rows.push((seconds(at), row));
                    }
                }
                if stop.load(Ordering::Relaxed)
                    || task.sleep(Cause::Idle, every) == Wakeup::Cancelled
                {
                    return;
                }
            }
        });
        Self {
            taken,
            ended,
            watcher,
        }
    }

    fn end(self, task: &mut Task<'_>) -> Taken {
        self.ended.store(true, Ordering::Relaxed);
        let _ = self.watcher.join(task);
        core::mem::take(&mut *self.taken.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "pages, bytes and times are below 2^53"
)]
fn level(stats: &Stats, at: Nanos, resident: u64) -> Level {
    Level {
        at_s: at.0 as f64 / 1e9,
        dirty: stats.dirty.0 as f64,
        writeback: stats.writeback.0 as f64,
        free: stats.free.0 as f64,
        cached: stats.cached.0 as f64,
        limit: stats.dirty_limit.0 as f64,
        background: stats.background_limit.0 as f64,
        resident: resident as f64,
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "pages, bytes and times are below 2^53"
)]
fn device_level(stats: &DeviceStats, meter: &MeterReading, at: Nanos) -> DeviceLevel {
    DeviceLevel {
        at_s: at.0 as f64 / 1e9,
        dirty: stats.dirty.0 as f64,
        writeback: stats.writeback.0 as f64,
        written: meter.written.0 as f64,
        writes: meter.writes as f64,
        busy_s: meter.busy.0 as f64 / 1e9,
    }
}
