//! An `Env` of OS threads of which exactly one runs at a time, in virtual time.
//!
//! Every task is a thread; the task that holds the *baton* runs. A task that parks, ends or (in
//! `Order::Random`, at `did`) yields passes the baton to the next runnable task; when there is
//! none, time moves on to the next timer. So the order of everything follows from the seed, like in
//! the lab, but with stacks that Miri and TSan understand. It is slow (a thread switch each wait),
//! and it is the reference for the lab's scheduler.
//!
//! ```text
//!   outside ──run──> task ──park──> task ──...──> root ends ──> outside
//!                      │  nobody runnable: timers, each at its time, by the thread that parks
//!                      └─ nobody runnable, no timer: a deadlock, named task by task
//! ```
//!
//! Invariants
//!   1. At most one thread is outside `Core::wait_for_baton`: the holder.
//!   2. Time moves only when no task is runnable, and only to a timer.
//!   3. A timer that was armed for a park does nothing once that park has ended (`Slot::parks`).
//!   4. Code of others (timers' closures, bodies) is never called with the world locked.
//!
//! Concurrency: one mutex for the world, one condition variable for each task and one for the task
//! that is outside. A waker may be used by any thread; those of this `Env` hold the baton, so the
//! order stays determined.
//!
//! Deviations from the lab: work costs no time; CPUs are names (task number modulo CPUs).
//!
//! Source: docs/adr/0001.

use core::any::Any;
use core::cell::Cell;
use core::cmp::Reverse;
use core::panic::AssertUnwindSafe;
use core::sync::atomic::{AtomicU64, Ordering};
use core::task::Waker;
use std::collections::{BinaryHeap, VecDeque};
use std::panic::{catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::task::Wake;
use std::thread;

use frames::Content;
use policy::units::{Instant, Nanos};

use env::{
    Body, Cause, Device, DeviceId, Env, Event, Host, Interrupt, IoRequest, Local, NoThread, Task,
    TaskId, Unparked, Work,
};

/// The order in which tasks run when several can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The task that became runnable first.
    Fifo,
    /// One at random, from the seed; and `did` may pass the baton on.
    Random,
}

/// The options of a `BatonEnv`.
#[derive(Clone, Copy, Debug)]
pub struct BatonOptions {
    /// CPUs that tasks are told they run on.
    pub cpus: usize,
    /// All chance follows from it.
    pub seed: u64,
    /// Deadlines of parks are rounded up to a multiple of it. Zero: not rounded.
    pub tick: Nanos,
    /// The order in which tasks run.
    pub order: Order,
}

impl Default for BatonOptions {
    fn default() -> Self {
        Self {
            cpus: 2,
            seed: 0,
            tick: Nanos::ZERO,
            order: Order::Fifo,
        }
    }
}

/// Turns of the baton without time moving on, after which the world is taken to be stuck.
const TURNS_MAX: u64 = 1_000_000;
/// Of how many calls of `did` one yields, in `Order::Random`.
const YIELD_ONE_IN: u64 = 4;
/// Timers called at shutdown, at most: a timer that sets itself again for ever is cut off.
const TIMERS_LEFT_MAX: u64 = 1_000_000;
/// Timers before the stale ones are first swept out.
const TIMERS_ROOM: usize = 1024;

/// The world: tasks as threads, one at a time.
pub struct BatonEnv {
    me: Weak<Self>,
    core: Arc<Core>,
    content: Arc<dyn Content>,
    devices: RwLock<Vec<Arc<dyn Device>>>,
}

/// Everything but contents and devices; what wakers and hosts hold.
struct Core {
    options: BatonOptions,
    world: Mutex<World>,
    /// The thread that is outside waits here.
    outside: Condvar,
    units: [AtomicU64; Work::COUNT],
}

struct World {
    now: Instant,
    /// The task that holds the baton. None: somebody outside.
    holder: Option<TaskId>,
    runnable: VecDeque<TaskId>,
    timers: BinaryHeap<Timer>,
    /// At this many timers, the stale ones are swept out.
    timers_sweep: usize,
    sequence: u64,
    slots: Vec<Slot>,
    /// Threads to be waited for at shutdown.
    threads: Vec<thread::JoinHandle<()>>,
    root: Option<TaskId>,
    cancelled: bool,
    failure: Option<Failure>,
    chance: u64,
    hosts_chance: u64,
    /// Turns since time last moved.
    turns: u64,
    hash: u64,
}

enum Failure {
    /// Of a task or a device.
    Panic(Box<dyn Any + Send>),
    /// Nobody can run any more.
    Stuck(String),
}

/// One task as the scheduler sees it.
struct Slot {
    name: String,
    state: State,
    /// Its waker was used since its last park ended.
    woken: bool,
    /// The end of the park under way.
    unparked: Unparked,
    /// Parks begun, so that a timer of an earlier one is known.
    parks: u64,
    cause: Option<Cause>,
    turn: Arc<Condvar>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Runnable,
    /// Parked, with or without a deadline.
    Parked(Option<Instant>),
    Ended,
}

struct Timer {
    key: Reverse<(Instant, u64)>,
    what: Due,
}

enum Due {
    /// A deadline of that park of that task.
    Deadline { task: TaskId, park: u64 },
    /// A device's closure.
    Call(Box<dyn FnOnce(&Interrupt) + Send>),
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}
impl Eq for Timer {}
impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Timer {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// A task of a `BatonEnv`.
struct Baton {
    core: Arc<Core>,
    task: TaskId,
    chance: Cell<u64>,
}

impl BatonEnv {
    /// A world at time zero, without tasks.
    ///
    /// # Panics
    /// Without a CPU.
    #[must_use]
    pub fn new(options: BatonOptions, content: Arc<dyn Content>) -> Arc<Self> {
        assert!(options.cpus > 0, "a world has at least one CPU");
        let world = World {
            now: Instant::ZERO,
            holder: None,
            runnable: VecDeque::new(),
            timers: BinaryHeap::new(),
            timers_sweep: TIMERS_ROOM,
            sequence: 0,
            slots: Vec::new(),
            threads: Vec::new(),
            root: None,
            cancelled: false,
            failure: None,
            chance: mix(options.seed, 0x7363_6865_6475_6c65),
            hosts_chance: mix(options.seed, 0x686f_7374),
            turns: 0,
            hash: mix(options.seed, 0),
        };
        let core = Arc::new(Core {
            options,
            world: Mutex::new(world),
            outside: Condvar::new(),
            units: [const { AtomicU64::new(0) }; Work::COUNT],
        });
        let devices = RwLock::new(Vec::new());
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            core,
            content,
            devices,
        })
    }

    /// The part of the world that a device may use.
    #[must_use]
    pub fn host(&self) -> Arc<dyn Host> {
        Arc::new(BatonHost {
            core: Arc::clone(&self.core),
        })
    }

    /// Makes a device known.
    ///
    /// # Panics
    /// At the 65,536th.
    pub fn add_device(&self, device: Arc<dyn Device>) -> DeviceId {
        let mut devices = self.devices.write().unwrap_or_else(PoisonError::into_inner);
        let id = u16::try_from(devices.len()).expect("fewer than 2^16 devices a world");
        devices.push(device);
        DeviceId(id)
    }

    /// Runs `root` as a task to its end. The tasks it leaves behind stand still until the next
    /// `run` or `shutdown`. Called from outside any task.
    ///
    /// # Panics
    /// With the panic of a task or a device. When the root cannot end: a deadlock, or no progress
    /// in time; the message names every task and what it waits for.
    pub fn run<T: Send + 'static>(
        &self,
        root: impl FnOnce(&mut Task<'_>) -> T + Send + 'static,
    ) -> T {
        let handle = {
            let root_id = TaskId(index_u32(self.core.world().slots.len()));
            let handle = env::spawn(self, "root", root);
            self.core.world().root = Some(root_id);
            handle
        };
        self.core.run_from_outside();
        self.core.raise_failure();
        handle
            .try_join()
            .expect("the root has ended with an answer")
    }

    /// Ends all waits with `Cancelled`, lets the tasks end, then calls the timers that are left, in
    /// order, so that requests under way come back.
    ///
    /// # Panics
    /// With the panic of a task or a device.
    pub fn shutdown(&self) {
        self.core.cancel();
        self.core.run_from_outside();
        self.core.call_timers_left();
        let threads = core::mem::take(&mut self.core.world().threads);
        for thread in threads {
            // Its panic, if any, was caught and is raised below.
            drop(thread.join());
        }
        self.core.raise_failure();
    }

    /// Tasks that have not ended.
    #[must_use]
    pub fn tasks(&self) -> usize {
        let world = self.core.world();
        world
            .slots
            .iter()
            .filter(|slot| slot.state != State::Ended)
            .count()
    }

    /// A number made of the order of tasks and of what was emitted: equal for equal runs.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.core.world().hash
    }

    /// Units of `work` reported.
    #[must_use]
    pub fn units(&self, work: Work) -> u64 {
        self.core.units[work as usize].load(Ordering::Relaxed)
    }
}

impl Core {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes the baton into the world and waits until it comes back out.
    fn run_from_outside(&self) {
        self.pass_on(self.world(), None);
    }

    /// Gives the baton to the task that is next and waits until it comes back to `me` (none:
    /// outside).
    fn pass_on<'a>(&'a self, world: MutexGuard<'a, World>, me: Option<TaskId>) {
        self.hand_over(world);
        self.wait_for_baton(self.world(), me);
    }

    fn wait_for_baton(&self, mut world: MutexGuard<'_, World>, me: Option<TaskId>) {
        let Some(task) = me else {
            while world.holder.is_some() {
                world = self
                    .outside
                    .wait(world)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            return;
        };
        let turn = Arc::clone(&world.slots[task.0 as usize].turn);
        while world.holder != me {
            world = turn.wait(world).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Decides which task is next; moves time on where none is.
    fn next(&self, world: &mut World) -> Next {
        loop {
            let root_ended = match world.root {
                Some(root) => world.slots[root.0 as usize].state == State::Ended,
                None => true,
            };
            // Once cancelled or failed, everybody runs to the end.
            if root_ended && !world.cancelled {
                return Next::Holder(None);
            }
            if world.turns > TURNS_MAX && !world.cancelled {
                let report = world.report("no progress in time");
                self.fail(world, Failure::Stuck(report));
            }
            if let Some(task) = self.pick(world) {
                return Next::Holder(Some(task));
            }
            if world.slots.iter().all(|slot| slot.state == State::Ended) {
                return Next::Holder(None);
            }
            let Some(timer) = world.timers.pop() else {
                let report = world.report("deadlock: no task can run and no timer is set");
                self.fail(world, Failure::Stuck(report));
                continue;
            };
            if world.is_stale(&timer) {
                continue;
            }
            let when = timer.key.0.0;
            if when > world.now {
                world.now = when;
                world.turns = 0;
            }
            match timer.what {
                Due::Deadline { task, .. } => world.resume(task, Unparked::TimedOut),
                Due::Call(what) => return Next::Call(what),
            }
        }
    }

    fn pick(&self, world: &mut World) -> Option<TaskId> {
        match self.options.order {
            Order::Fifo => world.runnable.pop_front(),
            Order::Random => {
                let count = world.runnable.len() as u64;
                let at = draw(&mut world.chance).checked_rem(count)?;
                world
                    .runnable
                    .remove(usize::try_from(at).expect("below the number of tasks"))
            }
        }
    }

    /// Takes note of the first failure and ends the world.
    fn fail(&self, world: &mut World, failure: Failure) {
        world.failure.get_or_insert(failure);
        world.cancel();
    }

    fn cancel(&self) {
        self.world().cancel();
    }

    fn raise_failure(&self) {
        let failure = self.world().failure.take();
        match failure {
            None => {}
            Some(Failure::Panic(panic)) => resume_unwind(panic),
            Some(Failure::Stuck(report)) => panic!("{report}"),
        }
    }

    /// Calls the timers that are left, in order, and those that they set; a chain of them without
    /// end is cut off.
    fn call_timers_left(&self) {
        for _ in 0..TIMERS_LEFT_MAX {
            let mut world = self.world();
            let Some(timer) = world.timers.pop() else {
                return;
            };
            world.now = world.now.max(timer.key.0.0);
            drop(world);
            if let Due::Call(what) = timer.what {
                what(&Interrupt::new());
            }
        }
        let left = core::mem::take(&mut self.world().timers);
        drop(left);
    }

    /// The tick at or after `deadline`.
    fn tick_up(&self, deadline: Instant) -> Instant {
        match self.options.tick.0 {
            0 => deadline,
            tick => Instant(
                deadline
                    .0
                    .checked_next_multiple_of(tick)
                    .unwrap_or(u64::MAX),
            ),
        }
    }

    /// The body of a task's thread.
    fn live(self: &Arc<Self>, task: TaskId, body: impl FnOnce(Rc<Baton>)) {
        self.wait_for_baton(self.world(), Some(task));
        let chance = mix(mix(self.options.seed, 0x7461_736b), u64::from(task.0));
        let local = Baton {
            core: Arc::clone(self),
            task,
            chance: Cell::new(chance),
        };
        let ended = catch_unwind(AssertUnwindSafe(|| body(Rc::new(local))));
        let mut world = self.world();
        world.slots[task.0 as usize].state = State::Ended;
        if let Err(panic) = ended {
            self.fail(&mut world, Failure::Panic(panic));
        }
        self.hand_over(world);
    }

    /// Gives the baton to the task that is next, for good.
    fn hand_over<'a>(&'a self, mut world: MutexGuard<'a, World>) {
        loop {
            match self.next(&mut world) {
                Next::Holder(holder) => {
                    world.holder = holder;
                    world.turns += 1;
                    let place = holder.map_or(u64::MAX, |task| u64::from(task.0));
                    world.hash = mix(mix(world.hash, world.now.0), place);
                    match holder {
                        Some(task) => world.slots[task.0 as usize].turn.notify_one(),
                        None => self.outside.notify_one(),
                    }
                    return;
                }
                Next::Call(what) => {
                    drop(world);
                    let called = catch_unwind(AssertUnwindSafe(|| what(&Interrupt::new())));
                    world = self.world();
                    if let Err(panic) = called {
                        self.fail(&mut world, Failure::Panic(panic));
                    }
                }
            }
        }
    }
}

impl World {
    /// Ends the park of `task`.
    fn resume(&mut self, task: TaskId, how: Unparked) {
        let slot = &mut self.slots[task.0 as usize];
        slot.state = State::Runnable;
        slot.unparked = how;
        self.runnable.push_back(task);
    }

    fn wake(&mut self, task: TaskId) {
        match self.slots[task.0 as usize].state {
            State::Parked(_) => self.resume(task, Unparked::Woken),
            State::Runnable => self.slots[task.0 as usize].woken = true,
            State::Ended => {}
        }
    }

    fn cancel(&mut self) {
        self.cancelled = true;
        for index in 0..self.slots.len() {
            if let State::Parked(_) = self.slots[index].state {
                self.resume(TaskId(index_u32(index)), Unparked::Cancelled);
            }
        }
    }

    fn add_timer(&mut self, when: Instant, what: Due) {
        if self.timers.len() >= self.timers_sweep {
            let mut timers = core::mem::take(&mut self.timers);
            timers.retain(|timer| !self.is_stale(timer));
            self.timers_sweep = 2 * timers.len() + TIMERS_ROOM;
            self.timers = timers;
        }
        let key = Reverse((when, self.sequence));
        self.sequence += 1;
        self.timers.push(Timer { key, what });
    }

    /// True if the park that the timer was armed for has ended.
    fn is_stale(&self, timer: &Timer) -> bool {
        match timer.what {
            Due::Call(_) => false,
            Due::Deadline { task, park } => {
                let slot = &self.slots[task.0 as usize];
                slot.parks != park || !matches!(slot.state, State::Parked(_))
            }
        }
    }

    /// The state of every task, for a world that cannot go on.
    fn report(&self, what: &str) -> String {
        let mut report = format!("{what}, at {:?}:", self.now);
        for (index, slot) in self.slots.iter().enumerate() {
            let doing = match slot.state {
                State::Ended => continue,
                State::Runnable => String::from("can run"),
                State::Parked(deadline) => {
                    let cause = slot.cause.map_or_else(
                        || String::from("nothing it has named"),
                        |cause| format!("{cause:?}"),
                    );
                    let until = deadline.map_or_else(String::new, |at| format!(" until {at:?}"));
                    format!("waits for {cause}{until}")
                }
            };
            report.push_str(&format!("\n  task {index} `{}` {doing}", slot.name));
        }
        report
    }
}

enum Next {
    /// This task, or the thread that is outside.
    Holder(Option<TaskId>),
    /// This closure first.
    Call(Box<dyn FnOnce(&Interrupt) + Send>),
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
        self.core.world().wake(self.task);
    }
}

struct BatonHost {
    core: Arc<Core>,
}

impl Host for BatonHost {
    fn now(&self) -> Instant {
        self.core.world().now
    }

    fn at(&self, when: Instant, what: Box<dyn FnOnce(&Interrupt) + Send>) {
        self.core.world().add_timer(when, Due::Call(what));
    }

    fn random(&self) -> u64 {
        draw(&mut self.core.world().hosts_chance)
    }
}

impl Env for BatonEnv {
    fn now(&self) -> Instant {
        self.core.world().now
    }

    fn submit(&self, mut request: Box<IoRequest>) {
        request.submitted = self.now();
        let device = {
            let devices = self.devices.read().unwrap_or_else(PoisonError::into_inner);
            let device = devices.get(request.device.0 as usize);
            Arc::clone(device.expect("a request names a device that was added"))
        };
        device.submit(request);
    }

    fn spawn(&self, name: &str, body: Body) -> Result<(), NoThread> {
        let env = self
            .me
            .upgrade()
            .expect("whoever starts a task holds the world");
        let mut world = self.core.world();
        let task = TaskId(index_u32(world.slots.len()));
        world.slots.push(Slot {
            name: String::from(name),
            state: State::Runnable,
            woken: false,
            unparked: Unparked::Woken,
            parks: 0,
            cause: None,
            turn: Arc::new(Condvar::new()),
        });
        world.runnable.push_back(task);
        let thread = thread::Builder::new()
            .name(String::from(name))
            .spawn(move || {
                let core = Arc::clone(&env.core);
                core.live(task, |local| body(&mut Task::new(&*env, local, task)));
            });
        world
            .threads
            .push(thread.expect("the system has a thread for a task"));
        Ok(())
    }

    fn emit(&self, task: TaskId, event: &Event) {
        let text = format!("{event:?}");
        let mut world = self.core.world();
        world.hash = text
            .bytes()
            .fold(mix(world.hash, world.now.0), |hash, byte| {
                hash.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte)
            });
        let cause = match event {
            Event::Waiting { cause } => Some(*cause),
            Event::Waited { .. } => None,
            _ => return,
        };
        if let Some(slot) = world.slots.get_mut(task.0 as usize) {
            slot.cause = cause;
        }
    }

    fn content(&self) -> Arc<dyn Content> {
        Arc::clone(&self.content)
    }
}

impl Local for Baton {
    fn park(&self, deadline: Option<Instant>) -> Unparked {
        let core = &*self.core;
        let task = self.task;
        let index = task.0 as usize;
        let mut world = core.world();
        if world.cancelled {
            return Unparked::Cancelled;
        }
        if core::mem::take(&mut world.slots[index].woken) {
            return Unparked::Woken;
        }
        let deadline = deadline.filter(|deadline| *deadline < Instant::MAX);
        if deadline.is_some_and(|deadline| deadline <= world.now) {
            return Unparked::TimedOut;
        }
        let slot = &mut world.slots[index];
        slot.parks += 1;
        slot.state = State::Parked(deadline);
        let park = slot.parks;
        if let Some(deadline) = deadline {
            world.add_timer(core.tick_up(deadline), Due::Deadline { task, park });
        }
        core.pass_on(world, Some(task));
        let slot = &mut core.world().slots[index];
        if slot.unparked == Unparked::Woken {
            // Wakes between the first and this moment are one.
            slot.woken = false;
        }
        slot.unparked
    }

    fn waker(&self) -> Waker {
        Waker::from(Arc::new(TaskWaker {
            core: Arc::clone(&self.core),
            task: self.task,
        }))
    }

    fn did(&self, work: Work, units: u64) {
        let core = &*self.core;
        core.units[work as usize].fetch_add(units, Ordering::Relaxed);
        if core.options.order == Order::Fifo {
            return;
        }
        let mut world = core.world();
        if draw(&mut world.chance).is_multiple_of(YIELD_ONE_IN) {
            world.runnable.push_back(self.task);
            core.pass_on(world, Some(self.task));
        }
    }

    fn cpu(&self) -> usize {
        self.task.0 as usize % self.core.options.cpus
    }

    fn random(&self) -> u64 {
        let mut state = self.chance.get();
        let number = draw(&mut state);
        self.chance.set(state);
        number
    }
}

fn index_u32(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than 2^32 tasks a world")
}

/// The next number of a stream (SplitMix64, Steele, Lea and Flood 2014).
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    finish(*state)
}

fn mix(state: u64, word: u64) -> u64 {
    finish(state.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ word)
}

fn finish(state: u64) -> u64 {
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}
