//! Rights to files, asked of the system without use of them.

use std::io;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};

/// Tests that a file may be read, and written if it `is_to_be_written`.
///
/// # Errors
/// Why not.
pub(crate) fn open(path: &Path, is_to_be_written: bool) -> io::Result<()> {
    let access = match is_to_be_written {
        true => Access::READ_OK | Access::WRITE_OK,
        false => Access::READ_OK,
    };
    Ok(accessat(CWD, path, access, AtFlags::EACCESS)?)
}

/// Tests that a file may be made with this path.
///
/// # Errors
/// Why not: its folder is not there, is none, or takes no names.
pub(crate) fn make(path: &Path) -> io::Result<()> {
    // Of a file the dot says that it is no folder; of no folder it is the current one.
    let folder = path.parent().unwrap_or(path).join(".");
    let access = Access::WRITE_OK | Access::EXEC_OK;
    Ok(accessat(CWD, folder, access, AtFlags::EACCESS)?)
}

/// Tests that a file may be made with this path, and before it the folders that are missing on the
/// way.
///
/// # Errors
/// Why not, as `make`.
pub(crate) fn make_with_folders(path: &Path) -> io::Result<()> {
    let mut path = path;
    while let Some(folder) = path.parent().filter(|folder| *folder != Path::new("")) {
        if folder.try_exists()? {
            break;
        }
        path = folder;
    }
    make(path)
}
