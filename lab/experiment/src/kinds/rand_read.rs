//! `rand_read`: reads blocks of its files at random (p0's readers, fio).

use env::Env;
use toml::Spanned;
use workload::{RandRead, Work, rand_read};

use crate::task::{Ends, Facts, Files, Given, Kind, Sizes, Traits, keys, value};

/// Block.
const BLOCK_KIB: f64 = 1024.0;
/// Reads before fio's readers take another file (experiments B1).
const SWITCH_EVERY: u32 = 16;

keys! {
    /// Reads blocks of its files at random.
    pub struct Keys {
        /// Bytes of all its files together; scaled.
        file_mib: Option<Spanned<f64>>,
        /// The files of all tasks of this entry together, as a part of the machine's memory.
        memory_part: Option<Spanned<f64>>,
        /// The same of each of them.
        memory_part_each: Option<Spanned<f64>>,
        /// Files of one task.
        files: Option<Spanned<u32>>,
        /// Bytes of one call; scaled, as a request is.
        block_kib: Option<Spanned<f64>>,
        /// Calls before it takes another of its files.
        switch_every: Option<Spanned<u32>>,
    }
}

impl Keys {
    fn options(&self, at: &Sizes) -> RandRead {
        RandRead {
            block: at.random_block(at.block(&self.block_kib, BLOCK_KIB)),
            switch_every: value(&self.switch_every).unwrap_or(SWITCH_EVERY),
            for_at_most: at.run_for,
        }
    }
}

impl Kind for Keys {
    fn traits(&self) -> Traits {
        Traits {
            files: Files::Found,
            ends: Ends::Timed,
            size: &["file_mib", "memory_part", "memory_part_each"],
            reads: true,
            ..Traits::NONE
        }
    }

    fn facts(&self, at: &Sizes) -> Facts {
        let options = self.options(at);
        Facts::of_files(options.block, at.each_file(options.block))
    }

    fn work<E: Env>(&self, at: &Sizes, given: Given<E>) -> Work<E> {
        let (options, files) = (self.options(at), given.files);
        Work::new(move |task, _, run| rand_read(task, &files, &options, run))
    }
}
