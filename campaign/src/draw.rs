//! From a seed to a plan: what the campaign tries.
//!
//! Everything is drawn from one stream, in the order of this file. A change here gives every seed
//! another meaning; regressions do not care, for they are kept as plans.
//!
//! A plan draws: 1, 2 or 4 CPUs, free or dear work; 256 to 4096 frames; every law with limits from
//! tiny to nearly all memory, in per cent and in pages, and now and then options that contradict
//! each other; flushers of three eras with their times shortened; 1 to 3 devices of every model,
//! slow, volatile, and with fault phases of their own: mild faults, storms, hangs, rate drops,
//! shrinking space; 1 to 4 files; 1 to 6 tasks that come and go, each a writer, reader, syncer or a
//! bit of all. Every other plan has anonymous memory: regions from an eighth to half as much again
//! as all memory, a swap file that has room for all of it, for half, or is not there, on a device
//! with the fault phases of the others, and 1 to 4 tasks more that touch, write, read and discard,
//! and put another region in the place of one, with reclaim throttled by any of the variants. In
//! every other plan, half of the tasks are served: they do not wait in reads and writes, others do
//! for them. In every fourth plan tasks load from and store to maps of files as well.

use std::collections::BTreeMap;

use env::Work;
use history::shrink::ShrinkRule;
use policy::writeback::FlushTunables;

use crate::op::{Op, SECTORS};
use crate::plan::{
    CachePlan, Contradiction, DevicePlan, FilePlan, FlushPlan, Limit, Machine, ObjectsPlan,
    OnError, Phase, Plan, RegionPlan, SlowPlan, SwapPlan, TaskPlan, VERSION, VolatilePlan,
    reclaim_name, work_name,
};
use crate::rng::Rng;

/// Seeds of labs and devices fit a TOML integer.
const CHANCE: u64 = 1 << 48;

impl Plan {
    /// The plan that a seed stands for.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let rng = &mut rng;
        let mut machine = Machine {
            cpus: u32::try_from(rng.pick(&[1_u64, 2, 4])).expect("a small number"),
            hz: rng.pick(&[0, 250, 1000]),
            costs_ns: costs(rng),
        };
        let cache = cache(rng);
        let mut devices: Vec<_> = (0..rng.pick(&[1, 1, 2, 2, 3]))
            .map(|_| device(rng))
            .collect();
        // All tasks on one small file now and then: they meet.
        let files: Vec<_> = if rng.one_in(4) {
            vec![small_file(rng, devices.len())]
        } else {
            (0..rng.between(1, 4))
                .map(|_| file(rng, devices.len()))
                .collect()
        };
        let mut tasks: Vec<_> = (0..rng.between(1, 6)).map(|_| task(rng, &files)).collect();
        let (swap, regions) = memory(rng, u64::from(cache.frames), devices.len());
        if !regions.is_empty() {
            dear_enough(&mut machine.costs_ns);
            let moves = swap
                .is_some_and(|swap| swap.pages >= regions.iter().map(|region| region.pages).sum());
            let more = rng.between(1, 4);
            tasks.extend((0..more).map(|_| anon_task(rng, &regions, &files, moves)));
        }
        let crash_at_us = rng.one_in(3).then(|| rng.between(100, 2_000_000));
        let mut walk = Walk::new(&files);
        let after = (0..20).map(|_| walk.mixed(rng)).collect();
        let seed = rng.below(CHANCE);
        let refused = refused(rng);
        // Last, so that the rest of a seed's plan is what it was before there were such tasks.
        if rng.one_in(2) {
            for task in &mut tasks {
                task.served = rng.one_in(2);
            }
        }
        let objects = rng.one_in(3).then(|| objects(rng));
        for device in &mut devices {
            device.grow_ahead_kib = rng.one_in(2).then(|| rng.pick(&[4, 64, 1024]));
        }
        for device in &mut devices {
            device.log_lag_us = rng.one_in(3).then(|| rng.pick(&[10, 500, 5000]));
        }
        if rng.one_in(4) {
            for task in &mut tasks {
                map_files(rng, task, &files);
            }
        }
        Self {
            version: VERSION,
            seed,
            note: String::new(),
            failed: None,
            crash_at_us,
            after_power_loss: Some(after),
            refused,
            machine,
            cache,
            swap,
            devices,
            files,
            regions,
            objects,
            tasks,
        }
    }
}

/// Loads and stores through maps of a file or two, among the other steps of a task.
fn map_files(rng: &mut Rng, task: &mut TaskPlan, files: &[FilePlan]) {
    let own = [rng.index(files.len()), rng.index(files.len())];
    let mut next = 0;
    for _ in 0..rng.below(80) {
        let file = rng.pick(&own);
        let bound = files[file].pages_max;
        let page = if rng.one_in(2) {
            next
        } else {
            rng.below(bound)
        };
        let page = page % bound;
        let pages = rng.pick(&[1, 1, 2, 7, 40]).min(bound - page);
        next = page + pages;
        let op = match rng.below(20) {
            0 => Op::Unmap { file },
            1 => Op::LetGo { file, page, pages },
            2..=9 => Op::Load { file, page, pages },
            _ => Op::Store { file, page, pages },
        };
        task.ops.insert(rng.index(task.ops.len() + 1), op);
    }
}

/// Caches of objects, under any rules.
fn objects(rng: &mut Rng) -> ObjectsPlan {
    let shrinks = ShrinkRule::ALL.map(|rule| rule.name);
    let fallbacks = history::fallback::ALL.map(|rule| rule.name);
    let boosts = history::boost::ALL.map(|rule| rule.name);
    ObjectsPlan {
        shrink: rng.pick(&shrinks).into(),
        fallback: (!rng.one_in(3)).then(|| rng.pick(&fallbacks).into()),
        boost: rng.pick(&boosts).into(),
    }
}

/// Where memory is short, tasks take each other's pages before they are used. That goes on for ever
/// if neither work nor a device takes any time.
fn dear_enough(costs: &mut BTreeMap<String, u64>) {
    for work in [Work::Call, Work::Lookup, Work::Scan, Work::Submit] {
        let cost = costs.entry(work_name(work)).or_default();
        *cost = (*cost).max(100);
    }
}

fn costs(rng: &mut Rng) -> BTreeMap<String, u64> {
    let mut costs = BTreeMap::new();
    if rng.one_in(4) {
        return costs;
    }
    for work in [
        Work::Call,
        Work::Lookup,
        Work::Copy,
        Work::Alloc,
        Work::Insert,
        Work::Dirty,
        Work::Scan,
    ] {
        costs.insert(work_name(work), rng.below(3000));
    }
    for work in [
        Work::Balance,
        Work::VisitFile,
        Work::WritePage,
        Work::Submit,
        Work::Free,
        Work::Switch,
    ] {
        costs.insert(work_name(work), rng.below(20_000));
    }
    costs
}

fn cache(rng: &mut Rng) -> CachePlan {
    let frames = rng.pick(&[256, 300, 384, 512, 700, 1024, 2048, 4096]);
    let law = rng.pick(history::dirty::ALL).name;
    let (dirty, background) = limits(rng, u64::from(frames));
    let tunables = rng.pick(&[
        FlushTunables::tidegate(),
        FlushTunables::linux_2_6_36(),
        FlushTunables::linux_6_12(),
    ]);
    let mut flush = FlushPlan::of(&tunables);
    if rng.one_in(2) {
        flush.interval_us = rng.between(5, 200) * 1000;
        flush.expire_us = rng.between(10, 500) * 1000;
    } else if rng.one_in(12) && matches!(law, "rate-based" | "tidegate") {
        // The older laws hold a writer without starting the flusher: they need its periodic look.
        flush.interval_us = 0;
    }
    match rng.below(12) {
        0 => flush.request_max_pages = rng.pick(&[1, 8, 32]),
        1 => flush.slice_pages = Some(rng.pick(&[1, 16, 4096])),
        2 => (flush.flight_us, flush.flight_requests) = (None, Some(rng.pick(&[1, 2, 16]))),
        3 => flush.flight_us = Some(rng.pick(&[1000, 5000, 400_000])),
        _ => {}
    }
    CachePlan {
        frames,
        law: law.into(),
        law_hz: rng.pick(&[100, 250, 1000]),
        dirty,
        background,
        reclaim: reclaim_name(rng.pick(history::reclaim::ALL)),
        swappiness: rng.pick(&[60, 60, 60, 0, 1, 100, 200]),
        readahead_pages: rng.pick(&[0, 4, u64::from(frames) / 16, u64::from(frames) / 16]),
        populate_at_start: rng.one_in(2),
        flush,
    }
}

/// From a few pages to most of memory, in both forms; a background limit above the dirty one is the
/// kernel's to halve.
fn limits(rng: &mut Rng, frames: u64) -> (Limit, Limit) {
    if rng.one_in(3) {
        let dirty = match rng.below(4) {
            0 => rng.between(2, 16),
            1 => rng.between(17, 64),
            _ => rng.between(64, frames * 6 / 10),
        };
        let background = match rng.below(6) {
            0 => dirty + rng.below(8),
            1 => 1,
            _ => 1 + dirty / rng.pick(&[2, 3, 5]),
        };
        return (Limit::Pages(dirty), Limit::Pages(background));
    }
    let share = if rng.one_in(6) {
        rng.between(1, 5)
    } else {
        rng.between(5, 60)
    };
    let background = if rng.one_in(8) {
        share + rng.below(20)
    } else {
        1 + share / rng.pick(&[2, 3, 5])
    };
    let percent = |value: u64| Limit::Percent(u8::try_from(value).expect("at most 80"));
    (percent(share), percent(background))
}

fn refused(rng: &mut Rng) -> Vec<Contradiction> {
    if !rng.one_in(8) {
        return Vec::new();
    }
    let small = |value: u64| u32::try_from(value).expect("a small number");
    let above = |value: u64| u8::try_from(value).expect("at most 255");
    vec![match rng.below(7) {
        0 => Contradiction::Frames(small(rng.below(256))),
        1 => Contradiction::DirtyPercent(above(rng.between(101, 255))),
        2 => Contradiction::BackgroundPercent(above(rng.between(101, 255))),
        3 => Contradiction::LawHz(rng.pick(&[0, 10_001, u32::MAX])),
        4 => Contradiction::Cpus(0),
        5 => Contradiction::MinRatioAbove(small(rng.below(10_000))),
        _ => Contradiction::MaxRatio(small(rng.between(10_001, 20_000))),
    }]
}

fn device(rng: &mut Rng) -> DevicePlan {
    let model = rng.pick(&[
        "token_bucket",
        "token_bucket",
        "null_blk",
        "null",
        "ssd",
        "usb_stick",
        "sata2010",
        "nfs",
    ]);
    let mut params = BTreeMap::new();
    if model == "token_bucket" {
        for (name, value) in [
            ("rate_bytes_per_sec", rng.between(1, 64) << 20),
            ("latency_us", rng.pick(&[0, 100, 2000])),
            ("depth", rng.pick(&[1, 2, 8])),
            ("flush_us", rng.pick(&[0, 500, 20_000])),
            ("burst_us", rng.pick(&[0, 50_000])),
        ] {
            params.insert(name.into(), value);
        }
    }
    let slow = rng.one_in(4).then(|| SlowPlan {
        rate_kib: rng.pick(&[256, 1024, 4096, 16_384, 65_536]),
        burst_kib: rng.pick(&[0, 64, 1024]),
        latency_us: rng.pick(&[0, 200, 3000]),
        depth: rng.pick(&[1, 2, 32]),
    });
    let volatile = rng.one_in(5).then(|| VolatilePlan {
        pages: rng.pick(&[1, 16, 128, 512]),
        survives_permille: rng.pick(&[0, 500, 900]),
    });
    let max_ratio = if rng.one_in(6) {
        rng.pick(&[1, 100, 2500])
    } else {
        10_000
    };
    DevicePlan {
        model: model.into(),
        params,
        write_cache: !rng.one_in(8),
        stable_writes: rng.one_in(5),
        on_error: rng.pick(&[OnError::Retry, OnError::Report, OnError::Stop]),
        retry_after_us: rng.pick(&[1000, 10_000, 100_000]),
        strict: rng.one_in(5),
        min_ratio: if rng.one_in(6) { max_ratio.min(500) } else { 0 },
        max_ratio,
        assumed_fast: rng.one_in(3),
        grow_ahead_kib: None,
        log_lag_us: None,
        phases: phases(rng, slow.as_ref()),
        slow,
        volatile,
    }
}

/// Some chance in 1000 once in `one_in` devices, up to `most`.
fn some(rng: &mut Rng, one_in: u64, most: u64) -> u32 {
    if rng.one_in(one_in) {
        u32::try_from(rng.between(1, most)).expect("at most a thousand")
    } else {
        0
    }
}

/// The fault phases of a device: fair and foul periods.
fn phases(rng: &mut Rng, slow: Option<&SlowPlan>) -> Vec<Phase> {
    let lingers_us = if rng.one_in(2) {
        rng.between(10, 20_000)
    } else {
        0
    };
    let lasts = |rng: &mut Rng| rng.between(200, 400_000);
    if rng.one_in(3) {
        // Nothing fails.
        let mut calm = Phase {
            for_us: 1_000_000,
            lingers_us,
            ..Phase::default()
        };
        return match rng.below(6) {
            0 => drops(rng, slow, calm),
            1 => {
                // Hangs for a while once, beside whatever else there is.
                calm.for_us = lasts(rng);
                let hung = Phase {
                    for_us: rng.pick(&[300_000, 2_000_000, 15_000_000]),
                    hung: true,
                    ..Phase::default()
                };
                // Once: a device that hangs most of the time holds its writers for ever.
                let after = Phase {
                    for_us: 100_000_000_000,
                    ..calm.clone()
                };
                vec![calm, hung, after]
            }
            2 | 3 if lingers_us > 0 => vec![calm],
            _ => Vec::new(),
        };
    }
    let mut mild = Phase {
        for_us: 0,
        lingers_us,
        write_fails: some(rng, 2, 100),
        write_torn: some(rng, 2, 100),
        fails_after_us: u64::from(some(rng, 2, 1000)) * 5,
        read_fails: some(rng, 3, 60),
        hangs: some(rng, 2, 40),
        hang_us: rng.between(1000, 300_000),
        flush_fails: some(rng, 8, 100),
        length_fails: some(rng, 6, 200),
        no_space: some(rng, 6, 60),
        ..Phase::default()
    };
    let mut storm = mild.clone();
    match rng.below(7) {
        0 => storm.write_fails = 1000,
        1 => storm.hung = true,
        2 => (storm.hangs, storm.hang_us) = (500, rng.between(1000, 2_000_000)),
        3 => storm.no_space = 1000,
        4 => storm.read_fails = 1000,
        5 => storm.space_kib = Some(rng.between(4, 4096)),
        _ => storm.flush_fails = 1000,
    }
    let mut phases: Vec<_> = (0..rng.between(1, 8))
        .map(|_| {
            let foul = rng.one_in(5);
            let mut phase = if foul { storm.clone() } else { mild.clone() };
            phase.for_us = lasts(rng);
            phase.reopen = !foul && rng.one_in(2);
            if let Some(slow) = slow
                && rng.one_in(4)
            {
                phase.rate_kib = Some(slow.rate_kib / 4 + 1);
            }
            phase
        })
        .collect();
    if !phases.iter().any(Phase::gets_on) {
        mild.for_us = rng.between(1000, 400_000);
        phases.push(mild);
    }
    phases
}

/// A device whose rate drops and comes back, or whose space shrinks step by step.
fn drops(rng: &mut Rng, slow: Option<&SlowPlan>, mut calm: Phase) -> Vec<Phase> {
    calm.for_us = rng.between(10_000, 2_000_000);
    let mut next = calm.clone();
    if let Some(slow) = slow {
        next.rate_kib = Some(slow.rate_kib / rng.pick(&[2, 4, 64]) + 1);
        vec![calm, next]
    } else {
        let mut space = rng.between(64, 8192);
        let mut phases = vec![calm];
        for _ in 0..3 {
            next.space_kib = Some(space);
            phases.push(next.clone());
            space /= 2;
        }
        phases
    }
}

fn file(rng: &mut Rng, devices: usize) -> FilePlan {
    let pages_max = rng.pick(&[8, 40, 200, 600, 600, 2000]);
    let prefill_pages = if rng.one_in(3) {
        rng.below(pages_max)
    } else {
        0
    };
    FilePlan {
        device: rng.index(devices),
        prefill_pages,
        pages_max,
    }
}

fn small_file(rng: &mut Rng, devices: usize) -> FilePlan {
    FilePlan {
        pages_max: rng.pick(&[4, 16, 40]),
        prefill_pages: rng.pick(&[0, 4]),
        ..file(rng, devices)
    }
}

/// Anonymous memory in every other plan, and where it may go.
fn memory(rng: &mut Rng, frames: u64, devices: usize) -> (Option<SwapPlan>, Vec<RegionPlan>) {
    if rng.one_in(2) {
        return (None, Vec::new());
    }
    let regions: Vec<_> = (0..rng.pick(&[1, 1, 2, 3]))
        .map(|_| RegionPlan {
            pages: rng.pick(&[frames / 8, frames / 2, frames, frames * 3 / 2]) + rng.below(40),
        })
        .collect();
    let all: u64 = regions.iter().map(|region| region.pages).sum();
    let pages = rng.pick(&[0, all / 2, all, all, all, 2 * all, 3 * all]);
    let swap = (pages > 0).then(|| SwapPlan {
        device: rng.index(devices),
        pages,
    });
    (swap, regions)
}

/// A task with memory of its own (`limits`: that may move the limit, where it can be reached): a
/// hog, a task that maps and unmaps, a task that writes and reads here and there.
fn anon_task(rng: &mut Rng, regions: &[RegionPlan], files: &[FilePlan], limits: bool) -> TaskPlan {
    let start_us = if rng.one_in(3) {
        rng.between(1, 1_000_000)
    } else {
        0
    };
    let region = rng.index(regions.len());
    let all = regions[region].pages;
    let steps = rng.between(8, 50);
    let piece = all.div_ceil(rng.pick(&[1, 4, 16])).max(1);
    let kind = rng.below(4);
    let mut walk = Walk::new(files);
    let mut at = 0;
    let mut ops = Vec::new();
    for _ in 0..steps {
        match kind {
            // Round and round.
            0 => {
                let page = at % all;
                let pages = piece.min(all - page);
                at = page + pages;
                ops.push(Op::Touch {
                    region,
                    page,
                    pages,
                });
            }
            // All, and back.
            1 if rng.one_in(2) => ops.push(Op::Think {
                us: rng.pick(&[100, 5000, 50_000]),
            }),
            1 => {
                let page = rng.below(all);
                let pages = piece.min(all - page);
                ops.push(Op::Touch {
                    region,
                    page,
                    pages,
                });
                ops.push(Op::Discard {
                    region,
                    page,
                    pages,
                });
            }
            // A bit of everything, files as well.
            _ if rng.one_in(6) => ops.push(walk.mixed(rng)),
            // Chunks of the lab are of 512 frames: below 1024 a limit cannot move.
            _ if limits && rng.one_in(20) => ops.push(Op::Limit {
                frames: rng.pick(&[256, 512, 1024, 2048, 4096]),
            }),
            _ => ops.push(anon_mixed(rng, region, all)),
        }
    }
    TaskPlan {
        start_us,
        served: false,
        ops,
    }
}

fn anon_mixed(rng: &mut Rng, region: usize, all: u64) -> Op {
    let page = rng.below(all);
    let pages = rng.pick(&[1, 1, 3, 16, 200]).min(all - page);
    let (at, len) = if rng.one_in(2) {
        (page * SECTORS, pages * SECTORS)
    } else {
        (page * SECTORS + rng.below(SECTORS), rng.between(1, 20))
    };
    match rng.below(10) {
        0..=3 => Op::Put { region, at, len },
        4..=6 => Op::Get { region, at, len },
        7 | 8 => Op::Touch {
            region,
            page,
            pages,
        },
        // The same numbers say it, so that later numbers are drawn as they were before there were
        // such steps.
        _ if pages == 200 && page.is_multiple_of(3) => Op::Renew { region },
        _ => Op::Discard {
            region,
            page,
            pages,
        },
    }
}

fn task(rng: &mut Rng, files: &[FilePlan]) -> TaskPlan {
    let start_us = if rng.one_in(3) {
        rng.between(1, 1_000_000)
    } else {
        0
    };
    let steps = rng.between(20, 160);
    let mut walk = Walk::new(files);
    let file = rng.index(files.len());
    let kind = rng.below(10);
    let ops = (0..steps)
        .map(|_| match kind {
            // One thing mostly, and a bit of everything.
            0..=5 => walk.mixed(rng),
            _ if rng.one_in(8) => walk.mixed(rng),
            6 => walk.sequential(rng, file),
            7 => walk.light(rng, file),
            8 => walk.overwrite(rng, file),
            _ => walk.reader(rng, file),
        })
        .collect();
    TaskPlan {
        start_us,
        served: false,
        ops,
    }
}

/// The position of a task in its files while its steps are drawn.
struct Walk<'a> {
    files: &'a [FilePlan],
    /// Where it goes on in order, in sectors.
    at: u64,
    /// The sector where each file was last cut: many look there.
    cut: Vec<u64>,
}

impl<'a> Walk<'a> {
    fn new(files: &'a [FilePlan]) -> Self {
        Self {
            files,
            at: 0,
            cut: vec![0; files.len()],
        }
    }

    /// A run of sectors below the file's bound: in order, whole pages, or anything.
    fn range(&mut self, rng: &mut Rng, file: usize) -> (u64, u64) {
        let bound = self.files[file].pages_max * SECTORS;
        let len = match rng.below(10) {
            0..=4 => rng.between(1, 3 * SECTORS),
            5..=7 => SECTORS * rng.between(1, 32),
            8 => SECTORS * rng.between(1, 400),
            _ => rng.between(1, 600),
        };
        let len = len.min(bound);
        let mut first = match rng.below(5) {
            0 | 1 => self.at % bound,
            2 => self.cut[file].saturating_sub(rng.below(4 * SECTORS)),
            _ => rng.below(bound),
        };
        if rng.one_in(2) {
            first -= first % SECTORS;
        }
        let first = first.min(bound - len);
        self.at = first + len;
        (first, len)
    }

    fn mixed(&mut self, rng: &mut Rng) -> Op {
        let file = rng.index(self.files.len());
        match rng.below(100) {
            0..=41 => {
                let (at, len) = self.range(rng, file);
                Op::Write { file, at, len }
            }
            42..=63 => {
                let (at, len) = self.range(rng, file);
                Op::Read { file, at, len }
            }
            64..=70 => self.length(rng, file),
            71..=78 => Op::Sync { file },
            79..=82 => {
                let (at, len) = self.range(rng, file);
                Op::SyncRange { file, at, len }
            }
            83..=89 => Op::Hold {
                file,
                page: rng.below(self.files[file].pages_max),
                pages: rng.between(1, 6),
                steps: 1 + rng.index(8),
            },
            90..=92 => Op::Close { file },
            93..=94 => Op::Trim,
            95..=96 => Op::SyncAll,
            _ => match rng.below(30_000) {
                // The same number says where, so that later numbers are drawn as they were before
                // there were holes. And before there were clients that leave.
                number if number.is_multiple_of(4) => Op::Leave {
                    file,
                    page: number / 4 % self.files[file].pages_max,
                    pages: 1 + number % 97,
                    us: number / 8,
                },
                number if number.is_multiple_of(2) => Op::Punch {
                    file,
                    page: number / 2 % self.files[file].pages_max,
                    pages: 1 + number % 41,
                },
                us => Op::Think { us },
            },
        }
    }

    fn length(&mut self, rng: &mut Rng, file: usize) -> Op {
        let bound = self.files[file].pages_max * SECTORS;
        match rng.below(3) {
            0 => {
                let mut len = rng.below(bound + 1);
                if rng.one_in(2) {
                    len -= len % SECTORS;
                }
                self.cut[file] = len;
                Op::Truncate { file, len }
            }
            // If the file has something to lose.
            1 => Op::Cut {
                file,
                by: rng.below(80),
            },
            _ => Op::Grow {
                file,
                by: rng.below(bound + 1),
            },
        }
    }

    /// A heavy writer, as dd.
    fn sequential(&mut self, rng: &mut Rng, file: usize) -> Op {
        let bound = self.files[file].pages_max * SECTORS;
        let len = (SECTORS * rng.pick(&[16, 64, 256])).min(bound);
        let at = (self.at % bound).min(bound - len);
        self.at = at + len;
        Op::Write { file, at, len }
    }

    /// A page now and then.
    fn light(&mut self, rng: &mut Rng, file: usize) -> Op {
        if rng.one_in(2) {
            return Op::Think {
                us: rng.pick(&[1000, 10_000]),
            };
        }
        let page = rng.below(self.files[file].pages_max);
        Op::Write {
            file,
            at: page * SECTORS,
            len: SECTORS,
        }
    }

    /// The same few pages again and again, synced at times.
    fn overwrite(&mut self, rng: &mut Rng, file: usize) -> Op {
        let bound = self.files[file].pages_max * SECTORS;
        if rng.one_in(6) {
            return Op::Sync { file };
        }
        let len = rng.between(1, 6 * SECTORS).min(bound);
        let at = rng.below(8 * SECTORS).min(bound - len);
        Op::Write { file, at, len }
    }

    /// Through the file in order, or here and there.
    fn reader(&mut self, rng: &mut Rng, file: usize) -> Op {
        let bound = self.files[file].pages_max * SECTORS;
        let len = (SECTORS * rng.pick(&[1, 8, 32])).min(bound);
        let at = if rng.one_in(4) {
            rng.below(bound)
        } else {
            self.at % bound
        };
        let at = at.min(bound - len);
        self.at = at + len;
        Op::Read { file, at, len }
    }
}
