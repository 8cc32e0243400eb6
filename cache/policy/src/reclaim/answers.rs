//! What a law answers where `mm` would else have to ask which law it is.
//!
//! Each answer is a number, a choice or a yes of one question that a procedure has, so that the
//! procedure reads the same under every law.

use super::scan::Kind;
use super::swap::walk::SwapWalk;
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

    /// How many frames a task that found none waits for, if it can use `want`: one page at a time
    /// in Linux, a batch where each wait is a turn in the queue.
    #[must_use]
    pub fn frames_asked(&self, want: u32) -> u32 {
        if self.has_queue() { want.max(1) } else { 1 }
    }

    /// Pages that a task which wants `want` frames reclaims for itself: in Linux a cluster,
    /// whatever is wanted.
    #[must_use]
    pub fn direct_target(&self, want: u32) -> Pages {
        let cluster = self.cluster();
        match self.admission() {
            Admission::Direct => cluster,
            Admission::Queue | Admission::Unqueued => Pages(u64::from(want)).at_least(cluster),
        }
    }

    /// Pages that lists which look empty may hold all the same: where a page stands for many, and
    /// somebody would be killed for it.
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

    /// Whether anonymous pages are worth a scan, where so many slots are free, and so many pages in
    /// frames keep one.
    #[must_use]
    pub fn scans_anon(&self, free: Pages, kept: Pages) -> bool {
        !free.is_zero() || self.law.page.empties_full_swap && !kept.is_zero()
    }

    /// What a walk over swapped memory remembers.
    #[must_use]
    pub fn swap_walk(&self) -> SwapWalk {
        SwapWalk::new(self.law.page.reads_on)
    }

    /// Whether slots of a full swap file go around: a page that comes back gets a frame of the
    /// reserve, gives up its slot, and another page goes there. Not where the machine kills for
    /// memory: there somebody gives way.
    #[must_use]
    pub fn recycles_slots(&self) -> bool {
        self.has_queue() && !self.oom_kills
    }

    /// Whether a background reclaimer that has given up looks again when pages that can be freed
    /// may have come. Nobody else would where those that want memory wait in the queue.
    #[must_use]
    pub fn revives_background(&self) -> bool {
        self.has_queue()
    }

    /// So many inactive pages of files keep a pass from anonymous memory that is to free `target`:
    /// in Linux a handful does.
    #[must_use]
    pub fn plenty(&self, target: Pages) -> Pages {
        match self.law.plenty {
            Plenty::Any => Pages::ZERO,
            Plenty::Target => target,
        }
    }

    /// Whether each frame is allocated for itself, no matter how many are wanted, as in Linux: what
    /// that costs is the lab's matter.
    #[must_use]
    pub fn allocates_singly(&self) -> bool {
        self.admission() == Admission::Direct
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

    /// What wakes the tasks that leave the reserve alone.
    #[must_use]
    pub fn reserve_wakes(&self) -> ReserveWakes {
        match self.admission() {
            Admission::Direct => ReserveWakes::Background,
            Admission::Queue | Admission::Unqueued => ReserveWakes::Anyone,
        }
    }
}

/// Which tasks send pages to the swap file.
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
    /// Sends it another time: the background is at it, and a task that needs memory must not queue
    /// at the device.
    Skip,
}

/// What wakes a task that waits because half of the reserve is for tasks that free memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReserveWakes {
    /// The background reclaimer alone. Where a device holds it up, they wait although others gave
    /// memory back (Linux 5.15 mm/vmscan.c, throttle_direct_reclaim()).
    Background,
    /// Every task that gives memory back.
    Anyone,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reclaim::{Reasons, ReclaimLaw};

    #[test]
    fn a_law_with_a_queue_and_without_differ_where_they_should() {
        let linux = Tunables::of(ReclaimLaw::LINUX_5_15, 250);
        let queue = Tunables::of(ReclaimLaw::TIDEGATE, 250);
        let unqueued = Tunables {
            off: Reasons::NONE.with(Reason::Turn),
            ..queue
        };
        let all = [linux, queue, unqueued];
        assert_eq!(
            all.map(|tunables| tunables.admission()),
            [Admission::Direct, Admission::Queue, Admission::Unqueued]
        );
        assert_eq!(all.map(|tunables| tunables.frames_asked(16)), [1, 16, 1]);
        assert_eq!(
            all.map(|tunables| tunables.direct_target(100)),
            [Pages(32), Pages(100), Pages(100)]
        );
        let direct = all.map(|tunables| tunables.when_swap_full(SwapSender::Direct));
        assert_eq!(direct, [WhenFull::Block, WhenFull::Skip, WhenFull::Skip]);
        let early = Tunables::of(ReclaimLaw::LINUX_3_2, 250);
        assert_eq!(early.when_swap_full(SwapSender::Direct), WhenFull::Block);
        let revives = all.map(|tunables| tunables.revives_background());
        assert_eq!(revives, [false, true, false]);
        assert_eq!(
            all.map(|tunables| tunables.reserve_wakes() == ReserveWakes::Anyone),
            [false, true, true]
        );
    }

    #[test]
    fn a_full_swap_file_is_scanned_for_where_the_law_says_so() {
        let scans = |law, free, kept| {
            let tunables = Tunables::of(law, 250);
            tunables.scans_anon(Pages(free), Pages(kept))
        };
        for (free, kept, linux, ours) in [
            (1, 0, true, true),
            (0, 1, false, true),
            (0, 0, false, false),
        ] {
            assert_eq!(scans(ReclaimLaw::LINUX_5_15, free, kept), linux);
            assert_eq!(scans(ReclaimLaw::TIDEGATE, free, kept), ours);
        }
    }
}
