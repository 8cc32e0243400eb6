//! Errors of the crates below as Python's exceptions, in the words of the program.
//!
//! The classes of its own are Python code (`tidegate_lab._errors`): some have two bases, which an
//! extension cannot declare.

use experiment::scenario::{LoadError, Mistake, Mistakes, OverrideError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// An exception of `tidegate_lab._errors`.
fn own(py: Python<'_>, class: &str, arguments: impl for<'py> pyo3::call::PyCallArgs<'py>) -> PyErr {
    let made = || {
        let class = py.import("tidegate_lab._errors")?.getattr(class)?;
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
