//! `reader`: reads a file that is there.

use crate::keys::{May, keys, words};
use crate::limits::{BLOCK, EVERY, FILE_MIB};
use crate::task::{Ends, Files, Kind, Traits};
use toml::Spanned;

keys! {
    /// Reads a file that is there.
    Keys:
        file_mib: Spanned<f64>, "Bytes in all; scaled.", FILE_MIB;
        block_kib: May<f64>, "Bytes of one call.", BLOCK;
        every_ms: May<f64>, "Time between the end of a call and the next.", EVERY;
        order: May<OrderKind>, "In which order: `sequential`, `random`.";
}

words! {
    /// In which order a reader reads.
    OrderKind:
        Sequential = "sequential", "Front to back.";
        Random = "random", "Anywhere.";
}

impl Kind for Keys {
    fn traits(&self) -> Traits {
        Traits {
            files: Files::Found,
            ends: Ends::Early,
            reads: true,
            ..Traits::NONE
        }
    }
}
