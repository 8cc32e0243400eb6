//! `ycsb`: a client of a key-value store, by one of YCSB's core workloads.

use crate::keys::{May, keys, words};
use crate::limits::{BLOCK, FILE_MIB, PART};
use crate::task::{Ends, Files, Kind, Traits, Writes};
use toml::Spanned;

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
}
