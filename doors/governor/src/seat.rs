//! The seat of a member: its counters, its conduct, its shrinker.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use policy::shares::{MemberId, OCTAVES, Regrets};
use policy::units::Nanos;

use crate::Shrinker;
use crate::ghost::Ghost;
use crate::lanes::LATE;
use crate::report::Standing;

/// Rests begin and end with these.
pub(crate) const REST_MIN: Duration = LATE;
pub(crate) const REST_MAX: Duration = Duration::from_secs(5);

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
    pub(crate) age: AtomicU64,
    pub(crate) entries: AtomicU64,
    /// Bytes of the largest entry evicted in this epoch.
    pub(crate) largest: AtomicU64,
    /// Since the last turn.
    pub(crate) evicted: AtomicU64,
    pub(crate) regrets: [AtomicU64; OCTAVES],
    pub(crate) seen: AtomicU64,
    pub(crate) used: AtomicBool,
    pub(crate) ghost: OnceLock<Ghost>,
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

impl Conduct {
    /// Not called until its rest has ended, which doubles each time. A member that is late and the
    /// only one above its target goes on at once: it gives, and nobody else has to.
    pub(crate) fn rests(&mut self, standing: Standing, now: Duration) {
        self.standing = standing;
        self.rest = (self.rest * 2).clamp(REST_MIN, REST_MAX);
        self.rests_until = now + self.rest;
        self.rests_alone_until = match standing {
            Standing::Rests => now,
            _ => now + REST_MIN,
        };
    }

    /// It evicted so much more; whether that makes a delta since this was last so.
    pub(crate) fn has_no_room(&mut self, evicted: u64, delta: u64) -> bool {
        self.evicted = self.evicted.saturating_add(evicted);
        let has_none = self.evicted >= delta;
        if has_none {
            self.evicted = 0;
        }
        has_none
    }

    /// `alone`: it is the only member above its target.
    pub(crate) fn rests_until(&self, alone: bool) -> Duration {
        if alone {
            self.rests_alone_until
        } else {
            self.rests_until
        }
    }

    pub(crate) fn is_good(&mut self) {
        self.standing = Standing::Good;
        self.rest = Duration::ZERO;
    }
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
    pub(crate) fn evidence(&self, delta: u64) -> u64 {
        let mean = self.age.load(Relaxed) / self.entries.load(Relaxed).max(1);
        mean.saturating_mul(2).div_ceil(delta).max(1)
    }

    pub(crate) fn ghost_size(&self) -> u64 {
        self.ghost.get().map_or(0, Ghost::size)
    }
}

/// The part of a member that the table keeps beside the seat.
pub(crate) struct Entry {
    pub(crate) seat: Arc<MemberState>,
    pub(crate) shrinker: Arc<dyn Shrinker>,
}

/// The rate at which members gave memory back when they were asked, or at which one is filled.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    bytes: u64,
    time: Nanos,
}

impl Rate {
    /// Adds this much in that time; earlier amounts fade.
    pub(crate) fn add(&mut self, bytes: u64, time: Duration) {
        self.bytes = self.bytes / 2 + bytes;
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.time = Nanos((self.time.0 / 2).saturating_add(time));
    }

    /// Bytes of so long a time; none as long as no time has passed.
    pub(crate) fn bytes_in(self, time: Duration) -> u64 {
        let bytes = u128::from(self.bytes) * time.as_nanos() / u128::from(self.time.0.max(1));
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Time that freeing `bytes` takes; zero as long as nothing was freed.
    pub(crate) fn time_for(self, bytes: u64) -> Duration {
        if self.bytes == 0 {
            return Duration::ZERO;
        }
        let time = u128::from(bytes) * u128::from(self.time.0) / u128::from(self.bytes);
        Duration::from_nanos(u64::try_from(time).unwrap_or(u64::MAX))
    }
}
