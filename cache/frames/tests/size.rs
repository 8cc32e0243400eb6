//! Memory taken by book-keeping.
#![cfg(not(any(loom, shuttle)))]

use frames::{FrameTable, FreeLists, Lists, NodePool};

/// Bytes of metadata that a frame may cost; 48 would be better.
const BYTES_PER_FRAME_MAX: u64 = 64;
const BYTES_PER_FRAME_GOAL: u64 = 48;

#[test]
fn metadata_per_frame() {
    const FRAMES: u32 = 1 << 18;
    let parts = [
        ("frame table", FrameTable::new(FRAMES).bytes()),
        ("lists", Lists::new(FRAMES, 4).bytes()),
        ("free lists", FreeLists::new(FRAMES).bytes()),
        (
            "index nodes",
            NodePool::new(NodePool::nodes_for(u64::from(FRAMES))).bytes(),
        ),
    ];
    for (name, bytes) in parts {
        println!(
            "{name:<12} {:>7.3} bytes a frame",
            bytes as f64 / f64::from(FRAMES)
        );
    }
    let total: u64 = parts.iter().map(|(_, bytes)| bytes).sum();
    println!(
        "{:<12} {:>7.3} bytes a frame",
        "all",
        total as f64 / f64::from(FRAMES)
    );
    assert!(total <= BYTES_PER_FRAME_MAX * u64::from(FRAMES));
    assert!(total <= BYTES_PER_FRAME_GOAL * u64::from(FRAMES));
}
