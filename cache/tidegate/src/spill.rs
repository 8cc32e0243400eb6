//! Anonymous memory that spills to the swap file under pressure.

use std::fmt;
use std::sync::Arc;

use policy::units::Bytes;

use crate::map::{fill_by_copies, take_by_copies};
use crate::{Cache, Error, PAGE_SIZE, Progress};

/// A region of bytes that share the cache's memory limit: pages that are not used for a while go to
/// the swap file ([`crate::Builder::swap_file`]) and comes back on access. It reads as zeroes until
/// it is written; nothing of it outlives the process. Shared by reference between threads; dropping
/// it gives its memory and its slots back.
///
/// ```
/// use tidegate::Cache;
///
/// let dir = std::env::temp_dir().join(format!("tidegate-spill-doc-{}", std::process::id()));
/// std::fs::create_dir_all(&dir)?;
/// let cache = Cache::builder()
///     .memory(16 << 20)
///     .swap_file(dir.join("swap"), 64 << 20)
///     .build()?;
///
/// let table = cache.spill(32 << 20)?; // twice the limit
/// for page in 0..8192_u64 {
///     table.write_at(&page.to_le_bytes(), page * 4096)?;
/// }
/// let mut word = [0; 8];
/// table.read_at(&mut word, 17 * 4096)?; // comes back from the swap file
/// assert_eq!(u64::from_le_bytes(word), 17);
///
/// table.discard(0, 16 << 20)?; // memory and slots at once
/// assert!(cache.stats().anonymous <= 16 << 20);
/// drop(table);
/// cache.close()?;
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Spill {
    cache: Cache,
    inner: Arc<mm::Spill>,
    len: u64,
}

/// The result of touching a part of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Touched {
    /// Bytes of whole pages touched.
    pub bytes: u64,
    /// Pages that were not at hand.
    pub faults: u64,
    /// Of these, pages that had to be read from the swap file.
    pub major: u64,
}

impl Spill {
    pub(crate) fn new(cache: Cache, inner: Arc<mm::Spill>, len: u64) -> Self {
        Self { cache, inner, len }
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if it has no bytes: never.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of it that are in memory now. Walks over all its pages.
    #[must_use]
    pub fn resident(&self) -> u64 {
        self.inner.resident().bytes().0
    }

    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// `Cache`: beyond the end, no memory and no room in the swap file, a page that could not be
    /// read back (it is kept, the next access tries again). Data before the point of the error was
    /// taken in. `Closed`.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<(), Error> {
        let mut task = self.cache.enter()?;
        self.check(offset, data.len() as u64)?;
        if self.cache.inner.views.have(data) {
            drop(task);
            let written = take_by_copies(data, |part, at| {
                let written = self.write_at(part, offset + at);
                written.map(|()| Progress::all(part.len()))
            });
            return written.map(drop);
        }
        Ok(self.inner.write(&mut task, Bytes(offset), data)?)
    }

    /// Fills all of `data` from `offset`.
    ///
    /// # Errors
    /// As `write_at`. No memory too: a page that is out comes back to a frame, and where all memory
    /// is anonymous and the swap file full there may be none, until something is discarded. Nothing
    /// is lost by that.
    pub fn read_at(&self, data: &mut [u8], offset: u64) -> Result<(), Error> {
        let mut task = self.cache.enter()?;
        self.check(offset, data.len() as u64)?;
        if self.cache.inner.views.have(data) {
            drop(task);
            let read = fill_by_copies(data, |part, at| {
                let read = self.read_at(part, offset + at);
                read.map(|()| Progress::all(part.len()))
            });
            return read.map(drop);
        }
        Ok(self.inner.read(&mut task, Bytes(offset), data)?)
    }

    /// Brings the pages of a range into memory and marks them as written to, as a store to each of
    /// what is there already: for programs that want memory at hand, and for measuring. A page that
    /// was neither read nor written gets its first word set to a number of its own.
    ///
    /// # Errors
    /// As `write_at`. `PartOfPage` for a range that does not begin and end at a page (4096 bytes).
    pub fn touch(&self, offset: u64, len: u64) -> Result<Touched, Error> {
        let mut task = self.cache.enter()?;
        let (first, count) = self.pages(offset, len)?;
        let touched = self.inner.touch(&mut task, first, count)?;
        Ok(Touched {
            bytes: touched.pages.bytes().0,
            faults: touched.faults.0,
            major: touched.major.0,
        })
    }

    /// Gives the memory and the slots of a range back; it reads as zeroes again.
    ///
    /// # Errors
    /// `Cache` with `OutOfRange` for a range beyond the end, `PartOfPage` for a range that does not
    /// begin and end at a page. `Closed`.
    pub fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        let mut task = self.cache.enter()?;
        let (first, count) = self.pages(offset, len)?;
        Ok(self.inner.discard(&mut task, first, count)?)
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), Error> {
        let end = offset.saturating_add(len);
        if end > self.len {
            return Err(Error::Cache(mm::Error::OutOfRange {
                what: "region",
                end: Bytes(end),
                len: Bytes(self.len),
            }));
        }
        Ok(())
    }

    /// Number of the first page and number of pages of a range of whole pages; the last page may be
    /// cut by the end.
    fn pages(&self, offset: u64, len: u64) -> Result<(u32, u32), Error> {
        self.check(offset, len)?;
        let page = PAGE_SIZE as u64;
        let end = offset + len;
        let whole = offset.is_multiple_of(page) && (end.is_multiple_of(page) || end == self.len);
        let number = |bytes: u64| u32::try_from(bytes.div_ceil(page)).ok();
        match (whole, number(offset), number(len)) {
            (true, Some(first), Some(count)) => Ok((first, count)),
            _ => Err(Error::PartOfPage { offset, end }),
        }
    }
}

impl fmt::Debug for Spill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spill")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
