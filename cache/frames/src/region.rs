//! The pages of one region of anonymous memory: what a page table is to a process.
//!
//! A word for each page says where it is; two bits for each page are what a processor keeps:
//! *mapped* (a store needs no fault) and *young* (used since somebody looked). So a run over pages
//! that are there is a look at one word for 64 of them.
//!
//! ```text
//!   entry:  0           1 ....... 2^31 - 1        1 << 31 | slot
//!           nothing     frame number + 1          in the swap file
//! ```
//!
//! Invariants
//!   1. An entry that holds a frame changes only by the task that has that frame's busy bit; an
//!      entry that holds a slot changes by a compare-and-swap; an entry that holds nothing only by
//!      the task that alone fills pages of the region at that time (`try_fill`).
//!   2. A mapped page is there, up to date and dirty. The bit is set and cleared under the page's
//!      busy bit; the young bit is a hint that anybody may set and clear.
//!   3. A stretch of pages that is marked as a *run* is in frames that stand together. A task that
//!      takes a page of it elsewhere takes the mark away first (`break_run`).
//!
//! Concurrency: everything takes `&self`. A reader with a stale entry gets a wrong answer that the
//! owner comparison of [`crate::FrameTable::try_busy`] catches.

use core::ops::Range;

use crate::FrameId;
use crate::mapped::{Mapped, WORD};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

const SWAPPED: u32 = 1 << 31;

/// The place of each page of a region.
pub struct Region {
    entries: Box<[AtomicU32]>,
    mapped: Mapped,
    runs: Option<Runs>,
}

/// The place of a page of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionEntry {
    /// Nowhere: it was never touched, or it was discarded.
    Empty,
    /// In a frame.
    Frame(FrameId),
    /// In this slot of the swap file.
    Swapped(u32),
}

/// Which aligned stretches of pages are runs: a bit for each.
struct Runs {
    order: u8,
    bits: Box<[AtomicU64]>,
}

impl Runs {
    /// The word and the bit of a page's stretch.
    fn of(&self, page: u32) -> (usize, u64) {
        let stretch = page >> self.order;
        ((stretch / WORD) as usize, 1 << (stretch % WORD))
    }
}

impl Region {
    /// A region of `pages` pages that hold nothing.
    #[must_use]
    pub fn new(pages: u32) -> Self {
        Self {
            entries: (0..pages).map(|_| AtomicU32::new(0)).collect(),
            mapped: Mapped::new(pages),
            runs: None,
        }
    }

    /// The same whose aligned stretches of 2^`order` pages can be runs.
    #[must_use]
    pub fn with_runs(pages: u32, order: u8) -> Self {
        let stretches = pages >> order;
        Self {
            runs: Some(Runs {
                order,
                bits: (0..stretches.div_ceil(WORD))
                    .map(|_| AtomicU64::new(0))
                    .collect(),
            }),
            ..Self::new(pages)
        }
    }

    /// The aligned stretch of pages that a page is in, if it can be a run: it is as a whole in the
    /// region.
    #[must_use]
    pub fn stretch(&self, page: u32) -> Option<Range<u32>> {
        let order = self.runs.as_ref()?.order;
        let first = page >> order << order;
        let end = first.checked_add(1 << order)?;
        (end <= self.len()).then_some(first..end)
    }

    /// The stretch of a page is in frames that stand together; the caller has the busy bits of all
    /// of them.
    ///
    /// # Panics
    /// If the page is of none.
    pub fn mark_run(&self, page: u32) {
        assert!(self.stretch(page).is_some(), "page {page} is of no stretch");
        if let Some(runs) = &self.runs {
            let (word, bit) = runs.of(page);
            runs.bits[word].fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// True if the stretch of a page is a run.
    #[must_use]
    #[inline]
    pub fn is_run(&self, page: u32) -> bool {
        self.runs.as_ref().is_some_and(|runs| {
            let (word, bit) = runs.of(page);
            let bits = runs.bits.get(word);
            bits.is_some_and(|bits| bits.load(Ordering::Relaxed) & bit != 0)
        })
    }

    /// A page is about to be elsewhere than its neighbours; the caller has its busy bit. Answers
    /// whether its stretch was a run.
    #[must_use]
    #[inline]
    pub fn break_run(&self, page: u32) -> bool {
        self.is_run(page)
            && self.runs.as_ref().is_some_and(|runs| {
                let (word, bit) = runs.of(page);
                runs.bits[word].fetch_and(!bit, Ordering::Relaxed) & bit != 0
            })
    }

    /// Number of pages.
    #[must_use]
    pub fn len(&self) -> u32 {
        u32::try_from(self.entries.len()).expect("the region was made from a u32")
    }

    /// True if it has no pages at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Where a page is: pin its frame, or take its busy bit, and compare the owner.
    #[inline]
    #[must_use]
    pub fn get(&self, page: u32) -> RegionEntry {
        // Acquire: the frame was adopted for the page before it was put here.
        unpacked(self.entries[page as usize].load(Ordering::Acquire))
    }

    /// Puts a frame where nothing stands. False: something does. The caller alone fills pages of
    /// the region meanwhile, by a lock of its own.
    #[must_use]
    #[inline]
    pub fn try_fill(&self, page: u32, frame: FrameId) -> bool {
        let entry = &self.entries[page as usize];
        // Acquire: the caller goes on with what was given back from here.
        if unpacked(entry.load(Ordering::Acquire)) != RegionEntry::Empty {
            return false;
        }
        // Release: the frame is adopted before a reader sees it.
        entry.store(packed(RegionEntry::Frame(frame)), Ordering::Release);
        true
    }

    /// Puts a frame where a slot still stands. False: it does not any more.
    #[must_use]
    #[inline]
    pub fn try_insert(&self, page: u32, slot: u32, frame: FrameId) -> bool {
        self.try_change(page, RegionEntry::Swapped(slot), RegionEntry::Frame(frame))
    }

    /// Takes a slot out. False: it does not stand there any more.
    ///
    /// # Panics
    /// If `expected` is a frame: that changes by `replace`.
    #[must_use]
    pub fn try_clear(&self, page: u32, expected: RegionEntry) -> bool {
        self.try_change(page, expected, RegionEntry::Empty)
    }

    /// Puts something else in the place of a frame, of which the caller has the busy bit; the page
    /// is neither mapped nor young after it.
    ///
    /// # Panics
    /// If that frame does not stand there.
    pub fn replace(&self, page: u32, frame: FrameId, by: RegionEntry) {
        debug_assert!(!self.is_run(page), "page {page} leaves a run");
        self.unmap(page);
        self.test_and_clear_young(page);
        // Release: all work on the page has ended before somebody puts another frame here.
        let before = self.entries[page as usize].swap(packed(by), Ordering::AcqRel);
        assert!(
            before == packed(RegionEntry::Frame(frame)),
            "page {page} holds {before:#x} and not frame {}",
            frame.0
        );
    }

    /// The page is in another frame now, of both of which the caller has the busy bits. Its mapped
    /// and young bits stay as they are.
    ///
    /// # Panics
    /// If `frame` does not stand there.
    pub fn moved(&self, page: u32, frame: FrameId, to: FrameId) {
        debug_assert!(!self.is_run(page), "page {page} leaves a run");
        // Release: the frame is adopted, and its content complete, before a reader sees it.
        let entry = packed(RegionEntry::Frame(to));
        let before = self.entries[page as usize].swap(entry, Ordering::AcqRel);
        assert!(
            before == packed(RegionEntry::Frame(frame)),
            "page {page} holds {before:#x} and not frame {}",
            frame.0
        );
    }

    /// The first pages of `from..to` that are mapped, marked young: a store to each that changes
    /// nothing. Answers the first page that is not mapped, `to` if there is none.
    #[inline]
    #[must_use]
    pub fn touch_mapped(&self, from: u32, to: u32) -> u32 {
        self.mapped.touch(from, to)
    }

    /// The page may be stored to without a fault; the caller has its busy bit, and it is dirty.
    pub fn map(&self, page: u32) {
        self.mapped.map(page);
    }

    /// The same for the pages `from..to`, a step for each 64 of them.
    #[inline]
    pub fn map_run(&self, from: u32, to: u32) {
        self.mapped.map_run(from, to);
    }

    /// Takes frames out, of each of which the caller has the busy bit; neither page is mapped or
    /// young after it. As `replace` by nothing, a step for those of each 64 pages that stand
    /// together.
    ///
    /// # Panics
    /// If one of them does not stand there.
    pub fn take_out(&self, frames: &[(u32, FrameId)]) {
        for part in frames.chunk_by(|a, b| a.0 / WORD == b.0 / WORD) {
            let word = (part[0].0 / WORD) as usize;
            let mask = part
                .iter()
                .fold(0, |mask, (page, _)| mask | 1 << (page % WORD));
            self.mapped.forget(word, mask);
            for (page, frame) in part {
                debug_assert!(!self.is_run(*page), "page {page} leaves a run");
                let entry = &self.entries[*page as usize];
                // Nobody else changes it: it holds a frame that is busy for the caller.
                let before = entry.load(Ordering::Relaxed);
                assert!(
                    before == packed(RegionEntry::Frame(*frame)),
                    "page {page} holds {before:#x} and not frame {}",
                    frame.0
                );
                // Release: as in `replace`.
                entry.store(packed(RegionEntry::Empty), Ordering::Release);
            }
        }
    }

    /// The page may not be stored to without a fault; the caller has its busy bit.
    pub fn unmap(&self, page: u32) {
        self.mapped.unmap(page);
    }

    /// True if the page may be stored to without a fault.
    #[must_use]
    #[inline]
    pub fn is_mapped(&self, page: u32) -> bool {
        self.mapped.has(page)
    }

    /// The page is used.
    #[inline]
    pub fn set_young(&self, page: u32) {
        self.mapped.set_young(page);
    }

    /// True if the page was used since the last look.
    #[inline]
    pub fn test_and_clear_young(&self, page: u32) -> bool {
        self.mapped.test_and_clear_young(page)
    }

    /// Bytes of metadata.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let runs = self
            .runs
            .as_ref()
            .map_or(0, |runs| size_of_val(&*runs.bits));
        size_of_val(&*self.entries) as u64 + self.mapped.bytes() + runs as u64
    }

    #[inline]
    fn try_change(&self, page: u32, expected: RegionEntry, new: RegionEntry) -> bool {
        assert!(
            !matches!(expected, RegionEntry::Frame(_)),
            "page {page}: a frame's place changes under its busy bit"
        );
        // Release: the frame is adopted before a reader sees it. Acquire: the caller goes on with
        // what was evicted from here.
        self.entries[page as usize]
            .compare_exchange(
                packed(expected),
                packed(new),
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok()
    }
}

#[inline]
fn unpacked(entry: u32) -> RegionEntry {
    match entry {
        0 => RegionEntry::Empty,
        entry if entry & SWAPPED != 0 => RegionEntry::Swapped(entry & !SWAPPED),
        entry => RegionEntry::Frame(FrameId(entry - 1)),
    }
}

#[inline]
fn packed(entry: RegionEntry) -> u32 {
    match entry {
        RegionEntry::Empty => 0,
        RegionEntry::Frame(frame) => frame.0 + 1,
        RegionEntry::Swapped(slot) => slot | SWAPPED,
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn an_entry_says_where_a_page_is() {
        let region = Region::new(3);
        assert_eq!(region.get(1), RegionEntry::Empty);
        assert!(region.try_fill(1, FrameId(0)));
        assert!(!region.try_fill(1, FrameId(7)), "it is taken");
        assert_eq!(region.get(1), RegionEntry::Frame(FrameId(0)));
        region.replace(1, FrameId(0), RegionEntry::Swapped(0));
        assert_eq!(region.get(1), RegionEntry::Swapped(0));
        assert!(!region.try_insert(1, 4, FrameId(7)));
        assert!(region.try_insert(1, 0, FrameId(7)));
        assert!(!region.try_clear(1, RegionEntry::Swapped(0)));
        region.replace(1, FrameId(7), RegionEntry::Swapped(9));
        assert!(region.try_clear(1, RegionEntry::Swapped(9)));
        assert_eq!(region.get(1), RegionEntry::Empty);
        assert_eq!(region.get(0), RegionEntry::Empty);
    }

    #[test]
    fn a_run_stops_at_the_first_page_that_is_not_mapped() {
        let region = Region::new(200);
        for page in (0..200).filter(|page| *page != 130) {
            region.map(page);
            region.test_and_clear_young(page);
        }
        assert_eq!(region.touch_mapped(3, 60), 60);
        assert_eq!(region.touch_mapped(60, 200), 130);
        assert_eq!(region.touch_mapped(130, 200), 130);
        assert_eq!(region.touch_mapped(131, 131), 131);
        let young: Vec<_> = (0..200)
            .filter(|page| region.test_and_clear_young(*page))
            .collect();
        assert_eq!(young, (3..130).collect::<Vec<_>>(), "exactly those touched");
        region.unmap(64);
        assert_eq!(region.touch_mapped(0, 128), 64);
    }

    #[test]
    fn runs_are_mapped_and_taken_out_as_page_by_page() {
        for (from, to) in [(0, 1), (3, 64), (60, 70), (64, 128), (1, 200), (5, 5)] {
            let (one, all) = (Region::new(200), Region::new(200));
            for region in [&one, &all] {
                for page in from..to {
                    assert!(region.try_fill(page, FrameId(page + 1000)));
                }
            }
            all.map_run(from, to);
            (from..to).for_each(|page| one.map(page));
            let state = |region: &Region| -> Vec<_> {
                let young = |page| region.mapped.is_young(page);
                (0..200)
                    .map(|page| (region.get(page), region.is_mapped(page), young(page)))
                    .collect()
            };
            assert_eq!(state(&one), state(&all), "{from} {to}");
            // Not all of them, nor neighbours only.
            let gone: Vec<_> = (from..to).filter(|page| page % 5 != 3).collect();
            let frames: Vec<_> = gone
                .iter()
                .map(|page| (*page, FrameId(page + 1000)))
                .collect();
            all.take_out(&frames);
            for page in gone {
                one.replace(page, FrameId(page + 1000), RegionEntry::Empty);
            }
            assert_eq!(state(&one), state(&all), "{from} {to}");
        }
    }

    #[test]
    #[should_panic(expected = "holds")]
    fn a_frame_that_is_not_there_is_not_taken_out() {
        Region::new(2).take_out(&[(1, FrameId(0))]);
    }

    #[test]
    fn what_is_replaced_is_neither_mapped_nor_young() {
        let region = Region::new(1);
        assert!(region.try_fill(0, FrameId(3)));
        region.map(0);
        assert!(region.is_mapped(0));
        region.replace(0, FrameId(3), RegionEntry::Empty);
        assert!(!region.is_mapped(0));
        assert!(!region.test_and_clear_young(0));
    }

    #[test]
    fn a_run_is_a_whole_stretch_and_breaks_once() {
        let region = Region::with_runs(70, 4);
        assert_eq!(region.stretch(17), Some(16..32));
        assert_eq!(region.stretch(64), None, "it reaches beyond the region");
        region.mark_run(20);
        assert!(region.is_run(16) && region.is_run(31));
        assert!(!region.is_run(15) && !region.is_run(32) && !region.is_run(69));
        assert!(region.break_run(31));
        assert!(!region.break_run(16), "once");
        let plain = Region::new(70);
        assert_eq!(plain.stretch(17), None);
        assert!(!plain.is_run(17) && !plain.break_run(17));
    }

    #[test]
    #[should_panic(expected = "leaves a run")]
    fn no_page_leaves_a_run_that_is_marked() {
        let region = Region::with_runs(16, 2);
        assert!(region.try_fill(5, FrameId(9)));
        region.mark_run(4);
        region.replace(5, FrameId(9), RegionEntry::Empty);
    }

    #[test]
    #[should_panic(expected = "and not frame 4")]
    fn a_stranger_is_not_replaced() {
        let region = Region::new(1);
        assert!(region.try_fill(0, FrameId(3)));
        region.replace(0, FrameId(4), RegionEntry::Empty);
    }
}
