//! The interface of a law of reclaim that throttles: its questions and their answers.

use crate::reclaim::reason::Reason;
use crate::reclaim::scan::Priority;
use crate::ticks::{TickRate, Ticks};
use crate::units::Pages;

/// Pages written that are worth the wake of one sleeper (`SWAP_CLUSTER_MAX`).
pub const PAGES_PER_SLEEPER: u64 = 32;

/// Why and for how long a law lets reclaimers sleep, and which event wakes which. One value for all
/// nodes: what changes is handed in.
pub trait ThrottleLaw: Sync {
    /// Which reason a finding is, if it is one.
    fn reason_of(&self, finding: Finding) -> Option<Reason>;

    /// The sleep for `reason`.
    fn sleep(&self, reason: Reason, who: Who, facts: &Facts, rate: TickRate) -> Sleep;

    /// Ticks by which the timer of a sleep is set longer than its timeout.
    fn rounding(&self, _reason: Reason) -> Ticks {
        Ticks(0)
    }

    /// True if a sleep for `reason` ends as soon as nothing is left to be written.
    fn ends_without_writes(&self, _reason: Reason) -> bool {
        false
    }

    /// Which of the sleepers for WRITEBACK wake now that pages were written. `last`: nothing more
    /// is under way.
    fn wake_for_written(&self, _writeback: &mut Writeback, _last: bool) -> Wake {
        Wake::None
    }

    /// Which of the sleepers for ISOLATED wake now that `room` more pages may be isolated.
    fn wake_for_room(&self, _room: Pages) -> Wake {
        Wake::None
    }

    /// The consequences of a pass over one node.
    fn after_node(&self, _progress: &Progress) -> After {
        After::default()
    }

    /// The consequences of the passes over all nodes at one priority.
    fn after_nodes(&self, _progress: &Progress) -> After {
        After::default()
    }
}

/// The length of a sleep under a law.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// Not at all.
    Go,
    /// Not at all, but others may run.
    Yield,
    /// Not at all, but others may run and a trace line says so.
    Traced(Ticks),
    /// This many ticks.
    For(Ticks),
}

/// The sleepers for WRITEBACK and what has been written meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writeback {
    /// Number of sleepers (`nr_writeback_throttled`).
    pub sleepers: u32,
    /// Pages written while somebody slept (`NR_THROTTLED_WRITTEN`).
    pub written: u64,
    /// `written` when the first of them fell asleep (`nr_reclaim_start`), or of what has been
    /// answered by a wake since.
    pub mark: u64,
}

impl Writeback {
    pub(in crate::reclaim) fn fall_asleep(&mut self) {
        self.sleepers += 1;
        if self.sleepers == 1 {
            self.mark = self.written;
        }
    }

    pub(in crate::reclaim) fn wake_up(&mut self) {
        self.sleepers = self.sleepers.saturating_sub(1);
    }

    /// Pages written since the mark.
    pub fn since_mark(&self) -> u64 {
        self.written - self.mark
    }
}

/// A reclaimer's finding that may be a reason to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Finding {
    /// The background reclaimer met pages under writeback that had been marked for reclaim when it
    /// met them before (`nr_immediate > 0` at the end of a pass).
    Immediate,
    /// Direct reclaim in a node of which all dirty pages met are congested.
    Congested,
    /// Direct reclaim: more pages are isolated than may be.
    Isolated,
    /// The allocator would try again, made no progress, and more than half of what could be
    /// reclaimed is dirty or under writeback (`retry`).
    WritePending,
}

/// The reclaimer: what it is, and what it may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Who {
    /// The background reclaimer.
    pub background: bool,
    /// A flusher or a thread of I/O: others need it to get on.
    pub exempt: bool,
    /// It asks from within a file system, and reclaim must not enter one again (kernel: no
    /// `__GFP_FS`).
    pub within_fs: bool,
}

impl Who {
    /// A task that reclaims on its own behalf.
    pub const DIRECT: Self = Self {
        background: false,
        exempt: false,
        within_fs: false,
    };
    /// The background reclaimer.
    pub const BACKGROUND: Self = Self {
        background: true,
        exempt: false,
        within_fs: false,
    };
}

/// The node, at one look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Pages on the lists, the anonymous ones only where there is swap.
    pub reclaimable: Pages,
    /// Pages dirty or under writeback.
    pub write_pending: Pages,
    /// The background reclaimer has given up (`background::Failures::hopeless`).
    pub hopeless: bool,
}

/// Which of the sleepers of one reason wake, the longest asleep first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wake {
    /// Nobody.
    #[default]
    None,
    /// All.
    All,
    /// This many.
    Some(u32),
}

/// The yield of a reclaimer's pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Pages reclaimed since reclaim began, over all priorities.
    pub reclaimed: Pages,
    /// Pages scanned at this priority.
    pub scanned: Pages,
    /// Of the pass.
    pub priority: Priority,
    /// It was the background reclaimer's.
    pub background: bool,
}

/// The consequences of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct After {
    /// Of those that sleep for NOPROGRESS.
    pub wake: Wake,
    /// The reclaimer itself is to be throttled: call `begin`.
    pub throttle: Option<Reason>,
}
