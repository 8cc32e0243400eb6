//! Reclaim in the lab: anonymous memory and pages of files compete, under each law of throttling.
//! The sums hold, every sleep ends by an event or a counted timeout, and the task that must not be
//! held up is not.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{Disk, data};
use env::{Cause, Device, Event, ObjectId, Task, TaskId, Wakeup};
use mm::{DeviceOptions, Error, Item, Options, Vmstat};
use policy::place::distance::Distances;
use policy::place::machine::{Machine, Node};
use policy::reclaim::{Reason, Reasons, ReclaimLaw, Tunables};
use policy::units::{Bytes, Instant, Nanos, Pages};
use world::fs::costs::P0;
use world::record::EventKind;
use world::{Lab, LabEnv, Options as LabOptions, Record, Recorded, throttles};

const LAWS: [ReclaimLaw; 7] = [
    history::reclaim::LINUX_3_0,
    history::reclaim::LINUX_5_15,
    history::reclaim::LINUX_5_15_PATCH1,
    history::reclaim::LINUX_5_16_RC1,
    history::reclaim::LINUX_5_16,
    history::reclaim::LINUX_6_12_MGLRU,
    ReclaimLaw::TIDEGATE,
];
const HZ: u32 = 250;
/// 64 MiB; one page stands for 32.
const FRAMES: u32 = 16384;
const SHRINK: u32 = 32;
const MEMORY: Pages = Pages(FRAMES as u64);

/// A small stutterp: hogs over more memory than there is, writers of files, a task that allocates
/// now and then.
struct Pressure {
    reclaim: Tunables,
    machine: Machine,
    hogs: u32,
    writers: u32,
    /// Pages of the hogs in all, and of the files.
    anon: u32,
    file: u32,
    /// The task that allocates now and then is exempt.
    exempt: bool,
    seconds: u64,
}

struct Seen {
    vmstat: Vmstat,
    events: Vec<Recorded>,
    bystander: TaskId,
    /// The longest time that its allocation of 16 pages took.
    longest: Nanos,
    touched: u64,
}

impl Pressure {
    fn of(law: ReclaimLaw) -> Self {
        Self {
            reclaim: Tunables::of(law, HZ),
            machine: Machine::of_one_node(MEMORY),
            hogs: 4,
            writers: 3,
            anon: FRAMES,
            file: FRAMES / 5,
            exempt: false,
            seconds: 40,
        }
    }

    fn run(self) -> Seen {
        let record = Record::NONE
            .with(EventKind::Throttled)
            .with(EventKind::Waited)
            .with(EventKind::DirectReclaim)
            .with(EventKind::Reclaimed)
            .with(EventKind::Background);
        let mut lab = Lab::new(LabOptions {
            cpus: 4,
            hz: HZ,
            seed: 7,
            frames: FRAMES,
            costs: P0.shrunk(SHRINK),
            record,
        });
        let rate = (200 << 20) / u64::from(SHRINK);
        let disk = Disk::new(&lab, rate);
        disk.keep(false);
        let info = disk.info();
        let id = lab.add_device(disk as Arc<dyn Device>);
        let env = Arc::clone(lab.env());
        let mut options = Options::new(FRAMES, 4);
        options.dirty.law = history::dirty::RATE_BASED;
        options.dirty.hz = HZ;
        options.reclaim = self.reclaim;
        if self.reclaim.law != ReclaimLaw::TIDEGATE {
            options.place = history::place::LINUX_6_12;
        }
        options.machine = Some(self.machine.clone());
        let end = Instant::ZERO + Nanos::secs(self.seconds);
        let (vmstat, bystander, longest, touched) = lab
            .run(move |task| self.body(task, env, options, id, info, end))
            .unwrap();
        Seen {
            vmstat,
            events: lab.take_events(),
            bystander,
            longest,
            touched,
        }
    }

    fn body(
        self,
        task: &mut Task<'_>,
        env: Arc<LabEnv>,
        options: Options,
        id: env::DeviceId,
        info: env::DeviceInfo,
        end: Instant,
    ) -> (Vmstat, TaskId, Nanos, u64) {
        let cache = kernel::build(env.clone(), options, kernel::Parts::default()).unwrap();
        let device = cache
            .add_device(task, id, info, DeviceOptions::default())
            .unwrap();
        cache
            .add_swap(task, device, ObjectId(99), Pages(u64::from(FRAMES) * 4))
            .unwrap();
        let mut jobs = Vec::new();
        for hog in 0..self.hogs {
            let cache = Arc::clone(&cache);
            let pages = self.anon / self.hogs;
            let job = env::spawn(&*env, &format!("hog-{hog}"), move |task| {
                let region = cache.spill(task, Pages(u64::from(pages))).unwrap();
                let mut touched = 0;
                while task.now() < end {
                    for first in (0..pages).step_by(64) {
                        let count = (pages - first).min(64);
                        match region.touch(task, first, count) {
                            Ok(run) => touched += run.pages.0,
                            Err(Error::OutOfMemory { .. }) => panic!("out of memory"),
                            Err(error) => panic!("{error}"),
                        }
                        task.did(env::Work::User, 10_000);
                        if task.now() >= end {
                            break;
                        }
                    }
                }
                touched
            });
            jobs.push(job);
        }
        for writer in 0..self.writers {
            let len = u64::from(self.file / self.writers) << 12;
            let file = cache
                .open(task, device, ObjectId(1 + writer), Bytes(len))
                .unwrap();
            file.assume_allocated(Bytes(len));
            let cache = Arc::clone(&cache);
            let job = env::spawn(&*env, &format!("writer-{writer}"), move |task| {
                let mut writer = cache.writer();
                let blocks = len >> 16;
                while task.now() < end {
                    let block = task.random() % blocks;
                    let first = u32::try_from(block << 4).unwrap();
                    let offset = Bytes(block << 16);
                    file.write(task, &mut writer, offset, &data(first, 16, 1))
                        .unwrap();
                }
                0
            });
            jobs.push(job);
        }
        let exempt = self.exempt;
        let own = Arc::clone(&cache);
        let bystander = env::spawn(&*env, "bystander", move |task| {
            if exempt {
                own.exempt(task);
            }
            let region = own.spill(task, Pages(16)).unwrap();
            let mut longest = Nanos::ZERO;
            while task.now() < end {
                task.sleep(Cause::Think, Nanos::millis(20));
                let began = task.now();
                region.touch(task, 0, 16).unwrap();
                longest = longest.max(task.now().since(began));
                region.discard(task, 0, 16).unwrap();
            }
            (task.id(), longest)
        });
        let mut touched = 0;
        for job in jobs {
            touched += job.join(task).unwrap();
        }
        let (id, longest) = bystander.join(task).unwrap();
        // Writes that are on their way out end.
        task.sleep(Cause::Idle, Nanos::secs(20));
        let vmstat = cache.vmstat();
        let _ = cache.shutdown(task);
        (vmstat, id, longest, touched)
    }
}

fn check_sums(law: ReclaimLaw, seen: &Seen) {
    let stat = |item| seen.vmstat.get(item);
    assert_eq!(seen.vmstat.broken_sum(), None, "{law:?}");
    let (mut scanned, mut freed) = ([0; 2], [0; 2]);
    let mut begun: BTreeMap<TaskId, u32> = BTreeMap::new();
    let mut awake: BTreeMap<TaskId, bool> = BTreeMap::new();
    for recorded in &seen.events {
        match &recorded.event {
            Event::DirectReclaim => {
                let open = begun.entry(recorded.task).or_default();
                *open += 1;
                assert_eq!(*open, 1, "one after the other");
            }
            Event::Reclaimed {
                background,
                scanned: pages,
                freed: got,
            } => {
                scanned[usize::from(*background)] += pages.0;
                freed[usize::from(*background)] += got.0;
                if !background {
                    let open = begun.get_mut(&recorded.task).unwrap();
                    *open -= 1;
                }
            }
            Event::Background { awake: now } => {
                let before = awake.insert(recorded.task, *now).unwrap_or(false);
                assert_ne!(before, *now, "{law:?}");
            }
            Event::Throttled {
                reason,
                timeout,
                delayed,
                wakeup,
                ..
            } => {
                let slept = wakeup.is_some();
                assert!(slept || delayed.is_zero(), "{reason:?}");
                assert_ne!(*wakeup, Some(Wakeup::Cancelled));
                if *wakeup == Some(Wakeup::TimedOut) {
                    assert!(delayed >= timeout, "{reason:?} {delayed:?} {timeout:?}");
                }
            }
            _ => {}
        }
    }
    assert!(begun.values().all(|open| *open == 0), "{law:?}");
    // Trims of a zone have no event of their own.
    let trims = stat(Item::ZoneReclaimSuccess) + stat(Item::ZoneReclaimFailed);
    let direct = [stat(Item::PgscanDirect), stat(Item::PgstealDirect)];
    if trims == 0 {
        assert_eq!(direct, [scanned[0], freed[0]], "{law:?}");
    } else {
        assert!(direct[0] >= scanned[0] && direct[1] >= freed[0], "{law:?}");
    }
    assert_eq!(stat(Item::PgscanKswapd), scanned[1], "{law:?}");
    assert_eq!(stat(Item::PgstealKswapd), freed[1], "{law:?}");
    assert!(stat(Item::Pswpin) > 0 && stat(Item::Pswpout) > 0, "{law:?}");
}

fn print(law: ReclaimLaw, seen: &Seen) {
    println!(
        "{law:?}: touched {}, longest {:?}",
        seen.touched, seen.longest
    );
    for (name, value) in seen.vmstat.entries().filter(|(_, value)| *value > 0) {
        print!("{name}={value} ");
    }
    println!();
    for ((background, reason), sum) in throttles(&seen.events) {
        println!(
            "  {} {}: {} events, {} zero, {} full, {} woken, {} timed out, {:?} in all",
            if background { "background" } else { "direct" },
            reason.name(),
            sum.events,
            sum.zero,
            sum.full,
            sum.woken,
            sum.timed_out,
            sum.delayed
        );
    }
}

#[test]
fn under_every_law_pages_add_up_and_every_sleep_ends() {
    for law in LAWS {
        let seen = Pressure::of(law).run();
        print(law, &seen);
        check_sums(law, &seen);
    }
}

/// On a machine of two nodes each has its own background reclaimer, and a direct reclaimer passes
/// over both: the same sums hold.
#[test]
fn on_two_nodes_pages_add_up_and_both_are_reclaimed() {
    for law in LAWS {
        let mut pressure = Pressure::of(law);
        pressure.machine = Machine::even(MEMORY, 2, 4).unwrap();
        let seen = pressure.run();
        print(law, &seen);
        check_sums(law, &seen);
        let mut freed: BTreeMap<TaskId, u64> = BTreeMap::new();
        for recorded in &seen.events {
            if let Event::Reclaimed {
                background: true,
                freed: pages,
                ..
            } = recorded.event
            {
                *freed.entry(recorded.task).or_default() += pages.0;
            }
        }
        assert_eq!(freed.len(), 2, "{law:?}: {freed:?}");
        assert!(
            freed.values().all(|freed| *freed > 1000),
            "{law:?}: {freed:?}"
        );
    }
}

/// The difference of 3.0 from the later laws where everything is short: its reclaimers write pages
/// of files, sleep by the clock, and know no page again.
#[test]
fn reclaimers_of_3_0_write_and_sleep_by_the_clock() {
    let law = history::reclaim::LINUX_3_0;
    let seen = Pressure::of(law).run();
    print(law, &seen);
    let stat = |item| seen.vmstat.get(item);
    assert!(stat(Item::NrVmscanWrite) > stat(Item::Pswpout), "and files");
    assert_eq!(stat(Item::NrVmscanImmediateReclaim), 0);
    assert_eq!(stat(Item::WorkingsetRefaultAnon), 0);
    assert_eq!(stat(Item::WorkingsetRefaultFile), 0);
    let sums = throttles(&seen.events);
    for ((background, reason), sum) in &sums {
        assert_eq!(sum.woken, 0, "{reason:?}");
        match (reason, background) {
            (Reason::CongestionWait, _) => assert_eq!(sum.zero, 0),
            (Reason::WaitIffCongested, false) => assert_eq!(sum.zero, sum.events),
            other => panic!("{other:?}"),
        }
    }
    assert!(sums.contains_key(&(false, Reason::WaitIffCongested)));
}

/// One background reclaimer has two zones to balance. Each is reclaimed for itself, so that both
/// are used to the end.
#[test]
fn both_zones_of_a_node_are_balanced() {
    let law = history::reclaim::LINUX_3_0;
    let node = Node {
        normal: Pages(u64::from(FRAMES) * 5 / 8),
        dma32: Pages(u64::from(FRAMES) * 3 / 8),
        cpus: 4,
    };
    let mut pressure = Pressure::of(law);
    pressure.machine = Machine::new(&[node], Distances::even(1).unwrap(), None).unwrap();
    let seen = pressure.run();
    print(law, &seen);
    check_sums(law, &seen);
    // Of one node, whichever zone a frame was of.
    assert_eq!(
        seen.vmstat.get(Item::NumaHit),
        seen.vmstat.get(Item::NumaLocal)
    );
    assert_eq!(seen.vmstat.get(Item::NumaMiss), 0);
    let of_one = Pressure::of(law).run();
    let freed = |seen: &Seen| seen.vmstat.get(Item::PgstealKswapd);
    assert!(
        freed(&seen) * 2 > freed(&of_one),
        "the background works on both"
    );
    assert!(
        seen.touched * 2 > of_one.touched,
        "two are not half as good as one"
    );
}

#[test]
fn an_exempt_task_is_never_throttled() {
    for law in [
        history::reclaim::LINUX_5_16_RC1,
        history::reclaim::LINUX_5_16,
        ReclaimLaw::TIDEGATE,
    ] {
        for exempt in [false, true] {
            let seen = Pressure {
                exempt,
                ..Pressure::of(law)
            }
            .run();
            let throttled = seen.events.iter().filter(|recorded| {
                recorded.task == seen.bystander && matches!(recorded.event, Event::Throttled { .. })
            });
            let throttled = throttled.count();
            println!("{law:?} exempt {exempt}: {throttled}, {:?}", seen.longest);
            if exempt {
                assert_eq!(throttled, 0, "{law:?}");
            } else if law == history::reclaim::LINUX_5_16_RC1 {
                assert!(throttled > 0, "else this shows nothing");
            }
        }
    }
}

#[test]
fn a_reason_that_is_off_holds_nobody() {
    let mut pressure = Pressure::of(history::reclaim::LINUX_5_16_RC1);
    pressure.reclaim.off = Reasons::NONE.with(Reason::NoProgress);
    let seen = pressure.run();
    let sums = throttles(&seen.events);
    assert!(!sums.contains_key(&(false, Reason::NoProgress)));
    check_sums(history::reclaim::LINUX_5_16_RC1, &seen);
}

#[test]
fn without_wakes_only_timeouts_end_sleeps() {
    let mut pressure = Pressure::of(history::reclaim::LINUX_5_16_RC1);
    pressure.reclaim.wakes = false;
    let seen = pressure.run();
    for (which, sum) in throttles(&seen.events) {
        assert_eq!(sum.woken, 0, "{which:?}");
    }
    check_sums(history::reclaim::LINUX_5_16_RC1, &seen);
}
