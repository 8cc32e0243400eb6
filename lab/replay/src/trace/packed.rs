//! Packed files, known by their first bytes.

use std::io::{self, BufRead as _, BufReader, Read};
use std::num::NonZeroUsize;

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use xz4rust::{XzDecoder, XzReader};

use super::{HEAD, TraceError};

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
    Zstd,
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
        how: How::Zstd,
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

/// Most bytes of a window, of zstd and of xz: as zstd takes without a word (`--long=27`).
const WINDOW_MOST: usize = 1 << 27;
/// Bytes of the longest magic.
pub(super) const MAGIC_MOST: usize = 6;

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

    pub(super) fn unpacked(
        &self,
        file: &str,
        bytes: impl Read + 'static,
    ) -> Result<Box<dyn Read>, TraceError> {
        Ok(match self.how {
            How::Gzip => Box::new(flate2::read::MultiGzDecoder::new(bytes)),
            How::Xz => {
                let decoder = XzDecoder::in_heap_with_alloc_dict_size(0, WINDOW_MOST);
                let size = NonZeroUsize::new(HEAD).expect("it is not zero");
                Box::new(XzReader::new_with_buffer_size_and_decoder(
                    bytes, size, decoder,
                ))
            }
            How::Zstd => Box::new(Zstd::new(bytes)),
            How::By(command) => {
                return Err(TraceError::Packed {
                    file: file.to_owned(),
                    by: self.name,
                    command,
                });
            }
        })
    }
}

/// A file of zstd: frames, one after the other, each with a sum of what it holds, maybe.
struct Zstd<R> {
    bytes: BufReader<R>,
    decoder: FrameDecoder,
    is_inside: bool,
}

impl<R: Read> Zstd<R> {
    fn new(bytes: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW_MOST as u64);
        Self {
            bytes: BufReader::with_capacity(HEAD, bytes),
            decoder,
            is_inside: false,
        }
    }

    /// Into the next frame, or the end: false.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.bytes.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.bytes) {
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut skipped = self.bytes.by_ref().take(length.into());
                    io::copy(&mut skipped, &mut io::sink())?;
                }
                begun => return begun.map(|()| true).map_err(io::Error::other),
            }
        }
        Ok(false)
    }

    fn end(&mut self) -> io::Result<()> {
        self.is_inside = false;
        let (told, found) = (
            self.decoder.get_checksum_from_data(),
            self.decoder.get_calculated_checksum(),
        );
        if told.is_some() && told != found {
            return Err(io::Error::other("the sum of what it holds is another"));
        }
        Ok(())
    }
}

impl<R: Read> Read for Zstd<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.is_inside {
                if !self.begin()? {
                    return Ok(0);
                }
                self.is_inside = true;
            }
            let decoder = &mut self.decoder;
            while decoder.can_collect() == 0 && !decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                let decoded = decoder.decode_blocks(&mut self.bytes, one);
                decoded.map_err(io::Error::other)?;
            }
            let read = decoder.read(into)?;
            if read > 0 || into.is_empty() {
                return Ok(read);
            }
            self.end()?;
        }
    }
}
