//! A server's life: start, serve, reload, end.
//!
//! ```text
//!   start ──> serve ──HUP──> reload ──> serve
//!               └──TERM, INT──> drain ──> sync (progress every second) ──> end: 0, or 1 with what is not durable
//!                                  └──TERM, INT again──> end at once: what is left, and lost, by volume
//! ```
//!
//! Invariants
//!   1. A start that fails has served nobody; everything made for it is released, but for things
//!      that hang longer than 2 s.
//!   2. No connection is taken before all volumes are open.
//!   3. Exit status 0 means that everything that was ever written is durable.
//!   4. A volume that hangs holds up neither the signals nor the sync of the others, nor a volume
//!      that is opened or taken out.

mod attach;
mod check;
mod detach;
mod error;
mod message;
mod reload;
mod signs;
mod start;
mod stop;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::{JoinHandle, JoinSet};

use crate::backend::{Closer, Layers};
use crate::config::{Config, VolumeConfig};
use crate::export::Export;
use crate::hub::Hub;
use crate::log::{self, info};
use crate::record;
use crate::systemd::Notify;

pub use check::check;
pub use error::{NotDurable, ServeError};
pub use message::uri;

/// Wishes to end that come within it are one.
const INTERRUPT_DEBOUNCE: Duration = Duration::from_millis(500);
/// Interval at which refusals that may pass by themselves are tried again.
const AGAIN_EVERY: Duration = Duration::from_secs(5);
/// Threads that run connections: they copy between sockets and memory, and never wait.
const WORKERS_MAX: usize = 4;

/// Serves until a signal ends it, or a start that fails.
///
/// # Errors
/// `ServeError`: it cannot start; at its end something could not be made durable; it was told twice
/// to end.
pub fn run(config: Config) -> Result<(), ServeError> {
    // Before anything else is opened: the numbers of what was passed are known, nothing else about
    // them.
    let passed = crate::systemd::sockets();
    log::start(config.log_format, config.log);
    // Before any thread is made: they inherit it.
    crate::limits::become_io_flusher();
    let failed = |cause| ServeError::System {
        doing: "start the threads for connections",
        cause,
    };
    crate::aside::prepare().map_err(failed)?;
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers.min(WORKERS_MAX))
        .thread_name("connections")
        .enable_all()
        .build()
        .map_err(failed)?;
    let ended = runtime.block_on(async {
        // From here on no signal ends the process by itself.
        let mut signals = Signals::new()?;
        let server = tokio::select! {
            started = start::start(config, passed) => started?,
            () = signals.end() => {
                info!("ended before it served");
                return Ok(());
            }
        };
        server.serve(&mut signals).await
    });
    // Something may hang that nobody waits for any more.
    runtime.shutdown_background();
    log::finish();
    ended
}

/// A server that serves.
struct Server {
    config: Config,
    cache: tidegate::Cache,
    hub: Arc<Hub>,
    volumes: Vec<Served>,
    /// Those of them that are being taken out.
    leaving: JoinSet<detach::Left>,
    /// Volumes that a reload opens.
    coming: Vec<attach::Coming>,
    opening: JoinSet<attach::Opened>,
    /// Volumes that have gone so far.
    gone: u64,
    wanted: Vec<reload::Wanted>,
    /// The memory limit that is to be in force, which may have to wait.
    memory: u64,
    notify: Arc<Notify>,
    /// Bytes of the memory limit of the start that are not the cache's.
    beside: u64,
    /// Of these, what was put aside for volumes.
    put_aside: u64,
    /// Descriptors that were put aside for volumes.
    descriptors: u64,
    /// Connections that memory was put aside for.
    connections_max: u32,
    listeners: Vec<JoinHandle<()>>,
    _web: Option<crate::web::Handle>,
}

/// A volume that is served.
struct Served {
    config: VolumeConfig,
    export: Arc<Export>,
    /// The length of its file that was looked at last.
    file_said: Arc<AtomicU64>,
    layers: Arc<Layers>,
    /// None: it is being closed.
    closer: Option<Closer>,
    is_leaving: bool,
}

/// Signals that a server heeds.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    /// Power fails, or the CPU time of `ulimit -t` is used up: both come again before the end, and
    /// are no second wish.
    power: Signal,
    cpu_time: Signal,
    /// Signals that have no meaning here and would end the process.
    _ignored: Vec<Signal>,
}

/// SIGXCPU and SIGPWR of Linux.
const CPU_TIME: i32 = 24;
const POWER: i32 = 30;
/// Signals of Linux that end a process which says nothing of them: SIGUSR1, SIGUSR2, SIGPIPE,
/// SIGALRM, SIGSTKFLT, SIGVTALRM, SIGPROF, SIGIO; and SIGXFSZ: a file that may not become larger
/// (`ulimit -f`) is an error then, and not the end.
const IGNORED: [i32; 9] = [10, 12, 13, 14, 16, 25, 26, 27, 29];
/// Likewise those without names.
const REAL_TIME: core::ops::RangeInclusive<i32> = 34..=64;

/// The demand of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    End,
    Reload,
}

impl Signals {
    fn new() -> Result<Self, ServeError> {
        let listen = |kind| {
            signal(kind).map_err(|cause| ServeError::System {
                doing: "listen to signals",
                cause,
            })
        };
        let ignored = IGNORED.into_iter().chain(REAL_TIME);
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hang_up: listen(SignalKind::hangup())?,
            power: listen(SignalKind::from_raw(POWER))?,
            cpu_time: listen(SignalKind::from_raw(CPU_TIME))?,
            // A signal that the C library keeps for itself ends nothing.
            _ignored: ignored
                .filter_map(|number| listen(SignalKind::from_raw(number)).ok())
                .collect(),
        })
    }

    async fn next(&mut self) -> Asks {
        tokio::select! {
            _ = self.terminate.recv() => Asks::End,
            _ = self.interrupt.recv() => Asks::End,
            _ = self.power.recv() => Asks::End,
            _ = self.cpu_time.recv() => Asks::End,
            _ = self.hang_up.recv() => Asks::Reload,
        }
    }

    /// The next wish to end. One to reload waits. A second interrupt within 500 ms counts as the
    /// first: `timeout`, and a terminal with a wrapper, send it twice.
    async fn again(&mut self) {
        let first = tokio::time::Instant::now();
        loop {
            self.end().await;
            if first.elapsed() >= INTERRUPT_DEBOUNCE {
                return;
            }
        }
    }

    /// The next wish to end. One to reload waits.
    async fn end(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => (),
            _ = self.interrupt.recv() => (),
        }
    }
}

impl Server {
    async fn serve(mut self, signals: &mut Signals) -> Result<(), ServeError> {
        self.notify.ready(&self.status());
        if let Some(period) = self.notify.watchdog() {
            // Beside the signals: a reload or an end may take its time and is alive all the same.
            tokio::spawn(live(Arc::clone(&self.notify), period));
        }
        let hub = Arc::clone(&self.hub);
        let end_idle = self.config.end_idle;
        let idle = hub.idles(end_idle.unwrap_or_default());
        tokio::pin!(idle);
        loop {
            tokio::select! {
                () = &mut idle, if end_idle.is_some() => {
                    info!("no client was connected for as long as `end_idle` says");
                    break;
                }
                asked = signals.next() => match asked {
                    Asks::End => break,
                    Asks::Reload => {
                        self.notify.reloading();
                        let is_over = tokio::select! {
                            () = self.reload() => false,
                            () = signals.end() => true,
                        };
                        if is_over {
                            break;
                        }
                    }
                },
                Some(left) = self.leaving.join_next() => self.has_left(left),
                Some(opened) = self.opening.join_next() => self.has_come(opened),
                () = tokio::time::sleep(AGAIN_EVERY), if self.waits() => self.again(),
            }
            self.notify.ready(&self.status());
        }
        info!("ending: no new connections; a second signal ends at once");
        let ended = self.stop(signals).await;
        hub.finish_record(patience(&ended));
        ended
    }

    /// One line for a client that asks how it is.
    fn status(&self) -> String {
        let leaving = self.volumes.iter().filter(|it| it.is_leaving).count();
        let volumes = self.volumes.len() - leaving;
        let s = if volumes == 1 { "" } else { "s" };
        let mut status = format!("serving {volumes} volume{s}");
        for (count, what) in [(leaving, "taking out"), (self.coming.len(), "opening")] {
            if count > 0 {
                status += &format!(", {what} {count}");
            }
        }
        status
    }
}

/// Time that the record of requests may take at the end.
fn patience(ended: &Result<(), ServeError>) -> Duration {
    match ended {
        Err(ServeError::Interrupted(_)) => record::HURRIED,
        _ => record::PATIENCE,
    }
}

/// Tells the supervisor again and again that the server lives; ends with the runtime.
async fn live(notify: Arc<Notify>, period: Duration) {
    let mut ticks = tokio::time::interval(period);
    loop {
        ticks.tick().await;
        notify.alive();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_told_again_to_end_does_not_wait_for_its_record() {
        let interrupted = Err(ServeError::Interrupted(Vec::new()));
        assert_eq!(patience(&interrupted), record::HURRIED);
        assert_eq!(patience(&Ok(())), record::PATIENCE);
        assert!(record::HURRIED < INTERRUPT_DEBOUNCE);
    }
}
