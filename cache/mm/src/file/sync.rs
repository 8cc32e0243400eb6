//! Making written data durable.
//!
//! ```text
//!   tag what is dirty now -> write it -> wait for it -> set the true length -> flush the device
//! ```
//!
//! Pages dirtied after the tagging are not waited for, so a sync ends however fast others write.
//! It answers Ok only when every byte written before it is on the device and the device has been
//! flushed; it fails as long as bytes are not durable. An error that has healed since is told once
//! to each holder. A failed flush fails the device until it is reopened: what it had taken since
//! the last good flush can no longer be known.
//!
//! One sync may be carried out for many holders: all that asked before it began. Each caller gets
//! the result that its own sync would have had, and takes it from the same one (`Synced`), since
//! each is told of a healed error once.
//!
//! Source: docs/adr/0009 (error contract); mechanisms 6.2 (tagging against livelock).

use core::sync::atomic::Ordering;
use std::sync::Arc;

use env::{Cause, IoClass, IoOp, Signal, Task};
use frames::{Flags, FrameId, Tag};
use policy::units::{Bytes, PAGE_SHIFT, Pages};

use crate::cache::{Cache, FILE_MAX, get};
use crate::file::truncate::{cut, drop_behind_end, zero_behind_end};
use crate::registry::REQUEST_PAGES;
use crate::registry::device::DeviceState;
use crate::registry::gate::ShutGate;
use crate::registry::mapping::Mapping;
use crate::registry::rounds::{Part, SeenErrors, Synced, merge};
use crate::writeback::flush::{Selection, sync_wait, write_pages};
use crate::{Error, writeback::io};

/// Pages tagged at a time, so that the index lock is short.
const TAG_BATCH: u32 = 4096;

/// The number that a flush has to cover; none: it is not needed.
type Owed = fn(&Mapping) -> Option<u64>;

/// Syncs every file of the cache; the first error is the answer.
pub(crate) fn sync_all(task: &mut Task<'_>, cache: &Arc<Cache>, owed: Owed) -> Result<(), Error> {
    let files: Vec<Arc<Mapping>> = cache.registry.files.lock(task).iter().cloned().collect();
    let devices = cache.writeback.devices.lock(task).clone();
    for device in devices {
        note_sync(task, cache, &device, get(&device.dirty));
    }
    let mut answer = Ok(());
    for mapping in files {
        if !cache.visit_file(task, &mapping) {
            continue;
        }
        // Nobody's handle: healed errors are left for the holders to be told.
        let mut seen = SeenErrors {
            writes: u64::MAX,
            flushes: mapping.device.flush_failures(),
        };
        let synced = carry_out(task, cache, &mapping, &[(0, u32::MAX)], owed);
        mapping.end_visit();
        answer = answer.and(synced.answer(task, &mapping, &mut seen));
    }
    answer
}

/// Syncs a file that ends.
pub(crate) fn sync_at_end(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    mapping: &Arc<Mapping>,
) -> Synced {
    note_sync(task, cache, &mapping.device, get(&mapping.dirty));
    let (all, owed) = ([(0, u32::MAX)], Mapping::unflushed_at_end);
    carry_out(task, cache, mapping, &all, owed)
}

/// Syncs parts of a file, for all callers that asked for them before.
pub(crate) fn sync_parts(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    mapping: &Arc<Mapping>,
    parts: &[Part],
) -> Synced {
    let last = mapping.size().saturating_sub(1) >> PAGE_SHIFT;
    let is_whole = |(from, to): &Part| *from == 0 && u64::from(*to) >= last;
    let is_whole = parts.iter().any(is_whole);
    // A sync of a part says nothing of the rest.
    if is_whole {
        note_sync(task, cache, &mapping.device, get(&mapping.dirty));
    }
    if !is_short(mapping, parts) {
        return carry_out(task, cache, mapping, parts, Mapping::unflushed);
    }
    let together = |task: &mut Task<'_>, mut parts| {
        merge(&mut parts);
        carry_out(task, cache, mapping, &parts, Mapping::unflushed)
    };
    let rounds = mapping.rounds(is_whole);
    let joined = rounds.join(task, parts, together, Synced::is_done);
    joined.unwrap_or_else(Synced::ended)
}

/// True if others may wait for it: it writes at most what a request has. The writer of a log must
/// not wait for pages that its log holds, which may be of the same file.
fn is_short(mapping: &Mapping, parts: &[Part]) -> bool {
    let most = REQUEST_PAGES as u64;
    let unwritten = || get(&mapping.dirty) + u64::from(mapping.writeback.load(Ordering::Relaxed));
    let pages = |(from, to): &Part| u64::from(to - from) + 1;
    mapping.ahead().is_none()
        && (parts.iter().map(pages).sum::<u64>() <= most || unwritten() <= most)
}

fn carry_out(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    mapping: &Arc<Mapping>,
    parts: &[Part],
    owed: Owed,
) -> Synced {
    let before = SeenErrors {
        writes: mapping.error_seq(),
        flushes: mapping.device.flush_failures(),
    };
    Synced {
        done: make_durable(task, cache, mapping, parts, owed),
        before,
    }
}

impl Synced {
    /// True if all that was asked for is durable, whatever earlier error a holder has yet to be
    /// told.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.done.is_ok()
    }

    /// The answer for a holder that has reported the errors in `seen`; those it reports now are
    /// noted.
    pub(crate) fn answer(
        &self,
        task: &Task<'_>,
        mapping: &Mapping,
        seen: &mut SeenErrors,
    ) -> Result<(), Error> {
        let result = self.done.and_then(|()| {
            // Also a sync since which the device was reopened: writes before it may be gone.
            let device = &mapping.device;
            device.flush_failure_since(task, self.before.flushes)?;
            device.flush_failure_since(task, seen.flushes)?;
            if seen.writes < self.before.writes {
                return Err(mapping.write_error(task));
            }
            Ok(())
        });
        match result {
            Err(Error::WriteFailed { .. }) => seen.writes = seen.writes.max(mapping.error_seq()),
            Err(Error::FlushFailed { .. }) => seen.flushes = mapping.device.flush_failures(),
            _ => {}
        }
        result
    }
}

/// Tells the law of a sync that finds `found` dirty pages: it may be one of many.
fn note_sync(task: &Task<'_>, cache: &Cache, device: &DeviceState, found: u64) {
    let counts = cache.counts(device);
    let mut domain = cache.writeback.domain.lock(task);
    domain.on_sync(task.now(), device.index, Pages(found), &counts);
}

fn make_durable(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    mapping: &Arc<Mapping>,
    parts: &[Part],
    owed: Owed,
) -> Result<(), Error> {
    mapping.device.flush_failure(task)?;
    let size = mapping.size();
    write_and_wait(task, cache, mapping, parts)?;
    settle_length(task, cache, mapping, size)?;
    flush_device(task, mapping, owed)?;
    // Last: the task that hears of this sync sees nothing change any more for those that had ended
    // by now.
    mapping.wait_for_the_ended(task)
}

/// The flusher leaves a file alone until this goes.
pub(crate) struct LeftAlone<'a> {
    cache: &'a Cache,
    mapping: &'a Mapping,
    is_sync: bool,
}

impl<'a> LeftAlone<'a> {
    /// For a sync, which the file's device counts, or for a task that discards.
    pub(crate) fn new(cache: &'a Cache, mapping: &'a Mapping, is_sync: bool) -> Self {
        mapping.syncing.fetch_add(1, Ordering::AcqRel);
        let syncs = u32::from(is_sync);
        mapping.device.syncs.fetch_add(syncs, Ordering::AcqRel);
        Self {
            cache,
            mapping,
            is_sync,
        }
    }
}

impl Drop for LeftAlone<'_> {
    fn drop(&mut self) {
        let (mapping, syncs) = (self.mapping, u32::from(self.is_sync));
        mapping.syncing.fetch_sub(1, Ordering::AcqRel);
        mapping.device.syncs.fetch_sub(syncs, Ordering::AcqRel);
        sync_wait(self.cache, &mapping.device).wake_all(Signal::SyncEnded);
    }
}

/// Writes what is dirty now in these parts and waits until none of it is under way.
pub(crate) fn write_and_wait(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    mapping: &Arc<Mapping>,
    parts: &[Part],
) -> Result<(), Error> {
    let _alone = LeftAlone::new(cache, mapping, true);
    write_parts(task, cache, mapping, parts)
}

fn write_parts(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    mapping: &Arc<Mapping>,
    parts: &[Part],
) -> Result<(), Error> {
    // Under the lock: of a write that is just failing, either its pages are dirty by now or its
    // error is yet to come.
    let before = {
        let _token = mapping.token.lock(task);
        mapping.error_seq()
    };
    for (from, to) in parts {
        tag_dirty(task, cache, mapping, *from, *to);
    }
    let mut turn = Pages::ZERO;
    for (at, part) in parts.iter().enumerate() {
        send_tagged(
            task,
            cache,
            mapping,
            *part,
            (at + 1 == parts.len(), &mut turn),
        )?;
    }
    for (from, to) in parts {
        wait_for_writeback(task, cache, mapping, *from, *to)?;
    }
    if mapping.error_seq() != before {
        Err(mapping.write_error(task))
    } else {
        Ok(())
    }
}

/// Sends what is tagged in a part; `is_last`: the task waits then.
fn send_tagged(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    mapping: &Arc<Mapping>,
    (from, to): Part,
    (is_last, turn): (bool, &mut Pages),
) -> Result<(), Error> {
    let select = Selection {
        from,
        to,
        tag: Tag::ToWrite,
        max: Pages::MAX,
        class: IoClass::Sync,
        is_last,
    };
    // A sync with nothing to write does not wait for room in flight.
    while mapping
        .next_tagged(task, &cache.pages.pool, (from, to), Tag::ToWrite)
        .is_some()
    {
        let outcome = write_pages(task, cache, mapping, select, turn)?;
        if outcome.skipped.is_zero() {
            return Ok(());
        }
        // Somebody is filling them, an older version is being written, or they wait for a log.
        wait_for_skipped(task, cache, mapping, (from, to), turn)?;
    }
    Ok(())
}

fn tag_dirty(task: &Task<'_>, cache: &Cache, mapping: &Mapping, from: u32, to: u32) {
    let mut next = Some(from);
    while let Some(start) = next {
        let mut token = mapping.token.lock(task);
        let mut index = mapping.index.writer(&cache.pages.pool, &mut token);
        next = index.tag_range(start, to, Tag::Dirty, Tag::ToWrite, TAG_BATCH);
    }
}

/// Waits for the first page that could not be taken.
fn wait_for_skipped(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    mapping: &Arc<Mapping>,
    part: Part,
    turn: &mut Pages,
) -> Result<(), Error> {
    let Some((page, frame)) = mapping.next_tagged(task, &cache.pages.pool, part, Tag::ToWrite)
    else {
        return Ok(());
    };
    if let Some((log, _)) = mapping.held_by(task, page) {
        return log.release(task, (mapping.serial, page), |task| {
            send_tagged(task, cache, mapping, (page, page), (true, turn))
        });
    }
    if cache.pages.table.flags(frame).has(Flags::WRITEBACK) {
        wait_frame(task, cache, mapping, page, frame)
    } else {
        cache.wait_busy(task, Cause::PageBusy, frame, mapping.owner(page))
    }
}

/// Waits for each page of the range that is under writeback, once.
fn wait_for_writeback(
    task: &mut Task<'_>,
    cache: &Cache,
    mapping: &Mapping,
    from: u32,
    to: u32,
) -> Result<(), Error> {
    let mut next = Some(from);
    while let Some(start) = next {
        let Some((page, frame)) =
            mapping.next_tagged(task, &cache.pages.pool, (start, to), Tag::Writeback)
        else {
            break;
        };
        wait_frame(task, cache, mapping, page, frame)?;
        next = page.checked_add(1).filter(|next| *next <= to);
    }
    Ok(())
}

pub(crate) fn wait_frame(
    task: &mut Task<'_>,
    cache: &Cache,
    mapping: &Mapping,
    page: u32,
    frame: FrameId,
) -> Result<(), Error> {
    let owner = mapping.owner(page);
    Error::after(
        task.wait_while(&mapping.writeback_wait, Cause::WritebackIo, None, |_| {
            cache.pages.table.flags(frame).has(Flags::WRITEBACK)
                && cache.pages.table.owner(frame) == owner
        }),
    )
}

/// Gives the device's object the file's true length, where writes of whole pages or a growth left
/// it with another. One that the file has had since it was `size` is true enough: this sync does
/// not answer for a growth that came after it.
fn settle_length(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    mapping: &Arc<Mapping>,
    size: u64,
) -> Result<(), Error> {
    // A truncation under way may have dropped what this sync was to write: until the device's
    // object is cut, an older version stands there.
    let is_settled = || mapping.has_grown_from(size) && !mapping.is_shut();
    if is_settled() {
        // Not before: the write that settles the length is under way, maybe.
        let until = mapping.device_len();
        wait_for_length(task, cache, mapping, size, until)?;
        if is_settled() {
            return Ok(());
        }
    }
    let file = mapping.shut_at_the_end(task)?;
    wait_for_length(task, cache, &file, file.size(), FILE_MAX)?;
    if file.has_settled() {
        return Ok(());
    }
    // With writers kept out, only a write of the last page can end behind the new end: the others
    // may be dirty or on their way, and writers need not wait for them.
    let last = u32::try_from(file.size() >> PAGE_SHIFT).expect("below FILE_MAX");
    let is_owed = file.owes_cut();
    if is_owed {
        drop_behind_end(task, cache, &file)?;
    }
    write_and_wait(task, cache, &file, &[(last, u32::MAX)])?;
    io::set_len(task, &file, file.size(), true)?;
    if is_owed {
        zero_behind_end(task, cache, &file)?;
        file.cut_is_done();
    }
    Ok(())
}

/// Waits for the writes that make the object `size` to `until` long: a flush before their end would
/// not cover the length. If one fails, the length is unknown again.
fn wait_for_length(
    task: &mut Task<'_>,
    cache: &Cache,
    mapping: &Mapping,
    size: u64,
    until: u64,
) -> Result<(), Error> {
    let last = |len: u64| u32::try_from(len.saturating_sub(1) >> PAGE_SHIFT).unwrap_or(u32::MAX);
    wait_for_writeback(task, cache, mapping, last(size), last(until))
}

/// True if all that was changed of the file is on its device, and the device flushed.
pub(crate) fn is_durable(task: &Task<'_>, cache: &Cache, mapping: &ShutGate<'_>) -> bool {
    let has_pages = {
        let mut token = mapping.token.lock(task);
        let index = mapping.index.writer(&cache.pages.pool, &mut token);
        let has = |tag| index.next_tagged(0, u32::MAX, tag).is_some();
        has(Tag::Dirty) || has(Tag::Writeback)
    };
    !has_pages && mapping.has_settled() && mapping.unflushed_at_end().is_none()
}

/// Does what a truncation could not, before the file grows again: bytes that were cut off must not
/// come back.
pub(crate) fn settle_cut(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    mapping: &Arc<Mapping>,
) -> Result<(), Error> {
    if !mapping.owes_cut() {
        return Ok(());
    }
    io::may_call(task)?;
    shut_settled(task, cache, mapping).map(drop)
}

/// Shuts the gate with no cut owed behind it, where the file changes its length or its space: the
/// rest of an older truncation is done first. Of a closed file nothing is: its object may be
/// another's by then. The task may wait (`may_call`).
pub(crate) fn shut_settled<'a>(
    task: &mut Task<'_>,
    cache: &Arc<Cache>,
    mapping: &'a Arc<Mapping>,
) -> Result<ShutGate<'a>, Error> {
    let file = mapping.shut(task, &cache.registry)?;
    if file.owes_cut() {
        cut(task, cache, &file)?;
    }
    Ok(file)
}

/// A flush of a file is under way until this goes.
struct Flushing<'a>(&'a Mapping);

impl Drop for Flushing<'_> {
    fn drop(&mut self) {
        self.0.flushing.store(false, Ordering::Release);
        self.0.flush_wait.wake_all(Signal::SyncEnded);
    }
}

/// Flushes what the device has completed of a file. One flush of a file is under way at a time: the
/// next one is for all that came meanwhile (Linux 2.6.37 and later, block/blk-flush.c).
fn flush_device(task: &mut Task<'_>, mapping: &Mapping, owed: Owed) -> Result<(), Error> {
    // None: flushed since the last write ended.
    while let Some(completed) = owed(mapping) {
        if mapping.flushing.swap(true, Ordering::AcqRel) {
            Error::after(
                task.wait_while(&mapping.flush_wait, Cause::DeviceFlush, None, |_| {
                    mapping.flushing.load(Ordering::Acquire)
                }),
            )?;
            mapping.device.flush_failure(task)?;
            continue;
        }
        let _flushing = Flushing(mapping);
        return flush(task, mapping, completed);
    }
    Ok(())
}

fn flush(task: &mut Task<'_>, mapping: &Mapping, completed: u64) -> Result<(), Error> {
    let device = mapping.device.id;
    let result = io::call(
        task,
        device,
        mapping.object,
        IoOp::Flush,
        Bytes::ZERO,
        Cause::DeviceFlush,
    );
    match result {
        Ok(()) => {
            mapping.note_flushed(completed);
            Ok(())
        }
        Err(env::IoError::Cancelled) => Err(Error::Cancelled),
        Err(cause) => {
            mapping.device.on_flush_failed(task, cause);
            Err(Error::FlushFailed { cause })
        }
    }
}

#[cfg(test)]
mod tests {
    use env::{Device, DeviceId, DeviceInfo, Interrupt, IoRequest};
    use frames::sync::AtomicU64;
    use policy::units::Nanos;
    use world::{Lab, Options as LabOptions};

    use super::*;
    use crate::testing::{INFO, with_cache};
    use crate::{DeviceOptions, Options};

    #[test]
    fn a_sync_waits_for_what_is_behind_the_gate_for_a_handle_that_has_ended() {
        with_cache(Options::new(256, 1), |task, cache| {
            let device = DeviceOptions::default();
            let device = cache.add_device(task, DeviceId(0), INFO, device).unwrap();
            let object = env::ObjectId(1);
            let file = cache.open(task, device, object, Bytes(4096)).unwrap();
            // Nothing here needs the device.
            file.assume_durable();
            let client = file.clone_handle();
            let inside = {
                let (client, cache) = (Arc::clone(&client), Arc::clone(cache));
                env::spawn(task.env(), "inside", move |task| {
                    task.act_for(client.client());
                    let inside = client.mapping.enter(task, &cache.registry).unwrap();
                    task.sleep(Cause::Think, Nanos::millis(100));
                    drop(inside);
                    client.mapping.enter(task, &cache.registry).map(drop)
                })
            };
            let began = task.now();
            task.sleep(Cause::Think, Nanos::millis(10));
            file.sync(task).unwrap();
            let took = task.now().since(began);
            assert!(took < Nanos::millis(50), "its client is there: {took:?}");
            client.end();
            file.sync(task).unwrap();
            let took = task.now().since(began);
            assert!(took >= Nanos::millis(100), "{took:?}");
            assert_eq!(inside.join(task).unwrap(), Err(Error::Cancelled));
            assert!(!file.mapping.is_shut(), "it is open again");
        });
    }

    struct Flushes(AtomicU64);

    impl Device for Flushes {
        fn submit(&self, request: Box<IoRequest>) {
            let flushes = u64::from(request.op == IoOp::Flush);
            self.0.fetch_add(flushes, Ordering::Relaxed);
            request.complete(&Interrupt::new(), Ok(()));
        }

        fn info(&self) -> DeviceInfo {
            INFO
        }
    }

    #[test]
    fn a_sync_beside_the_end_of_a_file_flushes_what_stood_in_it() {
        let mut lab = Lab::new(LabOptions::default());
        let flushes = Arc::new(Flushes(AtomicU64::new(0)));
        let id = lab.add_device(Arc::clone(&flushes) as Arc<dyn Device>);
        let env = Arc::clone(lab.env());
        let ended = lab.run(move |task| {
            let cache = Cache::new(env, Options::new(256, 1)).unwrap();
            let device = DeviceOptions::default();
            let device = cache.add_device(task, id, INFO, device).unwrap();
            let object = env::ObjectId(1);
            let file = cache.open(task, device, object, Bytes(4096)).unwrap();
            let (own, registry) = (Arc::clone(&file), Arc::clone(&cache));
            env::spawn(task.env(), "inside", move |task| {
                let inside = own.mapping.enter(task, &registry.registry).unwrap();
                task.sleep(Cause::Think, Nanos::millis(100));
                drop(inside);
            });
            task.sleep(Cause::Think, Nanos::millis(10));
            let own = file.clone_handle();
            let close = env::spawn(task.env(), "close", move |task| own.close(task));
            task.sleep(Cause::Think, Nanos::millis(10));
            assert!(file.mapping.is_shut(), "it waits for the one inside");
            file.sync(task).unwrap();
            assert_eq!(flushes.0.load(Ordering::Relaxed), 1);
            assert_eq!(close.join(task), Some(Ok(())));
            cache.shutdown(task).unwrap();
        });
        ended.unwrap();
    }

    /// A task that finds the gate shut must leave it so: the task that shut it counts on being
    /// alone.
    #[test]
    fn who_finds_the_gate_shut_does_not_open_it() {
        with_cache(Options::new(256, 1), |task, cache| {
            let device = DeviceOptions::default();
            let device = cache.add_device(task, DeviceId(0), INFO, device).unwrap();
            let object = env::ObjectId(1);
            let file = cache.open(task, device, object, Bytes(4096)).unwrap();
            let shut = file.mapping.shut(task, &cache.registry).unwrap();
            assert!(file.mapping.try_shut(&cache.registry).is_none());
            assert!(file.mapping.is_shut(), "it is still the first one's");
            drop(shut);
            assert!(!file.mapping.is_shut());
            assert!(file.mapping.try_shut(&cache.registry).is_some());
            file.discard(task).unwrap();
        });
    }
}
