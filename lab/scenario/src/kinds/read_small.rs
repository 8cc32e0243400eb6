//! `read_small`: reads small files again.

use super::stat_small;
use crate::keys::{May, keys};
use crate::limits::{MADE, PART};
use crate::task::{Kind, Traits};
use toml::Spanned;

keys! {
    /// Reads the last of the small files that were made, one after the other.
    Keys:
        memory_part: Spanned<f64>, "At as many files as have objects that fill this part of the memory.", PART;
        loops: May<u32>, "Times that it goes over them; 1 if not given.", MADE;
        after: May<bool>, "It begins when all files are made.";
}

impl Kind for Keys {
    fn traits(&self) -> Traits {
        stat_small::TRAITS
    }
}
