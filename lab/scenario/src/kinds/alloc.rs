//! `alloc`: a lot of memory touched at once, whenever little of it is free.

use crate::keys::{May, keys};
use crate::limits::{MADE, PART, REGION};
use crate::task::{Ends, Kind, Memory, Traits};
use toml::Spanned;

keys! {
    /// Waits until little memory is free, and two seconds; writes to each page of its memory and
    /// gives it back.
    Keys:
        region_mib: May<f64>, "Its memory; scaled.", REGION;
        memory_part: May<f64>, "The memory of all tasks of this entry together, as a part of the machine's.", PART;
        memory_part_each: May<f64>, "The same of each of them.", PART;
        below_mib: Spanned<f64>, "A round begins when no more is free; scaled.";
        loops: Spanned<u32>, "Rounds.", MADE;
}

impl Kind for Keys {
    fn traits(&self) -> Traits {
        Traits {
            memory: Memory::Some,
            ends: Ends::Early,
            size: &["region_mib", "memory_part", "memory_part_each"],
            ..Traits::NONE
        }
    }
}
