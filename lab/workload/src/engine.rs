//! A storage engine that changes pages in place and keeps a log: transactions, commits,
//! checkpoints.
//!
//! ```text
//!   transaction: pages in place, a record to the log ... every so many: the log durable up to here
//!                                                        (one task writes and syncs it)
//!   beside that: a sync of the pages every so often, a checkpoint
//! ```
//!
//! The order of pages and log is kept by the cache, or by the engine: it has the pages in memory of
//! its own until the log is durable, or makes the log durable before each of them.
//!
//! Source: docs/adr/0032; C. Mohan et al., "ARIES", TODS 17(1), 1992.

use std::sync::{Arc, Weak};

use env::{Cause, Signal, Task, WaitQueue, Wakeup};
use frames::Buffer;
use frames::sync::{AtomicBool, AtomicU64, Ordering};
use mm::{Cache, Error, File, WriteAhead};
use policy::units::{Bytes, Nanos, PAGE_SIZE};

use crate::dd::{Run, buffer};
use crate::syncer::Syncer;
use crate::{Failure, Report, grow};

/// Largest write of the log.
const LOG_WRITE: u64 = 64 << 10;

/// The keeper of the order of an engine's pages and its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The cache: pages are written with a number of the log (`File::write_logged`).
    Cache,
    /// The engine, by memory of its own: the pages of a commit are written when it is durable.
    Memory,
    /// The engine, page by page: the log is made durable, then the page is written.
    Page,
}

/// One engine.
#[derive(Clone, Copy, Debug)]
pub struct Engine {
    /// Bytes of the file of pages, and of the log, which goes round.
    pub size: Bytes,
    /// Pages that a transaction changes.
    pub pages: u32,
    /// Bytes of its record: whole sectors.
    pub record: Bytes,
    /// Transactions of a commit.
    pub commit_every: u32,
    /// Time between two checkpoints.
    pub checkpoint: Nanos,
    /// See there.
    pub order: Order,
    /// Ends this long after it began.
    pub for_at_most: Option<Nanos>,
}

/// Runs transactions on `pages`. A call of the report is a commit with its transactions, and the
/// bytes of their pages; all bytes are those of the log as well.
pub fn engine(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    (pages, log): (&Arc<File>, &Arc<File>),
    options: &Engine,
    run: &Run<'_>,
) -> Report {
    let mut report = Report::begin(run.name, task.id(), task.now());
    let log = Log::new(log, options);
    let own = Arc::clone(&log);
    let writes_log = cache.writer();
    let keeper = env::spawn(task.env(), &format!("{}-log", run.name), {
        let cache = Arc::clone(cache);
        move |task| own.keep(task, &cache, writes_log)
    });
    let name = format!("{}-checkpoints", run.name);
    let checkpoints = Syncer::start(task, &name, pages, options.checkpoint);
    let mut writer = cache.writer();
    let outcome = grow(task, pages, options.size)
        .and_then(|()| Ok(pages.follow(task, &log.ahead)?))
        .and_then(|()| transactions(task, (pages, &log), options, run, &mut writer, &mut report));
    cache.retire(task, writer);
    // The checkpoint under way may need the log.
    let ended = checkpoints.end(task);
    log.done.store(true, Ordering::Release);
    log.shared.queue.wake_all(Signal::Other);
    let kept = keeper.join(task).unwrap_or(Err(Error::Cancelled));
    report.passed_over = log.ahead.passed_over();
    report.bytes += Bytes(log.written.load(Ordering::Acquire));
    let outcome = outcome.and_then(|complete| ended.and(Ok(kept?)).map(|()| complete));
    report.end(task.now(), outcome)
}

fn transactions(
    task: &mut Task<'_>,
    (file, log): (&Arc<File>, &Log),
    options: &Engine,
    run: &Run<'_>,
    writer: &mut mm::Writer,
    report: &mut Report,
) -> Result<bool, Failure> {
    let until = options.for_at_most.map(|limit| report.began + limit);
    let page = buffer(task, Bytes(PAGE_SIZE));
    let all = options.size.0 / PAGE_SIZE;
    let mut kept = Vec::new();
    while until.is_none_or(|until| task.now() < until) {
        let called = task.now();
        let mut moved = Bytes::ZERO;
        let mut lsn = 0;
        for _ in 0..options.commit_every {
            if run.stop.is_raised() {
                return Ok(false);
            }
            lsn = log.append(options.record);
            for _ in 0..options.pages {
                let at = Bytes(task.random() % all * PAGE_SIZE);
                moved += Bytes(PAGE_SIZE);
                match options.order {
                    Order::Cache => {
                        file.write_logged(task, writer, at, &page, lsn)
                            .map_err(|(_, error)| error)?;
                    }
                    Order::Memory => kept.push(at),
                    Order::Page => {
                        log.commit(task, lsn)?;
                        file.write(task, writer, at, &page)?;
                    }
                }
            }
        }
        log.commit(task, lsn)?;
        for at in kept.drain(..) {
            file.write(task, writer, at, &page)?;
        }
        report.moved(called, task.now(), run.origin, moved);
    }
    Ok(true)
}

struct Log {
    ahead: Arc<WriteAhead>,
    shared: Arc<Asked>,
    file: Arc<File>,
    space: u64,
    end: AtomicU64,
    written: AtomicU64,
    done: AtomicBool,
}

/// The place up to which the log is wanted.
#[derive(Default)]
struct Asked {
    wanted: AtomicU64,
    queue: WaitQueue,
}

impl Log {
    fn new(file: &Arc<File>, options: &Engine) -> Arc<Self> {
        let shared = Arc::<Asked>::default();
        let asked: Weak<Asked> = Arc::downgrade(&shared);
        let ahead = WriteAhead::new(move |lsn| {
            if let Some(asked) = asked.upgrade() {
                asked.want(lsn);
            }
        });
        Arc::new(Self {
            ahead: Arc::new(ahead),
            shared,
            file: Arc::clone(file),
            space: options.size.0,
            end: AtomicU64::new(0),
            written: AtomicU64::new(0),
            done: AtomicBool::new(false),
        })
    }

    /// Answers the number of a record: where the log ends with it.
    fn append(&self, record: Bytes) -> u64 {
        self.end.fetch_add(record.0, Ordering::AcqRel) + record.0
    }

    fn commit(&self, task: &mut Task<'_>, lsn: u64) -> Result<(), Failure> {
        self.shared.want(lsn);
        let queue = &self.shared.queue;
        let wakeup = task.wait_while(queue, Cause::LogDurable, None, |_| {
            self.ahead.durable_lsn() < lsn && !self.done.load(Ordering::Acquire)
        });
        Failure::after(wakeup)?;
        let durable = self.ahead.durable_lsn();
        if durable < lsn {
            return Err(Error::LogEnded { lsn, durable }.into());
        }
        Ok(())
    }

    /// The life of the task that writes the log.
    fn keep(
        &self,
        task: &mut Task<'_>,
        cache: &Arc<Cache>,
        mut writer: mm::Writer,
    ) -> Result<(), Error> {
        let block = buffer(task, Bytes(LOG_WRITE));
        let kept = self.write_on(task, &mut writer, &block);
        if kept.is_err() {
            self.done.store(true, Ordering::Release);
            self.ahead.end();
            self.shared.queue.wake_all(Signal::LogDurable);
        }
        cache.retire(task, writer);
        kept
    }

    fn write_on(
        &self,
        task: &mut Task<'_>,
        writer: &mut mm::Writer,
        block: &Buffer,
    ) -> Result<(), Error> {
        let mut durable = 0;
        loop {
            let wakeup = task.wait_while(&self.shared.queue, Cause::Idle, None, |_| {
                self.shared.wanted.load(Ordering::Acquire) <= durable
                    && !self.done.load(Ordering::Acquire)
            });
            if wakeup == Wakeup::Cancelled {
                return Err(Error::Cancelled);
            }
            if self.done.load(Ordering::Acquire) {
                return Ok(());
            }
            // With all that was appended meanwhile.
            let end = self.end.load(Ordering::Acquire);
            while durable < end {
                let at = durable % self.space;
                let len = (end - durable).min(LOG_WRITE).min(self.space - at);
                let part = if len == LOG_WRITE {
                    block
                } else {
                    &buffer(task, Bytes(len))
                };
                durable += self.file.write(task, writer, Bytes(at), part)?.0;
                self.written.store(durable, Ordering::Release);
            }
            self.file.sync(task)?;
            self.ahead.durable(durable);
            self.shared.queue.wake_all(Signal::LogDurable);
        }
    }
}

impl Asked {
    fn want(&self, lsn: u64) {
        if self.wanted.fetch_max(lsn, Ordering::AcqRel) < lsn {
            self.queue.wake_all(Signal::Other);
        }
    }
}
