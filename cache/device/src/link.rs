//! The wire of a slow device: transfers one after the other at a rate, as exact integers.
//!
//! A transfer becomes ready (its latency has passed), waits for those before it, then moves its
//! bytes at the rate. Bytes that an idle wire could have moved are saved as credit, up to the
//! burst, and the next transfers use them first. Work is counted in byte-nanoseconds (bytes *
//! 10^9), of which `rate` are done in each nanosecond; so nothing is lost but the fraction of a
//! nanosecond at the end of each transfer.
//!
//! Properties: the bytes of the transfers that end in a window `w` are at most
//! `rate * w + burst + one transfer`; a wire that always has work moves `rate` bytes a second,
//! however late `pop_finished` is called; a change of rate holds from its moment on, for the rest
//! of the transfer under way too.
//!
//! Source: token bucket, as in ITU-T I.371's generic cell rate algorithm, with credit for idle
//! time.

use std::collections::VecDeque;

use policy::units::{Bytes, Instant, Nanos, SECOND};

/// A rate in bytes a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BytesPerSec(pub u64);

/// Transfers in order, each with the item it stands for.
#[derive(Debug)]
pub(crate) struct Link<T> {
    /// None: transfers take no time. Zero: they never end.
    rate: Option<BytesPerSec>,
    burst: Bytes,
    /// Byte-nanoseconds saved.
    credit: u128,
    /// Up to when the wire's past is settled.
    clock: Instant,
    queue: VecDeque<Transfer<T>>,
}

#[derive(Debug)]
struct Transfer<T> {
    item: T,
    ready: Instant,
    /// Byte-nanoseconds to go.
    work: u128,
}

impl<T> Link<T> {
    /// An idle wire with full credit.
    pub(crate) fn new(rate: Option<BytesPerSec>, burst: Bytes, now: Instant) -> Self {
        Self {
            rate,
            burst,
            credit: work_of(burst),
            clock: now,
            queue: VecDeque::new(),
        }
    }

    /// Puts a transfer at the end; it may not begin before `ready`.
    pub(crate) fn push(&mut self, item: T, ready: Instant, bytes: Bytes) {
        self.queue.push_back(Transfer {
            item,
            ready,
            work: work_of(bytes),
        });
    }

    /// Changes the rate from `now` on. Transfers that ended before must have been popped.
    pub(crate) fn set_rate(&mut self, now: Instant, rate: Option<BytesPerSec>) {
        debug_assert!(
            self.eta().is_none_or(|eta| eta > now),
            "pop what has ended first"
        );
        self.settle(now);
        self.rate = rate;
    }

    /// From now on every transfer ends at once.
    pub(crate) fn open(&mut self) {
        self.rate = None;
        for transfer in &mut self.queue {
            transfer.ready = self.clock;
        }
    }

    /// When the first transfer ends, if it does at this rate.
    pub(crate) fn eta(&self) -> Option<Instant> {
        let head = self.queue.front()?;
        let start = self.clock.max(head.ready);
        let work = head.work.saturating_sub(self.credit_at(start));
        match self.rate {
            None => Some(start),
            Some(_) if work == 0 => Some(start),
            Some(BytesPerSec(0)) => None,
            Some(BytesPerSec(rate)) => {
                let time = work.div_ceil(u128::from(rate));
                Some(start + Nanos(u64::try_from(time).unwrap_or(u64::MAX)))
            }
        }
    }

    /// The next transfer that has ended by `now`, and when it did.
    pub(crate) fn pop_finished(&mut self, now: Instant) -> Option<(T, Instant)> {
        let eta = self.eta().filter(|eta| *eta <= now)?;
        let head = self.queue.pop_front()?;
        let start = self.clock.max(head.ready);
        self.credit = self.credit_at(start).saturating_sub(head.work);
        // Not `now`: a transfer that was ready before this look begins where this one ended.
        self.clock = self.clock.max(eta);
        Some((head.item, eta))
    }

    /// Does the work that falls before `now`, none of which ends a transfer.
    fn settle(&mut self, now: Instant) {
        let now = now.max(self.clock);
        let Some(head) = self.queue.front() else {
            self.credit = self.credit_at(now);
            self.clock = now;
            return;
        };
        let start = self.clock.max(head.ready).min(now);
        let credit = self.credit_at(start);
        if head.ready > now {
            self.credit = credit;
            self.clock = now;
            return;
        }
        let rate = u128::from(self.rate.map_or(0, |rate| rate.0));
        let head = self.queue.front_mut().expect("looked at above");
        let used = credit.min(head.work);
        let done = rate * u128::from(now.since(start).0);
        head.work = (head.work - used).saturating_sub(done);
        self.credit = credit - used;
        self.clock = now;
    }

    /// Credit at `when`, with the wire idle since `clock`.
    fn credit_at(&self, when: Instant) -> u128 {
        let rate = u128::from(self.rate.map_or(0, |rate| rate.0));
        let earned = rate * u128::from(when.since(self.clock).0);
        self.credit.saturating_add(earned).min(work_of(self.burst))
    }
}

fn work_of(bytes: Bytes) -> u128 {
    u128::from(bytes.0) * u128::from(SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    fn link(rate: u64, burst: u64) -> Link<u32> {
        Link::new(Some(BytesPerSec(rate)), Bytes(burst), Instant::ZERO)
    }

    fn run(link: &mut Link<u32>) -> Vec<(u32, u64)> {
        let mut log = Vec::new();
        while let Some(eta) = link.eta() {
            assert_eq!(
                link.pop_finished(Instant(eta.0.saturating_sub(1))),
                None,
                "before {eta:?}"
            );
            let (item, ended) = link.pop_finished(eta).unwrap();
            assert_eq!(ended, eta);
            log.push((item, eta.0));
        }
        log
    }

    #[test]
    fn transfers_follow_each_other_at_the_rate() {
        let mut link = link(16 * MB, 0);
        for item in 0..3 {
            link.push(item, Instant(1_000_000), Bytes(16_000));
        }
        assert_eq!(
            run(&mut link),
            [(0, 2_000_000), (1, 3_000_000), (2, 4_000_000)]
        );
    }

    #[test]
    fn an_idle_wire_saves_no_more_than_its_burst() {
        let mut link = link(1_000, 100);
        link.push(0, Instant(0), Bytes(150));
        assert_eq!(run(&mut link), [(0, 50_000_000)]);
        // 40 ms of idleness are 40 bytes; a long time is the burst.
        link.push(1, Instant(90_000_000), Bytes(50));
        link.push(2, Instant(9_000_000_000), Bytes(100));
        link.push(3, Instant(9_000_000_000), Bytes(1));
        assert_eq!(
            run(&mut link),
            [(1, 100_000_000), (2, 9_000_000_000), (3, 9_001_000_000)]
        );
    }

    #[test]
    fn a_change_of_rate_holds_for_the_rest_of_a_transfer() {
        let mut link = link(1_000, 0);
        link.push(0, Instant(0), Bytes(1_000));
        assert_eq!(link.pop_finished(Instant(500_000_000)), None);
        link.set_rate(Instant(500_000_000), Some(BytesPerSec(250)));
        assert_eq!(link.eta(), Some(Instant(2_500_000_000)));
        link.set_rate(Instant(1_500_000_000), Some(BytesPerSec(0)));
        assert_eq!(link.eta(), None);
        link.set_rate(Instant(7_000_000_000), Some(BytesPerSec(500)));
        assert_eq!(link.eta(), Some(Instant(7_500_000_000)));
    }

    #[test]
    fn a_transfer_that_was_ready_before_a_late_look_begins_when_it_was() {
        let mut link = link(1_000, 0);
        link.push(0, Instant(0), Bytes(100));
        let late = Instant(130_000_000);
        assert_eq!(link.pop_finished(late), Some((0, Instant(100_000_000))));
        assert_eq!(link.pop_finished(late), None);
        link.push(1, Instant(110_000_000), Bytes(100));
        assert_eq!(link.eta(), Some(Instant(210_000_000)));
    }

    #[test]
    fn late_looks_cost_no_rate() {
        let mut link = link(1_000, 0);
        for item in 0..10 {
            link.push(item, Instant(0), Bytes(100));
        }
        // Looked at 30 ms late every time, the ten still end within their second.
        let mut now = 0;
        let mut ended = 0;
        while ended < 10 {
            now += 130_000_000;
            while link.pop_finished(Instant(now)).is_some() {
                ended += 1;
            }
        }
        assert!(now <= 1_040_000_000, "ten transfers ended at {now}");
    }
}
