//! The name of a law of dirty throttling, and the engine built of it.

use core::fmt;
use core::ops::Deref;

use super::running::Engine;
use super::types::Threshold;
use crate::units::Pages;

/// A law that holds writers back. Chosen when the cache is built.
#[derive(Clone, Copy)]
pub struct Law(&'static Profile);

/// The description of a law before it works.
pub struct Profile {
    /// Its name in plans. No two laws share one.
    pub name: &'static str,
    /// Makes its engine, with room for this many devices.
    pub start: fn(&Tunables, usize) -> Box<dyn Engine>,
    /// A writer that is held has the dirty pages of other devices written too: they are a part of
    /// the level, and those that made them dirty may never come to a balance. Linux leaves them to
    /// the periodic flush.
    pub wakes_other_flushers: bool,
    /// The original's prints of a balance.
    pub prints: Prints,
}

/// When the original prints a line of a balance, and what it calls the pause in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prints {
    /// Each pause, when it begins.
    Pauses,
    /// All that the balance slept, at its end.
    Whole,
}

impl Law {
    /// The law that this profile describes.
    #[must_use]
    pub const fn new(profile: &'static Profile) -> Self {
        Self(profile)
    }
}

impl Deref for Law {
    type Target = Profile;

    fn deref(&self) -> &Profile {
        self.0
    }
}

/// Laws are told apart by name.
impl PartialEq for Law {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Law {}

impl fmt::Debug for Law {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

/// Tunables of a domain, under the meaning of the kernel's `vm.*`.
#[derive(Clone, Copy, Debug)]
pub struct Tunables {
    /// The law.
    pub law: Law,
    /// Ticks per second of the law's arithmetic; pauses are whole ticks of 1/hz s.
    pub hz: u32,
    /// CPUs that dirty pages.
    pub cpus: u32,
    /// Total pages of memory (for `ratelimit_pages` of 2.6.36).
    pub memory: Pages,
    /// `vm.dirty_ratio` in per cent, or `vm.dirty_bytes` in pages.
    pub dirty: Threshold,
    /// `vm.dirty_background_ratio` or `vm.dirty_background_bytes`.
    pub background: Threshold,
}

impl Tunables {
    /// The kernel's defaults under a law, of no machine yet: one CPU, no memory.
    #[must_use]
    pub const fn of(law: Law, hz: u32) -> Self {
        Self {
            law,
            hz,
            cpus: 1,
            memory: Pages::ZERO,
            dirty: Threshold::Percent(20),
            background: Threshold::Percent(10),
        }
    }
}
