//! Reading the tables that `tidegate` writes.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Result, at};

/// A table with named columns.
pub struct Table {
    path: PathBuf,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or is no table.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(at(path))?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self> {
        let mut lines = records(text).into_iter();
        let columns = lines
            .next()
            .ok_or_else(|| format!("{}: no header", path.display()))?;
        let rows: Vec<_> = lines.collect();
        if let Some(row) = rows.iter().position(|row| row.len() != columns.len()) {
            return Err(format!(
                "{}: row {} is not as long as the header",
                path.display(),
                row + 1
            ));
        }
        Ok(Self {
            path: path.to_owned(),
            columns,
            rows,
        })
    }

    /// The values of the named columns, row by row.
    ///
    /// # Errors
    /// A column is not there.
    pub fn select<'a>(&'a self, names: &[&str]) -> Result<Vec<Vec<&'a str>>> {
        let place = |name: &&str| {
            self.columns
                .iter()
                .position(|column| column == name)
                .ok_or_else(|| {
                    let have = self.columns.join(", ");
                    format!("{}: no column '{name}' among {have}", self.path.display())
                })
        };
        let places = names.iter().map(place).collect::<Result<Vec<_>>>()?;
        let pick = |row: &'a Vec<String>| places.iter().map(|at| row[*at].as_str()).collect();
        Ok(self.rows.iter().map(pick).collect())
    }
}

/// Splits a text into records of fields; a quoted field may hold commas, quotes and line ends.
fn records(text: &str) -> Vec<Vec<String>> {
    let mut records = Vec::new();
    let mut record = Vec::new();
    let mut field = String::new();
    let mut quoted = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                field.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => record.push(std::mem::take(&mut field)),
            '\r' if !quoted => {}
            '\n' if !quoted => {
                record.push(std::mem::take(&mut field));
                records.push(std::mem::take(&mut record));
            }
            _ => field.push(c),
        }
    }
    if !field.is_empty() || !record.is_empty() {
        record.push(field);
        records.push(record);
    }
    records
}

/// The files of that name under a folder, in order of their paths.
pub fn find(folder: &Path, name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else {
        return found;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            found.extend(find(&path, name));
        } else if path.file_name().is_some_and(|file| file == name) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The one file of that name under a folder.
///
/// # Errors
/// There is none, or more than one.
pub fn only(folder: &Path, name: &str) -> Result<PathBuf> {
    let mut found = find(folder, name);
    match (found.pop(), found.len()) {
        (Some(path), 0) => Ok(path),
        (None, _) => Err(format!("no {name} in {}", folder.display())),
        (Some(_), more) => Err(format!("{} of {name} in {}", more + 1, folder.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_hold_commas_and_line_ends() {
        let table = Table::parse(Path::new("t"), "a,b\n1,\"x, \"\"y\"\"\n\"\r\n2,z\n").unwrap();
        assert_eq!(
            table.select(&["b", "a"]).unwrap(),
            [["x, \"y\"\n", "1"], ["z", "2"]]
        );
        assert!(
            table
                .select(&["c"])
                .is_err_and(|problem| problem.contains("a, b"))
        );
    }

    #[test]
    fn a_short_row_is_refused() {
        assert!(Table::parse(Path::new("t"), "a,b\n1\n").is_err());
    }
}
