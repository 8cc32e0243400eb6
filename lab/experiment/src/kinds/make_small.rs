//! `make_small`: as `fs_mark`, with inodes and entries that take memory.

use policy::units::Nanos;
use toml::Spanned;
use workload::{MakeSmall, Work, make_small};

use crate::keys::keys;
use crate::limits::{FILE_KIB, MADE};
use crate::task::{Ends, Facts, Files, Given, Kind, Sizes, Traits, Writes};

keys! {
    /// Makes small files whose inodes and entries take memory, in a directory of its own, in rounds
    /// with the others of its entry.
    Keys:
        files_per_loop: Spanned<u32>, "Files that a task makes in a round; scaled.", MADE;
        loops: Spanned<u32>, "Rounds.", MADE;
        file_kib: Spanned<f64>, "Bytes of one file: whole pages.", FILE_KIB;
}

impl Keys {
    fn options(&self, at: &Sizes) -> MakeSmall {
        MakeSmall {
            files_per_loop: at.count(*self.files_per_loop.get_ref()),
            loops: *self.loops.get_ref(),
            // A file stands for as many more of the full size.
            think: Nanos(world::fs::costs::p3::USER.0 * at.costs),
            for_at_most: at.run_for,
        }
    }
}

impl Kind for Keys {
    fn traits(&self) -> Traits {
        Traits {
            files: Files::SmallMade,
            ends: Ends::Early,
            writes: Writes::Once,
            ..Traits::NONE
        }
    }

    fn facts(&self, at: &Sizes) -> Facts {
        Facts {
            files_a_round: self.options(at).files_per_loop.into(),
            ..Facts::default()
        }
    }

    fn work(&self, at: &Sizes, mut given: Given) -> Work {
        let (options, (small, directory)) = (self.options(at), given.small());
        let barrier = given.barrier;
        Work::new(move |task, cache, run| {
            make_small(task, cache, (&small, directory, &barrier), &options, run)
        })
    }
}
