//! `mapped_access`: loads from a file that it maps, or stores to it, at random.

use crate::keys::{May, keys, value, words};
use crate::limits::{EVERY, FILE_MIB};
use crate::task::{Ends, Files, Kind, Traits, Writes};
use toml::Spanned;

keys! {
    /// Maps a file that is there, and loads from pages of it or stores to them, at random.
    Keys:
        file_mib: Spanned<f64>, "Bytes of the file; scaled.", FILE_MIB;
        access: May<AccessKind>, "Its use of a page: `load`, `store`.";
        every_ms: May<f64>, "Time between two accesses; without it, one after the other.", EVERY;
        sync_ms: May<f64>, "Another task syncs the file so often; without it, nobody does.", EVERY;
}

words! {
    /// Use of a page of a map.
    AccessKind:
        Load = "load", "Reads it.";
        Store = "store", "Changes it.";
}

impl Keys {
    /// It changes pages.
    #[must_use]
    pub fn stores(&self) -> bool {
        value(&self.access) == Some(AccessKind::Store)
    }
}

impl Kind for Keys {
    fn traits(&self) -> Traits {
        let stores = self.stores();
        Traits {
            files: Files::Found,
            maps: true,
            ends: Ends::Timed,
            writes: if stores {
                Writes::Over
            } else {
                Writes::Nothing
            },
            reads: !stores,
            heavy: stores && self.every_ms.is_none(),
            ..Traits::NONE
        }
    }
}
