//! A mark on a file that is open for writing, taken off when it is closed with all in it durable: a
//! mark that is there when the file is opened is of a server that was killed, or of a machine that
//! went down.
//!
//! An attribute of the file, where its file system has those (`user.*`: ext4, xfs, btrfs, tmpfs
//! from 6.6 on); block devices have none. A copy of the file that takes its attributes along has
//! the mark, too.
//!
//! Source: xattr(7); proc_sys_kernel(5), random/boot_id.

use std::sync::{Arc, Weak};

use os::LockedFile;
use rustix::fs::{XattrFlags, fgetxattr, fremovexattr, fsetxattr};

const NAME: &str = "user.tidegate.open";
/// Bytes of a mark: of which boot of the machine it is.
const LEN: usize = 36;

/// Marks a file as open; does not keep it open.
#[derive(Clone)]
pub struct Marker(Weak<LockedFile>);

impl Marker {
    pub(super) fn new(file: &Arc<LockedFile>) -> Self {
        Self(Arc::downgrade(file))
    }

    /// Sets the mark. Answers what one that is there tells, for people.
    pub(crate) fn set(&self) -> Option<String> {
        let file = self.0.upgrade()?;
        let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let boot = boot.get(..LEN).unwrap_or(b"unknown");
        let mut before = [0; LEN];
        let found = fgetxattr(&**file, NAME, &mut before).ok();
        // A file system without attributes has no marks.
        let _ = fsetxattr(&**file, NAME, boot, XattrFlags::empty());
        let who = match before.get(..found?)? == boot {
            true => "the server that had it was killed, and this machine went on",
            false => "the server that had it was killed, or its machine went down",
        };
        Some(format!(
            "{who}: writes that were answered and not flushed are lost"
        ))
    }

    /// Takes it off.
    pub(super) fn clear(&self) {
        if let Some(file) = self.0.upgrade() {
            let _ = fremovexattr(&**file, NAME);
        }
    }
}
