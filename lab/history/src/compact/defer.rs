//! The time for which a zone is left alone after moving pages in it has failed.
//!
//! After k failures in a row, 2^k - 1 requests leave it alone, at most 63; then one may try. Each
//! question counts, no matter which task asks.
//!
//! Source: mechanisms 8.5; kernel-facts A5; Linux 3.2 include/linux/compaction.h,
//! defer_compaction(), compaction_deferred().

/// Most failures that are counted (`COMPACT_MAX_DEFER_SHIFT`).
const SHIFT_MAX: u8 = 6;

/// A zone's memory of failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deferral {
    considered: u32,
    shift: u8,
}

impl Deferral {
    /// True if this request leaves the zone.
    #[must_use]
    pub fn is_deferred(&mut self) -> bool {
        let limit = 1 << self.shift;
        self.considered = limit.min(self.considered + 1);
        self.considered < limit
    }

    /// Moving pages has failed.
    pub fn failed(&mut self) {
        self.considered = 0;
        self.shift = SHIFT_MAX.min(self.shift + 1);
    }

    /// There was a run.
    pub fn succeeded(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Questions until one may try.
    fn left_out(deferral: &mut Deferral) -> u32 {
        let mut count = 0;
        while deferral.is_deferred() {
            count += 1;
        }
        count
    }

    #[test]
    fn each_failure_doubles_what_is_left_out() {
        let mut deferral = Deferral::default();
        assert_eq!(left_out(&mut deferral), 0);
        // Vector C1: after three, seven are left out and the eighth may.
        for failures in [1, 3, 7, 15, 31, 63, 63, 63] {
            deferral.failed();
            assert_eq!(left_out(&mut deferral), failures);
            assert_eq!(left_out(&mut deferral), 0, "it stays at the cap");
        }
        deferral.succeeded();
        deferral.failed();
        assert_eq!(left_out(&mut deferral), 1);
    }
}
