//! `engine`: a storage engine with pages in place and a log.

use crate::task::{Facts, Given, Load, Sizes};
use policy::units::{Bytes, PAGE_SIZE};
use scenario::keys::value;
use scenario::kinds::engine::{Keys, OrderKind};
use scenario::units::millis;
use workload::{Engine, Order, Work, engine};

/// A record: a block of the log.
const RECORD_KIB: f64 = 4.0;
const PAGES: u32 = 8;
const COMMIT_EVERY: u32 = 16;
const CHECKPOINT_MS: f64 = 5000.0;

fn options(keys: &Keys, at: &Sizes) -> Engine {
    Engine {
        size: at.file(Bytes(PAGE_SIZE)),
        pages: value(&keys.pages).unwrap_or(PAGES),
        record: at.block(&keys.block_kib, RECORD_KIB),
        commit_every: value(&keys.commit_every).unwrap_or(COMMIT_EVERY),
        checkpoint: millis(value(&keys.every_ms).unwrap_or(CHECKPOINT_MS)),
        order: match value(&keys.kept_by) {
            None | Some(OrderKind::Cache) => Order::Cache,
            Some(OrderKind::Memory) => Order::Memory,
            Some(OrderKind::Page) => Order::Page,
        },
        for_at_most: at.run_for,
    }
}

impl Load for Keys {
    fn facts(&self, at: &Sizes) -> Facts {
        Facts::of_files(Bytes(PAGE_SIZE), options(self, at).size)
    }

    fn work(&self, at: &Sizes, mut given: Given) -> Work {
        let (options, log, pages) = (options(self, at), given.source(), given.file());
        Work::new(move |task, cache, run| engine(task, cache, (&pages, &log), &options, run))
    }
}
