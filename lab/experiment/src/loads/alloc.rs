//! `alloc`: a lot of memory touched at once, whenever little of it is free.

use crate::task::{Given, Load, Sizes};
use scenario::kinds::alloc::Keys;
use workload::{Alloc, Work, alloc};

impl Load for Keys {
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
