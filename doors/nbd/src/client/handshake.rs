//! The client's side of the handshake.

use std::io::{BufReader, Read, Write};

use super::{Client, ClientError, Export, READ_AHEAD, send};
use crate::haggle::ALLOCATION;
use crate::wire::{
    BlockSizes, ClientFlags, EXPORT_NAME_ZEROES, ExportFlags, HandshakeFlags, INIT_MAGIC, Info,
    OPTION_MAGIC, OPTION_REPLY_HEAD, OptionHead, OptionKind, OptionReplyHead, ReplyKind,
};

/// The longest reply to an option that is taken, bytes.
const REPLY_MAX: u32 = 64 << 10;
/// The most replies to one option that are taken.
const REPLIES_MAX: usize = 1 << 16;

/// The wishes of a client.
#[derive(Clone, Debug)]
pub struct Wishes {
    /// The export; empty for the default one.
    pub export: String,
    /// Replies in chunks, if the server can.
    pub structured: bool,
    /// Block status, if the server can; needs `structured`.
    pub allocation: bool,
    /// Ask with the old option EXPORT_NAME instead of GO.
    pub export_name: bool,
}

impl Wishes {
    /// For an export, with all that the server can do.
    #[must_use]
    pub fn export(name: impl Into<String>) -> Self {
        Self {
            export: name.into(),
            structured: true,
            allocation: true,
            export_name: false,
        }
    }

    /// The same with simple replies, and so without block status.
    #[must_use]
    pub fn simple(self) -> Self {
        Self {
            structured: false,
            allocation: false,
            ..self
        }
    }
}

/// An export of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its description; may be empty.
    pub description: String,
}

/// One reply to an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionReply {
    /// Its kind.
    pub kind: ReplyKind,
    /// Its data.
    pub data: Vec<u8>,
}

/// A handshake under way.
#[derive(Debug)]
pub struct Handshake<S> {
    stream: BufReader<S>,
    zeroes: bool,
}

impl<S: Read + Write> Handshake<S> {
    /// Reads the server's greeting and answers it.
    ///
    /// # Errors
    /// Those of the stream; `Protocol` if the server does not speak fixed newstyle.
    pub fn begin(stream: S) -> Result<Self, ClientError> {
        let mut stream = BufReader::with_capacity(READ_AHEAD, stream);
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        let (magics, flags) = greeting.split_at(16);
        if magics != [INIT_MAGIC.to_be_bytes(), OPTION_MAGIC.to_be_bytes()].as_flattened() {
            return Err(ClientError::protocol(
                "the greeting is not that of a newstyle server",
            ));
        }
        let flags = HandshakeFlags::from_bits(u16::from_be_bytes([flags[0], flags[1]]));
        if !flags.has(HandshakeFlags::FIXED_NEWSTYLE) {
            return Err(ClientError::protocol(
                "the server does not speak fixed newstyle",
            ));
        }
        let zeroes = !flags.has(HandshakeFlags::NO_ZEROES);
        let client = ClientFlags::FIXED_NEWSTYLE.with_if(!zeroes, ClientFlags::NO_ZEROES);
        send(stream.get_mut(), &client.bits().to_be_bytes(), &[])?;
        Ok(Self { stream, zeroes })
    }

    /// Goes on over an encrypted stream; the greeting is not said again.
    #[must_use]
    pub fn resume(stream: S) -> Self {
        Self {
            stream: BufReader::with_capacity(READ_AHEAD, stream),
            zeroes: false,
        }
    }

    /// Sends an option and takes all replies, the last of which is an ACK or a refusal.
    ///
    /// # Errors
    /// Those of the stream; `Protocol`. A refusal is a reply.
    pub fn option(
        &mut self,
        option: OptionKind,
        data: &[u8],
    ) -> Result<Vec<OptionReply>, ClientError> {
        self.send(option, data)?;
        let mut replies = Vec::new();
        loop {
            let mut head = [0; OPTION_REPLY_HEAD];
            self.stream.read_exact(&mut head)?;
            let head = OptionReplyHead::parse(&head).map_err(|magic| {
                ClientError::protocol(format!("no reply to an option: {magic:#018x}"))
            })?;
            if head.option != option {
                let other = head.option;
                return Err(ClientError::protocol(format!(
                    "a reply to {other:?} instead of {option:?}"
                )));
            }
            if head.len > REPLY_MAX || replies.len() == REPLIES_MAX {
                return Err(ClientError::protocol(format!(
                    "too long a reply to {option:?}"
                )));
            }
            let mut data = vec![0; head.len as usize];
            self.stream.read_exact(&mut data)?;
            replies.push(OptionReply {
                kind: head.kind,
                data,
            });
            if head.kind == ReplyKind::Ack || head.kind.is_error() {
                return Ok(replies);
            }
        }
    }

    /// Sends an option and does not wait.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn send(&mut self, option: OptionKind, data: &[u8]) -> Result<(), ClientError> {
        let len =
            u32::try_from(data.len()).map_err(|_| ClientError::protocol("an option of 4 GiB"))?;
        let head = OptionHead { kind: option, len };
        send(self.stream.get_mut(), &head.encode(), data)
    }

    /// The replies but the ACK behind them.
    fn acknowledged(
        &mut self,
        option: OptionKind,
        data: &[u8],
    ) -> Result<Vec<OptionReply>, ClientError> {
        let mut replies = self.option(option, data)?;
        match replies.pop() {
            Some(last) if last.kind == ReplyKind::Ack => Ok(replies),
            Some(OptionReply { kind: reply, data }) => Err(ClientError::Refused {
                option,
                reply,
                message: String::from_utf8_lossy(&data).into_owned(),
            }),
            None => Err(ClientError::Closed),
        }
    }

    /// The exports.
    ///
    /// # Errors
    /// `Refused`; those of `option`.
    pub fn list(&mut self) -> Result<Vec<Listed>, ClientError> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.acknowledged(OptionKind::List, &[])?
            .iter()
            .map(|reply| {
                let (len, rest) = reply.data.split_first_chunk().ok_or("its length")?;
                let len = u32::from_be_bytes(*len) as usize;
                let (name, description) = rest.split_at_checked(len).ok_or("its name")?;
                Ok(Listed {
                    name: text(name),
                    description: text(description),
                })
            })
            .collect::<Result<_, &str>>()
            .map_err(|what| {
                ClientError::protocol(format!("an export of the list ends before {what}"))
            })
    }

    /// Asks for encryption, and gives the stream out to be encrypted.
    ///
    /// # Errors
    /// `Refused`; those of `option`; `Protocol` if the server said more in the clear.
    pub fn start_tls(mut self) -> Result<S, ClientError> {
        self.acknowledged(OptionKind::StartTls, &[])?;
        if !self.stream.buffer().is_empty() {
            return Err(ClientError::protocol("bytes in the clear after STARTTLS"));
        }
        Ok(self.stream.into_inner())
    }

    /// Says goodbye.
    ///
    /// # Errors
    /// Those of `option`.
    pub fn abort(mut self) -> Result<(), ClientError> {
        self.acknowledged(OptionKind::Abort, &[]).map(drop)
    }

    /// Asks for an export and what else is wished for, and goes on to requests.
    ///
    /// # Errors
    /// `Refused` if there is no such export; those of `option`. Other abilities that the server
    /// lacks are left out.
    pub fn go(mut self, wishes: &Wishes) -> Result<Client<S>, ClientError> {
        let structured =
            wishes.structured && self.wish(OptionKind::StructuredReply, &[])?.is_some();
        let mut allocation = None;
        if structured && wishes.allocation {
            let mut data = with_len(&wishes.export);
            data.extend(1_u32.to_be_bytes());
            data.extend(with_len(ALLOCATION));
            let contexts = self
                .wish(OptionKind::SetMetaContext, &data)?
                .unwrap_or_default();
            for context in contexts {
                let (id, name) = context
                    .data
                    .split_first_chunk()
                    .ok_or_else(|| ClientError::protocol("a context without a number"))?;
                if name == ALLOCATION.as_bytes() {
                    allocation = Some(u32::from_be_bytes(*id));
                }
            }
        }
        let export = Export {
            size: 0,
            flags: ExportFlags::NONE,
            blocks: None,
            name: None,
            description: None,
            structured,
            allocation,
        };
        let export = if wishes.export_name {
            self.by_export_name(&wishes.export, export)?
        } else {
            self.by_go(&wishes.export, export)?
        };
        Ok(Client::new(self.stream, export))
    }

    /// An option that may be refused.
    fn wish(
        &mut self,
        option: OptionKind,
        data: &[u8],
    ) -> Result<Option<Vec<OptionReply>>, ClientError> {
        match self.acknowledged(option, data) {
            Ok(replies) => Ok(Some(replies)),
            Err(ClientError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn by_export_name(&mut self, name: &str, export: Export) -> Result<Export, ClientError> {
        self.send(OptionKind::ExportName, name.as_bytes())?;
        let mut answer = [0; 10];
        self.stream.read_exact(&mut answer)?;
        if self.zeroes {
            self.stream.read_exact(&mut [0; EXPORT_NAME_ZEROES])?;
        }
        size_and_flags(export, &answer)
    }

    fn by_go(&mut self, name: &str, mut export: Export) -> Result<Export, ClientError> {
        let mut data = with_len(name);
        let infos = [Info::Name, Info::Description, Info::BlockSize];
        data.extend([0, 3]);
        data.extend(infos.iter().flat_map(|info| info.number().to_be_bytes()));
        let mut told = false;
        for reply in self.acknowledged(OptionKind::Go, &data)? {
            let (info, data) = match (reply.kind, reply.data.split_first_chunk()) {
                (ReplyKind::Info, Some((info, data))) => {
                    (Info::from_number(u16::from_be_bytes(*info)), data)
                }
                _ => {
                    return Err(ClientError::protocol(
                        "a reply to GO that is no information",
                    ));
                }
            };
            match info {
                Info::Export => {
                    export = size_and_flags(export, data)?;
                    told = true;
                }
                Info::Name => export.name = Some(String::from_utf8_lossy(data).into_owned()),
                Info::Description => {
                    export.description = Some(String::from_utf8_lossy(data).into_owned())
                }
                Info::BlockSize => export.blocks = Some(block_sizes(data, export.size)?),
                Info::Other(_) => {}
            }
        }
        if told {
            Ok(export)
        } else {
            Err(ClientError::protocol(
                "GO was acknowledged without a word on the export",
            ))
        }
    }
}

fn with_len(text: &str) -> Vec<u8> {
    let len = u32::try_from(text.len()).unwrap_or(u32::MAX);
    let mut data = len.to_be_bytes().to_vec();
    data.extend(text.as_bytes());
    data
}

fn size_and_flags(export: Export, data: &[u8]) -> Result<Export, ClientError> {
    let (size, flags) = data
        .split_first_chunk()
        .and_then(|(size, flags)| Some((*size, <[u8; 2]>::try_from(flags).ok()?)))
        .ok_or_else(|| ClientError::protocol("size and flags of the export are not ten bytes"))?;
    let flags = ExportFlags::from_bits(u16::from_be_bytes(flags));
    if !flags.has(ExportFlags::HAS_FLAGS) || (flags.has(ExportFlags::SEND_DF) && !export.structured)
    {
        return Err(ClientError::protocol(format!(
            "flags that may not be: {flags:?}"
        )));
    }
    Ok(Export {
        size: u64::from_be_bytes(size),
        flags,
        ..export
    })
}

fn block_sizes(data: &[u8], size: u64) -> Result<BlockSizes, ClientError> {
    let (parts, rest) = data.as_chunks::<4>();
    let &[minimum, preferred, maximum] = parts else {
        return Err(ClientError::protocol("block sizes are not three numbers"));
    };
    let sizes = BlockSizes {
        minimum: u32::from_be_bytes(minimum),
        preferred: u32::from_be_bytes(preferred),
        maximum: u32::from_be_bytes(maximum),
    };
    if !rest.is_empty() || !sizes.are_valid(size) {
        return Err(ClientError::protocol(format!(
            "block sizes that may not be: {sizes:?}"
        )));
    }
    Ok(sizes)
}
