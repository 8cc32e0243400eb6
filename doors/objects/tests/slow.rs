//! Figures of the cache over a store whose puts take 50 ms and gets 20 ms. Not checked: printed.
//!
//! `cargo test -p tidegate-objects --test tests slow:: -- --ignored --nocapture`

#![allow(
    clippy::cast_possible_truncation,
    reason = "64 bits, and small numbers"
)]
#![allow(clippy::cast_precision_loss, reason = "for people")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{Chance, MIB, PAGE, attach};
use object_store::ObjectStore;
use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use objects::Config;
use tidegate::{Cache, Mode, Volume, Writer};

/// A write that is held as long as the cache says.
fn write_paced(
    cache: &Cache,
    volume: &Volume,
    writer: &mut Writer,
    data: &[u8],
    offset: u64,
) -> Duration {
    let began = Instant::now();
    volume.write(writer, data, offset, Mode::Blocking).unwrap();
    while let Some(until) = volume.pace(writer).unwrap() {
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
    }
    let _ = cache;
    began.elapsed()
}

fn store() -> Arc<dyn ObjectStore> {
    let config = ThrottleConfig {
        wait_put_per_call: Duration::from_millis(50),
        wait_get_per_call: Duration::from_millis(20),
        ..ThrottleConfig::default()
    };
    Arc::new(ThrottledStore::new(InMemory::new(), config))
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(usual)
}

fn row(sequential: bool, object_size: u64, parallel: u16) {
    let memory = number("MEMORY_MIB", 64);
    let total = number("TOTAL_MIB", 256);
    let config = Config {
        size: Some(total * MIB),
        object_size: Some(object_size),
        parallel: Some(parallel),
        ..Config::new("slow")
    };
    let store = store();
    let (cache, volume, device) = attach(memory << 20, |arena| {
        objects::open_on(Arc::clone(&store), "v", &config, arena)
    });
    let mut writer = cache.writer();
    let mut chance = Chance::quiet(3);
    let mut longest = Duration::ZERO;
    let began = Instant::now();
    let bytes;
    if sequential {
        let data = vec![7; 128 << 10];
        for at in 0..total * 8 {
            let time = write_paced(&cache, &volume, &mut writer, &data, at * data.len() as u64);
            longest = longest.max(time);
        }
        bytes = total * MIB;
    } else {
        let page = vec![7; PAGE];
        let seconds = number("SECONDS", 15);
        let mut count = 0;
        while began.elapsed() < Duration::from_secs(seconds) {
            let at = chance.below(total * MIB / PAGE as u64) * PAGE as u64;
            longest = longest.max(write_paced(&cache, &volume, &mut writer, &page, at));
            count += 1;
        }
        bytes = count * PAGE as u64;
    }
    let written = began.elapsed();
    volume.sync().unwrap();
    let all = began.elapsed();
    let counts = device.counts();
    println!(
        "{:10} {:5} KiB x{parallel:<2}: {:7.2} MiB/s written, {:7.2} synced ({:.1} s + {:.1} s), longest {:4} ms, puts {:5} gets {:5}, put {:.2} x, merged {}",
        if sequential {
            "sequential"
        } else {
            "random 4K"
        },
        object_size >> 10,
        bytes as f64 / MIB as f64 / written.as_secs_f64(),
        bytes as f64 / MIB as f64 / all.as_secs_f64(),
        written.as_secs_f64(),
        (all - written).as_secs_f64(),
        longest.as_millis(),
        counts.puts,
        counts.gets,
        counts.bytes_written as f64 / bytes as f64,
        counts.merged,
    );
    println!("           {:?}", volume.stats());
    drop(volume);
    cache.close().unwrap();
}

#[test]
#[ignore = "figures, a minute or two"]
fn puts_of_50_ms() {
    for (object_size, parallel) in [(MIB, 8), (MIB, 32), (4 * MIB, 8), (256 << 10, 8)] {
        row(true, object_size, parallel);
    }
    if number("SEQUENTIAL_ONLY", 0) > 0 {
        return;
    }
    for (object_size, parallel) in [(MIB, 8), (256 << 10, 8), (256 << 10, 32)] {
        row(false, object_size, parallel);
    }
}
