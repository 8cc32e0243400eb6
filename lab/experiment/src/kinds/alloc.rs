//! `alloc`: a lot of memory touched at once, whenever little of it is free.

use env::Env;
use toml::Spanned;
use workload::{Alloc, Work, alloc};

use crate::task::{Ends, Given, Kind, Memory, Sizes, Traits, keys};

keys! {
    /// Waits until little memory is free, and two seconds; writes to each page of its memory and
    /// gives it back.
    pub struct Keys {
        /// Its memory; scaled.
        region_mib: Option<Spanned<f64>>,
        /// The memory of all tasks of this entry together, as a part of the machine's.
        memory_part: Option<Spanned<f64>>,
        /// The same of each of them.
        memory_part_each: Option<Spanned<f64>>,
        /// A round begins when no more is free; scaled.
        below_mib: Spanned<f64>,
        /// Rounds.
        loops: Spanned<u32>,
    }
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

    fn work<E: Env>(&self, at: &Sizes, _: Given<E>) -> Work<E> {
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
