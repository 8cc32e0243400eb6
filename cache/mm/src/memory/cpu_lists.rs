//! Free frames that CPUs keep for themselves, where the law has it so (`policy::place::cpu_list`).
//!
//! Invariant: a frame on such a list counts as taken (`Memory::free`), and is on no other list.
//!
//! Source: kernel-facts 8; Linux 3.0 mm/page_alloc.c, free_hot_cold_page(), free_pcppages_bulk(),
//! buffered_rmqueue().

use env::{Context, Lock, LockClass};
use frames::FrameId;
use policy::place::ZoneId;
use policy::place::cpu_list::CpuListRule;
use policy::units::Pages;

use crate::lists::Layout;

/// See the module.
pub(super) struct CpuLists {
    rules: Vec<CpuListRule>,
    /// By CPU, then zone.
    lists: Box<[Lock<Vec<FrameId>>]>,
}

impl CpuLists {
    /// `stands_for`: the pages that each page of the zones stands for.
    pub(super) fn new(layout: &Layout, cpus: u32, stands_for: u32) -> Self {
        let rule = |pages: Pages| CpuListRule::of_zone(Pages(pages.0 * u64::from(stands_for)));
        let rules: Vec<_> = layout.all().iter().map(|zone| rule(zone.pages)).collect();
        let lists = (0..cpus as usize * rules.len())
            .map(|_| Lock::new(LockClass::Leaf, Vec::new()))
            .collect();
        Self { rules, lists }
    }

    fn of(&self, cpu: usize, zone: ZoneId) -> &Lock<Vec<FrameId>> {
        let cpus = self.lists.len() / self.rules.len();
        &self.lists[cpu % cpus * self.rules.len() + zone.index()]
    }

    /// Takes up to `want` frames from the CPU's list; if it is empty, `refill` brings more. Answers
    /// how many it took, and how many the refill brought.
    pub(super) fn take(
        &self,
        context: &impl Context,
        zone: ZoneId,
        want: u32,
        out: &mut Vec<FrameId>,
        refill: impl FnOnce(u32, &mut Vec<FrameId>) -> u32,
    ) -> (u32, u32) {
        let mut list = self.of(context.on_cpu().unwrap_or(0), zone).lock(context);
        let mut brought = 0;
        if list.is_empty() {
            brought = refill(self.rules[zone.index()].batch, &mut list);
        }
        let stays = list.len().saturating_sub(want as usize);
        let taken = u32::try_from(list.len() - stays).expect("no more than was wanted");
        out.extend(list.drain(stays..).rev());
        (taken, brought)
    }

    /// Frames of one zone go to the CPU's list; those that are too many are appended to `back`, to
    /// go to the free lists.
    pub(super) fn put(
        &self,
        context: &impl Context,
        zone: ZoneId,
        frames: &[FrameId],
        back: &mut Vec<FrameId>,
    ) {
        let Some(cpu) = context.on_cpu() else {
            back.extend_from_slice(frames);
            return;
        };
        let CpuListRule { batch, high } = self.rules[zone.index()];
        let mut list = self.of(cpu, zone).lock(context);
        for frame in frames {
            list.push(*frame);
            if list.len() >= high as usize {
                // The coldest.
                let batch = list.len().min(batch as usize);
                back.extend(list.drain(..batch));
            }
        }
    }

    /// All frames of all lists.
    pub(super) fn drain(&self, context: &impl Context) -> Vec<FrameId> {
        let mut all = Vec::new();
        for list in &self.lists {
            all.append(&mut list.lock(context));
        }
        all
    }

    pub(super) fn bytes(&self) -> u64 {
        size_of_val(&*self.lists) as u64
    }
}
