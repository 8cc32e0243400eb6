//! The answer of a call that fails: a code, the system's number, and a text of this thread.

use std::cell::RefCell;
use std::ffi::CString;
use std::ops::Deref;

use tidegate::{CacheError, SystemError};

codes! {
    TG_OK = 0,
    TG_NULL = -1,
    TG_INVALID = -2,
    TG_REGISTERED = -3,
    TG_FULL = -4,
    TG_IN_SCAN = -5,
    TG_SYSTEM = -6,
    TG_PANIC = -7,
    TG_CLOSED = -8,
    TG_KIND = -9,
    TG_BUSY = -10,
    TG_IO = -11,
    TG_NO_MEMORY = -12,
    TG_READ_ONLY = -13,
    TG_AGAIN = -14,
    TG_FORKED = -15,
}

/// Why a call failed. As small as a pointer: a call that is well copies no more.
#[derive(Debug)]
pub(crate) struct Failure(Box<Why>);

/// The whole of it.
#[derive(Debug)]
pub(crate) struct Why {
    pub(crate) code: i32,
    /// The system's, or 0.
    pub(crate) errno: i32,
    /// Of a write: bytes that were taken in before it.
    pub(crate) taken: u64,
    pub(crate) words: String,
}

impl Deref for Failure {
    type Target = Why;

    fn deref(&self) -> &Why {
        &self.0
    }
}

impl Failure {
    #[cold]
    pub(crate) fn new(code: i32, words: impl Into<String>) -> Self {
        Self(Box::new(Why {
            code,
            errno: 0,
            taken: 0,
            words: words.into(),
        }))
    }

    pub(crate) fn null(name: &str) -> Self {
        Self::new(TG_NULL, format!("{name} is null"))
    }

    pub(crate) fn invalid(words: impl Into<String>) -> Self {
        Self::new(TG_INVALID, words)
    }

    /// With the system's number.
    pub(crate) fn of_system(mut self, errno: i32) -> Self {
        self.0.errno = errno;
        self
    }

    /// After `bytes` more bytes of a write were taken in.
    pub(crate) fn after(mut self, bytes: u64) -> Self {
        self.0.taken += bytes;
        self
    }
}

impl From<tidegate::Error> for Failure {
    fn from(error: tidegate::Error) -> Self {
        let taken = match &error {
            tidegate::Error::File { taken, .. } => *taken,
            _ => 0,
        };
        let failure = Self::new(code_of(&error), error.to_string());
        failure.of_system(error.errno().unwrap_or(0)).after(taken)
    }
}

fn code_of(error: &tidegate::Error) -> i32 {
    use tidegate::Error;
    match error {
        Error::Cache(error) | Error::File { error, .. } => match error {
            CacheError::OutOfMemory { .. } | CacheError::NoMemory { .. } => TG_NO_MEMORY,
            CacheError::TooMany { .. }
            | CacheError::NoRun { .. }
            | CacheError::PinnedAboveLimit { .. } => TG_FULL,
            CacheError::ReadFailed { .. }
            | CacheError::SwapReadFailed { .. }
            | CacheError::WriteFailed { .. }
            | CacheError::FlushFailed { .. }
            | CacheError::DeviceStopped { .. }
            | CacheError::MetadataFailed { .. }
            | CacheError::PunchFailed { .. } => TG_IO,
            CacheError::Cancelled => TG_CLOSED,
            CacheError::WouldWait => TG_AGAIN,
            CacheError::NoThread { .. } => TG_SYSTEM,
            CacheError::Mapped => TG_BUSY,
            _ => TG_INVALID,
        },
        Error::System(SystemError::InUse { .. }) => TG_BUSY,
        Error::System(SystemError::Option { .. }) => TG_INVALID,
        Error::System(_) | Error::LimitTooLarge { .. } | Error::LimitAboveGroup { .. } => TG_SYSTEM,
        Error::ReadOnly => TG_READ_ONLY,
        Error::Closed => TG_CLOSED,
        _ => TG_INVALID,
    }
}

impl From<governor::Error> for Failure {
    fn from(error: governor::Error) -> Self {
        use governor::Error;
        let code = match error {
            Error::Registered { .. } => TG_REGISTERED,
            Error::Full { .. } => TG_FULL,
            Error::InScan { .. } => TG_IN_SCAN,
            Error::NoThread { .. } => TG_SYSTEM,
            _ => TG_INVALID,
        };
        Self::new(code, error.to_string())
    }
}

/// The last failure of a thread.
pub(crate) struct Last {
    pub(crate) errno: i32,
    pub(crate) taken: u64,
    /// None before the first failure.
    pub(crate) words: Option<CString>,
}

thread_local! {
    static LAST: RefCell<Last> = const {
        RefCell::new(Last { errno: 0, taken: 0, words: None })
    };
}

/// Keeps it for `tg_error`; answers its code. A thread that is at its end has no text any more.
pub(crate) fn keep(failure: Failure) -> i32 {
    let words = failure.words.replace('\0', " ");
    let last = Last {
        errno: failure.errno,
        taken: failure.taken,
        words: CString::new(words).ok(),
    };
    let _ = LAST.try_with(|kept| *kept.borrow_mut() = last);
    failure.code
}

/// Something of this thread's last failure.
pub(crate) fn last<T>(of: impl FnOnce(&Last) -> T) -> Option<T> {
    LAST.try_with(|kept| of(&kept.borrow())).ok()
}
