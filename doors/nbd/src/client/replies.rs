//! Requests under way, and the replies to them, put together and checked.

use std::collections::HashMap;
use std::io::{self, Read};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Ask, ClientError, Export, Failure};
use crate::wire::{
    CHUNK_HEAD, ChunkHead, ChunkKind, Command, CommandFlags, Errno, SIMPLE_REPLY,
    SIMPLE_REPLY_MAGIC, STRING_MAX, STRUCTURED_REPLY_MAGIC, SimpleReply, State,
};

/// Buffers that are kept for further reads.
const SPARE_MAX: usize = 64;
/// The longest chunk of extents that is taken, bytes.
const STATUS_MAX: u32 = 1 << 20;

/// Bytes in a row that are of one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes.
    pub len: u64,
    /// Their state.
    pub state: State,
}

/// A request that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Which one, as `submit` named it.
    pub cookie: u64,
    /// The command of the request.
    pub command: Command,
    /// The failure, if there was one.
    pub failure: Option<Failure>,
    /// Data of a read. For a read that failed: the data that came, and zeroes.
    pub data: Vec<u8>,
    /// Extents of a block status.
    pub extents: Vec<Extent>,
}

/// A request under way.
#[derive(Debug)]
struct Pending {
    command: Command,
    flags: CommandFlags,
    offset: u64,
    len: u32,
    data: Vec<u8>,
    extents: Vec<Extent>,
    /// The parts of the range that have come: (from, to), in order and apart.
    came: Vec<(u64, u64)>,
    content_chunks: u32,
    failure: Option<Failure>,
}

#[derive(Debug, Default)]
struct Table {
    last: u64,
    pending: HashMap<u64, Pending>,
    spare: Vec<Vec<u8>>,
}

/// The state that both halves of a client share.
#[derive(Debug)]
pub(super) struct Shared {
    structured: bool,
    allocation: Option<u32>,
    table: Mutex<Table>,
}

impl Shared {
    pub(super) fn new(export: &Export) -> Self {
        Self {
            structured: export.structured,
            allocation: export.allocation,
            table: Mutex::default(),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(&self, ask: &Ask<'_>) -> u64 {
        let mut table = self.table();
        table.last += 1;
        let cookie = table.last;
        let mut data = Vec::new();
        if ask.command == Command::Read {
            data = table.spare.pop().unwrap_or_default();
            data.clear();
        }
        let pending = Pending {
            command: ask.command,
            flags: ask.flags,
            offset: ask.offset,
            len: ask.len,
            data,
            extents: Vec::new(),
            came: Vec::new(),
            content_chunks: 0,
            failure: None,
        };
        table.pending.insert(cookie, pending);
        cookie
    }

    pub(super) fn under_way(&self) -> usize {
        self.table().pending.len()
    }

    pub(super) fn give_back(&self, buffer: Vec<u8>) {
        let mut table = self.table();
        if table.spare.len() < SPARE_MAX {
            table.spare.push(buffer);
        }
    }

    fn take(&self, cookie: u64) -> Result<Pending, ClientError> {
        let pending = self.table().pending.remove(&cookie);
        pending.ok_or_else(|| {
            ClientError::protocol(format!(
                "a reply to request {cookie:#x}, which is not under way"
            ))
        })
    }

    fn put(&self, cookie: u64, pending: Pending) {
        self.table().pending.insert(cookie, pending);
    }
}

/// True if a stream's error is only its end.
pub(super) fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

pub(super) fn receive<R: Read>(stream: &mut R, shared: &Shared) -> Result<Completion, ClientError> {
    if shared.under_way() == 0 {
        return Err(ClientError::NothingSubmitted);
    }
    receive_or_wait(stream, shared)
}

pub(super) fn receive_or_wait<R: Read>(
    stream: &mut R,
    shared: &Shared,
) -> Result<Completion, ClientError> {
    loop {
        // Both heads begin with as many bytes as the shorter one has.
        let mut head = [0; CHUNK_HEAD];
        stream.read_exact(&mut head[..SIMPLE_REPLY])?;
        let magic = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        let completed = match magic {
            SIMPLE_REPLY_MAGIC => Some(on_simple(stream, shared, &head)?),
            STRUCTURED_REPLY_MAGIC => {
                stream.read_exact(&mut head[SIMPLE_REPLY..])?;
                on_chunk(stream, shared, &head)?
            }
            other => {
                return Err(ClientError::protocol(format!(
                    "no reply: it begins with {other:#010x}"
                )));
            }
        };
        if let Some(completion) = completed {
            return Ok(completion);
        }
    }
}

fn on_simple<R: Read>(
    stream: &mut R,
    shared: &Shared,
    head: &[u8; CHUNK_HEAD],
) -> Result<Completion, ClientError> {
    let reply = head
        .first_chunk()
        .and_then(SimpleReply::parse)
        .ok_or_else(|| ClientError::protocol("no simple reply"))?;
    let mut pending = shared.take(reply.cookie)?;
    let command = pending.command;
    // A status has no simple form, whatever was agreed on.
    if command == Command::BlockStatus && reply.error.is_none() {
        return Err(ClientError::protocol("a simple reply to BlockStatus"));
    }
    if shared.structured && command == Command::Read {
        return Err(ClientError::protocol("a simple reply to Read"));
    }
    if pending.failure.is_some() || pending.content_chunks > 0 {
        return Err(ClientError::protocol("a simple reply behind chunks"));
    }
    pending.failure = reply.error.map(|errno| Failure {
        errno,
        message: String::new(),
        offset: None,
    });
    if command == Command::Read && pending.failure.is_none() {
        pending.data.resize(pending.len as usize, 0);
        stream.read_exact(&mut pending.data)?;
    }
    Ok(pending.complete(reply.cookie))
}

fn on_chunk<R: Read>(
    stream: &mut R,
    shared: &Shared,
    head: &[u8; CHUNK_HEAD],
) -> Result<Option<Completion>, ClientError> {
    let head = ChunkHead::parse(head).ok_or_else(|| ClientError::protocol("no chunk"))?;
    if !shared.structured {
        return Err(ClientError::protocol(
            "a structured reply that was not agreed on",
        ));
    }
    let mut pending = shared.take(head.cookie)?;
    pending.on_chunk(stream, &head, shared.allocation)?;
    if !head.done {
        shared.put(head.cookie, pending);
        return Ok(None);
    }
    pending.check()?;
    Ok(Some(pending.complete(head.cookie)))
}

impl Pending {
    fn complete(self, cookie: u64) -> Completion {
        Completion {
            cookie,
            command: self.command,
            failure: self.failure,
            data: self.data,
            extents: self.extents,
        }
    }

    fn on_chunk<R: Read>(
        &mut self,
        stream: &mut R,
        head: &ChunkHead,
        allocation: Option<u32>,
    ) -> Result<(), ClientError> {
        let command = self.command;
        match (head.kind, command) {
            (ChunkKind::None, _) if head.len == 0 && head.done => Ok(()),
            (ChunkKind::OffsetData, Command::Read) if head.len > 8 => {
                let offset = read_u64(stream)?;
                let place = self.place(offset, head.len - 8)?;
                stream.read_exact(&mut self.data[place])?;
                Ok(())
            }
            (ChunkKind::OffsetHole, Command::Read) if head.len == 12 => {
                let offset = read_u64(stream)?;
                let len = read_u32(stream)?;
                let place = self.place(offset, len)?;
                self.data[place].fill(0);
                Ok(())
            }
            (ChunkKind::BlockStatus, Command::BlockStatus)
                if head.len > 4 && (head.len - 4).is_multiple_of(8) =>
            {
                self.on_extents(stream, head.len, allocation)
            }
            (kind, _) if kind.is_error() => self.on_error(stream, head),
            (kind, _) => Err(ClientError::protocol(format!(
                "a chunk {kind:?} of {} bytes in the reply to {command:?}",
                head.len
            ))),
        }
    }

    /// The place in `data` of a content chunk; notes that it has come.
    fn place(&mut self, offset: u64, len: u32) -> Result<std::ops::Range<usize>, ClientError> {
        let wrong = |what: &str| {
            ClientError::protocol(format!("{len} bytes at {offset} in a reply: {what}"))
        };
        self.content_chunks += 1;
        if self.flags.has(CommandFlags::DF) && self.content_chunks > 1 {
            return Err(wrong("the second piece, where one was asked for"));
        }
        let from = offset
            .checked_sub(self.offset)
            .ok_or_else(|| wrong("before its request"))?;
        let to = from.saturating_add(u64::from(len));
        if len == 0 || to > u64::from(self.len) {
            return Err(wrong("outside its request, or nothing"));
        }
        let index = self.came.partition_point(|(begin, _)| *begin < from);
        let clear = |(begin, end): &(u64, u64)| *end <= from || *begin >= to;
        let before = index
            .checked_sub(1)
            .and_then(|before| self.came.get(before));
        if !before.is_none_or(clear) || !self.came.get(index).is_none_or(clear) {
            return Err(wrong("some of it for the second time"));
        }
        match index
            .checked_sub(1)
            .and_then(|before| self.came.get_mut(before))
        {
            Some((_, end)) if *end == from => *end = to,
            _ => self.came.insert(index, (from, to)),
        }
        if self.data.is_empty() {
            self.data.resize(self.len as usize, 0);
        }
        let index = |at: u64| usize::try_from(at).map_err(|_| wrong("too far"));
        Ok(index(from)?..index(to)?)
    }

    fn on_extents<R: Read>(
        &mut self,
        stream: &mut R,
        len: u32,
        allocation: Option<u32>,
    ) -> Result<(), ClientError> {
        if len > STATUS_MAX {
            return Err(ClientError::protocol("a block status of more than 1 MiB"));
        }
        if !self.extents.is_empty() {
            return Err(ClientError::protocol("a second block status in one reply"));
        }
        let context = read_u32(stream)?;
        if Some(context) != allocation {
            return Err(ClientError::protocol(format!(
                "a block status in context {context}, which was not selected"
            )));
        }
        let mut total = 0;
        for _ in 0..(len - 4) / 8 {
            // Only the last extent may reach beyond the request, so each begins inside it.
            if total >= u64::from(self.len) {
                return Err(ClientError::protocol(
                    "an extent behind the end of its request",
                ));
            }
            let len = u64::from(read_u32(stream)?);
            let state = State::from_bits(read_u32(stream)?);
            if len == 0 {
                return Err(ClientError::protocol("an extent of no bytes"));
            }
            total += len;
            self.extents.push(Extent { len, state });
        }
        if self.flags.has(CommandFlags::REQ_ONE)
            && (self.extents.len() > 1 || total > u64::from(self.len))
        {
            return Err(ClientError::protocol(
                "more than the one extent that was asked for",
            ));
        }
        Ok(())
    }

    fn on_error<R: Read>(&mut self, stream: &mut R, head: &ChunkHead) -> Result<(), ClientError> {
        let at = head.kind == ChunkKind::ErrorOffset;
        let fixed = if at { 14 } else { 6 };
        let mut left = head
            .len
            .checked_sub(fixed)
            .ok_or_else(|| ClientError::protocol("half an error"))?;
        let number = read_u32(stream)?;
        let mut len = [0; 2];
        stream.read_exact(&mut len)?;
        let len = u16::from_be_bytes(len);
        left = left
            .checked_sub(u32::from(len))
            .filter(|left| number != 0 && usize::from(len) <= STRING_MAX && *left <= 1 << 16)
            .ok_or_else(|| {
                ClientError::protocol("an error of zero, or whose message is longer than it")
            })?;
        let mut message = vec![0; usize::from(len)];
        stream.read_exact(&mut message)?;
        let offset = if at { Some(read_u64(stream)?) } else { None };
        // Fields that a later specification may have put behind it.
        stream.read_exact(&mut vec![0; left as usize])?;
        if let Some(offset) = offset {
            let inside = offset
                .checked_sub(self.offset)
                .is_some_and(|from| from < u64::from(self.len));
            if !inside {
                return Err(ClientError::protocol(
                    "an error at an offset outside its request",
                ));
            }
        }
        self.failure.get_or_insert(Failure {
            errno: Errno::from_number(number),
            message: String::from_utf8_lossy(&message).into_owned(),
            offset,
        });
        Ok(())
    }

    /// Checks that a reply that says it succeeded is complete.
    fn check(&self) -> Result<(), ClientError> {
        if self.failure.is_some() {
            return Ok(());
        }
        match self.command {
            Command::Read => {
                let came: u64 = self.came.iter().map(|(from, to)| to - from).sum();
                let len = self.len;
                if came == u64::from(len) {
                    Ok(())
                } else {
                    Err(ClientError::protocol(format!(
                        "{came} of {len} bytes of a read, and no error"
                    )))
                }
            }
            Command::BlockStatus if self.extents.is_empty() => Err(ClientError::protocol(
                "a block status without an extent, and no error",
            )),
            _ => Ok(()),
        }
    }
}

fn read_u32<R: Read>(stream: &mut R) -> Result<u32, ClientError> {
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes)?;
    Ok(u32::from_be_bytes(bytes))
}

fn read_u64<R: Read>(stream: &mut R) -> Result<u64, ClientError> {
    let mut bytes = [0; 8];
    stream.read_exact(&mut bytes)?;
    Ok(u64::from_be_bytes(bytes))
}
