//! `mapped_writer`: stores to each page of a file that it maps (mmtests' mapped writer).

use policy::units::{Bytes, PAGE_SIZE, Pages};
use toml::Spanned;
use workload::{MappedWriter, Work, mapped_writer};

use crate::keys::{May, keys, value};
use crate::limits::{BLOCK, FILE_MIB};
use crate::task::{Ends, Facts, Files, Given, Kind, Sizes, Traits, Writes};

/// A call.
const BLOCK_KIB: f64 = 128.0;

keys! {
    /// Maps a file that has nothing in it, and stores to each page once, in order; nothing is
    /// synced.
    Keys:
        file_mib: Spanned<f64>, "Bytes of the file; scaled.", FILE_MIB;
        block_kib: May<f64>, "Bytes of one call.", BLOCK;
        found: May<bool>, "The file is found with its content, which is read page by page.";
}

impl Keys {
    fn is_found(&self) -> bool {
        value(&self.found).unwrap_or(false)
    }

    fn options(&self, at: &Sizes) -> MappedWriter {
        let bytes = at.file(Bytes(PAGE_SIZE));
        MappedWriter {
            pages: bytes.pages_ceil().at_least(Pages(1)),
            call: at.block(&self.block_kib, BLOCK_KIB).pages_ceil(),
            found: self.is_found(),
            for_at_most: at.run_for,
        }
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

    fn facts(&self, at: &Sizes) -> Facts {
        Facts::of_files(Bytes::ZERO, self.options(at).pages.bytes())
    }

    fn work(&self, at: &Sizes, mut given: Given) -> Work {
        let (options, file) = (self.options(at), given.file());
        Work::new(move |task, cache, run| mapped_writer(task, cache, &file, &options, run))
    }
}
