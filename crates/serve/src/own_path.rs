//! A path that was made here and is taken away again, unless it has become somebody else's.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Which file it is, whatever its name: device and inode.
pub(crate) type Identity = (u64, u64);

pub(crate) fn identity(data: &Metadata) -> Identity {
    (data.dev(), data.ino())
}

/// A path that was made here; removed when dropped, if it is still the same.
#[derive(Debug, Default)]
pub struct OwnPath {
    path: PathBuf,
    /// None: it is not removed.
    identity: Option<Identity>,
}

impl OwnPath {
    /// What `path` leads to was made here, and is that.
    pub(crate) fn new(path: &Path, identity: Option<Identity>) -> Self {
        Self {
            path: path.into(),
            identity,
        }
    }

    /// What was just made at `path`.
    pub(crate) fn found(path: &Path) -> Self {
        Self::new(path, identity_at(path))
    }

    /// It stays.
    pub fn keep(mut self) {
        self.identity = None;
    }
}

impl Drop for OwnPath {
    fn drop(&mut self) {
        if self.identity.is_some() && identity_at(&self.path) == self.identity {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity_at(path: &Path) -> Option<Identity> {
    fs::symlink_metadata(path).ok().map(|data| identity(&data))
}
