//! The last minutes, for a page that was opened just now.
//!
//! Invariant: memory is bounded: [`KEPT`] points of at most [`VOLUMES`] volumes, some 400 KiB.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::snapshot::Snapshot;

/// Seconds that are kept.
const KEPT: usize = 300;
/// Volumes of which the level is kept.
const VOLUMES: usize = 32;

/// The point that the page draws of one second; it makes the same of a snapshot. Names are short:
/// there are many.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Point {
    /// Milliseconds since 1970.
    t: u64,
    /// Memory, in bytes: dirty, writeback, clean, tables, other.
    m: [u64; 5],
    /// The memory limit.
    limit: u64,
    /// Bytes a second that clients read,
    r: u64,
    /// and wrote.
    w: u64,
    /// Requests a second.
    q: u64,
    /// Replies held back.
    held: u64,
    /// Pauses of the last second, in microseconds: the longest median of a volume,
    p50: u64,
    /// and the longest of its 99 in a hundred.
    p99: u64,
    /// Volumes: dirty level, limit, background limit.
    #[serde(serialize_with = "by_name")]
    v: BTreeMap<Arc<str>, [u64; 3]>,
}

fn by_name<S: Serializer>(of: &BTreeMap<Arc<str>, [u64; 3]>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(of.iter().map(|(name, levels)| (&**name, levels)))
}

impl Point {
    fn of(now: &Snapshot, names: &[Arc<str>]) -> Self {
        let memory = &now.memory;
        let volumes = now.volumes.iter();
        let commands = || volumes.clone().flat_map(|volume| &volume.commands);
        let rate = |name: &str| {
            let of_name = commands().filter(|command| command.command == name);
            of_name.map(|command| command.byte_rate).sum()
        };
        let pauses = || volumes.clone().map(|volume| &volume.pauses_recent);
        let pauses = || pauses().filter(|pauses| pauses.count > 0);
        Self {
            t: now.at_ms,
            m: [
                memory.dirty,
                memory.writeback,
                memory.clean,
                memory.metadata,
                memory.other,
            ],
            limit: memory.limit,
            r: rate("read"),
            w: rate("write"),
            q: commands().map(|command| command.request_rate).sum(),
            held: volumes.clone().map(|volume| volume.numbers.held).sum(),
            p50: pauses().map(|pauses| pauses.p50_us).max().unwrap_or(0),
            p99: pauses().map(|pauses| pauses.p99_us).max().unwrap_or(0),
            v: names
                .iter()
                .zip(volumes.clone())
                .map(|(name, volume)| {
                    let level = &volume.level;
                    (
                        Arc::clone(name),
                        [level.level, level.limit, level.background],
                    )
                })
                .collect(),
        }
    }
}

/// The last points, oldest first.
#[derive(Debug, Default)]
pub(super) struct History {
    points: VecDeque<Point>,
    names: Vec<Arc<str>>,
}

impl History {
    pub(super) fn note(&mut self, now: &Snapshot) {
        let volumes = &now.volumes[..now.volumes.len().min(VOLUMES)];
        let is_same = volumes.len() == self.names.len()
            && volumes
                .iter()
                .zip(&self.names)
                .all(|(volume, name)| volume.name == **name);
        if !is_same {
            self.names = volumes
                .iter()
                .map(|volume| volume.name.as_str().into())
                .collect();
        }
        if self.points.len() == KEPT {
            self.points.pop_front();
        }
        self.points.push_back(Point::of(now, &self.names));
    }

    /// All of it as JSON.
    pub(super) fn json(&self) -> String {
        // Plain data with keys of text: there is nothing that it could refuse.
        serde_json::to_string(&self.points).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::snapshot::tests::reading;
    use crate::snapshot::{Sampler, State};

    #[test]
    fn so_many_seconds_and_volumes_are_kept() {
        let (began, mut sampler, mut history) =
            (Instant::now(), Sampler::default(), History::default());
        for second in 1..=KEPT as u64 + 20 {
            let mut now = reading(began, 1, State::Ok);
            let volume = now.volumes[0].clone();
            now.volumes.resize(100, volume);
            for (number, volume) in now.volumes.iter_mut().enumerate() {
                volume.name = format!("v{number}");
            }
            now.at += std::time::Duration::from_secs(second);
            history.note(&sampler.next(now));
        }
        let text = history.json();
        let points: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        assert_eq!(points.len(), KEPT);
        assert_eq!(points[0]["t"], 1_795_305_901_000_u64 + 21_000);
        assert_eq!(points[0]["v"].as_object().unwrap().len(), VOLUMES);
        assert_eq!(
            points[0]["v"]["v31"],
            serde_json::json!([36 << 20, 48 << 20, 24 << 20])
        );
        assert!(text.len() < 1 << 20, "{}", text.len());
    }

    #[test]
    fn a_point_is_what_the_snapshot_says() {
        let (began, mut sampler, mut history) =
            (Instant::now(), Sampler::default(), History::default());
        sampler.next(reading(began, 1, State::Ok));
        history.note(&sampler.next(reading(began, 2, State::Ok)));
        let point = &history.points[0];
        assert_eq!(
            (point.w, point.r, point.q, point.held),
            (2000 * 4096, 100 * 4096, 2100, 16)
        );
        assert_eq!((point.p50, point.p99), (8_192, 40_000));
        assert_eq!(point.m.iter().sum::<u64>(), 215 << 20);
    }
}
