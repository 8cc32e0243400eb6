//! The request queue of a device before blk-mq: a task that finds it full stands in line, and one
//! that gets to the front may send a batch.
//!
//! ```text
//!   requests        0 ............. nr-1 .......... nr ............ 1.5 nr
//!   who enters      anybody         and batches    tasks in a batch     nobody
//!   a batch         32 requests within 20 ms, and one request in any case
//! ```
//!
//! So 32 single pages that a task writes one after the other cost it one wait for the queue, not
//! 32.
//!
//! Source: Linux 3.2 block/blk-core.c, get_request(), get_request_wait(), ioc_batching(),
//! ioc_set_batching(), __freed_request(); include/linux/blkdev.h, BLKDEV_MAX_RQ;
//! block/blk-settings.c, blk_queue_make_request() (nr_batching); block/blk.h,
//! queue_congestion_on_threshold(). Deviation: a task that comes while others stand in the line
//! goes to its end; in the kernel it may be let in between two wakes.

use policy::units::{Instant, Nanos};

/// The rule of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueRule {
    /// Requests of a batch (`nr_batching`).
    pub batch: u32,
    /// Time of a batch (`BLK_BATCH_TIME`).
    pub batch_for: Nanos,
}

/// Linux 2.6 to 3.12.
pub const LINUX_3_2: QueueRule = QueueRule {
    batch: 32,
    batch_for: Nanos::millis(20),
};

/// The batch of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    left: u32,
    began: Instant,
}

/// The answer to a task that wants to send a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// It enters.
    Enters,
    /// It enters, and with it its batch.
    Begins,
    /// It stands in the line.
    Waits,
}

impl QueueRule {
    /// A batch that begins now.
    #[must_use]
    pub const fn begin(&self, now: Instant) -> Batch {
        Batch {
            left: self.batch,
            began: now,
        }
    }

    /// True if a batch has not come to its end.
    #[must_use]
    pub fn goes_on(&self, batch: &Batch, now: Instant) -> bool {
        let is_whole = batch.left == self.batch;
        is_whole || batch.left > 0 && now.since(batch.began) < self.batch_for
    }

    /// The answer to a task of a queue for `most` requests that has `requests` of them.
    #[must_use]
    pub const fn entry(&self, most: u32, requests: u32, in_batch: bool) -> Entry {
        if requests + 1 < most || in_batch && requests < most + most / 2 {
            Entry::Enters
        } else if requests < most {
            Entry::Begins
        } else {
            Entry::Waits
        }
    }

    /// True if the first of the line may go: the queue has been full, and has a place again.
    #[must_use]
    pub const fn opens(&self, most: u32, requests: u32) -> bool {
        requests < most
    }

    /// True if the queue says that it is congested.
    #[must_use]
    pub const fn is_congested(&self, most: u32, requests: u32) -> bool {
        requests + most / 8 > most
    }
}

impl Batch {
    /// A request of it was sent.
    pub const fn sent(&mut self) {
        self.left = self.left.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: QueueRule = LINUX_3_2;

    #[test]
    fn the_task_that_fills_the_queue_goes_on_with_its_batch_and_others_wait() {
        assert_eq!(RULE.entry(128, 126, false), Entry::Enters);
        assert_eq!(RULE.entry(128, 127, false), Entry::Begins);
        assert_eq!(RULE.entry(128, 128, false), Entry::Waits);
        assert_eq!(RULE.entry(128, 128, true), Entry::Enters);
        assert_eq!(RULE.entry(128, 191, true), Entry::Enters);
        assert_eq!(RULE.entry(128, 192, true), Entry::Waits);
        assert!(RULE.opens(128, 127) && !RULE.opens(128, 128));
        assert!(RULE.is_congested(128, 113) && !RULE.is_congested(128, 112));
    }

    #[test]
    fn a_batch_is_32_requests_within_20_ms_and_one_in_any_case() {
        let began = Instant(1);
        let late = began + Nanos::millis(30);
        let mut batch = RULE.begin(began);
        assert!(RULE.goes_on(&batch, late));
        batch.sent();
        assert!(RULE.goes_on(&batch, began) && !RULE.goes_on(&batch, late));
        for _ in 1..32 {
            batch.sent();
        }
        assert!(!RULE.goes_on(&batch, began));
    }
}
