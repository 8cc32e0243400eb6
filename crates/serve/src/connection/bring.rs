//! Bringing a range into memory, piece by piece, a piece at each turn of the connection: as advice, or to see that it can be
//! read.
//!
//! Invariant: advice is answered once. It ends before its end, as if it were there, when nobody will read it any more: the server
//! or the export does not go on. When the connection has ended, the pool drops it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate::{Cursor, Volume};

use super::Mailbox;
use super::job::{Done, Place, Promise};
use super::work::READY;
use crate::durable::Tell;
use crate::export::Export;
use crate::hub::{Hub, Stage};
use crate::pool::Sort;

/// A range on its way into memory.
pub(super) struct Prefetch {
    pub(super) hub: Arc<Hub>,
    pub(super) export: Arc<Export>,
    pub(super) volume: Arc<Volume>,
    pub(super) owner: Arc<Mailbox>,
    pub(super) cursor: Cursor,
    /// What is left: from this byte on, up to `end`.
    pub(super) at: u64,
    pub(super) end: u64,
    pub(super) tell: Tell,
}

impl Prefetch {
    /// Has the pool do it.
    pub(super) fn submit(self) {
        let (export, owner) = (Arc::clone(&self.export), Arc::clone(&self.owner));
        let job = Box::new(move || self.run());
        export.pool.submit(Sort::Advice, &owner, job);
    }

    /// A piece of it.
    fn run(mut self) {
        let len = READY.min(self.end - self.at);
        let result = if self.is_in_vain() {
            self.at = self.end;
            Ok(())
        } else {
            self.at += len;
            let at = self.at - len;
            self.volume.ready_read(&mut self.cursor, at, len)
        };
        if result.is_ok() && self.at < self.end {
            let (export, owner) = (Arc::clone(&self.export), Arc::clone(&self.owner));
            let rest = Box::new(move || self.run());
            export.pool.go_on(Sort::Advice, &owner, rest);
            return;
        }
        // Before it is told: whoever hears of it may want the volume for itself.
        drop((self.volume, self.export));
        (self.tell)(result);
    }

    fn is_in_vain(&self) -> bool {
        self.hub.stage() != Stage::Serving || self.export.withdrawn.load(Ordering::Acquire)
    }
}

/// A read that is carried out before its reply begins. It may be more than fits into memory: what is gone again by then is
/// read another time.
pub(super) struct Proof {
    pub(super) export: Arc<Export>,
    pub(super) volume: Arc<Volume>,
    pub(super) owner: Arc<Mailbox>,
    pub(super) cursor: Cursor,
    /// What is left: from this byte on, up to `end`.
    pub(super) at: u64,
    pub(super) end: u64,
    pub(super) place: Place,
    pub(super) promise: Promise,
}

impl Proof {
    /// Has the pool do it.
    pub(super) fn submit(self) {
        let (export, owner) = (Arc::clone(&self.export), Arc::clone(&self.owner));
        let job = Box::new(move || self.run());
        export.pool.submit(Sort::Move, &owner, job);
    }

    /// A piece of it.
    fn run(mut self) {
        let (at, end) = (self.at, self.end.min(self.at + READY));
        let result = self.volume.prove_read(&mut self.cursor, at, end - at);
        self.at = end;
        if result.is_ok() && self.at < self.end {
            self.submit();
            return;
        }
        // Before it is told: whoever hears of it may want the volume for itself.
        drop((self.volume, self.export));
        self.promise.keep(Done::Read {
            place: self.place,
            cursor: self.cursor,
            result: result.map(|()| None),
        });
    }
}
