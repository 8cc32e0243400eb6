//! A file belongs to one cache: another one, whatever its process and whatever name it knows the
//! file by, is refused while it is open, with the name of its holder.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use os::{Holder, OsError};
use tidegate::{Cache, Error, OpenOptions};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("tidegate-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    /// A file of 64 KiB.
    fn file(&self) -> PathBuf {
        let path = self.0.join("data");
        fs::write(&path, [7; 64 << 10]).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn cache() -> Cache {
    Cache::builder().memory(16 << 20).build().unwrap()
}

fn holder(cache: &Cache, path: &Path, options: OpenOptions) -> Holder {
    match cache.open(path, options).map(drop) {
        Err(Error::System(OsError::InUse {
            path: named,
            holder,
        })) => {
            assert_eq!(named, path);
            holder
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_one_cache_synced_no_other_cache_overwrites() {
    let folder = Folder::new("two-caches");
    let path = folder.file();
    let (first, second) = (cache(), cache());
    let write = OpenOptions::new();
    let ours = first.open(&path, write).unwrap();
    let (hard, soft) = (folder.0.join("hard"), folder.0.join("soft"));
    fs::hard_link(&path, &hard).unwrap();
    symlink(&path, &soft).unwrap();
    for name in [&path, &hard, &soft] {
        assert_eq!(holder(&second, name, write), Holder::Ourselves);
        assert_eq!(
            holder(&second, name, write.create(true).truncate(true)),
            Holder::Ourselves
        );
        assert_eq!(
            holder(&second, name, write.read_only(true)),
            Holder::Ourselves
        );
        drop(first.open(name, write).unwrap());
    }
    ours.write_at(b"first", 100).unwrap();
    ours.sync().unwrap();
    drop(ours);
    assert_eq!(
        holder(&second, &path, write),
        Holder::Ourselves,
        "its pages are kept"
    );
    // Handles of a cache that has ended hold nothing.
    let left = first.open(&path, write).unwrap();
    first.close().unwrap();
    let theirs = second.open(&path, write).unwrap();
    theirs.write_at(b"second", 200).unwrap();
    theirs.sync().unwrap();
    theirs.close().unwrap();
    drop(left);
    let there = fs::read(&path).unwrap();
    assert_eq!(
        (&there[100..105], &there[200..206]),
        (&b"first"[..], &b"second"[..])
    );
}

#[test]
fn readers_share_and_keep_writers_out() {
    let folder = Folder::new("readers");
    let path = folder.file();
    let caches = [cache(), cache(), cache()];
    let read = OpenOptions::new().read_only(true);
    let readers = [
        caches[0].open(&path, read).unwrap(),
        caches[1].open(&path, read).unwrap(),
    ];
    assert_eq!(
        holder(&caches[2], &path, OpenOptions::new()),
        Holder::Ourselves
    );
    for reader in readers {
        reader.close().unwrap();
    }
    drop(caches[2].open(&path, OpenOptions::new()).unwrap());
}

#[test]
fn another_program_is_named_and_a_file_may_be_had_without_a_lock() {
    let folder = Folder::new("program");
    let (path, cache) = (folder.file(), cache());
    let mut program = Command::new("flock")
        .arg("--no-fork")
        .arg(&path)
        .args(["sh", "-c", "echo locked; exec sleep 60"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 7];
    std::io::Read::read_exact(program.stdout.as_mut().unwrap(), &mut said).unwrap();
    let error = cache.open(&path, OpenOptions::new()).map(drop).unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("in use by process ") || message.contains("in use by another process"),
        "{message}"
    );
    assert_eq!(
        std::io::Error::from(error).kind(),
        std::io::ErrorKind::ResourceBusy
    );
    let unlocked = cache.open(&path, OpenOptions::new().lock(false)).unwrap();
    unlocked.close().unwrap();
    program.kill().unwrap();
    program.wait().unwrap();
    drop(cache.open(&path, OpenOptions::new()).unwrap());
}

/// Somebody else cuts it: bytes that are gone are an error, as to the server, and stay gone.
#[test]
fn a_file_that_others_cut_is_no_zeroes_and_grows_by_no_sync() {
    for io_uring in [true, false] {
        let folder = Folder::new(if io_uring { "cut-ring" } else { "cut-pool" });
        let path = folder.file();
        let cache = Cache::builder().memory(16 << 20).io_uring(io_uring);
        let cache = cache.build().unwrap();
        let file = cache.open(&path, OpenOptions::new()).unwrap();
        // Our own cuts and growth are none of others.
        file.set_len(40 << 10).unwrap();
        file.set_len(64 << 10).unwrap();
        file.write_at(&[8; 4096], 64 << 10).unwrap();
        file.set_len(67 << 10).unwrap();
        file.sync().unwrap();
        let mut read = [0; 4096];
        file.read_at(&mut read, 50 << 10).unwrap();
        assert_eq!(read, [0; 4096]);
        drop(file.close());
        let file = cache.open(&path, OpenOptions::new()).unwrap();
        file.write_at(&[9; 4096], 0).unwrap();
        let other = File::options().write(true).open(&path).unwrap();
        other.set_len(8 << 10).unwrap();
        let error = file.read_at(&mut read, 32 << 10).unwrap_err();
        assert!(error.to_string().contains("gone"), "{error}");
        // Bytes that are still there can be written, and none behind them.
        file.sync().unwrap();
        file.write_at(&[9; 1024], 66 << 10).unwrap_err();
        file.write_at(&[9; 4096], 48 << 10).unwrap();
        let error = file.sync().unwrap_err();
        assert!(error.to_string().contains("gone"), "{error}");
        assert_eq!(fs::metadata(&path).unwrap().len(), 8 << 10);
    }
}

/// A loop device over a file; detached when dropped.
struct Loop(PathBuf);

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

#[test]
fn a_block_device_is_one_by_all_its_names_and_through_layers() {
    let folder = Folder::new("device");
    let path = folder.0.join("disk");
    File::create(&path).unwrap().set_len(4 << 20).unwrap();
    let made = Command::new("losetup")
        .args(["-f", "--show"])
        .arg(&path)
        .output();
    let Some(made) = made.ok().filter(|made| made.status.success()) else {
        use std::io::Write as _;
        let skipped =
            "SKIPPED: a_block_device_is_one_by_all_its_names: no loop device (needs root)";
        let _ = writeln!(std::io::stderr(), "{skipped}");
        return;
    };
    let device = Loop(String::from_utf8(made.stdout).unwrap().trim_end().into());
    let data = fs::metadata(&device.0).unwrap();
    assert!(data.file_type().is_block_device());
    let other = folder.0.join("other");
    let (major, minor) = (data.rdev() >> 8 & 0xfff, data.rdev() & 0xff);
    let numbers = [major.to_string(), minor.to_string()];
    let made = Command::new("mknod")
        .arg(&other)
        .arg("b")
        .args(numbers)
        .status();
    assert!(made.unwrap().success());
    let layered = Cache::builder()
        .memory(16 << 20)
        .layers("slow:latency=1us")
        .unwrap();
    let (first, second) = (layered.build().unwrap(), cache());
    let ours = first.open(&device.0, OpenOptions::new()).unwrap();
    ours.write_at(b"ours", 0).unwrap();
    drop(first.open(&other, OpenOptions::new()).unwrap());
    assert_eq!(
        holder(&second, &device.0, OpenOptions::new()),
        Holder::Ourselves
    );
    // A lock of another node is none of this one; the device itself is had alone.
    assert_eq!(
        holder(&second, &other, OpenOptions::new()),
        Holder::Exclusive
    );
    ours.close().unwrap();
    let theirs = second.open(&other, OpenOptions::new()).unwrap();
    let mut read = [0; 4];
    theirs.read_at(&mut read, 0).unwrap();
    assert_eq!(&read, b"ours");
}
