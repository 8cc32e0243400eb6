//! An NFS server seen by its client: WRITEs come back quickly and are unstable; a COMMIT makes them
//! durable and takes long.
//!
//! A `Flush` is a COMMIT. While the server commits, WRITEs wait for it (the server's fsync holds
//! the file); reads do not. The client of 2.6.36 does not let written pages go before a COMMIT
//! either: with `commit_by_client` the engine holds their requests, commits once half of what is
//! under way is unstable, and then ends all of them in one step: the bursts that p1 speaks of. The
//! kernel may count such pages as dirty (2.6.36) or as under writeback (6.12): their sum is the
//! same.
//!
//! The server has memory of its own and writes out by itself when that is full, answering nothing.
//!
//! Source: experiments E, NFS server with COMMIT; mechanisms 6.3. The wait of WRITEs for a COMMIT
//! and the size of the server's memory are GUESSes.

use policy::units::{Bytes, Instant, Nanos};

use super::engine::{Chance, Job, Kind, Mechanism, Order, Service, StallKind};
use super::{params, transfer};

pub(super) struct Server {
    params: params::Nfs,
    /// When the server has taken in what was sent.
    write_free: Instant,
    read_free: Instant,
    /// Taken in and not committed.
    unstable: u64,
}

impl Server {
    pub(super) fn new(params: &params::Nfs) -> Self {
        let start = Instant::ZERO;
        Self {
            params: params.clone(),
            write_free: start,
            read_free: start,
            unstable: 0,
        }
    }

    fn commit_time(&self, unstable: Bytes) -> Nanos {
        Nanos::micros(self.params.commit_us) + transfer(unstable, self.params.commit_bytes_per_sec)
    }
}

impl Mechanism for Server {
    fn depth(&self) -> u32 {
        u32::try_from(self.params.slots).unwrap_or(u32::MAX)
    }

    fn request_max(&self) -> Bytes {
        Bytes(self.params.wsize_bytes)
    }

    fn order(&self) -> Order {
        Order::Arrival
    }

    fn write_expire(&self) -> Nanos {
        Nanos::micros(self.params.write_expire_us)
    }

    fn holds_writes(&self) -> bool {
        self.params.commit_by_client == 1
    }

    fn serve(&mut self, job: &Job, now: Instant, _chance: &Chance<'_>) -> Service {
        let trip = Nanos::micros(self.params.round_trip_us);
        match job.kind {
            Kind::Hole => Service::of(Nanos::ZERO),
            Kind::Read => {
                let moved = transfer(job.bytes(), self.params.read_bytes_per_sec);
                self.read_free = self.read_free.at_least(now) + moved;
                Service::of(self.read_free.since(now) + trip)
            }
            Kind::Write => {
                let moved = transfer(job.bytes(), self.params.write_bytes_per_sec);
                self.write_free = self.write_free.at_least(now) + moved;
                self.unstable += job.bytes().0;
                let time = self.write_free.since(now) + trip;
                if self.unstable < self.params.server_burst_bytes {
                    return Service::of(time);
                }
                let burst = self.commit_time(Bytes(self.unstable));
                self.unstable = 0;
                self.write_free = self.write_free + burst;
                Service::stalled(time, StallKind::ServerBurst, burst)
            }
            Kind::Flush { unstable } => {
                // After what it has already taken in; commits queue behind one another.
                let commit = self.commit_time(unstable);
                self.write_free = self.write_free.at_least(now) + commit;
                self.unstable = self.unstable.saturating_sub(unstable.0);
                Service::stalled(
                    self.write_free.since(now) - commit + trip,
                    StallKind::Flush,
                    commit,
                )
            }
        }
    }
}
