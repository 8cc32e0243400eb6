//! A table as Python sees it: by the Arrow `PyCapsule` interface without a copy of this crate's own
//! in the reader, as lists, and as HTML.

use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, RecordBatchIterator,
    RecordBatchReader, StringArray,
};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{DataType, Field, Schema};
use pyo3::exceptions::{PyKeyError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList};
use report::output::web;
use report::output::{Data, TidyTable};

/// Rows that are shown of a table.
const SHOWN: usize = 20;

/// A table: named columns of one length.
///
/// pandas, polars, duckdb and pyarrow take it as it is (``pyarrow.table(t)``,
/// ``polars.DataFrame(t)``); ``t["column"]`` is a list, ``t.to_pandas()`` needs pandas alone.
/// Numbers that are not there are ``None``, null in Arrow.
#[pyclass(frozen, module = "tidegate_lab")]
pub(crate) struct Table {
    name: String,
    columns: Vec<(String, Data)>,
}

impl From<TidyTable> for Table {
    fn from(table: TidyTable) -> Self {
        let columns = table.columns.into_iter();
        Self {
            name: table.name.to_owned(),
            columns: columns
                .map(|column| (column.name.to_owned(), column.data))
                .collect(),
        }
    }
}

/// A column of words.
pub(crate) fn words(
    name: &str,
    values: impl IntoIterator<Item = impl Into<String>>,
) -> (String, Data) {
    let values = values.into_iter().map(Into::into);
    (name.to_owned(), Data::Text(values.collect()))
}

/// A column of numbers; `None`: not there.
pub(crate) fn numbers(name: &str, values: impl IntoIterator<Item = Option<f64>>) -> (String, Data) {
    let values = values.into_iter().map(|value| value.unwrap_or(f64::NAN));
    (name.to_owned(), Data::Real(values.collect()))
}

/// A column of whole numbers.
pub(crate) fn whole(name: &str, values: impl IntoIterator<Item = u64>) -> (String, Data) {
    let values = values
        .into_iter()
        .map(|value| i64::try_from(value).unwrap_or(i64::MAX));
    (name.to_owned(), Data::Whole(values.collect()))
}

impl Table {
    pub(crate) fn new(name: &str, columns: Vec<(String, Data)>) -> Self {
        Self {
            name: name.to_owned(),
            columns,
        }
    }

    fn schema(&self) -> Schema {
        let field = |(name, data): &(String, Data)| {
            let kind = match data {
                Data::Text(_) => DataType::Utf8,
                Data::Real(_) => DataType::Float64,
                Data::Whole(_) => DataType::Int64,
                Data::Flag(_) => DataType::Boolean,
            };
            Field::new(name, kind, true)
        };
        Schema::new(self.columns.iter().map(field).collect::<Vec<_>>())
    }

    /// Column `at`, rows `range`, as Python's values.
    fn values<'py>(
        &self,
        py: Python<'py>,
        data: &Data,
        range: core::ops::Range<usize>,
    ) -> PyResult<Bound<'py, PyList>> {
        match data {
            Data::Text(values) => PyList::new(py, &values[range]),
            Data::Real(values) => {
                let values = values[range].iter();
                PyList::new(py, values.map(|value| (!value.is_nan()).then_some(*value)))
            }
            Data::Whole(values) => PyList::new(py, &values[range]),
            Data::Flag(values) => PyList::new(py, &values[range]),
        }
    }
}

fn failed(error: arrow_schema::ArrowError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

#[pymethods]
impl Table {
    /// Name of the table, and of its file where the program writes one.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Names of the columns, in order.
    #[getter]
    fn column_names(&self) -> Vec<&str> {
        self.columns.iter().map(|(name, _)| name.as_str()).collect()
    }

    fn __len__(&self) -> usize {
        match self.columns.first() {
            None => 0,
            Some((_, Data::Text(values))) => values.len(),
            Some((_, Data::Real(values))) => values.len(),
            Some((_, Data::Whole(values))) => values.len(),
            Some((_, Data::Flag(values))) => values.len(),
        }
    }

    fn __getitem__<'py>(&self, py: Python<'py>, column: &str) -> PyResult<Bound<'py, PyList>> {
        let found = self.columns.iter().find(|(name, _)| name == column);
        let (_, data) = found.ok_or_else(|| {
            PyKeyError::new_err(format!(
                "{column}: the columns of {} are {}",
                self.name,
                self.column_names().join(", ")
            ))
        })?;
        self.values(py, data, 0..self.__len__())
    }

    /// Columns by their names, as lists.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, data) in &self.columns {
            dict.set_item(name, self.values(py, data, 0..self.__len__())?)?;
        }
        Ok(dict)
    }

    /// The same as a ``pandas.DataFrame``.
    fn to_pandas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let pandas = py.import("pandas")?;
        pandas.call_method1("DataFrame", (self.to_dict(py)?,))
    }

    /// The Arrow `PyCapsule` interface: a stream of one batch. No other schema is made of it.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let schema = Arc::new(self.schema());
        let column = |(_, data): &(String, Data)| -> ArrayRef {
            match data {
                Data::Text(values) => Arc::new(StringArray::from_iter_values(values)),
                Data::Real(values) => {
                    let values = values.iter();
                    let values = values.map(|value| (!value.is_nan()).then_some(*value));
                    Arc::new(Float64Array::from_iter(values))
                }
                Data::Whole(values) => {
                    Arc::new(Int64Array::from_iter_values(values.iter().copied()))
                }
                Data::Flag(values) => Arc::new(BooleanArray::from(values.clone())),
            }
        };
        let columns = self.columns.iter().map(column).collect();
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns).map_err(failed)?;
        let reader = RecordBatchIterator::new([Ok(batch)], schema);
        let reader: Box<dyn RecordBatchReader + Send> = Box::new(reader);
        let stream = FFI_ArrowArrayStream::new(reader);
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// Its schema by the same interface.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(&self.schema()).map_err(failed)?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    fn __repr__(&self) -> String {
        format!(
            "<tidegate.Table {}: {} rows of {}>",
            self.name,
            self.__len__(),
            self.column_names().join(", ")
        )
    }

    fn _repr_html_(&self) -> String {
        let rows = self.__len__();
        let heads: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let texts: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .filter_map(|(at, (_, data))| matches!(data, Data::Text(_)).then_some(at))
            .collect();
        let cell = |data: &Data, row: usize| match data {
            Data::Text(values) => web::Cell::text(&values[row]),
            Data::Real(values) if values[row].is_nan() => web::Cell::number("", None),
            Data::Real(values) => web::Cell::number(&values[row].to_string(), None),
            Data::Whole(values) => web::Cell::number(&values[row].to_string(), None),
            Data::Flag(values) => web::Cell::text(if values[row] { "true" } else { "false" }),
        };
        let shown = (0..rows.min(SHOWN)).map(|row| {
            let cells = self.columns.iter().map(|(_, data)| cell(data, row));
            cells.collect::<Vec<_>>()
        });
        let more = if rows > SHOWN {
            format!("<p>{SHOWN} of {rows} rows</p>\n")
        } else {
            String::new()
        };
        format!("{}{more}", web::table(&heads, &texts, shown))
    }
}
