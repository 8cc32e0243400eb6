//! From what a session and its world recorded to an `Outcome`.

use std::collections::BTreeMap;

use env::{Event, TaskId};
use policy::dirty::{BalanceTrace, Law, PauseReason};
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
        pauses: pauses(cell.dirty.law, events, ended.origin),
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

/// The pauses as the published traces print them: one for each decision that the original prints a
/// line for (`BalanceTrace::line`). Sleep of decisions without a line belongs to the stay's next line,
/// and is lost with it when a stay ends without one.
fn pauses(law: Law, events: &[Seen], origin: Instant) -> Vec<Pause> {
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
        let line = open.entry(*writer).or_default();
        line.longest_ms = line.longest_ms.max(millis(trace.pause));
        line.dirtied = line.dirtied.max(number(trace.dirtied.0));
        line.written = line.written.max(number(trace.written.0));
        line.stalled |= *why == Some(PauseReason::NoProgress);
        if trace.task_ratelimit.0 > 0 {
            line.task_ratelimit = number(trace.task_ratelimit.0);
        }
        if trace.line {
            line.at_s = seconds(seen.at.since(origin));
            line.task = seen.task.0;
            line.writer = *writer;
            line.printed_after = law == Law::ForegroundWriteback;
            line.slept_ms = millis(printed_pause(law, trace));
            line.device_dirty = number(trace.device_dirty.0);
            line.device_limit = number(trace.device_limit.0);
            line.dirty_ratelimit = number(trace.dirty_ratelimit.0);
            pauses.extend(open.remove(writer));
        }
        if *done {
            open.remove(writer);
        }
    }
    pauses
}

/// What the original prints as the pause of its line.
fn printed_pause(law: Law, trace: &BalanceTrace) -> Nanos {
    match law {
        Law::ForegroundWriteback => trace.paused,
        Law::SoftRegion { .. } | Law::RateBased => trace.pause,
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use policy::dirty::DeviceIndex;

    fn seen(at_ms: u64, trace: BalanceTrace, done: bool) -> Seen {
        Seen {
            at: Instant(at_ms * 1_000_000),
            task: TaskId(3),
            event: Event::BalanceDirtyPages {
                device: DeviceIndex(0),
                writer: 1,
                trace,
                why: None,
                done,
            },
        }
    }

    fn trace(pause: u64, paused: u64, line: bool) -> BalanceTrace {
        BalanceTrace {
            pause: Nanos::millis(pause),
            paused: Nanos::millis(paused),
            line,
            ..BalanceTrace::default()
        }
    }

    fn printed(law: Law, events: &[Seen]) -> Vec<(f64, f64)> {
        let pauses = pauses(law, events, Instant::ZERO);
        pauses.iter().map(|p| (p.at_s, p.slept_ms)).collect()
    }

    #[test]
    fn the_line_of_2_6_36_is_a_whole_call_and_may_be_zero() {
        let events = [
            seen(0, trace(4, 0, false), false),
            seen(4, trace(8, 4, false), false),
            seen(12, trace(0, 12, true), true),
            seen(50, trace(0, 0, true), true),
        ];
        let lines = printed(Law::ForegroundWriteback, &events);
        assert_eq!(lines, [(0.012, 12.0), (0.05, 0.0)]);
    }

    #[test]
    fn a_line_of_p1_is_one_pause_and_a_call_without_one_prints_nothing() {
        let events = [
            seen(0, trace(8, 0, true), false),
            seen(8, trace(0, 8, false), true),
            seen(20, trace(0, 0, false), true),
            seen(30, trace(200, 0, true), false),
            seen(230, trace(8, 200, true), false),
            seen(238, trace(0, 208, false), true),
        ];
        let lines = printed(Law::SoftRegion { measured: true }, &events);
        assert_eq!(lines, [(0.0, 8.0), (0.03, 200.0), (0.23, 8.0)]);
    }

    #[test]
    fn a_skipped_pause_of_6_12_is_a_line_of_zero() {
        let events = [seen(7, trace(0, 0, true), true)];
        assert_eq!(printed(Law::RateBased, &events), [(0.007, 0.0)]);
    }
}
