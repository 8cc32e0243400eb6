//! A log of the program's own, for which pages of its files wait: write-ahead order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use policy::units::Pages;

/// A log that pages wait for: one that was written by [`File::write_logged`] with a number (LSN)
/// goes to its device after [`WriteAhead::durable`] has told that the log is durable up to that
/// number. Several files may follow the same log ([`File::follow`]). The log itself, in a file of
/// the same cache or anywhere, is the program's matter.
///
/// The function that it was made with is told up to which number the log is wanted: the flusher and
/// tasks that need memory want pages to go, a sync waits for its pages, and a writer waits while
/// pages that wait are as many as the threshold from which dirty pages are written in the
/// background ([`Builder::background_limit`]). The wait is named `log durable`. All that is dirty
/// otherwise, a log in the same cache among it, has room meanwhile.
///
/// [`File::write_logged`]: crate::File::write_logged
/// [`File::follow`]: crate::File::follow
/// [`Builder::background_limit`]: crate::Builder::background_limit
///
/// ```
/// # use std::sync::Arc;
/// # use tidegate::{Cache, OpenOptions, WriteAhead};
/// # let dir = std::env::temp_dir().join(format!("tidegate-doc-ahead-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// let cache = Cache::builder().memory(64 << 20).build()?;
/// let log = cache.open(dir.join("log"), OpenOptions::new().create(true))?;
/// let pages = cache.open(dir.join("pages"), OpenOptions::new().create(true))?;
/// let (ask, asked) = std::sync::mpsc::channel();
/// let ahead = WriteAhead::new(move |lsn| drop(ask.send(lsn)));
/// pages.follow(&ahead)?;
///
/// let record = b"page 0 becomes 1"; // its number: where it ends in the log
/// log.write_at(record, 0)?;
/// pages.write_logged(&[1; 4096], 0, record.len() as u64)?;
/// assert_eq!(ahead.held(), 4096);
///
/// // The log's thread, when it is asked; a commit does the same.
/// let logger = std::thread::spawn({
///     let ahead = ahead.clone();
///     move || -> Result<(), tidegate::Error> {
///         let lsn = asked.recv().expect("a sync asks");
///         log.sync_range(0, lsn)?;
///         ahead.durable(lsn);
///         Ok(())
///     }
/// });
/// pages.sync()?; // the log first, then the page
/// assert_eq!(ahead.held(), 0);
/// # logger.join().expect("the log is written")?;
/// # drop(pages);
/// # cache.close()?;
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct WriteAhead(pub(crate) Arc<mm::WriteAhead>);

impl WriteAhead {
    /// A log that is durable up to nothing. `ask` is told a number up to which the log is wanted,
    /// each time a higher one than before. It is called by threads that have other things to do,
    /// so it must not wait, and not call the cache: it wakes the thread that writes the log.
    #[must_use]
    pub fn new(ask: impl Fn(u64) + Send + Sync + 'static) -> Self {
        Self(Arc::new(mm::WriteAhead::new(move |lsn| {
            // The panic hook has told of it; a flusher goes on.
            let _ = catch_unwind(AssertUnwindSafe(|| ask(lsn)));
        })))
    }

    /// The log is durable up to `lsn`, that included. A number below the last one changes nothing.
    pub fn durable(&self, lsn: u64) {
        self.0.durable(lsn);
    }

    /// The number that it is durable up to.
    #[must_use]
    pub fn durable_lsn(&self) -> u64 {
        self.0.durable_lsn()
    }

    /// Bytes of pages that wait for it.
    #[must_use]
    pub fn held(&self) -> u64 {
        Pages(self.0.held()).bytes().0
    }

    /// The log has failed, or is given up: calls that wait for it, now and later, and writes that
    /// would have to, end with [`CacheError::LogEnded`](crate::CacheError::LogEnded). Pages that
    /// wait are never written: [`File::discard`](crate::File::discard) lets them go.
    pub fn end(&self) {
        self.0.end();
    }
}
