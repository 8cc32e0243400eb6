//! From what a session and its world recorded to an `Outcome`.

use device::MeterReading;
use policy::units::Instant;
use workload::{LongCall, Report};

use super::cell::Cell;
use super::digest::Digest;
use super::jobs::JobSpec;
use super::real::{millis, number, seconds};
use super::session::Ended;
use crate::outcome::{Counter, DeviceOutcome, Job, Outcome};
use scenario::task::{Files, Memory};

/// A write of a heavy writer may take this long, however fast the device is.
const WRITE_FLOOR_S: f64 = 0.2;
/// ... ... and this many times the time that its equal share of the device needs for it.
const WRITE_SLACK: f64 = 1.5;

/// True if the order in which writers dirty pages matters: several are compared, or the device has
/// a rate that it can be held against.
pub(super) fn counts_dirtied(cell: &Cell) -> bool {
    let heavy = cell.jobs.iter().filter(|job| job.traits.heavy).count();
    heavy > 1 || cell.devices.iter().any(|device| device.rate.is_some())
}

/// The common part of an outcome in the lab and live. `shrink`: by how much the devices are slower.
pub(super) fn outcome(cell: &Cell, shrink: u64, ended: &Ended, mut digest: Digest) -> Outcome {
    let jobs = ended.reports.iter().zip(&cell.jobs);
    let devices = devices(cell, ended);
    let mut outcome = Outcome {
        case: cell.case.clone(),
        policy: cell.policy.clone(),
        scale: cell.scale,
        // Where a page costs more the fewer there are, CPU times are those of the full size
        // already.
        cpu_scale: if cell.scale_costs { 1.0 } else { cell.scale },
        apart: cell.apart,
        tick_ms: 1e3 / f64::from(cell.laws.dirty.hz.max(1)),
        jobs: jobs
            .map(|(report, spec)| {
                let mut job = job(report, spec, ended.origin);
                if let Some(device) = spec.device {
                    job.device.clone_from(&cell.devices[device].id);
                }
                if spec.facts.files_a_round > 0 {
                    let all = cell.jobs.iter().filter(|job| job.entry == spec.entry);
                    job.files_a_round = number(all.map(|job| job.facts.files_a_round).sum());
                }
                job.per_tenth = digest.take_tenths(report.task);
                job.write_bound = job
                    .is_heavy
                    .then(|| write_bound(cell, shrink, ended, report, spec.device?))
                    .flatten();
                job
            })
            .collect(),
        levels: ended.levels.clone(),
        level_peak: digest.level_peak(&ended.levels),
        changes: changes(cell, ended),
        devices,
        counters: counters(ended),
        vmstat: ended.vmstat.clone(),
        nodes: ended.nodes.clone(),
        virtual_s: seconds(ended.elapsed),
        memory_limit: number(cell.memory.bytes().0),
        ..Outcome::default()
    };
    (outcome.pauses, outcome.pauses_left_out) = digest.pauses();
    outcome
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
        .filter(|(_, job)| job.writes())
        .map(|(report, _)| seconds(report.began.since(ended.origin)));
    let rates = cell.devices.iter().flat_map(|device| &device.changes);
    let mut all: Vec<f64> = began.chain(rates.map(|(at, _)| seconds(*at))).collect();
    all.retain(|at| *at < seconds(ended.elapsed));
    all.sort_by(f64::total_cmp);
    all
}

/// The longest call of a heavy writer, as a part of what one of N equal writers may take for S
/// bytes on a device of rate B: max(200 ms, 1.5 N S / B). N counts the heavy writers that were at
/// work on the device during the call, B is the lowest rate during it: the scenario's, else the
/// mean of the run. A call during which the device stood still has no bound.
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
        .filter(|(_, job)| job.device == Some(device) && job.traits.heavy)
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
    let traits = &spec.traits;
    let began = report.began.since(origin);
    let due = spec.facts.due;
    let rate_share = due.map_or(1.0, |due| number(report.bytes.0) / number(due.0.max(1)));
    let calls = &report.latencies;
    Job {
        name: report.name.clone(),
        entry: spec.entry.clone(),
        task: report.task.0,
        kind: spec.kind,
        is_heavy: traits.heavy,
        is_light: due.is_some(),
        is_reader: traits.reads,
        is_hog: traits.memory == Memory::Kept,
        is_mapper: traits.memory == Memory::Mapped,
        is_bystander: traits.memory == Memory::Scheduled,
        fills_memory: traits.fills_memory(),
        makes_small: traits.files == Files::SmallMade,
        has_inodes: spec.facts.has_inodes,
        samples: report
            .samples
            .iter()
            .map(|sample| (seconds(sample.at), millis(sample.took)))
            .collect(),
        parts: report
            .parts
            .iter()
            .map(|part| (part.name, seconds(part.took)))
            .collect(),
        passes: number(report.passes),
        misses: number(report.misses),
        passed_over: number(report.passed_over),
        iterations: super::runs::iterations(report),
        touched: number(report.touched.0),
        touched_far: number(report.far.0),
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
        ("cached_at_end", number(ended.stats.cached.0)),
    ];
    let devices = |of: fn(&MeterReading) -> u64| number(ended.meters.iter().map(of).sum());
    let devices = [
        ("device_busy_ns", devices(|meter| meter.busy.0)),
        ("device_reads", devices(|meter| meter.reads)),
        ("device_read_bytes", devices(|meter| meter.read.0)),
        ("device_writes", devices(|meter| meter.writes)),
        ("device_written_bytes", devices(|meter| meter.written.0)),
        ("device_seeks", devices(|meter| meter.seeks)),
    ];
    let vmstat = ended.vmstat_end.entries();
    let vmstat = vmstat.map(|(name, value)| (name, number(value)));
    let refused = ended.reports.iter().map(|report| report.refused).sum();
    let own = own.into_iter().chain(devices);
    let own = own.chain([("refused", number(refused))]);
    own.chain(vmstat).collect()
}
