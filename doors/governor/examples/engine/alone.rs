//! One cache of others' alone, with the budget as its capacity: what its process really takes.

use std::sync::Arc;

const ROW: usize = 1024;
/// Bytes of an entry as its owner would count them.
const WEIGHT: u64 = ROW as u64 + 8;
/// Puts, as a multiple of what fits.
const ROUNDS: u64 = 3;

/// Fills the cache of this name three times over, and gives it to be kept.
pub(crate) fn fill(name: &str, limit: u64) -> Option<Box<dyn std::any::Any>> {
    let puts = limit / WEIGHT * ROUNDS;
    let value = || -> Arc<[u8]> { vec![7; ROW].into() };
    match name {
        "quick_cache" => {
            let entries = usize::try_from(limit / WEIGHT).ok()?;
            let cache = quick_cache::sync::Cache::with_weighter(entries, limit, Weigh);
            (0..puts).for_each(|key| cache.insert(key, value()));
            Some(Box::new(cache))
        }
        "foyer" => {
            let capacity = usize::try_from(limit).ok()?;
            let cache: foyer_memory::Cache<u64, Arc<[u8]>> =
                foyer_memory::CacheBuilder::new(capacity)
                    .with_weighter(|_, value: &Arc<[u8]>| value.len() + 8)
                    .build();
            (0..puts).for_each(|key| drop(cache.insert(key, value())));
            Some(Box::new(cache))
        }
        "moka" => {
            let cache = moka::sync::Cache::builder()
                .max_capacity(limit)
                .weigher(|_: &u64, value: &Arc<[u8]>| {
                    u32::try_from(value.len() + 8).unwrap_or(u32::MAX)
                })
                .build();
            // Read as well: it admits what is read.
            for key in 0..puts {
                cache.insert(key, value());
                let _ = cache.get(&key);
            }
            Some(Box::new(cache))
        }
        _ => None,
    }
}

#[derive(Clone)]
struct Weigh;

impl quick_cache::Weighter<u64, Arc<[u8]>> for Weigh {
    fn weight(&self, _: &u64, value: &Arc<[u8]>) -> u64 {
        value.len() as u64 + 8
    }
}
