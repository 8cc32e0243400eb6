//! Errors of the cache as Python's exceptions, in its words.

use std::io;

use pyo3::exceptions::{PyMemoryError, PyOSError, PyValueError};
use pyo3::prelude::*;

/// EISDIR, EINVAL.
const IS_A_FOLDER: i32 = 21;
const INVALID: i32 = 22;

/// An error of the page cache: an `OSError` with the system's number where there is one, else what
/// a file of Python would raise.
pub(crate) fn cache(error: tidegate::Error) -> PyErr {
    let words = error.to_string();
    if matches!(error, tidegate::Error::Closed) {
        return PyValueError::new_err(words);
    }
    let none = match &error {
        // As `open` of a folder to write, and as a call that a special file does not know.
        tidegate::Error::System(tidegate::SystemError::NotAFile { path }) => {
            Some(if path.is_dir() { IS_A_FOLDER } else { INVALID })
        }
        _ => None,
    };
    if let Some(errno) = error.errno().or(none) {
        return PyOSError::new_err((errno, words));
    }
    let kind = io::Error::from(error).kind();
    match kind {
        io::ErrorKind::OutOfMemory => PyMemoryError::new_err(words),
        io::ErrorKind::InvalidInput => PyValueError::new_err(words),
        io::ErrorKind::PermissionDenied => unsupported(words),
        _ => PyOSError::new_err(words),
    }
}

/// A mode that a file opened otherwise would have.
pub(crate) fn unsupported(words: String) -> PyErr {
    Python::attach(|py| {
        let made = || {
            py.import("io")?
                .getattr("UnsupportedOperation")?
                .call1((words,))
        };
        made().map_or_else(|error| error, PyErr::from_value)
    })
}
