//! The attacks of a hostile reader of the code: one test for each way in that once worked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Disk, State, World, data, world};
use env::{Cause, Device, Event, IoError, IoOp, ObjectId, Task, Wakeup};
use mm::{Cache, DeviceOptions, Error, File, Options, Reader};
use policy::dirty::{DeviceIndex, Law, Threshold};
use policy::reclaim::ReclaimLaw;
use policy::units::{Bytes, Instant, Nanos, Pages};
use world::{CostTable, EventKind, Lab, Options as LabOptions, Record, Sector};

const MIB: u64 = 1 << 20;

/// A writer that appends to a file is not kept out of it while somebody else's sync writes back
/// what is dirty.
#[test]
fn a_sync_that_settles_the_length_does_not_keep_writers_out_for_long() {
    let mut world = world(65536, 16 * MIB).limits(16384, 8192);
    let longest = world.run(0, |task, cache, file| {
        let over = Arc::new(AtomicBool::new(false));
        let writing = {
            let (file, over) = (Arc::clone(file), Arc::clone(&over));
            let cache = Arc::clone(cache);
            env::spawn(task.env(), "appender", move |task| {
                let mut writer = cache.writer();
                let chunk = vec![Sector(7); 2047];
                let mut at = 0;
                let mut longest = Nanos::ZERO;
                while !over.load(Ordering::Relaxed) {
                    let began = task.now();
                    file.write(task, &mut writer, Bytes(at), &chunk).unwrap();
                    longest = longest.max(task.now().since(began));
                    at += 2047 * 512;
                }
                longest
            })
        };
        for _ in 0..5 {
            task.sleep(Cause::Think, Nanos::millis(3_000));
            file.sync(task).unwrap();
        }
        over.store(true, Ordering::Relaxed);
        writing.join(task).unwrap()
    });
    assert!(longest <= Nanos::millis(400), "{longest:?}");
}

/// The time to sync `pages` pages of a file of its own, none beside another.
fn small_sync(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    object: u32,
    pages: u32,
) -> Result<Nanos, Error> {
    let file = cache.open(task, DeviceIndex(0), ObjectId(object), Bytes(0))?;
    let mut writer = cache.writer();
    for page in (0..pages).map(|number| number * 2) {
        let offset = Bytes(u64::from(page) * 4096);
        file.write(task, &mut writer, offset, &data(page, 1, 1))?;
    }
    let began = task.now();
    file.sync(task)?;
    Ok(task.now().since(began))
}

/// A sync of one file has its part of a device while the flusher writes another without end. (All
/// were woken when there was room in flight, and in virtual time the flusher was always first.)
#[test]
fn a_sync_has_its_turns_beside_a_flusher_that_is_never_done() {
    for law in [history::dirty::RATE_BASED, Law::TIDEGATE] {
        let mut world = world(8192, MIB).law(law).limits(1024, 512);
        let took = world.run(0, |task, cache, file| {
            let over = Arc::new(AtomicBool::new(false));
            let writing = {
                let (file, over, cache) = (Arc::clone(file), Arc::clone(&over), Arc::clone(cache));
                env::spawn(task.env(), "writer", move |task| {
                    let mut writer = cache.writer();
                    for round in 0..300 {
                        let page = round % 32 * 64;
                        let offset = Bytes(u64::from(page) * 4096);
                        file.write(task, &mut writer, offset, &data(page, 64, 1))
                            .unwrap();
                        if over.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                })
            };
            task.sleep(Cause::Think, Nanos::millis(5_000));
            let took = small_sync(task, cache, 2, 8).unwrap();
            over.store(true, Ordering::Relaxed);
            writing.join(task).unwrap();
            took
        });
        assert!(took <= Nanos::millis(2_000), "{law:?}: {took:?}");
    }
}

/// Syncs of one file that come while its device flushes have the next flush for all of them.
#[test]
fn syncs_that_wait_for_a_flush_share_the_next_one() {
    let mut world = world(1024, 64 * MIB);
    let disk = Arc::clone(&world.disk);
    world.run(0, move |task, cache, file| {
        let mut writer = cache.writer();
        let pages = data(0, 20, 1);
        file.write(task, &mut writer, Bytes(0), &pages).unwrap();
        let syncs: Vec<_> = (0..20)
            .map(|_| {
                let file = file.clone_handle();
                env::spawn(task.env(), "sync", move |task| file.sync(task))
            })
            .collect();
        // The pages are written by then, and a flush hangs.
        let now = task.now();
        disk.state().hangs = now + Nanos::millis(1)..now + Nanos::secs(9);
        for sync in syncs {
            assert_eq!(sync.join(task).unwrap(), Ok(()));
        }
        let flushes = disk.state().flushes;
        assert!((1..=2).contains(&flushes), "{flushes} flushes");
    });
}

/// A commit that comes while another one is made durable is not answered by its flush, which may
/// have begun before the bytes were written; those that come meanwhile share a write and a flush.
#[test]
fn commits_share_a_round_that_begins_after_they_asked() {
    let mut world = world(1024, 64 * MIB);
    let disk = Arc::clone(&world.disk);
    world.run(4096 * 64, move |task, cache, file| {
        let mut writer = cache.writer();
        let page = data(0, 1, 1);
        file.write(task, &mut writer, Bytes(0), &page).unwrap();
        file.sync(task).unwrap();
        let counts = |state: &State| (state.writes, state.flushes);
        let before = counts(&disk.state());
        // Each write and flush takes 10 ms or more.
        let now = task.now();
        disk.state().hangs = now..now + Nanos::millis(10);
        let commits: Vec<_> = (0..20)
            .map(|number| {
                let (file, cache, disk) = (file.clone_handle(), Arc::clone(cache), disk.clone());
                env::spawn(task.env(), "commit", move |task| {
                    task.sleep(Cause::Think, Nanos::micros(number));
                    let (mut writer, at) = (cache.writer(), Bytes(number * 4096));
                    file.write(task, &mut writer, at, &data(0, 1, 2)).unwrap();
                    file.sync_range(task, at, Bytes(512)).unwrap();
                    // The second: the first had begun before all but one of them had written.
                    disk.state().flushes
                })
            })
            .collect();
        let seen = commits.into_iter().map(|commit| commit.join(task).unwrap());
        let flushes: Vec<_> = seen.map(|flushes| flushes - before.1).collect();
        assert_eq!(flushes[0], 1);
        assert_eq!(flushes[1..], [2; 19]);
        assert_eq!(counts(&disk.state()), (before.0 + 2, before.1 + 2));
    });
}

/// A task that syncs does itself what it has to wait for anyway; what is sent before that is the
/// device's at once.
#[test]
fn a_sync_does_the_last_write_and_the_flush_itself() {
    let mut world = world(1024, 64 * MIB);
    let disk = Arc::clone(&world.disk);
    let synced = move || core::mem::take(&mut disk.state().synced);
    world.run(4096 * 64, move |task, cache, file| {
        let mut writer = cache.writer();
        for pages in [&[7][..], &[3, 9, 20]] {
            for page in pages {
                let at = Bytes(page * 4096);
                file.write(task, &mut writer, at, &data(0, 1, 2)).unwrap();
            }
            file.sync(task).unwrap();
            let sent = synced();
            let (flush, writes) = sent.split_last().unwrap();
            assert_eq!(*flush, (IoOp::Flush, 0, true));
            let last = pages.len() - 1;
            let here = writes.iter().enumerate().map(|(at, write)| {
                assert_eq!((write.0, write.1), (IoOp::Write, 1));
                write.2 == (at == last)
            });
            assert!(here.eq(pages.iter().map(|_| true)), "{writes:?}");
        }
    });
}

/// A flusher writes files that hold small ones side by side, as those became dirty, and any others
/// one after the other.
#[test]
fn files_of_small_ones_are_written_side_by_side() {
    let left = |most: Option<Pages>| {
        // The flusher begins when both are dirty.
        let mut world = world(8192, MIB)
            .law(history::dirty::RATE_BASED)
            .limits(8000, 1500);
        world.run(0, move |task, cache, first| {
            let second = cache.open(task, DeviceIndex(0), ObjectId(2), Bytes(0));
            let files = [Arc::clone(first), second.unwrap()];
            let mut writer = cache.writer();
            for file in &files {
                most.iter().for_each(|most| file.set_slice_most(*most));
                let all = data(0, 1024, 1);
                file.write(task, &mut writer, Bytes(0), &all).unwrap();
            }
            task.sleep(Cause::Think, Nanos::secs(2));
            files.each_ref().map(|file| file.stats(task).dirty.0)
        })
    };
    let [first, second] = left(Some(Pages(32)));
    assert!(
        first < 1000 && first.abs_diff(second) <= 128,
        "{first}, {second}"
    );
    let [first, second] = left(None);
    assert!(first.abs_diff(second) > 128, "{first}, {second}");
}

/// Syncs of one device take turns: a small one beside a large one is done long before it, and the
/// large one is not kept.
#[test]
fn a_small_sync_has_its_turns_beside_a_large_one() {
    const LARGE: u32 = 4096;
    let mut world = world(8192, MIB).limits(8000, 8000);
    let (small, large) = world.run(0, |task, cache, file| {
        let mut writer = cache.writer();
        file.write(task, &mut writer, Bytes(0), &data(0, LARGE, 1))
            .unwrap();
        let syncing = {
            let file = Arc::clone(file);
            env::spawn(task.env(), "sync", move |task| {
                let began = task.now();
                file.sync(task).unwrap();
                task.now().since(began)
            })
        };
        // The device's rate is known by then, and requests are small.
        task.sleep(Cause::Think, Nanos::millis(5_000));
        let mut longest = Nanos::ZERO;
        for object in 2..7 {
            longest = longest.max(small_sync(task, cache, object, 4).unwrap());
        }
        (longest, syncing.join(task).unwrap())
    });
    assert!(small <= Nanos::millis(1_000), "{small:?}");
    assert!(
        large <= Nanos::millis(17_000),
        "16 MiB at 1 MiB/s: {large:?}"
    );
}

/// Writers that tell the law of what they dirty some pages at a time are held at the same limit,
/// and get the same rates, as writers that tell it of each page.
#[test]
fn writers_that_tell_the_law_in_batches_are_held_as_others() {
    const WRITERS: u32 = 8;
    let run = |writers: u32, batches: bool| {
        let mut world = world(16384, 16 * MIB).limits(1024, 512);
        world.options.tells_in_batches = batches;
        world.run(0, move |task, cache, _| {
            let writing: Vec<_> = (0..writers)
                .map(|number| {
                    let cache = Arc::clone(cache);
                    env::spawn(task.env(), "writer", move |task| {
                        let object = ObjectId(number + 2);
                        let file = cache.open(task, DeviceIndex(0), object, Bytes(0)).unwrap();
                        let (mut writer, mut page, mut most) = (cache.writer(), 0, Pages::ZERO);
                        while task.now() < Instant(20_000_000_000) {
                            let offset = Bytes(u64::from(page) * 4096);
                            file.write(task, &mut writer, offset, &data(page, 1, 1))
                                .unwrap();
                            let stats = cache.stats();
                            most = most.at_least(stats.dirty + stats.writeback);
                            page += 1;
                        }
                        file.discard(task).unwrap();
                        (page, most)
                    })
                })
                .collect();
            let ends = writing
                .into_iter()
                .map(|writing| writing.join(task).unwrap());
            ends.collect::<Vec<_>>()
        })
    };
    let most = |ends: &[(u32, Pages)]| ends.iter().map(|(_, most)| most.0).max().unwrap();
    // Many keep little each.
    let many = run(256, true);
    assert!(most(&many) <= 1024, "the limit: {}", most(&many));
    for ends in [run(WRITERS, false), run(WRITERS, true)] {
        let most = most(&ends);
        let all: u32 = ends.iter().map(|(pages, _)| pages).sum();
        assert!(most <= 1024, "the limit: {most} in {ends:?}");
        // 20 s of the device, and what is dirty at the end.
        assert!((75_000..=84_000).contains(&all), "{all} in {ends:?}");
        let part = all / WRITERS;
        let even = |(pages, _): &(u32, Pages)| pages.abs_diff(part) <= part / 10;
        assert!(ends.iter().all(even), "{ends:?}");
    }
}

/// A task that waits for memory is woken when pages have become clean, not by its safety net.
#[test]
fn a_writer_without_memory_goes_on_as_soon_as_pages_are_clean() {
    const WRITERS: u32 = 4;
    let lab = Lab::new(LabOptions {
        cpus: 2,
        hz: 1000,
        seed: 1,
        frames: 1024,
        costs: CostTable::zero(),
        record: Record::NONE.with(EventKind::Waited),
    });
    let disk = Disk::new(&lab, 16 * MIB);
    let mut options = Options::new(1024, 2);
    options.dirty.dirty = Threshold::Pages(Pages(100_000));
    options.dirty.background = Threshold::Pages(Pages(50_000));
    let mut world = World {
        lab,
        disk,
        options,
        device: DeviceOptions::default(),
    };
    world.run(0, |task, cache, file| {
        let writing: Vec<_> = (0..WRITERS)
            .map(|number| {
                let (file, cache) = (Arc::clone(file), Arc::clone(cache));
                env::spawn(task.env(), "writer", move |task| {
                    let mut writer = cache.writer();
                    for round in 0..1000 {
                        let page = (round * WRITERS + number) * 4;
                        let offset = Bytes(u64::from(page) * 4096);
                        file.write(task, &mut writer, offset, &data(page, 4, 1))
                            .unwrap();
                    }
                })
            })
            .collect();
        for writer in writing {
            writer.join(task).unwrap();
        }
    });
    let mut waits = 0;
    for recorded in world.lab.take_events() {
        if let Event::Waited { cause, wakeup, .. } = recorded.event
            && cause == Cause::Memory
        {
            waits += 1;
            assert_ne!(wakeup, Wakeup::TimedOut, "after {waits} waits");
        }
    }
    assert!(waits > 10, "only {waits} waits: nothing was tried");
}

/// Bytes that a write has acknowledged are in the file when the shutdown beside it says Ok.
#[test]
fn a_write_beside_a_shutdown_is_written_or_refused() {
    let mut world = world(16384, 16 * MIB).limits(8192, 8192);
    let disk = Arc::clone(&world.disk);
    world.run(0, move |task, cache, file| {
        // Synced after the first file, for a second.
        let other = cache
            .open(task, DeviceIndex(0), ObjectId(2), Bytes(0))
            .unwrap();
        let mut writer = cache.writer();
        for mib in 0..16 {
            let offset = Bytes(u64::from(mib) * MIB);
            other
                .write(task, &mut writer, offset, &data(mib * 256, 256, 1))
                .unwrap();
        }
        let writing = {
            let (file, cache) = (Arc::clone(file), Arc::clone(cache));
            env::spawn(task.env(), "writer", move |task| {
                let mut writer = cache.writer();
                let mut acknowledged = 0;
                for page in 0..4000u32 {
                    let offset = Bytes(u64::from(page) * 4096);
                    if file
                        .write(task, &mut writer, offset, &data(page, 1, 1))
                        .is_err()
                    {
                        break;
                    }
                    acknowledged += 1;
                    task.sleep(Cause::Think, Nanos::millis(1));
                }
                acknowledged
            })
        };
        task.sleep(Cause::Think, Nanos::millis(50));
        cache.shutdown(task).unwrap();
        let acknowledged = writing.join(task).unwrap();
        let state = disk.state();
        let written = state.pages.keys().filter(|(object, _)| *object == 1);
        assert_eq!(written.count(), acknowledged);
    });
}

/// Once a shutdown has begun, nothing of a file is changed behind the sync that ends it, whichever
/// way in one comes.
#[test]
fn nothing_changes_a_file_of_a_cache_that_has_ended() {
    let mut world = world(1024, 16 * MIB);
    let disk = Arc::clone(&world.disk);
    world.run(0, move |task, cache, file| {
        let mut writer = cache.writer();
        file.write(task, &mut writer, Bytes(0), &data(0, 4, 1))
            .unwrap();
        cache.shutdown(task).unwrap();
        let lengths = disk.state().lengths.clone();
        let told = [
            file.write(task, &mut writer, Bytes(0), &data(0, 1, 2))
                .map(drop),
            file.truncate(task, Bytes(4096)),
            file.allocate(task, Bytes(MIB)),
            file.punch(task, Bytes(0), Bytes(4096)),
        ];
        assert_eq!(told, [Err(Error::Cancelled); 4]);
        assert_eq!(file.len(), Bytes(4 * 4096));
        assert_eq!(disk.state().lengths, lengths);
    });
}

/// An error that has healed before a writer came is none of its business; an error of another
/// device does not hide behind an error that it was told of.
#[test]
fn a_writer_is_told_of_the_errors_of_its_time() {
    let mut world = world(1024, 64 * MIB);
    world.disk.state().fail_writes = 0..2;
    let other = Disk::new(&world.lab, 64 * MIB);
    other.state().fail_writes = 0..1;
    let (info, id) = (other.info(), world.lab.add_device(other));
    world.run(0, move |task, cache, file| {
        let device = cache
            .add_device(task, id, info, DeviceOptions::default())
            .unwrap();
        let second = cache.open(task, device, ObjectId(1), Bytes(0)).unwrap();
        let mut early = cache.writer();
        for file in [file, &second] {
            file.write(task, &mut early, Bytes(0), &data(0, 4, 1))
                .unwrap();
            while file.sync(task).is_err() {}
        }
        let mut late = cache.writer();
        for file in [file, &second] {
            let told = file.write(task, &mut early, Bytes(0), &data(0, 4, 1));
            assert!(matches!(told, Err(Error::WriteFailed { .. })), "{told:?}");
            file.write(task, &mut early, Bytes(0), &data(0, 4, 1))
                .unwrap();
            file.write(task, &mut late, Bytes(0), &data(0, 4, 1))
                .unwrap();
        }
    });
}

/// Bytes that a failed cut left behind the end do not come back with the file's growth.
#[test]
fn the_tail_of_a_cut_that_failed_stays_cut() {
    let mut world = world(1024, 64 * MIB);
    let disk = Arc::clone(&world.disk);
    world.run(0, move |task, cache, file| {
        let mut writer = cache.writer();
        let all = 4096 * 4;
        file.write(task, &mut writer, Bytes(0), &data(0, 4, 1))
            .unwrap();
        file.sync(task).unwrap();
        // Nothing of it is cached any more.
        file.write(task, &mut writer, Bytes(MIB), &data(256, 4096, 1))
            .unwrap();
        file.sync(task).unwrap();
        file.truncate(task, Bytes(all)).unwrap();
        disk.state().fail_lengths = true;
        file.truncate(task, Bytes(512)).unwrap_err();
        let mut first = vec![Sector(9); 1];
        file.read(task, &mut Reader::default(), Bytes(0), &mut first)
            .unwrap();
        disk.state().fail_lengths = false;
        file.truncate(task, Bytes(all)).unwrap();
        assert_cut_to_a_sector(task, file, 4);
    });
}

#[test]
fn nothing_comes_into_a_file_that_is_taken_out() {
    const PAGE: u64 = 4096;
    // A page takes 100 ms.
    let mut world = world(1024, 10 * PAGE);
    world.options.readahead_max = Pages::ZERO;
    world.run(64 * PAGE, |task, cache, file| {
        let read = |task: &Task<'_>, file: &Arc<File>, page: u64| {
            let file = Arc::clone(file);
            env::spawn(task.env(), "reader", move |task| {
                let mut back = data(0, 1, 9);
                file.read(task, &mut Reader::default(), Bytes(page * PAGE), &mut back)
            })
        };
        let early = read(task, file, 10);
        task.sleep(Cause::Think, Nanos::millis(10));
        let going = {
            let file = Arc::clone(file);
            env::spawn(task.env(), "discard", move |task| file.discard(task))
        };
        // It stands at page 10, which is on its way.
        task.sleep(Cause::Think, Nanos::millis(10));
        assert!(!going.is_done());
        // A reader that was let in before does not know, and comes behind it.
        let late = read(task, file, 3);
        let late = late.join(task).unwrap();
        assert_eq!(late.map(|got| got.bytes), Ok(Bytes::ZERO));
        early.join(task).unwrap().unwrap();
        going.join(task).unwrap().unwrap();
        assert_eq!(cache.stats().cached, Pages::ZERO, "a page nobody owns");
        let mut writer = cache.writer();
        let written = file.write(task, &mut writer, Bytes(0), &data(0, 1, 2));
        assert_eq!(written, Err(Error::Cancelled));
        let punched = file.punch(task, Bytes(0), Bytes(8 * PAGE));
        assert_eq!(punched, Err(Error::Cancelled));
        assert_eq!(cache.stats().cached, Pages::ZERO);
    });
}

/// A truncation that finds no memory for the last page, which is pinned, is done before anything
/// else: nothing that was cut off is seen again, and no page behind the end stays.
#[test]
fn a_truncation_without_memory_is_made_up_for() {
    for law in [ReclaimLaw::TIDEGATE, history::reclaim::LINUX_5_16] {
        let mut world = world(1024, 200 * MIB);
        world.options.reclaim.law = law;
        world.run(0, move |task, cache, _| {
            let mut writer = cache.writer();
            let files: Vec<_> = (100..300)
                .map(|object| {
                    let device = DeviceIndex(0);
                    let file = cache.open(task, device, ObjectId(object), Bytes(0));
                    let file = file.unwrap();
                    file.write(task, &mut writer, Bytes(0), &data(0, 2, 1))
                        .unwrap();
                    file.sync(task).unwrap();
                    file
                })
                .collect();
            let pins: Vec<_> = files
                .iter()
                .map(|file| file.pin(task, &mut Reader::default(), 0).unwrap())
                .collect();
            let region = cache.spill(task, Pages(3000)).unwrap();
            region.touch(task, 0, 3000).unwrap_err();
            let refused: Vec<_> = files
                .iter()
                .filter(|file| {
                    let cut = file.truncate(task, Bytes(512));
                    assert!(matches!(cut, Ok(()) | Err(Error::OutOfMemory { .. })));
                    cut.is_err()
                })
                .take(3)
                .collect();
            assert_eq!(refused.len(), 3, "{law:?}: memory was there");
            drop(region);
            task.sleep(Cause::Idle, Nanos::secs(1));
            drop(pins);
            for (way, file) in refused.into_iter().enumerate() {
                assert_eq!(file.len(), Bytes(512));
                match way {
                    0 => file.sync(task).unwrap(),
                    1 => {
                        let far = Bytes(5 * 4096);
                        let wrote = file.write(task, &mut writer, far, &data(5, 1, 1));
                        wrote.unwrap();
                    }
                    _ => {}
                }
                file.truncate(task, Bytes(2 * 4096)).unwrap();
                assert_cut_to_a_sector(task, file, 2);
                file.sync(task).unwrap();
            }
        });
    }
}

/// The first `pages` pages, of which all but the first sector were cut off and are there again.
fn assert_cut_to_a_sector(task: &mut Task<'_>, file: &Arc<File>, pages: usize) {
    let mut back = vec![Sector(9); 8 * pages];
    file.read(task, &mut Reader::default(), Bytes(0), &mut back)
        .expect("the device is well");
    let mut expected = vec![Sector(0); 8 * pages];
    expected[0] = data(0, 1, 1)[0];
    assert_eq!(back, expected);
}

/// A cut that the device failed, and for which there was no memory when it was tried again, is
/// still owed.
#[test]
fn a_cut_that_is_tried_again_without_memory_is_still_owed() {
    let mut world = world(1024, 200 * MIB);
    world.options.reclaim.law = history::reclaim::LINUX_5_16;
    let disk = Arc::clone(&world.disk);
    world.run(0, move |task, cache, file| {
        let mut writer = cache.writer();
        file.write(task, &mut writer, Bytes(0), &data(0, 2, 1))
            .unwrap();
        file.sync(task).unwrap();
        disk.state().fail_lengths = true;
        file.truncate(task, Bytes(512)).unwrap_err();
        disk.state().fail_lengths = false;
        // The last page goes, is read again, and cannot be replaced.
        let region = cache.spill(task, Pages(3000)).unwrap();
        region.touch(task, 0, 3000).unwrap_err();
        region.discard(task, 0, 3000).unwrap();
        let pin = file.pin(task, &mut Reader::default(), 0).unwrap();
        region.touch(task, 0, 3000).unwrap_err();
        let mut write =
            |task: &mut Task<'_>| file.write(task, &mut writer, Bytes(5 * 4096), &data(5, 1, 1));
        let refused = write(task);
        assert!(
            matches!(refused, Err(Error::OutOfMemory { .. })),
            "{refused:?}"
        );
        drop(region);
        task.sleep(Cause::Idle, Nanos::secs(1));
        drop(pin);
        write(task).unwrap();
        assert_cut_to_a_sector(task, file, 2);
        file.sync(task).unwrap();
    });
}

/// As many pins of one page as callers get leave it to be read, written, cut and pinned by one more
/// who waits for none of them.
#[test]
fn a_page_with_all_the_pins_there_are_is_read_written_and_cut() {
    let mut world = world(1024, 64 * MIB);
    world.options.pins_max = u32::MAX;
    world.run(0, |task, cache, file| {
        let mut writer = cache.writer();
        file.write(task, &mut writer, Bytes(0), &data(0, 2, 1))
            .unwrap();
        file.sync(task).unwrap();
        let mut pins = Vec::new();
        let refused = loop {
            match file.pin(task, &mut Reader::default(), 0) {
                Ok(pin) => pins.push(pin),
                Err(error) => break error,
            }
            assert!(pins.len() <= 1 << 16);
        };
        assert!(matches!(refused, Error::TooMany { .. }), "{refused:?}");
        assert!(file.try_pin(0).is_none());
        let mut back = data(0, 2, 9);
        file.read(task, &mut Reader::default(), Bytes(0), &mut back)
            .unwrap();
        assert_eq!(back, data(0, 2, 1));
        file.write(task, &mut writer, Bytes(0), &data(0, 1, 2))
            .unwrap();
        let pin = file.pin(task, &mut Reader::default(), 0).unwrap();
        file.truncate(task, Bytes(512)).unwrap();
        assert_eq!(cache.stats().pinned.0, pins.len() as u64 + 1);
        drop((pin, pins));
        assert_eq!(cache.stats().pinned, Pages(0));
    });
}

#[test]
fn the_last_page_of_the_largest_file_is_written() {
    let mut world = world(1024, 64 * MIB);
    world.run(0, |task, cache, file| {
        let end = u64::from(u32::MAX) << 12;
        file.truncate(task, Bytes(end)).unwrap();
        let mut writer = cache.writer();
        file.write(task, &mut writer, Bytes(end - 4096), &data(1, 1, 1))
            .unwrap();
        file.sync(task).unwrap();
        file.truncate(task, Bytes(0)).unwrap();
        file.sync(task).unwrap();
    });
}

/// A file that is cut while it is read ends where it was cut: an earlier read is no end of the
/// file.
#[test]
fn a_read_of_a_file_that_is_cut_ends_where_that_ends() {
    const PAGES: u32 = 600;
    const CUT: u64 = 200 * 4096 + 512;
    let mut world = world(1024, 16 * MIB);
    world.run(u64::from(PAGES) * 4096, |task, _, file| {
        let cut = {
            let file = Arc::clone(file);
            env::spawn(task.env(), "cutter", move |task| {
                task.sleep(Cause::Think, Nanos::millis(1));
                file.truncate(task, Bytes(CUT))
            })
        };
        let mut back = data(0, PAGES, 9);
        let read = file.read(task, &mut Reader::default(), Bytes(0), &mut back);
        assert_eq!(file.len(), Bytes(CUT), "it was cut meanwhile");
        assert_eq!(read.map(|got| got.bytes), Ok(Bytes(CUT)));
        cut.join(task).unwrap().unwrap();
    });
}

/// Writes that fail at their last page, which cannot be read, are held for the pages before it as
/// others are.
#[test]
fn writes_that_end_in_an_error_are_held_for_what_was_taken_in() {
    let mut world = world(16384, 4 * MIB).limits(1024, 512);
    let disk = Arc::clone(&world.disk);
    world.run(64 * MIB, move |task, cache, file| {
        disk.state().fail_reads = 0..u64::MAX;
        let mut writer = cache.writer();
        let chunk = vec![Sector(7); 3 * 8 + 1];
        for round in 0..3000 {
            let wrote = file.write(task, &mut writer, Bytes(round * 4 * 4096), &chunk);
            assert!(matches!(wrote, Err(Error::ReadFailed { .. })), "{wrote:?}");
            let stats = cache.stats();
            assert!(stats.dirty + stats.writeback <= Pages(1100), "{stats:?}");
        }
        disk.state().fail_reads = 0..0;
    });
}

/// A task that is inside a file that is closed, and was told that its write is taken in, finds it
/// on the device.
#[test]
fn a_write_beside_a_close_is_written_or_refused() {
    let mut world = world(4096, 16 * MIB);
    let disk = Arc::clone(&world.disk);
    let taken = world.run(300 * 4096, |task, cache, file| {
        let writing = {
            let (file, cache) = (file.clone_handle(), Arc::clone(cache));
            env::spawn(task.env(), "writer", move |task| {
                let mut writer = cache.writer();
                let mut taken = 0;
                // To the end, which is the file's.
                for write in 0_u32.. {
                    let page = write % 300;
                    let at = Bytes(u64::from(page) * 4096);
                    let content = data(page, 1, write / 300 + 1);
                    if file.write(task, &mut writer, at, &content).is_err() {
                        break;
                    }
                    taken = write + 1;
                    task.sleep(Cause::Think, Nanos::micros(50));
                }
                taken
            })
        };
        task.sleep(Cause::Think, Nanos::millis(5));
        file.close(task).unwrap();
        writing.join(task).unwrap()
    });
    assert!(taken > 100, "{taken}");
    let last = taken - 1;
    let place = (1, u64::from(last % 300));
    assert_eq!(
        disk.state().pages[&place][..],
        data(last % 300, 1, last / 300 + 1)
    );
    assert_eq!(disk.state().pages.len(), taken.min(300) as usize);
}

/// Pages behind the end of a file that is being cut are not available, though they are in the cache
/// still.
#[test]
fn pages_behind_the_end_are_not_pinned_while_a_file_is_cut() {
    let mut world = world(1024, MIB);
    world.run(0, |task, cache, file| {
        let mut writer = cache.writer();
        file.write(task, &mut writer, Bytes(0), &data(0, 4, 1))
            .unwrap();
        let under_way: Vec<_> = [true, false]
            .into_iter()
            .map(|cuts| {
                let file = Arc::clone(file);
                env::spawn(task.env(), "cutter", move |task| {
                    if cuts {
                        task.sleep(Cause::Think, Nanos::millis(1));
                        file.truncate(task, Bytes(0)).unwrap();
                    } else {
                        file.sync(task).unwrap();
                    }
                })
            })
            .collect();
        task.sleep(Cause::Think, Nanos::millis(2));
        assert_eq!(file.len(), Bytes(0));
        assert_eq!(cache.stats().cached, Pages(4), "their write is waited for");
        assert!(file.try_pin(2).is_none());
        assert!(file.pin(task, &mut Reader::default(), 2).is_err());
        for task_of in under_way {
            task_of.join(task).unwrap();
        }
    });
}

/// The part that a file grew by without a write has no space, also after a part of it is cut off
/// again.
#[test]
fn a_file_that_grew_and_was_cut_asks_for_space_when_it_is_written() {
    let mut world = world(1024, 64 * MIB);
    let disk = Arc::clone(&world.disk);
    world.run(0, move |task, cache, file| {
        let mut writer = cache.writer();
        file.truncate(task, Bytes(100 * 4096)).unwrap();
        file.sync(task).unwrap();
        file.truncate(task, Bytes(50 * 4096)).unwrap();
        disk.state().refuses_space = Some(IoError::NoSpace);
        let wrote = file.write(task, &mut writer, Bytes(20 * 4096), &data(20, 1, 1));
        assert!(matches!(
            wrote,
            Err(Error::MetadataFailed {
                what: "taking space on the device",
                cause: IoError::NoSpace
            })
        ));
    });
}

/// A file system that cannot take space ahead (NFS before 4.2, 9p) is written to all the same.
#[test]
fn a_device_that_cannot_allocate_is_written_to() {
    let mut world = world(1024, 64 * MIB);
    let disk = Arc::clone(&world.disk);
    world.run(0, move |task, cache, file| {
        disk.state().refuses_space = Some(IoError::Failed { errno: 95 });
        let mut writer = cache.writer();
        let pages = data(0, 20, 1);
        file.write(task, &mut writer, Bytes(0), &pages).unwrap();
        file.sync(task).unwrap();
        assert_eq!(disk.state().pages.len(), 20);
    });
}

/// Space that was asked for and is not there in full is given back, but for what the file needs.
#[test]
fn what_a_refused_allocation_took_is_given_back() {
    let mut world = world(1024, 64 * MIB);
    let disk = Arc::clone(&world.disk);
    world.run(0, move |task, cache, file| {
        let mut writer = cache.writer();
        let pages = data(0, 20, 1);
        file.write(task, &mut writer, Bytes(0), &pages).unwrap();
        disk.state().refuses_space = Some(IoError::NoSpace);
        disk.state().lengths.clear();
        let refused = Error::MetadataFailed {
            what: "taking space on the device",
            cause: IoError::NoSpace,
        };
        assert_eq!(file.allocate(task, Bytes(MIB)), Err(refused));
        // A length that is set again frees the space behind it; a length beyond the last does not.
        assert_eq!(disk.state().lengths, [20 * 4096, 20 * 4096]);
        let wrote = file.write(task, &mut writer, Bytes(20 * 4096), &data(20, 1, 1));
        assert_eq!(wrote, Err(refused), "its space ahead is gone, too");
        disk.state().refuses_space = None;
        file.allocate(task, Bytes(MIB)).unwrap();
        disk.state().refuses_space = Some(IoError::NoSpace);
        let all = data(20, 200, 1);
        file.write(task, &mut writer, Bytes(20 * 4096), &all)
            .unwrap();
        file.sync(task).unwrap();
        assert_eq!(disk.state().pages.len(), 220);
    });
}

/// A call for more than the window of read-ahead, wherever it begins: beyond the window pages
/// are read in windows, not one by one; beyond the call nothing is read, unless the reader is
/// sequential; also where it is made ready in parts.
#[test]
fn a_call_for_more_than_a_window_is_read_in_windows() {
    for (window, requests) in [(32, 40), (1, 30), (0, 30)] {
        let mut world = world(1024, 64 * MIB);
        world.options.readahead_max = Pages(window);
        let disk = Arc::clone(&world.disk);
        world.run(4096 * 4096, move |task, cache, file| {
            for page in [1024, 2500, 0] {
                let mut reader = Reader::default();
                let mut back = vec![Sector(1); 800 * 8];
                let before = disk.state().reads;
                let read_in = cache.stats().read_in;
                let offset = Pages(page).bytes();
                let got = file.read(task, &mut reader, offset, &mut back).unwrap();
                assert_eq!(got.bytes, Pages(800).bytes());
                assert!(back.iter().all(|sector| *sector == Sector(0)));
                let reads = disk.state().reads - before;
                assert!(reads < requests, "{reads} of window {window} at {page}");
                task.sleep(Cause::Think, Nanos::millis(100));
                let Pages(read) = cache.stats().read_in - read_in;
                assert_eq!(read, 800, "window {window} at {page}");
            }
            let read_in = cache.stats().read_in;
            let (mut reader, mut at, end) = (Reader::default(), 3500, 3500 + 264);
            while at < end {
                let (offset, left) = (Pages(at).bytes(), Pages(end - at).bytes());
                let mut part = vec![Sector(1); 8 * 8];
                let tried =
                    task.nonblocking(|task| file.read(task, &mut reader, offset, &mut part));
                let tried = tried.unwrap();
                if tried.would_block {
                    file.prepare_read(task, &mut reader, offset, left).unwrap();
                }
                at += tried.bytes.0 / 4096;
            }
            task.sleep(Cause::Think, Nanos::millis(100));
            let Pages(read) = cache.stats().read_in - read_in;
            assert_eq!(read, 264, "made ready with window {window}");
        });
    }
}

/// A truncation that the device refused is made up for before space is taken, not after.
#[test]
fn space_that_was_given_is_not_taken_by_a_truncation_of_before() {
    let mut world = world(1024, 64 * MIB);
    let disk = Arc::clone(&world.disk);
    world.run(40 * 4096, move |task, cache, file| {
        disk.state().fail_lengths = true;
        assert!(file.truncate(task, Bytes(20 * 4096)).is_err());
        assert!(file.allocate(task, Bytes(MIB)).is_err(), "it is owed still");
        disk.state().fail_lengths = false;
        file.allocate(task, Bytes(MIB)).unwrap();

        // The same with a task that is before it at the gate, which a sync has shut to set the
        // length.
        file.truncate(task, Bytes(30 * 4096)).unwrap();
        disk.state().fail_lengths = true;
        let now = task.now();
        disk.state().hangs = now..now + Nanos::secs(2);
        let (one, other) = (file.clone_handle(), file.clone_handle());
        let syncing = env::spawn(task.env(), "sync", move |task| one.sync(task));
        task.sleep(Cause::Think, Nanos::secs(1));
        let cutting = env::spawn(task.env(), "truncate", move |task| {
            other.truncate(task, Bytes(10 * 4096))
        });
        task.sleep(Cause::Think, Nanos::millis(1));
        assert!(file.allocate(task, Bytes(MIB)).is_err(), "it is owed again");
        assert!(syncing.join(task).unwrap().is_err());
        assert!(cutting.join(task).unwrap().is_err());
        disk.state().fail_lengths = false;
        file.allocate(task, Bytes(MIB)).unwrap();

        disk.state().refuses_space = Some(IoError::NoSpace);
        let mut writer = cache.writer();
        let pages = data(20, 200, 1);
        file.write(task, &mut writer, Bytes(20 * 4096), &pages)
            .unwrap();
        file.sync(task).unwrap();
    });
}

/// A sync of all files that is in one when that is taken out of the cache: the file's object is its
/// own until it has left.
#[test]
fn a_file_is_not_taken_out_beneath_a_sync_of_all() {
    let mut world = world(1024, 64 * MIB);
    let disk = Arc::clone(&world.disk);
    world.run(0, move |task, cache, file| {
        let mut writer = cache.writer();
        let pages = data(0, 20, 1);
        file.write(task, &mut writer, Bytes(0), &pages).unwrap();
        let syncing = {
            let cache = Arc::clone(cache);
            env::spawn(task.env(), "sync", move |task| cache.sync(task))
        };
        // Its pages are written by then, and the flush hangs.
        let now = task.now();
        disk.state().hangs = now + Nanos::millis(1)..now + Nanos::secs(9);
        task.sleep(Cause::Think, Nanos::secs(1));
        assert_eq!(disk.state().flushes, 0);
        assert_eq!(disk.state().pages.len(), 20);
        file.discard(task).unwrap();
        assert!(syncing.is_done(), "it is in the file");
        assert_eq!(syncing.join(task).unwrap(), Ok(()));
    });
}
