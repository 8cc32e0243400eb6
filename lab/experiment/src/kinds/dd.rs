//! `dd`: one sequential writer.

use policy::units::{Bytes, Nanos};
use toml::Spanned;
use workload::{Dd, SyncAfter, Work, dd};

use crate::keys::{May, keys, value, words};
use crate::limits::{BLOCK, EVERY, FILE_MIB};
use crate::task::units::millis;
use crate::task::{Ends, Facts, Files, Given, Kind, Sizes, Traits, Writes};

/// Block.
const BLOCK_KIB: f64 = 1024.0;

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

    fn work(&self, at: &Sizes, mut given: Given) -> Work {
        let (options, file) = (self.options(at), given.file());
        Work::new(move |task, cache, run| dd(task, cache, &file, &options, run))
    }
}
