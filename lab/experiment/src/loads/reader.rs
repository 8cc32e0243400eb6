//! `reader`: reads a file that is there.

use crate::task::{Facts, Given, Load, Sizes};
use policy::units::Nanos;
use scenario::keys::value;
use scenario::kinds::reader::{Keys, OrderKind};
use scenario::units::millis;
use workload::{Pattern, Reader, Work, reader};

/// Block.
const BLOCK_KIB: f64 = 1024.0;

fn options(keys: &Keys, at: &Sizes) -> Reader {
    let block = at.block(&keys.block_kib, BLOCK_KIB);
    Reader {
        block,
        bytes: at.file(block),
        pattern: match value(&keys.order) {
            Some(OrderKind::Random) => Pattern::Random,
            Some(OrderKind::Sequential) | None => Pattern::Sequential,
        },
        think: value(&keys.every_ms).map_or(Nanos::ZERO, millis),
        for_at_most: at.run_for,
    }
}

impl Load for Keys {
    fn facts(&self, at: &Sizes) -> Facts {
        let options = options(self, at);
        Facts::of_files(options.block, options.bytes)
    }

    fn work(&self, at: &Sizes, mut given: Given) -> Work {
        let (options, file) = (options(self, at), given.file());
        Work::new(move |task, _, run| reader(task, &file, &options, run))
    }
}
