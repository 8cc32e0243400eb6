//! Laws of falling back on the free lists of another mobility.
//!
//! Source: mechanisms 1.8; kernel-facts 15, 19; Linux 3.2, 4.20, 5.0, 5.3 and 6.12
//! mm/page_alloc.c, __rmqueue_fallback().

use policy::place::mobility::FallbackRule;

#[cfg(test)]
mod tests;

/// Linux 3.0 to 3.3.
pub const LINUX_3_2: FallbackRule = FallbackRule {
    name: "linux-3.2",
    by_what_is_free: true,
    ..LINUX_4_20
};
/// Linux 4.20.
pub const LINUX_4_20: FallbackRule = FallbackRule {
    name: "linux-4.20",
    claims_or_leaves: false,
    keeps_apart: false,
    by_what_is_free: false,
};
/// Linux 5.0, with paper p3's patch or without.
pub const LINUX_5_0: FallbackRule = FallbackRule {
    name: "linux-5.0",
    ..LINUX_4_20
};
/// Linux 5.3.
pub const LINUX_5_3: FallbackRule = FallbackRule {
    name: "linux-5.3",
    keeps_apart: true,
    ..LINUX_5_0
};
/// Linux 6.12.117.
pub const LINUX_6_12: FallbackRule = FallbackRule {
    name: "linux-6.12",
    claims_or_leaves: true,
    ..LINUX_5_3
};

/// All of them, in the order of history. A new one joins here.
pub const ALL: [FallbackRule; 5] = [LINUX_3_2, LINUX_4_20, LINUX_5_0, LINUX_5_3, LINUX_6_12];

/// The rule of that name.
#[must_use]
pub fn by_name(name: &str) -> Option<FallbackRule> {
    ALL.into_iter().find(|rule| rule.name == name)
}
