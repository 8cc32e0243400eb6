//! Frames of a machine of several nodes, by what they are wanted for (`policy::place::by_use`).

use env::{Env, Task};
use frames::FrameId;
use policy::place::by_use::{Plan, Step, View};
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
pub(super) fn take<E: Env>(
    task: &mut Task<'_, E>,
    cache: &Cache<E>,
    wanted: Wanted,
    out: &mut Vec<FrameId>,
) -> Result<u32, Error> {
    let home = cache.home_node(task);
    let list = cache.zones.layout().list(home);
    let local = list[0];
    let views: Vec<View> = list.iter().map(|zone| view(cache, home, *zone)).collect();
    if !wanted.quiet && views[0].asks_early(wanted.purpose) {
        cache.ask_reclaim(task, local);
    }
    let plan = Plan::new(wanted.purpose, &views, &cache.zones[local].worth(task));
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
                    // What another zone gave is the caller's.
                    Err(_) if taken > 0 => break,
                    Err(error) => return Err(error),
                }
            }
            Step::Trim => {
                let is_poor = {
                    let worth = cache.zones[local].worth(task);
                    worth.is_poor(cache.changed(local))
                };
                // Whoever waits for memory comes first: this is about where, not who.
                if !wanted.quiet && task.may_block() && !is_poor && !cache.memory.is_short() {
                    trim_cluster(task, cache, local);
                }
            }
            Step::WakeReclaimers if wanted.quiet => {}
            Step::WakeReclaimers => {
                for zone in list {
                    cache.ask_reclaim(task, *zone);
                }
            }
        }
        if taken == wanted.frames() {
            break;
        }
    }
    Ok(taken)
}

impl<E: Env> Cache<E> {
    /// Takes what is asked for, as far down as this task may take it and `keeps` of the zone's stay free.
    fn take_keeping(
        &self,
        task: &mut Task<'_, E>,
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
                let above = Pages(u64::from(memory.free_of(asked.zone))).saturating_sub(keeps);
                let above = u32::try_from(above.0).expect("no more than are free");
                memory.room(task, &asked.after(taken)).min(above)
            },
        )
    }
}

fn view<E: Env>(cache: &Cache<E>, home: NodeId, zone: ZoneId) -> View {
    let layout = cache.zones.layout();
    let marks = cache.memory.marks_of(zone);
    let size = layout.zone(zone).pages;
    let limit = cache
        .options
        .dirty
        .dirty
        .pages_of(cache.options.dirty.memory);
    let all = u64::from(cache.options.frames);
    let node = layout.node_of(zone);
    View {
        free: Pages(u64::from(cache.memory.free_of(zone))),
        min: marks.min,
        high: marks.high,
        size,
        dirty: cache.zones[zone].dirty(),
        dirty_share: Pages(limit.0 * size.0 / all),
        distance: layout
            .machine()
            .distances()
            .between(home.index(), node.index()),
    }
}
