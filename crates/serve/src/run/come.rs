//! Volumes that come while the server goes on: each is opened on a task of its own, as one may take for ever.
//!
//! ```text
//!   wanted ──what is in its way has left──> coming ──opened──> served, as the file has it by then
//!     ^                                       └── refused: said, or wanted again while others leave
//!     └── refused, but the file names it differently by then
//! ```

use tidegate::CacheError;
use tokio::task::JoinError;

use super::reload::{Wanted, apart};
use super::{ServeError, Server, start};
use crate::backend::{Backend, BackendError};
use crate::config::{VolumeConfig, show_size};
use crate::log::{error, info, warn};

/// A volume that is being opened.
pub(super) struct Coming {
    pub(super) config: VolumeConfig,
    /// What the file says of it by now; none: it is not to be there any more.
    pub(super) wanted: Option<VolumeConfig>,
}

/// How opening the volume of that name has ended.
pub(super) type Opened = (String, Result<(VolumeConfig, Backend), ServeError>);

impl Server {
    /// Begins to open what is wanted, but for what has one that is being taken out in its way.
    pub(super) fn add(&mut self) {
        for Wanted { config, .. } in core::mem::take(&mut self.wanted) {
            let in_its_way = self.volumes.iter().find(|served| {
                let places = (apart(&served.config.backend).0, apart(&config.backend).0);
                served.is_leaving && (served.config.name == config.name || places.0 == places.1)
            });
            if let Some(served) = in_its_way {
                let cause = format!("volume `{}` is being taken out", served.config.name);
                self.wanted.push(Wanted { config, cause });
                continue;
            }
            match self.fit(Some(&config)) {
                Ok(()) => {}
                // They may be what it has no room for.
                Err(cause) if !self.leaving.is_empty() => {
                    self.wanted.push(Wanted { config, cause });
                    continue;
                }
                Err(cause) => {
                    error!(
                        volume = %config.name, cause = %cause,
                        help = "restart with more `memory`, or let its backend keep less",
                        "not added: it takes {} of the memory limit beside the cache",
                        show_size(start::of_volume(&config))
                    );
                    continue;
                }
            }
            let (name, cache) = (config.name.clone(), self.cache.clone());
            self.coming.push(Coming {
                wanted: Some(config.clone()),
                config: config.clone(),
            });
            self.opening
                .spawn(async { (name, start::open(config, cache).await) });
        }
    }

    /// Bytes that the volumes, and those that come, take beside the cache over what was put aside for them.
    pub(super) fn over(&self, one_more: Option<&VolumeConfig>) -> u64 {
        let served = self.volumes.iter().map(|served| &served.config);
        let coming = self.coming.iter().map(|coming| &coming.config);
        let taken: u64 = served
            .chain(coming)
            .chain(one_more)
            .map(start::of_volume)
            .sum();
        taken.saturating_sub(self.put_aside)
    }

    /// Has the cache take what the volumes leave of the memory limit, and one more that is to come.
    ///
    /// # Errors
    /// It needs more; it stays as it was.
    pub(super) fn fit(&self, one_more: Option<&VolumeConfig>) -> Result<(), String> {
        let (memory, stats) = (self.config.memory, self.cache.stats());
        let now = self.over(one_more);
        let more = now - self.over(None);
        let room = (stats.free + stats.cached).saturating_sub(more);
        if more > 0 {
            let fits = start::dirty_fits(&self.config, memory, room);
            fits.map_err(|cause| cause.to_string())?;
        }
        let changed = self.cache.set_limit_and_beside(memory, self.beside + now);
        changed.map_err(|cause| match cause {
            tidegate::Error::LimitTooSmall { least, .. } => {
                let (memory, least) = (show_size(memory), show_size(least));
                format!("`memory` is {memory}, {least} are needed")
            }
            cause => cause.to_string(),
        })
    }

    /// The cache gets back what a volume took that is gone.
    pub(super) fn grow(&self) {
        if let Err(cause) = self.fit(None) {
            warn!(cause = %cause, "the cache stays smaller than it could be");
        }
    }

    /// A volume was opened, or was refused. What fails while volumes are being taken out stays wanted: they may be what it
    /// fails for.
    pub(super) fn has_come(&mut self, opened: Result<Opened, JoinError>) {
        let (name, opened) =
            opened.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        let is_it = |coming: &Coming| coming.config.name == name;
        let at = self.coming.iter().position(is_it);
        let Coming { config, wanted } = self.coming.remove(at.expect("it was being opened"));
        let again = wanted.clone().filter(|wanted| *wanted != config);
        if opened.is_err() {
            self.grow();
        }
        match opened {
            Ok((config, backend)) => {
                let mut served =
                    start::offer(&self.config, config, backend, &self.cache, &self.hub);
                let size = show_size(served.export.size());
                info!(volume = %name, size = %size, "added");
                if let Some(wanted) = &again {
                    served.change(wanted);
                }
                self.volumes.push(served);
                if wanted.is_none() {
                    self.take_out(&name);
                }
            }
            Err(_) if let Some(config) = again => {
                let cause = String::new();
                self.wanted.push(Wanted { config, cause });
                self.add();
            }
            Err(cause) if wanted.is_some() && !self.leaving.is_empty() => {
                let cause = cause.to_string();
                self.wanted.push(Wanted { config, cause });
            }
            Err(ServeError::Volume {
                cause:
                    BackendError::Cache(tidegate::Error::Cache(CacheError::TooMany { limit, .. })),
                name,
            }) => error!(
                volume = %name,
                help = "take another one out of the file first, or restart",
                "not added: there is room for {limit} volumes at one time, {} more than the server was started with",
                start::ROOM
            ),
            Err(cause) => error!(cause = %cause, "not added"),
        }
    }
}
