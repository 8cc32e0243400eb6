//! What a law answers where `mm` would else have to ask which law it is.
//!
//! Each answer is a number, a choice or a yes of one question that a procedure has, so that the procedure reads the
//! same under every law.

use super::scan::Kind;
use super::{Admission, Plenty, Reason, Tunables};
use crate::units::Pages;

impl Tunables {
    /// What a task does that finds too little memory free.
    #[must_use]
    pub fn admission(&self) -> Admission {
        match self.law.admission {
            Admission::Queue if self.off.has(Reason::Turn) => Admission::Unqueued,
            Admission::Direct => Admission::Direct,
            Admission::Queue => Admission::Queue,
            Admission::Unqueued => Admission::Unqueued,
        }
    }

    fn has_queue(&self) -> bool {
        self.admission() == Admission::Queue
    }

    /// How many frames a task that found none waits for, if it can use `want`: one page at a time in Linux, a batch
    /// where each wait is a turn in the queue.
    #[must_use]
    pub fn frames_asked(&self, want: u32) -> u32 {
        if self.has_queue() { want.max(1) } else { 1 }
    }

    /// Pages that a task which wants `want` frames reclaims for itself: in Linux a cluster, whatever is wanted.
    #[must_use]
    pub fn direct_target(&self, want: u32) -> Pages {
        let cluster = self.cluster();
        match self.admission() {
            Admission::Direct => cluster,
            Admission::Queue | Admission::Unqueued => Pages(u64::from(want)).at_least(cluster),
        }
    }

    /// Pages that lists which look empty may hold all the same: where a page stands for many, and somebody would be
    /// killed for it.
    #[must_use]
    pub fn unseen(&self) -> Pages {
        let kills = self.admission() == Admission::Direct && self.oom_kills;
        Pages(u64::from(kills && self.stands_for > 1))
    }

    /// Whether a page of that kind is asked for from within a file system.
    #[must_use]
    pub fn within_fs(&self, kind: Kind) -> bool {
        self.law.heeds_within_fs && kind == Kind::File && self.files_within_fs
    }

    /// Whether slots of a full swap file go around: a page that comes back gets a frame of the reserve, gives up its
    /// slot, and another page goes there. Not where the machine kills for memory: there somebody gives way.
    #[must_use]
    pub fn recycles_slots(&self) -> bool {
        self.has_queue() && !self.oom_kills
    }

    /// Whether a background reclaimer that has given up looks again when pages that can be freed may have come. Nobody else
    /// would where those who want memory wait in the queue.
    #[must_use]
    pub fn revives_background(&self) -> bool {
        self.has_queue()
    }

    /// So many inactive pages of files keep a pass from anonymous memory that is to free `target`: in Linux a handful does.
    #[must_use]
    pub fn plenty(&self, target: Pages) -> Pages {
        match self.law.plenty {
            Plenty::Any => Pages::ZERO,
            Plenty::Target => target,
        }
    }

    /// Whether frames taken in one hold of the free lists cost as a batch; in Linux each is taken for itself.
    #[must_use]
    pub fn takes_batches(&self) -> bool {
        self.admission() != Admission::Direct
    }

    /// What a task does that finds all requests to the swap file out.
    #[must_use]
    pub fn when_swap_full(&self, sender: SwapSender) -> WhenFull {
        match (sender, self.admission()) {
            (SwapSender::Background, _) | (_, Admission::Direct) => WhenFull::Block,
            (SwapSender::Limit, _) => WhenFull::BlockAndCheckHang,
            (SwapSender::Direct, _) => WhenFull::Skip,
        }
    }

    /// Who wakes those who leave the reserve alone.
    #[must_use]
    pub fn reserve_wakes(&self) -> ReserveWakes {
        match self.admission() {
            Admission::Direct => ReserveWakes::Background,
            Admission::Queue | Admission::Unqueued => ReserveWakes::Anyone,
        }
    }
}

/// Who sends pages to the swap file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapSender {
    /// The background reclaimer. Where writeback is throttled it has requests of its own.
    Background,
    /// A task that reclaims for itself.
    Direct,
    /// The task that clears what a lowered limit puts out of use.
    Limit,
}

/// What a task does that finds no request for what it sends to the swap file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Waits; another that is late finds out that the swap file hangs.
    Block,
    /// Waits, and finds that out itself.
    BlockAndCheckHang,
    /// Sends it another time: the background is at it, and a task that needs memory must not queue at the device.
    Skip,
}

/// Who wakes a task that waits because half of the reserve is for those who free memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReserveWakes {
    /// The background reclaimer alone. Where a device holds it up, they wait although others gave memory back (Linux 5.15
    /// mm/vmscan.c, throttle_direct_reclaim()).
    Background,
    /// Everyone who gives memory back.
    Anyone,
}
