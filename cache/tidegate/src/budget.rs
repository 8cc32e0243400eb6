//! The part of a memory limit that is not for pages; `os::Budget` does the sum.
//!
//! Source: docs/adr/0006. Resident and pinned memory together stay below the limit and 5 %.

use std::ops::RangeInclusive;

use os::{Budget, BudgetError};

use crate::{Error, METADATA_PER_SLOT, PAGE_SIZE};

/// Metadata of a frame: table, lists, free lists, its slot, and its share of index nodes (measured
/// by the test of `frames`; `Stats::metadata_bytes` says what it is).
const METADATA_PER_FRAME: u64 = 76;
/// Request slots (256 of 1.3 KiB), rings and their buffers, stacks of the few threads, allocator.
const FIXED: u64 = 3 << 20;
/// Frames below which a cache is no use.
const FRAMES_MIN: u64 = 1024;

/// The size that a swap file may have: `mm` numbers 1 to 2^27 slots.
pub(crate) const SWAP: RangeInclusive<u64> = PAGE_SIZE as u64..=(1 << 27) * PAGE_SIZE as u64;

/// The cost of a volume on a file of its own beside its pages: three threads (flusher, ring, the
/// lane beside it), the ring, its queues (108 KiB once it is attached), and 4 KiB for each request
/// that was under way at once (206 KiB after one flood of small writes; 64 of them would be 360).
/// `tests/volumes.rs` measures it.
const PER_DEVICE: u64 = 256 << 10;
/// Devices that `FIXED` covers.
const DEVICES_FIXED: u64 = 8;

/// The cost of room for `devices` devices.
pub(crate) const fn of_devices(devices: u16) -> u64 {
    (devices as u64).saturating_sub(DEVICES_FIXED) * PER_DEVICE
}

/// The cost of a swap file of that size.
pub(crate) const fn of_swap(bytes: u64) -> u64 {
    bytes / PAGE_SIZE as u64 * METADATA_PER_SLOT
}

/// Frames for a limit of `limit` bytes, `taken` of which are taken already, beside what is kept of
/// a swap file of `swap` bytes.
pub(crate) fn frames_beside_swap(limit: u64, taken: u64, swap: u64) -> Result<u32, Error> {
    let table = of_swap(swap);
    let frames_of_all = frames(limit, taken.saturating_add(table));
    if !matches!(frames_of_all, Err(Error::LimitTooSmall { .. })) {
        return frames_of_all;
    }
    // The swap file is to blame only if the limit is enough without it.
    frames(limit, taken)?;
    let others = taken + FIXED + FRAMES_MIN * (PAGE_SIZE as u64 + METADATA_PER_FRAME);
    let slots = limit.saturating_sub(others) / METADATA_PER_SLOT;
    Err(Error::SwapFileTooLarge {
        bytes: swap,
        table,
        limit,
        most: (slots * PAGE_SIZE as u64).min(*SWAP.end()),
    })
}

/// Frames for a limit of `limit` bytes, `resident` of which are taken already.
fn frames(limit: u64, resident: u64) -> Result<u32, Error> {
    let budget = Budget {
        limit,
        resident,
        fixed: FIXED,
        per_frame: METADATA_PER_FRAME,
        frames_least: FRAMES_MIN,
    };
    match budget.frames() {
        Ok(frames) => Ok(frames),
        Err(BudgetError::TooSmall { least, overhead }) => Err(Error::LimitTooSmall {
            limit,
            least,
            overhead,
        }),
        Err(BudgetError::TooLarge { available }) => Err(Error::LimitTooLarge { limit, available }),
        Err(BudgetError::AboveGroup { allowed, file }) => Err(Error::LimitAboveGroup {
            limit,
            allowed,
            file,
        }),
        // Terabytes of frames are beyond a 32-bit number of them; use what can be numbered.
        Err(BudgetError::TooMany) => Ok(u32::MAX >> 1),
    }
}
