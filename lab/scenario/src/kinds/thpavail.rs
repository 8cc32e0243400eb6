//! `thpavail`: all memory touched beside two copies (mmtests' thpavail, paper p4's test).

use crate::keys::{May, keys, range, words};
use crate::limits::{BLOCK, FILE_MIB, MADE};
use crate::mistake::Mistake;
use crate::task::{Around, Files, Kind, Traits, Writes};
use crate::units::MEMORY_MOST_MIB;
use toml::Spanned;

keys! {
    /// Copies from one device and to another, and touches all memory beside that.
    Keys:
        from: Spanned<String>, "The device that it reads from.";
        file_mib: Spanned<f64>, "Bytes of the file that it reads, from its front again when it is through; scaled.", FILE_MIB;
        total_mib: Spanned<f64>, "It writes its copy from the start again when it has so much; scaled.", range(1.0, MEMORY_MOST_MIB, " MiB");
        loops: Spanned<u32>, "Iterations.", MADE;
        file_ends: May<FileEndsKind>, "The end of its file in each iteration: removed (without the key), or synced.";
        block_kib: May<f64>, "Bytes of one call; scaled, as a read-ahead window is.", BLOCK;
}

words! {
    /// The end of the file that a `thpavail` writes, in each iteration.
    FileEndsKind:
        Removed = "removed", "It is removed, and what was dirty of it is thrown away.";
        Synced = "synced", "It stays, and is written out.";
}

impl Kind for Keys {
    /// Not heavy: its copy is one of several things that it measures.
    fn traits(&self) -> Traits {
        Traits {
            files: Files::Written,
            writes: Writes::Over,
            ..Traits::NONE
        }
    }

    fn check(&self, around: &Around) -> Vec<Mistake> {
        // It swaps out what it cannot keep.
        let mut found = Vec::new();
        if !around.has_swap {
            let mistake = Mistake::new(
                "a thpavail touches as much memory as there is, and there is no swap file",
                around.id.clone(),
                "it would run out of memory",
            );
            let mistake = mistake.also(around.memory_mib.span(), "the memory");
            found.push(mistake.help("add `swap = { device = \"...\", mib = ... }` to the machine"));
        }
        found
    }
}
