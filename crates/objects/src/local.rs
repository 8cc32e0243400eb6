//! A local directory as a store, and the lock that says who has the volume in it.
//!
//! `LocalFileSystem` has no conditional update: `Client::put` looks at the version, and the store then renames the new
//! file into place. That is safe against whoever takes the lock first, as every Tidegate does; a program that writes
//! into the directory all the same is noticed if it did so before the look. The system gives the lock back when the
//! process ends, however it ends.
//!
//! Puts are synced, file and directory, before they are answered.

use std::fs::{DirEntry, File, TryLockError};
use std::io::ErrorKind::NotFound;
use std::io::{Error as Trouble, Read as _, Seek as _, Write as _};
use std::path::{Path as FilePath, PathBuf};

use object_store::local::LocalFileSystem;

use crate::error::Error;
use crate::layout;

/// The file whose lock says who has the volume.
const LOCK: &str = "lock";

/// A directory as a store; made if `create`.
pub(crate) fn open(path: &FilePath, create: bool) -> Result<LocalFileSystem, Error> {
    let system = |what| {
        move |source| Error::System {
            path: path.to_path_buf(),
            what,
            source,
        }
    };
    if create {
        std::fs::create_dir_all(path).map_err(system("make the directory"))?;
    }
    for entry in std::fs::read_dir(path).map_err(system("open the directory"))? {
        only_files(&entry.map_err(system("list"))?)?;
    }
    let store = LocalFileSystem::new_with_prefix(path).map_err(|source| Error::Store {
        place: format!("dir:{}", path.display()),
        what: "open the directory",
        source: Box::new(source),
    })?;
    Ok(store.with_fsync(true))
}

/// Refuses what has an object's name and is no file: it would not be listed, and would read as zeroes; a pipe would hang.
fn only_files(entry: &DirEntry) -> Result<(), Error> {
    let is_object = |name: &str| layout::object_of(name).is_some();
    if !entry.file_name().to_str().is_some_and(is_object) {
        return Ok(());
    }
    let kind = match entry.file_type() {
        // As the store does, to what it leads to.
        Ok(kind) if kind.is_symlink() => std::fs::metadata(entry.path()).map(|to| to.file_type()),
        kind => kind,
    };
    let refused = |source| Error::System {
        path: entry.path(),
        what: "take this for an object",
        source,
    };
    match kind {
        Ok(kind) if kind.is_file() => Ok(()),
        Ok(_) => Err(refused(Trouble::other(
            "not a regular file; put back the object, or move this away to read zeroes in its place",
        ))),
        // Removed meanwhile, as by a server that has the volume; a link to nowhere stays.
        Err(error) if error.kind() == NotFound && entry.path().symlink_metadata().is_err() => {
            Ok(())
        }
        Err(error) => Err(refused(error)),
    }
}

/// The lock of a directory's volume, held as long as this lives.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    file: File,
}

impl Drop for DirectoryLock {
    /// Unlocks: to close would leave the lock with any copy that a program being started has, from its fork until it runs.
    fn drop(&mut self) {
        // Closing it gives it back as well, only later.
        let _ = self.file.unlock();
    }
}

impl DirectoryLock {
    /// Takes it, and removes what writers that were killed left half done.
    pub(crate) fn take(path: &FilePath) -> Result<Self, Error> {
        let name: PathBuf = path.join(LOCK);
        let system = |what| {
            let path = name.clone();
            move |source| Error::System { path, what, source }
        };
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&name)
            .map_err(system("open the lock"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut owner = String::new();
                // Only to name it.
                let _ = (&file).take(80).read_to_string(&mut owner);
                return Err(Error::InUse {
                    place: format!("dir:{}", path.display()),
                    owner: owner.trim().to_owned(),
                    remaining: None,
                });
            }
            Err(TryLockError::Error(source)) => return Err(system("lock")(source)),
        }
        let named = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "process {}", std::process::id()));
        named.map_err(system("write"))?;
        for entry in std::fs::read_dir(path).map_err(system("list"))? {
            let entry = entry.map_err(system("list"))?;
            let left = entry.file_name().to_str().is_some_and(layout::is_half_done);
            if left {
                std::fs::remove_file(entry.path())
                    .map_err(system("remove a half-written file beside"))?;
            }
        }
        Ok(Self { file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_dropped_is_free_though_a_program_being_started_has_a_copy() {
        let path = std::env::temp_dir().join(format!("tidegate-lock-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let lock = DirectoryLock::take(&path).unwrap();
        let copy = lock.file.try_clone().unwrap();
        assert!(DirectoryLock::take(&path).is_err(), "it is held");
        drop(lock);
        let again = DirectoryLock::take(&path);
        assert!(again.is_ok(), "{again:?}");
        drop((again, copy));
        std::fs::remove_dir_all(&path).unwrap();
    }
}
