//! `fs_mark`: makes many files, in rounds with the others of its entry.

use crate::task::{Facts, Given, Load, Sizes};
use policy::units::Bytes;
use scenario::keys::value;
use scenario::kinds::fs_mark::Keys;
use scenario::units::kib;
use workload::{FsMark, Work, fs_mark};

/// Block (its `IO_BUFFER_SIZE`).
const BLOCK_KIB: f64 = 16.0;

fn options(keys: &Keys, at: &Sizes) -> FsMark {
    FsMark {
        files_per_loop: at.count(*keys.files_per_loop.get_ref()),
        loops: *keys.loops.get_ref(),
        file: kib(*keys.file_kib.get_ref()),
        block: at.block(&keys.block_kib, BLOCK_KIB),
    }
}

impl Load for Keys {
    fn facts(&self, at: &Sizes) -> Facts {
        let options = options(self, at);
        Facts {
            block: options.block,
            makes: Some((options.files(), Bytes(options.files() * options.file.0))),
            files_a_round: options.files_per_loop.into(),
            has_inodes: value(&self.inodes).unwrap_or(false),
            ..Facts::default()
        }
    }

    fn work(&self, at: &Sizes, mut given: Given) -> Work {
        let (options, folder) = (options(self, at), given.folder());
        let (inodes, barrier) = (given.inodes, given.barrier);
        Work::new(move |task, cache, run| {
            let around = (&*folder, inodes.as_deref(), &*barrier);
            fs_mark(task, cache, around, &options, run)
        })
    }
}
