//! On the way back: a page is read from its slot, and its neighbours ahead of being wanted.
//!
//! The pages that lie beside it in the swap file went out together with it. Those of the window
//! that are still out, of whatever region, come along in frames that are free at once; their busy
//! bits travel with the request. In Tidegate's law a walk has what follows read as it comes to what
//! was read ahead. A page whose read failed stands in its region, not up to date, until somebody
//! asks for it.

use core::ops::Range;
use std::sync::Arc;

use env::{Context, IoError, IoRequest, Signal, Task, Work};
use frames::{Busy, Flags, FrameId, Owner, RegionEntry};
use policy::place::by_use::Purpose;

use crate::Error;
use crate::alloc::Wanted;
use crate::cache::{Cache, add, sub};
use crate::registry::regions::{Anon, Cursor};
use crate::swapfile::{Area, NONE};
use crate::vmstat::Item;

/// Longest window; see `policy::reclaim::swap::walk`.
const WINDOW_MAX: usize = 32;

impl Cache {
    /// Starts reading a page from its slot, with its neighbours. Does not wait for the read, but
    /// for memory if it must. Answers the frame; `None`: somebody else was faster.
    pub(crate) fn start_swap_in(
        &self,
        task: &mut Task<'_>,
        anon: &Arc<Anon>,
        page: u32,
        slot: u32,
    ) -> Result<Option<FrameId>, Error> {
        let area = self
            .swap
            .area()
            .expect("whoever has a slot has it of a swap file");
        anon.takes(task.id());
        let with_others = self.may_swap_in(task);
        let mut frames = Vec::with_capacity(1);
        self.alloc_for_swapin(task, &mut frames)?;
        let Some(wanted) = self.install(area, task, anon, page, slot, frames[0], Flags::NONE)
        else {
            self.put_unused(task, &frames);
            return Ok(None);
        };
        let frame = wanted.frame();
        let mut window = slot..slot + 1;
        if with_others {
            let (found, most) = area.window(task, slot);
            window = found;
            anon.walk(task).faulted(slot, &window, most);
        }
        self.read_window(area, task, window, Some((slot, wanted)));
        Ok(Some(frame))
    }

    /// A walk over a region has come to the part that was read ahead of it (`swap_readahead_hit`):
    /// reads the slots that follow, as far as frames are free at once. Does not wait.
    pub(crate) fn swap_in_on(&self, task: &mut Task<'_>, anon: &Anon, slots: Option<Range<u32>>) {
        let (Some(slots), Some(area)) = (slots, self.swap.area()) else {
            return;
        };
        let mut end = slots.start;
        if self.may_readahead(task) {
            end = self.read_window(area, task, slots, None);
        }
        anon.walk(task).cut(end);
    }

    /// Reads those pages of a window that are still out and for which there are frames, `wanted`
    /// among them, which has its own. Answers the first slot that there was no frame for, or the
    /// window's end.
    fn read_window(
        &self,
        area: &Arc<Area>,
        task: &mut Task<'_>,
        window: Range<u32>,
        mut wanted: Option<(u32, Busy)>,
    ) -> u32 {
        let slot = wanted.as_ref().map_or(NONE, |(slot, _)| *slot);
        let mut cursor = Cursor::default();
        // Frames are for pages that are out: where few are, a walk would take a batch from others
        // for nothing.
        let mut outs = [NONE; WINDOW_MAX];
        let mut others = 0;
        for at in window.clone().filter(|at| *at != slot) {
            if self.page_out(area, task, &mut cursor, at).is_some() {
                outs[others] = at;
                others += 1;
            }
        }
        let mut frames = Vec::with_capacity(others);
        let want = u32::try_from(others).expect("at most a window");
        if others > 0
            && self
                .try_alloc(task, Wanted::new(want, Purpose::Anon), &mut frames)
                .is_err()
        {
            frames.clear();
        }
        let mut busies: [Option<(u32, Busy)>; WINDOW_MAX] = [const { None }; WINDOW_MAX];
        let mut count = 0;
        let mut end = window.end;
        for at in outs.into_iter().take(others) {
            if at > slot && wanted.is_some() {
                busies[count] = wanted.take();
                count += 1;
            }
            let Some(ahead) = frames.last() else {
                end = end.min(at);
                break;
            };
            if let Some(busy) = self.install_ahead(area, task, &mut cursor, at, *ahead) {
                frames.pop();
                busies[count] = Some((at, busy));
                count += 1;
            }
        }
        if count < WINDOW_MAX && wanted.is_some() {
            busies[count] = wanted.take();
        }
        self.put_unused(task, &frames);
        let busies = busies.into_iter().flatten();
        self.send_reads(area, task, slot, busies);
        end
    }

    /// Merges neighbouring slots into requests and sends them.
    fn send_reads(
        &self,
        area: &Arc<Area>,
        task: &mut Task<'_>,
        wanted: u32,
        busies: impl Iterator<Item = (u32, Busy)>,
    ) {
        let mut request: Option<(u32, Box<IoRequest>)> = None;
        let send = |task: &mut Task<'_>, end, full: Box<IoRequest>| {
            self.counters.add(Item::Pswpin, full.pages().0);
            task.did(Work::SwapIn, full.pages().0);
            area.send_read(task, end, wanted, full);
        };
        for (slot, busy) in busies {
            if let Some((end, full)) = request.take_if(|(end, _)| *end != slot) {
                send(task, end, full);
            }
            let (end, open) =
                request.get_or_insert_with(|| (slot, IoRequest::with_room(WINDOW_MAX)));
            open.frames.push(busy.frame());
            open.busy.push(busy);
            *end += 1;
        }
        if let Some((end, full)) = request {
            send(task, end, full);
        }
    }

    /// Puts a neighbour's frame where its slot stands, if that page is still out.
    fn install_ahead(
        &self,
        area: &Area,
        task: &Task<'_>,
        cursor: &mut Cursor,
        slot: u32,
        frame: FrameId,
    ) -> Option<Busy> {
        let (anon, page) = self.page_out(area, task, cursor, slot)?;
        self.install(area, task, anon, page, slot, frame, Flags::MARK)
    }

    /// The page that stands in a slot and is out, if there is one.
    fn page_out<'a>(
        &self,
        area: &Area,
        task: &Task<'_>,
        cursor: &'a mut Cursor,
        slot: u32,
    ) -> Option<(&'a Arc<Anon>, u32)> {
        let owner = area.owner(slot)?;
        let anon = cursor.region(&self.registry.regions, task, owner.file)?;
        let out = owner.index < anon.pages.len()
            && anon.pages.get(owner.index) == RegionEntry::Swapped(slot);
        out.then_some((anon, owner.index))
    }

    /// Puts a frame where a slot stands, busy, and onto a list. The frame is still free if that
    /// fails.
    #[expect(clippy::too_many_arguments, reason = "what a page is, and where")]
    fn install(
        &self,
        area: &Area,
        task: &Task<'_>,
        anon: &Anon,
        page: u32,
        slot: u32,
        frame: FrameId,
        set: Flags,
    ) -> Option<Busy> {
        let busy = self.pages.table.claim(frame);
        let owner = Owner {
            file: anon.id,
            index: page,
        };
        self.pages.table.adopt_as(&busy, owner, Flags::ANON | set);
        if !anon.pages.try_insert(page, slot, frame) {
            self.disown(busy);
            return None;
        }
        self.swap.keep(frame, slot);
        add(&self.writeback.totals.anon, 1);
        let shadow = area.shadow(slot);
        self.refaulted(task, frame, shadow);
        self.lru_add(task, &[frame]);
        Some(busy)
    }

    #[cfg(test)]
    pub(crate) fn install_for_test(
        &self,
        task: &Task<'_>,
        anon: &Anon,
        page: u32,
        slot: u32,
        frame: FrameId,
    ) -> Busy {
        let area = self.swap.area().expect("a test has a swap file");
        self.install(area, task, anon, page, slot, frame, Flags::NONE)
            .expect("the page is out")
    }

    /// Undoes a read that failed: the page is out again. The caller holds its busy bit.
    pub(crate) fn undo_swap_in(&self, task: &Task<'_>, anon: &Anon, page: u32, busy: Busy) {
        let frame = busy.frame();
        let slot = self
            .take_slot_from(&busy)
            .expect("a page that was to be read has its slot");
        anon.pages.replace(page, frame, RegionEntry::Swapped(slot));
        self.remove_anon(task, &mut [Some(busy)]);
    }

    /// Frees pages that stand in no region any more: off their lists and disowned in one hold of
    /// the lock.
    pub(crate) fn remove_anon(&self, context: &impl Context, busies: &mut [Option<Busy>]) {
        const MOST: usize = 32;
        for part in busies.chunks_mut(MOST) {
            let mut freed = [FrameId(0); MOST];
            let mut count = 0;
            {
                let mut lru = self.zones.lru(context);
                for busy in part.iter_mut().filter_map(Option::take) {
                    freed[count] = self.pages.table.discard(busy);
                    count += 1;
                }
                lru.remove_all(&freed[..count]);
            }
            sub(&self.writeback.totals.anon, count as u64);
            self.wake_busy(&freed[..count], Signal::PageUnlocked);
            self.memory.put(context, &freed[..count]);
        }
    }

    /// Why the last read of the swap file failed.
    pub(crate) fn swap_read_error(&self, context: &impl Context) -> IoError {
        let area = self.swap.area();
        area.map_or(IoError::Lost, |area| area.last_read_error(context))
    }

    /// A page of a region that was read ahead is used for the first time, and has not given its
    /// slot up yet. Answers the slots that are to be read now (`swap_in_on`).
    pub(crate) fn swap_readahead_hit(
        &self,
        context: &impl Context,
        anon: &Anon,
        frame: FrameId,
    ) -> Option<Range<u32>> {
        let area = self.swap.area()?;
        let most = area.hit(context);
        let slot = self.swap.slot_of(frame)?;
        anon.walk(context).used(slot, area.slots(), most)
    }
}
