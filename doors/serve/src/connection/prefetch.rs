//! Bringing a range into memory, piece by piece, a piece at each turn of the connection: as advice,
//! or to see that it can be read.
//!
//! Invariant: advice is answered once. It ends before its end, as if it were there, when nobody
//! will read it any more: the server or the export does not go on. When the connection has ended,
//! the pool drops it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate::{Cursor, Error, Volume};

use crate::export::Export;
use crate::hub::{Hub, Stage};
use crate::job::{Done, RequestId};
use crate::mailbox::{Mailbox, Promise};
use crate::pool::Sort;

/// Bytes that are made ready at once.
pub(super) const READY: u64 = 1 << 20;

/// A range on its way into memory.
pub(super) struct Prefetch {
    pub(super) export: Arc<Export>,
    pub(super) volume: Arc<Volume>,
    pub(super) owner: Arc<Mailbox>,
    pub(super) cursor: Cursor,
    /// The rest: from this byte on, up to `end`.
    pub(super) at: u64,
    pub(super) end: u64,
    pub(super) purpose: Purpose,
    pub(super) id: RequestId,
    pub(super) promise: Promise,
}

/// The purpose of bringing a range.
pub(super) enum Purpose {
    /// The client will want it. One range after the other.
    Advice(Arc<Hub>),
    /// A read that is carried out before its reply begins, beside others of the connection. It may
    /// be more than fits into memory: pages that are gone again by then are read another time.
    Proof,
}

impl Prefetch {
    /// Has the pool do it.
    pub(super) fn submit(self) {
        let (export, owner) = (Arc::clone(&self.export), Arc::clone(&self.owner));
        let sort = self.sort();
        export
            .opened
            .pool
            .submit(sort, &owner, Box::new(move || self.run()));
    }

    fn sort(&self) -> Sort {
        match self.purpose {
            Purpose::Advice(_) => Sort::Advice,
            Purpose::Proof => Sort::Move,
        }
    }

    /// A piece of it.
    fn run(mut self) {
        let result = self.piece();
        if result.is_err() || self.at == self.end {
            self.tell(result);
        } else if matches!(self.purpose, Purpose::Proof) {
            self.submit();
        } else {
            let (export, owner) = (Arc::clone(&self.export), Arc::clone(&self.owner));
            let rest = Box::new(move || self.run());
            export.opened.pool.go_on(Sort::Advice, &owner, rest);
        }
    }

    fn piece(&mut self) -> Result<(), Error> {
        let (at, len) = (self.at, READY.min(self.end - self.at));
        self.at += len;
        match &self.purpose {
            Purpose::Advice(hub) if self.is_pointless(hub) => {
                self.at = self.end;
                Ok(())
            }
            Purpose::Advice(_) => self.volume.prepare_read(&mut self.cursor, at, len),
            Purpose::Proof => self.volume.verify_readable(&mut self.cursor, at, len),
        }
    }

    fn is_pointless(&self, hub: &Hub) -> bool {
        hub.stage() != Stage::Serving || self.export.withdrawn.load(Ordering::Acquire)
    }

    fn tell(self, result: Result<(), Error>) {
        // Before it is told: a connection that hears of it may want the volume for itself.
        drop((self.volume, self.export));
        let id = self.id;
        self.promise.keep(match self.purpose {
            Purpose::Advice(_) => Done::Whole { id, result },
            Purpose::Proof => Done::Read {
                id,
                cursor: self.cursor,
                result: result.map(|()| None),
            },
        });
    }
}
