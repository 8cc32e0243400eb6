//! Loads from a file that is mapped, or stores to it, at random: as fast as it goes, or on a
//! schedule.
//!
//! A call is one access to one page, with its fault and its pause. Beside it a task may sync the
//! file again and again, as another thread does by `msync`.

use std::sync::Arc;

use env::Task;
use mm::{Access, Cache, File, FileMap};
use policy::units::{Bytes, Nanos, PAGE_SIZE, Pages};

use crate::dd::Run;
use crate::hog::count_of;
use crate::syncer::Syncer;
use crate::{Failure, Report, rest_until};

/// One task that uses a map.
#[derive(Clone, Copy, Debug)]
pub struct MappedAccess {
    /// Pages of the file.
    pub pages: Pages,
    /// Its use of them.
    pub access: Access,
    /// Time between two accesses; none: one after the other.
    pub every: Option<Nanos>,
    /// Time between two syncs of the file; none: there are none.
    pub sync_every: Option<Nanos>,
    /// Ends this long after it began.
    pub lasting: Nanos,
}

/// Uses pages of `file`, which is there, through a map.
pub fn mapped_access(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    file: &Arc<File>,
    options: &MappedAccess,
    run: &Run<'_>,
) -> Report {
    let mut report = Report::begin(run.name, task.id(), task.now());
    let mut writer = cache.writer();
    let name = format!("{}-syncs", run.name);
    let start = |every| Syncer::start(task, &name, file, every);
    let syncer = options.sync_every.map(start);
    let outcome = file
        .map(task, options.pages)
        .map_err(Failure::from)
        .and_then(|map| use_pages(task, &map, options, run, &mut writer, &mut report));
    cache.retire(task, writer);
    let ended = syncer.map_or(Ok(()), |syncer| syncer.end(task));
    report.end(
        task.now(),
        outcome.and_then(|complete| ended.map(|()| complete)),
    )
}

fn use_pages(
    task: &mut Task<'_>,
    map: &FileMap,
    options: &MappedAccess,
    run: &Run<'_>,
    writer: &mut mm::Writer,
    report: &mut Report,
) -> Result<bool, Failure> {
    let end = report.began + options.lasting;
    let mut due = report.began;
    while due < end && task.now() < end {
        if run.stop.is_raised() {
            return Ok(false);
        }
        rest_until(task, due)?;
        let called = task.now();
        let page = count_of(Pages(task.random() % options.pages.0));
        let touched = map.touch(task, writer, (page, 1), options.access)?;
        report.touched(&touched);
        report.moved(called, task.now(), run.origin, Bytes(PAGE_SIZE));
        if let Some(every) = options.every {
            report.responses.record(task.now().since(due));
            due = due + every;
        } else {
            due = task.now();
        }
    }
    Ok(true)
}
