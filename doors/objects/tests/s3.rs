//! Against a server that speaks S3: moto, started here, or the server that the environment names.
//!
//! `TIDEGATE_S3_URL=s3://BUCKET/PREFIX` with AWS_ENDPOINT and credentials runs it against that; the
//! prefix should be an empty place. Without it and without `moto_server` (pip install
//! 'moto[server]') it is skipped, and says so.
#![cfg(feature = "s3")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(
    clippy::cast_possible_truncation,
    reason = "64 bits, and small numbers"
)]

mod common;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Chance, MIB, PAGE, Rig, attach, block};
use env::IoError;
use objects::{Config, Error};
use tidegate::{Cursor, Mode};

/// A moto of our own; ended when the test ends.
struct Moto {
    child: Child,
    port: u16,
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Moto {
    fn start() -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let child = Command::new("moto_server")
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let moto = Self { child, port };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(
                began.elapsed() < common::LONG,
                "moto_server does not answer"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(moto)
    }

    fn put(&self, path: &str, body: &[u8]) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        // Any credentials will do for moto, but there must be some.
        write!(
            stream,
            "PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\nConnection: close\r\nAuthorization: \
             AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0\r\n\r\n",
            body.len()
        )
        .unwrap();
        stream.write_all(body).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

/// Runs one of the tests below in a process of its own: the client takes its settings from the
/// environment.
fn run(name: &str) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--ignored", "--nocapture"]);
    let moto = if std::env::var_os("TIDEGATE_S3_URL").is_some() {
        None
    } else {
        let Some(moto) = Moto::start() else {
            eprintln!("SKIPPED: {name}: no moto_server here (pip install 'moto[server]')");
            return;
        };
        moto.put("/tidegate", b"");
        for (key, value) in [
            ("TIDEGATE_S3_URL", "s3://tidegate/volumes/one"),
            ("AWS_ENDPOINT", &format!("http://127.0.0.1:{}", moto.port)),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
            ("AWS_REGION", "us-east-1"),
            ("MOTO_PORT", &moto.port.to_string()),
        ] {
            command.env(key, value);
        }
        Some(moto)
    };
    let status = command.status().unwrap();
    assert!(status.success(), "{name}: {status}");
    drop(moto);
}

fn config() -> Config {
    Config {
        size: Some(8 * MIB),
        lease: Duration::from_secs(2),
        ..Config::new(std::env::var("TIDEGATE_S3_URL").unwrap())
    }
}

#[test]
fn the_device_on_s3() {
    run("device");
}

#[test]
fn a_volume_through_the_cache_on_s3() {
    run("volume");
}

#[test]
fn a_server_that_was_stopped_sends_nothing_once_another_has_the_volume() {
    run("stopped");
}

/// Which process is to be stopped when its first put of an object arrives, and how many came after
/// that.
struct Proxy {
    process: Mutex<Option<u32>>,
    stopped: AtomicBool,
    puts_after: AtomicUsize,
}

impl Proxy {
    /// One request: to moto, but for the first put of an object. This one stops its sender, which
    /// finds an error when it goes on.
    fn serve(&self, mut client: TcpStream, moto: u16) -> std::io::Result<()> {
        let mut request = Vec::new();
        let mut piece = [0; 4096];
        let (head, len) = loop {
            let count = client.read(&mut piece)?;
            request.extend_from_slice(&piece[..count]);
            let text = String::from_utf8_lossy(&request).to_lowercase();
            if let Some(end) = text.find("\r\n\r\n") {
                let len = text
                    .lines()
                    .find_map(|line| line.strip_prefix("content-length: "));
                break (end + 4, len.map_or(0, |len| len.trim().parse().unwrap()));
            }
            if count == 0 {
                return Ok(());
            }
        };
        while request.len() < head + len {
            let count = client.read(&mut piece)?;
            request.extend_from_slice(&piece[..count]);
        }
        if request.starts_with(b"PUT /tidegate/volumes/one/0000") {
            if !self.stopped.load(Ordering::SeqCst) {
                signal("-STOP", self.process.lock().unwrap().unwrap());
                self.stopped.store(true, Ordering::SeqCst);
                let busy =
                    "HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                return client.write_all(busy.as_bytes());
            }
            self.puts_after.fetch_add(1, Ordering::SeqCst);
        }
        let mut store = TcpStream::connect(("127.0.0.1", moto))?;
        store.write_all(&request[..head - 2])?;
        store.write_all(b"Connection: close\r\n\r\n")?;
        store.write_all(&request[head..])?;
        let mut answer = Vec::new();
        store.read_to_end(&mut answer)?;
        client.write_all(&answer)
    }
}

fn until(mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < common::LONG, "it never is");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn signal(signal: &str, process: u32) {
    let mut command = Command::new("kill");
    let status = command.args([signal, &process.to_string()]).status();
    assert!(status.unwrap().success());
}

fn short() -> Config {
    Config {
        lease: Duration::from_secs(1),
        ..config()
    }
}

/// The other server: writes a page, and says what became of it.
#[test]
#[ignore = "run by `stopped`"]
fn holder() {
    let rig = Rig::new();
    let device = objects::open(&short(), Arc::clone(&rig.arena)).unwrap();
    let written = rig.write(&*device, 0, &[7; PAGE]);
    assert!(written.is_err(), "another has the volume");
}

#[test]
#[ignore = "run by `a_server_that_was_stopped_sends_nothing_once_another_has_the_volume`"]
fn stopped() {
    let Ok(moto) = std::env::var("MOTO_PORT") else {
        eprintln!("SKIPPED: stopped: the store is not ours to stand before");
        return;
    };
    let moto: u16 = moto.parse().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let proxy = Arc::new(Proxy {
        process: Mutex::new(None),
        stopped: AtomicBool::new(false),
        puts_after: AtomicUsize::new(0),
    });
    let served = Arc::clone(&proxy);
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let proxy = Arc::clone(&served);
            std::thread::spawn(move || proxy.serve(client, moto));
        }
    });
    // No server is stopped that is not known yet.
    let mut process = proxy.process.lock().unwrap();
    let mut holder = Command::new(std::env::current_exe().unwrap());
    holder.args(["--exact", "holder", "--ignored", "--nocapture"]);
    let child = holder.env("AWS_ENDPOINT", format!("http://127.0.0.1:{port}"));
    let mut child = Holder(child.spawn().unwrap());
    *process = Some(child.0.id());
    drop(process);
    until(|| proxy.stopped.load(Ordering::SeqCst));
    let rig = Rig::new();
    let mut opened = None;
    until(|| {
        opened = objects::open(&short(), Arc::clone(&rig.arena)).ok();
        opened.is_some()
    });
    let ours = opened.unwrap();
    assert_eq!(rig.read(&*ours, 0, PAGE).unwrap(), [0; PAGE]);
    signal("-CONT", child.0.id());
    let status = child.0.wait().unwrap();
    assert_eq!(
        proxy.puts_after.load(Ordering::SeqCst),
        0,
        "it sent its put again"
    );
    assert!(status.success(), "{status}");
    rig.write(&*ours, 0, &[8; PAGE]).unwrap();
    assert_eq!(rig.read(&*ours, 0, PAGE).unwrap(), [8; PAGE]);
    assert_eq!(ours.failure(), None);
}

/// A process that ends with its test.
struct Holder(Child);

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "run by `the_device_on_s3`"]
fn device() {
    let rig = Rig::new();
    let arena = || Arc::clone(&rig.arena);
    let missing = Config {
        url: "s3://no-such-bucket-here/x".into(),
        ..config()
    };
    match objects::open(&missing, arena()) {
        Err(error @ Error::Store { .. }) => {
            assert!(error.to_string().contains("make the bucket"), "{error}")
        }
        other => panic!("{:?}", other.map(|_| ())),
    }
    let nothing = Config {
        size: None,
        ..config()
    };
    assert!(matches!(
        objects::open(&nothing, arena()),
        Err(Error::NoVolume { .. })
    ));

    let first = objects::open(&config(), arena()).unwrap();
    let mut chance = Chance::new(11);
    let data: Vec<u8> = (0..2 * MIB / 8)
        .flat_map(|_| chance.next().to_le_bytes())
        .collect();
    rig.write(&*first, 0, &data[..MIB as usize]).unwrap();
    rig.write(&*first, MIB - 4 * PAGE as u64, &data[..8 * PAGE])
        .unwrap();
    let gets = first.counts().gets;
    assert_eq!(
        rig.read(&*first, PAGE as u64, 3 * PAGE).unwrap(),
        data[PAGE..4 * PAGE]
    );
    let counts = first.counts();
    assert_eq!((counts.gets, counts.failed), (gets + 1, 0), "{counts:?}");
    assert!(
        counts.bytes_read < MIB + (64 << 10),
        "a range is read, not the object: {counts:?}"
    );
    rig.discard(&*first, MIB, MIB).unwrap();
    assert_eq!(rig.read(&*first, MIB, 2 * PAGE).unwrap(), vec![0; 2 * PAGE]);
    rig.flush(&*first).unwrap();

    assert!(matches!(
        objects::open(&config(), arena()),
        Err(Error::InUse { .. })
    ));
    let forced = Config {
        force: true,
        ..config()
    };
    let second = objects::open(&forced, arena()).unwrap();
    assert_eq!(
        rig.write(&*first, 0, &data[..PAGE]),
        Err(IoError::Lost),
        "fenced"
    );
    assert_eq!(rig.read(&*second, 0, PAGE).unwrap(), data[..PAGE]);
    assert_eq!(
        rig.read(&*second, MIB - PAGE as u64, 2 * PAGE).unwrap()[..PAGE],
        data[3 * PAGE..4 * PAGE]
    );
    assert_eq!(second.extents(0, 8 * MIB), (MIB, false));
    rig.write(&*second, 0, &data[..PAGE]).unwrap();

    // A stranger, behind everybody's back.
    if let Ok(port) = std::env::var("MOTO_PORT") {
        let moto = std::mem::ManuallyDrop::new(Moto {
            child: Command::new("true").spawn().unwrap(),
            port: port.parse().unwrap(),
        });
        moto.put(
            "/tidegate/volumes/one/0000000000000000",
            &vec![7; MIB as usize],
        );
        assert_eq!(rig.write(&*second, 0, &data[..PAGE]), Err(IoError::Lost));
        assert!(second.failure().unwrap().contains("somebody else changed"));
    }
}

#[test]
#[ignore = "run by `a_volume_through_the_cache_on_s3`"]
fn volume() {
    let config = Config {
        size: Some(64 * MIB),
        ..config()
    };
    for round in 0..2 {
        let (cache, volume, device) = attach(16 << 20, |arena| objects::open(&config, arena));
        if round == 0 {
            let mut writer = cache.writer();
            for at in 0..24 {
                volume
                    .write(&mut writer, &block(at, 0), at * MIB, Mode::Blocking)
                    .unwrap();
            }
            volume.sync().unwrap();
        } else {
            let (mut cursor, mut data) = (Cursor::default(), vec![0; MIB as usize]);
            for at in 0..24 {
                volume
                    .read(&mut cursor, &mut data, at * MIB, Mode::Blocking)
                    .unwrap();
                assert!(data == block(at, 0), "{at}");
            }
        }
        println!("{:?}", device.counts());
        drop(volume);
        cache.close().unwrap();
        assert_eq!(device.failure(), None);
    }
}
