//! Stackful coroutines: the one place with a context switch.
//!
//! A `Coroutine` runs a closure on a stack of its own. The closure gets a `Suspender`, gives
//! control back with `suspend` as deep in its calls as it likes, and is continued by `resume`.
//!
//! Invariants
//!   1. A `Suspender` is used only on its own coroutine's stack, and does not outlive the closure
//!      that it was made for. (The lab keeps it in the `Local` of the task, of which that task has
//!      the only handle, and which the body sees only behind `&mut Task`.)
//!   2. A panic does not cross the switch: it is caught on the coroutine's stack and handed out by
//!      `resume`.
//!   3. A suspended coroutine is never dropped. Its task is woken with `Cancelled` and returns. A
//!      task that does not, because of a bug, is forgotten with its stack: unwinding it from
//!      outside would run destructors in a place their author did not choose.
//!
//! Source: corosensei 0.3; docs/adr/0001.

use core::any::Any;
use core::ptr::NonNull;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ::env::Unparked;
use corosensei::stack::DefaultStack;
use corosensei::{CoroutineResult, Yielder};

/// Bytes of stack a task may use; below them is a guard page.
const STACK_SIZE: usize = 256 << 10;

/// Stacks kept for the next tasks.
const POOL_MAX: usize = 1024;

/// The state handed to a task that resumes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resume {
    /// The CPU it runs on from now.
    pub(crate) cpu: u32,
    /// The end of its park, if it was parked.
    pub(crate) unparked: Unparked,
}

/// The end of the body: by itself, or with a panic's payload.
pub(crate) type Ended = Result<(), Box<dyn Any + Send>>;

/// Gives control back to the task that resumed the coroutine it belongs to.
pub(crate) struct Suspender {
    yielder: NonNull<Yielder<Resume, ()>>,
}

impl Suspender {
    /// Suspends the coroutine until it is resumed.
    pub(crate) fn suspend(&self) -> Resume {
        // SAFETY: corosensei keeps the yielder at a fixed place on the coroutine's stack until the
        // closure returns. A `Suspender` is made for that closure only, is neither `Clone` nor
        // `Send`, and does not outlive it (invariant 1), so the closure is still running here.
        unsafe { self.yielder.as_ref() }.suspend(())
    }
}

/// A computation with its own stack.
pub(crate) struct Coroutine {
    inner: corosensei::Coroutine<Resume, (), Ended, DefaultStack>,
}

impl Coroutine {
    /// Prepares `body`; it starts with the first `resume`, whose value it gets.
    pub(crate) fn new(
        stack: DefaultStack,
        body: impl FnOnce(Suspender, Resume) + Send + 'static,
    ) -> Self {
        let inner = corosensei::Coroutine::with_stack(stack, |yielder, first| {
            let suspender = Suspender {
                yielder: NonNull::from(yielder),
            };
            catch_unwind(AssertUnwindSafe(|| body(suspender, first)))
        });
        Self { inner }
    }

    /// Runs it until it suspends itself (`None`) or ends.
    pub(crate) fn resume(&mut self, resume: Resume) -> Option<Ended> {
        match self.inner.resume(resume) {
            CoroutineResult::Yield(()) => None,
            CoroutineResult::Return(ended) => Some(ended),
        }
    }

    /// The stack of a coroutine that has ended.
    pub(crate) fn into_stack(self) -> DefaultStack {
        self.inner.into_stack()
    }

    /// Gives up a coroutine that will not end (invariant 3).
    pub(crate) fn forget(self) {
        core::mem::forget(self.inner);
    }
}

/// Stacks to be used again.
#[derive(Default)]
pub(crate) struct StackPool {
    stacks: Vec<DefaultStack>,
}

impl StackPool {
    /// A stack, the one given back last if there is any: its pages are warm.
    pub(crate) fn take(&mut self) -> std::io::Result<DefaultStack> {
        self.stacks
            .pop()
            .map_or_else(|| DefaultStack::new(STACK_SIZE), Ok)
    }

    pub(crate) fn give_back(&mut self, stack: DefaultStack) {
        if self.stacks.len() < POOL_MAX {
            self.stacks.push(stack);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GO: Resume = Resume {
        cpu: 0,
        unparked: Unparked::Woken,
    };

    #[test]
    fn a_coroutine_suspends_deep_inside_and_its_stack_is_used_again() {
        fn deep(suspender: &Suspender, depth: u32) -> u32 {
            if depth == 0 {
                suspender.suspend().cpu
            } else {
                deep(suspender, depth - 1)
            }
        }
        let mut pool = StackPool::default();
        for _ in 0..3 {
            let mut coroutine = Coroutine::new(pool.take().unwrap(), |suspender, first| {
                assert_eq!(first.cpu, 0);
                assert_eq!(deep(&suspender, 50), 3);
            });
            assert!(coroutine.resume(GO).is_none());
            let ended = coroutine.resume(Resume { cpu: 3, ..GO });
            assert!(ended.is_some_and(|ended| ended.is_ok()));
            pool.give_back(coroutine.into_stack());
            assert_eq!(pool.stacks.len(), 1);
        }
    }

    #[test]
    fn a_panic_is_handed_out() {
        let stack = StackPool::default().take().unwrap();
        let mut coroutine = Coroutine::new(stack, |_, _| panic!("on purpose"));
        let payload = coroutine.resume(GO).unwrap().unwrap_err();
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"on purpose"));
    }
}
