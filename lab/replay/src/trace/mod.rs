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
//! Any of them may be packed by gzip or xz, which its first bytes say. A name that says nothing,
//! and a format that is given, leave it to the contents. Each format is a file here: to add one,
//! write another and name it in `Format`.
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
mod u64s;

use std::collections::BTreeMap;
use std::path::Path;

use policy::units::Bytes;

use packed::Packed;

/// Bytes of a page, for formats that count in bytes or sectors.
const PAGE_SHIFT: u32 = 12;
/// Bytes of a sector.
const SECTOR_SHIFT: u32 = 9;
/// Bits of a page's address that are its place on its device or in its file; above them is which.
const PLACE_BITS: u32 = 40;
/// Most devices or files, by the bits that are left for their numbers.
const PLACES_MOST: u64 = 1 << (u64::BITS - PLACE_BITS);
/// Most accesses, and pages: both are kept in 32 bits, with one for writes.
const MOST: usize = 1 << 31;
/// Most bytes of a request. Linux counts those of a bio in 32 bits, of a read or a write in 31.
///
/// # Source
/// Linux 6.12 include/linux/bvec.h, struct bvec_iter; include/linux/fs.h, MAX_RW_COUNT.
const REQUEST_MOST: u64 = 1 << 32;
/// Bytes for an access while a trace is read: its address, once more in order, its number, its way.
const BYTES_EACH: u64 = 8 + 8 + 4 + 1;
/// Accesses for which there is room at first; the memory for more is asked for.
const ROOM: usize = 1 << 20;

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

    /// That of a file of this name with these contents.
    fn of(name: &str, bytes: &[u8]) -> Self {
        if let Some(format) = Self::of_name(name) {
            return format;
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
    /// More than there is memory for.
    #[error(
        "{file}: {accesses} accesses and more need {} of memory, of which there is not enough; cut it, for example with `head`",
        Bytes(*needs).shown()
    )]
    Memory {
        /// The file.
        file: String,
        /// Accesses read so far.
        accesses: usize,
        /// Bytes that the next ones need.
        needs: u64,
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

/// The fault of a file, and its place.
enum Fault {
    At(String, String),
    Long,
    /// Bytes that are needed.
    Memory(u64),
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

/// Checks that there is memory for `bytes` more; else as a fault.
fn has_memory(bytes: u64) -> Result<(), Fault> {
    let (available, group) = (os::Available::now(), os::Groups::of_process().limit());
    let left = available.bytes.saturating_add(available.more);
    let left = left.min(group.map_or(u64::MAX, |group| group.bytes));
    if bytes <= left {
        Ok(())
    } else {
        Err(Fault::Memory(bytes))
    }
}

/// Accesses as they are read: addresses of pages, wherever they lie.
#[derive(Default)]
struct Sink {
    addresses: Vec<u64>,
    writes: Vec<bool>,
    /// The numbers of devices or files, by name.
    places: BTreeMap<String, u64>,
    /// The line that is read.
    line: usize,
}

impl Sink {
    fn access(&mut self, address: u64, write: bool) -> Result<(), Fault> {
        if self.addresses.len() == self.addresses.capacity() {
            self.make_room()?;
        }
        self.addresses.push(address);
        self.writes.push(write);
        Ok(())
    }

    /// Room for as many accesses again.
    #[cold]
    fn make_room(&mut self) -> Result<(), Fault> {
        let have = self.addresses.len();
        let more = have.max(ROOM).min(MOST - have);
        if more == 0 {
            return Err(Fault::Long);
        }
        let needs = (have + more) as u64 * BYTES_EACH;
        if have > 0 {
            has_memory(needs)?;
        }
        let refused = |_| Fault::Memory(needs);
        self.addresses.try_reserve_exact(more).map_err(refused)?;
        self.writes.try_reserve_exact(more).map_err(refused)
    }

    /// The pages of `len` bytes at `offset` of the place of that name.
    fn bytes(&mut self, place: &str, offset: u64, len: u64, write: bool) -> Result<(), Fault> {
        let wrong = |what: &str| Err(Fault::line(self.line, what));
        if len > REQUEST_MOST {
            let what = "no request has more than 4 GiB: are two columns exchanged?";
            return wrong(&format!("a request of {len} bytes; {what}"));
        }
        let last = offset.saturating_add(len.max(1) - 1) >> PAGE_SHIFT;
        if last >> PLACE_BITS != 0 {
            return wrong(&format!(
                "byte {offset} lies beyond 4 PiB, the most of a device or a file"
            ));
        }
        let known = self.places.get(place).copied();
        let number = known.unwrap_or(self.places.len() as u64);
        if number == PLACES_MOST {
            return wrong("more than 2^24 devices or files");
        }
        if known.is_none() {
            self.places.insert(place.to_owned(), number);
        }
        for page in offset >> PAGE_SHIFT..=last {
            self.access(number << PLACE_BITS | page, write)?;
        }
        Ok(())
    }
}

/// Bytes of sectors; of more than there can be, the most.
fn bytes_of(sectors: u64) -> u64 {
    sectors.saturating_mul(1 << SECTOR_SHIFT)
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
        let given = format.or_else(|| Format::of_name(name));
        let is_binary = matches!(given, Some(Format::U64 | Format::OracleGeneral));
        if let Some(packed) = Packed::of(name, &bytes, is_binary) {
            name = packed.name_within(name);
            bytes = packed.unpacked(&file, bytes)?;
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
        let read = read.and_then(|()| Self::numbered(&sink.addresses, &sink.writes));
        match read {
            Ok(_) if sink.addresses.is_empty() => Err(TraceError::Empty {
                file: file(),
                format,
            }),
            Ok(trace) => Ok(trace),
            Err(Fault::Memory(needs)) => Err(TraceError::Memory {
                file: file(),
                accesses: sink.addresses.len(),
                needs,
            }),
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
    fn numbered(accessed: &[u64], writes: &[bool]) -> Result<Self, Fault> {
        let (mut addresses, mut accesses) = (Vec::new(), Vec::new());
        let needs = accessed.len() as u64 * BYTES_EACH;
        let refused = |_| Fault::Memory(needs);
        addresses
            .try_reserve_exact(accessed.len())
            .map_err(refused)?;
        accesses
            .try_reserve_exact(accessed.len())
            .map_err(refused)?;
        addresses.extend_from_slice(accessed);
        addresses.sort_unstable();
        addresses.dedup();
        let number = |(address, write): (&u64, &bool)| {
            let page = addresses.partition_point(|other| other < address);
            u32::try_from(page << 1).expect("fewer than 2^31 pages") | u32::from(*write)
        };
        accesses.extend(accessed.iter().zip(writes).map(number));
        Ok(Self {
            accesses,
            addresses,
        })
    }

    /// A trace of reads.
    ///
    /// # Panics
    /// There is no memory for it.
    #[must_use]
    pub fn of_reads(pages: &[u64]) -> Self {
        let trace = Self::numbered(pages, &vec![false; pages.len()]);
        trace.ok().expect("memory for as much again")
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
