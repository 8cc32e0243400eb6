//! Files and block devices.

use std::fs::{File, TryLockError};
use std::io::{self, Seek as _, SeekFrom as From};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

use os::{
    FileDevice, Holder, Lock, LockedFile, OpenOptions, OsError, OwnPath, OwnPaths, ThreadEnv,
    identity, leads_to,
};
use policy::units::Bytes;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, SeekFrom, StatxFlags, fallocate, major, minor, seek, statx,
};
use rustix::io::Errno;

use super::{BackendError, Closer, Marker, Raw, space};
use crate::config::{BackendConfig, SIZE_MAX, VolumeConfig};
use crate::log::{info, warn};
use crate::may;
use crate::opened::{Extents, Grow, Loss, Lost};

/// Sizes are multiples of it.
const SECTOR: u64 = 512;
const PAGE: u64 = tidegate::PAGE_SIZE as u64;

/// Permissions of a file that is made: the server, not the file system, says which clients may use
/// a volume.
const FILE_MODE: u32 = 0o600;

/// Opens a file for a device of its own.
pub(super) fn open(config: &VolumeConfig, env: &Arc<ThreadEnv>) -> Result<Raw, BackendError> {
    let read_only = config.read_only;
    let (path, wanted) = place(config);
    let lock = |path: &Path| open_locked(path, config);
    // The name goes before the lock does.
    let (file, made) = match &config.backend {
        BackendConfig::New { size, .. } => make(path, *size, true, lock)?,
        BackendConfig::Embedded { size, .. } => make(path, *size, false, lock)?,
        _ => (lock(path)?, OwnPaths::default()),
    };
    let is_device = kind_of(path, &file)?;
    let has = length(path, &file)?;
    let size = size(path, has, wanted, read_only)?;
    let can_punch = match (read_only, is_device) {
        (true, _) => false,
        (false, true) => device_can(&file, "write_zeroes_max_bytes"),
        (false, false) => file_punches(&file, has),
    };
    let discards = is_device && !read_only && !can_punch && device_can(&file, "discard_max_bytes");
    let files = FileDevice::new(env).map_err(tidegate::Error::from)?;
    let options = OpenOptions {
        read_only,
        fixed: true,
        discards,
        ..OpenOptions::default()
    };
    let (object, _) = files.open(path, options).map_err(tidegate::Error::from)?;
    let unit = u64::from(env::Device::info(&*files).alignment);
    let direct = files.is_direct(object);
    if direct && !read_only && !size.is_multiple_of(unit) {
        return Err(BackendError::OddSize {
            path: path.into(),
            size,
            unit,
        });
    }
    if discards {
        info!(
            volume = %config.name, device = %path.display(),
            "the device discards, but cannot make a range zeroes without being sent them: what clients trim may read as anything"
        );
    }
    let file = Arc::new(file);
    let extents: Option<Arc<dyn Extents>> = match is_device || !tells_holes(&file) {
        true => None,
        false => Some(Arc::new(FileExtents {
            file: Arc::clone(&file),
        })),
    };
    let lost: Option<Lost> = match is_device || read_only || is_removed(&file) {
        // Nothing of it would go with its name, or it has had none.
        true => None,
        false => Some(Box::new({
            let (file, path) = (Arc::clone(&file), path.to_path_buf());
            move || {
                is_removed(&file).then(|| Loss {
                    why: removed(&path, &file),
                    goes_with_us: true,
                })
            }
        })),
    };
    let grow: Option<Grow> = match read_only || !size.is_multiple_of(PAGE) {
        true => None,
        false => Some(Box::new({
            let (file, path, files) = (Arc::clone(&file), path.to_path_buf(), Arc::clone(&files));
            let makes = !is_device && matches!(config.backend, BackendConfig::New { .. });
            move |wanted| {
                let size = grown(&path, &file, wanted, makes)?;
                let now = files.fixed_size(object).map_or(0, |now| now.0);
                if size <= now {
                    return Ok(now);
                }
                let fixed = files.set_fixed_size(object, Bytes(size));
                fixed
                    .map(|()| size)
                    .map_err(|cause| system(&path, "grow", cause))
            }
        })),
    };
    let marker = (!is_device && !read_only).then(|| Marker::new(&file));
    let closing = (Arc::clone(&files), marker.clone());
    Ok(Raw {
        made,
        device: files,
        object,
        size,
        extents,
        can_punch,
        can_trim: can_punch || discards,
        lost,
        // A device has the room that it has.
        space: (!is_device).then(|| space::of(&file)),
        grow,
        direct,
        marker,
        keep: Box::new(file),
        closer: Closer(Box::new(move || {
            if let Some(marker) = &closing.1 {
                marker.clear();
            }
            closing.0.close(object);
        })),
    })
}

/// Looks at a file before it is opened, for mistakes that show by then.
pub(super) fn look(config: &VolumeConfig) -> Result<(), BackendError> {
    let read_only = config.read_only;
    let (path, wanted) = place(config);
    let found = match std::fs::metadata(path) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
            return match &config.backend {
                BackendConfig::New { .. } => may::make(path),
                BackendConfig::Embedded { .. } => may::make_with_folders(path),
                _ => return Err(BackendError::Missing { path: path.into() }),
            }
            .map_err(|cause| system(path, "make", cause));
        }
        found => found.map_err(|cause| system(path, "open", cause))?,
    };
    if found.is_dir() {
        return Err(BackendError::Folder { path: path.into() });
    }
    if !found.is_file() && !found.file_type().is_block_device() {
        return Err(BackendError::NotAFile { path: path.into() });
    }
    may::open(path, !read_only).map_err(|cause| not_opened(path, read_only, cause))?;
    match config.backend {
        BackendConfig::New { size, .. } => has_size(path, found.len(), size),
        BackendConfig::File { .. } if found.is_file() => {
            size(path, found.len(), wanted, read_only).map(drop)
        }
        _ => Ok(()),
    }
}

/// The path of a volume's file, and so much of it as is asked for.
fn place(config: &VolumeConfig) -> (&Path, Option<u64>) {
    match &config.backend {
        BackendConfig::File { path, size } => (path, *size),
        BackendConfig::New { path, .. } | BackendConfig::Embedded { path, .. } => (path, None),
        BackendConfig::Memory { .. } | BackendConfig::Objects { .. } => unreachable!("not a file"),
    }
}

/// The error for a file that the system does not open.
fn not_opened(path: &Path, read_only: bool, cause: io::Error) -> BackendError {
    match cause.kind() {
        io::ErrorKind::NotFound => BackendError::Missing { path: path.into() },
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem if !read_only => {
            BackendError::MayNotWrite {
                path: path.into(),
                cause,
            }
        }
        _ => system(path, "open", cause),
    }
}

/// Opens a file and locks it: for its holder alone, or with other readers. The lock lasts as long
/// as the file is open.
fn open_locked(path: &Path, config: &VolumeConfig) -> Result<LockedFile, BackendError> {
    let read_only = config.read_only;
    let mut options = File::options();
    options.read(true).write(!read_only);
    let file = options.open(path);
    let file = file.map_err(|cause| not_opened(path, read_only, cause))?;
    if !read_only && os::is_write_protected(&file) {
        return Err(BackendError::WriteProtected { path: path.into() });
    }
    let (instead, lock) = match os::lock(path, &file, read_only, 0) {
        Ok(locked) => Ok(locked),
        Err(OsError::InUse {
            path,
            holder: Holder::Ourselves,
        }) => Err(BackendError::Twice { path }),
        Err(OsError::InUse { path, holder }) => Err(BackendError::InUse {
            path,
            holder: holder.to_string(),
            read_only,
        }),
        Err(OsError::NoLock { errno, .. }) => {
            let cause = io::Error::from_raw_os_error(errno);
            without_lock(path, config, cause).map(|()| (None, Lock::default()))
        }
        Err(error) => Err(BackendError::Cache(error.into())),
    }?;
    let file = LockedFile::new(instead.unwrap_or(file), lock);
    if !leads_to(path, &file).map_err(|cause| system(path, "look at", cause))? {
        // The program that made it was refused and took it away before we had the lock: data
        // written to it would be lost.
        return Err(BackendError::Missing { path: path.into() });
    }
    Ok(file)
}

/// Serves a file that cannot be locked all the same if it is for reading, or if the operator says
/// so; else refuses it.
pub(super) fn without_lock(
    path: &Path,
    config: &VolumeConfig,
    cause: io::Error,
) -> Result<(), BackendError> {
    let mount = mount_of(path);
    if !config.read_only && !config.unlocked {
        let path = path.into();
        return Err(BackendError::NoLock { path, mount, cause });
    }
    warn!(
        volume = %config.name, mount = %mount.unwrap_or_default(), cause = %cause,
        "its file system has no locks: nothing keeps other programs from writing to it meanwhile"
    );
    Ok(())
}

/// The mount that a file is on, for people: `nas:/srv on /mnt/nas (nfs)`.
///
/// Source: proc_pid_mountinfo(5); statx(2), STATX_MNT_ID.
fn mount_of(path: &Path) -> Option<String> {
    let flags = AtFlags::STATX_DONT_SYNC;
    let id = statx(CWD, path, flags, StatxFlags::MNT_ID).ok()?.stx_mnt_id;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let start = format!("{id} ");
    let mut of_it = mounts
        .lines()
        .find(|line| line.starts_with(&start))?
        .split(" - ");
    let place = of_it.next()?.split(' ').nth(4)?;
    let (kind, rest) = of_it.next()?.split_once(' ')?;
    let source = rest.split(' ').next()?;
    Some(format!("{source} on {place} ({kind})"))
}

/// A path, and the device that its file system is on, for people.
pub(super) fn whereabouts(path: &Path) -> String {
    let shown = path.display();
    let mount = mount_of(path).filter(|_| path.is_file());
    let device = mount.as_ref().and_then(|mount| mount.split(" on ").next());
    match device.filter(|device| device.contains('/')) {
        Some(device) => format!("{shown} on {device}"),
        None => shown.to_string(),
    }
}

/// True if another process has a file so that it cannot be read with a lock.
pub(super) fn is_in_use(config: &VolumeConfig) -> bool {
    let (path, _) = place(config);
    matches!(open_locked(path, config), Err(BackendError::InUse { .. }))
}

pub(super) fn system(path: &Path, doing: &'static str, cause: io::Error) -> BackendError {
    let path = path.into();
    BackendError::System { doing, path, cause }
}

/// The size that a file or device has by now, in whole pages: of it so much as is wanted, or all. A
/// file that is made if it is not there is made longer, too.
fn grown(path: &Path, file: &File, wanted: Option<u64>, makes: bool) -> Result<u64, BackendError> {
    let mut has = length(path, file)?;
    if let Some(wanted) = wanted.filter(|wanted| makes && *wanted > has) {
        file.set_len(wanted).map_err(|cause| BackendError::NoRoom {
            path: path.into(),
            size: wanted,
            cause,
        })?;
        file.sync_all()
            .map_err(|cause| system(path, "sync", cause))?;
        has = wanted;
    }
    let size = size(path, has, wanted, false)?;
    Ok(size / PAGE * PAGE)
}

/// A sparse file, made if it is not there; with its folder, if nobody chose that. New files and
/// folders are removed again unless they are kept, so that a refused start leaves nothing behind;
/// before the lock goes.
pub(super) fn make(
    path: &Path,
    size: u64,
    chosen: bool,
    lock: impl FnOnce(&Path) -> Result<LockedFile, BackendError>,
) -> Result<(LockedFile, OwnPaths), BackendError> {
    let system = |doing| move |cause| system(path, doing, cause);
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let mut folders = OwnPaths::default();
    if let Some(folder) = folder.filter(|_| !chosen) {
        let made = folders.make_folders(folder);
        made.map_err(system("make the folder of"))?;
    }
    let mut options = File::options();
    options.write(true).create_new(true).mode(FILE_MODE);
    let created = match options.open(path) {
        Ok(created) => Some(created),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
        Err(error) => return Err(system("make")(error)),
    };
    let file = lock(path).inspect_err(|_| {
        if let Some(created) = &created {
            take_away(path, created);
        }
    })?;
    let has = length(path, &file)?;
    // Somebody else may have filled it before we had the lock.
    let data = file
        .metadata()
        .ok()
        .filter(|_| created.is_some() && has == 0);
    let mut made = folders;
    made.push(OwnPath::new(path, data.map(|data| identity(&data))));
    if has == 0 && file.metadata().is_ok_and(|data| data.is_file()) {
        // Under the lock: nobody else makes it too. The name is durable before anybody is told that
        // data are.
        file.set_len(size).map_err(|cause| BackendError::NoRoom {
            path: path.into(),
            size,
            cause,
        })?;
        file.sync_all().map_err(system("sync"))?;
        let folder = folder.unwrap_or(Path::new("."));
        if !sync_folder(folder).map_err(system("sync the folder of"))? {
            warn!(
                folder = %folder.display(),
                "the file system cannot make names durable: a crash soon after the start may take the new file with it"
            );
        }
    } else if chosen {
        has_size(path, has, size)?;
    }
    Ok((file, made))
}

/// Checks that a file that was to be made is as large as it would be, if it is there and not empty.
fn has_size(path: &Path, has: u64, wanted: u64) -> Result<(), BackendError> {
    let path = path.into();
    match [0, wanted].contains(&has) {
        true => Ok(()),
        false => Err(BackendError::OtherSize { path, has, wanted }),
    }
}

/// Makes the names in a folder durable. False: the file system cannot (some that are mounted over a
/// network, or by a program).
fn sync_folder(folder: &Path) -> io::Result<bool> {
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        Ok(()) => Ok(true),
        Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
            _ => Err(error),
        },
    }
}

/// Removes a file that was created and could not be locked, unless somebody else has taken it over:
/// locked or filled it.
fn take_away(path: &Path, created: &File) {
    // A program that waits for nothing and gets the lock after us sees that the name is gone
    // (`open_locked`).
    let is_others = matches!(created.try_lock(), Err(TryLockError::WouldBlock));
    let data = created.metadata().ok().filter(|data| data.len() == 0);
    if !is_others && let Some(data) = data {
        drop(OwnPath::new(path, Some(identity(&data))));
    }
}

/// True if it is a block device.
fn kind_of(path: &Path, file: &File) -> Result<bool, BackendError> {
    let metadata = file.metadata();
    let metadata = metadata.map_err(|cause| system(path, "look at", cause))?;
    Ok(metadata.file_type().is_block_device())
}

fn length(path: &Path, mut file: &File) -> Result<u64, BackendError> {
    file.seek(From::End(0))
        .map_err(|cause| system(path, "measure", cause))
}

/// The size that is served.
pub(super) fn size(
    path: &Path,
    has: u64,
    wanted: Option<u64>,
    read_only: bool,
) -> Result<u64, BackendError> {
    let path = || path.to_path_buf();
    let odd = |size, unit| BackendError::OddSize {
        path: path(),
        size,
        unit,
    };
    if has == 0 {
        return Err(BackendError::Empty { path: path() });
    }
    let size = match wanted {
        Some(wanted) if wanted > has => {
            return Err(BackendError::TooShort {
                path: path(),
                has,
                wanted,
            });
        }
        // Bytes behind it in the same page are not ours to write.
        Some(wanted) if wanted < has && !wanted.is_multiple_of(PAGE) => {
            return Err(BackendError::OddPart {
                path: path(),
                has,
                wanted,
                unit: PAGE,
            });
        }
        Some(wanted) => wanted,
        None if has > SIZE_MAX => return Err(BackendError::TooLarge { path: path(), has }),
        None => has,
    };
    if !read_only && !size.is_multiple_of(SECTOR) {
        return Err(odd(size, SECTOR));
    }
    Ok(size)
}

/// True if a file has no name any more, as far as that is known: a file system that may not answer
/// is not asked.
fn is_removed(file: &File) -> bool {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    statx(file, "", flags, StatxFlags::NLINK).is_ok_and(|data| data.stx_nlink == 0)
}

/// The message for a file that was there.
fn removed(path: &Path, file: &File) -> String {
    let (process, number) = (std::process::id(), file.as_raw_fd());
    format!(
        "{}: it was removed or replaced; its data go when it is not served any more; save them before that from \
         /proc/{process}/fd/{number}",
        path.display()
    )
}

/// True if holes can be punched: tried beyond the end, where there is nothing.
fn file_punches(file: &File, size: u64) -> bool {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(file, flags, size.next_multiple_of(PAGE), PAGE).is_ok()
}

/// True if a block device does something in ranges, as the system says: take one as zeros without
/// being sent them (`write_zeroes_max_bytes`), as fallocate(2) needs to punch a hole in it, or
/// forget one (`discard_max_bytes`).
fn device_can(file: &File, limit: &str) -> bool {
    let Ok(metadata) = file.metadata() else {
        return false;
    };
    let (major, minor) = (major(metadata.rdev()), minor(metadata.rdev()));
    can_at(Path::new(&format!("/sys/dev/block/{major}:{minor}")), limit)
}

fn can_at(device: &Path, limit: &str) -> bool {
    // A partition has the queue of its disk.
    ["queue", "../queue"].iter().any(|queue| {
        let most = std::fs::read_to_string(device.join(queue).join(limit));
        most.is_ok_and(|most| most.trim().parse::<u64>().is_ok_and(|most| most > 0))
    })
}

/// True if the file system knows holes.
fn tells_holes(file: &File) -> bool {
    !matches!(
        seek(file, SeekFrom::Hole(0)),
        Err(Errno::INVAL | Errno::OPNOTSUPP)
    )
}

/// Holes of a file as its file system tells them.
struct FileExtents {
    file: Arc<LockedFile>,
}

impl Extents for FileExtents {
    fn next(&self, offset: u64, len: u64) -> io::Result<(u64, bool)> {
        let data = match seek(&**self.file, SeekFrom::Data(offset)) {
            Ok(data) => data,
            // No data from here on.
            Err(Errno::NXIO) => return Ok((len, true)),
            Err(error) => return Err(error.into()),
        };
        if data > offset {
            return Ok((len.min(data - offset), true));
        }
        let hole = seek(&**self.file, SeekFrom::Hole(offset))?;
        Ok((len.min(hole.saturating_sub(offset).max(1)), false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_cannot_be_synced_is_no_error_and_one_that_is_not_there_is() {
        assert!(!sync_folder(Path::new("/proc")).unwrap(), "EINVAL");
        assert!(sync_folder(&std::env::temp_dir()).unwrap());
        assert!(sync_folder(Path::new("/nonexistent")).is_err());
    }

    #[test]
    fn the_mount_of_a_file_is_told() {
        let told = mount_of(Path::new("/proc/version")).unwrap();
        assert!(told.ends_with(" on /proc (proc)"), "{told}");
    }

    #[test]
    fn what_a_device_can_is_what_its_queue_says() {
        let name = format!("tidegate-queue-{}", std::process::id());
        let disk = std::env::temp_dir().join(name);
        std::fs::create_dir_all(disk.join("queue")).unwrap();
        std::fs::create_dir_all(disk.join("part")).unwrap();
        std::fs::write(disk.join("queue/write_zeroes_max_bytes"), "0\n").unwrap();
        std::fs::write(disk.join("queue/discard_max_bytes"), "2147450880\n").unwrap();
        for device in [disk.clone(), disk.join("part")] {
            assert!(!can_at(&device, "write_zeroes_max_bytes"));
            assert!(can_at(&device, "discard_max_bytes"));
        }
        std::fs::remove_dir_all(disk).unwrap();
    }
}
