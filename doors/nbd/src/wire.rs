//! The numbers of the specification, and requests and replies as bytes.
//!
//! Everything is big-endian. A request and each head of a reply has a fixed size, so both are
//! arrays: nothing here allocates, and what varies in length (payload, descriptors) is the caller's
//! to send behind its head.
//!
//! ```text
//!   request, 28 bytes     magic 4 | flags 2 | command 2 | cookie 8 | offset 8 | length 4     (a write's payload follows)
//!   simple reply, 16      magic 4 | error 4 | cookie 8                                       (a read's data follows)
//!   chunk, 20 and more    magic 4 | flags 2 | type 2 | cookie 8 | length 4 | payload
//! ```
//!
//! Vocabulary: *cookie*, the client's name for a request (the specification once called it handle);
//! *chunk*, a part of a structured reply.
//!
//! Source: the specification, "Values", "Request message", "Simple reply message", "Structured
//! reply chunk message".

use core::fmt;

macro_rules! flags {
    ($(#[$doc:meta])* $name:ident: $int:ty { $($(#[$flag_doc:meta])* $flag:ident = $bit:expr;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
        pub struct $name($int);

        impl $name {
            /// None of them.
            pub const NONE: Self = Self(0);
            $($(#[$flag_doc])* pub const $flag: Self = Self(1 << $bit);)*
            /// All that have a name.
            pub const ALL: Self = Self(0 $(| (1 << $bit))*);

            /// As they stand on the wire, known or not.
            #[must_use]
            pub const fn from_bits(bits: $int) -> Self {
                Self(bits)
            }

            /// As they go on the wire.
            #[must_use]
            pub const fn bits(self) -> $int {
                self.0
            }

            /// True if all of `other` are set.
            #[must_use]
            pub const fn has(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// These and `other`.
            #[must_use]
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// These but `other`.
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }

            /// These, and `other` if `condition` holds.
            #[must_use]
            pub const fn with_if(self, condition: bool, other: Self) -> Self {
                if condition { self.with(other) } else { self }
            }

            /// True if none is set.
            #[must_use]
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut first = true;
                $(if self.has(Self::$flag) {
                    if !first { f.write_str("|")?; }
                    f.write_str(stringify!($flag))?;
                    first = false;
                })*
                let unknown = self.without(Self::ALL).0;
                if unknown != 0 || first {
                    write!(f, "{}{unknown:#x}", if first { "" } else { "|" })?;
                }
                Ok(())
            }
        }
    };
}

/// An enum of the numbers that have a name, and the others.
macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident: $int:ty { $($(#[$kind_doc:meta])* $kind:ident = $number:expr;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$kind_doc])* $kind,)*
            /// A number that has no name here.
            Other($int),
        }

        impl $name {
            /// From its number.
            #[must_use]
            pub const fn from_number(number: $int) -> Self {
                match number {
                    $(n if n == $number => Self::$kind,)*
                    other => Self::Other(other),
                }
            }

            /// Its number.
            #[must_use]
            pub const fn number(self) -> $int {
                match self {
                    $(Self::$kind => $number,)*
                    Self::Other(other) => other,
                }
            }
        }
    };
}

mod option;
mod reply;

pub use option::{
    BlockSizes, Greeting, Info, OPTION_HEAD, OPTION_REPLY_HEAD, OptionHead, OptionKind,
    OptionReplyHead, ReplyKind, greeting, option_reply,
};
pub use reply::{
    CHUNK_HEAD, ChunkHead, ChunkKind, ERROR_MESSAGE_MAX, ErrorChunk, SIMPLE_REPLY, SimpleReply,
    block_status, descriptor, done, error, error_at, failure, offset_data, offset_hole,
    simple_reply,
};

/// Begins every handshake: "NBDMAGIC".
pub const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Follows it in a newstyle handshake, and begins every option: "IHAVEOPT".
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Begins every reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Begins every request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Begins every simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Begins every chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Bytes of a request, without a write's payload.
pub const REQUEST: usize = 28;
/// The longest string of the protocol, bytes: names, descriptions, queries, messages.
pub const STRING_MAX: usize = 4096;
/// Zeroes behind the answer to the option EXPORT_NAME, unless the client asked for none.
pub const EXPORT_NAME_ZEROES: usize = 124;
flags! {
    /// The server's abilities in a handshake ("Handshake flags").
    HandshakeFlags: u16 {
        /// It speaks fixed newstyle.
        FIXED_NEWSTYLE = 0;
        /// It can leave out the zeroes behind the answer to EXPORT_NAME.
        NO_ZEROES = 1;
    }
}

flags! {
    /// The parts of it that the client understands ("Client flags").
    ClientFlags: u32 {
        /// It speaks fixed newstyle.
        FIXED_NEWSTYLE = 0;
        /// It wants no zeroes behind the answer to EXPORT_NAME.
        NO_ZEROES = 1;
    }
}

flags! {
    /// The abilities of an export ("Transmission flags").
    ExportFlags: u16 {
        /// Always set.
        HAS_FLAGS = 0;
        /// Writes are refused.
        READ_ONLY = 1;
        /// It takes `Command::Flush`.
        SEND_FLUSH = 2;
        /// It takes `CommandFlags::FUA`.
        SEND_FUA = 3;
        /// Order matters to its medium.
        ROTATIONAL = 4;
        /// It takes `Command::Trim`.
        SEND_TRIM = 5;
        /// It takes `Command::WriteZeroes`.
        SEND_WRITE_ZEROES = 6;
        /// It takes `CommandFlags::DF`; set only where structured replies were agreed on.
        SEND_DF = 7;
        /// A flush on one connection covers what any connection was told is written.
        CAN_MULTI_CONN = 8;
        /// It can change its size (an extension that is not spoken here).
        SEND_RESIZE = 9;
        /// It takes `Command::Cache`.
        SEND_CACHE = 10;
        /// It takes `CommandFlags::FAST_ZERO`.
        SEND_FAST_ZERO = 11;
    }
}

flags! {
    /// The manner in which a request is to be done ("Command flags").
    CommandFlags: u16 {
        /// Reply when what this request wrote is durable.
        FUA = 0;
        /// Zeroes must keep their space.
        NO_HOLE = 1;
        /// The data in one piece.
        DF = 2;
        /// One extent is enough.
        REQ_ONE = 3;
        /// Zeroes at once, or an error.
        FAST_ZERO = 4;
        /// The length is that of a payload (extended headers, which are not spoken here).
        PAYLOAD_LEN = 5;
    }
}

flags! {
    /// The state of an extent in the context `base:allocation`.
    State: u32 {
        /// It has no space of its own.
        HOLE = 0;
        /// It reads as zeroes.
        ZERO = 1;
    }
}

numbered! {
    /// The command of a request ("Request types"); those of extensions that are not spoken here
    /// have no name.
    Command: u16 {
        /// Data of a range.
        Read = 0;
        /// New data for a range; the payload follows the request.
        Write = 1;
        /// The end of the connection; has no reply.
        Disconnect = 2;
        /// All writes that were answered are to be durable.
        Flush = 3;
        /// The data of a range is no longer needed.
        Trim = 4;
        /// A range will be wanted.
        Cache = 5;
        /// A range is to read as zeroes.
        WriteZeroes = 6;
        /// Which parts of a range are holes.
        BlockStatus = 7;
    }
}

/// Why a request failed ("Error values"). No other number may go on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Errno {
    /// EPERM: the export is read-only.
    NotPermitted = 1,
    /// EIO: the device failed.
    Io = 5,
    /// ENOMEM: there is no memory for it now.
    NoMemory = 12,
    /// EINVAL: the request is wrong.
    Invalid = 22,
    /// ENOSPC: beyond the end, or the device is full.
    NoSpace = 28,
    /// EOVERFLOW: too much for one piece.
    Overflow = 75,
    /// ENOTSUP: a fast zero would not be fast.
    NotSupported = 95,
    /// ESHUTDOWN: the server is about to end.
    Shutdown = 108,
}

impl Errno {
    const ALL: [Self; 8] = [
        Self::NotPermitted,
        Self::Io,
        Self::NoMemory,
        Self::Invalid,
        Self::NoSpace,
        Self::Overflow,
        Self::NotSupported,
        Self::Shutdown,
    ];

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// From a number that is not zero; a number that has no name counts as EINVAL, as the
    /// specification asks of clients.
    #[must_use]
    pub fn from_number(number: u32) -> Self {
        let known = Self::ALL.into_iter().find(|known| known.number() == number);
        known.unwrap_or(Self::Invalid)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotPermitted => "not permitted (EPERM)",
            Self::Io => "input/output error (EIO)",
            Self::NoMemory => "out of memory (ENOMEM)",
            Self::Invalid => "invalid request (EINVAL)",
            Self::NoSpace => "no space left (ENOSPC)",
            Self::Overflow => "too large (EOVERFLOW)",
            Self::NotSupported => "not supported (ENOTSUP)",
            Self::Shutdown => "the server is shutting down (ESHUTDOWN)",
        })
    }
}

/// A request as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its flags.
    pub flags: CommandFlags,
    /// Its command.
    pub command: Command,
    /// The client's name for it; goes into each head of its reply.
    pub cookie: u64,
    /// The first byte it is about.
    pub offset: u64,
    /// Bytes it is about.
    pub len: u32,
}

/// The bytes where a request should begin are no request: the stream cannot be read on, and the
/// connection has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRequest {
    /// The number in place of the magic one.
    pub magic: u32,
}

impl fmt::Display for NoRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let magic = self.magic;
        write!(
            f,
            "a request begins with {REQUEST_MAGIC:#010x}, and the client sent {magic:#010x}"
        )
    }
}

impl core::error::Error for NoRequest {}

impl Request {
    /// Reads a request.
    ///
    /// # Errors
    /// `NoRequest` for a wrong magic number. Anything else that is wrong with it has an answer: see
    /// `transmit::judge`.
    pub fn parse(bytes: &[u8; REQUEST]) -> Result<Self, NoRequest> {
        let magic = be32(bytes, 0);
        if magic != REQUEST_MAGIC {
            return Err(NoRequest { magic });
        }
        Ok(Self {
            flags: CommandFlags(be16(bytes, 4)),
            command: Command::from_number(be16(bytes, 6)),
            cookie: be64(bytes, 8),
            offset: be64(bytes, 16),
            len: be32(bytes, 24),
        })
    }

    /// Writes a request.
    #[must_use]
    pub fn encode(&self) -> [u8; REQUEST] {
        let mut bytes = [0; REQUEST];
        put(&mut bytes, 0, &REQUEST_MAGIC.to_be_bytes());
        put(&mut bytes, 4, &self.flags.0.to_be_bytes());
        put(&mut bytes, 6, &self.command.number().to_be_bytes());
        put(&mut bytes, 8, &self.cookie.to_be_bytes());
        put(&mut bytes, 16, &self.offset.to_be_bytes());
        put(&mut bytes, 24, &self.len.to_be_bytes());
        bytes
    }

    /// Bytes of payload behind it: a server that refuses a write still has to read them.
    #[must_use]
    pub const fn payload(&self) -> u32 {
        match self.command {
            Command::Write => self.len,
            Command::Read
            | Command::Disconnect
            | Command::Flush
            | Command::Trim
            | Command::Cache
            | Command::WriteZeroes
            | Command::BlockStatus
            | Command::Other(_) => 0,
        }
    }
}

/// Copies `part` into `bytes` at `at`; both are sizes known here.
fn put(bytes: &mut [u8], at: usize, part: &[u8]) {
    bytes[at..at + part.len()].copy_from_slice(part);
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from(be32(bytes, at)) << 32 | u64::from(be32(bytes, at + 4))
}

#[cfg(test)]
mod tests;
