//! A hole that a client asks for, step by step: trims, and zeroes where the backing can punch.
//!
//! ```text
//!   ask ──> step ──> step ──> ... ──> edges ──> durable, if that is wanted ──> answer
//!              each a job of the pool, behind what moves and what syncs
//! ```
//! A hole may be gigabytes, and each of its steps takes as long as the backing likes. So a step is
//! a job, of which only a few run at once (`pool.rs`), and the next one waits for its turn again.
//!
//! A hole reads as zeroes to the byte: programs behind a client (`fallocate` through nbdfuse)
//! expect that of a trim, too, though the protocol does not promise it. A trim of a backing that
//! only discards, whose pages may read as anything afterwards, leaves its edges as they are.
//!
//! Invariant: it is answered once. When the connection has ended, the pool drops what is left of
//! it.

use std::sync::Arc;

use nbd::transmit::Range;
use tidegate::{Error, Mode, PAGE_SIZE, Volume};

use crate::clients::Seen;
use crate::durable::Asker;
use crate::export::Export;
use crate::job::RequestId;
use crate::mailbox::{Mailbox, Promise};
use crate::pool::Sort;

/// Bytes of a step, from a multiple of it to the next: what the cache does in one go.
const STEP: u64 = 16 << 20;

/// The zeroes that are written.
pub(super) static ZEROES: [u8; 128 << 10] = [0; 128 << 10];

/// A hole on its way.
pub(super) struct Hole {
    export: Arc<Export>,
    volume: Arc<Volume>,
    seen: Arc<Seen>,
    owner: Arc<Mailbox>,
    /// All of the request.
    range: Range,
    /// The part left to be punched.
    at: u64,
    end: u64,
    /// It has to read as zeroes: a backing that cannot punch is no answer.
    zeroes: bool,
    /// The parts of pages at both ends are written.
    edges: bool,
    durable: bool,
    id: RequestId,
    promise: Promise,
}

impl Hole {
    /// A request's; if it need not read as zeroes, all of it stays where the backing cannot punch.
    pub(super) fn new(
        (export, volume, seen): (&Arc<Export>, &Arc<Volume>, &Arc<Seen>),
        owner: &Arc<Mailbox>,
        range: Range,
        (zeroes, durable): (bool, bool),
        id: RequestId,
    ) -> Self {
        let (page, to) = (PAGE_SIZE as u64, range.offset + u64::from(range.len));
        let at = range.offset.next_multiple_of(page).min(to);
        let end = (to / page * page).max(at);
        Self {
            export: Arc::clone(export),
            volume: Arc::clone(volume),
            seen: Arc::clone(seen),
            owner: Arc::clone(owner),
            range,
            at,
            end,
            zeroes,
            edges: zeroes || export.opened.can_punch,
            durable,
            id,
            promise: Promise::new(owner, Some(id)),
        }
    }

    /// Has the pool do it.
    pub(super) fn submit(self) {
        let (export, owner) = (Arc::clone(&self.export), Arc::clone(&self.owner));
        let pool = &export.opened.pool;
        pool.submit(Sort::Hole, &owner, Box::new(move || self.run()));
    }

    fn run(mut self) {
        let result = self.step();
        if result.is_ok() && self.at < self.end {
            let (export, owner) = (Arc::clone(&self.export), Arc::clone(&self.owner));
            let pool = &export.opened.pool;
            pool.go_on(Sort::Hole, &owner, Box::new(move || self.run()));
            return;
        }
        let result = result.and_then(|()| self.edges());
        let (offset, len) = (self.range.offset, u64::from(self.range.len));
        let tell = self.promise.of_whole(self.id);
        if self.durable && result.is_ok() {
            let volume = self.volume;
            let (part, tell) = (Some((offset, len)), self.seen.flushes(tell));
            self.export.make_durable(Asker { volume, part, tell });
            return;
        }
        // Before it is told: a connection that hears of it may want the volume for itself.
        drop((self.volume, self.export));
        tell(result);
    }

    fn step(&mut self) -> Result<(), Error> {
        if self.at >= self.end {
            return Ok(());
        }
        let to = self.end.min((self.at / STEP + 1) * STEP);
        match self.volume.punch(self.at, to - self.at) {
            Ok(()) => self.at = to,
            // A trim is advice: a backing that keeps the space keeps the data too.
            Err(error) if error.is_unsupported() && !self.zeroes => {
                (self.at, self.edges) = (self.end, false);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Writes zeroes over the parts of pages at both ends.
    fn edges(&self) -> Result<(), Error> {
        if !self.edges {
            return Ok(());
        }
        let (from, to) = (
            self.range.offset,
            self.range.offset + u64::from(self.range.len),
        );
        let page = PAGE_SIZE as u64;
        let first = from.next_multiple_of(page).min(to);
        self.write_zeroes(from, first)?;
        self.write_zeroes((to / page * page).max(first), to)
    }

    /// Less than a page; waits for what that needs.
    fn write_zeroes(&self, offset: u64, end: u64) -> Result<(), Error> {
        let len = usize::try_from(end - offset).unwrap_or(PAGE_SIZE);
        if len == 0 {
            return Ok(());
        }
        let writer = &mut self.export.cache.writer();
        let written = self
            .volume
            .write(writer, &ZEROES[..len], offset, Mode::Blocking);
        written.map(drop)
    }
}
