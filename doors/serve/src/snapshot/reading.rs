//! The counters of the server, read at one moment.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use tidegate::{Cache, CallWait, Stats, VolumeState};

use super::{CommandNumbers, Connections, State, VolumeNumbers};
pub use crate::clients::ClientReading;
use crate::counters::{Kind, Latencies};
use crate::export::Export;
use crate::hub::{Hub, Stage};
use crate::opened::Room;

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
    /// The stage of the server.
    pub stage: Stage,
    /// The cache.
    pub stats: Stats,
    /// Resident memory of the process, in bytes.
    pub resident: u64,
    /// CPU time of the process.
    pub cpu: Duration,
    /// Connections.
    pub door: Connections,
    /// The first end of a certificate of each file, by its key, in seconds since 1970.
    pub certificates: Vec<(&'static str, u64)>,
    /// The volumes.
    pub volumes: Vec<VolumeReading>,
}

/// One volume.
#[derive(Clone, Debug, Default)]
pub struct VolumeReading {
    /// Its name.
    pub name: String,
    /// Clients may only read.
    pub read_only: bool,
    /// Replies are held back.
    pub paced: bool,
    /// Its state.
    pub state: State,
    /// For how long, where that is known.
    pub state_for: Option<Duration>,
    /// Its numbers.
    pub numbers: VolumeNumbers,
    /// The last of the write requests and flushes that failed: where and why.
    pub last_error: Option<String>,
    /// Why it is slow, if it is.
    pub slow: Option<String>,
    /// Why the backing is lost, if it says so.
    pub lost: Option<String>,
    /// The rest of its file's file system, and the part the file takes of it, as far as that is
    /// known.
    pub room: Option<Room>,
    /// The last read that failed: where and why.
    pub last_read_error: Option<String>,
    /// Reads from the backing fail, the last within a minute, none has gone well since: how long
    /// ago the first and the last one did.
    pub reads_failing: Option<(Duration, Duration)>,
    /// The clients that are connected.
    pub clients: Vec<ClientReading>,
    /// The waits of its operations, by cause.
    pub waits: Vec<CallWait>,
    /// For how long replies were held back.
    pub held_for: Latencies,
    /// In the order of `Kind::ALL`.
    pub commands: [CommandReading; Kind::ALL.len()],
}

/// Requests of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommandReading {
    /// Its numbers.
    pub numbers: CommandNumbers,
    /// Their times.
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
            door: Connections::default(),
            certificates: Vec::new(),
            volumes: Vec::new(),
        };
        if let Some(hub) = self.hub.upgrade() {
            reading.stage = hub.stage();
            reading.door = Connections::read(&hub);
            if let Some(acceptor) = hub.security().acceptor() {
                reading.certificates = acceptor.ends().to_vec();
            }
            reading.volumes = hub.exports().iter().map(|export| volume(export)).collect();
        }
        reading
    }
}

fn volume(export: &Export) -> VolumeReading {
    let counters = &export.counters;
    let stats = export.opened.volume.stats();
    let lost = export.lost();
    let clients = export.clients.read();
    let ages = clients.iter().map(|client| client.oldest);
    let oldest = ages.max().unwrap_or_default();
    let slow = export.slow(&stats, oldest);
    let (state, state_for) = match lost {
        // Any other trouble comes second: nothing else will help.
        Some(_) => (State::Lost, None),
        None => match state(stats.state) {
            (State::Ok, _) if export.reads_fail(stats.read_failed_total) => {
                (State::ReadsFail, None)
            }
            (State::Ok, _) => match &slow {
                Some(slow) => (State::Slow, Some(slow.since)),
                None => (State::Ok, None),
            },
            other => other,
        },
    };
    VolumeReading {
        numbers: VolumeNumbers::read(export, &stats, counters, micros(oldest)),
        slow: slow.map(|slow| slow.why).filter(|_| state == State::Slow),
        state,
        state_for,
        last_error: stats.last_error.map(|error| export.in_words(&error)),
        lost,
        room: export.room(),
        last_read_error: stats.last_read_error.map(|error| export.in_words(&error)),
        reads_failing: stats.reads_failing,
        name: export.name().to_owned(),
        read_only: export.options.read_only,
        paced: export.is_paced(),
        clients,
        waits: export.opened.volume.waits().by_cause,
        held_for: counters.held_for.read(),
        commands: Kind::ALL.map(|kind| CommandReading {
            numbers: CommandNumbers::read(counters.of(kind)),
            latency: counters.of(kind).latency.read(),
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

pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
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
