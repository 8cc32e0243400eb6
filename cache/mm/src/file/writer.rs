//! One writer's state from call to call.

use core::ops::Range;
use std::sync::Arc;

use env::{Interrupt, Task};
use frames::Busy;
use policy::dirty::WriterIndex;
use policy::units::{Bytes, Instant, PAGE_SIZE};

use crate::Error;
use crate::cache::Cache;
use crate::file::reserve::FrameReserve;
use crate::file::write::Filled;
use crate::registry::mapping::Mapping;
use crate::writeback::balance::{balance, tell_the_rest};
use crate::writeback::pacer::{Account, Pacer};

/// Pages that a CPU of Linux keeps off the lists until it has this many (3.0 mm/swap.c, PAGEVEC).
const PAGEVEC: u32 = 14;

/// The unit that is paced. One per client, thread or task; not shared.
#[derive(Debug)]
pub struct Writer {
    pub(crate) pacer: Pacer,
    /// A write that the device was told of before it is taken in: serial number of the file, and
    /// bytes.
    prepared: Option<(u64, Range<u64>)>,
    /// Frames taken and not used yet. Between calls only what `prepare` has left for the next one.
    pub(super) reserve: FrameReserve,
    /// Pages put into the index ahead, busy and not filled yet, the next one last; empty between
    /// calls.
    pub(super) ahead: Vec<(u32, Busy)>,
    /// The batch being filled; empty between calls.
    pub(super) batch: Vec<Filled>,
    /// Bytes of the calls that each of its calls stands for.
    calls_of: Bytes,
    /// Fresh pages of it that its CPU keeps off the lists.
    kept_off: u32,
}

impl Writer {
    /// `seen_errors`: serial numbers and errors so far, by device slot.
    pub(crate) fn new(id: u32, index: WriterIndex, seen_errors: Vec<(u64, u64)>) -> Self {
        // Grown as it writes: a server has a writer for each client, and most write little at a
        // time.
        Self {
            pacer: Pacer::new(id, index, seen_errors),
            prepared: None,
            reserve: FrameReserve::default(),
            ahead: Vec::new(),
            batch: Vec::new(),
            calls_of: Bytes(u64::MAX),
            kept_off: 0,
        }
    }

    /// Its number, as events name it.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.pacer.id
    }

    /// From now on each call stands for as many calls of `bytes` bytes as it has: their cost is the
    /// caller's to say, and their uses of a page are several where the law counts writes as uses.
    pub fn in_calls_of(&mut self, bytes: Bytes) {
        self.calls_of = bytes;
    }

    /// True if a page that it has written, fresh or not, is used again by a later call. A fresh one
    /// is not on the lists yet, and no use makes it active: but for the page that fills its CPU's
    /// batch, which is there when the first call for it ends.
    ///
    /// # Source
    /// Linux 3.0 mm/swap.c, __lru_cache_add(), mark_page_accessed(). Deviation: pages are on the
    /// lists at once, and each writer has a batch of its own.
    pub(super) fn uses_again(&mut self, fresh: bool) -> bool {
        if self.calls_of.0 >= PAGE_SIZE {
            return false;
        }
        self.kept_off = (self.kept_off + u32::from(fresh)) % PAGEVEC;
        !fresh || self.kept_off == 0
    }

    /// True if the device need not be told of a write any more.
    pub(crate) fn is_prepared(&self, mapping: &Mapping, from: u64, to: u64) -> bool {
        !mapping.device.info.prepares_writes
            || self.prepared.as_ref().is_some_and(|(file, bytes)| {
                *file == mapping.serial && bytes.start <= from && to <= bytes.end
            })
    }

    /// The device was told of a write.
    pub(crate) fn note_prepared(&mut self, mapping: &Mapping, from: u64, to: u64) {
        self.prepared = Some((mapping.serial, from..to));
    }

    pub(crate) fn into_index(self) -> WriterIndex {
        self.pacer.index
    }
}

impl Cache {
    /// Until when the writer is paused for what it took in unpaced so far. `None`: it need not be.
    /// `Some`: ask again then, not before; it may be paused for longer. Bytes that it takes in
    /// meanwhile are a matter of the next balance, which begins with the first call after this one
    /// has ended with `None`.
    ///
    /// Never waits. Under the law of 2.6.36 a writer writes pages itself, which cannot be done
    /// here: the flusher does it, and the writer is paused by the naps of that law.
    ///
    /// # Errors
    /// That of a device that has failed meanwhile, as a write gets it. `Cancelled`.
    pub fn pace(
        self: &Arc<Self>,
        task: &mut Task<'_>,
        writer: &mut Writer,
    ) -> Result<Option<Instant>, Error> {
        task.nonblocking(|task| balance(task, self, &mut writer.pacer))
    }

    /// A writer is done for now: its debt is passed on, as that of a writer that is gone, and it is
    /// as a new one.
    pub fn settle(&self, writer: &mut Writer) {
        let context = Interrupt::new();
        let mut domain = self.writeback.domain.lock(&context);
        // Of the CPUs, which are all the same to somebody outside any task.
        let cpu = 0;
        tell_the_rest(&mut domain, self.env.now(), cpu, &mut writer.pacer);
        writer.pacer.account = Account::default();
        let fresh = domain.add_writer();
        let before = core::mem::replace(&mut writer.pacer.index, fresh);
        domain.remove_writer(before, cpu);
    }
}
