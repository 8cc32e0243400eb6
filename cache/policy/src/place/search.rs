//! One allocation's way through its list of zones.
//!
//! ```text
//! let mut search = Search::begin(law, zones.len(), want, false);
//! loop {
//!     match search.step(&cache) {
//!         Step::Take { place, floor, most } => search.took(now, &mut cache, take(place, floor, most)),
//!         Step::Trim { place }              => search.trimmed(now, &mut cache, trim(place)),
//!         Step::WakeReclaimers              => wake the reclaimer of each node in the list,
//!         Step::Done                        => return what was taken,
//!         Step::Exhausted                   => reclaim, then another search
//!     }
//! }
//! ```
//!
//! A page is looked for from the head of the list: above LOW; where all zones fail, the reclaimers
//! are woken and the list is gone through once more, down to MIN. Of the first zone several pages
//! are taken at a time, as each of them would come from there; of a later one a single page where
//! the law trims or remembers, since the next page's search would ask the zones before it again.
//!
//! Where the cache hid zones and nothing was found, the list is walked once more without it.
//!
//! A page that is to be dirtied passes over a node that has its share of the dirty limit, in the
//! walk down to LOW only: it neither trims such a node nor remembers it as full.
//!
//! Source: mechanisms 1.5, 1.6, 1.7.1; Linux 3.0 and 6.12 mm/page_alloc.c,
//! get_page_from_freelist(), __alloc_pages_slowpath().

use super::PlaceLaw;
use super::cache::ZonelistCache;
use super::trim::Outcome;
use crate::units::Instant;

/// Down to which mark frames are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Floor {
    /// As long as some zone has enough.
    Low,
    /// The reserve stays.
    Min,
}

/// The caller's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Take up to `most` frames of the zone at that place of the list, as long as more than the
    /// floor is free there; then `Search::took`.
    Take {
        /// Of the list.
        place: usize,
        /// The pages that have to stay free.
        floor: Floor,
        /// Frames.
        most: u32,
        /// None where the node has its share of the dirty limit (`share`), and no more than it
        /// lacks.
        in_share: bool,
    },
    /// Trim the zone at that place; then `Search::trimmed`.
    Trim {
        /// Of the list.
        place: usize,
    },
    /// Every zone has failed above LOW: wake the reclaimers of all, and go on.
    WakeReclaimers,
    /// All frames that were wanted are there.
    Done,
    /// No zone has a frame for this one above MIN.
    Exhausted,
}

/// The result of a try to take frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Took {
    /// This many, at least one.
    Frames(u32),
    /// The mark does not allow one.
    BelowMark,
    /// The node has its share of the dirty limit.
    OverShare,
    /// The mark would have, but another task was faster, or there was none of the kind.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Look at the place.
    Look,
    /// Frames are being taken there; after a trim, or before.
    Taking {
        trimmed: bool,
    },
    /// A trim is under way there.
    Trimming,
    /// All failed above LOW.
    Waking,
    Done,
    Exhausted,
}

/// An allocation under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Search {
    law: PlaceLaw,
    /// Zones of the list.
    len: usize,
    wanted: u32,
    floor: Floor,
    place: usize,
    state: State,
    /// The cache is asked.
    asks_cache: bool,
    /// It was made ready: once for each walk that it is asked in.
    is_ready: bool,
    /// The frames are for pages that are dirtied at once, and no zone was reclaimed for them yet.
    for_dirty: bool,
    passed_over: u32,
    stale: u32,
}

impl Search {
    /// A search for `want` frames in a list of `len` zones. `is_retry`: the caller has just
    /// reclaimed; where looking at a zone may trim it, it then looks down to MIN at once.
    #[must_use]
    pub fn begin(law: PlaceLaw, len: usize, want: u32, is_retry: bool) -> Self {
        let state = if want == 0 { State::Done } else { State::Look };
        Self {
            law,
            len,
            wanted: want,
            floor: if is_retry && asks_each_time(law) {
                Floor::Min
            } else {
                Floor::Low
            },
            place: 0,
            state,
            asks_cache: false,
            is_ready: false,
            for_dirty: false,
            passed_over: 0,
            stale: 0,
        }
    }

    /// The same for pages that are dirtied at once, where the caller has not reclaimed: in the walk
    /// down to LOW nodes are passed over that have their share of the dirty limit.
    #[must_use]
    pub const fn for_dirty(self) -> Self {
        Self {
            for_dirty: self.law.shares_dirty,
            ..self
        }
    }

    /// The next step.
    pub fn step(&mut self, cache: &ZonelistCache) -> Step {
        loop {
            match self.state {
                State::Done => return Step::Done,
                State::Exhausted => return Step::Exhausted,
                State::Waking => {
                    self.floor = Floor::Min;
                    self.walk();
                    return Step::WakeReclaimers;
                }
                State::Trimming => return Step::Trim { place: self.place },
                State::Taking { .. } => return self.take(),
                State::Look if self.place >= self.len => self.end_of_list(),
                State::Look if self.asks_cache && cache.hides(self.place) => self.pass_over(cache),
                State::Look => self.state = State::Taking { trimmed: false },
            }
        }
    }

    /// The result of `Step::Take`.
    pub fn took(&mut self, now: Instant, cache: &mut ZonelistCache, took: Took) {
        let State::Taking { trimmed } = self.state else {
            debug_assert!(false, "nothing was to be taken");
            return;
        };
        match took {
            Took::Frames(frames) => {
                self.wanted = self.wanted.saturating_sub(frames);
                if self.wanted == 0 {
                    self.state = State::Done;
                } else {
                    // The next page's own search.
                    if asks_each_time(self.law) || self.for_dirty {
                        self.floor = Floor::Low;
                    }
                    self.walk();
                }
            }
            Took::BelowMark if !trimmed => self.below_mark(now, cache),
            Took::BelowMark | Took::Nothing => self.full(now, cache),
            Took::OverShare => self.next(now, cache),
        }
    }

    /// The result of `Step::Trim`.
    pub fn trimmed(&mut self, now: Instant, cache: &mut ZonelistCache, outcome: Outcome) {
        let marks = self.law.cache.is_some_and(|rule| rule.keeps_trim_failures);
        match outcome {
            Outcome::NoScan => self.next(now, cache),
            Outcome::Full if marks => self.full(now, cache),
            Outcome::Full => self.next(now, cache),
            // The mark again.
            Outcome::Some | Outcome::Success => self.state = State::Taking { trimmed: true },
        }
    }

    /// Number of times that a zone was passed over because the cache said so (`zlc_skipped`), and
    /// of those after direct reclaim had freed pages (`zlc_hidden`).
    #[must_use]
    pub const fn passed_over(&self) -> (u32, u32) {
        (self.passed_over, self.stale)
    }

    fn take(&self) -> Step {
        let most = if self.place == 0 || !asks_each_time(self.law) {
            self.wanted
        } else {
            1
        };
        Step::Take {
            place: self.place,
            floor: self.floor,
            most,
            in_share: self.for_dirty && self.floor == Floor::Low,
        }
    }

    fn below_mark(&mut self, now: Instant, cache: &mut ZonelistCache) {
        let asks_first = self.law.cache.is_some_and(|rule| rule.asks_first);
        if asks_first {
            self.make_ready(now, cache);
        }
        if self.law.trims.is_none() {
            return self.full(now, cache);
        }
        if asks_first && self.asks_cache && cache.hides(self.place) {
            return self.pass_over(cache);
        }
        self.state = State::Trimming;
    }

    fn full(&mut self, now: Instant, cache: &mut ZonelistCache) {
        if self.law.cache.is_some() {
            cache.mark(self.place, now);
        }
        self.next(now, cache);
    }

    fn next(&mut self, now: Instant, cache: &mut ZonelistCache) {
        self.make_ready(now, cache);
        self.place += 1;
        self.state = State::Look;
    }

    /// From now on the cache is asked, unless this is the walk without it.
    fn make_ready(&mut self, now: Instant, cache: &mut ZonelistCache) {
        if self.law.cache.is_some() && self.len > 1 && !self.is_ready {
            cache.expire(now);
            self.is_ready = true;
            self.asks_cache = true;
        }
    }

    fn pass_over(&mut self, cache: &ZonelistCache) {
        self.passed_over += 1;
        self.stale += u32::from(cache.is_stale(self.place));
        self.place += 1;
        self.state = State::Look;
    }

    fn end_of_list(&mut self) {
        if self.asks_cache {
            // Once more without it.
            self.asks_cache = false;
            self.place = 0;
            return;
        }
        self.state = match self.floor {
            Floor::Low => State::Waking,
            Floor::Min => State::Exhausted,
        };
    }

    fn walk(&mut self) {
        self.place = 0;
        self.state = State::Look;
        self.asks_cache = false;
        self.is_ready = false;
    }
}

/// True if the search for one page matters to the next one's: zones may be trimmed, or passed over.
const fn asks_each_time(law: PlaceLaw) -> bool {
    law.cache.is_some() || law.trims.is_some()
}
