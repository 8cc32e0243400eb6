//! A folder for the files of a test.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// It is removed, with all that is in it, when this is dropped.
pub(crate) struct Dir(pub(crate) PathBuf);

impl Dir {
    /// An empty one, of this process alone.
    pub(crate) fn new(name: &str) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("tidegate-test-{process}-{number}-{name}"));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
