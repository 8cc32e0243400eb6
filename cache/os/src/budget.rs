//! From a memory limit in bytes to a number of frames.
//!
//! The limit is for everything: pages, their metadata, what does not grow with them, and, when the
//! whole process is meant, what is resident already. So
//!
//! ```text
//!   limit = frames * (a page + metadata per frame) + fixed + resident
//! ```
//!
//! The caller knows what its metadata and its fixed part are; whether the system has that much
//! memory to give is asked here. Two figures say so, and they are not the same kind:
//!
//!   - the limit of a control group (`group.rs`): over it the kernel kills. It is a bound.
//!   - what the system thinks that it could give (MemAvailable): a guess, and too small where a
//!     file system keeps a cache of its own (ZFS) or where there is swap to make room with. Over
//!     the guess, and not over what it leaves out, it is a doubt that the caller tells; over both
//!     it is refused.
//!
//! Source: docs/adr/0006. Resident and pinned memory together stay below the limit and 5 %.

use std::path::{Path, PathBuf};

use policy::units::PAGE_SIZE;

use crate::group::{GroupLimit, Groups};

/// A memory limit and what of it is not for pages. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes that may be used altogether.
    pub limit: u64,
    /// Bytes that the process has already, if the limit is for all of it; else zero.
    pub resident: u64,
    /// Bytes beside the pages that do not grow with them.
    pub fixed: u64,
    /// Metadata of a frame.
    pub per_frame: u64,
    /// Frames below which a cache is no use.
    pub frames_least: u64,
}

/// Why a limit cannot be kept. Bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BudgetError {
    /// It leaves no room for pages.
    TooSmall {
        /// The least that works.
        least: u64,
        /// Bytes that are not for pages.
        overhead: u64,
    },
    /// The system does not have that much memory to give.
    TooLarge {
        /// Bytes that are left.
        available: u64,
    },
    /// The control group does not allow that much: the kernel would kill.
    AboveGroup {
        /// Bytes that it allows.
        allowed: u64,
        /// The file that says so.
        file: PathBuf,
    },
    /// More frames than can be numbered.
    TooMany,
}

/// Memory that the system could still give out. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Available {
    /// Bytes by its own account; `u64::MAX` if it gives none.
    pub bytes: u64,
    /// Memory that this leaves out and that may give way: free swap, and what ZFS keeps beyond its
    /// least.
    pub more: u64,
}

impl Available {
    /// As it is now.
    #[must_use]
    pub fn now() -> Self {
        Self::under(Path::new("/"))
    }

    fn under(root: &Path) -> Self {
        let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap_or_default();
        let (meminfo, zfs) = (read("proc/meminfo"), read("proc/spl/kstat/zfs/arcstats"));
        let kib = |name: &str| {
            let line = meminfo.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
        };
        // Name, type, value.
        let of_zfs = |name: &str| {
            let rows = zfs.lines().map(|line| line.split_whitespace());
            let mut values = rows.filter_map(|mut row| {
                let is_it = row.next() == Some(name);
                row.nth(1).filter(|_| is_it)?.parse::<u64>().ok()
            });
            values.next().unwrap_or(0)
        };
        let swap = kib("SwapFree:").unwrap_or(0).saturating_mul(1024);
        let cache = of_zfs("size").saturating_sub(of_zfs("c_min"));
        Self {
            bytes: kib("MemAvailable:").map_or(u64::MAX, |kib| kib.saturating_mul(1024)),
            more: swap.saturating_add(cache),
        }
    }

    /// The excess of `bytes` over the bytes that the system says it has, if there is one.
    #[must_use]
    pub fn short_of(&self, bytes: u64) -> Option<u64> {
        bytes.checked_sub(self.bytes).filter(|short| *short > 0)
    }
}

impl Budget {
    /// Number of frames that the limit leaves, given the memory that the system has now and that
    /// the process's control groups allow.
    ///
    /// # Errors
    /// The limit is too small for a cache, or more than there is.
    pub fn frames(&self) -> Result<u32, BudgetError> {
        self.frames_of(Available::now(), Groups::of_process().limit())
    }

    fn frames_of(&self, left: Available, group: Option<GroupLimit>) -> Result<u32, BudgetError> {
        if let Some(GroupLimit { bytes, file }) = group
            && self.limit > bytes
        {
            return Err(BudgetError::AboveGroup {
                allowed: bytes,
                file,
            });
        }
        let available = left.bytes.saturating_add(self.resident);
        if self.limit > available.saturating_add(left.more) {
            return Err(BudgetError::TooLarge { available });
        }
        let overhead = self.fixed.saturating_add(self.resident);
        let per_frame = PAGE_SIZE + self.per_frame;
        let frames = self.limit.saturating_sub(overhead) / per_frame;
        if frames < self.frames_least {
            let least = overhead.saturating_add(self.frames_least * per_frame);
            return Err(BudgetError::TooSmall { least, overhead });
        }
        u32::try_from(frames).map_err(|_| BudgetError::TooMany)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Budget = Budget {
        limit: 64 << 20,
        resident: 0,
        fixed: 3 << 20,
        per_frame: 72,
        frames_least: 1024,
    };

    const PLENTY: Available = Available {
        bytes: u64::MAX,
        more: 0,
    };

    fn frames(budget: &Budget) -> Result<u32, BudgetError> {
        budget.frames_of(PLENTY, None)
    }

    #[test]
    fn the_limit_covers_frames_metadata_and_the_rest() {
        let frames = u64::from(frames(&BUDGET).unwrap());
        assert!(frames * (4096 + 72) + (3 << 20) <= 64 << 20);
        assert!(frames * 4096 > 58 << 20, "most of it is pages: {frames}");
    }

    #[test]
    fn a_limit_without_room_says_what_would_do() {
        let mut budget = BUDGET;
        (budget.limit, budget.resident) = (4 << 20, 10 << 20);
        let Err(BudgetError::TooSmall { least, overhead }) = frames(&budget) else {
            panic!("4 MiB cannot hold 10 MiB");
        };
        assert_eq!(overhead, 13 << 20);
        budget.limit = least;
        assert_eq!(frames(&budget), Ok(1024));
        budget.limit = least - 1;
        assert!(frames(&budget).is_err());
    }

    #[test]
    fn a_limit_beyond_what_the_system_has_left_is_refused() {
        let mut budget = BUDGET;
        budget.resident = 10 << 20;
        let available = 63 << 20;
        let mut left = Available {
            bytes: available - budget.resident,
            more: 0,
        };
        assert_eq!(
            budget.frames_of(left, None),
            Err(BudgetError::TooLarge { available })
        );
        // Swap, or a cache that the figure does not know: a doubt, and no refusal.
        left.more = 1 << 20;
        assert!(budget.frames_of(left, None).is_ok());
        assert_eq!(left.short_of(54 << 20), Some(1 << 20));
        left = Available {
            bytes: left.bytes + (1 << 20),
            more: 0,
        };
        assert!(budget.frames_of(left, None).is_ok());
        assert_eq!(left.short_of(54 << 20), None);
    }

    #[test]
    fn a_limit_above_that_of_the_control_group_is_refused_with_its_file() {
        let group = |bytes| {
            let file = PathBuf::from("/sys/fs/cgroup/a/memory.max");
            Some(GroupLimit { bytes, file })
        };
        let refused = BUDGET.frames_of(PLENTY, group((64 << 20) - 1));
        let Err(BudgetError::AboveGroup { allowed, file }) = refused else {
            panic!("the kernel would kill");
        };
        assert_eq!(allowed, (64 << 20) - 1);
        assert_eq!(file, Path::new("/sys/fs/cgroup/a/memory.max"));
        assert!(BUDGET.frames_of(PLENTY, group(64 << 20)).is_ok());
    }

    #[test]
    fn what_the_system_has_is_read_with_what_its_figure_leaves_out() {
        let dir = crate::TestDir::new("available");
        assert_eq!(Available::under(&dir.0), PLENTY);
        std::fs::create_dir_all(dir.join("proc/spl/kstat/zfs")).unwrap();
        let meminfo = "MemTotal: 9000 kB\nMemAvailable:    1000 kB\nSwapFree:  10 kB\n";
        std::fs::write(dir.join("proc/meminfo"), meminfo).unwrap();
        let zfs = "13 1 0x01 147 39984 1 2\nname type data\nc_min 4 4096\nc 4 9\nsize 4 12288\n";
        std::fs::write(dir.join("proc/spl/kstat/zfs/arcstats"), zfs).unwrap();
        let left = Available::under(&dir.0);
        assert_eq!((left.bytes, left.more), (1000 << 10, (10 << 10) + 8192));
    }

    #[test]
    fn more_frames_than_numbers_are_refused() {
        let mut budget = BUDGET;
        budget.limit = 1 << 60;
        assert_eq!(frames(&budget), Err(BudgetError::TooMany));
    }
}
