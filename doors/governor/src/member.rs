//! A member: what it reports, and memory that is reserved before it is taken.
//!
//! Reports are atomics and ring a bell only where somebody has to act; they wait for nothing.
//! `reserve` is the only call here that may sleep.

use std::hash::{BuildHasher as _, Hash};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use policy::shares::{COST_MAX, MemberId, OCTAVES, Regrets, octave};
use policy::units::{Bytes, Nanos};

use crate::ghost::Ghost;
use crate::governor::{Governor, Inner, Rate};
use crate::report::Standing;
use crate::turn::in_scan;
use crate::{Error, Shrinker};

/// The state of a member; shared by its handle, its permits and the governor.
pub(crate) struct MemberState {
    pub(crate) name: String,
    pub(crate) id: MemberId,
    pub(crate) miss_cost: AtomicU64,
    pub(crate) held: AtomicU64,
    /// Bytes of its permits, which are in `held` too.
    pub(crate) permitted: AtomicU64,
    /// Bytes by which `held` ever fell, and rose where nothing was reserved.
    pub(crate) fell: AtomicU64,
    pub(crate) rose: AtomicU64,
    /// Bytes ever evicted.
    age: AtomicU64,
    entries: AtomicU64,
    /// Bytes of the largest entry evicted in this epoch.
    largest: AtomicU64,
    /// Since the last turn.
    evicted: AtomicU64,
    regrets: [AtomicU64; OCTAVES],
    seen: AtomicU64,
    used: AtomicBool,
    ghost: OnceLock<Ghost>,
    /// Time that growth still owes (see `pace`), ns.
    pub(crate) owed: AtomicU64,
    /// A lane is in one of its calls.
    pub(crate) busy: AtomicBool,
    pub(crate) conduct: Mutex<Conduct>,
}

/// The conduct of a member.
#[derive(Debug, Default)]
pub(crate) struct Conduct {
    pub(crate) standing: Standing,
    /// Not called before, in time of the governor.
    pub(crate) rests_until: Duration,
    /// The same while it is the only member above its target: nobody else can be asked meanwhile.
    pub(crate) rests_alone_until: Duration,
    pub(crate) rest: Duration,
    /// Claims since `fell` was looked at, and what it was then.
    pub(crate) claimed: u64,
    pub(crate) fell_then: u64,
    /// Time of the scans that they were made in.
    pub(crate) scanned: Duration,
    /// The value of `rose` when the last scan ended, and the time of that.
    pub(crate) rose_then: u64,
    pub(crate) ended: Duration,
    /// The rate at which it is filled, as seen between scans.
    pub(crate) filled: Rate,
    pub(crate) strikes: u32,
    /// Claims in a row that cannot be judged, as it was filled meanwhile.
    pub(crate) unproven: u32,
    /// Scans in a row that freed nothing.
    pub(crate) empty: u32,
    pub(crate) scans: u64,
    pub(crate) freed: u64,
    pub(crate) late: u64,
    /// The bound it was last told, if it bounds itself.
    pub(crate) bound: Option<u64>,
    /// It said once that it does not.
    pub(crate) is_unbounded: bool,
    /// It was asked once.
    pub(crate) is_known: bool,
    /// It answers what it holds when it is asked, and does not report it.
    pub(crate) is_looked_at: bool,
    /// Bytes that it could give, when it was last looked at.
    pub(crate) freeable: Option<u64>,
    /// Largest entry that it can keep within its bound, if it said so.
    pub(crate) keeps: Option<u64>,
    /// In the last epoch it evicted a larger one.
    pub(crate) is_too_small: bool,
    /// Bytes evicted since the shares were told that it has no room.
    pub(crate) evicted: u64,
}

impl MemberState {
    pub(crate) fn new(name: String, id: MemberId, miss_cost: Nanos) -> Self {
        Self {
            name,
            id,
            miss_cost: AtomicU64::new(miss_cost.0),
            held: AtomicU64::new(0),
            permitted: AtomicU64::new(0),
            fell: AtomicU64::new(0),
            rose: AtomicU64::new(0),
            age: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            largest: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            regrets: Default::default(),
            seen: AtomicU64::new(0),
            used: AtomicBool::new(false),
            ghost: OnceLock::new(),
            owed: AtomicU64::new(0),
            busy: AtomicBool::new(false),
            conduct: Mutex::default(),
        }
    }

    pub(crate) fn held(&self) -> u64 {
        self.held.load(Relaxed)
    }

    /// Takes what was evicted and regretted since the last turn.
    pub(crate) fn drain(&self) -> (u64, Regrets, bool) {
        let mut regrets = Regrets::default();
        for (sum, new) in regrets.cost.iter_mut().zip(&self.regrets) {
            *sum = Nanos(new.swap(0, Relaxed));
        }
        regrets.seen = self.seen.swap(0, Relaxed);
        (
            self.evicted.swap(0, Relaxed),
            regrets,
            self.used.swap(false, Relaxed),
        )
    }

    /// True if it evicted an entry in this epoch that is too large for a bound which keeps `most`.
    pub(crate) fn evicted_larger(&self, most: Option<u64>) -> bool {
        most.is_some_and(|most| self.largest.load(Relaxed) > most)
    }

    /// An epoch has ended: the ghost table is to fit the entries.
    pub(crate) fn adapt(&self) {
        let mut conduct = self.conduct.lock().unwrap_or_else(PoisonError::into_inner);
        conduct.is_too_small = self.evicted_larger(conduct.keeps);
        drop(conduct);
        self.largest.store(0, Relaxed);
        if let Some(ghost) = self.ghost.get() {
            ghost.adapt(self.age.load(Relaxed), self.entries.load(Relaxed));
        }
    }

    /// The worth of one regret: an entry of more than half a delta counts as several, for an epoch
    /// has room for few of them.
    fn evidence(&self, delta: u64) -> u64 {
        let mean = self.age.load(Relaxed) / self.entries.load(Relaxed).max(1);
        mean.saturating_mul(2).div_ceil(delta).max(1)
    }

    pub(crate) fn ghost_size(&self) -> u64 {
        self.ghost.get().map_or(0, Ghost::size)
    }
}

/// A member's reports and permits. Dropping it ends the membership: its target goes to the others,
/// and what it held does not count any more.
///
/// Calls come from any thread. The governor's thread lives as long as a member or a [`Governor`]
/// does; a shrinker that keeps its own `Member` is never dropped.
pub struct Member {
    pub(crate) seat: Arc<MemberState>,
    pub(crate) governor: Governor,
}

impl Member {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.seat.name
    }

    /// Bytes it holds, as reported or as last seen.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.seat.held()
    }

    /// It holds `bytes` more. Never waits; where the sum is too large somebody is asked at once.
    pub fn grew(&self, bytes: u64) {
        self.inner().grew(&self.seat, bytes);
    }

    /// It holds `bytes` less. More than it held counts as all.
    pub fn shrank(&self, bytes: u64) {
        self.inner().shrank(&self.seat, bytes);
    }

    /// Memory before it is taken: counts as held at once, until the permit is dropped.
    ///
    /// Above 15/16 of the limit it waits for as long as freeing so much takes at the rate that was
    /// seen, so that growth slows before it stops; at the limit it waits for memory, first come
    /// first served, 200 ms at most ([`Builder::wait_max`](crate::Builder::wait_max)).
    ///
    /// # Errors
    /// [`Error::Full`] names the member in the way; [`Error::LargerThanLimit`] where it never fits;
    /// [`Error::InScan`] inside a scan.
    pub fn reserve(&self, bytes: u64) -> Result<Permit, Error> {
        self.reserve_within(bytes, self.inner().wait_max)
    }

    /// The same, with a bound of one's own for the wait; `Duration::MAX`: for as long as it takes.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    pub fn reserve_within(&self, bytes: u64, at_most: Duration) -> Result<Permit, Error> {
        let inner = self.inner();
        if in_scan() {
            return Err(Error::InScan {
                member: self.seat.name.clone(),
            });
        }
        inner.reserve(&self.seat, bytes, at_most)?;
        self.seat.permitted.fetch_add(bytes, SeqCst);
        Ok(Permit {
            seat: self.seat.clone(),
            inner: inner.clone(),
            bytes,
        })
    }

    /// The entry with this hash, of `bytes` bytes, was evicted to make room. (A replaced or removed
    /// entry is not evicted.)
    ///
    /// Any hash will do that is the same in [`missed`](Self::missed); see [`hash`](Self::hash).
    /// Does not change what is held.
    pub fn evicted(&self, hash: u64, bytes: u64) {
        let (seat, inner) = (&self.seat, self.inner());
        let ghost = seat.ghost.get_or_init(|| Ghost::new(inner.limit()));
        let age = seat.age.fetch_add(bytes, Relaxed);
        ghost.evicted(hash, age);
        seat.entries.fetch_add(1, Relaxed);
        seat.largest.fetch_max(bytes, Relaxed);
        seat.evicted.fetch_add(bytes, Relaxed);
        inner.evicted(bytes);
    }

    /// An entry was wanted, and was there or not.
    #[cfg(feature = "quick-cache")]
    pub(crate) fn looked_up<Q: Hash + ?Sized>(&self, key: &Q, is_there: bool) {
        if is_there {
            self.used();
        } else {
            self.missed(self.hash(key));
        }
    }

    /// The entry with this hash was wanted and was not there. If it was evicted a while ago, more
    /// memory would have kept it, and its cost counts for that: as
    /// [`Share::miss_cost`](crate::Share::miss_cost) has it.
    pub fn missed(&self, hash: u64) {
        self.missed_at(
            hash,
            Duration::from_nanos(self.seat.miss_cost.load(Relaxed)),
        );
    }

    /// The same, with the time that it took to get it. More than a second counts as one.
    pub fn missed_at(&self, hash: u64, cost: Duration) {
        let seat = &self.seat;
        self.used();
        let Some(ghost) = seat.ghost.get() else {
            return;
        };
        let Some(found) = ghost.missed(hash, seat.age.load(Relaxed)) else {
            return;
        };
        let delta = self.inner().delta();
        let Some(octave) = octave(Bytes(found.distance), Bytes(delta)) else {
            return;
        };
        let cost = u64::try_from(cost.as_nanos()).unwrap_or(u64::MAX);
        let cost = cost.min(COST_MAX.0).saturating_mul(found.stands_for);
        seat.regrets[octave].fetch_add(cost, Relaxed);
        seat.seen.fetch_add(seat.evidence(delta), Relaxed);
    }

    /// `bytes` bytes were evicted, to make room. For a cache that remembers by itself what it
    /// evicted, with `missed_after`; not beside [`evicted`](Self::evicted).
    pub fn evicted_bytes(&self, bytes: u64) {
        let (seat, inner) = (&self.seat, self.inner());
        seat.age.fetch_add(bytes, Relaxed);
        seat.evicted.fetch_add(bytes, Relaxed);
        inner.evicted(bytes);
    }

    /// `misses` entries were wanted that had gone, each while `distance` more bytes were evicted:
    /// what more memory would have kept. `cost`: of one; more than a second counts as one.
    pub fn missed_after(&self, distance: u64, misses: u64, cost: Duration) {
        if misses == 0 {
            return;
        }
        let seat = &self.seat;
        self.used();
        let Some(octave) = octave(Bytes(distance), Bytes(self.inner().delta())) else {
            return;
        };
        let cost = u64::try_from(cost.as_nanos()).unwrap_or(u64::MAX);
        let cost = cost.min(COST_MAX.0).saturating_mul(misses);
        seat.regrets[octave].fetch_add(cost, Relaxed);
        seat.seen.fetch_add(misses, Relaxed);
    }

    /// It is used: something was found, say. Cheap enough for every hit. A member that never says
    /// so is taken for idle only by its misses.
    pub fn used(&self) {
        // Looked at first: written only once a turn, so that the line stays with all that read it.
        if !self.seat.used.load(Relaxed) {
            self.seat.used.store(true, Relaxed);
        }
    }

    /// A hash for [`evicted`](Self::evicted) and [`missed`](Self::missed), the same for equal keys
    /// as long as the governor lives.
    #[must_use]
    pub fn hash<K: Hash + ?Sized>(&self, key: &K) -> u64 {
        self.inner().hasher.hash_one(key)
    }

    /// The governor it belongs to.
    #[must_use]
    pub fn governor(&self) -> &Governor {
        &self.governor
    }

    pub(crate) fn id(&self) -> MemberId {
        self.seat.id
    }

    fn inner(&self) -> &Arc<Inner> {
        &self.governor.inner
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.inner().leave(&self.seat);
    }
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Member({}, {} bytes held)", self.seat.name, self.held())
    }
}

/// Memory that was reserved. Dropping it gives the memory back.
pub struct Permit {
    seat: Arc<MemberState>,
    inner: Arc<Inner>,
    bytes: u64,
}

impl Permit {
    /// Number of bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives a part back; more than it has is all of it.
    pub fn release(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.inner.gave_up(&self.seat, bytes);
    }

    /// Takes another permit of the same member in.
    ///
    /// # Errors
    /// It belongs to another member, and is given back as it was.
    pub fn merge(&mut self, mut other: Self) -> Result<(), Self> {
        if !Arc::ptr_eq(&self.seat, &other.seat) {
            return Err(other);
        }
        self.bytes += std::mem::take(&mut other.bytes);
        Ok(())
    }

    /// The memory stays held without the permit, until [`Member::shrank`] says otherwise.
    pub fn keep(mut self) {
        let kept = std::mem::take(&mut self.bytes);
        self.seat.permitted.fetch_sub(kept, SeqCst);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.inner.gave_up(&self.seat, self.bytes);
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Permit({}, {} bytes)", self.seat.name, self.bytes)
    }
}

/// The part of a member that the table keeps beside the seat.
pub(crate) struct Entry {
    pub(crate) seat: Arc<MemberState>,
    pub(crate) shrinker: Arc<dyn Shrinker>,
}
