//! Many volumes in one cache, each on a file of its own: what they take, in a process of its own.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

mod dir;

use std::io::{ErrorKind, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

use env::Device as _;
use os::FileDevice;
use tidegate::{Backing, Cache, Cursor, Error, Mode, Volume, VolumeOptions, Writer};

use crate::dir::Dir;

const PAGE: u64 = 4096;
const VOLUMES: u64 = 64;
const SIZE: u64 = 8 << 20;

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

/// Writes all of it, waiting where that is needed.
fn write(volume: &Volume, writer: &mut Writer, mut data: &[u8], mut offset: u64) {
    for _ in 0..10_000 {
        let tried = volume
            .write(writer, data, offset, Mode::Nonblocking)
            .unwrap();
        data = &data[tried.bytes..];
        offset += tried.bytes as u64;
        if data.is_empty() {
            return;
        }
        volume
            .prepare_write(writer, offset, data.len() as u64)
            .unwrap();
    }
    panic!("no progress at {offset}");
}

/// Reads all of it, waiting where that is needed.
fn read(volume: &Volume, mut data: &mut [u8], mut offset: u64) {
    let mut cursor = Cursor::default();
    for _ in 0..10_000 {
        let tried = volume
            .read(&mut cursor, data, offset, Mode::Nonblocking)
            .unwrap();
        data = &mut data[tried.bytes..];
        offset += tried.bytes as u64;
        if data.is_empty() {
            return;
        }
        volume
            .prepare_read(&mut cursor, offset, data.len() as u64)
            .unwrap();
    }
    panic!("no progress at {offset}");
}

/// Writes to, syncs and reads a volume: everything of it is in use.
fn use_it(cache: &Cache, volume: &Volume, number: u64) {
    let mut writer = cache.writer();
    let data = vec![u8::try_from(number).unwrap(); 16 << 10];
    for at in (0..SIZE).step_by(64 << 10) {
        write(volume, &mut writer, &data, at);
    }
    volume.sync().unwrap();
    let mut back = vec![0; 4096];
    read(volume, &mut back, 48 << 10);
}

/// One test for all: they share a process, and so its resident memory.
#[test]
fn volumes_and_what_they_take() {
    many_volumes_stay_within_what_is_charged_for_them();
    a_volume_is_punched_watched_and_taken_out();
    what_a_socket_has_goes_into_pages_that_are_there();
    places_are_used_again();
}

fn what_a_socket_has_goes_into_pages_that_are_there() {
    let dir = Dir::new("received");
    let cache = Cache::builder().memory(32 << 20).build().unwrap();
    let volume = attach(&cache, &dir, 0);
    let mut writer = cache.writer();
    let mut there: Vec<u8> = (0..1 << 20).map(|at| (at / 7 % 251) as u8).collect();
    write(&volume, &mut writer, &there, 0);
    let (mut client, socket) = UnixStream::pair().unwrap();
    let mut receive = |volume: &Volume, offset: u64, len: u64| {
        volume.receive(&mut writer, socket.as_fd(), offset, len)
    };
    // Nothing there; then less than is wanted, and as much, wherever it begins.
    let nothing = receive(&volume, 0, 4096).unwrap().unwrap();
    assert_eq!(nothing.unwrap_err().kind(), ErrorKind::WouldBlock);
    for (offset, wanted, sent) in [
        (0, 1 << 20, 100),
        (100, 8192 - 100, 8192 - 100),
        (8192, 128 << 10, 70_000),
        (777, 100_000, 100_000),
    ] {
        let data: Vec<u8> = (0..249).cycle().take(sent).collect();
        client.write_all(&data).unwrap();
        let bytes = receive(&volume, offset, wanted).unwrap().unwrap().unwrap();
        assert_eq!(bytes, sent);
        let at = usize::try_from(offset).unwrap();
        there[at..at + sent].copy_from_slice(&data);
        let mut back = vec![0; 1 << 20];
        read(&volume, &mut back, 0);
        assert!(back == there, "{sent} bytes at {offset}");
    }
    // Pages that are not in memory are not offered, and nothing is taken from the socket for them.
    client.write_all(&[7; 4096]).unwrap();
    assert!(receive(&volume, 4 << 20, 4096).unwrap().is_none());
    let beyond = receive(&volume, SIZE - 1, 2);
    assert!(matches!(beyond, Err(Error::Cache(_))));
    let bytes = receive(&volume, 0, 4096).unwrap().unwrap().unwrap();
    assert_eq!(bytes, 4096);
    drop(client);
    let end = receive(&volume, 0, 4096).unwrap().unwrap();
    assert_eq!(end.unwrap(), 0, "the end of the stream");
    let mut back = vec![0; 4097];
    read(&volume, &mut back, 0);
    assert!(back[..4096] == [7; 4096] && back[4096] == there[4096]);
    volume.sync().unwrap();
}

fn many_volumes_stay_within_what_is_charged_for_them() {
    let dir = Dir::new("many");
    let limit = 48_u64 << 20;
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

/// A volume that was taken out gives its place, its device and its threads back.
fn places_are_used_again() {
    const TIMES: usize = 20;
    let dir = Dir::new("places");
    let cache = Cache::builder()
        .memory(32 << 20)
        .devices(2)
        .build()
        .unwrap();
    let kept = attach(&cache, &dir, 0);
    let mut writer = cache.writer();
    let now = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let mut threads = Vec::new();
    for time in 1..=TIMES {
        let volume = attach(&cache, &dir, 1);
        assert_eq!(volume.stats().written_total, 0, "it has its own counters");
        let data = vec![u8::try_from(time).unwrap(); 1 << 20];
        // The writer of the one before goes on: nothing of it is in the way.
        write(&volume, &mut writer, &data, 0);
        assert_eq!(volume.stats().dirty + volume.stats().writeback, 1 << 20);
        volume.detach().unwrap();
        assert_eq!(volume.stats().dirty, 0, "of a place that may be another's");
        let file = std::fs::read(dir.0.join("1")).unwrap();
        assert!(file[..1 << 20] == data);
        threads.push(now());
    }
    // A thread that was joined is seen for a moment more.
    let began = std::time::Instant::now();
    while now() > threads[0] + 2 {
        assert!(began.elapsed().as_secs() < 60, "{threads:?}, {}", now());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let more = attach(&cache, &dir, 1);
    write(&kept, &mut writer, &[9; 4096], 0);
    more.set_options(VolumeOptions {
        on_error: tidegate::ErrorPolicy::Retry,
        ..Default::default()
    })
    .unwrap();
    more.detach().unwrap();
    cache.close().unwrap();
}

/// Holes, what is not written yet, counters and the end of a volume, over a real file.
fn a_volume_is_punched_watched_and_taken_out() {
    let dir = Dir::new("upkeep");
    let cache = Cache::builder().memory(32 << 20).build().unwrap();
    let volume = attach(&cache, &dir, 0);
    let other = volume.clone_handle();
    let mut writer = cache.writer();
    let data = vec![7; 1 << 20];
    write(&volume, &mut writer, &data, 0);
    assert_eq!(volume.next_unwritten(0, SIZE), Some((0, 1 << 20)));
    assert_eq!(volume.stats().dirty, 1 << 20);
    volume.sync().unwrap();
    assert_eq!(volume.next_unwritten(0, SIZE), None);
    write(&volume, &mut writer, &data[..8192], 4096);
    other.punch(0, 512 << 10).unwrap();
    let mut back = vec![1; 1 << 20];
    read(&volume, &mut back, 0);
    assert!(back[..512 << 10].iter().all(|byte| *byte == 0));
    assert!(back[512 << 10..].iter().all(|byte| *byte == 7));
    assert!(matches!(volume.punch(SIZE, 1), Err(Error::Cache(_))));
    let stats = volume.stats();
    assert_eq!((stats.dirty, stats.writeback, stats.errors), (0, 0, 0));
    assert_eq!(stats.state, tidegate::VolumeState::Working);
    assert!(stats.dirty_limit > 0 && stats.background_limit <= stats.dirty_limit);
    assert!(stats.written_total >= 1 << 20 && stats.read_total >= 512 << 10);
    write(&volume, &mut writer, &data[..4096], 0);
    volume.detach().unwrap();
    assert!(matches!(other.sync(), Err(Error::Closed)));
    assert!(matches!(
        other.write(&mut writer, &data, 0, Mode::Nonblocking),
        Err(Error::Closed)
    ));
    assert!(matches!(other.detach(), Err(Error::Closed)));
    let file = std::fs::read(dir.0.join("0")).unwrap();
    assert!(file[..4096].iter().all(|byte| *byte == 7));
    assert!(file[4096..512 << 10].iter().all(|byte| *byte == 0));
    assert_eq!(cache.stats().cached, 0);
}
