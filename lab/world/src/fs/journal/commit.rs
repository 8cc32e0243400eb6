//! The task that commits.

use std::sync::Arc;

use env::{Cause, DeviceId, Event, ObjectId, Task, Wakeup};
use policy::units::Pages;

use super::{Core, Data, Page, Record};

/// The `Env` shuts down, or the log cannot be written.
struct Over;

/// Commits the running transaction whenever it is due, until the `Env` shuts down.
pub(super) fn run(task: &mut Task<'_>, core: &Arc<Core>, device: DeviceId) {
    while !core.lock().aborted {
        let due = core.lock().ledger.due();
        let wakeup = task.wait_while(&core.wait, Cause::Idle, due, |_| {
            let state = core.lock();
            state.ledger.due() == due && !state.ledger.wants_checkpoint()
        });
        if wakeup == Wakeup::Cancelled {
            break;
        }
        core.checkpoint();
        let due = core.lock().ledger.due();
        if due.is_some_and(|due| due <= task.now()) && commit(task, core, device).is_err() {
            break;
        }
    }
    let failed = core.lock().own_error.is_some();
    if failed {
        core.abort();
    } else {
        core.stop();
    }
}

fn commit(task: &mut Task<'_>, core: &Arc<Core>, device: DeviceId) -> Result<(), Over> {
    let began = task.now();
    core.lock().ledger.lock();
    wait(task, core, Cause::Journal, || {
        core.lock().ledger.has_handles()
    })?;
    let locked = task.now().since(began);
    let (log, pages, record, id) = {
        let mut state = core.lock();
        let (log, pages, record) = state.ledger.switch();
        let id = state.ledger.committing().map_or(0, |tx| tx.id);
        (log, pages, record, id)
    };
    // A task that waited for a handle has one of the next transaction, unless it is to change a
    // block of this one.
    core.retry();

    let size = core.options.size.0;
    let before_the_end = pages.min(size - log);
    core.write_own(log, before_the_end, Page::Log, id);
    core.write_own(0, pages - before_the_end, Page::Log, id);
    let data = core.options.data;
    // Both at once: pieces of a run may still come while the blocks are on their way.
    wait(task, core, Cause::WritebackIo, || {
        let state = core.lock();
        state.own_in_flight > 0 || (data == Data::Ordered && state.ledger.has_data())
    })?;
    core.lock().ledger.logged();
    core.retry();

    let mut files: Vec<ObjectId> = vec![core.place.log];
    {
        let mut state = core.lock();
        let given = state
            .ledger
            .committing()
            .map_or(Vec::new(), |tx| tx.given.clone());
        if data != Data::Writeback {
            files.extend(given.iter().map(|given| given.object));
        }
        if let Some(records) = &mut state.records {
            let page = record;
            records.push(Record { id, page, given });
        }
    }
    files.sort_unstable();
    files.dedup();
    for file in files {
        core.flush_own(file);
    }
    wait_for_own(task, core)?;
    core.write_own(record, 1, Page::Record, id);
    wait_for_own(task, core)?;
    core.flush_own(core.place.log);
    wait_for_own(task, core)?;

    let took = task.now().since(began);
    let (logged, ordered) = {
        let mut state = core.lock();
        let done = state.ledger.recorded(task.now());
        let logged = Pages(done.log_pages());
        state.stats.commits += 1;
        state.stats.logged += logged;
        state.stats.commit_longest = state.stats.commit_longest.at_least(took);
        (logged, done.ordered())
    };
    task.emit(&Event::Committed {
        device,
        took,
        locked,
        logged,
        ordered,
    });
    core.checkpoint();
    Ok(())
}

fn wait_for_own(task: &mut Task<'_>, core: &Core) -> Result<(), Over> {
    wait(task, core, Cause::DeviceFlush, || {
        core.lock().own_in_flight > 0
    })
}

fn wait(
    task: &mut Task<'_>,
    core: &Core,
    cause: Cause,
    blocked: impl Fn() -> bool,
) -> Result<(), Over> {
    let wakeup = task.wait_while(&core.wait, cause, None, |_| blocked());
    if wakeup == Wakeup::Cancelled || core.lock().own_error.is_some() {
        return Err(Over);
    }
    Ok(())
}
