//! The things that a task is given to work with.

use std::sync::Arc;

use mm::File;
use workload::{Barrier, Folder, Inodes, SmallFiles};

/// Files, a place to make some, and the others of its entry.
pub(crate) struct Given {
    /// The files it writes or reads.
    pub(crate) files: Vec<Arc<File>>,
    /// Its file on another device, that of its key `from` or `log`: there is content in it.
    pub(crate) from: Option<Arc<File>>,
    /// Where it makes files: on its device, if it has one.
    pub(crate) folder: Option<Arc<Folder>>,
    /// Where it keeps their inodes, if it says that they have any.
    pub(crate) inodes: Option<Arc<Inodes>>,
    /// The barrier where it meets the others of its entry.
    pub(crate) barrier: Arc<Barrier>,
    /// The small files, and its own directory of them.
    pub(crate) small: Option<(Arc<SmallFiles>, u16)>,
}

impl Given {
    /// Its only file.
    pub(crate) fn file(&mut self) -> Arc<File> {
        self.files.pop().expect("a job has the files of its kind")
    }

    /// The file on its other device.
    pub(crate) fn source(&mut self) -> Arc<File> {
        self.from
            .take()
            .expect("a kind with another device needs it")
    }

    /// The folder where it makes files.
    pub(crate) fn folder(&mut self) -> Arc<Folder> {
        self.folder
            .take()
            .expect("a job with files has their device")
    }

    /// The small files, and its directory.
    pub(crate) fn small(&mut self) -> (Arc<SmallFiles>, u16) {
        self.small
            .take()
            .expect("a cell with such jobs has small files")
    }
}
