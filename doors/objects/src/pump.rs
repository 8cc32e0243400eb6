//! Jobs begin, and end.
//!
//! Jobs run as tasks of the device's own runtime: at most `parallel` of writes, each with one
//! object's content in memory, and as many of reads, which copy what arrives straight into the
//! frames.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use env::IoError;

use crate::client::count;
use crate::job;
use crate::request::lock;
use crate::shared::{Shared, WholePart};

/// Time that a write waits for its neighbours of the same object, if its submitter said that there
/// are more.
const HOLD: Duration = Duration::from_millis(5);

impl Shared {
    /// Starts what may start.
    pub(crate) fn pump(self: &Arc<Self>) {
        loop {
            let job = {
                let mut jobs = lock(&self.jobs);
                if jobs.reading < self.parallel
                    && let Some((object, parts)) = jobs.queue.next_read()
                {
                    jobs.reading += 1;
                    Job::new(self, object, parts, false)
                } else if jobs.writing < jobs.writes_max
                    && let Some((object, parts)) = jobs.queue.next_write()
                {
                    jobs.writing += 1;
                    count(&self.client.counters.merged, parts.len() as u64 - 1);
                    Job::new(self, object, parts, true)
                } else {
                    return;
                }
            };
            // If the runtime is gone the task is dropped here, and the job with it: it ends as
            // cancelled.
            self.handle.spawn(job.run());
        }
    }

    /// Lets a held object go in a moment.
    pub(crate) fn let_go_soon(self: &Arc<Self>, object: u64) {
        let shared = Arc::clone(self);
        self.handle.spawn(async move {
            tokio::time::sleep(HOLD).await;
            lock(&shared.jobs).queue.let_go(object);
            shared.pump();
        });
    }
}

/// Parts of one object on their way to the store. Ends them when it is dropped, whatever happened.
struct Job {
    shared: Arc<Shared>,
    object: u64,
    parts: Vec<WholePart>,
    is_write: bool,
    result: Result<(), IoError>,
}

impl Job {
    fn new(shared: &Arc<Shared>, object: u64, parts: Vec<WholePart>, is_write: bool) -> Self {
        Self {
            shared: Arc::clone(shared),
            object,
            parts,
            is_write,
            result: Err(IoError::Cancelled),
        }
    }

    async fn run(mut self) {
        self.result = if self.is_write {
            job::write(&self.shared, self.object, &self.parts).await
        } else {
            job::read(&self.shared, self.object, &self.parts).await
        };
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let mut jobs = lock(&self.shared.jobs);
        if self.is_write {
            jobs.writing -= 1;
            jobs.queue.end_write(self.object);
            jobs.on_written(self.result, self.shared.parallel);
        } else {
            jobs.reading -= 1;
        }
        drop(jobs);
        for part in self.parts.drain(..) {
            part.whole.end_part(self.result);
        }
        if !self.shared.stopping.load(Ordering::Acquire) {
            self.shared.pump();
        }
    }
}
