//! One server of the demonstration, with its volume on a slow disk; and a client of it.
//!
//! `Ours` is in this process. `Nbdkit` is what many run today, a process of its own where it is
//! installed: its filter `cache` keeps writes, and its filter `delay` below makes the disk as slow
//! as ours. The cache filter sends one request at a time, so the disk does as many a second.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{Layer, SlowOptions};
use nbd::client::Wishes;
use policy::units::{Nanos, Pages};
use tidegate::{Cache, Threshold};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::load::{BLOCK, Met, Target, is_stamped};
use super::{
    COMMIT_BLOCKS, DIRTY, DISK_LATENCY, DemoError, HEAVY_BLOCKS, LIGHT_BLOCKS, MEMORY, Part,
    file_of,
};
use crate::config::{BackendConfig, VolumeConfig};
use crate::export::{Export, ExportOptions};
use crate::hub::Security;
use crate::{Hub, Limits, backend, connection};
use backend::Layers;

/// The name of the volume.
const NAME: &str = "demo";

/// A server and its volume.
pub(super) trait Side {
    /// Where clients connect, and to which export.
    fn address(&self) -> (&Path, &'static str);

    /// Bytes that were written and are not on the disk, and those that the disk has taken.
    fn seen(&self) -> Seen;

    /// From now on nobody waits for the disk any more: the demonstration was interrupted.
    fn hurry(&mut self);

    /// Ends it, and compares the disk with what the clients know to be written, if they know.
    ///
    /// # Errors
    /// The disk failed, it differs, or cannot be read.
    fn end(&mut self, part: Option<&Part>) -> Result<(), DemoError>;
}

/// The figures of a side's disk while the load is on; nothing where it says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) waiting: Option<u64>,
    pub(super) taken: Option<u64>,
}

/// Our server and its volume.
pub(super) struct Ours {
    socket: PathBuf,
    file: PathBuf,
    export: Arc<Export>,
    layers: Arc<Layers>,
    accepting: JoinHandle<()>,
}

impl Ours {
    /// Starts a server with a fresh volume.
    ///
    /// # Errors
    /// No memory, no space, no socket.
    pub(super) fn start(
        runtime: &Runtime,
        folder: &Path,
        name: &str,
        paced: bool,
    ) -> Result<Self, DemoError> {
        let cache = Cache::builder()
            .memory(MEMORY)
            .dirty_limit(Threshold::Pages(Pages(DIRTY / BLOCK as u64)))
            .background_limit(Threshold::Pages(Pages(DIRTY / 2 / BLOCK as u64)))
            .build()?;
        let file = file_of(folder, name);
        make(&file).map_err(DemoError::io(file.display().to_string()))?;
        let backend = backend::open(&volume(&file), &cache)?;
        let options = ExportOptions {
            name: NAME.to_owned(),
            paced,
            ..ExportOptions::default()
        };
        let export = Arc::new(Export::new(options, cache, backend.opened));
        let hub = Arc::new(Hub::new(Limits::default(), Security::Plain));
        hub.offer(Arc::clone(&export));
        let socket = folder.join(format!("{name}.socket"));
        let _entered = runtime.enter();
        let listener = tokio::net::UnixListener::bind(&socket)
            .map_err(DemoError::io(socket.display().to_string()))?;
        let accepting = runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(connection::serve(stream, Arc::clone(&hub)));
            }
        });
        Ok(Self {
            socket,
            file,
            export,
            layers: backend.layers,
            accepting,
        })
    }
}

impl Side for Ours {
    fn address(&self) -> (&Path, &'static str) {
        (&self.socket, NAME)
    }

    fn seen(&self) -> Seen {
        let stats = self.export.opened.volume.stats();
        Seen {
            waiting: Some(stats.dirty + stats.writeback),
            taken: Some(stats.written_total),
        }
    }

    fn hurry(&mut self) {
        self.layers.release();
    }

    fn end(&mut self, part: Option<&Part>) -> Result<(), DemoError> {
        // Nobody waits for a slow disk to take the rest: neither a spectator nor a user who has
        // interrupted.
        self.hurry();
        self.export.opened.volume.clone_handle().sync()?;
        let Some(part) = part else { return Ok(()) };
        let failed = || DemoError::io(self.file.display().to_string());
        let file = File::open(&self.file).map_err(failed())?;
        let mut offset = 0;
        for (client, met) in [
            ("heavy", &part.heavy),
            ("light", &part.light),
            ("committing", &part.commits),
        ] {
            let wrong = wrong_blocks(&file, offset, met).map_err(failed())?;
            if wrong > 0 {
                return Err(DemoError::Wrong { client, wrong });
            }
            offset += met.versions.len() as u64 * BLOCK as u64;
        }
        Ok(())
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// nbdkit with its write-back cache, a process.
pub(super) struct Nbdkit {
    socket: PathBuf,
    log: PathBuf,
    process: Child,
}

impl Nbdkit {
    /// Time that it may take to listen.
    const START_MOST: Duration = Duration::from_secs(5);

    /// Starts it with a fresh volume; `None` where it is not installed, or not with its filters.
    ///
    /// # Errors
    /// No space for the volume.
    pub(super) fn start(folder: &Path) -> Result<Option<Self>, DemoError> {
        let is_there = Command::new("nbdkit")
            .args(["--filter=cache", "--filter=log", "--filter=delay", "file"])
            .arg("--dump-plugin")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !is_there.is_ok_and(|status| status.success()) {
            return Ok(None);
        }
        let (file, socket) = (file_of(folder, "nbdkit"), folder.join("nbdkit.socket"));
        make(&file).map_err(DemoError::io(file.display().to_string()))?;
        let log = folder.join("nbdkit.log");
        let delay = DISK_LATENCY.as_millis();
        let mut process = Command::new("nbdkit")
            .args(["--foreground", "--exit-with-parent", "--unix"])
            .arg(&socket)
            .args(["--filter=cache", "--filter=log", "--filter=delay", "file"])
            .arg(&file)
            // Its blocks are of 64 KiB if not told otherwise: a write of 4 KiB would read the rest
            // first.
            .args(["cache=writeback", "cache-min-block-size=4K"])
            .arg(format!("logfile={}", log.display()))
            .args([format!("wdelay={delay}ms"), format!("rdelay={delay}ms")])
            .env("TMPDIR", folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(DemoError::io("nbdkit"))?;
        let begin = Instant::now();
        while UnixStream::connect(&socket).is_err() {
            let ended = process.try_wait().map_err(DemoError::io("nbdkit"))?;
            if ended.is_some() || begin.elapsed() > Self::START_MOST {
                // Too old for these settings: as good as not there.
                let _ = process.kill();
                let _ = process.wait();
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Some(Self {
            socket,
            log,
            process,
        }))
    }
}

impl Side for Nbdkit {
    fn address(&self) -> (&Path, &'static str) {
        (&self.socket, "")
    }

    fn seen(&self) -> Seen {
        // The log has a line for each request that its cache has sent.
        let log = std::fs::read_to_string(&self.log).ok();
        let taken = log.map(|log| log.matches(" Write id=").count() as u64 * BLOCK as u64);
        Seen {
            waiting: None,
            taken,
        }
    }

    fn hurry(&mut self) {
        let _ = self.process.kill();
    }

    fn end(&mut self, _: Option<&Part>) -> Result<(), DemoError> {
        self.hurry();
        self.process.wait().map_err(DemoError::io("nbdkit"))?;
        Ok(())
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Number of blocks from `offset` on that are not the version that was written last.
fn wrong_blocks(file: &File, mut offset: u64, met: &Met) -> io::Result<usize> {
    const BLOCKS: usize = 256;
    let mut data = vec![0; BLOCKS * BLOCK];
    let mut wrong = 0;
    for versions in met.versions.chunks(BLOCKS) {
        let data = &mut data[..versions.len() * BLOCK];
        file.read_exact_at(data, offset)?;
        for (block, version) in data.chunks_exact(BLOCK).zip(versions) {
            wrong += usize::from(!is_stamped(block, offset, *version));
            offset += BLOCK as u64;
        }
    }
    Ok(wrong)
}

/// Makes the file of a volume, all of it: a file that is filled by chance lies about in pieces, and
/// takes long to be removed.
fn make(path: &Path) -> io::Result<()> {
    const PIECE: usize = 1 << 20;
    let zeroes = vec![0; PIECE];
    let mut file = File::create_new(path)?;
    let size = (HEAVY_BLOCKS + LIGHT_BLOCKS + COMMIT_BLOCKS) * BLOCK as u64;
    for _ in 0..size / PIECE as u64 {
        file.write_all(&zeroes)?;
    }
    file.sync_all()
}

/// That file behind a device that takes its time.
fn volume(file: &Path) -> VolumeConfig {
    let latency = u64::try_from(DISK_LATENCY.as_nanos()).unwrap_or(u64::MAX);
    let backend = BackendConfig::File {
        path: file.to_owned(),
        size: None,
    };
    VolumeConfig {
        layers: vec![Layer::Slow(SlowOptions {
            latency: Nanos(latency),
            ..SlowOptions::default()
        })],
        ..VolumeConfig::new(NAME, backend)
    }
}

/// A client over the socket.
pub(super) struct Client(nbd::client::Client<UnixStream>);

impl Client {
    pub(super) fn connect(side: &dyn Side) -> io::Result<Self> {
        let (socket, export) = side.address();
        let client = nbd::client::Client::unix(socket, &Wishes::export(export));
        Ok(Self(client.map_err(io::Error::other)?))
    }
}

impl Target for Client {
    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data).map_err(io::Error::other)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(io::Error::other)
    }
}
