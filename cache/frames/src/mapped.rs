//! Two bits for each page of a range, which a processor keeps: *mapped* (it may be used without a
//! fault) and *young* (it was used since somebody looked). So a run over pages that are there is a
//! look at one word for 64 of them.
//!
//! A task that maps a page has completed its content before; when a page may be mapped and
//! unmapped, and by which task, is its owner's to say. The young bit is a hint that anybody may set
//! and clear.
//!
//! Concurrency: everything takes `&self`.

use crate::sync::{AtomicU64, Ordering};

pub(crate) const WORD: u32 = u64::BITS;

/// Which pages are mapped, and which of them were used.
pub struct Mapped {
    mapped: Box<[AtomicU64]>,
    young: Box<[AtomicU64]>,
}

impl Mapped {
    /// A set of `pages` pages, none of which is mapped.
    #[must_use]
    pub fn new(pages: u32) -> Self {
        let bits = || {
            (0..pages.div_ceil(WORD))
                .map(|_| AtomicU64::new(0))
                .collect()
        };
        Self {
            mapped: bits(),
            young: bits(),
        }
    }

    /// The first pages of `from..to` that are mapped, marked young: an access to each that changes
    /// nothing. Answers the first page that is not mapped, `to` if there is none.
    #[inline]
    #[must_use]
    pub fn touch(&self, from: u32, to: u32) -> u32 {
        let mut at = from;
        while at < to {
            let word = (at / WORD) as usize;
            let end = to.min((at / WORD + 1) * WORD);
            let mask = (u64::MAX >> (WORD - (end - at))) << (at % WORD);
            let missing = !self.mapped[word].load(Ordering::Acquire) & mask;
            let there = if missing == 0 {
                mask
            } else {
                mask & ((1 << missing.trailing_zeros()) - 1)
            };
            // A look first: the line is shared while nothing changes.
            if self.young[word].load(Ordering::Relaxed) & there != there {
                self.young[word].fetch_or(there, Ordering::Relaxed);
            }
            if missing != 0 {
                return at / WORD * WORD + missing.trailing_zeros();
            }
            at = end;
        }
        to
    }

    /// The page is mapped, and young.
    #[inline]
    pub fn map(&self, page: u32) {
        // Release: content and state are complete before somebody relies on them.
        self.mapped[(page / WORD) as usize].fetch_or(1 << (page % WORD), Ordering::Release);
        self.set_young(page);
    }

    /// The same for the pages `from..to`, a step for each 64 of them.
    #[inline]
    pub fn map_run(&self, from: u32, to: u32) {
        let mut at = from;
        while at < to {
            let (word, end) = ((at / WORD) as usize, to.min((at / WORD + 1) * WORD));
            let mask = (u64::MAX >> (WORD - (end - at))) << (at % WORD);
            // As in `map`.
            self.mapped[word].fetch_or(mask, Ordering::Release);
            self.young[word].fetch_or(mask, Ordering::Relaxed);
            at = end;
        }
    }

    /// The page is mapped no more. Its young bit stays as it is.
    #[inline]
    pub fn unmap(&self, page: u32) {
        self.mapped[(page / WORD) as usize].fetch_and(!(1 << (page % WORD)), Ordering::AcqRel);
    }

    /// Neither mapped nor young any more: those pages of a word.
    pub(crate) fn forget(&self, word: usize, mask: u64) {
        self.mapped[word].fetch_and(!mask, Ordering::AcqRel);
        if self.young[word].load(Ordering::Relaxed) & mask != 0 {
            self.young[word].fetch_and(!mask, Ordering::Relaxed);
        }
    }

    /// True if the page is mapped.
    #[must_use]
    #[inline]
    pub fn has(&self, page: u32) -> bool {
        self.mapped[(page / WORD) as usize].load(Ordering::Acquire) >> (page % WORD) & 1 == 1
    }

    /// The first page from `from` on that is mapped.
    #[must_use]
    pub fn next(&self, from: u32) -> Option<u32> {
        let mut mask = u64::MAX << (from % WORD);
        let first = (from / WORD) as usize;
        for (word, bits) in self.mapped.iter().enumerate().skip(first) {
            let found = bits.load(Ordering::Acquire) & mask;
            if found != 0 {
                let before = u32::try_from(word).expect("there are 2^32 pages at most") * WORD;
                return Some(before + found.trailing_zeros());
            }
            mask = u64::MAX;
        }
        None
    }

    /// The page is used.
    #[inline]
    pub fn set_young(&self, page: u32) {
        let (word, bit) = (&self.young[(page / WORD) as usize], 1 << (page % WORD));
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// True if the page was used since the last look.
    #[inline]
    pub fn test_and_clear_young(&self, page: u32) -> bool {
        let (word, bit) = (&self.young[(page / WORD) as usize], 1 << (page % WORD));
        word.load(Ordering::Relaxed) & bit != 0
            && word.fetch_and(!bit, Ordering::Relaxed) & bit != 0
    }

    /// Bytes of metadata.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (size_of_val(&*self.mapped) + size_of_val(&*self.young)) as u64
    }

    /// The same look without clearing.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn is_young(&self, page: u32) -> bool {
        self.young[(page / WORD) as usize].load(Ordering::Relaxed) >> (page % WORD) & 1 == 1
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_next_mapped_page_is_found_across_words() {
        let mapped = Mapped::new(300);
        for page in [3, 63, 64, 255] {
            mapped.map(page);
        }
        let mut found = Vec::new();
        let mut from = 0;
        while let Some(page) = mapped.next(from) {
            found.push(page);
            from = page + 1;
        }
        assert_eq!(found, [3, 63, 64, 255]);
        assert_eq!(mapped.next(300), None);
        assert_eq!(Mapped::new(0).next(0), None);
    }

    #[test]
    fn a_page_that_is_unmapped_may_still_be_young() {
        let mapped = Mapped::new(70);
        mapped.map(69);
        mapped.unmap(69);
        assert!(!mapped.has(69));
        assert!(mapped.test_and_clear_young(69));
        assert!(!mapped.test_and_clear_young(69));
    }
}
