//! The state of one member, and its terms.

use super::regret::Regrets;
use crate::units::{Bytes, Nanos};

/// Names a member for as long as it is one; its number is given again afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(u16);

impl MemberId {
    pub(super) fn of(at: usize) -> Self {
        Self(u16::try_from(at).expect("there are at most MEMBERS_MAX"))
    }

    /// Its place in a table of members.
    #[must_use]
    pub fn at(self) -> usize {
        usize::from(self.0)
    }
}

/// The weight of a nanosecond of one member's misses beside another's: 1/16 to 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(u16);

impl Weight {
    /// As it is unless somebody sets it.
    pub const ONE: Self = Self(16);

    /// A weight in sixteenths: 1 to 256; none for what is outside.
    #[must_use]
    pub const fn in_sixteenths(sixteenths: u32) -> Option<Self> {
        match sixteenths {
            #[expect(clippy::cast_possible_truncation, reason = "the pattern bounds it")]
            1..=256 => Some(Self(sixteenths as u16)),
            _ => None,
        }
    }

    /// In sixteenths.
    #[must_use]
    pub const fn sixteenths(self) -> u64 {
        self.0 as u64
    }
}

/// A member's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Its target is never below.
    pub floor: Bytes,
    /// Its target is never above; `Bytes::MAX` for none.
    pub ceiling: Bytes,
    /// The weight of its regret, and its part where nobody regrets anything.
    pub weight: Weight,
    /// The member whose entries stand for entries of this one, so that each use of this is one of
    /// that, and not the reverse (an inode for the pages of its file). Where neither regrets
    /// anything, this one gives first, down to its floor.
    pub carried_by: Option<MemberId>,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            floor: Bytes::ZERO,
            ceiling: Bytes::MAX,
            weight: Weight::ONE,
            carried_by: None,
        }
    }
}

/// A member as others see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Its terms.
    pub terms: Terms,
    /// Bytes it holds.
    pub held: Bytes,
    /// Bytes that are its own.
    pub target: Bytes,
    /// Bytes ever evicted from it.
    pub age: Bytes,
    /// The gain of one delta more in an epoch, from regrets that halve with each.
    pub gain: Nanos,
    /// Regrets that stood behind it, faded.
    pub regrets: u64,
}

/// A member that gave and won it back: not tried again until an epoch, unless somebody regrets
/// twice as much as then.
#[derive(Clone, Copy, Debug, Default)]
struct Spared {
    /// Epochs of the last time; the next is longer.
    span: u64,
    until: u64,
    /// Weighted gain of the member that took it.
    gain: u64,
}

impl Spared {
    const SPAN_MIN: u64 = 8;
    /// Each trial that fails makes the next this many times later: the fourth comes after half an
    /// hour or more, as an epoch has 50 ms at least.
    const LONGER: u64 = 16;
    /// Most epochs, of one whose use is known: it is not spared when that ends.
    const SPAN_MAX: u64 = 1 << 16;
    /// Most epochs of a member that says nothing of its use: an end of it is found after this many.
    const SPAN_MAX_SILENT: u64 = 1 << 10;

    fn again(&mut self, epoch: u64, gain: u64, use_is_known: bool) {
        let longest = if use_is_known {
            Self::SPAN_MAX
        } else {
            Self::SPAN_MAX_SILENT
        };
        self.span = (self.span * Self::LONGER).clamp(Self::SPAN_MIN, longest);
        self.until = epoch + self.span;
        self.gain = gain;
    }
}

/// When a member last gave, and what the winner would save.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gave {
    epoch: u64,
    gain: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) terms: Terms,
    pub(super) held: Bytes,
    pub(super) target: Bytes,
    pub(super) age: Bytes,
    pub(super) askable: bool,
    pub(super) regrets: Regrets,
    /// The last epoch in which it regretted anything.
    pub(super) regretted: Option<u64>,
    /// The last epoch in which it said that it was used; none if it never says so.
    pub(super) used: Option<u64>,
    /// The last epoch in which it said that it evicted for want of room.
    pub(super) filled: Option<u64>,
    spared: Spared,
    gave: Option<Gave>,
}

impl Member {
    /// Epochs within which winning back means that it should not have been taken.
    const REPENTED: u64 = 8;

    pub(super) fn new(terms: Terms, target: Bytes) -> Self {
        Self {
            terms,
            held: Bytes::ZERO,
            target,
            age: Bytes::ZERO,
            askable: true,
            regrets: Regrets::default(),
            regretted: None,
            used: None,
            filled: None,
            spared: Spared::default(),
            gave: None,
        }
    }

    /// Part of its target that a member may leave empty and yet use it: shards of a cache are never
    /// all full.
    const EMPTY_PART: u64 = 16;

    /// Bytes below its target at which it still counts as used: a delta, or a sixteenth of the
    /// target.
    pub(super) fn margin(&self, delta: Bytes) -> Bytes {
        delta.at_least(Bytes(self.target.0 / Self::EMPTY_PART))
    }

    /// True if its bytes fill its target.
    pub(super) fn uses_target(&self, delta: Bytes) -> bool {
        self.held.saturating_add(self.margin(delta)) >= self.target
    }

    /// Weight times gain, in sixteenths of nanoseconds.
    pub(super) fn weighted_gain(&self) -> u64 {
        let gain = self.regrets.gain().0;
        gain.saturating_mul(self.terms.weight.sixteenths())
    }

    /// True if it is not to give to a member that would save `gain`.
    pub(super) fn is_spared(&self, epoch: u64, gain: u64) -> bool {
        let idle = self.used.is_some_and(|used| epoch > used + Self::REPENTED);
        epoch < self.spared.until && gain <= self.spared.gain.saturating_mul(2) && !idle
    }

    /// It gave to a member that would save `gain`.
    pub(super) fn has_given(&mut self, epoch: u64, gain: u64) {
        if self
            .gave
            .is_some_and(|gave| epoch > gave.epoch + 2 * Self::REPENTED)
        {
            self.spared.span = 0;
        }
        self.gave = Some(Gave { epoch, gain });
    }

    /// It won; if that is what it gave a moment ago, it is spared from now on.
    pub(super) fn has_won(&mut self, epoch: u64) {
        if let Some(gave) = self.gave.take()
            && epoch <= gave.epoch + Self::REPENTED
        {
            self.spared.again(epoch, gave.gain, self.used.is_some());
        }
    }

    pub(super) fn forget_carrier(&mut self, id: MemberId) {
        if self.terms.carried_by == Some(id) {
            self.terms.carried_by = None;
        }
    }

    pub(super) fn view(&self) -> View {
        View {
            terms: self.terms,
            held: self.held,
            target: self.target,
            age: self.age,
            gain: self.regrets.gain(),
            regrets: self.regrets.seen,
        }
    }
}

/// `whole * of / all`, rounded down.
pub(super) fn part(whole: Bytes, of: u64, all: u64) -> Bytes {
    let product = u128::from(whole.0) * u128::from(of) / u128::from(all.max(1));
    Bytes(u64::try_from(product).unwrap_or(u64::MAX))
}

/// `whole * of / all`, rounded up.
pub(super) fn part_ceil(whole: Bytes, of: u64, all: u64) -> Bytes {
    let product = (u128::from(whole.0) * u128::from(of)).div_ceil(u128::from(all.max(1)));
    Bytes(u64::try_from(product).unwrap_or(u64::MAX))
}

/// Shares `wanted` out in proportion to what each `has`, never more than that, and answers what it
/// came to: all that was wanted, or all there is.
pub(super) fn in_proportion(
    members: &mut [Option<Member>],
    wanted: Bytes,
    has: impl Fn(&Member) -> Bytes,
    mut take: impl FnMut(&mut Member, Bytes),
) -> Bytes {
    let all = members.iter().flatten().map(&has).sum::<Bytes>();
    let wanted = wanted.at_most(all);
    let mut left = wanted;
    for member in members.iter_mut().flatten() {
        // Rounded up: the last ones find less, nobody is asked for more than it has.
        let bytes = part_ceil(wanted, has(member).0, all.0);
        let bytes = bytes.at_most(has(member)).at_most(left);
        if !bytes.is_zero() {
            take(member, bytes);
            left -= bytes;
        }
    }
    wanted - left
}
