//! The page cache under a governor: it gives what others reserve, gets it back for what it misses,
//! and goes without a trace.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use governor::adapters::tidegate::Governed;
use governor::{Governor, Share};
use tidegate::{Cache, File, OpenOptions};

const MIB: u64 = 1 << 20;

struct Data(PathBuf);

impl Drop for Data {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A cache that could have 64 MiB, and a file of 64 MiB on it, written.
fn cache(name: &str) -> (Cache, File, Data) {
    let file = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
    let data = Data(file.clone());
    let cache = Cache::builder().memory(80 * MIB).build().unwrap();
    let open = OpenOptions::new().create(true).truncate(true);
    let file = cache.open(&file, open).unwrap();
    for at in 0..64 {
        file.write_at(&vec![3; 1 << 20], at * MIB).unwrap();
    }
    file.sync().unwrap();
    (cache, file, data)
}

fn read(file: &File, mib: u64) {
    let mut block = vec![0; 1 << 20];
    for at in 0..mib {
        assert_eq!(file.read_at(&mut block, at * MIB).unwrap(), 1 << 20);
    }
}

#[track_caller]
fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn governor() -> Governor {
    Governor::builder(96 * MIB)
        .without_resident()
        .build()
        .unwrap()
}

#[test]
fn pages_make_room_for_what_others_reserve() {
    let (cache, file, _data) = cache("makes-room");
    let governor = governor();
    let pages = Governed::new(&governor, "pages", Share::default(), &cache).unwrap();
    let buffer = governor.register("buffer", Share::default(), governor::by(|| 0, |_| 0));
    let buffer = buffer.unwrap();
    read(&file, 60);
    until("pages are counted", || pages.member().held() > 40 * MIB);
    let mut permits = Vec::new();
    let began = Instant::now();
    while permits.len() < 64 {
        match buffer.reserve(MIB) {
            Ok(permit) => permits.push(permit),
            Err(error) => assert!(began.elapsed() < Duration::from_secs(60), "{error}"),
        }
        // Pages that move out of a chunk have two frames for a moment; nothing else comes on top.
        assert!(governor.held() <= 97 * MIB, "{}", governor.held());
    }
    until("pages have left", || {
        let stats = cache.stats();
        stats.cached <= 36 * MIB && stats.over_limit == 0
    });
    // The rest is a page cache still.
    read(&file, 64);
    file.write_at(&[9; 4096], 0).unwrap();
    file.sync().unwrap();
    drop(pages);
    cache.close().unwrap();
}

#[test]
fn pages_that_are_missed_are_its_regret() {
    let (cache, file, _data) = cache("regrets");
    let governor = governor();
    let pages = Governed::new(
        &governor,
        "pages",
        Share::default().ceiling(24 * MIB),
        &cache,
    );
    let pages = pages.unwrap();
    let regrets = || {
        let report = governor.report();
        let own = report.members.iter().find(|member| member.name == "pages");
        own.is_some_and(|own| !own.gain.is_zero())
    };
    until("what it evicts is missed", || {
        read(&file, 32);
        regrets()
    });
    // A page that went while the cache still shrinks may be missed, too.
    until("it holds its ceiling", || pages.member().held() <= 28 * MIB);
    cache.close().unwrap();
}

#[test]
fn one_that_is_closed_holds_nothing_and_its_name_is_free_when_it_has_left() {
    let (cache, file, _data) = cache("leaves");
    let governor = governor();
    let pages = Governed::new(&governor, "pages", Share::default(), &cache).unwrap();
    let twice = Governed::new(&governor, "pages", Share::default(), &cache);
    assert!(matches!(twice, Err(governor::Error::Registered { .. })));
    let too_much = Governed::new(&governor, "more", Share::default().floor(1 << 40), &cache);
    assert!(too_much.is_err());
    drop(file);
    cache.close().unwrap();
    drop(cache);
    until("it holds nothing", || governor.held() == 0);
    drop(pages);
    let again = governor.register("pages", Share::default(), governor::by(|| 0, |_| 0));
    drop(Arc::new(again.unwrap()));
}
