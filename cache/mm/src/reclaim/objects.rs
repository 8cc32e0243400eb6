//! The part of a pass that goes to caches of objects: each is asked in the proportion in which the
//! lists were looked at.
//!
//! Source: mechanisms 3.4, 7; Linux 5.0 mm/vmscan.c, shrink_node(), shrink_slab(). Deviation: where
//! passes go over zones (before 4.8), those of a node are asked once for each of its zones.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use env::{Context, Task};
use policy::reclaim::scan::Priority;
use policy::reclaim::throttle::Who;
use policy::shrink::{Answer, BATCH, Outcome, Pressure, Scan, ScanStep};
use policy::units::{Bytes, Nanos, Pages};

use super::Control;
use crate::Error;
use crate::cache::Cache;
use crate::shrinkers::{Ask, ObjectShare, PageWatch, Registered, ShareView, Shrink, SlabPages};
use crate::vmstat::Item;

/// Objects that are looked at for a page of them, at the gentlest priority: some lie on a page,
/// each is looked at some times before it goes, and a slab goes with its last one (GUESS; a pass
/// that gets too little is followed by a harder one).
const LOOKS_A_PAGE: u64 = 32;

/// Pages and objects that caches gave.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    /// Pages that came free by it.
    pub(super) pages: Pages,
    /// Objects, by their own count.
    pub(super) objects: u64,
}

/// Asks caches of objects on the node of a zone whose lists a pass has just looked at: all, or
/// where memory is shared those that do not say what they hold. The caller holds nothing.
pub(super) fn ask(
    task: &mut Task<'_>,
    cache: &Cache,
    control: &Control,
    pressure: Pressure,
    shared: bool,
) -> Asked {
    let mut all = cache.shrinkers.all(task);
    if shared {
        all.retain(|one| one.member.is_none());
        if all.is_empty() {
            return Asked::default();
        }
    }
    // A shrinker that needs memory itself makes do with the lists.
    if !cache.shrinkers.begin(task, control.who.background) {
        return Asked::default();
    }
    let (mut scanned, mut objects) = (0, 0);
    for one in &all {
        let outcome = ask_one(task, cache, control, pressure, one);
        scanned += outcome.scanned;
        objects += outcome.freed;
        if cache.registry.stopping.load(Ordering::Relaxed) {
            break;
        }
    }
    let pages = cache.shrinkers.end(task);
    cache.counters.add(Item::SlabsScanned, scanned);
    cache.counters.add(Item::SlabFreed, pages.0);
    Asked { pages, objects }
}

/// Asks all caches of objects on all nodes, for frames that have to go wherever they are.
pub(crate) fn ask_everywhere(task: &mut Task<'_>, cache: &Cache, priority: Priority) {
    let layout = cache.zones.layout();
    let firsts = layout.nodes().map(|node| layout.zones_of(node).next());
    for zone in firsts.flatten() {
        let control = Control {
            zone,
            who: Who::DIRECT,
            priority,
            target: Pages::MAX,
            force_deactivate: false,
            may_unmap: false,
            may_write: false,
            may_swap: false,
            may_shrink: true,
            spares_anon: true,
            run: None,
        };
        let pressure = Pressure {
            priority,
            scanned: Pages::ZERO,
            listed: cache.zones.listed(task, zone),
        };
        ask(task, cache, &control, pressure, false);
    }
}

/// Asks one for `wanted` pages. It looks at no more objects than may be worth them, by the
/// priority, and at none more than twice. Answers how many pages came free.
pub(super) fn give(
    task: &mut Task<'_>,
    cache: &Cache,
    control: &Control,
    one: &Registered,
    wanted: Pages,
) -> Pages {
    // A shrinker that needs memory itself makes do with the lists.
    if wanted.is_zero() || !cache.shrinkers.begin(task, control.who.background) {
        return Pages::ZERO;
    }
    let node = cache.zones.layout().node_of(control.zone);
    let harder = Priority::GENTLEST.0.saturating_sub(control.priority.0);
    let worth = wanted.0.saturating_mul(LOOKS_A_PAGE << harder);
    let mut left = worth.min(one.shrinker.count(node).saturating_mul(2));
    let mut scanned = 0;
    while left > 0 && cache.shrinkers.freed(task) < wanted {
        let ask = Ask {
            node,
            objects: left.min(BATCH),
            may_enter_fs: !control.who.within_fs,
            background: control.who.background,
        };
        let Answer::Freed { looked_at, .. } = one.shrinker.scan(task, ask) else {
            break;
        };
        scanned += looked_at;
        left = left.saturating_sub(looked_at);
        if looked_at == 0 || cache.registry.stopping.load(Ordering::Relaxed) {
            break;
        }
    }
    let freed = cache.shrinkers.end(task);
    cache.counters.add(Item::SlabsScanned, scanned);
    cache.counters.add(Item::SlabFreed, freed.0);
    freed
}

/// Asks one; answers how many objects it has looked at, and freed.
///
/// Each object of the count and of the answer stands for several, as the pages of the lists do
/// (`Tunables::stands_for`).
fn ask_one(
    task: &mut Task<'_>,
    cache: &Cache,
    control: &Control,
    pressure: Pressure,
    one: &Registered,
) -> Outcome {
    let node = cache.zones.layout().node_of(control.zone);
    let factor = u64::from(cache.options.reclaim.stands_for);
    let freeable = one.shrinker.count(node).saturating_mul(factor);
    let wants = policy::shrink::Cache {
        seeks: one.shrinker.seeks(),
        ..policy::shrink::Cache::default()
    };
    let scan = {
        let mut deferred = one.deferred(node).lock(task);
        Scan::begin(
            &cache.options.shrink,
            wants,
            freeable,
            pressure,
            &mut deferred,
        )
    };
    let Some(mut scan) = scan else {
        return Outcome::default();
    };
    while let ScanStep::Ask(objects) = scan.step() {
        let answer = one.shrinker.scan(
            task,
            Ask {
                node,
                objects: objects.div_ceil(factor),
                may_enter_fs: !control.who.within_fs,
                background: control.who.background,
            },
        );
        let answer = match answer {
            Answer::Freed { freed, looked_at } => Answer::Freed {
                freed: freed.saturating_mul(factor),
                looked_at: looked_at.saturating_mul(factor),
            },
            Answer::Stop => Answer::Stop,
        };
        scan.answered(answer);
        if cache.registry.stopping.load(Ordering::Relaxed) {
            break;
        }
    }
    let outcome = scan.end();
    one.deferred(node).lock(task).add(outcome.deferred);
    Outcome {
        scanned: outcome.scanned / factor,
        freed: outcome.freed / factor,
        ..outcome
    }
}

impl Cache {
    /// From now on passes of reclaim ask this cache of objects, too; if it says what it holds, for
    /// what is above its share.
    ///
    /// # Errors
    /// `RegisteredTwice`: one of that name is registered; `TooMany`.
    pub fn register(
        &self,
        task: &Task<'_>,
        shrinker: Arc<dyn Shrink>,
    ) -> Result<ObjectShare, Error> {
        self.shrinkers.register(task, shrinker)
    }

    /// From now on `watch` is told which pages of files reclaim frees. The first one stays.
    pub fn watch_pages(&self, watch: Arc<dyn PageWatch>) {
        self.shrinkers.watch.get_or_init(|| watch);
    }

    /// Objects of `bytes` in all leave a cache of them, to make room. Answers what each is to
    /// remember, to be told to `object_missed` if it is made again.
    pub fn objects_evicted(
        &self,
        context: &impl Context,
        share: ObjectShare,
        bytes: Bytes,
    ) -> Bytes {
        let both = self.shrinkers.shares().zip(share.0);
        both.map_or(Bytes::ZERO, |(shares, id)| {
            shares.evicted_objects(context, id, bytes)
        })
    }

    /// An object is made again that was evicted at `age`; that took `cost`.
    pub fn object_missed(
        &self,
        context: &impl Context,
        share: ObjectShare,
        age: Bytes,
        cost: Nanos,
    ) {
        if let Some((shares, id)) = self.shrinkers.shares().zip(share.0) {
            shares.object_missed(context, id, age, cost);
        }
    }

    /// The shares of pages and caches of objects in the memory, and the number of transfers. Empty
    /// where pages are alone.
    pub fn shares(&self, context: &impl Context) -> (Vec<ShareView>, u64) {
        let Some(shares) = self.shrinkers.shares() else {
            return (Vec::new(), 0);
        };
        let members = self.shrinkers.members(context);
        let names = members
            .iter()
            .map(|one| (one.id, one.registered.shrinker.name()));
        let names: Vec<_> = names.collect();
        if names.is_empty() {
            return (Vec::new(), 0);
        }
        shares.views(context, &names)
    }

    /// Pages of slabs now.
    pub fn slab_pages(&self) -> SlabPages {
        self.shrinkers.pages()
    }

    /// A shrinker, asked for objects, has dropped pages of files that these held (kernel: an inode
    /// with its pages). They count as freed by the pass that asks.
    pub fn note_inode_steal(&self, task: &Task<'_>, pages: Pages) {
        let item = match self.shrinkers.note_freed(task, pages) {
            Some(true) => Item::KswapdInodesteal,
            Some(false) | None => Item::Pginodesteal,
        };
        self.counters.add(item, pages.0);
    }
}
