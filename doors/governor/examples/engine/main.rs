//! An engine with a block cache, a row cache and a memtable, its memory split by hand or governed.
//!
//! `cargo run --release -p tidegate-governor --features adapters --example engine`
//!
//! With words it is what `cargo instruments bench governor` starts: `engine LIMIT_MIB SECONDS
//! COLUMN [live] [serial] [resident]`, where a column is `half`, `thirds`, `B-R-M` (eighths for
//! blocks, rows, memtable), `governor`, or `alone-quick_cache`, `alone-foyer`, `alone-moka`. It
//! prints a line a phase, says `done`, and stays until its input ends.

mod alone;
mod engine;
mod store;
mod workload;

use std::io::Read as _;
use std::sync::Arc;

use engine::{Engine, Split};
use store::Store;
use workload::{Keys, Phase};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [limit, seconds, column, options @ ..] = words.as_slice() else {
        return demonstrate();
    };
    let limit = limit.parse::<u64>()? << 20;
    if let Some(name) = column.strip_prefix("alone-") {
        let kept = alone::fill(name, limit).ok_or("no such cache")?;
        wait();
        drop(kept);
        return Ok(());
    }
    let store = Arc::new(Store::new(
        options.contains(&"live"),
        options.contains(&"serial"),
    ));
    let engine = match *column {
        "governor" => Engine::governed(store.clone(), limit, options.contains(&"resident"))?,
        _ => {
            let split = split(column, limit).ok_or("no such column")?;
            Engine::split(store.clone(), split)
        }
    };
    run(&engine, &store, limit, seconds.parse()?);
    wait();
    Ok(())
}

/// Says that it is done; the process that started it looks at its memory, and ends its input.
fn wait() {
    println!("done");
    let _ = std::io::stdin().read(&mut [0]);
}

fn split(column: &str, limit: u64) -> Option<Split> {
    let of = |blocks: u64, rows: u64, memtable: u64, all: u64| Split {
        blocks: limit * blocks / all,
        rows: limit * rows / all,
        memtable: limit * memtable / all,
    };
    match column {
        // 64 MiB of 1 GiB for the memtable, the rest in halves.
        "half" => Some(of(15, 15, 2, 32)),
        "thirds" => Some(of(1, 1, 1, 3)),
        _ => {
            let mut eighths = column.split('-').map(|word| word.parse::<u64>().ok());
            let (blocks, rows, memtable) = (eighths.next()??, eighths.next()??, eighths.next()??);
            Some(of(blocks, rows, memtable, 8))
        }
    }
}

fn run(engine: &Engine, store: &Store, limit: u64, seconds: u64) {
    let mut keys = Keys::new(limit);
    for phase in Phase::ALL {
        let done = keys.run(engine, store, phase, seconds);
        println!(
            "{},{},{},{},{},{},{},{},{},{}",
            phase.name(),
            done.ops,
            done.whole.reads,
            done.whole.writes,
            done.whole.time,
            done.rest_ops,
            done.rest.reads,
            done.rest.writes,
            done.rest.time,
            done.real.as_nanos()
        );
        if let Some(report) = engine.report() {
            eprintln!("{report}");
        }
    }
}

/// Half against governed, in small.
fn demonstrate() -> Result<(), Box<dyn std::error::Error>> {
    const LIMIT: u64 = 64 << 20;
    const SECONDS: u64 = 3;
    let rates = |engine: &Engine, store: &Store| {
        let mut keys = Keys::new(LIMIT);
        Phase::ALL.map(|phase| {
            let done = keys.run(engine, store, phase, SECONDS);
            done.ops as f64 / (done.whole.time as f64 / 1e9)
        })
    };
    let store = Arc::new(Store::new(false, false));
    let half = split("half", LIMIT).ok_or("a column")?;
    let half = rates(&Engine::split(store.clone(), half), &store);
    let store = Arc::new(Store::new(false, false));
    let engine = Engine::governed(store.clone(), LIMIT, false)?;
    let governed = rates(&engine, &store);
    println!("operations a second    half split     governed");
    for (at, phase) in Phase::ALL.into_iter().enumerate() {
        let (name, half, governed) = (phase.name(), half[at], governed[at]);
        println!("{name:<20} {half:>12.0} {governed:>12.0}");
    }
    println!("\n{}", engine.report().unwrap_or_default());
    Ok(())
}
