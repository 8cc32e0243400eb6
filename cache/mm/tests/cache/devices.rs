//! Several devices: what one of them does to the others.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{Disk, data, world};
use env::{Cause, Device, DeviceInfo, Host, Interrupt, IoOp, IoRequest, ObjectId, Task};
use mm::{Cache, DeviceOptions, Error, ErrorPolicy, File, Health};
use policy::dirty::DeviceIndex;
use policy::units::{Bytes, Instant, Nanos, Pages};
use policy::writeback::{Flight, FlushTunables};

const MIB: u64 = 1 << 20;

/// A disk that takes writes and does nothing with them for a while.
struct Hanging {
    disk: Arc<Disk>,
    host: Arc<dyn Host>,
    from: Instant,
    until: Instant,
    #[expect(clippy::vec_box, reason = "requests travel as boxes")]
    held: Arc<Mutex<Vec<Box<IoRequest>>>>,
    armed: AtomicBool,
    most: Mutex<usize>,
}

impl Device for Hanging {
    fn submit(&self, request: Box<IoRequest>) {
        let now = self.host.now();
        if request.op != IoOp::Write || now < self.from || now >= self.until {
            self.disk.submit(request);
            return;
        }
        let count = {
            let mut held = self.held.lock().unwrap();
            held.push(request);
            held.len()
        };
        let mut most = self.most.lock().unwrap();
        *most = count.max(*most);
        if !self.armed.swap(true, Ordering::Relaxed) {
            let (held, disk) = (Arc::clone(&self.held), Arc::clone(&self.disk));
            let goes_on = move |_: &Interrupt| {
                let held = core::mem::take(&mut *held.lock().unwrap());
                held.into_iter().for_each(|request| disk.submit(request));
            };
            self.host.at(self.until, Box::new(goes_on));
        }
    }

    fn info(&self) -> DeviceInfo {
        self.disk.info()
    }
}

/// Pages that writers of single pages got written to a good disk in 30 s, and the most requests
/// that the disk beside it held while it hung for that long.
fn written_beside(hangs: bool) -> (Pages, usize) {
    let mut world = world(32768, 200 * MIB);
    world.disk.keep(false);
    let other = Disk::new(&world.lab, 200 * MIB);
    other.keep(false);
    let seconds = |at| Instant(Nanos::secs(at).0);
    let beside = Arc::new(Hanging {
        disk: other,
        host: world.lab.host(),
        from: seconds(2),
        until: seconds(32),
        held: Arc::default(),
        armed: AtomicBool::new(false),
        most: Mutex::new(0),
    });
    let id = world.lab.add_device(Arc::clone(&beside) as Arc<dyn Device>);
    let info = beside.info();
    let written = world.run(0, move |task, cache, good| {
        let device = cache
            .add_device(task, id, info, DeviceOptions::default())
            .unwrap();
        let bad = cache.open(task, device, ObjectId(1), Bytes(0)).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let mut writing = Vec::new();
        for (file, used) in [(Arc::clone(good), true), (bad, hangs)] {
            for number in (0..4_u32).filter(|_| used) {
                let (cache, file) = (Arc::clone(cache), Arc::clone(&file));
                let over = Arc::clone(&over);
                writing.push(env::spawn(task.env(), "writer", move |task| {
                    let mut writer = cache.writer();
                    // Every other page, so that no two go out in one request.
                    for at in (0_u32..).map(|round| (round * 4 + number) % 100_000 * 2) {
                        if over.load(Ordering::Relaxed) {
                            break;
                        }
                        let offset = Bytes(u64::from(at) * 4096);
                        file.write(task, &mut writer, offset, &data(at, 1, 1))
                            .unwrap();
                    }
                }));
            }
        }
        task.sleep(Cause::Think, Nanos::secs(2));
        let before = cache.device_stats()[0].written;
        task.sleep(Cause::Think, Nanos::secs(30));
        let after = cache.device_stats()[0].written;
        over.store(true, Ordering::Relaxed);
        for writer in writing {
            writer.join(task).unwrap();
        }
        Pages(after.0 - before.0)
    });
    let most = *beside.most.lock().unwrap();
    (written, most)
}

/// A disk that hangs keeps what it was given: requests too. Its neighbour needs some.
#[test]
fn a_disk_that_hangs_leaves_requests_to_its_neighbour() {
    let (alone, _) = written_beside(false);
    let (beside, held) = written_beside(true);
    assert!(held > 100, "only {held} requests: nothing was tried");
    assert!(
        beside.0 * 10 >= alone.0 * 9,
        "{beside:?} beside a disk that hangs, {alone:?} alone"
    );
}

/// A disk that hangs, fails, or cannot be flushed says so, with why and for how long.
#[test]
fn how_a_disk_does_is_told() {
    let mut world = world(4096, 64 * MIB);
    world.device.on_error = ErrorPolicy::Retry;
    let disk = Arc::clone(&world.disk);
    let hanging = Arc::new(Hanging {
        disk: Disk::new(&world.lab, 64 * MIB),
        host: world.lab.host(),
        from: Instant::ZERO,
        until: Instant(Nanos::secs(60).0),
        held: Arc::default(),
        armed: AtomicBool::new(false),
        most: Mutex::new(0),
    });
    let id = world
        .lab
        .add_device(Arc::clone(&hanging) as Arc<dyn Device>);
    let info = hanging.info();
    world.run(0, move |task, cache, file| {
        let device = cache
            .add_device(task, id, info, DeviceOptions::default())
            .unwrap();
        let bad = cache.open(task, device, ObjectId(1), Bytes(0)).unwrap();
        let mut writer = cache.writer();
        bad.write(task, &mut writer, Bytes(0), &data(0, 4, 1))
            .unwrap();
        let syncing = {
            let bad = Arc::clone(&bad);
            env::spawn(task.env(), "sync", move |task| bad.sync(task))
        };
        task.sleep(Cause::Think, Nanos::secs(4));
        let health = |at: usize| cache.device_stats()[at].health;
        assert_eq!(health(1), Health::Working, "not for seconds yet");
        task.sleep(Cause::Think, Nanos::secs(26));
        let since = Nanos::secs(30);
        assert_eq!(health(1), Health::Stalled { since });
        assert_eq!(cache.device_stats()[1].requests, 1);
        syncing.join(task).unwrap().unwrap();
        assert_eq!(health(1), Health::Working);

        let cause = env::IoError::Failed { errno: 5 };
        disk.state().fail_writes = 0..1000;
        file.write(task, &mut writer, Bytes(8192), &data(2, 1, 1))
            .unwrap();
        file.sync(task).unwrap_err();
        task.sleep(Cause::Think, Nanos::secs(3));
        let stats = cache.device_stats()[0];
        let Health::Retrying { since, .. } = stats.health else {
            panic!("{:?}", stats.health);
        };
        assert!(
            since >= Nanos::secs(3) && since < Nanos::secs(4),
            "{since:?}"
        );
        let failed = Error::WriteFailed {
            offset: Bytes(8192),
            cause,
        };
        assert_eq!(
            (stats.first_error, stats.last_error),
            (Some(failed), Some(failed))
        );
        assert!(stats.errors > 0 && stats.write_failed.0 > 0);
        disk.state().fail_writes = 0..0;
        disk.state().fail_flushes = true;
        file.sync(task).unwrap_err();
        let stats = cache.device_stats()[0];
        assert_eq!(stats.health, Health::FlushFailed { cause });
        assert_eq!(stats.first_error, Some(failed));
        assert_eq!(stats.last_error, Some(Error::FlushFailed { cause }));
        disk.state().fail_flushes = false;
        cache.reopen_device(task, DeviceIndex(0));
        let stats = cache.device_stats()[0];
        assert_eq!((stats.health, stats.first_error), (Health::Working, None));
        // Told once more to the task that was not told; then all is well.
        let _ = file.sync(task);
        file.sync(task).unwrap();
    });
}

/// A disk whose first flush ends in a panic.
struct Panics {
    disk: Arc<Disk>,
    flushed: AtomicBool,
}

impl Device for Panics {
    fn submit(&self, request: Box<IoRequest>) {
        let is_first = request.op == IoOp::Flush && !self.flushed.swap(true, Ordering::Relaxed);
        assert!(!is_first, "a mistake in a device");
        self.disk.submit(request);
    }

    fn info(&self) -> DeviceInfo {
        self.disk.info()
    }
}

/// It panics in the call that asked for it; the next sync asks again, and waits for nobody.
#[test]
fn a_flush_that_panics_is_over() {
    let mut world = world(4096, 64 * MIB);
    let panics = Arc::new(Panics {
        disk: Disk::new(&world.lab, 64 * MIB),
        flushed: AtomicBool::new(false),
    });
    let id = world.lab.add_device(Arc::clone(&panics) as Arc<dyn Device>);
    let info = panics.info();
    world.run(0, move |task, cache, _| {
        let device = DeviceOptions::default();
        let device = cache.add_device(task, id, info, device).unwrap();
        let file = cache.open(task, device, ObjectId(1), Bytes(0)).unwrap();
        let mut writer = cache.writer();
        file.write(task, &mut writer, Bytes(0), &data(0, 4, 1))
            .unwrap();
        let sync = std::panic::AssertUnwindSafe(|| file.sync(task));
        assert!(std::panic::catch_unwind(sync).is_err());
        file.sync(task).unwrap();
    });
}

#[test]
fn a_disk_that_fails_by_turns_does_not_work_until_a_minute_without() {
    let mut world = world(4096, MIB);
    world.device.on_error = ErrorPolicy::Retry;
    let disk = Arc::clone(&world.disk);
    world.run(0, move |task, cache, file| {
        let mut writer = cache.writer();
        let health = || cache.device_stats()[0].health;
        let begun = task.now();
        for round in 0..40 {
            file.write(task, &mut writer, Bytes(0), &data(0, 4, round))
                .unwrap();
            disk.state().fail_writes = 0..1000;
            file.sync(task).unwrap_err();
            disk.state().fail_writes = 0..0;
            while file.sync(task).is_err() {}
            task.sleep(Cause::Think, Nanos::millis(500));
            let is_working = health() == Health::Working;
            let since = task.now().since(begun);
            assert!(
                is_working || since > Nanos::secs(5),
                "an outage that is over"
            );
            assert!(
                !is_working || since < Nanos::secs(15),
                "it failed a moment ago"
            );
        }
        let Health::Retrying { since, .. } = health() else {
            panic!("{:?}", health());
        };
        assert!(since > Nanos::secs(5), "{since:?}");
        task.sleep(Cause::Think, Nanos::secs(35));
        assert_ne!(health(), Health::Working);
        task.sleep(Cause::Think, Nanos::secs(30));
        assert_eq!(health(), Health::Working);
    });
}

/// The most that a slow disk held in the second minute beside a quick one whose writer writes a
/// little, syncs and rests; in MiB, of a limit of 24.
fn held_beside_bursts(rest: Nanos) -> u64 {
    let mut world = world(32768, MIB).limits(24 * 256, 12 * 256);
    world.disk.keep(false);
    let quick = Disk::new(&world.lab, 64 * MIB);
    quick.keep(false);
    let id = world.lab.add_device(Arc::clone(&quick) as Arc<dyn Device>);
    let info = quick.info();
    world.run(0, move |task, cache, slow| {
        let device = cache
            .add_device(task, id, info, DeviceOptions::default())
            .unwrap();
        let quick = cache.open(task, device, ObjectId(1), Bytes(0)).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let writer = |file: &Arc<File>, pages: u32, rest: Option<Nanos>, start: Nanos| {
            let (cache, file, over) = (Arc::clone(cache), Arc::clone(file), Arc::clone(&over));
            env::spawn(task.env(), "writer", move |task| {
                let mut writer = cache.writer();
                task.sleep(Cause::Think, start);
                for round in 0_u32.. {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    let at = round * pages % 16_384;
                    let offset = Bytes(u64::from(at) * 4096);
                    file.write(task, &mut writer, offset, &data(at, pages, 1))
                        .unwrap();
                    if let Some(rest) = rest {
                        file.sync(task).unwrap();
                        task.sleep(Cause::Think, rest);
                    }
                }
            })
        };
        let bursts = writer(&quick, 512, Some(rest), Nanos::ZERO);
        let steady = writer(slow, 16, None, Nanos::secs(3));
        let mut most = 0;
        // While its rate is not known the slow one is taken for better than it is.
        task.sleep(Cause::Think, Nanos::secs(60));
        for _ in 0..600 {
            task.sleep(Cause::Think, Nanos::millis(100));
            let slow = cache.device_stats()[0];
            most = most.max(slow.dirty.0 + slow.writeback.0);
        }
        over.store(true, Ordering::Relaxed);
        bursts.join(task).unwrap();
        steady.join(task).unwrap();
        most / 256
    })
}

/// A moment in which a quick disk holds nothing is not the end of its work: a slow one beside it,
/// which would need minutes to give back what it took, keeps to its part. That is a quarter of the
/// target in halves, and little by rate.
#[test]
fn a_slow_disk_does_not_take_the_part_of_one_that_is_written_in_bursts() {
    for rest in [Nanos::millis(300), Nanos::secs(5), Nanos::secs(20)] {
        let most = held_beside_bursts(rest);
        assert!(most <= 4, "{most} MiB of 24 with rests of {rest:?}");
    }
    let most = held_beside_bursts(Nanos::secs(50));
    assert!(most > 12, "{most} MiB of 24: the quick one is not there");
}

/// Reads 32 MiB of a file and writes a quarter of them; answers how long it took.
fn read_and_write(task: &mut Task<'_>, cache: &Arc<Cache>, file: &Arc<File>) -> Nanos {
    let began = task.now();
    let mut reader = mm::Reader::default();
    let mut writer = cache.writer();
    let mut chunk = vec![world::Sector(0); 2048];
    for mib in 0..32 {
        file.read(task, &mut reader, Bytes(mib * MIB), &mut chunk)
            .unwrap();
        let at = u32::try_from(mib * 256).unwrap();
        file.write(task, &mut writer, Bytes(mib * MIB), &data(at, 64, 1))
            .unwrap();
    }
    task.now().since(began)
}

/// A disk that hangs on reads, with readers enough to fill memory: what they and their read-ahead
/// have under way is bounded, so that the disk beside it is read and written as ever; and it is
/// seen to be stalled.
#[test]
fn a_disk_that_hangs_on_reads_holds_no_more_than_its_part_of_memory() {
    const FRAMES: u32 = 4096;
    let mut world = world(FRAMES, 200 * MIB);
    world.disk.keep(false);
    let hangs = Disk::new(&world.lab, 200 * MIB);
    hangs.keep(false);
    hangs.state().hangs = Instant(Nanos::secs(1).0)..Instant(Nanos::secs(61).0);
    let id = world.lab.add_device(Arc::clone(&hangs) as Arc<dyn Device>);
    let info = hangs.info();
    world.run(64 * MIB, move |task, cache, good| {
        let device = cache
            .add_device(task, id, info, DeviceOptions::default())
            .unwrap();
        let bad = cache
            .open(task, device, ObjectId(1), Bytes(64 * MIB))
            .unwrap();
        task.sleep(Cause::Think, Nanos::secs(2));
        let readers: Vec<_> = (0..64_u64)
            .map(|number| {
                let bad = Arc::clone(&bad);
                env::spawn(task.env(), "reader", move |task| {
                    let mut reader = mm::Reader::default();
                    let mut chunk = vec![world::Sector(0); 2048];
                    bad.read(task, &mut reader, Bytes(number * MIB), &mut chunk)
                })
            })
            .collect();
        task.sleep(Cause::Think, Nanos::secs(10));
        let held = cache.stats().cached.0;
        assert!(held > 0, "they read");
        assert!(held <= u64::from(FRAMES) / 8, "{held} pages of {FRAMES}");
        let Health::Stalled { since } = cache.device_stats()[1].health else {
            panic!("{:?}", cache.device_stats()[1].health);
        };
        assert!(since >= Nanos::secs(9), "{since:?}");
        let took = read_and_write(task, cache, good);
        assert!(took < Nanos::secs(1), "40 MiB at 200 MiB/s in {took:?}");
        for reader in readers {
            let read = reader.join(task).unwrap();
            assert_eq!(read.map(|got| got.bytes), Ok(Bytes(MIB)));
        }
        assert_eq!(cache.device_stats()[1].health, Health::Working);
    });
}

/// Many disks that hang on reads, each with readers enough to fill memory: together they leave half
/// of it, so that another disk is read and written as ever.
#[test]
fn disks_that_hang_on_reads_leave_half_of_memory_however_many() {
    const FRAMES: u32 = 4096;
    const HANG: u32 = 8;
    let mut world = world(FRAMES, 200 * MIB);
    world.disk.keep(false);
    let disks = (0..HANG).map(|_| {
        let disk = Disk::new(&world.lab, 200 * MIB);
        disk.keep(false);
        disk.state().hangs = Instant(Nanos::secs(1).0)..Instant(Nanos::secs(61).0);
        disk
    });
    let disks: Vec<_> = disks.collect();
    let known: Vec<_> = disks
        .into_iter()
        .map(|disk| {
            let info = disk.info();
            (world.lab.add_device(disk as Arc<dyn Device>), info)
        })
        .collect();
    world.run(64 * MIB, move |task, cache, good| {
        let files: Vec<_> = (2_u32..)
            .zip(known)
            .map(|(object, (id, info))| {
                let device = cache.add_device(task, id, info, DeviceOptions::default());
                cache
                    .open(task, device.unwrap(), ObjectId(object), Bytes(64 * MIB))
                    .unwrap()
            })
            .collect();
        task.sleep(Cause::Think, Nanos::secs(2));
        let mut readers = Vec::new();
        for (file, number) in files
            .iter()
            .flat_map(|file| (0..64).map(move |it| (file, it)))
        {
            let file = Arc::clone(file);
            readers.push(env::spawn(task.env(), "reader", move |task| {
                let mut reader = mm::Reader::default();
                let mut chunk = vec![world::Sector(0); 2048];
                file.read(task, &mut reader, Bytes(number * MIB), &mut chunk)
            }));
        }
        task.sleep(Cause::Think, Nanos::secs(10));
        let held = cache.stats().cached.0;
        assert!(held > u64::from(FRAMES) / 4, "{held} pages: they read");
        let most = u64::from(FRAMES / 2 + HANG);
        assert!(held <= most, "{held} pages of {FRAMES}");
        let took = read_and_write(task, cache, good);
        assert!(took < Nanos::secs(2), "40 MiB at 200 MiB/s in {took:?}");
        for reader in readers {
            let read = reader.join(task).unwrap();
            assert_eq!(read.map(|got| got.bytes), Ok(Bytes(MIB)));
        }
    });
}

/// Errors that a writer was told of a device are nothing to the device that has its place.
#[test]
fn a_writer_hears_of_the_errors_of_a_device_that_took_the_place_of_another() {
    let mut world = world(4096, 64 * MIB);
    let disks = [0, 1].map(|_| Disk::new(&world.lab, 64 * MIB));
    let ids = [0, 1].map(|at: usize| {
        let disk = Arc::clone(&disks[at]);
        world.lab.add_device(disk as Arc<dyn Device>)
    });
    world.run(0, move |task, cache, _| {
        let mut writer = cache.writer();
        let mut places = Vec::new();
        // The first one fails more often than the second.
        for (disk, id, failures) in [(&disks[0], ids[0], 3), (&disks[1], ids[1], 1)] {
            let options = DeviceOptions {
                on_error: ErrorPolicy::Report,
                ..DeviceOptions::default()
            };
            let device = cache.add_device(task, id, disk.info(), options).unwrap();
            places.push(device);
            let file = cache.open(task, device, ObjectId(9), Bytes(0)).unwrap();
            let mut write =
                |task: &mut Task<'_>| file.write(task, &mut writer, Bytes(0), &data(0, 1, 1));
            write(task).unwrap();
            disk.state().fail_writes = 0..1000;
            while cache.device_stats_of(device).errors < failures {
                file.sync(task).unwrap_err();
            }
            assert_eq!(cache.device_stats_of(device).errors, failures);
            let told = write(task).unwrap_err();
            assert!(matches!(told, Error::WriteFailed { .. }), "{told}");
            write(task).unwrap();
            disk.state().fail_writes = 0..0;
            while file.sync(task).is_err() {}
            file.close(task).unwrap();
            assert_eq!(cache.remove_device(task, device), Some(id));
        }
        assert_eq!(places[0], places[1], "the same place");
    });
}

/// A device whose place could not be given up when it was asked for, because something was under
/// way, gives it up later.
#[test]
fn a_place_is_given_up_when_what_was_under_way_has_ended() {
    let mut world = world(4096, 64 * MIB);
    world.options.devices_max = 2;
    let disks = [0, 1].map(|_| Disk::new(&world.lab, 64 * MIB));
    let ids = [0, 1].map(|at: usize| {
        let disk = Arc::clone(&disks[at]);
        world.lab.add_device(disk as Arc<dyn Device>)
    });
    world.run(0, move |task, cache, _| {
        let (info, options) = (disks[0].info(), DeviceOptions::default());
        let device = cache.add_device(task, ids[0], info, options).unwrap();
        let file = cache.open(task, device, ObjectId(9), Bytes(0)).unwrap();
        assert_eq!(cache.removed_devices(task), [], "nobody asked for it");
        assert_eq!(cache.remove_device(task, device), None, "a file is open");
        assert_eq!(cache.removed_devices(task), []);
        let full = cache.add_device(task, ids[1], info, options);
        assert!(matches!(full, Err(Error::TooMany { .. })));
        file.close(task).unwrap();
        assert_eq!(cache.removed_devices(task), [ids[0]]);
        assert_eq!(cache.removed_devices(task), [], "it is told once");
        assert_eq!(cache.add_device(task, ids[1], info, options), Ok(device));
        // Not of the one before: this one stays.
        assert_eq!(cache.removed_devices(task), []);
    });
}

/// A file system gives blocks to a run of pages at once and puts all of it under writeback before
/// the first of it is sent (ext4); what is sent waits for room as ever.
#[test]
fn the_pages_of_a_run_go_under_writeback_together_where_the_device_says_so() {
    for (at_once, under_writeback) in [(0, 16), (64, 64)] {
        let mut world = world(4096, MIB);
        world.options.flush.flight = Flight::Requests(1);
        world.options.flush.request_max = Pages(16);
        world.device.at_once = Pages(at_once);
        let disk = Arc::clone(&world.disk);
        world.run(0, move |task, cache, file| {
            let mut writer = cache.writer();
            file.write(task, &mut writer, Bytes(0), &data(0, 100, 1))
                .unwrap();
            let syncing = {
                let file = Arc::clone(file);
                env::spawn(task.env(), "sync", move |task| file.sync(task))
            };
            task.sleep(Cause::Think, Nanos::millis(1));
            let stats = cache.stats();
            assert_eq!(stats.writeback, Pages(under_writeback), "{at_once}");
            assert_eq!(stats.dirty, Pages(100 - under_writeback), "{at_once}");
            syncing.join(task).unwrap().unwrap();
            let state = disk.state();
            assert_eq!((state.pages.len(), state.writing_most), (100, 1));
        });
    }
}

/// Two files of 60 dirty pages each under a background limit of 100: the flusher, once it writes,
/// stops below that, unless the two are one, of which it writes a slice.
#[test]
fn a_slice_goes_on_with_the_next_file_where_all_are_one() {
    let left = |one_file| {
        let mut world = world(4096, 64 * MIB);
        world.options.flush = FlushTunables::linux_6_12();
        world.device.one_file = one_file;
        // Its share of the limits is all of them from the start.
        world.device.tunables.min_ratio = 10_000;
        let mut world = world.law(history::dirty::RATE_BASED).limits(1000, 100);
        world.run(0, move |task, cache, file| {
            let other = cache
                .open(task, DeviceIndex(0), ObjectId(2), Bytes(0))
                .unwrap();
            let mut writer = cache.writer();
            for file in [file, &other] {
                file.write(task, &mut writer, Bytes(0), &data(0, 60, 1))
                    .unwrap();
            }
            task.sleep(Cause::Think, Nanos::secs(1));
            cache.stats().dirty
        })
    };
    // Pages that came after its look stay.
    assert_eq!(left(false), Pages(60));
    assert!(left(true) < Pages(20), "{:?}", left(true));
}
