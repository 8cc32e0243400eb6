//! An SSD: many commands at once over one pair of buses, fast cells that fill up, and a garbage
//! collector that sometimes holds everything up.
//!
//! ```text
//!   a command ends at   max(now, command slot, bus free) + bytes / rate + latency
//!   command slot        1 / iops_max after the last command's
//!   rate of writing     fast while the fast cells have room, else slow; they drain at the slow
//!                       rate whenever nothing is written
//! ```
//!
//! With a buffer (`buffer`) a write ends when the interface has taken it in, and the cells follow;
//! a flush waits for them, a read does not.
//!
//! Source: experiments E, SSD (p3), and its write stall (c).

use policy::units::{Bytes, Instant, Nanos};
use policy::writeback::DeviceQueue;

use super::buffer::{TakeIn, WriteBuffer};
use super::engine::{Chance, Job, Kind, Mechanism, Order, Service, Stall, StallKind};
use super::{params, transfer};

pub(super) struct Ssd {
    params: params::Ssd,
    /// None where a write ends in the cells.
    buffer: Option<WriteBuffer>,
    /// When the next command may begin.
    slot: Instant,
    read_bus: Instant,
    write_bus: Instant,
    /// When the cells will be done with what was written.
    cells: Instant,
    /// Bytes in the fast cells.
    fast: u64,
}

impl Ssd {
    pub(super) fn new(params: &params::Ssd) -> Self {
        let start = Instant::ZERO;
        Self {
            params: params.clone(),
            buffer: WriteBuffer::new(
                params.write_buffer_us,
                params.write_buffer_low_us,
                params.interface_bytes_per_sec,
            ),
            slot: start,
            read_bus: start,
            write_bus: start,
            cells: start,
            fast: 0,
        }
    }

    /// Moves data to the slow cells while nothing was written.
    fn drain(&mut self, now: Instant) {
        let idle = u128::from(now.since(self.cells).0);
        let drained = idle * u128::from(self.params.slow_bytes_per_sec) / 1_000_000_000;
        self.fast = self
            .fast
            .saturating_sub(u64::try_from(drained).unwrap_or(u64::MAX));
    }

    fn write_time(&mut self, bytes: Bytes) -> Nanos {
        let fast = bytes
            .0
            .min(self.params.fast_bytes.saturating_sub(self.fast));
        self.fast += fast;
        transfer(Bytes(fast), self.params.write_bytes_per_sec)
            + transfer(Bytes(bytes.0 - fast), self.params.slow_bytes_per_sec)
    }

    /// Time for which the cells will be busy with what has ended already.
    fn buffered(&self, now: Instant) -> Nanos {
        match self.buffer {
            Some(_) => self.cells.since(now),
            None => Nanos::ZERO,
        }
    }

    /// A garbage collection, if this write meets one.
    fn collection(&self, bytes: Bytes, chance: &Chance<'_>) -> Nanos {
        // Chance of an event: bytes x rate / 2^40, drawn as a number below 2^40.
        let rate = u128::from(bytes.0) * u128::from(self.params.gc_per_tib);
        if u128::from(chance.below(1 << 40)) >= rate {
            return Nanos::ZERO;
        }
        let (min, max) = (self.params.gc_min_us, self.params.gc_max_us);
        chance.between(Nanos::micros(min), Nanos::micros(max))
    }
}

impl Mechanism for Ssd {
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

    fn serve(&mut self, job: &Job, now: Instant, chance: &Chance<'_>) -> Service {
        let latency = match job.kind {
            Kind::Hole => return Service::of(Nanos::ZERO),
            Kind::Flush { .. } => {
                let time = self.buffered(now) + Nanos::micros(self.params.flush_us);
                return Service::stalled(Nanos::ZERO, StallKind::Flush, time);
            }
            Kind::Read => Nanos::micros(self.params.read_us),
            Kind::Write => Nanos::micros(self.params.write_us),
        };
        let slot = self.slot.at_least(now);
        self.slot = slot + Nanos(1_000_000_000 / self.params.iops_max);
        if job.kind == Kind::Read {
            let moved = transfer(job.bytes(), self.params.read_bytes_per_sec);
            self.read_bus = self.read_bus.at_least(slot) + moved;
            return Service::of(self.read_bus.since(now) + latency);
        }
        self.drain(now);
        let begin = self.write_bus.at_least(slot);
        let collection = self.collection(job.bytes(), chance);
        self.cells = self.cells.at_least(begin) + self.write_time(job.bytes()) + collection;
        let busy = self.cells.since(begin);
        let taken = match &self.buffer {
            Some(buffer) => buffer.take_in(job.bytes(), busy),
            None => TakeIn {
                transfer: busy,
                full: Nanos::ZERO,
            },
        };
        self.write_bus = begin + taken.transfer + taken.full;
        let time = self.write_bus.since(now) + latency;
        if collection.is_zero() && taken.full.is_zero() {
            return Service::of(time);
        }
        let (kind, stalled) = if collection.is_zero() {
            (StallKind::BufferFull, taken.full)
        } else {
            // Everything behind it waits too, reads included; not for what is buffered.
            self.read_bus = self.read_bus.at_least(begin) + collection;
            (StallKind::GarbageCollection, collection)
        };
        let stall = Some(Stall {
            kind,
            time: stalled,
        });
        Service { time, stall }
    }
}

#[cfg(test)]
mod tests {
    use policy::units::Pages;

    use super::*;

    #[test]
    fn p0s_disk_tells_of_its_queue_and_the_ssd_of_p3_does_not() {
        let queue = DeviceQueue {
            requests: 32,
            request_max: Pages(320),
        };
        assert_eq!(Ssd::new(&params::Ssd::P0).queue(), Some(queue));
        assert_eq!(Ssd::new(&params::Ssd::DEFAULT).queue(), None);
    }
}
