//! Workers that ask for a lot of memory at once, where huge pages are wanted.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use guest::Result;

use super::Argument::Number;
use super::memory::{pages, touch};
use super::{Done, Kind, Log, Work};
use crate::MIB;
use crate::system::{self, Locked, Process, Region};

/// From one look at what is free to the next.
const LOOK_NS: u64 = 100_000_000;
/// From when little is free to when a round begins.
const REST_NS: u64 = 2_000_000_000;
/// More than the files that are looked at ever have.
const TEXT_MAX: usize = 64 * 1024;

/// When less than `BELOW_MIB` are free, and 2 s later, a child touches each page of `MIB`, and
/// ends; `ROUNDS` times. A round is three calls: how long it took (and the child's status); user
/// and system time; huge pages got and not got.
pub(super) const ALLOC: Kind = Kind {
    name: "alloc",
    arguments: &[Number("MIB"), Number("BELOW_MIB"), Number("ROUNDS")],
    prepare: |given| {
        Ok(Box::new(Alloc {
            bytes: given.number("MIB") * MIB,
            below_kib: given.number("BELOW_MIB") as u64 * 1024,
            rounds: given.number("ROUNDS"),
            counters: Counters {
                meminfo: open("/proc/meminfo")?,
                vmstat: open("/proc/vmstat")?,
                text: vec![1; TEXT_MAX],
            },
        }))
    },
};

fn open(path: &str) -> Result<File> {
    File::open(path).map_err(|error| format!("{path}: {error}"))
}

struct Alloc {
    bytes: usize,
    below_kib: u64,
    rounds: usize,
    counters: Counters,
}

impl Work for Alloc {
    fn run(&mut self, log: &Log) -> Result<Done> {
        for _ in 0..self.rounds {
            while self.counters.free_kib()? > self.below_kib {
                system::sleep(LOOK_NS);
            }
            system::sleep(REST_NS);
            let before = self.counters.huge()?;
            let began = log.begin();
            let bytes = self.bytes;
            let child = Process::start(|| i32::from(fill(bytes, log).is_err()))?;
            let ended = child.wait()?;
            log.end(began, pages(bytes), u64::from(ended.status.cast_unsigned()));
            log.note([began, ended.user_us * 1000, 1, ended.system_us * 1000]);
            let after = self.counters.huge()?;
            log.note([began, 0, after[0] - before[0], after[1] - before[1]]);
        }
        Ok(Done::All)
    }
}

/// The work of the child.
fn fill(bytes: usize, log: &Log) -> Result<()> {
    system::name("alloc")?;
    system::lock_memory(Locked::Now)?;
    let region = Region::anonymous(bytes)?;
    touch(&region, 0, |_| log.did(1));
    Ok(())
}

/// The kernel's counters, read into room that is there.
struct Counters {
    meminfo: File,
    vmstat: File,
    text: Vec<u8>,
}

impl Counters {
    fn free_kib(&mut self) -> Result<u64> {
        let text = read(&self.meminfo, &mut self.text)?;
        value(text, "MemFree:")
    }

    /// Huge pages got, and not got, by faults.
    fn huge(&mut self) -> Result<[u64; 2]> {
        let text = read(&self.vmstat, &mut self.text)?;
        let got = value(text, "thp_fault_alloc")?;
        Ok([got, value(text, "thp_fault_fallback")?])
    }
}

fn read<'a>(file: &File, room: &'a mut [u8]) -> Result<&'a str> {
    let mut end = 0;
    loop {
        match file.read_at(&mut room[end..], end as u64) {
            Ok(0) => break,
            Ok(bytes) => end += bytes,
            Err(error) => return Err(format!("the kernel's counters: {error}")),
        }
    }
    std::str::from_utf8(&room[..end]).map_err(|_| "counters that are no text".to_owned())
}

fn value(text: &str, name: &str) -> Result<u64> {
    let found = text.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next()? == name).then(|| words.next()?.parse().ok())?
    });
    found.ok_or_else(|| format!("the kernel has no counter '{name}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_whole_name() {
        let text = "thp_fault_alloc_x 1\nthp_fault_alloc 53\nMemFree:    437400 kB\n";
        assert_eq!(value(text, "thp_fault_alloc"), Ok(53));
        assert_eq!(value(text, "MemFree:"), Ok(437_400));
        assert!(value(text, "thp").unwrap_err().contains("'thp'"));
    }
}
