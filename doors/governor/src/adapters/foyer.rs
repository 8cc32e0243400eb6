//! foyer-memory: resized while it runs, coarsely; evictions and misses reported.
//!
//! ```
//! # fn main() -> Result<(), governor::Error> {
//! use foyer_memory::{Cache, CacheBuilder};
//! use governor::{Governor, Share, adapters::foyer::{Governed, Reports}};
//!
//! let governor = Governor::new(256 << 20)?;
//! let weigh = |_: &u64, value: &Vec<u8>| 8 + value.len();
//! let reports = Reports::new(weigh);
//! let cache: Cache<u64, Vec<u8>> = CacheBuilder::new(256 << 20)
//!     .with_weighter(weigh)
//!     .with_event_listener(reports.listener())
//!     .build();
//! let rows = Governed::new(&governor, "rows", Share::default(), cache, &reports)?;
//! rows.insert(1, vec![0; 100]);
//! assert!(rows.get(&1).is_some());
//! # Ok(())
//! # }
//! ```
//!
//! `Cache::resize` starts and joins a thread of the system for each shard and evicts the whole
//! overflow under the shard's lock, so it is called at most every 200 ms, and bounds follow that
//! much later. In a hybrid cache what is evicted goes to the disk.

use std::hash::Hash;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::foyer_memory::{Cache, CacheEntry};
use foyer_common::code::{DefaultHasher, HashBuilder, Key, Value};
use foyer_common::event::{Event, EventListener};

use super::Ears;
use crate::{Ask, Error, Freeable, Governor, Member, Resized, Scanned, Share, Shrinker};

/// Shortest time between two changes of the capacity.
const RESIZE_EVERY: Duration = Duration::from_millis(200);
/// Least capacity.
const CAPACITY_MIN: usize = 64 << 10;

/// Tells the governor what was evicted; given to the cache's builder.
pub struct Reports<K, V> {
    listener: Arc<Listener<K, V>>,
}

type Weigh<K, V> = Box<dyn Fn(&K, &V) -> usize + Send + Sync>;

struct Listener<K, V> {
    ears: Ears,
    weigh: Weigh<K, V>,
}

impl<K: Key, V: Value> Reports<K, V> {
    /// `weigh`: bytes of an entry, the same as the cache's weigher.
    pub fn new(weigh: impl Fn(&K, &V) -> usize + Send + Sync + 'static) -> Self {
        let listener = Listener {
            ears: Ears::default(),
            weigh: Box::new(weigh),
        };
        Self {
            listener: Arc::new(listener),
        }
    }

    /// For `CacheBuilder::with_event_listener`.
    #[must_use]
    pub fn listener(&self) -> Arc<dyn EventListener<Key = K, Value = V>> {
        self.listener.clone()
    }
}

impl<K: Key, V: Value> EventListener for Listener<K, V> {
    type Key = K;
    type Value = V;

    fn on_leave(&self, reason: Event, key: &K, value: &V) {
        if reason == Event::Evict {
            let bytes = (self.weigh)(key, value) as u64;
            self.ears
                .tell(|member| member.evicted(member.hash(key), bytes));
        }
    }
}

/// A foyer cache under a governor. Used like the cache, which it dereferences to; `get` and
/// `missed` report.
///
/// Clones are the same cache; the membership ends with the last.
#[derive(Clone)]
pub struct Governed<K: Key, V: Value, S: HashBuilder = DefaultHasher> {
    cache: Cache<K, V, S>,
    member: Arc<Member>,
}

impl<K: Key, V: Value, S: HashBuilder> Governed<K, V, S> {
    /// Registers a cache that was built with the listener of `reports`. Its capacity may be the
    /// whole limit; it is lowered here.
    ///
    /// # Errors
    /// As [`Governor::register`].
    pub fn new(
        governor: &Governor,
        name: impl Into<String>,
        share: Share,
        cache: Cache<K, V, S>,
        reports: &Reports<K, V>,
    ) -> Result<Self, Error> {
        let shrinker = Bounds {
            capacity: AtomicUsize::new(cache.capacity()),
            cache: cache.clone(),
            ears: reports.listener.ears.clone(),
            resized: Mutex::new(None),
        };
        let member = Arc::new(governor.register(name, share, Arc::new(shrinker))?);
        reports.listener.ears.are_of(&member);
        Ok(Self { cache, member })
    }

    /// The entry, or a miss that the governor hears of.
    pub fn get<Q>(&self, key: &Q) -> Option<CacheEntry<K, V, S>>
    where
        Q: Hash + equivalent::Equivalent<K> + ?Sized,
    {
        let found = self.cache.get(key);
        self.member.looked_up(key, found.is_some());
        found
    }

    /// A miss of another way in (`get_or_fetch`, say), and what it cost.
    pub fn missed<Q: Hash + ?Sized>(&self, key: &Q, cost: Duration) {
        self.member.missed_at(self.member.hash(key), cost);
    }

    /// Its membership.
    #[must_use]
    pub fn member(&self) -> &Member {
        &self.member
    }
}

impl<K: Key, V: Value, S: HashBuilder> Deref for Governed<K, V, S> {
    type Target = Cache<K, V, S>;

    fn deref(&self) -> &Self::Target {
        &self.cache
    }
}

struct Bounds<K: Key, V: Value, S: HashBuilder> {
    cache: Cache<K, V, S>,
    ears: Ears,
    /// When it last was, by the governor's clock.
    resized: Mutex<Option<Duration>>,
    /// The size it was last resized to; its own `capacity()` answers the one it was built with.
    capacity: AtomicUsize,
}

impl<K: Key, V: Value, S: HashBuilder> Bounds<K, V, S> {
    /// Time until it may be resized again; from now on it was, if that is none.
    fn must_wait(&self) -> Option<Duration> {
        let mut resized = self.resized.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.ears.tell(|member| member.governor().now())?;
        let left = resized.and_then(|at| (at + RESIZE_EVERY).checked_sub(now));
        let left = left.filter(|left| !left.is_zero());
        if left.is_none() {
            *resized = Some(now);
        }
        left
    }
}

impl<K: Key, V: Value, S: HashBuilder> Shrinker for Bounds<K, V, S> {
    fn count(&self) -> Freeable {
        let held = self.cache.usage();
        Freeable {
            bytes: held.saturating_sub(CAPACITY_MIN) as u64,
            held: Some(held as u64),
        }
    }

    /// Squeezes it for a moment: two resizes. Its bound stays.
    fn scan(&self, ask: &Ask) -> Scanned {
        let (usage, capacity) = (self.cache.usage(), self.capacity.load(Relaxed));
        let bytes = usize::try_from(ask.bytes).unwrap_or(usize::MAX);
        let goal = usage.saturating_sub(bytes).max(CAPACITY_MIN);
        if goal >= usage || self.cache.resize(goal).is_err() {
            return Scanned::default();
        }
        // The cache cannot refuse a capacity that it had.
        let _ = self.cache.resize(capacity);
        Scanned::freed(usage.saturating_sub(self.cache.usage()) as u64)
    }

    fn resize(&self, bytes: u64) -> Resized {
        if let Some(left) = self.must_wait() {
            return Resized::Later(left);
        }
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let capacity = bytes.max(CAPACITY_MIN);
        match self.cache.resize(capacity) {
            Ok(()) => {
                self.capacity.store(capacity, Relaxed);
                Resized::Done
            }
            Err(_) => Resized::Later(RESIZE_EVERY),
        }
    }

    fn largest(&self) -> Option<u64> {
        Some((self.capacity.load(Relaxed) / self.cache.shards()) as u64)
    }
}

impl<K: Key, V: Value, S: HashBuilder> std::fmt::Debug for Governed<K, V, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Governed({:?})", self.member)
    }
}
