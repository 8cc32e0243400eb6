//! The library on real files: what is written is read, also by others, and the limit holds.

#![expect(clippy::cast_possible_truncation, reason = "patterns of bytes")]

use std::sync::Arc;

use tidegate::{Cache, Error, OpenOptions, Threshold};

use crate::dir::Dir;

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|at| (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8) ^ seed)
        .collect()
}

#[test]
fn a_file_larger_than_the_cache_comes_back_whole() {
    for uring in [true, false] {
        let dir = Dir::new(if uring { "uring" } else { "pool" });
        let path = dir.0.join("data");
        let cache = Cache::builder()
            .memory(16 << 20)
            .io_uring(uring)
            .build()
            .unwrap();
        let file = cache.open(&path, OpenOptions::new().create(true)).unwrap();
        let size = (64 << 20) + 1234;
        let data = pattern(size, 3);
        for (at, chunk) in data.chunks(300_007).enumerate() {
            assert_eq!(
                file.write_at(chunk, at as u64 * 300_007).unwrap(),
                chunk.len()
            );
        }
        assert_eq!(file.len(), size as u64);
        file.sync().unwrap();
        assert!(
            std::fs::read(&path).unwrap() == data,
            "the file on disk is what was written"
        );
        let mut back = vec![0; size + 10];
        assert_eq!(file.read_at(&mut back, 0).unwrap(), size);
        assert!(back[..size] == data);
        let stats = cache.stats();
        assert!(stats.cached + stats.metadata <= stats.limit);
        assert!(stats.reclaimed_total > 0);
        file.close().unwrap();
        cache.close().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), size as u64);
    }
}

/// A write may end where the file does, inside of a page; whatever becomes of the file's length
/// between two syncs, its bytes on the disk are the file's, to the last.
#[test]
fn what_is_synced_is_on_the_disk_to_the_byte() {
    for uring in [true, false] {
        let dir = Dir::new("to-the-byte");
        let path = dir.0.join("data");
        let cache = Cache::builder().memory(16 << 20).io_uring(uring);
        let cache = cache.build().unwrap();
        let file = cache.open(&path, OpenOptions::new().create(true)).unwrap();
        let mut model = Vec::new();
        let mut chance = 7_u64;
        let mut below = |most: u64| {
            chance = chance
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (chance >> 33) % most
        };
        for step in 0..600_u64 {
            // Half of all records end with a sector.
            let unit = if below(2) == 0 { 512 } else { 1 };
            let len = model.len() as u64;
            let at = len.saturating_sub(below(3) * below(6000)) / unit * unit;
            let more = (below(6000) + 1).next_multiple_of(unit);
            match below(10) {
                0 => {
                    let len = below(20_000) / unit * unit;
                    file.set_len(len).unwrap();
                    model.resize(len as usize, 0);
                }
                _ => {
                    let end = (at + more) as usize;
                    model.resize(model.len().max(end), 0);
                    let record = pattern(more as usize, step as u8);
                    file.write_at(&record, at).unwrap();
                    model[at as usize..end].copy_from_slice(&record);
                }
            }
            match below(4) {
                0 => file.sync().unwrap(),
                1 => file.sync_range(at, more).unwrap(),
                _ => continue,
            }
            let end = model.len().min((at + more) as usize);
            let range = end.min(at as usize)..end;
            let disk = std::fs::read(&path).unwrap();
            assert_eq!(disk.len(), model.len(), "step {step}");
            assert!(disk[range.clone()] == model[range], "step {step}");
        }
        file.sync().unwrap();
        assert!(std::fs::read(&path).unwrap() == model);
        file.close().unwrap();
        cache.close().unwrap();
    }
}

/// A commit that came back is on the disk, whatever other threads append and commit meanwhile.
#[test]
fn commits_of_many_threads_are_each_on_the_disk() {
    use std::os::unix::fs::FileExt as _;
    use std::sync::atomic::{AtomicU64, Ordering};

    for record in [512, 100] {
        let dir = Dir::new("commits");
        let path = dir.0.join("log");
        let cache = Cache::builder().memory(16 << 20).build().unwrap();
        let log = cache.open(&path, OpenOptions::new().create(true)).unwrap();
        let (disk, end) = (std::fs::File::open(&path).unwrap(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for own in 1..=8 {
                let (log, disk, end) = (&log, &disk, &end);
                scope.spawn(move || {
                    let mut back = vec![0; record];
                    for _ in 0..100 {
                        let at = end.fetch_add(record as u64, Ordering::Relaxed);
                        log.write_at(&vec![own; record], at).unwrap();
                        log.sync_range(at, record as u64).unwrap();
                        disk.read_exact_at(&mut back, at).unwrap();
                        assert!(back.iter().all(|byte| *byte == own), "at {at}");
                    }
                });
            }
        });
        log.sync().unwrap();
        assert_eq!(disk.metadata().unwrap().len(), end.into_inner());
    }
}

/// Nobody waits for a round of syncs that nobody carries out: the last of many committers end, too,
/// when no other comes after them.
#[test]
fn the_last_of_many_committers_end() {
    use std::sync::mpsc;
    use std::time::Duration;

    const THREADS: u8 = 16;

    let dir = Dir::new("committers");
    let cache = Cache::builder().memory(16 << 20).build().unwrap();
    let log = cache
        .open(dir.0.join("log"), OpenOptions::new().create(true))
        .unwrap();
    let log = Arc::new(log);
    log.write_at(&[0; 512 * THREADS as usize], 0).unwrap();
    for burst in 0..300 {
        let (ended, ends) = mpsc::channel();
        for own in 0..THREADS {
            let (log, ended) = (Arc::clone(&log), ended.clone());
            std::thread::spawn(move || {
                for _ in 0..10 {
                    log.write_at(&[own; 512], u64::from(own) * 512).unwrap();
                    log.sync_range(u64::from(own) * 512, 512).unwrap();
                }
                ended.send(()).unwrap();
            });
        }
        for left in (1..=THREADS).rev() {
            let end = ends.recv_timeout(Duration::from_secs(60));
            end.unwrap_or_else(|_| panic!("burst {burst}: {left} committers stand still"));
        }
    }
}

#[test]
fn threads_share_a_file_and_small_odd_writes_meet_in_pages() {
    let dir = Dir::new("threads");
    let cache = Cache::builder().memory(16 << 20).build().unwrap();
    let file = cache
        .open(dir.0.join("data"), OpenOptions::new().create(true))
        .unwrap();
    let file = Arc::new(file);
    let threads: Vec<_> = (0..4_u64)
        .map(|own| {
            let file = Arc::clone(&file);
            std::thread::spawn(move || {
                // Interleaved records of 100 bytes: every page is written by all threads.
                for record in 0..5000_u64 {
                    let place = (record * 4 + own) * 100;
                    file.write_at(&[own as u8 + 1; 100], place).unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let mut back = vec![0; 4 * 5000 * 100];
    assert_eq!(file.read_at(&mut back, 0).unwrap(), back.len());
    for (record, bytes) in back.chunks(100).enumerate() {
        assert!(
            bytes.iter().all(|byte| *byte == (record % 4) as u8 + 1),
            "record {record}"
        );
    }
    file.sync().unwrap();
}

#[test]
fn a_pin_keeps_its_bytes_while_others_write() {
    let dir = Dir::new("pin");
    let cache = Cache::builder().memory(16 << 20).build().unwrap();
    let file = cache
        .open(dir.0.join("data"), OpenOptions::new().create(true))
        .unwrap();
    file.write_at(&[1; 8192], 0).unwrap();
    let pin = file.pin(1).unwrap();
    file.write_at(&[2; 8192], 0).unwrap();
    assert!(pin.iter().all(|byte| *byte == 1));
    assert!(file.pin(1).unwrap().iter().all(|byte| *byte == 2));
    drop(pin);
    assert_eq!(cache.stats().pinned, 0);
}

#[test]
fn truncation_and_growth_read_as_they_should() {
    let dir = Dir::new("truncate");
    let path = dir.0.join("data");
    let cache = Cache::builder().memory(16 << 20).build().unwrap();
    let file = cache.open(&path, OpenOptions::new().create(true)).unwrap();
    file.write_at(&[7; 10_000], 0).unwrap();
    file.sync().unwrap();
    file.set_len(5_000).unwrap();
    file.set_len(9_000).unwrap();
    let mut back = vec![9; 10_000];
    assert_eq!(file.read_at(&mut back, 0).unwrap(), 9_000);
    assert!(back[..5_000].iter().all(|byte| *byte == 7));
    assert!(back[5_000..9_000].iter().all(|byte| *byte == 0));
    file.sync().unwrap();
    let on_disk = std::fs::read(&path).unwrap();
    assert!(on_disk == back[..9_000]);
}

#[test]
fn memory_of_dropped_files_goes_back_to_the_system() {
    let dir = Dir::new("trim");
    let cache = Cache::builder().memory(64 << 20).build().unwrap();
    for round in 0..3_u8 {
        let path = dir.0.join("data");
        let file = cache
            .open(&path, OpenOptions::new().create(true).truncate(true))
            .unwrap();
        let data = pattern(32 << 20, round);
        file.write_at(&data, 0).unwrap();
        file.sync().unwrap();
        assert!(std::fs::read(&path).unwrap() == data, "round {round}");
        file.close().unwrap();
        assert!(cache.trim() >= 24 << 20);
    }
}

#[test]
fn mistakes_are_named() {
    let cache = Cache::builder().memory(16 << 20).build().unwrap();
    let Err(error) = cache.open("/nowhere/at/all", OpenOptions::new().create(true)) else {
        panic!("there is no such directory");
    };
    assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
    assert!(matches!(
        Cache::builder().memory(1000).build(),
        Err(Error::LimitTooSmall { .. })
    ));
    let huge = Cache::builder().memory(1 << 50).build();
    assert!(matches!(huge, Err(Error::LimitTooLarge { .. })));
    let clone = cache.clone();
    cache.close().unwrap();
    let dir = Dir::new("closed");
    let file = clone.open(dir.0.join("data"), OpenOptions::new().create(true));
    assert!(matches!(file, Err(Error::Closed)));
    assert!(!dir.0.join("data").exists());
}

#[test]
fn a_writer_never_has_more_dirty_than_the_limit() {
    let dir = Dir::new("limit");
    let pages = policy::units::Pages(1024);
    let cache = Cache::builder()
        .memory(32 << 20)
        .dirty_limit(Threshold::Pages(pages))
        .background_limit(Threshold::Pages(policy::units::Pages(512)))
        .build()
        .unwrap();
    let file = cache
        .open(dir.0.join("data"), OpenOptions::new().create(true))
        .unwrap();
    let block = pattern(1 << 20, 1);
    for at in 0..128_u64 {
        file.write_at(&block, at << 20).unwrap();
        let stats = cache.stats();
        let level = stats.dirty + stats.writeback;
        assert!(level <= (1024 + 256) * 4096, "{level}");
    }
    file.sync().unwrap();
}

/// Space is taken for what is written, and not for the hole before it: a write at a wrong place
/// filled the disk.
#[test]
fn a_write_far_behind_the_end_leaves_a_hole() {
    use std::os::unix::fs::MetadataExt as _;
    const FAR: u64 = 1 << 40;
    for uring in [true, false] {
        let dir = Dir::new(if uring { "hole" } else { "hole-pool" });
        let path = dir.0.join("data");
        let builder = Cache::builder().memory(16 << 20).io_uring(uring);
        let cache = builder.build().unwrap();
        let file = cache.open(&path, OpenOptions::new().create(true)).unwrap();
        let data = pattern(8 << 20, 5);
        let places = [0, FAR + 100, FAR / 2];
        for at in places {
            assert_eq!(file.write_at(&data, at).unwrap(), data.len());
        }
        file.sync().unwrap();
        let on_disk = std::fs::metadata(&path).unwrap();
        assert_eq!(on_disk.len(), FAR + 100 + data.len() as u64);
        let taken = on_disk.blocks() * 512;
        assert!(
            (24 << 20..64 << 20).contains(&taken),
            "{taken} bytes on disk"
        );
        let mut page = vec![1; 4096];
        for at in places {
            assert_eq!(file.read_at(&mut page, at).unwrap(), 4096);
            assert!(page == data[..4096], "at {at}");
        }
        assert_eq!(file.read_at(&mut page, FAR / 4).unwrap(), 4096);
        assert!(page.iter().all(|byte| *byte == 0), "a hole reads as zeroes");
        drop(file);
        cache.close().unwrap();
    }
}
