//! `light_writer`: a small block at fixed times, so that delays caused by others are seen.

use policy::units::Bytes;
use toml::Spanned;
use workload::{LightWriter, Work, light_writer};

use crate::keys::{May, keys};
use crate::limits::{BLOCK, EVERY};
use crate::task::units::millis;
use crate::task::{Ends, Facts, Files, Given, Kind, Sizes, Traits, Writes};

/// Block.
const BLOCK_KIB: f64 = 4.0;

keys! {
    /// Writes a small block now and then.
    Keys:
        every_ms: Spanned<f64>, "Time between two calls.", EVERY;
        block_kib: May<f64>, "Bytes of one call.", BLOCK;
}

impl Keys {
    fn options(&self, at: &Sizes) -> LightWriter {
        LightWriter {
            block: at.block(&self.block_kib, BLOCK_KIB),
            every: millis(*self.every_ms.get_ref()),
            lasting: at.run_for.expect("what ends by time has its time"),
        }
    }
}

impl Kind for Keys {
    fn traits(&self) -> Traits {
        Traits {
            files: Files::Written,
            ends: Ends::Timed,
            writes: Writes::Once,
            ..Traits::NONE
        }
    }

    fn facts(&self, at: &Sizes) -> Facts {
        let options = self.options(at);
        let calls = options.lasting.0 / options.every.0.max(1);
        Facts {
            block: options.block,
            file_bytes: Bytes(options.block.0 * (calls + 1)),
            due: Some(Bytes(calls * options.block.0)),
            ..Facts::default()
        }
    }

    fn work(&self, at: &Sizes, mut given: Given) -> Work {
        let (options, file) = (self.options(at), given.file());
        Work::new(move |task, cache, run| light_writer(task, cache, &file, &options, run))
    }
}
