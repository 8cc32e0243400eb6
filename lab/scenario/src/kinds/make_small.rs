//! `make_small`: as `fs_mark`, with inodes and entries that take memory.

use crate::keys::keys;
use crate::limits::{FILE_KIB, MADE};
use crate::task::{Ends, Files, Kind, Traits, Writes};
use toml::Spanned;

keys! {
    /// Makes small files whose inodes and entries take memory, in a directory of its own, in rounds
    /// with the others of its entry.
    Keys:
        files_per_loop: Spanned<u32>, "Files that a task makes in a round; scaled.", MADE;
        loops: Spanned<u32>, "Rounds.", MADE;
        file_kib: Spanned<f64>, "Bytes of one file: whole pages.", FILE_KIB;
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
}
