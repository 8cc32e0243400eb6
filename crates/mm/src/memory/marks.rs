//! How far down free frames may be taken, and by whom; and what is free for those who wait.
//!
//! In Linux's laws a mark is kept free. Under ours it depends on who asks: what is promised or kept back for others is
//! not to be had, and one who draws little may use half the reserve.
//!
//! Source: policy::watermark, policy::reclaim::turn.

use env::{Context, Env, Task};
use policy::reclaim::turn::{Standing, Stock};
use policy::units::Pages;
use policy::watermark::{AllocRight, room};

use super::Memory;
use crate::lists::NodeId;

impl<E: Env> Memory<E> {
    /// Gives those who wait for their turn what is free above the reserve.
    pub(crate) fn hand_out(&self, context: &impl Context) {
        let stock = || Stock {
            free: Pages(u64::from(self.free())),
            kept: Pages(u64::from(self.line.kept_back(self.env.now()))),
            min: self.marks.min,
        };
        self.line.hand_out(context, || self.env.now(), stock);
    }

    /// Free frames as the background reclaimer counts them: less what is promised, asked for or kept back.
    pub(crate) fn spare(&self) -> Pages {
        Pages(u64::from(self.free().saturating_sub(self.spoken_for())))
    }

    /// The same of one node. Where memory is handed out in turn there is but one.
    pub(crate) fn spare_of(&self, node: NodeId) -> Pages {
        Pages(u64::from(
            self.free_of(node).saturating_sub(self.spoken_for()),
        ))
    }

    /// Free frames that are promised, asked for or kept back.
    fn spoken_for(&self) -> u32 {
        let line = &self.line;
        if !line.is_open() {
            return 0;
        }
        let (promised, kept) = line.promised_and_kept(self.env.now());
        promised.saturating_add(line.wanted()).saturating_add(kept)
    }

    /// Whether somebody waits for frames, or will at once: the reserve is being used.
    pub(crate) fn is_short(&self) -> bool {
        let free = self.free().saturating_sub(self.line.promised());
        self.line.wanted() > 0 || u64::from(free) < self.marks.min.0
    }

    /// Frames of a node that may be taken with that right, where `mark` has to stay free.
    pub(crate) fn room(&self, node: NodeId, mark: Pages, right: AllocRight) -> u32 {
        let free = Pages(u64::from(self.free_of(node)));
        let room = room(free, mark, right);
        u32::try_from(room.0).expect("no more than are free")
    }

    /// Frames that may be taken where memory is handed out in turn. How little a task takes matters
    /// below the mark alone.
    pub(crate) fn room_in_turn(&self, task: &Task<'_, E>, want: u32, exempt: bool) -> u32 {
        let line = &self.line;
        let now = self.env.now();
        let (promised, kept) = line.promised_and_kept(now);
        let free = self.free().saturating_sub(promised);
        let min = self.marks.min;
        let left = |free: u32, floor: Pages| Pages(u64::from(free)).saturating_sub(floor);
        let above = left(free.saturating_sub(kept), min);
        let need = Pages(u64::from(want));
        let room = if above >= need {
            above
        } else {
            let standing = if exempt {
                Standing::Exempt
            } else {
                line.standing(task, task.id(), now, need, min)
            };
            let for_others = kept > 0 && !exempt && !line.is_modest(task, task.id(), now);
            if for_others {
                left(free.saturating_sub(kept), standing.floor(min))
            } else {
                // What was given back does not fill the reserve first: it is no emptier afterwards than it was before.
                let kept = Pages(u64::from(kept));
                let own = left(free, Standing::Small.floor(min)).at_most(kept);
                left(free, standing.floor(min)).at_least(own)
            }
        };
        u32::try_from(room.0).expect("no more than are free")
    }
}
