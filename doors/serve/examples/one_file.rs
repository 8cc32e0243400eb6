//! Serves one sparse file, with as little around the connections as there can be: for profiles and
//! comparisons.
//!
//! `one_file SOCKET FILE SIZE_MIB MEMORY_MIB [unpaced]`

use std::error::Error;
use std::sync::Arc;

use serve::backend;
use serve::config::{BackendConfig, BlockConfig, ListenConfig, ShareConfig, VolumeConfig};
use serve::export::{Export, ExportOptions};
use serve::hub::{Hub, Limits, Security};
use tidegate::{Cache, ErrorPolicy};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [socket, file, size, memory, rest @ ..] = &words[..] else {
        return Err("one_file SOCKET FILE SIZE_MIB MEMORY_MIB [unpaced]".into());
    };
    let cache = Cache::builder()
        .memory(memory.parse::<u64>()? << 20)
        .build()?;
    let config = VolumeConfig {
        name: String::new(),
        description: "one file".into(),
        backend: BackendConfig::New {
            path: file.into(),
            size: size.parse::<u64>()? << 20,
        },
        read_only: false,
        durable: false,
        unlocked: false,
        on_error: ErrorPolicy::Report,
        share: ShareConfig::default(),
        layers: Vec::new(),
        blocks: BlockConfig::default(),
    };
    let opened = backend::open(&config, &cache)?.opened;
    let options = ExportOptions {
        paced: rest.first().is_none_or(|word| word != "unpaced"),
        ..ExportOptions::default()
    };
    let export = Arc::new(Export::new(options, cache.clone(), opened));
    let hub = Arc::new(Hub::new(Limits::default(), Security::Plain));
    hub.offer(Arc::clone(&export));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = serve::listen::bind(&ListenConfig::Unix {
            path: socket.into(),
            mode: 0o600,
        })?;
        println!("nbd+unix:///?socket={socket}");
        listener.serve(hub).await;
        Ok::<_, Box<dyn Error>>(())
    })
}
