//! Volumes that come while the server goes on: each is opened on a task of its own, as one may take
//! for ever.
//!
//! ```text
//!   wanted ──nothing that goes is in its way──> coming ──opened, as the file has it by then──> served
//!     ^                                           ├── opened, but the file says otherwise by then ──> closed, unserved
//!     ^                                           │                                                      │
//!     └── what the file has of it by then ────────┴── refused: said, or wanted again if what goes may ───┘
//!                                                     have been in its way
//! ```
//!
//! *Going* is a volume that is being taken out, or a volume that comes and is not wanted as it
//! comes.

use tidegate::CacheError;
use tokio::task::JoinError;

use super::reload::{Wanted, apart, passes};
use super::{ServeError, Server, start};
use crate::backend::{Backend, BackendError};
use crate::config::{VolumeConfig, show_size};
use crate::log::{error, info, warn};

/// A volume that is being opened.
pub(super) struct Coming {
    pub(super) config: VolumeConfig,
    /// The file's configuration of it by now; none: it is not to be there any more.
    pub(super) wanted: Option<VolumeConfig>,
    /// Number of volumes that had gone when it began.
    gone: u64,
}

impl Coming {
    /// It is not served when it is open.
    fn goes(&self) -> bool {
        self.wanted.as_ref() != Some(&self.config)
    }
}

/// The result of opening the volume of that name; none: it is closed again, unserved.
pub(super) type Opened = (String, Result<Option<(VolumeConfig, Backend)>, ServeError>);

impl Server {
    /// Begins to open the wanted volumes, except where a volume on its way out still has the place.
    pub(super) fn add(&mut self) {
        for Wanted { config, .. } in core::mem::take(&mut self.wanted) {
            let place = |config: &VolumeConfig| apart(&config.backend).0;
            let in_its_way = self
                .going()
                .find(|going| going.name == config.name || place(going) == place(&config));
            if let Some(going) = in_its_way {
                let cause = format!("volume `{}` is being taken out", going.name);
                self.wanted.push(Wanted { config, cause });
                continue;
            }
            match self.fit(Some(&config)) {
                Ok(()) => {}
                // There may be no room because of volumes on their way out.
                Err((cause, passes)) if passes || self.going().next().is_some() => {
                    self.wanted.push(Wanted { config, cause });
                    continue;
                }
                Err((cause, _)) => {
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
                gone: self.gone,
            });
            self.opening
                .spawn(async { (name, start::open(config, cache).await.map(Some)) });
        }
    }

    /// Volumes that have places and memory, and leave them.
    pub(super) fn going(&self) -> impl Iterator<Item = &VolumeConfig> {
        let served = self.volumes.iter().filter(|served| served.is_leaving);
        let coming = self.coming.iter().filter(|coming| coming.goes());
        let served = served.map(|served| &served.config);
        served.chain(coming.map(|coming| &coming.config))
    }

    /// A volume has gone: what it took is there for others.
    pub(super) fn has_gone(&mut self) {
        self.gone += 1;
        self.again();
    }

    /// True if something waits for an obstacle that passes without a volume that goes.
    pub(super) fn waits(&self) -> bool {
        let waits = !self.wanted.is_empty() || self.memory != self.config.memory;
        waits && self.going().next().is_none()
    }

    /// Does what had no room so far, if it has it now.
    pub(super) fn again(&mut self) {
        self.grow();
        self.limit(false);
        self.add();
    }

    /// Bytes that open and opening volumes need outside the cache, beyond those reserved at the
    /// start.
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
    /// It needs more, or it has no room now (true); it stays as it was.
    pub(super) fn fit(&self, one_more: Option<&VolumeConfig>) -> Result<(), (String, bool)> {
        let (memory, stats) = (self.config.memory, self.cache.stats());
        let now = self.over(one_more);
        let more = now - self.over(None);
        let room = (stats.free + stats.cached).saturating_sub(more);
        if more > 0 {
            let fits = start::dirty_fits(&self.config, memory, room);
            fits.map_err(|cause| (cause.to_string(), false))?;
        }
        if stats.beside == self.beside + now {
            return Ok(());
        }
        let changed = self.cache.set_beside(self.beside + now);
        changed.map_err(|cause| match cause {
            tidegate::Error::LimitTooSmall { least, .. } => {
                let (memory, least) = (show_size(memory), show_size(least));
                (format!("`memory` is {memory}, {least} are needed"), false)
            }
            cause => (cause.to_string(), passes(&cause)),
        })
    }

    /// The cache gets back what a volume took that is gone.
    fn grow(&self) {
        if let Err((cause, _)) = self.fit(None) {
            warn!(cause = %cause, "the cache stays smaller than it could be");
        }
    }

    /// A volume was opened, or was refused. A volume that fails while others go stays wanted: they
    /// may be the cause.
    pub(super) fn has_come(&mut self, opened: Result<Opened, JoinError>) {
        let (name, opened) =
            opened.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        let is_it = |coming: &Coming| coming.config.name == name;
        let at = self.coming.iter().position(is_it);
        let at = at.expect("it was being opened");
        let goes = self.coming[at].goes();
        let opened = match opened {
            Ok(Some((_, backend))) if goes => {
                // It has its place until it is closed.
                self.opening.spawn(async {
                    close(backend).await;
                    (name, Ok(None))
                });
                return;
            }
            opened => opened,
        };
        let Coming { wanted, gone, .. } = self.coming.remove(at);
        let cause = match opened {
            Ok(Some((config, backend))) => {
                let served = start::offer(&self.config, config, backend, &self.cache, &self.hub);
                let size = show_size(served.export.size());
                info!(volume = %name, size = %size, "added");
                self.volumes.push(served);
                return;
            }
            Err(cause) if !goes => cause,
            // The volume as the file has it by now.
            Ok(None) | Err(_) => {
                self.wanted.extend(wanted.map(Wanted::new));
                self.has_gone();
                return;
            }
        };
        self.grow();
        let may_fit = gone != self.gone;
        if may_fit || self.going().next().is_some() {
            let cause = cause.to_string();
            let wanted = wanted.map(|config| Wanted { config, cause });
            self.wanted.extend(wanted);
            if may_fit {
                self.add();
            }
            return;
        }
        match cause {
            ServeError::Volume {
                cause:
                    BackendError::Cache(tidegate::Error::Cache(CacheError::TooMany { limit, .. })),
                name,
            } => error!(
                volume = %name,
                help = "take another one out of the file first, or restart",
                "not added: there is room for {limit} volumes at one time, {} more than the server was started with",
                start::ROOM
            ),
            cause => error!(cause = %cause, "not added"),
        }
    }
}

/// Closes what nobody was offered.
pub(super) async fn close(backend: Backend) {
    if let Err(panic) = crate::aside::run(move || backend.close()).await {
        std::panic::resume_unwind(panic.into_panic());
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use tokio::runtime::Runtime;

    use super::*;
    use crate::config::Asked;

    /// A server whose events are taken by hand, in a folder of its own.
    pub(crate) struct Rig {
        pub(crate) server: Server,
        pub(crate) runtime: Runtime,
        pub(crate) folder: Folder,
    }

    pub(crate) struct Folder(pub(crate) PathBuf);

    impl Rig {
        pub(crate) fn new(name: &str) -> Self {
            let id = std::process::id();
            let folder = std::env::temp_dir().join(format!("tidegate-{id}-run-{name}"));
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).unwrap();
            let runtime = Runtime::new().unwrap();
            let config = read(&folder, "");
            let server = runtime.block_on(start::start(config, Vec::new())).unwrap();
            Self {
                server,
                runtime,
                folder: Folder(folder),
            }
        }

        /// The file says so from now on, and all of it is followed.
        pub(crate) fn reload(&mut self, volumes: &str) {
            let config = read(&self.folder.0, volumes);
            self.runtime.block_on(self.server.volumes(&config));
        }

        /// Begins to open what the file says.
        pub(crate) fn begin(&mut self, volumes: &str) {
            let config = read(&self.folder.0, volumes);
            let volumes = config.volumes.into_iter();
            self.server.wanted.extend(volumes.map(Wanted::new));
            let _inside = self.runtime.enter();
            self.server.add();
        }

        /// The volumes served.
        pub(crate) fn served(&self) -> Vec<&VolumeConfig> {
            assert!(self.server.coming.is_empty() && self.server.wanted.is_empty());
            self.server
                .volumes
                .iter()
                .map(|served| &served.config)
                .collect()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// `@` stands for the folder.
    fn read(folder: &Path, volumes: &str) -> crate::config::Config {
        let file = folder.join("config.toml");
        let head = "memory = \"2GiB\"\nlisten = [\"unix:@/socket\"]\nweb = \"off\"\n";
        let text = (head.to_owned() + volumes).replace('@', &folder.display().to_string());
        fs::write(&file, text).unwrap();
        let asked = Asked {
            file: Some(file),
            ..Asked::default()
        };
        asked.config().unwrap()
    }

    pub(crate) const NEW: &str = "[volume.a]\nbackend = \"new:@/x.img\"\nsize = \"8MiB\"\n";
    const SAME_FILE: &str = "[volume.b]\nbackend = \"@/x.img\"\n";

    #[test]
    fn what_was_refused_for_one_that_has_gone_since_is_tried_again() {
        let mut rig = Rig::new("gone");
        rig.reload(NEW);
        let server = &mut rig.server;
        rig.runtime.block_on(async { server.take_out("a") });
        rig.begin(SAME_FILE);
        let server = &mut rig.server;
        rig.runtime.block_on(async {
            let refused = server.opening.join_next().await.unwrap();
            assert!(matches!(refused, Ok((_, Err(_)))), "it is locked");
            while let Some(left) = server.leaving.join_next().await {
                server.has_left(left);
            }
            server.has_come(refused);
            let opened = server.opening.join_next().await.expect("tried again");
            server.has_come(opened);
        });
        assert_eq!(rig.served()[0].name, "b");
    }

    #[test]
    fn what_comes_and_is_not_wanted_so_any_more_is_closed_and_not_served() {
        let mut rig = Rig::new("otherwise");
        // Elsewhere, for reading, under another name, not at all.
        rig.begin(NEW);
        rig.reload(&NEW.replace("x.img", "y.img"));
        let place = format!("{:?}", rig.served()[0].backend);
        assert!(place.contains("y.img"), "{place}");
        assert!(!rig.folder.0.join("x.img").exists(), "what was made for it");

        fs::write(rig.folder.0.join("x.img"), vec![0; 1 << 20]).unwrap();
        rig.begin(SAME_FILE);
        rig.reload(&(SAME_FILE.to_owned() + "read_only = true\n"));
        assert!(rig.served().iter().all(|volume| volume.read_only));
        rig.reload("");
        rig.begin(SAME_FILE);
        rig.reload(&SAME_FILE.replace("[volume.b]", "[volume.c]"));
        assert_eq!(rig.served()[0].name, "c");
        rig.reload("");
        rig.begin(SAME_FILE);
        rig.reload("");
        assert!(rig.served().is_empty());
    }

    #[test]
    fn memory_that_what_is_not_wanted_any_more_takes_is_waited_for() {
        let mut rig = Rig::new("memory");
        // There is room for one of them.
        let most = (rig.server.cache.stats().free * 3 / 5) >> 20;
        let kept = format!("[volume.a]\nbackend = \"mem:\"\nsize = \"{most}MiB\"\n");
        rig.begin(&kept);
        rig.reload(&kept.replace("[volume.a]", "[volume.b]"));
        assert_eq!(rig.served()[0].name, "b");
    }

    #[test]
    fn what_has_no_room_for_what_clients_read_comes_when_they_have_read_it() {
        let mut rig = Rig::new("pinned");
        let path = rig.folder.0.join("pinned");
        fs::write(&path, vec![1; 48 << 20]).unwrap();
        let cache = rig.server.cache.clone();
        let options = tidegate::OpenOptions::new().read_only(true);
        let file = cache.open(path, options).unwrap();
        let pins: Vec<_> = (0..48 << 8).map(|page| file.pin(page).unwrap()).collect();
        let Err(tidegate::Error::LimitTooSmall { least, .. }) = cache.set_limit(1 << 20) else {
            panic!("that is too small");
        };
        let (old, lower) = (rig.server.config.memory, least + (16 << 20));
        let of = |mib: u64| format!("[volume.a]\nbackend = \"mem:\"\nsize = \"{mib}MiB\"\n");
        let one = &read(&rig.folder.0, &of(1024)).volumes[0];
        let kept = 1024 + ((old - lower) >> 20) - (rig.server.over(Some(one)) >> 20);
        let volume = of(kept);
        rig.begin(&volume);
        assert_eq!(rig.server.wanted.len(), 1, "not now");
        rig.server.memory = lower;
        rig.server.limit(true);
        assert_eq!(rig.server.config.memory, old, "not now");
        assert!(rig.server.waits());
        rig.server.wanted.clear();
        rig.server.again();
        assert_eq!(rig.server.config.memory, old, "it is not given up");
        drop(pins);
        rig.server.again();
        assert_eq!(rig.server.config.memory, lower);
        assert!(!rig.server.waits());
        rig.server.memory = old;
        rig.server.limit(true);
        rig.begin(&volume);
        assert_eq!(rig.server.coming.len(), 1);
        rig.reload(&volume);
        assert_eq!(rig.served()[0].name, "a");
    }

    #[test]
    fn a_lower_limit_that_has_to_wait_for_a_volume_comes_when_that_has_gone() {
        let mut rig = Rig::new("later");
        rig.reload("[volume.a]\nbackend = \"mem:\"\nsize = \"1200MiB\"\n");
        let server = &mut rig.server;
        rig.runtime.block_on(async {
            server.take_out("a");
            server.memory = 900 << 20;
            server.limit(true);
            assert_eq!(server.config.memory, 2 << 30, "it is still there");
            while let Some(left) = server.leaving.join_next().await {
                server.has_left(left);
            }
        });
        assert_eq!(rig.server.config.memory, 900 << 20);
    }

    #[test]
    fn what_volumes_leave_that_go_comes_off_the_limit_with_one_reload() {
        let mut rig = Rig::new("limit");
        rig.reload("[volume.a]\nbackend = \"mem:\"\nsize = \"1200MiB\"\n");
        assert_eq!(rig.served().len(), 1);
        read(&rig.folder.0, "");
        let file = rig.folder.0.join("config.toml");
        let text = fs::read_to_string(&file).unwrap();
        let text = "take_out_all = true\n".to_owned() + &text.replace("2GiB", "900MiB");
        fs::write(file, text).unwrap();
        rig.runtime.block_on(rig.server.reload());
        assert!(rig.served().is_empty());
        assert_eq!(rig.server.config.memory, 900 << 20);
    }
}
