//! A program touches as much memory as there is while one copy streams from a disk and another goes
//! to a USB stick: mmtests' `thpavail`, the `writebackCP` tests of paper p4.
//!
//! One conductor and three roles, a task each:
//!
//! ```text
//!   conductor  settle | start ......... free <= 1/6 | 2 s |            stop | settle | ...
//!   reader            |=== reads, from the front again ===================|
//!   writer            |=== writes zeroes, from the front again ===========|
//!   alloc                                                 |== touches ==|
//! ```
//!
//! *Settle*: sync, drop the caches, and again as long as more than 4 MiB are dirty. Iterations
//! share one world: what the one leaves in the kernel, the next one finds. `alloc` touches a byte
//! of each page, once; its time is what is measured.
//!
//! The end of the copy's file when an iteration ends is not published (`FileEnds`).
//!
//! Source: experiments A5, B4.

use std::sync::Arc;

use env::{Event, JoinHandle, Task};
use mm::{Cache, File, Vmstat};
use policy::units::{Bytes, Instant, Nanos, Pages};

use crate::dd::{Dd, Run, SyncAfter, dd};
use crate::hog::{count_of, touch_whole};
use crate::read::{Pattern, Reader, reader};
use crate::{Failure, Iteration, Report, Stop};

/// The conductor looks at the free memory so often, and at what is dirty.
const LOOK: Nanos = Nanos::secs(1);
/// It gives the copies so long before it starts `alloc`.
const BEFORE_ALLOC: Nanos = Nanos::secs(2);
/// `alloc` is started when this part of the memory is free, or less.
const FREE_PART: u64 = 6;
/// A file is removed in this many cuts.
const CUTS: u64 = 64;
/// Looks for that at most: copies that fill no memory in an hour never do.
const LOOKS_MAX: u32 = 3600;

/// Names of two levels, which a cache has that makes huge pages.
const FREE_RUNS: &str = "nr_free_runs";
const HUGE: &str = "nr_anon_huge";

/// The fate of the file that was written to the stick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileEnds {
    /// It is removed with its iteration: its dirty pages are thrown away.
    Removed,
    /// It stays, and is written out before the next iteration begins.
    Synced,
}

/// The test.
#[derive(Clone, Copy, Debug)]
pub struct Thpavail {
    /// Number of times that `alloc` is run.
    pub iterations: u32,
    /// Memory that `alloc` touches: all there is.
    pub pages: Pages,
    /// Pages that it touches between two looks whether it is to stop: a huge page.
    pub stride: u32,
    /// Bytes of one call of both copies.
    pub block: Bytes,
    /// Bytes of the file on the stick; the copy to it then begins again.
    pub target: Bytes,
    /// No more than this many pages are dirty when an iteration begins.
    pub settled: Pages,
    /// The fate of that file.
    pub file_ends: FileEnds,
}

/// Runs the test: reads `source`, writes `target`.
pub fn thpavail(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    (source, target): (&Arc<File>, &Arc<File>),
    options: &Thpavail,
    run: &Run<'_>,
) -> Report {
    run.reports(task, |task, report| {
        let conductor = Conductor {
            cache,
            source,
            target,
            options,
            run,
        };
        conductor.all(task, report)
    })
}

struct Conductor<'a> {
    cache: &'a Arc<Cache>,
    source: &'a Arc<File>,
    target: &'a Arc<File>,
    options: &'a Thpavail,
    run: &'a Run<'a>,
}

impl Conductor<'_> {
    fn all(&self, task: &mut Task<'_>, report: &mut Report) -> Result<bool, Failure> {
        for number in 0..self.options.iterations {
            if !self.settle(task)? {
                return Ok(false);
            }
            if !self.iteration(task, number, report)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Nothing clean is cached, and little is dirty.
    fn settle(&self, task: &mut Task<'_>) -> Result<bool, Failure> {
        self.cache.sync(task)?;
        self.cache.drop_caches(task);
        loop {
            if self.run.stop.is_raised() {
                return Ok(false);
            }
            self.cache.sync(task)?;
            if self.cache.stats().dirty <= self.options.settled {
                return Ok(true);
            }
            self.run.stop.rest(task, LOOK)?;
        }
    }

    fn iteration(
        &self,
        task: &mut Task<'_>,
        number: u32,
        report: &mut Report,
    ) -> Result<bool, Failure> {
        let stop = self.run.stop.of_one_run();
        let mut this = Iteration {
            alloc: format!("alloc-{}", number + 1),
            began: task.now().since(self.run.origin),
            ..Iteration::default()
        };
        let reading = self.read(task, number, &stop);
        let writing = self.write(task, number, &stop);
        let filled = self.fill(task);
        let touched = match filled {
            Ok(true) => self.alloc(task, &mut this),
            Ok(false) => Ok(None),
            Err(failure) => Err(failure),
        };
        stop.raise();
        let (reads, writes) = (join(task, reading), join(task, writing));
        let touched = touched?;
        let (reads, writes) = (reads?, writes?);
        report.bytes += writes.bytes;
        this.read = reads.bytes;
        for call in [&reads, &writes] {
            report.latencies.merge(&call.latencies);
        }
        if self.options.file_ends == FileEnds::Removed {
            self.remove(task)?;
        }
        let Some(touched) = touched else {
            return Ok(false);
        };
        report.touched += touched.touched;
        report.faults += touched.faults;
        report.major += touched.major;
        report.far += touched.far;
        report.passes += 1;
        report.measured(task.now(), self.run.origin, this.took);
        report.moving = task.now().since(report.began);
        report.iterations.push(this);
        Ok(true)
    }

    /// Throws away what the copy wrote, from its end: a cut waits for what is being written, and
    /// the flusher comes from the beginning and would be ahead of it all the way.
    fn remove(&self, task: &mut Task<'_>) -> Result<(), Failure> {
        let step = Bytes(self.target.len().0.div_ceil(CUTS))
            .pages_ceil()
            .at_least(Pages(1))
            .bytes();
        while !self.target.is_empty() {
            let left = Bytes(self.target.len().0.saturating_sub(step.0));
            self.target.truncate(task, left)?;
        }
        Ok(())
    }

    /// Waits until little is free, then a little more. False: it is to stop.
    fn fill(&self, task: &mut Task<'_>) -> Result<bool, Failure> {
        let few = Pages(self.cache.stats().frames.0 / FREE_PART);
        for _ in 0..LOOKS_MAX {
            self.run.stop.rest(task, LOOK)?;
            if self.run.stop.is_raised() {
                return Ok(false);
            }
            if self.cache.stats().free <= few {
                self.run.stop.rest(task, BEFORE_ALLOC)?;
                return Ok(true);
            }
        }
        Err(Failure::NeverFull {
            free: self.cache.stats().free,
        })
    }

    /// Runs `alloc`, timed; nothing if it was stopped.
    fn alloc(&self, task: &mut Task<'_>, this: &mut Iteration) -> Result<Option<Report>, Failure> {
        let before = self.cache.vmstat();
        let stats = self.cache.stats();
        this.free = stats.free;
        this.dirty = stats.dirty + stats.writeback;
        this.runs_free = level(&before, FREE_RUNS);
        let began = task.now();
        this.alloc_began = began.since(self.run.origin);
        let touching = self.touch(task, &this.alloc, began);
        let (report, after, huge) = match touching.join(task) {
            Some(ended) => ended,
            None => return Err(Failure::CANCELLED),
        };
        if let Some(failure) = report.failure {
            return Err(failure);
        }
        this.took = report.elapsed;
        this.huge = huge;
        this.counters = changes(&before, &after);
        Ok(report.complete.then_some(report))
    }

    fn touch(
        &self,
        task: &Task<'_>,
        name: &str,
        began: Instant,
    ) -> JoinHandle<(Report, Vmstat, u64)> {
        let (cache, stop) = (Arc::clone(self.cache), self.run.stop.clone());
        let (options, name) = (*self.options, name.to_owned());
        env::spawn(task.env(), &name.clone(), move |task| {
            let mut report = Report::begin(&name, task.id(), began);
            let mut ended = (cache.vmstat(), 0);
            let outcome = touch_all(task, &cache, &options, &stop, &mut report, &mut ended);
            (report.end(task.now(), outcome), ended.0, ended.1)
        })
    }

    fn read(&self, task: &Task<'_>, number: u32, stop: &Stop) -> JoinHandle<Report> {
        let options = Reader {
            block: self.options.block,
            bytes: Bytes::MAX,
            pattern: Pattern::Sequential,
            think: Nanos::ZERO,
            for_at_most: None,
        };
        let (file, stop, origin) = (Arc::clone(self.source), stop.clone(), self.run.origin);
        let name = format!("reader-{}", number + 1);
        env::spawn(task.env(), &name.clone(), move |task| {
            let run = Run {
                name: &name,
                origin,
                stop: &stop,
            };
            reader(task, &file, &options, &run)
        })
    }

    fn write(&self, task: &Task<'_>, number: u32, stop: &Stop) -> JoinHandle<Report> {
        let options = Dd {
            block: self.options.block,
            offset: Bytes::ZERO,
            bytes: self.options.target,
            for_at_most: None,
            rest: Nanos::ZERO,
            sync: SyncAfter::Nothing,
        };
        let (cache, file) = (Arc::clone(self.cache), Arc::clone(self.target));
        let (stop, origin) = (stop.clone(), self.run.origin);
        let name = format!("writer-{}", number + 1);
        env::spawn(task.env(), &name.clone(), move |task| {
            let run = Run {
                name: &name,
                origin,
                stop: &stop,
            };
            let mut all = Report::begin(&name, task.id(), task.now());
            loop {
                let once = dd(task, &cache, &file, &options, &run);
                all.bytes += once.bytes;
                all.latencies.merge(&once.latencies);
                if once.failure.is_some() || stop.is_raised() {
                    let outcome = once.failure.map_or(Ok(false), Err);
                    return all.end(task.now(), outcome);
                }
            }
        })
    }
}

/// Touches all of the memory once. `ended`: the counters at its end, and how much of it was huge.
fn touch_all(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    options: &Thpavail,
    stop: &Stop,
    report: &mut Report,
    ended: &mut (Vmstat, u64),
) -> Result<bool, Failure> {
    let region = cache.spill(task, options.pages)?;
    let pages = count_of(options.pages);
    if !touch_whole(task, &region, (pages, options.stride), stop, report)? {
        return Ok(false);
    }
    let took = task.now().since(report.began);
    task.emit(&Event::Sampled {
        pages: options.pages,
        took,
    });
    let after = cache.vmstat();
    let huge = huge_pages(&after);
    *ended = (after, huge);
    Ok(true)
}

fn join(task: &mut Task<'_>, copy: JoinHandle<Report>) -> Result<Report, Failure> {
    let report = copy.join(task).ok_or(Failure::CANCELLED)?;
    match report.failure {
        Some(failure) => Err(failure),
        None => Ok(report),
    }
}

fn level(reading: &Vmstat, name: &str) -> u64 {
    let found = reading.entries().find(|(known, _)| *known == name);
    found.map_or(0, |(_, value)| value)
}

/// Huge pages of anonymous memory in a reading.
pub(crate) fn huge_pages(reading: &Vmstat) -> u64 {
    level(reading, HUGE)
}

/// Counters that are larger after than before.
pub(crate) fn changes(before: &Vmstat, after: &Vmstat) -> Vec<(&'static str, u64)> {
    let pairs = before.entries().zip(after.entries());
    pairs
        .map(|((name, before), (_, after))| (name, after.saturating_sub(before)))
        .filter(|(_, by)| *by > 0)
        .collect()
}
