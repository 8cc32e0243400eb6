//! The right to a file: one cache for writing, or several for reading.
//!
//! The lock is flock(2), which ends with the process however it ends, and which `/proc/locks` shows
//! with its holder. A block device is opened with O_EXCL too: that keeps mounts and other exclusive
//! holders away, whatever name they have it by. QEMU locks bytes of a file by fcntl(2), and so do
//! we, so that neither opens what the other has: see `Claim`.
//!
//! A lock belongs to what was opened: another opening of the same file is refused, also by the
//! process that has the lock, and by another of its names.

use core::fmt;
use std::fs::{File, TryLockError};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{major, minor};

use crate::error::errno_of;
use crate::{OsError, sys};

/// Locks a file that was opened at `path` with `flags` beside reading and writing: for its holder
/// alone, or with other readers. The lock lasts as long as the file is open. Answers what is to be
/// kept open in its place: a block device that is written is opened once more.
///
/// # Errors
/// `InUse`, with its holder; `NoLock`: its file system has none; `Open`.
pub fn lock(
    path: &Path,
    file: &File,
    read_only: bool,
    flags: i32,
) -> Result<Option<File>, OsError> {
    let failed = |error: &std::io::Error| OsError::Open {
        path: path.into(),
        errno: errno_of(error),
    };
    whole(path, file, read_only)?;
    if read_only {
        return claim(file, path, READER).map(|()| None);
    }
    if let Some(holder) = Holder::of(file, Kind::Bytes) {
        return Err(in_use(path, holder));
    }
    let data = file.metadata().map_err(|error| failed(&error))?;
    if !data.file_type().is_block_device() {
        return claim(file, path, WRITER).map(|()| None);
    }
    let mut options = File::options();
    options.read(true).write(true);
    options.custom_flags(flags | libc::O_EXCL);
    let alone = options.open(path).map_err(|error| match errno_of(&error) {
        libc::EBUSY => in_use(path, Holder::Exclusive),
        _ => failed(&error),
    })?;
    // From here on it is the exclusive one's.
    file.unlock().map_err(|error| failed(&error))?;
    whole(path, &alone, false)?;
    claim(&alone, path, WRITER)?;
    Ok(Some(alone))
}

/// Locks the whole file.
fn whole(path: &Path, file: &File, shared: bool) -> Result<(), OsError> {
    let locked = if shared {
        file.try_lock_shared()
    } else {
        file.try_lock()
    };
    locked.map_err(|error| match error {
        TryLockError::WouldBlock => {
            let holder = Holder::of(file, Kind::Whole);
            in_use(path, holder.unwrap_or(Holder::Unknown))
        }
        TryLockError::Error(error) => OsError::NoLock {
            path: path.into(),
            errno: errno_of(&error),
        },
    })
}

fn in_use(path: &Path, holder: Holder) -> OsError {
    let path = path.into();
    OsError::InUse { path, holder }
}

/// The claim of a program to an image by locks on its bytes, as QEMU does: with a shared lock on
/// byte `USES + n` that it makes use of right `n`, with one on `KEEPS + n` that nobody else may. A
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
fn claim(file: &File, path: &Path, claim: Claim) -> Result<(), OsError> {
    let bytes = |first: u64, rights: &'static [u64]| rights.iter().map(move |right| first + right);
    let said = bytes(USES, claim.uses).chain(bytes(KEEPS, claim.keeps));
    // Claims of others that contradict it.
    let against = bytes(KEEPS, claim.uses).chain(bytes(USES, claim.keeps));
    let all = said
        .map(|byte| sys::share_byte(file, byte, true).map(|()| false))
        .chain(against.map(|byte| sys::is_byte_locked(file, byte)));
    for refused in all {
        match refused {
            Ok(false) => {}
            Ok(true) | Err(libc::EAGAIN | libc::EACCES) => {
                return Err(in_use(path, Holder::Program));
            }
            // No locks of bytes there: QEMU is not kept out.
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

/// The kind of lock that is looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// flock(2).
    Whole,
    /// fcntl(2), by process or by open file.
    Bytes,
}

/// The holder of a lock, as far as the system says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Holder {
    /// This process: another cache, or a volume.
    Ourselves,
    /// Another process.
    Process {
        /// Its number.
        pid: u32,
        /// The name of its program.
        name: Option<String>,
    },
    /// A program that locks bytes of the file, as QEMU does.
    Program,
    /// A block device: somebody has opened it with O_EXCL.
    Exclusive,
    /// The system does not say.
    Unknown,
}

impl Holder {
    /// The holder of a lock of this kind; `None`: there is none.
    fn of(file: &File, kind: Kind) -> Option<Self> {
        let metadata = file.metadata().ok()?;
        let place = (major(metadata.dev()), minor(metadata.dev()), metadata.ino());
        let locks = std::fs::read_to_string("/proc/locks").ok()?;
        let Some(pid) = find(&locks, place, kind)? else {
            return Some(Self::Program);
        };
        if pid == std::process::id() {
            return Some(Self::Ourselves);
        }
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok();
        let name = name.map(|name| name.trim_end().to_owned());
        Some(Self::Process { pid, name })
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ourselves => f.write_str("another cache or volume of this process"),
            Self::Process { pid, name } => {
                write!(f, "process {pid}")?;
                name.iter().try_for_each(|name| write!(f, " ({name})"))
            }
            Self::Program => {
                f.write_str("another program that has locked it (QEMU does that; see lsof)")
            }
            Self::Exclusive => f.write_str(
                "a mounted file system, or a program that has it for itself (see lsblk, /proc/swaps)",
            ),
            Self::Unknown => f.write_str("another process"),
        }
    }
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
