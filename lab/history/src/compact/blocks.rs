//! Which block is emptied for a run, and what becomes of the pages in it (ours).
//!
//! A run costs 2^order frames however it is got: they have to be free in any case. The search among
//! frames that came free here and there can be saved. So a request looks at a few blocks, and
//! empties the cheapest: pages that were read once are dropped, as reclaim would drop them; pages
//! in use move, dirty or not, by a copy. It never waits for a device and never reclaims: a block in
//! which something is being written, read or looked at is not for now.
//!
//! ```text
//!   cost = moves * MOVE + drops * DROP          not for now: something busy, pinned, being written; a run; more than 1/8 to move
//!   frames that it takes from what is free: those free in the block, and one for each page that moves
//! ```
//!
//! That is worth something only if blocks hold pages that come free together. So pages lie with
//! their like (`Mobility::of_page`): what is read, which can be dropped whole; what is written,
//! which stays as long as its device takes; and the rest.
//!
//! Invariants
//!   1. No page in use leaves memory for its place: it moves.
//!   2. Nothing is emptied for which there are not enough free frames above the reserve.
//!
//! Source: ours.

use super::law::Blocks;

/// The costs of a page that moves, and of one that is dropped: a copy beside a step of reclaim.
const MOVE: u32 = 4;
const DROP: u32 = 1;
/// At most this part of a block moves while somebody waits: 64 pages of 512, some 130 us.
const MOVED_PART: u32 = 8;

/// The pages in a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Free frames.
    pub free: u32,
    /// Pages that would be dropped.
    pub drops: u32,
    /// Pages that would move.
    pub moves: u32,
}

/// A page in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Somebody looks at it or changes it, it is being written or read, or is none that can be
    /// moved.
    pub held: bool,
    /// Of a file.
    pub file: bool,
    /// Its content is nowhere else.
    pub dirty: bool,
    /// It was used.
    pub referenced: bool,
    /// It was used more than once.
    pub active: bool,
}

/// The fate of a page of a block that is emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The block is not for now.
    Stays,
    /// It is dropped.
    Drops,
    /// It moves.
    Moves,
}

impl Blocks {
    /// The fate of a page, were its block emptied. A page that was read ahead and not yet used is
    /// still to be used: it moves.
    #[must_use]
    pub fn fate(&self, seen: &Seen) -> Fate {
        let read_once = seen.file && !seen.dirty && seen.referenced && !seen.active;
        if seen.held {
            Fate::Stays
        } else if read_once && self.drops {
            Fate::Drops
        } else {
            Fate::Moves
        }
    }

    /// The cost of emptying a block of `size` frames; `None`: not now.
    #[must_use]
    pub fn cost(&self, found: &Found, size: u32) -> Option<u32> {
        let all = found.free + found.drops + found.moves == size;
        let few = found.moves <= Self::moves_most(size);
        (all && few).then_some(found.moves * MOVE + found.drops * DROP)
    }

    /// Pages of a block of `size` frames that may move.
    #[must_use]
    pub fn moves_most(size: u32) -> u32 {
        (size / MOVED_PART).max(1)
    }

    /// True if a block of that cost is better than the best so far.
    #[must_use]
    pub fn is_better(&self, best: Option<u32>, cost: u32) -> bool {
        best.is_none_or(|best| self.by_cost && cost < best)
    }

    /// True if no further block is looked at.
    #[must_use]
    pub fn is_enough(&self, cost: u32, size: u32) -> bool {
        !self.by_cost || cost <= size * DROP
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ_ONCE: Seen = Seen {
        held: false,
        file: true,
        dirty: false,
        referenced: true,
        active: false,
    };

    #[test]
    fn only_what_was_read_once_is_dropped() {
        let law = Blocks::TIDEGATE;
        assert_eq!(law.fate(&READ_ONCE), Fate::Drops);
        for moves in [
            Seen {
                referenced: false,
                ..READ_ONCE
            },
            Seen {
                active: true,
                ..READ_ONCE
            },
            Seen {
                dirty: true,
                ..READ_ONCE
            },
            Seen {
                file: false,
                ..READ_ONCE
            },
        ] {
            assert_eq!(law.fate(&moves), Fate::Moves, "{moves:?}");
        }
        let held = Seen {
            held: true,
            ..READ_ONCE
        };
        assert_eq!(law.fate(&held), Fate::Stays);
        let keeps = Blocks {
            drops: false,
            ..law
        };
        assert_eq!(keeps.fate(&READ_ONCE), Fate::Moves);
    }

    #[test]
    fn the_cheapest_block_that_can_be_emptied_now() {
        let law = Blocks::TIDEGATE;
        let cost = |free, drops, moves| law.cost(&Found { free, drops, moves }, 512);
        assert_eq!(cost(0, 512, 0), Some(512));
        assert_eq!(cost(448, 0, 64), Some(256));
        assert_eq!(cost(447, 0, 65), None, "too much to move");
        assert_eq!(cost(300, 211, 0), None, "one is held");
        assert!(law.is_better(None, 900) && law.is_better(Some(900), 899));
        assert!(!law.is_better(Some(512), 512), "the first of equals");
        assert!(law.is_enough(512, 512) && !law.is_enough(513, 512));
    }
}
