//! A table of a recording: a CSV file, plain or gzipped, whose columns are found by name.
//!
//! Invariants
//!   1. Every number of a row that was kept is finite, and times do not go backwards per writer.
//!   2. A refusal names file, line and column, with what is allowed.
//!   3. A first or last line that was cut off is left out and counted; any other broken line is a
//!      fault: nothing in the middle of a file breaks by itself.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::fault::{Fault, Place};
use experiment::scenario::choices;

/// Largest file that is read, unpacked: ten times the longest recording.
const BYTES_MOST: u64 = 1 << 30;

/// A column that is asked for: its name, and what older kernels call it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) name: &'static str,
    pub(super) or: &'static str,
    pub(super) unit: &'static str,
}

/// A column of one name.
pub(super) const fn column(name: &'static str, unit: &'static str) -> Wanted {
    Wanted {
        name,
        or: name,
        unit,
    }
}

/// A table: for each row the wanted columns, in the order in which they were asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    pub(super) rows: Vec<Vec<f64>>,
    /// On which line each stands.
    pub(super) lines: Vec<usize>,
    /// The parts left out, and why.
    pub(super) notes: Vec<String>,
}

/// The file of that name in the folder, or its gzipped form.
pub(super) fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    [name.to_owned(), format!("{name}.gz")]
        .into_iter()
        .map(|name| folder.join(name))
        .find(|path| path.is_file())
}

/// The same where it has to be there; `help`: the files that there have to be.
///
/// # Errors
/// It is not.
pub(super) fn need(folder: &Path, name: &str, help: &str) -> Result<PathBuf, Fault> {
    let missing = || Fault::of(folder, format!("has no `{name}`"), help);
    find(folder, name).ok_or_else(missing)
}

/// The text of a file; a name that ends in `.gz` is unpacked.
pub(super) fn text(path: &Path) -> Result<String, Fault> {
    let failed = |error: std::io::Error| {
        Fault::of(
            path,
            format!("cannot be read: {error}"),
            "name a file that can be read",
        )
    };
    let file = File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    let packed = path.extension().is_some_and(|end| end == "gz");
    let read = if packed {
        flate2::read::MultiGzDecoder::new(file)
            .take(BYTES_MOST)
            .read_to_end(&mut bytes)
    } else {
        file.take(BYTES_MOST).read_to_end(&mut bytes)
    };
    read.map_err(failed)?;
    if bytes.len() as u64 == BYTES_MOST {
        return Err(Fault::of(
            path,
            "is larger than 1 GiB",
            "record for a shorter time, or fewer events",
        ));
    }
    // A trace may hold any bytes in names of tasks; our own fields are ASCII.
    Ok(match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    })
}

/// Checks whether a table has a column of that name.
pub(super) fn has(path: &Path, name: &str) -> Result<bool, Fault> {
    let text = text(path)?;
    let header = text.lines().next().unwrap_or_default();
    Ok(header.split(',').any(|known| known.trim() == name))
}

/// Reads the wanted columns; the first is the time. `per_writer`: the column whose value tells the
/// sequences apart in which time does not go backwards.
pub(super) fn read(
    path: &Path,
    wanted: &[Wanted],
    per_writer: Option<usize>,
) -> Result<Rows, Fault> {
    let text = text(path)?;
    let reader = Reader {
        path,
        text: &text,
        wanted,
        label: None,
    };
    Ok(reader.read(per_writer)?.0)
}

/// The same where a column of names tells the sequences apart: the rows, and the name of each.
pub(super) fn read_labelled(
    path: &Path,
    wanted: &[Wanted],
    label: &'static str,
) -> Result<(Rows, Vec<String>), Fault> {
    let text = text(path)?;
    let reader = Reader {
        path,
        text: &text,
        wanted,
        label: Some(column(label, "a name")),
    };
    reader.read(None)
}

struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
    wanted: &'a [Wanted],
    label: Option<Wanted>,
}

impl Reader<'_> {
    fn read(&self, per_writer: Option<usize>) -> Result<(Rows, Vec<String>), Fault> {
        let mut lines = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .from_reader(self.text.as_bytes());
        let mut records = Vec::new();
        for record in lines.records() {
            records.push(record.map_err(|error| {
                Fault::of(
                    self.path,
                    format!("is not a table: {error}"),
                    self.header_help(),
                )
            })?);
        }
        let Some((header, rows)) = records.split_first() else {
            return Err(Fault::of(self.path, "is empty", self.header_help()));
        };
        let places = self.places(header, self.wanted)?;
        let named = self.places(header, self.label.as_slice())?;
        let mut kept = Rows::default();
        let mut labels = Vec::new();
        let mut torn = Vec::new();
        let mut before: BTreeMap<(u64, String), (f64, usize)> = BTreeMap::new();
        for (index, record) in rows.iter().enumerate() {
            let line = line_of(record);
            let at_an_end = index == 0 || index + 1 == rows.len();
            let cut = record.len() != header.len()
                || index + 1 == rows.len() && !self.text.ends_with('\n');
            let values = match self.values(record, header.len(), &places) {
                Ok(values) => values,
                Err(_) if at_an_end && cut => {
                    torn.push(line.to_string());
                    continue;
                }
                Err(fault) => return Err(fault),
            };
            let writer = per_writer.map_or(0, |at| values[at].to_bits());
            let label = named.first().map_or("", |at| record[*at].trim()).to_owned();
            if let Some((last, last_line)) =
                before.insert((writer, label.clone()), (values[0], line))
                && values[0] < last
            {
                return Err(self.fault(
                    record,
                    places[0],
                    format!("time goes backwards: {} after {last} in line {last_line}", values[0]),
                    "lines must be in the order of `t` (seconds from the first write), of each writer",
                ));
            }
            kept.rows.push(values);
            kept.lines.push(line);
            labels.push(label);
        }
        if !torn.is_empty() {
            kept.notes.push(format!(
                "{}: {} cut-off {} left out (line {})",
                self.path.display(),
                torn.len(),
                if torn.len() == 1 { "line" } else { "lines" },
                torn.join(", ")
            ));
        }
        Ok((kept, labels))
    }

    /// The places of the wanted columns.
    fn places(&self, header: &csv::StringRecord, wanted: &[Wanted]) -> Result<Vec<usize>, Fault> {
        let names: Vec<&str> = header.iter().map(str::trim).collect();
        let place = |wanted: &Wanted| {
            let at = |name: &str| names.iter().position(|known| *known == name);
            at(wanted.name).or_else(|| at(wanted.or)).ok_or_else(|| {
                let near = choices(wanted.name, names.iter().copied());
                let near = near.split(" Allowed").next().unwrap_or("");
                let hint = if near.starts_with("did") {
                    format!(
                        " ({})",
                        near.replace("did you mean", "is it").replace('?', "")
                    )
                } else {
                    String::new()
                };
                let text = self.line(1);
                Fault::of(
                    self.path,
                    format!("has no column `{}`{hint}", wanted.name),
                    self.header_help(),
                )
                .at(Place::whole(1, text))
            })
        };
        wanted.iter().map(place).collect()
    }

    fn values(
        &self,
        record: &csv::StringRecord,
        width: usize,
        places: &[usize],
    ) -> Result<Vec<f64>, Fault> {
        if record.len() != width {
            let text = self.line(line_of(record));
            return Err(Fault::of(
                self.path,
                format!("has {} fields where the header has {width}", record.len()),
                format!("write {width} fields, as in the header; only the first and the last line may be cut off"),
            )
            .at(Place::whole(line_of(record), text)));
        }
        let value = |(wanted, place): (&Wanted, &usize)| {
            let field = record[*place].trim();
            let number = field.parse::<f64>().ok().filter(|value| value.is_finite());
            number.ok_or_else(|| {
                self.fault(
                    record,
                    *place,
                    format!("`{}` is not a number: `{field}`", wanted.name),
                    &format!("`{}` takes a number of {}", wanted.name, wanted.unit),
                )
            })
        };
        self.wanted.iter().zip(places).map(value).collect()
    }

    fn fault(&self, record: &csv::StringRecord, field: usize, title: String, help: &str) -> Fault {
        let line = line_of(record);
        let text = self.line(line);
        let start: usize = text.split(',').take(field).map(|part| part.len() + 1).sum();
        let end = start
            + text[start.min(text.len())..]
                .split(',')
                .next()
                .map_or(0, str::len);
        Fault::of(self.path, title, help).at(Place::new(line, text, start..end))
    }

    fn line(&self, number: usize) -> &str {
        self.text.lines().nth(number - 1).unwrap_or("")
    }

    fn header_help(&self) -> String {
        let names: Vec<&str> = self.wanted.iter().map(|wanted| wanted.name).collect();
        format!(
            "the first line must name the columns, among them {}",
            names.join(", ")
        )
    }
}

fn line_of(record: &csv::StringRecord) -> usize {
    let line = record.position().map_or(1, csv::Position::line);
    usize::try_from(line).unwrap_or(usize::MAX)
}
