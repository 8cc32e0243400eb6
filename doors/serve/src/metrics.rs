//! Metrics for Prometheus: the counters of a reading under names that follow its conventions.
//!
//! Base units (bytes, seconds), `_total` for what only grows, labels instead of many names. Labels:
//! `volume` (a configured name), `command` (`read`, `write`, ...), `cause` (of a wait), `state`,
//! `mode` (of memory), `node` (of the machine), `place` (that node, or others), `bytes` (of a free
//! block). Their number is bounded by the configuration, never by clients. Where a level and a
//! total would share a name, the total's says more.
//!
//! The counters are the server's own atomics: they are translated when somebody asks, and cost
//! nothing otherwise. The form is OpenMetrics text 1.0, which Prometheus asks for.
//!
//! Source: prometheus.io/docs/practices/naming; the OpenMetrics specification, 1.0.0.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use tidegate::{NodeStats, PAGE_SIZE, Stats, Wait};

use crate::counters::{BUCKETS, Kind};
use crate::hub::Stage;
use crate::snapshot::numbers::{COMMAND, CONNECTIONS, MEMORY, Metric, Number, Of, VOLUME};
use crate::snapshot::{Memory, Reading, State, VolumeReading};

/// The type of what `text` answers, for the header.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Everything below 16 us is one bucket of a histogram here,
const FIRST_BUCKET: usize = 4;
/// and everything above 16 s another.
const LAST_BUCKET: usize = 24;

/// A reading as metrics.
///
/// # Errors
/// Those of the encoder; it writes to memory and has none.
pub fn text(reading: Reading) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Once(Mutex::new(Some(reading)))));
    let mut text = String::with_capacity(16 << 10);
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

/// Encodes the reading that it was made for.
struct Once(Mutex<Option<Reading>>);

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Once")
    }
}

impl Collector for Once {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(reading) = held.take() else {
            return Ok(());
        };
        write(&mut encoder, &reading)
    }
}

/// Metrics of the same things, one a line, and the samples of one such thing.
type Rows<T> = &'static [(Metric, fn(&T, &mut Samples<'_>) -> fmt::Result)];

/// A metric being written: its samples.
struct Samples<'a> {
    to: MetricEncoder<'a>,
    kind: MetricType,
}

/// Labels of a sample, keys and values.
type Labels<'a> = &'a [(&'a str, &'a str)];

impl Samples<'_> {
    fn with(
        &mut self,
        labels: Labels<'_>,
        write: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        if labels.is_empty() {
            write(&mut self.to)
        } else {
            write(&mut self.to.encode_family(&labels)?)
        }
    }

    /// A number: of a counter or of a gauge.
    fn put<V: EncodeCounterValue + EncodeGaugeValue>(
        &mut self,
        labels: Labels<'_>,
        value: V,
    ) -> fmt::Result {
        let is_counter = matches!(self.kind, Counter);
        self.with(labels, |to| match is_counter {
            true => to.encode_counter::<NoLabelSet, V, u64>(&value, None),
            false => to.encode_gauge(&value),
        })
    }

    /// A number a mode.
    fn by<const N: usize>(&mut self, key: &str, values: [(&str, u64); N]) -> fmt::Result {
        let mut values = values.into_iter();
        values.try_for_each(|(mode, value)| self.put(&[(key, mode)], value))
    }

    fn histogram(
        &mut self,
        labels: Labels<'_>,
        buckets: &[u64; BUCKETS],
        total: Duration,
    ) -> fmt::Result {
        let mut merged = Vec::with_capacity(LAST_BUCKET - FIRST_BUCKET + 2);
        let mut count = 0;
        for (bucket, in_bucket) in buckets.iter().enumerate() {
            count += in_bucket;
            let end = if bucket <= LAST_BUCKET {
                Wait::bucket_end(bucket.max(FIRST_BUCKET))
            } else {
                None
            };
            let end = end.map_or(f64::INFINITY, |end| end.as_secs_f64());
            match merged.last_mut() {
                Some((last, sum)) if *last == end => *sum += in_bucket,
                _ => merged.push((end, *in_bucket)),
            }
        }
        self.with(labels, |to| {
            to.encode_histogram::<NoLabelSet>(total.as_secs_f64(), count, &merged, None)
        })
    }
}

/// Writes one metric.
fn metric(
    to: &mut DescriptorEncoder<'_>,
    (kind, name, of, help): Metric,
    samples: impl FnOnce(&mut Samples<'_>) -> fmt::Result,
) -> fmt::Result {
    let unit = match of {
        Nothing => None,
        Bytes => Some(Unit::Bytes),
        Seconds => Some(Unit::Seconds),
    };
    let to = to.encode_descriptor(name, help, unit.as_ref(), kind)?;
    samples(&mut Samples { to, kind })
}

/// Writes metrics of `all`.
fn rows<T>(to: &mut DescriptorEncoder<'_>, rows: Rows<T>, all: &[T]) -> fmt::Result {
    rows.iter().try_for_each(|(of, samples)| {
        metric(to, *of, |out| {
            all.iter().try_for_each(|one| samples(one, out))
        })
    })
}

/// Writes those numbers of `all`, each with its labels, that are of one type.
fn numbers<'a, T: 'a, const N: usize>(
    to: &mut DescriptorEncoder<'_>,
    list: &[Number<T>],
    is_kind: fn(&MetricType) -> bool,
    all: impl Iterator<Item = ([(&'a str, &'a str); N], &'a T)> + Clone,
) -> fmt::Result {
    let mut list = list.iter().filter(|number| is_kind(&number.metric.0));
    list.try_for_each(|number| {
        let unit = if matches!(number.metric.2, Seconds) {
            1_000_000
        } else {
            1
        };
        metric(to, number.metric, |out| {
            all.clone()
                .try_for_each(|(labels, one)| out.put(&labels, (number.of)(one) / unit))
        })
    })
}

use MetricType::{Counter, Gauge, Histogram, Info};
use Of::{Bytes, Nothing, Seconds};

/// Writes all of it.
fn write(to: &mut DescriptorEncoder<'_>, now: &Reading) -> fmt::Result {
    let (any, gauge, counter) = (
        (|_| true) as fn(&MetricType) -> bool,
        (|kind| matches!(kind, Gauge)) as fn(&MetricType) -> bool,
        (|kind| matches!(kind, Counter)) as fn(&MetricType) -> bool,
    );
    let stats = core::slice::from_ref(&now.stats);
    rows(to, PROCESS, core::slice::from_ref(now))?;
    let memory = Memory::read(now.resident, &now.stats);
    numbers(to, MEMORY, any, core::iter::once(([], &memory)))?;
    rows(to, CACHE, stats)?;
    // If the cache has several.
    if now.stats.nodes.len() > 1 {
        let named = (0..).zip(&now.stats.nodes);
        let named = named.map(|(at, node)| (node.number.unwrap_or(at).to_string(), *node));
        rows(to, NODE, &named.collect::<Vec<_>>())?;
    }
    rows(to, WAIT, &now.stats.waits)?;
    numbers(to, CONNECTIONS, any, core::iter::once(([], &now.door)))?;
    let volumes = now.volumes.iter();
    let each = volumes
        .clone()
        .map(|volume| ([("volume", volume.name.as_str())], &volume.numbers));
    numbers(to, VOLUME, gauge, each.clone())?;
    rows(to, VOLUME_LEVEL, &now.volumes)?;
    numbers(to, VOLUME, counter, each)?;
    rows(to, VOLUME_TOTAL, &now.volumes)?;
    let each = volumes.flat_map(|volume| {
        Kind::ALL
            .into_iter()
            .zip(&volume.commands)
            .map(|(kind, command)| {
                let labels = [("volume", volume.name.as_str()), ("command", kind.name())];
                (labels, &command.numbers)
            })
    });
    numbers(to, COMMAND, any, each)?;
    rows(to, COMMAND_TIME, &now.volumes)
}

/// When the server started, in seconds since 1970.
fn started(now: &Reading) -> f64 {
    let started = now.at.checked_sub(now.uptime).unwrap_or(UNIX_EPOCH);
    started
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

#[rustfmt::skip]
const PROCESS: Rows<Reading> = &[
    ((Info, "tidegate_build", Nothing, "The server's version."), |_, out| out.to.encode_info(&[("version", env!("CARGO_PKG_VERSION"))])),
    ((Gauge, "process_start_time", Seconds, "When the server started, since 1970."), |now, out| out.put(&[], started(now))),
    ((Counter, "process_cpu", Seconds, "CPU time of the server."), |now, out| out.put(&[], now.cpu.as_secs_f64())),
    ((Gauge, "process_resident_memory", Bytes, "Resident memory of the server."), |now, out| out.put(&[], now.resident)),
    ((Gauge, "tidegate_certificate_expiry", Seconds, "When the first certificate of a file of TLS ends, since 1970; by the key that names the file."), |now, out| {
        let mut files = now.certificates.iter();
        files.try_for_each(|(key, ends)| out.put(&[("file", key)], *ends))
    }),
    ((Gauge, "tidegate_draining", Nothing, "1 while the server finishes and takes no new connections."), |now, out| out.put(&[], u64::from(now.stage != Stage::Serving))),
];

#[rustfmt::skip]
const CACHE: Rows<Stats> = &[
    ((Gauge, "tidegate_dirty_limit", Bytes, "Dirty data of all volumes over which writers are paced."), |of, out| out.put(&[], of.dirty_limit)),
    ((Gauge, "tidegate_background_limit", Bytes, "Dirty data of all volumes over which writeback begins."), |of, out| out.put(&[], of.background_limit)),
    ((Gauge, "tidegate_memory", Bytes, "The cache's memory by what it is used for."), |of, out| {
        let of = Memory::read(0, of);
        out.by("mode", [("clean", of.clean), ("dirty", of.dirty), ("writeback", of.writeback), ("free", of.free), ("metadata", of.metadata)])
    }),
    ((Counter, "tidegate_dirtied", Bytes, "Pages ever made dirty."), |of, out| out.put(&[], of.dirtied_total)),
    ((Counter, "tidegate_written", Bytes, "Ever written to backings."), |of, out| out.put(&[], of.written_total)),
    ((Counter, "tidegate_read", Bytes, "Ever read from backings."), |of, out| out.put(&[], of.read_total)),
    ((Counter, "tidegate_reclaimed", Bytes, "Ever freed by reclaim."), |of, out| out.put(&[], of.reclaimed_total)),
    ((Counter, "tidegate_pages_moved", Nothing, "Pages ever moved to other memory, so that some could be given back or stand side by side."), |of, out| out.put(&[], of.moved_total)),
    ((Counter, "tidegate_page_moves_refused", Nothing, "Times that a page was to be moved and stayed: pinned, being written, or gone."), |of, out| out.put(&[], of.move_refused_total)),
    ((Gauge, "tidegate_memory_free_blocks", Nothing, "Free blocks of memory by their size; what was given back to the system is in none."), |of, out| {
        let mut blocks = of.runs.iter().enumerate();
        blocks.try_for_each(|(order, blocks)| out.put(&[("bytes", &(PAGE_SIZE << order).to_string())], *blocks))
    }),
    ((Counter, "tidegate_memory_stalled", Seconds, "Time in which somebody (some) or everybody at work (full) was stalled for memory."), |of, out| {
        out.put(&[("kind", "some")], of.pressure.some.as_secs_f64())?;
        out.put(&[("kind", "full")], of.pressure.full.as_secs_f64())
    }),
];

#[rustfmt::skip]
const NODE: Rows<(String, NodeStats)> = &[
    ((Gauge, "tidegate_node_memory", Bytes, "A node's part of the cache by what it is used for."), |(name, of), out| {
        let modes = [("file", of.cached), ("anonymous", of.anonymous), ("aside", of.aside), ("free", of.free)];
        modes.into_iter().try_for_each(|(mode, value)| out.put(&[("node", name), ("mode", mode)], value))
    }),
    ((Gauge, "tidegate_node_misplaced", Bytes, "A node's part of the cache whose memory came from another node."), |(name, of), out| out.put(&[("node", name)], of.misplaced)),
    ((Counter, "tidegate_node_taken", Bytes, "Ever taken by threads on a node's CPUs, there or on other nodes."), |(name, of), out| {
        out.put(&[("node", name), ("place", "here")], of.taken_here_total)?;
        out.put(&[("node", name), ("place", "elsewhere")], of.taken_elsewhere_total)
    }),
    ((Counter, "tidegate_node_reclaimed", Bytes, "Ever freed by reclaim on a node."), |(name, of), out| out.put(&[("node", name)], of.reclaimed_total)),
];

#[rustfmt::skip]
const WAIT: Rows<Wait> = &[
    ((Histogram, "tidegate_wait_duration", Seconds, "Waits in the cache, by callers and by its own tasks."), |of, out| out.histogram(&[("cause", of.cause)], &of.histogram, of.total)),
    ((Gauge, "tidegate_wait_longest", Seconds, "The longest wait since the start."), |of, out| out.put(&[("cause", of.cause)], of.max.as_secs_f64())),
    ((Counter, "tidegate_wait_timeouts", Nothing, "Waits that ended by a timeout that was only a safety net."), |of, out| out.put(&[("cause", of.cause)], of.timed_out)),
    ((Counter, "tidegate_wait_ends", Nothing, "Waits by the event, or the deadline, that ended them."), |of, out| {
        let mut ends = of.ended_by.iter();
        ends.try_for_each(|(by, count)| out.put(&[("cause", of.cause), ("by", by)], *count))
    }),
];

#[rustfmt::skip]
const VOLUME_LEVEL: Rows<VolumeReading> = &[
    ((Gauge, "tidegate_volume_backing_free", Bytes, "Space left in the file system of the volume's file."), |of, out| of.room.map_or(Ok(()), |room| out.put(&[("volume", &of.name)], room.free))),
    ((Gauge, "tidegate_volume_backing_taken", Bytes, "Space that the volume's file takes of its file system: less than its size where it is sparse."), |of, out| of.room.map_or(Ok(()), |room| out.put(&[("volume", &of.name)], room.taken))),
    ((Gauge, "tidegate_volume_state", Nothing, "1 for the state that the volume is in."), |of, out| {
        let mut states = State::ALL.into_iter();
        states.try_for_each(|state| out.put(&[("volume", &of.name), ("state", state.name())], u64::from(of.state == state)))
    }),
];

#[rustfmt::skip]
const VOLUME_TOTAL: Rows<VolumeReading> = &[
    ((Counter, "tidegate_volume_wait", Seconds, "Time that requests waited in the cache, by cause; of all that waited together."), |of, out| {
        let mut waits = of.waits.iter();
        waits.try_for_each(|wait| out.put(&[("volume", &of.name), ("cause", wait.cause)], wait.total.as_secs_f64()))
    }),
    ((Histogram, "tidegate_volume_pause_duration", Seconds, "For how long replies to writes were held back by pacing."), |of, out| out.histogram(&[("volume", &of.name)], &of.held_for.buckets, of.held_for.total)),
];

#[rustfmt::skip]
const COMMAND_TIME: Rows<VolumeReading> = &[
    ((Histogram, "tidegate_request_duration", Seconds, "From a request's arrival to its reply, of commands that were used."), |of, out| {
        let commands = Kind::ALL.into_iter().zip(&of.commands);
        let mut used = commands.filter(|(_, command)| command.numbers.requests > 0);
        used.try_for_each(|(kind, command)| out.histogram(&[("volume", &of.name), ("command", kind.name())], &command.latency.buckets, command.latency.total))
    }),
];

#[cfg(test)]
mod tests;
