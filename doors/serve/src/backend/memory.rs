//! Volumes that are kept in memory alone, and are gone with the server.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use os::OwnPaths;
use tidegate::{Cache, InMemory};

use super::{Backend, BackendError, Closer, Layers, volume_options};
use crate::config::VolumeConfig;
use crate::opened::{Extents, Opened};
use crate::pool::{Pool, THREADS};

pub(super) fn open(
    config: &VolumeConfig,
    size: u64,
    cache: &Cache,
) -> Result<Backend, BackendError> {
    let pool = Pool::new(&config.name, THREADS).map_err(tidegate::Error::from)?;
    let memory = Arc::new(InMemory::new());
    let volume = cache.attach_in_memory(volume_options(config), Arc::clone(&memory), size)?;
    let has = AtomicU64::new(size);
    let opened = Opened {
        volume,
        pool,
        extents: Some(Arc::new(Holes(memory))),
        can_punch: !config.read_only,
        can_trim: !config.read_only,
        lost: None,
        space: None,
        grow: Some(Box::new(move |wanted| {
            let wanted = wanted.unwrap_or(0);
            Ok(has.fetch_max(wanted, Ordering::Relaxed).max(wanted))
        })),
        keep: Box::new(()),
    };
    Ok(Backend {
        made: OwnPaths::default(),
        opened,
        layers: Arc::new(Layers(None)),
        direct: true,
        marker: None,
        closer: Closer(Box::new(|| ())),
    })
}

/// Blocks that nobody has written are holes.
struct Holes(Arc<InMemory>);

impl Extents for Holes {
    fn next(&self, offset: u64, len: u64) -> io::Result<(u64, bool)> {
        Ok(self.0.extent(offset, len))
    }
}
