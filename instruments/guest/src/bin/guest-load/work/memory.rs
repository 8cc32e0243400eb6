//! Workers that touch memory: anonymous, or a file's through a mapping.

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};

use guest::Result;

use super::Argument::{Number, Word};
use super::{Done, Kind, Log, Work};
use crate::system::{self, Region};
use crate::{MIB, PAGE};

/// Words in a page.
const STRIDE: usize = PAGE / size_of::<u64>();
/// The mark of a touch: never zero, and different for each page and each pass.
const TOUCHED: u64 = 0x5a5a_0000_0000_0001;

/// Touches a word of each page of its memory, in the order of addresses, for ever. A call is a
/// pass.
pub(super) const HOG: Kind = Kind {
    name: "hog",
    arguments: &[Number("MIB")],
    prepare: |given| {
        let bytes = given.number("MIB") * MIB;
        Ok(Box::new(Hog { bytes }))
    },
};

/// Sleeps, maps memory, touches each page, unmaps it. A call is a round without the sleep.
pub(super) const MAPPER: Kind = Kind {
    name: "mapper",
    arguments: &[Number("MIB"), Number("SLEEP_MS")],
    prepare: |given| {
        Ok(Box::new(Mapper {
            bytes: given.number("MIB") * MIB,
            sleep_ns: given.number("SLEEP_MS") as u64 * 1_000_000,
        }))
    },
};

/// Stores to each page of a shared mapping of a file, once. A call is a MiB.
pub(super) const MAPWRITE: Kind = Kind {
    name: "mapwrite",
    arguments: &[Word("PATH"), Number("MIB")],
    prepare: |given| {
        Ok(Box::new(MapWrite {
            file: super::blocks::open(given.word("PATH"))?,
            bytes: given.number("MIB") * MIB,
        }))
    },
};

struct Hog {
    bytes: usize,
}

impl Work for Hog {
    fn run(&mut self, log: &Log) -> Result<Done> {
        let region = Region::anonymous(self.bytes)?;
        for pass in 1.. {
            let began = log.begin();
            touch(&region, pass, |_| log.did(1));
            log.end(began, pages(self.bytes), pass);
        }
        Ok(Done::All)
    }
}

struct Mapper {
    bytes: usize,
    sleep_ns: u64,
}

impl Work for Mapper {
    fn run(&mut self, log: &Log) -> Result<Done> {
        loop {
            system::sleep(self.sleep_ns);
            let began = log.begin();
            let region = Region::anonymous(self.bytes)?;
            touch(&region, 0, |_| log.did(1));
            drop(region);
            log.end(began, pages(self.bytes), 0);
        }
    }
}

struct MapWrite {
    file: File,
    bytes: usize,
}

impl Work for MapWrite {
    fn run(&mut self, log: &Log) -> Result<Done> {
        let region = Region::of_file(&self.file, self.bytes)?;
        for part in region.chunks(MIB / size_of::<u64>()) {
            let began = log.begin();
            touch(part, 0, |_| ());
            let bytes = size_of_val(part) as u64;
            log.did(bytes);
            log.end(began, bytes, u64::from(b'm'));
        }
        Ok(Done::All)
    }
}

/// Stores a word to each page, and tells of each.
pub(super) fn touch(region: &[AtomicU64], pass: u64, mut touched: impl FnMut(usize)) {
    for (page, word) in region.iter().step_by(STRIDE).enumerate() {
        word.store(TOUCHED + pass + (page * PAGE) as u64, Ordering::Relaxed);
        touched(page);
    }
}

pub(super) fn pages(bytes: usize) -> u64 {
    (bytes / PAGE) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_is_touched_once_and_none_with_zero() {
        let region = Region::anonymous(5 * PAGE).unwrap();
        let mut seen = Vec::new();
        touch(&region, 1, |page| seen.push(page));
        assert_eq!(seen, [0, 1, 2, 3, 4]);
        let words = || region.iter().map(|word| word.load(Ordering::Relaxed));
        assert!(words().step_by(STRIDE).all(|word| word != 0));
        assert_eq!(words().filter(|word| *word != 0).count(), 5);
    }
}
