//! Support of the library's tests.

use std::path::Path;
use std::time::{Duration, Instant};

use tidegate::{Cache, Error, File, OpenOptions, SystemError};

/// From the fork of a program to its beginning, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(10);

/// A program that another test starts has a copy of the descriptor from its fork to its beginning.
pub(crate) fn open_soon(cache: &Cache, path: &Path, options: OpenOptions) -> File {
    let began = Instant::now();
    loop {
        match cache.open(path, options) {
            Err(Error::System(SystemError::InUse { .. })) if began.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(2));
            }
            opened => return opened.unwrap(),
        }
    }
}
