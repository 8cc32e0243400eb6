//! `mapper`: maps memory, writes to each page of it, unmaps it (p0's latency worker).

use env::Env;
use toml::Spanned;
use workload::{Mapper, Work, mapper};

use crate::task::units::millis;
use crate::task::{Ends, Given, Kind, Memory, Sizes, Traits, keys, value};

/// How long it rests between two mappings (experiments B1).
const THINK_MS: f64 = 5.0;

keys! {
    /// Maps memory, writes to each page of it, unmaps it, and rests.
    pub struct Keys {
        /// Its memory; scaled.
        region_mib: Option<Spanned<f64>>,
        /// The memory of all tasks of this entry together, as a part of the machine's.
        memory_part: Option<Spanned<f64>>,
        /// The same of each of them.
        memory_part_each: Option<Spanned<f64>>,
        /// How long it rests.
        every_ms: Option<Spanned<f64>>,
    }
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

    fn work<E: Env>(&self, at: &Sizes, _: Given<E>) -> Work<E> {
        let options = Mapper {
            pages: at.region(),
            think: millis(value(&self.every_ms).unwrap_or(THINK_MS)),
            for_at_most: at.run_for,
        };
        Work::new(move |task, cache, run| mapper(task, cache, &options, run))
    }
}
