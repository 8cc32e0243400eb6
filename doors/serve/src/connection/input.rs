//! The part of the stream that has been received and is not handled yet.

use crate::buffers::{Lease, Spilled};

use super::job::RequestId;

/// Bytes that a connection keeps for itself: the head of a request, or a page of payload that is
/// not complete.
pub(super) const CARRY: usize = 4096 + nbd::wire::REQUEST;

/// What the stream brings next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receiving {
    /// A request.
    Head,
    /// Payload of a write, to be taken in.
    Payload { id: RequestId, left: u32 },
    /// Payload of a write that failed or was refused, to be thrown away.
    Drop { id: RequestId, left: u32 },
}

/// Where received bytes lie while they are handled.
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
    pub(super) receiving: Receiving,
    /// The payload goes straight into pages: it is that of a large write, and so far the cache had
    /// them.
    pub(super) is_direct: bool,
    /// The cache could not take the payload; a thread of the pool is at it.
    pub(super) is_stuck: bool,
    /// The stream wakes the connection when it brings something, or ends.
    pub(super) is_listening: bool,
    /// No more requests are taken from the stream.
    pub(super) is_closed: bool,
    /// Nothing more comes from the client.
    pub(super) has_ended: bool,
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
            receiving: Receiving::Head,
            is_direct: false,
            is_stuck: false,
            is_listening: false,
            is_closed: false,
            has_ended: false,
            usual: nbd::wire::REQUEST,
        }
    }

    /// Nothing has been received of what comes next.
    pub(super) fn is_between_requests(&self) -> bool {
        self.receiving == Receiving::Head && self.handling.is_none() && self.carry.is_empty()
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
