//! The defaults of a server that was told nothing: where its socket and its volume are.
//!
//! Source: XDG Base Directory Specification 0.8 (paths that are not absolute are ignored).

use std::ffi::OsString;
use std::path::PathBuf;

use os::GroupLimit;

use super::mistake::ConfigError;
use super::{BackendConfig, ListenConfig, VolumeConfig};

/// Memory limit where none is given.
pub(super) const MEMORY: u64 = 1 << 30;
/// Size of the embedded volume: sparse, so it takes what is written.
const EMBEDDED: u64 = 10 << 30;
/// Permissions of a socket: for its owner.
pub(super) const SOCKET_MODE: u32 = 0o600;
/// The address of the metrics and the live page.
pub(super) const WEB: ([u8; 4], u16) = ([127, 0, 0, 1], 9_321);

/// The surroundings of the process that have a say.
#[derive(Clone, Debug, Default)]
pub(super) struct Surroundings {
    pub(super) home: Option<PathBuf>,
    pub(super) state: Option<PathBuf>,
    pub(super) runtime: Option<PathBuf>,
    pub(super) temp: PathBuf,
    pub(super) user: u32,
    /// Sockets that systemd passes.
    pub(super) sockets: bool,
    /// The limit of the process's control groups.
    pub(super) group: Option<GroupLimit>,
}

impl Surroundings {
    pub(super) fn of_process() -> Self {
        let path = |name: &str| {
            let value: Option<OsString> = std::env::var_os(name);
            value.map(PathBuf::from).filter(|path| path.is_absolute())
        };
        Self {
            home: path("HOME"),
            state: path("XDG_STATE_HOME"),
            runtime: path("XDG_RUNTIME_DIR"),
            temp: std::env::temp_dir(),
            user: rustix::process::getuid().as_raw(),
            sockets: crate::systemd::has_sockets(),
            group: os::Groups::of_process().limit(),
        }
    }

    /// The memory limit of a server that was told none, and what of the surroundings it is less
    /// for.
    pub(super) fn memory(&self) -> (u64, Option<GroupLimit>) {
        let of_group = |group: &GroupLimit| ((group.bytes / 4 * 3) >> 20) << 20;
        let group = self.group.as_ref().filter(|group| of_group(group) < MEMORY);
        (group.map_or(MEMORY, of_group), group.cloned())
    }

    /// The socket of this user's server.
    pub(super) fn socket(&self) -> ListenConfig {
        let path = match &self.runtime {
            Some(runtime) => runtime.join("tidegate.sock"),
            // The folder is everybody's: the name tells users apart, the listener checks whose it
            // is.
            None => self.temp.join(format!("tidegate-{}.sock", self.user)),
        };
        ListenConfig::Unix {
            path,
            mode: SOCKET_MODE,
        }
    }

    /// The volume of a server that was asked for none.
    pub(super) fn volume(&self) -> Result<VolumeConfig, ConfigError> {
        let state = match (&self.state, &self.home) {
            (Some(state), _) => state.clone(),
            (None, Some(home)) => home.join(".local/state"),
            (None, None) => return Err(ConfigError::NoHome),
        };
        let backend = BackendConfig::Embedded {
            path: state.join("tidegate/default.img"),
            size: EMBEDDED,
        };
        Ok(VolumeConfig::new("default", backend))
    }
}
