//! Frames for pages that come back from the swap file.
//!
//! Memory and swap file together may have a place for every page, and yet a page that is out would
//! stay there: there is no frame for it, and no slot for another that is to make room. So it gets
//! one of the reserve. Once it is read it gives its slot up, another page goes there, and the
//! reserve has its frame again: the slot is recycled.
//!
//! Only where memory is handed out in turn, and not where the machine kills for memory: there
//! somebody gives way.
//!
//! Source: docs/adr/0014, full swap file.

use core::sync::atomic::Ordering;

use env::Task;
use frames::FrameId;
use policy::place::by_use::Purpose;
use policy::place::search::Floor;
use policy::units::{Nanos, Pages};

use super::Wanted;
use crate::Error;
use crate::cache::Cache;
use crate::memory::room::Asked;

/// One over this of the reserve stays.
const RESERVE_REST: u64 = 4;
/// For this time a task that brings a page back takes slots that others have freed, in no order.
const FULL_SWAP_GRACE: Nanos = Nanos::secs(1);

impl Cache {
    /// A task wants a page back that was taken from it. Where memory is handed out in turn and
    /// short, it may have to wait for that too. Answers whether it may read the pages beside it.
    pub(crate) fn may_swap_in(&self, task: &mut Task<'_>) -> bool {
        match self.memory.queue_if_short() {
            Some(queue) if !self.memory.is_exempt(task) => queue.may_return(task),
            _ => true,
        }
    }

    /// The same for pages that nobody waits for: not while another task's memory is coming back.
    pub(crate) fn may_readahead(&self, task: &Task<'_>) -> bool {
        let queue = self.memory.queue_if_short();
        queue.is_none_or(|queue| queue.may_read_on(task))
    }

    /// True if a page that comes back may use the reserve: the slots that are free would not even
    /// fill that, and pages that are sent out arrive there.
    pub(crate) fn swap_slots_recycle(&self) -> bool {
        // One look: the last free slot may be another's at the next.
        let free = self.swap.area().map_or(Pages::ZERO, |area| area.free());
        // First, as it is mostly not so: each page that comes back asks.
        free <= self.memory.marks().min
            && self.options.reclaim.recycles_slots()
            && (free.is_zero() || !self.swap_rests())
    }

    /// Takes a frame for a page that is out, as `alloc` does, where slots are recycled from the
    /// reserve if need be.
    pub(crate) fn alloc_for_swapin(
        &self,
        task: &mut Task<'_>,
        out: &mut Vec<FrameId>,
    ) -> Result<(), Error> {
        let memory = &self.memory;
        let wanted = Wanted::new(1, Purpose::Anon);
        let mut until = None;
        while self.swap_slots_recycle()
            && task.now() < *until.get_or_insert_with(|| task.now() + FULL_SWAP_GRACE)
            && !self.memory.is_exempt(task)
        {
            let given_back = memory.given_back();
            if self.try_alloc(task, wanted, out)? > 0 || self.take_of_reserve(task, out)? > 0 {
                memory.note_returned(1);
                return Ok(());
            }
            self.look_again(task);
            if !task.may_block() || self.registry.stopping.load(Ordering::Acquire) {
                break;
            }
            self.wait_for_memory(task, |memory| memory.given_back() == given_back)?;
        }
        self.alloc(task, wanted, out).map(drop)
    }

    /// A frame of the reserve, of which a part stays.
    fn take_of_reserve(&self, task: &mut Task<'_>, out: &mut Vec<FrameId>) -> Result<u32, Error> {
        let memory = &self.memory;
        let wanted = Wanted::new(1, Purpose::Anon);
        let rest = memory.marks().min.0.div_ceil(RESERVE_REST);
        let rest = u32::try_from(rest).expect("no more than all frames");
        for zone in self.zones_for(task) {
            let asked = Asked {
                zone: *zone,
                floor: Floor::Min,
                want: 1,
                first: true,
                exempt: true,
            };
            let room = |task: &Task<'_>, _| memory.room(task, &asked).saturating_sub(rest);
            if self.take(task, wanted.pick(asked.zone, asked.want), out, room)? > 0 {
                return Ok(1);
            }
        }
        Ok(0)
    }
}
