//! Reclaim for a run, as the law of a kernel has it (`history::compact::reclaim`): by zones up to
//! Linux 3.3, over nodes since then.

use env::Task;
use history::compact::Scans;
use history::compact::reclaim::{
    Account, RunZone, could_begin, goes_on, is_ready_since, over_nodes_goes_on,
};
use mm::inside::ZoneId;
use mm::{Cache, Done, ForRun, Runs};
use policy::reclaim::Loops;
use policy::reclaim::scan::Lru;
use policy::units::Pages;

use super::{At, Compactor};

/// By zones.
pub(super) struct ByZones<'a> {
    pub(super) runs: Runs,
    pub(super) scans: &'a Scans,
    pub(super) compactor: &'a Compactor,
}

impl ByZones<'_> {
    fn with_zone<T>(
        &self,
        task: &Task<'_>,
        cache: At<'_>,
        zone: ZoneId,
        ask: impl FnOnce(&RunZone<'_>) -> T,
    ) -> T {
        let standing = cache.standing(task, zone);
        let marks = cache.memory.marks_of(zone);
        let sizes = cache.zones.sizes(task, zone);
        ask(&RunZone {
            standing: &standing,
            marks: &marks,
            size: cache.zones.layout().zone(zone).pages,
            inactive: sizes.of(Lru::InactiveAnon) + sizes.of(Lru::InactiveFile),
        })
    }
}

impl ForRun for ByZones<'_> {
    fn loops(&self) -> Loops {
        Loops::Zones
    }

    fn is_ready(&self, task: &Task<'_>, cache: &Cache, zone: ZoneId) -> bool {
        let cache = self.compactor.at(cache);
        self.with_zone(task, cache, zone, |seen| {
            let mut deferral = cache.of(zone).deferral(task);
            self.scans.is_ready(self.runs.order, seen, &mut deferral)
        })
    }

    fn ends_when_ready(&self) -> bool {
        !self.scans.skips_ready
    }

    fn goes_on(&self, task: &Task<'_>, cache: &Cache, zone: ZoneId, done: &Done) -> bool {
        let cache = self.compactor.at(cache);
        let account = Account {
            last: done.last,
            here: done.here,
            all: done.all,
            plainly: done.plainly,
            cluster: cache.options.reclaim.cluster(),
            memory: cache.at_full_size(Pages(u64::from(cache.options.frames))),
        };
        let order = self.runs.order;
        self.with_zone(task, cache, zone, |seen| goes_on(order, seen, &account))
    }
}

/// Over nodes.
pub(super) struct OverNodes<'a> {
    pub(super) runs: Runs,
    pub(super) compactor: &'a Compactor,
}

impl ForRun for OverNodes<'_> {
    fn loops(&self) -> Loops {
        Loops::Nodes
    }

    fn is_ready(&self, task: &Task<'_>, cache: &Cache, zone: ZoneId) -> bool {
        let cache = self.compactor.at(cache);
        let marks = cache.memory.marks_of(zone);
        is_ready_since(self.runs.order, &cache.standing(task, zone), &marks)
    }

    fn ends_when_ready(&self) -> bool {
        true
    }

    fn goes_on(&self, task: &Task<'_>, cache: &Cache, zone: ZoneId, done: &Done) -> bool {
        let (order, cache) = (self.runs.order, self.compactor.at(cache));
        let marks = cache.memory.marks_of(zone);
        let could_begin = could_begin(order, &cache.standing(task, zone), &marks);
        let sizes = cache.zones.sizes(task, zone);
        let mut inactive = sizes.of(Lru::InactiveFile);
        if cache.can_swap() {
            inactive += sizes.of(Lru::InactiveAnon);
        }
        over_nodes_goes_on(order, done.last, could_begin, inactive)
    }
}
