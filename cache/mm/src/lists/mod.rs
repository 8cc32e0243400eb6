//! The content of a zone: its LRU lists, pages off them, sleepers with their reasons; and the state
//! of a node of the machine.
//!
//! Memory is one zone of one node, but for a machine of several sockets (`Options::machine`). A
//! zone has a run of whole chunks, and four lists (anonymous and file, inactive and active); under
//! Tidegate's law a fifth for pages of files that wait for their write. A reclaimer that takes
//! pages off a list *isolates* them: they stay cached, may be pinned, written and even given back
//! by their owner, but are on no list; the reclaimer knows each again by its generation. Pages that
//! it does not free are put back. A node has a background reclaimer for its zones, and a list of
//! zones that its tasks try.
//!
//! Invariants
//!   1. A cached frame is on exactly one list, or isolated by exactly one reclaimer, or its busy
//!      holder is about to put it on one.
//!   2. A task that takes a page out of an index takes it off its list and disowns or orphans it in
//!      one hold of the LRU lock. So put-back, under the same lock, sees whether the page still is.
//!   3. `isolated` counts pages from the hold of the lock that took them off until the hold that
//!      put them back, or until they were freed.
//!   4. A frame is on lists of its own zone alone. One lock holds the lists of all, so that pages
//!      of several zones are moved in one hold; that the kernel has one a zone shows in what their
//!      reclaimers wait for each other (`Zone::enter_work`), which is counted by zone.
//!
//! Source: mechanisms 2.1, 2.4, 2.8, 4.2; Linux v6.12 mm/vmscan.c, mm/swap.c
//! folio_rotate_reclaimable().

pub(crate) mod isolate;
pub(crate) mod layout;
pub(crate) mod node;
mod order;
mod rule;
pub(crate) mod sleepers;
mod workingset;
mod zone;

pub(crate) use layout::FarPages;
pub use layout::Layout;
pub(crate) use node::Node;
pub use node::NodeId;
pub use order::Order;
pub use policy::place::ZoneId;
pub(crate) use rule::{Arrival, Ruled};
pub use zone::Zone;

use core::ops::Index;
use std::sync::Arc;

use env::{Context, Lock, LockClass, LockGuard};
use frames::sync::AtomicU64;
use frames::{Flags, FrameId, Lists};
use policy::reclaim::Tunables;
use policy::reclaim::page::{AfterWrite, Immediate, after_write};
use policy::reclaim::scan::Sizes;
use policy::reclaim::workingset::Age;
use policy::rule::RuleMaker;
use policy::units::{Instant, Pages};

use crate::pages::CachedPages;

/// List numbers (`policy::reclaim::Lru::index`).
pub(crate) const INACTIVE_ANON: u8 = 0;
pub(crate) const ACTIVE_ANON: u8 = 1;
pub(crate) const INACTIVE_FILE: u8 = 2;
pub(crate) const ACTIVE_FILE: u8 = 3;
/// Pages of files that wait for their write, out of every scan's way (`Waits::Aside`). Another
/// order of pages has the lists before it (`order`).
pub(crate) const ASIDE: u8 = 8;
/// Number of lists.
const LISTS: u8 = 9;
/// The lists that are scanned, in order of `Lru`.
const SCANNED: [u8; 4] = [INACTIVE_ANON, ACTIVE_ANON, INACTIVE_FILE, ACTIVE_FILE];

/// Octaves of how far a page had fallen that comes back.
pub(crate) const FALLEN: usize = 32;

/// The number of a zone's list among those of all.
fn number_of(zone: ZoneId, list: u8) -> u8 {
    zone.0 * LISTS + list
}

/// All zones, the lists of their pages, and the nodes that they are of.
pub struct Zones {
    layout: Arc<Layout>,
    lru: Lock<Lists>,
    all: Box<[Zone]>,
    /// A shadow does not say of which zone the page was: they have one age.
    age: Lock<Age>,
    /// Pages that came back, by the logarithm of how many evictions and activations ago they went.
    fallen: [AtomicU64; FALLEN],
    nodes: Box<[Node]>,
    /// `Rules::fresh_is_active`.
    fresh_is_active: bool,
    /// The treatment of inactive pages of files that wait for their write (paper p4, patch 11).
    immediate: Immediate,
    /// Which pages of files go, if not by inactive and active.
    ruled: Option<Ruled>,
    /// The order of pages, if it is another than inactive and active.
    order: Option<Arc<dyn Order>>,
    /// Passes are told of the lists as they were some time ago (`scan::Told`).
    tells_late: bool,
}

/// The lists of all zones, locked.
pub struct Lru<'a> {
    lists: LockGuard<'a, Lists>,
    layout: &'a Layout,
}

impl Lru<'_> {
    /// Off whatever list it is on; false if it was on none.
    pub fn remove(&mut self, frame: FrameId) -> bool {
        self.lists.remove(frame)
    }

    /// Off whatever lists they are on.
    pub(crate) fn remove_all(&mut self, frames: &[FrameId]) {
        self.lists.remove_all(frames);
    }

    /// To the new end of a list of their zones, one after the other.
    pub(crate) fn push_heads(&mut self, list: u8, frames: &[FrameId]) {
        for (zone, part) in self.layout.parts(frames) {
            self.lists.push_heads(number_of(zone, list), part);
        }
    }

    /// Puts a frame in the place of another, or in another zone at the new end of the list of that
    /// kind. False: that was on none.
    pub(crate) fn replace(&mut self, old: FrameId, new: FrameId) -> bool {
        if self.layout.of(old) == self.layout.of(new) {
            return self.lists.replace(old, new);
        }
        let Some(list) = self.list_of(old) else {
            return false;
        };
        self.lists.remove(old);
        self.push_head(list, new);
        true
    }

    /// To the new end of a list of its zone.
    pub fn push_head(&mut self, list: u8, frame: FrameId) {
        let zone = self.layout.of(frame);
        self.lists.push_head(number_of(zone, list), frame);
    }

    /// To the old end.
    pub fn push_tail(&mut self, list: u8, frame: FrameId) {
        let zone = self.layout.of(frame);
        self.lists.push_tail(number_of(zone, list), frame);
    }

    pub(crate) fn pop_head(&mut self, zone: ZoneId, list: u8) -> Option<FrameId> {
        self.lists.pop_head(number_of(zone, list))
    }

    /// Takes a frame off the old end.
    pub fn pop_tail(&mut self, zone: ZoneId, list: u8) -> Option<FrameId> {
        self.lists.pop_tail(number_of(zone, list))
    }

    /// The list of its zone that a frame is on.
    pub fn list_of(&self, frame: FrameId) -> Option<u8> {
        self.lists.list_of(frame).map(|list| list % LISTS)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.lists.bytes()
    }

    /// The length of a list of a zone.
    pub fn len(&self, zone: ZoneId, list: u8) -> Pages {
        Pages(u64::from(self.lists.len(number_of(zone, list))))
    }

    /// The zone of a frame.
    pub fn zone_of(&self, frame: FrameId) -> ZoneId {
        self.layout.of(frame)
    }

    fn waits_aside(&self) -> bool {
        let mut zones = self.layout.zones();
        zones.any(|zone| !self.len(zone, ASIDE).is_zero())
    }
}

impl Zones {
    pub(crate) fn new(
        frames: u32,
        layout: Arc<Layout>,
        (tunables, page_rule): (&Tunables, Option<&RuleMaker>),
        immediate: Immediate,
        order: Option<Arc<dyn Order>>,
    ) -> Self {
        let count = layout.zones().len();
        let lists = LISTS * u8::try_from(count).expect("zones are few");
        let zones = layout.zones();
        let nodes = layout.nodes();
        Self {
            lru: Lock::new(LockClass::Lru, Lists::new(frames, lists)),
            all: zones.map(|_| Zone::new(tunables)).collect(),
            age: Lock::new(LockClass::Leaf, Age::new(Pages(u64::from(frames)))),
            fallen: [const { AtomicU64::new(0) }; FALLEN],
            nodes: nodes.map(|_| Node::new()).collect(),
            fresh_is_active: tunables.law.fresh_is_active,
            immediate,
            ruled: page_rule.map(|maker| Ruled::new(frames, maker)),
            order,
            tells_late: tunables.told_every().is_some(),
            layout,
        }
    }

    /// The lists of all zones, locked.
    pub fn lru<'a>(&'a self, context: &'a impl Context) -> Lru<'a> {
        Lru {
            lists: self.lru.lock(context),
            layout: &self.layout,
        }
    }

    /// Lengths of a zone's lists that are scanned.
    pub fn sizes(&self, context: &impl Context, zone: ZoneId) -> Sizes {
        self.sizes_and_aside(context, zone).0
    }

    /// The same, and what is aside.
    pub(crate) fn sizes_and_aside(&self, context: &impl Context, zone: ZoneId) -> (Sizes, Pages) {
        let lru = self.lru(context);
        let mut sizes = self.as_scanned(self.lens(context, &lru, zone));
        if self.immediate == Immediate::Published {
            let files = &mut sizes.0[usize::from(INACTIVE_FILE)];
            *files = files.saturating_sub(self[zone].lost_files());
        }
        (sizes, lru.len(zone, ASIDE))
    }

    /// The lengths of a zone's lists as passes are told of them (`scan::Told`).
    pub(crate) fn told(
        &self,
        context: &impl Context,
        zone: ZoneId,
        now: impl FnOnce() -> Instant,
    ) -> Sizes {
        let sizes = self.sizes(context, zone);
        if self.tells_late {
            self[zone].balance(context).tell(now(), &sizes)
        } else {
            sizes
        }
    }

    /// The same of all zones together.
    pub(super) fn all_told(&self, context: &impl Context, now: impl Fn() -> Instant) -> Sizes {
        if !self.tells_late {
            return self.all_sizes_and_aside(context).0;
        }
        let zones = self.layout.zones();
        let told = zones.map(|zone| self.told(context, zone, &now));
        told.fold(Sizes::default(), Sizes::plus)
    }

    /// Inactive pages of files of all zones that the law does not count though they are there.
    pub(crate) fn lost_files(&self) -> Pages {
        match self.immediate {
            Immediate::Published => self.iter().map(Zone::lost_files).sum(),
            Immediate::Scanned | Immediate::Counted => Pages::ZERO,
        }
    }

    /// Pages that wait for their write where no pass scans, as the law counts them.
    pub(crate) fn nr_immediate(&self, context: &impl Context) -> Pages {
        match self.immediate {
            Immediate::Scanned => Pages::ZERO,
            Immediate::Published => self.iter().map(Zone::immediate).sum(),
            Immediate::Counted => self.all_sizes_and_aside(context).1,
        }
    }

    /// Of all zones together.
    pub fn all_sizes_and_aside(&self, context: &impl Context) -> (Sizes, Pages) {
        let (sizes, aside) = self.lengths(context);
        (self.as_scanned(sizes), aside)
    }

    /// The lengths of the lists of all zones, and the pages aside.
    pub(crate) fn lengths(&self, context: &impl Context) -> (Sizes, Pages) {
        let lru = self.lru(context);
        let (mut sizes, mut aside) = (Sizes::default(), Pages::ZERO);
        for zone in self.layout.zones() {
            let own = self.lens(context, &lru, zone);
            for (sum, pages) in sizes.0.iter_mut().zip(own.0) {
                *sum += pages;
            }
            aside += lru.len(zone, ASIDE);
        }
        (sizes, aside)
    }

    fn lens(&self, context: &impl Context, lru: &Lru<'_>, zone: ZoneId) -> Sizes {
        match &self.order {
            Some(order) => order.sizes(context, lru, zone),
            None => Sizes(SCANNED.map(|list| lru.len(zone, list))),
        }
    }

    /// The order of pages, if it is another than inactive and active.
    #[inline]
    pub(crate) fn order(&self) -> Option<&dyn Order> {
        self.order.as_deref()
    }

    /// A page has gone to another frame, and stands there where it stood on a list.
    pub(crate) fn moved(
        &self,
        context: &impl Context,
        pages: &CachedPages,
        (from, to): (FrameId, FrameId),
    ) {
        if let Some(ruled) = &self.ruled {
            ruled.moved(from, to);
        }
        if let Some(order) = &self.order {
            order.moved(context, self, pages, (from, to));
        }
    }

    /// True if pages that wait for their write are put where no pass scans (`Immediate`).
    pub(crate) fn sets_aside(&self) -> bool {
        self.immediate != Immediate::Scanned
    }

    /// True if every page that comes in goes to an inactive list.
    pub(crate) fn has_plain_lists(&self) -> bool {
        self.ruled.is_none() && self.order.is_none()
    }

    /// Pages on all lists of a zone.
    pub fn listed(&self, context: &impl Context, zone: ZoneId) -> Pages {
        let (sizes, aside) = self.sizes_and_aside(context, zone);
        sizes.total() + aside
    }

    /// The layout of zones.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// A node of the machine.
    pub fn node(&self, node: NodeId) -> &Node {
        &self.nodes[node.index()]
    }

    /// The node that a zone is of.
    pub(crate) fn node_of(&self, zone: ZoneId) -> &Node {
        self.node(self.layout.node_of(zone))
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter()
    }

    /// Pages of files became dirty.
    pub(crate) fn note_dirty(&self, frames: impl IntoIterator<Item = FrameId>) {
        self.count_dirty(frames, 1);
    }

    /// They are no more: under writeback, or gone.
    pub(crate) fn note_clean(&self, frames: impl IntoIterator<Item = FrameId>) {
        self.count_dirty(frames, -1);
    }

    /// Pages go under writeback.
    pub(crate) fn note_sent(&self, frames: &[FrameId]) {
        if !self.layout.is_one() {
            for (zone, part) in self.layout.parts(frames) {
                self[zone].note_sent(part.len() as u64);
            }
        }
    }

    fn count_dirty(&self, frames: impl IntoIterator<Item = FrameId>, by: i64) {
        // Of one zone it is what there is of all.
        if !self.layout.is_one() {
            for frame in frames {
                self[self.layout.of(frame)].note_dirty(by);
            }
        }
    }

    /// A page of a file was mapped.
    pub(crate) fn note_mapped(&self, frame: FrameId) {
        self[self.layout.of(frame)].note_mapped(1);
    }

    /// It is no more.
    pub(crate) fn note_unmapped(&self, frame: FrameId) {
        self[self.layout.of(frame)].note_mapped(-1);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Zone> {
        self.all.iter()
    }
}

impl Index<ZoneId> for Zones {
    type Output = Zone;

    fn index(&self, zone: ZoneId) -> &Zone {
        &self.all[zone.index()]
    }
}

/// The inactive list of a page's kind.
pub(crate) fn inactive_of(flags: Flags) -> u8 {
    if flags.has(Flags::ANON) {
        INACTIVE_ANON
    } else {
        INACTIVE_FILE
    }
}

/// The list that a page's flags say.
pub(crate) fn list_of(flags: Flags) -> u8 {
    inactive_of(flags) + u8::from(flags.has(Flags::ACTIVE))
}

impl Zones {
    /// The writes of the pages `written` have ended. Those in `rotate` had the flag `RECLAIM`: they
    /// go to the inactive tail, to be freed next, unless they are dirty again. Answers how many
    /// went.
    pub(crate) fn rotate(
        &self,
        context: &impl Context,
        pages: &CachedPages,
        written: &[FrameId],
        rotate: &[FrameId],
    ) -> Rotated {
        let mut rotated = 0;
        if let Some(order) = &self.order {
            let mut lru = self.lru(context);
            return Rotated {
                rotated: order.rotate(context, &mut lru, pages, rotate),
                rescued: 0,
            };
        }
        if self.sets_aside() {
            return self.rotate_immediate(context, pages, rotate);
        }
        {
            let mut lru = self.lru(context);
            // A page that waits for its write may wait for any of its writes.
            let candidates = if lru.waits_aside() { written } else { rotate };
            // In the order of `written`.
            let mut marks = rotate.iter().peekable();
            for frame in candidates {
                let marked = marks.next_if_eq(&frame).is_some();
                let flags = pages.table.flags(*frame);
                // Not on a list: isolated, or gone. The mark is lost then, as in the kernel.
                let Some(list) = lru.list_of(*frame) else {
                    continue;
                };
                let aside = list == ASIDE;
                let dirty = flags.any(Flags::DIRTY | Flags::WRITEBACK);
                let busy = flags.any(Flags::BUSY);
                if after_write(marked, aside, dirty, busy) != AfterWrite::Rotates {
                    continue;
                }
                pages.table.update(*frame, Flags::NONE, Flags::ACTIVE);
                lru.remove(*frame);
                lru.push_tail(inactive_of(flags), *frame);
                rotated += 1;
            }
        }
        Rotated {
            rotated,
            rescued: 0,
        }
    }

    /// The same where inactive pages that wait for their write are on a list of their own as in
    /// paper p4's patch 11. As it was posted, the end of any write of a marked page counts one less
    /// there, also if the page never was; when it reads as empty, all that is there comes back; and
    /// no page that comes back is counted on the list that it comes to.
    ///
    /// # Source
    /// Mechanisms 2.9. Deviation: pages move at once, not in batches of a CPU.
    fn rotate_immediate(
        &self,
        context: &impl Context,
        pages: &CachedPages,
        rotate: &[FrameId],
    ) -> Rotated {
        let published = self.immediate == Immediate::Published;
        let mut done = Rotated::default();
        let mut lru = self.lru(context);
        for frame in rotate {
            let zone = self.layout.of(*frame);
            if published {
                self[zone].count_immediate(-1);
            }
            let flags = pages.table.flags(*frame);
            if let Some(list) = lru.list_of(*frame) {
                let stays =
                    flags.any(Flags::DIRTY | Flags::WRITEBACK | Flags::BUSY | Flags::ACTIVE);
                let aside = list == ASIDE;
                if !stays {
                    lru.remove(*frame);
                    lru.push_tail(inactive_of(flags), *frame);
                    done.rotated += 1;
                } else if aside {
                    lru.remove(*frame);
                    lru.push_head(list_of(flags), *frame);
                }
                if aside && published {
                    self[zone].lose_files(1);
                }
            }
            if published && self[zone].immediate().is_zero() {
                while let Some(frame) = lru.pop_tail(zone, ASIDE) {
                    lru.push_head(list_of(pages.table.flags(frame)), frame);
                    self[zone].lose_files(1);
                    done.rescued += 1;
                }
            }
        }
        done
    }
}

/// The fate of pages whose writes have ended.
#[derive(Clone, Copy, Default)]
pub(crate) struct Rotated {
    /// To the old end of their inactive list.
    pub(crate) rotated: u64,
    /// From the list of those that wait, as it read as empty.
    pub(crate) rescued: u64,
}
