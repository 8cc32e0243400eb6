//! Zero-copy reads: a page held by its reader.

use core::ops::Deref;
use std::sync::Arc;

use frames::{Content, Flags, PINS_MAX, Pin, SeatId};
use policy::units::Pages;

use crate::Error;
use crate::cache::Cache;
use crate::registry::mapping::Mapping;

/// Pins that callers may have on one page. The other half is for tasks that copy out of it and
/// tasks that put a frame in its place: they hold one pin for a moment, and a task that gets none
/// tries again until it does.
pub(super) const PAGE_PINS_MAX: u32 = PINS_MAX / 2;

/// A page that stays as it is while this lives: a write to it meanwhile goes to another frame.
/// Dropping it needs no task. Counted and capped (`Options::pins_max`, and less under a lowered
/// limit). `C` is the way in which it has the cache.
pub struct PinnedBy<C: Deref<Target = Cache>> {
    cache: C,
    pin: Option<Pin>,
}

/// It borrows the file that it is of: a hit costs no reference count.
pub type Pinned<'a> = PinnedBy<&'a Cache>;

impl<'a> Pinned<'a> {
    /// Takes over a pin that was counted by `Cache::count_pin`, of a page whose flags with it are
    /// these.
    ///
    /// # Errors
    /// `TooMany` on this page; `Mapped`.
    #[inline]
    pub(crate) fn new(
        cache: &'a Cache,
        mapping: &Mapping,
        (pin, flags): (Pin, Flags),
    ) -> Result<Self, Error> {
        // Dropped, it is given back.
        let pinned = Self {
            cache,
            pin: Some(pin),
        };
        if flags.pins() > PAGE_PINS_MAX {
            return Err(Error::TooMany {
                what: "pins of one page",
                limit: PAGE_PINS_MAX,
            });
        }
        // Its pages change under their pins.
        if mapping.is_live() {
            return Err(Error::Mapped);
        }
        Ok(pinned)
    }

    /// The same pin, which outlives its file.
    ///
    /// # Panics
    /// If it is of another cache.
    #[must_use]
    pub fn keep(mut self, cache: &Arc<Cache>) -> PinnedBy<Arc<Cache>> {
        assert!(
            core::ptr::eq(self.cache, &raw const **cache),
            "its own cache"
        );
        PinnedBy {
            cache: Arc::clone(cache),
            pin: self.pin.take(),
        }
    }
}

impl<C: Deref<Target = Cache>> PinnedBy<C> {
    /// The pin, for the contents.
    #[inline]
    pub fn pin(&self) -> &Pin {
        self.pin.as_ref().expect("taken only by drop")
    }

    /// The contents that the pin belongs to.
    #[inline]
    pub fn content(&self) -> &dyn Content {
        self.cache.content()
    }
}

impl<C: Deref<Target = Cache>> Drop for PinnedBy<C> {
    #[inline]
    fn drop(&mut self) {
        if let Some(pin) = self.pin.take() {
            self.cache.unpin(pin);
            self.cache.uncount_pin();
        }
    }
}

impl Cache {
    /// Counts one more pinned frame if the cap allows it.
    #[inline]
    pub(crate) fn count_pin(&self) -> bool {
        self.count_pins(1)
    }

    /// The same of several.
    #[inline]
    pub(super) fn count_pins(&self, pages: u32) -> bool {
        let most = || self.pins_most();
        self.pages.pins.try_take(SeatId::mine(), pages, most)
    }

    /// Most pins there may be: the part of the limit that `pins_max` is of all frames. Pins taken
    /// before a limit was lowered stay.
    pub(crate) fn pins_most(&self) -> u32 {
        let (most, frames) = (self.options.pins_max, self.options.frames);
        let limit = self.memory.limit_frames();
        if limit == frames {
            return most;
        }
        let part = u64::from(most) * u64::from(limit) / u64::from(frames);
        u32::try_from(part).unwrap_or(most)
    }

    /// Pins that callers hold: as many frames, if none is pinned twice.
    pub(crate) fn pinned(&self) -> Pages {
        Pages(self.pages.pins.total())
    }

    #[inline]
    pub(crate) fn uncount_pin(&self) {
        self.uncount_pins(1);
    }

    #[inline]
    pub(super) fn uncount_pins(&self, pages: u32) {
        self.pages.pins.give(SeatId::mine(), pages);
    }
}
