//! A table by columns, and its CSV form.

use std::borrow::Cow;
use std::path::Path;

/// Values of one column.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// Words.
    Text(Vec<String>),
    /// Numbers; NaN: not there.
    Real(Vec<f64>),
    /// Whole numbers.
    Whole(Vec<i64>),
    /// Yes or no.
    Flag(Vec<bool>),
}

/// One column.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// Its values.
    pub data: Data,
}

/// One table. All columns have the same length.
#[derive(Clone, Debug, PartialEq)]
pub struct TidyTable {
    /// Its name, and its file's.
    pub name: &'static str,
    /// Its columns.
    pub columns: Vec<Column>,
}

impl Data {
    fn len(&self) -> usize {
        match self {
            Self::Text(values) => values.len(),
            Self::Real(values) => values.len(),
            Self::Whole(values) => values.len(),
            Self::Flag(values) => values.len(),
        }
    }

    fn text(&self, row: usize) -> Cow<'_, str> {
        match self {
            Self::Text(values) => Cow::Borrowed(&values[row]),
            Self::Real(values) if values[row].is_nan() => Cow::Borrowed(""),
            Self::Real(values) => Cow::Owned(values[row].to_string()),
            Self::Whole(values) => Cow::Owned(values[row].to_string()),
            Self::Flag(values) => Cow::Borrowed(if values[row] { "true" } else { "false" }),
        }
    }
}

impl TidyTable {
    /// A table.
    ///
    /// # Panics
    /// If its columns differ in length.
    #[must_use]
    pub fn new(name: &'static str, columns: Vec<Column>) -> Self {
        let rows = columns.first().map_or(0, |column| column.data.len());
        assert!(
            columns.iter().all(|column| column.data.len() == rows),
            "columns of one length"
        );
        Self { name, columns }
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |column| column.data.len())
    }

    /// Writes it as CSV with a line of names.
    pub(super) fn write_csv(&self, path: &Path) -> Result<(), csv::Error> {
        let mut writer = csv::Writer::from_path(path)?;
        writer.write_record(self.columns.iter().map(|column| column.name))?;
        for row in 0..self.rows() {
            for column in &self.columns {
                writer.write_field(column.data.text(row).as_bytes())?;
            }
            writer.write_record(None::<&[u8]>)?;
        }
        writer.flush()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_quotes_what_needs_it_and_leaves_out_what_is_not_there() {
        let table = TidyTable::new(
            "t",
            vec![
                Column {
                    name: "a",
                    data: Data::Text(vec!["x,y".into(), "z".into()]),
                },
                Column {
                    name: "b",
                    data: Data::Real(vec![0.5, f64::NAN]),
                },
                Column {
                    name: "c",
                    data: Data::Whole(vec![1, -2]),
                },
            ],
        );
        let path =
            std::env::temp_dir().join(format!("tidegate-columns-{}.csv", std::process::id()));
        table.write_csv(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text, "a,b,c\n\"x,y\",0.5,1\nz,,-2\n");
    }
}
