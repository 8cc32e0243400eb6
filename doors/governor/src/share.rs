//! The terms that a member asks for when it registers.

use std::time::Duration;

use policy::shares::{MemberId, Terms, Weight};
use policy::units::{Bytes, Nanos};

use crate::Error;

/// Cost of a miss that nobody measured: a read of a fast disk.
const MISS_COST: Duration = Duration::from_micros(100);

/// A member's terms, and the cost of its misses. All of it has a default; see the methods.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    floor: u64,
    ceiling: u64,
    weight: f64,
    miss_cost: Duration,
    pub(crate) carried_by: Option<MemberId>,
}

impl Default for Share {
    fn default() -> Self {
        Self {
            floor: 0,
            ceiling: u64::MAX,
            weight: 1.0,
            miss_cost: MISS_COST,
            carried_by: None,
        }
    }
}

impl Share {
    /// Bytes that are never taken from it. Default: 0. A member that reports no misses needs one:
    /// it cannot show what it would do with more, so members that can get everything above.
    #[must_use]
    pub fn floor(mut self, bytes: u64) -> Self {
        self.floor = bytes;
        self
    }

    /// The same, unless its floor is higher: what a cache cannot do without.
    #[must_use]
    pub fn floor_at_least(mut self, bytes: u64) -> Self {
        self.floor = self.floor.max(bytes);
        self
    }

    /// The same of its ceiling: what a cache cannot use.
    #[must_use]
    pub fn ceiling_at_most(mut self, bytes: u64) -> Self {
        self.ceiling = self.ceiling.min(bytes);
        self
    }

    /// Bytes beyond which it gets nothing. Default: none.
    #[must_use]
    pub fn ceiling(mut self, bytes: u64) -> Self {
        self.ceiling = bytes;
        self
    }

    /// Weight of a nanosecond of its misses beside those of others, and its part where nobody
    /// misses anything: 0.0625 to 16, in sixteenths. Default: 1.
    #[must_use]
    pub fn weight(mut self, weight: f64) -> Self {
        self.weight = weight;
        self
    }

    /// The cost of a miss where [`Member::missed`](crate::Member::missed) is not told. Default: 100
    /// us. The proportions between members count.
    #[must_use]
    pub fn miss_cost(mut self, cost: Duration) -> Self {
        self.miss_cost = cost;
        self
    }

    /// The cost of a miss, in nanoseconds.
    pub(crate) fn cost(&self) -> Nanos {
        Nanos(u64::try_from(self.miss_cost.as_nanos()).unwrap_or(u64::MAX))
    }

    /// As `policy` wants it.
    pub(crate) fn terms(&self, member: &str) -> Result<Terms, Error> {
        let wrong = || Error::Weight {
            member: member.to_owned(),
            weight: self.weight,
        };
        if !(1.0 / 16.0..=16.0).contains(&self.weight) {
            return Err(wrong());
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 1 and 256"
        )]
        let sixteenths = (self.weight * 16.0).round() as u32;
        Ok(Terms {
            floor: Bytes(self.floor),
            ceiling: Bytes(self.ceiling),
            weight: Weight::in_sixteenths(sixteenths).ok_or_else(wrong)?,
            carried_by: self.carried_by,
        })
    }
}
