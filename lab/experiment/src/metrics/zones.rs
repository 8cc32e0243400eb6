//! Metrics of paper p2 and of machines with several zones: where frames came from, what was trimmed
//! for them, what stayed in memory, what jobs that make files came to.
//!
//! Counts of pages, and of what happens once for some pages, are brought back to full size. Some
//! rows that the paper prints have no value here, as our `fs_mark` does not time itself, and only
//! its files have inodes in memory (those of p3: `small`). Their metrics are there for the
//! published values.
//!
//! Source: experiments A3, A7 rows 18 to 21; mechanisms 10.2.

use super::reclaim::{counter, counter_of, pages};
use super::{cpu, largest, metrics, smallest};
use crate::outcome::{Job, Outcome};

const BYTES_PER_PAGE: f64 = 4096.0;

metrics! {
    /// The metrics of zones and of files that are made.
    METRICS:
    "cpu_tasks", "s", Lower, cpu_tasks, "user and system CPU time of the jobs";
    "download_s", "s", Lower, |o| part(o, "download"), "large_dd: until its source was there";
    "copy_s", "s", Lower, |o| part(o, "copy"), "large_dd: its copies";
    "delete_s", "s", Lower, |o| part(o, "delete"), "large_dd: removing all its files";
    "files_min", "1/s", Higher, |o| smallest(rounds(o)), "files made a second, in the slowest round";
    "files_mean", "1/s", Higher, |o| moments(o).map(|(mean, _)| mean), "files made a second, mean of the rounds";
    "files_stddev", "1/s", Higher, |o| moments(o).map(|(_, deviation)| deviation), "deviation of the rounds' files a second, as of all rounds there are; no direction is better, and the sign is the paper's";
    "files_max", "1/s", Higher, |o| largest(rounds(o)), "files made a second, in the fastest round";
    "cached_share", "", Higher, cached_share, "pages in the cache / memory, at the end of the jobs; of large_dd, before it removes its files";
    "page_ins", "KiB", Lower, |o| pages(o, "pgpgin"), "read from devices";
    "page_outs", "KiB", Lower, |o| pages(o, "pgpgout"), "written to devices";
    "scanned_per_freed", "", Lower, |o| ratio(scanned(o)?, freed(o)?), "pages scanned by anybody / pages freed";
    "kswapd_percent", "%", Lower, kswapd_percent, "part of all scanning that the background reclaimer does";
    "busy_share", "", Lower, device_busy, "part of the time for which a device has something to do, mean of the devices";
    "write_kib", "KiB", Higher, |o| request(o, "device_written_bytes", "device_writes"), "mean write request of the devices";
    "read_kib", "KiB", Higher, |o| request(o, "device_read_bytes", "device_reads"), "mean read request of the devices";
    "seeks", "", Lower, |o| counter(o, "device_seeks"), "requests that did not begin where the one before them had ended; as many as there were, at any scale";
    "zone_reclaim_failed", "", Lower, |o| of_zones(o, "zone_reclaim_failed"), "trims of a zone that gave less than was asked for";
    "zone_reclaim_success", "", Higher, |o| of_zones(o, "zone_reclaim_success"), "trims of a zone that gave what was asked for";
    "numa_hit", "pages", Higher, |o| of_zones(o, "numa_hit"), "frames from the node that was wanted";
    "numa_miss", "pages", Lower, |o| of_zones(o, "numa_miss"), "frames from another node than was wanted";
    "numa_foreign", "pages", Lower, |o| of_zones(o, "numa_foreign"), "the same, counted at the node that was wanted";
    "numa_local", "pages", Higher, |o| of_zones(o, "numa_local"), "frames from the node of the task";
    "numa_other", "pages", Lower, |o| of_zones(o, "numa_other"), "frames from another node than the task's";
    "remote_touches", "%", Lower, remote_touches, "part of the pages that hogs touch which lie on another node";
    "remote_copies", "%", Lower, remote_copies, "part of the pages copied which lie on another node than who copies";
    "zlc_skipped", "", Lower, |o| of_zones(o, "zlc_skipped"), "zones passed over because the zonelist cache had them as full";
    "zlc_hidden", "", Lower, |o| of_zones(o, "zlc_hidden"), "of these, zones noted as full before the last direct reclaim that freed pages";
    "slabs_scanned", "", Lower, |o| of_objects(o, "slabs_scanned"), "objects looked at by shrinkers, where files have inodes";
    "direct_inode_steals", "pages", Lower, |o| of_objects(o, "pginodesteal"), "pages dropped with their inodes, by whoever needed memory";
    "kswapd_inode_steals", "pages", Lower, |o| of_objects(o, "kswapd_inodesteal"), "pages dropped with their inodes, by the background reclaimer";
    "overhead_min", "us", Lower, none, "fs_mark's own time in a round, least: not measured";
    "overhead_mean", "us", Lower, none, "fs_mark's own time in a round, mean: not measured";
    "overhead_stddev", "us", Lower, none, "fs_mark's own time in a round, deviation: not measured";
    "overhead_max", "us", Lower, none, "fs_mark's own time in a round, most: not measured";
}

fn cpu_tasks(o: &Outcome) -> Option<f64> {
    let user = cpu(o, |task| task.is_job, |task| task.user_s)?;
    Some(user + cpu(o, |task| task.is_job, |task| task.system_s)?)
}

fn kswapd_percent(o: &Outcome) -> Option<f64> {
    let all = scanned(o)?;
    let own = counter(o, "pgscan_kswapd")?;
    Some(if all > 0.0 { 100.0 * own / all } else { 0.0 })
}

fn remote_copies(o: &Outcome) -> Option<f64> {
    let far = of_zones(o, "numa_remote_copy")?;
    ratio(100.0 * far, counter_of(o, "copy")? / o.scale)
}

const fn none(_: &Outcome) -> Option<f64> {
    None
}

/// The longest of that part among the jobs that have it.
fn part(outcome: &Outcome, name: &str) -> Option<f64> {
    let parts = outcome.jobs.iter().flat_map(|job| &job.parts);
    largest(parts.filter(|(own, _)| *own == name).map(|(_, took)| *took))
}

/// Files a second of each round, at full size.
fn rounds(outcome: &Outcome) -> impl Iterator<Item = f64> {
    let makers = outcome.jobs.iter().filter(|job| job.files_a_round > 0.0);
    makers.flat_map(|job| {
        let lengths = job.samples.iter().filter(|(_, took_ms)| *took_ms > 0.0);
        lengths.map(|(_, took_ms)| job.files_a_round * 1e3 / took_ms / outcome.scale)
    })
}

/// Mean and population deviation of the rounds.
fn moments(outcome: &Outcome) -> Option<(f64, f64)> {
    let rates: Vec<f64> = rounds(outcome).collect();
    if rates.is_empty() {
        return None;
    }
    let count = super::count(rates.len());
    let mean = rates.iter().sum::<f64>() / count;
    let squares = rates.iter().map(|rate| (rate - mean).powi(2));
    Some((mean, (squares.sum::<f64>() / count).sqrt()))
}

/// When a job begins to remove its files, if it does.
fn removes_from(job: &Job) -> Option<f64> {
    let kept = |(name, took): &(&str, f64)| (*name != "delete").then_some(*took);
    let removes = job.parts.iter().any(|(name, _)| *name == "delete");
    removes.then(|| job.began_s + job.parts.iter().filter_map(kept).sum::<f64>())
}

fn cached_share(outcome: &Outcome) -> Option<f64> {
    let memory = outcome.memory_limit / BYTES_PER_PAGE;
    let fillers = || outcome.jobs.iter().filter(|job| job.fills_memory);
    fillers().next()?;
    let cached = match smallest(fillers().filter_map(removes_from)) {
        None => counter_of(outcome, "cached_at_end")?,
        Some(when) => {
            let before = outcome.levels.iter().rev().find(|level| level.at_s <= when);
            before?.cached
        }
    };
    ratio(cached, memory)
}

fn scanned(outcome: &Outcome) -> Option<f64> {
    Some(counter(outcome, "pgscan_direct")? + counter(outcome, "pgscan_kswapd")?)
}

fn freed(outcome: &Outcome) -> Option<f64> {
    Some(counter(outcome, "pgsteal_direct")? + counter(outcome, "pgsteal_kswapd")?)
}

fn device_busy(outcome: &Outcome) -> Option<f64> {
    let devices = super::count(outcome.devices.len());
    let busy = counter(outcome, "device_busy_ns")? / 1e9;
    ratio(busy, outcome.virtual_s * devices)
}

/// Mean request in KiB; as it is, at any scale.
fn request(outcome: &Outcome, bytes: &str, requests: &str) -> Option<f64> {
    ratio(
        counter(outcome, bytes)? / 1024.0,
        counter(outcome, requests)?,
    )
}

/// A counter that is kept where files have objects.
fn of_objects(outcome: &Outcome, name: &str) -> Option<f64> {
    let has = |job: &Job| job.makes_small || job.has_inodes;
    let has = outcome.jobs.iter().any(has);
    let value = counter_of(outcome, name)? / outcome.scale;
    has.then_some(value)
}

/// A counter that is kept where there are several zones.
fn of_zones(outcome: &Outcome, name: &str) -> Option<f64> {
    let several = ["numa_hit", "numa_miss"].map(|name| counter_of(outcome, name).unwrap_or(0.0));
    let value = counter_of(outcome, name)? / outcome.scale;
    (several.iter().sum::<f64>() > 0.0).then_some(value)
}

/// Of those that touched any.
fn remote_touches(outcome: &Outcome) -> Option<f64> {
    of_zones(outcome, "numa_remote_touch")?;
    let hogs = || outcome.jobs.iter().filter(|job| job.is_hog);
    let sum = |part: fn(&Job) -> f64| hogs().map(part).sum::<f64>();
    ratio(100.0 * sum(|job| job.touched_far), sum(|job| job.touched))
}

fn ratio(part: f64, of: f64) -> Option<f64> {
    (of > 0.0).then(|| part / of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics;
    use crate::outcome::Level;

    /// At half size, on 100 pages: 24 files in rounds of 2 s and 4 s; a copy of 3 s that is removed
    /// from the fifth second on.
    fn run() -> Outcome {
        let mark = |samples: Vec<(f64, f64)>| Job {
            fills_memory: true,
            files_a_round: 24.0,
            samples,
            ..Job::default()
        };
        let level = |at_s, cached| Level {
            at_s,
            cached,
            ..Level::default()
        };
        Outcome {
            scale: 0.5,
            cpu_scale: 1.0,
            virtual_s: 10.0,
            memory_limit: 100.0 * BYTES_PER_PAGE,
            jobs: vec![
                mark(vec![(2.0, 2_000.0)]),
                mark(vec![(6.0, 4_000.0)]),
                Job {
                    fills_memory: true,
                    began_s: 1.0,
                    parts: vec![("download", 1.0), ("copy", 3.0), ("delete", 2.0)],
                    ..Job::default()
                },
            ],
            levels: vec![level(4.0, 60.0), level(4.9, 70.0), level(5.1, 10.0)],
            devices: vec![crate::outcome::DeviceOutcome::default()],
            counters: vec![
                ("cached_at_end", 5.0),
                ("pgscan_direct", 300.0),
                ("pgscan_kswapd", 100.0),
                ("pgsteal_direct", 100.0),
                ("pgsteal_kswapd", 60.0),
                ("pgpgin", 8.0),
                ("device_busy_ns", 2.5e9),
                ("device_written_bytes", 262_144.0),
                ("device_writes", 2.0),
                ("device_reads", 0.0),
                ("device_read_bytes", 0.0),
                ("numa_hit", 30.0),
                ("zlc_hidden", 4.0),
                ("numa_remote_touch", 30.0),
                ("numa_remote_copy", 5.0),
                ("copy", 20.0),
            ],
            ..Outcome::default()
        }
    }

    #[track_caller]
    fn is(outcome: &Outcome, name: &str, expected: Option<f64>) {
        let value = (metrics::by_name(name).unwrap().of)(outcome);
        let near = value
            .zip(expected)
            .is_some_and(|(v, e)| (v - e).abs() < 1e-9);
        assert!(
            near || (value.is_none() && expected.is_none()),
            "{name}: {value:?}"
        );
    }

    #[test]
    fn files_a_second_are_of_all_tasks_at_full_size_and_their_deviation_that_of_all_rounds() {
        let run = run();
        is(&run, "files_min", Some(12.0));
        is(&run, "files_mean", Some(18.0));
        is(&run, "files_stddev", Some(6.0));
        is(&run, "files_max", Some(24.0));
        is(&Outcome::default(), "files_mean", None);
    }

    #[test]
    fn what_stays_is_looked_at_before_it_is_removed() {
        let mut run = run();
        is(&run, "copy_s", Some(3.0));
        is(&run, "cached_share", Some(0.7));
        run.jobs.pop();
        is(&run, "cached_share", Some(0.05));
        run.jobs.clear();
        is(&run, "cached_share", None);
    }

    #[test]
    fn scans_devices_and_zones_by_their_counters() {
        let mut run = run();
        is(&run, "scanned_per_freed", Some(2.5));
        is(&run, "kswapd_percent", Some(25.0));
        is(&run, "page_ins", Some(16.0));
        is(&run, "busy_share", Some(0.25));
        is(&run, "write_kib", Some(128.0));
        is(&run, "read_kib", None);
        is(&run, "zlc_hidden", Some(8.0));
        is(&run, "slabs_scanned", None);
        is(&run, "remote_copies", Some(25.0));
        is(&run, "remote_touches", None);
        // A hog's alone: mappers touch too.
        for (is_hog, touched_far) in [(true, 10.0), (false, 20.0)] {
            run.jobs.push(Job {
                is_hog,
                touched: 40.0,
                touched_far,
                ..Job::default()
            });
        }
        is(&run, "remote_touches", Some(25.0));
        // One zone: nothing was passed over, as there was nothing to pass over.
        run.counters.retain(|(name, _)| *name != "numa_hit");
        for name in ["zlc_hidden", "remote_touches", "remote_copies"] {
            is(&run, name, None);
        }
    }
}
