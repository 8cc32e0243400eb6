//! One server of the demonstration, with its volume on a slow disk, in this process; and a client of it.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{Layer, SlowOptions};
use nbd::client::Wishes;
use policy::units::{Nanos, Pages};
use tidegate::{Cache, Threshold};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::load::{BLOCK, Met, Target, is_stamped};
use super::{
    COMMIT_BLOCKS, DIRTY, DISK_LATENCY, DemoError, HEAVY_BLOCKS, Half, LIGHT_BLOCKS, MEMORY,
    file_of,
};
use crate::config::{BackendConfig, BlockConfig, ShareConfig, VolumeConfig};
use crate::export::{Export, ExportOptions};
use crate::hub::Security;
use crate::{Hub, Limits, backend, connection};
use backend::Layers;

/// The name of the volume.
const NAME: &str = "demo";

/// A server and its volume.
pub(super) struct Side {
    socket: PathBuf,
    file: PathBuf,
    export: Arc<Export>,
    layers: Arc<Layers>,
    accepting: JoinHandle<()>,
}

impl Side {
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

    /// Bytes that were written and are not on the disk.
    pub(super) fn waiting(&self) -> u64 {
        let stats = self.export.opened.volume.stats();
        stats.dirty + stats.writeback
    }

    /// Bytes that the disk has taken.
    pub(super) fn taken(&self) -> u64 {
        self.export.opened.volume.stats().written_total
    }

    /// From now on the disk is no longer slow.
    pub(super) fn hurry(&self) {
        self.layers.release();
    }

    /// Has the disk take everything, no longer slowly, and waits until it has.
    ///
    /// # Errors
    /// The disk failed.
    pub(super) fn settle(&self) -> Result<(), DemoError> {
        self.hurry();
        Ok(self.export.opened.volume.clone_handle().sync()?)
    }

    /// Compares the disk with what the clients know to be written.
    ///
    /// # Errors
    /// It differs, or cannot be read.
    pub(super) fn verify(&self, half: &Half) -> Result<(), DemoError> {
        let failed = || DemoError::io(self.file.display().to_string());
        let file = File::open(&self.file).map_err(failed())?;
        let mut offset = 0;
        for (client, met) in [
            ("heavy", &half.heavy),
            ("light", &half.light),
            ("committing", &half.commits),
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

impl Drop for Side {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// How many blocks from `offset` on are not the version that was written last.
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

/// Makes the file of a volume, all of it: one that is filled by chance lies about in pieces, and takes long to be removed.
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
    VolumeConfig {
        name: NAME.to_owned(),
        description: String::new(),
        backend: BackendConfig::File {
            path: file.to_owned(),
            size: None,
        },
        read_only: false,
        durable: false,
        on_error: tidegate::VolumeOptions::default().on_error,
        share: ShareConfig::default(),
        layers: vec![Layer::Slow(SlowOptions {
            latency: Nanos(latency),
            ..SlowOptions::default()
        })],
        blocks: BlockConfig::default(),
    }
}

/// A client over the socket.
pub(super) struct Client(nbd::client::Client<UnixStream>);

impl Client {
    pub(super) fn connect(side: &Side) -> io::Result<Self> {
        let wishes = Wishes::export(NAME);
        let client = nbd::client::Client::unix(&side.socket, &wishes);
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
