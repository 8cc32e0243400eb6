//! A disk: the head seeks, the media turn, the data pass.
//!
//! ```text
//!   time of a piece = positioning + bytes / media rate
//!   positioning   0                                     goes on where the last ended, no gap in time
//!                 gap / media rate, if that is shorter  a little further on: wait for it to come by
//!                 rotation, drawn from 0..1 turn        goes on where the last ended, but late
//!                 seek(distance) + rotation             else
//!   seek(d)       track + (average - track) * sqrt(3 d / span)
//! ```
//!
//! Writes go through a buffer (`buffer`), so that completions of a steady stream come in lumps.
//! A read goes before what is buffered; a flush waits for all of it.
//!
//! The square root makes the mean over random places (mean distance a third of the span) come out
//! at about the published average. One command at a time: what order buys is in the queue's C-SCAN.
//!
//! Source: experiments E, SATA disk 2010; C. Ruemmler and J. Wilkes, "An introduction to disk
//! drive modeling", IEEE Computer 27(3), 1994, for the shape of the seek curve.
//! Deviations: one zone (no faster outer tracks), no defects, no track skew.

use policy::units::{Bytes, Instant, Nanos, PAGE_SHIFT, Pages};

use super::buffer::{TakeIn, WriteBuffer};
use super::engine::{Chance, Job, Kind, Mechanism, Order, Service, StallKind};
use super::turns::Slices;
use super::{params, transfer};

pub(super) struct Disk {
    params: params::Sata2010,
    /// None where a write ends on the media.
    buffer: Option<WriteBuffer>,
    /// Block after the last piece that the media were given.
    head: u64,
    /// When they will be done with it: later than now while the buffer holds writes.
    free: Instant,
}

impl Disk {
    pub(super) fn new(params: &params::Sata2010) -> Self {
        Self {
            params: params.clone(),
            buffer: WriteBuffer::new(
                params.write_buffer_us,
                params.write_buffer_low_us,
                params.interface_bytes_per_sec,
            ),
            head: 0,
            free: Instant::ZERO,
        }
    }

    fn seek(&self, distance: u64) -> Nanos {
        let span = Bytes(self.params.span_bytes).pages_floor().0.max(1);
        let track = self.params.seek_track_us;
        let rise = self.params.seek_average_us.saturating_sub(track);
        // Parts per million of the span, so that the root comes in parts per thousand.
        let part = u128::from(distance.min(span)) * 3_000_000 / u128::from(span);
        let root = u64::try_from(part.isqrt()).unwrap_or(u64::MAX);
        Nanos::micros(track + rise * root / 1000)
    }

    fn positioning(&self, block: u64, now: Instant, chance: &Chance<'_>) -> Nanos {
        let gap = now.since(self.free);
        let streams = gap <= Nanos::micros(self.params.stream_gap_us);
        if streams && block == self.head {
            return Nanos::ZERO;
        }
        let turn = Nanos(chance.below(Nanos::micros(self.params.rotation_us).0));
        let late = if streams {
            Nanos::ZERO
        } else {
            Nanos::micros(self.params.command_us)
        };
        if block == self.head {
            return late + turn;
        }
        let moved = late + self.seek(block.abs_diff(self.head)) + turn;
        if streams && block > self.head {
            let skipped = Bytes((block - self.head) << PAGE_SHIFT);
            return transfer(skipped, self.params.media_bytes_per_sec).at_most(moved);
        }
        moved
    }
}

impl Mechanism for Disk {
    fn depth(&self) -> u32 {
        1
    }

    fn request_max(&self) -> Bytes {
        Bytes(self.params.request_max_bytes)
    }

    fn order(&self) -> Order {
        Order::Position
    }

    fn slices(&self) -> Option<Slices> {
        (self.params.slice_sync_us > 0).then(|| Slices {
            waited: Nanos::micros(self.params.slice_sync_us),
            writeback: Nanos::micros(self.params.slice_async_us),
            idle: Nanos::micros(self.params.slice_idle_us),
        })
    }

    fn write_expire(&self) -> Nanos {
        Nanos::micros(self.params.write_expire_us)
    }

    fn serve(&mut self, job: &Job, now: Instant, chance: &Chance<'_>) -> Service {
        match job.kind {
            Kind::Hole => Service::of(Nanos::ZERO),
            Kind::Flush { .. } => {
                let (min, max) = (self.params.flush_min_us, self.params.flush_max_us);
                let settle = chance.between(Nanos::micros(min), Nanos::micros(max));
                let time = self.free.since(now) + settle;
                self.free = now + time;
                Service::stalled(Nanos::ZERO, StallKind::Flush, time)
            }
            Kind::Read => {
                let buffered = self.free.since(now);
                let time = self.media(job, now, chance);
                self.free = now + time + buffered;
                Service::of(time)
            }
            Kind::Write => {
                let begin = self.free.max(now);
                self.free = begin + self.media(job, begin, chance);
                let busy = self.free.since(now);
                let Some(buffer) = &self.buffer else {
                    return Service::of(busy);
                };
                let TakeIn { transfer, full } = buffer.take_in(job.bytes(), busy);
                if full.is_zero() {
                    return Service::of(transfer);
                }
                Service::stalled(transfer, StallKind::BufferFull, full)
            }
        }
    }
}

impl Disk {
    /// Time of the media for a piece that they begin with at `begin`.
    fn media(&mut self, job: &Job, begin: Instant, chance: &Chance<'_>) -> Nanos {
        let positioning = self.positioning(job.block, begin, chance);
        self.head = job.block + Pages(u64::from(job.pages)).0;
        positioning + transfer(job.bytes(), self.params.media_bytes_per_sec)
    }
}
