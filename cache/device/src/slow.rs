//! A device that is as slow as asked: rate, latency, queue depth, readers first.
//!
//! ```text
//!   submit ──> waiting (by class, then arrival) ──depth──> in service ──> completed
//!                                                            latency, then its turn on the link;
//!                                                            meanwhile the inner device works
//! ```
//!
//! A request in service ends when the link has moved it *and* the inner device has completed it; so
//! an inner device that is quicker than the rate adds nothing to the time, and a slower one shows.
//! With depth 1 a request of `len` bytes takes `latency + len / rate` and requests are served
//! strictly one at a time; with more, latencies overlap and the rate is shared in order.
//!
//! Invariants
//!   1. At most `depth` requests are in service.
//!   2. No request enters service while one of an earlier class waits, or an earlier one of its
//!      own.
//!   3. Bytes of requests that end in a window are at most rate * window + burst + one request.
//!      This is of the device's own time: a timer that comes late delays an end, and what was
//!      waiting then still begins when its turn was. So a busy machine shifts ends, and does not
//!      slow the device.
//!
//! Allocating space and setting a length are work of the file system, in memory: they are no
//! requests of a disk, so they pass at once, whatever waits.
//!
//! A reader waits for what is in service, at most `depth` requests: bound their size, not their
//! number. Readers can starve writers; a cache's readers are bounded by its misses.
//!
//! Concurrency: `submit`, completions and timers all end in `work`, which one of them at a time
//! runs: it takes one action under the lock, does it outside, and looks again. So a completion
//! that submits again does not recurse.
//!
//! The rate may change at given moments (`then=8MiB@40s`), or when told (`set_rate`). At a rate of
//! zero the device stands still: a hang, which ends with the next change.
//!
//! At the end: a timer called before its time (an `Env` that shuts down hurries) opens the device:
//! everything ends as soon as the inner device has it.

use core::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};

use env::{Device, DeviceInfo, Host, Interrupt, IoClass, IoDone, IoError, IoOp, IoRequest};
use policy::units::{Bytes, Instant, Nanos};

use crate::link::{BytesPerSec, Link};
use crate::{HELD_MAX, TOO_MANY, complete_later, take_lock};

/// The rate, latencies and burst of a slow device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowOptions {
    /// Bytes a second, reads and writes together. None: as fast as the inner device. Zero: nothing
    /// that moves data ends, until the rate is changed.
    pub rate: Option<BytesPerSec>,
    /// Bytes that an idle device saves for later. It starts full.
    pub burst: Bytes,
    /// Time before a request's transfer begins; of every request of the disk, flushes too.
    pub latency: Nanos,
    /// Requests in service at once; at least one, at most `SlowOptions::DEPTH_MAX`.
    pub depth: usize,
    /// Changes of the rate, each at its moment of the host's clock; at most
    /// `SlowOptions::STEPS_MAX`.
    pub then: Vec<RateStep>,
}

/// A change of the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateStep {
    /// When, on the host's clock.
    pub at: Instant,
    /// The rate from then on; zero: nothing that moves data ends.
    pub rate: BytesPerSec,
}

impl SlowOptions {
    /// The deepest queue: as NVMe's usual one.
    pub const DEPTH_MAX: usize = 1024;
    /// Most changes of the rate: each is a timer that is set at the start.
    pub const STEPS_MAX: usize = 1024;
}

impl Default for SlowOptions {
    fn default() -> Self {
        Self {
            rate: None,
            burst: Bytes::ZERO,
            latency: Nanos::ZERO,
            depth: 1,
            then: Vec::new(),
        }
    }
}

/// A device made slow.
pub struct Slow {
    me: Weak<Self>,
    inner: Arc<dyn Device>,
    host: Arc<dyn Host>,
    latency: Nanos,
    state: Mutex<State>,
}

struct State {
    waiting: BinaryHeap<Waiting>,
    sequence: u64,
    service: Vec<Service>,
    /// Places and since when they are free, the longest first.
    free: VecDeque<(usize, Instant)>,
    /// Services that have ended and whose request is still to be completed.
    ended: VecDeque<usize>,
    link: Link<usize>,
    /// When the timer set last is due, and its number: others are stale.
    timer: Option<Instant>,
    timers: u64,
    /// Somebody runs `work`.
    working: bool,
    open: bool,
}

/// A place in service.
#[derive(Default)]
struct Service {
    link_done: Option<Instant>,
    inner_done: Option<InnerDone>,
}

/// The inner device's answer, and its time.
struct InnerDone {
    request: Box<IoRequest>,
    result: Result<(), IoError>,
    at: Instant,
}

/// The greatest is served next.
struct Waiting {
    key: Reverse<(IoClass, u64)>,
    request: Box<IoRequest>,
    arrived: Instant,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}
impl Eq for Waiting {}
impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// One thing to do outside the lock.
enum Action {
    End(Box<IoRequest>, Result<(), IoError>),
    Begin(usize, Box<IoRequest>),
    SetTimer(Instant, u64),
}

impl Slow {
    /// Makes `inner` slow.
    ///
    /// # Panics
    /// If the depth is zero or above `SlowOptions::DEPTH_MAX`, or with more than `STEPS_MAX`
    /// changes.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>, host: Arc<dyn Host>, options: &SlowOptions) -> Arc<Self> {
        assert!(
            options.depth > 0,
            "a device serves at least one request at a time"
        );
        assert!(
            options.depth <= SlowOptions::DEPTH_MAX,
            "a device deeper than DEPTH_MAX"
        );
        assert!(
            options.then.len() <= SlowOptions::STEPS_MAX,
            "a device with more than STEPS_MAX changes of its rate"
        );
        let state = State {
            waiting: BinaryHeap::new(),
            sequence: 0,
            service: (0..options.depth).map(|_| Service::default()).collect(),
            free: (0..options.depth)
                .map(|place| (place, host.now()))
                .collect(),
            ended: VecDeque::with_capacity(options.depth),
            link: Link::new(options.rate, options.burst, host.now()),
            timer: None,
            timers: 0,
            working: false,
            open: false,
        };
        let slow = Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            inner,
            host,
            latency: options.latency,
            state: Mutex::new(state),
        });
        for step in &options.then {
            slow.change_at(*step);
        }
        slow
    }

    /// Changes the rate at a moment to come. A host that shuts down and calls early changes
    /// nothing.
    pub fn change_at(&self, step: RateStep) {
        let me = Weak::clone(&self.me);
        let change = move |context: &Interrupt| {
            if let Some(slow) = me.upgrade()
                && slow.host.now() >= step.at
            {
                slow.change(context, Some(step.rate));
            }
        };
        self.host.at(step.at, Box::new(change));
    }

    /// Changes the rate, for the rest of the transfers under way too.
    pub fn set_rate(&self, rate: Option<BytesPerSec>) {
        self.change(&Interrupt::new(), rate);
    }

    fn change(&self, context: &Interrupt, rate: Option<BytesPerSec>) {
        let now = self.host.now();
        let mut state = take_lock(&self.state);
        state.finish_transfers(now);
        if !state.open {
            state.link.set_rate(now, rate);
        }
        drop(state);
        self.work(context);
    }

    /// Requests that wait for service.
    #[must_use]
    pub fn waiting(&self) -> usize {
        take_lock(&self.state).waiting.len()
    }

    /// Requests in service.
    #[must_use]
    pub fn in_service(&self) -> usize {
        let state = take_lock(&self.state);
        state.service.len() - state.free.len()
    }

    /// For the shutdown: waiting requests end with `Cancelled`; a request in service ends as soon
    /// as the inner device has ended it, and so do later ones.
    pub fn cancel(&self, context: &Interrupt) {
        let waiting = {
            let mut state = take_lock(&self.state);
            state.open();
            core::mem::take(&mut state.waiting)
        };
        for waiting in waiting.into_sorted_vec().into_iter().rev() {
            waiting.request.complete(context, Err(IoError::Cancelled));
        }
        self.work(context);
    }

    /// Does what there is to do, unless somebody already does.
    fn work(&self, context: &Interrupt) {
        {
            let mut state = take_lock(&self.state);
            if state.working {
                return;
            }
            state.working = true;
        }
        loop {
            let now = self.host.now();
            let action = {
                let mut state = take_lock(&self.state);
                let action = state.next_action(now, self.latency);
                state.working = action.is_some();
                action
            };
            match action {
                Some(Action::End(request, result)) => request.complete(context, result),
                Some(Action::Begin(place, mut request)) => {
                    let handler = self
                        .me
                        .upgrade()
                        .expect("a device in use is held by its user");
                    request.on_done_noted(handler, place as u64);
                    self.inner.submit(request);
                }
                Some(Action::SetTimer(when, number)) => self.set_timer(when, number),
                None => return,
            }
        }
    }

    fn set_timer(&self, when: Instant, number: u64) {
        let me = Weak::clone(&self.me);
        self.host.at(
            when,
            Box::new(move |context| {
                if let Some(slow) = me.upgrade() {
                    slow.on_timer(context, when, number);
                }
            }),
        );
    }

    fn on_timer(&self, context: &Interrupt, when: Instant, number: u64) {
        {
            let early = self.host.now() < when;
            let mut state = take_lock(&self.state);
            if state.timers != number {
                return;
            }
            state.timer = None;
            if early {
                state.open();
            }
        }
        self.work(context);
    }
}

impl State {
    fn next_action(&mut self, now: Instant, latency: Nanos) -> Option<Action> {
        self.finish_transfers(now);
        if let Some(place) = self.ended.pop_front() {
            let service = core::mem::take(&mut self.service[place]);
            let (link, inner) = service
                .link_done
                .zip(service.inner_done)
                .expect("an ended service is done on both sides");
            self.free.push_back((place, link.max(inner.at)));
            return Some(Action::End(inner.request, inner.result));
        }
        if !self.waiting.is_empty()
            && let Some((place, since)) = self.free.pop_front()
        {
            let waiting = self.waiting.pop().expect("somebody waits");
            let latency = if self.open { Nanos::ZERO } else { latency };
            let begins = waiting.arrived.max(since).min(now);
            let request = waiting.request;
            self.link
                .push(place, begins + latency, transfer_bytes(&request));
            return Some(Action::Begin(place, request));
        }
        let eta = self.link.eta();
        if eta == self.timer {
            return None;
        }
        self.timer = eta;
        self.timers += 1;
        eta.map(|when| Action::SetTimer(when, self.timers))
    }

    /// Notes the transfers that have ended by `now`.
    fn finish_transfers(&mut self, now: Instant) {
        while let Some((place, at)) = self.link.pop_finished(now) {
            self.service[place].link_done = Some(at);
            self.note_end(place);
        }
    }

    fn note_end(&mut self, place: usize) {
        let service = &self.service[place];
        if service.link_done.is_some() && service.inner_done.is_some() {
            self.ended.push_back(place);
        }
    }

    fn open(&mut self) {
        self.open = true;
        self.link.open();
    }
}

impl Device for Slow {
    fn submit(&self, request: Box<IoRequest>) {
        if matches!(request.op, IoOp::Allocate { .. } | IoOp::SetLen { .. }) {
            self.inner.submit(request);
            return;
        }
        let arrived = self.host.now();
        {
            let mut state = take_lock(&self.state);
            if state.waiting.len() >= HELD_MAX {
                drop(state);
                complete_later(&self.host, Nanos::ZERO, request, Err(TOO_MANY));
                return;
            }
            let key = Reverse((request.class, state.sequence));
            state.sequence += 1;
            state.waiting.push(Waiting {
                key,
                request,
                arrived,
            });
        }
        self.work(&Interrupt::new());
    }

    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }
}

impl IoDone for Slow {
    fn io_done(&self, context: &Interrupt, request: Box<IoRequest>, result: Result<(), IoError>) {
        let place = usize::try_from(request.note()).expect("a note of `work` is a place");
        let at = self.host.now();
        {
            let mut state = take_lock(&self.state);
            state.service[place].inner_done = Some(InnerDone {
                request,
                result,
                at,
            });
            state.note_end(place);
        }
        self.work(context);
    }
}

/// Bytes that the link has to move: only reads and writes carry data.
fn transfer_bytes(request: &IoRequest) -> Bytes {
    match request.op {
        IoOp::Read | IoOp::Write => request.pages().bytes(),
        _ => Bytes::ZERO,
    }
}

#[cfg(test)]
mod tests;
