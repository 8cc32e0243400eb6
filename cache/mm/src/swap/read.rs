//! On the way back: requests for pages that are out.

use env::{Interrupt, IoError, IoRequest, Signal};
use frames::Flags;

use crate::cache::Cache;
use crate::swapfile::Area;

/// A read of the swap file has ended.
#[expect(
    clippy::boxed_local,
    reason = "the box is the request's, and ends here"
)]
pub(crate) fn read_done(
    cache: &Cache,
    area: &Area,
    context: &Interrupt,
    mut request: Box<IoRequest>,
    result: Result<(), IoError>,
) {
    let set = match result {
        Ok(()) => Flags::UPTODATE,
        Err(error) => {
            area.note_read_failed(context, request.pages().0, error);
            Flags::FAILED
        }
    };
    for busy in request.busy.drain(..) {
        cache.pages.table.release(busy, set, Flags::NONE);
    }
    cache.wake_busy(&request.frames, Signal::PageRead);
}
