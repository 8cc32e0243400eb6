//! Frames of a machine of several zones: whose, decided step by step (`policy::place::search`).
//!
//! Source: mechanisms 1.5, 1.7; Linux 3.0 mm/page_alloc.c, get_page_from_freelist(),
//! wake_all_kswapd(), zone_statistics().

use env::Task;
use frames::FrameId;
use policy::place::ZoneId;
use policy::place::search::{Search, Step, Took};
use policy::place::share::Share;
use policy::place::trim::Outcome;
use policy::reclaim::scan::Kind;
use policy::units::Pages;

use super::Wanted;
use crate::Error;
use crate::cache::Cache;
use crate::lists::NodeId;
use crate::reclaim::trim::trim;
use crate::vmstat::Item;

/// Takes up to as many frames as are wanted without waiting for them; answers how many. A law that
/// trims zones reclaims there.
///
/// # Errors
/// `NoMemory`, if nothing was taken.
pub(super) fn take(
    task: &mut Task<'_>,
    cache: &Cache,
    wanted: Wanted,
    out: &mut Vec<FrameId>,
) -> Result<u32, Error> {
    let layout = cache.zones.layout();
    let home = cache.home_node(task);
    let list = layout.list(home);
    let node = cache.zones.node(home);
    let mut search = Search::begin(
        cache.options.place,
        list.len(),
        wanted.blocks,
        wanted.is_retry,
    );
    if wanted.for_dirty && !wanted.is_retry {
        search = search.for_dirty();
    }
    let mut taken = 0;
    loop {
        let step = search.step(&node.zonelist_cache(task));
        match step {
            Step::Take {
                place,
                floor,
                most,
                in_share,
            } => {
                let most = if in_share {
                    most.min(dirty_room(task, cache, list[place]))
                } else {
                    most
                };
                let pick = wanted.pick(list[place], most << wanted.order);
                let got = (most > 0).then(|| cache.take_above(task, pick, floor, out));
                let took = match got {
                    None => Took::OverShare,
                    Some(Ok(0)) => Took::BelowMark,
                    Some(Ok(frames)) => Took::Frames(frames >> wanted.order),
                    // Frames that another zone gave are the caller's.
                    Some(Err(_)) if taken > 0 => break,
                    Some(Err(error)) => return Err(error),
                };
                if let Took::Frames(blocks) = took {
                    let frames = blocks << wanted.order;
                    taken += frames;
                    count(cache, home, list, place, frames);
                }
                search.took(task.now(), &mut node.zonelist_cache(task), took);
            }
            Step::Trim { place } => {
                let outcome = if wanted.quiet {
                    Outcome::NoScan
                } else {
                    trim(task, cache, home, list[place])
                };
                search.trimmed(task.now(), &mut node.zonelist_cache(task), outcome);
            }
            Step::WakeReclaimers if wanted.quiet => {}
            Step::WakeReclaimers => {
                for zone in list {
                    cache.ask_reclaim(task, *zone);
                }
            }
            Step::Done | Step::Exhausted => break,
        }
    }
    let (passed_over, stale) = search.passed_over();
    cache.counters.add(Item::ZlcSkipped, u64::from(passed_over));
    cache.counters.add(Item::ZlcHidden, u64::from(stale));
    Ok(taken)
}

/// Pages that may be dirtied in a zone before its node has its share of the dirty limit.
fn dirty_room(task: &Task<'_>, cache: &Cache, zone: ZoneId) -> u32 {
    let free = Pages(u64::from(cache.memory.free_of(zone)));
    let kept = cache.memory.zone_marks(zone).watermarks.high;
    let files = cache.zones.sizes(task, zone).kind(Kind::File);
    let share = Share {
        limit: cache.options.dirty.dirty,
        dirtyable: free.saturating_sub(kept) + files,
        dirtyable_of_all: cache.dirtyable().now,
        level: cache.zones[zone].dirty() + cache.zones[zone].writeback(),
    };
    u32::try_from(share.room().0).unwrap_or(u32::MAX)
}

/// The task has reclaimed pages for itself: what its node remembers of zones may be forgotten.
pub(super) fn reclaimed(task: &Task<'_>, cache: &Cache) {
    if let Some(rule) = cache.options.place.cache {
        let node = cache.zones.node(cache.home_node(task));
        node.zonelist_cache(task).reclaimed(rule, task.now());
    }
}

/// Counts where frames came from: the zone that was tried first is the zone that was wanted.
pub(super) fn count(cache: &Cache, home: NodeId, list: &[ZoneId], place: usize, frames: u32) {
    let layout = cache.zones.layout();
    let (wanted, got) = (layout.node_of(list[0]), layout.node_of(list[place]));
    let add = |item| cache.counters.add(item, u64::from(frames));
    if got == wanted {
        add(Item::NumaHit);
    } else {
        add(Item::NumaMiss);
        add(Item::NumaForeign);
    }
    let is_here = got == home;
    cache.zones.node(home).note_taken(is_here, frames);
    add(if is_here {
        Item::NumaLocal
    } else {
        Item::NumaOther
    });
}

#[cfg(test)]
mod tests;
