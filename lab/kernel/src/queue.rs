//! The lines in front of the request queues of devices (`history::queue`).
//!
//! Invariants
//!   1. A task stands in at most one line, once.
//!   2. A task that leaves the front of a line has the others look again: it may send nothing.

use std::collections::{BTreeMap, VecDeque};

use env::{Cause, Lock, LockClass, Signal, Task, TaskId, Wakeup};
use history::queue::{Batch, Entry, QueueRule};
use mm::Error;
use mm::inside::DeviceLine;

/// The lines of all devices that tell of their queue.
pub(crate) struct Queues {
    rule: QueueRule,
    lines: Lock<BTreeMap<u16, Line>>,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<TaskId>,
    batches: BTreeMap<TaskId, Batch>,
}

impl Line {
    /// A task sends the first request of a batch.
    fn begin(&mut self, task: TaskId, mut batch: Batch) {
        batch.sent();
        self.batches.insert(task, batch);
    }
}

impl Queues {
    pub(crate) fn new(rule: QueueRule) -> Self {
        Self {
            rule,
            lines: Lock::new(LockClass::Leaf, BTreeMap::new()),
        }
    }

    /// See `mm::Kernel::stand_in_line`.
    pub(crate) fn stand(
        &self,
        task: &mut Task<'_>,
        queue: &DeviceLine<'_>,
    ) -> Option<Result<(), Error>> {
        let most = queue.queue?.requests;
        let requests = queue.requests;
        if !queue.waits && self.rule.is_congested(most, requests()) {
            return Some(Err(Error::WouldWait));
        }
        if self.enters(task, queue, most) {
            return Some(Ok(()));
        }
        let (own, line) = (task.id(), queue.device.0);
        self.at(task, line, |line| line.waiting.push_back(own));
        let woken = task.wait_while(queue.wait, Cause::WritebackFlight, None, |task| {
            !self.rule.opens(most, requests())
                || self.at(task, line, |line| line.waiting.front() != Some(&own))
        });
        let now = task.now();
        self.at(task, line, |line| {
            line.waiting.retain(|other| *other != own);
            line.begin(own, self.rule.begin(now));
        });
        queue.wait.wake_all(Signal::SlotFreed);
        Some(match woken {
            Wakeup::Ready(_) | Wakeup::TimedOut => Ok(()),
            Wakeup::Cancelled => Err(Error::Cancelled),
            Wakeup::Refused => Err(Error::WouldWait),
        })
    }

    /// A task that comes anew enters, and so does one whose batch goes on.
    fn enters(&self, task: &Task<'_>, queue: &DeviceLine<'_>, most: u32) -> bool {
        let (own, now, requests) = (task.id(), task.now(), (queue.requests)());
        self.at(task, queue.device.0, |line| {
            line.batches
                .retain(|_, batch| self.rule.goes_on(batch, now));
            let batch = line.batches.get_mut(&own);
            if batch.is_none() && !line.waiting.is_empty() {
                return false;
            }
            match (self.rule.entry(most, requests, batch.is_some()), batch) {
                (Entry::Waits, _) => return false,
                (_, Some(batch)) => batch.sent(),
                (Entry::Begins, None) => line.begin(own, self.rule.begin(now)),
                (Entry::Enters, None) => {}
            }
            true
        })
    }

    fn at<T>(&self, task: &Task<'_>, line: u16, body: impl FnOnce(&mut Line) -> T) -> T {
        body(self.lines.lock(task).entry(line).or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use env::WaitQueue;
    use frames::sync::{AtomicU32, Ordering};
    use mm::Options;
    use policy::dirty::DeviceIndex;
    use policy::units::{Nanos, Pages};
    use policy::writeback::DeviceQueue;

    use super::*;
    use crate::testing::with_cache;

    /// A device whose queue has room for four.
    struct Device {
        queues: Queues,
        requests: AtomicU32,
        wait: WaitQueue,
        sent: Lock<Vec<u32>>,
    }

    impl Device {
        fn send(&self, task: &mut Task<'_>, name: u32) {
            let line = DeviceLine {
                device: DeviceIndex(0),
                queue: Some(DeviceQueue {
                    requests: 4,
                    request_max: Pages(1),
                }),
                requests: &|| self.requests.load(Ordering::Relaxed),
                wait: &self.wait,
                waits: true,
            };
            self.queues.stand(task, &line).unwrap().unwrap();
            self.requests.fetch_add(1, Ordering::Relaxed);
            self.sent.lock(task).push(name);
        }

        fn ends(&self, task: &mut Task<'_>, count: u32) {
            self.requests.fetch_sub(count, Ordering::Relaxed);
            self.wait.wake_all(Signal::PageWritten);
            task.sleep(Cause::Idle, Nanos::millis(1));
        }
    }

    #[test]
    fn tasks_that_find_the_queue_full_go_in_turn_and_each_sends_a_batch() {
        let sent = with_cache(Options::new(1024, 1), |task, _| {
            let device = Arc::new(Device {
                queues: Queues::new(history::queue::LINUX_3_2),
                requests: AtomicU32::new(4),
                wait: WaitQueue::new(),
                sent: Lock::new(LockClass::Leaf, Vec::new()),
            });
            let tasks: Vec<_> = (1..=2)
                .map(|name| {
                    let device = Arc::clone(&device);
                    env::spawn(task.env(), "sender", move |task| {
                        device.send(task, name);
                        device.send(task, name);
                    })
                })
                .collect();
            task.sleep(Cause::Idle, Nanos::millis(1));
            assert!(device.sent.lock(task).is_empty(), "the queue is full");
            // One place: the first in line goes, and its batch with it, above the bound.
            device.ends(task, 1);
            assert_eq!(*device.sent.lock(task), [1, 1]);
            device.ends(task, 1);
            assert_eq!(*device.sent.lock(task), [1, 1], "still full");
            device.ends(task, 1);
            for one in tasks {
                one.join(task).unwrap();
            }
            device.sent.lock(task).clone()
        });
        assert_eq!(sent, [1, 1, 2, 2]);
    }
}
