//! Reading ahead from the swap file, and when a page gives its slot up.
//!
//! Pages that were swapped out together lie in neighbouring slots: slots are handed out one after
//! the other from a cluster. So the task that reads one back may want its neighbours, if reading
//! neighbours has paid lately: each page that was read ahead and then used (a *hit*) makes the next
//! window larger, up to 8 pages; without hits it halves from fault to fault, down to the page
//! alone. A window is aligned to its size, so the neighbours are on both sides.
//!
//! A page that was read back keeps its slot as long as nobody writes to it: it can go again without
//! I/O. When more than half of the slots are taken, slots are worth more than that.
//!
//! In Tidegate's law the task that walks over what was swapped out does not wait at the end of each
//! window ([`walk`]).
//!
//! Invariants
//!   1. A window contains the slot that is wanted, and no slot beyond the file's end.
//!   2. A window is no longer than `window_max`, and no shorter than half the last one (or that
//!      many fit).
//!   3. A slot under writeback is never given up: the device is still reading for it.
//!
//! Source: mechanisms 9; Linux 5.15 mm/swap_state.c, __swapin_nr_pages(), swap_cluster_readahead();
//! mm/memory.c, do_swap_page(); mm/swapfile.c, reuse_swap_page(), try_to_free_swap(),
//! mem_cgroup_swap_full() in mm/vmscan.c.
//! Deviations: slots are counted from 0 (there is no header); no read-ahead by address
//! (`swap_vma_readahead`).

use core::ops::Range;

use crate::units::Pages;

pub mod walk;

/// Slots that are handed out one after the other (`SWAPFILE_CLUSTER`).
pub const SLOT_CLUSTER: u32 = 256;
/// The longest window: 2^`vm.page-cluster`.
const WINDOW_MAX: u32 = 8;
/// The longest window of a machine with less than `SMALL`.
const WINDOW_MAX_SMALL: u32 = 4;
/// 16 MiB.
const SMALL: Pages = Pages(4096);
/// The shortest window after a hit.
const WINDOW_HIT: u32 = 4;

/// The longest window of a machine of that size.
#[must_use]
pub fn window_max(memory: Pages) -> u32 {
    if memory < SMALL {
        WINDOW_MAX_SMALL
    } else {
        WINDOW_MAX
    }
}

/// The state of read-ahead from a swap file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapReadahead {
    window_max: u32,
    hits: u32,
    /// The slot of the last fault without hits before it.
    last: u32,
    last_window: u32,
}

impl SwapReadahead {
    /// Begins with some trust, as the kernel does. `window_max`: from `window_max()`.
    #[must_use]
    pub const fn new(window_max: u32) -> Self {
        Self {
            window_max,
            hits: 4,
            last: 0,
            last_window: 0,
        }
    }

    /// The longest window.
    #[must_use]
    pub const fn window_max(&self) -> u32 {
        self.window_max
    }

    /// A page that had been read ahead was used for the first time.
    pub fn on_hit(&mut self) {
        self.hits = self.hits.saturating_add(1);
    }

    /// The slots to be read for a fault on `slot`, of a file of `slots`. Which of them hold pages,
    /// the caller knows.
    ///
    /// # Panics
    /// On a caller's bug: a slot that the file does not have.
    pub fn window(&mut self, slot: u32, slots: u32) -> Range<u32> {
        assert!(slot < slots);
        let hits = core::mem::take(&mut self.hits);
        let adjacent = slot.abs_diff(self.last) == 1;
        let wanted = match hits {
            0 if adjacent => 2,
            0 => 1,
            hits => hits
                .saturating_add(2)
                .min(WINDOW_MAX)
                .next_power_of_two()
                .max(WINDOW_HIT),
        };
        if hits == 0 {
            self.last = slot;
        }
        let pages = wanted.max(self.last_window / 2).min(self.window_max).max(1);
        self.last_window = pages;
        let start = slot & !(pages - 1);
        start..start.saturating_add(pages).min(slots)
    }
}

/// When a slot may be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotMoment {
    /// The page is written to by its only user.
    Written,
    /// The page was read back, or found still in memory.
    Mapped,
    /// Reclaim found the page in use.
    Activated,
}

/// True if the page gives its slot up now, and is dirty from then on. `free`, `total`: slots of all
/// swap files.
///
/// A page that keeps its slot when it is written to (its write is under way) becomes dirty too, and
/// is written to the same slot again.
#[must_use]
pub fn releases(moment: SlotMoment, writeback: bool, free: Pages, total: Pages) -> bool {
    if writeback {
        return false;
    }
    match moment {
        SlotMoment::Written => true,
        SlotMoment::Mapped | SlotMoment::Activated => is_nearly_full(free, total),
    }
}

/// True if more than half of the slots are taken.
#[must_use]
pub const fn is_nearly_full(free: Pages, total: Pages) -> bool {
    free.0.saturating_mul(2) < total.0
}

#[cfg(test)]
mod tests;
