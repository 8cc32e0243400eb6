//! The page cache as a member of a governor: one limit for it and for the caches of the program.
//!
//! ```text
//!   governor: you may have so many bytes   ----> set_limit; pages leave in the background, writers are paced to what is left
//!   looked at                              <---- frames in use; what was evicted; what came back, by how far it had fallen
//! ```
//!
//! The cache bounds itself, so it is told a bound, and never asked for single pages. The shadows of
//! the pages that it evicted say what more memory would be worth: each page that comes back counts
//! with the time of its read.
//!
//! Invariants
//!   1. The floor is at least what the cache can do with; the ceiling at most what it was built
//!      with.
//!   2. A governor keeps no cache open: a cache that is closed holds nothing.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use governor::{Ask, Freeable, Governor, Member, Resized, Scanned, Share, Shrinker};
use policy::units::Pages;

use crate::cache::{Cache, Inner};
use crate::{Error, PAGE_SIZE};

/// A limit that was lowered is looked at again after this.
const AGAIN: Duration = Duration::from_millis(5);
/// Frames without which a cache is no use, and as many again: `set_limit` has a least of its own,
/// beside marks and pins.
const LEAST: u64 = 16 << 20;

/// A page cache under a governor. The membership ends with it; the cache keeps the bound it had
/// last.
pub struct Governed {
    member: Arc<Member>,
}

impl Governed {
    /// Its membership: to report what else the cache is worth, or to look at what it has.
    #[must_use]
    pub fn member(&self) -> &Member {
        &self.member
    }
}

impl Cache {
    /// Puts the pages of this cache under a governor's limit, as the member `name`. The cache has
    /// to be built with as much memory as it shall ever have; how much of it it uses is the
    /// governor's from now on, and [`set_limit`](Self::set_limit) is not to be called.
    ///
    /// Its floor is at least 16 MiB. Give it what your writers need to go on: a fifth of what it
    /// has may be dirty.
    ///
    /// # Errors
    /// Those of [`Governor::register`]: a name that is taken, floors that do not fit.
    pub fn join(
        &self,
        governor: &Governor,
        name: impl Into<String>,
        share: Share,
    ) -> Result<Governed, governor::Error> {
        let pages = Arc::new(PageMember {
            cache: Arc::downgrade(&self.inner),
            member: OnceLock::new(),
            told: Mutex::new(Told::default()),
        });
        let most = self.inner.mm.stats().frames.bytes().0;
        let share = share.floor_at_least(LEAST.min(most)).ceiling_at_most(most);
        let member = governor.register(name, share, Arc::clone(&pages) as Arc<dyn Shrinker>)?;
        let member = Arc::new(member);
        // Only here, once.
        let _ = pages.member.set(Arc::downgrade(&member));
        Ok(Governed { member })
    }

    /// Frames for so many bytes are in use from now on; whether that holds already.
    fn bound_pages(&self, bytes: u64) -> Result<bool, Error> {
        let set = self.set_limit_of_pages(bytes);
        if matches!(set, Err(Error::Closed)) {
            return Err(Error::Closed);
        }
        // Callers may hold more: it stays as it is, and says what it holds.
        Ok(set.is_ok() && self.inner.mm.limit().over.is_zero())
    }
}

/// What the governor was told of so far.
#[derive(Default)]
struct Told {
    evicted: Pages,
    by_distance: [u64; 32],
    read: Pages,
}

struct PageMember {
    cache: Weak<Inner>,
    member: OnceLock<Weak<Member>>,
    told: Mutex<Told>,
}

impl PageMember {
    fn cache(&self) -> Option<Cache> {
        let inner = self.cache.upgrade()?;
        Some(Cache { inner })
    }

    /// Reports what was evicted and missed since the last time.
    fn report(&self, cache: &Cache) {
        let Some(member) = self.member.get().and_then(Weak::upgrade) else {
            return;
        };
        let refaults = cache.inner.mm.refaults();
        let read = cache.inner.mm.stats().read_in;
        let told = &mut *self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let evicted = refaults.evicted - told.evicted;
        if !evicted.is_zero() {
            member.evicted_bytes(evicted.bytes().0);
        }
        let cost = Duration::from_nanos(refaults.read.0);
        for (octave, (now, then)) in
            (0_u32..).zip(refaults.by_distance.iter().zip(told.by_distance))
        {
            member.missed_after(PAGE_SIZE as u64 * (1 << octave), now - then, cost);
        }
        if read != told.read {
            member.used();
        }
        *told = Told {
            evicted: refaults.evicted,
            by_distance: refaults.by_distance,
            read,
        };
    }
}

/// Bytes of frames in use.
fn held(cache: &Cache) -> u64 {
    cache.inner.mm.limit().used.bytes().0
}

impl Shrinker for PageMember {
    fn count(&self) -> Freeable {
        let Some(cache) = self.cache() else {
            return Freeable::all_of(0);
        };
        self.report(&cache);
        let held = held(&cache);
        Freeable {
            bytes: held.saturating_sub(LEAST),
            held: Some(held),
        }
    }

    fn scan(&self, ask: &Ask) -> Scanned {
        let Some(cache) = self.cache() else {
            return Scanned::default();
        };
        let before = held(&cache);
        let least = before.saturating_sub(ask.bytes).max(LEAST);
        // It bounds itself: what a scan lowers, the next bound raises again.
        let _ = cache.bound_pages(least);
        while held(&cache) > least && !ask.time_left().is_zero() {
            std::thread::sleep(AGAIN.min(ask.time_left()));
        }
        Scanned::freed(before.saturating_sub(held(&cache)))
    }

    fn resize(&self, bytes: u64) -> Resized {
        let Some(cache) = self.cache() else {
            return Resized::Done;
        };
        match cache.bound_pages(bytes) {
            Ok(true) | Err(Error::Closed) => Resized::Done,
            Ok(false) | Err(_) => Resized::Later(AGAIN),
        }
    }
}
