//! Files that jobs make while they run, live: in the folder of the run, and without a name as soon
//! as they are open.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use env::ObjectId;
use os::{FileDevice, OpenOptions};
use workload::Objects;

/// Files so far in this process: two devices in one folder give no name twice.
static MADE: AtomicU64 = AtomicU64::new(0);

/// The files of the run that is under way, to be removed also when the program is interrupted.
#[derive(Clone, Debug, Default)]
pub struct LiveFiles(Arc<Mutex<Vec<PathBuf>>>);

impl LiveFiles {
    pub(super) fn add(&self, path: PathBuf) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(path);
    }

    /// One is gone already.
    fn forget(&self, path: &Path) {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|own| own != path);
    }

    /// Removes all of them.
    pub fn remove_all(&self) {
        for path in self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .drain(..)
        {
            // Nothing is left to be done about a file that will not go.
            let _ = std::fs::remove_file(path);
        }
    }
}

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
    use crate::run::cell::{Cell, Column};
    use crate::run::session::RunError;
    use scenario::{Scenario, Source};

    const MAKER: &str = r#"
        schema = "tidegate-exp/1"
        name = "makers"
        [machine]
        cpus = 2
        memory_mib = 64
        readahead_kib = 128
        [[device]]
        id = "disk"
        model = "p0_ssd"
        fs = "ext4"
        [[task]]
        id = "mark"
        kind = "fs_mark"
        device = "disk"
        count = 3
        files_per_loop = 12
        loops = 3
        file_kib = 40
        [[column]]
        name = "tidegate"
    "#;

    fn cell() -> Cell {
        let source = Source {
            origin: "test".into(),
            text: MAKER.into(),
        };
        let (scenario, _) = Scenario::load(source, &[]).unwrap();
        let column = Column::of(&scenario.columns[0]);
        Cell::resolve(&scenario, &scenario.rows()[0], &column)
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
