//! Short locks that cannot be held across a wait.
//!
//! A `Lock` is taken with a shared borrow of a context and its guard keeps that borrow; every wait
//! needs `&mut Task`. So a wait under a lock does not compile, in either `Env`:
//!
//! ```compile_fail
//! # use env::{Cause, Lock, LockClass, Task};
//! # use policy::units::Nanos;
//! fn wrong(task: &mut Task<'_>, lock: &Lock<u32>) {
//!     let guard = lock.lock(task);
//!     task.sleep(Cause::Idle, Nanos::millis(1)); // error: `*task` is also borrowed as immutable
//!     drop(guard);
//! }
//! ```
//!
//! Locks nest in the order of their class, lowest first; a debug build checks it. Nothing here
//! knows about virtual time: a coroutine is never suspended under a lock, so in the lab no lock is
//! ever contended.
//!
//! Source: style A5; docs/adr/0001.

use core::cell::Cell;
use core::ops::{Deref, DerefMut};
use std::sync::PoisonError;

use crate::sync::{Mutex, MutexGuard};

/// Place of a lock in the documented order: a lock may be taken only while none of the same or a
/// later class is held. (Busy bits are not locks; their place is between `Registry` and
/// `DirtyFiles`.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum LockClass {
    /// Tables of files and devices.
    Registry = 0,
    /// A device's lists of dirty files.
    DirtyFiles = 1,
    /// A file's page index.
    Index = 2,
    /// LRU lists.
    Lru = 3,
    /// Free lists.
    Free = 4,
    /// Dirty domain (limits, bandwidth, writers).
    Dirty = 5,
    /// A device's queue.
    Device = 6,
    /// Leaf: nothing is taken under it.
    Leaf = 7,
}

/// A holder that may take locks: a `Task`, or an `Interrupt`.
pub trait Context {
    /// Bit set of lock classes held, for the order check.
    fn held(&self) -> &Cell<u16>;

    /// The CPU it runs on, if that is known: a completion has none of its own.
    fn on_cpu(&self) -> Option<usize> {
        None
    }
}

impl<C: Context + ?Sized> Context for &C {
    fn held(&self) -> &Cell<u16> {
        (**self).held()
    }

    fn on_cpu(&self) -> Option<usize> {
        (**self).on_cpu()
    }
}

/// A context that must not wait: a completion, or code outside any task.
#[derive(Debug, Default)]
pub struct Interrupt {
    held: Cell<u16>,
}

impl Interrupt {
    /// A fresh one; made by `Env`s where they call completions.
    #[must_use]
    pub const fn new() -> Self {
        Self { held: Cell::new(0) }
    }
}

impl Context for Interrupt {
    fn held(&self) -> &Cell<u16> {
        &self.held
    }
}

/// Data behind a short lock.
#[derive(Debug)]
pub struct Lock<T> {
    class: LockClass,
    inner: Mutex<T>,
}

/// The right to the data; gives the lock back when dropped.
pub struct LockGuard<'a, T> {
    inner: Option<MutexGuard<'a, T>>,
    held: &'a Cell<u16>,
    class: LockClass,
}

impl<T> Lock<T> {
    /// A lock of the given class.
    pub fn new(class: LockClass, data: T) -> Self {
        Self {
            class,
            inner: Mutex::new(data),
        }
    }

    /// Takes the lock.
    ///
    /// # Panics
    /// In debug builds, when the context holds a lock of the same or a later class.
    #[track_caller]
    pub fn lock<'a, C: Context>(&'a self, context: &'a C) -> LockGuard<'a, T> {
        let held = context.held();
        debug_assert!(
            held.get() >> (self.class as u8) == 0,
            "lock order: taking {:?} while holding {:#b}",
            self.class,
            held.get()
        );
        // A panic under a lock is our bug and is reported where it happened; the task that comes
        // after must still be able to shut down.
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        held.set(held.get() | 1 << (self.class as u8));
        LockGuard {
            inner: Some(inner),
            held,
            class: self.class,
        }
    }

    /// The data of a lock that nobody else can hold.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.inner
            .as_deref()
            .expect("a guard holds its lock until it is dropped")
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner
            .as_deref_mut()
            .expect("a guard holds its lock until it is dropped")
    }
}

impl<T> Drop for LockGuard<'_, T> {
    fn drop(&mut self) {
        self.held.set(self.held.get() & !(1 << (self.class as u8)));
        self.inner = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_nest_in_order() {
        let (outer, inner) = (Lock::new(LockClass::Index, 1), Lock::new(LockClass::Lru, 2));
        let context = Interrupt::new();
        let first = outer.lock(&context);
        let second = inner.lock(&context);
        assert_eq!(*first + *second, 3);
        drop(second);
        drop(first);
        assert_eq!(context.held().get(), 0);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "lock order")]
    fn a_wrong_order_is_caught() {
        let (outer, inner) = (Lock::new(LockClass::Index, 1), Lock::new(LockClass::Lru, 2));
        let context = Interrupt::new();
        let _second = inner.lock(&context);
        let _first = outer.lock(&context);
    }
}
