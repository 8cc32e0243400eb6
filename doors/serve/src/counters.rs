//! The requests of a volume's clients, and their times: plain atomics that anybody may read.
//!
//! A connection counts in a `Tally` of its own and adds it up here once for each time it ran, so
//! that a thousand requests that arrive together touch the shared lines once.

use core::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `NBD_CMD_READ`.
    Read,
    /// `NBD_CMD_WRITE`.
    Write,
    /// `NBD_CMD_FLUSH`.
    Flush,
    /// `NBD_CMD_TRIM`.
    Trim,
    /// `NBD_CMD_WRITE_ZEROES`.
    Zero,
    /// `NBD_CMD_CACHE`.
    Cache,
    /// `NBD_CMD_BLOCK_STATUS`.
    BlockStatus,
}

impl Kind {
    /// All of them, in the order of the counters.
    pub const ALL: [Self; 7] = [
        Self::Read,
        Self::Write,
        Self::Flush,
        Self::Trim,
        Self::Zero,
        Self::Cache,
        Self::BlockStatus,
    ];

    /// Its name, as metrics and tables say it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Trim => "trim",
            Self::Zero => "write_zeroes",
            Self::Cache => "cache",
            Self::BlockStatus => "block_status",
        }
    }

    /// True if it changes the volume.
    #[must_use]
    pub fn changes(self) -> bool {
        matches!(self, Self::Write | Self::Trim | Self::Zero)
    }

    /// True if its length is of data that go over the connection; of the others it is a range that
    /// they are about.
    #[must_use]
    pub fn moves_data(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }
}

/// Buckets of a histogram of latencies: as in `tidegate::Wait`.
pub const BUCKETS: usize = 32;

/// The times of many things.
#[derive(Debug, Default)]
pub struct Histogram {
    /// The first counts what took less than a microsecond, each next one what took less than twice
    /// as long, the last everything longer.
    buckets: [AtomicU64; BUCKETS],
    total_ns: AtomicU64,
    max_ns: AtomicU64,
}

/// A reading of a histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// As in the histogram; `Wait::bucket_end` says where each ends.
    pub buckets: [u64; BUCKETS],
    /// All of it together.
    pub total: Duration,
    /// The longest.
    pub max: Duration,
}

impl Latencies {
    /// Number of times.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// A bound for the longest of `permille` of them: at most twice the true value.
    #[must_use]
    pub fn quantile(&self, permille: u64) -> Duration {
        let rank = (self.count() * permille).div_ceil(1000);
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                let end = tidegate::Wait::bucket_end(bucket);
                return end.map_or(self.max, |end| end.min(self.max));
            }
        }
        self.max
    }
}

impl Histogram {
    /// Counts one.
    pub fn note(&self, took: Duration) {
        self.note_many(took, 1);
    }

    pub(crate) fn note_many(&self, took: Duration, count: u64) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket_of(nanos)].fetch_add(count, Ordering::Relaxed);
        self.total_ns
            .fetch_add(nanos.saturating_mul(count), Ordering::Relaxed);
        if nanos > self.max_ns.load(Ordering::Relaxed) {
            self.max_ns.fetch_max(nanos, Ordering::Relaxed);
        }
    }

    /// Reads it; counts of the same moment may be seen in part.
    #[must_use]
    pub fn read(&self) -> Latencies {
        Latencies {
            buckets: core::array::from_fn(|at| self.buckets[at].load(Ordering::Relaxed)),
            total: Duration::from_nanos(self.total_ns.load(Ordering::Relaxed)),
            max: Duration::from_nanos(self.max_ns.load(Ordering::Relaxed)),
        }
    }
}

/// The bucket of that many nanoseconds.
fn bucket_of(nanos: u64) -> usize {
    let doublings = (nanos / 1000)
        .checked_ilog2()
        .map_or(0, |log| log as usize + 1);
    doublings.min(BUCKETS - 1)
}

/// Requests of one kind to one volume.
#[derive(Debug, Default)]
pub struct KindCounters {
    /// Requests that were answered, with an error or without.
    pub requests: AtomicU64,
    /// Data that went to or from the client with those that were answered without an error; see
    /// `Kind::moves_data`.
    pub bytes: AtomicU64,
    /// Requests that were answered with an error.
    pub errors: AtomicU64,
    /// From the arrival of the header to the reply being ready to be sent.
    pub latency: Histogram,
}

/// The counters of the clients of one volume.
#[derive(Debug, Default)]
pub struct Counters {
    kinds: [KindCounters; Kind::ALL.len()],
    /// Connections now.
    pub connections: AtomicU64,
    /// Connections ever.
    pub connections_total: AtomicU64,
    /// Requests that have arrived and are not answered, now.
    pub in_flight: AtomicU64,
    /// Replies held back by pacing, now.
    pub held: AtomicU64,
    /// Replies ever held back by pacing.
    pub held_total: AtomicU64,
    /// For how long replies were held back by pacing.
    pub held_for: Histogram,
    /// Times that the cache could not go on at once (a miss, no memory) and a thread of the pool
    /// was asked.
    pub stuck_total: AtomicU64,
    /// Times that no receive buffer was free, and a connection went on with its own small one.
    pub no_buffer_total: AtomicU64,
    /// Connections that ended other than by a clean disconnect.
    pub broken_total: AtomicU64,
}

impl Counters {
    /// The counters of a kind of requests.
    #[must_use]
    pub fn of(&self, kind: Kind) -> &KindCounters {
        &self.kinds[kind as usize]
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Line {
    requests: u64,
    bytes: u64,
    errors: u64,
}

/// The counts of one connection since it last ran; most requests of one run took as long as each
/// other.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    lines: [Line; Kind::ALL.len()],
    /// Requests of one kind that took equally long and are not in a histogram yet.
    latencies: u64,
    latencies_of: Option<Kind>,
    latency: Duration,
    any: bool,
}

impl Tally {
    /// A request of `bytes` was answered.
    pub(crate) fn answered(
        &mut self,
        counters: &Counters,
        kind: Kind,
        bytes: u64,
        is_error: bool,
        took: Duration,
    ) {
        self.any = true;
        let line = &mut self.lines[kind as usize];
        line.requests += 1;
        if is_error {
            line.errors += 1;
        } else if kind.moves_data() {
            line.bytes += bytes;
        }
        if self.latencies_of != Some(kind) || self.latency != took {
            self.put_latencies(counters);
            (self.latencies_of, self.latency) = (Some(kind), took);
        }
        self.latencies += 1;
    }

    fn put_latencies(&mut self, counters: &Counters) {
        if let Some(kind) = self.latencies_of.take() {
            counters
                .of(kind)
                .latency
                .note_many(self.latency, self.latencies);
        }
        self.latencies = 0;
    }

    /// Adds all of it up.
    pub(crate) fn put(&mut self, counters: &Counters) {
        if !self.any {
            return;
        }
        self.any = false;
        self.put_latencies(counters);
        for (line, shared) in self.lines.iter_mut().zip(&counters.kinds) {
            if line.requests > 0 {
                shared.requests.fetch_add(line.requests, Ordering::Relaxed);
                shared.bytes.fetch_add(line.bytes, Ordering::Relaxed);
                shared.errors.fetch_add(line.errors, Ordering::Relaxed);
                *line = Line::default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_stands_where_its_counters_are() {
        for (at, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, at, "{}", kind.name());
        }
    }

    #[test]
    fn a_tally_adds_up_to_what_was_noted_one_by_one() {
        let counters = Counters::default();
        let mut tally = Tally::default();
        let micros = Duration::from_micros;
        tally.answered(&counters, Kind::Read, 4096, false, micros(3));
        tally.answered(&counters, Kind::Read, 4096, false, micros(3));
        tally.answered(&counters, Kind::Write, 512, false, micros(3));
        tally.answered(&counters, Kind::Read, 4096, true, micros(70));
        tally.put(&counters);
        tally.put(&counters);
        let reads = counters.of(Kind::Read);
        assert_eq!(reads.requests.load(Ordering::Relaxed), 3);
        assert_eq!(reads.bytes.load(Ordering::Relaxed), 8192);
        assert_eq!(reads.errors.load(Ordering::Relaxed), 1);
        let read = reads.latency.read();
        assert_eq!((read.count(), read.total), (3, micros(76)));
        assert_eq!((read.max, read.quantile(500)), (micros(70), micros(4)));
        let writes = counters.of(Kind::Write).latency.read();
        assert_eq!((writes.count(), writes.total), (1, micros(3)));
    }

    #[test]
    fn only_data_that_move_are_counted_in_bytes() {
        let (counters, mut tally) = (Counters::default(), Tally::default());
        for kind in Kind::ALL {
            tally.answered(&counters, kind, 1 << 30, false, Duration::ZERO);
        }
        tally.put(&counters);
        let moved = |kind: &Kind| counters.of(*kind).bytes.load(Ordering::Relaxed) > 0;
        let moved: Vec<Kind> = Kind::ALL.into_iter().filter(moved).collect();
        assert_eq!(moved, [Kind::Read, Kind::Write]);
    }
}
