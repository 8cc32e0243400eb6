//! The results of a connection's jobs for its volume's pool.

use tidegate::{Cursor, Error, Writer};

/// Takes the answer to one request.
pub(crate) type Tell = Box<dyn FnOnce(Result<(), Error>) + Send>;

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
