use std::sync::mpsc;

use super::*;
use env::{Cause, IoDone, Signal, WaitQueue, Wakeup};
use frames::FrameId;
use policy::units::Nanos;

/// Longer than anything here takes on a machine that does much else.
const LONG: Duration = Duration::from_secs(120);

fn small() -> Arc<ThreadEnv> {
    let mut options = Options::new(64);
    options.chunk_frames = 64;
    ThreadEnv::start(options).unwrap()
}

#[test]
fn options_are_checked() {
    let mut options = Options::new(64);
    options.workers = 0;
    let refused = ThreadEnv::start(options).err().unwrap();
    assert_eq!(
        refused.to_string(),
        "option `workers` is 0; allowed: 1 to 256"
    );
    assert_eq!(Options::new(1).chunk_frames, 512);
    assert_eq!(Options::new(8 << 20).chunk_frames, 512, "32 GiB");
    assert_eq!(Options::new((8 << 20) + 1).chunk_frames, 1024);
    assert_eq!(Options::new(u32::MAX).chunk_frames, 16384);
}

/// A process of its own: it has no descriptors left when a device comes.
#[test]
fn a_device_that_can_have_no_ring_has_the_pool() {
    let run = "ulimit -n 40; exec \"$0\" --exact --ignored threads::tests::with_no_descriptor_left";
    let mut command = std::process::Command::new("sh");
    let command = command
        .args(["-c", run])
        .arg(std::env::current_exe().unwrap());
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("1 passed"), "{output:?}");
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn with_no_descriptor_left() {
    let env = small();
    let mut taken = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        taken.push(file);
    }
    let device = crate::FileDevice::new(&env).unwrap();
    // On a system without rings it is the pool anyhow.
    assert!(env.fallback().is_some());
    let mut wanted = Options::new(64);
    wanted.chunk_frames = 64;
    wanted.backend = Backend::Uring;
    assert!(ThreadEnv::start(wanted).is_err(), "who insists hears of it");
    taken.pop();
    let path = std::env::temp_dir().join(format!("tidegate-os-late-{}", std::process::id()));
    let open = crate::OpenOptions {
        create: true,
        ..crate::OpenOptions::default()
    };
    let opened = device.open(&path, open);
    let _ = std::fs::remove_file(&path);
    opened.unwrap();
}

#[test]
fn sleeps_are_never_short_and_rarely_long() {
    let env = small();
    let mut task = env.enter();
    let mut medians = Vec::new();
    // On a busy machine everybody sleeps long: a try counts if the system's own sleeps beside ours
    // did not.
    for _ in 0..30 {
        let (mut late, mut others): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
        for pause in [1, 2, 5, 10, 20, 1, 2, 5, 10, 20, 3] {
            let (began, pause) = (task.now(), Nanos::millis(pause));
            std::thread::sleep(Duration::from_nanos(pause.0));
            others.push((task.now().since(began) - pause).0);
            let began = task.now();
            assert_eq!(task.sleep(Cause::Think, pause), Wakeup::TimedOut);
            let slept = task.now().since(began);
            assert!(slept >= pause);
            late.push((slept - pause).0);
        }
        let median = |late: &mut Vec<u64>| {
            late.sort_unstable();
            late[late.len() / 2]
        };
        let (ours, theirs) = (median(&mut late), median(&mut others));
        if ours < 2_000_000 + theirs {
            return;
        }
        medians.push((ours, theirs));
    }
    panic!("ours and the system's are late by, ns: {medians:?}");
}

#[test]
fn shutdown_cancels_every_wait() {
    let env = small();
    let queue = Arc::new(WaitQueue::new());
    let ended = Arc::new(Mutex::new(Vec::new()));
    for name in ["a", "b", "c"] {
        let (queue, ended) = (Arc::clone(&queue), Arc::clone(&ended));
        env.spawn(
            name,
            Box::new(move |task| {
                let wakeup = match name {
                    "a" => task.sleep(Cause::Think, Nanos::secs(3600)),
                    _ => task.wait_while(&queue, Cause::Idle, None, |_| true),
                };
                // Further waits do not block either.
                assert_eq!(
                    task.sleep(Cause::Think, Nanos::secs(3600)),
                    Wakeup::Cancelled
                );
                ended.lock().unwrap().push(wakeup);
            }),
        )
        .unwrap();
    }
    std::thread::sleep(Duration::from_millis(20));
    let began = StdInstant::now();
    env.shutdown();
    assert!(began.elapsed() < LONG);
    assert_eq!(*ended.lock().unwrap(), [Wakeup::Cancelled; 3]);
    env.shutdown();
}

#[test]
fn a_task_entered_outside_is_cancelled_too() {
    let env = small();
    let other = Arc::clone(&env);
    let thread = std::thread::spawn(move || other.enter().sleep(Cause::Think, Nanos::secs(3600)));
    std::thread::sleep(Duration::from_millis(20));
    env.shutdown();
    assert_eq!(thread.join().unwrap(), Wakeup::Cancelled);
}

#[test]
fn a_panic_in_a_task_is_counted_and_does_not_hang_shutdown() {
    let env = small();
    env.spawn("panics", Box::new(|_| panic!("expected by the test")))
        .unwrap();
    let mut task = env.enter();
    while env.panics() == 0 {
        task.sleep(Cause::Join, Nanos::millis(1));
    }
    drop(task);
    env.shutdown();
    assert_eq!(env.panics(), 1);
}

#[test]
fn dropping_the_last_handle_shuts_down() {
    let env = small();
    let watch = Arc::downgrade(&env);
    let tell = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&tell);
    env.spawn(
        "last",
        Box::new(move |task| {
            while !told.load(Ordering::Relaxed) {
                task.sleep(Cause::Think, Nanos::millis(1));
            }
        }),
    )
    .unwrap();
    drop(env);
    tell.store(true, Ordering::Relaxed);
    let began = StdInstant::now();
    while watch.strong_count() > 0 {
        assert!(began.elapsed() < LONG, "it outlived its last task");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn many_threads_through_one_queue_lose_no_wake() {
    let env = small();
    let turn = Arc::new((AtomicU64::new(0), WaitQueue::new()));
    const TASKS: u64 = 4;
    const ROUNDS: u64 = 2000;
    for me in 0..TASKS {
        let turn = Arc::clone(&turn);
        env.spawn(
            "turns",
            Box::new(move |task| {
                for round in 0..ROUNDS {
                    let mine = round * TASKS + me;
                    let wakeup = task.wait_while(&turn.1, Cause::Join, None, |_| {
                        turn.0.load(Ordering::Relaxed) != mine
                    });
                    assert!(wakeup.is_ready(), "{wakeup:?}");
                    turn.0.store(mine + 1, Ordering::Relaxed);
                    turn.1.wake_all(Signal::Other);
                }
            }),
        )
        .unwrap();
    }
    let mut task = env.enter();
    // Each turn is a switch of threads: some milliseconds where others have the CPUs. A wake that
    // is lost ends it here.
    let deadline = task.now() + Nanos::secs(300);
    let all = TASKS * ROUNDS;
    let done = |_: &Task<'_>| turn.0.load(Ordering::Relaxed) != all;
    let wakeup = task.wait_while(&turn.1, Cause::Join, Some(deadline), done);
    assert!(wakeup.is_ready(), "{wakeup:?}");
    drop(task);
    env.shutdown();
    assert_eq!(env.panics(), 0);
}

#[test]
fn events_reach_the_sink_with_the_task() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let ours = Arc::clone(&seen);
    let mut options = Options::new(64);
    options.chunk_frames = 64;
    options.sink = Some(Arc::new(move |task, event: &Event| {
        if let Event::Waited { cause, .. } = event {
            ours.lock().unwrap().push((task, *cause));
        }
    }));
    let env = ThreadEnv::start(options).unwrap();
    let mut task = env.enter();
    task.sleep(Cause::RetryBackoff, Nanos::micros(100));
    assert_eq!(*seen.lock().unwrap(), [(task.id(), Cause::RetryBackoff)]);
}

#[test]
fn work_and_cpus_are_counted() {
    let env = small();
    let mut task = env.enter();
    for _ in 0..10 {
        task.did(Work::Scan, 32);
    }
    assert!(task.cpu() < env.cpus());
    assert_ne!(task.random(), task.random());
    drop(task);
    assert_eq!(env.work_counts()[Work::Scan as usize], 320);
}

/// A device that loses its requests.
struct Loser;

impl Device for Loser {
    fn submit(&self, request: Box<IoRequest>) {
        drop(request);
    }
    fn info(&self) -> env::DeviceInfo {
        testkit::null::INFO
    }
}

struct Count(Mutex<Vec<Result<(), IoError>>>);

impl IoDone for Count {
    fn io_done(&self, _: &Interrupt, _: Box<IoRequest>, result: Result<(), IoError>) {
        self.0.lock().unwrap().push(result);
    }
}

#[test]
fn requests_after_shutdown_end_at_once() {
    let env = small();
    let device = env.add_device(Arc::new(Loser));
    env.shutdown();
    let count = Arc::new(Count(Mutex::new(Vec::new())));
    let mut request = IoRequest::with_room(1);
    request.device = device;
    request.on_done(count.clone());
    env.submit(request);
    assert_eq!(*count.0.lock().unwrap(), [Err(IoError::Cancelled)]);
}

#[test]
fn a_wrappers_delayed_request_still_ends_at_shutdown() {
    let env = small();
    let count = Arc::new(Count(Mutex::new(Vec::new())));
    let mut request = IoRequest::with_room(1);
    request.on_done(count.clone());
    let later = Box::new(move |context: &Interrupt| request.complete(context, Ok(())));
    env.host().after(Nanos::secs(3600), later);
    env.shutdown();
    assert_eq!(*count.0.lock().unwrap(), [Ok(())]);
}

/// A container that refuses mbind(2), or a node that there is not: the memory comes from wherever
/// the system likes.
#[test]
#[cfg(not(miri))]
fn memory_that_no_node_is_asked_for_is_memory_all_the_same() {
    let env = ThreadEnv::start(Options {
        binding: Some(Binding {
            parts: vec![(0..64, 1023)],
            cpus: Vec::new(),
        }),
        ..Options::new(64)
    })
    .unwrap();
    assert!(env.unbound().is_some());
    env.arena().populate(FrameId(0)).unwrap();
    assert_eq!(env.arena().misplaced(0..64), 0);
    assert!(env.enter().cpu() < env.cpus());
    env.shutdown();
}

/// Else memory that is refused from then on is refused to it, and ends the process.
#[test]
fn a_thread_that_was_started_has_begun() {
    let name = "tg-has-begun";
    let is_named = |task: std::fs::DirEntry| {
        // Others may have ended since.
        let told = std::fs::read_to_string(task.path().join("comm"));
        told.is_ok_and(|told| told.trim_end() == name)
    };
    for _ in 0..100 {
        let (end, ended) = mpsc::channel::<()>();
        let thread = start_thread(name, STACK, move || ended.recv()).unwrap();
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        assert_eq!(tasks.flatten().map(is_named).filter(|is| *is).count(), 1);
        drop(end);
        thread.join().unwrap().unwrap_err();
    }
}
