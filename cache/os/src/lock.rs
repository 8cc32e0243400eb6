//! The right to a file: one cache for writing, or several for reading.
//!
//! The lock is flock(2), which ends with the process however it ends, and which `/proc/locks` shows
//! with its holder. A block device is opened with O_EXCL too: that keeps mounts and other exclusive
//! holders away, whatever name they have it by. QEMU locks bytes of a file by fcntl(2), and so do
//! we, so that neither opens what the other has: see `Claim`.
//!
//! A lock belongs to what was opened: another opening of the same file is refused, also by the
//! process that has the lock, and by another of its names. A loop device has other names for bytes
//! of a file (`backing.rs`): its opener locks those bytes of that file, far behind its end, as
//! `ALIASES` says, and the opener of the file itself locks all of them.
//!
//! A lock is taken off before its file is closed: a child of the process that was forked meanwhile
//! has a copy of the descriptor, and would keep it. The claim of O_EXCL stays with such a child,
//! for the system has no call that ends it.
//!
//! A process that was killed has its locks until its last request has ended, some milliseconds
//! later, or more where its disk is slow. A lock whose holder is going is waited for: `GOING_MAX`;
//! so nobody has to wait for the process itself before the next one is started.

use core::ops::{Deref, Range};
use std::fs::{File, TryLockError};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{major, minor};

use crate::backing::{self, Backing};
use crate::error::{Holder, OsError, errno_of};
use crate::{identity, sys};

/// Wait for a process that is going: 8 to 19 ms were seen on a quiet machine, 150 on a busy one. A
/// process of another namespace cannot be told from it.
const GOING_MAX: Duration = Duration::from_secs(2);
/// Wait for the holder of a device, which may as well be a mount: from the fork of a program to its
/// beginning, it has copies of descriptors.
const DEVICE_MAX: Duration = Duration::from_millis(100);
/// Time between two looks at it.
const GOING_TICK: Duration = Duration::from_millis(1);
/// The first of the bytes that are locked for what others show of a file: none of a file's own.
const ALIASES: u64 = 1 << 62;

/// The lock of a file, to be kept beside it.
#[derive(Debug, Default)]
pub struct Lock {
    /// Files that have the same bytes, locked for them.
    below: Vec<File>,
}

impl Lock {
    /// Takes it off `file`, whoever has a copy of its descriptor.
    pub(crate) fn end(self, file: &File) {
        self.below.iter().chain([file]).for_each(unlock);
    }
}

/// A file with its lock, which ends before the file is closed.
#[derive(Debug)]
pub struct LockedFile {
    file: File,
    lock: Lock,
}

impl LockedFile {
    /// Keeps the lock of a file beside it; that of one that is not locked is empty.
    #[must_use]
    pub fn new(file: File, lock: Lock) -> Self {
        Self { file, lock }
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        core::mem::take(&mut self.lock).end(&self.file);
    }
}

fn unlock(file: &File) {
    // To close it takes both off as well, unless a child has a copy.
    let _ = file.unlock();
    sys::unlock_bytes(file);
}

/// Locks a file that was opened at `path` with `flags` beside reading and writing: for its holder
/// alone, or with other readers. The lock lasts until it is dropped with the file: see
/// `LockedFile`. Answers a file that is to be kept open in its place, too: a block device that is
/// written is opened once more.
///
/// # Errors
/// `InUse`, with its holder; `NoLock`: a file system has none, or the file that a device shows
/// cannot be reached; `Open`. The file has no lock then.
pub fn lock(
    path: &Path,
    file: &File,
    read_only: bool,
    flags: i32,
) -> Result<(Option<File>, Lock), OsError> {
    let began = Instant::now();
    loop {
        let refused = match try_lock(path, file, read_only, flags) {
            Ok(locked) => return Ok(locked),
            Err(refused) => refused,
        };
        unlock(file);
        match &refused {
            OsError::InUse { holder, .. } if began.elapsed() < goes_within(holder) => {
                std::thread::sleep(GOING_TICK);
            }
            _ => return Err(refused),
        }
    }
}

fn try_lock(
    path: &Path,
    file: &File,
    read_only: bool,
    flags: i32,
) -> Result<(Option<File>, Lock), OsError> {
    let failed = |error: &std::io::Error| OsError::Open {
        path: path.into(),
        errno: errno_of(error),
    };
    whole(path, file, read_only)?;
    // Most have none: a list of all locks of the system is not read for that.
    if !read_only && sys::are_bytes_locked(file, 0..ALIASES) == Ok(true) {
        let holder = holder_of(file, Kind::Bytes);
        return Err(in_use(path, holder.unwrap_or(Holder::Program)));
    }
    let data = file.metadata().map_err(|error| failed(&error))?;
    if !data.file_type().is_block_device() {
        alias(path, file, 0..u64::MAX, read_only)?;
        if let Some(device) = backing::used_above(file, read_only) {
            return Err(in_use(path, Holder::Above(device)));
        }
        claim(file, path, if read_only { READER } else { WRITER })?;
        let below = below(file, read_only)?;
        return Ok((None, Lock { below }));
    }
    if read_only {
        claim(file, path, READER)?;
        let below = below(file, read_only)?;
        return Ok((None, Lock { below }));
    }
    let alone = exclusively(path, flags)?;
    // From here on it is the exclusive one's.
    file.unlock().map_err(|error| failed(&error))?;
    whole(path, &alone, false)?;
    claim(&alone, path, WRITER)?;
    let below = below(&alone, false)?;
    Ok((Some(alone), Lock { below }))
}

/// Opens a block device that nobody else has for itself.
fn exclusively(path: &Path, flags: i32) -> Result<File, OsError> {
    let mut options = File::options();
    options.read(true).write(true);
    options.custom_flags(flags | libc::O_EXCL);
    options.open(path).map_err(|error| match errno_of(&error) {
        libc::EBUSY => in_use(path, Holder::Exclusive),
        errno => OsError::Open {
            path: path.into(),
            errno,
        },
    })
}

/// Locks the bytes of other files and devices that a file or device shows.
fn below(file: &File, read_only: bool) -> Result<Vec<File>, OsError> {
    let mut held = Vec::new();
    for backing in backing::below(file) {
        match lock_backing(&backing, read_only, &mut held) {
            Err(OsError::NoLock { .. }) if backing.may_be_away => {}
            locked => locked.inspect_err(|_| held.iter().for_each(unlock))?,
        }
    }
    Ok(held)
}

fn lock_backing(backing: &Backing, read_only: bool, held: &mut Vec<File>) -> Result<(), OsError> {
    let path = backing.path.as_path();
    let none = |errno| OsError::NoLock {
        path: path.into(),
        errno,
    };
    let open = |writes| File::options().read(true).write(writes).open(path);
    // The right to the device may be all that its opener has.
    let (file, writes) = match open(!read_only) {
        Ok(file) => (file, !read_only),
        Err(_) => (open(false).map_err(|error| none(errno_of(&error)))?, false),
    };
    let data = file.metadata().map_err(|error| none(errno_of(&error)))?;
    if backing.identity.is_some_and(|it| it != identity(&data)) {
        // The path is one of another mount namespace.
        return Err(none(libc::ENOENT));
    }
    if data.file_type().is_block_device() {
        let file = if writes { exclusively(path, 0)? } else { file };
        held.extend(below(&file, read_only)?);
        held.push(file);
        return Ok(());
    }
    let locked = whole(path, &file, true).and_then(|()| {
        let is_shared = !writes || backing.is_shared;
        // Not QEMU's: those of other devices on the same file, which have not these bytes.
        let others = sys::are_bytes_locked(&file, ALIASES..u64::MAX) == Ok(true);
        alias(path, &file, backing.bytes.clone(), is_shared)?;
        let used = if read_only { READER } else { WRITER };
        match others {
            true => say(&file, path, used, &[]),
            false => claim(&file, path, used),
        }
    });
    if locked.is_err() {
        unlock(&file);
    }
    locked?;
    held.push(file);
    Ok(())
}

/// Locks bytes of a file against others that show them by another name.
fn alias(path: &Path, file: &File, bytes: Range<u64>, shared: bool) -> Result<(), OsError> {
    let at = |place: u64| match ALIASES.checked_add(place) {
        Some(place) if place < i64::MAX as u64 => place,
        _ => u64::MAX,
    };
    match sys::lock_bytes(file, at(bytes.start)..at(bytes.end), shared) {
        Err(libc::EAGAIN | libc::EACCES) => {
            let holder = holder_of(file, Kind::Whole);
            Err(in_use(path, holder.unwrap_or(Holder::Unknown)))
        }
        // No locks of bytes there: the lock of the whole file is all there is.
        _ => Ok(()),
    }
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
            let holder = holder_of(file, Kind::Whole);
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

/// Locks the bytes that tell others the use of a file, where its file system has such locks, and
/// refuses a file of which they tell another use.
fn claim(file: &File, path: &Path, claim: Claim) -> Result<(), OsError> {
    let bytes = |first: u64, rights: &'static [u64]| rights.iter().map(move |right| first + right);
    let against: Vec<u64> = bytes(KEEPS, claim.uses)
        .chain(bytes(USES, claim.keeps))
        .collect();
    say(file, path, claim, &against)
}

/// As `claim`; `against`: the bytes by which others contradict it.
fn say(file: &File, path: &Path, claim: Claim, against: &[u64]) -> Result<(), OsError> {
    let bytes = |first: u64, rights: &'static [u64]| rights.iter().map(move |right| first + right);
    let said = bytes(USES, claim.uses).chain(bytes(KEEPS, claim.keeps));
    let all = said
        .map(|byte| sys::lock_bytes(file, byte..byte + 1, true).map(|()| false))
        .chain(
            against
                .iter()
                .map(|byte| sys::are_bytes_locked(file, *byte..byte + 1)),
        );
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

/// The time after which it may have gone by itself; the system names no process that has ended.
fn goes_within(holder: &Holder) -> Duration {
    match holder {
        Holder::Exclusive => DEVICE_MAX,
        Holder::Unknown => GOING_MAX,
        Holder::Process { pid, .. } if is_going(*pid) => GOING_MAX,
        // It may be killed and not know of it yet: a second look says so.
        Holder::Process { .. } => GOING_TICK,
        Holder::Ourselves | Holder::Program | Holder::Above(_) => Duration::ZERO,
    }
}

/// True if a process has ended, is about to, or was killed.
fn is_going(pid: u32) -> bool {
    let says = |what: &str| std::fs::read_to_string(format!("/proc/{pid}/{what}"));
    let (Ok(stat), Ok(status)) = (says("stat"), says("status")) else {
        return true;
    };
    goes(&stat, &status)
}

/// The same by what the system tells: proc(5), `stat` and `status`.
fn goes(stat: &str, status: &str) -> bool {
    /// Linux 6.12, include/linux/sched.h.
    const PF_EXITING: u32 = 4;
    const KILLED: u64 = 1 << (libc::SIGKILL - 1);
    // The state is the first field behind the name, which is in brackets; its flags the seventh.
    let behind = stat.rsplit_once(") ").map_or("", |(_, behind)| behind);
    let flags = behind
        .split(' ')
        .nth(6)
        .and_then(|flags| flags.parse().ok());
    let pending = |line: &str| {
        let line = line
            .strip_prefix("SigPnd:")
            .or(line.strip_prefix("ShdPnd:"));
        line.and_then(|signals| u64::from_str_radix(signals.trim(), 16).ok())
    };
    behind.starts_with(['Z', 'X'])
        || flags.is_some_and(|flags: u32| flags & PF_EXITING != 0)
        || status
            .lines()
            .filter_map(pending)
            .any(|signals| signals & KILLED != 0)
}

/// The holder of a lock of this kind; `None`: there is none.
fn holder_of(file: &File, kind: Kind) -> Option<Holder> {
    let metadata = file.metadata().ok()?;
    let place = (major(metadata.dev()), minor(metadata.dev()), metadata.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let Some(pid) = find(&locks, place, kind)? else {
        return Some(Holder::Program);
    };
    if pid == std::process::id() {
        return Some(Holder::Ourselves);
    }
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok();
    let name = name.map(|name| name.trim_end().to_owned());
    Some(Holder::Process { pid, name })
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

    /// As a child has it that was forked while the file was open.
    #[test]
    fn a_lock_ends_though_a_copy_of_the_descriptor_is_left() {
        let dir = crate::TestDir::new("copies");
        let path = dir.join("file");
        let open = || {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false);
            options.open(&path).unwrap()
        };
        for read_only in [false, true] {
            let file = open();
            let (_, lock) = lock(&path, &file, read_only, 0).unwrap();
            let held = LockedFile::new(file, lock);
            let copy = held.try_clone().unwrap();
            let other = open();
            assert!(matches!(
                super::lock(&path, &other, false, 0),
                Err(OsError::InUse { .. })
            ));
            drop(held);
            let (_, ours) = super::lock(&path, &other, false, 0).unwrap();
            ours.end(&other);
            drop(copy);
        }
    }

    #[test]
    fn a_process_that_is_going_is_told_by_each_sign() {
        let stat = |state: &str, flags: u32| format!("7 (a) b) {state} 1 7 7 0 -1 {flags} 9 4 4");
        let status = |own: u64, all: u64| {
            format!(
                "Name:\ta) b\nSigQ:\t4/5\nSigPnd:\t{own:016x}\nShdPnd:\t{all:016x}\nSigBlk:\t{:016x}\n",
                0x100
            )
        };
        for (state, flags, own, all, is_going) in [
            ("S", 0x40_0000, 0, 0, false),
            ("R", 0x40_0000, 0x4000, 0x4001, false),
            ("Z", 0x40_0000, 0, 0, true),
            ("X", 0x40_0000, 0, 0, true),
            ("D", 0x40_0004, 0, 0, true),
            ("R", 0x40_0000, 0x100, 0, true),
            ("R", 0x40_0000, 0, 0x100, true),
        ] {
            let told = goes(&stat(state, flags), &status(own, all));
            assert_eq!(told, is_going, "{state} {flags:x} {own:x} {all:x}");
        }
        let alive = std::process::id();
        assert!(!is_going(alive));
    }

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
