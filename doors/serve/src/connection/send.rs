//! Sending: replies are composed in a buffer of the thread and go to the socket together, as many
//! bytes as the socket takes (`send_batch.rs`).
//!
//! Replies that the socket does not take are forgotten, but for the rest of a head; data are read
//! from the cache again when the socket takes more. So a client that does not read costs its place
//! in the table and nothing else.
//!
//! A reply to a read may begin when its first data are there. With structured replies it comes in
//! chunks of what is there. A simple reply promises all of it at once: it begins when all of it is
//! there together, or where that is too much, has been read once (`Connection::prove`), so that a
//! backing that cannot be read is an error of the request. Until what was promised is sent, nothing
//! else can be; if it is gone from memory and cannot be read any more, the connection has to end.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use nbd::wire;
use rustix::net::{AddressFamily, sockopt};
use tidegate::{Mode, Volume};
use tokio::io::{AsyncRead, AsyncWrite};

use super::ended::EndedBy;
use super::errors::{Told, told};
use super::machine::Connection;
use super::output::Piece;
use super::peer::Peer;
use super::send_batch::{BATCH_MAX, LARGE};
use crate::counters::Kind;
use crate::job::RequestId;
use crate::log::warn;

/// A client's slow requests are logged so often at most.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Bytes that the system may hold for a client of a wide socket; it doubles the size it is asked
/// for, and allows no more than `net.core.wmem_max`.
const WIDE: usize = 1 << 20;
/// As much is tried first when the socket was full.
const SIP: usize = 16 << 10;
/// Data are not split into less, unless it is all there is.
const LEAST: usize = 4 << 10;

thread_local! {
    /// The buffer where replies are composed: nothing stays in it between two runs of a connection.
    static SCRATCH_OF_THREAD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The result of composing a part of a reply.
enum Composed {
    Piece(Piece),
    /// The cache does not have it at once.
    Stuck,
    /// Promised as a whole, and not all of it is known to be readable.
    Unproven,
    /// Too little room is left.
    NoRoom,
}

impl<S> Connection<S>
where
    S: AsyncRead + AsyncWrite + Peer + Unpin,
{
    /// The socket did not take all of much: it is made wide, if it can be and few are.
    pub(super) fn widen(&mut self) {
        let Some(socket) = self.stream.socket() else {
            return;
        };
        if sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX) && self.session.widen() {
            // Refused, it is as wide as it was.
            let _ = sockopt::set_socket_send_buffer_size(socket, WIDE / 2);
        }
    }

    /// Sends what can be sent. True: the socket took something.
    pub(super) fn send(&mut self, cx: &mut Context<'_>) -> Result<bool, EndedBy> {
        if self.output.is_empty() || self.output.is_blocked && self.output.rest.is_empty() {
            if self.output.is_flushing {
                self.flush(cx)?;
            }
            return Ok(false);
        }
        let volume = Arc::clone(&self.volume);
        SCRATCH_OF_THREAD.with_borrow_mut(|scratch| {
            scratch.resize(BATCH_MAX, 0);
            let mut moved = false;
            // A socket that was full is given nothing before it has room: that would be copied for
            // nothing.
            while !self.output.is_empty() && self.takes_more(cx) {
                let room = if self.output.is_full {
                    SIP
                } else {
                    self.output.batch.bytes()
                };
                let cursor = self.cursor;
                let filled = self.compose(&mut scratch[..room], &volume)?;
                if filled == 0 {
                    break;
                }
                let stream = Pin::new(&mut self.stream);
                let count = match stream.poll_write(cx, &scratch[..filled]) {
                    Poll::Ready(Ok(0)) => return Err(EndedBy::Vanished),
                    Poll::Ready(Ok(count)) => count,
                    Poll::Ready(Err(error)) => return Err(EndedBy::Stream(error)),
                    Poll::Pending => 0,
                };
                self.output.is_full = count < filled;
                self.output.batch.note(count, count < filled);
                if self.output.is_full {
                    // Data that were not sent are read again.
                    self.cursor = cursor;
                    self.ask_for_more();
                }
                moved |= count > 0;
                self.sent(&scratch[..filled], count);
                if count == 0 {
                    break;
                }
            }
            if moved || self.output.is_flushing {
                self.flush(cx)?;
            }
            Ok(moved)
        })
    }

    /// True if the socket can be given something: it was not full, or has room again, or does not
    /// say.
    fn takes_more(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.output.is_full {
            return true;
        }
        match self.stream.poll_writable(cx) {
            Poll::Ready(is_writable) => {
                self.output.is_full = !is_writable;
                true
            }
            Poll::Pending => false,
        }
    }

    /// The socket did not take all: of a client that reads much it is made wide, once.
    fn ask_for_more(&mut self) {
        let is_large = |piece: &Piece| piece.data >= LARGE;
        if !self.output.asked_for_more && self.output.pieces.iter().any(is_large) {
            self.output.asked_for_more = true;
            self.widen();
        }
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Result<(), EndedBy> {
        match Pin::new(&mut self.stream).poll_flush(cx) {
            Poll::Ready(Ok(())) => self.output.is_flushing = false,
            Poll::Ready(Err(error)) => return Err(EndedBy::Stream(error)),
            Poll::Pending => self.output.is_flushing = true,
        }
        Ok(())
    }

    /// Composes replies into `room`; answers how many bytes.
    fn compose(&mut self, room: &mut [u8], volume: &Volume) -> Result<usize, EndedBy> {
        self.output.pieces.clear();
        let rest = &self.output.rest[self.output.rest_at..];
        let mut filled = rest.len().min(room.len());
        room[..filled].copy_from_slice(&rest[..filled]);
        let mut at = 0;
        while !self.output.is_blocked
            && let Some(id) = self.output.queue.get(at).copied()
        {
            match self.compose_one(id, &mut room[filled..], volume)? {
                Composed::Piece(piece) => {
                    filled += piece.head + piece.data;
                    self.output.pieces.push(piece);
                    if !self.is_whole(piece) {
                        break;
                    }
                    at += 1;
                }
                Composed::NoRoom => break,
                Composed::Stuck => {
                    if self.table.at(id).promised > 0 {
                        self.output.is_blocked = true;
                    } else {
                        self.output.queue.remove(at);
                    }
                    self.ask_read(id);
                }
                Composed::Unproven => {
                    self.output.queue.remove(at);
                    self.prove(id);
                }
            }
        }
        Ok(filled)
    }

    /// True if a reply is complete with `piece`.
    fn is_whole(&mut self, piece: Piece) -> bool {
        let request = self.table.at(piece.id);
        let is_data = request.kind == Kind::Read && request.failed.is_none();
        !is_data || request.moved as usize + piece.data == request.len as usize
    }

    fn compose_one(
        &mut self,
        id: RequestId,
        room: &mut [u8],
        volume: &Volume,
    ) -> Result<Composed, EndedBy> {
        let structured = self.agreed.structured;
        let request = self.table.at(id);
        if request.kind == Kind::Read && request.failed.is_none() && request.len > 0 {
            return self.compose_data(id, room, volume);
        }
        let cookie = request.cookie;
        let errno = request.failed.map(|(errno, _)| errno);
        let mut put = Put { room, at: Some(0) };
        match (request.kind, request.failed) {
            (Kind::Read | Kind::BlockStatus, Some((errno, words))) if structured => {
                if request.moved > 0 {
                    let offset = request.offset + u64::from(request.moved);
                    put.bytes(wire::error_at(cookie, errno, words, offset).as_bytes());
                } else {
                    put.bytes(wire::error(cookie, errno, words).as_bytes());
                }
            }
            (Kind::Read, None) if structured => put.bytes(&wire::done(cookie)),
            (Kind::BlockStatus, None) => {
                let body = request.body.as_deref().unwrap_or_default();
                let extents = u32::try_from(body.len() / 8).expect("extents are bounded");
                let context = self.agreed.allocation.unwrap_or_default();
                put.bytes(&wire::block_status(cookie, context, extents, true));
                put.bytes(body);
            }
            _ => put.bytes(&wire::simple_reply(cookie, errno)),
        }
        Ok(match put.at {
            Some(head) => Composed::Piece(Piece {
                id,
                head,
                data: 0,
                promise: 0,
            }),
            None => Composed::NoRoom,
        })
    }

    fn compose_data(
        &mut self,
        id: RequestId,
        room: &mut [u8],
        volume: &Volume,
    ) -> Result<Composed, EndedBy> {
        let structured = self.agreed.structured;
        let request = self.table.at(id);
        let left = request.len - request.moved;
        let is_promised = request.promised > 0;
        let head = match (is_promised, structured) {
            (true, _) => 0,
            (false, true) => wire::offset_data(0, 0, 1, true).len(),
            (false, false) => wire::SIMPLE_REPLY,
        };
        let wanted = if is_promised { request.promised } else { left } as usize;
        let there = room.len().saturating_sub(head);
        if there < wanted.min(LEAST) {
            return Ok(Composed::NoRoom);
        }
        let asked = wanted.min(there);
        let offset = request.next();
        let there = match &request.body {
            Some(fetched) => {
                let there = fetched.len().min(asked);
                room[head..head + there].copy_from_slice(&fetched[..there]);
                there
            }
            None => {
                let data = &mut room[head..head + asked];
                match volume.read(&mut self.cursor, data, offset, Mode::Nonblocking) {
                    Ok(tried) => tried.bytes,
                    Err(error) if is_promised => return Err(EndedBy::Late(told(&error).0)),
                    Err(error) => {
                        request.failed = Some(told(&error));
                        return self.compose_one(id, room, volume);
                    }
                }
            }
        };
        let as_a_whole = request.unfragmented || !structured;
        if as_a_whole && !is_promised && there < left as usize && !request.is_proven {
            let rest = u64::from(left) - there as u64;
            if !volume.is_cached(offset + there as u64, rest) {
                request.is_proven = true;
                return Ok(Composed::Unproven);
            }
        }
        if there == 0 {
            request.tries = request.tries.saturating_add(1);
            return Ok(Composed::Stuck);
        }
        let bytes = u32::try_from(there).expect("no more than was asked for");
        let promise = match (is_promised, as_a_whole) {
            (true, _) => 0,
            (false, true) => left,
            (false, false) => bytes,
        };
        let cookie = request.cookie;
        if head > 0 && structured {
            let is_last = promise == left;
            room[..head].copy_from_slice(&wire::offset_data(cookie, offset, promise, is_last));
        } else if head > 0 {
            room[..head].copy_from_slice(&wire::simple_reply(cookie, None));
        }
        Ok(Composed::Piece(Piece {
            id,
            head,
            data: there,
            promise,
        }))
    }

    /// The socket took `count` bytes of what was composed.
    fn sent(&mut self, composed: &[u8], count: usize) {
        let rest = self.output.rest.len() - self.output.rest_at;
        let mut left = count;
        if rest > 0 {
            let now = left.min(rest);
            left -= now;
            self.output.rest_at += now;
            if now < rest {
                return;
            }
            self.output.rest.clear();
            self.output.rest_at = 0;
        }
        let mut at = rest;
        let now = Instant::now();
        for index in 0..self.output.pieces.len() {
            if left == 0 {
                break;
            }
            let piece = self.output.pieces[index];
            let head = left.min(piece.head);
            left -= head;
            if head < piece.head {
                // As if it were sent: the rest of it goes first, whatever else does.
                let unsent = &composed[at + head..at + piece.head];
                self.output.rest.extend_from_slice(unsent);
            }
            let data = left.min(piece.data);
            left -= data;
            at += piece.head + piece.data;
            let is_whole = self.is_whole(piece);
            let request = self.table.at(piece.id);
            if piece.promise > 0 {
                request.promised = piece.promise;
            }
            let moved = u32::try_from(data).expect("no more than was asked for");
            if moved > 0 {
                request.tries = 0;
                if request.kind == Kind::Read {
                    request.body = None;
                }
            }
            request.moved += if piece.data > 0 { moved } else { 0 };
            request.promised -= moved;
            if is_whole && data == piece.data {
                self.output.queue.pop_front();
                self.finish(piece.id, now);
            }
        }
    }

    /// A request is answered.
    fn finish(&mut self, id: RequestId, now: Instant) {
        let request = self.table.at(id);
        let is_status = request.kind == Kind::BlockStatus;
        let took = now.saturating_duration_since(request.arrived);
        self.tally.answered(
            &self.export.counters,
            request.kind,
            u64::from(request.len),
            request.failed.is_some(),
            took,
        );
        self.answered += 1;
        self.tell_if_slow(id, now, took);
        if is_status {
            self.status_is_sent(id);
        }
        if self.table.remove(id).kind.changes() {
            self.export.gate.leave(1);
        }
    }

    /// A request that took long is logged: one a second of a client, the first.
    fn tell_if_slow(&mut self, id: RequestId, now: Instant, took: Duration) {
        let (slow, told) = self.slow;
        let lately = told.is_some_and(|told| now.saturating_duration_since(told) < TELL_EVERY);
        if took < slow || lately {
            return;
        }
        self.slow.1 = Some(now);
        let request = self.table.at(id);
        warn!(
            volume = %self.export.name().escape_debug(),
            client = %self.seen.address(),
            request = %request.kind.name(),
            offset = request.offset,
            bytes = request.len,
            took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            cause = %self.export.why_slow(request.kind),
            "slow request"
        );
    }

    /// A read can go on, or will not.
    pub(super) fn read_is_ready(
        &mut self,
        id: RequestId,
        result: Result<Option<Box<[u8]>>, Told>,
    ) -> Result<(), EndedBy> {
        let request = self.table.at(id);
        let is_promised = request.promised > 0;
        match result {
            Ok(fetched) => {
                self.output.has_fetched |= fetched.is_some();
                request.body = fetched;
            }
            Err((errno, _)) if is_promised => return Err(EndedBy::Late(errno)),
            Err(told) => request.failed = Some(told),
        }
        if is_promised {
            // It stands first in the queue.
            self.output.is_blocked = false;
        } else {
            self.output.answer(id);
        }
        Ok(())
    }

    /// Before the connection goes to sleep: data that were fetched are not kept for a client that
    /// does not take them.
    pub(super) fn forget_fetched(&mut self) {
        if !(self.output.has_fetched && self.output.is_full) {
            return;
        }
        self.output.has_fetched = false;
        for id in &self.output.queue {
            let request = self.table.at(*id);
            if request.kind == Kind::Read {
                request.body = None;
            }
        }
    }
}

/// Puts heads into room that may be too small.
struct Put<'a> {
    room: &'a mut [u8],
    at: Option<usize>,
}

impl Put<'_> {
    fn bytes(&mut self, bytes: &[u8]) {
        self.at = self.at.and_then(|at| {
            let room = self.room.get_mut(at..at + bytes.len())?;
            room.copy_from_slice(bytes);
            Some(at + bytes.len())
        });
    }
}
