//! Simulated devices: what a disk, a stick, an SSD, a server make of a stream of requests.
//!
//! A model is a *mechanism* (one file each: how long does this piece take now?) inside a common
//! *engine* (`engine`: queue, order, splitting, content, completion). Data stands on a `Media`,
//! placed by a file system's `Layout`. All numbers are in `params`.
//!
//! ```text
//!   submit --> Layout: (object, page) -> blocks --> pieces of at most one request's size
//!          --> queue by class, then by block or by arrival --> Mechanism::serve -> time
//!          --> Host::at --> Media <-> Stamps --> complete
//! ```
//!
//! Invariants
//!   1. A request is completed exactly once, never from within `submit`, and after all its pieces.
//!   2. A request that a reader waits for goes before one that a sync waits for, before read-ahead,
//!      before writeback; but a write that has waited `write_expire` goes first.
//!   3. Content of a write is taken as it is submitted or as each piece ends, by chance: DMA may
//!      read memory late, and the task that writes pages that are under writeback must cope.
//!   4. Time is made of parameters and draws from the host's stream: nothing else.
//!
//! Source: experiments E (devices), A6 (scaling); each mechanism names its own.

use core::fmt;
use std::sync::Arc;

use env::Host;
use policy::units::{Bytes, Nanos, Pages};

use crate::content::Stamps;
use crate::fs::Layout;
use crate::media::{SharedMedia, VolatileCache};

mod buffer;
mod engine;
mod nfs;
mod null;
mod null_blk;
pub mod params;
mod sata;
mod ssd;
mod token_bucket;
mod turns;
mod usb;

pub use engine::{NoRate, Simulated, Stall, StallKind, Stats};
pub use params::{Field, ParamError, Unit};

/// A model in the list.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name in scenarios.
    pub name: &'static str,
    /// Its description, in a line.
    pub summary: &'static str,
    make: fn() -> Params,
}

impl Entry {
    /// Its parameters as the sources have them.
    #[must_use]
    pub fn params(&self) -> Params {
        (self.make)()
    }
}

const fn entry(name: &'static str, make: fn() -> Params, summary: &'static str) -> Entry {
    Entry {
        name,
        summary,
        make,
    }
}

/// All models.
#[rustfmt::skip]
pub const MODELS: [Entry; 10] = [
    entry("null", || Params::Null(params::Null::DEFAULT), "completes after a fixed time, at once by default"),
    entry("sata2010", || Params::Sata2010(params::Sata2010::DEFAULT), "7200 rpm SATA disk of 2010: seek, rotation, transfer, a write buffer"),
    entry("usb_stick", || Params::UsbStick(params::UsbStick::DEFAULT), "USB 2.0 stick of 2011: erase units, a few open at once"),
    entry("ssd", || Params::Ssd(params::Ssd::DEFAULT), "NVMe SSD of 2016: depth, IOPS, fast and slow cells, garbage collection"),
    entry("p0_ssd", || Params::Ssd(params::Ssd::P0), "p0's disk as a SATA SSD: 170 MB/s, nearly so at random; parameters of `ssd`"),
    entry("p0_ssd_buffered", || Params::Ssd(params::Ssd::P0_BUFFERED), "the same with a write buffer, so that writes end in lumps; parameters of `ssd`"),
    entry("p0_disk", || Params::Sata2010(params::Sata2010::P0), "p0's disk as one that seeks: 170 MB/s, 57 at random 1 MiB; parameters of `sata2010`"),
    entry("nfs", || Params::Nfs(params::Nfs::DEFAULT), "NFS server: WRITE round trips, unstable until COMMIT"),
    entry("token_bucket", || Params::TokenBucket(params::TokenBucket::DEFAULT), "a slow device of a given rate and latency"),
    entry("null_blk", || Params::NullBlk(params::NullBlk::DEFAULT), "Linux's null_blk with a bandwidth: whole requests out of a budget every 20 ms"),
];

/// There is no such model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownDevice {
    /// The name asked for.
    pub name: String,
}

impl fmt::Display for UnknownDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = MODELS.map(|entry| entry.name).join(", ");
        write!(f, "no device model `{}`; there are {known}", self.name)
    }
}

impl std::error::Error for UnknownDevice {}

/// The parameters of the model of that name, as the sources have them.
///
/// # Errors
/// There is none; the message lists those there are.
pub fn by_name(name: &str) -> Result<Params, UnknownDevice> {
    MODELS
        .iter()
        .find(|entry| entry.name == name)
        .map(Entry::params)
        .ok_or_else(|| UnknownDevice { name: name.into() })
}

/// The parameters of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Params {
    /// Only time, or none.
    Null(params::Null),
    /// Disk of 2010.
    Sata2010(params::Sata2010),
    /// Stick of 2011.
    UsbStick(params::UsbStick),
    /// SSD.
    Ssd(params::Ssd),
    /// Server.
    Nfs(params::Nfs),
    /// Rate and latency.
    TokenBucket(params::TokenBucket),
    /// Linux's null device with a bandwidth.
    NullBlk(params::NullBlk),
}

macro_rules! same {
    ($params:expr, $inner:ident => $answer:expr) => {
        match $params {
            Params::Null($inner) => Params::Null($answer),
            Params::Sata2010($inner) => Params::Sata2010($answer),
            Params::UsbStick($inner) => Params::UsbStick($answer),
            Params::Ssd($inner) => Params::Ssd($answer),
            Params::Nfs($inner) => Params::Nfs($answer),
            Params::TokenBucket($inner) => Params::TokenBucket($answer),
            Params::NullBlk($inner) => Params::NullBlk($answer),
        }
    };
}

macro_rules! each {
    ($params:expr, $inner:ident => $answer:expr) => {
        match $params {
            Params::Null($inner) => $answer,
            Params::Sata2010($inner) => $answer,
            Params::UsbStick($inner) => $answer,
            Params::Ssd($inner) => $answer,
            Params::Nfs($inner) => $answer,
            Params::TokenBucket($inner) => $answer,
            Params::NullBlk($inner) => $answer,
        }
    };
}

impl Params {
    /// Sets a parameter by name.
    ///
    /// # Errors
    /// There is none of that name, or the value is out of its range.
    pub fn set(&mut self, name: &str, value: u64) -> Result<(), ParamError> {
        each!(self, inner => inner.set(name, value))
    }

    /// Sets the rate of a model that has a single one (`Simulated::set_rate` changes it later).
    ///
    /// # Errors
    /// It has none, or the rate is out of its range.
    pub fn set_rate(&mut self, bytes_per_sec: u64) -> Result<(), ParamError> {
        self.set("rate_bytes_per_sec", bytes_per_sec)
    }

    /// Descriptions of the parameters.
    #[must_use]
    pub fn fields(&self) -> &'static [Field] {
        each!(self, inner => inner.fields())
    }

    /// Values in the order of `fields`.
    #[must_use]
    pub fn values(&self) -> Vec<u64> {
        each!(self, inner => inner.values())
    }

    /// The same device on a machine smaller by `shrink` (experiments A6).
    ///
    /// # Panics
    /// If `shrink` is zero.
    #[must_use]
    pub fn scaled(&self, shrink: u64) -> Self {
        same!(self, inner => inner.scaled_by(Unit::scaled, shrink))
    }

    /// The same on a machine smaller by `shrink` whose requests shrink with it (`params`, third
    /// way).
    ///
    /// # Panics
    /// If `shrink` is zero.
    #[must_use]
    pub fn scaled_with_requests(&self, shrink: u64) -> Self {
        same!(self, inner => inner.scaled_by(Unit::scaled_with_requests, shrink))
    }

    /// The same on a machine smaller by `shrink` whose requests keep their size (`params`, second
    /// way).
    ///
    /// # Panics
    /// If `shrink` is zero.
    #[must_use]
    pub fn scaled_whole(&self, shrink: u64) -> Self {
        same!(self, inner => inner.scaled_by(Unit::scaled_whole, shrink))
    }

    /// The volatile cache that media under this device should have.
    #[must_use]
    pub fn volatile_cache(&self) -> VolatileCache {
        let bytes = match self {
            Self::Null(inner) => inner.volatile_cache_bytes,
            Self::Sata2010(inner) => inner.volatile_cache_bytes,
            Self::UsbStick(inner) => inner.volatile_cache_bytes,
            Self::Ssd(inner) => inner.volatile_cache_bytes,
            // The bytes that the server has taken and not committed.
            Self::Nfs(inner) => inner.server_burst_bytes,
            Self::TokenBucket(inner) => inner.volatile_cache_bytes,
            Self::NullBlk(inner) => inner.volatile_cache_bytes,
        };
        match Bytes(bytes).pages_floor() {
            Pages::ZERO => VolatileCache::Off,
            pages => VolatileCache::Pages(pages),
        }
    }

    /// Pages that a file system's layout has room for.
    #[must_use]
    pub fn span(&self) -> Pages {
        let bytes = match self {
            Self::Sata2010(inner) => inner.span_bytes,
            Self::UsbStick(inner) => inner.span_bytes,
            Self::Null(_)
            | Self::Ssd(_)
            | Self::Nfs(_)
            | Self::TokenBucket(_)
            | Self::NullBlk(_) => 1 << 50,
        };
        Bytes(bytes).pages_floor()
    }

    fn mechanism(&self) -> Box<dyn engine::Mechanism> {
        match self {
            Self::Null(inner) => Box::new(null::Null::new(inner)),
            Self::Sata2010(inner) => Box::new(sata::Disk::new(inner)),
            Self::UsbStick(inner) => Box::new(usb::Stick::new(inner)),
            Self::Ssd(inner) => Box::new(ssd::Ssd::new(inner)),
            Self::Nfs(inner) => Box::new(nfs::Server::new(inner)),
            Self::TokenBucket(inner) => Box::new(token_bucket::TokenBucket::new(inner)),
            Self::NullBlk(inner) => Box::new(null_blk::NullBlk::new(inner)),
        }
    }
}

/// The surroundings of a device.
pub struct Surroundings {
    /// Time, timers, chance; a host of its own (`LabEnv::host`).
    pub host: Arc<dyn Host>,
    /// The contents of the frames (`LabEnv::stamps`).
    pub stamps: Arc<Stamps>,
    /// Its content; made with `Params::volatile_cache`.
    pub media: SharedMedia,
    /// The layout of files on it (`fs::Model::layout`).
    pub layout: Layout,
    /// Content must not change while a write is under way (`DeviceInfo::stable_writes`).
    pub stable_writes: bool,
}

/// Builds a device.
#[must_use]
pub fn build(params: &Params, surroundings: Surroundings) -> Simulated {
    Simulated::new(params.mechanism(), surroundings)
}

/// Time that `bytes` take at `rate` bytes a second, rounded up.
fn transfer(bytes: Bytes, rate: u64) -> Nanos {
    let nanos = (u128::from(bytes.0) * 1_000_000_000).div_ceil(u128::from(rate.max(1)));
    Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
