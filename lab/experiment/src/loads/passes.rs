//! `passes`: goes through a file again and again, to write or to read it.

use crate::task::{Facts, Given, Load, Sizes};
use scenario::keys::value;
use scenario::kinds::passes::Keys;
use workload::{Pass, Passes, Work, passes};

/// Block.
const BLOCK_KIB: f64 = 1024.0;

fn options(keys: &Keys, at: &Sizes) -> Passes {
    let block = at.block(&keys.block_kib, BLOCK_KIB);
    let letters = keys.letters().chars();
    Passes {
        block,
        file: at.file(block),
        passes: letters
            .map(|letter| {
                if letter == 'r' {
                    Pass::Read
                } else {
                    Pass::Write
                }
            })
            .collect(),
        rounds: value(&keys.loops).or(at.run_for.is_none().then_some(1)),
        for_at_most: at.run_for,
    }
}

impl Load for Keys {
    fn facts(&self, at: &Sizes) -> Facts {
        let options = options(self, at);
        Facts::of_files(options.block, options.file)
    }

    fn work(&self, at: &Sizes, mut given: Given) -> Work {
        let (options, file) = (options(self, at), given.file());
        Work::new(move |task, cache, run| passes(task, cache, &file, &options, run))
    }
}
