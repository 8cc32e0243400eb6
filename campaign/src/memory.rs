//! Anonymous memory of a run: what its tasks do with regions, and the judgement of what they find
//! there.
//!
//! A page that nobody wrote to since it was given back reads as zeroes, but for the word that a
//! fault puts at the start of a page of the lab (`Content::mark`): the page's number and one. Such
//! a word is taken for zeroes; so a page whose content was lost and that was then faulted in afresh
//! is found out by the version that it lost.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use env::{Cause, ObjectId, Task, Wakeup};
use mm::Error;
use policy::units::{Bytes, Nanos, Pages};
use world::Sector;
use world::check::Write;

use crate::failure::fail;
use crate::going::{Going, Over};
use crate::judge;
use crate::op::{Op, SECTOR, SECTORS};
use crate::scene::{Memory, Region, World};

/// A region is read in pieces of this many pages at the end.
const PIECE: u64 = 32;
const PIECE_STEP: usize = 32;
/// Number of tries of the last read of a region, and the rests between them: a swap file that has
/// failed backs off.
const TRIES: u32 = 120;
const REST: Nanos = Nanos::millis(500);
/// Refusals after which the rest of a region is left alone: each may take minutes under 5.16-rc1.
const REFUSALS_MAX: u32 = 8;

/// Takes a step in anonymous memory.
pub(crate) fn step(task: &mut Task<'_>, world: &World, number: usize, op: Op) -> Going {
    let Some(memory) = world.regions.get(number) else {
        return Ok(());
    };
    let region = &memory.region();
    match op {
        Op::Touch { page, pages, .. } => touch(task, world, region, page, pages),
        Op::Put { at, len, .. } => put(task, world, region, at, len),
        Op::Get { at, len, .. } => get(task, world, region, at, len),
        Op::Discard { page, pages, .. } => discard(task, world, region, page, pages),
        Op::Renew { .. } => renew(task, world, memory),
        _ => Ok(()),
    }
}

/// Puts another region in a place; the last task in the old one gives that back.
fn renew(task: &mut Task<'_>, world: &World, memory: &Memory) -> Going {
    let pages = memory.pages;
    match world.cache.spill(task, Pages(pages)) {
        Ok(spill) => {
            let number = world.next_region.fetch_add(1, Ordering::Relaxed);
            let region = Region {
                object: ObjectId(number),
                pages,
                spill,
            };
            drop(memory.replace(Some(region)));
            Ok(())
        }
        // There is no room for its table beside those of the old ones.
        Err(Error::BadOption { .. }) => Ok(()),
        Err(error) => failed(world, "renew", error),
    }
}

/// Plans may be changed by hand: the range, cut so that it lies in the region.
fn within(first: u64, len: u64, bound: u64) -> (u64, u64) {
    let len = len.clamp(1, bound);
    (first.min(bound - len), len)
}

fn pages_within(memory: &Region, page: u64, pages: u64) -> (u32, u32) {
    let (page, pages) = within(page, pages, memory.pages);
    let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    (small(page), small(pages))
}

/// Sets the limit, as far as it may be set.
pub(crate) fn set_limit(task: &mut Task<'_>, world: &World, frames: u64) {
    match world.cache.set_limit(task, Pages(frames)) {
        Ok(())
        | Err(
            Error::BadOption { .. }
            | Error::LimitTooSmall { .. }
            | Error::PinnedAboveLimit { .. }
            | Error::RegionsAboveLimit { .. },
        ) => {}
        Err(error) => fail("unexpected-error", format!("a limit of {frames}: {error}")),
    }
}

fn touch(task: &mut Task<'_>, world: &World, memory: &Region, page: u64, pages: u64) -> Going {
    let (page, pages) = pages_within(memory, page, pages);
    let result = memory.spill.touch(task, page, pages);
    match result {
        Ok(touched) => {
            // A page that goes again before it was stored to faults again.
            judge!(
                touched.pages == Pages(u64::from(pages)) && touched.major <= touched.faults,
                "touched",
                "{touched:?} of {pages} pages"
            );
            Ok(())
        }
        Err(error) => failed(world, "touch", error),
    }
}

fn put(task: &mut Task<'_>, world: &World, memory: &Region, at: u64, len: u64) -> Going {
    let (at, len) = within(at, len, memory.pages * SECTORS);
    let (offset, bytes) = (Bytes(at * SECTOR), Bytes(len * SECTOR));
    let write = world
        .anon_checker()
        .on_write_begin(memory.object, offset, bytes);
    let mut data = junk(len);
    write.fill(&mut data);
    let result = memory.spill.write(task, offset, &data);
    ended(world, memory, write, "write", result)
}

fn discard(task: &mut Task<'_>, world: &World, memory: &Region, page: u64, pages: u64) -> Going {
    let (page, pages) = pages_within(memory, page, pages);
    let (offset, bytes) = (
        Pages(u64::from(page)).bytes(),
        Pages(u64::from(pages)).bytes(),
    );
    let write = world
        .anon_checker()
        .on_discard_begin(memory.object, offset, bytes);
    let result = memory.spill.discard(task, page, pages);
    ended(world, memory, write, "discard", result)
}

fn ended(
    world: &World,
    memory: &Region,
    write: Write,
    what: &str,
    result: Result<(), Error>,
) -> Going {
    let mut checker = world.anon_checker();
    match result {
        Ok(()) => {
            checker.on_write_end(write);
            // Nothing of it need survive a loss of power; this keeps the checker's memory short.
            let sync = checker.on_sync_begin(memory.object);
            checker.on_sync_ok(sync);
            Ok(())
        }
        Err(error) => {
            checker.on_write_failed(write);
            drop(checker);
            failed(world, what, error)
        }
    }
}

fn get(task: &mut Task<'_>, world: &World, memory: &Region, at: u64, len: u64) -> Going {
    let (at, len) = within(at, len, memory.pages * SECTORS);
    let (offset, bytes) = (Bytes(at * SECTOR), Bytes(len * SECTOR));
    let read = world
        .anon_checker()
        .on_read_begin(memory.object, offset, bytes);
    let mut data = junk(len);
    match memory.spill.read(task, offset, &mut data) {
        Ok(()) => {
            without_marks(at, &mut data);
            if let Err(violation) = world.anon_checker().on_read_stamps(read, &data) {
                fail(
                    "wrong-version",
                    format!("anonymous: {violation} (read of {len} sectors from {at})"),
                );
            }
            Ok(())
        }
        Err(error) => {
            world.anon_checker().on_read_failed(read);
            failed(world, "read", error)
        }
    }
}

/// Takes the marks of fresh pages for the zeroes around them.
fn without_marks(first: u64, data: &mut [Sector]) {
    for (number, sector) in (first..).zip(data) {
        let page = number / SECTORS;
        if number.is_multiple_of(SECTORS) && u64::from(sector.0) == page + 1 {
            *sector = Sector(0);
        }
    }
}

/// An operation has failed: that may be, where memory is short or the swap file's device is sick.
fn failed(world: &World, what: &str, error: Error) -> Going {
    if error == Error::Cancelled || world.is_dark() {
        return Err(Over);
    }
    if world.is_refusal(&error) {
        return Ok(());
    }
    match error {
        Error::OutOfMemory { .. } => fail(
            "unexpected-error",
            format!(
                "{what} in anonymous memory, for which there is room: {error}\n{}",
                reading(world)
            ),
        ),
        Error::SwapReadFailed { .. } => {
            let calm = world
                .swap_place
                .is_none_or(|place| world.places[place].calm);
            judge!(
                !calm,
                "unexpected-error",
                "{what} in anonymous memory, on a device without faults: {error}"
            );
        }
        _ => fail(
            "unexpected-error",
            format!("{what} in anonymous memory: {error}"),
        ),
    }
    Ok(())
}

/// All counters, for the message of a failure.
pub(crate) fn reading(world: &World) -> String {
    let stats = world.cache.stats();
    let vmstat = world.cache.vmstat();
    let counters: Vec<_> = vmstat
        .entries()
        .filter(|(_, value)| *value > 0)
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    format!("{stats:?}\n{}", counters.join(", "))
}

/// With everything healed: no page of any region is lost or old; then all of it is given back.
/// Answers whether the lab goes on.
///
/// Pages that have been read are given back at once: where there is not room for all regions, that
/// makes some. The regions that hold most of the memory come first.
pub(crate) fn finish(task: &mut Task<'_>, world: &World) -> bool {
    let mut regions: Vec<_> = world.regions.iter().map(Memory::region).collect();
    regions.sort_by_key(|region| core::cmp::Reverse(region.spill.resident()));
    for memory in &regions {
        let mut refusals = 0;
        for page in (0..memory.pages).step_by(PIECE_STEP) {
            let (page, pages) = pages_within(memory, page, PIECE.min(memory.pages - page));
            match read_at_last(task, world, memory, page, pages) {
                Last::Cancelled => return false,
                Last::Read => {}
                Last::Refused => refusals += 1,
            }
            if refusals == REFUSALS_MAX {
                break;
            }
            match memory.spill.discard(task, page, pages) {
                Ok(()) => {}
                Err(Error::Cancelled) => return false,
                Err(error) => fail("unexpected-error", format!("the last discard: {error}")),
            }
        }
    }
    for memory in &world.regions {
        memory.replace(None);
    }
    true
}

/// The end of the last read of a piece.
enum Last {
    Read,
    /// There is no room for it.
    Refused,
    /// The lab has given up, and says why.
    Cancelled,
}

fn read_at_last(
    task: &mut Task<'_>,
    world: &World,
    memory: &Region,
    page: u32,
    pages: u32,
) -> Last {
    let (at, len) = (u64::from(page) * SECTORS, u64::from(pages) * SECTORS);
    let (offset, bytes) = (Bytes(at * SECTOR), Bytes(len * SECTOR));
    let mut tries = 0;
    loop {
        let read = world
            .anon_checker()
            .on_read_begin(memory.object, offset, bytes);
        let mut data = junk(len);
        let error = match memory.spill.read(task, offset, &mut data) {
            Ok(()) => {
                without_marks(at, &mut data);
                if let Err(violation) = world.anon_checker().on_read_stamps(read, &data) {
                    fail(
                        "wrong-version",
                        format!("anonymous, at the end: {violation}"),
                    );
                }
                return Last::Read;
            }
            Err(Error::Cancelled) => return Last::Cancelled,
            Err(error) => error,
        };
        world.anon_checker().on_read_failed(read);
        // Without room for all of it, a piece that is refused now may be refused for ever.
        if matches!(error, Error::OutOfMemory { .. }) && !world.memory_suffices {
            return Last::Refused;
        }
        tries += 1;
        judge!(
            tries < TRIES,
            "unexpected-error",
            "the last read of anonymous memory: {error}\n{}",
            reading(world)
        );
        if task.sleep(Cause::Think, REST) == Wakeup::Cancelled {
            return Last::Cancelled;
        }
    }
}

/// After the regions are gone and all is written: nothing of them is left, and every page that was
/// looked at is accounted for.
pub(crate) fn add_up(task: &mut Task<'_>, world: &Arc<World>) -> bool {
    let mut tries = 0;
    while let Some(broken) = broken(world) {
        // A page on its way to a slow device when its owner gave it back takes its time.
        if world.cache.vmstat().get(mm::Item::NrWriteback) == 0 {
            tries += 1;
        }
        judge!(
            tries < TRIES,
            "accounting",
            "{broken} does not hold: {}",
            reading(world)
        );
        if task.sleep(Cause::Think, REST) == Wakeup::Cancelled {
            return false;
        }
    }
    // The rest of the accounts are of all frames.
    let frames = world.cache.stats().frames;
    if let Err(error) = world.cache.set_limit(task, frames) {
        fail(
            "unexpected-error",
            format!("raising the limit to all frames: {error}"),
        );
    }
    true
}

/// An account that does not add up (yet).
fn broken(world: &World) -> Option<&'static str> {
    use mm::Item;
    let vmstat = world.cache.vmstat();
    let of = |item| vmstat.get(item);
    let limit = world.cache.limit();
    if !limit.over.is_zero() {
        return Some("frames in use <= limit");
    }
    if let Some(sum) = vmstat.broken_sum() {
        return Some(sum);
    }
    if of(Item::SwapFree) != of(Item::SwapTotal) {
        return Some("swap_free = swap_total");
    }
    if of(Item::NrInactiveAnon) + of(Item::NrActiveAnon) > 0 {
        return Some("nr_inactive_anon + nr_active_anon = 0");
    }
    let listed = of(Item::NrInactiveFile) + of(Item::NrActiveFile) + of(Item::NrAside);
    if Pages(listed) != world.cache.stats().cached {
        return Some("nr_inactive_file + nr_active_file + nr_aside = cached");
    }
    None
}

fn junk(sectors: u64) -> Vec<Sector> {
    vec![Sector::JUNK; usize::try_from(sectors).unwrap_or(0)]
}
