//! Who writes: the unit that pacing holds back.
//!
//! A program with clients of its own (a server) keeps a `Writer` for each, so that a heavy one
//! does not slow the others. Everybody else need not care: a thread that writes without naming a
//! writer has one of its own in each cache.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use env::Env;
use os::ThreadEnv;

/// A writer: may be moved between threads, is used by one at a time.
///
/// Dropped, it passes on what it still owes, and gives back memory that `Volume::ready_write` took for it.
pub struct Writer {
    pub(crate) inner: mm::Writer,
    cache: Weak<mm::Cache<ThreadEnv>>,
}

impl Writer {
    pub(crate) fn new(cache: &Arc<mm::Cache<ThreadEnv>>) -> Self {
        Self {
            inner: cache.writer(),
            cache: Arc::downgrade(cache),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(cache) = self.cache.upgrade() {
            cache.settle(&mut self.inner);
        }
    }
}

/// The writer of one thread in one cache.
struct Own {
    cache: Weak<mm::Cache<ThreadEnv>>,
    writer: mm::Writer,
}

thread_local! {
    static OWN: RefCell<Vec<Own>> = const { RefCell::new(Vec::new()) };
}

/// Calls `write` with this thread's writer in `cache`.
pub(crate) fn with_own<T>(
    cache: &Arc<mm::Cache<ThreadEnv>>,
    write: impl FnOnce(&mut mm::Writer) -> T,
) -> T
where
    ThreadEnv: Env,
{
    let own = OWN.with_borrow_mut(|own| {
        let at = own
            .iter()
            .position(|own| own.cache.as_ptr() == Arc::as_ptr(cache));
        at.map(|at| own.swap_remove(at).writer)
    });
    let mut writer = own.unwrap_or_else(|| cache.writer());
    let answer = write(&mut writer);
    OWN.with_borrow_mut(|own| {
        // Caches that are gone take their writers with them.
        own.retain(|own| own.cache.strong_count() > 0);
        own.push(Own {
            cache: Arc::downgrade(cache),
            writer,
        });
    });
    answer
}
