//! Metrics of paper p4: how long it takes to touch all memory beside two copies, how much of it
//! becomes huge, and what compaction does for that.
//!
//! A run has several iterations in one world. Times and huge pages are means over them, as the
//! paper prints; the median is there as single iterations last many times as long as others. Counts
//! of whole runs (scans, stalls) are sums over them, as the paper's are. Huge pages are as many at
//! any scale and are not brought back; pages are.
//!
//! Source: experiments A5, A7 rows 26 to 32, B4.

use super::metrics;
use super::reclaim::{counter, counter_of, pages};
use crate::outcome::{Iteration, Outcome, TaskCpu};

metrics! {
    /// The metrics of huge pages and of `thpavail`.
    METRICS:
    "alloc_elapsed_s", "s", Lower, |o| mean(&took(o)?), "thpavail: touching all memory, mean of the iterations";
    "alloc_elapsed_sd", "s", Lower, |o| deviation(&took(o)?), "deviation of the same, as of all iterations there are (population)";
    "alloc_median_s", "s", Lower, |o| figures::median(&mut took(o)?), "thpavail: touching all memory, median of the iterations";
    "alloc_longest_s", "s", Lower, |o| took(o)?.into_iter().max_by(f64::total_cmp), "thpavail: touching all memory, the longest iteration";
    "alloc_system_s", "s", Lower, |o| mean(&alloc_cpu(o, |task| task.system_s)?), "system CPU time of the task that touches it, mean of the iterations";
    "alloc_system_sd", "s", Lower, |o| deviation(&alloc_cpu(o, |task| task.system_s)?), "deviation of the same (population)";
    "alloc_user_s", "s", Lower, |o| mean(&alloc_cpu(o, |task| task.user_s)?), "user CPU time of that task, mean of the iterations";
    "thp_fault_alloc", "", Higher, |o| of_each(o, |one| one.counter("thp_fault_alloc")), "faults that got a huge page, mean of the iterations";
    "thp_fault_fallback", "", Lower, |o| of_each(o, |one| one.counter("thp_fault_fallback")), "faults that wanted a huge page and got small ones, mean of the iterations";
    "thp_active", "", Higher, |o| of_each(o, |one| one.huge), "huge pages at the end of an iteration, mean";
    "thp_success", "", Higher, success, "part of the faults that wanted a huge page and got one";
    "thp_at_start", "", Higher, |o| of_each(o, |one| one.runs_free), "huge pages that were free when an iteration began, mean: no mechanism's merit";
    "dirty_at_start_mib", "MiB", Lower, |o| of_each(o, |one| one.dirty / 256.0 / o.scale), "dirty and under writeback when an iteration began, mean";
    "immediate_share", "", Lower, immediate_share, "pages that were dirty and left to the flusher / pages that direct reclaim looked at";
    "file_writes", "pages", Lower, file_writes, "pages of files that reclaim wrote itself";
    "kswapd_skipped_wait", "", Lower, |o| event(o, "kswapd_skip_congestion_wait"), "waits that the background reclaimer left out as a zone was below MIN";
    "rescued", "pages", Lower, |o| event(o, "pgrescued").map(|pages| pages / o.scale), "pages that were on the list of those that wait for their write when it was emptied";
    "thp_splits", "", Lower, |o| event(o, "thp_split"), "huge pages that became small ones";
    "compact_stalls", "", Lower, |o| event(o, "compact_stall"), "faults and others that compacted memory";
    "compact_success", "", Higher, |o| event(o, "compact_success"), "of these: got what they wanted";
    "compact_failures", "", Lower, |o| event(o, "compact_fail"), "of these: did not";
    "compact_moved", "pages", Lower, |o| event(o, "compact_pages_moved").map(|pages| pages / o.scale), "pages that compaction moved";
    "compact_move_failed", "pages", Lower, |o| event(o, "compact_pagemigrate_failed").map(|pages| pages / o.scale), "pages that it could not move";
    "test_cpu_s", "s", Lower, test_cpu, "user and system CPU time of all that the test started: copies and the task that touches memory";
    "settle_s", "s", Lower, settle, "an iteration but for the touching, mean: settling, filling the memory, ending the copies";
    "source_mbps", "MB/s", Higher, |o| rate(o, |one| one.read), "thpavail's reader, while it reads";
    "stick_mbps", "MB/s", Higher, stick, "bytes that reached the device thpavail writes to, over the whole test";
    "reclaimed_gib", "GiB", Lower, reclaimed_gib, "pages that reclaim freed";
    "stalls_mean_s", "s", Lower, stalls_mean_s, "time of the touching / compaction stalls: what one would take if all of it went there";
}

fn immediate_share(o: &Outcome) -> Option<f64> {
    let scanned = counter(o, "pgscan_direct")?;
    let left = counter(o, "nr_vmscan_immediate_reclaim")?;
    has(o)?;
    (scanned > 0.0).then(|| left / scanned)
}

fn file_writes(o: &Outcome) -> Option<f64> {
    has(o)?;
    let all = pages(o, "nr_vmscan_write")? - pages(o, "pswpout")?;
    Some(all.max(0.0))
}

fn reclaimed_gib(o: &Outcome) -> Option<f64> {
    has(o)?;
    let all = pages(o, "pgsteal_direct")? + pages(o, "pgsteal_kswapd")?;
    Some(all / 262_144.0)
}

fn stalls_mean_s(o: &Outcome) -> Option<f64> {
    let stalls = event(o, "compact_stall")?;
    let all: f64 = took(o)?.iter().sum();
    (stalls > 0.0).then(|| all / stalls)
}

/// All iterations of a run, if it has any.
pub fn iterations(outcome: &Outcome) -> impl Iterator<Item = &Iteration> {
    outcome.jobs.iter().flat_map(|job| &job.iterations)
}

fn has(outcome: &Outcome) -> Option<()> {
    iterations(outcome).next().map(|_| ())
}

/// The length of each.
pub fn took(outcome: &Outcome) -> Option<Vec<f64>> {
    has(outcome)?;
    Some(iterations(outcome).map(|one| one.took_s).collect())
}

fn of_each(outcome: &Outcome, what: impl Fn(&Iteration) -> f64) -> Option<f64> {
    has(outcome)?;
    crate::stats::mean(iterations(outcome).map(what))
}

/// CPU time of the task that touched the memory, of each iteration.
pub fn alloc_cpu(outcome: &Outcome, what: fn(&TaskCpu) -> f64) -> Option<Vec<f64>> {
    has(outcome)?;
    let of = |one: &Iteration| {
        let mut tasks = outcome.tasks.iter();
        tasks.find(|task| task.name == one.alloc).map(what)
    };
    let scale = outcome.cpu_scale;
    let times = iterations(outcome).map(of);
    times.map(|time| Some(time? / scale)).collect()
}

fn success(outcome: &Outcome) -> Option<f64> {
    has(outcome)?;
    let sum = |name| {
        iterations(outcome)
            .map(|one| one.counter(name))
            .sum::<f64>()
    };
    let (got, refused) = (sum("thp_fault_alloc"), sum("thp_fault_fallback"));
    (got + refused > 0.0).then(|| got / (got + refused))
}

/// A counter of the whole run, as many at any scale.
fn event(outcome: &Outcome, name: &str) -> Option<f64> {
    has(outcome)?;
    counter_of(outcome, name)
}

fn test_cpu(outcome: &Outcome) -> Option<f64> {
    has(outcome)?;
    let of_test = |task: &&TaskCpu| {
        task.is_job
            || ["reader-", "writer-", "alloc-"]
                .iter()
                .any(|role| task.name.starts_with(role))
    };
    let tasks = outcome.tasks.iter().filter(of_test);
    let all: f64 = tasks.map(|task| task.user_s + task.system_s).sum();
    Some(all / outcome.cpu_scale)
}

fn settle(outcome: &Outcome) -> Option<f64> {
    let took = took(outcome)?;
    let all = super::real(outcome)? - took.iter().sum::<f64>();
    Some(all / super::count(took.len()))
}

/// Bytes of each iteration while its copies ran, a second.
fn rate(outcome: &Outcome, what: impl Fn(&Iteration) -> f64) -> Option<f64> {
    has(outcome)?;
    let all: f64 = iterations(outcome).map(what).sum();
    let ran = |one: &Iteration| one.alloc_began_s + one.took_s - one.began_s;
    let time: f64 = iterations(outcome).map(ran).sum();
    (time > 0.0).then(|| all / time / 1e6 / outcome.scale)
}

fn stick(outcome: &Outcome) -> Option<f64> {
    has(outcome)?;
    let job = outcome.jobs.iter().find(|job| !job.iterations.is_empty())?;
    let device = outcome
        .devices
        .iter()
        .find(|device| device.id == job.device)?;
    let written = device.levels.last()?.written;
    let time = super::real(outcome).filter(|time| *time > 0.0)?;
    Some(written / time / 1e6 / outcome.scale)
}

/// Their mean; `None` of none.
pub fn mean(values: &[f64]) -> Option<f64> {
    crate::stats::mean(values.iter().copied())
}

/// As of all there are, not of a sample.
pub fn deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / super::count(values.len())).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics;
    use crate::outcome::{DeviceLevel, DeviceOutcome, Job};

    /// At half size, three iterations of 2, 4 and 12 s, each 10 s after the one before it.
    fn run() -> Outcome {
        let one = |number: u8, began_s: f64, took_s: f64, huge: f64| Iteration {
            alloc: format!("alloc-{number}"),
            began_s,
            alloc_began_s: began_s + 5.0,
            took_s,
            huge,
            runs_free: 20.0,
            dirty: 51_200.0,
            read: 40e6,
            counters: vec![("thp_fault_alloc", huge), ("thp_fault_fallback", 90.0)],
            ..Iteration::default()
        };
        let cpu = |name: &str, system_s: f64| TaskCpu {
            name: name.into(),
            system_s,
            ..TaskCpu::default()
        };
        Outcome {
            scale: 0.5,
            cpu_scale: 1.0,
            jobs: vec![Job {
                kind: "thpavail",
                device: "usb".into(),
                ended_s: 60.0,
                iterations: vec![
                    one(1, 0.0, 2.0, 10.0),
                    one(2, 17.0, 4.0, 20.0),
                    one(3, 36.0, 12.0, 0.0),
                ],
                ..Job::default()
            }],
            tasks: vec![
                cpu("alloc-1", 1.0),
                cpu("alloc-2", 2.0),
                cpu("alloc-3", 3.0),
                cpu("reader-1", 4.0),
                cpu("kswapd", 100.0),
            ],
            devices: vec![DeviceOutcome {
                id: "usb".into(),
                levels: vec![DeviceLevel {
                    written: 60e6,
                    ..DeviceLevel::default()
                }],
                ..DeviceOutcome::default()
            }],
            counters: vec![
                ("swap_total", 1.0),
                ("pgscan_direct", 900.0),
                ("pgscan_kswapd", 100.0),
                ("nr_vmscan_immediate_reclaim", 850.0),
                ("compact_stall", 9.0),
                ("compact_pages_moved", 70.0),
            ],
            ..Outcome::default()
        }
    }

    fn near(name: &str, expected: f64) {
        let metric = metrics::by_name(name).expect("a metric");
        let value = metric.value(&run()).unwrap_or(f64::NAN);
        assert!(
            (value - expected).abs() < 1e-9,
            "{name}: {value}, not {expected}"
        );
    }

    #[test]
    fn iterations_are_summed_up_as_the_paper_does() {
        near("alloc_elapsed_s", 6.0);
        near("alloc_median_s", 4.0);
        near("alloc_longest_s", 12.0);
        near("alloc_elapsed_sd", (56.0_f64 / 3.0).sqrt());
        near("alloc_system_s", 2.0);
        near("thp_fault_alloc", 10.0);
        near("thp_active", 10.0);
        near("thp_success", 0.1);
        near("thp_at_start", 20.0);
        near("dirty_at_start_mib", 400.0);
        near("settle_s", 14.0);
        near("test_cpu_s", 10.0);
    }

    #[test]
    fn counts_of_pages_are_of_the_full_size_and_counts_of_events_are_not() {
        near("immediate_share", 850.0 / 900.0);
        near("compact_stalls", 9.0);
        near("compact_moved", 140.0);
        near("stalls_mean_s", 2.0);
        near("source_mbps", 240.0 / 33.0);
        near("stick_mbps", 2.0);
    }

    #[test]
    fn they_are_of_nothing_else() {
        let other = Outcome {
            jobs: vec![Job::default()],
            ..run()
        };
        for metric in METRICS {
            assert_eq!((metric.of)(&other), None, "{}", metric.name);
        }
    }
}
