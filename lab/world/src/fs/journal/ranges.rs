//! Sets of page numbers, as ranges that do not touch.

use std::collections::BTreeMap;

/// A set of pages.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges {
    /// First page -> the page after the last.
    ends: BTreeMap<u64, u64>,
}

impl Ranges {
    /// True if all of `first..end` is in it.
    pub(super) fn covers(&self, first: u64, end: u64) -> bool {
        first >= end
            || self
                .ends
                .range(..=first)
                .next_back()
                .is_some_and(|(_, last)| *last >= end)
    }

    /// Adds `first..end`; answers how many pages are new.
    pub(super) fn insert(&mut self, first: u64, end: u64) -> u64 {
        if first >= end {
            return 0;
        }
        let (mut from, mut to, mut had) = (first, end, 0);
        let touching: Vec<(u64, u64)> = self
            .ends
            .range(..=end)
            .rev()
            .take_while(|(_, last)| **last >= first)
            .map(|(start, last)| (*start, *last))
            .collect();
        for (start, last) in touching {
            had += last.min(end).saturating_sub(start.max(first));
            (from, to) = (from.min(start), to.max(last));
            self.ends.remove(&start);
        }
        self.ends.insert(from, to);
        end - first - had
    }

    /// Takes all pages from `from` on away.
    pub(super) fn cut(&mut self, from: u64) {
        self.ends.split_off(&from);
        if let Some((_, last)) = self.ends.range_mut(..from).next_back() {
            *last = (*last).min(from);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn it_is_the_set_that_a_set_of_numbers_is() {
        let mut seed = 7_u64;
        let mut below = |most: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % most
        };
        let (mut ranges, mut model) = (Ranges::default(), BTreeSet::new());
        for _ in 0..4_000 {
            let first = below(60);
            let end = first + below(12);
            match below(8) {
                0 => {
                    ranges.cut(first);
                    model.split_off(&first);
                }
                1..=4 => {
                    let new = (first..end).filter(|page| model.insert(*page)).count();
                    assert_eq!(ranges.insert(first, end), new as u64);
                }
                _ => {
                    let all = (first..end).all(|page| model.contains(&page));
                    assert_eq!(ranges.covers(first, end), all, "{first}..{end} {ranges:?}");
                }
            }
            let pages: u64 = ranges.ends.iter().map(|(first, end)| end - first).sum();
            assert_eq!(pages, model.len() as u64);
        }
    }
}
