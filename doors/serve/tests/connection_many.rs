//! A thousand connections: what they take, and whether each gets its share.
//!
//! One test at a time in this process: memory is measured.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test's helpers are its tests; its numbers are small"
)]

mod common;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{LONG, PAGE, Server, Setup, allow_descriptors, bytes};
use nbd::client::give_up_after;
use nbd::wire::{Command, CommandFlags, Request};

/// Writes of each client, on average, of which shares are made.
const EACH: u64 = 600;

/// A connection without memory of its own: the rest of the process is the server's.
struct Thin(UnixStream);

impl Thin {
    fn connect(path: &Path) -> Self {
        let mut stream = UnixStream::connect(path).unwrap();
        give_up_after(&stream, LONG).unwrap();
        let mut sent = Vec::new();
        sent.extend_from_slice(&3_u32.to_be_bytes());
        sent.extend_from_slice(b"IHAVEOPT");
        sent.extend_from_slice(&7_u32.to_be_bytes());
        sent.extend_from_slice(&6_u32.to_be_bytes());
        sent.extend_from_slice(&[0; 6]);
        stream.write_all(&sent).unwrap();
        let mut answer = [0; 18 + 32 + 20];
        stream.read_exact(&mut answer).unwrap();
        Self(stream)
    }

    fn ask(&mut self, command: Command, offset: u64, len: u32, data: &[u8]) {
        let request = Request {
            flags: CommandFlags::NONE,
            command,
            cookie: offset,
            offset,
            len,
        };
        let mut sent = request.encode().to_vec();
        sent.extend_from_slice(data);
        self.0.write_all(&sent).unwrap();
    }

    fn done(&mut self) {
        let mut reply = [0; 16];
        self.0.read_exact(&mut reply).unwrap();
        assert_eq!(reply[4..8], [0; 4], "it failed");
    }
}

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * PAGE as u64
}

#[test]
fn a_connection_takes_no_more_than_is_said() {
    allow_descriptors();
    let server = Server::start(Setup::default());
    // Things that are made once: buffers, threads, the pages of the cache that are used here.
    let mut warm: Vec<_> = (0..20).map(|_| Thin::connect(&server.socket)).collect();
    let data = bytes(1, PAGE);
    for client in &mut warm {
        for at in 0..8_u64 {
            client.ask(Command::Write, at * PAGE as u64, 4096, &data);
            client.done();
        }
    }
    let before = resident();
    let mut clients: Vec<_> = (0..980).map(|_| Thin::connect(&server.socket)).collect();
    let idle = resident() - before;
    for client in &mut clients {
        for at in 0..8_u64 {
            client.ask(Command::Write, at * PAGE as u64, 4096, &data);
        }
        // And a write that has to be kept: a part of a page.
        client.ask(Command::Write, 0, 4096, &data[..4000]);
        for _ in 0..8 {
            client.done();
        }
    }
    let used = resident() - before;
    println!(
        "a connection: {} bytes idle, {} bytes that has written and holds a part of a page",
        idle / 980,
        used / 980
    );
    assert!(
        idle / 980 < serve::limits::CONNECTION_BYTES,
        "{} idle",
        idle / 980
    );
    assert!(
        used / 980 <= serve::limits::CONNECTION_BYTES,
        "{} used",
        used / 980
    );
    for client in &mut clients {
        client.0.write_all(&data[4000..]).unwrap();
        client.done();
    }
    drop((warm, clients));
    server.wait("all is given back", Server::is_at_rest);
    starves_nobody();
}

/// Bytes of the volume that many write to.
const VOLUME: u64 = 64 << 20;

/// A hundred of a thousand write to a slow device through a small cache.
fn starves_nobody() {
    let server = Server::start(Setup {
        memory: 48 << 20,
        // Small enough to be written nearly everywhere: a file of many single blocks takes minutes
        // to remove from an ext4 without a journal that discards each of them (`discard`).
        size: VOLUME,
        layers: "slow:rate=64MiB,latency=1ms,depth=8",
        ..Setup::default()
    });
    let idle: Vec<_> = (0..900).map(|_| Thin::connect(&server.socket)).collect();
    let is_over = AtomicBool::new(false);
    let counts: Vec<AtomicU64> = (0..100).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for (index, count) in counts.iter().enumerate() {
            let (is_over, server) = (&is_over, &server);
            let body = move || {
                let mut client = Thin::connect(&server.socket);
                let data = bytes(index as u64, PAGE);
                let mut dice = common::Dice::new(index as u64 + 1);
                let mut at = || dice.below(VOLUME / PAGE as u64) * PAGE as u64;
                for _ in 0..4 {
                    client.ask(Command::Write, at(), 4096, &data);
                }
                while !is_over.load(Ordering::Relaxed) {
                    client.done();
                    count.fetch_add(1, Ordering::Relaxed);
                    client.ask(Command::Write, at(), 4096, &data);
                }
            };
            let thread = std::thread::Builder::new().stack_size(128 << 10);
            thread.spawn_scoped(scope, body).unwrap();
        }
        // Until it is paced, and then until each has written so much that what one happened to get
        // says something, however slow the machine is.
        let wait_for = |sum: u64| {
            let began = Instant::now();
            while read(&counts).iter().sum::<u64>() < sum && began.elapsed() < 3 * LONG {
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        wait_for(100 * EACH / 2);
        let before: Vec<u64> = read(&counts);
        let began = Instant::now();
        wait_for(before.iter().sum::<u64>() + 100 * EACH);
        let after: Vec<u64> = read(&counts);
        let took = began.elapsed();
        is_over.store(true, Ordering::Relaxed);
        let each: Vec<u64> = before.iter().zip(&after).map(|(b, a)| a - b).collect();
        let mean = each.iter().sum::<u64>() / each.len() as u64;
        let (least, most) = (*each.iter().min().unwrap(), *each.iter().max().unwrap());
        println!("in {took:?}: {least} to {most} writes each, {mean} on average");
        let held = server.export.counters.held_total.load(Ordering::Relaxed);
        assert!(held > 100, "nobody was paced");
        assert!(mean > 0 && least * 2 >= mean, "{each:?}");
    });
    assert_eq!(idle.len(), 900);
}

fn read(counts: &[AtomicU64]) -> Vec<u64> {
    counts
        .iter()
        .map(|count| count.load(Ordering::Relaxed))
        .collect()
}
