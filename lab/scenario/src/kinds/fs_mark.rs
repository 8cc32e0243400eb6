//! `fs_mark`: makes many files, in rounds with the others of its entry.

use crate::keys::{May, keys};
use crate::limits::{BLOCK, FILE_KIB, MADE};
use crate::mistake::Mistake;
use crate::task::{Around, Files, Kind, Traits, Writes};
use crate::units::FILES_MADE_MOST;
use toml::Spanned;

keys! {
    /// Makes files, in rounds with the others of its entry. The files stay.
    Keys:
        files_per_loop: Spanned<u32>, "Files that a task makes in a round; scaled.", MADE;
        loops: Spanned<u32>, "Rounds.", MADE;
        file_kib: Spanned<f64>, "Bytes of one file.", FILE_KIB;
        block_kib: May<f64>, "Bytes of one call.", BLOCK;
        inodes: May<bool>, "Its files have entries and inodes in memory, of ext3 in Linux 3.0. Without it they have none.";
}

impl Kind for Keys {
    /// Not heavy: its files are many and small, and what each task dirtied when would be most of
    /// what a run keeps.
    fn traits(&self) -> Traits {
        Traits {
            files: Files::Made,
            writes: Writes::Once,
            ..Traits::NONE
        }
    }

    fn check(&self, around: &Around) -> Vec<Mistake> {
        let each = f64::from(*self.files_per_loop.get_ref()) * around.scale;
        let made = each.max(1.0) * f64::from(*self.loops.get_ref()) * around.count;
        if made <= FILES_MADE_MOST {
            return Vec::new();
        }
        let mistake = Mistake::new(
            format!("{made:.0} files are more than a run keeps"),
            self.loops.span(),
            format!("all files together may be {FILES_MADE_MOST}"),
        );
        vec![mistake.help("lower `loops`, `files_per_loop`, `count` or the scale")]
    }
}
