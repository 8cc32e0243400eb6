//! Where threads of the pool leave what they did for a connection, and what wakes it.
//!
//! A job holds the mailbox, not the connection: it may end after the connection did. Its result is
//! then dropped here, with all that it holds.
//!
//! Invariant: for every job that is submitted exactly one `Done` is posted, also when the job is
//! dropped or panics (`Promise`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use crate::job::{Done, RequestId, Tell};

#[derive(Default)]
struct Inside {
    done: Vec<Done>,
    waker: Option<Waker>,
    closed: bool,
}

/// A connection's mailbox.
#[derive(Default)]
pub(crate) struct Mailbox {
    inside: Mutex<Inside>,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the connection look again.
    pub(crate) fn wake(&self) {
        let waker = self.lock().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Posts a result; drops it if the connection has closed.
    pub(crate) fn post(&self, done: Done) {
        let mut inside = self.lock();
        if inside.closed {
            drop(inside);
            drop(done);
            return;
        }
        inside.done.push(done);
        let waker = inside.waker.take();
        drop(inside);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes what is there into `done`, which is empty, and is to be woken by `waker` for what
    /// comes.
    pub(crate) fn collect(&self, done: &mut Vec<Done>, waker: &Waker) {
        let mut inside = self.lock();
        core::mem::swap(&mut inside.done, done);
        match &mut inside.waker {
            Some(known) => known.clone_from(waker),
            empty => *empty = Some(waker.clone()),
        }
    }

    /// Lets go of room that was made for many, if nothing is there.
    pub(crate) fn shrink(&self) {
        let mut inside = self.lock();
        if inside.done.is_empty() {
            inside.done = Vec::new();
        }
    }

    /// True if nobody comes any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Nobody comes any more.
    pub(crate) fn close(&self) {
        let mut inside = self.lock();
        inside.closed = true;
        inside.waker = None;
        let done = core::mem::take(&mut inside.done);
        drop(inside);
        drop(done);
    }
}

/// Posts what comes of a job, once.
pub(crate) struct Promise {
    mailbox: Arc<Mailbox>,
    id: Option<RequestId>,
    kept: bool,
}

impl Promise {
    pub(crate) fn new(mailbox: &Arc<Mailbox>, id: Option<RequestId>) -> Self {
        Self {
            mailbox: Arc::clone(mailbox),
            id,
            kept: false,
        }
    }

    pub(crate) fn keep(mut self, done: Done) {
        self.kept = true;
        self.mailbox.post(done);
    }

    /// Says that a whole request was carried out, or failed.
    pub(crate) fn of_whole(self, id: RequestId) -> Tell {
        Box::new(move |result| self.keep(Done::Whole { id, result }))
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if !self.kept {
            self.mailbox.post(Done::Lost { id: self.id });
        }
    }
}
