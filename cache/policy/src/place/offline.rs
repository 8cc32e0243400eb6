//! Which chunks of memory go out of use when a limit is lowered: those that are cheapest to empty,
//! of each zone its part.
//!
//! A page that is in use can be moved to another chunk. A page that is pinned, or on its way to or
//! from a device, cannot, and its chunk has to wait for it. A free chunk costs nothing.
//!
//! Invariants
//!   1. The limit stays in use, to the frame, if it is whole chunks or all there is.
//!   2. A chunk of fewer frames than the others, the last, goes first and comes back last.
//!   3. Of each zone its part by size is out, to a chunk or so; a higher limit takes no chunk of
//!      any zone out that is in.
//!
//! Source: ours. Linux takes the block that memory hotplug names (6.12 mm/memory_hotplug.c,
//! offline_pages()).

use crate::units::Pages;

/// The pages in a chunk.
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
    // A chunk that is out and empty already comes first, then a chunk that costs nothing.
    let known = u64::from(!(chunk.is_out && chunk.is_absent));
    (stuck + u64::from(chunk.movable)) * 2 + known
}

/// A zone's chunks, and how many of them go.
struct Part {
    zone: u8,
    chunks: Vec<usize>,
    out: usize,
}

impl Part {
    /// Twice the middle of the part that it has out, if one more goes, as a fraction (Sainte-Laguë:
    /// the parts grow one by one).
    fn next_part(&self) -> (u64, u64) {
        (2 * self.out as u64 + 1, self.chunks.len() as u64)
    }
}

/// Which of these chunks are out of use under a limit: as many as leave the least that is not below
/// it.
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
    let mut zones: Vec<Part> = Vec::new();
    for at in whole() {
        let zone = chunks[at].zone;
        match zones.last_mut() {
            Some(part) if part.zone == zone => part.chunks.push(at),
            _ => zones.push(Part {
                zone,
                chunks: vec![at],
                out: 0,
            }),
        }
    }
    for _ in 0..count {
        // One after the other, so that a limit that is raised takes nothing out of any zone.
        let next = zones.iter_mut().filter(|part| part.out < part.chunks.len());
        let Some(next) = next.min_by(|a, b| {
            let (a, b) = (a.next_part(), b.next_part());
            (a.0 * b.1).cmp(&(b.0 * a.1))
        }) else {
            break;
        };
        next.out += 1;
    }
    for part in &mut zones {
        // The last ones first where nothing else tells them apart.
        part.chunks
            .sort_by_key(|at| (cost(&chunks[*at], size), core::cmp::Reverse(*at)));
        for at in &part.chunks[..part.out] {
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
        assert_eq!(of(8 * 512), (1, 0));
    }

    #[test]
    fn a_limit_that_is_raised_takes_no_chunk_out() {
        for sizes in [
            &[5, 2, 3][..],
            &[3, 61, 64],
            &[4, 4, 4, 4, 4],
            &[128, 128, 127, 128],
        ] {
            let zones = (0u8..).zip(sizes);
            let mut chunks: Vec<Chunk> = zones
                .flat_map(|(zone, count)| vec![chunk(zone, 7, 0); *count])
                .collect();
            let all = chunks.len() as u64;
            let mut before = choose(&chunks, Pages(0));
            for limit in 1..=all {
                for (chunk, is_out) in chunks.iter_mut().zip(&before) {
                    (chunk.is_out, chunk.is_absent) = (*is_out, *is_out);
                    chunk.movable = if *is_out { 0 } else { 7 };
                }
                let out = choose(&chunks, Pages(limit * 512));
                assert!(
                    out.iter().zip(&before).all(|(now, was)| *was || !now),
                    "{sizes:?} {limit}"
                );
                assert_eq!(out.iter().filter(|out| **out).count() as u64, all - limit);
                before = out;
            }
        }
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
