//! Random writers and readers, as fio has them.
//!
//! A writer goes round its files, one block each (`file_service_type=roundrobin`), and writes every
//! block of a file once, in random order, before it writes one again (fio's random map). A reader
//! stays with a file for some blocks before it goes on to the next.
//!
//! Source: experiments B1; defaults of fio.

use std::sync::Arc;

use env::Task;
use mm::{Cache, File};
use policy::units::{Bytes, Nanos};

use crate::dd::{Run, buffer};
use crate::{Failure, Report, grow};

/// One random writer (a job of fio) over its own files.
#[derive(Clone, Copy, Debug)]
pub struct RandWrite {
    /// Bytes of one write call.
    pub block: Bytes,
    /// Bytes of each file: whole blocks of it are written.
    pub size: Bytes,
    /// Ends this long after it began.
    pub for_at_most: Option<Nanos>,
}

impl RandWrite {
    /// That of stutterp: blocks of 1 MiB.
    #[must_use]
    pub const fn stutterp(size: Bytes) -> Self {
        Self {
            block: Bytes(1 << 20),
            size,
            for_at_most: None,
        }
    }
}

/// One random reader over its files.
#[derive(Clone, Copy, Debug)]
pub struct RandRead {
    /// Bytes of one read call.
    pub block: Bytes,
    /// Calls before it goes on to the next file.
    pub switch_every: u32,
    /// Ends this long after it began.
    pub for_at_most: Option<Nanos>,
}

/// Blocks of a file that were not written in this round, one bit each.
struct Unwritten {
    blocks: u64,
    left: u64,
    bits: Vec<u64>,
}

impl Unwritten {
    /// # Panics
    /// If the blocks do not fit the address space: the plan is wrong.
    fn of(blocks: u64) -> Self {
        let words = usize::try_from(blocks.div_ceil(64)).expect("a file's blocks can be counted");
        let mut all = Self {
            blocks,
            left: 0,
            bits: vec![0; words],
        };
        all.refill();
        all
    }

    fn refill(&mut self) {
        self.left = self.blocks;
        self.bits.fill(u64::MAX);
        if let Some(last) = self.bits.last_mut()
            && !self.blocks.is_multiple_of(64)
        {
            *last = (1 << (self.blocks % 64)) - 1;
        }
    }

    /// Takes the first block that is left from a random place on.
    fn take(&mut self, random: u64) -> u64 {
        if self.left == 0 {
            self.refill();
        }
        let start = random % self.blocks;
        let words = self.bits.len();
        let at = |index: u64| usize::try_from(index / 64).unwrap_or(usize::MAX);
        let behind = u64::MAX << (start % 64);
        let first = at(start);
        // The word of the start is looked at twice: behind the start, and at the end all of it.
        let found = (0..=words).find_map(|step| {
            let word = (first + step) % words;
            let bits = self.bits[word] & if step == 0 { behind } else { u64::MAX };
            (bits != 0).then(|| (word, bits.trailing_zeros()))
        });
        let (word, bit) = found.expect("some are left");
        self.bits[word] &= !(1 << bit);
        self.left -= 1;
        word as u64 * 64 + u64::from(bit)
    }
}

/// Writes blocks at random until it is stopped.
pub fn rand_write(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    files: &[Arc<File>],
    options: &RandWrite,
    run: &Run<'_>,
) -> Report {
    run.writes(task, cache, |task, writer, report| {
        let until = options.for_at_most.map(|limit| report.began + limit);
        let block = buffer(task, options.block);
        let blocks = options.size.0 / options.block.0;
        if blocks == 0 || files.is_empty() {
            return Err(Failure::ShortRead { at: options.size });
        }
        for file in files {
            grow(task, file, options.size)?;
        }
        let mut unwritten: Vec<_> = files.iter().map(|_| Unwritten::of(blocks)).collect();
        for (file, turn) in (0..files.len()).cycle().zip(0_u64..) {
            if run.stop.is_raised() {
                return Ok(false);
            }
            if until.is_some_and(|until| task.now() >= until) {
                break;
            }
            if file == 0 && turn > 0 && turn % (files.len() as u64 * blocks) == 0 {
                report.passes += 1;
            }
            let index = unwritten[file].take(task.random());
            let called = task.now();
            let at = Bytes(index * options.block.0);
            let wrote = files[file].write(task, writer, at, &block)?;
            report.moved(called, task.now(), run.origin, wrote);
        }
        Ok(true)
    })
}

/// Reads blocks at random until it is stopped.
pub fn rand_read(
    task: &mut Task<'_>,
    files: &[Arc<File>],
    options: &RandRead,
    run: &Run<'_>,
) -> Report {
    run.reports(task, |task, report| {
        let until = options.for_at_most.map(|limit| report.began + limit);
        let mut block = buffer(task, options.block);
        let mut readers: Vec<_> = files.iter().map(|_| mm::Reader::default()).collect();
        for file in (0..files.len()).cycle() {
            let blocks = files[file].len().0 / options.block.0;
            if blocks == 0 {
                return Err(Failure::ShortRead {
                    at: files[file].len(),
                });
            }
            for _ in 0..options.switch_every.max(1) {
                if run.stop.is_raised() {
                    return Ok(false);
                }
                if until.is_some_and(|until| task.now() >= until) {
                    return Ok(true);
                }
                let index = task.random() % blocks;
                let called = task.now();
                let at = Bytes(index * options.block.0);
                let got = files[file].read(task, &mut readers[file], at, &mut block)?;
                report.moved(called, task.now(), run.origin, got.bytes);
            }
        }
        Err(Failure::ShortRead { at: Bytes::ZERO })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_taken_once_before_any_is_taken_again() {
        for blocks in [1, 3, 64, 65, 200] {
            let mut unwritten = Unwritten::of(blocks);
            let mut random = 7_u64;
            for _ in 0..2 {
                let mut taken: Vec<_> = (0..blocks)
                    .map(|_| {
                        random = random
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1);
                        unwritten.take(random >> 33)
                    })
                    .collect();
                taken.sort_unstable();
                assert_eq!(taken, (0..blocks).collect::<Vec<_>>(), "{blocks} blocks");
            }
        }
    }

    #[test]
    fn a_block_behind_the_end_is_taken_from_the_front() {
        let mut unwritten = Unwritten::of(70);
        assert_eq!(unwritten.take(69), 69);
        assert_eq!(unwritten.take(69), 0);
        assert_eq!(unwritten.take(70 + 5), 5);
    }
}
