//! Frames of a machine of several nodes, by what they are wanted for (`policy::place::by_use`).

use env::Task;
use frames::FrameId;
use policy::place::by_use::{Plan, Prospect, Purpose, Step, View, asked_in_order};
use policy::place::search::Floor;
use policy::units::Pages;

use super::{Wanted, search};
use crate::Error;
use crate::cache::Cache;
use crate::lists::{NodeId, ZoneId};
use crate::memory::room::Asked;
use crate::reclaim::trim::trim_cluster;

/// Takes up to as many frames as are wanted without waiting for them; answers how many.
///
/// # Errors
/// `NoMemory`, if nothing was taken.
pub(super) fn take(
    task: &mut Task<'_>,
    cache: &Cache,
    wanted: Wanted,
    out: &mut Vec<FrameId>,
) -> Result<u32, Error> {
    let home = cache.home_node(task);
    let list = cache.zones.layout().list(home);
    let local = list[0];
    let views = views(cache, home);
    if !wanted.quiet && views[0].asks_early(wanted.purpose) {
        cache.ask_reclaim(task, local);
    }
    let worth = *cache.zones[local].worth(task);
    let plan = Plan::new(wanted.purpose, &views, &worth);
    let mut taken = 0;
    for step in plan.steps() {
        match step {
            Step::Take { place, keeps } => {
                let asked = Asked {
                    zone: list[place],
                    floor: Floor::Min,
                    want: wanted.frames() - taken,
                    first: true,
                    exempt: cache.memory.is_exempt(task),
                };
                match cache.take_keeping(task, wanted, asked, keeps, out) {
                    Ok(0) => {}
                    Ok(frames) => {
                        taken += frames;
                        search::count(cache, home, list, place, frames);
                    }
                    // Frames that another zone gave are the caller's.
                    Err(_) if taken > 0 => break,
                    Err(error) => return Err(error),
                }
            }
            Step::Trim => {
                let cluster = cache.options.reclaim.cluster().0;
                let clusters = u64::from(wanted.frames() - taken).div_ceil(cluster);
                for _ in 0..clusters {
                    let may = !wanted.quiet && task.may_block();
                    let is_poor = cache.is_poor(task, local);
                    // A task that waits for memory comes first: this is about where, not which
                    // task.
                    let trims = may && !is_poor && !cache.memory.is_short();
                    if !trims || !trim_cluster(task, cache, local) {
                        break;
                    }
                }
            }
            Step::WakeReclaimers if wanted.quiet => {}
            Step::WakeReclaimers => ask_reclaimers(task, cache, wanted.purpose),
        }
        if taken == wanted.frames() {
            break;
        }
    }
    Ok(taken)
}

/// Takes up to as many frames as were granted, of whichever zone has them; answers how many.
///
/// # Errors
/// `NoMemory`, if nothing was taken.
pub(super) fn take_granted(
    task: &mut Task<'_>,
    cache: &Cache,
    wanted: Wanted,
    out: &mut Vec<FrameId>,
) -> Result<u32, Error> {
    let home = cache.home_node(task);
    let list = cache.zones.layout().list(home);
    let worth = *cache.zones[list[0]].worth(task);
    let plan = Plan::new(wanted.purpose, &views(cache, home), &worth);
    let mut taken = 0;
    for (place, keeps) in plan.takes() {
        let want = wanted.frames() - taken;
        let room = |_: &Task<'_>, more| cache.above(list[place], keeps).min(want - more);
        match cache.take(task, wanted.pick(list[place], want), out, room) {
            Ok(frames) => {
                taken += frames;
                search::count(cache, home, list, place, frames);
            }
            // Frames that another zone gave are the caller's.
            Err(_) if taken > 0 => break,
            Err(error) => return Err(error),
        }
        if taken == wanted.frames() {
            break;
        }
    }
    Ok(taken)
}

/// Nobody waits yet: the reclaimers that are to work.
fn ask_reclaimers(task: &Task<'_>, cache: &Cache, purpose: Purpose) {
    let home = cache.home_node(task);
    let list = cache.zones.layout().list(home);
    let prospect = |zone: &ZoneId| {
        let worth = *cache.zones[*zone].worth(task);
        Prospect {
            worth,
            is_poor: worth.is_poor(cache.changed(*zone)),
            distance: cache.distance(home, *zone),
        }
    };
    let prospects: Vec<Prospect> = list.iter().map(prospect).collect();
    for place in asked_in_order(purpose, &prospects) {
        if cache.ask_reclaim(task, list[place]) && !purpose.asks_all() {
            return;
        }
    }
}

impl Cache {
    /// The distance of a zone's node from another.
    fn distance(&self, home: NodeId, zone: ZoneId) -> u8 {
        let layout = self.zones.layout();
        let distances = layout.machine().distances();
        distances.between(home.index(), layout.node_of(zone).index())
    }

    /// Free frames of a zone but for `keeps`.
    fn above(&self, zone: ZoneId, keeps: Pages) -> u32 {
        let free = Pages(u64::from(self.memory.free_of(zone)));
        u32::try_from(free.saturating_sub(keeps).0).expect("no more than are free")
    }

    /// Takes what is asked for, as far down as this task may take it and `keeps` of the zone's stay
    /// free.
    fn take_keeping(
        &self,
        task: &mut Task<'_>,
        wanted: Wanted,
        asked: Asked,
        keeps: Pages,
        out: &mut Vec<FrameId>,
    ) -> Result<u32, Error> {
        let memory = &self.memory;
        self.take(
            task,
            wanted.pick(asked.zone, asked.want),
            out,
            |task, taken| {
                let above = self.above(asked.zone, keeps);
                memory.room(task, &asked.after(taken)).min(above)
            },
        )
    }
}

/// The zones that tasks of a node try.
fn views(cache: &Cache, home: NodeId) -> Vec<View> {
    let list = cache.zones.layout().list(home);
    list.iter().map(|zone| view(cache, home, *zone)).collect()
}

fn view(cache: &Cache, home: NodeId, zone: ZoneId) -> View {
    let layout = cache.zones.layout();
    let marks = cache.memory.marks_of(zone);
    let size = layout.zone(zone).pages;
    let limit = cache
        .options
        .dirty
        .dirty
        .pages_of(cache.options.dirty.memory);
    let all = u64::from(cache.options.frames);
    View {
        free: Pages(u64::from(cache.memory.free_of(zone))),
        min: marks.min,
        high: marks.high,
        size,
        dirty: cache.zones[zone].dirty(),
        dirty_share: Pages(limit.0 * size.0 / all),
        distance: cache.distance(home, zone),
    }
}
