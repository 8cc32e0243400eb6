//! Against a server that speaks S3: moto, started here, or the one that the environment names.
//!
//! `TIDEGATE_S3_URL=s3://BUCKET/PREFIX` with AWS_ENDPOINT and credentials runs it against that; the prefix should be
//! an empty place. Without it and without `moto_server` (pip install 'moto[server]') it is skipped, and says so.
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
use std::sync::Arc;
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

/// Runs one of the tests below in a process of its own: the client takes its settings from the environment.
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
