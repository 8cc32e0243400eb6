//! From a seed to a plan: what the campaign tries.
//!
//! Everything is drawn from one stream, in the order of this file. A change here gives every seed
//! another meaning; regressions do not care, for they are kept as plans.
//!
//! What is drawn: 1, 2 or 4 CPUs, free or dear work; 256 to 4096 frames; every law with limits from
//! tiny to nearly all memory, in per cent and in pages, and now and then options that contradict
//! each other; flushers of three eras with their times shortened; 1 to 3 devices of every model, slow,
//! volatile, and with a weather of their own: mild faults, storms, hangs, rate drops, shrinking space;
//! 1 to 4 files; 1 to 6 tasks that come and go, each a writer, reader, syncer or a bit of all. Every other
//! plan has anonymous memory: regions from an eighth to half as much again as all memory, a swap file that has room for
//! all of it, for half, or is not there, on a device with the weather of the others, and 1 to 4 tasks more that
//! touch, write, read and discard, and put another region in the place of one, with reclaim throttled by any of the
//! variants. In every other plan, half of the tasks are served: they do not wait in reads and writes, others do for them.

use std::collections::BTreeMap;

use env::Work;
use policy::place::mobility::FallbackRule;
use policy::reclaim::boost::BoostRule;
use policy::shrink::ShrinkRule;
use policy::writeback::FlushTunables;
use policy::{dirty, reclaim};

use crate::dice::Dice;
use crate::op::Op;
use crate::plan::{
    CachePlan, Contradiction, DevicePlan, FilePlan, FlushPlan, Limit, Machine, ObjectsPlan,
    OnError, Phase, Plan, RegionPlan, SECTORS, SlowPlan, SwapPlan, TaskPlan, VERSION, VolatilePlan,
    reclaim_name, work_name,
};

/// Seeds of labs and devices fit a TOML integer.
const CHANCE: u64 = 1 << 48;

impl Plan {
    /// The plan that a seed stands for.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let dice = &mut dice;
        let mut machine = Machine {
            cpus: u32::try_from(dice.pick(&[1_u64, 2, 4])).expect("a small number"),
            hz: dice.pick(&[0, 250, 1000]),
            costs_ns: costs(dice),
        };
        let cache = cache(dice);
        let mut devices: Vec<_> = (0..dice.pick(&[1, 1, 2, 2, 3]))
            .map(|_| device(dice))
            .collect();
        // All tasks on one small file now and then: they meet.
        let files: Vec<_> = if dice.one_in(4) {
            vec![small_file(dice, devices.len())]
        } else {
            (0..dice.between(1, 4))
                .map(|_| file(dice, devices.len()))
                .collect()
        };
        let mut tasks: Vec<_> = (0..dice.between(1, 6))
            .map(|_| task(dice, &files))
            .collect();
        let (swap, regions) = memory(dice, u64::from(cache.frames), devices.len());
        if !regions.is_empty() {
            dear_enough(&mut machine.costs_ns);
            let moves = swap
                .is_some_and(|swap| swap.pages >= regions.iter().map(|region| region.pages).sum());
            let more = dice.between(1, 4);
            tasks.extend((0..more).map(|_| anon_task(dice, &regions, &files, moves)));
        }
        let crash_at_us = dice.one_in(3).then(|| dice.between(100, 2_000_000));
        let mut walk = Walk::new(&files);
        let after = (0..20).map(|_| walk.mixed(dice)).collect();
        let seed = dice.below(CHANCE);
        let refused = refused(dice);
        // Last, so that the rest of a seed's plan is what it was before there were such tasks.
        if dice.one_in(2) {
            for task in &mut tasks {
                task.served = dice.one_in(2);
            }
        }
        let objects = dice.one_in(3).then(|| objects(dice));
        for device in &mut devices {
            device.grow_ahead_kib = dice.one_in(2).then(|| dice.pick(&[4, 64, 1024]));
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

/// Caches of objects, under any rules.
fn objects(dice: &mut Dice) -> ObjectsPlan {
    let shrinks = ShrinkRule::ALL.map(|rule| rule.name);
    let fallbacks = FallbackRule::ALL.map(|rule| rule.name);
    let boosts = BoostRule::ALL.map(|rule| rule.name);
    ObjectsPlan {
        shrink: dice.pick(&shrinks).into(),
        fallback: (!dice.one_in(3)).then(|| dice.pick(&fallbacks).into()),
        boost: dice.pick(&boosts).into(),
    }
}

/// Where memory is short, tasks take each other's pages before they are used. That goes on for ever where neither work nor
/// a device takes any time.
fn dear_enough(costs: &mut BTreeMap<String, u64>) {
    for work in [Work::Call, Work::Lookup, Work::Scan, Work::Submit] {
        let cost = costs.entry(work_name(work)).or_default();
        *cost = (*cost).max(100);
    }
}

fn costs(dice: &mut Dice) -> BTreeMap<String, u64> {
    let mut costs = BTreeMap::new();
    if dice.one_in(4) {
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
        costs.insert(work_name(work), dice.below(3000));
    }
    for work in [
        Work::Balance,
        Work::VisitFile,
        Work::WritePage,
        Work::Submit,
        Work::Free,
        Work::Switch,
    ] {
        costs.insert(work_name(work), dice.below(20_000));
    }
    costs
}

fn cache(dice: &mut Dice) -> CachePlan {
    let frames = dice.pick(&[256, 300, 384, 512, 700, 1024, 2048, 4096]);
    let law = dice.pick(dirty::laws::ALL).name;
    let (dirty, background) = limits(dice, u64::from(frames));
    let tunables = dice.pick(&[
        FlushTunables::tidegate(),
        FlushTunables::linux_2_6_36(),
        FlushTunables::linux_6_12(),
    ]);
    let mut flush = FlushPlan::of(&tunables);
    if dice.one_in(2) {
        flush.interval_us = dice.between(5, 200) * 1000;
        flush.expire_us = dice.between(10, 500) * 1000;
    } else if dice.one_in(12) && matches!(law, "rate-based" | "tidegate") {
        // The older laws hold a writer without starting the flusher: they need its periodic look.
        flush.interval_us = 0;
    }
    match dice.below(12) {
        0 => flush.request_max_pages = dice.pick(&[1, 8, 32]),
        1 => flush.slice_pages = Some(dice.pick(&[1, 16, 4096])),
        2 => (flush.flight_us, flush.flight_requests) = (None, Some(dice.pick(&[1, 2, 16]))),
        3 => flush.flight_us = Some(dice.pick(&[1000, 5000, 400_000])),
        _ => {}
    }
    CachePlan {
        frames,
        law: law.into(),
        law_hz: dice.pick(&[100, 250, 1000]),
        dirty,
        background,
        reclaim: reclaim_name(dice.pick(reclaim::laws::ALL)),
        swappiness: dice.pick(&[60, 60, 60, 0, 1, 100, 200]),
        readahead_pages: dice.pick(&[0, 4, u64::from(frames) / 16, u64::from(frames) / 16]),
        populate_at_start: dice.one_in(2),
        flush,
    }
}

/// From a few pages to most of memory, in both forms; a background limit above the dirty one is the
/// kernel's to halve.
fn limits(dice: &mut Dice, frames: u64) -> (Limit, Limit) {
    if dice.one_in(3) {
        let dirty = match dice.below(4) {
            0 => dice.between(2, 16),
            1 => dice.between(17, 64),
            _ => dice.between(64, frames * 6 / 10),
        };
        let background = match dice.below(6) {
            0 => dirty + dice.below(8),
            1 => 1,
            _ => 1 + dirty / dice.pick(&[2, 3, 5]),
        };
        return (Limit::Pages(dirty), Limit::Pages(background));
    }
    let share = if dice.one_in(6) {
        dice.between(1, 5)
    } else {
        dice.between(5, 60)
    };
    let background = if dice.one_in(8) {
        share + dice.below(20)
    } else {
        1 + share / dice.pick(&[2, 3, 5])
    };
    let percent = |value: u64| Limit::Percent(u8::try_from(value).expect("at most 80"));
    (percent(share), percent(background))
}

fn refused(dice: &mut Dice) -> Vec<Contradiction> {
    if !dice.one_in(8) {
        return Vec::new();
    }
    let small = |value: u64| u32::try_from(value).expect("a small number");
    let above = |value: u64| u8::try_from(value).expect("at most 255");
    vec![match dice.below(7) {
        0 => Contradiction::Frames(small(dice.below(256))),
        1 => Contradiction::DirtyPercent(above(dice.between(101, 255))),
        2 => Contradiction::BackgroundPercent(above(dice.between(101, 255))),
        3 => Contradiction::LawHz(dice.pick(&[0, 10_001, u32::MAX])),
        4 => Contradiction::Cpus(0),
        5 => Contradiction::MinRatioAbove(small(dice.below(10_000))),
        _ => Contradiction::MaxRatio(small(dice.between(10_001, 20_000))),
    }]
}

fn device(dice: &mut Dice) -> DevicePlan {
    let model = dice.pick(&[
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
            ("rate_bytes_per_sec", dice.between(1, 64) << 20),
            ("latency_us", dice.pick(&[0, 100, 2000])),
            ("depth", dice.pick(&[1, 2, 8])),
            ("flush_us", dice.pick(&[0, 500, 20_000])),
            ("burst_us", dice.pick(&[0, 50_000])),
        ] {
            params.insert(name.into(), value);
        }
    }
    let slow = dice.one_in(4).then(|| SlowPlan {
        rate_kib: dice.pick(&[256, 1024, 4096, 16_384, 65_536]),
        burst_kib: dice.pick(&[0, 64, 1024]),
        latency_us: dice.pick(&[0, 200, 3000]),
        depth: dice.pick(&[1, 2, 32]),
    });
    let volatile = dice.one_in(5).then(|| VolatilePlan {
        pages: dice.pick(&[1, 16, 128, 512]),
        survives_permille: dice.pick(&[0, 500, 900]),
    });
    let max_ratio = if dice.one_in(6) {
        dice.pick(&[1, 100, 2500])
    } else {
        10_000
    };
    DevicePlan {
        model: model.into(),
        params,
        write_cache: !dice.one_in(8),
        stable_writes: dice.one_in(5),
        on_error: dice.pick(&[OnError::Retry, OnError::Report, OnError::Stop]),
        retry_after_us: dice.pick(&[1000, 10_000, 100_000]),
        strict: dice.one_in(5),
        min_ratio: if dice.one_in(6) {
            max_ratio.min(500)
        } else {
            0
        },
        max_ratio,
        assumed_fast: dice.one_in(3),
        grow_ahead_kib: None,
        phases: phases(dice, slow.as_ref()),
        slow,
        volatile,
    }
}

/// Some chance in 1000 once in `one_in` devices, up to `most`.
fn some(dice: &mut Dice, one_in: u64, most: u64) -> u32 {
    if dice.one_in(one_in) {
        u32::try_from(dice.between(1, most)).expect("at most a thousand")
    } else {
        0
    }
}

/// The weather of a device: fair and foul periods.
fn phases(dice: &mut Dice, slow: Option<&SlowPlan>) -> Vec<Phase> {
    let lingers_us = if dice.one_in(2) {
        dice.between(10, 20_000)
    } else {
        0
    };
    let lasts = |dice: &mut Dice| dice.between(200, 400_000);
    if dice.one_in(3) {
        // Nothing fails.
        let mut calm = Phase {
            for_us: 1_000_000,
            lingers_us,
            ..Phase::default()
        };
        return match dice.below(6) {
            0 => drops(dice, slow, calm),
            1 => {
                // Hangs for a while once, beside whatever else there is.
                calm.for_us = lasts(dice);
                let hung = Phase {
                    for_us: dice.pick(&[300_000, 2_000_000, 15_000_000]),
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
        write_fails: some(dice, 2, 100),
        write_torn: some(dice, 2, 100),
        fails_after_us: u64::from(some(dice, 2, 1000)) * 5,
        read_fails: some(dice, 3, 60),
        hangs: some(dice, 2, 40),
        hang_us: dice.between(1000, 300_000),
        flush_fails: some(dice, 8, 100),
        length_fails: some(dice, 6, 200),
        no_space: some(dice, 6, 60),
        ..Phase::default()
    };
    let mut storm = mild.clone();
    match dice.below(7) {
        0 => storm.write_fails = 1000,
        1 => storm.hung = true,
        2 => (storm.hangs, storm.hang_us) = (500, dice.between(1000, 2_000_000)),
        3 => storm.no_space = 1000,
        4 => storm.read_fails = 1000,
        5 => storm.space_kib = Some(dice.between(4, 4096)),
        _ => storm.flush_fails = 1000,
    }
    let mut phases: Vec<_> = (0..dice.between(1, 8))
        .map(|_| {
            let foul = dice.one_in(5);
            let mut phase = if foul { storm.clone() } else { mild.clone() };
            phase.for_us = lasts(dice);
            phase.reopen = !foul && dice.one_in(2);
            if let Some(slow) = slow
                && dice.one_in(4)
            {
                phase.rate_kib = Some(slow.rate_kib / 4 + 1);
            }
            phase
        })
        .collect();
    if !phases.iter().any(Phase::gets_on) {
        mild.for_us = dice.between(1000, 400_000);
        phases.push(mild);
    }
    phases
}

/// A device whose rate drops and comes back, or whose space shrinks step by step.
fn drops(dice: &mut Dice, slow: Option<&SlowPlan>, mut calm: Phase) -> Vec<Phase> {
    calm.for_us = dice.between(10_000, 2_000_000);
    let mut next = calm.clone();
    if let Some(slow) = slow {
        next.rate_kib = Some(slow.rate_kib / dice.pick(&[2, 4, 64]) + 1);
        vec![calm, next]
    } else {
        let mut space = dice.between(64, 8192);
        let mut phases = vec![calm];
        for _ in 0..3 {
            next.space_kib = Some(space);
            phases.push(next.clone());
            space /= 2;
        }
        phases
    }
}

fn file(dice: &mut Dice, devices: usize) -> FilePlan {
    let pages_max = dice.pick(&[8, 40, 200, 600, 600, 2000]);
    let prefill_pages = if dice.one_in(3) {
        dice.below(pages_max)
    } else {
        0
    };
    FilePlan {
        device: dice.index(devices),
        prefill_pages,
        pages_max,
    }
}

fn small_file(dice: &mut Dice, devices: usize) -> FilePlan {
    FilePlan {
        pages_max: dice.pick(&[4, 16, 40]),
        prefill_pages: dice.pick(&[0, 4]),
        ..file(dice, devices)
    }
}

/// Anonymous memory in every other plan, and where it may go.
fn memory(dice: &mut Dice, frames: u64, devices: usize) -> (Option<SwapPlan>, Vec<RegionPlan>) {
    if dice.one_in(2) {
        return (None, Vec::new());
    }
    let regions: Vec<_> = (0..dice.pick(&[1, 1, 2, 3]))
        .map(|_| RegionPlan {
            pages: dice.pick(&[frames / 8, frames / 2, frames, frames * 3 / 2]) + dice.below(40),
        })
        .collect();
    let all: u64 = regions.iter().map(|region| region.pages).sum();
    let pages = dice.pick(&[0, all / 2, all, all, all, 2 * all, 3 * all]);
    let swap = (pages > 0).then(|| SwapPlan {
        device: dice.index(devices),
        pages,
    });
    (swap, regions)
}

/// A task with memory of its own (`limits`: that may move the limit, where it can be reached): a hog, one that maps and unmaps, one that writes and reads here and there.
fn anon_task(
    dice: &mut Dice,
    regions: &[RegionPlan],
    files: &[FilePlan],
    limits: bool,
) -> TaskPlan {
    let start_us = if dice.one_in(3) {
        dice.between(1, 1_000_000)
    } else {
        0
    };
    let region = dice.index(regions.len());
    let all = regions[region].pages;
    let steps = dice.between(8, 50);
    let piece = all.div_ceil(dice.pick(&[1, 4, 16])).max(1);
    let kind = dice.below(4);
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
            1 if dice.one_in(2) => ops.push(Op::Think {
                us: dice.pick(&[100, 5000, 50_000]),
            }),
            1 => {
                let page = dice.below(all);
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
            _ if dice.one_in(6) => ops.push(walk.mixed(dice)),
            // Chunks of the lab are of 512 frames: below 1024 a limit cannot move.
            _ if limits && dice.one_in(20) => ops.push(Op::Limit {
                frames: dice.pick(&[256, 512, 1024, 2048, 4096]),
            }),
            _ => ops.push(anon_mixed(dice, region, all)),
        }
    }
    TaskPlan {
        start_us,
        served: false,
        ops,
    }
}

fn anon_mixed(dice: &mut Dice, region: usize, all: u64) -> Op {
    let page = dice.below(all);
    let pages = dice.pick(&[1, 1, 3, 16, 200]).min(all - page);
    let (at, len) = if dice.one_in(2) {
        (page * SECTORS, pages * SECTORS)
    } else {
        (page * SECTORS + dice.below(SECTORS), dice.between(1, 20))
    };
    match dice.below(10) {
        0..=3 => Op::Put { region, at, len },
        4..=6 => Op::Get { region, at, len },
        7 | 8 => Op::Touch {
            region,
            page,
            pages,
        },
        // The same numbers say it, so that the dice fall as they did before there were such steps.
        _ if pages == 200 && page.is_multiple_of(3) => Op::Renew { region },
        _ => Op::Discard {
            region,
            page,
            pages,
        },
    }
}

fn task(dice: &mut Dice, files: &[FilePlan]) -> TaskPlan {
    let start_us = if dice.one_in(3) {
        dice.between(1, 1_000_000)
    } else {
        0
    };
    let steps = dice.between(20, 160);
    let mut walk = Walk::new(files);
    let file = dice.index(files.len());
    let kind = dice.below(10);
    let ops = (0..steps)
        .map(|_| match kind {
            // One thing mostly, and a bit of everything.
            0..=5 => walk.mixed(dice),
            _ if dice.one_in(8) => walk.mixed(dice),
            6 => walk.sequential(dice, file),
            7 => walk.light(dice, file),
            8 => walk.overwrite(dice, file),
            _ => walk.reader(dice, file),
        })
        .collect();
    TaskPlan {
        start_us,
        served: false,
        ops,
    }
}

/// Where a task is in its files while its steps are drawn.
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
    fn range(&mut self, dice: &mut Dice, file: usize) -> (u64, u64) {
        let bound = self.files[file].pages_max * SECTORS;
        let len = match dice.below(10) {
            0..=4 => dice.between(1, 3 * SECTORS),
            5..=7 => SECTORS * dice.between(1, 32),
            8 => SECTORS * dice.between(1, 400),
            _ => dice.between(1, 600),
        };
        let len = len.min(bound);
        let mut first = match dice.below(5) {
            0 | 1 => self.at % bound,
            2 => self.cut[file].saturating_sub(dice.below(4 * SECTORS)),
            _ => dice.below(bound),
        };
        if dice.one_in(2) {
            first -= first % SECTORS;
        }
        let first = first.min(bound - len);
        self.at = first + len;
        (first, len)
    }

    fn mixed(&mut self, dice: &mut Dice) -> Op {
        let file = dice.index(self.files.len());
        match dice.below(100) {
            0..=41 => {
                let (at, len) = self.range(dice, file);
                Op::Write { file, at, len }
            }
            42..=63 => {
                let (at, len) = self.range(dice, file);
                Op::Read { file, at, len }
            }
            64..=70 => self.length(dice, file),
            71..=78 => Op::Sync { file },
            79..=82 => {
                let (at, len) = self.range(dice, file);
                Op::SyncRange { file, at, len }
            }
            83..=89 => Op::Hold {
                file,
                page: dice.below(self.files[file].pages_max),
                pages: dice.between(1, 6),
                steps: 1 + dice.index(8),
            },
            90..=92 => Op::Close { file },
            93..=94 => Op::Trim,
            95..=96 => Op::SyncAll,
            _ => match dice.below(30_000) {
                // The same number says where, so that the dice fall as they did before there were holes.
                // And before there were clients that leave.
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

    fn length(&mut self, dice: &mut Dice, file: usize) -> Op {
        let bound = self.files[file].pages_max * SECTORS;
        match dice.below(3) {
            0 => {
                let mut len = dice.below(bound + 1);
                if dice.one_in(2) {
                    len -= len % SECTORS;
                }
                self.cut[file] = len;
                Op::Truncate { file, len }
            }
            // Where the file has something to lose.
            1 => Op::Cut {
                file,
                by: dice.below(80),
            },
            _ => Op::Grow {
                file,
                by: dice.below(bound + 1),
            },
        }
    }

    /// A heavy writer, as dd.
    fn sequential(&mut self, dice: &mut Dice, file: usize) -> Op {
        let bound = self.files[file].pages_max * SECTORS;
        let len = (SECTORS * dice.pick(&[16, 64, 256])).min(bound);
        let at = (self.at % bound).min(bound - len);
        self.at = at + len;
        Op::Write { file, at, len }
    }

    /// A page now and then.
    fn light(&mut self, dice: &mut Dice, file: usize) -> Op {
        if dice.one_in(2) {
            return Op::Think {
                us: dice.pick(&[1000, 10_000]),
            };
        }
        let page = dice.below(self.files[file].pages_max);
        Op::Write {
            file,
            at: page * SECTORS,
            len: SECTORS,
        }
    }

    /// The same few pages again and again, synced at times.
    fn overwrite(&mut self, dice: &mut Dice, file: usize) -> Op {
        let bound = self.files[file].pages_max * SECTORS;
        if dice.one_in(6) {
            return Op::Sync { file };
        }
        let len = dice.between(1, 6 * SECTORS).min(bound);
        let at = dice.below(8 * SECTORS).min(bound - len);
        Op::Write { file, at, len }
    }

    /// Through the file in order, or here and there.
    fn reader(&mut self, dice: &mut Dice, file: usize) -> Op {
        let bound = self.files[file].pages_max * SECTORS;
        let len = (SECTORS * dice.pick(&[1, 8, 32])).min(bound);
        let at = if dice.one_in(4) {
            dice.below(bound)
        } else {
            self.at % bound
        };
        let at = at.min(bound - len);
        self.at = at + len;
        Op::Read { file, at, len }
    }
}
