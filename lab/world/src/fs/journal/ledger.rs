//! The journal's books: transactions, the tasks inside them, the kinds of their blocks.
//!
//! Nothing here waits or sends anything; `commit` and the device do, on what the ledger says.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use env::ObjectId;
use policy::units::{Instant, Nanos, Pages};

use super::ranges::Ranges;
use super::{Data, Options};

/// Most pages that are given blocks in one handle (Linux: `MAX_WRITEPAGES_EXTENT_LEN`).
pub(super) const EXTENT_MAX: u64 = 2_048;
/// Inodes of 256 bytes in a block.
const INODES_A_BLOCK: u32 = 16;
/// Blocks that one bitmap block covers.
const GROUP_PAGES: u64 = 32_768;
/// Group descriptors of 64 bytes in a block.
const GROUPS_A_BLOCK: u64 = 64;
/// Blocks that one descriptor block of the log names.
const TAGS_A_BLOCK: u64 = 255;
/// The part of the log that one transaction may fill.
const LOG_SHARE: u64 = 4;
/// Metadata stays dirty in memory for so long before it is written in place.
const HOME_AFTER: Nanos = Nanos::secs(30);

/// A block of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Buffer {
    /// Inodes of neighbouring files.
    Inodes(u32),
    /// Which blocks of a group are taken.
    Bitmap(u64),
    /// The number of blocks taken in each group.
    Descriptors(u64),
}

/// Pages of a file that were given blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    /// Which file.
    pub object: ObjectId,
    /// First page.
    pub first: u64,
    /// The page after the last.
    pub end: u64,
}

/// Changes that reach the log together or not at all.
#[derive(Clone, Debug)]
pub(super) struct Transaction {
    pub(super) id: u64,
    pub(super) began: Instant,
    pub(super) buffers: BTreeSet<Buffer>,
    pub(super) given: Vec<Given>,
}

impl Transaction {
    /// Blocks it takes in the log: descriptors, buffers, the record of the commit.
    pub(super) fn log_pages(&self) -> u64 {
        log_pages(self.buffers.len() as u64)
    }

    pub(super) fn ordered(&self) -> Pages {
        Pages(self.given.iter().map(|given| given.end - given.first).sum())
    }

    fn give(&mut self, object: ObjectId, first: u64, end: u64) {
        if let Some(last) = self.given.last_mut()
            && last.object == object
            && last.end == first
        {
            last.end = end;
            return;
        }
        self.given.push(Given { object, first, end });
    }
}

fn log_pages(buffers: u64) -> u64 {
    buffers + buffers.div_ceil(TAGS_A_BLOCK) + 1
}

/// Writes of a file that go on one where the other ended.
#[derive(Debug)]
struct Run {
    object: ObjectId,
    transaction: u64,
    first: u64,
    next: u64,
    in_flight: u32,
    /// A task that sends it is inside the transaction until all but its last bio has been sent.
    in_handle: bool,
}

impl Run {
    fn pages(&self) -> u64 {
        self.next - self.first
    }
}

/// A run that was written, and is not part of its file yet.
#[derive(Clone, Copy, Debug)]
struct Conversion {
    serial: u64,
    given: Given,
}

/// The stage of the committing transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its blocks go to the log and nobody may change them; its data may still come.
    Logging,
    /// Its data are written, its blocks are in the log; only the record is missing.
    Recording,
}

/// A transaction in the log whose blocks are not all in place.
#[derive(Debug)]
struct Checkpoint {
    log_pages: u64,
    buffers: BTreeSet<Buffer>,
    since: Instant,
    /// Blocks under way to their places; none: not begun.
    writing: Option<u64>,
}

/// The verdict on a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// All its pages have blocks.
    Over,
    /// It joined a transaction; tell `write_done` this number.
    Joined(u64),
    /// Not now.
    Refused,
}

pub(super) struct Ledger {
    options: Options,
    next_id: u64,
    running: Option<Transaction>,
    /// The running transaction takes nobody in any more.
    locked: bool,
    committing: Option<(Transaction, Stage)>,
    /// The last transaction whose record is on the device.
    committed: u64,
    /// Somebody cannot go on before the running transaction is committed.
    asked: bool,
    runs: BTreeMap<u64, Run>,
    /// The run of a file that may go on.
    going: BTreeMap<ObjectId, u64>,
    next_run: u64,
    /// In the order in which they were written.
    conversions: Vec<Conversion>,
    given: BTreeMap<ObjectId, Ranges>,
    /// Blocks given so far: where the next come from.
    given_pages: u64,
    /// When a file's time was last changed, in ticks.
    touched: BTreeMap<ObjectId, u64>,
    /// The last transaction that gave a file blocks or changed its length.
    last: BTreeMap<ObjectId, u64>,
    log_used: u64,
    log_head: u64,
    /// Somebody waits for space in the log.
    full: bool,
    checkpoints: VecDeque<Checkpoint>,
    homes: BTreeMap<Buffer, u64>,
}

impl Ledger {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            options: options.clone(),
            next_id: 1,
            running: None,
            locked: false,
            committing: None,
            committed: 0,
            asked: false,
            runs: BTreeMap::new(),
            going: BTreeMap::new(),
            next_run: 1,
            conversions: Vec::new(),
            given: BTreeMap::new(),
            given_pages: 0,
            touched: BTreeMap::new(),
            last: BTreeMap::new(),
            log_used: 0,
            log_head: 0,
            full: false,
            checkpoints: VecDeque::new(),
            homes: BTreeMap::new(),
        }
    }

    /// Notes blocks that a file had before the run.
    pub(super) fn has(&mut self, object: ObjectId, pages: Pages) {
        self.given.entry(object).or_default().insert(0, pages.0);
        self.given_pages += pages.0;
    }

    /// A call that writes: the file's time changes, at most once a tick. False: not now.
    pub(super) fn touch(&mut self, object: ObjectId, now: Instant) -> bool {
        let tick = now.0 / self.options.tick.0.max(1);
        if self.touched.get(&object) == Some(&tick) {
            return true;
        }
        let joined = self.join(&[inodes(object)], now);
        if joined {
            self.touched.insert(object, tick);
        }
        joined
    }

    /// The file's length changes. False: not now.
    pub(super) fn set_len(&mut self, object: ObjectId, pages: Pages, now: Instant) -> bool {
        if !self.join(&self.needs(object), now) {
            return false;
        }
        self.end_run(object);
        self.given.entry(object).or_default().cut(pages.0);
        self.last.insert(object, self.next_id - 1);
        true
    }

    /// A write of `pages` pages, of whose run `more` may follow.
    pub(super) fn write(
        &mut self,
        object: ObjectId,
        first: u64,
        pages: u64,
        more: Pages,
        now: Instant,
    ) -> Write {
        let end = first + pages;
        if self
            .given
            .get(&object)
            .is_some_and(|given| given.covers(first, end))
        {
            return Write::Over;
        }
        let serial = match self.run_that_goes_on(object, first, pages) {
            Some(serial) => serial,
            None => {
                self.end_run(object);
                if !self.join(&self.needs(object), now) {
                    return Write::Refused;
                }
                self.begin_run(object, first)
            }
        };
        let fresh = self.given.entry(object).or_default().insert(first, end);
        self.given_pages += fresh;
        let run = self.runs.get_mut(&serial).expect("it was found or begun");
        run.next = end;
        run.in_flight += 1;
        let bio = self.options.bio.0;
        run.in_handle &= more.0 > bio && run.pages() + bio < EXTENT_MAX;
        if more.is_zero() || run.pages() >= EXTENT_MAX {
            self.going.remove(&object);
        }
        let id = run.transaction;
        self.last.insert(object, id);
        if self.options.data != Data::Unwritten {
            self.transaction(id).give(object, first, end);
        }
        Write::Joined(serial)
    }

    /// The device is through with a write that had joined.
    pub(super) fn write_done(&mut self, serial: u64) {
        let run = self
            .runs
            .get_mut(&serial)
            .expect("a run stays until its writes have ended");
        run.in_flight -= 1;
        if run.in_flight == 0 {
            // Nobody waits for room to send the next piece: the sender has gone.
            let run = self.runs.remove(&serial).expect("it was found above");
            if self.going.get(&run.object) == Some(&serial) {
                self.going.remove(&run.object);
            }
            if self.options.data == Data::Unwritten {
                let given = Given {
                    object: run.object,
                    first: run.first,
                    end: run.next,
                };
                self.conversions.push(Conversion { serial, given });
            }
        }
    }

    /// Makes runs that were written part of their files; answers their numbers. Their place in the
    /// running transaction was reserved, so only a block on its way to the log keeps them.
    pub(super) fn convert(&mut self, now: Instant) -> Vec<u64> {
        let mut done = Vec::new();
        for conversion in core::mem::take(&mut self.conversions) {
            let given = conversion.given;
            let needs = [inodes(given.object)];
            if self.is_on_its_way(&needs) {
                self.conversions.push(conversion);
                continue;
            }
            let running = self.enter(&needs, now);
            running.give(given.object, given.first, given.end);
            let id = running.id;
            self.last.insert(given.object, id);
            done.push(conversion.serial);
        }
        done
    }

    /// Forgets which runs were written and are not part of their files; answers their numbers.
    pub(super) fn give_up(&mut self) -> Vec<u64> {
        let all = self.conversions.drain(..);
        all.map(|conversion| conversion.serial).collect()
    }

    /// The transaction that a flush of the file has to wait for; it is asked for.
    pub(super) fn wanted_by_flush(&mut self, object: ObjectId) -> Option<u64> {
        let id = *self.last.get(&object)?;
        let open = id > self.committed;
        self.asked |= open && self.running.as_ref().is_some_and(|tx| tx.id == id);
        open.then_some(id)
    }

    pub(super) fn is_committed(&self, id: u64) -> bool {
        id <= self.committed
    }

    /// When the running transaction is to be committed; none: there is none.
    pub(super) fn due(&self) -> Option<Instant> {
        let running = self.running.as_ref()?;
        Some(if self.asked {
            running.began
        } else {
            running.began + self.options.commit
        })
    }

    /// The running transaction takes nobody in any more.
    pub(super) fn lock(&mut self) {
        self.locked = true;
        self.asked = false;
    }

    /// True if somebody is still inside the running transaction.
    pub(super) fn has_handles(&self) -> bool {
        let id = self.running.as_ref().map(|running| running.id);
        self.runs
            .values()
            .any(|run| run.in_handle && Some(run.transaction) == id)
    }

    /// The running transaction begins to commit, another may begin. Answers where in the log its
    /// blocks go, how many, and where the record.
    pub(super) fn switch(&mut self) -> (u64, u64, u64) {
        let running = self.running.take().expect("what is committed was running");
        self.locked = false;
        let (head, pages) = (self.log_head, running.log_pages());
        self.log_used += pages;
        self.log_head = (head + pages) % self.options.size.0;
        let record = (head + pages - 1) % self.options.size.0;
        self.committing = Some((running, Stage::Logging));
        (head, pages - 1, record)
    }

    pub(super) fn committing(&self) -> Option<&Transaction> {
        self.committing.as_ref().map(|(committing, _)| committing)
    }

    /// True if data of the committing transaction are under way.
    pub(super) fn has_data(&self) -> bool {
        let id = self.committing().map(|committing| committing.id);
        self.runs
            .values()
            .any(|run| run.in_flight > 0 && Some(run.transaction) == id)
    }

    /// The blocks are in the log: they may be changed again.
    pub(super) fn logged(&mut self) {
        if let Some((_, stage)) = &mut self.committing {
            *stage = Stage::Recording;
        }
    }

    /// The record is on the device.
    pub(super) fn recorded(&mut self, now: Instant) -> Transaction {
        let (done, _) = self
            .committing
            .take()
            .expect("what is recorded was committing");
        self.committed = done.id;
        // Blocks in a later transaction's log need not be written in place for an older one.
        for older in self.checkpoints.iter_mut().filter(|c| c.writing.is_none()) {
            older
                .buffers
                .retain(|buffer| !done.buffers.contains(buffer));
        }
        self.checkpoints.push_back(Checkpoint {
            log_pages: done.log_pages(),
            buffers: done.buffers.clone(),
            since: now,
            writing: None,
        });
        done
    }

    /// The journal has failed: nothing is committed any more.
    pub(super) fn abort(&mut self) {
        self.running = None;
        self.committing = None;
        self.locked = false;
    }

    /// Begins to write the oldest transaction's blocks in place, if it is time or space is wanted;
    /// answers their places.
    pub(super) fn checkpoint(&mut self, now: Instant) -> Vec<u64> {
        while let Some(oldest) = self.checkpoints.front_mut() {
            let is_due = self.full || now >= oldest.since + HOME_AFTER;
            if oldest.writing.is_some() || !is_due {
                break;
            }
            // A block that a transaction in memory holds is written with that one.
            let newer = self
                .running
                .iter()
                .chain(self.committing.iter().map(|c| &c.0));
            let newer: Vec<_> = newer.map(|tx| &tx.buffers).collect();
            oldest
                .buffers
                .retain(|buffer| !newer.iter().any(|buffers| buffers.contains(buffer)));
            if oldest.buffers.is_empty() {
                self.free_oldest();
                continue;
            }
            oldest.writing = Some(oldest.buffers.len() as u64);
            let homes = &mut self.homes;
            let home = |buffer: &Buffer| {
                let next = homes.len() as u64;
                *homes.entry(*buffer).or_insert(next)
            };
            return oldest.buffers.iter().map(home).collect();
        }
        // Only what is in memory fills the log: it has to get there first.
        self.asked |= self.full && self.checkpoints.is_empty() && self.running.is_some();
        Vec::new()
    }

    /// A block has reached its place. True: the log has space again.
    pub(super) fn in_place(&mut self) -> bool {
        let oldest = self
            .checkpoints
            .front_mut()
            .expect("the oldest is written, and stays until it is");
        let left = oldest
            .writing
            .as_mut()
            .expect("its blocks were sent to their places");
        *left -= 1;
        if *left > 0 {
            return false;
        }
        self.free_oldest();
        true
    }

    /// True if a checkpoint could begin now.
    pub(super) fn wants_checkpoint(&self) -> bool {
        self.full
            && match self.checkpoints.front() {
                Some(oldest) => oldest.writing.is_none(),
                None => self.running.is_some() && !self.asked,
            }
    }

    fn free_oldest(&mut self) {
        if let Some(oldest) = self.checkpoints.pop_front() {
            self.log_used -= oldest.log_pages;
            self.full = false;
        }
    }

    /// Enters the running transaction to change those blocks.
    fn join(&mut self, needs: &[Buffer], now: Instant) -> bool {
        if self.locked || self.is_on_its_way(needs) {
            return false;
        }
        let (mut buffers, share) = (needs.len() as u64, self.options.size.0 / LOG_SHARE);
        if let Some(running) = &self.running {
            let fresh = needs.iter().filter(|b| !running.buffers.contains(b));
            buffers = (running.buffers.len() + fresh.count()) as u64;
            if log_pages(buffers) > share {
                self.asked = true;
                return false;
            }
        }
        if self.log_used + log_pages(buffers) > self.options.size.0 {
            self.full = true;
            return false;
        }
        self.enter(needs, now);
        true
    }

    /// True if one of the blocks stands to be logged: it must not be changed.
    fn is_on_its_way(&self, needs: &[Buffer]) -> bool {
        let Some((committing, Stage::Logging)) = &self.committing else {
            return false;
        };
        needs
            .iter()
            .any(|buffer| committing.buffers.contains(buffer))
    }

    /// Adds blocks to the running transaction, which begins with the first.
    fn enter(&mut self, needs: &[Buffer], now: Instant) -> &mut Transaction {
        let next_id = &mut self.next_id;
        let running = self.running.get_or_insert_with(|| {
            let id = *next_id;
            *next_id += 1;
            Transaction {
                id,
                began: now,
                buffers: BTreeSet::new(),
                given: Vec::new(),
            }
        });
        running.buffers.extend(needs);
        running
    }

    /// The blocks of metadata that giving blocks to a file changes.
    fn needs(&self, object: ObjectId) -> [Buffer; 3] {
        let group = self.given_pages / GROUP_PAGES;
        [
            inodes(object),
            Buffer::Bitmap(group),
            Buffer::Descriptors(group / GROUPS_A_BLOCK),
        ]
    }

    /// The run that this write goes on with: its blocks were given with those before it.
    fn run_that_goes_on(&self, object: ObjectId, first: u64, pages: u64) -> Option<u64> {
        let serial = *self.going.get(&object)?;
        let run = self.runs.get(&serial)?;
        let takes_more = match &self.committing {
            // Its data come before its conversion, whenever it was given blocks.
            _ if self.options.data == Data::Unwritten => true,
            Some((committing, stage)) if committing.id == run.transaction => {
                *stage == Stage::Logging
            }
            _ => !self.is_committed(run.transaction),
        };
        let goes_on = run.next == first && run.pages() + pages <= EXTENT_MAX && takes_more;
        goes_on.then_some(serial)
    }

    fn begin_run(&mut self, object: ObjectId, first: u64) -> u64 {
        let serial = self.next_run;
        self.next_run += 1;
        let transaction = self.next_id - 1;
        let run = Run {
            object,
            transaction,
            first,
            next: first,
            in_flight: 0,
            in_handle: true,
        };
        self.runs.insert(serial, run);
        self.going.insert(object, serial);
        serial
    }

    fn end_run(&mut self, object: ObjectId) {
        if let Some(serial) = self.going.remove(&object)
            && let Some(run) = self.runs.get_mut(&serial)
        {
            run.in_handle = false;
        }
    }

    fn transaction(&mut self, id: u64) -> &mut Transaction {
        let committing = self.committing.as_mut().map(|(committing, _)| committing);
        self.running
            .as_mut()
            .into_iter()
            .chain(committing)
            .find(|transaction| transaction.id == id)
            .expect("a run that goes on is in a transaction in memory")
    }
}

fn inodes(object: ObjectId) -> Buffer {
    Buffer::Inodes(object.0 / INODES_A_BLOCK)
}
