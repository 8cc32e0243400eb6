//! `rand_read`: reads blocks of its files at random (p0's readers, fio).

use workload::{RandRead, Work, rand_read};

use crate::keys::{May, keys, value};
use crate::limits::{BLOCK, FILE_MIB, FILES, PART};
use crate::task::{Ends, Facts, Files, Given, Kind, Sizes, Traits};

/// Block.
const BLOCK_KIB: f64 = 1024.0;
/// Reads before fio's readers take another file (experiments B1).
const SWITCH_EVERY: u32 = 16;

keys! {
    /// Reads blocks of its files at random.
    Keys:
        file_mib: May<f64>, "Bytes of all its files together; scaled.", FILE_MIB;
        memory_part: May<f64>, "The files of all tasks of this entry together, as a part of the machine's memory.", PART;
        memory_part_each: May<f64>, "The same of each of them.", PART;
        files: May<u32>, "Files of one task.", FILES;
        block_kib: May<f64>, "Bytes of one call; scaled, as a request is.", BLOCK;
        switch_every: May<u32>, "Calls before it takes another of its files.", FILES;
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

    fn work(&self, at: &Sizes, given: Given) -> Work {
        let (options, files) = (self.options(at), given.files);
        Work::new(move |task, _, run| rand_read(task, &files, &options, run))
    }
}
