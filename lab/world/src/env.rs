//! The `Env` of the lab: time is a number, a wait is a switch to another coroutine.
//!
//! `now`, `did`, `emit` of an event nobody records, `cpu` and `random` are a few loads and stores.
//! A call that may change which task runs next (`park`, a wake, `spawn`, a charge that reaches the
//! clock's limit) goes to the `Scheduler`, which is confined to the lab's thread.
//!
//! Ownership: `LabEnv` owns the `Core`, the contents and the devices; a task's waker and a device's
//! `Host` own the `Core` alone, so a device that keeps its host makes no cycle.
//!
//! Interrupts: a device's timer is called from the loop of `Lab::run`, at its time, with an
//! `Interrupt`. For each page of a request that ends, `Work::EndPage` is charged to the interrupt
//! time of the lab and delays the task on the CPU that takes interrupts.
//!
//! Concurrency: all of it is `Sync` as `Env` asks, and a `Lab` stays on its thread. On another
//! thread only `now` works; what touches the scheduler panics there (`confined`). Labs share
//! nothing; several may run side by side.
//!
//! Source: docs/adr/0001; style A9, A12.

use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::task::Waker;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Wake;

use ::env::{
    Body, Device, DeviceId, Env, Event, Host, Interrupt, IoDone, IoError, IoRequest, Local,
    NoThread, Task, TaskId, Unparked, Work,
};
use frames::Content;
use policy::units::{Instant, Nanos};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::Options;
use crate::clock::{Clock, tick_up};
use crate::confined::{Borrow, Confined};
use crate::content::Stamps;
use crate::coroutine::{Resume, Suspender};
use crate::cost::CostTable;
use crate::cpu::{Scheduler, Spent};
use crate::hash::{self, TraceHash};
use crate::record::{EventKind, Record, Recorded, Watch, hash_event, op_code};

/// Words that begin an entry of the trace hash, apart from steps and events.
const HASH_SUBMIT: u64 = 0x5355_424d;
const HASH_DONE: u64 = 0x444f_4e45;
const HASH_PARK: u64 = 0x5041_524b;
const HASH_SPAWN: u64 = 0x5350_574e;

/// EAGAIN: what the system answers where there is no thread.
const TRY_AGAIN: i32 = 11;

/// Everything of a lab but its devices, contents and coroutines.
pub(crate) struct Core {
    pub(crate) clock: Clock,
    pub(crate) hash: TraceHash,
    scheduler: Confined<Scheduler>,
    costs: CostTable,
    hz: u32,
    seed: u64,
    record: Record,
    recorded: Confined<Vec<Recorded>>,
    /// Told of every event, whether it is kept or not.
    pub(crate) watch: Confined<Option<Watch>>,
    /// Units reported, by kind of work.
    units: [AtomicU64; Work::COUNT],
    /// CPU time of interrupts, in nanoseconds.
    interrupt_time: AtomicU64,
    /// Picoseconds of it that do not make a nanosecond yet.
    interrupt_rest: AtomicU64,
    /// Requests submitted and not completed.
    in_flight: AtomicU64,
    hosts: AtomicU64,
}

impl Core {
    pub(crate) fn scheduler(&self) -> Borrow<'_, Scheduler> {
        self.scheduler.borrow()
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(crate) fn interrupt_time(&self) -> Nanos {
        Nanos(self.interrupt_time.load(Ordering::Relaxed))
    }

    pub(crate) fn units(&self, work: Work) -> u64 {
        self.units[work as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn take_recorded(&self) -> Vec<Recorded> {
        core::mem::take(&mut *self.recorded.borrow())
    }

    pub(crate) fn spawn(&self, name: &str, body: Body) -> TaskId {
        let id = self.scheduler().spawn(name, body, &self.clock);
        self.hash.add([
            HASH_SPAWN,
            self.clock.local(),
            u64::from(id.0),
            hash::name(name),
        ]);
        id
    }

    /// The random stream of the `ordinal`-th task, or host, of this name.
    fn stream(&self, name: &str, ordinal: u64) -> Pcg64Mcg {
        let seed = [hash::name(name), ordinal]
            .into_iter()
            .fold(self.seed, hash::mix);
        Pcg64Mcg::seed_from_u64(hash::finish(seed))
    }

    fn task_stream(&self, id: TaskId) -> Pcg64Mcg {
        let scheduler = self.scheduler();
        self.stream(scheduler.name(id), scheduler.ordinal(id))
    }

    pub(crate) fn now(&self) -> Instant {
        Instant(self.clock.now())
    }

    fn count(&self, work: Work, units: u64) {
        let cell = &self.units[work as usize];
        cell.store(cell.load(Ordering::Relaxed) + units, Ordering::Relaxed);
    }

    /// Charges the end of `pages` pages of I/O to the CPU that takes interrupts.
    fn end_pages(&self, pages: u64) {
        self.count(Work::EndPage, pages);
        let mut rest = self.interrupt_rest.load(Ordering::Relaxed);
        let time = self.costs.charge(Work::EndPage, pages, &mut rest);
        self.interrupt_rest.store(rest, Ordering::Relaxed);
        if time > 0 {
            let before = self.interrupt_time.load(Ordering::Relaxed);
            self.interrupt_time.store(before + time, Ordering::Relaxed);
            self.scheduler().interrupt(time);
        }
    }
}

/// One task's own part: its CPU time, its chance, and the way to suspend it.
struct LabTask {
    core: Arc<Core>,
    suspender: Suspender,
    waker: Waker,
    random: RefCell<Pcg64Mcg>,
    spent: Cell<Spent>,
    /// Picoseconds charged that do not make a nanosecond yet.
    picos: Cell<u64>,
    /// `Work::Drawn` that is charged with the `Work::Alloc` it came with.
    drawn: Cell<u64>,
    cpu: Cell<u32>,
}

impl LabTask {
    fn cpu(&self) -> usize {
        self.cpu.get() as usize
    }

    /// Gives control to the loop; answers how the park ended, if it was one.
    fn suspend(&self) -> Unparked {
        let Resume { cpu, unparked } = self.suspender.suspend();
        self.cpu.set(cpu);
        unparked
    }

    /// Brings the running task's charges to the scheduler and lets what is due go first.
    #[cold]
    #[inline(never)]
    fn settle(&self, before: u64, after: u64) {
        let core = &*self.core;
        let suspend =
            core.scheduler()
                .settle(self.cpu(), before, after, self.spent.get(), &core.clock);
        if suspend {
            self.suspend();
        }
    }

    /// Frames were allocated, in `holds` holds of the free lists.
    fn allocated(&self, holds: u64) {
        let drawn = self.drawn.take();
        if self.core.costs.frames_alone() {
            return self.charge(Work::Alloc, holds + drawn);
        }
        self.charge(Work::Alloc, holds);
        if drawn > 0 {
            self.charge(Work::Drawn, drawn);
        }
    }

    #[inline]
    fn charge(&self, work: Work, units: u64) {
        let core = &*self.core;
        core.count(work, units);
        let mut picos = self.picos.get();
        let time = core.costs.charge(work, units, &mut picos);
        self.picos.set(picos);
        let mut spent = self.spent.get();
        if matches!(work, Work::User | Work::Touch | Work::Remote) {
            spent.user += time;
        } else {
            spent.system += time;
        }
        self.spent.set(spent);
        if time == 0 {
            return;
        }
        let before = core.clock.local();
        let after = before + time;
        if after < core.clock.limit() {
            core.clock.set(after);
        } else {
            self.settle(before, after);
        }
    }
}

impl Drop for LabTask {
    /// The body has returned, or panicked.
    fn drop(&mut self) {
        self.core
            .scheduler()
            .finish(self.cpu(), self.spent.get(), &self.core.clock);
    }
}

impl Local for LabTask {
    fn park(&self, deadline: Option<Instant>) -> Unparked {
        let core = &*self.core;
        let deadline = deadline.and_then(|deadline| {
            // A deadline that has passed is not moved to the next tick.
            let exact = core.hz == 0
                || deadline.0 <= core.clock.now()
                || core.scheduler().waits_exactly(self.cpu());
            let hz = if exact { 0 } else { core.hz };
            tick_up(deadline.0, hz)
        });
        let parked = core
            .scheduler()
            .park(self.cpu(), deadline, self.spent.get(), &core.clock);
        let Some(unparked) = parked else {
            return self.suspend();
        };
        // A park that did not block is no step of the loop, and is hashed here.
        core.hash
            .add([HASH_PARK, core.clock.local(), unparked as u64]);
        unparked
    }

    #[inline]
    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    #[inline]
    fn did(&self, work: Work, units: u64) {
        match work {
            Work::Drawn => self.drawn.set(self.drawn.get() + units),
            Work::Alloc => self.allocated(units),
            _ => self.charge(work, units),
        }
    }

    #[inline]
    fn cpu(&self) -> usize {
        self.cpu()
    }

    #[inline]
    fn random(&self) -> u64 {
        self.random.borrow_mut().next_u64()
    }
}

struct TaskWaker {
    core: Arc<Core>,
    task: TaskId,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.core.scheduler().wake(self.task, &self.core.clock);
    }
}

/// Sees every completion before the submitter does.
struct Probe {
    core: Arc<Core>,
}

impl IoDone for Probe {
    fn io_done(&self, context: &Interrupt, request: Box<IoRequest>, result: Result<(), IoError>) {
        let core = &*self.core;
        core.in_flight
            .store(core.in_flight() - 1, Ordering::Relaxed);
        let words = request_words(&request);
        let failed = u64::from(result.is_err());
        core.hash.add([
            HASH_DONE,
            core.clock.local(),
            words[0],
            words[1],
            words[2],
            failed,
        ]);
        core.end_pages(request.pages().0);
        request.complete(context, result);
    }
}

/// The words that tell a request apart.
fn request_words(request: &IoRequest) -> [u64; 3] {
    let target = u64::from(request.device.0) << 32 | u64::from(request.object.0);
    [
        target,
        request.offset.0,
        hash::mix(op_code(request.op), request.pages().0),
    ]
}

/// The host of the lab's devices.
struct LabHost {
    core: Arc<Core>,
    random: Confined<Pcg64Mcg>,
}

impl Host for LabHost {
    fn now(&self) -> Instant {
        self.core.now()
    }

    fn at(&self, when: Instant, what: Box<dyn FnOnce(&Interrupt) + Send>) {
        self.core
            .scheduler()
            .call_at(when.0, what, &self.core.clock);
    }

    fn random(&self) -> u64 {
        self.random.borrow().next_u64()
    }
}

/// The world of a lab.
pub struct LabEnv {
    pub(crate) core: Arc<Core>,
    stamps: Arc<Stamps>,
    devices: Confined<Vec<Arc<dyn Device>>>,
    probe: Arc<dyn IoDone>,
    refuses_tasks: AtomicBool,
}

impl LabEnv {
    pub(crate) fn new(options: Options) -> Self {
        let core = Arc::new(Core {
            clock: Clock::new(),
            hash: TraceHash::new(options.seed),
            scheduler: Confined::new(Scheduler::new(options.cpus)),
            costs: options.costs,
            hz: options.hz,
            seed: options.seed,
            record: options.record,
            recorded: Confined::new(Vec::new()),
            watch: Confined::new(None),
            units: [const { AtomicU64::new(0) }; Work::COUNT],
            interrupt_time: AtomicU64::new(0),
            interrupt_rest: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            hosts: AtomicU64::new(0),
        });
        Self {
            stamps: Arc::new(Stamps::new(options.frames)),
            devices: Confined::new(Vec::new()),
            refuses_tasks: AtomicBool::new(false),
            probe: Arc::new(Probe {
                core: Arc::clone(&core),
            }),
            core,
        }
    }

    /// The contents, to be kept by a device model.
    #[must_use]
    pub fn stamps(&self) -> Arc<Stamps> {
        Arc::clone(&self.stamps)
    }

    /// A host with a random stream of its own: give each device one.
    #[must_use]
    pub fn host(&self) -> Arc<dyn Host> {
        let ordinal = self.core.hosts.fetch_add(1, Ordering::Relaxed);
        let random = Confined::new(self.core.stream("host", ordinal));
        Arc::new(LabHost {
            core: Arc::clone(&self.core),
            random,
        })
    }

    /// From now on there is no thread available, or there is again.
    pub fn refuse_tasks(&self, refuse: bool) {
        self.refuses_tasks.store(refuse, Ordering::Relaxed);
    }

    /// Makes a device known.
    ///
    /// # Panics
    /// At the 65,536th.
    pub fn add_device(&self, device: Arc<dyn Device>) -> DeviceId {
        let mut devices = self.devices.borrow();
        let id = u16::try_from(devices.len()).expect("fewer than 2^16 devices a lab");
        devices.push(device);
        DeviceId(id)
    }

    /// A device that was added.
    ///
    /// # Panics
    /// If it was not.
    #[must_use]
    pub fn device(&self, id: DeviceId) -> Arc<dyn Device> {
        let devices = self.devices.borrow();
        Arc::clone(
            devices
                .get(id.0 as usize)
                .expect("a request names a device that was added"),
        )
    }

    /// Forgets the devices, so that what they own goes with the lab.
    pub(crate) fn clear_devices(&self) {
        let devices = core::mem::take(&mut *self.devices.borrow());
        drop(devices);
    }

    /// Runs the body of a task on its own coroutine.
    pub(crate) fn run_task(&self, id: TaskId, suspender: Suspender, first: Resume, body: Body) {
        let core = Arc::clone(&self.core);
        let waker = Waker::from(Arc::new(TaskWaker {
            core: Arc::clone(&core),
            task: id,
        }));
        let own = Rc::new(LabTask {
            random: RefCell::new(core.task_stream(id)),
            core,
            suspender,
            waker,
            spent: Cell::default(),
            picos: Cell::default(),
            drawn: Cell::default(),
            cpu: Cell::new(first.cpu),
        });
        body(&mut Task::new(self, own, id));
    }
}

impl Env for LabEnv {
    #[inline]
    fn now(&self) -> Instant {
        self.core.now()
    }

    fn submit(&self, mut request: Box<IoRequest>) {
        let core = &*self.core;
        request.submitted = core.now();
        request.on_done(Arc::clone(&self.probe));
        core.in_flight
            .store(core.in_flight() + 1, Ordering::Relaxed);
        let words = request_words(&request);
        core.hash.add([
            HASH_SUBMIT,
            core.clock.local(),
            words[0],
            words[1],
            words[2],
        ]);
        self.device(request.device).submit(request);
    }

    fn spawn(&self, name: &str, body: Body) -> Result<(), NoThread> {
        if self.refuses_tasks.load(Ordering::Relaxed) {
            return Err(NoThread { errno: TRY_AGAIN });
        }
        self.core.spawn(name, body);
        Ok(())
    }

    fn emit(&self, task: TaskId, event: &Event) {
        let core = &*self.core;
        let at = core.now();
        hash_event(&core.hash, at, task, event);
        match event {
            Event::Waiting { cause } => core.scheduler().begin_wait(task, *cause),
            Event::Waited { cause, wakeup, .. } => {
                core.scheduler().end_wait(task, *cause, *wakeup);
            }
            _ => {}
        }
        if core.record != Record::NONE && core.record.has(EventKind::of(event)) {
            let recorded = Recorded {
                at,
                task,
                event: event.clone(),
            };
            core.recorded.borrow().push(recorded);
        }
        if let Some(watch) = core.watch.borrow().as_mut() {
            watch.event(at, task, event);
        }
    }

    fn content(&self) -> Arc<dyn Content> {
        self.stamps()
    }
}
