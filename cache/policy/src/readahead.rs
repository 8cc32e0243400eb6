//! The distance of read-ahead for a sequential or strided reader.
//!
//! Decides, at a miss or at a marked page, which pages to read. Three kinds of reader are told
//! apart:
//!
//! - *sequential*: it begins at the start of the file, or goes on where the last access ended. It
//!   gets a window that doubles from turn to turn up to a maximum. One page of each window carries
//!   the *mark*: when the reader comes to it, the next window is read while the reader is still
//!   busy with the rest of this one, so that it never waits.
//! - *strided*: three accesses at a constant distance that is not its own length. It gets the pages
//!   of its next access, and of no other; the first of them carries the mark.
//! - *random*: everything else. It gets what it asked for.
//!
//! ```text
//!  index ->  |<------ window ------>|<----------- next window ----------->|
//!            | asked for | ahead    |
//!                        ^ mark: the reader is here when the next window is due
//! ```
//!
//! Invariants
//!   1. No window is longer than `max` (at least one page), whatever was asked for.
//!   2. A window covers the first missing page; an answer at a mark covers only pages ahead of it.
//!   3. A random reader gets no page it did not ask for. A reader that asks for more than a window
//!      gets windows that end with its call, also at the start of the file.
//!
//! Concurrency: one per open file, `&mut` throughout.
//!
//! Source: the "on-demand" readahead of Linux 6.12 mm/readahead.c, get_init_ra_size(),
//! get_next_ra_size(), ondemand_readahead(), for the sizes and for when a window is due.
//! Deviations: Linux has no strided readers and asks the page cache for the history of a random
//! miss; here a reader is judged by its own accesses only.

use crate::units::Pages;

/// Accesses at one distance before a reader counts as strided.
const STRIDE_ACCESSES_MIN: u32 = 3;

/// An open file's memory of its reader. Plain data.
#[derive(Clone, Copy, Debug, Default)]
pub struct Readahead {
    /// The last window of a sequential reader. Empty: there is none.
    window: Run,
    /// The page of `window` that carries the mark.
    mark: u64,
    /// The last access.
    last: Run,
    /// Distance between the starts of the last two accesses.
    stride: i64,
    /// Accesses in a row at that distance, the first included.
    strided: u32,
    /// It went on where the one before it ended.
    follows: bool,
    /// Nothing is read from this page on: it ends the call that the last access was a part of, and
    /// nobody knows whether its reader goes on there.
    until: Option<u64>,
}

/// Neighbouring pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// First page.
    pub start: u64,
    /// Their number.
    pub count: Pages,
}

impl Run {
    /// The page after the last one.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.start.saturating_add(self.count.0)
    }
}

/// Pages to read now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First page.
    pub start: u64,
    /// Their number; includes the pages asked for when they were missing.
    pub count: Pages,
    /// When the reader comes to this page the next window is due (the page gets the readahead
    /// mark). It lies in the window or in `ahead`.
    pub mark: Option<u64>,
    /// A second run to read without waiting for it: the next access of a strided reader whose pages
    /// are missing now. To leave it out costs speed, never correctness.
    pub ahead: Option<Run>,
}

/// The relation of an access to the ones before it.
enum Pattern {
    Sequential,
    /// The next access is expected here.
    Strided(Run),
    Random,
}

impl Readahead {
    /// The reader wants `access`, as a part of a call that ends at page `end`. `missing`: the first
    /// of these pages that is not in the cache, if any. `on_mark`: it touched a marked page. `max`:
    /// the largest window. Answers what to read, if anything; the answer is not clipped to the
    /// file's size.
    ///
    /// To be called at every access that misses or touches a mark; calls at plain hits sharpen the
    /// picture of the reader and are not needed.
    pub fn on_access(
        &mut self,
        access: Run,
        end: u64,
        missing: Option<u64>,
        on_mark: bool,
        max: Pages,
    ) -> Option<Window> {
        let max = max.at_least(Pages(1));
        let access = Run {
            start: access.start,
            count: access.count.at_least(Pages(1)),
        };
        let pattern = self.observe(access, end, max);
        match missing {
            Some(missing) => self.on_miss(access, missing.max(access.start), &pattern, max),
            None if on_mark => self.on_mark(access, &pattern, max),
            None => None,
        }
    }

    /// Takes the access into the history and says what it looks like.
    fn observe(&mut self, access: Run, end: u64, max: Pages) -> Pattern {
        let distance = i64::try_from(i128::from(access.start) - i128::from(self.last.start));
        let first = self.last.count.is_zero();
        // A reader of odd lengths comes back to the page it had only a part of.
        let follows =
            access.start == self.last.end() || access.start.checked_add(1) == Some(self.last.end());
        let follows = !first && follows;
        let sequential = access.start == 0 || follows;
        if first || access.start != self.last.start {
            self.follows = follows;
        }
        // The parts of a call follow one another, too.
        let is_part = (self.last.start..=self.last.end()).contains(&access.start)
            && self.until.is_some_and(|until| access.end() <= until);
        if !is_part {
            let is_large = end.saturating_sub(access.start) > max.0;
            self.until = (is_large && !self.follows).then_some(end);
        }

        match distance {
            _ if first => self.strided = 1,
            Ok(0) => {}
            Ok(distance) if distance == self.stride => {
                self.strided = self.strided.saturating_add(1)
            }
            Ok(distance) => {
                self.stride = distance;
                self.strided = 2;
            }
            Err(_) => self.strided = 1,
        }
        self.last = access;

        if sequential {
            return Pattern::Sequential;
        }
        let leaps = self.stride.unsigned_abs() > access.count.0;
        match access.start.checked_add_signed(self.stride) {
            Some(start) if leaps && self.strided >= STRIDE_ACCESSES_MIN => Pattern::Strided(Run {
                start,
                count: access.count,
            }),
            _ => Pattern::Random,
        }
    }

    /// The reader waits for `missing`.
    fn on_miss(
        &mut self,
        access: Run,
        missing: u64,
        pattern: &Pattern,
        max: Pages,
    ) -> Option<Window> {
        let wanted = Pages(access.end().saturating_sub(missing)).at_least(Pages(1));
        let outran = !self.window.count.is_zero() && missing == self.window.end();
        if outran {
            return self.advance(wanted, max);
        }
        Some(match *pattern {
            Pattern::Sequential => self.begin(missing, wanted, max),
            Pattern::Strided(next) => {
                let ahead = Run {
                    start: next.start,
                    count: next.count.at_most(max),
                };
                Window {
                    start: missing,
                    count: wanted.at_most(max),
                    mark: Some(ahead.start),
                    ahead: Some(ahead),
                }
            }
            // More than a window at once is a stream, wherever it starts.
            Pattern::Random if wanted > max || self.until.is_some() => {
                self.begin(missing, wanted, max)
            }
            Pattern::Random => Window {
                start: missing,
                count: wanted,
                mark: None,
                ahead: None,
            },
        })
    }

    /// The reader has what it wants, and has come to where the next window is due.
    fn on_mark(&mut self, access: Run, pattern: &Pattern, max: Pages) -> Option<Window> {
        let own = !self.window.count.is_zero() && (access.start..access.end()).contains(&self.mark);
        if own {
            return self.advance(Pages(1), max);
        }
        match *pattern {
            Pattern::Strided(next) => Some(Window {
                start: next.start,
                count: next.count.at_most(max),
                mark: Some(next.start),
                ahead: None,
            }),
            // A mark that another reader of the file has left: join it one window on.
            Pattern::Sequential => self.go_to(access.end(), next_size(access.count, max)),
            Pattern::Random => None,
        }
    }

    /// First window of a stream: what is wanted, and some more.
    fn begin(&mut self, start: u64, wanted: Pages, max: Pages) -> Window {
        let count = initial_size(wanted, max);
        self.window = Run { start, count };
        // Past what is wanted now; if that is all of the window, at its last page.
        let ahead = wanted.0.min(count.0.saturating_sub(1));
        self.mark = start.saturating_add(ahead);
        self.answer()
    }

    /// The window after the present one.
    fn advance(&mut self, wanted: Pages, max: Pages) -> Option<Window> {
        let count = next_size(self.window.count, max).at_least(wanted.at_most(max));
        self.go_to(self.window.end(), count)
    }

    /// The window from `start` on. Its mark is its first page: when the reader enters it, it is
    /// time for the next. None: the call ends before it.
    fn go_to(&mut self, start: u64, count: Pages) -> Option<Window> {
        if self.until.is_some_and(|until| start >= until) {
            // The pages that follow are read when a call wants them, with a mark ahead of them.
            self.window = Run::default();
            return None;
        }
        self.window = Run { start, count };
        self.mark = start;
        Some(self.answer())
    }

    /// The window, as far as the call goes where that bounds it.
    fn answer(&self) -> Window {
        let Run { start, count } = self.window;
        let left = self.until.map(|until| Pages(until.saturating_sub(start)));
        Window {
            start,
            count: left.map_or(count, |left| count.at_most(left)),
            mark: Some(self.mark),
            ahead: None,
        }
    }
}

/// Size of the first window: what is wanted in a power of two, times 4 when small beside `max`,
/// times 2 when middling.
fn initial_size(wanted: Pages, max: Pages) -> Pages {
    let Some(power) = wanted.0.checked_next_power_of_two() else {
        return max;
    };
    let size = if power <= max.0 / 32 {
        power * 4
    } else if power <= max.0 / 4 {
        power * 2
    } else {
        max.0
    };
    Pages(size)
}

/// Size of the next window: times 4 while small, then times 2, up to `max`.
fn next_size(size: Pages, max: Pages) -> Pages {
    if size.0 < max.0 / 16 {
        Pages(size.0 * 4)
    } else if size.0 <= max.0 / 2 {
        Pages(size.0 * 2)
    } else {
        max
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const MAX: Pages = Pages(32);

    impl Readahead {
        /// An access that is a call of its own.
        fn on_call(
            &mut self,
            start: u64,
            count: Pages,
            missing: Option<u64>,
            on_mark: bool,
            max: Pages,
        ) -> Option<Window> {
            let call = Run { start, count };
            self.on_access(call, call.end(), missing, on_mark, max)
        }
    }

    /// A reader, the cache it reads through and what it cost.
    #[derive(Default)]
    struct Bench {
        readahead: Readahead,
        cached: BTreeSet<u64>,
        marked: BTreeSet<u64>,
        windows: Vec<(u64, u64)>,
        waits: u32,
    }

    impl Bench {
        fn access(&mut self, index: u64, count: u64) -> Option<Window> {
            self.part(index, count, index + count)
        }

        /// A part of a call that goes on to page `end`.
        fn part(&mut self, index: u64, count: u64, end: u64) -> Option<Window> {
            let access = Run {
                start: index,
                count: Pages(count),
            };
            let pages = index..index + count;
            let missing = pages.clone().find(|page| !self.cached.contains(page));
            let on_mark = pages.clone().any(|page| self.marked.remove(&page));
            self.waits += u32::from(missing.is_some());
            let window = self.readahead.on_access(access, end, missing, on_mark, MAX);
            if let Some(window) = window {
                assert!(window.count <= MAX);
                if let Some(missing) = missing {
                    assert_eq!(window.start, missing);
                }
                self.windows.push((window.start, window.count.0));
                self.cached
                    .extend(window.start..window.start + window.count.0);
                if let Some(ahead) = window.ahead {
                    self.cached.extend(ahead.start..ahead.end());
                }
                self.marked.extend(window.mark);
            }
            self.cached.extend(pages);
            window
        }
    }

    #[test]
    fn a_sequential_reader_waits_once_and_its_window_doubles() {
        let mut bench = Bench::default();
        for index in 0..200 {
            bench.access(index, 1);
        }
        assert_eq!(bench.waits, 1);
        assert_eq!(
            bench.windows[..5],
            [(0, 4), (4, 8), (12, 16), (28, 32), (60, 32)]
        );
        // Windows touch and do not overlap: every page is read once.
        for pair in bench.windows.windows(2) {
            assert_eq!(pair[0].0 + pair[0].1, pair[1].0);
        }
    }

    #[test]
    fn a_sequential_reader_from_the_middle_is_known_at_its_second_access() {
        let mut bench = Bench::default();
        bench.access(1000, 4);
        assert_eq!(bench.windows, [(1000, 4)]);
        bench.access(1004, 4);
        assert_eq!(bench.windows[1], (1004, 8));
        for index in (1008..1200).step_by(4) {
            bench.access(index, 4);
        }
        assert_eq!(bench.waits, 2);
    }

    #[test]
    fn reads_larger_than_the_window_stream_at_the_maximum() {
        let mut bench = Bench::default();
        let window = bench
            .readahead
            .on_call(500, Pages(100), Some(500), false, MAX);
        let window = window.expect("something is missing");
        assert_eq!(
            (window.start, window.count, window.mark),
            (500, Pages(32), Some(531))
        );
        let next = bench
            .readahead
            .on_call(500, Pages(100), Some(532), false, MAX);
        let next = next.expect("something is missing");
        assert_eq!((next.start, next.count), (532, Pages(32)));
    }

    #[test]
    fn a_call_for_more_than_a_window_is_read_up_to_its_end_and_what_follows_it_beyond() {
        for start in [0, 500] {
            let mut bench = Bench::default();
            let call = |bench: &mut Bench, from: u64, end| {
                for part in (from..end).step_by(16) {
                    bench.part(part, 16.min(end - part), end);
                }
            };
            call(&mut bench, start, start + 100);
            assert_eq!(bench.cached.last(), Some(&(start + 99)));
            assert_eq!(bench.waits, 1, "{:?}", bench.windows);
            // Taken up again at a part, by a reader that could not wait for it.
            call(&mut bench, start + 32, start + 100);
            assert_eq!(bench.cached.last(), Some(&(start + 99)));
            call(&mut bench, start + 100, start + 200);
            assert!(bench.cached.last() > Some(&(start + 199)));
            assert_eq!(bench.waits, 2, "{:?}", bench.windows);
            // Also where its first part came as a call of its own.
            bench.access(start + 200, 16);
            call(&mut bench, start + 200, start + 300);
            assert!(bench.cached.last() > Some(&(start + 299)));
        }
    }

    #[test]
    fn a_stream_of_large_calls_that_end_with_a_window_waits_once_for_each_of_the_first_two() {
        let mut bench = Bench::default();
        for call in 0..10 {
            let end = (call + 1) * 64;
            for part in (call * 64..end).step_by(16) {
                bench.part(part, 16, end);
            }
        }
        assert_eq!(bench.waits, 2, "{:?}", bench.windows);
    }

    #[test]
    fn a_reader_that_outran_its_window_goes_on_behind_it() {
        let mut readahead = Readahead::default();
        readahead.on_call(0, Pages(1), Some(0), false, MAX);
        let window = readahead
            .on_call(4, Pages(1), Some(4), false, MAX)
            .expect("a miss");
        assert_eq!(
            (window.start, window.count, window.mark),
            (4, Pages(8), Some(4))
        );
    }

    #[test]
    fn a_strided_reader_gets_its_next_access_from_the_third_on() {
        let mut bench = Bench::default();
        for step in 0..20 {
            bench.access(7 + step * 100, 3);
        }
        assert_eq!(bench.waits, 3);
        // Nothing of the gaps was read.
        assert_eq!(bench.cached.len(), 3 * 21);
    }

    #[test]
    fn a_stride_may_run_backwards_and_ends_at_zero() {
        let mut bench = Bench::default();
        for step in 0..10 {
            bench.access(1000 - step * 100, 2);
        }
        assert_eq!(bench.waits, 3);
        // The ten accesses, and page 0, the next.
        assert_eq!(bench.cached.len(), 2 * 11);
        bench.access(0, 2);
        assert_eq!(bench.waits, 3);
    }

    #[test]
    fn a_random_reader_gets_nothing_extra() {
        let mut bench = Bench::default();
        let mut index = 12345_u64;
        let mut asked = BTreeSet::new();
        for _ in 0..500 {
            index = index
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695)
                % (1 << 40);
            asked.extend(index + 1..index + 3);
            bench.access(index + 1, 2);
        }
        assert_eq!(bench.cached, asked);
    }

    #[test]
    fn reading_one_page_again_and_again_reads_nothing_more() {
        let mut bench = Bench::default();
        for _ in 0..10 {
            bench.access(77, 1);
        }
        assert_eq!(bench.windows, [(77, 1)]);
    }

    #[test]
    fn two_readers_of_one_file_share_marks() {
        let mut readahead = Readahead::default();
        readahead.on_call(40, Pages(1), None, false, MAX);
        let window = readahead
            .on_call(41, Pages(1), None, true, MAX)
            .expect("on a mark");
        assert_eq!((window.start, window.count), (42, Pages(4)));
    }

    #[test]
    fn the_ends_of_the_number_range_do_no_harm() {
        let mut readahead = Readahead::default();
        for index in [u64::MAX, 0, u64::MAX - 1, u64::MAX, 5] {
            for max in [0, 1, 32, u64::MAX] {
                for count in [0, 1, u64::MAX] {
                    let missing = Some(index);
                    readahead.on_call(index, Pages(count), missing, true, Pages(max));
                    readahead.on_call(index, Pages(count), None, true, Pages(max));
                }
            }
        }
    }
}
