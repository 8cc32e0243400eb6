//! The gate of a file: many writers inside, or one task that changes its length, its space or its
//! holes.
//!
//! It is held across waits, so it is no `Lock` but a counter and a queue. Its holder has a guard,
//! which is the file as well: what must run inside, or behind the shut gate, takes the guard in
//! place of the file.
//!
//! ```text
//!   enter ──> GateGuard, one for each writer ──drop──> left; the last one out wakes the task that shuts
//!   shut  ──> ShutGate, once nobody is inside ──drop──> open; those that were turned away go in
//! ```
//!
//! Invariants
//!   1. There is no `ShutGate` beside a `GateGuard` of the same file, nor beside another.
//!   2. A task that wants to shut it is not kept waiting by writers that come later: from then on
//!      they are turned away.

use core::ops::Deref;
use std::sync::Arc;

use env::{Cause, Signal, Task, WaitQueue};
use frames::sync::{AtomicU32, Ordering};

use super::mapping::Mapping;
use crate::Error;

/// Writers inside are counted in the other bits.
const SHUT: u32 = 1 << 31;

/// The state of a file's gate.
#[derive(Default)]
pub(crate) struct Gate {
    /// Writers inside, or `SHUT`; both while the task that shuts it waits for the last of them.
    state: AtomicU32,
    /// Writers that found it shut and have not gone in yet.
    turned_away: AtomicU32,
    wait: WaitQueue,
}

/// A file that its holder may write to: it is inside the gate.
#[must_use]
pub(crate) struct GateGuard<'a>(&'a Arc<Mapping>);

/// A file whose gate its holder has shut: nobody writes to it.
#[must_use]
pub(crate) struct ShutGate<'a>(&'a Arc<Mapping>);

impl Deref for GateGuard<'_> {
    type Target = Arc<Mapping>;

    fn deref(&self) -> &Self::Target {
        self.0
    }
}

impl Deref for ShutGate<'_> {
    type Target = Arc<Mapping>;

    fn deref(&self) -> &Self::Target {
        self.0
    }
}

impl Drop for GateGuard<'_> {
    fn drop(&mut self) {
        self.0.gate().leave();
    }
}

impl Drop for ShutGate<'_> {
    fn drop(&mut self) {
        self.0.gate().open();
    }
}

impl<'a> GateGuard<'a> {
    /// Goes in as a writer, once the gate is open.
    pub(super) fn enter(task: &mut Task<'_>, mapping: &'a Arc<Mapping>) -> Result<Self, Error> {
        mapping.gate().enter(task)?;
        Ok(Self(mapping))
    }
}

impl<'a> ShutGate<'a> {
    /// Shuts the gate to writers and waits until the last one is out.
    pub(super) fn shut(task: &mut Task<'_>, mapping: &'a Arc<Mapping>) -> Result<Self, Error> {
        mapping.gate().begin_to_shut(task)?;
        // From here on it is opened again, whatever happens.
        let shut = Self(mapping);
        mapping.gate().wait_for_the_last(task)?;
        Ok(shut)
    }

    /// Shuts the gate unless somebody is inside.
    pub(super) fn try_shut(mapping: &'a Arc<Mapping>) -> Option<Self> {
        // A guard that is made opens the gate when it is dropped: none is, unless it was shut here.
        mapping.gate().try_shut().then(|| Self(mapping))
    }
}

impl Gate {
    fn try_enter(&self) -> bool {
        self.state
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |state| {
                (state & SHUT == 0).then_some(state + 1)
            })
            .is_ok()
    }

    fn enter(&self, task: &mut Task<'_>) -> Result<(), Error> {
        if self.try_enter() {
            return Ok(());
        }
        self.turned_away.fetch_add(1, Ordering::AcqRel);
        let result = self.wait_and_enter(task);
        if self.turned_away.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.wait.wake_all(Signal::GateOpened);
        }
        result
    }

    fn wait_and_enter(&self, task: &mut Task<'_>) -> Result<(), Error> {
        while !self.try_enter() {
            Error::after(task.wait_while(&self.wait, Cause::PageBusy, None, |_| {
                self.state.load(Ordering::Relaxed) & SHUT != 0
            }))?;
        }
        Ok(())
    }

    /// Waits until the writers that were turned away have gone in: a task that has opened the gate
    /// and is to shut it again at once would never leave them a turn.
    pub(super) fn let_in(&self, task: &mut Task<'_>) -> Result<(), Error> {
        Error::after(task.wait_while(&self.wait, Cause::PageBusy, None, |_| {
            self.turned_away.load(Ordering::Acquire) > 0 && !self.is_shut()
        }))
    }

    fn leave(&self) {
        if self.state.fetch_sub(1, Ordering::Release) & !SHUT == 1 {
            self.wait.wake_all(Signal::GateOpened);
        }
    }

    /// True if somebody has shut it, or waits for the last writer to leave.
    pub(super) fn is_shut(&self) -> bool {
        self.state.load(Ordering::Acquire) & SHUT != 0
    }

    fn try_shut(&self) -> bool {
        self.state
            .compare_exchange(0, SHUT, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    fn begin_to_shut(&self, task: &mut Task<'_>) -> Result<(), Error> {
        loop {
            let before = self.state.fetch_or(SHUT, Ordering::Acquire);
            if before & SHUT == 0 {
                return Ok(());
            }
            Error::after(task.wait_while(&self.wait, Cause::PageBusy, None, |_| {
                self.state.load(Ordering::Relaxed) & SHUT != 0
            }))?;
        }
    }

    fn wait_for_the_last(&self, task: &mut Task<'_>) -> Result<(), Error> {
        Error::after(task.wait_while(&self.wait, Cause::PageBusy, None, |_| {
            self.state.load(Ordering::Acquire) != SHUT
        }))
    }

    fn open(&self) {
        self.state.fetch_and(!SHUT, Ordering::Release);
        self.wait.wake_all(Signal::GateOpened);
    }
}
