//! `hog`: memory that is written to over and over (p0's anonymous hog).

use crate::task::{Facts, Given, Load, Sizes};
use scenario::kinds::hog::Keys;
use workload::{Hog, Work, hog};

impl Load for Keys {
    fn facts(&self, at: &Sizes) -> Facts {
        Facts {
            kept: at.region(),
            ..Facts::default()
        }
    }

    fn work(&self, at: &Sizes, _: Given) -> Work {
        let options = Hog {
            pages: at.region(),
            for_at_most: at.run_for,
        };
        Work::new(move |task, cache, run| hog(task, cache, &options, run))
    }
}
