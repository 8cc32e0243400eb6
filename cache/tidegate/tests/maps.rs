//! Maps on real files: what is stored comes to the file, the limit holds, and errors are heard.
//! Where the system lets the process answer no page faults, the tests say SKIPPED and why.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod dir;

use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tidegate::{Cache, Error, Map, MapOptions, OpenOptions, RuleMaker, SystemError};

use crate::dir::Dir;

const PAGE: u64 = 4096;
const SIGBUS: i32 = 7;
/// The name of the variable by which a test of a child's end tells it which end.
const CHILD: &str = "TIDEGATE_MAPS_CHILD";
/// And of the file that it uses.
const FILE: &str = "TIDEGATE_MAPS_FILE";

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
    for rule in ["reuse", "lirs", "s3-fifo", "mru"] {
        let builder = Cache::builder().memory(16 << 20).maps(true);
        let rule = RuleMaker::by_name(rule).unwrap();
        let cache = builder.page_rule(rule).build().unwrap();
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
    // It is still there, and still dirty.
    assert_eq!(word(&map, 9 * PAGE), 99);
    map.sync(0..map.len() as u64).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes[9 * 4096..][..8], 99_u64.to_le_bytes());
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

#[test]
fn what_a_sync_answered_outlives_a_kill() {
    let dir = Dir::new("killed");
    let path = dir.0.join("data");
    let pages = 4096;
    let mut numbers = Numbers(88_172_645_463_325_252);
    for _ in 0..5 {
        numbered(&path, pages);
        let mut command = command("killed");
        command.env(FILE, &path).stdout(Stdio::piped());
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
        "killed" => {
            let path = std::env::var_os(FILE).unwrap();
            if let Some(map) = map(&cache(8 << 20), path.as_ref(), true) {
                store_until_killed(&map, map.len() as u64 / PAGE);
            }
        }
        other => panic!("no part {other}"),
    }
}

#[test]
fn an_access_that_cannot_be_answered_ends_in_sigbus() {
    for part in ["read-error", "cut"] {
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
