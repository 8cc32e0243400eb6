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

use super::{Metric, count, echo, metric};
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

/// The metrics of reclaim.
pub(super) const METRICS: [Metric; 45] = [
    metric(
        "lat_amean_ms",
        "ms",
        Better::Lower,
        "mean latency of mapping, touching and unmapping",
        |o| latency(o, Stat::Mean),
    )
    .pooled(),
    metric(
        "lat_stddev_ms",
        "ms",
        Better::Lower,
        "standard deviation of the latency of mapping, touching and unmapping",
        |o| latency(o, Stat::Stddev),
    )
    .pooled(),
    metric("lat_p50_ms", "ms", Better::Lower, "median latency of mapping, touching and unmapping", |o| {
        latency(o, Stat::Max(50))
    })
    .pooled(),
    metric(
        "lat_max90_ms",
        "ms",
        Better::Lower,
        "90 % of the latencies of mapping, touching and unmapping are no longer",
        |o| latency(o, Stat::Max(90)),
    )
    .pooled(),
    metric("lat_max99_ms", "ms", Better::Lower, "99 % of the latencies of mapping, touching and unmapping are no longer", |o| {
        latency(o, Stat::Max(99))
    })
    .pooled(),
    metric("lat_max_ms", "ms", Better::Lower, "longest latency of mapping, touching and unmapping", |o| {
        latency(o, Stat::Worst)
    })
    .pooled(),
    metric("lat_samples", "", Better::Higher, "measured passes of mapping, touching and unmapping", |o| {
        mapped(o).map(|samples| count(samples.len()))
    }),
    metric(
        "lat_system_ms",
        "ms",
        Better::Lower,
        "system CPU time of mapping, touching and unmapping once",
        system_of_a_round,
    ),
    metric(
        "bystander_p99_ms",
        "ms",
        Better::Lower,
        "p99 of the allocations of a task that takes little and gives it back",
        |o| bystander(o, Stat::Max(99)),
    )
    .pooled(),
    metric(
        "bystander_max_ms",
        "ms",
        Better::Lower,
        "longest allocation of a task that takes little and gives it back",
        |o| bystander(o, Stat::Worst),
    )
    .pooled(),
    metric(
        "hog_gib",
        "GiB",
        Better::Higher,
        "pages that the hogs touched, however often",
        hogs,
    ),
    metric(
        "read_mbps",
        "MB/s",
        Better::Higher,
        "bytes read by all readers / the longest reader's time",
        read_rate,
    ),
    metric(
        "asleep",
        "",
        Better::Lower,
        "tasks that direct reclaim keeps asleep, on average",
        asleep,
    ),
    metric(
        "flusher_throttled_s",
        "s",
        Better::Lower,
        "time for which flushers and other threads of I/O sleep in reclaim; the background reclaimer is none of them",
        flusher_throttled,
    ),
    metric(
        "elapsed",
        "s",
        Better::Lower,
        "from the beginning to the end of the last job",
        |o| Some(o.virtual_s),
    ),
    metric(
        "pgscan_direct",
        "pages",
        Better::Lower,
        "pages scanned by whoever needed memory",
        |o| pages(o, "pgscan_direct"),
    ),
    metric(
        "pgscan_kswapd",
        "pages",
        Better::Lower,
        "pages scanned by the background reclaimer",
        |o| pages(o, "pgscan_kswapd"),
    ),
    metric(
        "pgsteal_direct",
        "pages",
        Better::Higher,
        "pages freed by whoever needed memory",
        |o| pages(o, "pgsteal_direct"),
    ),
    metric(
        "pgsteal_kswapd",
        "pages",
        Better::Higher,
        "pages freed by the background reclaimer",
        |o| pages(o, "pgsteal_kswapd"),
    ),
    metric(
        "kswapd_efficiency",
        "%",
        Better::Higher,
        "pages freed / scanned by the background reclaimer",
        |o| efficiency(o, "pgsteal_kswapd", "pgscan_kswapd"),
    ),
    metric(
        "kswapd_velocity",
        "1/s",
        Better::Lower,
        "pages that the background reclaimer scans a second",
        |o| velocity(o, "pgscan_kswapd"),
    ),
    metric(
        "direct_efficiency",
        "%",
        Better::Higher,
        "pages freed / scanned by whoever needed memory",
        |o| efficiency(o, "pgsteal_direct", "pgscan_direct"),
    ),
    metric(
        "direct_velocity",
        "1/s",
        Better::Lower,
        "pages that direct reclaim scans a second",
        |o| velocity(o, "pgscan_direct"),
    ),
    metric(
        "direct_percent",
        "%",
        Better::Lower,
        "part of all scanning that direct reclaim does",
        direct_percent,
    ),
    metric(
        "reclaim_writes",
        "pages",
        Better::Lower,
        "pages that reclaim wrote",
        |o| pages(o, "nr_vmscan_write"),
    ),
    metric(
        "anon_writes",
        "pages",
        Better::Lower,
        "pages written to the swap file",
        |o| pages(o, "pswpout"),
    ),
    metric(
        "swap_reads",
        "pages",
        Better::Lower,
        "pages read from the swap file",
        |o| pages(o, "pswpin"),
    ),
    metric(
        "immediate",
        "pages",
        Better::Lower,
        "dirty pages of files met and left to the flusher",
        |o| pages(o, "nr_vmscan_immediate_reclaim"),
    ),
    metric(
        "allocstalls",
        "",
        Better::Lower,
        "direct reclaims begun",
        |o| counter(o, "allocstall_normal"),
    ),
    metric(
        "oom",
        "",
        Better::Lower,
        "allocations refused for want of memory, and programs killed for it",
        |o| Some(counter(o, "refused")? + counter(o, "oom_kill").unwrap_or(0.0)),
    ),
    metric(
        "cw_timeout",
        "",
        Better::Lower,
        "congestion_wait: part that reaches its timeout",
        |o| share(o, Who::Any, Reason::CongestionWait, is_timeout),
    )
    .pooled(),
    metric(
        "wic_zero",
        "",
        Better::Lower,
        "wait_iff_congested: part that does not sleep",
        |o| share(o, Who::Direct, Reason::WaitIffCongested, is_zero),
    )
    .pooled(),
    metric(
        "writeback_timeout",
        "",
        Better::Lower,
        "direct WRITEBACK: part that reaches its timeout",
        |o| share(o, Who::Direct, Reason::Writeback, is_timeout),
    )
    .pooled(),
    metric(
        "writeback_zero",
        "",
        Better::Lower,
        "direct WRITEBACK: part that does not sleep a tick",
        |o| share(o, Who::Direct, Reason::Writeback, is_zero),
    )
    .pooled(),
    metric(
        "noprogress_timeout",
        "",
        Better::Lower,
        "direct NOPROGRESS: part that reaches its timeout",
        |o| share(o, Who::Direct, Reason::NoProgress, is_timeout),
    )
    .pooled(),
    metric(
        "noprogress_zero",
        "",
        Better::Lower,
        "direct NOPROGRESS: part that does not sleep a tick",
        |o| share(o, Who::Direct, Reason::NoProgress, is_zero),
    )
    .pooled(),
    metric(
        "noprogress_echo",
        "",
        Better::Lower,
        "direct NOPROGRESS: part of the partial sleeps that end 0 to 2 ticks after WRITEBACK's timeout",
        echo::share,
    )
    .pooled(),
    metric(
        "noprogress_echo_rise",
        "",
        Better::Higher,
        "direct NOPROGRESS: ends of partial sleeps a tick, 0 to 2 ticks after WRITEBACK's timeout / in those around, from half that timeout to twice",
        echo::rise,
    )
    .pooled(),
    metric(
        "noprogress_echo_ms",
        "ms",
        Better::Lower,
        "direct NOPROGRESS: partial sleep at which most more end than around it",
        echo::place,
    )
    .pooled(),
    metric(
        "isolated_zero",
        "",
        Better::Lower,
        "direct ISOLATED: part that does not sleep a tick",
        |o| share(o, Who::Direct, Reason::Isolated, is_zero),
    )
    .pooled(),
    metric(
        "kswapd_timeout",
        "",
        Better::Lower,
        "background WRITEBACK: part that reaches its timeout",
        |o| share(o, Who::Background, Reason::Writeback, is_timeout),
    )
    .pooled(),
    metric(
        "kswapd_other",
        "",
        Better::Lower,
        "background: throttlings for anything but WRITEBACK",
        kswapd_other,
    )
    .pooled(),
    metric(
        "whole_ticks",
        "",
        Better::Higher,
        "part of the throttlings that last whole ticks",
        whole_ticks,
    )
    .pooled(),
    metric(
        "throttle_max_ms",
        "ms",
        Better::Lower,
        "the longest throttling",
        |o| {
            let lengths = o.throttles.iter().map(|throttle| throttle.delayed_ms);
            super::largest(lengths)
        },
    )
    .pooled(),
    metric(
        "resident_peak",
        "",
        Better::Lower,
        "highest resident memory of the process / its limit; live alone",
        resident_peak,
    ),
];

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

/// Whether the run was about anonymous memory, or about files that push each other out: elsewhere
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

/// The tasks whose throttlings count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Those of tasks that need memory.
    Direct,
    /// Those of the background reclaimer.
    Background,
    /// All.
    Any,
}

impl Who {
    /// Whether this one is theirs.
    #[must_use]
    pub fn is(self, throttle: &ThrottleCount) -> bool {
        match self {
            Self::Direct => !throttle.background,
            Self::Background => throttle.background,
            Self::Any => true,
        }
    }
}

/// It did not sleep a tick.
#[must_use]
pub fn is_zero(throttle: &ThrottleCount) -> bool {
    throttle.delayed_ms <= 0.0
}

/// It slept as long as it may, or longer.
#[must_use]
pub fn is_timeout(throttle: &ThrottleCount) -> bool {
    throttle.timeout_ms > 0.0 && throttle.delayed_ms >= throttle.timeout_ms
}

/// The throttlings of one reason.
pub fn of_reason(
    outcome: &Outcome,
    who: Who,
    reason: Reason,
) -> impl Iterator<Item = &ThrottleCount> {
    let all = outcome.throttles.iter();
    all.filter(move |throttle| throttle.reason == reason && who.is(throttle))
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

/// A count as a number.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of throttlings are below 2^53"
)]
#[must_use]
pub fn real(count: u64) -> f64 {
    count as f64
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
