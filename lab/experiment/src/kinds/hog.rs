//! `hog`: memory that is written to over and over (p0's anonymous hog).

use env::Env;
use toml::Spanned;
use workload::{Hog, Work, hog};

use crate::task::{Ends, Facts, Given, Kind, Memory, Sizes, Traits, keys};

keys! {
    /// Writes to each page of its memory, over and over.
    pub struct Keys {
        /// Its memory; scaled.
        region_mib: Option<Spanned<f64>>,
        /// The memory of all tasks of this entry together, as a part of the machine's.
        memory_part: Option<Spanned<f64>>,
        /// The same of each of them.
        memory_part_each: Option<Spanned<f64>>,
    }
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

    fn facts(&self, at: &Sizes) -> Facts {
        Facts {
            kept: at.region(),
            ..Facts::default()
        }
    }

    fn work<E: Env>(&self, at: &Sizes, _: Given<E>) -> Work<E> {
        let options = Hog {
            pages: at.region(),
            for_at_most: at.run_for,
        };
        Work::new(move |task, cache, run| hog(task, cache, &options, run))
    }
}
