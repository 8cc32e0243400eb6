//! Errors, each with the thing, the value and the way out.

use std::io;
use std::path::PathBuf;

use env::IoError;
use figures::shown;
use policy::place::NODES_MAX;
use policy::units::Bytes;

use crate::{METADATA_PER_SLOT, PAGE_SIZE};

/// An error of this library. `From<Error> for std::io::Error` is there for callers that want that.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The limit leaves no room for pages.
    #[error(
        "a memory limit of {} is too small: {:#} are needed (of which {} for code, stacks and metadata); raise the limit",
        Bytes(*limit).shown(), Bytes(*least).shown(), Bytes(*overhead).shown()
    )]
    LimitTooSmall {
        /// The limit asked for.
        limit: u64,
        /// The least that works.
        least: u64,
        /// The part that is not for pages.
        overhead: u64,
    },
    /// The system does not have that much memory to give.
    #[error(
        "a memory limit of {} is more than the {} that the system has left; lower the limit",
        Bytes(*limit).shown(), Bytes(*available).shown()
    )]
    LimitTooLarge {
        /// The limit asked for.
        limit: u64,
        /// The memory left.
        available: u64,
    },
    /// The control group of the process does not allow that much: the kernel would kill it.
    #[error(
        "a memory limit of {} is more than the {} that the control group of this process allows ({}); lower the limit, to \
         three quarters of that for example, or raise the group's",
        Bytes(*limit).shown(), Bytes(*allowed).shown(), shown(file.display())
    )]
    LimitAboveGroup {
        /// The limit asked for.
        limit: u64,
        /// The limit that the group allows.
        allowed: u64,
        /// The file that says so.
        file: PathBuf,
    },
    /// A cache cannot be divided into this many nodes.
    #[error("a cache cannot be divided into {count} nodes; 1 to {NODES_MAX} are possible")]
    BadDivision {
        /// The number asked for.
        count: u8,
    },
    /// A size that this cache cannot have.
    #[error("{what} is {:#}; {}", Bytes(*bytes).shown(), sizes(*allowed))]
    BadSize {
        /// Which, by the method that sets it.
        what: &'static str,
        /// The size asked for.
        bytes: u64,
        /// The least and the most that it may be; the most is 0 where nothing is left to have.
        allowed: (u64, u64),
    },
    /// The records of the swap file leave no room for pages.
    #[error(
        "a swap file of {} is too large for a memory limit of {}: what is kept of its slots, {} at {} bytes for each \
         4 KiB, counts against the limit; at most {:#} go with this limit; make the swap file smaller, or raise the limit",
        Bytes(*bytes).shown(), Bytes(*limit).shown(), Bytes(*table).shown(), METADATA_PER_SLOT,
        Bytes(*most).shown()
    )]
    SwapFileTooLarge {
        /// The size asked for.
        bytes: u64,
        /// The part of that which is kept in memory.
        table: u64,
        /// The memory limit.
        limit: u64,
        /// The largest swap file that goes with it.
        most: u64,
    },
    /// The environment: memory, threads, io_uring, opening files.
    #[error("{0}")]
    System(os::OsError),
    /// Something that is no call on one file failed.
    #[error("{0}")]
    Cache(mm::Error),
    /// Reading, writing or syncing a file failed.
    #[error("{}: {error}{}", shown(path.display()), taken_in(*taken))]
    File {
        /// As it was opened.
        path: PathBuf,
        /// The failed operation, its place in the file, and the cause.
        error: mm::Error,
        /// Of a write: how many bytes of it were taken in before that, from its first on. They are
        /// part of the file.
        taken: u64,
    },
    /// Layers for the devices that do not exist, or that a cache cannot put there.
    #[error("layers `{}`: {}", shown(layers), shown(why))]
    BadLayers {
        /// The layers asked for.
        layers: String,
        /// Their fault, and an example of right ones.
        why: String,
    },
    /// A call that takes whole pages was asked for a part of one.
    #[error(
        "bytes {offset} to {end} are not whole pages: a range to map, touch or discard begins and ends at a multiple \
         of {PAGE_SIZE} bytes, or ends where the file or region ends; an empty one is not mapped"
    )]
    PartOfPage {
        /// The beginning of the range.
        offset: u64,
        /// Its end.
        end: u64,
    },
    /// An option that changes the file, of a handle for reading only. Nothing was opened, or
    /// changed.
    #[error(
        "`{option}` changes the file, and it is opened for reading only; leave `read_only` or `{option}` away"
    )]
    OptionsContradict {
        /// Which: "create", "truncate", "preallocate".
        option: &'static str,
    },
    /// The handle was opened with [`OpenOptions::read_only`](crate::OpenOptions::read_only).
    #[error("the file was opened for reading only; open it without `read_only` to write to it")]
    ReadOnly,
    /// The cache was closed, or the volume taken out of it.
    #[error("the cache is closed, or the volume was taken out of it")]
    Closed,
}

impl Error {
    /// Of a write that was made in parts: after `bytes` of it were taken in before this one.
    #[must_use]
    pub fn after(mut self, bytes: u64) -> Self {
        if let Self::File { taken, .. } = &mut self {
            *taken += bytes;
        }
        self
    }

    /// True if the device cannot do at all what it was asked for, and something else may: a hole
    /// that cannot be punched can be written as zeroes.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        self.of_cache().is_some_and(mm::Error::is_unsupported)
    }

    /// The cache's own error, of a file or otherwise.
    pub(crate) fn of_cache(&self) -> Option<&mm::Error> {
        match self {
            Self::Cache(error) | Self::File { error, .. } => Some(error),
            _ => None,
        }
    }

    /// The system's error number, where the system or a device refused something with one: 28
    /// (ENOSPC) on a full disk, 122 (EDQUOT) where a quota is used up.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Cache(mm::Error::NoMemory { errno } | mm::Error::NoThread { errno, .. }) => {
                Some(*errno)
            }
            Self::Cache(error) | Self::File { error, .. } if error.is_beyond_files() => {
                Some(TOO_BIG)
            }
            Self::Cache(error) | Self::File { error, .. } => error.cause().and_then(errno_of),
            Self::System(
                os::OsError::Arena { errno, .. }
                | os::OsError::Uring { errno, .. }
                | os::OsError::Thread { errno, .. }
                | os::OsError::NoFaults { errno }
                | os::OsError::System { errno, .. }
                | os::OsError::Open { errno, .. }
                | os::OsError::NoLock { errno, .. }
                | os::OsError::Preallocate { errno, .. },
            ) => Some(*errno),
            Self::System(os::OsError::InUse { .. }) => Some(BUSY),
            _ => None,
        }
    }
}

/// EBUSY.
pub(crate) const BUSY: i32 = 16;
/// ENFILE, EMFILE.
pub(crate) const NO_DESCRIPTORS: [i32; 2] = [23, 24];
/// ENOSPC.
const NO_SPACE: i32 = 28;
/// EFBIG.
const TOO_BIG: i32 = 27;
/// ESTALE.
const STALE: i32 = 116;
/// EDQUOT.
const OVER_QUOTA: i32 = 122;

/// The number of what a device answered, if it has one.
pub(crate) fn errno_of(cause: IoError) -> Option<i32> {
    match cause {
        IoError::NoSpace => Some(NO_SPACE),
        IoError::OverQuota => Some(OVER_QUOTA),
        IoError::Changed => Some(STALE),
        IoError::Failed { errno } => Some(errno),
        _ => None,
    }
}

impl From<os::OsError> for Error {
    fn from(error: os::OsError) -> Self {
        Self::System(error)
    }
}

/// The builder's method that sets an option of `mm`.
fn method(option: &'static str) -> &'static str {
    match option {
        "dirty.dirty, in per cent," => "dirty_limit, in per cent,",
        "dirty.background, in per cent," => "background_limit, in per cent,",
        "reclaim.swappiness" => "swappiness",
        other => other,
    }
}

/// The part of a failed write that was taken in, in words.
fn taken_in(bytes: u64) -> String {
    match bytes {
        0 => String::new(),
        bytes => format!("; the first {bytes} bytes of the write were taken in"),
    }
}

fn sizes((least, most): (u64, u64)) -> String {
    if most == 0 {
        return "nothing is left of that".into();
    }
    let (least, most) = (Bytes(least).shown(), Bytes(most).shown());
    format!("it may be {least:#} to {most:#}")
}

impl From<mm::Error> for Error {
    fn from(error: mm::Error) -> Self {
        match error {
            mm::Error::Cancelled => Self::Closed,
            mm::Error::NoThread { task, errno } => Self::System(os::OsError::Thread {
                name: task.into(),
                errno,
            }),
            mm::Error::BadOption {
                what,
                value,
                allowed,
            } => Self::Cache(mm::Error::BadOption {
                what: method(what),
                value,
                allowed,
            }),
            error => Self::Cache(error),
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match (&error, error.of_cache()) {
            (_, Some(mm::Error::OutOfMemory { .. } | mm::Error::NoMemory { .. })) => {
                io::ErrorKind::OutOfMemory
            }
            (_, Some(mm::Error::BadOption { .. })) => io::ErrorKind::InvalidInput,
            (_, Some(of_cache)) if of_cache.is_unsupported() => io::ErrorKind::Unsupported,
            (Error::ReadOnly, _) => io::ErrorKind::PermissionDenied,
            (Error::Closed, _) => io::ErrorKind::BrokenPipe,
            (Error::System(_) | Error::Cache(_) | Error::File { .. }, _) => match error.errno() {
                Some(errno) => Self::from_raw_os_error(errno).kind(),
                None => io::ErrorKind::Other,
            },
            (
                Error::LimitTooSmall { .. }
                | Error::LimitTooLarge { .. }
                | Error::LimitAboveGroup { .. }
                | Error::BadSize { .. }
                | Error::BadDivision { .. }
                | Error::SwapFileTooLarge { .. }
                | Error::PartOfPage { .. }
                | Error::OptionsContradict { .. }
                | Error::BadLayers { .. },
                _,
            ) => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_one_whatever_found_it_full_and_so_is_a_quota() {
        let full = (
            28,
            io::ErrorKind::StorageFull,
            "no space left on the device",
        );
        let quota = (
            122,
            io::ErrorKind::QuotaExceeded,
            "the quota on the device is used up",
        );
        for (cause, (errno, kind, words)) in [(IoError::NoSpace, full), (IoError::OverQuota, quota)]
        {
            let (what, offset) = ("taking space on the device", Bytes(0));
            let found = [
                mm::Error::MetadataFailed { what, cause },
                mm::Error::WriteFailed { offset, cause },
                mm::Error::DeviceStopped { cause },
            ];
            for error in found.map(Error::from) {
                assert_eq!(error.errno(), Some(errno));
                assert_eq!(io::Error::from(error).kind(), kind);
            }
            assert_eq!(
                Error::from(found[0]).to_string(),
                format!("taking space on the device failed: {words}")
            );
        }
    }

    #[test]
    fn what_no_system_answered_has_no_number() {
        let lost = mm::Error::FlushFailed {
            cause: IoError::Lost,
        };
        assert_eq!(Error::from(lost).errno(), None);
        assert_eq!(Error::ReadOnly.errno(), None);
    }
}
