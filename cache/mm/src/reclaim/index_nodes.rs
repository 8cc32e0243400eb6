//! Nodes of the indexes of files: where none is free, shadows are given up, and then pages.

use env::{Cause, Context, Task};
use policy::reclaim::scan::CLUSTER;
use policy::reclaim::throttle::Who;
use policy::units::Nanos;

use super::direct::direct;
use crate::Error;
use crate::cache::Cache;

/// A task that needs index nodes and can free none rests this long.
const REST: Nanos = Nanos::millis(10);
/// Rounds of reclaim for index nodes before a caller is refused.
const ROUNDS: u32 = 64;

/// Shadows given up in one hold of an index lock.
const SHADOWS_AT_ONCE: u32 = 1024;

/// Frees index nodes by freeing shadows and the pages that they hold.
pub(crate) fn free_index_nodes(task: &mut Task<'_>, cache: &Cache) -> Result<(), Error> {
    let before = cache.pages.pool.free();
    if cache.drop_shadows(task) {
        return Ok(());
    }
    if !task.may_block() {
        return Err(Error::WouldWait);
    }
    for _ in 0..ROUNDS {
        let freed = direct(task, cache, CLUSTER, Who::DIRECT);
        // Pages that were freed may have left shadows in the nodes.
        if cache.drop_shadows(task) || cache.pages.pool.free() > before {
            return Ok(());
        }
        if freed.is_zero() {
            cache.want_of_each(task, CLUSTER);
            Error::after(task.sleep(Cause::Memory, REST))?;
        }
    }
    Err(cache.no_memory())
}

impl Cache {
    /// Gives up the shadows of all files; whether index nodes came free.
    pub(crate) fn drop_shadows(&self, context: &impl Context) -> bool {
        let before = self.pages.pool.free();
        let files: Vec<_> = self.registry.files.lock(context).iter().cloned().collect();
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
