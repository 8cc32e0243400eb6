//! Reclaim's use of the swap file (`swapfile`): slots for pages that go out, and their way there.
//!
//! A page of anonymous memory gets a slot when it is to go out and keeps it as long as the slot
//! holds what the page holds, so that a page that was read back can go again without I/O:
//!
//! ```text
//!   no slot, dirty --take_slot--> slot, dirty --begin_swap_out--> slot, writeback --ok--> slot, clean
//!       ^                             ^                                |                   |      |
//!       |                             '------------- written to -------+---- failed: the   |      | evict_anon
//!       '---- written to, swap nearly full: the slot is given up ------|---- slot is given |      v
//!       '--------------------------------------------------------------'     up, dirty     |   the slot stands in
//!       '----------------------------------------------------------------------------------'   the region's table
//! ```
//!
//! Reclaim isolates, decides and puts back; it calls the methods here with a page's busy bit in
//! hand. Writes that it starts with `begin_swap_out` are sent with `submit_swap_out`, after the
//! put-back: neighbouring slots of the batch make one request.
//!
//! Invariants
//!   1. `slot_of[frame]` changes under the frame's busy bit while the page is not under writeback,
//!      and by the end of the write while it is.
//!   2. A slot in use stands in `slot_of` of one frame, or in one entry of a region, and nowhere
//!      else.
//!   3. Nothing is allocated from a dirty page to its completed write.
//!
//! Source: mechanisms 9; Linux v5.15 mm/swap_state.c, mm/page_io.c. Deviations: one swap file; a
//! slot whose write failed is given up, so that the page goes to another one, after a back-off.

use std::sync::{Arc, Weak};

use env::{Context, Interrupt, ObjectId, Task};
use frames::{Busy, Flags, FrameId, RegionEntry};
use policy::dirty::DeviceIndex;
use policy::reclaim::swap::{SlotMoment, releases, window_max};
use policy::units::Pages;

use crate::Error;
use crate::cache::Cache;
use crate::registry::completions::Completions;
use crate::swapfile::{Area, Shape, SwapStats};
use crate::vmstat::sub;

pub(crate) mod out;
pub(crate) mod read;

pub(crate) use out::SwapOut;

/// Largest number of slots: they stand in shadows of 27 bits (512 GiB).
const SLOTS_MAX: u64 = 1 << 27;

impl Cache {
    /// Gives the cache a swap file: the first `pages` pages of an object, whose content is the
    /// cache's from now on.
    ///
    /// # Errors
    /// `TooMany`: it has one. `BadOption`: no pages, or more than 2^27.
    ///
    /// # Panics
    /// If `device` is not of this cache.
    pub fn add_swap(
        self: &Arc<Self>,
        task: &mut Task<'_>,
        device: DeviceIndex,
        object: ObjectId,
        pages: Pages,
    ) -> Result<(), Error> {
        if !(1..=SLOTS_MAX).contains(&pages.0) {
            return Err(Error::BadOption {
                what: "pages of the swap file",
                value: pages.0,
                allowed: (1, SLOTS_MAX),
            });
        }
        let total = u32::try_from(pages.0).expect("at most 2^27");
        let cursors = self.options.dirty.cpus.clamp(1, 64) as usize;
        let memory = Pages(u64::from(self.options.frames));
        let device = self.device(task, device);
        let completions: Weak<dyn Completions<Area>> = Arc::<Self>::downgrade(self);
        let shape = Shape {
            device: device.id,
            object,
            total,
            cpus: cursors,
            window_max: window_max(memory),
            requests: self.options.swap_requests.max(1),
            throttled: self.options.flush.swap_flight(device.info.queue),
        };
        if self.swap.set(Area::new(completions, &shape)) {
            Ok(())
        } else {
            Err(Error::TooMany {
                what: "swap files",
                limit: 1,
            })
        }
    }

    /// Slots of the swap file, and what went wrong with it; zeroes if there is none.
    pub fn swap_stats(&self) -> SwapStats {
        self.swap
            .area()
            .map_or_else(SwapStats::default, |area| area.stats())
    }

    /// Slots that pages can have now: none without a swap file, and none while it rests after a
    /// failed write.
    pub(crate) fn swap_free(&self) -> Pages {
        match self.swap.area() {
            Some(area) if !self.swap_rests() => area.free(),
            _ => Pages::ZERO,
        }
    }

    /// True if the swap file rests after a failed write.
    pub(crate) fn swap_rests(&self) -> bool {
        let rests = |area: &Arc<Area>| area.is_backing_off(&Interrupt::new(), self.env.now());
        self.swap.area().is_some_and(rests)
    }

    /// True if anonymous pages are worth a scan: there is a slot for a page or, where the law looks
    /// for that, a page that has its slot.
    pub(crate) fn can_swap(&self) -> bool {
        let area = self.swap.area();
        let kept = area.map_or(Pages::ZERO, |area| area.kept());
        self.options.reclaim.scans_anon(self.swap_free(), kept)
    }

    /// Pages on their way to the swap file.
    pub(crate) fn swap_writeback(&self) -> Pages {
        let area = self.swap.area();
        area.map_or(Pages::ZERO, |area| area.writeback())
    }

    /// Pages that were ever brought to the swap file.
    pub(crate) fn swap_written(&self) -> u64 {
        self.swap.area().map_or(0, |area| area.written())
    }

    /// Slots of the swap file.
    pub(crate) fn swap_total(&self) -> Pages {
        self.swap.area().map_or(Pages::ZERO, |area| area.total())
    }

    /// True if a page has a slot (a hint without its busy bit).
    pub(crate) fn swap_has_slot(&self, frame: FrameId) -> bool {
        self.swap.slot_of(frame).is_some()
    }

    /// Gives a page that is to go out a slot if it has none. False: none is free, or the swap file
    /// rests after a failed write.
    pub(crate) fn take_slot(&self, task: &Task<'_>, busy: &Busy) -> bool {
        let Some(area) = self.swap.area() else {
            return false;
        };
        if area.is_backing_off(task, task.now()) {
            return false;
        }
        if self.swap.slot_of(busy.frame()).is_some() {
            return true;
        }
        let Some(taken) = area.take(task, self.pages.table.owner(busy.frame())) else {
            return false;
        };
        self.swap.keep(busy.frame(), taken);
        true
    }

    /// A page that is in use may give its slot up, if slots are scarce; it is dirty then.
    pub(crate) fn drop_slot_if_full(&self, context: &impl Context, busy: &Busy) {
        self.give_slot_up(context, busy, SlotMoment::Activated);
    }

    /// Gives a page's slot up where the policy says so; then the page is dirty. Answers whether it
    /// has none now.
    pub(crate) fn give_slot_up(
        &self,
        context: &impl Context,
        busy: &Busy,
        moment: SlotMoment,
    ) -> bool {
        let frame = busy.frame();
        // In this order: the end of a write that fails gives the slot up itself, and only then
        // takes WRITEBACK off. Where that is off, none begins without the busy bit.
        let flags = self.pages.table.flags(frame);
        let (Some(area), Some(slot)) = (self.swap.area(), self.swap.slot_of(frame)) else {
            return true;
        };
        if !flags.has(Flags::UPTODATE) {
            // A read that failed: the content is in the slot alone.
            return false;
        }
        let writeback = flags.has(Flags::WRITEBACK);
        if !releases(moment, writeback, area.free(), area.total()) {
            return false;
        }
        self.swap.take_from(frame);
        self.pages.table.update(frame, Flags::DIRTY, Flags::NONE);
        area.put(context, &[slot]);
        true
    }

    /// Takes a page's slot from it: the caller gives it back. The page is not under writeback.
    pub(crate) fn take_slot_from(&self, busy: &Busy) -> Option<u32> {
        self.swap.take_from(busy.frame())
    }

    /// The page of `busy` moves to the frame `to`: its slot, if it has one, is that frame's from
    /// now on.
    pub(crate) fn move_slot(&self, busy: &Busy, to: FrameId) {
        if let Some(slot) = self.swap.take_from(busy.frame()) {
            self.swap.keep(to, slot);
        }
    }

    /// Takes a clean page that has a slot out of its region; the slot stays there, and `shadow`
    /// beside it. The frame is free; the caller has it on no list.
    ///
    /// # Panics
    /// If the page has no slot: its content would be lost.
    pub(crate) fn evict_anon(&self, context: &impl Context, busy: Busy, shadow: u32) -> FrameId {
        let frame = busy.frame();
        let owner = self.pages.table.owner(frame);
        let slot = self.swap.take_from(frame);
        let slot = slot.expect("an anonymous page without a slot is dirty");
        let area = self.swap.area().expect("a slot is of a swap file");
        area.set_shadow(slot, shadow);
        let anon = self
            .registry
            .regions
            .get(context, owner.file)
            .expect("a region ends after its pages");
        self.break_run(&anon, owner.index);
        anon.pages
            .replace(owner.index, frame, RegionEntry::Swapped(slot));
        sub(&self.writeback.totals.anon, 1);
        self.pages.table.disown(busy)
    }
}
