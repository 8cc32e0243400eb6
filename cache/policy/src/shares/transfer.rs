//! Which member wins an epoch, which loses it, and how much moves.

use super::Shares;
use super::member::{self, Member, MemberId};
use crate::units::Bytes;

/// Regrets that must stand behind a transfer.
const REGRETS_MIN: u64 = 16;
/// A winner is so far above the loser: 5/4 ...
const CLEARLY: (u64, u64) = (5, 4);
/// ... or this, where targets move to even shares.
const AT_ALL: (u64, u64) = (33, 32);
/// Most deltas of a transfer: a sixteenth of the limit.
const DELTAS_MAX: u64 = 4;
/// Part of a delta that moves to even shares.
const EVENLY_PART: u64 = 4;

/// Why targets moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The one regretted more than the other.
    Regret,
    /// It regretted hardly more, but even shares lie that way.
    Even,
    /// Neither regretted anything, and the one carries the other.
    Carried,
}

/// The transfer of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The member whose target fell.
    pub from: MemberId,
    /// The member whose target rose.
    pub to: MemberId,
    /// By how much.
    pub bytes: Bytes,
    /// Why.
    pub why: Why,
    /// Weight times gain of the loser and of the winner: sixteenths of ns saved by a delta.
    pub gains: [u64; 2],
}

/// Chooses the transfer of an epoch from one snapshot.
pub(super) fn choose(shares: &Shares) -> Option<Transfer> {
    by_regret(shares)
        .or_else(|| to_even(shares))
        .or_else(|| tie(shares))
}

/// Carries a transfer out.
pub(super) fn book(shares: &mut Shares, transfer: Transfer) {
    let epoch = shares.epoch;
    if let Some(loser) = shares.get_mut(transfer.from) {
        loser.target -= transfer.bytes;
        match transfer.why {
            Why::Regret => loser.has_given(epoch, transfer.gains[1]),
            Why::Even | Why::Carried => {}
        }
    }
    if let Some(winner) = shares.get_mut(transfer.to) {
        winner.target += transfer.bytes;
        winner.has_won(epoch);
    }
}

fn may_win(shares: &Shares, member: &Member) -> bool {
    shares.uses_target(member)
        && member.target < member.terms.ceiling
        && member.regrets.seen >= REGRETS_MIN
        && member.weighted_gain() > 0
}

fn is_above(winner: u64, loser: u64, (more, than): (u64, u64)) -> bool {
    u128::from(winner) * u128::from(than) > u128::from(loser) * u128::from(more)
}

fn by_regret(shares: &Shares) -> Option<Transfer> {
    let winners = (shares.each()).filter(|(_, member)| may_win(shares, member));
    let (to, winner) = winners.max_by_key(|(id, m)| (m.weighted_gain(), std::cmp::Reverse(*id)))?;
    let most = winner.weighted_gain();
    let losers = shares.each().filter(|(id, member)| {
        let spared = member.is_spared(shares.epoch, most);
        *id != to && member.target > member.terms.floor && !spared
    });
    let (from, loser) = losers.min_by_key(|(id, member)| {
        (
            member.weighted_gain(),
            // Nobody misses what is not used; what is carried is used less than its carrier; then
            // who was silent longest.
            shares.uses_target(member),
            !is_carried_in_peace(shares, member),
            member.regretted.max(member.used),
            std::cmp::Reverse(member.target),
            *id,
        )
    })?;
    let least = loser.weighted_gain();
    if !is_above(most, least, CLEARLY) {
        return None;
    }
    let ratio = most.checked_div(least).unwrap_or(u64::MAX).max(1);
    let deltas = u64::from(ratio.ilog2()).clamp(1, DELTAS_MAX);
    let bytes = Bytes(shares.delta().0.saturating_mul(deltas))
        .at_most(loser.target - loser.terms.floor)
        .at_most(winner.terms.ceiling - winner.target);
    Some(Transfer {
        from,
        to,
        bytes,
        why: Why::Regret,
        gains: [least, most],
    })
}

/// The target of a member by its weight alone.
fn even(shares: &Shares, member: &Member) -> Bytes {
    let weight = member.terms.weight.sixteenths();
    member::part(shares.pool(), weight, shares.weights())
        .at_least(member.terms.floor)
        .at_most(member.terms.ceiling)
}

fn to_even(shares: &Shares) -> Option<Transfer> {
    let below = (shares.each())
        .filter(|(_, member)| may_win(shares, member) && member.target < even(shares, member));
    let (to, winner) = below.max_by_key(|(id, m)| (m.weighted_gain(), std::cmp::Reverse(*id)))?;
    let above = (shares.each()).filter(|(_, member)| member.target > even(shares, member));
    let (from, loser) = above.min_by_key(|(id, m)| (m.weighted_gain(), *id))?;
    let gains = [loser.weighted_gain(), winner.weighted_gain()];
    if !is_above(gains[1], gains[0], AT_ALL) || loser.is_spared(shares.epoch, gains[1]) {
        return None;
    }
    let bytes = Bytes((shares.delta().0 / EVENLY_PART).max(1))
        .at_most(loser.target - even(shares, loser))
        .at_most(even(shares, winner) - winner.target);
    Some(Transfer {
        from,
        to,
        bytes,
        why: Why::Even,
        gains,
    })
}

/// True if it is carried by a member that regrets as little as itself: nothing.
fn is_carried_in_peace(shares: &Shares, member: &Member) -> bool {
    let carrier = member.terms.carried_by.and_then(|id| shares.get(id));
    carrier.is_some_and(|carrier| carrier.weighted_gain() == 0 && member.weighted_gain() == 0)
}

fn tie(shares: &Shares) -> Option<Transfer> {
    shares.each().find_map(|(from, carried)| {
        let to = carried.terms.carried_by.filter(|to| *to != from)?;
        let carrier = shares.get(to)?;
        let may = is_carried_in_peace(shares, carried) && shares.uses_target(carrier);
        let bytes = Bytes(shares.delta().0.saturating_mul(DELTAS_MAX))
            .at_most(carried.target - carried.terms.floor)
            .at_most(carrier.terms.ceiling - carrier.target);
        (may && !bytes.is_zero()).then_some(Transfer {
            from,
            to,
            bytes,
            why: Why::Carried,
            gains: [0, 0],
        })
    })
}
