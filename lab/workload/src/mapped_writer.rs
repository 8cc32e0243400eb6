//! A file that is mapped and stored to from front to back, a word a page, and not synced: mmtests'
//! `vmscan-file-mmap-write` (`usemem`).
//!
//! The file is made as long as the map before the first store, so that all of it is a hole; or it
//! is found with its content, and each page has to be read before it is stored to. No page is used
//! twice.
//!
//! Source: experiments A3c, B5; of a file that is found Linux 6.12 mm/filemap.c,
//! do_sync_mmap_readahead(), do_async_mmap_readahead(). Deviation: its windows begin at the page
//! that is wanted, as those of a reader do, not half a window before it.

use std::sync::Arc;

use env::Task;
use mm::{Access, Cache, File, Reader};
use policy::units::{Bytes, Nanos, PAGE_SHIFT, Pages};

use crate::dd::Run;
use crate::hog::count_of;
use crate::{Report, grow};

/// One mapped writer.
#[derive(Clone, Copy, Debug)]
pub struct MappedWriter {
    /// Pages that it maps and stores to.
    pub pages: Pages,
    /// Pages of a call: between two looks at whether to stop.
    pub call: Pages,
    /// The file has its content.
    pub found: bool,
    /// Stops this long after it began, whatever is left.
    pub for_at_most: Option<Nanos>,
}

/// Stores to each page of `file` once.
pub fn mapped_writer(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    file: &Arc<File>,
    options: &MappedWriter,
    run: &Run<'_>,
) -> Report {
    run.writes(task, cache, |task, writer, report| {
        let until = options.for_at_most.map(|limit| report.began + limit);
        if !options.found {
            grow(task, file, options.pages.bytes())?;
        }
        let mut reader = Reader::default();
        let map = file.map(task, options.pages)?;
        let pages = count_of(options.pages);
        let mut next = 0;
        while next < pages && !run.stop.is_raised() && until.is_none_or(|until| task.now() < until)
        {
            let count = count_of(options.call).min(pages - next);
            let called = task.now();
            if options.found {
                let at = Bytes(u64::from(next) << PAGE_SHIFT);
                let len = Pages(u64::from(count)).bytes();
                file.verify_readable(task, &mut reader, at, len)?;
            }
            let touched = map.touch(task, writer, (next, count), Access::Store)?;
            report.touched(&touched);
            report.moved(called, task.now(), run.origin, touched.pages.bytes());
            next += count;
        }
        Ok(!run.stop.is_raised())
    })
}
