//! Object stores.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ::objects::{Config, Objects, PARALLEL_USUAL};
use os::ThreadEnv;

use super::{BackendError, Closer, Raw};
use crate::config::{BackendConfig, VolumeConfig};
use crate::log::warn;
use crate::opened::{Extents, Loss};

/// In the environment, of credentials that end.
const TEMPORARY: &str = "AWS_SESSION_TOKEN";
/// Time that giving a lease back may take.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// Opens a volume of objects, and takes its lease.
pub(super) fn open(config: &VolumeConfig, env: &Arc<ThreadEnv>) -> Result<Raw, BackendError> {
    let (objects, made) = ::objects::open_to_be_kept(&settings(config), Arc::clone(env.arena()))?;
    if let BackendConfig::Objects { url, .. } = &config.backend
        && url.starts_with("s3://")
        && std::env::var_os(TEMPORARY).is_some()
    {
        warn!(
            volume = %config.name,
            help = "give it a role of its machine or container, which it renews, AWS_SHARED_CREDENTIALS_FILE, which it reads again, or keys that last",
            "{TEMPORARY} is set: these credentials end, the environment of a process cannot change, and then writes fail"
        );
    }
    let damaged: Vec<_> = objects.damaged().collect();
    if let Some((name, bytes)) = damaged.first() {
        let (objects, wanted) = (damaged.len(), objects.object_size());
        warn!(
            volume = %config.name, objects, first = %name, bytes, wanted,
            "read but for what is in objects of a wrong length"
        );
    }
    Ok(Raw {
        made,
        device: Arc::<Objects>::clone(&objects),
        object: Objects::OBJECT,
        size: objects.size(),
        extents: Some(Arc::new(ObjectExtents(Arc::clone(&objects)))),
        can_punch: true,
        can_trim: true,
        lost: Some(Box::new({
            let objects = Arc::clone(&objects);
            move || {
                let why = objects.failure()?;
                Some(Loss {
                    why,
                    goes_with_us: false,
                })
            }
        })),
        space: None,
        grow: None,
        direct: true,
        marker: None,
        closer: Closer(Box::new({
            let objects = Arc::clone(&objects);
            move || objects.close(CLOSE_MAX)
        })),
        keep: Box::new(objects),
    })
}

/// Bytes that it takes beside the cache; nothing for other backends.
pub(super) fn memory(config: &VolumeConfig) -> u64 {
    match &config.backend {
        BackendConfig::Objects { url, size, .. } => {
            // A volume kept in memory is memory too.
            let kept = size.filter(|_| url.starts_with("mem:")).unwrap_or(0);
            ::objects::memory(&settings(config)) + kept
        }
        _ => 0,
    }
}

/// Descriptors that it takes beside those of every volume: of each request under way a connection
/// or a file and its folder, the runtime's, and those it keeps; nothing for other backends.
pub(super) fn descriptors(config: &VolumeConfig) -> u64 {
    match &config.backend {
        BackendConfig::Objects { parallel, .. } => {
            4 * u64::from(parallel.unwrap_or(PARALLEL_USUAL)) + 11
        }
        _ => 0,
    }
}

fn settings(config: &VolumeConfig) -> Config {
    let mut settings = Config::new("");
    if let BackendConfig::Objects {
        url,
        size,
        object_size,
        parallel,
        force,
    } = &config.backend
    {
        settings.url.clone_from(url);
        settings.size = *size;
        settings.object_size = *object_size;
        settings.parallel = *parallel;
        settings.force = *force;
    }
    settings.read_only = config.read_only;
    settings
}

/// Objects that nobody has written are holes.
struct ObjectExtents(Arc<Objects>);

impl Extents for ObjectExtents {
    fn next(&self, offset: u64, len: u64) -> io::Result<(u64, bool)> {
        Ok(self.0.extents(offset, len))
    }
}
