//! From what a session and its world recorded to an `Outcome`.

use std::collections::{BTreeMap, BTreeSet};

use env::{Event, TaskId};
use policy::dirty::{BalanceTrace, Law, PauseReason};
use policy::units::{Instant, Nanos, Pages};
use workload::{LongCall, Report};

use super::cell::Cell;
use super::jobs::{JobKind, JobSpec};
use super::session::Ended;
use crate::outcome::{Counter, DeviceOutcome, Job, Outcome, Pause};

/// An event with its time and task.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) at: Instant,
    pub(super) task: TaskId,
    pub(super) event: Event,
}

/// Tenths of a second that are told apart: a day of them.
const TENTHS_MAX: usize = 864_000;
/// A tenth of a second.
const TENTH: Nanos = Nanos::millis(100);
/// A write of a heavy writer may take this long, however fast the device is.
const WRITE_FLOOR_S: f64 = 0.2;
/// ... and so many times what its equal share of the device needs for it.
const WRITE_SLACK: f64 = 1.5;

/// Whether it matters what each writer dirtied when: several are compared, or the device has a rate that
/// it can be held against.
pub(super) fn counts_dirtied(cell: &Cell) -> bool {
    let heavy = cell.jobs.iter().filter(|job| is_heavy(&job.kind)).count();
    heavy > 1 || cell.devices.iter().any(|device| device.rate.is_some())
}

const fn is_heavy(kind: &JobKind) -> bool {
    match kind {
        // One that rests between its calls writes no faster than it wants to.
        JobKind::Dd(dd) => dd.rest.is_zero(),
        JobKind::Cp(_) | JobKind::RandWrite(_) => true,
        JobKind::Light(_)
        | JobKind::Read(_)
        | JobKind::Hog(_)
        | JobKind::Map(_)
        | JobKind::RandRead(_)
        | JobKind::Bystander(_)
        | JobKind::Phases(_) => false,
    }
}

/// What is the same in the lab and live. `shrink`: by how much the devices are slower.
pub(super) fn outcome(cell: &Cell, shrink: u64, ended: &Ended, events: &[Seen]) -> Outcome {
    let tenths = tenths(events, ended.origin);
    let jobs = ended.reports.iter().zip(&cell.jobs);
    let devices = devices(cell, ended);
    Outcome {
        case: cell.case.clone(),
        policy: cell.policy.clone(),
        scale: cell.scale,
        // Where a page costs more the fewer there are, CPU times are those of the full size already.
        cpu_scale: if cell.scale_costs { 1.0 } else { cell.scale },
        apart: cell.apart,
        tick_ms: 1e3 / f64::from(cell.hz.max(1)),
        jobs: jobs
            .map(|(report, spec)| {
                let mut job = job(report, spec, ended.origin);
                if let Some(device) = spec.device {
                    job.device.clone_from(&cell.devices[device].id);
                }
                job.per_tenth = tenths.get(&report.task).cloned().unwrap_or_default();
                job.write_bound = job
                    .is_heavy
                    .then(|| write_bound(cell, shrink, ended, report, spec.device?))
                    .flatten();
                job
            })
            .collect(),
        pauses: pauses(cell.dirty.law, events, ended.origin),
        levels: ended.levels.clone(),
        level_peak: level_peak(ended, events),
        changes: changes(cell, ended),
        devices,
        counters: counters(ended),
        vmstat: ended.vmstat.clone(),
        virtual_s: seconds(ended.elapsed),
        memory_limit: number(cell.memory.bytes().0),
        ..Outcome::default()
    }
}

/// Bytes that each task dirtied in each tenth of a second.
fn tenths(events: &[Seen], origin: Instant) -> BTreeMap<TaskId, Vec<f64>> {
    let mut all: BTreeMap<TaskId, Vec<f64>> = BTreeMap::new();
    for seen in events {
        let Event::Dirtied { pages, .. } = seen.event else {
            continue;
        };
        let tenth = seen.at.since(origin).0 / TENTH.0;
        let tenth = usize::try_from(tenth).map_or(TENTHS_MAX - 1, |at| at.min(TENTHS_MAX - 1));
        let tenths = all.entry(seen.task).or_default();
        if tenths.len() <= tenth {
            tenths.resize(tenth + 1, 0.0);
        }
        tenths[tenth] += number(pages.bytes().0);
    }
    all
}

fn devices(cell: &Cell, ended: &Ended) -> Vec<DeviceOutcome> {
    let all = cell.devices.iter().zip(&ended.meters);
    all.zip(&ended.device_levels)
        .map(|((spec, meter), levels)| {
            let rates = spec.rates(1);
            let stand = rates.iter().zip(rates.iter().skip(1));
            DeviceOutcome {
                id: spec.id.clone(),
                hangs: stand
                    .filter(|((_, rate), _)| *rate == 0)
                    .map(|((from, _), (to, _))| (seconds(*from), seconds(*to)))
                    .collect(),
                longest_write: number(meter.longest_write.0),
                levels: levels.clone(),
            }
        })
        .collect()
}

/// When something changed: a writer began, a rate was changed.
fn changes(cell: &Cell, ended: &Ended) -> Vec<f64> {
    let began = ended.reports.iter().zip(&cell.jobs);
    let began = began
        .filter(|(_, job)| job.kind.writes())
        .map(|(report, _)| seconds(report.began.since(ended.origin)));
    let rates = cell.devices.iter().flat_map(|device| &device.changes);
    let mut all: Vec<f64> = began.chain(rates.map(|(at, _)| seconds(*at))).collect();
    all.retain(|at| *at < seconds(ended.elapsed));
    all.sort_by(f64::total_cmp);
    all
}

/// The highest level as a part of its limit.
fn level_peak(ended: &Ended, events: &[Seen]) -> f64 {
    let part = |level: f64, limit: f64| if limit > 0.0 { level / limit } else { 0.0 };
    let sampled = ended.levels.iter();
    let mut peak = sampled
        .map(|level| part(level.dirty + level.writeback, level.limit))
        .fold(0.0, f64::max);
    let mut samples = ended.levels.iter().peekable();
    let mut limit = ended.levels.first().map_or(0.0, |level| level.limit);
    for seen in events {
        let Event::BalanceDirtyPages { trace, .. } = &seen.event else {
            continue;
        };
        let at = seconds(seen.at.since(ended.origin));
        while let Some(level) = samples.next_if(|level| level.at_s <= at) {
            limit = level.limit;
        }
        peak = peak.max(part(number(trace.dirty.0), limit));
    }
    peak
}

/// The longest call of a heavy writer, as a part of what one of N equal writers may take for S bytes on
/// a device of rate B: max(200 ms, 1.5 N S / B). N counts the heavy writers that were at work on the
/// device during the call, B is the lowest rate during it: the scenario's, else the mean of the run. A
/// call during which the device stood still has no bound.
fn write_bound(
    cell: &Cell,
    shrink: u64,
    ended: &Ended,
    report: &Report,
    device: usize,
) -> Option<f64> {
    let rates = cell.devices[device].rates(shrink);
    let meter = &ended.meters[device];
    let mean = number(meter.written.0) / seconds(meter.busy);
    let slowest = |from: f64, to: f64| {
        let ends = rates.iter().skip(1).map(|(at, _)| seconds(*at));
        let spans = rates.iter().zip(ends.chain([f64::INFINITY]));
        spans
            .filter(|((at, _), end)| seconds(*at) <= to && from < *end)
            .map(|((_, rate), _)| number(*rate))
            .min_by(f64::total_cmp)
            .unwrap_or(mean)
    };
    let all = ended.reports.iter().zip(&cell.jobs);
    let rivals: Vec<(f64, f64)> = all
        .filter(|(_, job)| job.device == Some(device) && is_heavy(&job.kind))
        .map(|(report, _)| {
            let began = report.began.since(ended.origin);
            (seconds(began), seconds(began + report.moving))
        })
        .collect();
    let ratio = |call: &LongCall| {
        let (from, took) = (seconds(call.began), seconds(call.took));
        let rate = slowest(from, from + took);
        let writers = rivals
            .iter()
            .filter(|(began, ended)| *began <= from + took && from <= *ended)
            .fold(0.0, |count, _| count + 1.0);
        let share = WRITE_SLACK * writers * number(call.bytes.0) / rate;
        (rate > 0.0).then(|| took / share.max(WRITE_FLOOR_S))
    };
    let calls = report.long_calls.iter();
    calls.filter_map(ratio).max_by(f64::total_cmp)
}

fn job(report: &Report, spec: &JobSpec, origin: Instant) -> Job {
    let kind = &spec.kind;
    let began = report.began.since(origin);
    let rate_share = match kind {
        JobKind::Light(light) => {
            let due = light.lasting.0 / light.every.0.max(1);
            number(report.bytes.0) / number((due * light.block.0).max(1))
        }
        _ => 1.0,
    };
    let calls = &report.latencies;
    Job {
        name: report.name.clone(),
        entry: spec.entry.clone(),
        task: report.task.0,
        kind: kind.name(),
        is_heavy: is_heavy(kind),
        is_light: matches!(kind, JobKind::Light(_)),
        is_reader: matches!(kind, JobKind::Read(_) | JobKind::RandRead(_)),
        is_hog: matches!(kind, JobKind::Hog(_)),
        is_mapper: matches!(kind, JobKind::Map(_)),
        is_bystander: matches!(kind, JobKind::Bystander(_)),
        samples: report
            .samples
            .iter()
            .map(|sample| (seconds(sample.at), millis(sample.took)))
            .collect(),
        passes: number(report.passes),
        touched: number(report.touched.0),
        faults: number(report.faults.0),
        major: number(report.major.0),
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
        response_lengths: report
            .responses
            .iter()
            .map(|(length, calls)| (millis(length), calls))
            .collect(),
        ..Job::default()
    }
}

/// Which balances have to be kept for `outcome`: not those that neither slept nor printed a line, which live are
/// thousands a second and memory that comes on top of the limit. One that is higher than all before it is, for the level.
#[derive(Debug, Default)]
pub(super) struct Sieve {
    /// Writers in a stay of which a balance was kept.
    open: BTreeSet<u32>,
    highest: Pages,
}

impl Sieve {
    pub(super) fn keeps(&mut self, writer: u32, trace: &BalanceTrace, done: bool) -> bool {
        let higher = trace.dirty > self.highest;
        self.highest = self.highest.max(trace.dirty);
        let ends = done || trace.line;
        let was_open = if ends {
            self.open.remove(&writer)
        } else {
            !self.open.insert(writer)
        };
        !done || trace.line || was_open || higher
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
        Law::SoftRegion { .. } | Law::RateBased | Law::Tidegate { .. } => trace.pause,
    }
}

fn counters(ended: &Ended) -> Vec<Counter> {
    let stats = &ended.settled;
    let own = [
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
    ];
    let vmstat = ended.vmstat_end.entries();
    let vmstat = vmstat.map(|(name, value)| (name, number(value)));
    let refused = ended.reports.iter().map(|report| report.refused).sum();
    let own = own.into_iter().chain([("refused", number(refused))]);
    own.chain(vmstat).collect()
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
    fn what_is_not_kept_changes_no_line_and_no_highest_level() {
        let level = |dirty: u64, mut event: Seen| {
            if let Event::BalanceDirtyPages { trace, .. } = &mut event.event {
                trace.dirty = Pages(dirty);
            }
            event
        };
        let events = [
            level(10, seen(0, trace(0, 0, false), true)),
            level(9, seen(1, trace(0, 0, false), true)),
            level(8, seen(2, trace(8, 0, true), false)),
            level(8, seen(10, trace(0, 8, false), true)),
            level(7, seen(20, trace(4, 0, false), false)),
            level(7, seen(24, trace(0, 4, true), true)),
            level(11, seen(30, trace(0, 0, false), true)),
        ];
        let mut sieve = Sieve::default();
        let kept: Vec<Seen> = events
            .iter()
            .filter(|seen| match &seen.event {
                Event::BalanceDirtyPages {
                    writer,
                    trace,
                    done,
                    ..
                } => sieve.keeps(*writer, trace, *done),
                _ => true,
            })
            .cloned()
            .collect();
        let times: Vec<u64> = kept.iter().map(|seen| seen.at.0 / 1_000_000).collect();
        assert_eq!(times, [0, 2, 20, 24, 30]);
        for law in [
            Law::ForegroundWriteback,
            Law::SoftRegion { measured: true },
            Law::RateBased,
        ] {
            assert_eq!(printed(law, &kept), printed(law, &events));
        }
    }

    #[test]
    fn a_skipped_pause_of_6_12_is_a_line_of_zero() {
        let events = [seen(7, trace(0, 0, true), true)];
        assert_eq!(printed(Law::RateBased, &events), [(0.007, 0.0)]);
    }
}
