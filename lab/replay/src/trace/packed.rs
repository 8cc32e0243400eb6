//! Packed files, known by their first bytes.

use std::io::{Cursor, Read};

use super::{Fault, TraceError, has_memory};

/// A program that packs files.
pub(super) struct Packed {
    /// Its name, its files' ending, their first bytes.
    name: &'static str,
    ending: &'static str,
    magic: &'static [u8],
    how: How,
}

enum How {
    Gzip,
    Xz,
    /// Not read here: the command that unpacks such a file.
    By(&'static str),
}

/// All that are known. First bytes as in `file(1)`.
const ALL: [Packed; 7] = [
    Packed {
        name: "gzip",
        ending: ".gz",
        magic: &[0x1f, 0x8b, 8],
        how: How::Gzip,
    },
    Packed {
        name: "xz",
        ending: ".xz",
        magic: &[0xfd, b'7', b'z', b'X', b'Z', 0],
        how: How::Xz,
    },
    Packed {
        name: "zstd",
        ending: ".zst",
        magic: &[0x28, 0xb5, 0x2f, 0xfd],
        how: How::By("zstd -d FILE"),
    },
    Packed {
        name: "bzip2",
        ending: ".bz2",
        magic: b"BZh",
        how: How::By("bzip2 -d FILE"),
    },
    Packed {
        name: "lz4",
        ending: ".lz4",
        magic: &[0x04, 0x22, 0x4d, 0x18],
        how: How::By("lz4 -d FILE"),
    },
    Packed {
        name: "zip",
        ending: ".zip",
        magic: b"PK\x03\x04",
        how: How::By("unzip FILE"),
    },
    Packed {
        name: "7-Zip",
        ending: ".7z",
        magic: &[b'7', b'z', 0xbc, 0xaf, 0x27, 0x1c],
        how: How::By("7z x FILE"),
    },
];

/// Bytes that are unpacked between two looks at the memory that is left.
const PIECE: u64 = 64 << 20;

impl Packed {
    /// The program by which these bytes are packed. `is_binary`: without an ending that says so
    /// they are numbers, which may begin so.
    pub(super) fn of(name: &str, bytes: &[u8], is_binary: bool) -> Option<&'static Self> {
        let known = ALL.iter().find(|packed| bytes.starts_with(packed.magic));
        known.filter(|packed| !is_binary || name.ends_with(packed.ending))
    }

    /// The name of the file within one of that name.
    pub(super) fn name_within<'a>(&self, name: &'a str) -> &'a str {
        name.strip_suffix(self.ending).unwrap_or(name)
    }

    pub(super) fn unpacked(&self, file: &str, bytes: Vec<u8>) -> Result<Vec<u8>, TraceError> {
        match self.how {
            How::Gzip => all_of(file, flate2::read::MultiGzDecoder::new(&bytes[..])),
            How::Xz => all_of(file, xz4rust::XzReader::new(Cursor::new(bytes))),
            How::By(command) => Err(TraceError::Packed {
                file: file.to_owned(),
                by: self.name,
                command,
            }),
        }
    }
}

/// All that is unpacked, as long as there is memory for it.
fn all_of(file: &str, mut reader: impl Read) -> Result<Vec<u8>, TraceError> {
    let mut unpacked = Vec::new();
    loop {
        let read = reader.by_ref().take(PIECE).read_to_end(&mut unpacked);
        let read = read.map_err(|error| TraceError::Read {
            file: file.to_owned(),
            error,
        })?;
        if (read as u64) < PIECE {
            return Ok(unpacked);
        }
        // The vector doubles.
        if let Err(Fault::Memory(needs)) = has_memory(unpacked.len() as u64) {
            return Err(TraceError::Memory {
                file: file.to_owned(),
                accesses: 0,
                needs,
            });
        }
    }
}
