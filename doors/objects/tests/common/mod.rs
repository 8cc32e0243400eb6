//! The common part of the tests: frames to move, a store that fails, and chance with a seed.
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use env::{Device, Interrupt, IoClass, IoDone, IoError, IoOp, IoRequest};
use frames::{Busy, Content, DataMut, FrameId, FrameTable, Owner};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use objects::{Config, Objects};
use os::{Arena, Options, ThreadEnv};
use policy::units::Bytes;
use tokio::sync::Semaphore;

pub(crate) const PAGE: usize = 4096;
pub(crate) const MIB: u64 = 1 << 20;
/// Longer than anything here takes on a machine that does much else.
pub(crate) const LONG: Duration = Duration::from_secs(120);
/// Pages of the largest request of the cache.
const REQUEST_PAGES: usize = 256;

/// Frames, and requests with them.
pub(crate) struct Rig {
    pub(crate) env: Arc<ThreadEnv>,
    pub(crate) arena: Arc<Arena>,
    table: FrameTable,
    free: Mutex<Vec<u32>>,
}

type Ended = (Box<IoRequest>, std::result::Result<(), IoError>);

struct Done(Mutex<Sender<Ended>>);

impl IoDone for Done {
    fn io_done(
        &self,
        _: &Interrupt,
        request: Box<IoRequest>,
        result: std::result::Result<(), IoError>,
    ) {
        let _ = self.0.lock().unwrap().send((request, result));
    }
}

/// A request under way.
pub(crate) struct Pending {
    ended: Receiver<Ended>,
    busy: Vec<Busy>,
    is_read: bool,
}

impl Pending {
    /// True if its answer is there, which is then taken.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.try_recv().is_ok()
    }
}

impl Rig {
    pub(crate) fn new() -> Self {
        let env = ThreadEnv::start(Options::new(16 * 1024)).unwrap();
        let arena = Arc::clone(env.arena());
        let chunk = arena.chunk_frames();
        for first in (0..16 * 1024).step_by(chunk as usize) {
            arena.populate(FrameId(first)).unwrap();
        }
        Self {
            env,
            arena,
            table: FrameTable::new(16 * 1024),
            free: Mutex::new((0..16 * 1024).collect()),
        }
    }

    fn claim(&self) -> Busy {
        let frame = self
            .free
            .lock()
            .unwrap()
            .pop()
            .expect("frames for the test");
        let busy = self.table.claim(FrameId(frame));
        self.table.adopt(
            &busy,
            Owner {
                file: 1,
                index: frame,
            },
        );
        busy
    }

    fn request(
        &self,
        op: IoOp,
        offset: u64,
        pages: usize,
    ) -> (Box<IoRequest>, Vec<Busy>, Receiver<Ended>) {
        let (sender, ended) = channel();
        let mut request = IoRequest::with_room(REQUEST_PAGES);
        request.op = op;
        request.class = if op == IoOp::Read {
            IoClass::Read
        } else {
            IoClass::Writeback
        };
        request.offset = Bytes(offset);
        request.on_done(Arc::new(Done(Mutex::new(sender))));
        let busy: Vec<Busy> = (0..pages).map(|_| self.claim()).collect();
        request.frames.extend(busy.iter().map(Busy::frame));
        (request, busy, ended)
    }

    pub(crate) fn submit_write(&self, device: &dyn Device, offset: u64, data: &[u8]) -> Pending {
        assert!(data.len().is_multiple_of(PAGE));
        let (request, busy, ended) = self.request(IoOp::Write, offset, data.len() / PAGE);
        for (place, busy) in busy.iter().enumerate() {
            self.arena.copy_in(busy, 0, data.into(), place * PAGE, PAGE);
        }
        device.submit(request);
        Pending {
            ended,
            busy,
            is_read: false,
        }
    }

    pub(crate) fn submit_read(&self, device: &dyn Device, offset: u64, len: usize) -> Pending {
        let (mut request, busy, ended) = self.request(IoOp::Read, offset, len / PAGE);
        for busy in &busy {
            self.arena.copy_in(busy, 0, (&[0xee; PAGE]).into(), 0, PAGE);
        }
        request.busy.extend(busy);
        device.submit(request);
        Pending {
            ended,
            busy: Vec::new(),
            is_read: true,
        }
    }

    pub(crate) fn submit(&self, device: &dyn Device, op: IoOp, offset: u64) -> Pending {
        let (request, busy, ended) = self.request(op, offset, 0);
        device.submit(request);
        Pending {
            ended,
            busy,
            is_read: false,
        }
    }

    /// Waits for the end of a request; a read answers its bytes.
    pub(crate) fn wait(&self, pending: Pending) -> std::result::Result<Vec<u8>, IoError> {
        let (mut request, result) = pending.ended.recv_timeout(LONG).expect("a request ends");
        let busy = if pending.is_read {
            request.busy.drain(..).collect()
        } else {
            pending.busy
        };
        let mut data = Vec::new();
        for busy in busy {
            let frame = busy.frame();
            if pending.is_read {
                let (place, file) = (
                    data.len(),
                    Owner {
                        file: 1,
                        index: frame.0,
                    },
                );
                data.resize(place + PAGE, 0);
                self.table
                    .release(busy, frames::Flags::UPTODATE, frames::Flags::NONE);
                let pin = self.table.try_pin(frame, file).unwrap();
                self.arena
                    .copy_out(&pin, 0, &mut DataMut::Bytes(&mut data), place, PAGE);
                let _ = self.table.unpin(pin);
                let busy = self.table.try_busy(frame, file).unwrap();
                let _ = self.table.disown(busy);
            } else {
                let _ = self.table.disown(busy);
            }
            self.free.lock().unwrap().push(frame.0);
        }
        result.map(|()| data)
    }

    pub(crate) fn write(
        &self,
        device: &dyn Device,
        offset: u64,
        data: &[u8],
    ) -> std::result::Result<(), IoError> {
        let pending = self.submit_write(device, offset, data);
        self.wait(pending).map(|_| ())
    }

    pub(crate) fn read(
        &self,
        device: &dyn Device,
        offset: u64,
        len: usize,
    ) -> std::result::Result<Vec<u8>, IoError> {
        let pending = self.submit_read(device, offset, len);
        self.wait(pending)
    }

    pub(crate) fn discard(
        &self,
        device: &dyn Device,
        offset: u64,
        len: u64,
    ) -> std::result::Result<(), IoError> {
        let pending = self.submit(device, IoOp::Discard { len: Bytes(len) }, offset);
        self.wait(pending).map(|_| ())
    }

    pub(crate) fn flush(&self, device: &dyn Device) -> std::result::Result<(), IoError> {
        let pending = self.submit(device, IoOp::Flush, 0);
        self.wait(pending).map(|_| ())
    }

    /// A volume on `store`.
    pub(crate) fn open(
        &self,
        store: &Arc<dyn ObjectStore>,
        config: &Config,
    ) -> std::result::Result<Arc<Objects>, objects::Error> {
        objects::open_on(
            Arc::clone(store),
            "volumes/one",
            config,
            Arc::clone(&self.arena),
        )
    }
}

/// Chance with a seed: xorshift64*.
pub(crate) struct Chance(u64);

impl Chance {
    /// From TIDEGATE_SEED, or by `seed`; printed, so that a failure can be repeated.
    pub(crate) fn new(seed: u64) -> Self {
        let seed = std::env::var("TIDEGATE_SEED")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(seed);
        println!("TIDEGATE_SEED={seed}");
        Self::quiet(seed)
    }

    /// By this seed and no other: for content that has to be the same in another run.
    pub(crate) fn quiet(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound
    }
}

/// The fault of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It fails, and nothing was done.
    Fail,
    /// It is done, and the answer is lost.
    DoneUnheard,
    /// It fails for now, and is done a moment later.
    DoneLater,
    /// It is refused by the store's rights.
    Denied,
    /// It is done after a while.
    Slow(Duration),
    /// It is done when `Faulty::release` is called.
    Held,
    /// A put: as `Held`, but in a thread, which goes on though nobody waits for it, as in a file
    /// system that hangs.
    Stuck,
    /// It never ends.
    Hang,
}

type Rule = Box<dyn FnMut(&str, &Path) -> Option<Fault> + Send>;

/// A store that fails as it is told.
pub(crate) struct Faulty {
    pub(crate) inner: Arc<dyn ObjectStore>,
    rule: Mutex<Option<Rule>>,
    once: Mutex<VecDeque<Fault>>,
    pub(crate) calls: AtomicU64,
    /// Calls that came to be held, ever.
    held: Arc<AtomicU64>,
    gate: Arc<Semaphore>,
}

impl Faulty {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            rule: Mutex::new(None),
            once: Mutex::new(VecDeque::new()),
            calls: AtomicU64::new(0),
            held: Arc::default(),
            gate: Arc::new(Semaphore::new(0)),
        })
    }

    /// Waits until `count` calls have come to be held, and sees that no more do.
    pub(crate) fn until_held(&self, count: u64) {
        let held = || self.held.load(Ordering::SeqCst);
        let began = Instant::now();
        while held() < count {
            assert!(began.elapsed() < LONG, "{} of {count} came", held());
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(held(), count, "calls that came to be held");
    }

    /// Releases `count` of the held calls.
    pub(crate) fn release(&self, count: usize) {
        self.gate.add_permits(count);
    }

    async fn before(&self, fault: Option<Fault>, at: &Path) -> Result<()> {
        if fault == Some(Fault::Held) {
            self.held.fetch_add(1, Ordering::SeqCst);
            let permit = self.gate.acquire().await.expect("it is never closed");
            permit.forget();
        }
        before(fault, at).await
    }

    /// Asks `rule` about each call: "put", "get" or "list", and where.
    pub(crate) fn rule(&self, rule: impl FnMut(&str, &Path) -> Option<Fault> + Send + 'static) {
        *self.rule.lock().unwrap() = Some(Box::new(rule));
    }

    pub(crate) fn calm(&self) {
        *self.rule.lock().unwrap() = None;
    }

    fn fault(&self, call: &str, at: &Path) -> Option<Fault> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut rule = self.rule.lock().unwrap();
        rule.as_mut().and_then(|rule| rule(call, at))
    }
}

fn broken() -> object_store::Error {
    object_store::Error::Generic {
        store: "faulty",
        source: "injected".into(),
    }
}

async fn before(fault: Option<Fault>, at: &Path) -> Result<()> {
    match fault {
        None | Some(Fault::DoneUnheard | Fault::DoneLater | Fault::Held | Fault::Stuck) => Ok(()),
        Some(Fault::Fail) => Err(broken()),
        Some(Fault::Denied) => Err(object_store::Error::PermissionDenied {
            path: at.to_string(),
            source: "injected".into(),
        }),
        Some(Fault::Slow(time)) => {
            tokio::time::sleep(time).await;
            Ok(())
        }
        Some(Fault::Hang) => std::future::pending().await,
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Faulty({})", self.inner)
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(
        &self,
        at: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let fault = self.fault("put", at);
        self.before(fault, at).await?;
        match fault {
            Some(Fault::DoneUnheard) => {
                self.inner.put_opts(at, payload, options).await?;
                Err(broken())
            }
            Some(Fault::DoneLater) => {
                let (inner, at) = (Arc::clone(&self.inner), at.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    // Refused if its condition does not hold any more.
                    let _ = inner.put_opts(&at, payload, options).await;
                });
                Err(broken())
            }
            Some(Fault::Stuck) => {
                let (inner, at) = (Arc::clone(&self.inner), at.clone());
                let (held, gate) = (Arc::clone(&self.held), Arc::clone(&self.gate));
                let put = async move {
                    held.fetch_add(1, Ordering::SeqCst);
                    gate.acquire().await.expect("it is never closed").forget();
                    inner.put_opts(&at, payload, options).await
                };
                // A runtime of its own: the device's may have ended when it goes on.
                let runtime = tokio::runtime::Builder::new_current_thread().build();
                let put = move || runtime.unwrap().block_on(put);
                tokio::task::spawn_blocking(put).await?
            }
            _ => self.inner.put_opts(at, payload, options).await,
        }
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(at, options).await
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        self.before(self.fault("get", at), at).await?;
        self.inner.get_opts(at, options).await
    }

    fn delete_stream(
        &self,
        at: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(at)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let fault = self.fault("list", &Path::default());
        if fault == Some(Fault::Hang) {
            return futures_util::stream::pending().boxed();
        }
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// A fresh directory, removed at the end.
pub(crate) struct TestDir(pub(crate) std::path::PathBuf);

impl TestDir {
    pub(crate) fn new(name: &str) -> Self {
        let dir =
            std::env::temp_dir().join(format!("tidegate-objects-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    pub(crate) fn url(&self) -> String {
        format!("dir:{}", self.0.display())
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A MiB that is known by its place and a round.
pub(crate) fn block(at: u64, round: u64) -> Vec<u8> {
    let mut chance = Chance::quiet(at * 1000 + round + 1);
    (0..MIB / 8)
        .flat_map(|_| chance.next().to_le_bytes())
        .collect()
}

/// A volume kept by `device` in a cache of its own.
pub(crate) fn attach(
    memory: u64,
    open: impl FnOnce(Arc<Arena>) -> std::result::Result<Arc<Objects>, objects::Error>,
) -> (tidegate::Cache, tidegate::Volume, Arc<Objects>) {
    let cache = tidegate::Cache::builder().memory(memory).build().unwrap();
    let mut kept = None;
    let volume = cache
        .attach(tidegate::VolumeOptions::default(), |env| {
            let device = open(Arc::clone(env.arena())).expect("the volume opens");
            kept = Some(Arc::clone(&device));
            let size = device.size();
            Ok::<_, tidegate::Error>(tidegate::Backing {
                device,
                object: Objects::OBJECT,
                size,
            })
        })
        .unwrap();
    (cache, volume, kept.unwrap())
}
