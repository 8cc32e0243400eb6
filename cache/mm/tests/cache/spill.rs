//! Anonymous memory in the lab: what was written comes back after any number of trips to the swap
//! file, and what goes wrong has a name.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use env::{Cause, Device, ObjectId, Task};
use mm::{Cache, Error, Item, Spill};
use policy::reclaim::{ReclaimLaw, Tunables};
use policy::units::{Bytes, Instant, Nanos, PAGE_SIZE, Pages};
use policy::writeback::{DeviceQueue, FlushTunables};
use world::Sector;

use crate::common::{Disk, World, data, world};

/// The swap file is another object of the same disk.
const SWAP: ObjectId = ObjectId(9);

fn spill(
    world: &mut World,
    swap: u64,
    pages: u64,
    body: impl FnOnce(&mut Task<'_>, &Arc<Cache>, &Arc<Spill>) + Send + 'static,
) {
    let env = Arc::clone(world.lab.env());
    let (options, device) = (world.options.clone(), world.device);
    let info = world.disk.info();
    let id = world
        .lab
        .add_device(Arc::clone(&world.disk) as Arc<dyn Device>);
    world
        .lab
        .run(move |task| {
            let cache = Cache::new(env, options).unwrap();
            let device = cache.add_device(task, id, info, device).unwrap();
            if swap > 0 {
                cache.add_swap(task, device, SWAP, Pages(swap)).unwrap();
            }
            let region = cache.spill(task, Pages(pages)).unwrap();
            body(task, &cache, &region);
            drop(region);
            // Pages that were on their way out still give their slots back when they end.
            task.sleep(Cause::Idle, Nanos::secs(5));
            let swap = cache.swap_stats();
            assert_eq!(swap.free, swap.total, "slots were lost");
            assert_eq!(swap.writeback, Pages::ZERO);
            let stats = cache.vmstat();
            assert_eq!(
                stats.get(Item::NrInactiveAnon) + stats.get(Item::NrActiveAnon),
                0
            );
            let free = stats.get(Item::NrFreePages);
            let cached = cache.stats().cached.0;
            assert_eq!(free + cached, cache.stats().frames.0, "frames were lost");
            let _ = cache.shutdown(task);
        })
        .unwrap();
}

fn write(task: &mut Task<'_>, region: &Spill, page: u32, version: u32) {
    let offset = Bytes(u64::from(page) * PAGE_SIZE);
    region.write(task, offset, &data(page, 1, version)).unwrap();
}

fn check(task: &mut Task<'_>, region: &Spill, page: u32, version: u32) {
    let mut back = vec![Sector::JUNK; 8];
    let offset = Bytes(u64::from(page) * PAGE_SIZE);
    region.read(task, offset, &mut back).unwrap();
    assert_eq!(back, data(page, 1, version), "page {page}");
}

#[test]
fn what_was_written_comes_back_after_many_trips() {
    let mut world = world(1024, 200 << 20);
    spill(&mut world, 4096, 3000, |task, cache, region| {
        for version in 1..=6 {
            for page in 0..3000 {
                write(task, region, page, version);
            }
            for page in 0..3000 {
                check(task, region, page, version);
            }
        }
        let stats = cache.vmstat();
        assert!(
            stats.get(Item::Pswpout) > 10_000,
            "{}",
            stats.get(Item::Pswpout)
        );
        assert!(
            stats.get(Item::Pswpin) > 10_000,
            "{}",
            stats.get(Item::Pswpin)
        );
        assert!(
            stats.get(Item::Pgmajfault) < stats.get(Item::Pswpin),
            "neighbours come along"
        );
        assert!(region.resident() < Pages(1024));
    });
}

/// Major faults of a third walk over a region twice the memory.
fn third_walk(law: ReclaimLaw) -> u64 {
    const PAGES: u32 = 16_384;
    let mut world = world(PAGES / 2, 200 << 20);
    world.options.reclaim = Tunables::of(law, 1000);
    let seen = Arc::new(AtomicU64::new(0));
    let out = Arc::clone(&seen);
    let swap = u64::from(PAGES) * 4;
    spill(&mut world, swap, PAGES.into(), move |task, _, region| {
        for _ in 0..2 {
            region.touch(task, 0, PAGES).unwrap();
        }
        let touched = region.touch(task, 0, PAGES).unwrap();
        assert_eq!(touched.faults, Pages(PAGES.into()));
        out.store(touched.major.0, Ordering::Relaxed);
    });
    seen.load(Ordering::Relaxed)
}

/// A task that walks over what was swapped out stands before a page that was not asked for once in
/// a while, not at the end of each window of eight.
#[test]
fn a_walk_has_what_follows_read_before_it_is_there() {
    let ours = third_walk(ReclaimLaw::TIDEGATE);
    let theirs = third_walk(history::reclaim::LINUX_5_16_RC1);
    assert!(theirs >= 16_384 / 8, "{theirs}");
    assert!(ours < 16_384 / 64, "{ours}");
}

/// Frames are taken for pages that are out, not for a whole window of which one page is.
#[test]
fn a_read_takes_frames_for_what_is_out() {
    const PAGES: u32 = 4096;
    let mut world = world(PAGES / 4, 200 << 20);
    world.options.reclaim = Tunables::of(ReclaimLaw::TIDEGATE, 1000);
    let swap = u64::from(PAGES) * 4;
    spill(
        &mut world,
        swap,
        PAGES.into(),
        move |task, cache, region| {
            region.touch(task, 0, PAGES).unwrap();
            // One page of each window is left.
            for first in (0..PAGES).step_by(32) {
                region.discard(task, first, 31).unwrap();
            }
            task.sleep(Cause::Idle, Nanos::secs(1));
            let taken = |stats: mm::Vmstat| stats.get(Item::Pgalloc);
            let before = cache.vmstat();
            let touched = (31..PAGES / 2).step_by(32).map(|page| {
                let touched = region.touch(task, page, 1).unwrap();
                touched.major.0
            });
            let major: u64 = touched.sum();
            assert!(major > 32, "most of them were out: {major}");
            let after = cache.vmstat();
            let read = after.get(Item::Pswpin) - before.get(Item::Pswpin);
            assert_eq!(taken(after) - taken(before), read);
        },
    );
}

#[test]
fn a_page_that_was_only_read_goes_again_without_a_write() {
    let mut world = world(1024, 200 << 20);
    spill(&mut world, 4096, 2000, |task, cache, region| {
        for page in 0..2000 {
            write(task, region, page, 1);
        }
        for page in 0..2000 {
            check(task, region, page, 1);
        }
        let out = cache.vmstat().get(Item::Pswpout);
        for _ in 0..4 {
            for page in 0..2000 {
                check(task, region, page, 1);
            }
        }
        let again = cache.vmstat().get(Item::Pswpout) - out;
        assert!(again < 1000, "{again} pages were written again");
    });
}

#[test]
fn touched_pages_are_stamped_and_zero() {
    let mut world = world(1024, 200 << 20);
    spill(&mut world, 4096, 3000, |task, _, region| {
        for pass in 0..3 {
            let touched = region.touch(task, 0, 3000).unwrap();
            assert_eq!(touched.pages, Pages(3000));
            if pass == 0 {
                assert_eq!((touched.faults, touched.major), (Pages(3000), Pages::ZERO));
            } else {
                assert!(touched.major > Pages::ZERO);
                assert!(touched.faults >= touched.major);
                assert!(touched.faults <= touched.pages, "a page faults once");
            }
        }
        for page in 0..3000_u32 {
            let mut back = vec![Sector::JUNK; 8];
            region
                .read(task, Bytes(u64::from(page) * PAGE_SIZE), &mut back)
                .unwrap();
            assert_eq!(back[0], Sector(page + 1));
            assert_eq!(back[1..], [Sector::ZERO; 7]);
        }
        // Those in memory cost no fault; the last page read is one.
        assert_eq!(region.touch(task, 2999, 1).unwrap().major, Pages::ZERO);
        assert_eq!(region.touch(task, 2999, 1).unwrap().faults, Pages::ZERO);
    });
}

#[test]
fn what_is_discarded_reads_as_fresh() {
    let mut world = world(1024, 20 << 20);
    spill(&mut world, 4096, 2000, |task, cache, region| {
        for page in 0..2000 {
            write(task, region, page, 1);
        }
        // Many are under writeback right now, many are out.
        region.discard(task, 0, 2000).unwrap();
        assert_eq!(region.resident(), Pages::ZERO);
        let stats = cache.vmstat();
        assert_eq!(
            stats.get(Item::NrInactiveAnon) + stats.get(Item::NrActiveAnon),
            0
        );
        for page in 0..2000_u32 {
            let mut back = vec![Sector::JUNK; 8];
            region
                .read(task, Bytes(u64::from(page) * PAGE_SIZE), &mut back)
                .unwrap();
            assert_eq!(back, [Sector::ZERO; 8], "page {page}");
        }
    });
}

#[test]
fn two_regions_keep_apart() {
    let mut world = world(1024, 200 << 20);
    spill(&mut world, 8192, 1500, |task, cache, region| {
        let other = cache.spill(task, Pages(1500)).unwrap();
        for page in 0..1500 {
            write(task, region, page, 1);
            write(task, &other, page, 2);
        }
        for page in 0..1500 {
            check(task, region, page, 1);
            check(task, &other, page, 2);
        }
        drop(other);
        let third = cache.spill(task, Pages(1500)).unwrap();
        assert_eq!(third.touch(task, 0, 1500).unwrap().major, Pages::ZERO);
    });
}

#[test]
fn beyond_the_end_is_refused() {
    let mut world = world(1024, 200 << 20);
    spill(&mut world, 0, 10, |task, cache, region| {
        let beyond = Err(Error::OutOfRange {
            what: "region",
            end: Bytes(11 * PAGE_SIZE),
            len: Bytes(10 * PAGE_SIZE),
        });
        assert_eq!(region.touch(task, 8, 3), beyond.map(|()| unreachable!()));
        assert!(region.discard(task, 10, 1).is_err());
        assert!(
            region
                .write(task, Bytes(10 * PAGE_SIZE), &data(0, 1, 1))
                .is_err()
        );
        assert!(region.discard(task, 10, 0).is_ok());
        assert!(matches!(
            cache.spill(task, Pages::ZERO).map(|_| ()),
            Err(Error::BadOption { .. })
        ));
    });
}

/// Tables of regions come on top of the limit: a 32nd of the memory at most.
#[test]
fn regions_take_no_more_for_their_tables_than_is_promised() {
    let mut world = world(1024, 200 << 20);
    // 34 bits a page, a 32nd of 4 MiB.
    let most = 1024 * 4096 / 32 * 8 / 34;
    spill(&mut world, 0, 1000, move |task, cache, _| {
        let refused = |task: &mut Task<'_>, pages, left| {
            let error = cache.spill(task, Pages(pages)).map(|_| ()).unwrap_err();
            assert!(
                matches!(error, Error::BadOption { value, allowed: (1, most), .. } if value == pages && most == left),
                "{error}"
            );
        };
        refused(task, most - 999, most - 1000);
        refused(task, 1 << 40, most - 1000);
        refused(task, u64::MAX, most - 1000);
        let large = cache.spill(task, Pages(most - 1000)).unwrap();
        refused(task, 1, 0);
        large.touch(task, 0, 3).unwrap();
        drop(large);
        let again = cache.spill(task, Pages(most - 1000)).unwrap();
        drop(again);
    });
}

/// Bounded memory and no way out: a typed error, and everything works again once memory is given
/// back.
#[test]
fn without_a_swap_file_memory_runs_out_with_a_name() {
    let mut world = world(1024, 200 << 20);
    spill(&mut world, 0, 3000, |task, cache, region| {
        let refused = region.touch(task, 0, 3000).unwrap_err();
        assert!(matches!(refused, Error::OutOfMemory { .. }), "{refused}");
        assert!(region.resident() > Pages(900), "what there is was used");
        let stats = cache.vmstat();
        assert_eq!(stats.get(Item::PgscanAnon), 0, "there is nowhere to go to");
        region.discard(task, 0, 3000).unwrap();
        region.touch(task, 2000, 500).unwrap();
    });
}

#[test]
fn a_full_swap_file_refuses_and_keeps_what_it_has() {
    let mut world = world(1024, 200 << 20);
    spill(&mut world, 500, 3000, |task, cache, region| {
        let mut taken = 0;
        let refused = loop {
            match region.write(
                task,
                Bytes(u64::from(taken) * PAGE_SIZE),
                &data(taken, 1, 1),
            ) {
                Ok(()) => taken += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, Error::OutOfMemory { .. }), "{refused}");
        assert!((1400..=1524).contains(&taken), "{taken}");
        assert_eq!(cache.swap_stats().free, Pages::ZERO);
        // Reading needs frames too: one of the reserve, and then the slot of what was read back
        // goes around.
        let began = task.now();
        for page in 0..taken {
            check(task, region, page, 1);
        }
        let walks: Vec<_> = (0..4)
            .map(|part| {
                let region = Arc::clone(region);
                env::spawn(task.env(), "walk", move |task| {
                    for page in (part..taken).step_by(4) {
                        write(task, &region, page, 2);
                    }
                    for page in (part..taken).rev().step_by(4) {
                        region.touch(task, page, 1).unwrap();
                    }
                })
            })
            .collect();
        for walk in walks {
            walk.join(task).unwrap();
        }
        let took = task.now().since(began);
        assert!(took <= Nanos::millis(1_000), "{took:?}");

        // A task that wants more than there is, is told so: that pages go around is no hope for it.
        let over = Arc::new(AtomicBool::new(false));
        let walking = {
            let (region, over) = (Arc::clone(region), Arc::clone(&over));
            env::spawn(task.env(), "walk", move |task| {
                while !over.load(Ordering::Relaxed) {
                    region.touch(task, 0, taken).unwrap();
                }
            })
        };
        let began = task.now();
        let more = cache.spill(task, Pages(200)).unwrap();
        let refused = more.touch(task, 0, 200).unwrap_err();
        assert!(matches!(refused, Error::OutOfMemory { .. }), "{refused}");
        let took = task.now().since(began);
        assert!(took <= Nanos::millis(3_000), "{took:?}");
        over.store(true, Ordering::Relaxed);
        walking.join(task).unwrap();
        drop(more);
        region.discard(task, 0, 600).unwrap();
        for page in 600..taken {
            check(task, region, page, 2);
        }
    });
}

#[test]
fn a_write_that_fails_keeps_the_page_and_tries_again() {
    let mut world = world(1024, 200 << 20);
    world.disk.state().fail_writes = 0..30;
    spill(&mut world, 4096, 2500, |task, cache, region| {
        for page in 0..2500 {
            // While nothing can go out, memory is short for a while.
            while let Err(error) =
                region.write(task, Bytes(u64::from(page) * PAGE_SIZE), &data(page, 1, 1))
            {
                assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
                task.sleep(Cause::Idle, Nanos::secs(1));
            }
        }
        assert!(cache.swap_stats().write_failed > Pages::ZERO);
        for page in 0..2500 {
            check(task, region, page, 1);
        }
    });
}

#[test]
fn a_swap_file_that_never_takes_a_write_is_like_none() {
    let mut world = world(1024, 200 << 20);
    world.disk.state().fail_writes = 0..u64::MAX;
    spill(&mut world, 4096, 3000, |task, cache, region| {
        let refused = region.touch(task, 0, 3000).unwrap_err();
        assert!(matches!(refused, Error::OutOfMemory { .. }), "{refused}");
        let swap = cache.swap_stats();
        assert!(swap.write_failed > Pages::ZERO);
        let there = u32::try_from(region.resident().0).unwrap();
        for page in 0..there {
            let mut back = vec![Sector::JUNK; 8];
            let offset = Bytes(u64::from(page) * PAGE_SIZE);
            region.read(task, offset, &mut back).unwrap();
            assert_eq!(back[0], Sector(page + 1));
        }
    });
}

/// The disk of the swap file hangs from now on for so long.
fn hang(disk: &Disk, task: &Task<'_>, time: Nanos) {
    disk.state().hangs = task.now()..task.now() + time;
}

/// A swap file whose disk hangs is waited for, but not for ever: the task that needs memory then
/// gets the error that it gets where there is none. Nothing is lost, and all goes on when the disk
/// is back.
#[test]
fn a_swap_file_that_hangs_is_waited_for_but_not_for_ever() {
    for law in [
        ReclaimLaw::TIDEGATE,
        history::reclaim::LINUX_5_16_RC1,
        history::reclaim::LINUX_5_16,
    ] {
        // Four requests: the task that needs another one waits for it. Or as many as it takes to
        // fill memory.
        for requests in [4, 256] {
            // Linux waits for a request for ever.
            if requests == 4 && law != ReclaimLaw::TIDEGATE {
                continue;
            }
            let mut world = world(1024, 200 << 20);
            world.options.reclaim = Tunables::of(law, 1000);
            world.options.swap_requests = requests;
            let disk = Arc::clone(&world.disk);
            spill(&mut world, 4096, 3000, move |task, _, region| {
                // It is back in time.
                hang(&disk, task, Nanos::secs(30));
                for page in 0..2000 {
                    write(task, region, page, 1);
                }
                assert!(task.now() > Instant(Nanos::secs(30).0), "nothing was tried");
                for page in 0..2000 {
                    check(task, region, page, 1);
                }
                // It is not.
                let began = task.now();
                hang(&disk, task, Nanos::secs(1000));
                let mut told = None;
                for page in 2000..3000 {
                    let offset = Bytes(u64::from(page) * PAGE_SIZE);
                    let data = data(page, 1, 1);
                    if let Err(error) = region.write(task, offset, &data) {
                        told = Some(error);
                        break;
                    }
                }
                let took = task.now().since(began);
                assert!(
                    matches!(told, Some(Error::OutOfMemory { .. })),
                    "{law:?} {requests}: {told:?} after {took:?}"
                );
                // A round of Linux' takes seconds, and it tries 16.
                let bounds = Nanos::secs(55)..Nanos::secs(200);
                assert!(bounds.contains(&took), "{law:?} {requests}: {took:?}");
                task.sleep_until(Cause::Think, began + Nanos::secs(1001));
                for page in 2000..3000 {
                    write(task, region, page, 1);
                }
                for page in 0..3000 {
                    check(task, region, page, 1);
                }
            });
        }
    }
}

/// A task that wants memory for files of a disk that works gets it although the disk of the swap
/// file hangs: the background reclaimer does not stand still with it.
#[test]
fn a_swap_file_that_hangs_does_not_hold_readers_of_another_disk() {
    let mut world = world(1024, 200 << 20);
    world.options.swap_requests = 4;
    let other = Disk::new(&world.lab, 200 << 20);
    let info = other.info();
    let id = world.lab.add_device(other as Arc<dyn Device>);
    let disk = Arc::clone(&world.disk);
    spill(&mut world, 4096, 3000, move |task, cache, region| {
        let device = cache
            .add_device(task, id, info, mm::DeviceOptions::default())
            .unwrap();
        let len = Bytes(4096 * PAGE_SIZE);
        let file = cache.open(task, device, ObjectId(1), len).unwrap();
        for page in 0..500 {
            write(task, region, page, 1);
        }
        hang(&disk, task, Nanos::secs(200));
        let hog = {
            let region = Arc::clone(region);
            env::spawn(task.env(), "hog", move |task| {
                region.touch(task, 0, 900).is_ok()
            })
        };
        let began = task.now();
        let mut reader = mm::Reader::default();
        let mut back = vec![Sector::JUNK; 64 * 8];
        for at in (0..4096).step_by(64) {
            let offset = Bytes(at * PAGE_SIZE);
            file.read(task, &mut reader, offset, &mut back).unwrap();
        }
        let took = task.now().since(began);
        assert!(took < Nanos::secs(20), "{took:?}");
        hog.join(task);
        task.sleep_until(Cause::Think, began + Nanos::secs(201));
        file.close(task).unwrap();
    });
}

/// Where Linux throttles writeback, its limit of writes is on their way to the swap file: since
/// 6.11 those of all together. Before, the background reclaimer had as many of its own: it did not
/// wait behind tasks.
#[test]
fn swap_writes_have_the_room_that_throttled_writeback_leaves_them() {
    let both = |flush, queue| {
        let mut world = world(1024, 200 << 20);
        world.options.reclaim = Tunables::of(history::reclaim::LINUX_5_16_RC1, 1000);
        world.options.flush = flush;
        let disk = Arc::clone(&world.disk);
        disk.state().queue = queue;
        spill(&mut world, 4096, 3000, |task, _, region| {
            for page in 0..3000 {
                write(task, region, page, 1);
            }
            for page in 0..3000 {
                check(task, region, page, 1);
            }
        });
        let state = disk.state();
        (state.writing_most, state.longest_write)
    };
    let most = |flush, queue| both(flush, queue).0;
    let queue = |pages| {
        Some(DeviceQueue {
            requests: 4,
            request_max: Pages(pages),
        })
    };
    // Three quarters of four.
    let (since, before) = (FlushTunables::linux_6_12(), FlushTunables::linux_4_10());
    assert_eq!(both(since, queue(256)), (3, Pages(32)));
    assert_eq!(most(before, queue(256)), 3 + 3);
    // A longer run takes the room of several.
    assert_eq!(both(since, queue(16)), (3, Pages(16)));
    assert!(most(since, None) > 6, "nothing is known of its queue");
    assert!(most(before, None) > 6, "nothing is known of its queue");
}

#[test]
fn a_read_that_fails_has_a_name_and_is_tried_again() {
    let mut world = world(1024, 200 << 20);
    let disk = Arc::clone(&world.disk);
    spill(&mut world, 4096, 3000, move |task, cache, region| {
        for page in 0..3000 {
            write(task, region, page, 1);
        }
        let next = disk.state().reads;
        disk.state().fail_reads = next..u64::MAX;
        let mut back = vec![Sector::JUNK; 8];
        let mut failed = Vec::new();
        for page in 0..200_u32 {
            let offset = Bytes(u64::from(page) * PAGE_SIZE);
            match region.read(task, offset, &mut back) {
                Ok(()) => {}
                Err(Error::SwapReadFailed { offset: at, .. }) => {
                    assert_eq!(at, offset);
                    failed.push(page);
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert!(failed.len() > 100, "the oldest pages are out: {failed:?}");
        let touched = region.touch(task, failed[0], 1);
        assert!(matches!(touched, Err(Error::SwapReadFailed { .. })));
        assert!(cache.swap_stats().read_failed >= Pages(failed.len() as u64));
        disk.state().fail_reads = 0..0;
        for page in 0..3000 {
            check(task, region, page, 1);
        }
    });
}

#[test]
fn whoever_is_cancelled_in_a_fault_leaves_nothing_behind() {
    let mut world = world(1024, 200 << 20);
    let answers = Arc::new(std::sync::Mutex::new(Vec::new()));
    let told = Arc::clone(&answers);
    // The swap file is read at one page a second: the tasks sleep in their faults when the root
    // ends.
    let env = Arc::clone(world.lab.env());
    let (options, device) = (world.options.clone(), world.device);
    let info = world.disk.info();
    let disk = Arc::clone(&world.disk);
    let id = world.lab.add_device(disk as Arc<dyn Device>);
    let ended = world.lab.run(move |task| {
        let cache = Cache::new(env.clone(), options).unwrap();
        let device = cache.add_device(task, id, info, device).unwrap();
        cache.add_swap(task, device, SWAP, Pages(4096)).unwrap();
        let region = cache.spill(task, Pages(3000)).unwrap();
        region.touch(task, 0, 3000).unwrap();
        for first in [0, 1, 500] {
            let (region, told) = (Arc::clone(&region), Arc::clone(&told));
            env::spawn(&*env, "toucher", move |task| {
                for page in first..first + 400 {
                    if let Err(error) = region.touch(task, page, 1) {
                        told.lock().unwrap().push(error);
                        return;
                    }
                }
            });
        }
        task.sleep(Cause::Idle, Nanos::micros(30));
    });
    assert!(ended.is_ok());
    assert_eq!(*answers.lock().unwrap(), [Error::Cancelled; 3]);
}

#[test]
fn a_region_that_is_dropped_on_its_way_gives_all_back() {
    // 4 MB/s: what is on its way out or back stays there for a while.
    let mut world = world(1024, 4 << 20);
    spill(&mut world, 4096, 1500, |task, cache, region| {
        region.touch(task, 0, 1500).unwrap();
        assert!(cache.swap_stats().writeback > Pages::ZERO);
        let other = cache.spill(task, Pages(1500)).unwrap();
        other.touch(task, 0, 700).unwrap();
        let reader = Arc::clone(region);
        let busy = env::spawn(task.env(), "reader", move |task| {
            reader.touch(task, 0, 300).map(|touched| touched.major)
        });
        task.sleep(Cause::Idle, Nanos::millis(1));
        drop(other);
        // Its pages are being read in at this moment: the discard waits for those.
        region.discard(task, 0, 1500).unwrap();
        let major = busy.join(task).unwrap().unwrap();
        assert!(major > Pages::ZERO);
        region.discard(task, 0, 1500).unwrap();
    });
}

/// Two regions that memory cannot hold together, and no swap file. Where the machine kills, the
/// larger one gives way: its next touch says so, and the task that asked gets the memory. Where it
/// does not, the task that asked is told.
#[test]
fn out_of_memory_the_largest_region_gives_way() {
    for (law, kills) in [
        (history::reclaim::LINUX_5_15, true),
        (history::reclaim::LINUX_5_16_RC1, true),
        (ReclaimLaw::TIDEGATE, true),
        (history::reclaim::LINUX_5_15, false),
    ] {
        let mut world = world(1024, 200 << 20);
        world.options.reclaim = Tunables {
            oom_kills: kills,
            ..Tunables::of(law, 250)
        };
        spill(&mut world, 0, 700, move |task, cache, large| {
            large.touch(task, 0, 700).unwrap();
            let small = cache.spill(task, Pages(600)).unwrap();
            let touched = small.touch(task, 0, 600);
            let killed = cache.vmstat().get(Item::OomKill);
            if !kills {
                assert!(matches!(touched, Err(Error::OutOfMemory { .. })), "{law:?}");
                assert_eq!(killed, 0);
                return;
            }
            assert_eq!(touched.unwrap().pages, Pages(600), "{law:?}");
            assert_eq!((killed, large.resident()), (1, Pages::ZERO), "{law:?}");
            for page in [0, 699] {
                assert_eq!(large.touch(task, page, 1), Err(Error::Killed));
            }
            assert_eq!(small.resident(), Pages(600));
        });
    }
}
