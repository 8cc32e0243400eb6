//! Receiving: requests and payload, in buffers that are lent for as long as they are being handled.
//!
//! Payload of large writes goes past them where it can (`direct.rs`). A buffer is read into and
//! handled in one go. Three things stop that in the middle:
//!
//! - *too little*: the rest of a head, or of a page of payload, is still to come. The connection
//!   keeps the part that is there.
//! - *stuck*: the cache cannot take the payload at once. If all the rest of it is there, it goes to
//!   the pool with the connection's writer, and requests behind it go on up to the next write,
//!   since all writes of a connection are on one account. Otherwise, or without memory for that,
//!   the buffer is kept until the pool has made room.
//! - *full*: as many requests are under way as may be. As long as replies go out it goes on soon;
//!   from a client that does not take them, the received bytes are moved to memory of its own, of
//!   which a volume gives out little.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use nbd::wire::{REQUEST, Request};
use tidegate::{Mode, PAGE_SIZE};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::EndedBy;
use super::direct::Direct;
use super::errors::{Told, told};
use super::input::{Buffer, CARRY, Handling, Receiving};
use super::job::RequestId;
use super::machine::{Connection, Offload, WriterSlot};
use super::peer::Peer;
use super::table::into_page;
use crate::buffers::BUFFER;

/// Times in a row that a request waits for room or data and finds them gone again; from then on
/// what it waits for is carried out where waiting is allowed.
pub(super) const PATIENCE: u8 = 6;
/// Bytes that are carried out there at once.
pub(super) const RESCUE: usize = 32 << 10;
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
}

impl<S> Connection<S>
where
    S: AsyncRead + AsyncWrite + Peer + Unpin,
{
    /// Receives what is there, and handles it. True: something was.
    pub(super) fn receive(&mut self, cx: &mut Context<'_>) -> Result<bool, EndedBy> {
        self.input.is_listening = false;
        if self.input.is_closed {
            return self.watch(cx);
        }
        if self.input.is_stuck {
            return Ok(false);
        }
        if let Some(handling) = self.input.handling.take() {
            return self.handle(handling);
        }
        if self.paced.is_full() {
            return Ok(false);
        }
        let kept = self.input.carry.len();
        if let Receiving::Payload { id, left } = self.input.receiving
            && self.input.is_direct
            && kept == 0
        {
            match self.receive_direct(id, left)? {
                Direct::Moved => return Ok(true),
                Direct::TooLittle => {}
                Direct::Refused => self.input.is_direct = false,
            }
        }
        let wanted = match self.input.receiving {
            Receiving::Head => {
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
            Receiving::Payload { id, left } if self.input.is_direct => {
                self.rest_of_page(id, kept).min(left as usize - kept)
            }
            Receiving::Payload { .. } | Receiving::Drop { .. } => BUFFER,
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
            let is_idle = self.table.is_empty() && self.input.receiving == Receiving::Head;
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
        if self.table.is_empty() || self.input.has_ended {
            return Ok(false);
        }
        match read(&mut self.stream, cx, &mut [0; WASTE])? {
            Poll::Ready(0) => {
                self.input.has_ended = true;
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
            match self.input.receiving {
                Receiving::Head => {
                    let Some(head) = rest.first_chunk::<REQUEST>() else {
                        break Stop::TooLittle;
                    };
                    if self.room() == 0 {
                        break Stop::Full;
                    }
                    let request = Request::parse(head).map_err(EndedBy::Request)?;
                    handling.at += REQUEST;
                    requests += 1;
                    self.begin(&request, arrived)?;
                    if self.input.is_closed {
                        return Ok(true);
                    }
                }
                Receiving::Payload { id, left } => {
                    let Some(payload) = self.pages_of(id, left, rest) else {
                        break Stop::TooLittle;
                    };
                    match self.take_in(id, left, payload) {
                        Some(0) | None => break Stop::Stuck,
                        Some(taken) => handling.at += taken,
                    }
                    if self.input.is_stuck {
                        break Stop::Stuck;
                    }
                }
                Receiving::Drop { id, left } => {
                    let now = rest.len().min(left as usize);
                    if now == 0 {
                        break Stop::TooLittle;
                    }
                    handling.at += now;
                    self.drop_payload(id, left, now);
                }
            }
        };
        let handled = handling.at - began;
        self.note_usual(handled, requests);
        match stop {
            Stop::TooLittle => self.input.keep(handling),
            Stop::Stuck | Stop::Full => self.input.handling = Some(handling),
        }
        Ok(handled > 0)
    }

    /// How much a request brings lately: so no more is received than may be under way.
    fn note_usual(&mut self, handled: usize, requests: usize) {
        // With what the last of them still has to bring.
        let owed = match self.input.receiving {
            Receiving::Payload { left, .. } | Receiving::Drop { left, .. } => left as usize,
            Receiving::Head => 0,
        };
        if let Some(each) = (handled + owed).checked_div(requests) {
            self.input.usual = each.max(REQUEST);
        }
    }

    /// The beginning of `rest` that can be taken in: all that is left, or whole pages.
    fn pages_of<'a>(&mut self, id: RequestId, left: u32, rest: &'a [u8]) -> Option<&'a [u8]> {
        let left = left as usize;
        if rest.len() >= left {
            return Some(&rest[..left]);
        }
        let at = self.table.at(id).next();
        let into_page = into_page(at);
        let whole = (into_page + rest.len()) / PAGE_SIZE * PAGE_SIZE;
        let usable = whole.checked_sub(into_page).filter(|len| *len > 0)?;
        Some(&rest[..usable])
    }

    /// Takes payload into the cache; answers how much of it. `None`: the writer is not here.
    fn take_in(&mut self, id: RequestId, left: u32, payload: &[u8]) -> Option<usize> {
        if !self.has_writer() {
            self.input.is_stuck = true;
            return None;
        }
        let WriterSlot::Here(writer) = &mut self.writer else {
            return None;
        };
        let at = self.table.at(id).next();
        let tried = match self.volume.write(writer, payload, at, Mode::Nonblocking) {
            Ok(tried) => tried,
            Err(error) => {
                self.table.at(id).failed = Some(told(&error));
                self.input.receiving = Receiving::Drop { id, left };
                // Nothing was taken, and it is no longer payload to be taken.
                return Some(self.skip(id, left, payload.len()));
            }
        };
        self.paced.unpaced_bytes += tried.bytes as u64;
        let request = self.table.at(id);
        let left = request.take(tried.bytes);
        let is_patient = request.tries <= PATIENCE;
        if left == 0 {
            self.input.receiving = Receiving::Head;
            self.written(id);
        } else {
            self.input.receiving = Receiving::Payload { id, left };
            if tried.would_block {
                let at = at + tried.bytes as u64;
                let rest = &payload[tried.bytes..];
                if rest.len() == left as usize && self.send_rest(id, at, rest) {
                    self.input.receiving = Receiving::Head;
                    return Some(payload.len());
                }
                self.input.is_stuck = true;
                if is_patient {
                    self.offload_prepare(Offload::Payload, at, u64::from(left).min(BUFFER as u64));
                } else {
                    let rest = &rest[..rest.len().min(RESCUE)];
                    self.offload_write(Offload::Payload, at, rest.into());
                }
            }
        }
        Some(tried.bytes)
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

    /// The rest of a write was taken in, or it failed.
    pub(super) fn rest_is_written(&mut self, id: RequestId, result: Result<usize, Told>) {
        match result {
            Ok(written) => {
                self.paced.unpaced_bytes += written as u64;
                self.table.at(id).take(written);
                self.written(id);
            }
            Err(told) => self.fail(id, told),
        }
    }

    /// The payload that was stuck can go on, some of it was written, or it failed.
    pub(super) fn payload_can_go_on(&mut self, result: Result<usize, Told>) {
        let Receiving::Payload { id, left } = self.input.receiving else {
            return;
        };
        match result {
            Err(told) => {
                self.table.at(id).failed = Some(told);
                self.input.receiving = Receiving::Drop { id, left };
            }
            Ok(0) => {}
            Ok(written) => {
                if let Some(handling) = &mut self.input.handling {
                    handling.at += written;
                }
                self.paced.unpaced_bytes += written as u64;
                let left = self.table.at(id).take(written);
                if left == 0 {
                    self.input.receiving = Receiving::Head;
                    self.written(id);
                } else {
                    self.input.receiving = Receiving::Payload { id, left };
                }
            }
        }
    }

    /// Throws payload away; answers how much.
    fn skip(&mut self, id: RequestId, left: u32, there: usize) -> usize {
        let now = there.min(left as usize);
        self.drop_payload(id, left, now);
        now
    }

    fn drop_payload(&mut self, id: RequestId, left: u32, now: usize) {
        let now = u32::try_from(now).expect("no more than is left of a request");
        let left = left - now;
        if left > 0 {
            self.input.receiving = Receiving::Drop { id, left };
        } else {
            self.input.receiving = Receiving::Head;
            self.output.answer(id);
        }
    }

    /// Before the connection goes to sleep: a buffer is not kept for a client that does not take
    /// its replies.
    pub(super) fn settle_down(&mut self) -> Result<(), EndedBy> {
        if self.input.is_stuck {
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
