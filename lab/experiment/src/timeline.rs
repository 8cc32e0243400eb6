//! The timeline of each task and device: the raw material of a trace, of bounded length.

use std::collections::BTreeMap;

use env::{Cause, Event, IoOp, TaskId, Wakeup};
use policy::reclaim::Reason;
use policy::units::{Instant, Nanos, Pages};

/// Things kept at most. A trace of this many is about 22 MB, and opens in seconds.
pub(super) const ITEMS_MOST: usize = 400_000;

/// One thing that happened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Item {
    /// When.
    pub at: Instant,
    /// By whom; `TaskId::NONE`: by an interrupt.
    pub task: TaskId,
    /// Its kind.
    pub what: What,
}

/// A thing that can be seen in a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// It falls asleep.
    Waits(Cause),
    /// It slept so long.
    Waited(Cause, Nanos, Wakeup),
    /// It begins to reclaim on its own behalf.
    Reclaims,
    /// A pass of reclaim ended.
    Reclaimed {
        /// By the background reclaimer.
        background: bool,
        /// Pages looked at.
        scanned: Pages,
        /// Pages freed.
        freed: Pages,
    },
    /// The background reclaimer begins, or has reached its mark.
    Background(bool),
    /// A throttling ended. `Event::Throttled`.
    Throttled {
        /// Why.
        reason: Reason,
        /// The longest sleep allowed.
        timeout: Nanos,
        /// Its length, in whole ticks.
        delayed: Nanos,
        /// Its end; none: it did not sleep.
        wakeup: Option<Wakeup>,
    },
    /// A request went to a device.
    Submitted(u16),
    /// A request ended.
    Completed {
        /// Which device.
        device: u16,
        /// The operation: read, write, or another.
        op: &'static str,
        /// The pages moved.
        pages: Pages,
        /// From submission to completion.
        took: Nanos,
        /// It failed.
        failed: bool,
    },
    /// A fault that had to read.
    Faulted(Nanos),
    /// A pass of a job's own measured operation ended.
    Sampled(Pages, Nanos),
    /// The task's end.
    Ended,
}

/// The items kept, in the order of time.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// When it begins.
    pub begins: Instant,
    /// When it ends: with the jobs, or when it was full.
    pub ends: Instant,
    /// It ended because it was full.
    pub is_full: bool,
    /// The items.
    pub items: Vec<Item>,
    /// Names of tasks.
    pub tasks: BTreeMap<u32, String>,
    /// Names of devices by their number.
    pub devices: BTreeMap<u16, String>,
}

impl Timeline {
    /// Its size when it is full.
    pub(crate) const BYTES_MOST: u64 = (ITEMS_MOST * size_of::<Item>()) as u64;

    pub(super) fn opens(&mut self, at: Instant) {
        self.begins = at;
        self.ends = at;
    }

    pub(super) fn closes(&mut self, at: Instant) {
        if !self.is_full {
            self.ends = at;
        }
    }

    pub(super) fn event(&mut self, at: Instant, task: TaskId, event: &Event) {
        let what = match *event {
            Event::Waiting { cause } => What::Waits(cause),
            Event::Waited {
                cause,
                waited,
                wakeup,
            } => What::Waited(cause, waited, wakeup),
            Event::DirectReclaim => What::Reclaims,
            Event::Reclaimed {
                background,
                scanned,
                freed,
            } => What::Reclaimed {
                background,
                scanned,
                freed,
            },
            Event::Background { awake } => What::Background(awake),
            Event::Throttled {
                reason,
                timeout,
                delayed,
                wakeup,
                ..
            } => What::Throttled {
                reason,
                timeout,
                delayed,
                wakeup,
            },
            Event::Submitted { device, .. } => What::Submitted(device.0),
            Event::Completed {
                device,
                op,
                pages,
                took,
                failed,
            } => What::Completed {
                device: device.0,
                op: op_name(op),
                pages,
                took,
                failed,
            },
            Event::Faulted { major: true, took } => What::Faulted(took),
            Event::Sampled { pages, took } => What::Sampled(pages, took),
            _ => return,
        };
        self.push(Item { at, task, what });
    }

    pub(super) fn ended(&mut self, at: Instant, task: TaskId) {
        let what = What::Ended;
        self.push(Item { at, task, what });
    }

    fn push(&mut self, item: Item) {
        if self.is_full {
            return;
        }
        self.items.push(item);
        self.ends = item.at;
        self.is_full = self.items.len() >= ITEMS_MOST;
    }
}

const fn op_name(op: IoOp) -> &'static str {
    match op {
        IoOp::Read => "read",
        IoOp::Write => "write",
        IoOp::Flush => "flush",
        IoOp::SetLen { .. } => "set length",
        IoOp::Allocate { .. } => "allocate",
        IoOp::Discard { .. } => "discard",
        IoOp::Prepare { .. } => "prepare",
    }
}
