//! A source that comes in over a network, copies of it by `dd`, and their removal: mmtests'
//! `largedd`.
//!
//! Three parts, each with its time in the report: `download` writes the source no faster than it
//! comes in; `copy` writes copies, one after the other, until there are as many bytes as asked for;
//! `delete` removes all files.
//!
//! `dd` by default moves 512 bytes a call. Here a call moves `block`, and the calls that `dd` would
//! have made are charged as `Work::Call`. A kernel notes a page of a sequential read once, whatever
//! the calls; for writes, `Writer::in_calls_of` has the calls. The download's are not known: they
//! count as large ones.
//!
//! Source: experiments A3b.

use std::sync::Arc;

use env::{Cause, Task, Work};
use frames::Buffer;
use mm::Cache;
use policy::units::{Bytes, Instant, Nanos, SECOND};

use crate::dd::{Run, buffer};
use crate::folder::{Folder, Made};
use crate::{Failure, Report};

/// Bytes that `dd` moves in a call if it is not told otherwise.
const DD_BLOCK: Bytes = Bytes(512);
/// Calls on the cache for a block of a copy: it is read, then written.
const CALLS: u64 = 2;

/// One large dd.
#[derive(Clone, Copy, Debug)]
pub struct LargeDd {
    /// Bytes of one call.
    pub block: Bytes,
    /// Bytes of the source.
    pub source: Bytes,
    /// Bytes of the source that come in a second; none: as fast as they can be written.
    pub rate: Option<u64>,
    /// A copy begins as long as source and copies have fewer bytes than that.
    pub total: Bytes,
}

impl LargeDd {
    /// Bytes that all its files have in the end.
    ///
    /// # Panics
    /// If the source is empty: the plan is wrong.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        assert!(!self.source.is_zero(), "a source has bytes");
        let files = self.total.0.div_ceil(self.source.0).max(1);
        Bytes(files * self.source.0)
    }
}

/// Writes a source, copies it and removes all, in files of `folder`.
pub fn large_dd(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    folder: &Folder,
    options: &LargeDd,
    run: &Run<'_>,
) -> Report {
    run.writes(task, cache, |task, writer, report| {
        Large {
            folder,
            options,
            run,
            writer,
            report,
        }
        .all(task)
    })
}

/// The common state of all parts.
struct Large<'a> {
    folder: &'a Folder,
    options: &'a LargeDd,
    run: &'a Run<'a>,
    writer: &'a mut mm::Writer,
    report: &'a mut Report,
}

impl Large<'_> {
    fn all(&mut self, task: &mut Task<'_>) -> Result<bool, Failure> {
        let mut began = task.now();
        let source = self.folder.make(task)?;
        if !self.download(task, &source)? {
            return Ok(false);
        }
        self.part("download", &mut began, task.now());
        self.writer.in_calls_of(DD_BLOCK);
        let mut files = vec![source];
        while self.report.bytes < self.options.total {
            let copy = self.folder.make(task)?;
            let done = self.copy(task, &files[0], &copy)?;
            files.push(copy);
            if !done {
                return Ok(false);
            }
        }
        self.part("copy", &mut began, task.now());
        for made in &files {
            if self.run.stop.is_raised() {
                return Ok(false);
            }
            self.folder.remove(task, made)?;
        }
        self.part("delete", &mut began, task.now());
        Ok(true)
    }

    fn part(&mut self, name: &'static str, began: &mut Instant, now: Instant) {
        self.report.part(name, now.since(*began));
        *began = now;
    }

    /// The blocks of a file, from its beginning: (where, how many bytes).
    fn blocks(&self) -> impl Iterator<Item = (Bytes, Bytes)> + use<> {
        let (block, all) = (self.options.block, self.options.source);
        let count = all.0.div_ceil(block.0);
        (0..count).map(move |at| {
            let from = Bytes(at * block.0);
            (from, (all - from).at_most(block))
        })
    }

    fn download(&mut self, task: &mut Task<'_>, source: &Made) -> Result<bool, Failure> {
        let mut due = task.now();
        let mut block = buffer(task, self.options.block);
        for (at, size) in self.blocks() {
            if self.run.stop.is_raised() {
                return Ok(false);
            }
            if let Some(rate) = self.options.rate {
                // Blocks that the writer could not take when they came, come later: the network
                // keeps nothing.
                due = due.max(task.now()) + Nanos(size.0 * SECOND / rate.max(1));
                Failure::after(task.sleep_until(Cause::Think, due))?;
            }
            if size < self.options.block {
                block = buffer(task, size);
            }
            self.write(task, source, at, &block)?;
        }
        Ok(true)
    }

    fn copy(&mut self, task: &mut Task<'_>, from: &Made, to: &Made) -> Result<bool, Failure> {
        let mut reader = mm::Reader::default();
        let mut block = buffer(task, self.options.block);
        for (at, size) in self.blocks() {
            if self.run.stop.is_raised() {
                return Ok(false);
            }
            if size < self.options.block {
                block = buffer(task, size);
            }
            let got = from.file.read(task, &mut reader, at, &mut block)?.bytes;
            if got < size {
                return Err(Failure::ShortRead { at: at + got });
            }
            self.write(task, to, at, &block)?;
            let calls = CALLS * size.0.div_ceil(DD_BLOCK.0);
            task.did(Work::Call, calls.saturating_sub(CALLS));
        }
        Ok(true)
    }

    fn write(
        &mut self,
        task: &mut Task<'_>,
        to: &Made,
        at: Bytes,
        block: &Buffer,
    ) -> Result<(), Failure> {
        let called = task.now();
        let wrote = to.file.write(task, self.writer, at, block)?;
        let now = task.now();
        self.report.moved(called, now, self.run.origin, wrote);
        Ok(())
    }
}
