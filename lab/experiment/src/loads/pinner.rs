//! `pinner`: pins pages of a file and holds them.

use crate::task::{Facts, Given, Load, Sizes};
use policy::units::{Bytes, Pages};
use scenario::kinds::pinner::Keys;
use workload::{Pinner, Work, pinner};

fn options(keys: &Keys, at: &Sizes) -> Pinner {
    Pinner {
        pages: at.pages(*keys.pinned_mib.get_ref()).at_least(Pages(1)),
        for_at_most: at.run_for,
    }
}

impl Load for Keys {
    fn facts(&self, at: &Sizes) -> Facts {
        Facts::of_files(Bytes::ZERO, options(self, at).pages.bytes())
    }

    fn work(&self, at: &Sizes, mut given: Given) -> Work {
        let (options, file) = (options(self, at), given.file());
        Work::new(move |task, _, run| pinner(task, &file, &options, run))
    }
}
