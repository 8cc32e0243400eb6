//! `reader`: reads a file that is there.

use env::Env;
use policy::units::Nanos;
use serde::Deserialize;
use toml::Spanned;
use workload::{Pattern, Reader, Work, reader};

use crate::task::units::millis;
use crate::task::{Ends, Facts, Field, Files, Given, Kind, Sizes, Traits, keys, value};

/// Block.
const BLOCK_KIB: f64 = 1024.0;

keys! {
    /// Reads a file that is there.
    pub struct Keys {
        /// Bytes in all; scaled.
        file_mib: Spanned<f64>,
        /// Bytes of one call.
        block_kib: Option<Spanned<f64>>,
        /// Time between the end of a call and the next.
        every_ms: Option<Spanned<f64>>,
        /// In which order: `sequential`, `random`.
        order: Option<Spanned<OrderKind>>,
    }
}

/// In which order a reader reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OrderKind {
    /// Front to back.
    Sequential,
    /// Anywhere.
    Random,
}

impl Field for Spanned<OrderKind> {}

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

    fn work<E: Env>(&self, at: &Sizes, mut given: Given<E>) -> Work<E> {
        let (options, file) = (self.options(at), given.file());
        Work::new(move |task, _, run| reader(task, &file, &options, run))
    }
}
