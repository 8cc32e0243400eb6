//! Maps: bytes of a file as memory of the program.

use std::ffi::c_void;
use std::ops::Range;

use tidegate::{Map, MapOptions, Rights};

use crate::border::slots::{Handle, Kind, Table};
use crate::border::{Out, Result, count};
use crate::cache::only;
use crate::failure::TG_OK;
use crate::file::{self, Opened};

/// A map of C's.
pub(crate) struct MapOf(Map);

kind! { MapOf, MAPS, 8 }

flags! {
    TG_MAP_WRITE = 1,
    TG_MAP_USER_MODE = 2,
}

sized_struct! {
    /// A reading of a map.
    "tg_map_stats" MapStats {
        user_mode: u32,
        faults_total: u64,
        reads_total: u64,
        stores_total: u64,
        waited_total: u64,
        pages_total: u64,
        failed_total: u64,
        resident: u64,
    }
}

/// Bytes of something that has `whole`; `len` of 0: up to its end.
fn part(offset: u64, len: u64, whole: u64) -> Range<u64> {
    let end = match len {
        0 => whole.max(offset),
        len => offset.saturating_add(len),
    };
    offset..end
}

fn with<R>(map: Handle<MapOf>, what: impl FnOnce(&Map) -> Result<R>) -> Result<R> {
    MAPS.with(map, |map| what(&map.0))
}

/// Does something with a part of a map.
fn on_part(
    map: Handle<MapOf>,
    (offset, len): (u64, u64),
    what: impl FnOnce(&Map, Range<u64>) -> std::result::Result<(), tidegate::Error>,
) -> Result<i32> {
    with(map, |map| {
        what(map, part(offset, len, map.len() as u64))?;
        Ok(TG_OK)
    })
}

border! {
    fn tg_map_new(
        file: Handle<Opened>,
        offset: u64,
        len: u64,
        flags: u32,
        map: Out<Handle<MapOf>>,
    ) -> i32 {
        let place = map.there("map")?;
        only(flags, TG_MAP_WRITE | TG_MAP_USER_MODE, "flags")?;
        let options = MapOptions::new()
            .write(flags & TG_MAP_WRITE != 0)
            .user_mode(flags & TG_MAP_USER_MODE != 0);
        let made = Opened::table().with(file, |opened| {
            let file = &opened.file;
            let map = file.map(part(offset, len, file.len()), options)?;
            MAPS.insert(MapOf(map))
        });
        place.put(made?);
        Ok(TG_OK)
    }

    fn tg_map_free(map: Handle<MapOf>) -> i32 {
        drop(MAPS.take(map)?);
        Ok(TG_OK)
    }

    fn tg_map_data(map: Handle<MapOf>) -> Out<c_void> {
        with(map, |map| Ok(Out::of_memory(map.as_ptr())))
    }

    fn tg_map_len(map: Handle<MapOf>) -> i64 {
        with(map, |map| Ok(count(map.len())))
    }

    fn tg_map_sync(map: Handle<MapOf>, offset: u64, len: u64) -> i32 {
        on_part(map, (offset, len), Map::sync)
    }

    fn tg_map_populate(map: Handle<MapOf>, offset: u64, len: u64) -> i32 {
        on_part(map, (offset, len), Map::populate)
    }

    fn tg_map_advise(map: Handle<MapOf>, advice: u32, offset: u64, len: u64) -> i32 {
        let advice = file::advice_of(advice)?;
        on_part(map, (offset, len), |map, part| map.advise(advice, part))
    }

    fn tg_map_stats_of(map: Handle<MapOf>, stats: Out<MapStats>) -> i32 {
        let (read, rights) = with(map, |map| Ok((map.stats(), map.rights())))?;
        stats.put_sized(MapStats {
            size: 0,
            user_mode: u32::from(rights == Rights::UserMode),
            faults_total: read.faults_total,
            reads_total: read.reads_total,
            stores_total: read.stores_total,
            waited_total: read.waited_total,
            pages_total: read.pages_total,
            failed_total: read.failed_total,
            resident: read.resident,
        }, "stats")?;
        Ok(TG_OK)
    }
}
