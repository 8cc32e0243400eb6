//! A handle to a file in the cache.

pub(crate) mod advise;
pub(crate) mod drop;
pub(crate) mod map;
pub(crate) mod pin;
pub(crate) mod punch;
pub(crate) mod read;
mod replace;
mod reserve;
pub(crate) mod run;
mod space;
pub(crate) mod sync;
pub(crate) mod truncate;
pub(crate) mod write;
pub(crate) mod writer;

use core::ops::Range;
use std::sync::Arc;

use env::{Client, Task};
use frames::sync::{AtomicU64, Ordering};
use frames::{Data, DataMut, Flags, Pin};
use policy::units::{Bytes, PAGE_SHIFT, PAGE_SIZE, Pages};

use crate::cache::{Cache, FILE_MAX};
use crate::file::sync::{is_durable, shut_settled};
use crate::file::write::{Pacing, Progress};
use crate::registry::gate::ShutGate;
use crate::registry::mapping::Mapping;
use crate::registry::rounds::{Part, SeenErrors};
use crate::{Error, Offered, Pinned, Reader, Synced, WriteAhead, Writer};

/// A file of a cache, open. Shared by reference; errors of writeback are told to each handle once.
pub struct File {
    pub(crate) cache: Arc<Cache>,
    pub(crate) mapping: Arc<Mapping>,
    /// Errors that this handle has reported (`SeenErrors`).
    seen_writes: AtomicU64,
    seen_flushes: AtomicU64,
    /// The client that has it, for tasks that act for it (`Task::act_for`).
    client: Arc<Client>,
}

/// The pages of a file in memory, and those asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileStats {
    /// In memory.
    pub cached: Pages,
    /// Written and not yet on their way to the device.
    pub dirty: Pages,
    /// On their way there.
    pub writeback: Pages,
    /// Ever asked for by calls that read or pin.
    pub read: Pages,
    /// Of those, not in memory when they were asked for.
    pub missed: Pages,
}

impl File {
    pub(crate) fn new(cache: Arc<Cache>, mapping: Arc<Mapping>) -> Self {
        let seen_writes = AtomicU64::new(mapping.error_seq());
        let seen_flushes = AtomicU64::new(mapping.device.flush_failures());
        Self {
            cache,
            mapping,
            seen_writes,
            seen_flushes,
            client: Arc::default(),
        }
    }

    /// The client that tasks act for when they change the file for this handle's holder.
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// The handle's holder is gone: tasks that act for it change nothing any more. A write or a
    /// hole under way ends with `Cancelled` before its next step, and a sync that ends after this
    /// waits for the step. So once such a sync is answered, nothing changes for this holder.
    pub fn end(&self) {
        self.client.end();
        self.mapping.note_ended();
    }

    /// Another handle of the same file, told of the errors from now on.
    #[must_use]
    pub fn clone_handle(&self) -> Arc<Self> {
        Arc::new(Self::new(
            Arc::clone(&self.cache),
            Arc::clone(&self.mapping),
        ))
    }

    /// Its true length.
    pub fn len(&self) -> Bytes {
        Bytes(self.mapping.size())
    }

    /// Its number in the cache; no other has it as long as the file is there.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.mapping.id
    }

    /// Has the device take space for the file up to `len`. If it has not enough, what it took
    /// behind the end is given back.
    ///
    /// # Errors
    /// `MetadataFailed`, `Cancelled`.
    pub fn allocate(&self, task: &mut Task<'_>, len: Bytes) -> Result<(), Error> {
        // A cut that is still to be done would take it away again.
        let file = shut_settled(task, &self.cache, &self.mapping)?;
        space::allocate(task, &file, len)
    }

    /// The device has space for the file up to `len` already: writes up to there need not ask.
    pub fn assume_allocated(&self, len: Bytes) {
        self.mapping.note_allocated(len.0);
    }

    /// The device can end a write at any multiple of `unit` bytes, at most a page: where the file
    /// ends there, no length has to be set after the write of its last page.
    pub fn writes_end_at(&self, unit: u64) {
        self.mapping.note_unit(unit);
    }

    /// The file's content is durable, or nobody will be told that it is. Without this the first
    /// sync flushes the device, whatever was written through this cache.
    pub fn assume_durable(&self) {
        if let Some(completed) = self.mapping.unflushed() {
            self.mapping.note_flushed(completed);
        }
    }

    /// True if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len().is_zero()
    }

    /// Writes all of `data` at `offset`; the writer pauses here when it is over its share.
    ///
    /// # Errors
    /// `OutOfRange`, `MetadataFailed` (no space), `DeviceStopped`, `FlushFailed`, `OutOfMemory`,
    /// `ReadFailed` (a partly written page could not be read), `Cancelled`. Data before the point
    /// of the error may have been taken in.
    pub fn write<'a>(
        &self,
        task: &mut Task<'_>,
        writer: &mut Writer,
        offset: Bytes,
        data: impl Into<Data<'a>>,
    ) -> Result<Bytes, Error> {
        let written = self.write_counted(task, writer, offset, data);
        written.map_err(|(_, error)| error)
    }

    /// The same; an error comes with how many bytes were taken in before it. They are part of the
    /// file.
    ///
    /// # Errors
    /// As `write`.
    pub fn write_counted<'a>(
        &self,
        task: &mut Task<'_>,
        writer: &mut Writer,
        offset: Bytes,
        data: impl Into<Data<'a>>,
    ) -> Result<Bytes, (Bytes, Error)> {
        let data = data.into();
        let len = data.len() as u64;
        take_in(
            task,
            write::Call::new(task, self, writer, offset, len),
            data,
        )
    }

    /// From now on its pages may wait for `log`: `write_logged`.
    ///
    /// # Errors
    /// `BadOption`: it follows another one.
    pub fn follow(&self, task: &Task<'_>, log: &Arc<WriteAhead>) -> Result<(), Error> {
        if self.mapping.follow(task, log) {
            return Ok(());
        }
        Err(Error::BadOption {
            what: "logs that a file follows, with this one,",
            value: 2,
            allowed: (0, 1),
        })
    }

    /// As `write_counted`; the pages are not written to the device before the log that the file
    /// follows is durable up to `lsn`. Waits for the log while as many pages wait for it as the
    /// background threshold has.
    ///
    /// # Errors
    /// As `write`; `BadOption` (it follows no log, or `lsn` is zero), `LogEnded`.
    pub fn write_logged<'a>(
        &self,
        task: &mut Task<'_>,
        writer: &mut Writer,
        offset: Bytes,
        data: impl Into<Data<'a>>,
        lsn: u64,
    ) -> Result<Bytes, (Bytes, Error)> {
        let data = data.into();
        let len = data.len() as u64;
        let call = write::Call::new(task, self, writer, offset, len);
        take_in(task, call.and_then(|call| call.logged(lsn)), data)
    }

    /// Its pages, and the accesses to it. Counts its cached pages one by one.
    pub fn stats(&self, task: &mut Task<'_>) -> FileStats {
        let (read, missed) = self.mapping.reads();
        FileStats {
            cached: Pages(self.cached(task)),
            dirty: Pages(self.mapping.dirty.load(Ordering::Relaxed)),
            writeback: Pages(u64::from(self.mapping.writeback.load(Ordering::Relaxed))),
            read,
            missed,
        }
    }

    /// Its pages in memory, counted a part at a time: writers to it wait meanwhile.
    fn cached(&self, task: &mut Task<'_>) -> u64 {
        const AT_A_TIME: usize = 1024;
        let mut from = Some(0);
        let mut count = 0;
        while let Some(first) = from {
            let mut token = self.mapping.token.lock(task);
            let index = self
                .mapping
                .index
                .writer(&self.cache.pages.pool, &mut token);
            for _ in 0..AT_A_TIME {
                let found = from.and_then(|from| index.next_frame(from, u32::MAX));
                from = found.and_then(|(page, _)| page.checked_add(1));
                count += u64::from(found.is_some());
                if from.is_none() {
                    break;
                }
            }
            debug_assert!(from.is_none_or(|from| from > first), "it goes on");
        }
        count
    }

    /// Takes in `data` at `offset`, or as much as can be at once where the task may not block
    /// (`Task::nonblocking`). The writer is not paused here: `Cache::pace` says what it owes.
    ///
    /// # Errors
    /// As `write`.
    pub fn write_unpaced<'a>(
        &self,
        task: &mut Task<'_>,
        writer: &mut Writer,
        offset: Bytes,
        data: impl Into<Data<'a>>,
    ) -> Result<Progress, Error> {
        let data = data.into();
        let len = data.len() as u64;
        let call = write::Call::new(task, self, writer, offset, len)?;
        let written = call.write(task, data, Pacing::Elsewhere);
        written.map_err(|(_, error)| error)
    }

    /// Offers the pages of `len` bytes at `offset` that can be written to at once, from the first
    /// on, to `fill`. It fills a beginning of them with what it has, without any wait, and answers
    /// how many bytes; so does this. `fill` is not called if the first page cannot be offered: then
    /// `write_unpaced` does what can be done. The file does not grow, and the writer is not paused.
    ///
    /// # Errors
    /// As `write`, before `fill` is called.
    pub fn receive(
        &self,
        task: &mut Task<'_>,
        writer: &mut Writer,
        offset: Bytes,
        len: Bytes,
        fill: &mut dyn FnMut(&Offered<'_>) -> usize,
    ) -> Result<Bytes, Error> {
        write::Call::new(task, self, writer, offset, len.0)?.receive(task, fill)
    }

    /// Waits for what a write of `len` bytes at `offset` by a task that may not block would be
    /// stuck at, in steps of at most 32 pages. The frames that it needs are the writer's until its
    /// next write. That can go on then, and need not come to its end: pages may be evicted or
    /// become busy in between.
    ///
    /// # Errors
    /// As `write`.
    pub fn prepare_write(
        &self,
        task: &mut Task<'_>,
        writer: &mut Writer,
        offset: Bytes,
        len: Bytes,
    ) -> Result<(), Error> {
        write::Call::new(task, self, writer, offset, len.0)?.prepare(task)
    }

    /// Fills `data` from `offset`, with less at the end of the file. Where the task may not block,
    /// it gets what is in memory up to the first page that is not; that one is read, if there is
    /// memory for it at once.
    ///
    /// # Errors
    /// `ReadFailed`, `OutOfMemory`, `Cancelled`.
    pub fn read<'a>(
        &self,
        task: &mut Task<'_>,
        reader: &mut Reader,
        offset: Bytes,
        data: impl Into<DataMut<'a>>,
    ) -> Result<Progress, Error> {
        let data = data.into();
        let len = Bytes(data.len() as u64);
        read::Call::new(self, reader, offset, len).read(task, data)
    }

    /// The same of a few pages that are all in memory and need no reader; `None`: ask `read`.
    pub fn read_hits<'a>(
        &self,
        task: &mut Task<'_>,
        offset: Bytes,
        data: impl Into<DataMut<'a>>,
    ) -> Option<Bytes> {
        let data = data.into();
        let len = Bytes(data.len() as u64);
        read::read_hits(task, self, offset, data, len)
    }

    /// Shows `len` bytes at `offset` to `show` where they are, with less at the end of the file:
    /// page by page, each pinned while it is shown, with the bytes of it that are meant. Read ahead
    /// as by `read`, and nothing is copied.
    ///
    /// # Errors
    /// As `read`.
    pub fn show(
        &self,
        task: &mut Task<'_>,
        reader: &mut Reader,
        (offset, len): (Bytes, Bytes),
        show: &mut dyn FnMut(&Pin, Range<usize>),
    ) -> Result<Progress, Error> {
        read::Call::new(self, reader, offset, len).show(task, show)
    }

    /// Waits until the first page at `offset` is in memory, and as many of those of the other `len`
    /// bytes as need no wait of their own: at most 256, and fewer where memory is short. It may be
    /// gone again when it is asked for.
    ///
    /// # Errors
    /// As `read`.
    pub fn prepare_read(
        &self,
        task: &mut Task<'_>,
        reader: &mut Reader,
        offset: Bytes,
        len: Bytes,
    ) -> Result<(), Error> {
        read::Call::new(self, reader, offset, len).prepare(task)
    }

    /// True while a program has mapped it (`map_live`): its pages may change under their pins.
    #[inline]
    pub fn is_mapped(&self) -> bool {
        self.mapping.is_live()
    }

    /// Sees that `len` bytes at `offset` can be read, waiting for each page that has to be; it may
    /// be gone again when it is asked for. That is no access to the pages.
    ///
    /// # Errors
    /// As `read`.
    pub fn verify_readable(
        &self,
        task: &mut Task<'_>,
        reader: &mut Reader,
        offset: Bytes,
        len: Bytes,
    ) -> Result<(), Error> {
        read::Call::new(self, reader, offset, len).verify(task)
    }

    /// Its pages are files of their own to a flusher, which takes those of several such files in
    /// the order in which they became dirty (Linux fs/fs-writeback.c, move_expired_inodes()):
    /// `pages` pages of this one at a time, the size of a request, and then the next one has its
    /// turn.
    pub fn set_slice_most(&self, pages: Pages) {
        self.mapping.slice_most.store(pages.0, Ordering::Relaxed);
    }

    /// True if all of `len` bytes at `offset` is in memory now. That is no access to it.
    #[must_use]
    pub fn is_cached(&self, offset: Bytes, len: Bytes) -> bool {
        read::is_cached(&self.cache, &self.mapping, offset, len, Flags::NONE)
    }

    /// Pins a page that is in the cache: a lookup and a CAS. `None`: not there, being filled, too
    /// many pins, or mapped; `pin` settles it.
    // Out of line, its answer goes through memory, and is copied by other sizes than it was written
    // with: each copy waits for the stores, and a hit takes half as long again.
    #[inline(always)]
    pub fn try_pin(&self, page: u32) -> Option<Pinned<'_>> {
        self.try_pin_unless(page, Flags::NONE)
    }

    /// The same of a page that its reader need not be asked about: it goes on to what was read
    /// ahead.
    #[inline]
    pub fn try_pin_unmarked(&self, page: u32) -> Option<Pinned<'_>> {
        self.try_pin_unless(page, Flags::MARK)
    }

    #[inline(always)]
    fn try_pin_unless(&self, page: u32, unless: Flags) -> Option<Pinned<'_>> {
        // While a file is cut, pages behind its end are in the cache still.
        if u64::from(page) >= self.mapping.pages() || !self.cache.count_pin() {
            return None;
        }
        let Some(pin) = self.cache.try_pin(&self.mapping, page, unless) else {
            self.cache.uncount_pin();
            return None;
        };
        self.mapping.note_read(1, Pages::ZERO);
        Pinned::new(&self.cache, &self.mapping, pin).ok()
    }

    /// Pins a page, reading it in if it is not in the cache, and ahead of `reader` as `read` does.
    ///
    /// # Errors
    /// `TooMany` pins, `OutOfRange` (beyond the end), `Mapped`, `ReadFailed`, `OutOfMemory`,
    /// `Cancelled`.
    pub fn pin(
        &self,
        task: &mut Task<'_>,
        reader: &mut Reader,
        page: u32,
    ) -> Result<Pinned<'_>, Error> {
        if u64::from(page) >= self.mapping.pages() {
            return Err(Error::no_page(page, self.mapping.size()));
        }
        if !self.cache.count_pin() {
            let limit = self.cache.pins_most();
            return Err(Error::TooMany {
                what: "pinned pages",
                limit,
            });
        }
        match self.bring_and_pin(task, reader, page) {
            Ok(pin) => {
                let flags = self.cache.pages.table.flags(pin.frame());
                Pinned::new(&self.cache, &self.mapping, (pin, flags))
            }
            Err(error) => {
                self.cache.uncount_pin();
                Err(error)
            }
        }
    }

    fn bring_and_pin(
        &self,
        task: &mut Task<'_>,
        reader: &mut Reader,
        page: u32,
    ) -> Result<Pin, Error> {
        let offset = Bytes(u64::from(page) << PAGE_SHIFT);
        let missed = read::Call::new(self, reader, offset, Bytes(PAGE_SIZE)).send(task)?;
        let pin = match reader.said.no_reuse {
            true => read::pin_untouched(task, &self.cache, &self.mapping, page),
            false => read::pin_page(task, &self.cache, &self.mapping, page),
        }?;
        self.mapping.note_read(1, missed);
        Ok(pin)
    }

    /// Sets the length; a shorter file loses what lies beyond, dirty or not.
    ///
    /// # Errors
    /// `OutOfRange`; after `MetadataFailed`, `OutOfMemory` (the last page is pinned, and needs a
    /// frame of its own) and `Cancelled` the length is the new one, and the rest is done before the
    /// next write, growth or sync.
    pub fn truncate(&self, task: &mut Task<'_>, len: Bytes) -> Result<(), Error> {
        truncate::truncate(task, &self.cache, &self.mapping, len)
    }

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// `WriteFailed` while bytes are not on the device, and once for an error that has healed;
    /// `FlushFailed` until the device is reopened, and once afterwards to a handle that was not
    /// told before; `MetadataFailed`; `Cancelled`.
    pub fn sync(&self, task: &mut Task<'_>) -> Result<(), Error> {
        self.sync_pages(task, 0, u32::MAX)
    }

    /// Makes the bytes `from..from + len` durable.
    ///
    /// # Errors
    /// As `sync`.
    pub fn sync_range(&self, task: &mut Task<'_>, from: Bytes, len: Bytes) -> Result<(), Error> {
        match part_of(from, len) {
            Some((from, to)) => self.sync_pages(task, from, to),
            None => Ok(()),
        }
    }

    fn sync_pages(&self, task: &mut Task<'_>, from: u32, to: u32) -> Result<(), Error> {
        let synced = sync::sync_parts(task, &self.cache, &self.mapping, &[(from, to)]);
        self.answer(task, &synced)
    }

    /// Makes parts of the file durable (first byte and length of each) for several handles, each of
    /// which takes its answer by `answer`.
    pub fn sync_parts(&self, task: &mut Task<'_>, parts: &[(Bytes, Bytes)]) -> Synced {
        let parts: Vec<_> = parts
            .iter()
            .filter_map(|(from, len)| part_of(*from, *len))
            .collect();
        sync::sync_parts(task, &self.cache, &self.mapping, &parts)
    }

    /// This handle's answer from a sync of this file that began after it was asked for.
    ///
    /// # Errors
    /// As `sync`.
    pub fn answer(&self, task: &Task<'_>, synced: &Synced) -> Result<(), Error> {
        let mut seen = SeenErrors {
            writes: self.seen_writes.load(Ordering::Acquire),
            flushes: self.seen_flushes.load(Ordering::Acquire),
        };
        let result = synced.answer(task, &self.mapping, &mut seen);
        self.seen_writes.fetch_max(seen.writes, Ordering::AcqRel);
        self.seen_flushes.fetch_max(seen.flushes, Ordering::AcqRel);
        result
    }

    /// Makes what was written durable, takes the file's pages out of the cache and gives its place
    /// back. A file that had content when it was opened, and that nothing has changed since, is not
    /// flushed. Other handles of the same file must not be used any more; their operations under
    /// way are synced too.
    ///
    /// # Errors
    /// As `sync`; the file then stays open with everything it holds.
    pub fn close(&self, task: &mut Task<'_>) -> Result<(), Error> {
        let mapping = &self.mapping;
        let sync = |task: &mut Task<'_>| {
            let synced = sync::sync_at_end(task, &self.cache, mapping);
            self.answer(task, &synced)
        };
        sync(task)?;
        let mut file = mapping.shut_at_the_end(task)?;
        if !is_durable(task, &self.cache, &file) {
            // Writers inside the gate were promised their write. No more are admitted, or a writer
            // that keeps writing would hold the file open for ever.
            file.close();
            drop(file);
            let shut = sync(task).and_then(|()| mapping.shut_at_the_end(task));
            file = shut.inspect_err(|_| mapping.reopen())?;
        }
        self.discard_shut(task, file)
    }

    /// Takes the file's pages out of the cache, dirty ones too, without writing them: for a file
    /// that is about to be removed.
    ///
    /// # Errors
    /// `Cancelled`.
    pub fn discard(&self, task: &mut Task<'_>) -> Result<(), Error> {
        let file = self.mapping.shut_at_the_end(task)?;
        self.discard_shut(task, file)
    }

    fn discard_shut(&self, task: &mut Task<'_>, file: ShutGate<'_>) -> Result<(), Error> {
        // First, so that nothing that is still under way brings a page in behind the look.
        file.close();
        let dropped = truncate::drop_pages(task, &self.cache, &file, 0);
        dropped.inspect_err(|_| file.reopen())?;
        drop(file);
        while !self.cache.forget_file(task, &self.mapping) {
            self.mapping.wait_for_visits(task)?;
        }
        Ok(())
    }
}

/// All of `data`, or an error with how many bytes were taken in before it.
fn take_in(
    task: &mut Task<'_>,
    call: Result<write::Call<'_>, Error>,
    data: Data<'_>,
) -> Result<Bytes, (Bytes, Error)> {
    let call = call.map_err(|error| (Bytes::ZERO, error))?;
    let progress = call.write(task, data, Pacing::Here)?;
    if progress.would_block {
        return Err((progress.bytes, Error::WouldWait));
    }
    Ok(progress.bytes)
}

/// The pages of a range of bytes; none: there are none.
fn part_of(from: Bytes, len: Bytes) -> Option<Part> {
    let end = from.0.saturating_add(len.0).min(FILE_MAX);
    let page = |offset: u64| u32::try_from(offset >> PAGE_SHIFT).expect("below FILE_MAX");
    (from.0 < end).then(|| (page(from.0), page(end - 1)))
}
