//! A volume that is kept in memory alone: its bytes, once.
//!
//! No page of it is in the cache: there is nothing to write back, no writer is paced, and no call
//! waits for more than the copy of another. Its memory is the caller's to count beside the cache's
//! ([`crate::Cache::set_beside`]).
//!
//! ```text
//!   segments: 1 GiB each, made when something is written there
//!      '--> blocks: 64 KiB behind a lock each; none: a hole, which reads as zeroes
//! ```
//!
//! Concurrency: a call locks one block at a time, so that a write of more is seen block by block. A
//! write holds `changes` for reading; a sync that has to know that nobody who has ended still
//! writes takes it alone for a moment.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use env::{Device, DeviceInfo, Interrupt, IoError, IoOp, IoRequest, ObjectId};

use crate::{Backing, Cache, Error, Volume, VolumeOptions};

const BLOCK: usize = 64 << 10;
/// Blocks of a segment.
const SEGMENT: usize = 1 << 14;
/// Segments of the largest volume there can be.
const SEGMENTS: usize = (1 << 44) / (SEGMENT * BLOCK);

type Block = RwLock<Option<Box<[u8]>>>;

/// The bytes of one volume.
pub struct InMemory {
    segments: Box<[OnceLock<Box<[Block]>>]>,
    changes: RwLock<()>,
}

/// A part of a call that lies in one block.
struct Part {
    block: usize,
    /// Of the block, and of the caller's data.
    within: Range<usize>,
    data: Range<usize>,
}

impl Default for InMemory {
    fn default() -> Self {
        Self::new()
    }
}

impl InMemory {
    /// One hole.
    #[must_use]
    pub fn new() -> Self {
        Self {
            segments: (0..SEGMENTS).map(|_| OnceLock::new()).collect(),
            changes: RwLock::new(()),
        }
    }

    /// Bytes that a volume of `size` takes at most.
    #[must_use]
    pub fn bytes(size: u64) -> u64 {
        let tables =
            size.div_ceil((SEGMENT * BLOCK) as u64) * (SEGMENT * size_of::<Block>()) as u64;
        size.next_multiple_of(BLOCK as u64)
            + tables
            + (SEGMENTS * size_of::<OnceLock<Box<[Block]>>>()) as u64
    }

    /// The extent at `offset`: the bytes from there, at most `len`, that are kept alike, and true
    /// if they are a hole.
    #[must_use]
    pub fn extent(&self, offset: u64, len: u64) -> (u64, bool) {
        let mut same = None;
        let mut until = 0;
        for part in parts(offset, len) {
            let is_hole = self
                .block(part.block)
                .is_none_or(|block| shared(block).is_none());
            if *same.get_or_insert(is_hole) != is_hole {
                break;
            }
            until = part.data.end as u64;
        }
        (until, same.unwrap_or(true))
    }

    pub(crate) fn read(&self, data: &mut [u8], offset: u64) {
        for part in parts(offset, data.len() as u64) {
            let data = &mut data[part.data];
            match self.block(part.block).map(shared).as_deref() {
                Some(Some(bytes)) => data.copy_from_slice(&bytes[part.within]),
                Some(None) | None => data.fill(0),
            }
        }
    }

    pub(crate) fn write(&self, data: &[u8], offset: u64) {
        for part in parts(offset, data.len() as u64) {
            let mut block = alone(self.made(part.block));
            let data = &data[part.data];
            match &mut *block {
                Some(bytes) => bytes[part.within].copy_from_slice(data),
                None if data.len() == BLOCK => *block = Some(data.into()),
                None => empty(&mut block)[part.within].copy_from_slice(data),
            }
        }
    }

    /// Takes in what a socket has for the first block of a range; never waits for the socket.
    pub(crate) fn receive(
        &self,
        socket: BorrowedFd<'_>,
        offset: u64,
        len: u64,
    ) -> io::Result<usize> {
        let Some(part) = parts(offset, len).next() else {
            return Ok(0);
        };
        let mut block = alone(self.made(part.block));
        let was_hole = block.is_none();
        let bytes = empty(&mut block);
        let received = os::receive_into(socket, &mut bytes[part.within]);
        if was_hole && !received.as_ref().is_ok_and(|bytes| *bytes > 0) {
            *block = None;
        }
        received
    }

    /// Makes a range a hole, or zeroes where a block is kept for other bytes.
    pub(crate) fn punch(&self, offset: u64, len: u64) {
        for part in parts(offset, len) {
            let Some(block) = self.block(part.block) else {
                continue;
            };
            let mut block = alone(block);
            if part.within.len() == BLOCK {
                *block = None;
            } else if let Some(bytes) = &mut *block {
                bytes[part.within].fill(0);
            }
        }
    }

    /// Gives everything back.
    pub(crate) fn clear(&self) {
        let blocks = self.segments.iter().filter_map(OnceLock::get).flatten();
        blocks.for_each(|block| *alone(block) = None);
    }

    /// The right to change it, for a task that has looked at whether that is still wanted since.
    pub(crate) fn change(&self) -> RwLockReadGuard<'_, ()> {
        self.changes.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the changes that are under way have been made.
    pub(crate) fn settle(&self) {
        drop(self.changes.write().unwrap_or_else(PoisonError::into_inner));
    }

    fn block(&self, number: usize) -> Option<&Block> {
        Some(&self.segments[number / SEGMENT].get()?[number % SEGMENT])
    }

    fn made(&self, number: usize) -> &Block {
        let segment = self.segments[number / SEGMENT]
            .get_or_init(|| (0..SEGMENT).map(|_| Block::default()).collect());
        &segment[number % SEGMENT]
    }
}

fn shared(block: &Block) -> RwLockReadGuard<'_, Option<Box<[u8]>>> {
    block.read().unwrap_or_else(PoisonError::into_inner)
}

fn alone(block: &Block) -> std::sync::RwLockWriteGuard<'_, Option<Box<[u8]>>> {
    block.write().unwrap_or_else(PoisonError::into_inner)
}

/// The bytes of a block, zeroes if it was a hole.
fn empty(block: &mut Option<Box<[u8]>>) -> &mut [u8] {
    block.get_or_insert_with(|| vec![0; BLOCK].into())
}

fn parts(offset: u64, len: u64) -> impl Iterator<Item = Part> {
    const WIDE: &str = "addresses have 64 bits";
    let (mut at, end) = (offset, offset + len);
    core::iter::from_fn(move || {
        let from = usize::try_from(at % BLOCK as u64).expect(WIDE);
        let count = (BLOCK - from).min(usize::try_from(end - at).expect(WIDE));
        let data = usize::try_from(at - offset).expect(WIDE);
        let part = Part {
            block: usize::try_from(at / BLOCK as u64).expect(WIDE),
            within: from..from + count,
            data: data..data + count,
        };
        at += count as u64;
        (count > 0).then_some(part)
    })
}

/// The device of a volume that asks none for anything but flushes and lengths.
struct Nowhere;

impl Device for Nowhere {
    fn submit(&self, request: Box<IoRequest>) {
        let result = match request.op {
            IoOp::Read | IoOp::Write => Err(IoError::Lost),
            _ => Ok(()),
        };
        request.complete(&Interrupt::new(), result);
    }

    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            alignment: 1,
            stable_writes: false,
            grow_ahead: None,
            prepares_writes: false,
            queue: None,
        }
    }
}

impl Cache {
    /// Attaches a volume of `size` bytes that is kept in `memory` alone, and is gone with its last
    /// holder. Its bytes count neither in the cache's limit nor in its statistics
    /// ([`InMemory::bytes`], [`Cache::set_beside`]).
    ///
    /// # Errors
    /// `Cache` with `TooMany` devices or files. `Closed`.
    pub fn attach_in_memory(
        &self,
        options: VolumeOptions,
        memory: Arc<InMemory>,
        size: u64,
    ) -> Result<Volume, Error> {
        let backing = |_: &_| {
            Ok::<_, Error>(Backing {
                device: Arc::new(Nowhere),
                object: ObjectId(0),
                size,
            })
        };
        let mut volume = self.attach(options, backing)?;
        volume.memory = Some(memory);
        Ok(volume)
    }
}

#[cfg(test)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "the numbers are small, or are to be cut"
)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    #[test]
    fn it_is_what_was_written_and_zeroes_around_it() {
        let memory = InMemory::new();
        let mut model = vec![0_u8; 1 << 20];
        // Begins and ends in the middle of blocks, at their ends, and across several.
        let writes = [
            (0, 1),
            (60 * KIB, 8 * KIB),
            (64 * KIB, 64 * KIB),
            (100, 300 * KIB),
            (1023 * KIB, KIB),
        ];
        for (turn, (offset, len)) in (1_u8..).zip(writes) {
            let range = offset as usize..(offset + len) as usize;
            let data: Vec<u8> = (0..len)
                .map(|at| turn.wrapping_mul(31) ^ at as u8)
                .collect();
            model[range].copy_from_slice(&data);
            memory.write(&data, offset);
        }
        for (offset, len) in [(4 * KIB, 8 * KIB), (64 * KIB, 128 * KIB), (190 * KIB, 3)] {
            model[offset as usize..(offset + len) as usize].fill(0);
            memory.punch(offset, len);
        }
        let mut back = vec![9; 1 << 20];
        memory.read(&mut back, 0);
        assert!(back == model);
        let mut part = vec![9; 70 << 10];
        memory.read(&mut part, 61 * KIB);
        assert!(part == model[61 << 10..131 << 10]);
    }

    #[test]
    fn holes_are_what_nobody_wrote_and_what_was_punched() {
        let memory = InMemory::new();
        let (block, all) = (BLOCK as u64, 16 * BLOCK as u64);
        assert_eq!(memory.extent(5, all), (all, true));
        memory.write(&[1; 2 * BLOCK], 3 * block);
        assert_eq!(memory.extent(0, all), (3 * block, true));
        assert_eq!(memory.extent(3 * block + 1, all), (2 * block - 1, false));
        assert_eq!(memory.extent(3 * block, block / 2), (block / 2, false));
        memory.punch(3 * block, block);
        assert_eq!(memory.extent(0, all), (4 * block, true));
        memory.clear();
        assert_eq!(memory.extent(0, all), (all, true));
    }

    /// It was let in before, and the bytes are cleared when its turn comes.
    #[test]
    fn a_change_that_a_detach_overtakes_is_refused() {
        use std::sync::atomic::Ordering::SeqCst;

        let builder = Cache::builder().memory(32 << 20).devices(1);
        let cache = builder.build().expect("a cache");
        let (memory, size) = (Arc::new(InMemory::new()), 16 * BLOCK as u64);
        let attached = cache.attach_in_memory(VolumeOptions::default(), Arc::clone(&memory), size);
        let volume = attached.expect("a place");
        let held = memory.changes.write().expect("nobody has it");
        std::thread::scope(|scope| {
            let write = scope.spawn(|| volume.change(&memory, || memory.write(&[1; BLOCK], 0)));
            while volume.holders.inside.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            let detach = scope.spawn(|| volume.detach());
            while !volume.holders.gone.load(SeqCst) {
                std::thread::yield_now();
            }
            drop(held);
            assert!(matches!(write.join(), Ok(Err(Error::Closed))));
            assert!(matches!(detach.join(), Ok(Ok(()))));
        });
        assert_eq!(memory.extent(0, size), (size, true));
        cache.close().expect("nothing is left");
    }

    #[test]
    fn its_memory_is_its_size_once() {
        let size = 10 << 30;
        assert!(InMemory::bytes(size) < size + size / 1000);
        assert!(InMemory::bytes(4096) < 1 << 20);
    }
}
