//! The engine of io_uring: one thread owns the ring, submits and completes.
//!
//! Submitters put jobs into a mailbox in front of the ring, sorted by the kind of task that waits;
//! the owner takes as many as the ring has slots (`DEPTH`), so that a reader overtakes writeback
//! that has not started.
//!
//! ```text
//!   submit() --> mailbox (ClassQueue) --> slots (80) --> SQEs --> kernel
//!                   |  eventfd, only if the owner sleeps            |
//!   io_done  <------+------------- owner thread <----- CQEs --------+
//! ```
//!
//! *Waking*: `sleeping` is true only while the owner, having found the mailbox empty, waits in the
//! kernel; the task that clears it writes the eventfd. A busy owner costs submitters no system
//! call.
//!
//! *Registered memory*: chunks of the arena are registered one by one in a sparse table. A request
//! whose memory is one run in one registered chunk is a `ReadFixed`/`WriteFixed`; several runs in
//! one registered chunk are a vectored fixed request where the kernel has it (6.15); all else is
//! plain `Readv`/`Writev`. A refused registration (memory lock limit) means plain requests.
//!
//! A task that waits anyway goes past all that (`run_here`): it reads, writes or flushes by a call
//! of its own, and the ledger counts it.
//!
//! Invariants
//!   1. Only the owner touches the ring.
//!   2. A chunk counts as registered only between a registration that succeeded and the removal
//!      from the table; fixed requests use registered chunks only. A release is answered when the
//!      chunk is out of the table and no fixed request of it is under way.
//!   3. A slot's vector does not move or change while its request is in the kernel.
//!   4. Every job that was taken is ended exactly once, also when the owner panics or stops.
//!   5. The owner keeps the arena mapped. If requests do not come back from the kernel, its hold of
//!      the arena is leaked: the kernel may still write there.
//!
//! A kernel that takes no request for `REFUSED_MAX` is asked for nothing more once it has ended
//! those it has: from then on the lane's thread does what the ring would, more slowly.
//!
//! Shutdown: jobs still in the mailbox are cancelled, those in the kernel have until the bound to
//! end by themselves, then are cancelled in the kernel, and 500 ms later end with `Cancelled`
//! whatever the kernel does. Such a write may still reach the device.
//!
//! Source: docs/adr/0006; io_uring_register(2).

use core::mem;
use core::time::Duration;
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread::ThreadId;
use std::time::Instant;

use env::{IoError, IoOp};
use io_uring::types::{CancelBuilder, Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, Probe, opcode, squeue};
use policy::units::PAGE_SIZE;
use rustix::event::{EventfdFlags, PollFd, PollFlags, poll};

use crate::OsError;
use crate::arena::{Arena, Chunk, ChunkWatcher};
use crate::engine::{Engine, Ledger, Registration};
use crate::error::errno_of;
use crate::pool::{Pool, finish_here};
use crate::queue::{ClassQueue, is_read};
use crate::spawn::{STACK, start_thread};
use crate::sys::{IoVec, NO_MEMORY};
use crate::transfer::{Job, MAX_VECTORS, Step};

/// Requests in the kernel at once. Enough for any disk; more would only take the choice of order
/// out of our hands.
const DEPTH: usize = 80;
/// Of these, those that reads alone may take.
const FOR_READS: usize = 16;
/// Room in the submission ring: every slot, the poll of the eventfd, and a cancel.
const ENTRIES: u32 = 128;
const _: () = assert!(DEPTH + 2 <= ENTRIES as usize);
/// The kernel's limit of registered buffers (IORING_MAX_REG_BUFFERS).
pub(crate) const TABLE_MAX: usize = 1 << 14;
/// Time that cancelled requests are waited for.
const CANCEL_BOUND: Duration = Duration::from_millis(500);
/// Time that the kernel may take no request, for want of memory, before the lane takes them all.
const REFUSED_MAX: Duration = Duration::from_secs(1);
/// Interval at which a kernel that takes none is asked again.
const REFUSED_TICK: Duration = Duration::from_millis(1);
/// Interval at which a stopping owner looks at the clock.
const STOP_TICK: Duration = Duration::from_millis(10);

/// Marks of completions that are no slot's.
const WAKE: u64 = u64::MAX;
const CANCEL: u64 = u64::MAX - 1;

/// An I/O ring and its owner thread.
pub(crate) struct Ring {
    shared: Arc<Shared>,
    watcher: Arc<dyn ChunkWatcher>,
    /// For what the ring has no operation for.
    lane: Arc<Pool>,
    arena: Arc<Arena>,
    owner: Mutex<Option<std::thread::JoinHandle<()>>>,
}

/// The state that submitters and the owner share.
struct Shared {
    mailbox: Mutex<Mailbox>,
    /// Signalled when `Mailbox::releases_done` grows or the ring closes.
    released: Condvar,
    wake: OwnedFd,
    owner: OnceLock<ThreadId>,
    ledger: Ledger,
    registered: AtomicU32,
    /// Error number of the first refused registration; zero: none was refused.
    refused: AtomicI32,
    /// Told where the kernel takes no request any more.
    fallback: Arc<OnceLock<OsError>>,
}

struct Mailbox {
    jobs: ClassQueue,
    controls: VecDeque<Control>,
    releases_asked: u64,
    releases_done: u64,
    /// The owner waits in the kernel, or is about to.
    sleeping: bool,
    /// A job could have a slot when it looked last: one that is no read, and a read.
    has_room: [bool; 2],
    stop_at: Option<Instant>,
    closed: bool,
}

enum Control {
    Register(Chunk),
    Release(Chunk),
}

/// Tests that io_uring can be used here; the error says why not.
pub(crate) fn probe() -> Result<(), OsError> {
    build_ring(4)
        .and_then(|ring| Abilities::of(&ring))
        .map(|_| ())
}

/// Makes a ring with the best flags that the kernel knows.
fn build_ring(entries: u32) -> Result<IoUring, OsError> {
    let mut best = IoUring::builder();
    best.setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_submit_all();
    let ring = match best.build(entries) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::new(entries),
        other => other,
    };
    ring.map_err(|error| OsError::Uring {
        step: "io_uring_setup",
        errno: errno_of(&error),
    })
}

/// Operations that not every kernel has.
#[derive(Clone, Copy)]
struct Abilities {
    ftruncate: bool,
    vectored_fixed: bool,
}

impl Abilities {
    fn of(ring: &IoUring) -> Result<Self, OsError> {
        let missing = |step| OsError::Uring {
            step,
            errno: libc::EOPNOTSUPP,
        };
        // Linux 5.13: sparse buffer tables, multishot poll.
        if !ring.params().is_feature_resource_tagging() {
            return Err(missing("kernel older than 5.13"));
        }
        let mut probe = Probe::new();
        ring.submitter()
            .register_probe(&mut probe)
            .map_err(|error| OsError::Uring {
                step: "IORING_REGISTER_PROBE",
                errno: errno_of(&error),
            })?;
        let needed = [
            opcode::Readv::CODE,
            opcode::Writev::CODE,
            opcode::ReadFixed::CODE,
            opcode::WriteFixed::CODE,
            opcode::Fsync::CODE,
            opcode::Fallocate::CODE,
            opcode::PollAdd::CODE,
            opcode::AsyncCancel2::CODE,
        ];
        if !needed.iter().all(|&code| probe.is_supported(code)) {
            return Err(missing("an operation is missing"));
        }
        Ok(Self {
            ftruncate: probe.is_supported(opcode::Ftruncate::CODE),
            vectored_fixed: probe.is_supported(opcode::ReadvFixed::CODE)
                && probe.is_supported(opcode::WritevFixed::CODE),
        })
    }
}

impl Ring {
    /// Starts a ring for memory of `arena`, which it registers if `register`.
    /// `fallback` is told where the kernel takes no request any more.
    pub(crate) fn start(
        arena: &Arc<Arena>,
        register: bool,
        fallback: &Arc<OnceLock<OsError>>,
    ) -> Result<Self, OsError> {
        let failed = |what| {
            move |e: rustix::io::Errno| OsError::System {
                what,
                errno: e.raw_os_error(),
            }
        };
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(failed("eventfd"))?;
        let lane = Arc::new(Pool::start(arena, "tg-lane", 1)?);
        let shared = Arc::new(Shared {
            mailbox: Mutex::new(Mailbox::new(arena.chunks())),
            released: Condvar::new(),
            wake,
            owner: OnceLock::new(),
            ledger: Ledger::default(),
            registered: AtomicU32::new(0),
            refused: AtomicI32::new(0),
            fallback: Arc::clone(fallback),
        });
        let (ready, started) = mpsc::sync_channel(1);
        let (ours, memory, slow) = (Arc::clone(&shared), Arc::clone(arena), Arc::clone(&lane));
        let name = "tg-ring";
        let owner = start_thread(name, STACK, move || {
            crate::sys::set_timer_slack(crate::parker::TIMER_SLACK);
            match Owner::new(ours, memory, slow, register) {
                Ok(owner) => {
                    let _ = ready.send(Ok(()));
                    owner.run();
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                }
            }
        })
        .map_err(|e| OsError::Thread {
            name: name.to_owned(),
            errno: errno_of(&e),
        })?;
        started.recv().unwrap_or(Err(OsError::Uring {
            step: "owner thread",
            errno: libc::EIO,
        }))?;
        let watcher: Arc<dyn ChunkWatcher> = Arc::<Shared>::clone(&shared);
        if register {
            arena.watch(Arc::clone(&watcher));
        }
        let arena = Arc::clone(arena);
        Ok(Self {
            shared,
            watcher,
            lane,
            arena,
            owner: Mutex::new(Some(owner)),
        })
    }

    /// The part of the arena that is registered, and true if some was refused.
    pub(crate) fn registration(&self) -> Registration {
        let chunks = self.shared.registered.load(Ordering::Relaxed);
        match self.shared.refused.load(Ordering::Relaxed) {
            0 => Registration::Registered { chunks },
            errno => Registration::Refused { chunks, errno },
        }
    }
}

impl Engine for Ring {
    fn submit(&self, job: Job) {
        self.shared.ledger.began();
        let mut mailbox = self.shared.lock();
        if mailbox.closed || mailbox.stop_at.is_some() {
            drop(mailbox);
            self.shared.ledger.finish(job, Err(IoError::Cancelled));
            return;
        }
        let has_room = mailbox.has_room[usize::from(is_read(job.request.class))];
        mailbox.jobs.push(job.request.class, job);
        // Without a free slot only a completion helps, and that wakes the owner by itself.
        if !has_room {
            return;
        }
        self.shared.unlock_and_wake(mailbox);
    }

    fn run_here(&self, job: Job) {
        self.shared.ledger.began();
        let mailbox = self.shared.lock();
        let stopping = mailbox.closed || mailbox.stop_at.is_some();
        drop(mailbox);
        finish_here(&self.arena, &self.shared.ledger, job, stopping);
    }

    fn pending(&self) -> u64 {
        self.shared.ledger.pending() + self.lane.pending()
    }

    fn stop(&self, bound: Duration) {
        self.arena.unwatch(&self.watcher);
        let mut mailbox = self.shared.lock();
        mailbox.stop_at.get_or_insert(Instant::now() + bound);
        mailbox.sleeping = true;
        self.shared.unlock_and_wake(mailbox);
        let owner = self
            .owner
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // The last handle of a device may be dropped by a completion, in the owner itself.
        if let Some(owner) = owner.filter(|o| o.thread().id() != std::thread::current().id()) {
            // Bounded: the owner leaves at the latest at `bound` + CANCEL_BOUND. A panic of its
            // was reported by the hook.
            let _ = owner.join();
        }
        self.lane.stop(bound);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.stop(Duration::from_secs(1));
    }
}

impl Mailbox {
    fn new(chunks: usize) -> Self {
        Self {
            jobs: ClassQueue::default(),
            controls: VecDeque::with_capacity(chunks.min(1024)),
            releases_asked: 0,
            releases_done: 0,
            sleeping: false,
            has_room: [true; 2],
            stop_at: None,
            closed: false,
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Mailbox> {
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the owner if it sleeps, after unlocking.
    fn unlock_and_wake(&self, mut mailbox: MutexGuard<'_, Mailbox>) {
        let asleep = mem::replace(&mut mailbox.sleeping, false);
        drop(mailbox);
        if asleep {
            // The only refusal is a counter at its maximum: then it is readable anyhow.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }

    fn refuse(&self, errno: i32) {
        let _ = self
            .refused
            .compare_exchange(0, errno, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl ChunkWatcher for Shared {
    fn populated(&self, chunk: Chunk) {
        let mut mailbox = self.lock();
        if !mailbox.closed {
            mailbox.controls.push_back(Control::Register(chunk));
            self.unlock_and_wake(mailbox);
        }
    }

    /// Waits for the owner, which never waits for anybody but the kernel.
    ///
    /// # Panics
    /// In a completion: that is the owner itself.
    fn releasing(&self, chunk: Chunk) {
        let here = std::thread::current().id();
        assert!(
            self.owner.get() != Some(&here),
            "a completion must not give memory back"
        );
        let mut mailbox = self.lock();
        if mailbox.closed {
            return;
        }
        mailbox.controls.push_back(Control::Release(chunk));
        mailbox.releases_asked += 1;
        let ticket = mailbox.releases_asked;
        self.unlock_and_wake(mailbox);
        let mut mailbox = self.lock();
        while mailbox.releases_done < ticket && !mailbox.closed {
            mailbox = self
                .released
                .wait(mailbox)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A place for one request in the kernel.
struct Slot {
    job: Option<Job>,
    /// The chunk that a fixed request of this slot uses.
    fixed: Option<u32>,
}

/// A chunk as the ring's table has it.
#[derive(Clone, Copy, Default)]
struct Entry {
    registered: bool,
    /// Fixed requests under way.
    users: u32,
    /// A release waits for `users` to become zero.
    releasing: bool,
}

/// The thread that owns the ring.
struct Owner {
    // Dropped first: the kernel releases slots and table before their memory is freed.
    ring: IoUring,
    abilities: Abilities,
    shared: Arc<Shared>,
    arena: Arc<Arena>,
    lane: Arc<Pool>,
    slots: Vec<Slot>,
    /// `MAX_VECTORS` elements for each slot, in order.
    vectors: Box<[IoVec]>,
    free: Vec<usize>,
    /// Slots that may take what is no read, beside those that have some.
    for_others: usize,
    table: Vec<Entry>,
    incoming: Vec<Job>,
    controls: VecDeque<Control>,
    completed: Vec<(u64, i32, bool)>,
    /// Marks of what is in the ring and not in the kernel, in order.
    pushed: VecDeque<u64>,
    /// Since when the kernel takes nothing, and why.
    refused: Option<(Instant, i32)>,
    /// No job enters the kernel any more, and none is there.
    gave_up: bool,
    poll_armed: bool,
    stop_at: Option<Instant>,
    cancelled: bool,
}

/// Closes the mailbox however the owner ends, and ends what is in it (invariant 4).
struct Closing(Arc<Shared>);

impl Drop for Closing {
    fn drop(&mut self) {
        let mut mailbox = self.0.lock();
        mailbox.closed = true;
        let mut left = mem::take(&mut mailbox.jobs);
        drop(mailbox);
        self.0.released.notify_all();
        while let Some(job) = left.pop(false) {
            self.0.ledger.finish(job, Err(IoError::Cancelled));
        }
    }
}

impl Owner {
    fn new(
        shared: Arc<Shared>,
        arena: Arc<Arena>,
        lane: Arc<Pool>,
        register: bool,
    ) -> Result<Self, OsError> {
        let ring = build_ring(ENTRIES)?;
        let abilities = Abilities::of(&ring)?;
        let mut chunks = 0;
        if register {
            chunks = arena.chunks().min(TABLE_MAX);
            let entries = u32::try_from(chunks).expect("at most TABLE_MAX");
            if let Err(error) = ring.submitter().register_buffers_sparse(entries) {
                shared.refuse(errno_of(&error));
                chunks = 0;
            }
        }
        let slot = || Slot {
            job: None,
            fixed: None,
        };
        Ok(Self {
            ring,
            abilities,
            shared,
            arena,
            lane,
            slots: core::iter::repeat_with(slot).take(DEPTH).collect(),
            vectors: no_vectors(),
            free: (0..DEPTH).rev().collect(),
            for_others: DEPTH - FOR_READS,
            table: vec![Entry::default(); chunks],
            incoming: Vec::with_capacity(DEPTH),
            controls: VecDeque::with_capacity(chunks.min(1024)),
            completed: Vec::with_capacity(ENTRIES as usize * 2),
            pushed: VecDeque::with_capacity(ENTRIES as usize),
            refused: None,
            gave_up: false,
            poll_armed: false,
            stop_at: None,
            cancelled: false,
        })
    }

    fn run(mut self) {
        let _closing = Closing(Arc::clone(&self.shared));
        self.shared
            .owner
            .get_or_init(|| std::thread::current().id());
        loop {
            let idle = self.collect();
            while let Some(control) = self.controls.pop_front() {
                self.obey(control);
            }
            let mut incoming = mem::take(&mut self.incoming);
            for job in incoming.drain(..) {
                self.begin(job);
            }
            self.incoming = incoming;
            if self.stop_at.is_some() && !self.go_on_stopping() {
                break;
            }
            if self.gave_up {
                self.wait_for_mail(idle);
                continue;
            }
            if !self.poll_armed {
                self.arm_poll();
            }
            self.enter(idle);
            self.reap();
            self.look_at_refusals();
        }
    }

    /// Takes what the mailbox has and the slots allow. True: nothing, and submitters know that the
    /// owner goes to sleep.
    fn collect(&mut self) -> bool {
        let mut mailbox = self.shared.lock();
        mem::swap(&mut mailbox.controls, &mut self.controls);
        self.stop_at = mailbox.stop_at;
        let (mut free, mut for_others) = (self.free.len(), self.for_others);
        while free > 0
            && let Some(job) = mailbox.jobs.pop(for_others == 0)
        {
            free -= 1;
            for_others -= usize::from(!is_read(job.request.class));
            self.incoming.push(job);
        }
        let idle = self.incoming.is_empty() && self.controls.is_empty();
        mailbox.sleeping = idle;
        mailbox.has_room = [free.min(for_others) > 0, free > 0];
        idle
    }

    fn obey(&mut self, control: Control) {
        match control {
            Control::Register(chunk) => self.register(chunk),
            Control::Release(chunk) => self.release(chunk),
        }
    }

    fn register(&mut self, chunk: Chunk) {
        if self.table.get(chunk.index as usize).is_none() {
            return;
        }
        let memory = IoVec {
            iov_base: chunk.base.cast(),
            iov_len: chunk.len,
        };
        match self.update_table(chunk.index, memory) {
            Ok(()) => {
                self.table[chunk.index as usize].registered = true;
                self.shared.registered.fetch_add(1, Ordering::Relaxed);
            }
            Err(errno) => self.shared.refuse(errno),
        }
    }

    fn release(&mut self, chunk: Chunk) {
        let index = chunk.index as usize;
        if self.table.get(index).is_some_and(|entry| entry.registered) {
            self.update_table(chunk.index, NO_MEMORY)
                .expect("emptying an entry of the table takes no memory and has no way to fail");
            self.table[index].registered = false;
            self.shared.registered.fetch_sub(1, Ordering::Relaxed);
            if self.table[index].users > 0 {
                self.table[index].releasing = true;
                return;
            }
        }
        self.answer_release();
    }

    fn answer_release(&self) {
        self.shared.lock().releases_done += 1;
        self.shared.released.notify_all();
    }

    fn update_table(&self, index: u32, memory: IoVec) -> Result<(), i32> {
        // SAFETY: a chunk's memory stays mapped and resident until this ring has answered its
        // release (arena invariant 3), which it does after emptying the entry; `NO_MEMORY` is none.
        let updated = unsafe {
            self.ring
                .submitter()
                .register_buffers_update(index, &[memory], None)
        };
        updated.map_err(|error| errno_of(&error))
    }

    /// Gives a job a slot, or ends it at once.
    fn begin(&mut self, mut job: Job) {
        if let Some(result) = job.early() {
            self.shared.ledger.finish(job, result);
            return;
        }
        let is_of_ring = !matches!(job.request.op, IoOp::SetLen { .. }) || self.abilities.ftruncate;
        if self.gave_up || !is_of_ring {
            self.hand_on(job);
            return;
        }
        let index = self
            .free
            .pop()
            .expect("`collect` took no more jobs than there are slots");
        self.for_others -= usize::from(!is_read(job.request.class));
        self.slots[index].job = Some(job);
        self.push_slot(index);
    }

    fn hand_on(&self, job: Job) {
        self.lane.submit(job);
        self.shared.ledger.handed_on();
    }

    fn push_slot(&mut self, index: usize) {
        let entry = self.entry_of(index).user_data(index as u64);
        self.push(&entry);
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: what the entry points to is a slot's vector (invariant 3), frames of a request
        // that is not complete (they are its own and stay resident), and a file that the slot's
        // job keeps open; all of it stays until the completion was reaped, or is leaked.
        let pushed = unsafe { self.ring.submission().push(entry) };
        // Of each slot there is one, and of what else there is, too.
        pushed.expect("a submission ring has room: ENTRIES > DEPTH + 2");
        self.pushed.push_back(entry.get_user_data());
    }

    /// Notes how an attempt to submit went.
    fn note(&mut self, entered: std::io::Result<usize>) {
        let left = self.ring.submission().len();
        let gone = self.pushed.len().saturating_sub(left);
        self.pushed.drain(..gone);
        let errno = entered.err().map_or(0, |error| assert_passing(&error));
        if gone > 0 || left == 0 {
            self.refused = None;
        } else if [libc::EAGAIN, libc::ENOMEM].contains(&errno) {
            self.refused.get_or_insert_with(|| (Instant::now(), errno));
        }
    }

    /// Where the kernel takes no request: has it end those it has, and does without it if that
    /// lasts.
    fn look_at_refusals(&mut self) {
        let Some((since, errno)) = self.refused else {
            return;
        };
        std::thread::sleep(REFUSED_TICK);
        // The kernel does what it has put off until it is asked.
        let runs = EnterFlags::GETEVENTS.bits();
        // SAFETY: nothing is submitted, and there is no argument.
        let _ = unsafe { self.ring.submitter().enter::<()>(0, 0, runs, None) };
        self.reap();
        let is_slot = |mark: &&u64| **mark != WAKE && **mark != CANCEL;
        let in_ring = self.pushed.iter().filter(is_slot).count();
        let in_kernel = DEPTH - self.free.len() - in_ring;
        if since.elapsed() < REFUSED_MAX || in_kernel > 0 {
            return;
        }
        self.gave_up = true;
        let step = "io_uring_enter, for a second and more,";
        let fallback = &self.shared.fallback;
        fallback.get_or_init(|| OsError::Uring { step, errno });
        for index in 0..DEPTH {
            if self.slots[index].job.is_some() {
                self.let_go_of_chunk(index);
                let job = self.take_job(index);
                self.hand_on(job);
            }
        }
    }

    /// Sleeps until a job or a wish to stop comes.
    fn wait_for_mail(&self, idle: bool) {
        if !idle {
            return;
        }
        let mut fds = [PollFd::new(&self.shared.wake, PollFlags::IN)];
        // Interrupted: it looks again.
        let _ = poll(&mut fds, None);
        let _ = rustix::io::read(&self.shared.wake, &mut [0_u8; 8]);
        self.shared.lock().sleeping = false;
    }

    /// The kernel's form of what is left of a slot's job.
    fn entry_of(&mut self, index: usize) -> squeue::Entry {
        let slot = &mut self.slots[index];
        let job = slot
            .job
            .as_ref()
            .expect("a slot that is not free holds a job");
        let fd = Fd(job.file.fd());
        let write = match job.request.op {
            IoOp::Read => false,
            IoOp::Write => true,
            IoOp::Flush => return opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
            IoOp::SetLen { len } => return opcode::Ftruncate::new(fd, len.0).build(),
            IoOp::Allocate { len } => {
                return opcode::Fallocate::new(fd, len.0)
                    .offset(job.request.offset.0)
                    .mode(libc::FALLOC_FL_KEEP_SIZE)
                    .build();
            }
            IoOp::Prepare { .. } => return opcode::Nop::new().build(),
            IoOp::Discard { len } => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                let offset = job.request.offset.0;
                return opcode::Fallocate::new(fd, len.0)
                    .offset(offset)
                    .mode(mode)
                    .build();
            }
        };
        let vectors = &mut self.vectors[index * MAX_VECTORS..][..MAX_VECTORS];
        let plan = job.plan(&self.arena, vectors);
        let offset = job.position();
        let registered = |chunk: &u32| {
            self.table
                .get(*chunk as usize)
                .is_some_and(|entry| entry.registered)
        };
        let usable = plan.vectors == 1 || self.abilities.vectored_fixed;
        let fixed = plan.chunk.filter(|chunk| usable && registered(chunk));
        slot.fixed = fixed;
        let Some(chunk) = fixed else {
            let (vectors, count) = (vectors.as_ptr(), vector_count(plan.vectors));
            return if write {
                opcode::Writev::new(fd, vectors, count)
                    .offset(offset)
                    .build()
            } else {
                opcode::Readv::new(fd, vectors, count)
                    .offset(offset)
                    .build()
            };
        };
        self.table[chunk as usize].users += 1;
        fixed_entry(fd, &vectors[..plan.vectors], chunk, offset, write)
    }

    fn arm_poll(&mut self) {
        let events = u32::try_from(libc::POLLIN).expect("POLLIN is positive");
        let poll = opcode::PollAdd::new(Fd(self.shared.wake.as_raw_fd()), events).multi(true);
        self.push(&poll.build().user_data(WAKE));
        self.poll_armed = true;
    }

    /// Submits, and waits for a completion if there is nothing else to do.
    fn enter(&mut self, idle: bool) {
        let entered = if !idle {
            self.ring.submit()
        } else if self.stop_at.is_some() {
            let tick = Timespec::from(STOP_TICK);
            self.ring
                .submitter()
                .submit_with_args(1, &SubmitArgs::new().timespec(&tick))
        } else {
            self.ring.submit_and_wait(1)
        };
        self.note(entered);
        if idle {
            let mut mailbox = self.shared.lock();
            mailbox.sleeping = false;
            mailbox.has_room = [true; 2];
        }
    }

    fn reap(&mut self) {
        let mut completed = mem::take(&mut self.completed);
        let entries = self.ring.completion();
        completed.extend(
            entries.map(|e| (e.user_data(), e.result(), io_uring::cqueue::more(e.flags()))),
        );
        for (mark, result, more) in completed.drain(..) {
            match mark {
                WAKE => self.poll_armed = more,
                CANCEL => {}
                slot => {
                    let index = usize::try_from(slot).expect("a slot's number");
                    self.on_completion(index, result);
                }
            }
        }
        self.completed = completed;
    }

    fn let_go_of_chunk(&mut self, index: usize) {
        if let Some(chunk) = self.slots[index].fixed.take() {
            let entry = &mut self.table[chunk as usize];
            entry.users -= 1;
            if entry.users == 0 && mem::take(&mut entry.releasing) {
                self.answer_release();
            }
        }
    }

    fn on_completion(&mut self, index: usize, result: i32) {
        self.let_go_of_chunk(index);
        let job = self.slots[index]
            .job
            .as_mut()
            .expect("completions belong to slots in use");
        let refused = result == -libc::EOPNOTSUPP || result == -libc::ENOSYS;
        if refused && matches!(job.request.op, IoOp::Discard { .. }) {
            let job = self.take_job(index);
            self.hand_on(job);
            return;
        }
        let answer = u64::try_from(result).map_err(|_| -result);
        match job.on_result(&self.arena, answer) {
            Step::Again => self.push_slot(index),
            Step::Done(result) => {
                let job = self.take_job(index);
                self.shared.ledger.finish(job, result);
            }
        }
    }

    fn take_job(&mut self, index: usize) -> Job {
        self.free.push(index);
        let job = self.slots[index].job.take().expect("the slot was in use");
        self.for_others += usize::from(!is_read(job.request.class));
        job
    }

    /// While stopping: false when the owner may leave.
    fn go_on_stopping(&mut self) -> bool {
        let mut left = mem::take(&mut self.shared.lock().jobs);
        while let Some(job) = left.pop(false) {
            self.shared.ledger.finish(job, Err(IoError::Cancelled));
        }
        if self.free.len() == DEPTH {
            return false;
        }
        let stop_at = self.stop_at.expect("only called while stopping");
        let now = Instant::now();
        if now >= stop_at && !mem::replace(&mut self.cancelled, true) {
            let cancel = opcode::AsyncCancel2::new(CancelBuilder::any());
            self.push(&cancel.build().user_data(CANCEL));
            self.poll_armed = true;
        }
        now < stop_at + CANCEL_BOUND
    }
}

impl Drop for Owner {
    /// Ends what the kernel did not give back, and leaks what the kernel may still touch.
    fn drop(&mut self) {
        let mut lost = false;
        for slot in &mut self.slots {
            if let Some(job) = slot.job.take() {
                lost = true;
                self.shared.ledger.finish(job, Err(IoError::Cancelled));
            }
        }
        if lost {
            mem::forget(Arc::clone(&self.arena));
            mem::forget(mem::take(&mut self.vectors));
        }
    }
}

/// Elements for all slots. Nothing is written to them here: an element that no request has used is
/// not resident, and the ring takes the slot that was free last.
fn no_vectors() -> Box<[IoVec]> {
    let vectors = Box::<[IoVec]>::new_zeroed_slice(DEPTH * MAX_VECTORS);
    // SAFETY: an element is a pointer and a length; null and zero, which is `NO_MEMORY`, are values
    // of them.
    unsafe { vectors.assume_init() }
}

fn vector_count(vectors: usize) -> u32 {
    u32::try_from(vectors).expect("at most MAX_VECTORS")
}

/// A request on a registered chunk: one run, or several where the kernel can.
fn fixed_entry(fd: Fd, vectors: &[IoVec], chunk: u32, offset: u64, write: bool) -> squeue::Entry {
    let buffer = u16::try_from(chunk).expect("registered chunks are below TABLE_MAX");
    if let [run] = vectors {
        let (start, len) = (run.iov_base.cast::<u8>(), u32::try_from(run.iov_len));
        let len = len.expect("a run lies in one chunk, at most 64 MiB");
        return if write {
            opcode::WriteFixed::new(fd, start, len, buffer)
                .offset(offset)
                .build()
        } else {
            opcode::ReadFixed::new(fd, start, len, buffer)
                .offset(offset)
                .build()
        };
    }
    let (start, count) = (vectors.as_ptr(), vector_count(vectors.len()));
    if write {
        opcode::WritevFixed::new(fd, start, count, buffer)
            .offset(offset)
            .build()
    } else {
        opcode::ReadvFixed::new(fd, start, count, buffer)
            .offset(offset)
            .build()
    }
}

/// Errors of io_uring_enter that pass: interrupted, out of memory for now, completions to reap
/// first, timeout. Anything else is a bug of this module.
fn assert_passing(error: &std::io::Error) -> i32 {
    let errno = errno_of(error);
    let passing = [
        libc::EINTR,
        libc::EAGAIN,
        libc::EBUSY,
        libc::ETIME,
        libc::ENOMEM,
    ];
    assert!(passing.contains(&errno), "io_uring_enter: {error}");
    errno
}

const _: () = assert!(
    PAGE_SIZE == 4096,
    "vectors and chunks are made of 4 KiB frames"
);

#[cfg(test)]
mod tests;
