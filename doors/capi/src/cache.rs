//! A cache: built, limited, synced.

use std::ffi::c_char;

use tidegate::{Bytes, Cache, ErrorPolicy, RuleMaker, Threshold, rule};

use crate::border::slots::{Handle, Kind, Table};
use crate::border::{In, Out, Result, count};
use crate::failure::{Failure, TG_OK};

/// A cache of C's.
pub(crate) struct CacheOf(pub(crate) Cache);

kind! { CacheOf, CACHES, 1 }

/// An object that lives in a cache, and ends with it.
pub(crate) trait Lodger: Kind {
    fn cache(&self) -> Handle<CacheOf>;
}

flags! {
    TG_WHOLE_PROCESS = 1,
    TG_PREFAULT = 2,
    TG_NO_IO_URING = 4,
    TG_IGNORE_GROUP = 8,
    TG_CORE_DUMP = 16,
    TG_MAPS = 32,
    TG_RETRY = 1,
    TG_REPORT = 2,
    TG_STOP = 3,
}

sized_struct! {
    /// The options of a cache; zeroes mean the default.
    "tg_cache_options" CacheOptions {
        flags: u32,
        memory: u64,
        beside: u64,
        dirty_bytes: u64,
        background_bytes: u64,
        dirty_percent: u32,
        background_percent: u32,
        readahead: u64,
        swap_path: In<c_char>,
        swap_bytes: u64,
        swappiness: u32,
        devices: u32,
        on_error: u32,
        reserved: u32,
        page_rule: In<c_char>,
        layers: In<c_char>,
    }
}

/// Only these flags.
pub(crate) fn only(flags: u32, known: u32, what: &str) -> Result<()> {
    match flags & !known {
        0 => Ok(()),
        unknown => Err(Failure::invalid(format!(
            "{what} has {unknown:#x}, which this library does not know"
        ))),
    }
}

/// A threshold as C has it: two numbers, of which one is set.
fn threshold(what: &str, percent: u32, bytes: u64) -> Result<Option<Threshold>> {
    match (percent, bytes) {
        (0, 0) => Ok(None),
        (0, bytes) => Ok(Some(Threshold::Pages(Bytes(bytes).pages_ceil()))),
        (percent, 0) => match u8::try_from(percent) {
            Ok(percent) => Ok(Some(Threshold::Percent(percent))),
            Err(_) => Err(Failure::invalid(format!(
                "{what}_percent is {percent}; 1 to 100 are possible"
            ))),
        },
        _ => Err(Failure::invalid(format!(
            "{what}_percent and {what}_bytes are both set; set one"
        ))),
    }
}

fn build(options: &CacheOptions) -> Result<Cache> {
    let known = TG_WHOLE_PROCESS | TG_PREFAULT | TG_NO_IO_URING | TG_IGNORE_GROUP;
    only(options.flags, known | TG_CORE_DUMP | TG_MAPS, "flags")?;
    let has = |flag| options.flags & flag != 0;
    let mut builder = Cache::builder()
        .whole_process(has(TG_WHOLE_PROCESS))
        .prefault(has(TG_PREFAULT))
        .io_uring(!has(TG_NO_IO_URING))
        .follow_group(!has(TG_IGNORE_GROUP))
        .core_dump(has(TG_CORE_DUMP))
        .maps(has(TG_MAPS))
        .beside(options.beside);
    if options.memory > 0 {
        builder = builder.memory(options.memory);
    }
    if let Some(dirty) = threshold("dirty", options.dirty_percent, options.dirty_bytes)? {
        builder = builder.dirty_limit(dirty);
    }
    let background = threshold(
        "background",
        options.background_percent,
        options.background_bytes,
    )?;
    if let Some(background) = background {
        builder = builder.background_limit(background);
    }
    if options.readahead > 0 {
        builder = builder.readahead(options.readahead);
    }
    if !options.swap_path.is_null() {
        builder = builder.swap_file(options.swap_path.path("swap_path")?, options.swap_bytes);
    }
    if options.swappiness > 0 {
        let swappiness = u8::try_from(options.swappiness).unwrap_or(u8::MAX);
        builder = builder.swappiness(swappiness);
    }
    if options.devices > 0 {
        builder = builder.devices(u16::try_from(options.devices).unwrap_or(u16::MAX));
    }
    builder = match options.on_error {
        0 => builder,
        TG_RETRY => builder.on_error(ErrorPolicy::Retry),
        TG_REPORT => builder.on_error(ErrorPolicy::Report),
        TG_STOP => builder.on_error(ErrorPolicy::Stop),
        other => {
            return Err(Failure::invalid(format!(
                "on_error is {other}; TG_RETRY, TG_REPORT and TG_STOP are possible"
            )));
        }
    };
    if !options.page_rule.is_null() {
        let name = options.page_rule.text("page_rule")?;
        let unknown = || {
            let names: Vec<&str> = rule::ALL.iter().map(|(name, _)| *name).collect();
            let there_are = names.join(", ");
            Failure::invalid(format!(
                "there is no page rule '{name}'; there are {there_are}"
            ))
        };
        builder = builder.page_rule(RuleMaker::by_name(name).ok_or_else(unknown)?);
    }
    if !options.layers.is_null() {
        builder = builder.layers(options.layers.text("layers")?)?;
    }
    Ok(builder.build()?)
}

/// Does something with a cache.
pub(crate) fn with<R>(cache: Handle<CacheOf>, what: impl FnOnce(&Cache) -> Result<R>) -> Result<R> {
    CACHES.with(cache, |cache| what(&cache.0))
}

border! {
    fn tg_cache_new(options: In<CacheOptions>, cache: Out<Handle<CacheOf>>) -> i32 {
        let cache = cache.there("cache")?;
        let built = build(&options.read_sized("options")?)?;
        cache.put(CACHES.insert(CacheOf(built))?);
        Ok(TG_OK)
    }

    fn tg_cache_sync(cache: Handle<CacheOf>) -> i32 {
        with(cache, |cache| Ok(cache.sync()?)).map(|()| TG_OK)
    }

    fn tg_cache_set_limit(cache: Handle<CacheOf>, bytes: u64) -> i32 {
        with(cache, |cache| Ok(cache.set_limit(bytes)?)).map(|()| TG_OK)
    }

    fn tg_cache_trim(cache: Handle<CacheOf>) -> i64 {
        with(cache, |cache| Ok(count(cache.trim())))
    }

    fn tg_cache_release_layers(cache: Handle<CacheOf>) -> i32 {
        with(cache, |cache| {
            cache.release_layers();
            Ok(TG_OK)
        })
    }

    fn tg_cache_reopen_device(cache: Handle<CacheOf>, path: In<c_char>) -> i32 {
        let path = path.path("path")?;
        with(cache, |cache| Ok(cache.reopen_device(path)?)).map(|()| TG_OK)
    }

    fn tg_size(text: In<c_char>, bytes: Out<u64>) -> i32 {
        let bytes = bytes.there("bytes")?;
        let size = figures::size(text.text("text")?);
        bytes.put(size.map_err(|error| Failure::invalid(error.to_string()))?);
        Ok(TG_OK)
    }
}
