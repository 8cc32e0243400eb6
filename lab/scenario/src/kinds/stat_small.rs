//! `stat_small`: looks small files up again.

use crate::keys::{May, keys};
use crate::limits::{MADE, PART};
use crate::task::{Ends, Files, Kind, Traits};
use toml::Spanned;

/// Of both kinds that look at small files again.
pub(super) const TRAITS: Traits = Traits {
    files: Files::SmallSeen,
    ends: Ends::Early,
    reads: true,
    ..Traits::NONE
};

keys! {
    /// Looks up the last of the small files that were made, at random.
    Keys:
        memory_part: Spanned<f64>, "At as many files as have objects that fill this part of the memory.", PART;
        loops: May<u32>, "Times that it goes over them; 1 if not given.", MADE;
        after: May<bool>, "It begins when all files are made.";
}

impl Kind for Keys {
    fn traits(&self) -> Traits {
        TRAITS
    }
}
