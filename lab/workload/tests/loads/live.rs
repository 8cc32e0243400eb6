//! The same loads on threads, real memory and files.

use std::sync::Arc;

use env::Device;
use mm::{Cache, DeviceOptions, Item};
use os::{FileDevice, OpenOptions, ThreadEnv};
use policy::reclaim::{ReclaimLaw, Tunables};
use policy::units::{Bytes, Nanos, Pages};
use workload::{Bystander, Hog, Job, Mapper, Phase, Phases, RandWrite, Report, Stop, Work};

use crate::common::Dir;

/// Frames: 16 MiB.
const FRAMES: u32 = 4_096;
/// Of each hog; two of them do not fit.
const REGION: Pages = Pages(2_200);
/// Time that each job runs.
const LASTS: Option<Nanos> = Some(Nanos::millis(1_500));
/// Beyond that, for what is under way: far above what any law lets one wait.
const OVERRUN: Nanos = Nanos::secs(20);

fn run(law: ReclaimLaw) -> (Vec<Report>, mm::Vmstat) {
    let dir = Dir::new(&format!("loads-{law:?}"));
    let env = ThreadEnv::start(os::Options::new(FRAMES)).unwrap();
    let files = FileDevice::new(&env).unwrap();
    let id = env.add_device(Arc::clone(&files) as Arc<dyn Device>);
    let mut options = mm::Options::new(FRAMES, 4);
    options.reclaim = Tunables::of(law, 250);
    options.pins_max = 256;
    let cache = Cache::new(env.clone(), options).unwrap();
    let mut task = env.enter();
    let task = &mut task;
    let device = cache
        .add_device(task, id, files.info(), DeviceOptions::default())
        .unwrap();
    let open = |name: &str| {
        let path = dir.0.join(name);
        drop(std::fs::File::create_new(&path).unwrap());
        files.open(&path, OpenOptions::default()).unwrap().0
    };
    let swap = open("swap");
    let pages = Pages(4 * u64::from(FRAMES));
    cache.add_swap(task, device, swap, pages).unwrap();
    let written: Vec<_> = (0..3)
        .map(|at| {
            let object = open(&format!("file-{at}"));
            cache.open(task, device, object, Bytes::ZERO).unwrap()
        })
        .collect();
    let hog = || {
        let options = Hog {
            for_at_most: LASTS,
            ..Hog::of(REGION)
        };
        Work::new(move |task, cache, run| workload::hog(task, cache, &options, run))
    };
    let writer = RandWrite {
        block: Bytes(128 << 10),
        for_at_most: LASTS,
        ..RandWrite::stutterp(Bytes(4 << 20))
    };
    let phases = Phases {
        first: Phase::File,
        each: Nanos::millis(200),
        anon: Pages(512),
        file: Bytes(2 << 20),
        pinned: Pages(128),
        block: Bytes(128 << 10),
        for_at_most: LASTS,
    };
    let mapper = Mapper {
        for_at_most: LASTS,
        ..Mapper::stutterp(Pages(512))
    };
    let bystander = Bystander {
        for_at_most: LASTS,
        ..Bystander::every_10_ms(Pages(16))
    };
    let (random, changing) = (written[..2].to_vec(), Arc::clone(&written[2]));
    let plan = [
        ("hog", hog()),
        ("hog", hog()),
        (
            "mapper",
            Work::new(move |task, cache, run| workload::mapper(task, cache, &mapper, run)),
        ),
        (
            "bystander",
            Work::new(move |task, cache, run| workload::bystander(task, cache, &bystander, run)),
        ),
        (
            "writer",
            Work::new(move |task, cache, run| {
                workload::rand_write(task, cache, &random, &writer, run)
            }),
        ),
        (
            "phases",
            Work::new(move |task, cache, run| {
                workload::phases(task, cache, &changing, &phases, run)
            }),
        ),
    ];
    let plan = plan.map(|(name, work)| Job {
        name: name.to_owned(),
        start_after: Nanos::ZERO,
        work,
    });
    let reports = workload::run(task, &cache, plan.into(), &Stop::default());
    let vmstat = cache.vmstat();
    cache.shutdown(task).unwrap();
    env.shutdown();
    assert_eq!(env.panics(), 0);
    (reports, vmstat)
}

fn check(law: ReclaimLaw) {
    let (reports, vmstat) = run(law);
    for report in &reports {
        assert!(
            report.failure.is_none() && report.complete,
            "{law:?}: {report:?}"
        );
        assert!(
            report.elapsed < LASTS.unwrap() + OVERRUN,
            "{law:?}: {report:?}"
        );
    }
    let [first, second, mapper, bystander, writer, phases] = &reports[..] else {
        unreachable!("six jobs were planned")
    };
    // On a slow disk they may not have come round; but they went on.
    let touched = first.touched + second.touched;
    assert!(touched > Pages(u64::from(FRAMES / 4)), "{touched:?}");
    assert_eq!(mapper.samples.len() as u64, mapper.passes);
    assert!(mapper.passes > 0 && !bystander.samples.is_empty() && phases.passes > 0);
    assert!(writer.bytes > Bytes::ZERO && phases.bytes > Bytes::ZERO);
    // Each goes through its region in order: pages touched again are counted again.
    let there = first.touched.min(REGION) + second.touched.min(REGION);
    assert!(
        there <= Pages(u64::from(FRAMES)) || vmstat.get(Item::Pswpout) > 0,
        "{there:?} lie in {FRAMES} frames: {vmstat:?}"
    );
    assert_eq!(vmstat.get(Item::NrPinned), 0);
}

#[test]
fn the_loads_run_on_threads_under_the_law_of_the_paper() {
    check(history::reclaim::LINUX_5_16_RC1);
}

#[test]
fn the_loads_run_on_threads_under_ours() {
    check(ReclaimLaw::TIDEGATE);
}
