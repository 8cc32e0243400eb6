//! YCSB's core workloads over the pages of a file: records that are read, written, scanned and
//! added, some far oftener than others.
//!
//! | mix | calls |
//! |---|---|
//! | A | half reads, half updates |
//! | B | 95 % reads, 5 % updates |
//! | C | reads |
//! | D | 95 % reads of what was added last, 5 % additions |
//! | E | 95 % scans of up to 100 records, 5 % additions |
//! | F | half reads, half reads with an update of the same record |
//!
//! Source: Cooper et al., Benchmarking Cloud Serving Systems with YCSB, SoCC 2010, table 2 and
//! section 4. Deviations: a record is a block of the file; the popularity of the n-th record is 1/n
//! (there 1/n^0.99), in integers, so that it is the same everywhere; a tenth of the file is for
//! additions.

use std::sync::Arc;

use env::Task;
use frames::Buffer;
use mm::{Cache, File};
use policy::units::{Bytes, Nanos};

use crate::dd::{Run, buffer};
use crate::{Failure, Report};

/// The requests of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Half reads, half updates.
    A,
    /// Reads, and few updates.
    B,
    /// Reads.
    C,
    /// Reads of what was added last, and few additions.
    D,
    /// Scans, and few additions.
    E,
    /// Half reads, half reads with an update.
    F,
}

/// One client.
#[derive(Clone, Copy, Debug)]
pub struct Ycsb {
    /// Its requests.
    pub mix: Mix,
    /// Bytes of a record.
    pub record: Bytes,
    /// Ends this long after it began.
    pub for_at_most: Option<Nanos>,
}

/// Calls of a hundred that are reads, or scans.
const fn reads(mix: Mix) -> u64 {
    match mix {
        Mix::A | Mix::F => 50,
        Mix::B | Mix::D | Mix::E => 95,
        Mix::C => 100,
    }
}

/// Records of a scan at most.
const SCAN_MOST: u64 = 100;
/// This part of the file is for additions.
const ADDED_PART: u64 = 10;
/// The weight of the most popular record.
const WEIGHT: u64 = 1 << 32;

/// Which record, by popularity.
struct Zipf {
    /// Sums of the weights up to each.
    sums: Vec<u64>,
}

impl Zipf {
    fn of(records: u64) -> Self {
        let mut sum = 0;
        let weights = (1..=records).map(|rank| WEIGHT / rank);
        let sums = weights.map(|weight| {
            sum += weight;
            sum
        });
        Self {
            sums: sums.collect(),
        }
    }

    /// A rank, from 0 on.
    fn rank(&self, random: u64) -> u64 {
        let all = self.sums.last().copied().unwrap_or(1);
        let at = random % all;
        self.sums.partition_point(|sum| *sum <= at) as u64
    }
}

/// Popular records lie anywhere: ranks are stirred by a step that no power of two and few other
/// numbers of records share a factor with.
const fn place(rank: u64, records: u64) -> u64 {
    rank.wrapping_mul(2_654_435_761) % records
}

/// Calls for records of `file` until it is stopped.
pub fn ycsb(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    file: &Arc<File>,
    options: &Ycsb,
    run: &Run<'_>,
) -> Report {
    run.writes(task, cache, |task, writer, report| {
        let mut client = Client {
            file,
            options,
            block: buffer(task, options.record),
            writer,
            reader: mm::Reader::default(),
            loaded: 0,
            all: file.len().0 / options.record.0,
        };
        client.calls(task, run, report)
    })
}

struct Client<'a> {
    file: &'a Arc<File>,
    options: &'a Ycsb,
    block: Buffer,
    writer: &'a mut mm::Writer,
    reader: mm::Reader,
    /// Records that are there, and that there is room for.
    loaded: u64,
    all: u64,
}

impl Client<'_> {
    fn calls(
        &mut self,
        task: &mut Task<'_>,
        run: &Run<'_>,
        report: &mut Report,
    ) -> Result<bool, Failure> {
        let until = self.options.for_at_most.map(|limit| report.began + limit);
        self.loaded = self.all - self.all / ADDED_PART;
        if self.loaded == 0 {
            return Err(Failure::ShortRead {
                at: self.file.len(),
            });
        }
        let zipf = Zipf::of(self.loaded);
        while until.is_none_or(|until| task.now() < until) {
            if run.stop.is_raised() {
                return Ok(false);
            }
            let called = task.now();
            let rank = zipf.rank(task.random());
            let reads = task.random() % 100 < reads(self.options.mix);
            let moved = match (self.options.mix, reads) {
                (Mix::D, true) => self.read(task, self.loaded - 1 - rank.min(self.loaded - 1))?,
                (Mix::E, true) => {
                    let first = place(rank, self.loaded);
                    let count = (1 + task.random() % SCAN_MOST).min(self.loaded - first);
                    let mut bytes = Bytes::ZERO;
                    for record in first..first + count {
                        bytes += self.read(task, record)?;
                    }
                    bytes
                }
                (_, true) => self.read(task, place(rank, self.loaded))?,
                (Mix::D | Mix::E, false) => {
                    // Where there is no more room, the last ones are added anew.
                    let record = self.loaded.min(self.all - 1);
                    self.loaded = (record + 1).max(self.loaded);
                    self.write(task, record)?
                }
                (Mix::F, false) => {
                    let record = place(rank, self.loaded);
                    self.read(task, record)? + self.write(task, record)?
                }
                (Mix::A | Mix::B | Mix::C, false) => self.write(task, place(rank, self.loaded))?,
            };
            report.moved(called, task.now(), run.origin, moved);
        }
        Ok(true)
    }

    fn read(&mut self, task: &mut Task<'_>, record: u64) -> Result<Bytes, Failure> {
        let at = Bytes(record * self.options.record.0);
        let read = self
            .file
            .read(task, &mut self.reader, at, &mut self.block)?;
        Ok(read.bytes)
    }

    fn write(&mut self, task: &mut Task<'_>, record: u64) -> Result<Bytes, Failure> {
        let at = Bytes(record * self.options.record.0);
        Ok(self.file.write(task, self.writer, at, &self.block)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_record_is_asked_for_as_often_as_its_weight_says() {
        let zipf = Zipf::of(1000);
        let mut random = 1_u64;
        let mut counts = [0_u32; 1000];
        for _ in 0..100_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let rank = usize::try_from(zipf.rank(random >> 16)).unwrap();
            counts[rank] += 1;
        }
        // One of 7.49, the thousandth harmonic number; the second half as often.
        assert!((12_700..14_000).contains(&counts[0]), "{}", counts[0]);
        assert!((6_300..7_100).contains(&counts[1]), "{}", counts[1]);
        assert!(counts[999] < 50);
    }

    #[test]
    fn records_have_places_of_their_own() {
        for records in [1, 2, 1000, 4096, 58_983] {
            let mut places: Vec<u64> = (0..records).map(|rank| place(rank, records)).collect();
            places.sort_unstable();
            assert_eq!(places, (0..records).collect::<Vec<_>>(), "{records}");
        }
    }
}
