//! A load that keeps pages of a file which nobody else can free: it pins them and holds them to its
//! end.
//!
//! To reclaim they are what pages in use are on any machine: on the lists of files, isolated and
//! looked at by every pass, and put back.

use std::sync::Arc;

use env::Task;
use mm::File;
use policy::units::{Instant, Nanos, PAGE_SHIFT, Pages};

use crate::dd::Run;
use crate::{Failure, Report, grow, rest};

/// Time that a holder of pins sleeps between two looks at whether to stop.
pub(crate) const LOOK: Nanos = Nanos::millis(100);

/// One pinner.
#[derive(Clone, Copy, Debug)]
pub struct Pinner {
    /// Pages that it pins, from the front of its file, which grows to have them.
    pub pages: Pages,
    /// Ends this long after it began.
    pub for_at_most: Option<Nanos>,
}

/// Pins pages of `file` and holds them until it is stopped. A page that cannot be pinned because
/// there is no memory or no pin left counts as refused, and those that it has are held.
pub fn pinner(task: &mut Task<'_>, file: &Arc<File>, options: &Pinner, run: &Run<'_>) -> Report {
    let mut report = Report::begin(run.name, task.id(), task.now());
    let limit = options.for_at_most;
    let until = limit.map_or(Instant::MAX, |limit| report.began + limit);
    let held = grow(task, file, options.pages.bytes())
        .and_then(|()| hold(task, file, options.pages, until, run, &mut report));
    let outcome = held.map(|()| !run.stop.is_raised());
    report.end(task.now(), outcome)
}

/// Pins up to `pages` pages of `file` and holds them until `end`, or until the run is stopped.
pub(crate) fn hold(
    task: &mut Task<'_>,
    file: &Arc<File>,
    pages: Pages,
    end: Instant,
    run: &Run<'_>,
    report: &mut Report,
) -> Result<(), Failure> {
    let goes_on = |task: &Task<'_>| task.now() < end && !run.stop.is_raised();
    let mut held = Vec::new();
    for page in 0..pages.at_most(Pages(file.len().0 >> PAGE_SHIFT)).0 {
        if !goes_on(task) {
            break;
        }
        let page = u32::try_from(page).expect("a file's pages are numbered by 32 bits");
        match file.pin(task, &mut mm::Reader::random(), page) {
            Ok(pinned) => held.push(pinned),
            Err(mm::Error::OutOfMemory { .. } | mm::Error::TooMany { .. }) => {
                report.refused += 1;
                break;
            }
            Err(error) => return Err(error.into()),
        }
    }
    while goes_on(task) {
        rest(task, LOOK.at_most(end.since(task.now())))?;
    }
    Ok(())
}
