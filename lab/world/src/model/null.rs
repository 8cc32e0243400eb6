//! A device that takes a fixed time for everything, none by default.

use policy::units::{Bytes, Instant, Nanos};

use super::engine::{Chance, Job, Mechanism, Order, Service};
use super::params;

pub(super) struct Null {
    params: params::Null,
}

impl Null {
    pub(super) fn new(params: &params::Null) -> Self {
        Self {
            params: params.clone(),
        }
    }
}

impl Mechanism for Null {
    fn depth(&self) -> u32 {
        u32::try_from(self.params.depth).unwrap_or(u32::MAX)
    }

    fn request_max(&self) -> Bytes {
        Bytes(self.params.request_max_bytes)
    }

    fn order(&self) -> Order {
        Order::Arrival
    }

    fn serve(&mut self, _job: &Job, _now: Instant, _chance: &Chance<'_>) -> Service {
        Service::of(Nanos::micros(self.params.latency_us))
    }
}
