//! `mapper`: maps memory, writes to each page of it, unmaps it (p0's latency worker).

use crate::task::{Given, Load, Sizes};
use scenario::keys::value;
use scenario::kinds::mapper::Keys;
use scenario::units::millis;
use workload::{Mapper, Work, mapper};

/// Its rest between two mappings (experiments B1).
const THINK_MS: f64 = 5.0;

impl Load for Keys {
    fn work(&self, at: &Sizes, _: Given) -> Work {
        let options = Mapper {
            pages: at.region(),
            think: millis(value(&self.every_ms).unwrap_or(THINK_MS)),
            for_at_most: at.run_for,
        };
        Work::new(move |task, cache, run| mapper(task, cache, &options, run))
    }
}
