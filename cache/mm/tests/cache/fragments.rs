//! A stream of small files on four nodes, as in paper p3: each is one page, and as much again in
//! objects that lie on slabs. When memory is full, slabs take pieces of pages' pageblocks.
//!
//! The small run is a test of the mechanism. The large one is at the paper's size and prints what
//! is to be compared with it: `cargo test --release -p tidegate-mm --test cache -- --ignored
//! --nocapture fragments`.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use env::{Cause, Device as _, ObjectId, Task, Work};
use history::shrink::{Answer, ShrinkRule};
use kernel::{Ask, Object, Shrink, SlabSpec, Slabs};
use mm::{Apart, Cache, DeviceOptions, Dropped, File, Item, NodeId, Options, Vmstat};
use policy::dirty::Threshold;
use policy::place::machine::Machine;
use policy::place::mobility::Mobility;
use policy::reclaim::Tunables;
use policy::reclaim::boost::BoostRule;
use policy::units::{Bytes, Instant, Nanos, PAGE_SHIFT, Pages};
use world::fs::costs::P3;
use world::{Lab, Options as LabOptions, Sector};

use crate::common::Disk;

/// 16 GiB.
const MEMORY: u32 = 1 << 22;
const NODES: u8 = 4;
const CPUS: u32 = 16;
/// Bytes a second of the disk.
const RATE: u64 = 200 << 20;
/// Pages of a directory.
const DIRECTORY: u64 = 1 << 20;

const fn slab(name: &'static str, object: u64, order: u8, mobility: Mobility) -> SlabSpec {
    SlabSpec {
        name,
        object: Bytes(object),
        order,
        mobility,
    }
}

/// The objects of a file in slabs (design 3.1): 1.15 kB that a shrinker frees, 1.45 kB that go with
/// it.
const SPECS: [SlabSpec; 5] = [
    slab("inode", 960, 3, Mobility::Reclaimable),
    slab("dentry", 192, 1, Mobility::Reclaimable),
    slab("log item", 168, 0, Mobility::Unmovable),
    slab("log vector", 256, 1, Mobility::Unmovable),
    slab("shadow", 1024, 3, Mobility::Unmovable),
];
/// And a page for each eight: a buffer of 16 KiB holds 32 inodes.
const BUFFER: SlabSpec = slab("buffer", 4096, 0, Mobility::Unmovable);
const FILES_A_BUFFER: u64 = 8;

struct Inode {
    directory: u32,
    page: u64,
    objects: Vec<(u8, Object)>,
}

/// Inodes by node, the oldest first.
struct Inodes {
    cache: Arc<Cache>,
    slabs: Vec<Arc<Slabs>>,
    directories: Mutex<Vec<Arc<File>>>,
    lists: Vec<Mutex<VecDeque<Inode>>>,
}

impl Inodes {
    fn new(cache: &Arc<Cache>, scale: u32) -> Arc<Self> {
        let smaller = u8::try_from(scale.ilog2()).unwrap();
        let add = |spec: SlabSpec| {
            // It is the same part of a pageblock at any scale.
            let order = spec.order.saturating_sub(smaller);
            Slabs::new(cache, SlabSpec { order, ..spec }).unwrap()
        };
        Arc::new(Self {
            cache: Arc::clone(cache),
            slabs: SPECS.into_iter().chain([BUFFER]).map(add).collect(),
            directories: Mutex::default(),
            lists: (0..NODES).map(|_| Mutex::default()).collect(),
        })
    }

    /// A file was made: its objects.
    fn create(&self, task: &mut Task<'_>, directory: u32, page: u64) {
        task.did(Work::Create, 1);
        task.did(Work::Log, 1);
        let mut objects = Vec::with_capacity(6);
        let buffers = u8::from(page.is_multiple_of(FILES_A_BUFFER));
        for at in 0..5 + buffers {
            let object = self.slabs[usize::from(at)].take(task).unwrap();
            objects.push((at, object));
        }
        let node = self.slabs[0].node_of(task, objects[0].1);
        let inode = Inode {
            directory,
            page,
            objects,
        };
        self.lists[node.index()].lock().unwrap().push_back(inode);
    }
}

impl Shrink for Inodes {
    fn name(&self) -> &'static str {
        "inodes"
    }

    fn count(&self, node: NodeId) -> u64 {
        self.lists[node.index()].lock().unwrap().len() as u64
    }

    fn scan(&self, task: &mut Task<'_>, ask: Ask) -> Answer {
        let mut freed = 0;
        let list = &self.lists[ask.node.index()];
        for _ in 0..ask.objects {
            let Some(inode) = list.lock().unwrap().pop_front() else {
                break;
            };
            let directory = Arc::clone(&self.directories.lock().unwrap()[inode.directory as usize]);
            match directory.drop_clean(task, inode.page) {
                Dropped::Absent => {
                    for (at, object) in inode.objects {
                        self.slabs[usize::from(at)].give(task, object);
                    }
                    freed += 1;
                }
                dropped => {
                    if dropped == Dropped::Dropped {
                        kernel::note_inode_steal(&self.cache, task, Pages(1));
                    }
                    list.lock().unwrap().push_back(inode);
                }
            }
        }
        task.did(Work::Prune, ask.objects);
        Answer::Freed {
            freed,
            looked_at: ask.objects,
        }
    }
}

/// A reading at the end of each half second.
struct Run {
    seen: Vec<Vmstat>,
}

const STEP: Nanos = Nanos::millis(500);

fn options(scale: u32, boost: BoostRule, apart: bool) -> Options {
    let frames = MEMORY / scale;
    let mut options = Options::new(frames, CPUS);
    options.dirty.law = history::dirty::RATE_BASED;
    options.dirty.hz = 250;
    options.dirty.dirty = Threshold::Percent(20);
    options.dirty.background = Threshold::Percent(10);
    options.reclaim = Tunables {
        stands_for: scale,
        ..Tunables::of(history::reclaim::LINUX_5_15, 250)
    };
    options.place = history::place::LINUX_6_12;
    options.machine = Some(Machine::even(Pages(u64::from(frames)), NODES, CPUS / 4).unwrap());
    options.apart = apart.then(|| Apart::of(history::fallback::LINUX_5_0, scale));
    options.boost = boost;
    options
}

fn run(options: Options, seconds: u64) -> Run {
    let scale = options.reclaim.stands_for;
    let mut lab = Lab::new(LabOptions {
        cpus: CPUS,
        hz: 250,
        seed: 1,
        frames: options.frames,
        costs: P3.shrunk(scale),
        ..LabOptions::default()
    });
    let disk = Disk::new(&lab, RATE / u64::from(scale));
    disk.keep(false);
    let info = disk.info();
    let id = lab.add_device(disk as Arc<dyn env::Device>);
    let env = Arc::clone(lab.env());
    lab.run(move |task| {
        let parts = kernel::Parts {
            shrink: ShrinkRule::LINUX_5_0,
            ..kernel::Parts::default()
        };
        let cache = kernel::build(env.clone(), options, parts).unwrap();
        let device = cache
            .add_device(task, id, info, DeviceOptions::default())
            .unwrap();
        let inodes = Inodes::new(&cache, scale);
        kernel::register(&cache, task, Arc::clone(&inodes) as _).unwrap();
        let end = Instant::ZERO + Nanos::secs(seconds);
        let mut jobs = Vec::new();
        for number in 0..CPUS {
            let directory = cache
                .open(task, device, ObjectId(number), Bytes(0))
                .unwrap();
            inodes
                .directories
                .lock()
                .unwrap()
                .push(Arc::clone(&directory));
            let (cache, inodes) = (Arc::clone(&cache), Arc::clone(&inodes));
            let job = env::spawn(&*env, &format!("creator-{number}"), move |task| {
                let mut writer = cache.writer();
                let content = [Sector(7); 8];
                for page in 0..DIRECTORY {
                    if task.now() >= end {
                        break;
                    }
                    let offset = Bytes(page << PAGE_SHIFT);
                    directory
                        .write(task, &mut writer, offset, &content)
                        .unwrap();
                    inodes.create(task, number, page);
                }
                cache.retire(task, writer);
            });
            jobs.push(job);
        }
        let mut seen = vec![cache.vmstat()];
        while task.now() < end {
            task.sleep(Cause::Think, STEP);
            seen.push(cache.vmstat());
        }
        for job in jobs {
            job.join(task).unwrap();
        }
        let _ = cache.shutdown(task);
        assert!(cache.stats().is_conserved());
        // Frames that CPUs keep are not free, as in the kernel.
        cache.inside().memory.drain_cpu_lists(task);
        let stat = cache.vmstat();
        assert_eq!(stat.broken_sum(), None);
        let used = [
            Item::NrFreePages,
            Item::NrInactiveFile,
            Item::NrActiveFile,
            Item::NrAside,
            Item::NrSlabReclaimable,
            Item::NrSlabUnreclaimable,
        ];
        let sum: u64 = used.into_iter().map(|item| stat.get(item)).sum();
        assert_eq!(sum, cache.stats().frames.0, "every frame is somewhere");
        Run { seen }
    })
    .unwrap()
}

fn file(stat: &Vmstat) -> u64 {
    stat.get(Item::NrInactiveFile) + stat.get(Item::NrActiveFile)
}

fn slab_pages(stat: &Vmstat) -> u64 {
    stat.get(Item::NrSlabReclaimable) + stat.get(Item::NrSlabUnreclaimable)
}

#[test]
fn small_files_mix_pageblocks_once_memory_is_full_and_boosts_free_pages_of_files() {
    let run = run(options(16, history::boost::LINUX_5_0, true), 50);
    let last = run.seen.last().unwrap();
    let of = |item| last.get(item);
    assert!(of(Item::ExtfragEvents) > 100, "{}", of(Item::ExtfragEvents));
    assert!(of(Item::WatermarkBoosts) > 0);
    assert!(of(Item::PgstealBoosted) > 0);
    // Before memory is full everybody has pageblocks of their own.
    let full = run
        .seen
        .iter()
        .position(|stat| stat.get(Item::PgscanKswapd) > 0);
    let before = &run.seen[full.unwrap() - 1];
    assert!(before.get(Item::ExtfragEvents) < of(Item::ExtfragEvents) / 10);
}

#[test]
fn without_lists_of_their_own_there_is_no_event_and_no_boost() {
    let run = run(options(64, history::boost::LINUX_5_0, false), 50);
    let last = run.seen.last().unwrap();
    for item in [
        Item::ExtfragEvents,
        Item::WatermarkBoosts,
        Item::PgstealBoosted,
    ] {
        assert_eq!(last.get(item), 0, "{}", item.name());
    }
    assert!(last.get(Item::PgscanKswapd) > 0, "memory was full");
}

/// At the size of the paper, or at another one: `SCALE=4`.
#[test]
#[ignore = "minutes, in release; for reading"]
fn fragments_at_full_size() {
    let of = |name: &str, or: u32| {
        let value = std::env::var(name).ok();
        value.map_or(or, |value| value.parse().unwrap())
    };
    let (scale, seconds) = (of("SCALE", 1), u64::from(of("SECONDS", 70)));
    for boost in [history::boost::LINUX_5_0, history::boost::LINUX_5_0_P3] {
        if std::env::var("BOOST").is_ok_and(|name| name != boost.name) {
            continue;
        }
        println!(
            "{}: at scale {scale}, per second of pages: free, file, slab; events, boosts, boost now, \
             pages freed boosted, by kswapd, direct, by slabs; slab pages taken per event, pages moved",
            boost.name
        );
        let run = run(options(scale, boost, true), seconds);
        let mut slabs_before = 0;
        // Steps in which most of what was freed was freed for boosts: how many, slab pages taken,
        // events, pages freed.
        let mut boosted = [0; 4];
        for (at, pair) in run.seen.windows(2).enumerate() {
            let [before, now] = pair else { unreachable!() };
            let rate = |item| (now.get(item) - before.get(item)) * 2;
            let slab = slab_pages(now);
            let taken = (slab + rate(Item::SlabFreed) / 2).saturating_sub(slabs_before) * 2;
            slabs_before = slab;
            let events = rate(Item::ExtfragEvents);
            let freed =
                rate(Item::PgstealKswapd) + rate(Item::PgstealDirect) + rate(Item::SlabFreed);
            if rate(Item::PgstealBoosted) * 2 > freed {
                let more = [1, taken, events, rate(Item::PgstealBoosted)];
                for (sum, more) in boosted.iter_mut().zip(more) {
                    *sum += more;
                }
            }
            println!(
                "{:5.1} s: {:8} {:8} {:8}; {:5} {:5} {:6} {:7} {:7} {:7} {:7}; {:6} {:6}",
                (at + 1) as f64 / 2.0,
                now.get(Item::NrFreePages),
                file(now),
                slab,
                events,
                rate(Item::WatermarkBoosts),
                now.get(Item::NrWatermarkBoost),
                rate(Item::PgstealBoosted),
                rate(Item::PgstealKswapd),
                rate(Item::PgstealDirect),
                rate(Item::SlabFreed),
                taken.checked_div(events).unwrap_or(0),
                rate(Item::ExtfragPages).checked_div(events).unwrap_or(0),
            );
        }
        let [steps, taken, events, freed] = boosted;
        // As the published figures were derived: every pageblock freed is a boost that was worked
        // off. Events that find the boost at its cap are none.
        let worked_off = freed * u64::from(scale) / 512;
        println!(
            "{}: {steps} steps of boosted reclaim. Boosts worked off {}/s (derived from the paper: 267), slab pages \
             for each {} (170 / {scale}); events {}/s, slab pages for each {}",
            boost.name,
            worked_off.checked_div(steps).unwrap_or(0),
            taken.checked_div(worked_off).unwrap_or(0),
            events.checked_div(steps).unwrap_or(0),
            taken.checked_div(events).unwrap_or(0),
        );
    }
}
