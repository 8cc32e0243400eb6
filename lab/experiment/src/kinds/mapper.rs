//! `mapper`: maps memory, writes to each page of it, unmaps it (p0's latency worker).

use workload::{Mapper, Work, mapper};

use crate::keys::{May, keys, value};
use crate::limits::{EVERY, PART, REGION};
use crate::task::units::millis;
use crate::task::{Ends, Given, Kind, Memory, Sizes, Traits};

/// Its rest between two mappings (experiments B1).
const THINK_MS: f64 = 5.0;

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

    fn work(&self, at: &Sizes, _: Given) -> Work {
        let options = Mapper {
            pages: at.region(),
            think: millis(value(&self.every_ms).unwrap_or(THINK_MS)),
            for_at_most: at.run_for,
        };
        Work::new(move |task, cache, run| mapper(task, cache, &options, run))
    }
}
