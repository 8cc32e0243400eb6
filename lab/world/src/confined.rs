//! Data that only the thread which made it may touch.
//!
//! `Env` asks for `Sync`, and a lab runs on one thread. A mutex would be right and costs two locked
//! instructions each time, a third of what a sleep costs in all. So this cell checks instead: a
//! borrow asserts that it is made on the owner's thread and that there is no other.
//!
//! One of the two modules with `unsafe` (the other is `coroutine`).

use core::cell::{Cell, UnsafeCell};
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU64, Ordering};

/// Number of the next thread that makes a cell; zero is nobody's.
static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// Number of this thread; zero as long as it has made no cell. Never given to another thread.
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

/// A cell of one thread.
pub(crate) struct Confined<T> {
    owner: u64,
    borrowed: Cell<bool>,
    value: UnsafeCell<T>,
}

// SAFETY: through a shared reference only `borrow` reaches the cell's fields, and it reaches beyond
// `owner`, which never changes, on the owner's thread alone. The value may be dropped or moved by
// another thread that owns the cell, hence `Send`.
unsafe impl<T: Send> Sync for Confined<T> {}

impl<T> Confined<T> {
    /// A cell of the calling thread.
    pub(crate) fn new(value: T) -> Self {
        let owner = THREAD.with(|thread| {
            if thread.get() == 0 {
                thread.set(NEXT.fetch_add(1, Ordering::Relaxed));
            }
            thread.get()
        });
        Self {
            owner,
            borrowed: Cell::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// The value, until the answer is dropped.
    ///
    /// # Panics
    /// On another thread, or while there is an earlier borrow.
    pub(crate) fn borrow(&self) -> Borrow<'_, T> {
        assert!(
            THREAD.with(Cell::get) == self.owner,
            "a lab is used on the thread that made it"
        );
        assert!(
            !self.borrowed.replace(true),
            "the lab's state is borrowed already"
        );
        Borrow {
            cell: self,
            stays: PhantomData,
        }
    }
}

/// The exclusive right to a cell's value. Stays on its thread.
pub(crate) struct Borrow<'a, T> {
    cell: &'a Confined<T>,
    stays: PhantomData<*const ()>,
}

impl<T> Deref for Borrow<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: `borrowed` is true from the making of this borrow to its end, so there is no
        // other, and the borrow is neither `Send` nor `Sync`.
        unsafe { &*self.cell.value.get() }
    }
}

impl<T> DerefMut for Borrow<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; `&mut self` excludes references from other calls of either.
        unsafe { &mut *self.cell.value.get() }
    }
}

impl<T> Drop for Borrow<'_, T> {
    fn drop(&mut self) {
        self.cell.borrowed.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_borrow_after_the_other() {
        let cell = Confined::new(1);
        *cell.borrow() += 1;
        *cell.borrow() += 1;
        assert_eq!(*cell.borrow(), 3);
    }

    #[test]
    #[should_panic(expected = "borrowed already")]
    fn never_two_at_once() {
        let cell = Confined::new(1);
        let _first = cell.borrow();
        let _second = cell.borrow();
    }

    #[test]
    fn never_on_another_thread() {
        let cell = Confined::new(1);
        let other = std::thread::scope(|scope| scope.spawn(|| drop(cell.borrow())).join());
        assert!(other.is_err());
        assert_eq!(*cell.borrow(), 1);
    }
}
