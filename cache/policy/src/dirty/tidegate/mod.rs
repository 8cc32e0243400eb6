//! Tidegate's own law: a writer pays for what it dirties in time, at its fair rate.
//!
//! ```text
//!   R     = rate of the device x factor(level)          `capacity`, `room`
//!   fair  = (R - what passes without being held) / held `roster`
//!   debt += pages / fair                                 of the writer, paid off by the clock
//!   debt >= 5 ms: it pauses until the debt is paid, at most 200 ms at a time; less is carried
//!   after 60 ms in one balance: it goes on, and carries the rest into the next ones, if there is room
//! ```
//!
//! ```text
//!   factor
//!    5/4 |.......*.                       below freerun nobody owes anything
//!      1 |          ` - .*                at the target what comes in is what goes out
//!        |                 `.
//!      0 |____________________`*___ level
//!          freerun    target   cap
//! ```
//!
//! Its answers, by their form and not by their numbers:
//!
//!   - Old and new heavy writers have the same fair rate from the newcomer's first pause on: there
//!     is no rate per writer that would have to be found.
//!   - A light writer's debt is paid by the time it spends elsewhere, so it never grows to 5 ms.
//!     While anonymous memory pushes the limit down faster than a device can follow, it goes on;
//!     those that filled it make the room.
//!   - A device counts by its own level, rate and writers; the limit is divided so that what one
//!     leaves undone is never another's (`room`).
//!   - The level is bounded in seconds of the device as well as in pages.
//!   - A burst that stays below freerun is not paced.
//!   - Pages that a sync is expected to find are written while nobody waits for them (`ahead`).
//!   - A device that makes no progress stops writers that would have to pause; what a light writer
//!     adds while a device pauses briefly does not matter.
//!
//! The interval of a writer's calls follows from its rate: about every `AIM` of debt (or a few
//! pages, of many writers), and so that all of a device's writers together never dirty more than a
//! part of the room left without being seen.
//!
//! Invariants
//!   1. A pause is 5..=200 ms, or it has the name `NoProgress`.
//!   2. The level passes the limit by less than one page for each writer of the device; where
//!      anonymous memory has taken its part of the limit, by what light writers add, up to the same
//!      bound of the whole limit.
//!   3. Time is in nanoseconds: there is no tick, and what was slept too long shortens the next
//!      pause.
//!   4. One writer, one debt: a writer that alternates between devices owes at each one's rate.
//!
//! Source: Tidegate's own. In place of a bucket of tokens the time at which it would be empty
//! (ITU-T I.371, generic cell rate algorithm). Taken from Linux 6.12 mm/page-writeback.c
//! (mechanisms 5.5, 5.6): freerun, the control by position, sleeping on one's own behalf only.

mod ahead;
mod capacity;
mod reach;
mod room;
mod roster;
mod work;

use self::ahead::Ahead;
use self::capacity::{Capacity, Completed};
use self::room::{Field, Marks, ONE, Target};
use self::roster::{Fair, Roster};
use crate::dirty::law::{Law, Prints, Profile, Tunables};
use crate::dirty::limits::{Level, Thresholds, bounded, mul_div};
use crate::dirty::rules::{DeviceRules, Dirtied, Look, WriterRules};
use crate::dirty::running::Running;
use crate::dirty::types::{
    BalanceTrace, Completion, Counts, DeviceIndex, DeviceTunables, Dirtyable, Due, Limits,
    PauseReason, Verdict,
};
use crate::units::{Instant, Nanos, Pages, PagesPerSec};

impl Law {
    /// Tidegate's own: each writer owes time at its fair rate.
    pub const TIDEGATE: Self = Self::new(&PROFILE);
}

const PROFILE: Profile = Profile {
    name: "tidegate",
    start: |tunables, devices| Running::start(Tidegate::new(tunables, devices)),
    wakes_other_flushers: true,
    prints: Prints::Pauses,
};

/// No device holds more than it writes in this time: the age at which data is written in any case
/// (`dirty_expire_centisecs`).
const HOLD: Nanos = Nanos::secs(30);
/// The shortest pause; a smaller debt is carried.
const PAUSE_MIN: Nanos = Nanos::millis(5);
/// The longest.
const PAUSE_MAX: Nanos = Nanos::millis(200);
/// A balance ends after this, though not all is paid, as long as the level leaves room. A device
/// that pauses briefly makes debts of two or three times what was aimed at, and no writer of a
/// single page has to wait for all of that at once.
const BALANCE_MAX: Nanos = FEW_MAX;
/// Most time that is carried from one pause to the next.
const CARRY_MAX: Nanos = PAUSE_MAX;
/// Pages that a balance has to be worth, at least, for a debt to be carried: or it would only grow.
const CARRY_PAGES: u64 = 2;
/// A writer of a device that makes no progress looks again after this.
const STALL_PAUSE: Nanos = Nanos::millis(50);
/// Debt at which a writer comes here; where that is less than `FEW` pages, as many writers share a
/// device, at `FEW`, or at `FEW_MAX` if that is sooner. A pause and the switches around it cost
/// the same whatever it is for: of a hundred writers each would pause for a page or two.
const AIM: Nanos = Nanos::millis(20);
const FEW: u64 = 8;
const FEW_MAX: Nanos = Nanos::millis(60);
/// Its page count is kept while it is no more than this many pages beside that.
const AIM_SLACK: u64 = 1;
/// Time a writer may be ahead when it begins to dirty, as long as the level is below the target: a
/// burst of a writer that was quiet goes on up to there.
const CREDIT: Nanos = Nanos::secs(1);
/// Until a device's rate is known its writers look again after this.
const UNKNOWN_PAUSE: Nanos = Nanos::millis(5);
/// The assumed rate of a device asked for before anything is known: 16 MiB/s.
const UNKNOWN: PagesPerSec = PagesPerSec(4096);
/// Dirty pages of an unknown device from which its flusher works, whatever the limits: to learn of
/// it.
const LEARN_FROM: Pages = Pages(256);
/// A debt is counted at no less than 13/16 of the device's rate (a factor in units of `1 / ONE`),
/// so that no writer is held for much longer than its share of the device would take. Where that is
/// too much, the cap holds.
const FACTOR_MIN: u64 = ONE * 13 / 16;
/// Pages a writer dirties before its first balance.
const BUDGET_FIRST: Pages = Pages(32);
/// The writers of all devices together dirty at most this part of what is left unseen.
const UNSEEN_SHARE: u64 = 4;
/// The part that one writer keeps to itself of all that may be dirtied unseen, at most; and in
/// pages.
const UNTOLD_PART: u64 = 16;
const UNTOLD_MAX: Pages = Pages(64);
/// Pages a writer dirties between two balances, at most: 256 MiB.
const BUDGET_MAX: u64 = 1 << 16;
/// Anonymous memory leaves the limits what the devices write in this time: what a writer dirties
/// between two balances, and as much again that is being written meanwhile.
const BUSY: Nanos = Nanos(2 * AIM.0);
/// Light writers leave a quarter of what files have clean, whatever anonymous memory has pushed the
/// limit down to.
const LIGHT_MOST: u64 = 3;
const LIGHT_OF: u64 = 4;
/// The interval at which the other devices are looked at.
const LOOK: Nanos = Nanos::millis(50);

/// One writer.
#[derive(Debug)]
struct Writer {
    /// When its debt is paid.
    paid: Instant,
    /// Since when it has dirtied those pages that no balance has seen: the time of the last one.
    since: Instant,
    /// Pages dirtied since its last balance, and at how many the next is due.
    dirtied: Pages,
    budget: Pages,
    /// The device of those pages.
    device: Option<DeviceIndex>,
    held: roster::Marks,
}

impl Writer {
    fn new() -> Self {
        Self {
            paid: Instant::ZERO,
            since: Instant::ZERO,
            dirtied: Pages::ZERO,
            budget: BUDGET_FIRST,
            device: None,
            held: roster::Marks::default(),
        }
    }

    /// It was free here: nothing is added to what it may owe elsewhere.
    const fn start(&mut self, now: Instant) {
        let credited = Instant(now.0.saturating_sub(CREDIT.0));
        self.paid = self.paid.at_least(credited);
        self.since = now;
    }

    fn debt(&self, now: Instant) -> Nanos {
        self.paid.since(now)
    }

    /// It has dirtied pages worth `cost`. `credit`: how far it may have been ahead before.
    fn owe(&mut self, now: Instant, cost: Nanos, credit: Nanos) {
        let from = Instant(self.since.0.saturating_sub(credit.0));
        self.paid = self.paid.at_least(from) + cost;
        self.since = now;
    }

    /// Pages until the next balance of a writer that dirties `fair` pages a second.
    fn keep_to(&mut self, fair: Fair) {
        let few = fair.pages_in(FEW_MAX).0.min(FEW);
        let aim = fair.pages_in(AIM).0.max(few).clamp(1, BUDGET_MAX);
        if self.budget.0.abs_diff(aim) > AIM_SLACK {
            self.budget = Pages(aim);
        }
    }
}

/// One balance.
#[derive(Debug)]
struct Balance {
    dirtied: Pages,
    /// The time it owes for them, once charged.
    cost: Option<Nanos>,
    /// It owes less than a pause, with what it has just dirtied.
    is_light: bool,
    /// It waits for the device to complete something, whatever it owes.
    stalled: bool,
    /// Of those, what it might dirty in the time it took.
    in_time: Pages,
    /// Its pauses so far.
    paused: Nanos,
}

impl Balance {
    const fn new(dirtied: Pages) -> Self {
        Self {
            dirtied,
            cost: None,
            is_light: false,
            stalled: false,
            in_time: Pages::ZERO,
            paused: Nanos::ZERO,
        }
    }
}

/// One device.
struct Device {
    tunables: DeviceTunables,
    /// Nothing is reserved for it: its place waits for another one.
    is_gone: bool,
    capacity: Capacity,
    roster: Roster,
    target: Target,
    ahead: Ahead,
    /// Its level when it was last looked at.
    level: Pages,
    /// When it last held something. None: never.
    held: Option<Instant>,
    /// The last look at the others, and its time.
    around: Around,
    looked: Option<Instant>,
    /// Pages dirtied since the counters were last read, and how many of them there may be.
    unseen: Pages,
    unseen_max: Pages,
    /// Pages of writers that went away before a balance.
    leak: Pages,
    /// The fair rate at the last balance. None: there was none, or it was free.
    fair: Option<Fair>,
}

impl Device {
    fn new(tunables: DeviceTunables) -> Self {
        Self {
            tunables,
            is_gone: false,
            capacity: Capacity::default(),
            roster: Roster::default(),
            target: Target::default(),
            ahead: Ahead::default(),
            level: Pages::ZERO,
            held: None,
            around: Around::default(),
            looked: None,
            unseen: Pages::ZERO,
            unseen_max: BUDGET_FIRST,
            leak: Pages::ZERO,
            fair: None,
        }
    }
}

/// The other devices.
#[derive(Clone, Copy, Debug, Default)]
struct Around {
    unclaimed: Pages,
    rates: PagesPerSec,
    /// Devices at work, this one included.
    active: u64,
}

/// The law.
struct Tidegate {
    thresholds: Thresholds,
    devices: Vec<Device>,
    /// The sum of the rates of all devices that were at work at the last look.
    rates: PagesPerSec,
}

/// One look at counters, limits and marks.
struct View {
    limits: Limits,
    level: Level,
    marks: Marks,
    /// The marks of light writers: of the limit without the part that anonymous memory has taken,
    /// as long as some of what files have is clean.
    light: Marks,
}

impl DeviceRules for Tidegate {
    fn add_device(&mut self, _now: Instant, tunables: DeviceTunables) {
        self.devices.push(Device::new(tunables));
    }

    fn renew_device(&mut self, device: DeviceIndex) {
        let state = self.device_mut(device);
        *state = Device::new(state.tunables);
    }

    fn remove_device(&mut self, device: DeviceIndex) {
        self.renew_device(device);
        self.device_mut(device).is_gone = true;
    }

    fn set_device(&mut self, device: DeviceIndex, tunables: DeviceTunables) {
        self.device_mut(device).tunables = tunables;
    }

    /// The limits. Anonymous memory takes its part of them too, but not what keeps the devices at
    /// work: where it leaves files next to nothing, half of that may be dirty.
    fn limits(&self, dirtyable: Dirtyable) -> Limits {
        let busy = self.rates.pages_in(BUSY).at_most(self.most(dirtyable));
        self.thresholds
            .part(dirtyable)
            .at_least(busy.at_most(Pages(dirtyable.now.0 / 2)))
    }

    fn bandwidth(&self, device: DeviceIndex) -> PagesPerSec {
        self.device(device).capacity.rate().unwrap_or(UNKNOWN)
    }

    fn reach(&self, device: DeviceIndex) -> u32 {
        self.device(device).capacity.reach()
    }

    /// The cap as it stood when the device was last looked at.
    fn device_limit(&self, device: DeviceIndex, counts: &Counts) -> Pages {
        self.marks(device, counts).cap
    }

    fn over_background(&self, device: DeviceIndex, counts: &Counts) -> bool {
        let marks = self.marks(device, counts);
        self.device(device).is_over_background(&marks, counts)
    }

    fn update(&mut self, now: Instant, device: DeviceIndex, counts: &Counts) {
        self.view(device, now, counts);
    }

    fn on_written(&mut self, now: Instant, device: DeviceIndex, done: &Completion) {
        let state = self.device_mut(device);
        let pages = bounded(done.pages);
        state.held = Some(now);
        state.note_level(now, state.level.saturating_sub(pages));
        state.capacity.on_completed(&Completed {
            now,
            begun: done.begun,
            pages,
            last: done.last,
        });
    }

    fn on_sync(&mut self, now: Instant, device: DeviceIndex, found: Pages, counts: &Counts) {
        let written = bounded(counts.device_written);
        let state = self.device_mut(device);
        state.ahead.on_sync(now, bounded(found), written);
    }
}

impl WriterRules for Tidegate {
    type Writer = Writer;
    type Balance = Balance;

    fn new_writer(&self) -> Writer {
        Writer::new()
    }

    fn budget(&self, writer: &Writer, device: DeviceIndex, _cpu: usize) -> Pages {
        let state = self.device(device);
        let own = writer.budget.saturating_sub(writer.dirtied);
        let all = state.unseen_max.saturating_sub(state.unseen);
        own.at_most(all).at_least(Pages(1))
    }

    fn on_dirtied(&mut self, writer: &mut Writer, dirtied: &Dirtied) -> Option<Due> {
        let (now, device) = (dirtied.now, dirtied.device);
        let pages = bounded(dirtied.pages);
        if writer.device.is_none() {
            writer.start(now);
        }
        if let Some(before) = writer.device.replace(device)
            && before != device
        {
            // Pages that it dirtied there are owed at that device's rate.
            let dirtied = core::mem::take(&mut writer.dirtied);
            if let Some(fair) = self.device(before).fair {
                writer.owe(now, fair.time_for(dirtied), Nanos::ZERO);
            }
        }
        let state = self.device_mut(device);
        writer.dirtied = bounded(writer.dirtied + pages);
        let room = writer.budget.saturating_sub(writer.dirtied);
        let absorbed = state.leak.at_most(room);
        state.leak -= absorbed;
        writer.dirtied += absorbed;
        state.unseen = bounded(state.unseen + pages);
        let seen = writer.dirtied < writer.budget && state.unseen < state.unseen_max;
        if seen && writer.debt(now) < AIM {
            return None;
        }
        Some(Due {
            pages: core::mem::take(&mut writer.dirtied),
            replaces: false,
        })
    }

    fn remove_writer(&mut self, writer: Writer, _cpu: usize) {
        if let Some(device) = writer.device {
            let state = self.device_mut(device);
            state.leak = bounded(state.leak + writer.dirtied);
        }
        for device in writer.held.devices() {
            self.device_mut(device).roster.leave(&writer.held, device);
        }
    }

    /// The rest of its budget, unless other writers of the device could use up meanwhile the room
    /// that all may dirty unseen.
    fn untold_max(&self, writer: &Writer, now: Instant, device: DeviceIndex) -> Pages {
        if writer.device != Some(device) || writer.debt(now) >= AIM {
            return Pages::ZERO;
        }
        let state = self.device(device);
        let own = writer.budget.saturating_sub(writer.dirtied);
        let all = state.unseen_max.saturating_sub(state.unseen);
        own.at_most(Pages(all.0 / UNTOLD_PART)).at_most(UNTOLD_MAX)
    }

    fn begin(&self, pages: Pages) -> Balance {
        Balance::new(pages)
    }

    fn decide(
        &mut self,
        balance: &mut Balance,
        writer: &mut Writer,
        look: &Look<'_>,
    ) -> (Verdict, BalanceTrace) {
        let (now, device, counts) = (look.now, look.device, look.counts);
        let view = self.view(device, now, counts);
        let (level, dirty) = (view.level.device_dirty, view.level.dirty);
        let free = view.marks.is_free(level, dirty);
        let state = self.device_mut(device);
        let has_work = !free || state.is_over_background(&view.marks, counts);
        let start_background = has_work && !counts.flusher_running;
        let mut trace = levels(&view, balance);

        let mut why = PauseReason::OverShare;
        let pause = if free {
            writer.start(now);
            state.fair = None;
            state.leak = Pages::ZERO;
            // As many pages as take the square root of what is left to freerun.
            let left = view.marks.freerun.saturating_sub(level).0;
            let log = left.checked_ilog2().unwrap_or(0) / 2;
            writer.budget = Pages(1 << log);
            None
        } else {
            let stalled = state.capacity.is_stalled(now);
            let pause = state.charge(balance, writer, device, now, &view, &mut trace);
            balance.stalled = stalled && (balance.stalled || pause.is_some());
            if balance.stalled {
                why = PauseReason::NoProgress;
                Some(STALL_PAUSE)
            } else {
                pause
            }
        };
        let Some(pause) = pause else {
            return (Verdict::Done { start_background }, trace);
        };
        state.roster.hold(&mut writer.held, device);
        balance.paused = balance.paused.saturating_add(pause);
        trace.pause = pause;
        trace.line = true;
        (
            Verdict::Pause {
                pause,
                why,
                start_background,
            },
            trace,
        )
    }
}

impl Tidegate {
    fn new(tunables: &Tunables, devices: usize) -> Self {
        Self {
            thresholds: Thresholds {
                dirty: tunables.dirty,
                background: tunables.background,
            },
            devices: Vec::with_capacity(devices),
            rates: PagesPerSec(0),
        }
    }

    /// Devices that something is reserved for.
    fn count(&self) -> u64 {
        self.devices.iter().filter(|it| !it.is_gone).count() as u64
    }

    fn device(&self, device: DeviceIndex) -> &Device {
        &self.devices[usize::from(device.0)]
    }

    fn device_mut(&mut self, device: DeviceIndex) -> &mut Device {
        &mut self.devices[usize::from(device.0)]
    }

    fn most(&self, dirtyable: Dirtyable) -> Pages {
        self.thresholds.limits(dirtyable.most).dirty
    }

    /// The marks without moving the target.
    fn marks(&self, device: DeviceIndex, counts: &Counts) -> Marks {
        let state = self.device(device);
        let level = Level::of(counts);
        let field = self.field(device, &level, self.limits(counts.dirtyable));
        let mut target = state.target;
        let at = target.moved().unwrap_or(Instant::ZERO);
        target.follow(at, &field, level.device_dirty, &state.tunables, HOLD)
    }

    fn field(&self, device: DeviceIndex, level: &Level, limits: Limits) -> Field {
        let state = self.device(device);
        let rate = self.bandwidth(device);
        Field {
            limits,
            dirty: level.dirty,
            devices: self.count(),
            unclaimed: state.around.unclaimed,
            rate,
            rates: state.around.rates.at_least(rate),
        }
    }

    /// Looks at the other devices, now and then.
    fn look_around(&mut self, device: DeviceIndex, now: Instant, limits: Limits) {
        let looked = self.device(device).looked;
        if looked.is_some_and(|at| now.since(at) < LOOK) {
            return;
        }
        let count = self.count();
        let mut around = Around::default();
        let there = self.devices.iter().enumerate();
        for (number, other) in there.filter(|(_, other)| !other.is_gone) {
            let own = number == usize::from(device.0);
            if own || other.is_at_work(now) {
                let rate = other.capacity.rate().unwrap_or(UNKNOWN);
                around.rates = around.rates.saturating_add(rate);
                around.active += 1;
            }
            if !own {
                let reserve = Field::reserve(limits, count, &other.tunables);
                let unclaimed = reserve.saturating_sub(other.level);
                around.unclaimed = around.unclaimed.saturating_add(unclaimed);
            }
        }
        self.rates = around.rates;
        let state = self.device_mut(device);
        state.around = around;
        state.looked = Some(now);
    }

    fn view(&mut self, device: DeviceIndex, now: Instant, counts: &Counts) -> View {
        let limits = self.limits(counts.dirtyable);
        let level = Level::of(counts);
        self.look_around(device, now, limits);
        let field = self.field(device, &level, limits);
        let files = counts.dirtyable.now;
        let most = self
            .most(counts.dirtyable)
            .at_most(Pages(files.0 / LIGHT_OF * LIGHT_MOST));
        let state = self.device_mut(device);
        state.note_level(now, level.device_dirty);
        state.capacity.look(now, bounded(counts.device_writeback));
        state.roster.turn(now);
        state.ahead.look(now, HOLD);
        let tunables = state.tunables;
        let marks = state
            .target
            .follow(now, &field, level.device_dirty, &tunables, HOLD);
        let left = marks.left(level.device_dirty, level.dirty);
        state.unseen = Pages::ZERO;
        let shares = UNSEEN_SHARE * state.around.active.max(1);
        state.unseen_max = Pages(left.0 / shares).at_least(Pages(1));
        View {
            limits,
            level,
            marks,
            light: marks.raised_to(most, field.rate.pages_in(HOLD)),
        }
    }
}

impl Device {
    fn note_level(&mut self, now: Instant, level: Pages) {
        self.level = level;
        if !level.is_zero() {
            self.held = Some(now);
        }
    }

    /// True if it takes part in the division by rate: as long as the pages it was given may have to
    /// wait to be written. A writer in bursts, or one that syncs, holds nothing for moments. Such a
    /// moment is no reason to give its device's part away, which would come back only as slowly as
    /// a slow device writes.
    fn is_at_work(&self, now: Instant) -> bool {
        !self.level.is_zero() || self.held.is_some_and(|held| now.since(held) < HOLD)
    }

    /// True if its flusher has work: above its mark, ahead of a sync, or to learn the device's
    /// rate.
    fn is_over_background(&self, marks: &Marks, counts: &Counts) -> bool {
        let dirty = bounded(counts.device_dirty);
        let Some(rate) = self.capacity.rate() else {
            return dirty > marks.background || dirty >= LEARN_FROM;
        };
        let ahead = self.ahead.mark(bounded(counts.device_written), rate);
        dirty > marks.background.at_most(ahead.unwrap_or(Pages::MAX))
    }

    /// Has the writer owe for what it dirtied, once a balance; answers how long it has to pause.
    fn charge(
        &mut self,
        balance: &mut Balance,
        writer: &mut Writer,
        device: DeviceIndex,
        now: Instant,
        view: &View,
        trace: &mut BalanceTrace,
    ) -> Option<Nanos> {
        let (level, dirty) = (view.level.device_dirty, view.level.dirty);
        let Some(rate) = self.capacity.rate_now(now) else {
            // Its first completion is a moment away, or it fails: up to the target that does not
            // matter.
            let full = !view
                .marks
                .excess(level, dirty, self.roster.held())
                .is_zero();
            return (full || level > view.marks.target).then_some(UNKNOWN_PAUSE);
        };
        let factor = view.marks.factor(level, dirty).max(FACTOR_MIN);
        let fair = self.roster.fair(PagesPerSec(mul_div(rate.0, factor, ONE)));
        trace.dirty_ratelimit = PagesPerSec(rate.0 / self.roster.held());
        trace.task_ratelimit = fair.rate();
        trace.dirtied_pause = writer.budget;
        self.fair = Some(fair);
        let cost = fair.time_for(balance.dirtied);
        if let Some(before) = balance.cost {
            // The device has become much faster: what it owes is worth less time now.
            if cost < Nanos(before.0 / 2) {
                writer.paid = Instant(writer.paid.0.saturating_sub(before.0 - cost.0));
                balance.cost = Some(cost);
            }
        } else {
            balance.cost = Some(cost);
            // The rest is on credit, which does not last.
            balance.in_time = fair
                .pages_in(now.since(writer.since))
                .at_most(balance.dirtied);
            trace.period = cost;
            trace.think = now.since(writer.paid);
            trace.line = true;
            let credit = if level < view.marks.target {
                CREDIT
            } else {
                Nanos::ZERO
            };
            writer.owe(now, cost, credit);
            writer.keep_to(fair);
            balance.is_light = writer.debt(now) < PAUSE_MIN;
        }
        let marks = if balance.is_light {
            view.light
        } else {
            view.marks
        };
        let excess = marks.excess(level, dirty, self.roster.held());
        if !excess.is_zero() {
            // One page above the excess has to go for each of the held before it is their turn.
            let pages = Pages(excess.0.saturating_add(self.roster.held()));
            let pause = rate.time_for(pages);
            return Some(pause.at_least(PAUSE_MIN).at_most(PAUSE_MAX));
        }
        let debt = writer.debt(now);
        let may_carry = debt <= CARRY_MAX
            && fair.time_for(Pages(CARRY_PAGES)) <= BALANCE_MAX
            && view.marks.has_room(level, dirty);
        let due = if may_carry {
            debt.at_most(BALANCE_MAX.saturating_sub(balance.paused))
        } else {
            debt
        };
        if due < PAUSE_MIN {
            self.roster.pass(&writer.held, device, balance.in_time);
            return None;
        }
        Some(due.at_most(PAUSE_MAX))
    }
}

/// The part of a trace that every verdict has.
fn levels(view: &View, balance: &Balance) -> BalanceTrace {
    BalanceTrace {
        limit: view.limits.dirty,
        setpoint: room::whole(view.limits),
        dirty: view.level.dirty,
        device_setpoint: view.marks.target,
        device_dirty: view.level.device_dirty,
        device_limit: view.marks.cap,
        dirtied: balance.dirtied,
        ..BalanceTrace::default()
    }
}
