//! The sending side of a connection, as it is kept between two runs.

use std::collections::VecDeque;

use super::send_batch::SendBatch;
use crate::job::RequestId;

/// The sending side of a connection.
#[derive(Debug, Default)]
pub(super) struct Output {
    /// Requests whose replies can be composed; the first may be under way.
    pub(super) queue: VecDeque<RequestId>,
    /// The part of a head that the socket did not take, and from where on.
    pub(super) rest: Vec<u8>,
    pub(super) rest_at: usize,
    /// The first reply cannot go on, and nothing else may be sent before it does.
    pub(super) is_blocked: bool,
    /// The socket took less than it was given.
    pub(super) is_full: bool,
    /// A wider socket was asked for.
    pub(super) asked_for_more: bool,
    pub(super) batch: SendBatch,
    /// Requests may have data of their own.
    pub(super) has_fetched: bool,
    /// The stream has something left that it took and did not send.
    pub(super) is_flushing: bool,
    /// The composed pieces; empty between runs.
    pub(super) pieces: Vec<Piece>,
}

/// A part of a reply as it was composed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) id: RequestId,
    /// Bytes of its head.
    pub(super) head: usize,
    /// Bytes of data behind it.
    pub(super) data: usize,
    /// Data that its head promises.
    pub(super) promise: u32,
}

impl Output {
    /// A request's reply can be composed.
    pub(super) fn answer(&mut self, id: RequestId) {
        self.queue.push_back(id);
    }

    /// True if the client does not take its replies.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.rest.is_empty()
    }

    /// Nothing is to be sent: frees room that was made for many.
    pub(super) fn shrink(&mut self) {
        self.queue = VecDeque::new();
        self.pieces = Vec::new();
    }

    /// True if everything has left for the client.
    pub(super) fn is_sent(&self) -> bool {
        self.is_empty() && !self.is_flushing
    }
}
