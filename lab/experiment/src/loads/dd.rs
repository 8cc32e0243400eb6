//! `dd`: one sequential writer.

use crate::task::{Facts, Given, Load, Sizes};
use policy::units::{Bytes, Nanos};
use scenario::keys::value;
use scenario::kinds::dd::{Keys, SyncKind};
use scenario::units::millis;
use workload::{Dd, SyncAfter, Work, dd};

/// Block.
const BLOCK_KIB: f64 = 1024.0;

fn options(keys: &Keys, at: &Sizes) -> Dd {
    let block = at.block(&keys.block_kib, BLOCK_KIB);
    Dd {
        block,
        offset: Bytes::ZERO,
        bytes: at.file(block),
        for_at_most: at.run_for,
        rest: value(&keys.every_ms).map_or(Nanos::ZERO, millis),
        sync: match value(&keys.sync) {
            Some(SyncKind::None) | None => SyncAfter::Nothing,
            Some(SyncKind::File) => SyncAfter::File,
            Some(SyncKind::Everything) => SyncAfter::Everything,
        },
    }
}

impl Load for Keys {
    fn facts(&self, at: &Sizes) -> Facts {
        let options = options(self, at);
        Facts::of_files(options.block, options.bytes)
    }

    fn work(&self, at: &Sizes, mut given: Given) -> Work {
        let (options, file) = (options(self, at), given.file());
        Work::new(move |task, cache, run| dd(task, cache, &file, &options, run))
    }
}
