//! `ycsb`: a client of a key-value store, by one of YCSB's core workloads.

use toml::Spanned;
use workload::{Mix, Work, Ycsb, ycsb};

use crate::keys::{May, keys, words};
use crate::limits::{BLOCK, FILE_MIB, PART};
use crate::task::{Ends, Facts, Files, Given, Kind, Sizes, Traits, Writes};

/// A record.
const BLOCK_KIB: f64 = 4.0;

keys! {
    /// Reads, updates, scans and adds records of its file, some far oftener than others.
    Keys:
        file_mib: May<f64>, "Bytes of its file; scaled.", FILE_MIB;
        memory_part: May<f64>, "The files of all tasks of this entry together, as a part of the machine's memory.", PART;
        memory_part_each: May<f64>, "The same of each of them.", PART;
        block_kib: May<f64>, "Bytes of a record.", BLOCK;
        mix: Spanned<MixKind>, "The core workload of YCSB.";
}

words! {
    /// YCSB's core workloads.
    MixKind:
        A = "A", "A.";
        B = "B", "B.";
        C = "C", "C.";
        D = "D", "D.";
        E = "E", "E.";
        F = "F", "F.";
}

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

    fn work(&self, at: &Sizes, mut given: Given) -> Work {
        let (options, file) = (self.options(at), given.file());
        Work::new(move |task, cache, run| ycsb(task, cache, &file, &options, run))
    }
}
