//! Calls on a file as futures, for a program with an async runtime, whichever that is.
//!
//! ```text
//!   first poll ──try_read_at, try_write_at──> all moved: ready
//!       '──────> would block ──> a thread that may wait ──> the task is woken
//! ```
//!
//! A poll never waits: not for a device, memory, or a pause. Reads that wait were sent to the
//! device before a thread waits for them, so that the threads bound no queue of it. Threads are
//! made as they are needed, `THREADS` of each lane at most, and end after `IDLE`. Reads have a lane
//! of their own: a writer that is paced holds up no reader.
//!
//! Invariants
//!   1. A job has dropped its file before its answer is told: whoever has the answer may be the
//!      file's only owner.
//!   2. A job that is queued has a thread, or gets one that ends its job before it goes.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::{Cache, Error, File, OwnedPin};

/// Most threads of a lane.
const THREADS: usize = 16;
/// Time after which one without work ends.
const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// The threads of a cache for calls that wait.
#[derive(Default)]
pub(crate) struct Lanes {
    reads: Arc<Lane>,
    /// Writes and syncs.
    writes: Arc<Lane>,
}

impl Drop for Lanes {
    fn drop(&mut self) {
        for lane in [&self.reads, &self.writes] {
            locked(&lane.waiting).ended = true;
            lane.woken.notify_all();
        }
    }
}

#[derive(Default)]
struct Lane {
    waiting: Mutex<Waiting>,
    woken: Condvar,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    /// Idle threads go.
    ended: bool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lane {
    fn give(self: &Arc<Self>, job: Job) {
        let mut waiting = locked(&self.waiting);
        waiting.jobs.push_back(job);
        if waiting.idle >= waiting.jobs.len() {
            self.woken.notify_one();
            return;
        }
        if waiting.threads == THREADS {
            return;
        }
        waiting.threads += 1;
        drop(waiting);
        let own = Arc::clone(self);
        let thread = std::thread::Builder::new().name("tidegate call".into());
        if os::spawn(thread, move || own.work()).is_err() {
            let mut waiting = locked(&self.waiting);
            waiting.threads -= 1;
            // None is there to do it: the caller waits for it.
            let left = (waiting.threads == 0).then(|| core::mem::take(&mut waiting.jobs));
            drop(waiting);
            left.into_iter().flatten().for_each(|job| job());
        }
    }

    /// The work of a thread.
    fn work(&self) {
        let mut waiting = locked(&self.waiting);
        loop {
            if let Some(job) = waiting.jobs.pop_front() {
                drop(waiting);
                // It told its future.
                let _ = catch_unwind(AssertUnwindSafe(job));
                waiting = locked(&self.waiting);
                continue;
            }
            waiting.idle += 1;
            let none = |waiting: &mut Waiting| waiting.jobs.is_empty() && !waiting.ended;
            let woken = self.woken.wait_timeout_while(waiting, IDLE, none);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
            waiting.idle -= 1;
            if waiting.jobs.is_empty() {
                waiting.threads -= 1;
                return;
            }
        }
    }
}

/// The part of a call that needed no wait.
enum Tried<T> {
    Done(T),
    /// The rest of it, which may wait.
    Blocks(Box<dyn FnOnce() -> T + Send>),
}

/// The answer of a call, to come: a future, of any runtime. Nothing is done before it is polled.
/// Once it was, the call goes on to its end, also where this is dropped: the cache keeps the
/// buffer for so long.
#[must_use = "a future does nothing until it is polled"]
pub struct Answer<T> {
    lane: Arc<Lane>,
    call: Option<Box<dyn FnOnce() -> Tried<T> + Send>>,
    told: Arc<Mutex<Told<T>>>,
}

enum Told<T> {
    /// The task to wake.
    Awaited(Option<Waker>),
    Answered(T),
    /// The call panicked, or its answer was taken.
    Nothing,
}

/// Tells the answer of a call, or, dropped without, that there is none.
struct Teller<T>(Option<Arc<Mutex<Told<T>>>>);

impl<T> Teller<T> {
    fn tell(told: &Mutex<Told<T>>, now: Told<T>) {
        let before = core::mem::replace(&mut *locked(told), now);
        if let Told::Awaited(Some(waker)) = before {
            waker.wake();
        }
    }
}

impl<T> Drop for Teller<T> {
    fn drop(&mut self) {
        if let Some(told) = self.0.take() {
            Self::tell(&told, Told::Nothing);
        }
    }
}

impl<T: Send + 'static> Answer<T> {
    fn new(lane: &Arc<Lane>, call: impl FnOnce() -> Tried<T> + Send + 'static) -> Self {
        Self {
            lane: Arc::clone(lane),
            call: Some(Box::new(call)),
            told: Arc::new(Mutex::new(Told::Awaited(None))),
        }
    }

    /// Of a call that no part of can be done at once.
    fn waiting(lane: &Arc<Lane>, call: impl FnOnce() -> T + Send + 'static) -> Self {
        Self::new(lane, || Tried::Blocks(Box::new(call)))
    }
}

impl<T> Unpin for Answer<T> {}

impl<T: Send + 'static> Future for Answer<T> {
    type Output = T;

    /// # Panics
    /// If the call panicked, or the answer was taken before.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if let Some(call) = self.call.take() {
            match call() {
                Tried::Done(answer) => {
                    *locked(&self.told) = Told::Nothing;
                    return Poll::Ready(answer);
                }
                Tried::Blocks(rest) => {
                    *locked(&self.told) = Told::Awaited(Some(context.waker().clone()));
                    let mut teller = Teller(Some(Arc::clone(&self.told)));
                    self.lane.give(Box::new(move || {
                        let answer = rest();
                        if let Some(told) = teller.0.take() {
                            Teller::tell(&told, Told::Answered(answer));
                        }
                    }));
                }
            }
        }
        let mut told = locked(&self.told);
        match core::mem::replace(&mut *told, Told::Nothing) {
            Told::Answered(answer) => Poll::Ready(answer),
            Told::Awaited(_) => {
                *told = Told::Awaited(Some(context.waker().clone()));
                Poll::Pending
            }
            Told::Nothing => panic!("the call panicked, or its answer was taken before"),
        }
    }
}

impl File {
    /// As [`File::read_at`], as a future: it answers `buffer`, too.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tidegate::{Cache, Error, OpenOptions};
    /// # let dir = std::env::temp_dir().join(format!("tidegate-doc-async-{}", std::process::id()));
    /// # std::fs::create_dir_all(&dir)?;
    /// let cache = Cache::builder().memory(64 << 20).build()?;
    /// let file = Arc::new(cache.open(dir.join("log"), OpenOptions::new().create(true))?);
    /// let work = async move {
    ///     let (written, record) = file.write_async(b"record".to_vec(), 0).await;
    ///     assert_eq!(written?, record.len());
    ///     file.sync_async().await?;
    ///     let (read, bytes) = file.read_async(vec![0; 100], 2).await;
    ///     assert_eq!(&bytes[..read?], b"cord");
    ///     Ok::<(), Error>(())
    /// };
    /// # struct Unpark(std::thread::Thread);
    /// # impl std::task::Wake for Unpark {
    /// #     fn wake(self: Arc<Self>) { self.0.unpark(); }
    /// # }
    /// # let waker = Arc::new(Unpark(std::thread::current())).into();
    /// # let mut work = std::pin::pin!(work);
    /// # while work.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending() {
    /// #     std::thread::park();
    /// # }
    /// # cache.close()?;
    /// # std::fs::remove_dir_all(&dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_async<B>(
        self: &Arc<Self>,
        mut buffer: B,
        offset: u64,
    ) -> Answer<(Result<usize, Error>, B)>
    where
        B: AsMut<[u8]> + Send + 'static,
    {
        let file = Arc::clone(self);
        Answer::new(&self.lanes().reads, move || {
            match file.try_read_at(buffer.as_mut(), offset) {
                Ok(read) if read.would_block => Tried::Blocks(Box::new(move || {
                    let (at, rest) = (read.bytes, &mut buffer.as_mut()[read.bytes..]);
                    let read = file.read_at(rest, offset.saturating_add(at as u64));
                    (read.map(|bytes| at + bytes), buffer)
                })),
                read => Tried::Done((read.map(|read| read.bytes), buffer)),
            }
        })
    }

    /// As [`File::write_at`], as a future: it answers `data`, too.
    pub fn write_async<B>(
        self: &Arc<Self>,
        data: B,
        offset: u64,
    ) -> Answer<(Result<usize, Error>, B)>
    where
        B: AsRef<[u8]> + Send + 'static,
    {
        let file = Arc::clone(self);
        Answer::new(&self.lanes().writes, move || {
            let (len, mut at) = (data.as_ref().len(), 0);
            let place = move |at: usize| offset.saturating_add(at as u64);
            loop {
                match file.try_write_at(&data.as_ref()[at..], place(at)) {
                    Err(error) => return Tried::Done((Err(error.after(at as u64)), data)),
                    Ok(written) => {
                        at += written.bytes;
                        if written.would_block {
                            break;
                        }
                    }
                }
                if at == len {
                    return Tried::Done((Ok(len), data));
                }
            }
            Tried::Blocks(Box::new(move || {
                let written = file.write_at(&data.as_ref()[at..], place(at));
                let written = written.map_err(|error| error.after(at as u64));
                (written.map(|_| len), data)
            }))
        })
    }

    /// As [`File::pin`], as a future.
    pub fn pin_async(self: &Arc<Self>, page: u32) -> Answer<Result<OwnedPin, Error>> {
        let file = Arc::clone(self);
        Answer::new(&self.lanes().reads, move || {
            if let Some(pin) = file.try_pin(page) {
                return Tried::Done(Ok(pin.into_owned()));
            }
            // It is sent for, so that nothing but its device is waited for.
            let _ = file.try_read_at(&mut [0], u64::from(page) << 12);
            Tried::Blocks(Box::new(move || file.pin(page).map(crate::Pin::into_owned)))
        })
    }

    /// As [`File::sync`], as a future.
    pub fn sync_async(self: &Arc<Self>) -> Answer<Result<(), Error>> {
        let file = Arc::clone(self);
        Answer::waiting(&self.lanes().writes, move || file.sync())
    }

    /// As [`File::sync_range`], as a future.
    pub fn sync_range_async(self: &Arc<Self>, offset: u64, len: u64) -> Answer<Result<(), Error>> {
        let file = Arc::clone(self);
        Answer::waiting(&self.lanes().writes, move || file.sync_range(offset, len))
    }
}

impl Cache {
    /// As [`Cache::sync`], as a future.
    pub fn sync_async(&self) -> Answer<Result<(), Error>> {
        let cache = self.clone();
        Answer::waiting(&self.inner.lanes.writes, move || cache.sync())
    }
}
