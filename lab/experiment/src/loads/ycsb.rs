//! `ycsb`: a client of a key-value store, by one of YCSB's core workloads.

use crate::task::{Facts, Given, Load, Sizes};
use scenario::kinds::ycsb::{Keys, MixKind};
use workload::{Mix, Work, Ycsb, ycsb};

/// A record.
const BLOCK_KIB: f64 = 4.0;

fn options(keys: &Keys, at: &Sizes) -> Ycsb {
    Ycsb {
        mix: match keys.mix.get_ref() {
            MixKind::A => Mix::A,
            MixKind::B => Mix::B,
            MixKind::C => Mix::C,
            MixKind::D => Mix::D,
            MixKind::E => Mix::E,
            MixKind::F => Mix::F,
        },
        record: at.block(&keys.block_kib, BLOCK_KIB),
        for_at_most: at.run_for,
    }
}

impl Load for Keys {
    fn facts(&self, at: &Sizes) -> Facts {
        let record = options(self, at).record;
        Facts::of_files(record, at.each_file(record))
    }

    fn work(&self, at: &Sizes, mut given: Given) -> Work {
        let (options, file) = (options(self, at), given.file());
        Work::new(move |task, cache, run| ycsb(task, cache, &file, &options, run))
    }
}
