//! What one writer carries from call to call.

use core::ops::Range;

use env::Env;
use frames::Busy;
use policy::dirty::WriterIndex;

use crate::file::reserve::FrameReserve;
use crate::file::write::Filled;
use crate::registry::device::DeviceState;
use crate::registry::mapping::Mapping;
use crate::writeback::balance::Account;

/// The unit that is paced. One per client, thread or task; not shared.
#[derive(Debug)]
pub struct Writer {
    pub(crate) id: u32,
    pub(crate) index: WriterIndex,
    /// For each device slot: how many errors this writer has already reported, and the serial of
    /// the device it counted them for.
    seen_errors: Vec<(u64, u64)>,
    /// Pages that it dirtied and was not paused for yet.
    pub(crate) account: Account,
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
}

impl Writer {
    /// `seen_errors`: serial numbers and errors so far, by device slot.
    pub(crate) fn new(id: u32, index: WriterIndex, seen_errors: Vec<(u64, u64)>) -> Self {
        // Grown as it writes: a server has a writer for each client, and most write little at a
        // time.
        Self {
            id,
            index,
            seen_errors,
            account: Account::default(),
            prepared: None,
            reserve: FrameReserve::default(),
            ahead: Vec::new(),
            batch: Vec::new(),
        }
    }

    /// Its number, as events name it.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Errors of a device that it has reported. A device younger than the writer had none before.
    pub(crate) fn seen_errors<E: Env>(&mut self, device: &DeviceState<E>) -> &mut u64 {
        let at = usize::from(device.index.0);
        if at >= self.seen_errors.len() {
            self.seen_errors.resize(at + 1, (0, 0));
        }
        let (serial, seen) = &mut self.seen_errors[at];
        if *serial != device.serial {
            (*serial, *seen) = (device.serial, 0);
        }
        seen
    }

    /// Whether the device need not be told of a write any more.
    pub(crate) fn is_prepared<E: Env>(&self, mapping: &Mapping<E>, from: u64, to: u64) -> bool {
        !mapping.device.info.prepares_writes
            || self.prepared.as_ref().is_some_and(|(file, bytes)| {
                *file == mapping.serial && bytes.start <= from && to <= bytes.end
            })
    }

    /// The device was told of a write.
    pub(crate) fn note_prepared<E: Env>(&mut self, mapping: &Mapping<E>, from: u64, to: u64) {
        self.prepared = Some((mapping.serial, from..to));
    }

    pub(crate) fn into_index(self) -> WriterIndex {
        self.index
    }
}
