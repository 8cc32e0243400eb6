//! An order of pages other than inactive and active lists: a law that has one brings it along
//! (`Kernel::order`). The lists below `ASIDE` are its own.

use env::Context;
use frames::FrameId;
use policy::reclaim::scan::{Kind, Priority, Sizes};
use policy::units::Pages;

use super::{Lru, ZoneId, Zones};
use crate::pages::CachedPages;

/// See the module. Under the LRU lock where an `Lru` is given.
pub trait Order: Send + Sync {
    /// A call uses a page.
    fn note_use(&self, frame: FrameId);

    /// Its memory.
    fn bytes(&self) -> u64;

    /// The lists of a zone as inactive and active ones.
    fn sizes(&self, context: &dyn Context, lru: &Lru<'_>, zone: ZoneId) -> Sizes;

    /// The priority of the first pass of a balance that wants `target` pages, where `inactive` are
    /// on lists that count as inactive ones.
    fn begins_at(&self, inactive: Pages, target: Pages) -> Priority;

    /// Pages that are in memory from now on.
    fn come(
        &self,
        context: &dyn Context,
        lru: &mut Lru<'_>,
        pages: &CachedPages,
        frames: &[FrameId],
    );

    /// A page that was isolated and has stayed.
    fn put_back(
        &self,
        context: &dyn Context,
        lru: &mut Lru<'_>,
        pages: &CachedPages,
        frame: FrameId,
    );

    /// Pages whose writes have ended; answers how many go next.
    fn rotate(
        &self,
        context: &dyn Context,
        lru: &mut Lru<'_>,
        pages: &CachedPages,
        frames: &[FrameId],
    ) -> u64;

    /// Of a page that is evicted: its shadow.
    fn went(&self, context: &dyn Context, zone: ZoneId, page: (Kind, FrameId)) -> u32;

    /// A page comes back. `None`: it went too long ago; true: it is of the working set.
    fn refaulted(&self, context: &dyn Context, zone: ZoneId, page: (Kind, u32)) -> Option<bool>;

    /// A page has gone to another frame, and stands there where it stood on a list.
    fn moved(
        &self,
        context: &dyn Context,
        zones: &Zones,
        pages: &CachedPages,
        way: (FrameId, FrameId),
    );
}
