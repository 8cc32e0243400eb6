//! The changes while a server runs: it reads its configuration again and says what it did, and what
//! needs a restart.
//!
//! | changes | needs a restart |
//! |---|---|
//! | volumes that come or go (with clients: only with `take_out`) | where a volume is kept that stays, whether it is read-only, its layers |
//! | a volume's `on_error`, its share of the dirty limit, and, for new connections, a larger size and what clients are told of it | |
//! | the memory limit, up to that of the start | limits of dirty data |
//! | bounds on clients and certificates, for new connections; the clients of a volume, and certificates that were revoked | where connections are taken, the page, whether there is TLS |
//! | pacing, the log's level | |
//!
//! A volume that goes does so beside all the rest (`detach.rs`), and so does a volume that comes
//! (`attach.rs`): a reload waits for them a moment, and then says that they go on.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::start::{self, same_mode, same_places};
use super::{Served, Server};
use crate::backend;
use crate::config::{
    BackendConfig, Config, ConfigError, LimitsConfig, VolumeConfig, show_exactly, show_size,
};
use crate::export::Export;
use crate::log::{self, error, info, warn};

/// Time that a reload waits for volumes that go and come.
const SEE_THROUGH_MAX: Duration = Duration::from_secs(3);

/// A volume that the file names and that is not there yet.
pub(super) struct Wanted {
    pub(super) config: VolumeConfig,
    /// Why not, as far as that is known.
    pub(super) cause: String,
}

impl Wanted {
    pub(super) fn new(config: VolumeConfig) -> Self {
        let cause = String::new();
        Self { config, cause }
    }
}

impl Server {
    /// Reads the configuration again and follows it as far as that goes.
    pub(super) async fn reload(&mut self) {
        let asked = self.config.asked.clone();
        let read = crate::aside::run(move || asked.config()).await;
        let new = match read {
            Ok(Ok(new)) => new,
            Ok(Err(ConfigError::Mistakes(mistakes))) => {
                for (at, mistake) in mistakes.places() {
                    let help = mistake.help.as_deref();
                    error!(at = %at, why = %mistake.label, help, "{}", mistake.title);
                }
                error!("nothing was reloaded: the configuration has mistakes; serving as before");
                return;
            }
            Ok(Err(cause)) => {
                error!(cause = %cause, "nothing was reloaded: there is no configuration; serving as before");
                return;
            }
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        };
        if let Some(cause) = self.empties(&new) {
            error!(
                cause,
                help = "write take_out_all = true into the file if that is meant",
                "nothing was reloaded: every volume that is served would be taken out; serving as before"
            );
            return;
        }
        if let Some((name, clients)) = self.cuts_off(&new) {
            error!(
                volume = %name, clients,
                cause = "the file does not name it: perhaps it is being written just now",
                help = "write take_out = true into its table if that is meant",
                "nothing was reloaded: a volume that has clients would be taken out; serving as before"
            );
            return;
        }
        self.settings(&new);
        // A limit that nobody named follows the group by itself.
        if new.memory_given || (new.memory_of.is_none() && self.config.memory_of.is_none()) {
            self.memory = new.memory;
        }
        let is_lower = self.memory < self.config.memory;
        if !is_lower {
            self.limit(true);
        }
        if new.asked.file.is_none() {
            // The volumes are those of the start, and their backings may have grown.
            self.volumes(&new).await;
            info!(
                help = "start with --config FILE.toml to have one",
                "sizes of backings and certificates were read again: there is no file"
            );
            return;
        }
        self.bound_clients(&new);
        self.volumes(&new).await;
        if is_lower {
            self.limit(true);
        }
        info!("reloaded: {}", self.status());
    }

    /// Why a configuration is not followed that keeps no volume of those that are served.
    fn empties(&self, new: &Config) -> Option<&'static str> {
        let stays = |volume: &Served| {
            let name = &volume.config.name;
            new.volumes.iter().any(|other| other.name == *name)
        };
        let mut served = self.volumes.iter().filter(|volume| !volume.is_leaving);
        let keeps_none = served.clone().next().is_some() && !served.any(stays);
        if new.take_out_all || !keeps_none {
            return None;
        }
        Some(match new.volumes.is_empty() {
            true => "it names no volume: perhaps it is being written just now",
            false => "it names other volumes only",
        })
    }

    /// A volume with clients that is missing in a configuration, without a word, and how many.
    fn cuts_off(&self, new: &Config) -> Option<(&str, u64)> {
        let mut served = self.volumes.iter().filter(|volume| !volume.is_leaving);
        served.find_map(|volume| {
            let name = &volume.config.name;
            let is_named = new.take_out_all
                || new.take_out.contains(name)
                || new.volumes.iter().any(|other| other.name == *name);
            let clients = volume.export.counters.connections.load(Ordering::Relaxed);
            (!is_named && clients > 0).then_some((name.as_str(), clients))
        })
    }

    /// Follows the memory limit of the file. A lower one is for when volumes have gone, a higher
    /// one for before others come. The reason for a refusal may pass: it is then tried again, and
    /// said at the first time.
    pub(super) fn limit(&mut self, is_first: bool) {
        let (old, wanted) = (self.config.memory, self.memory);
        if wanted == old {
            return;
        }
        let stats = self.cache.stats();
        // Limits of dirty data stay those of the start.
        let room = (stats.free + stats.cached).saturating_sub(old.saturating_sub(wanted));
        let fits = match wanted < old {
            true => start::dirty_fits(&self.config, wanted, room),
            false => Ok(()),
        };
        let mut may_pass = self.going().next().is_some();
        let changed = fits.map_err(|cause| cause.to_string()).and_then(|()| {
            let changed = self.cache.set_limit(wanted);
            changed.map_err(|cause| {
                may_pass |= passes(&cause);
                no_limit(wanted, old, &cause)
            })
        });
        match changed {
            Ok(()) => {
                self.config.memory = wanted;
                let (from, to) = (show_size(old), show_size(wanted));
                info!(from = %from, to = %to, "the memory limit changes");
            }
            Err(cause) if may_pass => {
                if is_first {
                    let (old, wanted) = (show_size(old), show_size(wanted));
                    warn!(cause = %cause, "the memory limit stays at {old} for now: {wanted} are tried again by themselves");
                }
            }
            Err(cause) => {
                self.memory = old;
                error!(cause = %cause, "the memory limit stays at {}", show_size(old));
            }
        }
    }

    /// New connections are as many as the file allows and as descriptors are left beside volumes:
    /// those that come may need more than was put aside.
    fn bound_clients(&self, new: &Config) {
        let served = self.volumes.iter().map(|served| &served.config);
        let coming = self.coming.iter().map(|coming| &coming.config);
        let goes = |old: &&VolumeConfig| new.volumes.iter().all(|other| other != *old);
        let old = served.chain(coming).filter(goes);
        let volumes: u64 = old.chain(&new.volumes).map(backend::descriptors).sum();
        let limits = in_force(&self.config.limits, self.connections_max);
        let volumes = volumes.max(self.descriptors);
        let room = crate::limits::lift_descriptors(u64::from(limits.connections), volumes);
        let in_flight_more = self.hub.limits().in_flight_more;
        let limits = start::limits_of(&limits, room, in_flight_more);
        self.hub.set_limits(limits);
    }

    fn settings(&mut self, new: &Config) {
        let old = &mut self.config;
        if (old.log, old.log_format) != (new.log, new.log_format) {
            let tell = |old: &Config| {
                let (from, to) = (old.log.name(), new.log.name());
                info!(from, to, "the log's level changes");
            };
            // Told at the level that shows more: by one of them it is not told at all.
            if old.log > new.log {
                tell(old);
            }
            log::start(new.log_format, new.log);
            if old.log < new.log {
                tell(old);
            }
            if old.log_format != new.log_format {
                needs_restart("log_format");
            }
            old.log = new.log;
        }
        let most = self.connections_max;
        let mut limits = new.limits;
        if !new.connections_given && !old.connections_given {
            // A limit of none follows the memory limit of the start: nobody asked for another
            // number.
            limits.connections = old.limits.connections;
        }
        let is_above = limits.connections > most && limits.connections != old.limits.connections;
        if is_above {
            // Memory for them was put aside at the start.
            if new.connections_given {
                needs_restart("max_connections above that of the start");
            }
            limits.connections = most;
        }
        if in_force(&old.limits, most) != in_force(&limits, most) {
            info!("bounds on clients change, for new connections");
        }
        old.limits = limits;
        old.connections_given = new.connections_given;
        if old.paced != new.paced {
            for volume in &self.volumes {
                volume.export.set_paced(new.paced);
            }
            info!(paced = new.paced, "pacing changes");
            old.paced = new.paced;
        }
        if old.tls.is_some() && new.tls.is_some() {
            // The same files may hold new certificates.
            match start::security(new) {
                Ok(security) => {
                    self.hub.set_security(security);
                    old.tls.clone_from(&new.tls);
                    info!("certificates were read again, for new connections");
                }
                Err(cause) => error!(cause = %cause, "the certificates stay as they are"),
            }
        }
        for (name, is_same) in [
            ("dirty", old.dirty == new.dirty),
            ("background", old.background == new.background),
            ("listen", same_places(&old.listen, &new.listen)),
            ("socket_mode", same_mode(&old.listen, &new.listen)),
            ("web", old.web == new.web),
            ("[tls]", old.tls.is_some() == new.tls.is_some()),
            ("control", old.control == new.control),
            ("end_idle", old.end_idle == new.end_idle),
            ("io_uring", old.io_uring == new.io_uring),
            ("nodes", old.nodes == new.nodes),
            ("page_rule", old.page_rule == new.page_rule),
            ("record", old.record == new.record),
        ] {
            if !is_same {
                needs_restart(name);
            }
        }
    }

    pub(super) async fn volumes(&mut self, new: &Config) {
        let gone = |volume: &Served| {
            let name = &volume.config.name;
            new.volumes.iter().all(|other| other.name != *name)
        };
        let go: Vec<String> = self
            .volumes
            .iter()
            .filter(|volume| gone(volume))
            .map(|volume| volume.config.name.clone())
            .collect();
        for name in go {
            self.take_out(&name);
        }
        self.wanted.clear();
        for coming in &mut self.coming {
            coming.wanted = None;
        }
        for volume in &new.volumes {
            let mut coming = self.coming.iter_mut();
            if let Some(coming) = coming.find(|coming| coming.config.name == volume.name) {
                coming.wanted = Some(volume.clone());
                continue;
            }
            let stays = |old: &Served| old.config.name == volume.name && !old.is_leaving;
            match self.volumes.iter().position(stays) {
                Some(at) if self.volumes[at].config == *volume => self.volumes[at].follow(),
                Some(at) => self.change(at, volume.clone()),
                None => self.wanted.push(Wanted::new(volume.clone())),
            }
        }
        self.hub.rights_changed();
        self.add();
        self.see_through().await;
        self.name_those_that_leave();
        for wanted in &self.wanted {
            warn!(
                volume = %wanted.config.name, cause = %wanted.cause,
                "not added yet: it is tried again by itself"
            );
        }
    }

    /// Has a volume follow a new version of its configuration. One that is kept in memory grows if
    /// the cache can give way.
    fn change(&mut self, at: usize, mut new: VolumeConfig) {
        let old = &mut self.volumes[at].config;
        let grows = apart(&old.backend).0 == apart(&new.backend).0
            && backend::memory(&new) > backend::memory(old);
        if grows {
            let before = core::mem::replace(&mut old.backend, new.backend.clone());
            let fits = self.fit(None);
            if let Err((cause, _)) = fits {
                error!(volume = %new.name, cause = %cause, "it did not grow");
                new.backend.clone_from(&before);
            }
            self.volumes[at].config.backend = before;
        }
        self.volumes[at].change(&new);
    }

    /// Waits a moment for the volumes that go, and for those that come.
    async fn see_through(&mut self) {
        let over = tokio::time::sleep(SEE_THROUGH_MAX);
        tokio::pin!(over);
        while !self.leaving.is_empty() || !self.opening.is_empty() {
            tokio::select! {
                Some(left) = self.leaving.join_next() => self.has_left(left),
                Some(opened) = self.opening.join_next() => self.has_come(opened),
                () = &mut over => return,
            }
        }
    }

    /// A volume that was to go stays: it follows what the file says of it since.
    pub(super) fn stays(&mut self, name: &str) {
        let is_it = |volume: &Served| volume.config.name == name;
        let Some(at) = self.volumes.iter().position(is_it) else {
            return;
        };
        self.volumes[at].is_leaving = false;
        let mut wanted = self.wanted.iter();
        if let Some(place) = wanted.position(|wanted| wanted.config.name == name) {
            let new = self.wanted.remove(place).config;
            self.change(at, new);
        }
    }
}

/// True if another division of the memory may be refused now and not in a while, whatever volumes
/// do: pages that clients read are unpinned, and there may be a thread again.
pub(super) fn passes(cause: &tidegate::Error) -> bool {
    use tidegate::{CacheError, Error};
    matches!(
        cause,
        Error::System(_) | Error::Cache(CacheError::PinnedAboveLimit { .. })
    )
}

/// Why the memory limit cannot be `wanted`, and the way out.
fn no_limit(wanted: u64, now: u64, cause: &tidegate::Error) -> String {
    match cause {
        tidegate::Error::LimitTooSmall { least, .. } => format!(
            "{} is too little for what the server was started with, at least {} is needed; give that, or restart with \
             the smaller one",
            show_size(wanted),
            show_size(least.next_multiple_of(1 << 20))
        ),
        tidegate::Error::BadSize { .. } if wanted > now => format!(
            "{} is more than the server was started with; restart for that",
            show_size(wanted)
        ),
        cause => cause.to_string(),
    }
}

/// Bounds as they hold where there is room for `most` connections.
fn in_force(limits: &LimitsConfig, most: u32) -> LimitsConfig {
    LimitsConfig {
        connections: limits.connections.min(most),
        ..*limits
    }
}

fn needs_restart(what: &str) {
    warn!("cannot change while the server runs: {what}; restart for that");
}

/// Has a volume grow, beside all the rest: its backing may not answer.
fn grow(export: &Arc<Export>, wanted: Option<u64>) {
    let export = Arc::clone(export);
    crate::aside::run(move || {
        let (volume, before) = (export.name(), export.size());
        match export.grow(wanted) {
            Ok(size) if size > before => {
                let (from, to) = (show_size(before), show_size(size));
                info!(volume = %volume, from = %from, to = %to, "it has grown, for new connections");
            }
            Ok(_) => {}
            Err(cause) if wanted.is_some() => {
                error!(volume = %volume, cause = %cause, "it did not grow");
            }
            // Nobody asked for it.
            Err(_) => {}
        }
    });
}

/// A file that was made for a volume has become larger than the size that it was given: said once
/// for each size that it has then.
fn say_what_is_not_served(export: &Arc<Export>, path: PathBuf, said: &Arc<AtomicU64>) {
    let (export, said) = (Arc::clone(export), Arc::clone(said));
    crate::aside::run(move || {
        let has = std::fs::metadata(&path).map_or(0, |found| found.len());
        let size = export.size();
        if said.swap(has, Ordering::Relaxed) != has && has > size {
            let (volume, has, size) = (export.name(), show_size(has), show_size(size));
            warn!(
                volume = %volume,
                file = %has,
                size = %size,
                help = "give it that size in the file of --config and reload; or start again with NAME=PATH, without new: and size=",
                "its file is larger than the size that it was given: it did not grow, and with new: the next start refuses it"
            );
        }
    });
}

impl Served {
    /// Its file or device may have grown.
    fn follow(&self) {
        use BackendConfig::{Embedded, File, Memory, New, Objects};
        match &self.config.backend {
            File { size: None, .. } | Embedded { .. } => grow(&self.export, None),
            New { path, .. } => {
                say_what_is_not_served(&self.export, path.clone(), &self.file_said);
            }
            // Of a file so much is served as was asked for.
            File { size: Some(_), .. } | Objects { .. } | Memory { .. } => {}
        }
    }

    /// Follows a new version of its configuration as far as that goes, and says what it did and
    /// what it did not.
    fn change(&mut self, new: &VolumeConfig) {
        let old = &mut self.config;
        let ((old_place, old_size), (place, size)) = (apart(&old.backend), apart(&new.backend));
        let grows = old_place == place
            && !matches!(place, BackendConfig::Objects { .. })
            && old_size.zip(size).is_some_and(|(old, new)| new > old);
        if grows {
            old.backend = new.backend.clone();
            grow(&self.export, size);
        }
        let fixed = differing([
            ("backend", old_place == place),
            ("size", grows || old_size == size),
            ("read_only", old.read_only == new.read_only),
            ("unlocked", old.unlocked == new.unlocked),
            ("device", old.layers == new.layers),
        ]);
        // Of a file that was made with it, a restart refuses another size.
        let made = matches!(place, BackendConfig::New { .. }) && old_place == place;
        let kept = old_size.filter(|old| made && size.is_some_and(|new| new < *old));
        let way_out = match kept.map(show_exactly) {
            Some(kept) => format!(
                "give it {kept} again: a volume does not shrink, and a restart refuses a file that has not the `size` of its `new:`"
            ),
            None => "restart, or take it out, reload, and put it in again".to_owned(),
        };
        if !fixed.is_empty() {
            warn!(volume = %new.name, "cannot change while it is served: {fixed}; {way_out}");
        }
        let treated = differing([
            ("on_error", old.on_error == new.on_error),
            ("dirty_min, dirty_max", old.share == new.share),
        ]);
        if !treated.is_empty() {
            let options = backend::volume_options(new);
            match self.export.opened.volume.set_options(options) {
                Ok(()) => {
                    self.export.set_patient(start::is_patient(new));
                    (old.on_error, old.share) = (new.on_error, new.share);
                    info!(volume = %new.name, "changed: {treated}");
                }
                Err(cause) => {
                    error!(volume = %new.name, cause = %cause, "stays as it was: {treated}")
                }
            }
        }
        if old.durable != new.durable {
            self.export.set_durable(new.durable);
            old.durable = new.durable;
            info!(volume = %new.name, durable = new.durable, "changed, for writes from now on");
        }
        if old.clients != new.clients {
            self.export.set_access(new.clients.clone());
            old.clients.clone_from(&new.clients);
            info!(volume = %new.name, "changed: clients; connections of those that it is not for any more end");
        }
        let told = differing([
            ("description", old.description == new.description),
            ("block_min, block_preferred", old.blocks == new.blocks),
        ]);
        if !told.is_empty() {
            self.export.set_about(start::about(new));
            old.description.clone_from(&new.description);
            old.blocks = new.blocks;
            info!(volume = %new.name, "changed, for new connections: {told}");
        }
    }
}

/// Where a volume is kept, and its size.
pub(super) fn apart(backend: &BackendConfig) -> (BackendConfig, Option<u64>) {
    let mut place = backend.clone();
    let size = match &mut place {
        BackendConfig::File { size, .. } | BackendConfig::Objects { size, .. } => size.take(),
        BackendConfig::New { size, .. }
        | BackendConfig::Embedded { size, .. }
        | BackendConfig::Memory { size } => Some(core::mem::take(size)),
    };
    (place, size)
}

/// The keys of those that are not the same.
fn differing<const N: usize>(keys: [(&'static str, bool); N]) -> String {
    let keys = keys.into_iter().filter(|(_, is_same)| !is_same);
    let keys: Vec<&str> = keys.map(|(key, _)| key).collect();
    keys.join(", ")
}
