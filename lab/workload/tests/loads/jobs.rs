//! The loads of stutterp in the lab, small: each does what it says, ends when it should, and where
//! its time went adds up.

use std::sync::Arc;

use env::{Device, ObjectId};
use mm::{Cache, DeviceOptions, File, Item, Vmstat};
use policy::reclaim::{ReclaimLaw, Tunables};
use policy::units::{Bytes, Nanos, Pages};
use workload::{
    Bystander, Hog, Job, Mapper, Phase, Phases, Pinner, RandRead, RandWrite, Report, Stop, Work,
};
use world::fs;
use world::media::Media;
use world::model::{self, Surroundings};
use world::{CostTable, EventKind, Lab, Options, Record, throttles};

/// The machine is smaller than one of 8 GiB by this.
const SHRINK: u32 = 128;
/// Frames: 64 MiB.
const FRAMES: u32 = 16_384;
const SWAP: ObjectId = ObjectId(9_999);

struct Ended {
    reports: Vec<Report>,
    vmstat: Vmstat,
    lab: Lab,
}

type Files = Vec<Arc<File>>;

/// Runs the jobs that `plan` makes of some empty files on a machine like p0's.
fn run(
    law: ReclaimLaw,
    files: u32,
    plan: impl FnOnce(Files) -> Vec<(&'static str, Work)> + Send + 'static,
) -> Ended {
    let reclaim = Tunables::of(law, 250);
    let costs = if reclaim.allocates_singly() {
        fs::costs::P0.with_frames_alone()
    } else {
        fs::costs::P0
    };
    let mut lab = Lab::new(Options {
        cpus: 12,
        hz: 250,
        seed: 1,
        frames: FRAMES,
        costs: costs.shrunk(SHRINK),
        record: Record::NONE.with(EventKind::Throttled),
    });
    let params = model::by_name("p0_ssd")
        .unwrap()
        .scaled_whole(u64::from(SHRINK));
    let surroundings = Surroundings {
        host: lab.host(),
        stamps: lab.stamps(),
        media: Media::shared(params.volatile_cache()),
        layout: fs::by_name("p0")
            .unwrap()
            .layout(params.span(), u64::from(SHRINK)),
        stable_writes: false,
    };
    let disk = Arc::new(model::build(&params, surroundings));
    let info = disk.info();
    let id = lab.add_device(disk);
    let env = Arc::clone(lab.env());
    let mut options = mm::Options::new(FRAMES, 12);
    options.reclaim = reclaim;
    options.pins_max = FRAMES / 4;
    if law != ReclaimLaw::TIDEGATE {
        options.dirty.law = history::dirty::RATE_BASED;
        options.dirty.hz = 250;
    }
    let (reports, vmstat) = lab
        .run(move |task| {
            let cache = kernel::build(env, options, kernel::Parts::default()).unwrap();
            let device = cache
                .add_device(task, id, info, DeviceOptions::default())
                .unwrap();
            let swap = Pages(2 * u64::from(FRAMES));
            cache.add_swap(task, device, SWAP, swap).unwrap();
            let files: Files = (0..files)
                .map(|at| cache.open(task, device, ObjectId(at), Bytes::ZERO).unwrap())
                .collect();
            let plan = plan(files)
                .into_iter()
                .map(|(name, work)| Job {
                    name: name.to_owned(),
                    start_after: Nanos::ZERO,
                    work,
                })
                .collect();
            let reports = workload::run(task, &cache, plan, &Stop::default());
            let vmstat = cache.vmstat();
            cache.shutdown(task).unwrap();
            // Before, a reclaimer may be at work.
            assert_eq!(cache.vmstat().broken_sum(), None);
            (reports, vmstat)
        })
        .unwrap();
    for report in lab.tasks() {
        let ended = report.ended.expect("all tasks have ended");
        assert_eq!(report.total(), ended - report.started, "{report:?}");
        assert_eq!(report.unnamed, Nanos::ZERO, "{report:?}");
    }
    Ended {
        reports,
        vmstat,
        lab,
    }
}

const A_MINUTE: Option<Nanos> = Some(Nanos::secs(60));

fn hog(pages: u64) -> Work {
    let options = Hog {
        for_at_most: A_MINUTE,
        ..Hog::of(Pages(pages))
    };
    Work::new(move |task, cache, run| workload::hog(task, cache, &options, run))
}

fn mapper() -> Work {
    let options = Mapper {
        for_at_most: A_MINUTE,
        ..Mapper::stutterp(Pages(Mapper::PAGES.0 / u64::from(SHRINK)))
    };
    Work::new(move |task, cache, run| workload::mapper(task, cache, &options, run))
}

fn writer(files: Files, size: Bytes) -> Work {
    let options = RandWrite {
        block: Bytes(128 << 10),
        for_at_most: A_MINUTE,
        ..RandWrite::stutterp(size)
    };
    Work::new(move |task, cache, run| workload::rand_write(task, cache, &files, &options, run))
}

fn pinner(pages: u64, file: &Arc<File>) -> Work {
    let options = Pinner {
        pages: Pages(pages),
        for_at_most: A_MINUTE,
    };
    let file = Arc::clone(file);
    Work::new(move |task, _, run| workload::pinner(task, &file, &options, run))
}

#[test]
fn alone_the_latency_worker_takes_what_was_published() {
    let ended = run(history::reclaim::LINUX_5_16_RC1, 0, |_| {
        vec![("mapper", mapper())]
    });
    let report = &ended.reports[0];
    assert!(report.complete && report.failure.is_none(), "{report:?}");
    // 0.92 to 0.96 us a page at full size, and 5 ms of rest: fault, frame, zeroing, store and
    // unmap, nothing twice.
    let mean = report.latencies.mean_floor();
    let published = Nanos(Mapper::PAGES.0 * 920)..=Nanos(Mapper::PAGES.0 * 960);
    assert!(published.contains(&mean), "{mean:?} of {published:?}");
    assert_eq!(report.samples.len() as u64, report.passes);
    assert!(
        (1_600..=1_720).contains(&report.passes),
        "{}",
        report.passes
    );
    assert_eq!(report.touched.0, report.passes * 256);
    assert_eq!(report.faults, report.touched, "every page is fresh");
    assert_eq!(report.major, Pages::ZERO);
    let ends: Vec<_> = report.samples.iter().map(|sample| sample.at).collect();
    assert!(ends.is_sorted());
    assert_eq!(ended.vmstat.get(Item::Pswpout), 0);
}

#[test]
fn a_hog_that_fits_only_uses_its_cpu_and_one_that_does_not_swaps() {
    let small = run(history::reclaim::LINUX_5_16_RC1, 0, |_| {
        vec![("hog", hog(4_096))]
    });
    let report = &small.reports[0];
    assert_eq!(report.faults, Pages(4_096));
    assert!(report.passes > 900, "{}", report.passes);
    assert_eq!(report.latencies.count(), report.passes);
    let account = small
        .lab
        .tasks()
        .into_iter()
        .find(|task| task.name == "hog");
    let account = account.unwrap();
    assert!(account.user > Nanos::secs(55), "{account:?}");

    let large = run(history::reclaim::LINUX_5_16_RC1, 0, |_| {
        vec![("hog", hog(u64::from(FRAMES) * 5 / 4))]
    });
    let report = &large.reports[0];
    assert!(report.complete, "{report:?}");
    assert!(report.major > Pages(300), "{report:?}");
    assert!(large.vmstat.get(Item::Pswpout) > 1_000);
}

#[test]
fn random_readers_read_what_is_there_and_writers_reach_every_block() {
    let size = Bytes(1 << 20);
    let ended = run(ReclaimLaw::TIDEGATE, 5, move |files| {
        let read = RandRead {
            block: Bytes(128 << 10),
            switch_every: 16,
            for_at_most: A_MINUTE,
        };
        let empty = vec![Arc::clone(&files[4])];
        let reader = Work::new(move |task, _, run| workload::rand_read(task, &empty, &read, run));
        vec![
            ("writer", writer(files[..4].to_vec(), size)),
            ("reader", reader),
        ]
    });
    let [writer, reader] = &ended.reports[..] else {
        unreachable!("two jobs were planned")
    };
    assert!(writer.complete, "{writer:?}");
    // Four files of eight blocks.
    assert!(writer.passes >= 1);
    assert!(writer.bytes >= Bytes(4 << 20));
    assert!(
        matches!(reader.failure, Some(workload::Failure::ShortRead { .. })),
        "an empty file is a typed error, not a loop: {reader:?}"
    );
}

#[test]
fn a_load_that_changes_goes_round_its_phases() {
    let ended = run(ReclaimLaw::TIDEGATE, 1, |files| {
        let phases = Phases {
            first: Phase::File,
            each: Nanos::secs(6),
            anon: Pages(8_000),
            file: Bytes(32 << 20),
            pinned: Pages(1_000_000),
            block: Bytes(128 << 10),
            for_at_most: A_MINUTE,
        };
        let work = Work::new(move |task, cache, run| {
            workload::phases(task, cache, &files[0], &phases, run)
        });
        vec![("phases", work)]
    });
    let report = &ended.reports[0];
    assert!(report.complete, "{report:?}");
    assert!((8..=10).contains(&report.passes), "{}", report.passes);
    assert!(report.touched > Pages(8_000) && report.bytes > Bytes(1 << 20));
    assert!(
        report.refused > 0,
        "more pins were asked for than there are"
    );
    assert_eq!(ended.vmstat.get(Item::NrPinned), 0, "all were given back");
    assert!(ended.vmstat.get(Item::NrActiveAnon) + ended.vmstat.get(Item::NrInactiveAnon) == 0);
}

#[test]
fn what_a_pinner_holds_is_scanned_again_and_again_and_never_freed() {
    const PAGES: u64 = 64;
    let scanned = |held: bool| {
        let ended = run(history::reclaim::LINUX_5_16_RC1, 1, move |files| {
            let mut plan = vec![("hog", hog(u64::from(FRAMES) * 3 / 2))];
            if held {
                plan.push(("pinner", pinner(PAGES, &files[0])));
            }
            plan
        });
        for report in &ended.reports {
            assert!(report.complete && report.refused == 0, "{report:?}");
        }
        assert_eq!(ended.vmstat.get(Item::NrPinned), 0, "all were given back");
        assert_eq!(ended.vmstat.get(Item::PgstealFile), 0, "none was freed");
        ended.vmstat.get(Item::PgscanFile)
    };
    assert_eq!(scanned(false), 0, "a hog has no pages of files");
    let times = scanned(true) / PAGES;
    assert!(times > 10, "each was looked at {times} times");
}

/// Pinned pages are many beside what a pass is to free, and none of them is available: the
/// background looks at others.
#[test]
fn pins_do_not_keep_the_background_reclaimer_from_anonymous_memory() {
    let ended = run(ReclaimLaw::TIDEGATE, 1, |files| {
        vec![
            ("pinner", pinner(u64::from(FRAMES) / 5, &files[0])),
            ("hog", hog(u64::from(FRAMES))),
        ]
    });
    assert!(ended.reports.iter().all(|report| report.complete));
    let [background, direct] =
        [Item::PgstealKswapd, Item::PgstealDirect].map(|item| ended.vmstat.get(item));
    assert!(
        background > 10 * direct,
        "{background} pages, others {direct}"
    );
}

/// Two hogs, a writer, the latency worker and a bystander on memory that does not hold them.
fn stutterp(law: ReclaimLaw) -> Ended {
    let all = Bytes::mib(u64::from(FRAMES) / 256);
    run(law, 1, move |files| {
        let bystander = Bystander {
            for_at_most: A_MINUTE,
            ..Bystander::every_10_ms(Pages(64))
        };
        let bystander =
            Work::new(move |task, cache, run| workload::bystander(task, cache, &bystander, run));
        vec![
            ("mapper", mapper()),
            ("bystander", bystander),
            ("hog", hog(u64::from(FRAMES) * 48 / 100)),
            ("hog", hog(u64::from(FRAMES) * 48 / 100)),
            ("writer", writer(files, Bytes(all.0 * 24 / 100))),
        ]
    })
}

#[test]
fn all_of_them_at_once_go_on_under_every_law() {
    for law in [
        history::reclaim::LINUX_5_15,
        history::reclaim::LINUX_5_15_PATCH1,
        history::reclaim::LINUX_5_16_RC1,
        history::reclaim::LINUX_5_16,
        ReclaimLaw::TIDEGATE,
    ] {
        let ended = stutterp(law);
        for report in &ended.reports {
            assert!(report.failure.is_none(), "{law:?}: {report:?}");
            assert!(report.complete, "{law:?}: {report:?}");
        }
        let [mapper, bystander, first, second, writer] = &ended.reports[..] else {
            unreachable!("five jobs were planned")
        };
        assert!(mapper.passes > 0 && bystander.samples.len() > 10, "{law:?}");
        assert!(first.touched + second.touched > Pages(u64::from(FRAMES)));
        assert!(writer.bytes > Bytes(4 << 20), "{law:?}: {writer:?}");
        let events = ended.lab.take_events();
        let sums = throttles(&events);
        let asleep: u64 = sums.values().map(|sum| sum.events).sum();
        assert_eq!(asleep, events.len() as u64, "{law:?}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let hash = || stutterp(history::reclaim::LINUX_5_16_RC1).lab.trace_hash();
    assert_eq!(hash(), hash());
}

#[test]
fn where_nothing_costs_anything_time_still_passes() {
    // A hog's round then takes no time, and only its rest ends it.
    let mut lab = Lab::new(Options {
        frames: 4_096,
        costs: CostTable::zero(),
        ..Options::default()
    });
    let env = Arc::clone(lab.env());
    let passes = lab
        .run(move |task| {
            let cache = Cache::new(env, mm::Options::new(4_096, 2)).unwrap();
            let options = Hog {
                for_at_most: Some(Nanos::millis(1)),
                ..Hog::of(Pages(64))
            };
            let job = Job {
                name: "hog".to_owned(),
                start_after: Nanos::ZERO,
                work: Work::new(move |task, cache, run| workload::hog(task, cache, &options, run)),
            };
            let reports = workload::run(task, &cache, vec![job], &Stop::default());
            cache.shutdown(task).unwrap();
            reports[0].passes
        })
        .unwrap();
    assert_eq!(passes, 1_000);
}
