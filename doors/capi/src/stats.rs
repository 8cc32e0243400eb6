//! Readings: of a cache, a file, and of what was waited for.

use std::ffi::c_char;
use std::time::Duration;

use crate::border::slots::Handle;
use crate::border::{self, In, Out, Result};
use crate::cache::{self, CacheOf};
use crate::failure::{Failure, TG_OK};
use crate::file::{self, Opened};

sized_struct! {
    /// A reading of a cache; bytes.
    "tg_stats" Stats {
        reserved: u32,
        limit: u64,
        over_limit: u64,
        cached: u64,
        free: u64,
        pinned: u64,
        dirty: u64,
        writeback: u64,
        dirty_limit: u64,
        background_limit: u64,
        metadata: u64,
        anonymous: u64,
        swap_total: u64,
        swap_free: u64,
        dirtied_total: u64,
        written_total: u64,
        read_total: u64,
        reclaimed_total: u64,
        failed_total: u64,
        stalled_some_ns: u64,
        stalled_full_ns: u64,
    }
}

sized_struct! {
    /// A reading of a file.
    "tg_file_stats" FileStats {
        reserved: u32,
        cached: u64,
        dirty: u64,
        writeback: u64,
        hits_total: u64,
        misses_total: u64,
    }
}

c_struct! {
    /// All waits of one cause.
    "tg_wait" Wait {
        cause: [u8; 32],
        count: u64,
        timed_out: u64,
        total_ns: u64,
        p50_ns: u64,
        p99_ns: u64,
        max_ns: u64,
    }
}

/// A time, as C has it.
pub(crate) fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn wait_of(wait: &tidegate::Wait) -> Wait {
    let mut cause = [0; 32];
    // The last byte stays zero.
    for (place, letter) in cause.iter_mut().take(31).zip(wait.cause.bytes()) {
        *place = letter;
    }
    Wait {
        cause,
        count: wait.count,
        timed_out: wait.timed_out,
        total_ns: ns(wait.total),
        p50_ns: ns(wait.quantile(500)),
        p99_ns: ns(wait.quantile(990)),
        max_ns: ns(wait.max),
    }
}

fn counter(cache: &tidegate::Cache, name: &str) -> Result<u64> {
    let counters = cache.stats().vmstat;
    let found = counters.iter().find(|(counter, _)| *counter == name);
    let unknown = || {
        Failure::invalid(format!(
            "there is no counter '{name}'; they are named as in /proc/vmstat"
        ))
    };
    found.map(|(_, value)| *value).ok_or_else(unknown)
}

border! {
    fn tg_cache_stats(cache: Handle<CacheOf>, stats: Out<Stats>) -> i32 {
        let read = cache::with(cache, |cache| Ok(cache.stats()))?;
        stats.put_sized(Stats {
            size: 0,
            reserved: 0,
            limit: read.limit,
            over_limit: read.over_limit,
            cached: read.cached,
            free: read.free,
            pinned: read.pinned,
            dirty: read.dirty,
            writeback: read.writeback,
            dirty_limit: read.dirty_limit,
            background_limit: read.background_limit,
            metadata: read.metadata,
            anonymous: read.anonymous,
            swap_total: read.swap.total,
            swap_free: read.swap.free,
            dirtied_total: read.dirtied_total,
            written_total: read.written_total,
            read_total: read.read_total,
            reclaimed_total: read.reclaimed_total,
            failed_total: read.failed_total,
            stalled_some_ns: ns(read.pressure.some),
            stalled_full_ns: ns(read.pressure.full),
        }, "stats")?;
        Ok(TG_OK)
    }

    fn tg_file_stats_of(file: Handle<Opened>, stats: Out<FileStats>) -> i32 {
        let read = file::with(file, |file| Ok(file.stats()?))?;
        stats.put_sized(FileStats {
            size: 0,
            reserved: 0,
            cached: read.cached,
            dirty: read.dirty,
            writeback: read.writeback,
            hits_total: read.hits_total,
            misses_total: read.misses_total,
        }, "stats")?;
        Ok(TG_OK)
    }

    fn tg_cache_waits(cache: Handle<CacheOf>, waits: Out<Wait>, max: usize) -> i64 {
        let read = cache::with(cache, |cache| Ok(cache.stats().waits))?;
        if max > 0 {
            let read: Vec<Wait> = read.iter().map(wait_of).collect();
            waits.there("waits")?.put_many(&read, max);
        }
        Ok(border::count(read.len()))
    }

    fn tg_cache_counter(cache: Handle<CacheOf>, name: In<c_char>, value: Out<u64>) -> i32 {
        let (name, value) = (name.text("name")?, value.there("value")?);
        value.put(cache::with(cache, |cache| counter(cache, name))?);
        Ok(TG_OK)
    }
}
