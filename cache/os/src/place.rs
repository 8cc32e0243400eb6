//! The properties of a file's place that matter to writes: whether it takes any, and whether their
//! bytes must hold still.
//!
//! A device that computes something of a write on its way (a checksum, parity) wants pages that do
//! not change meanwhile, and so does a file system that keeps checksums of data. Linux holds its
//! own page cache to that; direct writes are on their own. If their pages change, what is read back
//! does not match its checksum: the data are lost, though nothing failed.
//!
//! - A block device says so in its queue (`stable_writes`); a file has the device that its file
//!   system is on.
//! - A file system that spans devices, or computes checksums itself, is known by its number.
//!
//! Source: Documentation/ABI/stable/sysfs-block (`stable_writes`); statfs(2); BLKROGET.

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use rustix::fs::{FsWord, fstatfs, major, minor, statfs};

/// Where the system tells of block devices, by their numbers.
const DEVICES: &str = "/sys/dev/block";

/// File systems that checksum or sign data on their way, by the number that statfs(2) tells. An
/// overlay does not say what lies below it, so it counts as one.
const CHECKSUMMED: [(FsWord, &str); 8] = [
    (0x9123_683e, "btrfs"),
    (0x2fc1_2fc1, "zfs"),
    (0xca45_1a4e, "bcachefs"),
    (0x3434, "nilfs2"),
    (0x00c3_6400, "ceph"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x794c_7630, "overlayfs"),
];

/// The place of a file or block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// The block device: itself, or that of its file system, which may have none of its own.
    device: u64,
    /// Its file system; none: it is a block device.
    system: Option<FsWord>,
}

impl Place {
    fn new(data: &Metadata, system: impl FnOnce() -> rustix::io::Result<FsWord>) -> Option<Self> {
        if data.file_type().is_block_device() {
            return Some(Self {
                device: data.rdev(),
                system: None,
            });
        }
        let system = system().ok()?;
        Some(Self {
            device: data.dev(),
            system: Some(system),
        })
    }

    /// True if the bytes of a write must not change until it has ended; `devices`: the folder in
    /// which the system tells of them.
    fn wants_stable_writes(self, devices: &Path) -> bool {
        let is_known = |system| CHECKSUMMED.iter().any(|(known, _)| *known == system);
        self.system.is_some_and(is_known) || self.device_wants_them(devices)
    }

    fn device_wants_them(self, devices: &Path) -> bool {
        let number = format!("{}:{}", major(self.device), minor(self.device));
        // A partition has the queue of its disk.
        ["queue", "../queue"].iter().any(|queue| {
            let path = devices.join(&number).join(queue).join("stable_writes");
            std::fs::read_to_string(path).is_ok_and(|says| says.trim() == "1")
        })
    }
}

/// True if the bytes of a direct write to an open file must not change until it has ended.
pub(crate) fn wants_stable_writes(file: &File) -> bool {
    let place = file
        .metadata()
        .ok()
        .and_then(|data| Place::new(&data, || fstatfs(file).map(|told| told.f_type)));
    place.is_some_and(|place| place.wants_stable_writes(Path::new(DEVICES)))
}

/// The same of what stands at a path, or may be made there.
pub(crate) fn wants_stable_writes_at(path: &Path) -> bool {
    let folder = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let of = |path: &Path| {
        let data = std::fs::metadata(path).ok()?;
        Place::new(&data, || statfs(path).map(|told| told.f_type))
    };
    let place = of(path).or_else(|| of(folder.unwrap_or(Path::new("."))));
    place.is_some_and(|place| place.wants_stable_writes(Path::new(DEVICES)))
}

/// True if it is a block device that takes no writes. The system opens one for writing all the
/// same, and fails each write.
#[must_use]
pub fn is_write_protected(file: &File) -> bool {
    let is_device = file
        .metadata()
        .is_ok_and(|data| data.file_type().is_block_device());
    is_device && crate::sys::is_read_only_device(file) == Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TestDir;

    /// As the system tells of a disk with a partition, in a folder of the test's.
    fn disk(name: &str, says: &str) -> TestDir {
        let dir = TestDir::new(name);
        let disk = dir.join("disk");
        std::fs::create_dir_all(disk.join("queue")).unwrap();
        std::fs::create_dir_all(disk.join("part")).unwrap();
        std::fs::write(disk.join("queue/stable_writes"), says).unwrap();
        let _ = std::os::unix::fs::symlink(&disk, dir.join("8:16"));
        let _ = std::os::unix::fs::symlink(disk.join("part"), dir.join("8:17"));
        dir
    }

    #[test]
    fn a_device_says_in_its_queue_that_bytes_must_hold_still() {
        let device = |minor| rustix::fs::makedev(8, minor);
        let at = |device, system| Place { device, system };
        let ext4 = Some(0xef53);
        let wants = disk("stable", "1\n");
        for system in [None, ext4] {
            assert!(
                at(device(16), system).wants_stable_writes(&wants.0),
                "a disk"
            );
            assert!(
                at(device(17), system).wants_stable_writes(&wants.0),
                "a partition"
            );
            assert!(
                !at(device(18), system).wants_stable_writes(&wants.0),
                "no such device"
            );
        }
        let does_not = disk("unstable", "0\n");
        for minor in [16, 17] {
            assert!(!at(device(minor), ext4).wants_stable_writes(&does_not.0));
        }
        for (system, name) in CHECKSUMMED {
            let place = at(device(16), Some(system));
            assert!(place.wants_stable_writes(&does_not.0), "{name}");
        }
    }

    #[test]
    fn what_stands_at_a_path_has_the_device_of_its_file_system() {
        let dir = TestDir::new("place");
        let data = std::fs::metadata(&dir.0).unwrap();
        let number = format!("{}:{}", major(data.dev()), minor(data.dev()));
        let queue = Path::new(DEVICES).join(&number).join("queue/stable_writes");
        let says = std::fs::read_to_string(queue).is_ok_and(|says| says.trim() == "1");
        let system = statfs(&dir.0).unwrap().f_type;
        let is_known = CHECKSUMMED.iter().any(|(known, _)| *known == system);
        let path = dir.join("not-there-yet");
        assert_eq!(wants_stable_writes_at(&path), says || is_known);
        let file = File::create(&path).unwrap();
        assert_eq!(wants_stable_writes(&file), says || is_known);
        assert_eq!(wants_stable_writes_at(&path), says || is_known);
        assert!(!is_write_protected(&file), "it is a file");
    }
}
