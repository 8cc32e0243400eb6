//! The rest of a panic, and work that there is no thread for.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use policy::place::by_use::Purpose;
use policy::place::machine::Machine;

use crate::alloc::Wanted;
use crate::lists::ZoneId;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::{Options, testing};

const FRAMES: u32 = 4096;

fn with_cache(body: impl FnOnce(&mut Task<'_>, &Arc<Cache>) + Send + 'static) {
    testing::with_cache(Options::new(FRAMES, 2), |task, cache| {
        cache.memory.populate_all(task).unwrap();
        body(task, cache);
    });
}

/// The lab panics at a chunk whose memory is gone already.
#[test]
fn a_chunk_arrives_though_who_gives_it_back_panics() {
    with_cache(|task, cache| {
        let memory = &cache.memory;
        cache.content().release(FrameId(0));
        let trimmed = catch_unwind(AssertUnwindSafe(|| cache.trim(task)));
        assert!(trimmed.is_err());
        cache.move_limit(task, 1024);
        cache.content().release(FrameId(1024));
        let give = || {
            while let Some(chunk) = memory.take_to_release(task) {
                cache.memory.give_to_system(chunk);
            }
        };
        let given = catch_unwind(AssertUnwindSafe(give));
        assert!(given.is_err());
        give();
        assert_eq!(memory.moving(), 0, "who allocates would wait for it");
        assert_eq!(cache.limit().over, Pages::ZERO);
        cache.move_limit(task, FRAMES);
        assert_eq!(memory.free(), FRAMES);
        cache.memory.populate_all(task).unwrap();
        assert_eq!(memory.free(), FRAMES);
    });
}

#[test]
fn a_limit_is_reached_though_the_task_for_the_last_one_panicked() {
    with_cache(|task, cache| {
        let weak = Arc::downgrade(cache);
        let mut taken = Vec::new();
        cache
            .try_alloc(task, Wanted::new(FRAMES, Purpose::Anon), &mut taken)
            .unwrap();
        *cache.memory.shrinking(task) = true;
        let cleared = catch_unwind(AssertUnwindSafe(|| {
            let _shrinking = Shrinking(&weak);
            cache.move_limit(task, 1024);
            panic!("expected by the test");
        }));
        assert!(cleared.is_err());
        assert!(!cache.limit().over.is_zero());
        cache.set_limit(task, Pages(1024)).unwrap();
        cache.memory.put(task, &taken);
        task.sleep(Cause::Idle, Nanos::secs(3));
        assert_eq!(cache.limit().over, Pages::ZERO);
        // The task gives the memory of chunks beyond the limit back.
        assert!(cache.memory.take_to_release(task).is_none());
        assert!(!*cache.memory.shrinking(task));
    });
}

#[test]
fn a_limit_that_finds_no_thread_changes_nothing() {
    testing::with_lab(Options::new(FRAMES, 2), |task, cache, lab| {
        cache.memory.populate_all(task).unwrap();
        lab.refuse_tasks(true);
        let refused = cache.set_limit(task, Pages(1024)).unwrap_err();
        assert!(
            matches!(refused, Error::NoThread { task: "limit", .. }),
            "{refused}"
        );
        assert_eq!(cache.limit().limit, Pages(u64::from(FRAMES)));
        // No thread is needed for more.
        cache.set_limit(task, Pages(u64::from(FRAMES))).unwrap();
        lab.refuse_tasks(false);
        cache.set_limit(task, Pages(1024)).unwrap();
        task.sleep(Cause::Idle, Nanos::secs(3));
        let reached = Limit {
            refused: Pages::ZERO,
            limit: Pages(1024),
            over: Pages::ZERO,
            used: Pages(1024) - cache.stats().free,
        };
        assert_eq!(cache.limit(), reached);
        assert!(cache.memory.take_to_release(task).is_none());
        assert!(!*cache.memory.shrinking(task));
    });
}

/// Where there are two nodes, each gives up its part, whether its frames are free or in use, and
/// gets it back.
#[test]
fn a_lowered_limit_takes_from_each_node_in_proportion() {
    let mut options = Options::new(FRAMES, 2);
    options.machine = Some(Machine::even(Pages(FRAMES.into()), 2, 2).unwrap());
    testing::with_cache(options, |task, cache| {
        cache.memory.populate_all(task).unwrap();
        let free = |cache: &Cache| [0, 1].map(|zone| cache.memory.free_of(ZoneId(zone)));
        assert_eq!(free(cache), [2048; 2]);
        for (limit, each) in [(2048, 1024), (3072, 1536), (1024, 512), (4096, 2048)] {
            cache.set_limit(task, Pages(limit)).unwrap();
            assert_eq!(free(cache), [each; 2], "{limit}");
            task.sleep(Cause::Idle, Nanos::secs(1));
            assert_eq!(cache.limit().over, Pages::ZERO);
        }
        // All in use: frames that come back beyond the limit are not free.
        let mut taken = Vec::new();
        cache
            .try_alloc(task, Wanted::new(FRAMES, Purpose::Anon), &mut taken)
            .unwrap();
        cache.set_limit(task, Pages(2048)).unwrap();
        cache.memory.put(task, &taken);
        assert_eq!(free(cache), [1024; 2]);
        task.sleep(Cause::Idle, Nanos::secs(3));
        assert_eq!(cache.limit().over, Pages::ZERO);
        cache.set_limit(task, Pages(FRAMES.into())).unwrap();
        cache.memory.populate_all(task).unwrap();
        assert_eq!(free(cache), [2048; 2]);
    });
}
