//! Metrics of reclaim: latencies of the worker that maps memory, the counters of mmtests' `Ops`
//! rows, which tasks were throttled for what, what the hogs got done.
//!
//! Page counts are brought back to full size (divided by the scale). Throttlings are not: timeouts
//! do not scale, nor does the number of tasks. A share is of the throttlings of one reason: *zero*
//! did not sleep a tick, *timeout* slept as long as it may.
//!
//! Metrics that are `pooled` are of the samples of all repetitions together, as mmtests has them;
//! the others are means over the repetitions.
//!
//! Source: experiments A1, A7, B1, B6, B7; mechanisms 10.2.

use env::Cause;
use policy::reclaim::Reason;

use super::throttles::{Who, is_timeout, is_zero, of_reason, real};
use super::{count, echo, metrics};
use crate::outcome::{Job, Outcome, TaskCpu, ThrottleCount};
use crate::stats::{Better, Samples, Stat};

const PAGES_PER_GIB: f64 = 262_144.0;
/// The task that reclaims in the background (`mm`).
const BACKGROUND: &str = "reclaimer";
/// Causes of waits in reclaim, and for memory.
const RECLAIM: [Cause; 6] = [
    Cause::ReclaimWriteback,
    Cause::ReclaimIsolated,
    Cause::ReclaimNoProgress,
    Cause::ReclaimCongested,
    Cause::CongestionWait,
    Cause::Memory,
];

metrics! {
    /// The metrics of reclaim.
    METRICS:
    "lat_amean_ms", "ms", Lower pooled, |o| latency(o, Stat::Mean), "mean latency of mapping, touching and unmapping";
    "lat_stddev_ms", "ms", Lower pooled, |o| latency(o, Stat::Stddev), "standard deviation of the latency of mapping, touching and unmapping";
    "lat_p50_ms", "ms", Lower pooled, |o| latency(o, Stat::Max(50)), "median latency of mapping, touching and unmapping";
    "lat_max90_ms", "ms", Lower pooled, |o| latency(o, Stat::Max(90)), "90 % of the latencies of mapping, touching and unmapping are no longer";
    "lat_max99_ms", "ms", Lower pooled, |o| latency(o, Stat::Max(99)), "99 % of the latencies of mapping, touching and unmapping are no longer";
    "lat_max_ms", "ms", Lower pooled, |o| latency(o, Stat::Worst), "longest latency of mapping, touching and unmapping";
    "lat_samples", "", Higher, |o| mapped(o).map(|samples| count(samples.len())), "measured passes of mapping, touching and unmapping";
    "lat_system_ms", "ms", Lower, system_of_a_round, "system CPU time of mapping, touching and unmapping once";
    "bystander_p99_ms", "ms", Lower pooled, |o| bystander(o, Stat::Max(99)), "p99 of the allocations of a task that takes little and gives it back";
    "bystander_max_ms", "ms", Lower pooled, |o| bystander(o, Stat::Worst), "longest allocation of a task that takes little and gives it back";
    "hog_gib", "GiB", Higher, hogs, "pages that the hogs touched, however often";
    "read_mbps", "MB/s", Higher, read_rate, "bytes read by all readers / the longest reader's time";
    "asleep", "", Lower, asleep, "tasks that direct reclaim keeps asleep, on average";
    "flusher_throttled_s", "s", Lower, flusher_throttled, "time for which flushers and other threads of I/O sleep in reclaim; the background reclaimer is none of them";
    "elapsed", "s", Lower, |o| Some(o.virtual_s), "from the beginning to the end of the last job";
    "pgscan_direct", "pages", Lower, |o| pages(o, "pgscan_direct"), "pages scanned by whoever needed memory";
    "pgscan_kswapd", "pages", Lower, |o| pages(o, "pgscan_kswapd"), "pages scanned by the background reclaimer";
    "pgsteal_direct", "pages", Higher, |o| pages(o, "pgsteal_direct"), "pages freed by whoever needed memory";
    "pgsteal_kswapd", "pages", Higher, |o| pages(o, "pgsteal_kswapd"), "pages freed by the background reclaimer";
    "kswapd_efficiency", "%", Higher, |o| efficiency(o, "pgsteal_kswapd", "pgscan_kswapd"), "pages freed / scanned by the background reclaimer";
    "kswapd_velocity", "1/s", Lower, |o| velocity(o, "pgscan_kswapd"), "pages that the background reclaimer scans a second";
    "direct_efficiency", "%", Higher, |o| efficiency(o, "pgsteal_direct", "pgscan_direct"), "pages freed / scanned by whoever needed memory";
    "direct_velocity", "1/s", Lower, |o| velocity(o, "pgscan_direct"), "pages that direct reclaim scans a second";
    "direct_percent", "%", Lower, direct_percent, "part of all scanning that direct reclaim does";
    "reclaim_writes", "pages", Lower, |o| pages(o, "nr_vmscan_write"), "pages that reclaim wrote";
    "anon_writes", "pages", Lower, |o| pages(o, "pswpout"), "pages written to the swap file";
    "swap_reads", "pages", Lower, |o| pages(o, "pswpin"), "pages read from the swap file";
    "immediate", "pages", Lower, |o| pages(o, "nr_vmscan_immediate_reclaim"), "dirty pages of files met and left to the flusher";
    "allocstalls", "", Lower, |o| counter(o, "allocstall_normal"), "direct reclaims begun";
    "oom", "", Lower, |o| Some(counter(o, "refused")? + counter(o, "oom_kill").unwrap_or(0.0)), "allocations refused for want of memory, and programs killed for it";
    "cw_timeout", "", Lower pooled, |o| share(o, Who::Any, Reason::CongestionWait, is_timeout), "congestion_wait: part that reaches its timeout";
    "wic_zero", "", Lower pooled, |o| share(o, Who::Direct, Reason::WaitIffCongested, is_zero), "wait_iff_congested: part that does not sleep";
    "writeback_timeout", "", Lower pooled, |o| share(o, Who::Direct, Reason::Writeback, is_timeout), "direct WRITEBACK: part that reaches its timeout";
    "writeback_zero", "", Lower pooled, |o| share(o, Who::Direct, Reason::Writeback, is_zero), "direct WRITEBACK: part that does not sleep a tick";
    "noprogress_timeout", "", Lower pooled, |o| share(o, Who::Direct, Reason::NoProgress, is_timeout), "direct NOPROGRESS: part that reaches its timeout";
    "noprogress_zero", "", Lower pooled, |o| share(o, Who::Direct, Reason::NoProgress, is_zero), "direct NOPROGRESS: part that does not sleep a tick";
    "noprogress_echo", "", Lower pooled, echo::share, "direct NOPROGRESS: part of the partial sleeps that end 0 to 2 ticks after WRITEBACK's timeout";
    "noprogress_echo_rise", "", Higher pooled, echo::rise, "direct NOPROGRESS: ends of partial sleeps a tick, 0 to 2 ticks after WRITEBACK's timeout / in those around, from half that timeout to twice";
    "noprogress_echo_ms", "ms", Lower pooled, echo::place, "direct NOPROGRESS: partial sleep at which most more end than around it";
    "isolated_zero", "", Lower pooled, |o| share(o, Who::Direct, Reason::Isolated, is_zero), "direct ISOLATED: part that does not sleep a tick";
    "kswapd_timeout", "", Lower pooled, |o| share(o, Who::Background, Reason::Writeback, is_timeout), "background WRITEBACK: part that reaches its timeout";
    "kswapd_other", "", Lower pooled, kswapd_other, "background: throttlings for anything but WRITEBACK";
    "whole_ticks", "", Higher pooled, whole_ticks, "part of the throttlings that last whole ticks";
    "throttle_max_ms", "ms", Lower pooled, throttle_max_ms, "the longest throttling";
    "resident_peak", "", Lower, resident_peak, "highest resident memory of the process / its limit; live alone";
}

fn throttle_max_ms(o: &Outcome) -> Option<f64> {
    let lengths = o.throttles.iter().map(|throttle| throttle.delayed_ms);
    super::largest(lengths)
}

/// Samples of the workers that map memory, ms.
#[must_use]
pub fn mapped(outcome: &Outcome) -> Option<Vec<f64>> {
    let jobs = outcome.jobs.iter().filter(|job| job.is_mapper);
    let samples: Vec<f64> = jobs
        .flat_map(|job| job.samples.iter().map(|(_, length)| *length))
        .collect();
    (!samples.is_empty()).then_some(samples)
}

fn latency(outcome: &Outcome, stat: Stat) -> Option<f64> {
    Samples::new(mapped(outcome)?, Better::Lower).value(stat)
}

/// System time of the workers that map memory, by round: a worker that makes more rounds in the
/// same time uses more in all.
fn system_of_a_round(outcome: &Outcome) -> Option<f64> {
    let rounds = count(mapped(outcome)?.len());
    let mappers = || outcome.jobs.iter().filter(|job| job.is_mapper);
    let of_one = |task: &&TaskCpu| task.is_job && mappers().any(|job| job.name == task.name);
    let system: f64 = outcome
        .tasks
        .iter()
        .filter(of_one)
        .map(|task| task.system_s)
        .sum();
    Some(system * 1e3 / rounds)
}

fn bystander(outcome: &Outcome, stat: Stat) -> Option<f64> {
    let jobs = outcome.jobs.iter().filter(|job| job.is_bystander);
    let samples = jobs.flat_map(|job| job.samples.iter().map(|(_, length)| *length));
    Samples::new(samples, Better::Lower).value(stat)
}

fn hogs(outcome: &Outcome) -> Option<f64> {
    let hogs = outcome.jobs.iter().filter(|job| job.is_hog);
    let touched: Vec<f64> = hogs.map(|job| job.touched).collect();
    let sum = touched.iter().sum::<f64>();
    (!touched.is_empty()).then(|| sum / PAGES_PER_GIB / outcome.scale)
}

fn read_rate(outcome: &Outcome) -> Option<f64> {
    let readers = || outcome.jobs.iter().filter(|job| job.is_reader);
    let time = super::largest(readers().map(|job| job.moved_s - job.began_s))?;
    let bytes: f64 = readers().map(|job| job.bytes).sum();
    (time > 0.0).then(|| bytes / 1e6 / time / outcome.scale)
}

fn asleep(outcome: &Outcome) -> Option<f64> {
    let slept = outcome.throttles.iter();
    let slept = slept.filter(|throttle| !throttle.background);
    let seconds: f64 = slept
        .map(|throttle| throttle.delayed_ms * real(throttle.count) / 1e3)
        .sum();
    (has_memory(outcome) && outcome.virtual_s > 0.0).then(|| seconds / outcome.virtual_s)
}

fn flusher_throttled(outcome: &Outcome) -> Option<f64> {
    let ours = outcome.tasks.iter();
    let ours = ours
        .filter(|task| !task.is_job && !task.is_interrupt && !task.name.starts_with(BACKGROUND));
    let waits = ours.flat_map(|task| &task.waits);
    let is_of_reclaim = |name: &str| RECLAIM.iter().any(|cause| format!("{cause:?}") == name);
    let of_reclaim = waits.filter(|(cause, _)| is_of_reclaim(cause));
    // The sum of nothing would be minus zero.
    has_memory(outcome).then(|| of_reclaim.fold(0.0, |sum, (_, slept)| sum + slept))
}

/// True if the run was about anonymous memory, or about files that push each other out: elsewhere
/// these metrics would only be in the way.
fn has_memory(outcome: &Outcome) -> bool {
    let needs = |job: &Job| {
        job.is_hog || job.is_mapper || job.is_bystander || job.fills_memory || job.makes_small
    };
    outcome.jobs.iter().any(needs)
        || counter_of(outcome, "swap_total").is_some_and(|total| total > 0.0)
}

pub(super) fn counter_of(outcome: &Outcome, name: &str) -> Option<f64> {
    let found = outcome.counters.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| *value)
}

pub(super) fn counter(outcome: &Outcome, name: &str) -> Option<f64> {
    counter_of(outcome, name).filter(|_| has_memory(outcome))
}

/// A counter of pages, at full size.
pub(super) fn pages(outcome: &Outcome, name: &str) -> Option<f64> {
    counter(outcome, name).map(|pages| pages / outcome.scale)
}

/// 100 where nothing was scanned, as mmtests has it.
fn efficiency(outcome: &Outcome, freed: &str, scanned: &str) -> Option<f64> {
    let (freed, scanned) = (counter(outcome, freed)?, counter(outcome, scanned)?);
    Some(if scanned > 0.0 {
        100.0 * freed / scanned
    } else {
        100.0
    })
}

fn velocity(outcome: &Outcome, scanned: &str) -> Option<f64> {
    let scanned = pages(outcome, scanned)?;
    (outcome.virtual_s > 0.0).then(|| scanned / outcome.virtual_s)
}

fn direct_percent(outcome: &Outcome) -> Option<f64> {
    let direct = counter(outcome, "pgscan_direct")?;
    let all = direct + counter(outcome, "pgscan_kswapd")?;
    Some(if all > 0.0 { 100.0 * direct / all } else { 0.0 })
}

fn share(
    outcome: &Outcome,
    who: Who,
    reason: Reason,
    which: fn(&ThrottleCount) -> bool,
) -> Option<f64> {
    let (mut all, mut some) = (0, 0);
    for throttle in of_reason(outcome, who, reason) {
        all += throttle.count;
        some += if which(throttle) { throttle.count } else { 0 };
    }
    (all > 0).then(|| real(some) / real(all))
}

fn kswapd_other(outcome: &Outcome) -> Option<f64> {
    let all = outcome.throttles.iter().filter(|throttle| {
        let of_5_15 = matches!(
            throttle.reason,
            Reason::CongestionWait | Reason::WaitIffCongested
        );
        throttle.background && throttle.reason != Reason::Writeback && !of_5_15
    });
    (!outcome.throttles.is_empty()).then(|| real(all.map(|throttle| throttle.count).sum()))
}

fn whole_ticks(outcome: &Outcome) -> Option<f64> {
    let (mut all, mut whole) = (0, 0);
    for throttle in &outcome.throttles {
        all += throttle.count;
        let ticks = throttle.delayed_ms / outcome.tick_ms;
        if (ticks - ticks.round()).abs() < 1e-6 {
            whole += throttle.count;
        }
    }
    (all > 0).then(|| real(whole) / real(all))
}

fn resident_peak(outcome: &Outcome) -> Option<f64> {
    let levels = outcome.levels.iter().map(|level| level.resident);
    let peak = super::largest(levels).filter(|peak| *peak > 0.0)?;
    (outcome.memory_limit > 0.0).then(|| peak / outcome.memory_limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{TaskCpu, ThrottleEnd};

    fn throttled(reason: Reason, delayed_ms: f64, count: u64) -> ThrottleCount {
        ThrottleCount {
            background: false,
            reason,
            timeout_ms: if reason == Reason::NoProgress {
                500.0
            } else {
                100.0
            },
            delayed_ms,
            ended: ThrottleEnd::Event,
            count,
        }
    }

    /// The published delays of the patched column, partial ones summed up.
    fn patched() -> Outcome {
        Outcome {
            scale: 0.5,
            tick_ms: 4.0,
            virtual_s: 2092.98,
            tasks: [("mmap", 0.25), ("hog", 7.0)]
                .map(|(name, system_s)| TaskCpu {
                    name: name.to_owned(),
                    is_job: true,
                    system_s,
                    ..TaskCpu::default()
                })
                .into(),
            jobs: vec![Job {
                name: "mmap".to_owned(),
                is_mapper: true,
                samples: (1..=10).map(|at| (0.0, f64::from(at))).collect(),
                ..Job::default()
            }],
            counters: vec![
                ("pgscan_direct", 774.0),
                ("pgscan_kswapd", 226.0),
                ("pgsteal_direct", 10.0),
                ("pgsteal_kswapd", 0.0),
            ],
            throttles: vec![
                throttled(Reason::NoProgress, 0.0, 22_727),
                throttled(Reason::NoProgress, 52.0, 16_850),
                throttled(Reason::NoProgress, 104.0, 2_364),
                throttled(Reason::NoProgress, 500.0, 51_305),
                throttled(Reason::Writeback, 0.0, 7_147),
                throttled(Reason::Writeback, 10.5, 5_825),
                throttled(Reason::Writeback, 100.0, 83_962),
            ],
            ..Outcome::default()
        }
    }

    fn value(name: &str) -> f64 {
        let metric = super::super::by_name(name).unwrap();
        (metric.of)(&patched()).unwrap()
    }

    fn near(name: &str, expected: f64) {
        let value = value(name);
        assert!(
            (value - expected).abs() <= expected.abs() * 0.005,
            "{name} is {value}, not {expected}"
        );
    }

    #[test]
    fn shares_and_sleepers_of_the_published_delays() {
        near("noprogress_timeout", 0.5502);
        near("noprogress_zero", 0.2437);
        near("writeback_timeout", 0.8662);
        near("writeback_zero", 0.0737);
        near("noprogress_echo", 2364.0 / 19_214.0);
        near("asleep", 16.8);
        near("whole_ticks", 1.0 - 5825.0 / 190_180.0);
    }

    #[test]
    fn system_time_of_a_round_is_the_mappers_alone() {
        near("lat_system_ms", 25.0);
    }

    #[test]
    fn counters_are_brought_back_to_full_size_and_efficiencies_are_not() {
        near("pgscan_direct", 1548.0);
        near("direct_percent", 77.4);
        near("direct_efficiency", 1000.0 / 774.0);
        near("direct_velocity", 1548.0 / 2092.98);
        assert_eq!(value("kswapd_efficiency").to_bits(), 0.0_f64.to_bits());
    }

    #[test]
    fn a_flusher_that_reclaim_holds_up_shows_and_the_background_reclaimer_does_not() {
        let task = |name: &str, is_job, cause: &str| TaskCpu {
            name: name.into(),
            is_job,
            waits: vec![(cause.into(), 2.0), ("Idle".into(), 9.0)],
            ..TaskCpu::default()
        };
        let mut run = patched();
        run.tasks = vec![
            task("hog", true, "ReclaimNoProgress"),
            task(BACKGROUND, false, "ReclaimWriteback"),
            task("flush-0", false, "WritebackFlight"),
        ];
        assert_eq!(flusher_throttled(&run), Some(0.0));
        for cause in RECLAIM {
            run.tasks[2] = task("flush-0", false, &format!("{cause:?}"));
            assert_eq!(flusher_throttled(&run), Some(2.0), "{cause:?}");
        }
    }

    #[test]
    fn latencies_are_percentiles_of_mmtests() {
        near("lat_max90_ms", 9.0);
        near("lat_amean_ms", 5.5);
        near("lat_max_ms", 10.0);
    }

    #[test]
    fn a_run_without_anonymous_memory_has_none_of_these() {
        let plain = Outcome {
            counters: vec![("pgscan_direct", 3.0)],
            virtual_s: 1.0,
            ..Outcome::default()
        };
        for name in ["pgscan_direct", "asleep", "lat_max90_ms", "hog_gib"] {
            assert!((super::super::by_name(name).unwrap().of)(&plain).is_none());
        }
    }
}
