//! The frames that hold no page: a list for each zone, and chunks that have no memory yet.
//!
//! Invariants
//!   1. `Memory::free` counts a zone's frames on its list, those of its chunks without memory, and
//!      those of chunks on their way; it changes under the lock. Offline frames are not free.
//!   2. A task that puts frames back, or a chunk, hands out and wakes the task that waits for
//!      memory, after it has let the lock go.

use env::{Context, Signal};
use frames::sync::{AtomicU32, Ordering};
use frames::{FrameId, FreeLists, Group, Pageblocks};
use policy::place::mobility::Mobility;
use policy::reclaim::boost::Boost;
use policy::units::Pages;

use super::cpu_lists::CpuLists;
use super::{Memory, apart};
use crate::lists::{Layout, ZoneId};
use crate::memory::offline::OfflineFrames;
use crate::options::{Apart, PAGEBLOCK_ORDER};
use crate::vmstat::{add, get};

/// Mobilities that can be kept apart.
const MOBILITIES: u8 = 3;
const _: () = assert!(
    Mobility::ALL.len() == MOBILITIES as usize,
    "each has its lists"
);

/// Zones are whole chunks, so a pageblock that is not larger than a chunk is of one zone.
pub(super) fn pageblock_order(chunk: u32) -> u8 {
    let order = chunk.trailing_zeros().min(u32::from(PAGEBLOCK_ORDER));
    u8::try_from(order).expect("no larger than a pageblock's")
}

/// Which frames are on a list, which chunks have no memory, and what is out of use.
pub(super) struct Free {
    /// A region of them for each zone.
    pub(super) lists: FreeLists,
    pub(super) absent: Absent,
    /// Frames beyond a limit that was lowered.
    pub(super) offline: OfflineFrames,
    /// Mobilities have lists of their own.
    is_apart: bool,
    /// By zone.
    pub(super) boosts: Box<[Boost]>,
    /// Frames that CPUs keep for themselves, which count as taken.
    pub(super) cpu_lists: Option<CpuLists>,
}

/// Chunks without memory, a bit each, by their first frames.
pub(super) struct Absent {
    chunk: u32,
    bits: Box<[u64]>,
}

impl Absent {
    /// All there are.
    fn all(frames: u32, chunk: u32) -> Self {
        let chunks = frames.div_ceil(chunk);
        let mut absent = Self {
            chunk,
            bits: vec![0; chunks.div_ceil(u64::BITS) as usize].into(),
        };
        (0..chunks).for_each(|at| absent.put(FrameId(at * chunk)));
        absent
    }

    fn place(&self, first: FrameId) -> (usize, u64) {
        let at = first.0 / self.chunk;
        ((at / u64::BITS) as usize, 1 << (at % u64::BITS))
    }

    pub(super) fn has(&self, first: FrameId) -> bool {
        let (word, bit) = self.place(first);
        self.bits[word] & bit != 0
    }

    pub(super) fn put(&mut self, first: FrameId) {
        let (word, bit) = self.place(first);
        self.bits[word] |= bit;
    }

    /// False: it is none of them.
    pub(super) fn take(&mut self, first: FrameId) -> bool {
        let (word, bit) = self.place(first);
        let had = self.bits[word] & bit != 0;
        self.bits[word] &= !bit;
        had
    }

    pub(super) fn is_none(&self) -> bool {
        self.bits.iter().all(|bits| *bits == 0)
    }

    /// The first frame that fits.
    fn find(&self, fits: impl Fn(FrameId) -> bool) -> Option<FrameId> {
        let words = (0u32..).zip(&self.bits);
        let mut firsts = words.flat_map(|(word, bits)| {
            let set = (0..u64::BITS).filter(move |bit| bits & (1 << bit) != 0);
            set.map(move |bit| FrameId((word * u64::BITS + bit) * self.chunk))
        });
        firsts.find(|first| fits(*first))
    }
}

/// Which frames are taken.
#[derive(Clone, Copy)]
pub struct Pick {
    pub(crate) zone: ZoneId,
    pub(crate) mobility: Mobility,
    /// Their number, in blocks of 2^`order`.
    pub(crate) frames: u32,
    pub(crate) order: u8,
    /// The task that takes them may wake the background reclaimer.
    pub(crate) wakes: bool,
}

impl Pick {
    /// Single frames for pages.
    #[must_use]
    pub fn single(zone: ZoneId, frames: u32) -> Self {
        Self {
            zone,
            mobility: Mobility::Movable,
            frames,
            order: 0,
            wakes: true,
        }
    }
}

impl Free {
    /// All of them without memory.
    pub(super) fn new(
        (frames, chunk): (u32, u32),
        layout: &Layout,
        apart: Option<Apart>,
        cpu_lists: Option<CpuLists>,
    ) -> Self {
        let (order, mobilities) = match apart {
            None => (pageblock_order(chunk), 1),
            Some(apart) => (apart.pageblock_order, MOBILITIES),
        };
        let blocks = Pageblocks::new(frames, order, mobilities, |first| layout.of(first).0);
        Self {
            lists: FreeLists::with_blocks(frames, blocks),
            absent: Absent::all(frames, chunk),
            offline: OfflineFrames::new(frames, chunk),
            is_apart: apart.is_some(),
            boosts: layout.zones().map(|_| Boost::default()).collect(),
            cpu_lists,
        }
    }

    /// Takes up to `want` frames of the list of a CPU, which is filled first if it is empty: as
    /// `fill` has it, which is told the number of frames. Answers how many, and how many of the
    /// free lists were taken for it; `None`: CPUs keep no such frames.
    pub(super) fn take_kept(
        &mut self,
        cpu: usize,
        (pick, want): (Pick, u32),
        out: &mut Vec<FrameId>,
        fill: impl FnOnce(&mut Self, u32, &mut Vec<FrameId>),
    ) -> Option<(u32, u32)> {
        let mut lists = self
            .cpu_lists
            .take_if(|lists| lists.keeps(pick.mobility, pick.order))?;
        let mut brought = Vec::new();
        if let Some(blocks) = lists.refill(cpu, pick) {
            fill(self, blocks << pick.order, &mut brought);
            lists.came(cpu, pick, &brought);
        }
        let taken = lists.take(cpu, pick, want, out);
        self.cpu_lists = Some(lists);
        let brought = u32::try_from(brought.len()).expect("no more than all frames");
        Some((taken, brought))
    }

    /// Blocks of 2^`order` frames of one zone come to the list of a CPU; those that are too many
    /// are appended to `back`.
    fn keep(
        &mut self,
        at: (usize, ZoneId),
        frames: &[FrameId],
        order: u8,
        back: &mut Vec<FrameId>,
    ) {
        let Some(lists) = &mut self.cpu_lists else {
            return;
        };
        for block in frames.chunks(1 << order) {
            let mobility = if self.is_apart {
                apart::mobility(self.lists.home(block[0]).mobility)
            } else {
                Mobility::Movable
            };
            if lists.keeps(mobility, order) {
                lists.put(at, (mobility, order), block[0], back);
            } else {
                back.extend_from_slice(block);
            }
        }
    }

    /// Takes up to `want` frames that have memory, in whole blocks as picked, of the pick's own
    /// lists; appends them; answers how many.
    ///
    /// Where mobilities have lists of their own, each block is the first of the smallest that hold
    /// it, as in Linux: that is how they come to be mixed. Else single frames come in runs.
    pub(super) fn take(&mut self, pick: Pick, want: u32, out: &mut Vec<FrameId>) -> u32 {
        if pick.order == 0 && !self.is_apart {
            let group = Group::of_zone(pick.zone.0);
            return self.lists.try_take_batch(group, want, out);
        }
        let group = if self.is_apart {
            apart::group(pick.zone, pick.mobility)
        } else {
            Group::of_zone(pick.zone.0)
        };
        let mut taken = 0;
        while want - taken >= 1 << pick.order {
            match self.take_block(group, pick.order, out) {
                0 => break,
                size => taken += size,
            }
        }
        taken
    }

    /// Puts frames of one zone back, those beyond the limit out of use; answers how many are free.
    fn give(&mut self, frames: &[FrameId]) -> u32 {
        let count = |frames: usize| u32::try_from(frames).expect("fewer frames than a u32 counts");
        let none_is = |offline: &OfflineFrames| {
            !offline.wants_any() || !frames.iter().any(|frame| offline.wants(*frame))
        };
        if none_is(&self.offline) {
            self.lists.put_batch(frames);
            return count(frames.len());
        }
        let mut given = 0;
        for frame in frames {
            if self.offline.wants(*frame) {
                self.offline.hold(*frame);
            } else {
                self.lists.put_batch(&[*frame]);
                given += 1;
            }
        }
        given
    }

    /// A chunk has got its memory; answers how many of its frames, which counted as free, are
    /// beyond the limit.
    pub(super) fn give_chunk(&mut self, first: FrameId, count: u32) -> u32 {
        if !self.offline.wants(first) {
            self.lists.add_range(first, count);
            return 0;
        }
        for frame in first.0..first.0 + count {
            self.offline.hold(FrameId(frame));
        }
        count
    }

    /// A chunk has no memory; answers as `give_chunk`.
    pub(super) fn give_absent(&mut self, first: FrameId, count: u32) -> u32 {
        if !self.offline.wants(first) {
            self.absent.put(first);
            return 0;
        }
        self.offline.hold_absent(first);
        count
    }
}

impl Memory {
    /// Free frames, unpopulated ones included.
    pub(crate) fn free(&self) -> u32 {
        let free = |free: &AtomicU32| free.load(Ordering::Relaxed);
        self.free.iter().map(free).sum()
    }

    /// Of one zone.
    pub fn free_of(&self, zone: ZoneId) -> u32 {
        self.free[zone.index()].load(Ordering::Relaxed)
    }

    pub(super) fn now_free(&self, zone: ZoneId, count: u32) {
        self.free[zone.index()].fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn now_taken(&self, zone: ZoneId, count: u32) {
        self.free[zone.index()].fetch_sub(count, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self, context: &impl Context) -> u64 {
        let free = self.lists.lock(context);
        let cpu_lists = free.cpu_lists.as_ref().map_or(0, CpuLists::bytes);
        free.lists.bytes() + self.slow_path.bytes() + cpu_lists
    }

    /// Gives frames back and wakes the task that waits for memory.
    pub fn put(&self, context: &impl Context, frames: &[FrameId]) {
        self.put_blocks(context, frames, 0);
    }

    /// The same of blocks of 2^`order` frames.
    pub fn put_blocks(&self, context: &impl Context, frames: &[FrameId], order: u8) {
        if frames.is_empty() {
            return;
        }
        if let Some(overhead) = &self.overhead {
            for frame in frames {
                overhead.gone(*frame);
            }
        }
        let mut free = self.lists.lock(context);
        match context.on_cpu().filter(|_| free.cpu_lists.is_some()) {
            Some(cpu) => {
                let mut back = Vec::new();
                self.fade(&mut free, &mut back);
                for (zone, frames) in self.layout.parts(frames) {
                    free.keep((cpu, zone), frames, order, &mut back);
                }
                self.give(&mut free, &back);
                let is_above =
                    |zone| Pages(u64::from(self.free_of(zone))) > self.marks_of(zone).high;
                if let Some(lists) = free.cpu_lists.as_mut().filter(|_| !back.is_empty()) {
                    let zones = self.layout.zones();
                    zones.for_each(|zone| lists.look_above(zone, || is_above(zone)));
                }
            }
            None => self.give(&mut free, frames),
        }
        drop(free);
        add(&self.given_back, frames.len() as u64);
        self.hand_out(context);
        self.wait.wake_all(Signal::Freed);
    }

    /// Frames go to the free lists. Counted under the lock: nobody may count off what is not
    /// counted yet.
    fn give(&self, free: &mut Free, frames: &[FrameId]) {
        for (zone, frames) in self.layout.parts(frames) {
            let given = free.give(frames);
            self.now_free(zone, given);
            add(&self.given_back_of[zone.index()], u64::from(given));
        }
    }

    /// Frames that CPUs have kept for too long are appended to `back`, to be given.
    fn fade(&self, free: &mut Free, back: &mut Vec<FrameId>) {
        if let Some(lists) = &mut free.cpu_lists {
            lists.fade(self.env.now(), back);
        }
    }

    /// A task is about to take frames of a zone: CPUs give back what they have kept for too long,
    /// and hear whether the zone has fallen to HIGH.
    pub(super) fn look_at_kept(&self, free: &mut Free, zone: ZoneId) {
        if free.cpu_lists.is_none() {
            return;
        }
        let mut back = Vec::new();
        self.fade(free, &mut back);
        self.give(free, &back);
        if let Some(lists) = &mut free.cpu_lists
            && Pages(u64::from(self.free_of(zone))) <= self.marks_of(zone).high
        {
            lists.below_high(zone);
        }
    }

    /// The background reclaimer begins or ends a balance of a zone.
    pub(crate) fn balances(&self, context: &impl Context, zone: ZoneId, begins: bool) {
        if let Some(lists) = &mut self.lists.lock(context).cpu_lists {
            lists.balances(zone, begins);
        }
    }

    /// Frames that came onto the free lists of a zone, ever.
    pub fn given_back_of(&self, zone: ZoneId) -> u64 {
        get(&self.given_back_of[zone.index()])
    }

    /// Moves the frames that CPUs keep for themselves to the free lists; returns true if there were
    /// any.
    pub fn drain_cpu_lists(&self, context: &impl Context) -> bool {
        let mut free = self.lists.lock(context);
        let Some(lists) = &mut free.cpu_lists else {
            return false;
        };
        let frames = lists.drain();
        self.give(&mut free, &frames);
        !frames.is_empty()
    }

    /// A task that has freed frames finds none: the same, where the law has it so.
    pub(crate) fn finder_empties_lists(&self, context: &impl Context) -> bool {
        let lists = |free: &Free| {
            free.cpu_lists
                .as_ref()
                .is_some_and(CpuLists::emptied_by_finder)
        };
        lists(&self.lists.lock(context)) && self.drain_cpu_lists(context)
    }

    /// Frames given back, ever.
    pub(crate) fn given_back(&self) -> u64 {
        get(&self.given_back)
    }

    /// Frames went to pages that came back while the swap file was full.
    pub(crate) fn note_returned(&self, frames: u64) {
        add(&self.returned, frames);
    }

    /// Frames that ever did.
    pub(crate) fn returned(&self) -> Pages {
        Pages(get(&self.returned))
    }

    pub(crate) fn moving(&self) -> u32 {
        self.moving.load(Ordering::Acquire)
    }

    /// A chunk without memory, of that zone if one is named, to be given some: ends with `moved`.
    pub(super) fn take_absent(&self, free: &mut Free, zone: Option<ZoneId>) -> Option<FrameId> {
        let fits = |first| zone.is_none_or(|zone| self.layout.of(first) == zone);
        let first = free.absent.find(fits)?;
        free.absent.take(first);
        self.moving.fetch_add(1, Ordering::AcqRel);
        Some(first)
    }

    /// A chunk of `count` frames, which count as free or not, is where `put` puts it: the task that
    /// found nothing looks again.
    pub(super) fn moved(
        &self,
        context: &impl Context,
        (first, count, is_free): (FrameId, u32, bool),
        put: impl FnOnce(&mut Free) -> u32,
    ) {
        {
            let mut free = self.lists.lock(context);
            let offline = put(&mut free);
            let zone = self.layout.of(first);
            if is_free {
                self.now_taken(zone, offline);
            } else {
                self.now_free(zone, count - offline);
            }
            self.moving.fetch_sub(1, Ordering::AcqRel);
        }
        self.hand_out(context);
        self.wait.wake_all(Signal::MemoryMoved);
    }
}
