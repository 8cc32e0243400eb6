//! Frames for pages: from the free lists, from fresh chunks, or by reclaiming.
//!
//! Marks (policy::watermark): below `low` the background reclaimer is woken; below `min` the
//! caller reclaims itself before it takes a frame, so that a reserve stays for whoever must not
//! wait. A caller that cannot make progress sleeps until something changes: an end of writeback, a
//! pass of reclaim, an unpin. It gives up with a typed error only when nothing can change any
//! more: no page is under writeback or dirty, and none could be freed; or when nothing has changed for
//! `STANDSTILL`: what is under writeback is at a device that hangs.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

use env::{Cause, Context, Env, Lock, LockClass, Signal, Task, TaskId, WaitQueue, Wakeup, Work};
use frames::{Content, FrameId, FreeLists};
use policy::reclaim::retry::{Retry, RetryVerdict, RetryView};
use policy::reclaim::throttle::Who;
use policy::reclaim::turn::{Overdue, Standing, Ticket, at_bound};
use policy::reclaim::{ReclaimLaw, Tunables};
use policy::units::{Instant, Nanos, Pages};
use policy::watermark::{AllocRight, Watermarks, room};

use crate::Error;
use crate::cache::{Cache, get};
use crate::limit::{Limit, Withheld};
use crate::reclaim::direct::{direct, direct_until};
use crate::reclaim::node::{Division, NodeId};
use crate::reclaim::throttle;
use crate::reclaim::turns::{Line, Room};
use crate::swap::Patience;
use crate::vmstat::Item;

/// A sleeper for memory looks again after this even if nobody woke it (a safety net).
const LOOK_AGAIN: Nanos = Nanos::millis(100);
/// Pages that each flusher is asked for when nothing clean is left: a few requests' worth.
const WANTED: Pages = Pages(1024);
/// Rounds without progress, with nothing dirty or under writeback, before a caller is refused.
const HOPELESS_ROUNDS: u32 = 20;
/// Nothing was freed and nothing written for so long: whoever waits for memory is refused, though pages are dirty or under
/// writeback. A device that hangs for half a minute and comes back is waited for.
const STANDSTILL: Nanos = Nanos::secs(60);

/// Who has waited for a turn so long without one page, while pages of files were written and went to others and no anonymous page
/// could leave for want of a slot, will not get one: somebody's memory is too much. One such waiter is refused at a time.
const PASSED_OVER: Nanos = Nanos::secs(10);

/// Who takes this many frames at a time takes many.
const MANY: u32 = 64;
/// Frames with memory that whoever takes many leaves behind, as long as the limit allows: two of the
/// largest batches, so that one is there while the next chunk gets its memory.
const READY: u32 = 512;

/// The frames that hold no page.
pub(crate) struct Memory<E: Env> {
    env: Arc<E>,
    lists: Lock<Free>,
    /// Free frames of each node, unpopulated ones included; copies for looks without the lock.
    free: Box<[AtomicU32]>,
    division: Division,
    /// Chunks on their way to or from the system: on no list, but soon to be had. Changes under the
    /// lock.
    moving: AtomicU32,
    /// Frames given back, ever.
    given_back: AtomicU64,
    /// Frames from this one on are out of use, or on their way there.
    limit: AtomicU32,
    frames: u32,
    chunk: u32,
    pub(crate) marks: Watermarks,
    /// A node's part of `marks`.
    pub(crate) marks_each: Watermarks,
    /// Callers that found nothing to reclaim.
    pub(crate) wait: WaitQueue,
    /// Those who wait for their turn.
    pub(crate) line: Line,
    /// When one of them was last refused for having been passed over, ns.
    refused: AtomicU64,
}

/// What a waiter has seen of the chances to get memory at all.
#[derive(Default)]
struct Outlook {
    retry: Retry,
    hopeless: u32,
    standstill: Standstill,
    /// When the wait began, and the pages ever written then.
    began: Option<(Instant, u64)>,
}

impl Outlook {
    /// Somebody has given way. That the wait began when it did stays.
    fn start_over(&mut self) {
        *self = Self {
            began: self.began,
            ..Self::default()
        };
    }
}

/// For how long a waiter has seen nothing freed and nothing written.
#[derive(Default)]
struct Standstill {
    since: Option<Instant>,
    seen: (Pages, u64),
}

impl Standstill {
    /// A look at the pages ever reclaimed and ever cleaned; whether they have been the same for too long.
    fn lasts(&mut self, now: Instant, seen: (Pages, u64)) -> bool {
        let since = match self.since {
            Some(since) if self.seen == seen => since,
            _ => *self.since.insert(now),
        };
        self.seen = seen;
        now.since(since) >= STANDSTILL
    }
}

struct Free {
    /// One for each node.
    lists: Box<[FreeLists]>,
    division: Division,
    /// First frames of the chunks without memory, the next to be used last. Room for all is taken
    /// at the start.
    absent: Vec<FrameId>,
    /// Frames beyond a limit that was lowered.
    withheld: Withheld,
}

impl Free {
    fn of(&mut self, frame: FrameId) -> &mut FreeLists {
        &mut self.lists[self.division.of(frame).index()]
    }

    /// Puts frames of one node back, those beyond the limit out of use; answers how many are free.
    fn give(&mut self, node: NodeId, frames: &[FrameId]) -> u32 {
        let lists = &mut self.lists[node.index()];
        let count = |frames: usize| u32::try_from(frames).expect("fewer frames than a u32 counts");
        if !frames.iter().any(|frame| self.withheld.wants(*frame)) {
            lists.put_batch(frames);
            return count(frames.len());
        }
        let mut given = 0;
        for frame in frames {
            if self.withheld.wants(*frame) {
                self.withheld.hold(*frame);
            } else {
                lists.put_batch(&[*frame]);
                given += 1;
            }
        }
        given
    }

    /// A chunk has got its memory; answers how many of its frames, which counted as free, are beyond the limit.
    fn give_chunk(&mut self, first: FrameId, count: u32) -> u32 {
        if !self.withheld.wants(first) {
            self.of(first).add_range(first, count);
            return 0;
        }
        for frame in first.0..first.0 + count {
            self.withheld.hold(FrameId(frame));
        }
        count
    }

    /// A chunk has no memory; answers as `give_chunk`.
    fn give_absent(&mut self, first: FrameId, count: u32) -> u32 {
        if !self.withheld.wants(first) {
            self.absent.push(first);
            return 0;
        }
        self.withheld.hold_absent(first);
        count
    }
}

/// How much memory there is, and how it is given out.
pub(crate) struct Shape {
    pub(crate) frames: u32,
    pub(crate) chunk: u32,
    pub(crate) division: Division,
    pub(crate) marks: Watermarks,
    pub(crate) tunables: Tunables,
}

impl<E: Env> Memory<E> {
    pub(crate) fn new(env: Arc<E>, shape: &Shape) -> Self {
        let Shape {
            frames,
            chunk,
            division,
            marks,
            ..
        } = *shape;
        let lists = division.ids().map(|_| FreeLists::new(frames)).collect();
        let mut free = vec![0; division.ids().count()];
        for first in (0..frames).step_by(chunk as usize) {
            free[division.of(FrameId(first)).index()] += chunk.min(frames - first);
        }
        let marks_each = Watermarks {
            min: division.part(marks.min),
            low: division.part(marks.low),
            high: division.part(marks.high),
        };
        let firsts = (0..frames).step_by(chunk as usize).map(FrameId);
        let absent = firsts.rev().collect();
        Self {
            env,
            lists: Lock::new(
                LockClass::Free,
                Free {
                    lists,
                    division,
                    absent,
                    withheld: Withheld::new(frames, chunk),
                },
            ),
            limit: AtomicU32::new(frames),
            free: free.into_iter().map(AtomicU32::new).collect(),
            division,
            moving: AtomicU32::new(0),
            given_back: AtomicU64::new(0),
            frames,
            chunk,
            marks,
            marks_each,
            wait: WaitQueue::new(),
            line: Line::new(&shape.tunables, frames),
            refused: AtomicU64::new(0),
        }
    }

    /// Free frames, unpopulated ones included.
    pub(crate) fn free(&self) -> u32 {
        let free = |free: &AtomicU32| free.load(Ordering::Relaxed);
        self.free.iter().map(free).sum()
    }

    /// Of one node.
    pub(crate) fn free_of(&self, node: NodeId) -> u32 {
        self.free[node.index()].load(Ordering::Relaxed)
    }

    fn now_free(&self, node: NodeId, count: u32) {
        self.free[node.index()].fetch_add(count, Ordering::Relaxed);
    }

    fn now_taken(&self, node: NodeId, count: u32) {
        self.free[node.index()].fetch_sub(count, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self, context: &impl Context) -> u64 {
        let free = self.lists.lock(context);
        let lists: u64 = free.lists.iter().map(FreeLists::bytes).sum();
        lists + self.line.bytes()
    }

    /// Gives frames back and wakes whoever waits for memory.
    pub(crate) fn put(&self, context: &impl Context, frames: &[FrameId]) {
        if frames.is_empty() {
            return;
        }
        let count = u32::try_from(frames.len()).expect("fewer frames than a u32 counts");
        {
            // Counted under the lock: nobody may count off what is not counted yet.
            let mut free = self.lists.lock(context);
            for (node, frames) in self.division.parts(frames) {
                let given = free.give(node, frames);
                self.now_free(node, given);
            }
        }
        self.given_back
            .fetch_add(u64::from(count), Ordering::Relaxed);
        self.hand_out(context);
        self.wait.wake_all(Signal::Freed);
    }

    /// Gives those who wait for their turn what is free above the reserve.
    fn hand_out(&self, context: &impl Context) {
        let min = self.marks.min;
        let room = || {
            let (free, kept) = (self.free(), self.line.kept(self.env.now()));
            let pages = |frames: u32| Pages(u64::from(frames));
            let above = pages(free.saturating_sub(kept)).saturating_sub(min);
            Room {
                above,
                kept: pages(kept),
                usable: pages(free).saturating_sub(Standing::Small.floor(min)),
            }
        };
        self.line.hand_out(context, || self.env.now(), room);
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
        let spoken_for = line.promised().saturating_add(line.wanted());
        let kept = if line.is_open() {
            line.kept(self.env.now())
        } else {
            0
        };
        spoken_for.saturating_add(kept)
    }

    /// Whether somebody waits for frames, or will at once: the reserve is being used.
    pub(crate) fn is_short(&self) -> bool {
        let free = self.free().saturating_sub(self.line.promised());
        self.line.wanted() > 0 || u64::from(free) < self.marks.min.0
    }

    /// Frames of a node that may be taken with that right, where `mark` has to stay free.
    fn room(&self, node: NodeId, mark: Pages, right: AllocRight) -> u32 {
        let free = Pages(u64::from(self.free_of(node)));
        let room = room(free, mark, right);
        u32::try_from(room.0).expect("no more than are free")
    }

    /// Frames that may be taken where memory is handed out in turn. How little a task takes matters
    /// below the mark alone.
    fn room_in_turn(&self, task: &Task<'_, E>, want: u32, exempt: bool) -> u32 {
        let line = &self.line;
        let free = self.free().saturating_sub(line.promised());
        let min = self.marks.min;
        let left = |free: u32, floor: Pages| Pages(u64::from(free)).saturating_sub(floor);
        let now = self.env.now();
        let kept = line.kept(now);
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

    /// Frames from this one on may not be used.
    pub(crate) fn limit_frames(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// The limit, and how far it is from being kept.
    pub(crate) fn limit(&self, context: &impl Context) -> Limit {
        let free = self.lists.lock(context);
        let limit = self.limit_frames();
        let over = (self.frames - limit).saturating_sub(free.withheld.count());
        Limit {
            limit: Pages(u64::from(limit)),
            over: Pages(u64::from(over)),
        }
    }

    /// Moves the limit to `frames`, rounded up to a whole chunk: what is free beyond it is withheld at once, what was
    /// withheld below it is given back. Answers whether it went down.
    pub(crate) fn move_limit(&self, context: &impl Context, frames: u32) -> bool {
        let frames = frames.next_multiple_of(self.chunk).min(self.frames);
        let lowered = {
            let mut free = self.lists.lock(context);
            let free = &mut *free;
            let before = self.limit.swap(frames, Ordering::Relaxed);
            if frames < before {
                for (first, count) in free.withheld.lower(frames) {
                    if let Some(at) = free.absent.iter().position(|absent| *absent == first) {
                        free.absent.swap_remove(at);
                        free.withheld.hold_absent(first);
                        self.now_taken(self.division.of(first), count);
                        continue;
                    }
                    for frame in (first.0..first.0 + count).map(FrameId) {
                        if free.of(frame).try_remove_range(frame, 1) {
                            free.withheld.hold(frame);
                            self.now_taken(self.division.of(frame), 1);
                        }
                    }
                }
            } else {
                let (lists, absent, division) = (&mut free.lists, &mut free.absent, self.division);
                free.withheld.raise(
                    frames,
                    |frame| {
                        let node = division.of(frame);
                        lists[node.index()].put_batch(&[frame]);
                        self.now_free(node, 1);
                    },
                    |first| {
                        absent.push(first);
                        let count = self.chunk.min(self.frames - first.0);
                        self.now_free(division.of(first), count);
                    },
                );
            }
            frames < before
        };
        self.hand_out(context);
        self.wait.wake_all(Signal::MemoryMoved);
        lowered
    }

    /// A chunk out of use whose memory is to be given back to the system: ends with `released`.
    pub(crate) fn take_to_release(&self, context: &impl Context) -> Option<FrameId> {
        let mut free = self.lists.lock(context);
        let first = free.withheld.next_to_release()?;
        self.moving.fetch_add(1, Ordering::AcqRel);
        Some(first)
    }

    /// The memory of a chunk that was out of use is the system's. The limit may have been raised meanwhile.
    pub(crate) fn released(&self, context: &impl Context, first: FrameId) {
        let count = self.chunk.min(self.frames - first.0);
        self.moved(context, first, |free| {
            // It did not count as free.
            self.now_free(self.division.of(first), count);
            free.give_absent(first, count)
        });
    }

    /// Frames given back, ever.
    pub(crate) fn given_back(&self) -> u64 {
        get(&self.given_back)
    }

    fn moving(&self) -> u32 {
        self.moving.load(Ordering::Acquire)
    }

    /// A chunk without memory, of that node if one is named, to be given some: ends with `moved`.
    fn take_absent(&self, free: &mut Free, node: Option<NodeId>) -> Option<FrameId> {
        let fits = |first: &FrameId| node.is_none_or(|node| self.division.of(*first) == node);
        let last = free.absent.iter().rposition(fits)?;
        let first = free.absent.remove(last);
        self.moving.fetch_add(1, Ordering::AcqRel);
        Some(first)
    }

    /// A chunk is where `put` puts it: whoever found nothing looks again.
    fn moved(&self, context: &impl Context, first: FrameId, put: impl FnOnce(&mut Free) -> u32) {
        {
            let mut free = self.lists.lock(context);
            let withheld = put(&mut free);
            self.now_taken(self.division.of(first), withheld);
            self.moving.fetch_sub(1, Ordering::AcqRel);
        }
        self.hand_out(context);
        self.wait.wake_all(Signal::MemoryMoved);
    }
}

impl<E: Env> Cache<E> {
    /// Takes up to `want` frames without waiting; answers how many were appended to `out`. Does not
    /// go below the reserve.
    pub(crate) fn try_alloc(
        &self,
        task: &mut Task<'_, E>,
        want: u32,
        out: &mut Vec<FrameId>,
    ) -> Result<u32, Error> {
        let memory = &self.memory;
        let exempt = self.who(task).exempt;
        let in_turn = memory.line.is_open();
        let marks = memory.marks_each;
        // As long as another node has enough, none goes below LOW.
        let floors = [marks.low, marks.min];
        let floors = &floors[usize::from(self.options.reclaim.nodes == 1)..];
        let mut taken = 0;
        'found: for floor in floors {
            for node in self.nodes_for(task) {
                let left = want - taken;
                let got = self.take(task, node, left, out, |task, taken| {
                    if in_turn {
                        return memory.room_in_turn(task, left - taken, exempt);
                    }
                    let room = memory.room(node, *floor, AllocRight::Normal);
                    if room == 0 && taken == 0 && exempt && *floor == marks.min {
                        return memory.room(node, *floor, AllocRight::High);
                    }
                    room
                });
                match got {
                    Ok(got) => taken += got,
                    // What another node gave is the caller's.
                    Err(_) if taken > 0 => break 'found,
                    Err(error) => return Err(error),
                }
                if memory.spare_of(node) < marks.low {
                    self.ask_reclaim(task, node);
                }
                if taken == want {
                    break 'found;
                }
            }
        }
        if want >= MANY && task.is_willing() {
            self.populate_ahead(task);
        }
        Ok(taken)
    }

    /// The nodes in the order in which the task takes memory from them.
    pub(crate) fn nodes_for(&self, task: &Task<'_, E>) -> impl Iterator<Item = NodeId> + use<E> {
        let cpus = self.options.dirty.cpus;
        // Which CPU it is takes a call of the system to find out.
        let cpu = match self.options.reclaim.nodes {
            1 => 0,
            _ => task.cpu(),
        };
        self.nodes.division.in_order_of(cpu, cpus)
    }

    /// The first of them.
    pub(crate) fn home(&self, task: &Task<'_, E>) -> NodeId {
        self.nodes_for(task).next().unwrap_or(NodeId::FIRST)
    }

    /// Takes up to `want` frames of a node, as many at a time as `room` allows, which is told how many have been taken.
    /// It looks while the free lists are locked.
    fn take(
        &self,
        task: &mut Task<'_, E>,
        node: NodeId,
        want: u32,
        out: &mut Vec<FrameId>,
        room: impl Fn(&Task<'_, E>, u32) -> u32,
    ) -> Result<u32, Error> {
        let memory = &self.memory;
        let mut taken = 0;
        while taken < want {
            // Under the lock: two that look at once must not both take what is there for one.
            let mut free = memory.lists.lock(task);
            let room = room(task, taken).min(want - taken);
            if room == 0 {
                break;
            }
            let got = free.lists[node.index()].try_take_batch(room, out);
            if got == 0 {
                // The system takes milliseconds to give a chunk its memory.
                if !task.is_willing() {
                    break;
                }
                let Some(first) = memory.take_absent(&mut free, Some(node)) else {
                    break;
                };
                drop(free);
                match self.populate(task, first) {
                    Ok(()) => continue,
                    // What was taken before is the caller's.
                    Err(_) if taken > 0 => break,
                    Err(error) => return Err(error),
                }
            }
            memory.now_taken(node, got);
            drop(free);
            taken += got;
        }
        self.counters.add(Item::Pgalloc, u64::from(taken));
        if memory.line.is_open() && taken > 0 {
            let (now, taken) = (task.now(), Pages(u64::from(taken)));
            memory.line.note(task, task.id(), now, taken, Pages::ZERO);
        }
        task.did(Work::Alloc, u64::from(taken));
        Ok(taken)
    }

    /// How many frames a task that found none waits for, if it can use `want`: one page at a time in Linux, a batch
    /// where each wait is a turn.
    pub(crate) fn asks_for(&self, want: u32) -> u32 {
        if self.memory.line.is_open() {
            want.max(1)
        } else {
            1
        }
    }

    /// A task wants a page back that was taken from it. Where memory is handed out in turn and short, it may have to
    /// wait for that too. Answers whether it may read the pages beside it.
    pub(crate) fn may_return(&self, task: &mut Task<'_, E>) -> bool {
        let memory = &self.memory;
        if !memory.line.is_open() || memory.spare() > memory.marks.high || self.who(task).exempt {
            return true;
        }
        memory.line.may_return(task)
    }

    /// The same for pages that nobody waits for: not while another task's memory is coming back.
    pub(crate) fn may_read_on(&self, task: &Task<'_, E>) -> bool {
        let memory = &self.memory;
        let line = &memory.line;
        !line.is_open() || memory.spare() > memory.marks.high || line.may_read_on(task)
    }

    /// The task has given back pages of its own.
    pub(crate) fn gave_back(&self, task: &Task<'_, E>, pages: u64) {
        self.credit(task, task.id(), pages);
    }

    /// Somebody has given back pages that the task `who` took.
    pub(crate) fn credit(&self, context: &impl Context, who: TaskId, pages: u64) {
        if self.memory.line.is_open() {
            let now = self.env.now();
            self.memory
                .line
                .note(context, who, now, Pages::ZERO, Pages(pages));
        }
    }

    /// Leaves frames with memory behind. Giving a chunk its memory takes milliseconds; whoever takes
    /// many frames at a time spends them, so that one who takes a few finds them there.
    fn populate_ahead(&self, task: &Task<'_, E>) {
        let memory = &self.memory;
        let absent = {
            let mut free = memory.lists.lock(task);
            if free.lists.iter().map(FreeLists::free).sum::<u32>() >= READY {
                return;
            }
            memory.take_absent(&mut free, None)
        };
        if let Some(first) = absent {
            // Who needs the memory hears that the system refuses it.
            let _ = self.populate(task, first);
        }
    }

    /// Takes between one and `want` frames, reclaiming and waiting as it must. The caller holds no
    /// busy bit. For a task that may not wait it neither reclaims nor takes a place in the line.
    ///
    /// # Errors
    /// `OutOfMemory`, `NoMemory`, `Cancelled`, `WouldWait`.
    pub(crate) fn alloc(
        &self,
        task: &mut Task<'_, E>,
        want: u32,
        out: &mut Vec<FrameId>,
    ) -> Result<u32, Error> {
        if !task.is_willing() {
            return match self.try_alloc(task, want, out)? {
                0 => Err(Error::WouldWait),
                taken => Ok(taken),
            };
        }
        let who = self.who(task);
        if self.memory.line.is_open() && !who.exempt {
            return self.alloc_in_turn(task, want, out);
        }
        let mut retry = Retry::default();
        let mut hopeless = 0;
        let mut standstill = Standstill::default();
        loop {
            let taken = self.try_alloc(task, want, out)?;
            if taken > 0 {
                return Ok(taken);
            }
            if self.memory.moving() > 0 {
                // Another task is just taking memory from the system, or giving it back.
                self.wait_for_memory(task, |memory| memory.moving() > 0)?;
                continue;
            }
            let cleaned = self.cleaned();
            let target = self.target(want);
            let reclaimed = direct(task, self, target, who);
            let verdict = retry.decide(&self.retry_view(task, reclaimed));
            let over = standstill.lasts(task.now(), (self.reclaimed(), self.cleaned()));
            if !reclaimed.is_zero() {
                hopeless = 0;
                continue;
            }
            if self.stopping.load(Ordering::Acquire) {
                return Err(Error::Cancelled);
            }
            match verdict {
                RetryVerdict::OutOfMemory if self.options.reclaim.oom_kills => {
                    self.out_of_memory(task)?;
                    retry = Retry::default();
                    continue;
                }
                RetryVerdict::Retry if !self.is_tidegate() => continue,
                RetryVerdict::RetryAfter(finding) if !self.is_tidegate() => {
                    throttle::found(task, self, self.home(task), finding, who);
                    continue;
                }
                _ => {}
            }
            // Nothing clean: what is dirty has to be written first.
            for device in self.devices.lock(task).iter() {
                device.want(WANTED);
            }
            let pending = !self.write_pending().is_zero();
            hopeless = if pending { 0 } else { hopeless + 1 };
            if hopeless > HOPELESS_ROUNDS || over {
                self.out_of_memory(task)?;
                (hopeless, standstill) = (0, Standstill::default());
                continue;
            }
            // Frames, or pages that can be freed now.
            self.wait_for_memory(task, |memory| {
                u64::from(memory.free()) <= memory.marks.min.0 && self.cleaned() == cleaned
            })?;
        }
    }

    /// The same where memory is handed out in turn: takes a place in the line instead of reclaiming.
    fn alloc_in_turn(
        &self,
        task: &mut Task<'_, E>,
        want: u32,
        out: &mut Vec<FrameId>,
    ) -> Result<u32, Error> {
        let memory = &self.memory;
        let mut outlook = Outlook::default();
        loop {
            let taken = self.try_alloc(task, want, out)?;
            if taken > 0 {
                return Ok(taken);
            }
            if memory.moving() > 0 {
                self.wait_for_memory(task, |memory| memory.moving() > 0)?;
                continue;
            }
            let now = task.now();
            // One that waits again keeps its age.
            let (since, _) = *outlook.began.get_or_insert_with(|| (now, self.cleaned()));
            let need = Pages(u64::from(want));
            let Some(ticket) = memory.line.join(task, task.id(), (since, now), need) else {
                let given_back = memory.given_back();
                self.wait_for_memory(task, |memory| memory.given_back() == given_back)?;
                continue;
            };
            self.ask_reclaim(task, NodeId::FIRST);
            // What has become free between the look and the ticket.
            memory.hand_out(task);
            let taken = self.wait_for_turn(task, ticket, want, out, &mut outlook);
            memory.line.leave(task, ticket);
            memory.hand_out(task);
            match taken {
                Ok(0) => {}
                taken => return taken,
            }
        }
    }

    /// Waits until the ticket's turn has come, and takes what was granted. `Ok(0)`: what was granted could not be
    /// had, to be asked for again.
    fn wait_for_turn(
        &self,
        task: &mut Task<'_, E>,
        ticket: Ticket,
        want: u32,
        out: &mut Vec<FrameId>,
        outlook: &mut Outlook,
    ) -> Result<u32, Error> {
        let memory = &self.memory;
        let mut in_vain = 0;
        loop {
            // What tasks give back may be kept for them: it says nothing about reclaim.
            let before = self.reclaimed();
            let wakeup = memory.line.wait(task, ticket);
            if wakeup == Wakeup::TimedOut {
                // What was kept for others may be so no more, and nobody puts anything back when its time is over.
                memory.hand_out(task);
            }
            if let Some(granted) = memory.line.granted(task, ticket) {
                let granted = u32::try_from(granted.0).unwrap_or(u32::MAX);
                let node = NodeId::FIRST;
                return self.take(task, node, want.min(granted), out, |_, taken| {
                    memory.free().min(granted - taken)
                });
            }
            if wakeup == Wakeup::Cancelled || self.stopping.load(Ordering::Acquire) {
                return Err(Error::Cancelled);
            }
            self.ask_reclaim(task, NodeId::FIRST);
            let freed = self.reclaimed() - before;
            in_vain = if freed.is_zero() { in_vain + 1 } else { 0 };
            if at_bound(freed, self.under_writeback(), in_vain) == Overdue::Reclaim {
                in_vain = 0;
                self.reclaim_in_turn(task, ticket, want, outlook)?;
            }
            if outlook
                .began
                .is_some_and(|began| self.passes_over(task.now(), began))
            {
                self.out_of_memory(task)?;
                outlook.start_over();
            }
        }
    }

    /// Whether one whose wait began then is to be refused now: the first who asks, and none for as long after it.
    fn passes_over(&self, now: Instant, (since, cleaned): (Instant, u64)) -> bool {
        let refused = &self.memory.refused;
        let last = refused.load(Ordering::Relaxed);
        now.since(since.max(Instant(last))) >= PASSED_OVER
            && self.cleaned() > cleaned
            && self.swap_free().is_zero()
            && self.swap_writeback().is_zero()
            && refused
                .compare_exchange(last, now.0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Pages that were ever reclaimed.
    fn reclaimed(&self) -> Pages {
        let steals = [Item::PgstealKswapd, Item::PgstealDirect];
        Pages(steals.into_iter().map(|item| self.counters.get(item)).sum())
    }

    /// Nothing has become free for as long as a turn may take: the waiter reclaims itself, and finds out whether there
    /// is anything to hope for.
    fn reclaim_in_turn(
        &self,
        task: &mut Task<'_, E>,
        ticket: Ticket,
        want: u32,
        outlook: &mut Outlook,
    ) -> Result<(), Error> {
        let line = &self.memory.line;
        // It has its pages, or whatever it finds could not be sent out: looking on would cost time and free nothing.
        let enough = |task: &Task<'_, E>| {
            line.granted(task, ticket).is_some() || !self.can_send_out(task, Patience::Leaves)
        };
        let reclaimed = direct_until(task, self, self.target(want), Who::DIRECT, enough);
        if self.stopping.load(Ordering::Acquire) {
            return Err(Error::Cancelled);
        }
        let verdict = outlook.retry.decide(&self.retry_view(task, reclaimed));
        let pending = !self.write_pending().is_zero();
        if !reclaimed.is_zero() || pending {
            outlook.hopeless = 0;
        } else {
            outlook.hopeless += 1;
        }
        let seen = (self.reclaimed(), self.cleaned());
        let over = outlook.standstill.lasts(task.now(), seen);
        if !pending && verdict == RetryVerdict::OutOfMemory && reclaimed.is_zero()
            || outlook.hopeless > HOPELESS_ROUNDS
            || over
        {
            self.out_of_memory(task)?;
            outlook.start_over();
            return Ok(());
        }
        // Nothing clean: what is dirty has to be written first.
        if reclaimed.is_zero() {
            for device in self.devices.lock(task).iter() {
                device.want(WANTED);
            }
        }
        Ok(())
    }

    /// Pages that were ever written back: more of them means that something may be clean now.
    fn cleaned(&self) -> u64 {
        get(&self.totals.written) + self.swap_written()
    }

    /// Pages that a task which wants `want` frames reclaims: in Linux a cluster, whatever is wanted.
    fn target(&self, want: u32) -> Pages {
        let cluster = self.options.reclaim.cluster();
        if self.is_tidegate() {
            Pages(u64::from(want)).at_least(cluster)
        } else {
            cluster
        }
    }

    pub(crate) fn is_tidegate(&self) -> bool {
        self.options.reclaim.law == ReclaimLaw::Tidegate
    }

    /// The node after a round of reclaim that gave `reclaimed`.
    fn retry_view(&self, context: &impl Context, reclaimed: Pages) -> RetryView {
        // Where a page stands for many, lists that look empty may hold as much as that: nobody is killed for it.
        let tunables = &self.options.reclaim;
        let coarse = tunables.oom_kills && tunables.stands_for > 1 && !self.is_tidegate();
        let unseen = Pages(u64::from(coarse));
        RetryView {
            reclaimed,
            free: Pages(u64::from(self.memory.free())),
            reclaimable: self.reclaimable(context) + unseen,
            write_pending: self.write_pending(),
            min: self.memory.marks.min,
        }
    }

    /// Who the task is to reclaim.
    pub(crate) fn who(&self, task: &Task<'_, E>) -> Who {
        Who {
            background: false,
            exempt: self.exempt.lock(task).contains(&task.id()),
        }
    }

    /// From now on the task is one of those that others need to get on: a thread of I/O that allocates. It may take
    /// from the reserve and is never throttled when it has to reclaim (kernel: `PF_MEMALLOC_NOIO` and the like).
    pub fn exempt(&self, task: &Task<'_, E>) {
        let mut exempt = self.exempt.lock(task);
        if !exempt.contains(&task.id()) {
            exempt.push(task.id());
        }
    }

    fn wait_for_memory(
        &self,
        task: &mut Task<'_, E>,
        blocked: impl Fn(&Memory<E>) -> bool,
    ) -> Result<(), Error> {
        let deadline = task.now() + LOOK_AGAIN;
        let memory = &self.memory;
        let wakeup = task.wait_while(&memory.wait, Cause::Memory, Some(deadline), |_| {
            blocked(memory)
        });
        Error::after(wakeup)
    }

    /// Gives the chunk that begins at `first` its memory; it came from `Memory::take_absent`.
    fn populate(&self, context: &impl Context, first: FrameId) -> Result<(), Error> {
        let memory = &self.memory;
        let count = memory.chunk.min(memory.frames - first.0);
        match self.content().populate(first) {
            Ok(()) => {
                memory.moved(context, first, |free| free.give_chunk(first, count));
                Ok(())
            }
            Err(error) => {
                memory.moved(context, first, |free| free.give_absent(first, count));
                Err(Error::NoMemory { errno: error.errno })
            }
        }
    }

    pub(crate) fn populate_all(&self, context: &impl Context) -> Result<(), Error> {
        let memory = &self.memory;
        while let Some(first) = { memory.take_absent(&mut memory.lists.lock(context), None) } {
            self.populate(context, first)?;
        }
        Ok(())
    }

    /// Gives the memory of wholly free chunks back to the system; it is taken again when needed.
    /// Answers how many frames that were.
    pub fn trim(&self, task: &mut Task<'_, E>) -> Pages {
        let memory = &self.memory;
        let mut given = 0;
        for first in (0..memory.frames)
            .step_by(memory.chunk as usize)
            .map(FrameId)
        {
            let count = memory.chunk.min(memory.frames - first.0);
            let mut free = memory.lists.lock(task);
            if free.absent.contains(&first) || !free.of(first).try_remove_range(first, count) {
                continue;
            }
            memory.moving.fetch_add(1, Ordering::AcqRel);
            drop(free);
            // On neither list meanwhile, so nobody can have it. The frames still count as free.
            self.content().release(first);
            memory.moved(task, first, |free| free.give_absent(first, count));
            given += u64::from(count);
        }
        Pages(given)
    }
}

#[cfg(test)]
mod tests;
