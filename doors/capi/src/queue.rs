//! Requests that are carried out elsewhere: for a program with an event loop.
//!
//! ```text
//!   tg_submit ──a read of what is in memory──────────────> done ──> eventfd is readable ──> tg_reap
//!        '────all else──> lane of reads, or of writes ──────^
//!                          (threads of its own, which may wait)
//! ```
//!
//! Reads have threads of their own: a writer that is paced sleeps on its thread, and holds up no
//! reader.
//!
//! Invariants
//!   1. The eventfd is readable exactly while something is done and not reaped; both change under
//!      one lock.
//!   2. A request holds its file until it is done.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, eventfd};
use tidegate::File;

use crate::border::slots::{Handle, Kind, Table};
use crate::border::{self, In, Kept, Out, Result, caught};
use crate::cache::{self, CacheOf, Lodger};
use crate::failure::{Failure, TG_AGAIN, TG_OK, TG_SYSTEM, keep};
use crate::file::{self, Opened};

flags! {
    TG_READ = 1,
    TG_WRITE = 2,
    TG_SYNC = 3,
}

sized_struct! {
    /// A request.
    "tg_request" Request {
        operation: u32,
        file: Handle<Opened>,
        data: Out<c_void>,
        len: usize,
        offset: u64,
        tag: u64,
    }
}

c_struct! {
    /// Its outcome.
    "tg_done" Done {
        tag: u64,
        result: i64,
        system: i32,
        reserved: i32,
    }
}

/// A queue of C's.
pub(crate) struct Queue {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    cache: Handle<CacheOf>,
}

kind! { Queue, QUEUES, 5, lodger }

struct Shared {
    event: OwnedFd,
    /// Reads; writes and syncs.
    lanes: [Lane; 2],
    ended: Mutex<Ended>,
    depth: usize,
}

#[derive(Default)]
struct Lane {
    waiting: Mutex<Waiting>,
    woken: Condvar,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    stopped: bool,
}

#[derive(Default)]
struct Ended {
    done: VecDeque<(u64, Result<i64>)>,
    /// Submitted, and not reaped.
    under_way: usize,
}

/// A request, and the thing that it is for.
struct Job {
    file: Arc<File>,
    operation: u32,
    data: Kept,
    /// Bytes that were moved already.
    moved: usize,
    offset: u64,
    tag: u64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Job {
    fn run(&mut self) -> Result<i64> {
        let (moved, offset) = (self.moved, self.offset + self.moved as u64);
        match self.operation {
            TG_READ => Ok(border::count(
                moved + self.file.read_at(&mut self.data.bytes()[moved..], offset)?,
            )),
            TG_WRITE => Ok(border::count(
                self.file.write_at(self.data.bytes(), offset)?,
            )),
            _ => {
                self.file.sync()?;
                Ok(0)
            }
        }
    }
}

impl Shared {
    fn done(&self, tag: u64, result: Result<i64>) {
        let mut ended = locked(&self.ended);
        if ended.done.is_empty() {
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
        ended.done.push_back((tag, result));
    }

    /// The work of a thread of a lane.
    fn work(&self, lane: usize) {
        let Some(lane) = self.lanes.get(lane) else {
            return;
        };
        loop {
            let job = {
                let waiting = locked(&lane.waiting);
                let idle = |waiting: &mut Waiting| waiting.jobs.is_empty() && !waiting.stopped;
                let waiting = lane.woken.wait_while(waiting, idle);
                waiting
                    .unwrap_or_else(PoisonError::into_inner)
                    .jobs
                    .pop_front()
            };
            let Some(mut job) = job else { return };
            let tag = job.tag;
            let result = caught(|| job.run());
            // Before it is told: the caller may close the file then.
            drop(job);
            self.done(tag, result);
        }
    }

    fn submit(&self, request: &Request) -> Result<()> {
        let mut job = Job {
            file: file::with(request.file, |file| Ok(Arc::clone(file)))?,
            operation: request.operation,
            data: Kept::new(request.data, request.len)?,
            moved: 0,
            offset: request.offset,
            tag: request.tag,
        };
        if !matches!(request.operation, TG_READ | TG_WRITE | TG_SYNC) {
            let words = format!(
                "operation is {}; TG_READ, TG_WRITE and TG_SYNC are possible",
                request.operation
            );
            return Err(Failure::invalid(words));
        }
        {
            let mut ended = locked(&self.ended);
            if ended.under_way >= self.depth {
                let words = format!("{} requests are under way; reap some", self.depth);
                return Err(Failure::new(TG_AGAIN, words));
            }
            ended.under_way += 1;
        }
        if job.operation == TG_READ {
            let tried = job.file.try_read_at(job.data.bytes(), job.offset);
            match tried {
                Ok(progress) if progress.would_block => job.moved = progress.bytes,
                tried => {
                    let result = tried
                        .map(|progress| border::count(progress.bytes))
                        .map_err(Failure::from);
                    drop(job);
                    self.done(request.tag, result);
                    return Ok(());
                }
            }
        }
        let lane = &self.lanes[usize::from(job.operation != TG_READ)];
        locked(&lane.waiting).jobs.push_back(job);
        lane.woken.notify_one();
        Ok(())
    }

    fn reap(&self, max: usize) -> Vec<(u64, Result<i64>)> {
        let mut ended = locked(&self.ended);
        let count = max.min(ended.done.len());
        let reaped: Vec<_> = ended.done.drain(..count).collect();
        ended.under_way -= count;
        if count > 0 && ended.done.is_empty() {
            let mut counter = [0; 8];
            let _ = rustix::io::read(&self.event, &mut counter);
        }
        reaped
    }
}

impl Queue {
    fn new(cache: Handle<CacheOf>, depth: u32, threads: u32) -> Result<Self> {
        let refused = |what: &str, errno: i32| {
            let words = format!("no {what} for the queue: system error {errno}");
            Failure::new(TG_SYSTEM, words).of_system(errno)
        };
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let event = eventfd(0, flags).map_err(|error| refused("eventfd", error.raw_os_error()))?;
        let shared = Arc::new(Shared {
            event,
            lanes: Default::default(),
            ended: Mutex::default(),
            depth: depth as usize,
        });
        let mut queue = Self {
            shared,
            threads: Vec::new(),
            cache,
        };
        for lane in [0, 1] {
            for _ in 0..threads {
                let shared = Arc::clone(&queue.shared);
                let thread = std::thread::Builder::new().name("tidegate-queue".into());
                let thread = os::spawn(thread, move || shared.work(lane));
                // Dropped, the queue ends those that are there.
                let thread =
                    thread.map_err(|error| refused("thread", error.raw_os_error().unwrap_or(0)))?;
                queue.threads.push(thread);
            }
        }
        Ok(queue)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        for lane in &self.shared.lanes {
            locked(&lane.waiting).stopped = true;
            lane.woken.notify_all();
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn within(what: &str, value: u32, usual: u32, most: u32) -> Result<u32> {
    match value {
        0 => Ok(usual),
        value if value <= most => Ok(value),
        value => Err(Failure::invalid(format!(
            "{what} is {value}; 1 to {most} are possible, 0 means {usual}"
        ))),
    }
}

border! {
    fn tg_queue_new(cache: Handle<CacheOf>, depth: u32, threads: u32, queue: Out<Handle<Queue>>) -> i32 {
        let place = queue.there("queue")?;
        let (depth, threads) = (within("depth", depth, 128, 65_536)?, within("threads", threads, 4, 64)?);
        let made = cache::with(cache, |_| QUEUES.insert(Queue::new(cache, depth, threads)?));
        place.put(made?);
        Ok(TG_OK)
    }

    fn tg_queue_free(queue: Handle<Queue>) -> i32 {
        drop(QUEUES.take(queue)?);
        Ok(TG_OK)
    }

    fn tg_queue_fd(queue: Handle<Queue>) -> i32 {
        QUEUES.with(queue, |queue| Ok(queue.shared.event.as_raw_fd()))
    }

    fn tg_submit(queue: Handle<Queue>, request: In<Request>) -> i32 {
        if request.is_null() {
            return Err(Failure::null("request"));
        }
        let request = request.read_sized("request")?;
        QUEUES.with(queue, |queue| queue.shared.submit(&request)).map(|()| TG_OK)
    }

    fn tg_reap(queue: Handle<Queue>, done: Out<Done>, max: usize) -> i64 {
        let place = done.there("done")?;
        let reaped = QUEUES.with(queue, |queue| Ok(queue.shared.reap(max)))?;
        let reaped: Vec<Done> = reaped.into_iter().map(|(tag, result)| match result {
            Ok(result) => Done { tag, result, system: 0, reserved: 0 },
            Err(failure) => {
                let system = failure.errno;
                Done { tag, result: i64::from(keep(failure)), system, reserved: 0 }
            }
        }).collect();
        place.put_many(&reaped, max);
        Ok(border::count(reaped.len()))
    }
}
