//! A device of a given rate: every byte needs a token, tokens come at the rate and are saved up for
//! a short while. Latency comes on top, and the latencies of `depth` requests overlap.
//!
//! Kept as a *theoretical arrival time*: the instant at which the bucket would be empty had nothing
//! been saved. A piece may end `burst` before it.
//!
//! Source: docs/study/reference/field-recordings.md (a token bucket with 50 ms of burst); ITU-T
//! I.371, the generic cell rate algorithm, for the form.

use policy::units::{Bytes, Instant, Nanos};
use policy::writeback::DeviceQueue;

use super::engine::{Chance, Job, Kind, Mechanism, Order, Service, StallKind};
use super::{params, transfer};

pub(super) struct TokenBucket {
    params: params::TokenBucket,
    /// When all that was taken is paid for.
    paid: Instant,
}

impl TokenBucket {
    pub(super) fn new(params: &params::TokenBucket) -> Self {
        Self {
            params: params.clone(),
            paid: Instant::ZERO,
        }
    }
}

impl Mechanism for TokenBucket {
    fn depth(&self) -> u32 {
        u32::try_from(self.params.depth).unwrap_or(u32::MAX)
    }

    fn request_max(&self) -> Bytes {
        Bytes(self.params.request_max_bytes)
    }

    fn queue(&self) -> Option<DeviceQueue> {
        let requests = u32::try_from(self.params.queue_depth).unwrap_or(u32::MAX);
        (requests > 0).then(|| DeviceQueue {
            requests,
            request_max: self.request_max().pages_floor(),
        })
    }

    fn order(&self) -> Order {
        Order::Arrival
    }

    fn admit(&mut self, _job: &Job, _now: Instant) -> Result<(), Instant> {
        if self.params.rate_bytes_per_sec == 0 {
            Err(Instant::MAX)
        } else {
            Ok(())
        }
    }

    /// A request in service keeps the time it was given.
    fn set_rate(&mut self, _now: Instant, bytes_per_sec: u64) -> bool {
        self.params.rate_bytes_per_sec = bytes_per_sec;
        true
    }

    fn serve(&mut self, job: &Job, now: Instant, _chance: &Chance<'_>) -> Service {
        match job.kind {
            Kind::Hole => Service::of(Nanos::ZERO),
            Kind::Flush { .. } => {
                let time = Nanos::micros(self.params.flush_us);
                Service::stalled(Nanos::ZERO, StallKind::Flush, time)
            }
            Kind::Read | Kind::Write => {
                let cost = transfer(job.bytes(), self.params.rate_bytes_per_sec);
                self.paid = self.paid.at_least(now) + cost;
                let burst = Nanos::micros(self.params.burst_us);
                let paid = self.paid.since(now).saturating_sub(burst);
                Service::of(paid + Nanos::micros(self.params.latency_us))
            }
        }
    }
}
