//! `large_dd`: downloads a source, copies it and removes all (mmtests' largedd).

use crate::task::{Facts, Given, Load, Sizes};
use scenario::keys::value;
use scenario::kinds::large_dd::Keys;
use workload::{LargeDd, Work, large_dd};

/// Block: a read-ahead window of Linux.
const BLOCK_KIB: f64 = 128.0;

fn options(keys: &Keys, at: &Sizes) -> LargeDd {
    let block = at.block(&keys.block_kib, BLOCK_KIB);
    LargeDd {
        block: at.window(block),
        source: at.file(block),
        rate: value(&keys.rate_mib).map(|rate| at.bytes(rate).0),
        total: at.bytes(*keys.total_mib.get_ref()),
    }
}

impl Load for Keys {
    fn facts(&self, at: &Sizes) -> Facts {
        let options = options(self, at);
        let bytes = options.bytes();
        Facts {
            block: options.block,
            makes: Some((bytes.0 / options.source.0, bytes)),
            ..Facts::default()
        }
    }

    fn work(&self, at: &Sizes, mut given: Given) -> Work {
        let (options, folder) = (options(self, at), given.folder());
        Work::new(move |task, cache, run| large_dd(task, cache, &folder, &options, run))
    }
}
