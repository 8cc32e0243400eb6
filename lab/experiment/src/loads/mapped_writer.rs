//! `mapped_writer`: stores to each page of a file that it maps (mmtests' mapped writer).

use crate::task::{Facts, Given, Load, Sizes};
use policy::units::{Bytes, PAGE_SIZE, Pages};
use scenario::kinds::mapped_writer::Keys;
use workload::{MappedWriter, Work, mapped_writer};

/// A call.
const BLOCK_KIB: f64 = 128.0;

fn options(keys: &Keys, at: &Sizes) -> MappedWriter {
    let bytes = at.file(Bytes(PAGE_SIZE));
    MappedWriter {
        pages: bytes.pages_ceil().at_least(Pages(1)),
        call: at.block(&keys.block_kib, BLOCK_KIB).pages_ceil(),
        found: keys.is_found(),
        for_at_most: at.run_for,
    }
}

impl Load for Keys {
    fn facts(&self, at: &Sizes) -> Facts {
        Facts::of_files(Bytes::ZERO, options(self, at).pages.bytes())
    }

    fn work(&self, at: &Sizes, mut given: Given) -> Work {
        let (options, file) = (options(self, at), given.file());
        Work::new(move |task, cache, run| mapped_writer(task, cache, &file, &options, run))
    }
}
