//! Which files are open: each once, however many handles it has.
//!
//! Two sets of cached pages of one file would not know of each other: a reader of one would miss
//! what is dirty in the other, and the later write-back would win. So a file that is opened again,
//! under whatever name, shares its pages with the handles it has; and one whose handles were all
//! dropped stays, until it is opened again or its place is needed.
//!
//! Invariants
//!   1. A file of the system has at most one entry, and its pages belong to that.
//!   2. An entry is ended (`ending`) by one thread at a time, without handles but that thread's
//!      own; a thread that opens the file meanwhile waits.
//!   3. The lock is held across the system's `open`, never across requests to a device.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use device::Stack;
use env::ObjectId;
use os::FileDevice;
use policy::dirty::DeviceIndex;

/// The system's name of a file: file system and inode, or the number of a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileKey(u64, u64);

impl FileKey {
    /// Of what stands at a path, if anything does.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        std::fs::metadata(path)
            .ok()
            .map(|data| Self::of_data(&data))
    }

    /// Of what is open.
    pub(crate) fn of_data(data: &Metadata) -> Self {
        match data.rdev() {
            0 => Self(data.dev(), data.ino()),
            // A block device may have several names, none of them on itself.
            device => Self(u64::MAX, device),
        }
    }
}

/// A disk of a cache: the files of a file system, or a block device.
#[derive(Clone)]
pub(crate) struct Disk {
    pub(crate) files: Arc<FileDevice>,
    pub(crate) index: DeviceIndex,
    pub(crate) layers: Option<Arc<Stack>>,
}

/// The open files of a cache.
#[derive(Default)]
pub(crate) struct Opened {
    entries: Mutex<BTreeMap<FileKey, Entry>>,
    ended: Condvar,
}

/// A file that is open, or was dropped.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) disk: Disk,
    pub(crate) object: ObjectId,
    /// The first handle's, and that of the thread that finds the file dropped: it knows which
    /// errors were not told to anybody yet.
    pub(crate) inner: Arc<mm::File>,
    pub(crate) read_only: bool,
    pub(crate) handles: usize,
    ending: bool,
}

impl Entry {
    /// A file with one handle.
    pub(crate) fn new(disk: Disk, object: ObjectId, inner: Arc<mm::File>, read_only: bool) -> Self {
        Self {
            disk,
            object,
            inner,
            read_only,
            handles: 1,
            ending: false,
        }
    }
}

pub(crate) type Entries<'a> = MutexGuard<'a, BTreeMap<FileKey, Entry>>;

impl Opened {
    /// The table, at a moment when the file of `key` is not being ended.
    pub(crate) fn lock(&self, key: Option<FileKey>) -> Entries<'_> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let is_ending = |entries: &mut BTreeMap<FileKey, Entry>| {
            let entry = key.and_then(|key| entries.get(&key));
            entry.is_some_and(|entry| entry.ending)
        };
        self.ended
            .wait_while(entries, is_ending)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Another handle of a file that has some: with what the system knows it by.
    pub(crate) fn again(&self, key: FileKey) -> Option<Entry> {
        let mut entries = self.lock(None);
        let entry = entries.get_mut(&key)?;
        entry.handles += 1;
        Some(entry.clone())
    }

    /// A handle was dropped.
    pub(crate) fn let_go(&self, key: FileKey) {
        if let Some(entry) = self.lock(None).get_mut(&key) {
            entry.handles -= 1;
        }
    }

    /// Begins to end a file that has no more than `handles` handles; false if it has more, or is
    /// being ended. `end` or `keep` comes after.
    pub(crate) fn begin_end(&self, key: FileKey, handles: usize) -> Option<Entry> {
        let mut entries = self.lock(None);
        let entry = entries.get_mut(&key)?;
        if entry.handles > handles || entry.ending {
            return None;
        }
        entry.ending = true;
        Some(entry.clone())
    }

    /// The file is out of the cache.
    pub(crate) fn end(&self, key: FileKey) {
        let ended = self.lock(None).remove(&key);
        if let Some(entry) = ended {
            entry.disk.files.close(entry.object);
        }
        self.ended.notify_all();
    }

    /// It could not be ended.
    pub(crate) fn keep(&self, key: FileKey) {
        if let Some(entry) = self.lock(None).get_mut(&key) {
            entry.ending = false;
        }
        self.ended.notify_all();
    }

    /// Closes all files, of a cache that has ended: their locks go, though handles are left.
    pub(crate) fn close(&self) {
        for entry in self.lock(None).values() {
            entry.disk.files.close(entry.object);
        }
    }

    /// Files without a handle.
    pub(crate) fn dropped(&self) -> Vec<FileKey> {
        let entries = self.lock(None);
        let dropped = entries.iter().filter(|(_, entry)| entry.handles == 0);
        dropped.map(|(key, _)| *key).collect()
    }
}
