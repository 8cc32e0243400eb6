//! Connections of HTTP clients: how many, how long, how much they may send.
//!
//! ```text
//!   waits for a request ──(10 s from its arrival or the last answer, 16 KiB)──> is answered ──(5 s without progress)──> ...
//! ```
//! When all seats are taken, a newcomer gets the seat of the connection that was silent longest;
//! connections that listen to events keep theirs. So any number of clients that connect and say
//! nothing keep nobody out.
//!
//! While the clock shows a time that HTTP has no date for, `undated.rs` answers.
//!
//! Invariants
//!   1. At most `SEATS` connections.
//!   2. A connection whose client neither sends a whole request nor takes its answer ends.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep_until};

use super::undated;

/// Connections at once.
pub(super) const SEATS: usize = 32;
/// Bytes that a client may send before it is answered.
pub(super) const REQUEST_MAX: usize = 16 << 10;
/// For a request to arrive, from the connection or the answer before.
pub(super) const REQUEST_TIME: Duration = Duration::from_secs(10);
/// Without a byte of an answer being taken.
pub(super) const ANSWER_TIME: Duration = Duration::from_secs(5);
/// After an error of `accept`: no descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Takes connections.
pub(super) struct Door {
    listener: TcpListener,
    free: Arc<Semaphore>,
    seats: Seats,
    began: Instant,
    /// Answers connections when HTTP has no date.
    router: Router,
    clock: fn() -> SystemTime,
}

type Seats = Arc<Mutex<Vec<Arc<State>>>>;

/// A connection as others see it.
#[derive(Default)]
struct State {
    /// When its client last did something, in milliseconds since the door was opened.
    active: AtomicU64,
    /// It listens to events: silence is its nature.
    listens: AtomicBool,
    /// Somebody else gets its seat.
    unseated: AtomicBool,
    waker: Mutex<Option<Waker>>,
    /// The answer under way is the last one: it has to be taken as soon as a request would have to
    /// arrive.
    is_last: AtomicBool,
    /// Given back when the connection ends.
    holds: Mutex<Option<OwnedSemaphorePermit>>,
}

/// A connection, for the handlers of its requests.
#[derive(Clone)]
pub(super) struct Seat(Arc<State>);

impl Seat {
    /// It is going to listen to events.
    pub(super) fn listens(&self) {
        self.0.listens.store(true, Ordering::Relaxed);
    }

    /// The connection ends after the answer to come, and then gives `permit` back.
    pub(super) fn is_the_last_answer(&self, permit: OwnedSemaphorePermit) {
        *lock(&self.0.holds) = Some(permit);
        self.0.is_last.store(true, Ordering::Relaxed);
    }
}

impl Connected<IncomingStream<'_, Door>> for Seat {
    fn connect_info(stream: IncomingStream<'_, Door>) -> Self {
        Self(Arc::clone(&stream.io().state))
    }
}

impl Door {
    pub(super) fn new(listener: TcpListener, router: Router, clock: fn() -> SystemTime) -> Self {
        Self {
            listener,
            free: Arc::new(Semaphore::new(SEATS)),
            seats: Seats::default(),
            began: Instant::now(),
            router,
            clock,
        }
    }

    /// A seat for a newcomer, if need be that of the connection that was silent longest.
    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
            return Some(permit);
        }
        {
            let seats = lock(&self.seats);
            let silent = seats
                .iter()
                .filter(|seat| !seat.listens.load(Ordering::Relaxed));
            let oldest = silent.min_by_key(|seat| seat.active.load(Ordering::Relaxed))?;
            oldest.unseated.store(true, Ordering::Release);
            if let Some(waker) = lock(&oldest.waker).take() {
                waker.wake();
            }
        }
        Arc::clone(&self.free).acquire_owned().await.ok()
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Listener for Door {
    type Io = Connection;
    type Addr = std::net::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(_) => {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            // Everybody listens, or is just being answered: the newcomer is turned away.
            let Ok(Some(permit)) = tokio::time::timeout(ANSWER_TIME, self.permit()).await else {
                continue;
            };
            let state = Arc::new(State::default());
            lock(&self.seats).push(Arc::clone(&state));
            let connection = Connection {
                stream,
                state,
                seats: Arc::clone(&self.seats),
                began: self.began,
                received: 0,
                request: Box::pin(sleep_until(Instant::now() + REQUEST_TIME)),
                answer: None,
                _permit: permit,
            };
            connection.note();
            if undated::has_date((self.clock)()) {
                return (connection, address);
            }
            let seat = Seat(Arc::clone(&connection.state));
            tokio::spawn(undated::answer(connection, seat, self.router.clone()));
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// A connection with its deadlines.
pub(super) struct Connection {
    stream: TcpStream,
    state: Arc<State>,
    seats: Seats,
    began: Instant,
    /// Bytes of a request that is not yet being answered.
    received: usize,
    /// When the request has to be there.
    request: Pin<Box<Sleep>>,
    /// When the client has to have taken something; `None`: it takes what it is sent.
    answer: Option<Pin<Box<Sleep>>>,
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    /// Its client did something.
    fn note(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.state.active.store(now, Ordering::Relaxed);
    }

    fn unseated(&self, context: &Context<'_>) -> io::Result<()> {
        *lock(&self.state.waker) = Some(context.waker().clone());
        if self.state.unseated.load(Ordering::Acquire) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }

    /// Notes the result of a write.
    fn wrote(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let is_last = self.state.is_last.load(Ordering::Relaxed);
        if is_last && self.request.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        if polled.is_pending() {
            let deadline = || Box::pin(sleep_until(Instant::now() + ANSWER_TIME));
            let answer = self.answer.get_or_insert_with(deadline);
            ready!(answer.as_mut().poll(context));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        self.answer = None;
        self.received = 0;
        if !is_last {
            self.request.as_mut().reset(Instant::now() + REQUEST_TIME);
        }
        self.note();
        polled
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        lock(&self.seats).retain(|seat| !Arc::ptr_eq(seat, &self.state));
        drop(lock(&self.state.holds).take());
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.unseated(context)?;
        if this.request.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        this.received += buffer.filled().len() - before;
        if this.received > REQUEST_MAX {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, data);
        self.wrote(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, data);
        self.wrote(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
