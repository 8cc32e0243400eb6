//! Metrics of pacing: what a law must hold while writers and devices come, go and change.
//!
//! *Change*: a writer began, or a device's rate changed (`Outcome::changes`). *Settled*: from ten
//! seconds after the last change until the first heavy writer ends. *Stall*: a wait for a device
//! that makes no progress; it has a name of its own (`DeviceStalled`) and is no pause. Pauses of
//! zero length are debts carried on and are no pauses either.
//!
//! Source: the goals of docs/embed/pacing.md.

use core::ops::Range;

use figures::weighted;

use super::{count, heavy, index, jain, largest, mean, smallest};
use crate::outcome::{DeviceLevel, DeviceOutcome, Job, Outcome, Pause};

/// From a change on, this long nothing is settled.
const SETTLING_S: f64 = 10.0;
/// The least that counts as settled time.
const SETTLED_LEAST_S: f64 = 1.0;
/// Fairness is judged in these seconds after the second heavy writer began.
const EARLY_S: Range<f64> = 2.0..6.0;
/// Of fewer pauses no deviation is told.
const PAUSES_LEAST: usize = 5;
const MIB: f64 = 1_048_576.0;

/// The settled time; `None`: there is none.
fn settled(outcome: &Outcome) -> Option<Range<f64>> {
    let writers = outcome.jobs.iter().filter(|job| !job.is_reader);
    let first_end = smallest(heavy(outcome).map(|job| job.moved_s))
        .or_else(|| smallest(writers.map(|job| job.moved_s)))?;
    let changes = outcome.changes.iter().filter(|at| **at < first_end);
    let from = largest(changes.copied())? + SETTLING_S;
    (first_end - from >= SETTLED_LEAST_S).then_some(from..first_end)
}

/// The pauses that were slept, stalls apart.
pub(super) fn paced(outcome: &Outcome) -> impl Iterator<Item = &Pause> {
    let pauses = outcome.pauses.iter();
    pauses.filter(|pause| pause.slept_ms > 0.0 && !pause.stalled)
}

/// Those of the settled time, by length.
pub(super) fn settled_pauses(outcome: &Outcome) -> Option<Vec<f64>> {
    let time = settled(outcome)?;
    let pauses = paced(outcome).filter(|pause| time.contains(&pause.at_s));
    let mut lengths: Vec<f64> = pauses.map(|pause| pause.slept_ms).collect();
    lengths.sort_by(f64::total_cmp);
    (!lengths.is_empty()).then_some(lengths)
}

/// Coefficient of variation of each heavy writer's pauses in settled time: the worst writer's.
pub(super) fn cv(outcome: &Outcome) -> Option<f64> {
    let time = settled(outcome)?;
    let of_job = |job: &Job| {
        let own = paced(outcome).filter(|pause| pause.task == job.task);
        let lengths: Vec<f64> = own
            .filter(|pause| time.contains(&pause.at_s))
            .map(|pause| pause.slept_ms)
            .collect();
        if lengths.len() < PAUSES_LEAST {
            return None;
        }
        let mean = mean(lengths.iter().copied())?;
        let squares: f64 = lengths.iter().map(|value| (value - mean).powi(2)).sum();
        Some((squares / (count(lengths.len()) - 1.0)).sqrt() / mean)
    };
    largest(heavy(outcome).filter_map(of_job))
}

/// A sum that is not the negative zero of an empty one.
fn sum(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |sum, value| sum + value)
}

/// Pauses a second of all writers together, in settled time.
pub(super) fn pause_rate(outcome: &Outcome) -> Option<f64> {
    let time = settled(outcome)?;
    Some(count(settled_pauses(outcome).unwrap_or_default().len()) / (time.end - time.start))
}

pub(super) fn paused(outcome: &Outcome) -> Option<f64> {
    let paused = sum(paced(outcome).map(|pause| pause.slept_ms / 1e3));
    outcome
        .jobs
        .iter()
        .any(|job| !job.is_reader)
        .then_some(paused)
}

/// Bytes that a job dirtied in a span of time; tenths of seconds that lie half in it count whole.
fn dirtied(job: &Job, span: &Range<f64>) -> f64 {
    let from = index((span.start * 10.0).round().max(0.0));
    let tenths = index(((span.end - span.start) * 10.0).round().max(0.0));
    job.per_tenth.iter().skip(from).take(tenths).sum()
}

fn writers(outcome: &Outcome) -> impl Iterator<Item = &Job> {
    let jobs = outcome.jobs.iter();
    jobs.filter(|job| !job.is_reader && !job.per_tenth.is_empty())
}

/// The rate at which all writers together dirtied in settled time, MiB/s.
pub(super) fn rate(outcome: &Outcome) -> Option<f64> {
    let time = settled(outcome)?;
    let bytes: Vec<f64> = writers(outcome).map(|job| dirtied(job, &time)).collect();
    let seconds = time.end - time.start;
    (!bytes.is_empty()).then(|| bytes.iter().sum::<f64>() / MIB / seconds / outcome.scale)
}

/// Fairness among the heavy writers soon after the second of them began.
pub(super) fn early_fairness(outcome: &Outcome) -> Option<f64> {
    let mut began: Vec<f64> = heavy(outcome).map(|job| job.began_s).collect();
    began.sort_by(f64::total_cmp);
    let second = *began.get(1)?;
    let span = second + EARLY_S.start..second + EARLY_S.end;
    fairness(outcome, &span)
}

/// Fairness among the heavy writers in settled time.
pub(super) fn settled_fairness(outcome: &Outcome) -> Option<f64> {
    fairness(outcome, &settled(outcome)?)
}

/// Of the heavy writers at work throughout the span.
fn fairness(outcome: &Outcome, span: &Range<f64>) -> Option<f64> {
    // The job that began within the last second before it is one of the two.
    let there = |job: &&Job| job.began_s <= span.start && job.moved_s + 0.05 >= span.end;
    let all = heavy(outcome).filter(there);
    let bytes: Vec<f64> = all
        .filter(|job| !job.per_tenth.is_empty())
        .map(|job| dirtied(job, span))
        .collect();
    (bytes.len() > 1).then(|| jain(&bytes))
}

/// Part of the settled time in which data was dirty that a device had something to do: the least of
/// the devices.
pub(super) fn busy(outcome: &Outcome) -> Option<f64> {
    let time = settled(outcome)?;
    let of_device = |device: &DeviceOutcome| {
        let inside = |level: &DeviceLevel| time.contains(&level.at_s);
        let is_dirty = |level: &DeviceLevel| level.dirty + level.writeback > 0.0;
        let (mut dirty, mut busy) = (0.0, 0.0);
        for pair in device.levels.windows(2) {
            let [from, to] = pair else { continue };
            if inside(from) && inside(to) && is_dirty(from) && is_dirty(to) {
                dirty += to.at_s - from.at_s;
                busy += to.busy_s - from.busy_s;
            }
        }
        (dirty > 0.0).then(|| busy / dirty)
    };
    smallest(outcome.devices.iter().filter_map(of_device))
}

/// The rate at which the devices together completed writes in settled time, MiB/s.
pub(super) fn device_rate(outcome: &Outcome) -> Option<f64> {
    let time = settled(outcome)?;
    let of_device = |device: &DeviceOutcome| {
        let mut inside = device
            .levels
            .iter()
            .filter(|level| time.contains(&level.at_s));
        let first = inside.next()?;
        let last = inside.next_back()?;
        Some((last.written - first.written) / (last.at_s - first.at_s))
    };
    let rates: Vec<f64> = outcome.devices.iter().filter_map(of_device).collect();
    (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / MIB / outcome.scale)
}

/// Level in settled time, MiB.
pub(super) fn level(outcome: &Outcome) -> Option<f64> {
    let time = settled(outcome)?;
    let inside = outcome
        .levels
        .iter()
        .filter(|level| time.contains(&level.at_s));
    let levels = inside.map(|level| (level.dirty + level.writeback) * 4096.0 / MIB);
    mean(levels).map(|mib| mib / outcome.scale)
}

/// Time of a job in stalls.
fn stalled(outcome: &Outcome, job: &Job) -> f64 {
    let stalls = outcome.pauses.iter().filter(|pause| pause.stalled);
    let own = stalls.filter(|pause| pause.task == job.task);
    sum(own.map(|pause| pause.slept_ms / 1e3))
}

/// Longest time that one job spent in stalls.
pub(super) fn stall(outcome: &Outcome) -> Option<f64> {
    let jobs = outcome.jobs.iter().filter(|job| !job.is_reader);
    largest(jobs.map(|job| stalled(outcome, job)))
}

/// Stalls of the heavy writers of a device that stood still, as a part of the time that it did: the
/// least.
pub(super) fn stall_named(outcome: &Outcome) -> Option<f64> {
    let shares = outcome.devices.iter().flat_map(|device| {
        let length: f64 = device.hangs.iter().map(|(from, to)| to - from).sum();
        heavy(outcome)
            .filter(move |job| job.device == device.id && length > 0.0)
            .map(move |job| stalled(outcome, job) / length)
    });
    smallest(shares)
}

/// The rate of the other devices' writers while one stood still, as a part of their rate before it:
/// the least. The time before begins when they had settled.
pub(super) fn hang_kept(outcome: &Outcome) -> Option<f64> {
    let device = outcome.devices.iter().find(|d| !d.hangs.is_empty())?;
    let (from, to) = *device.hangs.first()?;
    let kept = |job: &Job| {
        let before = job.began_s + SETTLING_S..from;
        let seconds = before.end - before.start;
        if seconds < SETTLED_LEAST_S || job.moved_s < to {
            return None;
        }
        let rate_before = dirtied(job, &before) / seconds;
        (rate_before > 0.0).then(|| dirtied(job, &(from..to)) / (to - from) / rate_before)
    };
    smallest(
        writers(outcome)
            .filter(|job| job.device != device.id)
            .filter_map(kept),
    )
}

/// Of the calls of all heavy writers, ms.
pub(super) fn calls(outcome: &Outcome, thousandths: u64) -> Option<f64> {
    lengths(
        heavy(outcome).flat_map(|job| &job.call_lengths),
        thousandths,
    )
}

/// A quantile of lengths, with how often each occurred.
pub(super) fn lengths<'a>(
    all: impl Iterator<Item = &'a (f64, u64)>,
    thousandths: u64,
) -> Option<f64> {
    let mut all: Vec<(f64, u64)> = all.copied().collect();
    all.sort_by(|left, right| left.0.total_cmp(&right.0));
    weighted(all, thousandths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Level;

    fn job(task: u32, began_s: f64, moved_s: f64) -> Job {
        Job {
            entry: format!("job{task}"),
            task,
            device: "disk".into(),
            is_heavy: true,
            began_s,
            moved_s,
            ..Job::default()
        }
    }

    fn pause(task: u32, at_s: f64, slept_ms: f64) -> Pause {
        Pause {
            task,
            at_s,
            slept_ms,
            ..Pause::default()
        }
    }

    fn outcome(jobs: Vec<Job>, changes: &[f64]) -> Outcome {
        Outcome {
            jobs,
            changes: changes.to_vec(),
            scale: 1.0,
            ..Outcome::default()
        }
    }

    #[test]
    fn nothing_is_settled_within_ten_seconds_of_a_change() {
        let two = outcome(vec![job(1, 0.0, 60.0), job(2, 20.0, 50.0)], &[0.0, 20.0]);
        assert_eq!(settled(&two), Some(30.0..50.0));
        let late = outcome(vec![job(1, 0.0, 60.0)], &[0.0, 55.0]);
        assert_eq!(settled(&late), None);
    }

    #[test]
    fn each_writer_is_judged_by_its_own_pauses_and_stalls_are_none() {
        let mut run = outcome(vec![job(1, 0.0, 100.0), job(2, 0.0, 100.0)], &[0.0]);
        for at in 0..40_u32 {
            // Steady, each at a length of its own, after a wild beginning.
            let at_s = f64::from(at) * 2.0;
            let wild = if at_s < 10.0 { 150.0 } else { 0.0 };
            run.pauses.push(pause(1, at_s, 20.0 + wild));
            run.pauses.push(pause(2, at_s, 40.0));
        }
        run.pauses.push(Pause {
            stalled: true,
            ..pause(2, 30.0, 200.0)
        });
        run.pauses.push(pause(2, 31.0, 0.0));
        assert_eq!(cv(&run), Some(0.0));
        let lengths = || paced(&run).map(|pause| pause.slept_ms);
        assert_eq!(
            (smallest(lengths()), largest(lengths())),
            (Some(20.0), Some(170.0))
        );
        assert_eq!(stall(&run), Some(0.2));
        run.pauses.push(pause(2, 32.0, 200.0));
        assert!(cv(&run).is_some_and(|cv| cv > 0.5));
        assert_eq!(cv(&run.only("job1")), Some(0.0));
    }

    #[test]
    fn early_fairness_is_of_seconds_two_to_six_of_the_second_writer() {
        let mut run = outcome(vec![job(1, 0.0, 60.0), job(2, 10.0, 60.0)], &[0.0, 10.0]);
        run.jobs[0].per_tenth = vec![5.0; 600];
        run.jobs[1].per_tenth = vec![0.0; 120];
        run.jobs[1].per_tenth.extend([5.0; 40]);
        run.jobs[1].per_tenth.extend([0.0; 440]);
        assert_eq!(early_fairness(&run), Some(1.0));
        assert_eq!(settled_fairness(&run), Some(0.5));
    }

    #[test]
    fn a_device_is_busy_as_a_part_of_the_time_in_which_something_is_dirty() {
        let mut run = outcome(vec![job(1, 0.0, 30.0)], &[0.0]);
        let level = |at_s, dirty, busy_s| DeviceLevel {
            at_s,
            dirty,
            busy_s,
            ..DeviceLevel::default()
        };
        run.devices = vec![DeviceOutcome {
            levels: vec![
                level(5.0, 9.0, 0.0),
                level(10.0, 9.0, 1.0),
                level(12.0, 9.0, 3.0),
                level(14.0, 9.0, 4.0),
                level(16.0, 0.0, 4.0),
                level(18.0, 9.0, 4.0),
            ],
            ..DeviceOutcome::default()
        }];
        assert_eq!(busy(&run), Some(0.75));
    }

    #[test]
    fn a_hang_is_named_and_the_others_keep_their_rate() {
        let mut run = outcome(
            vec![job(1, 0.0, 60.0), job(2, 0.0, 60.0)],
            &[0.0, 20.0, 50.0],
        );
        run.jobs[1].device = "other".into();
        run.jobs[1].per_tenth = vec![10.0; 200];
        run.jobs[1].per_tenth.extend([8.0; 300]);
        run.devices = vec![DeviceOutcome {
            id: "disk".into(),
            hangs: vec![(20.0, 50.0)],
            ..DeviceOutcome::default()
        }];
        for at in 0..135 {
            run.pauses.push(Pause {
                stalled: true,
                ..pause(1, 20.0 + f64::from(at) / 5.0, 200.0)
            });
        }
        assert!(stall_named(&run).is_some_and(|part| (part - 0.9).abs() < 1e-9));
        assert!(hang_kept(&run).is_some_and(|part| (part - 0.8).abs() < 1e-9));
        assert_eq!(stall(&run.only("other")), None);
    }

    #[test]
    fn percentiles_of_weighted_calls() {
        let mut run = outcome(vec![job(1, 0.0, 1.0)], &[0.0]);
        run.jobs[0].call_lengths = vec![(1.0, 98), (5.0, 1), (9.0, 1)];
        assert_eq!((calls(&run, 500), calls(&run, 990)), (Some(1.0), Some(5.0)));
    }

    #[test]
    fn the_settled_level_is_in_mib() {
        let mut run = outcome(vec![job(1, 0.0, 30.0)], &[0.0]);
        let at = |at_s, dirty| Level {
            at_s,
            dirty,
            writeback: 128.0,
            ..Level::default()
        };
        run.levels = vec![at(5.0, 9e9), at(15.0, 128.0), at(20.0, 384.0)];
        assert_eq!(level(&run), Some(1.5));
    }
}
