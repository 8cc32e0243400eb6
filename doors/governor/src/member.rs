//! A member: what it reports, and memory that is reserved before it is taken.
//!
//! Reports are atomics and ring a bell only where somebody has to act; they wait for nothing.
//! `reserve` is the only call here that may sleep.

use std::hash::{BuildHasher as _, Hash};
use std::sync::Arc;
use std::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use policy::shares::{COST_MAX, MemberId, Refused, Terms, octave};
use policy::units::Bytes;

use crate::ghost::Ghost;
use crate::governor::Governor;
use crate::seat::{Entry, MemberState};
use crate::state::{Core, Inner};
use crate::turn::in_scan;
use crate::{Error, Share, Shrinker};

impl Share {
    /// Each use of this one's entries is a use of the other's, and not the reverse (the pages of a
    /// file and its inode, a block and its index). As long as neither misses anything, this one
    /// gives first.
    #[must_use]
    pub fn carried_by(mut self, carrier: &Member) -> Self {
        self.carried_by = Some(carrier.id());
        self
    }
}

impl Governor {
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
}

/// A member's reports and permits. Dropping it ends the membership: its target goes to the others,
/// and what it held does not count any more.
///
/// Calls come from any thread. The governor's thread lives as long as a member or a [`Governor`]
/// does; a shrinker that keeps its own `Member` is never dropped.
pub struct Member {
    pub(crate) seat: Arc<MemberState>,
    pub(crate) governor: Governor,
}

impl Member {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.seat.name
    }

    /// Bytes it holds, as reported or as last seen.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.seat.held()
    }

    /// It holds `bytes` more. Never waits; where the sum is too large somebody is asked at once.
    pub fn grew(&self, bytes: u64) {
        self.inner().grew(&self.seat, bytes);
    }

    /// It holds `bytes` less. More than it held counts as all.
    pub fn shrank(&self, bytes: u64) {
        self.inner().shrank(&self.seat, bytes);
    }

    /// Memory before it is taken: counts as held at once, until the permit is dropped.
    ///
    /// Above 15/16 of the limit it waits for as long as freeing so much takes at the rate that was
    /// seen, so that growth slows before it stops; at the limit it waits for memory, first come
    /// first served, 200 ms at most ([`Builder::wait_max`](crate::Builder::wait_max)).
    ///
    /// # Errors
    /// [`Error::Full`] names the member in the way; [`Error::LargerThanLimit`] where it never fits;
    /// [`Error::InScan`] inside a scan.
    pub fn reserve(&self, bytes: u64) -> Result<Permit, Error> {
        self.reserve_within(bytes, self.inner().wait_max)
    }

    /// The same, with a bound of one's own for the wait; `Duration::MAX`: for as long as it takes.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    pub fn reserve_within(&self, bytes: u64, at_most: Duration) -> Result<Permit, Error> {
        let inner = self.inner();
        if in_scan() {
            return Err(Error::InScan {
                member: self.seat.name.clone(),
            });
        }
        inner.reserve(&self.seat, bytes, at_most)?;
        self.seat.permitted.fetch_add(bytes, SeqCst);
        Ok(Permit {
            seat: self.seat.clone(),
            inner: inner.clone(),
            bytes,
        })
    }

    /// The entry with this hash, of `bytes` bytes, was evicted to make room. (A replaced or removed
    /// entry is not evicted.)
    ///
    /// Any hash will do that is the same in [`missed`](Self::missed); see [`hash`](Self::hash).
    /// Does not change what is held.
    pub fn evicted(&self, hash: u64, bytes: u64) {
        let (seat, inner) = (&self.seat, self.inner());
        let ghost = seat.ghost.get_or_init(|| Ghost::new(inner.limit()));
        let age = seat.age.fetch_add(bytes, Relaxed);
        ghost.evicted(hash, age);
        seat.entries.fetch_add(1, Relaxed);
        seat.largest.fetch_max(bytes, Relaxed);
        seat.evicted.fetch_add(bytes, Relaxed);
        inner.evicted(bytes);
    }

    /// An entry was wanted, and was there or not.
    #[cfg(feature = "quick-cache")]
    pub(crate) fn looked_up<Q: Hash + ?Sized>(&self, key: &Q, is_there: bool) {
        if is_there {
            self.used();
        } else {
            self.missed(self.hash(key));
        }
    }

    /// The entry with this hash was wanted and was not there. If it was evicted a while ago, more
    /// memory would have kept it, and its cost counts for that: as
    /// [`Share::miss_cost`](crate::Share::miss_cost) has it.
    pub fn missed(&self, hash: u64) {
        self.missed_at(
            hash,
            Duration::from_nanos(self.seat.miss_cost.load(Relaxed)),
        );
    }

    /// The same, with the time that it took to get it. More than a second counts as one.
    pub fn missed_at(&self, hash: u64, cost: Duration) {
        let seat = &self.seat;
        self.used();
        let Some(ghost) = seat.ghost.get() else {
            return;
        };
        let Some(found) = ghost.missed(hash, seat.age.load(Relaxed)) else {
            return;
        };
        let delta = self.inner().delta();
        let Some(octave) = octave(Bytes(found.distance), Bytes(delta)) else {
            return;
        };
        let cost = u64::try_from(cost.as_nanos()).unwrap_or(u64::MAX);
        let cost = cost.min(COST_MAX.0).saturating_mul(found.stands_for);
        seat.regrets[octave].fetch_add(cost, Relaxed);
        seat.seen.fetch_add(seat.evidence(delta), Relaxed);
    }

    /// `bytes` bytes were evicted, to make room. For a cache that remembers by itself what it
    /// evicted, with `missed_after`; not beside [`evicted`](Self::evicted).
    pub fn evicted_bytes(&self, bytes: u64) {
        let (seat, inner) = (&self.seat, self.inner());
        seat.age.fetch_add(bytes, Relaxed);
        seat.evicted.fetch_add(bytes, Relaxed);
        inner.evicted(bytes);
    }

    /// `misses` entries were wanted that had gone, each while `distance` more bytes were evicted:
    /// what more memory would have kept. `cost`: of one; more than a second counts as one.
    pub fn missed_after(&self, distance: u64, misses: u64, cost: Duration) {
        if misses == 0 {
            return;
        }
        let seat = &self.seat;
        self.used();
        let Some(octave) = octave(Bytes(distance), Bytes(self.inner().delta())) else {
            return;
        };
        let cost = u64::try_from(cost.as_nanos()).unwrap_or(u64::MAX);
        let cost = cost.min(COST_MAX.0).saturating_mul(misses);
        seat.regrets[octave].fetch_add(cost, Relaxed);
        seat.seen.fetch_add(misses, Relaxed);
    }

    /// It is used: something was found, say. Cheap enough for every hit. A member that never says
    /// so is taken for idle only by its misses.
    pub fn used(&self) {
        // Looked at first: written only once a turn, so that the line stays with all that read it.
        if !self.seat.used.load(Relaxed) {
            self.seat.used.store(true, Relaxed);
        }
    }

    /// A hash for [`evicted`](Self::evicted) and [`missed`](Self::missed), the same for equal keys
    /// as long as the governor lives.
    #[must_use]
    pub fn hash<K: Hash + ?Sized>(&self, key: &K) -> u64 {
        self.inner().hasher.hash_one(key)
    }

    /// The governor it belongs to.
    #[must_use]
    pub fn governor(&self) -> &Governor {
        &self.governor
    }

    pub(crate) fn id(&self) -> MemberId {
        self.seat.id
    }

    fn inner(&self) -> &Arc<Inner> {
        &self.governor.inner
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.inner().leave(&self.seat);
    }
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Member({}, {} bytes held)", self.seat.name, self.held())
    }
}

/// Memory that was reserved. Dropping it gives the memory back.
pub struct Permit {
    seat: Arc<MemberState>,
    inner: Arc<Inner>,
    bytes: u64,
}

impl Permit {
    /// Number of bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives a part back; more than it has is all of it.
    pub fn release(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.inner.gave_up(&self.seat, bytes);
    }

    /// Takes another permit of the same member in.
    ///
    /// # Errors
    /// It belongs to another member, and is given back as it was.
    pub fn merge(&mut self, mut other: Self) -> Result<(), Self> {
        if !Arc::ptr_eq(&self.seat, &other.seat) {
            return Err(other);
        }
        self.bytes += std::mem::take(&mut other.bytes);
        Ok(())
    }

    /// The memory stays held without the permit, until [`Member::shrank`] says otherwise.
    pub fn keep(mut self) {
        let kept = std::mem::take(&mut self.bytes);
        self.seat.permitted.fetch_sub(kept, SeqCst);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.inner.gave_up(&self.seat, self.bytes);
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Permit({}, {} bytes)", self.seat.name, self.bytes)
    }
}
