//! The laws of dirty throttling, one file each, and the list of them.
//!
//! | law | a writer over its limit | module |
//! |---|---|---|
//! | Linux 2.6.36 | writes pages itself, sleeps in growing naps | `foreground` |
//! | paper p1 | sleeps once, in proportion to what it dirtied and to the room left | `soft_region` |
//! | Linux 6.12 | sleeps so as to keep to a rate found by measurement | `rate_based` |
//! | Tidegate | sleeps off its debt at its fair rate | `policy::dirty` |
//!
//! Those of Linux are made of `policy::dirty::limits`, `proportion` (shares), `bandwidth`
//! (estimates), `position` (level to factor), `ratelimit` (base rate), `pause` (rate to sleep),
//! `progress` (the name of a wait); both older laws share `shares`.

mod bandwidth;
mod foreground;
mod learning;
mod pause;
mod position;
mod progress;
mod proportion;
mod rate_based;
mod ratelimit;
mod shares;
mod soft_region;
#[cfg(test)]
mod tests;

pub use foreground::FOREGROUND;
pub use rate_based::RATE_BASED;
pub use soft_region::{SOFT_REGION, SOFT_REGION_MEASURED};

use policy::dirty::Law;

/// All laws, in the order of history. A new one joins here.
pub const ALL: &[Law] = &[
    FOREGROUND,
    SOFT_REGION,
    SOFT_REGION_MEASURED,
    RATE_BASED,
    Law::TIDEGATE,
];

/// The law of that name.
#[must_use]
pub fn by_name(name: &str) -> Option<Law> {
    ALL.iter().copied().find(|law| law.name == name)
}
