//! `mapped_writer`: stores to each page of a file that it maps (mmtests' mapped writer).

use crate::keys::{May, keys, value};
use crate::limits::{BLOCK, FILE_MIB};
use crate::task::{Ends, Files, Kind, Traits, Writes};
use toml::Spanned;

keys! {
    /// Maps a file that has nothing in it, and stores to each page once, in order; nothing is
    /// synced.
    Keys:
        file_mib: Spanned<f64>, "Bytes of the file; scaled.", FILE_MIB;
        block_kib: May<f64>, "Bytes of one call.", BLOCK;
        found: May<bool>, "The file is found with its content, which is read page by page.";
}

impl Keys {
    /// Its file has content before it runs.
    #[must_use]
    pub fn is_found(&self) -> bool {
        value(&self.found).unwrap_or(false)
    }
}

impl Kind for Keys {
    /// Not heavy: it does not say what it dirties call by call.
    fn traits(&self) -> Traits {
        Traits {
            files: if self.is_found() {
                Files::Found
            } else {
                Files::Written
            },
            maps: true,
            ends: Ends::Early,
            writes: Writes::Once,
            ..Traits::NONE
        }
    }
}
