//! `read_small`: reads small files again.

use env::Env;
use toml::Spanned;
use workload::{Visit, Work};

use super::stat_small;
use crate::task::{Given, Kind, Sizes, Traits, keys};

keys! {
    /// Reads the last of the small files that were made, one after the other.
    pub struct Keys {
        /// At as many files as have objects that fill this part of the memory.
        memory_part: Spanned<f64>,
        /// How often it goes over them.
        loops: Option<Spanned<u32>>,
        /// It begins when all files are made.
        after: Option<Spanned<bool>>,
    }
}

impl Kind for Keys {
    fn traits(&self) -> Traits {
        stat_small::TRAITS
    }

    fn work<E: Env>(&self, at: &Sizes, given: Given<E>) -> Work<E> {
        stat_small::work(Visit::Read, (&self.loops, &self.after), at, given)
    }
}
