//! The caches that are compared, behind what is measured of them.
//!
//! Loops over hits are in each of them, so that no call through a table is measured.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tidegate::RuleMaker;

use super::{Failure, PAGE, Source};

/// Bytes of an entry as its owner would count them.
const WEIGHT: u64 = PAGE as u64 + 8;

type Value = Arc<[u8]>;

pub(crate) trait Pages: Sync {
    /// Brings a page in; what is in it does not matter.
    fn load(&self, page: u32) -> Result<(), Failure>;
    /// Hits in this order; ns each.
    fn hits(&self, order: &mut dyn FnMut() -> u32, count: u32) -> f64;
    /// One access; whether it was there. A cache of others reads what it has not from `source`.
    fn get_or_read(&self, page: u32, source: &mut Source) -> Result<bool, Failure>;
}

/// The cache of this name, limited to `limit` bytes.
pub(crate) fn make(name: &str, path: &Path, limit: u64) -> Result<Box<dyn Pages>, Failure> {
    let entries = usize::try_from(limit / WEIGHT)?;
    Ok(match name {
        _ if name.starts_with("tidegate") => {
            let mut builder = tidegate::Cache::builder().memory(limit);
            if let Some(rule) = name.strip_prefix("tidegate+") {
                let found = RuleMaker::by_name(rule);
                builder = builder.page_rule(found.ok_or(format!("'{rule}' is no page rule"))?);
            }
            let cache = builder.build()?;
            let file = cache.open(path, tidegate::OpenOptions::new())?;
            Box::new(Tidegate(file, cache))
        }
        "quick_cache" => {
            let cache = quick_cache::sync::Cache::with_weighter(entries, limit, Weigh);
            Box::new(Quick(cache))
        }
        "foyer" => {
            let builder = foyer_memory::CacheBuilder::new(usize::try_from(limit)?);
            let weigh = |_: &u32, value: &Value| value.len() + 8;
            Box::new(Foyer(builder.with_weighter(weigh).build()))
        }
        "moka" => {
            let builder = moka::sync::Cache::builder().max_capacity(limit);
            let weigh = |_: &u32, value: &Value| u32::try_from(value.len() + 8).unwrap_or(u32::MAX);
            Box::new(Moka(builder.weigher(weigh).build()))
        }
        _ => return Err(format!("'{name}' is no cache here").into()),
    })
}

/// `count` times `hit` on pages drawn beforehand: the order is no part of a hit.
fn timed(order: &mut dyn FnMut() -> u32, count: u32, mut hit: impl FnMut(u32) -> bool) -> f64 {
    // 256 KiB, read in order.
    let pages: Vec<u32> = (0..1 << 16).map(|_| order()).collect();
    let (mut left, mut hits) = (count, 0);
    let began = Instant::now();
    while left > 0 {
        for page in &pages[..pages.len().min(left as usize)] {
            hits += u32::from(hit(*page));
        }
        left = left.saturating_sub(1 << 16);
    }
    let took = began.elapsed().as_secs_f64() * 1e9 / f64::from(count);
    assert_eq!(hits, count, "everything is cached");
    took
}

fn value() -> Value {
    vec![7; PAGE].into()
}

/// The cache is kept with its file.
struct Tidegate(tidegate::File, #[expect(dead_code)] tidegate::Cache);

impl Pages for Tidegate {
    fn load(&self, page: u32) -> Result<(), Failure> {
        drop(self.0.pin(page)?);
        Ok(())
    }

    fn hits(&self, order: &mut dyn FnMut() -> u32, count: u32) -> f64 {
        timed(order, count, |page| {
            black_box(self.0.try_pin(page)).is_some()
        })
    }

    fn get_or_read(&self, page: u32, _: &mut Source) -> Result<bool, Failure> {
        if let Some(pin) = self.0.try_pin(page) {
            black_box(&pin);
            return Ok(true);
        }
        black_box(self.0.pin(page)?);
        Ok(false)
    }
}

struct Quick(quick_cache::sync::Cache<u32, Value, Weigh>);

#[derive(Clone)]
struct Weigh;

impl quick_cache::Weighter<u32, Value> for Weigh {
    fn weight(&self, _: &u32, value: &Value) -> u64 {
        value.len() as u64 + 8
    }
}

impl Pages for Quick {
    fn load(&self, page: u32) -> Result<(), Failure> {
        if self.0.get(&page).is_none() {
            self.0.insert(page, value());
        }
        Ok(())
    }

    fn hits(&self, order: &mut dyn FnMut() -> u32, count: u32) -> f64 {
        timed(order, count, |page| black_box(self.0.get(&page)).is_some())
    }

    fn get_or_read(&self, page: u32, source: &mut Source) -> Result<bool, Failure> {
        if let Some(value) = self.0.get(&page) {
            black_box(&value);
            return Ok(true);
        }
        self.0.insert(page, source.read(page)?.into());
        Ok(false)
    }
}

struct Moka(moka::sync::Cache<u32, Value>);

impl Pages for Moka {
    fn load(&self, page: u32) -> Result<(), Failure> {
        if self.0.get(&page).is_none() {
            self.0.insert(page, value());
        }
        Ok(())
    }

    fn hits(&self, order: &mut dyn FnMut() -> u32, count: u32) -> f64 {
        timed(order, count, |page| black_box(self.0.get(&page)).is_some())
    }

    fn get_or_read(&self, page: u32, source: &mut Source) -> Result<bool, Failure> {
        if let Some(value) = self.0.get(&page) {
            black_box(&value);
            return Ok(true);
        }
        self.0.insert(page, source.read(page)?.into());
        Ok(false)
    }
}

struct Foyer(foyer_memory::Cache<u32, Value>);

impl Pages for Foyer {
    fn load(&self, page: u32) -> Result<(), Failure> {
        if self.0.get(&page).is_none() {
            drop(self.0.insert(page, value()));
        }
        Ok(())
    }

    fn hits(&self, order: &mut dyn FnMut() -> u32, count: u32) -> f64 {
        timed(order, count, |page| black_box(self.0.get(&page)).is_some())
    }

    fn get_or_read(&self, page: u32, source: &mut Source) -> Result<bool, Failure> {
        if let Some(entry) = self.0.get(&page) {
            black_box(&entry);
            return Ok(true);
        }
        drop(self.0.insert(page, source.read(page)?.into()));
        Ok(false)
    }
}
