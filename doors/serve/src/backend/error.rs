//! Why a backend could not be opened.

use std::io;
use std::path::PathBuf;

use device::StackError;

use crate::config::{SIZE_MAX, show_exactly, show_size};
use crate::refusal::{Refused, words};

/// Why a backend could not be opened; each with the way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// Nothing is there.
    #[error(
        "{}: there is no such file; to have it made, write new:{} and a size, as in size=10GiB",
        path.display(), path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A folder stands there.
    #[error("{}: this is a folder; name a file in it, or write dir:{} for a volume of objects", path.display(), path.display())]
    Folder {
        /// Which.
        path: PathBuf,
    },
    /// Something else stands there.
    #[error("{}: neither a regular file nor a block device; name one of these", path.display())]
    NotAFile {
        /// Which.
        path: PathBuf,
    },
    /// It may not be written.
    #[error("{}: {}; run as a user who may write it, or serve it for reading with the option `ro`", path.display(), words(cause))]
    MayNotWrite {
        /// Which.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The device takes no writes, though it can be opened for them.
    #[error(
        "{}: this device is set to read-only; serve it for reading with the option `ro`, or make it writable, as with \
         `blockdev --setrw {}`",
        path.display(), path.display()
    )]
    WriteProtected {
        /// Which.
        path: PathBuf,
    },
    /// The system refuses.
    #[error("cannot {doing} {}: {}", path.display(), Refused(cause))]
    System {
        /// The operation.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// A file of that size cannot be made.
    #[error("cannot make {} of {}: {}", path.display(), show_exactly(*size), Refused(cause))]
    NoRoom {
        /// Which.
        path: PathBuf,
        /// Its size.
        size: u64,
        /// The system's error.
        cause: io::Error,
    },
    /// Another program has it.
    #[error("{}: in use by {holder}; end that first{}", path.display(), if *read_only { "" } else { ", or serve a copy" })]
    InUse {
        /// Which.
        path: PathBuf,
        /// Its holder, as far as that can be told: `process 4711 (tidegate)`.
        holder: String,
        /// Asked for reading only.
        read_only: bool,
    },
    /// Its file system has no locks.
    #[error(
        "{}: cannot be locked, so that another server could open it, too ({}){}; the usual cause is NFS without its lock \
         service: start rpc.statd there and here, let it through the firewall, or mount with `vers=4`; `ro` needs no lock, and \
         with the option `unlocked=true` nothing but you keeps others away",
        path.display(), words(cause), on(mount)
    )]
    NoLock {
        /// Which.
        path: PathBuf,
        /// Its mount, as far as that can be told: `nas:/srv on /mnt/nas (nfs)`.
        mount: Option<String>,
        /// The system's error.
        cause: io::Error,
    },
    /// This process has it already.
    #[error("{}: this process has it already, as a volume or a file of a cache; name each file once", path.display())]
    Twice {
        /// Which.
        path: PathBuf,
    },
    /// It has nothing to serve.
    #[error("{}: it is empty; give it a size first, as in `truncate -s 10G {}`", path.display(), path.display())]
    Empty {
        /// Which.
        path: PathBuf,
    },
    /// It is shorter than was said.
    #[error(
        "{}: it has {}, size={} was asked for; leave the size out, or make it longer with `truncate -s {wanted} {}`",
        path.display(), show_exactly(*has), show_exactly(*wanted), path.display()
    )]
    TooShort {
        /// Which.
        path: PathBuf,
        /// Its bytes.
        has: u64,
        /// The size asked for.
        wanted: u64,
    },
    /// A file that was to be made is there with another size.
    #[error(
        "{}: it is there and has {}, not {}; make file and `size` alike, name it without `new:` to serve it as it is, or another path",
        path.display(), show_exactly(*has), show_exactly(*wanted)
    )]
    OtherSize {
        /// Which.
        path: PathBuf,
        /// Its bytes.
        has: u64,
        /// The size asked for.
        wanted: u64,
    },
    /// Its size is no multiple of what direct I/O there needs.
    #[error(
        "{}: {} are no multiple of the {} that direct I/O needs there; lengthen it with `truncate -s %{unit} \
         {}`, or serve it for reading with the option `ro`",
        path.display(), show_exactly(*size), show_size(*unit), path.display()
    )]
    OddSize {
        /// Which.
        path: PathBuf,
        /// Its bytes, or those that were asked for.
        size: u64,
        /// The unit of which it should be a multiple.
        unit: u64,
    },
    /// A part of it was asked for that ends within a page.
    #[error(
        "{}: a size of {} is no multiple of {}; write one that is, or leave it out for all {} of the file",
        path.display(), show_exactly(*wanted), show_size(*unit), show_exactly(*has)
    )]
    OddPart {
        /// Which.
        path: PathBuf,
        /// Its bytes.
        has: u64,
        /// The size asked for.
        wanted: u64,
        /// The unit of which it should be a multiple.
        unit: u64,
    },
    /// The cache cannot have that much of it.
    #[error(
        "{} has {}; a volume has at most {SIZE_MAX}B (16 TiB less 4 KiB): serve its beginning, with size={SIZE_MAX}B",
        path.display(), show_exactly(*has)
    )]
    TooLarge {
        /// Which.
        path: PathBuf,
        /// Its bytes.
        has: u64,
    },
    /// The layers around its device.
    #[error("{0}")]
    Layers(#[from] StackError),
    /// The cache.
    #[error("{0}")]
    Cache(#[from] tidegate::Error),
    /// The object store.
    #[error("{0}")]
    Objects(#[from] objects::Error),
}

fn on(mount: &Option<String>) -> String {
    mount
        .as_ref()
        .map_or(String::new(), |mount| format!(", on the mount {mount}"))
}
