//! Maps of files: loads and stores of tasks, and the answers to their faults.
//!
//! The lab's view is the page table of the program; all behind it is `mm`'s, as live. A
//! fault is answered as `tidegate::Map` does it: at once if that needs no wait, else by a task that
//! waits. An access that meets no fault is one step of the lab, as it is one of a CPU.

use core::ops::Range;
use std::sync::Arc;

use env::Task;
use mm::{Access, Cache, Error, File, FileMap, Stream, Writer};
use policy::units::Pages;
use world::{SECTORS_PER_FRAME, Sector, Stamps};

use crate::failure::fail;

/// Faults of one access: its page may go, or become clean, while its task is paused for it.
const FAULTS_MAX: u32 = 1000;

/// A file that is mapped. Its fields end in their order.
pub(crate) struct Mapped {
    map: FileMap,
    view: View,
}

struct View {
    stamps: Arc<Stamps>,
    number: u32,
}

impl Drop for View {
    fn drop(&mut self) {
        self.stamps.close_view(self.number);
    }
}

impl Mapped {
    pub(crate) fn new(
        task: &Task<'_>,
        file: &File,
        pages: Pages,
        stamps: Arc<Stamps>,
    ) -> Result<Self, Error> {
        let number = stamps.open_view();
        let view = View { stamps, number };
        let map = file.map_live(task, pages, number)?;
        Ok(Self { map, view })
    }

    pub(crate) fn load(
        &self,
        task: &mut Task<'_>,
        cache: &Arc<Cache>,
        by: (&mut Writer, &mut Stream),
        page: u32,
    ) -> Result<[Sector; SECTORS_PER_FRAME], Error> {
        let View { stamps, number } = &self.view;
        let load = || stamps.load_through(*number, page);
        self.access(task, cache, by, (page, Access::Load), load)
    }

    pub(crate) fn store(
        &self,
        task: &mut Task<'_>,
        cache: &Arc<Cache>,
        by: (&mut Writer, &mut Stream),
        page: u32,
        data: &[Sector],
    ) -> Result<(), Error> {
        let View { stamps, number } = &self.view;
        let store = || stamps.store_through(*number, page, data).then_some(());
        self.access(task, cache, by, (page, Access::Store), store)
    }

    /// Pages are not needed: those that are clean leave the memory.
    pub(crate) fn let_go(&self, task: &mut Task<'_>, file: &File, pages: Range<u64>) {
        let [offset, len] =
            [pages.start, pages.end - pages.start].map(|count| Pages(count).bytes());
        self.map.let_go(task, (offset, len));
        for page in pages {
            file.drop_clean(task, page);
        }
    }

    fn access<T>(
        &self,
        task: &mut Task<'_>,
        cache: &Arc<Cache>,
        (writer, stream): (&mut Writer, &mut Stream),
        (page, access): (u32, Access),
        mut tried: impl FnMut() -> Option<T>,
    ) -> Result<T, Error> {
        for _ in 0..FAULTS_MAX {
            if let Some(done) = tried() {
                return Ok(done);
            }
            let at_once =
                task.nonblocking(|task| self.map.fault(task, (writer, stream), page, access));
            if at_once.is_ok() && matches!(cache.pace(task, writer), Ok(None)) {
                continue;
            }
            self.map.fault(task, (writer, stream), page, access)?;
        }
        fail(
            "no-progress",
            format!("{access:?} of page {page}: {FAULTS_MAX} faults"),
        )
    }
}
