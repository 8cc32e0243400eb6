//! Sequential 1 MiB writes and reads at depth 8 through `FileDevice`, beside fio doing the same.
//!
//! `cargo run --release -p tidegate-os --example sequential -- DIR [MIB] [RUNS] [pool] [small]`
//! (`pool`: our other engine; `small`: chunks too small for huge pages)
//!
//! Both write a fresh file with its space allocated ahead and flush it, then read it back; both use
//! O_DIRECT and, if there is a ring, registered buffers. Runs are interleaved. Prints MiB/s. (Our
//! memory is in huge pages, which fio 3.33 can only do with pages set aside by the administrator.)

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use env::{Device, DeviceId, Env, Interrupt, IoDone, IoError, IoOp, IoRequest, ObjectId};
use frames::{Content, FrameId};
use os::{Backend, FileDevice, OpenOptions, Options, ThreadEnv};
use policy::units::Bytes;

/// Requests under way.
const DEPTH: u32 = 8;
/// Frames of one request: 1 MiB.
const FRAMES: u32 = 256;

/// Sends the next block where the last one ended.
struct Stream {
    env: Arc<ThreadEnv>,
    next: AtomicU64,
    blocks: u64,
    ended: Mutex<u64>,
    all: Condvar,
}

/// A handler of completions that shares the stream.
struct Link(Arc<Stream>);

impl IoDone for Link {
    fn io_done(&self, _: &Interrupt, request: Box<IoRequest>, result: Result<(), IoError>) {
        if let Err(error) = result {
            eprintln!("{request:?}: {error}");
            std::process::exit(1);
        }
        *self.0.ended.lock().expect("nobody panics under it") += 1;
        send_next(&self.0, request);
    }
}

fn send_next(stream: &Arc<Stream>, mut request: Box<IoRequest>) {
    let block = stream.next.fetch_add(1, Ordering::Relaxed);
    if block >= stream.blocks {
        stream.all.notify_all();
        return;
    }
    request.offset = Bytes::mib(block);
    request.on_done(Arc::new(Link(Arc::clone(stream))));
    stream.env.submit(request);
}

fn run_stream(env: &Arc<ThreadEnv>, target: (DeviceId, ObjectId), op: IoOp, blocks: u64) -> f64 {
    let began = Instant::now();
    let stream = Arc::new(Stream {
        env: Arc::clone(env),
        next: AtomicU64::new(0),
        blocks,
        ended: Mutex::new(0),
        all: Condvar::new(),
    });
    for lane in 0..DEPTH {
        let mut request = IoRequest::with_room(FRAMES as usize);
        (request.device, request.object, request.op) = (target.0, target.1, op);
        request
            .frames
            .extend((lane * FRAMES..(lane + 1) * FRAMES).map(FrameId));
        send_next(&stream, request);
    }
    let ended = stream.ended.lock().expect("nobody panics under it");
    drop(
        stream
            .all
            .wait_while(ended, |ended| *ended < blocks)
            .expect("nobody panics under it"),
    );
    if op == IoOp::Write {
        one(env, target, IoOp::Flush);
    }
    began.elapsed().as_secs_f64()
}

fn one(env: &Arc<ThreadEnv>, target: (DeviceId, ObjectId), op: IoOp) {
    struct Tell(std::sync::mpsc::Sender<Result<(), IoError>>);
    impl IoDone for Tell {
        fn io_done(&self, _: &Interrupt, _: Box<IoRequest>, result: Result<(), IoError>) {
            let _ = self.0.send(result);
        }
    }
    let (tell, told) = std::sync::mpsc::channel();
    let mut request = IoRequest::with_room(0);
    (request.device, request.object, request.op) = (target.0, target.1, op);
    request.on_done(Arc::new(Tell(tell)));
    env.submit(request);
    told.recv().expect("a request ends").expect("it succeeds");
}

/// A disk behind a rate limit has its burst again after a while: the same for all four phases.
fn settle() {
    std::thread::sleep(std::time::Duration::from_secs(1));
}

/// Writes and reads a fresh file; seconds of both.
fn ours(
    env: &Arc<ThreadEnv>,
    device: (&FileDevice, DeviceId),
    path: &Path,
    mib: u64,
) -> (f64, f64) {
    let _ = std::fs::remove_file(path);
    let preallocate = Some(Bytes::mib(mib));
    let options = OpenOptions {
        create: true,
        direct: true,
        preallocate,
        ..Default::default()
    };
    let (object, _) = device.0.open(path, options).expect("the file can be made");
    let target = (device.1, object);
    settle();
    // ext4 does writes beyond a file's end one at a time; fio's fallocate sets the length, too.
    one(
        env,
        target,
        IoOp::SetLen {
            len: Bytes::mib(mib),
        },
    );
    let write = run_stream(env, target, IoOp::Write, mib);
    settle();
    let read = run_stream(env, target, IoOp::Read, mib);
    device.0.close(object);
    (write, read)
}

/// The same by fio; MiB/s.
fn fio(path: &Path, rw: &str, mib: u64) -> f64 {
    settle();
    let output = Command::new("fio")
        .args([
            "--name=seq",
            "--ioengine=io_uring",
            "--direct=1",
            "--fixedbufs=1",
            "--bs=1m",
        ])
        .args([
            "--registerfiles=1",
            "--iodepth=8",
            "--minimal",
            "--end_fsync=1",
        ])
        .arg(format!("--filename={}", path.display()))
        .args([format!("--rw={rw}"), format!("--size={mib}m")])
        .output()
        .expect("fio can be run");
    let text = String::from_utf8_lossy(&output.stdout);
    let fields: Vec<&str> = text.trim().split(';').collect();
    // Terse output, version 3: total KiB and run time in ms, of reads then of writes.
    let (total, took) = if rw == "read" { (5, 8) } else { (46, 49) };
    let number = |at: usize| {
        fields[at]
            .parse::<f64>()
            .expect("fio's terse output has numbers")
    };
    number(total) / 1024.0 / (number(took) / 1000.0)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let dir = arguments.first().map_or("/tmp", String::as_str);
    let number = |at: usize, default| {
        arguments
            .get(at)
            .map_or(default, |text| text.parse().expect("a number"))
    };
    let (mib, runs) = (number(1, 1024_u64), number(2, 3_u64));
    let mut options = Options::new(DEPTH * FRAMES);
    if arguments.iter().any(|argument| argument == "pool") {
        options.backend = Backend::Pool;
    }
    if arguments.iter().any(|argument| argument == "small") {
        options.chunk_frames = FRAMES;
    }
    let env = ThreadEnv::start(options).expect("the environment starts");
    let step = env.content().chunk_frames();
    for first in (0..DEPTH * FRAMES).step_by(step as usize) {
        env.content()
            .populate(FrameId(first))
            .expect("there is memory");
    }
    let device = FileDevice::new(&env).expect("the device starts");
    let id = env.add_device(Arc::clone(&device) as Arc<dyn Device>);
    println!(
        "{:?}, {:?}, {mib} MiB, MiB/s",
        env.backend(),
        device.registration()
    );
    println!("run  write ours   fio  ratio   read ours   fio  ratio  cpu s/GiB ours");
    let rate = |seconds: f64| mib as f64 / seconds;
    for run in 0..runs {
        let path = Path::new(dir).join("tidegate-sequential");
        let both = || (fio(&path, "write", mib), fio(&path, "read", mib));
        // The two take turns in going first.
        let early = (run % 2 == 1).then(both);
        let before = os::cpu_times();
        let (write, read) = ours(&env, (&device, id), &path, mib);
        let after = os::cpu_times();
        let _ = std::fs::remove_file(&path);
        let theirs = early.unwrap_or_else(both);
        let _ = std::fs::remove_file(&path);
        let (write, read) = (rate(write), rate(read));
        let busy = (after.0 + after.1).0 - (before.0 + before.1).0;
        let per_gib = busy as f64 / 1e9 / (2.0 * mib as f64 / 1024.0);
        println!(
            "{run:3} {write:11.0} {:5.0} {:6.3} {read:11.0} {:5.0} {:6.3} {per_gib:10.3}",
            theirs.0,
            write / theirs.0,
            theirs.1,
            read / theirs.1
        );
    }
    println!("memory: {:?}", device.registration());
    env.shutdown();
}
