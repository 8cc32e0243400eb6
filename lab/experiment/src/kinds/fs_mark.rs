//! `fs_mark`: makes many files, in rounds with the others of its entry.

use policy::units::Bytes;
use toml::Spanned;
use workload::{FsMark, Work, fs_mark};

use crate::keys::{May, keys, value};
use crate::limits::{BLOCK, FILE_KIB, MADE};
use crate::mistake::Mistake;
use crate::task::units::FILES_MADE_MOST;
use crate::task::units::kib;
use crate::task::{Around, Facts, Files, Given, Kind, Sizes, Traits, Writes};

/// Block (its `IO_BUFFER_SIZE`).
const BLOCK_KIB: f64 = 16.0;

keys! {
    /// Makes files, in rounds with the others of its entry. The files stay.
    Keys:
        files_per_loop: Spanned<u32>, "Files that a task makes in a round; scaled.", MADE;
        loops: Spanned<u32>, "Rounds.", MADE;
        file_kib: Spanned<f64>, "Bytes of one file.", FILE_KIB;
        block_kib: May<f64>, "Bytes of one call.", BLOCK;
        inodes: May<bool>, "Its files have entries and inodes in memory, of ext3 in Linux 3.0. Without it they have none.";
}

impl Keys {
    fn options(&self, at: &Sizes) -> FsMark {
        FsMark {
            files_per_loop: at.count(*self.files_per_loop.get_ref()),
            loops: *self.loops.get_ref(),
            file: kib(*self.file_kib.get_ref()),
            block: at.block(&self.block_kib, BLOCK_KIB),
        }
    }
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

    fn facts(&self, at: &Sizes) -> Facts {
        let options = self.options(at);
        Facts {
            block: options.block,
            makes: Some((options.files(), Bytes(options.files() * options.file.0))),
            files_a_round: options.files_per_loop.into(),
            has_inodes: value(&self.inodes).unwrap_or(false),
            ..Facts::default()
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

    fn work(&self, at: &Sizes, mut given: Given) -> Work {
        let (options, folder) = (self.options(at), given.folder());
        let (inodes, barrier) = (given.inodes, given.barrier);
        Work::new(move |task, cache, run| {
            let around = (&*folder, inodes.as_deref(), &*barrier);
            fs_mark(task, cache, around, &options, run)
        })
    }
}
