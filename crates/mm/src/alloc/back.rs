//! Frames for pages that come back while the swap file is full.
//!
//! Memory and swap file together may have a place for every page, and yet a page that is out would stay there: there is no
//! frame for it, and no slot for another that is to make room. So it gets one of the reserve. Once it is read it gives its
//! slot up, another page goes there, and the reserve has its frame again: the slot goes around.
//!
//! Only under Tidegate's own law, and not where the machine kills for memory: there somebody gives way.
//!
//! Source: docs/adr/0014, point 11.

use core::sync::atomic::Ordering;

use env::{Env, Task};
use frames::FrameId;
use policy::reclaim::scan::Kind;
use policy::units::{Nanos, Pages};

use crate::Error;
use crate::cache::{Cache, add};
use crate::lists::NodeId;

/// One over this of the reserve stays.
const RESERVE_REST: u64 = 4;
/// For so long whoever brings a page back takes what others' slots have let go of, in no order.
const SCRAMBLE: Nanos = Nanos::secs(1);

impl<E: Env> Cache<E> {
    /// Whether a page that comes back may use the reserve: the slots that are free would not even fill that, and pages that
    /// are sent out arrive there.
    pub(crate) fn slots_go_around(&self) -> bool {
        let memory = &self.memory;
        // One look: the last free slot may be another's at the next.
        let free = self.swap.area().map_or(Pages::ZERO, |area| area.free());
        // First, as it is mostly not so: each page that comes back asks.
        free <= memory.marks.min
            && memory.line.is_open()
            && !self.options.reclaim.oom_kills
            && (free.is_zero() || !self.swap_rests())
    }

    /// Takes a frame for a page that is out, as `alloc` does, where slots go around from the reserve if need be.
    pub(crate) fn alloc_for_return(
        &self,
        task: &mut Task<'_, E>,
        out: &mut Vec<FrameId>,
    ) -> Result<(), Error> {
        let memory = &self.memory;
        let mut until = None;
        while self.slots_go_around()
            && task.now() < *until.get_or_insert_with(|| task.now() + SCRAMBLE)
            && !self.is_exempt(task)
        {
            let given_back = memory.given_back();
            if self.try_alloc(task, 1, out)? > 0 || self.take_of_reserve(task, out)? > 0 {
                add(&memory.returned, 1);
                return Ok(());
            }
            self.look_again(task);
            if !task.is_willing() || self.registry.stopping.load(Ordering::Acquire) {
                break;
            }
            self.wait_for_memory(task, |memory| memory.given_back() == given_back)?;
        }
        self.alloc(task, Kind::Anon, 1, out).map(drop)
    }

    /// A frame of the reserve, of which a part stays.
    fn take_of_reserve(
        &self,
        task: &mut Task<'_, E>,
        out: &mut Vec<FrameId>,
    ) -> Result<u32, Error> {
        let memory = &self.memory;
        let rest = memory.marks.min.0.div_ceil(RESERVE_REST);
        let rest = u32::try_from(rest).expect("no more than all frames");
        self.take(task, NodeId::FIRST, 1, out, |task, _| {
            memory.room_in_turn(task, 1, true).saturating_sub(rest)
        })
    }
}
