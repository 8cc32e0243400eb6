//! The fate of requests that have ended.
//!
//! A request ends with the file, or the swap file, that it was sent for. Its consequences for
//! pages, lists, pacing and waiters are known on the floors above, all of them in one place:
//! `complete`.

use env::{Interrupt, IoError, IoRequest};

/// The receiver of the ends of requests that were sent for an `F`.
pub(crate) trait Completions<F>: Send + Sync {
    /// A request has ended. Runs as an interrupt: it may not block.
    fn ended(
        &self,
        of: &F,
        context: &Interrupt,
        request: Box<IoRequest>,
        result: Result<(), IoError>,
    );
}
