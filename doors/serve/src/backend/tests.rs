//! Backends that are there and such that are not.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tidegate::{Cursor, Mode};

#[path = "../../tests/common/locks.rs"]
mod locks;

use locks::{FORKED, open_within};
use os::LockedFile;

use super::*;
use crate::record;

const MIB: u64 = 1 << 20;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("tidegate-{}-backend-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// A file of `size` bytes, all of them `byte`.
    fn file(&self, name: &str, size: u64, byte: u8) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, vec![byte; usize::try_from(size).unwrap()]).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn cache() -> Cache {
    Cache::builder().memory(24 << 20).build().unwrap()
}

fn volume(backend: BackendConfig) -> VolumeConfig {
    VolumeConfig::new("data", backend)
}

fn file(path: &Path) -> VolumeConfig {
    volume(BackendConfig::File {
        path: path.into(),
        size: None,
    })
}

fn new(path: &Path, size: u64) -> VolumeConfig {
    volume(BackendConfig::New {
        path: path.into(),
        size,
    })
}

/// A lock that is held for so long is meant.
const MEANT: Duration = Duration::from_secs(3);

fn open(config: &VolumeConfig, cache: &Cache) -> Result<Backend, BackendError> {
    open_within(FORKED, || super::open(config, cache))
}

fn refused(config: &VolumeConfig, cache: &Cache) -> String {
    match open_within(MEANT, || super::open(config, cache)) {
        Ok(_) => panic!("{:?} was opened", config.backend),
        Err(error) => error.to_string(),
    }
}

/// Its refusal, at once: its holder keeps it meanwhile.
fn locked_out(config: &VolumeConfig, cache: &Cache) -> String {
    match super::open(config, cache) {
        Ok(_) => panic!("{:?} was opened", config.backend),
        Err(error) => error.to_string(),
    }
}

fn write(backend: &Backend, cache: &Cache, data: &[u8], offset: u64) {
    let mut writer = cache.writer();
    backend
        .opened
        .volume
        .write(&mut writer, data, offset, Mode::Blocking)
        .unwrap();
}

fn read(backend: &Backend, len: usize, offset: u64) -> Vec<u8> {
    let mut data = vec![0; len];
    backend
        .opened
        .volume
        .read(&mut Cursor::default(), &mut data, offset, Mode::Blocking)
        .unwrap();
    data
}

/// All runs of one kind.
fn extents(backend: &Backend) -> Vec<(u64, bool)> {
    let (mut at, end) = (0, backend.opened.volume.size());
    let mut found = Vec::new();
    while at < end {
        let extents = backend.opened.extents.as_ref().unwrap();
        let (len, hole) = extents.next(at, end - at).unwrap();
        assert!(len > 0 && len <= end - at);
        found.push((len, hole));
        at += len;
    }
    found
}

#[test]
fn a_file_is_served_as_it_is() {
    let (folder, cache) = (Folder::new("file"), cache());
    let path = folder.file("data", MIB, 7);
    let backend = open(&file(&path), &cache).unwrap();
    assert_eq!(backend.opened.volume.size(), MIB);
    assert_eq!(read(&backend, 100, MIB - 100), [7; 100]);
    write(&backend, &cache, &[8; 5000], 100);
    backend.opened.volume.sync().unwrap();
    let mut there = vec![0; 5100];
    File::open(&path)
        .unwrap()
        .read_exact_at(&mut there, 0)
        .unwrap();
    assert!(there[..100] == [7; 100] && there[100..] == [8; 5000]);
    assert_eq!(fs::metadata(&path).unwrap().len(), MIB);
}

#[test]
fn a_size_that_is_no_multiple_of_a_page_stays_as_it_is() {
    let (folder, cache) = (Folder::new("tail"), cache());
    let size = MIB + 512;
    let path = folder.file("data", size, 7);
    let backend = open(&file(&path), &cache).unwrap();
    write(&backend, &cache, &[8; 100], size - 100);
    // At no time, not only after the sync: a crash between would leave it longer.
    let long = std::thread::spawn({
        let path = path.clone();
        move || {
            (0..2000)
                .filter(|_| fs::metadata(&path).unwrap().len() != size)
                .count()
        }
    });
    for _ in 0..20 {
        write(&backend, &cache, &[9; 100], size - 100);
        backend.opened.volume.sync().unwrap();
    }
    assert_eq!(long.join().unwrap(), 0);
    let there = fs::read(&path).unwrap();
    assert_eq!(there.len() as u64, size);
    assert!(there.ends_with(&[9; 100]) && there[..there.len() - 100].iter().all(|byte| *byte == 7));
}

#[test]
fn sizes_that_cannot_be_served() {
    let (folder, cache) = (Folder::new("sizes"), cache());
    let path = folder.file("odd", 1000, 7);
    let message = refused(&file(&path), &cache);
    assert!(
        message.contains("1000 B are no multiple of the 512 B"),
        "{message}"
    );
    assert!(message.contains("truncate -s %512"), "{message}");
    // For reading it is fine.
    let mut config = file(&path);
    config.read_only = true;
    let backend = open(&config, &cache).unwrap();
    assert_eq!(read(&backend, 1000, 0), [7; 1000]);
    assert!(!backend.opened.can_punch);
    let empty = folder.file("empty", 0, 0);
    let message = refused(&file(&empty), &cache);
    assert!(
        message.contains("it is empty") && message.contains("truncate -s 10G"),
        "{message}"
    );
    let path = folder.file("data", MIB, 7);
    let sized = |size| {
        volume(BackendConfig::File {
            path: path.clone(),
            size: Some(size),
        })
    };
    let message = refused(&sized(2 * MIB), &cache);
    assert!(
        message.contains("it has 1 MiB, size=2 MiB was asked for"),
        "{message}"
    );
    let message = refused(&sized(MIB - 512), &cache);
    assert!(
        message.contains("no multiple of 4 KiB") && message.contains("leave it out"),
        "{message}"
    );
    let backend = open(&sized(MIB / 2), &cache).unwrap();
    assert_eq!(backend.opened.volume.size(), MIB / 2);
}

#[test]
fn nothing_a_folder_a_pipe() {
    let (folder, cache) = (Folder::new("kinds"), cache());
    let missing = folder.0.join("missing");
    let message = refused(&file(&missing), &cache);
    assert!(
        message.ends_with(&format!(
            "write new:{} and a size, as in size=10GiB",
            missing.display()
        )),
        "{message}"
    );
    assert!(!missing.exists(), "it was not made");
    let message = refused(&file(&folder.0), &cache);
    assert!(message.contains("this is a folder"), "{message}");
    let message = refused(&file(Path::new("/dev/null")), &cache);
    assert!(
        message.contains("neither a regular file nor a block device"),
        "{message}"
    );
    let message = refused(&new(&missing.join("below"), MIB), &cache);
    assert!(
        message.starts_with("cannot make ") && message.contains("No such file"),
        "{message}"
    );
}

#[test]
fn what_may_not_be_written_is_seen_before_it_is_opened() {
    use rustix::process::Uid;
    use rustix::thread::set_thread_res_uid;

    let folder = Folder::new("rights");
    let (closed, there) = (folder.0.join("closed"), folder.file("there", MIB, 7));
    fs::create_dir(&closed).unwrap();
    for (path, mode) in [(&closed, 0o555), (&there, 0o444)] {
        fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }
    let objects = |size| BackendConfig::Objects {
        url: format!("dir:{}", closed.join("a/b").display()),
        size,
        object_size: None,
        parallel: None,
        force: false,
    };
    let embedded = BackendConfig::Embedded {
        path: closed.join("a/default.img"),
        size: MIB,
    };
    let reading = VolumeConfig {
        read_only: true,
        ..file(&there)
    };
    // The superuser may do all of it: only this thread becomes somebody else.
    let as_nobody = || {
        if rustix::process::geteuid().is_root() {
            let nobody = Uid::from_raw(65_534);
            set_thread_res_uid(nobody, nobody, nobody).unwrap();
        }
        let looked = |config| look(&config).map_err(|cause| cause.to_string());
        let refused = [
            (file(&there), "run as a user who may write it"),
            (new(&closed.join("new"), MIB), "cannot make "),
            (volume(embedded), "cannot make "),
            (volume(objects(Some(MIB))), "cannot keep a volume in "),
        ];
        for (config, text) in refused {
            let backend = format!("{:?}", config.backend);
            let said = looked(config).expect_err(&backend);
            assert!(said.contains(text) && said.contains("; "), "{said}");
            assert!(said.contains("Permission denied"), "{said}");
        }
        let said = record::look(&closed.join("record")).unwrap_err();
        assert_eq!(said.kind(), std::io::ErrorKind::PermissionDenied);
        assert_eq!(looked(reading), Ok(()));
    };
    std::thread::scope(|threads| threads.spawn(as_nobody).join().unwrap());
    // A folder that is missing.
    assert!(look(&volume(objects(None))).is_err(), "nobody makes it");
    let there = new(&there.join("new"), MIB);
    let said = look(&there).unwrap_err().to_string();
    assert!(said.contains("a part of the path is a file"), "{said}");
}

#[test]
fn a_new_file_is_sparse_and_the_second_time_it_is_there() {
    let (folder, cache) = (Folder::new("new"), cache());
    let path = folder.0.join("data");
    let backend = open(&new(&path, 64 * MIB), &cache).unwrap();
    assert_eq!(backend.opened.volume.size(), 64 * MIB);
    assert_eq!(extents(&backend), [(64 * MIB, true)]);
    write(&backend, &cache, &[1; 8192], MIB);
    backend.opened.volume.sync().unwrap();
    assert_eq!(
        extents(&backend),
        [(MIB, true), (8192, false), (63 * MIB - 8192, true)]
    );
    assert!(backend.opened.can_punch);
    backend.opened.volume.detach().unwrap();
    backend.closer.close();
    backend.made.keep();
    drop(backend.opened);
    let message = refused(&new(&path, 32 * MIB), &cache);
    assert!(
        message.contains("it is there and has 64 MiB, not 32 MiB"),
        "{message}"
    );
    let again = open(&new(&path, 64 * MIB), &cache).unwrap();
    assert_eq!(read(&again, 8192, MIB), [1; 8192]);
    // The embedded one comes with its folder, and with the size that it has.
    let path = folder.0.join("a/b/default.img");
    for size in [MIB, 2 * MIB] {
        let embedded = volume(BackendConfig::Embedded {
            path: path.clone(),
            size,
        });
        let backend = open(&embedded, &cache).unwrap();
        assert_eq!(backend.opened.volume.size(), MIB);
        backend.made.keep();
    }
}

#[test]
fn a_file_made_for_nothing_is_removed_and_one_that_was_there_is_not() {
    let (folder, cache) = (Folder::new("made"), cache());
    let path = folder.0.join("data");
    drop(open(&new(&path, MIB), &cache).unwrap());
    assert!(!path.exists());
    open(&new(&path, MIB), &cache).unwrap().made.keep();
    drop(open(&new(&path, MIB), &cache).unwrap());
    assert!(path.exists());
    // A file that got its name meanwhile is somebody else's.
    let other = folder.0.join("other");
    let backend = open(&new(&other, MIB), &cache).unwrap();
    fs::rename(folder.file("theirs", MIB, 7), &other).unwrap();
    drop(backend);
    assert!(fs::read(&other).unwrap().iter().all(|byte| *byte == 7));
}

#[test]
fn a_lock_keeps_everybody_else_out_until_its_holder_is_gone() {
    let (folder, cache) = (Folder::new("lock"), cache());
    let path = folder.file("data", MIB, 7);
    let backend = open(&file(&path), &cache).unwrap();
    let message = locked_out(&file(&path), &cache);
    assert!(message.contains("this process has it already"), "{message}");
    let mut reader = file(&path);
    reader.read_only = true;
    locked_out(&reader, &cache);
    // A file of the library is not had beside it, nor it beside one.
    let library = tidegate::OpenOptions::new();
    let taken = cache.open(&path, library).map(drop).unwrap_err();
    assert!(
        taken
            .to_string()
            .contains("in use by another cache or volume"),
        "{taken}"
    );
    drop(backend);
    let other = folder.file("other", MIB, 7);
    let theirs = cache.open(&other, library).unwrap();
    locked_out(&file(&other), &cache);
    theirs.close().unwrap();
    let readers = [
        open(&reader, &cache).unwrap(),
        open(&reader, &cache).unwrap(),
    ];
    locked_out(&file(&path), &cache);
    drop(readers);
    // Another process: named.
    let mut holder = Command::new("flock")
        .arg(&path)
        .args(["sh", "-c", "echo locked; exec sleep 60"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 7];
    std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut said).unwrap();
    let message = locked_out(&file(&path), &cache);
    assert!(
        message.contains("in use by process ") || message.contains("in use by another process"),
        "{message}"
    );
    holder.kill().unwrap();
    holder.wait().unwrap();
}

#[test]
fn layers_are_around_the_device_and_can_be_let_go() {
    let (folder, cache) = (Folder::new("layers"), cache());
    let path = folder.file("data", MIB, 7);
    let mut config = file(&path);
    config.layers = device::Layer::parse_stack("faulty:eio_reads=1").unwrap();
    let backend = open(&config, &cache).unwrap();
    assert_eq!(backend.layers.stack().unwrap().faulty.len(), 1);
    let mut data = [0; 512];
    let failed = backend
        .opened
        .volume
        .read(&mut Cursor::default(), &mut data, 0, Mode::Blocking);
    assert!(failed.is_err());
    backend.layers.release();
}

#[test]
fn objects_of_a_folder() {
    let (folder, cache) = (Folder::new("objects"), cache());
    let objects = |size| {
        volume(BackendConfig::Objects {
            url: format!("dir:{}", folder.0.join("store").display()),
            size,
            object_size: Some(256 << 10),
            parallel: None,
            force: false,
        })
    };
    let message = refused(&objects(None), &cache);
    assert!(message.contains("No such file"), "{message}");
    fs::create_dir(folder.0.join("store")).unwrap();
    let message = refused(&objects(None), &cache);
    assert!(message.contains("give a size to make one"), "{message}");
    let backend = open(&objects(Some(4 * MIB)), &cache).unwrap();
    write(&backend, &cache, &[5; 4096], MIB);
    backend.opened.volume.sync().unwrap();
    assert_eq!(extents(&backend)[0], (MIB, true));
    assert!(matches!(locked_out(&objects(None), &cache), message if message.contains("use")));
    backend.opened.volume.detach().unwrap();
    backend.closer.close();
    drop((backend.opened, backend.layers));
    cache.close().unwrap();
    drop(cache);
    let cache = self::cache();
    let again = open(&objects(None), &cache).unwrap();
    assert_eq!(again.opened.volume.size(), 4 * MIB);
    assert_eq!(read(&again, 4096, MIB), [5; 4096]);
    // Of memory all that is kept counts.
    let kept = volume(BackendConfig::Memory { size: 64 * MIB });
    assert!(memory(&kept) > 64 * MIB && memory(&objects(None)) < 16 * MIB);
    // It has no store, whose requests would have descriptors.
    assert!(descriptors(&kept) == DESCRIPTORS && descriptors(&objects(None)) > DESCRIPTORS);
}

/// A loop device over a file; detached when dropped.
struct Loop(PathBuf);

impl Loop {
    /// `None` where there is none available: no root, no such devices.
    fn new(file: &Path) -> Option<Self> {
        let made = Command::new("losetup")
            .args(["-f", "--show"])
            .arg(file)
            .output();
        let made = made.ok().filter(|made| made.status.success())?;
        let path = String::from_utf8(made.stdout).ok()?;
        Some(Self(path.trim_end().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

/// Other names of the same bytes: the library's test `aliases` has more of them.
#[test]
fn a_file_and_its_loop_devices_are_served_under_one_name() {
    let (folder, cache) = (Folder::new("alias"), cache());
    let path = folder.file("one.img", 4 * MIB, 7);
    let devices = [Loop::new(&path), Loop::new(&path)];
    let [Some(one), Some(other)] = devices else {
        use std::io::Write as _;
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: a_file_and_its_loop_devices: no loop device (needs root)"
        );
        return;
    };
    let names = [&path, &one.0, &other.0];
    for first in names {
        let backend = open(&file(first), &cache).unwrap();
        for second in names {
            let told = locked_out(&file(second), &cache);
            assert!(told.contains("one.img") || told.contains("loop"), "{told}");
        }
        drop(backend);
    }
}

/// Programs that lock nothing, before a write, before its sync, and after it: their bytes stay.
#[test]
fn a_served_file_that_others_make_longer_keeps_what_they_added() {
    use std::io::Write as _;
    let (folder, cache) = (Folder::new("longer"), cache());
    // Its last page is not a whole one.
    let (size, added) = (MIB + 512, [b'A'; 5000]);
    for moment in 0..3 {
        let path = folder.file("data", size, 7);
        let backend = open(&file(&path), &cache).unwrap();
        let append = |at| {
            if at == moment {
                let mut others = File::options().append(true).open(&path).unwrap();
                others.write_all(&added).unwrap();
            }
        };
        append(0);
        write(&backend, &cache, &[8; 100], MIB + 400);
        append(1);
        backend.opened.volume.sync().unwrap();
        append(2);
        write(&backend, &cache, &[9; 100], MIB);
        backend.opened.volume.sync().unwrap();
        drop(backend);
        let there = fs::read(&path).unwrap();
        let end = usize::try_from(size).unwrap();
        assert_eq!(
            (&there[end - 112..end - 12], &there[end..]),
            (&[8; 100][..], &added[..])
        );
    }
}

#[test]
fn a_block_device_is_had_alone() {
    let (folder, cache) = (Folder::new("block"), cache());
    let path = folder.file("disk", 4 * MIB + 512, 7);
    let Some(device) = Loop::new(&path) else {
        use std::io::Write as _;
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: a_block_device_is_had_alone: no loop device (needs root)"
        );
        return;
    };
    let backend = open(&file(&device.0), &cache).unwrap();
    let volume = &backend.opened.volume;
    assert_eq!(volume.size(), 4 * MIB + 512);
    assert!(backend.opened.extents.is_none() && backend.opened.can_punch);
    write(&backend, &cache, &[8; 612], 4 * MIB - 100);
    volume.punch(MIB, MIB).unwrap();
    assert_eq!(read(&backend, 4096, MIB), [0; 4096]);
    volume.sync().unwrap();
    let there = fs::read(&path).unwrap();
    assert!(there.ends_with(&[8; 612]) && there[usize::try_from(MIB).unwrap()] == 0);
    let message = locked_out(&file(&device.0), &cache);
    assert!(message.contains("this process has it already"), "{message}");
    drop(backend);
    // A holder that has it for itself, without a lock: a mount, a swap, another program.
    let flag = i32::try_from(rustix::fs::OFlags::EXCL.bits()).unwrap();
    let mut alone = File::options();
    std::os::unix::fs::OpenOptionsExt::custom_flags(alone.read(true), flag);
    let began = Instant::now();
    let holder = loop {
        match alone.open(&device.0) {
            // A child of another test has the descriptor between its fork and its beginning.
            Err(_) if began.elapsed() < FORKED => std::thread::sleep(Duration::from_millis(2)),
            opened => break opened.unwrap(),
        }
    };
    let message = refused(&file(&device.0), &cache);
    assert!(
        message.contains("in use by a mounted file system, or a program"),
        "{message}"
    );
    drop(holder);
    open(&file(&device.0), &cache).unwrap();
}

#[test]
fn a_device_that_takes_no_writes_is_refused_unless_it_is_served_for_reading() {
    let (folder, cache) = (Folder::new("read-only-block"), cache());
    let path = folder.file("disk", 4 * MIB, 7);
    let device = Loop::new(&path);
    let set = |option: &str, device: &Loop| {
        let set = Command::new("blockdev").arg(option).arg(&device.0).status();
        set.is_ok_and(|status| status.success())
    };
    let Some(device) = device.filter(|device| set("--setro", device)) else {
        use std::io::Write as _;
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: a_device_that_takes_no_writes: no loop device that can be set so (needs root)"
        );
        return;
    };
    let answer = open(&file(&device.0), &cache).err();
    let reads = VolumeConfig {
        read_only: true,
        ..file(&device.0)
    };
    let backend = open(&reads, &cache);
    // It stays so when the file below it is taken away.
    assert!(set("--setrw", &device));
    let message = answer.expect("it takes no writes").to_string();
    assert!(
        message.contains("set to read-only") && message.contains("`ro`"),
        "{message}"
    );
    let backend = backend.unwrap();
    assert_eq!(read(&backend, 4096, MIB), [7; 4096]);
    drop(backend);
    open(&file(&device.0), &cache).unwrap();
}

#[test]
fn a_file_system_without_locks_is_named_with_what_goes_all_the_same() {
    let folder = Folder::new("no-locks");
    let path = folder.0.join("disk");
    File::create(&path).unwrap();
    let mut config = file(&path);
    let asked = |config: &VolumeConfig| {
        // ENOLCK.
        file::without_lock(&path, config, std::io::Error::from_raw_os_error(37))
    };
    let message = asked(&config).unwrap_err().to_string();
    for text in [
        "cannot be locked",
        ", on the mount ",
        "NFS without its lock service",
        "`unlocked=true`",
    ] {
        assert!(message.contains(text), "{text}: {message}");
    }
    config.unlocked = true;
    asked(&config).unwrap();
    (config.unlocked, config.read_only) = (false, true);
    asked(&config).unwrap();
}

#[test]
fn a_file_that_was_created_and_cannot_be_locked_goes_unless_it_has_become_somebody_elses() {
    let folder = Folder::new("unlocked");
    let made = |name: &str, lock: fn(&Path) -> Result<LockedFile, BackendError>| {
        let path = folder.0.join(name);
        assert!(file::make(&path, MIB, true, lock).is_err(), "{name}");
        path.exists()
    };
    assert!(!made("empty", |path| Err(BackendError::Missing {
        path: path.into()
    })));
    // Another server was faster.
    assert!(made("locked", |path| {
        let others = File::open(path).unwrap();
        others.lock().unwrap();
        // For as long as this process lives.
        core::mem::forget(others);
        Err(BackendError::Missing { path: path.into() })
    }));
    assert!(made("filled", |path| {
        fs::write(path, "data").unwrap();
        Err(BackendError::Missing { path: path.into() })
    }));
    // A file that was there before is nobody's to remove.
    fs::write(folder.0.join("there"), "").unwrap();
    assert!(made("there", |path| Err(BackendError::Missing {
        path: path.into()
    })));
}

#[test]
fn more_than_the_cache_knows_pages_of_is_served_in_part_only() {
    let path = Path::new("/srv/disk");
    let most = 17_592_186_040_320;
    let size = |has, wanted| file::size(path, has, wanted, false);
    assert_eq!(size(most, None).unwrap(), most);
    assert_eq!(size(20 << 40, Some(most)).unwrap(), most);
    let error = size(16 << 40, None).unwrap_err().to_string();
    assert!(error.contains("size=17592186040320B"), "{error}");
}
