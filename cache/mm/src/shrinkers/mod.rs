//! Caches of objects that can be made again, and the pages that objects take.
//!
//! A cache of objects (inodes, directory entries, rows) registers a `Shrink`. Passes of reclaim ask
//! each of them, after the lists and at the same priority (`policy::shrink`). Its objects mostly
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

use std::sync::{Arc, OnceLock};

use env::{Context, Lock, LockClass, Task, TaskId};
use frames::sync::{AtomicU32, AtomicU64, Ordering};
use policy::place::mobility::Mobility;
use policy::shares::{MemberId, ShareRule};
use policy::shrink::{Answer, Deferred};
use policy::units::{Bytes, Instant, Pages};

use crate::Error;
use crate::lists::{NodeId, ZoneId};
use crate::vmstat::{add, get, sub};
use shares::MemoryShares;
pub use shares::{ObjectShare, ShareView};

pub(crate) mod shares;

/// Most caches of objects that can be registered.
const SHRINKERS_MAX: u32 = 64;

/// A cache of objects that can be made again.
pub trait Shrink: Send + Sync {
    /// The name in reports; no two that are registered share one.
    fn name(&self) -> &'static str;

    /// The cost of making an object again: 2 for one read of a disk (`policy::shrink::Cache`).
    fn seeks(&self) -> u32 {
        policy::shrink::Cache::default().seeks
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

/// Is told which pages of files reclaim, a truncation or `Cache::drop_caches` has freed, for
/// objects that go with them.
pub trait PageWatch: Send + Sync {
    /// These have gone: the number of the file (`File::number`), and of the page. Called with no
    /// lock held; it may give objects back, and takes none.
    fn pages_gone(&self, task: &mut Task<'_>, pages: &[(u32, u32)]);
}

/// Pages of slabs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlabPages {
    /// Their objects can be made again.
    pub reclaimable: Pages,
    /// They stay until their owner gives them back.
    pub unreclaimable: Pages,
}

impl SlabPages {
    /// Both.
    #[must_use]
    pub fn all(self) -> Pages {
        self.reclaimable + self.unreclaimable
    }
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

/// See the module.
pub struct Shrinkers {
    nodes: usize,
    shares: Option<MemoryShares>,
    list: Lock<Vec<Arc<Registered>>>,
    /// Number of shrinkers: mostly none.
    count: AtomicU32,
    /// By zone.
    reclaimable: Box<[AtomicU64]>,
    unreclaimable: AtomicU64,
    /// Mostly none.
    pub(crate) watch: OnceLock<Arc<dyn PageWatch>>,
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

impl Shrinkers {
    /// For a machine of `nodes` nodes and `zones` zones, whose memory is shared by a rule or by
    /// pressure alone.
    pub(crate) fn new(
        (nodes, zones): (usize, usize),
        rule: Option<ShareRule>,
        memory: Bytes,
        now: Instant,
    ) -> Self {
        Self {
            nodes,
            shares: rule.map(|rule| MemoryShares::new(rule, memory, now)),
            list: Lock::new(LockClass::Registry, Vec::new()),
            count: AtomicU32::new(0),
            reclaimable: (0..zones).map(|_| AtomicU64::new(0)).collect(),
            unreclaimable: AtomicU64::new(0),
            watch: OnceLock::new(),
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

    /// Pages of slabs now.
    pub(crate) fn pages(&self) -> SlabPages {
        SlabPages {
            reclaimable: Pages(self.reclaimable.iter().map(get).sum()),
            unreclaimable: Pages(get(&self.unreclaimable)),
        }
    }

    /// Of a zone: pages of slabs whose objects can be made again.
    pub(crate) fn reclaimable_of(&self, zone: ZoneId) -> Pages {
        Pages(get(&self.reclaimable[zone.index()]))
    }

    fn of(&self, mobility: Mobility, zone: ZoneId) -> &AtomicU64 {
        match mobility {
            Mobility::Reclaimable => &self.reclaimable[zone.index()],
            Mobility::Unmovable | Mobility::Movable => &self.unreclaimable,
        }
    }

    /// A slab got its pages, in a zone.
    pub fn note_slab(&self, mobility: Mobility, zone: ZoneId, pages: Pages) {
        add(self.of(mobility, zone), pages.0);
    }

    /// The task gave the pages of a slab back.
    pub fn note_gone(&self, task: &Task<'_>, mobility: Mobility, zone: ZoneId, pages: Pages) {
        sub(self.of(mobility, zone), pages.0);
        self.note_freed(task, pages);
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
