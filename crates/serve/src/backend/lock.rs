//! The right to a file: one server for writing, or several for reading.
//!
//! The lock is flock(2), which ends with the process however it ends, and which `/proc/locks` shows
//! with its holder. A block device is opened with O_EXCL too: that keeps mounts and other exclusive
//! holders away. QEMU locks bytes of a file by fcntl(2), and so do we, so that neither opens what
//! the other has: see `Claim`.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use os::leads_to;
use rustix::fs::{OFlags, major, minor};

use super::BackendError;
use crate::log::debug;

/// EBUSY.
const BUSY: i32 = 16;

/// Opens a file and locks it: for its holder alone, or with other readers. The lock lasts as long
/// as the file is open.
pub(super) fn open(path: &Path, read_only: bool) -> Result<File, BackendError> {
    let system = |doing| {
        move |cause| BackendError::System {
            doing,
            path: path.into(),
            cause,
        }
    };
    let metadata = std::fs::metadata(path).map_err(|cause| match cause.kind() {
        io::ErrorKind::NotFound => BackendError::Missing { path: path.into() },
        _ => system("open")(cause),
    })?;
    if metadata.is_dir() {
        return Err(BackendError::Folder { path: path.into() });
    }
    let is_device = metadata.file_type().is_block_device();
    if !metadata.is_file() && !is_device {
        return Err(BackendError::NotAFile { path: path.into() });
    }
    let mut options = File::options();
    options.read(true).write(!read_only);
    let shared = options.open(path).map_err(|cause| match cause.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem if !read_only => {
            BackendError::MayNotWrite {
                path: path.into(),
                cause,
            }
        }
        _ => system("open")(cause),
    })?;
    if !read_only && os::is_write_protected(&shared) {
        return Err(BackendError::WriteProtected { path: path.into() });
    }
    lock(&shared, read_only).map_err(|error| match error {
        TryLockError::WouldBlock => in_use(path, &shared, read_only),
        TryLockError::Error(cause) => system("lock")(cause),
    })?;
    if !leads_to(path, &shared).map_err(system("look at"))? {
        // The program that made it was refused and took it away before we had the lock: data
        // written to it would be lost.
        return Err(BackendError::Missing { path: path.into() });
    }
    if read_only {
        claim(&shared, path, read_only)?;
        return Ok(shared);
    }
    if let Some(holder) = holder(&shared, Kind::Bytes) {
        return Err(BackendError::InUse {
            path: path.into(),
            holder: holder.to_string(),
            read_only,
        });
    }
    if !is_device {
        claim(&shared, path, read_only)?;
        return Ok(shared);
    }
    let flag = i32::try_from(OFlags::EXCL.bits()).unwrap_or_default();
    let alone = options.custom_flags(flag).open(path).map_err(|cause| {
        if cause.raw_os_error() == Some(BUSY) {
            let holder = "a mounted file system, or a program that has it for itself (see lsblk, /proc/swaps)";
            let holder = holder.to_owned();
            return BackendError::InUse { path: path.into(), holder, read_only };
        }
        system("open")(cause)
    })?;
    // A lock belongs to what was opened: from here on it is the exclusive one's.
    drop(shared);
    lock(&alone, false).map_err(|error| match error {
        TryLockError::WouldBlock => in_use(path, &alone, read_only),
        TryLockError::Error(cause) => system("lock")(cause),
    })?;
    claim(&alone, path, read_only)?;
    Ok(alone)
}

/// What a program says of an image by locks on its bytes, as QEMU does: with a shared lock on byte
/// `USES + n` that it makes use of right `n`, with one on `KEEPS + n` that nobody else may. A
/// program that opens the image says its own first, and then looks whether others contradict: so of
/// two at one time none gets it, or one.
///
/// Source: QEMU's manual, "Disk image file locking", and what its programs show in `/proc/locks`.
struct Claim {
    uses: &'static [u64],
    keeps: &'static [u64],
}

const USES: u64 = 100;
const KEEPS: u64 = 200;
/// Rights: to read what is consistent, to write, to write what is there already, to change the
/// size.
const READ: u64 = 0;
const WRITE: u64 = 1;
const WRITE_UNCHANGED: u64 = 2;
const RESIZE: u64 = 3;
/// Cached data may be read by others, on their own account, and changed by nobody.
const WRITER: Claim = Claim {
    uses: &[READ, WRITE],
    keeps: &[WRITE, WRITE_UNCHANGED, RESIZE],
};
const READER: Claim = Claim {
    uses: &[READ],
    keeps: &[WRITE, WRITE_UNCHANGED, RESIZE],
};

/// Locks the bytes that say what is done with a file, where its file system has such locks.
fn claim(file: &File, path: &Path, read_only: bool) -> Result<(), BackendError> {
    let claim = if read_only { READER } else { WRITER };
    let said = claim
        .uses
        .iter()
        .map(|right| USES + right)
        .chain(claim.keeps.iter().map(|right| KEEPS + right));
    // Claims of others that contradict it.
    let against = claim
        .uses
        .iter()
        .map(|right| KEEPS + right)
        .chain(claim.keeps.iter().map(|right| USES + right));
    let all = said
        .map(|byte| os::share_byte(file, byte, true).map(|()| false))
        .chain(against.map(|byte| os::is_byte_locked(file, byte)));
    for refused in all {
        let is_taken = match refused {
            Ok(is_taken) => is_taken,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
            Err(error) => {
                debug!(path = %path.display(), cause = %error, "no locks of bytes there: QEMU is not kept out");
                return Ok(());
            }
        };
        if is_taken {
            return Err(BackendError::InUse {
                path: path.into(),
                holder: Holder {
                    pid: None,
                    name: None,
                }
                .to_string(),
                read_only,
            });
        }
    }
    Ok(())
}

fn lock(file: &File, shared: bool) -> Result<(), TryLockError> {
    if shared {
        file.try_lock_shared()
    } else {
        file.try_lock()
    }
}

fn in_use(path: &Path, file: &File, read_only: bool) -> BackendError {
    let path = path.into();
    match holder(file, Kind::Whole) {
        Some(Holder { pid: Some(pid), .. }) if pid == std::process::id() => {
            BackendError::Twice { path }
        }
        holder => BackendError::InUse {
            path,
            holder: holder
                .map_or_else(|| "another process".to_owned(), |holder| holder.to_string()),
            read_only,
        },
    }
}

/// The kind of lock that is looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// flock(2).
    Whole,
    /// fcntl(2), by process or by open file.
    Bytes,
}

/// The process that holds a lock.
#[derive(Debug, PartialEq, Eq)]
struct Holder {
    pid: Option<u32>,
    name: Option<String>,
}

impl core::fmt::Display for Holder {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match (self.pid, &self.name) {
            (Some(pid), Some(name)) => write!(f, "process {pid} ({name})"),
            (Some(pid), None) => write!(f, "process {pid}"),
            (None, _) => {
                f.write_str("another program that has locked it (QEMU does that; see lsof)")
            }
        }
    }
}

fn holder(file: &File, kind: Kind) -> Option<Holder> {
    let metadata = file.metadata().ok()?;
    let place = (major(metadata.dev()), minor(metadata.dev()), metadata.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let pid = find(&locks, place, kind)?;
    let name = pid.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok());
    Some(Holder {
        pid,
        name: name.map(|name| name.trim_end().to_owned()),
    })
}

/// The process that holds a lock of this kind on the file at `place`: its device's two numbers and
/// its own. `Some(None)`: somebody of whom no process is known.
fn find(locks: &str, place: (u32, u32, u64), kind: Kind) -> Option<Option<u32>> {
    let (major, minor, number) = place;
    let place = format!("{major:02x}:{minor:02x}:{number}");
    locks.lines().find_map(|line| {
        // 1: FLOCK ADVISORY WRITE 4711 fe:01:131074 0 EOF; with -> behind the number, a lock that
        // waits.
        let mut fields = line.split_whitespace().skip(1);
        let sort = match fields.next()? {
            "FLOCK" => Kind::Whole,
            "POSIX" | "OFDLCK" => Kind::Bytes,
            _ => return None,
        };
        let (pid, at) = (fields.nth(2)?, fields.next()?);
        (sort == kind && at == place).then(|| pid.parse().ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_found_among_the_locks() {
        let locks = "1: FLOCK  ADVISORY  WRITE 4711 fe:01:131074 0 EOF\n\
                     1: -> FLOCK  ADVISORY  WRITE 4712 fe:01:131075 0 EOF\n\
                     2: OFDLCK ADVISORY  READ -1 fe:01:131076 100 101\n\
                     3: POSIX  ADVISORY  WRITE 99 00:1a:5 1073741824 1073742335\n";
        let at = |major, minor, number, kind| find(locks, (major, minor, number), kind);
        assert_eq!(at(0xfe, 1, 131_074, Kind::Whole), Some(Some(4711)));
        assert_eq!(at(0xfe, 1, 131_074, Kind::Bytes), None);
        assert_eq!(at(0xfe, 1, 131_075, Kind::Whole), None, "it only waits");
        assert_eq!(at(0xfe, 1, 131_076, Kind::Bytes), Some(None));
        assert_eq!(at(0, 0x1a, 5, Kind::Bytes), Some(Some(99)));
        assert_eq!(at(0xfe, 1, 13_107, Kind::Whole), None);
    }
}
