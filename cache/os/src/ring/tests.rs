use super::*;
use crate::transfer::OpenFile;
use env::{Interrupt, IoClass, IoDone, IoRequest};
use frames::{Content, FrameId};
use policy::units::Bytes;
use std::os::fd::FromRawFd;

/// Longer than anything here takes on a machine that does much else.
const LONG: Duration = Duration::from_secs(120);

struct Answers(mpsc::Sender<Result<(), IoError>>);

impl IoDone for Answers {
    fn io_done(&self, _: &Interrupt, _: Box<IoRequest>, result: Result<(), IoError>) {
        let _ = self.0.send(result);
    }
}

fn arena() -> Arc<Arena> {
    let arena = Arc::new(Arena::reserve(64, 16).unwrap());
    arena.populate(FrameId(0)).unwrap();
    arena
}

type Told = mpsc::Receiver<Result<(), IoError>>;

/// A read that does not end: an empty pipe. The writing end is answered too.
fn endless(arena: &Arc<Arena>) -> (Ring, Told, OwnedFd) {
    let ring = Ring::start(arena, true, &Arc::default()).unwrap();
    let (told, writing) = endless_of(&ring, 1, IoClass::Read);
    (ring, told, writing)
}

/// `count` of them, of a class.
fn endless_of(ring: &Ring, count: usize, class: IoClass) -> (Told, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: a valid place for two descriptors, which are then ours.
    let (reading, writing) = unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        (
            std::fs::File::from_raw_fd(ends[0]),
            OwnedFd::from_raw_fd(ends[1]),
        )
    };
    let file = Arc::new(OpenFile::new(reading, false, Bytes::ZERO));
    let (tell, told) = mpsc::channel();
    for _ in 0..count {
        let mut request = IoRequest::with_room(1);
        request.class = class;
        request.frames.push(FrameId(3));
        request.on_done(Arc::new(Answers(tell.clone())));
        ring.submit(Job::new(request, Arc::clone(&file)));
    }
    (told, writing)
}

#[test]
fn a_hanging_request_is_cancelled_at_the_bound() {
    let (ring, told, _writing) = endless(&arena());
    assert_eq!(ring.pending(), 1);
    let began = Instant::now();
    ring.stop(Duration::from_millis(50));
    assert!(began.elapsed() < LONG);
    assert_eq!(told.recv_timeout(LONG).unwrap(), Err(IoError::Cancelled));
    assert_eq!(ring.pending(), 0);
    // A late job is cancelled at once, a second stop finds nothing.
    ring.stop(Duration::ZERO);
}

/// Waits until the kernel has all that was submitted: the owner has found nothing more to do.
fn all_is_in_the_kernel(ring: &Ring) {
    let patience = Instant::now() + LONG;
    while !ring.shared.lock().sleeping {
        assert!(Instant::now() < patience, "the owner never came to rest");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// One that ends at once.
fn quick_of(ring: &Ring, class: IoClass) -> Told {
    let zero = std::fs::File::open("/dev/zero").unwrap();
    let (tell, told) = mpsc::channel();
    let mut request = IoRequest::with_room(1);
    request.class = class;
    request.frames.push(FrameId(1));
    request.on_done(Arc::new(Answers(tell)));
    ring.submit(Job::new(
        request,
        Arc::new(OpenFile::new(zero, false, Bytes::ZERO)),
    ));
    told
}

#[test]
fn a_write_gets_a_turn_beside_more_reads_than_there_are_places() {
    let ring = Ring::start(&arena(), true, &Arc::default()).unwrap();
    let (ended, writing) = endless_of(&ring, 2 * DEPTH, IoClass::Read);
    all_is_in_the_kernel(&ring);
    let told = quick_of(&ring, IoClass::Writeback);
    for _ in 0..DEPTH / 2 {
        rustix::io::write(&writing, &[7; 4096]).unwrap();
        assert_eq!(ended.recv_timeout(LONG), Ok(Ok(())));
    }
    assert_eq!(told.recv_timeout(LONG / 4), Ok(Ok(())));
}

#[test]
fn a_read_passes_writes_that_do_not_end() {
    let arena = arena();
    let ring = Ring::start(&arena, true, &Arc::default()).unwrap();
    let stuck = 2 * DEPTH;
    let (ended, writing) = endless_of(&ring, stuck, IoClass::Writeback);
    all_is_in_the_kernel(&ring);
    for class in [IoClass::Read, IoClass::ReadAhead] {
        let told = quick_of(&ring, class);
        assert_eq!(told.recv_timeout(LONG), Ok(Ok(())), "{class:?}");
    }
    for _ in 0..stuck {
        rustix::io::write(&writing, &[7; 4096]).unwrap();
        assert_eq!(ended.recv_timeout(LONG), Ok(Ok(())));
    }
}

#[test]
fn a_release_waits_for_io_on_the_chunk() {
    let arena = arena();
    let (ring, told, writing) = endless(&arena);
    all_is_in_the_kernel(&ring);
    assert_eq!(ring.registration(), Registration::Registered { chunks: 1 });
    // A breach of the contract, met in order: the chunk leaves only when its read has ended.
    let ours = Arc::clone(&arena);
    let releasing = std::thread::spawn(move || ours.release(FrameId(0)));
    std::thread::sleep(Duration::from_millis(50));
    assert!(!releasing.is_finished(), "nothing held the release up");
    rustix::io::write(&writing, &[7; 4096]).unwrap();
    assert_eq!(told.recv_timeout(LONG).unwrap(), Ok(()));
    releasing.join().unwrap();
    assert_eq!(ring.registration(), Registration::Registered { chunks: 0 });
    assert_eq!(arena.resident(), Bytes::ZERO);
}

#[test]
fn a_panic_in_a_completion_stops_nobody_else() {
    struct Panics;
    impl IoDone for Panics {
        fn io_done(&self, _: &Interrupt, _: Box<IoRequest>, _: Result<(), IoError>) {
            panic!("expected by the test");
        }
    }
    let arena = arena();
    let ring = Ring::start(&arena, true, &Arc::default()).unwrap();
    let zero = || {
        let zero = std::fs::File::open("/dev/zero").unwrap();
        Arc::new(OpenFile::new(zero, false, Bytes::ZERO))
    };
    let (tell, told) = mpsc::channel();
    let handlers: [Arc<dyn IoDone>; 2] = [Arc::new(Panics), Arc::new(Answers(tell))];
    for handler in handlers {
        let mut request = IoRequest::with_room(1);
        request.frames.push(FrameId(1));
        request.on_done(handler);
        ring.submit(Job::new(request, zero()));
    }
    assert_eq!(told.recv_timeout(LONG).unwrap(), Ok(()));
}

#[test]
fn a_completion_may_submit_the_next() {
    struct Chain {
        ring: std::sync::Weak<Ring>,
        left: AtomicU32,
        tell: mpsc::Sender<()>,
    }
    struct Link(Arc<Chain>);
    fn link(chain: &Arc<Chain>, mut request: Box<IoRequest>) {
        request.on_done(Arc::new(Link(Arc::clone(chain))));
        let file = std::fs::File::open("/dev/zero").unwrap();
        let file = Arc::new(OpenFile::new(file, false, Bytes::ZERO));
        if let Some(ring) = chain.ring.upgrade() {
            ring.submit(Job::new(request, file));
        }
    }
    impl IoDone for Link {
        fn io_done(&self, _: &Interrupt, request: Box<IoRequest>, result: Result<(), IoError>) {
            assert_eq!(result, Ok(()));
            match self.0.left.fetch_sub(1, Ordering::Relaxed) {
                0 => self.0.tell.send(()).unwrap(),
                _ => link(&self.0, request),
            }
        }
    }
    let arena = arena();
    let ring = Arc::new(Ring::start(&arena, true, &Arc::default()).unwrap());
    let (tell, told) = mpsc::channel();
    let chain = Arc::new(Chain {
        ring: Arc::downgrade(&ring),
        left: AtomicU32::new(2000),
        tell,
    });
    let mut request = IoRequest::with_room(1);
    request.frames.push(FrameId(1));
    link(&chain, request);
    told.recv_timeout(LONG).unwrap();
}
