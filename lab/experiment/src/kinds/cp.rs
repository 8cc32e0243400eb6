//! `cp`: a copy from one device to another.

use toml::Spanned;
use workload::{Cp, Work, cp};

use crate::keys::{May, keys};
use crate::limits::{BLOCK, FILE_MIB};
use crate::task::{Ends, Facts, Files, Given, Kind, Sizes, Traits, Writes};

/// Block: coreutils of 2010.
const BLOCK_KIB: f64 = 32.0;

keys! {
    /// Copies a file.
    Keys:
        from: Spanned<String>, "The device that it reads from.";
        file_mib: Spanned<f64>, "Bytes in all; scaled.", FILE_MIB;
        block_kib: May<f64>, "Bytes of one call.", BLOCK;
}

impl Keys {
    fn options(&self, at: &Sizes) -> Cp {
        let block = at.block(&self.block_kib, BLOCK_KIB);
        Cp {
            block,
            bytes: at.file(block),
            for_at_most: at.run_for,
        }
    }
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

    fn facts(&self, at: &Sizes) -> Facts {
        let options = self.options(at);
        Facts::of_files(options.block, options.bytes)
    }

    fn work(&self, at: &Sizes, mut given: Given) -> Work {
        let (options, from, to) = (self.options(at), given.source(), given.file());
        Work::new(move |task, cache, run| cp(task, cache, (&from, &to), &options, run))
    }
}
