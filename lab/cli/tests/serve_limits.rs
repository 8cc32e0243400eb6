//! The promises of `tidegate serve` about its limits, with clients that write as much as they may:
//! a memory limit that holds, a thousand connections of which none is starved, a volume that hangs
//! and hurts nobody else.
//!
//! By default at a size that takes seconds; `TIDEGATE_FULL=1` is the size that the figures of
//! docs/work/bench.md are of (`cargo instruments bench serve`). Each test prints its figures.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod serving;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use serving::{Client, Folder, MIB, Random, Server, sparse, tell};

/// Memory beyond the limit that is allowed.
const OVER: f64 = 1.05;
/// Tries of a figure that the rest of the machine has a share in: what is wrong with the server is
/// wrong in each.
const TRIES: usize = 3;

fn is_full() -> bool {
    std::env::var_os("TIDEGATE_FULL").is_some()
}

/// One at a time: each wants the machine for itself.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Fills with what belongs there and nowhere else.
fn fill(data: &mut [u8], offset: u64, seed: u64) {
    for (at, page) in data.chunks_mut(4096).enumerate() {
        Random(seed ^ (offset / 4096 + at as u64).wrapping_mul(0x9e37)).fill(page);
    }
}

/// The highest resident memory of a server by the limit that it was given.
fn by_limit(server: &Server, limit: u64) -> (f64, String) {
    let (now, most) = server.resident();
    let ratio = most as f64 / limit as f64;
    let mib = |bytes: u64| bytes as f64 / MIB as f64;
    let said = format!(
        "resident at most {:.1} MiB, {:.1} at the end, of {:.0} MiB: {ratio:.3} of the limit",
        mib(most),
        mib(now),
        mib(limit)
    );
    (ratio, said)
}

/// A limit of 64 MiB, and far more is written than fits: never an error, and all of it is there.
#[test]
fn more_than_fits() {
    let _alone = alone();
    let size = if is_full() { 1024 } else { 256 } * MIB;
    let limit = 64 * MIB;
    let folder = Folder::new("more");
    let volume = sparse(&folder, "disk", size);
    let mut server = Server::start(&folder, "64MiB", &[&volume]);
    let began = Instant::now();
    let (len, writers) = (256 << 10, 4);
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let mut client = Client::connect(&server.socket, "disk");
            scope.spawn(move || {
                let mut data = vec![0; len];
                for offset in (writer * len as u64..size).step_by(len * 4) {
                    fill(&mut data, offset, 1);
                    client.write(offset, &data, false).unwrap();
                }
                client.flush().unwrap();
            });
        }
    });
    let wrote = began.elapsed().as_secs_f64();
    let mut client = Client::connect(&server.socket, "disk");
    let (mut data, mut wanted) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    for offset in (0..size).step_by(1 << 20) {
        client.read(offset, &mut data).unwrap();
        fill(&mut wanted, offset, 1);
        assert!(data == wanted, "wrong bytes in the MiB at {offset}");
    }
    drop(client);
    let (ratio, said) = by_limit(&server, limit);
    tell(&format!(
        "more_than_fits: {} MiB written in {wrote:.1} s and read back right; {said}",
        size / MIB
    ));
    server.stop_well();
    assert!(ratio <= OVER, "{said}");
}

/// Writes of a connection, on average, of which shares are made.
const WRITES_EACH: u64 = 100;

fn done_all(done: &[AtomicU64]) -> u64 {
    done.iter().map(|done| done.load(Ordering::Relaxed)).sum()
}

/// Many connections, a tenth of which write: memory holds, and none is starved.
#[test]
fn many_connections() {
    let _alone = alone();
    let (connections, writing, lasting) = if is_full() {
        (1000_u64, 100_u64, Duration::from_secs(20))
    } else {
        (200, 20, Duration::from_secs(4))
    };
    let limit = 256 * MIB;
    let folder = Folder::new("many");
    let size = 512 * MIB;
    let volume = sparse(&folder, "disk", size);
    let mut server = Server::start(&folder, "256MiB", &[&volume]);
    let idle: Vec<Client> = (0..connections - writing)
        .map(|_| Client::connect(&server.socket, "disk"))
        .collect();
    let start = Barrier::new(usize::try_from(writing).unwrap());
    let began = Instant::now();
    let done: Vec<AtomicU64> = (0..writing).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for (writer, own) in done.iter().enumerate() {
            let mut client = Client::connect(&server.socket, "disk");
            let (start, all) = (&start, &done);
            // The threads of the clients are many; their stacks are not what is measured.
            let small = std::thread::Builder::new().stack_size(128 << 10);
            let body = move || {
                let mut random = Random(writer as u64);
                let mut data = vec![0; 64 << 10];
                random.fill(&mut data);
                start.wait();
                let began = Instant::now();
                // Long enough on a slow disk, too, for shares to say something; but not for ever.
                let mean = || done_all(all) / writing;
                while began.elapsed() < lasting
                    || (mean() < WRITES_EACH && began.elapsed() < 10 * lasting)
                {
                    let slots = size / writing / data.len() as u64;
                    let slot = random.below(slots) * writing + writer as u64;
                    client
                        .write(slot * data.len() as u64, &data, false)
                        .unwrap();
                    own.fetch_add(1, Ordering::Relaxed);
                }
            };
            small.spawn_scoped(scope, body).unwrap();
        }
    });
    let (ratio, said) = by_limit(&server, limit);
    let done: Vec<u64> = done
        .iter()
        .map(|done| done.load(Ordering::Relaxed))
        .collect();
    let mean = done.iter().sum::<u64>() as f64 / writing as f64;
    let took = began.elapsed();
    let slowest = *done.iter().min().unwrap() as f64 / mean;
    tell(&format!(
        "many_connections: {connections} connections, {writing} writing, mean {:.1} MiB/s each, the slowest \
         {slowest:.2} of the mean; {said}",
        mean / 16.0 / took.as_secs_f64()
    ));
    // The silent ones are still served.
    for mut client in idle.into_iter().step_by(50) {
        let mut data = [0; 512];
        client.read(0, &mut data).unwrap();
    }
    server.stop_well();
    assert!(ratio <= OVER, "{said}");
    assert!(
        slowest >= 0.5,
        "the slowest did {slowest:.2} of the mean: {done:?}"
    );
}

/// Writes of 4 KiB by chance for a time; answers how many, and the longest.
fn write_for(client: &mut Client, lasting: Duration, seed: u64, size: u64) -> (u64, Duration) {
    let mut random = Random(seed);
    let mut data = vec![0; 4096];
    let (mut writes, mut longest) = (0, Duration::ZERO);
    let began = Instant::now();
    while began.elapsed() < lasting {
        let offset = random.below(size / 4096) * 4096;
        fill(&mut data, offset, 2);
        let from = Instant::now();
        client.write(offset, &data, false).unwrap();
        longest = longest.max(from.elapsed());
        writes += 1;
    }
    (writes, longest)
}

/// Two volumes, one of which hangs: the other goes on as if it were alone; clients of the hung
/// volume wait, and the data they wrote and flushed are there when it comes back.
#[test]
fn one_of_two_hangs() {
    let _alone = alone();
    let mut ratios = Vec::new();
    while ratios.len() < TRIES && ratios.iter().all(|ratio| *ratio < 0.9) {
        ratios.push(while_one_hangs());
    }
    assert!(
        ratios.iter().any(|ratio| *ratio >= 0.9),
        "the other did {ratios:.2?} of what it does alone"
    );
}

/// The work of the other while one of two hung, over its work alone.
fn while_one_hangs() -> f64 {
    // The device hangs from the start of the server plus `at`, for so long.
    let (at, hang, part) = if is_full() { (24, 30, 10) } else { (8, 6, 3) };
    let folder = Folder::new("hung");
    let size = 128 * MIB;
    let well = sparse(&folder, "well", size);
    let hung = sparse(&folder, "hung", size);
    // Both are slow in the same way, so that the rate is that of the device and not of this
    // machine's moment.
    let slow = "slow:rate=24MiB";
    let well = format!("{well},device={slow}");
    let hung = format!("{hung},device={slow}+faulty:hang_at={at}s,hang_for={hang}s");
    let began = Instant::now();
    let mut server = Server::start(&folder, "192MiB", &[&well, &hung]);
    let until = |seconds: u64| {
        let moment = began + Duration::from_secs(seconds);
        std::thread::sleep(moment.saturating_duration_since(Instant::now()));
    };
    let lasting = Duration::from_secs(part);
    let mut client = Client::connect(&server.socket, "well");
    // The level is reached first, then the rate is measured: what fits below the level is taken at
    // once.
    write_for(&mut client, lasting, 1, size);
    let (solo, _) = write_for(&mut client, lasting, 2, size);
    let stop = AtomicBool::new(false);
    let waited = std::thread::scope(|scope| {
        let (server, stop) = (&server, &stop);
        // Writes and flushes all the time; what was flushed is what is looked at in the end.
        let beside = scope.spawn(move || {
            let mut client = Client::connect(&server.socket, "hung");
            let mut data = vec![0; 64 << 10];
            let (mut flushed, mut longest) = (0, Duration::ZERO);
            for offset in (0..size).step_by(data.len()).cycle() {
                fill(&mut data, offset, 3);
                let from = Instant::now();
                client.write(offset, &data, false).unwrap();
                if offset % MIB == 0 {
                    client.flush().unwrap();
                    flushed = flushed.max(offset + data.len() as u64);
                }
                longest = longest.max(from.elapsed());
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
            (flushed, longest)
        });
        until(at + 1);
        let during = write_for(&mut client, lasting, 4, size);
        until(at + hang + 2);
        stop.store(true, Ordering::Relaxed);
        let (flushed, longest) = beside.join().unwrap();
        (during, flushed, longest)
    });
    let ((during, worst), flushed, longest) = waited;
    let ratio = during as f64 / solo as f64;
    tell(&format!(
        "one_of_two_hangs: for {hang} s; the other did {during} writes in {part} s, alone {solo}: {ratio:.2}, its \
         longest {:.0} ms; the clients of the one that hangs waited {:.1} s; {} MiB flushed there",
        worst.as_secs_f64() * 1e3,
        longest.as_secs_f64(),
        flushed / MIB
    ));
    assert!(flushed > 0);
    server.kill();
    // Nothing but what was flushed is left: from the file itself.
    let file = std::fs::read(folder.path("hung")).unwrap();
    let mut wanted = vec![0; 4096];
    for offset in (0..flushed).step_by(4096) {
        fill(&mut wanted, offset, 3);
        let at = usize::try_from(offset).unwrap();
        assert!(file[at..at + 4096] == wanted[..], "lost at {offset}");
    }
    // A machine that came to it only when the device was nearly back has shown nothing.
    if longest >= Duration::from_secs(hang / 2) {
        ratio
    } else {
        0.0
    }
}
