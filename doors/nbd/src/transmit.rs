//! Judges a request: the work it asks for, or the reason of its refusal, before anything is done
//! for it.
//!
//! A pure function of the request and of what was agreed on. The task that carries the work out
//! need not look at flags, ends of the export or alignment again.
//!
//! ```text
//!   request ──judge──> Work        carry it out; a write's payload of `len` bytes follows in the stream
//!                └───> Refusal     throw its payload away, as `payload` says, then answer with `errno`
//! ```
//!
//! Invariants
//!   1. A range of a `Work` lies inside the export, is not empty, and is cut as the agreed block
//!      sizes ask.
//!   2. `Work::Write` and `Refusal::payload` together account for every byte of payload: the stream
//!      stays in step.
//!   3. A change of data is never a `Work` on a read-only export.
//!
//! Source: the specification, "Command flags", "Request types", "Error values", "Block size
//! constraints". Choices it leaves open: a length of zero does nothing and succeeds, but for a
//! block status (whose answer has at least one byte) which is EINVAL; flags and fields of a
//! disconnect are ignored, as it has no answer.
//! Deviations: zeroes longer than the maximum block size are let pass (it SHOULD be EINVAL):
//! clients send them.

use core::fmt;

use crate::haggle::Agreed;
use crate::wire::{Command, CommandFlags, Errno, ExportFlags, Request};

/// Bounds on requests beside those that were announced as block sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most payload of a refused write that is read to be thrown away, bytes; more of it ends
    /// the connection. The specification asks for at least `PAYLOAD_USUAL`.
    pub discard_max: u32,
    /// The longest read that is answered in one piece when it asks for that, bytes; at least
    /// `UNFRAGMENTED_MIN`.
    pub unfragmented_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // Most that libnbd's clients send.
            discard_max: 64 << 20,
            unfragmented_max: u32::MAX,
        }
    }
}

/// A range of the export that is not empty and lies inside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Its first byte.
    pub offset: u64,
    /// Bytes; not zero.
    pub len: u32,
}

/// The work that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Answer with data.
    Read {
        /// Which.
        range: Range,
        /// In one content chunk.
        unfragmented: bool,
    },
    /// Take the payload that follows.
    Write {
        /// Its destination.
        range: Range,
        /// Answer when it is durable.
        durable: bool,
    },
    /// Answer when everything that was answered is durable.
    Flush,
    /// The data is no longer needed.
    Trim {
        /// Which.
        range: Range,
        /// Answer when that is durable.
        durable: bool,
    },
    /// It will be read.
    Cache {
        /// Which.
        range: Range,
    },
    /// It is to read as zeroes.
    Zero {
        /// Which.
        range: Range,
        /// Answer when that is durable.
        durable: bool,
        /// It must keep its space.
        keep: bool,
        /// Fail with `Errno::NotSupported` if it takes as long as writing it.
        fast: bool,
    },
    /// Tell what of it is a hole.
    Status {
        /// Which.
        range: Range,
        /// Tell of one extent only, and of nothing behind the range.
        one: bool,
    },
    /// Nothing: answer that it succeeded.
    Nothing,
    /// Finish what is under way, and close; there is no answer.
    Disconnect,
}

/// The fate of the payload behind a refused request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// There is none.
    None,
    /// This many bytes have to be read and thrown away; then the answer is due.
    Discard(u32),
    /// More than anyone sends in good faith: answer nothing, and close.
    HangUp,
}

/// Why a request is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The error that the client is told.
    pub errno: Errno,
    /// The same in words.
    pub why: &'static str,
    /// The payload that follows in the stream.
    pub payload: Payload,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.errno, self.why)
    }
}

impl core::error::Error for Refusal {}

/// The work that `request` asks for on an export as it was `agreed` on.
///
/// # Errors
/// `Refusal`, with the number that the specification has for it.
pub fn judge(request: &Request, agreed: &Agreed, limits: &Limits) -> Result<Work, Refusal> {
    decide(request, agreed, limits).map_err(|(errno, why)| Refusal {
        errno,
        why,
        payload: match request.payload() {
            0 => Payload::None,
            len if len > limits.discard_max => Payload::HangUp,
            len => Payload::Discard(len),
        },
    })
}

type No = (Errno, &'static str);

fn decide(request: &Request, agreed: &Agreed, limits: &Limits) -> Result<Work, No> {
    let flags = request.flags;
    if request.command == Command::Disconnect {
        return Ok(Work::Disconnect);
    }
    offered(request.command, agreed)?;
    allowed(request, agreed)?;
    if request.command == Command::Flush {
        if request.offset != 0 || request.len != 0 {
            return Err((Errno::Invalid, "a flush has no range"));
        }
        return Ok(Work::Flush);
    }
    let range = Range {
        offset: request.offset,
        len: request.len,
    };
    fits(request.command, range, agreed)?;
    sized(request, agreed)?;
    let durable = flags.has(CommandFlags::FUA);
    let one = flags.has(CommandFlags::REQ_ONE);
    if range.len == 0 {
        return match request.command {
            Command::BlockStatus => {
                Err((Errno::Invalid, "a block status of no bytes has no answer"))
            }
            _ => Ok(Work::Nothing),
        };
    }
    Ok(match request.command {
        Command::Read => {
            let unfragmented = flags.has(CommandFlags::DF);
            if unfragmented && range.len > limits.unfragmented_max {
                return Err((Errno::Overflow, "too long to be answered in one piece"));
            }
            Work::Read {
                range,
                unfragmented,
            }
        }
        Command::Write => Work::Write { range, durable },
        Command::Trim => Work::Trim { range, durable },
        Command::Cache => Work::Cache { range },
        Command::WriteZeroes => Work::Zero {
            range,
            durable,
            keep: flags.has(CommandFlags::NO_HOLE),
            fast: flags.has(CommandFlags::FAST_ZERO),
        },
        Command::BlockStatus => Work::Status { range, one },
        Command::Flush => Work::Flush,
        Command::Disconnect => Work::Disconnect,
        Command::Other(_) => return Err(UNKNOWN),
    })
}

const UNKNOWN: No = (Errno::Invalid, "this command is not known here");

/// Checks that the client was told that the command may be sent, and that the export may be
/// changed.
fn offered(command: Command, agreed: &Agreed) -> Result<(), No> {
    let needed = match command {
        Command::Read | Command::Write | Command::Disconnect => ExportFlags::NONE,
        Command::Flush => ExportFlags::SEND_FLUSH,
        Command::Trim => ExportFlags::SEND_TRIM,
        Command::Cache => ExportFlags::SEND_CACHE,
        Command::WriteZeroes => ExportFlags::SEND_WRITE_ZEROES,
        Command::BlockStatus if agreed.allocation.is_none() => {
            return Err((Errno::Invalid, "no context was selected in the handshake"));
        }
        Command::BlockStatus => ExportFlags::NONE,
        Command::Other(_) => return Err(UNKNOWN),
    };
    let changes = matches!(
        command,
        Command::Write | Command::Trim | Command::WriteZeroes
    );
    if changes && agreed.flags.has(ExportFlags::READ_ONLY) {
        return Err((Errno::NotPermitted, "the export is read-only"));
    }
    if agreed.flags.has(needed) {
        Ok(())
    } else {
        Err((Errno::Invalid, "the export does not offer this command"))
    }
}

/// Checks that each flag is known, offered, and one of this command's.
fn allowed(request: &Request, agreed: &Agreed) -> Result<(), No> {
    let flags = request.flags;
    if !flags
        .without(CommandFlags::ALL.without(CommandFlags::PAYLOAD_LEN))
        .is_empty()
    {
        return Err((Errno::Invalid, "a command flag is not known here"));
    }
    let offered = |flag: ExportFlags| agreed.flags.has(flag);
    // A flag that makes a write durable is let pass on every command: clients are known to set it
    // on others too.
    let own = match request.command {
        Command::Read => {
            CommandFlags::NONE.with_if(offered(ExportFlags::SEND_DF), CommandFlags::DF)
        }
        Command::WriteZeroes => CommandFlags::NO_HOLE.with_if(
            offered(ExportFlags::SEND_FAST_ZERO),
            CommandFlags::FAST_ZERO,
        ),
        Command::BlockStatus => CommandFlags::REQ_ONE,
        Command::Write
        | Command::Disconnect
        | Command::Flush
        | Command::Trim
        | Command::Cache
        | Command::Other(_) => CommandFlags::NONE,
    };
    let own = own.with_if(offered(ExportFlags::SEND_FUA), CommandFlags::FUA);
    if flags.without(own).is_empty() {
        Ok(())
    } else {
        Err((
            Errno::Invalid,
            "a command flag is not one of this command's, or was not offered",
        ))
    }
}

/// Checks that the range lies inside the export.
fn fits(command: Command, range: Range, agreed: &Agreed) -> Result<(), No> {
    let end = range.offset.checked_add(u64::from(range.len));
    if end.is_some_and(|end| end <= agreed.export.size) {
        return Ok(());
    }
    let errno = match command {
        Command::Write | Command::WriteZeroes => Errno::NoSpace,
        _ => Errno::Invalid,
    };
    Err((errno, "the range goes beyond the end of the export"))
}

/// Checks that the range is cut as the block sizes ask.
fn sized(request: &Request, agreed: &Agreed) -> Result<(), No> {
    let Request {
        command,
        offset,
        len,
        ..
    } = *request;
    let blocks = agreed.export.blocks;
    // A minimum of zero would be a bug of the server's settings; it then asks for nothing.
    let minimum = u64::from(blocks.minimum.max(1));
    if !offset.is_multiple_of(minimum) || !u64::from(len).is_multiple_of(minimum) {
        return Err((
            Errno::Invalid,
            "the range is not aligned to the minimum block size",
        ));
    }
    // A request without a payload is as cheap when it is long; nbdcopy sends all zeroes of a hole
    // in one request.
    let bounded = matches!(command, Command::Read | Command::Write | Command::Cache);
    if bounded && len > blocks.maximum {
        return Err((Errno::Invalid, "longer than the maximum block size"));
    }
    if command == Command::Read && len > READ_MAX {
        return Err((Errno::Invalid, "too long for a chunk of a reply"));
    }
    Ok(())
}

/// The data and its offset have to fit the length of a chunk.
const READ_MAX: u32 = u32::MAX - 8;

#[cfg(test)]
mod tests;
