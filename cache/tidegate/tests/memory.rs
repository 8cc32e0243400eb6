//! Memory of a map as slices, for calls that are given memory.

#![allow(
    unsafe_code,
    reason = "a map lends pointers; slices are its user's word"
)]

use tidegate::Map;

/// The page of the map, for as long as the caller says that the map lives, and uses it alone.
pub(crate) fn page_of(map: &Map, page: usize) -> &'static mut [u8] {
    assert!((page + 1) * 4096 <= map.len());
    let start = map.as_ptr().wrapping_add(page * 4096);
    // SAFETY: within the map, which the test keeps to its end; each page is asked for once.
    unsafe { std::slice::from_raw_parts_mut(start, 4096) }
}
