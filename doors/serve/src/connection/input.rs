//! The part of the stream that has been received and is not handled yet, and what is done with it
//! next.

use crate::buffers::{Lease, Spilled};

use crate::job::RequestId;

/// Bytes that a connection keeps for itself: the head of a request, or a page of payload that is
/// not complete.
pub(super) const CARRY: usize = 4096 + nbd::wire::REQUEST;

/// The next step with the stream; drawn in `connection/mod.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A request is taken from it.
    Head,
    /// Payload of a write is taken in.
    Payload(Owed),
    /// Payload of a write that failed or was refused is thrown away.
    Drop(Owed),
    /// Nothing: payload waits for the writer, which a thread of the pool has.
    Stuck(Owed),
    /// Nothing: the client said that it goes, and may end its half of the stream.
    Closed,
    /// Nothing: the client has ended its half of the stream.
    Ended,
}

/// Payload of a write that is still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owed {
    pub(super) id: RequestId,
    /// In bytes.
    pub(super) left: u32,
    /// It goes straight into pages: it is that of a large write, and so far the cache had them.
    pub(super) is_direct: bool,
}

impl Owed {
    /// When so much of it is left.
    pub(super) fn with(self, left: u32) -> Self {
        Self { left, ..self }
    }
}

impl Next {
    /// True if an arrow of the drawing leads from here to there.
    fn leads_to(self, next: Self) -> bool {
        let same = |before: Owed, owed: Owed| owed.id == before.id && owed.left <= before.left;
        match (self, next) {
            (Self::Head, Self::Stuck(_) | Self::Ended) => false,
            (Self::Head, _) | (Self::Payload(_) | Self::Drop(_) | Self::Stuck(_), Self::Head) => {
                true
            }
            (Self::Payload(before), Self::Payload(owed) | Self::Drop(owed) | Self::Stuck(owed))
            | (Self::Stuck(before), Self::Payload(owed) | Self::Drop(owed))
            | (Self::Drop(before), Self::Drop(owed)) => same(before, owed),
            (from, to) => (from, to) == (Self::Closed, Self::Ended),
        }
    }
}

/// The place of received bytes while they are handled.
pub(super) enum Buffer {
    /// In one of the volume's buffers.
    Lease(Lease),
    /// In the connection's own, or in a buffer that was made because the client sent too much at
    /// once.
    Own(Vec<u8>, Option<Spilled>),
}

impl Buffer {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Lease(lease) => lease.bytes(),
            Self::Own(bytes, _) => bytes,
        }
    }
}

/// Received bytes that are being handled.
pub(super) struct Handling {
    pub(super) buffer: Buffer,
    /// The next byte to be handled, and where they end.
    pub(super) at: usize,
    pub(super) end: usize,
}

impl Handling {
    pub(super) fn rest(&self) -> &[u8] {
        &self.buffer.bytes()[self.at..self.end]
    }
}

/// The receiving side of a connection.
pub(super) struct Input {
    /// The beginning of what comes next; at most `CARRY` bytes.
    pub(super) carry: Vec<u8>,
    pub(super) handling: Option<Handling>,
    next: Next,
    /// The stream wakes the connection when it brings something, or ends.
    pub(super) is_listening: bool,
    /// Bytes of a request with its payload, lately.
    pub(super) usual: usize,
}

impl Input {
    pub(super) fn new(rest: &[u8]) -> Self {
        let handling = (!rest.is_empty()).then(|| {
            let buffer = Buffer::Own(rest.to_vec(), None);
            let end = rest.len();
            Handling { buffer, at: 0, end }
        });
        Self {
            carry: Vec::new(),
            handling,
            next: Next::Head,
            is_listening: false,
            usual: nbd::wire::REQUEST,
        }
    }

    /// The next step with the stream.
    pub(super) fn next(&self) -> Next {
        self.next
    }

    /// The one place where that changes.
    pub(super) fn turn(&mut self, next: Next) {
        debug_assert!(self.next.leads_to(next), "{:?} became {next:?}", self.next);
        self.next = next;
    }

    /// No more requests are taken from the stream.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.next, Next::Closed | Next::Ended)
    }

    /// Nothing has been received of what comes next.
    pub(super) fn is_between_requests(&self) -> bool {
        self.next == Next::Head && self.handling.is_none() && self.carry.is_empty()
    }

    /// Keeps what could not be handled yet, because there is not enough of it, for when there is
    /// more.
    pub(super) fn keep(&mut self, handling: Handling) {
        debug_assert!(self.carry.is_empty(), "it was put before what was received");
        let Handling { buffer, at, end } = handling;
        match buffer {
            Buffer::Lease(lease) => {
                self.carry.reserve_exact(CARRY);
                self.carry.extend_from_slice(&lease.bytes()[at..end]);
            }
            Buffer::Own(mut bytes, None) if bytes.capacity() <= 2 * CARRY => {
                bytes.truncate(end);
                bytes.drain(..at);
                self.carry = bytes;
            }
            Buffer::Own(bytes, _) => {
                self.carry.reserve_exact(CARRY);
                self.carry.extend_from_slice(&bytes[at..end]);
            }
        }
    }
}
