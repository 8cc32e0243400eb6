//! Small files of a cell: the caches of their objects, and what keeps them.
//!
//! Slabs keep their size at any scale, and so do pageblocks where there are small files
//! (`session`): what is left in a pageblock of single pages, too small for a slab, is what makes
//! the next one be taken. With blocks that shrink, a page stands for several and there is nothing
//! left over: at a quarter of the size, 59 pageblocks a second are mixed for 930 at full size, and
//! paper p3's collapse does not come.
//!
//! Source: experiments A4; kernel-facts 14.

use mm::SlabSpec;
use policy::place::mobility::Mobility;
use policy::shrink::files::{InodeRule, PRESSURE};
use policy::units::{Bytes, Pages};
use workload::{Keep, ObjectCache, Role, SmallOptions};

use crate::scenario::Machine;
use crate::scenario::small::{Row, rows};

/// What the log takes for a file, and how long it is.
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
    /// How inodes are let go.
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
                    Role::Entry => "entries",
                    Role::Inode => "inodes",
                    Role::Beside => "beside inodes",
                },
                object: Bytes(bytes),
                order: u8::try_from(order).expect("an order is checked"),
                mobility: if reclaimable {
                    Mobility::Reclaimable
                } else {
                    Mobility::Unmovable
                },
            },
            role,
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

    /// What a run is given, on a machine of so much memory.
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
    use workload::Stop;

    use super::*;
    use crate::outcome::Outcome;
    use crate::run::cell::{Cell, Column};
    use crate::run::live::{Live, LiveFiles};
    use crate::scenario::small::P3;
    use crate::scenario::{Scenario, Source};

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
        assert_eq!(P3.len() as u64, lab::fs::costs::p3::OBJECTS);
    }

    /// Two tasks make files whose pages and objects are several times the memory; afterwards some
    /// are looked at again.
    const SMALL: &str = r#"
        schema = "tidegate-exp/1"
        name = "small"
        [machine]
        cpus = 2
        memory_mib = 48
        costs = "p3"
        [[device]]
        id = "disk"
        model = "ssd"
        params = { gc_per_tib = 0 }
        fs = "xfs"
        [[task]]
        id = "make"
        kind = "make_small"
        device = "disk"
        count = 2
        files_per_loop = 2000
        loops = 5
        file_kib = 4
        [[task]]
        id = "stat"
        kind = "stat_small"
        device = "disk"
        memory_part = 0.9
        after = true
        [[task]]
        id = "read"
        kind = "read_small"
        device = "disk"
        memory_part = 0.02
        after = true
        [[policy]]
        name = "linux-5.15"
        [[policy]]
        name = "linux-6.12"
        [[policy]]
        name = "tidegate"
        [[policy]]
        name = "linux-5.0"
        [[policy]]
        name = "linux-5.0+p3"
        [[policy]]
        name = "linux-5.3"
        [[policy]]
        name = "patched-by-a-key"
        preset = "linux-5.0"
        boost = "linux-5.0+p3"
    "#;

    fn cell(policy: usize) -> Cell {
        let source = Source {
            origin: "test".into(),
            text: SMALL.into(),
        };
        let (scenario, _) = Scenario::load(source, &[]).unwrap();
        let column = Column::of(&scenario.policies[policy]);
        Cell::resolve(&scenario, &scenario.rows()[0], &column)
    }

    fn check(run: &Outcome) {
        let makers: Vec<_> = run.jobs.iter().filter(|job| job.makes_small).collect();
        assert_eq!(makers.len(), 2);
        for maker in makers {
            assert!((maker.bytes - 10_000.0 * 4096.0).abs() < 0.5, "{maker:?}");
            assert!((maker.files_a_round - 4_000.0).abs() < 0.5);
        }
        let of = |name: &str| run.jobs.iter().find(|job| job.name == name).unwrap();
        let (stat, read) = (of("stat"), of("read"));
        assert!(
            (stat.calls, stat.misses > 0.0) == (12_500, true),
            "{stat:?}"
        );
        assert!(read.bytes >= 270.0 * 4096.0, "{read:?}");
        let keeper = of("keeper");
        assert!(keeper.bytes > 16_384.0 * 100.0, "{keeper:?}");
    }

    #[test]
    fn small_files_come_and_go_in_the_lab() {
        for policy in 0..3 {
            let cell = cell(policy);
            let run = crate::run::lab::run(&cell, 1, false, &Stop::default()).unwrap();
            check(&run);
            let again = crate::run::lab::run(&cell, 1, false, &Stop::default()).unwrap();
            assert_eq!(run.trace_hash, again.trace_hash, "{}", cell.policy);
        }
    }

    #[test]
    fn paper_p3s_patch_is_what_was_merged_and_both_differ_from_5_0() {
        let run = |policy| {
            let run = crate::run::lab::run(&cell(policy), 1, false, &Stop::default()).unwrap();
            check(&run);
            run.trace_hash
        };
        let [before, patched, merged, by_key] = [3, 4, 5, 6].map(run);
        assert_eq!(patched, merged);
        assert_eq!(patched, by_key);
        assert_ne!(before, patched);
    }

    #[test]
    fn small_files_come_and_go_live() {
        let dir = std::env::temp_dir().join(format!("tidegate-small-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let live = Live {
            dir: dir.clone(),
            wrap: None,
            memory: Some(Bytes(os::resident_bytes() + (64 << 20))),
            files: LiveFiles::default(),
        };
        let run = live.run(&cell(2), false, &Stop::default());
        let left = std::fs::read_dir(&dir).unwrap().count();
        std::fs::remove_dir_all(&dir).unwrap();
        check(&run.unwrap());
        assert_eq!(left, 0);
    }
}
