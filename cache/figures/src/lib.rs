//! Figures as people write and read them: one grammar of sizes and of times for all options, one
//! definition of quantiles, the names that were meant, and text of others as it can be printed.
//!
//! Invariants
//!   1. A size means the same bytes wherever it is written: every option reads it here.
//!   2. A unit is never guessed. The table for users, `docs/sizes.md`, is held to this by a test.
#![forbid(unsafe_code)]

#[cfg(feature = "names")]
mod names;
mod quantiles;
mod shown;
mod units;

#[cfg(feature = "names")]
pub use names::{choices, nearest};
pub use quantiles::{median, quantile, weighted};
pub use shown::{Shown, is_unsafe, shown};
pub use units::{
    Fault, FigureError, Quantity, decimal, size, size_above_zero, time, time_above_zero,
};
