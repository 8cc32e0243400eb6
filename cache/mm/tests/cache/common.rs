//! A cache in the lab over a plain disk of a fixed rate.
#![allow(dead_code, unreachable_pub, reason = "each benchmark uses its part")]
#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use env::{Device, DeviceInfo, Host, IoError, IoOp, IoRequest, ObjectId, Task};
use mm::{Cache, DeviceOptions, File, Options, Reader, WriteAhead};
use policy::dirty::{Law, Threshold};
use policy::units::{Bytes, Instant, Nanos, PAGE_SHIFT, Pages};
use world::{CostTable, Lab, LabEnv, Options as LabOptions, Sector};

/// One disk: requests one after another at `rate` bytes a second; contents by page.
pub struct Disk {
    host: Arc<dyn Host>,
    env: Arc<LabEnv>,
    pub rate: u64,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
pub struct State {
    free_at: Instant,
    pub pages: BTreeMap<(u32, u64), [Sector; 8]>,
    pub writes: u64,
    pub flushes: u64,
    pub len: BTreeMap<u32, u64>,
    /// Lengths that were set, one after the other.
    pub lengths: Vec<u64>,
    /// Writes fail from the first of these to before the second, counted in requests.
    pub fail_writes: std::ops::Range<u64>,
    /// Likewise reads.
    pub fail_reads: std::ops::Range<u64>,
    pub reads: u64,
    /// Reads as they came: first page, pages, and whether their reader would do them itself.
    pub asked: Vec<(u64, u64, bool)>,
    /// Likewise requests that a sync waits for: what, and how many pages.
    pub synced: Vec<(IoOp, u64, bool)>,
    /// Likewise discards, with this error number. With 95 (not supported) they do nothing, else
    /// half of it.
    pub fail_discards: std::ops::Range<u64>,
    pub discard_errno: i32,
    pub discards: u64,
    /// Bytes that it discards in a second; 0: any number at once.
    pub discard_rate: u64,
    /// Requests that come in this time are begun at its end.
    pub hangs: std::ops::Range<Instant>,
    /// The queue that it tells of.
    pub queue: Option<policy::writeback::DeviceQueue>,
    /// Writes that it has now, and the most that it has had.
    pub writing: u32,
    pub writing_most: u32,
    pub longest_write: Pages,
    pub fail_flushes: bool,
    pub fail_lengths: bool,
    /// Why there is no space for what is to be allocated.
    pub refuses_space: Option<IoError>,
    /// Contents are thrown away (for benchmarks).
    pub forget: bool,
    /// No page of object 1 is written with a number, in its sectors, that this log has not.
    pub ahead: Option<Arc<WriteAhead>>,
}

impl State {
    fn look_ahead(&self, env: &LabEnv, request: &IoRequest) {
        let log = self.ahead.as_ref();
        let Some(log) = log.filter(|_| request.op == IoOp::Write && request.object.0 == 1) else {
            return;
        };
        for (page, frame) in (request.offset.0 >> PAGE_SHIFT..).zip(&request.frames) {
            let newest = env
                .stamps()
                .load(*frame)
                .iter()
                .map(|sector| sector.0)
                .max();
            let newest = u64::from(newest.unwrap_or(0));
            let durable = log.durable_lsn();
            assert!(
                newest <= durable,
                "page {page} with {newest}, the log is at {durable}"
            );
        }
    }
}

impl Disk {
    pub fn new(lab: &Lab, rate: u64) -> Arc<Self> {
        let state = Arc::default();
        Arc::new(Self {
            host: lab.host(),
            env: Arc::clone(lab.env()),
            rate,
            state,
        })
    }

    pub fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Sets whether contents are kept.
    pub fn keep(&self, keep: bool) {
        self.state().forget = !keep;
    }

    fn finish(env: &LabEnv, state: &Mutex<State>, request: &IoRequest) -> Result<(), IoError> {
        let mut state = state.lock().unwrap();
        let first = request.offset.0 >> PAGE_SHIFT;
        state.look_ahead(env, request);
        match request.op {
            IoOp::Read => {
                let nth = state.reads;
                state.reads += 1;
                if state.fail_reads.contains(&nth) {
                    return Err(IoError::Failed { errno: 5 });
                }
                if state.forget {
                    return Ok(());
                }
                for (page, frame) in (first..).zip(&request.frames) {
                    let data = state.pages.get(&(request.object.0, page)).copied();
                    env.stamps().store(*frame, data.unwrap_or_default());
                }
            }
            IoOp::Write => {
                let nth = state.writes;
                state.writes += 1;
                if state.fail_writes.contains(&nth) {
                    return Err(IoError::Failed { errno: 5 });
                }
                if state.forget {
                    return Ok(());
                }
                for (page, frame) in (first..).zip(&request.frames) {
                    let data = env.stamps().load(*frame);
                    state.pages.insert((request.object.0, page), data);
                }
            }
            IoOp::Flush => {
                state.flushes += 1;
                if state.fail_flushes {
                    return Err(IoError::Failed { errno: 5 });
                }
            }
            IoOp::SetLen { .. } if state.fail_lengths => {
                return Err(IoError::Failed { errno: 5 });
            }
            IoOp::SetLen { len } => {
                state.len.insert(request.object.0, len.0);
                state.lengths.push(len.0);
                let gone = len.0.div_ceil(4096);
                state
                    .pages
                    .retain(|(object, page), _| *object != request.object.0 || *page < gone);
                let tail = len.0 % 4096;
                if let Some(data) = state.pages.get_mut(&(request.object.0, len.0 >> 12)) {
                    for sector in &mut data[tail.div_ceil(512) as usize..] {
                        *sector = Sector(0);
                    }
                }
            }
            IoOp::Discard { len } => {
                let nth = state.discards;
                state.discards += 1;
                let end = (request.offset.0 + len.0).div_ceil(4096);
                let failed = state.fail_discards.contains(&nth);
                // A request that fails has zeroed some of it.
                let end = if failed { (first + end) / 2 } else { end };
                let gone = (request.object.0, first)..(request.object.0, end);
                if !(failed && state.discard_errno == 95) {
                    state.pages.retain(|key, _| !gone.contains(key));
                }
                if failed {
                    let errno = state.discard_errno;
                    return Err(IoError::Failed { errno });
                }
            }
            IoOp::Allocate { .. } => return state.refuses_space.map_or(Ok(()), Err),
            IoOp::Prepare { .. } => {}
        }
        Ok(())
    }
}

impl Device for Disk {
    fn submit(&self, request: Box<IoRequest>) {
        let time = match request.op {
            IoOp::Read | IoOp::Write => {
                Nanos(request.pages().bytes().0 * 1_000_000_000 / self.rate)
            }
            IoOp::Discard { len } => {
                let rate = self.state().discard_rate;
                let time = (len.0 * 1_000_000_000).checked_div(rate);
                time.map_or(Nanos::micros(10), Nanos)
            }
            _ => Nanos::micros(10),
        };
        if request.op == IoOp::Read {
            let (first, Pages(pages)) = (request.offset.0 >> PAGE_SHIFT, request.pages());
            self.state().asked.push((first, pages, request.in_place));
        }
        if request.class == env::IoClass::Sync {
            let (op, Pages(pages)) = (request.op, request.pages());
            self.state().synced.push((op, pages, request.in_place));
        }
        let writes = matches!(request.op, IoOp::Write);
        let when = {
            let mut state = self.state.lock().unwrap();
            state.look_ahead(&self.env, &request);
            state.writing += u32::from(writes);
            state.writing_most = state.writing_most.max(state.writing);
            if writes {
                state.longest_write = state.longest_write.max(request.pages());
            }
            let mut begin = state.free_at.max(self.host.now());
            if state.hangs.contains(&begin) {
                begin = state.hangs.end;
            }
            state.free_at = begin + time;
            state.free_at
        };
        let (env, state) = (Arc::clone(&self.env), Arc::clone(&self.state));
        self.host.at(
            when,
            Box::new(move |context| {
                let result = Self::finish(&env, &state, &request);
                state.lock().unwrap().writing -= u32::from(writes);
                request.complete(context, result);
            }),
        );
    }

    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            alignment: 512,
            stable_writes: false,
            grow_ahead: None,
            prepares_writes: false,
            queue: self.state().queue,
        }
    }
}

pub struct World {
    pub lab: Lab,
    pub disk: Arc<Disk>,
    pub options: Options,
    pub device: DeviceOptions,
}

pub fn world(frames: u32, rate: u64) -> World {
    let lab = Lab::new(LabOptions {
        cpus: 2,
        hz: 1000,
        seed: 1,
        frames,
        costs: CostTable::zero(),
        ..LabOptions::default()
    });
    let disk = Disk::new(&lab, rate);
    let options = Options::new(frames, 2);
    World {
        lab,
        disk,
        options,
        device: DeviceOptions::default(),
    }
}

impl World {
    pub fn law(mut self, law: Law) -> Self {
        self.options.dirty.law = law;
        self
    }

    pub fn limits(mut self, dirty: u64, background: u64) -> Self {
        self.options.dirty.dirty = Threshold::Pages(Pages(dirty));
        self.options.dirty.background = Threshold::Pages(Pages(background));
        self
    }

    /// Runs `body` with a cache and one open file of `len` bytes, then shuts the cache down.
    pub fn run<T: Send + 'static>(
        &mut self,
        len: u64,
        body: impl FnOnce(&mut Task<'_>, &Arc<Cache>, &Arc<File>) -> T + Send + 'static,
    ) -> T {
        let env = Arc::clone(self.lab.env());
        let (options, device) = (self.options.clone(), self.device);
        let info = self.disk.info();
        let id = self
            .lab
            .add_device(Arc::clone(&self.disk) as Arc<dyn Device>);
        self.lab
            .run(move |task| {
                let cache = if options.reclaim.law.generations {
                    kernel::build(env, options, kernel::Parts::default()).unwrap()
                } else {
                    Cache::new(env, options).unwrap()
                };
                let device = cache.add_device(task, id, info, device).unwrap();
                let file = cache.open(task, device, ObjectId(1), Bytes(len)).unwrap();
                let answer = body(task, &cache, &file);
                let _ = cache.shutdown(task);
                let stats = cache.stats();
                assert!(stats.is_conserved(), "pages were lost: {stats:?}");
                answer
            })
            .unwrap()
    }
}

/// Uses a page; answers whether it was there.
pub fn uses(task: &mut Task<'_>, file: &File, page: u32) -> bool {
    let hit = file.try_pin(page).is_some();
    if !hit {
        drop(file.pin(task, &mut Reader::default(), page).unwrap());
    }
    hit
}

/// Data for `pages` pages: version `version` in every sector, with its place in it.
pub fn data(first_page: u32, pages: u32, version: u32) -> Vec<Sector> {
    (0..pages * 8)
        .map(|at| Sector((version << 24) | (first_page * 8 + at + 1)))
        .collect()
}
