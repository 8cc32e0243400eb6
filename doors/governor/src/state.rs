//! The state of a governor: the limit, the table of members, the sum of what they hold.
//!
//! Locks, in this order: `core` (targets, the table), a seat's `conduct`. The queue and the lanes
//! have their own, under which no other is taken. None is held while a shrinker is called.

use std::collections::VecDeque;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use policy::shares::{MemberId, Shares, Why};
use policy::units::Bytes;

use crate::Error;
use crate::due::LATEST;
use crate::lanes::{Bell, Lanes};
use crate::queue::Queue;
use crate::report::{Move, Standing, Waits, WhyMoved};
use crate::resident::Slack;
use crate::seat::{Entry, MemberState, Rate};

/// Part of the limit that is kept free, so that a small reservation finds room at once.
const HEADROOM_PART: u64 = 128;
/// Part of the limit below which nobody is slowed down: the last sixteenth slows.
const PACED_PART: u64 = 16;
/// Pauses below this are saved up: no system sleeps for less and keeps to it.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// Transfers that a report has.
const MOVES_KEPT: usize = 64;
/// Bytes evicted before a turn is due, as a part of the limit: four times an epoch.
const TURN_PART: u64 = 64;

/// Most bytes that one report is taken for: more than any machine has.
const REPORT_MOST: u64 = 1 << 56;
pub(crate) type Clock = Box<dyn Fn() -> Duration + Send + Sync>;
pub(crate) type Resident = Box<dyn Fn() -> Option<u64> + Send + Sync>;

/// The state behind the lock.
pub(crate) struct Core {
    pub(crate) shares: Shares,
    /// By the number of the member.
    pub(crate) places: Vec<Option<Entry>>,
    pub(crate) moves: VecDeque<Move>,
    pub(crate) slack: Slack,
    pub(crate) slack_bytes: u64,
    pub(crate) resident: Option<u64>,
    pub(crate) rate: Rate,
    /// A bound could not grow, as the process has all that it may have; and when it may again
    /// without that.
    pub(crate) wants_room: bool,
    pub(crate) tries_again: Duration,
    /// By how much they were let grow the last time, and what was resident then.
    pub(crate) tried: u64,
    pub(crate) tried_at: u64,
    pub(crate) turns: u64,
    /// When those that do not report were last looked at, and how long until the next time.
    pub(crate) looked: Duration,
    pub(crate) look_every: Duration,
    /// Bytes that all held then.
    pub(crate) seen: u64,
}

impl Core {
    pub(crate) fn seats(&self) -> impl Iterator<Item = &Arc<MemberState>> {
        self.places.iter().flatten().map(|place| &place.seat)
    }

    /// The member above its target, if it is the only one.
    pub(crate) fn only_one_above(&self) -> Option<MemberId> {
        let above = |seat: &&Arc<MemberState>| {
            let view = self.shares.view(seat.id);
            view.is_some_and(|view| seat.held() > view.target.0)
        };
        let mut above = self.seats().filter(above);
        above
            .next()
            .filter(|_| above.next().is_none())
            .map(|seat| seat.id)
    }

    /// Sets the limit, and what of it is for targets.
    pub(crate) fn set_limit(&mut self, inner: &Inner, limit: u64) -> Result<(), Error> {
        if limit == 0 {
            return Err(Error::NoLimit);
        }
        let floors = self.shares.floors().0;
        if floors > limit {
            let floor = |seat: &&Arc<MemberState>| {
                let view = self.shares.view(seat.id);
                view.map_or(0, |view| view.terms.floor.0)
            };
            let highest = self.seats().max_by_key(floor);
            return Err(Error::LimitBelowFloors {
                limit,
                floors,
                highest: highest.map_or_else(String::new, |seat| seat.name.clone()),
            });
        }
        inner.limit.store(limit, SeqCst);
        self.set_slack(inner, self.slack_bytes);
        Ok(())
    }

    /// Takes so much off the limit, but not off floors.
    pub(crate) fn set_slack(&mut self, inner: &Inner, slack: u64) {
        self.set_slack_beside(inner, slack, self.shares.floors().0);
    }

    /// The same, with floors that are about to come to so much.
    fn set_slack_beside(&mut self, inner: &Inner, slack: u64, floors: u64) {
        let limit = inner.limit();
        let room = limit - floors.clamp(self.shares.floors().0, limit);
        let slack = slack.min(room);
        let kept_back = slack.saturating_add(inner.headroom()).min(room);
        self.slack_bytes = slack;
        inner.ceiling.store(limit - slack, SeqCst);
        let set = self.shares.set_limit(Bytes(limit), Bytes(kept_back));
        debug_assert!(set.is_ok(), "the floors were left out");
    }

    /// Does something that brings so much of floors more; they may take what is kept back.
    pub(crate) fn with_room_for<R>(
        &mut self,
        inner: &Inner,
        floor: u64,
        what: impl FnOnce(&mut Shares) -> R,
    ) -> R {
        let floors = self.shares.floors().0.saturating_add(floor);
        self.set_slack_beside(inner, self.slack_bytes, floors);
        let done = what(&mut self.shares);
        self.set_slack(inner, self.slack_bytes);
        done
    }

    /// Remembers a transfer.
    pub(crate) fn moved(&mut self, at: Duration, transfer: policy::shares::Transfer) {
        let name = |id: MemberId| {
            let place = self.places.get(id.at()).and_then(Option::as_ref);
            place.map_or_else(String::new, |place| place.seat.name.clone())
        };
        let ns = |sixteenths: u64| Duration::from_nanos(sixteenths / 16);
        let why = match transfer.why {
            Why::Regret | Why::Even => WhyMoved::Regret {
                saves: ns(transfer.gains[1]),
                costs: ns(transfer.gains[0]),
            },
            Why::Carried => WhyMoved::Carried,
        };
        let moved = Move {
            at,
            from: name(transfer.from),
            to: name(transfer.to),
            bytes: transfer.bytes.0,
            why,
        };
        if self.moves.len() == MOVES_KEPT {
            self.moves.pop_front();
        }
        self.moves.push_back(moved);
    }
}

pub(crate) struct Inner {
    pub(crate) limit: AtomicU64,
    /// The limit less slack: no reservation goes beyond.
    pub(crate) ceiling: AtomicU64,
    /// Held by all.
    pub(crate) total: AtomicU64,
    /// By all, since the last turn.
    pub(crate) evicted: AtomicU64,
    pub(crate) queue: Queue,
    pub(crate) bell: Bell,
    pub(crate) lanes: Lanes,
    /// Without chance: the same calls make the same moves.
    pub(crate) hasher: BuildHasherDefault<DefaultHasher>,
    pub(crate) resident: Option<Resident>,
    pub(crate) trim: Box<dyn Fn() + Send + Sync>,
    /// Not before, and not by two at once.
    pub(crate) trims_again: Mutex<Duration>,
    pub(crate) beside: u64,
    pub(crate) wait_max: Duration,
    pub(crate) clock: Clock,
    pub(crate) core: Mutex<Core>,
    pub(crate) waits: Mutex<Waits>,
}

impl Inner {
    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    pub(crate) fn delta(&self) -> u64 {
        (self.limit() / 64).max(1)
    }

    pub(crate) fn headroom(&self) -> u64 {
        self.limit() / HEADROOM_PART
    }

    /// Bytes that all may hold before somebody is asked.
    pub(crate) fn pool(&self) -> u64 {
        self.ceiling.load(SeqCst).saturating_sub(self.headroom())
    }

    pub(crate) fn grew(&self, seat: &MemberState, bytes: u64) {
        let bytes = bytes.min(REPORT_MOST);
        seat.held.fetch_add(bytes, SeqCst);
        seat.rose.fetch_add(bytes, Relaxed);
        let total = self.total.fetch_add(bytes, SeqCst).saturating_add(bytes);
        self.ring_above(total);
    }

    /// Half of the headroom may be used before anybody is asked, so that one turn serves many.
    fn ring_above(&self, total: u64) {
        if total > self.pool() + self.headroom() / 2 {
            self.bell.ring();
        }
    }

    pub(crate) fn shrank(&self, seat: &MemberState, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let less = |held: u64| Some(held.saturating_sub(bytes));
        let before = seat.held.fetch_update(SeqCst, SeqCst, less);
        let fell = before.unwrap_or(0).min(bytes);
        seat.fell.fetch_add(fell, Relaxed);
        self.total.fetch_sub(fell, SeqCst);
        self.grant();
    }

    /// A permit ends. Last its part of them: a look between the two counts it once more, and not
    /// once less.
    pub(crate) fn gave_up(&self, seat: &MemberState, bytes: u64) {
        self.shrank(seat, bytes);
        seat.permitted.fetch_sub(bytes, SeqCst);
    }

    /// It holds so much now beside its permits, whatever was reported.
    pub(crate) fn holds(&self, seat: &MemberState, seen: u64) {
        let held = seen.saturating_add(seat.permitted.load(SeqCst));
        let before = seat.held.swap(held, SeqCst);
        if held >= before {
            seat.rose.fetch_add(held - before, Relaxed);
            self.total.fetch_add(held - before, SeqCst);
        } else {
            seat.fell.fetch_add(before - held, Relaxed);
            self.total.fetch_sub(before - held, SeqCst);
        }
    }

    pub(crate) fn evicted(&self, bytes: u64) {
        let bytes = bytes.min(REPORT_MOST);
        let evicted = self.evicted.fetch_add(bytes, Relaxed).saturating_add(bytes);
        if evicted >= self.limit() / TURN_PART {
            self.bell.ring();
        }
    }

    /// Time by its clock.
    pub(crate) fn now(&self) -> Duration {
        (self.clock)().min(LATEST)
    }

    /// A turn begins: events count from here.
    pub(crate) fn forget_evicted(&self) {
        self.evicted.store(0, Relaxed);
    }

    /// Memory has come: those in line get it.
    pub(crate) fn grant(&self) {
        self.queue.grant(|bytes| self.try_take(bytes));
    }

    fn try_take(&self, bytes: u64) -> bool {
        let ceiling = self.ceiling.load(SeqCst);
        let more = |total: u64| total.checked_add(bytes).filter(|total| *total <= ceiling);
        self.total.fetch_update(SeqCst, SeqCst, more).is_ok()
    }

    pub(crate) fn reserve(
        &self,
        seat: &MemberState,
        bytes: u64,
        at_most: Duration,
    ) -> Result<(), Error> {
        let limit = self.limit();
        if bytes > limit {
            return Err(Error::LargerThanLimit {
                member: seat.name.clone(),
                bytes,
                limit,
            });
        }
        self.pace(seat, bytes, at_most);
        // Nobody passes those in line.
        let mut granted = self.queue.wanted() == 0 && self.try_take(bytes);
        if granted {
            self.ring_above(self.total.load(SeqCst));
        } else {
            let began = Instant::now();
            granted = self.queue.wait(bytes, at_most, || {
                // Memory that came free between the look and the line.
                self.grant();
                self.bell.ring();
            });
            self.waited(began.elapsed(), !granted);
            if !granted {
                // The next waiter may be content with less.
                self.grant();
                return Err(self.in_the_way(seat, bytes, began.elapsed()));
            }
        }
        seat.held.fetch_add(bytes, SeqCst);
        Ok(())
    }

    /// Slows growth in the last sixteenth below the ceiling: by the time that freeing the bytes
    /// takes, and by how deep it is.
    fn pace(&self, seat: &MemberState, bytes: u64, at_most: Duration) {
        let ceiling = self.ceiling.load(Relaxed);
        let zone = (self.limit() / PACED_PART).max(1);
        let total = self.total.load(Relaxed).saturating_add(bytes);
        let deep = total.saturating_sub(ceiling.saturating_sub(zone)).min(zone);
        if deep == 0 {
            return;
        }
        let whole = self.core().rate.time_for(bytes).min(at_most);
        let owed = whole.as_nanos() * u128::from(deep) / u128::from(zone);
        let owed = u64::try_from(owed).unwrap_or(u64::MAX);
        let sum = seat.owed.fetch_add(owed, Relaxed).saturating_add(owed);
        if Duration::from_nanos(sum) >= PAUSE_MIN {
            let owed = Duration::from_nanos(seat.owed.swap(0, Relaxed));
            let pause = owed.min(at_most);
            std::thread::sleep(pause);
            self.waited(pause, false);
        }
    }

    fn waited(&self, time: Duration, refused: bool) {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.waited += 1;
        waits.time += time;
        waits.longest = waits.longest.max(time);
        waits.refused += u64::from(refused);
    }

    /// Picks the member to blame in `Error::Full`: one above its target that gives nothing; else
    /// the one furthest above its target; else the largest.
    fn in_the_way(&self, asks: &MemberState, bytes: u64, waited: Duration) -> Error {
        let core = self.core();
        let rank = |seat: &Arc<MemberState>| {
            let target = core.shares.view(seat.id).map_or(0, |view| view.target.0);
            let over = seat.held().saturating_sub(target);
            let does_not_give = seat.busy.load(Relaxed) || {
                let conduct = seat.conduct.lock().unwrap_or_else(PoisonError::into_inner);
                conduct.standing != Standing::Good
            };
            (over > 0 && does_not_give, over, seat.held(), target)
        };
        let ranked = core.seats().map(|seat| (rank(seat), seat));
        let most = ranked.max_by_key(|(rank, _)| *rank);
        let (by, held, target) = most.map_or_else(
            || (String::new(), 0, 0),
            |((_, _, held, target), seat)| (seat.name.clone(), held, target),
        );
        Error::Full {
            member: asks.name.clone(),
            bytes,
            waited,
            by,
            held,
            target,
        }
    }

    /// A member is gone.
    pub(crate) fn leave(&self, seat: &Arc<MemberState>) {
        let mut core = self.core();
        core.shares.leave(seat.id);
        let place = core.places.get_mut(seat.id.at()).and_then(Option::take);
        drop(core);
        // A shrinker of others: dropped without the lock.
        drop(place);
        let held = seat.held.swap(0, SeqCst);
        self.total.fetch_sub(held, SeqCst);
        self.grant();
        self.bell.ring();
    }
}
