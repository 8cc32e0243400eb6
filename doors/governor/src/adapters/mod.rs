//! Caches of other people, each behind a feature of its name.
//!
//! | feature | cache | resize while running | evicted keys | what follows |
//! |---|---|---|---|---|
//! | `quick-cache` | quick_cache 0.7 | yes | yes | all of it |
//! | `foyer` | foyer-memory 0.22 | yes, with a thread a shard for each | yes | at most every 200 ms |
//! | `moka` | moka 0.12 | **no** | yes | scanned, and what goes is chosen by hash: random victims |
//!
//! A cache that locks itself (`lru` in a mutex) needs none of these: two closures do, see
//! [`by`](crate::by) and the example `own_lru`.
//!
//! Weights must be bytes: what an entry takes, keys and values and what they point to. Memory that
//! weights leave out shows as slack of the process, which comes off everybody.
//!
//! Source: the published sources of the versions named.

#[cfg(feature = "foyer")]
pub mod foyer;
#[cfg(feature = "moka")]
pub mod moka;
#[cfg(feature = "quick-cache")]
pub mod quick_cache;

/// The member that a cache reports to: the cache is built before it.
#[cfg(any(feature = "foyer", feature = "moka", feature = "quick-cache"))]
#[derive(Clone, Debug, Default)]
pub(crate) struct Ears(std::sync::Arc<std::sync::OnceLock<std::sync::Weak<crate::Member>>>);

#[cfg(any(feature = "foyer", feature = "moka", feature = "quick-cache"))]
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
