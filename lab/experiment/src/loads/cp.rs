//! `cp`: a copy from one device to another.

use crate::task::{Facts, Given, Load, Sizes};
use scenario::kinds::cp::Keys;
use workload::{Cp, Work, cp};

/// Block: coreutils of 2010.
const BLOCK_KIB: f64 = 32.0;

fn options(keys: &Keys, at: &Sizes) -> Cp {
    let block = at.block(&keys.block_kib, BLOCK_KIB);
    Cp {
        block,
        bytes: at.file(block),
        for_at_most: at.run_for,
    }
}

impl Load for Keys {
    fn facts(&self, at: &Sizes) -> Facts {
        let options = options(self, at);
        Facts::of_files(options.block, options.bytes)
    }

    fn work(&self, at: &Sizes, mut given: Given) -> Work {
        let (options, from, to) = (options(self, at), given.source(), given.file());
        Work::new(move |task, cache, run| cp(task, cache, (&from, &to), &options, run))
    }
}
