//! Sizes of one task in a row, and how they shrink with the run's scale.
//!
//! Memory, files and rates are scaled; times and what a call moves are not. A block of random I/O
//! shrinks as requests do, down to `block_least`, so that a file of a small part of the memory
//! still has several blocks (experiments A6). A block that stands for a read-ahead window shrinks
//! as that does.

use policy::units::{Bytes, Nanos, Pages};
use toml::Spanned;

use scenario::keys::value;
use scenario::units::{PAGES_PER_MIB, kib, mib, whole, whole_pages};

/// Sizes of one task: those in MiB before scaling.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    /// Of all its files together, MiB: `file_mib`, or a part of the memory.
    pub(crate) file_mib: f64,
    /// Of its memory, MiB: `region_mib`, or a part of the memory.
    pub(crate) region_mib: f64,
    /// `memory_part` of the memory, however many tasks there are, MiB.
    pub(crate) part_mib: f64,
    /// Number of its files, by the row or its entry.
    pub(crate) files: u32,
    /// A random block does not shrink below this.
    pub(crate) block_least: Pages,
    /// The run's scale.
    pub(crate) scale: f64,
    /// Which one of its entry's tasks it is.
    pub(crate) number: u32,
    /// Its longest run.
    pub(crate) run_for: Option<Nanos>,
    /// All memory for pages of the machine, scaled.
    pub(crate) memory: Pages,
    /// Pages of a huge page.
    pub(crate) huge: u32,
    /// Bytes of objects that a small file has in memory.
    pub(crate) small_file: f64,
    /// A page costs this many times as much CPU time as at full size.
    pub(crate) costs: u64,
}

impl Sizes {
    /// Bytes of one call: what is given, or what the kind has.
    pub(crate) fn block(&self, given: &Option<Spanned<f64>>, kib_else: f64) -> Bytes {
        kib(value(given).unwrap_or(kib_else))
    }

    /// A random block: scaled, as a request is.
    pub(crate) fn random_block(&self, full: Bytes) -> Bytes {
        let least = self.block_least.bytes().at_most(full);
        let pages = Pages(whole(whole_pages(full) * self.scale));
        pages.bytes().at_least(least)
    }

    /// A block that shrinks as a read-ahead window does.
    pub(crate) fn window(&self, full: Bytes) -> Bytes {
        let pages = Pages(whole(whole_pages(full) * self.scale));
        pages.at_least(Pages(1)).bytes()
    }

    /// Bytes of its file: whole sectors, and at least one block, however small the scale.
    pub(crate) fn file(&self, block: Bytes) -> Bytes {
        Bytes(whole(self.file_mib * self.scale * 2048.0) * 512).at_least(block)
    }

    /// Bytes of each of its files: whole blocks, and at least one.
    pub(crate) fn each_file(&self, block: Bytes) -> Bytes {
        let mib = self.file_mib / f64::from(self.files);
        let blocks = whole(mib * self.scale * PAGES_PER_MIB / whole_pages(block));
        Bytes(blocks.max(1) * block.0)
    }

    /// Its memory.
    pub(crate) fn region(&self) -> Pages {
        self.pages(self.region_mib).at_least(Pages(1))
    }

    /// Pages of `full_mib` MiB of the full size.
    pub(crate) fn pages(&self, full_mib: f64) -> Pages {
        Pages(whole(full_mib * PAGES_PER_MIB * self.scale))
    }

    /// Bytes of `full_mib` MiB of the full size.
    pub(crate) fn bytes(&self, full_mib: f64) -> Bytes {
        Bytes(mib(full_mib * self.scale))
    }

    /// The number of files for `full` at full size; at least one.
    pub(crate) fn count(&self, full: u32) -> u32 {
        let count = whole(f64::from(full) * self.scale);
        u32::try_from(count)
            .expect("fewer than at full size")
            .max(1)
    }

    /// By how much the machine is smaller.
    pub(crate) fn shrink(&self) -> u64 {
        whole(1.0 / self.scale)
    }
}
