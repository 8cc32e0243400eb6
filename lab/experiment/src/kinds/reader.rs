//! `reader`: reads a file that is there.

use policy::units::Nanos;
use toml::Spanned;
use workload::{Pattern, Reader, Work, reader};

use crate::keys::{May, keys, value, words};
use crate::limits::{BLOCK, EVERY, FILE_MIB};
use crate::task::units::millis;
use crate::task::{Ends, Facts, Files, Given, Kind, Sizes, Traits};

/// Block.
const BLOCK_KIB: f64 = 1024.0;

keys! {
    /// Reads a file that is there.
    Keys:
        file_mib: Spanned<f64>, "Bytes in all; scaled.", FILE_MIB;
        block_kib: May<f64>, "Bytes of one call.", BLOCK;
        every_ms: May<f64>, "Time between the end of a call and the next.", EVERY;
        order: May<OrderKind>, "In which order: `sequential`, `random`.";
}

words! {
    /// In which order a reader reads.
    OrderKind:
        Sequential = "sequential", "Front to back.";
        Random = "random", "Anywhere.";
}

impl Keys {
    fn options(&self, at: &Sizes) -> Reader {
        let block = at.block(&self.block_kib, BLOCK_KIB);
        Reader {
            block,
            bytes: at.file(block),
            pattern: match value(&self.order) {
                Some(OrderKind::Random) => Pattern::Random,
                Some(OrderKind::Sequential) | None => Pattern::Sequential,
            },
            think: value(&self.every_ms).map_or(Nanos::ZERO, millis),
            for_at_most: at.run_for,
        }
    }
}

impl Kind for Keys {
    fn traits(&self) -> Traits {
        Traits {
            files: Files::Found,
            ends: Ends::Early,
            reads: true,
            ..Traits::NONE
        }
    }

    fn facts(&self, at: &Sizes) -> Facts {
        let options = self.options(at);
        Facts::of_files(options.block, options.bytes)
    }

    fn work(&self, at: &Sizes, mut given: Given) -> Work {
        let (options, file) = (self.options(at), given.file());
        Work::new(move |task, _, run| reader(task, &file, &options, run))
    }
}
