//! Reclaim: what to scan, what to do with each page, when to stop, when to sleep and whom to wake.
//!
//! Everything here decides from a snapshot; `mm` isolates, waits, writes and frees.
//!
//! Source: mechanisms 1.2, 1.3, 2, 3, 4, 9; paper p0.

pub mod background;
pub mod direct;
pub mod growth;
pub mod page;
pub mod retry;
pub mod scan;
pub mod swap;
pub mod throttle;
pub mod token;
pub mod turn;
pub mod workingset;

use crate::units::{Nanos, Pages};

/// The variant of throttling in reclaim (mechanisms 4). The scan, the tables and the loops around it are
/// those of Linux 5.15 in all of them; what a variant changes besides is said at its own module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReclaimLaw {
    /// 5.15: `congestion_wait`, `wait_iff_congested` (mechanisms 4.1).
    CongestionWait,
    /// 5.15 and p0's own diff alone: WRITEBACK only, every sleep counted (mechanisms 4.3, last paragraph).
    WritebackOnly,
    /// 5.16-rc1, the paper's series: WRITEBACK 100 ms, ISOLATED 20 ms, NOPROGRESS 500 ms.
    Reasons,
    /// 5.16 to 6.12: NOPROGRESS and CONGESTED last a tick, and are skipped near out-of-memory.
    Mild,
    /// Ours: waiters ranked by net growth, as many woken as the event can serve, every wait bounded.
    Tidegate,
}

/// Why a reclaimer is throttled. Names are the kernel's (`enum vmscan_throttle_state`), and those of the two
/// functions that came before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Reason {
    /// Too much under writeback.
    Writeback,
    /// Too many pages isolated.
    Isolated,
    /// No progress.
    NoProgress,
    /// All dirty pages met are congested.
    Congested,
    /// `congestion_wait`.
    CongestionWait,
    /// `wait_iff_congested`.
    WaitIffCongested,
    /// Ours: memory is handed out in turn.
    Turn,
}

impl Reason {
    /// How many there are.
    pub const COUNT: usize = 7;
    /// All of them, in order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Writeback,
        Self::Isolated,
        Self::NoProgress,
        Self::Congested,
        Self::CongestionWait,
        Self::WaitIffCongested,
        Self::Turn,
    ];

    /// The name in traces.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Writeback => "VMSCAN_THROTTLE_WRITEBACK",
            Self::Isolated => "VMSCAN_THROTTLE_ISOLATED",
            Self::NoProgress => "VMSCAN_THROTTLE_NOPROGRESS",
            Self::Congested => "VMSCAN_THROTTLE_CONGESTED",
            Self::CongestionWait => "congestion_wait",
            Self::WaitIffCongested => "wait_iff_congested",
            Self::Turn => "TURN",
        }
    }
}

/// A set of reasons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reasons(u8);

impl Reasons {
    /// None.
    pub const NONE: Self = Self(0);

    /// These and `reason`.
    #[must_use]
    pub const fn with(self, reason: Reason) -> Self {
        Self(self.0 | 1 << reason as u8)
    }

    /// Whether `reason` is one of them.
    #[must_use]
    pub const fn has(self, reason: Reason) -> bool {
        self.0 & 1 << reason as u8 != 0
    }
}

/// This part of the memory counts as dirtyable in any case: at the usual limit of 20 % a per mille or two of it may be dirty
/// then, less than the marks keep free.
const FILES_PART: u64 = 128;
/// Of a small memory at least this, so that a write of some hundred KiB needs no pause for every page of it,
const FILES_LEAST: Pages = Pages(512);
/// and no more than this part of it.
const FILES_PART_MOST: u64 = 16;

/// Fresh pages that get frames together, and that whoever finds no memory asks for: 64 KiB.
pub const FRESH: u32 = 16;
/// Fresh pages that a fault of ours brings at most, where there is memory: 256 KiB. By 64 a page costs a tenth less than by 16
/// (`cargo bench -p tidegate --bench round`), by 512 no less.
pub const FAULT_AROUND: u32 = 64;
const _: () = assert!(FRESH <= FAULT_AROUND);

/// How reclaim works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunables {
    /// The variant of throttling.
    pub law: ReclaimLaw,
    /// Ticks per second: sleeps are whole ticks.
    pub hz: u32,
    /// `vm.swappiness`, 0 to 200: 100 takes a page of a file and an anonymous one for equally dear.
    pub swappiness: u8,
    /// Reasons that never throttle (an ablation).
    pub off: Reasons,
    /// Whether events wake sleepers; without, only timeouts do (an ablation).
    pub wakes: bool,
    /// Timeout of WRITEBACK and of the two functions before it instead of 100 ms (an ablation).
    pub writeback_timeout: Option<Nanos>,
    /// The memory stands for one so many times as large, as in a scaled experiment: what rules compare with
    /// numbers of pages (a list shifted by a priority, the root of its GiB, clusters isolated) is taken for
    /// so many times as long. 1: it stands for itself.
    pub stands_for: u32,
    /// A cluster stands for one so many times as large. 1: for itself.
    pub cluster_stands_for: u32,
    /// The file systems have a call by which the background reclaimer writes a single page (kernel: `->writepage`).
    /// xfs has none since 5.15 (Linux commit 21b4ee7029c9, "xfs: drop ->writepage completely").
    pub writes_files: bool,
    /// Pages of files are asked for from within a file system, which reclaim then may not enter (kernel: no `__GFP_FS`):
    /// whoever asks may isolate eight times as much as others, and nobody is killed for it. So it is in xfs (Linux 5.15
    /// fs/xfs/xfs_iops.c, xfs_setup_inode(); fs/iomap/buffered-io.c, iomap_write_begin()). Not under our own law.
    pub files_within_fs: bool,
    /// Out of memory, the largest region gives way, as in Linux; else whoever asked is told.
    pub oom_kills: bool,
    /// Nodes that the memory is divided into, as on a machine of as many sockets: each has lists, marks, a background
    /// reclaimer and sleepers of its own, and a direct reclaimer passes over all of them. One under our own law, for
    /// which memory is one.
    pub nodes: u8,
}

/// Nodes of the largest machine.
pub const NODES_MAX: u8 = 8;

impl Tunables {
    /// The defaults of a variant.
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
            oom_kills: false,
            nodes: 1,
        }
    }

    /// Of a memory of `memory` pages, this many count as dirtyable whoever has them (ours; in Linux none do). Anonymous
    /// memory that takes all there is would else take the writers' right to dirty a page with it, and each of their pages
    /// would wait for the one before it to be written.
    #[must_use]
    pub fn files_least(&self, memory: Pages) -> Pages {
        if self.law != ReclaimLaw::Tidegate {
            return Pages::ZERO;
        }
        Pages(memory.0 / FILES_PART)
            .at_least(FILES_LEAST)
            .at_most(Pages(memory.0 / FILES_PART_MOST))
    }

    /// Fresh pages of the range that is touched, which one fault brings: in Linux the page that was touched. Ours is told the
    /// range, so none is brought that was not asked for.
    #[must_use]
    pub fn fault_around(&self) -> u32 {
        if self.law == ReclaimLaw::Tidegate {
            FAULT_AROUND
        } else {
            1
        }
    }

    /// Fresh pages that get frames together where there is memory. In Linux each is a fault all the same.
    #[must_use]
    pub fn fresh_together(&self) -> u32 {
        self.fault_around().max(FRESH)
    }

    /// Pages that reclaim takes at a time, and that a task frees on its own behalf before it goes on: 32
    /// of the size that this one stands for. As few tasks then sleep as often as at full size.
    #[must_use]
    pub fn cluster(&self) -> Pages {
        Pages((scan::CLUSTER.0 / u64::from(self.cluster_stands_for.max(1))).max(1))
    }

    /// Isolated pages at the size that is stood for: who has isolated a cluster has isolated 32, however few
    /// pages stand for them.
    #[must_use]
    pub fn isolated(&self, pages: Pages) -> Pages {
        Pages(pages.0.saturating_mul(scan::CLUSTER.0) / self.cluster().0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_a_part_of_the_dirtyable_memory_in_our_law() {
        let least = |law, memory| Tunables::of(law, 250).files_least(Pages(memory)).0;
        let memories = [0, 64, 6400, 8192, 65_536, 1 << 20];
        assert_eq!(
            memories.map(|memory| least(ReclaimLaw::Tidegate, memory)),
            [0, 4, 400, 512, 512, 8192]
        );
        assert_eq!(
            memories.map(|memory| least(ReclaimLaw::Reasons, memory)),
            [0; 6]
        );
    }

    #[test]
    fn a_cluster_isolated_counts_as_32_pages_at_any_scale() {
        for stands_for in [1, 8, 32, 64] {
            let tunables = Tunables {
                cluster_stands_for: stands_for,
                ..Tunables::of(ReclaimLaw::Reasons, 250)
            };
            assert_eq!(tunables.isolated(tunables.cluster()), Pages(32));
        }
    }
}
