//! Where threads of the pool leave what they did for a connection, and what wakes it.
//!
//! A job holds the mailbox, not the connection: it may end after the connection did. Its result is
//! then dropped here, with all that it holds.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use super::job::Done;

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
