//! What a seed stands for: machine, cache, devices, files, tasks, faults.

use env::Work;
use lab::CostTable;
use lab::model::{self, Params};
use lab::platter::VolatileCache;
use mm::{DeviceOptions, ErrorPolicy, Options, Populate};
use policy::dirty::{Law, Threshold};
use policy::units::{Nanos, Pages};
use policy::writeback::FlushTunables;

use super::unsteady::Temper;

/// SplitMix64 (Steele, Lea and Flood 2014).
#[derive(Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound.max(1)
    }

    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

pub struct DevicePlan {
    pub params: Params,
    pub cache: VolatileCache,
    pub stable_writes: bool,
    pub options: DeviceOptions,
    /// What is wrong with it all the time, and in bad weather.
    pub mild: Temper,
    pub storm: Temper,
}

impl DevicePlan {
    /// Nothing ever goes wrong: then no call may fail.
    pub fn is_calm(&self) -> bool {
        let calm = |temper: &Temper| {
            temper.write_fails + temper.write_torn + temper.read_fails == 0
                && temper.flush_fails + temper.length_fails + temper.full == 0
        };
        calm(&self.mild) && calm(&self.storm)
    }
}

pub struct FilePlan {
    pub device: usize,
    pub prefill: Pages,
    /// Writes and truncates stay below it.
    pub pages_max: u64,
}

pub struct Plan {
    pub seed: u64,
    pub cpus: u32,
    pub hz: u32,
    pub costs: CostTable,
    pub options: Options,
    pub devices: Vec<DevicePlan>,
    pub files: Vec<FilePlan>,
    pub tasks: u64,
    pub steps: u64,
    /// The run is broken off here.
    pub crash_at: Option<Nanos>,
}

impl Plan {
    pub fn draw(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let frames = dice.pick(&[256, 300, 384, 512, 700, 1024, 2048, 4096]);
        let cpus = dice.pick(&[1, 2, 4]);
        let devices: Vec<_> = (0..dice.between(1, 2)).map(|_| device(&mut dice)).collect();
        let files = (0..dice.between(1, 4))
            .map(|_| {
                let pages_max = dice.pick(&[8, 40, 200, 600]);
                let prefill = if dice.one_in(3) {
                    dice.below(pages_max)
                } else {
                    0
                };
                FilePlan {
                    device: dice.below(devices.len() as u64) as usize,
                    prefill: Pages(prefill),
                    pages_max,
                }
            })
            .collect();
        Self {
            seed,
            cpus,
            hz: dice.pick(&[0, 250, 1000]),
            costs: costs(&mut dice),
            options: options(&mut dice, frames, cpus),
            devices,
            files,
            tasks: dice.between(1, 6),
            steps: dice.between(20, 160),
            crash_at: dice
                .one_in(3)
                .then(|| Nanos::micros(dice.between(100, 2_000_000))),
        }
    }

    /// Dirty and writeback pages may exceed the limit by what the writers of one batch each add.
    pub fn batch_slack(&self) -> Pages {
        Pages(256 * (self.tasks + 1))
    }
}

fn costs(dice: &mut Dice) -> CostTable {
    if dice.one_in(4) {
        return CostTable::zero();
    }
    let mut costs = CostTable::zero();
    for work in [
        Work::Call,
        Work::Lookup,
        Work::Copy,
        Work::Alloc,
        Work::Insert,
        Work::Dirty,
        Work::Scan,
    ] {
        costs = costs.with(work, Nanos(dice.below(3000)));
    }
    for work in [
        Work::Balance,
        Work::VisitFile,
        Work::WritePage,
        Work::Submit,
        Work::Free,
        Work::Switch,
    ] {
        costs = costs.with(work, Nanos(dice.below(20_000)));
    }
    costs
}

fn options(dice: &mut Dice, frames: u32, cpus: u32) -> Options {
    let mut options = Options::new(frames, cpus);
    options.dirty.law = dice.pick(&[
        Law::ForegroundWriteback,
        Law::SoftRegion { measured: false },
        Law::SoftRegion { measured: true },
        Law::RateBased,
        Law::RateBased,
    ]);
    let share = dice.between(5, 40) as u8;
    options.dirty.dirty = Threshold::Percent(share);
    options.dirty.background = Threshold::Percent(1 + share / dice.pick(&[2, 3, 5]));
    options.dirty.hz = dice.pick(&[100, 250, 1000]);
    options.flush = dice.pick(&[
        FlushTunables::tidegate(),
        FlushTunables::linux_2_6_36(),
        FlushTunables::linux_6_12(),
    ]);
    if dice.one_in(2) {
        options.flush.interval = Nanos::millis(dice.between(5, 200));
        options.flush.expire = Nanos::millis(dice.between(10, 500));
    }
    if dice.one_in(4) {
        options.readahead_max = Pages(0);
    }
    options.populate = dice.pick(&[Populate::AsUsed, Populate::AtStart]);
    options.devices_max = 2;
    options.files_max = 16;
    options
}

fn device(dice: &mut Dice) -> DevicePlan {
    let mut params = model::by_name(dice.pick(&[
        "token_bucket",
        "token_bucket",
        "null",
        "ssd",
        "usb_stick",
        "sata2010",
        "nfs",
    ]))
    .unwrap();
    if let Params::TokenBucket(bucket) = &mut params {
        bucket.rate_bytes_per_sec = dice.between(1, 64) << 20;
        bucket.latency_us = dice.pick(&[0, 100, 2000]);
        bucket.depth = dice.pick(&[1, 2, 8]);
        bucket.flush_us = dice.pick(&[0, 500, 20_000]);
        bucket.burst_us = dice.pick(&[0, 50_000]);
    }
    let mut options = DeviceOptions {
        on_error: dice.pick(&[ErrorPolicy::Retry, ErrorPolicy::Report, ErrorPolicy::Stop]),
        retry_after: Nanos::millis(dice.pick(&[1, 10, 100])),
        ..DeviceOptions::default()
    };
    options.tunables.strict = dice.one_in(5);
    let (mild, storm) = tempers(dice);
    DevicePlan {
        params,
        cache: if dice.one_in(8) {
            VolatileCache::Off
        } else {
            VolatileCache::Pages(Pages(1 << 20))
        },
        stable_writes: dice.one_in(5),
        options,
        mild,
        storm,
    }
}

fn tempers(dice: &mut Dice) -> (Temper, Temper) {
    let mut mild = Temper::default();
    if dice.one_in(2) {
        mild.lingers = Nanos::micros(dice.between(10, 20_000));
    }
    let mut storm = mild;
    if dice.one_in(4) {
        return (mild, storm);
    }
    let some = |dice: &mut Dice, one_in: u64, most: u64| {
        if dice.one_in(one_in) {
            dice.between(1, most)
        } else {
            0
        }
    };
    mild.write_fails = some(dice, 2, 100);
    mild.write_torn = some(dice, 2, 100);
    mild.fails_after = Nanos::micros(some(dice, 2, 5000));
    mild.read_fails = some(dice, 3, 60);
    mild.hangs = some(dice, 2, 40);
    mild.hang_max = Nanos::millis(dice.between(1, 300));
    mild.flush_fails = some(dice, 8, 100);
    mild.length_fails = some(dice, 6, 200);
    mild.full = some(dice, 6, 60);
    match dice.below(5) {
        0 => storm.write_fails = 1024,
        1 => storm.stuck = true,
        2 => {
            storm.hangs = 512;
            storm.hang_max = Nanos::secs(2);
        }
        3 => storm.full = 1024,
        _ => storm.read_fails = 1024,
    }
    (mild, storm)
}
