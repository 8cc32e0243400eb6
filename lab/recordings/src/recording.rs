//! A recording: what a real kernel did, in the form in which a run of the lab is told (`Outcome`),
//! so that both are measured, tabled and drawn by the same code.

use super::setting::{Setting, is_heavy, start_s};
use experiment::outcome::{Job, Outcome};

/// Name of the recording's column.
pub const COLUMN: &str = "recording";

/// A recording.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Under what it was made.
    pub setting: Setting,
    /// The measurements.
    pub outcome: Outcome,
    /// The values inferred, left out or found.
    pub notes: Vec<String>,
    /// The values assumed, that every answer hangs on.
    pub assumed: Vec<&'static str>,
    /// Keys that were asked for and found among `fill`.
    pub filled: Vec<String>,
}

impl Recording {
    pub(super) fn new(setting: Setting, outcome: Outcome, mut notes: Vec<String>) -> Self {
        if !setting.kind.has_marks {
            findings(&setting, &outcome, &mut notes);
        }
        let outcome = Outcome {
            case: setting.name().to_owned(),
            policy: COLUMN.into(),
            scale: 1.0,
            virtual_s: setting.seconds(),
            memory_limit: setting.usable_mib() * 1_048_576.0,
            ..outcome
        };
        Self {
            setting,
            outcome,
            notes,
            assumed: Vec::new(),
            filled: Vec::new(),
        }
    }
}

/// Findings that a reader of the figures must know.
fn findings(setting: &Setting, outcome: &Outcome, notes: &mut Vec<String>) {
    if !outcome.pauses.iter().any(|pause| pause.slept_ms > 0.0) {
        notes.push(
            "no pauses: no line has a pause above zero, so no writer was held by balance_dirty_pages; the \
             figures about pauses are empty"
                .into(),
        );
    }
    if let Some(hz) = setting.hz().filter(|hz| *hz != 250) {
        notes.push(format!(
            "HZ is {hz}: pauses are whole ticks of {:.3} ms; the linux columns run with it",
            1000.0 / f64::from(hz)
        ));
    }
    let strangers = outcome
        .pauses
        .iter()
        .filter(|pause| pause.writer as usize >= setting.scenario.tasks.len())
        .count();
    if strangers > 0 {
        notes.push(format!(
            "{strangers} pauses are of writers that the scenario does not list; they count all the same"
        ));
    }
}

/// The writers' calls as jobs. `calls`: (writer, start in seconds, length in seconds, bytes).
pub(super) fn jobs(setting: &Setting, calls: &[(usize, f64, f64, f64)]) -> Vec<Job> {
    let mut jobs: Vec<Job> = setting
        .scenario
        .tasks
        .iter()
        .enumerate()
        .map(|(index, writer)| Job {
            name: writer.id.get_ref().clone(),
            task: u32::try_from(index).unwrap_or(u32::MAX),
            kind: if is_heavy(writer) {
                "dd"
            } else {
                "light_writer"
            },
            is_heavy: is_heavy(writer),
            is_light: !is_heavy(writer),
            began_s: start_s(writer),
            rate_share: 1.0,
            ..Job::default()
        })
        .collect();
    for (writer, at, took, bytes) in calls {
        let Some(job) = jobs.get_mut(*writer) else {
            continue;
        };
        job.bytes += bytes;
        job.calls += 1;
        job.moved_s = job.moved_s.max(at + took);
        job.ended_s = job.moved_s;
        job.call_max_ms = job.call_max_ms.max(took * 1e3);
        job.call_lengths.push((took * 1e3, 1));
        // Counted when the call ends, as the lab does.
        let second = second(at + took);
        if job.per_second.len() <= second {
            job.per_second.resize(second + 1, 0.0);
        }
        job.per_second[second] += bytes;
    }
    for job in &mut jobs {
        job.call_lengths
            .sort_by(|left, right| left.0.total_cmp(&right.0));
        job.call_lengths.dedup_by(|next, kept| {
            let same = next.0.total_cmp(&kept.0).is_eq();
            kept.1 += if same { next.1 } else { 0 };
            same
        });
    }
    jobs
}

/// Which second of a recording; beyond a day all are one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped"
)]
fn second(at: f64) -> usize {
    at.clamp(0.0, 86_400.0) as usize
}
