//! Where memory goes when pages and caches of objects share it: the cache that holds most above its
//! share gives, and shares follow what is missed (`policy::shares`).
//!
//! ```text
//!   a pass wants T ----> each gives T x over / sum of over                     (`pass` asks them)
//!   a page or an object comes back that was evicted ----> its regret           (`page_missed`, `objects_missed`)
//!   a sixteenth of the memory was evicted ----> at most a sixteenth changes hands
//! ```
//!
//! All pages on the lists of reclaim are one member; which of them go is the business of the lists.
//! A cache of objects is one if it says what it holds (`Shrink::held`); others are asked by
//! pressure, as in Linux.
//!
//! Invariants
//!   1. Nothing is locked beside `state` while it is.
//!   2. Where no cache of objects is a member, nothing of this is asked, and all is as without it.
//!
//! Source: ours (ADR 21). The cost of a missed page is the mean that a page's read takes, over the
//! last few: what is read at once shares its time.

use env::{Context, Lock, LockClass};
use policy::shares::{MemberId, ShareRule, Shares, Terms, Transfer};
use policy::units::{Bytes, Instant, Nanos, Pages};

use mm::Error;

/// Most caches of objects that share the memory: each has a 64th of it as its floor, and pages up
/// to a quarter.
const SHARING_MAX: u32 = 48;

/// The place of a registered cache of objects among those that share the memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectShare(pub(crate) Option<MemberId>);

impl ObjectShare {
    /// True if it has one, and anybody wants to know what it evicts.
    #[must_use]
    pub fn is_some(self) -> bool {
        self.0.is_some()
    }
}

/// The share of a member of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareView {
    /// `pages`, or the name of the cache of objects.
    pub name: &'static str,
    /// Bytes it holds.
    pub held: Bytes,
    /// Bytes that are its own.
    pub target: Bytes,
    /// Its target is never below.
    pub floor: Bytes,
    /// The time that a 64th of the memory more would save it, by its misses of late.
    pub gain: Nanos,
}

/// See the module.
pub(crate) struct MemoryShares {
    rule: ShareRule,
    state: Lock<State>,
}

struct State {
    shares: Shares,
    pages: MemberId,
    /// The member that carries the pages.
    carrier: Option<MemberId>,
    limit: Bytes,
    /// Caches of objects.
    members: u32,
    moved: u64,
}

/// The request of a pass.
pub(crate) struct Asks {
    pub(crate) pages: Pages,
    pub(crate) objects: Vec<(MemberId, Pages)>,
}

/// The demands of the law of writers on pages.
#[derive(Clone, Copy, Default)]
pub(crate) struct Writers {
    /// Bytes that all devices write in a second.
    pub(crate) written: Bytes,
    /// Of `files` bytes, those that may be dirty.
    pub(crate) dirty: Bytes,
    pub(crate) files: Bytes,
}

impl MemoryShares {
    /// Of a memory of `limit`, of pages alone.
    pub(crate) fn new(rule: ShareRule, limit: Bytes, now: Instant) -> Self {
        let mut shares = Shares::new(limit, rule.mode, now);
        let floor = ShareRule::floor_of_objects(limit);
        let pages = shares.join(rule.terms_of_pages(floor, None));
        Self {
            rule,
            state: Lock::new(
                LockClass::Leaf,
                State {
                    shares,
                    pages: pages.expect("one floor fits the limit that it is a part of"),
                    carrier: None,
                    limit,
                    members: 0,
                    moved: 0,
                },
            ),
        }
    }

    /// Takes a cache of objects in. `carries`: pages of files are carried by its objects.
    pub(crate) fn join(&self, context: &impl Context, carries: bool) -> Result<MemberId, Error> {
        let state = &mut *self.state.lock(context);
        let terms = Terms {
            floor: ShareRule::floor_of_objects(state.limit),
            ..Terms::default()
        };
        let too_many = Error::TooMany {
            what: "caches of objects that share the memory",
            limit: SHARING_MAX,
        };
        if state.members == SHARING_MAX {
            return Err(too_many);
        }
        let id = state.shares.join(terms).map_err(|_| too_many)?;
        state.members += 1;
        if carries {
            state.carrier = Some(id);
        }
        Ok(id)
    }

    /// The part of `wanted` that each is to give; all say how much they hold: the pages, and those
    /// of `objects`.
    pub(crate) fn asks(
        &self,
        context: &impl Context,
        wanted: Pages,
        pages: Pages,
        objects: &[(MemberId, Pages)],
    ) -> Asks {
        let state = &mut *self.state.lock(context);
        state.shares.set_held(state.pages, pages.bytes());
        for (id, held) in objects {
            state.shares.set_held(*id, held.bytes());
        }
        let asked = state.shares.asks(wanted.bytes());
        let mut asks = Asks {
            pages: Pages::ZERO,
            objects: Vec::new(),
        };
        for (id, bytes) in asked {
            let part = Pages(bytes.0.div_ceil(policy::units::PAGE_SIZE));
            if id == state.pages {
                asks.pages = part;
            } else {
                asks.objects.push((id, part));
            }
        }
        asks
    }

    /// Pages were evicted. At the end of an epoch `writers` is asked for, and the answer is what
    /// was moved.
    pub(crate) fn evicted_pages(
        &self,
        context: &impl Context,
        now: Instant,
        pages: Pages,
        limit: Bytes,
        writers: impl FnOnce() -> Writers,
    ) -> Option<Transfer> {
        let ends = {
            let state = &mut *self.state.lock(context);
            state.shares.evicted(state.pages, pages.bytes());
            state.shares.epoch_left().is_zero() && now >= state.shares.epoch_ends()
        };
        if !ends {
            return None;
        }
        // Asked with nothing held.
        let writers = writers();
        let state = &mut *self.state.lock(context);
        let transfer = state.shares.turn(now);
        state.moved += u64::from(transfer.is_some());
        if limit != state.limit && state.shares.set_limit(limit, Bytes::ZERO).is_ok() {
            state.limit = limit;
        }
        let Writers {
            written,
            dirty,
            files,
        } = writers;
        let floor = self.rule.floor_of_pages(state.limit, written, dirty, files);
        let terms = self.rule.terms_of_pages(floor, state.carrier);
        // A floor that does not fit any more stays as it was until the limit is higher.
        let _ = state.shares.set_terms(state.pages, terms);
        transfer
    }

    /// A page comes back that was evicted `distance` evictions ago; its read takes `cost`.
    pub(crate) fn page_missed(&self, context: &dyn Context, distance: Pages, cost: Nanos) {
        let state = &mut *self.state.lock(&context);
        state.shares.missed(state.pages, distance.bytes(), cost);
    }

    /// Objects of a member are evicted; answers its age before.
    pub(crate) fn evicted_objects(
        &self,
        context: &impl Context,
        id: MemberId,
        bytes: Bytes,
    ) -> Bytes {
        let state = &mut *self.state.lock(context);
        let age = state.shares.age(id);
        state.shares.evicted(id, bytes);
        age
    }

    /// One is made again that was freed at that age.
    pub(crate) fn object_missed(
        &self,
        context: &impl Context,
        id: MemberId,
        age: Bytes,
        cost: Nanos,
    ) {
        let state = &mut *self.state.lock(context);
        let distance = state.shares.age(id).saturating_sub(age);
        state.shares.missed(id, distance, cost);
    }

    /// The shares of all, the pages first; and the number of transfers.
    pub(crate) fn views(
        &self,
        context: &impl Context,
        names: &[(MemberId, &'static str)],
    ) -> (Vec<ShareView>, u64) {
        let state = &*self.state.lock(context);
        let named = [(state.pages, "pages")]
            .into_iter()
            .chain(names.iter().copied());
        let views = named.filter_map(|(id, name)| {
            let view = state.shares.view(id)?;
            Some(ShareView {
                name,
                held: view.held,
                target: view.target,
                floor: view.terms.floor,
                gain: view.gain,
            })
        });
        (views.collect(), state.moved)
    }
}

#[cfg(test)]
mod tests {
    use env::Interrupt;

    use super::*;

    #[test]
    fn so_many_share_the_memory_that_their_floors_leave_pages_theirs() {
        let (context, memory) = (Interrupt::new(), Bytes(1 << 30));
        let shares = MemoryShares::new(ShareRule::TIDEGATE, memory, Instant(0));
        for _ in 0..SHARING_MAX {
            shares.join(&context, false).unwrap();
        }
        let one_more = shares.join(&context, false).unwrap_err();
        assert!(
            matches!(
                one_more,
                Error::TooMany {
                    limit: SHARING_MAX,
                    ..
                }
            ),
            "{one_more}"
        );
        // The highest floor of pages fits beside them.
        let writers = Writers {
            written: memory,
            dirty: Bytes(1),
            files: memory,
        };
        let now = Instant(Nanos::secs(1).0);
        let _ = shares.evicted_pages(&context, now, Pages(memory.0 / 4096), memory, || writers);
        let (views, _) = shares.views(&context, &[]);
        assert_eq!(views[0].floor, Bytes(memory.0 / 4));
    }
}
