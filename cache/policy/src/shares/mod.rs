//! The division of one limit among several caches: by the evictions that each of them regrets.
//!
//! The cost of a split is the sum over the caches of misses times the cost of a miss. Nobody knows
//! the curves, but what was evicted and is missed again says how far off the memory was that would
//! have kept it. So memory moves, a little at a time, from the member that would regret least to
//! the member that regrets most.
//!
//! ```text
//!   evicted at age a, missed at age b      distance d = b - a          age: bytes ever evicted from the member
//!   regret[k] += cost of the miss          k = log2 of d / delta       delta = limit / 64;  k = 0 .. 6, then forgotten
//!   gain = max over k of (regret[0] + .. + regret[k]) / 2^k            ns saved by one delta more
//! ```
//!
//! The maximum over the octaves is the concave hull of the miss curve: a loop that does not fit
//! under LRU shows nothing at one delta, and everything at those that it lacks.
//!
//! An *epoch* ends when a sixteenth of the limit has been evicted altogether, and not before 50 ms.
//! At its end at most one transfer is made, and all regrets halve:
//!
//! | transfer | when | how much |
//! |---|---|---|
//! | by regret | weight x gain of the winner is above 5/4 of the loser's | delta, up to four times by the ratio |
//! | to even shares | it is above the loser's at all, and both targets are on their way to the shares by weight | delta / 4 |
//! | tie-break | neither the member nor the one that it carries regrets anything | four deltas |
//!
//! A target that is not used is lent: another may hold more than its own, as long as the sum fits.
//!
//! Vocabulary: *held*, bytes of a member now; *target*, bytes that are its own; *floor*, *ceiling*,
//! bounds of the target; *spare*, memory that the ceilings keep from everybody; *spared*, a member
//! that gave and won it back at once, which is not tried again for a while (a loop that just fits
//! regrets nothing until it is taken a page).
//!
//! | module | decides |
//! |---|---|
//! | `regret` | what misses say about more memory |
//! | `member` | what is known of one member, and what it may be |
//! | `transfer` | which member wins and which loses an epoch |
//! | `asks` | which members give memory back, and which may borrow |
//! | `rule` | what a memory's own caches have for shares |
//!
//! Invariants
//!   1. The sum of targets and the spare is the pool: the limit less what is kept back.
//!   2. No target is below its floor or above its ceiling.
//!   3. Nobody is asked for memory below its floor; memory over the targets goes first, in
//!      proportion.
//!   4. An epoch moves at most a sixteenth of the limit: four deltas.
//!
//! Concurrency: plain data behind `&mut`; it knows of no threads, names or caches.
//!
//! Source: ours ([ADR 21](../../../../docs/adr/0021-shares-by-regret.md)). The idea of shadow
//! queues and hill climbing is that of Cliffhanger (Cidon, Eisenman, Alizadeh, Katti: NSDI 2016);
//! other here are the cost of a miss, and octaves in place of one step.

mod asks;
mod member;
mod regret;
mod rule;
#[cfg(test)]
mod tests;
mod transfer;

use self::member::Member;
pub use self::member::{MemberId, Terms, View, Weight};
pub use self::regret::{COST_MAX, OCTAVES, Regrets, octave};
pub use self::rule::ShareRule;
pub use self::transfer::{Transfer, Why};
use crate::units::{Bytes, Instant, Nanos};

/// A delta is the limit over this.
const DELTAS: u64 = 64;
/// An epoch ends when the limit over this has been evicted.
const EPOCHS_A_LIMIT: u64 = 16;
/// Shortest epoch: below it costs are noise.
const EPOCH_MIN: Nanos = Nanos::millis(50);
/// Most members: they are walked several times a turn.
pub const MEMBERS_MAX: usize = 256;

/// The mover of targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Regret.
    #[default]
    ByRegret,
    /// Nothing: weights, floors and ceilings alone.
    Fixed,
}

/// Why terms or a limit were not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// The floors of all members come to more than the pool. `floors`: their sum, with the refused
    /// one.
    Floors {
        /// The sum of the floors.
        floors: Bytes,
        /// Bytes there are for all.
        pool: Bytes,
    },
    /// The ceiling is below the floor.
    Ceiling,
    /// There are `MEMBERS_MAX` already.
    Full,
    /// There is no such member (any more).
    Unknown,
}

/// Members and their targets.
#[derive(Clone, Debug)]
pub struct Shares {
    limit: Bytes,
    kept_back: Bytes,
    spare: Bytes,
    mode: Mode,
    members: Vec<Option<Member>>,
    /// Epochs that have ended.
    epoch: u64,
    began: Instant,
    /// In the present epoch, by all.
    evicted: Bytes,
}

impl Shares {
    /// No members. `limit`: for all of them together; at least 64 bytes count.
    #[must_use]
    pub fn new(limit: Bytes, mode: Mode, now: Instant) -> Self {
        Self {
            limit,
            kept_back: Bytes::ZERO,
            spare: limit,
            mode,
            members: Vec::new(),
            epoch: 0,
            began: now,
            evicted: Bytes::ZERO,
        }
    }

    /// Takes a member in. It gets what its weight is of all weights, at least its floor; everybody
    /// gives in proportion to what is above its floor.
    ///
    /// # Errors
    /// The floors do not fit, the ceiling is below the floor, or there are too many members.
    pub fn join(&mut self, terms: Terms) -> Result<MemberId, Refused> {
        self.would_fit(None, terms)?;
        let at = match self.members.iter().position(Option::is_none) {
            Some(at) => at,
            None if self.members.len() < MEMBERS_MAX => {
                self.members.push(None);
                self.members.len() - 1
            }
            None => return Err(Refused::Full),
        };
        let id = MemberId::of(at);
        let weights = self.weights() + terms.weight.sixteenths();
        let share = member::part(self.pool(), terms.weight.sixteenths(), weights);
        let share = share.at_least(terms.floor).at_most(terms.ceiling);
        // With nothing first: the others must give before it has it.
        self.take_from_all(share.saturating_sub(self.spare));
        let target = share.at_most(self.spare);
        self.spare -= target;
        self.members[at] = Some(Member::new(terms, target));
        self.give_spare();
        Ok(id)
    }

    /// A member is gone; its target goes to the others, by their weights.
    pub fn leave(&mut self, id: MemberId) {
        if let Some(gone) = self.members.get_mut(id.at()).and_then(Option::take) {
            self.spare += gone.target;
            self.give_spare();
            for member in self.members.iter_mut().flatten() {
                member.forget_carrier(id);
            }
        }
    }

    /// Other terms for a member.
    ///
    /// # Errors
    /// As `join`; then the old ones stay.
    pub fn set_terms(&mut self, id: MemberId, terms: Terms) -> Result<(), Refused> {
        if self.get(id).is_none() {
            return Err(Refused::Unknown);
        }
        self.would_fit(Some(id), terms)?;
        // First what the new floor lacks, from those above theirs; the member itself is at or below
        // it and keeps what it has.
        let missing = self.get(id).map_or(Bytes::ZERO, |member| {
            terms.floor.saturating_sub(member.target)
        });
        if let Some(member) = self.get_mut(id) {
            member.terms = Terms {
                floor: terms.floor.at_most(member.target),
                ..terms
            };
        }
        self.take_from_others(missing.saturating_sub(self.spare), id);
        let mut spare = self.spare;
        if let Some(member) = self.get_mut(id) {
            let target = member.target + missing.at_most(spare);
            spare -= target - member.target;
            member.terms = terms;
            member.target = target.at_most(terms.ceiling);
            spare += target - member.target;
        }
        self.spare = spare;
        self.give_spare();
        Ok(())
    }

    /// Another limit, of which `kept_back` is for nobody. Both more and less are shared in
    /// proportion to what each has above its floor: a limit that goes up and down leaves the
    /// targets as they were.
    ///
    /// # Errors
    /// The floors do not fit; then nothing changes.
    pub fn set_limit(&mut self, limit: Bytes, kept_back: Bytes) -> Result<(), Refused> {
        let pool = limit.saturating_sub(kept_back);
        let floors = self.floors();
        if floors > pool {
            return Err(Refused::Floors { floors, pool });
        }
        let before = self.pool();
        self.limit = limit;
        self.kept_back = kept_back;
        if pool >= before {
            self.spare += pool - before;
            self.stretch(pool - before);
        } else {
            let less = before - pool;
            self.take_from_all(less.saturating_sub(self.spare));
            self.spare -= less;
        }
        self.give_spare();
        Ok(())
    }

    /// A member holds so much now.
    pub fn set_held(&mut self, id: MemberId, held: Bytes) {
        if let Some(member) = self.get_mut(id) {
            member.held = held;
        }
    }

    /// Says whether a member is asked for memory at all. A member that is not keeps what it holds,
    /// and others give for it.
    pub fn set_askable(&mut self, id: MemberId, askable: bool) {
        if let Some(member) = self.get_mut(id) {
            member.askable = askable;
        }
    }

    /// Bytes were evicted from a member: its age, and the epoch's progress.
    pub fn evicted(&mut self, id: MemberId, bytes: Bytes) {
        if let Some(member) = self.get_mut(id) {
            member.age = member.age.saturating_add(bytes);
            self.evicted = self.evicted.saturating_add(bytes);
        }
    }

    /// Bytes ever evicted from a member: the age that an entry evicted now should remember.
    #[must_use]
    pub fn age(&self, id: MemberId) -> Bytes {
        self.get(id).map_or(Bytes::ZERO, |member| member.age)
    }

    /// One miss on something that was evicted `distance` bytes of age ago. `cost`: of the miss, at
    /// most a second counts.
    pub fn missed(&mut self, id: MemberId, distance: Bytes, cost: Nanos) {
        let mut regrets = Regrets::default();
        regrets.add(distance, self.delta(), cost);
        self.regretted(id, &regrets);
    }

    /// Several misses, summed up by a member that could not come here for each.
    pub fn regretted(&mut self, id: MemberId, regrets: &Regrets) {
        let epoch = self.epoch;
        if let Some(member) = self.get_mut(id) {
            member.regrets.join(regrets);
            if regrets.seen > 0 {
                member.regretted = Some(epoch);
            }
        }
    }

    /// A member was used in this epoch: found something, say. To be told once an epoch. A member
    /// that tells it is left alone as long as it is used and what it has just fits, and is the
    /// first to give when it is not.
    pub fn used(&mut self, id: MemberId) {
        let epoch = self.epoch;
        if let Some(member) = self.get_mut(id) {
            member.used = Some(epoch);
        }
    }

    /// A member evicted for want of room, a delta's worth since it last told: it uses its target,
    /// however little it holds. Entries as large as a shard of a cache leave most of it empty.
    pub fn filled(&mut self, id: MemberId) {
        let epoch = self.epoch;
        if let Some(member) = self.get_mut(id) {
            member.filled = Some(epoch);
        }
    }

    /// Bytes of one step: a 64th of the limit.
    #[must_use]
    pub fn delta(&self) -> Bytes {
        Bytes(self.limit.0 / DELTAS).at_least(Bytes(1))
    }

    /// Bytes that have to be evicted until the epoch can end.
    #[must_use]
    pub fn epoch_left(&self) -> Bytes {
        Bytes(self.limit.0 / EPOCHS_A_LIMIT).saturating_sub(self.evicted)
    }

    /// When the epoch can end, if enough was evicted.
    #[must_use]
    pub fn epoch_ends(&self) -> Instant {
        self.began + EPOCH_MIN
    }

    /// Epochs that have ended.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Ends the epoch if it is time, and answers what it moved. `now` never goes back.
    pub fn turn(&mut self, now: Instant) -> Option<Transfer> {
        if !self.epoch_left().is_zero() || now < self.epoch_ends() {
            return None;
        }
        self.evicted = Bytes::ZERO;
        self.began = now;
        let transfer = match self.mode {
            Mode::ByRegret => transfer::choose(self),
            Mode::Fixed => None,
        };
        if let Some(transfer) = transfer {
            transfer::book(self, transfer);
        }
        self.epoch += 1;
        for member in self.members.iter_mut().flatten() {
            member.regrets.fade();
        }
        transfer
    }

    /// The limit less what is kept back.
    #[must_use]
    pub fn pool(&self) -> Bytes {
        self.limit.saturating_sub(self.kept_back)
    }

    /// Bytes that the ceilings keep from everybody.
    #[must_use]
    pub fn spare(&self) -> Bytes {
        self.spare
    }

    /// Sum of the floors.
    #[must_use]
    pub fn floors(&self) -> Bytes {
        self.each().map(|(_, member)| member.terms.floor).sum()
    }

    /// The state of a member.
    #[must_use]
    pub fn view(&self, id: MemberId) -> Option<View> {
        self.get(id).map(Member::view)
    }

    /// All members, in the order of their numbers.
    pub fn views(&self) -> impl Iterator<Item = (MemberId, View)> {
        self.each().map(|(id, member)| (id, member.view()))
    }

    fn each(&self) -> impl Iterator<Item = (MemberId, &Member)> {
        let numbered = self.members.iter().enumerate();
        numbered.filter_map(|(at, member)| Some((MemberId::of(at), member.as_ref()?)))
    }

    fn get(&self, id: MemberId) -> Option<&Member> {
        self.members.get(id.at())?.as_ref()
    }

    fn get_mut(&mut self, id: MemberId) -> Option<&mut Member> {
        self.members.get_mut(id.at())?.as_mut()
    }

    /// True if a member has no room for more.
    fn uses_target(&self, member: &Member) -> bool {
        let lately = |epoch: u64| self.epoch <= epoch + 1;
        member.uses_target(self.delta()) || member.filled.is_some_and(lately)
    }

    fn weights(&self) -> u64 {
        self.each()
            .map(|(_, member)| member.terms.weight.sixteenths())
            .sum()
    }

    fn would_fit(&self, without: Option<MemberId>, terms: Terms) -> Result<(), Refused> {
        if terms.ceiling < terms.floor {
            return Err(Refused::Ceiling);
        }
        let others = self.each().filter(|(id, _)| Some(*id) != without);
        let floors = others.map(|(_, member)| member.terms.floor).sum::<Bytes>();
        let floors = floors.saturating_add(terms.floor);
        if floors > self.pool() {
            return Err(Refused::Floors {
                floors,
                pool: self.pool(),
            });
        }
        Ok(())
    }

    /// Moves `wanted` from the targets into the spare, in proportion to what is above the floors.
    fn take_from_all(&mut self, wanted: Bytes) {
        let above = |member: &Member| member.target.saturating_sub(member.terms.floor);
        let taken = member::in_proportion(&mut self.members, wanted, above, |member, bytes| {
            member.target -= bytes;
        });
        self.spare += taken;
    }

    /// Gives of the spare in proportion to what each has above its floor.
    fn stretch(&mut self, more: Bytes) {
        let above = |member: &Member| member.target.saturating_sub(member.terms.floor);
        let all = (self.members.iter().flatten()).map(above).sum::<Bytes>();
        if all.is_zero() {
            return;
        }
        for member in self.members.iter_mut().flatten() {
            let room = member.terms.ceiling.saturating_sub(member.target);
            let given = member::part(more, above(member).0, all.0).at_most(room);
            member.target += given;
            self.spare -= given;
        }
    }

    fn take_from_others(&mut self, wanted: Bytes, keeps: MemberId) {
        let kept = self.members.get_mut(keeps.at()).and_then(Option::take);
        self.take_from_all(wanted);
        if let Some(place) = self.members.get_mut(keeps.at()) {
            *place = kept;
        }
    }

    /// Gives the spare to the targets by weight, as far as the ceilings let it.
    fn give_spare(&mut self) {
        // Each round fills a ceiling, or is the last.
        for _ in 0..=self.members.len() {
            if self.spare.is_zero() {
                return;
            }
            let room = |member: &Member| member.terms.ceiling.saturating_sub(member.target);
            let weights: u64 = (self.each())
                .filter(|(_, member)| !room(member).is_zero())
                .map(|(_, member)| member.terms.weight.sixteenths())
                .sum();
            if weights == 0 {
                return;
            }
            let (whole, mut left) = (self.spare, self.spare);
            for member in self.members.iter_mut().flatten() {
                let wants = member::part_ceil(whole, member.terms.weight.sixteenths(), weights);
                let given = wants.at_most(room(member)).at_most(left);
                member.target += given;
                left -= given;
            }
            self.spare = left;
        }
    }
}
