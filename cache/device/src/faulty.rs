//! A device that fails on purpose, by a plan and a seed.
//!
//! Each request gets its fate when it comes in; the first that applies of: the device is lost; it
//! hangs; it is full; this flush, read or write is one of those to fail; the write is torn; it
//! passes. A failed request moves nothing. Requests that the plan does not name are left alone.
//!
//! | fate | what the submitter sees | what the inner device sees |
//! |---|---|---|
//! | lost | `Lost`, now and for ever | nothing |
//! | hung | nothing until the hang is over, then as if it came in then | then the request |
//! | full | `NoSpace` for a write or allocation that would take more space | nothing |
//! | failed | `Failed` with EIO, after `fails_after` | nothing |
//! | lingering | a flush or metadata operation that takes longer | the request, later |
//! | torn | `Torn`, some first pages of several written | a shorter write |
//!
//! Lost writes (acknowledged, gone after a crash) need the data and are `Volatile`'s.
//!
//! The plan may be changed while it runs (`set_plan`): a test makes weather with it.
//!
//! Invariants
//!   1. A write that ended Ok has reached the inner device whole; so has a flush.
//!   2. The same requests in the same order get the same fates for the same plans.
//!   3. A request is held at most until `release`, the plan's `hang_for`, or `cancel`.
//!
//! Source: docs/adr/0009 (error contract); style T6.

use core::ops::Range;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};

use env::{Device, DeviceInfo, Host, Interrupt, IoDone, IoError, IoOp, IoRequest, ObjectId};
use frames::FrameId;
use policy::units::{Bytes, Instant, Nanos, PAGE_SIZE};

use crate::chance::{Chance, Odds};
use crate::{EIO, HELD_MAX, TOO_MANY, complete_later, take_lock};

/// The faults of a device, and their odds. The default: nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// All chance follows from it.
    pub seed: u64,
    /// Reads that fail.
    pub eio_reads: Odds,
    /// Writes that fail.
    pub eio_writes: Odds,
    /// The read that fails, counted from 1.
    pub eio_read_at: Option<u64>,
    /// The write that fails, counted from 1.
    pub eio_write_at: Option<u64>,
    /// Bytes of every object whose reads and writes fail.
    pub eio_range: Option<Range<u64>>,
    /// Writes of several pages of which only the first arrive.
    pub torn_writes: Odds,
    /// Space that writes and allocations may take from now on, in bytes.
    pub full_after: Option<Bytes>,
    /// Requests that hang.
    pub hang: Odds,
    /// From when on the whole device hangs.
    pub hang_at: Option<Instant>,
    /// Length of a hang. None: until `Faulty::release`.
    pub hang_for: Option<Nanos>,
    /// From when on the device is gone.
    pub lost_at: Option<Instant>,
    /// Flushes that fail.
    pub flush_fails: Odds,
    /// The flush that fails, counted from 1.
    pub flush_fail_at: Option<u64>,
    /// Changes of an object's length that fail.
    pub length_fails: Odds,
    /// Discards that fail, and leave what is there.
    pub discard_fails: Odds,
    /// Writes and allocations that find no space, however much is taken.
    pub no_space: Odds,
    /// Time that a failing request takes to fail.
    pub fails_after: Nanos,
    /// Flushes and metadata operations take up to so much longer. No fault: some are just slow.
    pub lingers: Nanos,
}

/// The requests and faults that a `Faulty` has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultyCounts {
    /// Requests that came in.
    pub requests: u64,
    /// Ended with EIO by the plan.
    pub failed: u64,
    /// Torn.
    pub torn: u64,
    /// Refused for want of space.
    pub no_space: u64,
    /// Held for some time.
    pub hung: u64,
    /// Refused because the device is gone.
    pub lost: u64,
}

/// A device that fails on purpose.
pub struct Faulty {
    me: Weak<Self>,
    inner: Arc<dyn Device>,
    host: Arc<dyn Host>,
    state: Mutex<State>,
}

struct State {
    plan: Arc<FaultPlan>,
    chance: Chance,
    counts: FaultyCounts,
    reads: u64,
    writes: u64,
    flushes: u64,
    space: Space,
    /// Hung requests in order, each with its number.
    held: VecDeque<(u64, Box<IoRequest>)>,
    holds: u64,
    /// The whole device hangs: `hold` was called, or the plan's moment has come.
    hanging: bool,
    /// The plan's hang has ended.
    hang_over: bool,
    lost: bool,
    /// The parts cut off from torn writes under way, by place.
    torn: Vec<Option<Vec<FrameId>>>,
}

/// Space that objects take, as far as this device has seen.
#[derive(Default)]
struct Space {
    /// Of each object, ascending: between them are holes, which count as taken once something
    /// behind them is.
    ranges: BTreeMap<ObjectId, Vec<Range<u64>>>,
    used: u64,
}

/// The fate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Pass,
    Fail(IoError),
    /// This many of its first pages arrive.
    Tear(usize),
    /// Passes after so long.
    Linger(Nanos),
    Hang,
}

impl Faulty {
    /// Makes `inner` fail as planned.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>, host: Arc<dyn Host>, plan: FaultPlan) -> Arc<Self> {
        let state = State {
            chance: Chance::new(plan.seed),
            plan: Arc::new(plan),
            counts: FaultyCounts::default(),
            reads: 0,
            writes: 0,
            flushes: 0,
            space: Space::default(),
            held: VecDeque::new(),
            holds: 0,
            hanging: false,
            hang_over: false,
            lost: false,
            torn: Vec::new(),
        };
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            inner,
            host,
            state: Mutex::new(state),
        })
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> FaultyCounts {
        take_lock(&self.state).counts
    }

    /// Requests that it holds.
    #[must_use]
    pub fn held(&self) -> usize {
        take_lock(&self.state).held.len()
    }

    /// Requests that come from now on meet this plan. Its chance goes on from where it is, whatever
    /// `plan.seed`; counts go on; a device that is lost stays lost, and held requests stay held.
    pub fn set_plan(&self, plan: FaultPlan) {
        let mut state = take_lock(&self.state);
        state.plan = Arc::new(plan);
        state.hang_over = false;
    }

    /// From now on the device hangs, until `release`.
    pub fn hold(&self) {
        take_lock(&self.state).hanging = true;
    }

    /// Ends every hang, the plan's too; the requests held get their fate now, hanging excepted.
    pub fn release(&self) {
        {
            let mut state = take_lock(&self.state);
            state.hanging = false;
            state.hang_over = true;
        }
        while let Some(request) = self.take_held(None) {
            self.go_on(request);
        }
    }

    /// From now on the device is gone; the requests held end with `Lost`.
    pub fn lose(&self) {
        take_lock(&self.state).lost = true;
        self.release();
    }

    /// For the shutdown: held requests end with `Cancelled`, and nothing hangs any more.
    pub fn cancel(&self, context: &Interrupt) {
        {
            let mut state = take_lock(&self.state);
            state.hanging = false;
            state.hang_over = true;
        }
        while let Some(request) = self.take_held(None) {
            request.complete(context, Err(IoError::Cancelled));
        }
    }

    /// The request of that number if it is still held; none given: the one held longest.
    fn take_held(&self, number: Option<u64>) -> Option<Box<IoRequest>> {
        let mut state = take_lock(&self.state);
        let at = match number {
            None => 0,
            Some(number) => state.held.iter().position(|(held, _)| *held == number)?,
        };
        state.held.remove(at).map(|(_, request)| request)
    }

    /// Gives a request its fate, after any hang.
    fn go_on(&self, request: Box<IoRequest>) {
        let now = self.host.now();
        let fate = take_lock(&self.state).fate(&request, now);
        self.meet(fate, request);
    }

    fn meet(&self, fate: Fate, mut request: Box<IoRequest>) {
        match fate {
            Fate::Pass => self.inner.submit(request),
            Fate::Fail(error) => self.fail(request, error),
            Fate::Linger(time) => {
                let inner = Arc::clone(&self.inner);
                self.host
                    .after(time, Box::new(move |_| inner.submit(request)));
            }
            Fate::Tear(0) => self.fail(request, IoError::Torn { done: 0 }),
            Fate::Tear(pages) => {
                let cut = request.frames.split_off(pages);
                let place = take_lock(&self.state).place_for(cut);
                let handler = self
                    .me
                    .upgrade()
                    .expect("a device in use is held by its user");
                request.on_done_noted(handler, place as u64);
                self.inner.submit(request);
            }
            Fate::Hang => self.hang(request),
        }
    }

    fn fail(&self, request: Box<IoRequest>, error: IoError) {
        let after = take_lock(&self.state).plan.fails_after;
        complete_later(&self.host, after, request, Err(error));
    }

    fn hang(&self, request: Box<IoRequest>) {
        let number = {
            let mut state = take_lock(&self.state);
            if state.held.len() >= HELD_MAX {
                drop(state);
                complete_later(&self.host, Nanos::ZERO, request, Err(TOO_MANY));
                return;
            }
            let number = state.holds;
            state.holds += 1;
            state.held.push_back((number, request));
            number
        };
        let now = self.host.now();
        let Some(until) = self.hang_end(now) else {
            return;
        };
        let me = Weak::clone(&self.me);
        self.host.at(
            until,
            Box::new(move |_| {
                if let Some(faulty) = me.upgrade()
                    && let Some(request) = faulty.take_held(Some(number))
                {
                    faulty.go_on(request);
                }
            }),
        );
    }

    /// The time at which a hang that begins for a request now ends by itself.
    fn hang_end(&self, now: Instant) -> Option<Instant> {
        let plan = {
            let state = take_lock(&self.state);
            if state.hanging {
                return None;
            }
            Arc::clone(&state.plan)
        };
        let lasts = plan.hang_for?;
        let whole = plan.hang_at.filter(|at| *at <= now).map(|at| at + lasts);
        Some(whole.filter(|end| *end > now).unwrap_or(now + lasts))
    }
}

impl State {
    /// Decides, as the request comes in, if it hangs.
    fn hangs(&mut self, now: Instant) -> bool {
        let plan = Arc::clone(&self.plan);
        let planned = !self.hang_over
            && plan
                .hang_at
                .is_some_and(|at| at <= now && plan.hang_for.is_none_or(|lasts| now < at + lasts));
        self.hanging || planned || self.chance.happens(plan.hang)
    }

    fn is_lost(&mut self, now: Instant) -> bool {
        self.lost |= self.plan.lost_at.is_some_and(|at| at <= now);
        self.lost
    }

    fn fate(&mut self, request: &IoRequest, now: Instant) -> Fate {
        if self.is_lost(now) {
            self.counts.lost += 1;
            return Fate::Fail(IoError::Lost);
        }
        let plan = Arc::clone(&self.plan);
        let takes_space = matches!(request.op, IoOp::Write | IoOp::Allocate { .. });
        let is_full = plan
            .full_after
            .is_some_and(|limit| !self.space.try_take(request, limit.0));
        if is_full || takes_space && self.chance.happens(plan.no_space) {
            self.counts.no_space += 1;
            return Fate::Fail(IoError::NoSpace);
        }
        let in_range = plan
            .eio_range
            .as_ref()
            .is_some_and(|range| overlaps(range, request));
        let (odds, at, count) = match request.op {
            IoOp::Read => (plan.eio_reads, plan.eio_read_at, &mut self.reads),
            IoOp::Write => (plan.eio_writes, plan.eio_write_at, &mut self.writes),
            IoOp::Flush => (plan.flush_fails, plan.flush_fail_at, &mut self.flushes),
            IoOp::SetLen { .. } if self.chance.happens(plan.length_fails) => {
                self.counts.failed += 1;
                return Fate::Fail(EIO);
            }
            IoOp::Discard { .. } if self.chance.happens(plan.discard_fails) => {
                self.counts.failed += 1;
                return Fate::Fail(EIO);
            }
            IoOp::SetLen { .. }
            | IoOp::Allocate { .. }
            | IoOp::Discard { .. }
            | IoOp::Prepare { .. } => {
                return self.linger(plan.lingers);
            }
        };
        *count += 1;
        let is_nth = at == Some(*count);
        if in_range || is_nth || self.chance.happens(odds) {
            self.counts.failed += 1;
            return Fate::Fail(EIO);
        }
        if request.op == IoOp::Write && self.chance.happens(plan.torn_writes) {
            self.counts.torn += 1;
            let kept = self.chance.below(request.pages().0);
            return Fate::Tear(usize::try_from(kept).expect("fewer pages than the request has"));
        }
        if request.op == IoOp::Flush {
            return self.linger(plan.lingers);
        }
        Fate::Pass
    }

    fn linger(&mut self, most: Nanos) -> Fate {
        // Draws only if there is something to draw: a plan without it has the fates it always had.
        if most.is_zero() {
            return Fate::Pass;
        }
        Fate::Linger(Nanos(1 + self.chance.below(most.0)))
    }

    fn place_for(&mut self, cut: Vec<FrameId>) -> usize {
        let place = self
            .torn
            .iter()
            .position(Option::is_none)
            .unwrap_or(self.torn.len());
        if place == self.torn.len() {
            self.torn.push(None);
        }
        self.torn[place] = Some(cut);
        place
    }
}

impl Space {
    /// Takes what the request needs beyond what its object has. False: more than `limit` in all.
    fn try_take(&mut self, request: &IoRequest, limit: u64) -> bool {
        let len = match request.op {
            IoOp::Write => request.pages().bytes(),
            IoOp::Allocate { len } => len,
            IoOp::SetLen { len } => {
                if let Some(ranges) = self.ranges.get_mut(&request.object) {
                    for range in &mut *ranges {
                        let cut = range.end.saturating_sub(range.start.max(len.0));
                        self.used -= cut;
                        range.end -= cut;
                    }
                    ranges.retain(|range| !range.is_empty());
                }
                return true;
            }
            IoOp::Read | IoOp::Flush | IoOp::Discard { .. } | IoOp::Prepare { .. } => {
                return true;
            }
        };
        let ranges = self.ranges.entry(request.object).or_default();
        let had = ranges.last().map_or(0, |last| last.end);
        let start = request.offset.0.max(had);
        let end = request.offset.0.saturating_add(len.0);
        let more = end.saturating_sub(start);
        let fits = self.used.saturating_add(more) <= limit;
        if fits && more > 0 {
            self.used += more;
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        fits
    }
}

fn overlaps(range: &Range<u64>, request: &IoRequest) -> bool {
    let end = request.offset.0.saturating_add(request.pages().bytes().0);
    request.offset.0 < range.end && range.start < end
}

impl Device for Faulty {
    fn submit(&self, request: Box<IoRequest>) {
        let now = self.host.now();
        let fate = {
            let mut state = take_lock(&self.state);
            state.counts.requests += 1;
            if !state.is_lost(now) && state.hangs(now) {
                state.counts.hung += 1;
                Fate::Hang
            } else {
                state.fate(&request, now)
            }
        };
        self.meet(fate, request);
    }

    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }
}

impl IoDone for Faulty {
    /// The part of a torn write that was to arrive has arrived.
    fn io_done(
        &self,
        context: &Interrupt,
        mut request: Box<IoRequest>,
        result: Result<(), IoError>,
    ) {
        let done = request.frames.len() as u64 * PAGE_SIZE;
        let place = usize::try_from(request.note()).expect("a note of `meet` is a place");
        let cut = take_lock(&self.state).torn[place].take();
        request
            .frames
            .extend(cut.expect("a torn write has a part that was cut off"));
        request.complete(context, result.and(Err(IoError::Torn { done })));
    }
}

#[cfg(test)]
mod tests;
