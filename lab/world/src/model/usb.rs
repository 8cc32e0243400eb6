//! A USB stick: flash in large erase units, of which its controller can keep a few open.
//!
//! A write that goes on where the last one in its unit ended runs at full rate. One elsewhere in an
//! open unit costs a few milliseconds. A unit that has been written as a whole closes by itself.
//! One in a unit that is not open, while all are in use, closes the unit used longest ago: what is
//! missing of it is copied over, up to seconds. So a stick is fast for one or a few streams and
//! collapses beyond its number of open units.
//!
//! Invariants: at most `open_units` units are open; only writes open units.
//!
//! Source: experiments E, USB 2.0 stick 2011; A. Bergmann, "Optimizing Linux with cheap flash
//! drives", LWN 428584. The draw of the copying time (mostly near its least, rarely near its most)
//! is a GUESS.

use policy::units::{Bytes, Instant, Nanos, Pages};
use policy::writeback::DeviceQueue;

use super::engine::{Chance, Job, Kind, Mechanism, Order, Service, Stall, StallKind};
use super::turns::Slices;
use super::{params, transfer};

pub(super) struct Stick {
    params: params::UsbStick,
    /// Open units, the one used longest ago first.
    open: Vec<Unit>,
    /// Block after the last read.
    head: u64,
}

#[derive(Clone, Copy, Debug)]
struct Unit {
    number: u64,
    /// Block after the last write in it.
    next: u64,
    /// Pages written since it was opened.
    written: u64,
}

impl Stick {
    pub(super) fn new(params: &params::UsbStick) -> Self {
        Self {
            params: params.clone(),
            open: Vec::new(),
            head: 0,
        }
    }

    fn unit_pages(&self) -> u64 {
        Bytes(self.params.unit_bytes).pages_floor().0.max(1)
    }

    /// Cost of closing a unit of which not all was written.
    fn close(&self, unit: Unit, chance: &Chance<'_>) -> Nanos {
        let missing = self.unit_pages().saturating_sub(unit.written);
        let (min, max) = (self.params.rewrite_min_us, self.params.rewrite_max_us);
        // The cube of a draw from 0..1 (in 1/1024): a quarter of the range on average.
        let draw = chance.below(1025);
        let cube = (draw * draw * draw) >> 20;
        let whole = min + max.saturating_sub(min) * cube / 1024;
        Nanos::micros(whole * missing / self.unit_pages())
    }

    /// Writes the part of a piece that lies in one unit.
    fn write(&mut self, block: u64, pages: u64, chance: &Chance<'_>) -> (Nanos, Nanos) {
        let number = block / self.unit_pages();
        let (mut extra, mut stall) = (Nanos::ZERO, Nanos::ZERO);
        let unit = match self.open.iter().position(|unit| unit.number == number) {
            Some(at) => {
                let unit = self.open.remove(at);
                if unit.next != block {
                    extra = Nanos::micros(self.params.small_write_us);
                }
                unit
            }
            None => {
                if self.open.len() as u64 >= self.params.open_units {
                    let closed = self.open.remove(0);
                    stall = self.close(closed, chance);
                }
                Unit {
                    number,
                    next: block,
                    written: 0,
                }
            }
        };
        let written = (unit.written + pages).min(self.unit_pages());
        if written < self.unit_pages() {
            self.open.push(Unit {
                number,
                next: block + pages,
                written,
            });
        }
        (extra, stall)
    }
}

impl Mechanism for Stick {
    fn depth(&self) -> u32 {
        1
    }

    fn request_max(&self) -> Bytes {
        Bytes(self.params.request_max_bytes)
    }

    fn queue(&self) -> Option<DeviceQueue> {
        let requests = u32::try_from(self.params.queue_requests).unwrap_or(u32::MAX);
        (requests > 0).then(|| DeviceQueue {
            requests,
            request_max: self.request_max().pages_floor().at_least(Pages(1)),
        })
    }

    fn slices(&self) -> Option<Slices> {
        (self.params.slice_sync_us > 0).then(|| Slices {
            waited: Nanos::micros(self.params.slice_sync_us),
            writeback: Nanos::micros(self.params.slice_async_us),
            // It does not seek: nothing is lost by going elsewhere meanwhile.
            idle: Nanos::ZERO,
        })
    }

    fn order(&self) -> Order {
        Order::Position
    }

    fn write_expire(&self) -> Nanos {
        Nanos::micros(self.params.write_expire_us)
    }

    fn serve(&mut self, job: &Job, _now: Instant, chance: &Chance<'_>) -> Service {
        let command = Nanos::micros(self.params.command_us);
        match job.kind {
            Kind::Hole => Service::of(Nanos::ZERO),
            Kind::Flush { .. } => {
                let time = Nanos::micros(self.params.flush_us);
                Service::stalled(Nanos::ZERO, StallKind::Flush, time)
            }
            Kind::Read => {
                self.head = job.block + u64::from(job.pages);
                Service::of(command + transfer(job.bytes(), self.params.read_bytes_per_sec))
            }
            Kind::Write => {
                let mut time = command + transfer(job.bytes(), self.params.write_bytes_per_sec);
                let mut stall = Nanos::ZERO;
                let (mut block, end) = (job.block, job.block + u64::from(job.pages));
                while block < end {
                    let edge = (block / self.unit_pages() + 1) * self.unit_pages();
                    let pages = edge.min(end) - block;
                    let (extra, closed) = self.write(block, pages, chance);
                    time += extra;
                    stall += closed;
                    block += pages;
                }
                let unit_change = Stall {
                    kind: StallKind::UnitChange,
                    time: stall,
                };
                Service {
                    time: time + stall,
                    stall: Some(unit_change).filter(|_| !stall.is_zero()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use policy::units::PAGE_SHIFT;

    use super::*;

    #[test]
    fn the_unit_of_a_block_is_by_division() {
        let stick = Stick::new(&params::UsbStick::DEFAULT);
        assert_eq!(stick.unit_pages() << PAGE_SHIFT, 4 << 20);
    }
}
