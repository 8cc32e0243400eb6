//! Hundreds of clients that come, stall, and vanish wherever they are: afterwards the server is as
//! it was before.
//!
//! One test in this process: its threads, descriptors and memory are counted.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test's helpers are its tests; its numbers are small"
)]

#[path = "common/certificates.rs"]
#[allow(dead_code, reason = "each test uses a part of it")]
mod certificates;
mod common;

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use certificates::{NOW, SERVER, authority, client as trusting, identity};
use common::{Dice, PAGE, Server, Setup, bytes, until};
use nbd::client::{Ask, Client, Handshake, Wishes, give_up_after};
use nbd::wire::{Command, CommandFlags, Request};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use serve::hub::Limits;

/// Connections at once that the server takes; more come.
const PLACES: usize = 48;
const AT_ONCE: u64 = 64;
const ROUNDS: u64 = 2;
const CLIENTS_EACH: u64 = 10;
const SIZE: u64 = 8 << 20;
const HANDSHAKE: Duration = Duration::from_millis(400);
/// Memory that may be resident beyond what was before. The allocator takes some MiB more with the
/// first thousands of clients and then no more (measured over 25,000 of each kind). A connection
/// has 24 KiB: were they not given back, it would be 30 MiB.
const MORE: u64 = 8 << 20;

/// The resources of this process.
#[derive(Debug)]
struct Has {
    threads: usize,
    descriptors: usize,
    resident: u64,
}

impl Has {
    fn now() -> Self {
        let entries = |folder| std::fs::read_dir(folder).unwrap().count();
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
        Self {
            threads: entries("/proc/self/task"),
            descriptors: entries("/proc/self/fd"),
            resident: pages * PAGE as u64,
        }
    }
}

fn request(command: Command, offset: u64, len: u32) -> [u8; 28] {
    let request = Request {
        flags: CommandFlags::NONE,
        command,
        cookie: offset,
        offset,
        len,
    };
    request.encode()
}

/// One client, which may be turned away at any step: then it is gone, too.
fn one(server: &Server, hello: &[u8], dice: &mut Dice) -> Option<()> {
    let kind = dice.below(9);
    let pause = Duration::from_millis(dice.below(20));
    let at = dice.below(SIZE / PAGE as u64 - 256) * PAGE as u64;
    let mut stream = UnixStream::connect(&server.socket).ok()?;
    give_up_after(&stream, common::LONG).ok()?;
    let with = |stream| -> Option<Client<UnixStream>> {
        Handshake::begin(stream)
            .ok()?
            .go(&Wishes::export("").simple())
            .ok()
    };
    match kind {
        // It says nothing, for a little or for too long.
        0 => std::thread::sleep(if dice.below(8) == 0 {
            2 * HANDSHAKE
        } else {
            pause
        }),
        // It leaves in the middle of an option.
        1 => {
            stream
                .write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x07\0\0\x10\0abc")
                .ok()?;
            std::thread::sleep(pause);
        }
        // In the middle of a TLS handshake: part of a greeting, or what is none.
        2 | 3 => {
            let mut stream = Handshake::begin(stream).ok()?.start_tls().ok()?;
            let part = dice.below(hello.len() as u64) as usize;
            let sent: &[u8] = if kind == 2 {
                &hello[..part]
            } else {
                b"\x16\x03\x01\xff\xff nonsense"
            };
            stream.write_all(sent).ok()?;
            std::thread::sleep(pause);
        }
        // In the middle of a payload.
        4 => {
            let client = with(stream)?;
            let mut sent = request(Command::Write, at, 1 << 20).to_vec();
            sent.resize(28 + dice.below(300_000) as usize, 7);
            client.stream().write_all(&sent).ok()?;
            std::thread::sleep(pause);
        }
        // With a hundred replies that it never takes.
        5 => {
            let mut client = with(stream)?;
            for _ in 0..100 {
                client.submit(Ask::read(at, 256 << 10)).ok()?;
            }
            std::thread::sleep(pause);
        }
        // Half open: it hears of what it asked, and is not waited for.
        6 => {
            let client = with(stream)?;
            let mut stream = client.stream();
            stream.write_all(&request(Command::Read, at, 4096)).ok()?;
            stream.shutdown(Shutdown::Write).ok()?;
            stream.read_to_end(&mut Vec::new()).ok()?;
        }
        // Slow, and served.
        7 => {
            let client = with(stream)?;
            let mut sent = request(Command::Write, at, 4096).to_vec();
            sent.resize(28 + 4096, 9);
            for piece in sent.chunks(1000) {
                client.stream().write_all(piece).ok()?;
                std::thread::sleep(Duration::from_millis(2));
            }
            let mut reply = [0; 16];
            client.stream().read_exact(&mut reply).ok()?;
            assert_eq!(reply[4..8], [0; 4]);
        }
        // As it should be.
        _ => {
            let mut client = with(stream)?;
            client.write(at, &bytes(at, PAGE)).ok()?;
            client.flush().ok()?;
            client.disconnect().ok()?;
        }
    }
    Some(())
}

fn churn(server: &Server, hello: &[u8], seed: u64) {
    std::thread::scope(|scope| {
        for thread in 0..AT_ONCE {
            let body = move || {
                let mut dice = Dice::new(seed * AT_ONCE + thread + 1);
                for _ in 0..CLIENTS_EACH {
                    let _ = one(server, hello, &mut dice);
                }
            };
            let builder = std::thread::Builder::new().stack_size(512 << 10);
            builder.spawn_scoped(scope, body).unwrap();
        }
    });
    server.wait("all is given back", Server::is_at_rest);
}

#[test]
fn clients_that_vanish_leave_nothing() {
    let server = Server::start(Setup {
        size: SIZE,
        limits: Limits {
            connections: PLACES,
            ..Limits::default()
        },
        ..Setup::default()
    });
    let patient = server.hub.limits();
    let ours = authority("ours");
    let own = identity(&ours, SERVER, NOW);
    server.secure([&own.certificate, &own.key], [None, None], false);
    let name = ServerName::try_from("localhost").unwrap();
    let mut session = ClientConnection::new(trusting(&ours, None), name).unwrap();
    let mut hello = Vec::new();
    session.write_tls(&mut hello).unwrap();
    // All of the volume is in memory, and things made once are made.
    let mut client = server.client();
    for at in 0..SIZE >> 20 {
        client.write(at << 20, &bytes(at, 1 << 20)).unwrap();
    }
    drop(client);
    server.hub.set_limits(Limits {
        handshake: HANDSHAKE,
        ..patient
    });
    churn(&server, &hello, 1);
    let before = Has::now();
    let began = Instant::now();
    for seed in 2..ROUNDS + 2 {
        churn(&server, &hello, seed);
    }
    let pool = serve::pool::THREADS;
    // A socket that is closed is gone a moment later.
    until("descriptors are closed", || {
        Has::now().descriptors <= before.descriptors
    });
    let after = Has::now();
    println!(
        "{} clients in {:.1} s: {before:?} before, {after:?} after",
        ROUNDS * AT_ONCE * CLIENTS_EACH,
        began.elapsed().as_secs_f64()
    );
    assert!(
        after.threads <= before.threads + pool,
        "{before:?} {after:?}"
    );
    assert!(
        after.resident <= before.resident + MORE,
        "{before:?} {after:?}"
    );
    assert_eq!(server.cache.stats().pinned, 0);
    // Every place is free, however long it takes to find that out.
    server.hub.set_limits(patient);
    let all: Vec<_> = (0..PLACES).map(|_| server.client()).collect();
    assert_eq!(all.len(), PLACES);
}
