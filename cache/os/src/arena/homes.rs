//! Frames that are at home in maps: their bytes are pages of a view's memfd.
//!
//! ```text
//!   own <--touched-- absent --settle--> at home in (map, page)
//!    '------------settle-----------------^   |
//!               absent <------vacate---------'
//! ```
//!
//! A frame that leaves its map has no memory until somebody touches it: where it goes from map to
//! map, none is taken in between.

use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLockReadGuard};

use frames::{Busy, FrameId, PopulateError};
use rustix::mm::Advice;

use super::{ABSENT, Arena, FRAME, Lent, OWN};
use crate::OsError;
use crate::view::{View, copy_shared};

/// Frames are settled in an open view only.
fn forget_closed(views: &mut Vec<Lent>) {
    views.retain(|lent| !lent.view.is_closed() || lent.frames.load(Ordering::Acquire) > 0);
}

impl Arena {
    /// Files can be mapped from now on: its chunks consist of small pages, which come and go one by
    /// one. Before any is resident.
    pub(crate) fn be_mapped(&mut self) {
        let len = self.frames as usize * FRAME;
        // SAFETY: advice on our own mapping, which holds nothing yet.
        let _ =
            unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), len, Advice::LinuxNoHugepage) };
        self.homes = (0..self.frames).map(|_| AtomicUsize::new(OWN)).collect();
    }

    /// Memory for a map of `pages` pages, which the program may load from or, with `write`, store
    /// to. It ends with `close_view`.
    ///
    /// # Errors
    /// `NoFaults`, `System`, and `Option` in an environment without `Options::maps`.
    pub fn open_view(
        &self,
        pages: u32,
        write: bool,
        allow_user_mode: bool,
    ) -> Result<Arc<View>, OsError> {
        if self.homes.is_empty() {
            return Err(OsError::Option {
                name: "maps",
                value: 0,
                allowed: "true, for a cache whose files are mapped",
            });
        }
        let mut views = self.views.write().unwrap_or_else(PoisonError::into_inner);
        let taken = |id: &u32| views.iter().any(|lent| lent.view.id() == *id);
        let id = (0..)
            .find(|id| !taken(id))
            .expect("fewer maps than numbers");
        let view = Arc::new(View::new(id, pages, write, allow_user_mode)?);
        views.push(Lent {
            view: Arc::clone(&view),
            frames: AtomicUsize::new(0),
        });
        Ok(view)
    }

    /// The program is done with a view. Its memory goes with the last frame that is at home there.
    pub fn close_view(&self, view: &View) {
        self.change_views(|views| {
            // Nobody takes pages out of it meanwhile: its addresses may be another mapping's next.
            view.close();
            forget_closed(views);
        });
    }

    /// Bytes of all maps that the system holds in memory.
    #[must_use]
    pub fn mapped(&self) -> u64 {
        let frames = self
            .views()
            .iter()
            .map(|lent| lent.frames.load(Ordering::Relaxed))
            .sum::<usize>();
        (frames * FRAME) as u64
    }

    fn views(&self) -> RwLockReadGuard<'_, Vec<Lent>> {
        self.views.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change_views(&self, change: impl FnOnce(&mut Vec<Lent>)) {
        change(&mut self.views.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Calls on the program's view of an open map.
    pub(super) fn with_open(&self, map: u32, call: impl FnOnce(&View)) {
        let views = self.views();
        let is_it = |lent: &&Lent| lent.view.id() == map && !lent.view.is_closed();
        if let Some(lent) = views.iter().find(is_it) {
            call(&lent.view);
        }
    }

    /// True if the bytes of a frame are a map's.
    #[inline]
    pub(super) fn is_shared(&self, frame: FrameId) -> bool {
        let home = self.homes.get(frame.0 as usize);
        home.is_some_and(|home| home.load(Ordering::Acquire) > ABSENT)
    }

    /// Copies bytes of a frame that the caller has pinned or busy.
    pub(super) fn copy_bytes(&self, frame: FrameId, offset: usize, to: &mut [u8]) {
        let from = self.span(frame, offset, to.len());
        // SAFETY: `span` checked the range, and `to` is the caller's alone.
        unsafe { copy_shared(from, to.as_mut_ptr(), to.len()) };
    }

    /// The address of a frame whose place is elsewhere than in the arena; `None`: it is there.
    #[inline]
    pub(super) fn away(&self, frame: FrameId) -> Option<*mut u8> {
        let home = self.homes.get(frame.0 as usize)?;
        match home.load(Ordering::Acquire) {
            OWN => None,
            // It is about to be touched.
            ABSENT => {
                home.store(OWN, Ordering::Relaxed);
                None
            }
            address => Some(ptr::with_exposed_provenance_mut(address)),
        }
    }

    /// The frames of a chunk have their own memory.
    pub(super) fn have_come(&self, frames: Range<u32>) {
        let homes = frames.map(|frame| self.homes.get(frame as usize));
        homes
            .flatten()
            .for_each(|home| home.store(OWN, Ordering::Relaxed));
    }

    pub(super) fn home_of(&self, frame: FrameId) -> Option<(u32, u32)> {
        let place = self.homes.get(frame.0 as usize)?.load(Ordering::Acquire);
        if place <= ABSENT {
            return None;
        }
        let views = self.views();
        let mut open = views.iter().filter(|lent| !lent.view.is_closed());
        open.find_map(|lent| Some((lent.view.id(), lent.view.page_at(place)?)))
    }

    /// The frames' own memory is given back, those that have any.
    fn drop_own(&self, frames: &[&Busy]) {
        let has_own = |frame: &FrameId| self.homes[frame.0 as usize].load(Ordering::Relaxed) == OWN;
        let own: Vec<FrameId> = frames
            .iter()
            .map(|busy| busy.frame())
            .filter(has_own)
            .collect();
        for run in own.chunk_by(|a, b| b.0 == a.0 + 1) {
            let first = run[0].0 as usize * FRAME;
            let bytes = first..first + run.len() * FRAME;
            let start = self.reserved(&bytes).cast();
            // SAFETY: frames whose busy bits the caller has, so nobody else uses their bytes; they
            // are in its hands, or copied. A refusal (locked memory) leaves them resident.
            let _ = unsafe { rustix::mm::madvise(start, bytes.len(), Advice::LinuxDontNeed) };
        }
        for frame in own {
            self.homes[frame.0 as usize].store(ABSENT, Ordering::Relaxed);
        }
    }

    pub(super) fn settle_at(
        &self,
        map: u32,
        first: u32,
        frames: &[&Busy],
        fresh: bool,
    ) -> Result<(), PopulateError> {
        if fresh {
            // Before their new memory is taken.
            self.drop_own(frames);
        }
        let views = self.views();
        let is_it = |lent: &&Lent| lent.view.id() == map && !lent.view.is_closed();
        let Some(lent) = views.iter().find(is_it) else {
            // A map that has ended takes no frames.
            return Err(PopulateError { errno: libc::ENXIO });
        };
        let failed = |errno| PopulateError { errno };
        let end = first + u32::try_from(frames.len()).expect("a batch of frames");
        if fresh {
            lent.view.populate(first..end).map_err(|errno| {
                lent.view.remove(&(first..end).collect::<Vec<_>>());
                failed(errno)
            })?;
        }
        for (page, busy) in (first..end).zip(frames) {
            let frame = busy.frame();
            let home = &self.homes[frame.0 as usize];
            let place = lent.view.place(page);
            if home.load(Ordering::Relaxed) == place.expose_provenance() {
                continue;
            }
            if !fresh {
                let mut bytes = [0_u8; FRAME];
                self.copy_bytes(frame, 0, &mut bytes);
                lent.view.populate(page..page + 1).map_err(failed)?;
                // SAFETY: a page of the alias in which no other frame is at home, and which the
                // program has not seen: `Busy` is the exclusive right to it.
                unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), place, FRAME) };
                self.drop_own(&[busy]);
            }
            lent.frames.fetch_add(1, Ordering::AcqRel);
            let before = home.swap(place.expose_provenance(), Ordering::AcqRel);
            // One that was at home in a map that has ended.
            let old = views.iter().filter(|_| before > ABSENT);
            let mut old = old.filter_map(|lent| Some((lent, lent.view.page_at(before)?)));
            if let Some((lent, page)) = old.next() {
                lent.view.remove(&[page]);
                lent.frames.fetch_sub(1, Ordering::AcqRel);
            }
        }
        Ok(())
    }

    pub(super) fn vacate_all(&self, frames: &[FrameId]) {
        let home = |frame: &FrameId| &self.homes[frame.0 as usize];
        let mut is_empty = false;
        for lent in self.views().iter() {
            let at = |frame| lent.view.page_at(home(frame).load(Ordering::Acquire));
            let mut pages: Vec<u32> = frames.iter().filter_map(at).collect();
            if pages.is_empty() {
                continue;
            }
            pages.sort_unstable();
            lent.view.remove(&pages);
            let before = lent.frames.fetch_sub(pages.len(), Ordering::AcqRel);
            is_empty |= before == pages.len() && lent.view.is_closed();
        }
        for home in frames.iter().map(home) {
            if home.load(Ordering::Relaxed) > ABSENT {
                home.store(ABSENT, Ordering::Release);
            }
        }
        if is_empty {
            self.change_views(forget_closed);
        }
    }

    /// A frame that is at home in a map gives that up for another; false: it is not.
    pub(super) fn hand_over(&self, to: &Busy, from: &Busy) -> bool {
        let Some(home) = self.homes.get(from.frame().0 as usize) else {
            return false;
        };
        let place = home.load(Ordering::Acquire);
        if place <= ABSENT {
            return false;
        }
        self.drop_own(&[to]);
        home.store(ABSENT, Ordering::Relaxed);
        self.homes[to.frame().0 as usize].store(place, Ordering::Release);
        true
    }
}
