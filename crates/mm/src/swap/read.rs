//! On the way back: requests for pages that are out.

use core::ops::Range;
use core::sync::atomic::Ordering;
use std::sync::Arc;

use env::{Context, Env, Interrupt, IoClass, IoDone, IoError, IoOp, IoRequest, Signal, Task};
use frames::{Flags, Owner};
use policy::units::{Bytes, PAGE_SHIFT};

use super::{Area, unpacked};
use crate::cache::{Cache, add};
use crate::vmstat::Item;
use crate::writeback::io;

impl<E: Env> Area<E> {
    /// The slots to be read for a fault on `slot`, and the longest such window.
    pub(crate) fn window(&self, context: &impl Context, slot: u32) -> (Range<u32>, u32) {
        let mut readahead = self.readahead.lock(context);
        (readahead.window(slot, self.total), readahead.window_max())
    }

    /// A page that had been read ahead was used for the first time. Answers the longest window.
    pub(crate) fn hit(&self, context: &impl Context) -> u32 {
        let mut readahead = self.readahead.lock(context);
        readahead.on_hit();
        readahead.window_max()
    }

    /// How many slots there are.
    pub(crate) fn slots(&self) -> u32 {
        self.total
    }

    /// Whose page is in a slot: a hint.
    pub(crate) fn owner(&self, slot: u32) -> Option<Owner> {
        unpacked(self.owners[slot as usize].load(Ordering::Relaxed))
    }

    /// What reclaim noted of the page that is in a slot.
    pub(crate) fn shadow(&self, slot: u32) -> u32 {
        self.shadows[slot as usize].load(Ordering::Relaxed)
    }

    /// Why the last read failed.
    pub(crate) fn last_read_error(&self, context: &impl Context) -> IoError {
        self.errors.lock(context).last_read
    }

    /// `end`: the slot behind its last.
    pub(crate) fn send_read(
        self: &Arc<Self>,
        task: &mut Task<'_, E>,
        end: u32,
        wanted: u32,
        mut request: Box<IoRequest>,
    ) {
        let pages = request.pages().0;
        let first = u64::from(end) - pages;
        request.device = self.device;
        request.object = self.object;
        request.op = IoOp::Read;
        request.class = if (first..u64::from(end)).contains(&u64::from(wanted)) {
            IoClass::Read
        } else {
            IoClass::ReadAhead
        };
        request.offset = Bytes(first << PAGE_SHIFT);
        request.on_done(Arc::clone(self) as Arc<dyn IoDone>);
        if let Some(cache) = self.cache.upgrade() {
            cache.counters.add(Item::Pswpin, pages);
        }
        io::submit(task, request);
    }

    #[expect(
        clippy::boxed_local,
        reason = "the box is the request's, and ends here"
    )]
    pub(super) fn read_done(
        &self,
        cache: &Cache<E>,
        context: &Interrupt,
        mut request: Box<IoRequest>,
        result: Result<(), IoError>,
    ) {
        let set = match result {
            Ok(()) => Flags::UPTODATE,
            Err(error) => {
                add(&self.read_failed, request.pages().0);
                self.errors.lock(context).last_read = error;
                Flags::FAILED
            }
        };
        for busy in request.busy.drain(..) {
            cache.pages.table.release(busy, set, Flags::NONE);
        }
        cache.wake_busy(&request.frames, Signal::PageRead);
    }
}
