//! A task of a plan at work: takes its steps, and tells the checker.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use env::{ObjectId, Task};
use mm::{Error, File, Pinned, PinnedRun, Reader, Stream, Writer};
use policy::units::{Bytes, Nanos};
use world::Sector;
use world::content::of_pin;

use crate::failure::fail;
use crate::going::{Going, Over, pause};
use crate::judge;
use crate::memory;
use crate::nonblocking;
use crate::op::{Op, SECTOR, SECTORS};
use crate::scene::{DeviceState, Slot, World};

/// Holds within holds.
const DEPTH_MAX: u32 = 2;
/// Interval at which a close looks whether the file is in use, and the number of its looks.
const CLOSE_REST: Nanos = Nanos::millis(2);
const CLOSE_TRIES: u32 = 20;

/// Says what is done, for a look at a run that fails.
macro_rules! say {
    ($actor:expr, $task:expr, $($what:tt)*) => {
        if $actor.world.say {
            println!("{:>12} ns  task {:?}  {}", $task.now().0, $task.id().0, format_args!($($what)*));
        }
    };
}

/// A pinned page and what it held at first.
type Held<'a> = (Pinned<'a>, [Sector; 8]);
/// The same of pages in one piece.
type HeldRun<'a> = (PinnedRun<'a>, Vec<[Sector; 8]>);

fn load(run: &PinnedRun<'_>) -> Vec<[Sector; 8]> {
    let pins = run.pins().iter();
    pins.map(|pin| of_pin(run.content(), pin)).collect()
}

pub(crate) struct Actor {
    world: Arc<World>,
    /// Its place among the gauges; none: nobody looks at how long its calls take.
    number: Option<usize>,
    /// It does not wait in its reads and writes: others do for it.
    served: bool,
    writer: Writer,
    readers: Vec<Reader>,
    /// Of its accesses through maps.
    streams: Vec<Stream>,
    /// Of its pins, whatever file they are of.
    pins: Reader,
}

impl Actor {
    pub(crate) fn new(world: &Arc<World>, number: Option<usize>, served: bool) -> Self {
        Self {
            writer: world.cache.writer(),
            readers: vec![Reader::default(); world.slots.len()],
            streams: world.slots.iter().map(|_| Stream::default()).collect(),
            pins: Reader::default(),
            number,
            served,
            world: Arc::clone(world),
        }
    }

    /// Takes all steps.
    pub(crate) fn work(mut self, task: &mut Task<'_>, ops: &[Op]) -> Going {
        let end = ops.len();
        let mut at = 0;
        while at < end {
            at = self.step(task, ops, at, end, 0)?;
        }
        let world = Arc::clone(&self.world);
        world.cache.retire(task, self.writer);
        Ok(())
    }

    /// Takes the step at `at`, and those that belong to it; answers the next.
    fn step(
        &mut self,
        task: &mut Task<'_>,
        ops: &[Op],
        at: usize,
        end: usize,
        depth: u32,
    ) -> Result<usize, Over> {
        let world = Arc::clone(&self.world);
        let op = ops[at];
        match op {
            Op::Trim => {
                world.cache.trim(task);
                return Ok(at + 1);
            }
            Op::Limit { frames } => {
                memory::set_limit(task, &world, frames);
                return Ok(at + 1);
            }
            Op::Think { us } => {
                pause(task, Nanos::micros(us))?;
                return Ok(at + 1);
            }
            Op::SyncAll => {
                self.timed(task, (at, op), None, 0, Self::sync_all)?;
                return Ok(at + 1);
            }
            _ => {}
        }
        if let Some(region) = op.region() {
            self.timed(task, (at, op), world.swap_place, 0, |actor, task| {
                memory::step(task, &actor.world, region, op)
            })?;
            return Ok(at + 1);
        }
        let number = op.file().unwrap_or(0);
        let slot = &world.slots[number];
        let place = &world.places[slot.place];
        if place.flush_failed.load(Ordering::Relaxed) {
            pause(task, Nanos::millis(1))?;
            return Ok(at + 1);
        }
        if let Op::Close { .. } = op {
            self.timed(task, (at, op), Some(slot.place), 0, |actor, task| {
                actor.close(task, slot, place)
            })?;
            return Ok(at + 1);
        }
        let Some(file) = slot.begin() else {
            pause(task, Nanos::millis(1))?;
            return Ok(at + 1);
        };
        if let Op::Hold {
            page, pages, steps, ..
        } = op
        {
            slot.end();
            let until = (at + 1).saturating_add(steps).min(end);
            if depth < DEPTH_MAX {
                self.hold(
                    task,
                    slot,
                    &file,
                    page..page + pages,
                    (ops, at, until),
                    depth,
                )?;
                return Ok(until);
            }
            return Ok(at + 1);
        }
        let bound = slot.pages_max * SECTORS;
        if let Op::Leave {
            page, pages, us, ..
        } = op
        {
            let range = within(page * SECTORS, pages * SECTORS, bound);
            // No call of it has a bound of its own.
            let going = self.leave(task, slot, place, &file, (number, range), us);
            slot.end();
            going?;
            return Ok(at + 1);
        }
        let sectors = file.len().0 / SECTOR;
        let going = match op {
            Op::Write { at: first, len, .. } => {
                let (first, len) = within(first, len, bound);
                self.timed(task, (at, op), Some(slot.place), len, |actor, task| {
                    actor.write(task, slot, place, &file, first, len)
                })
            }
            Op::Read { at: first, len, .. } => {
                let (first, len) = within(first, len, bound);
                self.timed(task, (at, op), Some(slot.place), len, |actor, task| {
                    actor.read(task, slot, place, &file, number, first, len)
                })
            }
            Op::SyncRange { at: first, len, .. } => {
                let (first, len) = within(first, len, bound);
                self.timed(task, (at, op), Some(slot.place), len, |actor, task| {
                    actor.sync_range(task, slot, place, &file, first, len)
                })
            }
            Op::Sync { .. } => {
                self.timed(task, (at, op), Some(slot.place), bound, |actor, task| {
                    actor.sync(task, slot, place, &file)
                })
            }
            Op::Punch { page, pages, .. } => {
                let (first, len) = within(page * SECTORS, pages * SECTORS, bound);
                self.timed(task, (at, op), Some(slot.place), bound, |actor, task| {
                    actor.punch(task, slot, place, &file, first, len)
                })
            }
            Op::Truncate { len, .. } => {
                self.timed(task, (at, op), Some(slot.place), 0, |actor, task| {
                    actor.set_len(task, slot, place, &file, len.min(bound))
                })
            }
            Op::Cut { by, .. } => self.timed(task, (at, op), Some(slot.place), 0, |actor, task| {
                actor.set_len(task, slot, place, &file, sectors.saturating_sub(by))
            }),
            Op::Grow { by, .. } => {
                self.timed(task, (at, op), Some(slot.place), 0, |actor, task| {
                    let longer = sectors.saturating_add(by).min(bound.max(sectors));
                    actor.set_len(task, slot, place, &file, longer)
                })
            }
            Op::Load { page, pages, .. } | Op::Store { page, pages, .. } => {
                let (page, pages) = within(page, pages, slot.pages_max);
                let stores = matches!(op, Op::Store { .. });
                let len = pages * SECTORS;
                self.timed(task, (at, op), Some(slot.place), len, |actor, task| {
                    actor.use_map(task, slot, &file, number, page..page + pages, stores)
                })
            }
            Op::LetGo { page, pages, .. } => {
                let (page, pages) = within(page, pages, slot.pages_max);
                if let Some(mapped) = slot.map() {
                    mapped.let_go(task, &file, page..page + pages);
                }
                Ok(())
            }
            Op::Unmap { .. } => {
                slot.unmap();
                Ok(())
            }
            // Dealt with above.
            _ => Ok(()),
        };
        slot.end();
        going?;
        Ok(at + 1)
    }

    /// Does a call under its task's gauge.
    fn timed(
        &mut self,
        task: &mut Task<'_>,
        (at, op): (usize, Op),
        place: Option<usize>,
        len: u64,
        call: impl FnOnce(&mut Self, &mut Task<'_>) -> Going,
    ) -> Going {
        let Some(number) = self.number else {
            return call(self, task);
        };
        let world = Arc::clone(&self.world);
        let gauge = &world.gauges[number];
        let allowed = world.allowed(place, len);
        let began = task.now();
        let pages_before = world.pages_ended.load(Ordering::Relaxed);
        world.pages_asked.fetch_add(op.pages(), Ordering::Relaxed);
        gauge.begin(began, at, allowed, pages_before);
        let going = call(self, task);
        gauge.end();
        world.pages_ended.fetch_add(op.pages(), Ordering::Relaxed);
        if allowed.steady && going.is_ok() {
            let took = task.now().since(began).0;
            let share = took.saturating_mul(1000) / allowed.time.0.max(1);
            world.longest_share.fetch_max(share, Ordering::Relaxed);
        }
        going
    }

    fn write(
        &mut self,
        task: &mut Task<'_>,
        slot: &Slot,
        place: &DeviceState,
        file: &File,
        first: u64,
        len: u64,
    ) -> Going {
        let (offset, bytes) = (Bytes(first * SECTOR), Bytes(len * SECTOR));
        let write = place.checker().on_write_begin(slot.object, offset, bytes);
        let mut data = junk(len);
        write.fill(&mut data);
        let version = write.version();
        say!(
            self,
            task,
            "writes {}: {first}+{len}, version {version}",
            slot.object.0
        );
        let log = place.layers.flushes.log.as_ref().filter(|_| !self.served);
        let result = if let Some(log) = log {
            let lsn = log.number(slot.object, first, &data);
            let written = file.write_logged(task, &mut self.writer, offset, &data, lsn);
            written.map_err(|(_, error)| error)
        } else if self.served {
            nonblocking::write(task, &self.world, file, &mut self.writer, offset, &data)
        } else {
            file.write(task, &mut self.writer, offset, &data)
        };
        say!(
            self,
            task,
            "wrote {}: version {version}: {result:?}",
            slot.object.0
        );
        match result {
            Ok(wrote) => {
                judge!(
                    wrote == bytes,
                    "short-write",
                    "{wrote:?} of {bytes:?} written"
                );
                place.checker().on_write_end(write);
                slot.reached(offset.0 + bytes.0);
                Ok(())
            }
            Err(error) => {
                place.checker().on_write_failed(write);
                slot.forget_reach();
                self.failed(place, "write", error)
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a file of the run, and a range")]
    fn read(
        &mut self,
        task: &mut Task<'_>,
        slot: &Slot,
        place: &DeviceState,
        file: &File,
        number: usize,
        first: u64,
        len: u64,
    ) -> Going {
        let (offset, bytes) = (Bytes(first * SECTOR), Bytes(len * SECTOR));
        let reach = slot.reach();
        let read = place.checker().on_read_begin(slot.object, offset, bytes);
        let mut data = junk(len);
        let mut reader = self.readers[number];
        let result = if self.served {
            nonblocking::read(task, file, &mut reader, offset, &mut data)
        } else {
            let read = file.read(task, &mut reader, offset, &mut data);
            read.map(|progress| progress.bytes)
        };
        self.readers[number] = reader;
        say!(
            self,
            task,
            "has read {}: {first}+{len}: {result:?}",
            slot.object.0
        );
        match result {
            Ok(count) => {
                let sectors = usize::try_from(count.0 / SECTOR).unwrap_or(usize::MAX);
                let verdict = place.checker().on_read_stamps(read, &data[..sectors]);
                if let Err(violation) = verdict {
                    fail(
                        "wrong-version",
                        format!("{violation} (read of {len} sectors from {first})"),
                    );
                }
                if let (Some(reach), Some(_)) = (reach, slot.reach()) {
                    let least = reach.saturating_sub(offset.0).min(bytes.0);
                    judge!(
                        count.0 >= least,
                        "short-read",
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

    /// Loads from pages of a file through its map, or stores to them: to what of them the file has.
    fn use_map(
        &mut self,
        task: &mut Task<'_>,
        slot: &Slot,
        file: &File,
        number: usize,
        pages: core::ops::Range<u64>,
        stores: bool,
    ) -> Going {
        let world = Arc::clone(&self.world);
        let place = &world.places[slot.place];
        let mapped = match slot.mapped(task, &world.stamps, file) {
            Ok(mapped) => mapped,
            // The last map is still ending, or there is no room for its table.
            Err(Error::Mapped | Error::BadOption { .. }) => return Ok(()),
            Err(error) => return self.failed(place, "map", error),
        };
        for page in pages {
            let first = page * SECTORS;
            let len = (file.len().0 / SECTOR).saturating_sub(first).min(SECTORS);
            if len == 0 {
                break;
            }
            let (offset, bytes) = (Bytes(first * SECTOR), Bytes(len * SECTOR));
            let number_of_page = u32::try_from(page).unwrap_or(u32::MAX);
            let by = (&mut self.writer, &mut self.streams[number]);
            let result = if stores {
                let store = place.checker().on_store_begin(slot.object, offset, bytes);
                let mut data = junk(len);
                store.fill(&mut data);
                let version = store.version();
                let result = mapped.store(task, &world.cache, by, number_of_page, &data);
                say!(
                    self,
                    task,
                    "stored to {}: {first}+{len}, version {version}: {result:?}",
                    slot.object.0
                );
                match result {
                    Ok(()) => place.checker().on_write_end(store),
                    Err(_) => place.checker().on_write_failed(store),
                }
                result
            } else {
                let read = place.checker().on_read_begin(slot.object, offset, bytes);
                let result = mapped.load(task, &world.cache, by, number_of_page);
                say!(
                    self,
                    task,
                    "loaded {}: {first}+{len}: {result:?}",
                    slot.object.0
                );
                match result {
                    Ok(seen) => {
                        // Bytes behind the end now are nobody's.
                        let there = (file.len().0 / SECTOR).saturating_sub(first).min(len);
                        let seen = &seen[..usize::try_from(there).unwrap_or(0)];
                        if let Err(violation) = place.checker().on_read_stamps(read, seen) {
                            fail(
                                "wrong-version",
                                format!("{violation} (load of page {page})"),
                            );
                        }
                        Ok(())
                    }
                    Err(error) => {
                        place.checker().on_read_failed(read);
                        Err(error)
                    }
                }
            };
            match result {
                Ok(()) => {}
                // Cut meanwhile.
                Err(Error::OutOfRange { .. }) => break,
                Err(error) => {
                    let what = if stores { "store" } else { "load" };
                    return self.failed(place, what, error);
                }
            }
        }
        Ok(())
    }

    /// Pins pages, goes on with other things, and finds the pages as they were.
    fn hold(
        &mut self,
        task: &mut Task<'_>,
        slot: &Slot,
        file: &Arc<File>,
        pages: core::ops::Range<u64>,
        (ops, at, until): (&[Op], usize, usize),
        depth: u32,
    ) -> Going {
        let mut pins: Vec<Held<'_>> = Vec::new();
        let mut run = None;
        let pages = pages.start.min(slot.pages_max)..pages.end.min(slot.pages_max);
        let is_run = pages.start.is_multiple_of(4) && !pages.is_empty();
        if is_run && !slot.closing.load(Ordering::Relaxed) && slot.begin().is_some() {
            let len = (pages.end - pages.start) * SECTORS;
            let (op, range) = ((at, ops[at]), pages.clone());
            let going = self.timed(task, op, Some(slot.place), len, |actor, task| {
                run = actor.pin_run(task, slot, file, range)?;
                Ok(())
            });
            slot.end();
            going?;
        }
        let single = if is_run { 0..0 } else { pages };
        for page in single {
            if slot.closing.load(Ordering::Relaxed) || slot.begin().is_none() {
                break;
            }
            let mut pinned = None;
            let going = self.timed(
                task,
                (at, ops[at]),
                Some(slot.place),
                SECTORS,
                |actor, task| {
                    pinned = actor.pin(task, slot, file, page)?;
                    Ok(())
                },
            );
            slot.end();
            going?;
            pins.extend(pinned);
        }
        let mut next = at + 1;
        while next < until {
            next = self.step(task, ops, next, until, depth + 1)?;
        }
        if let Some((run, seen)) = &run {
            let now = load(run);
            judge!(
                now == *seen,
                "pin-changed",
                "a page of a run under its pins"
            );
        }
        for (pin, seen) in &pins {
            let now = of_pin(pin.content(), pin.pin());
            judge!(
                now == *seen,
                "pin-changed",
                "{seen:?} became {now:?} under a pin"
            );
        }
        Ok(())
    }

    /// Pins pages in one piece; each was as it is at some moment since the call began.
    fn pin_run<'a>(
        &mut self,
        task: &mut Task<'_>,
        slot: &Slot,
        file: &'a File,
        pages: core::ops::Range<u64>,
    ) -> Result<Option<HeldRun<'a>>, Over> {
        let world = Arc::clone(&self.world);
        let place = &world.places[slot.place];
        let reads = pages.clone().map(|page| {
            let offset = Bytes(page * SECTORS * SECTOR);
            let len = Bytes(SECTORS * SECTOR);
            place.checker().on_read_begin(slot.object, offset, len)
        });
        let reads: Vec<_> = reads.collect();
        let first = u32::try_from(pages.start).unwrap_or(u32::MAX);
        let count = u32::try_from(reads.len()).unwrap_or(u32::MAX);
        let at_once = file.try_pin_run(first, count);
        let pinned = match at_once {
            Some(run) => Ok(run),
            None => file.pin_run(task, &mut self.pins, (first, count)),
        };
        match pinned {
            Ok(run) => {
                let frames: Vec<u32> = run.pins().iter().map(|pin| pin.frame().0).collect();
                judge!(
                    frames.is_sorted_by(|a, b| *a + 1 == *b) && frames.len() == reads.len(),
                    "no-run",
                    "{count} pages from {first} in frames {frames:?}"
                );
                let seen = load(&run);
                for ((read, seen), page) in reads.into_iter().zip(&seen).zip(pages) {
                    if let Err(violation) = place.checker().on_read_stamps(read, seen) {
                        fail(
                            "wrong-version",
                            format!("{violation} (page {page} of a run)"),
                        );
                    }
                }
                Ok(Some((run, seen)))
            }
            Err(error) => {
                for read in reads {
                    place.checker().on_read_failed(read);
                }
                // Pages beyond the end, more pins than may be, no block that can be emptied, or a
                // map.
                if !matches!(
                    error,
                    Error::OutOfRange { .. }
                        | Error::TooMany { .. }
                        | Error::NoRun { .. }
                        | Error::Mapped
                ) {
                    self.failed(place, "pin_run", error)?;
                }
                Ok(None)
            }
        }
    }

    fn pin<'a>(
        &mut self,
        task: &mut Task<'_>,
        slot: &Slot,
        file: &'a File,
        page: u64,
    ) -> Result<Option<Held<'a>>, Over> {
        let world = Arc::clone(&self.world);
        let place = &world.places[slot.place];
        let read = place.checker().on_read_begin(
            slot.object,
            Bytes(page * SECTORS * SECTOR),
            Bytes(SECTORS * SECTOR),
        );
        let number = u32::try_from(page).unwrap_or(u32::MAX);
        let at_once = if page.is_multiple_of(2) {
            file.try_pin(number)
        } else {
            None
        };
        let pinned = match at_once {
            Some(pinned) => Ok(pinned),
            None => file.pin(task, &mut self.pins, number),
        };
        match pinned {
            Ok(pinned) => {
                let seen = of_pin(pinned.content(), pinned.pin());
                if let Err(violation) = place.checker().on_read_stamps(read, &seen) {
                    fail("wrong-version", format!("{violation} (pin of page {page})"));
                }
                Ok(Some((pinned, seen)))
            }
            Err(error) => {
                place.checker().on_read_failed(read);
                // A page beyond the end, more pins than may be, or a map.
                if !matches!(
                    error,
                    Error::OutOfRange { .. } | Error::TooMany { .. } | Error::Mapped
                ) {
                    self.failed(place, "pin", error)?;
                }
                Ok(None)
            }
        }
    }

    fn set_len(
        &mut self,
        task: &mut Task<'_>,
        slot: &Slot,
        place: &DeviceState,
        file: &File,
        sectors: u64,
    ) -> Going {
        let len = Bytes(sectors * SECTOR);
        slot.forget_reach();
        let truncate = place.checker().on_truncate_begin(slot.object, len);
        let version = truncate.version();
        say!(
            self,
            task,
            "cuts {} to {sectors}, version {version}",
            slot.object.0
        );
        let result = file.truncate(task, len);
        say!(
            self,
            task,
            "has cut {}: version {version}: {result:?}",
            slot.object.0
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

    fn punch(
        &mut self,
        task: &mut Task<'_>,
        slot: &Slot,
        place: &DeviceState,
        file: &File,
        first: u64,
        len: u64,
    ) -> Going {
        let (offset, bytes) = (Bytes(first * SECTOR), Bytes(len * SECTOR));
        let hole = place.checker().on_discard_begin(slot.object, offset, bytes);
        let version = hole.version();
        say!(
            self,
            task,
            "punches {}: {first}+{len}, version {version}",
            slot.object.0
        );
        let result = file.punch(task, offset, bytes);
        say!(
            self,
            task,
            "has punched {}: version {version}: {result:?}",
            slot.object.0
        );
        match result {
            Ok(()) => {
                place.checker().on_write_end(hole);
                Ok(())
            }
            Err(error) => {
                place.checker().on_write_failed(hole);
                self.failed(place, "punch", error)
            }
        }
    }

    /// A client asks for a hole, or writes (from odd pages on), and is gone in the middle of that.
    /// Once a sync of another is answered, nothing changes for it any more: data written then are
    /// there.
    fn leave(
        &mut self,
        task: &mut Task<'_>,
        slot: &Slot,
        place: &DeviceState,
        file: &Arc<File>,
        (number, (first, len)): (usize, (u64, u64)),
        us: u64,
    ) -> Going {
        let (offset, bytes) = (Bytes(first * SECTOR), Bytes(len * SECTOR));
        let punches = (first / SECTORS).is_multiple_of(2);
        let mut data = junk(len);
        let left = if punches {
            place.checker().on_discard_begin(slot.object, offset, bytes)
        } else {
            let write = place.checker().on_write_begin(slot.object, offset, bytes);
            write.fill(&mut data);
            write
        };
        say!(self, task, "leaves {}: {first}+{len}", slot.object.0);
        slot.forget_reach();
        let client = file.clone_handle();
        let doing = {
            let (client, cache) = (Arc::clone(&client), Arc::clone(&self.world.cache));
            env::spawn(task.env(), "client", move |task| {
                task.act_for(client.client());
                if punches {
                    return client.punch(task, offset, bytes);
                }
                let mut writer = cache.writer();
                let written = client.write(task, &mut writer, offset, &data);
                cache.retire(task, writer);
                written.map(|_| ())
            })
        };
        let paused = pause(task, Nanos::micros(us));
        client.end();
        paused?;
        let sync = place.checker().on_sync_begin(slot.object);
        let result = file.sync(task);
        let is_over = result.is_ok();
        if is_over {
            place.checker().on_write_failed(left);
            self.synced(slot, place, sync, "sync", result)?;
            self.write(task, slot, place, file, first, len)?;
            // The step it was in the middle of comes to its end.
            let _ = doing.join(task);
            return self.read(task, slot, place, file, number, first, len);
        }
        let _ = doing.join(task);
        place.checker().on_write_failed(left);
        self.synced(slot, place, sync, "sync", result)
    }

    fn sync(
        &mut self,
        task: &mut Task<'_>,
        slot: &Slot,
        place: &DeviceState,
        file: &File,
    ) -> Going {
        let sync = place.checker().on_sync_begin(slot.object);
        say!(self, task, "syncs {}", slot.object.0);
        let result = file.sync(task);
        say!(self, task, "has synced {}: {result:?}", slot.object.0);
        self.synced(slot, place, sync, "sync", result)
    }

    fn sync_range(
        &mut self,
        task: &mut Task<'_>,
        slot: &Slot,
        place: &DeviceState,
        file: &File,
        first: u64,
        len: u64,
    ) -> Going {
        let (offset, bytes) = (Bytes(first * SECTOR), Bytes(len * SECTOR));
        let sync = place
            .checker()
            .on_sync_range_begin(slot.object, offset, bytes);
        say!(self, task, "syncs {}: {first}+{len}", slot.object.0);
        let result = file.sync_range(task, offset, bytes);
        say!(
            self,
            task,
            "has synced {}: {first}+{len}: {result:?}",
            slot.object.0
        );
        self.synced(slot, place, sync, "sync_range", result)
    }

    fn synced(
        &mut self,
        slot: &Slot,
        place: &DeviceState,
        sync: world::check::Sync,
        what: &str,
        result: Result<(), Error>,
    ) -> Going {
        match result {
            Ok(()) => {
                judge!(
                    place.layers.flushes.has(slot.object),
                    "first-flush",
                    "a {what} of object {} was answered, and no flush of it has reached the device since it was opened",
                    slot.object.0
                );
                place.checker().on_sync_ok(sync);
                place.check_durable();
                Ok(())
            }
            Err(error) => self.failed(place, what, error),
        }
    }

    fn sync_all(&mut self, task: &mut Task<'_>) -> Going {
        let world = Arc::clone(&self.world);
        let failed = |place: &DeviceState| place.flush_failed.load(Ordering::Relaxed);
        if world.places.iter().any(failed) {
            return Ok(());
        }
        let begin = |slot: &Slot| {
            world.places[slot.place]
                .checker()
                .on_sync_begin(slot.object)
        };
        let syncs: Vec<_> = world.slots.iter().map(begin).collect();
        say!(self, task, "syncs all");
        let result = world.cache.sync(task);
        say!(self, task, "has synced all: {result:?}");
        match result {
            Ok(()) => {
                // A file may be closed meanwhile: then its own close has acknowledged it, or
                // failed.
                for (slot, sync) in world.slots.iter().zip(syncs) {
                    if !slot.closing.load(Ordering::Relaxed) {
                        world.places[slot.place].checker().on_sync_ok(sync);
                    }
                }
                world.places.iter().for_each(DeviceState::check_durable);
                Ok(())
            }
            Err(Error::Cancelled) => Err(Over),
            Err(_) if world.is_dark() => Err(Over),
            // The rest of a truncation may want a frame: as for the sync of one file.
            Err(error) if world.is_refusal(&error) => Ok(()),
            // Which device it was is found out by the task that syncs a file of it.
            Err(error) => {
                let all_calm = world.places.iter().all(|place| place.calm);
                judge!(!all_calm, "unexpected-error", "sync of all: {error}");
                Ok(())
            }
        }
    }

    fn close(&mut self, task: &mut Task<'_>, slot: &Slot, place: &DeviceState) -> Going {
        if slot.closing.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        for _ in 0..CLOSE_TRIES {
            if slot.is_unused() {
                break;
            }
            pause(task, CLOSE_REST)?;
        }
        let mut going = Ok(());
        if slot.is_unused() {
            going = self.close_alone(task, slot, place);
        }
        slot.closing.store(false, Ordering::Relaxed);
        going
    }

    fn close_alone(&mut self, task: &mut Task<'_>, slot: &Slot, place: &DeviceState) -> Going {
        let file = slot.open_file();
        slot.unmap();
        let sync = place.checker().on_sync_begin(slot.object);
        say!(self, task, "closes {}", slot.object.0);
        let closed = file.close(task);
        say!(self, task, "has closed {}: {closed:?}", slot.object.0);
        if let Err(error) = closed {
            return self.failed(place, "close", error);
        }
        place.checker().on_sync_ok(sync);
        place.check_durable();
        let len = place.media().len(slot.object);
        judge!(
            len == file.len() || self.world.is_dark(),
            "length",
            "object {} has {len:?}, its closed file {:?}",
            slot.object.0,
            file.len()
        );
        place.layers.flushes.opened(slot.object);
        match self.world.cache.open(task, place.index, slot.object, len) {
            Ok(file) => {
                place.layers.flushes.lead(task, &file);
                *slot.file_cell() = Some(file);
            }
            Err(Error::FlushFailed { .. }) => {
                *slot.file_cell() = None;
                place.flush_failed.store(true, Ordering::Relaxed);
            }
            Err(error) => fail("unexpected-error", format!("open: {error}")),
        }
        Ok(())
    }

    /// An operation has failed: that may be, unless everything is well.
    fn failed(&self, place: &DeviceState, what: &str, error: Error) -> Going {
        if error == Error::Cancelled || self.world.is_dark() {
            return Err(Over);
        }
        if matches!(error, Error::FlushFailed { .. }) {
            place.flush_failed.store(true, Ordering::Relaxed);
        }
        if self.world.is_refusal(&error) {
            return Ok(());
        }
        judge!(
            !place.calm,
            "unexpected-error",
            "{what} failed on a device without faults: {error}"
        );
        let of_device = !matches!(
            error,
            Error::OutOfMemory { .. } | Error::TooMany { .. } | Error::OutOfRange { .. }
        );
        judge!(of_device, "unexpected-error", "{what}: {error}");
        Ok(())
    }
}

/// The range, cut so that it lies in the file's bound; plans may be changed by hand.
fn within(first: u64, len: u64, bound: u64) -> (u64, u64) {
    let len = len.clamp(1, bound);
    (first.min(bound - len), len)
}

fn junk(sectors: u64) -> Vec<Sector> {
    vec![Sector::JUNK; usize::try_from(sectors).unwrap_or(0)]
}

/// Reads the whole file in pieces, and beyond its end.
pub(crate) fn read_all(task: &mut Task<'_>, place: &DeviceState, slot: &Slot) {
    const PIECE: u64 = 64 * SECTORS;
    let file = slot.open_file();
    let mut reader = Reader::default();
    let len = file.len().0;
    let ObjectId(object) = slot.object;
    for offset in (0..=len).step_by(64 * 4096) {
        let bytes = Bytes(PIECE * SECTOR);
        let read = place
            .checker()
            .on_read_begin(slot.object, Bytes(offset), bytes);
        let mut data = junk(PIECE);
        let count = match file.read(task, &mut reader, Bytes(offset), &mut data) {
            Ok(progress) => progress.bytes,
            // The lab has given up, and says why.
            Err(Error::Cancelled) => return,
            Err(error) => fail(
                "unexpected-error",
                format!("the last read of {object}: {error}"),
            ),
        };
        let least = (len - offset).min(bytes.0);
        judge!(
            count.0 == least,
            "short-read",
            "{count:?} of {least} bytes at the end"
        );
        let sectors = usize::try_from(count.0 / SECTOR).unwrap_or(usize::MAX);
        if let Err(violation) = place.checker().on_read_stamps(read, &data[..sectors]) {
            fail("wrong-version", format!("at the end: {violation}"));
        }
    }
}
