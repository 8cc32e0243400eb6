//! `kill -9` in the middle of writes: nothing that was flushed is lost, and nothing is ever garbage.
//!
//! Each round some clients write over connections of their own, flush at times, and write with FUA at times; the server
//! is killed at a moment by chance, started again on the same file, and every sector is read back.
//!
//! ```text
//!   sent[s]     the last version that was sent to it        bounds what may be there from above
//!   done[s]     the last version that was answered
//!   durable[s]  what `done` was before a flush that succeeded, or what was answered with FUA
//! ```
//!
//! A flush covers what was answered on *any* connection (the server says `can_multi_conn`), so `done` of all is looked at.
//! A sector (512 bytes) holds its number and version over and over, so a torn one is seen. Requests are of 1 to 128
//! sectors, at any sector: parts of pages are written, too.
//!
//! `TIDEGATE_KILLS=N` sets the rounds, `TIDEGATE_SEED=S` what happens in them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![cfg(feature = "serve")]

mod serving;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serving::{Client, Folder, MIB, Random, Server, sparse, tell};

/// Rounds of `cargo test`.
const ROUNDS: u64 = 3;
/// Bytes of the volume: more than fits into the memory of the server.
const SIZE: u64 = 96 * MIB;
const SECTOR: u64 = 512;
const SECTORS: u64 = SIZE / SECTOR;
/// Longest request, in sectors.
const LONGEST: u64 = 128;
/// Clients at once; each has a part of the volume of its own, in stripes.
const CLIENTS: u64 = 4;
/// Sectors of a stripe.
const STRIPE: u64 = 512;
/// Longest time from the first write to the end of the server.
const LIFE_MS: u64 = 600;

/// What is known of every sector.
struct Book {
    sent: Vec<AtomicU32>,
    done: Vec<AtomicU32>,
    durable: Vec<AtomicU32>,
}

impl Book {
    fn new() -> Self {
        let column = || (0..SECTORS).map(|_| AtomicU32::new(0)).collect();
        Self {
            sent: column(),
            done: column(),
            durable: column(),
        }
    }

    /// What is answered is at least this old; FUA and flushes may come in any order.
    fn raise(column: &[AtomicU32], sector: u64, version: u32) {
        column[index(sector)].fetch_max(version, Ordering::AcqRel);
    }
}

fn index(sector: u64) -> usize {
    usize::try_from(sector).unwrap()
}

fn word(sector: u64, version: u32) -> [u8; 8] {
    let sector = u32::try_from(sector).unwrap();
    ((u64::from(sector) << 32) | u64::from(version)).to_le_bytes()
}

/// The version in a sector; zero where nothing was written.
fn version_of(data: &[u8], sector: u64) -> Result<u32, String> {
    let first: [u8; 8] = data[..8].try_into().unwrap();
    if data.chunks_exact(8).any(|part| part != first) {
        return Err(format!("sector {sector} is torn"));
    }
    let value = u64::from_le_bytes(first);
    if value == 0 {
        return Ok(0);
    }
    if value >> 32 != sector {
        return Err(format!(
            "sector {sector} has what belongs to {}",
            value >> 32
        ));
    }
    Ok(u32::try_from(value & 0xffff_ffff).unwrap())
}

#[derive(Default)]
struct Counts {
    writes: AtomicU64,
    fua: AtomicU64,
    flushes: AtomicU64,
}

/// Writes until the server is gone.
fn write_until_killed(
    mut client: Client,
    number: u64,
    seed: u64,
    book: &Book,
    counts: &Counts,
    killed: &AtomicBool,
) {
    let mut random = Random(seed);
    let mut data = Vec::new();
    loop {
        let result = match random.below(40) {
            0 => {
                // What is answered by now, by whomever, is durable when the flush is answered.
                let before: Vec<u32> = book
                    .done
                    .iter()
                    .map(|done| done.load(Ordering::Acquire))
                    .collect();
                let flushed = client.flush();
                if flushed.is_ok() {
                    for (sector, version) in before.into_iter().enumerate() {
                        book.durable[sector].fetch_max(version, Ordering::AcqRel);
                    }
                    counts.flushes.fetch_add(1, Ordering::Relaxed);
                }
                flushed
            }
            choice => {
                let stripes = SECTORS / STRIPE / CLIENTS;
                let stripe = random.below(stripes) * CLIENTS + number;
                let longest = if random.below(3) == 0 { LONGEST } else { 16 };
                let len = 1 + random.below(longest);
                let from = stripe * STRIPE + random.below(STRIPE - len + 1);
                data.clear();
                let mut versions = Vec::with_capacity(index(len));
                for sector in from..from + len {
                    // Its stripe is this client's alone.
                    let version = book.sent[index(sector)].fetch_add(1, Ordering::AcqRel) + 1;
                    versions.push((sector, version));
                    for _ in 0..SECTOR / 8 {
                        data.extend_from_slice(&word(sector, version));
                    }
                }
                let is_fua = choice == 1;
                let written = client.write(from * SECTOR, &data, is_fua);
                if written.is_ok() {
                    for (sector, version) in versions {
                        Book::raise(&book.done, sector, version);
                        if is_fua {
                            Book::raise(&book.durable, sector, version);
                        }
                    }
                    let counter = if is_fua { &counts.fua } else { &counts.writes };
                    counter.fetch_add(1, Ordering::Relaxed);
                }
                written
            }
        };
        if let Err(error) = result {
            // Nothing fails before: the disk is whole.
            assert!(killed.load(Ordering::Acquire), "client {number}: {error}");
            return;
        }
    }
}

/// Reads everything and compares it with the book, which then begins from what is there.
fn check(server: &Server, book: &Book, round: u64) -> u64 {
    let mut client = Client::connect(&server.socket, "disk");
    let mut data = vec![0; 1 << 20];
    let mut lost = 0;
    let per_read = data.len() as u64 / SECTOR;
    for first in (0..SECTORS).step_by(data.len() / 512) {
        client.read(first * SECTOR, &mut data).unwrap();
        for (at, bytes) in data.chunks_exact(512).enumerate() {
            let sector = first + at as u64;
            let version = version_of(bytes, sector)
                .unwrap_or_else(|problem| panic!("round {round}: {problem}"));
            let (sent, durable) = (&book.sent[index(sector)], &book.durable[index(sector)]);
            let (newest, oldest) = (
                sent.load(Ordering::Acquire),
                durable.load(Ordering::Acquire),
            );
            assert!(
                (oldest..=newest).contains(&version),
                "round {round}: sector {sector} has version {version}; {oldest} was flushed, \
                 {newest} was the last that was sent"
            );
            lost += u64::from(newest - version);
            // The file has it: the server that wrote it is gone. Versions never come again.
            book.done[index(sector)].store(version, Ordering::Release);
            durable.store(version, Ordering::Release);
        }
        assert_eq!(per_read, (data.len() / 512) as u64);
    }
    lost
}

#[test]
fn killed_in_the_middle_of_writes() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let rounds = number("TIDEGATE_KILLS").unwrap_or(ROUNDS);
    let seed = number("TIDEGATE_SEED").unwrap_or(1);
    let folder = Folder::new("kill");
    let volume = sparse(&folder, "disk", SIZE);
    let book = Book::new();
    let began = Instant::now();
    let (mut lost, counts) = (0, Counts::default());
    for round in 0..rounds {
        let mut random = Random(seed ^ (round << 20));
        let mut server = Server::start(&folder, "80MiB", &[&volume]);
        if round > 0 {
            lost += check(&server, &book, round);
        }
        let killed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for number in 0..CLIENTS {
                let client = Client::connect(&server.socket, "disk");
                let seed = random.next();
                let (book, counts, killed) = (&book, &counts, &killed);
                scope.spawn(move || write_until_killed(client, number, seed, book, counts, killed));
            }
            std::thread::sleep(Duration::from_millis(20 + random.below(LIFE_MS)));
            killed.store(true, Ordering::Release);
            server.kill();
        });
    }
    let mut server = Server::start(&folder, "80MiB", &[&volume]);
    lost += check(&server, &book, rounds);
    server.stop_well();
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (writes, fua, flushes) = (
        count(&counts.writes),
        count(&counts.fua),
        count(&counts.flushes),
    );
    tell(&format!(
        "{rounds} kills in {:.1} s: {writes} writes, {fua} with FUA, {flushes} flushes; nothing flushed was lost \
         ({lost} versions that were not)",
        began.elapsed().as_secs_f64()
    ));
    // A round in which nothing happened shows nothing.
    assert!(writes >= rounds * 50, "{writes} writes in {rounds} rounds");
    assert!(flushes >= rounds, "{flushes} flushes in {rounds} rounds");
}
