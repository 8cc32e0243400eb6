//! Receiving: requests and payload, in buffers that are lent for as long as they are being handled.
//!
//! Payload of large writes goes past them where it can (`direct.rs`). A buffer is read into and
//! handled in one go. Four things stop that in the middle:
//!
//! - *too little*: the rest of a head, or of a page of payload, is still to come. The connection
//!   keeps the part that is there.
//! - *stuck*: the cache cannot take the payload at once. If all the rest of it is there, it goes to
//!   the pool with the connection's writer, and requests behind it go on up to the next write,
//!   since all writes of a connection are on one account. Otherwise, or without memory for that,
//!   the buffer is kept until the pool has made room.
//! - *held*: it would change the volume, which is held for a while (`hold.rs`).
//! - *full*: as many requests are under way as may be. As long as replies go out it goes on soon;
//!   from a client that does not take them, the received bytes are moved to memory of its own, of
//!   which a volume gives out little.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use nbd::wire::{REQUEST, Request};
use tidegate::{Mode, PAGE_SIZE};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::ended::EndedBy;
use super::errors::{Told, told};
use super::input::{Buffer, CARRY, Handling, Next, Owed};
use super::machine::{Connection, Offload, WriterSlot};
use super::peer::Peer;
use super::table::into_page;
use super::work::{PATIENCE, RESCUE, kind_of};
use crate::buffers::BUFFER;
use crate::job::RequestId;

/// Bytes that are read and thrown away at once when nothing more is wanted.
const WASTE: usize = 256;

/// Why handling what was received has stopped.
enum Stop {
    /// More is needed.
    TooLittle,
    /// The cache could not go on.
    Stuck,
    /// No more requests for now.
    Full,
    /// None that changes the volume for now.
    Held,
}

impl<S> Connection<S>
where
    S: AsyncRead + AsyncWrite + Peer + Unpin,
{
    /// Receives what is there, and handles it. True: something was.
    pub(super) fn receive(&mut self, cx: &mut Context<'_>) -> Result<bool, EndedBy> {
        self.input.is_listening = false;
        match self.input.next() {
            Next::Closed => return self.watch(cx),
            Next::Ended | Next::Stuck(_) => return Ok(false),
            Next::Head | Next::Payload(_) | Next::Drop(_) => {}
        }
        if let Some(handling) = self.input.handling.take() {
            return self.handle(handling);
        }
        if self.paced.is_full() {
            return Ok(false);
        }
        let kept = self.input.carry.len();
        if let Next::Payload(owed) = self.input.next()
            && owed.is_direct
            && kept == 0
            && let Some(next) = self.receive_direct(owed)?
        {
            self.input.turn(next);
            if !matches!(next, Next::Payload(owed) if !owed.is_direct) {
                return Ok(true);
            }
        }
        let wanted = match self.input.next() {
            Next::Head => {
                let room = self.room();
                if room == 0 {
                    return Ok(false);
                }
                if self.can_be_direct(self.input.usual) {
                    // The payload behind it is not for a buffer.
                    REQUEST.saturating_sub(kept).max(1)
                } else {
                    // No more requests than may come: a request that is read and cannot begin has
                    // to be kept.
                    room.saturating_mul(self.input.usual)
                }
            }
            Next::Payload(owed) if owed.is_direct => {
                let left = owed.left as usize - kept;
                self.rest_of_page(owed.id, kept).min(left)
            }
            _ => BUFFER,
        };
        let received = match self.export.buffers.lease() {
            Some(mut lease) => {
                let room = &mut lease.bytes_mut()[..BUFFER.min(kept + wanted)];
                // Only what was received is moved: the carry stays as it is when nothing was.
                let Poll::Ready(count) = read(&mut self.stream, cx, &mut room[kept..])? else {
                    self.input.is_listening = true;
                    return Ok(false);
                };
                room[..kept].copy_from_slice(&self.input.carry);
                self.input.carry.clear();
                let (buffer, end) = (Buffer::Lease(lease), kept + count);
                (count, Handling { buffer, at: 0, end })
            }
            None => {
                let counter = &self.export.counters.no_buffer_total;
                counter.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
                self.input.carry.reserve_exact(CARRY - kept);
                self.input.carry.resize(CARRY, 0);
                let read = read(&mut self.stream, cx, &mut self.input.carry[kept..]);
                let Ok(Poll::Ready(count)) = read else {
                    self.input.carry.truncate(kept);
                    self.input.is_listening = true;
                    return read.map(|_| false);
                };
                let buffer = Buffer::Own(core::mem::take(&mut self.input.carry), None);
                let end = kept + count;
                (count, Handling { buffer, at: 0, end })
            }
        };
        let (count, handling) = received;
        if count == 0 {
            let is_idle = self.table.is_empty() && self.input.next() == Next::Head;
            return Err(if is_idle && handling.end == 0 {
                EndedBy::Client
            } else {
                EndedBy::Vanished
            });
        }
        self.handle(handling)?;
        // Also if it was too little: only a stream that has nothing more wakes the connection.
        Ok(true)
    }

    /// After the client said that it goes: until everything is answered. It may have ended its half
    /// of the stream by then.
    fn watch(&mut self, cx: &mut Context<'_>) -> Result<bool, EndedBy> {
        if self.table.is_empty() {
            return Ok(false);
        }
        match read(&mut self.stream, cx, &mut [0; WASTE])? {
            Poll::Ready(0) => {
                self.input.turn(Next::Ended);
                Ok(false)
            }
            Poll::Ready(_) => Ok(true),
            Poll::Pending => {
                self.input.is_listening = true;
                Ok(false)
            }
        }
    }

    /// Handles what was received, as far as that goes. True: some of it was.
    fn handle(&mut self, mut handling: Handling) -> Result<bool, EndedBy> {
        let (began, mut requests) = (handling.at, 0);
        let arrived = Instant::now();
        let stop = loop {
            let rest = handling.rest();
            let (taken, next) = match self.input.next() {
                Next::Head => {
                    let Some(head) = rest.first_chunk::<REQUEST>() else {
                        break Stop::TooLittle;
                    };
                    if self.room() == 0 {
                        break Stop::Full;
                    }
                    let request = Request::parse(head).map_err(EndedBy::Request)?;
                    let changes = kind_of(request.command).changes();
                    // Of a connection that ends it is refused, and changes nothing.
                    if changes && !self.export.gate.enter(self.is_draining) {
                        break Stop::Held;
                    }
                    requests += 1;
                    let next = self.begin(&request, arrived);
                    if changes && next.is_err() {
                        self.export.gate.leave(1);
                    }
                    (REQUEST, next?)
                }
                Next::Payload(owed) => {
                    let Some(payload) = self.pages_of(owed, rest) else {
                        break Stop::TooLittle;
                    };
                    self.take_in(owed, payload)
                }
                Next::Drop(_) if rest.is_empty() => break Stop::TooLittle,
                Next::Drop(owed) => self.throw_away(owed, rest.len()),
                Next::Stuck(_) => break Stop::Stuck,
                Next::Closed | Next::Ended => return Ok(true),
            };
            handling.at += taken;
            self.input.turn(next);
        };
        let handled = handling.at - began;
        self.note_usual(handled, requests);
        match stop {
            Stop::TooLittle => self.input.keep(handling),
            Stop::Stuck | Stop::Full | Stop::Held => self.input.handling = Some(handling),
        }
        Ok(handled > 0)
    }

    /// Notes the size of recent requests: so no more is received than may be under way.
    fn note_usual(&mut self, handled: usize, requests: usize) {
        // With what the last of them still has to bring.
        let owed = match self.input.next() {
            Next::Payload(owed) | Next::Drop(owed) | Next::Stuck(owed) => owed.left as usize,
            Next::Head | Next::Closed | Next::Ended => 0,
        };
        if let Some(each) = (handled + owed).checked_div(requests) {
            self.input.usual = each.max(REQUEST);
        }
    }

    /// The beginning of `rest` that can be taken in: all that is left, or whole pages.
    fn pages_of<'a>(&mut self, owed: Owed, rest: &'a [u8]) -> Option<&'a [u8]> {
        let left = owed.left as usize;
        if rest.len() >= left {
            return Some(&rest[..left]);
        }
        let at = self.table.at(owed.id).next();
        let into_page = into_page(at);
        let whole = (into_page + rest.len()) / PAGE_SIZE * PAGE_SIZE;
        let usable = whole.checked_sub(into_page).filter(|len| *len > 0)?;
        Some(&rest[..usable])
    }

    /// Takes payload into the cache; answers how much of it, and what comes next.
    fn take_in(&mut self, owed: Owed, payload: &[u8]) -> (usize, Next) {
        if !self.has_writer() {
            return (0, Next::Stuck(owed));
        }
        let WriterSlot::Here(writer) = &mut self.writer else {
            return (0, Next::Stuck(owed));
        };
        let at = self.table.at(owed.id).next();
        let tried = match self.volume.write(writer, payload, at, Mode::Nonblocking) {
            Ok(tried) => tried,
            Err(error) => return (0, self.spoiled(owed, told(&error))),
        };
        let next = self.taken(owed, tried.bytes);
        let Next::Payload(owed) = next else {
            return (tried.bytes, next);
        };
        // Without progress it waits, too.
        if !tried.would_block && tried.bytes > 0 {
            return (tried.bytes, next);
        }
        let at = at + tried.bytes as u64;
        let rest = &payload[tried.bytes..];
        if rest.len() == owed.left as usize && self.send_rest(owed.id, at, rest) {
            return (payload.len(), Next::Head);
        }
        if self.table.at(owed.id).tries <= PATIENCE {
            let len = u64::from(owed.left).min(BUFFER as u64);
            self.offload_prepare(Offload::Payload, at, len);
        } else {
            let rest = &rest[..rest.len().min(RESCUE)];
            self.offload_write(Offload::Payload, at, rest.into());
        }
        (tried.bytes, Next::Stuck(owed))
    }

    /// Payload was taken in; answers what comes next.
    pub(super) fn taken(&mut self, owed: Owed, bytes: usize) -> Next {
        match self.moved(owed.id, bytes) {
            0 => Next::Head,
            left => Next::Payload(owed.with(left)),
        }
    }

    /// The write failed: the rest of its payload is thrown away.
    pub(super) fn spoiled(&mut self, owed: Owed, told: Told) -> Next {
        self.table.at(owed.id).failed = Some(told);
        Next::Drop(owed)
    }

    /// Sends the writer to the pool with all that is left of a write, so that requests behind it in
    /// the stream can go on. False: there is no memory to keep it in.
    fn send_rest(&mut self, id: RequestId, offset: u64, rest: &[u8]) -> bool {
        let Some(spilled) = self.export.buffers.spill_some(rest.len()) else {
            return false;
        };
        let data: Box<[u8]> = rest.into();
        self.offload(Offload::Rest(id), move |volume, writer| {
            let written = volume.write(writer, &data, offset, Mode::Blocking);
            let result = written.map(|progress| progress.bytes);
            drop((data, spilled));
            result
        });
        true
    }

    /// The writer is back, and payload waited for it: that it was sent for (some may be written by
    /// now), or that of another write. Answers what comes next.
    pub(super) fn payload_can_go_on(
        &mut self,
        owed: Owed,
        offload: Offload,
        result: Result<usize, Told>,
    ) -> Next {
        match (offload, result) {
            (Offload::Payload, Err(told)) => self.spoiled(owed, told),
            (Offload::Payload, Ok(written @ 1..)) => {
                if let Some(handling) = &mut self.input.handling {
                    handling.at += written;
                }
                self.taken(owed, written)
            }
            _ => Next::Payload(owed),
        }
    }

    /// Throws payload away; answers how much of what is `there`, and what comes next.
    fn throw_away(&mut self, owed: Owed, there: usize) -> (usize, Next) {
        let now = u32::try_from(there).map_or(owed.left, |there| there.min(owed.left));
        let left = owed.left - now;
        if left > 0 {
            return (now as usize, Next::Drop(owed.with(left)));
        }
        self.output.answer(owed.id);
        (now as usize, Next::Head)
    }

    /// Before the connection goes to sleep: a buffer is not kept for a client that does not take
    /// its replies.
    pub(super) fn settle_down(&mut self) -> Result<(), EndedBy> {
        if matches!(self.input.next(), Next::Stuck(_)) {
            return Ok(());
        }
        let Some(handling) = self.input.handling.take() else {
            return Ok(());
        };
        let rest = handling.rest();
        let handling = match &handling.buffer {
            Buffer::Own(..) => handling,
            Buffer::Lease(_) => {
                match self.export.buffers.spill(rest.len()) {
                    Some(spilled) => {
                        let end = rest.len();
                        let buffer = Buffer::Own(rest.to_vec(), Some(spilled));
                        Handling { buffer, at: 0, end }
                    }
                    None if self.output.is_full() => return Err(EndedBy::Overrun),
                    // It is the backing that is waited for, as where a payload is stuck.
                    None => handling,
                }
            }
        };
        self.input.handling = Some(handling);
        Ok(())
    }
}

fn read<S: AsyncRead + Unpin>(
    stream: &mut S,
    cx: &mut Context<'_>,
    room: &mut [u8],
) -> Result<Poll<usize>, EndedBy> {
    let mut room = ReadBuf::new(room);
    match Pin::new(stream).poll_read(cx, &mut room) {
        Poll::Ready(Ok(())) => Ok(Poll::Ready(room.filled().len())),
        Poll::Ready(Err(error)) => Err(EndedBy::Stream(error)),
        Poll::Pending => Ok(Poll::Pending),
    }
}
