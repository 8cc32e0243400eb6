//! Tidegate's own: memory that is short is handed out in turn.
//!
//! A task that finds too few free pages does not reclaim: it takes a *ticket* and waits. The
//! background reclaimer frees; pages above the reserve are *granted* to tickets, and as many are
//! woken as were granted.
//!
//! ```text
//!   free |//////////////|                                 who may take down to where, unasked
//!   high |              |
//!    low |- - - - - - - |  the background reclaimer wakes
//!    min |--------------|  below, take a ticket               .--> ranked by growth: 3 pages in 4
//!  min/2 |--------------|  what is kept for it        tickets +
//!      0 |______________|  exempt: flushers, I/O              '--> overdue, by age: 1 page in 4
//! ```
//!
//! Ranked by *growth* (module `growth`), in classes a factor of 1.5 wide on the average, first come
//! first served within a class. So a task that gives back what it takes goes first, and hogs of
//! like growth take turns. A ticket older than `OVERDUE` also stands in a second line, by age, that
//! gets one page in four: no one can be passed for ever, and as those that grow little still get
//! three in four, many hogs that are all overdue do not take their rank from them.
//!
//! A grant is a *promise*: those pages stay free but are not for others until the ticket is given
//! back.
//!
//! Invariants
//!   1. A ticket gets at least a page and at most a cluster; never more than it asked for.
//!   2. Pages granted by one call are at most its `room`; `promised` is the sum of grants not given
//!      back.
//!   3. While a ticket is overdue, at least a quarter of the pages granted go to the overdue, the
//!      oldest first (to within a cluster).
//!   4. A ticket is granted once; a stale one does nothing.
//!   5. `join`, `leave` and each grant are O(1); memory is taken by `new`.
//!
//! Concurrency: plain data behind a short lock of `mm`; the task that frees pages calls `hand_out`,
//! unlocks, and wakes those that it names.
//!
//! Source: ours; mechanisms 4.7; docs/adr/0014.

use super::growth::Growth;
use super::scan::CLUSTER;
use crate::ticks::TickRate;
use crate::units::{Instant, Nanos, Pages};

#[cfg(test)]
mod tests;

/// A ticket of this age is overdue.
pub const OVERDUE: Nanos = Nanos::millis(100);
/// A wait for a turn lasts at most this, a tick more or less; then the waiter looks itself what is
/// wrong.
pub const BOUND: Nanos = Nanos::millis(200);
/// Pages granted by rank for each page granted by age while a ticket is overdue.
const RANKED_PER_OVERDUE: i64 = 3;
/// Grants owed by age beyond a few are forgotten: they never come in bursts.
const OWED_MOST: i64 = 2 * RANKED_PER_OVERDUE * 32;
/// Classes of growth: two for each power of two.
const CLASSES: usize = 64;
/// No ticket.
const NONE: u32 = u32::MAX;

/// The level down to which a task that pages are kept for may take them: the reserve is not for it,
/// but returned pages need not fill that first.
#[must_use]
pub fn kept_floor(min: Pages) -> Pages {
    Pages(min.0 / 2)
}

/// The growth by which a task is ranked. A task that got nothing for a second does not grow either,
/// but stands behind those that give back what they take.
pub fn rank(growth: &mut Growth, now: Instant) -> Pages {
    if growth.is_modest(now) {
        Pages::ZERO
    } else {
        growth.growth(now).at_least(Pages(1))
    }
}

/// A place among those that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    slot: u32,
    serial: u32,
}

impl Ticket {
    /// Small and unique among the tickets that are out: names a wait queue.
    #[must_use]
    pub fn slot(self) -> u32 {
        self.slot
    }
}

/// The time for which pages returned by a task that does not grow stay reserved for such tasks.
const KEEP: Nanos = Nanos::millis(25);
/// Pages that none of them took for this long are not kept, however busy they are with the rest.
const UNTAKEN: Nanos = Nanos::secs(1);
/// At most this part of the memory is kept back.
const KEPT_SHARE: u64 = 16;

/// Free pages kept back: the task that takes as much as it gives back will want them again in a
/// moment, and would have to wait for reclaim if those in line had got them meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    pages: Pages,
    until: Instant,
    most: Pages,
    /// The fewest there were since then: pages that nobody took.
    untaken: Pages,
    since: Instant,
}

impl Kept {
    /// Of a node of `node` pages.
    #[must_use]
    pub fn new(node: Pages) -> Self {
        Self {
            pages: Pages::ZERO,
            until: Instant(0),
            most: Pages(node.0 / KEPT_SHARE),
            untaken: Pages::ZERO,
            since: Instant(0),
        }
    }

    /// The node has `node` pages from now on.
    pub fn resize(&mut self, node: Pages) {
        self.most = Pages(node.0 / KEPT_SHARE);
        self.pages = self.pages.at_most(self.most);
        self.untaken = self.untaken.at_most(self.pages);
    }

    /// Number of pages kept back now.
    #[must_use]
    pub fn pages(&self, now: Instant) -> Pages {
        if now < self.until {
            self.pages
        } else {
            Pages::ZERO
        }
    }

    /// The pages kept back, and the end of that.
    #[must_use]
    pub fn until(&self) -> (Pages, Instant) {
        (self.pages, self.until)
    }

    /// A task that does not grow took pages, or gave some back.
    pub fn note(&mut self, now: Instant, taken: Pages, given_back: Pages) {
        let left = self.pages(now).saturating_sub(taken);
        self.untaken = self.untaken.at_most(left);
        self.pages = left.saturating_add(given_back).at_most(self.most);
        if now.since(self.since) >= UNTAKEN {
            self.pages = self.pages.saturating_sub(self.untaken);
            (self.untaken, self.since) = (self.pages, now);
        }
        // A task that is at taking its pages again is not to lose the rest because its round is
        // long.
        let moved = taken.saturating_add(given_back);
        if !moved.is_zero() && !self.pages.is_zero() {
            self.until = now + KEEP;
        }
    }
}

/// The free pages of a node, promised pages included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stock {
    /// Free, whatever for.
    pub free: Pages,
    /// Of these, kept back (`Kept::pages`).
    pub kept: Pages,
    /// The reserve.
    pub min: Pages,
}

impl Stock {
    /// Pages that may be granted to anybody: above the reserve, neither promised nor kept back.
    fn above(&self, promised: Pages) -> Pages {
        let taken = promised.saturating_add(self.kept);
        self.free.saturating_sub(self.min).saturating_sub(taken)
    }

    /// Pages that may be granted to the tasks they are kept for. A page that is promised counts as
    /// kept until it is taken, so that as much again may come from the upper half of the reserve in
    /// that moment, and no more.
    fn kept(&self, promised: Pages) -> Pages {
        let usable = self.free.saturating_sub(kept_floor(self.min));
        self.kept.at_most(usable.saturating_sub(promised))
    }
}

/// A request for pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Pages it can use, at least one.
    pub need: Pages,
    /// Its growth.
    pub growth: Pages,
    /// When it first asked for these pages: a task that waits again keeps its age.
    pub since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// On no list.
    Vacant,
    Waiting,
    Granted(Pages),
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    serial: u32,
    state: State,
    need: Pages,
    since: Instant,
    class: u8,
    /// Neighbours in its class; `next` of a vacant slot is the next vacant one.
    class_links: Links,
    /// Neighbours in the line by age.
    age_links: Links,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Links {
    previous: u32,
    next: u32,
}

const UNLINKED: Links = Links {
    previous: NONE,
    next: NONE,
};

/// Ends of a list through the slots.
#[derive(Clone, Copy, Debug)]
struct Ends {
    first: u32,
    last: u32,
}

const EMPTY: Ends = Ends {
    first: NONE,
    last: NONE,
};

/// The tasks that wait for memory of one node.
#[derive(Clone, Debug)]
pub struct Turns {
    rate: TickRate,
    slots: Vec<Slot>,
    vacant: u32,
    classes: [Ends; CLASSES],
    /// Which classes are not empty.
    occupied: u64,
    by_age: Ends,
    waiting: u32,
    wanted: Pages,
    promised: Pages,
    /// Pages granted by rank, less `RANKED_PER_OVERDUE` times those by age, while a ticket was
    /// overdue.
    owed: i64,
}

impl Turns {
    /// Memory that a ticket takes.
    pub const BYTES_PER_TICKET: u64 = size_of::<Slot>() as u64;

    /// For up to `capacity` tickets at a time. `hz`: bounds are whole ticks.
    ///
    /// # Panics
    /// Unless `hz` lies in 1..=10000.
    #[must_use]
    pub fn new(capacity: u32, hz: u32) -> Self {
        let slot = |next| Slot {
            serial: 0,
            state: State::Vacant,
            need: Pages::ZERO,
            since: Instant(0),
            class: 0,
            class_links: Links {
                previous: NONE,
                next,
            },
            age_links: UNLINKED,
        };
        let next = |at| if at + 1 < capacity { at + 1 } else { NONE };
        Self {
            rate: TickRate::new(hz),
            slots: (0..capacity).map(|at| slot(next(at))).collect(),
            vacant: if capacity > 0 { 0 } else { NONE },
            classes: [EMPTY; CLASSES],
            occupied: 0,
            by_age: EMPTY,
            waiting: 0,
            wanted: Pages::ZERO,
            promised: Pages::ZERO,
            owed: 0,
        }
    }

    /// Takes a ticket; `None`: all are out. Then the task waits for anything to change, and tries
    /// again.
    #[must_use]
    pub fn join(&mut self, request: &Request) -> Option<Ticket> {
        let at = self.vacant;
        let slot = self.slots.get_mut(at as usize)?;
        self.vacant = slot.class_links.next;
        slot.serial = slot.serial.wrapping_add(1);
        slot.state = State::Waiting;
        slot.need = request.need.at_least(Pages(1)).at_most(CLUSTER);
        slot.since = request.since;
        slot.class = class_of(request.growth);
        let ticket = Ticket {
            slot: at,
            serial: slot.serial,
        };
        self.waiting += 1;
        self.wanted += slot.need;
        self.link_class(at);
        self.link_age(at);
        Some(ticket)
    }

    /// The pages granted to a ticket, if they have been.
    #[must_use]
    pub fn granted(&self, ticket: Ticket) -> Option<Pages> {
        match self.slot(ticket)?.state {
            State::Granted(pages) => Some(pages),
            State::Vacant | State::Waiting => None,
        }
    }

    /// Gives a ticket back, granted or not; pages promised to it are so no more. Its holder takes
    /// the pages first. Answers what had been granted.
    pub fn leave(&mut self, ticket: Ticket) -> Pages {
        let Some(slot) = self.slot(ticket) else {
            return Pages::ZERO;
        };
        let granted = match slot.state {
            State::Vacant => return Pages::ZERO,
            State::Waiting => {
                self.unlink(ticket.slot);
                Pages::ZERO
            }
            State::Granted(pages) => {
                self.promised -= pages;
                pages
            }
        };
        let vacant = self.vacant;
        let slot = &mut self.slots[ticket.slot as usize];
        slot.state = State::Vacant;
        slot.class_links.next = vacant;
        self.vacant = ticket.slot;
        granted
    }

    /// Hands out up to `room` pages, those that are free above the reserve and not promised, to at
    /// most `most` tickets. Names these in the order of the grants; answers how many pages are
    /// left.
    fn grant(
        &mut self,
        now: Instant,
        room: Pages,
        most: u32,
        mut woken: impl FnMut(Ticket),
    ) -> Pages {
        let mut left = room;
        for _ in 0..most {
            if left.is_zero() {
                break;
            }
            let Some((at, by_age)) = self.choose(now) else {
                break;
            };
            let pages = self.slots[at as usize].need.at_most(left);
            self.account(now, pages, by_age);
            left = left.saturating_sub(pages);
            woken(self.promise(at, pages));
        }
        left
    }

    /// Hands out up to `kept` pages, those that are kept back and not promised, to at most `most`
    /// of the first class, for whom they are kept, first come first served. Names these in the
    /// order of the grants.
    fn grant_kept(&mut self, kept: Pages, most: u32, mut woken: impl FnMut(Ticket)) {
        let mut left = kept;
        for _ in 0..most {
            let at = self.classes[0].first;
            if left.is_zero() || at == NONE {
                return;
            }
            let pages = self.slots[at as usize].need.at_most(left);
            left = left.saturating_sub(pages);
            woken(self.promise(at, pages));
        }
    }

    /// Hands out what is free, at most to `most` tickets, and what is kept back, to at most
    /// `most_kept`. Answers whether there may be more to hand out at once.
    pub fn hand_out(
        &mut self,
        now: Instant,
        stock: &Stock,
        (most, most_kept): (u32, u32),
        mut woken: impl FnMut(Ticket),
    ) -> bool {
        let mut count = 0;
        let left = self.grant(now, stock.above(self.promised), most, |ticket| {
            count += 1;
            woken(ticket);
        });
        if left.is_zero() {
            self.grant_kept(stock.kept(self.promised), most_kept, woken);
        }
        !left.is_zero() && count == most
    }

    fn promise(&mut self, at: u32, pages: Pages) -> Ticket {
        self.unlink(at);
        let slot = &mut self.slots[at as usize];
        slot.state = State::Granted(pages);
        let serial = slot.serial;
        self.promised += pages;
        Ticket { slot: at, serial }
    }

    /// When a wait that begins now reaches its bound: the beginning of a tick.
    #[must_use]
    pub fn deadline(&self, now: Instant) -> Instant {
        let rate = self.rate;
        let fires = rate.fires(rate.tick_at(now), rate.ticks_of(BOUND));
        rate.instant_of(fires)
    }

    /// The bound in whole ticks: the timeout that a trace line prints.
    #[must_use]
    pub fn bound(&self) -> Nanos {
        self.rate.nanos(self.rate.ticks_of(BOUND))
    }

    /// The length of a wait from `began` to `now`, as a trace line prints it: whole ticks, at most
    /// the bound.
    #[must_use]
    pub fn delayed(&self, began: Instant, now: Instant) -> Nanos {
        let rate = self.rate;
        let ticks = rate.tick_at(now).since(rate.tick_at(began));
        rate.nanos(ticks).at_most(self.bound())
    }

    /// Number of waiters.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Pages that those that wait have asked for.
    #[must_use]
    pub fn wanted(&self) -> Pages {
        self.wanted
    }

    /// Pages granted and not taken yet: they are free, but not available.
    #[must_use]
    pub fn promised(&self) -> Pages {
        self.promised
    }

    fn slot(&self, ticket: Ticket) -> Option<&Slot> {
        self.slots
            .get(ticket.slot as usize)
            .filter(|slot| slot.serial == ticket.serial)
    }

    /// The next ticket, and whether its age made it so.
    fn choose(&self, now: Instant) -> Option<(u32, bool)> {
        if self.waiting == 0 {
            return None;
        }
        if self.is_overdue(now) && self.owed >= RANKED_PER_OVERDUE {
            return Some((self.by_age.first, true));
        }
        let class = self.occupied.trailing_zeros() as usize;
        Some((self.classes[class].first, false))
    }

    fn is_overdue(&self, now: Instant) -> bool {
        self.slots
            .get(self.by_age.first as usize)
            .is_some_and(|oldest| now.since(oldest.since) >= OVERDUE)
    }

    fn account(&mut self, now: Instant, pages: Pages, by_age: bool) {
        let pages = i64::try_from(pages.0).unwrap_or(OWED_MOST);
        self.owed = if by_age {
            self.owed - RANKED_PER_OVERDUE * pages
        } else if self.is_overdue(now) {
            (self.owed + pages).min(OWED_MOST)
        } else {
            0
        };
    }

    fn link_class(&mut self, at: u32) {
        let class = usize::from(self.slots[at as usize].class);
        let last = self.classes[class].last;
        self.slots[at as usize].class_links = Links {
            previous: last,
            next: NONE,
        };
        match self.slots.get_mut(last as usize) {
            Some(slot) => slot.class_links.next = at,
            None => self.classes[class].first = at,
        }
        self.classes[class].last = at;
        self.occupied |= 1 << class;
    }

    /// Into the line by age: mostly at its end; a ticket that waits again goes back to where it
    /// was.
    fn link_age(&mut self, at: u32) {
        let since = self.slots[at as usize].since;
        let mut previous = self.by_age.last;
        while let Some(slot) = self.slots.get(previous as usize) {
            if slot.since <= since {
                break;
            }
            previous = slot.age_links.previous;
        }
        let next = match self.slots.get_mut(previous as usize) {
            Some(slot) => core::mem::replace(&mut slot.age_links.next, at),
            None => core::mem::replace(&mut self.by_age.first, at),
        };
        match self.slots.get_mut(next as usize) {
            Some(slot) => slot.age_links.previous = at,
            None => self.by_age.last = at,
        }
        self.slots[at as usize].age_links = Links { previous, next };
    }

    /// Takes a waiting ticket off both lines.
    fn unlink(&mut self, at: u32) {
        let Slot {
            class_links,
            age_links,
            class,
            need,
            ..
        } = self.slots[at as usize];
        let class = usize::from(class);
        match self.slots.get_mut(class_links.previous as usize) {
            Some(slot) => slot.class_links.next = class_links.next,
            None => self.classes[class].first = class_links.next,
        }
        match self.slots.get_mut(class_links.next as usize) {
            Some(slot) => slot.class_links.previous = class_links.previous,
            None => self.classes[class].last = class_links.previous,
        }
        if self.classes[class].first == NONE {
            self.occupied &= !(1 << class);
        }
        match self.slots.get_mut(age_links.previous as usize) {
            Some(slot) => slot.age_links.next = age_links.next,
            None => self.by_age.first = age_links.next,
        }
        match self.slots.get_mut(age_links.next as usize) {
            Some(slot) => slot.age_links.previous = age_links.previous,
            None => self.by_age.last = age_links.previous,
        }
        self.waiting -= 1;
        self.wanted -= need;
    }
}

/// Two classes for each power of two, those of 2^31 pages and more in the last.
fn class_of(growth: Pages) -> u8 {
    let Some(log) = growth.0.checked_ilog2() else {
        return 0;
    };
    let half = if log == 0 {
        0
    } else {
        growth.0 >> (log - 1) & 1
    };
    let class = 2 * u64::from(log) + half + 1;
    u8::try_from(class.min(CLASSES as u64 - 1)).unwrap_or(0)
}
