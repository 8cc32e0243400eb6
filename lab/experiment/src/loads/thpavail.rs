//! `thpavail`: all memory touched beside two copies (mmtests' thpavail, paper p4's test).

use crate::task::{Facts, Given, Load, Sizes};
use policy::units::Pages;
use scenario::keys::value;
use scenario::kinds::thpavail::{FileEndsKind, Keys};
use workload::{FileEnds, Thpavail, Work, thpavail};

/// Block of both copies: that of `cp`.
const BLOCK_KIB: f64 = 32.0;
/// An iteration begins with no more dirty pages than these (experiments B4), at full size.
const SETTLED: u64 = 1024;

fn options(keys: &Keys, at: &Sizes) -> Thpavail {
    let block = at.window(at.block(&keys.block_kib, BLOCK_KIB));
    Thpavail {
        iterations: *keys.loops.get_ref(),
        pages: at.memory,
        stride: at.huge,
        block,
        target: at.pages(*keys.total_mib.get_ref()).bytes().at_least(block),
        settled: Pages(SETTLED / at.shrink()),
        file_ends: match value(&keys.file_ends) {
            Some(FileEndsKind::Synced) => FileEnds::Synced,
            Some(FileEndsKind::Removed) | None => FileEnds::Removed,
        },
    }
}

impl Load for Keys {
    fn facts(&self, at: &Sizes) -> Facts {
        let full = at.block(&self.block_kib, BLOCK_KIB);
        Facts::of_files(at.window(full), at.file(full))
    }

    fn work(&self, at: &Sizes, mut given: Given) -> Work {
        let (options, source, target) = (options(self, at), given.source(), given.file());
        Work::new(move |task, cache, run| thpavail(task, cache, (&source, &target), &options, run))
    }
}
