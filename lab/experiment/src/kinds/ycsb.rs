//! `ycsb`: a client of a key-value store, by one of YCSB's core workloads.

use env::Env;
use serde::Deserialize;
use toml::Spanned;
use workload::{Mix, Work, Ycsb, ycsb};

use crate::task::{Ends, Facts, Field, Files, Given, Kind, Sizes, Traits, Writes, keys};

/// A record.
const BLOCK_KIB: f64 = 4.0;

keys! {
    /// Reads, updates, scans and adds records of its file, some far oftener than others.
    pub struct Keys {
        /// Bytes of its file; scaled.
        file_mib: Option<Spanned<f64>>,
        /// The files of all tasks of this entry together, as a part of the machine's memory.
        memory_part: Option<Spanned<f64>>,
        /// The same of each of them.
        memory_part_each: Option<Spanned<f64>>,
        /// Bytes of a record.
        block_kib: Option<Spanned<f64>>,
        /// Which of YCSB's workloads: `A` to `F`.
        mix: Spanned<MixKind>,
    }
}

/// YCSB's core workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum MixKind {
    A,
    B,
    C,
    D,
    E,
    F,
}

impl Field for Spanned<MixKind> {}

impl Keys {
    fn options(&self, at: &Sizes) -> Ycsb {
        Ycsb {
            mix: match self.mix.get_ref() {
                MixKind::A => Mix::A,
                MixKind::B => Mix::B,
                MixKind::C => Mix::C,
                MixKind::D => Mix::D,
                MixKind::E => Mix::E,
                MixKind::F => Mix::F,
            },
            record: at.block(&self.block_kib, BLOCK_KIB),
            for_at_most: at.run_for,
        }
    }
}

impl Kind for Keys {
    fn traits(&self) -> Traits {
        Traits {
            files: Files::Found,
            ends: Ends::Timed,
            size: &["file_mib", "memory_part", "memory_part_each"],
            writes: Writes::Over,
            ..Traits::NONE
        }
    }

    fn facts(&self, at: &Sizes) -> Facts {
        let record = self.options(at).record;
        Facts::of_files(record, at.each_file(record))
    }

    fn work<E: Env>(&self, at: &Sizes, mut given: Given<E>) -> Work<E> {
        let (options, file) = (self.options(at), given.file());
        Work::new(move |task, cache, run| ycsb(task, cache, &file, &options, run))
    }
}
