//! A local directory as a store, and the lock that says which server has the volume in it.
//!
//! `LocalFileSystem` has no conditional update: `Client::put` looks at the version, and the store
//! then renames the new file into place. That is safe against any program that takes the lock
//! first, as every Tidegate does; a program that writes into the directory all the same is noticed
//! if it did so before the look. The system gives the lock back when the process ends, however it
//! ends.
//!
//! A put that hangs in the file system goes on after nobody waits for it any more, and the runtime
//! ends without its thread. Each put has a hold of the lock, so that a server that takes the
//! directory next is not overwritten by it. It also has a turn at its object, so that no later put
//! of this process is: the next put of that object waits until it has ended.
//!
//! Puts are synced, file and directory, before they are answered. Objects that were there before
//! may not be synced: they are of a server that was killed, or were copied there a moment ago. It
//! is synced before the volume is open.

use std::collections::BTreeSet;
use std::fs::{DirEntry, File, TryLockError};
use std::io::ErrorKind::{AlreadyExists, NotFound};
use std::io::{Error as Trouble, Read as _, Seek as _, Write as _};
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;
use object_store::local::LocalFileSystem;
use os::{OwnPath, OwnPaths, identity, leads_to};
use tokio::sync::Notify;

use crate::error::Error;
use crate::layout;
use crate::request::lock;
use crate::spare::Spare;

/// The file whose lock says which server has the volume.
const LOCK: &str = "lock";
/// Times that a lock is opened which others, that are refused, take away.
const TRIES: u32 = 3;

/// A directory as a store, and what it is called whatever becomes of links to it; made if there is
/// `made` to note it in.
pub(crate) fn open(
    path: &FilePath,
    made: Option<&mut OwnPaths>,
) -> Result<(LocalFileSystem, PathBuf), Error> {
    let system = |what| {
        move |source| Error::System {
            path: path.to_path_buf(),
            what,
            source,
        }
    };
    if let Some(made) = made {
        let folders = made.make_folders(path);
        folders.map_err(system("make the directory"))?;
    }
    let root = path.canonicalize().map_err(system("open the directory"))?;
    for entry in std::fs::read_dir(&root).map_err(system("open the directory"))? {
        only_files(&entry.map_err(system("list"))?)?;
    }
    let store = LocalFileSystem::new_with_prefix(&root).map_err(|source| Error::Store {
        place: format!("dir:{}", path.display()),
        what: "open the directory",
        source: Box::new(source),
    })?;
    Ok((store.with_fsync(true), root))
}

/// Refuses what has an object's name and is no file: it would not be listed, and would read as
/// zeroes; a pipe would hang.
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

/// The lock of a directory's volume, held as long as this lives, by a server that writes there.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    name: PathBuf,
    file: File,
    /// Objects of which a put has begun and not ended.
    at_work: Mutex<BTreeSet<String>>,
    ended: Notify,
    was_away: AtomicBool,
}

impl Drop for DirectoryLock {
    /// Unlocks: to close would leave the lock with any copy that a program being started has, from
    /// its fork until it runs.
    fn drop(&mut self) {
        // Closing it gives it back as well, only later.
        let _ = self.file.unlock();
    }
}

impl DirectoryLock {
    /// None, for a reader: the directory itself, to tell whether it is in place.
    pub(crate) fn none(path: &FilePath) -> Result<Self, Error> {
        let file = File::open(path).map_err(|source| Error::System {
            path: path.into(),
            what: "open the directory",
            source,
        })?;
        Ok(Self::new(path.into(), file))
    }

    fn new(name: PathBuf, file: File) -> Self {
        Self {
            name,
            file,
            at_work: Mutex::default(),
            ended: Notify::new(),
            was_away: AtomicBool::new(false),
        }
    }

    /// Takes it, and removes what writers that were killed left half done. Notes the file in
    /// `made`, if it was not there.
    pub(crate) fn take(path: &FilePath, made: &mut OwnPaths) -> Result<Self, Error> {
        let name: PathBuf = path.join(LOCK);
        let system = |what| {
            let path = name.clone();
            move |source| Error::System { path, what, source }
        };
        let mut options = File::options();
        options.read(true).write(true);
        for _ in 0..TRIES {
            let (file, is_there) = match options.clone().create_new(true).open(&name) {
                Err(error) if error.kind() == AlreadyExists => (options.open(&name), true),
                made => (made, false),
            };
            let lock = match file {
                Err(error) if is_there && error.kind() == NotFound => None,
                Err(error) => return Err(system("open the lock")(error)),
                Ok(file) => Self::of(file, path, is_there, made)?,
            };
            if let Some(lock) = lock {
                return Ok(lock);
            }
        }
        let away = "others take it away again and again";
        Err(system("open the lock")(Trouble::other(away)))
    }

    /// The lock that is this file, which was there before or was not. None: it has become nobody's.
    fn of(
        file: File,
        path: &FilePath,
        is_there: bool,
        made: &mut OwnPaths,
    ) -> Result<Option<Self>, Error> {
        let name: PathBuf = path.join(LOCK);
        let system = |what| {
            let path = name.clone();
            move |source| Error::System { path, what, source }
        };
        // At once: what fails below must unlock it too.
        let mut lock = match file.try_lock() {
            Ok(()) => Self::new(name.clone(), file),
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
        };
        // A start that is refused removes what it made before it unlocks it: this is nobody's lock
        // then.
        if !lock.in_place().map_err(system("look at"))? {
            return Ok(None);
        }
        let data = lock.file.metadata().map_err(system("look at"))?;
        let own = OwnPath::new(&name, (!is_there).then(|| identity(&data)));
        let named = lock
            .file
            .set_len(0)
            .and_then(|()| lock.file.rewind())
            .and_then(|()| writeln!(lock.file, "process {}", std::process::id()));
        named.map_err(system("write"))?;
        for entry in std::fs::read_dir(path).map_err(system("list"))? {
            let entry = entry.map_err(system("list"))?;
            let left = entry.file_name().to_str().is_some_and(layout::is_half_done);
            if left {
                std::fs::remove_file(entry.path())
                    .map_err(system("remove a half-written file beside"))?;
            }
        }
        made.push(own);
        Ok(Some(lock))
    }

    /// Descriptors for calls into the directory that get none.
    pub(crate) fn spare(&self) -> Result<Spare, Error> {
        Spare::new(&self.file).map_err(|source| Error::System {
            path: self.name.clone(),
            what: "keep descriptors beside",
            source,
        })
    }

    /// True if it can still be found where it was taken: a directory that was moved has it with it.
    pub(crate) fn in_place(&self) -> Result<bool, Trouble> {
        let is_there = leads_to(&self.name, &self.file)?;
        self.was_away.store(!is_there, Ordering::Relaxed);
        Ok(is_there)
    }

    /// True if it was not in place at the last look, and is not now.
    pub(crate) fn is_away(&self) -> bool {
        self.was_away.load(Ordering::Relaxed) && matches!(self.in_place(), Ok(false))
    }

    /// Waits until no put of the object is at work.
    pub(crate) async fn turn(self: Arc<Self>, object: &str) -> Turn {
        loop {
            // Before the look: it hears of each put that ends after it.
            let ended = self.ended.notified();
            if lock(&self.at_work).insert(object.to_owned()) {
                let object = object.to_owned();
                return Turn {
                    lock: self.clone(),
                    object,
                };
            }
            ended.await;
        }
    }
}

/// The right to put an object, and a hold of the lock.
pub(crate) struct Turn {
    lock: Arc<DirectoryLock>,
    object: String,
}

impl Turn {
    /// The content of a put, which has the turn as long as it lives, and where it is found whether
    /// the directory was in place at the end of the put. The store's thread drops the content then:
    /// the look, which may hang, needs no other.
    pub(crate) fn with(self, content: Bytes) -> (Bytes, Arc<OnceLock<bool>>) {
        let in_place = Arc::default();
        let held = Held {
            content,
            in_place: Arc::clone(&in_place),
            turn: self,
        };
        (Bytes::from_owner(held), in_place)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        lock(&self.lock.at_work).remove(&self.object);
        self.lock.ended.notify_waiters();
    }
}

/// Bytes and the turn of their put.
struct Held {
    content: Bytes,
    in_place: Arc<OnceLock<bool>>,
    turn: Turn,
}

impl Drop for Held {
    fn drop(&mut self) {
        // A directory that cannot be looked at is not known to be there.
        let in_place = self.turn.lock.in_place().unwrap_or(false);
        let _ = self.in_place.set(in_place);
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.content
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use env::{Device, IoError, IoOp};
    use object_store::path::Path;
    use object_store::{ObjectStore as _, PutMode, PutOptions};
    use policy::units;

    use super::*;
    use crate::common::{Fault, Faulty, LONG, MIB, PAGE, Pending, Rig, TestDir, block};
    use crate::error::{AWAY, TIMED_OUT};
    use crate::place::Location;
    use crate::{Config, Objects, open};

    /// The lock, which stays when it was made.
    fn take(dir: &TestDir) -> Result<DirectoryLock, Error> {
        let mut made = OwnPaths::default();
        let taken = DirectoryLock::take(&dir.0, &mut made);
        made.keep();
        taken
    }

    #[test]
    fn a_lock_that_is_dropped_is_free_though_a_program_being_started_has_a_copy() {
        let dir = TestDir::new("lock");
        let lock = take(&dir).unwrap();
        let copy = lock.file.try_clone().unwrap();
        assert!(take(&dir).is_err(), "it is held");
        drop(lock);
        let again = take(&dir);
        assert!(again.is_ok(), "{again:?}");
        drop(copy);
    }

    #[test]
    fn a_lock_that_is_taken_away_by_who_made_it_is_nobodys() {
        let dir = TestDir::new("away");
        let mut made = OwnPaths::default();
        let lock = DirectoryLock::take(&dir.0, &mut made).unwrap();
        // Somebody else wants it too, and is not quick.
        let late = File::options().write(true).open(dir.0.join(LOCK)).unwrap();
        drop(made);
        drop(lock);
        assert!(!dir.0.join(LOCK).exists());
        let nobodys = DirectoryLock::of(late, &dir.0, true, &mut OwnPaths::default());
        assert!(matches!(nobodys, Ok(None)), "{nobodys:?}");
        drop(take(&dir).unwrap());
        // A lock file that was there before stays.
        let mut made = OwnPaths::default();
        drop(DirectoryLock::take(&dir.0, &mut made).unwrap());
        drop(made);
        assert!(dir.0.join(LOCK).exists());
    }

    /// A volume in the directory, over a store that can be made to hang.
    fn volume(rig: &Rig, dir: &TestDir, config: &Config) -> (Arc<Objects>, Arc<Faulty>) {
        let faulty = Faulty::new(Arc::new(super::open(&dir.0, None).unwrap().0));
        let place = || {
            Ok(Location {
                store: faulty.clone(),
                prefix: Path::default(),
                directory: Some(dir.0.clone()),
                made: OwnPaths::default(),
                guard: Arc::default(),
                lists_truly: true,
                settle: os::sync_file_system,
            })
        };
        let (device, made) = open::open_at(place, config, Arc::clone(&rig.arena)).unwrap();
        made.keep();
        (device, faulty)
    }

    #[test]
    fn what_was_there_is_synced_before_a_volume_is_open_for_writing() {
        static SYNCED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
        let dir = TestDir::new("settled");
        let rig = Rig::new();
        let open = |read_only: bool, settle: fn(&FilePath) -> std::io::Result<()>| {
            let config = Config {
                size: (!read_only).then_some(MIB),
                read_only,
                ..Config::new(dir.url())
            };
            let place = || {
                let place = Location::of(&config)?;
                Ok::<_, Error>(Location { settle, ..place })
            };
            open::open_at(place, &config, Arc::clone(&rig.arena)).map(|(device, made)| {
                made.keep();
                device.close(LONG);
            })
        };
        let count = |path: &FilePath| {
            lock(&SYNCED).push(path.into());
            Ok(())
        };
        open(false, count).unwrap();
        open(true, count).unwrap();
        let root = dir.0.canonicalize().unwrap();
        assert_eq!(*lock(&SYNCED), vec![root]);
        let refused = open(false, |_: &FilePath| Err(Trouble::from_raw_os_error(5)));
        assert!(
            matches!(refused, Err(Error::System { .. })),
            "nothing is served that may not be durable"
        );
        open(false, os::sync_file_system).unwrap();
    }

    #[test]
    fn no_put_goes_past_one_of_its_object_that_hangs() {
        let dir = TestDir::new("past");
        let rig = Rig::new();
        let config = Config {
            size: Some(2 * MIB),
            timeout: Duration::from_millis(300),
            ..Config::new(dir.url())
        };
        let (device, faulty) = volume(&rig, &dir, &config);
        faulty.rule(|call, at| {
            (call == "put" && at.as_ref() == layout::name_of(0)).then_some(Fault::Stuck)
        });
        let old = rig.submit_write(&*device, 0, &[2; PAGE]);
        faulty.until_held(1);
        assert_eq!(rig.wait(old), Err(TIMED_OUT));
        faulty.calm();
        assert_eq!(rig.write(&*device, 0, &[3; PAGE]), Err(TIMED_OUT));
        rig.write(&*device, MIB, &[4; PAGE])
            .expect("another object");
        faulty.release(1);
        let began = Instant::now();
        while rig.write(&*device, 0, &[3; PAGE]).is_err() {
            assert!(began.elapsed() < LONG, "the put that hung has ended");
        }
        device.close(LONG);
        let object = std::fs::read(dir.0.join(layout::name_of(0))).unwrap();
        assert!(object[..PAGE] == [3; PAGE], "{}", object[0]);
    }

    #[test]
    fn a_put_that_finds_its_directory_moved_has_failed() {
        let dir = TestDir::new("moved-under");
        let rig = Rig::new();
        let config = Config {
            size: Some(MIB),
            ..Config::new(dir.url())
        };
        let (device, faulty) = volume(&rig, &dir, &config);
        // After the look before it.
        faulty.rule(|call, _| (call == "put").then_some(Fault::Stuck));
        let put = rig.submit_write(&*device, 0, &[2; PAGE]);
        faulty.until_held(1);
        let elsewhere = dir.0.with_extension("elsewhere");
        std::fs::rename(&dir.0, &elsewhere).unwrap();
        faulty.calm();
        faulty.release(1);
        assert_eq!(rig.wait(put), Err(AWAY), "it is not where anybody looks");
        let _ = std::fs::remove_dir_all(&dir.0);
        std::fs::rename(&elsewhere, &dir.0).unwrap();
        rig.write(&*device, 0, &[3; PAGE]).unwrap();
        let object = std::fs::read(dir.0.join(layout::name_of(0))).unwrap();
        assert!(object[..PAGE] == [3; PAGE], "{}", object[0]);
    }

    /// Closes a volume of one object while the put of `submit` hangs. Answers the object once the
    /// lock is free.
    fn close_while_stuck(
        dir: &TestDir,
        submit: impl FnOnce(&Rig, &dyn Device) -> Pending,
    ) -> Vec<u8> {
        let rig = Rig::new();
        let config = Config {
            size: Some(MIB),
            ..Config::new(dir.url())
        };
        let (device, faulty) = volume(&rig, dir, &config);
        rig.write(&*device, 0, &block(0, 0)).unwrap();
        faulty.rule(|call, _| (call == "put").then_some(Fault::Stuck));
        let pending = submit(&rig, &*device);
        faulty.until_held(1);
        device.close(Duration::ZERO);
        assert_eq!(rig.wait(pending), Err(IoError::Cancelled));
        drop(device);
        let taken = take(dir);
        assert!(matches!(taken, Err(Error::InUse { .. })), "{taken:?}");
        faulty.release(1);
        let began = Instant::now();
        while take(dir).is_err() {
            assert!(began.elapsed() < LONG, "it is given back");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::fs::read(dir.0.join(layout::name_of(0))).unwrap()
    }

    #[test]
    fn a_put_that_hangs_keeps_the_lock_of_a_volume_that_is_closed() {
        let dir = TestDir::new("stuck");
        let object = close_while_stuck(&dir, |rig, device| rig.submit_write(device, 0, &[2; PAGE]));
        assert!(
            object[..PAGE] == [2; PAGE],
            "the put ended before the lock was free"
        );
    }

    #[test]
    fn so_does_one_of_an_empty_object() {
        let dir = TestDir::new("stuck-empty");
        let object = close_while_stuck(&dir, |rig, device| {
            let len = units::Bytes(MIB);
            rig.submit(device, IoOp::Discard { len }, 0)
        });
        assert!(object.is_empty(), "{} bytes", object.len());
    }

    /// Tells when it is dropped if there is an object.
    struct Watch(PathBuf, mpsc::Sender<bool>);

    impl AsRef<[u8]> for Watch {
        fn as_ref(&self) -> &[u8] {
            b"content"
        }
    }

    impl Drop for Watch {
        fn drop(&mut self) {
            let _ = self.1.send(self.0.exists());
        }
    }

    /// The property that `Turn::with` relies on.
    #[test]
    fn the_store_keeps_the_content_until_the_object_is_in_place() {
        let dir = TestDir::new("content");
        let (store, _) = super::open(&dir.0, None).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        for (name, mode) in [("one", PutMode::Overwrite), ("two", PutMode::Create)] {
            let (sender, dropped) = mpsc::channel();
            let content = Bytes::from_owner(Watch(dir.0.join(name), sender));
            let (at, options) = (Path::from(name), PutOptions::from(mode));
            let put = store.put_opts(&at, content.into(), options);
            // Given up as soon as it has begun.
            let _ = runtime.block_on(async { tokio::time::timeout(Duration::ZERO, put).await });
            assert_eq!(dropped.recv_timeout(LONG), Ok(true), "{name}");
        }
    }
}
