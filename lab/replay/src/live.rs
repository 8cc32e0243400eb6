//! A trace under a preset of ours: `mm` itself, in a lab, on a device that takes no time, or the
//! time that it is told to.
//!
//! Nothing of the rule is written twice: a read that hits is `File::try_pin`, one that misses
//! `File::pin` or, with read-ahead, `File::show`; a write is `File::write`. On a device that takes
//! no time a miss takes 10 us, so that the background reclaimer gets its turn.
//!
//! Invariants
//!   1. As many pages are cached as another rule has of memory: what the marks keep free comes on
//!      top.
//!   2. Pages that lie together in the trace lie together in the file; gaps shrink to what no
//!      read-ahead bridges.

use core::fmt;
use std::sync::Arc;

use device::{Layer, Stack};
use env::{Device, DeviceInfo, Interrupt, IoRequest, Task, Work};
use experiment::presets::Preset;
use mm::{Cache, DeviceOptions, File, Options, Reader};
use policy::rule::RuleMaker;
use policy::units::{Bytes, Nanos, PAGE_SIZE, Pages};
use world::{Lab, Options as LabOptions, Sector};

use crate::run::{Counts, STEP, Times};
use crate::trace::Trace;

/// The cost of a miss, in nanoseconds.
const MISS: u64 = 10_000;
/// Frames below which `mm` builds no cache.
const FRAMES_LEAST: u32 = 256;
/// Accesses between two looks at how much is cached.
const LOOK: usize = 256;

/// A preset cannot be replayed like that.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// Fewer frames than a cache needs.
    #[error("needs at least {least} pages")]
    Small {
        /// Frames that it needs.
        least: u64,
    },
    /// The cache, or the lab, failed.
    #[error("failed: {0}")]
    Failed(String),
}

fn failed(error: impl fmt::Display) -> LiveError {
    LiveError::Failed(error.to_string())
}

/// Completes everything at once.
struct Instantly;

impl Device for Instantly {
    fn submit(&self, request: Box<IoRequest>) {
        request.complete(&Interrupt::new(), Ok(()));
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

/// The setting under which a preset is replayed.
pub(crate) struct Setting {
    pub(crate) preset: Preset,
    /// The page rule, if not the preset's lists.
    pub(crate) rule: Option<RuleMaker>,
    /// Pages that are to be cached.
    pub(crate) pages: u32,
    /// Largest window of read-ahead; none without it.
    pub(crate) readahead: bool,
    /// Layers that make the device take time.
    pub(crate) device: Vec<Layer>,
}

/// Asked now and then with the accesses done since; no: it is to end.
pub(crate) type GoesOn = Arc<dyn Fn(usize) -> bool + Send + Sync>;

/// Replays a trace. `None`: it was told to end.
pub(crate) fn replay(
    trace: &Arc<Trace>,
    setting: &Setting,
    goes_on: GoesOn,
) -> Result<Option<Counts>, LiveError> {
    let options = options(setting)?;
    let mut lab = Lab::new(LabOptions {
        frames: options.frames,
        ..LabOptions::default()
    });
    lab.set_quiet(true);
    lab.set_step_limit(u64::MAX);
    let stack = Stack::new(&setting.device, Arc::new(Instantly), &lab.host(), None);
    let on = stack.map_err(failed)?.device;
    let (info, is_timed) = (on.info(), !setting.device.is_empty());
    let device = lab.add_device(on);
    let (env, trace) = (Arc::clone(lab.env()), Arc::clone(trace));
    let window = options.readahead_max;
    lab.run(move |task| {
        let cache = kernel::build(env, options, kernel::Parts::default())?;
        let index = cache.add_device(task, device, info, DeviceOptions::default())?;
        let places = places(&trace, window);
        let pages = places.last().map_or(0, |last| u64::from(*last) + 1);
        let len = Bytes(pages * PAGE_SIZE);
        let file = cache.open(task, index, env::ObjectId(0), len)?;
        let mut player = Player {
            cache: &cache,
            file: &file,
            places: &places,
            reader: Reader::default(),
            data: vec![Sector::default(); world::SECTORS_PER_FRAME].into(),
            readahead: window > Pages(1),
            times: is_timed.then(Times::default),
        };
        let counts = player.play(task, &trace, &goes_on)?;
        cache.shutdown(task)?;
        Ok(counts)
    })
    .map_err(failed)?
    .map_err(|error: mm::Error| failed(error))
}

/// A cache of which about as many pages are cached as are asked for: it is filled up to between two
/// of its marks.
fn options(setting: &Setting) -> Result<Options, LiveError> {
    let Setting { preset, pages, .. } = setting;
    let kept_free = |frames: u32| {
        let marks = (preset.laws.reclaim.law.marks)(Pages(u64::from(frames)));
        u32::try_from(marks.low.0.midpoint(marks.high.0)).unwrap_or(u32::MAX)
    };
    let mut frames = *pages;
    for _ in 0..4 {
        frames = pages.saturating_add(kept_free(frames));
    }
    if frames < FRAMES_LEAST {
        let least = u64::from(FRAMES_LEAST - kept_free(FRAMES_LEAST));
        return Err(LiveError::Small { least });
    }
    let mut options = Options::new(frames, 1);
    let laws = &preset.laws;
    options.dirty = laws.dirty;
    options.dirty.memory = Pages(u64::from(frames));
    options.flush = laws.flush;
    options.reclaim = laws.reclaim;
    // A miss without a device takes as long as is convenient.
    options.reclaim.tells_at_once = setting.device.is_empty();
    options.place = laws.place;
    options.page_rule.clone_from(&setting.rule);
    if !setting.readahead {
        options.readahead_max = Pages::ZERO;
    }
    Ok(options)
}

/// By page: where it lies in the file.
fn places(trace: &Trace, window: Pages) -> Vec<u32> {
    let mut place = 0_u32;
    let mut before = trace.addresses().first().copied().unwrap_or(0);
    let step = |address: &u64| {
        let gap = (address - before).min(window.0 + 1);
        before = *address;
        place = place.saturating_add(u32::try_from(gap).unwrap_or(u32::MAX));
        place
    };
    trace.addresses().iter().map(step).collect()
}

/// The one task that makes all accesses.
struct Player<'a> {
    cache: &'a Arc<Cache>,
    file: &'a File,
    places: &'a [u32],
    reader: Reader,
    data: Box<[Sector]>,
    readahead: bool,
    times: Option<Times>,
}

impl Player<'_> {
    fn play(
        &mut self,
        task: &mut Task<'_>,
        trace: &Trace,
        goes_on: &GoesOn,
    ) -> Result<Option<Counts>, mm::Error> {
        let mut counts = Counts::default();
        let mut seen = vec![false; trace.distinct() as usize];
        let mut writer = self.cache.writer();
        let (mut looks, mut cached) = (0, 0);
        for (at, (page, write)) in trace.accesses().enumerate() {
            if at % STEP == 0 && !goes_on(STEP.min(trace.len() - at)) {
                return Ok(None);
            }
            let place = self.places[page as usize];
            let began = task.now();
            let hit = if write {
                self.write(task, &mut writer, place)?
            } else {
                self.read(task, place)?
            };
            let known = core::mem::replace(&mut seen[page as usize], true);
            if hit {
                counts.hits += 1;
            } else {
                counts.refaults += u64::from(known);
                if self.times.is_none() {
                    task.did(Work::User, MISS);
                }
            }
            if let Some(times) = &mut self.times {
                times.note(Nanos(task.now().0 - began.0));
            }
            if at % LOOK == 0 {
                let stats = self.cache.stats();
                if !stats.reclaimed.is_zero() {
                    looks += 1;
                    cached += stats.cached.0;
                }
            }
        }
        self.cache.retire(task, writer);
        let stats = self.cache.stats();
        counts.accesses = trace.len() as u64;
        counts.evicted = stats.reclaimed.0;
        counts.written = stats.written.0;
        counts.read_ahead = stats.read_in.0.saturating_sub(counts.misses());
        counts.times = self.times;
        counts.cached = cached.checked_div(looks).unwrap_or(stats.cached.0);
        Ok(Some(counts))
    }

    /// Answers whether the page was there.
    fn read(&mut self, task: &mut Task<'_>, place: u32) -> Result<bool, mm::Error> {
        if !self.readahead {
            if self.file.try_pin(place).is_some() {
                return Ok(true);
            }
            return self
                .file
                .pin(task, &mut Reader::random(), place)
                .map(|_| false);
        }
        let (offset, len) = (Bytes(u64::from(place) * PAGE_SIZE), Bytes(PAGE_SIZE));
        let hit = self.file.is_cached(offset, len);
        self.file
            .show(task, &mut self.reader, (offset, len), &mut |_, _| {})?;
        Ok(hit)
    }

    fn write(
        &self,
        task: &mut Task<'_>,
        writer: &mut mm::Writer,
        place: u32,
    ) -> Result<bool, mm::Error> {
        let offset = Bytes(u64::from(place) * PAGE_SIZE);
        let hit = self.file.is_cached(offset, Bytes(PAGE_SIZE));
        self.file.write(task, writer, offset, &*self.data)?;
        Ok(hit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Reading;

    #[test]
    fn neighbours_stay_neighbours_and_gaps_are_not_bridged() {
        let trace = Trace::of_reads(&[900, 901, 5000, 1 << 60]);
        assert_eq!(places(&trace, Pages(8)), [0, 1, 10, 19]);
        assert_eq!(places(&trace, Pages::ZERO), [0, 1, 2, 3]);
    }

    /// Of a preset, a trace and a number of pages.
    fn played(preset: &str, trace: Trace, pages: u32, readahead: bool) -> Counts {
        played_on("", preset, trace, (pages, readahead))
    }

    /// The same, on a device with these layers.
    fn played_on(
        layers: &str,
        preset: &str,
        trace: Trace,
        (pages, readahead): (u32, bool),
    ) -> Counts {
        let setting = Setting {
            preset: experiment::presets::by_name(preset).unwrap(),
            rule: None,
            pages,
            readahead,
            device: match layers {
                "" => Vec::new(),
                layers => Layer::parse_stack(layers).unwrap(),
            },
        };
        let counts = replay(&Arc::new(trace), &setting, Arc::new(|_| true));
        counts.unwrap().unwrap()
    }

    #[test]
    fn so_many_pages_are_cached_as_are_asked_for() {
        for preset in ["tidegate", "linux-6.12"] {
            // Twice over 4,000 pages, of which 2,000 have room.
            let pages: Vec<u64> = (0..8000).map(|at| at % 4000).collect();
            let counts = played(preset, Trace::of_reads(&pages), 2000, false);
            assert!(
                (1900..=2100).contains(&counts.cached),
                "{preset} {counts:?}"
            );
            assert_eq!(counts.accesses, 8000);
            assert_eq!(counts.read_ahead, 0);
            assert_eq!(counts.hits + counts.refaults, 4000, "{preset}");
        }
    }

    /// A trace does not say how long misses take, on which depends how old a law's view of the
    /// lists is: without a device passes are told of them as they are.
    #[test]
    fn hits_without_a_device_do_not_hang_on_time() {
        // A hot set beside pages that come once.
        let pages = |at: u64| {
            if at.is_multiple_of(2) {
                at / 2 % 1500
            } else {
                1 << 32 | at
            }
        };
        let trace: Vec<u64> = (0..40_000).map(pages).collect();
        let hits = |preset| played(preset, Trace::of_reads(&trace), 2000, false).hits;
        let (told, true_ones) = (hits("linux-6.12"), hits("linux-5.16-rc1"));
        assert!(told * 100 >= true_ones * 99, "{told} and {true_ones}");
    }

    #[test]
    fn read_ahead_makes_hits_of_a_walk() {
        for preset in ["tidegate", "linux-6.12"] {
            let walk: Vec<u64> = (0..8000).collect();
            let counts = played(preset, Trace::of_reads(&walk), 2000, true);
            assert!(counts.hits > 7000, "{preset} {counts:?}");
            assert_eq!(counts.refaults, 0, "{preset}");
        }
    }

    #[test]
    fn misses_take_the_time_of_their_device_and_long_ones_are_stalls() {
        let pages: Vec<u64> = (0..200).chain(0..200).collect();
        let ms = Nanos::millis(1).0;
        for (layers, latency, stalls) in [
            ("slow:latency=2ms", 2 * ms, 0),
            ("slow:latency=150ms", 150 * ms, 200),
        ] {
            let trace = Trace::of_reads(&pages);
            let counts = played_on(layers, "linux-6.12", trace, (2000, false));
            assert_eq!(counts.hits, 200);
            let times = counts.times.unwrap();
            let all = 200 * latency;
            assert!((all..all + 10 * ms).contains(&times.all.0), "{times:?}");
            assert!(
                (latency..latency + ms).contains(&times.longest.0),
                "{times:?}"
            );
            assert_eq!(times.stalls, stalls);
        }
        let trace = Trace::of_reads(&pages);
        assert_eq!(played("linux-6.12", trace, 2000, false).times, None);
    }

    #[test]
    fn written_pages_come_to_the_device() {
        let text: String = (0..6000).map(|page| format!("{page} w\n")).collect();
        let path = std::env::temp_dir().join(format!("replay-{}.txt", std::process::id()));
        std::fs::write(&path, text).unwrap();
        let trace = Trace::read(&path, &Reading::default(), |_| true).unwrap();
        std::fs::remove_file(&path).unwrap();
        let counts = played("tidegate", trace, 2000, false);
        assert_eq!(counts.hits, 0);
        assert!(counts.written >= 4000, "{counts:?}");
    }
}
