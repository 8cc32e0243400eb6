//! Allowed values of several keys of a scenario.

use history::files::InodeRule;
use history::shrink::ShrinkRule;

use crate::catalogue;
use crate::keys::{Allowed, names, range};
use crate::presets::REASONS;
use crate::units::{FILES_MADE_MOST, MEMORY_MOST_MIB};

/// Least memory for pages that any run can do with, after scaling.
pub(crate) const MEMORY_LEAST_MIB: f64 = 4.0;
/// Most bytes of one file (16 TiB).
pub(crate) const FILE_MOST_MIB: f64 = 16.0 * 1024.0 * 1024.0;
/// Most tasks of one entry: each is a coroutine with a stack.
const TASKS_MOST: f64 = 4096.0;
/// Most memory or files of all tasks of one entry, as a part of the machine's memory.
const PART_MOST: f64 = 1000.0;
/// Ticks a second that a column may have.
pub const HZ: core::ops::RangeInclusive<u32> = 100..=1000;
/// The slowest device that has a rate.
pub const RATE_LEAST_MIB: f64 = 1.0 / 256.0;
/// The fastest.
pub const RATE_MOST_MIB: f64 = 65_536.0;

pub(crate) const MEMORY: Allowed = range(MEMORY_LEAST_MIB, MEMORY_MOST_MIB, " MiB");
pub(crate) const LIMIT: Allowed = range(0.0625, MEMORY_MOST_MIB, " MiB");
pub(crate) const PERCENT: Allowed = range(1.0, 100.0, " %");
pub(crate) const SHARE: Allowed = range(0.01, 100.0, " %");
pub(crate) const SWAPPINESS: Allowed = range(0.0, 200.0, "");
/// A larger window is no window.
pub(crate) const READAHEAD: Allowed = range(0.0, 64.0 * 1024.0, " KiB");
pub(crate) const TICKS: Allowed = range(*HZ.start() as f64, *HZ.end() as f64, " ticks a second");
pub(crate) const RATE: Allowed = range(RATE_LEAST_MIB, RATE_MOST_MIB, " MiB/s");
pub(crate) const COUNT: Allowed = range(1.0, TASKS_MOST, "");
/// A task that never runs has nothing to be measured.
pub(crate) const RUN: Allowed = range(1e-6, 1e7, " s");
pub(crate) const EVERY: Allowed = range(0.001, 1e7, " ms");
pub(crate) const BLOCK: Allowed = range(0.5, 64.0 * 1024.0, " KiB");
pub(crate) const FILE_KIB: Allowed = range(0.5, FILE_MOST_MIB * 1024.0, " KiB");
pub(crate) const FILE_MIB: Allowed = range(0.001, FILE_MOST_MIB, " MiB");
pub(crate) const REGION: Allowed = range(1.0 / 256.0, MEMORY_MOST_MIB, " MiB");
pub(crate) const PART: Allowed = range(0.0001, PART_MOST, " of the memory");
/// Files of one task.
pub(crate) const FILES: Allowed = range(1.0, 4096.0, "");
/// Files and rounds of a task that makes files.
pub(crate) const MADE: Allowed = range(1.0, FILES_MADE_MOST, "");

pub(crate) const MODELS: Allowed = names("device model", catalogue::models);
pub(crate) const FILE_SYSTEMS: Allowed = names("file system", catalogue::file_systems);
pub(crate) const REASON: Allowed = names("reason to throttle", || all(&REASONS, |known| known.0));
pub(crate) const RECLAIM: Allowed = names("way to throttle reclaim", || {
    all(history::reclaim::ALL, |law| law.name)
});
pub(crate) const PLACE: Allowed = names("law of placement", || {
    all(&history::place::ALL, |law| law.name)
});
pub(crate) const PAGE_RULE: Allowed = names("page rule", || all(policy::rule::ALL, |rule| rule.0));
pub(crate) const INODES: Allowed = names("way to let inodes go", || {
    all(&InodeRule::ALL, |rule| rule.name)
});
pub(crate) const BOOST: Allowed = names("way to boost", || {
    all(&history::boost::ALL, |rule| rule.name)
});
pub(crate) const SHRINK: Allowed = names("way to ask caches of objects", || {
    all(&ShrinkRule::ALL, |rule| rule.name)
});

fn all<T>(list: &[T], name: fn(&T) -> &'static str) -> Vec<&'static str> {
    list.iter().map(name).collect()
}
