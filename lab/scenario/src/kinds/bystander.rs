//! `bystander`: takes a little memory on a schedule and gives it back.

use crate::keys::keys;
use crate::limits::{EVERY, REGION};
use crate::task::{Ends, Kind, Memory, Traits};
use toml::Spanned;

keys! {
    /// Takes a page on a schedule, and gives one back for it.
    Keys:
        region_mib: Spanned<f64>, "The memory that it keeps: a few pages, and not scaled.", REGION;
        every_ms: Spanned<f64>, "Time between two pages.", EVERY;
}

impl Kind for Keys {
    fn traits(&self) -> Traits {
        Traits {
            memory: Memory::Scheduled,
            ends: Ends::Timed,
            ..Traits::NONE
        }
    }
}
