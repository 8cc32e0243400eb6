//! A turn: what the governor does when something has happened.
//!
//! ```text
//!   look     members that do not report are asked what they hold
//!   settle   the process is asked what is resident; the reports of all members go to the
//!            shares, which may move targets                                    (under the lock)
//!   resize   members that bound themselves get less, then others more
//!   shrink   each member above its target is asked to free its part of the excess
//!   call_in  if nothing is too much, bytes that are lent and wanted back are asked for
//!   grant    tasks that wait get the bytes that have come; `plan` says when to look again
//! ```
//!
//! Invariants
//!   1. No lock of ours is held in a call, and a member is in one call at a time.
//!   2. A turn ends: each round of asks brings something, and there are at most `ROUNDS`.
//!   3. A member's mistake has consequences for it alone: rest, name, end.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use policy::units::Bytes;

use crate::due::{LATEST, Next};
use crate::lanes::{LATE, Lane};
use crate::report::Standing;
use crate::seat::{Conduct, MemberState, REST_MAX, REST_MIN};
use crate::state::{Core, Inner};
use crate::{Ask, Freeable, Resized, Scanned, Shrinker};

/// Rounds of asks in a turn.
const ROUNDS: usize = 4;
/// Claims in a row that nothing came of, and scans in a row that gave nothing.
const STRIKES: u32 = 3;
/// A claim is backed if what is held falls by at least this part of it: others may grow meanwhile.
const BACKED_PART: u64 = 2;
/// After a turn that did not get all.
const AGAIN: Duration = Duration::from_millis(1);
/// The interval at which members that do not report are looked at, and resident memory: it grows.
const LOOK_MIN: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_millis(100);
/// The same, when nothing grows.
const LOOK_IDLE: Duration = Duration::from_secs(1);
/// Part of a delta by which a bound must change before a cache is told.
const TOLD_PART: u64 = 8;
/// Steps of a scan between two looks at its deadline, as a part of a delta.
const BATCH_PART: u64 = 16;
/// Part of the limit by which slack must change before targets follow.
const SLACK_PART: u64 = 512;

/// Now and then a bound grows beyond what is free, to find out whether freed memory can be reused.
/// The step lies between limit/2048 and limit/64; it doubles while resident memory stays and is
/// quartered when it rises.
const TRIED_MOST: u64 = 64;
const TRIED_LEAST: u64 = 2048;
const TRIED_EVERY: Duration = Duration::from_millis(50);
/// Part of the limit by which the process may be above it for more than the least.
const ABOVE_PART: u64 = 40;
/// Trims take at most this part of the time, and come at most so often.
const TRIM_PART: u32 = 50;
const TRIM_EVERY: Duration = Duration::from_millis(100);

thread_local! {
    static IN_SCAN: Cell<bool> = const { Cell::new(false) };
}

/// True if this thread is in a call of the governor's.
pub(crate) fn in_scan() -> bool {
    IN_SCAN.get()
}

/// A member that can be called, and the calls for it.
type Called = (Arc<MemberState>, Arc<dyn Shrinker>);
/// A look at a member: the bytes that it could free, and the largest entry that it keeps.
type Seen = (Freeable, Option<u64>);

struct Turn<'a> {
    inner: &'a Inner,
    lane: Lane<'a>,
    next: Next,
    /// Bytes that members which bound themselves should have and cannot be given yet: another holds
    /// them above its target.
    owed: u64,
    /// Bytes by which bounds may grow in this turn.
    grows: u64,
}

impl Inner {
    pub(crate) fn turn(&self, now: Duration) -> Next {
        let Some(lane) = self.lanes.enter(now) else {
            // The task in the lane has ended its turn by then, or is late.
            return Next {
                at: Some(now + LATE),
            };
        };
        self.bell.clear();
        self.forget_evicted();
        let mut turn = Turn {
            inner: self,
            lane,
            next: Next::default(),
            owed: 0,
            grows: u64::MAX,
        };
        turn.look();
        turn.settle(now);
        turn.resize();
        let mut progress = turn.shrink();
        if turn.owed > 0 && turn.excess() == 0 {
            progress |= turn.call_in();
        }
        self.grant();
        turn.plan(now, progress);
        turn.next
    }
}

impl Turn<'_> {
    fn now(&self) -> Duration {
        self.inner.now()
    }

    /// The members that can be called now, in the order of their numbers.
    fn callable(&self) -> Vec<Called> {
        let now = self.now();
        let core = self.inner.core();
        let alone = core.only_one_above();
        let places = core.places.iter().flatten();
        let called =
            places.filter(|place| may_be_called(&place.seat, now, alone == Some(place.seat.id)));
        called
            .map(|place| (place.seat.clone(), place.shrinker.clone()))
            .collect()
    }

    /// Calls a member, if nobody else does: times it, and survives it.
    fn call<R>(
        &self,
        (seat, shrinker): &Called,
        what: impl FnOnce(&dyn Shrinker) -> R,
    ) -> Option<R> {
        if seat.busy.swap(true, SeqCst) {
            return None;
        }
        let began = self.now();
        self.lane.begins(began);
        IN_SCAN.set(true);
        // A panic leaves the member with its own work half done; it is not called again.
        let result = catch_unwind(AssertUnwindSafe(|| what(shrinker.as_ref())));
        IN_SCAN.set(false);
        self.lane.ends();
        let ended = self.now();
        let mut conduct = conduct_of(seat);
        if result.is_err() {
            conduct.standing = Standing::Panicked;
        } else if ended.saturating_sub(began) > LATE {
            conduct.late += 1;
            conduct.rests(Standing::Rests, ended);
        } else if conduct.standing == Standing::Rests {
            conduct.is_good();
        }
        drop(conduct);
        seat.busy.store(false, SeqCst);
        result.ok()
    }

    /// Asks those that do not report what they hold; new ones, whether they report.
    fn look(&self) {
        for called in self.callable() {
            let (is_known, is_looked_at) = {
                let conduct = conduct_of(&called.0);
                (conduct.is_known, conduct.is_looked_at)
            };
            if is_known && !is_looked_at {
                continue;
            }
            self.count(&called);
        }
    }

    fn count(&self, called: &Called) {
        if let Some(seen) = self.call(called, seen) {
            self.saw(&called.0, seen);
        }
    }

    fn saw(&self, seat: &MemberState, (freeable, keeps): Seen) {
        let mut conduct = conduct_of(seat);
        conduct.is_known = true;
        conduct.keeps = keeps;
        if let Some(held) = freeable.held {
            conduct.is_looked_at = true;
            conduct.freeable = Some(freeable.bytes);
            drop(conduct);
            self.inner.holds(seat, held);
        }
    }

    /// Resident memory that the limit is for; above the limit, after the allocator gave back what
    /// it can.
    fn resident(&self, now: Duration) -> Option<u64> {
        let inner = self.inner;
        let look = inner.resident.as_ref()?;
        let of_limit = || Some(look()?.saturating_sub(inner.beside));
        let resident = of_limit()?;
        let wanted =
            inner.core().wants_room && resident.saturating_add(inner.delta()) > inner.limit();
        if resident <= inner.limit() && !wanted {
            return Some(resident);
        }
        let Ok(mut again) = inner.trims_again.try_lock() else {
            return Some(resident);
        };
        if now < *again {
            return Some(resident);
        }
        let began = Instant::now();
        (inner.trim)();
        *again = now + (began.elapsed() * TRIM_PART).max(TRIM_EVERY);
        of_limit()
    }

    /// Gives all reports to the shares, and slack to the limit.
    fn settle(&mut self, now: Duration) {
        let inner = self.inner;
        let resident = self.resident(now);
        let mut core = inner.core();
        core.turns += 1;
        for seat in core.seats().cloned().collect::<Vec<_>>() {
            let (evicted, regrets, used) = seat.drain();
            core.shares.evicted(seat.id, Bytes(evicted));
            if conduct_of(&seat).has_no_room(evicted, inner.delta()) {
                core.shares.filled(seat.id);
            }
            core.shares.regretted(seat.id, &regrets);
            if used {
                core.shares.used(seat.id);
            }
            core.shares.set_held(seat.id, Bytes(seat.held()));
        }
        core.resident = resident;
        if let Some(resident) = resident {
            self.grows = may_grow(&mut core, inner.limit(), resident, now);
            let held = inner.total.load(SeqCst);
            let slack = core.slack.look(now, resident, held, inner.limit());
            if slack.abs_diff(core.slack_bytes) > inner.limit() / SLACK_PART {
                core.set_slack(inner, slack);
            }
        }
        let nanos = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let before = core.shares.epoch();
        if let Some(transfer) = core.shares.turn(policy::units::Instant(nanos)) {
            core.moved(now, transfer);
        }
        if core.shares.epoch() > before {
            core.seats().for_each(|seat| seat.adapt());
        }
    }

    /// Tells those that bound themselves what they may hold now. Less first; more only as far as
    /// there is room.
    fn resize(&mut self) {
        let delta = self.inner.delta();
        let callable = self.callable();
        let mut less = Vec::new();
        let mut more = Vec::new();
        let mut bound_by_all = 0_u64;
        {
            let core = self.inner.core();
            let allowances = core.shares.allowances();
            let seats = allowances.into_iter().filter_map(|(id, allowance)| {
                let place = core.places.get(id.at())?.as_ref()?;
                Some((place.seat.clone(), allowance.0))
            });
            for (seat, allowance) in seats {
                let conduct = conduct_of(&seat);
                let bound = if conduct.is_unbounded {
                    None
                } else {
                    conduct.bound
                };
                bound_by_all += bound.unwrap_or_else(|| seat.held());
                let is_told = bound
                    .is_some_and(|bound| allowance.abs_diff(bound) < (delta / TOLD_PART).max(1));
                let called = callable.iter().find(|(other, _)| Arc::ptr_eq(other, &seat));
                let (Some(called), false) = (called, conduct.is_unbounded || is_told) else {
                    continue;
                };
                if bound.is_none_or(|bound| allowance < bound) {
                    less.push((called.clone(), allowance));
                } else {
                    more.push((called.clone(), allowance));
                }
            }
        }
        for (called, allowance) in less {
            let before = conduct_of(&called.0).bound;
            if self.tell(&called, allowance) {
                let before = before.unwrap_or_else(|| called.0.held());
                bound_by_all = (bound_by_all + allowance).saturating_sub(before);
            }
        }
        let mut wants_room = false;
        for (called, allowance) in more {
            let before = conduct_of(&called.0).bound.unwrap_or(0);
            let room = self.inner.pool().saturating_sub(bound_by_all);
            self.owed += allowance - allowance.min(before + room);
            let bound = allowance.min(before + room.min(self.grows));
            if bound > before && self.tell(&called, bound) {
                bound_by_all += bound - before;
                self.grows -= bound - before;
            }
            wants_room |= bound < allowance.min(before + room);
        }
        self.inner.core().wants_room = wants_room;
        if wants_room {
            let at = self.now() + TRIED_EVERY / 4;
            self.next.no_later_than(at);
        }
        // Lent memory comes back from a member that does not bound itself by asking for it, a
        // little at a time.
        self.owed = self.owed.min(delta);
    }

    /// True if it took the bound.
    fn tell(&mut self, called: &Called, bound: u64) -> bool {
        let answer = self.call(called, |shrinker| {
            let resized = shrinker.resize(bound);
            (resized, seen(shrinker))
        });
        let Some((resized, seen)) = answer else {
            return false;
        };
        self.saw(&called.0, seen);
        match resized {
            Resized::Unbounded => conduct_of(&called.0).is_unbounded = true,
            Resized::Done => conduct_of(&called.0).bound = Some(bound),
            Resized::Later(time) => {
                let at = self.now() + time.clamp(AGAIN, LATEST);
                self.next.no_later_than(at);
            }
        }
        resized == Resized::Done
    }

    /// Asks for what is lent and is wanted back, of those above their targets; whether anything
    /// came.
    fn call_in(&mut self) -> bool {
        let lent = self.asks(self.owed, true);
        let before = self.inner.total.load(SeqCst);
        for (called, bytes) in lent {
            self.scan(&called, bytes);
        }
        let came = self.inner.total.load(SeqCst) < before;
        if came {
            let at = self.now() + AGAIN;
            self.next.no_later_than(at);
        }
        came
    }

    /// Bytes that are to be freed now: none until half of the headroom is used, or somebody waits.
    fn excess(&self) -> u64 {
        let inner = self.inner;
        let (total, pool) = (inner.total.load(SeqCst), inner.pool());
        let wanted = inner.queue.wanted();
        if wanted == 0 && total <= pool + inner.headroom() / 2 {
            return 0;
        }
        total.saturating_add(wanted).saturating_sub(pool)
    }

    /// Asks for what is too much; whether anything came.
    fn shrink(&self) -> bool {
        let mut progress = false;
        for _ in 0..ROUNDS {
            let excess = self.excess();
            if excess == 0 {
                break;
            }
            let before = self.inner.total.load(SeqCst);
            let mut was_late = false;
            for (called, bytes) in self.asks(excess, false) {
                let began = self.now();
                self.scan(&called, bytes);
                was_late |= self.now().saturating_sub(began) > LATE;
                self.inner.grant();
                if was_late {
                    // The rest of these asks is old.
                    break;
                }
            }
            let fell = before > self.inner.total.load(SeqCst);
            progress |= fell || was_late;
            if !fell || was_late {
                break;
            }
        }
        progress
    }

    /// The members that are asked, and for how much; `only_lent`: for no more than what is above
    /// targets.
    fn asks(&self, excess: u64, only_lent: bool) -> Vec<(Called, u64)> {
        let callable = self.callable();
        let mut core = self.inner.core();
        for seat in core.seats().cloned().collect::<Vec<_>>() {
            let is_callable = callable.iter().any(|(other, _)| Arc::ptr_eq(other, &seat));
            let has_some = conduct_of(&seat).freeable != Some(0);
            core.shares.set_askable(seat.id, is_callable && has_some);
            core.shares.set_held(seat.id, Bytes(seat.held()));
        }
        let mut excess = Bytes(excess);
        if only_lent {
            excess = excess.at_most(core.shares.lent());
        }
        let asks = core.shares.asks(excess);
        drop(core);
        let asks = asks.into_iter().filter_map(|(id, bytes)| {
            let called = callable.iter().find(|(seat, _)| seat.id == id)?;
            Some((called.clone(), bytes.0))
        });
        asks.collect()
    }

    fn scan(&self, called: &Called, bytes: u64) {
        let seat = &called.0;
        let is_looked_at = conduct_of(seat).is_looked_at;
        if is_looked_at {
            // Bytes that came in since the last look are not held against the scan.
            self.count(called);
        }
        let fell_before = seat.fell.load(SeqCst);
        self.judge(seat, fell_before);
        let ask = Ask {
            bytes,
            batch: (self.inner.delta() / BATCH_PART).max(1),
            deadline: Instant::now() + LATE,
            urgent: self.inner.queue.wanted() > 0,
        };
        let began = self.now();
        let answer = self.call(called, |shrinker| {
            let scanned = shrinker.scan(&ask);
            (scanned, is_looked_at.then(|| seen(shrinker)))
        });
        let Some((Scanned { freed, .. }, seen)) = answer else {
            return;
        };
        if let Some(seen) = seen {
            self.saw(seat, seen);
        }
        let now = self.now();
        let fell = seat.fell.load(SeqCst).wrapping_sub(fell_before);
        if fell > 0 {
            let took = now.saturating_sub(began);
            self.inner.core().rate.add(fell, took);
        }
        let mut conduct = conduct_of(seat);
        conduct.scanned += now.saturating_sub(began);
        (conduct.ended, conduct.rose_then) = (now, seat.rose.load(SeqCst));
        conduct.scans += 1;
        conduct.freed = conduct.freed.saturating_add(freed);
        conduct.claimed = conduct.claimed.saturating_add(freed);
        if freed > 0 || fell > 0 {
            conduct.empty = 0;
            if conduct.standing == Standing::GivesNothing {
                conduct.is_good();
            }
        } else {
            conduct.empty += 1;
            if conduct.empty >= STRIKES && conduct.standing != Standing::Rests {
                conduct.rests(Standing::GivesNothing, now);
            }
        }
    }

    /// Looks, before it is asked again, whether what it claimed the last time has come: by now, as
    /// reports may be late. A member that does not report shows the difference of two looks: what
    /// it was filled with meanwhile is taken to be as much as in other times. Where a claim is
    /// backed only by that, it is neither proved nor disproved, and others are asked now and then.
    fn judge(&self, seat: &MemberState, fell: u64) {
        let now = self.now();
        let mut conduct = conduct_of(seat);
        let came = fell.wrapping_sub(conduct.fell_then);
        let claimed = std::mem::take(&mut conduct.claimed);
        let scanned = std::mem::take(&mut conduct.scanned);
        conduct.fell_then = fell;
        let rose = seat.rose.load(SeqCst).wrapping_sub(conduct.rose_then);
        let between = now.saturating_sub(conduct.ended);
        if !between.is_zero() {
            conduct.filled.add(rose, between);
        }
        if claimed == 0 {
            return;
        }
        let mut came_in = 0;
        if conduct.is_looked_at {
            came_in = conduct.filled.bytes_in(scanned);
        }
        if came >= claimed / BACKED_PART {
            (conduct.strikes, conduct.unproven) = (0, 0);
            if conduct.standing == Standing::Lies {
                conduct.is_good();
            }
        } else if came.saturating_add(came_in) >= claimed / BACKED_PART {
            conduct.unproven += 1;
            if conduct.unproven >= STRIKES {
                (conduct.unproven, conduct.rests_until) = (0, now + REST_MIN);
            }
        } else {
            conduct.strikes += 1;
            if conduct.strikes >= STRIKES {
                conduct.standing = Standing::Lies;
                // This time it is still asked: the look in 5 s sees the result.
                conduct.rests_until = now + REST_MAX;
                conduct.rests_alone_until = conduct.rests_until;
            }
        }
    }

    /// When the next turn is due.
    fn plan(&mut self, now: Duration, progress: bool) {
        let inner = self.inner;
        let (total, excess) = (inner.total.load(SeqCst), self.excess());
        let mut core = inner.core();
        let alone = core.only_one_above();
        if excess > 0 && progress {
            self.next.no_later_than(now + AGAIN);
        }
        let mut is_looked_at = inner.resident.is_some();
        for seat in core.seats() {
            let conduct = conduct_of(seat);
            is_looked_at |= conduct.is_looked_at && conduct.standing != Standing::Panicked;
            let until = conduct.rests_until(alone == Some(seat.id));
            let rests = until > now && conduct.standing != Standing::Panicked;
            if excess > 0 && rests {
                self.next.no_later_than(until);
            }
        }
        if core.shares.epoch_left().is_zero() {
            let at = Duration::from_nanos(core.shares.epoch_ends().0);
            self.next.no_later_than(at.max(now + AGAIN));
        }
        if is_looked_at {
            let seen = total.max(core.resident.unwrap_or(0));
            let grown = seen.saturating_sub(core.seen);
            let passed = now.saturating_sub(core.looked);
            core.look_every = if grown > inner.limit() / SLACK_PART {
                let for_delta = passed.as_nanos() * u128::from(inner.delta()) / u128::from(grown);
                let for_delta = Duration::from_nanos(u64::try_from(for_delta).unwrap_or(u64::MAX));
                for_delta.clamp(LOOK_MIN, LOOK_MAX)
            } else {
                (core.look_every * 2).clamp(LOOK_MIN, LOOK_IDLE)
            };
            (core.seen, core.looked) = (seen, now);
            let at = now + core.look_every;
            self.next.no_later_than(at);
        }
    }
}

/// Bytes by which bounds may grow now, so that the process keeps to the limit: what it has left,
/// less what was granted and is not yet filled; and now and then a little of what the allocator may
/// have kept.
fn may_grow(core: &mut Core, limit: u64, resident: u64, now: Duration) -> u64 {
    let unfilled = core.seats().map(|seat| {
        let bound = conduct_of(seat).bound.unwrap_or(0);
        bound.saturating_sub(seat.held())
    });
    let left = limit.saturating_sub(resident);
    let left = left.saturating_sub(unfilled.sum::<u64>());
    if now < core.tries_again {
        return left;
    }
    core.tries_again = now + TRIED_EVERY;
    let rose = resident.saturating_sub(core.tried_at) > core.tried / 4;
    let next = if rose { core.tried / 4 } else { core.tried * 2 };
    let most = if resident > limit.saturating_add(limit / ABOVE_PART) {
        TRIED_LEAST
    } else {
        TRIED_MOST
    };
    core.tried = next.clamp(limit / TRIED_LEAST, limit / most);
    core.tried_at = resident;
    left.max(core.tried)
}

fn conduct_of(seat: &MemberState) -> std::sync::MutexGuard<'_, Conduct> {
    seat.conduct.lock().unwrap_or_else(PoisonError::into_inner)
}

fn may_be_called(seat: &MemberState, now: Duration, alone: bool) -> bool {
    let conduct = conduct_of(seat);
    let rests = now < conduct.rests_until(alone);
    !seat.busy.load(SeqCst) && conduct.standing != Standing::Panicked && !rests
}

fn seen(shrinker: &dyn Shrinker) -> Seen {
    (shrinker.count(), shrinker.largest())
}
