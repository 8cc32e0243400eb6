//! Every end of a search gives every frame to somebody.

use env::Task;

use super::*;
use crate::Options;
use crate::cache::Cache;
use crate::testing::with_cache;

const FRAMES: u32 = 1024;
/// A block that stands in the first chunk, which has its memory.
const BLOCK: Range<u32> = 16..24;

/// The end of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Dropped,
    Captured,
    /// Of the whole chunk: its memory goes to the system.
    Released,
}

/// Takes a frame off its free list, as a task that has it for a page.
fn take(task: &Task<'_>, memory: &Memory, frame: u32) {
    let mut free = memory.lists.lock(task);
    assert!(
        free.lists.try_remove_range(FrameId(frame), 1),
        "frame {frame}"
    );
    memory.now_taken(memory.layout.of(FrameId(frame)), 1);
}

/// Searches a range of which `before` are in use, and `after` still are at its end.
fn search(task: &mut Task<'_>, cache: &Cache, frames: Range<u32>, case: (u32, u32, End)) {
    let (before, after, end) = case;
    let of = |mask: u32| BLOCK.filter(move |frame| mask & 1 << (frame - BLOCK.start) != 0);
    let memory = &cache.memory;
    let all = memory.free();
    of(before).for_each(|frame| take(task, memory, frame));
    let evacuation = memory.evacuate(task, frames.clone()).unwrap();
    assert_eq!(evacuation.missing(task), Some(before.count_ones()));
    let freed: Vec<FrameId> = of(before & !after).map(FrameId).collect();
    cache.put_unused(task, &freed);
    let is_whole = after == 0;
    match end {
        End::Dropped => drop(evacuation),
        End::Captured => {
            let got = evacuation.capture(task);
            assert_eq!(got, is_whole.then_some(frames), "{case:?}");
            let got: Vec<FrameId> = got.into_iter().flatten().map(FrameId).collect();
            cache.put_unused(task, &got);
        }
        End::Released => {
            let chunk = evacuation.release(task);
            assert_eq!(chunk.is_some(), is_whole, "{case:?}");
            chunk
                .into_iter()
                .for_each(|chunk| memory.give_to_system(chunk));
        }
    }
    let used: Vec<FrameId> = of(after).map(FrameId).collect();
    cache.put_unused(task, &used);
    assert_eq!(memory.free(), all, "{case:?}");
    assert_eq!(
        memory.lists.lock(task).offline.count(),
        0,
        "nothing is kept: {case:?}"
    );
}

#[test]
fn no_end_of_a_search_loses_a_frame() {
    with_cache(Options::new(FRAMES, 1), |task, cache| {
        // The first chunk gets its memory.
        let mut one = Vec::new();
        cache
            .try_alloc(
                task,
                crate::alloc::Wanted::new(1, policy::place::by_use::Purpose::Used),
                &mut one,
            )
            .unwrap();
        cache.put_unused(task, &one);
        for before in 0..1 << BLOCK.len() {
            for after in (0..=before).filter(|after| after & !before == 0) {
                for end in [End::Dropped, End::Captured] {
                    search(task, cache, BLOCK, (before, after, end));
                }
            }
        }
        for after in [1, 0b1010] {
            for end in [End::Dropped, End::Captured, End::Released] {
                search(task, cache, 0..cache.memory.chunk, (0b1011, after, end));
            }
        }
        for end in [End::Dropped, End::Captured, End::Released] {
            search(task, cache, 0..cache.memory.chunk, (0b1011, 0, end));
        }
    });
}
