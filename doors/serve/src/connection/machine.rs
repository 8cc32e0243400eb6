//! A connection after its handshake: the order in which its parts run, and how it ends.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use nbd::haggle::Agreed;
use nbd::wire::ExportFlags;
use tidegate::{Cursor, Volume, Writer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Sleep;

use super::ended::EndedBy;
use super::errors::{LOST, Told, told};
use super::input::{Input, Next};
use super::output::Output;
use super::paced::PacedReplies;
use super::peer::{Peer, is_gone};
use super::table::Table;
use crate::clients::Seen;
use crate::counters::Tally;
use crate::export::Export;
use crate::hub::{OWN_REQUESTS, Session, Stage};
use crate::job::{Done, RequestId};

/// Rounds of receiving and sending before others get their turn.
const ROUNDS: usize = 16;
/// Interval at which a client that is not read from is looked after.
const LOOK: Duration = Duration::from_secs(1);
/// Most requests that a table has places for.
const IN_FLIGHT_MAX: usize = crate::config::REQUESTS_MOST as usize;

/// The place of the connection's writer.
pub(super) enum WriterSlot {
    /// Nothing was written yet.
    None,
    /// Here.
    Here(Box<Writer>),
    /// With a thread of the pool.
    Away(Offload),
}

/// The work for which a thread of the pool needs the writer.
#[derive(Clone, Copy)]
pub(super) enum Offload {
    /// A request that zeroes.
    Zeroes,
    /// The payload that is being received: nothing behind it is handled meanwhile.
    Payload,
    /// The rest of a write that was received whole: requests behind it go on, up to the next write.
    Rest(RequestId),
}

/// A connection after its handshake.
pub(super) struct Connection<S> {
    pub(super) stream: S,
    pub(super) session: Session,
    pub(super) export: Arc<Export>,
    pub(super) agreed: Box<Agreed>,
    pub(super) volume: Arc<Volume>,
    pub(super) cursor: Cursor,
    pub(super) writer: WriterSlot,
    pub(super) table: Table,
    pub(super) in_flight_max: usize,
    pub(super) input: Input,
    pub(super) output: Output,
    pub(super) paced: PacedReplies,
    sleep: Option<Pin<Box<Sleep>>>,
    /// When to look whether the client is still there, while it is not read from.
    look: Option<Pin<Box<Sleep>>>,
    /// Requests that write zeroes through the cache, one after the other.
    pub(super) zeroing: VecDeque<RequestId>,
    /// Requests for extents that wait for the one before them to be answered.
    pub(super) asking: VecDeque<RequestId>,
    pub(super) tally: Tally,
    /// New requests are refused.
    pub(super) is_draining: bool,
    done: Vec<Done>,
    /// Its part in the counters as shown.
    shown: (usize, usize),
    /// The part of it that others see.
    pub(super) seen: Arc<Seen>,
    /// Requests answered.
    pub(super) answered: u64,
    /// A request that takes longer is logged, and when that was last done.
    pub(super) slow: (Duration, Option<Instant>),
}

impl<S> Connection<S>
where
    S: AsyncRead + AsyncWrite + Peer + Unpin,
{
    pub(super) fn new(
        stream: S,
        session: Session,
        export: Arc<Export>,
        agreed: Box<Agreed>,
        rest: &[u8],
    ) -> Self {
        let limits = session.hub().limits();
        let limit = limits.in_flight;
        let counters = &export.counters;
        counters.connections.fetch_add(1, Ordering::Relaxed);
        counters.connections_total.fetch_add(1, Ordering::Relaxed);
        let volume = Arc::new(export.opened.volume.clone_handle());
        let seen = export
            .clients
            .join(stream.socket(), session.address.clone(), &volume);
        Self {
            stream,
            volume,
            session,
            export,
            agreed,
            cursor: Cursor::default(),
            writer: WriterSlot::None,
            table: Table::default(),
            in_flight_max: limit.clamp(1, IN_FLIGHT_MAX),
            input: Input::new(rest),
            output: Output::default(),
            paced: PacedReplies::default(),
            sleep: None,
            look: None,
            zeroing: VecDeque::new(),
            asking: VecDeque::new(),
            tally: Tally::default(),
            is_draining: false,
            done: Vec::new(),
            shown: (0, 0),
            seen,
            answered: 0,
            slow: (limits.slow, None),
        }
    }

    /// Does all that can be done now; ready when the connection has ended.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), EndedBy>> {
        let result = match self.run(cx) {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        };
        self.show();
        if result.is_ready() {
            let is_clean = matches!(result, Poll::Ready(Ok(()) | Err(EndedBy::Server)));
            if !is_clean {
                let broken = &self.export.counters.broken_total;
                broken.fetch_add(1, Ordering::Relaxed);
            }
            // The rest of the stream's own buffers, and a goodbye; nobody waits for it.
            let _ = Pin::new(&mut self.stream).poll_shutdown(cx);
        }
        result
    }

    /// True: it has ended.
    fn run(&mut self, cx: &mut Context<'_>) -> Result<bool, EndedBy> {
        self.collect(cx)?;
        match self.session.hub().stage() {
            Stage::Serving => {
                if self.export.cut_off.load(Ordering::Acquire) {
                    return Err(EndedBy::Server);
                }
                self.is_draining |= self.export.withdrawn.load(Ordering::Acquire);
                let writes = !self.agreed.flags.has(ExportFlags::READ_ONLY);
                if !self.session.may_go_on(&self.export, writes) {
                    return Err(EndedBy::Revoked);
                }
            }
            Stage::Draining => self.is_draining = true,
            Stage::Ending | Stage::Ended => return Err(EndedBy::Server),
        }
        for _ in 0..ROUNDS {
            let mut moved = self.receive(cx)?;
            moved |= self.write_zeroes();
            moved |= self.pace(cx);
            moved |= self.send(cx)?;
            if self.is_over() {
                return Ok(true);
            }
            if !moved {
                self.settle_down()?;
                self.forget_fetched();
                self.give_back();
                self.look(cx)?;
                return Ok(false);
            }
        }
        cx.waker().wake_by_ref();
        Ok(false)
    }

    /// True if everything is answered, and nothing more is to come.
    fn is_over(&self) -> bool {
        let comes_nothing =
            self.input.is_closed() || self.is_draining && self.input.is_between_requests();
        comes_nothing && self.table.is_empty() && self.output.is_sent()
    }

    /// Takes what threads of the pool have done.
    fn collect(&mut self, cx: &Context<'_>) -> Result<(), EndedBy> {
        let mut done = core::mem::take(&mut self.done);
        self.session.mailbox.collect(&mut done, cx.waker());
        for done in done.drain(..) {
            self.take(done)?;
        }
        self.done = done;
        Ok(())
    }

    fn take(&mut self, done: Done) -> Result<(), EndedBy> {
        match done {
            Done::Read { id, cursor, result } => {
                self.cursor = cursor;
                self.read_is_ready(id, result.map_err(|error| told(&error)))?;
            }
            Done::Write { writer, result } => {
                let result = result.map_err(|error| told(&error));
                self.writer_is_back(Some(writer), result);
            }
            Done::Whole { id, result } => self.is_done(id, result),
            Done::Status { id, extents } => {
                self.status_is_known(id, extents.map_err(|error| told(&error)));
            }
            Done::Lost { id: None } => self.writer_is_back(None, Err(LOST)),
            Done::Lost { id: Some(id) } => self.lose(id)?,
        }
        Ok(())
    }

    /// Asks until when replies to writes are to be held, and releases those that are free. True:
    /// some are.
    fn pace(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        loop {
            if let Some(until) = self.paced.until {
                // Nobody waits for a pause when the connection is about to end.
                let is_cut_short = self.is_draining || self.input.is_closed();
                if !is_cut_short && !self.sleep_until(until, cx) {
                    return moved;
                }
                if is_cut_short {
                    self.release();
                    moved = true;
                    continue;
                }
            } else if self.paced.unpaced.is_empty() && self.paced.unpaced_bytes == 0 {
                return moved;
            }
            let WriterSlot::Here(writer) = &mut self.writer else {
                return moved;
            };
            let verdict = self.volume.pace(writer);
            moved = true;
            match verdict {
                // Held, or held on.
                Ok(Some(until)) if self.export.is_paced() && !self.is_draining => {
                    self.paced.begin_or_go_on(until, &self.export.counters);
                }
                Ok(_) => self.release(),
                Err(error) => {
                    let told = told(&error);
                    for id in self.paced.due() {
                        self.table.at(*id).failed = Some(told);
                    }
                    self.fail_what_is_taken_in(told);
                    self.release();
                }
            }
        }
    }

    /// The writer was held for what it took in of a request so far, and the device has failed:
    /// nobody waits for it to take the rest.
    fn fail_what_is_taken_in(&mut self, told: Told) {
        if let Next::Payload(owed) = self.input.next()
            && self.table.at(owed.id).moved > 0
        {
            let next = self.spoiled(owed, told);
            self.input.turn(next);
        }
        if let Some(id) = self.zeroing.front().copied()
            && self.table.at(id).moved > 0
        {
            self.zeroing.pop_front();
            self.fail(id, told);
        }
    }

    /// Answers what is due: the writes of the pause that has ended or, without one, the unpaced
    /// ones.
    fn release(&mut self) {
        let output = &mut self.output;
        let of = (&self.export.counters, &*self.seen);
        self.paced.release(of, |id| output.answer(id));
    }

    /// True: the moment has come. Otherwise the connection runs again then.
    fn sleep_until(&mut self, until: Instant, cx: &mut Context<'_>) -> bool {
        let deadline = tokio::time::Instant::from_std(until);
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if sleep.deadline() != deadline {
            sleep.as_mut().reset(deadline);
        }
        sleep.as_mut().poll(cx).is_ready()
    }

    /// A client that is not being read from cannot be seen to disconnect, so it is probed once a
    /// second.
    fn look(&mut self, cx: &mut Context<'_>) -> Result<(), EndedBy> {
        if self.input.is_listening {
            self.look = None;
            return Ok(());
        }
        loop {
            let look = self
                .look
                .get_or_insert_with(|| Box::pin(tokio::time::sleep(LOOK)));
            if look.as_mut().poll(cx).is_pending() {
                return Ok(());
            }
            if is_gone(&self.stream, self.input.is_closed()) {
                return Err(EndedBy::Vanished);
            }
            self.look = None;
        }
    }

    /// The writer is back from the pool, or lost there.
    fn writer_is_back(&mut self, writer: Option<Box<Writer>>, result: Result<usize, Told>) {
        let offload = match self.writer {
            WriterSlot::Away(offload) => offload,
            WriterSlot::None | WriterSlot::Here(_) => Offload::Payload,
        };
        // Without one nobody could be asked when the writes before are free.
        let writer = writer.unwrap_or_else(|| Box::new(self.export.cache.writer()));
        self.writer = WriterSlot::Here(writer);
        match offload {
            Offload::Zeroes => self.zeroes_can_go_on(result),
            Offload::Rest(id) => match result {
                Ok(written) => {
                    let left = self.moved(id, written);
                    debug_assert_eq!(left, 0, "it was written where waiting is allowed");
                }
                Err(told) => self.fail(id, told),
            },
            Offload::Payload => {}
        }
        if let Next::Stuck(owed) = self.input.next() {
            let next = self.payload_can_go_on(owed, offload, result);
            self.input.turn(next);
        }
    }

    /// Number of requests that may still come now. Over those that each connection may have, they
    /// come out of what all share: so what they hold in memory is bounded for all of them. A
    /// connection that gets no more has some under way, and goes on when those are answered.
    pub(super) fn room(&mut self) -> usize {
        let len = self.table.len();
        let session = &mut self.session;
        if let Some(most) = self.in_flight_max.checked_sub(session.requests())
            && session.requests() == len
        {
            session.take_more(most.min(OWN_REQUESTS));
        }
        session
            .requests()
            .min(self.in_flight_max)
            .saturating_sub(len)
    }

    /// Before the connection goes to sleep: with none under way, the right to many goes back, and
    /// the room that was made for them.
    fn give_back(&mut self) {
        if self.session.requests() == OWN_REQUESTS || !self.table.is_empty() {
            return;
        }
        self.table = Table::default();
        self.done = Vec::new();
        self.output.shrink();
        self.session.mailbox.shrink();
        self.session.give_more();
    }

    /// Answers that the request failed.
    pub(super) fn fail(&mut self, id: RequestId, told: Told) {
        self.table.at(id).failed = Some(told);
        self.output.answer(id);
    }

    /// Has the counters show what the connection does.
    fn show(&mut self) {
        let counters = &self.export.counters;
        self.tally.put(counters);
        let now = (self.table.len(), self.paced.held.len());
        show_one(&counters.in_flight, self.shown.0, now.0);
        show_one(&counters.held, self.shown.1, now.1);
        self.shown = now;
        self.seen.set(self.table.oldest(), self.answered);
    }
}

fn show_one(gauge: &std::sync::atomic::AtomicU64, before: usize, now: usize) {
    let difference = (now as u64).wrapping_sub(before as u64);
    if difference != 0 {
        gauge.fetch_add(difference, Ordering::Relaxed);
    }
}

impl<S> Drop for Connection<S> {
    fn drop(&mut self) {
        // The stream is open: its socket's number is nobody else's yet.
        self.export.clients.leave(&self.volume);
        self.export.gate.leave(self.table.changing() as u64);
        // Results that threads of the pool still have for it are dropped when they bring them.
        self.session.mailbox.close();
        let counters = &self.export.counters;
        show_one(&counters.in_flight, self.shown.0, 0);
        show_one(&counters.held, self.shown.1, 0);
        counters.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
