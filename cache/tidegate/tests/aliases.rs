//! Names of the same bytes: whatever another name of a file, or of a part of it, is made of, two
//! caches do not write them at the same time. Those that this machine cannot make are named.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use os::OsError;
use tidegate::{Cache, Error, OpenOptions};

const MIB: u64 = 1 << 20;

/// A folder with a file of 8 MiB, and what is undone at its end, last first.
struct Place {
    folder: PathBuf,
    undo: Vec<Vec<String>>,
}

impl Place {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("tidegate-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let place = Self {
            folder,
            undo: Vec::new(),
        };
        File::create(place.file())
            .unwrap()
            .set_len(8 * MIB)
            .unwrap();
        place
    }

    fn file(&self) -> PathBuf {
        self.folder.join("one.img")
    }

    fn inside(&self, name: &str) -> PathBuf {
        let path = self.folder.join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// Runs a command of the system; answers its words.
    fn run(&self, command: &str) -> Option<String> {
        let done = Command::new("sh")
            .args(["-c", command])
            .current_dir(&self.folder)
            .output();
        let done = done.ok().filter(|done| done.status.success())?;
        Some(String::from_utf8(done.stdout).unwrap().trim().to_owned())
    }

    fn undo(&mut self, words: &[&str]) {
        self.undo
            .push(words.iter().map(|word| (*word).to_owned()).collect());
    }

    fn looped(&mut self, options: &str, file: &Path) -> Option<PathBuf> {
        let device = self.run(&format!("losetup -f --show {options} {}", file.display()))?;
        self.undo(&["losetup", "-d", &device]);
        Some(device.into())
    }

    /// The node of a device that the system tells of.
    fn node(&self, told: &Path, name: &str) -> Option<PathBuf> {
        let number = fs::read_to_string(told.join("dev")).ok()?;
        let (major, minor) = number.trim().split_once(':')?;
        self.run(&format!("mknod {name} b {major} {minor}"))?;
        Some(self.folder.join(name))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        while let Some(undo) = self.undo.pop() {
            let _ = Command::new(&undo[0]).args(&undo[1..]).status();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Another name of the place's file, or of a part of it; none: it cannot be made here.
type Make = fn(&mut Place) -> Option<PathBuf>;

const ALIASES: [(&str, Make); 15] = [
    ("a hard link", |place| {
        let path = place.folder.join("hard");
        fs::hard_link(place.file(), &path).ok().map(|()| path)
    }),
    ("a symbolic link", |place| {
        let path = place.folder.join("soft");
        symlink(place.file(), &path).ok().map(|()| path)
    }),
    ("a path with `..`", |place| {
        Some(place.inside("x").join("../one.img"))
    }),
    ("a descriptor", |place| {
        let file = File::open(place.file()).unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        core::mem::forget(file);
        Some(path.into())
    }),
    ("a bind mount of the folder", |place| {
        let there = place.inside("bound");
        place.run("mount --bind . bound")?;
        place.undo(&["umount", there.to_str().unwrap()]);
        Some(there.join("one.img"))
    }),
    ("a bind mount of the file", |place| {
        let there = place.folder.join("bound.img");
        File::create(&there).unwrap();
        place.run("mount --bind one.img bound.img")?;
        place.undo(&["umount", there.to_str().unwrap()]);
        Some(there)
    }),
    ("an overlay", |place| {
        let merged = ["lower", "work", "merged"].map(|name| place.inside(name))[2].clone();
        place.run("mkdir upper && ln one.img upper/one.img && mount -t overlay overlay -o lowerdir=$PWD/lower,upperdir=$PWD/upper,workdir=$PWD/work merged")?;
        place.undo(&["umount", merged.to_str().unwrap()]);
        Some(merged.join("one.img"))
    }),
    ("a loop device", |place| place.looped("", &place.file())),
    ("a loop device at an offset", |place| {
        place.looped("-o 1048576", &place.file())
    }),
    ("a loop device with a limit", |place| {
        place.looped("--sizelimit 1048576", &place.file())
    }),
    ("a loop device on a loop device", |place| {
        let first = place.looped("", &place.file())?;
        place.looped("", &first)
    }),
    ("a loop device on a bind mount", |place| {
        let there = place.inside("bound");
        place.run("mount --bind . bound")?;
        place.undo(&["umount", there.to_str().unwrap()]);
        place.looped("", &there.join("one.img"))
    }),
    ("a partition", |place| {
        // From sector 2048 on, 4096 sectors.
        let mut entry = [0_u8; 16];
        entry[4] = 0x83;
        entry[8..12].copy_from_slice(&2048_u32.to_le_bytes());
        entry[12..].copy_from_slice(&4096_u32.to_le_bytes());
        let file = File::options().write(true).open(place.file()).unwrap();
        file.write_all_at(&entry, 446).unwrap();
        file.write_all_at(&[0x55, 0xaa], 510).unwrap();
        let disk = place.looped("-P", &place.file())?;
        let name = disk.file_name().unwrap().to_str().unwrap().to_owned();
        let told = format!("/sys/class/block/{name}/{name}p1");
        place.node(Path::new(&told), "partition")
    }),
    ("a node of a loop device", |place| {
        let device = place.looped("", &place.file())?;
        let name = device.file_name().unwrap();
        place.node(&Path::new("/sys/class/block").join(name), "node")
    }),
    ("a device mapper's volume", |place| {
        let device = place.looped("", &place.file())?;
        let name = format!("tidegate-{}", std::process::id());
        place.run(&format!(
            "dmsetup create {name} --table '0 8192 linear {} 0'",
            device.display()
        ))?;
        place.undo(&["dmsetup", "remove", &name]);
        Some(Path::new("/dev/mapper").join(name))
    }),
];

fn cache() -> Cache {
    Cache::builder().memory(16 << 20).build().unwrap()
}

fn skipped(what: &str) {
    // The harness keeps the words of a test that passes.
    let _ = writeln!(
        std::io::stderr(),
        "SKIPPED: aliases: {what} cannot be made here"
    );
}

/// Opens one name and tries the other by another cache: true if it is refused.
fn excludes(one: (&Path, bool), other: (&Path, bool)) -> bool {
    let (first, second) = (cache(), cache());
    let options = |read_only| OpenOptions::new().read_only(read_only);
    let ours = first.open(one.0, options(one.1)).unwrap();
    let refused = match second.open(other.0, options(other.1)) {
        Err(Error::System(OsError::InUse { .. })) => true,
        Ok(_) => false,
        Err(error) => panic!("{}: {error}", other.0.display()),
    };
    drop(ours);
    let _ = (first.close(), second.close());
    refused
}

#[test]
fn the_same_bytes_are_written_under_one_name_at_a_time() {
    for (what, make) in ALIASES {
        let mut place = Place::new("alias");
        let Some(alias) = make(&mut place) else {
            skipped(what);
            continue;
        };
        let file = place.file();
        for (one, other) in [(&file, &alias), (&alias, &file)] {
            for (writes, reads) in [(false, false), (false, true), (true, false)] {
                assert!(
                    excludes((one, writes), (other, reads)),
                    "{what}: {} (read only: {writes}) and {} (read only: {reads})",
                    one.display(),
                    other.display()
                );
            }
            assert!(!excludes((one, true), (other, true)), "{what}: two readers");
        }
    }
}

#[test]
fn two_aliases_exclude_each_other_and_two_parts_do_not() {
    let mut place = Place::new("two");
    let file = place.file();
    let parts = [
        "",
        "-o 2097152 --sizelimit 2097152",
        "-o 4194304",
        "--sizelimit 2097152",
    ];
    let made: Option<Vec<_>> = parts.iter().map(|part| place.looped(part, &file)).collect();
    let Some(made) = made else {
        return skipped("a loop device");
    };
    let [all, middle, end, begin] = made.as_slice() else {
        unreachable!("as many as parts");
    };
    for part in [middle, end, begin] {
        assert!(excludes((all, false), (part, false)) && excludes((part, false), (all, false)));
    }
    for (one, other) in [(middle, end), (end, begin), (begin, middle)] {
        assert!(!excludes((one, false), (other, false)));
    }
    // Neither leaves a lock behind.
    assert!(excludes((&file, false), (middle, false)));
}

#[test]
fn a_file_below_a_file_system_that_is_mounted_is_left_to_it() {
    let mut place = Place::new("mounted");
    let file = place.file();
    let Some(device) = place.looped("", &file) else {
        return skipped("a loop device");
    };
    let made = place.run(&format!("mkfs.ext4 -q {} && mkdir point", device.display()));
    if made.is_none() {
        return skipped("a file system");
    }
    let opens = |read_only| {
        let opened = cache().open(&file, OpenOptions::new().read_only(read_only));
        !matches!(opened, Err(Error::System(OsError::InUse { .. })))
    };
    for (way, writes, reads) in [("rw", false, false), ("ro", false, true)] {
        let mount = format!("mount -o {way} {} point", device.display());
        if place.run(&mount).is_none() {
            return skipped("a mount");
        }
        let seen = [opens(false), opens(true)];
        place.run("umount point").unwrap();
        assert_eq!(seen, [writes, reads], "mounted {way}");
        assert!(opens(false), "it is not mounted any more");
    }
}

/// In another mount namespace the path of a loop device's file leads elsewhere: what cannot be
/// locked is not written.
#[test]
fn a_file_out_of_reach_is_not_written_through_its_device() {
    let mut place = Place::new("namespace");
    let file = place.inside("hidden").join("far.img");
    fs::rename(place.file(), &file).unwrap();
    let Some(device) = place.looped("", &file) else {
        return skipped("a loop device");
    };
    let test = std::env::current_exe().unwrap();
    let command = format!(
        "mount -t tmpfs none hidden && DEVICE={} exec {} --exact aliases::in_another_namespace --ignored --nocapture",
        device.display(),
        test.display()
    );
    let done = Command::new("unshare")
        .args(["-m", "sh", "-c", &command])
        .current_dir(&place.folder)
        .output();
    let Some(done) = done.ok().filter(|done| done.status.code() != Some(1)) else {
        return skipped("a mount namespace");
    };
    let words = String::from_utf8_lossy(&done.stdout);
    assert!(
        done.status.success() && words.contains("1 passed"),
        "{words}"
    );
}

#[test]
#[ignore = "run in another namespace by the test before it"]
fn in_another_namespace() {
    let device = std::env::var_os("DEVICE").unwrap();
    let opened = cache().open(&device, OpenOptions::new()).map(drop);
    let Err(Error::System(OsError::NoLock { path, .. })) = opened else {
        panic!("{opened:?}");
    };
    assert!(path.ends_with("hidden/far.img"), "{path:?}");
    cache()
        .open(&device, OpenOptions::new().lock(false))
        .unwrap();
}
