//! A client of these tests: one request at a time, and written from the protocol's text apart from
//! `doors/nbd`, so that the two do not share a mistake.
//!
//! Source: the NBD protocol specification (proto.md of the NetworkBlockDevice project): fixed
//! newstyle, simple replies.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

const OPTION_GO: u32 = 7;
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;
const FUA: u16 = 1;
const NO_HOLE: u16 = 2;

/// A connection to one export.
pub(crate) struct Client {
    stream: UnixStream,
    cookie: u64,
    /// Size of the export.
    pub(crate) size: u64,
}

impl Client {
    /// Connects; the server must have that export.
    pub(crate) fn connect(socket: &Path, export: &str) -> Self {
        Self::try_connect(socket, export).unwrap_or_else(|error| panic!("{export}: {error}"))
    }

    fn try_connect(socket: &Path, export: &str) -> io::Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        let mut hello = [0; 18];
        stream.read_exact(&mut hello)?;
        let (magic, flags) = hello.split_at(16);
        same(magic, b"NBDMAGICIHAVEOPT")?;
        // Fixed newstyle, no zeroes: offered, so taken.
        same(&flags[1..], &[3])?;
        let mut go = 3_u32.to_be_bytes().to_vec();
        go.extend(b"IHAVEOPT");
        go.extend(OPTION_GO.to_be_bytes());
        let name = u32::try_from(export.len()).unwrap_or(0);
        go.extend((name + 6).to_be_bytes());
        go.extend(name.to_be_bytes());
        go.extend(export.as_bytes());
        go.extend([0, 0]);
        stream.write_all(&go)?;
        let mut client = Self {
            stream,
            cookie: 0,
            size: 0,
        };
        loop {
            let mut head = [0; 20];
            client.stream.read_exact(&mut head)?;
            same(&head[..8], &0x0003_e889_0455_65a9_u64.to_be_bytes())?;
            let kind = u32::from_be_bytes([head[12], head[13], head[14], head[15]]);
            let len = u32::from_be_bytes([head[16], head[17], head[18], head[19]]);
            let mut data = vec![0; usize::try_from(len).unwrap_or(0)];
            client.stream.read_exact(&mut data)?;
            match kind {
                REPLY_ACK => return Ok(client),
                // NBD_INFO_EXPORT.
                REPLY_INFO if data[..2] == [0, 0] => {
                    client.size = data[2..10]
                        .iter()
                        .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
                }
                REPLY_INFO => {}
                other => return Err(io::Error::other(format!("reply {other:#x} to a GO"))),
            }
        }
    }

    pub(crate) fn read(&mut self, offset: u64, data: &mut [u8]) -> io::Result<()> {
        self.ask(READ, 0, offset, data.len(), &[])?;
        self.answered()?;
        self.stream.read_exact(data)
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8], is_fua: bool) -> io::Result<()> {
        let flags = if is_fua { FUA } else { 0 };
        self.ask(WRITE, flags, offset, data.len(), data)?;
        self.answered()
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.ask(FLUSH, 0, 0, 0, &[])?;
        self.answered()
    }

    /// Zeroes that give their space back, or keep it.
    pub(crate) fn zero(
        &mut self,
        offset: u64,
        len: usize,
        is_fua: bool,
        keeps: bool,
    ) -> io::Result<()> {
        let flags = if is_fua { FUA } else { 0 } | if keeps { NO_HOLE } else { 0 };
        self.ask(WRITE_ZEROES, flags, offset, len, &[])?;
        self.answered()
    }

    /// Data that are there are not needed any more.
    pub(crate) fn trim(&mut self, offset: u64, len: usize) -> io::Result<()> {
        self.ask(TRIM, 0, offset, len, &[])?;
        self.answered()
    }

    fn ask(
        &mut self,
        kind: u16,
        flags: u16,
        offset: u64,
        len: usize,
        payload: &[u8],
    ) -> io::Result<()> {
        self.cookie += 1;
        let mut head = [0; 28];
        head[..4].copy_from_slice(&0x2560_9513_u32.to_be_bytes());
        head[4..6].copy_from_slice(&flags.to_be_bytes());
        head[6..8].copy_from_slice(&kind.to_be_bytes());
        head[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        head[16..24].copy_from_slice(&offset.to_be_bytes());
        let len = u32::try_from(len).map_err(io::Error::other)?;
        head[24..].copy_from_slice(&len.to_be_bytes());
        self.stream.write_all(&head)?;
        self.stream.write_all(payload)
    }

    fn answered(&mut self) -> io::Result<()> {
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        same(&reply[..4], &0x6744_6698_u32.to_be_bytes())?;
        same(&reply[8..], &self.cookie.to_be_bytes())?;
        match u32::from_be_bytes([reply[4], reply[5], reply[6], reply[7]]) {
            0 => Ok(()),
            error => Err(io::Error::other(format!(
                "the server answered error {error}"
            ))),
        }
    }
}

fn same(seen: &[u8], wanted: &[u8]) -> io::Result<()> {
    if seen == wanted {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "not NBD: {seen:x?} for {wanted:x?}"
    )))
}
