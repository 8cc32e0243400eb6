//! A program on a disk that fails or is slow, and a file's own account: `Builder::layers`,
//! `Error::File`, `File::stats`.

use std::path::PathBuf;
use std::time::Duration;

use tidegate::{Cache, CacheError, Error, OpenOptions, PAGE_SIZE};

const MIB: usize = 1 << 20;

/// A file of its own, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("tidegate-layers-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn cache(layers: &str) -> Cache {
    let builder = Cache::builder().memory(32 << 20);
    builder.layers(layers).unwrap().build().unwrap()
}

#[test]
fn a_disk_works_again_once_its_layers_are_released() {
    for layers in [
        "faulty:eio_writes=1",
        "faulty:flush_fails=1",
        "faulty:full_after=4KiB",
    ] {
        let scratch = Scratch::new("again");
        let cache = cache(layers);
        let create = OpenOptions::new().create(true);
        let file = cache.open(&scratch.0, create).unwrap();
        let data = vec![7; MIB];
        // Where there is no space, the write hears of it.
        let taken = match file.write_at(&data, 0) {
            Ok(taken) => taken,
            Err(Error::File { taken, .. }) => usize::try_from(taken).unwrap(),
            Err(error) => panic!("{layers}: {error}"),
        };
        if taken == data.len() {
            file.sync().unwrap_err();
        }
        cache.release_layers();
        cache.reopen_device(&scratch.0).unwrap();
        file.write_at(&data, 0).unwrap();
        file.sync()
            .unwrap_or_else(|error| panic!("{layers}: {error}"));
        assert_eq!(std::fs::read(&scratch.0).unwrap(), data, "{layers}");
        file.close().unwrap();
        cache.close().unwrap();
    }
}

#[test]
fn an_error_names_the_file_and_the_offset() {
    let scratch = Scratch::new("names");
    std::fs::write(&scratch.0, vec![1; MIB]).unwrap();
    let cache = cache("faulty:eio_range=64KiB..68KiB");
    let file = cache.open(&scratch.0, OpenOptions::new()).unwrap();
    let mut data = [0; PAGE_SIZE];
    let error = file.read_at(&mut data, 16 * PAGE_SIZE as u64).unwrap_err();
    let Error::File {
        path,
        error: inner,
        taken: 0,
    } = &error
    else {
        panic!("{error:?}");
    };
    assert_eq!(*path, scratch.0);
    assert!(matches!(inner, CacheError::ReadFailed { offset, .. } if offset.0 == 65536));
    let words = error.to_string();
    assert!(
        words.starts_with(&format!("{}: ", scratch.0.display())),
        "{words}"
    );
    assert_eq!(
        std::io::Error::from(error).kind(),
        std::io::Error::from_raw_os_error(5).kind()
    );
    drop(file);
    cache.close().unwrap();
}

#[test]
fn a_write_that_fails_says_how_much_was_taken_in() {
    let scratch = Scratch::new("full");
    let cache = cache("faulty:full_after=2MiB");
    let create = OpenOptions::new().create(true);
    let file = cache.open(&scratch.0, create).unwrap();
    let error = file.write_at(&vec![3; 8 * MIB], 0).unwrap_err();
    let Error::File { taken, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(file.len(), taken, "what was taken in is part of the file");
    assert!(taken > 0 && taken < 8 * MIB as u64, "{taken}");
    assert!(
        error
            .to_string()
            .contains(&format!("the first {taken} bytes"))
    );
    assert_eq!(
        std::io::Error::from(error).kind(),
        std::io::ErrorKind::StorageFull
    );
    cache.release_layers();
    let _ = file.discard();
    let _ = cache.close();
}

#[test]
fn a_file_says_what_was_found_in_memory() {
    let scratch = Scratch::new("stats");
    std::fs::write(&scratch.0, vec![1; 64 * PAGE_SIZE]).unwrap();
    let builder = Cache::builder().memory(32 << 20).readahead(0);
    let cache = builder.build().unwrap();
    let file = cache.open(&scratch.0, OpenOptions::new()).unwrap();
    assert_eq!(file.path(), scratch.0);
    let mut data = vec![0; 16 * PAGE_SIZE];
    for _ in 0..2 {
        file.read_at(&mut data, 0).unwrap();
    }
    let read = file.stats().unwrap();
    assert_eq!((read.misses_total, read.hits_total), (16, 16));
    assert_eq!((read.cached, read.dirty), (16 * PAGE_SIZE as u64, 0));
    // Another handle sees the same file.
    let other = cache.open(&scratch.0, OpenOptions::new()).unwrap();
    other
        .write_at(&[2; PAGE_SIZE], 20 * PAGE_SIZE as u64)
        .unwrap();
    let written = file.stats().unwrap();
    assert_eq!(written.cached, 17 * PAGE_SIZE as u64);
    assert_eq!(written.dirty + written.writeback, PAGE_SIZE as u64);
    drop((file, other));
    cache.close().unwrap();
}

#[test]
fn layers_that_are_not_there_are_refused_by_name() {
    for (layers, word) in [
        ("slwo:rate=1MB", "slow"),
        ("volatile:size=1MiB", "memory"),
        ("", "layer"),
    ] {
        let refused = Cache::builder().layers(layers);
        let Err(error @ Error::BadLayers { .. }) = refused else {
            panic!("{layers}");
        };
        let words = error.to_string();
        assert!(words.contains(word) && words.contains(layers), "{words}");
    }
}

/// On a slow disk: the file and the writer say what was waited for, and a call that took long is
/// told with its causes.
#[test]
fn a_slow_write_says_why() {
    use std::sync::{Arc, Mutex};

    let scratch = Scratch::new("why");
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&told);
    let builder =
        Cache::builder()
            .memory(32 << 20)
            .on_slow(Duration::from_millis(1), move |call| {
                let waits: Duration = call.waits.iter().map(|wait| wait.total).sum();
                assert_eq!(waits + call.own, call.took);
                tell.lock().unwrap().push((call.call, call.to_string()));
            });
    let cache = builder.layers("slow:rate=16MB").unwrap().build().unwrap();
    let create = OpenOptions::new().create(true);
    let file = cache.open(&scratch.0, create).unwrap();
    let (mut paced, mut idle) = (cache.writer(), cache.writer());
    file.write_at_with(&mut idle, &[1; PAGE_SIZE], 0).unwrap();
    for at in 0..24 {
        file.write_at_with(&mut paced, &[1; MIB], at * MIB as u64)
            .unwrap();
    }
    file.sync().unwrap();
    let cause = |waits: &tidegate::CallWaits, name| {
        let mut all = waits.by_cause.iter();
        all.find(|wait| wait.cause == name)
            .map_or(0, |wait| wait.count)
    };
    assert!(
        cause(&paced.waits(), "dirty pause") > 0,
        "{:?}",
        paced.waits()
    );
    assert_eq!(cause(&idle.waits(), "dirty pause"), 0);
    assert_eq!(paced.waits().timed, 24);
    let of_file = file.waits();
    assert!(cause(&of_file, "dirty pause") >= cause(&paced.waits(), "dirty pause"));
    assert!(of_file.longest.is_some());
    // All calls, the sync among them.
    assert_eq!(of_file.timed, 26);
    let so_far = told.lock().unwrap();
    let write = so_far
        .iter()
        .find(|(call, words)| *call == "write" && words.contains("dirty pause"));
    let (_, words) = write.unwrap_or_else(|| panic!("{so_far:?}"));
    assert!(words.contains(&scratch.0.display().to_string()), "{words}");
    drop((paced, idle, so_far));
    // This disk needs longer than a millisecond for it.
    file.write_at(&[2; MIB], 0).unwrap();
    file.close().unwrap();
    let told = told.lock().unwrap();
    assert!(told.iter().any(|(call, _)| *call == "close"), "{told:?}");
    cache.close().unwrap();
}

#[test]
fn what_needs_no_wait_is_taken_in_and_a_disk_that_hangs_holds_nobody() {
    let scratch = Scratch::new("at once");
    // Its memory is there, and the file is as long: to get more of either is a wait, too.
    let file = std::fs::File::create(&scratch.0).unwrap();
    file.set_len(64 * MIB as u64).unwrap();
    let builder = Cache::builder().memory(32 << 20).prefault(true);
    let builder = builder.layers("slow:latency=1000s").unwrap();
    let cache = builder.build().unwrap();
    let file = cache.open(&scratch.0, OpenOptions::new()).unwrap();
    let data: Vec<u8> = (0..64 * MIB)
        .map(|at| u8::try_from(at / 4096 % 256).unwrap())
        .collect();
    let mut at = 0;
    loop {
        let taken = file.try_write_at(&data[at..], at as u64).unwrap();
        assert!(taken.bytes <= MIB / 4);
        at += taken.bytes;
        if taken.would_block {
            break;
        }
        assert!(at < data.len(), "more than the memory was taken in");
    }
    assert!(at >= MIB, "{at} bytes were taken in");
    let mut back = vec![0; at];
    assert_eq!(file.try_read_at(&mut back, 0).unwrap().bytes, at);
    assert!(back == data[..at]);
    // Requests that hung fail when the disk is released; what was taken in is there, and goes out
    // with the rest.
    cache.release_layers();
    let _ = file.sync();
    cache.reopen_device(&scratch.0).unwrap();
    file.write_at(&data[at..], at as u64).unwrap();
    file.sync().unwrap();
    assert!(std::fs::read(&scratch.0).unwrap() == data);
    let read_only = cache.open(&scratch.0, OpenOptions::new().read_only(true));
    let refused = read_only.unwrap().try_write_at(b"x", 0).unwrap_err();
    assert!(matches!(refused, Error::ReadOnly), "{refused}");
    let beyond = file.try_write_at(b"x", 1 << 60).unwrap_err();
    assert_eq!(beyond.errno(), Some(27), "EFBIG: {beyond}");
    let Err(error) = cache.open("a\0b", OpenOptions::new()) else {
        panic!("there is no such path");
    };
    assert_eq!(error.errno(), Some(22), "EINVAL: {error}");
    file.close().unwrap();
    cache.close().unwrap();
}
