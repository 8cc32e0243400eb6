//! Many volumes in one cache, each on a file of its own: what they take, in a process of its own.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use std::path::PathBuf;

use env::Device as _;
use os::FileDevice;
use tidegate::{Backing, Cache, Cursor, Error, Volume, VolumeOptions};

const PAGE: u64 = 4096;
const VOLUMES: u64 = 128;
const SIZE: u64 = 8 << 20;

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let name = format!("tidegate-volumes-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn attach(cache: &Cache, dir: &Dir, number: u64) -> Volume {
    let path = dir.0.join(number.to_string());
    std::fs::File::create(&path).unwrap().set_len(SIZE).unwrap();
    cache
        .attach(VolumeOptions::default(), |env| {
            let device = FileDevice::new(env)?;
            let (object, len) = device.open(&path, os::OpenOptions::default())?;
            assert!(device.info().alignment <= 4096);
            Ok::<_, Error>(Backing {
                device,
                object,
                size: len.0,
            })
        })
        .unwrap()
}

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * PAGE
}

/// Writes to, syncs and reads a volume: everything of it is in use.
fn use_it(cache: &Cache, volume: &Volume, number: u64) {
    let mut writer = cache.writer();
    let data = vec![u8::try_from(number).unwrap(); 16 << 10];
    for at in (0..SIZE).step_by(64 << 10) {
        volume.try_write(&mut writer, &data, at).unwrap();
    }
    volume.sync().unwrap();
    let mut back = vec![0; 4096];
    volume
        .try_read(&mut Cursor::default(), &mut back, 48 << 10)
        .unwrap();
}

#[test]
fn many_volumes_stay_within_what_is_charged_for_them() {
    let dir = Dir::new("many");
    let limit = 96_u64 << 20;
    let before = resident();
    let cache = Cache::builder()
        .memory(limit)
        .devices(u16::try_from(VOLUMES).unwrap())
        .prefault(true)
        .build()
        .unwrap();
    let built = resident();
    let volumes: Vec<Volume> = (0..VOLUMES)
        .map(|number| attach(&cache, &dir, number))
        .collect();
    let attached = resident();
    for (volume, number) in volumes.iter().zip(0..) {
        use_it(&cache, volume, number);
    }
    let used = resident();
    let each = |bytes: u64| (bytes / VOLUMES) >> 10;
    eprintln!(
        "built {} MiB; attached {} KiB each; used {} KiB each; in all {} MiB of {}",
        (built - before) >> 20,
        each(attached - built),
        each(used - built),
        (used - before) >> 20,
        limit >> 20,
    );
    assert!(used - before <= limit + limit / 20);
    cache.close().unwrap();
}
