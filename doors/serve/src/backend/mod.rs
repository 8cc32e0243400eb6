//! Backends: a volume's words into a device of its own in the cache.
//!
//! ```text
//!   File, New, Embedded ── lock ── FileDevice (O_DIRECT) ──┐
//!   Objects ────────────── lease ── Objects ───────────────┴── layers ── Cache::attach ── Opened
//!   mem: ─────────────────────────────────────────────────────── Cache::attach_in_memory ─────'
//! ```
//!
//! Invariants
//!   1. A backend that is open for writing is open in no other server: a file by flock(2), a block
//!      device by O_EXCL too, objects by their lease. QEMU's locks are respected and taken
//!      (`os::lock`); other locks are seen when it is opened.
//!   2. The size of a volume stays as it is when it is opened; a file neither grows nor shrinks.
//!   3. Files and folders that were made for a start or a reload that is refused are removed again.
//!   4. Each has a device and an engine of its own, so that one which hangs holds up nobody else.

pub(crate) mod error;
mod file;
mod marker;
mod memory;
mod objects;
mod space;

use std::path::Path;
use std::sync::Arc;

use device::Stack;
use env::{Device, Interrupt, ObjectId};
use os::{OwnPaths, ThreadEnv};
use policy::dirty::DeviceTunables;
use tidegate::{Backing, Cache, InMemory, VolumeOptions};

use crate::config::{BackendConfig, VolumeConfig};
use crate::may;
use crate::opened::{Extents, Grow, Lost, Opened, Space};
use crate::pool::{Pool, THREADS};

pub use error::BackendError;
pub use marker::Marker;

/// A backend that is open.
pub struct Backend {
    /// The files made for it; they are removed before the rest is dropped.
    pub made: OwnPaths,
    /// The volume, and what its backing can do.
    pub opened: Opened,
    /// The layers of its device.
    pub layers: Arc<Layers>,
    /// It bypasses the system's own page cache.
    pub direct: bool,
    /// Marks it as open; none: it cannot be marked.
    pub marker: Option<Marker>,
    /// Closes it, for a server that goes on without it.
    pub closer: Closer,
}

/// Lets go of what keeps a backing open: descriptors, leases. For after the volume is out of the
/// cache, or the cache has ended; dropped, it does nothing.
pub struct Closer(Box<dyn FnOnce() + Send>);

/// The layers around a device, outermost first; released when the last holder is dropped.
pub struct Layers(Option<Stack>);

/// A device before it has a place in the cache.
struct Raw {
    /// Goes first: nobody else may have the file yet.
    made: OwnPaths,
    device: Arc<dyn Device>,
    object: ObjectId,
    size: u64,
    extents: Option<Arc<dyn Extents>>,
    can_punch: bool,
    can_trim: bool,
    lost: Option<Lost>,
    space: Option<Space>,
    grow: Option<Grow>,
    direct: bool,
    marker: Option<Marker>,
    /// The lock of the device, which lives as long as it.
    keep: Box<dyn Send + Sync>,
    closer: Closer,
}

/// Checks that a volume's backend could be opened, as far as that shows: the first step of opening
/// it. Nothing is opened, made or locked.
///
/// # Errors
/// As `open`, but for a file that is in use and an object store that refuses.
pub fn look(config: &VolumeConfig) -> Result<(), BackendError> {
    match &config.backend {
        BackendConfig::Objects { url, size, .. } => {
            let Some(path) = url.strip_prefix("dir:").map(Path::new) else {
                return Ok(());
            };
            // A volume that is written has a lock in its folder.
            let name = path.join("lock");
            let looked = match (config.read_only, size) {
                (true, _) => may::open(path, false),
                (false, None) => may::make(&name),
                (false, Some(_)) => may::make_with_folders(&name),
            };
            let doing = "keep a volume in the folder";
            looked.map_err(|cause| file::system(path, doing, cause))
        }
        BackendConfig::File { .. } | BackendConfig::New { .. } | BackendConfig::Embedded { .. } => {
            file::look(config)
        }
        BackendConfig::Memory { .. } => Ok(()),
    }
}

/// Opens a volume's backend and attaches it to the cache.
///
/// # Errors
/// `BackendError`: it is missing, in use, too short, no file. Each names the path, the value and
/// the way out.
pub fn open(config: &VolumeConfig, cache: &Cache) -> Result<Backend, BackendError> {
    if let BackendConfig::Memory { size } = config.backend {
        return memory::open(config, size, cache);
    }
    look(config)?;
    let options = volume_options(config);
    let pool = Pool::new(&config.name, THREADS).map_err(tidegate::Error::from)?;
    let mut rest = None;
    let volume = cache.attach(options, |env| {
        let raw = open_raw(config, env)?;
        let (device, layers) = dress(config, Arc::clone(&raw.device), env)?;
        let backing = Backing {
            device,
            object: raw.object,
            size: raw.size,
        };
        rest = Some((raw, Arc::new(layers)));
        Ok::<_, BackendError>(backing)
    })?;
    let (raw, layers) = rest.expect("attached with a backing");
    let opened = Opened {
        volume,
        extents: raw.extents,
        can_punch: raw.can_punch && !config.read_only,
        can_trim: raw.can_trim && !config.read_only,
        lost: raw.lost,
        space: raw.space,
        grow: raw.grow,
        keep: Box::new((raw.keep, Arc::clone(&layers))),
        pool,
    };
    Ok(Backend {
        made: raw.made,
        opened,
        layers,
        direct: raw.direct,
        marker: raw.marker,
        closer: raw.closer,
    })
}

/// The cache's options for a volume.
pub(crate) fn volume_options(config: &VolumeConfig) -> VolumeOptions {
    let default = VolumeOptions::default();
    VolumeOptions {
        on_error: config.on_error,
        tunables: DeviceTunables {
            min_ratio: config.share.least,
            max_ratio: config.share.most,
            ..default.tunables
        },
    }
}

/// Descriptors of a volume in a file: the file with its lock, the same for direct I/O, a ring with
/// what wakes it, and one that is opened for a moment.
pub(crate) const DESCRIPTORS: u64 = 6;

/// Descriptors that a volume's backend takes at most.
pub(crate) fn descriptors(config: &VolumeConfig) -> u64 {
    DESCRIPTORS + objects::descriptors(config)
}

/// The place of a volume's bytes, for people: of a file with the device below it.
pub(crate) fn whereabouts(config: &BackendConfig) -> String {
    match config {
        BackendConfig::File { path, .. }
        | BackendConfig::New { path, .. }
        | BackendConfig::Embedded { path, .. } => file::whereabouts(path),
        BackendConfig::Memory { .. } => "memory".to_owned(),
        BackendConfig::Objects { url, .. } => url.clone(),
    }
}

/// True if another process serves the volume's file for writing, or keeps others from it.
pub(crate) fn is_in_use(config: &VolumeConfig) -> bool {
    let reading = VolumeConfig {
        read_only: true,
        ..config.clone()
    };
    file::is_in_use(&reading)
}

/// Bytes that a volume's backend takes beside the cache.
pub(crate) fn memory(config: &VolumeConfig) -> u64 {
    if let BackendConfig::Memory { size } = config.backend {
        return InMemory::bytes(size);
    }
    objects::memory(config)
}

fn open_raw(config: &VolumeConfig, env: &Arc<ThreadEnv>) -> Result<Raw, BackendError> {
    match &config.backend {
        BackendConfig::Objects { .. } => objects::open(config, env),
        BackendConfig::File { .. } | BackendConfig::New { .. } | BackendConfig::Embedded { .. } => {
            file::open(config, env)
        }
        BackendConfig::Memory { .. } => unreachable!("it has no device"),
    }
}

/// Puts the layers of the configuration around a device.
fn dress(
    config: &VolumeConfig,
    device: Arc<dyn Device>,
    env: &Arc<ThreadEnv>,
) -> Result<(Arc<dyn Device>, Layers), BackendError> {
    if config.layers.is_empty() {
        return Ok((device, Layers(None)));
    }
    let stack = Stack::new(&config.layers, device, &env.host(), None)?;
    Ok((Arc::clone(&stack.device), Layers(Some(stack))))
}

impl Backend {
    /// Lets go of what was served to nobody, and of what was made for it. May wait for an object
    /// store.
    pub(crate) fn close(self) {
        drop(self.made);
        self.layers.release();
        // Nothing is in the cache of it that could fail.
        let _ = self.opened.volume.detach();
        drop(self.opened);
        self.closer.close();
    }
}

impl Closer {
    /// Does so; may wait for an object store.
    pub fn close(self) {
        (self.0)();
    }
}

impl Layers {
    /// Handles to the layers; `None`: there are none.
    #[must_use]
    pub fn stack(&self) -> Option<&Stack> {
        self.0.as_ref()
    }

    /// No layer holds a request back any more.
    pub fn release(&self) {
        if let Some(stack) = &self.0 {
            stack.cancel(&Interrupt::new());
        }
    }
}

#[cfg(test)]
mod tests;
