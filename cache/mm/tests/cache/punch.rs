//! Holes: what reads, writes, write-back, syncs and failures beside one may and may not do.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{World, data, world};
use env::{Cause, IoError, Task};
use mm::{Cache, Error, File, Reader};
use policy::units::{Bytes, Nanos};
use world::Sector;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;

fn pages(count: u32) -> Bytes {
    Bytes(u64::from(count) * PAGE)
}

fn read_back(task: &mut Task<'_>, file: &File, first: u32, count: u32) -> Vec<Sector> {
    let mut back = vec![Sector(77); count as usize * 8];
    let got = file
        .read(task, &mut Reader::default(), pages(first), &mut back)
        .unwrap();
    assert_eq!(got.bytes, pages(count));
    back
}

fn write(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    file: &File,
    first: u32,
    count: u32,
    version: u32,
) {
    let mut writer = cache.writer();
    file.write(
        task,
        &mut writer,
        pages(first),
        &data(first, count, version),
    )
    .unwrap();
}

fn zeroes(count: u32) -> Vec<Sector> {
    vec![Sector(0); count as usize * 8]
}

#[test]
fn a_hole_reads_as_zeroes_and_its_dirty_pages_are_discarded() {
    let mut world = world(4096, 64 * MIB);
    let disk = Arc::clone(&world.disk);
    world.run(0, move |task, cache, file| {
        write(task, cache, file, 0, 64, 1);
        file.sync(task).unwrap();
        write(task, cache, file, 16, 16, 2);
        // From the middle of page 7 to the middle of page 40: pages 8 to 39.
        file.punch(task, Bytes(7 * PAGE + 100), Bytes(33 * PAGE))
            .unwrap();
        assert_eq!(cache.stats().discarded.0, 16);
        assert_eq!(cache.stats().dirty.0, 0);
        assert_eq!(file.len(), pages(64));
        assert_eq!(read_back(task, file, 0, 8), data(0, 8, 1));
        assert_eq!(read_back(task, file, 8, 32), zeroes(32));
        assert_eq!(read_back(task, file, 40, 24), data(40, 24, 1));
        // Pages that are written again are there, in part and as a whole.
        write(task, cache, file, 10, 1, 3);
        let mut writer = cache.writer();
        file.write(task, &mut writer, Bytes(12 * PAGE + 512), &[Sector(9)])
            .unwrap();
        file.sync(task).unwrap();
        assert_eq!(read_back(task, file, 10, 1), data(10, 1, 3));
        let mut part = zeroes(1);
        part[1] = Sector(9);
        assert_eq!(read_back(task, file, 12, 1), part);
    });
    let state = disk.state();
    assert!(state.pages.contains_key(&(1, 7)) && state.pages.contains_key(&(1, 40)));
    let left: Vec<u64> = (8..40)
        .filter(|page| state.pages.contains_key(&(1, *page)))
        .collect();
    assert_eq!(left, [10, 12]);
}

#[test]
fn a_range_without_a_whole_page_is_left_alone_and_an_end_inside_the_last_page_is_whole() {
    let mut world = world(4096, 64 * MIB);
    let disk = Arc::clone(&world.disk);
    world.run(0, move |task, cache, file| {
        let mut writer = cache.writer();
        file.write(task, &mut writer, Bytes(0), &[Sector(5); 20])
            .unwrap();
        file.punch(task, Bytes(1), Bytes(8000)).unwrap();
        file.punch(task, Bytes(0), Bytes(4095)).unwrap();
        file.punch(task, Bytes(1 << 40), Bytes(8192)).unwrap();
        assert_eq!(disk.state().discards, 0);
        assert_eq!(cache.stats().discarded.0, 0);
        // It ends in page 2, after 4 sectors.
        file.punch(task, Bytes(PAGE), Bytes(u64::MAX)).unwrap();
        assert_eq!(cache.stats().discarded.0, 2);
        assert_eq!(file.len(), Bytes(20 * 512));
        let mut back = vec![Sector(77); 20];
        file.read(task, &mut Reader::default(), Bytes(0), &mut back)
            .unwrap();
        let mut wanted = vec![Sector(5); 8];
        wanted.resize(20, Sector(0));
        assert_eq!(back, wanted);
    });
}

/// A read that was sent before the hole must not leave what it brings in the cache.
#[test]
fn a_read_that_began_before_does_not_put_old_content_back() {
    // A page takes 4 ms.
    let mut world = world(4096, MIB);
    world.run(0, move |task, cache, file| {
        write(task, cache, file, 0, 64, 1);
        file.sync(task).unwrap();
        file.discard(task).unwrap();
        let file = cache
            .open(
                task,
                policy::dirty::DeviceIndex(0),
                env::ObjectId(1),
                pages(64),
            )
            .unwrap();
        let reading = {
            let file = Arc::clone(&file);
            env::spawn(task.env(), "reader", move |task| {
                let mut back = zeroes(64);
                file.read(task, &mut Reader::default(), Bytes(0), &mut back)
                    .unwrap();
                back
            })
        };
        task.sleep(Cause::Think, Nanos::millis(5));
        assert!(!reading.is_done());
        file.punch(task, Bytes(0), pages(32)).unwrap();
        assert_eq!(read_back(task, &file, 0, 32), zeroes(32));
        let back = reading.join(task).unwrap();
        let is_old_or_zero = |(new, old): (&Sector, &Sector)| *new == Sector(0) || new == old;
        assert!(back.iter().zip(&data(0, 64, 1)).all(is_old_or_zero));
        assert_eq!(read_back(task, &file, 0, 32), zeroes(32));
        assert_eq!(read_back(task, &file, 32, 32), data(32, 32, 1));
    });
}

/// Nothing that was on its way to the device arrives after the hole.
#[test]
fn writeback_in_flight_does_not_fill_the_hole() {
    let mut world = world(4096, 4 * MIB);
    let disk = Arc::clone(&world.disk);
    world.run(0, move |task, cache, file| {
        write(task, cache, file, 0, 512, 1);
        let syncing = {
            let file = Arc::clone(file);
            env::spawn(task.env(), "sync", move |task| file.sync(task))
        };
        task.sleep(Cause::Think, Nanos::millis(20));
        assert!(cache.stats().writeback.0 > 0, "nothing was tried");
        let flushes = disk.state().flushes;
        file.punch(task, Bytes(0), pages(500)).unwrap();
        syncing.join(task).unwrap().unwrap();
        assert!(disk.state().flushes > flushes);
        file.sync(task).unwrap();
        assert_eq!(read_back(task, file, 0, 500), zeroes(500));
        assert_eq!(read_back(task, file, 500, 12), data(500, 12, 1));
        let state = disk.state();
        assert!((0..500).all(|page| !state.pages.contains_key(&(1, page))));
    });
}

/// Pages that are dirty when the device refuses are still there, and go to the device after all.
#[test]
fn a_device_that_cannot_punch_loses_nothing() {
    let mut world = world(4096, 64 * MIB);
    let disk = Arc::clone(&world.disk);
    disk.state().fail_discards = 0..1;
    disk.state().discard_errno = 95;
    world.run(0, move |task, cache, file| {
        write(task, cache, file, 0, 32, 1);
        file.sync(task).unwrap();
        write(task, cache, file, 8, 8, 2);
        let error = file.punch(task, Bytes(0), pages(32)).unwrap_err();
        assert!(error.is_unsupported(), "{error}");
        assert_eq!(cache.stats().discarded.0, 0);
        assert_eq!(cache.stats().dirty.0, 8);
        assert_eq!(read_back(task, file, 0, 8), data(0, 8, 1));
        assert_eq!(read_back(task, file, 8, 8), data(8, 8, 2));
        file.sync(task).unwrap();
        assert_eq!(disk.state().pages[&(1, 8)], data(8, 1, 2)[..]);
        // The next one works.
        file.punch(task, Bytes(0), pages(32)).unwrap();
        assert_eq!(read_back(task, file, 0, 32), zeroes(32));
    });
}

/// A hole that is half there when the device fails: zeroes or what was there, and from then on
/// always the same.
#[test]
fn a_hole_that_fails_in_the_middle_leaves_old_or_zero() {
    let mut world = world(4096, 64 * MIB);
    let disk = Arc::clone(&world.disk);
    disk.state().fail_discards = 0..1;
    disk.state().discard_errno = 5;
    world.run(0, move |task, cache, file| {
        write(task, cache, file, 0, 32, 1);
        file.sync(task).unwrap();
        write(task, cache, file, 8, 16, 2);
        let error = file.punch(task, Bytes(0), pages(32)).unwrap_err();
        let cause = IoError::Failed { errno: 5 };
        assert_eq!(
            error,
            Error::PunchFailed {
                offset: Bytes(0),
                cause
            }
        );
        assert!(!error.is_unsupported());
        assert_eq!(read_back(task, file, 0, 8), zeroes(8));
        assert_eq!(read_back(task, file, 8, 16), data(8, 16, 2));
        assert_eq!(read_back(task, file, 24, 8), data(24, 8, 1));
        file.sync(task).unwrap();
        assert_eq!(disk.state().pages[&(1, 8)], data(8, 1, 2)[..]);
    });
}

/// A pin is a snapshot, here too.
#[test]
fn a_pinned_page_keeps_what_its_holder_sees() {
    let mut world = world(4096, 64 * MIB);
    world.run(0, move |task, cache, file| {
        write(task, cache, file, 0, 8, 1);
        file.sync(task).unwrap();
        write(task, cache, file, 3, 1, 2);
        let (clean, dirty) = (
            file.pin(task, &mut Reader::default(), 1).unwrap(),
            file.pin(task, &mut Reader::default(), 3).unwrap(),
        );
        file.punch(task, Bytes(0), pages(8)).unwrap();
        let seen = |pin: &mm::Pinned<'_>| {
            let mut back = zeroes(1);
            pin.content()
                .copy_out(pin.pin(), 0, &mut (&mut back).into(), 0, 4096);
            back
        };
        assert_eq!(seen(&clean), data(1, 1, 1));
        assert_eq!(seen(&dirty), data(3, 1, 2));
        assert_eq!(read_back(task, file, 0, 8), zeroes(8));
        assert_eq!(cache.stats().dirty.0, 0);
        drop((clean, dirty));
        assert_eq!(cache.stats().pinned.0, 0);
    });
}

/// The last page counts as whole only as far as the file ends in it when the hole is made, not when
/// it was asked for.
#[test]
fn what_a_file_grows_by_while_a_hole_waits_for_the_gate_is_kept() {
    // A page takes 4 ms.
    let mut world = world(4096, MIB);
    let len = Bytes(PAGE + 3 * 512);
    world.run(len.0, move |task, cache, file| {
        let writing = {
            let (cache, file) = (Arc::clone(cache), Arc::clone(file));
            // The rest of the page has to be read, behind the gate.
            env::spawn(task.env(), "writer", move |task| {
                let mut writer = cache.writer();
                file.write(task, &mut writer, len, &[Sector(5); 5])
            })
        };
        task.sleep(Cause::Think, Nanos::millis(1));
        assert_eq!(file.len(), len, "it is being read");
        file.punch(task, Bytes(0), len).unwrap();
        writing.join(task).unwrap().unwrap();
        let mut wanted = zeroes(2);
        wanted[11..].fill(Sector(5));
        assert_eq!(read_back(task, file, 0, 2), wanted);
    });
}

/// A hole of a client that has ended goes no further than its step, and a sync of another waits for
/// that one: what another wrote in the rest of the range, and flushed, stays.
#[test]
fn a_hole_ends_with_its_client_and_a_sync_waits_for_its_step() {
    let mut world = world(4096, 64 * MIB);
    let disk = Arc::clone(&world.disk);
    // A step of 16 MiB takes 160 ms.
    disk.state().discard_rate = 100 * MIB;
    world.run(256 * MIB, move |task, cache, file| {
        let client = file.clone_handle();
        let punching = {
            let client = Arc::clone(&client);
            env::spawn(task.env(), "punch", move |task| {
                task.act_for(client.client());
                client.punch(task, Bytes(0), Bytes(256 * MIB))
            })
        };
        let far = 200 * 256;
        task.sleep(Cause::Think, Nanos::millis(200));
        client.end();
        write(task, cache, file, far, 8, 7);
        // Between a step's beginning and its end: this sync ends behind it.
        file.sync(task).unwrap();
        let discards = disk.state().discards;
        assert!((1..4).contains(&discards), "{discards}");
        assert!(disk.state().pages.contains_key(&(1, u64::from(far))));
        assert_eq!(punching.join(task).unwrap(), Err(Error::Cancelled));
        task.sleep(Cause::Think, Nanos::secs(5));
        assert_eq!(disk.state().discards, discards, "nothing more is punched");
        assert_eq!(read_back(task, file, far, 8), data(far, 8, 7));
        // The handle is good for nothing that changes, and for all else.
        task.act_for(client.client());
        let refused = client.write(task, &mut cache.writer(), Bytes(0), &data(0, 1, 1));
        assert_eq!(refused, Err(Error::Cancelled));
        assert_eq!(read_back(task, &client, far, 8), data(far, 8, 7));
        client.sync(task).unwrap();
    });
}

/// The rest of a long write of a client that has ended is not written.
#[test]
fn a_write_ends_with_its_client_and_a_sync_waits_for_its_batch() {
    let mut world = world(4096, 16 * MIB).limits(512, 256);
    let disk = Arc::clone(&world.disk);
    world.run(64 * MIB, move |task, cache, file| {
        let client = file.clone_handle();
        let writing = {
            let (client, cache) = (Arc::clone(&client), Arc::clone(cache));
            env::spawn(task.env(), "writer", move |task| {
                task.act_for(client.client());
                let all = data(0, 64 * 256, 3);
                client.write(task, &mut cache.writer(), Bytes(0), &all)
            })
        };
        task.sleep(Cause::Think, Nanos::secs(1));
        assert!(!writing.is_done());
        client.end();
        let far = 63 * 256;
        write(task, cache, file, far, 8, 7);
        file.sync(task).unwrap();
        // With what it took in while that one ended.
        file.sync(task).unwrap();
        let is_there = |page| disk.state().pages.contains_key(&(1, page));
        let written = (0..64 * 256).filter(|page| is_there(*page)).count();
        assert_eq!(writing.join(task).unwrap(), Err(Error::Cancelled));
        task.sleep(Cause::Think, Nanos::secs(10));
        file.sync(task).unwrap();
        let later = (0..64 * 256).filter(|page| is_there(*page)).count();
        assert_eq!(later, written, "nothing more is written");
        assert_eq!(read_back(task, file, far, 8), data(far, 8, 7));
    });
}

/// A write that the device does not answer keeps a hole over it waiting, and no writer elsewhere.
#[test]
fn writers_do_not_wait_for_what_a_hole_waits_for() {
    let mut world = world(4096, 64 * MIB);
    let disk = Arc::clone(&world.disk);
    let device = Arc::clone(&disk);
    world.run(0, move |task, cache, file| {
        write(task, cache, file, 0, 64, 1);
        file.sync(task).unwrap();
        write(task, cache, file, 4, 1, 2);
        let began = task.now();
        device.state().hangs = began..began + Nanos::secs(60);
        let syncing = {
            let file = Arc::clone(file);
            env::spawn(task.env(), "sync", move |task| file.sync(task))
        };
        task.sleep(Cause::Think, Nanos::millis(1));
        assert_eq!(cache.stats().writeback.0, 1, "nothing was tried");
        let punching = {
            let file = Arc::clone(file);
            env::spawn(task.env(), "punch", move |task| {
                file.punch(task, Bytes(0), pages(8))
            })
        };
        task.sleep(Cause::Think, Nanos::millis(1));
        write(task, cache, file, 32, 1, 3);
        // In the hole that is not there yet: it may be lost, as a whole.
        write(task, cache, file, 2, 1, 3);
        let took = task.now().since(began);
        assert!(took < Nanos::secs(1), "writers waited {took:?}");
        assert!(!punching.is_done());
        punching.join(task).unwrap().unwrap();
        assert!(task.now().since(began) >= Nanos::secs(60));
        write(task, cache, file, 6, 1, 4);
        syncing.join(task).unwrap().unwrap();
        file.sync(task).unwrap();
        assert_eq!(read_back(task, file, 0, 6), zeroes(6));
        assert_eq!(read_back(task, file, 6, 1), data(6, 1, 4));
        assert_eq!(read_back(task, file, 7, 1), zeroes(1));
        assert_eq!(read_back(task, file, 8, 24), data(8, 24, 1));
        assert_eq!(read_back(task, file, 32, 1), data(32, 1, 3));
    });
    let state = disk.state();
    assert!(!state.pages.contains_key(&(1, 4)), "old content came late");
}

/// Where a page of the hole is written and synced again and again, the hole is made all the same.
#[test]
fn a_hole_beside_endless_syncs_of_a_page_in_it_is_made() {
    // A page takes 4 ms.
    let mut world = world(4096, MIB);
    world.run(0, move |task, cache, file| {
        write(task, cache, file, 0, 8, 1);
        file.sync(task).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let writing: Vec<_> = (0..3)
            .map(|_| {
                let (cache, file) = (Arc::clone(cache), Arc::clone(file));
                let over = Arc::clone(&over);
                env::spawn(task.env(), "writer", move |task| {
                    while !over.load(Ordering::Relaxed) {
                        write(task, &cache, &file, 3, 1, 2);
                        file.sync(task).unwrap();
                    }
                })
            })
            .collect();
        task.sleep(Cause::Think, Nanos::millis(10));
        for _ in 0..20 {
            let began = task.now();
            file.punch(task, Bytes(0), pages(8)).unwrap();
            let took = task.now().since(began);
            assert!(took < Nanos::millis(500), "the hole took {took:?}");
        }
        over.store(true, Ordering::Relaxed);
        for writer in writing {
            writer.join(task).unwrap();
        }
    });
}

/// A device that discards slowly keeps writers of other pages waiting for a part, not for the whole
/// hole.
#[test]
fn writers_get_their_turn_between_the_parts_of_a_hole() {
    let mut world = world(4096, 64 * MIB);
    let disk = Arc::clone(&world.disk);
    world.run(0, move |task, cache, file| {
        let last = 1 << 16;
        write(task, cache, file, last, 1, 1);
        file.sync(task).unwrap();
        // 256 MiB: 0.8 s.
        disk.state().discard_rate = 320 * MIB;
        let punching = {
            let file = Arc::clone(file);
            env::spawn(task.env(), "punch", move |task| {
                file.punch(task, Bytes(0), pages(last))
            })
        };
        task.sleep(Cause::Think, Nanos::millis(1));
        let (mut longest, mut count) = (Nanos::ZERO, 0);
        while !punching.is_done() {
            let began = task.now();
            write(task, cache, file, last, 1, 2);
            longest = longest.max(task.now().since(began));
            count += 1;
            task.sleep(Cause::Think, Nanos::millis(1));
        }
        punching.join(task).unwrap().unwrap();
        assert!(longest < Nanos::millis(200), "a write took {longest:?}");
        assert!(count >= 8, "{count} writes came through");
    });
}

/// Each page of a hole beside writers is zeroes or the version that is written beside it, as a
/// whole.
#[test]
fn writers_beside_holes_win_or_lose_page_by_page() {
    let mut world = world(1024, 64 * MIB).limits(200, 100);
    world.run(0, move |task, cache, file| {
        for number in 0..20 {
            write(task, cache, file, number * 20, 20, 1);
        }
        let over = Arc::new(AtomicBool::new(false));
        let writing: Vec<_> = (0..3_u32)
            .map(|number| {
                let (cache, file) = (Arc::clone(cache), Arc::clone(file));
                let over = Arc::clone(&over);
                env::spawn(task.env(), "writer", move |task| {
                    for round in 0.. {
                        if over.load(Ordering::Relaxed) {
                            return;
                        }
                        let first = (round * 37 + number * 101) % 400;
                        write(task, &cache, &file, first, 20, 1 + number);
                    }
                })
            })
            .collect();
        for round in 0..200_u32 {
            let first = round * 53 % 300;
            file.punch(task, pages(first), pages(64)).unwrap();
            task.sleep(Cause::Think, Nanos::micros(u64::from(round % 7) * 300));
            if round % 10 == 0 {
                file.sync(task).unwrap();
            }
        }
        over.store(true, Ordering::Relaxed);
        for writer in writing {
            writer.join(task).unwrap();
        }
        assert!(cache.stats().discarded.0 > 100, "{:?}", cache.stats());
        file.punch(task, pages(100), pages(50)).unwrap();
        file.sync(task).unwrap();
        assert_eq!(read_back(task, file, 100, 50), zeroes(50));
        for page in 0..400 {
            let back = read_back(task, file, page, 1);
            let fits = (1..4).any(|version| back == data(page, 1, version));
            assert!(fits || back == zeroes(1), "page {page}: {back:?}");
        }
    });
}

#[test]
fn unwritten_pages_are_told_while_dirty_and_while_they_are_written() {
    // A page takes 1 ms.
    let mut world = world(4096, 4 * MIB);
    world.run(0, move |task, cache, file| {
        write(task, cache, file, 0, 100, 1);
        file.sync(task).unwrap();
        let all = |task: &Task<'_>, from: u32| {
            let found = file.next_unwritten(task, pages(from), Bytes(u64::MAX));
            found.map(|(at, len)| (at.0 / PAGE, len.0 / PAGE))
        };
        assert_eq!(all(task, 0), None);
        write(task, cache, file, 10, 5, 2);
        write(task, cache, file, 20, 1, 2);
        assert_eq!(all(task, 0), Some((10, 5)));
        assert_eq!(all(task, 12), Some((12, 3)));
        assert_eq!(all(task, 15), Some((20, 1)));
        assert_eq!(all(task, 21), None);
        let until = file.next_unwritten(task, pages(0), Bytes(12 * PAGE + 1));
        assert_eq!(until, Some((pages(10), pages(3))));
        let syncing = {
            let file = Arc::clone(file);
            env::spawn(task.env(), "sync", move |task| file.sync(task))
        };
        task.sleep(Cause::Think, Nanos::millis(2));
        assert!(cache.stats().writeback.0 > 0, "nothing was tried");
        assert_eq!(all(task, 20), Some((20, 1)));
        syncing.join(task).unwrap().unwrap();
        assert_eq!(all(task, 0), None);
    });
}

/// Random writes, holes, cuts, syncs and failures against a model of sectors, in a cache that is
/// too small for the file.
#[test]
fn a_file_with_holes_is_what_a_model_says() {
    for seed in 1..=60 {
        against_a_model(world(512, 200 * MIB).limits(120, 60), seed);
    }
}

fn against_a_model(mut world: World, seed: u64) {
    const SECTORS: usize = 8 * 800;
    let disk = Arc::clone(&world.disk);
    let device = Arc::clone(&disk);
    let model = world.run(0, move |task, cache, file| {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut random = move |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % below as u64).unwrap()
        };
        let mut model: Vec<Sector> = Vec::new();
        let mut writer = cache.writer();
        let mut reader = Reader::default();
        for step in 1..400_u32 {
            let at = random(SECTORS);
            let most = if random(4) == 0 { 600 } else { 20 };
            let len = 1 + random(most);
            match random(10) {
                0..=3 => {
                    let data = vec![Sector(step); len];
                    file.write(task, &mut writer, Bytes(at as u64 * 512), &data)
                        .unwrap();
                    model.resize(model.len().max(at + len), Sector(0));
                    model[at..at + len].copy_from_slice(&data);
                }
                4 | 5 => {
                    if random(4) == 0 {
                        let mut disk = device.state();
                        disk.discard_errno = if random(2) == 0 { 95 } else { 5 };
                        disk.fail_discards = disk.discards..disk.discards + 1;
                    }
                    let result = file.punch(task, Bytes(at as u64 * 512), Bytes(len as u64 * 512));
                    let end = match at + len {
                        end if end >= model.len() => model.len(),
                        end => end / 8 * 8,
                    };
                    let first = at.div_ceil(8) * 8;
                    if first < end {
                        let hole = &mut model[first..end];
                        if result.is_ok() {
                            hole.fill(Sector(0));
                        } else {
                            // Old or zero, and what it is now it stays.
                            let mut back = vec![Sector(77); hole.len()];
                            file.read(task, &mut reader, Bytes(first as u64 * 512), &mut back)
                                .unwrap();
                            for (old, new) in hole.iter_mut().zip(back) {
                                assert!(new == *old || new == Sector(0), "seed {seed} step {step}");
                                *old = new;
                            }
                        }
                    } else {
                        result.unwrap();
                    }
                }
                6 => {
                    file.truncate(task, Bytes(at as u64 * 512)).unwrap();
                    model.resize(at, Sector(0));
                }
                7 => file.sync(task).unwrap(),
                8 => {
                    task.sleep(Cause::Think, Nanos::millis(random(50) as u64));
                }
                _ => {
                    let mut back = vec![Sector(77); len];
                    let got = file
                        .read(task, &mut reader, Bytes(at as u64 * 512), &mut back)
                        .unwrap();
                    let end = model.len().min(at + len);
                    let wanted = model.get(at..end).unwrap_or_default();
                    assert_eq!(
                        got.bytes.0,
                        wanted.len() as u64 * 512,
                        "seed {seed} step {step}"
                    );
                    assert_eq!(&back[..wanted.len()], wanted, "seed {seed} step {step}");
                }
            }
        }
        file.sync(task).unwrap();
        model
    });
    let state = disk.state();
    assert!(state.discards > 20, "only {} holes", state.discards);
    for (page, wanted) in (0..).zip(model.chunks(8)) {
        let found = state.pages.get(&(1, page)).copied().unwrap_or_default();
        assert_eq!(
            found[..wanted.len()],
            *wanted,
            "seed {seed} page {page} on the disk"
        );
    }
}
