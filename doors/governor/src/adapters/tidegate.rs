//! Tidegate's page cache: one limit for it and for the caches of the program.
//!
//! ```text
//!   governor: it may have so many bytes ----> bound_pages; pages leave in the background, writers are paced to what is left
//!   looked at                           <---- frames in use; what was evicted; what came back, by how far it had fallen
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

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::tidegate::{Cache, Error as CacheError, PAGE_SIZE, PageUse, WeakCache};

use super::Ears;
use crate::{Ask, Error, Freeable, Governor, Member, Resized, Scanned, Share, Shrinker};

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
    /// Registers the pages of a cache. It has to be built with as much memory as it shall ever
    /// have; how much of it it uses is the governor's from now on, and [`Cache::set_limit`] is not
    /// to be called.
    ///
    /// Its floor is at least 16 MiB. Give it what your writers need to go on: a fifth of what it
    /// has may be dirty.
    ///
    /// # Errors
    /// As [`Governor::register`].
    pub fn new(
        governor: &Governor,
        name: impl Into<String>,
        share: Share,
        cache: &Cache,
    ) -> Result<Self, Error> {
        let pages = PageMember {
            cache: cache.downgrade(),
            ears: Ears::default(),
            told: Mutex::default(),
        };
        let ears = pages.ears.clone();
        let most = cache.page_use().most;
        let share = share.floor_at_least(LEAST.min(most)).ceiling_at_most(most);
        let member = Arc::new(governor.register(name, share, Arc::new(pages))?);
        ears.are_of(&member);
        Ok(Self { member })
    }

    /// Its membership: to report what else the cache is worth, or to look at what it has.
    #[must_use]
    pub fn member(&self) -> &Member {
        &self.member
    }
}

struct PageMember {
    cache: WeakCache,
    ears: Ears,
    /// As of the last report.
    told: Mutex<PageUse>,
}

impl PageMember {
    /// Reports what was evicted and missed since the last time.
    fn report(&self, member: &Member, now: PageUse) {
        let told = &mut *self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if now.evicted_total != told.evicted_total {
            member.evicted_bytes(now.evicted_total - told.evicted_total);
        }
        for (octave, (now_all, then)) in (0_u32..).zip(now.refaults.into_iter().zip(told.refaults))
        {
            let fallen = PAGE_SIZE as u64 * (1 << octave);
            member.missed_after(fallen, now_all - then, now.read_time);
        }
        if now.read_total != told.read_total {
            member.used();
        }
        *told = now;
    }
}

impl Shrinker for PageMember {
    fn count(&self) -> Freeable {
        let Some(cache) = self.cache.upgrade() else {
            return Freeable::all_of(0);
        };
        let now = cache.page_use();
        self.ears.tell(|member| self.report(member, now));
        Freeable {
            bytes: now.used.saturating_sub(LEAST),
            held: Some(now.used),
        }
    }

    fn scan(&self, ask: &Ask) -> Scanned {
        let Some(cache) = self.cache.upgrade() else {
            return Scanned::default();
        };
        let held = || cache.page_use().used;
        let before = held();
        let least = before.saturating_sub(ask.bytes).max(LEAST);
        // It bounds itself: what a scan lowers, the next bound raises again.
        let _ = cache.bound_pages(least);
        while held() > least && !ask.time_left().is_zero() {
            std::thread::sleep(AGAIN.min(ask.time_left()));
        }
        Scanned::freed(before.saturating_sub(held()))
    }

    fn resize(&self, bytes: u64) -> Resized {
        let Some(cache) = self.cache.upgrade() else {
            return Resized::Done;
        };
        match cache.bound_pages(bytes) {
            Ok(true) | Err(CacheError::Closed) => Resized::Done,
            // Callers may hold more: it stays as it is, and says what it holds.
            Ok(false) | Err(_) => Resized::Later(AGAIN),
        }
    }
}

impl std::fmt::Debug for Governed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Governed({:?})", self.member)
    }
}
