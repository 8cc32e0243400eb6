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
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::counters::{BUCKETS, Kind};
use crate::export::Room;
use crate::hub::Stage;
use crate::snapshot::{CommandReading, Reading, State, VolumeReading};

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
        let to = &mut encoder;
        process(to, &reading)?;
        memory(to, &reading)?;
        cache(to, &reading)?;
        nodes(to, &reading)?;
        waits(to, &reading)?;
        door(to, &reading)?;
        volume_levels(to, &reading.volumes)?;
        volume_totals(to, &reading.volumes)?;
        commands(to, &reading.volumes)
    }
}

/// What is counted.
#[derive(Clone, Copy)]
enum Of {
    Nothing,
    Bytes,
    Seconds,
}

/// A metric being written: its samples.
struct Samples<'a>(MetricEncoder<'a>);

/// Labels of a sample, keys and values.
type Labels<'a> = &'a [(&'a str, &'a str)];

impl Samples<'_> {
    fn with(
        &mut self,
        labels: Labels<'_>,
        write: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        if labels.is_empty() {
            write(&mut self.0)
        } else {
            write(&mut self.0.encode_family(&labels)?)
        }
    }

    fn counter(&mut self, labels: Labels<'_>, value: u64) -> fmt::Result {
        self.with(labels, |to| {
            to.encode_counter::<NoLabelSet, u64, u64>(&value, None)
        })
    }

    fn seconds_counter(&mut self, labels: Labels<'_>, value: Duration) -> fmt::Result {
        self.with(labels, |to| {
            to.encode_counter::<NoLabelSet, f64, f64>(&value.as_secs_f64(), None)
        })
    }

    fn gauge(&mut self, labels: Labels<'_>, value: u64) -> fmt::Result {
        self.with(labels, |to| to.encode_gauge(&value))
    }

    fn seconds_gauge(&mut self, labels: Labels<'_>, value: Duration) -> fmt::Result {
        self.with(labels, |to| to.encode_gauge(&value.as_secs_f64()))
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
                tidegate::Wait::bucket_end(bucket.max(FIRST_BUCKET))
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

/// Writes one metric: `name` without its unit and without `_total`.
fn metric(
    to: &mut DescriptorEncoder<'_>,
    kind: MetricType,
    (name, of): (&str, Of),
    help: &str,
    samples: impl FnOnce(&mut Samples<'_>) -> fmt::Result,
) -> fmt::Result {
    let unit = match of {
        Nothing => None,
        Bytes => Some(Unit::Bytes),
        Seconds => Some(Unit::Seconds),
    };
    samples(&mut Samples(to.encode_descriptor(
        name,
        help,
        unit.as_ref(),
        kind,
    )?))
}

use MetricType::{Counter, Gauge, Histogram, Info};
use Of::{Bytes, Nothing, Seconds};

fn process(to: &mut DescriptorEncoder<'_>, now: &Reading) -> fmt::Result {
    metric(
        to,
        Info,
        ("tidegate_build", Nothing),
        "The server's version.",
        |out| out.0.encode_info(&[("version", env!("CARGO_PKG_VERSION"))]),
    )?;
    let started = now.at.checked_sub(now.uptime).unwrap_or(UNIX_EPOCH);
    let started = started.duration_since(UNIX_EPOCH).unwrap_or_default();
    let name = ("process_start_time", Seconds);
    metric(
        to,
        Gauge,
        name,
        "When the server started, since 1970.",
        |out| out.seconds_gauge(&[], started),
    )?;
    metric(
        to,
        Counter,
        ("process_cpu", Seconds),
        "CPU time of the server.",
        |out| out.seconds_counter(&[], now.cpu),
    )?;
    let name = ("process_resident_memory", Bytes);
    metric(to, Gauge, name, "Resident memory of the server.", |out| {
        out.gauge(&[], now.resident)
    })?;
    let is_draining = u64::from(now.stage != Stage::Serving);
    let help = "1 while the server finishes and takes no new connections.";
    metric(to, Gauge, ("tidegate_draining", Nothing), help, |out| {
        out.gauge(&[], is_draining)
    })
}

fn memory(to: &mut DescriptorEncoder<'_>, now: &Reading) -> fmt::Result {
    let stats = &now.stats;
    let mut gauge =
        |name, help, value| metric(to, Gauge, (name, Bytes), help, |out| out.gauge(&[], value));
    let help = "The memory limit of the server.";
    gauge("tidegate_memory_limit", help, stats.limit)?;
    let help = "Still in use beyond a limit that was lowered.";
    gauge("tidegate_memory_over_limit", help, stats.over_limit)?;
    let help = "Pages held by requests under way; also counted under their mode.";
    gauge("tidegate_memory_pinned", help, stats.pinned)?;
    let help = "Dirty data of all volumes over which writers are paced.";
    gauge("tidegate_dirty_limit", help, stats.dirty_limit)?;
    let help = "Dirty data of all volumes over which writeback begins.";
    gauge("tidegate_background_limit", help, stats.background_limit)?;
    let help = "The cache's memory by what it is used for.";
    metric(to, Gauge, ("tidegate_memory", Bytes), help, |out| {
        let clean = stats.cached.saturating_sub(stats.dirty + stats.writeback);
        for (mode, value) in [
            ("clean", clean),
            ("dirty", stats.dirty),
            ("writeback", stats.writeback),
            ("free", stats.free),
            ("metadata", stats.metadata),
        ] {
            out.gauge(&[("mode", mode)], value)?;
        }
        Ok(())
    })
}

fn cache(to: &mut DescriptorEncoder<'_>, now: &Reading) -> fmt::Result {
    let stats = &now.stats;
    for (name, help, value) in [
        (
            "tidegate_dirtied",
            "Pages ever made dirty.",
            stats.dirtied_total,
        ),
        (
            "tidegate_written",
            "Ever written to backings.",
            stats.written_total,
        ),
        (
            "tidegate_read",
            "Ever read from backings.",
            stats.read_total,
        ),
        (
            "tidegate_reclaimed",
            "Ever freed by reclaim.",
            stats.reclaimed_total,
        ),
    ] {
        metric(to, Counter, (name, Bytes), help, |out| {
            out.counter(&[], value)
        })?;
    }
    for (name, help, value) in [
        (
            "tidegate_pages_moved",
            "Pages ever moved to other memory, so that some could be given back or stand side by side.",
            stats.moved_total,
        ),
        (
            "tidegate_page_moves_refused",
            "How often a page was to be moved and stayed: pinned, being written, or gone.",
            stats.move_refused_total,
        ),
    ] {
        metric(to, Counter, (name, Nothing), help, |out| {
            out.counter(&[], value)
        })?;
    }
    let help = "Free blocks of memory by their size; what was given back to the system is in none.";
    metric(
        to,
        Gauge,
        ("tidegate_memory_free_blocks", Nothing),
        help,
        |out| {
            for (order, blocks) in stats.runs.iter().enumerate() {
                let size = (tidegate::PAGE_SIZE << order).to_string();
                out.gauge(&[("bytes", &size)], *blocks)?;
            }
            Ok(())
        },
    )?;
    let help = "Time in which somebody (some) or everybody at work (full) was stalled for memory.";
    metric(
        to,
        Counter,
        ("tidegate_memory_stalled", Seconds),
        help,
        |out| {
            out.seconds_counter(&[("kind", "some")], stats.pressure.some)?;
            out.seconds_counter(&[("kind", "full")], stats.pressure.full)
        },
    )
}

/// Of the nodes of the machine, where the cache has several.
fn nodes(to: &mut DescriptorEncoder<'_>, now: &Reading) -> fmt::Result {
    let nodes = &now.stats.nodes;
    if nodes.len() < 2 {
        return Ok(());
    }
    let named = || {
        (0..)
            .zip(nodes)
            .map(|(at, node)| (node.number.unwrap_or(at).to_string(), node))
    };
    let help = "A node's part of the cache by what it is used for.";
    metric(to, Gauge, ("tidegate_node_memory", Bytes), help, |out| {
        for (name, node) in named() {
            for (mode, value) in [
                ("file", node.cached),
                ("anonymous", node.anonymous),
                ("aside", node.aside),
                ("free", node.free),
            ] {
                out.gauge(&[("node", &name), ("mode", mode)], value)?;
            }
        }
        Ok(())
    })?;
    let help = "A node's part of the cache whose memory came from another node.";
    metric(to, Gauge, ("tidegate_node_misplaced", Bytes), help, |out| {
        for (name, node) in named() {
            out.gauge(&[("node", &name)], node.misplaced)?;
        }
        Ok(())
    })?;
    let help = "Ever taken by threads on a node's CPUs, there or on other nodes.";
    metric(to, Counter, ("tidegate_node_taken", Bytes), help, |out| {
        for (name, node) in named() {
            out.counter(&[("node", &name), ("place", "here")], node.taken_here_total)?;
            let elsewhere = node.taken_elsewhere_total;
            out.counter(&[("node", &name), ("place", "elsewhere")], elsewhere)?;
        }
        Ok(())
    })?;
    let help = "Ever freed by reclaim on a node.";
    metric(
        to,
        Counter,
        ("tidegate_node_reclaimed", Bytes),
        help,
        |out| {
            for (name, node) in named() {
                out.counter(&[("node", &name)], node.reclaimed_total)?;
            }
            Ok(())
        },
    )
}

fn waits(to: &mut DescriptorEncoder<'_>, now: &Reading) -> fmt::Result {
    let waits = &now.stats.waits;
    let help = "What was waited for in the cache, by callers and by its own tasks.";
    metric(
        to,
        Histogram,
        ("tidegate_wait_duration", Seconds),
        help,
        |out| {
            for wait in waits {
                out.histogram(&[("cause", wait.cause)], &wait.histogram, wait.total)?;
            }
            Ok(())
        },
    )?;
    let help = "The longest wait since the start.";
    metric(to, Gauge, ("tidegate_wait_longest", Seconds), help, |out| {
        for wait in waits {
            out.seconds_gauge(&[("cause", wait.cause)], wait.max)?;
        }
        Ok(())
    })?;
    let help = "Waits that ended by a timeout that was only a safety net.";
    metric(
        to,
        Counter,
        ("tidegate_wait_timeouts", Nothing),
        help,
        |out| {
            for wait in waits {
                out.counter(&[("cause", wait.cause)], wait.timed_out)?;
            }
            Ok(())
        },
    )?;
    let help = "Waits by the event, or the deadline, that ended them.";
    metric(to, Counter, ("tidegate_wait_ends", Nothing), help, |out| {
        for wait in waits {
            for (by, count) in &wait.ended_by {
                out.counter(&[("cause", wait.cause), ("by", by)], *count)?;
            }
        }
        Ok(())
    })
}

fn door(to: &mut DescriptorEncoder<'_>, now: &Reading) -> fmt::Result {
    let door = &now.door;
    let gauges = [
        ("tidegate_connections", "Connections now.", door.now),
        (
            "tidegate_connections_limit",
            "Connections at most.",
            door.limit,
        ),
    ];
    for (name, help, value) in gauges {
        metric(to, Gauge, (name, Nothing), help, |out| {
            out.gauge(&[], value)
        })?;
    }
    for (name, help, value) in [
        (
            "tidegate_connections_accepted",
            "Connections ever taken.",
            door.accepted_total,
        ),
        (
            "tidegate_connections_refused",
            "Connections closed because there were too many.",
            door.refused_total,
        ),
        (
            "tidegate_handshake_failures",
            "Connections that ended before a volume was chosen.",
            door.handshake_failures_total,
        ),
    ] {
        metric(to, Counter, (name, Nothing), help, |out| {
            out.counter(&[], value)
        })?;
    }
    Ok(())
}

/// A metric of each volume: name, unit, help, value.
type OfVolume = (&'static str, Of, &'static str, fn(&VolumeReading) -> u64);

/// A metric of a volume whose backing is a file: name, help, value in bytes.
type OfRoom = (&'static str, &'static str, fn(&Room) -> u64);

fn volume_levels(to: &mut DescriptorEncoder<'_>, volumes: &[VolumeReading]) -> fmt::Result {
    let gauges: [OfVolume; 11] = [
        (
            "tidegate_volume_backing_requests_in_flight",
            Nothing,
            "Write requests at the backing now.",
            |v| v.at_backing,
        ),
        ("tidegate_volume_size", Bytes, "Size of the volume.", |v| {
            v.size
        }),
        (
            "tidegate_volume_dirty",
            Bytes,
            "Newer than on the backing.",
            |v| v.dirty,
        ),
        (
            "tidegate_volume_writeback",
            Bytes,
            "On its way to the backing.",
            |v| v.writeback,
        ),
        (
            "tidegate_volume_dirty_limit",
            Bytes,
            "The volume's share of the dirty limit.",
            |v| v.dirty_limit,
        ),
        (
            "tidegate_volume_background_limit",
            Bytes,
            "The volume's share of the background limit.",
            |v| v.background_limit,
        ),
        (
            "tidegate_volume_bandwidth_bytes_per_second",
            Nothing,
            "What the cache thinks that the backing writes.",
            |v| v.bandwidth,
        ),
        (
            "tidegate_volume_connections",
            Nothing,
            "Connections now.",
            |v| v.connections,
        ),
        (
            "tidegate_volume_requests_in_flight",
            Nothing,
            "Requests under way.",
            |v| v.in_flight,
        ),
        (
            "tidegate_volume_oldest_request_age",
            Seconds,
            "For how long the oldest request under way has waited.",
            |v| v.oldest().as_secs(),
        ),
        (
            "tidegate_volume_held_replies",
            Nothing,
            "Replies held back by pacing now.",
            |v| v.held,
        ),
    ];
    for (name, of, help, value) in gauges {
        metric(to, Gauge, (name, of), help, |out| {
            volumes
                .iter()
                .try_for_each(|volume| out.gauge(&[("volume", &volume.name)], value(volume)))
        })?;
    }
    let rooms: [OfRoom; 2] = [
        (
            "tidegate_volume_backing_free",
            "What the file system of the volume's file has left.",
            |room| room.free,
        ),
        (
            "tidegate_volume_backing_taken",
            "What the volume's file takes of its file system: less than its size where it is sparse.",
            |room| room.taken,
        ),
    ];
    for (name, help, value) in rooms {
        metric(to, Gauge, (name, Bytes), help, |out| {
            let known = volumes
                .iter()
                .filter_map(|volume| Some((volume, volume.room?)));
            known
                .into_iter()
                .try_for_each(|(volume, room)| out.gauge(&[("volume", &volume.name)], value(&room)))
        })?;
    }
    let help = "1 for the state that the volume is in.";
    metric(to, Gauge, ("tidegate_volume_state", Nothing), help, |out| {
        for volume in volumes {
            for state in State::ALL {
                let labels = [("volume", volume.name.as_str()), ("state", state.name())];
                out.gauge(&labels, u64::from(volume.state == state))?;
            }
        }
        Ok(())
    })
}

fn volume_totals(to: &mut DescriptorEncoder<'_>, volumes: &[VolumeReading]) -> fmt::Result {
    let counters: [OfVolume; 8] = [
        (
            "tidegate_volume_backing_errors",
            Nothing,
            "Write requests to the backing and flushes that failed.",
            |v| v.errors,
        ),
        (
            "tidegate_volume_written",
            Bytes,
            "Ever written to the backing.",
            |v| v.written_total,
        ),
        (
            "tidegate_volume_read",
            Bytes,
            "Ever read from the backing.",
            |v| v.read_total,
        ),
        (
            "tidegate_volume_failed",
            Bytes,
            "Data of which a write to the backing failed (each try counts); they stay in memory.",
            |v| v.failed_total,
        ),
        (
            "tidegate_volume_connections_accepted",
            Nothing,
            "Connections ever.",
            |v| v.connections_total,
        ),
        (
            "tidegate_volume_connections_broken",
            Nothing,
            "Connections that ended other than by a clean disconnect.",
            |v| v.broken_total,
        ),
        (
            "tidegate_volume_stuck",
            Nothing,
            "Times that a request had to wait for the backing or for memory.",
            |v| v.stuck_total,
        ),
        (
            "tidegate_volume_buffer_misses",
            Nothing,
            "Times that no receive buffer was free.",
            |v| v.no_buffer_total,
        ),
    ];
    for (name, of, help, value) in counters {
        metric(to, Counter, (name, of), help, |out| {
            volumes
                .iter()
                .try_for_each(|volume| out.counter(&[("volume", &volume.name)], value(volume)))
        })?;
    }
    let help = "Time that requests waited in the cache, by cause; of all that waited together.";
    metric(
        to,
        Counter,
        ("tidegate_volume_wait", Seconds),
        help,
        |out| {
            for volume in volumes {
                for wait in &volume.waits {
                    let labels = [("volume", volume.name.as_str()), ("cause", wait.cause)];
                    out.seconds_counter(&labels, wait.total)?;
                }
            }
            Ok(())
        },
    )?;
    let help = "For how long replies to writes were held back by pacing.";
    metric(
        to,
        Histogram,
        ("tidegate_volume_pause_duration", Seconds),
        help,
        |out| {
            for volume in volumes {
                let held = &volume.held_for;
                out.histogram(&[("volume", &volume.name)], &held.buckets, held.total)?;
            }
            Ok(())
        },
    )
}

/// A metric of each command of each volume: name, unit, help, value.
type OfCommand = (&'static str, Of, &'static str, fn(&CommandReading) -> u64);

fn commands(to: &mut DescriptorEncoder<'_>, volumes: &[VolumeReading]) -> fmt::Result {
    let counters: [OfCommand; 3] = [
        ("tidegate_requests", Nothing, "Requests answered.", |c| {
            c.requests
        }),
        (
            "tidegate_request_errors",
            Nothing,
            "Requests answered with an error; also counted as answered.",
            |c| c.errors,
        ),
        (
            "tidegate_request",
            Bytes,
            "Data read and written by requests answered without an error; the ranges of other commands are not counted.",
            |c| c.bytes,
        ),
    ];
    for (name, of, help, value) in counters {
        metric(to, Counter, (name, of), help, |out| {
            for volume in volumes {
                for (kind, command) in Kind::ALL.into_iter().zip(&volume.commands) {
                    let labels = [("volume", volume.name.as_str()), ("command", kind.name())];
                    out.counter(&labels, value(command))?;
                }
            }
            Ok(())
        })?;
    }
    let help = "From a request's arrival to its reply, of commands that were used.";
    metric(
        to,
        Histogram,
        ("tidegate_request_duration", Seconds),
        help,
        |out| {
            for volume in volumes {
                for (kind, command) in Kind::ALL.into_iter().zip(&volume.commands) {
                    if command.requests > 0 {
                        let labels = [("volume", volume.name.as_str()), ("command", kind.name())];
                        let latency = &command.latency;
                        out.histogram(&labels, &latency.buckets, latency.total)?;
                    }
                }
            }
            Ok(())
        },
    )
}

#[cfg(test)]
mod tests;
