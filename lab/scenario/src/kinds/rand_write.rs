//! `rand_write`: overwrites blocks of its files at random (p0's writers, fio).

use crate::keys::{May, keys};
use crate::limits::{BLOCK, FILE_MIB, FILES, PART};
use crate::task::{Ends, Files, Kind, Traits, Writes};

keys! {
    /// Overwrites blocks of its files at random.
    Keys:
        file_mib: May<f64>, "Bytes of all its files together; scaled.", FILE_MIB;
        memory_part: May<f64>, "The files of all tasks of this entry together, as a part of the machine's memory.", PART;
        memory_part_each: May<f64>, "The same of each of them.", PART;
        files: May<u32>, "Files of one task.", FILES;
        block_kib: May<f64>, "Bytes of one call; scaled, as a request is.", BLOCK;
}

impl Kind for Keys {
    fn traits(&self) -> Traits {
        Traits {
            files: Files::Written,
            ends: Ends::Timed,
            size: &["file_mib", "memory_part", "memory_part_each"],
            writes: Writes::Over,
            heavy: true,
            ..Traits::NONE
        }
    }
}
