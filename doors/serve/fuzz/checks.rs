//! A whole connection with a client that does anything: run by the fuzzing target, over its corpus,
//! and on random input.
//!
//! The server's side is the real one, with a real cache over real files; between both is a pipe in
//! memory, or a pair of sockets, over which payload of large writes goes straight into pages. The
//! first bytes of the input are settings, the rest is what the client sends: raw, or made into
//! requests so that most of it is understood.
//!
//! Checked: nothing panics, and nothing hangs; every reply has its form and answers a request; a
//! client that says goodbye and reads to the end has one reply to each request; afterwards nothing
//! is lent, held or under way, and memory is where it was.

use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use device::Layer;
use nbd::wire::{
    CHUNK_HEAD, ChunkHead, ChunkKind, Command, CommandFlags, OPTION_REPLY_HEAD, OptionHead,
    OptionKind, OptionReplyHead, Request, SIMPLE_REPLY, SimpleReply,
};
use serve::backend;
use serve::config::{BackendConfig, VolumeConfig};
use serve::connection::{EndedBy, Peer, serve};
use serve::export::{Export, ExportOptions};
use serve::hub::{Hub, Limits, Security};
use tidegate::Cache;
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf,
};
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

/// Bytes of each volume.
const SIZE: u64 = 4 << 20;
/// Longer than anything takes: what takes longer hangs.
const LONG: Duration = Duration::from_secs(60);
/// A client that waits so long for its bytes to be taken goes on to leave.
const PATIENCE: Duration = Duration::from_millis(20);
/// Lengths that requests have.
const LENGTHS: [u32; 16] = [
    0,
    1,
    511,
    512,
    4095,
    4096,
    4097,
    8192,
    65_536,
    131_072,
    262_144,
    1_000_000,
    1 << 20,
    4 << 20,
    33_554_432,
    u32::MAX,
];
/// Payload that is really sent of a write that says it is longer: then the client leaves in the
/// middle.
const PAYLOAD_MAX: usize = 1 << 20;

/// Bytes that are resident between two connections: the cache's limit, and as much for the program
/// around it.
const RESIDENT_MAX: u64 = 2 * MEMORY;
/// Bytes that the cache keeps to.
const MEMORY: u64 = 64 << 20;

/// The state that is built once.
struct World {
    runtime: Runtime,
    hub: Arc<Hub>,
    exports: Vec<Arc<Export>>,
    /// One connection at a time, so that what is left of it can be told.
    turn: Mutex<()>,
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let cache = Cache::builder().memory(MEMORY).build().expect("a cache");
        let limits = Limits {
            in_flight: 8,
            ..Limits::default()
        };
        let hub = Arc::new(Hub::new(limits, Security::Plain));
        let folder = std::env::temp_dir().join(format!("tidegate-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        // A good export, an export that cannot be written, an export whose disk fails now and then.
        let exports = [
            ("good", false, ""),
            ("fixed", true, ""),
            (
                "faulty",
                false,
                "faulty:seed=1,eio_reads=0.1,eio_writes=0.1",
            ),
        ]
        .map(|(name, read_only, layers)| {
            let export = open(&cache, folder.join(name), name, read_only, layers);
            assert!(hub.offer(Arc::clone(&export)), "names differ");
            export
        });
        // They are open: their names are of no more use.
        let _ = std::fs::remove_dir_all(&folder);
        World {
            runtime,
            hub,
            exports: exports.to_vec(),
            turn: Mutex::new(()),
        }
    })
}

fn open(cache: &Cache, path: PathBuf, name: &str, read_only: bool, layers: &str) -> Arc<Export> {
    let layers = match layers {
        "" => Vec::new(),
        text => Layer::parse_stack(text).expect("layers"),
    };
    if read_only {
        let file = std::fs::File::create(&path).expect("a file");
        file.set_len(SIZE).expect("its size");
    }
    let backend = match read_only {
        true => BackendConfig::File { path, size: None },
        false => BackendConfig::New { path, size: SIZE },
    };
    let config = VolumeConfig {
        description: "of a fuzzer".to_owned(),
        read_only,
        layers,
        ..VolumeConfig::new(name, backend)
    };
    let backend = backend::open(&config, cache).expect("a backend");
    let options = ExportOptions {
        name: name.to_owned(),
        read_only,
        ..ExportOptions::default()
    };
    let export = Arc::new(Export::new(options, cache.clone(), backend.opened));
    // Dropped with the process.
    std::mem::forget(backend.layers);
    export
}

/// The server's end of a pipe.
struct Pipe(DuplexStream);

impl Peer for Pipe {
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// The way in which a client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leave {
    /// It says goodbye and reads to the end.
    Goodbye,
    /// It closes its sending half and reads to the end.
    Half,
    /// It is gone, having read all that came.
    Gone,
    /// It never reads, and is gone when its bytes are no longer taken.
    Stalled,
}

/// The plan of a client.
struct Plan {
    /// Room in the pipe, bytes; none: between sockets.
    room: Option<usize>,
    /// Bytes sent at once.
    piece: usize,
    leave: Leave,
    stream: Vec<u8>,
    /// Requests by their cookies, if the stream was made of them.
    requests: Option<Vec<Request>>,
    structured: bool,
}

fn plan(data: &[u8]) -> Plan {
    let mut settings = [0; 4];
    let count = data.len().min(settings.len());
    settings[..count].copy_from_slice(&data[..count]);
    let [mode, room, piece, leave] = settings;
    let rest = &data[count..];
    let structured = mode & 2 != 0;
    let mut plan = Plan {
        room: (mode & 128 == 0).then_some(64 << (room % 11)),
        piece: 1 + usize::from(piece) * (1 + usize::from(room >> 4) * 16),
        leave: match leave % 8 {
            0 => Leave::Stalled,
            1 => Leave::Gone,
            2 => Leave::Half,
            _ => Leave::Goodbye,
        },
        stream: Vec::new(),
        requests: None,
        structured,
    };
    if mode & 1 != 0 {
        plan.stream.extend(rest);
        return plan;
    }
    plan.stream.extend(handshake(mode, structured));
    if mode & 64 != 0 {
        // Requests follow, and what they are is left to chance.
        plan.stream.extend(rest);
        return plan;
    }
    let mut requests = Vec::new();
    for bytes in rest.as_chunks::<6>().0 {
        let request = request(*bytes, requests.len() as u64);
        plan.stream.extend(request.encode());
        let payload = request.payload() as usize;
        let sent = payload.min(PAYLOAD_MAX);
        plan.stream.resize(plan.stream.len() + sent, bytes[5]);
        requests.push(request);
        // More than anyone sends here: the rest of the stream would be taken for payload.
        if sent < payload || request.command == Command::Disconnect {
            break;
        }
    }
    let whole = requests
        .last()
        .is_none_or(|last| last.payload() as usize <= PAYLOAD_MAX);
    if leave & 128 != 0 {
        let cut = usize::from(leave >> 3 & 15) * 3;
        plan.stream.truncate(plan.stream.len().saturating_sub(cut));
    } else if whole {
        plan.requests = Some(requests);
    }
    plan
}

fn option(kind: OptionKind, data: &[u8]) -> Vec<u8> {
    let len = u32::try_from(data.len()).expect("short");
    let mut bytes = OptionHead { kind, len }.encode().to_vec();
    bytes.extend(data);
    bytes
}

fn with_len(text: &str) -> Vec<u8> {
    let mut data = u32::try_from(text.len())
        .expect("short")
        .to_be_bytes()
        .to_vec();
    data.extend(text.as_bytes());
    data
}

/// A handshake that succeeds.
fn handshake(mode: u8, structured: bool) -> Vec<u8> {
    let mut bytes = 3_u32.to_be_bytes().to_vec();
    let name = ["good", "fixed", "faulty", "good"][usize::from(mode >> 2 & 3)];
    if structured {
        bytes.extend(option(OptionKind::StructuredReply, &[]));
    }
    if structured && mode & 16 != 0 {
        let mut data = with_len(name);
        data.extend(1_u32.to_be_bytes());
        data.extend(with_len("base:allocation"));
        bytes.extend(option(OptionKind::SetMetaContext, &data));
    }
    if mode & 32 == 0 {
        let mut data = with_len(name);
        data.extend([0, 1, 0, 3]);
        bytes.extend(option(OptionKind::Go, &data));
    } else {
        bytes.extend(option(OptionKind::ExportName, name.as_bytes()));
    }
    bytes
}

fn request([command, flags, high, low, len, fill]: [u8; 6], number: u64) -> Request {
    // Mostly known commands and no flags: both are tried alone elsewhere.
    let command = Command::from_number(match command % 32 {
        known @ 0..=7 => u16::from(known),
        8..=17 => u16::from(command % 2),
        18..=24 => 6,
        25..=27 => 7,
        28 | 29 => 3,
        _ => u16::from(command),
    });
    let flags = match flags {
        0..=127 => CommandFlags::NONE,
        128..=200 => CommandFlags::FUA,
        _ => CommandFlags::from_bits(u16::from(flags & 31)),
    };
    let (offset, len) = match command {
        Command::Flush | Command::Disconnect => (0, 0),
        _ => (
            (u64::from(high) << 8 | u64::from(low)) * 64 + u64::from(fill & 1),
            LENGTHS[usize::from(len) % LENGTHS.len()],
        ),
    };
    Request {
        flags,
        command,
        cookie: number,
        offset,
        len,
    }
}

/// Runs one client against the server, and sees that both keep to the rules.
pub(crate) fn connection(data: &[u8]) {
    let world = world();
    let turn = world.turn.lock().unwrap_or_else(PoisonError::into_inner);
    let plan = plan(data);
    let hub = || Arc::clone(&world.hub);
    let outcome = world.runtime.block_on(async {
        let both = async {
            match plan.room {
                Some(room) => {
                    let (near, far) = tokio::io::duplex(room);
                    tokio::join!(serve(Pipe(far), hub()), client(near, &plan))
                }
                None => {
                    let (near, far) = UnixStream::pair().expect("a pair of sockets");
                    tokio::join!(serve(far, hub()), client(near, &plan))
                }
            }
        };
        tokio::time::timeout(LONG, both).await
    });
    let Ok((ended, heard)) = outcome else {
        panic!(
            "a connection that does not end: {:?}, {} bytes",
            plan.leave,
            plan.stream.len()
        );
    };
    replies(&plan, &ended, &heard);
    drop((plan, heard));
    comes_to_rest(world);
    let resident = resident();
    // A sanitizer's records are resident too: there it is libFuzzer's `-rss_limit_mb` that bounds
    // both.
    assert!(
        cfg!(fuzzing) || resident <= RESIDENT_MAX,
        "{} MiB are resident",
        resident >> 20
    );
    drop(turn);
}

/// Runs the client of `plan`; returns the bytes it heard.
async fn client(stream: impl AsyncRead + AsyncWrite, plan: &Plan) -> Vec<u8> {
    let (mut from, mut to) = tokio::io::split(stream);
    let (gone, mut has_gone) = tokio::sync::oneshot::channel::<()>();
    let sending = async {
        for piece in plan.stream.chunks(plan.piece) {
            let sent = match plan.leave {
                Leave::Stalled => tokio::time::timeout(PATIENCE, to.write_all(piece))
                    .await
                    .ok(),
                _ => Some(to.write_all(piece).await),
            };
            if !matches!(sent, Some(Ok(()))) {
                break;
            }
        }
        match plan.leave {
            Leave::Goodbye => {
                let goodbye = Request {
                    flags: CommandFlags::NONE,
                    command: Command::Disconnect,
                    cookie: u64::MAX,
                    offset: 0,
                    len: 0,
                };
                let _ = to.write_all(&goodbye.encode()).await;
                // A raw stream, or a stream that was cut, may take that for part of something else:
                // then its end does it.
                if plan.requests.is_none() {
                    let _ = to.shutdown().await;
                }
            }
            Leave::Half => drop(to.shutdown().await),
            Leave::Gone | Leave::Stalled => {}
        }
        drop(gone);
    };
    let reading = async {
        let mut heard = Vec::new();
        match plan.leave {
            Leave::Goodbye | Leave::Half => drop(from.read_to_end(&mut heard).await),
            Leave::Stalled => drop(has_gone.await),
            Leave::Gone => {
                let mut room = [0; 4096];
                loop {
                    tokio::select! {
                        biased;
                        _ = &mut has_gone => break,
                        count = from.read(&mut room) => match count {
                            Ok(count) if count > 0 => heard.extend(&room[..count]),
                            _ => break,
                        },
                    }
                }
            }
        }
        heard
    };
    tokio::join!(sending, reading).1
}

/// Checks that the replies are well-formed and complete.
fn replies(plan: &Plan, ended: &EndedBy, heard: &[u8]) {
    let Some(requests) = &plan.requests else {
        return;
    };
    if plan.leave == Leave::Stalled {
        return;
    }
    let to_the_end = plan.leave == Leave::Goodbye;
    let Some(mut rest) = after_handshake(heard, plan.structured) else {
        assert!(
            !to_the_end,
            "a handshake that is not answered: {ended}, {heard:02x?}"
        );
        return;
    };
    let mut answered: HashMap<u64, u32> = HashMap::new();
    loop {
        let before = rest.len();
        match reply(&mut rest, requests, plan.structured) {
            Some(Some(cookie)) => *answered.entry(cookie).or_default() += 1,
            Some(None) => {}
            None if rest.is_empty() || !to_the_end => break,
            // The last one was broken off: the server has to say so.
            None => {
                assert!(
                    !matches!(ended, EndedBy::Client),
                    "{before} bytes that are no whole reply"
                );
                break;
            }
        }
    }
    assert!(
        answered.values().all(|count| *count == 1),
        "answered twice: {answered:?}"
    );
    if to_the_end && matches!(ended, EndedBy::Client) {
        let due = requests
            .iter()
            .filter(|request| request.command != Command::Disconnect)
            .count();
        assert_eq!(
            answered.len(),
            due,
            "requests without an answer, or the reverse"
        );
    }
}

/// The bytes behind the answers to the options.
fn after_handshake(heard: &[u8], structured: bool) -> Option<&[u8]> {
    let (greeting, mut rest) = heard.split_at_checked(18)?;
    assert_eq!(greeting, b"NBDMAGICIHAVEOPT\0\x03");
    loop {
        let head = rest
            .first_chunk::<OPTION_REPLY_HEAD>()
            .map(OptionReplyHead::parse);
        match head {
            Some(Ok(head)) => {
                assert!(!head.kind.is_error(), "{head:?}");
                rest = rest.get(OPTION_REPLY_HEAD + head.len as usize..)?;
                if head.option == OptionKind::Go && head.len == 0 {
                    return Some(rest);
                }
            }
            // The answer to EXPORT_NAME: size and flags.
            _ => {
                let (size, rest) = rest.split_at_checked(10)?;
                assert_eq!(size[..8], SIZE.to_be_bytes(), "structured: {structured}");
                return Some(rest);
            }
        }
    }
}

/// Takes one reply or chunk; `Some(cookie)` inside if it is the last of its reply. `None`: there is
/// no whole one.
fn reply(rest: &mut &[u8], requests: &[Request], structured: bool) -> Option<Option<u64>> {
    let of = |cookie: u64| {
        let request = usize::try_from(cookie)
            .ok()
            .and_then(|index| requests.get(index));
        request.unwrap_or_else(|| panic!("a reply to {cookie:#x}, which nobody sent"))
    };
    if let Some(simple) = rest
        .first_chunk::<SIMPLE_REPLY>()
        .and_then(SimpleReply::parse)
    {
        let request = of(simple.cookie);
        assert!(
            !structured || request.command != Command::Read,
            "a simple reply to a read"
        );
        let data = match (request.command, simple.error) {
            (Command::Read, None) => request.len as usize,
            _ => 0,
        };
        *rest = rest.get(SIMPLE_REPLY + data..)?;
        return Some(Some(simple.cookie));
    }
    let chunk = ChunkHead::parse(rest.first_chunk::<CHUNK_HEAD>()?);
    let chunk = chunk.unwrap_or_else(|| panic!("no reply: {:02x?}", &rest[..CHUNK_HEAD]));
    assert!(structured, "a chunk that was not agreed on");
    let request = of(chunk.cookie);
    let payload = rest.get(CHUNK_HEAD..CHUNK_HEAD + chunk.len as usize)?;
    match chunk.kind {
        ChunkKind::OffsetData | ChunkKind::OffsetHole => {
            assert_eq!(request.command, Command::Read);
            let offset = payload
                .first_chunk()
                .map(|offset| u64::from_be_bytes(*offset));
            let offset = offset.expect("an offset");
            let len = match chunk.kind {
                ChunkKind::OffsetData => u64::from(chunk.len) - 8,
                _ => 0,
            };
            let end = request.offset + u64::from(request.len);
            assert!(
                offset >= request.offset && offset + len <= end,
                "outside its request"
            );
        }
        ChunkKind::BlockStatus => {
            assert_eq!(request.command, Command::BlockStatus);
            assert!(chunk.len >= 12 && (chunk.len - 4).is_multiple_of(8));
            let (extents, _) = payload[4..].as_chunks::<8>();
            let len =
                |extent: &[u8; 8]| u32::from_be_bytes([extent[0], extent[1], extent[2], extent[3]]);
            assert!(extents.iter().all(|extent| len(extent) > 0));
            if request.flags.has(CommandFlags::REQ_ONE) {
                assert!(extents.len() == 1 && len(&extents[0]) <= request.len);
            }
        }
        ChunkKind::None => assert!(chunk.done && chunk.len == 0),
        kind => assert!(kind.is_error(), "{kind:?}"),
    }
    *rest = &rest[CHUNK_HEAD + chunk.len as usize..];
    Some(chunk.done.then_some(chunk.cookie))
}

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

/// Waits until nothing is lent, held or under way.
fn comes_to_rest(world: &World) {
    let began = Instant::now();
    loop {
        let connections = world.hub.counters.connections.load(Ordering::SeqCst);
        let busy = world.exports.iter().find(|export| {
            let (counters, load) = (&export.counters, export.opened.pool.load());
            counters.connections.load(Ordering::SeqCst) > 0
                || counters.in_flight.load(Ordering::SeqCst) > 0
                || counters.held.load(Ordering::SeqCst) > 0
                || export.buffers_lent() > 0
                || load.queued > 0
                || load.idle < load.threads
        });
        match busy {
            None if connections == 0 => return,
            None => assert!(began.elapsed() < LONG, "{connections} connections are left"),
            Some(export) => {
                let name = export.name();
                assert!(
                    began.elapsed() < LONG,
                    "something is left of a connection to {name}"
                );
            }
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}
