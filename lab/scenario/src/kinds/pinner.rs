//! `pinner`: pins pages of a file and holds them.

use crate::keys::keys;
use crate::limits::REGION;
use crate::task::{Ends, Files, Kind, Traits};
use toml::Spanned;

keys! {
    /// Pins pages of a file and holds them: pages that reclaim looks at and cannot free.
    Keys:
        pinned_mib: Spanned<f64>, "Pages that it pins; scaled.", REGION;
}

impl Kind for Keys {
    fn traits(&self) -> Traits {
        Traits {
            files: Files::Found,
            ends: Ends::Timed,
            ..Traits::NONE
        }
    }
}
