//! The numbers that the server shows, one a line: of its memory, its connections, a volume, and the
//! requests of one kind.
//!
//! ```text
//!   numbers! ──> struct, a field a line ──> part of a reading and, as it is, of /snapshot.json
//!           ├──> read: that struct from what is counted
//!           └──> list of metrics ──> /metrics
//! ```
//! A line has the field, which is the key in `/snapshot.json` (behind `#[serde(skip)]` it is not
//! there); how it is read; type, name and unit of its metric, if it has one of its own; and the
//! help. Bytes are bytes, times are in microseconds (`_us`), and in whole seconds as metrics.

use core::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use tidegate::{Stats, VolumeStats};

use crate::counters::{Counters, KindCounters};
use crate::export::Export;
use crate::hub::Hub;

/// The unit of a metric.
#[derive(Clone, Copy)]
pub(crate) enum Of {
    Nothing,
    Bytes,
    Seconds,
}

/// Type, name without its unit and without `_total`, unit, help.
pub(crate) type Metric = (
    prometheus_client::metrics::MetricType,
    &'static str,
    Of,
    &'static str,
);

/// A number that is a metric of its own.
pub(crate) struct Number<T> {
    /// The metric.
    pub(crate) metric: Metric,
    /// Its value.
    pub(crate) of: fn(&T) -> u64,
}

/// A struct of numbers, the list of its metrics, and how it is read from what.
macro_rules! numbers {
    ($(#[$doc:meta])* $name:ident, $list:ident, ($($from:ident: $of:ty),*);
     $($(#[$serde:meta])* $field:ident, $read:expr, [$($kind:ident, $metric:literal, $unit:ident)?], $help:literal;)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $name {
            $(#[doc = $help] $(#[$serde])* pub $field: u64,)*
        }

        impl $name {
            pub(crate) fn read($($from: $of),*) -> Self {
                Self { $($field: $read,)* }
            }
        }

        pub(crate) const $list: &[Number<$name>] = &[$($(Number {
            metric: (prometheus_client::metrics::MetricType::$kind, $metric, Of::$unit, $help),
            of: |numbers| numbers.$field,
        },)?)*];
    };
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

numbers! {
    /// The use of memory.
    Memory, MEMORY, (resident: u64, stats: &Stats);
    limit,      stats.limit,      [Gauge, "tidegate_memory_limit", Bytes],      "The memory limit of the server.";
    over_limit, stats.over_limit, [Gauge, "tidegate_memory_over_limit", Bytes], "Still in use beyond a limit that was lowered.";
    pinned,     stats.pinned,     [Gauge, "tidegate_memory_pinned", Bytes],     "Pages held by requests under way; also counted under their mode.";
    resident,   resident,         [], "Resident memory of the server.";
    cached,     stats.cached,     [], "Pages in the cache: clean, dirty, writeback.";
    clean,      stats.cached.saturating_sub(stats.dirty + stats.writeback), [], "Pages that are the same on their backing.";
    dirty,      stats.dirty,      [], "Pages that are newer than on their backing.";
    writeback,  stats.writeback,  [], "Pages on their way to their backing.";
    free,       stats.free,       [], "Memory for pages that is not in use.";
    metadata,   stats.metadata,   [], "The cache's tables.";
    other,      resident.saturating_sub(stats.cached + stats.metadata + stats.anonymous), [], "Resident and none of the above: the program, connections, buffers, stacks.";
}

numbers! {
    /// Connections to all volumes.
    Connections, CONNECTIONS, (hub: &Hub);
    now,   load(&hub.counters.connections),  [Gauge, "tidegate_connections", Nothing],       "Connections now.";
    limit, hub.limits().connections as u64,  [Gauge, "tidegate_connections_limit", Nothing], "Connections at most.";
    #[serde(skip)]
    asked, hub.limits().connections_asked as u64, [], "Connections that are allowed; there may be descriptors for fewer.";
    accepted_total, load(&hub.counters.accepted_total), [Counter, "tidegate_connections_accepted", Nothing], "Connections ever taken.";
    refused_total,  load(&hub.counters.refused_total),  [Counter, "tidegate_connections_refused", Nothing],  "Connections closed because there were too many, of all or of one address.";
    #[serde(skip)]
    denied_total, load(&hub.counters.denied_total), [Counter, "tidegate_volumes_denied", Nothing], "Times that a client asked for a volume that is not for it.";
    handshake_failures_total, load(&hub.counters.handshake_failures_total), [Counter, "tidegate_handshake_failures", Nothing], "Connections that ended before a volume was chosen.";
}

numbers! {
    /// Numbers of one volume.
    VolumeNumbers, VOLUME, (export: &Export, stats: &VolumeStats, counters: &Counters, oldest_us: u64);
    at_backing,       stats.in_flight.into(),      [Gauge, "tidegate_volume_backing_requests_in_flight", Nothing], "Write requests at the backing now.";
    size,             export.size(),               [Gauge, "tidegate_volume_size", Bytes],             "Size of the volume.";
    dirty,            stats.dirty,                 [Gauge, "tidegate_volume_dirty", Bytes],            "Newer than on the backing.";
    writeback,        stats.writeback,             [Gauge, "tidegate_volume_writeback", Bytes],        "On its way to the backing.";
    #[serde(skip)]
    dirty_limit,      stats.dirty_limit,           [Gauge, "tidegate_volume_dirty_limit", Bytes],      "The volume's share of the dirty limit.";
    #[serde(skip)]
    background_limit, stats.background_limit,      [Gauge, "tidegate_volume_background_limit", Bytes], "The volume's share of the background limit.";
    bandwidth,        stats.write_rate,            [Gauge, "tidegate_volume_bandwidth_bytes_per_second", Nothing], "The cache's estimate of the backing's write rate.";
    connections,      load(&counters.connections), [Gauge, "tidegate_volume_connections", Nothing],    "Connections now.";
    in_flight,        load(&counters.in_flight),   [Gauge, "tidegate_volume_requests_in_flight", Nothing],   "Requests under way.";
    oldest_us,        oldest_us,                   [Gauge, "tidegate_volume_oldest_request_age", Seconds],   "For how long the oldest request under way has waited.";
    held,             load(&counters.held),        [Gauge, "tidegate_volume_held_replies", Nothing],   "Replies held back by pacing now.";
    held_total,       load(&counters.held_total),  [], "Replies ever held back by pacing.";
    errors,           stats.errors,                [Counter, "tidegate_volume_backing_errors", Nothing], "Write requests to the backing and flushes that failed.";
    written_total,    stats.written_total,         [Counter, "tidegate_volume_written", Bytes],        "Ever written to the backing.";
    read_total,       stats.read_total,            [Counter, "tidegate_volume_read", Bytes],           "Ever read from the backing.";
    failed_total,     stats.failed_total,          [Counter, "tidegate_volume_failed", Bytes],         "Data of which a write to the backing failed (each try counts); they stay in memory.";
    read_failed_total, stats.read_failed_total,    [Counter, "tidegate_volume_read_failed", Bytes],   "Data that could not be read from the backing, in whole pages (each try counts).";
    #[serde(skip)]
    connections_total, load(&counters.connections_total), [Counter, "tidegate_volume_connections_accepted", Nothing], "Connections ever.";
    broken_total,     load(&counters.broken_total),       [Counter, "tidegate_volume_connections_broken", Nothing],   "Connections that ended other than by a clean disconnect.";
    stuck_total,      load(&counters.stuck_total),        [Counter, "tidegate_volume_stuck", Nothing],                "Times that a request had to wait for the backing or for memory.";
    no_buffer_total,  load(&counters.no_buffer_total),    [Counter, "tidegate_volume_buffer_misses", Nothing],        "Times that no receive buffer was free.";
}

numbers! {
    /// Numbers of the requests of one kind to one volume.
    CommandNumbers, COMMAND, (counters: &KindCounters);
    requests, load(&counters.requests), [Counter, "tidegate_requests", Nothing],       "Requests answered.";
    errors,   load(&counters.errors),   [Counter, "tidegate_request_errors", Nothing], "Requests answered with an error; also counted as answered.";
    bytes,    load(&counters.bytes),    [Counter, "tidegate_request", Bytes],          "Data read and written by requests answered without an error; the ranges of other commands are not counted.";
}
