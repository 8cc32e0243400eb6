//! One client: its handshake, then its requests.
//!
//! ```text
//!   stream ──receive──> requests ──hits──────────────────> replies ──send──> stream
//!                          |                                  ^
//!                          |──write taken──> hold ──pause over─┤
//!                          '──miss, flush──> pool ──mailbox────'
//! ```
//!
//! The next step with the stream is one value, `input::Next`; each step (`begin`, `take_in`,
//! `receive_direct`, `throw_away`, `payload_can_go_on`) answers the next one, and `Input::turn` is
//! the one place where it changes:
//!
//! ```text
//!   Head     any other request ─> Head      write ─> Payload      refused write ─> Drop      goodbye ─> Closed
//!   Payload  taken ─> Payload, all ─> Head       failed ─> Drop       the cache cannot ─> Stuck (the rest is with the pool: Head)
//!   Stuck    writer is back ─> Payload, all taken by it ─> Head       failed ─> Drop
//!   Drop     thrown away ─> Drop, all ─> Head (answered)
//!   Closed   end of the stream ─> Ended
//! ```
//!
//! Invariants
//!   1. A connection never blocks and never runs long: a run of it is bounded by `ROUNDS`.
//!   2. A reply that the client does not take holds a place in the table of this connection, and
//!      nothing else: no buffer, no thread, no page, no memory of the cache.
//!   3. A request that waits for the cache holds a place in the pool's queue, and at most one
//!      receive buffer.
//!   4. Memory: [`BYTES`], with room for 32 requests under way; those over that come out of what
//!      all connections share (`Limits::in_flight_more`). Nothing but a place in the table is taken
//!      for a request that the cache can serve at once.
//!   5. However it ends, everything goes back: even a buffer that a thread of the pool still has,
//!      when that thread is done with it.
//!   6. Once it has ended, its requests change the volume no further than the step under way
//!      (`Volume::end`).

mod direct;
mod errors;
mod handshake;
mod hole;
mod input;
mod job;
mod machine;
mod mailbox;
mod paced;
mod peer;
mod prefetch;
mod receive;
mod send;
mod send_batch;
mod table;
mod work;

use core::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use nbd::haggle::{Agreed, Haggle, HaggleError};
use nbd::wire::{Errno, NoRequest};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use self::handshake::Shaken;
use self::machine::Connection;
pub(crate) use self::mailbox::Mailbox;
pub use self::peer::Peer;
use crate::hub::{Hub, Session, Stage};
use crate::log::{debug, info};

/// Memory of one connection with 32 requests under way, bytes: what a server keeps off its memory
/// limit for each that it allows. Measured by `tests/connection_many.rs`.
pub const BYTES: u64 = 24 << 10;

/// Why a connection ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum EndedBy {
    /// The client said that it goes, or closed with nothing under way.
    Client,
    /// The server ends, or does not offer the export any more.
    Server,
    /// There is no place for it.
    Full,
    /// Its address has as many connections as one may have.
    FullOfOne,
    /// Its certificate is not taken any more, or the volume is not for it any more.
    Revoked,
    /// The client closed in the middle of something.
    Vanished,
    /// The handshake took longer than is allowed.
    Slow(Duration),
    /// The stream failed.
    Stream(io::Error),
    /// TLS could not be agreed on.
    Tls(io::Error),
    /// The client does not keep to the protocol in its handshake.
    Haggle(HaggleError),
    /// The client does not keep to the protocol in its requests.
    Request(NoRequest),
    /// A refused write brought more payload than anybody sends in good faith.
    Payload,
    /// The client sent more requests than it may have under way and does not take its replies.
    Overrun,
    /// A read failed after the client was promised its data: there is no way to say that but to
    /// close.
    Late(Errno),
}

impl fmt::Display for EndedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client => f.write_str("the client is done"),
            Self::Server => f.write_str("the server is done"),
            Self::Full => f.write_str("there are too many connections"),
            Self::FullOfOne => f.write_str("its address has as many connections as one may have"),
            Self::Revoked => {
                f.write_str("its certificate, or its right to the volume, was taken away")
            }
            Self::Vanished => f.write_str("the client closed in the middle of something"),
            Self::Slow(allowed) => {
                let seconds = allowed.as_secs_f64();
                write!(f, "the handshake took longer than {seconds} s")
            }
            Self::Stream(error) => write!(f, "the stream failed: {error}"),
            Self::Tls(error) => write!(f, "TLS failed: {error}"),
            Self::Haggle(error) => error.fmt(f),
            Self::Request(error) => error.fmt(f),
            Self::Payload => f.write_str("a refused write brought too much payload"),
            Self::Overrun => f.write_str(
                "more requests than may be under way, from a client that does not take its replies",
            ),
            Self::Late(errno) => {
                write!(f, "a read failed after its reply had begun: {errno}")
            }
        }
    }
}

/// Serves one client until it or the server is done.
pub async fn serve<S>(stream: S, hub: Arc<Hub>) -> EndedBy
where
    S: AsyncRead + AsyncWrite + Peer + Unpin + Send,
{
    let session = match hub.session(&stream) {
        Ok(session) => session,
        Err(refused) => {
            info!(client = %stream.address(), reason = %refused, "connection refused");
            return refused;
        }
    };
    let client = session.address.clone();
    let ended = attend(stream, session)
        .await
        .err()
        .unwrap_or(EndedBy::Client);
    match &ended {
        EndedBy::Client | EndedBy::Server => debug!(client, reason = %ended, "connection ended"),
        EndedBy::Revoked => info!(client, reason = %ended, "connection ended"),
        _ => debug!(client, reason = %ended, "connection broken off"),
    }
    ended
}

async fn attend<S>(mut stream: S, session: Session) -> Result<(), EndedBy>
where
    S: AsyncRead + AsyncWrite + Peer + Unpin + Send,
{
    let hub = Arc::clone(session.hub());
    let allowed = hub.limits().handshake;
    let opened = Opened {
        deadline: tokio::time::Instant::now() + allowed,
        allowed,
        hub,
    };
    let shaken = opened.bound(&session, open(&mut stream, &session)).await;
    match opened.judge(&session, shaken)? {
        Shaken::Left => Ok(()),
        Shaken::Agreed(agreed, rest) => transmit(stream, session, agreed, &rest).await,
        Shaken::Encrypt(haggle) => encrypt(stream, session, haggle, opened).await,
    }
}

async fn open<S>(stream: &mut S, session: &Session) -> Result<Shaken, EndedBy>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let greeting = Haggle::greeting();
    stream.write_all(&greeting).await.map_err(EndedBy::Stream)?;
    handshake::shake(stream, handshake::begin(session.hub()), session).await
}

#[cfg(not(feature = "tls"))]
async fn encrypt<S>(_: S, _: Session, _: Haggle, _: Opened) -> Result<(), EndedBy> {
    unreachable!("encryption is not offered");
}

#[cfg(feature = "tls")]
async fn encrypt<S>(
    stream: S,
    mut session: Session,
    mut haggle: Haggle,
    opened: Opened,
) -> Result<(), EndedBy>
where
    S: AsyncRead + AsyncWrite + Peer + Unpin + Send,
{
    let security = opened.hub.security();
    let acceptor = security.acceptor().ok_or(EndedBy::Server)?;
    let part = async { acceptor.accept(stream).await.map_err(EndedBy::Tls) };
    let encrypted = opened.bound(&session, part).await;
    let mut stream = opened.judge(&session, encrypted)?;
    if let Some((shown, chain)) = stream.certificates() {
        (session.shown, session.chain) = (Some(shown), chain);
    }
    haggle.encrypted();
    let part = handshake::shake(&mut stream, haggle, &session);
    let shaken = opened.bound(&session, part).await;
    match opened.judge(&session, shaken)? {
        Shaken::Agreed(agreed, rest) => transmit(stream, session, agreed, &rest).await,
        // Encrypted twice: the handshake does not let it come to that.
        Shaken::Left | Shaken::Encrypt(_) => Ok(()),
    }
}

/// A handshake under way.
struct Opened {
    hub: Arc<Hub>,
    deadline: tokio::time::Instant,
    allowed: Duration,
}

impl Opened {
    /// Runs a part of the handshake, for as long as it is allowed to take and the server serves.
    async fn bound<T>(
        &self,
        session: &Session,
        part: impl Future<Output = Result<T, EndedBy>>,
    ) -> Result<T, EndedBy> {
        let mut part = pin!(tokio::time::timeout_at(self.deadline, part));
        let mut none = Vec::new();
        poll_fn(|cx| {
            session.mailbox.collect(&mut none, cx.waker());
            if self.hub.stage() != Stage::Serving {
                return Poll::Ready(Err(EndedBy::Server));
            }
            part.as_mut()
                .poll(cx)
                .map(|done| done.unwrap_or(Err(EndedBy::Slow(self.allowed))))
        })
        .await
    }

    /// Counts a handshake that failed, and says who failed it: an operator looks for that when a
    /// client is not let in. Programs that see whether the port is there close it without a word.
    fn judge<T>(&self, session: &Session, shaken: Result<T, EndedBy>) -> Result<T, EndedBy> {
        let (client, failures) = (
            &session.address,
            &self.hub.counters.handshake_failures_total,
        );
        match &shaken {
            Ok(_) | Err(EndedBy::Server) => return shaken,
            Err(ended @ EndedBy::Vanished) => {
                debug!(%client, reason = %ended, "connection broken off");
            }
            Err(ended) => info!(%client, reason = %ended, "connection refused"),
        }
        failures.fetch_add(1, Ordering::Relaxed);
        shaken
    }
}

async fn transmit<S>(
    stream: S,
    session: Session,
    agreed: Box<Agreed>,
    rest: &[u8],
) -> Result<(), EndedBy>
where
    S: AsyncRead + AsyncWrite + Peer + Unpin + Send,
{
    // Withdrawn since it was agreed on.
    let Some(export) = session.hub().find(&agreed.export.name) else {
        return Err(EndedBy::Server);
    };
    let mut connection = Box::new(Connection::new(stream, session, export, agreed, rest));
    poll_fn(|cx| connection.poll(cx)).await
}
