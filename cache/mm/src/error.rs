//! Errors by cause, and what the caller can do about each.

use core::fmt;

use env::{IoError, NoThread, Wakeup};
use policy::units::{Bytes, PAGE_SHIFT, Pages};

/// Largest file: page numbers are 32 bits.
pub(crate) const FILE_MAX: u64 = (u32::MAX as u64) << 12;

/// EOPNOTSUPP.
const NOT_SUPPORTED: i32 = 95;

/// True if the device cannot do at all what it was asked for.
pub(crate) fn is_unsupported(cause: IoError) -> bool {
    let errno = NOT_SUPPORTED;
    cause == IoError::Failed { errno }
}

/// An operating error. Bugs panic; these return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The limit cannot hold even the least that works.
    LimitTooSmall {
        /// The frames asked for.
        frames: Pages,
        /// The least.
        least: Pages,
    },
    /// Callers hold more pages pinned than the limit would leave.
    PinnedAboveLimit {
        /// The limit asked for.
        limit: Pages,
        /// Pages pinned.
        pinned: Pages,
    },
    /// The tables of the regions there are would take too much beside the limit.
    RegionsAboveLimit {
        /// The limit asked for, in whole chunks.
        limit: Pages,
        /// Pages of all regions.
        regions: Pages,
        /// Bytes of their tables.
        tables: Bytes,
    },
    /// An option that no cache can have, or that contradicts another.
    BadOption {
        /// Which, as `Options` and `DeviceOptions` name it.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The least and the most that it may be.
        allowed: (u64, u64),
    },
    /// The system gave no memory for the frames.
    NoMemory {
        /// `errno`.
        errno: i32,
    },
    /// The system gave no thread.
    NoThread {
        /// The task that was to run in it.
        task: &'static str,
        /// `errno`.
        errno: i32,
    },
    /// No frame can be freed: everything is pinned, dirty on a stalled device, or being read.
    OutOfMemory {
        /// Frames that the cache may use.
        frames: Pages,
    },
    /// More devices, files, regions or swap files than the cache has room for.
    TooMany {
        /// Of what: "devices", "files", "regions", "swap files".
        what: &'static str,
        /// The number that fits.
        limit: u32,
    },
    /// A program has mapped the file and uses its pages by itself: nobody else may map it, keep its
    /// pages, or close its cache.
    Mapped,
    /// A cache of objects of that name is registered already.
    RegisteredTwice {
        /// Its name.
        name: &'static str,
    },
    /// A read failed.
    ReadFailed {
        /// The offset in the file.
        offset: Bytes,
        /// Why.
        cause: IoError,
    },
    /// A page of anonymous memory could not be read from the swap file. It is still there; the next
    /// access tries again.
    SwapReadFailed {
        /// The offset in the region.
        offset: Bytes,
        /// Why.
        cause: IoError,
    },
    /// Data written before could not be brought to the device; it is still in memory and dirty, or
    /// (after a failed flush) its fate on the device is unknown.
    WriteFailed {
        /// Where in the file, when it is known.
        offset: Bytes,
        /// Why.
        cause: IoError,
    },
    /// A device flush failed: the device is failed until it is reopened.
    FlushFailed {
        /// Why.
        cause: IoError,
    },
    /// The device refuses new writes after an error (policy `stop`).
    DeviceStopped {
        /// Why.
        cause: IoError,
    },
    /// The device refused something that is no reading or writing: another length, space for a
    /// write.
    MetadataFailed {
        /// The operation refused.
        what: &'static str,
        /// Why.
        cause: IoError,
    },
    /// A hole could not be punched. The part of the range before it has been.
    PunchFailed {
        /// From where on.
        offset: Bytes,
        /// Why.
        cause: IoError,
    },
    /// Beyond the end of a file or region, or of what a file can have (16 TiB).
    OutOfRange {
        /// Of what: "file", "region", "volume".
        what: &'static str,
        /// The end asked for.
        end: Bytes,
        /// The end that there is.
        len: Bytes,
    },
    /// No such number of frames stands side by side at this moment.
    NoRun {
        /// The number asked for.
        pages: Pages,
    },
    /// The region has given way: memory ran out, and it was the largest (`Tunables::oom_kills`).
    /// Its pages are gone.
    Killed,
    /// Pages wait for a log that has ended (`WriteAhead::end`): they cannot be written.
    LogEnded {
        /// The number that the log would have to be durable up to.
        lsn: u64,
        /// The number that it was.
        durable: u64,
    },
    /// The environment shuts down.
    Cancelled,
    /// It would have to be waited for, and the task may not (`Task::nonblocking`).
    WouldWait,
}

impl Error {
    /// Says whether a task may go on after a wait that ended so.
    pub(crate) fn after(wakeup: Wakeup) -> Result<(), Self> {
        match wakeup {
            Wakeup::Ready(_) | Wakeup::TimedOut => Ok(()),
            Wakeup::Cancelled => Err(Self::Cancelled),
            Wakeup::Refused => Err(Self::WouldWait),
        }
    }

    /// There is no thread for a task.
    pub(crate) fn no_thread(task: &'static str) -> impl FnOnce(NoThread) -> Self {
        move |NoThread { errno }| Self::NoThread { task, errno }
    }

    /// True if it is `beyond_files`.
    #[must_use]
    pub fn is_beyond_files(&self) -> bool {
        matches!(self, Self::OutOfRange { len, .. } if len.0 == FILE_MAX)
    }

    /// More than a file can have.
    pub(crate) fn beyond_files(end: Bytes) -> Self {
        Self::OutOfRange {
            what: "file",
            end,
            len: Bytes(FILE_MAX),
        }
    }

    /// A page beyond the end of a file of `len` bytes.
    pub(crate) fn no_page(page: u32, len: u64) -> Self {
        Self::OutOfRange {
            what: "file",
            end: Bytes((u64::from(page) + 1) << PAGE_SHIFT),
            len: Bytes(len),
        }
    }

    /// A change of a file's length that ended with `cause`.
    pub(crate) fn metadata(cause: IoError) -> Self {
        Self::refused("changing the file's length", cause)
    }

    /// Space for a write, or ahead of one, was asked for, and that ended with `cause`.
    pub(crate) fn no_space_taken(cause: IoError) -> Self {
        Self::refused("taking space on the device", cause)
    }

    /// The device was told of a write, and that ended with `cause`.
    pub(crate) fn unprepared(cause: IoError) -> Self {
        Self::refused("preparing the device for a write", cause)
    }

    fn refused(what: &'static str, cause: IoError) -> Self {
        match cause {
            IoError::Cancelled => Self::Cancelled,
            cause => Self::MetadataFailed { what, cause },
        }
    }

    /// The device's answer, if it was a device.
    #[must_use]
    pub fn cause(&self) -> Option<IoError> {
        match *self {
            Self::ReadFailed { cause, .. }
            | Self::SwapReadFailed { cause, .. }
            | Self::WriteFailed { cause, .. }
            | Self::FlushFailed { cause }
            | Self::DeviceStopped { cause }
            | Self::MetadataFailed { cause, .. }
            | Self::PunchFailed { cause, .. } => Some(cause),
            _ => None,
        }
    }

    /// True if the device cannot do at all what it was asked for, and something else may: a hole
    /// that cannot be punched can be written as zeroes.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::PunchFailed { cause, .. } if is_unsupported(*cause))
    }

    /// A hole from `offset` on that ended with `cause`.
    pub(crate) fn punch(offset: Bytes, cause: IoError) -> Self {
        match cause {
            IoError::Cancelled => Self::Cancelled,
            cause => Self::PunchFailed { offset, cause },
        }
    }

    /// A read of the swap file, for the page at `offset` of a region, that ended with `cause`.
    pub(crate) fn swap_read(offset: Bytes, cause: IoError) -> Self {
        match cause {
            IoError::Cancelled => Self::Cancelled,
            cause => Self::SwapReadFailed { offset, cause },
        }
    }

    /// A read at `offset` that ended with `cause`.
    pub(crate) fn read(offset: Bytes, cause: IoError) -> Self {
        match cause {
            IoError::Cancelled => Self::Cancelled,
            cause => Self::ReadFailed { offset, cause },
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::LimitTooSmall { frames, least } => write!(
                f,
                "a memory limit of {} KiB is too small: at least {} KiB are needed; raise the limit",
                frames.bytes().0 >> 10,
                least.bytes().0 >> 10
            ),
            Self::PinnedAboveLimit { limit, pinned } => write!(
                f,
                "a memory limit of {} KiB is not available while {} KiB are pinned, and a reserve beside them; \
                 release pins, or raise the limit",
                limit.bytes().0 >> 10,
                pinned.bytes().0 >> 10
            ),
            Self::RegionsAboveLimit {
                limit,
                regions,
                tables,
            } => write!(
                f,
                "a memory limit of {} KiB is not available while there are regions of {} KiB, whose tables take {} KiB \
                 beside it; drop regions, or raise the limit",
                limit.bytes().0 >> 10,
                regions.bytes().0 >> 10,
                tables.0 >> 10
            ),
            Self::BadOption {
                what,
                value,
                allowed: (least, most),
            } => write!(f, "{what} is {value}; it may be {least} to {most}"),
            Self::NoMemory { errno } => write!(
                f,
                "the system gave no memory for the cache ({}); lower the limit",
                std::io::Error::from_raw_os_error(errno)
            ),
            Self::NoThread { task, errno } => write!(
                f,
                "the system gave no thread for the cache's task `{task}` ({}); raise `ulimit -u`, `ulimit -v`, \
                 or the container's pids limit",
                std::io::Error::from_raw_os_error(errno)
            ),
            Self::OutOfMemory { frames } => write!(
                f,
                "none of the cache's {} pages can be freed: they are pinned, dirty on a device that makes \
                 no progress, or anonymous while the swap file is full or missing; release pins, discard \
                 something, or raise the limit or the swap file's size",
                frames.0
            ),
            Self::TooMany { what, limit } => {
                write!(
                    f,
                    "more than {limit} {what}: close some, or build the cache for more"
                )
            }
            Self::Mapped => f.write_str(
                "the file is mapped: it has one map, and meanwhile its pages are not pinned and its cache is not closed; \
                 read it, or drop the map",
            ),
            Self::RegisteredTwice { name } => write!(
                f,
                "a cache of objects is registered as `{name}` already; give this one another name"
            ),
            Self::ReadFailed { offset, cause } => {
                write!(f, "reading at byte {} failed: {cause}", offset.0)
            }
            Self::SwapReadFailed { offset, cause } => write!(
                f,
                "reading the page at byte {} back from the swap file failed: {cause}; the next access \
                 tries again",
                offset.0
            ),
            Self::WriteFailed { offset, cause } => write!(
                f,
                "writing back the data at byte {} failed: {cause}; the data is kept in memory, and \
                 sync fails until it is written",
                offset.0
            ),
            Self::FlushFailed { cause } => write!(
                f,
                "flushing the device failed: {cause}; what it had taken since the last good flush \
                 is unknown; reopen the device"
            ),
            Self::DeviceStopped { cause } => {
                write!(f, "the device takes no more writes after an error: {cause}")
            }
            Self::MetadataFailed { what, cause } => write!(f, "{what} failed: {cause}"),
            Self::PunchFailed { offset, cause } => write!(
                f,
                "punching a hole from byte {} on failed: {cause}; what is there is as it was, or zeroes; write \
                 zeroes instead",
                offset.0
            ),
            Self::OutOfRange {
                len: Bytes(FILE_MAX),
                end,
                ..
            } => write!(f, "byte {} is beyond the largest file (16 TiB less 4 KiB)", end.0),
            Self::OutOfRange { what, end, len } => write!(
                f,
                "the {what} ends at byte {}; byte {} is beyond it",
                len.0, end.0
            ),
            Self::NoRun { pages } => write!(
                f,
                "no {} pages side by side can be had now: pins, and reads and writes under way, are in every block that was \
                 looked at, or the file is changed all the time; pin fewer pages, release pins, or try again",
                pages.0
            ),
            Self::Killed => f.write_str(
                "memory ran out, and this region, the largest, gave way: raise the limit or the swap \
                 file's size",
            ),
            Self::LogEnded { lsn, durable } => write!(
                f,
                "pages wait for a log to be durable up to {lsn}, and it has ended at {durable}; \
                 discard the file, and recover it from the log"
            ),
            Self::Cancelled => f.write_str("cancelled: shutting down"),
            Self::WouldWait => {
                f.write_str("it has to be waited for: ask again where that is allowed")
            }
        }
    }
}

impl std::error::Error for Error {}
