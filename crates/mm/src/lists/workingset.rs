//! Pages that were evicted and are read again: whether they belong to the working set.
//!
//! Source: mechanisms 2.7; Linux 5.15 mm/workingset.c, workingset_refault().

use env::{Context, Env};
use frames::{Flags, FrameId, IndexWriter};
use policy::reclaim::scan::Kind;
use policy::reclaim::workingset::{Shadow, refault};
use policy::units::Pages;

use crate::cache::Cache;
use crate::vmstat::Item;

use crate::lists::NodeId;

/// Shadows given up at a time where nodes are short: a cluster's worth, and as many again.
const SHADOWS_GIVEN_UP: u32 = 64;
/// Shadows given up in one hold of an index lock.
const SHADOWS_AT_ONCE: u32 = 1024;

impl<E: Env> Cache<E> {
    /// A page comes back into `frame` that had left `shadow` when it was evicted. Before it goes onto a list:
    /// its flags say onto which.
    pub(crate) fn refaulted(&self, context: &impl Context, frame: FrameId, shadow: u32) {
        let kind = if self.pages.table.flags(frame).has(Flags::ANON) {
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
        let (sizes, _) = self.nodes.all_sizes_and_aside(context);
        let may_swap = !self.swap_free().is_zero();
        let verdict = {
            let mut balance = self.nodes[NodeId::FIRST].balance.lock(context);
            let shadow = Shadow::from_bits(shadow);
            let verdict = refault(&balance.age, shadow, kind, &sizes, may_swap);
            if verdict.activate {
                balance.age.advance(Pages(1));
            }
            verdict
        };
        let node = self.nodes.division.of(frame);
        if verdict.activate || verdict.restore {
            let listed = verdict.restore.then(|| self.nodes.listed(context, node));
            let mut balance = self.nodes[node].balance.lock(context);
            balance.activated[kind.index()] += u64::from(verdict.activate);
            if let Some(listed) = listed {
                balance.costs.note_refault(kind, Pages(1), listed);
            }
        }
        self.counters.add(refaults, 1);
        self.counters.add(activates, u64::from(verdict.activate));
        self.counters.add(restores, u64::from(verdict.restore));
        let mut set = Flags::NONE;
        if verdict.activate {
            set = set | Flags::ACTIVE;
        }
        if verdict.restore {
            set = set | Flags::WORKINGSET;
        }
        if set != Flags::NONE {
            self.pages.table.update(frame, set, Flags::NONE);
        }
    }

    /// Pages were activated: whatever was evicted is that much older.
    pub(crate) fn advance_age(&self, context: &impl Context, activated: Pages) {
        if !activated.is_zero() {
            let node = &self.nodes[NodeId::FIRST];
            node.balance.lock(context).age.advance(activated);
        }
    }

    /// A cycle of reclaim has ended: refaults from now on say that the active lists are to be aged.
    pub(crate) fn snapshot_refaults(&self, context: &impl Context) {
        for node in self.nodes.iter() {
            let mut balance = node.balance.lock(context);
            balance.activated_before = balance.activated;
        }
    }

    /// Whether pages evicted from this index leave shadows: as long as nodes are plenty, or made so by giving up
    /// this file's first ones.
    pub(crate) fn leaves_shadows(&self, index: &mut IndexWriter<'_>) -> bool {
        self.pages.pool.free() > self.pages.shadow_floor
            || index.remove_shadows(0, u32::MAX, SHADOWS_GIVEN_UP) > 0
    }

    /// Gives up the shadows of all files; whether index nodes came free.
    pub(crate) fn drop_shadows(&self, context: &impl Context) -> bool {
        let before = self.pages.pool.free();
        let files: Vec<_> = self
            .registry
            .files
            .lock(context)
            .iter()
            .flatten()
            .cloned()
            .collect();
        for mapping in files {
            // A few at a time, so that the index lock is short.
            loop {
                let mut token = mapping.token.lock(context);
                let mut index = mapping.index.writer(&self.pages.pool, &mut token);
                if index.remove_shadows(0, u32::MAX, SHADOWS_AT_ONCE) < SHADOWS_AT_ONCE {
                    break;
                }
            }
        }
        self.pages.pool.free() > before
    }
}
