//! On which nodes of the machine a cache lies, as it says itself and as the system says.
//!
//! Fills a cache of 128 MiB on the nodes of the machine by a file of 96 MiB, and prints both. Ends
//! with 1 where the memory of a node's part is mostly on another node although nothing else took
//! that node's memory.
//!
//! `cargo instruments numa` runs it in a virtual machine of two nodes.

use std::error::Error;
use std::process::ExitCode;

use tidegate::{Cache, Nodes, OpenOptions};

const MIB: u64 = 1 << 20;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("tidegate-nodes-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let cache = Cache::builder()
        .memory(128 * MIB)
        .nodes(Nodes::System)
        .build()?;
    let file = cache.open(dir.join("data"), OpenOptions::new().create(true))?;
    let block = vec![7; 1 << 20];
    for at in 0..96 {
        file.write_at(&block, at * MIB)?;
    }
    file.sync()?;
    let stats = cache.stats();
    if let Some(why) = &stats.one_node {
        println!("the cache is on one node: {why}");
    }
    for (at, node) in stats.nodes.iter().enumerate() {
        println!(
            "part {at}: node {} size {} cached {} taken_here {} taken_elsewhere {} misplaced {} MiB",
            node.number
                .map_or_else(|| "-".to_owned(), |number| number.to_string()),
            node.size / MIB,
            node.cached / MIB,
            node.taken_here_total / MIB,
            node.taken_elsewhere_total / MIB,
            node.misplaced / MIB,
        );
    }
    let mut all_as_said = true;
    for (wanted, pages) in bound()? {
        let own: u64 = pages
            .iter()
            .filter(|(node, _)| *node == wanted)
            .map(|(_, pages)| pages)
            .sum();
        let all: u64 = pages.iter().map(|(_, pages)| pages).sum();
        println!("asked from node {wanted}: {own} of {all} pages are there");
        all_as_said &= own * 100 >= all * 95;
    }
    drop(file);
    cache.close()?;
    std::fs::remove_dir_all(&dir)?;
    if all_as_said {
        println!("nodes: as said");
        Ok(ExitCode::SUCCESS)
    } else {
        Ok(ExitCode::FAILURE)
    }
}

/// A node, and pages on nodes.
type Bound = (u32, Vec<(u32, u64)>);

/// The mappings of this process that prefer a node, and where their pages are (numa_maps, proc(5)).
fn bound() -> Result<Vec<Bound>, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/self/numa_maps")?;
    let mut found = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace().skip(1);
        let wanted = words
            .next()
            .and_then(|policy| policy.strip_prefix("prefer:"));
        let Some(wanted) = wanted.and_then(|node| node.parse::<u32>().ok()) else {
            continue;
        };
        let on = words.filter_map(|word| {
            let (node, pages) = word.strip_prefix('N')?.split_once('=')?;
            Some((node.parse().ok()?, pages.parse().ok()?))
        });
        let on: Vec<(u32, u64)> = on.collect();
        if !on.is_empty() {
            found.push((wanted, on));
        }
    }
    Ok(found)
}
