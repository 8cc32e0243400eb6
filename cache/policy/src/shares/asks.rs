//! Which members give memory back when the sum is too large, and which may borrow what another does
//! not use.

use super::Shares;
use super::member::{self, Member, MemberId};
use crate::units::Bytes;

/// Part of an unused target that is lent: its owner can grow by as much before anybody has to be
/// asked.
const LENT_PART: u64 = 2;
/// Of an unused target, times the margin within which it counts as used, that are not lent.
const LENT_NOT: u64 = 2;

impl Shares {
    /// Shares `wanted` out among the members that can be asked, in the order of their numbers.
    ///
    /// First in proportion to what each holds above its target, so that none is emptied before the
    /// next is touched; what that does not bring, in proportion to what each holds above its floor.
    /// Nothing below a floor. A member that would be asked for nothing is left out.
    #[must_use]
    pub fn asks(&self, wanted: Bytes) -> Vec<(MemberId, Bytes)> {
        let mut asked = self.members.clone();
        for place in &mut asked {
            if place.as_ref().is_some_and(|member| !member.askable) {
                *place = None;
            }
        }
        let give = |member: &mut Member, bytes| member.held -= bytes;
        let over_target = |member: &Member| member.held.saturating_sub(member.target);
        let got = member::in_proportion(&mut asked, wanted, over_target, give);
        let over_floor = |member: &Member| member.held.saturating_sub(member.terms.floor);
        member::in_proportion(&mut asked, wanted - got, over_floor, give);
        let numbered = asked.into_iter().enumerate();
        let asks = numbered.filter_map(|(at, after)| {
            let id = MemberId::of(at);
            let bytes = self.get(id)?.held - after?.held;
            (!bytes.is_zero()).then_some((id, bytes))
        });
        asks.collect()
    }

    /// Bytes that members that can be asked hold above their targets.
    #[must_use]
    pub fn lent(&self) -> Bytes {
        let askable = self.each().filter(|(_, member)| member.askable);
        askable
            .map(|(_, member)| member.held.saturating_sub(member.target))
            .sum()
    }

    /// Bytes that each member may hold at once, for those that bound themselves: its target, less
    /// its loan, or with its part of all loans. The sum is never above the pool.
    #[must_use]
    pub fn allowances(&self) -> Vec<(MemberId, Bytes)> {
        let delta = self.delta();
        let lends = |member: &Member| {
            let kept = Bytes(member.margin(delta).0.saturating_mul(LENT_NOT));
            let unused = member
                .target
                .saturating_sub(member.held.saturating_add(kept));
            let above_floor = member.target.saturating_sub(member.terms.floor);
            Bytes(unused.0 / LENT_PART).at_most(above_floor)
        };
        let uses = |member: &Member| self.uses_target(member);
        let users = self.each().filter(|(_, member)| uses(member));
        let used = users.map(|(_, member)| member.target).sum::<Bytes>();
        let all_lent = self.each().map(|(_, member)| lends(member)).sum::<Bytes>();
        let allowances = self.each().map(|(id, member)| {
            let allowance = if used.is_zero() {
                // Nobody to lend to.
                member.target
            } else if uses(member) {
                let borrowed = member::part(all_lent, member.target.0, used.0);
                (member.target + borrowed).at_most(member.terms.ceiling)
            } else {
                member.target - lends(member)
            };
            (id, allowance)
        });
        allowances.collect()
    }
}
