//! Zero-copy reads: a page held by its reader, or a run of them lent for one call that does not wait.

use core::ops::Range;
use core::sync::atomic::Ordering;

use env::Env;
use frames::Pin;
use policy::units::{Bytes, PAGE_SIZE};

use crate::cache::Cache;

/// A page that stays as it is while this lives: a write to it meanwhile goes to another frame.
/// Dropping it needs no task. Counted and capped (`Options::pins_max`).
///
/// It borrows the file that it is of: a hit costs no reference count.
pub struct Pinned<'a, E: Env> {
    cache: &'a Cache<E>,
    pin: Option<Pin>,
}

impl<'a, E: Env> Pinned<'a, E> {
    /// Takes over a pin that was counted by `Cache::count_pin`.
    pub(crate) fn new(cache: &'a Cache<E>, pin: Pin) -> Self {
        Self {
            cache,
            pin: Some(pin),
        }
    }

    /// The pin, for `E::Content`.
    pub fn pin(&self) -> &Pin {
        self.pin.as_ref().expect("taken only by drop")
    }

    /// The contents that the pin belongs to.
    pub fn content(&self) -> &'a E::Content {
        self.cache.content()
    }
}

impl<E: Env> Drop for Pinned<'_, E> {
    fn drop(&mut self) {
        if let Some(pin) = self.pin.take() {
            self.cache.unpin(pin);
            self.cache.totals.pinned.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

const PAGE_BYTES: usize = 4096;
const _: () = assert!(PAGE_BYTES as u64 == PAGE_SIZE);
/// Most pages that are lent together: 256 KiB, wherever they begin.
const LENT_MAX: usize = 65;

/// Neighbouring pages that are lent to a caller who hands them on at once, to a system call that does not wait. Counted like
/// other pins and not capped: a few for each thread, and none while anybody waits.
pub struct Lent<'a, E: Env> {
    cache: &'a Cache<E>,
    pins: [Option<Pin>; LENT_MAX],
    count: usize,
    /// Where its bytes begin and end in the first page and those behind it.
    bytes: Range<usize>,
}

impl<'a, E: Env> Lent<'a, E> {
    /// Most pages.
    pub const PAGES_MAX: usize = LENT_MAX;

    /// Nothing yet.
    pub(crate) fn new(cache: &'a Cache<E>) -> Self {
        Self {
            cache,
            pins: [const { None }; LENT_MAX],
            count: 0,
            bytes: 0..0,
        }
    }

    /// How many bytes from `offset` on can be lent.
    pub(crate) fn room(&self, offset: Bytes) -> u64 {
        (self.pins.len() - self.count) as u64 * PAGE_SIZE - offset.0 % PAGE_SIZE
    }

    /// Adds a page, of which the bytes `from..until` of the file are lent.
    pub(crate) fn push(&mut self, pin: Pin, from: u64, until: u64) {
        let within = usize::try_from(from % PAGE_SIZE).expect("below a page");
        let bytes = usize::try_from(until - from).expect("at most a page");
        if self.count == 0 {
            self.bytes = within..within;
        }
        debug_assert_eq!(self.bytes.end % PAGE_BYTES, within, "they are neighbours");
        self.bytes.end += bytes;
        self.pins[self.count] = Some(pin);
        self.count += 1;
        self.cache.totals.pinned.fetch_add(1, Ordering::Relaxed);
    }

    /// How many bytes are lent.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The contents that the pins belong to.
    #[must_use]
    pub fn content(&self) -> &'a E::Content {
        self.cache.content()
    }

    /// The pages, and which bytes of each are lent.
    pub fn parts(&self) -> impl Iterator<Item = (&Pin, Range<usize>)> {
        let Range { start, end } = self.bytes;
        let pins = self.pins[..self.count].iter().flatten();
        pins.enumerate().map(move |(at, pin)| {
            let first = at * PAGE_BYTES;
            let from = start.saturating_sub(first);
            (pin, from..(end - first).min(PAGE_BYTES))
        })
    }
}

impl<E: Env> Drop for Lent<'_, E> {
    fn drop(&mut self) {
        for pin in self.pins[..self.count].iter_mut().filter_map(Option::take) {
            self.cache.unpin(pin);
            self.cache.uncount_pin();
        }
    }
}

impl<E: Env> Cache<E> {
    /// Counts one more pinned frame if the cap allows it.
    pub(crate) fn count_pin(&self) -> bool {
        let before = self.totals.pinned.fetch_add(1, Ordering::Relaxed);
        if before >= self.options.pins_max {
            self.totals.pinned.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    pub(crate) fn uncount_pin(&self) {
        self.totals.pinned.fetch_sub(1, Ordering::Relaxed);
    }
}
