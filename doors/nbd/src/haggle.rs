//! The server's side of the handshake.
//!
//! Decides what each option of a client is answered with, until both sides agree on an export or
//! part. Bytes go in as they come off the socket, in pieces of any size; replies are appended to
//! the caller's buffer.
//!
//! ```text
//!   greeting ──> client's flags ──> option ──> option ──> ... ──> GO or EXPORT_NAME ──> Transmit
//!                                     |  ^
//!                            STARTTLS v  | encrypted(): everything agreed on before is forgotten
//!                                  StartTls
//! ```
//!
//! Vocabulary: *option*, a client's question; *export*, a volume offered under a name; *context*, a
//! kind of status that `Command::BlockStatus` can tell of; there is one, `base:allocation`.
//!
//! Invariants
//!   1. Memory is bounded: by `OPTION_MAX` for what was received of an option, and by the answers
//!      to one option for what is appended in one call.
//!   2. With `Encryption::Required` nothing that depends on the exports is said before the
//!      connection is encrypted.
//!   3. Bytes that arrive in the clear behind STARTTLS are never interpreted: an attacker could
//!      have put them there, and not the client that is about to prove its identity.
//!   4. Every option that can have an answer gets one; any other ends the connection with an error
//!      that says why.
//!
//! Source: the specification, "Fixed newstyle negotiation", "Termination of the session during
//! option haggling", "TLS support", "Metadata querying", "Option types".
//! Deviations: LIST_META_CONTEXT too needs structured replies (it MAY be refused without); a
//! context stays selected if the export is asked for under another name than the one it was
//! selected with, as long as both are one export.

mod options;

use core::fmt;

use options::Answer;
pub use options::{ALLOCATION, ALLOCATION_ID};

use crate::wire::{
    BlockSizes, ClientFlags, ExportFlags, Greeting, HandshakeFlags, OPTION_HEAD, OptionHead,
    OptionKind, ReplyKind, STRING_MAX, greeting,
};

/// The longest option that is taken in, bytes of data; a longer one is skipped and answered with
/// TOO_BIG. Two strings of full length and some numbers fit.
pub const OPTION_MAX: u32 = 10 << 10;
/// The longest option that is skipped, bytes of data; a longer one ends the connection.
pub const OPTION_SKIP_MAX: u32 = 1 << 20;
/// The most queries in an option about contexts.
pub const QUERIES_MAX: u32 = 64;

/// A server's stance on encryption ("TLS support").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// It has none.
    None,
    /// A client may ask for it.
    Offered,
    /// Nothing is said without it.
    Required,
}

/// The rules of a server in a handshake.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Its stance on encryption.
    pub encryption: Encryption,
    /// The most options of a connection. `qemu-nbd --list` asks up to three for each export.
    pub options_max: u32,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            encryption: Encryption::None,
            options_max: 1024,
        }
    }
}

/// A volume as it is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    /// Its own name, whatever it was found by; at most `STRING_MAX` bytes.
    pub name: String,
    /// Its description, for a human; may be empty; at most `STRING_MAX` bytes.
    pub description: String,
    /// Bytes.
    pub size: u64,
    /// Its abilities. `SEND_DF` is told to clients with structured replies only.
    pub flags: ExportFlags,
    /// The block sizes to which requests have to be cut.
    pub blocks: BlockSizes,
}

/// Why there is no export for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// There is none of that name.
    Unknown,
    /// The server is about to end.
    ShuttingDown,
    /// There is one, and it may not be used now; says why.
    NotNow(&'static str),
}

/// The exports that a server offers.
pub trait Exports {
    /// The export called `name`; the empty name asks for the default export.
    ///
    /// # Errors
    /// Why there is none.
    fn find(&self, name: &str) -> Result<ExportInfo, Missing>;

    /// Calls `each` with the name and the description of each export.
    fn list(&self, each: &mut dyn FnMut(&str, &str));
}

/// The agreement of both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The export, as `Exports::find` told of it.
    pub export: ExportInfo,
    /// The abilities that the client was told.
    pub flags: ExportFlags,
    /// Replies come in chunks.
    pub structured: bool,
    /// The number under which `base:allocation` was selected.
    pub allocation: Option<u32>,
    /// The client asked for the block sizes, so it has promised to keep to them.
    pub blocks_promised: bool,
}

/// The next step after a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send the replies; feed what was not consumed, or what comes next.
    More,
    /// Send the replies; then go on in TLS, and call `encrypted` before the next byte is fed.
    StartTls,
    /// Send the replies; the unconsumed bytes are the first request.
    Transmit(Box<Agreed>),
    /// Send the replies and close: the client has asked for it.
    Disconnect,
}

/// Why a handshake cannot go on: close the connection; there is nothing to say to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HaggleError {
    /// The client set flags that were not offered. A client that begins with a request speaks
    /// oldstyle.
    ClientFlags {
        /// All it set.
        flags: u32,
    },
    /// The bytes where an option should begin are no option.
    NoOption {
        /// The number in place of the magic one.
        magic: u64,
    },
    /// The option is too long even to be skipped.
    OptionTooLong {
        /// Which one.
        option: OptionKind,
        /// Bytes of data.
        len: u32,
    },
    /// More options than `Rules::options_max`.
    TooManyOptions {
        /// The limit.
        max: u32,
    },
    /// A client without fixed newstyle sent another option than EXPORT_NAME.
    NotFixed {
        /// Which one.
        option: OptionKind,
    },
    /// EXPORT_NAME, which has no negative answer, for an export that is not available.
    NoExport {
        /// Its name, as far as it can be shown.
        name: String,
        /// Why.
        why: Missing,
    },
    /// EXPORT_NAME with what is no name: too long, not UTF-8, or with a zero in it.
    NoName {
        /// Bytes of it.
        len: u32,
    },
    /// EXPORT_NAME, which has no negative answer, before the connection was encrypted.
    EncryptionRequired,
    /// Bytes in the clear behind STARTTLS.
    ClearText {
        /// Their number, of those that were fed together.
        bytes: usize,
    },
    /// The handshake had ended, or had failed.
    Over,
}

impl fmt::Display for HaggleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClientFlags { flags } if *flags == crate::wire::REQUEST_MAGIC => {
                f.write_str("the client sent a request instead of a handshake: it speaks oldstyle, which is not served")
            }
            Self::ClientFlags { flags } => write!(f, "the client set flags that were not offered: {flags:#x}"),
            Self::NoOption { magic } => write!(f, "no option: it begins with {magic:#018x}"),
            Self::OptionTooLong { option, len } => {
                write!(f, "option {option:?} has {len} bytes; more than {OPTION_SKIP_MAX} are not even skipped")
            }
            Self::TooManyOptions { max } => write!(f, "more than {max} options on one connection"),
            Self::NotFixed { option } => {
                write!(f, "option {option:?} of a client that does not speak fixed newstyle")
            }
            Self::NoExport { name, why } => match why {
                Missing::Unknown => write!(f, "there is no export {name:?}"),
                Missing::ShuttingDown => write!(f, "export {name:?} is not served any more: the server is shutting down"),
                Missing::NotNow(why) => write!(f, "export {name:?} is not available: {why}"),
            },
            Self::NoName { len } => write!(
                f,
                "EXPORT_NAME with {len} bytes that are no name (at most {STRING_MAX} bytes of UTF-8, none zero)"
            ),
            Self::EncryptionRequired => f.write_str("EXPORT_NAME without TLS, which is required"),
            Self::ClearText { bytes } => {
                write!(f, "{bytes} bytes in the clear after STARTTLS: they were not looked at")
            }
            Self::Over => f.write_str("the handshake is over"),
        }
    }
}

impl core::error::Error for HaggleError {}

/// The phase of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The client's flags come next.
    Flags,
    /// The head of an option comes next.
    Head,
    /// Data of an option comes next.
    Data(OptionHead),
    /// Data that is thrown away comes next, this many bytes of it; then the answer is this.
    Skip(OptionHead, u32, ReplyKind, &'static str),
    /// TLS comes next, and not to us.
    Upgrade,
    /// Nothing comes next.
    Over,
}

/// The options settled so far.
#[derive(Clone, Debug, Default)]
struct Settled {
    structured: bool,
    /// The export that contexts were selected for, and `base:allocation` was among them.
    allocation_of: Option<String>,
}

/// One handshake.
#[derive(Debug)]
pub struct Haggle {
    rules: Rules,
    phase: Phase,
    /// Received of what `phase` waits for, if it came in pieces.
    held: Vec<u8>,
    client: ClientFlags,
    encrypted: bool,
    options: u32,
    settled: Settled,
}

impl Haggle {
    /// A handshake that has not begun; the server sends `greeting` first.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            phase: Phase::Flags,
            held: Vec::new(),
            client: ClientFlags::NONE,
            encrypted: false,
            options: 0,
            settled: Settled::default(),
        }
    }

    /// The server's first bytes.
    #[must_use]
    pub fn greeting() -> Greeting {
        greeting(HandshakeFlags::ALL)
    }

    /// True if the connection is encrypted by now.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.encrypted
    }

    /// Bytes received of what is not complete yet.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// The connection has been encrypted after `Step::StartTls`. Options agreed on in the clear are
    /// forgotten.
    ///
    /// # Panics
    /// If the last step was not `StartTls`: a caller's bug.
    pub fn encrypted(&mut self) {
        assert_eq!(
            self.phase,
            Phase::Upgrade,
            "only STARTTLS leads to encryption"
        );
        self.phase = Phase::Head;
        self.encrypted = true;
        self.settled = Settled::default();
    }

    /// Takes bytes of the client and appends the replies to `out`.
    ///
    /// Answers how many bytes were consumed, and what is to be done. One call answers at most one
    /// option: as long as bytes are left and the step is `More`, send `out` and feed the rest.
    ///
    /// # Errors
    /// The connection has to be closed; `out` has what can still be sent, which is nothing for most
    /// errors.
    pub fn feed(
        &mut self,
        input: &[u8],
        exports: &dyn Exports,
        out: &mut Vec<u8>,
    ) -> Result<(usize, Step), HaggleError> {
        let mut rest = input;
        let step = self.step(&mut rest, exports, out);
        if step.is_err() {
            self.phase = Phase::Over;
        }
        Ok((input.len() - rest.len(), step?))
    }

    fn step(
        &mut self,
        rest: &mut &[u8],
        exports: &dyn Exports,
        out: &mut Vec<u8>,
    ) -> Result<Step, HaggleError> {
        loop {
            match self.phase {
                Phase::Flags => {
                    let Some(bytes) = self.gather::<4>(rest) else {
                        return Ok(Step::More);
                    };
                    self.on_flags(u32::from_be_bytes(bytes))?;
                }
                Phase::Head => {
                    let Some(bytes) = self.gather::<OPTION_HEAD>(rest) else {
                        return Ok(Step::More);
                    };
                    let head = OptionHead::parse(&bytes)
                        .map_err(|magic| HaggleError::NoOption { magic })?;
                    self.phase = self.on_head(head)?;
                }
                Phase::Data(head) => {
                    let wanted = head.len as usize;
                    let Some(data) = take(&mut self.held, rest, wanted) else {
                        return Ok(Step::More);
                    };
                    self.phase = Phase::Head;
                    let step = self.on_option(head.kind, &data, exports, out)?;
                    return self.after(step, rest.len());
                }
                Phase::Skip(head, left, kind, message) => {
                    let now = rest.len().min(left as usize);
                    *rest = &rest[now..];
                    // `now` is at most `left`.
                    let left = left - u32::try_from(now).unwrap_or(left);
                    if left > 0 {
                        self.phase = Phase::Skip(head, left, kind, message);
                        return Ok(Step::More);
                    }
                    self.phase = Phase::Head;
                    Answer::new(head.kind, out).refuse(kind, message);
                    let step = match head.kind {
                        OptionKind::Abort => Step::Disconnect,
                        _ => Step::More,
                    };
                    return self.after(step, rest.len());
                }
                Phase::Upgrade if rest.is_empty() => return Ok(Step::StartTls),
                Phase::Upgrade => return Err(HaggleError::ClearText { bytes: rest.len() }),
                Phase::Over => return Err(HaggleError::Over),
            }
        }
    }

    /// The phase after an option was answered; `left` bytes behind it have been fed already.
    fn after(&mut self, step: Step, left: usize) -> Result<Step, HaggleError> {
        match step {
            Step::More => {}
            Step::StartTls if left > 0 => return Err(HaggleError::ClearText { bytes: left }),
            Step::StartTls => self.phase = Phase::Upgrade,
            Step::Transmit(_) | Step::Disconnect => self.phase = Phase::Over,
        }
        Ok(step)
    }

    fn on_flags(&mut self, bits: u32) -> Result<(), HaggleError> {
        let flags = ClientFlags::from_bits(bits);
        if !flags.without(ClientFlags::ALL).is_empty() {
            return Err(HaggleError::ClientFlags { flags: bits });
        }
        self.client = flags;
        self.phase = Phase::Head;
        Ok(())
    }

    /// Judges an option by its head alone: what of its data is worth having.
    fn on_head(&mut self, head: OptionHead) -> Result<Phase, HaggleError> {
        let OptionHead { kind, len } = head;
        self.options += 1;
        if self.options > self.rules.options_max {
            return Err(HaggleError::TooManyOptions {
                max: self.rules.options_max,
            });
        }
        if kind != OptionKind::ExportName && !self.client.has(ClientFlags::FIXED_NEWSTYLE) {
            return Err(HaggleError::NotFixed { option: kind });
        }
        if len > OPTION_SKIP_MAX {
            return Err(HaggleError::OptionTooLong { option: kind, len });
        }
        let closed = self.rules.encryption == Encryption::Required && !self.encrypted;
        let refusal = match kind {
            OptionKind::ExportName if closed => return Err(HaggleError::EncryptionRequired),
            OptionKind::ExportName if len as usize > STRING_MAX => {
                return Err(HaggleError::NoName { len });
            }
            OptionKind::ExportName => None,
            // Its data is ignored, whatever it is.
            OptionKind::Abort => Some((ReplyKind::Ack, "")),
            OptionKind::StartTls => self.refuse_encryption(len),
            _ if closed => Some((
                ReplyKind::TlsRequired,
                "TLS is required here: STARTTLS first",
            )),
            OptionKind::Other(_) => Some((ReplyKind::Unsupported, "this option is not known here")),
            OptionKind::List | OptionKind::StructuredReply => {
                (len > 0).then_some((ReplyKind::Invalid, "this option has no data"))
            }
            OptionKind::ListMetaContext | OptionKind::SetMetaContext
                if !self.settled.structured =>
            {
                Some((
                    ReplyKind::Invalid,
                    "contexts need structured replies: ask for those first",
                ))
            }
            OptionKind::Info
            | OptionKind::Go
            | OptionKind::ListMetaContext
            | OptionKind::SetMetaContext => {
                if kind == OptionKind::SetMetaContext {
                    // In any case, the selection before it is void.
                    self.settled.allocation_of = None;
                }
                (len > OPTION_MAX).then_some((ReplyKind::TooBig, "the option is too long"))
            }
        };
        Ok(match refusal {
            None => Phase::Data(head),
            Some((reply, message)) => Phase::Skip(head, len, reply, message),
        })
    }

    fn refuse_encryption(&self, len: u32) -> Option<(ReplyKind, &'static str)> {
        if self.rules.encryption == Encryption::None {
            Some((ReplyKind::Policy, "TLS is not set up on this server"))
        } else if self.encrypted {
            Some((ReplyKind::Invalid, "the connection is encrypted already"))
        } else if len > 0 {
            Some((ReplyKind::Invalid, "STARTTLS has no data"))
        } else {
            None
        }
    }

    /// Exactly `N` bytes, if they are there by now.
    fn gather<const N: usize>(&mut self, rest: &mut &[u8]) -> Option<[u8; N]> {
        let bytes = take(&mut self.held, rest, N)?;
        <[u8; N]>::try_from(bytes.as_ref()).ok()
    }
}

/// Exactly `wanted` bytes from what was held and `rest`, if they are there by now; else all of
/// `rest` is held.
fn take<'a>(
    held: &mut Vec<u8>,
    rest: &mut &'a [u8],
    wanted: usize,
) -> Option<std::borrow::Cow<'a, [u8]>> {
    let missing = wanted - held.len().min(wanted);
    if rest.len() < missing {
        held.extend_from_slice(rest);
        *rest = &[];
        return None;
    }
    let (now, later) = rest.split_at(missing);
    *rest = later;
    if held.is_empty() {
        return Some(now.into());
    }
    held.extend_from_slice(now);
    Some(std::mem::take(held).into())
}

#[cfg(test)]
mod tests;
