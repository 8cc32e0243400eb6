//! Volumes as a server uses them, on real threads and files: calls that do not wait, and threads
//! that wait for them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use device::{Layer, Stack};
use os::FileDevice;
use tidegate::{Backing, Cache, Cursor, Error, Mode, Volume, VolumeOptions, Writer};

use crate::dir::Dir;

const PAGE: usize = 4096;

/// A directory of its own, removed at the end.
/// A volume on a file of `size` bytes, with layers around it as `spec` has them.
fn attach(cache: &Cache, path: &Path, size: u64, spec: &str) -> (Volume, Stack) {
    std::fs::File::create(path).unwrap().set_len(size).unwrap();
    let mut stack = None;
    let volume = cache
        .attach(VolumeOptions::default(), |env| {
            let files = FileDevice::new(env)?;
            let (object, len) = files.open(path, os::OpenOptions::default())?;
            let layers = Layer::parse_stack(spec).unwrap();
            let made = Stack::new(&layers, files, &env.host(), None).unwrap();
            let device = Arc::clone(&made.device);
            stack = Some(made);
            Ok::<_, Error>(Backing {
                device,
                object,
                size: len.0,
            })
        })
        .unwrap();
    (volume, stack.unwrap())
}

fn fill(data: &mut [u8], page: u64, version: u8) {
    for (at, bytes) in data.chunks_mut(PAGE).enumerate() {
        bytes.fill(version);
        bytes[..8].copy_from_slice(&(page + at as u64).to_le_bytes());
    }
}

/// Writes all of it, with the waits on this thread.
fn write(volume: &Volume, writer: &mut Writer, data: &[u8], offset: u64) {
    let mut done = 0;
    for _ in 0..100_000 {
        let tried = volume
            .write(
                writer,
                &data[done..],
                offset + done as u64,
                Mode::Nonblocking,
            )
            .unwrap();
        done += tried.bytes;
        if done == data.len() {
            return;
        }
        let left = (data.len() - done) as u64;
        volume
            .prepare_write(writer, offset + done as u64, left)
            .unwrap();
    }
    panic!("no progress at {offset}+{done}");
}

/// While a device hangs, a wait for it would not end. So a call that ends has not waited.
#[test]
fn a_device_that_hangs_holds_up_nobody_who_may_not_wait() {
    const SIZE: u64 = 64 << 20;
    let dir = Dir::new("hang");
    let path = dir.0.join("volume");
    let cache = Cache::builder().memory(32 << 20).build().unwrap();
    let (volume, stack) = attach(&cache, &path, SIZE, "faulty");
    let mut writer = cache.writer();
    let mut data = vec![0; 32 * PAGE];
    for chunk in 0..SIZE / data.len() as u64 {
        fill(&mut data, chunk * 32, 1);
        write(&volume, &mut writer, &data, chunk * 32 * PAGE as u64);
    }
    volume.sync().unwrap();
    stack.faulty[0].hold();
    let (told, heard) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (volume, mut cursor) = (volume.clone_handle(), Cursor::default());
            let mut data = vec![0; 32 * PAGE];
            let mut got = vec![0; 32 * PAGE];
            let (mut wrote, mut read, mut stuck) = (0, 0, 0);
            for round in 0..4000_u64 {
                let page = round * 7919 % (SIZE / PAGE as u64 - 32);
                let offset = page * PAGE as u64 + round % 512 * 8;
                fill(&mut data, page, 2);
                let part = &data[..data.len() - 4096];
                let tried = volume
                    .write(&mut writer, part, offset, Mode::Nonblocking)
                    .unwrap();
                wrote += tried.bytes;
                stuck += u32::from(tried.would_block);
                let tried = volume
                    .read(&mut cursor, &mut got, page * PAGE as u64, Mode::Nonblocking)
                    .unwrap();
                read += tried.bytes;
                stuck += u32::from(tried.would_block);
                let _ = volume.pace(&mut writer).unwrap();
            }
            told.send((wrote, read, stuck)).unwrap();
        });
        let (wrote, read, stuck) =
            heard
                .recv_timeout(Duration::from_secs(300))
                .unwrap_or_else(|_| {
                    stack.faulty[0].release();
                    panic!("somebody waits for a device that hangs");
                });
        assert!(wrote > 0 && read > 0 && stuck > 0, "{wrote} {read} {stuck}");
    });
    stack.faulty[0].release();
    volume.sync().unwrap();
    drop(volume);
    cache.close().unwrap();
}

/// One client of a server: writes its part of a volume in pieces, and is held after each.
struct Client {
    writer: Option<Writer>,
    next: u64,
    end: u64,
    until: Option<Instant>,
    done: usize,
}

/// One thread serves many clients and never waits for one of them; others wait where they are
/// stuck.
#[test]
fn one_thread_serves_many_who_are_held_and_does_not_wait() {
    const CLIENTS: u64 = 16;
    const PAGES: u64 = 768;
    const PIECE: u64 = 16;
    const RATE: u64 = 32_000_000;
    let dir = Dir::new("many");
    let path = dir.0.join("volume");
    let cache = Cache::builder().memory(32 << 20).build().unwrap();
    let size = CLIENTS * PAGES * PAGE as u64;
    let (volume, stack) = attach(&cache, &path, size, &format!("slow:rate={RATE}B"));
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|number| Client {
            writer: Some(cache.writer()),
            next: number * PAGES,
            end: (number + 1) * PAGES,
            until: None,
            done: 0,
        })
        .collect();
    let (stop, most) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    let mut held = Duration::ZERO;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let stats = cache.stats();
                assert!(stats.cached + stats.metadata <= stats.limit);
                let over = (stats.dirty + stats.writeback).saturating_sub(stats.dirty_limit);
                most.fetch_max(over, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let (told, back) = std::sync::mpsc::channel::<(usize, Writer)>();
        let mut piece = vec![0; usize::try_from(PIECE).unwrap() * PAGE];
        while clients
            .iter()
            .any(|client| client.next < client.end || client.until.is_some())
        {
            let mut idle = true;
            for (number, writer) in back.try_iter() {
                clients[number].writer = Some(writer);
            }
            for (number, client) in clients.iter_mut().enumerate() {
                let Some(writer) = &mut client.writer else {
                    continue;
                };
                if let Some(until) = client.until {
                    if Instant::now() < until {
                        continue;
                    }
                    client.until = volume.pace(writer).unwrap();
                    if let Some(next) = client.until {
                        assert!(next > until);
                    }
                    idle = false;
                    continue;
                }
                if client.next == client.end {
                    continue;
                }
                idle = false;
                fill(&mut piece, client.next, 3);
                let offset = client.next * PAGE as u64 + client.done as u64;
                let tried = volume
                    .write(writer, &piece[client.done..], offset, Mode::Nonblocking)
                    .unwrap();
                client.done += tried.bytes;
                if client.done == piece.len() {
                    (client.done, client.next) = (0, client.next + PIECE);
                    let now = Instant::now();
                    client.until = volume.pace(writer).unwrap();
                    held += client.until.map_or(Duration::ZERO, |until| until - now);
                } else {
                    assert!(tried.would_block);
                    let mut writer = client.writer.take().unwrap();
                    let (volume, told) = (volume.clone_handle(), told.clone());
                    let offset = offset + tried.bytes as u64;
                    let left = (piece.len() - client.done) as u64;
                    scope.spawn(move || {
                        volume.prepare_write(&mut writer, offset, left).unwrap();
                        told.send((number, writer)).unwrap();
                    });
                }
            }
            if idle {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let took = began.elapsed();
    volume.sync().unwrap();
    let whole = Duration::from_secs_f64(size as f64 / RATE as f64);
    assert!(
        took > whole / 3,
        "{took:?} for what takes the device {whole:?}: nobody was held"
    );
    let stats = cache.stats();
    let pauses = stats.waits.iter().find(|wait| wait.cause == "dirty pause");
    let paused = pauses.map_or(Duration::ZERO, |wait| wait.total);
    assert!(
        paused >= held / 2,
        "{paused:?} are known of at least {held:?}"
    );
    let over = most.load(Ordering::Relaxed);
    assert!(
        over <= CLIENTS * PIECE * PAGE as u64,
        "{over} bytes over the dirty limit"
    );
    drop((volume, clients, stack));
    cache.close().unwrap();
    let on_disk = std::fs::read(&path).unwrap();
    let mut expected = vec![0; PAGE];
    for (page, bytes) in on_disk.chunks(PAGE).enumerate() {
        fill(&mut expected, page as u64, 3);
        assert!(bytes == expected, "page {page}");
    }
}

/// A writer belongs to the cache that made it: frames that it was given are that one's, and so are
/// what it owes and to which law. Used with another cache it is a new one there.
#[test]
fn a_writer_of_another_cache_brings_nothing_along() {
    let dir = Dir::new("stranger");
    let small = Cache::builder()
        .memory(32 << 20)
        .law(history::dirty::RATE_BASED);
    let (one, other) = (
        small.build().unwrap(),
        Cache::builder().memory(64 << 20).build().unwrap(),
    );
    let (its, _) = attach(&one, &dir.0.join("one"), 16 << 20, "slow:latency=1us");
    let (others, _) = attach(&other, &dir.0.join("other"), 16 << 20, "slow:latency=1us");
    let mut writer = other.writer();
    let free = other.stats().free;
    others
        .prepare_write(&mut writer, 0, 32 * PAGE as u64)
        .unwrap();
    assert_eq!(
        other.stats().free,
        free - 32 * PAGE as u64,
        "the writer has them"
    );
    let mut data = vec![0; 32 * PAGE];
    fill(&mut data, 0, 1);
    write(&its, &mut writer, &data, 0);
    assert_eq!(other.stats().free, free, "and has given them back");
    its.sync().unwrap();
    let mut got = vec![0; 32 * PAGE];
    its.read(&mut Cursor::default(), &mut got, 0, Mode::Blocking)
        .unwrap();
    assert!(got == data);
    write(&others, &mut writer, &data, 0);
    drop((its, others));
    one.close().unwrap();
    other.close().unwrap();
}

#[test]
fn who_closes_again_a_cache_that_could_not_keep_all_hears_the_same() {
    let dir = Dir::new("failed");
    let cache = Cache::builder().memory(16 << 20).build().unwrap();
    let (volume, _stack) = attach(&cache, &dir.0.join("v"), 1 << 20, "faulty:eio_writes=1");
    write(&volume, &mut cache.writer(), &[1; PAGE], 0);
    for _ in 0..2 {
        let told = cache.close().unwrap_err();
        assert_eq!(told.errno(), Some(5), "{told:?}");
    }
}
