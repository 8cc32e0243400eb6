//! The counters of the server, read at one moment.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use tidegate::{Cache, CallWait, Stats, VolumeState};

use super::State;
pub use crate::clients::ClientReading;
use crate::counters::{Kind, Latencies};
use crate::export::{Export, Room};
use crate::hub::{Hub, Stage};

/// Reads the server; also what tests put in its place.
pub trait Source: Send + Sync + 'static {
    /// A reading of now. Waits for no device and no client.
    fn read(&self) -> Reading;
}

/// All counters at one moment.
#[derive(Clone, Debug)]
pub struct Reading {
    /// When, for people.
    pub at: SystemTime,
    /// When, for rates.
    pub instant: Instant,
    /// Since the server started.
    pub uptime: Duration,
    /// What the server does.
    pub stage: Stage,
    /// The cache.
    pub stats: Stats,
    /// Resident memory of the process, in bytes.
    pub resident: u64,
    /// CPU time of the process.
    pub cpu: Duration,
    /// Connections.
    pub door: Door,
    /// The volumes.
    pub volumes: Vec<VolumeReading>,
}

/// What happened at the door.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Door {
    /// Connections now.
    pub now: u64,
    /// At most.
    pub limit: u64,
    /// Those that are allowed: there may be fewer descriptors than that.
    pub asked: u64,
    /// Ever taken.
    pub accepted_total: u64,
    /// Closed because there were too many.
    pub refused_total: u64,
    /// Ended before a volume was chosen.
    pub handshake_failures_total: u64,
}

/// One volume. Levels and totals in bytes where nothing else is said.
#[derive(Clone, Debug, Default)]
pub struct VolumeReading {
    /// Its name.
    pub name: String,
    /// Its size.
    pub size: u64,
    /// Whether clients may only read.
    pub read_only: bool,
    /// Whether replies are held back.
    pub paced: bool,
    /// What it is in.
    pub state: State,
    /// For how long, where that is known.
    pub state_for: Option<Duration>,
    /// Newer than on the backing.
    pub dirty: u64,
    /// On its way to the backing.
    pub writeback: u64,
    /// Its share of the dirty limit.
    pub dirty_limit: u64,
    /// Its share of the background limit.
    pub background_limit: u64,
    /// What the cache thinks that the backing writes, a second.
    pub bandwidth: u64,
    /// Ever written to the backing.
    pub written_total: u64,
    /// Ever read from the backing.
    pub read_total: u64,
    /// Pages of which a write to the backing failed (each try counts), in bytes.
    pub failed_total: u64,
    /// Write requests and flushes that failed.
    pub errors: u64,
    /// The last of them: where and why.
    pub last_error: Option<String>,
    /// Why the backing is lost, if it says so.
    pub lost: Option<String>,
    /// What the file system of its file has left, and what the file takes of it, as far as that is
    /// known.
    pub room: Option<Room>,
    /// Could not be read from the backing, in whole pages (each try counts).
    pub read_failed_total: u64,
    /// The last read that failed: where and why.
    pub last_read_error: Option<String>,
    /// Reads from the backing fail, the last within a minute, none has gone well since: how long
    /// ago the first and the last one did.
    pub reads_failing: Option<(Duration, Duration)>,
    /// Write requests at the backing now.
    pub at_backing: u64,
    /// The clients that are connected.
    pub clients: Vec<ClientReading>,
    /// What its operations waited for, by cause.
    pub waits: Vec<CallWait>,
    /// Connections now.
    pub connections: u64,
    /// Connections ever.
    pub connections_total: u64,
    /// Requests under way.
    pub in_flight: u64,
    /// Replies held back now.
    pub held: u64,
    /// Replies ever held back.
    pub held_total: u64,
    /// For how long.
    pub held_for: Latencies,
    /// Times that a thread of the pool was asked.
    pub stuck_total: u64,
    /// Times that no receive buffer was free.
    pub no_buffer_total: u64,
    /// Connections that ended other than by a clean disconnect.
    pub broken_total: u64,
    /// In the order of `Kind::ALL`.
    pub commands: [CommandReading; Kind::ALL.len()],
}

impl VolumeReading {
    /// For how long the oldest request of all clients is under way.
    #[must_use]
    pub fn oldest(&self) -> Duration {
        let ages = self.clients.iter().map(|client| client.oldest);
        ages.max().unwrap_or_default()
    }
}

/// Requests of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommandReading {
    /// Answered.
    pub requests: u64,
    /// Bytes of those answered without an error.
    pub bytes: u64,
    /// Answered with an error.
    pub errors: u64,
    /// How long they took.
    pub latency: Latencies,
}

/// A server to be read.
pub struct Watched {
    // A watcher does not keep volumes open.
    hub: Weak<Hub>,
    cache: Cache,
    started: Instant,
}

impl Watched {
    /// The server that serves `hub` from `cache`, started now.
    #[must_use]
    pub fn new(hub: &Arc<Hub>, cache: Cache) -> Self {
        Self {
            hub: Arc::downgrade(hub),
            cache,
            started: Instant::now(),
        }
    }
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Source for Watched {
    fn read(&self) -> Reading {
        let instant = Instant::now();
        let mut reading = Reading {
            at: SystemTime::now(),
            instant,
            uptime: instant.duration_since(self.started),
            stage: Stage::Ended,
            stats: self.cache.stats(),
            resident: resident(),
            cpu: cpu(),
            door: Door::default(),
            volumes: Vec::new(),
        };
        if let Some(hub) = self.hub.upgrade() {
            let counters = &hub.counters;
            reading.stage = hub.stage();
            reading.door = Door {
                now: load(&counters.connections),
                limit: hub.limits().connections as u64,
                asked: hub.limits().connections_asked as u64,
                accepted_total: load(&counters.accepted_total),
                refused_total: load(&counters.refused_total),
                handshake_failures_total: load(&counters.handshake_failures_total),
            };
            reading.volumes = hub.exports().iter().map(|export| volume(export)).collect();
        }
        reading
    }
}

fn volume(export: &Export) -> VolumeReading {
    let counters = &export.counters;
    let stats = export.opened.volume.stats();
    let lost = export.lost();
    let (state, state_for) = match lost {
        // Any other trouble comes second: nothing else will help.
        Some(_) => (State::Lost, None),
        None => state(stats.state),
    };
    VolumeReading {
        state,
        state_for,
        dirty: stats.dirty,
        writeback: stats.writeback,
        dirty_limit: stats.dirty_limit,
        background_limit: stats.background_limit,
        bandwidth: stats.write_rate,
        written_total: stats.written_total,
        read_total: stats.read_total,
        failed_total: stats.failed_total,
        errors: stats.errors,
        last_error: stats.last_error.map(|error| export.in_words(&error)),
        lost,
        room: export.room(),
        read_failed_total: stats.read_failed_total,
        last_read_error: stats.last_read_error.map(|error| export.in_words(&error)),
        reads_failing: stats.reads_failing,
        at_backing: stats.in_flight.into(),
        name: export.name().to_owned(),
        size: export.size(),
        read_only: export.options.read_only,
        paced: export.is_paced(),
        connections: load(&counters.connections),
        connections_total: load(&counters.connections_total),
        in_flight: load(&counters.in_flight),
        clients: export.clients.read(),
        waits: export.opened.volume.waits().by_cause,
        held: load(&counters.held),
        held_total: load(&counters.held_total),
        held_for: counters.held_for.read(),
        stuck_total: load(&counters.stuck_total),
        no_buffer_total: load(&counters.no_buffer_total),
        broken_total: load(&counters.broken_total),
        commands: Kind::ALL.map(|kind| {
            let of = counters.of(kind);
            CommandReading {
                requests: load(&of.requests),
                bytes: load(&of.bytes),
                errors: load(&of.errors),
                latency: of.latency.read(),
            }
        }),
    }
}

fn state(of: VolumeState) -> (State, Option<Duration>) {
    match of {
        VolumeState::Retrying { since } => (State::Retrying, Some(since)),
        VolumeState::Stalled { since } => (State::Stalled, Some(since)),
        VolumeState::Stopped => (State::Stopped, None),
        VolumeState::FlushFailed => (State::FlushFailed, None),
        // States that are not known here do not hold clients up.
        _ => (State::Ok, None),
    }
}

/// Resident memory of this process in bytes; zero where the system does not say.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// CPU time of this process.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_nanos(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_says_what_this_process_uses() {
        let before = cpu();
        let held = vec![1_u8; 64 << 20];
        assert!(resident() > held.len() as u64, "{}", resident());
        assert!(cpu() > before);
    }
}
