//! A run of the campaign as plain data: machine, cache, devices with their fault phases, files,
//! anonymous memory, tasks.
//!
//! A seed is drawn into a plan (`draw`), a plan is run (`run`), a failing plan is made smaller
//! (`shrink`) and written as a TOML file that a person can read and a test replays. A plan holds
//! everything that is chosen: the only chance left is the devices' and the scheduler's own, and
//! that follows from `seed`. So a plan that was changed by hand is as good as a plan that was
//! drawn.
//!
//! Invariants
//!   1. `Plan::from_toml(plan.to_toml())` is the plan.
//!   2. A plan that passes `check` can be run: what it names exists, what it numbers is in range.
//!   3. Files of another `VERSION` are refused: a step may have changed its meaning.
//!
//! Source: style T5, A9; TigerBeetle's and SQLite's fuzzers keep failures as data, too.

use std::collections::BTreeMap;

use device::{BytesPerSec, FaultPlan, Odds, SlowOptions};
use env::Work;
use history::shrink::ShrinkRule;
use mm::{Apart, DeviceOptions, ErrorPolicy, Options, Populate};
use policy::dirty::{DeviceTunables, InitialBandwidth, Law, Threshold};
use policy::reclaim::boost::BoostRule;
use policy::reclaim::{Loops, ReclaimLaw, Tunables};
use policy::units::{Bytes, Nanos, Pages};
use policy::writeback::{Flight, FlushTunables, Slice, SwapRoom};
use serde::{Deserialize, Serialize};
use world::CostTable;
use world::model::{self, Params};

use crate::op::Op;

/// Version of the files.
pub const VERSION: u32 = 1;
/// Frames of the smallest limit.
const LIMIT_LEAST: u64 = 256;

/// The name that a file gives a law of reclaim: words joined as all names of plans are.
pub(crate) fn reclaim_name(law: ReclaimLaw) -> String {
    law.name.replace('_', "-")
}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Version of the file.
    pub version: u32,
    /// Of the chance that the lab and its devices draw.
    pub seed: u64,
    /// A note for a reader of the file: the point of the plan.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Its failure when it was written; a regression test has it pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedAs>,
    /// The run is broken off here, and the power fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crash_at_us: Option<u64>,
    /// The steps of a second cache on the data that survived a loss of power after the run; none:
    /// no second cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_power_loss: Option<Vec<Op>>,
    /// Options that contradict each other: the cache must refuse each, by its typed error.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Contradiction>,
    /// The machine.
    pub machine: Machine,
    /// The cache.
    pub cache: CachePlan,
    /// The swap file; none: anonymous memory has nowhere to go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap: Option<SwapPlan>,
    /// Devices.
    #[serde(rename = "device")]
    pub devices: Vec<DevicePlan>,
    /// Files.
    #[serde(rename = "file")]
    pub files: Vec<FilePlan>,
    /// Regions of anonymous memory.
    #[serde(default, rename = "region", skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<RegionPlan>,
    /// Caches of objects on slab pages; none: there are no slabs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<ObjectsPlan>,
    /// Tasks.
    #[serde(default, rename = "task", skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskPlan>,
}

/// Caches of objects, and what their slabs do to free memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectsPlan {
    /// Name of the way in which they are asked for their share.
    pub shrink: String,
    /// Name of the way in which mobilities fall back on each other's free lists; none: they have
    /// the same ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    /// Name of what follows where pageblocks are mixed by that.
    pub boost: String,
}

/// The failure of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailedAs {
    /// The kind of failure, which shrinking keeps.
    pub kind: String,
    /// The first line of what it said.
    pub message: String,
}

/// The simulated machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// CPUs.
    pub cpus: u32,
    /// Ticks a second at which waits end; 0: exactly.
    pub hz: u32,
    /// The cost of work, in nanoseconds a unit; work that is not named costs nothing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub costs_ns: BTreeMap<String, u64>,
}

/// The cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CachePlan {
    /// Frames.
    pub frames: u32,
    /// Name of the law.
    pub law: String,
    /// Ticks a second of the law.
    pub law_hz: u32,
    /// Dirty limit.
    pub dirty: Limit,
    /// Background limit.
    pub background: Limit,
    /// Largest read-ahead window, in pages.
    pub readahead_pages: u64,
    /// Name of the variant of throttling in reclaim.
    #[serde(
        default = "reclaim_default",
        skip_serializing_if = "is_reclaim_default"
    )]
    pub reclaim: String,
    /// `vm.swappiness`.
    #[serde(
        default = "swappiness_default",
        skip_serializing_if = "is_swappiness_default"
    )]
    pub swappiness: u8,
    /// Frames get their memory when the cache is built.
    pub populate_at_start: bool,
    /// The flusher.
    pub flush: FlushPlan,
}

/// A limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Per cent of dirtyable memory.
    Percent(u8),
    /// Pages.
    Pages(u64),
}

/// The flusher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlushPlan {
    /// Time that data may stay dirty.
    pub expire_us: u64,
    /// Interval at which the flusher looks for it; 0: never.
    pub interval_us: u64,
    /// Pages of a slice; none: by bandwidth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice_pages: Option<u64>,
    /// Bound of the flight in device time; none: in requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flight_us: Option<u64>,
    /// Bound of the flight in requests, where it is not one of time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flight_requests: Option<u32>,
    /// The flight is bounded as Linux throttles writeback: by the device's queue, where it tells of
    /// one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub flight_by_queue: bool,
    /// There, the background reclaimer's writes to the swap file have a room of their own.
    #[serde(default, skip_serializing_if = "is_default")]
    pub swap_room_apart: bool,
    /// Pages of a request at most.
    pub request_max_pages: u64,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DevicePlan {
    /// Name of the lab's model.
    pub model: String,
    /// Its parameters where they are not the model's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, u64>,
    /// Completed writes are volatile until flushed.
    pub write_cache: bool,
    /// Pages must not change while they are written.
    pub stable_writes: bool,
    /// The answer to writers when writes fail: retry, report, stop.
    pub on_error: OnError,
    /// First wait before a failed write is tried again.
    pub retry_after_us: u64,
    /// Its own limits hold even when the global ones are far.
    pub strict: bool,
    /// Least share, in 1/10000.
    pub min_ratio: u32,
    /// Largest share, in 1/10000.
    pub max_ratio: u32,
    /// It is taken for 100 MiB/s at first; otherwise its first completions say.
    pub assumed_fast: bool,
    /// Its files are given their length ahead of the writes, as those of a file system are, from so
    /// much space on (`DeviceInfo::grow_ahead`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grow_ahead_kib: Option<u64>,
    /// Its files follow a log, which is durable so long after it is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_lag_us: Option<u64>,
    /// `device::Slow` around it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow: Option<SlowPlan>,
    /// `device::Volatile` around it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volatile: Option<VolatilePlan>,
    /// Its fault phases: one after the other, again from the first after the last. None: fair.
    #[serde(default, rename = "phase", skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Phase>,
}

/// Error policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "those of mm::ErrorPolicy")]
pub enum OnError {
    Retry,
    Report,
    Stop,
}

/// A slow layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlowPlan {
    /// KiB a second.
    pub rate_kib: u64,
    /// KiB that an idle device saves.
    pub burst_kib: u64,
    /// Latency of each request.
    pub latency_us: u64,
    /// Requests in service.
    pub depth: usize,
}

/// A volatile layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolatilePlan {
    /// Pages of the cache.
    pub pages: u32,
    /// Of a thousand unflushed pages, this many survive a loss of power.
    pub survives_permille: u32,
}

/// The behaviour of a device for a while. Chances are in thousandths of the requests of their kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Phase {
    /// Its length.
    pub for_us: u64,
    /// Everything hangs until the phase ends.
    #[serde(skip_serializing_if = "is_default")]
    pub hung: bool,
    /// The slow layer's rate, if it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_kib: Option<u64>,
    /// Space that objects may take in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub space_kib: Option<u64>,
    /// Reads that fail.
    #[serde(skip_serializing_if = "is_default")]
    pub read_fails: u32,
    /// Writes that fail.
    #[serde(skip_serializing_if = "is_default")]
    pub write_fails: u32,
    /// Writes of which a part arrives.
    #[serde(skip_serializing_if = "is_default")]
    pub write_torn: u32,
    /// Flushes that fail.
    #[serde(skip_serializing_if = "is_default")]
    pub flush_fails: u32,
    /// Changes of length that fail.
    #[serde(skip_serializing_if = "is_default")]
    pub length_fails: u32,
    /// Writes and allocations that find no space.
    #[serde(skip_serializing_if = "is_default")]
    pub no_space: u32,
    /// Requests that hang.
    #[serde(skip_serializing_if = "is_default")]
    pub hangs: u32,
    /// Time for which they do.
    #[serde(skip_serializing_if = "is_default")]
    pub hang_us: u64,
    /// Time that failing takes.
    #[serde(skip_serializing_if = "is_default")]
    pub fails_after_us: u64,
    /// Flushes and metadata operations take up to so much longer.
    #[serde(skip_serializing_if = "is_default")]
    pub lingers_us: u64,
    /// The device is opened again at the end of the phase, which ends a stop after an error.
    #[serde(skip_serializing_if = "is_default")]
    pub reopen: bool,
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilePlan {
    /// Number of its device.
    pub device: usize,
    /// Pages that are there at the start.
    pub prefill_pages: u64,
    /// Writes and lengths stay below it.
    pub pages_max: u64,
}

/// The swap file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwapPlan {
    /// Number of its device.
    pub device: usize,
    /// Slots.
    pub pages: u64,
}

/// A region of anonymous memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegionPlan {
    /// Its length.
    pub pages: u64,
}

/// A task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskPlan {
    /// When it comes.
    pub start_us: u64,
    /// It does not wait in its reads and writes: it is stuck, and others wait for it; it is held by
    /// deadlines.
    #[serde(default, skip_serializing_if = "is_default")]
    pub served: bool,
    /// Its steps; after them it ends.
    pub ops: Vec<Op>,
}

/// Options that a cache must refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Contradiction {
    /// So few frames that no cache works.
    Frames(u32),
    /// A dirty limit of more than all memory, in per cent.
    DirtyPercent(u8),
    /// A background limit of more than all memory, in per cent.
    BackgroundPercent(u8),
    /// A law that never ticks, or too often.
    LawHz(u32),
    /// A cache for no CPU.
    Cpus(u32),
    /// A device whose least share is above its largest.
    MinRatioAbove(u32),
    /// A device with a share of more than all, in 1/10000.
    MaxRatio(u32),
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Files that say nothing use the cache's own.
fn reclaim_default() -> String {
    "tidegate".into()
}

fn is_reclaim_default(name: &str) -> bool {
    name == "tidegate"
}

const fn swappiness_default() -> u8 {
    60
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
const fn is_swappiness_default(value: &u8) -> bool {
    *value == 60
}

impl Plan {
    /// The text of its file.
    ///
    /// # Panics
    /// Never: every plan has a text.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a plan is made of tables, numbers below 2^63 and text")
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It is no plan, of another version, or names what is not there; with the place.
    pub fn from_toml(text: &str) -> Result<Self, String> {
        let plan: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        plan.check()?;
        Ok(plan)
    }

    /// Checks that it can be run.
    ///
    /// # Errors
    /// The value that is wrong, and what is allowed.
    pub fn check(&self) -> Result<(), String> {
        if self.version != VERSION {
            return Err(format!(
                "version {} of the scenario; this program reads version {VERSION}",
                self.version
            ));
        }
        self.cache.law()?;
        self.cache.reclaim_law()?;
        if let Some(objects) = &self.objects {
            objects.rules()?;
        }
        self.costs()?;
        for (number, device) in self.devices.iter().enumerate() {
            device
                .params()
                .map_err(|error| format!("device {number}: {error}"))?;
        }
        for (number, device) in self.devices.iter().enumerate() {
            if !device.phases.is_empty() && !device.phases.iter().any(Phase::gets_on) {
                return Err(format!(
                    "device {number} never works: its writers could wait for ever; a phase of it \
                     has to leave some writes, reads, flushes and lengths alone"
                ));
            }
        }
        let bad = |what: &str, number: usize, allowed: usize| {
            Err(format!("there is no {what} {number}; there are {allowed}"))
        };
        if self.devices.is_empty() || self.files.is_empty() {
            return Err("a run needs at least one device and one file".into());
        }
        for file in &self.files {
            if file.device >= self.devices.len() {
                return bad("device", file.device, self.devices.len());
            }
            if file.pages_max == 0
                || file.pages_max > 1 << 24
                || file.prefill_pages > file.pages_max
            {
                return Err(format!(
                    "a file of {} pages with {} at the start: 1 to 2^24, and no more at the start",
                    file.pages_max, file.prefill_pages
                ));
            }
        }
        if let Some(swap) = self.swap {
            if swap.device >= self.devices.len() {
                return bad("device", swap.device, self.devices.len());
            }
            if !(1..=1 << 24).contains(&swap.pages) {
                return Err(format!("a swap file of {} pages: 1 to 2^24", swap.pages));
            }
        }
        if let Some(region) = self
            .regions
            .iter()
            .find(|region| !(1..=1 << 24).contains(&region.pages))
        {
            return Err(format!("a region of {} pages: 1 to 2^24", region.pages));
        }
        let ops = self.tasks.iter().flat_map(|task| &task.ops);
        for op in ops.chain(self.after_power_loss.iter().flatten()) {
            if let Some(file) = op.file()
                && file >= self.files.len()
            {
                return bad("file", file, self.files.len());
            }
            if let Some(region) = op.region()
                && region >= self.regions.len()
            {
                return bad("region", region, self.regions.len());
            }
        }
        Ok(())
    }

    /// Dirty and writeback pages may exceed the limit by what the writers of one batch each add.
    pub(crate) fn batch_slack(&self) -> Pages {
        Pages(256 * (self.tasks.len() as u64 + 1))
    }

    /// Pages of anonymous memory, if all of it is used.
    pub(crate) fn anon_pages(&self) -> u64 {
        self.regions.iter().map(|region| region.pages).sum()
    }

    /// True if nobody may be refused memory: the regions' pages fit the swap file and its device
    /// never fails, or they fit a small part of memory.
    ///
    /// In Linux a full swap file ends the scan of anonymous pages, those included that are in
    /// memory and have a slot; so there it has to have room for a memory more.
    pub(crate) fn memory_suffices(&self) -> bool {
        let mut ops = self.tasks.iter().flat_map(|task| &task.ops);
        if ops.any(|op| matches!(op, Op::Renew { .. })) {
            // The old ones may be there for as long as others are in them.
            return false;
        }
        let anon = self.anon_pages();
        let spare = if self.cache.reclaim == "tidegate" {
            0
        } else {
            u64::from(self.cache.frames)
        };
        let swaps = self.options().reclaim.swaps();
        let fits_swap = self
            .swap
            .is_some_and(|swap| swap.pages >= anon + spare && self.devices[swap.device].is_calm());
        swaps && fits_swap || anon <= LIMIT_LEAST / 8
    }

    pub(crate) fn options(&self) -> Options {
        let cache = &self.cache;
        let mut options = Options::new(cache.frames, self.machine.cpus);
        options.dirty.law = cache.law().expect("a plan is checked before it is run");
        options.dirty.hz = cache.law_hz;
        options.dirty.dirty = cache.dirty.threshold();
        options.dirty.background = cache.background.threshold();
        options.flush = cache.flush.tunables();
        options.reclaim = Tunables {
            swappiness: cache.swappiness,
            ..Tunables::of(
                cache
                    .reclaim_law()
                    .expect("a plan is checked before it is run"),
                cache.law_hz,
            )
        };
        options.readahead_max = Pages(cache.readahead_pages);
        options.populate = if cache.populate_at_start {
            Populate::AtStart
        } else {
            Populate::AsUsed
        };
        if let Some(objects) = &self.objects {
            let rules = objects.rules().expect("a plan is checked before it is run");
            (_, options.apart, options.boost) = rules;
            // A boost is worked off by reclaim over nodes.
            if options.reclaim.law.loops == Loops::Zones {
                options.boost = history::boost::LINUX_4_20;
            }
        }
        options.devices_max = 4;
        options.files_max = 16;
        options
    }

    /// The parts of a kernel that its cache has.
    pub(crate) fn parts(&self) -> kernel::Parts {
        let mut parts = kernel::Parts::default();
        if let Some(objects) = &self.objects {
            let rules = objects.rules().expect("a plan is checked before it is run");
            parts.shrink = rules.0;
        }
        parts
    }

    /// The cost of work under the plan's laws.
    ///
    /// # Errors
    /// The value that is wrong, and what is allowed.
    pub(crate) fn costs(&self) -> Result<CostTable, String> {
        let costs = self.machine.costs()?;
        let reclaim = Tunables::of(self.cache.reclaim_law()?, self.machine.hz);
        Ok(if reclaim.allocates_singly() {
            costs.with_frames_alone()
        } else {
            costs
        })
    }
}

impl ObjectsPlan {
    /// The rules that it names.
    ///
    /// # Errors
    /// The value that is wrong, and what is allowed.
    pub(crate) fn rules(&self) -> Result<(ShrinkRule, Option<Apart>, BoostRule), String> {
        fn found<T>(what: &str, name: &str, rule: Option<T>) -> Result<T, String> {
            rule.ok_or_else(|| format!("there is no {what} `{name}`: see history's tables"))
        }
        let fallback = self.fallback.as_deref().map(|name| {
            let rule = history::fallback::by_name(name);
            // Pageblocks of eight frames: the memories of plans are small.
            found("way to fall back", name, rule).map(|rule| Apart::of(rule, 64))
        });
        Ok((
            found(
                "way to ask caches",
                &self.shrink,
                ShrinkRule::by_name(&self.shrink),
            )?,
            fallback.transpose()?,
            found(
                "way to boost",
                &self.boost,
                history::boost::by_name(&self.boost),
            )?,
        ))
    }
}

impl Machine {
    fn costs(&self) -> Result<CostTable, String> {
        let mut costs = CostTable::zero();
        for (name, nanos) in &self.costs_ns {
            let work = Work::ALL
                .into_iter()
                .find(|work| work_name(*work) == *name)
                .ok_or_else(|| {
                    let known: Vec<_> = Work::ALL.into_iter().map(work_name).collect();
                    format!("there is no work `{name}`; there is {}", known.join(", "))
                })?;
            costs = costs.with(work, Nanos(*nanos));
        }
        Ok(costs)
    }
}

/// Name of a kind of work in a file.
pub(crate) fn work_name(work: Work) -> String {
    format!("{work:?}").to_lowercase()
}

impl CachePlan {
    /// The law of that name.
    ///
    /// # Errors
    /// There is none.
    pub fn law(&self) -> Result<Law, String> {
        history::dirty::by_name(&self.law).ok_or_else(|| {
            let known: Vec<_> = history::dirty::ALL.iter().map(|law| law.name).collect();
            format!(
                "there is no law `{}`; there are {}",
                self.law,
                known.join(", ")
            )
        })
    }
}

impl CachePlan {
    /// The variant of throttling in reclaim of that name.
    ///
    /// # Errors
    /// There is none.
    pub fn reclaim_law(&self) -> Result<ReclaimLaw, String> {
        let mut all = history::reclaim::ALL.iter().copied();
        let found = all.find(|law| reclaim_name(*law) == self.reclaim);
        found.ok_or_else(|| {
            let known: Vec<_> = history::reclaim::ALL
                .iter()
                .copied()
                .map(reclaim_name)
                .collect();
            format!(
                "there is no throttling `{}` in reclaim; there are {}",
                self.reclaim,
                known.join(", ")
            )
        })
    }
}

impl Limit {
    const fn threshold(self) -> Threshold {
        match self {
            Self::Percent(percent) => Threshold::Percent(percent),
            Self::Pages(pages) => Threshold::Pages(Pages(pages)),
        }
    }
}

impl FlushPlan {
    /// The flusher of these tunables.
    #[must_use]
    pub fn of(flush: &FlushTunables) -> Self {
        let (flight_us, flight_requests) = match flush.flight {
            Flight::DeviceTime(time) => (Some(time.0 / 1000), None),
            Flight::Requests(requests)
            | Flight::Throttled {
                untold: requests, ..
            } => (None, Some(requests)),
        };
        Self {
            expire_us: flush.expire.0 / 1000,
            interval_us: flush.interval.0 / 1000,
            slice_pages: match flush.slice {
                Slice::Fixed(pages) => Some(pages.0),
                Slice::Bandwidth => None,
            },
            flight_us,
            flight_requests,
            flight_by_queue: matches!(flush.flight, Flight::Throttled { .. }),
            swap_room_apart: matches!(
                flush.flight,
                Flight::Throttled {
                    swap_room: SwapRoom::Background,
                    ..
                }
            ),
            request_max_pages: flush.request_max.0,
        }
    }

    fn tunables(&self) -> FlushTunables {
        FlushTunables {
            expire: Nanos::micros(self.expire_us),
            interval: Nanos::micros(self.interval_us),
            slice: self
                .slice_pages
                .map_or(Slice::Bandwidth, |pages| Slice::Fixed(Pages(pages))),
            flight: match (self.flight_us, self.flight_requests) {
                (Some(us), _) => Flight::DeviceTime(Nanos::micros(us)),
                (None, requests) if self.flight_by_queue => Flight::Throttled {
                    untold: requests.unwrap_or(128),
                    swap_room: if self.swap_room_apart {
                        SwapRoom::Background
                    } else {
                        SwapRoom::Swap
                    },
                },
                (None, requests) => Flight::Requests(requests.unwrap_or(128)),
            },
            request_max: Pages(self.request_max_pages),
        }
    }
}

impl DevicePlan {
    pub(crate) fn params(&self) -> Result<Params, String> {
        let mut params = model::by_name(&self.model).map_err(|error| error.to_string())?;
        for (name, value) in &self.params {
            params
                .set(name, *value)
                .map_err(|error| error.to_string())?;
        }
        Ok(params)
    }

    pub(crate) fn options(&self) -> DeviceOptions {
        DeviceOptions {
            tunables: DeviceTunables {
                min_ratio: self.min_ratio,
                max_ratio: self.max_ratio,
                strict: self.strict,
                initial: if self.assumed_fast {
                    InitialBandwidth::Assumed
                } else {
                    InitialBandwidth::Learned
                },
            },
            on_error: match self.on_error {
                OnError::Retry => ErrorPolicy::Retry,
                OnError::Report => ErrorPolicy::Report,
                OnError::Stop => ErrorPolicy::Stop,
            },
            retry_after: Nanos::micros(self.retry_after_us),
            ..DeviceOptions::default()
        }
    }

    pub(crate) fn slow_options(&self) -> Option<SlowOptions> {
        let slow = self.slow.as_ref()?;
        Some(SlowOptions {
            rate: Some(BytesPerSec(slow.rate_kib << 10)),
            burst: Bytes(slow.burst_kib << 10),
            latency: Nanos::micros(slow.latency_us),
            depth: slow.depth.clamp(1, SlowOptions::DEPTH_MAX),
            ..SlowOptions::default()
        })
    }

    /// Nothing ever goes wrong: then no call may fail.
    pub(crate) fn is_calm(&self) -> bool {
        self.phases.iter().all(Phase::is_calm)
    }

    /// It is calm, and as fast as ever: then the task that writes to it gets on.
    pub(crate) fn is_steady(&self) -> bool {
        self.is_calm()
            && self.phases.iter().all(|phase| {
                !phase.hung && phase.hangs == 0 && phase.rate_kib.is_none() && phase.lingers_us == 0
            })
    }

    /// Bytes a second that it writes at least, whatever the order of its requests.
    pub(crate) fn rate_floor(&self) -> u64 {
        let of_model = match self.params() {
            Ok(Params::Null(_) | Params::Ssd(_)) => 64 << 20,
            // A page a tick of its budget.
            Ok(Params::NullBlk(_)) => 4096 * 50,
            Ok(Params::TokenBucket(bucket)) => {
                // A page at a time, one latency each, at the worst.
                let per_page = bucket.latency_us + (4096 * 1_000_000) / bucket.rate_bytes_per_sec;
                4096 * 1_000_000 / per_page.max(1)
            }
            // A page a seek, a page an erase unit, a page a round trip and a COMMIT.
            Ok(Params::Sata2010(_) | Params::UsbStick(_) | Params::Nfs(_)) | Err(_) => 64 << 10,
        };
        match &self.slow {
            None => of_model,
            Some(slow) => {
                let rate = slow.rate_kib.max(1) << 10;
                let per_page = slow.latency_us + 4096 * 1_000_000 / rate;
                of_model.min(4096 * 1_000_000 / per_page.max(1))
            }
        }
    }
}

impl Phase {
    /// Nothing fails in it; it may take its time.
    pub(crate) fn is_calm(&self) -> bool {
        self.space_kib.is_none()
            && self.read_fails + self.write_fails + self.write_torn + self.flush_fails == 0
            && self.length_fails + self.no_space == 0
    }

    /// A step that is tried often enough goes well.
    pub(crate) fn gets_on(&self) -> bool {
        let chances = [
            self.read_fails,
            self.write_fails + self.write_torn,
            self.flush_fails,
            self.length_fails,
            self.no_space,
        ];
        let lasts = self.for_us >= 1000 || self.hang_us == 0;
        !self.hung && self.space_kib.is_none() && lasts && chances.iter().all(|one| *one < 500)
    }

    pub(crate) fn faults(&self) -> FaultPlan {
        let odds = |permille: u32| {
            Odds::from_ppb(permille.min(1000) * 1_000_000).expect("at most a thousand thousandths")
        };
        FaultPlan {
            eio_reads: odds(self.read_fails),
            eio_writes: odds(self.write_fails),
            torn_writes: odds(self.write_torn),
            flush_fails: odds(self.flush_fails),
            length_fails: odds(self.length_fails),
            no_space: odds(self.no_space),
            full_after: self.space_kib.map(|kib| Bytes(kib << 10)),
            hang: odds(self.hangs),
            hang_for: (self.hangs > 0).then(|| Nanos::micros(self.hang_us.max(1))),
            fails_after: Nanos::micros(self.fails_after_us + 50),
            lingers: Nanos::micros(self.lingers_us),
            ..FaultPlan::default()
        }
    }
}
