//! Locks of files that outlive their holder.
//!
//! A lock goes with the last copy of its descriptor. A program that another test starts has one
//! from its fork until it has begun, and a thread that ends may have one too. So a test that opens
//! a file again tries for as long as that may take; a lock that is held for longer has leaked. Also
//! used by the unit tests of `backend`.

use std::time::{Duration, Instant};

use super::{Backend, BackendError};

/// From the fork of a program to its beginning, on a machine that does much else.
pub(crate) const FORKED: Duration = Duration::from_secs(10);

/// Opens a backend, again and again for at most `patience` while somebody has its lock.
pub(crate) fn open_within(
    patience: Duration,
    open: impl Fn() -> Result<Backend, BackendError>,
) -> Result<Backend, BackendError> {
    let began = Instant::now();
    loop {
        match open() {
            Err(error) if is_locked(&error) && began.elapsed() < patience => {
                std::thread::sleep(Duration::from_millis(2));
            }
            opened => return opened,
        }
    }
}

fn is_locked(error: &BackendError) -> bool {
    match error {
        BackendError::InUse { .. } | BackendError::Twice { .. } => true,
        // The lock of a directory; a lease says how long it lasts.
        BackendError::Objects(objects::Error::InUse { remaining, .. }) => remaining.is_none(),
        _ => false,
    }
}
