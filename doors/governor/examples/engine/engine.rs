//! A small storage engine: a memtable of dirty blocks, a cache of rows, a cache of blocks, over a
//! store.
//!
//! ```text
//!   get   memtable, rows, blocks, store        what is read from the store goes into blocks, the row into rows
//!   scan  blocks, store
//!   put   memtable; the oldest blocks are written when it has to give
//! ```
//!
//! Its memory is split by hand, or a governor has it: then the caches are members that bound
//! themselves, and the memtable reserves what it takes.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use governor::adapters::quick_cache::{ByteWeigher, Governed};
use governor::{Ask, Error, Freeable, Governor, Member, Scanned, Share, Shrinker};
use quick_cache::OptionsBuilder;
use quick_cache::sync::{Cache, DefaultLifecycle};

use crate::store::{ROW, ROWS, Store, WORK};

/// Bytes of an entry beside its own: key, place in the table, reference counts.
const ENTRY: u64 = 64;
/// Rows' memory is reserved in such pieces.
const PIECE: u64 = 64 << 10;
/// Writes that may be under way, in their time: then a flush stops, and a thread that needs its
/// memory waits for half of them.
const BACKLOG: u64 = 50_000_000;
/// Longest flush of a store that does one thing at a time.
const FLUSH: u64 = 50_000_000;

type Value = Arc<[u8]>;
type Weigh = fn(&u64, &Value) -> u64;
type Hasher = BuildHasherDefault<DefaultHasher>;

fn weigh(_: &u64, value: &Value) -> u64 {
    value.len() as u64 + ENTRY
}

/// Bytes for each part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Split {
    pub(crate) blocks: u64,
    pub(crate) rows: u64,
    pub(crate) memtable: u64,
}

/// A cache with a fixed size, or a governed cache.
enum Layer {
    Fixed(Box<Cache<u64, Value, ByWeight, Hasher>>),
    Governed(Governed<u64, Value, ByteWeigher<Weigh>, Hasher>),
}

#[derive(Clone)]
struct ByWeight;

impl quick_cache::Weighter<u64, Value> for ByWeight {
    fn weight(&self, key: &u64, value: &Value) -> u64 {
        weigh(key, value)
    }
}

impl Layer {
    fn fixed(bytes: u64, entry: u64) -> Self {
        let entries = usize::try_from(bytes / (entry + ENTRY)).unwrap_or(1).max(1);
        let options = OptionsBuilder::new()
            .estimated_items_capacity(entries)
            .weight_capacity(bytes)
            .build()
            .expect("both capacities are given");
        let lifecycle = DefaultLifecycle::default();
        let cache = Cache::with_options(options, ByWeight, Hasher::default(), lifecycle);
        Self::Fixed(Box::new(cache))
    }

    fn governed(governor: &Governor, name: &str, entry: u64) -> Result<Self, Error> {
        let entries = usize::try_from(governor.limit() / (entry + ENTRY)).unwrap_or(1);
        let weigher = governor::adapters::quick_cache::by_bytes(weigh as Weigh);
        let cache = Governed::with(
            governor,
            name,
            Share::default(),
            entries,
            weigher,
            Hasher::default(),
        )?;
        Ok(Self::Governed(cache))
    }

    fn get(&self, key: u64) -> Option<Value> {
        match self {
            Self::Fixed(cache) => cache.get(&key),
            Self::Governed(cache) => {
                // Not `Governed::get`: what the miss costs is known only later.
                let found = std::ops::Deref::deref(cache).get(&key);
                if found.is_some() {
                    cache.member().used();
                }
                found
            }
        }
    }

    fn missed(&self, key: u64, cost: u64) {
        if let Self::Governed(cache) = self {
            cache.missed(&key, Duration::from_nanos(cost));
        }
    }

    fn insert(&self, key: u64, value: Value) {
        match self {
            Self::Fixed(cache) => cache.insert(key, value),
            Self::Governed(cache) => cache.insert(key, value),
        }
    }
}

/// Dirty rows by block, the oldest block first out.
#[derive(Default)]
struct Dirty {
    blocks: BTreeMap<u64, BTreeMap<u64, Value>>,
    oldest: VecDeque<u64>,
    bytes: u64,
}

struct Memtable {
    dirty: Mutex<Dirty>,
    store: Arc<Store>,
    member: OnceLock<Weak<Member>>,
    /// Reserved and not yet taken.
    reserved: AtomicU64,
}

impl Memtable {
    fn dirty(&self) -> std::sync::MutexGuard<'_, Dirty> {
        self.dirty.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn member(&self) -> Option<Arc<Member>> {
        self.member.get()?.upgrade()
    }

    fn get(&self, key: u64) -> Option<Value> {
        self.dirty().blocks.get(&(key / ROWS))?.get(&key).cloned()
    }

    /// Writes the oldest blocks until `bytes` bytes are free.
    fn flush(&self, bytes: u64) -> u64 {
        let (began, member) = (self.store.now(), self.member());
        let mut freed = 0;
        while freed < bytes && self.store.backlog() < BACKLOG && self.store.now() - began < FLUSH {
            let mut dirty = self.dirty();
            let Some(block) = dirty.oldest.pop_front() else {
                break;
            };
            let rows = dirty.blocks.remove(&block).unwrap_or_default();
            let gone = rows.iter().map(|(key, row)| weigh(key, row)).sum::<u64>();
            dirty.bytes -= gone;
            drop(dirty);
            self.store.write(block);
            if let Some(member) = &member {
                member.evicted(block, gone);
                member.shrank(gone);
            }
            freed += gone;
        }
        freed
    }
}

impl Shrinker for Memtable {
    fn count(&self) -> Freeable {
        Freeable::bytes(self.dirty().bytes)
    }

    fn scan(&self, ask: &Ask) -> Scanned {
        // Reserved and unused memory first.
        let unused = self.reserved.swap(0, Relaxed);
        if let Some(member) = self.member() {
            member.shrank(unused);
        }
        let wanted = ask.bytes.saturating_sub(unused);
        Scanned::freed(unused + self.flush(wanted))
    }
}

/// The owner of the memory.
enum Memory {
    Split(Split),
    Governed {
        governor: Governor,
        member: Arc<Member>,
        /// In the model's time the engine drives it.
        driven: Option<Arc<Driven>>,
    },
}

/// Turns that are due of a governor that has no thread.
#[derive(Default)]
pub(crate) struct Driven {
    /// By the model's clock; 0 for at once.
    due: AtomicU64,
}

pub(crate) struct Engine {
    store: Arc<Store>,
    blocks: Layer,
    rows: Layer,
    memtable: Arc<Memtable>,
    memory: Memory,
}

impl Engine {
    pub(crate) fn split(store: Arc<Store>, split: Split) -> Self {
        Self {
            blocks: Layer::fixed(split.blocks, ROW as u64 * ROWS),
            rows: Layer::fixed(split.rows, ROW as u64),
            memtable: Arc::new(Memtable::new(&store)),
            memory: Memory::Split(split),
            store,
        }
    }

    /// `resident`: whether the limit is for the process.
    pub(crate) fn governed(store: Arc<Store>, limit: u64, resident: bool) -> Result<Self, Error> {
        let mut builder = Governor::builder(limit);
        if !resident {
            builder = builder.without_resident();
        }
        let mut driven = None;
        if !store.is_live() {
            let clock = store.clock();
            let due = Arc::new(Driven::default());
            let theirs = due.clone();
            builder = builder
                .clock(move || Duration::from_nanos(clock.load(Relaxed)))
                .wait_max(Duration::ZERO)
                .driven_by_caller(move || theirs.due.store(0, Relaxed));
            driven = Some(due);
        }
        let governor = builder.build()?;
        let memtable = Arc::new(Memtable::new(&store));
        let share = Share::default().floor(limit / 64);
        let member = Arc::new(governor.register("memtable", share, memtable.clone())?);
        let _ = memtable.member.set(Arc::downgrade(&member));
        Ok(Self {
            blocks: Layer::governed(&governor, "blocks", ROW as u64 * ROWS)?,
            rows: Layer::governed(&governor, "rows", ROW as u64)?,
            memtable,
            memory: Memory::Governed {
                governor,
                member,
                driven,
            },
            store,
        })
    }

    pub(crate) fn report(&self) -> Option<String> {
        match &self.memory {
            Memory::Split(_) => None,
            Memory::Governed { governor, .. } => Some(governor.report().to_string()),
        }
    }

    pub(crate) fn get(&self, key: u64) -> Value {
        self.begins();
        if let Some(row) = self.memtable.get(key) {
            return row;
        }
        if let Some(row) = self.rows.get(key) {
            return row;
        }
        let began = self.store.now();
        let block = self.block(key / ROWS);
        let at = usize::try_from(key % ROWS).unwrap_or(0) * ROW;
        let row: Value = block[at..at + ROW].into();
        self.rows.missed(key, self.store.now() - began + WORK / 4);
        self.rows.insert(key, row.clone());
        row
    }

    pub(crate) fn scan(&self, from: u64, rows: u64) -> u64 {
        self.begins();
        let blocks = from / ROWS..=(from + rows) / ROWS;
        blocks.map(|block| u64::from(self.block(block)[0])).sum()
    }

    pub(crate) fn put(&self, key: u64, value: Value) {
        self.begins();
        let (bytes, block) = (weigh(&key, &value), key / ROWS);
        self.make_room(bytes);
        let mut dirty = self.memtable.dirty();
        let is_new = !dirty.blocks.contains_key(&block);
        if is_new {
            dirty.oldest.push_back(block);
        }
        let old = dirty.blocks.entry(block).or_default().insert(key, value);
        dirty.bytes += if old.is_none() { bytes } else { 0 };
        drop(dirty);
        if let Memory::Governed { member, .. } = &self.memory {
            if is_new {
                // Had it been kept, this row would have gone out with it. The cost of a write is
                // the time that somebody waits for it.
                let cost = self.store.waited_for_a_write(BACKLOG);
                member.missed_at(block, Duration::from_nanos(cost));
            } else {
                member.used();
            }
            if old.is_some() {
                self.memtable.reserved.fetch_add(bytes, Relaxed);
            }
        }
    }

    fn block(&self, number: u64) -> Value {
        if let Some(block) = self.blocks.get(number) {
            return block;
        }
        let began = self.store.now();
        let block = self.store.read(number);
        self.blocks.missed(number, self.store.now() - began);
        self.blocks.insert(number, block.clone());
        block
    }

    fn make_room(&self, bytes: u64) {
        match &self.memory {
            Memory::Split(split) => {
                let over = || (self.memtable.dirty().bytes + bytes).saturating_sub(split.memtable);
                while over() > 0 && self.memtable.flush(over().max(PIECE)) == 0 {
                    self.store.wait_for_writes(BACKLOG / 2);
                }
            }
            Memory::Governed { member, .. } => {
                let take = |left: u64| left.checked_sub(bytes);
                let reserved = &self.memtable.reserved;
                while reserved.fetch_update(Relaxed, Relaxed, take).is_err() {
                    match member.reserve(PIECE) {
                        Ok(permit) => {
                            reserved.fetch_add(permit.bytes(), Relaxed);
                            permit.keep();
                        }
                        Err(_) => {
                            self.drive(true);
                            // Somebody else is in the way: our own can be taken.
                            if self.memtable.flush(PIECE) == 0 {
                                self.store.wait_for_writes(BACKLOG / 2);
                            }
                        }
                    }
                }
            }
        }
    }

    fn begins(&self) {
        self.store.work();
        self.drive(false);
    }

    fn drive(&self, now: bool) {
        let Memory::Governed {
            governor,
            driven: Some(driven),
            ..
        } = &self.memory
        else {
            return;
        };
        if now || driven.due.load(Relaxed) <= self.store.now() {
            driven.due.store(u64::MAX, Relaxed);
            let next = governor.turn(governor.now());
            let at = next.at().map_or(u64::MAX, |at| {
                u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)
            });
            driven.due.fetch_min(at, Relaxed);
        }
    }
}

impl Memtable {
    fn new(store: &Arc<Store>) -> Self {
        Self {
            dirty: Mutex::default(),
            store: store.clone(),
            member: OnceLock::new(),
            reserved: AtomicU64::new(0),
        }
    }
}
