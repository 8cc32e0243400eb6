//! `cp`: a copy from one device to another.

use crate::keys::{May, keys};
use crate::limits::{BLOCK, FILE_MIB};
use crate::task::{Ends, Files, Kind, Traits, Writes};
use toml::Spanned;

keys! {
    /// Copies a file.
    Keys:
        from: Spanned<String>, "The device that it reads from.";
        file_mib: Spanned<f64>, "Bytes in all; scaled.", FILE_MIB;
        block_kib: May<f64>, "Bytes of one call.", BLOCK;
}

impl Kind for Keys {
    fn traits(&self) -> Traits {
        Traits {
            files: Files::Written,
            ends: Ends::Early,
            writes: Writes::Once,
            heavy: true,
            ..Traits::NONE
        }
    }
}
