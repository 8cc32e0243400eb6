//! quick_cache: resized while it runs, evictions and misses reported.
//!
//! ```
//! # fn main() -> Result<(), governor::Error> {
//! use governor::{Governor, Share, adapters::quick_cache::Governed};
//!
//! let governor = Governor::new(256 << 20)?;
//! let weigh = |_: &u64, value: &Vec<u8>| 8 + value.len() as u64;
//! let blocks = Governed::new(&governor, "blocks", Share::default(), 10_000, weigh)?;
//! blocks.insert(1, vec![0; 4096]);
//! assert!(blocks.get(&1).is_some());
//! # Ok(())
//! # }
//! ```
//!
//! `Cache::set_capacity` evicts the whole overflow of a shard under its write lock, so it is called
//! in steps of a 64th; at 0 a cache loses its memory of keys for good, so it never falls below 64
//! KiB.

use std::hash::{BuildHasher, Hash};
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::quick_cache::sync::Cache;
use ::quick_cache::{DefaultHashBuilder, Equivalent, Lifecycle, OptionsBuilder, Weighter};

use super::Ears;
use crate::{Ask, Error, Freeable, Governor, Member, Resized, Scanned, Share, Shrinker};

/// Capacity is changed in such steps.
const STEPS: u64 = 64;
/// Least capacity.
const CAPACITY_MIN: u64 = 64 << 10;
/// Time after which a change goes on later.
const STEP_TIME: Duration = Duration::from_millis(50);

/// Weighs entries by a function: bytes of key and value, with what they point to.
#[derive(Clone, Copy, Debug)]
pub struct ByteWeigher<F>(F);

/// A weigher of a function, for [`Governed::with`].
pub fn by_bytes<F>(weigh: F) -> ByteWeigher<F> {
    ByteWeigher(weigh)
}

impl<K, V, F: Fn(&K, &V) -> u64> Weighter<K, V> for ByteWeigher<F> {
    fn weight(&self, key: &K, value: &V) -> u64 {
        (self.0)(key, value)
    }
}

/// Tells the governor what was evicted.
#[derive(Clone, Debug)]
pub struct Reports<We> {
    ears: Ears,
    weigher: We,
}

/// Up to two entries that are dropped when the cache is not locked any more, as by its own default.
#[derive(Debug)]
pub struct Evicted<K, V>([Option<(K, V)>; 2]);

impl<K, V> Default for Evicted<K, V> {
    fn default() -> Self {
        Self([None, None])
    }
}

impl<K: Hash, V, We: Weighter<K, V>> Lifecycle<K, V> for Reports<We> {
    type RequestState = Evicted<K, V>;

    fn on_evict(&self, state: &mut Self::RequestState, key: K, value: V) {
        let bytes = self.weigher.weight(&key, &value);
        self.ears
            .tell(|member| member.evicted(member.hash(&key), bytes));
        if let Some(place) = state.0.iter_mut().find(|place| place.is_none()) {
            *place = Some((key, value));
        }
    }
}

type Inner<K, V, We, B> = Cache<K, V, We, B, Reports<We>>;

/// A quick_cache under a governor. Used like the cache, which it dereferences to; `get`,
/// `get_or_insert_with` and `missed` report.
///
/// Clones are the same cache; the membership ends with the last.
pub struct Governed<K, V, We, B = DefaultHashBuilder> {
    cache: Arc<Inner<K, V, We, B>>,
    member: Arc<Member>,
}

impl<K, V, We, B> Clone for Governed<K, V, We, B> {
    fn clone(&self) -> Self {
        Self {
            cache: self.cache.clone(),
            member: self.member.clone(),
        }
    }
}

impl<K, V, F> Governed<K, V, ByteWeigher<F>>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    F: Fn(&K, &V) -> u64 + Clone + Send + Sync + 'static,
{
    /// Builds a cache and registers it. `entries`: how many are expected under the whole limit;
    /// tables are made for them. `weigh`: bytes of an entry.
    ///
    /// # Errors
    /// As [`Governor::register`].
    pub fn new(
        governor: &Governor,
        name: impl Into<String>,
        share: Share,
        entries: usize,
        weigh: F,
    ) -> Result<Self, Error> {
        Self::with(
            governor,
            name,
            share,
            entries,
            by_bytes(weigh),
            DefaultHashBuilder::default(),
        )
    }
}

impl<K, V, We, B> Governed<K, V, We, B>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    We: Weighter<K, V> + Clone + Send + Sync + 'static,
    B: BuildHasher + Clone + Send + Sync + 'static,
{
    /// The same with a weigher and a hasher of one's own. Weights are bytes.
    ///
    /// # Errors
    /// As [`Governor::register`].
    pub fn with(
        governor: &Governor,
        name: impl Into<String>,
        share: Share,
        entries: usize,
        weigher: We,
        hasher: B,
    ) -> Result<Self, Error> {
        let options = OptionsBuilder::new()
            .estimated_items_capacity(entries.max(1))
            .weight_capacity(governor.limit())
            .build()
            .expect("both capacities are given");
        let reports = Reports {
            ears: Ears::default(),
            weigher: weigher.clone(),
        };
        let ears = reports.ears.clone();
        let cache = Arc::new(Cache::with_options(options, weigher, hasher, reports));
        let member = governor.register(name, share, of(&cache))?;
        let member = Arc::new(member);
        ears.are_of(&member);
        Ok(Self { cache, member })
    }

    /// The entry, or a miss that the governor hears of.
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let found = self.cache.get(key);
        self.member.looked_up(key, found.is_some());
        found
    }

    /// The entry, or the one that `load` brings; its time is the cost of the miss.
    ///
    /// # Errors
    /// Those of `load`.
    pub fn get_or_insert_with<Q, E>(
        &self,
        key: &Q,
        load: impl FnOnce() -> Result<V, E>,
    ) -> Result<V, E>
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned = K> + ?Sized,
    {
        self.member.used();
        self.cache.get_or_insert_with(key, || {
            let began = Instant::now();
            let loaded = load()?;
            let hash = self.member.hash(key);
            self.member.missed_at(hash, began.elapsed());
            Ok(loaded)
        })
    }

    /// A miss of another way in (`get_value_or_guard`, say), and what it cost.
    pub fn missed<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q, cost: Duration) {
        self.member.missed_at(self.member.hash(key), cost);
    }

    /// Its membership.
    #[must_use]
    pub fn member(&self) -> &Member {
        &self.member
    }
}

impl<K, V, We, B> Deref for Governed<K, V, We, B> {
    type Target = Inner<K, V, We, B>;

    fn deref(&self) -> &Self::Target {
        &self.cache
    }
}

/// A cache that is there already, for [`Governor::register`]: it is resized and scanned, but
/// reports neither evictions nor misses, so it shows no regret. Give it a floor, or report by its
/// [`Member`].
pub fn of<K, V, We, B, L>(cache: &Arc<Cache<K, V, We, B, L>>) -> Arc<dyn Shrinker>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    We: Weighter<K, V> + Clone + Send + Sync + 'static,
    B: BuildHasher + Clone + Send + Sync + 'static,
    L: Lifecycle<K, V> + Clone + Send + Sync + 'static,
{
    Arc::new(Bounds(cache.clone()))
}

struct Bounds<K, V, We, B, L>(Arc<Cache<K, V, We, B, L>>);

impl<K, V, We, B, L> Bounds<K, V, We, B, L>
where
    K: Eq + Hash + Clone,
    V: Clone,
    We: Weighter<K, V> + Clone,
    B: BuildHasher + Clone,
    L: Lifecycle<K, V> + Clone,
{
    /// Lowers the capacity step by step; whether it came so far in time.
    fn lower(&self, from: u64, to: u64, until: Instant) -> bool {
        let mut capacity = from;
        while capacity > to {
            capacity = to.max(capacity - (capacity / STEPS).max(1));
            self.0.set_capacity(capacity);
            if Instant::now() >= until {
                return capacity == to;
            }
        }
        true
    }
}

impl<K, V, We, B, L> Shrinker for Bounds<K, V, We, B, L>
where
    K: Eq + Hash + Clone + Send + Sync,
    V: Clone + Send + Sync,
    We: Weighter<K, V> + Clone + Send + Sync,
    B: BuildHasher + Clone + Send + Sync,
    L: Lifecycle<K, V> + Clone + Send + Sync,
{
    fn count(&self) -> Freeable {
        let held = self.0.weight();
        Freeable {
            bytes: held.saturating_sub(CAPACITY_MIN),
            held: Some(held),
        }
    }

    /// Squeezes it for a moment. Its bound stays.
    fn scan(&self, ask: &Ask) -> Scanned {
        let (weight, capacity) = (self.0.weight(), self.0.capacity());
        let goal = weight.saturating_sub(ask.bytes).max(CAPACITY_MIN);
        self.lower(weight, goal, ask.deadline - STEP_TIME);
        self.0.set_capacity(capacity);
        Scanned::freed(weight.saturating_sub(self.0.weight()))
    }

    fn resize(&self, bytes: u64) -> Resized {
        let (bytes, capacity) = (bytes.max(CAPACITY_MIN), self.0.capacity());
        if bytes >= capacity {
            self.0.set_capacity(bytes);
            return Resized::Done;
        }
        // Above what it holds nothing has to go.
        let from = capacity.min(self.0.weight().max(bytes));
        if self.lower(from, bytes, Instant::now() + STEP_TIME) {
            self.0.set_capacity(bytes);
            Resized::Done
        } else {
            Resized::Later(Duration::ZERO)
        }
    }

    fn largest(&self) -> Option<u64> {
        Some(self.0.shard_capacity())
    }
}

impl<K, V, We, B> std::fmt::Debug for Governed<K, V, We, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Governed({:?})", self.member)
    }
}
