//! From a memory limit in bytes to a number of frames.
//!
//! The limit is for everything: pages, their metadata, request slots, stacks, and, when the whole
//! process is meant, its code and heap as they are now. So
//!
//! ```text
//!   limit = frames * (4096 + metadata per frame) + fixed + (process: resident now)
//! ```
//!
//! Source: design.md promise 1 and "Decisions to make first" 11.

use crate::Error;

/// Metadata of a frame: table, lists, free lists, and its share of index nodes (measured by the
/// test of `frames`; `Stats::metadata_bytes` says what it is).
const METADATA_PER_FRAME: u64 = 72;
/// Request slots (160 of 3 KiB), rings and their buffers, stacks of the few threads, allocator.
const FIXED: u64 = 3 << 20;
/// Frames below which a cache is no use.
const FRAMES_MIN: u64 = 1024;

/// Frames for a limit of `limit` bytes, `resident` of which are taken already.
pub(crate) fn frames(limit: u64, resident: u64) -> Result<u32, Error> {
    let overhead = FIXED + resident;
    let per_frame = 4096 + METADATA_PER_FRAME;
    let frames = limit.saturating_sub(overhead) / per_frame;
    if frames < FRAMES_MIN {
        let least = overhead + FRAMES_MIN * per_frame;
        return Err(Error::LimitTooSmall {
            limit,
            least,
            overhead,
        });
    }
    // A terabyte of frames is beyond a 32-bit number of them; use what can be numbered.
    Ok(u32::try_from(frames).unwrap_or(u32::MAX >> 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_covers_frames_metadata_and_the_rest() {
        let frames = u64::from(frames(64 << 20, 0).unwrap());
        assert!(frames * (4096 + METADATA_PER_FRAME) + FIXED <= 64 << 20);
        assert!(frames * 4096 > 58 << 20, "most of it is pages: {frames}");
    }

    #[test]
    fn a_limit_without_room_says_what_would_do() {
        let Err(Error::LimitTooSmall { limit, least, .. }) = frames(4 << 20, 10 << 20) else {
            panic!("4 MiB cannot hold 10 MiB");
        };
        assert_eq!(limit, 4 << 20);
        assert!(frames(least, 10 << 20).is_ok());
    }
}
