//! `phases`: a load that changes between memory, a file and pinned pages.

use toml::Spanned;
use workload::{Phase, Phases, Work, phases};

use crate::keys::{May, keys, range, value};
use crate::limits::{BLOCK, FILE_MIB, PART, REGION};
use crate::task::units::seconds;
use crate::task::{Ends, Facts, Files, Given, Kind, Memory, Sizes, Traits, Writes};

/// Block.
const BLOCK_KIB: f64 = 1024.0;
/// In which phase the tasks of an entry begin, in turn: so that they compete.
const FIRST: [Phase; 3] = [Phase::Anonymous, Phase::File, Phase::Pinned];

keys! {
    /// Goes through phases: memory, a file, pinned pages of it.
    Keys:
        phase_s: Spanned<f64>, "Length of a phase.", range(0.001, 1e7, " s");
        file_mib: Spanned<f64>, "Bytes of its file; scaled.", FILE_MIB;
        region_mib: May<f64>, "Its memory; scaled.", REGION;
        memory_part: May<f64>, "The memory of all tasks of this entry together, as a part of the machine's.", PART;
        memory_part_each: May<f64>, "The same of each of them.", PART;
        pinned_mib: May<f64>, "Pages that it pins; scaled.", REGION;
        block_kib: May<f64>, "Bytes of one call; scaled, as a request is.", BLOCK;
}

impl Keys {
    fn options(&self, at: &Sizes) -> Phases {
        let block = at.random_block(at.block(&self.block_kib, BLOCK_KIB));
        Phases {
            each: seconds(*self.phase_s.get_ref()),
            anon: at.region(),
            file: at.each_file(block),
            pinned: at.pages(value(&self.pinned_mib).unwrap_or(0.0)),
            block,
            first: FIRST[at.number as usize % FIRST.len()],
            for_at_most: at.run_for,
        }
    }
}

impl Kind for Keys {
    fn traits(&self) -> Traits {
        Traits {
            files: Files::Written,
            memory: Memory::Some,
            ends: Ends::Timed,
            size: &["region_mib", "memory_part", "memory_part_each"],
            writes: Writes::Over,
            ..Traits::NONE
        }
    }

    fn facts(&self, at: &Sizes) -> Facts {
        let options = self.options(at);
        Facts::of_files(options.block, options.file)
    }

    fn work(&self, at: &Sizes, mut given: Given) -> Work {
        let (options, file) = (self.options(at), given.file());
        Work::new(move |task, cache, run| phases(task, cache, &file, &options, run))
    }
}
