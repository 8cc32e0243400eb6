//! From what a session and its world recorded to an `Outcome`.

use std::collections::BTreeMap;

use env::{Event, TaskId};
use policy::dirty::PauseReason;
use policy::units::{Instant, Nanos};
use workload::Report;

use super::cell::{Cell, JobKind};
use super::session::Ended;
use crate::outcome::{Counter, Job, Outcome, Pause};

/// An event with its time and task.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) at: Instant,
    pub(super) task: TaskId,
    pub(super) event: Event,
}

/// What is the same in the lab and live.
pub(super) fn outcome(cell: &Cell, ended: &Ended, events: &[Seen]) -> Outcome {
    let jobs = ended.reports.iter().zip(&cell.jobs);
    Outcome {
        case: cell.case.clone(),
        policy: cell.policy.clone(),
        scale: cell.scale,
        jobs: jobs
            .map(|(report, spec)| job(report, spec.kind, ended.origin))
            .collect(),
        pauses: pauses(events, ended.origin),
        levels: ended.levels.clone(),
        counters: counters(ended),
        virtual_s: seconds(ended.elapsed),
        memory_limit: number(cell.memory.bytes().0),
        ..Outcome::default()
    }
}

fn job(report: &Report, kind: JobKind, origin: Instant) -> Job {
    let began = report.began.since(origin);
    let rate_share = match kind {
        JobKind::Light(light) => {
            let due = light.lasting.0 / light.every.0.max(1);
            number(report.bytes.0) / number((due * light.block.0).max(1))
        }
        JobKind::Dd(_) | JobKind::Cp(_) | JobKind::Read(_) => 1.0,
    };
    let calls = &report.latencies;
    Job {
        name: report.name.clone(),
        kind: kind.name(),
        is_heavy: matches!(kind, JobKind::Dd(_) | JobKind::Cp(_)),
        is_light: matches!(kind, JobKind::Light(_)),
        is_reader: matches!(kind, JobKind::Read(_)),
        began_s: seconds(began),
        moved_s: seconds(began + report.moving),
        ended_s: seconds(began + report.elapsed),
        bytes: number(report.bytes.0),
        calls: calls.count(),
        call_mean_ms: millis(calls.mean_floor()),
        call_p50_ms: millis(calls.percentile(50.0)),
        call_p99_ms: millis(calls.percentile(99.0)),
        call_max_ms: millis(calls.max()),
        response_p99_ms: millis(report.responses.percentile(99.0)),
        response_max_ms: millis(report.responses.max()),
        rate_share,
        per_second: report
            .per_second
            .bytes()
            .iter()
            .map(|bytes| number(*bytes))
            .collect(),
        call_lengths: calls
            .iter()
            .map(|(length, calls)| (millis(length), calls))
            .collect(),
    }
}

/// Puts the decisions of each stay together; a stay that was cut off is left out.
fn pauses(events: &[Seen], origin: Instant) -> Vec<Pause> {
    let mut open: BTreeMap<u32, Pause> = BTreeMap::new();
    let mut pauses = Vec::new();
    for seen in events {
        let Event::BalanceDirtyPages {
            writer,
            trace,
            why,
            done,
            ..
        } = &seen.event
        else {
            continue;
        };
        let stay = open.entry(*writer).or_default();
        let nap = millis(trace.pause);
        stay.slept_ms += nap;
        stay.longest_ms = stay.longest_ms.max(nap);
        stay.dirtied = stay.dirtied.max(number(trace.dirtied.0));
        stay.written = stay.written.max(number(trace.written.0));
        stay.stalled |= *why == Some(PauseReason::NoProgress);
        stay.at_s = seconds(seen.at.since(origin));
        stay.task = seen.task.0;
        stay.writer = *writer;
        stay.device_dirty = number(trace.device_dirty.0);
        stay.device_limit = number(trace.device_limit.0);
        if trace.task_ratelimit.0 > 0 {
            stay.task_ratelimit = number(trace.task_ratelimit.0);
        }
        if *done {
            pauses.extend(open.remove(writer));
        }
    }
    pauses
}

fn counters(ended: &Ended) -> Vec<Counter> {
    let stats = &ended.settled;
    vec![
        ("nr_dirtied", number(stats.dirtied.0)),
        ("nr_written", number(stats.written.0)),
        ("pages_discarded", number(stats.discarded.0)),
        ("pages_write_failed", number(stats.write_failed.0)),
        ("pages_read_in", number(stats.read_in.0)),
        ("pgscan", number(stats.scanned.0)),
        ("pgsteal", number(stats.reclaimed.0)),
        ("nr_dirty_at_end", number(ended.stats.dirty.0)),
        ("nr_writeback_at_end", number(ended.stats.writeback.0)),
        ("metadata_bytes", number(stats.metadata_bytes)),
    ]
}

pub(super) fn seconds(time: Nanos) -> f64 {
    number(time.0) / 1e9
}

fn millis(time: Nanos) -> f64 {
    number(time.0) / 1e6
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts, bytes and times are below 2^53"
)]
pub(super) fn number(value: u64) -> f64 {
    value as f64
}
