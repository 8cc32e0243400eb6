//! Frames for pages: from the free lists, from fresh chunks, or by reclaiming.
//!
//! Marks (policy::watermark): below `low` the background reclaimer is woken; below `min` the
//! caller reclaims itself before it takes a frame, so that a reserve stays for whoever must not
//! wait. A caller that cannot make progress sleeps until something changes: an end of writeback, a
//! pass of reclaim, an unpin. It gives up with a typed error only when nothing can change any
//! more: no page is under writeback or dirty, and none could be freed; or when nothing has changed for
//! `STANDSTILL`: what is under writeback is at a device that hangs.

use core::sync::atomic::Ordering;

use env::{Cause, Context, Env, Task, Work};
use frames::FrameId;
use policy::reclaim::Admission;
use policy::reclaim::retry::{Retry, RetryVerdict, RetryView};
use policy::reclaim::scan::Kind;
use policy::reclaim::throttle::Who;
use policy::units::{Instant, Nanos, Pages};
use policy::watermark::AllocRight;

use crate::Error;
use crate::cache::{Cache, get};
use crate::lists::NodeId;
use crate::memory::Memory;
use crate::reclaim::direct::direct;
use crate::reclaim::throttle;
use crate::vmstat::Item;

mod back;
mod turn;

/// A sleeper for memory looks again after this even if nobody woke it (a safety net).
const LOOK_AGAIN: Nanos = Nanos::millis(100);
/// Pages that each flusher is asked for when nothing clean is left: a few requests' worth.
const WANTED: Pages = Pages(1024);
/// Rounds without progress, with nothing dirty or under writeback, before a caller is refused.
const HOPELESS_ROUNDS: u32 = 20;
/// Nothing was freed and nothing written for so long: whoever waits for memory is refused, though pages are dirty or under
/// writeback. A device that hangs for half a minute and comes back is waited for.
const STANDSTILL: Nanos = Nanos::secs(60);

/// Who takes this many frames at a time takes many; a whole fault of ours does.
const MANY: u32 = 64;

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
        let exempt = self.is_exempt(task);
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
        let (mut taken, mut draws) = (0, 0);
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
                match self.populate(first) {
                    Ok(()) => continue,
                    // What was taken before is the caller's.
                    Err(_) if taken > 0 => break,
                    Err(error) => return Err(error),
                }
            }
            memory.now_taken(node, got);
            drop(free);
            taken += got;
            draws += 1;
        }
        self.counters.add(Item::Pgalloc, u64::from(taken));
        if memory.line.is_open() && taken > 0 {
            let (now, taken) = (task.now(), Pages(u64::from(taken)));
            memory.line.note(task, task.id(), now, taken, Pages::ZERO);
        }
        // In Linux a frame is taken for itself, whoever wants how many.
        let each = if self.is_tidegate() { draws } else { taken };
        task.did(Work::Alloc, u64::from(each));
        task.did(Work::Drawn, u64::from(taken - each));
        Ok(taken)
    }

    /// Takes between one and `want` frames for pages of a kind, reclaiming and waiting as it must. The caller holds no
    /// busy bit. For a task that may not wait it neither reclaims nor takes a place in the line.
    ///
    /// # Errors
    /// `OutOfMemory`, `NoMemory`, `Cancelled`, `WouldWait`.
    pub(crate) fn alloc(
        &self,
        task: &mut Task<'_, E>,
        kind: Kind,
        want: u32,
        out: &mut Vec<FrameId>,
    ) -> Result<u32, Error> {
        if !task.is_willing() {
            return match self.try_alloc(task, want, out)? {
                0 => Err(Error::WouldWait),
                taken => Ok(taken),
            };
        }
        let who = self.who(task, kind);
        if self.memory.line.is_open() && !who.exempt {
            return self.alloc_in_turn(task, want, out);
        }
        let mut retry = Retry::default();
        let mut hopeless = 0;
        let mut standstill = Standstill::default();
        loop {
            let taken = self.alloc_at_hand(task, want, out)?;
            if taken > 0 {
                return Ok(taken);
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
            if self.registry.stopping.load(Ordering::Acquire) {
                return Err(Error::Cancelled);
            }
            match verdict {
                RetryVerdict::OutOfMemory if self.options.reclaim.oom_kills => {
                    self.out_of_memory(task, who)?;
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
            self.want_of_each(task, WANTED);
            let pending = !self.write_pending().is_zero();
            hopeless = if pending { 0 } else { hopeless + 1 };
            if hopeless > HOPELESS_ROUNDS || over {
                self.out_of_memory(task, who)?;
                (hopeless, standstill) = (0, Standstill::default());
                continue;
            }
            // Frames, or pages that can be freed now.
            self.wait_for_memory(task, |memory| {
                u64::from(memory.free()) <= memory.marks.min.0 && self.cleaned() == cleaned
            })?;
        }
    }

    /// Takes up to `want` frames without reclaiming, but waits for chunks on their way; answers how many.
    fn alloc_at_hand(
        &self,
        task: &mut Task<'_, E>,
        want: u32,
        out: &mut Vec<FrameId>,
    ) -> Result<u32, Error> {
        loop {
            let taken = self.try_alloc(task, want, out)?;
            if taken > 0 || self.memory.moving() == 0 {
                return Ok(taken);
            }
            // Another task is just taking memory from the system, or giving it back.
            self.wait_for_memory(task, |memory| memory.moving() > 0)?;
        }
    }

    /// Asks the flusher of each device for `pages`: nothing is clean, and what is dirty has to be written first.
    pub(crate) fn want_of_each(&self, context: &impl Context, pages: Pages) {
        for device in self.writeback.devices.lock(context).iter() {
            device.want(pages);
        }
    }

    /// Pages that were ever written back: more of them means that something may be clean now.
    fn cleaned(&self) -> u64 {
        get(&self.writeback.totals.written) + self.swap_written()
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
        self.options.reclaim.law.admission == Admission::Queue
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

    /// Who the task is to reclaim when it asks for pages of a kind.
    pub(crate) fn who(&self, task: &Task<'_, E>, kind: Kind) -> Who {
        let tunables = &self.options.reclaim;
        Who {
            background: false,
            exempt: self.is_exempt(task),
            within_fs: tunables.law.heeds_within_fs
                && kind == Kind::File
                && tunables.files_within_fs,
        }
    }

    /// Whether the task is one of those that others need to get on.
    fn is_exempt(&self, task: &Task<'_, E>) -> bool {
        // Who is one of them has counted itself.
        self.memory.exempts.load(Ordering::Relaxed) > 0
            && self.memory.exempt.lock(task).contains(&task.id())
    }

    /// From now on the task is one of those that others need to get on: a thread of I/O that allocates. It may take
    /// from the reserve and is never throttled when it has to reclaim (kernel: `PF_MEMALLOC_NOIO` and the like).
    pub fn exempt(&self, task: &Task<'_, E>) {
        let mut exempt = self.memory.exempt.lock(task);
        if !exempt.contains(&task.id()) {
            exempt.push(task.id());
            self.memory.exempts.store(exempt.len(), Ordering::Relaxed);
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
}

#[cfg(test)]
mod tests;
