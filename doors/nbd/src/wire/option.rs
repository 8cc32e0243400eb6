//! The handshake as bytes: the greeting, options, replies to options.
//!
//! Source: the specification, "Newstyle negotiation", "Fixed newstyle negotiation", "Option types",
//! "Option reply types".

use super::{HandshakeFlags, INIT_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, be32, be64, put};

/// Bytes of an option's head, without its data.
pub const OPTION_HEAD: usize = 16;
/// Bytes of the head of a reply to an option, without its data.
pub const OPTION_REPLY_HEAD: usize = 20;

/// A server's first bytes.
pub type Greeting = [u8; 18];

/// A server's first bytes: that it speaks newstyle, and which of its forms.
#[must_use]
pub fn greeting(flags: HandshakeFlags) -> Greeting {
    let mut bytes = [0; 18];
    put(&mut bytes, 0, &INIT_MAGIC.to_be_bytes());
    put(&mut bytes, 8, &OPTION_MAGIC.to_be_bytes());
    put(&mut bytes, 16, &flags.bits().to_be_bytes());
    bytes
}

numbered! {
    /// A client's request in a handshake ("Option types").
    OptionKind: u32 {
        /// This export, and on to its requests; a failure has no answer.
        ExportName = 1;
        /// The end.
        Abort = 2;
        /// The names of all exports.
        List = 3;
        /// Encryption.
        StartTls = 5;
        /// The size and flags of an export.
        Info = 6;
        /// The same, and on to its requests.
        Go = 7;
        /// Replies in chunks.
        StructuredReply = 8;
        /// The contexts that an export has.
        ListMetaContext = 9;
        /// The contexts that `Command::BlockStatus` is to tell of.
        SetMetaContext = 10;
    }
}

numbered! {
    /// A server's answer to an option ("Option reply types").
    ReplyKind: u32 {
        /// Yes; or the end of a list.
        Ack = 1;
        /// An export of a list.
        Server = 2;
        /// A property of an export.
        Info = 3;
        /// A context.
        MetaContext = 4;
        /// Not known here.
        Unsupported = 0x8000_0001;
        /// Not allowed here.
        Policy = 0x8000_0002;
        /// Not well-formed, or not now.
        Invalid = 0x8000_0003;
        /// Not on this platform.
        Platform = 0x8000_0004;
        /// Not without encryption.
        TlsRequired = 0x8000_0005;
        /// There is no such export.
        Unknown = 0x8000_0006;
        /// The server is about to end.
        Shutdown = 0x8000_0007;
        /// Not without a promise to honour block sizes.
        BlockSizeRequired = 0x8000_0008;
        /// Too long.
        TooBig = 0x8000_0009;
    }
}

numbered! {
    /// A property of an export ("NBD_REP_INFO").
    Info: u16 {
        /// Size and transmission flags.
        Export = 0;
        /// Its name.
        Name = 1;
        /// Its description, for a human.
        Description = 2;
        /// Block sizes.
        BlockSize = 3;
    }
}

impl ReplyKind {
    /// True if it is a refusal.
    #[must_use]
    pub const fn is_error(self) -> bool {
        self.number() & 0x8000_0000 != 0
    }
}

/// The sizes that requests have to, and should, have ("Block size constraints"); bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Offsets and lengths are multiples of it; a power of two up to 64 KiB.
    pub minimum: u32,
    /// Multiples of it need no reading of what is around them.
    pub preferred: u32,
    /// The longest request.
    pub maximum: u32,
}

impl BlockSizes {
    /// The sizes that a client may assume when it was told nothing.
    pub const DEFAULT: Self = Self {
        minimum: 1,
        preferred: 4096,
        maximum: u32::MAX,
    };

    /// True if the specification allows them; `size` is the export's.
    #[must_use]
    pub fn are_valid(&self, size: u64) -> bool {
        let powers = self.minimum.is_power_of_two() && self.preferred.is_power_of_two();
        let whole = self.maximum == u32::MAX
            || (self.maximum > 0 && self.maximum.is_multiple_of(self.minimum));
        powers
            && whole
            && self.minimum <= 1 << 16
            && self.preferred >= self.minimum.max(512)
            && u64::from(self.maximum) >= u64::from(self.preferred).min(size)
    }
}

/// The head of an option as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHead {
    /// The option.
    pub kind: OptionKind,
    /// Bytes of data behind it.
    pub len: u32,
}

impl OptionHead {
    /// Reads one.
    ///
    /// # Errors
    /// The bytes in place of the magic number.
    pub fn parse(bytes: &[u8; OPTION_HEAD]) -> Result<Self, u64> {
        let magic = be64(bytes, 0);
        if magic != OPTION_MAGIC {
            return Err(magic);
        }
        Ok(Self {
            kind: OptionKind::from_number(be32(bytes, 8)),
            len: be32(bytes, 12),
        })
    }

    /// Writes one.
    #[must_use]
    pub fn encode(&self) -> [u8; OPTION_HEAD] {
        let mut bytes = [0; OPTION_HEAD];
        put(&mut bytes, 0, &OPTION_MAGIC.to_be_bytes());
        put(&mut bytes, 8, &self.kind.number().to_be_bytes());
        put(&mut bytes, 12, &self.len.to_be_bytes());
        bytes
    }
}

/// The head of a reply to an option as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionReplyHead {
    /// The option that it answers.
    pub option: OptionKind,
    /// Its kind.
    pub kind: ReplyKind,
    /// Bytes of data behind it.
    pub len: u32,
}

impl OptionReplyHead {
    /// Reads one.
    ///
    /// # Errors
    /// The bytes in place of the magic number.
    pub fn parse(bytes: &[u8; OPTION_REPLY_HEAD]) -> Result<Self, u64> {
        let magic = be64(bytes, 0);
        if magic != OPTION_REPLY_MAGIC {
            return Err(magic);
        }
        Ok(Self {
            option: OptionKind::from_number(be32(bytes, 8)),
            kind: ReplyKind::from_number(be32(bytes, 12)),
            len: be32(bytes, 16),
        })
    }
}

/// The head of a reply to an option; `len` bytes of data follow.
#[must_use]
pub fn option_reply(option: OptionKind, kind: ReplyKind, len: u32) -> [u8; OPTION_REPLY_HEAD] {
    let mut bytes = [0; OPTION_REPLY_HEAD];
    put(&mut bytes, 0, &OPTION_REPLY_MAGIC.to_be_bytes());
    put(&mut bytes, 8, &option.number().to_be_bytes());
    put(&mut bytes, 12, &kind.number().to_be_bytes());
    put(&mut bytes, 16, &len.to_be_bytes());
    bytes
}
