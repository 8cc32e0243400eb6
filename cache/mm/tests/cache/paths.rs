//! The data path in the lab: what is written is read, limits hold, writers are paced.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use crate::common::{Disk, World, data, world};
use env::{Cause, ObjectId, Task, Work};
use mm::{Error, Reader};
use policy::reclaim::Tunables;
use policy::units::{Bytes, Nanos, Pages};
use policy::watermark::Watermarks;
use world::content::of_pin;
use world::{CostTable, Lab, Options as LabOptions, Sector};

const MIB: u64 = 1 << 20;

#[test]
fn what_is_written_is_read_back_through_a_small_cache() {
    let mut world = world(4096, 64 * MIB);
    world.run(0, |task, cache, file| {
        let mut writer = cache.writer();
        for mib in 0..64u32 {
            let chunk = data(mib * 256, 256, 1);
            let offset = Bytes(u64::from(mib) * MIB);
            assert_eq!(
                file.write(task, &mut writer, offset, &chunk),
                Ok(Bytes(MIB))
            );
        }
        file.sync(task).unwrap();
        let mut reader = Reader::default();
        for mib in 0..64u32 {
            let mut chunk = vec![Sector(0); 2048];
            let offset = Bytes(u64::from(mib) * MIB);
            let got = file.read(task, &mut reader, offset, &mut chunk).unwrap();
            assert_eq!(got.bytes, Bytes(MIB));
            assert_eq!(chunk, data(mib * 256, 256, 1), "MiB {mib}");
        }
        let stats = cache.stats();
        assert!(stats.cached <= Pages(4096));
        assert!(
            stats.read_in > Pages(8192),
            "most of it was evicted and read again"
        );
    });
    let disk = world.disk.state();
    assert_eq!(disk.pages.len(), 64 * 256);
    assert!(disk.flushes >= 1);
}

#[test]
fn dropping_the_caches_leaves_what_is_dirty_pinned_or_anonymous() {
    let mut world = world(4096, 64 * MIB);
    world.run(0, |task, cache, file| {
        let mut writer = cache.writer();
        let written = data(0, 512, 1);
        file.write(task, &mut writer, Bytes::ZERO, &written)
            .unwrap();
        file.sync(task).unwrap();
        file.write(task, &mut writer, Bytes::ZERO, &data(0, 16, 2))
            .unwrap();
        let region = cache.spill(task, Pages(64)).unwrap();
        region.touch(task, 0, 64).unwrap();
        let pinned = file.pin(task, &mut Reader::default(), 100).unwrap();
        let (cached, free) = (cache.stats().cached, cache.stats().free);
        assert_eq!(cached, Pages(512));
        assert_eq!(cache.drop_caches(task), Pages(512 - 16 - 1));
        assert_eq!(cache.stats().cached, Pages(17));
        assert_eq!(cache.stats().free, free + Pages(512 - 17));
        assert_eq!(cache.stats().anon, Pages(64));
        assert_eq!(cache.drop_caches(task), Pages::ZERO);
        drop(pinned);
        file.sync(task).unwrap();
        assert_eq!(cache.drop_caches(task), Pages(17));
        let mut reader = Reader::default();
        let mut back = vec![Sector(0); 16 * 8];
        file.read(task, &mut reader, Bytes::ZERO, &mut back)
            .unwrap();
        assert_eq!(back, data(0, 16, 2));
    });
}

#[test]
fn a_writer_is_paced_to_the_device_and_no_pause_is_long() {
    for law in [
        history::dirty::RATE_BASED,
        history::dirty::SOFT_REGION_MEASURED,
    ] {
        let mut world = world(65536, 16 * MIB).law(law).limits(16384, 8192);
        let longest = world.run(0, |task, cache, file| {
            let mut writer = cache.writer();
            let mut longest = Nanos::ZERO;
            for mib in 0..512u32 {
                let began = task.now();
                let offset = Bytes(u64::from(mib) * MIB);
                file.write(task, &mut writer, offset, &data(mib * 256, 256, 1))
                    .unwrap();
                longest = longest.max(task.now().since(began));
                assert!(cache.stats().dirty + cache.stats().writeback <= Pages(16384 + 256));
            }
            longest
        });
        assert!(longest <= Nanos::millis(1000), "{law:?}: {longest:?}");
        let elapsed = world.lab.now();
        assert!(
            elapsed.0 > 30_000_000_000,
            "{law:?}: the device needs 32 s, not {elapsed:?}"
        );
        assert!(
            elapsed.0 < 36_000_000_000,
            "{law:?}: the device was idle: {elapsed:?}"
        );
    }
}

#[test]
fn a_throttled_writer_of_2_6_36_writes_itself() {
    let mut world = world(65536, 16 * MIB)
        .law(history::dirty::FOREGROUND)
        .limits(16384, 8192);
    world.run(0, |task, cache, file| {
        let mut writer = cache.writer();
        for mib in 0..256u32 {
            let offset = Bytes(u64::from(mib) * MIB);
            file.write(task, &mut writer, offset, &data(mib * 256, 256, 1))
                .unwrap();
        }
    });
    let elapsed = world.lab.now();
    assert!(elapsed.0 < 19_000_000_000, "{elapsed:?}");
}

#[test]
fn partial_writes_keep_the_rest_of_the_page() {
    let mut world = world(1024, 64 * MIB);
    world.run(0, |task, cache, file| {
        let mut writer = cache.writer();
        file.write(task, &mut writer, Bytes(0), &data(0, 64, 1))
            .unwrap();
        file.sync(task).unwrap();
        // Push it out, then write half a sector run into a page that has to be read first.
        file.write(task, &mut writer, Bytes(MIB), &data(256, 4096, 2))
            .unwrap();
        let part = [Sector(77), Sector(78)];
        file.write(task, &mut writer, Bytes(5 * 4096 + 1024), &part)
            .unwrap();
        let mut page = vec![Sector(0); 8];
        let mut reader = Reader::default();
        file.read(task, &mut reader, Bytes(5 * 4096), &mut page)
            .unwrap();
        let mut expected = data(5, 1, 1);
        expected[2] = Sector(77);
        expected[3] = Sector(78);
        assert_eq!(page, expected);
    });
}

#[test]
fn a_pin_is_a_snapshot() {
    let mut world = world(1024, 64 * MIB);
    world.run(0, |task, cache, file| {
        let mut writer = cache.writer();
        file.write(task, &mut writer, Bytes(0), &data(0, 4, 1))
            .unwrap();
        let pinned = file.pin(task, &mut Reader::default(), 2).unwrap();
        file.write(task, &mut writer, Bytes(0), &data(0, 4, 2))
            .unwrap();
        let seen = of_pin(pinned.content(), pinned.pin());
        assert_eq!(seen.to_vec(), data(2, 1, 1), "the pin still sees version 1");
        drop(pinned);
        let mut page = vec![Sector(0); 8];
        file.read(task, &mut Reader::default(), Bytes(2 * 4096), &mut page)
            .unwrap();
        assert_eq!(page, data(2, 1, 2));
        file.sync(task).unwrap();
        let stats = cache.stats();
        assert_eq!(
            stats.free + stats.cached,
            stats.frames,
            "the old frame was freed: {stats:?}"
        );
    });
}

#[test]
fn truncation_drops_what_lies_beyond_and_zeroes_the_tail() {
    let mut world = world(1024, 64 * MIB);
    world.run(0, |task, cache, file| {
        let mut writer = cache.writer();
        file.write(task, &mut writer, Bytes(0), &data(0, 64, 1))
            .unwrap();
        file.truncate(task, Bytes(10 * 4096 + 512)).unwrap();
        assert_eq!(file.len(), Bytes(10 * 4096 + 512));
        file.truncate(task, Bytes(64 * 4096)).unwrap();
        let mut page = vec![Sector(9); 16];
        file.read(task, &mut Reader::default(), Bytes(10 * 4096), &mut page)
            .unwrap();
        let mut expected = vec![Sector(0); 16];
        expected[0] = data(10, 1, 1)[0];
        assert_eq!(page, expected);
        file.sync(task).unwrap();
    });
    assert_eq!(world.disk.state().len[&1], 64 * 4096);
}

#[test]
fn a_failed_write_keeps_the_page_dirty_and_sync_fails_until_it_is_written() {
    let mut world = world(1024, 64 * MIB);
    world.disk.state().fail_writes = 0..2;
    world.run(0, |task, cache, file| {
        let mut writer = cache.writer();
        file.write(task, &mut writer, Bytes(0), &data(0, 4, 1))
            .unwrap();
        assert!(matches!(file.sync(task), Err(Error::WriteFailed { .. })));
        assert_eq!(cache.stats().dirty, Pages(4), "nothing dirty was dropped");
        assert!(matches!(file.sync(task), Err(Error::WriteFailed { .. })));
        // The third try goes through. The error was told to this holder already.
        while file.sync(task).is_err() {}
        assert_eq!(cache.stats().dirty, Pages(0));
        file.sync(task).unwrap();
    });
    assert_eq!(world.disk.state().pages.len(), 4);
}

#[test]
fn a_failed_flush_fails_the_device_until_it_is_reopened() {
    let mut world = world(1024, 64 * MIB);
    world.disk.state().fail_flushes = true;
    let disk = Arc::clone(&world.disk);
    world.run(0, move |task, cache, file| {
        let mut writer = cache.writer();
        file.write(task, &mut writer, Bytes(0), &data(0, 4, 1))
            .unwrap();
        assert!(matches!(file.sync(task), Err(Error::FlushFailed { .. })));
        disk.state().fail_flushes = false;
        assert!(matches!(file.sync(task), Err(Error::FlushFailed { .. })));
        let again = file.write(task, &mut writer, Bytes(0), &data(0, 4, 1));
        assert!(matches!(again, Err(Error::FlushFailed { .. })));
        cache.reopen_device(task, policy::dirty::DeviceIndex(0));
        file.write(task, &mut writer, Bytes(0), &data(0, 4, 2))
            .unwrap();
        file.sync(task).unwrap();
    });
}

#[test]
fn the_first_sync_after_an_open_flushes_the_device_whatever_was_written_here() {
    let mut world = world(1024, 64 * MIB);
    let disk = Arc::clone(&world.disk);
    world.run(MIB, move |task, cache, file| {
        let flushes = || disk.state().flushes;
        let open = |task: &mut Task<'_>, object| {
            let device = policy::dirty::DeviceIndex(0);
            cache.open(task, device, ObjectId(object), Bytes(MIB))
        };
        // The content may be of a process that was killed before it could flush.
        for _ in 0..2 {
            file.sync(task).unwrap();
            assert_eq!(flushes(), 1, "once is enough");
        }
        let part = open(task, 2).unwrap();
        part.sync_range(task, Bytes(0), Bytes(4096)).unwrap();
        assert_eq!(flushes(), 2);
        part.close(task).unwrap();
        let again = open(task, 2).unwrap();
        again.sync(task).unwrap();
        assert_eq!(flushes(), 3, "another may have had it meanwhile");
        let known = open(task, 4).unwrap();
        known.assume_durable();
        known.sync(task).unwrap();
        assert_eq!(flushes(), 3);
    });
}

#[test]
fn free_chunks_go_back_to_the_system_and_come_again() {
    let mut world = world(8192, 64 * MIB);
    let stamps = world.lab.stamps();
    world.run(0, move |task, cache, file| {
        let mut writer = cache.writer();
        for round in 1..4u32 {
            for mib in 0..16u32 {
                let offset = Bytes(u64::from(mib) * MIB);
                file.write(task, &mut writer, offset, &data(mib * 256, 256, round))
                    .unwrap();
            }
            let used = stamps.populated();
            assert!(used >= 4096, "16 MiB need 4096 frames, not {used}");
            file.truncate(task, Bytes(MIB)).unwrap();
            assert!(cache.trim(task) >= Pages(2048));
            assert!(stamps.populated() < used);
            let mut chunk = vec![Sector(0); 2048];
            file.read(task, &mut Reader::default(), Bytes(0), &mut chunk)
                .unwrap();
            assert_eq!(chunk, data(0, 256, round));
        }
        let stats = cache.stats();
        assert_eq!(stats.free + stats.cached, stats.frames, "{stats:?}");
    });
}

/// Nearly all memory is pinned: what was just read is all that the background reclaimer finds, and
/// it has the one CPU when the reader's page comes. The reader must get on all the same.
#[test]
fn what_was_just_read_is_not_taken_from_its_reader_for_ever() {
    const FRAMES: u32 = 256;
    /// Pages that are neither pinned nor of the reserve.
    const FREE: u32 = 3;
    /// Bytes a second: a page is there before its reader has the CPU again.
    const RATE: u64 = 4096 * MIB;
    let mut world = World {
        lab: Lab::new(LabOptions {
            cpus: 1,
            hz: 0,
            frames: FRAMES,
            costs: CostTable::zero()
                .with(Work::Scan, Nanos(1_000))
                .with(Work::Free, Nanos(17_000))
                .with(Work::Submit, Nanos(10_000))
                .with(Work::Switch, Nanos(6_000)),
            ..LabOptions::default()
        }),
        ..world(FRAMES, RATE)
    };
    world.disk = Disk::new(&world.lab, RATE);
    world.options.reclaim = Tunables::of(history::reclaim::LINUX_5_16, 250);
    world.options.pins_max = FRAMES;
    world.run(u64::from(FRAMES) * 4096, |task, _, file| {
        let min = Watermarks::of_zone(Pages(u64::from(FRAMES))).min.0;
        let most = FRAMES - u32::try_from(min).unwrap() - FREE;
        let pinned = Arc::new(AtomicU32::new(0));
        let (of_file, count) = (Arc::clone(file), Arc::clone(&pinned));
        let reader = env::spawn(task.env(), "reader", move |task| {
            let mut pins = Vec::new();
            for page in 0..most {
                pins.push(of_file.pin(task, &mut Reader::default(), page).unwrap());
                count.store(page + 1, Ordering::Relaxed);
            }
        });
        let _ = task.sleep(Cause::Idle, Nanos::millis(500));
        // Here: a task that never gets its page never ends either.
        let pinned = pinned.load(Ordering::Relaxed);
        assert_eq!(pinned, most, "pages pinned in half a second");
        reader.join(task).unwrap();
    });
}
