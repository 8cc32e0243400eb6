use super::*;
use crate::threads::{Backend, Options};
use env::{DeviceId, Env as _, IoClass, IoDone};
use frames::{Content, FrameId};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::sync::{Condvar, Mutex};

const FRAMES: u32 = 512;
const CHUNK: u32 = 128;

/// A request that came back, and how.
type Ended = (Box<IoRequest>, Result<(), IoError>);

/// Takes completions, so that a test can wait for them.
#[derive(Default)]
pub(crate) struct Inbox {
    ended: Mutex<Vec<Ended>>,
    arrived: Condvar,
}

impl IoDone for Inbox {
    fn io_done(&self, _: &Interrupt, request: Box<IoRequest>, result: Result<(), IoError>) {
        self.ended.lock().unwrap().push((request, result));
        self.arrived.notify_all();
    }
}

impl Inbox {
    fn wait(&self, count: usize) -> Vec<Ended> {
        // Far longer than a slow disk takes.
        let bound = std::time::Duration::from_secs(120);
        let ended = self.ended.lock().unwrap();
        let (mut ended, timeout) = self
            .arrived
            .wait_timeout_while(ended, bound, |e| e.len() < count)
            .unwrap();
        assert!(
            !timeout.timed_out(),
            "{} of {count} requests ended",
            ended.len()
        );
        core::mem::take(&mut *ended)
    }
}

/// An environment with a device and a directory.
struct Rig {
    env: Arc<ThreadEnv>,
    device: Arc<FileDevice>,
    id: DeviceId,
    inbox: Arc<Inbox>,
    dir: crate::TestDir,
    /// Requests say that their submitter waits for them.
    in_place: bool,
}

impl Rig {
    fn new(name: &str, backend: Backend) -> Self {
        let mut options = Options::new(FRAMES);
        options.chunk_frames = CHUNK;
        options.backend = backend;
        options.workers = 3;
        let env = ThreadEnv::start(options).unwrap();
        for chunk in 0..FRAMES / CHUNK {
            env.arena().populate(FrameId(chunk * CHUNK)).unwrap();
        }
        let device = FileDevice::new(&env).unwrap();
        let id = env.add_device(Arc::clone(&device) as Arc<dyn Device>);
        let dir = crate::TestDir::new(&format!("{name}-{backend:?}"));
        Self {
            env,
            device,
            id,
            inbox: Arc::default(),
            dir,
            in_place: false,
        }
    }

    fn open(&self, name: &str) -> ObjectId {
        let options = OpenOptions {
            create: true,
            direct: true,
            ..OpenOptions::default()
        };
        self.device.open(&self.dir.join(name), options).unwrap().0
    }

    fn send(&self, object: ObjectId, op: IoOp, offset: u64, frames: &[u32]) {
        let mut request = IoRequest::with_room(frames.len());
        (request.device, request.object, request.op) = (self.id, object, op);
        request.class = if op == IoOp::Read {
            IoClass::Read
        } else {
            IoClass::Writeback
        };
        request.offset = Bytes(offset);
        request.in_place = self.in_place;
        request
            .frames
            .extend(frames.iter().map(|&frame| FrameId(frame)));
        request.on_done(self.inbox.clone());
        self.env.submit(request);
    }

    fn one(&self, object: ObjectId, op: IoOp, offset: u64, frames: &[u32]) -> Result<(), IoError> {
        self.send(object, op, offset, frames);
        self.inbox.wait(1).remove(0).1
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.env.shutdown();
    }
}

/// Both engines, where io_uring is available, and the calling thread in place of each.
fn both(name: &str, test: impl Fn(Rig)) {
    for backend in [Backend::Pool, Backend::Uring] {
        for in_place in [false, true] {
            let mut rig = Rig::new(name, backend);
            rig.in_place = in_place;
            test(rig);
        }
    }
}

fn page(seed: u64) -> Vec<u8> {
    (0..512)
        .flat_map(|word| crate::parker::mix(seed << 16 | word).to_ne_bytes())
        .collect()
}

#[test]
fn what_is_written_is_read_and_on_the_disk() {
    both("round", |rig| {
        let object = rig.open("file");
        assert!(rig.device.is_direct(object));
        let frames = [3, 4, 5, 200, 7];
        for frame in frames {
            rig.env
                .arena()
                .fill_for_test(FrameId(frame), &page(u64::from(frame)));
        }
        assert_eq!(rig.one(object, IoOp::Write, 8192, &frames), Ok(()));
        assert_eq!(rig.one(object, IoOp::Flush, 0, &[]), Ok(()));
        let content = std::fs::read(rig.dir.join("file")).unwrap();
        let expected: Vec<u8> = frames
            .iter()
            .flat_map(|&frame| page(u64::from(frame)))
            .collect();
        assert_eq!(&content[8192..], expected);
        assert_eq!(
            rig.one(object, IoOp::Read, 8192, &[20, 300, 21, 22, 23]),
            Ok(())
        );
        for (&to, &from) in [20, 300, 21, 22, 23].iter().zip(&frames) {
            assert_eq!(
                rig.env.arena().read_for_test(FrameId(to)),
                page(u64::from(from))
            );
        }
    });
}

#[test]
fn beyond_the_end_reads_zeroes() {
    both("end", |rig| {
        std::fs::write(rig.dir.join("file"), vec![5; 4096 + 700]).unwrap();
        let (object, length) = rig
            .device
            .open(&rig.dir.join("file"), OpenOptions::default())
            .unwrap();
        assert_eq!(length, Bytes(4796));
        for frame in [1, 2, 9] {
            rig.env.arena().fill_for_test(FrameId(frame), &page(1));
        }
        assert_eq!(rig.one(object, IoOp::Read, 0, &[1, 2, 9]), Ok(()));
        let mut second = vec![5; 700];
        second.resize(4096, 0);
        let read = |frame| rig.env.arena().read_for_test(FrameId(frame));
        assert_eq!(
            (read(1), read(2), read(9)),
            (vec![5; 4096], second, vec![0; 4096])
        );
        assert_eq!(rig.one(object, IoOp::Read, 1 << 30, &[1]), Ok(()));
        assert_eq!(read(1), vec![0; 4096]);
    });
}

#[test]
fn a_cut_file_of_a_fixed_size_is_lost_and_not_zeroes() {
    both("cut", |rig| {
        let path = rig.dir.join("file");
        // An odd end, as of an image that is only read.
        let data = vec![5; 3 * 4096 + 700];
        for read_only in [false, true] {
            std::fs::write(&path, &data).unwrap();
            let options = OpenOptions {
                fixed: true,
                read_only,
                ..OpenOptions::default()
            };
            let (object, _) = rig.device.open(&path, options).unwrap();
            let read = |offset, frames: &[u32]| rig.one(object, IoOp::Read, offset, frames);
            assert_eq!(read(0, &[1, 2, 3, 4, 5]), Ok(()));
            let mut last = vec![5; 700];
            last.resize(4096, 0);
            assert_eq!(rig.env.arena().read_for_test(FrameId(4)), last);
            assert_eq!(rig.env.arena().read_for_test(FrameId(5)), vec![0; 4096]);
            std::fs::OpenOptions::new()
                .write(true)
                .open(&path)
                .unwrap()
                .set_len(4096)
                .unwrap();
            assert_eq!(read(0, &[1]), Ok(()), "what is still there");
            assert_eq!(read(8192, &[1]), Err(IoError::Lost));
            assert_eq!(read(0, &[1, 2]), Err(IoError::Lost));
            assert_eq!(read(3 * 4096, &[1]), Err(IoError::Lost));
            if !read_only {
                // Near its old end it would get its length back, with zeroes between.
                let write = |offset, frames: &[u32]| rig.one(object, IoOp::Write, offset, frames);
                assert_eq!(write(0, &[1]), Ok(()), "what is still there");
                assert_eq!(write(8192, &[1]), Err(IoError::Lost));
                assert_eq!(write(0, &[1, 2]), Err(IoError::Lost));
                let punch = IoOp::Discard { len: Bytes(4096) };
                assert_eq!(rig.one(object, punch, 8192, &[]), Err(IoError::Lost));
                assert_eq!(std::fs::metadata(&path).unwrap().len(), 4096);
            }
            // It has its size again: its present content is the truth.
            std::fs::write(&path, &data).unwrap();
            assert_eq!(read(8192, &[1]), Ok(()));
            assert_eq!(rig.env.arena().read_for_test(FrameId(1)), vec![5; 4096]);
            rig.device.close(object);
        }
    });
}

#[test]
fn metadata_operations_do_what_they_say() {
    both("metadata", |rig| {
        let object = rig.open("file");
        let path = rig.dir.join("file");
        let blocks = || std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&path).unwrap());
        assert_eq!(
            rig.one(object, IoOp::Allocate { len: Bytes::mib(1) }, 0, &[]),
            Ok(())
        );
        assert_eq!(
            std::fs::metadata(&path).unwrap().len(),
            0,
            "allocating keeps the length"
        );
        assert!(blocks() >= 2048);
        rig.env.arena().fill_for_test(FrameId(1), &page(1));
        for at in 0..4 {
            assert_eq!(rig.one(object, IoOp::Write, at * 4096, &[1]), Ok(()));
        }
        assert_eq!(
            rig.one(object, IoOp::Discard { len: Bytes(8192) }, 4096, &[]),
            Ok(())
        );
        assert_eq!(
            rig.one(object, IoOp::SetLen { len: Bytes(13000) }, 0, &[]),
            Ok(())
        );
        let mut expected = page(1);
        expected.resize(3 * 4096, 0);
        expected.extend_from_slice(&page(1)[..13000 - 3 * 4096]);
        assert_eq!(std::fs::read(&path).unwrap(), expected);
        assert_eq!(
            rig.one(object, IoOp::Allocate { len: Bytes::ZERO }, 0, &[]),
            Ok(())
        );
        let before = blocks();
        let far = IoOp::Allocate { len: Bytes(8192) };
        assert_eq!(rig.one(object, far, 1 << 30, &[]), Ok(()));
        let taken = blocks() - before;
        assert!((16..2048).contains(&taken), "{taken} blocks of 512 bytes");
    });
}

#[test]
fn errors_are_typed() {
    both("errors", |rig| {
        let bad = IoError::Failed { errno: libc::EBADF };
        assert_eq!(rig.one(ObjectId(77), IoOp::Read, 0, &[1]), Err(bad));
        std::fs::write(rig.dir.join("ro"), [1; 4096]).unwrap();
        let options = OpenOptions {
            read_only: true,
            ..OpenOptions::default()
        };
        let (object, _) = rig.device.open(&rig.dir.join("ro"), options).unwrap();
        assert_eq!(rig.one(object, IoOp::Write, 0, &[1]), Err(bad));
        assert_eq!(rig.one(object, IoOp::Read, 0, &[1]), Ok(()));
        rig.device.close(object);
        assert_eq!(rig.one(object, IoOp::Read, 0, &[1]), Err(bad));
        // A tmpfs refuses what is larger than itself at once; a disk would fill up first.
        let small = Path::new("/dev/shm").join(format!("tidegate-os-{}", std::process::id()));
        let options = OpenOptions {
            create: true,
            ..OpenOptions::default()
        };
        let (object, _) = rig.device.open(&small, options).unwrap();
        let huge = IoOp::Allocate {
            len: Bytes(1 << 60),
        };
        assert_eq!(rig.one(object, huge, 0, &[]), Err(IoError::NoSpace));
        let much = OpenOptions {
            preallocate: Some(Bytes(1 << 60)),
            ..options
        };
        let full = rig.device.open(&small, much).unwrap_err();
        assert!(
            matches!(
                full,
                OsError::Preallocate {
                    errno: libc::ENOSPC,
                    ..
                }
            ),
            "{full}"
        );
        std::fs::remove_file(&small).unwrap();
    });
}

#[test]
fn a_write_that_is_cut_ends_the_file_there() {
    both("cut", |rig| {
        let object = rig.open("file");
        let unit = rig.device.unit(object);
        assert!(unit.is_power_of_two() && unit <= 4096, "{unit}");
        for frame in [1, 2] {
            let arena = rig.env.arena();
            arena.fill_for_test(FrameId(frame), &page(u64::from(frame)));
        }
        let mut request = IoRequest::with_room(2);
        (request.device, request.object, request.op) = (rig.id, object, IoOp::Write);
        request.frames.extend([FrameId(1), FrameId(2)]);
        request.cut = Bytes(4096 - unit);
        request.in_place = rig.in_place;
        request.on_done(rig.inbox.clone());
        rig.env.submit(request);
        assert_eq!(rig.inbox.wait(1)[0].1, Ok(()));
        let content = std::fs::read(rig.dir.join("file")).unwrap();
        let unit = usize::try_from(unit).unwrap();
        assert_eq!(content, [page(1), page(2)[..unit].to_vec()].concat());
    });
}

/// The thread that ends a request.
#[derive(Default)]
struct EndedBy(Mutex<Vec<std::thread::ThreadId>>);

impl IoDone for EndedBy {
    fn io_done(&self, _: &Interrupt, _: Box<IoRequest>, result: Result<(), IoError>) {
        assert_eq!(result, Ok(()));
        self.0.lock().unwrap().push(std::thread::current().id());
    }
}

#[test]
fn who_waits_for_a_read_does_it_until_the_end() {
    both("here", |rig| {
        std::fs::write(rig.dir.join("file"), [5; 4096]).unwrap();
        let path = rig.dir.join("file");
        let (object, _) = rig.device.open(&path, OpenOptions::default()).unwrap();
        let ended = Arc::<EndedBy>::default();
        let mut request = IoRequest::with_room(1);
        (request.device, request.object, request.op) = (rig.id, object, IoOp::Read);
        request.frames.push(FrameId(1));
        request.in_place = true;
        request.on_done(ended.clone());
        rig.env.submit(request);
        let here = std::thread::current().id();
        assert_eq!(
            *ended.0.lock().unwrap(),
            [here],
            "it had ended before the call did"
        );
        assert_eq!(rig.device.pending(), 0);
        rig.env.shutdown();
        rig.device.engine().stop(std::time::Duration::ZERO);
        let mut request = IoRequest::with_room(1);
        (request.object, request.op) = (object, IoOp::Read);
        request.frames.push(FrameId(1));
        request.on_done(rig.inbox.clone());
        rig.device.submit_in_place(request);
        assert_eq!(
            rig.inbox.wait(1)[0].1,
            Err(IoError::Cancelled),
            "not after the end"
        );
    });
}

#[test]
fn opening_says_what_is_wrong() {
    let rig = Rig::new("opening", Backend::Pool);
    let missing = rig
        .device
        .open(&rig.dir.join("no/such"), OpenOptions::default())
        .unwrap_err();
    assert!(
        missing
            .to_string()
            .contains("no/such: No such file or directory"),
        "{missing}"
    );
    let read = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    let dir = rig.device.open(&rig.dir.0, read).unwrap_err();
    assert!(matches!(dir, OsError::NotAFile { .. }), "{dir}");
    // procfs has no direct I/O.
    let path = Path::new("/proc/version");
    let refused = rig
        .device
        .open(
            path,
            OpenOptions {
                direct: true,
                ..read
            },
        )
        .unwrap_err();
    assert_eq!(
        refused,
        OsError::NoDirectIo {
            path: path.into(),
            alignment: None
        }
    );
    assert!(refused.to_string().contains("`direct: false`"));
    let (object, _) = rig.device.open(path, read).unwrap();
    assert!(!rig.device.is_direct(object));
    assert_eq!(rig.one(object, IoOp::Read, 0, &[1]), Ok(()));
    let text = rig.env.arena().read_for_test(FrameId(1));
    assert!(text.starts_with(b"Linux version"));
}

/// A file in memory that does what the requests say, on `std::fs` beside the device.
struct Twin {
    file: File,
    length: u64,
}

impl Twin {
    fn write(&mut self, offset: u64, data: &[u8]) {
        self.file.write_all_at(data, offset).unwrap();
        self.length = self.length.max(offset + data.len() as u64);
    }

    fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut data = vec![0; len];
        let mut done = 0;
        while done < len {
            match self
                .file
                .read_at(&mut data[done..], offset + done as u64)
                .unwrap()
            {
                0 => break,
                read => done += read,
            }
        }
        data
    }
}

/// Random extents, several at a time, on the device and on `std::fs`: the same bytes.
fn differential(rig: &Rig, seed: u64) {
    const PAGES: u64 = 300;
    println!("seed {seed}");
    let mut state = seed;
    let mut random = |below: u64| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        crate::parker::mix(state) % below
    };
    let small = |n: u64| u32::try_from(n).unwrap();
    let object = rig.open(&format!("ours-{seed}"));
    let twin = rig.dir.join(format!("twin-{seed}"));
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(twin)
        .unwrap();
    let mut twin = Twin { file, length: 0 };
    for round in 0..40 {
        // Disjoint extents of the file, disjoint frames: each request has a lane of its own.
        let (mut expected, mut sent) = (BTreeMap::new(), 0);
        for lane in 0..6_u32 {
            let offset = (u64::from(lane) * (PAGES / 6) + random(20)) * 4096;
            let count = 1 + small(random(30));
            let base = lane * 85;
            let mut frames: Vec<u32> = (0..count).map(|n| base + n).collect();
            if random(2) == 0 {
                let other = small(random(u64::from(count)));
                frames.swap(0, other as usize);
            }
            if random(2) == 0 {
                let data: Vec<_> = frames
                    .iter()
                    .map(|&frame| (frame, page(seed ^ round << 20 ^ u64::from(frame))))
                    .collect();
                for (frame, content) in &data {
                    rig.env.arena().fill_for_test(FrameId(*frame), content);
                }
                let bytes: Vec<u8> = data.into_iter().flat_map(|(_, content)| content).collect();
                twin.write(offset, &bytes);
                rig.send(object, IoOp::Write, offset, &frames);
            } else {
                expected.insert(offset, twin.read(offset, frames.len() * 4096));
                rig.send(object, IoOp::Read, offset, &frames);
            }
            sent += 1;
        }
        for (request, result) in rig.inbox.wait(sent) {
            assert_eq!(result, Ok(()));
            let read = request.frames.iter();
            let read = read.flat_map(|&frame| rig.env.arena().read_for_test(frame));
            if let Some(expected) = expected.get(&request.offset.0) {
                assert!(
                    read.eq(expected.iter().copied()),
                    "round {round}: {request:?}"
                );
            }
        }
        if round % 8 == 7 {
            let len = random(PAGES * 4096);
            twin.file.set_len(len).unwrap();
            twin.length = len;
            assert_eq!(
                rig.one(object, IoOp::SetLen { len: Bytes(len) }, 0, &[]),
                Ok(())
            );
        }
    }
    assert_eq!(
        rig.one(
            object,
            IoOp::SetLen {
                len: Bytes(twin.length)
            },
            0,
            &[]
        ),
        Ok(())
    );
    let ours = std::fs::read(rig.dir.join(format!("ours-{seed}"))).unwrap();
    assert!(ours == std::fs::read(rig.dir.join(format!("twin-{seed}"))).unwrap());
}

#[test]
fn random_extents_are_those_of_std_fs() {
    let seeds: Vec<u64> = match std::env::var("TIDEGATE_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => vec![1, 2],
    };
    both("differential", |rig| {
        seeds.iter().for_each(|&seed| differential(&rig, seed))
    });
}

#[test]
fn no_io_uses_a_stale_page() {
    both("stale", |rig| {
        let object = rig.open("file");
        let arena = rig.env.arena();
        // One run in one chunk, scattered in one chunk, and over two chunks: all three paths.
        let shapes: [&[u32]; 3] = [&[128, 129, 130], &[140, 133, 150], &[255, 256, 257]];
        for generation in 0..20_u64 {
            for (shape, frames) in shapes.iter().enumerate() {
                let content = |frame: u32| page(generation << 32 | u64::from(frame));
                for &frame in *frames {
                    arena.fill_for_test(FrameId(frame), &content(frame));
                }
                let offset = shape as u64 * 65536;
                assert_eq!(rig.one(object, IoOp::Write, offset, frames), Ok(()));
                let on_disk = std::fs::read(rig.dir.join("file")).unwrap();
                let at = shape * 65536;
                for (place, &frame) in frames.iter().enumerate() {
                    let found = &on_disk[at + place * 4096..][..4096];
                    assert!(
                        found == content(frame),
                        "generation {generation}, shape {shape}"
                    );
                }
                // And inwards: what the system reads arrives in the memory that we see now.
                for &frame in *frames {
                    arena.fill_for_test(FrameId(frame), &[0; 4096]);
                }
                assert_eq!(rig.one(object, IoOp::Read, offset, frames), Ok(()));
                for &frame in *frames {
                    assert!(arena.read_for_test(FrameId(frame)) == content(frame));
                }
            }
            for chunk in [1, 2] {
                arena.release(FrameId(chunk * CHUNK));
            }
            for chunk in [2, 1] {
                arena.populate(FrameId(chunk * CHUNK)).unwrap();
            }
        }
        let all = FRAMES / CHUNK;
        // The last registrations may be under way.
        let missing = |registration| matches!(registration, Registration::Registered { chunks } if chunks < all);
        for _ in 0..60_000 {
            if !missing(rig.device.registration()) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        match rig.device.registration() {
            Registration::None => assert_eq!(rig.env.backend(), Backend::Pool),
            Registration::Registered { chunks } => assert_eq!(chunks, all),
            Registration::Refused { errno, .. } => assert_eq!(errno, libc::ENOMEM),
        }
    });
}

#[test]
fn more_requests_than_slots_all_end() {
    both("flood", |rig| {
        let object = rig.open("file");
        for at in 0..500_u32 {
            rig.send(object, IoOp::Write, u64::from(at) * 4096, &[at]);
        }
        let ended = rig.inbox.wait(500);
        assert!(ended.iter().all(|(_, result)| *result == Ok(())));
        assert_eq!(
            std::fs::metadata(rig.dir.join("file")).unwrap().len(),
            500 * 4096
        );
    });
}

#[test]
fn shutdown_completes_what_is_in_flight() {
    both("shutdown", |rig| {
        let object = rig.open("file");
        for at in 0..200_u32 {
            rig.send(object, IoOp::Write, u64::from(at) * 4096, &[at]);
        }
        rig.env.shutdown();
        let ended = rig.inbox.wait(200);
        assert!(ended.iter().all(|(_, result)| *result == Ok(())));
        rig.send(object, IoOp::Read, 0, &[1]);
        assert_eq!(rig.inbox.wait(1)[0].1, Err(IoError::Cancelled));
    });
}

/// Of a loop device, which punches a hole into its file.
#[test]
fn a_device_forgets_what_it_is_told_to_and_no_more() {
    let rig = Rig::new("forgets", Backend::Pool);
    let backing = rig.dir.join("disk");
    std::fs::write(&backing, vec![7; 1 << 20]).unwrap();
    let Some(disk) = loop_device(&backing) else {
        return;
    };
    let blocks = || {
        File::open(&backing).unwrap().sync_all().unwrap();
        std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&backing).unwrap())
    };
    let before = blocks();
    let file = File::options().read(true).write(true).open(&disk);
    let discarded = file.map(|file| {
        let mut file = OpenFile::new(file, false, Bytes(1 << 20));
        file.discards = true;
        crate::pool::discard_without_holes(&file, Bytes(8192), Bytes(65_536))
    });
    let _ = std::process::Command::new("losetup")
        .arg("-d")
        .arg(&disk)
        .status();
    discarded.unwrap().unwrap();
    assert_eq!(
        before - blocks(),
        65_536 / 512,
        "they are no zeroes that were written"
    );
    let content = std::fs::read(&backing).unwrap();
    let is_hole = |at: usize| (8192..8192 + 65_536).contains(&at);
    assert!(
        content
            .iter()
            .enumerate()
            .all(|(at, byte)| *byte == if is_hole(at) { 0 } else { 7 })
    );
}

/// A loop device over a file; none: it needs root.
fn loop_device(file: &Path) -> Option<std::path::PathBuf> {
    let made = std::process::Command::new("losetup")
        .args(["-f", "--show"])
        .arg(file)
        .output();
    let made = made.ok().filter(|made| made.status.success());
    if made.is_none() {
        println!("SKIPPED: no loop device (needs root)");
    }
    let name = String::from_utf8(made?.stdout).unwrap();
    Some(name.trim_end().into())
}

/// Of a loop device, whose queue can be told what to say; before the first file is open, and after.
#[test]
fn a_device_asks_for_stable_writes_where_the_system_says_so() {
    use std::process::Command;
    let rig = Rig::new("stable", Backend::Pool);
    let backing = rig.dir.join("disk");
    std::fs::write(&backing, vec![7; 1 << 20]).unwrap();
    let Some(disk) = loop_device(&backing) else {
        return;
    };
    let name = disk.file_name().unwrap().to_str().unwrap();
    let queue = format!("/sys/block/{name}/queue/stable_writes");
    let (mut opened, mut expected) = (Vec::new(), Vec::new());
    for says in ["0", "1"] {
        if std::fs::write(&queue, says).is_err() {
            println!("SKIPPED: this system lets nobody say so");
            break;
        }
        let device = FileDevice::new(&rig.env).unwrap();
        assert!(!device.info().stable_writes, "nothing stands there");
        device.expect_files_at(&disk);
        expected.push(device.info().stable_writes);
        let device = FileDevice::new(&rig.env).unwrap();
        let (object, _) = device.open(&disk, OpenOptions::default()).unwrap();
        assert!(device.is_direct(object));
        opened.push(device.info().stable_writes);
    }
    let _ = std::fs::write(&queue, "0");
    let _ = Command::new("losetup").arg("-d").arg(&disk).status();
    assert!(
        expected.is_empty() || expected == [false, true],
        "{expected:?}"
    );
    assert!(opened.is_empty() || opened == [false, true], "{opened:?}");
}

#[test]
fn what_is_given_up_is_one_piece_of_zeroes_that_keeps_its_space() {
    use rustix::fs::{FallocateFlags, SeekFrom, fallocate, fstat, seek};
    let rig = Rig::new("given-up", Backend::Pool);
    let path = rig.dir.join("file");
    let options = OpenOptions {
        create: true,
        preallocate: Some(Bytes(64 << 12)),
        ..OpenOptions::default()
    };
    let (object, _) = rig.device.open(&path, options).unwrap();
    // Every other page.
    for page in 0..16 {
        rig.one(object, IoOp::Write, page << 13, &[3]).unwrap();
    }
    let file = File::options().write(true).open(&path).unwrap();
    let zeroes = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
    let probe = File::create(rig.dir.join("probe")).unwrap();
    if fallocate(&probe, zeroes, 0, 4096).is_err() {
        println!("SKIPPED: this file system has no zero range");
        return;
    }
    let (size, blocks) = {
        let stat = fstat(&file).unwrap();
        (stat.st_size, stat.st_blocks)
    };
    assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(0));
    rig.device.give_up();
    assert_eq!(
        rig.one(object, IoOp::Write, 0, &[3]),
        Err(IoError::Failed { errno: libc::EBADF })
    );
    assert_eq!(seek(&file, SeekFrom::Data(0)), Err(rustix::io::Errno::NXIO));
    let stat = fstat(&file).unwrap();
    assert_eq!(stat.st_size, size);
    assert!(stat.st_blocks >= blocks.min(64 * 8), "{blocks} {stat:?}");
}

/// Opening a pipe for reading waits for a writer; here for nobody.
#[test]
fn a_pipe_is_refused_before_it_is_opened() {
    let rig = Rig::new("pipe", Backend::Pool);
    let pipe = rig.dir.join("pipe");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
    let (answer, answered) = std::sync::mpsc::channel();
    let device = Arc::clone(&rig.device);
    std::thread::spawn(move || {
        let options = OpenOptions {
            read_only: true,
            ..OpenOptions::default()
        };
        let _ = answer.send(device.open(&pipe, options).map(|_| ()));
    });
    let bound = std::time::Duration::from_secs(20);
    let refused = answered.recv_timeout(bound).expect("it waits for a writer");
    assert!(matches!(refused, Err(OsError::NotAFile { .. })));
}

/// A pipe that took a file's place after the look; and a file opened so behaves as if it had been
/// waited for.
#[test]
fn who_opens_waits_for_nobody_and_requests_wait_again() {
    let rig = Rig::new("swapped", Backend::Pool);
    let (pipe, file) = (rig.dir.join("pipe"), rig.dir.join("file"));
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
    std::fs::write(&file, [1; 100]).unwrap();
    for path in [pipe, file] {
        let (answer, answered) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut flags = File::options();
            flags.read(true);
            let _ = answer.send(open_at_once(&path, &flags, libc::O_NOATIME));
        });
        let bound = std::time::Duration::from_secs(20);
        let opened = answered.recv_timeout(bound).expect("it waits for a writer");
        let flags = rustix::fs::fcntl_getfl(opened.unwrap()).unwrap();
        assert!(!flags.contains(OFlags::NONBLOCK) && flags.contains(OFlags::NOATIME));
    }
}
