//! Descriptors that are kept for calls into a directory: what was acknowledged is put, and read,
//! also where the process or the system has none left to give.
//!
//! A call that got none is made again with those that are kept, while no other call is under way:
//! it would take them.

use std::fs::File;

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A put has its file open, and syncs its folder.
const AT_ONCE: usize = 2;

pub(crate) struct Spare {
    /// The file that the kept ones are copies of.
    of: File,
    kept: RwLock<Vec<File>>,
}

/// The kept descriptors may be taken until this is dropped.
pub(crate) struct Lent<'a> {
    of: &'a File,
    kept: RwLockWriteGuard<'a, Vec<File>>,
}

fn fill(kept: &mut Vec<File>, of: &File) -> std::io::Result<()> {
    while kept.len() < AT_ONCE {
        kept.push(of.try_clone()?);
    }
    Ok(())
}

impl Spare {
    /// Keeps copies of `file`.
    pub(crate) fn new(file: &File) -> std::io::Result<Self> {
        let (of, mut kept) = (file.try_clone()?, Vec::with_capacity(AT_ONCE));
        fill(&mut kept, &of)?;
        Ok(Self {
            of,
            kept: RwLock::new(kept),
        })
    }

    /// A call is under way until this goes.
    pub(crate) async fn call(&self) -> RwLockReadGuard<'_, Vec<File>> {
        self.kept.read().await
    }

    /// Gives up what is kept, so that a call can have it.
    pub(crate) async fn lend(&self) -> Lent<'_> {
        let mut kept = self.kept.write().await;
        kept.clear();
        let of = &self.of;
        Lent { of, kept }
    }

    /// Keeps as many again, where others were quicker when a call gave them back.
    pub(crate) fn keep(&self) {
        if let Ok(mut kept) = self.kept.try_write() {
            let _ = fill(&mut kept, &self.of);
        }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        // Refused: `keep` tries again.
        let _ = fill(&mut self.kept, self.of);
    }
}
