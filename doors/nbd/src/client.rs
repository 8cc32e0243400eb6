//! A blocking client over any stream, for tests, the demonstration and benchmarks.
//!
//! ```text
//!   Handshake::begin ──> options ... ──> go ──> Client ──> read, write, flush, ...      one at a time
//!        '──> start_tls ──> (TLS) ──> resume ──'  |──────> submit ... receive          many under way
//!                                                 '──────> split ──> Submitter, Receiver: one thread each
//! ```
//!
//! It is strict: a reply that the specification does not allow (a chunk outside its request, data
//! twice or not at all, a simple reply where a structured one is due, a second status) is an error
//! that names it. After an error other than `Failed` and `Refused` the stream is out of step and
//! the client of no use.
//!
//! Concurrency: submitting many long requests before receiving may block for good on a single
//! thread, when both sides wait for the other to read; keep what is under way below a socket's
//! buffer, or `split`.
//!
//! Source: the specification, "Client-side requirements", "Transmission", "Structured reply types".

mod error;
mod handshake;
mod replies;

use std::collections::VecDeque;
use std::io::{BufReader, IoSlice, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use error::{ClientError, Failure};
pub use handshake::{Handshake, Listed, OptionReply, Wishes};
pub use replies::{Completion, Extent};

use crate::wire::{BlockSizes, Command, CommandFlags, ExportFlags, Request};
use replies::Shared;

/// Bytes read ahead of what is asked for.
const READ_AHEAD: usize = 64 << 10;
/// The longest status of one call, in requests: a server that answers one extent at a time ends
/// somewhere.
const STATUS_REQUESTS_MAX: u32 = 1 << 16;

/// The server's description of the export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Bytes.
    pub size: u64,
    /// Its abilities.
    pub flags: ExportFlags,
    /// The block sizes to which requests are cut, if the server said.
    pub blocks: Option<BlockSizes>,
    /// Its own name, if the server said.
    pub name: Option<String>,
    /// Its description, if the server said.
    pub description: Option<String>,
    /// Replies come in chunks.
    pub structured: bool,
    /// The number of `base:allocation`, if it was selected.
    pub allocation: Option<u32>,
}

/// A request to submit. Its fields are sent as they are, so that wrong ones can be sent too.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The command.
    pub command: Command,
    /// Its flags.
    pub flags: CommandFlags,
    /// The first byte.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// The payload; `len` bytes for a write, else none.
    pub data: &'a [u8],
}

impl<'a> Ask<'a> {
    /// A request without payload.
    #[must_use]
    pub fn new(command: Command, offset: u64, len: u32) -> Self {
        Self {
            command,
            flags: CommandFlags::NONE,
            offset,
            len,
            data: &[],
        }
    }

    /// For data.
    #[must_use]
    pub fn read(offset: u64, len: u32) -> Self {
        Self::new(Command::Read, offset, len)
    }

    /// With data.
    ///
    /// # Panics
    /// If `data` is 4 GiB or longer.
    #[must_use]
    pub fn write(offset: u64, data: &'a [u8]) -> Self {
        let len = u32::try_from(data.len()).expect("a write is shorter than 4 GiB");
        Self {
            data,
            ..Self::new(Command::Write, offset, len)
        }
    }

    /// For a flush.
    #[must_use]
    pub fn flush() -> Self {
        Self::new(Command::Flush, 0, 0)
    }

    /// With these flags too.
    #[must_use]
    pub fn with(mut self, flags: CommandFlags) -> Self {
        self.flags = self.flags.with(flags);
        self
    }
}

/// A connection on which requests are made.
#[derive(Debug)]
pub struct Client<S> {
    stream: BufReader<S>,
    shared: Arc<Shared>,
    export: Export,
    /// Completions that came while another one was waited for.
    early: VecDeque<Completion>,
}

/// A stream of which two threads can each have a half.
pub trait TryClone: Sized {
    /// A second handle on the same stream.
    ///
    /// # Errors
    /// Those of the system.
    fn try_clone(&self) -> std::io::Result<Self>;
}

impl TryClone for UnixStream {
    fn try_clone(&self) -> std::io::Result<Self> {
        Self::try_clone(self)
    }
}

impl TryClone for TcpStream {
    fn try_clone(&self) -> std::io::Result<Self> {
        Self::try_clone(self)
    }
}

impl Client<UnixStream> {
    /// Connects to a socket in the file system and asks for an export.
    ///
    /// # Errors
    /// Those of the socket and of the handshake.
    pub fn unix(path: impl AsRef<Path>, wishes: &Wishes) -> Result<Self, ClientError> {
        Handshake::begin(UnixStream::connect(path)?)?.go(wishes)
    }
}

impl Client<TcpStream> {
    /// Connects over TCP and asks for an export.
    ///
    /// # Errors
    /// Those of the socket and of the handshake.
    pub fn tcp(address: impl ToSocketAddrs, wishes: &Wishes) -> Result<Self, ClientError> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Handshake::begin(stream)?.go(wishes)
    }
}

impl<S: Read + Write> Client<S> {
    fn new(stream: BufReader<S>, export: Export) -> Self {
        let shared = Arc::new(Shared::new(&export));
        Self {
            stream,
            shared,
            export,
            early: VecDeque::new(),
        }
    }

    /// The server's description of the export.
    #[must_use]
    pub fn export(&self) -> &Export {
        &self.export
    }

    /// The stream itself, to set timeouts or to end it in the middle.
    #[must_use]
    pub fn stream(&self) -> &S {
        self.stream.get_ref()
    }

    /// Gives the stream out, to say on it what no client says.
    #[must_use]
    pub fn into_stream(self) -> S {
        self.stream.into_inner()
    }

    /// Sends a request; answers with its cookie.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn submit(&mut self, ask: Ask<'_>) -> Result<u64, ClientError> {
        submit(self.stream.get_mut(), &self.shared, ask)
    }

    /// Waits for a request to be answered, any of those under way.
    ///
    /// # Errors
    /// `NothingSubmitted`; those of the stream; `Protocol`. A request that failed is a completion.
    pub fn receive(&mut self) -> Result<Completion, ClientError> {
        match self.early.pop_front() {
            Some(completion) => Ok(completion),
            None => replies::receive(&mut self.stream, &self.shared),
        }
    }

    /// Requests under way, with those that were answered and not received yet.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.shared.under_way() + self.early.len()
    }

    /// Takes a buffer back, so that the next read need not make one.
    pub fn give_back(&mut self, buffer: Vec<u8>) {
        self.shared.give_back(buffer);
    }

    /// One request, from beginning to end.
    ///
    /// # Errors
    /// `Failed` if the server refused it or could not do it; those of `submit` and `receive`.
    pub fn call(&mut self, ask: Ask<'_>) -> Result<Completion, ClientError> {
        let cookie = self.submit(ask)?;
        loop {
            let completion = replies::receive(&mut self.stream, &self.shared)?;
            if completion.cookie != cookie {
                self.early.push_back(completion);
                continue;
            }
            return match completion.failure {
                Some(failure) => Err(ClientError::Failed(failure)),
                None => Ok(completion),
            };
        }
    }

    /// Reads `into.len()` bytes from `offset` on.
    ///
    /// # Errors
    /// Those of `call`.
    ///
    /// # Panics
    /// If `into` is 4 GiB or longer.
    pub fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<(), ClientError> {
        let len = u32::try_from(into.len()).expect("a read is shorter than 4 GiB");
        let completion = self.call(Ask::read(offset, len))?;
        into.copy_from_slice(&completion.data);
        self.give_back(completion.data);
        Ok(())
    }

    /// Writes `data` from `offset` on.
    ///
    /// # Errors
    /// Those of `call`.
    ///
    /// # Panics
    /// If `data` is 4 GiB or longer.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), ClientError> {
        self.call(Ask::write(offset, data)).map(drop)
    }

    /// Writes `data` from `offset` on; returns when it is durable.
    ///
    /// # Errors
    /// Those of `call`.
    ///
    /// # Panics
    /// If `data` is 4 GiB or longer.
    pub fn write_durably(&mut self, offset: u64, data: &[u8]) -> Result<(), ClientError> {
        self.call(Ask::write(offset, data).with(CommandFlags::FUA))
            .map(drop)
    }

    /// Returns when everything that was answered is durable.
    ///
    /// # Errors
    /// Those of `call`.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        self.call(Ask::flush()).map(drop)
    }

    /// Tells that data is no longer needed.
    ///
    /// # Errors
    /// Those of `call`.
    pub fn trim(&mut self, offset: u64, len: u32) -> Result<(), ClientError> {
        self.call(Ask::new(Command::Trim, offset, len)).map(drop)
    }

    /// Makes a range read as zeroes; `flags` may have FUA, NO_HOLE, FAST_ZERO.
    ///
    /// # Errors
    /// Those of `call`.
    pub fn zero(&mut self, offset: u64, len: u32, flags: CommandFlags) -> Result<(), ClientError> {
        self.call(Ask::new(Command::WriteZeroes, offset, len).with(flags))
            .map(drop)
    }

    /// Tells that a range will be read.
    ///
    /// # Errors
    /// Those of `call`.
    pub fn cache(&mut self, offset: u64, len: u32) -> Result<(), ClientError> {
        self.call(Ask::new(Command::Cache, offset, len)).map(drop)
    }

    /// The extents of all of a range, as many requests as that takes; neighbours that are alike are
    /// one.
    ///
    /// # Errors
    /// Those of `call`; `Protocol` if it takes more than 65,536 requests.
    pub fn block_status(&mut self, offset: u64, len: u64) -> Result<Vec<Extent>, ClientError> {
        let mut extents: Vec<Extent> = Vec::new();
        let mut at = offset;
        let end = offset.saturating_add(len);
        let mut requests = 0;
        while at < end {
            requests += 1;
            if requests > STATUS_REQUESTS_MAX {
                return Err(ClientError::protocol(
                    "a block status that does not come to an end",
                ));
            }
            // Whole mebibytes below the largest length, so that any minimum block size is kept to.
            let part = u32::try_from(end - at).unwrap_or(0xfff0_0000);
            let completion = self.call(Ask::new(Command::BlockStatus, at, part))?;
            for extent in completion.extents {
                let extent_len = extent.len.min(end - at);
                at += extent_len;
                match extents.last_mut() {
                    Some(last) if last.state == extent.state => last.len += extent_len,
                    _ if extent_len > 0 => extents.push(Extent {
                        len: extent_len,
                        state: extent.state,
                    }),
                    _ => {}
                }
            }
        }
        Ok(extents)
    }

    /// Says goodbye, and waits until the server has closed its end. Requests under way are answered
    /// first.
    ///
    /// # Errors
    /// Those of the stream; `Protocol` if something comes that is no reply to a request under way.
    pub fn disconnect(mut self) -> Result<(), ClientError> {
        while self.shared.under_way() > 0 {
            replies::receive(&mut self.stream, &self.shared)?;
        }
        send(self.stream.get_mut(), &disconnect_request().encode(), &[])?;
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(0) => Ok(()),
            Ok(_) => Err(ClientError::protocol("something after the last reply")),
            // Over TLS a server may close without saying so; over TCP it may reset.
            Err(error) if replies::is_end(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl<S: Read + Write + TryClone> Client<S> {
    /// Two halves, so that one thread sends while another one receives.
    ///
    /// # Errors
    /// Those of the system.
    pub fn split(self) -> Result<(Submitter<S>, Receiver<S>), ClientError> {
        let submitter = Submitter {
            stream: self.stream.get_ref().try_clone()?,
            shared: Arc::clone(&self.shared),
        };
        let receiver = Receiver {
            stream: self.stream,
            shared: self.shared,
            early: self.early,
        };
        Ok((submitter, receiver))
    }
}

/// The half of a connection that sends requests.
#[derive(Debug)]
pub struct Submitter<S> {
    stream: S,
    shared: Arc<Shared>,
}

impl<S: Write> Submitter<S> {
    /// Sends a request; answers with its cookie. Its completion may be received before this
    /// returns.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn submit(&mut self, ask: Ask<'_>) -> Result<u64, ClientError> {
        submit(&mut self.stream, &self.shared, ask)
    }

    /// Requests under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.shared.under_way()
    }

    /// Says goodbye: the receiver gets `Closed` behind the last completion.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn disconnect(mut self) -> Result<(), ClientError> {
        send(&mut self.stream, &disconnect_request().encode(), &[])
    }
}

/// The half of a connection that receives replies.
#[derive(Debug)]
pub struct Receiver<S> {
    stream: BufReader<S>,
    shared: Arc<Shared>,
    early: VecDeque<Completion>,
}

impl<S: Read> Receiver<S> {
    /// Waits for a request to be answered. Unlike `Client::receive`, it waits for one to be
    /// submitted too.
    ///
    /// # Errors
    /// `Closed` at the end; those of the stream; `Protocol`.
    pub fn receive(&mut self) -> Result<Completion, ClientError> {
        match self.early.pop_front() {
            Some(completion) => Ok(completion),
            None => replies::receive_or_wait(&mut self.stream, &self.shared),
        }
    }

    /// Takes a buffer back, so that the next read need not make one.
    pub fn give_back(&mut self, buffer: Vec<u8>) {
        self.shared.give_back(buffer);
    }
}

/// Sets the time after which a socket's read or write gives up; a test then fails instead of
/// hanging.
///
/// # Errors
/// Those of the system.
pub fn give_up_after(stream: &UnixStream, time: Duration) -> Result<(), ClientError> {
    stream.set_read_timeout(Some(time))?;
    stream.set_write_timeout(Some(time))?;
    Ok(())
}

fn disconnect_request() -> Request {
    Request {
        flags: CommandFlags::NONE,
        command: Command::Disconnect,
        cookie: 0,
        offset: 0,
        len: 0,
    }
}

fn submit<W: Write>(stream: &mut W, shared: &Shared, ask: Ask<'_>) -> Result<u64, ClientError> {
    let cookie = shared.begin(&ask);
    let request = Request {
        flags: ask.flags,
        command: ask.command,
        cookie,
        offset: ask.offset,
        len: ask.len,
    };
    send(stream, &request.encode(), ask.data)?;
    Ok(cookie)
}

/// Sends both parts, in one system call if the stream takes them.
fn send<W: Write>(stream: &mut W, head: &[u8], data: &[u8]) -> Result<(), ClientError> {
    let mut parts = [IoSlice::new(head), IoSlice::new(data)];
    let mut left = &mut parts[..];
    IoSlice::advance_slices(&mut left, 0);
    while !left.is_empty() {
        match stream.write_vectored(left) {
            Ok(0) => return Err(ClientError::Closed),
            Ok(sent) => IoSlice::advance_slices(&mut left, sent),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    stream.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests;
