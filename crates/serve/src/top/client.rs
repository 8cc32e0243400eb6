//! The few lines of HTTP that reading a server's snapshots takes.
//!
//! Invariant: what a server sends is not believed: every line, chunk and document has a bound, every wait a time.

use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::snapshot::Snapshot;

/// Longest line of a head, and of a chunk's size.
const LINE_MAX: u64 = 8 << 10;
/// Lines of a head at most.
const HEAD_MAX: usize = 100;
/// Longest snapshot, in bytes: some thousand volumes.
const SNAPSHOT_MAX: usize = 16 << 20;
/// For a connection.
const CONNECT: Duration = Duration::from_secs(3);
/// For the next byte: events come every second.
const SILENCE: Duration = Duration::from_secs(5);

/// Why a server's snapshot cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The name stands for no address.
    #[error("the host has no address (write HOST:PORT)")]
    Address,
    /// The connection failed or was silent.
    #[error("{0}")]
    Connection(std::io::Error),
    /// The server refused.
    #[error("it answered \"{0}\"")]
    Refused(String),
    /// It ended in the middle.
    #[error("the connection ended")]
    Ended,
    /// What answers is no tidegate.
    #[error("what it answered is no snapshot of a tidegate server ({0})")]
    Foreign(&'static str),
}

impl From<std::io::Error> for ClientError {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => Self::Ended,
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
                let silent = format!("silent for {} s", SILENCE.as_secs());
                Self::Connection(std::io::Error::other(silent))
            }
            _ => Self::Connection(error),
        }
    }
}

/// What of an address is asked: without `http://` and path; with the usual port where there is none.
pub(super) fn host_and_port(address: &str) -> String {
    let rest = address.trim();
    let rest = rest.strip_prefix("http://").unwrap_or(rest);
    let rest = rest.split('/').next().unwrap_or_default();
    let has_port = match rest.strip_prefix('[') {
        Some(inside) => inside.contains("]:"),
        None => rest.contains(':'),
    };
    let port = super::DEFAULT_ADDRESS
        .rsplit(':')
        .next()
        .unwrap_or_default();
    if has_port {
        rest.to_owned()
    } else {
        format!("{rest}:{port}")
    }
}

/// Whether it stands for an address.
pub(super) fn is_address(host_and_port: &str) -> bool {
    let resolved = host_and_port.to_socket_addrs();
    resolved.is_ok_and(|mut addresses| addresses.next().is_some())
}

/// The server as it is now.
pub(super) fn snapshot(address: &str) -> Result<Snapshot, ClientError> {
    let mut answer = Answer::of(address, "/snapshot.json")?;
    let mut text = Vec::new();
    while let Some(piece) = answer.piece()? {
        text.extend_from_slice(&piece);
        if text.len() > SNAPSHOT_MAX {
            return Err(ClientError::Foreign("too long"));
        }
    }
    parsed(&text)
}

fn parsed(text: &[u8]) -> Result<Snapshot, ClientError> {
    let snapshot: Snapshot =
        serde_json::from_slice(text).map_err(|_| ClientError::Foreign("not its JSON"))?;
    if snapshot.format == 0 {
        return Err(ClientError::Foreign("no format"));
    }
    Ok(snapshot)
}

/// Snapshots as they come.
pub(super) struct Events {
    answer: Answer,
    text: Vec<u8>,
}

impl Events {
    pub(super) fn open(address: &str) -> Result<Self, ClientError> {
        Ok(Self {
            answer: Answer::of(address, "/events")?,
            text: Vec::new(),
        })
    }

    /// Waits for the next one.
    pub(super) fn next(&mut self) -> Result<Snapshot, ClientError> {
        loop {
            if let Some(end) = self.text.windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = self.text.drain(..end + 2).collect();
                let data = event.strip_prefix(b"data: ");
                return parsed(data.ok_or(ClientError::Foreign("not its events"))?);
            }
            if self.text.len() > SNAPSHOT_MAX {
                return Err(ClientError::Foreign("too long"));
            }
            let piece = self.answer.piece()?.ok_or(ClientError::Ended)?;
            self.text.extend_from_slice(&piece);
        }
    }
}

/// How the end of an answer is told.
#[derive(Clone, Copy)]
enum Rest {
    /// In chunks; the last one is empty.
    Chunks,
    /// So many bytes are left.
    Bytes(u64),
    /// Until the connection ends.
    Connection,
}

/// An answer whose head was read.
struct Answer {
    reader: BufReader<TcpStream>,
    rest: Rest,
}

impl Answer {
    fn of(address: &str, path: &str) -> Result<Self, ClientError> {
        let resolved = address
            .to_socket_addrs()
            .map_err(|_| ClientError::Address)?;
        let mut failed = ClientError::Address;
        for address in resolved {
            match TcpStream::connect_timeout(&address, CONNECT) {
                Ok(stream) => return Self::asked(stream, address, path),
                Err(error) => failed = error.into(),
            }
        }
        Err(failed)
    }

    fn asked(
        mut stream: TcpStream,
        address: std::net::SocketAddr,
        path: &str,
    ) -> Result<Self, ClientError> {
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        // By number: a server on a loopback address answers to no other names.
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut answer = Self {
            reader: BufReader::new(stream),
            rest: Rest::Connection,
        };
        let status = answer.line()?;
        let status = status
            .strip_prefix("HTTP/1.1 ")
            .or_else(|| status.strip_prefix("HTTP/1.0 "));
        let status = status.ok_or(ClientError::Foreign("not HTTP"))?.to_owned();
        for _ in 0..HEAD_MAX {
            let line = answer.line()?;
            if line.is_empty() {
                if status.starts_with("200") {
                    return Ok(answer);
                }
                let plain = status.chars().filter(|c| !c.is_control());
                return Err(ClientError::Refused(plain.take(80).collect()));
            }
            let (name, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.trim();
            if name.eq_ignore_ascii_case("transfer-encoding")
                && value.eq_ignore_ascii_case("chunked")
            {
                answer.rest = Rest::Chunks;
            } else if name.eq_ignore_ascii_case("content-length")
                && let Rest::Connection = answer.rest
            {
                let bytes = value.parse().map_err(|_| ClientError::Foreign("length"))?;
                answer.rest = Rest::Bytes(bytes);
            }
        }
        Err(ClientError::Foreign("too long a head"))
    }

    fn line(&mut self) -> Result<String, ClientError> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.reader).take(LINE_MAX);
        bounded.read_until(b'\n', &mut line)?;
        if line.pop() != Some(b'\n') {
            return Err(ClientError::Ended);
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        String::from_utf8(line).map_err(|_| ClientError::Foreign("not text"))
    }

    /// The next part of its body; `None`: that was all.
    fn piece(&mut self) -> Result<Option<Vec<u8>>, ClientError> {
        let len = match self.rest {
            Rest::Chunks => {
                let line = self.line()?;
                let size = line.split(';').next().unwrap_or_default().trim();
                let size = usize::from_str_radix(size, 16);
                size.map_err(|_| ClientError::Foreign("chunk"))?
            }
            Rest::Bytes(left) => {
                let len = left.min(64 << 10);
                self.rest = Rest::Bytes(left - len);
                usize::try_from(len).unwrap_or(0)
            }
            Rest::Connection => {
                let mut piece = vec![0; 64 << 10];
                let read = self.reader.read(&mut piece)?;
                piece.truncate(read);
                return Ok((read > 0).then_some(piece));
            }
        };
        if len > SNAPSHOT_MAX {
            return Err(ClientError::Foreign("too long"));
        }
        let mut piece = vec![0; len];
        self.reader.read_exact(&mut piece)?;
        if let Rest::Chunks = self.rest
            && !self.line()?.is_empty()
        {
            return Err(ClientError::Foreign("chunk"));
        }
        Ok((len > 0).then_some(piece))
    }
}
