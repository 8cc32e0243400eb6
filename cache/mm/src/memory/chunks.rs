//! Chunks of memory: taken from the system as frames are wanted, given back to it, and out of use
//! beyond a limit.
//!
//! A chunk that the system refuses goes out of use, as if the limit were lower by that much. The
//! background reclaimer asks for it again, `ASK_AGAIN` after the last refusal, before it reclaims.
//!
//! Which chunks are beyond a limit, and how their pages leave: `lifecycle::limit`.

use core::ops::Range;
use core::sync::atomic::Ordering;

use env::{Context, Interrupt, Signal, Task};
use frames::FrameId;
use policy::units::{Nanos, Pages};

use super::Memory;
use super::apart::Mixed;
use super::free::{Free, Pick};
use crate::Error;
use crate::lists::ZoneId;
use crate::memory::offline::Limit;

/// Frames with memory that a task which takes many leaves behind, as long as the limit allows: two
/// of the largest batches, so that one is there while the next chunk gets its memory.
const READY: u32 = 512;

/// After so long the system may have memory that it refused.
const ASK_AGAIN: Nanos = Nanos::secs(10);

/// A chunk of memory.
pub(crate) struct ChunkState {
    pub(crate) frames: Range<u32>,
    /// It is beyond the limit.
    pub(crate) is_out: bool,
    pub(crate) has_memory: bool,
    /// Frames of it on the free lists.
    pub(crate) free: u32,
    /// Frames of it that are offline and have memory.
    pub(crate) held: u32,
}

/// The frames taken from the free lists.
#[derive(Default)]
pub struct Taken {
    /// Their number.
    pub frames: u32,
    /// Holds of their lock that this took.
    pub(crate) holds: u32,
    /// Pageblocks that were mixed by it.
    pub mixed: Vec<Mixed>,
    /// The zone was boosted, and its background reclaimer is to know.
    pub(crate) wakes: bool,
}

/// A chunk on its way to or from the system; it arrives when this is dropped, by a panic too: else
/// the task that finds no frame would wait for it for ever.
pub(crate) struct OnItsWay<'a> {
    memory: &'a Memory,
    first: FrameId,
    /// Its frames count as free meanwhile.
    is_free: bool,
    has_memory: bool,
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        let Self {
            memory,
            first,
            is_free,
            has_memory,
        } = *self;
        let count = memory.chunk.min(memory.frames - first.0);
        memory.moved(&Interrupt::new(), (first, count, is_free), |free| {
            if has_memory {
                free.give_chunk(first, count)
            } else {
                free.give_absent(first, count)
            }
        });
    }
}

impl Memory {
    /// Frames that may be used.
    pub(crate) fn limit_frames(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Frames that the limit asks for, whether the system gives their memory or not.
    pub(crate) fn asked_frames(&self) -> u32 {
        self.asked.load(Ordering::Relaxed)
    }

    /// The limit, and how far it is from being kept.
    pub(crate) fn limit(&self, context: &impl Context) -> Limit {
        let free = self.lists.lock(context);
        let limit = self.limit_frames();
        let unused = self.free() + free.offline.count();
        Limit {
            limit: Pages(u64::from(limit)),
            over: free.offline.with_memory(),
            used: Pages(u64::from(self.frames.saturating_sub(unused))),
            refused: Pages(u64::from(self.asked_frames().saturating_sub(limit))),
        }
    }

    /// Frames out of use.
    pub(crate) fn offline(&self, context: &impl Context) -> Pages {
        Pages(u64::from(self.lists.lock(context).offline.count()))
    }

    /// Takes the chunks for which `out` says so out of use, and the others into use, of which there
    /// are `asked` frames: free frames of the former go offline at once, offline frames of the
    /// latter are given back.
    pub(crate) fn set_offline(&self, context: &impl Context, asked: u32, out: &[bool]) {
        let frames = {
            let mut free = self.lists.lock(context);
            let free = &mut *free;
            for (at, &out) in out.iter().enumerate() {
                if out {
                    self.take_out(free, at);
                } else {
                    self.take_in(free, at);
                }
            }
            let frames = free.offline.in_use();
            self.limit.store(frames, Ordering::Relaxed);
            self.asked.store(asked, Ordering::Relaxed);
            frames
        };
        self.slow_path.resize(context, frames);
        self.hand_out(context);
        self.wait.wake_all(Signal::MemoryMoved);
    }

    fn take_out(&self, free: &mut Free, at: usize) {
        if !free.offline.take_out(at) {
            return;
        }
        let frames = free.offline.range(at);
        let first = FrameId(frames.start);
        if free.absent.take(first) {
            free.offline.hold_absent(first);
            let count = frames.end - frames.start;
            self.now_taken(self.layout.of(first), count);
            return;
        }
        for frame in frames.map(FrameId) {
            if free.lists.try_remove_range(frame, 1) {
                free.offline.hold(frame);
                self.now_taken(self.layout.of(frame), 1);
            }
        }
    }

    fn take_in(&self, free: &mut Free, at: usize) {
        let (lists, absent, layout) = (&mut free.lists, &mut free.absent, &self.layout);
        free.offline.take_in(
            at,
            |frame| {
                lists.put_batch(&[frame]);
                self.now_free(layout.of(frame), 1);
            },
            |first| {
                absent.put(first);
                let count = self.chunk.min(self.frames - first.0);
                self.now_free(layout.of(first), count);
            },
        );
    }

    /// `frames` rounded up to whole chunks: where the limit can be.
    pub(crate) fn whole_chunks(&self, frames: u32) -> u32 {
        frames.next_multiple_of(self.chunk).min(self.frames)
    }

    /// The state of each chunk now; other tasks may use the lists between two of them.
    pub(crate) fn chunks(&self, context: &impl Context) -> Vec<ChunkState> {
        let chunks = 0..self.frames.div_ceil(self.chunk) as usize;
        let chunks = chunks.map(|at| {
            let free = self.lists.lock(context);
            let frames = free.offline.range(at);
            let (is_out, is_released) = free.offline.state(at);
            let is_absent = free.absent.has(FrameId(frames.start));
            ChunkState {
                free: if is_absent {
                    0
                } else {
                    self.free_in(&free, &frames)
                },
                held: free.offline.held(at),
                frames,
                is_out,
                has_memory: !is_absent && !is_released,
            }
        });
        chunks.collect()
    }

    /// Frames of a range of whole pageblocks that are on the free lists.
    fn free_in(&self, free: &Free, frames: &Range<u32>) -> u32 {
        let blocks = frames.clone().step_by(1 << self.pageblock_order());
        blocks
            .map(|first| free.lists.free_in_block(FrameId(first)))
            .sum()
    }

    /// Free blocks by their order, of all zones.
    pub(crate) fn free_by_order(&self, context: &impl Context) -> [u64; 11] {
        let free = self.lists.lock(context);
        let mut all = [0; 11];
        for zone in self.layout.zones() {
            let blocks = free.lists.blocks_of(zone.0);
            let sums = all.iter_mut().zip(blocks);
            sums.for_each(|(sum, blocks)| *sum += u64::from(blocks));
        }
        all
    }

    /// Frames on the free lists of a zone: those that cost no memory of the system's.
    pub(crate) fn at_hand(&self, context: &impl Context, zone: ZoneId) -> u32 {
        self.lists.lock(context).lists.free_of(zone.0)
    }

    /// The frames of a chunk that is out of use and still has memory, the first from `from` on.
    pub(crate) fn next_to_clear(&self, context: &impl Context, from: u32) -> Option<Range<u32>> {
        let free = self.lists.lock(context);
        free.offline.left(from).next()
    }

    /// A chunk that counts as on its way already.
    pub(super) fn on_its_way(&self, first: FrameId, is_free: bool) -> OnItsWay<'_> {
        OnItsWay {
            memory: self,
            first,
            is_free,
            has_memory: false,
        }
    }

    /// A chunk out of use whose memory is to be given back to the system.
    pub(crate) fn take_to_release(&self, context: &impl Context) -> Option<OnItsWay<'_>> {
        let mut free = self.lists.lock(context);
        let first = free.offline.next_to_release()?;
        self.moving.fetch_add(1, Ordering::AcqRel);
        Some(self.on_its_way(first, false))
    }

    /// Takes up to as many frames as are picked, as many at a time as `room` allows, which is told
    /// how many have been taken. It looks while the free lists are locked. `is_movable` says of a
    /// frame in use whether it can be moved.
    ///
    /// # Errors
    /// `NoMemory`, if nothing was taken.
    pub fn take(
        &self,
        task: &Task<'_>,
        pick: Pick,
        out: &mut Vec<FrameId>,
        room: impl Fn(u32) -> u32,
        is_movable: impl Fn(FrameId) -> bool,
    ) -> Result<Taken, Error> {
        let Pick { zone, order, .. } = pick;
        let mut taken = Taken::default();
        while taken.frames < pick.frames {
            // Under the lock: two that look at once must not both take what is there for one.
            let mut free = self.lists.lock(task);
            let room = room(taken.frames).min(pick.frames - taken.frames);
            if room >> order == 0 {
                break;
            }
            let before = taken.mixed.len();
            self.look_at_kept(&mut free, zone);
            let kept = free.take_kept(
                task.on_cpu().unwrap_or(0),
                (pick, room),
                out,
                |free, want, list| {
                    free.fill(
                        self.apart,
                        (pick, want),
                        list,
                        &is_movable,
                        &mut taken.mixed,
                    );
                },
            );
            // `left`: they count as taken from now on.
            let (mut got, mut left) = kept.unwrap_or_else(|| {
                let got = free.take(pick, room, out);
                (got, got)
            });
            // The system takes milliseconds to give a chunk its memory.
            if got == 0
                && task.may_block()
                && let Some(first) = self.take_absent(&mut free, Some(zone))
            {
                drop(free);
                match self.populate_or_do_without(task, first) {
                    Ok(()) => continue,
                    // Frames that were taken before are the caller's.
                    Err(_) if taken.frames > 0 => break,
                    Err(error) => return Err(error),
                }
            }
            if got == 0
                && let Some(apart) = self.apart
            {
                let mixed = &mut taken.mixed;
                got = free.take_of_others(apart, pick, out, &is_movable, mixed, &mut true);
                left = got;
            }
            if taken.mixed.len() > before {
                self.boost_for(&mut free, pick, &mut taken.mixed[before..]);
            }
            if got == 0 {
                break;
            }
            taken.wakes |= free.boosts[zone.index()].on_allocated(&self.boost, pick.wakes);
            self.now_taken(zone, left);
            drop(free);
            taken.frames += got;
            taken.holds += 1;
        }
        Ok(taken)
    }

    /// Leaves frames with memory behind. Giving a chunk its memory takes milliseconds; a task that
    /// takes many frames at a time spends them, so that a task that takes a few finds them there.
    pub(crate) fn populate_ahead(&self, task: &Task<'_>) {
        let absent = {
            let mut free = self.lists.lock(task);
            if free.lists.free() >= READY {
                return;
            }
            self.take_absent(&mut free, None)
        };
        if let Some(first) = absent {
            // A task that needs the memory hears that the system refuses even the least.
            let _ = self.populate_or_do_without(task, first);
        }
    }

    /// Gives the chunk that begins at `first` its memory; it came from `take_absent`.
    pub(super) fn populate(&self, first: FrameId) -> Result<(), Error> {
        let mut chunk = self.on_its_way(first, true);
        let populated = self.content.populate(first);
        chunk.has_memory = populated.is_ok();
        populated.map_err(|error| Error::NoMemory { errno: error.errno })
    }

    /// The same, or takes the chunk out of use: there is something else to be looked for.
    ///
    /// # Errors
    /// `NoMemory`: that would leave less than the smallest cache.
    pub(super) fn populate_or_do_without(
        &self,
        task: &Task<'_>,
        first: FrameId,
    ) -> Result<(), Error> {
        let Err(refused) = self.populate(first) else {
            return Ok(());
        };
        self.ask_again
            .store((task.now() + ASK_AGAIN).0, Ordering::Relaxed);
        let frames = {
            let mut free = self.lists.lock(task);
            let count = self.chunk.min(self.frames - first.0);
            let left = free.offline.in_use().saturating_sub(count);
            if u64::from(left) < 4 * self.marks().high.0 {
                return Err(refused);
            }
            // Another task has taken it up meanwhile: its answer counts.
            if free.absent.has(first) {
                self.take_out(&mut free, (first.0 / self.chunk) as usize);
            }
            let frames = free.offline.in_use();
            self.limit.store(frames, Ordering::Relaxed);
            frames
        };
        self.slow_path.resize(task, frames);
        Ok(())
    }

    /// Asks the system again for memory that it refused a while ago, as far as memory is short.
    pub(crate) fn ask_again(&self, task: &Task<'_>) {
        while self.limit_frames() < self.asked_frames()
            && u64::from(self.free()) < self.marks().high.0
            && task.now().0 >= self.ask_again.load(Ordering::Relaxed)
        {
            let first = {
                let mut free = self.lists.lock(task);
                // Looked at again under the lock: the limit may have been lowered meanwhile.
                let is_short = self.limit_frames() < self.asked_frames();
                let Some(at) = free.offline.absent().filter(|_| is_short) else {
                    return;
                };
                self.take_in(&mut free, at);
                self.limit.store(free.offline.in_use(), Ordering::Relaxed);
                self.take_absent(&mut free, None)
            };
            if let Some(first) = first {
                // Refused again: it goes out of use, and is asked for later.
                let _ = self.populate_or_do_without(task, first);
            }
            self.slow_path.resize(task, self.limit_frames());
        }
    }

    /// The memory of a chunk is the system's; the limit may have been raised meanwhile.
    pub(crate) fn give_to_system(&self, chunk: OnItsWay<'_>) {
        self.content.release(chunk.first);
        drop(chunk);
    }

    pub(crate) fn populate_all(&self, context: &impl Context) -> Result<(), Error> {
        while let Some(first) = { self.take_absent(&mut self.lists.lock(context), None) } {
            self.populate(first)?;
        }
        Ok(())
    }

    /// Gives the memory of wholly free chunks back to the system; answers how many frames that
    /// were.
    pub(crate) fn trim(&self, context: &impl Context) -> Pages {
        let mut given = 0;
        for first in (0..self.frames).step_by(self.chunk as usize).map(FrameId) {
            let count = self.chunk.min(self.frames - first.0);
            let mut free = self.lists.lock(context);
            if free.absent.has(first) || !free.lists.try_remove_range(first, count) {
                continue;
            }
            self.moving.fetch_add(1, Ordering::AcqRel);
            drop(free);
            // On neither list meanwhile, so nobody can have it. The frames still count as free.
            self.give_to_system(self.on_its_way(first, true));
            given += u64::from(count);
        }
        Pages(given)
    }
}
