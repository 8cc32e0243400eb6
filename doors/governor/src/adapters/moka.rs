//! moka: what it allows.
//!
//! **A moka cache cannot be resized while it runs** (its `set_max_capacity` is not public in 0.12).
//! It is scanned instead: entries are removed in the order in which it iterates, by hash. So what
//! goes is not what was used least, and its hit ratio is that of random eviction while it is being
//! shrunk; what it evicts at its own capacity is still well chosen. Give it a ceiling near what it
//! should have, as its own capacity.
//!
//! ```
//! # fn main() -> Result<(), governor::Error> {
//! use governor::{Governor, Share, adapters::moka::{Governed, Reports}};
//! use moka::sync::Cache;
//!
//! let governor = Governor::new(256 << 20)?;
//! let weigh = |_: &u64, value: &Vec<u8>| 8 + value.len() as u32;
//! let reports = Reports::new(weigh);
//! let cache: Cache<u64, Vec<u8>> = Cache::builder()
//!     .max_capacity(128 << 20)
//!     .weigher(weigh)
//!     .eviction_listener(reports.listener())
//!     .build();
//! let rows = Governed::new(&governor, "rows", Share::default().ceiling(128 << 20), cache, &reports)?;
//! rows.insert(1, vec![0; 100]);
//! assert!(rows.get(&1).is_some());
//! # Ok(())
//! # }
//! ```

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ::moka::notification::RemovalCause;
use ::moka::sync::Cache;

use super::Ears;
use crate::{Ask, Error, Freeable, Governor, Member, Scanned, Share, Shrinker};

/// Entries removed between two looks at the deadline.
const BATCH: usize = 64;

type Weigh<K, V> = Arc<dyn Fn(&K, &V) -> u32 + Send + Sync>;

/// Tells the governor what was evicted; given to the cache's builder.
pub struct Reports<K, V> {
    ears: Ears,
    weigh: Weigh<K, V>,
}

impl<K: Hash + 'static, V: 'static> Reports<K, V> {
    /// `weigh`: bytes of an entry, the same as the cache's weigher.
    pub fn new(weigh: impl Fn(&K, &V) -> u32 + Send + Sync + 'static) -> Self {
        Self {
            ears: Ears::default(),
            weigh: Arc::new(weigh),
        }
    }

    /// For `CacheBuilder::eviction_listener`.
    pub fn listener(&self) -> impl Fn(Arc<K>, V, RemovalCause) + Send + Sync + 'static {
        let (ears, weigh) = (self.ears.clone(), self.weigh.clone());
        move |key: Arc<K>, value, cause| {
            if cause == RemovalCause::Size {
                let bytes = u64::from(weigh(&key, &value));
                ears.tell(|member| member.evicted(member.hash(&*key), bytes));
            }
        }
    }
}

/// A moka cache under a governor. Used like the cache, which it dereferences to; `get` and `missed`
/// report.
///
/// Clones are the same cache; the membership ends with the last.
#[derive(Clone)]
pub struct Governed<K, V, S = std::hash::RandomState> {
    cache: Cache<K, V, S>,
    member: Arc<Member>,
}

impl<K, V, S> Governed<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    /// Registers a cache that was built with the listener of `reports`.
    ///
    /// # Errors
    /// As [`Governor::register`]; and a cache without a capacity, or with more than its ceiling or
    /// the limit.
    pub fn new(
        governor: &Governor,
        name: impl Into<String>,
        share: Share,
        cache: Cache<K, V, S>,
        reports: &Reports<K, V>,
    ) -> Result<Self, Error> {
        let name = name.into();
        let (capacity, most) = (cache.policy().max_capacity(), share.most(governor.limit()));
        if capacity.is_none_or(|capacity| capacity > most) {
            return Err(Error::Capacity {
                member: name,
                capacity,
                most,
            });
        }
        let shrinker = Scans {
            cache: cache.clone(),
            ears: reports.ears.clone(),
            weigh: reports.weigh.clone(),
            at: AtomicUsize::new(0),
        };
        let member = Arc::new(governor.register(name, share, Arc::new(shrinker))?);
        reports.ears.are_of(&member);
        Ok(Self { cache, member })
    }

    /// The entry, or a miss that the governor hears of.
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let found = self.cache.get(key);
        self.member.looked_up(key, found.is_some());
        found
    }

    /// A miss of another way in (`get_with`, say), and what it cost.
    pub fn missed<Q: Hash + ?Sized>(&self, key: &Q, cost: Duration) {
        self.member.missed_at(self.member.hash(key), cost);
    }

    /// Its membership.
    #[must_use]
    pub fn member(&self) -> &Member {
        &self.member
    }
}

impl<K, V, S> Deref for Governed<K, V, S> {
    type Target = Cache<K, V, S>;

    fn deref(&self) -> &Self::Target {
        &self.cache
    }
}

struct Scans<K, V, S> {
    cache: Cache<K, V, S>,
    ears: Ears,
    weigh: Weigh<K, V>,
    /// The beginning of the next scan: else entries at the beginning would never be old.
    at: AtomicUsize,
}

impl<K, V, S> Shrinker for Scans<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn count(&self) -> Freeable {
        // Its size is that of what it has worked off.
        self.cache.run_pending_tasks();
        Freeable::all_of(self.cache.weighted_size())
    }

    fn scan(&self, ask: &Ask) -> Scanned {
        let entries = usize::try_from(self.cache.entry_count()).unwrap_or(usize::MAX);
        let from = self.at.load(Relaxed) % entries.max(1);
        let (mut freed, mut looked_at) = (0, 0_usize);
        // The rest of the time is for what it has to work off.
        let until = ask.deadline - ask.time_left() / 2;
        for (key, _) in self.cache.iter().skip(from) {
            looked_at += 1;
            if let Some(value) = self.cache.remove(&*key) {
                let bytes = u64::from((self.weigh)(&key, &value));
                self.ears
                    .tell(|member| member.evicted(member.hash(&*key), bytes));
                freed += bytes;
            }
            let is_late = looked_at.is_multiple_of(BATCH) && Instant::now() >= until;
            if freed >= ask.bytes || is_late {
                break;
            }
        }
        // Those removed are not there to be passed over the next time.
        let came_to_the_end = freed < ask.bytes;
        self.at
            .store(if came_to_the_end { 0 } else { from }, Relaxed);
        self.cache.run_pending_tasks();
        Scanned {
            freed,
            looked_at: looked_at as u64,
            more: freed > 0,
        }
    }

    fn largest(&self) -> Option<u64> {
        self.cache.policy().max_capacity()
    }
}

impl<K, V, S> std::fmt::Debug for Governed<K, V, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Governed({:?})", self.member)
    }
}
