//! `tidegate demo map`: a map of a file on a slow disk, the kernel's and ours, in a minute.
//!
//! ```text
//!   heavy storer   as fast as it may, all over the file but its first part --.
//!   light storer   a page every 2 ms, in 16 MiB of it                        |--> a map --> disk
//!   hot reader     a page every 0.5 ms, in 8 MiB of it                     --'     32 MiB    4 MB/s
//! ```
//!
//! Both sides have the same disk, the same memory and the same load, one after the other. A stall
//! is the time of one load or store. Afterwards the disk is compared with what was stored.

mod disk;
mod kernel;

use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tidegate::{Advice, Cache, Map, MapOptions, OpenOptions};

use super::load::Lengths;
use super::table::shown;
use super::{DemoError, Folder, say};
use crate::config::show_size;
use disk::Disk;
use kernel::KernelMap;

/// Bytes of the file.
const LEN: u64 = 256 << 20;
/// Bytes a second that the disk takes: less than a heavy storer makes dirty on a slow machine, too.
const RATE: u64 = 4_000_000;
/// The limit of both sides, and what the kernel's may have beside its pages: its page tables are
/// in its group.
const MEMORY: u64 = 32 << 20;
const BESIDE: u64 = 8 << 20;
const PAGE: u64 = 4096;
/// The pages of the reader, of the light storer, and behind them those of the heavy one.
const HOT: u64 = (8 << 20) / PAGE;
const LIGHT: u64 = (16 << 20) / PAGE;
const HEAVY: u64 = LEN / PAGE - HOT - LIGHT;
/// Length of each side, seconds.
pub const SECONDS: std::ops::RangeInclusive<u64> = 2..=600;
/// Unless another one is asked for.
pub const DEFAULT: u64 = 20;

/// A map of either.
enum Mapped {
    Kernel(KernelMap),
    Ours(Map),
}

impl Mapped {
    fn load(&self, at: u64) -> Result<u64, tidegate::Error> {
        match self {
            Self::Kernel(map) => Ok(map.load(usize::try_from(at).expect("64 bits"))),
            Self::Ours(map) => {
                let mut word = [0; 8];
                map.read_into(&mut word, at)?;
                Ok(u64::from_ne_bytes(word))
            }
        }
    }

    fn store(&self, at: u64, value: u64) -> Result<(), tidegate::Error> {
        match self {
            Self::Kernel(map) => map.store(usize::try_from(at).expect("64 bits"), value),
            Self::Ours(map) => map.write_from(&value.to_ne_bytes(), at)?,
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), DemoError> {
        match self {
            Self::Kernel(map) => map.sync().map_err(DemoError::io("msync")),
            Self::Ours(map) => Ok(map.sync(0..LEN)?),
        }
    }
}

/// One of the load.
struct Client {
    name: &'static str,
    pages: std::ops::Range<u64>,
    every: Duration,
    stores: bool,
}

const CLIENTS: [Client; 3] = [
    Client {
        name: "heavy storer",
        pages: HOT + LIGHT..HOT + LIGHT + HEAVY,
        every: Duration::ZERO,
        stores: true,
    },
    Client {
        name: "light storer",
        pages: HOT..HOT + LIGHT,
        every: Duration::from_millis(2),
        stores: true,
    },
    Client {
        name: "hot reader",
        pages: 0..HOT,
        every: Duration::from_micros(500),
        stores: false,
    },
];

/// The word that a client stores: it says of which store it is.
const WORD: u64 = 64;

/// The measurements of a client.
struct Met {
    took: Lengths,
    /// The last value stored to each of its pages.
    stored: Vec<u64>,
}

impl Client {
    fn run(&self, map: &Mapped, lasting: Duration, stop: &AtomicBool) -> Result<Met, DemoError> {
        let count = self.pages.end - self.pages.start;
        let mut stored = vec![0; usize::try_from(count).expect("64 bits")];
        let mut took = Vec::new();
        let (began, mut state) = (Instant::now(), self.pages.end);
        for value in 1.. {
            // xorshift
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let page = state % count;
            let at = (self.pages.start + page) * PAGE + WORD;
            let from = Instant::now();
            if from - began >= lasting || stop.load(Ordering::Relaxed) {
                break;
            }
            if self.stores {
                map.store(at, value)?;
                stored[usize::try_from(page).expect("64 bits")] = value;
            } else {
                map.load(at)?;
            }
            took.push(from.elapsed());
            if !self.every.is_zero() {
                std::thread::sleep(self.every);
            }
        }
        Ok(Met {
            took: took.into_iter().collect(),
            stored,
        })
    }
}

/// The figures of a side.
struct Side {
    met: Vec<Met>,
    /// The most memory of the map.
    most: u64,
    synced: Duration,
}

/// All clients at once, and a sync.
fn load(
    map: &Mapped,
    lasting: Duration,
    stop: &AtomicBool,
    disk: &Disk,
) -> Result<Side, DemoError> {
    let mut most = 0;
    let met: Result<Vec<Met>, DemoError> = std::thread::scope(|scope| {
        let clients = CLIENTS.iter();
        let running: Vec<_> = clients
            .map(|client| scope.spawn(move || client.run(map, lasting, stop)))
            .collect();
        while running.iter().any(|client| !client.is_finished()) {
            std::thread::sleep(Duration::from_millis(5));
            if let Mapped::Ours(map) = map {
                most = most.max(map.resident());
            }
            if stop.load(Ordering::Relaxed) {
                disk.hurry();
            }
        }
        let joined = running.into_iter().map(|client| client.join());
        joined
            .map(|met| met.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let met = met?;
    if stop.load(Ordering::Relaxed) {
        return Err(DemoError::Interrupted);
    }
    let began = Instant::now();
    map.sync()?;
    let synced = began.elapsed();
    if matches!(map, Mapped::Kernel(_)) {
        most = disk.most();
    }
    Ok(Side { met, most, synced })
}

/// Compares the disk with what was stored.
fn verify(disk: &Disk, side: &Side) -> Result<(), DemoError> {
    let what = || DemoError::io(disk.file.display().to_string());
    let file = File::open(&disk.file).map_err(what())?;
    for (client, met) in CLIENTS.iter().zip(&side.met) {
        let mut wrong = 0;
        for (page, wanted) in client.pages.clone().zip(&met.stored) {
            let mut word = [0; 8];
            file.read_exact_at(&mut word, page * PAGE + WORD)
                .map_err(what())?;
            wrong += usize::from(*wanted != 0 && u64::from_ne_bytes(word) != *wanted);
        }
        if wrong > 0 {
            let client = client.name;
            return Err(DemoError::Wrong { client, wrong });
        }
    }
    Ok(())
}

fn kernels(disk: &mut Disk, lasting: Duration, stop: &AtomicBool) -> Result<Side, DemoError> {
    let options = File::options().read(true).write(true).open(&disk.device);
    let file = options.map_err(DemoError::io(disk.device.display().to_string()))?;
    disk.enter(Some(MEMORY + BESIDE))?;
    let len = usize::try_from(LEN).expect("64 bits");
    let map = KernelMap::new(&file, len).map_err(DemoError::io("mmap"))?;
    let side = load(&Mapped::Kernel(map), lasting, stop, disk);
    disk.leave()?;
    side
}

fn ours(disk: &mut Disk, lasting: Duration, stop: &AtomicBool) -> Result<Side, DemoError> {
    disk.enter(None)?;
    let cache = Cache::builder().memory(MEMORY).maps(true).build()?;
    let file = cache.open(&disk.device, OpenOptions::new())?;
    let map = file.map(0..LEN, MapOptions::new().write(true))?;
    map.advise(Advice::Random, 0..LEN)?;
    let map = Mapped::Ours(map);
    let side = load(&map, lasting, stop, disk);
    drop((map, file));
    cache.close()?;
    disk.leave()?;
    side
}

/// Refuses before anything is made where this process can have no map.
fn need_rights(folder: &Folder) -> Result<(), DemoError> {
    let path = folder.0.join("rights");
    std::fs::write(&path, [0; 4096]).map_err(DemoError::io(path.display().to_string()))?;
    let cache = Cache::builder().memory(16 << 20).maps(true).build()?;
    drop(
        cache
            .open(&path, OpenOptions::new())?
            .map(0..PAGE, MapOptions::new())?,
    );
    Ok(cache.close()?)
}

/// Runs it and prints what it shows.
///
/// # Errors
/// See `DemoError`.
pub fn run(seconds: u64) -> Result<(), DemoError> {
    if !SECONDS.contains(&seconds) {
        let (least, most) = (*SECONDS.start(), *SECONDS.end());
        return Err(DemoError::MapSeconds {
            seconds,
            least,
            most,
        });
    }
    let folder = Folder::new()?;
    need_rights(&folder)?;
    let stop = Arc::new(AtomicBool::new(false));
    let runtime = super::runtime()?;
    super::listen_for_interrupt(&runtime, &stop);
    let mut disk = Disk::new(&folder.0)?;
    let lasting = Duration::from_secs(seconds);
    say(&introduction(&disk));
    say(&format!("the kernel's map: {seconds} s ..."));
    let kernel = kernels(&mut disk, lasting, &stop)?;
    verify(&disk, &kernel)?;
    say(&format!("tidegate's map: {seconds} s ..."));
    let tidegate = ours(&mut disk, lasting, &stop)?;
    verify(&disk, &tidegate)?;
    say(&table(&kernel, &tidegate, seconds));
    Ok(())
}

fn introduction(disk: &Disk) -> String {
    format!(
        "A file of {} on {}, which takes {} MB/s of writes, mapped by a program that may have {} of it in memory:\n  \
         heavy storer  stores to a page anywhere, as fast as it may\n  \
         light storer  stores to a page every 2 ms, in {}\n  \
         hot reader    loads from a page every 0.5 ms, in {}\n\
         Both maps are told that accesses are random (MADV_RANDOM). The kernel's is in a control group of {}, for its pages\n\
         and page tables.\n",
        show_size(LEN),
        disk.device.display(),
        RATE / 1_000_000,
        show_size(MEMORY),
        show_size(LIGHT * PAGE),
        show_size(HOT * PAGE),
        show_size(MEMORY + BESIDE),
    )
}

fn table(kernel: &Side, tidegate: &Side, seconds: u64) -> String {
    let mut text = format!(
        "\n{:<28}{:>16}{:>16}\n",
        "", "kernel's map", "tidegate's map"
    );
    let mut row = |name: &str, of: &dyn Fn(&Side) -> String| {
        let _ = writeln!(text, "{name:<28}{:>16}{:>16}", of(kernel), of(tidegate));
    };
    let length = |length: Option<Duration>| length.map_or("-".into(), shown);
    for (at, client) in CLIENTS.iter().enumerate() {
        let name = client.name;
        row(&format!("{name}, longest stall"), &|side| {
            length(side.met[at].took.max())
        });
        row("  999 of 1000 at most", &|side| {
            length(side.met[at].took.percentile(999))
        });
    }
    row("heavy stores a second", &|side| {
        (side.met[0].took.count() as u64 / seconds).to_string()
    });
    row("memory at most", &|side| show_size(side.most));
    row("  of a limit of", &|side| {
        let beside = if std::ptr::eq(side, kernel) {
            BESIDE
        } else {
            0
        };
        show_size(MEMORY + beside)
    });
    row("sync afterwards", &|side| shown(side.synced));
    text += "\nEvery store was found on the disk after the sync. docs/embed/map.md says what such a map is, and when not to use it.";
    text
}
