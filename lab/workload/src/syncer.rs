//! A task beside a job that syncs a file again and again, until the job is done: checkpoints of an
//! engine, `msync` of another thread.

use std::sync::Arc;

use env::{Cause, JoinHandle, Signal, Task, WaitQueue, Wakeup};
use frames::sync::{AtomicBool, Ordering};
use mm::{Error, File};
use policy::units::Nanos;

use crate::Failure;

pub(crate) struct Syncer {
    shared: Arc<Shared>,
    task: JoinHandle<Result<(), Error>>,
}

#[derive(Default)]
struct Shared {
    done: AtomicBool,
    queue: WaitQueue,
}

impl Syncer {
    pub(crate) fn start(task: &Task<'_>, name: &str, file: &Arc<File>, every: Nanos) -> Self {
        let (shared, file) = (Arc::<Shared>::default(), Arc::clone(file));
        let own = Arc::clone(&shared);
        let body = move |task: &mut Task<'_>| {
            let done = || own.done.load(Ordering::Acquire);
            loop {
                let next = task.now() + every;
                let waked = task.wait_while(&own.queue, Cause::Idle, Some(next), |_| !done());
                if waked == Wakeup::Cancelled || done() {
                    return Ok(());
                }
                file.sync(task)?;
            }
        };
        let task = env::spawn(task.env(), name, body);
        Self { shared, task }
    }

    /// Waits until it is done, too.
    pub(crate) fn end(self, task: &mut Task<'_>) -> Result<(), Failure> {
        self.shared.done.store(true, Ordering::Release);
        self.shared.queue.wake_all(Signal::Other);
        let ended = self.task.join(task).ok_or(Failure::CANCELLED)?;
        Ok(ended?)
    }
}
