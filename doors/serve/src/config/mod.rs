//! The configuration of the server: one plain, checked structure, from the command line, a TOML
//! file, or nothing at all.
//!
//! ```text
//!   Asked (words of the command line) ──┬── file.toml ──> Config ──> run
//!                                       └──────────────────^
//! ```
//! The same words mean the same in both places. Options of the command line go before those of the
//! file; volumes and listeners of both are served. `Asked` is kept, so that a reload reads the file
//! again in the same way.
//!
//! Invariants
//!   1. A `Config` that exists is consistent: names are unique and fit the protocol, sizes are in
//!      range, what needs each other is there. Opening shows if files exist and addresses are free.
//!   2. Every mistake names the word, the allowed ones, and in a file its line; all of a file's are
//!      told at once where its TOML can be read.

mod asked;
mod check;
mod default;
mod draft;
mod file;
mod mistake;
mod options;
mod source;
mod units;
mod values;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use device::Layer;
use os::GroupLimit;
use tidegate::{ErrorPolicy, Nodes, Threshold};

use crate::access::Access;
use crate::log::{Format, Level};

pub(crate) use check::connections_for;
pub use mistake::{ConfigError, Mistake, Mistakes};
pub use options::{Argument, arguments};
pub(crate) use units::show_exactly;
pub use units::show_size;
pub(crate) use values::{REQUESTS_MOST, SIZE_MAX};

/// The words of the command line. A word that is not given is `None` or empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// The TOML file.
    pub file: Option<PathBuf>,
    /// `NAME=BACKEND[,KEY=VALUE..]`.
    pub volumes: Vec<String>,
    /// `unix:PATH` and `tcp:ADDRESS:PORT`.
    pub listen: Vec<String>,
    /// Values by their keys: those of the file, and those of its table `[tls]` as `tls.KEY`.
    pub values: BTreeMap<String, String>,
}

/// All that the server is asked for.
#[derive(Clone, Debug)]
pub struct Config {
    /// The words that it was made from; a reload reads them again.
    pub asked: Asked,
    /// Memory limit of the whole process, in bytes.
    pub memory: u64,
    /// It was named.
    pub memory_given: bool,
    /// Nobody named a limit, and it is less than the usual one: three quarters of what this control
    /// group allows.
    pub memory_of: Option<GroupLimit>,
    /// Dirty data over which writers are paced.
    pub dirty: Threshold,
    /// Dirty data over which writeback begins.
    pub background: Threshold,
    /// The sockets where connections are taken; those that systemd passes come on top.
    pub listen: Vec<ListenConfig>,
    /// The address of the metrics and the live page; `None`: nowhere.
    pub web: Option<WebConfig>,
    /// Encryption; `None`: there is none.
    pub tls: Option<TlsConfig>,
    /// Bounds on what clients may hold.
    pub limits: LimitsConfig,
    /// The socket on which programs of this machine ask; `None`: nowhere.
    pub control: Option<PathBuf>,
    /// The server ends when no client was connected for so long.
    pub end_idle: Option<Duration>,
    /// The number of connections was named; if not, it follows the memory limit.
    pub connections_given: bool,
    /// The volumes; names are unique.
    pub volumes: Vec<VolumeConfig>,
    /// Volumes that are not to be served any more, though clients may have them.
    pub take_out: Vec<String>,
    /// A reload may take out every volume that is served: a file that was just cut, to be written
    /// anew, looks like that.
    pub take_out_all: bool,
    /// Writers are held back; off for comparisons.
    pub paced: bool,
    /// Uses io_uring if the system has it.
    pub io_uring: bool,
    /// Which nodes of the machine the memory lies on.
    pub nodes: Nodes,
    /// The page rule; none: the cache's lists.
    pub page_rule: Option<&'static str>,
    /// The record of requests; `None`: nowhere.
    pub record: Option<RecordConfig>,
    /// The least grave events that are written.
    pub log: Level,
    /// Their format.
    pub log_format: Format,
}

/// A socket where connections are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenConfig {
    /// A Unix socket.
    Unix {
        /// Its path.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A TCP port.
    Tcp(SocketAddr),
}

/// The address of the metrics and the live page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebConfig {
    /// The address.
    pub address: SocketAddr,
    /// It was asked for. If not, and it is taken, any free port of the loopback address will do.
    pub insisted: bool,
}

/// The record of clients' requests, for `tidegate replay`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordConfig {
    /// The file.
    pub path: PathBuf,
    /// Bytes that it may have.
    pub limit: u64,
}

/// Certificates of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// The server's certificate and its chain, PEM.
    pub certificate: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// Authorities one of which has to have signed a client's certificate, PEM; `None`: clients
    /// need none.
    pub clients: Option<PathBuf>,
    /// Lists of certificates that these authorities have revoked, PEM.
    pub revoked: Option<PathBuf>,
    /// A client that does not encrypt is refused. (If not, it is the client's choice.)
    pub required: bool,
}

/// Bounds on what clients may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Connections at one time.
    pub connections: u32,
    /// Those of one address over TCP, where another number than the usual part is wanted.
    pub of_one_address: Option<u32>,
    /// Requests in flight on one connection.
    pub requests: u32,
    /// Bytes of the largest request.
    pub request_bytes: u32,
    /// Time that a client may take from the connection to its first request, and the server over
    /// the last replies.
    pub handshake: Duration,
    /// A request that takes longer is logged.
    pub slow: Duration,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            connections: 1024,
            of_one_address: None,
            requests: 128,
            request_bytes: 32 << 20,
            handshake: Duration::from_secs(10),
            slow: Duration::from_secs(10),
        }
    }
}

/// One volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeConfig {
    /// The name that clients ask for.
    pub name: String,
    /// Words for the list of exports.
    pub description: String,
    /// The backing of its bytes.
    pub backend: BackendConfig,
    /// Clients may only read.
    pub read_only: bool,
    /// Each write is durable before its reply.
    pub durable: bool,
    /// A file is served for writing though its file system has no locks.
    pub unlocked: bool,
    /// The error that clients get while writes to the backend fail.
    pub on_error: ErrorPolicy,
    /// Its share of the dirty limit.
    pub share: ShareConfig,
    /// The layers around its device, outermost first; for trials.
    pub layers: Vec<Layer>,
    /// Block sizes that clients are told.
    pub blocks: BlockConfig,
    /// The clients that may open it.
    pub clients: Access,
}

impl VolumeConfig {
    /// A volume of which nothing else is said.
    #[must_use]
    pub fn new(name: &str, backend: BackendConfig) -> Self {
        Self {
            name: name.to_owned(),
            description: String::new(),
            backend,
            read_only: false,
            durable: false,
            unlocked: false,
            on_error: ErrorPolicy::Report,
            share: ShareConfig::default(),
            layers: Vec::new(),
            blocks: BlockConfig::default(),
            clients: Access::default(),
        }
    }
}

/// A volume's share of the dirty limit, in 1/10000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareConfig {
    /// Its least share.
    pub least: u32,
    /// Its greatest share.
    pub most: u32,
}

impl Default for ShareConfig {
    fn default() -> Self {
        Self {
            least: 0,
            most: 10_000,
        }
    }
}

/// Block sizes that clients are told, in bytes; powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockConfig {
    /// The unit of which requests should be multiples.
    pub minimum: u32,
    /// The size that needs no read first.
    pub preferred: u32,
}

impl Default for BlockConfig {
    fn default() -> Self {
        Self {
            minimum: 1,
            preferred: 4096,
        }
    }
}

/// The backing of a volume's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendConfig {
    /// A file or block device that is there.
    File {
        /// Its path.
        path: PathBuf,
        /// The size that it has to have at least, and that is served of it; `None`: all of it.
        size: Option<u64>,
    },
    /// The volume of a server that was asked for none: a sparse file in the user's own folder,
    /// which is made with it.
    Embedded {
        /// Its path.
        path: PathBuf,
        /// Its size where it has to be made.
        size: u64,
    },
    /// A sparse file, which is made if it is not there.
    New {
        /// Its path.
        path: PathBuf,
        /// Its size.
        size: u64,
    },
    /// Memory alone: it is lost with the server. There is no device, for layers to be around.
    Memory {
        /// Its size.
        size: u64,
    },
    /// Objects of one size in an object store.
    Objects {
        /// `dir:PATH`, `s3://BUCKET/PREFIX?...`, or `mem:` for trials of a store.
        url: String,
        /// Its size; `None`: it is there and has one.
        size: Option<u64>,
        /// Bytes of an object; `None`: as it is, or the default of a new one.
        object_size: Option<u64>,
        /// Requests to the store at one time; `None`: the default.
        parallel: Option<u16>,
        /// The lease of another server is taken away from it.
        force: bool,
    },
}

#[cfg(test)]
mod tests;
