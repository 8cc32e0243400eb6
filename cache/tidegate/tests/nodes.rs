//! A cache on several nodes. On a machine of one they are parts of its memory (`Nodes::Divide`), so
//! that all of it runs.

use std::time::{Duration, Instant};

use tidegate::{Cache, Error, Nodes, OneNode, OpenOptions, Stats};

use crate::dir::Dir;

const PAGE: u64 = 4096;

fn page(number: u64, version: u8) -> Vec<u8> {
    let mut bytes = vec![version; tidegate::PAGE_SIZE];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// The figures of the nodes add up to the figures of the cache.
fn adds_up(stats: &Stats) {
    let sum = |of: fn(&tidegate::NodeStats) -> u64| stats.nodes.iter().map(of).sum::<u64>();
    assert_eq!(sum(|node| node.free), stats.free, "{stats:?}");
    let held = sum(|node| node.cached + node.anonymous + node.aside);
    assert!(held <= stats.cached + stats.anonymous, "{stats:?}");
    assert!(
        sum(|node| node.scanned_total) >= sum(|node| node.reclaimed_total),
        "{stats:?}"
    );
    assert_eq!(
        sum(|node| node.reclaimed_total),
        stats.reclaimed_total,
        "{stats:?}"
    );
}

#[test]
fn files_and_regions_of_twice_the_limit_come_back_whole_from_two_nodes() {
    let dir = Dir::new("whole");
    let cache = Cache::builder()
        .memory(48 << 20)
        .nodes(Nodes::Divide(2))
        .swap_file(dir.0.join("swap"), 128 << 20)
        .build()
        .unwrap();
    let pages = 12_288;
    let file = cache
        .open(dir.0.join("data"), OpenOptions::new().create(true))
        .unwrap();
    let region = cache.spill(pages * PAGE).unwrap();
    std::thread::scope(|scope| {
        for part in 0..3 {
            let (file, region) = (&file, &region);
            scope.spawn(move || {
                for number in (part..pages).step_by(3) {
                    file.write_at(&page(number, 1), number * PAGE).unwrap();
                    region.write_at(&page(number, 2), number * PAGE).unwrap();
                }
            });
        }
    });
    let mut bytes = page(0, 0);
    for number in 0..pages {
        assert_eq!(
            file.read_at(&mut bytes, number * PAGE).unwrap(),
            bytes.len()
        );
        assert!(bytes == page(number, 1), "page {number} of the file");
        region.read_at(&mut bytes, number * PAGE).unwrap();
        assert!(bytes == page(number, 2), "page {number} of the region");
    }
    let stats = cache.stats();
    adds_up(&stats);
    assert_eq!((stats.nodes.len(), stats.one_node.is_none()), (2, true));
    for node in &stats.nodes {
        assert!(
            node.reclaimed_total > 0,
            "both nodes were full: {:?}",
            stats.nodes
        );
        assert_eq!(
            (node.number, node.misplaced),
            (None, 0),
            "the system was told nothing"
        );
    }
    let taken = |node: &tidegate::NodeStats| node.taken_here_total + node.taken_elsewhere_total;
    let all: u64 = stats.nodes.iter().map(taken).sum();
    assert!(all >= 2 * pages * PAGE, "{:?}", stats.nodes);
    file.sync().unwrap();
    drop((file, region));
    cache.close().unwrap();
}

#[test]
fn a_limit_of_two_nodes_is_lowered_and_raised() {
    let dir = Dir::new("limit");
    let cache = Cache::builder()
        .memory(64 << 20)
        .nodes(Nodes::Divide(2))
        .build()
        .unwrap();
    let file = cache
        .open(dir.0.join("data"), OpenOptions::new().create(true))
        .unwrap();
    let pages = 10_000;
    for number in 0..pages {
        file.write_at(&page(number, 1), number * PAGE).unwrap();
    }
    cache.set_limit(36 << 20).unwrap();
    let end = Instant::now() + Duration::from_secs(30);
    while cache.stats().over_limit > 0 {
        assert!(Instant::now() < end, "{:?}", cache.stats());
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut bytes = page(0, 0);
    for number in 0..pages {
        file.read_at(&mut bytes, number * PAGE).unwrap();
        assert!(bytes == page(number, 1), "page {number}");
    }
    cache.set_limit(64 << 20).unwrap();
    file.sync().unwrap();
    drop(file);
    cache.close().unwrap();
}

#[test]
fn the_nodes_of_this_machine_are_taken_or_it_is_said_why_not() {
    let cache = Cache::builder()
        .memory(64 << 20)
        .nodes(Nodes::System)
        .build()
        .unwrap();
    let stats = cache.stats();
    adds_up(&stats);
    match &stats.one_node {
        Some(why) => {
            assert_eq!(stats.nodes.len(), 1, "{why}");
            assert_eq!(stats.nodes[0].number, None);
        }
        None => {
            assert!(stats.nodes.len() > 1);
            assert!(
                stats
                    .nodes
                    .iter()
                    .all(|node| node.number.is_some() || node.size == 0)
            );
        }
    }
    if !std::path::Path::new("/sys/devices/system/node/node1").exists() {
        // Not there at all, in some containers.
        let only = matches!(stats.one_node, Some(OneNode::Only | OneNode::Topology(_)));
        assert!(only, "{:?}", stats.one_node);
    }
    cache.close().unwrap();
}

#[test]
fn a_cache_that_says_nothing_of_nodes_has_one() {
    let cache = Cache::builder().memory(24 << 20).build().unwrap();
    let stats = cache.stats();
    adds_up(&stats);
    assert_eq!((stats.nodes.len(), stats.one_node), (1, None));
    cache.close().unwrap();
}

#[test]
fn a_division_that_cannot_be_is_refused() {
    for count in [0, 9, 255] {
        let refused = Cache::builder().nodes(Nodes::Divide(count)).build();
        assert!(matches!(refused, Err(Error::BadDivision { count: told }) if told == count));
    }
    let refused = Cache::builder()
        .memory(24 << 20)
        .nodes(Nodes::Divide(8))
        .build()
        .err();
    let told = refused.unwrap().to_string();
    assert!(told.contains("the frames of zone"), "{told}");
}
