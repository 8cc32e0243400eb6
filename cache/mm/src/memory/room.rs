//! The depth to which tasks may take free frames, by task; and the free frames of those that wait.
//!
//! Where each task reclaims for itself, a mark is kept free. Where memory is handed out in turn it
//! depends on the task that asks: frames promised or kept back for others are not available, and a
//! task that pages are kept for may use half the reserve for them.
//!
//! Source: policy::watermark, policy::reclaim::turn.

use env::{Context, Task, TaskId};
use frames::FrameId;
use policy::place::marks::Marks;
use policy::place::search::Floor;
use policy::reclaim::turn::{Stock, kept_floor};
use policy::units::Pages;
use policy::watermark::{AllocRight, room};

use super::Memory;
use super::queue::MemoryQueue;
use super::slow_path::SlowPath;
use crate::lists::ZoneId;

/// Frames that somebody asks for.
#[derive(Clone, Copy)]
pub struct Asked {
    /// Of this zone.
    pub zone: ZoneId,
    /// Stays free where each task reclaims for itself; MIN for those that may use the reserve.
    pub floor: Floor,
    /// Their number.
    pub want: u32,
    /// None was taken for the same purpose before.
    pub first: bool,
    /// For a task that others need to get on.
    pub exempt: bool,
}

impl Asked {
    /// The pages left to ask for when `taken` have been taken.
    pub(crate) fn after(self, taken: u32) -> Self {
        Self {
            want: self.want - taken,
            first: self.first && taken == 0,
            ..self
        }
    }
}

impl Memory {
    /// The slow path of a task that finds too little.
    pub(crate) fn slow_path(&self) -> &SlowPath {
        &self.slow_path
    }

    /// The queue for memory, if there is one and memory is short: free frames are not above HIGH.
    pub(crate) fn queue_if_short(&self) -> Option<&MemoryQueue> {
        let queue = self.slow_path.queue()?;
        (self.spare() <= self.marks.high).then_some(queue)
    }

    #[cfg(test)]
    pub(crate) fn test_queue(&self) -> &MemoryQueue {
        self.slow_path.queue().expect("a law with a queue")
    }

    /// Gives those that wait for their turn what is free above the reserve.
    pub(crate) fn hand_out(&self, context: &impl Context) {
        let stock = |queue: &MemoryQueue| Stock {
            free: Pages(u64::from(self.free())),
            kept: Pages(u64::from(queue.kept_back(self.env.now()))),
            min: self.marks.min,
        };
        self.slow_path.hand_out(context, || self.env.now(), stock);
    }

    /// The task took frames.
    pub fn took(&self, task: &Task<'_>, frames: u32) {
        self.slow_path.took(task, task.id(), || task.now(), frames);
    }

    /// Pages that the task `who` took were given back.
    pub(crate) fn gave_back(&self, context: &impl Context, who: TaskId, pages: Pages) {
        self.slow_path
            .gave_back(context, who, || self.env.now(), pages);
    }

    /// Puts frames back that the task took and did not use.
    pub(crate) fn put_unused(&self, task: &Task<'_>, frames: &[FrameId]) {
        if frames.is_empty() {
            return;
        }
        // First, as where pages are given back: pages kept for it and its like are not handed out
        // to others.
        let pages = Pages(frames.len() as u64);
        self.slow_path.unused(task, task.id(), || task.now(), pages);
        self.put(task, frames);
    }

    /// Free frames as the background reclaimer counts them: less what is promised, asked for or
    /// kept back.
    pub(crate) fn spare(&self) -> Pages {
        Pages(u64::from(self.free().saturating_sub(self.spoken_for())))
    }

    /// The same of one zone. Pages that are spoken for may come from any of them: by as much as all
    /// have too little above HIGH after it, each has too little, so that no reclaimer rests that
    /// could make up for another's.
    pub fn spare_of(&self, zone: ZoneId) -> Pages {
        let free = Pages(u64::from(self.free_of(zone)));
        let Some(queue) = self.slow_path.queue() else {
            return free;
        };
        let lead = queue.lead(self.env.now());
        let spare = self.spare().saturating_sub(lead);
        if self.layout.is_one() {
            return spare;
        }
        let missing = self.marks.high.saturating_sub(spare);
        let free = free.saturating_sub(lead);
        if missing.is_zero() {
            return free;
        }
        free.at_most(self.marks_of(zone).high.saturating_sub(missing))
    }

    /// A reader has taken a window of `pages`.
    pub(crate) fn took_window(&self, task: &Task<'_>, pages: Pages) {
        if let Some(queue) = self.slow_path.queue() {
            queue.took_window(task, task.now(), pages);
        }
    }

    /// The zones whose reserve is one for a task of the zone `home`: that alone where each task
    /// reclaims for itself, all where memory is handed out in turn, of whichever zone.
    pub(crate) fn zones_of_reserve(&self, home: ZoneId) -> impl Iterator<Item = ZoneId> + use<> {
        let all = !matches!(self.slow_path, SlowPath::Direct);
        self.layout.zones().filter(move |zone| all || *zone == home)
    }

    fn spoken_for(&self) -> u32 {
        self.slow_path.spoken_for(|| self.env.now())
    }

    /// True if somebody waits for frames, or will at once: the reserve is being used.
    pub(crate) fn is_short(&self) -> bool {
        let (promised, wanted) = self.slow_path.promised_and_wanted();
        let free = self.free().saturating_sub(promised);
        wanted > 0 || u64::from(free) < self.marks.min.0
    }

    /// Frames that the task may take now, of those it asks for.
    pub fn room(&self, task: &Task<'_>, asked: &Asked) -> u32 {
        let room = match &self.slow_path {
            SlowPath::Queue(queue) => self.room_in_turn(queue, task, asked),
            SlowPath::Direct | SlowPath::Unqueued => self.room_above(asked),
        };
        u32::try_from(room.0).expect("no more than are free")
    }

    /// The floor has to stay free. A task that others need to get on takes its first frame from the
    /// reserve.
    fn room_above(&self, asked: &Asked) -> Pages {
        let free = Pages(u64::from(self.free_of(asked.zone)));
        let Marks {
            watermarks,
            reserve,
        } = self.zone_marks(asked.zone);
        let mark = match asked.floor {
            Floor::Low => watermarks.low,
            Floor::Min => watermarks.min,
        };
        let above = room(free, mark, AllocRight::Normal).saturating_sub(reserve);
        let last = asked.exempt && asked.first && asked.floor == Floor::Min;
        if above.is_zero() && last {
            let own = self.zone_marks[asked.zone.index()].watermarks.min;
            let mark = if self.boost.spares_urgent { own } else { mark };
            return room(free, mark, AllocRight::High).saturating_sub(reserve);
        }
        above
    }

    /// The room under a law that hands memory out in turn. For whom pages are kept matters below
    /// the mark alone.
    fn room_in_turn(&self, queue: &MemoryQueue, task: &Task<'_>, asked: &Asked) -> Pages {
        let now = self.env.now();
        let kept = queue.kept_back(now);
        let free = self.free().saturating_sub(queue.promised());
        let left = |free: u32, floor: Pages| Pages(u64::from(free)).saturating_sub(floor);
        let min = self.marks.min;
        let above = left(free.saturating_sub(kept), min);
        if above >= Pages(u64::from(asked.want)) {
            return above;
        }
        if asked.exempt {
            return Pages(u64::from(free));
        }
        if kept == 0 || !queue.is_modest(task, task.id(), now) {
            return above;
        }
        // Pages that were given back do not fill the reserve first: it is no emptier afterwards
        // than it was before.
        let own = left(free, kept_floor(min)).at_most(Pages(u64::from(kept)));
        left(free, min).at_least(own)
    }
}
