//! Space on the device for what a file is about to be written.

use std::sync::Arc;

use env::{Cause, IoError, IoOp, Task};
use policy::units::{Bytes, PAGE_SIZE};

use crate::cache::Cache;
use crate::error::is_unsupported;
use crate::registry::gate::ShutGate;
use crate::registry::mapping::Mapping;
use crate::writeback::io::set_device_len;
use crate::{Error, writeback::io};

/// Space is asked for ahead in steps of an eighth of the file, between these.
const AHEAD_MIN: u64 = 1 << 20;
const AHEAD_MAX: u64 = 256 << 20;

/// Makes sure that the device has space for a write of `at..end` before a byte of it is
/// acknowledged.
///
/// Farther behind the end of what has space than is taken ahead, a hole is left, and nothing is
/// taken ahead. A device that cannot take space ahead at all finds out when it is written to.
pub(crate) fn reserve_space(
    task: &mut Task<'_>,
    cache: &Cache,
    mapping: &Arc<Mapping>,
    at: u64,
    end: u64,
) -> Result<(), Error> {
    if end <= mapping.allocated() {
        return Ok(());
    }
    io::may_call(task)?;
    // Nobody cuts the object meanwhile: what it has been given would be noted and gone.
    let inside = mapping.enter(task, &cache.registry)?;
    let allocated = mapping.allocated();
    if end <= allocated {
        // Another writer was faster.
        return Ok(());
    }
    let is_far = at > allocated.saturating_add(AHEAD_MAX);
    let (from, ahead) = if is_far {
        (at, 0)
    } else {
        (allocated, (end / 8).clamp(AHEAD_MIN, AHEAD_MAX))
    };
    let from = from - from % PAGE_SIZE;
    let wanted = (end + ahead).next_multiple_of(AHEAD_MIN);
    let exact = end.next_multiple_of(PAGE_SIZE);
    let mut result = Ok(());
    // The space asked for ahead may be too much where the file itself still fits.
    for until in [wanted, exact] {
        result = ask_space(task, mapping, from, until);
        if result.is_err_and(is_unsupported) {
            mapping.note_allocated(until);
            result = Ok(());
        }
        if result.is_ok() {
            break;
        }
    }
    drop(inside);
    result.map_err(Error::no_space_taken)
}

/// Makes sure that the device has space up to `len`.
pub(crate) fn allocate(
    task: &mut Task<'_>,
    mapping: &ShutGate<'_>,
    len: Bytes,
) -> Result<(), Error> {
    let allocated = ask_space(task, mapping, 0, len.0);
    mapping.note_completed();
    if let Err(IoError::NoSpace | IoError::OverQuota) = allocated {
        // File systems keep what they took before they were full. To lengthen the object gives
        // nothing back, to set the same length again does.
        let size = mapping.size();
        let _ =
            set_device_len(task, mapping, size).and_then(|()| set_device_len(task, mapping, size));
    }
    allocated.map_err(Error::no_space_taken)
}

/// Has the device take space for `from..until`, and notes it.
fn ask_space(task: &mut Task<'_>, mapping: &Mapping, from: u64, until: u64) -> Result<(), IoError> {
    let op = IoOp::Allocate {
        len: Bytes(until - from),
    };
    io::call(
        task,
        mapping.device.id,
        mapping.object,
        op,
        Bytes(from),
        Cause::DeviceMetadata,
    )?;
    mapping.note_allocated(until);
    Ok(())
}
