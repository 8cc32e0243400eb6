//! Memory that was in use before a run begins: its free blocks are in no order.
//!
//! A machine that has just been started hands out its memory by address. On one that has run for a
//! while, what was given back last goes first, wherever it lies. The order is drawn from the
//! run's seed, so that repetitions begin in as many states.
//!
//! Source: ours. Papers that repeat a test between other tests do not publish that state.

use env::Task;
use frames::FrameId;
use mm::inside::ZoneId;
use mm::{Cache, Error};

/// Puts the free blocks of each zone in an order that is drawn, before anything is cached.
///
/// # Errors
/// `NoMemory`.
pub fn use_before(task: &mut Task<'_>, cache: &Cache) -> Result<(), Error> {
    let inside = cache.inside();
    let zones = inside.zones_for(task).to_vec();
    for zone in zones {
        shuffle(task, cache, zone)?;
    }
    Ok(())
}

fn shuffle(task: &mut Task<'_>, cache: &Cache, zone: ZoneId) -> Result<(), Error> {
    let memory = cache.inside().memory;
    let mut blocks: Vec<Vec<FrameId>> = Vec::new();
    for order in (0..=memory.pageblock_order() + 1).rev() {
        loop {
            let mut block = Vec::new();
            let taken = memory.take_run(task, zone, order, &mut block, |_| true, |_| false)?;
            if taken.frames == 0 {
                break;
            }
            blocks.push(block);
        }
    }
    for left in (1..blocks.len()).rev() {
        let other = task.random() % (left as u64 + 1);
        blocks.swap(left, usize::try_from(other).unwrap_or(left));
    }
    for block in &blocks {
        memory.put(task, block);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use mm::{Apart, Options};

    use super::*;
    use crate::testing::with_cache;

    #[test]
    fn free_blocks_are_in_an_order_that_is_drawn_and_none_is_lost() {
        let mut options = Options::new(2_048, 1);
        options.populate = mm::Populate::AtStart;
        options.apart = Some(Apart {
            rule: history::fallback::LINUX_3_2,
            pageblock_order: 4,
        });
        with_cache(options, |task, cache| {
            let before = cache.stats().free;
            use_before(task, cache).unwrap();
            assert_eq!(cache.stats().free, before);
            let mut frames = Vec::new();
            let zone = cache.inside().zones_for(task)[0];
            for _ in 0..8 {
                let memory = cache.inside().memory;
                memory
                    .take_run(task, zone, 5, &mut frames, |_| true, |_| false)
                    .unwrap();
            }
            let firsts: Vec<u32> = frames.iter().step_by(32).map(|frame| frame.0).collect();
            assert!(firsts.len() == 8 && !firsts.is_sorted(), "{firsts:?}");
            cache.inside().memory.put(task, &frames);
        });
    }
}
