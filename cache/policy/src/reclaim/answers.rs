//! A law's answers where `mm` would else have to ask which law it is.
//!
//! Each answer is a number, a choice or a yes of one question that a procedure has, so that the
//! procedure reads the same under every law.

use super::scan::Kind;
use super::swap::walk::SwapWalk;
use super::{Admission, Plenty, Reason, Tunables};
use crate::units::Pages;

impl Tunables {
    /// The path of a task that finds too little memory free.
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

    /// Number of frames that a task that found none waits for, if it can use `want`: one page at a
    /// time in Linux, a batch where each wait is a turn in the queue.
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

    /// True if a page of that kind is asked for from within a file system.
    #[must_use]
    pub fn within_fs(&self, kind: Kind) -> bool {
        self.law.heeds_within_fs && kind == Kind::File && self.files_within_fs
    }

    /// True if anonymous pages are worth a scan, with `free` slots free and `kept` pages in frames
    /// that keep one.
    #[must_use]
    pub fn scans_anon(&self, free: Pages, kept: Pages) -> bool {
        !free.is_zero() || self.law.page.empties_full_swap && !kept.is_zero()
    }

    /// The state that a walk over swapped memory keeps.
    #[must_use]
    pub fn swap_walk(&self) -> SwapWalk {
        SwapWalk::new(self.law.page.reads_on)
    }

    /// True if slots of a full swap file go around: a page that comes back gets a frame of the
    /// reserve, gives up its slot, and another page goes there. Not where the machine kills for
    /// memory: there somebody gives way.
    #[must_use]
    pub fn recycles_slots(&self) -> bool {
        self.has_queue() && !self.oom_kills
    }

    /// True if a background reclaimer that has given up looks again when pages that can be freed
    /// may have come. Nobody else would where those that want memory wait in the queue.
    #[must_use]
    pub fn revives_background(&self) -> bool {
        self.has_queue()
    }

    /// Number of inactive pages of files that keep a pass from anonymous memory that is to free
    /// `target`: in Linux a handful does.
    #[must_use]
    pub fn plenty(&self, target: Pages) -> Pages {
        match self.law.plenty {
            Plenty::Any => Pages::ZERO,
            Plenty::Target => target,
        }
    }

    /// True if each frame is allocated by itself, no matter how many are wanted, as in Linux: the
    /// cost is the lab's matter.
    #[must_use]
    pub fn allocates_singly(&self) -> bool {
        self.admission() == Admission::Direct
    }

    /// The action of a task that finds all requests to the swap file out.
    #[must_use]
    pub fn when_swap_full(&self, sender: SwapSender) -> WhenFull {
        match (sender, self.admission()) {
            (SwapSender::Background, _) | (_, Admission::Direct) => WhenFull::Block,
            (SwapSender::Limit, _) => WhenFull::BlockAndCheckHang,
            (SwapSender::Direct, _) => WhenFull::Skip,
        }
    }

    /// The events that wake the tasks that leave the reserve alone.
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
    /// The background reclaimer. It has requests of its own where writeback is throttled.
    Background,
    /// A task that reclaims for itself.
    Direct,
    /// The task that clears what a lowered limit puts out of use.
    Limit,
}

/// The action of a task that finds no request for its pages to the swap file.
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

/// The events that wake a task that waits because half of the reserve is for tasks that free
/// memory.
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
    use crate::linux::{LINUX_3_2, LINUX_5_15};
    use crate::reclaim::{Reasons, ReclaimLaw};

    #[test]
    fn a_law_with_a_queue_and_without_differ_where_they_should() {
        let linux = Tunables::of(LINUX_5_15, 250);
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
        let singly = all.map(|tunables| tunables.allocates_singly());
        assert_eq!(singly, [true, false, false]);
        assert_eq!(
            all.map(|tunables| tunables.direct_target(100)),
            [Pages(32), Pages(100), Pages(100)]
        );
        let direct = all.map(|tunables| tunables.when_swap_full(SwapSender::Direct));
        assert_eq!(direct, [WhenFull::Block, WhenFull::Skip, WhenFull::Skip]);
        let early = Tunables::of(LINUX_3_2, 250);
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
            assert_eq!(scans(LINUX_5_15, free, kept), linux);
            assert_eq!(scans(ReclaimLaw::TIDEGATE, free, kept), ours);
        }
    }
}
