//! The bytes of a file, or of another device, that a file or device shows under its own name.
//!
//! A lock belongs to an inode. A loop device, its partitions, what a device mapper makes of them,
//! and a file of an overlay have inodes of their own, and the bytes of another one; whoever locks
//! one locks what is below it, too.
//!
//! ```text
//!   /dev/mapper/x --slaves--> /dev/loop0p1 --partition, start--> /dev/loop0 --offset, sizelimit--> one.img
//!   merged/one.img --upperdir--> upper/one.img
//! ```
//!
//! Names that lead to the same inode need nothing of this: links, bind mounts, `/proc/self/fd`,
//! other mount namespaces. Devices below a device are kept from others by O_EXCL, which the system
//! knows of whole disks, partitions and a device mapper's.
//!
//! The other way, a loop device over a file that is opened by itself: one that is mounted, or below
//! what is mounted, is somebody's who writes the file. Of mounts, those of this mount namespace are
//! known.
//!
//! Not known here: which part of its devices a device mapper shows, so its volumes may share one; a
//! file below a file system on a network, or in a FUSE program.
//!
//! Source: Documentation/ABI/stable/sysfs-block; loop(4), LOOP_GET_STATUS64; proc_pid_mountinfo(5).

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, StatxFlags, fstatfs, major, minor, statx};

use crate::own_path::{Identity, identity};
use crate::sys;

const DEVICES: &str = "/sys/dev/block";
/// Bytes of the unit that partitions are told in.
const SECTOR: u64 = 512;
const OVERLAY: rustix::fs::FsWord = 0x794c_7630;
/// Devices that stand on each other, at most.
const DEPTH_MAX: u32 = 8;

/// Bytes that something shows under another name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backing {
    /// The file, or block device.
    pub(crate) path: PathBuf,
    /// The file that `path` has to lead to, if that is known.
    pub(crate) identity: Option<Identity>,
    pub(crate) bytes: Range<u64>,
    /// Others may show other bytes of the same range: which, is not known.
    pub(crate) is_shared: bool,
    /// It may be out of reach, as it is for a container.
    pub(crate) may_be_away: bool,
}

/// Finds the files and devices of which an open file or block device shows bytes.
pub(crate) fn below(file: &File) -> Vec<Backing> {
    let Ok(data) = file.metadata() else {
        return Vec::new();
    };
    let mut found = Vec::new();
    if data.file_type().is_block_device() {
        let identity = sys::loop_backing(file);
        let start = Part {
            bytes: 0..u64::MAX,
            is_shared: false,
            identity,
        };
        walk(Path::new(DEVICES), &name(data.rdev()), start, 0, &mut found);
    } else if fstatfs(file).is_ok_and(|told| told.f_type == OVERLAY) {
        found.extend(upper(file));
    }
    found
}

fn name(device: u64) -> String {
    format!("{}:{}", major(device), minor(device))
}

/// A part of a device, on the way down.
#[derive(Clone)]
struct Part {
    bytes: Range<u64>,
    is_shared: bool,
    identity: Option<Identity>,
}

/// `devices`: where the system tells of them; `device`: its two numbers.
fn walk(devices: &Path, device: &str, part: Part, depth: u32, found: &mut Vec<Backing>) {
    let folder = devices.join(device);
    let says = |what: &str| {
        let text = std::fs::read_to_string(folder.join(what)).ok()?;
        Some(text.trim_end_matches('\n').to_owned())
    };
    let number = |what| says(what)?.parse::<u64>().ok();
    if depth == DEPTH_MAX {
        return;
    }
    if number("partition").is_some() {
        let start = number("start").unwrap_or(0).saturating_mul(SECTOR);
        let size = number("size").map_or(u64::MAX, |size| size.saturating_mul(SECTOR));
        if let Some(disk) = says("../dev") {
            let bytes = inside(&(start..start.saturating_add(size)), &part.bytes);
            walk(devices, &disk, Part { bytes, ..part }, depth + 1, found);
        }
    } else if let Some(path) = says("loop/backing_file") {
        let offset = number("loop/offset").unwrap_or(0);
        let limit = number("loop/sizelimit").filter(|limit| *limit > 0);
        let end = limit.map_or(u64::MAX, |limit| offset.saturating_add(limit));
        found.push(Backing {
            path: path.into(),
            identity: part.identity,
            bytes: inside(&(offset..end), &part.bytes),
            is_shared: part.is_shared,
            may_be_away: false,
        });
    } else if let Ok(slaves) = std::fs::read_dir(folder.join("slaves")) {
        for slave in slaves.flatten() {
            let number = std::fs::read_to_string(slave.path().join("dev"));
            if let Ok(number) = number {
                let part = Part {
                    bytes: 0..u64::MAX,
                    is_shared: true,
                    identity: None,
                };
                walk(devices, number.trim(), part, depth + 1, found);
            }
        }
    }
}

/// A loop device over an open file that is mounted, or on which a device stands that is. `reads`:
/// one that is mounted to be read alone does no harm.
pub(crate) fn used_above(file: &File, reads: bool) -> Option<PathBuf> {
    let own = identity(&file.metadata().ok()?);
    let mounts = || std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    used_in(Path::new("/sys/block"), own, mounts, reads)
}

fn used_in(
    blocks: &Path,
    file: Identity,
    mounts: impl Fn() -> String,
    reads: bool,
) -> Option<PathBuf> {
    let loops = std::fs::read_dir(blocks).ok()?.flatten();
    let mut over = loops.filter(|device| {
        let path = std::fs::read_to_string(device.path().join("loop/backing_file"));
        let data = path.and_then(|path| std::fs::metadata(path.trim_end_matches('\n')));
        data.is_ok_and(|data| identity(&data) == file)
    });
    over.find_map(|device| {
        let folder = device.path();
        let parts = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let parts = parts.map(|part| part.path());
        let parts = parts.filter(|part| part.join("partition").exists());
        let mounts = mounts();
        let mut all = std::iter::once(folder.clone()).chain(parts);
        let found = all.find(|at| is_mounted(at, &mounts, reads, 0))?;
        Some(Path::new("/dev").join(found.file_name()?))
    })
}

/// True if a device that the system tells of is mounted, or one that stands on it.
fn is_mounted(device: &Path, mounts: &str, reads: bool, depth: u32) -> bool {
    let number = std::fs::read_to_string(device.join("dev")).unwrap_or_default();
    let mut lines = mounts.lines();
    let holders = std::fs::read_dir(device.join("holders"));
    let mut holders = holders.into_iter().flatten().flatten();
    lines.any(|line| is_mount_of(line, number.trim(), reads))
        || depth < DEPTH_MAX
            && holders.any(|holder| is_mounted(&holder.path(), mounts, reads, depth + 1))
}

/// True for a line of `mountinfo` of that device; `reads`: if it may be written there.
fn is_mount_of(line: &str, device: &str, reads: bool) -> bool {
    // 36 35 7:0 / /mnt rw,noatime - ext4 /dev/loop0 rw,errors=continue
    let is_it = line.split(' ').nth(2) == Some(device);
    let options = line.rsplit(' ').next().unwrap_or_default();
    is_it && (!reads || options.split(',').any(|option| option == "rw"))
}

/// The bytes `part` of what begins at `whole`.
fn inside(whole: &Range<u64>, part: &Range<u64>) -> Range<u64> {
    let at = |place: u64| whole.start.saturating_add(place).min(whole.end);
    at(part.start)..at(part.end)
}

/// The file of an overlay's upper folder that has the bytes of one in the overlay, open for writing
/// or copied there before.
fn upper(file: &File) -> Option<Backing> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let id = statx(file, "", flags, StatxFlags::MNT_ID).ok()?.stx_mnt_id;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    Some(Backing {
        path: upper_of(&mounts, id, &path)?,
        identity: None,
        bytes: 0..u64::MAX,
        is_shared: false,
        may_be_away: true,
    })
}

fn upper_of(mounts: &str, id: u64, path: &Path) -> Option<PathBuf> {
    // 36 35 0:40 / /merged rw - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w
    let start = format!("{id} ");
    let line = mounts.lines().find(|line| line.starts_with(&start))?;
    let (place, system) = line.split_once(" - ")?;
    let mut fields = place.split(' ').skip(3);
    let (root, point) = (plain(fields.next()?), plain(fields.next()?));
    let mut options = system.split(' ').nth(2)?.split(',');
    let upper = options.find_map(|option| option.strip_prefix("upperdir="))?;
    let root = Path::new(&root).strip_prefix("/").ok()?;
    let rest = path.strip_prefix(point).ok()?;
    Some(Path::new(&plain(upper)).join(root).join(rest))
}

/// A path of `mountinfo` without its escapes.
fn plain(path: &str) -> String {
    let escapes = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    let unescape = |path: String, (escape, is): &(&str, &str)| path.replace(escape, is);
    escapes.iter().fold(path.to_owned(), unescape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TestDir;

    /// As the system tells of devices, in a folder of the test's: what a device says, and below
    /// which other one it lies.
    fn tells(dir: &TestDir, place: &str, number: &str, says: &[(&str, &str)]) {
        let folder = dir.join("devices").join(place);
        for (what, text) in says.iter().chain(&[("dev", number)]) {
            let path = folder.join(what);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{text}\n")).unwrap();
        }
        std::os::unix::fs::symlink(folder, dir.join(number)).unwrap();
    }

    #[test]
    fn bytes_are_followed_down_to_the_file() {
        let dir = TestDir::new("backing");
        let looped = [
            ("loop/backing_file", "/srv/one two.img"),
            ("loop/offset", "1048576"),
            ("loop/sizelimit", "0"),
        ];
        tells(&dir, "loop0", "7:0", &looped);
        let first = [("partition", "1"), ("start", "8"), ("size", "16")];
        tells(&dir, "loop0/loop0p1", "259:0", &first);
        let limited = [
            ("loop/backing_file", "/srv/one two.img"),
            ("loop/offset", "0"),
            ("loop/sizelimit", "1048576"),
        ];
        tells(&dir, "loop1", "7:1", &limited);
        tells(
            &dir,
            "dm-0",
            "253:0",
            &[("slaves/loop0p1/dev", "259:0"), ("slaves/loop1/dev", "7:1")],
        );
        tells(&dir, "sda", "8:0", &[]);
        let of = |device| {
            let (mut found, part) = (
                Vec::new(),
                Part {
                    bytes: 0..u64::MAX,
                    is_shared: false,
                    identity: None,
                },
            );
            walk(&dir.0, device, part, 0, &mut found);
            found
                .into_iter()
                .map(|at| (at.path, at.bytes, at.is_shared))
                .collect::<Vec<_>>()
        };
        let image = || PathBuf::from("/srv/one two.img");
        let mib = 1 << 20;
        assert_eq!(of("7:0"), [(image(), mib..u64::MAX, false)]);
        assert_eq!(of("259:0"), [(image(), mib + 4096..mib + 12288, false)]);
        assert_eq!(of("7:1"), [(image(), 0..mib, false)]);
        let mut both = of("253:0");
        both.sort_by_key(|(_, bytes, _)| bytes.start);
        assert_eq!(
            both,
            [
                (image(), 0..mib, true),
                (image(), mib + 4096..mib + 12288, true)
            ]
        );
        assert_eq!(of("8:0"), []);
        assert_eq!(of("9:9"), []);
    }

    #[test]
    fn a_loop_device_that_others_use_is_found_above_its_file() {
        let dir = TestDir::new("above");
        let (image, other) = (dir.join("a.img"), dir.join("b.img"));
        for path in [&image, &other] {
            std::fs::write(path, "").unwrap();
        }
        std::fs::hard_link(&image, dir.join("link.img")).unwrap();
        let blocks = dir.join("block");
        let set_up = |device: &str, file: &Path, number: &str| {
            let folder = blocks.join(device);
            std::fs::create_dir_all(folder.join("loop")).unwrap();
            std::fs::create_dir_all(folder.join("holders")).unwrap();
            std::fs::write(folder.join("dev"), format!("{number}\n")).unwrap();
            let file = format!("{}\n", file.display());
            std::fs::write(folder.join("loop/backing_file"), file).unwrap();
        };
        set_up("loop0", &other, "7:0");
        set_up("loop1", &dir.join("link.img"), "7:1");
        std::fs::create_dir_all(blocks.join("sda")).unwrap();
        let part = blocks.join("loop1/loop1p2");
        std::fs::create_dir_all(part.join("holders")).unwrap();
        std::fs::write(part.join("dev"), "259:4\n").unwrap();
        std::fs::write(part.join("partition"), "2\n").unwrap();
        let found = |mounts: &str, reads| {
            let file = identity(&std::fs::metadata(&image).unwrap());
            let found = used_in(&blocks, file, || mounts.to_owned(), reads);
            found.map(|path| path.display().to_string())
        };
        let line = |number: &str, way: &str| {
            format!(
                "36 35 {number} / /mnt {way},noatime shared:1 - ext4 /dev/x {way},errors=continue\n"
            )
        };
        for (number, device) in [
            ("7:1", Some("/dev/loop1")),
            ("259:4", Some("/dev/loop1p2")),
            ("7:0", None),
            ("7:11", None),
        ] {
            for (way, reads) in [("rw", false), ("rw", true), ("ro", false), ("ro", true)] {
                let expected = device.filter(|_| way == "rw" || !reads);
                let mounts = line("8:1", "rw") + &line(number, way);
                assert_eq!(
                    found(&mounts, reads).as_deref(),
                    expected,
                    "{number} {way} {reads}"
                );
            }
        }
        let holder = part.join("holders/dm-0");
        std::fs::create_dir_all(&holder).unwrap();
        std::fs::write(holder.join("dev"), "253:0\n").unwrap();
        assert_eq!(found("", false), None, "it only stands there");
        assert_eq!(
            found(&line("253:0", "rw"), true).as_deref(),
            Some("/dev/loop1p2")
        );
    }

    #[test]
    fn a_file_of_an_overlay_is_followed_to_its_upper_folder() {
        let mounts = "35 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                      36 35 0:40 / /mnt/a\\040b rw,relatime shared:7 - overlay overlay rw,lowerdir=/l:/m,upperdir=/up/er,workdir=/w\n\
                      37 35 0:40 /sub /mnt/sub rw - overlay overlay rw,lowerdir=/l,upperdir=/up/er,workdir=/w\n\
                      38 35 0:41 / /mnt/ro ro - overlay overlay ro,lowerdir=/l:/m\n";
        let of = |id, path| upper_of(mounts, id, Path::new(path));
        assert_eq!(of(36, "/mnt/a b/x/y"), Some("/up/er/x/y".into()));
        assert_eq!(of(37, "/mnt/sub/y"), Some("/up/er/sub/y".into()));
        assert_eq!(of(38, "/mnt/ro/y"), None);
        assert_eq!(of(35, "/y"), None);
        assert_eq!(of(99, "/y"), None);
    }
}
