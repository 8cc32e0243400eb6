//! A limit changed while the cache runs: it is reached in the background, and nothing is lost on
//! the way.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use std::sync::Arc;

use crate::common::{data, world};
use env::{Cause, Task};
use mm::{Cache, Error, Item, Reader};
use policy::units::{Bytes, Nanos, PAGE_SIZE, Pages};
use world::Sector;

const MIB: u64 = 1 << 20;
const FRAMES: u32 = 4096;

/// Waits until the limit holds; answers how long it took.
fn settle(task: &mut Task<'_>, cache: &Cache) -> Nanos {
    let began = task.now();
    let mut over = cache.limit().over;
    while !over.is_zero() {
        task.sleep(Cause::Idle, Nanos::millis(10));
        assert!(cache.limit().over <= over, "it gets there and not back");
        over = cache.limit().over;
        assert!(task.now().since(began) < Nanos::secs(100), "{over:?}");
    }
    task.now().since(began)
}

fn in_use(cache: &Cache) -> u64 {
    let stat = cache.vmstat();
    u64::from(FRAMES) - stat.get(Item::NrFreePages) - stat.get(Item::NrWithheld)
}

#[test]
fn pages_of_files_and_of_regions_leave_and_come_back() {
    let mut world = world(FRAMES, 100 * MIB);
    world.run(0, |task, cache, file| {
        let swap = cache
            .add_swap(
                task,
                policy::dirty::DeviceIndex(0),
                env::ObjectId(9),
                Pages(4096),
            )
            .is_ok();
        assert!(swap);
        let region = cache.spill(task, Pages(1500)).unwrap();
        for page in 0..1500 {
            let offset = Bytes(u64::from(page) * PAGE_SIZE);
            region.write(task, offset, &data(page, 1, 3)).unwrap();
        }
        let mut writer = cache.writer();
        for mib in 0..8u32 {
            let offset = Bytes(u64::from(mib) * MIB);
            file.write(task, &mut writer, offset, &data(mib * 256, 256, 1))
                .unwrap();
        }
        for limit in [1024, 3000, 1024, u64::from(FRAMES)] {
            cache.set_limit(task, Pages(limit)).unwrap();
            let took = settle(task, cache);
            println!("limit {limit}: {took:?}");
            assert!(in_use(cache) <= cache.limit().limit.0);
            let mut reader = Reader::default();
            for mib in 0..8u32 {
                let mut back = vec![Sector(0); 2048];
                let offset = Bytes(u64::from(mib) * MIB);
                file.read(task, &mut reader, offset, &mut back).unwrap();
                assert_eq!(back, data(mib * 256, 256, 1), "MiB {mib}");
            }
            for page in (0..1500).step_by(7) {
                let mut back = vec![Sector::JUNK; 8];
                let offset = Bytes(u64::from(page) * PAGE_SIZE);
                region.read(task, offset, &mut back).unwrap();
                assert_eq!(back, data(page, 1, 3), "page {page}");
            }
            assert!(in_use(cache) <= cache.limit().limit.0, "it stays there");
        }
        assert_eq!(cache.vmstat().get(Item::NrWithheld), 0);
        drop(region);
        file.truncate(task, Bytes(0)).unwrap();
        task.sleep(Cause::Idle, Nanos::secs(1));
        assert_eq!(in_use(cache), 0, "all frames are back");
    });
}

/// `ulimit -d`, no overcommit: what the system refuses is a lower limit, and comes back.
#[test]
fn memory_that_the_system_refuses_is_a_lower_limit() {
    let mut world = world(FRAMES, 100 * MIB);
    let stamps = world.lab.stamps();
    world.run(0, move |task, cache, file| {
        let mut writer = cache.writer();
        let write = |task: &mut Task<'_>, writer: &mut _, mib: u32, version: u32| {
            let data = data(mib * 256, 256, version);
            file.write(task, writer, Bytes(u64::from(mib) * MIB), &data)
        };
        stamps.refuse(true);
        let none = write(task, &mut writer, 0, 1).unwrap_err();
        assert!(matches!(none, Error::NoMemory { .. }), "{none:?}");
        stamps.refuse(false);
        for mib in 0..8 {
            write(task, &mut writer, mib, 1).unwrap();
        }
        let has = stamps.populated();
        stamps.refuse(true);
        for mib in 0..40 {
            write(task, &mut writer, mib, 2).unwrap();
        }
        file.sync(task).unwrap();
        assert_eq!(stamps.populated(), has);
        let limit = cache.limit();
        assert_eq!(limit.limit, Pages(has));
        assert_eq!(limit.limit + limit.refused, Pages(u64::from(FRAMES)));
        // A change of the limit asks again.
        cache
            .set_limit(task, Pages(u64::from(FRAMES) - 512))
            .unwrap();
        let mut reader = Reader::default();
        let mut back = vec![Sector(0); 2048];
        for mib in 0..40u32 {
            file.read(task, &mut reader, Bytes(u64::from(mib) * MIB), &mut back)
                .unwrap();
            assert_eq!(back, data(mib * 256, 256, 2), "MiB {mib}");
        }
        assert_eq!(cache.limit().limit, Pages(has));
        stamps.refuse(false);
        task.sleep(Cause::Idle, Nanos::secs(11));
        for mib in 0..40 {
            write(task, &mut writer, mib, 3).unwrap();
        }
        let limit = cache.limit();
        assert_eq!(
            (limit.limit, limit.refused),
            (Pages(u64::from(FRAMES) - 512), Pages::ZERO)
        );
    });
}

/// Without a swap file, and where it is full, pages of regions move to the frames that stay, as
/// those of files leave them.
#[test]
fn pages_of_regions_that_have_no_slot_move() {
    for slots in [0, 64] {
        let mut world = world(FRAMES, 100 * MIB);
        world.run(0, move |task, cache, file| {
            if slots > 0 {
                let device = policy::dirty::DeviceIndex(0);
                cache
                    .add_swap(task, device, env::ObjectId(9), Pages(slots))
                    .unwrap();
            }
            let region = cache.spill(task, Pages(1200)).unwrap();
            let mut writer = cache.writer();
            // A part of both in every part of the memory.
            for part in 0..12u32 {
                for page in part * 100..(part + 1) * 100 {
                    let offset = Bytes(u64::from(page) * PAGE_SIZE);
                    region.write(task, offset, &data(page, 1, 3)).unwrap();
                }
                let offset = Bytes(u64::from(part) * MIB);
                file.write(task, &mut writer, offset, &data(part * 256, 256, 1))
                    .unwrap();
            }
            file.sync(task).unwrap();
            cache.set_limit(task, Pages(2048)).unwrap();
            settle(task, cache);
            assert!(in_use(cache) <= 2048);
            for page in 0..1200 {
                let mut back = vec![Sector::JUNK; 8];
                let offset = Bytes(u64::from(page) * PAGE_SIZE);
                region.read(task, offset, &mut back).unwrap();
                assert_eq!(back, data(page, 1, 3), "page {page}");
            }
            drop(region);
            file.truncate(task, Bytes(0)).unwrap();
            task.sleep(Cause::Idle, Nanos::secs(1));
            assert_eq!(in_use(cache), 0, "all frames are back");
        });
    }
}

#[test]
fn a_limit_is_lowered_while_others_allocate() {
    let mut world = world(FRAMES, 100 * MIB);
    world.run(64 * MIB, |task, cache, file| {
        let stop = task.now() + Nanos::secs(10);
        let (own, other) = (Arc::clone(cache), Arc::clone(file));
        let job = env::spawn(task.env(), "writer", move |task| {
            let mut writer = own.writer();
            while task.now() < stop {
                let mib = u32::try_from(task.random() % 64).unwrap();
                let offset = Bytes(u64::from(mib) * MIB);
                other
                    .write(task, &mut writer, offset, &data(mib * 256, 256, 1))
                    .unwrap();
            }
        });
        while task.now() < stop {
            let limit = Pages(600 + task.random() % 3400);
            cache.set_limit(task, limit).unwrap();
            task.sleep(Cause::Idle, Nanos::millis(300));
        }
        job.join(task).unwrap();
        cache.set_limit(task, Pages(1024)).unwrap();
        settle(task, cache);
        assert!(in_use(cache) <= 1024);
    });
}

/// Pages that are dirty move to frames that stay: nobody waits for a device that needs four seconds
/// for them.
#[test]
fn dirty_pages_move_and_no_device_is_asked() {
    let mut world = world(FRAMES, MIB);
    world.run(0, |task, cache, file| {
        let mut writer = cache.writer();
        // Pages that stay in all parts of the memory, and gaps between them.
        let regions: Vec<_> = (0..300)
            .map(|_| {
                let region = cache.spill(task, Pages(10)).unwrap();
                region.touch(task, 0, 10).unwrap();
                region
            })
            .collect();
        for region in &regions {
            region.discard(task, 1, 9).unwrap();
        }
        // Less than is written back by itself.
        for page in 0..300u32 {
            let offset = Bytes(u64::from(page) * PAGE_SIZE);
            file.write(task, &mut writer, offset, &data(page, 1, 5))
                .unwrap();
        }
        let before = cache.stats();
        assert!(before.dirty >= Pages(250), "{before:?}");
        cache.set_limit(task, Pages(1536)).unwrap();
        let took = settle(task, cache);
        println!(
            "{took:?}, {} moved",
            cache.vmstat().get(Item::PgmigrateSuccess)
        );
        assert!(took < Nanos::millis(100), "{took:?}");
        let after = cache.stats();
        assert!(after.written < Pages(10), "{before:?} {after:?}");
        assert!(cache.vmstat().get(Item::PgmigrateSuccess) > 200);
        for page in 0..300 {
            let mut back = vec![Sector(0); 8];
            let offset = Bytes(u64::from(page) * PAGE_SIZE);
            file.read(task, &mut Reader::default(), offset, &mut back)
                .unwrap();
            assert_eq!(back, data(page, 1, 5), "page {page}");
        }
        file.sync(task).unwrap();
        assert!(cache.stats().is_conserved());
    });
}

/// The half of the memory that is used again and again is there after the limit was halved,
/// wherever it was.
#[test]
fn what_is_used_stays_when_the_limit_is_halved() {
    let mut world = world(FRAMES, 100 * MIB);
    world.run(32 * MIB, |task, cache, file| {
        let read = |task: &mut Task<'_>, page: u32| {
            let mut back = vec![Sector(0); 8];
            let offset = Bytes(u64::from(page) * PAGE_SIZE);
            let mut reader = Reader::default();
            file.read(task, &mut reader, offset, &mut back).unwrap();
        };
        // Every third page is used again and again: 1250 of 3750.
        for round in 0..4 {
            for page in (0..3750).filter(|page| round == 0 || page % 3 == 0) {
                read(task, page);
            }
        }
        let read_in = cache.stats().read_in;
        cache.set_limit(task, Pages(2048)).unwrap();
        settle(task, cache);
        for page in (0..3750).step_by(3) {
            read(task, page);
        }
        let missed = cache.stats().read_in - read_in;
        assert!(missed < Pages(25), "{missed:?} of 1250 were read again");
    });
}

#[test]
fn what_is_pinned_is_waited_for_and_what_cannot_be_is_refused() {
    let mut world = world(FRAMES, 100 * MIB);
    world.options.pins_max = FRAMES;
    world.run(0, |task, cache, file| {
        let frames = Pages(u64::from(FRAMES));
        assert!(matches!(
            cache.set_limit(task, frames + Pages(1)),
            Err(Error::BadOption { .. })
        ));
        assert!(matches!(
            cache.set_limit(task, Pages(100)),
            Err(Error::LimitTooSmall { .. })
        ));
        let mut writer = cache.writer();
        for mib in 0..12u32 {
            let offset = Bytes(u64::from(mib) * MIB);
            file.write(task, &mut writer, offset, &data(mib * 256, 256, 1))
                .unwrap();
        }
        file.sync(task).unwrap();
        // Some in every chunk.
        let pinned = |page: &u32| page % 5 < 3;
        let pins: Vec<_> = (0..3000)
            .filter(pinned)
            .map(|page| file.pin(task, &mut Reader::default(), page).unwrap())
            .collect();
        assert_eq!(
            cache.set_limit(task, Pages(1800)),
            Err(Error::PinnedAboveLimit {
                limit: Pages(1800),
                pinned: Pages(1800)
            })
        );
        assert_eq!(cache.limit().limit, frames, "a refusal changes nothing");
        cache.set_limit(task, Pages(2048)).unwrap();
        task.sleep(Cause::Idle, Nanos::secs(2));
        let over = cache.limit().over;
        assert!(over > Pages::ZERO, "some are pinned beyond the limit");
        for (page, pin) in (0..3000).filter(pinned).zip(&pins) {
            let mut back = vec![Sector(0); 8];
            pin.content()
                .copy_out(pin.pin(), 0, &mut (&mut back).into(), 0, 4096);
            assert_eq!(back, data(page, 1, 1));
        }
        drop(pins);
        settle(task, cache);
    });
}

#[test]
fn a_lowered_limit_has_its_part_of_pins_and_says_what_it_is() {
    let mut world = world(FRAMES, 100 * MIB);
    world.run(8 * MIB, |task, cache, file| {
        let limit = Pages(1024);
        cache.set_limit(task, limit).unwrap();
        settle(task, cache);
        assert_eq!(cache.limit().limit, limit);
        let mut pins = Vec::new();
        let refused = loop {
            let page = u32::try_from(pins.len()).unwrap();
            match file.pin(task, &mut Reader::default(), page) {
                Ok(pin) => pins.push(pin),
                Err(refused) => break refused,
            }
        };
        let most = 256;
        assert_eq!(pins.len(), most as usize);
        let what = "pinned pages";
        assert_eq!(refused, Error::TooMany { what, limit: most });
        // The part that is not available is said of this limit too.
        let region = cache.spill(task, Pages(1024)).unwrap();
        let refused = region.touch(task, 0, 1024).unwrap_err();
        assert_eq!(refused, Error::OutOfMemory { frames: limit });
        cache.set_limit(task, Pages(u64::from(FRAMES))).unwrap();
        pins.push(file.pin(task, &mut Reader::default(), 256).unwrap());
    });
}

/// Tables of regions come on top of the limit: a 32nd of what it is now.
#[test]
fn a_limit_leaves_room_for_the_tables_of_regions() {
    let mut world = world(FRAMES, 100 * MIB);
    world.run(0, |task, cache, _| {
        // 34 bits a page, a 32nd of 4 MiB.
        let most = Pages(30_840);
        let region = cache.spill(task, most + Pages(1)).unwrap();
        let refused = cache.set_limit(task, Pages(1000)).unwrap_err();
        let (regions, tables) = (region.len(), Bytes(131_074));
        let limit = Pages(1024);
        assert_eq!(
            refused,
            Error::RegionsAboveLimit {
                limit,
                regions,
                tables
            }
        );
        assert!(refused.to_string().contains("128 KiB"), "{refused}");
        assert_eq!(cache.limit().limit, Pages(u64::from(FRAMES)));
        cache.set_limit(task, Pages(2048)).unwrap();
        drop(region);
        let _region = cache.spill(task, most).unwrap();
        cache.set_limit(task, limit).unwrap();
        let refused = cache.spill(task, Pages(1)).err();
        assert!(matches!(refused, Some(Error::BadOption { .. })));
        cache.set_limit(task, Pages(2048)).unwrap();
        cache.spill(task, Pages(1)).unwrap();
    });
}
