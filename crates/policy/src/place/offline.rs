//! Which chunks of memory go out of use when a limit is lowered: those that are cheapest to empty, of each zone its part.
//!
//! A page that is in use can be moved to another chunk; one that is pinned, or on its way to or from a device, cannot, and
//! its chunk has to wait for it. A free chunk costs nothing.
//!
//! Invariants
//!   1. What stays in use is the limit, to the frame, if the limit is whole chunks or all there is.
//!   2. A chunk of fewer frames than the others, the last, goes first and comes back last.
//!   3. Of each zone no more than a chunk is out beyond its part by size.
//!
//! Source: ours. Linux takes the block that memory hotplug names (6.12 mm/memory_hotplug.c, offline_pages()).

use crate::units::Pages;

/// What is in a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// Its zone.
    pub zone: u8,
    /// Its frames.
    pub frames: u32,
    /// It is out of use.
    pub is_out: bool,
    /// Its memory is the system's.
    pub is_absent: bool,
    /// Pages in it that can be moved or freed.
    pub movable: u32,
    /// Pages in it that cannot in this moment.
    pub stuck: u32,
}

/// A chunk with one page that cannot go costs more than one full of pages that can.
fn cost(chunk: &Chunk, movable_most: u32) -> u64 {
    let stuck = u64::from(chunk.stuck) * u64::from(movable_most + 1);
    // What is out and empty already comes first, then what costs nothing.
    let known = u64::from(!(chunk.is_out && chunk.is_absent));
    (stuck + u64::from(chunk.movable)) * 2 + known
}

/// Which of these chunks are out of use under a limit: as many as leave the least that is not below it.
#[must_use]
pub fn choose(chunks: &[Chunk], limit: Pages) -> Vec<bool> {
    let mut out = vec![false; chunks.len()];
    let Some(size) = chunks.iter().map(|chunk| chunk.frames).max() else {
        return out;
    };
    let all: u64 = chunks.iter().map(|chunk| u64::from(chunk.frames)).sum();
    let mut above = all.saturating_sub(limit.0);
    // The short one, without which what is left is whole chunks.
    if let (Some(last), Some(is_out)) = (chunks.last(), out.last_mut())
        && last.frames < size
        && above >= u64::from(last.frames)
    {
        *is_out = true;
        above -= u64::from(last.frames);
    }
    let count = above / u64::from(size);
    let whole = || (0..chunks.len()).filter(|at| chunks[*at].frames == size);
    let all = whole().count() as u64;
    let (mut before, mut given) = (0, 0);
    let mut zones: Vec<u8> = whole().map(|at| chunks[at].zone).collect();
    zones.dedup();
    for zone in zones {
        let mut own: Vec<usize> = whole().filter(|at| chunks[*at].zone == zone).collect();
        before += own.len() as u64;
        let until = count * before / all;
        let part = usize::try_from(until - given).expect("no more than there are");
        given = until;
        // The last ones first where nothing else tells them apart.
        own.sort_by_key(|at| (cost(&chunks[*at], size), core::cmp::Reverse(*at)));
        for at in &own[..part] {
            out[*at] = true;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(zone: u8, movable: u32, stuck: u32) -> Chunk {
        Chunk {
            zone,
            frames: 512,
            movable,
            stuck,
            ..Chunk::default()
        }
    }

    fn chosen(chunks: &[Chunk], limit: u64) -> Vec<usize> {
        let out = choose(chunks, Pages(limit));
        let left: u64 = chunks
            .iter()
            .zip(&out)
            .filter(|(_, out)| !**out)
            .map(|(chunk, _)| u64::from(chunk.frames))
            .sum();
        assert!(left >= limit.min(chunks.iter().map(|chunk| u64::from(chunk.frames)).sum()));
        assert!(
            left < limit + 512 || out.iter().all(|out| !out),
            "{left} for {limit}"
        );
        (0..chunks.len()).filter(|at| out[*at]).collect()
    }

    #[test]
    fn the_cheapest_go_and_one_that_is_stuck_is_dearer_than_any_other() {
        let chunks = [
            chunk(0, 500, 0),
            chunk(0, 512, 0),
            chunk(0, 0, 1),
            chunk(0, 10, 0),
        ];
        assert_eq!(chosen(&chunks, 2048), []);
        assert_eq!(chosen(&chunks, 1536), [3]);
        assert_eq!(chosen(&chunks, 1024), [0, 3]);
        assert_eq!(chosen(&chunks, 512), [0, 1, 3]);
        assert_eq!(chosen(&chunks, 0), [0, 1, 2, 3]);
    }

    #[test]
    fn the_last_ones_go_where_all_are_alike_and_what_is_out_stays_out() {
        let mut chunks = [chunk(0, 0, 0); 4];
        assert_eq!(chosen(&chunks, 1024), [2, 3]);
        chunks[1].is_out = true;
        chunks[1].is_absent = true;
        assert_eq!(chosen(&chunks, 1024), [1, 3]);
        assert_eq!(chosen(&chunks, 1100), [1], "rounded up");
    }

    #[test]
    fn each_zone_has_its_part() {
        let mut chunks = vec![chunk(0, 100, 0); 6];
        chunks.extend([chunk(1, 0, 0); 3]);
        let of = |limit| {
            let out = chosen(&chunks, limit);
            let first = out.iter().filter(|at| **at < 6).count();
            (first, out.len() - first)
        };
        assert_eq!(of(9 * 512), (0, 0));
        assert_eq!(of(6 * 512), (2, 1));
        assert_eq!(of(3 * 512), (4, 2));
        assert_eq!(of(8 * 512), (0, 1));
    }

    #[test]
    fn a_short_last_chunk_goes_first_and_comes_back_last() {
        let mut chunks = [chunk(0, 0, 0); 3];
        chunks[2] = Chunk {
            frames: 100,
            stuck: 9,
            ..chunks[2]
        };
        assert_eq!(chosen(&chunks, 1124), []);
        assert_eq!(chosen(&chunks, 1024), [2]);
        assert_eq!(
            chosen(&chunks, 1025),
            [],
            "the short one alone does not do, and a whole one is too much"
        );
        assert_eq!(chosen(&chunks, 512), [1, 2]);
        assert_eq!(choose(&[], Pages(7)), Vec::<bool>::new());
    }
}
