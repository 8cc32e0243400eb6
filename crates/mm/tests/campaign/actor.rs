//! Tasks that do a random mix of everything, and tell the checker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use env::{Cause, ObjectId, Task, Wakeup};
use lab::check::Checker;
use lab::platter::SharedPlatter;
use lab::{LabEnv, Sector};
use mm::{Cache, Error, File, Pinned, Reader, Writer};
use policy::dirty::DeviceIndex;
use policy::units::{Bytes, Nanos};

use super::plan::Dice;
use super::unsteady::Unsteady;

pub const SECTOR: u64 = 512;
pub const SECTORS: u64 = 8;

/// A device of a run.
pub struct Place {
    pub index: DeviceIndex,
    pub device: Arc<Unsteady>,
    pub platter: SharedPlatter,
    pub checker: Mutex<Checker>,
    /// Nothing may fail on it.
    pub calm: bool,
    /// A flush has failed: nobody uses it until it is opened again.
    pub flush_failed: AtomicBool,
}

impl Place {
    pub fn checker(&self) -> MutexGuard<'_, Checker> {
        self.checker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a sync has acknowledged would survive the loss of all that is volatile.
    pub fn check_durable(&self) {
        let platter = self.platter.lock().unwrap_or_else(PoisonError::into_inner);
        let verdict = self.checker().check_durable(&platter);
        drop(platter);
        if let Err(violation) = verdict {
            panic!("{violation}");
        }
    }
}

/// A file of a run.
pub struct Slot {
    pub place: usize,
    pub object: ObjectId,
    pub pages_max: u64,
    pub file: Mutex<Option<Arc<File<LabEnv>>>>,
    /// Tasks inside a call on it, which a close waits for.
    users: AtomicU32,
    closing: AtomicBool,
    /// End of the furthest write that went well, in bytes; none once a truncate or failure made it
    /// uncertain.
    reach: Mutex<Option<u64>>,
    /// The sector where the file was last cut: many look there.
    cut: AtomicU64,
}

impl Slot {
    pub fn new(place: usize, object: ObjectId, pages_max: u64, len: u64) -> Self {
        Self {
            place,
            object,
            pages_max,
            file: Mutex::new(None),
            users: AtomicU32::new(0),
            closing: AtomicBool::new(false),
            reach: Mutex::new(Some(len)),
            cut: AtomicU64::new(0),
        }
    }

    pub fn reach(&self) -> Option<u64> {
        *self.reach.lock().unwrap()
    }

    /// What stands in it is known from elsewhere from now on.
    pub fn forget_reach(&self) {
        *self.reach.lock().unwrap() = None;
    }

    pub fn open_file(&self) -> Arc<File<LabEnv>> {
        Arc::clone(self.file.lock().unwrap().as_ref().unwrap())
    }

    fn begin(&self) -> Option<Arc<File<LabEnv>>> {
        if self.closing.load(Ordering::Relaxed) {
            return None;
        }
        let file = self.file.lock().unwrap().clone()?;
        self.users.fetch_add(1, Ordering::Relaxed);
        Some(file)
    }

    fn end(&self) {
        self.users.fetch_sub(1, Ordering::Relaxed);
    }
}

pub struct World {
    pub cache: Arc<Cache<LabEnv>>,
    pub places: Vec<Place>,
    pub slots: Vec<Slot>,
    /// The devices stay healed.
    pub fair: AtomicBool,
}

/// Says what is done, for a look at a seed that fails.
macro_rules! say {
    ($task:expr, $($what:tt)*) => {
        if std::env::var_os("TIDEGATE_SAY").is_some() {
            eprintln!("{:>12} {:?} {}", $task.now().0, $task.id(), format_args!($($what)*));
        }
    };
}

/// A pinned page and what it held at first.
type Held<'a> = (Pinned<'a, LabEnv>, [Sector; 8]);

/// The run is over.
pub struct Over;

pub type Going = Result<(), Over>;

pub struct Actor {
    world: Arc<World>,
    dice: Dice,
    writer: Writer,
    readers: Vec<Reader>,
    /// Where it goes on writing and reading in order, in sectors.
    at: u64,
}

impl Actor {
    pub fn new(world: &Arc<World>, seed: u64) -> Self {
        Self {
            writer: world.cache.writer(),
            readers: vec![Reader::default(); world.slots.len()],
            world: Arc::clone(world),
            dice: Dice::new(seed),
            at: 0,
        }
    }

    /// Takes so many steps.
    pub fn work(mut self, task: &mut Task<'_, LabEnv>, steps: u64) -> Going {
        for _ in 0..steps {
            self.step(task, 0)?;
        }
        let world = Arc::clone(&self.world);
        world.cache.retire(task, self.writer);
        Ok(())
    }

    fn step(&mut self, task: &mut Task<'_, LabEnv>, depth: u32) -> Going {
        let world = Arc::clone(&self.world);
        let number = self.dice.below(world.slots.len() as u64) as usize;
        let slot = &world.slots[number];
        let place = &world.places[slot.place];
        if place.flush_failed.load(Ordering::Relaxed) {
            return pause(task, Nanos::millis(1));
        }
        let choice = self.dice.below(100);
        match choice {
            90..=92 => return self.close(task, slot, place),
            93..=94 => {
                world.cache.trim(task);
                return Ok(());
            }
            95..=96 => return self.sync_all(task),
            97..=99 => {
                let rest = Nanos::micros(self.dice.below(30_000));
                return pause(task, rest);
            }
            _ => {}
        }
        let Some(file) = slot.begin() else {
            return pause(task, Nanos::millis(1));
        };
        let result = match choice {
            0..=41 => self.write(task, slot, place, &file),
            42..=63 => self.read(task, slot, place, &file, number),
            64..=70 => self.truncate(task, slot, place, &file),
            71..=78 => self.sync(task, slot, place, &file),
            79..=82 => self.sync_range(task, slot, place, &file),
            _ => {
                slot.end();
                return self.hold(task, slot, place, &file, depth);
            }
        };
        slot.end();
        result
    }

    /// A run of sectors below the file's bound: in order, whole pages, or anything.
    fn range(&mut self, slot: &Slot) -> (u64, u64) {
        let bound = slot.pages_max * SECTORS;
        let len = match self.dice.below(10) {
            0..=4 => self.dice.between(1, 3 * SECTORS),
            5..=7 => SECTORS * self.dice.between(1, 32),
            8 => SECTORS * self.dice.between(1, 400),
            _ => self.dice.between(1, 600),
        };
        let len = len.min(bound);
        let mut first = match self.dice.below(5) {
            0 | 1 => self.at % bound,
            2 => slot
                .cut
                .load(Ordering::Relaxed)
                .saturating_sub(self.dice.below(4 * SECTORS)),
            _ => self.dice.below(bound),
        };
        if self.dice.one_in(2) {
            first -= first % SECTORS;
        }
        let first = first.min(bound - len);
        self.at = first + len;
        (first, len)
    }

    fn write(
        &mut self,
        task: &mut Task<'_, LabEnv>,
        slot: &Slot,
        place: &Place,
        file: &File<LabEnv>,
    ) -> Going {
        let (first, len) = self.range(slot);
        let (offset, bytes) = (Bytes(first * SECTOR), Bytes(len * SECTOR));
        let write = place.checker().on_write_begin(slot.object, offset, bytes);
        let mut data = vec![Sector(0); len as usize];
        write.fill(&mut data);
        say!(
            task,
            "{} write v{} sectors {first}+{len}",
            slot.object.0,
            write.version()
        );
        let result = file.write(task, &mut self.writer, offset, &data);
        say!(
            task,
            "{} wrote v{}: {result:?}",
            slot.object.0,
            write.version()
        );
        match result {
            Ok(wrote) => {
                assert_eq!(wrote, bytes);
                place.checker().on_write_end(write);
                if let Some(reach) = slot.reach.lock().unwrap().as_mut() {
                    *reach = (*reach).max(offset.0 + bytes.0);
                }
                Ok(())
            }
            Err(error) => {
                place.checker().on_write_failed(write);
                *slot.reach.lock().unwrap() = None;
                self.failed(place, "write", error)
            }
        }
    }

    fn read(
        &mut self,
        task: &mut Task<'_, LabEnv>,
        slot: &Slot,
        place: &Place,
        file: &File<LabEnv>,
        number: usize,
    ) -> Going {
        let (first, len) = self.range(slot);
        let (offset, bytes) = (Bytes(first * SECTOR), Bytes(len * SECTOR));
        let reach = slot.reach();
        let read = place.checker().on_read_begin(slot.object, offset, bytes);
        let mut data = vec![Sector::JUNK; len as usize];
        let mut reader = self.readers[number];
        let result = file.read(task, &mut reader, offset, &mut data);
        self.readers[number] = reader;
        match result {
            Ok(count) => {
                let seen = &data[..(count.0 / SECTOR) as usize];
                let verdict = place.checker().on_read_stamps(read, seen);
                if let Err(violation) = verdict {
                    panic!(
                        "{violation} (read of {len} sectors from {first}, file of {:?})",
                        file.len()
                    );
                }
                if let (Some(reach), Some(_)) = (reach, slot.reach()) {
                    let least = reach.saturating_sub(offset.0).min(bytes.0);
                    assert!(
                        count.0 >= least,
                        "a read of {} bytes where {least} were written",
                        count.0
                    );
                }
                Ok(())
            }
            Err(error) => {
                place.checker().on_read_failed(read);
                self.failed(place, "read", error)
            }
        }
    }

    /// Pins pages, goes on with other things, and finds the pages as they were.
    fn hold(
        &mut self,
        task: &mut Task<'_, LabEnv>,
        slot: &Slot,
        place: &Place,
        file: &Arc<File<LabEnv>>,
        depth: u32,
    ) -> Going {
        if depth >= 2 {
            return Ok(());
        }
        let mut pins: Vec<Held<'_>> = Vec::new();
        for _ in 0..self.dice.between(1, 6) {
            let page = self.dice.below(slot.pages_max);
            if slot.closing.load(Ordering::Relaxed) {
                break;
            }
            slot.users.fetch_add(1, Ordering::Relaxed);
            let pinned = self.pin(task, slot, place, file, page);
            slot.end();
            pins.extend(pinned?);
        }
        for _ in 0..self.dice.between(1, 8) {
            self.step(task, depth + 1)?;
        }
        for (pin, seen) in &pins {
            let now = pin.content().load(pin.pin().frame());
            assert_eq!(now, *seen, "a pinned page has changed");
        }
        Ok(())
    }

    fn pin<'a>(
        &mut self,
        task: &mut Task<'_, LabEnv>,
        slot: &Slot,
        place: &Place,
        file: &'a File<LabEnv>,
        page: u64,
    ) -> Result<Option<Held<'a>>, Over> {
        let (offset, bytes) = (Bytes(page * 4096), Bytes(4096));
        let read = place.checker().on_read_begin(slot.object, offset, bytes);
        let number = u32::try_from(page).unwrap();
        let pinned = if self.dice.one_in(2)
            && let Some(pinned) = file.try_pin(number)
        {
            Ok(pinned)
        } else {
            file.pin(task, number)
        };
        match pinned {
            Ok(pinned) => {
                let seen = pinned.content().load(pinned.pin().frame());
                if let Err(violation) = place.checker().on_read_stamps(read, &seen) {
                    panic!("{violation} (pin of page {page}, file of {:?})", file.len());
                }
                Ok(Some((pinned, seen)))
            }
            Err(error) => {
                place.checker().on_read_failed(read);
                if !matches!(error, Error::OutOfRange { .. } | Error::TooMany { .. }) {
                    self.failed(place, "pin", error)?;
                }
                Ok(None)
            }
        }
    }

    /// Cuts the file or makes it longer; often both, one after the other.
    fn truncate(
        &mut self,
        task: &mut Task<'_, LabEnv>,
        slot: &Slot,
        place: &Place,
        file: &File<LabEnv>,
    ) -> Going {
        let bound = slot.pages_max * SECTORS;
        let mut len = self.dice.below(bound + 1);
        if self.dice.one_in(2) {
            len -= len % SECTORS;
        }
        if self.dice.one_in(2) {
            // Where the file has something to lose.
            len = len.min((file.len().0 / SECTOR).saturating_sub(self.dice.below(80)));
        }
        slot.cut.store(len, Ordering::Relaxed);
        self.set_len(task, slot, place, file, len)?;
        if self.dice.one_in(2) {
            let longer = self.dice.between(len, bound);
            self.set_len(task, slot, place, file, longer)?;
        }
        Ok(())
    }

    fn set_len(
        &mut self,
        task: &mut Task<'_, LabEnv>,
        slot: &Slot,
        place: &Place,
        file: &File<LabEnv>,
        sectors: u64,
    ) -> Going {
        let len = Bytes(sectors * SECTOR);
        *slot.reach.lock().unwrap() = None;
        let truncate = place.checker().on_truncate_begin(slot.object, len);
        say!(
            task,
            "{} truncate v{} to sector {sectors}",
            slot.object.0,
            truncate.version()
        );
        let result = file.truncate(task, len);
        say!(
            task,
            "{} truncated v{}: {result:?}",
            slot.object.0,
            truncate.version()
        );
        match result {
            Ok(()) => {
                place.checker().on_truncate_end(truncate);
                Ok(())
            }
            Err(error) => {
                place.checker().on_write_failed(truncate);
                self.failed(place, "truncate", error)
            }
        }
    }

    fn sync(
        &mut self,
        task: &mut Task<'_, LabEnv>,
        slot: &Slot,
        place: &Place,
        file: &File<LabEnv>,
    ) -> Going {
        let sync = place.checker().on_sync_begin(slot.object);
        say!(task, "{} sync", slot.object.0);
        let result = file.sync(task);
        say!(task, "{} synced: {result:?}", slot.object.0);
        self.synced(place, sync, "sync", result)
    }

    fn sync_range(
        &mut self,
        task: &mut Task<'_, LabEnv>,
        slot: &Slot,
        place: &Place,
        file: &File<LabEnv>,
    ) -> Going {
        let (first, len) = self.range(slot);
        let (offset, bytes) = (Bytes(first * SECTOR), Bytes(len * SECTOR));
        let sync = place
            .checker()
            .on_sync_range_begin(slot.object, offset, bytes);
        say!(task, "{} sync_range {first}+{len}", slot.object.0);
        let result = file.sync_range(task, offset, bytes);
        say!(
            task,
            "{} synced_range {first}+{len}: {result:?}",
            slot.object.0
        );
        self.synced(place, sync, "sync_range", result)
    }

    fn synced(
        &mut self,
        place: &Place,
        sync: lab::check::Sync,
        what: &str,
        result: Result<(), Error>,
    ) -> Going {
        match result {
            Ok(()) => {
                place.checker().on_sync_ok(sync);
                place.check_durable();
                Ok(())
            }
            Err(error) => self.failed(place, what, error),
        }
    }

    fn sync_all(&mut self, task: &mut Task<'_, LabEnv>) -> Going {
        let world = Arc::clone(&self.world);
        if world
            .places
            .iter()
            .any(|place| place.flush_failed.load(Ordering::Relaxed))
        {
            return Ok(());
        }
        let begin = |slot: &Slot| {
            world.places[slot.place]
                .checker()
                .on_sync_begin(slot.object)
        };
        let syncs: Vec<_> = world.slots.iter().map(begin).collect();
        // A file may be closed meanwhile: then its own close has acknowledged it, or failed.
        match world.cache.sync(task) {
            Ok(()) => {
                for (slot, sync) in world.slots.iter().zip(syncs) {
                    if !slot.closing.load(Ordering::Relaxed) {
                        world.places[slot.place].checker().on_sync_ok(sync);
                    }
                }
                world.places.iter().for_each(Place::check_durable);
                Ok(())
            }
            Err(Error::Cancelled) => Err(Over),
            Err(Error::FlushFailed { .. }) => {
                // Which device it was is found out by whoever syncs a file of it.
                assert!(
                    world.places.iter().any(|place| !place.calm),
                    "sync of all failed on calm devices"
                );
                Ok(())
            }
            Err(error) => {
                assert!(
                    world.places.iter().any(|place| !place.calm),
                    "sync of all failed: {error}"
                );
                Ok(())
            }
        }
    }

    fn close(&mut self, task: &mut Task<'_, LabEnv>, slot: &Slot, place: &Place) -> Going {
        if slot.closing.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        for _ in 0..20 {
            if slot.users.load(Ordering::Relaxed) == 0 {
                break;
            }
            pause(task, Nanos::millis(2))?;
        }
        let mut result = Ok(());
        if slot.users.load(Ordering::Relaxed) == 0 {
            result = self.close_alone(task, slot, place);
        }
        slot.closing.store(false, Ordering::Relaxed);
        result
    }

    fn close_alone(&mut self, task: &mut Task<'_, LabEnv>, slot: &Slot, place: &Place) -> Going {
        let file = slot.open_file();
        let sync = place.checker().on_sync_begin(slot.object);
        let result = file.close(task);
        say!(task, "{} closed: {result:?}", slot.object.0);
        if let Err(error) = result {
            return self.failed(place, "close", error);
        }
        place.checker().on_sync_ok(sync);
        place.check_durable();
        let len = place.platter.lock().unwrap().len(slot.object);
        assert_eq!(len, file.len(), "the length of a closed file");
        match self.world.cache.open(task, place.index, slot.object, len) {
            Ok(file) => *slot.file.lock().unwrap() = Some(file),
            Err(Error::FlushFailed { .. }) => {
                *slot.file.lock().unwrap() = None;
                place.flush_failed.store(true, Ordering::Relaxed);
            }
            Err(error) => panic!("open: {error}"),
        }
        Ok(())
    }

    /// An operation has failed: that may be, unless everything is well.
    fn failed(&self, place: &Place, what: &str, error: Error) -> Going {
        if error == Error::Cancelled {
            return Err(Over);
        }
        if matches!(error, Error::FlushFailed { .. }) {
            place.flush_failed.store(true, Ordering::Relaxed);
        }
        assert!(
            !place.calm,
            "{what} failed on a device without faults: {error}"
        );
        assert!(
            !matches!(
                error,
                Error::OutOfMemory { .. } | Error::TooMany { .. } | Error::OutOfRange { .. }
            ),
            "{what}: {error}"
        );
        Ok(())
    }
}

pub fn pause(task: &mut Task<'_, LabEnv>, time: Nanos) -> Going {
    match task.sleep(Cause::Think, time) {
        Wakeup::Cancelled => Err(Over),
        Wakeup::Ready | Wakeup::TimedOut => Ok(()),
    }
}
