//! `hog`: memory that is written to over and over (p0's anonymous hog).

use crate::keys::{May, keys};
use crate::limits::{PART, REGION};
use crate::task::{Ends, Kind, Memory, Traits};

keys! {
    /// Writes to each page of its memory, over and over.
    Keys:
        region_mib: May<f64>, "Its memory; scaled.", REGION;
        memory_part: May<f64>, "The memory of all tasks of this entry together, as a part of the machine's.", PART;
        memory_part_each: May<f64>, "The same of each of them.", PART;
}

impl Kind for Keys {
    fn traits(&self) -> Traits {
        Traits {
            memory: Memory::Kept,
            ends: Ends::Timed,
            size: &["region_mib", "memory_part", "memory_part_each"],
            ..Traits::NONE
        }
    }
}
