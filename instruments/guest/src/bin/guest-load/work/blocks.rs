//! Workers that write or read blocks of a file or a disk.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;

use guest::Result;

use super::Argument::{Number, Word};
use super::{Argument, Arguments, Done, Kind, Log, Work};
use crate::{MIB, system};

const RANDOM: &[Argument] = &[
    Word("PATH"),
    Number("OFFSET_MIB"),
    Number("REGION_MIB"),
    Number("BLOCK_KIB"),
    Number("SLEEP_MS"),
    Number("SEED"),
];

/// Writes blocks of a region in random order, each once before one comes again (as fio does). A
/// call is a block; its other number is the place.
pub(super) const RANDWRITE: Kind = Kind {
    name: "randwrite",
    arguments: RANDOM,
    prepare: |given| random(given, Direction::Write),
};

/// The same, but reads.
pub(super) const RANDREAD: Kind = Kind {
    name: "randread",
    arguments: RANDOM,
    prepare: |given| random(given, Direction::Read),
};

/// Passes over a region from its begin to its end, one per letter of `PASSES`: `w` writes, `r`
/// reads. `REPEAT` times; 0 is for ever. A full disk ends a pass. A call is a block; its other
/// number is the letter.
pub(super) const SEQ: Kind = Kind {
    name: "seq",
    arguments: &[
        Word("PATH"),
        Number("OFFSET_MIB"),
        Number("REGION_MIB"),
        Number("BLOCK_KIB"),
        Word("PASSES"),
        Number("REPEAT"),
    ],
    prepare: |given| {
        let passes = given.word("PASSES").chars();
        let passes = passes.map(|letter| match letter {
            'w' => Ok(Direction::Write),
            'r' => Ok(Direction::Read),
            _ => Err(format!("PASSES: a pass is w or r, not '{letter}'")),
        });
        Ok(Box::new(Sequence {
            disk: Disk::open(given)?,
            passes: passes.collect::<Result<_>>()?,
            repeat: given.number("REPEAT"),
        }))
    },
};

/// Opens a file to read and to write; it is made where there is none.
pub(super) fn open(path: &str) -> Result<File> {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(|error| format!("{path}: {error}"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Write,
    Read,
}

/// A region of a file, and the block that goes there and back.
struct Disk {
    file: File,
    path: String,
    offset: u64,
    region: u64,
    block: Vec<u8>,
}

impl Disk {
    fn open(given: &Arguments) -> Result<Self> {
        let path = given.word("PATH").to_owned();
        Ok(Self {
            file: open(&path)?,
            path,
            offset: (given.number("OFFSET_MIB") * MIB) as u64,
            region: (given.number("REGION_MIB") * MIB) as u64,
            block: vec![0x77; given.number("BLOCK_KIB") * 1024],
        })
    }

    fn length(&self) -> u64 {
        self.block.len() as u64
    }

    /// Writes or reads the block at `at` of the region. False: the disk is full.
    fn call(&mut self, direction: Direction, at: u64, extra: u64, log: &Log) -> Result<bool> {
        let place = self.offset + at;
        let began = log.begin();
        let ended = match direction {
            Direction::Write => self.file.write_at(&self.block, place),
            Direction::Read => self.file.read_at(&mut self.block, place),
        };
        match ended {
            Ok(bytes) if bytes == self.block.len() => {
                log.did(bytes as u64);
                log.end(began, bytes as u64, extra);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::StorageFull => Ok(false),
            Ok(bytes) => Err(format!("{}: {bytes} bytes at {place}", self.path)),
            Err(error) => Err(format!("{}: {error} at {place}", self.path)),
        }
    }
}

struct Sequence {
    disk: Disk,
    passes: Vec<Direction>,
    repeat: usize,
}

impl Work for Sequence {
    fn run(&mut self, log: &Log) -> Result<Done> {
        let mut turn = 0;
        while self.repeat == 0 || turn < self.repeat {
            for pass in 0..self.passes.len() {
                let direction = self.passes[pass];
                let letter = match direction {
                    Direction::Write => b'w',
                    Direction::Read => b'r',
                };
                let mut at = 0;
                while at < self.disk.region
                    && self.disk.call(direction, at, u64::from(letter), log)?
                {
                    at += self.disk.length();
                }
            }
            turn += 1;
        }
        Ok(Done::All)
    }
}

struct Random {
    disk: Disk,
    direction: Direction,
    sleep_ns: u64,
    places: Places,
}

fn random(given: &Arguments, direction: Direction) -> Result<Box<dyn Work>> {
    let disk = Disk::open(given)?;
    let blocks = disk.region.checked_div(disk.length()).unwrap_or(0);
    let blocks = u32::try_from(blocks).map_err(|_| format!("REGION_MIB: {blocks} blocks"))?;
    if blocks == 0 {
        return Err("REGION_MIB: it holds no block of BLOCK_KIB".to_owned());
    }
    Ok(Box::new(Random {
        disk,
        direction,
        sleep_ns: given.number("SLEEP_MS") as u64 * 1_000_000,
        places: Places::new(blocks, given.number("SEED") as u64),
    }))
}

impl Work for Random {
    fn run(&mut self, log: &Log) -> Result<Done> {
        loop {
            let at = u64::from(self.places.next()) * self.disk.length();
            let place = self.disk.offset + at;
            if !self.disk.call(self.direction, at, place, log)? {
                return Ok(Done::Full);
            }
            if self.sleep_ns > 0 {
                system::sleep(self.sleep_ns);
            }
        }
    }
}

/// The numbers of blocks in random order, each once before one comes again.
struct Places {
    random: u64,
    blocks: Vec<u32>,
    left: usize,
}

impl Places {
    fn new(blocks: u32, seed: u64) -> Self {
        let mut places = Self {
            // Marsaglia's own seed, and a prime to set seeds apart.
            random: 88_172_645_463_325_252 + seed * 7919,
            blocks: (0..blocks).collect(),
            left: 0,
        };
        for _ in 0..10 {
            places.draw();
        }
        places
    }

    /// xorshift64. Source: G. Marsaglia, "Xorshift RNGs", 2003.
    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn next(&mut self) -> u32 {
        if self.left == 0 {
            self.left = self.blocks.len();
        }
        // The low bits are the weaker ones.
        let drawn = (self.draw() >> 11) % self.left as u64;
        self.left -= 1;
        let chosen = usize::try_from(drawn).unwrap_or(0);
        self.blocks.swap(chosen, self.left);
        self.blocks[self.left]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_comes_once_before_one_comes_again() {
        let mut places = Places::new(122, 10);
        for _ in 0..3 {
            let mut round: Vec<_> = (0..122).map(|_| places.next()).collect();
            assert!(!round.is_sorted());
            round.sort_unstable();
            assert!(round.into_iter().eq(0..122));
        }
        let first = |seed| Places::new(122, seed).next();
        // The first places of the writer of the recording r1-4: 55, 85, 24 MiB.
        let mut places = Places::new(122, 10);
        assert_eq!([places.next(), places.next(), places.next()], [55, 85, 24]);
        assert_ne!(first(10), first(110));
    }

    #[test]
    fn a_file_is_written_and_read_and_each_call_is_in_the_log() {
        let path = std::env::temp_dir().join(format!("guest-load-{}", std::process::id()));
        let path = path.to_str().unwrap();
        let words = [path, "1", "1", "256", "wr", "1"];
        let given = Arguments::parse(SEQ.arguments, &words).unwrap();
        let log = Log::new(16).unwrap();
        let done = (SEQ.prepare)(&given).unwrap().run(&log).unwrap();
        assert_eq!(done, Done::All);
        assert_eq!(std::fs::metadata(path).unwrap().len(), 2 << 20);
        std::fs::remove_file(path).unwrap();
        let letters: Vec<_> = log.calls().map(|call| call[3]).collect();
        let wanted = b"wwwwrrrr".map(u64::from);
        assert_eq!(letters, wanted);
        assert_eq!(log.work(), 2 << 20);
        let wrong = [path, "1", "1", "256", "wx", "1"];
        let given = Arguments::parse(SEQ.arguments, &wrong).unwrap();
        assert!((SEQ.prepare)(&given).is_err_and(|problem| problem.contains("'x'")));
    }
}
