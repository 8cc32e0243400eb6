//! `phases`: a load that changes between memory, a file and pinned pages.

use crate::keys::{May, keys, range};
use crate::limits::{BLOCK, FILE_MIB, PART, REGION};
use crate::task::{Ends, Files, Kind, Memory, Traits, Writes};
use toml::Spanned;

keys! {
    /// Goes through phases: memory, a file, pinned pages of it.
    Keys:
        phase_s: Spanned<f64>, "Length of a phase.", range(0.001, 1e7, " s");
        file_mib: Spanned<f64>, "Bytes of its file; scaled.", FILE_MIB;
        region_mib: May<f64>, "Its memory; scaled.", REGION;
        memory_part: May<f64>, "The memory of all tasks of this entry together, as a part of the machine's.", PART;
        memory_part_each: May<f64>, "The same of each of them.", PART;
        pinned_mib: May<f64>, "Pages that it pins; scaled.", REGION;
        block_kib: May<f64>, "Bytes of one call; scaled, as a request is.", BLOCK;
}

impl Kind for Keys {
    fn traits(&self) -> Traits {
        Traits {
            files: Files::Written,
            memory: Memory::Some,
            ends: Ends::Timed,
            size: &["region_mib", "memory_part", "memory_part_each"],
            writes: Writes::Over,
            ..Traits::NONE
        }
    }
}
