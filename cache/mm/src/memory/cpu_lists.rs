//! Free frames that CPUs keep for themselves, where the law has it so (`policy::place::cpu_list`):
//! by CPU, zone, mobility and order, the hottest first.
//!
//! Invariant: a frame on such a list counts as taken (`Memory::free`), and is on no other list.
//!
//! Source: kernel-facts 8; Linux 3.0 mm/page_alloc.c, free_hot_cold_page(), free_pcppages_bulk(),
//! buffered_rmqueue(); Linux 6.12 mm/page_alloc.c, free_unref_page_commit(), free_pcppages_bulk(),
//! __rmqueue_pcplist(), rmqueue_bulk(), get_page_from_freelist(); mm/vmstat.c,
//! refresh_cpu_vm_stats(). Deviations: huge pages, and frames that an interrupt gives back, pass
//! the lists by; what fades goes with the next frame that comes or goes; a zone of another node is
//! not emptied after three quiet seconds.

use std::collections::VecDeque;

use frames::FrameId;
use policy::place::ZoneId;
use policy::place::cpu_list::{CpuList, CpuListRule, FADES_EACH, ListPressure, ListZone};
use policy::place::marks::Marks;
use policy::place::mobility::Mobility;
use policy::units::Instant;

use super::free::Pick;
use crate::lists::Layout;
use crate::options::ListsOfCpus;

/// See the module.
pub(super) struct CpuLists {
    /// By zone.
    rules: Vec<CpuListRule>,
    pressures: Vec<ListPressure>,
    /// By CPU, then zone.
    kept: Vec<Kept>,
    /// When what is kept for too long goes.
    fades: Instant,
}

/// The frames that a CPU keeps of a zone.
struct Kept {
    list: CpuList,
    /// The first frames of blocks, by order and mobility.
    blocks: Vec<VecDeque<FrameId>>,
}

fn kind(mobility: Mobility, order: u8) -> usize {
    usize::from(order) * Mobility::ALL.len() + mobility.index()
}

impl Kept {
    /// Moves the coldest blocks of `frames` frames to `back`, of the list `first` first.
    fn drain(&mut self, first: usize, frames: u32, back: &mut Vec<FrameId>) {
        let mut left = frames;
        let kinds = self.blocks.len();
        for at in (first..first + kinds).map(|at| at % kinds) {
            let order = at / Mobility::ALL.len();
            while left > 0
                && let Some(FrameId(block)) = self.blocks[at].pop_back()
            {
                let size = 1 << order;
                back.extend((block..block + size).map(FrameId));
                self.list.went(size);
                left = left.saturating_sub(size);
            }
        }
    }
}

impl CpuLists {
    pub(super) fn new(
        layout: &Layout,
        marks: &[Marks],
        of: ListsOfCpus,
        (stands_for, now): (u32, Instant),
    ) -> Self {
        let nodes = layout.machine().nodes();
        let rule = |(zone, marks): (ZoneId, &Marks)| {
            let own = nodes[layout.node_of(zone).index()].cpus;
            let zone = ListZone {
                pages: layout.zone(zone).pages,
                low: marks.watermarks.low,
                cpus: if nodes.len() > 1 && own > 0 {
                    own
                } else {
                    of.cpus
                },
                stands_for,
            };
            CpuListRule::of_zone(of.law, zone)
        };
        let rules: Vec<_> = layout.zones().zip(marks).map(rule).collect();
        let kinds = (usize::from(of.law.order_most) + 1) * Mobility::ALL.len();
        let kept = |_| Kept {
            list: CpuList::default(),
            blocks: vec![VecDeque::new(); kinds],
        };
        Self {
            kept: (0..of.cpus as usize * rules.len()).map(kept).collect(),
            pressures: vec![ListPressure::default(); rules.len()],
            rules,
            fades: now + FADES_EACH,
        }
    }

    fn at(&self, cpu: usize, zone: ZoneId) -> usize {
        let zones = self.rules.len();
        cpu % (self.kept.len() / zones) * zones + zone.index()
    }

    /// True if CPUs keep such frames for themselves.
    pub(super) fn keeps(&self, mobility: Mobility, order: u8) -> bool {
        self.rules[0].law().keeps(mobility, order)
    }

    /// True if a task that has freed frames and finds none empties the lists.
    pub(super) fn emptied_by_finder(&self) -> bool {
        self.rules[0].law().emptied_by_finder
    }

    /// The background reclaimer begins or ends a balance of a zone.
    pub(super) fn balances(&mut self, zone: ZoneId, begins: bool) {
        self.pressures[zone.index()].reclaimed = begins;
    }

    /// A zone is at HIGH or below it.
    pub(super) fn below_high(&mut self, zone: ZoneId) {
        self.pressures[zone.index()].below_high = true;
    }

    /// A zone that was below HIGH may be above.
    pub(super) fn look_above(&mut self, zone: ZoneId, is_above: impl FnOnce() -> bool) {
        let pressure = &mut self.pressures[zone.index()];
        pressure.below_high = pressure.below_high && !is_above();
    }

    /// The number of blocks that the list of a pick is to be filled with, as it is empty.
    pub(super) fn refill(&mut self, cpu: usize, pick: Pick) -> Option<u32> {
        let at = self.at(cpu, pick.zone);
        let (kept, zone) = (&mut self.kept[at], pick.zone.index());
        kept.blocks[kind(pick.mobility, pick.order)]
            .is_empty()
            .then(|| {
                kept.list
                    .refill(&self.rules[zone], pick.order, self.pressures[zone])
            })
    }

    /// Blocks for it have come.
    pub(super) fn came(&mut self, cpu: usize, pick: Pick, frames: &[FrameId]) {
        let at = self.at(cpu, pick.zone);
        let kept = &mut self.kept[at];
        let blocks = &mut kept.blocks[kind(pick.mobility, pick.order)];
        let firsts = frames.iter().step_by(1 << pick.order);
        if self.rules[0].law().last_first {
            firsts.for_each(|first| blocks.push_front(*first));
        } else {
            blocks.extend(firsts);
        }
        kept.list
            .came(u32::try_from(frames.len()).expect("no more than all frames"));
    }

    /// Takes up to `want` frames of the list; answers how many.
    pub(super) fn take(
        &mut self,
        cpu: usize,
        pick: Pick,
        want: u32,
        out: &mut Vec<FrameId>,
    ) -> u32 {
        let at = self.at(cpu, pick.zone);
        let kept = &mut self.kept[at];
        let blocks = &mut kept.blocks[kind(pick.mobility, pick.order)];
        let count = blocks.len().min((want >> pick.order) as usize);
        for FrameId(first) in blocks.drain(..count) {
            out.extend((first..first + (1 << pick.order)).map(FrameId));
        }
        let count = u32::try_from(count).expect("no more than was wanted");
        kept.list.took(count, pick.order);
        count << pick.order
    }

    /// A block of a kind that is kept comes to the CPU's list; frames that are too many are
    /// appended to `back`, to go to the free lists.
    pub(super) fn put(
        &mut self,
        (cpu, zone): (usize, ZoneId),
        (mobility, order): (Mobility, u8),
        first: FrameId,
        back: &mut Vec<FrameId>,
    ) {
        let (at, kind) = (self.at(cpu, zone), kind(mobility, order));
        let (kept, zone) = (&mut self.kept[at], zone.index());
        kept.blocks[kind].push_front(first);
        let gone = kept
            .list
            .given(&self.rules[zone], order, self.pressures[zone]);
        kept.drain(kind, gone, back);
    }

    /// Frames that were kept for too long are appended to `back`.
    pub(super) fn fade(&mut self, now: Instant, back: &mut Vec<FrameId>) {
        while now >= self.fades {
            let before = back.len();
            for (at, kept) in self.kept.iter_mut().enumerate() {
                let gone = kept.list.fade(&self.rules[at % self.rules.len()]);
                kept.drain(0, gone, back);
            }
            self.fades = self.fades + FADES_EACH;
            if back.len() == before && now >= self.fades + FADES_EACH {
                self.fades = now;
            }
        }
    }

    /// All frames of all lists.
    pub(super) fn drain(&mut self) -> Vec<FrameId> {
        let mut all = Vec::new();
        for kept in &mut self.kept {
            kept.drain(0, u32::MAX, &mut all);
        }
        all
    }

    pub(super) fn bytes(&self) -> u64 {
        let kinds = self.kept.first().map_or(0, |kept| kept.blocks.len());
        let kept = size_of::<Kept>() + kinds * size_of::<VecDeque<FrameId>>();
        (self.kept.len() * kept) as u64
    }
}
