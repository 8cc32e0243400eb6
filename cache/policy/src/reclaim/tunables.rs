//! The tunables of reclaim: its law, and the options of an experiment besides.

use super::law::ReclaimLaw;
use super::page::JudgeRule;
use super::reason::Reasons;
use super::scan::CLUSTER;
use crate::units::{Nanos, Pages};

/// Fresh pages that get frames together, and that a task that finds no memory asks for: 64 KiB.
pub const FRESH: u32 = 16;

/// The tunables of reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunables {
    /// The law.
    pub law: ReclaimLaw,
    /// Ticks per second: sleeps are whole ticks.
    pub hz: u32,
    /// `vm.swappiness`, 0 to 200: 100 takes a page of a file and an anonymous one for equally dear.
    pub swappiness: u8,
    /// Reasons that never throttle (an ablation).
    pub off: Reasons,
    /// Events wake sleepers; without, only timeouts do (an ablation).
    pub wakes: bool,
    /// Timeout of WRITEBACK and of the two functions before it instead of 100 ms (an ablation).
    pub writeback_timeout: Option<Nanos>,
    /// The memory stands for one this many times as large, as in a scaled experiment: a length that
    /// rules compare with numbers of pages (a list shifted by a priority, the root of its GiB,
    /// clusters isolated) is multiplied by it. 1: it stands for itself.
    pub stands_for: u32,
    /// A cluster stands for one this many times as large. 1: for itself.
    pub cluster_stands_for: u32,
    /// The file systems have a call by which the background reclaimer writes a single page (kernel:
    /// `->writepage`). xfs has none since 5.15 (Linux commit 21b4ee7029c9, "xfs: drop ->writepage
    /// completely").
    pub writes_files: bool,
    /// Pages of files are asked for from within a file system, which reclaim then may not enter
    /// (kernel: no `__GFP_FS`): the task that asks may isolate eight times as much as others, and
    /// nobody is killed for it. So it is in xfs (Linux 5.15 fs/xfs/xfs_iops.c, xfs_setup_inode();
    /// fs/iomap/buffered-io.c, iomap_write_begin()). Heeded by laws that say so
    /// (`Rules::heeds_within_fs`).
    pub files_within_fs: bool,
    /// Passes are told of the lists as they are, also under a law whose statistics are seconds old
    /// (`ScanRule::told_every`): for loads that do not say how long an access takes.
    pub tells_at_once: bool,
    /// Out of memory, the largest region gives way, as in Linux; else the task that asked is told.
    pub oom_kills: bool,
}

impl Tunables {
    /// The defaults under a law.
    #[must_use]
    pub const fn of(law: ReclaimLaw, hz: u32) -> Self {
        Self {
            law,
            hz,
            swappiness: 60,
            off: Reasons::NONE,
            wakes: true,
            writeback_timeout: None,
            stands_for: 1,
            cluster_stands_for: 1,
            writes_files: true,
            files_within_fs: false,
            tells_at_once: false,
            oom_kills: false,
        }
    }

    /// Of a memory of `memory` pages, this many count as dirtyable no matter which owner has them.
    #[must_use]
    pub fn files_least(&self, memory: Pages) -> Pages {
        (self.law.files_least)(memory)
    }

    /// Fresh pages of the range that is touched, which one fault brings at most.
    #[must_use]
    pub fn fault_around(&self) -> u32 {
        self.law.fault_around
    }

    /// True if anonymous pages are evicted at all: of generations none is at a swappiness of 0,
    /// however short memory is (Linux 6.12 mm/vmscan.c, get_swappiness(), isolate_folios()).
    #[must_use]
    pub fn swaps(&self) -> bool {
        self.swappiness > 0 || !self.law.generations
    }

    /// The greatest age of the sizes that passes are told.
    #[must_use]
    pub fn told_every(&self) -> Option<Nanos> {
        self.law.scan.told_every.filter(|_| !self.tells_at_once)
    }

    /// The verdicts on isolated pages, on the file systems there are.
    #[must_use]
    pub fn judge_rule(&self) -> JudgeRule {
        JudgeRule {
            writes_files: self.writes_files && self.law.page.writes_files,
            ..self.law.page
        }
    }

    /// Fresh pages that get frames together where there is memory. In Linux each is a fault all the
    /// same.
    #[must_use]
    pub fn fresh_together(&self) -> u32 {
        self.fault_around().max(FRESH)
    }

    /// Pages that reclaim takes at a time, and that a task frees on its own behalf before it goes
    /// on: 32 of the size that this one stands for. As few tasks then sleep as often as at full
    /// size.
    #[must_use]
    pub fn cluster(&self) -> Pages {
        Pages((CLUSTER.0 / u64::from(self.cluster_stands_for.max(1))).max(1))
    }

    /// Isolated pages at the size that is stood for: a reclaimer that has isolated a cluster has
    /// isolated 32, however few pages stand for them.
    #[must_use]
    pub fn isolated(&self, pages: Pages) -> Pages {
        Pages(pages.0.saturating_mul(CLUSTER.0) / self.cluster().0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::LINUX_5_16_RC1;

    #[test]
    fn files_have_a_part_of_the_dirtyable_memory_in_our_law() {
        let least = |law, memory| Tunables::of(law, 250).files_least(Pages(memory)).0;
        let memories = [0, 64, 6400, 8192, 65_536, 1 << 20];
        assert_eq!(
            memories.map(|memory| least(ReclaimLaw::TIDEGATE, memory)),
            [0, 4, 400, 512, 512, 8192]
        );
        assert_eq!(memories.map(|memory| least(LINUX_5_16_RC1, memory)), [0; 6]);
    }

    #[test]
    fn a_cluster_isolated_counts_as_32_pages_at_any_scale() {
        for stands_for in [1, 8, 32, 64] {
            let tunables = Tunables {
                cluster_stands_for: stands_for,
                ..Tunables::of(LINUX_5_16_RC1, 250)
            };
            assert_eq!(tunables.isolated(tunables.cluster()), Pages(32));
        }
    }
}
