//! Errors of the crates below as Python's exceptions, in the words of the program.
//!
//! The classes of its own are Python code (`tidegate._errors`): some have two bases, which an
//! extension cannot declare.

use std::io;

use experiment::scenario::{LoadError, Mistake, Mistakes, OverrideError};
use pyo3::exceptions::{PyMemoryError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// An exception of `tidegate._errors`.
fn own(py: Python<'_>, class: &str, arguments: impl for<'py> pyo3::call::PyCallArgs<'py>) -> PyErr {
    let made = || {
        let class = py.import("tidegate._errors")?.getattr(class)?;
        class.call1(arguments)
    };
    made().map_or_else(|error| error, PyErr::from_value)
}

/// A call that asks for what does not fit together.
pub(crate) fn usage(py: Python<'_>, text: impl Into<String>) -> PyErr {
    own(py, "UsageError", (text.into(),))
}

/// Runs that did not come to their end.
pub(crate) fn run(py: Python<'_>, text: impl Into<String>) -> PyErr {
    own(py, "RunError", (text.into(),))
}

/// Runs that were interrupted, with those that had ended.
pub(crate) fn interrupted(py: Python<'_>, kept: Py<PyAny>) -> PyErr {
    own(py, "Interrupted", (kept,))
}

/// A scenario with mistakes.
pub(crate) fn load(py: Python<'_>, error: LoadError) -> PyErr {
    match error {
        LoadError::Mistakes(mistakes) => {
            let list: PyResult<Vec<Py<PyDict>>> = mistakes
                .list
                .iter()
                .map(|mistake| as_dict(py, &mistakes, mistake))
                .collect();
            match list {
                Ok(list) => own(py, "ScenarioError", (mistakes.render(false), list)),
                Err(error) => error,
            }
        }
        LoadError::Override(error) => overriding(py, &error),
    }
}

/// A setting that fits nowhere.
pub(crate) fn overriding(py: Python<'_>, error: &OverrideError) -> PyErr {
    let list: Vec<Py<PyDict>> = Vec::new();
    own(py, "ScenarioError", (error.to_string(), list))
}

fn as_dict(py: Python<'_>, mistakes: &Mistakes, mistake: &Mistake) -> PyResult<Py<PyDict>> {
    let text = &mistakes.source.text;
    let before = text.get(..mistake.span.start).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before
        .rsplit('\n')
        .next()
        .map_or(0, |line| line.chars().count())
        + 1;
    let dict = PyDict::new(py);
    dict.set_item("file", &mistakes.source.origin)?;
    dict.set_item("line", line)?;
    dict.set_item("column", column)?;
    dict.set_item("title", &mistake.title)?;
    dict.set_item("label", &mistake.label)?;
    dict.set_item("help", mistake.help.as_ref())?;
    Ok(dict.unbind())
}

/// An error of the page cache: an `OSError` with the system's number where there is one, else what
/// a file of Python would raise.
pub(crate) fn cache(error: tidegate::Error) -> PyErr {
    let words = error.to_string();
    if matches!(error, tidegate::Error::Closed) {
        return PyValueError::new_err(words);
    }
    if let Some(errno) = error.errno() {
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
