//! A task: the right to block, and the only way to do it.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use policy::units::{Instant, Nanos};

use crate::{Cause, Context, Env, Event, Local, Signal, TaskId, Unparked, WaitQueue, Wakeup, Work};

/// The right to block. Procedures take `&mut Task`; a procedure without one cannot sleep.
pub struct Task<'e> {
    env: &'e dyn Env,
    /// Its own part, of which the thread may keep another handle for its next task.
    local: Rc<dyn Local>,
    id: TaskId,
    times_calls: bool,
    held: Cell<u16>,
    may_block: bool,
    /// The client it acts for, if that may end before the task does.
    client: Option<Arc<Client>>,
}

/// A client that tasks change files for; it may end while they do.
#[derive(Debug, Default)]
pub struct Client {
    ended: AtomicBool,
}

impl Client {
    /// Tasks leave the changes that they have not made for it yet.
    pub fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    /// True if it has ended.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }
}

impl Context for Task<'_> {
    fn held(&self) -> &Cell<u16> {
        &self.held
    }

    fn on_cpu(&self) -> Option<usize> {
        Some(self.cpu())
    }
}

impl<'e> Task<'e> {
    /// A task of `env`; only `Env`s make them, from the local part that is theirs.
    #[inline]
    pub fn new(env: &'e dyn Env, local: Rc<dyn Local>, id: TaskId) -> Self {
        Self {
            env,
            local,
            id,
            times_calls: env.times_calls(),
            held: Cell::new(0),
            may_block: true,
            client: None,
        }
    }

    /// Has the task do `work` without a wait: a wait that would have to be taken ends at once with
    /// `Refused`, and no event tells of it. For tasks on threads that have others to serve.
    pub fn nonblocking<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let before = core::mem::replace(&mut self.may_block, false);
        let answer = work(self);
        self.may_block = before;
        answer
    }

    /// True if it may block now: wait, or sleep.
    #[inline]
    pub fn may_block(&self) -> bool {
        self.may_block
    }

    /// From now on it acts for `client`.
    pub fn act_for(&mut self, client: &Arc<Client>) {
        self.client = Some(Arc::clone(client));
    }

    /// True if its work is still wanted: not once the client that it acts for has ended.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.client
            .as_ref()
            .is_none_or(|client| !client.has_ended())
    }

    /// Its `Env`.
    #[inline]
    pub fn env(&self) -> &'e dyn Env {
        self.env
    }

    /// Its number.
    #[inline]
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// The time.
    #[inline]
    pub fn now(&self) -> Instant {
        self.env.now()
    }

    /// The CPU it runs on.
    #[inline]
    pub fn cpu(&self) -> usize {
        self.local.cpu()
    }

    /// A random number from its own stream.
    #[inline]
    pub fn random(&mut self) -> u64 {
        self.local.random()
    }

    /// Reports work, once per batch. Due events may run here, so no lock may be held: `&mut`.
    #[inline]
    pub fn did(&mut self, work: Work, units: u64) {
        if units > 0 {
            self.local.did(work, units);
        }
    }

    /// When a call began, where calls are timed.
    #[inline]
    pub fn begins_call(&self) -> Option<Instant> {
        self.times_calls.then(|| self.now())
    }

    /// The length of the call that began then, or nothing.
    #[inline]
    pub fn took(&self, began: Option<Instant>) -> Nanos {
        began.map_or(Nanos::ZERO, |began| self.now().since(began))
    }

    /// Takes note of an event.
    #[inline]
    pub fn emit(&self, event: &Event) {
        self.env.emit(self.id, event);
    }

    /// Sleeps for `pause`. Nothing shortens it but the shutdown.
    pub fn sleep(&mut self, cause: Cause, pause: Nanos) -> Wakeup {
        self.sleep_until(cause, self.now() + pause)
    }

    /// Sleeps until `deadline`.
    pub fn sleep_until(&mut self, cause: Cause, deadline: Instant) -> Wakeup {
        if !self.may_block {
            return Wakeup::Refused;
        }
        let began = self.now();
        self.emit(&Event::Waiting { cause });
        let wakeup = loop {
            match self.local.park(Some(deadline)) {
                // A waker from an earlier queue may come late.
                Unparked::Woken if self.now() < deadline => {}
                Unparked::Woken | Unparked::TimedOut => break Wakeup::TimedOut,
                Unparked::Cancelled => break Wakeup::Cancelled,
            }
        };
        self.waited(cause, began, wakeup);
        wakeup
    }

    /// Waits in `queue` as long as `blocked` answers true, at most until `deadline`.
    ///
    /// The condition is looked at after queueing and after every wake, so no wake is lost. A wake
    /// that this task used up without need (its deadline passed at the same moment) is passed on. A
    /// wait that ends `Ready` names the wake that ended it, or says that none did (`Signal::Seen`,
    /// `AtDeadline`).
    pub fn wait_while(
        &mut self,
        queue: &WaitQueue,
        cause: Cause,
        deadline: Option<Instant>,
        mut blocked: impl FnMut(&Self) -> bool,
    ) -> Wakeup {
        if !blocked(self) {
            return Wakeup::Ready(Signal::Seen);
        }
        if !self.may_block {
            return Wakeup::Refused;
        }
        let began = self.now();
        self.emit(&Event::Waiting { cause });
        // The wake that made it look again.
        let mut last = Signal::Seen;
        let wakeup = loop {
            let ticket = queue.join(self.local.waker());
            if !blocked(self) {
                let signal = queue.leave(ticket);
                if let Some(signal) = signal {
                    queue.wake_one(signal);
                }
                break Wakeup::Ready(signal.unwrap_or(last));
            }
            let unparked = self.local.park(deadline);
            let signal = queue.leave(ticket);
            if unparked == Unparked::Woken {
                last = signal.unwrap_or(last);
                if !blocked(self) {
                    break Wakeup::Ready(last);
                }
                continue;
            }
            if let Some(signal) = signal {
                queue.wake_one(signal);
            }
            break match unparked {
                Unparked::Cancelled => Wakeup::Cancelled,
                Unparked::TimedOut | Unparked::Woken if blocked(self) => Wakeup::TimedOut,
                Unparked::TimedOut | Unparked::Woken => {
                    Wakeup::Ready(signal.unwrap_or(Signal::AtDeadline))
                }
            };
        };
        self.waited(cause, began, wakeup);
        wakeup
    }

    fn waited(&mut self, cause: Cause, began: Instant, wakeup: Wakeup) {
        let waited = self.now().since(began);
        self.emit(&Event::Waited {
            cause,
            waited,
            wakeup,
        });
        self.did(Work::Switch, 1);
    }
}

/// A task that was started and will answer with a `T`.
pub struct JoinHandle<T> {
    shared: Arc<Joint<T>>,
}

struct Joint<T> {
    answer: Mutex<Option<T>>,
    done: WaitQueue,
}

/// Starts a task and keeps a handle to its answer.
///
/// # Panics
/// When the system has no thread to give.
pub fn spawn<T: Send + 'static>(
    env: &dyn Env,
    name: &str,
    body: impl FnOnce(&mut Task<'_>) -> T + Send + 'static,
) -> JoinHandle<T> {
    let shared = Arc::new(Joint {
        answer: Mutex::new(None),
        done: WaitQueue::new(),
    });
    let joint = Arc::clone(&shared);
    env.spawn(
        name,
        Box::new(move |task| {
            let answer = body(task);
            *joint.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
            joint.done.wake_all(Signal::TaskEnded);
        }),
    )
    .expect("the system has a thread for a task");
    JoinHandle { shared }
}

impl<T> JoinHandle<T> {
    /// True if the answer is there.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.shared
            .answer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some()
    }

    /// Waits for the answer. `None`: cancelled before it came.
    pub fn join(self, task: &mut Task<'_>) -> Option<T> {
        let shared = &self.shared;
        task.wait_while(&shared.done, Cause::Join, None, |_| {
            shared
                .answer
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .is_none()
        });
        self.try_join()
    }

    /// The answer if it is there, from outside any task.
    #[must_use]
    pub fn try_join(self) -> Option<T> {
        self.shared
            .answer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}
