//! The whole server at one moment, as plain data: what the live page, `/snapshot.json`, `tidegate
//! top` and tests look at.
//!
//! ```text
//!   Hub, Cache ──Watched::read──> Reading (counters, histograms) ──Sampler::next──> Snapshot (levels, rates, percentiles)
//!                                    '──────> /metrics: counters as they are
//! ```
//! Bytes are bytes, times are microseconds (`_us`) unless a name says otherwise, rates are per
//! second over the time since the reading before (`interval_s`; zero: there was none, and rates are
//! zero).
//!
//! Percentiles come from histograms whose buckets double: the figure is a bound, at most twice the
//! true value.

pub(crate) mod numbers;
mod reading;
mod sampler;
#[cfg(test)]
pub(crate) mod tests;
mod watch;

pub use numbers::{CommandNumbers, Connections, Memory, VolumeNumbers};
pub use reading::{ClientReading, CommandReading, Reading, Source, VolumeReading, Watched};
pub use sampler::Sampler;
pub(crate) use sampler::health;
pub use watch::watch;

use serde::{Deserialize, Serialize};

/// The number of this form; a reader of another one may find fields missing, which are then zero.
pub const FORMAT: u32 = 1;

/// The whole server at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// The number of this form.
    pub format: u32,
    /// The server's version.
    pub version: String,
    /// Milliseconds since 1970, UTC.
    pub at_ms: u64,
    /// Seconds since the server started.
    pub uptime_s: f64,
    /// Seconds since the reading that rates are from.
    pub interval_s: f64,
    /// `serving`, `draining`, `ending` (writes what is left) or `ended` (everything is durable).
    pub stage: String,
    /// The health of all volumes for clients.
    pub health: Health,
    /// The use of memory.
    pub memory: Memory,
    /// The dirty level of all volumes together.
    pub dirty: Level,
    /// Connections to all volumes.
    pub connections: Connections,
    /// CPU time of the process, per second: 1.0 is one core.
    pub cpu: f64,
    /// For how long callers were stalled for memory.
    pub pressure: Pressure,
    /// The waits in the cache, by cause.
    pub waits: Vec<Waited>,
    /// The volumes, in the order of the configuration.
    pub volumes: Vec<Volume>,
}

/// The health of the server for clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Health {
    /// All volumes take requests and no acknowledged data are in danger.
    pub ok: bool,
    /// The troubles, for people.
    pub reasons: Vec<String>,
}

/// A dirty level against its limits, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Level {
    /// Dirty and under writeback.
    pub level: u64,
    /// Writers are paced so that it stays below.
    pub limit: u64,
    /// Over this, writeback begins.
    pub background: u64,
}

/// For how long callers were stalled for memory, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pressure {
    /// At least one was.
    pub some_us: u64,
    /// All that were at work were.
    pub full_us: u64,
}

/// Waits of one cause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Waited {
    /// Its name.
    pub cause: String,
    /// Number of waits, since the start.
    pub count: u64,
    /// Their sum, since the start.
    pub total_us: u64,
    /// The longest.
    pub max_us: u64,
    /// Number of those that ended by a timeout that was only a safety net.
    pub timed_out: u64,
    /// Half of them were shorter.
    pub p50_us: u64,
    /// All but one in a hundred were shorter.
    pub p99_us: u64,
    /// Number of waits a second.
    pub rate: u64,
    /// Time waited in each second, of all that waited together.
    pub waited_us_per_s: u64,
}

/// Percentiles of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Percentiles {
    /// Number of times.
    pub count: u64,
    /// On average.
    pub mean_us: u64,
    /// Half of them took less.
    pub p50_us: u64,
    /// Nine of ten took less.
    pub p90_us: u64,
    /// All but one in a hundred took less.
    pub p99_us: u64,
    /// All but one in a thousand took less.
    pub p999_us: u64,
    /// The longest since the start.
    pub max_us: u64,
}

/// The state of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Works.
    #[default]
    Ok,
    /// Its clients have waited for its backing for long.
    Slow,
    /// Reads from the backing failed within the last minute: clients got errors for them.
    ReadsFail,
    /// Writes to the backing fail and are tried again; nothing is lost.
    Retrying,
    /// The backing has not answered for seconds.
    Stalled,
    /// Writes failed, and the policy `stop` refuses further ones.
    Stopped,
    /// A flush failed: what the backing had taken since the last good one is unknown.
    FlushFailed,
    /// The backing is lost: its file was removed, its folder or its lease is another's. Writes go
    /// nowhere that lasts.
    Lost,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Ok,
        Self::Slow,
        Self::ReadsFail,
        Self::Retrying,
        Self::Stalled,
        Self::Stopped,
        Self::FlushFailed,
        Self::Lost,
    ];

    /// Its name in metrics and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Slow => "slow",
            Self::ReadsFail => "reads_fail",
            Self::Retrying => "retrying",
            Self::Stalled => "stalled",
            Self::Stopped => "stopped",
            Self::FlushFailed => "flush_failed",
            Self::Lost => "lost",
        }
    }

    /// True if its clients get on.
    #[must_use]
    pub fn is_healthy(self) -> bool {
        matches!(
            self,
            Self::Ok | Self::Slow | Self::ReadsFail | Self::Retrying
        )
    }
}

/// One volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Volume {
    /// Its name; empty for the default export.
    pub name: String,
    /// Clients may only read.
    pub read_only: bool,
    /// Replies are held back.
    pub paced: bool,
    /// Its state.
    pub state: State,
    /// For how long, where that is known.
    pub state_us: u64,
    /// Its numbers.
    #[serde(flatten)]
    pub numbers: VolumeNumbers,
    /// The cause of its state `slow`: the waiting requests, the backing, its rate now and before.
    pub slow: Option<String>,
    /// The level against the volume's share of the limits.
    pub level: Level,
    /// Written to the backing, bytes a second.
    pub written_rate: u64,
    /// Read from the backing, bytes a second.
    pub read_rate: u64,
    /// The last of the write requests and flushes that failed: where and why.
    pub last_error: Option<String>,
    /// The last read that failed: where and why.
    pub last_read_error: Option<String>,
    /// For how long replies were held back, since the start.
    pub pauses: Percentiles,
    /// For how long replies were held back lately.
    pub pauses_recent: Percentiles,
    /// By command; those never used are left out.
    pub commands: Vec<Command>,
    /// The busiest of its clients, those with the oldest request first.
    pub clients: Vec<Client>,
    /// The waits of requests in the cache, by cause; the longest comes first.
    pub waits: Vec<CauseWait>,
}

/// A client of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Client {
    /// Where it is: an address and a port, or the process behind a Unix socket.
    pub address: String,
    /// Answered since it came.
    pub requests: u64,
    /// Requests a second.
    pub request_rate: u64,
    /// For how long its oldest request is under way; zero: nothing is.
    pub oldest_us: u64,
    /// The longest waits of its requests lately, by cause: in the cache, `held reply` (the pause of
    /// a writer) and `flush` (until all is durable); three at most.
    pub waits: Vec<CauseWait>,
}

/// Waits of one cause of the requests to a volume, or of one client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CauseWait {
    /// Its name.
    pub cause: String,
    /// Number of waits, since the start.
    pub count: u64,
    /// Their sum, since the start.
    pub total_us: u64,
    /// Time waited in each second, of all that waited together.
    pub waited_us_per_s: u64,
}

/// Requests of one kind to one volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Command {
    /// `read`, `write`, `flush`, `trim`, `write_zeroes`, `cache` or `block_status`.
    pub command: String,
    /// Its numbers, since the start.
    #[serde(flatten)]
    pub numbers: CommandNumbers,
    /// Requests a second.
    pub request_rate: u64,
    /// Data moved, bytes a second.
    pub byte_rate: u64,
    /// Their times, since the start.
    pub latency: Percentiles,
    /// Their recent times.
    pub latency_recent: Percentiles,
}
