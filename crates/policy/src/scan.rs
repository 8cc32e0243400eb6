//! How many pages of a list one pass of reclaim looks at.
//!
//! Source: mechanisms 2.1, 2.2; Linux 6.12 mm/vmscan.c, inactive_is_low(), get_scan_count().

use crate::units::Pages;

/// Pages in a GiB, as a shift.
const GIB_SHIFT: u32 = 18;

/// Scan priority: 12 is the gentlest, 0 the most desperate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Priority(pub u8);

impl Priority {
    /// Where every pass starts.
    pub const GENTLEST: Self = Self(12);

    /// The next more desperate one, `None` after 0.
    #[must_use]
    pub fn raised(self) -> Option<Self> {
        self.0.checked_sub(1).map(Self)
    }
}

/// Pages isolated from a list at a time (`SWAP_CLUSTER_MAX`).
pub const CLUSTER: Pages = Pages(32);

/// How many pages of an inactive list of `size` to look at: `size >> priority`.
#[must_use]
pub fn scan_count(size: Pages, priority: Priority) -> Pages {
    Pages(size.0.checked_shr(u32::from(priority.0)).unwrap_or(0))
}

/// Whether the active list should feed the inactive one: file lists, `inactive * ratio < active` (mechanisms 2.1).
///
/// The ratio grows with the root of the lists' size in GiB, so that a large list keeps a
/// smaller share of inactive pages: 1 up to one GiB, 3 at one, 31 at 100.
#[must_use]
pub fn inactive_is_low(inactive: Pages, active: Pages) -> bool {
    let ratio = inactive_ratio(inactive.saturating_add(active));
    inactive.0.saturating_mul(ratio) < active.0
}

/// How many times larger than the inactive list the active one may be.
fn inactive_ratio(both: Pages) -> u64 {
    let gib = both.0 >> GIB_SHIFT;
    // At most 2^46 GiB: ten times that fits.
    if gib == 0 { 1 } else { (10 * gib).isqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vector_l1() {
        let sizes_gib = [1, 2, 4, 8, 16, 32, 64, 100, 1024];
        let ratios = sizes_gib.map(|gib: u64| inactive_ratio(Pages(gib << GIB_SHIFT)));
        assert_eq!(ratios, [3, 4, 6, 8, 12, 17, 25, 31, 101]);
        assert_eq!(inactive_ratio(Pages((1 << GIB_SHIFT) - 1)), 1);
    }

    #[test]
    fn the_active_list_feeds_a_short_inactive_one() {
        assert!(!inactive_is_low(Pages(100), Pages(100)));
        assert!(inactive_is_low(Pages(100), Pages(101)));
        // 4 GiB in all, ratio 6.
        let all = 4 << GIB_SHIFT;
        let inactive = all / 7;
        assert!(inactive_is_low(Pages(inactive), Pages(all - inactive)));
        assert!(!inactive_is_low(
            Pages(inactive + 1),
            Pages(all - inactive - 1)
        ));
        assert!(!inactive_is_low(Pages::MAX, Pages::MAX));
        assert!(!inactive_is_low(Pages(0), Pages(0)));
    }

    #[test]
    fn scans_double_from_turn_to_turn_up_to_the_whole_list() {
        let mut priority = Some(Priority::GENTLEST);
        let mut counts = Vec::new();
        while let Some(turn) = priority {
            counts.push(scan_count(Pages(1 << 14), turn).0);
            priority = turn.raised();
        }
        assert_eq!(counts.len(), 13);
        assert_eq!(counts[..3], [4, 8, 16]);
        assert_eq!(counts[12], 1 << 14);
        assert_eq!(scan_count(Pages(4095), Priority::GENTLEST), Pages(0));
        assert_eq!(scan_count(Pages::MAX, Priority(200)), Pages(0));
    }
}
