//! Files that jobs make while they run, live: in the folder of the run, and without a name as soon
//! as they are open.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use env::ObjectId;
use os::{FileDevice, OpenOptions};
use workload::Objects;

use super::live::LiveFiles;

/// Files so far in this process: two devices in one folder give no name twice.
static MADE: AtomicU64 = AtomicU64::new(0);

/// Makes files of one device.
pub(super) struct MadeFiles {
    dir: PathBuf,
    disk: Arc<FileDevice>,
    /// Removed should the program be interrupted between the two steps.
    files: LiveFiles,
}

impl MadeFiles {
    pub(super) fn new(dir: &Path, disk: &Arc<FileDevice>, files: &LiveFiles) -> Self {
        Self {
            dir: dir.to_owned(),
            disk: Arc::clone(disk),
            files: files.clone(),
        }
    }
}

impl Objects for MadeFiles {
    fn make(&self) -> Result<ObjectId, String> {
        let (pid, number) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let path = self.dir.join(format!("tidegate-{pid}-made-{number}.dat"));
        self.files.add(path.clone());
        let options = OpenOptions {
            create: true,
            truncate: true,
            ..OpenOptions::default()
        };
        let opened = self.disk.open(&path, options);
        // It lives on as long as it is open.
        let _ = std::fs::remove_file(&path);
        self.files.forget(&path);
        let (object, _) = opened.map_err(|error| error.to_string())?;
        Ok(object)
    }

    fn remove(&self, object: ObjectId) {
        self.disk.close(object);
    }
}

#[cfg(test)]
mod tests {
    use policy::units::Bytes;
    use workload::Stop;

    use crate::outcome::Outcome;
    use crate::run::cell::{Cell, Column};
    use crate::run::live::{Live, LiveFiles};
    use crate::run::session::RunError;
    use crate::scenario::{Scenario, Source};

    /// A source of 2 MiB with copies, beside 18 files a task of `fs_mark` and a file that is
    /// mapped, at half size.
    const MAKERS: &str = r#"
        schema = "tidegate-exp/1"
        name = "makers"
        [run]
        scale = 0.5
        [machine]
        cpus = 2
        memory_mib = 64
        readahead_kib = 128
        [[device]]
        id = "disk"
        model = "p0_ssd"
        fs = "ext4"
        [[task]]
        id = "large"
        kind = "large_dd"
        device = "disk"
        file_mib = 4
        rate_mib = 32
        total_mib = 15
        [[task]]
        id = "map"
        kind = "mapped_writer"
        device = "disk"
        file_mib = 6
        [[task]]
        id = "mark"
        kind = "fs_mark"
        device = "disk"
        count = 3
        files_per_loop = 12
        loops = 3
        file_kib = 40
        [[policy]]
        name = "tidegate"
    "#;

    fn cell() -> Cell {
        let source = Source {
            origin: "test".into(),
            text: MAKERS.into(),
        };
        let (scenario, _) = Scenario::load(source, &[]).unwrap();
        let column = Column::of(&scenario.policies[0]);
        Cell::resolve(&scenario, &scenario.rows()[0], &column)
    }

    fn check(run: &Outcome) {
        let [large, map, marks @ ..] = &run.jobs[..] else {
            panic!("there are jobs")
        };
        assert!((large.bytes - f64::from(8 << 20)).abs() < 0.5, "{large:?}");
        let parts = large.parts.iter().map(|(name, _)| *name);
        assert_eq!(parts.collect::<Vec<_>>(), ["download", "copy", "delete"]);
        let download = large.parts[0].1;
        assert!((0.125..1.0).contains(&download), "{large:?}");
        assert!((map.bytes - f64::from(3 << 20)).abs() < 0.5, "{map:?}");
        assert!((map.touched - 768.0).abs() < 0.5 && map.faults >= 768.0);
        assert_eq!(marks.len(), 3);
        for mark in marks {
            assert!((mark.bytes - f64::from(18 * (40 << 10))).abs() < 0.5);
            assert!((mark.files_a_round - 18.0).abs() < 0.5, "{mark:?}");
        }
        let rounds: usize = marks.iter().map(|mark| mark.samples.len()).sum();
        assert_eq!(rounds, 3);
    }

    #[test]
    fn jobs_make_their_files_in_the_lab() {
        let cell = cell();
        let run = crate::run::lab::run(&cell, 1, false, &Stop::default()).unwrap();
        check(&run);
        let again = crate::run::lab::run(&cell, 1, false, &Stop::default()).unwrap();
        assert_eq!(run.trace_hash, again.trace_hash);
    }

    #[test]
    fn jobs_make_their_files_live_and_leave_none() {
        let dir = std::env::temp_dir().join(format!("tidegate-makers-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let live = Live {
            dir: dir.clone(),
            wrap: None,
            memory: Some(Bytes(os::resident_bytes() + (64 << 20))),
            files: LiveFiles::default(),
        };
        let run = live.run(&cell(), false, &Stop::default());
        let left = std::fs::read_dir(&dir).unwrap().count();
        std::fs::remove_dir_all(&dir).unwrap();
        check(&run.unwrap());
        assert_eq!(left, 0);
    }

    #[test]
    fn more_files_than_the_system_lets_be_open_are_refused_before_they_are_made() {
        let mut cell = cell();
        for job in &mut cell.jobs {
            if let Some((files, _)) = &mut job.facts.makes {
                *files = u32::MAX.into();
            }
        }
        let error = super::super::live::check_made(&cell).unwrap_err();
        assert!(matches!(error, RunError::Impossible(_)), "{error}");
        let said = error.to_string();
        assert!(said.contains("row `makers`") && said.contains("ulimit -n"));
    }
}
