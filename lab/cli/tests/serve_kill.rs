//! `kill -9` in the middle of writes: nothing that was flushed is lost, and nothing is ever
//! garbage.
//!
//! Each round some clients write, write zeroes and trim over connections of their own, flush at
//! times, and have FUA at times; the server is killed at a moment by chance, started again on the
//! same backend, and every sector is read back. One of the clients is `qemu-io`
//! (`serving/qemu_io.rs`), with a part of the volume of its own.
//!
//! ```text
//!   sent[s]     the last version that was sent to it        bounds what may be there from above
//!   done[s]     the last version that was answered; a trim is advice, so its version is never `done`
//!   durable[s]  what `done` was before a flush that succeeded, or what was answered with FUA
//!   zeroed[s]   the last version that is zeroes
//! ```
//!
//! A flush covers what was answered on *any* connection (the server says `can_multi_conn`), so
//! `done` of all is looked at. A sector (512 bytes) holds its number and version over and over, so
//! a torn one is seen. Requests are of 1 to 128 sectors, at any sector: parts of pages are written,
//! too.
//!
//! The volume is a file, and then a directory of objects. `TIDEGATE_KILLS=N` sets the rounds (a
//! fifth of it over objects), `TIDEGATE_SEED=S` what happens in them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod serving;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serving::{Client, Folder, MIB, QemuIo, Random, Server, have, sparse, tell};

/// Rounds of `cargo test`.
const ROUNDS: u64 = 3;
/// Bytes that our own clients write: more than fits into the memory of the server.
const SIZE: u64 = 96 * MIB;
/// Bytes of the volume: those of qemu-io follow.
const WHOLE: u64 = SIZE + 4 * MIB;
const SECTOR: u64 = 512;
const SECTORS: u64 = SIZE / SECTOR;
/// Longest request, in sectors.
const LONGEST: u64 = 128;
/// Clients at once; each has a part of the volume of its own, in stripes.
const CLIENTS: u64 = 4;
/// Sectors of a stripe.
const STRIPE: u64 = 512;
/// Memory of the server.
const MEMORY: &str = "80MiB";
/// Longest time from the first write to the end of the server.
const LIFE_MS: u64 = 600;
/// A server that does so little for so long does not go on.
const HANGS: Duration = Duration::from_secs(60);

/// The versions of every sector.
struct Book {
    sent: Vec<AtomicU32>,
    done: Vec<AtomicU32>,
    durable: Vec<AtomicU32>,
    zeroed: Vec<AtomicU32>,
}

impl Book {
    fn new() -> Self {
        let column = || (0..SECTORS).map(|_| AtomicU32::new(0)).collect();
        Self {
            sent: column(),
            done: column(),
            durable: column(),
            zeroed: column(),
        }
    }

    /// An answered write is at least this old; FUA and flushes may come in any order.
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

#[derive(Default, Debug)]
struct Counts {
    writes: AtomicU64,
    fua: AtomicU64,
    flushes: AtomicU64,
    zeroes: AtomicU64,
    trims: AtomicU64,
}

impl Counts {
    /// Waits until this many writes and flushes were answered, however slow the machine; true if
    /// they were.
    fn wait_for(&self, writes: u64, flushes: u64) -> bool {
        let began = Instant::now();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        while count(&self.writes) < writes || count(&self.flushes) < flushes {
            if began.elapsed() > HANGS {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }
}

/// The effect of a request on its sectors.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Write,
    Zero,
    Trim,
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
                // Writes answered by now, of any client, are durable when the flush is answered.
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
                let kind = match choice {
                    2..=4 => Kind::Zero,
                    5 => Kind::Trim,
                    _ => Kind::Write,
                };
                let is_fua = matches!(choice, 1 | 2);
                data.clear();
                let mut versions = Vec::with_capacity(index(len));
                for sector in from..from + len {
                    // Its stripe is this client's alone.
                    let version = book.sent[index(sector)].fetch_add(1, Ordering::AcqRel) + 1;
                    versions.push((sector, version));
                    if kind == Kind::Write {
                        for _ in 0..SECTOR / 8 {
                            data.extend_from_slice(&word(sector, version));
                        }
                    } else {
                        book.zeroed[index(sector)].store(version, Ordering::Release);
                    }
                }
                let (offset, bytes) = (from * SECTOR, index(len * SECTOR));
                let (written, counter) = match kind {
                    Kind::Write if is_fua => (client.write(offset, &data, true), &counts.fua),
                    Kind::Write => (client.write(offset, &data, false), &counts.writes),
                    Kind::Zero => {
                        let keeps = choice == 3;
                        (client.zero(offset, bytes, is_fua, keeps), &counts.zeroes)
                    }
                    Kind::Trim => (client.trim(offset, bytes), &counts.trims),
                };
                if written.is_ok() {
                    for (sector, version) in versions {
                        if kind != Kind::Trim {
                            Book::raise(&book.done, sector, version);
                        }
                        if is_fua {
                            Book::raise(&book.durable, sector, version);
                        }
                    }
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
            let mut version = version_of(bytes, sector)
                .unwrap_or_else(|problem| panic!("round {round}: {problem}"));
            let (sent, durable) = (&book.sent[index(sector)], &book.durable[index(sector)]);
            let (newest, oldest) = (
                sent.load(Ordering::Acquire),
                durable.load(Ordering::Acquire),
            );
            let zeroed = &book.zeroed[index(sector)];
            if version == 0 {
                // Of all versions that are zeroes the last one: they are the same.
                version = zeroed.load(Ordering::Acquire);
            } else {
                // Zeroes of before did not come to be, and never will.
                zeroed.store(0, Ordering::Release);
            }
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
    let folder = Folder::new("kill");
    let volume = sparse(&folder, "disk", WHOLE);
    kills("over a file", &folder, &volume, rounds(), 20);
}

#[test]
fn killed_in_the_middle_of_puts() {
    if std::env::var_os("TIDEGATE_TEST_SERVER").is_some() {
        return tell("SKIPPED: killed_in_the_middle_of_puts: nbdkit has no such volumes");
    }
    let folder = Folder::new("kill-dir");
    let path = folder.path("objects");
    let volume = format!("disk=dir:{},size={WHOLE}B", path.display());
    let rounds = rounds().div_ceil(5);
    kills("over objects", &folder, &volume, rounds, 4);
}

fn rounds() -> u64 {
    number("TIDEGATE_KILLS").unwrap_or(ROUNDS)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Kills the server `rounds` times, with at least `least` writes and half as many flushes each time
/// on average.
fn kills(what: &str, folder: &Folder, volume: &str, rounds: u64, least: u64) {
    let seed = number("TIDEGATE_SEED").unwrap_or(1);
    let book = Book::new();
    let mut qemu_io =
        have("a client of others that is killed", &["qemu-io"]).then(|| QemuIo::new(SIZE..WHOLE));
    let began = Instant::now();
    let (mut lost, counts) = (0, Counts::default());
    let mut look = |server: &Server, qemu_io: &mut Option<QemuIo>, round| {
        lost += check(server, &book, round);
        if let Some(qemu_io) = qemu_io {
            qemu_io.check(&mut Client::connect(&server.socket, "disk"), round);
        }
    };
    for round in 0..rounds {
        let mut random = Random(seed ^ (round << 20));
        let mut server = Server::start(folder, MEMORY, &[volume]);
        if round > 0 {
            look(&server, &mut qemu_io, round);
        }
        let killed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for number in 0..CLIENTS {
                let client = Client::connect(&server.socket, "disk");
                let seed = random.next();
                let (book, counts, killed) = (&book, &counts, &killed);
                scope.spawn(move || write_until_killed(client, number, seed, book, counts, killed));
            }
            let mut other = None;
            if let Some(qemu_io) = &mut qemu_io {
                let ((child, talk), seed) = (QemuIo::start(&server), random.next());
                scope.spawn(move || qemu_io.work(talk, seed));
                other = Some(child);
            }
            std::thread::sleep(Duration::from_millis(20 + random.below(LIFE_MS)));
            // A round in which nothing happened shows nothing; that nothing is durable yet is worth
            // a kill, too.
            let went_on = counts.wait_for(least * (round + 1), round.div_ceil(2));
            killed.store(true, Ordering::Release);
            server.kill();
            if let Some(mut child) = other {
                child.kill().unwrap();
                child.wait().unwrap();
            }
            assert!(
                went_on,
                "round {round}: too little in {HANGS:?}: {counts:?}"
            );
        });
    }
    let mut server = Server::start(folder, MEMORY, &[volume]);
    look(&server, &mut qemu_io, rounds);
    server.stop_well();
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    tell(&format!(
        "{rounds} kills {what} in {:.1} s: {} writes, {} with FUA, {} of zeroes, {} trims, {} flushes, \
         {} commands of qemu-io; nothing flushed was lost ({lost} versions that were not)",
        began.elapsed().as_secs_f64(),
        count(&counts.writes),
        count(&counts.fua),
        count(&counts.zeroes),
        count(&counts.trims),
        count(&counts.flushes),
        qemu_io.map_or(0, |qemu_io| qemu_io.done),
    ));
}
