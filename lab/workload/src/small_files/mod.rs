//! Many small files: their inodes and entries in memory, what writes them, and who makes, looks up
//! and reads them.
//!
//! It is a file system's cache, not a file system. A *directory* is one file of the cache, and a
//! small file some pages of it, in the order in which they are made: the flusher sees runs of
//! pages, as delayed allocation lays small files next to each other, and reclaim sees single ones.
//! Small files are written in the order in which they became dirty, whatever their directory: the
//! flusher takes a request of one directory and turns to the next.
//! Beside its pages a file has *objects* in memory, on slab pages (`kernel::Slabs`):
//!
//! ```text
//!   entry      a name in its directory; goes when a shrinker looks at it unused
//!   inode      goes after its entry, and after its pages or together with them (`InodeRule`)
//!   beside     what else there is for an inode, such as its place in the log; goes with it
//! ```
//!
//! The life of an inode is drawn in `table`. One task (`keep`) stands for the log and its tail: it
//! appends what each file costs the log, and writes the inodes behind the first file of a directory
//! that is dirty, a cluster of 32 at a time, to the device.
//!
//! Invariants
//!   1. A dirty inode is not given up: it waits, left, for its cluster to be written.
//!   2. A file that was made is found again: its inode is in memory, or on the device.
//!   3. Nothing is held while objects are taken or given back, pages dropped, or anything waited
//!      for.
//!
//! Concurrency: one lock for the table, taken for a few list steps; what a shrinker could free is
//! told by atomics.
//!
//! Source: experiments A4; paper p3; kernel-facts 14, 18, 19; mechanisms 7.3; Linux 5.0 fs/super.c,
//! super_cache_scan().
//! Deviations: clusters and the log go through files of the cache and leave it as soon as they are
//! written, so they are dirty pages for some milliseconds; directory blocks are not modelled;
//! inodes are logged and written in the order in which they were made.

mod keep;
mod make;
mod revisit;
mod shrink;
mod table;
#[cfg(test)]
mod tests;

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use env::{Cause, Lock, LockClass, Signal, Task, WaitQueue};
use history::files::{InodeRule, WithPages};
use kernel::{Object, ObjectShare, SlabSpec, Slabs};
use mm::{Cache, File};
use policy::units::{Bytes, Nanos, PAGE_SIZE, Pages};

use crate::Failure;
use crate::unused::Unused;
use table::{FileId, Table, Taken};

pub use keep::{Keep, keep};
pub use make::{MakeSmall, make_small};
pub use revisit::{Revisit, Visit, revisit};

/// Most caches of objects that the files of a file system have.
pub const CACHES_MAX: usize = 8;
/// Pages of a directory that the flusher writes before it turns to the next one: what is plugged
/// until a request of it goes out (Linux 5.0 block/blk.h, BLK_PLUG_FLUSH_SIZE, 128 KiB).
const SLICE: Pages = Pages(32);
/// Inodes that are written and read together (xfs: 16 KiB of 512 bytes each).
pub(crate) const INODES_A_CLUSTER: u32 = 32;
/// Bytes of such a cluster.
pub(crate) const CLUSTER: Bytes = Bytes(16 << 10);
/// Ages are kept in units of this many bytes.
const AGE_UNIT: u64 = 64 << 10;
/// Time that a shrinking task waits at most for dirty inodes.
const WRITE_WAIT: Nanos = Nanos::millis(100);

/// The role of an object beside its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Its entry.
    Entry,
    /// Its inode.
    Inode,
    /// Of its inode, and goes with it.
    Beside,
}

/// A cache of objects, of which each file has one.
#[derive(Clone, Copy, Debug)]
pub struct ObjectCache {
    /// The slabs that it is in.
    pub spec: SlabSpec,
    /// The role of its objects.
    pub role: Role,
}

/// The options of small files.
#[derive(Clone, Debug)]
pub struct SmallOptions {
    /// The caches of objects: one entry, one inode, and what is beside it.
    pub caches: Vec<ObjectCache>,
    /// The rule by which inodes are freed.
    pub rule: InodeRule,
    /// `vfs_cache_pressure`, in per cent.
    pub pressure: u32,
    /// Pages of each file.
    pub pages_a_file: u32,
    /// Nodes of the machine.
    pub nodes: u8,
    /// Memory of the machine: inodes in memory fit it.
    pub memory: Pages,
}

impl SmallOptions {
    /// Bytes that an inode holds at least: what bounds how many there are.
    fn least(&self) -> u64 {
        let own = self.caches.iter().filter(|cache| cache.role != Role::Entry);
        own.map(|cache| cache.spec.object.0).sum::<u64>().max(1)
    }
}

/// All small files of a run.
pub struct SmallFiles {
    cache: Arc<Cache>,
    options: SmallOptions,
    slabs: Vec<Arc<Slabs>>,
    table: Lock<Table<Object>>,
    /// Objects that each node could give.
    freeable: Unused,
    directories: Lock<Vec<Arc<File>>>,
    /// The tables of inodes of the directories, on the device.
    inode_tables: Lock<Vec<Arc<File>>>,
    /// Tasks that make files, and those that use them at all.
    makers: AtomicU32,
    users: AtomicU32,
    /// Tasks that wait for the last maker, for written inodes, and the keeper.
    made: WaitQueue,
    written: WaitQueue,
    keeper: WaitQueue,
    /// Number of times that somebody wanted inodes written.
    asked: AtomicU64,
    /// The keeper's task; nobody yet: `u64::MAX`.
    keeper_id: AtomicU64,
    /// Their part of the memory.
    share: OnceLock<ObjectShare>,
}

impl SmallFiles {
    /// None yet, with a shrinker for their objects in the cache.
    ///
    /// # Errors
    /// `BadOption`: sizes or orders that make no slab; `RegisteredTwice`: this cache has small
    /// files already.
    pub fn new(
        task: &Task<'_>,
        cache: &Arc<Cache>,
        options: SmallOptions,
    ) -> Result<Arc<Self>, mm::Error> {
        let count = options.caches.len() as u64;
        let of = |role| options.caches.iter().filter(|own| own.role == role).count();
        for (what, value, allowed) in [
            (
                "small files: caches of objects",
                count,
                (2, CACHES_MAX as u64),
            ),
            (
                "small files: caches of entries",
                of(Role::Entry) as u64,
                (1, 1),
            ),
            (
                "small files: caches of inodes",
                of(Role::Inode) as u64,
                (1, 1),
            ),
        ] {
            if !(allowed.0..=allowed.1).contains(&value) {
                return Err(mm::Error::BadOption {
                    what,
                    value,
                    allowed,
                });
            }
        }
        let slabs = options.caches.iter();
        let slabs = slabs.map(|own| Slabs::new(cache, own.spec));
        let slabs = slabs.collect::<Result<Vec<_>, _>>()?;
        let most = options.memory.bytes().0 / options.least();
        let most = u32::try_from(most).unwrap_or(u32::MAX - 1).max(1);
        let small = Arc::new(Self {
            cache: Arc::clone(cache),
            table: Lock::new(
                LockClass::Leaf,
                Table::new(most, options.nodes, options.rule.pages),
            ),
            freeable: Unused::new(usize::from(options.nodes)),
            options,
            slabs,
            directories: Lock::new(LockClass::Leaf, Vec::new()),
            inode_tables: Lock::new(LockClass::Leaf, Vec::new()),
            makers: AtomicU32::new(0),
            users: AtomicU32::new(0),
            made: WaitQueue::new(),
            written: WaitQueue::new(),
            keeper: WaitQueue::new(),
            asked: AtomicU64::new(0),
            keeper_id: AtomicU64::new(u64::MAX),
            share: OnceLock::new(),
        });
        let share = kernel::register(cache, task, Arc::new(shrink::Pruner::of(&small)))?;
        small.share.get_or_init(|| share);
        Ok(small)
    }

    /// A directory whose files are the pages of `data`, and whose inodes are written to `inodes`.
    pub fn add_directory(&self, task: &Task<'_>, data: Arc<File>, inodes: Arc<File>) -> u16 {
        data.set_slice_most(SLICE);
        self.directories.lock(task).push(data);
        self.inode_tables.lock(task).push(inodes);
        self.with(task, Table::add_directory)
    }

    /// A task that will make files, or use them; each leaves once (`leave`).
    pub fn expect(&self, makes: bool) {
        self.users.fetch_add(1, Ordering::AcqRel);
        if makes {
            self.makers.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// It is done, however its work ended.
    fn leave(&self, makes: bool) {
        if makes && self.makers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.made.wake_all(Signal::Other);
        }
        if self.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.keeper.wake_all(Signal::Other);
        }
    }

    /// Gives all objects back, for a run that has ended.
    pub fn clear(&self, task: &mut Task<'_>) {
        let all = self.with(task, Table::drain);
        for (objects, entry) in all {
            self.give_inode(task, &objects);
            if let Some(entry) = entry {
                self.give_entry(task, entry);
            }
        }
        self.directories.lock(task).clear();
        self.inode_tables.lock(task).clear();
    }

    /// Inodes in memory.
    pub fn inodes(&self, task: &Task<'_>) -> u64 {
        self.table.lock(task).len() as u64
    }

    /// Bytes of objects that a file has in memory.
    #[must_use]
    pub fn bytes_a_file(&self) -> Bytes {
        self.options.caches.iter().map(|own| own.spec.object).sum()
    }

    /// Works on the table, and tells what could be freed afterwards.
    fn with<T>(&self, task: &Task<'_>, work: impl FnOnce(&mut Table<Object>) -> T) -> T {
        let mut table = self.table.lock(task);
        let answer = work(&mut table);
        for node in 0..self.options.nodes {
            let seen = table.freeable(mm::NodeId(node));
            self.freeable.tell(usize::from(node), seen);
        }
        answer
    }

    fn directory(&self, task: &Task<'_>, directory: u16) -> Arc<File> {
        Arc::clone(&self.directories.lock(task)[usize::from(directory)])
    }

    fn inode_table(&self, task: &Task<'_>, directory: u16) -> Arc<File> {
        Arc::clone(&self.inode_tables.lock(task)[usize::from(directory)])
    }

    /// Bytes of a file.
    fn size(&self) -> Bytes {
        Bytes(u64::from(self.options.pages_a_file) * PAGE_SIZE)
    }

    /// The beginning of a file in its directory.
    fn offset(&self, file: u32) -> Bytes {
        Bytes(u64::from(file) * self.size().0)
    }

    fn slab(&self, role: Role) -> &Arc<Slabs> {
        let at = self.options.caches.iter().position(|own| own.role == role);
        &self.slabs[at.expect("there is one: `new` has looked")]
    }

    /// Takes the objects of an inode.
    fn take_inode(&self, task: &mut Task<'_>) -> Result<Taken<Object>, Failure> {
        let mut taken: Taken<Object> = [None; CACHES_MAX];
        for (at, own) in self.options.caches.iter().enumerate() {
            if own.role == Role::Entry {
                continue;
            }
            match self.slabs[at].take(task) {
                Ok(object) => taken[at] = Some(object),
                Err(error) => {
                    self.give_inode(task, &taken);
                    return Err(error.into());
                }
            }
        }
        Ok(taken)
    }

    fn give_inode(&self, task: &mut Task<'_>, taken: &Taken<Object>) {
        for (slabs, object) in self.slabs.iter().zip(taken) {
            if let Some(object) = object {
                slabs.give(task, *object);
            }
        }
    }

    fn take_entry(&self, task: &mut Task<'_>) -> Result<Object, Failure> {
        Ok(self.slab(Role::Entry).take(task)?)
    }

    fn give_entry(&self, task: &mut Task<'_>, entry: Object) {
        self.slab(Role::Entry).give(task, entry);
    }

    /// Their part of the memory.
    fn share(&self) -> ObjectShare {
        self.share.get().copied().unwrap_or_default()
    }

    /// An inode went to make room.
    fn note_gone(&self, task: &Task<'_>, id: FileId) {
        let share = self.share();
        if share.is_some() {
            let age = kernel::objects_evicted(&self.cache, task, share, self.bytes_a_file());
            let age = u32::try_from(age.0 / AGE_UNIT).unwrap_or(u32::MAX);
            self.table.lock(task).set_gone(id, age);
        }
    }

    /// A freed inode is read again, which took `cost`.
    fn note_missed(&self, task: &Task<'_>, id: FileId, cost: Nanos) {
        let gone = self.table.lock(task).gone(id);
        if let Some(age) = gone {
            let age = Bytes(u64::from(age) * AGE_UNIT);
            kernel::object_missed(&self.cache, task, self.share(), age, cost);
        }
    }

    /// Pages that their objects hold.
    fn held(&self) -> Pages {
        self.slabs.iter().map(|slabs| slabs.held()).sum()
    }

    /// The node of the inode's own memory.
    fn node_of(&self, task: &Task<'_>, taken: &Taken<Object>) -> mm::NodeId {
        let mut all = self.options.caches.iter().zip(&self.slabs).zip(taken);
        let own = all.find(|((own, _), _)| own.role == Role::Inode);
        let ((_, slabs), object) = own.expect("there is one: `new` has looked");
        slabs.node_of(task, object.expect("an inode has its object"))
    }

    /// Gives an inode an entry; the object goes back if it has one by now.
    fn enter(&self, task: &mut Task<'_>, id: FileId, entry: Object) {
        let node = self.slab(Role::Entry).node_of(task, entry);
        if !self.with(task, |table| table.enter(id, entry, node)) {
            self.give_entry(task, entry);
        }
    }

    /// True if any page of a file is in memory.
    fn has_pages(&self, file: &File, id: FileId) -> bool {
        let first = self.offset(id.file).0;
        let pages = 0..u64::from(self.options.pages_a_file);
        let at = |page| Bytes(first + page * PAGE_SIZE);
        pages
            .into_iter()
            .any(|page| file.is_cached(at(page), Bytes(PAGE_SIZE)))
    }

    /// Puts inodes on their lists whose pages were evicted, where only then they may be unused.
    fn sweep(&self, task: &Task<'_>) {
        if self.options.rule.pages == WithPages::PagesFirst {
            let directories = self.directories.lock(task).clone();
            self.with(task, |table| {
                table.sweep(|id| self.has_pages(&directories[usize::from(id.directory)], id));
            });
        }
    }

    /// Waits until the inode has been written, or for a while.
    fn wait_written(&self, task: &mut Task<'_>, id: FileId) {
        let deadline = task.now() + WRITE_WAIT;
        self.ask_keeper();
        let dirty = |task: &Task<'_>| {
            let (_, inodes) = self.table.lock(task).fronts(id.directory);
            inodes <= id.file
        };
        task.wait_while(&self.written, Cause::Journal, Some(deadline), dirty);
    }

    /// Has inodes written that can be, without waiting for it.
    fn ask_keeper(&self) {
        self.asked.fetch_add(1, Ordering::AcqRel);
        self.keeper.wake_all(Signal::Other);
    }

    /// True if the task is the keeper, which cannot wait for itself.
    fn is_keeper(&self, task: &Task<'_>) -> bool {
        self.keeper_id.load(Ordering::Relaxed) == u64::from(task.id().0)
    }

    /// Waits until all makers are done.
    fn wait_made(&self, task: &mut Task<'_>) -> Result<(), Failure> {
        let busy = |_: &Task<'_>| self.makers.load(Ordering::Acquire) > 0;
        Failure::after(task.wait_while(&self.made, Cause::Join, None, busy))
    }
}
