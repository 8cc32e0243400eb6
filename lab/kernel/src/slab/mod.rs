//! Slabs: pages of the cache's memory that hold objects of one size, as the inodes of a file
//! system.
//!
//! An object is a place in a slab and nothing more: its content is its owner's, and in the lab
//! nobody keeps any. It matters here where the pages come from, and that they come free when the
//! last object of a slab does.
//!
//! ```text
//!   take: a slab that is partly used, of the task's node
//!      '-- none --> fresh: 2^order frames, with no right to reclaim or to wake anybody
//!                     '-- none --> one frame, with all rights: it reclaims and waits as any page does
//!   give: the last object of a slab -> its frames go back
//! ```
//!
//! Invariants
//!   1. A slab's frames are claimed and never adopted (`BUSY` without `CACHED`): reclaim, a lowered
//!      limit and readers pass over them.
//!   2. A slab is on the list of its node exactly if it is partly used and is not the slab that its
//!      node's tasks fill. A full one is on none, and there is no empty one.
//!   3. No lock is held while frames are taken: two that find no slab at once make two.
//!
//! Concurrency: one lock for the slabs of a cache of objects, held for a few list steps.
//!
//! Source: kernel-facts 14; Linux 5.0 mm/slub.c, allocate_slab(), __slab_free(). Deviations: one
//! slab a node is filled at a time and not one a CPU; a slab goes back at once where Linux keeps a
//! few empty ones; the slabs of other nodes are not looked at before a fresh one is made
//! (`remote_node_defrag_ratio`); an object is at most a page.

use std::sync::Arc;

use env::{Lock, LockClass, Task, Work};
use frames::sync::{AtomicU64, Ordering};
use frames::{Busy, FrameId};
use mm::inside::{Inside, Wanted};
use mm::{Cache, Error, NodeId};
use policy::place::by_use::Purpose;
use policy::place::mobility::Mobility;
use policy::units::{Bytes, PAGE_SIZE, Pages};

use crate::objects::{self, Objects};
use places::Places;

#[cfg(test)]
mod apart_tests;
mod places;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod trim_tests;

/// Largest order of a slab (`PAGE_ALLOC_COSTLY_ORDER`).
const ORDER_MAX: u8 = 3;
/// Least size of an object: as many as a slab counts.
const OBJECT_LEAST: u64 = 8;

/// The layout of a cache of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabSpec {
    /// Its name in reports.
    pub name: &'static str,
    /// Size of an object, at most a page.
    pub object: Bytes,
    /// Pages of a slab, as a power of two, at most 3. Tried first, without a right to reclaim; then
    /// a single page.
    pub order: u8,
    /// `Reclaimable` if a shrinker frees its objects, else `Unmovable`.
    pub mobility: Mobility,
}

/// A place in a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Object(pub(crate) u32);

/// The slabs of one cache of objects.
pub struct Slabs {
    cache: Arc<Cache>,
    spec: SlabSpec,
    places: Lock<Places>,
    /// Pages of the slabs: a copy for looks without the lock.
    held: AtomicU64,
}

/// Objects in a slab of an order.
fn objects_in(spec: SlabSpec, order: u8) -> u32 {
    let objects = (PAGE_SIZE << order) / spec.object.0;
    u32::try_from(objects).expect("a slab has few objects")
}

/// The pages of a slab come free: by the task's pass, if it asks shrinkers.
pub(crate) fn goes(
    task: &Task<'_>,
    (cache, objects): (Inside<'_>, &Objects),
    mobility: Mobility,
    busy: Box<[Busy]>,
) {
    let pages = Pages(busy.len() as u64);
    let zone = cache.zones.layout().of(busy[0].frame());
    cache.slabs.note_gone(mobility, zone, pages);
    objects.note_freed(task, pages);
    free(task, cache, busy);
}

fn free(task: &Task<'_>, cache: Inside<'_>, busy: Box<[Busy]>) {
    let frames: Vec<_> = busy.into_iter().map(|busy| cache.disown(busy)).collect();
    let order = frames.len().trailing_zeros();
    let order = u8::try_from(order).expect("a slab is a small block");
    cache.memory.put_blocks(task, &frames, order);
}

impl Slabs {
    /// Slabs for a cache of objects, none of them yet.
    ///
    /// # Errors
    /// `BadOption`: an object of less than 8 bytes or more than a page; an order above 3, or above
    /// a pageblock; objects that can be moved.
    pub fn new(cache: &Arc<Cache>, spec: SlabSpec) -> Result<Arc<Self>, Error> {
        let inside = cache.inside();
        let check = |what, value, allowed: (u64, u64)| {
            let fits = (allowed.0..=allowed.1).contains(&value);
            fits.then_some(()).ok_or(Error::BadOption {
                what,
                value,
                allowed,
            })
        };
        let largest = ORDER_MAX.min(inside.memory.pageblock_order());
        check("slab.object", spec.object.0, (OBJECT_LEAST, PAGE_SIZE))?;
        check("slab.order", u64::from(spec.order), (0, u64::from(largest)))?;
        let movable = u64::from(spec.mobility == Mobility::Movable);
        check("slab.mobility, movable,", movable, (0, 0))?;
        let nodes = inside.zones.layout().nodes().len();
        Ok(Arc::new(Self {
            cache: Arc::clone(cache),
            places: Lock::new(
                LockClass::Leaf,
                Places::new(nodes, objects_in(spec, spec.order)),
            ),
            spec,
            held: AtomicU64::new(0),
        }))
    }

    /// Takes an object, of a slab of the task's node if one is partly used; a fresh slab's frames
    /// may have to be reclaimed and waited for.
    ///
    /// # Errors
    /// `OutOfMemory`, `NoMemory`, `Cancelled`; `TooMany` objects; `WouldWait`, where the task may
    /// not.
    pub fn take(&self, task: &mut Task<'_>) -> Result<Object, Error> {
        task.did(Work::SlabTake, 1);
        let cache = self.cache.inside();
        let home = cache.home_node(task);
        if let Some(object) = self.places.lock(task).take(home) {
            return Ok(object);
        }
        let (frames, order) = self.fresh_frames(task)?;
        let layout = cache.zones.layout();
        let zone = layout.of(frames[0]);
        let node = layout.node_of(zone);
        let table = &cache.pages.table;
        let busy: Box<[Busy]> = frames.iter().map(|frame| table.claim(*frame)).collect();
        let pages = Pages(busy.len() as u64);
        let added = self
            .places
            .lock(task)
            .add(home, node, busy, objects_in(self.spec, order));
        match added {
            Ok(object) => {
                cache.slabs.note_slab(self.spec.mobility, zone, pages);
                self.held.fetch_add(pages.0, Ordering::Relaxed);
                Ok(object)
            }
            Err(busy) => {
                free(task, cache, busy);
                let limit = u32::MAX;
                Err(Error::TooMany {
                    what: "objects",
                    limit,
                })
            }
        }
    }

    /// Gives an object back, and with the last of a slab its frames.
    ///
    /// # Panics
    /// If it was not taken.
    pub fn give(&self, task: &mut Task<'_>, object: Object) {
        task.did(Work::SlabGive, 1);
        let gone = self.places.lock(task).give(object);
        if let Some(busy) = gone {
            self.held.fetch_sub(busy.len() as u64, Ordering::Relaxed);
            let from = (self.cache.inside(), objects::of(&self.cache));
            goes(task, from, self.spec.mobility, busy);
        }
    }

    /// Frames for a slab, and their order.
    fn fresh_frames(&self, task: &mut Task<'_>) -> Result<(Vec<FrameId>, u8), Error> {
        let SlabSpec {
            order, mobility, ..
        } = self.spec;
        let cache = self.cache.inside();
        let mut frames = Vec::with_capacity(1 << order);
        let wanted = Wanted::new(1, Purpose::Used).of(mobility);
        if order > 0 {
            // Should the system refuse memory, it will do so for a single frame, too.
            let tried = cache.try_alloc(task, wanted.quietly(order), &mut frames);
            if tried.is_ok_and(|taken| taken > 0) {
                return Ok((frames, order));
            }
        }
        cache.alloc(task, wanted, &mut frames)?;
        Ok((frames, 0))
    }

    /// The node of an object's memory.
    ///
    /// # Panics
    /// If it was not taken.
    pub fn node_of(&self, task: &Task<'_>, object: Object) -> NodeId {
        self.places.lock(task).node_of(object)
    }

    /// Objects that are taken.
    pub fn objects(&self, task: &Task<'_>) -> u64 {
        self.places.lock(task).objects()
    }

    /// Pages of the slabs.
    pub fn pages(&self, task: &Task<'_>) -> Pages {
        self.places.lock(task).pages()
    }

    /// The same, as last seen and without a lock.
    pub fn held(&self) -> Pages {
        Pages(self.held.load(Ordering::Relaxed))
    }

    /// Objects of a slab of the order that is tried first.
    pub fn objects_a_slab(&self) -> u32 {
        objects_in(self.spec, self.spec.order)
    }

    /// Its specification.
    pub fn spec(&self) -> SlabSpec {
        self.spec
    }
}
