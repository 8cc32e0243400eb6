//! The jobs of a connection for its volume's pool, and their results.
//!
//! Invariant: for every job that is submitted exactly one `Done` is posted, also when the job is
//! dropped or panics.

use std::sync::Arc;

use tidegate::{Cursor, Error, Writer};

use super::mailbox::Mailbox;
use crate::durable::Tell;

/// A request's place in the table of its connection.
pub(crate) type RequestId = u16;

/// The result of a job.
pub(crate) enum Done {
    /// A read can go on, or will not. The data may be there: so that it cannot lose them again.
    Read {
        id: RequestId,
        cursor: Cursor,
        result: Result<Option<Box<[u8]>>, Error>,
    },
    /// The writer is back, and the stuck request can go on, or will not. Some of it may be written:
    /// how many bytes.
    Write {
        writer: Box<Writer>,
        result: Result<usize, Error>,
    },
    /// A request was carried out.
    Whole {
        id: RequestId,
        result: Result<(), Error>,
    },
    /// The extents of a range.
    Status {
        id: RequestId,
        extents: Result<Vec<Extent>, Error>,
    },
    /// The job was dropped, and what it had taken along. `None`: it had the writer.
    Lost { id: Option<RequestId> },
}

/// Bytes that are kept in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) len: u64,
    pub(crate) is_hole: bool,
}

/// Posts what comes of a job, once.
pub(crate) struct Promise {
    mailbox: Arc<Mailbox>,
    id: Option<RequestId>,
    kept: bool,
}

impl Promise {
    pub(crate) fn new(mailbox: &Arc<Mailbox>, id: Option<RequestId>) -> Self {
        Self {
            mailbox: Arc::clone(mailbox),
            id,
            kept: false,
        }
    }

    pub(crate) fn keep(mut self, done: Done) {
        self.kept = true;
        self.mailbox.post(done);
    }
}

impl Promise {
    /// Says that a whole request was carried out, or failed.
    pub(crate) fn of_whole(self, id: RequestId) -> Tell {
        Box::new(move |result| self.keep(Done::Whole { id, result }))
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if !self.kept {
            self.mailbox.post(Done::Lost { id: self.id });
        }
    }
}
