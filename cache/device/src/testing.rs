//! A virtual clock, a disk that remembers, and a submitter, for the tests of this crate.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::{Arc, Mutex};

use env::{
    Device, DeviceInfo, Host, Interrupt, IoClass, IoDone, IoError, IoOp, IoRequest, ObjectId,
};
use frames::FrameId;
use policy::units::{Bytes, Instant, Nanos, PAGE_SIZE};

use crate::{FrameCopy, take_lock};

type Closure = Box<dyn FnOnce(&Interrupt) + Send>;

/// Timers in order of (time, call), run by hand.
#[derive(Default)]
pub(crate) struct FakeHost {
    state: Mutex<HostState>,
}

#[derive(Default)]
struct HostState {
    now: u64,
    sequence: u64,
    order: BinaryHeap<Reverse<(u64, u64)>>,
    closures: BTreeMap<u64, Closure>,
    random: u64,
}

impl Host for FakeHost {
    fn now(&self) -> Instant {
        Instant(take_lock(&self.state).now)
    }

    fn at(&self, when: Instant, what: Closure) {
        let mut state = take_lock(&self.state);
        let number = state.sequence;
        state.sequence += 1;
        state.order.push(Reverse((when.0, number)));
        state.closures.insert(number, what);
    }

    fn random(&self) -> u64 {
        let mut state = take_lock(&self.state);
        state.random = state
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state.random >> 32
    }
}

impl FakeHost {
    /// Runs the next timer due by `limit`. False: there is none.
    fn step(&self, limit: u64) -> bool {
        let what = {
            let mut state = take_lock(&self.state);
            let Some(&Reverse((when, number))) = state.order.peek() else {
                return false;
            };
            if when > limit {
                return false;
            }
            state.order.pop();
            state.now = state.now.max(when);
            state.closures.remove(&number).unwrap()
        };
        what(&Interrupt::new());
        true
    }

    /// Runs the next timer before its time, as an `Env` that shuts down does.
    pub(crate) fn hurry(&self) -> bool {
        let what = {
            let mut state = take_lock(&self.state);
            let Some(Reverse((_, number))) = state.order.pop() else {
                return false;
            };
            state.closures.remove(&number).unwrap()
        };
        what(&Interrupt::new());
        true
    }
}

/// The disk's treatment of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Serve {
    Inside,
    After(Nanos),
    Fail(IoError),
    /// Completes when told by `Disk::end_one`.
    Hold,
}

/// A request as the disk saw it: (op, object, offset, pages, when); they stand in its order.
pub(crate) type Seen = (IoOp, u32, u64, usize, u64);

/// A disk that remembers a word for each page, and every request.
pub(crate) struct Disk {
    host: Arc<FakeHost>,
    memory: Arc<Memory>,
    state: Mutex<DiskState>,
}

struct DiskState {
    serve: Serve,
    seen: Vec<Seen>,
    pages: BTreeMap<(u32, u64), u64>,
    held: VecDeque<Box<IoRequest>>,
}

impl Disk {
    pub(crate) fn serve(&self, serve: Serve) {
        take_lock(&self.state).serve = serve;
    }

    pub(crate) fn how(&self) -> Serve {
        take_lock(&self.state).serve
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        take_lock(&self.state).seen.clone()
    }

    pub(crate) fn page(&self, object: u32, page: u64) -> u64 {
        take_lock(&self.state)
            .pages
            .get(&(object, page))
            .copied()
            .unwrap_or(0)
    }

    /// Ends the request held longest.
    pub(crate) fn end_one(&self, result: Result<(), IoError>) -> bool {
        let request = take_lock(&self.state).held.pop_front();
        request.is_some_and(|request| {
            self.end(&Interrupt::new(), request, result);
            true
        })
    }

    /// Moves the data and completes.
    fn end(&self, context: &Interrupt, request: Box<IoRequest>, result: Result<(), IoError>) {
        if result.is_ok() {
            let mut state = take_lock(&self.state);
            for (page, frame) in (request.offset.0 / PAGE_SIZE..).zip(&request.frames) {
                let place = (request.object.0, page);
                match request.op {
                    IoOp::Write => drop(state.pages.insert(place, self.memory.get(*frame))),
                    IoOp::Read => {
                        let word = state.pages.get(&place).copied().unwrap_or(0);
                        self.memory.set(*frame, word);
                    }
                    _ => {}
                }
            }
        }
        request.complete(context, result);
    }
}

/// A disk as a device: the `Arc` is needed by its timers.
pub(crate) struct DiskDevice(pub(crate) Arc<Disk>);

impl Device for DiskDevice {
    fn submit(&self, request: Box<IoRequest>) {
        let disk = &self.0;
        let serve = {
            let mut state = take_lock(&disk.state);
            let (object, offset) = (request.object.0, request.offset.0);
            let now = disk.host.now().0;
            state
                .seen
                .push((request.op, object, offset, request.frames.len(), now));
            state.serve
        };
        match serve {
            Serve::Inside => disk.end(&Interrupt::new(), request, Ok(())),
            Serve::Fail(error) => disk.end(&Interrupt::new(), request, Err(error)),
            Serve::Hold => take_lock(&disk.state).held.push_back(request),
            Serve::After(delay) => {
                let disk = Arc::clone(disk);
                let host = Arc::clone(&disk.host);
                host.after(
                    delay,
                    Box::new(move |context| disk.end(context, request, Ok(()))),
                );
            }
        }
    }

    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            alignment: 512,
            stable_writes: false,
            grow_ahead: None,
            prepares_writes: false,
            queue: None,
        }
    }
}

/// One word for each frame.
#[derive(Default)]
pub(crate) struct Memory(Mutex<BTreeMap<u32, u64>>);

impl Memory {
    pub(crate) fn get(&self, frame: FrameId) -> u64 {
        take_lock(&self.0).get(&frame.0).copied().unwrap_or(0)
    }

    pub(crate) fn set(&self, frame: FrameId, word: u64) {
        take_lock(&self.0).insert(frame.0, word);
    }
}

impl FrameCopy for Memory {
    fn copy_frame(&self, to: FrameId, from: FrameId) {
        self.set(to, self.get(from));
    }
}

/// One request that came back.
pub(crate) struct Ended {
    pub(crate) request: Box<IoRequest>,
    pub(crate) result: Result<(), IoError>,
    pub(crate) at: u64,
}

/// A submitter's side, a clock, memory and a disk.
pub(crate) struct Rig {
    pub(crate) host: Arc<FakeHost>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) disk: Arc<Disk>,
    ended: Arc<Inbox>,
}

struct Inbox {
    host: Arc<FakeHost>,
    ended: Mutex<Vec<Ended>>,
}

impl IoDone for Inbox {
    fn io_done(&self, _context: &Interrupt, request: Box<IoRequest>, result: Result<(), IoError>) {
        let at = self.host.now().0;
        take_lock(&self.ended).push(Ended {
            request,
            result,
            at,
        });
    }
}

impl Rig {
    pub(crate) fn new() -> Self {
        let host = Arc::new(FakeHost::default());
        let memory = Arc::new(Memory::default());
        let state = DiskState {
            serve: Serve::Inside,
            seen: Vec::new(),
            pages: BTreeMap::new(),
            held: VecDeque::new(),
        };
        let disk = Arc::new(Disk {
            host: Arc::clone(&host),
            memory: Arc::clone(&memory),
            state: Mutex::new(state),
        });
        let ended = Arc::new(Inbox {
            host: Arc::clone(&host),
            ended: Mutex::new(Vec::new()),
        });
        Self {
            host,
            memory,
            disk,
            ended,
        }
    }

    pub(crate) fn host(&self) -> Arc<dyn Host> {
        Arc::<FakeHost>::clone(&self.host)
    }

    pub(crate) fn disk(&self) -> Arc<dyn Device> {
        Arc::new(DiskDevice(Arc::clone(&self.disk)))
    }

    pub(crate) fn copy(&self) -> Arc<dyn FrameCopy> {
        Arc::<Memory>::clone(&self.memory)
    }

    /// A request on frames numbered by its pages.
    pub(crate) fn request(&self, op: IoOp, object: u32, offset: u64, pages: u32) -> Box<IoRequest> {
        let mut request = IoRequest::with_room(pages as usize);
        request.op = op;
        request.class = match op {
            IoOp::Read => IoClass::Read,
            IoOp::Write => IoClass::Writeback,
            _ => IoClass::Sync,
        };
        request.object = ObjectId(object);
        request.offset = Bytes(offset);
        request.frames.extend((0..pages).map(FrameId));
        request
    }

    pub(crate) fn submit(&self, device: &dyn Device, mut request: Box<IoRequest>) {
        request.submitted = self.host.now();
        request.on_done(Arc::<Inbox>::clone(&self.ended));
        device.submit(request);
    }

    /// Runs all timers.
    pub(crate) fn run(&self) {
        let mut steps = 0;
        while self.host.step(u64::MAX) {
            steps += 1;
            assert!(steps < 1_000_000, "timers without end");
        }
    }

    /// Runs the timers due by `limit`, and goes there.
    pub(crate) fn run_until(&self, limit: Instant) {
        while self.host.step(limit.0) {}
        let mut state = take_lock(&self.host.state);
        state.now = state.now.max(limit.0);
    }

    /// Requests that have come back since the last call.
    pub(crate) fn ended(&self) -> Vec<Ended> {
        std::mem::take(&mut *take_lock(&self.ended.ended))
    }

    pub(crate) fn results(&self) -> Vec<Result<(), IoError>> {
        self.ended().into_iter().map(|ended| ended.result).collect()
    }
}
