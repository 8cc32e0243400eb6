//! `dd`: one sequential writer.

use env::Env;
use policy::units::{Bytes, Nanos};
use serde::Deserialize;
use toml::Spanned;
use workload::{Dd, SyncAfter, Work, dd};

use crate::task::units::millis;
use crate::task::{Ends, Facts, Field, Files, Given, Kind, Sizes, Traits, Writes, keys, value};

/// Block.
const BLOCK_KIB: f64 = 1024.0;

keys! {
    /// Writes a file from front to back.
    pub struct Keys {
        /// Bytes in all; scaled. With `run_s` it ends with whichever comes first.
        file_mib: Spanned<f64>,
        /// Bytes of one call.
        block_kib: Option<Spanned<f64>>,
        /// How long it rests after each call.
        every_ms: Option<Spanned<f64>>,
        /// What it makes durable at its end: `none`, `file`, `everything`.
        sync: Option<Spanned<SyncKind>>,
    }
}

/// What a `dd` syncs at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SyncKind {
    /// Nothing.
    None,
    /// Its file.
    File,
    /// Everything.
    Everything,
}

impl Field for Spanned<SyncKind> {}

impl Keys {
    fn options(&self, at: &Sizes) -> Dd {
        let block = at.block(&self.block_kib, BLOCK_KIB);
        Dd {
            block,
            offset: Bytes::ZERO,
            bytes: at.file(block),
            for_at_most: at.run_for,
            rest: value(&self.every_ms).map_or(Nanos::ZERO, millis),
            sync: match value(&self.sync) {
                Some(SyncKind::None) | None => SyncAfter::Nothing,
                Some(SyncKind::File) => SyncAfter::File,
                Some(SyncKind::Everything) => SyncAfter::Everything,
            },
        }
    }
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

    fn facts(&self, at: &Sizes) -> Facts {
        let options = self.options(at);
        Facts::of_files(options.block, options.bytes)
    }

    fn work<E: Env>(&self, at: &Sizes, mut given: Given<E>) -> Work<E> {
        let (options, file) = (self.options(at), given.file());
        Work::new(move |task, cache, run| dd(task, cache, &file, &options, run))
    }
}
