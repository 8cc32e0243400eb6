//! Commits come when due and only then, hold up whom they must and no longer, and never speak of
//! data that are not on the device.

use std::collections::BTreeSet;

use env::{Cause, Lock, LockClass, Signal, Task, Wakeup, spawn};
use frames::Content;

use super::*;
use crate::content::Sector;
use crate::fs;
use crate::media::{Media, SharedMedia};
use crate::model::{self, Simulated, Surroundings};
use crate::record::{EventKind, Recorded};
use crate::{Lab, Options as LabOptions, Record as Keep};

const MIB: u64 = 256;
const LOG: ObjectId = ObjectId(99);
/// Frames of data, and the journal's in a chunk behind them.
const DATA: u32 = 512;

struct Rig {
    lab: Lab,
    journal: Arc<Journal>,
    device: DeviceId,
    simulated: Arc<Simulated>,
    media: SharedMedia,
}

/// As before 5.6, and with memory in pieces: a commit waits for the handle and for the data.
fn ordered() -> Options {
    Options {
        data: Data::Ordered,
        bio: Pages(MIB),
        ..Options::default()
    }
}

fn rig(options: Options, seed: u64) -> Rig {
    rig_at(16 << 20, options, seed)
}

/// A disk without latency, under ext4 and the journal.
fn rig_at(bytes_per_sec: u64, options: Options, seed: u64) -> Rig {
    let lab = Lab::new(LabOptions {
        frames: 2 * DATA,
        seed,
        record: Keep::NONE.with(EventKind::Committed),
        ..LabOptions::default()
    });
    let stamps = lab.stamps();
    for chunk in [0, DATA] {
        stamps.populate(FrameId(chunk)).unwrap();
    }
    for frame in 0..DATA {
        stamps.store(FrameId(frame), [Sector(7); SECTORS_PER_FRAME]);
    }
    let mut params = model::by_name("token_bucket").unwrap();
    params.set("rate_bytes_per_sec", bytes_per_sec).unwrap();
    let media = Media::shared(params.volatile_cache());
    let surroundings = Surroundings {
        host: lab.host(),
        stamps: Arc::clone(&stamps),
        media: Arc::clone(&media),
        layout: fs::by_name("ext4")
            .unwrap()
            .layout_under(LOG, params.span(), 1),
        stable_writes: false,
    };
    let simulated = Arc::new(model::build(&params, surroundings));
    let place = Storage {
        stamps,
        frame: FrameId(DATA),
        log: LOG,
    };
    let inner: Arc<dyn Device> = Arc::clone(&simulated) as Arc<dyn Device>;
    let journal = Arc::new(Journal::new(inner, lab.host(), place, options));
    let device = lab.add_device(Arc::clone(&journal) as Arc<dyn Device>);
    journal.start(&**lab.env(), device);
    Rig {
        lab,
        journal,
        device,
        simulated,
        media,
    }
}

/// The end of a request, for the task that waits for it.
struct Answer {
    result: Lock<Option<Result<(), IoError>>>,
    moved: Lock<Option<Instant>>,
    done: WaitQueue,
    /// Tells when it moved; none: nobody asks.
    host: Option<Arc<dyn Host>>,
}

impl IoDone for Answer {
    fn io_done(&self, context: &Interrupt, _: Box<IoRequest>, result: Result<(), IoError>) {
        *self.result.lock(context) = Some(result);
        self.done.wake_all(Signal::Answered);
    }

    fn io_moved(&self, context: &Interrupt, _: &IoRequest) {
        *self.moved.lock(context) = self.host.as_ref().map(|host| host.now());
    }
}

impl Answer {
    fn wait(&self, task: &mut Task<'_>) -> Result<(), IoError> {
        task.wait_while(&self.done, Cause::Journal, None, |task| {
            self.result.lock(task).is_none()
        });
        self.result
            .lock(task)
            .take()
            .unwrap_or(Err(IoError::Cancelled))
    }
}

/// Sends `op` for pages `first..first + pages` of a file.
fn send(
    task: &Task<'_>,
    device: DeviceId,
    object: u32,
    op: IoOp,
    first: u64,
    pages: u64,
    more: u64,
) -> Arc<Answer> {
    let request = request((device, object), op, first, pages, more);
    hand_in(task, request, None)
}

fn request(
    (device, object): (DeviceId, u32),
    op: IoOp,
    first: u64,
    pages: u64,
    more: u64,
) -> Box<IoRequest> {
    let mut request = IoRequest::with_room(0);
    request.device = device;
    request.object = ObjectId(object);
    request.op = op;
    request.class = IoClass::Writeback;
    request.offset = Bytes(first << PAGE_SHIFT);
    request.more = Pages(more);
    let frames = (first..first + pages).map(frame);
    request.frames.extend(frames);
    request
}

fn hand_in(
    task: &Task<'_>,
    mut request: Box<IoRequest>,
    host: Option<Arc<dyn Host>>,
) -> Arc<Answer> {
    let answer = Arc::new(Answer {
        result: Lock::new(LockClass::Leaf, None),
        moved: Lock::new(LockClass::Leaf, None),
        done: WaitQueue::new(),
        host,
    });
    request.on_done(Arc::clone(&answer) as Arc<dyn IoDone>);
    task.env().submit(request);
    answer
}

fn frame(page: u64) -> FrameId {
    FrameId(u32::try_from(page % u64::from(DATA)).unwrap())
}

fn prepare(task: &mut Task<'_>, device: DeviceId, object: u32) -> Nanos {
    let began = task.now();
    let op = IoOp::Prepare { len: Bytes(4096) };
    let _ = send(task, device, object, op, 0, 0, 0).wait(task);
    task.now() - began
}

/// Writes runs of `run` MiB of a file, front to back, with `depth` requests of 1 MiB under way,
/// until `until`.
fn flusher(
    task: &mut Task<'_>,
    device: DeviceId,
    object: u32,
    run: u64,
    depth: usize,
    until: Instant,
) {
    let mut under_way = VecDeque::new();
    let mut page = 0;
    while task.now() < until {
        for left in (0..run).rev() {
            if under_way.len() == depth {
                let oldest: Arc<Answer> = under_way.pop_front().unwrap();
                if oldest.wait(task).is_err() {
                    return;
                }
            }
            under_way.push_back(send(
                task,
                device,
                object,
                IoOp::Write,
                page,
                MIB,
                left * MIB,
            ));
            page += MIB;
        }
    }
    for answer in under_way {
        let _ = answer.wait(task);
    }
}

fn commits(events: &[Recorded]) -> Vec<(f64, Event)> {
    let at = |recorded: &Recorded| recorded.at.0 as f64 / 1e9;
    events.iter().map(|r| (at(r), r.event.clone())).collect()
}

use env::Event;

#[test]
fn where_nothing_changes_nothing_is_committed() {
    let Rig {
        mut lab,
        journal,
        device,
        ..
    } = rig(Options::default(), 1);
    let counts = lab.run(move |task| {
        task.sleep(Cause::Think, Nanos::secs(20));
        let _ = send(task, device, 0, IoOp::Read, 0, 4, 0).wait(task);
        task.sleep(Cause::Think, Nanos::secs(20));
        let none = journal.stats().commits;
        let _ = send(task, device, 0, IoOp::Write, 0, 4, 0).wait(task);
        task.sleep(Cause::Think, Nanos::secs(40));
        let one = journal.stats().commits;
        // The pages have blocks: written over, they change nothing.
        let _ = send(task, device, 0, IoOp::Write, 0, 4, 0).wait(task);
        task.sleep(Cause::Think, Nanos::secs(20));
        (none, one, journal.stats().commits)
    });
    assert_eq!(counts.unwrap(), (0, 1, 1));
}

#[test]
fn a_transaction_lives_for_five_seconds() {
    let mut rig = rig(Options::default(), 1);
    let device = rig.device;
    let ended = rig.lab.run(move |task| {
        task.sleep(Cause::Think, Nanos::millis(1_300));
        for _ in 0..200 {
            prepare(task, device, 0);
            task.sleep(Cause::Think, Nanos::millis(100));
        }
    });
    ended.unwrap();
    let commits = commits(&rig.lab.take_events());
    assert_eq!(commits.len(), 3);
    let mut before = 1.3;
    for (at, event) in &commits {
        // Each begins with the first write after the one before.
        assert!((5.0..5.11).contains(&(at - before)), "{at} s");
        before = *at;
        let Event::Committed {
            logged, ordered, ..
        } = event
        else {
            panic!("{event:?}");
        };
        assert_eq!((logged.0, ordered.0), (3, 0), "descriptor, inode, record");
    }
}

#[test]
fn a_writer_is_held_up_by_the_flushers_handle_and_by_the_data() {
    let mut rig = rig(ordered(), 1);
    let (device, journal) = (rig.device, Arc::clone(&rig.journal));
    let until = Instant(12 * policy::units::SECOND);
    let held = rig.lab.run(move |task| {
        let flushes = spawn(task.env(), "flusher", move |task| {
            flusher(task, device, 0, 8, 4, until);
        });
        let far = spawn(task.env(), "far", move |task| {
            let mut longest = Nanos::ZERO;
            while task.now() < until {
                // Its inode is in another block.
                longest = longest.at_least(prepare(task, device, 40));
                task.sleep(Cause::Think, Nanos::millis(10));
            }
            longest
        });
        let mut longest = Nanos::ZERO;
        while task.now() < until {
            longest = longest.at_least(prepare(task, device, 1));
            task.sleep(Cause::Think, Nanos::millis(10));
        }
        flushes.join(task);
        (longest, far.join(task).unwrap())
    });
    let (near, far) = held.unwrap();
    let commits = commits(&rig.lab.take_events());
    assert_eq!(commits.len(), 2, "{commits:?}");
    let longest = commits.iter().map(|(_, event)| match event {
        Event::Committed { took, locked, .. } => (*took, *locked),
        _ => unreachable!(),
    });
    let (took, locked) = longest.max().unwrap();
    // 16 MiB/s: up to 7 MiB of a handle; then 4 MiB under way and the last one; then the record
    // behind 4 MiB of the next transaction.
    let between = |time: Nanos, from, to| Nanos::millis(from) < time && time < Nanos::millis(to);
    assert!(between(locked, 30, 460), "{locked:?}");
    assert!(between(took - locked, 450, 750), "{took:?} {locked:?}");
    // Both hold up the task that wrote in the transaction, wherever its inode is; the record
    // nobody.
    for held in [near, far] {
        assert!(between(held - locked, 200, 340), "{held:?} {locked:?}");
    }
    assert!(journal.stats().held_longest <= took);
}

#[test]
fn a_handle_ends_when_the_last_mib_is_left() {
    let mut ledger = Ledger::new(&ordered());
    let now = Instant::ZERO;
    for piece in 0..8 {
        let left = (7 - piece) * MIB;
        let write = ledger.write(ObjectId(0), piece * MIB, MIB, Pages(left), now);
        assert_eq!(write, Write::Joined(1), "piece {piece}");
        assert_eq!(ledger.has_handles(), piece < 6, "after piece {piece}");
    }
    // The next extent is another handle, and the sender of a run that stopped has left.
    let next = ledger.write(ObjectId(0), 8 * MIB, MIB, Pages(7 * MIB), now);
    assert_eq!(next, Write::Joined(2));
    assert!(ledger.has_handles());
    ledger.write_done(2);
    assert!(!ledger.has_handles());
}

#[test]
fn the_last_piece_of_a_run_belongs_to_the_transaction_that_commits() {
    let mut ledger = Ledger::new(&ordered());
    let (file, now) = (ObjectId(3), Instant::ZERO);
    assert_eq!(
        ledger.write(file, 0, MIB, Pages(MIB), now),
        Write::Joined(1)
    );
    ledger.lock();
    assert!(!ledger.has_handles());
    assert!(!ledger.touch(ObjectId(40), now), "nobody gets in any more");
    ledger.switch();
    assert!(ledger.touch(ObjectId(40), now), "another one runs");
    assert!(!ledger.touch(file, now), "its block is on its way");
    assert_eq!(
        ledger.write(file, MIB, MIB, Pages::ZERO, now),
        Write::Joined(1)
    );
    ledger.write_done(1);
    assert!(ledger.has_data());
    ledger.write_done(1);
    assert!(!ledger.has_data());
    ledger.logged();
    assert!(ledger.touch(file, now));
    assert_eq!(ledger.recorded(now).ordered(), Pages(2 * MIB));
}

#[test]
fn a_time_changes_once_a_tick() {
    let mut ledger = Ledger::new(&Options::default());
    let at = |micros: u64| Instant::ZERO + Nanos::micros(micros);
    assert!(ledger.touch(ObjectId(0), at(8_100)));
    ledger.lock();
    assert!(ledger.touch(ObjectId(0), at(11_900)), "the same tick");
    assert!(!ledger.touch(ObjectId(0), at(12_000)));
}

#[test]
fn a_sync_does_not_wait_for_five_seconds() {
    let mut rig = rig(Options::default(), 1);
    let device = rig.device;
    let took = rig.lab.run(move |task| {
        let _ = send(task, device, 0, IoOp::Write, 0, 16, 0).wait(task);
        let began = task.now();
        let _ = send(task, device, 0, IoOp::Flush, 0, 0, 0).wait(task);
        let first = task.now() - began;
        let began = task.now();
        let _ = send(task, device, 0, IoOp::Flush, 0, 0, 0).wait(task);
        (first, task.now() - began)
    });
    let (first, again) = took.unwrap();
    assert!(first < Nanos::millis(20), "{first:?}");
    assert!(again < Nanos::millis(1), "nothing to commit: {again:?}");
    assert_eq!(rig.journal.stats().commits, 1);
}

#[test]
fn a_full_log_is_emptied_and_nobody_is_stuck() {
    let mut rig = rig(
        Options {
            size: Options::SIZE_MIN,
            commit: Nanos::millis(100),
            ..Options::default()
        },
        1,
    );
    let device = rig.device;
    let ended = rig.lab.run(move |task| {
        // Each writes in another block of inodes.
        for round in 0..40 {
            for file in 0..40 {
                prepare(task, device, (round * 40 + file) * INODES);
                task.sleep(Cause::Think, Nanos::millis(1));
            }
        }
    });
    ended.unwrap();
    let stats = rig.journal.stats();
    assert!(stats.commits >= 15, "{stats:?}");
    assert!(stats.in_place > Pages(1_000), "{stats:?}");
    assert!(stats.held > 0, "{stats:?}");
    assert!(stats.held_longest < Nanos::millis(200), "{stats:?}");
}

/// Inodes in a block, as the ledger has it.
const INODES: u32 = 16;

/// Cuts the power at a random time; answers how many records survived and how many pages they speak
/// of that nobody has written.
fn crash(options: Options, seed: u64) -> (usize, u64) {
    let mut rig = rig_at(128 << 20, options, seed);
    let device = rig.device;
    rig.journal.keep_records();
    let simulated = Arc::clone(&rig.simulated);
    let host = rig.lab.host();
    let when = Nanos(host.random() % Nanos::millis(700).0);
    host.after(when, Box::new(move |context| simulated.power_cut(context)));
    let until = Instant(policy::units::SECOND);
    let ended = rig.lab.run(move |task| {
        let files: Vec<_> = (0..3)
            .map(|file| {
                let name = format!("flusher-{file}");
                spawn(task.env(), &name, move |task| {
                    flusher(task, device, file, 2 + u64::from(file), 3, until);
                })
            })
            .collect();
        for _ in 0..40 {
            prepare(task, device, 1);
            task.sleep(Cause::Think, Nanos::millis(17));
        }
        for file in files {
            file.join(task);
        }
    });
    ended.unwrap();
    let media = rig.media.lock().unwrap();
    let mut speaks_of = BTreeSet::new();
    let mut survived = 0;
    for record in rig.journal.records() {
        let content = media.read(LOG, record.page)[0];
        if u64::from(content.0) != record.id {
            continue;
        }
        survived += 1;
        for given in record.given {
            speaks_of.extend((given.first..given.end).map(|page| (given.object, page)));
        }
    }
    let unwritten = speaks_of
        .iter()
        .filter(|(object, page)| media.read(*object, *page).contains(&Sector(0)));
    (survived, unwritten.count() as u64)
}

#[test]
fn after_a_crash_no_record_speaks_of_what_was_never_written() {
    let with = |data| Options {
        commit: Nanos::millis(60),
        data,
        ..ordered()
    };
    for data in [Data::Unwritten, Data::Ordered] {
        let mut records = 0;
        for seed in 0..40 {
            let (survived, unwritten) = crash(with(data), seed);
            records += survived;
            assert_eq!(unwritten, 0, "{data:?}, seed {seed}");
        }
        assert!(records > 40, "{data:?}: {records} records in 40 runs");
    }
    // The test can fail: without the order of data before metadata it does.
    let broken = (0..40).filter(|seed| crash(with(Data::Writeback), *seed).1 > 0);
    assert!(broken.count() > 10);
}

#[test]
fn the_writes_of_an_extent_end_together_and_leave_the_queue_one_by_one() {
    let mut rig = rig(Options::default(), 1);
    let (device, host) = (rig.device, rig.lab.host());
    let ended = rig.lab.run(move |task| {
        let answers: Vec<_> = (0..10)
            .map(|piece| {
                let left = (9 - piece) * MIB;
                let request = request((device, 0), IoOp::Write, piece * MIB, MIB, left);
                hand_in(task, request, Some(Arc::clone(&host)))
            })
            .collect();
        let mut ends = Vec::new();
        for answer in answers {
            answer.wait(task).unwrap();
            ends.push((task.now(), *answer.moved.lock(task)));
        }
        ends
    });
    let ends = ended.unwrap();
    let moved: Vec<_> = ends.iter().map(|(_, moved)| moved.unwrap()).collect();
    assert!(moved.windows(2).all(|two| two[0] < two[1]), "{moved:?}");
    // Eight, then the two that did not fit the extent.
    let ended: Vec<_> = ends.iter().map(|(ended, _)| *ended).collect();
    assert!(ended[..8].iter().all(|at| *at == moved[7]), "{ended:?}");
    assert!(ended[8..].iter().all(|at| *at == moved[9]), "{ended:?}");
}

/// A write now and then, while the flusher writes 4 MiB at a time.
fn write_beside_a_flusher(task: &mut Task<'_>, device: DeviceId, until: Instant, every: Nanos) {
    let flushes = spawn(task.env(), "flusher", move |task| {
        flusher(task, device, 0, 8, 4, until);
    });
    while task.now() < until {
        prepare(task, device, 1);
        task.sleep(Cause::Think, every);
    }
    flushes.join(task);
}

#[test]
fn with_unwritten_extents_a_commit_waits_for_its_own_writes_only() {
    let mut rig = rig(Options::default(), 1);
    let device = rig.device;
    let until = Instant(12 * policy::units::SECOND);
    let ended = rig.lab.run(move |task| {
        write_beside_a_flusher(task, device, until, Nanos::millis(10));
    });
    ended.unwrap();
    let stats = rig.journal.stats();
    assert_eq!(stats.commits, 2);
    // The log goes behind the 4 MiB under way, and waits for no more.
    assert!(stats.held_longest > Nanos::millis(150), "{stats:?}");
    assert!(stats.held_longest < Nanos::millis(280), "{stats:?}");
}

#[test]
fn a_log_that_fails_makes_the_file_system_read_only() {
    let mut rig = rig(Options::default(), 1);
    let (device, simulated) = (rig.device, Arc::clone(&rig.simulated));
    let host = rig.lab.host();
    let ended = rig.lab.run(move |task| {
        prepare(task, device, 0);
        let cut = Arc::clone(&simulated);
        host.at(
            Instant(4 * policy::units::SECOND),
            Box::new(move |context| cut.power_cut(context)),
        );
        let wakeup = task.sleep(Cause::Think, Nanos::secs(6));
        assert_eq!(wakeup, Wakeup::TimedOut);
        simulated.power_on();
        let op = IoOp::Prepare { len: Bytes(1) };
        let told = send(task, device, 0, op, 0, 0, 0).wait(task);
        let wrote = send(task, device, 0, IoOp::Write, 0, 1, 0).wait(task);
        let read = send(task, device, 0, IoOp::Read, 0, 1, 0).wait(task);
        (told, wrote, read)
    });
    let (told, wrote, read) = ended.unwrap();
    assert_eq!((told, wrote), (Err(READ_ONLY), Err(READ_ONLY)));
    assert_eq!(read, Ok(()));
    assert_eq!(rig.journal.stats().commits, 0);
}

#[test]
fn a_run_can_be_repeated() {
    let hash = |seed| {
        let mut rig = rig(Options::default(), seed);
        let device = rig.device;
        let until = Instant(7 * policy::units::SECOND);
        let ended = rig.lab.run(move |task| {
            write_beside_a_flusher(task, device, until, Nanos::millis(3));
        });
        ended.unwrap();
        (rig.lab.trace_hash(), rig.journal.stats())
    };
    assert_eq!(hash(5), hash(5));
    assert_ne!(hash(5).0, hash(6).0);
}

#[test]
fn what_is_held_when_the_world_ends_is_let_go() {
    let mut rig = rig(ordered(), 1);
    let device = rig.device;
    let ended = rig.lab.run(move |task| {
        let until = Instant(20 * policy::units::SECOND);
        drop(spawn(task.env(), "flusher", move |task| {
            flusher(task, device, 0, 8, 8, until);
        }));
        drop(spawn(task.env(), "writer", move |task| {
            while task.now() < until {
                prepare(task, device, 1);
                if task.sleep(Cause::Think, Nanos::millis(5)) == Wakeup::Cancelled {
                    return;
                }
            }
        }));
        // In the middle of the first commit.
        task.sleep(Cause::Think, Nanos::millis(5_200));
    });
    ended.unwrap();
    assert_eq!(rig.journal.core.lock().held.len(), 0);
}
