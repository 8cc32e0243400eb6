//! The cache's errors as the protocol says them.

use env::IoError;
use nbd::wire::Errno;
use tidegate::{CacheError, Error};

/// The error that a client is told, and the same in words for clients that take structured replies.
pub(super) type Told = (Errno, &'static str);

/// An answer that never came: its job was dropped.
pub(super) const LOST: Told = (Errno::Io, "the server failed to carry it out");
/// The server is about to end.
pub(super) const SHUTDOWN: Told = (Errno::Shutdown, "the server is shutting down");
/// A fast zero on a backing that has none.
pub(super) const NOT_FAST: Told = (Errno::NotSupported, "zeroes are written here like data");

/// By the error contract: the device's errors are EIO but for a full one, a lack of memory is
/// ENOMEM.
pub(super) fn told(error: &Error) -> Told {
    let Error::Cache(error) = error else {
        return match error {
            Error::Closed => SHUTDOWN,
            _ => (Errno::Io, "the cache failed"),
        };
    };
    match error {
        CacheError::OutOfMemory { .. } | CacheError::NoMemory { .. } => {
            (Errno::NoMemory, "out of memory")
        }
        CacheError::ReadFailed { cause, .. } => of_device(*cause, "the backing could not be read"),
        CacheError::WriteFailed { cause, .. } => {
            of_device(*cause, "data could not be written to the backing")
        }
        CacheError::FlushFailed { cause } => of_device(*cause, "the backing could not be flushed"),
        CacheError::DeviceStopped { cause } => {
            of_device(*cause, "the volume takes no writes after an error")
        }
        CacheError::MetadataFailed { cause, .. } => {
            of_device(*cause, "the backing refused to change its space")
        }
        CacheError::PunchFailed { cause, .. } => {
            of_device(*cause, "the backing could not give the space back")
        }
        CacheError::OutOfRange { .. } => (Errno::NoSpace, "beyond the end of the volume"),
        CacheError::Cancelled => SHUTDOWN,
        _ => (Errno::Io, "the cache failed"),
    }
}

fn of_device(cause: IoError, words: &'static str) -> Told {
    match cause {
        IoError::NoSpace => (Errno::NoSpace, "the backing is full"),
        // The protocol has no other number for it.
        IoError::OverQuota => (Errno::NoSpace, "the quota at the backing is used up"),
        IoError::Cancelled => SHUTDOWN,
        IoError::Failed { errno: 1 | 13 | 30 } => (Errno::NotPermitted, words),
        IoError::Failed { errno: 12 } => (Errno::NoMemory, words),
        _ => (Errno::Io, words),
    }
}
