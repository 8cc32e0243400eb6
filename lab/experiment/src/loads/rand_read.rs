//! `rand_read`: reads blocks of its files at random (p0's readers, fio).

use crate::task::{Facts, Given, Load, Sizes};
use scenario::keys::value;
use scenario::kinds::rand_read::Keys;
use workload::{RandRead, Work, rand_read};

/// Block.
const BLOCK_KIB: f64 = 1024.0;
/// Reads before fio's readers take another file (experiments B1).
const SWITCH_EVERY: u32 = 16;

fn options(keys: &Keys, at: &Sizes) -> RandRead {
    RandRead {
        block: at.random_block(at.block(&keys.block_kib, BLOCK_KIB)),
        switch_every: value(&keys.switch_every).unwrap_or(SWITCH_EVERY),
        for_at_most: at.run_for,
    }
}

impl Load for Keys {
    fn facts(&self, at: &Sizes) -> Facts {
        let options = options(self, at);
        Facts::of_files(options.block, at.each_file(options.block))
    }

    fn work(&self, at: &Sizes, given: Given) -> Work {
        let (options, files) = (options(self, at), given.files);
        Work::new(move |task, _, run| rand_read(task, &files, &options, run))
    }
}
