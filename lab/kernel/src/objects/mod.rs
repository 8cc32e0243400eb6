//! Caches of objects that can be made again.
//!
//! A cache of objects (inodes, directory entries, rows) registers a `Shrink`. Passes of reclaim ask
//! each of them, after the lists and at the same priority (`history::shrink`). Its objects mostly
//! lie on slab pages (`slab`), which it gives back when their last object is freed; what a pass has
//! freed by asking is therefore counted where slab pages are given back, for the task that asks.
//!
//! Invariants
//!   1. A shrinker is called with no lock held and no page isolated. It may take objects, give them
//!      back, and wait.
//!   2. Pages that a task gives back while it asks a shrinker count as freed by its pass, and those
//!      of nobody else.
//!
//! Source: mechanisms 7; Linux 5.0 mm/vmscan.c, shrink_slab(), register_shrinker(); mm/slub.c,
//! __free_slab() (`reclaimed_slab`).

use core::any::Any;
use std::sync::Arc;

use env::{Context, Lock, LockClass, Task, TaskId};
use frames::sync::{AtomicU32, Ordering};
use history::shrink::{Answer, Deferred, ShrinkRule};
use mm::{Cache, Error, Item, NodeId};
use policy::shares::{MemberId, ShareRule};
use policy::units::{Bytes, Instant, Nanos, Pages};

use shares::MemoryShares;
pub use shares::{ObjectShare, ShareView};

pub(crate) mod ask;
pub(crate) mod pass;
mod shares;

/// Most caches of objects that can be registered.
const SHRINKERS_MAX: u32 = 64;

/// A cache of objects that can be made again.
pub trait Shrink: Send + Sync {
    /// The name in reports; no two that are registered share one.
    fn name(&self) -> &'static str;

    /// The cost of making an object again: 2 for one read of a disk (`history::shrink::Cache`).
    fn seeks(&self) -> u32 {
        history::shrink::Cache::default().seeks
    }

    /// Objects on a node that could be freed now. Cheap, and may be a little old.
    fn count(&self, node: NodeId) -> u64;

    /// Pages that its objects hold on all nodes, at once and without a lock. `None`: it does not
    /// know; then it is asked by pressure and has no share.
    fn held(&self) -> Option<Pages> {
        None
    }

    /// Each use of a page of a file is one of an object of it too, and not the reverse, as of an
    /// inode: pages are evicted first as long as neither is missed.
    fn carries_pages(&self) -> bool {
        false
    }

    /// Looks at objects, and frees those that it can. It may wait.
    fn scan(&self, task: &mut Task<'_>, ask: Ask) -> Answer;
}

/// The request to a shrinker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Of which node.
    pub node: NodeId,
    /// Objects to look at.
    pub objects: u64,
    /// The caller is not within a file system: the shrinker may take its locks and write. Else a
    /// shrinker that must answers `Stop`.
    pub may_enter_fs: bool,
    /// The background reclaimer asks, and not a task that needs memory.
    pub background: bool,
}

/// A registered shrinker.
pub(crate) struct Registered {
    pub(crate) shrinker: Arc<dyn Shrink>,
    /// Its place among those that share the memory.
    pub(crate) member: Option<MemberId>,
    /// Its debt, by node.
    deferred: Box<[Lock<Deferred>]>,
}

impl Registered {
    /// Its debt on a node.
    pub(crate) fn deferred(&self, node: NodeId) -> &Lock<Deferred> {
        &self.deferred[node.index()]
    }
}

/// A cache of objects that shares the memory.
pub(crate) struct Sharing {
    pub(crate) registered: Arc<Registered>,
    pub(crate) id: MemberId,
    pub(crate) held: Pages,
}

/// The caches of objects of a machine.
pub(crate) struct Objects {
    nodes: usize,
    rule: ShrinkRule,
    shares: Option<MemoryShares>,
    list: Lock<Vec<Arc<Registered>>>,
    /// Number of slabs: mostly none.
    count: AtomicU32,
    /// Tasks that ask shrinkers now, and the pages that each has given back meanwhile.
    asking: Lock<Vec<Asking>>,
    /// Number of these.
    askers: AtomicU32,
}

struct Asking {
    task: TaskId,
    background: bool,
    freed: Pages,
}

impl Objects {
    /// For a machine of `nodes` nodes, whose memory is shared by a rule or by pressure alone.
    pub(crate) fn new(
        nodes: usize,
        (rule, shares): (ShrinkRule, Option<ShareRule>),
        memory: Bytes,
        now: Instant,
    ) -> Self {
        Self {
            nodes,
            rule,
            shares: shares.map(|shares| MemoryShares::new(shares, memory, now)),
            list: Lock::new(LockClass::Registry, Vec::new()),
            count: AtomicU32::new(0),
            asking: Lock::new(LockClass::Leaf, Vec::new()),
            askers: AtomicU32::new(0),
        }
    }

    /// Adds a shrinker.
    ///
    /// # Errors
    /// `RegisteredTwice`, `TooMany`.
    pub(crate) fn register(
        &self,
        context: &impl Context,
        shrinker: Arc<dyn Shrink>,
    ) -> Result<ObjectShare, Error> {
        let mut list = self.list.lock(context);
        let name = shrinker.name();
        if list.iter().any(|known| known.shrinker.name() == name) {
            return Err(Error::RegisteredTwice { name });
        }
        if list.len() >= SHRINKERS_MAX as usize {
            return Err(Error::TooMany {
                what: "shrinkers",
                limit: SHRINKERS_MAX,
            });
        }
        let shares = self.shares.as_ref().filter(|_| shrinker.held().is_some());
        let member = shares.map(|shares| shares.join(context, shrinker.carries_pages()));
        let member = member.transpose()?;
        let deferred = || Lock::new(LockClass::Leaf, Deferred::default());
        list.push(Arc::new(Registered {
            shrinker,
            member,
            deferred: (0..self.nodes).map(|_| deferred()).collect(),
        }));
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(ObjectShare(member))
    }

    /// The shares of memory, if there is more than pressure.
    pub(crate) fn shares(&self) -> Option<&MemoryShares> {
        self.shares.as_ref()
    }

    /// The caches of objects that share the memory with the pages, with what they hold.
    pub(crate) fn members(&self, context: &impl Context) -> Vec<Sharing> {
        let list = self.list.lock(context);
        let members = list.iter().filter_map(|one| {
            Some(Sharing {
                id: one.member?,
                held: one.shrinker.held()?,
                registered: Arc::clone(one),
            })
        });
        members.collect()
    }

    /// The pages that the task has given back since it began to ask.
    pub(crate) fn freed(&self, task: &Task<'_>) -> Pages {
        let id = task.id();
        let asking = self.asking.lock(task);
        let own = asking.iter().find(|asking| asking.task == id);
        own.map_or(Pages::ZERO, |own| own.freed)
    }

    /// All that are registered, to be asked with nothing held.
    pub(crate) fn all(&self, context: &impl Context) -> Vec<Arc<Registered>> {
        self.list.lock(context).clone()
    }

    /// True if none is registered, as mostly.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// The task gave pages back. If it asks shrinkers, they are freed by its pass; answers whether
    /// it does so in the background.
    pub(crate) fn note_freed(&self, task: &Task<'_>, pages: Pages) -> Option<bool> {
        if self.askers.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let id = task.id();
        let mut asking = self.asking.lock(task);
        let own = asking.iter_mut().find(|asking| asking.task == id)?;
        own.freed += pages;
        Some(own.background)
    }

    /// The task begins to ask shrinkers; false: it does so already, further out.
    pub(crate) fn begin(&self, task: &Task<'_>, background: bool) -> bool {
        let id = task.id();
        let mut asking = self.asking.lock(task);
        if asking.iter().any(|asking| asking.task == id) {
            return false;
        }
        asking.push(Asking {
            task: id,
            background,
            freed: Pages::ZERO,
        });
        self.askers.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// It has asked; answers how many pages it gave back meanwhile.
    pub(crate) fn end(&self, task: &Task<'_>) -> Pages {
        let id = task.id();
        let mut asking = self.asking.lock(task);
        let at = asking.iter().position(|asking| asking.task == id);
        let at = at.expect("it has begun");
        self.askers.fetch_sub(1, Ordering::Relaxed);
        asking.remove(at).freed
    }
}

/// The caches of objects of a cache that has a kernel.
///
/// # Panics
/// If it was not made by `build`.
pub(crate) fn of(cache: &Cache) -> &Objects {
    let kernel = cache.inside().kernel();
    let own = kernel.and_then(|kernel| (kernel as &dyn Any).downcast_ref::<crate::Kernel>());
    &own.expect("a cache with objects was made by `kernel::build`")
        .objects
}

/// From now on passes of reclaim ask this cache of objects, too; if it says what it holds, for
/// what is above its share.
///
/// # Errors
/// `RegisteredTwice`: one of that name is registered; `TooMany`.
///
/// # Panics
/// If `cache` was not made by `build`, as the functions below.
pub fn register(
    cache: &Cache,
    task: &Task<'_>,
    shrinker: Arc<dyn Shrink>,
) -> Result<ObjectShare, Error> {
    of(cache).register(task, shrinker)
}

/// Objects of `bytes` in all leave a cache of them, to make room. Answers what each is to
/// remember, to be told to `object_missed` if it is made again.
pub fn objects_evicted(
    cache: &Cache,
    context: &impl Context,
    share: ObjectShare,
    bytes: Bytes,
) -> Bytes {
    let both = of(cache).shares().zip(share.0);
    both.map_or(Bytes::ZERO, |(shares, id)| {
        shares.evicted_objects(context, id, bytes)
    })
}

/// An object is made again that was evicted at `age`; that took `cost`.
pub fn object_missed(
    cache: &Cache,
    context: &impl Context,
    share: ObjectShare,
    age: Bytes,
    cost: Nanos,
) {
    if let Some((shares, id)) = of(cache).shares().zip(share.0) {
        shares.object_missed(context, id, age, cost);
    }
}

/// The shares of pages and caches of objects in the memory, and the number of transfers. Empty
/// where pages are alone.
pub fn shares(cache: &Cache, context: &impl Context) -> (Vec<ShareView>, u64) {
    let objects = of(cache);
    let Some(shares) = objects.shares() else {
        return (Vec::new(), 0);
    };
    let members = objects.members(context);
    let names = members
        .iter()
        .map(|one| (one.id, one.registered.shrinker.name()));
    let names: Vec<_> = names.collect();
    if names.is_empty() {
        return (Vec::new(), 0);
    }
    shares.views(context, &names)
}

/// A shrinker, asked for objects, has dropped pages of files that these held (kernel: an inode
/// with its pages). They count as freed by the pass that asks.
pub fn note_inode_steal(cache: &Cache, task: &Task<'_>, pages: Pages) {
    let item = match of(cache).note_freed(task, pages) {
        Some(true) => Item::KswapdInodesteal,
        Some(false) | None => Item::Pginodesteal,
    };
    cache.inside().counters.add(item, pages.0);
}
