//! `light_writer`: a small block at fixed times, so that delays caused by others are seen.

use crate::keys::{May, keys};
use crate::limits::{BLOCK, EVERY};
use crate::task::{Ends, Files, Kind, Traits, Writes};
use toml::Spanned;

keys! {
    /// Writes a small block now and then.
    Keys:
        every_ms: Spanned<f64>, "Time between two calls.", EVERY;
        block_kib: May<f64>, "Bytes of one call.", BLOCK;
}

impl Kind for Keys {
    fn traits(&self) -> Traits {
        Traits {
            files: Files::Written,
            ends: Ends::Timed,
            writes: Writes::Once,
            ..Traits::NONE
        }
    }
}
