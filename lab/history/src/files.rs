//! The cache of one mounted file system: directory entries, inodes, and objects of its own, behind
//! one shrinker.
//!
//! ```text
//!   count = (entries + inodes + own) * vfs_cache_pressure / 100
//!   scan(n): each its share of n, and one more:   entries first, as they pin inodes; then inodes; then own, if any
//! ```
//!
//! Source: mechanisms 7.3; kernel-facts 17; Linux 5.0 and 6.12 fs/super.c, super_cache_count(),
//! super_cache_scan(); include/linux/dcache.h, vfs_pressure_ratio().

/// `vfs_cache_pressure` as it is unless somebody sets it, in per cent.
pub const PRESSURE: u32 = 100;

/// Objects of a file system, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    /// Unused directory entries.
    pub entries: u64,
    /// Unused inodes.
    pub inodes: u64,
    /// Objects of the file system's own that it can free.
    pub own: u64,
}

impl Objects {
    fn sum(self) -> u64 {
        self.entries
            .saturating_add(self.inodes)
            .saturating_add(self.own)
    }

    /// The number that the shrinker says it could free. `pressure`: per cent; at 0 it is left alone
    /// for ever.
    #[must_use]
    pub fn freeable(self, pressure: u32) -> u64 {
        share(self.sum(), u64::from(pressure), 100)
    }

    /// The division of a scan of `wanted` objects. Each kind gives at least one, but its own only
    /// if their share is one: so it may come to three more than were wanted.
    fn shared_out(self, wanted: u64) -> Self {
        let whole = self.sum().saturating_add(1);
        let of = |objects| share(wanted, objects, whole);
        let own = of(self.own);
        Self {
            entries: of(self.entries).saturating_add(1),
            inodes: of(self.inodes).saturating_add(1),
            own: if own == 0 { 0 } else { own.saturating_add(1) },
        }
    }

    /// The same where its own go first: half of the scan is theirs, if there are enough. Nobody
    /// finds them any more, and what else is pruned frees memory only as one of them; the other
    /// half goes on if they cannot be freed yet.
    fn own_first(self, wanted: u64) -> Self {
        let own = self.own.min(wanted.div_ceil(2));
        let others = Self { own: 0, ..self };
        Self {
            own,
            ..others.shared_out(wanted - own)
        }
    }
}

/// The fate of an unused inode whose file has pages in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WithPages {
    /// Its clean pages are evicted, and counted as stolen; it stays for another round of the list.
    Stolen,
    /// The same, but one with more than a page stays with them as if it had been used (4.20 alone).
    StolenUnlessSeveral,
    /// It is not on the list before its last page is evicted (5.16 and later).
    PagesFirst,
}

/// The law by which the inodes of an era are freed: one row each.
///
/// | rule | an inode with pages | one that is dirty, once unused and off the list | what is off the list |
/// |---|---|---|---|
/// | 3.0 | loses them | is left for a later pass | the same |
/// | 4.20 | loses them, unless there are several | is written by the task that shrinks, and waited for | gives its share |
/// | 5.0 to 5.3 | loses them | the same | the same |
/// | 6.12 | is not on the list | is left for a later pass | the same |
/// | Tidegate | the same | the same | goes first, half of a scan |
///
/// Source: kernel-facts 17, 18; Linux 3.0 fs/inode.c, prune_icache(), iput_final(); fs/dcache.c,
/// dput(); Linux 4.20, 5.0 and 6.12 fs/inode.c, inode_lru_isolate();
/// fs/xfs/xfs_icache.c, xfs_reclaim_inodes_nr().
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeRule {
    /// Name of its column.
    pub name: &'static str,
    /// The fate of an inode whose file has pages in memory.
    pub pages: WithPages,
    /// The shrinking task waits for dirty inodes to be written.
    pub waits: bool,
    /// The file system's own objects are half of a scan, if there are enough; else each kind gives
    /// its share.
    pub own_first: bool,
    /// Entries and inodes have a shrinker each, of all file systems and nodes (before 3.1), and the
    /// last use of either marks it as used. Small files do not know this: their shrinker is one.
    pub apart: bool,
}

impl InodeRule {
    /// Linux 3.0.
    pub const LINUX_3_0: Self = Self {
        name: "linux-3.0",
        waits: false,
        apart: true,
        ..Self::LINUX_5_0
    };
    /// Linux 4.20.
    pub const LINUX_4_20: Self = Self {
        name: "linux-4.20",
        pages: WithPages::StolenUnlessSeveral,
        waits: true,
        own_first: false,
        apart: false,
    };
    /// Linux 5.0 to 5.3; paper p3 left it as it is.
    pub const LINUX_5_0: Self = Self {
        name: "linux-5.0",
        pages: WithPages::Stolen,
        waits: true,
        own_first: false,
        apart: false,
    };
    /// Linux 6.12.
    pub const LINUX_6_12: Self = Self {
        name: "linux-6.12",
        pages: WithPages::PagesFirst,
        waits: false,
        own_first: false,
        apart: false,
    };
    /// Tidegate's own: as every use of a page is one of its inode, the page is evicted first; and
    /// an evicted inode is freed before another one is evicted. With shares alone a scan would
    /// leave five seconds of inodes to the file system's worker, gone and not free.
    pub const TIDEGATE: Self = Self {
        name: "tidegate",
        own_first: true,
        ..Self::LINUX_6_12
    };

    /// All of them. A new one joins here.
    pub const ALL: [Self; 5] = [
        Self::LINUX_3_0,
        Self::LINUX_4_20,
        Self::LINUX_5_0,
        Self::LINUX_6_12,
        Self::TIDEGATE,
    ];

    /// The division of a scan of `wanted` objects.
    #[must_use]
    pub fn shared_out(self, objects: Objects, wanted: u64) -> Objects {
        if self.own_first {
            objects.own_first(wanted)
        } else {
            objects.shared_out(wanted)
        }
    }

    /// The rule of that name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.name == name)
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
    #[test]
    fn what_is_off_the_list_has_half_of_a_scan_where_the_rule_says_so() {
        let all = objects(500, 400, 100);
        let shared_out = |wanted| InodeRule::TIDEGATE.shared_out(all, wanted);
        // 30 * 500 / 901, 30 * 400 / 901; each + 1.
        assert_eq!(shared_out(60), objects(17, 14, 30));
        // 156 * 500 / 901, 156 * 400 / 901; each + 1.
        assert_eq!(shared_out(256), objects(87, 70, 100));
        for rule in [InodeRule::LINUX_5_0, InodeRule::LINUX_6_12] {
            assert_eq!(rule.shared_out(all, 128), all.shared_out(128));
        }
    }
}
