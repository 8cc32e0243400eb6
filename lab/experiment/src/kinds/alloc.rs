//! `alloc`: a lot of memory touched at once, whenever little of it is free.

use toml::Spanned;
use workload::{Alloc, Work, alloc};

use crate::keys::{May, keys};
use crate::limits::{MADE, PART, REGION};
use crate::task::{Ends, Given, Kind, Memory, Sizes, Traits};

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

    fn work(&self, at: &Sizes, _: Given) -> Work {
        let options = Alloc {
            pages: at.region(),
            stride: at.huge,
            below: at.pages(*self.below_mib.get_ref()),
            rounds: *self.loops.get_ref(),
            for_at_most: at.run_for,
        };
        Work::new(move |task, cache, run| alloc(task, cache, &options, run))
    }
}
