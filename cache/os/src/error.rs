//! Errors before a request exists: starting up, opening files.

use core::fmt;
use std::path::PathBuf;

use figures::shown;
use policy::units::Bytes;

/// The reason for which the live environment, a device or a file could not be opened. Each names
/// the thing, the value and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OsError {
    /// An option is outside its range.
    #[error("option `{name}` is {value}; allowed: {allowed}")]
    Option {
        /// Which one.
        name: &'static str,
        /// The value asked for.
        value: u64,
        /// The allowed values.
        allowed: &'static str,
    },
    /// The address space for the arena was refused.
    #[error("cannot reserve {} of address space: {}; lower the memory limit or raise `ulimit -v`", Bytes(*bytes).shown(), words(*errno))]
    Arena {
        /// The size asked for.
        bytes: u64,
        /// The system's error number.
        errno: i32,
    },
    /// io_uring was asked for and is not available.
    #[error("io_uring is not available ({step}: {}); use `Backend::Pool`, or allow io_uring (sysctl kernel.io_uring_disabled=0, \
         the container's seccomp profile)", words(*errno))]
    Uring {
        /// Which step failed.
        step: &'static str,
        /// The system's error number.
        errno: i32,
    },
    /// A thread could not be started.
    #[error("cannot start thread `{name}`: {}; raise {}", words(*errno), bound_of_threads())]
    Thread {
        /// Its name.
        name: String,
        /// The system's error number.
        errno: i32,
    },
    /// userfaultfd, which a map lives by, is refused.
    #[error("the system lets this process answer no page faults (userfaultfd: {}); run it as root, or give it /dev/userfaultfd \
         (0600 root; a container: `--device /dev/userfaultfd`), or set the sysctl vm.unprivileged_userfaultfd=1; \
         or map with `user_mode`, where system calls on the map's memory fail", words(*errno))]
    NoFaults {
        /// The system's error number.
        errno: i32,
    },
    /// Something else of the system failed.
    #[error("{what}: {}", words(*errno))]
    System {
        /// The call.
        what: &'static str,
        /// The system's error number.
        errno: i32,
    },
    /// A file could not be opened.
    #[error("cannot open {}: {}", shown(path.display()), words(*errno))]
    Open {
        /// Which.
        path: PathBuf,
        /// The system's error number.
        errno: i32,
    },
    /// Another cache or program has the file.
    #[error("{}: in use by {holder}; end that first, or open the file without a lock if nobody writes to it meanwhile", shown(path.display()))]
    InUse {
        /// Which.
        path: PathBuf,
        /// Its holder, as far as that can be told.
        holder: Holder,
    },
    /// A file could not be locked: its file system has no locks.
    #[error("{}: cannot be locked: {}; use a file system with locks (NFS has them with lockd, or when mounted with \
         `local_lock=all`), or open the file without one if no other program does", shown(path.display()), words(*errno))]
    NoLock {
        /// Which.
        path: PathBuf,
        /// The system's error number.
        errno: i32,
    },
    /// The file's file system has no direct I/O and the caller asked for nothing less.
    #[error("{}: {}", shown(path.display()), no_direct(*alignment))]
    NoDirectIo {
        /// Which file.
        path: PathBuf,
        /// The alignment the file system asks for, if that is the obstacle.
        alignment: Option<u32>,
    },
    /// Neither a regular file nor a block device.
    #[error("{}: neither a regular file nor a block device; name one of these", shown(path.display()))]
    NotAFile {
        /// Which.
        path: PathBuf,
    },
    /// Space could not be allocated ahead.
    #[error("cannot allocate {:#} for {}: {}; free some space or ask for less", Bytes(*bytes).shown(), shown(path.display()), words(*errno))]
    Preallocate {
        /// For which file.
        path: PathBuf,
        /// The size.
        bytes: u64,
        /// The system's error number.
        errno: i32,
    },
    /// A block device is smaller than what was to be preallocated.
    #[error("{} has {:#}, {:#} were asked for; ask for no more than it has", shown(path.display()), Bytes(*bytes).shown(), Bytes(*wanted).shown())]
    TooSmall {
        /// Which device.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The value asked for.
        wanted: u64,
    },
}

/// The system's words for an error number.
fn words(errno: i32) -> std::io::Error {
    std::io::Error::from_raw_os_error(errno)
}

/// The reason for which a file has no direct I/O, and the way out.
fn no_direct(alignment: Option<u32>) -> String {
    let (why, out) = match alignment {
        None => (
            "its file system has no direct I/O (O_DIRECT)".into(),
            "put the file on another one (ext4, xfs, btrfs)",
        ),
        Some(alignment) => (
            format!("direct I/O needs an alignment of {alignment} bytes there, pages have 4096"),
            "put the file on another file system",
        ),
    };
    format!("{why}; {out}, or open it with `direct: false`")
}

/// The limit that a thread was most likely refused by: a bound on the address space, where there is
/// one, as its stack comes first.
fn bound_of_threads() -> &'static str {
    match rustix::process::getrlimit(rustix::process::Resource::As).current {
        Some(_) => "`ulimit -v`: it bounds the address space, and a thread takes some",
        None => "`ulimit -u` or the container's pids limit",
    }
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
    /// A loop device over the file that is mounted, or below what is.
    Above(PathBuf),
    /// The system does not say.
    Unknown,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ourselves => f.write_str("another cache or volume of this process"),
            Self::Process { pid, name } => {
                write!(f, "process {pid}")?;
                name.iter().try_for_each(|name| write!(f, " ({})", shown(name)))
            }
            Self::Program => {
                f.write_str("another program that has locked it (QEMU does that; see lsof)")
            }
            Self::Exclusive => f.write_str(
                "a mounted file system, or a program that has it for itself (see lsblk, /proc/swaps)",
            ),
            Self::Above(device) => write!(
                f,
                "a file system that is mounted on {} (see findmnt, lsblk)",
                shown(device.display())
            ),
            Self::Unknown => f.write_str("another process"),
        }
    }
}

/// The error number of a standard error; the one that its kind stands for if it has none.
pub(crate) fn errno_of(error: &std::io::Error) -> i32 {
    use std::io::ErrorKind;
    error.raw_os_error().unwrap_or(match error.kind() {
        // A NUL in a path, a size that no system call takes.
        ErrorKind::InvalidInput | ErrorKind::InvalidFilename => libc::EINVAL,
        ErrorKind::OutOfMemory => libc::ENOMEM,
        ErrorKind::Unsupported => libc::EOPNOTSUPP,
        _ => libc::EIO,
    })
}
