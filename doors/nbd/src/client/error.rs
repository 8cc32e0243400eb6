//! Errors of a client.

use std::fmt;
use std::io;

use crate::wire::{Errno, OptionKind, ReplyKind};

/// A request that the server refused or could not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Why.
    pub errno: Errno,
    /// The same in the server's words; empty if it had none.
    pub message: String,
    /// Where, if it said.
    pub offset: Option<u64>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.errno)?;
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        if let Some(offset) = self.offset {
            write!(f, " (at {offset})")?;
        }
        Ok(())
    }
}

/// Why a call of a client failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// The stream failed. A timeout counts too, and leaves the stream out of step.
    Io(io::Error),
    /// The server closed the connection.
    Closed,
    /// Nothing is under way, so nothing can be received.
    NothingSubmitted,
    /// The server refused an option; another one may be tried.
    Refused {
        /// Which.
        option: OptionKind,
        /// The refusal.
        reply: ReplyKind,
        /// The same in the server's words.
        message: String,
    },
    /// A request failed; the next one may be made.
    Failed(Failure),
    /// The server said something that the specification does not allow.
    Protocol(String),
}

impl ClientError {
    pub(super) fn protocol(what: impl Into<String>) -> Self {
        Self::Protocol(what.into())
    }

    /// The number of a failed request.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Failed(failure) => Some(failure.errno),
            _ => None,
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the connection failed: {error}"),
            Self::Closed => f.write_str("the server closed the connection"),
            Self::NothingSubmitted => f.write_str("no request is under way"),
            Self::Refused {
                option,
                reply,
                message,
            } => {
                write!(f, "the server refused option {option:?} with {reply:?}")?;
                if message.is_empty() {
                    Ok(())
                } else {
                    write!(f, ": {message}")
                }
            }
            Self::Failed(failure) => write!(f, "the request failed: {failure}"),
            Self::Protocol(what) => write!(f, "the server does not keep to the protocol: {what}"),
        }
    }
}

impl std::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

impl From<ClientError> for io::Error {
    fn from(error: ClientError) -> Self {
        let kind = match &error {
            ClientError::Io(inner) => inner.kind(),
            ClientError::Closed => io::ErrorKind::UnexpectedEof,
            ClientError::NothingSubmitted => io::ErrorKind::InvalidInput,
            ClientError::Refused { .. } => io::ErrorKind::ConnectionRefused,
            ClientError::Failed(failure) => match failure.errno {
                Errno::NotPermitted => io::ErrorKind::PermissionDenied,
                Errno::NoMemory => io::ErrorKind::OutOfMemory,
                Errno::Invalid | Errno::Overflow => io::ErrorKind::InvalidInput,
                Errno::NoSpace => io::ErrorKind::StorageFull,
                Errno::NotSupported => io::ErrorKind::Unsupported,
                Errno::Io | Errno::Shutdown => io::ErrorKind::Other,
            },
            ClientError::Protocol(_) => io::ErrorKind::InvalidData,
        };
        Self::new(kind, error)
    }
}
