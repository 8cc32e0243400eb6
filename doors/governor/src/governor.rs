//! The governor: the limit, the table of members, the sum of what they hold.
//!
//! ```text
//!   0 ................... 15/16 .......... pool ... headroom ... ceiling ... slack ... limit
//!                          |               |                      |
//!              reserve slows down     targets come to this    reserve waits
//! ```
//!
//! Locks, in this order: `core` (targets, the table), a seat's `conduct`. The queue and the lanes
//! have their own, under which no other is taken. None is held while a shrinker is called.

use std::collections::VecDeque;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use policy::shares::{MemberId, Mode, Refused, Shares, Terms, Why};
use policy::units::{Bytes, Nanos};

use crate::lanes::{Bell, Lanes, Threads};
use crate::member::{Entry, MemberState};
use crate::queue::Queue;
use crate::report::{MemberReport, Move, Report, Standing, Waits, WhyMoved};
use crate::resident::{Slack, of_this_process};
use crate::turn::Next;
use crate::{Error, Member, Share, Shrinker};

/// Part of the limit that is kept free, so that a small reservation finds room at once.
const HEADROOM_PART: u64 = 128;
/// Part of the limit below which nobody is slowed down: the last sixteenth slows.
const PACED_PART: u64 = 16;
/// Longest wait of a reservation.
const WAIT_MAX: Duration = Duration::from_millis(200);
/// Pauses below this are saved up: no system sleeps for less and keeps to it.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// Transfers that a report has.
const MOVES_KEPT: usize = 64;
/// Bytes evicted before a turn is due, as a part of the limit: four times an epoch.
const TURN_PART: u64 = 64;

/// The mover of memory between members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Regret {
    /// The regret of entries that they evicted and miss again.
    #[default]
    On,
    /// Nothing: floors, ceilings and weights alone say how much each member has. Memory that one
    /// does not use is still lent.
    Off,
}

/// Most bytes that one report is taken for: more than any machine has.
const REPORT_MOST: u64 = 1 << 56;
/// The last moment of any clock: a deadline behind it is still one.
pub(crate) const LATEST: Duration = Duration::from_nanos(1 << 62);
type Clock = Box<dyn Fn() -> Duration + Send + Sync>;
type Resident = Box<dyn Fn() -> Option<u64> + Send + Sync>;

/// A governor with other than the usual settings.
///
/// ```
/// let governor = governor::Governor::builder(256 << 20)
///     .regret(governor::Regret::Off)
///     .without_resident()
///     .build()?;
/// # Ok::<(), governor::Error>(())
/// ```
pub struct Builder {
    limit: u64,
    regret: Regret,
    resident: Option<Resident>,
    trim: Box<dyn Fn() + Send + Sync>,
    beside: u64,
    wait_max: Duration,
    clock: Clock,
    driven_by_caller: Option<Box<dyn Fn() + Send + Sync>>,
}

impl Builder {
    /// Sets the mover of memory between members. Default: regret.
    #[must_use]
    pub fn regret(mut self, regret: Regret) -> Self {
        self.regret = regret;
        self
    }

    /// Does not look at the resident memory: the limit is for what members say they hold, and for
    /// nothing else.
    #[must_use]
    pub fn without_resident(mut self) -> Self {
        self.resident = None;
        self
    }

    /// Where the resident memory is asked for, in bytes. Default: `/proc/self/statm`.
    #[must_use]
    pub fn resident(mut self, look: impl Fn() -> Option<u64> + Send + Sync + 'static) -> Self {
        self.resident = Some(Box::new(look));
        self
    }

    /// The call that gives back to the system what the allocator keeps, when the process has all
    /// that it may have. Default: `malloc_trim` of glibc, nothing elsewhere. It takes at most a
    /// fiftieth of the time of one thread.
    #[must_use]
    pub fn trim(mut self, trim: impl Fn() + Send + Sync + 'static) -> Self {
        self.trim = Box::new(trim);
        self
    }

    /// Bytes of the process that the limit is not for: what it holds beside its caches. Default:
    /// none, the limit is for the process.
    #[must_use]
    pub fn beside(mut self, bytes: u64) -> Self {
        self.beside = bytes;
        self
    }

    /// Longest wait of a reservation. Default: 200 ms. `Duration::MAX`: for as long as it takes.
    #[must_use]
    pub fn wait_max(mut self, time: Duration) -> Self {
        self.wait_max = time;
        self
    }

    /// The clock by which calls are timed; answers the time since the governor began, and never
    /// goes back. Times above 2^62 ns (146 years) count as that. For tests.
    #[must_use]
    pub fn clock(mut self, clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// No thread is started: the caller calls [`Governor::turn`], when its last answer says so or
    /// `wake` is called. `wake` comes from any thread, must not block, and must not call the
    /// governor.
    #[must_use]
    pub fn driven_by_caller(mut self, wake: impl Fn() + Send + Sync + 'static) -> Self {
        self.driven_by_caller = Some(Box::new(wake));
        self
    }

    /// Builds it, and starts its thread.
    ///
    /// # Errors
    /// A limit of 0, or the system has no thread to give.
    pub fn build(self) -> Result<Governor, Error> {
        if self.limit == 0 {
            return Err(Error::NoLimit);
        }
        let mode = match self.regret {
            Regret::On => Mode::ByRegret,
            Regret::Off => Mode::Fixed,
        };
        let now = policy::units::Instant(0);
        let driven = self.driven_by_caller.is_some();
        let inner = Arc::new(Inner {
            limit: AtomicU64::new(self.limit),
            ceiling: AtomicU64::new(self.limit),
            total: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            queue: Queue::default(),
            bell: Bell::new(self.driven_by_caller),
            lanes: Lanes::default(),
            hasher: BuildHasherDefault::default(),
            resident: self.resident,
            trim: self.trim,
            trims_again: Mutex::default(),
            beside: self.beside,
            wait_max: self.wait_max,
            clock: self.clock,
            core: Mutex::new(Core {
                shares: Shares::new(Bytes(self.limit), mode, now),
                places: Vec::new(),
                moves: VecDeque::new(),
                slack: Slack::default(),
                slack_bytes: 0,
                resident: None,
                rate: Rate::default(),
                wants_room: false,
                tries_again: Duration::ZERO,
                tried: 0,
                tried_at: 0,
                turns: 0,
                looked: Duration::ZERO,
                look_every: Duration::ZERO,
                seen: 0,
            }),
            waits: Mutex::default(),
        });
        inner.core().set_limit(&inner, self.limit)?;
        let threads = if driven {
            None
        } else {
            Some(Threads::start(&inner)?)
        };
        Ok(Governor {
            inner,
            _threads: threads.map(Arc::new),
        })
    }
}

/// One memory limit for all that register. Clones are the same governor; its thread ends with the
/// last of them and of its members.
#[derive(Clone)]
pub struct Governor {
    pub(crate) inner: Arc<Inner>,
    _threads: Option<Arc<Threads>>,
}

impl Governor {
    /// A governor with a thread of its own. `limit`: bytes, for the whole process unless
    /// [`Builder::beside`] or [`Builder::without_resident`] say otherwise.
    ///
    /// # Errors
    /// A limit of 0, or the system has no thread to give.
    pub fn new(limit: u64) -> Result<Self, Error> {
        Self::builder(limit).build()
    }

    /// One with other settings.
    #[must_use]
    pub fn builder(limit: u64) -> Builder {
        let began = Instant::now();
        Builder {
            limit,
            regret: Regret::On,
            resident: Some(Box::new(of_this_process)),
            trim: Box::new(crate::trim::trim),
            beside: 0,
            wait_max: WAIT_MAX,
            clock: Box::new(move || began.elapsed()),
            driven_by_caller: None,
        }
    }

    /// Takes a member in. It gets its part by weight, at least its floor; the others give for it in
    /// proportion to what they have above theirs.
    ///
    /// # Errors
    /// An empty name or a name that is taken; a weight outside 1/16 to 16; a ceiling below the
    /// floor; a floor that does not fit; too many members.
    pub fn register(
        &self,
        name: impl Into<String>,
        share: Share,
        shrinker: Arc<dyn Shrinker>,
    ) -> Result<Member, Error> {
        let name = name.into();
        let terms = share.terms(&name)?;
        if name.is_empty() {
            return Err(Error::NoName);
        }
        let mut core = self.inner.core();
        if core.seats().any(|seat| seat.name == name) {
            return Err(Error::Registered { member: name });
        }
        let id = core.with_room_for(&self.inner, terms.floor.0, |shares| shares.join(terms));
        let id = id.map_err(|refused| self.refusal(&core, &name, terms, None, refused))?;
        let seat = Arc::new(MemberState::new(name, id, share.cost()));
        let place = Entry {
            seat: seat.clone(),
            shrinker,
        };
        if core.places.len() <= id.at() {
            core.places.resize_with(id.at() + 1, || None);
        }
        core.places[id.at()] = Some(place);
        drop(core);
        self.inner.bell.ring();
        Ok(Member {
            seat,
            governor: self.clone(),
        })
    }

    /// Other terms for a member.
    ///
    /// # Errors
    /// As for [`register`](Self::register); then the old ones stay.
    pub fn set_share(&self, member: &Member, share: Share) -> Result<(), Error> {
        let terms = share.terms(member.name())?;
        let mut core = self.inner.core();
        let id = member.id();
        let own = core.shares.view(id).map_or(0, |view| view.terms.floor.0);
        let more = terms.floor.0.saturating_sub(own);
        let set = core.with_room_for(&self.inner, more, |shares| shares.set_terms(id, terms));
        set.map_err(|refused| {
            self.refusal(&core, member.name(), terms, Some(member.id()), refused)
        })?;
        member.seat.miss_cost.store(share.cost().0, Relaxed);
        drop(core);
        self.inner.bell.ring();
        Ok(())
    }

    fn refusal(
        &self,
        core: &Core,
        member: &str,
        terms: Terms,
        without: Option<MemberId>,
        refused: Refused,
    ) -> Error {
        let member = member.to_owned();
        let limit = self.limit();
        let floor = terms.floor.0;
        match refused {
            Refused::Ceiling => Error::CeilingBelowFloor {
                member,
                ceiling: terms.ceiling.0,
                floor,
            },
            Refused::Floors { .. } if floor > limit => Error::FloorAboveLimit {
                member,
                floor,
                limit,
            },
            Refused::Floors { .. } => {
                let own = without.and_then(|id| core.shares.view(id));
                let own = own.map_or(0, |view| view.terms.floor.0);
                Error::FloorsAboveLimit {
                    member,
                    floor,
                    others: core.shares.floors().0 - own,
                    limit,
                }
            }
            // The rest: a full table (an unknown member has no handle), and what a later version
            // may add.
            _ => Error::TooManyMembers {
                members: core.seats().count(),
            },
        }
    }

    /// The limit, in bytes.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.inner.limit()
    }

    /// Another limit. The excess is asked for at once; nobody waits for it here.
    ///
    /// # Errors
    /// It is 0, or below what the floors come to; then the old one stays.
    pub fn set_limit(&self, limit: u64) -> Result<(), Error> {
        let mut core = self.inner.core();
        core.set_limit(&self.inner, limit)?;
        drop(core);
        self.inner.grant();
        self.inner.bell.ring();
        Ok(())
    }

    /// Bytes that all members hold.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.inner.total.load(SeqCst)
    }

    /// Time since the governor began, by its clock: the `now` of [`turn`](Self::turn).
    #[must_use]
    pub fn now(&self) -> Duration {
        self.inner.now()
    }

    /// Does what is due: looks at members that do not report, moves targets, asks members that have
    /// too much. Calls shrinkers, so it takes as long as they do. For
    /// [`Builder::driven_by_caller`]; beside the governor's thread it does no harm.
    ///
    /// `now` never goes back. The answer says when to come again if nothing happens before.
    pub fn turn(&self, now: Duration) -> Next {
        self.inner.turn(now.min(LATEST))
    }

    /// The members' memory, the moves of targets with their reasons, and the waits.
    #[must_use]
    pub fn report(&self) -> Report {
        let inner = &self.inner;
        let waits = *inner.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let core = inner.core();
        let members = core.places.iter().flatten().filter_map(|place| {
            let (seat, view) = (&place.seat, core.shares.view(place.seat.id)?);
            let conduct = seat.conduct.lock().unwrap_or_else(PoisonError::into_inner);
            let is_too_small = conduct.is_too_small || seat.evicted_larger(conduct.keeps);
            let standing = match conduct.standing {
                Standing::Good if is_too_small => Standing::TooLarge,
                standing => standing,
            };
            let floating = view.terms.weight.sixteenths() as f64;
            Some(MemberReport {
                name: seat.name.clone(),
                standing,
                held: seat.held(),
                target: view.target.0,
                bound: conduct.bound,
                floor: view.terms.floor.0,
                ceiling: view.terms.ceiling.0,
                weight: floating / 16.0,
                gain: Duration::from_nanos(view.gain.0),
                evicted: view.age.0,
                scans: conduct.scans,
                freed: conduct.freed,
                late: conduct.late,
            })
        });
        Report {
            limit: inner.limit(),
            held: inner.total.load(SeqCst),
            resident: core.resident,
            slack: core.slack_bytes,
            headroom: inner.headroom(),
            spare: core.shares.spare().0,
            tables: core.seats().map(|seat| seat.ghost_size()).sum(),
            epochs: core.shares.epoch(),
            turns: core.turns,
            members: members.collect(),
            moves: core.moves.iter().cloned().collect(),
            waits,
        }
    }
}

impl std::fmt::Debug for Governor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Governor({} of {} bytes held)",
            self.held(),
            self.limit()
        )
    }
}

/// The rate at which members gave memory back when they were asked, or at which one is filled.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    bytes: u64,
    time: Nanos,
}

impl Rate {
    /// Adds this much in that time; earlier amounts fade.
    pub(crate) fn add(&mut self, bytes: u64, time: Duration) {
        self.bytes = self.bytes / 2 + bytes;
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.time = Nanos((self.time.0 / 2).saturating_add(time));
    }

    /// Bytes of so long a time; none as long as no time has passed.
    pub(crate) fn bytes_in(self, time: Duration) -> u64 {
        let bytes = u128::from(self.bytes) * time.as_nanos() / u128::from(self.time.0.max(1));
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Time that freeing `bytes` takes; zero as long as nothing was freed.
    fn time_for(self, bytes: u64) -> Duration {
        if self.bytes == 0 {
            return Duration::ZERO;
        }
        let time = u128::from(bytes) * u128::from(self.time.0) / u128::from(self.bytes);
        Duration::from_nanos(u64::try_from(time).unwrap_or(u64::MAX))
    }
}

/// The state behind the lock.
pub(crate) struct Core {
    pub(crate) shares: Shares,
    /// By the number of the member.
    pub(crate) places: Vec<Option<Entry>>,
    moves: VecDeque<Move>,
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
    fn set_limit(&mut self, inner: &Inner, limit: u64) -> Result<(), Error> {
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
    fn with_room_for<R>(
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
    limit: AtomicU64,
    /// The limit less slack: no reservation goes beyond.
    ceiling: AtomicU64,
    /// Held by all.
    pub(crate) total: AtomicU64,
    /// By all, since the last turn.
    evicted: AtomicU64,
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
    core: Mutex<Core>,
    waits: Mutex<Waits>,
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
