//! Pages in generations (`linux-6.12-mglru`): what stays, what goes, and who waits for nothing.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use std::sync::Arc;

use env::{ObjectId, Task};
use mm::{Cache, File, Item};
use policy::dirty::DeviceIndex;
use policy::reclaim::Tunables;
use policy::units::{Bytes, PAGE_SIZE, Pages};

use crate::common::{data, uses, world};

const FRAMES: u32 = 1024;
const RATE: u64 = 1 << 30;

/// Over a file of `pages` pages, with a swap file of `slots` slots.
fn over<T: Send + 'static>(
    pages: u32,
    swap: u32,
    body: impl FnOnce(&mut Task<'_>, &Arc<Cache>, &Arc<File>) -> T + Send + 'static,
) -> T {
    let mut world = world(FRAMES, RATE);
    world.disk.keep(false);
    world.options.reclaim = Tunables::of(history::reclaim::LINUX_6_12_MGLRU, 250);
    world.run(u64::from(pages) * PAGE_SIZE, move |task, cache, file| {
        if swap > 0 {
            let slots = Pages(u64::from(swap));
            cache
                .add_swap(task, DeviceIndex(0), ObjectId(9), slots)
                .unwrap();
        }
        body(task, cache, file)
    })
}

#[test]
fn five_uses_protect_a_page_from_a_scan_and_fewer_do_not() {
    over(2 * FRAMES, 0, |task, _, file| {
        for (page, count) in [(0, 6), (1, 2)] {
            for _ in 0..count {
                uses(task, file, page);
            }
        }
        for page in 2..FRAMES * 3 / 2 {
            uses(task, file, page);
        }
        assert_eq!(
            [0, 1].map(|page| file.try_pin(page).is_some()),
            [true, false]
        );
    });
}

/// Pages that are read twice in a row come round when more than memory has been read.
#[test]
fn a_tier_that_comes_back_is_protected_from_a_scan() {
    const SET: u32 = FRAMES / 4 * 3;
    const ROUNDS: u32 = 20;
    over(FRAMES + ROUNDS * SET, 0, |task, cache, file| {
        let mut scan = FRAMES..;
        let mut hits = [0; 2];
        for round in 0..ROUNDS {
            for page in 0..SET {
                for _ in 0..2 {
                    hits[usize::from(round >= ROUNDS / 2)] += u32::from(uses(task, file, page));
                }
                uses(task, file, scan.next().unwrap());
            }
        }
        assert!(hits[1] > hits[0], "{hits:?}");
        let stats = cache.vmstat();
        assert!(stats.get(Item::WorkingsetActivateFile) > 0);
        assert!(stats.get(Item::WorkingsetRefaultFile) >= stats.get(Item::WorkingsetActivateFile));
    });
}

#[test]
fn anonymous_pages_that_are_used_stay_beside_others_that_go() {
    const HOT: u32 = FRAMES / 4;
    const COLD: u32 = 2 * FRAMES;
    over(1, 4 * FRAMES, |task, cache, _| {
        let [hot, cold] =
            [HOT, COLD].map(|pages| cache.spill(task, Pages(u64::from(pages))).unwrap());
        let mut major = [0; 2];
        for _ in 0..4 {
            for first in (0..COLD).step_by(16) {
                major[1] += cold.touch(task, first, 16).unwrap().major.0;
                major[0] += hot.touch(task, 0, HOT).unwrap().major.0;
            }
        }
        assert!(major[1] >= u64::from(COLD / 2), "{major:?}");
        assert!(major[0] * 10 < major[1], "{major:?}");
        let sizes = [Item::NrActiveAnon, Item::NrInactiveAnon].map(|item| cache.vmstat().get(item));
        assert!(sizes.iter().all(|pages| *pages > 0), "{sizes:?}");
    });
}

#[test]
fn dirty_pages_are_left_to_the_flusher_and_go_when_they_are_written() {
    let (seen, stats) = over(4 * FRAMES, 0, |task, cache, file| {
        let mut writer = cache.writer();
        for page in (0..4 * FRAMES).step_by(4) {
            let at = Bytes(u64::from(page) * PAGE_SIZE);
            file.write(task, &mut writer, at, &data(page, 2, 1))
                .unwrap();
            uses(task, file, page / 2);
        }
        cache.retire(task, writer);
        file.sync(task).unwrap();
        (cache.vmstat(), cache.stats())
    });
    assert!(stats.written >= Pages(u64::from(2 * FRAMES)), "{stats:?}");
    assert!(stats.reclaimed >= Pages(u64::from(FRAMES)), "{stats:?}");
    assert_eq!(seen.get(Item::NrVmscanWrite), 0);
}
