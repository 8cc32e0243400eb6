//! A server in this process: real sockets, real files, nothing else around it.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use device::Layer;
use nbd::client::{Client, Wishes, give_up_after};
use serve::backend::{self, Backend, BackendError, Layers};
use serve::config::{BackendConfig, ListenConfig, VolumeConfig};
use serve::export::{Export, ExportOptions};
use serve::hub::{Hub, Limits, Security};
use tidegate::{Cache, ErrorPolicy};
use tokio::runtime::Runtime;

pub(crate) mod locks;

use locks::{FORKED, open_within};

pub(crate) const PAGE: usize = 4096;
/// Longer than anything here takes on a machine that does much else.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Raises the limit on descriptors: each connection has two here.
pub(crate) fn allow_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, all).unwrap();
}

/// A folder that is removed when dropped.
pub(crate) struct Folder(pub PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // On a disk: tmpfs has no direct I/O on all kernels.
        let name = format!("tidegate-conn-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The setup of a server.
pub(crate) struct Setup {
    pub(crate) memory: u64,
    pub(crate) size: u64,
    pub(crate) limits: Limits,
    pub(crate) layers: &'static str,
    pub(crate) options: ExportOptions,
    /// `None`: a new sparse file of `size`.
    pub(crate) backend: Option<BackendConfig>,
    pub(crate) on_error: ErrorPolicy,
    /// As a device that discards, and zeroes only if it is sent them.
    pub(crate) only_discards: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            memory: 64 << 20,
            size: 64 << 20,
            limits: Limits::default(),
            layers: "",
            options: ExportOptions::default(),
            backend: None,
            on_error: ErrorPolicy::Report,
            only_discards: false,
        }
    }
}

/// A server with one volume, or with more that were added.
pub(crate) struct Server {
    pub(crate) hub: Arc<Hub>,
    pub(crate) export: Arc<Export>,
    pub(crate) layers: Arc<Layers>,
    pub(crate) cache: Cache,
    pub(crate) socket: PathBuf,
    pub(crate) runtime: Option<Runtime>,
    pub(crate) folder: Folder,
}

impl Server {
    pub(crate) fn start(setup: Setup) -> Self {
        let folder = Folder::new();
        let cache = Cache::builder().memory(setup.memory).build().unwrap();
        let hub = Arc::new(Hub::new(setup.limits, Security::Plain));
        let (export, layers) = open(&folder.0, &cache, setup);
        assert!(hub.offer(Arc::clone(&export)));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let socket = folder.0.join("socket");
        let config = ListenConfig::Unix {
            path: socket.clone(),
            mode: 0o600,
        };
        let entered = runtime.enter();
        let listener = serve::listen::bind(&config).unwrap();
        drop(entered);
        runtime.spawn(listener.serve(Arc::clone(&hub)));
        Self {
            hub,
            export,
            layers,
            cache,
            socket,
            runtime: Some(runtime),
            folder,
        }
    }

    /// Offers another volume.
    pub(crate) fn add(
        &self,
        options: ExportOptions,
        size: u64,
        layers: &'static str,
    ) -> (Arc<Export>, Arc<Layers>) {
        let setup = Setup {
            options,
            size,
            layers,
            ..Setup::default()
        };
        let (export, layers) = open(&self.folder.0, &self.cache, setup);
        assert!(self.hub.offer(Arc::clone(&export)));
        (export, layers)
    }

    /// From now on it encrypts, with this certificate and its key; clients need a certificate of
    /// these authorities, but for those in this list, if they are given. All of it is PEM.
    pub(crate) fn secure(
        &self,
        [certificate, key]: [&str; 2],
        [clients, revoked]: [Option<&str>; 2],
        required: bool,
    ) {
        let acceptor = serve::tls::Acceptor::open(&serve::config::TlsConfig {
            certificate: self.folder.file("server.pem", certificate),
            key: self.folder.file("server-key.pem", key),
            clients: clients.map(|text| self.folder.file("clients.pem", text)),
            revoked: revoked.map(|text| self.folder.file("revoked.pem", text)),
            required,
        });
        let acceptor = acceptor.unwrap();
        self.hub.set_security(match required {
            true => Security::Required(acceptor),
            false => Security::Offered(acceptor),
        });
    }

    pub(crate) fn client(&self) -> Client<UnixStream> {
        self.client_of(&Wishes::export(""))
    }

    pub(crate) fn client_of(&self, wishes: &Wishes) -> Client<UnixStream> {
        let client = Client::unix(&self.socket, wishes).unwrap();
        give_up_after(client.stream(), LONG).unwrap();
        client
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().unwrap()
    }

    /// Waits until `is_so`; panics with `what` if it never is.
    pub(crate) fn wait(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        until(what, || is_so(self));
    }

    /// Nobody is connected, and nothing is lent, held or under way.
    pub(crate) fn is_at_rest(&self) -> bool {
        let counters = &self.export.counters;
        let load = self.export.opened.pool.load();
        self.hub.counters.connections.load(Ordering::SeqCst) == 0
            && counters.connections.load(Ordering::SeqCst) == 0
            && counters.in_flight.load(Ordering::SeqCst) == 0
            && counters.held.load(Ordering::SeqCst) == 0
            && self.export.buffers_lent() == 0
            && load.idle == load.threads
            && load.queued == 0
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.layers.release();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }
}

fn open(folder: &Path, cache: &Cache, setup: Setup) -> (Arc<Export>, Arc<Layers>) {
    let (options, size) = (setup.options, setup.size);
    let layers = match setup.layers {
        "" => Vec::new(),
        text => Layer::parse_stack(text).unwrap(),
    };
    let new = || BackendConfig::New {
        path: folder.join(format!("volume-{}", options.name)),
        size,
    };
    let config = VolumeConfig {
        read_only: options.read_only,
        on_error: setup.on_error,
        layers,
        ..VolumeConfig::new(&options.name, setup.backend.unwrap_or_else(new))
    };
    // A server before this one may have had it.
    let mut backend = open_within(FORKED, || backend::open(&config, cache)).unwrap();
    backend.opened.can_punch &= !setup.only_discards;
    backend.made.keep();
    let export = Export::new(options, cache.clone(), backend.opened);
    (Arc::new(export), backend.layers)
}

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONG, "never came to be: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Bytes that differ from place to place and from seed to seed.
pub(crate) fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(len);
    out
}

/// Numbers that look random, the same for a seed.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}
