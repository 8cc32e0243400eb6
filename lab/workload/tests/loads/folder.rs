//! Jobs that make their files while they run, in the lab and on threads and files.

use std::path::PathBuf;
use std::sync::Arc;

use env::{Device, ObjectId, Task, Work as Kind};
use history::files::InodeRule;
use mm::{Cache, DeviceOptions, Item, Stats};
use os::{FileDevice, OpenOptions, ThreadEnv};
use policy::units::{Bytes, Nanos, Pages};
use workload::{
    Barrier, Failure, Folder, FsMark, Inodes, Job, LargeDd, Numbered, Objects, Report, Stop, Work,
};
use world::fs;
use world::media::Media;
use world::model::{self, Surroundings};
use world::{CostTable, Lab, Options, Record, Sector};

use crate::common::Dir;

/// Frames: 16 MiB.
const FRAMES: u32 = 4_096;

/// The results of the jobs; `files`: those that were left.
struct Ended {
    reports: Vec<Report>,
    stats: Stats,
    files: usize,
}

/// Runs what `plan` makes of a folder, and shuts the cache down.
fn run(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    folder: &Arc<Folder>,
    stop: &Stop,
    plan: impl FnOnce(&Arc<Folder>) -> Vec<Work>,
) -> Ended {
    let plan = plan(folder).into_iter().zip(0..).map(|(work, at)| Job {
        name: format!("job-{at}"),
        start_after: Nanos::ZERO,
        work,
    });
    let reports = workload::run(task, cache, plan.collect(), stop);
    let (stats, files) = (cache.stats(), folder.count(task));
    if stop.is_raised() {
        folder.discard_all(task).unwrap();
    }
    cache.shutdown(task).unwrap();
    let settled = cache.stats();
    assert!(settled.is_conserved(), "{settled:?}");
    assert_eq!(cache.vmstat().broken_sum(), None);
    Ended {
        reports,
        stats,
        files,
    }
}

/// In the lab, with `frames` of memory and what work costs on ext4.
fn in_lab(
    frames: u32,
    stop: &Stop,
    plan: impl FnOnce(&Arc<Folder>) -> Vec<Work> + Send + 'static,
) -> (Ended, Lab) {
    let mut lab = Lab::new(Options {
        cpus: 4,
        frames,
        costs: fs::costs::EXT4,
        record: Record::NONE,
        ..Options::default()
    });
    let params = model::by_name("p0_ssd").unwrap();
    let surroundings = Surroundings {
        host: lab.host(),
        stamps: lab.stamps(),
        media: Media::shared(params.volatile_cache()),
        layout: fs::by_name("ext4").unwrap().layout(params.span(), 1),
        stable_writes: false,
    };
    let disk = Arc::new(model::build(&params, surroundings));
    let info = disk.info();
    let id = lab.add_device(disk);
    let env = Arc::clone(lab.env());
    let stop = stop.clone();
    let ended = lab.run(move |task| {
        let options = mm::Options::new(frames, 4);
        let cache = kernel::build(env, options, kernel::Parts::default()).unwrap();
        let device = cache.add_device(task, id, info, DeviceOptions::default());
        let objects = Arc::new(Numbered::from(ObjectId(7)));
        let folder = Arc::new(Folder::new(&cache, device.unwrap(), objects));
        run(task, &cache, &folder, &stop, plan)
    });
    (ended.unwrap(), lab)
}

/// A source of 8 MiB at 16 MiB/s, and copies until there are more than 30 MiB.
const LARGE: LargeDd = LargeDd {
    block: Bytes(128 << 10),
    source: Bytes(8 << 20),
    rate: Some(16 << 20),
    total: Bytes(30 << 20),
};

/// Each of three tasks makes four files of 100 KiB, five times over: 60 files of 25 pages.
const MARK: FsMark = FsMark {
    files_per_loop: 4,
    loops: 5,
    file: Bytes(100 << 10),
    block: Bytes(16 << 10),
};
const MARKERS: u32 = 3;

fn marks(folder: &Arc<Folder>, loops: &[u32]) -> Vec<Work> {
    let barrier = Arc::new(Barrier::of(u32::try_from(loops.len()).unwrap()));
    let mark = |loops: &u32| {
        let options = FsMark {
            loops: *loops,
            ..MARK
        };
        let (folder, barrier) = (Arc::clone(folder), Arc::clone(&barrier));
        Work::new(move |task, cache, run| {
            workload::fs_mark(task, cache, (&*folder, None, &*barrier), &options, run)
        })
    };
    loops.iter().map(mark).collect()
}

fn large_dd(folder: &Arc<Folder>) -> Work {
    let folder = Arc::clone(folder);
    Work::new(move |task, cache, run| workload::large_dd(task, cache, &folder, &LARGE, run))
}

fn check_large_dd(ended: &Ended) {
    let report = &ended.reports[0];
    assert!(report.complete && report.failure.is_none(), "{report:?}");
    // The source and three copies: with two, there are fewer bytes than asked for.
    assert_eq!(report.bytes, LARGE.bytes());
    assert_eq!(LARGE.bytes(), Bytes(32 << 20));
    let names: Vec<_> = report.parts.iter().map(|part| part.name).collect();
    assert_eq!(names, ["download", "copy", "delete"]);
    let parts: Nanos = report.parts.iter().map(|part| part.took).sum();
    // On threads, time passes between the job's beginning and the first part's.
    assert!(parts <= report.elapsed, "{report:?}");
    assert!(report.elapsed < parts + Nanos::millis(100), "{report:?}");
    assert!(report.parts[0].took >= Nanos::millis(500), "{report:?}");
    assert_eq!((ended.files, ended.stats.cached), (0, Pages::ZERO));
}

fn check_fs_mark(ended: &Ended) {
    let mut rounds: Vec<_> = Vec::new();
    for report in &ended.reports {
        assert!(report.complete && report.failure.is_none(), "{report:?}");
        assert_eq!((report.passes, report.bytes), (5, Bytes(20 * (100 << 10))));
        assert_eq!(report.latencies.count(), 20 * 7);
        rounds.extend_from_slice(&report.samples);
    }
    assert_eq!((ended.files, ended.stats.cached), (60, Pages(60 * 25)));
    // One sample a round, no matter which task came last; the rounds fill the time without a gap.
    rounds.sort_by_key(|sample| sample.at);
    assert_eq!(rounds.len(), 5);
    for (one, next) in rounds.iter().zip(&rounds[1..]) {
        assert_eq!(one.at + next.took, next.at, "{rounds:?}");
    }
}

#[test]
fn a_source_comes_in_at_its_rate_and_is_copied_and_removed() {
    let (ended, lab) = in_lab(FRAMES, &Stop::default(), |folder| vec![large_dd(folder)]);
    check_large_dd(&ended);
    let download = ended.reports[0].parts[0].took;
    assert!(download < Nanos::millis(520), "{download:?}");
    // Each page of a copy: eight reads and eight writes of 512 bytes; and each block of the source
    // one write.
    let (pages, blocks) = (3 * 2048, 64);
    assert_eq!(lab.units(Kind::Call), 16 * pages + blocks);
    // The memory holds half of it: the copies pushed the source out, or each other.
    assert!(ended.stats.reclaimed > Pages(4_000), "{:?}", ended.stats);
}

#[test]
fn small_files_are_made_in_rounds_and_stay_in_the_cache() {
    let (ended, lab) = in_lab(FRAMES, &Stop::default(), |folder| {
        marks(folder, &[MARK.loops; MARKERS as usize])
    });
    check_fs_mark(&ended);
    // Seven writes a file, and two calls to make and close it.
    assert_eq!(lab.units(Kind::Call), 60 * 9);
}

/// 4000 files of 16 KiB in 4 MiB, where their inodes alone do not fit: reclaim takes pages, and
/// their heads with them, and inodes go.
#[test]
fn inodes_go_and_each_page_in_memory_has_a_head() {
    for rule in [
        InodeRule::LINUX_3_0,
        InodeRule::LINUX_5_0,
        InodeRule::LINUX_6_12,
    ] {
        let (ended, _) = in_lab(1_024, &Stop::default(), move |folder| {
            let (barrier, folder) = (Barrier::of(1), Arc::clone(folder));
            let options = FsMark {
                files_per_loop: 100,
                loops: 40,
                file: Bytes(16 << 10),
                ..MARK
            };
            vec![Work::new(move |task, cache, run| {
                let inodes = Inodes::new(task, cache, rule, 1).unwrap();
                let around = (&*folder, Some(&*inodes), &barrier);
                let report = workload::fs_mark(task, cache, around, &options, run);
                assert_eq!(inodes.heads(task), cache.stats().cached.0, "{}", rule.name);
                assert!(cache.vmstat().get(Item::SlabFreed) > 0, "{}", rule.name);
                let cut = folder.make(task).unwrap().file;
                inodes.made(task, &cut).unwrap();
                let size = Bytes(16 << 12);
                inodes.will_write(task, &cut, Bytes::ZERO, size).unwrap();
                let mut writer = cache.writer();
                let data = vec![Sector(1); 16 << 3];
                cut.write(task, &mut writer, Bytes::ZERO, &data).unwrap();
                cache.retire(task, writer);
                inodes.closed(task, &cut);
                assert_eq!(inodes.heads(task), cache.stats().cached.0, "{}", rule.name);
                cut.truncate(task, Bytes::ZERO).unwrap();
                assert_eq!(inodes.heads(task), cache.stats().cached.0, "a truncation");
                assert!(cache.drop_caches(task) > Pages::ZERO);
                assert_eq!(inodes.heads(task), cache.stats().cached.0, "all there is");
                inodes.clear(task);
                assert_eq!(cache.slab_pages().all(), Pages::ZERO);
                report
            })]
        });
        let report = &ended.reports[0];
        assert!(report.complete && report.failure.is_none(), "{report:?}");
    }
}

#[test]
fn more_files_are_made_than_fit_the_memory() {
    let (ended, _) = in_lab(1_024, &Stop::default(), |folder| {
        marks(folder, &[5 * MARK.loops; MARKERS as usize])
    });
    let made: u64 = ended.reports.iter().map(|report| report.bytes.0).sum();
    assert_eq!((ended.files, made), (300, 300 * (100 << 10)));
    assert!(ended.stats.reclaimed > Pages(6_000), "{:?}", ended.stats);
}

#[test]
fn whoever_is_done_holds_up_nobody() {
    let (ended, _) = in_lab(FRAMES, &Stop::default(), |folder| marks(folder, &[1, 5, 3]));
    let passes: Vec<_> = ended.reports.iter().map(|report| report.passes).collect();
    assert_eq!(passes, [1, 5, 3]);
    assert!(ended.reports.iter().all(|report| report.complete));
}

#[test]
fn a_stopped_job_says_so_and_its_files_go_unwritten() {
    let stop = Stop::default();
    stop.raise();
    let (ended, _) = in_lab(FRAMES, &stop, |folder| {
        let mut plan = marks(folder, &[5, 5]);
        plan.push(large_dd(folder));
        plan
    });
    for report in &ended.reports {
        assert!(!report.complete && report.failure.is_none(), "{report:?}");
    }
    assert_eq!(ended.stats.written, Pages::ZERO);
}

#[test]
fn time_passes_in_rounds_that_cost_nothing() {
    let mut lab = Lab::new(Options {
        frames: FRAMES,
        costs: CostTable::zero(),
        ..Options::default()
    });
    let params = model::by_name("null").unwrap();
    let surroundings = Surroundings {
        host: lab.host(),
        stamps: lab.stamps(),
        media: Media::shared(params.volatile_cache()),
        layout: fs::Layout::plain(),
        stable_writes: false,
    };
    let disk = Arc::new(model::build(&params, surroundings));
    let info = disk.info();
    let id = lab.add_device(disk);
    let env = Arc::clone(lab.env());
    let ended = lab.run(move |task| {
        let cache = Cache::new(env, mm::Options::new(FRAMES, 4)).unwrap();
        let device = cache.add_device(task, id, info, DeviceOptions::default());
        let objects = Arc::new(Numbered::from(ObjectId(0)));
        let folder = Arc::new(Folder::new(&cache, device.unwrap(), objects));
        let plan = |folder: &_| marks(folder, &[5, 5, 5]);
        run(task, &cache, &folder, &Stop::default(), plan)
    });
    check_fs_mark(&ended.unwrap());
}

/// Files without names, of which there are `most`.
struct Unnamed {
    dir: PathBuf,
    disk: Arc<FileDevice>,
    left: std::sync::Mutex<u32>,
}

impl Objects for Unnamed {
    fn make(&self) -> Result<ObjectId, String> {
        let mut left = self.left.lock().unwrap();
        *left = left
            .checked_sub(1)
            .ok_or_else(|| "the folder is full".to_owned())?;
        let path = self.dir.join("next");
        let options = OpenOptions {
            create: true,
            truncate: true,
            ..OpenOptions::default()
        };
        let opened = self.disk.open(&path, options);
        std::fs::remove_file(&path).unwrap();
        opened
            .map(|(object, _)| object)
            .map_err(|error| error.to_string())
    }

    fn remove(&self, object: ObjectId) {
        self.disk.close(object);
    }
}

/// On threads and files, of which at most `most` can be made.
fn live(name: &str, most: u32, plan: impl FnOnce(&Arc<Folder>) -> Vec<Work>) -> Ended {
    let dir = Dir::new(name);
    let env = ThreadEnv::start(os::Options::new(FRAMES)).unwrap();
    let disk = FileDevice::new(&env).unwrap();
    let id = env.add_device(Arc::clone(&disk) as Arc<dyn Device>);
    let cache = Cache::new(env.clone(), mm::Options::new(FRAMES, 4)).unwrap();
    let mut task = env.enter();
    let device = cache.add_device(&mut task, id, disk.info(), DeviceOptions::default());
    let objects = Arc::new(Unnamed {
        dir: dir.0.clone(),
        disk,
        left: std::sync::Mutex::new(most),
    });
    let folder = Arc::new(Folder::new(&cache, device.unwrap(), objects));
    let ended = run(&mut task, &cache, &folder, &Stop::default(), plan);
    drop(task);
    env.shutdown();
    assert_eq!(env.panics(), 0);
    ended
}

#[test]
fn a_source_is_copied_and_removed_on_files() {
    let ended = live("large-dd", 100, |folder| vec![large_dd(folder)]);
    check_large_dd(&ended);
}

#[test]
fn small_files_are_made_on_threads() {
    let ended = live("fs-mark", 100, |folder| {
        marks(folder, &[MARK.loops; MARKERS as usize])
    });
    check_fs_mark(&ended);
}

#[test]
fn a_file_that_cannot_be_made_fails_its_job_and_no_other_waits_for_it() {
    let ended = live("full", 30, |folder| {
        marks(folder, &[MARK.loops; MARKERS as usize])
    });
    let full = Failure::NoFile("the folder is full".to_owned());
    for report in &ended.reports {
        assert_eq!(report.failure, Some(full.clone()), "{report:?}");
    }
    assert_eq!(ended.files, 30);
    let said = ended.reports[0].failure.as_ref().unwrap().to_string();
    assert_eq!(said, "a file could not be made: the folder is full");
}
