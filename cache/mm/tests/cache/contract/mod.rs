//! The error contract, fault by fault (docs/adr/0009).

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    unreachable_pub,
    reason = "a failure here is a failed test; the numbers are small"
)]

use std::sync::Arc;

use device::{FaultPlan, Faulty, Odds};
use env::{Cause, Device, IoError, ObjectId, Task, Work};
use mm::{Cache, DeviceOptions, Error, ErrorPolicy, File, Options, Reader};
use policy::dirty::{DeviceIndex, Threshold};
use policy::units::{Bytes, Nanos, Pages};
use world::fs::Layout;
use world::media::{Media, SharedMedia, VolatileCache};
use world::model::{self, Params, Surroundings};
use world::{CostTable, Lab, LabEnv, Options as LabOptions, Sector};

const EIO: IoError = IoError::Failed { errno: 5 };
const DIRTY_LIMIT: Pages = Pages(256);
const BACKGROUND: Pages = Pages(128);
/// Every wait that a failing device causes ends well within this.
const SOON: Nanos = Nanos::secs(10);

struct Drive {
    index: DeviceIndex,
    faulty: Arc<Faulty>,
    media: SharedMedia,
}

impl Drive {
    fn heal(&self) {
        self.faulty.set_plan(FaultPlan::default());
        self.faulty.release();
    }

    fn fails_writes(&self) {
        self.faulty.set_plan(FaultPlan {
            eio_writes: Odds::ALWAYS,
            ..FaultPlan::default()
        });
    }

    fn holds(&self, object: u32, page: u64, version: u32) {
        let found = self.media.lock().unwrap().read(ObjectId(object), page);
        assert_eq!(
            found.to_vec(),
            content(page as u32, 1, version),
            "page {page}"
        );
    }
}

struct Bench {
    cache: Arc<Cache>,
    env: Arc<LabEnv>,
    drives: Vec<Drive>,
}

impl Bench {
    fn open(&self, task: &mut Task<'_>, drive: usize, object: u32) -> Arc<File> {
        let object = ObjectId(object);
        let index = self.drives[drive].index;
        self.cache.open(task, index, object, Bytes::ZERO).unwrap()
    }

    /// Writes pages `from..from + count` as a new writer.
    fn write(
        &self,
        task: &mut Task<'_>,
        file: &File,
        from: u32,
        count: u32,
        version: u32,
    ) -> Result<(), Error> {
        let mut writer = self.cache.writer();
        let data = content(from, count, version);
        let offset = Pages(u64::from(from)).bytes();
        let wrote = file.write(task, &mut writer, offset, &data);
        self.cache.retire(task, writer);
        wrote.map(|_| ())
    }

    fn reads(&self, task: &mut Task<'_>, file: &File, page: u32) -> Result<Vec<Sector>, Error> {
        let mut data = vec![Sector::JUNK; 8];
        let offset = Pages(u64::from(page)).bytes();
        let count = file
            .read(task, &mut Reader::default(), offset, &mut data)?
            .bytes;
        assert_eq!(count, Bytes(4096));
        Ok(data)
    }
}

fn content(page: u32, count: u32, version: u32) -> Vec<Sector> {
    let sectors = page * 8..(page + count) * 8;
    sectors
        .map(|at| Sector((version << 24) | (at + 1)))
        .collect()
}

/// Runs `body` on a cache of 4 MiB over `drives` devices of 16 MiB/s.
fn bench<T: Send + 'static>(
    drives: u32,
    on_error: ErrorPolicy,
    body: impl FnOnce(&mut Task<'_>, &Arc<Bench>) -> T + Send + 'static,
) -> (T, Lab) {
    bench_at(CostTable::zero(), drives, on_error, body)
}

/// `bench` where work takes time.
fn bench_at<T: Send + 'static>(
    costs: CostTable,
    drives: u32,
    on_error: ErrorPolicy,
    body: impl FnOnce(&mut Task<'_>, &Arc<Bench>) -> T + Send + 'static,
) -> (T, Lab) {
    let mut lab = Lab::new(LabOptions {
        hz: 1000,
        frames: 1024,
        costs,
        ..LabOptions::default()
    });
    let mut parts = Vec::new();
    for _ in 0..drives {
        let media = Media::shared(VolatileCache::Pages(Pages(1 << 20)));
        let Params::TokenBucket(mut bucket) = model::by_name("token_bucket").unwrap() else {
            unreachable!("that is its name");
        };
        bucket.flush_us = 5000;
        let surroundings = Surroundings {
            host: lab.host(),
            stamps: lab.stamps(),
            media: Arc::clone(&media),
            layout: Layout::plain(),
            stable_writes: false,
        };
        let model = model::build(&Params::TokenBucket(bucket), surroundings);
        let faulty = Faulty::new(Arc::new(model), lab.host(), FaultPlan::default());
        let id = lab.add_device(Arc::clone(&faulty) as Arc<dyn Device>);
        parts.push((id, faulty, media));
    }
    let env = Arc::clone(lab.env());
    let answer = lab
        .run(move |task| {
            let mut options = Options::new(1024, 2);
            options.dirty.dirty = Threshold::Pages(DIRTY_LIMIT);
            options.dirty.background = Threshold::Pages(BACKGROUND);
            let cache = Cache::new(env.clone(), options).unwrap();
            let device = DeviceOptions {
                on_error,
                ..DeviceOptions::default()
            };
            let mut drives = Vec::new();
            for (id, faulty, media) in parts {
                let index = cache.add_device(task, id, faulty.info(), device).unwrap();
                drives.push(Drive {
                    index,
                    faulty,
                    media,
                });
            }
            let bench = Arc::new(Bench { cache, env, drives });
            let answer = body(task, &bench);
            bench.drives.iter().for_each(|drive| drive.heal());
            let stats = bench.cache.stats();
            assert!(stats.is_conserved(), "{stats:?}");
            answer
        })
        .unwrap_or_else(|error| panic!("{error}"));
    (answer, lab)
}

#[test]
fn retry_keeps_the_data_and_only_sync_tells() {
    bench(1, ErrorPolicy::Retry, |task, bench| {
        let drive = &bench.drives[0];
        let file = bench.open(task, 0, 1);
        drive.fails_writes();
        bench.write(task, &file, 0, 4, 1).unwrap();
        let failed = Error::WriteFailed {
            offset: Bytes::ZERO,
            cause: EIO,
        };
        assert_eq!(file.sync(task), Err(failed));
        assert_eq!(
            bench.cache.stats().dirty,
            Pages(4),
            "nothing dirty is dropped"
        );
        assert_eq!(bench.write(task, &file, 4, 4, 1), Ok(()), "writers go on");
        assert_eq!(
            file.sync(task),
            Err(failed),
            "as long as bytes are not durable"
        );
        drive.heal();
        assert_eq!(file.sync(task), Ok(()), "its holder was told already");
        (0..8).for_each(|page| drive.holds(1, page, 1));
    });
}

#[test]
fn an_error_that_healed_by_itself_is_told_once() {
    bench(1, ErrorPolicy::Retry, |task, bench| {
        let drive = &bench.drives[0];
        let file = bench.open(task, 0, 1);
        let other = file.clone_handle();
        drive.fails_writes();
        // Over the background threshold: the flusher tries, and fails.
        bench.write(task, &file, 0, 200, 1).unwrap();
        task.sleep(Cause::Think, Nanos::secs(1));
        assert!(bench.cache.stats().write_failed > Pages::ZERO);
        drive.heal();
        task.sleep(Cause::Think, Nanos::secs(60));
        assert_eq!(
            bench.cache.stats().dirty,
            Pages::ZERO,
            "retried with back-off"
        );
        let late = file.clone_handle();
        for holder in [&file, &other] {
            let told = holder.sync(task);
            assert!(
                matches!(told, Err(Error::WriteFailed { cause: EIO, .. })),
                "{told:?}"
            );
            assert_eq!(holder.sync(task), Ok(()));
        }
        assert_eq!(late.sync(task), Ok(()), "it came when all was well");
        (0..200).for_each(|page| drive.holds(1, page, 1));
    });
}

#[test]
fn report_tells_each_writer_once() {
    bench(1, ErrorPolicy::Report, |task, bench| {
        let drive = &bench.drives[0];
        let file = bench.open(task, 0, 1);
        let (mut first, mut second) = (bench.cache.writer(), bench.cache.writer());
        let page = content(0, 1, 1);
        file.write(task, &mut first, Bytes::ZERO, &page).unwrap();
        drive.fails_writes();
        assert!(file.sync(task).is_err());
        for writer in [&mut first, &mut second] {
            let told = file.write(task, writer, Bytes(4096), &page);
            assert!(
                matches!(told, Err(Error::WriteFailed { cause: EIO, .. })),
                "{told:?}"
            );
            assert_eq!(
                file.write(task, writer, Bytes(4096), &page),
                Ok(Bytes(4096))
            );
        }
    });
}

#[test]
fn stop_refuses_writes_until_the_device_is_reopened() {
    bench(1, ErrorPolicy::Stop, |task, bench| {
        let drive = &bench.drives[0];
        let file = bench.open(task, 0, 1);
        bench.write(task, &file, 0, 4, 1).unwrap();
        drive.fails_writes();
        assert!(file.sync(task).is_err());
        drive.heal();
        let stopped = Err(Error::DeviceStopped { cause: EIO });
        assert_eq!(bench.write(task, &file, 4, 1, 1), stopped);
        assert_eq!(
            file.sync(task),
            Ok(()),
            "what was taken in is kept and written"
        );
        assert_eq!(bench.write(task, &file, 4, 1, 1), stopped);
        bench.cache.reopen_device(task, drive.index);
        assert_eq!(bench.write(task, &file, 4, 1, 1), Ok(()));
        assert_eq!(file.sync(task), Ok(()));
        (0..5).for_each(|page| drive.holds(1, page, 1));
    });
}

fn another_policy(task: &mut Task<'_>, bench: &Bench, on_error: ErrorPolicy) {
    let options = DeviceOptions {
        on_error,
        ..DeviceOptions::default()
    };
    let device = bench.drives[0].index;
    bench.cache.set_device(task, device, options).unwrap();
}

#[test]
fn another_policy_brings_back_no_error_that_has_healed() {
    for policy in [ErrorPolicy::Stop, ErrorPolicy::Report] {
        bench(1, ErrorPolicy::Retry, move |task, bench| {
            let drive = &bench.drives[0];
            let file = bench.open(task, 0, 1);
            // A writer that is there all the time has yet to be told of all.
            let mut writer = bench.cache.writer();
            let page = content(0, 1, 1);
            drive.fails_writes();
            bench.write(task, &file, 0, 4, 1).unwrap();
            file.sync(task).unwrap_err();
            drive.heal();
            file.sync(task).unwrap();
            another_policy(task, bench, policy);
            let health = bench.cache.device_stats()[0].health;
            assert_eq!(health, mm::Health::Working);
            let wrote = file.write(task, &mut writer, Bytes::ZERO, &page);
            assert_eq!(wrote, Ok(Bytes(4096)), "{policy:?}");
            // The next one counts; also if the same policy is set again.
            drive.fails_writes();
            file.sync(task).unwrap_err();
            drive.heal();
            file.sync(task).unwrap();
            another_policy(task, bench, policy);
            let wrote = file.write(task, &mut writer, Bytes::ZERO, &page);
            assert!(wrote.is_err(), "{policy:?}");
        });
    }
}

#[test]
fn another_policy_forgives_nothing_that_still_fails() {
    for is_lately in [true, false] {
        bench(1, ErrorPolicy::Retry, move |task, bench| {
            let drive = &bench.drives[0];
            let file = bench.open(task, 0, 1);
            drive.faulty.set_plan(FaultPlan {
                eio_range: Some(0..4096),
                ..FaultPlan::default()
            });
            bench.write(task, &file, 0, 1, 1).unwrap();
            file.sync(task).unwrap_err();
            if !is_lately {
                // Another page has gone through since.
                bench.write(task, &file, 8, 1, 1).unwrap();
                file.sync_range(task, Bytes(8 * 4096), Bytes(4096)).unwrap();
            }
            another_policy(task, bench, ErrorPolicy::Stop);
            if !is_lately {
                task.sleep(Cause::Think, Nanos::millis(100));
            }
            let stopped = Err(Error::DeviceStopped { cause: EIO });
            assert_eq!(bench.write(task, &file, 4, 1, 1), stopped, "{is_lately}");
        });
    }
}

#[test]
fn a_writer_held_back_learns_that_its_device_stopped() {
    for policy in [ErrorPolicy::Stop, ErrorPolicy::Report] {
        bench(1, policy, move |task, bench| {
            let file = bench.open(task, 0, 1);
            bench.drives[0].fails_writes();
            let began = task.now();
            let wrote = bench.write(task, &file, 0, 2000, 1);
            match policy {
                ErrorPolicy::Stop => assert_eq!(wrote, Err(Error::DeviceStopped { cause: EIO })),
                _ => assert!(matches!(wrote, Err(Error::WriteFailed { cause: EIO, .. }))),
            }
            assert!(task.now().since(began) < SOON, "{policy:?}");
        });
    }
}

#[test]
fn a_reader_gets_the_read_error_and_the_next_one_tries_again() {
    bench(1, ErrorPolicy::Report, |task, bench| {
        let drive = &bench.drives[0];
        let file = bench.open(task, 0, 1);
        bench.write(task, &file, 0, 64, 1).unwrap();
        file.close(task).unwrap();
        let file = bench
            .cache
            .open(task, drive.index, ObjectId(1), Pages(64).bytes())
            .unwrap();
        drive.faulty.set_plan(FaultPlan {
            eio_reads: Odds::ALWAYS,
            ..FaultPlan::default()
        });
        for page in [9, 9, 40] {
            let offset = Pages(u64::from(page)).bytes();
            assert_eq!(
                bench.reads(task, &file, page),
                Err(Error::ReadFailed { offset, cause: EIO })
            );
        }
        drive.heal();
        for page in 0..64 {
            assert_eq!(bench.reads(task, &file, page), Ok(content(page, 1, 1)));
        }
    });
}

#[test]
fn part_of_a_page_that_cannot_be_read_is_not_taken_in() {
    bench(1, ErrorPolicy::Report, |task, bench| {
        let drive = &bench.drives[0];
        let file = bench.open(task, 0, 1);
        bench.write(task, &file, 0, 4, 1).unwrap();
        file.close(task).unwrap();
        let file = bench
            .cache
            .open(task, drive.index, ObjectId(1), Pages(4).bytes())
            .unwrap();
        drive.faulty.set_plan(FaultPlan {
            eio_reads: Odds::ALWAYS,
            ..FaultPlan::default()
        });
        let mut writer = bench.cache.writer();
        let wrote = file.write(task, &mut writer, Bytes(4096 + 512), &[Sector(7)]);
        assert_eq!(
            wrote,
            Err(Error::ReadFailed {
                offset: Bytes(4096),
                cause: EIO
            })
        );
        assert_eq!(bench.cache.stats().dirty, Pages::ZERO);
        drive.heal();
        assert_eq!(bench.reads(task, &file, 1), Ok(content(1, 1, 1)));
    });
}

#[test]
fn a_full_device_refuses_before_a_byte_is_acknowledged() {
    bench(1, ErrorPolicy::Report, |task, bench| {
        let drive = &bench.drives[0];
        let file = bench.open(task, 0, 1);
        drive.faulty.set_plan(FaultPlan {
            no_space: Odds::ALWAYS,
            ..FaultPlan::default()
        });
        let full = Err(Error::MetadataFailed {
            what: "taking space on the device",
            cause: IoError::NoSpace,
        });
        assert_eq!(bench.write(task, &file, 0, 4, 1), full);
        assert_eq!(file.len(), Bytes::ZERO);
        assert_eq!(bench.cache.stats().dirtied, Pages::ZERO);
        assert_eq!(file.sync(task), Ok(()), "there is nothing to be written");
        drive.heal();
        bench.write(task, &file, 0, 4, 1).unwrap();
        file.sync(task).unwrap();
        drive.holds(1, 3, 1);
    });
}

#[test]
fn a_hung_device_holds_its_own_writers_by_name_and_nobody_else() {
    let ((alone, beside), lab) = bench(2, ErrorPolicy::Report, |task, bench| {
        let light = bench.open(task, 1, 2);
        let pace = |task: &mut Task<'_>, bench: &Bench, from: u32| {
            let mut longest = Nanos::ZERO;
            for page in from..from + 100 {
                let began = task.now();
                bench.write(task, &light, page, 1, 1).unwrap();
                longest = longest.max(task.now().since(began));
                task.sleep(Cause::Think, Nanos::millis(10));
            }
            longest
        };
        let alone = pace(task, bench, 0);
        bench.drives[0].faulty.hold();
        let heavy = {
            let bench = Arc::clone(bench);
            env::spawn(&*Arc::clone(&bench.env), "heavy", move |task| {
                let file = bench.open(task, 0, 1);
                // It waits where the limit holds it, and not for space.
                file.assume_allocated(Pages(600).bytes());
                bench.write(task, &file, 0, 600, 1).map(|()| file)
            })
        };
        // Until the heavy one stands at the limit.
        task.sleep(Cause::Think, Nanos::secs(20));
        assert!(!heavy.is_done());
        let beside = pace(task, bench, 100);
        light.sync(task).unwrap();
        bench.drives[0].heal();
        let file = heavy.join(task).unwrap().unwrap();
        file.sync(task).unwrap();
        (0..600).for_each(|page| bench.drives[0].holds(1, page, 1));
        (0..200).for_each(|page| bench.drives[1].holds(2, page, 1));
        (alone, beside)
    });
    assert!(
        beside <= alone.max(Nanos::millis(20)),
        "alone {alone:?}, beside a hung device {beside:?}"
    );
    let tasks = lab.tasks();
    let heavy = tasks.iter().find(|task| task.name == "heavy").unwrap();
    let stalled: u64 = heavy
        .asleep
        .iter()
        .filter(|(cause, _)| matches!(cause, Cause::DeviceStalled | Cause::DirtyPause))
        .map(|(_, time)| time.0)
        .sum();
    assert!(stalled > 15_000_000_000, "{:?}", heavy.asleep);
}

#[test]
fn a_torn_write_is_retried_whole() {
    bench(1, ErrorPolicy::Retry, |task, bench| {
        let drive = &bench.drives[0];
        let file = bench.open(task, 0, 1);
        bench.write(task, &file, 0, 64, 1).unwrap();
        file.sync(task).unwrap();
        drive.faulty.set_plan(FaultPlan {
            torn_writes: Odds::ALWAYS,
            ..FaultPlan::default()
        });
        bench.write(task, &file, 0, 64, 2).unwrap();
        let torn = file.sync(task);
        assert!(
            matches!(
                torn,
                Err(Error::WriteFailed {
                    cause: IoError::Torn { .. },
                    ..
                })
            ),
            "{torn:?}"
        );
        assert_eq!(
            bench.cache.stats().dirty,
            Pages(64),
            "no part of it counts as written"
        );
        drive.heal();
        assert_eq!(file.sync(task), Ok(()));
        (0..64).for_each(|page| drive.holds(1, page, 2));
    });
}

#[test]
fn a_lost_device_fails_everything_and_ends_cleanly() {
    bench(1, ErrorPolicy::Retry, |task, bench| {
        let drive = &bench.drives[0];
        let file = bench.open(task, 0, 1);
        bench.write(task, &file, 0, 4, 1).unwrap();
        drive.faulty.lose();
        let lost = IoError::Lost;
        assert!(matches!(file.sync(task), Err(Error::WriteFailed { cause, .. }) if cause == lost));
        assert_eq!(
            bench.reads(task, &file, 2),
            Ok(content(2, 1, 1)),
            "it is still in memory"
        );
        let began = task.now();
        assert!(
            matches!(bench.cache.shutdown(task), Err(Error::WriteFailed { cause, .. }) if cause == lost)
        );
        assert!(task.now().since(began) < SOON);
        assert_eq!(bench.cache.stats().dirty, Pages(4));
        assert_eq!(bench.write(task, &file, 0, 4, 1), Err(Error::Cancelled));
    });
}

#[test]
fn a_failed_flush_is_told_to_every_holder_once() {
    bench(1, ErrorPolicy::Retry, |task, bench| {
        let drive = &bench.drives[0];
        let (told, other) = (bench.open(task, 0, 1), bench.open(task, 0, 2));
        bench.write(task, &told, 0, 4, 1).unwrap();
        bench.write(task, &other, 0, 4, 1).unwrap();
        drive.faulty.set_plan(FaultPlan {
            flush_fails: Odds::ALWAYS,
            ..FaultPlan::default()
        });
        let failed = Error::FlushFailed { cause: EIO };
        assert_eq!(told.sync(task), Err(failed));
        drive.heal();
        assert_eq!(told.sync(task), Err(failed), "until it is reopened");
        assert_eq!(bench.write(task, &told, 0, 1, 2), Err(failed));
        let refused = bench
            .cache
            .open(task, drive.index, ObjectId(3), Bytes::ZERO);
        assert_eq!(refused.err(), Some(failed));
        bench.cache.reopen_device(task, drive.index);
        assert_eq!(told.sync(task), Ok(()));
        assert_eq!(other.sync(task), Err(failed), "it had not been told");
        assert_eq!(other.sync(task), Ok(()));
    });
}

#[test]
fn two_syncs_at_once_both_wait_for_a_flush() {
    bench(1, ErrorPolicy::Retry, |task, bench| {
        let file = bench.open(task, 0, 1);
        bench.write(task, &file, 0, 4, 1).unwrap();
        let syncs: Vec<_> = (0..2)
            .map(|_| {
                let (file, bench) = (Arc::clone(&file), Arc::clone(bench));
                env::spawn(&*Arc::clone(&bench.env), "sync", move |task| {
                    file.sync(task).unwrap();
                    bench.drives[0]
                        .media
                        .lock()
                        .unwrap()
                        .volatile_pages(ObjectId(1))
                })
            })
            .collect();
        for sync in syncs {
            assert_eq!(
                sync.join(task),
                Some(Pages::ZERO),
                "durable when the sync says so"
            );
        }
    });
}

#[test]
fn a_cut_that_failed_comes_before_the_file_grows_again() {
    bench(1, ErrorPolicy::Retry, |task, bench| {
        let drive = &bench.drives[0];
        let file = bench.open(task, 0, 1);
        bench.write(task, &file, 0, 16, 1).unwrap();
        file.sync(task).unwrap();
        drive.faulty.set_plan(FaultPlan {
            length_fails: Odds::ALWAYS,
            ..FaultPlan::default()
        });
        let failed = Err(Error::MetadataFailed {
            what: "changing the file's length",
            cause: EIO,
        });
        assert_eq!(file.truncate(task, Bytes(4096)), failed);
        assert_eq!(
            bench.write(task, &file, 12, 1, 2),
            failed,
            "old data would come back"
        );
        drive.heal();
        assert_eq!(bench.write(task, &file, 12, 1, 2), Ok(()));
        assert_eq!(bench.reads(task, &file, 5), Ok(vec![Sector::ZERO; 8]));
        assert_eq!(bench.reads(task, &file, 12), Ok(content(12, 1, 2)));
        file.sync(task).unwrap();
    });
}

#[test]
fn shutdown_with_dirty_data_on_a_failing_device_ends_with_an_error() {
    for policy in [ErrorPolicy::Retry, ErrorPolicy::Report, ErrorPolicy::Stop] {
        bench(2, policy, |task, bench| {
            let (bad, good) = (bench.open(task, 0, 1), bench.open(task, 1, 2));
            bench.write(task, &bad, 0, 100, 1).unwrap();
            bench.write(task, &good, 0, 100, 1).unwrap();
            bench.drives[0].fails_writes();
            let began = task.now();
            assert!(matches!(
                bench.cache.shutdown(task),
                Err(Error::WriteFailed { .. })
            ));
            assert!(task.now().since(began) < SOON);
            assert_eq!(
                bench.cache.stats().dirty,
                Pages(100),
                "the good device is clean"
            );
            (0..100).for_each(|page| bench.drives[1].holds(2, page, 1));
        });
    }
}

#[test]
fn a_page_that_fails_while_it_is_overwritten_counts_as_dirty_once() {
    let costs = CostTable::zero().with(Work::Alloc, Nanos::millis(5));
    bench_at(costs, 1, ErrorPolicy::Retry, |task, bench| {
        let drive = &bench.drives[0];
        let file = bench.open(task, 0, 1);
        bench.write(task, &file, 0, 1, 1).unwrap();
        drive.faulty.set_plan(FaultPlan {
            eio_writes: Odds::ALWAYS,
            fails_after: Nanos::millis(5),
            ..FaultPlan::default()
        });
        let sync = {
            let file = Arc::clone(&file);
            env::spawn(&*bench.env, "sync", move |task| file.sync(task))
        };
        task.sleep(Cause::Think, Nanos::millis(1));
        assert_eq!(bench.cache.stats().writeback, Pages(1));
        // Page 0 is filled first; then taking frames for the others lets the failure come.
        let began = task.now();
        bench.write(task, &file, 0, 100, 2).unwrap();
        assert!(task.now().since(began) > Nanos::millis(5));
        assert!(matches!(
            sync.join(task),
            Some(Err(Error::WriteFailed { .. }))
        ));
        assert_eq!(bench.cache.stats().dirty, Pages(100));
        drive.heal();
        file.sync(task).unwrap();
        assert_eq!(bench.cache.stats().dirty, Pages::ZERO);
        (0..100).for_each(|page| drive.holds(1, page, 2));
    });
}

#[test]
fn a_length_set_beside_a_write_of_the_last_page_is_set_again() {
    bench(1, ErrorPolicy::Retry, |task, bench| {
        let drive = &bench.drives[0];
        drive.faulty.set_plan(FaultPlan {
            lingers: Nanos::millis(50),
            ..FaultPlan::default()
        });
        for object in 1..=20 {
            let file = bench.open(task, 0, object);
            bench.write(task, &file, 0, 7, 1).unwrap();
            let sync = {
                let file = Arc::clone(&file);
                env::spawn(&*bench.env, "sync", move |task| file.sync(task))
            };
            // The last page is written as a whole, before the device sets the length or after.
            let (cut, len) = (Bytes(27 * 1024), Pages(7).bytes());
            file.truncate(task, cut).unwrap();
            file.truncate(task, len).unwrap();
            assert_eq!(sync.join(task), Some(Ok(())));
            file.sync(task).unwrap();
            let found = drive.media.lock().unwrap().len(ObjectId(object));
            assert_eq!(found, len, "object {object}");
        }
    });
}
