//! The frames that hold no page: how many, where they are, which tasks may take them, and which
//! wait for them.
//!
//! `free` holds the lists and the chunks without memory, `cpu_lists` what CPUs keep for themselves,
//! `room` says how far down they may be taken, `chunks` takes memory from the system and gives it
//! back, `offline` is what a lowered limit has put out of use and what a task empties
//! (`evacuation`), `slow_path` says what a task does that finds too little, and `queue` holds the
//! tasks that wait for a turn where there are turns. Getting a frame by reclaiming and waiting is
//! `alloc`'s.

use std::sync::Arc;

use env::{Cause, Context, Env, Lock, LockClass, LockGuard, Signal, Task, TaskId, WaitQueue};
use frames::Content;
use frames::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use policy::place::marks::{self, Marks};
use policy::reclaim::Tunables;
use policy::reclaim::boost::BoostRule;
use policy::units::Instant;
use policy::watermark::Watermarks;

use crate::Error;
use crate::lists::{Layout, ZoneId};
use crate::options::{Apart, ListsOfCpus};
use cpu_lists::CpuLists;
use free::Free;
use overhead::Overhead;
use slow_path::SlowPath;

pub(crate) mod apart;
pub(crate) mod chunks;
mod cpu_lists;
pub(crate) mod evacuation;
pub(crate) mod free;
pub(crate) mod offline;
pub(crate) mod overhead;
pub(crate) mod queue;
pub(crate) mod room;
pub(crate) mod runs;
pub(crate) mod slow_path;

/// The frames that hold no page.
pub struct Memory {
    env: Arc<dyn Env>,
    /// That of `env`.
    content: Arc<dyn Content>,
    lists: Lock<Free>,
    /// Free frames of each zone, unpopulated ones included; copies for looks without the lock.
    free: Box<[AtomicU32]>,
    layout: Arc<Layout>,
    /// Chunks on their way to or from the system: on no list, but soon available. Changes under the
    /// lock.
    moving: AtomicU32,
    /// Frames given back, ever.
    given_back: AtomicU64,
    /// The same by zone, as far as they came onto the free lists.
    given_back_of: Box<[AtomicU64]>,
    /// Frames that went to pages which came back while the swap file was full, ever.
    returned: AtomicU64,
    /// Frames that may be used: what is asked for, less the chunks that the system refused.
    limit: AtomicU32,
    /// Frames that the limit in force asks for.
    asked: AtomicU32,
    /// When a chunk that was refused is asked for again.
    ask_again: AtomicU64,
    frames: u32,
    chunk: u32,
    marks: Watermarks,
    /// The part of each zone.
    zone_marks: Box<[Marks]>,
    /// By how much each zone's stand higher now: copies for looks without the lock.
    raised: Box<[AtomicU64]>,
    apart: Option<Apart>,
    boost: BoostRule,
    /// Where the next look for a block that is to be emptied begins, in blocks of its size.
    pub(crate) next_look: AtomicU32,
    /// Callers that found nothing to reclaim.
    wait: WaitQueue,
    slow_path: SlowPath,
    /// Frames that writers keep between two calls.
    pub(crate) reserved: AtomicU32,
    /// A task is clearing the frames beyond the limit. Held while the limit is changed.
    shrinking: Lock<bool>,
    /// Tasks that are never throttled in reclaim.
    exempt: Lock<Vec<TaskId>>,
    /// Number of these: mostly none.
    exempts: AtomicUsize,
    /// The overhead of pages, if it takes frames.
    pub(crate) overhead: Option<Arc<dyn Overhead>>,
}

/// The amount of memory, and the law by which it is given out.
pub(crate) struct Shape {
    pub(crate) frames: u32,
    pub(crate) chunk: u32,
    pub(crate) layout: Arc<Layout>,
    pub(crate) marks: Watermarks,
    pub(crate) tunables: Tunables,
    /// CPUs have free frames of their own.
    pub(crate) cpu_lists: Option<ListsOfCpus>,
    pub(crate) apart: Option<Apart>,
    pub(crate) boost: BoostRule,
    /// The overhead of pages, if it takes frames.
    pub(crate) overhead: Option<Arc<dyn Overhead>>,
}

impl Memory {
    pub(crate) fn new(env: Arc<dyn Env>, shape: Shape) -> Self {
        let Shape {
            frames,
            chunk,
            layout,
            marks,
            tunables,
            cpu_lists,
            apart,
            boost,
            overhead,
        } = shape;
        let apart = apart.map(|apart| Apart {
            pageblock_order: apart.pageblock_order.min(free::pageblock_order(chunk)),
            ..apart
        });
        let free = layout.all().iter().map(|zone| {
            let pages = u32::try_from(zone.pages.0).expect("no more than all frames");
            AtomicU32::new(pages)
        });
        let zone_marks = marks::of_zones(layout.all(), marks);
        let cpu_lists = cpu_lists
            .map(|of| CpuLists::new(&layout, &zone_marks, of, (tunables.stands_for, env.now())));
        let lists = Free::new((frames, chunk), &layout, apart, cpu_lists);
        Self {
            content: env.content(),
            env,
            lists: Lock::new(LockClass::Free, lists),
            limit: AtomicU32::new(frames),
            asked: AtomicU32::new(frames),
            ask_again: AtomicU64::new(0),
            free: free.collect(),
            moving: AtomicU32::new(0),
            given_back: AtomicU64::new(0),
            given_back_of: layout.zones().map(|_| AtomicU64::new(0)).collect(),
            returned: AtomicU64::new(0),
            frames,
            chunk,
            marks,
            zone_marks: zone_marks.into(),
            raised: layout.zones().map(|_| AtomicU64::new(0)).collect(),
            apart,
            boost,
            layout,
            next_look: AtomicU32::new(0),
            wait: WaitQueue::new(),
            slow_path: SlowPath::new(&tunables, frames),
            reserved: AtomicU32::new(0),
            shrinking: Lock::new(LockClass::Registry, false),
            exempt: Lock::new(LockClass::Leaf, Vec::new()),
            exempts: AtomicUsize::new(0),
            overhead,
        }
    }

    /// Frames that are kept together, as a power of two.
    pub fn pageblock_order(&self) -> u8 {
        let of_chunk = || free::pageblock_order(self.chunk);
        self.apart
            .map_or_else(of_chunk, |apart| apart.pageblock_order)
    }

    /// When reclaim begins and ends.
    pub(crate) fn marks(&self) -> Watermarks {
        self.marks
    }

    /// A zone's part of them, as they are compared with, and what it keeps back besides.
    pub fn zone_marks(&self, zone: ZoneId) -> Marks {
        Marks {
            watermarks: self.marks_of(zone),
            reserve: self.zone_marks[zone.index()].reserve,
        }
    }

    /// True if the task is one of those that others need to get on.
    pub(crate) fn is_exempt(&self, task: &Task<'_>) -> bool {
        // One of them has counted itself.
        self.exempts.load(Ordering::Relaxed) > 0 && self.exempt.lock(task).contains(&task.id())
    }

    /// From now on the task is one of them.
    pub(crate) fn make_exempt(&self, task: &Task<'_>) {
        let mut exempt = self.exempt.lock(task);
        if !exempt.contains(&task.id()) {
            exempt.push(task.id());
            self.exempts.store(exempt.len(), Ordering::Relaxed);
        }
    }

    /// Waits as long as the task is `blocked`, and no longer than to `deadline`.
    pub(crate) fn wait_while(
        &self,
        task: &mut Task<'_>,
        deadline: Instant,
        blocked: impl Fn(&Self) -> bool,
    ) -> Result<(), Error> {
        let wakeup = task.wait_while(&self.wait, Cause::Memory, Some(deadline), |_| blocked(self));
        Error::after(wakeup)
    }

    /// The queue of tasks that found nothing to reclaim.
    pub(crate) fn waiters(&self) -> &WaitQueue {
        &self.wait
    }

    /// Something has changed for those that wait for memory.
    pub fn wake(&self, signal: Signal) {
        self.wait.wake_all(signal);
    }

    /// Held while the limit is changed, or must not change: whether a task is clearing the frames
    /// beyond it.
    pub(crate) fn shrinking<'a>(&'a self, context: &'a impl Context) -> LockGuard<'a, bool> {
        self.shrinking.lock(context)
    }
}
