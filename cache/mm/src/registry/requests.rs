//! Request slots.
//!
//! Slots for writes are made when the cache is built and used again and again, so that the
//! write-back path allocates nothing.

use env::{
    Cause, Context, Event, Interrupt, IoRequest, Lock, LockClass, Signal, Task, WaitQueue, Wakeup,
};
use policy::dirty::DeviceIndex;
use policy::units::{Bytes, Instant};

use crate::Error;
use crate::registry::REQUEST_PAGES;

/// Write slots taken at the start for each of the first devices a cache has room for, and for each
/// further one.
const SLOTS_PER_DEVICE: usize = 16;
const DEVICES_DEEP: usize = 16;
const SLOTS_PER_FURTHER_DEVICE: usize = 4;
/// Of the slots, this share is kept for devices that hold less than an equal part of it.
const KEPT: usize = 2;

/// Write requests that are not in use.
///
/// A device that hangs gives none of its slots back, and one whose writes are single pages wants
/// many. So half of the slots are kept, in equal parts, for devices that hold less than theirs; the
/// other half is for the task that comes first.
pub(crate) struct Requests {
    slots: Lock<Slots>,
    wait: WaitQueue,
}

struct Slots {
    #[expect(
        clippy::vec_box,
        reason = "requests travel to devices as boxes and come back"
    )]
    free: Vec<Box<IoRequest>>,
    total: usize,
    /// Slots that each device holds, and how many of the free ones are kept for it.
    held: Vec<u32>,
    part: u32,
    /// Sum over the devices of what they hold less than their part.
    kept: usize,
    /// Once a task found none, no more go out until so few of them are out; none: the next free
    /// request goes out.
    resume: Option<usize>,
    /// A task found none, and more than that are out since.
    held_back: bool,
}

impl Slots {
    /// Another device shares the slots.
    fn add(&mut self, device: DeviceIndex) {
        let place = usize::from(device.0);
        if place >= self.held.len() {
            self.held.resize(place + 1, 0);
        }
        let part = self.total / (KEPT * self.held.len());
        self.part = u32::try_from(part).expect("slots are few");
        let missing = |held: &u32| self.part.saturating_sub(*held) as usize;
        self.kept = self.held.iter().map(missing).sum();
    }

    fn has_for(&self, device: DeviceIndex) -> bool {
        let below = self.held[usize::from(device.0)] < self.part;
        // Kept requests are of use to their owners only; right after a device has come, they may
        // not be there yet.
        !self.held_back && !self.free.is_empty() && (below || self.free.len() > self.kept)
    }

    /// For a task that waits if there is none.
    fn pop_or_hold(&mut self, device: DeviceIndex) -> Option<Box<IoRequest>> {
        let request = self.pop(device);
        self.held_back |= request.is_none() && self.resume.is_some();
        request
    }

    fn pop(&mut self, device: DeviceIndex) -> Option<Box<IoRequest>> {
        if !self.has_for(device) {
            return None;
        }
        let held = &mut self.held[usize::from(device.0)];
        self.kept -= usize::from(*held < self.part);
        *held += 1;
        self.free.pop()
    }

    fn push(&mut self, device: DeviceIndex, request: Box<IoRequest>) {
        let held = &mut self.held[usize::from(device.0)];
        *held -= 1;
        self.kept += usize::from(*held < self.part);
        self.free.push(request);
        let out = self.total - self.free.len();
        self.held_back &= self.resume.is_some_and(|resume| out > resume);
    }
}

impl Requests {
    /// Slots of a cache with room for `devices` devices, `least` or more; the devices are added one
    /// by one.
    pub(crate) fn new(devices: u16, least: u32) -> Self {
        let devices = usize::from(devices);
        let deep = devices.min(DEVICES_DEEP);
        let count = deep * SLOTS_PER_DEVICE + (devices - deep) * SLOTS_PER_FURTHER_DEVICE;
        Self::with_room(count.max(least as usize), REQUEST_PAGES, None)
    }

    /// `count` slots for `pages` pages each, for one device.
    pub(crate) fn for_one(count: usize, pages: usize) -> Self {
        Self::in_lumps(count, pages, None)
    }

    /// The same; once a task found none, it and all that come after it wait until no more than
    /// `resume` are out.
    pub(crate) fn in_lumps(count: usize, pages: usize, resume: Option<usize>) -> Self {
        assert!(
            resume.is_none_or(|resume| resume < count),
            "of {count} requests, {resume:?} are not fewer"
        );
        let requests = Self::with_room(count, pages, resume);
        requests.add_device(&Interrupt::new(), DeviceIndex(0));
        requests
    }

    fn with_room(count: usize, pages: usize, resume: Option<usize>) -> Self {
        let slots = Slots {
            free: (0..count).map(|_| IoRequest::for_writes(pages)).collect(),
            total: count,
            held: Vec::new(),
            part: 0,
            kept: 0,
            resume,
            held_back: false,
        };
        Self {
            slots: Lock::new(LockClass::Leaf, slots),
            wait: WaitQueue::new(),
        }
    }

    /// A device begins to use the slots.
    pub(crate) fn add_device(&self, context: &impl Context, device: DeviceIndex) {
        self.slots.lock(context).add(device);
    }

    /// A slot for a write to `device`, if there is one for it.
    pub(crate) fn try_take(
        &self,
        context: &impl Context,
        device: DeviceIndex,
    ) -> Option<Box<IoRequest>> {
        self.slots.lock(context).pop(device)
    }

    /// True if there is a slot for a write to `device` now.
    pub(crate) fn has_one(&self, context: &impl Context, device: DeviceIndex) -> bool {
        self.slots.lock(context).has_for(device)
    }

    /// A slot for a write to `device`; waits while there is none for it.
    pub(crate) fn take(
        &self,
        task: &mut Task<'_>,
        device: DeviceIndex,
    ) -> Result<Box<IoRequest>, Error> {
        loop {
            if let Some(request) = self.take_while(task, device, None, || true)? {
                return Ok(request);
            }
        }
    }

    /// A slot for a write to `device`; `None`: there was none for it until the deadline, or it is
    /// not wanted any more (the task that changes that calls `wake_all`).
    pub(crate) fn take_while(
        &self,
        task: &mut Task<'_>,
        device: DeviceIndex,
        deadline: Option<Instant>,
        wanted: impl Fn() -> bool,
    ) -> Result<Option<Box<IoRequest>>, Error> {
        loop {
            let taken = self.slots.lock(task).pop_or_hold(device);
            if let Some(request) = taken {
                return Ok(Some(request));
            }
            let wakeup = task.wait_while(&self.wait, Cause::RequestSlot, deadline, |task| {
                wanted() && !self.slots.lock(task).has_for(device)
            });
            match wakeup {
                Wakeup::Ready(_) if wanted() => {}
                Wakeup::Ready(_) | Wakeup::TimedOut => return Ok(None),
                ended => return Err(Error::after(ended).err().unwrap_or(Error::Cancelled)),
            }
        }
    }

    /// Has all that wait look again.
    pub(crate) fn wake_all(&self, signal: Signal) {
        self.wait.wake_all(signal);
    }

    /// Gives a slot back. Among several devices, a task that waits looks again: the slot may be
    /// kept for some of them only.
    pub(crate) fn put(
        &self,
        context: &impl Context,
        device: DeviceIndex,
        mut request: Box<IoRequest>,
    ) {
        request.frames.clear();
        request.moved = false;
        request.in_place = false;
        request.cut = Bytes::ZERO;
        let shared = {
            let mut slots = self.slots.lock(context);
            slots.push(device, request);
            if slots.held_back {
                return;
            }
            slots.held.len() > 1 || slots.resume.is_some()
        };
        if shared {
            self.wait.wake_all(Signal::SlotFreed);
        } else {
            self.wait.wake_one(Signal::SlotFreed);
        }
    }
}

/// Sends a filled request; the caller has put its handler on.
pub(crate) fn submit(task: &mut Task<'_>, mut request: Box<IoRequest>) {
    request.submitted = task.now();
    task.emit(&Event::Submitted {
        device: request.device,
        op: request.op,
        pages: request.pages(),
    });
    task.did(env::Work::Submit, 1);
    task.env().submit(request);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_that_was_full_opens_when_it_has_drained() {
        let context = Interrupt::new();
        let device = DeviceIndex(0);
        let room = Requests::in_lumps(4, 1, Some(1));
        let take = || room.try_take(&context, device);
        let mut out: Vec<_> = (0..4).map_while(|_| take()).collect();
        assert_eq!(out.len(), 4);
        // A call that does not wait holds nobody back.
        assert!(take().is_none());
        room.put(&context, device, out.pop().unwrap());
        out.extend(take());
        assert_eq!(out.len(), 4);
        assert!(room.slots.lock(&context).pop_or_hold(device).is_none());
        for left in [3, 2] {
            room.put(&context, device, out.pop().unwrap());
            assert!(!room.has_one(&context, device), "{left} are out");
        }
        room.put(&context, device, out.pop().unwrap());
        assert!(room.has_one(&context, device) && take().is_some());
    }
}
