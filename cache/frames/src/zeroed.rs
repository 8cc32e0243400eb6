//! Tables that cost nothing where nobody has been: allocated as the system gives memory, which is
//! zero.
//!
//! A large table of zeroes is a mapping that no page stands behind until somebody writes there.
//! Filling it, with whatever, touches all of it: that was some 70 bytes for each frame of a
//! machine, used or not. So what a table holds at the start is all zero bits, and its types say
//! what these mean ([`Zeroed`]).

use crate::index::Node;
use crate::sync::{AtomicU32, AtomicU64};
use crate::table::Frame;
use crate::{free, list};

/// A type of which all zero bits are a value.
///
/// # Safety
/// Memory of zero bytes is a valid value, and nothing has to be done when it is dropped.
pub unsafe trait Zeroed {
    /// The value of all zeroes, for the model checkers, whose atomics are not plain memory.
    fn zeroed() -> Self;
}

// SAFETY: the machine's atomics have the layout of the number, for which zero bytes are zero.
unsafe impl Zeroed for AtomicU32 {
    fn zeroed() -> Self {
        Self::new(0)
    }
}

// SAFETY: as above.
unsafe impl Zeroed for AtomicU64 {
    fn zeroed() -> Self {
        Self::new(0)
    }
}

// SAFETY: an array is its elements, one after the other.
unsafe impl<T: Zeroed, const N: usize> Zeroed for [T; N] {
    fn zeroed() -> Self {
        core::array::from_fn(|_| T::zeroed())
    }
}

// SAFETY: two numbers.
unsafe impl Zeroed for Frame {
    fn zeroed() -> Self {
        Self::unclaimed()
    }
}

// SAFETY: numbers, and what its alignment leaves between.
unsafe impl Zeroed for Node {
    fn zeroed() -> Self {
        Self::empty()
    }
}

// SAFETY: two numbers.
unsafe impl Zeroed for list::Link {
    fn zeroed() -> Self {
        Self::UNUSED
    }
}

// SAFETY: two numbers.
unsafe impl Zeroed for free::Link {
    fn zeroed() -> Self {
        Self::UNUSED
    }
}

/// `len` zeroes, none of which is touched.
///
/// Not of a type that is aligned to more than the system's allocator aligns by itself: that would
/// touch all of it.
#[cfg(not(any(loom, shuttle)))]
#[must_use]
pub fn table<T: Zeroed>(len: usize) -> Box<[T]> {
    const { assert!(align_of::<T>() <= 16, "a table that would be filled") };
    let table = Box::new_zeroed_slice(len);
    // SAFETY: all of it is zero bytes, a value of `T` (`Zeroed`).
    unsafe { table.assume_init() }
}

/// `len` zeroes.
#[cfg(any(loom, shuttle))]
pub fn table<T: Zeroed>(len: usize) -> Box<[T]> {
    (0..len).map(|_| T::zeroed()).collect()
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::{Flags, FrameId, FrameTable, FreeLists, Lists, NodePool};

    /// Resident memory of this process, in KiB.
    fn resident() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next());
        kib.and_then(|kib| kib.parse().ok()).unwrap_or(0)
    }

    #[test]
    fn frames_that_nobody_used_cost_nothing() {
        // 64 GiB.
        const FRAMES: u32 = 1 << 24;
        let before = resident();
        let table = FrameTable::new(FRAMES);
        let mut lists = Lists::new(FRAMES, 4);
        let mut free = FreeLists::new(FRAMES);
        let pool = NodePool::new(NodePool::nodes_for(FRAMES.into()));
        // Something of each.
        lists.push_head(0, FrameId(7));
        free.add_range(FrameId(0), 512);
        assert!(table.flags(FrameId(FRAMES - 1)).has(Flags::FREE));
        assert_eq!(pool.free(), NodePool::nodes_for(FRAMES.into()));
        let tables = table.bytes() + lists.bytes() + free.bytes() + pool.bytes();
        assert!(tables >> 20 > 500, "what it would be if it were touched");
        // Other tests run beside this one.
        assert!(
            resident() < before + (50 << 10),
            "{} KiB",
            resident() - before
        );
    }
}
