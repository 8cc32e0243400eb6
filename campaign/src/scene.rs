//! The parts of a run: the lab's devices with their wrappers, the cache over them, files, and the
//! gauges that say which call takes how long.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use device::{BytesPerSec, FaultPlan, Faulty, FrameCopy, Odds, Slow, Volatile, VolatileOptions};
use env::{Cause, Device, DeviceId, DeviceInfo, Host, IoOp, IoRequest, ObjectId, Task, Wakeup};
use frames::{Content as _, FrameId};
use mm::{Cache, Error, File, Populate, Spill, WriteAhead};
use policy::dirty::DeviceIndex;
use policy::units::{Bytes, Instant, Nanos, Pages};
use world::check::Checker;
use world::fs::Layout;
use world::media::{Media, SharedMedia, VolatileCache};
use world::model::{self, Surroundings};
use world::{EventKind, Lab, LabEnv, Options as LabOptions, Record, Sector, Stamps};

use crate::failure::fail;
use crate::judge;
use crate::maps::Mapped;
use crate::objects::Objects;
use crate::op::{Op, SECTOR, SECTORS};
use crate::plan::{Contradiction, Phase, Plan};
use crate::rng::Rng;

/// Virtual time that a run may take, apart from what reclaim may sleep for all of its pages.
const LONGEST: Instant = Instant(40_000_000_000_000);
/// Steps at one moment of virtual time: far more than a run that gets on ever takes.
const STEPS_MAX: u64 = 1_000_000;
/// Frames that the lab gives memory to together.
const CHUNK: u32 = 512;
/// A call on a device that fails, hangs or changes may take that long; then it is stuck.
const STUCK: Nanos = Nanos::secs(3600);
/// If memory is short, each page may be fetched alone, after all passes of a reclaim, twice over. A
/// pass sleeps for 100 ms where a device holds it up; under 5.16-rc1 the last ten sleep for half a
/// second besides where they free nothing (kernel: `VMSCAN_THROTTLE_NOPROGRESS`), so that all of
/// them sleep 6.3 s, nearly half a second each (seed 109175: 12.3 s a page). A task that sleeps
/// does not see what it has freed, and another takes it: so it is for each page of all calls beside
/// it too.
const PASSES: u64 = 2 * 13;
/// The time that any call on a steady device may take, and how many times the time of the data
/// before it.
const CALL_LEAST: Nanos = Nanos::secs(2);
const CALL_TIMES: u64 = 4;
/// A law may pause after every page where its limits are tiny.
const PAUSE_MAX: Nanos = Nanos::millis(200);
/// Sectors of a cluster of reclaim.
const CLUSTER_SECTORS: u64 = 32 * SECTORS;
/// Where a device may hold fewer pages than that, its writers' turns have no bound.
const TINY: u64 = 64;
/// After a loss of power the survivors reach the device within this.
const SETTLE_MAX: Nanos = Nanos::secs(600);

/// The object of the swap file, on a device where files have the first numbers.
const SWAP_OBJECT: ObjectId = ObjectId(14);
/// Regions have numbers of their own for the checker, beyond those of files: a page of one found in
/// the other is not taken for its own.
const REGION_OBJECTS: u32 = 16;

/// The place of a region of anonymous memory of a run.
pub(crate) struct Memory {
    pub(crate) pages: u64,
    region: Mutex<Option<Region>>,
}

/// The region that has a place now, or had it when a step on it began.
#[derive(Clone)]
pub(crate) struct Region {
    /// Its number for the checker.
    pub(crate) object: ObjectId,
    pub(crate) pages: u64,
    pub(crate) spill: Arc<Spill>,
}

impl Memory {
    /// # Panics
    /// If the region has been dropped: a failure of the run.
    pub(crate) fn region(&self) -> Region {
        let region = self.region.lock().unwrap_or_else(PoisonError::into_inner);
        region
            .clone()
            .unwrap_or_else(|| fail("lab", "a region that should be there is gone"))
    }

    /// Puts another region in the place, or none, and answers the region that was there.
    pub(crate) fn replace(&self, region: Option<Region>) -> Option<Region> {
        let mut place = self.region.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *place, region)
    }
}

/// A device of a run.
pub(crate) struct DeviceState {
    pub(crate) index: DeviceIndex,
    pub(crate) layers: Layers,
    pub(crate) media: SharedMedia,
    pub(crate) checker: Mutex<Checker>,
    /// Nothing may fail on it.
    pub(crate) calm: bool,
    /// And it is as fast as ever.
    steady: bool,
    /// Bytes a second that it writes at least.
    floor: u64,
    /// Largest share of the limit, in 1/10000.
    max_ratio: u32,
    /// A flush has failed: nobody uses it until it is opened again.
    pub(crate) flush_failed: AtomicBool,
}

/// Notes which objects of a device were flushed since they were opened. The outermost layer: what
/// it says of itself is what the cache hears.
pub(crate) struct Flushes {
    inner: Arc<dyn Device>,
    grow_ahead: Option<Bytes>,
    /// The log that its files follow.
    pub(crate) log: Option<Arc<Log>>,
    flushed: Mutex<BTreeSet<u32>>,
}

type Numbers = BTreeMap<(ObjectId, u64, Sector), u64>;

/// A log that pages wait for: no sector of a write with a number comes to the device before it.
pub(crate) struct Log {
    pub(crate) ahead: Arc<WriteAhead>,
    stamps: Arc<Stamps>,
    last: AtomicU64,
    /// By object, the place in it, and what was written there: stamps of two places may be equal.
    numbers: Mutex<Numbers>,
}

impl Log {
    fn new(host: Arc<dyn Host>, stamps: Arc<Stamps>, lag: Nanos) -> Arc<Self> {
        let ahead = Arc::new_cyclic(|ahead: &Weak<WriteAhead>| {
            let ahead = Weak::clone(ahead);
            WriteAhead::new(move |lsn| {
                let ahead = Weak::clone(&ahead);
                let durable = move |_: &env::Interrupt| {
                    if let Some(ahead) = ahead.upgrade() {
                        ahead.durable(lsn);
                    }
                };
                host.after(lag, Box::new(durable));
            })
        });
        Arc::new(Self {
            ahead,
            stamps,
            last: AtomicU64::new(0),
            numbers: Mutex::default(),
        })
    }

    fn cell(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a write of these, from sector `first` of an object on.
    pub(crate) fn number(&self, object: ObjectId, first: u64, data: &[Sector]) -> u64 {
        let lsn = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let places = (first..).zip(data);
        let numbers = places.map(|(at, sector)| ((object, at, *sector), lsn));
        self.cell().extend(numbers);
        lsn
    }

    fn look_at(&self, request: &IoRequest) {
        let (numbers, durable) = (self.cell(), self.ahead.durable_lsn());
        let mut places = request.offset.0 / SECTOR..;
        for frame in &request.frames {
            let page = self.stamps.load(*frame);
            let sectors = places.by_ref().zip(page.iter());
            let newest = sectors
                .filter_map(|(at, sector)| numbers.get(&(request.object, at, *sector)))
                .max();
            judge!(
                newest.is_none_or(|lsn| *lsn <= durable),
                "ahead-of-its-log",
                "{request:?} has {newest:?}, the log is at {durable}"
            );
        }
    }
}

impl Flushes {
    fn cell(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.flushed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object is open from now on.
    pub(crate) fn opened(&self, object: ObjectId) {
        self.cell().remove(&object.0);
    }

    /// A file that was opened follows the log, if there is one.
    pub(crate) fn lead(&self, task: &Task<'_>, file: &File) {
        if let Some(log) = &self.log {
            file.follow(task, &log.ahead)
                .unwrap_or_else(|error| fail("unexpected-error", format!("a log: {error}")));
        }
    }

    /// True if a flush of it has reached the device since.
    pub(crate) fn has(&self, object: ObjectId) -> bool {
        self.cell().contains(&object.0)
    }
}

impl Device for Flushes {
    fn submit(&self, request: Box<IoRequest>) {
        if let Some(log) = self.log.as_ref().filter(|_| request.op == IoOp::Write) {
            log.look_at(&request);
        }
        if request.op == IoOp::Flush {
            self.cell().insert(request.object.0);
        }
        self.inner.submit(request);
    }

    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            grow_ahead: self.grow_ahead,
            ..self.inner.info()
        }
    }
}

/// The wrappers around a device.
pub(crate) struct Layers {
    pub(crate) faulty: Arc<Faulty>,
    slow: Option<Arc<Slow>>,
    volatile: Option<Arc<Volatile>>,
    rate: Option<BytesPerSec>,
    pub(crate) flushes: Arc<Flushes>,
    /// Unflushed pages that losses of power took.
    pub(crate) pages_lost: AtomicU64,
}

impl Layers {
    /// Sets the faults of the phase, from now on.
    pub(crate) fn set(&self, phase: &Phase) {
        self.faulty.set_plan(phase.faults());
        if phase.hung {
            self.faulty.hold();
        }
        if let Some(slow) = &self.slow {
            let other = phase.rate_kib.map(|kib| BytesPerSec(kib.max(1) << 10));
            slow.set_rate(other.or(self.rate));
        }
    }

    /// Nothing goes wrong any more.
    pub(crate) fn heal(&self) {
        self.faulty.set_plan(FaultPlan::default());
        self.faulty.release();
        if let Some(slow) = &self.slow {
            slow.set_rate(self.rate);
        }
    }

    /// The power of a volatile layer fails; ends when its survivors are on the device. `again`: and
    /// comes back.
    pub(crate) fn lose_power(&self, task: &mut Task<'_>, again: bool) {
        let Some(volatile) = &self.volatile else {
            return;
        };
        let lost = volatile.crash() as u64;
        self.pages_lost.fetch_add(lost, Ordering::Relaxed);
        let end = task.now() + SETTLE_MAX;
        while !volatile.is_settled() {
            judge!(
                task.now() < end,
                "stuck",
                "survivors of a loss of power do not reach the device"
            );
            if task.sleep(Cause::Think, Nanos::millis(1)) == Wakeup::Cancelled {
                return;
            }
        }
        if again {
            volatile.restart();
        }
    }
}

impl DeviceState {
    pub(crate) fn checker(&self) -> MutexGuard<'_, Checker> {
        self.checker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn media(&self) -> MutexGuard<'_, Media> {
        self.media.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Data that a sync has acknowledged would survive the loss of all that is volatile.
    pub(crate) fn check_durable(&self) {
        let verdict = self.checker().check_durable(&self.media());
        if let Err(violation) = verdict {
            fail("not-durable", violation.to_string());
        }
    }

    /// The power fails: what survives is for the checker to judge.
    pub(crate) fn crash_media(&self, seed: u64) {
        let mut media = self.media();
        let mut rng = Rng::new(seed);
        media.crash(|| rng.roll());
        if let Err(violation) = self.checker().on_crash(&media) {
            fail("lost-in-crash", violation.to_string());
        }
    }
}

/// A file of a run.
pub(crate) struct Slot {
    pub(crate) place: usize,
    pub(crate) object: ObjectId,
    pub(crate) pages_max: u64,
    pub(crate) file: Mutex<Option<Arc<File>>>,
    map: Mutex<Option<Arc<Mapped>>>,
    /// Tasks inside a call on it, which a close waits for.
    users: AtomicU32,
    pub(crate) closing: AtomicBool,
    /// End of the furthest write that went well, in bytes; none once a truncate or failure made it
    /// uncertain.
    reach: Mutex<Option<u64>>,
}

impl Slot {
    fn new(place: usize, object: ObjectId, pages_max: u64, len: u64) -> Self {
        Self {
            place,
            object,
            pages_max,
            file: Mutex::new(None),
            map: Mutex::new(None),
            users: AtomicU32::new(0),
            closing: AtomicBool::new(false),
            reach: Mutex::new(Some(len)),
        }
    }

    fn reach_cell(&self) -> MutexGuard<'_, Option<u64>> {
        self.reach.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn reach(&self) -> Option<u64> {
        *self.reach_cell()
    }

    pub(crate) fn reached(&self, end: u64) {
        if let Some(reach) = self.reach_cell().as_mut() {
            *reach = (*reach).max(end);
        }
    }

    /// Its furthest write is known from elsewhere from now on.
    pub(crate) fn forget_reach(&self) {
        *self.reach_cell() = None;
    }

    pub(crate) fn file_cell(&self) -> MutexGuard<'_, Option<Arc<File>>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn map_cell(&self) -> MutexGuard<'_, Option<Arc<Mapped>>> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its map, which it gets if it has none; the last task that is in it ends it.
    pub(crate) fn mapped(
        &self,
        task: &Task<'_>,
        stamps: &Arc<Stamps>,
        file: &File,
    ) -> Result<Arc<Mapped>, Error> {
        if let Some(mapped) = &*self.map_cell() {
            return Ok(Arc::clone(mapped));
        }
        let mapped = Mapped::new(task, file, Pages(self.pages_max), Arc::clone(stamps))?;
        let mapped = Arc::new(mapped);
        *self.map_cell() = Some(Arc::clone(&mapped));
        Ok(mapped)
    }

    /// Its map, if it has one.
    pub(crate) fn map(&self) -> Option<Arc<Mapped>> {
        self.map_cell().clone()
    }

    pub(crate) fn unmap(&self) {
        let mapped = self.map_cell().take();
        drop(mapped);
    }

    /// # Panics
    /// If it is closed: a failure of the run.
    pub(crate) fn open_file(&self) -> Arc<File> {
        let file = self.file_cell().clone();
        file.unwrap_or_else(|| fail("lab", "a file that should be open is closed"))
    }

    pub(crate) fn begin(&self) -> Option<Arc<File>> {
        if self.closing.load(Ordering::Relaxed) {
            return None;
        }
        let file = self.file_cell().clone()?;
        self.users.fetch_add(1, Ordering::Relaxed);
        Some(file)
    }

    pub(crate) fn end(&self) {
        self.users.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn is_unused(&self) -> bool {
        self.users.load(Ordering::Relaxed) == 0
    }
}

/// Which call a task is in, since when, and how long it may take.
#[derive(Default)]
pub(crate) struct Gauge {
    /// In nanoseconds and one more; 0: in none.
    began: AtomicU64,
    allowed: AtomicU64,
    /// Pages of calls that had ended before it.
    pages_before: AtomicU64,
    op: AtomicUsize,
    steady: AtomicBool,
}

/// The bounds of a call.
#[derive(Clone, Copy)]
pub(crate) struct Allowed {
    pub(crate) time: Nanos,
    pub(crate) steady: bool,
}

impl Gauge {
    pub(crate) fn begin(&self, now: Instant, op: usize, allowed: Allowed, pages_before: u64) {
        self.allowed.store(allowed.time.0, Ordering::Relaxed);
        self.pages_before.store(pages_before, Ordering::Relaxed);
        self.op.store(op, Ordering::Relaxed);
        self.steady.store(allowed.steady, Ordering::Relaxed);
        self.began.store(now.0 + 1, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.began.store(0, Ordering::Relaxed);
    }

    /// The complaint if the call has taken longer than it may: the kind of failure, and the words.
    pub(crate) fn overdue(
        &self,
        now: Instant,
        ops: &[Op],
        world: &World,
    ) -> Option<(&'static str, String)> {
        let began = self.began.load(Ordering::Relaxed);
        let pages = world.pages_asked.load(Ordering::Relaxed);
        let pages = pages - self.pages_before.load(Ordering::Relaxed);
        let slept = world.sleeps_a_page.0.saturating_mul(pages);
        let allowed = self.allowed.load(Ordering::Relaxed) + slept;
        if began == 0 || now.0.saturating_sub(began - 1) <= allowed {
            return None;
        }
        let op = ops[self.op.load(Ordering::Relaxed)];
        let steady = self.steady.load(Ordering::Relaxed);
        let kind = match op {
            Op::Write { .. } if steady => "starvation",
            _ => "stuck",
        };
        let millis = allowed / 1_000_000;
        Some((
            kind,
            format!("in `{op}` for more than the {millis} ms that it may take"),
        ))
    }
}

pub(crate) struct World {
    pub(crate) cache: Arc<Cache>,
    pub(crate) stamps: Arc<Stamps>,
    pub(crate) places: Vec<DeviceState>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) regions: Vec<Memory>,
    pub(crate) objects: Option<Objects>,
    /// The checker's number for the next region.
    pub(crate) next_region: AtomicU32,
    /// Of the regions.
    pub(crate) anon_checker: Mutex<Checker>,
    /// The swap file's device.
    pub(crate) swap_place: Option<usize>,
    /// Nobody may be refused memory.
    pub(crate) memory_suffices: bool,
    /// Calls that were refused memory, as they may be (`is_refusal`).
    pub(crate) refusals: AtomicU64,
    pub(crate) gauges: Vec<Gauge>,
    /// Pages that calls have asked for so far, and those of calls that have ended.
    pub(crate) pages_asked: AtomicU64,
    pub(crate) pages_ended: AtomicU64,
    /// The devices stay healed.
    pub(crate) fair: AtomicBool,
    /// The power has failed: whatever ends in an error from now on may.
    pub(crate) dark: AtomicBool,
    /// Longest call on a steady device, in thousandths of what it may take.
    pub(crate) longest_share: AtomicU64,
    /// Tasks say what they do.
    pub(crate) say: bool,
    dirty_limit: Pages,
    writers: u64,
    /// Only under some laws does a device that stands still leave the writers of others alone.
    isolates: bool,
    law: String,
    /// Time for which reclaim may hold a writer up for each cluster of pages that it needs.
    throttled_a_cluster: Nanos,
    /// Time that it may sleep for each page where there is anonymous memory.
    sleeps_a_page: Nanos,
    /// Until the periodic flush has written what is dirty now.
    expires: Nanos,
}

impl World {
    /// Time that a writer may pause for a single page, whenever it is its turn. The laws of 2.6.36
    /// and of the paper hold a writer at its limit without starting the flusher: it waits for the
    /// periodic one.
    fn pause_a_page(&self) -> Nanos {
        match self.law.as_str() {
            "tidegate" => Nanos::ZERO,
            "rate-based" => PAUSE_MAX,
            _ => self.expires + PAUSE_MAX,
        }
    }

    /// Under the laws that only pause, the writers of a device that may hold next to nothing look
    /// again every 200 ms, and the task that looks first goes: nothing bounds the turns of a single
    /// one.
    fn has_no_room(&self, place: Option<usize>) -> bool {
        let places = match place {
            Some(at) => &self.places[at..=at],
            None => &self.places,
        };
        let share = places
            .iter()
            .map(|place| place.max_ratio)
            .min()
            .unwrap_or(0);
        let least = self.dirty_limit.0 * u64::from(share) / 10_000;
        self.law != "foreground" && least < TINY
    }

    pub(crate) fn anon_checker(&self) -> MutexGuard<'_, Checker> {
        let checker = self.anon_checker.lock();
        checker.unwrap_or_else(PoisonError::into_inner)
    }

    /// True if a call was refused memory where it may be: then it is counted.
    pub(crate) fn is_refusal(&self, error: &Error) -> bool {
        let refused = matches!(error, Error::OutOfMemory { .. }) && !self.memory_suffices;
        self.refusals
            .fetch_add(u64::from(refused), Ordering::Relaxed);
        refused
    }

    pub(crate) fn is_dark(&self) -> bool {
        self.dark.load(Ordering::Relaxed)
    }

    /// The time that a call that moves `len` sectors of a device's data may take; no device: of
    /// all. Sleeps of reclaim come to it where there is anonymous memory.
    ///
    /// On a steady device: the data that stands before it (a full dirty limit, a batch of every
    /// writer, as much of every other writer's as of its own) at the least rate of the device, a
    /// few times over, and a constant for all that is no transfer.
    pub(crate) fn allowed(&self, place: Option<usize>, len: u64) -> Allowed {
        let others_steady = self.places.iter().all(|place| place.steady);
        let (steady, floor) = match place {
            Some(at) => {
                let own = &self.places[at];
                (own.steady && (others_steady || self.isolates), own.floor)
            }
            None => {
                let floors = self.places.iter().map(|place| place.floor);
                (others_steady, floors.min().unwrap_or(1))
            }
        };
        // A task that needs memory waits for others' pages to be swapped out: for their device, and
        // in reclaim.
        let steady = steady && !self.has_no_room(place) && self.regions.is_empty();
        if !steady {
            return Allowed {
                time: STUCK,
                steady,
            };
        }
        let before = self.dirty_limit.bytes().0 + self.writers * ((1 << 20) + len * SECTOR);
        let worth = u128::from(before) * 1_000_000_000 / u128::from(floor.max(1));
        let worth = u64::try_from(worth).unwrap_or(u64::MAX);
        let pauses = self.pause_a_page().0.saturating_mul(len.div_ceil(SECTORS));
        let time = CALL_LEAST
            .0
            .saturating_add(pauses)
            .saturating_add(
                self.throttled_a_cluster
                    .0
                    .saturating_mul(1 + len / CLUSTER_SECTORS),
            )
            .saturating_add(worth.saturating_mul(CALL_TIMES));
        Allowed {
            time: Nanos(time.min(STUCK.0)),
            steady,
        }
    }
}

/// A device of the lab before it has a place in a cache.
pub(crate) struct Part {
    id: DeviceId,
    info: DeviceInfo,
    layers: Layers,
    media: SharedMedia,
}

pub(crate) fn lab(plan: &Plan) -> Lab {
    let volatile = plan.devices.iter().flat_map(|device| &device.volatile);
    let volatile: u32 = volatile.map(|volatile| volatile.pages).sum();
    let frames = plan.cache.frames.next_multiple_of(CHUNK);
    let record = Record::NONE
        .with(EventKind::BalanceDirtyPages)
        .with(EventKind::Waited)
        .with(EventKind::Throttled);
    let mut lab = Lab::new(LabOptions {
        cpus: plan.machine.cpus,
        hz: plan.machine.hz,
        seed: plan.seed,
        frames: frames + volatile,
        costs: plan.costs().unwrap_or_else(|error| fail("lab", error)),
        record,
    });
    for first in (frames..frames + volatile).step_by(CHUNK as usize) {
        let populated = lab.stamps().populate(FrameId(first));
        populated.unwrap_or_else(|error| fail("lab", format!("{error:?}")));
    }
    let ops = plan.tasks.iter().flat_map(|task| &task.ops);
    let pages = ops.map(Op::pages).sum();
    lab.set_time_limit(LONGEST + reclaim_sleeps(plan, pages));
    lab.set_step_limit(STEPS_MAX);
    lab.set_quiet(true);
    lab
}

struct Copier(Arc<Stamps>);

impl FrameCopy for Copier {
    fn copy_frame(&self, to: FrameId, from: FrameId) {
        self.0.store(to, self.0.load(from));
    }
}

/// The devices; `kept`: what they hold from an earlier life.
pub(crate) fn parts(
    lab: &Lab,
    plan: &Plan,
    setup: &Setup,
    kept: Option<&[SharedMedia]>,
) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut frames = plan.cache.frames.next_multiple_of(CHUNK);
    for (number, device) in plan.devices.iter().enumerate() {
        let media = match kept {
            Some(media) => Arc::clone(&media[number]),
            None if device.write_cache => Media::shared(VolatileCache::Pages(Pages(1 << 20))),
            None => Media::shared(VolatileCache::Off),
        };
        let surroundings = Surroundings {
            host: lab.host(),
            stamps: lab.stamps(),
            media: Arc::clone(&media),
            layout: Layout::plain(),
            stable_writes: device.stable_writes,
        };
        let params = device.params().unwrap_or_else(|error| fail("lab", error));
        let model = model::build(&params, surroundings);
        if kept.is_none() {
            for (object, file) in (0..).map(ObjectId).zip(&plan.files) {
                if file.device == number && file.prefill_pages > 0 {
                    model.prefill(object, Pages(file.prefill_pages), 1);
                }
            }
        }
        let mut outermost: Arc<dyn Device> = Arc::new(model);
        if let Some(plant) = &setup.plant {
            outermost = plant(number, outermost, lab.host());
        }
        let seed = plan.seed ^ (number as u64 + 1) << 48;
        let volatile = device.volatile.as_ref().map(|volatile| {
            let own = (frames..frames + volatile.pages).map(FrameId).collect();
            frames += volatile.pages;
            let options = VolatileOptions {
                seed,
                survives: Odds::from_ppb(volatile.survives_permille.min(1000) * 1_000_000)
                    .unwrap_or(Odds::ALWAYS),
                ..VolatileOptions::default()
            };
            let copier = Arc::new(Copier(lab.stamps()));
            Volatile::new(Arc::clone(&outermost), lab.host(), copier, own, options)
        });
        if let Some(volatile) = &volatile {
            outermost = Arc::<Volatile>::clone(volatile);
        }
        let no_faults = FaultPlan {
            seed,
            ..FaultPlan::default()
        };
        let faulty = Faulty::new(outermost, lab.host(), no_faults);
        let mut outermost: Arc<dyn Device> = Arc::<Faulty>::clone(&faulty);
        let slow_options = device.slow_options();
        let slow = slow_options
            .as_ref()
            .map(|options| Slow::new(Arc::clone(&outermost), lab.host(), options));
        if let Some(slow) = &slow {
            outermost = Arc::<Slow>::clone(slow);
        }
        let flushes = Arc::new(Flushes {
            inner: outermost,
            grow_ahead: device.grow_ahead_kib.map(|kib| Bytes(kib << 10)),
            log: device
                .log_lag_us
                .map(|lag| Log::new(lab.host(), lab.stamps(), Nanos::micros(lag))),
            flushed: Mutex::default(),
        });
        parts.push(Part {
            info: flushes.info(),
            id: lab.add_device(Arc::clone(&flushes) as Arc<dyn Device>),
            layers: Layers {
                faulty,
                slow,
                volatile,
                rate: slow_options.and_then(|options| options.rate),
                flushes,
                pages_lost: AtomicU64::new(0),
            },
            media,
        });
    }
    parts
}

fn checker(plan: &Plan, device: usize) -> Checker {
    let mut checker = Checker::new();
    for (object, file) in (0..).map(ObjectId).zip(&plan.files) {
        if file.device != device {
            continue;
        }
        if file.prefill_pages > 0 {
            checker.prefilled(object, Pages(file.prefill_pages), 1);
        }
        // A truncate covers whatever is written beside it, up to the bound of the file.
        let all = checker.on_write_begin(object, Bytes::ZERO, Pages(file.pages_max).bytes());
        checker.on_write_failed(all);
    }
    checker
}

/// The cache with everything in it; `prefilled`: the files have what the plan gives them; `say`:
/// its tasks say what they do.
pub(crate) fn world(
    task: &mut Task<'_>,
    env: &Arc<LabEnv>,
    plan: &Plan,
    parts: Vec<Part>,
    (prefilled, say): (bool, bool),
) -> Arc<World> {
    let cache = kernel::build(env.clone(), plan.options(), plan.parts())
        .unwrap_or_else(|error| fail("unexpected-error", format!("building the cache: {error}")));
    let mut places = Vec::new();
    for (number, (part, device)) in parts.into_iter().zip(&plan.devices).enumerate() {
        let index = cache
            .add_device(task, part.id, part.info, device.options())
            .unwrap_or_else(|error| fail("unexpected-error", format!("adding a device: {error}")));
        places.push(DeviceState {
            index,
            layers: part.layers,
            media: part.media,
            checker: Mutex::new(checker(plan, number)),
            calm: device.is_calm(),
            steady: device.is_steady(),
            floor: device.rate_floor(),
            max_ratio: device.max_ratio,
            flush_failed: false.into(),
        });
    }
    let mut slots = Vec::new();
    for (object, file) in (0..).map(ObjectId).zip(&plan.files) {
        let len = Pages(if prefilled { file.prefill_pages } else { 0 }).bytes();
        let slot = Slot::new(file.device, object, file.pages_max, len.0);
        let opened = open(task, &cache, &places[file.device], object, len);
        *slot.file_cell() = Some(opened);
        slots.push(slot);
    }
    let dirty_limit = cache.stats().dirty_limit;
    let mut regions = Vec::new();
    if prefilled {
        if let Some(swap) = plan.swap {
            let device = places[swap.device].index;
            cache
                .add_swap(task, device, SWAP_OBJECT, Pages(swap.pages))
                .unwrap_or_else(|error| {
                    fail("unexpected-error", format!("adding the swap file: {error}"))
                });
        }
        for (object, region) in (REGION_OBJECTS..).zip(&plan.regions) {
            let spill = cache
                .spill(task, Pages(region.pages))
                .unwrap_or_else(|error| fail("unexpected-error", format!("a region: {error}")));
            let (object, pages) = (ObjectId(object), region.pages);
            let region = Region {
                object,
                pages,
                spill,
            };
            regions.push(Memory {
                pages,
                region: Mutex::new(Some(region)),
            });
        }
    }
    let objects = (prefilled && plan.objects.is_some()).then(|| Objects::new(task, &cache));
    let first_free = REGION_OBJECTS + u32::try_from(regions.len()).expect("a few regions");
    Arc::new(World {
        next_region: first_free.into(),
        regions,
        objects,
        anon_checker: Mutex::new(Checker::new()),
        swap_place: plan.swap.map(|swap| swap.device),
        memory_suffices: plan.memory_suffices(),
        refusals: AtomicU64::new(0),
        cache,
        stamps: env.stamps(),
        places,
        slots,
        gauges: plan.tasks.iter().map(|_| Gauge::default()).collect(),
        pages_asked: AtomicU64::new(0),
        pages_ended: AtomicU64::new(0),
        fair: false.into(),
        dark: false.into(),
        longest_share: AtomicU64::new(0),
        say,
        dirty_limit,
        writers: plan.tasks.len() as u64,
        isolates: plan.cache.law == "tidegate",
        law: plan.cache.law.clone(),
        throttled_a_cluster: throttled_a_cluster(&plan.cache.reclaim),
        sleeps_a_page: reclaim_sleeps(plan, 1),
        expires: Nanos::micros(plan.cache.flush.expire_us + 2 * plan.cache.flush.interval_us),
    })
}

/// Time that reclaim may sleep for `pages` pages.
fn reclaim_sleeps(plan: &Plan, pages: u64) -> Nanos {
    if plan.regions.is_empty() {
        return Nanos::ZERO;
    }
    Nanos(pass_sleeps(&plan.cache.reclaim).0 * PASSES * pages)
}

/// A reclaimer may sleep at each of thirteen priorities, in 5.16-rc1 from the fourth on, before it
/// has a cluster.
fn throttled_a_cluster(reclaim: &str) -> Nanos {
    let passes = if reclaim == "reasons" { 10 } else { 13 };
    Nanos(pass_sleeps(reclaim).0 * passes)
}

/// Time that a law has a reclaimer sleep after a pass that freed nothing. Ours is to get on
/// without.
fn pass_sleeps(reclaim: &str) -> Nanos {
    match reclaim {
        "tidegate" => Nanos::ZERO,
        "reasons" => Nanos::millis(500),
        _ => Nanos::millis(100),
    }
}

pub(crate) fn open(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    place: &DeviceState,
    object: ObjectId,
    len: Bytes,
) -> Arc<File> {
    place.layers.flushes.opened(object);
    cache
        .open(task, place.index, object, len)
        .inspect(|file| place.layers.flushes.lead(task, file))
        .unwrap_or_else(|error| fail("unexpected-error", format!("open: {error}")))
}

/// Every contradiction of the plan is refused by a typed error.
pub(crate) fn check_refusals(task: &mut Task<'_>, env: &Arc<LabEnv>, plan: &Plan, part: &Part) {
    for contradiction in &plan.refused {
        let mut options = plan.options();
        // The real cache is to find the lab's frames as they were.
        options.populate = Populate::AsUsed;
        let mut device = plan.devices[0].options();
        match *contradiction {
            Contradiction::Frames(frames) => options.frames = frames,
            Contradiction::DirtyPercent(percent) => {
                options.dirty.dirty = policy::dirty::Threshold::Percent(percent);
            }
            Contradiction::BackgroundPercent(percent) => {
                options.dirty.background = policy::dirty::Threshold::Percent(percent);
            }
            Contradiction::LawHz(hz) => options.dirty.hz = hz,
            Contradiction::Cpus(cpus) => options.dirty.cpus = cpus,
            Contradiction::MinRatioAbove(max) => {
                device.tunables.max_ratio = max;
                device.tunables.min_ratio = max + 1;
            }
            Contradiction::MaxRatio(ratio) => device.tunables.max_ratio = ratio,
        }
        let refused = match kernel::build(env.clone(), options, kernel::Parts::default()) {
            Err(error) => Err(error),
            Ok(cache) => {
                let added = cache.add_device(task, part.id, part.info, device);
                let _ = cache.shutdown(task);
                added
            }
        };
        let typed = matches!(
            refused,
            Err(Error::LimitTooSmall { .. } | Error::BadOption { .. })
        );
        judge!(typed, "refusal", "{contradiction:?} got {refused:?}");
    }
}

/// The plants of tests are made with a host of their own.
pub type Plant =
    Arc<dyn Fn(usize, Arc<dyn Device>, Arc<dyn Host>) -> Arc<dyn Device> + Send + Sync>;

/// A test's additions to a run.
#[derive(Clone, Default)]
pub struct Setup {
    /// Wraps the model of each device, within all other layers: a planted bug.
    pub plant: Option<Plant>,
    /// Tasks print what they do.
    pub say: bool,
}
