//! `make_small`: as `fs_mark`, with inodes and entries that take memory.

use crate::task::{Facts, Given, Load, Sizes};
use policy::units::Nanos;
use scenario::kinds::make_small::Keys;
use workload::{MakeSmall, Work, make_small};

fn options(keys: &Keys, at: &Sizes) -> MakeSmall {
    MakeSmall {
        files_per_loop: at.count(*keys.files_per_loop.get_ref()),
        loops: *keys.loops.get_ref(),
        // A file stands for as many more of the full size.
        think: Nanos(world::fs::costs::p3::USER.0 * at.costs),
        for_at_most: at.run_for,
    }
}

impl Load for Keys {
    fn facts(&self, at: &Sizes) -> Facts {
        Facts {
            files_a_round: options(self, at).files_per_loop.into(),
            ..Facts::default()
        }
    }

    fn work(&self, at: &Sizes, mut given: Given) -> Work {
        let (options, (small, directory)) = (options(self, at), given.small());
        let barrier = given.barrier;
        Work::new(move |task, cache, run| {
            make_small(task, cache, (&small, directory, &barrier), &options, run)
        })
    }
}
