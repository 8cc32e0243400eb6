//! Caches that are there already, each behind a feature of its name.
//!
//! | feature | cache | resized while it runs | reports |
//! |---|---|---|---|
//! | `quick-cache` | quick_cache 0.7 | yes, in steps | keys that were evicted, misses with their time |
//! | `tidegate` | Tidegate's page cache | yes, in the background | pages that came back, by how far they had fallen |
//!
//! Any other cache (`lru` in a mutex) needs two closures: see [`by`](crate::by) and the example
//! `own_lru`.
//!
//! Weights must be bytes: what an entry takes, keys and values and what they point to. Memory that
//! weights leave out shows as slack of the process, which comes off everybody.
//!
//! Source: the published sources of the versions named.

#[cfg(feature = "quick-cache")]
pub mod quick_cache;
#[cfg(feature = "tidegate")]
pub mod tidegate;

/// The member that a cache reports to: the cache is built before it.
#[cfg(any(feature = "quick-cache", feature = "tidegate"))]
#[derive(Clone, Debug, Default)]
pub(crate) struct Ears(std::sync::Arc<std::sync::OnceLock<std::sync::Weak<crate::Member>>>);

#[cfg(any(feature = "quick-cache", feature = "tidegate"))]
impl Ears {
    /// Only the first time counts.
    pub(crate) fn are_of(&self, member: &std::sync::Arc<crate::Member>) {
        let _ = self.0.set(std::sync::Arc::downgrade(member));
    }

    /// Nobody hears it before the member is there, or after it has gone.
    pub(crate) fn tell<R>(&self, what: impl FnOnce(&crate::Member) -> R) -> Option<R> {
        let member = self.0.get().and_then(std::sync::Weak::upgrade)?;
        Some(what(&member))
    }
}
