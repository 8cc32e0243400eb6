//! Traces: files of others' and our own recordings, as accesses to pages.
//!
//! | format | an access | read from |
//! |---|---|---|
//! | `u64` | a page number, 8 bytes, little-endian | `.u64` |
//! | `numbers` | a line: a number, perhaps `r` or `w` behind it | `.txt` and what is none of the others |
//! | `oracle-general` | an object of libCacheSim, 24 bytes | `.oracleGeneral`, `.bin` |
//! | `msr` | pages of a request, by host and disk | `.csv` |
//! | `blkparse` | pages of a request that was queued | `.blkparse`, lines that look so |
//! | `perf` | pages of a `filemap` or `block` event | `.perf`, lines that look so |
//!
//! Any of them may be packed by xz (`.xz`). A name that says nothing, and a format that is given,
//! leave it to the contents. Each format is a file here: to add one, write another and name it in
//! `Format`.
//!
//! Invariants
//!   1. Pages are numbered from 0 without gaps, in the order of their addresses.
//!   2. A file that is not what it is taken for is refused by its line, or its byte.

mod blkparse;
mod msr;
mod numbers;
mod oracle_general;
mod perf;
mod u64s;

use std::io::Read as _;
use std::path::Path;

/// Bytes of a page, for formats that count in bytes or sectors.
const PAGE_SHIFT: u32 = 12;
/// Bytes of a sector.
const SECTOR_SHIFT: u32 = 9;
/// Bits of a page's address that are its place on its device or in its file; above them is which.
const PLACE_BITS: u32 = 40;
/// Most accesses, and pages: both are kept in 32 bits, with one for writes.
const MOST: usize = 1 << 31;

/// A format of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Page numbers of 8 bytes.
    U64,
    /// A number a line.
    Numbers,
    /// libCacheSim's records.
    OracleGeneral,
    /// Requests of the servers of Microsoft Research Cambridge.
    Msr,
    /// Text of `blkparse`.
    Blkparse,
    /// Text of `perf script`.
    Perf,
}

impl Format {
    /// All, by name.
    pub const ALL: [(&'static str, Self); 6] = [
        ("u64", Self::U64),
        ("numbers", Self::Numbers),
        ("oracle-general", Self::OracleGeneral),
        ("msr", Self::Msr),
        ("blkparse", Self::Blkparse),
        ("perf", Self::Perf),
    ];

    /// The format of that name.
    ///
    /// # Errors
    /// There is none, with those there are.
    pub fn named(name: &str) -> Result<Self, String> {
        let known = Self::ALL.iter().find(|(known, _)| *known == name);
        known.map(|(_, format)| *format).ok_or_else(|| {
            let names = Self::ALL.map(|(name, _)| name).join(", ");
            format!("there is no format `{name}`; formats are {names}")
        })
    }

    /// That of a file of this name with these contents.
    fn of(name: &str, bytes: &[u8]) -> Self {
        match name.rsplit_once('.').map_or("", |(_, end)| end) {
            "u64" => return Self::U64,
            "oracleGeneral" | "bin" => return Self::OracleGeneral,
            "csv" => return Self::Msr,
            "blkparse" => return Self::Blkparse,
            "perf" => return Self::Perf,
            _ => {}
        }
        let head = &bytes[..bytes.len().min(1 << 16)];
        let head = String::from_utf8_lossy(head);
        let some = |is: fn(&str) -> bool| head.lines().take(200).any(is);
        if some(|line| line.contains("filemap:") || line.contains("block:block_")) {
            Self::Perf
        } else if some(blkparse::is_line) {
            Self::Blkparse
        } else if some(|line| line.split(',').count() >= 6) {
            Self::Msr
        } else {
            Self::Numbers
        }
    }
}

/// Why a trace cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read or unpacked.
    #[error("cannot read the trace {file}: {error}")]
    Read {
        /// The file.
        file: String,
        /// Why.
        error: std::io::Error,
    },
    /// A line, or a byte of a binary file, is not of the format.
    #[error(
        "{file}:{at}: {wrong}; the file is taken for {format}: another format is named with --format"
    )]
    Wrong {
        /// The file.
        file: String,
        /// Line, or `byte N`.
        at: String,
        /// The fault.
        wrong: String,
        /// The format's name.
        format: &'static str,
    },
    /// Nothing in it is an access.
    #[error("{file}: no access in it, taken for {format}; another format is named with --format")]
    Empty {
        /// The file.
        file: String,
        /// The format's name.
        format: &'static str,
    },
    /// More than is kept.
    #[error("{file}: more than 2^31 accesses; cut it, for example with `head`")]
    Long {
        /// The file.
        file: String,
    },
}

/// The fault of a file, and its place.
enum Fault {
    At(String, String),
    Long,
}

impl Fault {
    fn line(line: usize, wrong: impl Into<String>) -> Self {
        Self::At(line.to_string(), wrong.into())
    }
}

/// Accesses as they are read: addresses of pages, wherever they lie.
#[derive(Default)]
struct Sink {
    addresses: Vec<u64>,
    writes: Vec<bool>,
    /// The devices or files, by name.
    places: Vec<String>,
}

impl Sink {
    fn access(&mut self, address: u64, write: bool) -> Result<(), Fault> {
        if self.addresses.len() >= MOST {
            return Err(Fault::Long);
        }
        self.addresses.push(address);
        self.writes.push(write);
        Ok(())
    }

    /// The pages of `len` bytes at `offset` of a place.
    fn bytes(&mut self, place: u64, offset: u64, len: u64, write: bool) -> Result<(), Fault> {
        let last = offset.saturating_add(len.max(1) - 1) >> PAGE_SHIFT;
        for page in offset >> PAGE_SHIFT..=last {
            self.access(place << PLACE_BITS | page & ((1 << PLACE_BITS) - 1), write)?;
        }
        Ok(())
    }

    /// The number of a place of that name.
    fn place(&mut self, name: &str) -> u64 {
        let known = self.places.iter().rposition(|place| place == name);
        let at = known.unwrap_or_else(|| {
            self.places.push(name.to_owned());
            self.places.len() - 1
        });
        at as u64
    }
}

/// A trace in memory.
#[derive(Clone, Debug)]
pub struct Trace {
    /// By access: its page's number, and in the lowest bit whether it was written.
    accesses: Vec<u32>,
    /// By page: its address.
    addresses: Vec<u64>,
}

impl Trace {
    /// Reads a file. `format`: instead of what its name or its contents say.
    ///
    /// # Errors
    /// It cannot be read, or is not of the format.
    pub fn read(path: &Path, format: Option<Format>) -> Result<Self, TraceError> {
        let file = path.display().to_string();
        let at_file = |error| TraceError::Read {
            file: file.clone(),
            error,
        };
        let mut bytes = std::fs::read(path).map_err(at_file)?;
        let mut name = file.as_str();
        if let Some(inner) = file.strip_suffix(".xz") {
            name = inner;
            let mut unpacked = Vec::new();
            xz4rust::XzReader::new(std::io::Cursor::new(bytes))
                .read_to_end(&mut unpacked)
                .map_err(at_file)?;
            bytes = unpacked;
        }
        let format = format.unwrap_or_else(|| Format::of(name, &bytes));
        Self::of(&file, &bytes, format)
    }

    fn of(file: &str, bytes: &[u8], format: Format) -> Result<Self, TraceError> {
        let mut sink = Sink::default();
        let text = || String::from_utf8_lossy(bytes);
        let read = match format {
            Format::U64 => u64s::read(bytes, &mut sink),
            Format::OracleGeneral => oracle_general::read(bytes, &mut sink),
            Format::Numbers => numbers::read(&text(), &mut sink),
            Format::Msr => msr::read(&text(), &mut sink),
            Format::Blkparse => blkparse::read(&text(), &mut sink),
            Format::Perf => perf::read(&text(), &mut sink),
        };
        let file = || file.to_owned();
        let named = Format::ALL.iter().find(|(_, other)| *other == format);
        let format = named.map_or("", |(name, _)| *name);
        match read {
            Ok(()) if sink.addresses.is_empty() => Err(TraceError::Empty {
                file: file(),
                format,
            }),
            Ok(()) => Ok(Self::numbered(&sink.addresses, &sink.writes)),
            Err(Fault::Long) => Err(TraceError::Long { file: file() }),
            Err(Fault::At(at, wrong)) => Err(TraceError::Wrong {
                file: file(),
                at,
                wrong,
                format,
            }),
        }
    }

    /// Gives pages their numbers.
    fn numbered(accessed: &[u64], writes: &[bool]) -> Self {
        let mut addresses = accessed.to_vec();
        addresses.sort_unstable();
        addresses.dedup();
        let number = |(address, write): (&u64, &bool)| {
            let page = addresses.partition_point(|other| other < address);
            u32::try_from(page << 1).expect("fewer than 2^31 pages") | u32::from(*write)
        };
        Self {
            accesses: accessed.iter().zip(writes).map(number).collect(),
            addresses,
        }
    }

    /// A trace of reads.
    #[must_use]
    pub fn of_reads(pages: &[u64]) -> Self {
        Self::numbered(pages, &vec![false; pages.len()])
    }

    /// Number of accesses.
    #[must_use]
    pub fn len(&self) -> usize {
        self.accesses.len()
    }

    /// Never: a trace has an access.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.accesses.is_empty()
    }

    /// Number of pages accessed.
    #[must_use]
    pub fn distinct(&self) -> u32 {
        u32::try_from(self.addresses.len()).expect("fewer than 2^31 pages")
    }

    /// Accesses: page, and whether it is written.
    pub fn accesses(
        &self,
    ) -> impl DoubleEndedIterator<Item = (u32, bool)> + ExactSizeIterator + '_ {
        self.accesses.iter().map(|word| (word >> 1, word & 1 != 0))
    }

    /// By page, in order: its address.
    #[must_use]
    pub fn addresses(&self) -> &[u64] {
        &self.addresses
    }
}

#[cfg(test)]
mod tests;
