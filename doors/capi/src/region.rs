//! Regions of anonymous memory that spill to the cache's swap file.

use std::ffi::c_void;

use tidegate::Spill;

use crate::border::slots::{Handle, Kind, Table};
use crate::border::{In, Out, Result};
use crate::cache::{self, CacheOf, Lodger};
use crate::failure::TG_OK;

/// A region of C's.
pub(crate) struct Region {
    spill: Spill,
    cache: Handle<CacheOf>,
}

kind! { Region, REGIONS, 4, lodger }

fn with<R>(region: Handle<Region>, what: impl FnOnce(&Spill) -> Result<R>) -> Result<R> {
    REGIONS.with(region, |region| what(&region.spill))
}

border! {
    fn tg_region_new(cache: Handle<CacheOf>, bytes: u64, region: Out<Handle<Region>>) -> i32 {
        let place = region.there("region")?;
        let made = cache::with(cache, |of| {
            let spill = of.spill(bytes)?;
            REGIONS.insert(Region { spill, cache })
        });
        place.put(made?);
        Ok(TG_OK)
    }

    fn tg_region_free(region: Handle<Region>) -> i32 {
        drop(REGIONS.take(region)?);
        Ok(TG_OK)
    }

    fn tg_region_read(region: Handle<Region>, data: Out<c_void>, len: usize, offset: u64) -> i32 {
        with(region, |region| Ok(region.read_at(data.bytes(len, "data")?, offset)?)).map(|()| TG_OK)
    }

    fn tg_region_write(region: Handle<Region>, data: In<c_void>, len: usize, offset: u64) -> i32 {
        with(region, |region| Ok(region.write_at(data.bytes(len, "data")?, offset)?)).map(|()| TG_OK)
    }

    fn tg_region_discard(region: Handle<Region>, offset: u64, len: u64) -> i32 {
        with(region, |region| Ok(region.discard(offset, len)?)).map(|()| TG_OK)
    }
}
