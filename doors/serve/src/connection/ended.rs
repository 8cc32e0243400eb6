//! The end of a connection.

use std::io;
use std::time::Duration;

use nbd::haggle::HaggleError;
use nbd::wire::{Errno, NoRequest};

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndedBy {
    /// The client said that it goes, or closed with nothing under way.
    #[error("the client is done")]
    Client,
    /// The server ends, or does not offer the export any more.
    #[error("the server is done")]
    Server,
    /// There is no place for it.
    #[error("there are too many connections")]
    Full,
    /// Its address has as many connections as one may have.
    #[error("its address has as many connections as one may have")]
    FullOfOne,
    /// Its certificate is not taken any more, or the volume is not for it any more.
    #[error("its certificate, or its right to the volume, was taken away")]
    Revoked,
    /// The client closed in the middle of something.
    #[error("the client closed in the middle of something")]
    Vanished,
    /// The handshake took longer than is allowed.
    #[error("the handshake took longer than {} s", .0.as_secs_f64())]
    Slow(Duration),
    /// The stream failed.
    #[error("the stream failed: {0}")]
    Stream(io::Error),
    /// TLS could not be agreed on.
    #[error("TLS failed: {0}")]
    Tls(io::Error),
    /// The client does not keep to the protocol in its handshake.
    #[error("{0}")]
    Haggle(HaggleError),
    /// The client does not keep to the protocol in its requests.
    #[error("{0}")]
    Request(NoRequest),
    /// A refused write brought more payload than anybody sends in good faith.
    #[error("a refused write brought too much payload")]
    Payload,
    /// The client sent more requests than it may have under way and does not take its replies.
    #[error("more requests than may be under way, from a client that does not take its replies")]
    Overrun,
    /// A read failed after the client was promised its data: there is no way to say that but to
    /// close.
    #[error("a read failed after its reply had begun: {0}")]
    Late(Errno),
}
