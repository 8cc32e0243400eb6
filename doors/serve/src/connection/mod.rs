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
//!   4. Memory: `limits::CONNECTION_BYTES`, with room for 32 requests under way; those over that
//!      come out of what all connections share (`Limits::in_flight_more`). Nothing but a place in
//!      the table is taken for a request that the cache can serve at once.
//!   5. However it ends, everything goes back: even a buffer that a thread of the pool still has,
//!      when that thread is done with it.
//!   6. Once it has ended, its requests change the volume no further than the step under way
//!      (`Volume::end`).

mod direct;
pub(crate) mod ended;
mod errors;
mod handshake;
mod hole;
mod input;
mod machine;
mod output;
mod paced;
pub(crate) mod peer;
mod prefetch;
mod receive;
mod send;
mod send_batch;
mod table;
mod work;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use nbd::haggle::{Agreed, Haggle};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

pub use self::ended::EndedBy;
use self::handshake::Shaken;
use self::machine::Connection;
pub use self::peer::Peer;
use crate::hub::{Hub, Session, Stage};
use crate::log::{debug, info};

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
