//! Write-ahead order: no page reaches its device before the log that it waits for, whoever writes
//! it; and nobody but those that want the log waits for it.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use crate::common::{World, data, world};
use env::{Cause, ObjectId, Signal, Task, WaitQueue};
use mm::{Cache, Error, File, Reader, WriteAhead};
use policy::units::{Bytes, Nanos, Pages};
use world::Sector;

const MIB: u64 = 1 << 20;
/// Pages of the file that follows a log, and of the cache.
const FILE: u32 = 4096;
const FRAMES: u32 = 2048;
/// Pages from which dirty ones are written in the background.
const BACKGROUND: u64 = 200;

/// The log of a test: it becomes durable a while after it was asked for.
struct Log {
    ahead: Arc<WriteAhead>,
    /// The last number that was given.
    last: AtomicU64,
    wanted: Arc<(AtomicU64, WaitQueue)>,
    ends: AtomicBool,
}

impl Log {
    fn new() -> Arc<Self> {
        let wanted = Arc::new((AtomicU64::new(0), WaitQueue::new()));
        let asked = Arc::clone(&wanted);
        let ahead = WriteAhead::new(move |lsn| {
            asked.0.fetch_max(lsn, Ordering::Relaxed);
            asked.1.wake_all(Signal::Other);
        });
        Arc::new(Self {
            ahead: Arc::new(ahead),
            last: AtomicU64::new(0),
            wanted,
            ends: AtomicBool::new(false),
        })
    }

    fn next(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn wants(&self) -> u64 {
        self.wanted.0.load(Ordering::Relaxed)
    }

    /// Writes the log as it is asked for, `slow` each time, until it is told to end.
    fn serve(self: &Arc<Self>, task: &Task<'_>, slow: Nanos) -> env::JoinHandle<()> {
        let log = Arc::clone(self);
        env::spawn(task.env(), "log", move |task| {
            while !log.ends.load(Ordering::Relaxed) {
                let done = log.ahead.durable_lsn();
                task.wait_while(&log.wanted.1, Cause::Idle, None, |_| {
                    log.wants() <= done && !log.ends.load(Ordering::Relaxed)
                });
                let up_to = log.wants();
                task.sleep(Cause::Think, slow);
                log.ahead.durable(up_to);
            }
        })
    }

    fn end(&self) {
        self.ends.store(true, Ordering::Relaxed);
        self.wanted.1.wake_all(Signal::Other);
    }
}

/// A page of which each sector says by which write it was made.
fn page_of(lsn: u64) -> Vec<Sector> {
    vec![Sector(u32::try_from(lsn).expect("few writes")); 8]
}

fn put(task: &mut Task<'_>, cache: &Arc<Cache>, file: &File, page: u32, lsn: u64) {
    let mut writer = cache.writer();
    let at = Bytes(u64::from(page) << 12);
    let written = file.write_logged(task, &mut writer, at, &page_of(lsn), lsn);
    assert_eq!(written, Ok(Bytes(4096)));
}

/// A world whose disk looks at each page that is written to the file.
fn logged_world(log: &Arc<Log>) -> World {
    let world = world(FRAMES, 64 * MIB).limits(2 * BACKGROUND, BACKGROUND);
    world.disk.state().ahead = Some(Arc::clone(&log.ahead));
    world
}

#[test]
fn no_page_overtakes_its_log_whoever_writes_it() {
    for seed in 1..=12_u64 {
        let log = Log::new();
        let mut world = logged_world(&log);
        let ours = Arc::clone(&log);
        let newest = world.run(u64::from(FILE) << 12, move |task, cache, file| {
            let log = ours;
            file.follow(task, &log.ahead).unwrap();
            let server = log.serve(task, Nanos::millis(1 + seed % 7));
            let tasks: Vec<_> = (0..4_u64)
                .map(|nth| {
                    let (cache, file, log) =
                        (Arc::clone(cache), Arc::clone(file), Arc::clone(&log));
                    env::spawn(task.env(), "writer", move |task| {
                        let mut made = Vec::new();
                        for _ in 0..1500 {
                            // A few hot pages of its own, and many others of its own.
                            let hot = task.random() % 3 == 0;
                            let among = if hot { 2 } else { u64::from(FILE) / 4 };
                            let page = task.random() % among * 4 + nth;
                            let page = u32::try_from(page).unwrap();
                            let lsn = log.next();
                            put(task, &cache, &file, page, lsn);
                            made.push((page, lsn));
                            match task.random() % 100 {
                                0 => file.sync(task).unwrap(),
                                1 => {
                                    let at = Bytes(u64::from(page) << 12);
                                    file.sync_range(task, at, Bytes(4096)).unwrap();
                                }
                                2..20 => log.ahead.durable(lsn.saturating_sub(task.random() % 99)),
                                20..40 => {
                                    drop(file.pin(task, &mut Reader::random(), page).unwrap())
                                }
                                _ => {}
                            }
                            assert!(log.ahead.held() <= BACKGROUND + 4);
                        }
                        made
                    })
                })
                .collect();
            let made: Vec<_> = tasks
                .into_iter()
                .flat_map(|t| t.join(task).unwrap())
                .collect();
            file.sync(task).unwrap();
            assert_eq!((log.ahead.held(), cache.stats().dirty), (0, Pages(0)));
            log.end();
            server.join(task);
            made.into_iter()
                .collect::<std::collections::BTreeMap<u32, u64>>()
        });
        let disk = world.disk.state();
        assert!(newest.len() > 1000, "seed {seed}");
        for (page, lsn) in newest {
            let there = disk.pages[&(1, u64::from(page))].to_vec();
            assert_eq!(there, page_of(lsn), "seed {seed}, page {page}");
        }
    }
}

#[test]
fn a_log_that_stands_still_stops_those_alone_that_want_it() {
    let log = Log::new();
    let mut world = logged_world(&log);
    world.run(u64::from(FILE) << 12, move |task, cache, file| {
        file.follow(task, &log.ahead).unwrap();
        let device = policy::dirty::DeviceIndex(0);
        let other = cache.open(task, device, ObjectId(2), Bytes::ZERO).unwrap();
        let writer = {
            let (cache, file, log) = (Arc::clone(cache), Arc::clone(file), Arc::clone(&log));
            env::spawn(task.env(), "logged", move |task| {
                for page in 0..1000 {
                    put(task, &cache, &file, page, log.next());
                }
            })
        };
        task.sleep(Cause::Think, Nanos::secs(5));
        assert!(!writer.is_done());
        assert_eq!(log.ahead.held(), BACKGROUND);
        assert_eq!(log.wants(), BACKGROUND, "it is asked for the newest");
        // Other files are written, synced and read as ever, more than fits into memory.
        let began = task.now();
        let mut own = cache.writer();
        for mib in 0..32_u32 {
            let (at, chunk) = (Bytes(u64::from(mib) * MIB), data(mib * 256, 256, 1));
            assert_eq!(other.write(task, &mut own, at, &chunk), Ok(Bytes(MIB)));
        }
        other.sync(task).unwrap();
        let mut reader = Reader::default();
        let mut back = vec![Sector(0); 2048];
        for mib in 0..16_u64 {
            file.read(task, &mut reader, Bytes(mib * MIB), &mut back)
                .unwrap();
        }
        let took = task.now().since(began);
        assert!(took < Nanos::secs(3), "48 MiB at 64 MiB/s: {took:?}");
        assert_eq!(log.ahead.held(), BACKGROUND);
        // A task that may not wait is told so.
        let refused = task.nonblocking(|task| {
            let mut writer = cache.writer();
            file.write_logged(task, &mut writer, Bytes::ZERO, &page_of(7), 7)
        });
        assert_eq!(refused, Err((Bytes::ZERO, Error::WouldWait)));
        let server = log.serve(task, Nanos::millis(2));
        writer.join(task).unwrap();
        file.sync(task).unwrap();
        other.close(task).unwrap();
        log.end();
        server.join(task);
    });
}

/// Where one page may be held and many tasks come for it at once, each goes on in the end: more may
/// be held than was asked for, and others take the room of one that was woken.
#[test]
fn writers_that_take_one_anothers_room_go_on() {
    let log = Log::new();
    let mut world = world(FRAMES, 64 * MIB).limits(2, 1);
    world.disk.state().ahead = Some(Arc::clone(&log.ahead));
    world.run(u64::from(FILE) << 12, move |task, cache, file| {
        file.follow(task, &log.ahead).unwrap();
        let server = log.serve(task, Nanos::micros(300));
        let writers: Vec<_> = (0..8)
            .map(|nth| {
                let (cache, file, log) = (Arc::clone(cache), Arc::clone(file), Arc::clone(&log));
                env::spawn(task.env(), "writer", move |task| {
                    for at in 0..100 {
                        put(task, &cache, &file, at * 8 + nth, log.next());
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join(task).unwrap();
        }
        file.sync(task).unwrap();
        log.end();
        server.join(task);
    });
}

#[test]
fn a_hot_page_is_synced_although_it_is_written_all_the_time() {
    let log = Log::new();
    let mut world = logged_world(&log);
    world.run(u64::from(FILE) << 12, move |task, cache, file| {
        file.follow(task, &log.ahead).unwrap();
        let server = log.serve(task, Nanos::millis(5));
        let stop = Arc::new(AtomicBool::new(false));
        let writer = {
            let (cache, file, log) = (Arc::clone(cache), Arc::clone(file), Arc::clone(&log));
            let stop = Arc::clone(&stop);
            env::spawn(task.env(), "hot", move |task| {
                while !stop.load(Ordering::Relaxed) {
                    put(task, &cache, &file, 7, log.next());
                    task.sleep(Cause::Think, Nanos::micros(10));
                }
            })
        };
        for _ in 0..20 {
            task.sleep(Cause::Think, Nanos::millis(1));
            let began = task.now();
            file.sync(task).unwrap();
            let took = task.now().since(began);
            assert!(took < Nanos::millis(20), "{took:?}");
        }
        stop.store(true, Ordering::Relaxed);
        writer.join(task).unwrap();
        file.sync(task).unwrap();
        log.end();
        server.join(task);
    });
}

#[test]
fn a_log_that_ends_is_an_error_and_nothing_waits_for_it() {
    let log = Log::new();
    let mut world = logged_world(&log);
    world.run(u64::from(FILE) << 12, move |task, cache, file| {
        let mut writer = cache.writer();
        let early = file.write_logged(task, &mut writer, Bytes::ZERO, &page_of(1), 1);
        assert!(
            matches!(early, Err((_, Error::BadOption { value: 0, .. }))),
            "{early:?}"
        );
        file.follow(task, &log.ahead).unwrap();
        file.follow(task, &log.ahead).unwrap();
        let second = file.follow(task, &Arc::new(WriteAhead::new(|_| {})));
        assert!(matches!(second, Err(Error::BadOption { .. })), "{second:?}");
        put(task, cache, file, 3, 11);
        let sync = {
            let file = Arc::clone(file);
            env::spawn(task.env(), "sync", move |task| file.sync(task))
        };
        task.sleep(Cause::Think, Nanos::secs(1));
        assert!(!sync.is_done(), "it waits for the log");
        assert_eq!(log.wants(), 11);
        log.ahead.durable(10);
        log.ahead.end();
        let ended = Err(Error::LogEnded {
            lsn: 11,
            durable: 10,
        });
        assert_eq!(sync.join(task).unwrap(), ended);
        let late = file.write_logged(task, &mut writer, Bytes::ZERO, &page_of(12), 12);
        let (lsn, durable) = (12, 10);
        assert_eq!(late, Err((Bytes::ZERO, Error::LogEnded { lsn, durable })));
        put(task, cache, file, 0, durable);
        assert_eq!(log.ahead.held(), 1, "the log has what page 0 needs");
        assert_eq!(file.sync(task), ended);
        assert_eq!(file.close(task), ended);
        // A page that is gone waits for nothing.
        file.truncate(task, Bytes(3 << 12)).unwrap();
        assert_eq!(log.ahead.held(), 0);
        assert_eq!(file.close(task), Ok(()));
    });
}
