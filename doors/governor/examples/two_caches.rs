//! Two quick_cache caches under one limit.
//!
//! `cargo run --release -p tidegate-governor --features quick-cache --example two_caches`

use governor::adapters::quick_cache::Governed;
use governor::{Governor, Share};

fn main() -> Result<(), governor::Error> {
    let governor = Governor::new(128 << 20)?;
    let weigh = |_: &u64, value: &Vec<u8>| 8 + value.len() as u64;
    let users = Governed::new(&governor, "users", Share::default(), 100_000, weigh)?;
    let pages = Governed::new(&governor, "pages", Share::default(), 20_000, weigh)?;
    let load = |bytes| move || Ok::<_, governor::Error>(vec![1; bytes]);
    let (mut random, mut sum) = (1_u64, 0);
    let mut next = |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        // Small numbers more often than large ones.
        let value = random >> 33;
        (value >> 3) % (below >> (value % 8)).max(1)
    };
    for (phase, part_of_pages) in [("users", 1), ("pages", 9)] {
        for _ in 0..400_000 {
            sum += if next(10) < part_of_pages {
                pages.get_or_insert_with(&next(200_000), load(4096))?.len()
            } else {
                users.get_or_insert_with(&next(1_000_000), load(400))?.len()
            };
        }
        println!("mostly {phase}:\n{}", governor.report());
    }
    println!("{sum} bytes read");
    Ok(())
}
