//! The prospects of a zone of a law before 4.8, and its wait for writeback.
//!
//! A zone that was looked at six times over and gave nothing is *hopeless* (`all_unreclaimable`).
//! A law that reclaims over nodes never judges one.
//!
//! Source: mechanisms 2.3, 3.1; Linux 3.0 mm/vmscan.c, balance_pgdat(); mm/page-writeback.c,
//! throttle_vm_writeout().

use crate::units::Pages;

/// A zone is hopeless when this many times its pages were looked at.
const LOOKED_AT: u64 = 6;
/// Reclaimers wait where more is under writeback than the dirty limit and this part of it.
const OVER_LIMIT: u64 = 10;

/// True if so much is under writeback that a reclaimer waits after its pass (`congestion_wait`),
/// again and again, or once if it may not enter a file system. `limit`: the dirty limit.
///
/// # Source
/// Mechanisms 2.3; Linux 3.0 mm/page-writeback.c, throttle_vm_writeout().
#[must_use]
pub fn is_over_writeout(writeback: Pages, limit: Pages) -> bool {
    writeback > limit.saturating_add(Pages(limit.0 / OVER_LIMIT))
}

/// The prospects of a zone: pages looked at, and hope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prospects {
    /// Pages looked at since one was last freed (`pages_scanned`).
    looked_at: u64,
    hopeless: bool,
}

impl Prospects {
    /// A pass has looked at pages of the zone, whatever list they were on.
    pub fn looked_at(&mut self, pages: Pages) {
        self.looked_at = self.looked_at.saturating_add(pages.0);
    }

    /// Pages of the zone have become free, no matter which task gave them back.
    pub fn freed(&mut self) {
        *self = Self::default();
    }

    /// The background's pass over the zone has ended. `reclaimable`: pages on its lists that
    /// reclaim may hope for.
    pub fn judge(&mut self, reclaimable: Pages) {
        if self.looked_at >= reclaimable.0.saturating_mul(LOOKED_AT) {
            self.hopeless = true;
        }
    }

    /// Nothing may be hoped of it until a page is freed.
    #[must_use]
    pub fn hopeless(&self) -> bool {
        self.hopeless
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_looked_at_six_times_over_is_hopeless_until_a_page_is_freed() {
        let mut prospects = Prospects::default();
        prospects.looked_at(Pages(599));
        prospects.judge(Pages(100));
        assert!(!prospects.hopeless());
        prospects.looked_at(Pages(1));
        prospects.judge(Pages(100));
        assert!(prospects.hopeless());
        prospects.freed();
        assert_eq!(prospects, Prospects::default());
        // Nothing on the lists is nothing to hope for.
        prospects.judge(Pages::ZERO);
        assert!(prospects.hopeless());
    }

    #[test]
    fn writeback_of_a_tenth_over_the_limit_is_waited_for() {
        assert!(!is_over_writeout(Pages(1100), Pages(1000)));
        assert!(is_over_writeout(Pages(1101), Pages(1000)));
        assert!(!is_over_writeout(Pages::MAX, Pages::MAX));
    }
}
