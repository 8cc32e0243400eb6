//! The laws of dirty throttling, one file each, and the list of them.
//!
//! | law | a writer over its limit | module |
//! |---|---|---|
//! | Linux 2.6.36 | writes pages itself, sleeps in growing naps | `foreground` |
//! | paper p1 | sleeps once, in proportion to what it dirtied and to the room left | `soft_region` |
//! | Linux 6.12 | sleeps so as to keep to a rate found by measurement | `rate_based` |
//! | Tidegate | sleeps off what it owes at its fair rate | `tidegate` |
//!
//! They are made of `limits`, `proportion` (shares), `bandwidth` (estimates), `position` (level to
//! factor), `ratelimit` (base rate), `pause` (rate to sleep), `progress` (the name of a wait); both
//! older laws share `shares`.

mod foreground;
mod rate_based;
mod shares;
mod soft_region;
mod tidegate;

use super::law::Law;

/// All laws, in the order of history. A new one joins here.
pub const ALL: &[Law] = &[
    Law::FOREGROUND,
    Law::SOFT_REGION,
    Law::SOFT_REGION_MEASURED,
    Law::RATE_BASED,
    Law::TIDEGATE,
];

/// The law of that name.
#[must_use]
pub fn by_name(name: &str) -> Option<Law> {
    ALL.iter().copied().find(|law| law.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_finds_its_own_law_alone() {
        for law in ALL {
            let of_that_name = ALL.iter().filter(|other| other.name == law.name);
            assert_eq!(of_that_name.count(), 1, "{law:?}");
            assert_eq!(by_name(law.name), Some(*law));
        }
        assert_eq!(by_name("none"), None);
    }
}
