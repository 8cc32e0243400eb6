//! Writers: the unit that pacing holds back.
//!
//! A program with clients of its own (a server) keeps a `Writer` for each, so that a heavy one
//! does not slow the others. Everybody else need not care: a thread that writes without naming a
//! writer has one of its own in each cache.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use env::Env;
use os::ThreadEnv;

use crate::CallWaits;
use crate::waits::Sums;

/// A writer: may be moved between threads, is used by one at a time. Used with a cache that did not
/// make it, it is a new writer of that cache from then on.
///
/// Dropped, it passes on what it still owes, and gives back memory that `Volume::prepare_write`
/// took for it.
pub struct Writer {
    inner: mm::Writer,
    cache: Weak<mm::Cache>,
    /// Behind a pointer: a thread's own writer is moved in each call.
    waits: Box<Sums>,
}

impl Writer {
    /// The waits of its calls on files so far, by cause; a volume counts its own
    /// ([`Volume::waits`](crate::Volume::waits)).
    #[must_use]
    pub fn waits(&self) -> CallWaits {
        self.waits.read()
    }

    pub(crate) fn new(cache: &Arc<mm::Cache>) -> Self {
        Self {
            inner: cache.writer(),
            cache: Arc::downgrade(cache),
            waits: Box::default(),
        }
    }

    fn is_of(&self, cache: &Arc<mm::Cache>) -> bool {
        self.cache.as_ptr() == Arc::as_ptr(cache)
    }

    /// As `cache` knows it: its frames, its debts and the devices that it was told of are those of
    /// one cache.
    #[inline]
    pub(crate) fn of(&mut self, cache: &Arc<mm::Cache>) -> &mut mm::Writer {
        if !self.is_of(cache) {
            *self = Self::new(cache);
        }
        &mut self.inner
    }

    /// The same, with where its waits are counted.
    pub(crate) fn counted(&mut self, cache: &Arc<mm::Cache>) -> (&mut mm::Writer, &Sums) {
        self.of(cache);
        (&mut self.inner, &self.waits)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(cache) = self.cache.upgrade() {
            cache.settle(&mut self.inner);
        }
    }
}

thread_local! {
    /// The writers of one thread, one for each cache.
    static OWN: RefCell<Vec<Writer>> = const { RefCell::new(Vec::new()) };
}

/// Calls `write` with this thread's writer in `cache`.
pub(crate) fn with_own<T>(cache: &Arc<mm::Cache>, write: impl FnOnce(&mut mm::Writer) -> T) -> T
where
    ThreadEnv: Env,
{
    // Where the thread ends, its own data are gone already: a destructor that writes is a new
    // writer then.
    let own = OWN.try_with(|own| {
        let mut own = own.borrow_mut();
        let at = own.iter().position(|own| own.is_of(cache));
        at.map(|at| own.swap_remove(at))
    });
    let mut writer = own.unwrap_or(None).unwrap_or_else(|| Writer::new(cache));
    let answer = write(&mut writer.inner);
    let _ = OWN.try_with(|own| {
        let mut own = own.borrow_mut();
        // Caches that are gone take their writers with them.
        own.retain(|own| own.cache.strong_count() > 0);
        own.push(writer);
    });
    answer
}
