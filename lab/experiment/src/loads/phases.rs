//! `phases`: a load that changes between memory, a file and pinned pages.

use crate::task::{Facts, Given, Load, Sizes};
use scenario::keys::value;
use scenario::kinds::phases::Keys;
use scenario::units::seconds;
use workload::{Phase, Phases, Work, phases};

/// Block.
const BLOCK_KIB: f64 = 1024.0;
/// In which phase the tasks of an entry begin, in turn: so that they compete.
const FIRST: [Phase; 3] = [Phase::Anonymous, Phase::File, Phase::Pinned];

fn options(keys: &Keys, at: &Sizes) -> Phases {
    let block = at.random_block(at.block(&keys.block_kib, BLOCK_KIB));
    Phases {
        each: seconds(*keys.phase_s.get_ref()),
        anon: at.region(),
        file: at.each_file(block),
        pinned: at.pages(value(&keys.pinned_mib).unwrap_or(0.0)),
        block,
        first: FIRST[at.number as usize % FIRST.len()],
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
        Work::new(move |task, cache, run| phases(task, cache, &file, &options, run))
    }
}
