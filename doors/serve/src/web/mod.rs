//! The server's HTTP side: `/` the live page, `/top` as text, `/events`, `/history.json`,
//! `/snapshot.json`, `/metrics`, `/healthz`.
//!
//! ```text
//!   Source ──once a second──> Sampler ──> latest snapshot ──> /events (one line of JSON a second), /snapshot.json, /top
//!      '──────when asked──────> /metrics, /healthz
//! ```
//! All of it runs on one thread of its own, so that watchers cannot hold up readers and writers.
//!
//! Invariants
//!   1. Nothing here changes anything: only GET and HEAD, no request with a body.
//!   2. Memory is bounded: `door::SEATS` connections of `door::REQUEST_MAX` bytes of request, of
//!      which [`LISTENERS`] listen to events and [`SCRAPES`] are sent metrics or the history. A
//!      listener that is slow skips snapshots; a listener that takes nothing for a few seconds is
//!      cut off.
//!   3. On a loopback address only requests that name a loopback host are answered: a page from
//!      elsewhere whose name was pointed at this machine (DNS rebinding) reads nothing. No answer
//!      may be read by pages of other origins.

mod answers;
mod door;
mod history;
mod undated;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use tokio::sync::{oneshot, watch};
use tokio::time::MissedTickBehavior;

use crate::config::WebConfig;
use crate::log::{info, warn};
use crate::snapshot::{Sampler, Source};
use answers::{Latest, Shared};
use door::Door;
use history::History;

/// Listeners to `/events` at once.
pub const LISTENERS: usize = 16;
/// Answers to `/metrics` and `/history.json` under way at once.
pub const SCRAPES: usize = 4;
/// Memory of all of it at most, in bytes, with a few dozen volumes: the thread, its connections'
/// buffers, answers.
pub const MEMORY: u64 = 3 << 20;

/// Stack of the thread.
const STACK: usize = 512 << 10;
/// Between two snapshots.
const PERIOD: Duration = Duration::from_secs(1);

/// Why there is no HTTP side.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebError {
    /// Somebody else listens there.
    #[error(
        "cannot show metrics on {address}: the address is taken; choose another one with `--web ADDRESS`"
    )]
    Taken {
        /// The address that was asked for.
        address: SocketAddr,
    },
    /// The address is taken or not ours.
    #[error(
        "cannot show metrics on {address}: {}; choose another address with `--web ADDRESS`",
        crate::refusal::words(error)
    )]
    Bind {
        /// The address that was asked for.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// The system has no thread or no descriptor left.
    #[error("cannot start the thread that shows metrics: {0}")]
    Start(io::Error),
}

/// The HTTP side while it runs; ends when dropped.
#[derive(Debug)]
pub struct Handle {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Handle {
    /// The address at which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there was told when it happened.
            let _ = thread.join();
        }
    }
}

/// Shows `source` at an address. An address that nobody insisted on and that is taken gives way to
/// any free port of the loopback address, with a warning.
///
/// # Errors
/// The address is taken or not ours; the system has no thread left.
pub fn start(config: &WebConfig, source: Arc<dyn Source>) -> Result<Handle, WebError> {
    start_by(SystemTime::now, config, source)
}

/// The same by another clock.
fn start_by(
    clock: fn() -> SystemTime,
    config: &WebConfig,
    source: Arc<dyn Source>,
) -> Result<Handle, WebError> {
    let listener = bind(config)?;
    let address = listener.local_addr().map_err(WebError::Start)?;
    if !address.ip().is_loopback() {
        warn!(%address, "metrics and the live page can be read by everybody who reaches this address: there is no \
            password and no encryption");
    }
    let (stop, stopped) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(WebError::Start)?;
    let run = move || {
        runtime.block_on(async move {
            tokio::select! {
                _ = stopped => {}
                ended = serve(listener, address, source, clock) => {
                    warn!(error = %ended, "the live page and metrics have ended");
                }
            }
        });
        // Connections that are left are dropped with it.
        runtime.shutdown_background();
    };
    let thread = std::thread::Builder::new()
        .name("web".to_owned())
        .stack_size(STACK);
    let thread = thread.spawn(run).map_err(WebError::Start)?;
    info!(%address, "metrics and the live page");
    Ok(Handle {
        address,
        stop: Some(stop),
        thread: Some(thread),
    })
}

fn bind(config: &WebConfig) -> Result<TcpListener, WebError> {
    let address = config.address;
    let bound = match TcpListener::bind(address) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if config.insisted {
                return Err(WebError::Taken { address });
            }
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
            warn!(%address, "the address for metrics and the live page is taken: another one is used");
            free
        }
        bound => bound,
    };
    let listener = bound.map_err(|error| WebError::Bind { address, error })?;
    listener.set_nonblocking(true).map_err(WebError::Start)?;
    Ok(listener)
}

/// Serves until it fails.
async fn serve(
    listener: TcpListener,
    address: SocketAddr,
    source: Arc<dyn Source>,
    clock: fn() -> SystemTime,
) -> io::Error {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return error,
    };
    let mut sampler = Sampler::default();
    let (publish, latest) = watch::channel(Latest::new(sampler.next(source.read())));
    let history = Arc::new(Mutex::new(History::default()));
    let shared = Shared::new(Arc::clone(&source), latest, Arc::clone(&history), address);
    let router = answers::router(shared);
    let door = Door::new(listener, router.clone(), clock);
    let service = router.into_make_service_with_connect_info::<door::Seat>();
    let server = axum::serve(door, service);
    let sample = async move {
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            let snapshot = sampler.next(source.read());
            let mut kept = history.lock().unwrap_or_else(PoisonError::into_inner);
            kept.note(&snapshot);
            drop(kept);
            publish.send_replace(Latest::new(snapshot));
        }
    };
    tokio::select! {
        ended = server => ended.err().unwrap_or_else(|| io::Error::other("the listener ended")),
        () = sample => io::Error::other("the sampler ended"),
    }
}

#[cfg(test)]
mod tests;
