//! Programs that lock nothing and write to a file that a cache has open: whatever they do, and
//! whenever, their bytes are cut off by nobody, and the cache says that the file was changed.

#![allow(
    clippy::unwrap_used,
    reason = "support code of tests: a failure here is a failed test"
)]

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use tidegate::{Cache, OpenOptions};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("tidegate-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The act of another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// Adds 5000 bytes at the end.
    Append,
    /// Adds fewer than are left in the last page of the cache.
    AppendLittle,
    /// Makes it 20,000 bytes long.
    Longer,
    /// Makes it 1000 bytes long.
    Shorter,
    /// Writes in its middle; its length stays.
    InPlace,
    /// Renames another file to its name.
    Replace,
}

const ACTS: [Act; 6] = [
    Act::Append,
    Act::AppendLittle,
    Act::Longer,
    Act::Shorter,
    Act::InPlace,
    Act::Replace,
];

/// The moment of the act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    BeforeTheWrite,
    BeforeTheSync,
    AfterTheSync,
}

const LEN: u64 = 5000;

impl Act {
    /// Answers the bytes that are in the file from then on, and where; the length that it has at
    /// least.
    fn done(self, path: &Path) -> (u64, Vec<u8>, u64) {
        let open = || File::options().read(true).write(true).open(path).unwrap();
        let append = |bytes: Vec<u8>| {
            let len = fs::metadata(path).unwrap().len();
            let mut file = File::options().append(true).open(path).unwrap();
            file.write_all(&bytes).unwrap();
            (len, bytes.clone(), len + bytes.len() as u64)
        };
        match self {
            Self::Append => append(vec![b'A'; 5000]),
            Self::AppendLittle => append(vec![b'a'; 100]),
            Self::Longer => {
                open().set_len(20_000).unwrap();
                (0, Vec::new(), 20_000)
            }
            Self::Shorter => {
                open().set_len(1000).unwrap();
                (0, Vec::new(), 1000)
            }
            Self::InPlace => {
                // In the first page, which the cache does not write here.
                open().write_all_at(b"in place", 2000).unwrap();
                (2000, b"in place".to_vec(), LEN)
            }
            Self::Replace => {
                let other = path.with_extension("other");
                fs::write(&other, "replaced").unwrap();
                fs::rename(&other, path).unwrap();
                (0, b"replaced".to_vec(), 8)
            }
        }
    }

    /// Its bytes would go, or come back as zeroes, if the cache went on.
    fn is_an_error(self) -> bool {
        !matches!(self, Self::InPlace | Self::Replace)
    }
}

#[test]
fn what_others_do_to_the_length_of_a_file_stays_and_is_told() {
    let folder = Folder::new("others");
    for io_uring in [true, false] {
        for act in ACTS {
            for when in [
                When::BeforeTheWrite,
                When::BeforeTheSync,
                When::AfterTheSync,
            ] {
                for at in [LEN, LEN - 10, 4096] {
                    one(&folder, io_uring, act, when, at);
                }
            }
        }
    }
}

fn one(folder: &Folder, io_uring: bool, act: Act, when: When, at: u64) {
    let name = format!("{act:?} {when:?}, written at {at}, io_uring {io_uring}");
    let path = folder.0.join("data");
    let _ = fs::remove_file(&path);
    let cache = Cache::builder().memory(16 << 20).io_uring(io_uring);
    let cache = cache.build().unwrap();
    let file = cache.open(&path, OpenOptions::new().create(true)).unwrap();
    file.write_at(&[7; 5000], 0).unwrap();
    file.sync().unwrap();
    let mut told = Vec::new();
    let mut note = |result: Result<(), String>| told.extend(result.err());
    let write = |at| {
        file.write_at(&[3; 10], at)
            .map(drop)
            .map_err(|error| error.to_string())
    };
    let sync = || file.sync().map_err(|error| error.to_string());
    let mut theirs = None;
    let mut now = |moment| {
        if moment == when {
            theirs = Some(act.done(&path));
        }
    };
    now(When::BeforeTheWrite);
    note(write(at));
    now(When::BeforeTheSync);
    note(sync());
    now(When::AfterTheSync);
    note(write(at + 10));
    note(sync());
    note(file.close().map_err(|error| error.error.to_string()));
    drop(cache);
    let (from, bytes, least) = theirs.unwrap();
    let there = fs::read(&path).unwrap();
    assert!(
        there.len() as u64 >= least,
        "{name}: {} bytes of {least}",
        there.len()
    );
    let from = usize::try_from(from).unwrap();
    assert!(
        there[from..].starts_with(&bytes),
        "{name}: their bytes are gone"
    );
    let says = |words: &String| words.contains("by others") || words.contains("gone");
    assert_eq!(told.iter().any(says), act.is_an_error(), "{name}: {told:?}");
}

/// Our own requests make it longer and shorter, many at a time, and are nobody else's.
#[test]
fn our_own_lengths_are_none_of_others() {
    let folder = Folder::new("own-lengths");
    for io_uring in [true, false] {
        let cache = Cache::builder().memory(16 << 20).io_uring(io_uring);
        let cache = cache.build().unwrap();
        let file = cache.open(folder.0.join("data"), OpenOptions::new().create(true));
        let file = file.unwrap();
        std::thread::scope(|scope| {
            for task in 0..4_u64 {
                let file = &file;
                scope.spawn(move || {
                    for round in 0..200_u64 {
                        let place = (task * 7919 + round * 104_729) % 200_000;
                        match (task, round % 20) {
                            (0, 0) => file.set_len(place).unwrap(),
                            (_, 10) => file.sync().unwrap(),
                            _ => drop(file.write_at(&[9; 1500], place).unwrap()),
                        }
                    }
                });
            }
        });
        file.sync().unwrap();
        file.close().unwrap();
        cache.close().unwrap();
    }
}

/// A list of all locks of the system, read at each open, makes N files cost N times N.
#[test]
fn opening_many_files_reads_no_list_of_all_locks() {
    let read = || {
        let text = fs::read_to_string("/proc/self/io").unwrap();
        let count = text.lines().find_map(|line| line.strip_prefix("rchar: "));
        count.unwrap().parse::<u64>().unwrap()
    };
    let folder = Folder::new("many");
    let cache = Cache::builder().memory(16 << 20).build().unwrap();
    let before = read();
    let files: Vec<_> = (0..300)
        .map(|number| {
            let path = folder.0.join(number.to_string());
            cache.open(path, OpenOptions::new().create(true)).unwrap()
        })
        .collect();
    let bytes = read() - before;
    // With the list it is some 15 MB.
    assert!(bytes < 3 << 20, "{bytes} bytes were read");
    drop(files);
    cache.close().unwrap();
}

/// The system ends the requests of a process that was killed some milliseconds after the process,
/// and its locks with them.
#[test]
fn a_file_is_opened_at_once_after_its_cache_was_killed() {
    let folder = Folder::new("killed");
    let path = folder.0.join("data");
    let cache = Cache::builder().memory(16 << 20).build().unwrap();
    for round in 0..20 {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writes_for_ever", "--ignored", "--nocapture"])
            .env("DATA", &path)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        while fs::metadata(&path).map_or(0, |data| data.len()) < 4 << 20 {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        child.kill().unwrap();
        // The next one need not be started by whoever waits for this one.
        if round % 2 == 0 {
            child.wait().unwrap();
        }
        let file = cache.open(&path, OpenOptions::new()).unwrap();
        file.set_len(0).unwrap();
        file.close().unwrap();
        child.wait().unwrap();
    }
}

#[test]
#[ignore = "run by the test before it, which kills it"]
fn writes_for_ever() {
    let cache = Cache::builder().memory(16 << 20).build().unwrap();
    let file = cache.open(
        std::env::var_os("DATA").unwrap(),
        OpenOptions::new().create(true),
    );
    let file = file.unwrap();
    for at in 0.. {
        file.write_at(&vec![1; 1 << 20], (at % 64) << 20).unwrap();
    }
}

/// Descriptors of this process that a program which it starts would have, too.
fn passed_on() -> std::collections::BTreeSet<String> {
    let numbers = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let names = numbers.filter_map(|entry| {
        let name = entry.file_name().into_string().unwrap();
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{name}")).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        let flags = u32::from_str_radix(flags.trim(), 8).unwrap();
        // O_CLOEXEC
        (flags & 0o2_000_000 == 0).then(|| format!("{name} {:?}", fs::read_link(entry.path())))
    });
    names.collect()
}

/// Nothing that is open in a cache is a descriptor of the next program.
#[test]
fn no_program_is_started_with_a_descriptor_of_ours() {
    let before = passed_on();
    let folder = Folder::new("passed");
    let mut kinds = 0;
    for io_uring in [true, false] {
        for layers in [false, true] {
            let cache = Cache::builder()
                .memory(24 << 20)
                .io_uring(io_uring)
                .swap_file(folder.0.join("swap"), 8 << 20);
            let cache = match layers {
                true => cache.layers("slow:latency=1us+faulty:seed=1").unwrap(),
                false => cache,
            };
            let cache = cache.build().unwrap();
            let region = cache.spill(4 << 20).unwrap();
            region.write_at(b"region", 0).unwrap();
            let mut files = Vec::new();
            for options in 0..16_u32 {
                let is = |bit: u32| options & 1 << bit != 0;
                let path = folder.0.join(options.to_string());
                fs::write(&path, [5; 9000]).unwrap();
                let open = OpenOptions::new()
                    .create(is(0))
                    .truncate(is(1))
                    .lock(is(2))
                    .read_only(is(3));
                let Ok(file) = cache.open(&path, open) else {
                    assert!(is(3) && (is(0) || is(1)), "a reader makes and cuts nothing");
                    continue;
                };
                file.read_at(&mut [0; 5000], 0).unwrap();
                if !is(3) {
                    file.write_at(&[6; 5000], 100).unwrap();
                    file.sync().unwrap();
                }
                files.push(file);
                kinds += 1;
            }
            let ours = passed_on();
            assert!(ours.is_subset(&before), "{ours:?}, and before {before:?}");
        }
    }
    assert_eq!(kinds, 4 * 10);
}

/// A program that is started meanwhile has copies of all descriptors from its fork to its
/// beginning.
#[test]
fn a_file_is_opened_again_beside_programs_that_start() {
    let folder = Folder::new("beside");
    let path = folder.0.join("data");
    let cache = Cache::builder().memory(16 << 20).build().unwrap();
    let ends = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                    std::process::Command::new("true").status().unwrap();
                }
            });
        }
        let began = std::time::Instant::now();
        let mut refused = 0;
        for _ in 0..300 {
            match cache.open(&path, OpenOptions::new().create(true)) {
                Ok(file) => file.close().unwrap(),
                Err(_) => refused += 1,
            }
            if began.elapsed() > std::time::Duration::from_secs(20) {
                break;
            }
        }
        ends.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(refused, 0);
    });
}
