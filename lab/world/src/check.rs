//! The checker that knows every version ever written, sector by sector, and judges what reads,
//! syncs and crashes show.
//!
//! Every write gets the next version of its object and stamps each of its 512-byte sectors with
//! (object, sector, version). So a reader can tell not only old from new but also its own from
//! somebody else's. In the lab a stamp is 32 bits (`stamp`), live it fills the whole sector
//! (`stamp_bytes`); the judgement is the same code.
//!
//! These contents are legal, for one sector, with the time of the calls as a clock of ticks:
//!
//! ```text
//!   write v1 |-----|                     A read that begins here must see v2 or v3: v1 ended
//!   write v2         |--------|          before v2 began, and v2 has ended. v3 is under way:
//!   write v3               |------ ...   it may be seen or not. v2 and v3 overlap: once both
//!   read                        |---|    have ended, either may be what stands there.
//! ```
//!
//!   A version `v` is *stale* at an instant if some write of the sector had ended by then that
//!   began after `v` ended. A read may answer any version that had begun before the read ended and
//!   was not stale when the read began. A crash may leave any version that was not stale among the
//!   writes acknowledged by a sync. Zeroes are version 0, and what truncate and discard write.
//!
//! Invariants
//!   1. `latest[s]` is the youngest (by begin) write of sector `s` that has ended, or that a read
//!      has seen; `acked[s]` the youngest that a sync has acknowledged. Versions are in order of
//!      begin.
//!   2. A record of a write is forgotten only when it is acknowledged, overlapped no other write,
//!      and neither reads nor writes of the object are under way: then equality with `acked` is
//!      exact.
//!   3. After a crash the survivors are all there is: a version that was lost may not come back.
//!
//! Not caught: a cache that changes its mind about the order of two overlapping writes after both
//! have ended and one has been read. A stray 32-bit stamp passes for a right one with a chance of
//! (versions of the object) / 2^31; a misplaced page has eight chances to be caught.
//!
//! Memory: 8 bytes a sector up to the furthest one written, 48 bytes a write since the last sync.
//! Concurrency: `&mut`; a live test puts it behind a mutex and calls it outside the operation.
//!
//! Source: docs/adr/0009 (what a sync acknowledged is not lost); the legality is regularity of
//! L. Lamport, "On interprocess communication", 1986, with a read's own observations added.

use core::fmt;
use std::collections::{BTreeMap, VecDeque};

use ::env::ObjectId;
use policy::units::{Bytes, Pages};

use crate::content::Sector;
use crate::media::{Media, PageStamps, SECTOR_SIZE, SECTORS_PER_PAGE};
use crate::stamps::{
    self, Garbled, Stamp, VERSION_MAX, read_bytes, stamp, stamp_bytes, version_in,
};

/// Marks an entry of `latest` and `acked` as a write of zeroes.
const ZEROED: u32 = 1 << 31;
/// Records of overlapping writes kept before the dead ones among them are looked for.
const KEPT_MAX: usize = 4096;
/// The end of a write that is under way.
const UNDER_WAY: u64 = u64::MAX;

/// Knows all versions of all objects.
#[derive(Debug, Default)]
pub struct Checker {
    objects: Vec<Object>,
    clock: u64,
}

#[derive(Debug, Default)]
struct Object {
    latest: Vec<u32>,
    acked: Vec<u32>,
    /// Sectors, and their version, that were there before the run.
    prefill: (u64, u32),
    /// Records of versions `first_logged..=newest`, without holes.
    log: VecDeque<Record>,
    first_logged: u32,
    newest: u32,
    /// Older records that may still be what stands somewhere.
    kept: BTreeMap<u32, Record>,
    /// Versions of `log` and `kept` that wrote zeroes.
    zeroings: Vec<u32>,
    /// Versions of the writes under way.
    under_way: Vec<u32>,
    reads_under_way: u32,
    /// End of the furthest write that ever began, in sectors.
    furthest: u64,
    len: Bytes,
    acked_len: Bytes,
    /// Truncates that ever began, and those under way: a sync beside one knows nothing of lengths.
    truncates: u64,
    truncates_under_way: u32,
    /// Crashes so far: operations that began before the last one have ended.
    crashes: u32,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    first: u64,
    end: u64,
    begun: u64,
    ended: u64,
    zeroes: bool,
    failed: bool,
    overlapped: bool,
    acked: bool,
}

/// A write (or a truncate, or a discard) that is under way. Give it back when the call returns.
#[derive(Debug)]
#[must_use]
pub struct Write {
    object: ObjectId,
    version: u32,
    first: u64,
    end: u64,
    change: LenChange,
    /// Truncates that had begun when this began, itself included.
    truncates: u64,
    /// Another truncate was under way then.
    beside_truncate: bool,
    crashes: u32,
}

/// The effect of an operation on the length of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LenChange {
    /// Nothing.
    Keeps,
    /// At least so long afterwards.
    Grows(Bytes),
    /// Exactly so long afterwards.
    Sets(Bytes),
}

/// A read that is under way. Give it back with what was read.
#[derive(Debug)]
#[must_use]
pub struct Read {
    object: ObjectId,
    first: u64,
    /// `latest` of its sectors when it began.
    floor: Vec<u32>,
    crashes: u32,
}

/// A sync that is under way.
#[derive(Debug)]
#[must_use]
pub struct Sync {
    object: ObjectId,
    first: u64,
    end: u64,
    begun: u64,
    /// Length to be acknowledged; none if a truncate was under way.
    len: Option<Bytes>,
    truncates: u64,
    crashes: u32,
}

/// The content of a sector as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Zeroes.
    Zeroes,
    /// This version of itself.
    Version(u32),
    /// Another sector's content.
    Elsewhere(Stamp),
    /// Nothing that was ever written as a sector.
    Garbled,
}

/// The fault of a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A version that no write of this sector ever had: invented, or from another place.
    NeverWritten {
        /// The version seen.
        seen: u32,
    },
    /// Another sector's content.
    Misplaced {
        /// The sector it belongs to.
        from: Stamp,
    },
    /// Not a sector as it was written: torn within, or overwritten by something foreign.
    Garbled,
    /// A version that had been overwritten for good.
    Stale {
        /// The version seen.
        seen: u32,
        /// At least this one had to be.
        newest: u32,
    },
    /// Zeroes where a write had ended.
    Lost {
        /// At least this one had to be.
        newest: u32,
    },
    /// The object is shorter than what a sync acknowledged.
    Short {
        /// Its length.
        len: Bytes,
        /// The length acknowledged.
        acked: Bytes,
    },
}

/// A broken rule, and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// In which object.
    pub object: ObjectId,
    /// In which sector of it.
    pub sector: u64,
    /// By whom it was noticed.
    pub during: During,
    /// The fault.
    pub fault: Fault,
}

/// The look that showed a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum During {
    /// A read.
    Read,
    /// A look at what is durable after a sync.
    Sync,
    /// A look at what survived a crash.
    Crash,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            object,
            sector,
            during,
            fault,
        } = self;
        let shown = match during {
            During::Read => "read",
            During::Sync => "durable after sync",
            During::Crash => "survived the crash",
        };
        write!(f, "object {} sector {sector}, {shown}: ", object.0)?;
        match fault {
            Fault::NeverWritten { seen } => write!(f, "version {seen} was never written there"),
            Fault::Misplaced { from } => write!(f, "holds {from}"),
            Fault::Garbled => f.write_str("holds no sector that was ever written"),
            Fault::Stale { seen, newest } => {
                write!(f, "version {seen}, but {newest} had replaced it")
            }
            Fault::Lost { newest } => write!(f, "zeroes, but version {newest} had been written"),
            Fault::Short { len, acked } => {
                write!(f, "ends at {len:?}, acknowledged were {acked:?}")
            }
        }
    }
}

impl std::error::Error for Violation {}

impl Write {
    /// Version of its sectors.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Fills a buffer for the lab with the stamps of this write.
    ///
    /// # Panics
    /// If the buffer has not the length of the write.
    pub fn fill(&self, data: &mut [Sector]) {
        assert!(
            data.len() as u64 == self.end - self.first,
            "a buffer as long as the write"
        );
        for (sector, slot) in (self.first..self.end).zip(data) {
            *slot = stamp(self.object, sector, self.version);
        }
    }

    /// Fills a buffer of bytes with the stamps of this write.
    ///
    /// # Panics
    /// If the buffer has not the length of the write.
    pub fn fill_bytes(&self, data: &mut [u8]) {
        assert!(
            data.len() as u64 == (self.end - self.first) * SECTOR_SIZE,
            "a buffer as long as the write"
        );
        let (sectors, _) = data.as_chunks_mut();
        for (sector, slot) in (self.first..self.end).zip(sectors) {
            *slot = stamp_bytes(self.object, sector, self.version);
        }
    }
}

impl Checker {
    /// A checker of objects that are empty.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes note that the object's first pages hold `version`, durably (`Media::prefill`).
    ///
    /// # Panics
    /// If the object was written before.
    pub fn prefilled(&mut self, object: ObjectId, pages: Pages, version: u32) {
        let slot = self.object_mut(object);
        assert!(slot.newest == 0, "prefilled after it was written");
        slot.prefill = (pages.0 * SECTORS_PER_PAGE as u64, version);
        slot.newest = version;
        slot.first_logged = version + 1;
        slot.len = pages.bytes();
        slot.acked_len = slot.len;
    }

    /// A write of `len` bytes begins: call it before the first byte is handed over, and fill the
    /// buffer from the answer.
    ///
    /// # Panics
    /// If the range is not in whole sectors, or empty.
    pub fn on_write_begin(&mut self, object: ObjectId, offset: Bytes, len: Bytes) -> Write {
        let (first, end) = sectors(offset, len);
        assert!(first < end, "an empty write has no version");
        self.begin(
            object,
            (first, end),
            false,
            LenChange::Grows(Bytes(end * SECTOR_SIZE)),
        )
    }

    /// A store through a map begins: a write that leaves the length as it is.
    ///
    /// # Panics
    /// As `on_write_begin`.
    pub fn on_store_begin(&mut self, object: ObjectId, offset: Bytes, len: Bytes) -> Write {
        let (first, end) = sectors(offset, len);
        assert!(first < end, "an empty store has no version");
        self.begin(object, (first, end), false, LenChange::Keeps)
    }

    /// The call that wrote has returned: every later read sees it.
    pub fn on_write_end(&mut self, write: Write) {
        self.end(&write, false);
    }

    /// The call that wrote has failed: any part of it may have been done.
    pub fn on_write_failed(&mut self, write: Write) {
        self.end(&write, true);
    }

    /// A truncate (or growth) to `len` begins.
    ///
    /// # Panics
    /// If `len` is not in whole sectors.
    pub fn on_truncate_begin(&mut self, object: ObjectId, len: Bytes) -> Write {
        let (first, _) = sectors(len, Bytes::ZERO);
        let slot = self.object_mut(object);
        slot.acked_len = slot.acked_len.at_most(len);
        slot.truncates += 1;
        slot.truncates_under_way += 1;
        let end = slot.furthest.max(slot.prefill.0).max(first);
        let mut truncate = self.begin(object, (first, end), true, LenChange::Sets(len));
        truncate.beside_truncate = self.object_mut(object).truncates_under_way > 1;
        truncate
    }

    /// The truncate has returned.
    pub fn on_truncate_end(&mut self, truncate: Write) {
        self.end(&truncate, false);
    }

    /// A discard (TRIM, punched hole) of a range begins; ends with `on_write_end`.
    ///
    /// # Panics
    /// If the range is not in whole sectors.
    pub fn on_discard_begin(&mut self, object: ObjectId, offset: Bytes, len: Bytes) -> Write {
        self.begin(object, sectors(offset, len), true, LenChange::Keeps)
    }

    /// A read of `len` bytes begins.
    ///
    /// # Panics
    /// If the range is not in whole sectors.
    pub fn on_read_begin(&mut self, object: ObjectId, offset: Bytes, len: Bytes) -> Read {
        let (first, end) = sectors(offset, len);
        let slot = self.object_mut(object);
        slot.reads_under_way += 1;
        let floor = (first..end).map(|sector| slot.latest(sector)).collect();
        Read {
            object,
            first,
            floor,
            crashes: slot.crashes,
        }
    }

    /// The read has ended and found these versions, from its first sector on; it may be short.
    ///
    /// # Errors
    /// The first sector whose content is not legal.
    ///
    /// # Panics
    /// If there are more than the read asked for.
    pub fn on_read(
        &mut self,
        read: Read,
        seen: impl IntoIterator<Item = Seen>,
    ) -> Result<(), Violation> {
        let slot = self.object_mut(read.object);
        if read.crashes != slot.crashes {
            return Ok(());
        }
        slot.reads_under_way -= 1;
        let mut verdict = Ok(());
        for (at, seen) in seen.into_iter().enumerate() {
            assert!(
                at < read.floor.len(),
                "more sectors than the read asked for"
            );
            let sector = read.first + at as u64;
            match slot.judge(sector, seen, read.floor[at]) {
                Ok(()) => slot.observe(sector, seen),
                Err(fault) => {
                    let object = read.object;
                    verdict = Err(Violation {
                        object,
                        sector,
                        during: During::Read,
                        fault,
                    });
                    break;
                }
            }
        }
        slot.forget();
        verdict
    }

    /// `on_read` for a buffer of the lab.
    ///
    /// # Errors
    /// As `on_read`.
    pub fn on_read_stamps(&mut self, read: Read, data: &[Sector]) -> Result<(), Violation> {
        let (object, first) = (read.object, read.first);
        let seen = (first..)
            .zip(data)
            .map(|(sector, stamp)| seen_stamp(object, sector, *stamp));
        self.on_read(read, seen)
    }

    /// `on_read` for a buffer of bytes; a partial sector at the end is left out.
    ///
    /// # Errors
    /// As `on_read`.
    pub fn on_read_bytes(&mut self, read: Read, data: &[u8]) -> Result<(), Violation> {
        let (object, first) = (read.object, read.first);
        let (whole, _) = data.as_chunks();
        let seen = (first..)
            .zip(whole)
            .map(|(sector, bytes)| seen_bytes(object, sector, bytes));
        self.on_read(read, seen)
    }

    /// The read failed: it showed nothing.
    pub fn on_read_failed(&mut self, read: Read) {
        let slot = self.object_mut(read.object);
        if read.crashes == slot.crashes {
            slot.reads_under_way -= 1;
            slot.forget();
        }
    }

    /// A sync of the whole object begins.
    pub fn on_sync_begin(&mut self, object: ObjectId) -> Sync {
        self.on_sync_range_begin(
            object,
            Bytes::ZERO,
            Bytes(u64::MAX / SECTOR_SIZE * SECTOR_SIZE),
        )
    }

    /// A sync of a range begins; only sectors wholly within it are acknowledged.
    pub fn on_sync_range_begin(&mut self, object: ObjectId, offset: Bytes, len: Bytes) -> Sync {
        self.clock += 1;
        let begun = self.clock;
        let slot = self.object_mut(object);
        let first = offset.0.div_ceil(SECTOR_SIZE);
        let end = offset.saturating_add(len).0 / SECTOR_SIZE;
        let whole = first == 0 && slot.truncates_under_way == 0;
        let len = whole.then(|| slot.len.at_most(Bytes(end.saturating_mul(SECTOR_SIZE))));
        let (truncates, crashes) = (slot.truncates, slot.crashes);
        Sync {
            object,
            first,
            end,
            begun,
            len,
            truncates,
            crashes,
        }
    }

    /// The sync has answered Ok: what had ended before it began is durable.
    pub fn on_sync_ok(&mut self, sync: Sync) {
        let slot = self.object_mut(sync.object);
        if sync.crashes != slot.crashes {
            return;
        }
        slot.acknowledge(&sync);
        if let Some(len) = sync.len.filter(|_| sync.truncates == slot.truncates) {
            slot.acked_len = slot.acked_len.at_least(len);
        }
        slot.forget();
    }

    /// Looks whether all that was acknowledged would survive if nothing volatile did.
    ///
    /// # Errors
    /// The first sector that would not.
    pub fn check_durable(&self, media: &Media) -> Result<(), Violation> {
        for (number, slot) in (0..).zip(&self.objects) {
            let object = ObjectId(number);
            let undone = media.undone(object);
            slot.judge_survivors(object, During::Sync, media.len(object), |page| {
                undone
                    .get(&page)
                    .copied()
                    .unwrap_or_else(|| media.read(object, page))
            })?;
        }
        Ok(())
    }

    /// The power failed and `media` is what is left (after `Media::crash`). All operations that
    /// were under way have ended; from now on the surviving content is all there is.
    ///
    /// # Errors
    /// The first sector that is older than what a sync acknowledged, or was never written.
    pub fn on_crash(&mut self, media: &Media) -> Result<(), Violation> {
        let mut verdict = Ok(());
        for (number, slot) in (0..).zip(&mut self.objects) {
            let object = ObjectId(number);
            let len = media.len(object);
            let short = Fault::Short {
                len,
                acked: slot.acked_len,
            };
            let judged = if len < slot.acked_len {
                let sector = len.0 / SECTOR_SIZE;
                Err(Violation {
                    object,
                    sector,
                    during: During::Crash,
                    fault: short,
                })
            } else {
                slot.judge_survivors(object, During::Crash, len, |page| media.read(object, page))
            };
            verdict = verdict.and(judged);
            slot.adopt(object, media);
        }
        verdict
    }

    fn begin(
        &mut self,
        object: ObjectId,
        (first, end): (u64, u64),
        zeroes: bool,
        change: LenChange,
    ) -> Write {
        self.clock += 1;
        let begun = self.clock;
        let slot = self.object_mut(object);
        assert!(slot.newest < VERSION_MAX - 1, "out of versions");
        slot.newest += 1;
        let version = slot.newest;
        for other in &slot.under_way {
            slot.log[(other - slot.first_logged) as usize].overlapped = true;
        }
        if slot.log.is_empty() {
            slot.first_logged = version;
        }
        let mut record = Record::new(first, end, begun);
        record.zeroes = zeroes;
        record.overlapped = !slot.under_way.is_empty();
        slot.log.push_back(record);
        slot.under_way.push(version);
        if zeroes {
            slot.zeroings.push(version);
        }
        slot.furthest = slot.furthest.max(end);
        Write {
            object,
            version,
            first,
            end,
            change,
            truncates: slot.truncates,
            beside_truncate: slot.truncates_under_way > 0,
            crashes: slot.crashes,
        }
    }

    fn end(&mut self, write: &Write, failed: bool) {
        self.clock += 1;
        let now = self.clock;
        let slot = self.object_mut(write.object);
        if write.crashes != slot.crashes {
            return;
        }
        slot.under_way.retain(|version| *version != write.version);
        if let LenChange::Sets(_) = write.change {
            slot.truncates_under_way -= 1;
        }
        let record = &mut slot.log[(write.version - slot.first_logged) as usize];
        record.ended = now;
        record.failed = failed;
        if failed {
            if let LenChange::Sets(len) = write.change {
                // It may have cut the object before it failed.
                slot.len = slot.len.at_most(len);
            }
            return;
        }
        let marked = write.version | if record.zeroes { ZEROED } else { 0 };
        let (first, end) = slot.grow(write.first, write.end);
        for latest in &mut slot.latest[first..end] {
            if version(*latest) < write.version {
                *latest = marked;
            }
        }
        // Beside a truncate nobody knows which came last: then the length is at least the least.
        let alone = slot.truncates == write.truncates && !write.beside_truncate;
        match write.change {
            LenChange::Keeps => {}
            LenChange::Grows(len) if alone => slot.len = slot.len.at_least(len),
            LenChange::Grows(_) => {}
            LenChange::Sets(len) if alone => slot.len = len,
            LenChange::Sets(len) => slot.len = slot.len.at_most(len),
        }
    }

    fn object_mut(&mut self, object: ObjectId) -> &mut Object {
        let at = object.0 as usize;
        if at >= self.objects.len() {
            self.objects.resize_with(at + 1, Object::default);
        }
        &mut self.objects[at]
    }
}

impl Object {
    fn before(&self, sector: u64) -> u32 {
        if sector < self.prefill.0 {
            self.prefill.1
        } else {
            0
        }
    }

    fn latest(&self, sector: u64) -> u32 {
        self.latest
            .get(index(sector))
            .copied()
            .unwrap_or_else(|| self.before(sector))
    }

    fn acked(&self, sector: u64) -> u32 {
        self.acked
            .get(index(sector))
            .copied()
            .unwrap_or_else(|| self.before(sector))
    }

    /// Makes room in the arrays; answers the range as indexes.
    fn grow(&mut self, first: u64, end: u64) -> (usize, usize) {
        for sector in self.latest.len() as u64..end {
            let before = self.before(sector);
            self.latest.push(before);
            self.acked.push(before);
        }
        (index(first), index(end))
    }

    fn record(&self, version: u32) -> Option<&Record> {
        let logged = version.checked_sub(self.first_logged).map(|at| at as usize);
        logged
            .and_then(|at| self.log.get(at))
            .or_else(|| self.kept.get(&version))
    }

    /// Checks that `seen` may stand in the sector when at least `floor` had to.
    fn judge(&self, sector: u64, seen: Seen, floor: u32) -> Result<(), Fault> {
        let newest = version(floor);
        match seen {
            Seen::Version(seen) if seen == floor => Ok(()),
            Seen::Version(seen) => {
                let Some(record) = self.record(seen) else {
                    return Err(if seen < newest {
                        Fault::Stale { seen, newest }
                    } else {
                        Fault::NeverWritten { seen }
                    });
                };
                if record.zeroes || !record.covers(sector) {
                    Err(Fault::NeverWritten { seen })
                } else if self.is_stale(seen, record, newest) {
                    Err(Fault::Stale { seen, newest })
                } else {
                    Ok(())
                }
            }
            Seen::Zeroes if floor == 0 || floor & ZEROED != 0 => Ok(()),
            Seen::Zeroes => {
                let zeroed = self.zeroings.iter().any(|zeroing| {
                    self.record(*zeroing).is_some_and(|record| {
                        record.covers(sector) && !self.is_stale(*zeroing, record, newest)
                    })
                });
                if zeroed {
                    Ok(())
                } else {
                    Err(Fault::Lost { newest })
                }
            }
            Seen::Elsewhere(from) => Err(Fault::Misplaced { from }),
            Seen::Garbled => Err(Fault::Garbled),
        }
    }

    /// True if `seen` had been replaced for good once `newest` had ended.
    fn is_stale(&self, seen: u32, record: &Record, newest: u32) -> bool {
        seen < newest
            && self
                .record(newest)
                .is_none_or(|newest| newest.begun > record.ended)
    }

    /// A version under way that a read has seen is there, for all later reads.
    fn observe(&mut self, sector: u64, seen: Seen) {
        if let Seen::Version(seen) = seen
            && seen > version(self.latest(sector))
        {
            let (at, _) = self.grow(sector, sector + 1);
            self.latest[at] = seen;
        }
    }

    fn acknowledge(&mut self, sync: &Sync) {
        for at in 0..self.log.len() {
            let record = self.log[at];
            if record.ended > sync.begun || record.failed || record.acked {
                continue;
            }
            let number = self.first_logged + u32::try_from(at).expect("versions are 31 bits");
            let marked = number | if record.zeroes { ZEROED } else { 0 };
            let (from, to) = (record.first.max(sync.first), record.end.min(sync.end));
            if from < to {
                let (first, end) = self.grow(from, to);
                for acked in &mut self.acked[first..end] {
                    if version(*acked) < number {
                        *acked = marked;
                    }
                }
            }
            self.log[at].acked = from <= record.first && record.end <= to;
        }
    }

    /// Drops records that equality with `acked` makes superfluous.
    fn forget(&mut self) {
        if !self.under_way.is_empty() || self.reads_under_way > 0 {
            return;
        }
        while let Some(record) = self.log.front() {
            if !record.acked && !record.failed {
                break;
            }
            if record.overlapped || record.failed {
                self.kept.insert(self.first_logged, *record);
            }
            self.log.pop_front();
            self.first_logged += 1;
        }
        if self.kept.len() > KEPT_MAX {
            // All are there while each is judged: acknowledged versions may be among them.
            let is_dead = |(seen, record): &(&u32, &Record)| {
                let mut covered = record.first..record.end;
                covered.all(|sector| self.is_stale(**seen, record, version(self.acked(sector))))
            };
            let dead = self.kept.iter().filter(is_dead);
            let dead: Vec<u32> = dead.map(|(seen, _)| *seen).collect();
            for seen in dead {
                self.kept.remove(&seen);
            }
        }
        let zeroings = core::mem::take(&mut self.zeroings);
        self.zeroings = zeroings
            .into_iter()
            .filter(|zeroing| self.record(*zeroing).is_some())
            .collect();
    }

    fn judge_survivors(
        &self,
        object: ObjectId,
        during: During,
        len: Bytes,
        read: impl Fn(u64) -> PageStamps,
    ) -> Result<(), Violation> {
        // A prefilled object may be vast and is only looked at where it was written.
        let beyond = if self.prefill.0 == 0 {
            len.pages_ceil()
        } else {
            Pages::ZERO
        };
        let written = (self.latest.len() as u64).div_ceil(SECTORS_PER_PAGE as u64);
        for page in 0..written.max(beyond.0) {
            for (sector, left) in (page * SECTORS_PER_PAGE as u64..).zip(read(page)) {
                let seen = seen_stamp(object, sector, left);
                self.judge(sector, seen, self.acked(sector))
                    .map_err(|fault| Violation {
                        object,
                        sector,
                        during,
                        fault,
                    })?;
            }
        }
        Ok(())
    }

    /// Takes what survived for the whole truth.
    fn adopt(&mut self, object: ObjectId, media: &Media) {
        // The part that a failed write has left behind counts, too.
        self.grow(0, self.furthest);
        for sector in 0..self.latest.len() {
            let number = sector as u64;
            let page = media.read(object, number / SECTORS_PER_PAGE as u64);
            let left = page[sector % SECTORS_PER_PAGE];
            self.latest[sector] = match seen_stamp(object, number, left) {
                Seen::Version(seen) => seen,
                Seen::Zeroes | Seen::Elsewhere(_) | Seen::Garbled => 0,
            };
        }
        self.acked.clone_from(&self.latest);
        self.log.clear();
        self.kept.clear();
        self.zeroings.clear();
        self.first_logged = self.newest + 1;
        self.under_way.clear();
        self.reads_under_way = 0;
        self.truncates_under_way = 0;
        self.crashes += 1;
        self.len = media.len(object);
        self.acked_len = self.len;
    }
}

impl Record {
    fn new(first: u64, end: u64, begun: u64) -> Self {
        let (zeroes, failed, overlapped, acked) = (false, false, false, false);
        Self {
            first,
            end,
            begun,
            ended: UNDER_WAY,
            zeroes,
            failed,
            overlapped,
            acked,
        }
    }

    fn covers(&self, sector: u64) -> bool {
        (self.first..self.end).contains(&sector)
    }
}

/// The version of an entry of `latest` or `acked`.
fn version(entry: u32) -> u32 {
    entry & !ZEROED
}

fn index(sector: u64) -> usize {
    usize::try_from(sector).expect("sector numbers fit the address space")
}

fn sectors(offset: Bytes, len: Bytes) -> (u64, u64) {
    assert!(
        offset.0.is_multiple_of(SECTOR_SIZE) && len.0.is_multiple_of(SECTOR_SIZE),
        "the checker knows whole sectors only: {offset:?} + {len:?}"
    );
    (offset.0 / SECTOR_SIZE, (offset.0 + len.0) / SECTOR_SIZE)
}

fn seen_stamp(object: ObjectId, sector: u64, left: Sector) -> Seen {
    match version_in(object, sector, left) {
        0 => Seen::Zeroes,
        version => Seen::Version(version),
    }
}

fn seen_bytes(object: ObjectId, sector: u64, bytes: &[u8; stamps::LEN]) -> Seen {
    match read_bytes(bytes) {
        Ok(None) => Seen::Zeroes,
        Ok(Some(found)) if found.object == object && found.sector == sector => {
            Seen::Version(found.version)
        }
        Ok(Some(found)) => Seen::Elsewhere(found),
        Err(Garbled) => Seen::Garbled,
    }
}

#[cfg(test)]
mod tests;
