//! `dd`: one sequential writer.

use crate::keys::{May, keys, words};
use crate::limits::{BLOCK, EVERY, FILE_MIB};
use crate::task::{Ends, Files, Kind, Traits, Writes};
use toml::Spanned;

keys! {
    /// Writes a file from front to back.
    Keys:
        file_mib: Spanned<f64>, "Bytes in all; scaled. With `run_s` it ends with whichever comes first.", FILE_MIB;
        block_kib: May<f64>, "Bytes of one call.", BLOCK;
        every_ms: May<f64>, "Its rest after each call.", EVERY;
        sync: May<SyncKind>, "The files that it syncs at its end: none without the key.";
}

words! {
    /// The files that a `dd` syncs at its end.
    SyncKind:
        None = "none", "Nothing.";
        File = "file", "Its file.";
        Everything = "everything", "Everything.";
}

impl Kind for Keys {
    fn traits(&self) -> Traits {
        Traits {
            files: Files::Written,
            ends: Ends::Early,
            writes: Writes::Once,
            // A writer that rests between its calls writes no faster than it wants to.
            heavy: self.every_ms.is_none(),
            ..Traits::NONE
        }
    }
}
