//! A pass's treatment of a page that is to be moved: a table of the page's state against the pass's
//! rights.
//!
//! ```text
//!   taken off its list?   under writeback: if the pass takes those      dirty: all, those its file system can move, none
//!   in each round         busy ............. Again
//!                         under writeback .. Refuse | Again, and Wait once it insists
//!                         dirty, a copy .... Move
//!                         dirty, buffers ... Move | Refuse
//!                         dirty, neither ... Write (then it is under writeback) | Refuse
//!                         clean ............ Move
//! ```
//!
//! Source: mechanisms 8.2; kernel-facts A2, A4; Linux 3.1, 3.2 and 3.3 mm/migrate.c,
//! unmap_and_move(), move_to_new_page(), fallback_migrate_page(); mm/compaction.c,
//! isolate_migratepages().
//! Deviation: a buffer is locked only while its page is under writeback, so that nobody ever waits
//! for one alone.

use policy::place::mobility::Migrates;

use super::law::{Moves, OnDirty, OnWriteback, TakesDirty};

/// The state of a page as a pass sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Somebody has its busy bit, or holds it pinned.
    pub busy: bool,
    /// Its content is nowhere else.
    pub dirty: bool,
    /// Being written.
    pub writeback: bool,
    /// The ability of its file system to move it if it is dirty. Anonymous pages are copied.
    pub migrates: Migrates,
}

/// The verdict on a page in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is moved.
    Move,
    /// It comes again in the next round.
    Again,
    /// It is written by itself, and comes again.
    Write,
    /// Its write is waited for; then it is looked at again, in the same round.
    Wait,
    /// It is put back, for good.
    Refuse,
}

/// True if a pass takes the page off its list.
#[must_use]
pub fn takes(moves: &Moves, seen: &Seen) -> bool {
    if seen.writeback && !moves.takes_writeback {
        return false;
    }
    let takes_dirty = match moves.takes_dirty {
        TakesDirty::All => true,
        TakesDirty::IfMovable => seen.migrates != Migrates::WritesPage,
        TakesDirty::None => false,
    };
    takes_dirty || !seen.dirty
}

/// The verdict on a page in a round, from 0 on.
#[must_use]
pub fn judge(moves: &Moves, seen: &Seen, round: u8) -> Verdict {
    let insists = round >= moves.insists_from;
    if seen.busy {
        return Verdict::Again;
    }
    if seen.writeback {
        return match moves.writeback {
            OnWriteback::Refuse => Verdict::Refuse,
            OnWriteback::Wait if insists => Verdict::Wait,
            OnWriteback::Again | OnWriteback::Wait => Verdict::Again,
        };
    }
    if !seen.dirty {
        return Verdict::Move;
    }
    let on_dirty = match seen.migrates {
        Migrates::Copy => return Verdict::Move,
        Migrates::Buffers => moves.buffers,
        Migrates::WritesPage => moves.unmovable,
    };
    match on_dirty {
        _ if moves.refuses_dirty_at_first && !insists => Verdict::Refuse,
        OnDirty::Refuse => Verdict::Refuse,
        OnDirty::Move => Verdict::Move,
        OnDirty::Write => Verdict::Write,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compact::law::Scans;
    use crate::compact::patches::{Patch, Patches};

    const CLEAN: Seen = Seen {
        busy: false,
        dirty: false,
        writeback: false,
        migrates: Migrates::Copy,
    };

    /// A page's treatment, in one word for isolation and one for each of rounds 0 and 3.
    fn says(moves: &Moves, seen: &Seen) -> String {
        if !takes(moves, seen) {
            return "-".to_owned();
        }
        format!("{:?} {:?}", judge(moves, seen, 0), judge(moves, seen, 3))
    }

    /// kernel-facts A4, row by row.
    #[test]
    fn the_table_of_the_columns() {
        let dirty = |migrates| Seen {
            dirty: true,
            migrates,
            ..CLEAN
        };
        let writeback = Seen {
            writeback: true,
            ..CLEAN
        };
        let rows = [
            CLEAN,
            writeback,
            dirty(Migrates::Copy),
            dirty(Migrates::Buffers),
            dirty(Migrates::WritesPage),
            Seen {
                busy: true,
                ..CLEAN
            },
        ];
        let of = |moves: &Moves| rows.map(|seen| says(moves, &seen)).join(" | ");
        let v33 = Scans::of(Patches::up_to(8));
        for (moves, what) in [
            (
                Scans::LINUX_3_1.first,
                "Move Move | Refuse Refuse | Move Move | Refuse Refuse | Refuse Refuse | Again Again",
            ),
            (
                Scans::LINUX_3_2.last,
                "Move Move | Again Wait | Move Move | Move Move | Write Write | Again Again",
            ),
            (
                Scans::LINUX_3_2.first,
                "Move Move | - | - | - | - | Again Again",
            ),
            (
                v33.first,
                "Move Move | - | Move Move | Move Move | - | Again Again",
            ),
            (
                v33.last,
                "Move Move | Refuse Refuse | Move Move | Move Move | Refuse Refuse | Again Again",
            ),
            // kernel-facts A2: a page that is dirty at first is refused for good, a page that is
            // being written is waited for.
            (
                Scans::ANDREA.last,
                "Move Move | Again Wait | Move Move | Refuse Move | Refuse Write | Again Again",
            ),
        ] {
            assert_eq!(of(&moves), what);
        }
    }

    #[test]
    fn patch_six_leaves_vfat_alone_and_one_alone_takes_it_in_vain() {
        let dirty = Seen {
            dirty: true,
            migrates: Migrates::WritesPage,
            ..CLEAN
        };
        let of = |patches| says(&Scans::of(patches).first, &dirty);
        let one = Patches::NONE.with(Patch::IsolateDirty);
        assert_eq!(of(Patches::NONE), "-");
        assert_eq!(of(one), "Refuse Refuse");
        assert_eq!(of(one.with(Patch::Filter)), "-");
    }
}
