//! The builder of a cache.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use device::{Layer, Stack};
use mm::{DeviceOptions, ErrorPolicy, Populate};
use policy::dirty::{DeviceTunables, Law, Threshold};
use policy::reclaim::{ReclaimLaw, Tunables as ReclaimTunables};
use policy::rule::RuleMaker;
use policy::units::Pages;

use crate::SlowCall;
use crate::nodes::Placement;
use crate::stats::Waits;
use crate::waits::OnSlow;
use crate::{Cache, Error, Nodes, OneNode, budget};

/// Room for disks and volumes where nothing is said, and the most that can be asked for.
const DEVICES: u16 = 16;
const DEVICES_MAX: u16 = 255;

/// Settings of a cache; made by `Cache::builder`.
#[derive(Clone, Debug)]
pub struct Builder {
    memory: u64,
    whole_process: bool,
    beside: u64,
    devices: Option<u16>,
    prefault: bool,
    law: Law,
    dirty: Threshold,
    background: Threshold,
    readahead: Option<u64>,
    on_error: ErrorPolicy,
    tunables: DeviceTunables,
    io_uring: bool,
    swap: Option<(PathBuf, u64)>,
    swappiness: u8,
    reclaim: ReclaimLaw,
    page_rule: Option<RuleMaker>,
    nodes: Nodes,
    follow_group: bool,
    dumped: bool,
    maps: bool,
    layers: Vec<Layer>,
    slow: Option<OnSlow>,
}

impl Default for Builder {
    fn default() -> Self {
        let device = DeviceOptions::default();
        Self {
            memory: 256 << 20,
            whole_process: false,
            beside: 0,
            devices: None,
            prefault: false,
            law: Law::TIDEGATE,
            dirty: Threshold::Percent(20),
            background: Threshold::Percent(10),
            readahead: None,
            on_error: device.on_error,
            tunables: device.tunables,
            io_uring: true,
            swap: None,
            swappiness: 60,
            reclaim: ReclaimLaw::TIDEGATE,
            page_rule: None,
            nodes: Nodes::One,
            follow_group: true,
            dumped: false,
            maps: false,
            layers: Vec::new(),
            slow: None,
        }
    }
}

impl Builder {
    /// The memory limit in bytes (256 MiB if not set): pages, metadata and pins together.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = bytes;
        self
    }

    /// The limit is for the whole process: memory that is resident when the cache is built comes
    /// off it.
    #[must_use]
    pub fn whole_process(mut self, whole: bool) -> Self {
        self.whole_process = whole;
        self
    }

    /// Leaves `bytes` of the limit to the program itself, for its buffers, connections and threads.
    /// Nothing holds it to that.
    #[must_use]
    pub fn beside(mut self, bytes: u64) -> Self {
        self.beside = bytes;
        self
    }

    /// The most disks and volumes together, 1 to 255 (16 if not set). From the ninth on each takes
    /// 256 KiB off the limit, whether it is used or not: threads, a ring, requests. Eight are in
    /// what a cache takes anyhow.
    #[must_use]
    pub fn devices(mut self, count: u16) -> Self {
        self.devices = Some(count);
        self
    }

    /// All memory is taken when the cache is built instead of as it is used.
    #[must_use]
    pub fn prefault(mut self, prefault: bool) -> Self {
        self.prefault = prefault;
        self
    }

    /// Dirty data above which writers are paced (20 % of the cache if not set). Regions
    /// ([`Spill`](crate::Spill)) take their part of this limit too, in per cent or in pages, as
    /// they take it of the memory.
    #[must_use]
    pub fn dirty_limit(mut self, limit: Threshold) -> Self {
        self.dirty = limit;
        self
    }

    /// Dirty data above which writeback begins (10 % of the cache if not set).
    #[must_use]
    pub fn background_limit(mut self, limit: Threshold) -> Self {
        self.background = limit;
        self
    }

    /// The law that paces writers.
    #[must_use]
    pub fn law(mut self, law: Law) -> Self {
        self.law = law;
        self
    }

    /// Largest read-ahead window in bytes (if not set: 8 MiB, at most a sixteenth of the cache;
    /// less than two pages turn it off).
    #[must_use]
    pub fn readahead(mut self, bytes: u64) -> Self {
        self.readahead = Some(bytes);
        self
    }

    /// The answer to writers while writes to a device fail (`Report` if not set).
    #[must_use]
    pub fn on_error(mut self, policy: ErrorPolicy) -> Self {
        self.on_error = policy;
        self
    }

    /// Each device's share of the dirty limit.
    #[must_use]
    pub fn device(mut self, tunables: DeviceTunables) -> Self {
        self.tunables = tunables;
        self
    }

    /// Uses io_uring where the system allows it (yes if not set).
    #[must_use]
    pub fn io_uring(mut self, use_it: bool) -> Self {
        self.io_uring = use_it;
        self
    }

    /// A new file of `bytes` bytes to which anonymous memory ([`crate::Spill`]) spills. Its space
    /// is taken now. Its name is removed as soon as it is open: nobody else can open it, and
    /// however the process ends, its space is free again. Without a swap file anonymous memory
    /// stays in memory. The records of its slots, 13 bytes for each 4 KiB (0.3 % of its size),
    /// count against the limit: 3.25 MiB for each GiB.
    #[must_use]
    pub fn swap_file(mut self, path: impl Into<PathBuf>, bytes: u64) -> Self {
        self.swap = Some((path.into(), bytes));
        self
    }

    /// The cost of a page of a file beside an anonymous one, 0 to 200: 100 takes them for equally
    /// dear, less spares anonymous memory, at 200 it alone is reclaimed as long as there is any (60
    /// if not set).
    #[must_use]
    pub fn swappiness(mut self, swappiness: u8) -> Self {
        self.swappiness = swappiness;
        self
    }

    /// The law by which a task that needs memory is held up while none can be freed (Tidegate's own
    /// if not set).
    #[must_use]
    pub fn reclaim(mut self, law: ReclaimLaw) -> Self {
        self.reclaim = law;
        self
    }

    /// The rule that picks the page of a file to evict when memory is full: by its name
    /// ([`RuleMaker::by_name`]: `reuse`, `lirs`, `s3-fifo`, `mru`), or a type of one's own that is
    /// a [`PageRule`](crate::rule::PageRule). If not set, inactive and active pages and refault
    /// distances decide, as in Linux. Try it on a trace first: `tidegate replay --rule
    /// tidegate+reuse`.
    ///
    /// ```
    /// use tidegate::rule::{Coming, End, PageRule, Queue, Queues, Use};
    /// use tidegate::{Cache, RuleMaker};
    ///
    /// /// First in, first out.
    /// struct Fifo;
    ///
    /// impl PageRule for Fifo {
    ///     fn place(&mut self, _: &Coming) -> Queue {
    ///         Queue::Young
    ///     }
    ///     fn next(&self, _: &Queues) -> (Queue, End) {
    ///         (Queue::Young, End::Old)
    ///     }
    ///     fn look(&mut self, _: Queue, _: &mut Use) -> Option<Queue> {
    ///         None
    ///     }
    /// }
    ///
    /// let rule = RuleMaker::new("fifo", |_| Fifo);
    /// let cache = Cache::builder().memory(64 << 20).page_rule(rule).build()?;
    /// # cache.close()?;
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    #[must_use]
    pub fn page_rule(mut self, rule: RuleMaker) -> Self {
        self.page_rule = Some(rule);
        self
    }

    /// The nodes of the machine to take the memory from (one if not set): see [`Nodes`].
    #[must_use]
    pub fn nodes(mut self, nodes: Nodes) -> Self {
        self.nodes = nodes;
        self
    }

    /// Includes cached pages in core dumps of the process (no if not set: they belong to others,
    /// and there are many).
    #[must_use]
    pub fn core_dump(mut self, dumped: bool) -> Self {
        self.dumped = dumped;
        self
    }

    /// Files can be mapped ([`File::map`](crate::File::map); no if not set). The memory then
    /// consists of pages of 4 KiB, and is not registered with io_uring: pages go over to a map one
    /// by one.
    #[must_use]
    pub fn maps(mut self, maps: bool) -> Self {
        self.maps = maps;
        self
    }

    /// Takes less than the limit while the control group of the process would not allow it (yes if
    /// not set): a limit of the group that is lowered, others in it that take memory, pressure. A
    /// thread looks at that four times a second, where there is a group that has a limit or may get
    /// one. [`Stats::ceiling`](crate::Stats::ceiling) says how it is held.
    #[must_use]
    pub fn follow_group(mut self, follow: bool) -> Self {
        self.follow_group = follow;
        self
    }

    /// Tells of every call on a file that takes `least` or longer, with its waits in their order
    /// and its own time. `tell` is called on the caller's thread, after the call; its own calls on
    /// files of the cache are told like all others. The clock is read twice for each call.
    ///
    /// ```
    /// # use tidegate::{Cache, OpenOptions};
    /// # let path = std::env::temp_dir().join(format!("tidegate-doc-slow-{}", std::process::id()));
    /// use std::time::Duration;
    ///
    /// let cache = Cache::builder()
    ///     .memory(64 << 20)
    ///     .on_slow(Duration::from_millis(10), |call| eprintln!("slow: {call}"))
    ///     .build()?;
    /// # let file = cache.open(&path, OpenOptions::new().create(true))?;
    /// # file.write_at(b"x", 0)?;
    /// # drop(file);
    /// # cache.close()?;
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn on_slow(
        mut self,
        least: Duration,
        tell: impl Fn(&SlowCall<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.slow = Some(OnSlow {
            least,
            tell: Arc::new(tell),
        });
        self
    }

    /// Puts layers between the cache and each disk, for tests of a program on a disk that is slow,
    /// fails, fills up or hangs: `slow:rate=16MB,latency=2ms`, `faulty:eio_writes=0.01,seed=7`, or
    /// several with a `+` between them, the first nearest to the cache. [`Cache::release_layers`]
    /// ends what they do.
    ///
    /// | layer | keys |
    /// |---|---|
    /// | `slow` | `rate` bytes a second, `burst` bytes, `latency` time, `depth` number; `then` `RATE@TIME` for each change |
    /// | `faulty` | `seed`; odds from 0 to 1: `eio_reads`, `eio_writes`, `torn_writes`, `flush_fails`, `no_space`, `hang`; which one, from 1: `eio_read_at`, `eio_write_at`, `flush_fail_at`; `eio_range` `FROM..TO` bytes; `full_after` bytes; times: `hang_at`, `hang_for`, `lost_at` |
    /// | `trace` | `records` number |
    ///
    /// ```
    /// # use tidegate::{Cache, OpenOptions};
    /// # let path = std::env::temp_dir().join(format!("tidegate-doc-layers-{}", std::process::id()));
    /// let cache = Cache::builder().memory(64 << 20).layers("faulty:eio_write_at=1")?.build()?;
    /// let file = cache.open(&path, OpenOptions::new().create(true))?;
    /// file.write_at(b"taken in", 0)?;
    /// let error = file.sync().unwrap_err(); // names the file, the offset and the cause
    /// assert!(error.to_string().starts_with(&path.display().to_string()));
    /// # file.sync()?;
    /// # drop(file);
    /// # cache.close()?;
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `BadLayers`: there is no such layer or key, or it is `volatile`, which a cache over files
    /// has no memory for.
    pub fn layers(mut self, layers: &str) -> Result<Self, Error> {
        let refused = |why: String| Error::BadLayers {
            layers: layers.to_owned(),
            why,
        };
        let parsed = Layer::parse_stack(layers);
        self.layers = parsed.map_err(|error| refused(error.to_string()))?;
        if Stack::frames_needed(&self.layers) > 0 {
            let why = "`volatile` needs memory beside the cache; `slow`, `faulty` and `trace` are possible";
            return Err(refused(why.into()));
        }
        Ok(self)
    }

    /// Builds the cache and starts its threads.
    ///
    /// # Errors
    /// `LimitTooSmall`, `LimitTooLarge`, `LimitAboveGroup`, `BadDivision`, `SwapFileTooLarge`,
    /// `BadSize` (of the swap file), `Cache` with `BadOption`, or `System` if the system refuses
    /// memory or threads, or the swap file (its path is taken, or its disk has no space).
    pub fn build(self) -> Result<Cache, Error> {
        let resident = if self.whole_process {
            os::resident_bytes()
        } else {
            0
        };
        let swap = self.swap.as_ref().map_or(0, |(_, bytes)| *bytes);
        let asked = self.devices.map_or(0, budget::of_devices);
        let devices = self.devices.unwrap_or(DEVICES).clamp(1, DEVICES_MAX);
        let others = self.beside.saturating_add(asked);
        let taken = resident.saturating_add(others);
        let frames = budget::frames_beside_swap(self.memory, taken, swap)?;
        let short = os::Available::now().short_of(self.memory.saturating_sub(resident));
        if self.swap.is_some() && !budget::SWAP.contains(&swap) {
            return Err(Error::BadSize {
                what: "swap_file",
                bytes: swap,
                allowed: (*budget::SWAP.start(), *budget::SWAP.end()),
            });
        }
        let waits = Arc::new(Waits::new(self.slow));
        let mut options = os::Options::new(frames);
        options.backend = if self.io_uring {
            os::Backend::Auto
        } else {
            os::Backend::Pool
        };
        // The kernel's memory for it is not in the limit.
        options.register = devices <= DEVICES;
        options.sink = Some(waits.sink());
        options.dumped = self.dumped;
        options.maps = self.maps;
        let cpus = u32::try_from(os::cpus()).expect("a machine has fewer CPUs");
        let mut placement = Placement::new(self.nodes, frames, options.chunk_frames, cpus)?;
        options.binding = placement.binding.clone();
        let env = os::ThreadEnv::start(options)?;
        if let Some(errno) = env.unbound() {
            placement = Placement::one(OneNode::Refused { errno });
        }
        let mut options = mm::Options::new(frames, cpus);
        options.machine = placement.machine.clone();
        options.reclaim = ReclaimTunables {
            swappiness: self.swappiness,
            ..ReclaimTunables::of(self.reclaim, options.reclaim.hz)
        };
        options.page_rule = self.page_rule;
        options.devices_max = devices;
        options.dirty.law = self.law;
        options.dirty.dirty = self.dirty;
        options.dirty.background = self.background;
        options.tells_in_batches = true;
        options.spares_flusher = true;
        if let Some(bytes) = self.readahead {
            options.readahead_max = Pages(bytes >> 12);
        }
        options.populate = if self.prefault {
            Populate::AtStart
        } else {
            Populate::AsUsed
        };
        let device = DeviceOptions {
            tunables: self.tunables,
            on_error: self.on_error,
            ..DeviceOptions::default()
        };
        let cache = Cache::new(
            env,
            options,
            (device, self.layers),
            waits,
            (self.memory, self.beside),
            placement,
            (self.follow_group, short),
        )?;
        if let Some((path, bytes)) = &self.swap {
            cache.add_swap_file(path, *bytes)?;
        }
        Ok(cache)
    }
}
