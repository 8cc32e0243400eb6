//! `light_writer`: a small block at fixed times, so that delays caused by others are seen.

use crate::task::{Facts, Given, Load, Sizes};
use policy::units::Bytes;
use scenario::kinds::light_writer::Keys;
use scenario::units::millis;
use workload::{LightWriter, Work, light_writer};

/// Block.
const BLOCK_KIB: f64 = 4.0;

fn options(keys: &Keys, at: &Sizes) -> LightWriter {
    LightWriter {
        block: at.block(&keys.block_kib, BLOCK_KIB),
        every: millis(*keys.every_ms.get_ref()),
        lasting: at.run_for.expect("what ends by time has its time"),
    }
}

impl Load for Keys {
    fn facts(&self, at: &Sizes) -> Facts {
        let options = options(self, at);
        let calls = options.lasting.0 / options.every.0.max(1);
        Facts {
            block: options.block,
            file_bytes: Bytes(options.block.0 * (calls + 1)),
            due: Some(Bytes(calls * options.block.0)),
            ..Facts::default()
        }
    }

    fn work(&self, at: &Sizes, mut given: Given) -> Work {
        let (options, file) = (options(self, at), given.file());
        Work::new(move |task, cache, run| light_writer(task, cache, &file, &options, run))
    }
}
