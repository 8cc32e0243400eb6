//! `ThreadEnv`: tasks are threads, time is the system's, devices are real.
//!
//! ```text
//!   any thread --enter()--> Task --park--> futex <--wake-- WaitQueue, completions, timer
//!                            |
//!                            +--submit--> Device --> ring or pool thread --io_done--> wake
//! ```
//!
//! A request that its task waits for and that goes straight to a `FileDevice` is done by that task
//! (`Env::submit` of a request that may be done in place): a hand-over to a ring's thread and back
//! took longer than many disks do. No shutdown wakes it: where the device hangs, it returns when
//! the device does.
//!
//! Threads of its own: one timer; per `FileDevice` a ring's owner and one helper, or `workers`
//! threads of the pool; one per spawned task.
//!
//! Shutdown, in order, each step bounded:
//!   1. Every wait of every task, spawned or entered, ends with `Cancelled`, now and from now on; a
//!      request that a task does itself goes on.
//!   2. Spawned tasks are waited for (`TASKS_BOUND`); a task that does not end is left behind.
//!   3. New requests end with `Cancelled` at once. The timer hurries and the engines work on, until
//!      nothing is under way or `REQUESTS_BOUND` has passed: so requests in flight are completed.
//!   4. Engines cancel what is left (a hanging device) and stop; a request ends with `Cancelled`,
//!      although a write may still reach the device later. The timer stops; closures left are
//!      dropped.
//!
//! Invariants
//!   1. `shutdown` returns within `TASKS_BOUND + REQUESTS_BOUND + ~2 s`, whatever hangs.
//!   2. A panic in a task or a completion is reported by the panic hook, counted, and stops nobody
//!      else.
//!   3. No thread of ours keeps the environment alive but spawned tasks.
//!
//! Source: docs/adr/0001.

use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::hash::{BuildHasher, RandomState};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::thread::JoinHandle;
use std::time::Instant as StdInstant;

use env::{
    Body, Device, DeviceId, Env, Event, Host, Interrupt, IoError, IoRequest, NoThread, Task,
    TaskId, Work,
};
use frames::Content;
use policy::units::Instant;

use crate::arena::{Arena, CHUNK_FRAMES_MAX};
use crate::engine::Engine;
use crate::error::errno_of;
use crate::numa::Binding;
use crate::parker::{Clock, Cpus, Roster};
use crate::pool::Pool;
use crate::ring::{self, Ring};
use crate::spawn::{STACK, start_thread};
use crate::timer::Timer;
use crate::{OsError, sys};

/// Time that shutdown waits for spawned tasks to see that they are cancelled.
const TASKS_BOUND: Duration = Duration::from_secs(10);
/// Time that shutdown waits for requests in flight.
const REQUESTS_BOUND: Duration = Duration::from_secs(10);
/// Interval at which shutdown looks whether requests are done.
const SHUTDOWN_TICK: Duration = Duration::from_micros(200);
/// Devices of one environment.
const DEVICES_MAX: usize = 256;
/// Frames of a chunk where nothing is said: 2 MiB.
const CHUNK_FRAMES: u32 = 512;
/// Chunks that are registered with a ring, at most.
const CHUNKS_MOST: u32 = 1 << 14;
const _: () = assert!(CHUNKS_MOST as usize == ring::TABLE_MAX);
/// Threads of the pool, for one device.
const WORKERS_MAX: usize = 256;
/// A sink of events.
pub type Sink = Arc<dyn Fn(TaskId, &Event) + Send + Sync>;

/// The backend of I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// io_uring, or the pool where that is not available (`ThreadEnv::fallback` says why).
    Auto,
    /// io_uring or an error.
    Uring,
    /// A pool of threads in `preadv2` and `pwritev2`.
    Pool,
}

/// The options of an environment.
#[derive(Clone)]
pub struct Options {
    /// Frames of the arena, 4 KiB each.
    pub frames: u32,
    /// Frames populated and given back together: a power of two, 16..=16384.
    pub chunk_frames: u32,
    /// The backend of I/O.
    pub backend: Backend,
    /// Threads per device of the pool.
    pub workers: usize,
    /// Rings register the arena with the kernel, so that it need not look pages up for each
    /// request. The kernel keeps up to 16 bytes a page for it, for each device: with 256 of them as
    /// much as the arena itself.
    pub register: bool,
    /// From which nodes the memory is asked; none: from wherever the system likes.
    pub binding: Option<Binding>,
    /// Files may be mapped: the memory consists of small pages, and no ring registers it.
    pub maps: bool,
    /// Core dumps of the process hold the memory of frames.
    pub dumped: bool,
    /// The receiver of events; none: nobody.
    pub sink: Option<Sink>,
}

impl Options {
    /// Defaults for an arena of `frames` frames: chunks of 2 MiB, the least that the system keeps
    /// as one page of its own, and larger (to 64 MiB) where that would be more of them than a ring
    /// can register, above 32 GiB; io_uring if the system has it; eight workers.
    #[must_use]
    pub fn new(frames: u32) -> Self {
        let chunk_frames = frames.div_ceil(CHUNKS_MOST).next_power_of_two();
        let chunk_frames = chunk_frames.clamp(CHUNK_FRAMES, CHUNK_FRAMES_MAX);
        Self {
            frames,
            chunk_frames,
            backend: Backend::Auto,
            workers: 8,
            register: true,
            binding: None,
            maps: false,
            dumped: false,
            sink: None,
        }
    }
}

/// The live environment.
pub struct ThreadEnv {
    me: Weak<Self>,
    clock: Clock,
    arena: Arc<Arena>,
    roster: Roster,
    cpus: usize,
    /// Why the memory is not asked from nodes although it was to be.
    unbound: Option<i32>,
    backend: Backend,
    /// The pool will do if no ring can be made, at the start or for a later device.
    may_fall_back: bool,
    fallback: Arc<OnceLock<OsError>>,
    workers: usize,
    register: bool,
    sink: Option<Sink>,
    devices: Box<[DeviceSlot]>,
    engines: Mutex<Vec<Weak<dyn Engine>>>,
    timer: Arc<Timer>,
    timer_thread: Mutex<Option<JoinHandle<()>>>,
    tasks: Tasks,
    /// Requests end with `Cancelled`.
    closed: AtomicBool,
}

/// Room for a device.
type DeviceSlot = RwLock<Option<Arc<dyn Device>>>;

/// Spawned tasks that have not ended.
struct Tasks {
    inner: Mutex<Running>,
    ended: Condvar,
    panics: AtomicU64,
}

struct Running {
    count: usize,
    threads: Vec<JoinHandle<()>>,
}

impl ThreadEnv {
    /// Starts an environment.
    ///
    /// # Errors
    /// An option out of range, no address space, no thread, or no io_uring where it was insisted
    /// on.
    pub fn start(options: Options) -> Result<Arc<Self>, OsError> {
        if options.workers == 0 || options.workers > WORKERS_MAX {
            let (value, allowed) = (options.workers as u64, "1 to 256");
            return Err(OsError::Option {
                name: "workers",
                value,
                allowed,
            });
        }
        let mut arena = Arena::reserve(options.frames, options.chunk_frames)?;
        if options.dumped {
            arena.be_dumped();
        }
        if options.maps {
            arena.be_mapped();
        }
        let cpus = sys::configured_cpus();
        let (cpu_numbers, unbound) = match options.binding {
            None => (None, None),
            Some(binding) => {
                let numbers = binding.cpu_numbers(cpus);
                (Some(numbers), arena.prefer(binding.parts).err())
            }
        };
        let arena = Arc::new(arena);
        let fallback = Arc::new(OnceLock::new());
        let backend = match options.backend {
            Backend::Pool => Backend::Pool,
            Backend::Uring => ring::probe().map(|()| Backend::Uring)?,
            Backend::Auto => match ring::probe() {
                Ok(()) => Backend::Uring,
                Err(why) => {
                    fallback.get_or_init(|| why);
                    Backend::Pool
                }
            },
        };
        let clock = Clock::start();
        let seed = RandomState::new().hash_one(clock.now().0);
        let (timer, timer_thread) = Timer::start(clock, !seed)?;
        Ok(Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            clock,
            arena,
            roster: Roster::new(clock, seed, Cpus::new(cpus, cpu_numbers)),
            cpus,
            unbound,
            backend,
            may_fall_back: options.backend == Backend::Auto,
            fallback,
            workers: options.workers,
            register: options.register && !options.maps,
            sink: options.sink,
            devices: (0..DEVICES_MAX).map(|_| RwLock::default()).collect(),
            engines: Mutex::new(Vec::new()),
            timer,
            timer_thread: Mutex::new(Some(timer_thread)),
            tasks: Tasks::new(),
            closed: AtomicBool::new(false),
        }))
    }

    /// A task on this thread. Cheap: a thread keeps its parker.
    #[must_use]
    pub fn enter(&self) -> Task<'_> {
        let own = self.roster.take();
        let id = own.id();
        Task::new(self, own, id)
    }

    /// The memory of all frames, for devices that copy bytes in and out of it themselves.
    #[must_use]
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// The host of device wrappers: time, timers, chance.
    #[must_use]
    pub fn host(&self) -> Arc<dyn Host> {
        Arc::clone(&self.timer) as Arc<dyn Host>
    }

    /// Adds a device; requests name it by the number answered, which may be that of a device that
    /// was removed.
    ///
    /// # Panics
    /// At the 257th device.
    pub fn add_device(&self, device: Arc<dyn Device>) -> DeviceId {
        let place = self.devices.iter().position(|place| {
            let mut place = place.write().unwrap_or_else(PoisonError::into_inner);
            let is_free = place.is_none();
            if is_free {
                *place = Some(Arc::clone(&device));
            }
            is_free
        });
        let id = place.expect("an environment has at most DEVICES_MAX devices");
        DeviceId(u16::try_from(id).expect("DEVICES_MAX is a number of 16 bits"))
    }

    /// Lets go of a device of which no request is under way, and none will come; may wait for
    /// threads of it to end.
    pub fn remove_device(&self, id: DeviceId) {
        let place = self.devices.get(usize::from(id.0));
        let device = place.and_then(|place| {
            let mut place = place.write().unwrap_or_else(PoisonError::into_inner);
            place.take()
        });
        drop(device);
    }

    /// Work reported by all tasks so far, by `Work as usize`.
    #[must_use]
    pub fn work_counts(&self) -> [u64; Work::COUNT] {
        self.roster.work()
    }

    /// The backend of I/O, where the system allows that for each device: `Uring` or `Pool`.
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Why the pool serves although io_uring was wanted, for the caller to print: all devices, or a
    /// device that came later, when descriptors or memory for a ring were short, or a device whose
    /// ring the kernel takes no requests from any more.
    #[must_use]
    pub fn fallback(&self) -> Option<&OsError> {
        self.fallback.get()
    }

    /// The error number with which the system refused to ask for memory from nodes
    /// (`Options::binding`): it comes from wherever the system likes.
    #[must_use]
    pub fn unbound(&self) -> Option<i32> {
        self.unbound
    }

    /// Tasks that ended in a panic (each was reported by the panic hook).
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.tasks.panics.load(Ordering::Relaxed)
    }

    /// Spawned tasks that have not ended.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.tasks.lock().count
    }

    /// Number of CPUs; `Task::cpu` is below it.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.cpus
    }

    /// Ends it: see the module's header. May be called from any thread but a spawned task's; a
    /// second call finds nothing to do.
    pub fn shutdown(&self) {
        self.roster.stop();
        self.tasks.wait_for_end(TASKS_BOUND);
        self.closed.store(true, Ordering::SeqCst);
        self.timer.hurry();
        let engines: Vec<_> = self
            .lock_engines()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        let deadline = StdInstant::now() + REQUESTS_BOUND;
        let busy = || !self.timer.is_idle() || engines.iter().any(|engine| engine.pending() > 0);
        while busy() && StdInstant::now() < deadline {
            std::thread::sleep(SHUTDOWN_TICK);
        }
        for engine in &engines {
            engine.stop(Duration::ZERO);
        }
        self.timer.stop();
        let timer = self
            .timer_thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // The last handle may be dropped by a closure, on the timer's own thread.
        if let Some(timer) = timer.filter(|t| t.thread().id() != std::thread::current().id()) {
            // Its closures' panics were caught.
            let _ = timer.join();
        }
    }

    /// A new engine of this environment's kind, for one device.
    pub(crate) fn start_engine(&self) -> Result<Mover, OsError> {
        let ring = match self.backend {
            Backend::Uring | Backend::Auto => {
                match Ring::start(&self.arena, self.register, &self.fallback) {
                    Err(why) if self.may_fall_back => {
                        self.fallback.get_or_init(|| why);
                        None
                    }
                    started => Some(started?),
                }
            }
            Backend::Pool => None,
        };
        let mover = match ring {
            Some(ring) => Mover::Ring(Arc::new(ring)),
            None => Mover::Pool(Arc::new(Pool::start(&self.arena, "tg-pool", self.workers)?)),
        };
        let engine = match &mover {
            Mover::Ring(ring) => Arc::downgrade(&(Arc::clone(ring) as Arc<dyn Engine>)),
            Mover::Pool(pool) => Arc::downgrade(&(Arc::clone(pool) as Arc<dyn Engine>)),
        };
        let mut engines = self.lock_engines();
        engines.retain(|engine| engine.strong_count() > 0);
        engines.push(engine);
        Ok(mover)
    }

    fn lock_engines(&self) -> MutexGuard<'_, Vec<Weak<dyn Engine>>> {
        self.engines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An engine of either kind.
pub(crate) enum Mover {
    /// io_uring.
    Ring(Arc<Ring>),
    /// Threads.
    Pool(Arc<Pool>),
}

impl Env for ThreadEnv {
    #[inline]
    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn submit(&self, mut request: Box<IoRequest>) {
        request.submitted = self.clock.now();
        if self.closed.load(Ordering::SeqCst) {
            request.complete(&Interrupt::new(), Err(IoError::Cancelled));
            return;
        }
        let place = self.devices.get(usize::from(request.device.0));
        // Not under the lock: a device may end the request at once, and with it others begin.
        let device = place.and_then(|place| {
            let place = place.read().unwrap_or_else(PoisonError::into_inner);
            place.clone()
        });
        match device {
            Some(device) if request.in_place => device.submit_in_place(request),
            Some(device) => device.submit(request),
            // A request to a device that was removed.
            None => request.complete(&Interrupt::new(), Err(IoError::Cancelled)),
        }
    }

    fn spawn(&self, name: &str, body: Body) -> Result<(), NoThread> {
        let env = self
            .me
            .upgrade()
            .expect("`self` is alive, and lives in an Arc");
        self.tasks.began();
        let run = move || {
            let ended = catch_unwind(AssertUnwindSafe(|| {
                let mut task = env.enter();
                task.emit(&Event::Began);
                body(&mut task);
            }));
            env.tasks.ended(ended.is_err());
        };
        match start_thread(name, STACK, run) {
            Ok(thread) => {
                self.tasks.keep(thread);
                Ok(())
            }
            Err(error) => {
                self.tasks.ended(false);
                let errno = errno_of(&error);
                Err(NoThread { errno })
            }
        }
    }

    #[inline]
    fn times_calls(&self) -> bool {
        false
    }

    #[inline]
    fn emit(&self, task: TaskId, event: &Event) {
        if let Some(sink) = &self.sink {
            sink(task, event);
        }
    }

    fn content(&self) -> Arc<dyn Content> {
        self.arena.clone()
    }
}

impl Drop for ThreadEnv {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl Tasks {
    fn new() -> Self {
        let inner = Running {
            count: 0,
            threads: Vec::new(),
        };
        Self {
            inner: Mutex::new(inner),
            ended: Condvar::new(),
            panics: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn began(&self) {
        self.lock().count += 1;
    }

    fn ended(&self, panicked: bool) {
        if panicked {
            self.panics.fetch_add(1, Ordering::Relaxed);
        }
        self.lock().count -= 1;
        self.ended.notify_all();
    }

    /// Keeps a thread to be joined, and joins those that have ended: what a thread keeps for itself
    /// is dropped after its task has ended, and is to be gone when the environment is.
    fn keep(&self, thread: JoinHandle<()>) {
        let mut inner = self.lock();
        let ended: Vec<_> = inner
            .threads
            .extract_if(.., |thread| thread.is_finished())
            .collect();
        inner.threads.push(thread);
        // Drops there may lead here.
        drop(inner);
        for thread in ended {
            // Its panic, if any, was caught and counted.
            let _ = thread.join();
        }
    }

    /// Waits until all have ended, at most for `bound`, and joins their threads.
    fn wait_for_end(&self, bound: Duration) {
        let deadline = StdInstant::now() + bound;
        let mut inner = self.lock();
        let here = std::thread::current().id();
        // Called by the drop of the last handle in a spawned thread: that one does not count.
        let own = usize::from(
            inner
                .threads
                .iter()
                .any(|thread| thread.thread().id() == here),
        );
        while inner.count > own {
            let left = deadline.saturating_duration_since(StdInstant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.ended.wait_timeout(inner, left);
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let all_ended = inner.count <= own;
        let threads = core::mem::take(&mut inner.threads);
        drop(inner);
        for thread in threads {
            let itself = thread.thread().id() == here;
            if !itself && (all_ended || thread.is_finished()) {
                // Its panic, if any, was caught and counted.
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
mod tests;
