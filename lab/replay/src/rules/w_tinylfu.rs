//! W-TinyLFU: a page that leaves a small window has to have been accessed more often than the page
//! that would go for it.
//!
//! Source: Einziger, Friedman and Manes, TinyLFU: A Highly Efficient Cache Admission Policy, ACM
//! Transactions on Storage 2017, sections 3 and 4. The window is a hundredth, the main cache two
//! segments of a fifth (probation) and four fifths (protected). As in libCacheSim, accesses are not
//! counted while a page is in the window, an eviction counts once more, and counts are halved after
//! 32 accesses a page of the main cache; the sketch is a counting Bloom filter for as many pages as
//! the main cache has, with one error in a thousand.

use super::lists::Lists;
use super::{Access, Rule, percent};
use crate::trace::mixed;

const WINDOW: u8 = 0;
const PROBATION: u8 = 1;
const PROTECTED: u8 = 2;

/// Accesses a page of the main cache after which counts are halved.
const SAMPLE: u32 = 32;
/// Of the sketch: counters of a page, and thousandths of counters for each page it is made for. One
/// error in a thousand: log2(1000) of the first, and that by ln 2 of the second.
const HASHES: u32 = 10;
const COUNTERS: u64 = 14_378;

/// Number of accesses to pages, more or less: pages share counters.
struct Sketch(Vec<u32>);

impl Sketch {
    fn new(pages: u32) -> Self {
        let counters = (u64::from(pages) * COUNTERS)
            .div_ceil(1000)
            .max(2 * u64::from(HASHES));
        Self(vec![
            0;
            usize::try_from(counters)
                .expect("counters fit into memory")
        ])
    }

    /// The places of a page's counters.
    fn places(&self, page: u32) -> impl Iterator<Item = usize> + use<> {
        let hash = mixed(u64::from(page));
        #[expect(clippy::cast_possible_truncation, reason = "two halves of a hash")]
        let (first, step) = ((hash >> 32) as u32, hash as u32);
        let counters = self.0.len();
        (0..HASHES).map(move |nth| first.wrapping_add(nth.wrapping_mul(step)) as usize % counters)
    }

    fn add(&mut self, page: u32) {
        for place in self.places(page) {
            self.0[place] += 1;
        }
    }

    fn count(&self, page: u32) -> u32 {
        let counts = self.places(page).map(|place| self.0[place]);
        counts.min().unwrap_or(0)
    }

    fn halve(&mut self) {
        for count in &mut self.0 {
            *count /= 2;
        }
    }
}

pub(crate) struct WTinyLfu {
    lists: Lists,
    sketch: Sketch,
    /// Hits of the main cache since counts were halved.
    counted: u32,
    capacity: u32,
    probation_most: u32,
    protected_most: u32,
    window_most: u32,
    /// A page of probation goes without a contest.
    gives_one: bool,
}

impl WTinyLfu {
    pub(crate) fn new(pages: u32, capacity: u32) -> Self {
        let window_most = percent(capacity, 1).max(1);
        let main = capacity - window_most;
        let probation_most = percent(main, 20);
        Self {
            lists: Lists::new(pages, 3),
            sketch: Sketch::new(main),
            counted: 0,
            capacity,
            probation_most,
            protected_most: percent(main, 80),
            window_most,
            gives_one: false,
        }
    }

    fn halve_when_due(&mut self) {
        self.counted += 1;
        if self.counted >= SAMPLE.saturating_mul(self.capacity - self.window_most) {
            self.counted = 0;
            self.sketch.halve();
        }
    }

    fn hit_main(&mut self, page: u32) {
        let promoted = self.lists.on(page) == PROBATION;
        self.lists.renew(PROTECTED, page);
        while self.lists.len(PROTECTED) > self.protected_most {
            if let Some(cooled) = self.lists.pop(PROTECTED) {
                self.lists.push(PROBATION, cooled);
            }
        }
        self.gives_one |= promoted && self.lists.len(PROBATION) > self.probation_most;
        self.sketch.add(page);
        self.halve_when_due();
    }

    /// To the segment that has a place.
    fn admit(&mut self, page: u32) {
        let to_protected = self.lists.len(PROBATION) >= self.probation_most
            && self.lists.len(PROTECTED) < self.protected_most;
        let to = if to_protected { PROTECTED } else { PROBATION };
        self.lists.push(to, page);
    }

    fn evict(&mut self) -> Option<u32> {
        if core::mem::take(&mut self.gives_one) {
            return self.lists.pop(PROBATION);
        }
        let main = self.capacity - self.window_most;
        loop {
            let candidate = self.lists.pop(WINDOW)?;
            let in_main = self.lists.len(PROBATION) + self.lists.len(PROTECTED);
            if in_main < main {
                self.admit(candidate);
                self.sketch.add(candidate);
                continue;
            }
            let victim = self
                .lists
                .oldest(PROBATION)
                .or(self.lists.oldest(PROTECTED))?;
            let wins = self.sketch.count(candidate) > self.sketch.count(victim);
            self.sketch.add(candidate);
            if !wins {
                return Some(candidate);
            }
            self.lists.remove(victim);
            self.admit(candidate);
            return Some(victim);
        }
    }
}

impl Rule for WTinyLfu {
    fn access(&mut self, page: u32) -> Access {
        match self.lists.on(page) {
            WINDOW => {
                self.lists.renew(WINDOW, page);
                return Access::Hit;
            }
            PROBATION | PROTECTED => {
                self.hit_main(page);
                return Access::Hit;
            }
            _ => {}
        }
        let lists = &self.lists;
        let cached = lists.len(WINDOW) + lists.len(PROBATION) + lists.len(PROTECTED);
        let evicted = if cached >= self.capacity {
            self.evict()
        } else {
            None
        };
        self.lists.push(WINDOW, page);
        self.sketch.add(page);
        Access::Miss { evicted }
    }
}
