//! `pinner`: pins pages of a file and holds them.

use policy::units::{Bytes, Pages};
use toml::Spanned;
use workload::{Pinner, Work, pinner};

use crate::keys::keys;
use crate::limits::REGION;
use crate::task::{Ends, Facts, Files, Given, Kind, Sizes, Traits};

keys! {
    /// Pins pages of a file and holds them: pages that reclaim looks at and cannot free.
    Keys:
        pinned_mib: Spanned<f64>, "Pages that it pins; scaled.", REGION;
}

impl Keys {
    fn options(&self, at: &Sizes) -> Pinner {
        Pinner {
            pages: at.pages(*self.pinned_mib.get_ref()).at_least(Pages(1)),
            for_at_most: at.run_for,
        }
    }
}

impl Kind for Keys {
    fn traits(&self) -> Traits {
        Traits {
            files: Files::Found,
            ends: Ends::Timed,
            ..Traits::NONE
        }
    }

    fn facts(&self, at: &Sizes) -> Facts {
        Facts::of_files(Bytes::ZERO, self.options(at).pages.bytes())
    }

    fn work(&self, at: &Sizes, mut given: Given) -> Work {
        let (options, file) = (self.options(at), given.file());
        Work::new(move |task, _, run| pinner(task, &file, &options, run))
    }
}
