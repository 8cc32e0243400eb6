//! Metrics of paper p3, of small files and the caches of their objects: what memory is composed of,
//! how fast files are made, how the device is written to, and who freed what.
//!
//! Times in a run: memory is *full* when somebody first has had to free anything; the page cache
//! has *collapsed* when the lists of file pages have fallen to a quarter of what they were then.
//! *Last third* is of the time in which files are made, and of the rounds. Counts are brought back
//! to full size, those of events too: pageblocks keep their size at any scale.
//!
//! Source: experiments A4, A7 rows 22 to 25.

use super::reclaim::counter_of;
use super::{count, metrics};
use crate::outcome::{Job, Outcome};

/// The size to which the lists of file pages fall in a collapse, as a part of that when memory
/// was full.
const COLLAPSED: f64 = 0.25;
/// The same for the second of the published compositions.
const HALF: f64 = 0.5;
/// Before memory is full, writes are counted for so long.
const BEFORE_S: f64 = 10.0;
/// Everything that frees pages.
const FREED: [&str; 5] = [
    "pgsteal_kswapd",
    "pgsteal_direct",
    "slab_freed",
    "pginodesteal",
    "kswapd_inodesteal",
];

metrics! {
    /// The metrics of small files.
    METRICS:
    "slab_share", "", Lower, slab_share, "slabs / (slabs + lists of file pages), mean of the last third";
    "slab_share_full", "", Lower, |o| at(&share(&slabs(o)?, &file_lists(o)?), full_at(o)?), "the same when memory is first full";
    "dirty_of_cache", "", Lower, dirty_of_cache, "dirty pages / lists of file pages, mean of the last third";
    "full_s", "s", Higher, full_at, "until memory is first full";
    "full_files", "", Higher, |o| made_by(o, full_at(o)?), "files that are made by then";
    "files_before", "1/s", Higher, files_before, "files made a second, in the rounds before memory is full";
    "files_last", "1/s", Higher, |o| mean_of(last_rounds(&rounds(o)).iter()), "files made a second, mean of the last third of the rounds";
    "files_worst", "1/s", Higher, |o| super::smallest(last_rounds(&rounds(o)).iter().map(|(_, rate)| *rate)), "the slowest round of that third";
    "write_iops_before", "1/s", Lower, write_iops_before, "writes a second of the device, in the 10 s before memory is full";
    "write_iops", "1/s", Lower, write_iops, "writes a second of the device, in the last third";
    "write_iops_rise", "", Lower, write_iops_rise, "writes a second of the device, in the last third / before memory is full";
    "inode_steals", "", Higher, inode_steals, "pages that were dropped with their inodes, by anybody";
    "boosted_share", "", Lower, boosted_share, "part of all pages freed, from full memory to the collapse, that boosted passes freed";
    "over_reclaim", "", Lower, over_reclaim, "pages freed / pages allocated, from full memory until half of the page cache has gone";
    "extfrag_rate", "1/s", Lower, extfrag_rate, "events of external fragmentation a second, from full memory to the collapse";
    "extfrag_yield", "pages", Higher, extfrag_yield, "pages that an event brings, from full memory to the collapse";
    "misses_per_visit", "", Lower, misses_per_visit, "inodes that were read / files that were looked at again";
    "visit_misses", "", Lower, visit_misses, "inodes that were read by those who look at files again";
    "visit_s", "s", Lower, visit_s, "time of all passes over files that are looked at again";
    "visit_first_s", "s", Lower, |o| passes(o).first().copied(), "the same of the first pass";
    "visit_last_s", "s", Lower, |o| passes(o).last().copied(), "the same of the last pass";
}

fn slab_share(o: &Outcome) -> Option<f64> {
    let (from, to) = last_third(o)?;
    mean(&share(&slabs(o)?, &file_lists(o)?), from, to)
}

fn dirty_of_cache(o: &Outcome) -> Option<f64> {
    let (from, to) = last_third(o)?;
    let dirty = o.vmstat.of("nr_dirty")?;
    mean(&quotient(&dirty, &file_lists(o)?), from, to)
}

fn files_before(o: &Outcome) -> Option<f64> {
    let full = full_at(o)?;
    mean_of(rounds(o).iter().filter(|(end, _)| *end <= full))
}

fn write_iops_before(o: &Outcome) -> Option<f64> {
    let full = full_at(o)?;
    writes(o, full - BEFORE_S, full)
}

fn write_iops(o: &Outcome) -> Option<f64> {
    let (from, to) = last_third(o)?;
    writes(o, from, to)
}

fn write_iops_rise(o: &Outcome) -> Option<f64> {
    let full = full_at(o)?;
    let (from, to) = last_third(o)?;
    ratio(writes(o, from, to)?, writes(o, full - BEFORE_S, full)?)
}

fn inode_steals(o: &Outcome) -> Option<f64> {
    makers(o).next()?;
    let steals = counter_of(o, "pginodesteal")? + counter_of(o, "kswapd_inodesteal")?;
    Some(steals / o.scale)
}

fn boosted_share(o: &Outcome) -> Option<f64> {
    let (from, to) = collapse(o)?;
    ratio(change(o, "pgsteal_boosted", from, to)?, freed(o, from, to)?)
}

fn over_reclaim(o: &Outcome) -> Option<f64> {
    let (from, to) = fallen_to(o, HALF)?;
    let freed = freed(o, from, to)?;
    let grown = change(o, "nr_free_pages", from, to)?;
    ratio(freed, freed - grown)
}

fn extfrag_rate(o: &Outcome) -> Option<f64> {
    let (from, to) = collapse(o)?;
    ratio(change(o, "extfrag_events", from, to)? / o.scale, to - from)
}

fn extfrag_yield(o: &Outcome) -> Option<f64> {
    let (from, to) = collapse(o)?;
    let pages = change(o, "extfrag_pages", from, to)?;
    ratio(pages, change(o, "extfrag_events", from, to)?)
}

fn misses_per_visit(o: &Outcome) -> Option<f64> {
    let calls = visitors(o).fold(0.0, |sum, job| {
        sum + count(usize::try_from(job.calls).unwrap_or(0))
    });
    ratio(visitors(o).map(|job| job.misses).sum(), calls)
}

fn visit_misses(o: &Outcome) -> Option<f64> {
    visitors(o).next()?;
    Some(visitors(o).map(|job| job.misses).sum::<f64>() / o.scale)
}

fn visit_s(o: &Outcome) -> Option<f64> {
    let passes = passes(o);
    (!passes.is_empty()).then(|| passes.iter().sum())
}

type Series = Vec<(f64, f64)>;

fn makers(outcome: &Outcome) -> impl Iterator<Item = &Job> {
    outcome.jobs.iter().filter(|job| job.makes_small)
}

fn visitors(outcome: &Outcome) -> impl Iterator<Item = &Job> {
    let visits = |job: &&Job| matches!(job.kind, "stat_small" | "read_small");
    outcome.jobs.iter().filter(visits)
}

/// Seconds of each whole pass of those that look at files again, in the order in which they ended.
fn passes(outcome: &Outcome) -> Vec<f64> {
    let mut all: Series = visitors(outcome)
        .flat_map(|job| job.samples.clone())
        .collect();
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    all.into_iter().map(|(_, took_ms)| took_ms / 1e3).collect()
}

fn sum(outcome: &Outcome, names: &[&str]) -> Option<Series> {
    let mut all = names.iter().map(|name| outcome.vmstat.of(name));
    let mut first = all.next()??;
    for other in all {
        for (own, (_, value)) in first.iter_mut().zip(other?) {
            own.1 += value;
        }
    }
    Some(first)
}

/// Pages of slabs over time.
pub fn slabs(outcome: &Outcome) -> Option<Series> {
    sum(outcome, &["nr_slab_reclaimable", "nr_slab_unreclaimable"])
}

/// Pages on the lists of file pages over time.
pub fn file_lists(outcome: &Outcome) -> Option<Series> {
    sum(outcome, &["nr_active_file", "nr_inactive_file"])
}

/// One series / the sum of both.
pub fn share(part: &Series, rest: &Series) -> Series {
    let pairs = part.iter().zip(rest);
    let both = pairs.map(|((at, part), (_, rest))| (*at, part + rest));
    quotient(part, &both.collect())
}

fn quotient(part: &Series, whole: &Series) -> Series {
    let pairs = part
        .iter()
        .zip(whole)
        .filter(|(_, (_, whole))| *whole > 0.0);
    pairs
        .map(|((at, part), (_, whole))| (*at, part / whole))
        .collect()
}

/// When memory is first full.
pub fn full_at(outcome: &Outcome) -> Option<f64> {
    makers(outcome).next()?;
    let freed = sum(outcome, &FREED)?;
    freed
        .iter()
        .find(|(_, freed)| *freed > 0.0)
        .map(|(at, _)| *at)
}

/// From full memory to the time when the lists of file pages have fallen to `part` of what they
/// were then, or to the end of the making.
pub fn fallen_to(outcome: &Outcome, part: f64) -> Option<(f64, f64)> {
    let full = full_at(outcome)?;
    let (_, end) = last_third(outcome)?;
    let lists = file_lists(outcome)?;
    let bound = at(&lists, full)? * part;
    let mut after = lists.iter().filter(|(at, _)| *at > full && *at < end);
    let fallen = after.find(|(_, pages)| *pages <= bound).map(|(at, _)| *at);
    let to = fallen.unwrap_or(end);
    (to > full).then_some((full, to))
}

fn collapse(outcome: &Outcome) -> Option<(f64, f64)> {
    fallen_to(outcome, COLLAPSED)
}

/// The last third of the time in which files are made.
pub fn last_third(outcome: &Outcome) -> Option<(f64, f64)> {
    let began = super::smallest(makers(outcome).map(|job| job.began_s))?;
    let end = super::largest(makers(outcome).map(|job| job.moved_s))?;
    Some((end - (end - began) / 3.0, end))
}

/// (when it ended, files a second) of each round, in order.
pub fn rounds(outcome: &Outcome) -> Series {
    let mut all: Series = makers(outcome)
        .flat_map(|job| {
            let lengths = job.samples.iter().filter(|(_, took_ms)| *took_ms > 0.0);
            lengths.map(|(end, took_ms)| (*end, job.files_a_round * 1e3 / took_ms / outcome.scale))
        })
        .collect();
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    all
}

fn last_rounds(rounds: &Series) -> &[(f64, f64)] {
    &rounds[rounds.len() - rounds.len() / 3..]
}

/// Files made by a time.
fn made_by(outcome: &Outcome, when: f64) -> Option<f64> {
    let tasks = count(makers(outcome).count());
    let mut files = 0.0;
    for job in makers(outcome) {
        let each = job.bytes / (job.files_a_round / tasks * job.passes);
        let mut second = 0.0;
        for bytes in &job.per_second {
            let part = (when - second).clamp(0.0, 1.0);
            files += bytes * part / each;
            second += 1.0;
        }
    }
    (files > 0.0).then_some(files / outcome.scale)
}

fn freed(outcome: &Outcome, from: f64, to: f64) -> Option<f64> {
    FREED
        .iter()
        .map(|name| change(outcome, name, from, to))
        .sum()
}

/// The growth of a series.
fn change(outcome: &Outcome, name: &str, from: f64, to: f64) -> Option<f64> {
    let series = outcome.vmstat.of(name)?;
    Some(at(&series, to)? - at(&series, from)?)
}

/// Writes a second of all devices.
fn writes(outcome: &Outcome, from: f64, to: f64) -> Option<f64> {
    let from = from.max(0.0);
    let devices = outcome.devices.iter().map(|device| {
        let series = device.levels.iter().map(|level| (level.at_s, level.writes));
        let series: Series = series.collect();
        Some(at(&series, to)? - at(&series, from)?)
    });
    let writes = devices.sum::<Option<f64>>()?;
    ratio(writes / outcome.scale, to - from)
}

/// The value at a time: of the last sample that is not later.
pub fn at(series: &Series, when: f64) -> Option<f64> {
    let before = series.iter().take_while(|(at, _)| *at <= when);
    before.last().map(|(_, value)| *value)
}

fn mean(series: &Series, from: f64, to: f64) -> Option<f64> {
    mean_of(series.iter().filter(|(at, _)| (from..=to).contains(at)))
}

fn mean_of<'a>(points: impl Iterator<Item = &'a (f64, f64)>) -> Option<f64> {
    let (mut sum, mut points_seen) = (0.0, 0.0);
    for (_, value) in points {
        sum += value;
        points_seen += 1.0;
    }
    ratio(sum, points_seen)
}

fn ratio(part: f64, of: f64) -> Option<f64> {
    (of > 0.0).then(|| part / of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics;
    use crate::outcome::{DeviceLevel, DeviceOutcome, VmSeries};

    /// At half size: two tasks make 40 files a round in rounds of 2 s; memory is full at 6 s, and
    /// has collapsed at 10 s of 12.
    fn run() -> Outcome {
        let names = vec![
            "nr_slab_reclaimable",
            "nr_slab_unreclaimable",
            "nr_active_file",
            "nr_inactive_file",
            "nr_dirty",
            "nr_free_pages",
            "pgsteal_kswapd",
            "pgsteal_direct",
            "slab_freed",
            "pginodesteal",
            "kswapd_inodesteal",
            "pgsteal_boosted",
            "extfrag_events",
            "extfrag_pages",
        ];
        let row = |at: f64, slab: f64, file: f64, free: f64, freed: f64| {
            let row = vec![
                slab / 2.0,
                slab / 2.0,
                0.0,
                file,
                file / 4.0,
                free,
                freed,
                0.0,
                0.0,
                0.0,
                0.0,
                freed / 2.0,
                freed / 10.0,
                freed,
            ];
            (at, row)
        };
        let job = |samples: Vec<(f64, f64)>| Job {
            makes_small: true,
            files_a_round: 40.0,
            passes: 6.0,
            moved_s: 12.0,
            bytes: 120.0 * 4096.0,
            per_second: vec![10.0 * 4096.0; 12],
            samples,
            ..Job::default()
        };
        let ends = [2.0, 4.0, 6.0, 8.0, 10.0, 12.0];
        let level = |at_s: f64, writes: f64| DeviceLevel {
            at_s,
            writes,
            ..DeviceLevel::default()
        };
        Outcome {
            scale: 0.5,
            jobs: vec![
                job(ends
                    .iter()
                    .map(|end| (*end, if *end > 8.0 { 4_000.0 } else { 2_000.0 }))
                    .collect()),
                job(Vec::new()),
            ],
            vmstat: VmSeries {
                names,
                rows: vec![
                    row(0.0, 0.0, 0.0, 100.0, 0.0),
                    row(4.0, 40.0, 50.0, 10.0, 0.0),
                    row(6.0, 40.0, 50.0, 10.0, 10.0),
                    row(8.0, 60.0, 30.0, 10.0, 50.0),
                    row(10.0, 79.0, 1.0, 20.0, 90.0),
                    row(12.0, 79.0, 1.0, 20.0, 95.0),
                ],
            },
            devices: vec![DeviceOutcome {
                levels: vec![
                    level(0.0, 0.0),
                    level(6.0, 30.0),
                    level(8.0, 40.0),
                    level(12.0, 120.0),
                ],
                ..DeviceOutcome::default()
            }],
            counters: vec![("pginodesteal", 3.0), ("kswapd_inodesteal", 4.0)],
            ..Outcome::default()
        }
    }

    #[track_caller]
    fn is(outcome: &Outcome, name: &str, expected: f64) {
        let value = (metrics::by_name(name).unwrap().of)(outcome);
        assert!(
            value.is_some_and(|v| (v - expected).abs() < 1e-9),
            "{name}: {value:?}"
        );
    }

    #[test]
    fn composition_is_of_the_last_third_and_of_full_memory() {
        let run = run();
        is(&run, "full_s", 6.0);
        is(&run, "full_files", 240.0);
        is(&run, "slab_share_full", 40.0 / 90.0);
        is(
            &run,
            "slab_share",
            (60.0 / 90.0 + 79.0 / 80.0 + 79.0 / 80.0) / 3.0,
        );
        is(&run, "dirty_of_cache", 0.25);
    }

    #[test]
    fn rates_are_at_full_size() {
        let run = run();
        is(&run, "files_before", 40.0);
        is(&run, "files_last", 20.0);
        is(&run, "files_worst", 20.0);
        is(&run, "write_iops_before", 60.0 / 6.0);
        is(&run, "write_iops", 160.0 / 4.0);
        is(&run, "write_iops_rise", 4.0);
        is(&run, "inode_steals", 14.0);
    }

    #[test]
    fn what_boosted_passes_free_is_of_the_collapse() {
        let run = run();
        is(&run, "boosted_share", 0.5);
        is(&run, "over_reclaim", 80.0 / 70.0);
        is(&run, "extfrag_rate", 4.0);
        is(&run, "extfrag_yield", 10.0);
    }

    #[test]
    fn passes_of_visitors_are_told_apart_from_rounds_of_makers() {
        let mut run = run();
        run.jobs.push(Job {
            kind: "stat_small",
            calls: 40,
            misses: 10.0,
            samples: vec![(20.0, 3_000.0), (26.0, 2_000.0)],
            ..Job::default()
        });
        is(&run, "misses_per_visit", 0.25);
        is(&run, "visit_misses", 20.0);
        is(&run, "visit_s", 5.0);
        is(&run, "visit_first_s", 3.0);
        is(&run, "visit_last_s", 2.0);
    }

    #[test]
    fn nothing_of_this_applies_where_no_small_files_are_made() {
        let mut run = run();
        run.jobs.clear();
        for metric in METRICS {
            assert_eq!((metric.of)(&run), None, "{}", metric.name);
        }
    }
}
