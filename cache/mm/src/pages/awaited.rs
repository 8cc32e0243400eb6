//! Pages that reclaim leaves to those that wait for their read.
//!
//! A page that has just been read is clean and not pinned yet. Where nearly all else is pinned,
//! dirty or has no place in the swap file it is all that a reclaimer finds, and it may be gone
//! before the task that it was read for runs. Where several tasks read like that each takes its
//! page from the next, and none ever gets on.
//!
//! So the task that has lost a page *awaits* the next: it is left alone until that task has looked.
//!
//! Invariants
//!   1. A task awaits at most one page, and only from its wait for the read until it has the page
//!      or has lost it anew.
//!   2. Pages are known by frame and generation: a frame's later life is not left alone for its
//!      earlier.
//!   3. While nobody has lost a page, reclaim pays for one look at a counter.
//!
//! Source: Linux 6.12 mm/filemap.c, filemap_create_folio(): a reader holds a reference to the folio
//! over its read, and reclaim frees none that has one.

use env::{Context, Interrupt, Lock, LockClass};
use frames::sync::{AtomicU32, Ordering};
use frames::{FrameId, Generation};

/// The pages awaited, one for each task that has lost one.
pub(crate) struct Awaited {
    count: AtomicU32,
    pages: Lock<Vec<(FrameId, Generation)>>,
}

/// A page is left to its reader while this lives.
pub(crate) struct Held<'a> {
    awaited: &'a Awaited,
    page: (FrameId, Generation),
}

impl Awaited {
    pub(crate) fn new() -> Self {
        Self {
            count: AtomicU32::new(0),
            pages: Lock::new(LockClass::Leaf, Vec::new()),
        }
    }

    /// Leaves the page that is in `frame` in its life `generation` to the caller.
    pub(crate) fn hold(
        &self,
        context: &impl Context,
        frame: FrameId,
        generation: Generation,
    ) -> Held<'_> {
        let page = (frame, generation);
        self.pages.lock(context).push(page);
        self.count.fetch_add(1, Ordering::Release);
        Held {
            awaited: self,
            page,
        }
    }

    /// True if somebody awaits that page.
    pub(crate) fn has(
        &self,
        context: &impl Context,
        frame: FrameId,
        generation: Generation,
    ) -> bool {
        self.count.load(Ordering::Acquire) > 0
            && self.pages.lock(context).contains(&(frame, generation))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let context = Interrupt::new();
        let mut pages = self.awaited.pages.lock(&context);
        if let Some(at) = pages.iter().position(|page| *page == self.page) {
            pages.swap_remove(at);
            self.awaited.count.fetch_sub(1, Ordering::Release);
        }
    }
}
