//! Replies as bytes: simple ones, and the chunks of structured ones.
//!
//! Source: the specification, "Simple reply message", "Structured reply types".

use super::{Errno, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, State, be16, be32, be64, put};

/// Bytes of a simple reply, without a read's data.
pub const SIMPLE_REPLY: usize = 16;
/// Bytes of a chunk's head.
pub const CHUNK_HEAD: usize = 20;
/// The longest message we put into an error chunk, bytes.
pub const ERROR_MESSAGE_MAX: usize = 96;

/// The last chunk of its reply ("Structured reply flags").
const DONE: u16 = 1;
/// Head, error, length of the message, offset.
const ERROR_MAX: usize = CHUNK_HEAD + 4 + 2 + ERROR_MESSAGE_MAX + 8;

numbered! {
    /// The kind of a chunk ("Structured reply types").
    ChunkKind: u16 {
        /// Nothing but the end.
        None = 0;
        /// Data of a part of a read.
        OffsetData = 1;
        /// A part of a read that is all zeroes.
        OffsetHole = 2;
        /// Extents.
        BlockStatus = 5;
        /// The request failed.
        Error = 0x8001;
        /// The request failed at an offset.
        ErrorOffset = 0x8002;
    }
}

impl ChunkKind {
    /// True if it tells of a failure; those of later specifications do too.
    #[must_use]
    pub const fn is_error(self) -> bool {
        self.number() & 0x8000 != 0
    }
}

/// A simple reply's head as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimpleReply {
    /// The error, if there was one.
    pub error: Option<Errno>,
    /// The request's cookie.
    pub cookie: u64,
}

impl SimpleReply {
    /// Reads one; nothing if the magic number is another's.
    #[must_use]
    pub fn parse(bytes: &[u8; SIMPLE_REPLY]) -> Option<Self> {
        (be32(bytes, 0) == SIMPLE_REPLY_MAGIC).then(|| Self {
            error: match be32(bytes, 4) {
                0 => None,
                number => Some(Errno::from_number(number)),
            },
            cookie: be64(bytes, 8),
        })
    }
}

/// A chunk's head as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHead {
    /// It is the last of its reply.
    pub done: bool,
    /// Its kind.
    pub kind: ChunkKind,
    /// The request's cookie.
    pub cookie: u64,
    /// Bytes behind the head.
    pub len: u32,
}

impl ChunkHead {
    /// Reads one; nothing if the magic number is another's.
    #[must_use]
    pub fn parse(bytes: &[u8; CHUNK_HEAD]) -> Option<Self> {
        (be32(bytes, 0) == STRUCTURED_REPLY_MAGIC).then(|| Self {
            done: be16(bytes, 4) & DONE != 0,
            kind: ChunkKind::from_number(be16(bytes, 6)),
            cookie: be64(bytes, 8),
            len: be32(bytes, 16),
        })
    }

    /// Writes one.
    #[must_use]
    pub fn encode(&self) -> [u8; CHUNK_HEAD] {
        let mut bytes = [0; CHUNK_HEAD];
        self.put(&mut bytes);
        bytes
    }

    fn put(&self, bytes: &mut [u8]) {
        put(bytes, 0, &STRUCTURED_REPLY_MAGIC.to_be_bytes());
        put(bytes, 4, &(if self.done { DONE } else { 0 }).to_be_bytes());
        put(bytes, 6, &self.kind.number().to_be_bytes());
        put(bytes, 8, &self.cookie.to_be_bytes());
        put(bytes, 16, &self.len.to_be_bytes());
    }
}

/// A simple reply; a read that succeeded is followed by its data.
#[must_use]
pub fn simple_reply(cookie: u64, error: Option<Errno>) -> [u8; SIMPLE_REPLY] {
    let mut bytes = [0; SIMPLE_REPLY];
    put(&mut bytes, 0, &SIMPLE_REPLY_MAGIC.to_be_bytes());
    put(&mut bytes, 4, &error.map_or(0, Errno::number).to_be_bytes());
    put(&mut bytes, 8, &cookie.to_be_bytes());
    bytes
}

/// The end of a structured reply.
#[must_use]
pub fn done(cookie: u64) -> [u8; CHUNK_HEAD] {
    let head = ChunkHead {
        done: true,
        kind: ChunkKind::None,
        cookie,
        len: 0,
    };
    head.encode()
}

/// The head of a chunk with data; `len` bytes of it follow.
///
/// # Panics
/// If `len` is zero, or so large that the chunk's length does not fit 32 bits: such a read is
/// split.
#[must_use]
pub fn offset_data(cookie: u64, offset: u64, len: u32, done: bool) -> [u8; 28] {
    assert!(len > 0, "a chunk describes at least one byte");
    let mut bytes = [0; 28];
    let head = ChunkHead {
        done,
        kind: ChunkKind::OffsetData,
        cookie,
        len: len.checked_add(8).expect("a chunk's length fits 32 bits"),
    };
    head.put(&mut bytes);
    put(&mut bytes, 20, &offset.to_be_bytes());
    bytes
}

/// A chunk that stands for `len` zeroes.
///
/// # Panics
/// If `len` is zero.
#[must_use]
pub fn offset_hole(cookie: u64, offset: u64, len: u32, done: bool) -> [u8; 32] {
    assert!(len > 0, "a chunk describes at least one byte");
    let mut bytes = [0; 32];
    let head = ChunkHead {
        done,
        kind: ChunkKind::OffsetHole,
        cookie,
        len: 12,
    };
    head.put(&mut bytes);
    put(&mut bytes, 20, &offset.to_be_bytes());
    put(&mut bytes, 28, &len.to_be_bytes());
    bytes
}

/// The head of a chunk of extents in a context; `extents` times a `descriptor` follow.
///
/// # Panics
/// If there is no extent, or more than 2^28.
#[must_use]
pub fn block_status(cookie: u64, context: u32, extents: u32, done: bool) -> [u8; 24] {
    assert!(extents > 0, "a chunk describes at least one extent");
    assert!(extents < 1 << 28, "a chunk's length fits 32 bits");
    let mut bytes = [0; 24];
    let head = ChunkHead {
        done,
        kind: ChunkKind::BlockStatus,
        cookie,
        len: 4 + extents * 8,
    };
    head.put(&mut bytes);
    put(&mut bytes, 20, &context.to_be_bytes());
    bytes
}

/// One extent of a chunk of extents.
#[must_use]
pub fn descriptor(len: u32, state: State) -> [u8; 8] {
    let mut bytes = [0; 8];
    put(&mut bytes, 0, &len.to_be_bytes());
    put(&mut bytes, 4, &state.bits().to_be_bytes());
    bytes
}

/// A reply that tells of a failure, in a chunk with a message for a human.
#[derive(Clone, Copy, Debug)]
pub struct ErrorChunk {
    bytes: [u8; ERROR_MAX],
    len: usize,
}

impl ErrorChunk {
    /// Its bytes on the wire.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn new(cookie: u64, errno: Errno, message: &str, offset: Option<u64>) -> Self {
        let message = cut(message, ERROR_MESSAGE_MAX).as_bytes();
        let mut bytes = [0; ERROR_MAX];
        let mut len = CHUNK_HEAD;
        let mut push = |part: &[u8]| {
            put(&mut bytes, len, part);
            len += part.len();
        };
        push(&errno.number().to_be_bytes());
        let message_len = u16::try_from(message.len()).expect("a message is cut to its bound");
        push(&message_len.to_be_bytes());
        push(message);
        if let Some(offset) = offset {
            push(&offset.to_be_bytes());
        }
        let head = ChunkHead {
            done: true,
            kind: if offset.is_some() {
                ChunkKind::ErrorOffset
            } else {
                ChunkKind::Error
            },
            cookie,
            len: u32::try_from(len - CHUNK_HEAD).expect("a chunk is smaller than its array"),
        };
        head.put(&mut bytes);
        Self { bytes, len }
    }
}

/// The request failed; the reply ends here. A message longer than `ERROR_MESSAGE_MAX` is cut.
#[must_use]
pub fn error(cookie: u64, errno: Errno, message: &str) -> ErrorChunk {
    ErrorChunk::new(cookie, errno, message, None)
}

/// The request failed at `offset` of the export, which lies in its range; the reply ends here.
#[must_use]
pub fn error_at(cookie: u64, errno: Errno, message: &str, offset: u64) -> ErrorChunk {
    ErrorChunk::new(cookie, errno, message, Some(offset))
}

/// A failed request's whole reply: a chunk with the message where structured replies were agreed
/// on, else a simple one.
#[must_use]
pub fn failure(structured: bool, cookie: u64, errno: Errno, message: &str) -> ErrorChunk {
    if structured {
        return error(cookie, errno, message);
    }
    let mut bytes = [0; ERROR_MAX];
    put(&mut bytes, 0, &simple_reply(cookie, Some(errno)));
    ErrorChunk {
        bytes,
        len: SIMPLE_REPLY,
    }
}

/// The longest beginning of `text` that has at most `max` bytes and does not end within a
/// character.
pub(super) fn cut(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
