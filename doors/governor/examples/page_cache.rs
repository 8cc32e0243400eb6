//! A page cache and a cache of rows under one limit.
//!
//! `cargo run --release -p tidegate-governor --features tidegate --example page_cache`

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use governor::adapters::tidegate::Governed;
use governor::{Ask, Governor, Share};
use tidegate::{Cache, OpenOptions};

const MIB: u64 = 1 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("tidegate-governed-{}", std::process::id()));
    let governor = Governor::new(192 * MIB)?;
    // As much as it shall ever have; its present size is the governor's from now on.
    let cache = Cache::builder().memory(160 * MIB).build()?;
    let pages = Governed::new(&governor, "pages", Share::default(), &cache)?;
    let rows = Arc::new(Mutex::new(VecDeque::<Vec<u8>>::new()));
    let (look, take) = (rows.clone(), rows.clone());
    let bytes = |rows: &VecDeque<Vec<u8>>| rows.iter().map(|row| row.len() as u64).sum();
    let held = move || bytes(&look.lock().expect("nobody panics"));
    let free = move |ask: &Ask| {
        let (mut freed, mut rows) = (0, take.lock().expect("nobody panics"));
        while freed < ask.bytes
            && let Some(row) = rows.pop_front()
        {
            freed += row.len() as u64;
        }
        freed
    };
    let share = Share::default().floor(8 * MIB);
    let _rows = governor.register("rows", share, governor::by(held, free))?;

    let file = cache.open(&path, OpenOptions::new().create(true).truncate(true))?;
    let block = vec![7; 1 << 20];
    for at in 0..256 {
        file.write_at(&block, at * MIB)?;
    }
    file.sync()?;
    println!("a file of 256 MiB is written:\n{}", governor.report());
    for _ in 0..1600 {
        rows.lock()
            .expect("nobody panics")
            .push_back(vec![1; 64 << 10]);
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
    println!("100 MiB of rows have come:\n{}", governor.report());
    let mut page = vec![0; 64 << 10];
    for round in 0..6_u64 {
        for at in 0..1600 {
            file.read_at(&mut page, at * (64 << 10))?;
        }
        println!(
            "round {round} over 100 MiB of the file: {}",
            cache.stats().limit / MIB
        );
    }
    println!("{}", governor.report());
    drop((pages, file));
    cache.close()?;
    std::fs::remove_file(path)?;
    Ok(())
}
