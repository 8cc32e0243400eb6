//! Small files of a cell: the caches of their objects, and what keeps them.
//!
//! Slabs keep their size at any scale, and so do pageblocks where there are small files
//! (`session`): what is left in a pageblock of single pages, too small for a slab, is what makes
//! the next one be taken. With blocks that shrink, a page stands for several and there is nothing
//! left over: at a quarter of the size, 59 pageblocks a second are mixed for 930 at full size, and
//! paper p3's collapse does not come.
//!
//! Source: experiments A4; kernel-facts 14.

use history::files::{InodeRule, PRESSURE};
use kernel::SlabSpec;
use policy::place::mobility::Mobility;
use policy::units::{Bytes, Pages};
use workload::{Keep, ObjectCache, Role, SmallOptions};

use scenario::small::{CACHES_MOST, Row, rows};
use scenario::{Machine, RoleKind};

const _: () = assert!(CACHES_MOST == workload::CACHES_MAX);

/// Bytes of log for a file, and its length.
///
/// A file costs some 0.3 kB of log: one transaction makes it and one sets its size (GUESS, after
/// the design of xfs's log items). The length is mkfs.xfs's for a device of 250 GB (GUESS).
const LOG_A_FILE: Bytes = Bytes(300);
const LOG: Bytes = Bytes(122 << 20);

/// Small files of a cell.
#[derive(Clone, Debug)]
pub struct SmallSpec {
    /// The caches of their objects.
    pub caches: Vec<ObjectCache>,
    /// The law by which inodes are freed.
    pub rule: InodeRule,
    /// `vfs_cache_pressure`.
    pub pressure: u32,
    /// Pages of a file.
    pub pages_a_file: u32,
}

impl SmallSpec {
    /// Of a checked machine.
    #[must_use]
    pub(super) fn of(machine: &Machine, rule: InodeRule, pages_a_file: u32) -> Self {
        let cache = |(role, bytes, order, reclaimable): Row| ObjectCache {
            spec: SlabSpec {
                name: match role {
                    RoleKind::Entry => "entries",
                    RoleKind::Inode => "inodes",
                    RoleKind::Beside => "beside inodes",
                },
                object: Bytes(bytes),
                order: u8::try_from(order).expect("an order is checked"),
                mobility: if reclaimable {
                    Mobility::Reclaimable
                } else {
                    Mobility::Unmovable
                },
            },
            role: match role {
                RoleKind::Entry => Role::Entry,
                RoleKind::Inode => Role::Inode,
                RoleKind::Beside => Role::Beside,
            },
        };
        Self {
            caches: rows(machine).into_iter().map(cache).collect(),
            rule,
            pressure: machine
                .vfs_cache_pressure
                .as_ref()
                .map_or(PRESSURE, |pressure| *pressure.get_ref()),
            pages_a_file,
        }
    }

    /// The options of a run, on a machine of `memory`.
    #[must_use]
    pub(super) fn options(&self, nodes: u8, memory: Pages) -> SmallOptions {
        SmallOptions {
            caches: self.caches.clone(),
            rule: self.rule,
            pressure: self.pressure,
            pages_a_file: self.pages_a_file,
            nodes,
            memory,
        }
    }
}

/// The keeper of a machine that is smaller by `shrink`.
pub(super) fn keeper(shrink: u64) -> Keep {
    let log = (LOG.0 / shrink.max(1)).next_multiple_of(4096);
    Keep {
        log_a_file: LOG_A_FILE,
        log: Bytes(log),
    }
}

#[cfg(test)]
mod tests {
    use scenario::small::P3;

    /// Bytes of slabs a file.
    fn a_file(reclaimable: bool) -> u64 {
        let own = P3.iter().filter(|row| row.3 == reclaimable);
        own.map(|(_, bytes, order, _)| {
            let slab = 4096 << order;
            slab / (slab / bytes)
        })
        .sum()
    }

    #[test]
    fn a_files_objects_fill_as_much_of_the_memory_as_was_published() {
        let files = 7_330_892 / 4;
        for (reclaimable, published_kib) in [(true, 3_727_612_u64), (false, 2_851_772)] {
            let published = published_kib * 1024 / files;
            let ours = a_file(reclaimable);
            assert!(
                ours.abs_diff(published) * 100 <= 3 * published,
                "{ours} bytes, not {published}"
            );
        }
        assert_eq!(P3.len() as u64, world::fs::costs::p3::OBJECTS);
    }
}
