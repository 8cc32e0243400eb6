//! On the way out: a batch of pages to the swap file.

use env::{Context, Interrupt, IoError, IoRequest, Signal, Task, Work};
use frames::{Busy, Flags, FrameId};
use policy::reclaim::{SwapSender, WhenFull};

use crate::cache::Cache;
use crate::registry::regions::Cursor;
use crate::swapfile::{Area, BATCH, NONE};
use crate::vmstat::Item;
use crate::writeback::io::Rotate;

/// Pages that are under writeback and not sent yet.
pub(crate) struct SwapOut {
    /// Slot and frame.
    pages: [(u32, FrameId); BATCH],
    count: usize,
    cursor: Cursor,
}

impl SwapOut {
    pub(crate) fn new() -> Self {
        Self {
            pages: [(NONE, FrameId(0)); BATCH],
            count: 0,
            cursor: Cursor::default(),
        }
    }
}

impl Cache {
    /// A dirty page that has a slot goes out: it is unmapped and under writeback from now on. It is
    /// on its way once the caller, which gives the busy bit back first, calls `submit_swap_out`.
    ///
    /// # Panics
    /// If the page has no slot, or `out` holds a whole batch.
    pub(crate) fn begin_swap_out(&self, context: &impl Context, busy: &Busy, out: &mut SwapOut) {
        let frame = busy.frame();
        let slot = self.swap.slot_of(frame);
        let slot = slot.expect("a page goes out to its slot");
        let owner = self.pages.table.owner(frame);
        let anon = out
            .cursor
            .region(&self.registry.regions, context, owner.file);
        let anon = anon.expect("a region ends after its pages");
        self.break_run(anon, owner.index);
        anon.pages.unmap(owner.index);
        self.pages.table.begin_writeback(busy, Flags::RECLAIM);
        if let Some(area) = self.swap.area() {
            area.note_leaving();
        }
        self.zones.note_sent(&[frame]);
        out.pages[out.count] = (slot, frame);
        out.count += 1;
    }

    /// True if a page that is sent out now can go: a sender that does not wait for a request looks
    /// first.
    pub(crate) fn can_send_out(&self, context: &impl Context, sender: SwapSender) -> bool {
        let Some(area) = self.swap.area() else {
            return true;
        };
        self.options.reclaim.when_swap_full(sender) != WhenFull::Skip
            || area.has_request(context)
            || area.is_late(self.env.now())
    }

    /// Sends what `out` holds; pages in neighbouring slots go together. Where all requests are out,
    /// the law says what `sender` does.
    pub(crate) fn submit_swap_out(
        &self,
        task: &mut Task<'_>,
        out: &mut SwapOut,
        sender: SwapSender,
    ) {
        let Some(area) = self.swap.area() else {
            return;
        };
        let mut pages = &mut out.pages[..core::mem::take(&mut out.count)];
        pages.sort_unstable_by_key(|(slot, _)| *slot);
        while let Some((first, _)) = pages.first().copied() {
            let neighbours = |(at, (slot, _)): (usize, &(u32, FrameId))| {
                Some(*slot) == u32::try_from(at).ok().and_then(|at| first.checked_add(at))
            };
            let count = pages
                .iter()
                .enumerate()
                .take(area.request_max())
                .take_while(|page| neighbours(*page))
                .count();
            let (run, rest) = pages.split_at_mut(count);
            pages = rest;
            let when_full = self.options.reclaim.when_swap_full(sender);
            match area.request(task, sender, when_full) {
                Some(mut request) => {
                    self.counters.add(Item::Pswpout, run.len() as u64);
                    task.did(Work::SwapOut, run.len() as u64);
                    request.frames.extend(run.iter().map(|(_, frame)| *frame));
                    area.send_write(task, first, request);
                }
                // It hangs, or the cache ends: unsent pages are dirty again.
                None => take_back(self, area, run),
            }
        }
    }
}

/// Pages that were to go out and were not sent.
fn take_back(cache: &Cache, area: &Area, run: &[(u32, FrameId)]) {
    let context = Interrupt::new();
    let mut frames = [FrameId(0); BATCH];
    for (at, (_, frame)) in frames.iter_mut().zip(run) {
        end_page(cache, area, &context, *frame, true, &mut Rotate::new());
        *at = *frame;
    }
    let frames = &frames[..run.len()];
    area.note_arrived(run.len() as u64);
    cache.wake_busy(frames, Signal::PageUnlocked);
    cache.wrote_back(&context, frames, &[]);
}

/// A write to the swap file has ended.
pub(crate) fn write_done(
    cache: &Cache,
    area: &Area,
    context: &Interrupt,
    request: Box<IoRequest>,
    result: Result<(), IoError>,
) {
    let pages = request.frames.len() as u64;
    area.note_write(context, cache.env.now(), pages, result);
    let mut rotate = Rotate::new();
    for frame in &request.frames {
        end_page(cache, area, context, *frame, result.is_err(), &mut rotate);
    }
    area.note_arrived(pages);
    cache.wake_busy(&request.frames, Signal::PageWritten);
    cache.wrote_back(context, &request.frames, rotate.frames());
    area.put_request(context, request);
}

/// The write of a page has ended.
fn end_page(
    cache: &Cache,
    area: &Area,
    context: &Interrupt,
    frame: FrameId,
    failed: bool,
    rotate: &mut Rotate,
) {
    let give_slot_up = || {
        if let Some(slot) = cache.swap.take_from(frame) {
            area.put(context, &[slot]);
        }
    };
    // While it is under writeback, the slot is ours to give up.
    if failed {
        give_slot_up();
    }
    let before = cache.pages.table.end_writeback(frame, failed);
    if before.has(Flags::ORPHAN) {
        // Given back by its owner meanwhile.
        give_slot_up();
        if cache.pages.table.take_orphan(frame) {
            cache.memory.put(context, &[frame]);
        }
        return;
    }
    rotate.note(frame, before, failed);
}
