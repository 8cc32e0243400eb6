//! The price to a server of a call that does not wait: a read of resident pages and a write of
//! resident dirty ones, beside those that may wait, on one thread.

use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Instant;

use os::FileDevice;
use tidegate::{Backing, Cache, Cursor, Error, Mode, OpenOptions, Volume, VolumeOptions, Writer};

const PAGES: u32 = 4096;
const ROUNDS: u32 = 1_000_000;

fn main() {
    let dir = std::env::temp_dir().join(format!("tidegate-volume-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a writable directory for temporary files");
    let cache = Cache::builder().memory(256 << 20).build().expect("256 MiB");
    let file = cache
        .open(dir.join("file"), OpenOptions::new().create(true))
        .expect("a fresh file");
    let path = dir.join("volume");
    let plain = std::fs::File::create(&path).expect("a fresh file");
    plain.set_len(u64::from(PAGES) * 4096).expect("a good disk");
    let volume = attach(&cache, &path).expect("a device of its own");
    let (mut writer, mut cursor) = (cache.writer(), Cursor::default());
    let chunk = vec![1_u8; 128 << 10];
    for at in 0..u64::from(PAGES) / 32 {
        write(&volume, &mut writer, &chunk, at * (128 << 10));
        file.write_at(&chunk, at * (128 << 10))
            .expect("a good disk");
    }
    let mut page = vec![0_u8; 4096];
    let mut many = vec![0_u8; 128 << 10];
    for _ in 0..3 {
        let (count, few) = (ROUNDS, ROUNDS / 20);
        let volume_read = per_round(count, |at| {
            let tried = volume.read(
                &mut cursor,
                &mut page,
                scatter(at) * 4096,
                Mode::Nonblocking,
            );
            assert!(!tried.expect("resident").would_block);
        });
        let read_at = per_round(count, |at| {
            black_box(
                file.read_at(&mut page, scatter(at) * 4096)
                    .expect("resident"),
            );
        });
        let volume_write = per_round(count, |at| {
            let tried = volume.write(
                &mut writer,
                &chunk[..4096],
                scatter(at) * 4096,
                Mode::Nonblocking,
            );
            assert!(!tried.expect("resident").would_block);
            black_box(volume.pace(&mut writer).expect("a good disk"));
        });
        let write_at = per_round(count, |at| {
            file.write_at(&chunk[..4096], scatter(at) * 4096)
                .expect("resident");
        });
        let volume_read_many = per_round(few, |at| {
            let at = scatter(at) / 32 * (128 << 10);
            let tried = volume.read(&mut cursor, &mut many, at, Mode::Nonblocking);
            assert!(!tried.expect("resident").would_block);
        });
        let read_many = per_round(few, |at| {
            let at = scatter(at) / 32 * (128 << 10);
            black_box(file.read_at(&mut many, at).expect("resident"));
        });
        let volume_write_many = per_round(few, |at| {
            let at = scatter(at) / 32 * (128 << 10);
            let tried = volume.write(&mut writer, &chunk, at, Mode::Nonblocking);
            assert!(!tried.expect("resident").would_block);
            black_box(volume.pace(&mut writer).expect("a good disk"));
        });
        let write_many = per_round(few, |at| {
            let at = scatter(at) / 32 * (128 << 10);
            file.write_at(&chunk, at).expect("resident");
        });
        println!(
            "ns: 4 KiB: volume_read {volume_read:.0}, read_at {read_at:.0}; volume_write + pace {volume_write:.0}, write_at \
             {write_at:.0}; 128 KiB: volume_read {volume_read_many:.0}, read_at {read_many:.0}; volume_write + pace \
             {volume_write_many:.0}, write_at {write_many:.0}"
        );
    }
    let pace = per_round(ROUNDS, |_| {
        black_box(volume.pace(&mut writer).expect("a good disk"));
    });
    let memcpy = per_round(ROUNDS, |at| {
        let from = usize::try_from(scatter(at) % 31).expect("small") * 4096;
        page.copy_from_slice(black_box(&chunk[from..from + 4096]));
        black_box(&page);
    });
    println!("ns: pace alone {pace:.0}; 4 KiB copied {memcpy:.0}");
    drop((writer, volume, file));
    cache.close().expect("a good disk");
    assert_eq!(byte_at(&path, 4095), 1);
    std::fs::remove_dir_all(&dir).expect("our own directory");
}

fn attach(cache: &Cache, path: &std::path::Path) -> Result<Volume, Error> {
    cache.attach(VolumeOptions::default(), |env| {
        let files = FileDevice::new(env)?;
        let (object, len) = files.open(path, os::OpenOptions::default())?;
        let device = Arc::clone(&files) as Arc<dyn env::Device>;
        Ok(Backing {
            device,
            object,
            size: len.0,
        })
    })
}

fn write(volume: &Volume, writer: &mut Writer, data: &[u8], at: u64) {
    let mut done = 0;
    while done < data.len() {
        let from = at + done as u64;
        let tried = volume
            .write(writer, &data[done..], from, Mode::Nonblocking)
            .expect("a good disk");
        done += tried.bytes;
        if tried.would_block {
            let (from, len) = (at + done as u64, (data.len() - done) as u64);
            volume
                .prepare_write(writer, from, len)
                .expect("a good disk");
        }
    }
}

fn byte_at(path: &std::path::Path, at: u64) -> u8 {
    let mut byte = [0];
    let file = std::fs::File::open(path).expect("the same file");
    file.read_exact_at(&mut byte, at).expect("a good disk");
    byte[0]
}

/// Pages in an order that no prefetcher guesses.
fn scatter(at: u32) -> u64 {
    u64::from(at.wrapping_mul(2_654_435_761) % PAGES)
}

fn per_round(rounds: u32, mut round: impl FnMut(u32)) -> f64 {
    let began = Instant::now();
    for at in 0..rounds {
        round(at);
    }
    began.elapsed().as_secs_f64() * 1e9 / f64::from(rounds)
}
