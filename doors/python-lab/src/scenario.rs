//! A scenario as Python sees it: immutable, and checked when it is made.

use experiment::experiments::{self, EXPERIMENTS};
use experiment::run::Column;
use experiment::scenario::{self, LoadError, Override, Source, choices};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyType};

use crate::errors;
use crate::paths::FsPath;

/// Keys of lists, in the plural.
const PLURALS: [(&str, &str); 6] = [
    ("devices", "device"),
    ("tasks", "task"),
    ("rows", "row"),
    ("columns", "column"),
    ("cases", "row"),
    ("policies", "column"),
];

/// One experiment: machine, devices, tasks, rows, columns, and what must come out.
///
/// A scenario is immutable, and has passed every check.
///
/// Examples
/// --------
/// >>> small = tidegate.Scenario.load("dd").with_("machine.memory", "512MiB")
#[pyclass(frozen, skip_from_py_object, module = "tidegate_lab")]
#[derive(Clone)]
pub(crate) struct Scenario {
    pub(crate) inner: scenario::Scenario,
    pub(crate) source: Source,
}

impl Scenario {
    fn of(py: Python<'_>, source: Source, overrides: &[Override]) -> PyResult<Self> {
        let loaded = scenario::Scenario::load(source, overrides);
        let (inner, source) = loaded.map_err(|error| errors::load(py, error))?;
        Ok(Self { inner, source })
    }

    /// The same with overrides of the program's options.
    pub(crate) fn overridden(&self, py: Python<'_>, overrides: &[Override]) -> PyResult<Self> {
        Self::of(py, self.source.clone(), overrides)
    }

    /// The override that a key and a value stand for: the key may lack its unit where the value has
    /// one.
    fn setting(&self, py: Python<'_>, key: &str, value: &Bound<'_, PyAny>) -> PyResult<Override> {
        let key = singular(key);
        let mut last = None;
        for (key, value) in candidates(&key, value)? {
            let parsed = Override::parse(&format!("{key}={value}"));
            let set = parsed.map_err(|error| errors::overriding(py, &error))?;
            let tried = scenario::Scenario::load(self.source.clone(), std::slice::from_ref(&set));
            let is_unknown = matches!(&tried, Err(LoadError::Mistakes(mistakes))
                if mistakes.list.iter().any(|mistake| mistake.title.starts_with("unknown key")));
            if !is_unknown {
                return Ok(set);
            }
            last = Some(set);
        }
        Ok(last.expect("a value has a form"))
    }
}

/// `devices.0.rate` is `device.0.rate`.
fn singular(key: &str) -> String {
    let (first, rest) = key.split_once('.').unwrap_or((key, ""));
    match PLURALS.iter().find(|(plural, _)| *plural == first) {
        Some((_, one)) if !rest.is_empty() => format!("{one}.{rest}"),
        _ => key.to_owned(),
    }
}

/// (key, value) pairs that a setting may mean, the likeliest first: a figure with a unit is for a
/// key that ends in one.
fn candidates(key: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<(String, String)>> {
    let plain = (key.to_owned(), toml_of(value, false)?);
    let Ok(text) = value.extract::<String>() else {
        return Ok(vec![plain]);
    };
    let text = text.trim();
    let with = |unit: &str, value: f64| (format!("{key}_{unit}"), format!("{value:?}"));
    let mut all = Vec::new();
    #[expect(
        clippy::cast_precision_loss,
        reason = "sizes of machines are below 2^53"
    )]
    if let Ok(bytes) = figures::size(text.strip_suffix("/s").unwrap_or(text)) {
        all.push(with("mib", bytes as f64 / f64::from(1 << 20)));
        all.push(with("kib", bytes as f64 / 1024.0));
    } else if let Ok(time) = figures::time(text) {
        all.push(with("s", time.as_secs_f64()));
        all.push(with("ms", time.as_secs_f64() * 1e3));
    } else if let Some(percent) = text.strip_suffix('%') {
        let percent = percent.trim();
        all.push((format!("{key}_percent"), percent.to_owned()));
    }
    all.push(plain);
    Ok(all)
}

/// A value of Python as TOML; words that stand alone need no quotes.
fn toml_of(value: &Bound<'_, PyAny>, quoted: bool) -> PyResult<String> {
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(if flag.is_true() { "true" } else { "false" }.to_owned());
    }
    if value.is_instance_of::<PyInt>() {
        return Ok(value.str()?.to_string());
    }
    if let Ok(number) = value.cast::<PyFloat>() {
        return Ok(format!("{:?}", number.value()));
    }
    if let Ok(text) = value.cast::<PyString>() {
        let text = text.to_string();
        return Ok(if quoted { format!("{text:?}") } else { text });
    }
    if let Ok(list) = value.cast::<PyList>() {
        let all: PyResult<Vec<String>> = list.iter().map(|one| toml_of(&one, true)).collect();
        return Ok(format!("[{}]", all?.join(", ")));
    }
    // numpy's numbers are none of Python's.
    match value.extract::<f64>() {
        Ok(number) if number.fract() == 0.0 && !value.hasattr("is_integer")? => {
            Ok(format!("{number:.0}"))
        }
        Ok(number) => Ok(format!("{number:?}")),
        Err(_) => Err(PyTypeError::new_err(format!(
            "a value of a scenario is a bool, a number, a str or a list of these, not {}",
            value.get_type().name()?
        ))),
    }
}

#[pymethods]
impl Scenario {
    /// A built-in experiment, or a scenario file.
    ///
    /// Parameters
    /// ----------
    /// name : str or os.PathLike
    ///     A name of ``tidegate.experiments()``, or the path of a TOML file.
    ///
    /// Raises
    /// ------
    /// ScenarioError
    ///     The text has mistakes: each with its file, line and the way out.
    /// UsageError
    ///     There is no such experiment.
    /// OSError
    ///     The file cannot be read.
    #[classmethod]
    fn load(_class: &Bound<'_, PyType>, py: Python<'_>, name: FsPath) -> PyResult<Self> {
        let name = name.0;
        if let Some(source) = name.to_str().and_then(experiments::by_name) {
            return Self::of(py, source, &[]);
        }
        let origin = name.display().to_string();
        if name.extension().is_none() && !origin.contains('/') && !name.exists() {
            let known = EXPERIMENTS.iter().map(|(known, _)| *known);
            return Err(errors::usage(
                py,
                format!(
                    "there is no experiment `{origin}`; {}; or name a scenario file",
                    choices(&origin, known)
                ),
            ));
        }
        let text = std::fs::read_to_string(&name)?;
        Self::of(py, Source { origin, text }, &[])
    }

    /// A scenario from its text.
    ///
    /// Parameters
    /// ----------
    /// text : str
    ///     TOML, as docs/study/write-a-scenario.md has it.
    /// origin : str
    ///     Its name in mistakes.
    #[classmethod]
    #[pyo3(signature = (text, origin = "<text>"))]
    fn from_toml(
        _class: &Bound<'_, PyType>,
        py: Python<'_>,
        text: &str,
        origin: &str,
    ) -> PyResult<Self> {
        let source = Source {
            origin: origin.to_owned(),
            text: text.to_owned(),
        };
        Self::of(py, source, &[])
    }

    /// The same scenario with other settings, checked again.
    ///
    /// Parameters
    /// ----------
    /// key : str or dict
    ///     Where: ``"machine.memory"``, ``"devices.0.rate"``, ``"policy.tidegate.hz"``; or all
    ///     settings of a change by their keys.
    /// value : bool, int, float, str or list
    ///     A number is in the unit of the key's name; a ``str`` has its own (``"8GiB"``,
    ///     ``"50ms"``, ``"20%"``), and the key needs none.
    #[pyo3(signature = (key, value = None))]
    fn with_(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let sets: PyResult<Vec<Override>> = match (key.cast::<PyDict>(), value) {
            (Ok(settings), None) => settings
                .iter()
                .map(|(key, value)| self.setting(py, &key.extract::<String>()?, &value))
                .collect(),
            (Err(_), Some(value)) => {
                let set = self.setting(py, &key.extract::<String>()?, value);
                set.map(|set| vec![set])
            }
            _ => Err(PyTypeError::new_err(
                "with_ takes a key and a value, or a dict of settings",
            )),
        };
        self.overridden(py, &sets?)
    }

    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        self.inner.name.get_ref()
    }

    /// One line about it.
    #[getter]
    fn title(&self) -> &str {
        &self.inner.title
    }

    /// Names of its rows.
    #[getter]
    fn rows(&self) -> Vec<String> {
        let rows = self.inner.rows().into_iter();
        rows.map(|row| row.name.get_ref().clone()).collect()
    }

    /// Names of its columns; the first is the baseline.
    #[getter]
    fn policies(&self) -> Vec<String> {
        let columns = self.inner.columns.iter().map(Column::of);
        columns.map(|column| column.name).collect()
    }

    /// Names of the metrics that it prints; empty: all that apply.
    #[getter]
    fn metrics(&self) -> Vec<&str> {
        let names = self.inner.metrics.iter();
        names.map(|name| name.get_ref().as_str()).collect()
    }

    /// Its text, settings included.
    #[getter]
    fn toml(&self) -> &str {
        &self.source.text
    }

    /// Where the text came from, with the settings.
    #[getter]
    fn origin(&self) -> &str {
        &self.source.origin
    }

    fn __repr__(&self) -> String {
        format!(
            "<tidegate.Scenario {}: {}>",
            self.source.origin,
            self.title()
        )
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.source.text == other.source.text
    }

    fn __hash__(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash as _, Hasher as _};
        let mut hasher = DefaultHasher::new();
        self.source.text.hash(&mut hasher);
        hasher.finish()
    }

    /// A copy in another process is made from the text.
    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, (String, String))> {
        let make = py.get_type::<Self>().getattr("from_toml")?;
        let source = &slf.get().source;
        Ok((make, (source.text.clone(), source.origin.clone())))
    }
}
