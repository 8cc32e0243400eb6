//! Quantities of a scenario as those of the program. `sizes` scales them.

use policy::units::{Bytes, Nanos, PAGE_SIZE};

/// Pages of one mebibyte.
pub const PAGES_PER_MIB: f64 = 256.0;
/// Most memory, before scaling: 16 TiB, far from any overflow.
pub const MEMORY_MOST_MIB: f64 = 16.0 * 1024.0 * 1024.0;
/// Most files that the tasks of an entry make: each has a place in the cache, and an index.
pub const FILES_MADE_MOST: f64 = 1_048_576.0;

/// Bytes of `value` mebibytes.
pub fn mib(value: f64) -> u64 {
    whole(value * 1_048_576.0)
}

/// Bytes of `value` kibibytes.
pub fn kib(value: f64) -> Bytes {
    Bytes(whole(value * 1024.0))
}

/// A time of that many seconds.
pub fn seconds(value: f64) -> Nanos {
    Nanos(whole(value * 1e9))
}

/// A time of that many milliseconds.
pub fn millis(value: f64) -> Nanos {
    Nanos(whole(value * 1e6))
}

/// The nearest whole number of a quantity that a check has bounded.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative and below 2^53 by the ranges of scenario::check"
)]
pub fn whole(value: f64) -> u64 {
    value.round() as u64
}

/// Pages of a block, and parts of a page.
#[expect(
    clippy::cast_precision_loss,
    reason = "blocks are below 2^26 bytes by scenario::check"
)]
pub fn whole_pages(bytes: Bytes) -> f64 {
    bytes.0 as f64 / PAGE_SIZE as f64
}
