//! Pages that were evicted and are read again: whether they belong to the working set.
//!
//! Source: mechanisms 2.7; Linux 5.15 mm/workingset.c, workingset_refault().

use env::Context;
use frames::{Flags, FrameId};
use policy::reclaim::scan::Kind;
use policy::reclaim::workingset::{RefaultVerdict, Shadow, refault};
use policy::rule::Queue;
use policy::units::{Instant, Pages};

use super::{FALLEN, Zones};
use crate::pages::CachedPages;
use crate::vmstat::{Counters, Item, add, get};

impl Zones {
    /// A page comes back into `frame` that had left `shadow` when it was evicted. Before it goes
    /// onto a list: its flags say onto which. Answers how many evictions and activations ago that
    /// was.
    pub(crate) fn refaulted(
        &self,
        context: &impl Context,
        (pages, counters): (&CachedPages, &Counters),
        frame: FrameId,
        shadow: u32,
        (now, may_swap, has_room): (impl Fn() -> Instant, bool, bool),
    ) -> Pages {
        let kind = if pages.table.flags(frame).has(Flags::ANON) {
            Kind::Anon
        } else {
            Kind::File
        };
        let (refaults, activates, restores) = match kind {
            Kind::Anon => (
                Item::WorkingsetRefaultAnon,
                Item::WorkingsetActivateAnon,
                Item::WorkingsetRestoreAnon,
            ),
            Kind::File => (
                Item::WorkingsetRefaultFile,
                Item::WorkingsetActivateFile,
                Item::WorkingsetRestoreFile,
            ),
        };
        if let Some(order) = self.order() {
            let zone = self.layout().of(frame);
            counters.add(refaults, 1);
            let recent = order.refaulted(context, zone, (kind, shadow));
            counters.add(activates, u64::from(recent.is_some()));
            if recent == Some(true) {
                counters.add(restores, 1);
                pages.table.update(frame, Flags::WORKINGSET, Flags::NONE);
            }
            return Pages::ZERO;
        }
        let by_rule = self.ruled().filter(|_| kind == Kind::File);
        let verdict = if let Some(ruled) = by_rule {
            let page = (frame, shadow);
            let (ghost, queue, distance) = self.place(ruled, context, pages, page, has_room);
            let activate = queue == Queue::Main;
            RefaultVerdict {
                distance,
                activate,
                restore: activate && ghost.from == Queue::Main,
            }
        } else {
            // A shadow does not say of which zone the page was: they have one age.
            let sizes = self.all_told(context, now);
            let mut age = self.age.lock(context);
            let verdict = refault(&age, Shadow::from_bits(shadow), kind, &sizes, may_swap);
            if verdict.activate {
                age.advance(Pages(1));
            }
            verdict
        };
        let zone = self.layout().of(frame);
        if verdict.activate || verdict.restore {
            let listed = verdict.restore.then(|| self.listed(context, zone));
            let mut balance = self[zone].balance(context);
            balance.note_refault(kind, verdict.activate, listed);
        }
        if verdict.activate && !self.layout().is_one() {
            self[zone].worth(context).note_refault();
        }
        counters.add(refaults, 1);
        counters.add(activates, u64::from(verdict.activate));
        counters.add(restores, u64::from(verdict.restore));
        let mut set = Flags::NONE;
        if verdict.activate {
            set = set | Flags::ACTIVE;
        }
        if verdict.restore {
            set = set | Flags::WORKINGSET;
        }
        if set != Flags::NONE {
            pages.table.update(frame, set, Flags::NONE);
        }
        let octave = verdict
            .distance
            .0
            .max(1)
            .next_power_of_two()
            .trailing_zeros();
        let last = u32::try_from(FALLEN - 1).expect("octaves are few");
        add(&self.fallen[octave.min(last) as usize], 1);
        verdict.distance
    }

    /// Pages that ever came back, by how far they had fallen: up to 1, 2, 4 .. 2^31 evictions and
    /// activations.
    pub(crate) fn fallen(&self) -> [u64; FALLEN] {
        core::array::from_fn(|octave| get(&self.fallen[octave]))
    }

    /// Pages of a kind are evicted: for each, whether it was of the working set, and what stays of
    /// it.
    pub(crate) fn evict<'a>(
        &self,
        context: &impl Context,
        pages: &CachedPages,
        kind: Kind,
        going: impl Iterator<Item = ((FrameId, bool), &'a mut Option<frames::Shadow>)>,
    ) {
        if let Some(ruled) = self.ruled().filter(|_| kind == Kind::File) {
            let going = going.map(|((frame, _), shadow)| (frame, shadow));
            return self.ghosts(ruled, context, pages, going);
        }
        if let Some(order) = self.order() {
            for ((frame, _), shadow) in going {
                let zone = self.layout().of(frame);
                let bits = order.went(context, zone, (kind, frame));
                *shadow = Some(frames::Shadow(bits));
            }
            return;
        }
        let mut age = self.age.lock(context);
        for ((_, workingset), shadow) in going {
            *shadow = Some(frames::Shadow(age.evict(workingset).bits()));
        }
    }

    /// Pages were activated: whatever was evicted is that much older.
    pub(crate) fn advance_age(&self, context: &impl Context, activated: Pages) {
        if !activated.is_zero() {
            self.age.lock(context).advance(activated);
        }
    }

    /// A cycle of reclaim has ended: refaults from now on say that the active lists are to be aged.
    pub fn snapshot_refaults(&self, context: &impl Context) {
        for zone in self.iter() {
            zone.balance(context).end_cycle();
        }
    }
}
