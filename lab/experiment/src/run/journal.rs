//! The journal of a cell's device: its frames, its log, and the task that commits.

use std::sync::Arc;

use env::{Device, DeviceId, ObjectId};
use frames::{Content, FrameId};
use policy::units::Bytes;
use world::fs::journal::{self, Journal, Storage};
use world::{Lab, Stamps};

use super::cell::Cell;
use super::disk::DeviceSpec;
use super::real::number;
use super::session::RunError;

/// The object that is the log: behind the files, of which each job has its own and one to read
/// from, and behind the swap file.
pub(super) fn log_of(cell: &Cell) -> ObjectId {
    let own: u32 = cell.jobs.iter().map(|job| job.files.max(1)).sum();
    let jobs = u32::try_from(cell.jobs.len()).expect("the count of jobs is checked");
    ObjectId(own + jobs + u32::from(cell.swap.is_some()))
}

/// Frames of a lab with `frames` of memory: what the journals write from lies in a chunk behind
/// them.
pub(super) fn frames_with(cell: &Cell, frames: u32) -> u32 {
    if cell.devices.iter().all(|spec| spec.journal.is_none()) {
        return frames;
    }
    first_frame(frames) + Stamps::new(0).chunk_frames()
}

fn first_frame(frames: u32) -> u32 {
    frames.next_multiple_of(Stamps::new(0).chunk_frames())
}

/// The journals of a run.
#[derive(Default)]
pub(super) struct Journals {
    made: Vec<(Arc<Journal>, DeviceId)>,
}

impl Journals {
    /// Adds a device to the lab, behind a journal if its scenario says so.
    pub(super) fn add(
        &mut self,
        lab: &Lab,
        cell: &Cell,
        spec: &DeviceSpec,
        inner: Arc<dyn Device>,
        prefilled: &[(ObjectId, Bytes)],
    ) -> Result<DeviceId, RunError> {
        let Some(options) = &spec.journal else {
            return Ok(lab.add_device(inner));
        };
        let stamps = lab.stamps();
        let memory = u32::try_from(cell.memory.0).expect("the lab has as many frames");
        let first = first_frame(memory);
        if self.made.is_empty() {
            stamps.populate(FrameId(first)).map_err(|error| {
                RunError::Impossible(format!("the journal's frames: {error:?}"))
            })?;
        }
        let number = u32::try_from(self.made.len()).expect("devices are few");
        if (number + 1) * journal::FRAMES > stamps.chunk_frames() {
            let most = stamps.chunk_frames() / journal::FRAMES;
            return Err(RunError::Impossible(format!(
                "more than {most} devices with a journal"
            )));
        }
        let place = Storage {
            stamps,
            frame: FrameId(first + number * journal::FRAMES),
            log: log_of(cell),
        };
        let journal = Arc::new(Journal::new(inner, lab.host(), place, options.clone()));
        for (object, len) in prefilled {
            journal.has(*object, len.pages_ceil());
        }
        let device = lab.add_device(Arc::clone(&journal) as Arc<dyn Device>);
        journal.start(&**lab.env(), device);
        self.made.push((journal, device));
        Ok(device)
    }

    /// Their work, for the counters; nothing without one.
    pub(super) fn counters(&self) -> Vec<(&'static str, f64)> {
        if self.made.is_empty() {
            return Vec::new();
        }
        let stats: Vec<_> = self.made.iter().map(|(made, _)| made.stats()).collect();
        let sum = |of: fn(&journal::Stats) -> u64| number(stats.iter().map(of).sum());
        let most = |of: fn(&journal::Stats) -> u64| number(stats.iter().map(of).max().unwrap_or(0));
        vec![
            ("journal_commits", sum(|stats| stats.commits)),
            (
                "journal_commit_max_ns",
                most(|stats| stats.commit_longest.0),
            ),
            ("journal_blocks", sum(|stats| stats.logged.0)),
            ("journal_held", sum(|stats| stats.held)),
            ("journal_held_ns", sum(|stats| stats.held_time.0)),
            ("journal_held_max_ns", most(|stats| stats.held_longest.0)),
        ]
    }
}
