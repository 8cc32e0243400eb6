//! Maps on real files: what is stored comes to the file, the limit holds, and errors are heard.
//! Where the system lets the process answer no page faults, the tests say SKIPPED and why.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod dir;
mod memory;

use std::future::Future;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use os::FileDevice;
use tidegate::{
    Backing, Cache, CacheError, Cursor, Error, File, Map, MapOptions, Mode, OpenOptions, RuleMaker,
    Spill, SystemError, Volume, VolumeOptions, WriteAhead,
};

use crate::dir::Dir;
use crate::memory::page_of;

const PAGE: u64 = 4096;
const SIGBUS: i32 = 7;
/// The name of the variable by which a test of a child's end tells it which end.
const CHILD: &str = "TIDEGATE_MAPS_CHILD";
/// And of the file that it uses.
const FILE: &str = "TIDEGATE_MAPS_FILE";
/// And of the rule of its cache.
const RULE: &str = "TIDEGATE_MAPS_RULE";

/// A generator of numbers: xorshift.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

fn cache(bytes: u64) -> Cache {
    Cache::builder().memory(bytes).maps(true).build().unwrap()
}

/// A file of `pages` pages, each of which says in its first word which it is.
fn numbered(path: &Path, pages: u64) {
    let mut all = Vec::new();
    for page in 0..pages {
        all.extend_from_slice(&page.to_le_bytes());
        all.resize(all.len() + 4088, 0);
    }
    std::fs::write(path, all).unwrap();
}

/// A map of the whole file, or nothing where the system has none for this process.
fn map(cache: &Cache, path: &Path, write: bool) -> Option<Map> {
    let file = cache.open(path, OpenOptions::new()).unwrap();
    match file.map(0..file.len(), MapOptions::new().write(write)) {
        Ok(map) => Some(map),
        Err(Error::System(error)) if has_no_maps(&error) => {
            skip(&error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The system lets this process answer no page faults, or is too old for it.
fn has_no_maps(error: &SystemError) -> bool {
    match error {
        SystemError::NoFaults { .. } => true,
        SystemError::System { what, .. } => what.starts_with("userfaultfd"),
        _ => false,
    }
}

/// Past what the tests' program keeps to itself; and for the test whose child this is.
fn skip(why: &str) {
    println!("SKIPPED");
    let _ = writeln!(std::io::stderr(), "SKIPPED: a test of maps: {why}");
}

fn word(map: &Map, offset: u64) -> u64 {
    let mut word = [0; 8];
    map.read_into(&mut word, offset).unwrap();
    u64::from_le_bytes(word)
}

fn store(map: &Map, offset: u64, value: u64) {
    map.write_from(&value.to_le_bytes(), offset).unwrap();
}

/// Several threads store to pages here and there, and load others; after a sync the file has what
/// each of them stored last.
fn verify(cache: &Cache, path: &Path, (pages, threads, stores): (u64, u64, u64)) {
    numbered(path, pages);
    let Some(map) = map(cache, path, true) else {
        return;
    };
    let map = Arc::new(map);
    let limit = cache.stats().limit;
    let storers = (0..threads).map(|thread| {
        let map = Arc::clone(&map);
        std::thread::spawn(move || {
            let mut numbers = Numbers(88_172_645_463_325_252 + thread * 7919);
            let mut last = vec![0; usize::try_from(pages).unwrap()];
            for count in 1..=stores {
                let page = numbers.below(pages);
                let at = page * PAGE + 800 + thread * 8;
                let seen = &mut last[usize::try_from(page).unwrap()];
                assert_eq!(word(&map, at), *seen, "page {page} of thread {thread}");
                *seen = thread << 56 | count;
                store(&map, at, *seen);
                let other = numbers.below(pages);
                assert_eq!(word(&map, other * PAGE), other);
                if count % 500 == 0 {
                    map.sync(0..map.len() as u64).unwrap();
                    assert!(map.resident() <= limit, "{} of {limit}", map.resident());
                }
            }
            last
        })
    });
    let storers: Vec<_> = storers.collect();
    let last: Vec<_> = storers.into_iter().map(|t| t.join().unwrap()).collect();
    map.sync(0..map.len() as u64).unwrap();
    let stats = map.stats();
    assert!(
        stats.stores_total > 0 && stats.failed_total == 0,
        "{stats:?}"
    );
    let file = std::fs::read(path).unwrap();
    let mut lost = Vec::new();
    for (page, bytes) in file.chunks(4096).enumerate() {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!(word(0), page as u64);
        for (thread, last) in last.iter().enumerate() {
            if word(800 + thread * 8) != last[page] {
                lost.push((page, thread));
            }
        }
    }
    assert!(lost.is_empty(), "stores that are not in the file: {lost:?}");
    drop(map);
}

#[test]
fn what_threads_store_here_and_there_is_in_the_file_after_a_sync() {
    let dir = Dir::new("verify");
    let cache = cache(16 << 20);
    verify(&cache, &dir.0.join("data"), (16384, 3, 4000));
    cache.close().unwrap();
}

#[test]
fn the_same_under_every_rule() {
    let dir = Dir::new("rules");
    for rule in RULES {
        let cache = cache_by(rule, 16 << 20);
        verify(&cache, &dir.0.join("data"), (8192, 3, 1000));
        cache.close().unwrap();
    }
}

#[test]
fn scans_in_order_need_few_faults_and_keep_the_limit() {
    let dir = Dir::new("scan");
    let path = dir.0.join("data");
    let pages = 16384;
    numbered(&path, pages);
    let cache = cache(16 << 20);
    let Some(map) = map(&cache, &path, true) else {
        return;
    };
    for page in 0..pages {
        assert_eq!(word(&map, page * PAGE), page);
    }
    let loads = map.stats();
    assert!(loads.faults_total < pages / 4, "{loads:?}");
    for page in 0..pages {
        store(&map, page * PAGE + 8, !page);
        if page % 1024 == 0 {
            assert!(map.resident() <= cache.stats().limit);
        }
    }
    let stores = map.stats();
    assert!(stores.stores_total < pages / 4, "{stores:?}");
    map.sync(0..map.len() as u64).unwrap();
    let file = std::fs::read(&path).unwrap();
    for (page, bytes) in (0_u64..).zip(file.chunks(4096)) {
        assert_eq!(bytes[..8], page.to_le_bytes());
        assert_eq!(bytes[8..16], (!page).to_le_bytes());
    }
}

#[test]
fn calls_on_the_file_and_the_map_see_the_same_bytes() {
    let dir = Dir::new("calls");
    let path = dir.0.join("data");
    numbered(&path, 64);
    let cache = cache(16 << 20);
    let file = cache.open(&path, OpenOptions::new()).unwrap();
    // Pinned before: its holder keeps what it sees, and the map has the page all the same.
    let pinned = file.pin(3).unwrap();
    file.write_at(&7_u64.to_le_bytes(), 5 * PAGE).unwrap();
    let Some(map) = map(&cache, &path, true) else {
        return;
    };
    assert_eq!(word(&map, 3 * PAGE), 3);
    store(&map, 3 * PAGE, 33);
    assert_eq!(pinned[..8], 3_u64.to_le_bytes());
    drop(pinned);
    assert_eq!(word(&map, 5 * PAGE), 7, "dirty when it was mapped");
    let mut read = [0; 8];
    file.read_at(&mut read, 3 * PAGE).unwrap();
    assert_eq!(u64::from_le_bytes(read), 33);
    file.write_at(&44_u64.to_le_bytes(), 3 * PAGE).unwrap();
    assert_eq!(word(&map, 3 * PAGE), 44);
    let shown = file.show_at(3 * PAGE, 8, |bytes| assert_eq!(bytes, 44_u64.to_le_bytes()));
    assert_eq!(shown.unwrap(), 8);
    // No pins, and no second map, while it is mapped.
    let refused = |error: Option<Error>| error.unwrap().to_string().contains("is mapped");
    assert!(refused(file.pin(4).err()));
    assert!(refused(file.pin_run(4, 2).err()));
    assert!(file.try_pin(4).is_none());
    let again = file.map(0..PAGE, MapOptions::new());
    assert!(refused(again.err()));
    // Stores that the map's end leaves to the file.
    store(&map, 6 * PAGE, 66);
    drop(map);
    let pinned = file.pin(6).unwrap();
    assert_eq!(pinned[..8], 66_u64.to_le_bytes());
    file.write_at(&67_u64.to_le_bytes(), 6 * PAGE).unwrap();
    assert_eq!(pinned[..8], 66_u64.to_le_bytes());
    drop(pinned);
    let map = file.map(0..file.len(), MapOptions::new()).unwrap();
    assert_eq!(word(&map, 6 * PAGE), 67);
    assert_eq!(word(&map, 3 * PAGE), 44);
    let error = map.write_from(&[1], 0).unwrap_err();
    assert!(matches!(error, Error::ReadOnly), "{error}");
    drop(map);
    file.sync().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes[6 * 4096..][..8], 67_u64.to_le_bytes());
}

#[test]
fn memory_of_a_map_is_no_child_s_and_goes_with_it() {
    let dir = Dir::new("fork");
    let path = dir.0.join("data");
    numbered(&path, 1024);
    let cache = cache(16 << 20);
    let Some(map) = map(&cache, &path, false) else {
        return;
    };
    map.populate(0..map.len() as u64).unwrap();
    assert_eq!(map.resident(), 4 << 20);
    let parts = || {
        let all = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut parts = Vec::new();
        let mut is_ours = false;
        for line in all.lines() {
            if line.contains("tidegate-map") {
                is_ours = true;
            } else if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| is_ours) {
                parts.push(flags.to_owned());
                is_ours = false;
            }
        }
        parts
    };
    let ours = parts();
    assert!(ours.len() >= 2, "a view and an alias: {ours:?}");
    // Not copied at a fork.
    assert!(ours.iter().all(|flags| flags.contains(" dc")), "{ours:?}");
    let resident = map.resident();
    map.advise(tidegate::Advice::DontNeed, 0..map.len() as u64 / 2)
        .unwrap();
    assert_eq!(map.resident(), resident / 2);
    assert_eq!(word(&map, 0), 0);
    assert_eq!(word(&map, PAGE), 1);
    drop(map);
    cache.close().unwrap();
}

#[test]
fn a_map_s_sync_answers_the_errors_of_writes() {
    let dir = Dir::new("errors");
    let path = dir.0.join("data");
    numbered(&path, 64);
    let builder = Cache::builder().memory(16 << 20).maps(true);
    let cache = builder.layers("faulty:eio_write_at=1").unwrap();
    let cache = cache.build().unwrap();
    let Some(map) = map(&cache, &path, true) else {
        return;
    };
    store(&map, 9 * PAGE, 99);
    let error = map.sync(0..map.len() as u64).unwrap_err();
    assert!(error.to_string().contains("data"), "{error}");
    // It is still there, and still dirty. A store to a page that has to be read hears nothing.
    assert_eq!(word(&map, 9 * PAGE), 99);
    store(&map, 20 * PAGE, 99);
    map.sync(0..map.len() as u64).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    for page in [9, 20] {
        assert_eq!(bytes[page * 4096..][..8], 99_u64.to_le_bytes());
    }
    assert_eq!(map.stats().failed_total, 0);
}

#[test]
fn memory_of_a_map_may_be_given_to_calls_on_its_own_page() {
    let dir = Dir::new("own");
    let path = dir.0.join("data");
    numbered(&path, 4096);
    let cache = cache(16 << 20);
    let file = cache.open(&path, OpenOptions::new()).unwrap();
    let Some(map) = map(&cache, &path, true) else {
        return;
    };
    // A page that is dropped and loaded again while a call would hold it.
    for page in [5, 77, 4000] {
        map.advise(tidegate::Advice::DontNeed, 0..map.len() as u64)
            .unwrap();
        let shown = file.show_at(page * PAGE, PAGE, |_| store(&map, page * PAGE, page + 1));
        assert_eq!(shown.unwrap(), PAGE);
        assert_eq!(word(&map, page * PAGE), page + 1);
    }
}

/// Memory that a call can be on, each with a page that is in memory.
struct Stage {
    cache: Cache,
    file: Arc<File>,
    volume: Volume,
    spill: Spill,
}

impl Stage {
    fn read(&self, on: On, data: &mut [u8]) {
        match on {
            On::File => assert_eq!(self.file.read_at(data, 0).unwrap(), data.len()),
            On::Volume => {
                let mut cursor = Cursor::default();
                let read = self.volume.read(&mut cursor, data, 0, Mode::Blocking);
                assert_eq!(read.unwrap().bytes, data.len());
            }
            On::Spill => self.spill.read_at(data, 0).unwrap(),
        }
    }

    /// Waits for the holder of the page: a store to one that is at home in a map, or of a region,
    /// waits for a reader.
    fn meet(&self, on: On, is_fill: bool) {
        match on {
            On::File if is_fill => drop(self.file.write_at(&[7; 8], 0).unwrap()),
            On::Spill if is_fill => self.spill.write_at(&[7; 8], 0).unwrap(),
            _ => self.read(on, &mut [0; 8]),
        }
    }

    fn write(&self, mode: Mode, data: &[u8]) {
        let mut writer = self.cache.writer();
        let written = self.volume.write(&mut writer, data, 0, mode).unwrap();
        assert_eq!(written.bytes, data.len());
    }

    fn read_volume(&self, mode: Mode, data: &mut [u8]) {
        let mut cursor = Cursor::default();
        let read = self.volume.read(&mut cursor, data, 0, mode).unwrap();
        assert_eq!(read.bytes, data.len());
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    File,
    Volume,
    Spill,
}

type Memory = &'static mut [u8];
/// A call's name, and the call on a page of the stage.
type Call = (&'static str, On, fn(&Stage, Memory));

/// Those that take memory.
const TAKES: [Call; 9] = [
    ("write_at", On::File, |stage, data| {
        assert_eq!(stage.file.write_at(data, 0).unwrap(), data.len());
    }),
    ("try_write_at", On::File, |stage, data| {
        assert_eq!(stage.file.try_write_at(data, 0).unwrap().bytes, data.len());
    }),
    ("try_write_at_with", On::File, |stage, data| {
        let mut writer = stage.cache.writer();
        let written = stage.file.try_write_at_with(&mut writer, data, 0);
        assert_eq!(written.unwrap().bytes, data.len());
    }),
    ("write_at_with", On::File, |stage, data| {
        let mut writer = stage.cache.writer();
        let written = stage.file.write_at_with(&mut writer, data, 0);
        assert_eq!(written.unwrap(), data.len());
    }),
    ("write_logged", On::File, |stage, data| {
        let log = WriteAhead::new(|_| ());
        log.durable(1);
        stage.file.follow(&log).unwrap();
        assert_eq!(stage.file.write_logged(data, 0, 1).unwrap(), data.len());
    }),
    ("write_async", On::File, |stage, data| {
        let len = data.len();
        let (written, _) = wait_for(stage.file.write_async(data, 0));
        assert_eq!(written.unwrap(), len);
    }),
    ("write", On::Volume, |stage, data| {
        stage.write(Mode::Blocking, data)
    }),
    ("write", On::Volume, |stage, data| {
        stage.write(Mode::Nonblocking, data)
    }),
    ("write_at", On::Spill, |stage, data| {
        stage.spill.write_at(data, 0).unwrap()
    }),
];

/// Those that fill it.
const FILLS: [Call; 6] = [
    ("read_at", On::File, |stage, data| {
        stage.read(On::File, data)
    }),
    ("try_read_at", On::File, |stage, data| {
        assert_eq!(stage.file.try_read_at(data, 0).unwrap().bytes, data.len());
    }),
    ("read_async", On::File, |stage, data| {
        let len = data.len();
        let (read, _) = wait_for(stage.file.read_async(data, 0));
        assert_eq!(read.unwrap(), len);
    }),
    ("read", On::Volume, |stage, data| {
        stage.read_volume(Mode::Blocking, data)
    }),
    ("read", On::Volume, |stage, data| {
        stage.read_volume(Mode::Nonblocking, data)
    }),
    ("read_at", On::Spill, |stage, data| {
        stage.read(On::Spill, data)
    }),
];

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn wait_for<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Public calls of a source whose signature has bytes of the caller's.
fn calls_with_bytes(source: &str) -> Vec<&str> {
    let calls = source.split("pub fn ").skip(1);
    let calls = calls.filter_map(|call| Some((call, call.split_once(" {\n")?.0)));
    let calls = calls.filter(|(_, signature)| signature.contains("[u8]"));
    let names = calls.filter_map(|(call, _)| call.split(['(', '<']).next());
    // Its bytes are the cache's.
    names.filter(|name| *name != "show_at").collect()
}

#[test]
fn every_call_with_memory_is_tried_with_memory_of_a_map() {
    let sources = [
        (On::File, include_str!("../src/file.rs")),
        (On::File, include_str!("../src/future.rs")),
        (On::Volume, include_str!("../src/volume.rs")),
        (On::Spill, include_str!("../src/spill.rs")),
    ];
    let mut count = 0;
    for (on, source) in sources {
        for name in calls_with_bytes(source) {
            let mut known = TAKES.iter().chain(&FILLS);
            let is_known = known.any(|(known, known_on, _)| (*known, *known_on) == (name, on));
            assert!(
                is_known,
                "{name} of {on:?} is not tried with memory of a map"
            );
            count += 1;
        }
    }
    assert_eq!(count, 13, "calls were found by their signatures");
}

/// Time that the device takes for a request, and time after which nothing of a call that meets a
/// fault is held.
const SLOW: Duration = Duration::from_millis(300);

#[test]
fn calls_hold_no_page_while_memory_of_a_map_faults() {
    let dir = Dir::new("held");
    let path = dir.0.join("data");
    let count = TAKES.len() + FILLS.len();
    numbered(&path, count as u64);
    let builder = Cache::builder().memory(16 << 20).maps(true).readahead(0);
    let builder = builder.swap_file(dir.0.join("swap"), 1 << 20);
    let cache = builder.layers("slow:latency=300ms").unwrap();
    let cache = cache.build().unwrap();
    let Some(map) = map(&cache, &path, true) else {
        return;
    };
    let other = dir.0.join("volume");
    std::fs::write(&other, [0; 4096]).unwrap();
    let attached = cache.attach(VolumeOptions::default(), |env| {
        let device = FileDevice::new(env)?;
        let (object, len) = device.open(&other, os::OpenOptions::default())?;
        Ok::<_, Error>(Backing {
            device,
            object,
            size: len.0,
        })
    });
    let create = OpenOptions::new().create(true);
    let stage = Stage {
        file: Arc::new(cache.open(dir.0.join("file"), create).unwrap()),
        volume: attached.unwrap(),
        spill: cache.spill(1 << 20).unwrap(),
        cache: cache.clone(),
    };
    let target = [7; 4096];
    stage.file.write_at(&target, 0).unwrap();
    stage.write(Mode::Blocking, &target);
    stage.spill.write_at(&target, 0).unwrap();
    let mapped = stage.file.map(0..PAGE, MapOptions::new()).unwrap();
    assert_eq!(word(&mapped, 0), 0x0707_0707_0707_0707);
    let all = FILLS.iter().chain(&TAKES);
    for (at, (name, on, call)) in all.enumerate() {
        // No other test has its pages, and nobody has loaded this one.
        let began = Instant::now();
        std::thread::scope(|scope| {
            let called = scope.spawn(|| call(&stage, page_of(&map, at)));
            std::thread::sleep(SLOW / 5);
            assert!(!called.is_finished(), "{name} of {on:?} met no fault");
            let asked = Instant::now();
            stage.meet(*on, at < FILLS.len());
            let took = asked.elapsed();
            assert!(!called.is_finished(), "{name} of {on:?}: {took:?}");
            called.join().unwrap();
        });
        assert!(began.elapsed() >= SLOW * 2 / 3, "{name} of {on:?}");
        // The bytes went to where they are wanted.
        let (mut bytes, mut page) = ([0; 4096], [0; 4096]);
        stage.read(*on, &mut bytes);
        map.read_into(&mut page, at as u64 * PAGE).unwrap();
        assert_eq!(bytes, page, "{name} of {on:?}");
        let is_fill = at < FILLS.len();
        let number = if is_fill {
            0x0707_0707_0707_0707
        } else {
            at as u64
        };
        assert_eq!(word(&map, at as u64 * PAGE), number, "{name} of {on:?}");
    }
    let waits = cache.stats().waits;
    let mut names = waits.iter().map(|wait| (wait.cause, wait.count, wait.max));
    let has = |cause| names.any(|(name, count, max)| name == cause && count > 0 && max >= SLOW / 2);
    assert!(
        [("map fault"), ("map store")].into_iter().all(has),
        "{waits:?}"
    );
}

#[test]
fn a_file_that_is_cut_and_grows_under_faults_keeps_the_rest() {
    let dir = Dir::new("cut");
    let path = dir.0.join("data");
    let (kept, pages) = (2048, 4096);
    numbered(&path, pages);
    let cache = cache(8 << 20);
    let file = cache.open(&path, OpenOptions::new()).unwrap();
    let Some(map) = map(&cache, &path, true) else {
        return;
    };
    let (over, stored) = (AtomicBool::new(false), AtomicU64::new(0));
    let stores = std::thread::scope(|scope| {
        let storers: Vec<_> = (0..2_u64)
            .map(|thread| {
                let (map, over, stored) = (&map, &over, &stored);
                scope.spawn(move || {
                    let mut numbers = Numbers(88_172_645_463_325_252 + thread * 7919);
                    let mut last = vec![0; usize::try_from(kept).unwrap()];
                    while !over.load(Ordering::Relaxed) {
                        let page = numbers.below(kept);
                        let at = page * PAGE + 800 + thread * 8;
                        let seen = &mut last[usize::try_from(page).unwrap()];
                        assert_eq!(word(map, at), *seen, "page {page} of thread {thread}");
                        *seen += 1;
                        store(map, at, *seen);
                        stored.fetch_add(1, Ordering::Relaxed);
                    }
                    last
                })
            })
            .collect();
        let began = Instant::now();
        let is_short = || began.elapsed() < Duration::from_secs(1);
        while is_short() || stored.load(Ordering::Relaxed) <= 100 {
            file.set_len(kept * PAGE).unwrap();
            file.set_len(pages * PAGE).unwrap();
        }
        over.store(true, Ordering::Relaxed);
        storers
            .into_iter()
            .map(|storer| storer.join().unwrap())
            .collect::<Vec<_>>()
    });
    assert!(stores.iter().flatten().sum::<u64>() > 100);
    // The part that was cut is a hole now.
    assert_eq!(word(&map, (kept + 9) * PAGE), 0);
    map.sync(0..map.len() as u64).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    for (page, bytes) in bytes.chunks(4096).enumerate().take(stores[0].len()) {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!(word(0), page as u64);
        assert_eq!([word(800), word(808)], [stores[0][page], stores[1][page]]);
    }
    assert_eq!(map.stats().failed_total, 0);
}

#[test]
fn a_device_that_fills_up_is_heard_at_the_sync() {
    let dir = Dir::new("no-space");
    let path = dir.0.join("data");
    numbered(&path, 64);
    let builder = Cache::builder().memory(16 << 20).maps(true);
    let cache = builder.layers("faulty:no_space=1").unwrap();
    let cache = cache.build().unwrap();
    let Some(map) = map(&cache, &path, true) else {
        return;
    };
    store(&map, 9 * PAGE, 99);
    let error = map.sync(0..map.len() as u64).unwrap_err();
    let kind = std::io::Error::from(error).kind();
    assert_eq!(kind, std::io::ErrorKind::StorageFull);
    cache.release_layers();
    assert_eq!(word(&map, 9 * PAGE), 99);
    map.sync(0..map.len() as u64).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes[9 * 4096..][..8], 99_u64.to_le_bytes());
}

/// All memory of a cache is a region that has no room in its swap file, but for the metadata.
fn all_taken(cache: &Cache) -> Spill {
    let spill = cache.spill(64 << 20).unwrap();
    let pages = (0..spill.len()).step_by(4096);
    let taken = pages.take_while(|at| spill.write_at(&[1; 4096], *at).is_ok());
    assert!(taken.count() > 2000);
    spill
}

#[test]
fn a_fault_that_finds_no_memory_waits_for_some() {
    let dir = Dir::new("short");
    let path = dir.0.join("data");
    numbered(&path, 64);
    let builder = Cache::builder().memory(16 << 20).maps(true);
    let builder = builder.swap_file(dir.0.join("swap"), 1 << 20);
    let cache = builder.build().unwrap();
    let Some(map) = map(&cache, &path, false) else {
        return;
    };
    let spill = all_taken(&cache);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| word(&map, 9 * PAGE));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!load.is_finished(), "there was memory: {:?}", map.stats());
        spill.discard(0, 1 << 20).unwrap();
        assert_eq!(load.join().unwrap(), 9);
    });
    let waits = cache.stats().waits;
    assert!(waits.iter().any(|wait| wait.cause == "memory"), "{waits:?}");
    assert_eq!(map.stats().failed_total, 0);
}

/// Each round stores its number to some pages, syncs, and says so.
fn store_until_killed(map: &Map, pages: u64) -> ! {
    let mut numbers = Numbers(2_463_534_242);
    for round in 1_u64.. {
        for _ in 0..200 {
            store(map, numbers.below(pages) * PAGE + 8, round);
        }
        map.sync(0..map.len() as u64).unwrap();
        println!("SYNCED {round}");
    }
    unreachable!("numbers do not end");
}

/// The rules of pages that there are; the first is the cache's own.
const RULES: [&str; 5] = ["", "reuse", "lirs", "s3-fifo", "mru"];

fn cache_by(rule: &str, bytes: u64) -> Cache {
    let mut builder = Cache::builder().memory(bytes).maps(true);
    if !rule.is_empty() {
        builder = builder.page_rule(RuleMaker::by_name(rule).unwrap());
    }
    builder.build().unwrap()
}

#[test]
fn what_a_sync_answered_outlives_a_kill() {
    kill_now_and_then(5, "");
}

/// `cargo test -p tidegate --test maps a_hundred -- --ignored --nocapture`: minutes.
#[test]
#[ignore = "takes minutes"]
fn a_hundred_runs_of_every_rule_lose_no_store() {
    let runs: usize = std::env::var("TIDEGATE_RUNS").map_or(100, |runs| runs.parse().unwrap());
    let dir = Dir::new("hundred");
    for run in 1..=runs {
        for rule in RULES {
            let cache = cache_by(rule, 8 << 20);
            verify(&cache, &dir.0.join("data"), (16384, 3, 1000));
            cache.close().unwrap();
            kill_now_and_then(1, rule);
        }
        println!("{run} of {runs}: no store was lost");
    }
}

fn kill_now_and_then(times: u32, rule: &str) {
    let dir = Dir::new("killed");
    let path = dir.0.join("data");
    let pages = 4096;
    let mut numbers = Numbers(88_172_645_463_325_252 + u64::from(std::process::id()));
    for _ in 0..times {
        numbered(&path, pages);
        let mut command = command("killed");
        command
            .env(FILE, &path)
            .env(RULE, rule)
            .stdout(Stdio::piped());
        let mut killed = command.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(300 + numbers.below(700)));
        killed.kill().unwrap();
        let output = killed.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        if said.contains("SKIPPED") {
            return skip("killed");
        }
        let mut synced = said.lines().filter_map(|line| line.strip_prefix("SYNCED "));
        let synced: u64 = synced.next_back().map_or(0, |round| round.parse().unwrap());
        // The rounds once more: what the last that answered had stored.
        let mut wanted = vec![0; usize::try_from(pages).unwrap()];
        let mut rounds = Numbers(2_463_534_242);
        for round in 1..=synced {
            for _ in 0..200 {
                wanted[usize::try_from(rounds.below(pages)).unwrap()] = round;
            }
        }
        let file = std::fs::read(&path).unwrap();
        for ((page, bytes), wanted) in (0_u64..).zip(file.chunks(4096)).zip(wanted) {
            let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            assert_eq!(word(0), page);
            let has = word(8);
            assert!(
                has >= wanted && has <= synced + 1,
                "page {page} has {has} for {wanted}, of {synced} rounds"
            );
        }
    }
}

/// This test's program once more, for a part that ends it.
fn child(part: &str, change: impl FnOnce(&mut Command)) -> std::io::Result<Output> {
    let mut command = command(part);
    change(&mut command);
    command.output()
}

fn command(part: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "parts_of_other_tests", "--nocapture"]);
    command.env(CHILD, part);
    command
}

#[test]
fn parts_of_other_tests() {
    let Ok(part) = std::env::var(CHILD) else {
        return;
    };
    let dir = Dir::new(&part);
    let path = dir.0.join("data");
    numbered(&path, 16);
    match part.as_str() {
        "refused" => {
            let cache = cache(16 << 20);
            let file = cache.open(&path, OpenOptions::new()).unwrap();
            match file.map(0..PAGE, MapOptions::new()) {
                Ok(map) => println!("GIVEN: {:?}", map.rights()),
                Err(error) => println!("ERROR: {error}"),
            }
            match file.map(0..file.len(), MapOptions::new().user_mode(true)) {
                Ok(map) => println!("RIGHTS: {:?} {}", map.rights(), word(&map, 7 * PAGE)),
                Err(error) => println!("RIGHTS: {error}"),
            }
        }
        "read-error" => {
            let builder = Cache::builder().memory(16 << 20).maps(true);
            let cache = builder.layers("faulty:eio_reads=1").unwrap();
            let cache = cache.build().unwrap();
            if let Some(map) = map(&cache, &path, false) {
                word(&map, 0);
                println!("NOT REACHED");
            }
        }
        "cut" => {
            let cache = cache(16 << 20);
            if let Some(map) = map(&cache, &path, true) {
                let file = cache.open(&path, OpenOptions::new()).unwrap();
                assert_eq!(word(&map, 12 * PAGE), 12);
                file.set_len(8 * PAGE).unwrap();
                assert_eq!(word(&map, 7 * PAGE), 7);
                word(&map, 12 * PAGE);
                println!("NOT REACHED");
            }
        }
        "full" => {
            let builder = Cache::builder().memory(16 << 20).maps(true);
            let cache = builder.layers("faulty:no_space=1").unwrap();
            let cache = cache.build().unwrap();
            std::fs::File::options()
                .write(true)
                .open(&path)
                .unwrap()
                .set_len(1 << 20)
                .unwrap();
            let file = cache.open(&path, OpenOptions::new()).unwrap();
            file.set_len(2 << 20).unwrap();
            if let Some(map) = map(&cache, &path, true) {
                // Not there, and no space for it.
                assert_eq!(word(&map, 300 * PAGE), 0);
                store(&map, 300 * PAGE, 1);
                println!("NOT REACHED");
            }
        }
        "no-memory" => {
            let builder = Cache::builder().memory(16 << 20).maps(true);
            let builder = builder.swap_file(dir.0.join("swap"), 1 << 20);
            let cache = builder.build().unwrap();
            if let Some(map) = map(&cache, &path, false) {
                let _spill = all_taken(&cache);
                word(&map, 9 * PAGE);
                println!("NOT REACHED");
            }
        }
        "killed" => {
            let path = std::env::var_os(FILE).unwrap();
            let rule = std::env::var(RULE).unwrap();
            if let Some(map) = map(&cache_by(&rule, 8 << 20), path.as_ref(), true) {
                store_until_killed(&map, map.len() as u64 / PAGE);
            }
        }
        other => panic!("no part {other}"),
    }
}

#[test]
fn a_cache_is_not_closed_while_a_file_is_mapped() {
    let dir = Dir::new("not-closed");
    let path = dir.0.join("data");
    numbered(&path, 16);
    let cache = cache(16 << 20);
    let file = cache.open(&path, OpenOptions::new()).unwrap();
    let Some(map) = map(&cache, &path, true) else {
        return;
    };
    for _ in 0..2 {
        let error = cache.close().unwrap_err();
        let Error::File {
            path: of,
            error,
            taken: 0,
        } = error
        else {
            panic!("{error:?}");
        };
        assert_eq!((of, error), (path.clone(), CacheError::Mapped));
    }
    store(&map, 12 * PAGE, 77);
    assert_eq!(word(&map, 13 * PAGE), 13);
    drop(map);
    cache.close().unwrap();
    let late = file.map(0..PAGE, MapOptions::new());
    assert!(matches!(late, Err(Error::Closed)), "{late:?}");
    let stored = std::fs::read(&path).unwrap();
    assert_eq!(stored[12 << 12..][..8], 77_u64.to_le_bytes());
}

#[test]
fn an_access_that_cannot_be_answered_ends_in_sigbus() {
    for part in ["read-error", "cut", "full", "no-memory"] {
        let output = child(part, |_| {}).unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        if said.contains("SKIPPED") {
            return skip(part);
        }
        assert_eq!(output.status.signal(), Some(SIGBUS), "{part}: {said}");
    }
}

#[test]
fn a_process_without_the_rights_hears_what_would_give_them() {
    const NOBODY: u32 = 65534;
    let allowed = std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd");
    if allowed.is_ok_and(|allowed| allowed.trim() != "0") {
        return skip("here everybody may answer page faults");
    }
    // A user other than root has no more rights as it is.
    let output = child("refused", |command| {
        if std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0) {
            command.uid(NOBODY).gid(NOBODY);
        }
    });
    let said = output
        .as_ref()
        .map(|output| String::from_utf8_lossy(&output.stdout));
    let said = said.unwrap_or_default();
    if said.is_empty() {
        return skip(&format!("this process cannot be somebody else: {output:?}"));
    }
    if said.contains("GIVEN") || said.contains("Linux 6.6") {
        return skip(&said);
    }
    for way in [
        "/dev/userfaultfd",
        "--device",
        "vm.unprivileged_userfaultfd",
        "user_mode",
    ] {
        assert!(said.contains(way), "{way} in {said}");
    }
    // A container may refuse even that, and says so again.
    let is_refused = said.matches("vm.unprivileged_userfaultfd").count() == 2;
    assert!(said.contains("RIGHTS: UserMode 7") || is_refused, "{said}");
}

#[test]
fn a_cache_that_was_not_built_for_maps_says_so() {
    let dir = Dir::new("without");
    let path = dir.0.join("data");
    numbered(&path, 4);
    let cache = Cache::builder().memory(16 << 20).build().unwrap();
    let file = cache.open(&path, OpenOptions::new()).unwrap();
    let error = file.map(0..PAGE, MapOptions::new()).unwrap_err();
    assert!(error.to_string().contains("option `maps`"), "{error}");
    let error = file.map(0..5 * PAGE, MapOptions::new()).unwrap_err();
    assert!(error.to_string().contains("16"), "{error}");
    let error = file.map(7..PAGE, MapOptions::new()).unwrap_err();
    assert!(matches!(error, Error::PartOfPage { .. }), "{error}");
}
