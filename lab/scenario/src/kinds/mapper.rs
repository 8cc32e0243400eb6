//! `mapper`: maps memory, writes to each page of it, unmaps it (p0's latency worker).

use crate::keys::{May, keys};
use crate::limits::{EVERY, PART, REGION};
use crate::task::{Ends, Kind, Memory, Traits};

keys! {
    /// Maps memory, writes to each page of it, unmaps it, and rests.
    Keys:
        region_mib: May<f64>, "Its memory; scaled.", REGION;
        memory_part: May<f64>, "The memory of all tasks of this entry together, as a part of the machine's.", PART;
        memory_part_each: May<f64>, "The same of each of them.", PART;
        every_ms: May<f64>, "Its rest between two rounds.", EVERY;
}

impl Kind for Keys {
    fn traits(&self) -> Traits {
        Traits {
            memory: Memory::Mapped,
            ends: Ends::Timed,
            size: &["region_mib", "memory_part", "memory_part_each"],
            ..Traits::NONE
        }
    }
}
