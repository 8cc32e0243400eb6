//! Page events per second of the lab on one core: a page dirtied, submitted, completed, scanned,
//! faulted or freed. There are to be 10 million at least.
//!
//! A sequential writer through a cache of 64 MiB on a disk of 400 MB/s; then a reader of the same
//! file.

#[path = "../tests/cache/common.rs"]
mod common;

use std::time::Instant;

use common::world;
use mm::Reader;
use policy::units::Bytes;
use world::Sector;

const MIB: u64 = 1 << 20;

fn main() {
    let mib: u64 = std::env::args()
        .nth(1)
        .and_then(|arg| arg.parse().ok())
        .unwrap_or(8192);
    for round in 0..3 {
        let mut world = world(16384, 400 * MIB);
        world.disk.keep(false);
        let began = Instant::now();
        let stats = world.run(0, move |task, cache, file| {
            let mut writer = cache.writer();
            let chunk = vec![Sector(7); 2048];
            for at in 0..mib {
                file.write(task, &mut writer, Bytes(at * MIB), &chunk)
                    .expect("a good disk");
            }
            file.sync(task).expect("a good disk");
            let mut reader = Reader::default();
            let mut chunk = vec![Sector(0); 2048];
            for at in 0..mib {
                file.read(task, &mut reader, Bytes(at * MIB), &mut chunk)
                    .expect("a good disk");
            }
            cache.stats()
        });
        let took = began.elapsed();
        let written = stats.dirtied.0 + 2 * stats.written.0;
        let events = written + stats.scanned.0 + stats.reclaimed.0 + 3 * stats.read_in.0;
        println!(
            "round {round}: {events} page events in {:.3} s: {:.1} M/s ({:.1} virtual s)",
            took.as_secs_f64(),
            events as f64 / took.as_secs_f64() / 1e6,
            world.lab.now().0 as f64 / 1e9
        );
    }
}
