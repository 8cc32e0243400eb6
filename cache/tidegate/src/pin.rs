//! Pinned pages of a file, one by one or in one piece: those that borrow the file, and those that
//! are kept beside it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use mm::{Pinned, PinnedBy, PinnedRun, PinnedRunBy};

use crate::Cache;

/// A page held in the cache: its bytes stay as they are while this lives. A write to the page
/// meanwhile goes to other memory. Counted against the limit; drop it soon.
pub struct Pin<'a> {
    pinned: Pinned<'a>,
    cache: &'a Cache,
}

impl<'a> Pin<'a> {
    #[inline(always)]
    pub(crate) fn new(pinned: Pinned<'a>, cache: &'a Cache) -> Self {
        Self { pinned, cache }
    }

    /// The same pin, to be kept beside the file, in a struct or another thread.
    #[must_use]
    pub fn into_owned(self) -> OwnedPin {
        let pinned = self.pinned.keep(&self.cache.inner.mm);
        OwnedPin::new(Held::Page(pinned), self.cache)
    }
}

impl Deref for Pin<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.cache.arena().bytes(self.pinned.pin())
    }
}

/// Pages held in the cache in one piece, up to 2 MiB: their bytes stay as they are while this
/// lives, each page as it was when it was pinned. A write to one of them meanwhile goes to other
/// memory. Each page counts as a pin; drop it soon.
pub struct PinRun<'a> {
    pinned: PinnedRun<'a>,
    cache: &'a Cache,
}

impl<'a> PinRun<'a> {
    pub(crate) fn new(pinned: PinnedRun<'a>, cache: &'a Cache) -> Self {
        Self { pinned, cache }
    }

    /// The same pins, to be kept beside the file, in a struct or another thread.
    #[must_use]
    pub fn into_owned(self) -> OwnedPin {
        let pinned = self.pinned.keep(&self.cache.inner.mm);
        OwnedPin::new(Held::Run(pinned), self.cache)
    }
}

impl Deref for PinRun<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.cache.arena().bytes_of_run(self.pinned.pins())
    }
}

/// A [`Pin`] or a [`PinRun`] that borrows nothing: it outlives its file, also one that is closed or
/// discarded, and keeps the memory of the cache, also of one that is closed, until it is dropped.
///
/// ```
/// # use tidegate::{Cache, OpenOptions, OwnedPin};
/// # let dir = std::env::temp_dir().join(format!("tidegate-doc-own-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// struct Node {
///     page: OwnedPin,
/// }
///
/// let cache = Cache::builder().memory(64 << 20).build()?;
/// let file = cache.open(dir.join("tree"), OpenOptions::new().create(true))?;
/// file.write_at(b"root", 0)?;
/// let node = Node { page: file.pin(0)?.into_owned() };
/// file.write_at(b"leaf", 0)?; // to other memory
/// file.close()?;
/// assert_eq!(&node.page[..4], b"root");
/// # drop(node);
/// # cache.close()?;
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct OwnedPin {
    held: Held,
    /// After what is pinned in it.
    cache: Cache,
}

enum Held {
    Page(PinnedBy<Arc<mm::Cache>>),
    Run(PinnedRunBy<Arc<mm::Cache>>),
}

impl OwnedPin {
    fn new(held: Held, cache: &Cache) -> Self {
        let cache = cache.clone();
        Self { held, cache }
    }
}

impl Deref for OwnedPin {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let arena = self.cache.arena();
        match &self.held {
            Held::Page(page) => arena.bytes(page.pin()),
            Held::Run(run) => arena.bytes_of_run(run.pins()),
        }
    }
}

impl AsRef<[u8]> for OwnedPin {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for OwnedPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnedPin of {} bytes", self.len())
    }
}
