//! The device against a model of bytes, with stores that fail in every way they can.

#![allow(
    clippy::cast_possible_truncation,
    reason = "64 bits, and small numbers"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Chance, Fault, Faulty, LONG, MIB, PAGE, Rig, TestDir};
use env::{IoError, IoOp};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _, PutPayload};
use objects::{Config, Error, Objects};
use policy::units::Bytes;

const OBJECT: u64 = 256 << 10;

fn config(size: u64) -> Config {
    Config {
        size: Some(size),
        object_size: Some(OBJECT),
        timeout: Duration::from_secs(5),
        ..Config::new("test")
    }
}

fn memory() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(future)
}

fn object(number: u64) -> Path {
    Path::from(format!("volumes/one/{number:016x}"))
}

fn is_object(at: &Path) -> bool {
    at.filename().is_some_and(|name| name.len() == 16)
}

fn pattern(tag: u64, len: usize) -> Vec<u8> {
    let mut chance = Chance::new(tag + 1);
    (0..len / 8)
        .flat_map(|_| chance.next().to_le_bytes())
        .collect()
}

#[test]
fn what_was_written_is_read_back_after_reopening() {
    let rig = Rig::new();
    let store = memory();
    let size = 5 * OBJECT + 8192;
    let device = rig.open(&store, &config(size)).unwrap();
    assert_eq!((device.size(), device.object_size()), (size, OBJECT));
    let zeroes = rig.read(&*device, 0, 16 * PAGE).unwrap();
    assert_eq!(zeroes, vec![0; 16 * PAGE]);
    // Over a boundary, and the short tail.
    let data = pattern(1, 4 * PAGE);
    rig.write(&*device, OBJECT - 2 * PAGE as u64, &data)
        .unwrap();
    rig.write(&*device, 5 * OBJECT + 4096, &data[..PAGE])
        .unwrap();
    rig.flush(&*device).unwrap();
    drop(device);

    let device = rig
        .open(
            &store,
            &Config {
                size: None,
                object_size: None,
                ..config(0)
            },
        )
        .unwrap();
    assert_eq!(device.size(), size);
    let gets = device.counts().gets;
    assert_eq!(rig.read(&*device, 3 * OBJECT, PAGE).unwrap(), vec![0; PAGE]);
    assert_eq!(device.counts().gets, gets, "a hole costs no request");
    assert_eq!(
        rig.read(&*device, OBJECT - 2 * PAGE as u64, 4 * PAGE)
            .unwrap(),
        data
    );
    let mut tail = data[..PAGE].to_vec();
    tail.resize(3 * PAGE, 0);
    assert_eq!(
        rig.read(&*device, 5 * OBJECT + 4096, 3 * PAGE).unwrap(),
        tail,
        "zeroes beyond the end"
    );
    assert_eq!(device.extents(0, size), (2 * OBJECT, false));
    assert_eq!(device.extents(2 * OBJECT, size), (3 * OBJECT, true));
    assert_eq!(device.extents(5 * OBJECT + 4096, size), (4096, false));
    assert_eq!(
        rig.write(&*device, 6 * OBJECT, &data),
        Err(IoError::NoSpace)
    );
    let allocate = rig.submit(
        &*device,
        IoOp::Allocate {
            len: Bytes(size + 1),
        },
        0,
    );
    assert_eq!(rig.wait(allocate), Err(IoError::NoSpace));
}

#[test]
fn a_full_object_is_put_without_a_read_and_a_part_with_one() {
    let rig = Rig::new();
    let store = memory();
    let device = rig.open(&store, &config(4 * OBJECT)).unwrap();
    let before = device.counts();
    let whole = pattern(2, OBJECT as usize);
    rig.write(&*device, OBJECT, &whole).unwrap();
    rig.write(&*device, OBJECT, &whole).unwrap();
    rig.write(&*device, 0, &whole[..PAGE]).unwrap();
    let now = device.counts();
    assert_eq!((now.gets, now.heads), (before.gets, before.heads));
    assert_eq!(now.puts, before.puts + 3);
    rig.write(&*device, PAGE as u64, &whole[..PAGE]).unwrap();
    assert_eq!(
        device.counts().gets,
        before.gets + 1,
        "the rest of the object is read"
    );
    let text = block_on(async { store.get(&object(0)).await.unwrap().bytes().await.unwrap() });
    assert_eq!(
        text.len() as u64,
        OBJECT,
        "objects are whole, so that they can be put together without us"
    );
    assert_eq!(text[PAGE..2 * PAGE], whole[..PAGE]);
}

/// Random requests, several at a time, each tried until it succeeds, against a model of bytes.
fn against_model(rig: &Rig, device: &Objects, model: &mut [u8], chance: &mut Chance, rounds: u64) {
    let pages = model.len() as u64 / PAGE as u64;
    for round in 0..rounds {
        // Ranges that do not overlap: the cache sends no others at the same time.
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for _ in 0..1 + chance.below(12) {
            let len = match chance.below(4) {
                0 => 1,
                1 => 1 + chance.below(8),
                _ => 1 + chance.below(2 * OBJECT / PAGE as u64),
            };
            let first = chance.below(pages);
            // Often whole objects.
            let (first, len) = match chance.below(4) {
                0 => (first / 64 * 64, 64 * (1 + chance.below(3))),
                _ => (first, len),
            };
            let len = len.min(pages - first).min(256);
            if taken
                .iter()
                .all(|(at, many)| first + len <= *at || at + many <= first)
            {
                taken.push((first, len));
            }
        }
        let mut jobs = Vec::new();
        for (first, len) in taken {
            let (offset, bytes) = (first * PAGE as u64, len as usize * PAGE);
            let range = offset as usize..offset as usize + bytes;
            match chance.below(8) {
                0..4 => {
                    let data = pattern(chance.next(), bytes);
                    let pending = rig.submit_write(device, offset, &data);
                    model[range].copy_from_slice(&data);
                    jobs.push((pending, offset, bytes, Some(data), false));
                }
                4..7 => jobs.push((
                    rig.submit_read(device, offset, bytes),
                    offset,
                    bytes,
                    None,
                    true,
                )),
                _ => {
                    let op = IoOp::Discard {
                        len: Bytes(bytes as u64),
                    };
                    model[range].fill(0);
                    jobs.push((rig.submit(device, op, offset), offset, bytes, None, false));
                }
            }
        }
        for (pending, offset, bytes, data, is_read) in jobs {
            let mut result = rig.wait(pending);
            let mut tries = 0;
            while let Err(error) = result {
                tries += 1;
                assert!(tries < 200, "{error} at {offset}: {:?}", device.failure());
                let again = match &data {
                    Some(data) => rig.submit_write(device, offset, data),
                    None if is_read => rig.submit_read(device, offset, bytes),
                    None => rig.submit(
                        device,
                        IoOp::Discard {
                            len: Bytes(bytes as u64),
                        },
                        offset,
                    ),
                };
                result = rig.wait(again);
            }
            if let (true, Ok(bytes)) = (is_read, result) {
                let range = offset as usize..offset as usize + bytes.len();
                assert!(
                    bytes == model[range],
                    "round {round}, {} bytes at {offset}",
                    bytes.len()
                );
            }
        }
        if chance.below(4) == 0 {
            rig.flush(device).unwrap();
        }
    }
    assert_eq!(device.failure(), None);
}

fn compare(rig: &Rig, device: &Objects, model: &[u8]) {
    for offset in (0..model.len()).step_by(64 * PAGE) {
        let len = (64 * PAGE).min(model.len() - offset);
        let bytes = rig.read(device, offset as u64, len).unwrap();
        assert!(
            bytes == model[offset..offset + len],
            "{len} bytes at {offset}"
        );
        let (mut at, end) = (offset as u64, (offset + len) as u64);
        while at < end {
            let (len, hole) = device.extents(at, end - at);
            let part = &model[at as usize..(at + len) as usize];
            assert!(
                !hole || part.iter().all(|byte| *byte == 0),
                "data called a hole at {at}"
            );
            at += len;
        }
    }
}

#[test]
fn random_requests_against_a_model() {
    let rig = Rig::new();
    let store = memory();
    let mut chance = Chance::new(7);
    let mut model = vec![0; (6 * OBJECT + 5 * PAGE as u64) as usize];
    let device = rig.open(&store, &config(model.len() as u64)).unwrap();
    against_model(&rig, &device, &mut model, &mut chance, 150);
    compare(&rig, &device, &model);
    assert!(device.counts().merged > 0, "{:?}", device.counts());
    drop(device);
    let device = rig.open(&store, &config(model.len() as u64)).unwrap();
    compare(&rig, &device, &model);
}

#[test]
fn random_requests_in_a_directory() {
    let rig = Rig::new();
    let dir = TestDir::new("model");
    let mut chance = Chance::new(8);
    let mut model = vec![0; (4 * OBJECT) as usize];
    let config = Config {
        url: dir.url(),
        ..config(model.len() as u64)
    };
    let device = objects::open(&config, Arc::clone(&rig.arena)).unwrap();
    against_model(&rig, &device, &mut model, &mut chance, 30);
    drop(device);
    let device = objects::open(&config, Arc::clone(&rig.arena)).unwrap();
    compare(&rig, &device, &model);
}

/// The rest of our own discard, whose answer was lost, is nobody else's.
#[test]
fn an_object_that_a_discard_emptied_unheard_is_no_strangers() {
    let rig = Rig::new();
    let faulty = Faulty::new(memory());
    let store: Arc<dyn ObjectStore> = faulty.clone();
    let device = rig.open(&store, &config(4 * OBJECT)).unwrap();
    let data = pattern(1, OBJECT as usize);
    rig.write(&*device, 0, &data).unwrap();
    rig.write(&*device, OBJECT, &data).unwrap();
    faulty.rule(|call, at| (call == "put" && is_object(at)).then_some(Fault::DoneUnheard));
    assert!(rig.discard(&*device, 0, OBJECT).is_err());
    faulty.calm();
    let _ = rig.read(&*device, 0, PAGE);
    assert_eq!(device.failure(), None);
    assert_eq!(rig.read(&*device, OBJECT, data.len()).unwrap(), data);
    rig.discard(&*device, 0, OBJECT).unwrap();
    assert_eq!(rig.read(&*device, 0, PAGE).unwrap(), vec![0; PAGE]);
}

#[test]
fn random_requests_while_the_store_fails() {
    for seed in 1..6 {
        let rig = Rig::new();
        let faulty = Faulty::new(memory());
        let store: Arc<dyn ObjectStore> = faulty.clone();
        let mut chance = Chance::new(seed);
        let mut model = vec![0; (4 * OBJECT) as usize];
        let device = rig.open(&store, &config(model.len() as u64)).unwrap();
        let mut dice = Chance::new(100 + seed);
        let injected = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&injected);
        faulty.rule(move |call, at| {
            if !is_object(at) || dice.below(3) != 0 {
                return None;
            }
            count.fetch_add(1, Ordering::Relaxed);
            Some(match (call, dice.below(4)) {
                ("put", 0) => Fault::DoneUnheard,
                ("put", 1) => Fault::DoneLater,
                (_, 2) => Fault::Slow(Duration::from_millis(2)),
                _ => Fault::Fail,
            })
        });
        against_model(&rig, &device, &mut model, &mut chance, 40);
        assert!(injected.load(Ordering::Relaxed) > 50);
        faulty.calm();
        compare(&rig, &device, &model);
        drop(device);
        std::thread::sleep(Duration::from_millis(10));
        let device = rig.open(&store, &config(model.len() as u64)).unwrap();
        compare(&rig, &device, &model);
    }
}

#[test]
fn a_stranger_is_never_overwritten() {
    let rig = Rig::new();
    let data = pattern(3, 4 * PAGE);
    let foreign = PutPayload::from(vec![9; OBJECT as usize]);
    // Written in part, written whole, created where nothing was, emptied; and a read.
    for case in 0..5 {
        let store = memory();
        let device = rig.open(&store, &config(4 * OBJECT)).unwrap();
        rig.write(&*device, 0, &data).unwrap();
        let number = if case == 2 { 1 } else { 0 };
        block_on(store.put(&object(number), foreign.clone())).unwrap();
        let result = match case {
            0 => rig.write(&*device, 0, &data[..PAGE]),
            1 => rig.write(&*device, 0, &pattern(4, OBJECT as usize)),
            2 => rig.write(&*device, OBJECT, &data),
            3 => rig.discard(&*device, 0, OBJECT),
            _ => rig.read(&*device, 0, PAGE).map(|_| ()),
        };
        assert_eq!(result, Err(IoError::Lost), "case {case}");
        let why = device.failure().unwrap();
        assert!(why.contains(&format!("{number:016x}")), "{why}");
        let there = block_on(async {
            store
                .get(&object(number))
                .await
                .unwrap()
                .bytes()
                .await
                .unwrap()
        });
        assert_eq!(there, vec![9; OBJECT as usize], "case {case}");
        assert_eq!(rig.write(&*device, 3 * OBJECT, &data), Err(IoError::Lost));
        assert_eq!(rig.flush(&*device), Err(IoError::Lost));
    }
}

#[test]
fn a_removed_object_is_no_hole() {
    let rig = Rig::new();
    let store = memory();
    let device = rig.open(&store, &config(4 * OBJECT)).unwrap();
    rig.write(&*device, 0, &pattern(3, PAGE)).unwrap();
    block_on(store.delete(&object(0))).unwrap();
    assert_eq!(rig.read(&*device, 0, PAGE), Err(IoError::Lost));
    assert!(device.failure().unwrap().contains("is gone"));
}

#[test]
fn discards_leave_empty_objects_and_a_stranger_in_one_is_noticed() {
    let rig = Rig::new();
    let store = memory();
    let device = rig.open(&store, &config(4 * OBJECT)).unwrap();
    let data = pattern(5, 2 * OBJECT as usize);
    rig.write(&*device, 0, &data).unwrap();
    rig.discard(&*device, PAGE as u64, 2 * OBJECT - PAGE as u64)
        .unwrap();
    assert_eq!(device.extents(0, 4 * OBJECT), (OBJECT, false));
    assert_eq!(device.stored(), OBJECT);
    let mut first = data[..PAGE].to_vec();
    first.resize(3 * PAGE, 0);
    assert_eq!(rig.read(&*device, 0, 3 * PAGE).unwrap(), first);
    assert_eq!(rig.read(&*device, OBJECT, PAGE).unwrap(), vec![0; PAGE]);
    let puts = device.counts().puts;
    rig.discard(&*device, OBJECT, 3 * OBJECT).unwrap();
    assert_eq!(
        device.counts().puts,
        puts,
        "nothing to discard, nothing put"
    );
    let len = block_on(store.head(&object(1))).unwrap().size;
    assert_eq!(len, 0);
    block_on(store.put(&object(1), PutPayload::from(vec![9; OBJECT as usize]))).unwrap();
    assert_eq!(
        rig.write(&*device, OBJECT, &data[..PAGE]),
        Err(IoError::Lost)
    );
}

#[test]
fn a_discard_is_not_undone_by_a_put_that_had_no_answer() {
    let rig = Rig::new();
    let faulty = Faulty::new(memory());
    let store: Arc<dyn ObjectStore> = faulty.clone();
    let device = rig.open(&store, &config(4 * OBJECT)).unwrap();
    faulty.rule(|call, at| (call == "put" && is_object(at)).then_some(Fault::DoneUnheard));
    assert!(rig.write(&*device, 0, &pattern(1, PAGE)).is_err());
    faulty.calm();
    // The same when it is only on its way.
    let mut later = Some(Fault::DoneLater);
    faulty.rule(move |call, at| {
        if call == "put" && is_object(at) {
            later.take()
        } else {
            None
        }
    });
    assert!(rig.write(&*device, OBJECT, &pattern(1, PAGE)).is_err());
    rig.discard(&*device, 0, 2 * OBJECT).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    drop(device);
    let device = rig.open(&store, &config(4 * OBJECT)).unwrap();
    assert_eq!(device.extents(0, 4 * OBJECT), (4 * OBJECT, true));
    assert_eq!(rig.read(&*device, 0, PAGE).unwrap(), vec![0; PAGE]);
}

#[test]
fn a_hang_ends_after_the_bound_and_holds_up_nobody_else() {
    let rig = Rig::new();
    let faulty = Faulty::new(memory());
    let store: Arc<dyn ObjectStore> = faulty.clone();
    let config = Config {
        // A request that does not hang is done within it on a busy machine, too.
        timeout: Duration::from_secs(3),
        ..config(4 * OBJECT)
    };
    let device = rig.open(&store, &config).unwrap();
    faulty.rule(|call, at| (call == "put" && *at == object(0)).then_some(Fault::Hang));
    let data = pattern(6, PAGE);
    let began = Instant::now();
    let hanging = rig.submit_write(&*device, 0, &data);
    rig.write(&*device, OBJECT, &data).unwrap();
    assert_eq!(rig.read(&*device, OBJECT, PAGE).unwrap(), data);
    assert!(!hanging.has_ended(), "the others were done while it hung");
    let flush = rig.submit(&*device, IoOp::Flush, 0);
    assert_eq!(rig.wait(hanging), Err(IoError::Failed { errno: 110 }));
    assert!(began.elapsed() >= config.timeout);
    rig.wait(flush).unwrap();
    faulty.calm();
    rig.write(&*device, 0, &data).unwrap();
    assert_eq!(rig.read(&*device, 0, PAGE).unwrap(), data);
}

#[test]
fn what_is_refused_has_its_class() {
    let rig = Rig::new();
    let faulty = Faulty::new(memory());
    let store: Arc<dyn ObjectStore> = faulty.clone();
    let device = rig.open(&store, &config(4 * OBJECT)).unwrap();
    faulty.rule(|_, at| is_object(at).then_some(Fault::Denied));
    assert_eq!(
        rig.write(&*device, 0, &pattern(6, PAGE)),
        Err(IoError::Failed { errno: 13 })
    );
    faulty.rule(|_, at| is_object(at).then_some(Fault::Fail));
    assert_eq!(
        rig.write(&*device, 0, &pattern(6, PAGE)),
        Err(IoError::Failed { errno: 5 })
    );
    assert_eq!(device.failure(), None, "the store may come back");
}

#[test]
fn puts_go_side_by_side_up_to_the_bound_and_wait_in_order_within_an_object() {
    let rig = Rig::new();
    let faulty = Faulty::new(memory());
    let store: Arc<dyn ObjectStore> = faulty.clone();
    let config = Config {
        parallel: Some(4),
        timeout: LONG,
        ..config(16 * OBJECT)
    };
    let device = rig.open(&store, &config).unwrap();
    faulty.rule(|call, at| (call == "put" && is_object(at)).then_some(Fault::Held));
    let data = pattern(6, PAGE);
    let pending: Vec<_> = (0..8)
        .map(|number| rig.submit_write(&*device, number * OBJECT, &data))
        .collect();
    for round in 1..3 {
        faulty.until_held(4 * round);
        faulty.release(4);
    }
    pending
        .into_iter()
        .for_each(|one| rig.wait(one).map(|_| ()).unwrap());
    // Of one object: the first goes, the rest waits and goes together.
    let puts = device.counts().puts;
    let pending: Vec<_> = (0..20)
        .map(|page| rig.submit_write(&*device, 9 * OBJECT + page * PAGE as u64, &data))
        .collect();
    faulty.until_held(9);
    faulty.release(2);
    pending
        .into_iter()
        .for_each(|one| rig.wait(one).map(|_| ()).unwrap());
    assert_eq!(device.counts().puts, puts + 2);
    assert_eq!(
        rig.read(&*device, 9 * OBJECT + 19 * PAGE as u64, PAGE)
            .unwrap(),
        data
    );
}

#[test]
fn a_closed_device_cancels_and_answers() {
    let rig = Rig::new();
    let faulty = Faulty::new(memory());
    let store: Arc<dyn ObjectStore> = faulty.clone();
    let device = rig
        .open(
            &store,
            &Config {
                parallel: Some(1),
                ..config(4 * OBJECT)
            },
        )
        .unwrap();
    faulty.rule(|call, at| (call == "put" && is_object(at)).then_some(Fault::Hang));
    let data = pattern(6, PAGE);
    let under_way = rig.submit_write(&*device, 0, &data);
    let waiting = rig.submit_write(&*device, OBJECT, &data);
    let flush = rig.submit(&*device, IoOp::Flush, 0);
    // It is not waited for until it has taken too long.
    device.close(Duration::from_millis(50));
    assert_eq!(rig.wait(under_way), Err(IoError::Cancelled));
    assert_eq!(rig.wait(waiting), Err(IoError::Cancelled));
    rig.wait(flush).unwrap();
    assert_eq!(rig.write(&*device, 0, &data), Err(IoError::Cancelled));
    device.close(Duration::ZERO);
    assert_eq!(device.pending(), 0);
}

#[test]
fn opening_checks_what_is_there() {
    let rig = Rig::new();
    let store = memory();
    let open = |config: &Config| rig.open(&store, config);
    let nothing = Config {
        size: None,
        ..config(0)
    };
    assert!(matches!(open(&nothing), Err(Error::NoVolume { .. })));
    assert!(matches!(
        open(&config(5)),
        Err(Error::Option { name: "size", .. })
    ));
    let odd = Config {
        object_size: Some(3 << 20),
        ..config(MIB)
    };
    assert!(matches!(
        open(&odd),
        Err(Error::Option {
            name: "object_size",
            ..
        })
    ));
    let none = Config {
        parallel: Some(0),
        ..config(MIB)
    };
    assert!(matches!(
        open(&none),
        Err(Error::Option {
            name: "parallel",
            ..
        })
    ));
    drop(open(&config(MIB)).unwrap());
    assert!(matches!(
        open(&config(2 * MIB)),
        Err(Error::Differs { what: "size", .. })
    ));
    let larger = Config {
        object_size: Some(MIB),
        ..config(MIB)
    };
    assert!(matches!(
        open(&larger),
        Err(Error::Differs {
            what: "object size",
            ..
        })
    ));
    let manifest = Path::from("volumes/one/volume.json");
    block_on(store.put(&manifest, PutPayload::from_static(b"{"))).unwrap();
    assert!(matches!(open(&config(MIB)), Err(Error::Manifest { .. })));
    block_on(store.delete(&manifest)).unwrap();
    block_on(store.put(&object(3), PutPayload::from_static(b"x"))).unwrap();
    assert!(matches!(open(&config(MIB)), Err(Error::NotEmpty { .. })));
    let faulty = Faulty::new(memory());
    faulty.rule(|call, _| (call == "list").then_some(Fault::Hang));
    let store: Arc<dyn ObjectStore> = faulty;
    let quick = Config {
        timeout: Duration::from_millis(100),
        ..config(MIB)
    };
    assert!(matches!(
        rig.open(&store, &quick),
        Err(Error::TimedOut { .. })
    ));
}

#[test]
fn a_reader_changes_nothing_and_keeps_nobody_out() {
    let rig = Rig::new();
    let store = memory();
    let writer = rig.open(&store, &config(MIB)).unwrap();
    let data = pattern(6, PAGE);
    rig.write(&*writer, 0, &data).unwrap();
    let reader = rig
        .open(
            &store,
            &Config {
                size: None,
                read_only: true,
                ..config(0)
            },
        )
        .unwrap();
    assert_eq!(rig.read(&*reader, 0, PAGE).unwrap(), data);
    assert_eq!(
        rig.write(&*reader, 0, &data),
        Err(IoError::Failed { errno: 30 })
    );
    assert_eq!(
        rig.discard(&*reader, 0, MIB),
        Err(IoError::Failed { errno: 30 })
    );
    rig.write(&*writer, 0, &pattern(7, PAGE)).unwrap();
}

#[test]
fn of_two_servers_the_second_is_refused_and_a_forced_one_fences_the_first() {
    let rig = Rig::new();
    let store = memory();
    // Renewed in time also by a busy machine.
    let short = Config {
        lease: Duration::from_secs(2),
        ..config(MIB)
    };
    let first = rig.open(&store, &short).unwrap();
    let data = pattern(6, PAGE);
    rig.write(&*first, 0, &data).unwrap();
    match rig.open(&store, &short) {
        Err(Error::InUse {
            owner,
            remaining: Some(_),
            ..
        }) => {
            assert!(owner.contains(&std::process::id().to_string()), "{owner}");
        }
        other => panic!("{:?}", other.map(|_| ())),
    }
    let second = rig
        .open(
            &store,
            &Config {
                force: true,
                ..short.clone()
            },
        )
        .unwrap();
    assert_eq!(rig.write(&*first, OBJECT, &data), Err(IoError::Lost));
    assert!(first.failure().unwrap().contains("lease was taken"));
    rig.write(&*second, 0, &pattern(8, PAGE)).unwrap();
    rig.write(&*second, OBJECT, &data).unwrap();
    // Renewed: still its own after several times its length.
    std::thread::sleep(2 * short.lease + short.lease / 2);
    rig.write(&*second, OBJECT, &data).unwrap();
    drop(first);
    drop(second);
    let third = rig.open(&store, &short).unwrap();
    assert_eq!(rig.read(&*third, 0, PAGE).unwrap(), pattern(8, PAGE));
}

#[test]
fn a_lease_that_cannot_be_renewed_stops_writes_until_it_can() {
    let rig = Rig::new();
    let faulty = Faulty::new(memory());
    let store: Arc<dyn ObjectStore> = faulty.clone();
    let short = Config {
        lease: Duration::from_millis(300),
        ..config(MIB)
    };
    let device = rig.open(&store, &short).unwrap();
    let data = pattern(6, PAGE);
    faulty
        .rule(|call, at| (call == "put" && at.filename() == Some("lease")).then_some(Fault::Fail));
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(
        rig.write(&*device, 0, &data),
        Err(IoError::Failed { errno: 110 })
    );
    faulty.calm();
    let began = Instant::now();
    while let Err(error) = rig.write(&*device, 0, &data) {
        assert_eq!(error, IoError::Failed { errno: 110 });
        assert!(began.elapsed() < LONG, "it is never renewed");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn what_is_named_like_an_object_and_is_no_file_is_refused() {
    let rig = Rig::new();
    let dir = TestDir::new("impostors");
    let config = Config {
        url: dir.url(),
        ..config(MIB)
    };
    let open = || objects::open(&config, Arc::clone(&rig.arena));
    let first = open().unwrap();
    rig.write(&*first, 0, &pattern(6, PAGE)).unwrap();
    first.close(Duration::from_secs(5));
    let place = dir.0.join("0000000000000000");
    let kept = dir.0.join("kept");
    std::fs::rename(&place, &kept).unwrap();
    let refused = || {
        let error = open().err().unwrap().to_string();
        assert!(error.contains("0000000000000000"), "{error}");
    };
    std::fs::create_dir(&place).unwrap();
    refused();
    std::fs::remove_dir(&place).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(&place).unwrap();
    refused();
    std::fs::remove_file(&place).unwrap();
    for target in ["/dev/zero", "/no/such/file"] {
        std::os::unix::fs::symlink(target, &place).unwrap();
        refused();
        std::fs::remove_file(&place).unwrap();
    }
    std::fs::rename(&kept, &place).unwrap();
    let again = open().unwrap();
    assert_eq!(rig.read(&*again, 0, PAGE).unwrap(), pattern(6, PAGE));
}

#[test]
fn an_object_of_another_length_is_named() {
    let rig = Rig::new();
    let dir = TestDir::new("lengths");
    let config = Config {
        url: dir.url(),
        ..config(MIB)
    };
    let open = || objects::open(&config, Arc::clone(&rig.arena));
    let (name, data) = ("0000000000000001", pattern(6, OBJECT as usize));
    let cut = |len| {
        let file = std::fs::File::options().write(true).open(dir.0.join(name));
        file.unwrap().set_len(len).unwrap();
    };
    // The part that is read is there, is not, or is there in part; or it is to be written in part.
    for (len, at, is_write) in [
        (OBJECT - 1, 0, false),
        (PAGE as u64, OBJECT - PAGE as u64, false),
        (OBJECT - 1, OBJECT - PAGE as u64, false),
        (OBJECT + 1, 0, false),
        (PAGE as u64, 0, true),
    ] {
        let device = open().unwrap();
        rig.write(&*device, 0, &vec![3; 3 * OBJECT as usize])
            .unwrap();
        rig.write(&*device, OBJECT, &data).unwrap();
        rig.flush(&*device).unwrap();
        cut(len);
        let result = match is_write {
            true => rig.write(&*device, OBJECT + at, &pattern(7, PAGE)),
            false => rig.read(&*device, OBJECT + at, PAGE).map(drop),
        };
        assert_eq!(result, Err(IoError::Lost), "{len}");
        let why = device.failure().unwrap();
        assert!(why.contains(name), "{why}");
        device.close(Duration::from_secs(5));
        let why = open().err().unwrap().to_string();
        let length = format!("{name} is {len} bytes long, not {OBJECT}");
        assert!(why.contains(&length), "{why}");
        // A reader gets all else.
        let reader = Config {
            read_only: true,
            ..config.clone()
        };
        let device = objects::open(&reader, Arc::clone(&rig.arena)).unwrap();
        let damaged: Vec<_> = device.damaged().collect();
        assert_eq!(damaged, [(name.to_owned(), len)]);
        for at in [OBJECT, 2 * OBJECT - PAGE as u64, OBJECT - PAGE as u64] {
            let read = rig.read(&*device, at, 2 * PAGE);
            assert_eq!(read, Err(IoError::Failed { errno: 5 }), "{at}");
        }
        for at in [OBJECT - PAGE as u64, 2 * OBJECT] {
            assert_eq!(rig.read(&*device, at, PAGE).unwrap(), vec![3; PAGE], "{at}");
        }
        drop(device);
        std::fs::write(dir.0.join(name), &data).unwrap();
    }
    let device = open().unwrap();
    assert_eq!(rig.read(&*device, OBJECT, data.len()).unwrap(), data);
}

#[test]
fn a_directory_that_is_moved_is_not_made_anew() {
    let rig = Rig::new();
    let dir = TestDir::new("moved");
    let config = Config {
        url: dir.url(),
        ..config(MIB)
    };
    let device = objects::open(&config, Arc::clone(&rig.arena)).unwrap();
    rig.write(&*device, 0, &pattern(1, PAGE)).unwrap();
    let reads = Config {
        size: None,
        read_only: true,
        ..config.clone()
    };
    let reader = objects::open(&reads, Arc::clone(&rig.arena)).unwrap();
    let elsewhere = dir.0.with_extension("elsewhere");
    std::fs::rename(&dir.0, &elsewhere).unwrap();
    assert_eq!(
        rig.read(&*reader, 0, PAGE),
        Err(IoError::Failed { errno: 2 })
    );
    let said = reader.failure().expect("it is away");
    assert!(said.contains("bring it back"), "{said}");
    let missing = Err(IoError::Failed { errno: 2 });
    assert_eq!(rig.write(&*device, OBJECT, &pattern(2, PAGE)), missing);
    assert!(!dir.0.exists());
    // Objects that are there already are not lost either, and it is said why nothing comes of it.
    assert_eq!(
        rig.read(&*device, 0, PAGE),
        Err(IoError::Failed { errno: 2 })
    );
    assert_eq!(rig.write(&*device, 0, &pattern(3, PAGE)), missing);
    let said = device.failure().expect("it is away");
    assert!(said.contains("bring it back"), "{said}");
    // Nor is what somebody else has made there taken for it.
    std::fs::create_dir(&dir.0).unwrap();
    std::fs::write(dir.0.join("lock"), "").unwrap();
    assert_eq!(rig.write(&*device, OBJECT, &pattern(2, PAGE)), missing);
    std::fs::remove_dir_all(&dir.0).unwrap();
    std::fs::rename(&elsewhere, &dir.0).unwrap();
    assert_eq!((device.failure(), reader.failure()), (None, None));
    assert_eq!(rig.read(&*reader, 0, PAGE).unwrap(), pattern(1, PAGE));
    rig.write(&*device, OBJECT, &pattern(2, PAGE)).unwrap();
    assert_eq!(rig.read(&*device, OBJECT, PAGE).unwrap(), pattern(2, PAGE));
    assert_eq!(rig.read(&*device, 0, PAGE).unwrap(), pattern(1, PAGE));
    rig.write(&*device, 0, &pattern(3, PAGE)).unwrap();
    assert_eq!(rig.read(&*device, 0, PAGE).unwrap(), pattern(3, PAGE));
}

#[test]
fn a_directory_stays_the_one_it_was_when_a_link_to_it_leads_elsewhere() {
    let rig = Rig::new();
    let dir = TestDir::new("link");
    let (first, second, link) = (dir.0.join("1"), dir.0.join("2"), dir.0.join("link"));
    std::fs::create_dir(&first).unwrap();
    std::fs::create_dir(&second).unwrap();
    std::os::unix::fs::symlink(&first, &link).unwrap();
    let config = Config {
        url: format!("dir:{}", link.display()),
        ..config(MIB)
    };
    let device = objects::open(&config, Arc::clone(&rig.arena)).unwrap();
    rig.write(&*device, 0, &pattern(1, PAGE)).unwrap();
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&second, &link).unwrap();
    rig.write(&*device, OBJECT, &pattern(2, PAGE)).unwrap();
    assert_eq!(rig.read(&*device, OBJECT, PAGE).unwrap(), pattern(2, PAGE));
    assert_eq!(std::fs::read_dir(&second).unwrap().count(), 0);
}

#[test]
fn a_directory_is_locked_and_cleaned() {
    let rig = Rig::new();
    let dir = TestDir::new("lock");
    let config = Config {
        url: dir.url(),
        ..config(MIB)
    };
    let first = objects::open(&config, Arc::clone(&rig.arena)).unwrap();
    for force in [false, true] {
        let again = objects::open(
            &Config {
                force,
                ..config.clone()
            },
            Arc::clone(&rig.arena),
        );
        assert!(matches!(
            again,
            Err(Error::InUse {
                remaining: None,
                ..
            })
        ));
    }
    rig.write(&*first, 0, &pattern(6, PAGE)).unwrap();
    // Closed is enough: somebody may still hold it.
    first.close(Duration::from_secs(5));
    let left = dir.0.join("0000000000000001#1");
    std::fs::write(&left, b"half").unwrap();
    let second = objects::open(&config, Arc::clone(&rig.arena)).unwrap();
    assert!(!left.exists());
    assert_eq!(rig.read(&*second, 0, PAGE).unwrap(), pattern(6, PAGE));
    drop(first);
    // A program that writes into it all the same is noticed.
    std::fs::write(dir.0.join("0000000000000000"), vec![1; OBJECT as usize]).unwrap();
    assert_eq!(
        rig.write(&*second, 0, &pattern(7, PAGE)),
        Err(IoError::Lost)
    );
}
