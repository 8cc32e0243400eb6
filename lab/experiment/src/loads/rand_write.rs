//! `rand_write`: overwrites blocks of its files at random (p0's writers, fio).

use crate::task::{Facts, Given, Load, Sizes};
use scenario::kinds::rand_write::Keys;
use workload::{RandWrite, Work, rand_write};

/// Block.
const BLOCK_KIB: f64 = 1024.0;

fn options(keys: &Keys, at: &Sizes) -> RandWrite {
    let block = at.random_block(at.block(&keys.block_kib, BLOCK_KIB));
    RandWrite {
        block,
        size: at.each_file(block),
        for_at_most: at.run_for,
    }
}

impl Load for Keys {
    fn facts(&self, at: &Sizes) -> Facts {
        let options = options(self, at);
        Facts::of_files(options.block, options.size)
    }

    fn work(&self, at: &Sizes, given: Given) -> Work {
        let (options, files) = (options(self, at), given.files);
        Work::new(move |task, cache, run| rand_write(task, cache, &files, &options, run))
    }
}
