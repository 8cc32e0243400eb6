//! The pages that slabs take, and the cost of reading a page again: a cache knows no more of the
//! caches of objects beside it. Those are parts of a kernel (`Kernel::pass_shared`).

use std::sync::{Arc, OnceLock};

use env::Task;
use frames::sync::{AtomicU64, Ordering};
use policy::place::mobility::Mobility;
use policy::units::{Nanos, Pages};

use crate::lists::ZoneId;
use crate::vmstat::{add, get, sub};

/// The time of a page's read moves by this part of what is new.
const READ_MEAN: u64 = 8;

/// Is told which pages of files reclaim, a truncation or `Cache::drop_caches` has freed, for
/// objects that go with them.
pub trait PageWatch: Send + Sync {
    /// These have gone: the number of the file (`File::number`), and of the page. Called with no
    /// lock held; it may give objects back, and takes none.
    fn pages_gone(&self, task: &mut Task<'_>, pages: &[(u32, u32)]);
}

/// Pages of slabs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlabPages {
    /// Their objects can be made again.
    pub reclaimable: Pages,
    /// They stay until their owner gives them back.
    pub unreclaimable: Pages,
}

impl SlabPages {
    /// Both.
    #[must_use]
    pub fn all(self) -> Pages {
        self.reclaimable + self.unreclaimable
    }
}

/// See the module.
pub struct SlabCounts {
    /// By zone.
    reclaimable: Box<[AtomicU64]>,
    unreclaimable: AtomicU64,
    /// Nanoseconds that a page's read takes; zero: none was read.
    read: AtomicU64,
    /// Mostly none.
    pub(crate) watch: OnceLock<Arc<dyn PageWatch>>,
}

impl SlabCounts {
    /// For a machine of `zones` zones.
    pub(crate) fn new(zones: usize) -> Self {
        Self {
            reclaimable: (0..zones).map(|_| AtomicU64::new(0)).collect(),
            unreclaimable: AtomicU64::new(0),
            read: AtomicU64::new(0),
            watch: OnceLock::new(),
        }
    }

    /// Pages of slabs now.
    pub fn pages(&self) -> SlabPages {
        SlabPages {
            reclaimable: Pages(self.reclaimable.iter().map(get).sum()),
            unreclaimable: Pages(get(&self.unreclaimable)),
        }
    }

    /// Of a zone: pages of slabs whose objects can be made again.
    pub(crate) fn reclaimable_of(&self, zone: ZoneId) -> Pages {
        Pages(get(&self.reclaimable[zone.index()]))
    }

    fn of(&self, mobility: Mobility, zone: ZoneId) -> &AtomicU64 {
        match mobility {
            Mobility::Reclaimable => &self.reclaimable[zone.index()],
            Mobility::Unmovable | Mobility::Movable => &self.unreclaimable,
        }
    }

    /// A slab got its pages, in a zone.
    pub fn note_slab(&self, mobility: Mobility, zone: ZoneId, pages: Pages) {
        add(self.of(mobility, zone), pages.0);
    }

    /// The pages of a slab are given back.
    pub fn note_gone(&self, mobility: Mobility, zone: ZoneId, pages: Pages) {
        sub(self.of(mobility, zone), pages.0);
    }

    /// The mean time of a page's read.
    pub(crate) fn read(&self) -> Nanos {
        Nanos(self.read.load(Ordering::Relaxed))
    }

    /// A read of `pages` pages took `took`: pages of one read share its time.
    pub(crate) fn note_read(&self, took: Nanos, pages: u64) {
        let each = took.0 / pages.max(1);
        let before = self.read.load(Ordering::Relaxed);
        let mean = if before == 0 {
            each
        } else {
            before - before / READ_MEAN + each / READ_MEAN
        };
        self.read.store(mean, Ordering::Relaxed);
    }
}
