//! The cache of one mounted file system: directory entries, inodes, and objects of its own, behind one shrinker.
//!
//! ```text
//!   count = (entries + inodes + own) * vfs_cache_pressure / 100
//!   scan(n): each its share of n, and one more:   entries first, as they pin inodes; then inodes; then own, if any
//! ```
//!
//! Source: mechanisms 7.3; kernel-facts 17; Linux 5.0 and 6.12 fs/super.c, super_cache_count(), super_cache_scan();
//! include/linux/dcache.h, vfs_pressure_ratio().

/// `vfs_cache_pressure` as it is unless somebody sets it, in per cent.
pub const PRESSURE: u32 = 100;

/// Objects of a file system, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    /// Unused directory entries.
    pub entries: u64,
    /// Unused inodes.
    pub inodes: u64,
    /// What the file system keeps itself and can free.
    pub own: u64,
}

impl Objects {
    fn sum(self) -> u64 {
        self.entries
            .saturating_add(self.inodes)
            .saturating_add(self.own)
    }

    /// What the shrinker says it could free. `pressure`: per cent; at 0 it is left alone for ever.
    #[must_use]
    pub fn freeable(self, pressure: u32) -> u64 {
        share(self.sum(), u64::from(pressure), 100)
    }

    /// How a scan of `wanted` objects is shared out. Each kind gives at least one, but its own only if their share is
    /// one: so it may come to three more than were wanted.
    #[must_use]
    pub fn shared_out(self, wanted: u64) -> Self {
        let whole = self.sum().saturating_add(1);
        let of = |objects| share(wanted, objects, whole);
        let own = of(self.own);
        Self {
            entries: of(self.entries).saturating_add(1),
            inodes: of(self.inodes).saturating_add(1),
            own: if own == 0 { 0 } else { own.saturating_add(1) },
        }
    }
}

/// `part * of / whole`, rounded down, without overflow.
fn share(part: u64, of: u64, whole: u64) -> u64 {
    let product = u128::from(part) * u128::from(of) / u128::from(whole);
    u64::try_from(product).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(entries: u64, inodes: u64, own: u64) -> Objects {
        Objects {
            entries,
            inodes,
            own,
        }
    }

    #[test]
    fn pressure_scales_what_it_says_it_could_free() {
        let all = objects(500, 400, 100);
        let table = [(100, 1_000), (10, 100), (1_000, 10_000), (0, 0), (33, 330)];
        for (pressure, freeable) in table {
            assert_eq!(all.freeable(pressure), freeable, "{pressure}");
        }
        assert_eq!(objects(1, 0, 0).freeable(99), 0);
        assert_eq!(objects(u64::MAX, 1, 1).freeable(1_000), u64::MAX);
    }

    #[test]
    fn a_scan_is_shared_out_and_each_gives_one_more() {
        // 128 * 500 / 1001, 128 * 400 / 1001, 128 * 100 / 1001; each + 1.
        assert_eq!(objects(500, 400, 100).shared_out(128), objects(64, 52, 13));
        assert_eq!(objects(1_000, 1_000, 0).shared_out(128), objects(64, 64, 0));
        assert_eq!(objects(0, 0, 0).shared_out(128), objects(1, 1, 0));
        // A share below one: nothing of its own.
        assert_eq!(objects(5_000, 5_000, 10).shared_out(128).own, 0);
    }
}
