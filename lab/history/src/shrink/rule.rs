//! In what the arithmetic of shrinkers differs between eras: one row of data each.
//!
//! | law | in proportion to | of what is owed | small deltas | the rest of a pass |
//! |---|---|---|---|---|
//! | 2.6.36 | pages scanned | all | | what is left below the bounds |
//! | 3.2 | pages scanned | all | total <= freeable / 2 | the same |
//! | 4.20 | the priority | all | the same; at least a batch | all that was owed and not scanned |
//! | 5.0 to 5.12 | the priority | all | total <= freeable / 2 | the same |
//! | 5.13 to 6.12 | the priority | by the priority | | the same, at most 2 * freeable |
//!
//! Source: mechanisms 7.2; kernel-facts 17; Linux mm/vmscan.c of those versions, shrink_slab(),
//! do_shrink_slab().

/// In what proportion a cache is scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Weight {
    /// As many of its objects as pages were scanned of those on the lists (before 4.16).
    PagesScanned,
    /// By the priority of the pass.
    Priority,
}

/// The part of its debt that a cache pays in one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owed {
    /// All.
    Whole,
    /// A part by its priority (5.13 and later).
    ByPriority,
}

/// The debt after a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Left {
    /// The rest of the pass's own total: a part that its bounds cut off is forgiven.
    OfTotal,
    /// The debt and its addition, less the objects scanned.
    All,
    /// The same, but no more than twice what is freeable.
    Bounded,
}

/// The arithmetic of one era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShrinkRule {
    /// Name of its column.
    pub name: &'static str,
    /// In what proportion a cache is scanned.
    pub weight: Weight,
    /// The part of its debt that it pays in one pass.
    pub owed: Owed,
    /// Its debt after the pass.
    pub left: Left,
    /// A pass asks for a batch at least, or for all there is (4.20 alone).
    pub batch_at_least: bool,
    /// A pass that would ask for less than a quarter of itself does not ask for more than half of
    /// what is freeable, however much is owed: it must not empty a cache.
    pub gentle_to_half: bool,
    /// The last batch may be a smaller one, where it is all that is freeable.
    pub takes_the_last: bool,
}

impl ShrinkRule {
    /// Linux 2.6.36.
    pub const LINUX_2_6_36: Self = Self {
        name: "linux-2.6.36",
        weight: Weight::PagesScanned,
        owed: Owed::Whole,
        left: Left::OfTotal,
        batch_at_least: false,
        gentle_to_half: false,
        takes_the_last: false,
    };
    /// Linux 3.2.
    pub const LINUX_3_2: Self = Self {
        name: "linux-3.2",
        gentle_to_half: true,
        ..Self::LINUX_2_6_36
    };
    /// Linux 4.20.
    pub const LINUX_4_20: Self = Self {
        name: "linux-4.20",
        batch_at_least: true,
        ..Self::LINUX_5_0
    };
    /// Linux 5.0 to 5.12; paper p3 left it as it is.
    pub const LINUX_5_0: Self = Self {
        name: "linux-5.0",
        weight: Weight::Priority,
        owed: Owed::Whole,
        left: Left::All,
        batch_at_least: false,
        gentle_to_half: true,
        takes_the_last: true,
    };
    /// Linux 5.13 to 6.12.
    pub const LINUX_6_12: Self = Self {
        name: "linux-6.12",
        owed: Owed::ByPriority,
        left: Left::Bounded,
        gentle_to_half: false,
        ..Self::LINUX_5_0
    };

    /// All of them, in the order of history. A new one joins here.
    pub const ALL: [Self; 5] = [
        Self::LINUX_2_6_36,
        Self::LINUX_3_2,
        Self::LINUX_4_20,
        Self::LINUX_5_0,
        Self::LINUX_6_12,
    ];

    /// The rule of that name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.name == name)
    }
}
