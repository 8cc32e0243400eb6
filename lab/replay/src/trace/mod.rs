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
//! Any of them may be packed by gzip, xz or zstd, which its first bytes say, and come from a pipe.
//! A name that says nothing, and a format that is given, leave it to the contents. A format is a
//! function of a line or a record: to add one, write another and name it in `Format`.
//!
//! Invariants
//!   1. Pages are numbered from 0 without gaps, in the order of their addresses.
//!   2. A file that is not what it is taken for is refused by its line, or its byte.
//!   3. No two pages have one address: a place beyond the last address is refused.

mod blkparse;
mod msr;
mod numbers;
mod oracle_general;
mod packed;
mod perf;
mod sample;
mod source;

use std::io::{Cursor, Read};
use std::path::Path;

use packed::Packed;
use sample::Sink;
pub(crate) use sample::mixed;
use source::Source;

/// Bytes of a page, for formats that count in bytes or sectors.
const PAGE_SHIFT: u32 = 12;
/// Bytes of a sector.
const SECTOR_SHIFT: u32 = 9;
/// Bits of a page's address that are its place on its device or in its file; above them is which.
const PLACE_BITS: u32 = 40;
/// Most devices or files, by the bits that are left for their numbers.
const PLACES_MOST: u64 = 1 << (u64::BITS - PLACE_BITS);
/// Most bytes of a request. Linux counts those of a bio in 32 bits, of a read or a write in 31.
///
/// # Source
/// Linux 6.12 include/linux/bvec.h, struct bvec_iter; include/linux/fs.h, MAX_RW_COUNT.
const REQUEST_MOST: u64 = 1 << 32;
/// Bytes of a file's beginning by which its format is known.
const HEAD: usize = 1 << 16;

/// The first `most` bytes of a reader, or as many as it has, and a reader of all.
fn peeked(
    mut reader: impl Read + 'static,
    most: usize,
) -> std::io::Result<(Vec<u8>, Box<dyn Read>)> {
    let mut head = Vec::new();
    reader.by_ref().take(most as u64).read_to_end(&mut head)?;
    let all = Cursor::new(head.clone()).chain(reader);
    Ok((head, Box::new(all)))
}

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

    /// That of a file of this name, if the name says it.
    fn of_name(name: &str) -> Option<Self> {
        Some(match name.rsplit_once('.')?.1 {
            "u64" => Self::U64,
            "oracleGeneral" | "bin" => Self::OracleGeneral,
            "csv" => Self::Msr,
            "blkparse" => Self::Blkparse,
            "perf" => Self::Perf,
            _ => return None,
        })
    }

    /// That of a file of this name that begins with these bytes.
    fn of(name: &str, bytes: &[u8]) -> Self {
        if let Some(format) = Self::of_name(name) {
            return format;
        }
        let head = String::from_utf8_lossy(bytes);
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
    /// No page of it was kept.
    #[error(
        "{file}: no page of it is in the sample; a higher rate is given with --sample, more memory with --trace-memory"
    )]
    Thin {
        /// The file.
        file: String,
    },
    /// Packed by a program whose files are not read here.
    #[error("{file}: packed by {by}, which is not read here; unpack it: {command}")]
    Packed {
        /// The file.
        file: String,
        /// The program.
        by: &'static str,
        /// The command that unpacks it.
        command: &'static str,
    },
}

/// The fault of a file.
enum Fault {
    /// Its place, and what is wrong.
    At(String, String),
    Read(std::io::Error),
}

impl Fault {
    fn line(line: usize, wrong: impl Into<String>) -> Self {
        Self::At(line.to_string(), wrong.into())
    }
}

/// The beginning of a line, for a message.
fn quoted(line: &str) -> String {
    const MOST: usize = 80;
    let line = line.trim();
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("`{}...`", &line[..end]),
        None => format!("`{line}`"),
    }
}

/// Bytes of sectors; of more than there can be, the most.
fn bytes_of(sectors: u64) -> u64 {
    sectors.saturating_mul(1 << SECTOR_SHIFT)
}

/// The way in which a trace is read.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The format, if the file's name and contents are not to be asked.
    pub format: Option<Format>,
    /// The part of its pages that is kept at most, above 0 and up to 1.
    pub rate: f64,
    /// The draw of the sample: with another number it is of other pages.
    pub draw: u64,
    /// Bytes of memory for what is kept, and for a replay of it: where they do not suffice the rate
    /// is halved.
    pub memory: u64,
}

impl Default for Reading {
    /// All of it.
    fn default() -> Self {
        Self {
            format: None,
            rate: 1.0,
            draw: 0,
            memory: u64::MAX,
        }
    }
}

/// A trace in memory, or a sample of its pages with all of their accesses.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// By access: its page's number, and in the lowest bit whether it was written.
    accesses: Vec<u32>,
    /// By page: its address.
    addresses: Vec<u64>,
    /// Accesses of all pages, and those that write.
    all: u64,
    writes: u64,
    /// The part of the pages that is here, and the draw by which they are.
    rate: f64,
    draw: u64,
}

impl Trace {
    /// Reads a file, `-` for standard input. `goes_on` is asked now and then with the bytes read so
    /// far; no ends it.
    ///
    /// # Errors
    /// It cannot be read, was ended, or is not of the format; no page is in the sample.
    pub fn read(
        path: &Path,
        reading: &Reading,
        goes_on: impl FnMut(u64) -> bool + 'static,
    ) -> Result<Self, TraceError> {
        let file = path.display().to_string();
        let at_file = |error| TraceError::Read {
            file: file.clone(),
            error,
        };
        let source = Source::open(path, goes_on).map_err(at_file)?;
        let (head, bytes) = peeked(source, packed::MAGIC_MOST).map_err(at_file)?;
        let by_name = Format::of_name(&file);
        let is_binary = matches!(by_name, Some(Format::U64 | Format::OracleGeneral));
        let (name, bytes) = match Packed::of(&file, &head, is_binary) {
            Some(packed) => (packed.name_within(&file), packed.unpacked(&file, bytes)?),
            None => (file.as_str(), bytes),
        };
        let (head, bytes) = peeked(bytes, HEAD).map_err(at_file)?;
        let format = reading.format.unwrap_or_else(|| Format::of(name, &head));
        Self::of(&file, bytes, format, reading)
    }

    fn of(
        file: &str,
        bytes: impl Read,
        format: Format,
        reading: &Reading,
    ) -> Result<Self, TraceError> {
        let mut sink = Sink::new(reading);
        let read = match format {
            Format::U64 => source::records(bytes, &mut sink, "a number", |word| {
                u64::from_le_bytes(*word)
            }),
            Format::OracleGeneral => {
                source::records(bytes, &mut sink, "a record", oracle_general::object)
            }
            Format::Numbers => source::lines(bytes, &mut sink, numbers::read),
            Format::Msr => source::lines(bytes, &mut sink, msr::read),
            Format::Blkparse => source::lines(bytes, &mut sink, blkparse::read),
            Format::Perf => source::lines(bytes, &mut sink, perf::read),
        };
        let file = || file.to_owned();
        let named = Format::ALL.iter().find(|(_, other)| *other == format);
        let format = named.map_or("", |(name, _)| *name);
        match read {
            Ok(()) if sink.is_empty() => Err(TraceError::Empty {
                file: file(),
                format,
            }),
            Ok(()) => Some(sink.trace())
                .filter(|trace| !trace.is_empty())
                .ok_or_else(|| TraceError::Thin { file: file() }),
            Err(Fault::Read(error)) => Err(TraceError::Read {
                file: file(),
                error,
            }),
            Err(Fault::At(at, wrong)) => Err(TraceError::Wrong {
                file: file(),
                at,
                wrong,
                format,
            }),
        }
    }

    /// A trace of reads.
    #[must_use]
    pub fn of_reads(pages: &[u64]) -> Self {
        let mut sink = Sink::new(&Reading::default());
        for page in pages {
            sink.access(*page, false);
        }
        sink.trace()
    }

    /// The part of the trace's pages that is here; 1: all.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Accesses of all pages of the trace, and those of them that write.
    #[must_use]
    pub fn all(&self) -> (u64, u64) {
        (self.all, self.writes)
    }

    /// Pages of the trace: an estimate where they are not all here.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.whole(u64::from(self.distinct()))
    }

    /// The number among all pages that stands for `part` of those here.
    pub(crate) fn whole(&self, part: u64) -> u64 {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "far fewer than 2^53"
        )]
        let whole = (part as f64 / self.rate).round() as u64;
        whole
    }

    /// The memory for the pages here that is to them as `pages` are to all.
    pub(crate) fn scaled(&self, pages: u32) -> u32 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "no more than `pages`"
        )]
        let scaled = (f64::from(pages) * self.rate).round() as u32;
        scaled
    }

    /// Number of accesses that are here.
    #[must_use]
    pub fn len(&self) -> usize {
        self.accesses.len()
    }

    /// Never, as it is read: a trace has an access.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.accesses.is_empty()
    }

    /// Number of pages that are here.
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
