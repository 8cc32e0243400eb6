//! Sizes, places and advice of callers: a wrong one is a `ValueError` that names it.

use std::fmt::Display;

use figures::size;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use tidegate::{Advice, Pages, Threshold};

/// The largest of a type.
pub(crate) trait Most: Display {
    const MOST: Self;
}

impl Most for u32 {
    const MOST: Self = Self::MAX;
}

impl Most for u64 {
    const MOST: Self = Self::MAX;
}

impl Most for usize {
    const MOST: Self = Self::MAX;
}

/// A whole number of a type that has no negative ones.
pub(crate) fn number<'py, T>(object: &Bound<'py, PyAny>) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py> + Most,
{
    object.extract::<T>().map_err(|error| {
        let error: PyErr = error.into();
        if !error.is_instance_of::<PyOverflowError>(object.py()) {
            return error;
        }
        let most = T::MOST;
        PyValueError::new_err(format!("{object} is not within 0 to {most}"))
    })
}

/// Bytes: a number, or a text with its unit.
pub(crate) struct Size(pub(crate) u64);

impl<'a, 'py> FromPyObject<'a, 'py> for Size {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match number(&object) {
            Ok(bytes) => return Ok(Self(bytes)),
            Err(error) if error.is_instance_of::<PyValueError>(object.py()) => return Err(error),
            Err(_) => {}
        }
        let text: String = object.extract().map_err(|_| {
            PyTypeError::new_err(
                "a size is a number of bytes, or a str with its unit, as \"64MiB\"",
            )
        })?;
        size(&text)
            .map(Self)
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }
}

/// A share of the memory (`"20%"`), or bytes.
pub(crate) struct Limit(pub(crate) Threshold);

impl<'a, 'py> FromPyObject<'a, 'py> for Limit {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let text: Option<String> = object.extract().ok();
        if let Some(percent) = text.as_deref().and_then(|text| text.strip_suffix('%')) {
            let whole = percent.trim().parse().map(Threshold::Percent).map(Self);
            return whole.map_err(|_| {
                PyValueError::new_err(format!("{percent}% is no whole number of per cent"))
            });
        }
        let bytes = object.extract::<Size>()?.0;
        let pages = bytes.div_ceil(tidegate::PAGE_SIZE as u64);
        Ok(Self(Threshold::Pages(Pages(pages))))
    }
}

/// Advice, and its name.
const ADVICE: [(&str, Advice); 6] = [
    ("normal", Advice::Normal),
    ("sequential", Advice::Sequential),
    ("random", Advice::Random),
    ("no-reuse", Advice::NoReuse),
    ("will-need", Advice::WillNeed),
    ("dont-need", Advice::DontNeed),
];

/// The advice of this name.
pub(crate) fn advice(name: &Bound<'_, PyAny>) -> PyResult<Advice> {
    let name: &str = name.extract()?;
    let known = ADVICE.iter().find(|(known, _)| *known == name);
    known.map(|(_, advice)| *advice).ok_or_else(|| {
        let names = ADVICE.map(|(name, _)| name).join(", ");
        PyValueError::new_err(format!("there is no advice '{name}'; there are {names}"))
    })
}
