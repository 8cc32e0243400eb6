//! Mistakes of callers are told in their words: bytes, and the names of this library.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::Command;

use tidegate::{Cache, Error, File, OpenOptions, SystemError, Threshold};

use crate::dir::Dir;

impl Dir {
    fn open(&self, cache: &Cache) -> File {
        cache
            .open(self.0.join("data"), OpenOptions::new().create(true))
            .unwrap()
    }
}

fn told<T>(answer: Result<T, Error>) -> String {
    answer.err().unwrap().to_string()
}

/// The words that a call on a file is told, behind the name of the file.
fn told_of<T>(file: &File, answer: Result<T, Error>) -> String {
    let words = told(answer);
    let name = format!("{}: ", file.path().display());
    let text = words.strip_prefix(&name).map(str::to_owned);
    text.unwrap_or_else(|| panic!("{words} does not name {name}"))
}

#[test]
fn who_goes_beyond_the_end_hears_where_it_is() {
    let dir = Dir::new("end");
    let cache = Cache::builder().memory(16 << 20).build().unwrap();
    let file = dir.open(&cache);
    let text = "the file ends at byte 0; byte 4096 is beyond it";
    assert_eq!(told_of(&file, file.pin(0)), text);
    let text = "byte 18446744073709551615 is beyond the largest file (16 TiB less 4 KiB)";
    assert_eq!(told_of(&file, file.write_at(&[1; 8], u64::MAX - 3)), text);
    let region = cache.spill(10_000).unwrap();
    let text = "the region ends at byte 10000; byte 10004 is beyond it";
    assert_eq!(told(region.write_at(&[1; 8], 9996)), text);
    assert_eq!(told(region.read_at(&mut [0; 8], 9996)), text);
    let text = "the region ends at byte 10000; byte 12288 is beyond it";
    assert_eq!(told(region.discard(4096, 8192)), text);
    let text = told(region.discard(1, 10));
    assert!(
        text.starts_with("bytes 1 to 11 are not whole pages"),
        "{text}"
    );
    assert!(matches!(region.touch(0, 10), Err(Error::PartOfPage { .. })));
    region.discard(4096, 10_000 - 4096).unwrap();
}

#[test]
fn why_a_file_is_not_opened_can_be_told_apart() {
    let dir = Dir::new("why");
    let cache = Cache::builder().memory(16 << 20).build().unwrap();
    let missing = cache.open(dir.0.join("no"), OpenOptions::new());
    let error = missing.map(|_| ()).unwrap_err();
    assert!(matches!(
        error,
        Error::System(SystemError::Open { errno: 2, .. })
    ));
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_handle_for_reading_refuses_to_write() {
    let dir = Dir::new("reading");
    let cache = Cache::builder().memory(16 << 20).build().unwrap();
    let path = dir.0.join("data");
    std::fs::write(&path, [1; 9000]).unwrap();
    let reading = OpenOptions::new().read_only(true);
    let file = cache.open(&path, reading).unwrap();
    let text = "the file was opened for reading only; open it without `read_only` to write to it";
    assert_eq!(told(file.write_at(&[7; 8], 0)), text);
    let mut writer = cache.writer();
    assert_eq!(told(file.write_at_with(&mut writer, &[7; 8], 0)), text);
    assert_eq!(told(file.set_len(0)), text);
    assert_eq!(file.len(), 9000);
    file.sync().unwrap();
    drop(file);
    // Beside one for writing, too.
    let other = dir.open(&cache);
    let file = cache.open(&path, reading).unwrap();
    assert_eq!(told(file.write_at(&[7; 8], 0)), text);
    other.write_at(&[7; 8], 0).unwrap();
    cache.close().unwrap();
}

/// A loop device over a file; detached when dropped.
struct Loop(PathBuf);

impl Loop {
    /// 1 MiB of it. None: there is none available, for which one has to be root.
    fn new(dir: &Dir) -> Option<Self> {
        let file = dir.0.join("disk");
        std::fs::write(&file, vec![7; 1 << 20]).unwrap();
        let mut command = Command::new("losetup");
        let made = command.args(["-f", "--show"]).arg(file).output();
        let Some(made) = made.ok().filter(|made| made.status.success()) else {
            let _ = writeln!(io::stderr(), "SKIPPED: no loop device (needs root)");
            return None;
        };
        let path = String::from_utf8(made.stdout).ok()?;
        Some(Self(path.trim_end().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

#[test]
fn who_wants_more_of_a_device_than_there_is_hears_how_large_it_is() {
    let dir = Dir::new("device");
    let Some(disk) = Loop::new(&dir) else {
        return;
    };
    let cache = Cache::builder().memory(16 << 20).build().unwrap();
    let options = |bytes| OpenOptions::new().preallocate(bytes);
    let text = format!(
        "{} has 1 MiB, 2 MiB were asked for; ask for no more than it has",
        disk.0.display()
    );
    assert_eq!(told(cache.open(&disk.0, options(2 << 20))), text);
    cache.open(&disk.0, options(1 << 20)).unwrap();
    cache.close().unwrap();
}

#[test]
fn who_is_to_write_a_device_that_takes_no_writes_is_refused() {
    let dir = Dir::new("read-only-device");
    let Some(disk) = Loop::new(&dir) else {
        return;
    };
    // It stays so when the file below it is taken away.
    let set = |option| {
        let set = Command::new("blockdev").arg(option).arg(&disk.0).status();
        assert!(set.unwrap().success());
    };
    set("--setro");
    let cache = Cache::builder().memory(16 << 20).build().unwrap();
    let text = format!(
        "cannot open {}: Read-only file system (os error 30)",
        disk.0.display()
    );
    let refused = cache.open(&disk.0, OpenOptions::new());
    let read_only = cache.open(&disk.0, OpenOptions::new().read_only(true));
    set("--setrw");
    assert_eq!(told(refused), text);
    read_only.unwrap();
    cache.close().unwrap();
}

#[test]
fn a_device_keeps_its_content_when_it_is_opened_to_be_truncated() {
    let dir = Dir::new("truncated-device");
    let Some(disk) = Loop::new(&dir) else {
        return;
    };
    let cache = Cache::builder().memory(16 << 20).build().unwrap();
    let file = cache
        .open(&disk.0, OpenOptions::new().truncate(true))
        .unwrap();
    assert_eq!(file.len(), 1 << 20);
    file.write_at(&[8; 10], 0).unwrap();
    let mut page = [0; 4096];
    assert_eq!(file.read_at(&mut page, 0).unwrap(), 4096);
    assert!(page[..10] == [8; 10] && page[10..] == [7; 4086]);
    cache.close().unwrap();
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let dir = Dir::new("contradict");
    let cache = Cache::builder().memory(16 << 20).build().unwrap();
    let path = dir.0.join("data");
    let reading = OpenOptions::new().read_only(true);
    let refused = |options: OpenOptions, text: &str| {
        let error = cache.open(&path, options).map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), text);
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::InvalidInput);
    };
    let text = "`create` changes the file, and it is opened for reading only; leave `read_only` or `create` away";
    refused(reading.create(true), text);
    assert!(!path.exists());
    std::fs::write(&path, [1; 9000]).unwrap();
    // Opened anew, and beside another handle.
    for _ in 0..2 {
        let text = "`truncate` changes the file, and it is opened for reading only; leave `read_only` or `truncate` away";
        refused(reading.truncate(true), text);
        let text = "`preallocate` changes the file, and it is opened for reading only; leave `read_only` or \
                    `preallocate` away";
        refused(reading.preallocate(1), text);
        assert_eq!(dir.open(&cache).len(), 9000);
    }
}

#[test]
fn who_closes_a_cache_that_is_being_closed_hears_how_that_ended() {
    let dir = Dir::new("twice");
    for _ in 0..100 {
        let cache = Cache::builder().memory(16 << 20).build().unwrap();
        dir.open(&cache).write_at(&[7; 100_000], 0).unwrap();
        let both = std::sync::Barrier::new(2);
        let close = || {
            both.wait();
            cache.close().unwrap();
        };
        std::thread::scope(|scope| {
            scope.spawn(close);
            scope.spawn(close);
        });
    }
}

#[test]
fn after_close_every_call_answers_so() {
    fn closed<T>(call: &str, answer: Result<T, Error>) {
        let answer = answer.map(|_| ());
        assert!(matches!(answer, Err(Error::Closed)), "{call}: {answer:?}");
    }
    let dir = Dir::new("closed");
    let builder = Cache::builder().memory(32 << 20);
    let builder = builder.swap_file(dir.0.join("swap"), 32 << 20);
    let cache = builder.build().unwrap();
    let (file, other) = (dir.open(&cache), dir.open(&cache));
    let mut writer = cache.writer();
    file.write_at(&[7; 10_000], 0).unwrap();
    let region = cache.spill(1 << 20).unwrap();
    region.write_at(&[7; 10_000], 0).unwrap();
    let pin = file.pin(0).unwrap();
    cache.close().unwrap();
    assert_eq!(std::fs::read(dir.0.join("data")).unwrap(), [7; 10_000]);

    let mut back = [0; 4096];
    closed("read_at", file.read_at(&mut back, 0));
    closed("write_at", file.write_at(&[8], 0));
    closed("write_at_with", file.write_at_with(&mut writer, &[8], 0));
    closed("pin", file.pin(0));
    assert!(file.try_pin(0).is_none());
    closed("set_len", file.set_len(0));
    closed("sync", file.sync());
    closed("sync_range", file.sync_range(0, 1));
    closed("region.read_at", region.read_at(&mut back, 0));
    closed("region.write_at", region.write_at(&[8], 0));
    closed("touch", region.touch(0, 4096));
    closed("discard", region.discard(0, 4096));
    closed("spill", cache.spill(4096));
    closed("set_limit", cache.set_limit(24 << 20));
    closed("cache.sync", cache.sync());
    closed("reopen_device", cache.reopen_device(&dir.0));
    let create = OpenOptions::new().create(true);
    closed("open", cache.open(dir.0.join("data"), create));
    closed("create", cache.open(dir.0.join("new"), create));
    assert!(!dir.0.join("new").exists());
    closed("close", other.close().map_err(|error| error.error));

    // These go on.
    assert!(pin.iter().all(|byte| *byte == 7));
    drop(pin);
    drop((writer, region));
    assert_eq!((file.len(), cache.stats().dirty), (10_000, 0));
    assert_eq!(cache.stats().anonymous, 0);
    drop(file);
    cache.close().unwrap();
    cache.trim();
}

#[test]
fn a_swap_file_too_large_for_the_limit_is_named() {
    let dir = Dir::new("swap");
    let path = dir.0.join("swap");
    let build = |bytes| {
        let builder = Cache::builder().memory(8 << 20);
        builder.swap_file(&path, bytes).build()
    };
    let text = told(build(100 << 30));
    assert!(
        text.starts_with("a swap file of 100 GiB is too large for a memory limit of 8 MiB"),
        "{text}"
    );
    assert!(
        text.contains("325 MiB at 13 bytes for each 4 KiB"),
        "{text}"
    );
    assert!(text.contains("at most 291.6 MiB"), "{text}");
    let Err(Error::SwapFileTooLarge { most, .. }) = build(1 << 50) else {
        panic!("a table of 3.2 TiB");
    };
    assert!(!path.exists());
    assert!(build(most + 4096).is_err());
    build(most).unwrap().close().unwrap();
    // Not the swap file's fault.
    let small = Cache::builder().memory(1 << 20).swap_file(&path, 1 << 20);
    assert!(matches!(small.build(), Err(Error::LimitTooSmall { .. })));
}

#[test]
fn sizes_are_told_in_bytes_and_settings_by_their_method() {
    let dir = Dir::new("sizes");
    let path = dir.0.join("swap");
    let of = || Cache::builder().memory(64 << 20);
    let text = "swap_file is 1 B; it may be 4 KiB to 512 GiB";
    assert_eq!(told(of().swap_file(&path, 1).build()), text);
    assert!(!path.exists());
    let text = "dirty_limit, in per cent, is 150; it may be 0 to 100";
    assert_eq!(
        told(of().dirty_limit(Threshold::Percent(150)).build()),
        text
    );
    let text = "background_limit, in per cent, is 101; it may be 0 to 100";
    assert_eq!(
        told(of().background_limit(Threshold::Percent(101)).build()),
        text
    );
    let text = "swappiness is 201; it may be 0 to 200";
    assert_eq!(told(of().swappiness(201).build()), text);

    let cache = of().swappiness(200).build().unwrap();
    let text = told(cache.set_limit(65 << 20));
    assert!(
        text.starts_with("set_limit is 65 MiB; it may be "),
        "{text}"
    );
    assert!(text.ends_with(" to 64 MiB"), "{text}");
    cache.set_limit(64 << 20).unwrap();
    let Err(Error::BadSize {
        allowed: (least, _),
        ..
    }) = cache.set_limit(u64::MAX)
    else {
        panic!("more than it was built with");
    };
    assert!(cache.set_limit(least - 1).is_err());
    cache.set_limit(least).unwrap();
    cache.set_limit(64 << 20).unwrap();

    let text = told(cache.spill(2 << 30));
    let begins =
        "spill, beside the other regions of the cache, is 2 GiB; it may be 1 B to 1.7 GiB (";
    assert!(text.starts_with(begins), "{text}");
    let Err(Error::BadSize {
        allowed: (_, most), ..
    }) = cache.spill(0)
    else {
        panic!("no bytes");
    };
    let all = cache.spill(most).unwrap();
    let text = told(cache.spill(1));
    assert!(text.ends_with(" is 1 B; nothing is left of that"), "{text}");
    drop(all);
}

/// A file that is no disk takes no disk's place.
#[test]
fn special_files_that_are_refused_leave_room_for_disks() {
    let dir = Dir::new("special");
    let cache = Cache::builder().memory(16 << 20).devices(2);
    let cache = cache.build().unwrap();
    for name in ["null", "zero", "full", "random"] {
        let path = PathBuf::from("/dev").join(name);
        let text = told(cache.open(&path, OpenOptions::new()));
        assert!(text.contains(name), "{text}");
    }
    dir.open(&cache).write_at(&[1; 8], 0).unwrap();
    cache.close().unwrap();
}
