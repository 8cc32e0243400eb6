//! Pages that were evicted and are read again: whether they belong to the working set.
//!
//! Source: mechanisms 2.7; Linux 5.15 mm/workingset.c, workingset_refault().

use env::Context;
use frames::{Flags, FrameId};
use policy::reclaim::scan::Kind;
use policy::units::Pages;

use super::{NodeId, Nodes};
use crate::pages::CachedPages;
use crate::vmstat::{Counters, Item};

impl Nodes {
    /// A page comes back into `frame` that had left `shadow` when it was evicted. Before it goes onto a list:
    /// its flags say onto which.
    pub(crate) fn refaulted(
        &self,
        context: &impl Context,
        (pages, counters): (&CachedPages, &Counters),
        frame: FrameId,
        shadow: u32,
        may_swap: bool,
    ) {
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
        // A shadow does not say of which node the page was: they have one age.
        let (sizes, _) = self.all_sizes_and_aside(context);
        let verdict = self[NodeId::FIRST]
            .balance(context)
            .refault(shadow, kind, &sizes, may_swap);
        let node = self.division().of(frame);
        if verdict.activate || verdict.restore {
            let listed = verdict.restore.then(|| self.listed(context, node));
            let mut balance = self[node].balance(context);
            balance.note_refault(kind, verdict.activate, listed);
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
    }

    /// Pages were activated: whatever was evicted is that much older.
    pub(crate) fn advance_age(&self, context: &impl Context, activated: Pages) {
        if !activated.is_zero() {
            let mut balance = self[NodeId::FIRST].balance(context);
            balance.advance_age(activated);
        }
    }

    /// A cycle of reclaim has ended: refaults from now on say that the active lists are to be aged.
    pub(crate) fn snapshot_refaults(&self, context: &impl Context) {
        for node in self.iter() {
            node.balance(context).end_cycle();
        }
    }
}
