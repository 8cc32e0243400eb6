//! The device's knowledge of its objects: which there are, which hold data, and the version last
//! seen of each.
//!
//! ```text
//!   exists  data   reads as        next put
//!     0      0     zeroes          create: fails if somebody made it meanwhile
//!     1      0     zeroes          update of the version last seen (the object is empty)
//!     1      1     its content     update of the version last seen
//! ```
//!
//! A list may say of an object that it is empty without a version that proves it. Such a one is
//! *unproven*: it counts as data until it was looked at.
//!
//! A put without an answer may have been done, or be done later: its content is remembered as a
//! digest, so that a late write of its own is not taken for another writer's.
//!
//! Versions are kept for `TAGS_MAX` objects; of others the version is asked for before the next
//! put, and a change by somebody else between the two is not noticed there (the lease stands
//! against that).

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, DefaultHasher, Hasher, RandomState};

/// Versions kept, at most: 16 GiB of 1 MiB objects.
pub(crate) const TAGS_MAX: usize = 16_384;
/// Heap bytes of one of them, at most, with what the tree adds.
pub(crate) const TAG_BYTES: u64 = 192;
/// Puts without an answer that are remembered of one object; older ones have long been cut off by
/// the server.
const TRIED_MAX: usize = 32;

/// A digest of an object's content: against chance, not against forgers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digest(u64, u64);

/// Makes a digest of content that comes in pieces.
pub(crate) struct Digester(DefaultHasher, DefaultHasher);

impl Digester {
    pub(crate) fn new() -> Self {
        let salted = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u8(salt);
            hasher
        };
        Self(salted(1), salted(2))
    }

    pub(crate) fn add(&mut self, piece: &[u8]) {
        self.0.write(piece);
        self.1.write(piece);
    }

    pub(crate) fn end(&self) -> Digest {
        Digest(self.0.finish(), self.1.finish())
    }
}

impl Digest {
    pub(crate) fn of(body: &[u8]) -> Self {
        let mut digester = Digester::new();
        digester.add(body);
        digester.end()
    }
}

/// One bit per object.
struct Bits(Vec<u64>);

impl Bits {
    fn new(count: u64) -> Self {
        let words =
            usize::try_from(count.div_ceil(64)).expect("objects are bounded by `OBJECTS_MAX`");
        Self(vec![0; words])
    }

    fn get(&self, object: u64) -> bool {
        self.word(object) >> (object % 64) & 1 == 1
    }

    fn word(&self, object: u64) -> u64 {
        usize::try_from(object / 64)
            .ok()
            .and_then(|place| self.0.get(place))
            .copied()
            .unwrap_or(0)
    }

    fn set(&mut self, object: u64, value: bool) {
        let place = usize::try_from(object / 64).expect("an object of the volume");
        let bit = 1 << (object % 64);
        if value {
            self.0[place] |= bit;
        } else {
            self.0[place] &= !bit;
        }
    }
}

/// The last look at one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The version last seen.
    pub(crate) tag: Option<Box<str>>,
    /// Puts without an answer since then.
    pub(crate) tried: Vec<Digest>,
    /// A put is under way.
    pub(crate) flying: bool,
}

impl Seen {
    /// The version that everybody must read now, if that is certain.
    pub(crate) fn certain(&self) -> Option<&str> {
        let quiet = !self.flying && self.tried.is_empty();
        self.tag.as_deref().filter(|_| quiet)
    }
}

/// All of it.
pub(crate) struct Known {
    exists: Bits,
    data: Bits,
    seen: BTreeMap<u64, Seen>,
    most: usize,
    hand: u64,
    count: u64,
}

impl Known {
    pub(crate) fn new(count: u64, most: usize) -> Self {
        Self {
            exists: Bits::new(count),
            data: Bits::new(count),
            seen: BTreeMap::new(),
            most,
            hand: 0,
            count,
        }
    }

    pub(crate) fn exists(&self, object: u64) -> bool {
        // One that is unproven has the second bit alone.
        self.exists.get(object) || self.data.get(object)
    }

    /// True if it holds data; otherwise it reads as zeroes.
    pub(crate) fn has_data(&self, object: u64) -> bool {
        self.data.get(object)
    }

    /// True for an object that may be empty, though it counts as data.
    pub(crate) fn is_unproven(&self, object: u64) -> bool {
        self.data.get(object) && !self.exists.get(object)
    }

    /// A list says that it is empty, which a look at it has to prove.
    pub(crate) fn found_unproven(&mut self, object: u64, tag: Option<&str>) {
        self.found(object, tag, true);
        self.exists.set(object, false);
    }

    pub(crate) fn seen(&self, object: u64) -> Seen {
        self.seen.get(&object).cloned().unwrap_or_default()
    }

    /// The object was seen in this version, which is nobody else's.
    pub(crate) fn found(&mut self, object: u64, tag: Option<&str>, has_data: bool) {
        self.exists.set(object, true);
        self.data.set(object, has_data);
        let entry = self.seen.entry(object).or_default();
        entry.tag = tag.map(Into::into);
        entry.tried.clear();
        self.tidy(object);
    }

    /// A put begins.
    pub(crate) fn put_begins(&mut self, object: u64) {
        self.seen.entry(object).or_default().flying = true;
        self.bound();
    }

    /// A put ended well. In one step with `found`: a reader must not see the old version called
    /// certain.
    pub(crate) fn put_done(&mut self, object: u64, tag: Option<&str>, has_data: bool) {
        self.seen.entry(object).or_default().flying = false;
        self.found(object, tag, has_data);
    }

    /// A put ended without success; `tried`: it may have been done, or be done later.
    pub(crate) fn put_failed(&mut self, object: u64, tried: Option<Digest>) {
        let entry = self.seen.entry(object).or_default();
        entry.flying = false;
        if let Some(digest) = tried {
            entry.tried.retain(|old| *old != digest);
            entry.tried.push(digest);
        }
        if entry.tried.len() > TRIED_MAX {
            entry.tried.remove(0);
        }
        self.tidy(object);
    }

    fn tidy(&mut self, object: u64) {
        if self.seen.get(&object) == Some(&Seen::default()) {
            self.seen.remove(&object);
        }
        self.bound();
    }

    /// From `object` on: how many objects hold data, or do not; and which of the two. Up to `end`.
    pub(crate) fn run(&self, object: u64, end: u64) -> (u64, bool) {
        let end = end.min(self.count);
        let data = self.has_data(object);
        let mut at = object + 1;
        while at < end {
            let same = if data { u64::MAX } else { 0 };
            if at.is_multiple_of(64) && at + 64 <= end && self.data.word(at) == same {
                at += 64;
            } else if self.has_data(at) == data {
                at += 1;
            } else {
                break;
            }
        }
        (at.min(end).max(object + 1) - object, data)
    }

    /// The first object of each run of those that do not exist: `most` at most, by chance.
    pub(crate) fn unlisted(&self, most: usize) -> Vec<u64> {
        let mut chosen = Vec::new();
        let mut gaps = 0;
        let mut before = true;
        for object in 0..self.count {
            let exists = self.exists(object);
            if !exists && before {
                gaps += 1;
                let chance = RandomState::new().hash_one(object) % gaps;
                if chosen.len() < most {
                    chosen.push(object);
                } else if let Some(place) = usize::try_from(chance).ok().filter(|at| *at < most) {
                    chosen[place] = object;
                }
            }
            before = exists;
        }
        chosen
    }

    /// Number of objects that hold data.
    pub(crate) fn filled(&self) -> u64 {
        self.data
            .0
            .iter()
            .map(|word| u64::from(word.count_ones()))
            .sum()
    }

    /// Forgets versions over the bound, in turn; never a version that a put depends on.
    fn bound(&mut self) {
        let mut looked = 0;
        while self.seen.len() > self.most && looked <= 2 * self.most {
            looked += 1;
            let Some((&object, entry)) = self.seen.range(self.hand..).next() else {
                self.hand = 0;
                continue;
            };
            self.hand = object + 1;
            if entry.tried.is_empty() && !entry.flying {
                self.seen.remove(&object);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_holes_and_data() {
        let mut known = Known::new(1000, 10);
        assert_eq!(known.run(0, 1000), (1000, false));
        for object in 100..500 {
            known.found(object, None, true);
        }
        known.found(300, Some("empty"), false);
        assert_eq!(known.run(0, 1000), (100, false));
        assert_eq!(known.run(100, 1000), (200, true));
        assert_eq!(known.run(300, 1000), (1, false));
        assert_eq!(known.run(301, 400), (99, true));
        assert_eq!(known.run(301, 1000), (199, true));
        assert_eq!(known.run(500, 1000), (500, false));
        assert_eq!(known.run(999, 5000), (1, false));
        assert_eq!(known.filled(), 399);
    }

    #[test]
    fn gaps_are_found_where_they_begin() {
        let mut known = Known::new(1000, 10);
        assert_eq!(known.unlisted(8), [0]);
        for object in (0..1000).filter(|object| !(400..420).contains(object)) {
            known.found(object, None, object % 7 > 0);
        }
        assert_eq!(known.unlisted(8), [400]);
        let mut sparse = Known::new(1000, 10);
        (0..1000)
            .step_by(3)
            .for_each(|object| sparse.found(object, None, true));
        let looked = sparse.unlisted(8);
        assert!(
            looked.len() == 8 && looked.iter().all(|object| object % 3 == 1),
            "{looked:?}"
        );
    }

    #[test]
    fn versions_are_bounded_but_none_that_is_needed_goes() {
        let mut known = Known::new(1000, 8);
        known.put_begins(3);
        known.put_failed(4, Some(Digest::of(b"x")));
        for object in 0..1000 {
            if object != 3 && object != 4 {
                known.found(object, Some("tag"), true);
            }
        }
        assert!(known.seen.len() <= 8, "{}", known.seen.len());
        assert!(known.seen(3).flying);
        assert_eq!(known.seen(4).tried, [Digest::of(b"x")]);
        assert_eq!(known.seen(999).certain(), Some("tag"));
        assert!(known.exists(7) && known.seen(7).tag.is_none());
    }

    #[test]
    fn a_version_is_certain_only_while_nothing_is_under_way() {
        let mut known = Known::new(10, 8);
        known.found(1, Some("a"), true);
        assert_eq!(known.seen(1).certain(), Some("a"));
        known.put_begins(1);
        assert_eq!(known.seen(1).certain(), None);
        known.put_failed(1, Some(Digest::of(b"y")));
        assert_eq!(known.seen(1).certain(), None);
        known.found(1, Some("b"), true);
        assert_eq!(known.seen(1).certain(), Some("b"));
    }

    #[test]
    fn a_digest_does_not_depend_on_the_pieces() {
        let body: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
        for size in [1, 7, 4096, 99_999] {
            let mut digester = Digester::new();
            body.chunks(size).for_each(|piece| digester.add(piece));
            assert_eq!(digester.end(), Digest::of(&body), "{size}");
        }
        assert_ne!(Digest::of(&body[1..]), Digest::of(&body));
    }

    #[test]
    fn what_was_tried_is_bounded() {
        let mut known = Known::new(10, 8);
        for round in 0..100_u8 {
            known.put_failed(0, Some(Digest::of(&[round])));
        }
        assert_eq!(known.seen(0).tried.len(), TRIED_MAX);
        assert!(known.seen(0).tried.contains(&Digest::of(&[99])));
    }
}
